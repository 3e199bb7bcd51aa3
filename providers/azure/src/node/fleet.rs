//! The machines of the cluster, read in lists: one for each scale set and resource group, and one for each node only where
//! the role has the permissions of the Go program alone.
//!
//! A list is read again when it is older than its reader allows, and only the list that can hold what is missing.

mod network;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::http::Query;
use ccm_kit::{Cached, Interrupted, Stamped};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

pub(crate) use self::network::{Asked, EACH_DEADLINE, Objects};
use self::network::{Network, Permitted};
use super::machine::{Interface, Machine, ScaleSet, State};
use crate::client::id::ArmId;
use crate::client::operation::{
    NIC_LIST, Operation, PUBLIC_IP_LIST, VM_LIST, VMSS, VMSS_LIST, VMSS_NIC_LIST, VMSS_PUBLIC_IP_LIST, VMSS_VM_LIST,
    VMSS_VM_NIC_LIST, VMSS_VM_PUBLIC_IP_GET,
};
use crate::client::view::{id, text};
use crate::client::{ApiError, Client, is_forbidden, is_invalid};
use crate::start::config::Config;

/// A resource group, or a scale set: what holds machines and their network objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Subscription and name, lower-cased.
    Group(String, String),
    ScaleSet(ArmId),
}

impl Holder {
    pub(crate) fn group(subscription: &str, name: &str) -> Self {
        Self::Group(subscription.to_ascii_lowercase(), name.to_ascii_lowercase())
    }

    pub(crate) fn is_group(&self) -> bool {
        matches!(self, Self::Group(..))
    }

    /// The holder of a machine.
    pub(crate) fn of(machine: &ArmId) -> Self {
        let set = machine.parent().filter(|set| set.is(VMSS.kind));
        set.map_or_else(|| Self::group(machine.subscription(), machine.group()), Self::ScaleSet)
    }

    /// The holder of a network interface or public IP: its scale set, if it is inside one.
    pub(crate) fn of_network(object: &ArmId) -> Self {
        let set = std::iter::successors(object.parent(), ArmId::parent).find(|parent| parent.is(VMSS.kind));
        set.map_or_else(|| Self::group(object.subscription(), object.group()), Self::ScaleSet)
    }
}

/// The machines of a holder.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    by_id: BTreeMap<ArmId, Arc<Machine>>,
    by_name: BTreeMap<String, Vec<Arc<Machine>>>,
}

impl Machines {
    fn new(machines: Vec<Machine>) -> Self {
        let mut all = Self::default();
        for machine in machines.into_iter().map(Arc::new) {
            all.by_name.entry(machine.node_name.clone()).or_default().push(machine.clone());
            // A node may also have the name of the machine, if the computer has another.
            let name = machine.id.name().to_ascii_lowercase();
            if !machine.is_uniform() && name != machine.node_name {
                all.by_name.entry(name).or_default().push(machine.clone());
            }
            all.by_id.insert(machine.id.clone(), machine);
        }
        all
    }

    pub(crate) fn get(&self, id: &ArmId) -> Option<&Arc<Machine>> {
        self.by_id.get(id)
    }

    /// The machines whose node has this name, lower-cased. A computer of this name precedes a machine of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<&Arc<Machine>> {
        let all: Vec<&Arc<Machine>> = self.by_name.get(name).into_iter().flatten().collect();
        let computers: Vec<&Arc<Machine>> = all.iter().copied().filter(|machine| machine.node_name == name).collect();
        if computers.is_empty() { all } else { computers }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.by_id.values()
    }
}

/// A list; `None` if what holds it does not exist.
type Listed<T> = Option<T>;
/// The interfaces of a holder, by machine.
pub(crate) type Interfaces = Objects<Vec<Interface>>;
/// Public addresses by the ID of their public IP.
pub(crate) type PublicIps = Objects<IpAddr>;
/// States by machine.
pub(crate) type States = BTreeMap<ArmId, State>;

/// Reads the list of a holder.
type Read<V> = fn(Reader, Holder) -> BoxFuture<'static, Result<V, ApiError>>;

/// Cached lists of one kind.
struct Lists<V> {
    read: Read<V>,
    by_holder: Mutex<BTreeMap<Holder, Cached<V, ApiError>>>,
}

impl<V> fmt::Debug for Lists<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lists")
    }
}

impl<V: Send + Sync + 'static> Lists<V> {
    fn new(read: Read<V>) -> Self {
        Self { read, by_holder: Mutex::default() }
    }

    fn of(&self, reader: &Reader, holder: &Holder) -> Cached<V, ApiError> {
        let read = self.read;
        let new = || {
            let (reader, holder) = (reader.clone(), holder.clone());
            Cached::new(
                move || read(reader.clone(), holder.clone()),
                (|how| ApiError::interrupted(VM_LIST, how)) as fn(Interrupted) -> ApiError,
            )
        };
        self.by_holder.lock().entry(holder.clone()).or_insert_with(new).clone()
    }

    /// A list of at most this age. A failure of an earlier call is not the answer to this one.
    async fn get(
        &self,
        reader: &Reader,
        holder: &Holder,
        age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Stamped<V>, ApiError> {
        let (list, called) = (self.of(reader, holder), Instant::now());
        match list.get(age, not_before).await {
            Err(_) => list.get(age, Some(called)).await,
            read => read,
        }
    }

    /// All that are known, whatever their age.
    fn known(&self) -> Vec<Arc<V>> {
        let lists = self.by_holder.lock();
        lists.values().filter_map(|list| Some(list.last()?.value)).collect()
    }
}

