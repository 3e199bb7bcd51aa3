//! The observed cloud state for a group of Services. Only this part of the module reads the cloud.
//!
//! If a balancer shows the update time that was recorded when it last matched the same desired state, its parts are not
//! read. For others, four lists return all but the member fields beyond name, address and port; those are read only if
//! the Service needs them. When nodes change, listeners and pools recorded as matching are not read again
//! ([`Parts`]). Concurrent reads of several Services are combined.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::batch::{Batcher, Limits};
use ccm_kit::{Cached, Stamped};
use ccm_provider::deadline::{READ_DEADLINE, within};
use ccm_provider::{ProviderError, ServiceAction};
use futures::FutureExt;
use futures::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::batched::{Balancers, By, FloatingIps, Groups, Monitors, Subnets};
use super::certificates::Certificates;
use super::claim::{self, Evidence};
use super::names;
use super::observed::{Balancer, Group, Observed, service_tags};
use super::parts::Parts;
use super::wanted::{Item, Target, Wanted};
use crate::annotations::LOAD_BALANCER_ID;
use crate::client::network::{FloatingIp, Network};
use crate::client::octavia::{LoadBalancer, Member, Pool, Tree, Version};
use crate::client::operation::{LB_VERSIONS, NETWORK_LIST};
use crate::client::{ApiError, Client, Query};
use crate::node::ports::NodePorts;

mod left;
mod members;
mod places;

/// An upgrade of Octavia is noticed within this time.
const VERSION_AGE: Duration = Duration::from_secs(3600);
/// After a failure, the version is not read again for this time.
const VERSION_AGAIN: Duration = Duration::from_secs(60);
/// Parts that cannot be read in this time count as unread: the whole observation has [`READ_DEADLINE`].
const PARTS_DEADLINE: Duration = READ_DEADLINE.saturating_sub(Duration::from_secs(30));
/// The workers limit the concurrent requests: a longer window would not collect more.
const WINDOW: Duration = Duration::from_millis(50);

/// The reads, shared by all Services.
#[derive(Debug)]
pub(super) struct Reads {
    client: Client,
    version: Cached<Version, ApiError>,
    /// The time of the last failure to read it.
    version_failed: Mutex<Option<Instant>>,
    monitors: Batcher<Monitors>,
    networks: Cached<Vec<Network>, ApiError>,
    balancers: Batcher<Balancers>,
    floating_ips: Batcher<FloatingIps>,
    groups: Batcher<Groups>,
    subnets: Batcher<Subnets>,
    certificates: Certificates,
    ports: NodePorts,
    pub(super) parts: Parts,
    /// The IDs of balancers that were created and not read since, by name.
    made: Mutex<BTreeMap<String, String>>,
    /// The balancers that this process created, or whose members were nodes of this cluster; see [`claim::known`].
    ours: Mutex<BTreeSet<String>>,
}

impl Reads {
    pub(super) fn new(client: Client, ports: NodePorts) -> Self {
        let (of_version, of_networks) = (client.clone(), client.clone());
        let version = move || {
            let client = of_version.clone();
            async move { client.octavia_version().await }.boxed()
        };
        let networks = move || {
            let client = of_networks.clone();
            async move { client.networks().await }.boxed()
        };
        Self {
            version: Cached::new(version, |how| ApiError::interrupted(LB_VERSIONS, how)),
            version_failed: Mutex::default(),
            monitors: Batcher::new(Monitors(client.clone()), Limits { window_max: WINDOW, ..Limits::of(1000) }),
            networks: Cached::new(networks, |how| ApiError::interrupted(NETWORK_LIST, how)),
            balancers: Batcher::new(Balancers::new(client.clone()), Limits { window_max: WINDOW, ..Limits::of(1000) }),
            floating_ips: Batcher::new(FloatingIps(client.clone()), Limits { window_max: WINDOW, ..Limits::of(100) }),
            groups: Batcher::new(Groups(client.clone()), Limits { window_max: WINDOW, ..Limits::of(1000) }),
            subnets: Batcher::new(Subnets(client.clone()), Limits { window_max: WINDOW, ..Limits::of(1000) }),
            certificates: Certificates::default(),
            ports,
            parts: Parts::default(),
            made: Mutex::default(),
            ours: Mutex::default(),
            client,
        }
    }

