use std::sync::Arc;

use ccm_provider::{CloudProvider, LoadBalancerExt as _, NewRoute, NodeRef, SingleRoutes as _};
use serde_json::{Value as Json, json};

use super::*;
use crate::Fake;
use crate::tests::{Bed, balancers, ensure, node, service};

const CLUSTER: &str = "kubernetes";

fn texts(facts: Vec<Fact>) -> Vec<String> {
    let line = |fact: Fact| {
        let hint = fact.hint.map(|hint| format!(" -> {hint}")).unwrap_or_default();
        format!("{:?} {}: {}{hint}", fact.state, fact.about, fact.text)
    };
    facts.into_iter().map(line).collect()
}

async fn explain_node(cloud: &Fake, node: &NodeRef) -> Vec<String> {
    texts(cloud.inspect().unwrap().explain_node(CLUSTER, node).await.unwrap())
}

async fn explain_service(cloud: &Fake, service: &Service) -> Vec<String> {
    texts(cloud.inspect().unwrap().explain_service(CLUSTER, service).await.unwrap())
}

fn claims(nodes: &[NodeRef], services: &[Service]) -> Claims {
    Claims { nodes: nodes.to_vec(), services: services.iter().cloned().map(Arc::new).collect() }
}

async fn orphans(cloud: &Fake, claims: &Claims) -> Vec<Orphan> {
    cloud.inspect().unwrap().orphans(CLUSTER, claims).await.unwrap()
}

fn calls(bed: &Bed) -> Vec<Json> {
    bed.ends().into_iter().map(|line| line["call"].clone()).collect()
}

#[tokio::test]
async fn a_node_is_explained_from_the_file_without_any_call() {
    let bed = Bed::new(
        "unlisted: missing\nzone: {failureDomain: z}\ninstances:\n- {name: a, type: t, addresses: [{type: InternalIP, \
         address: 10.0.0.1}]}\n- {name: b, exists: false}\n- {name: c, shutdown: true, noMetadata: true}\n\
         - {name: d, providerID: 'fake://new', zone: ''}",
    );
    let cloud = bed.cloud();
    let cases: [(NodeRef, &[&str]); 8] = [
        (
            node("a", ""),
            &["Good instance a: listed in the cloud config, provider ID fake://a, type t, zone z, 10.0.0.1"],
        ),
        (
            node("other", "fake://a"),
            &[
                "Good instance fake://a: listed in the cloud config, provider ID fake://a, type t, zone z, 10.0.0.1",
                "Good instance fake://a: found by its provider ID; its entry is named \"a\"",
            ],
        ),
        (
            node("b", "fake://b"),
            &[
                "Bad instance fake://b: listed with exists: false: the cloud is sure that there is no such instance, so a \
               node that is not Ready is deleted -> remove exists: false from its entry if the machine exists",
            ],
        ),
        (
            node("c", ""),
            &[
                "Good instance c: listed in the cloud config, provider ID fake://c, zone z, no addresses",
                "Bad instance c: stopped: a node that is not Ready gets the shutdown taint -> remove shutdown: true \
                 from its entry",
                "Bad instance c: the cloud has no metadata of it, so the node cannot be initialized -> remove \
                 noMetadata: true from its entry",
            ],
        ),
        (
            node("d", "fake://old"),
            &[
                "Bad instance fake://old: an entry has its name, but provider ID \"fake://new\" and not \"fake://old\" -> \
               correct providerID in the entry, or delete the Node so that it registers again",
            ],
        ),
        (
            node("e", "fake://e"),
            &[
                "Bad instance fake://e: not listed, and unlisted: missing makes the cloud sure that it is gone: a node that \
               is not Ready is deleted -> list it under instances",
            ],
        ),
        (
            node("f", "aws:///z/i-1"),
            &[
                "Bad instance aws:///z/i-1: \"aws:///z/i-1\" is not a provider ID of fake: the node is left alone -> nothing, \
               if it is a node of another cloud; otherwise list its provider ID",
            ],
        ),
        (
            node("d", "fake://new"),
            &["Good instance fake://new: listed in the cloud config, provider ID fake://new, no addresses"],
        ),
    ];
    for (node, expected) in cases {
        assert_eq!(explain_node(&cloud, &node).await, expected);
    }
    bed.write("unlisted: invent");
    assert_eq!(
        explain_node(&cloud, &node("e", "")).await,
        ["Good instance e: not listed: the cloud invents it (unlisted: invent)"]
    );
    bed.write("unlisted: error");
    assert_eq!(
        explain_node(&cloud, &node("e", "")).await,
        [
            "Bad instance e: not listed, and unlisted: error fails every call about it: unlisted instance -> list it under \
          instances, or set unlisted: invent"
        ]
    );
    assert_eq!(calls(&bed), Vec::<Json>::new());
}

