//! Hosts, annotations, conditions and finalizers that a provider defines for a Service.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, Node, Note, Notes, ProviderError, Scope,
    Service, ServiceAction, ServiceAnswer, ServiceWork,
};
use parking_lot::Mutex;

use ccm_test_suite::Make;

use super::*;

const OWN: &str = "cloud.example/internal";
const OTHER: &str = "cloud.example/external";

/// Registers addresses of the nodes with the label of the Service, and writes the load balancer's ID to the Service.
#[derive(Clone, Default)]
struct Registers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Hosts of each call, with the finalizers of the Service at that time.
    calls: Vec<(ServiceAction, Vec<String>, Vec<String>)>,
    fails: bool,
    /// The number of calls of `get`.
    looks: u32,
    /// The number of calls that stay unfinished.
    busy: u32,
    /// Whether the address is known although the work failed or is not finished.
    shows: bool,
    /// The number of successful calls that are to be repeated.
    again: u32,
    /// What each call shows of the addresses and the ID of the Service.
    shown: Vec<(ServiceAction, usize, Option<String>)>,
}

impl Registers {
    fn hosts(&self) -> Vec<String> {
        self.0.lock().calls.iter().map(|(_, hosts, _)| hosts.join(" ")).collect()
    }
}

impl CloudProvider for Registers {
    fn name(&self) -> &str {
        "registers"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl LoadBalancer for Registers {
    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        let pool = service.metadata.annotations.get("pool");
        assert!(pool.is_none_or(|pool| pool != "panic"), "no such pool");
        let belongs = pool.is_none_or(|pool| node.labels.get("pool") == Some(pool));
        belongs.then(|| node.addresses.first().map_or("", |address| &*address.address).into())
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        let internal = service.metadata.annotations.contains_key("internal");
        vec![(OWN, internal), (OTHER, !internal)]
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.0.lock().looks += 1;
        Ok(Some(LoadBalancerStatus::default()))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        let mut state = self.0.lock();
        let mut answers = Vec::new();
        for ServiceWork { service, nodes, action, .. } in work {
            let hosts = nodes.iter().map(|node| self.backend(service, node).unwrap().into_owned()).collect();
            state.calls.push((*action, hosts, service.metadata.finalizers.clone()));
            let id = service.metadata.annotations.get("cloud.example/id").cloned();
            state.shown.push((*action, service.status.load_balancer.ingress.len(), id));
            let ingress = vec![LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }];
            let is_busy = state.busy > 0;
            state.busy = state.busy.saturating_sub(1);
            let result = match (action, state.fails) {
                _ if is_busy => Err(ProviderError::in_progress("being made", Duration::from_secs(1))),
                (_, true) => Err(ProviderError::unknown("the quota is used up")),
                (ServiceAction::Ensure, false) => Ok(Some(LoadBalancerStatus { ingress })),
                _ => Ok(None),
            };
            let id = Some("lb-1".to_owned()).filter(|_| *action != ServiceAction::Delete);
            let annotations = [("cloud.example/id".to_owned(), id), ("old".to_owned(), None)];
            let note =
                Note { kind: "PortsOpen", status: !state.fails, reason: "Quota", message: "one of one".to_owned() };
            let notes = Notes { annotations: BTreeMap::from(annotations), conditions: vec![note] };
            let ingress = vec![LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }];
            let status = state.shows.then_some(LoadBalancerStatus { ingress });
            let again = (state.again > 0).then_some(Duration::from_secs(7));
            state.again = state.again.saturating_sub(1);
            answers.push(ServiceAnswer { notes, status, again, ..ServiceAnswer::from(result) });
        }
        answers
    }
}

async fn balanced_by(cloud: &Registers, service: Make) -> (Rig, Running) {
    let rig = Rig::new("").await;
    for (name, pool) in [("a", "one"), ("b", "two")] {
        let address = format!("10.0.0.{}", name.as_bytes()[0]);
        rig.create(
            node(name).provider_id(&format!("registers://{name}")).label("pool", pool).address("InternalIP", &address),
        )
        .await;
    }
    rig.create(service).await;
    let manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    (rig, manager)
}

