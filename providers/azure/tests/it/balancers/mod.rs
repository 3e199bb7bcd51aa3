//! Load balancers on a simulated Azure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_cloudsim::azure::{Options, SetSeed};
use ccm_provider::{
    AddressType, CloudProvider, LoadBalancer, LoadBalancerStatus, Node, NodeAddress, NodeRef, ProviderError, Scope,
    Service, ServiceAction, ServiceAnswer, ServiceWork,
};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, GROUP};

mod alone;
mod bad;
mod calls;
mod crash;
mod crowd;
mod handover;
mod inspect;
mod known;
mod life;
mod lives;
mod many;
mod others;
pub(crate) mod pace;
mod recorded;
mod replaced;
mod serving;
mod several;
mod shares;
mod stays;

/// The pools hold addresses of nodes.
pub(crate) const BY_ADDRESS: &str = "loadBalancerBackendPoolConfigurationType: nodeIP\n";

/// A cluster with Services, and a provider as a process creates it.
pub(crate) struct Scene {
    pub(crate) bed: Bed,
    provider: Arc<dyn CloudProvider>,
    pub(crate) nodes: Vec<NodeRef>,
    pub(crate) services: BTreeMap<String, Service>,
    more: String,
}

impl Scene {
    /// A cluster with a uniform scale set.
    pub(crate) async fn new(more: &str, instances: usize) -> Self {
        Self::with(Options::default(), more, instances).await
    }

    pub(crate) async fn with(options: Options, more: &str, instances: usize) -> Self {
        let bed = Bed::start(options);
        let set = bed.uniform("pool", instances);
        let nodes = (0..instances).map(|number| node_of(&set, number, false)).collect();
        Self::of(bed, more, nodes).await
    }

    /// A cluster with a uniform scale set, of two families.
    pub(crate) async fn dual(more: &str, instances: usize) -> Self {
        let bed = Bed::dual(Options::default());
        let seed = SetSeed { name: "pool", instances, zones: &["1"], dual: true, ..SetSeed::default() };
        let set = bed.cloud.world(|world| world.scale_set(&seed));
        let nodes = (0..instances).map(|number| node_of(&set, number, true)).collect();
        Self::of(bed, more, nodes).await
    }

    async fn of(bed: Bed, more: &str, nodes: Vec<NodeRef>) -> Self {
        bed.cluster.set_nodes(nodes.clone());
        let provider = bed.process(&keys(more)).await;
        Self { bed, provider, nodes, services: BTreeMap::new(), more: more.to_owned() }
    }

    pub(crate) async fn restart(&mut self) {
        self.provider = self.bed.process(&keys(&self.more)).await;
    }

    /// A new process with other keys.
    pub(crate) async fn reconfigure(&mut self, more: &str) {
        more.clone_into(&mut self.more);
        self.restart().await;
    }

    pub(crate) fn balancers(&self) -> Arc<dyn LoadBalancer> {
        self.provider.load_balancer().unwrap()
    }

    /// Adds or changes a Service.
    #[allow(clippy::needless_pass_by_value)] // literals at all callers
    pub(crate) fn service(&mut self, name: &str, annotations: &[(&str, &str)], ports: Value) {
        self.spec(name, annotations, json!({"ports": ports}));
    }