#[tokio::test]
async fn the_explanation_of_a_node_matches_the_answers_of_its_calls() {
    let entries = ["", "{name: a}", "{name: a, exists: false}", "{name: a, providerID: 'fake://x'}"];
    for unlisted in ["invent", "missing", "error"] {
        for entry in entries {
            for node in [node("a", ""), node("a", "fake://a"), node("a", "aws:///z/i-1"), node("b", "fake://x")] {
                let bed = Bed::new(&format!("unlisted: {unlisted}\ninstances: [{entry}]"));
                let cloud = bed.cloud();
                let facts = cloud.inspect().unwrap().explain_node(CLUSTER, &node).await.unwrap();
                let aspects = ccm_provider::Aspects::LIFECYCLE;
                let found = crate::tests::lookup(&cloud, std::slice::from_ref(&node), aspects).await == ["found"];
                let good = facts[0].state == ccm_provider::FactState::Good;
                // The provider invents an instance for the other provider ID, which is probably a mistake.
                let other = facts[0].text.starts_with("an entry has its name");
                assert!(good == found || (found && other), "{unlisted} {entry} {node:?}: {facts:?}");
            }
        }
    }
}

#[tokio::test]
async fn faults_of_a_node_and_of_a_service_are_reported_with_their_effect() {
    let bed = Bed::new(
        "faults:\n- {id: quota, call: '*', error: no, times: 2, after: 1}\n\
         - {call: InstanceExists, node: b, error: x}\n- {call: InstanceMetadata, node: a, delay: 2s, result: null}\n\
         - {call: EnsureLoadBalancer, service: 'd/*', kind: Retry, error: later, retryAfter: 1s, applied: true}\n\
         - {call: Ensure*, hold: gate}\n- {call: EnsureLoadBalancer}",
    );
    let cloud = bed.cloud();
    assert_eq!(
        explain_node(&cloud, &node("a", "")).await,
        [
            "Good instance a: not listed: the cloud invents it (unlisted: invent)",
            "Bad fault 0 (quota): Lookup, InstanceExists, InstanceShutdown, InstanceMetadata: fail: no (not the first 1, \
             2 times in each process) -> remove faults[0] from the cloud config",
            "Waiting fault 2: InstanceMetadata: wait 2s, then have their answer replaced",
        ]
    );
    let facts = explain_service(&cloud, &service("d/a")).await;
    let gate = bed.path("gate");
    assert_eq!(
        facts[1..],
        [
            "Bad fault 0 (quota): GetLoadBalancer, EnsureLoadBalancer, UpdateLoadBalancer, EnsureLoadBalancerDeleted: \
             fail: no (not the first 1, 2 times in each process) -> remove faults[0] from the cloud config"
                .to_owned(),
            "Bad fault 3: EnsureLoadBalancer: take effect and fail: later -> remove faults[3] from the cloud config"
                .to_owned(),
            format!(
                "Waiting fault 4: EnsureLoadBalancer, EnsureLoadBalancerDeleted: wait as long as {} exists",
                gate.display()
            ),
            "Good fault 5: EnsureLoadBalancer: go on as without the rule".to_owned(),
        ]
    );
}

