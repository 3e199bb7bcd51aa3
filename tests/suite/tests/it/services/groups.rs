//! Services that share cloud objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, GroupKey, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef, ProviderError, Scope,
    Service, ServiceAnswer, ServiceWork, SingleLoadBalancer, reconcile_one_by_one,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;

/// Every call takes some time. A Service leaves its load balancer in the old group until it is ensured in the new one.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The group of each load balancer, by UID.
    made: BTreeMap<String, String>,
    /// The work in progress: groups and calls.
    at_work: Vec<(String, String)>,
    overlaps: Vec<String>,
    calls: Vec<String>,
}

fn group_of(service: &Service) -> String {
    service.metadata.annotations.get("group").cloned().unwrap_or_else(|| service.metadata.name.to_string())
}

impl Shared {
    async fn work(&self, verb: &str, service: &Service, deleted: bool) {
        let (uid, group) = (service.metadata.uid.to_string(), group_of(service));
        let call = format!("{verb} {} of {group}", service.metadata.name);
        {
            let mut state = self.0.lock();
            state.calls.push(call.clone());
            let mut groups = vec![group.clone()];
            groups.extend(state.made.get(&uid).filter(|old| **old != group).cloned());
            for group in groups {
                let others = state.at_work.iter().filter(|(other, _)| *other == group);
                let overlaps: Vec<_> = others.map(|(_, other)| format!("{call} beside {other}")).collect();
                state.overlaps.extend(overlaps);
                state.at_work.push((group, call.clone()));
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut state = self.0.lock();
        state.at_work.retain(|(_, other)| *other != call);
        match deleted {
            true => state.made.remove(&uid),
            false => state.made.insert(uid, group),
        };
    }
}

impl CloudProvider for Shared {
    fn name(&self) -> &str {
        "shared"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl SingleLoadBalancer for Shared {
    async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let made = self.0.lock().made.contains_key(&*service.metadata.uid);
        Ok(made.then(LoadBalancerStatus::default))
    }

    async fn ensure(
        &self,
        _: &str,
        service: &Service,
        _: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.work("ensure", service, false).await;
        let ingress = LoadBalancerIngress { ip: "203.0.113.1".into(), ..LoadBalancerIngress::default() };
        Ok(Some(LoadBalancerStatus { ingress: vec![ingress] }))
    }

    async fn update(&self, _: &str, service: &Service, _: &[NodeRef]) -> Result<(), ProviderError> {
        self.work("update", service, false).await;
        Ok(())
    }

    async fn ensure_deleted(&self, _: &str, service: &Service) -> Result<(), ProviderError> {
        self.work("delete", service, true).await;
        Ok(())
    }

    // One item after the other, because they share the group.
}

#[async_trait]
impl LoadBalancer for Shared {
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(group_of(service))].into()
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        SingleLoadBalancer::get(self, cluster, service).await
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        let mut answers = Vec::new();
        for item in work {
            answers.extend(reconcile_one_by_one(self, cluster, std::slice::from_ref(item)).await);
        }
        answers
    }
}

async fn two_of_one_group() -> (Rig, Running, Shared) {
    let (rig, cloud) = (Rig::new("").await, Shared::default());
    let of = |name: &str| service(name).annotation("group", "a");
    rig.create(of("moves")).await;
    rig.create(of("stays")).await;
    let manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    for name in ["moves", "stays"] {
        rig.until_service(name, "has an address", has_address).await;
    }
    (rig, manager, cloud)
}

#[tokio::test(start_paused = true)]
async fn the_old_balancer_of_a_recreated_service_is_deleted_beside_no_work_on_its_group() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("moves", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "moves").await;
    rig.create(service("moves").annotation("group", "b")).await;
    rig.patch_service("stays", json!({"metadata": {"annotations": {"x": "1"}}})).await;
    rig.faults().thaw_watches(Some("services"));
    rig.pass(MINUTE).await;
    let state = cloud.0.lock();
    assert_eq!(state.overlaps, [""; 0]);
    assert_eq!(state.made.values().collect::<Vec<_>>().len(), 2);
    assert!(state.calls.contains(&"delete moves of a".to_owned()), "{:?}", state.calls);
}

