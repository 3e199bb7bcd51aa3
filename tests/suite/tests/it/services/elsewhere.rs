//! A Service that another controller takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, LoadBalancer, LoadBalancerStatus, ProviderError, Scope, Service, ServiceAnswer, ServiceWork,
};

use super::*;

/// The finalizer of a load balancer of the former kind.
const FORMER: &str = "example.com/former";

/// Has deleted the load balancer of the former kind. The next one is another controller's.
#[derive(Clone, Default)]
struct HandsOver(Arc<AtomicUsize>);

impl CloudProvider for HandsOver {
    fn name(&self) -> &str {
        "hands-over"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl LoadBalancer for HandsOver {
    fn finalizers(&self, _: &Service) -> Vec<(&'static str, bool)> {
        vec![(FORMER, false)]
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn observe(&self, _: &str, _: &ServiceWork) -> Result<Value, ProviderError> {
        Ok(Value::Null)
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        work.iter().map(|_| Err(ProviderError::ImplementedElsewhere).into()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_another_controller_takes_over_loses_the_finalizer_of_its_former_kind() {
    let (rig, cloud) = (Rig::new("").await, HandsOver::default());
    add_node(&rig, "n").await;
    rig.create(service("s").with(|service| service["metadata"]["finalizers"] = json!([FINALIZER, FORMER]))).await;
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    rig.pass(20 * MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap().finalizers(), [FINALIZER]);
    assert_eq!(cloud.0.load(Ordering::Relaxed), 1, "no retry");
    assert_eq!(reasons(&rig, "s").await, ["EnsuringLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn the_hosts_of_another_controllers_load_balancer_are_not_guarded() {
    let (rig, cloud) = (Rig::new("").await, HandsOver::default());
    let address = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    rig.create(service("s").with(|service| service["metadata"]["finalizers"] = json!([FINALIZER]))).await;
    rig.patch("services", "default", "s", "status", address).await;
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    rig.pass(20 * MINUTE).await;
    assert_eq!(cloud.0.load(Ordering::Relaxed), 1, "it is asked although there is no node");
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
    // A node comes and goes, while its instance exists.
    add_node(&rig, "n").await;
    rig.pass(MINUTE).await;
    rig.delete("nodes", "", "n").await;
    rig.pass(20 * MINUTE).await;
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
}

async fn set_ingress(rig: &Rig, ingress: Value) {
    rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": {"ingress": ingress}}})).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_controller_writes_while_it_takes_the_balancer_over_stays() {
    // The change is at work, or waits for a host update.
    for held in ["EnsureLoadBalancer", "UpdateLoadBalancer"] {
        let (rig, _manager) = balanced("").await;
        rig.pass(MINUTE).await;
        let release = rig.cloud.hold("gate");
        match held {
            "EnsureLoadBalancer" => {
                rig.cloud.write("faults: [{call: EnsureLoadBalancer, kind: ImplementedElsewhere, hold: gate}]");
            }
            _ => {
                rig.cloud.write(
                    "faults: [{call: UpdateLoadBalancer, hold: gate}, \
                     {call: EnsureLoadBalancer, kind: ImplementedElsewhere}]",
                );
                add_node(&rig, "m").await;
                rig.until_calls("UpdateLoadBalancer", 1).await;
            }
        }
        rig.patch_service("s", json!({"metadata": {"annotations": {"a": "b"}}})).await;
        rig.pass(Duration::from_secs(1)).await;
        set_ingress(&rig, json!([{"ip": "192.0.2.66"}])).await;
        rig.pass(Duration::from_secs(10)).await;
        assert_eq!(rig.service("s").await.unwrap().ingress(), ["192.0.2.66"], "{held}");
        release();
        rig.pass(20 * MINUTE).await;
        assert_eq!(rig.service("s").await.unwrap().ingress(), ["192.0.2.66"], "{held}");
        assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 2, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_while_a_change_is_held_up_is_restored_and_a_foreign_one_once_it_is_refused() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    let release = rig.cloud.hold("gate");
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, kind: Invalid, error: no such certificate, hold: gate}]");
    rig.patch_service("s", json!({"metadata": {"annotations": {"certificate": "none"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    set_ingress(&rig, json!(null)).await;
    rig.until_service("s", "has its address again", |s| s.ingress() == ["203.0.113.1"]).await;
    set_ingress(&rig, json!([{"ip": "192.0.2.66"}])).await;
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), ["192.0.2.66"]);
    release();
    rig.pass(Duration::from_secs(4)).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), ["203.0.113.1"]);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_balancer_that_is_deleted_stays_empty_although_its_service_asks_for_one_again() {
    let (rig, _manager) = balanced("faults: [{call: EnsureLoadBalancerDeleted, hold: gate}]").await;
    rig.pass(MINUTE).await;
    let release = rig.cloud.hold("gate");
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    rig.patch_service("s", json!({"spec": {"type": "LoadBalancer"}})).await;
    set_ingress(&rig, json!(null)).await;
    // The API server may have emptied it with the first change. Now any change shows that it is empty.
    rig.patch_service("s", json!({"metadata": {"labels": {"a": "b"}}})).await;
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), [""; 0]);
    release();
    rig.until_service("s", "has an address", has_address).await;
}
