//! The ranges of a node, the writes, the events on failures, and the number of reads of the cloud.

use parking_lot::Mutex as StdMutex;
use std::collections::BTreeMap;

use ccm_provider::node::ConditionStatus;
use ccm_provider::{ErrorClass, Node, Schemes};
use ccm_runtime::Gate;
use ccm_runtime::writer::Network;
use proptest::prelude::*;

use super::decide::Changes;
use super::*;
use crate::test_shared::{self, Events};

fn interface(primary: bool, ranges: &[&str]) -> PodInterface {
    PodInterface { primary, ranges: ranges.iter().map(ToString::to_string).collect() }
}

fn node(name: &str, cidrs: &[&str], network: Option<(ConditionStatus, &str)>) -> Node {
    Node {
        name: name.into(),
        uid: name.into(),
        resource_version: "1".into(),
        provider_id: Some(format!("cloud://{name}").into()),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        network_unavailable: network.map(|(status, reason)| (status, reason.into())),
        ..Node::default()
    }
}

#[track_caller]
fn check(interfaces: &[PodInterface], families: Families, wanted: Result<&str, &str>) {
    let found = decide::ranges(&node("n", &[], None), interfaces, families).map(|ranges| ranges.join(","));
    match wanted {
        Ok(wanted) => assert_eq!(found.as_deref(), Ok(wanted), "{interfaces:?}"),
        Err(wanted) => assert!(found.as_ref().is_err_and(|error| error.starts_with(wanted)), "{found:?}"),
    }
}

const BOTH: &[&str] = &["10.0.0.0/24", "2600:1900::/112"];

#[test]
fn ranges_are_those_of_the_default_interface_wherever_it_is_listed() {
    let nics = [interface(false, &["10.1.0.0/24"]), interface(true, &["10.0.0.0/24", "10.2.0.0/24"])];
    check(&nics, Families::V4, Ok("10.0.0.0/24"));
    let unmarked = nics.map(|nic| PodInterface { primary: false, ..nic });
    check(&unmarked, Families::V4, Ok("10.1.0.0/24"));
}

#[test]
fn a_node_gets_one_range_of_each_family_of_the_cluster_in_its_order() {
    let nics = [interface(true, BOTH)];
    check(&nics, Families::V4, Ok("10.0.0.0/24"));
    check(&nics, Families::V4V6, Ok("10.0.0.0/24,2600:1900::/112"));
    check(&nics, Families::V6V4, Ok("2600:1900::/112,10.0.0.0/24"));
    check(&nics, Families::V6, Ok("2600:1900::/112"));
}

#[test]
fn missing_ranges_are_reported_with_upstreams_texts() {
    let none = "failed to allocate cidr: Node n has no ranges from which CIDRs can be allocated: ";
    check(&[], Families::V4, Err(none));
    check(&[interface(true, &[])], Families::V4, Err(none));
    let family = |families: &str| {
        format!(
            "failed to allocate cidr: Node n has no ranges from which CIDRs can be allocated for the cluster stack family {families}: "
        )
    };
    // With several interfaces, only the default one counts.
    check(&[interface(true, &[]), interface(false, BOTH)], Families::V4, Err(&family("IPv4")));
    check(&[interface(true, &BOTH[..1])], Families::V4V6, Err(&family("IPv4_IPv6")));
    check(&[interface(true, &BOTH[1..])], Families::V6V4, Err(&family("IPv6_IPv4")));
    check(&[interface(true, &BOTH[..1])], Families::V6, Err(&family("IPv6")));
    check(&[interface(true, &["10.0.0/24"])], Families::V4, Err("failed to parse strings [\"10.0.0/24\"] as CIDRs"));
}

#[test]
fn only_what_is_missing_is_written() {
    let wanted = ["10.0.0.0/24".to_owned(), "fd00::/112".to_owned()];
    let changes = |cidrs: &[&str], network| decide::changes(&node("n", cidrs, network), &wanted);
    let all = Changes { pod_cidrs: wanted.to_vec(), network: Some(Network::Implicit { known: false }) };
    assert_eq!(changes(&[], None), Ok(all));
    let reachable = Some((ConditionStatus::False, "CalicoIsUp"));
    assert_eq!(changes(&["10.0.0.0/24", "fd00:0::0/112"], reachable), Ok(Changes::default()));
    let unreachable = Some((ConditionStatus::True, "NoRouteCreated"));
    let known = Changes { network: Some(Network::Implicit { known: true }), ..Changes::default() };
    assert_eq!(changes(&["10.0.0.0/24", "fd00::/112"], unreachable), Ok(known));
    for others in [&["10.0.1.0/24", "fd00::/112"][..], &["fd00::/112", "10.0.0.0/24"], &["10.0.0.0/24"]] {
        let error = changes(others, reachable).unwrap_err();
        assert!(error.contains("ranges of a node cannot be changed"), "{error}");
    }
}