#[tokio::test(start_paused = true)]
async fn only_selected_nodes_are_hosts_and_their_backend_text_counts() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s").annotation("pool", "one")).await;
    rig.until_service("s", "has an address", has_address).await;
    // The provider's annotations cause no further sync.
    rig.pass(MINUTE).await;
    let before = cloud.hosts();
    assert_eq!(before, ["10.0.0.97"]);
    // Changes of a node that is not a host do not matter.
    let address = |address: &str| json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    rig.patch("nodes", "", "b", "status", address("10.0.1.98")).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts(), before);
    rig.patch_node("b", json!({"metadata": {"labels": {"pool": "one"}}})).await;
    rig.pass(MINUTE).await;
    let hosts = cloud.hosts();
    assert_eq!(hosts.len(), before.len() + 1);
    assert_eq!(hosts.last().unwrap(), "10.0.0.97 10.0.1.98");
    // A changed address is another backend.
    rig.patch("nodes", "", "a", "status", address("10.0.1.97")).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts().last().unwrap(), "10.0.1.97 10.0.1.98");
}

#[tokio::test(start_paused = true)]
async fn a_panic_over_the_hosts_of_one_service_keeps_no_other_from_its_own() {
    let cloud = Registers::default();
    let (rig, manager) = balanced_by(&cloud, service("a")).await;
    rig.until_service("a", "has an address", has_address).await;
    rig.create(service("b")).await;
    rig.until_service("b", "has an address", has_address).await;
    rig.patch_service("a", json!({"metadata": {"annotations": {"pool": "panic"}}})).await;
    let event = rig.until_event("a", "SyncLoadBalancerFailed").await;
    assert!(event.ends_with("Error syncing load balancer: a sync panicked: no such pool"), "{event}");

    let before = cloud.hosts().len();
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.1.97"}]}});
    rig.patch("nodes", "", "a", "status", address).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts()[before..], ["10.0.1.97 10.0.0.98"], "those of b");
    // It is retried.
    rig.patch_service("a", json!({"metadata": {"annotations": {"pool": null}}})).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts().last().unwrap(), "10.0.1.97 10.0.0.98");
    assert_eq!(cloud.hosts().len(), before + 2);
    assert!(manager.metric("ccm_panics_total{place=\"service-lb-controller\"}").unwrap() > 1.0 && manager.is_running());
}

