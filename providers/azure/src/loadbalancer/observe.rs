//! Reads the cloud's objects for a group of Services. The only part of this module that reads.
//!
//! Two lists and the security group serve all Services. The load balancers show the members of their pools: machines are
//! read only if these are not the wanted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccm_kit::Cluster;
use ccm_kit::http::Query;
use ccm_provider::{NodeRef, ProviderError, ServiceAction};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::claim;
use super::env::{Env, LOAD_BALANCERS, PUBLIC_IPS, SECURITY_GROUPS};
use super::json;
use super::known::{BALANCERS, Known, Reading, SECURITY_GROUP};
use super::late::{Now, Recent};
use super::machines::{Interfaces, Machine};
use super::members::{Members, Missing, scheme_of};
use super::observed::{Facts, Observed, Seen, ServiceFacts};
use super::plan;
use super::refused::Refused;
use super::rests::Parts;
use super::wanted::hosts::{Host, internal_addresses};
use super::wanted::{Item, Wanted};
use crate::client::id::ArmId;
use crate::client::operation::{LB_GET, LB_LIST, NSG_GET, Operation, PLS_LIST, PUBLIC_IP_LIST, SUBNET_GET};
use crate::client::{ApiError, Client};
use crate::node::identity::is_unmanaged;
use crate::node::zones::Zones;

mod machines;
mod models;

/// So many failed members are remembered.
const MOST_FAILED: usize = 1000;

/// The reads, shared by all Services.
#[derive(Debug)]
pub(super) struct Reads {
    client: Client,
    cluster: Cluster,
    zones: Zones,
    /// The machines of interfaces, both by ID in lower case. An interface keeps its machine.
    owners: Mutex<BTreeMap<String, String>>,
    /// Scale sets whose model is to be written: their instances may be members, and would not be read again.
    due_models: Mutex<BTreeSet<ArmId>>,
    /// Whether this process has looked for models that name pools of addresses.
    has_models: AtomicBool,
    /// The sets and the primary interfaces of machines that are no instances, all by ID in lower case; empty: none.
    sets: Mutex<BTreeMap<String, (String, String)>>,
    /// The provider IDs of nodes, with those of nodes that are gone and whose machines may still be members.
    machines: Mutex<BTreeSet<String>>,
    /// See [`Interfaces::settled`]: when, and the host if it is one.
    settled: Mutex<BTreeMap<String, (Instant, Option<Host>)>>,
    /// See [`Observed::failed_members`].
    failed_members: Mutex<Vec<String>>,
    pub(super) known: Known,
    pub(super) recent: Recent,
    pub(super) refused: Refused,
}

/// What the reads that all Services share have shown; what is missing is to be read.
#[derive(Debug, Default)]
pub(super) struct Base {
    balancers: Option<Vec<Arc<Value>>>,
    /// By resource group in lower case.
    public_ips: Option<BTreeMap<String, Seen<Vec<Arc<Value>>>>>,
    /// `Some(None)`: no plan needs it.
    security_group: Option<Option<Seen<Arc<Value>>>>,
    /// What was read for this plan.
    now: Parts,
    /// What else the load balancers need.
    more: Option<More>,
    began: Option<Instant>,
}

/// The private link services, the subnets and the interfaces.
type More = (BTreeMap<String, Seen<Vec<Value>>>, BTreeMap<String, Seen<Value>>, Interfaces);

impl Base {
    /// Forgets what is needed and was not read for this plan; whether there is any.
    pub(super) fn forget(&mut self, needed: Parts) -> bool {
        let due = needed.without(self.now);
        self.more.take_if(|_| due.balancers);
        self.balancers.take_if(|_| due.balancers);
        self.public_ips.take_if(|_| due.public_ips);
        self.security_group.take_if(|_| due.security_group);
        due != Parts::NONE
    }
}

impl Reads {
    pub(super) fn new(client: Client, cluster: Cluster, zones: Zones) -> Self {
        let (owners, due_models, has_models, sets, machines) = Default::default();
        let (settled, failed_members, known, recent, refused) = Default::default();
        Self {
            client,
            cluster,
            zones,
            owners,
            due_models,
            has_models,
            sets,
            machines,
            settled,
            failed_members,
            known,
            recent,
            refused,
        }
    }

