//! The machines behind the nodes.
//!
//! Upstream: `azure_instances_v2.go`, with up to three calls for each node. Here the core asks about many nodes at once:
//! their machines are found in lists ([`Nodes`] over [`source`]), then the lists of their network objects and states are
//! read, and the answers are evaluated ([`Judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_kit::call::ErrorKind;
use ccm_kit::directory::{self, NodeCloud, Nodes};
use ccm_kit::near_miss;
use ccm_kit::{Cluster, Stamped};
use ccm_provider::{
    AddressType, Aspects, Instance, InstanceMetadata, Lookup, Node, NodeAddress, NodeRef, ProviderError,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use self::source::{Compute, JUST_READ};
use super::fleet::{Ages, Asked, EACH_DEADLINE, Fleet, Holder, Interfaces, PublicIps, States};
use super::identity::{Foreign, Key, Wanted, provider_id, wanted};
use super::machine::{IpConfig, Machine, State};
use super::zones::zone_label;
use crate::client::id::{ArmId, same};
use crate::client::operation::VM_GET;
use crate::client::{ApiError, Client, is_forbidden};
use crate::start::config::{Config, VmType};

mod addresses;
mod source;
#[cfg(test)]
mod tests;

/// Lists show new machines late: for a node younger than this, absence is no evidence.
const GRACE: Duration = Duration::from_secs(60);
/// The age up to which states are used.
const STATE_AGE: Duration = Duration::from_secs(20);
/// How long states of a subscription are waited for: one with thousands of machines has many pages.
const STATES_DEADLINE: Duration = Duration::from_secs(10);
/// The deletion of a scale set and the start of the machines of another one with its name take longer than this.
const REPLACED: Duration = Duration::from_secs(120);
/// The most lists at the same time.
const IN_FLIGHT: usize = 8;

/// The settings of look-ups.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) subscription: String,
    /// The resource group of the cluster.
    pub(crate) resource_group: String,
    pub(crate) vm_type: VmType,
    /// Whether nodes may be machines outside of uniform scale sets.
    pub(crate) has_machines: bool,
    pub(crate) has_zones: bool,
    pub(crate) grace: Duration,
    pub(crate) ages: Ages,
}

impl Settings {
    pub(crate) fn of(config: &Config, is_stack: bool) -> Self {
        let is_uniform_only = config.disable_availability_set_nodes && !config.enable_vmss_flex_nodes;
        Self {
            subscription: config.identity.subscription.clone(),
            resource_group: config.resource_group.clone(),
            vm_type: config.vm_type,
            has_machines: config.vm_type != VmType::Vmss || !is_uniform_only,
            has_zones: !is_stack && config.extended_location_name.is_empty(),
            grace: config.not_found_grace.max(GRACE),
            ages: Ages::of(config),
        }
    }

    /// The age up to which a list of a holder is used for what it has, by the time at which the youngest Node was created.
    /// It must be younger than the machines: they may have the names, and so the IDs, of ones that are gone. A scale set
    /// uses no number twice, only another one of its name does: Nodes that join within two minutes share its lists.
    fn age(&self, holder: &Holder, youngest: Option<Timestamp>, now: SystemTime) -> Duration {
        let age = self.ages.of_holder(holder);
        let Some(youngest) = youngest else { return age };
        let since = now.duration_since(youngest.into()).unwrap_or_default();
        age.min(if holder.is_group() { since.max(JUST_READ) } else { since + REPLACED })
    }

    /// A resource group by the value of a node's label.
    fn group(&self, label: Option<&str>) -> Holder {
        Holder::group(&self.subscription, label.unwrap_or(&self.resource_group))
    }

    /// The label of nodes in a resource group; `None` for that of the cluster.
    fn label(&self, group: &Holder) -> Option<String> {
        match group {
            Holder::Group(_, name) if !same(name, &self.resource_group) => Some(name.clone()),
            _ => None,
        }
    }
}