#[tokio::test(start_paused = true)]
async fn annotations_and_conditions_are_written_also_when_the_ensure_fails() {
    let cloud = Registers::default();
    cloud.0.lock().fails = true;
    let (rig, _manager) = balanced_by(&cloud, service("s").annotation("old", "1").annotation("kept", "1")).await;
    let written =
        rig.until_service("s", "has the ID", |s| s["metadata"]["annotations"]["cloud.example/id"] == "lb-1").await;
    let annotations = &written["metadata"]["annotations"];
    assert_eq!((&annotations["old"], &annotations["kept"]), (&Value::Null, &json!("1")));
    assert_eq!(written.condition("PortsOpen").unwrap()["status"], "False");
    cloud.0.lock().fails = false;
    let served = rig.until_service("s", "has an address", has_address).await;
    assert_eq!(served.condition("PortsOpen").unwrap()["status"], "True");
    // Unchanged values are not written again.
    rig.store().log().clear();
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.writes_of("services", "s").len(), 0, "{:?}", rig.writes_of("services", "s"));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_the_provider_that_a_user_changes_asks_for_a_sync() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    let before = cloud.hosts().len();
    rig.patch_service("s", json!({"metadata": {"annotations": {"cloud.example/id": "lb-2"}}})).await;
    rig.until_service("s", "has its ID again", |s| s["metadata"]["annotations"]["cloud.example/id"] == "lb-1").await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_that_takes_time_is_announced_once() {
    let cloud = Registers::default();
    cloud.0.lock().busy = 5;
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.count_events("s", "EnsuringLoadBalancer").await, 1);
    assert_eq!(cloud.hosts().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn annotations_go_with_the_balancer_where_the_service_stays() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s").annotation("kept", "1")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    let left = rig.until_service("s", "has no balancer", |s| s.finalizers().is_empty() && s.ingress().is_empty()).await;
    let annotations = &left["metadata"]["annotations"];
    assert_eq!((&annotations["cloud.example/id"], &annotations["kept"]), (&Value::Null, &json!("1")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_host_update_is_reported_even_if_the_notes_cannot_be_written() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    cloud.0.lock().fails = true;
    rig.faults().add(Fault::status(403).on(Match::on("patch", "services")));
    let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.1.97"}]}});
    rig.patch("nodes", "", "a", "status", address).await;
    let event = rig.until_event("s", "UpdateLoadBalancerFailed").await;
    for error in ["error: the quota is used up", "failed to update load balancer status: "] {
        assert!(event.contains(error), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_the_provider_are_there_before_the_first_call_and_go_last() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s").annotation("internal", "")).await;
    let made = rig.until_service("s", "has an address", has_address).await;
    assert_eq!(made.finalizers(), [FINALIZER, OWN]);
    assert_eq!(cloud.0.lock().calls.last().unwrap().0, ServiceAction::Ensure);
    // Another kind of load balancer has another finalizer; the old one is removed after the new one is created.
    rig.patch_service("s", json!({"metadata": {"annotations": {"internal": null}}})).await;
    let other = rig.until_service("s", "has the other", |s| s.finalizers() == [FINALIZER, OTHER]).await;
    assert!(has_address(&other));
    rig.delete("services", "default", "s").await;
    rig.until(MINUTE, "it is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
    let (last, _, finalizers) = cloud.0.lock().calls.last().unwrap().clone();
    assert_eq!((last, finalizers), (ServiceAction::Delete, vec![FINALIZER.to_owned(), OTHER.to_owned()]));
    // The finalizer showed that there was something to delete.
    assert_eq!(cloud.0.lock().looks, 0);
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_balancer_that_fails_or_is_not_finished_is_written() {
    for (fails, busy) in [(true, 0), (false, 100)] {
        let state = State { fails, busy, shows: true, ..State::default() };
        let cloud = Registers(Arc::new(Mutex::new(state)));
        let (rig, _manager) = balanced_by(&cloud, service("s")).await;
        rig.until_service("s", "has an address", has_address).await;
        assert_eq!(rig.count_events("s", "EnsuredLoadBalancer").await, 0);
        if fails {
            rig.until_event("s", "SyncLoadBalancerFailed").await;
        }
        let writes = rig.writes_of("services", "s").len();
        rig.pass(MINUTE).await;
        assert_eq!(rig.writes_of("services", "s").len(), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ensure_that_succeeded_and_is_repeated_makes_no_more_events() {
    let cloud = Registers(Arc::new(Mutex::new(State { again: 3, ..State::default() })));
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.hosts().len(), 4);
    let events =
        (rig.count_events("s", "EnsuringLoadBalancer").await, rig.count_events("s", "EnsuredLoadBalancer").await);
    assert_eq!(events, (1, 1));
    // A change of the Service is another piece of work.
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until(MINUTE, "ensured again", async |rig| {
        (rig.count_events("s", "EnsuredLoadBalancer").await == 2).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn host_updates_that_are_not_finished_or_fail_write_no_status_that_is_there() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    let writes = bodies(&rig, "s").len();
    {
        let mut state = cloud.0.lock();
        (state.busy, state.shows) = (8, true);
    }
    rig.create(node("c").provider_id("registers://c").label("pool", "one").address("InternalIP", "10.0.0.9")).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.0.lock().busy, 0);
    assert_eq!(bodies(&rig, "s").len(), writes, "{:?}", bodies(&rig, "s"));
}

#[tokio::test(start_paused = true)]
async fn a_host_update_and_a_deletion_after_the_object_have_what_was_written_since_the_ensure() {
    let cloud = Registers::default();
    let (rig, _manager) = balanced_by(&cloud, service("s")).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    rig.create(node("c").provider_id("registers://c").label("pool", "one").address("InternalIP", "10.0.0.9")).await;
    rig.pass(MINUTE).await;
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "s").await;
    rig.pass(MINUTE).await;
    let id = || Some("lb-1".to_owned());
    assert_eq!(
        cloud.0.lock().shown,
        [(ServiceAction::Ensure, 0, None), (ServiceAction::UpdateHosts, 1, id()), (ServiceAction::Delete, 1, id())]
    );
}
