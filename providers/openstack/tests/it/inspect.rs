//! The reports for users, over HTTP: explain, orphans, migration checks, snapshots.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    Check, Claims, CloudProvider, Fact, FactState, Inspect, LoadBalancerExt as _, NodeRef, Orphan,
    ProviderFactory as _, Service, ServiceAction, ServicePort, ServiceWork, Severity,
};
use ccm_provider_contract::TestCluster;
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER};

const UID: &str = "5eb5a7f2-aaaa-bbbb-cccc-0123456789ab";
const MANAGED: &str = "manage-security-groups = true";

fn service(name: &str, port: i32) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "shop".into();
    service.metadata.name = name.into();
    service.metadata.uid = UID.into();
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.ports =
        vec![ServicePort { protocol: "TCP".to_owned(), port, node_port: 30000 + port, ..ServicePort::default() }];
    service
}

/// A cloud, the provider of a process that leads, and two nodes.
struct Scene {
    bed: Bed,
    provider: Arc<dyn CloudProvider>,
    nodes: Vec<NodeRef>,
    cluster: Arc<TestCluster>,
}

impl Scene {
    async fn new(more: &str) -> Self {
        let bed = Bed::start(Options::default());
        let nodes = vec![bed.node("node-1"), bed.node("node-2")];
        let cluster = Arc::<TestCluster>::default();
        cluster.set_nodes(nodes.clone());
        let provider = bed.process(more, &cluster).await;
        Self { bed, provider, nodes, cluster }
    }

    fn inspector(&self) -> Arc<dyn Inspect> {
        self.provider.inspect().unwrap()
    }

