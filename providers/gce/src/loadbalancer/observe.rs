//! Reads the cloud's objects for a group of Services. The only part of this module that reads.
//!
//! First the forwarding rules; then the objects with the names of the Services and of the cluster, each once for all
//! Services; finally reserved addresses, if a rule will be created. Leftovers of an interrupted change are looked for
//! once in the lifetime of the process, and again after each change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::batch::{Bulk, Interrupted, Limits};
use ccm_kit::{Known, lock};
use ccm_provider::{ProviderError, ServiceAction};
use futures::future::try_join_all;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use super::Env;
use super::desired::{Desired, Item};
use super::hosts::Host;
use super::missing::Missing;
use super::observed::Observed;
use super::plan;
use super::surroundings::{NetworkFacts, Surroundings};
use super::tags;
use crate::annotations::Scheme;
use crate::client::balancing::{
    Address, BackendService, ForwardingRule, GroupMember, InstanceGroup, Named, TargetPool,
};
use crate::client::filter::Filter;
use crate::client::operation::{
    ADDRESS_GET, ADDRESS_LIST, BACKEND_SERVICE_GET, BACKEND_SERVICE_LIST, FIREWALL_GET, FIREWALL_LIST,
    FORWARDING_RULE_GET, FORWARDING_RULE_LIST, HEALTH_CHECK_GET, HEALTH_CHECK_LIST, HTTP_HEALTH_CHECK_GET,
    HTTP_HEALTH_CHECK_LIST, INSTANCE_GROUP_FILTER, INSTANCE_GROUP_GET, INSTANCE_GROUP_INSTANCES, INSTANCE_LIST,
    Operation, TARGET_POOL_GET, TARGET_POOL_LIST,
};
use crate::client::resource::{Scope, last_part};
use crate::client::{ApiError, Client, is_forbidden};
use crate::ownership::{ClusterNames, Names};

/// The tags of instances are read again after this time.
const TAGS_AGE: Duration = Duration::from_secs(60);
/// Zones requested within this time belong to one sync.
const WINDOW: Duration = Duration::from_millis(20);
/// If there are more objects of a kind than this, they are read with one list.
const ONE_BY_ONE: usize = 2;
/// A list for more names than this has no filter: after a start, all Services are synced.
const MOST_NAMES: usize = 20;

/// The reads, shared by all Services.
#[derive(Debug)]
pub(super) struct Reads {
    client: Client,
    surroundings: Arc<dyn Surroundings>,
    tags: Known<ZoneTags>,
    pub(super) missing: Missing,
    /// The balancers without leftovers, with their shape.
    settled: Mutex<BTreeMap<String, Shape>>,
    /// Lists that the caller has no permission for.
    unlisted: Mutex<BTreeSet<Operation>>,
}

/// The tag of each instance, by zone and name.
type Tags = BTreeMap<String, Arc<BTreeMap<String, Option<String>>>>;

/// The tags of the instances of zones.
#[derive(Debug, Clone)]
struct ZoneTags(Client);

#[async_trait]
impl Bulk for ZoneTags {
    type Item = String;
    type Answer = Arc<BTreeMap<String, Option<String>>>;
    type Error = ApiError;

    async fn call(&self, zones: &[String]) -> Result<BTreeMap<String, Self::Answer>, ApiError> {
        let of_zone = async |zone: &String| {
            let list = self.0.instances(zone, "").await?;
            let tag = |name: &str, tags: &[String]| tags::tag_of(name, tags).map(str::to_owned);
            let all = list.into_iter().map(|instance| (tag(&instance.name, &instance.tags.items), instance.name));
            Ok((zone.clone(), Arc::new(all.map(|(tag, name)| (name, tag)).collect())))
        };
        try_join_all(zones.iter().map(of_zone)).await.map(BTreeMap::from_iter)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(INSTANCE_LIST, how)
    }
}

