//! Load balancers with different nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    Aspects, CloudProvider, InstancesV2, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, Lookup, Node, NodeRef,
    Plan, ProviderError, Risk, Scope, Service, ServiceAction, ServiceAnswer, ServiceWork, Step, Verb,
};
use parking_lot::Mutex;

use super::*;

/// The hosts of a Service are the nodes with its label `pool`; all nodes, if it has none. The instances of pool `a` are
/// never found.
#[derive(Clone, Default)]
struct Pools {
    hosts: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    calls: Arc<Mutex<Vec<String>>>,
    lookups: Arc<Mutex<Vec<usize>>>,
}

impl CloudProvider for Pools {
    fn name(&self) -> &str {
        "fake"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Pools {
    async fn lookup(&self, nodes: &[NodeRef], _: Aspects) -> Vec<Lookup> {
        self.lookups.lock().push(nodes.len());
        if nodes.iter().any(|node| node.name.starts_with('a')) {
            std::future::pending::<()>().await;
        }
        nodes.iter().map(|_| Lookup::Unknown(ProviderError::unknown("not now"))).collect()
    }
}

#[async_trait]
impl LoadBalancer for Pools {
    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        let pool = service.metadata.annotations.get("pool").map(String::as_str);
        (pool.is_none() || node.labels.get("pool") == pool).then(|| node.provider_id_or_empty().into())
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        let mut service = service.clone();
        service.metadata.annotations.remove("pool")?;
        Some(service)
    }

    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(Some(LoadBalancerStatus::default()))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        let call = |item: &ServiceWork| {
            let hosts: Vec<&str> = item.nodes.iter().map(|node| node.name.as_str()).collect();
            let call = format!("{} {:?}: {}", item.service.metadata.name, item.action, hosts.join(" "));
            self.calls.lock().push(call);
            self.hosts
                .lock()
                .insert(item.service.metadata.name.to_string(), hosts.into_iter().map(str::to_owned).collect());
            let ingress = vec![LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }];
            Ok(Some(LoadBalancerStatus { ingress }).filter(|_| item.action == ServiceAction::Ensure)).into()
        };
        work.iter().map(call).collect()
    }

    async fn observe(&self, _: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        Ok(json!(self.hosts.lock().get(&*item.service.metadata.name)))
    }

    fn plan_observed(&self, _: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        let wanted = item.nodes.iter().filter(|node| self.backend(&item.service, node).is_some());
        let wanted: Vec<&str> = wanted.map(|node| node.name.as_str()).collect();
        let mut plan = Plan::new("pool");
        let hosts = observed.as_array().unwrap().iter().map(|host| host.as_str().unwrap());
        plan.steps = hosts
            .filter(|host| !wanted.contains(host))
            .map(|host| Step {
                verb: Verb::Detach,
                kind: "Host".into(),
                id: host.into(),
                changes: Vec::new(),
                reason: "it is no host".into(),
                risk: Risk::None,
            })
            .collect();
        Ok(plan)
    }
}

async fn add(rig: &Rig, name: &str, pool: &str) {
    rig.create(node(name).provider_id(&format!("fake://{name}")).label("pool", pool)).await;
}

/// Services with these names and pools, each with its address.
async fn pools(of: &[(&str, &str)], nodes: &[(&str, &str)]) -> (Rig, Pools, Running) {
    let (rig, cloud) = (Rig::new("").await, Pools::default());
    for (name, pool) in nodes {
        add(&rig, name, pool).await;
    }
    for (name, pool) in of {
        rig.create(service(name).annotation("pool", pool)).await;
    }
    let manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    for (name, _) in of {
        rig.until_service(name, "has an address", has_address).await;
    }
    cloud.calls.lock().clear();
    (rig, cloud, manager)
}

