//! Takeover: this program replaces aws-cloud-controller-manager in a cloud that the latter left.
//!
//! The files under `tests/fixtures/take-over` are the end state of a run of that program (commit 63ec440c, Kubernetes
//! 1.36) on a real API server and the simulated AWS: its 14 Services, 4 nodes, the cloud's dump. They have one line for
//! each object of the third level (a list's elements: of the second), so that a diff shows which object changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options};
use ccm_cloudsim::core::clock::Mode;
use ccm_provider::flag::FlagValues;
use ccm_provider::{Claims, CloudProvider, LoadBalancer, LoadBalancerExt as _, Node, NodeRef, Service, Severity};
use serde_json::Value;

use crate::bed::{self, CLUSTER};
use crate::leader::lend;

const CLOUD: &str = include_str!("../fixtures/take-over/cloud.json");
const SERVICES: &str = include_str!("../fixtures/take-over/services.json");
const NODES: &str = include_str!("../fixtures/take-over/nodes.json");
const SCENE: &str = include_str!("../fixtures/take-over/scene.json");

struct Left {
    aws: Aws,
    services: Vec<Service>,
    nodes: Vec<NodeRef>,
    scene: Value,
    // The source of the credentials.
    metadata: Imds,
}

impl Left {
    fn load() -> Self {
        let now = jiff::Timestamp::now();
        let aws = Aws::start(Options { clock: Mode::Stepped { start: now }, ..Options::default() }).unwrap();
        aws.load(CLOUD).unwrap();
        // Credentials and signatures have the current time.
        aws.clock().set(now);
        let first = aws.world(|world| world.ec2.instances.keys().next().unwrap().clone());
        let metadata = aws.imds(&first, ImdsOptions::default()).unwrap();
        let nodes: Vec<Value> = serde_json::from_str(NODES).unwrap();
        let node = |node: &Value| {
            let text = |key: &str| node[key].as_str().unwrap();
            let provider_id = Some(text("providerID").into());
            Arc::new(Node { name: text("name").into(), provider_id, ..Node::default() })
        };
        let nodes = nodes.iter().map(node).collect();
        let (services, scene) = (serde_json::from_str(SERVICES).unwrap(), serde_json::from_str(SCENE).unwrap());
        Self { aws, services, nodes, scene, metadata }
    }

    /// The balancers of a new process of ours, with these additional lines in section `[Global]`.
    async fn take_over(&self, more_config: &str) -> Arc<dyn LoadBalancer> {
        let provider = self.provider(more_config).await;
        lend(&self.aws, &*provider).await;
        provider.load_balancer().unwrap()
    }

    async fn provider(&self, more_config: &str) -> Arc<dyn CloudProvider> {
        let text = |key: &str| self.scene[key].as_str().unwrap();
        let config = bed::config(&self.aws, &self.metadata, text("vpc"), text("subnet"), more_config);
        bed::provider(config, &FlagValues::default()).await
    }

    fn writes(&self, mark: u64) -> Vec<String> {
        let line = |entry: &ccm_cloudsim::core::ledger::Entry| format!("{} {}", entry.action, entry.params);
        self.aws.ledger(|ledger| ledger.mutating(mark).map(line).collect())
    }