/// The objects to read, by name.
#[derive(Debug, Default)]
struct Needs {
    addresses: BTreeSet<String>,
    pools: BTreeSet<String>,
    backends: BTreeSet<String>,
    firewalls: BTreeSet<String>,
    http_checks: BTreeSet<String>,
    checks: BTreeSet<String>,
    /// The zones whose groups are read with their members.
    members: BTreeSet<String>,
    /// Whether the groups of all zones may be deleted.
    all_groups: bool,
    tagged: BTreeSet<Host>,
}

impl Needs {
    /// The hosts whose tags firewall rules are for, unless the tags are configured.
    fn tagged_of(&mut self, env: &Env, item: &Item) {
        if env.node_tags.is_empty() {
            self.tagged.extend(item.hosts.all());
        }
    }

    /// The backend services of an internal balancer: that of its rule, or without a rule all that it may have had.
    fn backends_of(&mut self, rule: Option<&ForwardingRule>, names: &Names, cluster: ClusterNames<'_>) {
        match rule.filter(|rule| plan::real_scheme(rule) == Scheme::Internal) {
            Some(rule) => self.backends.extend(plan::backend_name(rule)),
            None => {
                self.backends.insert(names.balancer.clone());
                self.backends.extend(cluster.shared_backend_services());
            }
        }
    }
}

impl Reads {
    pub(super) fn new(client: Client, surroundings: Arc<dyn Surroundings>) -> Self {
        let tags = ZoneTags(client.clone());
        let limits = Limits { window_max: WINDOW, ..Limits::of(64) };
        Self {
            client,
            surroundings,
            tags: Known::new(tags, limits, TAGS_AGE, Duration::ZERO),
            missing: Missing::default(),
            settled: Mutex::default(),
            unlisted: Mutex::default(),
        }
    }

    /// Whether a balancer had no leftovers when it was last observed, and still has the same shape.
    fn is_settled(&self, item: &Item) -> bool {
        let settled = lock(&self.settled);
        settled.get(&item.names.balancer).is_some_and(|shape| Some(*shape) == shape_of(item))
    }

    /// Records that there are no leftovers.
    pub(super) fn settle(&self, item: &Item) {
        let mut settled = lock(&self.settled);
        settled.extend(shape_of(item).map(|shape| (item.names.balancer.clone(), shape)));
    }

    /// Records that there may be leftovers.
    pub(super) fn unsettle(&self, balancer: &str) {
        lock(&self.settled).remove(balancer);
    }

    /// Everything that a plan for these items needs.
    pub(super) async fn observe(&self, env: &Env, desired: &Desired) -> Result<Observed, ProviderError> {
        let is_internal =
            |item: &Item| item.scheme == Scheme::Internal && (item.settings.is_some() || item.is_by_name());
        let network = async {
            match desired.items.values().any(is_internal) {
                true => self.surroundings.network().await,
                false => Ok(NetworkFacts::default()),
            }
        };
        let (cluster_id, network) = futures::try_join!(self.surroundings.cluster_id(), network)?;
        let mut observed = Observed { cluster_id, network, ..Observed::default() };
        let with_rule = desired.items.values().filter(|item| needs_rule(env, item));
        let rules = with_rule.map(|item| item.names.balancer.clone()).collect();
        observed.rules = self.each((FORWARDING_RULE_GET, FORWARDING_RULE_LIST), &env.region(), rules).await?;
        let mut needs = Needs::default();
        for item in desired.items.values().filter(|item| !item.is_refused() || item.serves) {
            self.needs(env, &observed, item, &mut needs);
        }
        self.read(env, needs, &mut observed).await?;
        self.read_lost(env, desired, &mut observed).await?;
        self.read_replaced(desired, &mut observed).await?;
        self.read_missing(desired, &mut observed).await?;
        self.read_unused(env, desired, &mut observed).await?;
        let looked_for: BTreeSet<String> =
            desired.items.values().filter_map(|item| plan::address_to_look_for(env, &observed, item)).collect();
        let found = looked_for.iter().map(async |ip| Ok::<_, ApiError>((ip.clone(), self.reserved(env, ip).await?)));
        for (ip, address) in try_join_all(found).await? {
            observed.reserved.extend(address.map(|address| (ip, address)));
        }
        Ok(observed)
    }