#[tokio::test]
async fn routes_of_a_node_are_read_by_a_call() {
    let bed = Bed::new("interfaces: {routes: true}\nfaults: [{call: CreateRoute, cidr: 10.2.0.0/24, error: full}]");
    let cloud = bed.cloud();
    let routes = FakeRoutes(cloud.shared());
    for cidr in ["10.1.0.0/24", "10.9.0.0/24"] {
        routes.create(CLUSTER, &route("a", cidr)).await.unwrap();
    }
    let mut node = (*node("a", "")).clone();
    node.pod_cidrs = ["10.1.0.0/24".into(), "10.2.0.0/24".into()].into();
    assert_eq!(
        explain_node(&cloud, &node.into()).await[1..],
        [
            "Good route 10.1.0.0/24: leads to the node",
            "Waiting route 10.9.0.0/24: leads to the node, which has another pod range; it goes with the next pass",
            "Waiting route 10.2.0.0/24: missing; the next pass creates it",
            "Bad fault 0: CreateRoute: fail: full -> remove faults[0] from the cloud config",
        ]
    );
    assert_eq!(calls(&bed), ["CreateRoute", "CreateRoute", "ListRoutes"]);
}

fn route(target: &str, cidr: &str) -> NewRoute {
    let route = ccm_provider::Route {
        target_node: Some(target.into()),
        destination_cidr: cidr.to_owned(),
        ..ccm_provider::Route::default()
    };
    NewRoute { name_hint: format!("uid-{target}"), route }
}

#[tokio::test]
async fn a_service_is_explained_from_the_table() {
    let bed = Bed::new("");
    let cloud = bed.cloud();
    let mut web = service("d/web");
    assert_eq!(explain_service(&cloud, &web).await, ["Waiting load balancer auidofweb: not made yet"]);
    ensure(&cloud, "d/web").await.unwrap();
    assert_eq!(
        explain_service(&cloud, &web).await,
        [
            "Good load balancer auidofweb: 203.0.113.1",
            "Bad load balancer auidofweb: no node behind it -> see that nodes are initialized, not excluded from load \
             balancers and not being deleted",
            "Waiting status: the status of the Service does not show these addresses yet",
        ]
    );
    let status = balancers(&cloud).ensure(CLUSTER, &web, &[node("a", ""), node("b", "")]).await.unwrap().unwrap();
    web.status.load_balancer = status;
    let good = ["Good load balancer auidofweb: 203.0.113.1", "Good load balancer auidofweb: nodes behind it: a b"];
    assert_eq!(explain_service(&cloud, &web).await, good);
    for (edit, fact) in [
        (
            "loadBalancers: {statuses: [{ingress: [{hostname: h}]}]}",
            "Waiting load balancer auidofweb: the next ensure gives it h",
        ),
        (
            "loadBalancers: {statuses: [{missing: true}]}",
            "Bad load balancer auidofweb: an entry of loadBalancers.statuses answers without a status: an error for the \
             controller -> remove missing: true from that entry",
        ),
    ] {
        bed.write(edit);
        assert_eq!(explain_service(&cloud, &web).await, [good[0], good[1], fact]);
    }
    bed.write("loadBalancers: {pool: 203.0.113.1/32}");
    assert_eq!(
        explain_service(&cloud, &service("d/more")).await,
        [
            "Waiting load balancer auidofmore: not made yet",
            "Bad load balancer auidofmore: address pool exhausted -> make loadBalancers.pool larger, or delete Services \
             that need no address",
        ]
    );
    bed.write("faults: [{call: GetLoadBalancer, error: down}]");
    assert_eq!(
        explain_service(&cloud, &web).await[0],
        "Bad load balancer: cannot be read: down -> remove the fault from the cloud config"
    );
    assert!(calls(&bed).iter().all(|call| call == "GetLoadBalancer" || call == "EnsureLoadBalancer"));
}

