//! Load balancers: what a proxy in front of the rack forwards.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    Change, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef, Plan, ProviderError, Risk, Service,
    ServiceAction, ServiceWork, Step, Verb,
};
use serde::{Deserialize, Serialize};

use crate::rack::Rack;

/// `balancers/<name>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Balancer {
    /// Whose it is. A file without our mark is not ours, whatever its name.
    owner: String,
    address: String,
    /// Port of the balancer, port of the hosts.
    ports: Vec<(i32, i32)>,
    hosts: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Balancers(pub(crate) Arc<Rack>);

const KIND: &str = "balancers";

fn owner(cluster: &str, service: &Service) -> String {
    format!("{cluster}/{}", service.metadata.uid)
}

fn status(balancer: &Balancer) -> LoadBalancerStatus {
    let ip = balancer.address.clone();
    LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
}

/// Sorted, so that the order of the nodes makes no difference.
fn hosts(nodes: &[NodeRef]) -> Vec<String> {
    let address =
        |node: &NodeRef| node.addresses.first().map_or_else(|| node.name.to_string(), |a| a.address.to_string());
    let mut hosts: Vec<String> = nodes.iter().map(address).collect();
    hosts.sort();
    hosts
}

impl Balancers {
    /// What is there for a Service; a file of the same name with another owner is an error.
    fn observe(&self, cluster: &str, service: &Service) -> Result<(String, Option<Balancer>), ProviderError> {
        let name = self.name(cluster, service);
        let found = self.0.read::<Balancer>(KIND, &name)?.filter(|balancer| balancer.owner == owner(cluster, service));
        Ok((name, found))
    }

    /// What should be there. Pure, but for the addresses that others have.
    fn desired(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
        now: Option<&Balancer>,
    ) -> Result<Balancer, ProviderError> {
        let address = match now {
            Some(balancer) => balancer.address.clone(),
            None => self.free_address()?,
        };
        let ports = service.spec.ports.iter().map(|port| (port.port, port.node_port)).collect();
        Ok(Balancer { owner: owner(cluster, service), address, ports, hosts: hosts(nodes) })
    }

    fn free_address(&self) -> Result<String, ProviderError> {
        let taken: Vec<String> =
            self.0.list::<Balancer>(KIND)?.into_iter().map(|(_, balancer)| balancer.address).collect();
        let mut all = self.0.addresses.iter().map(ToString::to_string);
        all.find(|address| !taken.contains(address)).ok_or_else(|| {
            ProviderError::unknown(format!("all {} addresses of the configuration are taken; add some", taken.len()))
        })
    }

    /// Writes only what differs.
    fn put(&self, name: &str, now: Option<&Balancer>, wanted: &Balancer) -> Result<(), ProviderError> {
        if now == Some(wanted) { Ok(()) } else { self.0.write(KIND, name, wanted) }
    }
}

#[async_trait]
impl LoadBalancer for Balancers {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(self.observe(cluster, service)?.1.as_ref().map(status))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let _changing = self.0.changing();
        let (name, now) = self.observe(cluster, service)?;
        if now.is_none() && self.0.read::<Balancer>(KIND, &name)?.is_some() {
            return Err(ProviderError::unknown(format!(
                "{KIND}/{name}.json belongs to somebody else; remove or rename it"
            )));
        }
        let wanted = self.desired(cluster, service, nodes, now.as_ref())?;
        self.put(&name, now.as_ref(), &wanted)?;
        Ok(Some(status(&wanted)))
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        let _changing = self.0.changing();
        let (name, now) = self.observe(cluster, service)?;
        let now = now.ok_or_else(|| ProviderError::unknown(format!("there is no {KIND}/{name}.json")))?;
        self.put(&name, Some(&now), &Balancer { hosts: hosts(nodes), ..now.clone() })
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        let _changing = self.0.changing();
        let (name, now) = self.observe(cluster, service)?;
        if now.is_some() { self.0.remove(KIND, &name) } else { Ok(()) }
    }

    /// For `--dry-run`: the same observation and the same decision, without the write.
    async fn plan(&self, cluster: &str, item: &ServiceWork) -> Result<Plan, ProviderError> {
        let service = &item.service;
        let (name, now) = self.observe(cluster, service)?;
        let wanted = match item.action {
            ServiceAction::Delete => None,
            _ => Some(self.desired(cluster, service, &item.nodes, now.as_ref())?),
        };
        let plan = Plan::new(format!("service {}", service.key()));
        let verb = match (&now, &wanted) {
            _ if now == wanted => return Ok(plan),
            (None, _) => Verb::Create,
            (Some(_), Some(_)) => Verb::Update,
            (Some(_), None) => Verb::Delete,
        };
        let text = |balancer: Option<&Balancer>| balancer.map(|b| format!("{} {:?} {:?}", b.address, b.ports, b.hosts));
        let change = Change { field: "forwarding".into(), before: text(now.as_ref()), after: text(wanted.as_ref()) };
        let risk = if verb == Verb::Delete { Risk::Disruptive } else { Risk::None };
        let reason = "the Service says so".into();
        Ok(plan.with(Step { verb, kind: "LoadBalancer".into(), id: name, changes: vec![change], reason, risk }))
    }
}
