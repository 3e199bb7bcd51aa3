//! Load balancers: a table.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef, PortStatus, ProviderError, Service,
};
use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Ensured, Got};
use crate::cloud::Cloud;
use crate::config::Config;
use crate::faults::Subject;
use crate::method::Method;
use crate::state::{Balancer, Tables};

#[cfg(test)]
mod tests;

/// [`LoadBalancer`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeLoadBalancer(pub(crate) Arc<Cloud>);

impl FakeLoadBalancer {
    async fn call<T: Answer>(
        &self,
        method: Method,
        cluster: &str,
        service: &Service,
        nodes: Option<&[String]>,
        act: impl FnOnce(&Config, &mut Tables, &str) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let key = service.key().to_string();
        let mut args = json!({
            "cluster": cluster,
            "service": key,
            "uid": service.metadata.uid,
            "name": self.name(cluster, service),
        });
        if let (Some(args), Some(nodes)) = (args.as_object_mut(), nodes) {
            args.insert("nodes".to_owned(), Json::from(nodes.to_vec()));
        }
        let subject = Subject { service: Some(&key), ..Subject::default() };
        self.0.call(method, subject, args, |config, tables| act(config, tables, &key)).await
    }
}

fn names_of(nodes: &[NodeRef]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

#[async_trait]
impl LoadBalancer for FakeLoadBalancer {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let act = |_: &Config, tables: &mut Tables, key: &str| {
            Ok(Got(tables.balancers.get(key).map(|b| LoadBalancerStatus { ingress: b.ingress.clone() })))
        };
        self.call(Method::GetLoadBalancer, cluster, service, None, act).await.map(|Got(status)| status)
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let names = names_of(nodes);
        let act = |config: &Config, tables: &mut Tables, key: &str| {
            let ingress = decide(config, tables, key, service)?;
            let balancer = Balancer {
                name: self.name(cluster, service),
                ingress: ingress.clone().unwrap_or_default(),
                nodes: names.clone(),
            };
            tables.balancers.insert(key.to_owned(), balancer);
            Ok(Ensured(ingress.map(|ingress| LoadBalancerStatus { ingress })))
        };
        let answer = self.call(Method::EnsureLoadBalancer, cluster, service, Some(&names), act).await;
        answer.map(|Ensured(status)| status)
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        let names = names_of(nodes);
        let act = |_: &Config, tables: &mut Tables, key: &str| {
            let balancer = tables.balancers.get_mut(key);
            let balancer = balancer.ok_or_else(|| ProviderError::unknown("load balancer not found"))?;
            balancer.nodes.clone_from(&names);
            Ok(())
        };
        self.call(Method::UpdateLoadBalancer, cluster, service, Some(&names), act).await
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        let act = |_: &Config, tables: &mut Tables, key: &str| {
            tables.balancers.remove(key);
            Ok(())
        };
        self.call(Method::EnsureLoadBalancerDeleted, cluster, service, None, act).await
    }
}

/// The ingress list of a balancer; `None` for "no status at all".
fn decide(
    config: &Config,
    tables: &Tables,
    key: &str,
    service: &Service,
) -> Result<Option<Vec<LoadBalancerIngress>>, ProviderError> {
    let settings = &config.load_balancers;
    let rule = settings.statuses.iter().find(|rule| rule.service.as_ref().is_none_or(|glob| glob.matches(key)));
    if let Some(rule) = rule {
        return Ok((!rule.missing).then(|| rule.ingress.clone()));
    }
    let own = tables.balancers.get(key).into_iter().flat_map(|balancer| &balancer.ingress);
    let ip = match own.map(|ingress| &ingress.ip).find(|ip| !ip.is_empty()) {
        Some(ip) => ip.clone(),
        None => free_address(settings.pool, tables)?.to_string(),
    };
    let port = |port: &ccm_provider::ServicePort| PortStatus {
        port: port.port,
        protocol: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
        error: None,
    };
    Ok(Some(vec![LoadBalancerIngress {
        ip,
        hostname: String::new(),
        ip_mode: settings.ip_mode.clone(),
        ports: if settings.ports { service.spec.ports.iter().map(port).collect() } else { Vec::new() },
    }]))
}

/// The lowest host address of the pool that no balancer has.
fn free_address(pool: IpNet, tables: &Tables) -> Result<IpAddr, ProviderError> {
    let ingress = tables.balancers.values().flat_map(|balancer| &balancer.ingress);
    let taken: BTreeSet<IpAddr> = ingress.filter_map(|ingress| ingress.ip.parse().ok()).collect();
    // Of IPv6 the first address is for routers; ipnet counts it as a host.
    let not_a_host = match pool {
        IpNet::V6(net) if net.prefix_len() < 127 => Some(IpAddr::V6(net.network())),
        _ => None,
    };
    let free = pool.hosts().find(|ip| Some(*ip) != not_a_host && !taken.contains(ip));
    free.ok_or_else(|| ProviderError::unknown("address pool exhausted"))
}