    /// Creates the load balancer of a Service in a cluster; returns the Service with the annotations of the core.
    async fn made_in(&self, cluster: &str, mut service: Service) -> Service {
        let balancers = self.provider.load_balancer().unwrap();
        loop {
            let answer = balancers.reconcile_one(cluster, &service, &self.nodes, ServiceAction::Ensure).await;
            let done = match answer.result {
                Err(error) if error.is_in_progress() => false,
                result => {
                    service.status.load_balancer = result.unwrap().unwrap();
                    true
                }
            };
            for (key, value) in answer.notes.annotations {
                match value {
                    Some(value) => drop(service.metadata.annotations.insert(key, value)),
                    None => drop(service.metadata.annotations.remove(&key)),
                }
            }
            if done {
                return service;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn made(&self, service: Service) -> Service {
        self.made_in(CLUSTER, service).await
    }

    fn claims(&self, services: &[&Service]) -> Claims {
        let services = services.iter().map(|service| Arc::new((*service).clone())).collect();
        Claims { nodes: self.nodes.clone(), services }
    }

    async fn orphans(&self, services: &[&Service]) -> Vec<Orphan> {
        self.inspector().orphans(CLUSTER, &self.claims(services)).await.unwrap()
    }

    fn writes(&self) -> usize {
        self.bed.cloud.ledger(|ledger| ledger.mutating(0).count())
    }

    /// The number of objects of a kind.
    fn count(&self, kind: &str) -> usize {
        self.bed.cloud.resources(kind).len()
    }
}

fn bad(facts: &[Fact]) -> Vec<&Fact> {
    facts.iter().filter(|fact| fact.state == FactState::Bad).collect()
}

fn kinds(orphans: &[Orphan]) -> Vec<&str> {
    orphans.iter().map(|orphan| &*orphan.kind).collect()
}

fn with<'a>(checks: &'a [Check], check: &str, subject: &str) -> &'a Check {
    let found = checks.iter().find(|found| found.check == check && found.subject == subject);
    found.unwrap_or_else(|| panic!("no {check} of {subject}: {checks:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_services_in_order_are_explained_without_a_write() {
    let scene = Scene::new("").await;
    let web = scene.made(service("web", 80)).await;
    let writes = scene.writes();
    let facts = scene.inspector().explain_node(CLUSTER, &scene.nodes[0]).await.unwrap();
    assert!(bad(&facts).is_empty() && facts.len() >= 3, "{facts:#?}");
    let facts = scene.inspector().explain_service(CLUSTER, &web).await.unwrap();
    assert!(facts.iter().all(|fact| fact.state == FactState::Good), "{facts:#?}");
    for part in ["desired state", "load balancer kube_service_kubernetes_shop_web", "listener TCP 80", "pool pool_0_"] {
        assert!(facts.iter().any(|fact| fact.about.starts_with(part)), "{part}: {facts:#?}");
    }
    assert!(facts.iter().any(|fact| fact.text.contains("a floating IP that was made for the Service")), "{facts:#?}");
    assert_eq!(scene.writes(), writes);
    assert_eq!(scene.bed.cloud.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_is_named() {
    let scene = Scene::new("").await;
    let web = scene.made(service("web", 80)).await;
    let id = web.metadata.annotations["loadbalancer.openstack.org/load-balancer-id"].clone();
    scene.bed.cloud.set_balancer_status(&id, "ERROR");
    let facts = scene.inspector().explain_service(CLUSTER, &web).await.unwrap();
    let found = bad(&facts);
    assert!(found.iter().any(|fact| fact.hint.as_ref().unwrap().contains("failover")), "{facts:#?}");

    let mut wrong = web.clone();
    wrong.metadata.annotations.insert("loadbalancer.openstack.org/class".to_owned(), "nowhere".to_owned());
    let facts = scene.inspector().explain_service(CLUSTER, &wrong).await.unwrap();
    assert!(bad(&facts)[0].text.contains("invalid loadbalancer class \"nowhere\""), "{facts:#?}");
    assert!(facts.iter().any(|fact| fact.about.contains(&id)), "what it has is still shown: {facts:#?}");

    let server = scene.nodes[1].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
    scene.bed.cloud.world(|world| world.delete_server(&server));
    let facts = scene.inspector().explain_node(CLUSTER, &scene.nodes[1]).await.unwrap();
    assert!(bad(&facts)[0].text.contains("Nova does not show it"), "{facts:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_service_left_is_found_in_order_and_deleted() {
    let scene = Scene::new(MANAGED).await;
    let (ips, groups) = (scene.count("floatingip"), scene.count("security_group"));
    let web = scene.made(service("web", 80)).await;
    // The process of the command has not written recently.
    scene.cluster.advance(Duration::from_secs(10));
    assert!(scene.orphans(&[&web]).await.is_empty(), "claimed");
    let writes = scene.writes();
    let orphans = scene.orphans(&[]).await;
    assert_eq!(kinds(&orphans), ["LoadBalancer", "FloatingIP", "SecurityGroup"]);
    assert!(orphans.iter().all(|orphan| orphan.kept.is_none()), "{orphans:#?}");
    assert!(orphans[0].created.is_some() && orphans[0].reason.contains("there is no Service shop/web"), "{orphans:#?}");
    assert_eq!(scene.writes(), writes, "listing writes nothing");
    for _ in 0..2 {
        // The second time does nothing.
        for orphan in &orphans {
            scene.inspector().delete_orphan(CLUSTER, orphan).await.unwrap();
        }
    }
    assert!(scene.bed.cloud.balancers().is_empty());
    assert_eq!((scene.count("floatingip"), scene.count("security_group")), (ips, groups));
    assert!(scene.orphans(&[]).await.is_empty());
    // One that made way for another one.
    scene.made(service("web", 80)).await;
    scene.bed.cloud.world(|world| {
        let row = world.table("floatingip").values().last().unwrap();
        let (ip, text) = (row.id().to_owned(), format!("Replaced: {}", row.text("description")));
        world.row_mut("floatingip", &ip).unwrap().set("description", text);
    });
    assert_eq!(kinds(&scene.orphans(&[]).await), ["LoadBalancer", "FloatingIP", "SecurityGroup"]);
    assert_eq!(scene.bed.cloud.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_another_clusters_is_kept() {
    let scene = Scene::new(MANAGED).await;
    scene.made_in("other", service("web", 80)).await;
    assert!(scene.orphans(&[]).await.is_empty(), "of another name");

    // Another cluster of the same name: its nodes are behind the load balancer.
    scene.made(service("api", 443)).await;
    let (first, second) = (scene.bed.node("new-1"), scene.bed.node("new-2"));
    let claims = Claims { nodes: vec![first, second], services: Vec::new() };
    let orphans = scene.inspector().orphans(CLUSTER, &claims).await.unwrap();
    assert_eq!(kinds(&orphans), ["LoadBalancer", "FloatingIP", "SecurityGroup"]);
    for (orphan, why) in orphans.iter().zip(["none of its members is a node", "it is bound to the port", "port "]) {
        let kept = orphan.kept.as_deref().unwrap_or_default();
        assert!(kept.contains(why), "{orphan:#?}");
        let error = scene.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        assert!(error.to_string().contains("is not deleted"), "{error}");
    }
    // With the default name nothing shows the owner once the cluster is gone.
    let gone = scene.inspector().orphans(CLUSTER, &Claims::default()).await.unwrap();
    assert!(gone.iter().all(|orphan| orphan.kept.is_some()), "{gone:#?}");
    let other = scene.inspector().orphans("other", &Claims::default()).await.unwrap();
    assert!(other.len() == 3 && other.iter().all(|orphan| orphan.kept.is_none()), "{other:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_that_has_lost_its_marks_is_not_deleted() {
    let scene = Scene::new("").await;
    scene.made(service("web", 80)).await;
    let orphans = scene.orphans(&[]).await;
    let (id, ip) = (orphans[0].id.clone(), orphans[1].id.clone());
    scene.bed.cloud.world(|world| {
        let tags = json!(["kube_service_kubernetes_shop_web", "kube_service_other_shop_api"]);
        world.row_mut("loadbalancer", &id).unwrap().set("tags", tags);
        world.row_mut("floatingip", &ip).unwrap().set("description", "mine");
    });
    for orphan in &orphans {
        let error = scene.inspector().delete_orphan(CLUSTER, orphan).await.unwrap_err();
        assert!(error.to_string().contains("have changed"), "{error}");
    }
    let again = scene.orphans(&[]).await;
    assert_eq!(kinds(&again), ["LoadBalancer"]);
    assert!(again[0].kept.as_ref().unwrap().contains("kube_service_other_shop_api"), "{again:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_without_findings_and_one_with() {
    let scene = Scene::new("monitor-delay = 5").await;
    let web = scene.made(service("web", 80)).await;
    let writes = scene.writes();
    let checks = scene.inspector().migration_checks(CLUSTER, &scene.claims(&[&web])).await;
    let wrong: Vec<&Check> = checks.iter().filter(|check| check.severity > Severity::Info).collect();
    let named: Vec<(&str, &str)> = wrong.iter().map(|check| (&*check.check, &*check.subject)).collect();
    assert_eq!(named, [("cloud-config", "[LoadBalancer] monitor-delay"), ("cluster-name", CLUSTER)]);
    assert!(with(&checks, "permissions", "").message.contains("get_security_group"), "{checks:#?}");
    assert!(with(&checks, "load-balancers", "service shop/web").message.contains("is taken over as it is"));

    let deny = || Fault::Code { status: 403, code: "Forbidden".into(), message: "policy".into() };
    scene.bed.cloud.fault(Rule::every(deny()).on("network", "subnet_list"));
    scene.bed.cloud.world(|world| {
        let routes = json!([{"destination": "10.244.9.0/24", "nexthop": "10.60.0.250"},
                            {"destination": "10.99.0.0/24", "nexthop": "10.60.0.251"}]);
        world.row_mut("router", &scene.bed.router).unwrap().set("routes", routes);
    });
    let mut wrong = web.clone();
    wrong.spec.ports[0].port = 8080;
    let checks = scene.inspector().migration_checks(CLUSTER, &scene.claims(&[&wrong])).await;
    let unneeded = scene.inspector().migration_checks(CLUSTER, &scene.claims(&[])).await;
    let is_error = |check: &Check| check.check == "permissions" && check.severity == Severity::Error;
    assert!(!unneeded.iter().any(is_error), "{unneeded:#?}");
    scene.bed.cloud.faults(Faults::clear);
    let denied = checks.iter().find(|check| check.check == "permissions" && check.severity == Severity::Error);
    assert!(denied.unwrap().subject.contains("get_subnet"), "{checks:#?}");
    let routes: Vec<&Check> = checks.iter().filter(|check| check.check == "routes").collect();
    assert!(routes[1].message.contains("left alone: 10.99.0.0/24 via 10.60.0.251"), "{routes:#?}");
    assert!(routes[2].severity == Severity::Warning && routes[2].message.contains("10.244.9.0/24"), "{routes:#?}");
    let change = with(&checks, "load-balancers", "service shop/web");
    assert!(change.severity == Severity::Warning && change.message.contains("would change"), "{change:#?}");
    assert_eq!(scene.writes(), writes);
}

/// Compares the plan made here with the one from a snapshot's text; returns the plan and the text.
async fn same(provider: &dyn CloudProvider, item: &ServiceWork) -> (Result<String, String>, String) {
    let here = provider.load_balancer().unwrap();
    let planned = here.plan(CLUSTER, item).await.map(|plan| serde_json::to_string(&plan).unwrap());
    let observed = here.observe(CLUSTER, item).await.unwrap_or(Value::Null).to_string();
    let facts = provider.facts().to_string();
    let there = ccm_provider_openstack::Factory
        .replay(&serde_json::from_str(&facts).unwrap(), &FlagValues::default())
        .unwrap()
        .expect("plans of this provider can be replayed");
    let replayed = there.plan_observed(CLUSTER, item, &serde_json::from_str(&observed).unwrap());
    let replayed = replayed.map(|plan| serde_json::to_string(&plan).unwrap());
    let (planned, replayed) = (planned.map_err(|e| e.to_string()), replayed.map_err(|e| e.to_string()));
    assert_eq!(planned, replayed, "{:?} of {}", item.action, item.service.key());
    (planned, format!("{facts}\n{observed}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_from_snapshots_are_the_plans_and_hold_nothing_of_others() {
    let scene = Scene::new("manage-security-groups = true\ncreate-monitor = true").await;
    let web = scene.made(service("web", 80)).await;
    let id = web.metadata.annotations["loadbalancer.openstack.org/load-balancer-id"].clone();
    scene.bed.cloud.world(|world| {
        let tags = json!(["kube_service_kubernetes_shop_web", "owner=jane"]);
        world.row_mut("loadbalancer", &id).unwrap().set("tags", tags);
    });
    let mut tagged = service("web", 8080);
    tagged.metadata.annotations = web.metadata.annotations.clone();
    tagged.metadata.annotations.insert("loadbalancer.openstack.org/load-balancer-tags".to_owned(), "cost=7".to_owned());
    let new = service("new", 443);
    for (wanted, action) in [
        (&web, ServiceAction::UpdateHosts),
        (&web, ServiceAction::Delete),
        (&tagged, ServiceAction::Ensure),
        (&new, ServiceAction::Ensure),
    ] {
        let (plan, kept) = same(&*scene.provider, &ServiceWork::new(wanted, &scene.nodes, action)).await;
        assert!(plan.is_ok(), "{plan:?}");
        for hidden in ["jane", "secret", "\"ccm\"", "identity"] {
            assert!(!kept.contains(hidden), "{hidden}: {kept}");
        }
    }
}