    /// What was read in the last minutes.
    pub(super) fn known(&self, env: &Env, wanted: &Wanted) -> Base {
        let (needs_rules, groups) = needs(env, wanted);
        let of_group =
            |group: String| Some((group.clone(), Seen::Present(self.known.get(&group, env.ages.public_ips)?)));
        let group = || self.known.get(SECURITY_GROUP, env.ages.security_group)?.pop();
        Base {
            balancers: self.known.get(BALANCERS, env.ages.balancers),
            public_ips: groups.into_iter().map(of_group).collect(),
            security_group: if needs_rules { group().map(|group| Some(Seen::Present(group))) } else { Some(None) },
            ..Base::default()
        }
    }

    /// Everything that a plan for these Services needs, on the base of what is known. Nothing follows for any Service
    /// if the load balancers, or the zones of the region, could not be read.
    pub(super) async fn observed(
        &self,
        env: &Env,
        wanted: &Wanted,
        base: &mut Base,
    ) -> Result<Observed, ProviderError> {
        base.began.get_or_insert_with(Instant::now);
        let mut observed = self.shared(env, wanted, base).await?;
        if !base.now.balancers && base.more.is_none() && self.needs_more(env, wanted, &mut observed) {
            base.forget(Parts::BALANCERS);
            observed = self.shared(env, wanted, base).await?;
        }
        if let Some((links, subnets, interfaces)) = base.more.clone() {
            return Ok(Observed { links, subnets, interfaces, ..observed });
        }
        self.read_links(env, wanted, &mut observed).await;
        self.read_subnets(env, wanted, &mut observed).await;
        self.read_machines(env, wanted, &mut observed).await;
        base.more = Some((observed.links.clone(), observed.subnets.clone(), observed.interfaces.clone()));
        Ok(observed)
    }

    /// Whether a plan for these Services needs more than the shared reads.
    fn needs_more(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) -> bool {
        self.recall_machines(env, wanted, &mut observed.interfaces);
        let machines: BTreeSet<String> = match env.several.is_empty() {
            true => BTreeSet::new(),
            false => machines::machines_outside(wanted).map(|it| it.id().folded()).collect(),
        };
        observed.interfaces.sets = self.sets_of(machines.iter());
        needs_links(wanted, observed)
            || !needed_subnets(env, wanted, observed).is_empty()
            || observed.interfaces.sets.len() < machines.len()
            || !self.due_models.lock().is_empty()
            || Missing::of(env, observed, wanted) != Missing::default()
    }

    /// What all Services share, without what else a plan needs. What is not known is read.
    async fn shared(&self, env: &Env, wanted: &Wanted, base: &mut Base) -> Result<Observed, ProviderError> {
        let (needs_rules, groups) = needs(env, wanted);
        let balancers = async { if base.balancers.is_none() { Some(self.balancers(env, wanted).await) } else { None } };
        let public_ips = async {
            if base.public_ips.is_some() {
                return None;
            }
            Some(join_all(groups.into_iter().map(|group| self.public_ips(env, group))).await)
        };
        let security_group = async {
            match base.security_group {
                Some(_) => None,
                None if needs_rules => Some(Some(self.security_group(env).await)),
                None => Some(None),
            }
        };
        let (balancers, public_ips, security_group) = futures::join!(balancers, public_ips, security_group);
        if let Some(balancers) = balancers {
            base.balancers = Some(balancers?);
            base.now.balancers = true;
        }
        if let Some(public_ips) = public_ips {
            base.public_ips = Some(public_ips.into_iter().collect());
            base.now.public_ips = true;
        }
        if let Some(security_group) = security_group {
            base.security_group = Some(security_group);
            base.now.security_group = true;
        }
        let balancers = base.balancers.clone().unwrap_or_default();
        let mut public_ips = base.public_ips.clone().unwrap_or_default();
        if needs_rules {
            let former = former_groups(env, wanted, &balancers, &public_ips).into_iter();
            public_ips.extend(join_all(former.map(|group| self.public_ips(env, group))).await);
            base.public_ips = Some(public_ips.clone());
        }
        let security_group = base.security_group.clone().flatten();
        let (refused, kept) = self.refused.of(wanted);
        let is_late = self.is_late(env, &balancers, &public_ips, security_group.as_ref());
        Ok(Observed {
            public_ips,
            security_group,
            zones: self.zones(env, wanted).await.map_err(ProviderError::from)?,
            cluster: self.facts(&balancers),
            balancers,
            refused,
            kept,
            refused_rules: self.refused.of_rules(wanted),
            failed_members: self.failed_members.lock().clone(),
            most_rules: self.refused.most_rules(),
            is_late,
            began: base.began,
            ..Observed::default()
        })
    }