/// The instances of Azure.
pub(crate) type AzureInstances = Nodes<AzureNodes>;

/// The rules of Azure.
#[derive(Debug)]
pub(crate) struct AzureNodes {
    settings: Arc<Settings>,
    client: Client,
    fleet: Fleet,
    cluster: Cluster,
    /// Whether the log names the permission for public IPs of other groups.
    warned: Once,
}

type Observed = directory::Observed<Compute>;

/// The data that is read besides the machines.
#[derive(Debug, Default)]
pub(crate) struct Details {
    aspects: Aspects,
    interfaces: BTreeMap<Holder, Result<Stamped<Interfaces>, ApiError>>,
    public_ips: BTreeMap<Holder, Result<Stamped<PublicIps>, ApiError>>,
    /// Groups whose public IPs may not be read, nor need they: the Go program reads those of the cluster's group.
    hidden: BTreeSet<Holder>,
    states: BTreeMap<ArmId, Result<State, ApiError>>,
}

pub(crate) fn instances(settings: Settings, client: Client, fleet: Fleet, cluster: Cluster) -> AzureInstances {
    let settings = Arc::new(settings);
    let source = Compute::new(fleet.clone(), settings.clone(), cluster.clone());
    Nodes::new(AzureNodes { settings, client, fleet, cluster: cluster.clone(), warned: Once::new() }, source, cluster)
}

#[async_trait]
impl NodeCloud for AzureNodes {
    type Source = Compute;
    type Details = Details;

    const GRACE: Duration = GRACE;

    fn grace(&self) -> Duration {
        self.settings.grace
    }

    fn key(&self, node: &Node) -> Result<Wanted, Lookup> {
        let mut wanted = wanted(node).map_err(|foreign| match foreign {
            Foreign::Other => Lookup::Foreign,
            Foreign::Malformed(_) => Lookup::Unknown(ProviderError::unknown(foreign.to_string())),
        })?;
        if let Key::Name { group, .. } = &mut wanted.key {
            // The label may name the group of the cluster.
            *group = self.settings.label(&self.settings.group(group.as_deref()));
        }
        Ok(wanted)
    }

    fn name(wanted: &Wanted) -> Option<&str> {
        match &wanted.key {
            Key::Name { name, .. } => Some(name),
            Key::Machine(_) => None,
        }
    }

    fn missing(&self, name: &str) -> (String, &'static str) {
        let group = &self.settings.resource_group;
        let remedy = "name the Node like the computer of its machine, label it kubernetes.azure.com/resource-group if the \
                      machine is in another group, or set its provider ID";
        (format!("no machine of resource group {group:?} has the computer name {name:?}"), remedy)
    }

    async fn machines(&self) -> Result<Vec<near_miss::Machine>, ProviderError> {
        let machine = |machine: Arc<Machine>| near_miss::Machine {
            name: machine.node_name.clone(),
            place: machine.id.to_string(),
            addresses: Vec::new(),
        };
        Ok(self.fleet.known().into_iter().map(machine).collect())
    }

    /// One list of interfaces for each scale set and resource group, and one list of public IPs where there are any.
    async fn details(&self, nodes: &[(&NodeRef, &Wanted)], observed: &Observed, aspects: Aspects) -> Details {
        // Addresses are read again for all Nodes together: for a few new ones, the others must not cost more calls.
        let created = |key: &Wanted| key.created.filter(|_| aspects.metadata);
        let machines: Vec<(&Arc<Machine>, Option<Timestamp>)> =
            nodes.iter().filter_map(|(_, key)| Some((observed.one(key)?, created(key)))).collect();
        let mut details = Details { aspects, ..Details::default() };
        if aspects.shutdown || aspects.metadata {
            let is_needed = |machine: &&Arc<Machine>| {
                let needs_power = aspects.shutdown && !machine.is_uniform();
                machine.state.is_none() && (needs_power || aspects.metadata && self.needs_domain(machine))
            };
            let asked: Vec<&Arc<Machine>> = machines.iter().map(|(machine, _)| *machine).filter(is_needed).collect();
            details.states = self.states(&asked, aspects.metadata).await;
        }
        if aspects.addresses || aspects.metadata {
            self.network(&machines, &mut details).await;
        }
        details
    }

