//! Load balancers with the Go interface: an ensure is several writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    GroupKey, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef, ProviderError, Scope, Service,
    ServiceAnswer, ServiceWork, SingleLoadBalancer, reconcile_one_by_one,
};

use super::{Handle, State, names};
use crate::trace::Invariant;

/// The annotation for a property of the balancer.
pub const SIZE: &str = "sim.example/size";

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancer {
    /// The UID of its Service, or a foreign value.
    pub owner: String,
    /// The address; empty until the balancer has listeners.
    pub ip: String,
    /// The ports of its listeners.
    pub ports: BTreeSet<i32>,
    /// The hosts by node name, with the provider ID under which they were added.
    pub hosts: BTreeMap<String, String>,
    /// See [`SIZE`].
    pub size: String,
}

impl Balancer {
    /// The status for the Service.
    pub fn status(&self) -> LoadBalancerStatus {
        let ingress = LoadBalancerIngress { ip: self.ip.clone(), ..LoadBalancerIngress::default() };
        LoadBalancerStatus { ingress: if self.ip.is_empty() { Vec::new() } else { vec![ingress] } }
    }
}

fn ports(service: &Service) -> BTreeSet<i32> {
    service.spec.ports.iter().map(|port| port.port).collect()
}

fn hosts(nodes: &[NodeRef]) -> BTreeMap<String, String> {
    nodes.iter().map(|node| (node.name.to_string(), node.provider_id_or_empty().to_owned())).collect()
}

impl Handle {
    fn balancer_name(&self, service: &Service) -> String {
        service.default_load_balancer_name()
    }

    /// New hosts are added before old ones are removed.
    async fn set_hosts(&self, name: &str, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        let wanted = hosts(nodes);
        let asker = (self.life.name.clone(), name.to_owned());
        let asked = self.lock().asked_hosts.insert(asker, wanted.keys().cloned().collect());
        let now = self.lock().balancers.get(name).map(|balancer| balancer.hosts.clone()).unwrap_or_default();
        let added: BTreeSet<String> =
            wanted.iter().filter(|(host, id)| now.get(*host) != Some(id)).map(|(host, _)| host.clone()).collect();
        if !added.is_empty() {
            self.write("register hosts", |state| {
                let balancer = state.balancers.get_mut(name)?;
                let new = wanted.iter().filter(|(host, _)| added.contains(*host));
                balancer.hosts.extend(new.map(|(host, id)| (host.clone(), id.clone())));
                let nodes: Vec<String> = added.iter().map(|host| format!("{host}={}", wanted[host])).collect();
                Some(format!("register [{}] at {name}", nodes.join(" ")))
            })
            .await?;
        }
        let removed: BTreeSet<String> = now.keys().filter(|host| !wanted.contains_key(*host)).cloned().collect();
        if !removed.is_empty() {
            self.write("deregister hosts", |state| {
                let before = state.balancers.get(name)?.hosts.clone();
                if !before.is_empty() && before.keys().all(|host| removed.contains(host)) {
                    self.check_emptying(state, name, &before, asked.as_ref());
                }
                state.balancers.get_mut(name)?.hosts.retain(|host, _| !removed.contains(host));
                Some(format!("deregister [{}] at {name}", names(&removed)))
            })
            .await?;
        }
        Ok(())
    }

    fn check_emptying(
        &self,
        state: &State,
        name: &str,
        before: &BTreeMap<String, String>,
        asked: Option<&BTreeSet<String>>,
    ) {
        // A new process does not know the hosts, so it cannot look them up. If all existing nodes are excluded, the
        // controller assumes that this is intended; otherwise a balancer without hosts would never be synced again
        // after a restart. The drawback: hosts whose nodes were mistakenly deleted at the same time are lost.
        if asked.is_none() && self.cloud.witness.any_excluded() {
            return;
        }
        // A failed request that removed this host and kept others already allowed its removal.
        let left = |host: &String| asked.is_some_and(|asked| !asked.is_empty() && !asked.contains(host));
        for (host, id) in before.iter().filter(|(host, _)| !left(host)) {
            if self.cloud.witness.may_leave(state, host, id).is_none() {
                let text = format!("empties balancer {name}, although {host} ({id}) should serve");
                self.violated(Invariant::Backends, &text);
            }
        }
    }
}