#[tokio::test(start_paused = true)]
async fn the_old_balancer_of_a_service_recreated_during_a_write_to_it_is_deleted_too() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    rig.faults().add(Fault::latency(Duration::from_secs(4)).on(Match::on("patch", "services")).times(1));
    rig.patch("services", "default", "moves", "status", json!({"status": {"loadBalancer": null}})).await;
    // The restoration is on its way.
    rig.pass(Duration::from_secs(3)).await;
    rig.faults().freeze_watches(Some("services"));
    for name in ["moves", "stays"] {
        rig.patch_service(name, json!({"metadata": {"finalizers": null}})).await;
        rig.delete("services", "default", name).await;
        rig.create(service(name).annotation("group", "a")).await;
    }
    rig.faults().thaw_watches(Some("services"));
    rig.pass(MINUTE).await;
    let state = cloud.0.lock();
    for call in ["delete stays of a", "delete moves of a"] {
        assert!(state.calls.contains(&call.to_owned()), "{:?}", state.calls);
    }
    assert_eq!((state.made.len(), &*state.overlaps), (2, &[][..]));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_group_is_synced_under_both() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    rig.create(service("third").annotation("group", "b")).await;
    rig.until_service("third", "has an address", has_address).await;
    rig.faults().freeze_watches(Some("services"));
    for (name, annotation) in [("stays", "x"), ("moves", "group"), ("third", "x")] {
        rig.patch_service(name, json!({"metadata": {"annotations": {(annotation): "b"}}})).await;
    }
    rig.faults().thaw_watches(Some("services"));
    rig.pass(MINUTE).await;
    assert_eq!(cloud.0.lock().overlaps, [""; 0]);
    // After that, the Service no longer uses the old group.
    rig.patch_service("moves", json!({"metadata": {"annotations": {"y": "1"}}})).await;
    rig.patch_service("stays", json!({"metadata": {"annotations": {"y": "1"}}})).await;
    rig.until(MINUTE, "both at once", async |_| (cloud.0.lock().at_work.len() == 2).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_ends_without_its_finalizer_takes_no_host_update_with_it() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    rig.faults().add(Fault::status(403).on(Match::on("patch", "services").named("moves")));
    rig.patch_service("moves", json!({"metadata": {"finalizers": null}})).await;
    rig.pass(MINUTE).await;
    cloud.0.lock().calls.clear();
    // The group is busy for five seconds, and both keys wait.
    rig.patch_service("stays", json!({"metadata": {"annotations": {"x": "1"}}})).await;
    rig.pass(Duration::from_secs(1)).await;
    rig.patch_service("moves", json!({"metadata": {"annotations": {"x": "1"}}})).await;
    add_node(&rig, "n").await;
    rig.until(MINUTE, "moves has the node", async |_| {
        cloud.0.lock().calls.contains(&"update moves of a".to_owned()).then_some(())
    })
    .await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.0.lock().calls.iter().filter(|call| *call == "ensure moves of a").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_while_its_group_is_at_work_is_restored() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    for number in 0..4 {
        rig.create(service(&format!("new{number}")).annotation("group", "a")).await;
    }
    rig.pass(Duration::from_secs(6)).await;
    rig.patch("services", "default", "moves", "status", json!({"status": {"loadBalancer": null}})).await;
    let wiped = Instant::now();
    rig.until_service("moves", "has its address again", has_address).await;
    assert!(wiped.elapsed() <= Duration::from_secs(5), "{:?}", wiped.elapsed());
    assert_eq!(cloud.0.lock().at_work.len(), 1, "the group is still at work");
}

/// `moves` gets no answer from the API server for longer than its group may wait.
async fn hangs(rig: &Rig, name: &str) {
    rig.faults().add(Fault::latency(Duration::from_secs(25)).on(Match::on("patch", "services").named(name)));
}