async fn until_called(rig: &Rig, cloud: &Pools, limit: Duration, call: &str) {
    rig.until(limit, call, async |_| cloud.calls.lock().iter().any(|made| made == call).then_some(())).await;
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_lookup_for_one_balancer_that_hangs_holds_up_no_host_update_of_another() {
    let (rig, cloud, _manager) = pools(&[("s", "a"), ("t", "b")], &[("a1", "a"), ("b1", "b")]).await;
    rig.delete("nodes", "", "a1").await;
    add(&rig, "b2", "b").await;
    until_called(&rig, &cloud, SOON, "t UpdateHosts: b1 b2").await;
    // Nor one of a later pass.
    rig.pass(SOON).await;
    add(&rig, "b3", "b").await;
    until_called(&rig, &cloud, SOON, "t UpdateHosts: b1 b2 b3").await;
    // A host that appears ends the question.
    add(&rig, "a2", "a").await;
    until_called(&rig, &cloud, SOON, "s UpdateHosts: a2").await;
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
}

#[tokio::test(start_paused = true)]
async fn balancers_that_would_lose_the_same_hosts_are_one_lookup() {
    let services: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
    let services: Vec<(&str, &str)> = services.iter().map(|name| (&**name, "b")).collect();
    let (rig, cloud, _manager) = pools(&services, &[("b1", "b"), ("b2", "b")]).await;
    cloud.lookups.lock().clear();
    rig.delete("nodes", "", "b1").await;
    rig.delete("nodes", "", "b2").await;
    rig.until_event("s7", "LoadBalancerHostsKept").await;
    assert_eq!(*cloud.lookups.lock(), [2]);
    assert!(!cloud.calls.lock().iter().any(|call| call.ends_with(": ")), "{:?}", cloud.calls);
}

#[tokio::test(start_paused = true)]
async fn hosts_follow_labels_of_nodes() {
    let (rig, cloud, _manager) = pools(&[("s", "a"), ("t", "b")], &[("n1", "a"), ("n2", "b"), ("n3", "b")]).await;
    rig.patch_node("n3", json!({"metadata": {"labels": {"pool": "a"}}})).await;
    until_called(&rig, &cloud, SOON, "s UpdateHosts: n1 n3").await;
    until_called(&rig, &cloud, SOON, "t UpdateHosts: n2").await;
    // Labels that no load balancer uses, and a node of no pool.
    rig.patch_node("n2", json!({"metadata": {"labels": {"color": "red"}}})).await;
    add(&rig, "n4", "c").await;
    rig.pass(SOON).await;
    rig.patch_service("t", json!({"metadata": {"annotations": {"pool": "c"}}})).await;
    until_called(&rig, &cloud, SOON, "t Ensure: n4").await;
    add(&rig, "n5", "c").await;
    until_called(&rig, &cloud, SOON, "t UpdateHosts: n4 n5").await;
    let mut calls = cloud.calls.lock().clone();
    calls.sort();
    let wanted = ["s UpdateHosts: n1 n3", "t Ensure: n4", "t UpdateHosts: n2", "t UpdateHosts: n4 n5"];
    assert_eq!(calls, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_restart_empties_a_balancer_whose_service_has_left_out_all_nodes_meanwhile() {
    let (rig, cloud, manager) = pools(&[("s", "b")], &[("b1", "b"), ("c1", "c")]).await;
    manager.stop().await.unwrap();
    rig.patch_service("s", json!({"metadata": {"annotations": {"pool": "none"}}})).await;
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    until_called(&rig, &cloud, SOON, "s Ensure: ").await;
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_empties_no_balancer_with_a_host_that_is_not_in_the_cluster() {
    let (rig, cloud, manager) = pools(&[("s", "b")], &[("b1", "b"), ("c1", "c")]).await;
    manager.stop().await.unwrap();
    rig.delete("nodes", "", "b1").await;
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    let event = rig.until_event("s", "LoadBalancerHostsKept").await;
    assert!(
        event.contains("the load balancer has hosts that are not nodes of the cluster (detach Host b1)"),
        "{event}"
    );
    rig.pass(10 * MINUTE).await;
    assert_eq!(*cloud.calls.lock(), [""; 0]);
}

/// Its labels come with its initialization.
#[tokio::test(start_paused = true)]
async fn a_restart_empties_no_balancer_with_a_host_whose_node_is_registered_again() {
    let (rig, cloud, manager) = pools(&[("s", "b")], &[("b1", "b"), ("c1", "c")]).await;
    manager.stop().await.unwrap();
    rig.delete("nodes", "", "b1").await;
    rig.create(node("b1").provider_id("fake://b1").uninitialized()).await;
    let _manager = rig.start_with(Arc::new(cloud.clone()), &[SERVICES]).await;
    rig.until_event("s", "LoadBalancerHostsKept").await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(*cloud.calls.lock(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_node_is_registered_again_stays_until_the_node_has_its_labels() {
    let (rig, cloud, _manager) = pools(&[("s", "b")], &[("b1", "b"), ("c1", "c")]).await;
    rig.delete("nodes", "", "b1").await;
    rig.create(node("b1").provider_id("fake://b1").uninitialized()).await;
    rig.until_event("s", "LoadBalancerHostsKept").await;
    assert_eq!(*cloud.calls.lock(), [""; 0]);
}