#[test]
fn a_node_is_due_until_it_has_ranges_and_counts_as_reachable() {
    let due = |cidrs: &[&str], network| decide::is_due(&node("n", cidrs, network));
    let reachable = Some((ConditionStatus::False, "RouteCreated"));
    assert!(due(&[], None) && due(&[], reachable) && due(&["10.0.0.0/24"], None));
    assert!(due(&["10.0.0.0/24"], Some((ConditionStatus::Unknown, "x"))));
    assert!(!due(&["10.0.0.0/24"], reachable));
}

proptest! {
    #[test]
    fn a_node_gets_ranges_that_its_instance_has_or_none(
        nics in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec("10\\.0\\.[0-9]\\.0/24|fd00:[0-9]::/112|[0-9./]{0,6}", 0..4)),
            0..4,
        ),
        families in prop_oneof![Just(Families::V4), Just(Families::V4V6), Just(Families::V6V4), Just(Families::V6)],
    ) {
        let nics: Vec<PodInterface> = nics.into_iter().map(|(primary, ranges)| PodInterface { primary, ranges }).collect();
        if let Ok(ranges) = decide::ranges(&node("n", &[], None), &nics, families) {
            let given: Vec<&String> = nics.iter().flat_map(|nic| &nic.ranges).collect();
            prop_assert!(!ranges.is_empty() && ranges.iter().all(|range| given.contains(&range)));
            let changes = decide::changes(&node("n", &[], None), &ranges).unwrap();
            prop_assert_eq!(&changes.pod_cidrs, &ranges);
            let texts: Vec<&str> = ranges.iter().map(String::as_str).collect();
            let after = node("n", &texts, Some((ConditionStatus::False, "RouteCreated")));
            prop_assert_eq!(decide::changes(&after, &ranges), Ok(Changes::default()), "a second pass writes nothing");
        }
    }
}

/// The instances by node; other nodes are unknown.
#[derive(Default)]
struct Zone {
    instances: BTreeMap<String, Vec<PodInterface>>,
    calls: StdMutex<Vec<(Duration, usize)>>,
    short: bool,
    poison: Option<&'static str>,
    // The time base of `calls`.
    began: Option<Instant>,
}

#[async_trait]
impl PodRanges for Zone {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        let since = self.began.map(|began| began.elapsed()).unwrap_or_default();
        self.calls.lock().push((since, nodes.len()));
        assert!(!nodes.iter().any(|node| Some(&*node.name) == self.poison), "poisoned");
        let one = |node: &NodeRef| self.instances.get(&*node.name).cloned().ok_or(ProviderError::InstanceNotFound);
        nodes.iter().skip(usize::from(self.short)).map(one).collect()
    }
}

struct Scene {
    controller: Arc<CloudController>,
    zone: Arc<Zone>,
    events: Arc<Events>,
}

fn scene(shared: &Shared, zone: Zone) -> Scene {
    let (zone, events) = (Arc::new(Zone { began: Some(Instant::now()), ..zone }), Arc::new(Events::default()));
    let shared = Shared { schemes: Schemes::new(["cloud"]), ..shared.clone() };
    let controller = Arc::new(CloudController::new(shared.clone(), events.clone(), zone.clone(), Families::V4));
    let handler = controller.clone();
    shared.on_managed_change(move |change| handler.changed(&change));
    Scene { controller, zone, events }
}

fn instances(all: &[(&str, &[&str])]) -> Zone {
    let one = |(name, ranges): &(&str, &[&str])| ((*name).to_owned(), vec![interface(true, ranges)]);
    Zone { instances: all.iter().map(one).collect(), ..Zone::default() }
}

impl Scene {
    /// One pass over the queued keys, as in the runner.
    async fn pass(&self) -> Vec<(String, Result<Outcome, SyncError>)> {
        let keys = self.controller.queue.take_ready(5000).await.unwrap();
        let observed = self.controller.observe(&keys).await;
        let work = keys.iter().cloned().zip(observed.into_iter().map(Result::unwrap)).collect();
        let mut answers = self.controller.reconcile(work).await;
        keys.iter().for_each(|key| self.controller.queue.done(key));
        answers.sort_by(|a, b| a.0.cmp(&b.0));
        answers.into_iter().map(|(key, answer)| (key.to_string(), answer)).collect()
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.0.lock())
    }
}