    /// Whether something of what was read is from before a write of this process.
    fn is_late(
        &self,
        env: &Env,
        balancers: &[Arc<Value>],
        public_ips: &BTreeMap<String, Seen<Vec<Arc<Value>>>>,
        security_group: Option<&Seen<Arc<Value>>>,
    ) -> bool {
        let is_late = |kind: Operation, group: &str, read: &[Arc<Value>]| {
            self.recent.is_late(kind.resource.segment(), group, read)
        };
        let mut addresses = public_ips.iter().filter_map(|(group, seen)| Some((group, seen.present()?)));
        let security_group = security_group.and_then(Seen::present);
        is_late(LB_LIST, &env.balancer_group, balancers)
            || addresses.any(|(group, list)| is_late(PUBLIC_IP_LIST, group, list))
            || security_group
                .is_some_and(|group| is_late(NSG_GET, env.security_group_id().group(), std::slice::from_ref(group)))
    }

    /// What the writes of a plan may have changed in the status of Services; all else is as before.
    pub(super) async fn observe_after(&self, env: &Env, before: &Observed) -> Result<Observed, ProviderError> {
        let mut observed = before.clone();
        let written = before.began.map(|began| self.recent.since(began)).unwrap_or_default();
        let written = written.into_iter().filter_map(|(id, now)| Some((ArmId::parse(&id).ok()?, now)));
        let (balancers, others): (Vec<_>, Vec<_>) = written.partition(|(id, _)| id.is(LOAD_BALANCERS));
        for (id, now) in balancers {
            let now = match now {
                Now::Seen(_) | Now::Deleted => now,
                Now::Unseen | Now::Foreign => match self.client.get(LB_GET, &id).await? {
                    Some(balancer) => Now::Seen(balancer.into()),
                    None => Now::Deleted,
                },
            };
            replace(&mut observed.balancers, &id, now);
        }
        for (id, now) in others {
            if let Some(Seen::Present(list)) = observed.public_ips.get_mut(&id.group().to_lowercase())
                && id.is(PUBLIC_IPS)
            {
                replace(list, &id, now);
            }
        }
        let frontends = observed.frontends();
        let ids = frontends.filter_map(|frontend| ArmId::parse(json::reference(frontend, "publicIPAddress")).ok());
        // One that was dynamic has none before the write.
        let has_none =
            |id: &ArmId| observed.public_ip(id.as_str()).is_none_or(|ip| json::property(ip, "ipAddress").is_empty());
        let unknown = ids.filter(has_none).map(|id| id.group().to_lowercase());
        let groups: BTreeSet<String> = unknown.filter(|group| observed.public_ips.contains_key(group)).collect();
        observed.public_ips.extend(join_all(groups.into_iter().map(|group| self.public_ips(env, group))).await);
        Ok(observed)
    }

    /// What a write has made of an object.
    pub(super) fn shows(&self, id: &ArmId, object: Value) {
        let object = Arc::new(object);
        self.known.shows(id, &object);
        self.recent.shows(id, object);
    }

    /// The managed load balancers.
    async fn balancers(&self, env: &Env, wanted: &Wanted) -> Result<Vec<Arc<Value>>, ProviderError> {
        let reading = self.known.reading(BALANCERS);
        let keep = |balancer| Some(Arc::new(balancer));
        let read = self.client.list(LB_LIST, &env.subscription, &env.balancer_group, Query::default(), keep).await;
        let mut balancers = read.map_err(ProviderError::from)?.unwrap_or_default();
        balancers.retain(|balancer| env.manages(&wanted.cluster, json::name(balancer)));
        self.keep(&reading, LB_LIST, &env.balancer_group, &balancers);
        Ok(balancers)
    }

    /// Keeps what was read, unless it is from before a write of this process.
    fn keep(&self, reading: &Reading, operation: Operation, group: &str, read: &[Arc<Value>]) {
        if !self.recent.is_late(operation.resource.segment(), group, read) {
            self.known.keep(reading, read);
        }
    }