    /// The health checks that Services replace, and their firewall rules: the shared ones by their own, or vice versa.
    async fn read_replaced(&self, desired: &Desired, observed: &mut Observed) -> Result<(), ProviderError> {
        let replacing = desired.items.values().filter(|item| plan::replaces_shared(observed, item));
        let schemes: BTreeSet<Scheme> = replacing.map(|item| item.scheme).collect();
        let id = observed.cluster_id.clone();
        let cluster = ClusterNames(&id);
        for scheme in schemes {
            let (of, to, firewall) = match scheme {
                Scheme::External => (
                    (HTTP_HEALTH_CHECK_GET, HTTP_HEALTH_CHECK_LIST),
                    &mut observed.http_checks,
                    cluster.external_check_firewall(),
                ),
                Scheme::Internal => {
                    ((HEALTH_CHECK_GET, HEALTH_CHECK_LIST), &mut observed.checks, cluster.internal_check_firewall())
                }
            };
            let (checks, firewalls) = futures::try_join!(
                self.each(of, &Scope::Global, [cluster.health_check()].into()),
                self.each((FIREWALL_GET, FIREWALL_LIST), &Scope::Global, [firewall].into())
            )?;
            to.extend(checks);
            observed.firewalls.extend(firewalls);
        }
        let left = desired.items.values().filter_map(|item| plan::left_check_firewall(observed, item));
        let left = left.filter(|name| !observed.firewalls.contains_key(name)).collect();
        observed.firewalls.extend(self.each((FIREWALL_GET, FIREWALL_LIST), &Scope::Global, left).await?);
        Ok(())
    }