#[async_trait]
impl SingleLoadBalancer for Handle {
    async fn get(&self, _cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.begin("get balancer", false).await?;
        Ok(self.lock().balancers.get(&self.balancer_name(service)).map(Balancer::status))
    }

    async fn ensure(
        &self,
        _cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.check_leader("ensure");
        self.begin("ensure balancer", true).await?;
        if self.lock().mishaps.come_back > 0 {
            self.lock().mishaps.come_back -= 1;
            return Err(ProviderError::retry("the balancer is busy", Duration::from_secs(7)).wrap("ensure"));
        }
        let name = self.balancer_name(service);
        let owner = service.metadata.uid.to_string();
        let key = service.key();
        if !self.lock().balancers.contains_key(&name) {
            self.write("create balancer", |state| {
                let balancer = Balancer { owner, ..Balancer::default() };
                // Two concurrent creations return the same object.
                state.balancers.entry(name.clone()).or_insert(balancer);
                Some(format!("create balancer {name} for {key}"))
            })
            .await?;
        }
        let wanted = ports(service);
        if self.lock().balancers.get(&name).is_some_and(|balancer| balancer.ports != wanted) {
            self.write("set listeners", |state| {
                state.next += 1;
                let next = state.next;
                let balancer = state.balancers.get_mut(&name)?;
                if balancer.ip.is_empty() {
                    balancer.ip = format!("203.0.{}.{}", next / 200, next % 200 + 1);
                }
                balancer.ports.clone_from(&wanted);
                Some(format!("listen on {wanted:?} at {name}"))
            })
            .await?;
        }
        let size = service.metadata.annotations.get(SIZE).cloned().unwrap_or_default();
        if self.lock().balancers.get(&name).is_some_and(|balancer| balancer.size != size) {
            self.write("set size", |state| {
                state.balancers.get_mut(&name)?.size.clone_from(&size);
                Some(format!("size {size:?} of {name}"))
            })
            .await?;
        }
        self.set_hosts(&name, nodes).await?;
        match self.lock().balancers.get(&name) {
            Some(balancer) => Ok(Some(balancer.status())),
            None => Err(ProviderError::unknown("the balancer went away meanwhile")),
        }
    }

    async fn update(&self, _cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        self.check_leader("update");
        self.begin("update balancer", true).await?;
        let name = self.balancer_name(service);
        if !self.lock().balancers.contains_key(&name) {
            return Err(ProviderError::unknown("there is no such balancer"));
        }
        self.set_hosts(&name, nodes).await
    }

    async fn ensure_deleted(&self, _cluster: &str, service: &Service) -> Result<(), ProviderError> {
        self.check_leader("delete");
        self.begin("delete balancer", true).await?;
        let name = self.balancer_name(service);
        if self.lock().balancers.get(&name).is_some_and(|balancer| !balancer.ports.is_empty()) {
            self.write("remove listeners", |state| {
                state.balancers.get_mut(&name)?.ports.clear();
                Some(format!("remove listeners of {name}"))
            })
            .await?;
        }
        if self.lock().balancers.contains_key(&name) {
            self.write("delete balancer", |state| {
                state.balancers.remove(&name)?;
                Some(format!("delete balancer {name}"))
            })
            .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LoadBalancer for Handle {
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let group = match self.cloud.traits.shared {
            true => format!("shared-{}", service.metadata.name.len() % 2),
            false => service.key().to_string(),
        };
        [GroupKey(group)].into()
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        SingleLoadBalancer::get(self, cluster, service).await
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        let mut answers = reconcile_one_by_one(self, cluster, work).await;
        let mut state = self.lock();
        if state.mishaps.miscounts > 0 && work.len() > 1 {
            state.mishaps.miscounts -= 1;
            answers.pop();
        }
        answers
    }
}