    async fn public_ips(&self, env: &Env, group: String) -> (String, Seen<Vec<Arc<Value>>>) {
        let reading = self.known.reading(&group);
        let keep = |ip| Some(Arc::new(ip));
        let read = self.client.list(PUBLIC_IP_LIST, &env.subscription, &group, Query::default(), keep).await;
        // A group that does not exist has none.
        let read = seen(read.map(|list| Some(list.unwrap_or_default())));
        if let Seen::Present(list) = &read {
            self.keep(&reading, PUBLIC_IP_LIST, &group, list);
        }
        (group, read)
    }

    /// The zones of new addresses, if there may be any.
    async fn zones(&self, env: &Env, wanted: &Wanted) -> Result<Vec<String>, ApiError> {
        let is_due = env.extended_location.is_none() && !env.is_stack && wanted.items.values().any(Item::is_whole);
        if is_due { self.zones.of(&env.location).await } else { Ok(Vec::new()) }
    }

    async fn security_group(&self, env: &Env) -> Seen<Arc<Value>> {
        if env.security_group.is_empty() {
            return Seen::Absent;
        }
        let reading = self.known.reading(SECURITY_GROUP);
        let read = seen(self.client.get(NSG_GET, &env.security_group_id()).await.map(|group| group.map(Arc::new)));
        if let Seen::Present(group) = &read {
            self.keep(&reading, NSG_GET, env.security_group_id().group(), std::slice::from_ref(group));
        }
        read
    }

    /// What the cluster shows; `None` before the provider is initialized.
    fn facts(&self, balancers: &[Arc<Value>]) -> Option<Facts> {
        let context = self.cluster.context()?;
        let nodes = context.nodes.list();
        let managed = nodes.iter().filter(|node| !is_unmanaged(node));
        Some(Facts {
            services: context.services.list().iter().map(|service| ServiceFacts::of(service)).collect(),
            nodes: managed.flat_map(|node| internal_addresses(node)).collect(),
            machines: self.machines(&nodes, balancers),
        })
    }

    /// The provider IDs of the nodes, and of those that are gone and whose machines are still members.
    fn machines(&self, nodes: &[NodeRef], balancers: &[Arc<Value>]) -> BTreeSet<String> {
        let owners = self.owners.lock();
        let pools = balancers.iter().flat_map(|balancer| json::items(balancer, "backendAddressPools"));
        let members: BTreeSet<String> = pools.flat_map(|pool| Members::of(pool).machines(&owners)).collect();
        let is_member = |id: &String| Machine::of(id).is_some_and(|machine| machine.is_in(&members));
        let mut known = self.machines.lock();
        known.retain(is_member);
        known.extend(nodes.iter().filter_map(|node| node.provider_id.as_deref().map(str::to_owned)));
        known.clone()
    }

    /// The private link services, if a Service mentions any, or one that it does not mention any more may be in the way.
    async fn read_links(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        if !needs_links(wanted, observed) {
            return;
        }
        let items = wanted.items.values().filter(|item| item.action != ServiceAction::UpdateHosts);
        let named = items.filter(|item| item.may_have_link).map(|item| item.link_group.to_lowercase());
        let groups: BTreeSet<String> = named.chain([env.link_group.to_lowercase()]).collect();
        let reads = groups.into_iter().map(|group| async move {
            let read = self.client.list(PLS_LIST, &env.subscription, &group, Query::default(), Some).await;
            (group, seen(read.map(|list| Some(list.unwrap_or_default()))))
        });
        observed.links = join_all(reads).await.into_iter().collect();
    }

    /// The subnets of new internal frontends and of private link services.
    async fn read_subnets(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        let names = needed_subnets(env, wanted, observed);
        let reads = names.into_iter().map(|name| async move {
            let read = self.client.get(SUBNET_GET, &env.subnet_id(&name)).await;
            (name, seen(read))
        });
        observed.subnets = join_all(reads).await.into_iter().collect();
    }

    /// A write has ended. Those of members that fail are not in the way of the others the next time.
    pub(super) fn ended(&self, id: &ArmId, has_failed: bool) {
        if [LOAD_BALANCERS, PUBLIC_IPS, SECURITY_GROUPS].iter().any(|kind| id.is(kind)) {
            return;
        }
        let id = id.folded();
        let mut failed = self.failed_members.lock();
        failed.retain(|known| *known != id);
        if has_failed {
            // Machines that are gone stay at the beginning.
            let surplus = failed.len().saturating_sub(MOST_FAILED - 1);
            failed.drain(..surplus);
            failed.push(id);
        }
    }
}