    /// Whether something uses the shared objects: a deletion that finds nothing else may follow an interrupted creation.
    async fn read_unused(&self, env: &Env, desired: &Desired, observed: &mut Observed) -> Result<(), ProviderError> {
        let id = observed.cluster_id.clone();
        let (check, group) = (ClusterNames(&id).health_check(), ClusterNames(&id).instance_group());
        let is_doubtful = |item: &&Item| {
            let name = &item.names.balancer;
            let has_own = observed.rules.contains_key(name) || observed.pools.contains_key(name);
            let is_left = match item.scheme {
                Scheme::External => observed.http_checks.contains_key(&check),
                Scheme::Internal => {
                    observed.checks.contains_key(&check)
                        || observed.groups.values().any(|zone| zone.contains_key(&group))
                }
            };
            item.action == ServiceAction::Delete && !item.begun.contains(&item.scheme) && !has_own && is_left
        };
        let kinds: BTreeSet<Scheme> = desired.items.values().filter(is_doubtful).map(|item| item.scheme).collect();
        for kind in kinds {
            let uses = |urls: &[String], name: &str| urls.iter().any(|url| last_part(url) == name);
            let (region, all) = (env.region(), Filter::default());
            let is_used = match kind {
                Scheme::External => self
                    .client
                    .list::<TargetPool>(TARGET_POOL_LIST, &region, &all)
                    .await
                    .map(|pools| pools.iter().any(|pool| uses(&pool.health_checks, &check))),
                Scheme::Internal => {
                    self.client.list::<BackendService>(BACKEND_SERVICE_LIST, &region, &all).await.map(|all| {
                        let is_user = |it: &BackendService| {
                            uses(&it.health_checks, &check) || it.groups().any(|it| last_part(it) == group)
                        };
                        all.iter().any(is_user)
                    })
                }
            };
            match is_used {
                Ok(is_used) => observed.unused.extend((!is_used).then_some(kind)),
                Err(error) if is_forbidden(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The rules of balancers whose hosts change and that were not found as the Service describes them, and what is
    /// behind these rules: it may ask for another kind by now, which was never ensured.
    async fn read_lost(&self, env: &Env, desired: &Desired, observed: &mut Observed) -> Result<(), ProviderError> {
        let is_lost = |observed: &Observed, item: &Item| item.is_by_name() && !plan::is_found(observed, item);
        let lost: Vec<&Item> = desired.items.values().filter(|item| is_lost(observed, item)).collect();
        let names: BTreeSet<String> = lost.iter().map(|item| item.names.balancer.clone()).collect();
        let unread = names.into_iter().filter(|name| !observed.rules.contains_key(name)).collect();
        let rules = self.each((FORWARDING_RULE_GET, FORWARDING_RULE_LIST), &env.region(), unread).await?;
        observed.rules.extend(rules);
        let mut needs = Needs::default();
        for item in lost {
            if let Some(kind) = observed.rule(&item.names).and_then(|_| plan::existing(observed, item)) {
                if kind == Scheme::Internal && observed.network == NetworkFacts::default() {
                    observed.network = self.surroundings.network().await?;
                }
                self.needs_of_hosts(env, observed, item, kind, &mut needs);
            }
        }
        self.read(env, needs, observed).await
    }

    /// The hosts that do not exist. Those that were found are looked for again after a while: an instance may come back
    /// with its name.
    async fn read_missing(&self, desired: &Desired, observed: &mut Observed) -> Result<(), ProviderError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let hosts: BTreeSet<&Host> = desired.items.values().flat_map(|item| item.hosts.known.keys()).collect();
        let members = observed.groups.values().flat_map(|groups| groups.values()).flatten();
        self.missing.seen(members.chain(observed.tags.keys()));
        let due = self.missing.due(&hosts);
        let read = due.into_iter().map(async |host| {
            let found = self.client.instance(&host.zone, &host.name).await;
            Ok::<_, ApiError>((host, found?.is_some()))
        });
        for (host, exists) in try_join_all(read).await? {
            match exists {
                true => self.missing.seen([&host]),
                false => self.missing.add(host),
            }
        }
        observed.missing.extend(hosts.into_iter().filter(|host| self.missing.contains(host)).cloned());
        Ok(())
    }

    /// Collects the objects that a plan for one item needs.
    fn needs(&self, env: &Env, observed: &Observed, item: &Item, needs: &mut Needs) {
        let rule = observed.rules.get(&item.names.balancer);
        if !item.is_by_name() {
            for scheme in plan::leaving(item, rule) {
                self.needs_to_leave(env, observed, item, scheme, needs);
            }
        }
        if item.is_by_name() {
            let kind = rule.map_or(item.scheme, plan::real_scheme);
            self.needs_of_hosts(env, observed, item, kind, needs);
            return;
        }
        let Some(settings) = &item.settings else { return };
        let cluster = ClusterNames(&observed.cluster_id);
        let names = &item.names;
        let is_settled = self.is_settled(item);
        match item.scheme {
            Scheme::External => {
                needs.pools.insert(names.balancer.clone());
                let check = settings.health_port.map(|_| names.external_check_firewall());
                needs.firewalls.extend([names.firewall(), check.unwrap_or_else(|| cluster.external_check_firewall())]);
                // Replacing the health check of a pool also replaces the rule.
                let own = settings.health_port.is_some() || rule.is_none();
                needs.http_checks.extend(own.then(|| names.balancer.clone()));
                needs.http_checks.extend(settings.health_port.is_none().then(|| cluster.health_check()));
                let deny = env.options.denies || env.options.removes_deny_rules;
                needs.firewalls.extend(deny.then(|| names.deny_firewall()));
            }
            Scheme::Internal => {
                let shared = plan::shared_backend_name(observed, settings);
                needs.backends.insert(shared.unwrap_or_else(|| names.balancer.clone()));
                needs.members.extend(plan::group_hosts(observed, &item.hosts).into_iter().map(|host| host.zone));
                let check = settings.health_port.map(|_| names.internal_check_firewall());
                needs.firewalls.extend([names.firewall(), check.unwrap_or_else(|| cluster.internal_check_firewall())]);
                let own = settings.health_port.is_some() || !is_settled;
                needs.checks.extend(own.then(|| names.balancer.clone()));
                needs.checks.extend(settings.health_port.is_none().then(|| cluster.health_check()));
                needs.backends_of(rule, names, cluster);
                needs.firewalls.extend((!is_settled).then(|| names.balancer.clone()));
            }
        }
        needs.tagged_of(env, item);
        if !is_settled {
            needs.addresses.insert(names.balancer.clone());
        }
    }

    /// Collects the objects that hold the hosts of a balancer of this kind, and follow their tags.
    fn needs_of_hosts(&self, env: &Env, observed: &Observed, item: &Item, kind: Scheme, needs: &mut Needs) {
        let (cluster, names) = (ClusterNames(&observed.cluster_id), &item.names);
        let check_firewalls = match kind {
            Scheme::External => {
                needs.pools.insert(names.balancer.clone());
                [names.external_check_firewall(), cluster.external_check_firewall()]
            }
            Scheme::Internal => {
                let of_rule = observed.rule(names).and_then(plan::backend_name);
                let shared = || item.settings.as_ref().and_then(|it| plan::shared_backend_name(observed, it));
                needs.backends.insert(of_rule.or_else(shared).unwrap_or_else(|| names.balancer.clone()));
                needs.members.extend(plan::group_hosts(observed, &item.hosts).into_iter().map(|host| host.zone));
                [names.internal_check_firewall(), cluster.internal_check_firewall()]
            }
        };
        if env.node_tags.is_empty() {
            needs.firewalls.extend([names.firewall()].into_iter().chain(check_firewalls));
        }
        needs.tagged_of(env, item);
    }

    /// Collects the objects to delete with a balancer of this kind.
    fn needs_to_leave(&self, env: &Env, observed: &Observed, item: &Item, scheme: Scheme, needs: &mut Needs) {
        let (cluster, names) = (ClusterNames(&observed.cluster_id), &item.names);
        needs.addresses.insert(names.balancer.clone());
        needs.firewalls.insert(names.firewall());
        match scheme {
            Scheme::External => {
                needs.pools.insert(names.balancer.clone());
                needs.http_checks.extend([names.balancer.clone(), cluster.health_check()]);
                needs.firewalls.extend([names.external_check_firewall(), cluster.external_check_firewall()]);
                needs.firewalls.extend(env.options.removes_deny_rules.then(|| names.deny_firewall()));
            }
            Scheme::Internal => {
                needs.backends.insert(names.balancer.clone());
                needs.backends_of(observed.rules.get(&names.balancer), names, cluster);
                needs.checks.extend([names.balancer.clone(), cluster.health_check()]);
                needs.firewalls.extend([
                    names.balancer.clone(),
                    names.internal_check_firewall(),
                    cluster.internal_check_firewall(),
                ]);
                needs.all_groups |= !env.options.skips_groups;
            }
        }
    }

    async fn read(&self, env: &Env, needs: Needs, observed: &mut Observed) -> Result<(), ProviderError> {
        let (region, global) = (env.region(), Scope::Global);
        let groups = async {
            let cluster = ClusterNames(&observed.cluster_id);
            self.groups(env, cluster, &needs).await
        };
        let (addresses, pools, backends, firewalls, http_checks, checks, groups, tags) = futures::try_join!(
            async { self.each((ADDRESS_GET, ADDRESS_LIST), &region, needs.addresses.clone()).await },
            async { self.each((TARGET_POOL_GET, TARGET_POOL_LIST), &region, needs.pools.clone()).await },
            async { self.each((BACKEND_SERVICE_GET, BACKEND_SERVICE_LIST), &region, needs.backends.clone()).await },
            async { self.each((FIREWALL_GET, FIREWALL_LIST), &global, needs.firewalls.clone()).await },
            async {
                self.each((HTTP_HEALTH_CHECK_GET, HTTP_HEALTH_CHECK_LIST), &global, needs.http_checks.clone()).await
            },
            async { self.each((HEALTH_CHECK_GET, HEALTH_CHECK_LIST), &global, needs.checks.clone()).await },
            groups,
            async { self.tags_of(&needs.tagged).await.map_err(ProviderError::from) },
        )?;
        observed.addresses.extend(addresses);
        observed.pools.extend(pools);
        observed.backends.extend(backends);
        observed.firewalls.extend(firewalls);
        observed.http_checks.extend(http_checks);
        observed.checks.extend(checks);
        observed.groups.extend(groups);
        for (host, tag) in tags {
            match tag {
                Some(tag) => drop(observed.tags.insert(host, tag)),
                None => drop(observed.missing.insert(host)),
            }
        }
        Ok(())
    }

    /// The objects with these names that exist, read one by one or with a list. Roles made for the Go program do not
    /// allow lists.
    async fn each<T: DeserializeOwned + Named>(
        &self,
        (get, list): (Operation, Operation),
        scope: &Scope,
        names: BTreeSet<String>,
    ) -> Result<BTreeMap<String, T>, ProviderError> {
        if names.len() > ONE_BY_ONE && !lock(&self.unlisted).contains(&list) {
            let filter = match names.len() <= MOST_NAMES {
                true => Filter::one_of("name", names.iter().map(String::as_str)),
                false => Filter::default(),
            };
            match self.client.list::<T>(list, scope, &filter).await {
                Ok(all) => {
                    let wanted = all.into_iter().filter(|object| names.contains(object.name()));
                    return Ok(wanted.map(|object| (object.name().to_owned(), object)).collect());
                }
                Err(error) if is_forbidden(&error) => {
                    tracing::warn!(%error, "the objects are read one by one, which takes long with many Services");
                    lock(&self.unlisted).insert(list);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let read = names.into_iter().map(async |name| {
            let found = self.client.get::<T>(get, scope, &name).await?;
            Ok::<_, ApiError>(found.map(|found| (name, found)))
        });
        Ok(try_join_all(read).await?.into_iter().flatten().collect())
    }

    /// The reservation of an address in the region.
    async fn reserved(&self, env: &Env, ip: &str) -> Result<Option<Address>, ApiError> {
        let list: Vec<Address> = self.client.list(ADDRESS_LIST, &env.region(), &Filter::is("address", ip)).await?;
        Ok(list.into_iter().find(|address| address.address == ip))
    }

    /// The groups of zones with hosts, with their members, and those of other zones if they may be deleted.
    async fn groups(
        &self,
        env: &Env,
        cluster: ClusterNames<'_>,
        needs: &Needs,
    ) -> Result<BTreeMap<String, BTreeMap<String, BTreeSet<Host>>>, ProviderError> {
        let mut zones: BTreeMap<String, bool> = needs.members.iter().map(|zone| (zone.clone(), true)).collect();
        if needs.all_groups {
            for zone in self.surroundings.zones().await? {
                zones.entry(zone).or_insert(false);
            }
        }
        let name = cluster.instance_group();
        let read = zones.into_iter().map(async |(zone, with_members)| {
            let scope = Scope::zone(&zone);
            let mut groups = BTreeMap::new();
            if env.options.skips_groups {
                let ours = self.groups_beginning(&scope, &name).await?;
                let ours = ours.into_iter().filter(|group| is_group_of(group, &name));
                groups.extend(ours.map(|group| (group, BTreeSet::new())));
            } else if with_members {
                let prefix = &env.external_groups_prefix;
                let others = if prefix.is_empty() { Vec::new() } else { self.groups_beginning(&scope, prefix).await? };
                let all: BTreeSet<String> = others.into_iter().chain([name.clone()]).collect();
                let read = all.into_iter().map(async |group| {
                    let members = self.members(&scope, &group).await?;
                    Ok::<_, ApiError>(members.map(|members| (group, members)))
                });
                groups.extend(try_join_all(read).await?.into_iter().flatten());
            } else if self.client.get::<InstanceGroup>(INSTANCE_GROUP_GET, &scope, &name).await?.is_some() {
                groups.insert(name.clone(), BTreeSet::new());
            }
            Ok::<_, ApiError>((zone, groups))
        });
        Ok(try_join_all(read).await?.into_iter().collect())
    }

    async fn groups_beginning(&self, zone: &Scope, prefix: &str) -> Result<Vec<String>, ApiError> {
        let filter = Filter::begins("name", prefix);
        let list: Vec<InstanceGroup> = self.client.list(INSTANCE_GROUP_FILTER, zone, &filter).await?;
        Ok(list.into_iter().map(|group| group.name).filter(|name| name.starts_with(prefix)).collect())
    }

    /// The instances of a group; `None` if it does not exist.
    async fn members(&self, zone: &Scope, group: &str) -> Result<Option<BTreeSet<Host>>, ApiError> {
        let body = json!({"instanceState": "ALL"});
        let list: Option<Vec<GroupMember>> = self.client.list_of(INSTANCE_GROUP_INSTANCES, zone, group, body).await?;
        Ok(list.map(|list| list.iter().filter_map(|member| Host::of_url(&member.instance)).collect()))
    }

    /// The tag of each of these hosts; `None` for one that does not exist.
    async fn tags_of(&self, hosts: &BTreeSet<Host>) -> Result<BTreeMap<Host, Option<Option<String>>>, ApiError> {
        if hosts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let zones = hosts.iter().map(|host| host.zone.clone()).collect();
        let mut known = self.tags.get(&zones, TAGS_AGE, None).await?;
        let lacks = |known: &Tags, host: &Host| known.get(&host.zone).is_none_or(|zone| !zone.contains_key(&host.name));
        // A missing instance may be newer than the list.
        if hosts.iter().any(|host| lacks(&known, host) && !self.missing.contains(host)) {
            known = self.tags.get(&zones, Duration::ZERO, Some(Instant::now())).await?;
            hosts.iter().filter(|host| lacks(&known, host)).for_each(|host| self.missing.add(host.clone()));
        }
        let tag = |host: &Host| known.get(&host.zone).and_then(|zone| zone.get(&host.name)).cloned();
        Ok(hosts.iter().map(|host| (host.clone(), tag(host))).collect())
    }
}

/// Determines the objects of a balancer: its kind, whether it has its own health check or a shared backend service.
type Shape = (Scheme, bool, bool);

fn shape_of(item: &Item) -> Option<Shape> {
    let settings = item.settings.as_ref()?;
    Some((item.scheme, settings.health_port.is_some(), settings.internal.shares_backend))
}

/// An update of hosts needs the forwarding rule only for the address in firewall rules.
fn needs_rule(env: &Env, item: &Item) -> bool {
    match item.action {
        _ if item.is_by_name() => env.node_tags.is_empty(),
        _ if item.is_refused() => false,
        ServiceAction::UpdateHosts | ServiceAction::Ensure | ServiceAction::Delete => true,
    }
}

/// Whether a group belongs to the cluster: the name of another cluster's group may have the same prefix.
fn is_group_of(group: &str, name: &str) -> bool {
    group.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_cluster_with_a_longer_name_are_not_ours() {
        assert!(is_group_of("k8s-ig--abc", "k8s-ig--abc") && is_group_of("k8s-ig--abc-2", "k8s-ig--abc"));
        assert!(!is_group_of("k8s-ig--abcd", "k8s-ig--abc"));
    }
}
