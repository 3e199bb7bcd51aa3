//! Load balancers: the configuration of a proxy in front of the rack. Observed, planned without I/O, then written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{
    Change, GroupKey, LoadBalancerIngress, LoadBalancerStatus, NodeRef, Planned, ProviderError, Risk, Service,
    ServiceAction, ServiceWork, Step, Steps, Verb,
};
use serde::{Deserialize, Serialize};

use crate::rack::Rack;

/// `balancers/<name>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Balancer {
    /// The owner. A file without our ownership tag is not ours, whatever its name.
    owner: String,
    address: String,
    /// Port of the load balancer, port of the hosts.
    ports: Vec<(i32, i32)>,
    hosts: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Balancers(pub(crate) Arc<Rack>);

const KIND: &str = "balancers";

/// The request of a Service.
pub(crate) struct Desired {
    name: String,
    owner: String,
    action: ServiceAction,
    ports: Vec<(i32, i32)>,
    hosts: Vec<String>,
}

/// The observed state of the rack: the file of each Service, and all addresses in use.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Observed {
    balancers: BTreeMap<String, Balancer>,
    taken: BTreeSet<String>,
}

/// One write.
pub(crate) enum Write {
    Put { name: String, before: Option<Balancer>, after: Balancer },
    Remove { name: String },
}

/// Sorted, so that the order of the nodes makes no difference.
fn hosts(nodes: &[NodeRef]) -> Vec<String> {
    let address =
        |node: &NodeRef| node.addresses.first().map_or_else(|| node.name.to_string(), |a| a.address.to_string());
    let mut hosts: Vec<String> = nodes.iter().map(address).collect();
    hosts.sort();
    hosts
}

fn name(service: &Service) -> String {
    service.default_load_balancer_name()
}

impl Balancers {
    /// The desired state of one Service. Its address is not available to later ones.
    fn balancer(
        &self,
        desired: &Desired,
        now: Option<&Balancer>,
        taken: &mut BTreeSet<String>,
    ) -> Result<Option<Balancer>, ProviderError> {
        if let Some(other) = now.filter(|now| now.owner != desired.owner) {
            let text = format!("{KIND}/{}.json belongs to {}; remove or rename it", desired.name, other.owner);
            return if desired.action == ServiceAction::Delete { Ok(None) } else { Err(ProviderError::unknown(text)) };
        }
        let (owner, hosts) = (desired.owner.clone(), desired.hosts.clone());
        match (desired.action, now) {
            (ServiceAction::Delete, _) => Ok(None),
            (ServiceAction::UpdateHosts, None) => {
                Err(ProviderError::unknown(format!("there is no {KIND}/{}.json", desired.name)))
            }
            (ServiceAction::UpdateHosts, Some(now)) => Ok(Some(Balancer { hosts, ..now.clone() })),
            (ServiceAction::Ensure, now) => {
                let address = now.map_or_else(|| self.free_address(taken), |now| Ok(now.address.clone()))?;
                Ok(Some(Balancer { owner, address, ports: desired.ports.clone(), hosts }))
            }
        }
    }

    fn free_address(&self, taken: &mut BTreeSet<String>) -> Result<String, ProviderError> {
        let mut all = self.0.addresses.iter().map(ToString::to_string);
        all.find(|address| taken.insert(address.clone())).ok_or_else(|| {
            let taken = taken.len();
            ProviderError::unknown(format!("all {taken} addresses of the configuration are taken; add some"))
        })
    }
}

impl Planned for Balancers {
    type Desired = Vec<Desired>;
    type Observed = Observed;
    type Step = Write;
    type Outputs = ();

    /// All Services use one pool of addresses.
    fn groups(&self, _: &Service) -> BTreeSet<GroupKey> {
        [GroupKey("addresses".into())].into()
    }

    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Self::Desired, Vec<Result<(), ProviderError>>) {
        let desired = work.iter().map(|item| Desired {
            name: name(&item.service),
            owner: format!("{cluster}/{}", item.service.metadata.uid),
            action: item.action,
            ports: item.service.spec.ports.iter().map(|port| (port.port, port.node_port)).collect(),
            hosts: hosts(&item.nodes),
        });
        (desired.collect(), vec![Ok(()); work.len()])
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], desired: &Self::Desired) -> Result<Observed, ProviderError> {
        let all = self.0.list::<Balancer>(KIND)?;
        let taken = all.iter().map(|(_, balancer)| balancer.address.clone()).collect();
        let asked = |name: &String| desired.iter().any(|one| one.name == *name);
        Ok(Observed { balancers: all.into_iter().filter(|(name, _)| asked(name)).collect(), taken })
    }

    fn plan(&self, observed: &Observed, desired: &Self::Desired) -> Result<Steps<Write>, ProviderError> {
        let (mut steps, mut failed, mut taken) = (Vec::new(), BTreeMap::new(), observed.taken.clone());
        for (place, desired) in desired.iter().enumerate() {
            let (name, before) = (desired.name.clone(), observed.balancers.get(&desired.name).cloned());
            match self.balancer(desired, before.as_ref(), &mut taken) {
                Err(error) => drop(failed.insert(place, error)),
                Ok(after) if after == before => {}
                Ok(Some(after)) => steps.push(Write::Put { name, before, after }),
                Ok(None) if before.is_some_and(|before| before.owner == desired.owner) => {
                    steps.push(Write::Remove { name });
                }
                Ok(None) => {}
            }
        }
        Ok(Steps { steps, findings: Vec::new(), failed })
    }

    /// Plans never have steps for foreign objects.
    fn guard(&self, _: &Observed, _: &Self::Desired, _: &[Write]) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn apply(&self, step: &Write, (): &()) -> Result<(), ProviderError> {
        match step {
            Write::Put { name, after, .. } => self.0.write(KIND, name, after),
            Write::Remove { name } => self.0.remove(KIND, name),
        }
    }

    fn describe(&self, step: &Write) -> Step {
        let text = |balancer: &Balancer| format!("{} {:?} {:?}", balancer.address, balancer.ports, balancer.hosts);
        let (verb, id, before, after, risk) = match step {
            Write::Put { name, before, after } => {
                let verb = if before.is_some() { Verb::Update } else { Verb::Create };
                (verb, name, before.as_ref().map(text), Some(text(after)), Risk::None)
            }
            Write::Remove { name } => (Verb::Delete, name, None, None, Risk::Disruptive),
        };
        let change = (before != after).then(|| Change { field: "forwarding".into(), before, after });
        let reason = "the Service says so".into();
        Step { verb, kind: "LoadBalancer".into(), id: id.clone(), changes: change.into_iter().collect(), reason, risk }
    }

    fn status(&self, observed: &Observed, desired: &Self::Desired, service: &Service) -> Option<LoadBalancerStatus> {
        let desired = desired.iter().find(|desired| desired.name == name(service))?;
        let balancer = observed.balancers.get(&desired.name).filter(|balancer| balancer.owner == desired.owner)?;
        let ip = balancer.address.clone();
        Some(LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] })
    }
}