/// What a read needs.
#[derive(Debug, Clone)]
struct Reader {
    client: Client,
    without_view: bool,
}

/// The ages up to which lists are used when nothing is missing in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    sets: Duration,
    instances: Duration,
    machines: Duration,
}

impl Ages {
    pub(crate) fn of(config: &Config) -> Self {
        let ttl = |key: &str, seconds| config.ttl(key, Duration::from_secs(seconds));
        Self {
            sets: ttl("vmssCacheTTLInSeconds", 600),
            instances: ttl("vmssVirtualMachinesCacheTTLInSeconds", 600),
            machines: ttl("nonVmssUniformNodesCacheTTLInSeconds", 900),
        }
    }

    /// The age for the machines and the network objects of a holder.
    pub(crate) fn of_holder(&self, holder: &Holder) -> Duration {
        match holder {
            Holder::ScaleSet(_) => self.instances,
            Holder::Group(..) => self.machines,
        }
    }

    /// The age for the scale sets of a group.
    pub(crate) fn sets(&self) -> Duration {
        self.sets
    }
}

/// The lists of the cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fleet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reader: Reader,
    sets: Lists<Vec<ScaleSet>>,
    machines: Lists<Listed<Machines>>,
    interfaces: Network<Vec<Interface>>,
    public_ips: Network<IpAddr>,
    states: Lists<Option<States>>,
}

impl Fleet {
    pub(crate) fn new(client: Client, without_view: bool) -> Self {
        Self(Arc::new(Inner {
            reader: Reader { client, without_view },
            sets: Lists::new(|reader, holder| reader.sets(holder).boxed()),
            machines: Lists::new(|reader, holder| reader.machines(holder).boxed()),
            interfaces: Network::new(|reader, holder| reader.interfaces(holder).boxed()),
            public_ips: Network::new(|reader, holder| reader.public_ips(holder).boxed()),
            states: Lists::new(|reader, holder| reader.states(holder).boxed()),
        }))
    }

    /// The scale sets of a resource group. Another group than that of the cluster has none if it does not exist.
    pub(crate) async fn sets(&self, group: &Holder, age: Duration) -> Result<Stamped<Vec<ScaleSet>>, ApiError> {
        self.0.sets.get(&self.0.reader, group, age, None).await
    }

    /// The machines of a holder.
    pub(crate) async fn machines(&self, holder: &Holder, age: Duration) -> Result<Stamped<Listed<Machines>>, ApiError> {
        self.0.machines.get(&self.0.reader, holder, age, None).await
    }

    /// When the last read of a holder's machines began.
    pub(crate) fn machines_read(&self, holder: &Holder) -> Option<Instant> {
        self.0.machines.of(&self.0.reader, holder).last().map(|listed| listed.began)
    }

    /// The network interfaces of a holder; if Azure refuses to list those of a scale set, those of the machines with the
    /// IDs.
    pub(crate) async fn interfaces(&self, asked: Asked<'_>) -> Result<Stamped<Interfaces>, ApiError> {
        let Inner { reader, interfaces, .. } = &*self.0;
        interfaces.get(reader, asked, |id| reader.interfaces_of(id)).await
    }

    /// The public IPs of a holder; if Azure refuses to list those of a scale set, the ones with the IDs.
    pub(crate) async fn public_ips(&self, asked: Asked<'_>) -> Result<Stamped<PublicIps>, ApiError> {
        let Inner { reader, public_ips, .. } = &*self.0;
        public_ips.get(reader, asked, |id| reader.public_ip(id)).await
    }

    /// The states of the instances of a uniform scale set, or of all other machines of the subscription of a group; `None`
    /// if Azure refuses to list them.
    pub(crate) async fn states(
        &self,
        holder: &Holder,
        age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Stamped<Option<States>>, ApiError> {
        self.0.states.get(&self.0.reader, holder, age, not_before).await
    }

    /// All machines that were read, whatever their age.
    pub(crate) fn known(&self) -> Vec<Arc<Machine>> {
        let lists = self.0.machines.known();
        lists.iter().filter_map(|list| list.as_ref().as_ref()).flat_map(Machines::iter).cloned().collect()
    }
}

impl Reader {
    async fn sets(self, holder: Holder) -> Result<Vec<ScaleSet>, ApiError> {
        let Holder::Group(subscription, group) = &holder else { return Ok(Vec::new()) };
        let read = |set: Value| ScaleSet::read(&set);
        let sets = self.client.list(VMSS_LIST, subscription, group, Query::default(), read).await?;
        Ok(sets.unwrap_or_default())
    }

