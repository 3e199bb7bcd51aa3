//! Load balancers: the configuration of a proxy in front of the rack. Observed, planned without I/O, then written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_kit::balancer::{BalancerCloud, Items, Kind, Part, Plan, Reached, Step, Written};
use ccm_provider::{
    Change, ErrorClass, GroupKey, LoadBalancerIngress, LoadBalancerStatus, NodeRef, ProviderError, Risk, Scope,
    Service, ServiceAction, ServiceWork, Step as Summary, Verb,
};
use serde::{Deserialize, Serialize};

use crate::rack::Rack;

/// `balancers/<name>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Balancer {
    /// The owner. A file without our ownership tag is not ours, whatever its name.
    pub(crate) owner: String,
    pub(crate) address: String,
    /// Port of the load balancer, port of the hosts.
    pub(crate) ports: Vec<(i32, i32)>,
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Balancers(pub(crate) Arc<Rack>);

pub(crate) const KIND: &str = "balancers";

/// The request of a Service.
pub(crate) struct Wanted {
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
pub(crate) fn hosts(nodes: &[NodeRef]) -> Vec<String> {
    let address =
        |node: &NodeRef| node.addresses.first().map_or_else(|| node.name.to_string(), |a| a.address.to_string());
    let mut hosts: Vec<String> = nodes.iter().map(address).collect();
    hosts.sort();
    hosts
}

/// Port of the load balancer, port of the hosts. The proxy forwards TCP only.
pub(crate) fn ports(service: &Service) -> Result<Vec<(i32, i32)>, ProviderError> {
    if let Some(port) = service.spec.ports.iter().find(|port| !matches!(&*port.protocol, "" | "TCP")) {
        let text = format!("port {} has the protocol {}; only TCP is forwarded", port.port, port.protocol);
        return Err(ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text));
    }
    Ok(service.spec.ports.iter().map(|port| (port.port, port.node_port)).collect())
}

fn name(service: &Service) -> String {
    service.default_load_balancer_name()
}

pub(crate) fn owner(cluster: &str, service: &Service) -> String {
    format!("{cluster}/{}", service.metadata.uid)
}