    /// Records a created balancer: the next observation need not search for it.
    pub(super) fn made(&self, name: &str, id: &str) {
        self.made.lock().insert(name.to_owned(), id.to_owned());
        self.ours.lock().insert(id.to_owned());
    }

    /// Drops what is known of a deleted balancer.
    pub(super) fn gone(&self, id: &str) {
        self.parts.forget(id);
        self.ours.lock().retain(|known| !known.starts_with(id));
    }

    /// Everything that a plan for these items needs. `nodes`: the addresses of the cluster's nodes. A read that fails
    /// concerns the items that need it.
    pub(super) async fn observe(&self, wanted: &Wanted, nodes: impl Fn() -> Vec<Target>) -> Observed {
        let mut observed = Observed::default();
        match self.version().await {
            Ok(version) => observed.version = version,
            // The members, and deletions, need none.
            Err(error) => {
                let ensured = wanted.items.iter().filter(|(_, item)| item.action == ServiceAction::Ensure);
                observed.unread.extend(ensured.map(|(place, _)| (*place, error.clone().into())));
            }
        }
        let finds = wanted.items.iter().map(|(place, item)| async { (*place, self.find(item).await) });
        for (place, found) in join_all(finds).await {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    observed.unread.insert(place, error);
                    self.instead(wanted.items.get(&place)).await
                }
            };
            if let Some(lb) = found {
                observed.balancer_of.insert(place, lb.id.clone());
                let balancer = Balancer { lb, is_unread: true, ..Balancer::default() };
                observed.balancers.insert(balancer.lb.id.clone(), balancer);
            }
        }
        self.read_floating_ips(&mut observed, wanted).await;
        for (place, item) in &wanted.items {
            let Some(lb) = observed.balancer(*place).map(|balancer| &balancer.lb) else { continue };
            if self.ours.lock().contains(&claim::known(item, lb)) {
                observed.evidence.insert(*place, Evidence::Created);
                continue;
            }
            match self.is_published(item, lb, observed.floating_ip_of(*place), &nodes).await {
                Ok(true) => {
                    observed.evidence.insert(*place, Evidence::Published);
                }
                Ok(false) => {}
                Err(error) => drop(observed.unread.entry(*place).or_insert(error)),
            }
        }
        for (id, whole) in needed(&observed, wanted, &self.parts) {
            let Some(balancer) = observed.balancers.get_mut(&id) else { continue };
            let read = self.read_below(balancer, &whole).map(|read| read.map_err(ProviderError::from));
            if let Err(error) = within("reading the parts of the load balancer", PARTS_DEADLINE, read).await {
                let users = observed.balancer_of.iter().filter(|(_, used)| **used == id);
                observed.unread.extend(users.map(|(place, _)| (*place, error.clone())));
            }
        }
        for (place, item) in &wanted.items {
            let needs = |balancer: &&Balancer| !balancer.is_unread && claim::needs_evidence(item, balancer);
            let is_open = !observed.evidence.contains_key(place);
            let Some(balancer) = observed.balancer(*place).filter(needs).filter(|_| is_open) else { continue };
            match self.evidence(item, balancer, &nodes()).await {
                Ok(evidence) => {
                    if evidence == Evidence::Member {
                        self.ours.lock().insert(claim::known(item, &balancer.lb));
                    }
                    observed.evidence.insert(*place, evidence);
                }
                Err(error) => drop(observed.unread.entry(*place).or_insert(error)),
            }
        }
        for (place, item) in &wanted.items {
            if observed.unread.contains_key(place) {
                continue;
            }
            if let Err(error) = self.left_behind(item, *place, &mut observed, &nodes).await {
                observed.unread.insert(*place, error);
            }
        }
        for (place, item) in &wanted.items {
            let is_busy = observed.balancer(*place).is_some_and(|balancer| !balancer.lb.is_changeable());
            if is_busy || observed.unread.contains_key(place) {
                continue;
            }
            if let Err(error) = self.of_item(item, &mut observed, *place).await {
                observed.unread.insert(*place, error);
            }
            match self.group(item, &observed, *place).await {
                Ok(group) => observed.groups.extend(group.map(|group| (*place, group))),
                Err(error) => drop(observed.group_problems.insert(*place, error)),
            }
        }
        observed
    }

    /// The version of Octavia. It never becomes lower, so an old one serves while the current one cannot be read.
    async fn version(&self) -> Result<Version, ApiError> {
        let is_quiet = self.version_failed.lock().is_some_and(|at| at.elapsed() < VERSION_AGAIN);
        if let Some(last) = self.version.last().filter(|_| is_quiet) {
            return Ok(*last.value);
        }
        let error = match self.version.get(VERSION_AGE, None).await {
            Ok(Stamped { value, .. }) => return Ok(*value),
            Err(error) => error,
        };
        *self.version_failed.lock() = Some(Instant::now());
        match self.version.last() {
            Some(last) => Ok(*last.value),
            None => Err(error),
        }
    }

    /// Reads what an item needs besides the balancer.
    async fn of_item(&self, item: &Item, observed: &mut Observed, place: usize) -> Result<(), ProviderError> {
        let places = self.places(item, observed, place).await?;
        observed.places.extend(places.map(|places| (place, places)));
        // What cannot be read is not reported.
        if self.is_elsewhere(item, observed, place).await.unwrap_or_default() {
            observed.elsewhere.insert(place);
        }
        let problem = self.certificates.problem(&self.client, item).await?;
        observed.bad_certificates.extend(problem.map(|problem| (place, problem)));
        Ok(())
    }

    /// The balancer of a Service: by the recorded ID, else by name, else by the name that older releases used.
    async fn find(&self, item: &Item) -> Result<Option<LoadBalancer>, ProviderError> {
        let made = self.made.lock().remove(&item.name);
        let known = item.annotated.clone().or(made);
        if let Some(id) = &known {
            let found = self.one(By::Id(id.clone())).await;
            let key = LOAD_BALANCER_ID.row.key;
            if let Some(found) = found.map_err(|error| error.wrap(format!("the annotation {key} names {id}")))? {
                return Ok(Some(found));
            }
        }
        let of_today = self.one(By::Name(item.name.clone()));
        // A Service with a known balancer ID is newer than those releases.
        if known.is_some() {
            return of_today.await;
        }
        let (of_today, legacy) = futures::try_join!(of_today, self.one(By::Name(item.legacy.clone())))?;
        Ok(of_today.or(legacy))
    }

    /// The balancer that was created for a Service which names another one that cannot be read: its members follow the
    /// nodes nevertheless.
    async fn instead(&self, item: Option<&Item>) -> Option<LoadBalancer> {
        let item = item.filter(|item| item.annotated.is_some() && item.action != ServiceAction::Delete)?;
        self.one(By::Name(item.name.clone())).await.unwrap_or_default()
    }

    async fn one(&self, by: By) -> Result<Option<LoadBalancer>, ProviderError> {
        let found = self.balancers.ask_one(by.clone()).await?.transpose()?.unwrap_or_default();
        let by_name = matches!(by, By::Name(_));
        let mut living: Vec<LoadBalancer> = found.into_iter().filter(|lb| !by_name || !is_going(lb)).collect();
        match living.len() {
            0 | 1 => Ok(living.pop()),
            several => Err(ProviderError::unknown(format!(
                "multiple results where only one expected: {several} load balancers have the name {:?}; delete those that are \
                 not in use",
                living.first().map(|lb| &*lb.name).unwrap_or_default()
            ))),
        }
    }

    async fn read_floating_ips(&self, observed: &mut Observed, wanted: &Wanted) {
        let reads = wanted.items.iter().map(|(place, item)| {
            let lb = observed.balancer(*place).map(|balancer| &balancer.lb);
            async move { (*place, self.floating_ips_of(item, lb).await) }
        });
        let mut found: BTreeMap<String, FloatingIp> = BTreeMap::new();
        for (place, read) in join_all(reads).await {
            match read {
                Ok(ips) => found.extend(ips.into_iter().map(|ip| (ip.id.clone(), ip))),
                Err(error) => drop(observed.unread.entry(place).or_insert(error.into())),
            }
        }
        observed.floating_ips = found.into_values().collect();
    }

    /// The floating IP of an item, the one with the requested address, and those that it may have lost.
    async fn floating_ips_of(&self, item: &Item, lb: Option<&LoadBalancer>) -> Result<Vec<FloatingIp>, ApiError> {
        // An update of members or an IPv6 address needs no floating IP.
        let is_v6 = match lb {
            Some(lb) => lb.vip_address.contains(':'),
            None => item.hosts.is_v6(),
        };
        if item.action == ServiceAction::UpdateHosts || is_v6 {
            return Ok(Vec::new());
        }
        let port = lb.map(|lb| lb.vip_port_id.clone()).filter(|port| !port.is_empty());
        let bound = match port {
            Some(port) => self.floating_ips.ask_one(port).await?,
            None => None,
        };
        let mut queries = Vec::new();
        let descriptions = [&item.descriptions.floating_ip, &item.descriptions.replaced_ip];
        let of_service = || Query::default().each("description", descriptions.into_iter().map(String::as_str));
        match &item.settings {
            Some(settings) if !settings.is_internal => {
                let address = &settings.floating.address;
                if !address.is_empty() && bound.as_ref().is_none_or(|ip| ip.floating_ip_address != *address) {
                    queries.push(Query::default().with("floating_ip_address", address));
                }
                // A floating IP that lost its balancer is reused, also for a balancer created since. An interrupted move
                // to another one has left the noted one.
                let has_moved = |ip: &FloatingIp| {
                    ip.floating_ip_address == *address
                        && item.noted_address.as_ref().is_some_and(|noted| noted != address)
                };
                if bound.as_ref().map_or(lb.is_some() || item.annotated.is_some(), has_moved) {
                    queries.push(of_service());
                }
            }
            Some(_) => {}
            None => queries.push(of_service()),
        }
        let lists = try_join_all(queries.into_iter().map(|query| self.client.floating_ips(query))).await?;
        Ok(bound.into_iter().chain(lists.into_iter().flatten()).collect())
    }

    /// The balancer of a Service that may not exist any more, with its parts.
    pub(super) async fn whole(&self, lb: &LoadBalancer) -> Result<Balancer, ApiError> {
        let mut balancer = Balancer { lb: lb.clone(), ..Balancer::default() };
        self.read_below(&mut balancer, &Below::default()).await?;
        Ok(balancer)
    }

    async fn read_below(&self, balancer: &mut Balancer, whole: &Below<'_>) -> Result<(), ApiError> {
        let id = balancer.lb.id.clone();
        if let Some(owner) = whole.owner {
            balancer.listeners = self.client.listeners(&id).await?;
            if balancer.service_tags().all(|tag| tag == owner.name) && !claim::may_be_copied(owner, balancer) {
                return Ok(());
            }
        }
        // The tree costs one call instead of one for each pool.
        let tree = async { Ok(self.client.status_tree(&id).await?.map(Tree::members)) };
        let parts = async {
            match self.parts.of(&balancer.lb).filter(|_| whole.hosts_only) {
                Some(kept) => Ok(kept),
                None => futures::try_join!(self.client.listeners(&id), self.client.pools(&id)),
            }
        };
        let ((listeners, pools), of_tree) = futures::try_join!(parts, tree)?;
        let reads_members = whole.members || of_tree.is_none();
        let mut members = of_tree.unwrap_or_default();
        let of_pools = pools.iter().map(|pool| &pool.healthmonitor_id).filter(|id| !id.is_empty());
        for (_, monitor) in self.monitors.ask(of_pools.cloned().collect::<Vec<_>>()).await {
            match monitor.and_then(Option::transpose) {
                Ok(monitor) => balancer.monitors.extend(monitor),
                Err(error) => balancer.unread_monitors = Some(error.into()),
            }
        }
        // Members may still have kube-proxy's health check port when the Service no longer needs it.
        let checked = balancer.monitors.iter().any(|monitor| monitor.kind == "HTTP");
        let unchecked = pools.iter().any(|pool| pool.healthmonitor_id.is_empty());
        let reads_all = reads_members || checked || balancer.unread_monitors.is_some() || (whole.monitors && unchecked);
        // The tree has only the pools that listeners show.
        let is_read = |pool: &&Pool| reads_all || !pool.listeners.is_empty() && !members.contains_key(&pool.id);
        let all = pools.iter().filter(is_read);
        let all = all.map(|pool| async { Ok((pool.id.clone(), self.client.members(&pool.id).await?)) });
        let all: Vec<(String, Vec<Member>)> = try_join_all(all).await.map_err(|error: ApiError| error)?;
        balancer.whole = all.iter().map(|(pool, _)| pool.clone()).collect();
        members.extend(all);
        (balancer.is_unread, balancer.listeners, balancer.pools, balancer.members) = (false, listeners, pools, members);
        Ok(())
    }

    /// The security group of a Service, if groups are managed or one may be left over.
    async fn group(&self, item: &Item, observed: &Observed, place: usize) -> Result<Option<Group>, ProviderError> {
        let managed = Some(&item.hosts).filter(|hosts| hosts.manages_group && item.action != ServiceAction::Delete);
        // A balancer that matches its record had no group when it was recorded.
        let may_be_left = match item.action {
            ServiceAction::Delete => true,
            ServiceAction::Ensure => match observed.balancer(place) {
                Some(balancer) => !balancer.is_unread,
                // It was deleted by hand, unless the Service is new.
                None => item.annotated.is_some() || !item.published.is_empty(),
            },
            ServiceAction::UpdateHosts => false,
        };
        if managed.is_none() && !may_be_left {
            return Ok(None);
        }
        let mut found = self.groups.ask_one(item.group.clone()).await?.unwrap_or_default();
        if found.len() > 1 {
            return Err(ProviderError::unknown(format!(
                "{} security groups have the name {:?}: delete those that are not in use",
                found.len(),
                item.group
            )));
        }
        let (existing, with_group) = found.pop().unzip();
        let mut group = Group { group: existing, with_group: with_group.unwrap_or_default(), ..Group::default() };
        if let Some(hosts) = managed {
            let servers = hosts.members.iter().filter_map(|member| member.server.clone()).collect();
            let unknown = hosts.members.iter().find(|member| member.server.is_none() && !member.is_elsewhere);
            group.unknown_node = unknown.map(|member| member.node.clone());
            let ports = self.ports.with_subports(&servers).await?;
            group.ports = ports.into_values().flatten().collect();
            group.subnet = match observed.source_subnet(place, item) {
                Some(id) => self.subnets.ask_one(id).await?.transpose()?,
                None => None,
            };
            if let Some(balancer) = observed.balancer(place).filter(|_| item.action == ServiceAction::Ensure) {
                self.kept_subnets(item, balancer, &mut group).await?;
            }
        }
        Ok(Some(group).filter(|group| managed.is_some() || group.group.is_some()))
    }

    /// The subnets of members that stay where they are.
    async fn kept_subnets(&self, item: &Item, balancer: &Balancer, group: &mut Group) -> Result<(), ProviderError> {
        let (ports, is_kept) = (&item.hosts.node_ports, item.keeps_subnets(&balancer.lb));
        let mut found = balancer.subnets_behind(ports);
        // A new group needs all its rules at once. The members of an own balancer are in another subnet only after a
        // change of the configuration: then a rule is from there.
        let is_needed = group.group.is_none() || !is_kept && group.lets_others_in(item, &balancer.lb);
        if found.is_none() && is_needed {
            let mut whole = Balancer { lb: balancer.lb.clone(), ..Balancer::default() };
            self.read_below(&mut whole, &Below { members: true, ..Below::default() }).await?;
            found = whole.subnets_behind(ports);
        }
        group.has_unknown_subnets = found.is_none() && is_kept;
        for id in found.unwrap_or_default() {
            if group.subnet.as_ref().is_some_and(|subnet| subnet.id == id) {
                continue;
            }
            match self.subnets.ask_one(id).await?.transpose()? {
                Some(subnet) => group.kept_subnets.push(subnet),
                None => group.has_unknown_subnets = true,
            }
        }
        Ok(())
    }
}

