//! Pod ranges for nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, FaultId, Match, WriteEntry};
use ccm_test_suite::{Object, Rig, Running, node};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const ON: [&str; 2] = ["--controllers=node-ipam-controller", "--allocate-node-cidrs=true"];
const CIDR: &str = "--cluster-cidr=10.8.0.0/20";

async fn start(rig: &Rig, more: &[&str]) -> Running {
    rig.start(&[&ON[..], more].concat()).await
}

async fn add(rig: &Rig, name: &str) -> Object {
    rig.create(node(name).provider_id(&format!("fake://{name}"))).await
}

/// The ranges of a node, joined.
fn ranges(node: &Object) -> String {
    let list = node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
    let first = node["spec"]["podCIDR"].as_str();
    assert_eq!(list.first().and_then(Value::as_str), first, "podCIDR is the first of podCIDRs");
    list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Waits until this many nodes have one block each, all different.
async fn until_distinct(rig: &Rig, count: usize) {
    let distinct = async |rig: &Rig| {
        let all: BTreeSet<String> = rig.list("nodes").await.iter().map(ranges).filter(|r| !r.is_empty()).collect();
        (all.len() == count).then_some(())
    };
    rig.until(MINUTE, "a block for every node", distinct).await;
}

async fn until_ranges(rig: &Rig, name: &str) -> String {
    ranges(&rig.until_node(name, "has pod ranges", |node| !ranges(node).is_empty()).await)
}

/// Writes to nodes by the managers, as `status name`.
fn patches(rig: &Rig) -> Vec<String> {
    let line = |write: &WriteEntry| format!("{} {}", write.status, write.name);
    rig.writes().iter().filter(|write| write.resource == "nodes").map(line).collect()
}

fn on_patch(rig: &Rig, name: &str, fault: Fault) -> FaultId {
    rig.faults().add(fault.on(Match::on("patch", "nodes").named(name)))
}

#[tokio::test(start_paused = true)]
async fn versions_of_nodes_whose_second_page_expires_are_listed_at_once() {
    let rig = Rig::new("").await;
    for number in 0..501 {
        add(&rig, &format!("n{number}")).await;
    }
    rig.faults().add(Fault::status(410).on(Match::on("list", "nodes")).skip(1).every(2));
    let _manager = start(&rig, &["--cluster-cidr=10.8.0.0/14"]).await;
    until_distinct(&rig, 501).await;
    assert_eq!(rig.store().log().count_of("list", "nodes"), 3);
}

#[tokio::test(start_paused = true)]
async fn each_node_gets_a_block_of_each_range_with_one_write_and_then_there_is_none() {
    let rig = Rig::new("").await;
    let made = add(&rig, "a").await;
    let more = ["--cluster-cidr=10.8.0.0/20,fd00:8::/56", "--node-cidr-mask-size-ipv6=60"];
    let manager = start(&rig, &more).await;
    assert_eq!(until_ranges(&rig, "a").await, "10.8.0.0/24,fd00:8::/60");
    add(&rig, "b").await;
    assert_eq!(until_ranges(&rig, "b").await, "10.8.1.0/24,fd00:8:0:10::/60");
    let write = &rig.writes()[0];
    let body = json!({"metadata": {"uid": made.uid()},
        "spec": {"podCIDR": "10.8.0.0/24", "podCIDRs": ["10.8.0.0/24", "fd00:8::/60"]}});
    assert_eq!((&write.body, &*write.content_type), (&body, "application/strategic-merge-patch+json"));
    assert_eq!(patches(&rig), ["200 a", "200 b"]);

    // Heartbeats and passing time change nothing.
    rig.store().log().clear();
    for _ in 0..20 {
        rig.set_ready("a", "True").await;
        rig.set_ready("a", "False").await;
        rig.pass(MINUTE).await;
    }
    assert_eq!(rig.writes(), vec![]);

    let v4 = r#"{clusterCIDR="10.8.0.0/20"}"#;
    let metric = |name: &str| manager.metric(&format!("node_ipam_controller_{name}{v4}"));
    assert_eq!(metric("cidrset_cidrs_allocations_total"), Some(2.0));
    assert_eq!(metric("cidrset_cidrs_releases_total"), Some(0.0));
    assert_eq!(metric("cidrset_usage_cidrs"), Some(0.125));
    assert_eq!(metric("cirdset_max_cidrs"), Some(16.0));
    assert_eq!(metric("cidrset_allocation_tries_per_request_count"), Some(2.0));
    assert_eq!(metric("cidrset_allocation_tries_per_request_sum"), Some(0.0));
    let text = manager.metrics();
    for bound in ["1", "5", "25", "125", "625", "+Inf"] {
        let bucket = format!(r#"tries_per_request_bucket{{clusterCIDR="fd00:8::/56",le="{bound}"}} 2"#);
        assert!(text.contains(&bucket), "{bucket}\n{text}");
    }
    assert_eq!(
        manager.metric(r#"running_managed_controllers{manager="cloud-controller-manager",name="nodeipam"}"#),
        Some(1.0)
    );
    rig.delete("nodes", "", "a").await;
    rig.pass(SECOND).await;
    assert_eq!(metric("cidrset_cidrs_releases_total"), Some(1.0));
    assert_eq!(metric("cidrset_usage_cidrs"), Some(0.0625));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_assigned_unless_the_controller_is_named_and_allocation_is_on() {
    for args in [
        // As started by several installers, together with a kube-controller-manager that allocates.
        &["--allocate-node-cidrs=true", CIDR][..],
        &["--controllers=*,nodeipam", CIDR],
        &["--controllers=*,-nodeipam", "--allocate-node-cidrs", CIDR],
    ] {
        let rig = Rig::new("").await;
        add(&rig, "a").await;
        let manager = rig.start(args).await;
        rig.pass(MINUTE).await;
        assert!(manager.is_running());
        assert_eq!(ranges(&rig.node("a").await.unwrap()), "", "{args:?}");
    }
    let rig = Rig::new("").await;
    add(&rig, "a").await;
    let _manager = rig.start(&["--controllers=*,nodeipam", "--allocate-node-cidrs", CIDR]).await;
    assert_eq!(until_ranges(&rig, "a").await, "10.8.0.0/24");
}

#[tokio::test(start_paused = true)]
async fn no_block_of_another_node_or_of_services_is_given_out() {
    let rig = Rig::new("").await;
    rig.create(node("old").pod_cidr("10.8.0.0/24")).await;
    rig.create(node("wide").pod_cidr("10.8.2.0/23")).await;
    let _manager = start(&rig, &[CIDR, "--service-cluster-ip-range=10.8.4.0/22"]).await;
    for (name, wanted) in [("a", "10.8.1.0/24"), ("b", "10.8.8.0/24")] {
        add(&rig, name).await;
        assert_eq!(until_ranges(&rig, name).await, wanted);
    }
    // Another client assigns one while the manager runs.
    rig.create(node("own").pod_cidr("10.8.9.0/24")).await;
    add(&rig, "c").await;
    assert_eq!(until_ranges(&rig, "c").await, "10.8.10.0/24");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_finds_no_free_block_gets_the_first_that_becomes_free() {
    let rig = Rig::new("").await;
    let _manager = start(&rig, &["--cluster-cidr=10.8.0.0/23"]).await;
    for name in ["a", "b", "c"] {
        add(&rig, name).await;
        if name != "c" {
            until_ranges(&rig, name).await;
        }
    }
    let event = rig.until_event("c", "CIDRNotAvailable").await;
    assert_eq!(event, "Normal CIDRNotAvailable: Node c status is now: CIDRNotAvailable");
    let events = rig.list("events").await;
    let event = events.iter().find(|event| event["reason"] == "CIDRNotAvailable").unwrap();
    assert_eq!(event["source"]["component"], "cidrAllocator");
    // Its heartbeats cause no further events.
    for _ in 0..4 {
        rig.set_ready("c", "True").await;
        rig.set_ready("c", "False").await;
        rig.pass(10 * SECOND).await;
    }
    assert_eq!(rig.count_events("c", "CIDRNotAvailable").await, 1);
    assert_eq!(patches(&rig), ["200 a", "200 b"]);
    rig.delete("nodes", "", "a").await;
    rig.pass(SECOND).await;
    assert_eq!(ranges(&rig.node("c").await.unwrap()), "10.8.0.0/24");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_deleted_gets_nothing_and_one_that_comes_back_gets_another_block() {
    let rig = Rig::new("").await;
    rig.create(node("doomed").finalizer("example.com/wait")).await;
    rig.delete("nodes", "", "doomed").await;
    let _manager = start(&rig, &[CIDR]).await;
    rig.create(node("going").finalizer("example.com/wait")).await;
    let kept = until_ranges(&rig, "going").await;
    assert_eq!(ranges(&rig.node("doomed").await.unwrap()), "");
    rig.delete("nodes", "", "going").await;
    add(&rig, "next").await;
    let next = until_ranges(&rig, "next").await;
    assert_ne!(next, kept, "a node that is being deleted still has its pods");
    rig.patch_node("going", json!({"metadata": {"finalizers": null}})).await;
    rig.until_gone("going").await;
    add(&rig, "going").await;
    assert_eq!(until_ranges(&rig, "going").await, "10.8.2.0/24");
    assert_eq!(ranges(&rig.node("doomed").await.unwrap()), "");
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_write_may_have_taken_effect_stays_with_its_node() {
    for effect in [
        Effect::LoseAnswer,
        Effect::FailAfterEffect { code: 504 },
        Effect::FailAfterEffect { code: 500 },
        Effect::HtmlPage { code: 502 },
        Effect::LoseRequest,
        // Longer than the deadline of a write.
        Effect::Latency { millis: 12_000 },
    ] {
        let rig = Rig::new("").await;
        let fault = on_patch(&rig, "a", Fault::new(effect.clone()).times(3));
        let _manager = start(&rig, &[CIDR]).await;
        rig.faults().freeze_watches(Some("nodes"));
        add(&rig, "a").await;
        rig.faults().thaw_watches(Some("nodes"));
        rig.pass(10 * SECOND).await;
        add(&rig, "b").await;
        assert_eq!(until_ranges(&rig, "b").await, "10.8.1.0/24", "{effect:?}");
        assert_eq!(until_ranges(&rig, "a").await, "10.8.0.0/24", "{effect:?}");
        assert!(rig.faults().fired(fault) >= 1, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_block_is_reported_and_goes_to_the_next_node() {
    let rig = Rig::new("").await;
    let fault = on_patch(&rig, "a", Fault::status(403));
    let _manager = start(&rig, &[CIDR]).await;
    add(&rig, "a").await;
    let event = rig.until_event("a", "CIDRAssignmentFailed").await;
    assert_eq!(event, "Normal CIDRAssignmentFailed: Node a status is now: CIDRAssignmentFailed");
    rig.pass(MINUTE).await;
    add(&rig, "b").await;
    until_ranges(&rig, "b").await;
    rig.faults().remove(fault);
    until_ranges(&rig, "a").await;
    rig.pass(MINUTE).await;
    // All rejected blocks are free again: the whole range can be used.
    for i in 0..14 {
        add(&rig, &format!("n{i}")).await;
    }
    until_distinct(&rig, 16).await;
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_api_server_is_obeyed_without_an_alarm() {
    let rig = Rig::new("").await;
    on_patch(&rig, "a", Fault::too_many_requests(7).times(2));
    let _manager = start(&rig, &[CIDR]).await;
    add(&rig, "a").await;
    rig.pass(13 * SECOND).await;
    assert_eq!(ranges(&rig.node("a").await.unwrap()), "");
    rig.pass(2 * SECOND).await;
    assert_eq!(ranges(&rig.node("a").await.unwrap()), "10.8.0.0/24");
    assert_eq!(rig.events("a").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_the_lease_is_too_short_for_is_written_at_the_next_try() {
    let rig = Rig::new("").await;
    let manager = start(&rig, &["--leader-elect=true", CIDR]).await;
    rig.pass(SECOND).await;
    on_patch(&rig, "a", Fault::too_many_requests(6).times(1));
    let fault = rig.faults().add(Fault::status(500).on(Match::on("update", "leases")));
    add(&rig, "a").await;
    rig.pass(5 * SECOND).await;
    assert_eq!(patches(&rig), [""; 0]);
    rig.pass(2 * SECOND).await;
    // By now the lease is too short for another write of ten seconds.
    assert_eq!(manager.metric("ccm_sync_errors_total{controller=\"node-ipam-controller\"}"), Some(1.0));
    assert_eq!(patches(&rig), ["200 a"]);
    rig.faults().remove(fault);
    rig.pass(MINUTE).await;
    assert_eq!((rig.events("a").await, manager.is_running()), (vec![], true));
}

#[tokio::test(start_paused = true)]
async fn a_range_that_another_client_assigned_is_never_overwritten() {
    let rig = Rig::new("").await;
    on_patch(&rig, "a", Fault::latency(SECOND).times(1));
    let _manager = start(&rig, &[CIDR]).await;
    add(&rig, "a").await;
    rig.pass(SECOND / 2).await;
    rig.faults().freeze_watches(Some("nodes"));
    rig.patch_node("a", json!({"spec": {"podCIDR": "10.8.9.0/24", "podCIDRs": ["10.8.9.0/24"]}})).await;
    rig.pass(SECOND).await;
    rig.faults().thaw_watches(Some("nodes"));
    rig.pass(MINUTE).await;
    assert_eq!(ranges(&rig.node("a").await.unwrap()), "10.8.9.0/24");
    let refused = patches(&rig);
    assert!(!refused.is_empty() && refused.iter().all(|write| write == "422 a"), "{refused:?}");
    // The block of the other client is used, and all rejected ones are free.
    for i in 0..15 {
        add(&rig, &format!("n{i}")).await;
    }
    until_distinct(&rig, 16).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_meant_for_a_deleted_node_does_not_reach_its_successor() {
    let rig = Rig::new("").await;
    on_patch(&rig, "a", Fault::latency(2 * SECOND).times(1));
    let _manager = start(&rig, &[CIDR]).await;
    let old = add(&rig, "a").await;
    rig.pass(SECOND).await;
    rig.delete("nodes", "", "a").await;
    let new = add(&rig, "a").await;
    assert_ne!(old.uid(), new.uid());
    until_ranges(&rig, "a").await;
    rig.pass(10 * SECOND).await;
    let wrote = rig.writes_of("nodes", "a");
    assert!(wrote.iter().all(|write| write.body["metadata"]["uid"] == *new.uid()), "{wrote:?}");
    assert_eq!(wrote.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ranges_that_are_wrong_are_reported_and_the_other_nodes_get_theirs() {
    let rig = Rig::new("").await;
    rig.create(node("outside").pod_cidr("10.9.0.0/24")).await;
    rig.create(node("first").pod_cidr("10.8.0.0/24")).await;
    rig.create(node("second").pod_cidr("10.8.0.128/25")).await;
    let manager = start(&rig, &[CIDR]).await;
    add(&rig, "a").await;
    assert_eq!(until_ranges(&rig, "a").await, "10.8.1.0/24");
    let event = rig.until_event("outside", "PodCIDROutOfRange").await;
    assert!(
        event.starts_with("Warning PodCIDROutOfRange: The pod range 10.9.0.0/24 of the node lies outside of"),
        "{event}"
    );
    let event = rig.until_event("second", "PodCIDROverlap").await;
    assert!(event.contains("overlaps with that of node first"), "{event}");
    assert_eq!(rig.events("first").await, [""; 0]);
    // Both must be deleted before their block is allocated again.
    rig.delete("nodes", "", "first").await;
    rig.pass(SECOND).await;
    assert_eq!(manager.metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.8.0.0/20"}"#), Some(0.125));
    rig.delete("nodes", "", "second").await;
    rig.pass(SECOND).await;
    assert_eq!(manager.metric(r#"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR="10.8.0.0/20"}"#), Some(0.0625));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_distinct_blocks_and_writes_none() {
    let rig = Rig::new("").await;
    for name in ["a", "b"] {
        add(&rig, name).await;
    }
    let manager = start(&rig, &[CIDR, "--dry-run"]).await;
    for (name, block) in [("a", "10.8.0.0/24"), ("b", "10.8.1.0/24")] {
        let subject = format!("node {name} pod ranges");
        let plan = rig.until(MINUTE, "the node is planned", async |_| manager.plan(&subject)).await;
        assert!(plan.contains(block), "{plan}");
    }
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.store().log().remote_writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_with_a_late_watch_gives_out_no_block_of_the_last_one() {
    let rig = Rig::new("").await;
    let elect = ["--leader-elect=true", CIDR];
    // The leader cannot write one of two nodes, and the other one slowly.
    let refused = on_patch(&rig, "a", Fault::status(403));
    on_patch(&rig, "b", Fault::latency(2 * SECOND).times(1));
    let first = start(&rig, &elect).await;
    rig.pass(5 * SECOND).await;
    let second = start(&rig, &elect).await;
    rig.pass(5 * SECOND).await;
    add(&rig, "b").await;
    rig.pass(SECOND).await;
    add(&rig, "a").await;
    rig.pass(SECOND / 2).await;
    // From here on watches deliver no changes, in particular not the write of b.
    rig.faults().freeze_watches(Some("nodes"));
    rig.pass(5 * SECOND).await;
    assert_eq!(ranges(&rig.node("b").await.unwrap()), "10.8.0.0/24");
    first.kill();
    rig.faults().remove(refused);
    rig.store().log().clear();
    let leads = |manager: &Running| manager.metric(r#"leader_election_master_status{name="cloud-controller-manager"}"#);
    rig.until(MINUTE, "the second leads", async |_| (leads(&second) == Some(1.0)).then_some(())).await;
    rig.pass(MINUTE).await;
    assert_eq!(patches(&rig), [""; 0], "nothing before the watch has caught up");
    rig.faults().thaw_watches(Some("nodes"));
    assert_eq!(until_ranges(&rig, "a").await, "10.8.1.0/24");
    assert_eq!(patches(&rig), ["200 a"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_and_continues_after_assigned_blocks() {
    let rig = Rig::new("").await;
    let names: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
    let manager = start(&rig, &[CIDR]).await;
    for name in &names {
        add(&rig, name).await;
        until_ranges(&rig, name).await;
    }
    manager.stop().await.unwrap();
    rig.store().log().clear();
    let _manager = start(&rig, &[CIDR]).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.writes(), vec![]);
    add(&rig, "new").await;
    assert_eq!(until_ranges(&rig, "new").await, "10.8.10.0/24");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_assigned_before_the_nodes_can_be_listed() {
    let rig = Rig::new("").await;
    rig.create(node("old").pod_cidr("10.8.0.0/24")).await;
    add(&rig, "a").await;
    let fault = rig.faults().add(Fault::status(500).on(Match::on("list", "nodes")));
    let _manager = start(&rig, &[CIDR]).await;
    rig.pass(MINUTE).await;
    assert!(rig.faults().fired(fault) > 1);
    assert_eq!(rig.writes(), vec![]);
    rig.faults().remove(fault);
    assert_eq!(until_ranges(&rig, "a").await, "10.8.1.0/24");
}

/// With a separate real API server: the controller acts on all nodes of a cluster.
mod real_apiserver {
    use std::net::IpAddr;
    use std::sync::Arc;

    use ccm_runtime::client::{Call, Client, ConnectOptions};
    use ccm_test_bed::{AuditEntry, Options};

    use super::*;

    const NODES: usize = 1000;
    const LONG: Duration = Duration::from_secs(120);
    const RANGES: [&str; 2] =
        ["--cluster-cidr=10.8.0.0/14,fd00:8::/48", "--service-cluster-ip-range=10.8.0.0/20,fd00:8::/112"];

    /// Adds several at once, like kubelets.
    async fn add_many(rig: &Arc<Rig>, numbers: std::ops::Range<usize>) {
        let mut tasks = tokio::task::JoinSet::new();
        for part in 0..8 {
            let (rig, numbers) = (rig.clone(), numbers.clone());
            tasks.spawn(async move {
                for i in numbers.filter(|i| i % 8 == part) {
                    rig.create(node(&format!("ipam-{i}"))).await;
                }
            });
        }
        tasks.join_all().await;
    }

    async fn until_assigned(rig: &Rig, count: usize) -> Vec<Object> {
        let assigned = async |rig: &Rig| {
            let nodes = rig.list("nodes").await;
            (nodes.iter().filter(|node| !ranges(node).is_empty()).count() == count).then_some(nodes)
        };
        rig.until(LONG, "every node has pod ranges", assigned).await
    }

    /// The number of blocks of the nodes; fails if two are equal or one overlaps with the range of Services.
    fn distinct(nodes: &[Object]) -> usize {
        let mut all: BTreeSet<IpAddr> = (0..16).map(|i| IpAddr::from([10, 8, i, 0])).collect();
        all.insert("fd00:8::".parse().unwrap());
        let services = all.len();
        for node in nodes {
            let ranges = ranges(node);
            let (v4, v6) = ranges.split_once(',').unwrap();
            for (block, length) in [(v4, "/24"), (v6, "/64")] {
                let network = block.strip_suffix(length).unwrap().parse().unwrap();
                assert!(all.insert(network), "{block} of {} is given twice, or to Services", node.name());
            }
        }
        all.len() - services
    }

    fn is_patch(entry: &AuditEntry) -> bool {
        entry.verb == "patch" && entry.is_about("nodes")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thousand_nodes_get_distinct_blocks_with_one_write_each_and_a_restart_writes_nothing() {
        let Some(rig) = Rig::real_alone(Options::default().audit(), "suite-ipam", "").await else { return };
        let rig = Arc::new(rig);
        let mut audit = rig.bed().audit();
        add_many(&rig, 0..NODES / 2).await;
        let manager = start(&rig, &RANGES).await;
        let began = std::time::Instant::now();
        let half = until_assigned(&rig, NODES / 2).await;
        println!("{} waiting nodes: {:?} from the start of the process", half.len(), began.elapsed());
        add_many(&rig, NODES / 2..NODES).await;
        let nodes = until_assigned(&rig, NODES).await;
        assert_eq!(distinct(&nodes), 2 * NODES);
        manager.stop().await.unwrap();

        // Another process: it knows the used blocks only from the nodes.
        let manager = start(&rig, &RANGES).await;
        rig.create(node("ipam-late")).await;
        let after = until_assigned(&rig, NODES + 1).await;
        distinct(&after);
        let versions = |nodes: &[Object]| -> BTreeSet<String> {
            let old = nodes.iter().filter(|node| node.name() != "ipam-late");
            old.map(|node| format!("{} {}", node.name(), node.version())).collect()
        };
        assert_eq!(versions(&after), versions(&nodes), "nothing that was given is written again");
        // The block of a deleted node is released; a new node with its name gets another one.
        rig.delete("nodes", "", "ipam-late").await;
        rig.create(node("ipam-late")).await;
        distinct(&until_assigned(&rig, NODES + 1).await);
        let metric = |name: &str| {
            manager.metric(&format!(r#"node_ipam_controller_cidrset_{name}{{clusterCIDR="10.8.0.0/14"}}"#))
        };
        // 16 blocks overlap with those of Services.
        assert_eq!(metric("usage_cidrs"), Some((NODES + 17) as f64 / 1024.0));
        assert_eq!(metric("cidrs_releases_total"), Some(1.0));
        manager.stop().await.unwrap();

        let mut patches: Vec<AuditEntry> = Vec::new();
        rig.until(LONG, "the audit log has every write", async |_| {
            patches.extend(audit.read().unwrap().into_iter().filter(is_patch));
            (patches.len() >= NODES + 2).then_some(())
        })
        .await;
        assert_eq!(patches.len(), NODES + 2, "one write for each node");
        assert!(patches.iter().all(|patch| patch.code == 200 && patch.request_uri.contains("?timeout=")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_api_server_takes_a_range_only_for_this_very_node_and_only_once() {
        let Some(rig) = Rig::real("suite-ipam-rules", "").await else { return };
        let kubeconfig = rig.bed().kubeconfig().display().to_string();
        let options = ConnectOptions { kubeconfig, ..ConnectOptions::default() };
        let client = Client::connect(&options, ccm_runtime::Metrics::new()).await.unwrap();
        let made = rig.create(node("ipam-rules")).await;
        let assign = async |uid: &str, block: &str| {
            let body = json!({"metadata": {"uid": uid}, "spec": {"podCIDR": block, "podCIDRs": [block]}});
            let call = Call::strategic("/api/v1/nodes/ipam-rules?timeout=9999ms", &body).metadata_only();
            client.send(&call).await.map(drop).map_err(|error| format!("{}: {error}", error.is_refused()))
        };
        let other = assign("00000000-0000-0000-0000-000000000000", "10.99.1.0/24").await.unwrap_err();
        assert!(other.starts_with("true: ") && other.to_lowercase().contains("uid"), "{other}");
        assert_eq!(ranges(&rig.node("ipam-rules").await.unwrap()), "");
        assert_eq!(assign(made.uid(), "10.99.2.0/24").await, Ok(()));
        let version = rig.node("ipam-rules").await.unwrap().version().to_owned();
        assert_eq!(assign(made.uid(), "10.99.2.0/24").await, Ok(()), "the same again changes nothing");
        let second = assign(made.uid(), "10.99.3.0/24").await.unwrap_err();
        assert!(second.starts_with("true: ") && second.contains("may not change podCIDR"), "{second}");
        let node = rig.node("ipam-rules").await.unwrap();
        assert_eq!((ranges(&node), node.version()), ("10.99.2.0/24".into(), &*version));
    }
}
