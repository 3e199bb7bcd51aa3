//! Load balancers: a table.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef, Plan, PortStatus, ProviderError, Scope, Service,
    ServiceAnswer, ServiceWork, SingleLoadBalancer, reconcile_one_by_one,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Ensured, Got};
use crate::cloud::Cloud;
use crate::config::Config;
use crate::faults::Subject;
use crate::method::Method;
use crate::state::{Balancer, Tables};

mod plan;

#[cfg(test)]
mod tests;

use plan::plan;
pub(crate) use plan::{Observed, Replayed, deletion, words};

/// [`LoadBalancer`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeLoadBalancer(pub(crate) Arc<Cloud>);

/// The subject of a call, as in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) cluster: &'a str,
    /// `namespace/name` of the Service.
    pub(crate) key: &'a str,
    pub(crate) uid: &'a str,
    /// The name of the load balancer.
    pub(crate) name: &'a str,
}

impl FakeLoadBalancer {
    async fn call<T: Answer>(
        &self,
        method: Method,
        cluster: &str,
        service: &Service,
        nodes: Option<&[String]>,
        act: impl FnOnce(&Config, &mut Tables, &str) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let (key, name) = (service.key().to_string(), SingleLoadBalancer::name(self, cluster, service));
        let about = About { cluster, key: &key, uid: &service.metadata.uid, name: &name };
        self.call_about(method, about, nodes, act).await
    }

    async fn call_about<T: Answer>(
        &self,
        method: Method,
        about: About<'_>,
        nodes: Option<&[String]>,
        act: impl FnOnce(&Config, &mut Tables, &str) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let About { cluster, key, uid, name } = about;
        let mut args = json!({"cluster": cluster, "service": key, "uid": uid, "name": name});
        if let (Some(args), Some(nodes)) = (args.as_object_mut(), nodes) {
            args.insert("nodes".to_owned(), Json::from(nodes.to_vec()));
        }
        let subject = Subject { service: Some(key), ..Subject::default() };
        self.0.call(method, subject, args, |config, tables| act(config, tables, key)).await
    }

    /// The data that a plan for the Service needs: one `GetLoadBalancer`.
    pub(crate) async fn look(&self, cluster: &str, service: &Service) -> Result<Observed, ProviderError> {
        let (key, name) = (service.key().to_string(), SingleLoadBalancer::name(self, cluster, service));
        self.look_at(About { cluster, key: &key, uid: &service.metadata.uid, name: &name }).await
    }

    /// The same, for a Service that may not exist.
    pub(crate) async fn look_at(&self, about: About<'_>) -> Result<Observed, ProviderError> {
        let mut seen = None;
        let act = |config: &Config, tables: &mut Tables, key: &str| {
            let balancer = tables.balancers.get(key).cloned();
            let answer = Got(balancer.as_ref().map(status_of));
            seen = Some(Observed { balancer, offer: Offer::of(config, tables, key, None) });
            Ok(answer)
        };
        let answer = self.call_about(Method::GetLoadBalancer, about, None, act).await?;
        let seen = seen.ok_or_else(|| ProviderError::bug("the table was not looked at"))?;
        // A fault may have replaced the answer.
        let balancer = answer.0.map(|status| Balancer { ingress: status.ingress, ..seen.balancer.unwrap_or_default() });
        Ok(Observed { balancer, ..seen })
    }

    /// One `EnsureLoadBalancerDeleted`.
    pub(crate) async fn remove(&self, about: About<'_>) -> Result<(), ProviderError> {
        let act = |_: &Config, tables: &mut Tables, key: &str| {
            tables.balancers.remove(key);
            Ok(())
        };
        self.call_about(Method::EnsureLoadBalancerDeleted, about, None, act).await
    }
}

fn status_of(balancer: &Balancer) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: balancer.ingress.clone() }
}

fn names_of(nodes: &[NodeRef]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

#[async_trait]
impl SingleLoadBalancer for FakeLoadBalancer {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let act = |_: &Config, tables: &mut Tables, key: &str| Ok(Got(tables.balancers.get(key).map(status_of)));
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
                name: SingleLoadBalancer::name(self, cluster, service),
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
        let (key, name) = (service.key().to_string(), SingleLoadBalancer::name(self, cluster, service));
        self.remove(About { cluster, key: &key, uid: &service.metadata.uid, name: &name }).await
    }
}