#[tokio::test]
async fn a_service_that_wants_no_balancer_any_more_is_explained() {
    let bed = Bed::new("");
    let cloud = bed.cloud();
    let mut web = service("d/web");
    let none = ["Good load balancer auidofweb: none, as the Service requests"];
    web.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(explain_service(&cloud, &web).await, none, "it is being deleted");
    web.metadata.deletion_timestamp = None;
    web.spec.kind = "ClusterIP".to_owned();
    assert_eq!(explain_service(&cloud, &web).await, none);
    ensure(&cloud, "d/web").await.unwrap();
    assert_eq!(
        explain_service(&cloud, &web).await,
        ["Bad load balancer auidofweb: still present, and the Service has no finalizer that would make the \
             controller delete it -> see ccm orphans"]
    );
    web.metadata.finalizers = vec![ccm_provider::well_known::FINALIZER_LOAD_BALANCER.to_owned()];
    assert_eq!(
        explain_service(&cloud, &web).await,
        ["Waiting load balancer auidofweb: still present; the controller deletes it before it removes the finalizer"]
    );
}

#[tokio::test]
async fn parts_that_are_switched_off_are_named() {
    let bed = Bed::new("interfaces: {instancesV2: false, loadBalancer: false}");
    let cloud = bed.cloud();
    assert_eq!(
        explain_node(&cloud, &node("a", "")).await,
        ["Bad instances: interfaces.instancesV2 is false: the cloud is not asked about nodes -> set \
             interfaces.instancesV2: true \
          in the cloud config and restart"]
    );
    let mut plain = service("d/plain");
    plain.spec.kind = "ClusterIP".to_owned();
    assert!(explain_service(&cloud, &plain).await.is_empty(), "it wants none");
    assert_eq!(
        explain_service(&cloud, &service("d/a")).await,
        [
            "Bad load balancers: interfaces.loadBalancer is false: no Service gets one -> set interfaces.loadBalancer: true \
          in the cloud config and restart"
        ]
    );
    assert!(orphans(&cloud, &claims(&[], &[])).await.is_empty());
    assert_eq!(calls(&bed), Vec::<Json>::new());
}

#[tokio::test]
async fn objects_that_no_service_and_no_node_claims_are_orphans() {
    let bed = Bed::new(
        "interfaces: {routes: true}\nloadBalancers: {initial: [{service: d/leaked, ingress: [{ip: 203.0.113.9}]}]}\n\
         routes:\n  initial:\n  - {destinationCIDR: 10.7.0.0/24, targetNode: gone}\n  \
         - {destinationCIDR: 10.8.0.0/24, targetNode: gone, cluster: other}\n  \
         - {destinationCIDR: 10.9.0.0/24, cluster: kubernetes, blackhole: true}",
    );
    let cloud = bed.cloud();
    for key in ["d/web", "d/leaving", "d/internal", "d/gone"] {
        ensure(&cloud, key).await.unwrap();
    }
    let routes = FakeRoutes(cloud.shared());
    for (target, cidr) in [("a", "10.1.0.0/24"), ("gone", "10.2.0.0/24")] {
        routes.create(CLUSTER, &route(target, cidr)).await.unwrap();
    }
    let (mut leaving, mut internal) = (service("d/leaving"), service("d/internal"));
    leaving.spec.kind = "ClusterIP".to_owned();
    leaving.metadata.finalizers = vec![ccm_provider::well_known::FINALIZER_LOAD_BALANCER.to_owned()];
    internal.spec.kind = "ClusterIP".to_owned();
    let claims = claims(&[node("a", "")], &[service("d/web"), leaving, internal]);
    let before = calls(&bed).len();
    let found = orphans(&cloud, &claims).await;
    let line = |orphan: &Orphan| format!("{} | {} | {}", orphan.owner, orphan.reason, orphan.step);
    let of = "its entry in the table of load balancers";
    let no_node = "it leads to no node";
    assert_eq!(
        found.iter().map(line).collect::<Vec<_>>(),
        [
            format!(
                "service d/gone | there is no Service d/gone; recognized by {of} | delete LoadBalancer d/gone: ingress \
                 203.0.113.4 removed (because there is no Service d/gone) [disruptive]"
            ),
            format!(
                "service d/internal | Service d/internal is of type ClusterIP, and no longer has a load balancer; recognized by \
                 {of} | delete LoadBalancer d/internal: ingress 203.0.113.3 removed (because Service d/internal is of type \
                 ClusterIP, and no longer has a load balancer) [disruptive]"
            ),
            format!(
                "service d/leaked | there is no Service d/leaked; recognized by {of} | delete LoadBalancer d/leaked: ingress \
                 203.0.113.9 removed (because there is no Service d/leaked) [disruptive]"
            ),
            format!(
                "no node | {no_node}; recognized by its mark of the cluster kubernetes | delete Route 10.9.0.0/24: target \
                 (because {no_node})"
            ),
            "node gone | the Node gone does not exist; recognized by its mark of the cluster kubernetes | delete Route \
             10.2.0.0/24: target gone removed (because the Node gone does not exist)"
                .to_owned(),
        ]
    );
    assert_eq!(
        calls(&bed)[before..],
        ["GetLoadBalancer", "GetLoadBalancer", "GetLoadBalancer", "ListRoutes"].map(Json::from)
    );
    // Deletes all of them and nothing else.
    let inspect = cloud.inspect().unwrap();
    for orphan in &found {
        inspect.delete_orphan(CLUSTER, orphan).await.unwrap();
        inspect.delete_orphan(CLUSTER, orphan).await.unwrap();
    }
    assert!(orphans(&cloud, &claims).await.is_empty());
    assert_eq!(cloud.cloud.balancers().into_keys().collect::<Vec<_>>(), ["d/leaving", "d/web"]);
    let left = routes.list(CLUSTER).await.unwrap();
    assert_eq!(left.iter().map(|route| &*route.destination_cidr).collect::<Vec<_>>(), ["10.7.0.0/24", "10.1.0.0/24"]);
    assert_eq!(routes.list("other").await.unwrap().len(), 2);
    let writes: Vec<Json> = bed.ends().into_iter().filter(|line| line["call"] == "EnsureLoadBalancerDeleted").collect();
    assert_eq!(writes.len(), 3);
    assert_eq!(writes[0]["args"], json!({"cluster": CLUSTER, "service": "d/gone", "uid": "", "name": "auidofgone"}));
}