#[tokio::test(start_paused = true)]
async fn a_write_to_the_api_server_that_hangs_holds_up_no_host_update_of_its_group() {
    for write in ["status", "finalizer"] {
        let (rig, _manager, cloud) = two_of_one_group().await;
        let name = if write == "status" { "moves" } else { "third" };
        hangs(&rig, name).await;
        match write {
            "status" => {
                rig.patch("services", "default", "moves", "status", json!({"status": {"loadBalancer": null}})).await;
            }
            _ => drop(rig.create(service("third").annotation("group", "a")).await),
        }
        rig.pass(Duration::from_secs(5)).await;
        cloud.0.lock().calls.clear();
        add_node(&rig, "n").await;
        rig.until(Duration::from_secs(12), "the others have the node", async |_| {
            cloud.0.lock().calls.contains(&"update stays of a".to_owned()).then_some(())
        })
        .await;
        rig.pass(2 * MINUTE).await;
        assert!(has_address(&rig.service(name).await.unwrap()), "{write}");
        let state = cloud.0.lock();
        assert_eq!(state.overlaps, [""; 0], "{write}");
        let ensures = state.calls.iter().filter(|call| *call == "ensure third of a").count();
        assert_eq!(ensures, usize::from(write == "finalizer"), "{:?}", state.calls);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_put_off_hold_no_places_while_the_cloud_works() {
    let (rig, _manager, cloud) = two_of_one_group().await;
    let late: Vec<String> = (0..20).map(|number| format!("late{number}")).collect();
    let ready: Vec<String> = (0..10).map(|number| format!("ready{number}")).collect();
    for name in &ready {
        rig.create(service(name).annotation("group", "a")).await;
    }
    rig.pass(3 * MINUTE).await;
    assert!(has_address(&rig.service("ready9").await.unwrap()));
    // The group is busy for five seconds, and the others wait.
    rig.patch_service("stays", json!({"metadata": {"annotations": {"x": "1"}}})).await;
    rig.pass(Duration::from_secs(1)).await;
    for name in &ready {
        rig.patch_service(name, json!({"metadata": {"annotations": {"x": "1"}}})).await;
    }
    for name in &late {
        rig.faults().add(Fault::latency(Duration::from_secs(5)).on(Match::on("patch", "services").named(name)));
        rig.create(service(name).annotation("group", "a")).await;
    }
    rig.pass(Duration::from_secs(8)).await;
    assert_eq!(cloud.0.lock().at_work.len(), 1, "the group is at work");
    rig.lap();
    rig.create(service("other")).await;
    rig.until_service("other", "has an address", has_address).await;
    let took = rig.lap();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(cloud.0.lock().at_work.len(), 1, "the group is still at work");
}

/// The status of the first Service is known at once; the call goes on.
struct Early;

impl CloudProvider for Early {
    fn name(&self) -> &str {
        "early"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(Self))
    }
}

#[async_trait]
impl LoadBalancer for Early {
    fn groups(&self, _: &Service) -> BTreeSet<GroupKey> {
        [GroupKey("all".into())].into()
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer> {
        let ingress = LoadBalancerIngress { ip: "203.0.113.1".into(), ..LoadBalancerIngress::default() };
        let status = LoadBalancerStatus { ingress: vec![ingress] };
        scope.publish(0, status.clone());
        tokio::time::sleep(Duration::from_secs(45)).await;
        work.iter().map(|_| Ok(Some(status.clone())).into()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_while_the_call_goes_on_for_others() {
    let rig = Rig::new("").await;
    for name in ["first", "second"] {
        rig.create(service(name)).await;
    }
    let _manager = rig.start_with(Arc::new(Early), &[SERVICES]).await;
    rig.pass(MINUTE / 2).await;
    assert!(has_address(&rig.service("first").await.unwrap()));
    assert!(!has_address(&rig.service("second").await.unwrap()));
    rig.until_service("second", "has an address", has_address).await;
    assert_eq!(bodies(&rig, "first").iter().filter(|(_, body)| body.contains("203.0.113.1")).count(), 1);
}