impl Balancers {
    /// The desired state of one Service. Its address is not available to later ones.
    fn balancer(
        &self,
        wanted: &Wanted,
        now: Option<&Balancer>,
        taken: &mut BTreeSet<String>,
    ) -> Result<Option<Balancer>, ProviderError> {
        if let Some(other) = now.filter(|now| now.owner != wanted.owner) {
            let text = format!("{KIND}/{}.json belongs to {}; remove or rename it", wanted.name, other.owner);
            return if wanted.action == ServiceAction::Delete { Ok(None) } else { Err(ProviderError::unknown(text)) };
        }
        let (owner, hosts) = (wanted.owner.clone(), wanted.hosts.clone());
        match (wanted.action, now) {
            (ServiceAction::Delete, _) => Ok(None),
            (ServiceAction::UpdateHosts, None) => {
                Err(ProviderError::unknown(format!("there is no {KIND}/{}.json", wanted.name)))
            }
            (ServiceAction::UpdateHosts, Some(now)) => Ok(Some(Balancer { hosts, ..now.clone() })),
            (ServiceAction::Ensure, now) => {
                let address = now.map_or_else(|| self.free_address(taken), |now| Ok(now.address.clone()))?;
                Ok(Some(Balancer { owner, address, ports: wanted.ports.clone(), hosts }))
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

impl BalancerCloud for Balancers {
    /// By index in the work. What is refused is not there: it takes no address.
    type Wanted = BTreeMap<usize, Wanted>;
    type Observed = Observed;
    type Write = Write;
    type Made = ();

    /// All Services use one pool of addresses.
    fn groups(&self, _: &Service) -> BTreeSet<GroupKey> {
        [GroupKey("addresses".into())].into()
    }

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Self::Wanted, Vec<Result<(), ProviderError>>) {
        let mut all = BTreeMap::new();
        let verdict = |(place, item): (usize, &ServiceWork)| {
            let (service, action) = (&item.service, item.action);
            // Only an ensure needs the ports. The hosts follow the nodes, whatever else the Service asks for by now.
            let ports = if action == ServiceAction::Ensure { ports(service)? } else { Vec::new() };
            let (name, owner, hosts) = (name(service), owner(cluster, service), hosts(&item.nodes));
            all.insert(place, Wanted { name, owner, action, ports, hosts });
            Ok(())
        };
        let verdicts = work.iter().enumerate().map(verdict).collect();
        (all, verdicts)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], wanted: &Self::Wanted) -> Result<Observed, ProviderError> {
        let all = self.0.list::<Balancer>(KIND)?;
        let taken = all.iter().map(|(_, balancer)| balancer.address.clone()).collect();
        let asked = |name: &String| wanted.values().any(|one| one.name == *name);
        Ok(Observed { balancers: all.into_iter().filter(|(name, _)| asked(name)).collect(), taken })
    }

    /// Everything that is read is used.
    fn strip(&self, _: &mut Observed, _: &Self::Wanted) {}

    fn plan(&self, observed: &Observed, wanted: &Self::Wanted) -> Result<Plan<Write>, ProviderError> {
        let (mut plan, mut taken) = (Plan::default(), observed.taken.clone());
        for (&place, wanted) in wanted {
            let (name, before) = (wanted.name.clone(), observed.balancers.get(&wanted.name).cloned());
            let write = match self.balancer(wanted, before.as_ref(), &mut taken) {
                Err(error) => {
                    plan.failed.insert(place, error);
                    continue;
                }
                Ok(after) if after == before => continue,
                Ok(Some(after)) => Write::Put { name, before, after },
                Ok(None) if before.is_some_and(|before| before.owner == wanted.owner) => Write::Remove { name },
                Ok(None) => continue,
            };
            plan.steps.push(write.step(place));
        }
        Ok(plan)
    }

    /// Plans never have steps for foreign objects.
    fn guard(&self, _: &Observed, _: &Self::Wanted, _: &[Step<Write>]) -> Vec<(usize, ProviderError)> {
        Vec::new()
    }

    async fn write(&self, step: &Step<Write>, (): &(), _: &Scope) -> Result<Written, ProviderError> {
        match &step.write {
            Write::Put { name, after, .. } => self.0.write(KIND, name, after)?,
            Write::Remove { name } => self.0.remove(KIND, name)?,
        }
        Ok(Written::Done)
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let wanted = reached.wanted.get(&reached.place)?;
        let balancer = reached.observed.balancers.get(&wanted.name).filter(|found| found.owner == wanted.owner)?;
        let ip = balancer.address.clone();
        Some(LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] })
    }
}

impl Write {
    /// The whole configuration of a load balancer is one file.
    fn step(self, place: usize) -> Step<Self> {
        let text = |balancer: &Balancer| format!("{} {:?} {:?}", balancer.address, balancer.ports, balancer.hosts);
        let (verb, name, before, after, risk) = match &self {
            Self::Put { name, before, after } => {
                let verb = if before.is_some() { Verb::Update } else { Verb::Create };
                (verb, name, before.as_ref().map(text), Some(text(after)), Risk::None)
            }
            Self::Remove { name } => (Verb::Delete, name, None, None, Risk::Disruptive),
        };
        let change = (before != after).then(|| Change { field: "forwarding".into(), before, after });
        let changes = change.into_iter().collect();
        let (kind, id, reason) = ("LoadBalancer".into(), name.clone(), "the Service says so".into());
        let part = Part::new(if verb == Verb::Delete { Kind::Release } else { Kind::Frame });
        Step::new(self, Summary { verb, kind, id, changes, reason, risk }, Items::one(place), part)
    }
}