#[tokio::test]
async fn an_orphan_that_is_in_use_again_is_refused() {
    let bed = Bed::new("interfaces: {routes: true}");
    let cloud = bed.cloud();
    ensure(&cloud, "d/web").await.unwrap();
    let routes = FakeRoutes(cloud.shared());
    routes.create(CLUSTER, &route("gone", "10.2.0.0/24")).await.unwrap();
    let found = orphans(&cloud, &claims(&[], &[])).await;
    balancers(&cloud).ensure(CLUSTER, &service("d/web"), &[node("a", "")]).await.unwrap();
    // The same route, now without a cluster.
    bed.write("interfaces: {routes: true}\nroutes: {initial: [{destinationCIDR: 10.2.0.0/24, targetNode: gone}]}");
    let inspect = cloud.inspect().unwrap();
    let refusals = [
        "LoadBalancer d/web is not deleted: the marks by which it was recognized have changed",
        "Route 10.2.0.0/24 is not deleted: it is no longer marked as made for this cluster",
    ];
    for (orphan, refusal) in found.iter().zip(refusals) {
        assert_eq!(inspect.delete_orphan(CLUSTER, orphan).await.unwrap_err().to_string(), refusal);
    }
    assert_eq!((cloud.cloud.balancers().len(), routes.list(CLUSTER).await.unwrap().len()), (1, 1));
    assert!(calls(&bed).iter().all(|call| call != "DeleteRoute" && call != "EnsureLoadBalancerDeleted"));
}

#[tokio::test]
async fn nothing_is_an_orphan_when_a_read_fails_and_faults_of_deletions_apply() {
    let bed = Bed::new("faults: [{call: EnsureLoadBalancerDeleted, times: 1, error: lost}]");
    let cloud = bed.cloud();
    ensure(&cloud, "d/a").await.unwrap();
    ensure(&cloud, "d/b").await.unwrap();
    let found = orphans(&cloud, &claims(&[], &[])).await;
    let inspect = cloud.inspect().unwrap();
    assert_eq!(inspect.delete_orphan(CLUSTER, &found[0]).await.unwrap_err().to_string(), "lost");
    inspect.delete_orphan(CLUSTER, &found[0]).await.unwrap();
    bed.write("faults: [{call: GetLoadBalancer, service: d/b, error: down}]");
    let error = inspect.orphans(CLUSTER, &claims(&[], &[])).await.unwrap_err();
    assert_eq!(error.to_string(), "down");
    let odd = Orphan { handle: json!(3), ..found[0].clone() };
    let error = inspect.delete_orphan(CLUSTER, &odd).await.unwrap_err().to_string();
    assert!(error.starts_with("LoadBalancer d/a was not reported by this program"), "{error}");
}