#[async_trait]
impl LoadBalancer for FakeLoadBalancer {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        SingleLoadBalancer::get(self, cluster, service).await
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        reconcile_one_by_one(self, cluster, work).await
    }

    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Json, ProviderError> {
        self.look(cluster, &item.service).await?.to_json()
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Json) -> Result<Plan, ProviderError> {
        plan(SingleLoadBalancer::name(self, cluster, &item.service), item, &Observed::read(&item.service, observed)?)
    }
}

/// The ingress list of a load balancer; `None` for "no status at all".
fn decide(
    config: &Config,
    tables: &Tables,
    key: &str,
    service: &Service,
) -> Result<Option<Vec<LoadBalancerIngress>>, ProviderError> {
    let own = tables.balancers.get(key);
    Offer::of(config, tables, key, own).ingress(own, service)
}

/// The inputs of one Service's ingress list besides the Service and its load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Offer {
    /// The matching entry of `statuses`; without one, the pool is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip_mode: Option<String>,
    #[serde(default)]
    ports: bool,
    /// The address for a new load balancer; `None` if the pool is exhausted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    free: Option<IpAddr>,
}

/// An entry of `statuses`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    ingress: Vec<LoadBalancerIngress>,
    missing: bool,
}

impl Offer {
    /// Finds a free address if `own` has none.
    fn of(config: &Config, tables: &Tables, key: &str, own: Option<&Balancer>) -> Self {
        let settings = &config.load_balancers;
        let rule = settings.statuses.iter().find(|rule| rule.service.as_ref().is_none_or(|glob| glob.matches(key)));
        let free = match (rule, address_of(own)) {
            (None, None) => free_address(settings.pool, tables),
            _ => None,
        };
        Self {
            status: rule.map(|rule| Status { ingress: rule.ingress.clone(), missing: rule.missing }),
            ip_mode: settings.ip_mode.clone(),
            ports: settings.ports,
            free,
        }
    }

    /// Whether a load balancer gets its first address from the pool.
    fn is_fresh(&self, own: Option<&Balancer>) -> bool {
        self.status.is_none() && address_of(own).is_none()
    }

    /// The ingress list; `None` for "no status at all".
    pub(crate) fn ingress(
        &self,
        own: Option<&Balancer>,
        service: &Service,
    ) -> Result<Option<Vec<LoadBalancerIngress>>, ProviderError> {
        if let Some(status) = &self.status {
            return Ok((!status.missing).then(|| status.ingress.clone()));
        }
        let ip = match (address_of(own), self.free) {
            (Some(ip), _) => ip.to_owned(),
            (None, Some(free)) => free.to_string(),
            (None, None) => return Err(ProviderError::unknown("address pool exhausted")),
        };
        let port = |port: &ccm_provider::ServicePort| PortStatus {
            port: port.port,
            protocol: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
            error: None,
        };
        Ok(Some(vec![LoadBalancerIngress {
            ip,
            hostname: String::new(),
            ip_mode: self.ip_mode.clone(),
            ports: if self.ports { service.spec.ports.iter().map(port).collect() } else { Vec::new() },
        }]))
    }
}

/// The address that a load balancer keeps.
fn address_of(balancer: Option<&Balancer>) -> Option<&str> {
    let ingress = balancer.into_iter().flat_map(|balancer| &balancer.ingress);
    ingress.map(|ingress| &*ingress.ip).find(|ip| !ip.is_empty())
}

/// The lowest host address of the pool that is not in use.
fn free_address(pool: IpNet, tables: &Tables) -> Option<IpAddr> {
    let ingress = tables.balancers.values().flat_map(|balancer| &balancer.ingress);
    let taken: BTreeSet<IpAddr> = ingress.filter_map(|ingress| ingress.ip.parse().ok()).collect();
    // The first IPv6 address is for routers; ipnet counts it as a host.
    let not_a_host = match pool {
        IpNet::V6(net) if net.prefix_len() < 127 => Some(IpAddr::V6(net.network())),
        _ => None,
    };
    pool.hosts().find(|ip| Some(*ip) != not_a_host && !taken.contains(ip))
}