    fn judge(&self, node: &Node, key: &Wanted, observed: &Observed, details: &Details) -> Lookup {
        Judge { settings: &self.settings, details }.node(node, key, observed)
    }
}

impl AzureNodes {
    /// Whether the zone of the machine is its fault domain.
    fn needs_domain(&self, machine: &Machine) -> bool {
        machine.zone.is_none() || !self.settings.has_zones
    }

    /// The states of machines that were listed without them: from the list of their subscription or scale set. Those of
    /// machines outside of uniform scale sets from these alone, if the list fails or takes long, they are newer, or it
    /// lacks a fault domain that is needed: it is documented to have the power states.
    async fn states(&self, machines: &[&Arc<Machine>], with_domain: bool) -> BTreeMap<ArmId, Result<State, ApiError>> {
        let late = || ApiError::of_kind(VM_GET, ErrorKind::NoAnswer, "not read in time");
        let mut states = BTreeMap::new();
        let mut alone = Vec::new();
        let mut by_holder = BTreeMap::<Holder, Vec<&Arc<Machine>>>::new();
        for machine in machines {
            let holder = match Holder::of(&machine.id) {
                Holder::Group(subscription, _) => Holder::Group(subscription, String::new()),
                set @ Holder::ScaleSet(_) => set,
            };
            by_holder.entry(holder).or_default().push(machine);
        }
        let age = STATE_AGE.min(self.settings.ages.sets());
        for (holder, own) in by_holder {
            let lacks = |list: &Option<States>| {
                list.as_ref().is_some_and(|list| own.iter().any(|machine| !list.contains_key(&machine.id)))
            };
            let list = whole(|age, not_before| self.fleet.states(&holder, age, not_before), age, lacks);
            let wait = if holder.is_group() { STATES_DEADLINE } else { Duration::MAX };
            let listed = match timeout(wait, list).await {
                Ok(listed) => listed,
                Err(_) => Err(late()),
            };
            for machine in own {
                let state = listed.as_ref().map(|list| Option::as_ref(&list.value)?.get(&machine.id));
                let lacks_domain =
                    |state: &State| with_domain && state.fault_domain.is_none() && self.needs_domain(machine);
                match state {
                    Ok(Some(state)) if machine.is_uniform() || !lacks_domain(state) => {
                        states.insert(machine.id.clone(), Ok(state.clone()));
                    }
                    Ok(None) if machine.is_uniform() => {}
                    Err(error) if machine.is_uniform() => drop(states.insert(machine.id.clone(), Err(error.clone()))),
                    Ok(Some(_) | None) | Err(_) => {
                        states.insert(machine.id.clone(), Err(late()));
                        alone.push(machine);
                    }
                }
            }
        }
        let get = |machine: &Arc<Machine>| {
            let id = machine.id.clone();
            async move {
                let query = ccm_kit::http::Query::default().with("$expand", "instanceView");
                let read = self.client.get_with(VM_GET, &id, query).await;
                let view = |object: serde_json::Value| object.pointer("/properties/instanceView").map(State::read);
                (id, read.map(|object| object.and_then(view).unwrap_or_default()))
            }
        };
        let alone = stream::iter(alone.into_iter().map(get)).buffer_unordered(IN_FLIGHT);
        states.extend(alone.take_until(sleep(EACH_DEADLINE)).collect::<Vec<_>>().await);
        states
    }

