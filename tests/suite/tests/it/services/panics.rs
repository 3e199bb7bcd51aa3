//! A provider that panics for one Service of a group.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, GroupKey, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, Node, ProviderError, Scope,
    Service, ServiceAction, ServiceAnswer, ServiceWork,
};
use parking_lot::Mutex;

use super::*;

/// All Services are one group. The method of this name panics for the Service `x`.
#[derive(Clone)]
struct Fragile {
    place: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Fragile {
    fn at(&self, place: &str, service: &Service) {
        assert!(self.place != place || &*service.metadata.name != "x", "{place} of x");
    }

    fn calls(&self, call: &str) -> usize {
        self.calls.lock().iter().filter(|made| *made == call).count()
    }
}

impl CloudProvider for Fragile {
    fn name(&self) -> &str {
        "fragile"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl LoadBalancer for Fragile {
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.at("groups", service);
        if self.calls("Ensure x") > 0 {
            self.at("groups after the call", service);
        }
        [GroupKey("all".into())].into()
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.at("finalizers", service);
        Vec::new()
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.at("backend", service);
        Some(node.provider_id_or_empty().into())
    }

    async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.at("get", service);
        Ok(Some(LoadBalancerStatus::default()))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        work.iter().for_each(|item| self.at("reconcile", &item.service));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answer = |item: &ServiceWork| {
            self.calls.lock().push(format!("{:?} {}", item.action, item.service.metadata.name));
            let ingress = vec![LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }];
            Ok(Some(LoadBalancerStatus { ingress }).filter(|_| item.action == ServiceAction::Ensure)).into()
        };
        work.iter().map(answer).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_for_one_service_fails_only_that_one() {
    for place in ["groups", "groups after the call", "finalizers", "backend", "reconcile"] {
        let (rig, cloud) = (Rig::new("").await, Fragile { place, calls: Arc::default() });
        add_node(&rig, "n").await;
        for name in ["w", "x", "y", "z"] {
            rig.create(service(name)).await;
        }
        let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
        rig.pass(2 * MINUTE).await;
        for name in ["w", "y", "z"] {
            assert!(has_address(&rig.service(name).await.unwrap()), "{place}: {name} has no address");
            assert_eq!(cloud.calls(&format!("Ensure {name}")), 1, "{place}: {:?}", cloud.calls);
        }
        if place != "groups" {
            rig.until_event("x", "SyncLoadBalancerFailed").await;
        }
        // Hosts follow the nodes, too.
        add_node(&rig, "m").await;
        rig.until(MINUTE, place, async |_| (cloud.calls("UpdateHosts y") == 1).then_some(())).await;
        rig.delete("services", "default", "y").await;
        rig.until(MINUTE, place, async |rig| rig.service("y").await.is_none().then_some(())).await;
    }
}