fn checked(checks: Vec<Check>) -> Vec<String> {
    let line = |check: Check| {
        let fix = if check.fix.is_empty() { String::new() } else { format!(" -> {}", check.fix) };
        format!("{} {} {}: {}{fix}", check.severity.as_str(), check.check, check.subject, check.message)
    };
    checks.into_iter().map(line).collect()
}

#[tokio::test]
async fn a_migration_is_checked_against_file_and_tables() {
    let bed = Bed::new(
        "hasClusterID: false\nunlisted: missing\ninstances: [{name: a}, {name: b, providerID: 'fake://new'}]\n\
         loadBalancers: {initial: [{service: d/kept, ingress: [{ip: 192.0.2.1}]}, {service: d/leaked}]}",
    );
    let cloud = bed.cloud();
    let with_status = |key: &str, ip: &str| {
        let mut service = service(key);
        service.status.load_balancer = serde_json::from_value(json!({"ingress": [{"ip": ip}]})).unwrap();
        service
    };
    let all = claims(
        &[node("a", "fake://a"), node("b", "fake://old"), node("c", "fake://c"), node("d", "aws:///z/i-1")],
        &[with_status("d/kept", "192.0.2.1"), with_status("d/moved", "192.0.2.2"), service("d/new")],
    );
    let checks = cloud.inspect().unwrap().migration_checks(CLUSTER, &all).await;
    assert_eq!(
        checked(checks),
        [
            "error cluster-id : hasClusterID is false: the process stops at its start -> set hasClusterID: true, or give \
             --allow-untagged-cloud",
            "error provider-ids node b: an entry has its name, but provider ID \"fake://new\" and not \"fake://old\" -> \
             correct providerID in the entry, or delete the Node so that it registers again",
            "error instances node c: not listed, and unlisted: missing makes the cloud sure that it is gone: a node that \
             is not Ready is deleted -> list it under instances",
            "warning provider-ids node d: \"aws:///z/i-1\" is not a provider ID of fake: the node is left alone -> nothing, if \
             it is a node of another cloud; otherwise list its provider ID",
            "info instances : nodes listed: 1, invented: 0",
            "warning load-balancers service d/moved: it has 192.0.2.2 now and gets 203.0.113.1 -> list it with its ingress \
             under loadBalancers.initial or loadBalancers.statuses",
            "warning orphans LoadBalancer d/leaked: there is no Service d/leaked; recognized by its entry in the table of load \
             balancers -> see ccm orphans",
        ]
    );
    assert!(calls(&bed).iter().all(|call| call == "GetLoadBalancer"));
}

#[tokio::test]
async fn a_migration_with_nothing_in_its_way_has_only_good_checks_and_errors_are_checks_too() {
    let bed = Bed::new("");
    let cloud = bed.cloud();
    let all = claims(&[node("a", "")], &[service("d/a")]);
    let good = [
        "info instances : nodes listed: 0, invented: 1",
        "info load-balancers : Services that keep or get their addresses: 1",
    ];
    assert_eq!(checked(cloud.inspect().unwrap().migration_checks(CLUSTER, &all).await), good);
    bed.write("faults: [{call: GetLoadBalancer, error: down}]");
    ensure(&cloud, "d/leaked").await.unwrap();
    assert_eq!(
        checked(cloud.inspect().unwrap().migration_checks(CLUSTER, &all).await)[1..],
        [
            "error load-balancers service d/a: down -> correct loadBalancers or faults in the cloud config",
            "error orphans : they cannot be listed: down -> remove the fault from the cloud config",
        ]
    );
}
