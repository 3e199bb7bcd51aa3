//! The same load balancers with nothing but ensure, update and delete: enough for a cloud whose Services share no objects.
//! `ccm plan` then shows only whether a load balancer exists.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{LoadBalancerIngress, LoadBalancerStatus, NodeRef, ProviderError, Service, SingleLoadBalancer};

use crate::balancers::{Balancer, KIND, hosts, owner, ports};
use crate::rack::Rack;

#[derive(Debug)]
pub(crate) struct Simple(pub(crate) Arc<Rack>);

fn status(balancer: &Balancer) -> LoadBalancerStatus {
    let ip = balancer.address.clone();
    LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
}

impl Simple {
    /// The load balancer of this Service, found by its owner: not by its name only.
    fn find(&self, cluster: &str, service: &Service) -> Result<Option<Balancer>, ProviderError> {
        let found = self.0.read::<Balancer>(KIND, &service.default_load_balancer_name())?;
        Ok(found.filter(|found| found.owner == owner(cluster, service)))
    }

    /// Writes nothing if nothing has changed: every Service is ensured at each start.
    fn put(&self, service: &Service, before: Option<&Balancer>, after: &Balancer) -> Result<(), ProviderError> {
        if before == Some(after) { Ok(()) } else { self.0.write(KIND, &service.default_load_balancer_name(), after) }
    }

    fn free_address(&self) -> Result<String, ProviderError> {
        let taken = self.0.list::<Balancer>(KIND)?;
        let mut all = self.0.addresses.iter().map(ToString::to_string);
        all.find(|address| taken.iter().all(|(_, balancer)| balancer.address != *address))
            .ok_or_else(|| ProviderError::unknown("all addresses of the configuration are taken; add some"))
    }
}

#[async_trait]
impl SingleLoadBalancer for Simple {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(self.find(cluster, service)?.as_ref().map(status))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let ports = ports(service)?;
        let _changing = self.0.changing();
        let (name, owner) = (service.default_load_balancer_name(), owner(cluster, service));
        let before = self.0.read::<Balancer>(KIND, &name)?;
        if let Some(other) = before.as_ref().filter(|before| before.owner != owner) {
            let text = format!("{KIND}/{name}.json belongs to {}; remove or rename it", other.owner);
            return Err(ProviderError::unknown(text));
        }
        let address = before.as_ref().map_or_else(|| self.free_address(), |before| Ok(before.address.clone()))?;
        let after = Balancer { owner, address, ports, hosts: hosts(nodes) };
        self.put(service, before.as_ref(), &after)?;
        Ok(Some(status(&after)))
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        let _changing = self.0.changing();
        let missing = || ProviderError::unknown(format!("there is no load balancer for {}", service.key()));
        let before = self.find(cluster, service)?.ok_or_else(missing)?;
        self.put(service, Some(&before), &Balancer { hosts: hosts(nodes), ..before.clone() })
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        let _changing = self.0.changing();
        match self.find(cluster, service)? {
            Some(_) => self.0.remove(KIND, &service.default_load_balancer_name()),
            None => Ok(()),
        }
    }
}
