//! Load balancers on a simulated Azure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_cloudsim::azure::Options;
use ccm_provider::{
    AddressType, CloudProvider, LoadBalancer, LoadBalancerStatus, Node, NodeAddress, NodeRef, Scope, Service,
    ServiceAction, ServiceAnswer, ServiceWork,
};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, GROUP};

mod alone;
mod inspect;
mod life;
mod many;
mod recorded;
mod replaced;

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
        let nodes = (0..instances).map(|number| node_of(&set, number)).collect();
        Self::of(bed, more, nodes).await
    }

    async fn of(bed: Bed, more: &str, nodes: Vec<NodeRef>) -> Self {
        bed.cluster.set_nodes(nodes.clone());
        let provider = bed.process(more).await;
        Self { bed, provider, nodes, services: BTreeMap::new(), more: more.to_owned() }
    }

    pub(crate) async fn restart(&mut self) {
        self.provider = self.bed.process(&self.more).await;
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
        let number = self.services.len() + 1;
        let known = self.services.get(name);
        let uid =
            known.map_or_else(|| format!("{number:08}-1111-2222-3333-444444444444"), |it| it.metadata.uid.to_string());
        let status = known.map(|service| service.status.clone()).unwrap_or_default();
        let annotations: BTreeMap<String, String> = annotations
            .iter()
            .map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), (*value).to_owned()))
            .collect();
        let meta = json!({"namespace": "default", "name": name, "uid": uid, "annotations": annotations});
        let spec = json!({"type": "LoadBalancer", "ports": ports});
        let mut service: Service = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
        service.status = status;
        self.services.insert(name.to_owned(), service);
    }

    /// One call for these Services together.
    pub(crate) async fn call(&mut self, names: &[&str], action: ServiceAction) -> Vec<ServiceAnswer> {
        let of = |name: &&str| {
            let nodes: &[NodeRef] = if action == ServiceAction::Delete { &[] } else { &self.nodes };
            ServiceWork::new(&self.services[*name], nodes, action)
        };
        let work: Vec<ServiceWork> = names.iter().map(of).collect();
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
        let mut left: Vec<&str> = names.to_vec();
        for _ in 0..200 {
            let answers = self.call(&left, action).await;
            let mut next = Vec::new();
            for (name, answer) in left.iter().zip(answers) {
                match answer.result {
                    Err(error) if error.is_in_progress() => next.push(*name),
                    Err(error) => panic!("{name}: {error}"),
                    Ok(_) if answer.again.is_some() => next.push(*name),
                    Ok(_) => {}
                }
            }
            if next.is_empty() {
                return;
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

pub(crate) fn address(status: &LoadBalancerStatus) -> String {
    status.ingress.first().map(|ingress| ingress.ip.clone()).unwrap_or_default()
}

pub(crate) fn port(number: u16) -> Value {
    json!([{"port": number, "nodePort": 30000 + number % 2000, "protocol": "TCP"}])
}

fn node_of(set: &str, number: usize) -> NodeRef {
    Node {
        name: format!("pool00000{number}").into(),
        provider_id: Some(format!("azure://{set}/virtualMachines/{number}").into()),
        addresses: [NodeAddress::new(AddressType::InternalIp, format!("10.240.0.{}", 4 + number))].into(),
        ..Node::default()
    }
    .into()
}

/// The items of a list in the properties of an object.
pub(crate) fn items(object: &Value, list: &str) -> Vec<Value> {
    object.pointer(&format!("/properties/{list}")).and_then(Value::as_array).cloned().unwrap_or_default()
}