/// A gate that keeps plans.
fn collecting(shared: Shared) -> Shared {
    let gate = Gate::collecting(shared.gate.client().clone(), shared.leadership.clone(), shared.metrics.clone());
    Shared { gate, ..shared }
}

#[tokio::test(start_paused = true)]
async fn one_read_answers_for_all_nodes_and_each_plan_shows_the_ranges_of_its_node() {
    let shared = collecting(test_shared::shared());
    let reachable = Some((ConditionStatus::False, "RouteCreated"));
    shared.nodes.apply(node("new", &[], None));
    shared.nodes.apply(node("done", &["10.0.1.0/24"], reachable));
    shared.nodes.apply(node("waits", &["10.0.2.0/24"], Some((ConditionStatus::True, "NoRouteCreated"))));
    let none = || Node { provider_id: None, ..node("unborn", &[], None) };
    shared.nodes.apply(none());
    shared.nodes.apply(Node { provider_id: Some("other://1".into()), ..node("foreign", &[], None) });
    shared.nodes.apply(Node { deleting: true, ..node("leaves", &[], None) });
    let zone = instances(&[("new", BOTH), ("done", &["10.0.1.0/24"]), ("waits", &["10.0.2.0/24"])]);
    let scene = scene(&shared, zone);
    let answers = scene.pass().await;
    assert_eq!(scene.zone.calls.lock().clone(), [(Duration::ZERO, 3)]);
    let ended: Vec<_> = answers.iter().map(|(name, answer)| (&**name, answer.is_ok())).collect();
    // The two others end at the gate, which writes nothing.
    assert_eq!(ended, [("done", true), ("new", false), ("waits", false)]);
    let plans: Vec<String> = shared.gate.collected().iter().map(ToString::to_string).collect();
    assert_eq!(plans.len(), 2, "{plans:?}");
    for (plan, texts) in plans.iter().zip([
        &["node new pod ranges", "spec.podCIDRs", "10.0.0.0/24", "condition NetworkUnavailable"][..],
        &["node waits pod ranges", "True", "False"],
    ]) {
        assert!(texts.iter().all(|text| plan.contains(text)), "{plan}");
    }
    assert_eq!(scene.events(), [""; 0]);
    // A heartbeat of a complete node causes no read; a new provider ID does.
    let reported = Node { resource_version: "2".into(), ..node("done", &["10.0.1.0/24"], reachable) };
    shared.nodes.apply(reported);
    assert_eq!(scene.controller.queue.sizes().0, 0);
    shared.nodes.apply(Node { resource_version: "2".into(), ..node("unborn", &[], None) });
    assert_eq!(scene.controller.queue.sizes().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_has_no_range_gets_an_event_and_is_tried_20_times_with_back_off() {
    let shared = collecting(test_shared::shared());
    let metrics = shared.metrics.clone();
    shared.nodes.apply(node("n", &[], None));
    let scene = scene(&shared, instances(&[("n", &[])]));
    let queue = scene.controller.queue.clone();
    let mut delays = Vec::new();
    let last = loop {
        let (_, answer) = scene.pass().await.remove(0);
        let text = "Normal CIDRNotAvailable: Node n status is now: CIDRNotAvailable (failed to allocate cidr: Node n has no \
                    ranges from which CIDRs can be allocated: ";
        let events = scene.events();
        assert!(events.len() == 1 && events[0].starts_with(text), "{events:?}");
        match answer {
            Err(SyncError::Retry(_)) => delays.push(queue.add_rate_limited("n".into()).as_millis()),
            other => break other,
        }
        // Status updates of its kubelet do not shorten the back-off.
        let version = (delays.len() + 1).to_string();
        shared.nodes.apply(Node { resource_version: version.into(), ..node("n", &[], None) });
        assert_eq!(queue.sizes().0, 0);
    };
    assert!(matches!(last, Err(SyncError::Terminal(_))), "{last:?}");
    assert_eq!(delays[..8], [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
    assert_eq!(delays.len(), 20);
    assert_eq!(metrics.sample(r#"workqueue_dropped_objects{name="cloudCIDRAllocator"}"#), Some(1.0));
    // The runner forgets its failures; it is tried again once it changes.
    queue.forget(&"n".into());
    shared.nodes.apply(Node { resource_version: "100".into(), ..node("n", &[], None) });
    assert_eq!(queue.sizes().0, 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_during_a_read_are_read_together_after_a_second() {
    let shared = collecting(test_shared::shared());
    shared.nodes.apply(node("a", &[], None));
    let scene = scene(&shared, Zone::default());
    scene.pass().await;
    for name in ["b", "c", "d"] {
        shared.nodes.apply(node(name, &[], None));
    }
    scene.pass().await;
    assert_eq!(*scene.zone.calls.lock(), [(Duration::ZERO, 1), (PAUSE, 3)]);
    // A missing instance has no range, and does not stop the pass.
    let not_found =
        "Normal CIDRNotAvailable: Node a status is now: CIDRNotAvailable (failed to get instance from provider: ";
    let events = scene.events();
    assert!(events.len() == 4 && events[0].starts_with(not_found), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_answer_is_an_error_for_all_nodes() {
    let shared = collecting(test_shared::shared());
    shared.nodes.apply(node("a", &[], None));
    shared.nodes.apply(node("b", &[], None));
    let scene = scene(&shared, Zone { short: true, ..instances(&[("a", BOTH), ("b", BOTH)]) });
    for (_, answer) in scene.pass().await {
        assert!(matches!(answer, Err(SyncError::Provider { class: ErrorClass::Bug, .. })), "{answer:?}");
    }
    assert_eq!(shared.gate.collected(), []);
}

#[tokio::test(start_paused = true)]
async fn a_node_at_which_the_provider_panics_fails_alone() {
    let shared = collecting(test_shared::shared());
    let names: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
    names.iter().for_each(|name| shared.nodes.apply(node(name, &[], None)));
    let all: Vec<(&str, &[&str])> = names.iter().map(|name| (&**name, BOTH)).collect();
    let scene = scene(&shared, Zone { poison: Some("n4"), ..instances(&all) });
    let answers = scene.pass().await;
    assert_eq!(shared.gate.collected().len(), 8, "the others have their ranges planned");
    let (_, failed) = answers.into_iter().find(|(name, _)| name == "n4").unwrap();
    assert!(matches!(failed, Err(SyncError::Provider { class: ErrorClass::Bug, .. })), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_other_ranges_than_its_instance_is_reported_once_and_not_written() {
    let shared = collecting(test_shared::shared());
    shared.nodes.apply(node("n", &["10.9.0.0/24"], None));
    let scene = scene(&shared, instances(&[("n", BOTH)]));
    let (_, answer) = scene.pass().await.remove(0);
    assert!(matches!(&answer, Err(SyncError::Terminal(error)) if error.contains("10.9.0.0/24")), "{answer:?}");
    let events = scene.events();
    assert!(
        events[0].starts_with("Normal CIDRAssignmentFailed: Node n status is now: CIDRAssignmentFailed ("),
        "{events:?}"
    );
    assert_eq!(shared.gate.collected(), []);
}

#[tokio::test(start_paused = true)]
async fn an_unmanaged_node_gets_no_ranges_until_its_label_is_removed() {
    let shared = collecting(test_shared::unmanaged(("example.com/unmanaged", "true")));
    let labels = || [("example.com/unmanaged", "true")].into_iter().collect();
    shared.nodes.apply(Node { labels: labels(), ..node("n", &[], None) });
    let scene = scene(&shared, instances(&[("n", BOTH)]));
    assert_eq!(scene.controller.queue.sizes().0, 0);
    shared.nodes.apply(Node { resource_version: "2".into(), ..node("n", &[], None) });
    assert_eq!(scene.controller.queue.sizes().0, 1);
    // The node exists again before it is processed.
    shared.nodes.apply(Node { resource_version: "3".into(), labels: labels(), ..node("n", &[], None) });
    assert!(scene.pass().await[0].1.is_ok());
    assert!(scene.zone.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_that_was_dropped_is_no_failure_any_more() {
    let shared = collecting(test_shared::shared());
    shared.nodes.apply(node("n", &[], None));
    let (scene, failures) = (scene(&shared, Zone::default()), shared.metrics.failures());
    let fails = || failures.list().iter().any(|entry| entry.failure.as_ref().is_some_and(|failure| !failure.settled));
    failures.failed(crate::ipam::NAME, "node n".into(), ("dropped", None), None);
    assert!(fails());
    scene.controller.changed(&ObjectChange::Deleted(Arc::new(node("n", &[], None))));
    assert!(!fails());
}