    /// Names of the security groups, and the number of rules of the node group.
    fn groups(&self) -> (Vec<String>, usize) {
        let nodes = self.scene["node_group"].as_str().unwrap();
        self.aws.world(|world| {
            let mut names: Vec<String> = world.ec2.groups.values().map(|group| group.name.clone()).collect();
            names.sort_unstable();
            (names, world.ec2.groups[nodes].ingress.len())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_go_program_made_is_taken_over_without_a_single_write() {
    let left = Left::load();
    assert_eq!((left.services.len(), left.nodes.len()), (14, 4));
    // Also for balancers whose groups were created with another setting.
    for more_config in ["NLBSecurityGroupMode = Managed", ""] {
        let ours = left.take_over(more_config).await;
        let mark = left.aws.mark();
        for service in &left.services {
            let status = ours.ensure(CLUSTER, service, &left.nodes).await.unwrap().unwrap();
            assert_eq!(status, service.status.load_balancer);
            ours.update(CLUSTER, service, &left.nodes).await.unwrap();
        }
        assert_eq!(left.writes(mark), [""; 0], "{more_config}");
    }
    assert_eq!(left.aws.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_migration_check_finds_nothing_to_change_in_what_the_go_program_made() {
    let left = Left::load();
    let provider = left.provider("").await;
    let services: Vec<Arc<Service>> = left.services.iter().map(|service| Arc::new(service.clone())).collect();
    let claims = Claims { nodes: left.nodes.clone(), services };
    let mark = left.aws.mark();
    let checks = provider.inspect().unwrap().migration_checks(CLUSTER, &claims).await;
    assert_eq!(left.writes(mark), [""; 0]);
    let balancers: Vec<_> = checks.iter().filter(|check| check.check == "load-balancers").collect();
    assert_eq!(balancers.len(), 14);
    for check in balancers {
        assert!(check.message.contains("is taken over as it is"), "{check:?}");
    }
    let orphans = provider.inspect().unwrap().orphans(CLUSTER, &claims).await.unwrap();
    assert!(orphans.is_empty(), "{orphans:?}");
    let denied = checks.iter().filter(|check| check.check == "permissions" && check.severity > Severity::Info);
    assert_eq!(denied.collect::<Vec<_>>(), Vec::<&ccm_provider::Check>::new());
    assert_eq!(left.aws.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_go_program_made_is_deleted_whole_and_nothing_of_others() {
    let left = Left::load();
    let before = left.aws.world(|world| world.ec2.clone());
    let ours = left.take_over("NLBSecurityGroupMode = Managed").await;
    let mut tries = BTreeMap::<String, usize>::new();
    for service in &left.services {
        loop {
            match ours.ensure_deleted(CLUSTER, service).await {
                Ok(()) => break,
                // The cloud deletes a balancer's interfaces late.
                Err(error) => {
                    let tried = tries.entry(service.metadata.name.to_string()).or_default();
                    *tried += 1;
                    assert!(*tried < 20, "{tries:?}: {error}");
                    left.aws.clock().step(std::time::Duration::from_secs(10));
                }
            }
        }
    }
    let (balancers, groups) =
        left.aws.world(|world| (world.elb.balancers.len() + world.elbv2.balancers.len(), world.elbv2.groups.len()));
    assert_eq!((balancers, groups), (0, 0));
    let names = ["default", "extra", "nodes", "own"].map(str::to_owned).to_vec();
    assert_eq!(left.groups(), (names, 0));
    let after = left.aws.world(|world| world.ec2.clone());
    assert_eq!(after.route_tables, before.route_tables);
    assert_eq!(after.addresses.keys().collect::<Vec<_>>(), before.addresses.keys().collect::<Vec<_>>());
}

/// What the Go program finds its objects by: kind, name and tags.
type Found = (&'static str, String, BTreeMap<String, String>);

impl Left {
    fn found(&self) -> BTreeSet<Found> {
        self.aws.world(|world| {
            let classic = world.elb.balancers.values().map(|it| ("balancer", it.name.clone(), it.tags.clone()));
            let network = world.elbv2.balancers.values().map(|it| ("balancer", it.name.clone(), it.tags.clone()));
            let targets = world.elbv2.groups.values().map(|it| ("targets", it.name.clone(), it.tags.clone()));
            let groups = world.ec2.groups.values().map(|it| ("group", it.name.clone(), it.tags.clone()));
            classic.chain(network).chain(targets).chain(groups).collect()
        })
    }

    /// Ensures the Service until nothing is left to wait for.
    async fn ensured(&self, ours: &dyn LoadBalancer, service: &Service, nodes: &[NodeRef]) {
        for _ in 0..20 {
            match ours.ensure(CLUSTER, service, nodes).await {
                Ok(Some(status)) => {
                    assert_eq!(status, service.status.load_balancer);
                    return;
                }
                Ok(None) => {}
                Err(error) => assert!(error.retry_after().is_some(), "{}: {error}", service.metadata.name),
            }
            self.aws.clock().step(std::time::Duration::from_secs(10));
        }
        panic!("{}: not ensured", service.metadata.name);
    }
}

/// The way back: after changes by this program, the Go program finds its objects, and those that came since look like them.
#[tokio::test(flavor = "multi_thread")]
async fn what_this_program_changes_is_still_found_by_the_go_program() {
    let left = Left::load();
    let ours = left.take_over("NLBSecurityGroupMode = Managed").await;
    let before = left.found();
    for service in &left.services {
        let mut changed = service.clone();
        changed.spec.load_balancer_source_ranges = Some(vec!["10.9.0.0/16".to_owned()]);
        let mut more = service.spec.ports[0].clone();
        (more.name, more.port, more.node_port) = ("more".to_owned(), 9090, 32_767);
        changed.spec.ports.push(more);
        left.ensured(&*ours, &changed, &left.nodes[1..]).await;
        let now = left.found();
        assert_eq!(before.difference(&now).collect::<Vec<_>>(), Vec::<&Found>::new(), "{}", service.metadata.name);
        for (kind, name, tags) in now.difference(&before) {
            let like = before.iter().any(|(known, _, of_go)| known == kind && of_go == tags);
            assert!(*kind == "targets" && name.starts_with("k8s-") && like, "{kind} {name} {tags:?}");
        }
        left.ensured(&*ours, service, &left.nodes).await;
        assert_eq!(left.found(), before, "{}", service.metadata.name);
    }
    assert_eq!(left.aws.violations(), [""; 0]);
}
