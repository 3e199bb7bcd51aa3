//! Load balancers that depend on EndpointSlices and on the labels of a namespace.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    CloudProvider, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, ProviderError, Related, Scope, Service,
    ServiceAction, ServiceAnswer, ServiceWork,
};
use ccm_test_suite::Make;
use parking_lot::Mutex;

use super::*;

/// Records the hosts of each call, and a label of the namespace.
#[derive(Clone, Default)]
pub(crate) struct Local(Arc<Mutex<Vec<String>>>);

impl Local {
    fn calls(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl CloudProvider for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl LoadBalancer for Local {
    fn related(&self) -> Related {
        Related { endpoint_slices: true, namespaces: true }
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        service.requests_only_local_traffic()
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(Some(LoadBalancerStatus::default()))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        let call = |item: &ServiceWork| {
            let hosts: Vec<&str> = item.nodes.iter().map(|node| node.name.as_str()).collect();
            let tier = item.namespace.as_ref().and_then(|labels| labels.get("tier")).unwrap_or("none");
            self.0.lock().push(format!("{} {:?} {tier}: {}", item.service.metadata.name, item.action, hosts.join(" ")));
            let ingress = vec![LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }];
            Ok(Some(LoadBalancerStatus { ingress }).filter(|_| item.action == ServiceAction::Ensure)).into()
        };
        work.iter().map(call).collect()
    }
}

fn slice(name: &str, service: &str, endpoints: &[(&str, bool)]) -> Make {
    let endpoint = |(node, ready): &(&str, bool)| json!({"addresses": ["10.1.0.1"], "nodeName": node, "conditions": {"ready": ready}});
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let labels = json!({"kubernetes.io/service-name": service});
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "metadata": {"name": name, "namespace": "default", "labels": labels},
    });
    Make { resource: "endpointslices", object }
}

/// Nodes a, b and c, and a Service with `externalTrafficPolicy: Local`.
async fn local(rig: &Rig) {
    for name in ["a", "b", "c"] {
        add_node(rig, name).await;
    }
    rig.create(service("s").with(|service| service["spec"]["externalTrafficPolicy"] = "Local".into())).await;
}

async fn until_last(rig: &Rig, cloud: &Local, call: &str) {
    let is_last = async |_: &Rig| (cloud.calls().last()? == call).then_some(());
    rig.until(MINUTE, &format!("the last call is {call:?}"), is_last).await;
}

fn endpoints(endpoints: &[(&str, bool)]) -> Value {
    json!({"endpoints": slice("", "", endpoints).object["endpoints"]})
}

/// Starts a manager, and moves the endpoints of `s` until none remains.
pub(crate) async fn hosts_follow_endpoints(rig: &Rig, args: &[&str]) -> (Local, Running) {
    let cloud = Local::default();
    local(rig).await;
    rig.patch("namespaces", "", "default", "", json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    rig.create(slice("s-1", "s", &[("a", true), ("b", false)])).await;
    let manager = rig.start_with(Arc::new(cloud.clone()), &[&[SERVICES], args].concat()).await;
    rig.until_service("s", "has an address", has_address).await;
    assert_eq!(cloud.calls(), ["s Ensure gold: a"]);
    rig.patch("endpointslices", "default", "s-1", "", endpoints(&[("a", true), ("b", true)])).await;
    until_last(rig, &cloud, "s UpdateHosts gold: a b").await;
    // The endpoints of a Service may be in several slices.
    rig.create(slice("s-2", "s", &[("c", true)])).await;
    until_last(rig, &cloud, "s UpdateHosts gold: a b c").await;
    // The nodes exist, so a Service may lose all of its hosts.
    rig.delete("endpointslices", "default", "s-1").await;
    rig.delete("endpointslices", "default", "s-2").await;
    until_last(rig, &cloud, "s UpdateHosts gold: ").await;
    (cloud, manager)
}

#[tokio::test(start_paused = true)]
async fn the_hosts_of_a_local_service_are_the_nodes_of_its_ready_endpoints() {
    let rig = Rig::new("").await;
    let (cloud, _manager) = hosts_follow_endpoints(&rig, &[]).await;
    // The hosts of another Service are all nodes, wherever its endpoints are.
    rig.create(slice("t-1", "t", &[("a", true)])).await;
    rig.create(service("t")).await;
    until_last(&rig, &cloud, "t Ensure gold: a b c").await;
    let before = cloud.calls().len();
    rig.patch("endpointslices", "default", "t-1", "", endpoints(&[("b", true)])).await;
    rig.create(slice("other", "unknown", &[("a", true)])).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls().len(), before);
}

#[tokio::test(start_paused = true)]
async fn only_services_that_need_endpoints_wait_until_these_are_listed() {
    let rig = Rig::new("").await;
    let cloud = Local::default();
    local(&rig).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    rig.patch("services", "default", "s", "status", status).await;
    rig.create(service("t")).await;
    rig.create(slice("s-1", "s", &[("b", true)])).await;
    for verb in ["list", "watch"] {
        rig.faults().add(Fault::status(403).on(Match::on(verb, "endpointslices")));
    }
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    until_last(&rig, &cloud, "t Ensure none: a b c").await;
    add_node(&rig, "d").await;
    until_last(&rig, &cloud, "t UpdateHosts none: a b c d").await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls().len(), 2, "the members of s stay: {:?}", cloud.calls());
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    assert!(event.contains("EndpointSlice"), "{event}");
    rig.faults().clear();
    until_last(&rig, &cloud, "s Ensure none: b").await;
}