fn is_going(lb: &LoadBalancer) -> bool {
    matches!(&*lb.provisioning_status, "DELETED" | "PENDING_DELETE")
}

/// The parts of a balancer to read.
#[derive(Default)]
struct Below<'w> {
    /// Only the listeners, if none has the tag of another Service than this one, whose balancer goes.
    owner: Option<&'w Item>,
    /// The member fields beyond name, address and port: the health check port, the subnet.
    members: bool,
    /// The same if a pool has no health monitor: one will be created.
    monitors: bool,
    /// Only nodes change, and the rest matched.
    hosts_only: bool,
}

/// The balancers whose parts are read.
fn needed<'w>(observed: &Observed, wanted: &'w Wanted, parts: &Parts) -> BTreeMap<String, Below<'w>> {
    let mut needed: BTreeMap<String, Below<'_>> = BTreeMap::new();
    for (place, id) in &observed.balancer_of {
        let Some((item, balancer)) = wanted.items.get(place).zip(observed.balancers.get(id)) else { continue };
        // Nothing can be planned yet.
        if !balancer.lb.is_changeable() {
            continue;
        }
        let made_by_us = names::is_service_tag(&balancer.lb.name) || balancer.lb.name == item.legacy;
        let is_known = observed.evidence.contains_key(place) || !claim::needs_evidence(item, balancer);
        let goes_whole = item.action == ServiceAction::Delete
            && !wanted.deletes_part_by_part
            && made_by_us
            && is_known
            && service_tags(&balancer.lb.tags).all(|tag| tag == item.name);
        let is_as_noted = || is_known && super::applied::is_as_noted(item, &balancer.lb, observed);
        if !parts.may_be_older(&balancer.lb) && is_as_noted() {
            continue;
        }
        let owner = goes_whole.then_some(item);
        let new = Below { owner, hosts_only: true, ..Below::default() };
        let below = needed.entry(id.clone()).or_insert(new);
        below.owner = below.owner.filter(|other| owner.is_some_and(|owner| owner.name == other.name));
        below.members |= item.keeps_subnets(&balancer.lb);
        below.hosts_only &= item.action == ServiceAction::UpdateHosts && item.applied.is_some();
        if item.settings.as_ref().is_some_and(|settings| settings.monitor.is_some()) {
            // Another program may have left members with the health check port of a former monitor.
            let is_known = item.has_matched_at(&balancer.lb.updated_at) || parts.of(&balancer.lb).is_some();
            let is_of_others = !item.published.is_empty() && !is_known;
            below.members |= item.hosts.health_check_port.is_some() || is_of_others;
            below.monitors = true;
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
    use ccm_provider::{Service, ServiceWork};

    use super::*;
    use crate::loadbalancer::env::Env;
    use crate::world::World;

    fn wanted(action: ServiceAction) -> Wanted {
        let mut service = Service::default();
        service.metadata.name = "web".into();
        service.spec.ports.push(ccm_provider::ServicePort::default());
        super::super::wanted::wanted(&Env::default(), "c", &[ServiceWork::new(&service, &[], action)], &Vec::new).0
    }

    #[tokio::test]
    async fn a_version_that_was_read_once_serves_while_it_cannot_be_read() {
        let world = World::with(0).await;
        let reads = Reads::new(world.client.clone(), NodePorts::new(world.client.clone()));
        let (ensure, delete) = (wanted(ServiceAction::Ensure), wanted(ServiceAction::Delete));
        let is_unread = async |wanted| !reads.observe(wanted, Vec::new).await.unread.is_empty();
        let broken = || Rule::every(Fault::Html { status: 503 }).on("load-balancer", "version_list");
        world.cloud.fault(broken());
        assert!(is_unread(&ensure).await);
        assert!(!is_unread(&delete).await, "a deletion needs none");
        world.cloud.faults(Faults::clear);
        tokio::time::pause();
        tokio::time::advance(VERSION_AGAIN).await;
        tokio::time::resume();
        let version = reads.version().await.unwrap();
        world.cloud.fault(broken());
        tokio::time::pause();
        tokio::time::advance(VERSION_AGE).await;
        tokio::time::resume();
        world.calls();
        assert_eq!(reads.version().await.unwrap(), version);
        assert_eq!(reads.version().await.unwrap(), version);
        assert_eq!(world.calls().len(), 1, "the failure is remembered");
    }

    #[tokio::test]
    async fn a_health_monitor_that_cannot_be_read_fails_only_its_own_readers() {
        let world = World::with(0).await;
        let reads = Reads::new(world.client.clone(), NodePorts::new(world.client.clone()));
        let [unread, gone] = ["0badbad0-1111-4222-8333-444455556666", "0badbad0-1111-4222-8333-444455557777"];
        let broken = Rule::every(Fault::Html { status: 503 }).on("load-balancer", "loadbalancer_healthmonitor_get");
        world.cloud.fault(Rule { params: Some(unread.to_owned()), ..broken });
        let found: BTreeMap<String, _> =
            reads.monitors.ask([unread, gone].map(str::to_owned)).await.into_iter().collect();
        let is_unread = |id: &str| found.get(id).is_some_and(|found| !matches!(found, Ok(None | Some(Ok(_)))));
        assert_eq!([unread, gone].map(is_unread), [true, false]);
    }

    /// Besides, each that the list lacks is asked for alone: it may be of another project.
    #[tokio::test]
    async fn one_list_has_the_health_monitors_of_all_balancers() {
        let world = World::with(0).await;
        let reads = Reads::new(world.client.clone(), NodePorts::new(world.client.clone()));
        world.calls();
        let ids = (0..8).map(|number| format!("0badbad0-1111-4222-8333-44445555666{number}"));
        join_all(ids.map(|id| reads.monitors.ask([id]))).await;
        let mut calls = world.calls();
        assert_eq!(calls.remove(0), "load-balancer:loadbalancer_healthmonitor_list");
        assert_eq!(calls, vec!["load-balancer:loadbalancer_healthmonitor_get"; 8]);
    }

    /// Gateways send a 404 of their own.
    #[tokio::test]
    async fn only_a_404_in_the_form_of_the_service_shows_that_an_object_is_gone() {
        let world = World::with(0).await;
        let id = "0badbad0-1111-4222-8333-444455556666";
        let client = &world.client;
        for body in [
            r#"{"error": {"code": 404, "message": "no route"}}"#,
            r#"{"message": "no Route matched with those values"}"#,
            r#"{"itemNotFound": {"code": 404, "message": "x"}}"#,
            r#"{"code": 404, "title": "Not Found", "detail": "x"}"#,
            r#"{"fault": {"message": "x"}}"#,
            "",
        ] {
            let fault = || Fault::Status { status: 404, body: body.to_owned() };
            for (service, action) in [("load-balancer", "loadbalancer_get"), ("network", "subnet_get")] {
                world.cloud.fault(Rule::every(fault()).on(service, action));
            }
            client.load_balancer(id).await.unwrap_err();
            client.subnet(id).await.unwrap_err();
            world.cloud.faults(Faults::clear);
        }
        assert!(client.load_balancer(id).await.unwrap().is_none());
        assert!(client.subnet(id).await.unwrap().is_none());
        world.calls();
        for odd in ["", "x y", "a/b", "../ports", "x?y", "x\n"] {
            assert!(client.load_balancer(odd).await.unwrap().is_none());
            assert!(client.subnet(odd).await.unwrap().is_none());
        }
        assert_eq!(world.calls(), [""; 0], "no object can have such an ID");
    }
}