    async fn machines(self, holder: Holder) -> Result<Listed<Machines>, ApiError> {
        let read = |machine: Value| Machine::read(&machine);
        let listed = match &holder {
            Holder::Group(subscription, group) => {
                self.client.list(VM_LIST, subscription, group, Query::default(), read).await?
            }
            Holder::ScaleSet(set) => {
                let query = Query::default();
                let query = if self.without_view { query } else { query.with("$expand", "instanceView") };
                self.client.list_in(VMSS_VM_LIST, set, query, read).await?
            }
        };
        Ok(listed.map(Machines::new))
    }

    async fn network<T>(
        &self,
        holder: &Holder,
        of_group: Operation,
        of_set: Operation,
        read: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let listed = match holder {
            Holder::Group(subscription, group) => {
                self.client.list(of_group, subscription, group, Query::default(), read).await?
            }
            Holder::ScaleSet(set) => self.client.list_in(of_set, set, Query::default(), read).await?,
        };
        Ok(listed.unwrap_or_default())
    }

    async fn interfaces(self, holder: Holder) -> Result<Permitted<Vec<Interface>>, ApiError> {
        let read = |interface: Value| Interface::read(&interface);
        let listed = match self.network(&holder, NIC_LIST, VMSS_NIC_LIST, read).await {
            Err(denied) if is_forbidden(&denied) && !holder.is_group() => return Ok(Err(denied)),
            listed => listed?,
        };
        let mut by_machine = BTreeMap::<ArmId, Vec<Interface>>::new();
        for interface in listed {
            by_machine.entry(interface.machine.clone()).or_default().push(interface);
        }
        Ok(Ok(Arc::new(Interfaces::new(by_machine))))
    }

    /// The interfaces of an instance.
    async fn interfaces_of(&self, instance: ArmId) -> Result<Option<Vec<Interface>>, ApiError> {
        let read = |interface: Value| Interface::read(&interface);
        let listed = self.client.list_in(VMSS_VM_NIC_LIST, &instance, Query::default(), read).await?;
        Ok(listed.filter(|listed| !listed.is_empty()))
    }

    async fn public_ips(self, holder: Holder) -> Result<Permitted<IpAddr>, ApiError> {
        match self.network(&holder, PUBLIC_IP_LIST, VMSS_PUBLIC_IP_LIST, |ip| public_ip(&ip)).await {
            Err(denied) if is_forbidden(&denied) && !holder.is_group() => Ok(Err(denied)),
            listed => Ok(Ok(Arc::new(PublicIps::new(listed?.into_iter().collect())))),
        }
    }

    /// The address of an instance's public IP.
    async fn public_ip(&self, id: ArmId) -> Result<Option<IpAddr>, ApiError> {
        let read = self.client.get(VMSS_VM_PUBLIC_IP_GET, &id).await?;
        Ok(read.as_ref().and_then(public_ip).map(|(_, address)| address))
    }

    async fn states(self, holder: Holder) -> Result<Option<States>, ApiError> {
        let query = Query::default();
        let state = |object: Value| {
            let view = object.pointer("/properties/instanceView").filter(|view| !view.is_null())?;
            Some((id(&object, "/id")?, State::read(view)))
        };
        let listed = match &holder {
            Holder::Group(subscription, _) => {
                self.client.list_all(VM_LIST, subscription, query.with("statusOnly", "true"), state).await
            }
            Holder::ScaleSet(set) => {
                self.client.list_in(VMSS_VM_LIST, set, query.with("$expand", "instanceView"), state).await
            }
        };
        let listed = match listed {
            Err(error) if is_forbidden(&error) => return Ok(None),
            // The API version of Azure Stack has no such parameter.
            Err(error) if is_invalid(&error) && matches!(holder, Holder::Group(..)) => return Ok(None),
            listed => listed?.unwrap_or_default(),
        };
        Ok(Some(listed.into_iter().collect()))
    }
}

/// A public IP with an address.
fn public_ip(object: &Value) -> Option<(ArmId, IpAddr)> {
    Some((id(object, "/id")?, text(object, "/properties/ipAddress").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_objects_of_scale_sets_are_listed_with_their_set() {
        let set = ArmId::new("S", "G", VMSS.kind, "ss");
        let interface = set.child("virtualMachines", "1").child("networkInterfaces", "nic");
        let of_set = Holder::ScaleSet(set.clone());
        assert_eq!(Holder::of_network(&interface), of_set);
        let public_ip = interface.child("ipConfigurations", "c").child("publicIPAddresses", "p");
        assert_eq!(Holder::of_network(&public_ip), of_set);
        assert_eq!(Holder::of(&set.child("virtualMachines", "1")), of_set);
        let alone = ArmId::new("S", "G", "Microsoft.Network/networkInterfaces", "nic");
        assert_eq!(Holder::of_network(&alone), Holder::group("s", "g"));
        assert_eq!(
            Holder::of(&ArmId::new("s", "g", "Microsoft.Compute/virtualMachines", "v")),
            Holder::group("S", "G")
        );
    }
}