    /// The same with more of the spec.
    pub(crate) fn spec(&mut self, name: &str, annotations: &[(&str, &str)], mut spec: Value) {
        let number = self.services.len() + 1;
        let known = self.services.get(name);
        let uid =
            known.map_or_else(|| format!("{number:08}-1111-2222-3333-444444444444"), |it| it.metadata.uid.to_string());
        let status = known.map(|service| service.status.clone()).unwrap_or_default();
        let annotations: BTreeMap<String, String> = annotations
            .iter()
            .map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), (*value).to_owned()))
            .collect();
        let now = jiff::Timestamp::now();
        let meta = json!({"namespace": "default", "name": name, "uid": uid, "annotations": annotations,
            "creationTimestamp": now});
        spec["type"] = json!("LoadBalancer");
        let mut service: Service = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
        service.status = status;
        self.services.insert(name.to_owned(), service);
    }

    pub(crate) fn work(&self, names: &[&str], action: ServiceAction) -> Vec<ServiceWork> {
        let of = |name: &&str| {
            let nodes: &[NodeRef] = if action == ServiceAction::Delete { &[] } else { &self.nodes };
            ServiceWork::new(&self.services[*name], nodes, action)
        };
        names.iter().map(of).collect()
    }

    /// One call for these Services together.
    pub(crate) async fn call(&mut self, names: &[&str], action: ServiceAction) -> Vec<ServiceAnswer> {
        let work = self.work(names, action);
        let answers = self.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
        for (name, answer) in names.iter().zip(&answers) {
            let status = answer.result.as_ref().ok().cloned().flatten().or_else(|| answer.status.clone());
            if let Some(status) = status {
                self.services.get_mut(*name).unwrap().status.load_balancer = status;
            }
            if action == ServiceAction::Delete && answer.result.is_ok() {
                self.services.remove(*name);
            }
        }
        answers
    }

    /// Calls that succeed, until nothing is in progress.
    pub(crate) async fn done(&mut self, names: &[&str], action: ServiceAction) {
        self.settle(names, action).await.unwrap();
    }

    /// Calls until nothing is in progress, or one fails.
    pub(crate) async fn settle(&mut self, names: &[&str], action: ServiceAction) -> Result<(), ProviderError> {
        let mut left: Vec<&str> = names.to_vec();
        for _ in 0..200 {
            let answers = self.call(&left, action).await;
            let mut next = Vec::new();
            for (name, answer) in left.iter().zip(answers) {
                match answer.result {
                    Err(error) if error.is_in_progress() => next.push(*name),
                    Err(error) => return Err(error.wrap(*name)),
                    Ok(_) if answer.again.is_some() => next.push(*name),
                    Ok(_) => {}
                }
            }
            if next.is_empty() {
                return Ok(());
            }
            left = next;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("still in progress: {left:?}");
    }

    pub(crate) async fn ensure(&mut self, names: &[&str]) {
        self.done(names, ServiceAction::Ensure).await;
    }

    pub(crate) async fn delete(&mut self, names: &[&str]) {
        self.done(names, ServiceAction::Delete).await;
    }

    /// The calls since a mark that are not reads, by action.
    pub(crate) fn writes(&self, mark: u64) -> BTreeMap<String, usize> {
        let mut writes = BTreeMap::new();
        for action in self.bed.calls(mark) {
            if action.ends_with(".put") || action.ends_with(".delete") || action.ends_with(".post") {
                *writes.entry(action).or_default() += 1;
            }
        }
        writes
    }

    pub(crate) fn mark(&self) -> u64 {
        self.bed.cloud.ledger(|ledger| ledger.mark())
    }

    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        self.bed.cloud.object(&format!("{GROUP}/Microsoft.Network/{kind}/{name}"))
    }

    pub(crate) fn objects(&self, kind: &str) -> Vec<Value> {
        self.bed.cloud.objects(&format!("Microsoft.Network/{kind}"))
    }

    pub(crate) fn ip(&self, name: &str) -> String {
        address(&self.services[name].status.load_balancer)
    }
}

/// Each call reads, unless the keys say for how long what was read is used.
fn keys(more: &str) -> String {
    let first = if more.contains("CacheTTLInSeconds") { "" } else { "disableAPICallCache: true\n" };
    format!("{first}{more}")
}

pub(crate) fn address(status: &LoadBalancerStatus) -> String {
    status.ingress.first().map(|ingress| ingress.ip.clone()).unwrap_or_default()
}

/// The errors of a call, by the name of the Service.
pub(crate) fn errors(names: &[&str], answers: &[ServiceAnswer]) -> BTreeMap<String, String> {
    let failed = names.iter().zip(answers).filter_map(|(name, answer)| {
        let error = answer.result.as_ref().err()?;
        Some(((*name).to_owned(), error.to_string()))
    });
    failed.collect()
}

pub(crate) fn port(number: u16) -> Value {
    json!([{"port": number, "nodePort": 30000 + number % 2000, "protocol": "TCP"}])
}

/// A node on an instance of a scale set.
pub(crate) fn node_of(set: &str, number: usize, is_dual: bool) -> NodeRef {
    let internal = |text: String| NodeAddress::new(AddressType::InternalIp, text);
    let mut addresses = vec![internal(format!("10.240.0.{}", 4 + number))];
    addresses.extend(is_dual.then(|| internal(format!("fd00:240::{:x}", 4 + number))));
    let name = set.rsplit('/').next().unwrap();
    Node {
        name: format!("{name}00000{number}").into(),
        provider_id: Some(format!("azure://{set}/virtualMachines/{number}").into()),
        addresses: addresses.into(),
        ..Node::default()
    }
    .into()
}

/// A node on a new machine of its own.
pub(crate) fn machine_node(scene: &Scene, name: &str) -> NodeRef {
    let provider_id = Some(format!("azure://{}", scene.bed.machine(name)).into());
    Node { name: name.into(), provider_id, ..Node::default() }.into()
}

/// The items of a list in the properties of an object.
pub(crate) fn items(object: &Value, list: &str) -> Vec<Value> {
    object.pointer(&format!("/properties/{list}")).and_then(Value::as_array).cloned().unwrap_or_default()
}