    /// `machines`: each with the time at which its Node was created.
    async fn network(&self, machines: &[(&Arc<Machine>, Option<Timestamp>)], details: &mut Details) {
        let mut needed = Needed::new();
        for (machine, created) in machines {
            for holder in machine.interfaces.iter().map(Holder::of_network).collect::<BTreeSet<_>>() {
                add(&mut needed, holder, &machine.id, *created);
            }
        }
        // A machine may have the name, and so the ID, of one that is gone: its network objects are new.
        let groups: BTreeSet<Holder> =
            machines.iter().map(|(machine, _)| Holder::of(&machine.id)).filter(Holder::is_group).collect();
        let since = groups.iter().filter_map(|group| self.fleet.machines_read(group)).max();
        let since = |holder: &Holder| since.filter(|_| holder.is_group());
        let now = self.cluster.wall();
        let until = Instant::now() + EACH_DEADLINE;
        let read = |(holder, (ids, youngest)): (Holder, (Vec<ArmId>, _))| async move {
            let age = self.settings.age(&holder, youngest, now);
            let lacks = |list: &Interfaces| ids.iter().any(|id| !list.has(id));
            let read = |age, not_before: Option<Instant>| {
                let not_before = not_before.max(since(&holder));
                self.fleet.interfaces(Asked { holder: &holder, ids: &ids, until, age, not_before })
            };
            let list = whole(read, age, lacks).await;
            (holder, list)
        };
        let read: Vec<_> = stream::iter(needed.into_iter().map(read)).buffer_unordered(IN_FLIGHT).collect().await;
        details.interfaces = read.into_iter().collect();
        let mut public = Needed::new();
        for (machine, created) in machines {
            let configs = details.configs(machine).unwrap_or_default();
            for id in configs.into_iter().filter_map(|config| config.public_ip.as_ref()) {
                add(&mut public, Holder::of_network(id), id, *created);
            }
        }
        let until = Instant::now() + EACH_DEADLINE;
        let read = |(holder, (ids, youngest)): (Holder, (Vec<ArmId>, _))| async move {
            let age = self.settings.age(&holder, youngest, now);
            let lacks = |list: &PublicIps| ids.iter().any(|id| !list.has(id));
            let read = |age, not_before: Option<Instant>| {
                let not_before = not_before.max(since(&holder));
                self.fleet.public_ips(Asked { holder: &holder, ids: &ids, until, age, not_before })
            };
            let list = whole(read, age, lacks).await;
            (holder, list)
        };
        let read: Vec<_> = stream::iter(public.into_iter().map(read)).buffer_unordered(IN_FLIGHT).collect().await;
        for (holder, list) in read {
            match list {
                Err(error) if is_forbidden(&error) && holder.is_group() && holder != self.settings.group(None) => {
                    self.warned.call_once(|| tracing::warn!(%error, "nodes keep the public addresses that they have"));
                    details.hidden.insert(holder);
                }
                list => drop(details.public_ips.insert(holder, list)),
            }
        }
    }
}

/// The objects that are needed of each holder, and when the youngest of their Nodes was created.
type Needed = BTreeMap<Holder, (Vec<ArmId>, Option<Timestamp>)>;

fn add(needed: &mut Needed, holder: Holder, id: &ArmId, created: Option<Timestamp>) {
    let (ids, youngest) = needed.entry(holder).or_default();
    ids.push(id.clone());
    *youngest = created.max(*youngest);
}

/// A list of at most this age. One that lacks what may be newer is read once more.
async fn whole<T, R>(
    read: impl Fn(Duration, Option<Instant>) -> R,
    age: Duration,
    lacks: impl Fn(&T) -> bool,
) -> Result<Stamped<T>, ApiError>
where
    R: Future<Output = Result<Stamped<T>, ApiError>>,
{
    let list = read(age, None).await?;
    match lacks(&list.value) && list.began.elapsed() > JUST_READ {
        true => read(Duration::ZERO, Some(Instant::now())).await,
        false => Ok(list),
    }
}