/// Puts an object into a list, or removes it.
fn replace(list: &mut Vec<Arc<Value>>, id: &ArmId, now: Now) {
    let is_it = |known: &Value| json::same(json::text(known, &["id"]), id.as_str());
    match now {
        Now::Unseen | Now::Foreign => {}
        Now::Deleted => list.retain(|known| !is_it(known)),
        Now::Seen(object) => match list.iter_mut().find(|known| is_it(known)) {
            Some(known) => *known = object,
            None => list.push(object),
        },
    }
}

fn seen<T>(read: Result<Option<T>, ApiError>) -> Seen<T> {
    match read {
        Ok(Some(value)) => Seen::Present(value),
        Ok(None) => Seen::Absent,
        Err(error) => Seen::Unread(error.into()),
    }
}

/// Whether the work on a Service may change security rules or addresses. What a refused one has may be without floating IP,
/// whatever it asks for by now.
fn needs_rules(item: &Item) -> bool {
    item.action != ServiceAction::UpdateHosts || !item.access.has_floating_ip || item.settings.is_none()
}

/// Whether security rules and addresses are needed, and the resource groups of the addresses in lower case.
fn needs(env: &Env, wanted: &Wanted) -> (bool, BTreeSet<String>) {
    let mut groups = BTreeSet::new();
    let needs_rules = wanted.items.values().any(needs_rules);
    if needs_rules {
        groups.insert(env.group.to_lowercase());
        groups.extend(wanted.items.values().map(|item| item.public_ip_group.to_lowercase()));
    }
    (needs_rules, groups)
}

/// The resource groups that were not read and have addresses of frontends of Services, in lower case: an annotation may
/// have named them before.
fn former_groups(
    env: &Env,
    wanted: &Wanted,
    balancers: &[Arc<Value>],
    read: &BTreeMap<String, Seen<Vec<Arc<Value>>>>,
) -> BTreeSet<String> {
    let frontends = balancers.iter().flat_map(|balancer| json::items(balancer, "frontendIPConfigurations"));
    let is_due = |name: &str| wanted.items.values().any(|item| needs_rules(item) && item.names.own(name));
    let group = |frontend: &Value| {
        let id = ArmId::parse(json::reference(frontend, "publicIPAddress")).ok()?;
        let group = id.group().to_lowercase();
        let is_unread = json::same(id.subscription(), &env.subscription) && !read.contains_key(&group);
        (is_unread && is_due(json::name(frontend))).then_some(group)
    };
    frontends.filter_map(group).collect()
}

fn needs_links(wanted: &Wanted, observed: &Observed) -> bool {
    let mut items = wanted.items.values().filter(|item| item.action != ServiceAction::UpdateHosts);
    items.any(|item| item.may_have_link || loses_frontend(observed, item))
}

/// The names of the subnets that new internal frontends and private link services need.
pub(super) fn needed_subnets(env: &Env, wanted: &Wanted, observed: &Observed) -> BTreeSet<String> {
    let mut names = plan::subnets_of_frontends(env, observed, wanted);
    let links = wanted.items.values().filter_map(|item| item.settings.as_ref()?.link.as_ref());
    names.extend(links.map(|link| link.subnet.clone()));
    names
}

/// Whether a frontend of a Service goes that may have a private link service, also because an internal one is to be in
/// another subnet, or one that it has shared.
fn loses_frontend(observed: &Observed, item: &Item) -> bool {
    observed.balancers.iter().any(|balancer| {
        let stays = item.action == ServiceAction::Ensure && item.scheme == scheme_of(json::name(balancer));
        let served = claim::served(item, balancer);
        let is_wanted = |name: &str| item.families.iter().any(|family| json::same(&item.names.frontend(*family), name));
        let is_lost = |frontend: &&Value| match item.names.own(json::name(frontend)) {
            true => !stays || !is_wanted(json::name(frontend)),
            false => {
                served.iter().any(|id| json::same(id, json::text(frontend, &["id"])))
                    && (!stays || claim::frontend(observed, item, frontend) == claim::Frontend::Foreign)
            }
        };
        let mut lost = json::items(balancer, "frontendIPConfigurations").iter().filter(is_lost);
        lost.any(|frontend| claim::may_have_link(balancer, frontend))
    })
}