impl Details {
    /// The IP configurations of a machine's primary interface, the primary one first.
    fn configs(&self, machine: &Machine) -> Result<Vec<&IpConfig>, ProviderError> {
        let mut interfaces = Vec::new();
        for holder in machine.interfaces.iter().map(Holder::of_network).collect::<BTreeSet<_>>() {
            match self.interfaces.get(&holder) {
                Some(Ok(listed)) => interfaces.extend(listed.value.get(&machine.id)?.into_iter().flatten()),
                Some(Err(error)) => return Err(error.clone().into()),
                None => {}
            }
        }
        let primary = interfaces.iter().find(|interface| interface.is_primary).or(interfaces.first());
        let mut configs: Vec<&IpConfig> = primary.iter().flat_map(|interface| &interface.configs).collect();
        configs.sort_by_key(|config| !config.is_primary);
        Ok(configs)
    }

    /// The public address of an IP configuration. A node keeps the one that it has if Azure does not show it.
    fn public_address(&self, node: &Node, config: &IpConfig) -> Result<Option<IpAddr>, ProviderError> {
        let Some(id) = &config.public_ip else { return Ok(None) };
        let holder = Holder::of_network(id);
        match self.public_ips.get(&holder) {
            Some(Ok(listed)) => Ok(listed.value.get(id)?.copied()),
            Some(Err(error)) => Err(error.clone().into()),
            None if self.hidden.contains(&holder) => {
                let is_public = |address: &&NodeAddress| address.kind == AddressType::ExternalIp;
                let mut present = node.addresses.iter().filter(is_public).filter_map(|it| it.address.parse().ok());
                let is_v6 = config.address.is_some_and(|address| address.is_ipv6());
                Ok(present.find(|address: &IpAddr| address.is_ipv6() == is_v6))
            }
            None => Ok(None),
        }
    }
}

/// Evaluates what was read for a node. Pure.
struct Judge<'a> {
    settings: &'a Settings,
    details: &'a Details,
}

impl Judge<'_> {
    fn node(&self, node: &Node, key: &Wanted, observed: &Observed) -> Lookup {
        observed.judge(key, self.settings.grace, |machine| {
            let Aspects { addresses, metadata, .. } = self.details.aspects;
            let is_asked = addresses || metadata;
            let metadata = is_asked.then(|| self.metadata(node, machine)).transpose();
            Lookup::Found(Arc::new(Instance { shutdown: self.shutdown(machine), metadata }))
        })
    }

    fn state(&self, machine: &Machine) -> Result<Option<State>, ProviderError> {
        match (&machine.state, self.details.states.get(&machine.id)) {
            (Some(state), _) => Ok(Some(state.clone())),
            (None, Some(Ok(state))) => Ok(Some(state.clone())),
            (None, Some(Err(error))) => Err(error.clone().into()),
            (None, None) => Ok(None),
        }
    }

    /// Only a complete stop of a machine without a change under way counts.
    fn shutdown(&self, machine: &Machine) -> Result<bool, ProviderError> {
        let is_stopped = self.state(machine)?.is_some_and(|state| state.is_stopped());
        Ok(is_stopped && same(&machine.provisioning, "Succeeded"))
    }

    fn metadata(&self, node: &Node, machine: &Machine) -> Result<InstanceMetadata, ProviderError> {
        let node_addresses = addresses::of_machine(node, machine, self.details)?;
        let zone = match self.details.aspects.metadata {
            true => zone_label(machine, self.state(machine)?.as_ref(), self.settings.has_zones)?,
            false => String::new(),
        };
        Ok(InstanceMetadata {
            provider_id: match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
                Some(own) => own.to_owned(),
                None => provider_id(&machine.id),
            },
            instance_type: machine.size.clone(),
            node_addresses,
            zone,
            region: machine.location.to_ascii_lowercase(),
            additional_labels: BTreeMap::new(),
        })
    }
}
