//! Reads the cloud's objects for a group of Services. The only part of this module that reads.
//!
//! First the forwarding rules; then the objects with the names of the Services and of the cluster, each once for all
//! Services; finally reserved addresses, if a rule will be created. Leftovers of an interrupted change are looked for
//! once in the lifetime of the process, and again after each change.
//!
//! What could not be read is noted, with the reason: it fails the Services that need it, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::batch::Limits;
use ccm_kit::call::ErrorKind;
use ccm_kit::{Cluster, Known};
use ccm_provider::{ProviderError, ServiceAction};
use futures::future::{join_all, try_join_all};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

mod addresses;
mod tags;

use tags::ZoneTags;

use super::env::Env;
use super::facts::{Facts, NetworkFacts};
use super::hosts::Host;
use super::lately::Lately;
use super::missing::Missing;
use super::observed::Observed;
use super::plan::{self, Needs, needs_rule};
use super::wanted::{Item, Wanted};
use crate::annotations::Scheme;
use crate::client::balancing::{BackendService, ForwardingRule, GroupMember, InstanceGroup, TargetPool};
use crate::client::filter::Filter;
use crate::client::operation::{
    ADDRESS_GET, ADDRESS_LIST, BACKEND_SERVICE_GET, BACKEND_SERVICE_LIST, FIREWALL_GET, FIREWALL_LIST,
    FORWARDING_RULE_GET, FORWARDING_RULE_LIST, HEALTH_CHECK_GET, HEALTH_CHECK_LIST, HTTP_HEALTH_CHECK_GET,
    HTTP_HEALTH_CHECK_LIST, INSTANCE_GROUP_FILTER, INSTANCE_GROUP_GET, INSTANCE_GROUP_INSTANCES, Operation,
    TARGET_POOL_GET, TARGET_POOL_LIST,
};
use crate::client::resource::{Collection, Scope, last_part};
use crate::client::{ApiError, Client, Named, is_forbidden};
use crate::ownership::ClusterNames;

/// The tags of instances are read again after this time.
const TAGS_AGE: Duration = Duration::from_secs(60);
/// Zones requested within this time belong to one sync.
const WINDOW: Duration = Duration::from_millis(20);
/// If there are more objects of a kind than this, they are read with one list.
const ONE_BY_ONE: usize = 2;
/// A list for more names than this has no filter: after a start, all Services are synced.
const MOST_NAMES: usize = 20;
/// A list that was refused for a missing permission is retried after this time.
const LIST_AGAIN: Duration = Duration::from_secs(600);
/// Reads of one kind at the same time. Several kinds are read together, and a call waits for its turn in its own time.
const AT_ONCE: usize = 8;

/// The reads, shared by all Services.
#[derive(Debug)]
pub(super) struct Reads {
    client: Client,
    facts: Facts,
    tags: Known<ZoneTags>,
    /// When the tags of a zone were last asked for, and used.
    tags_used: Mutex<BTreeMap<String, (Instant, Instant)>>,
    /// The balancers whose rules may have former tags, since this time.
    former_tags: Mutex<BTreeMap<String, Instant>>,
    pub(super) missing: Missing,
    pub(super) lately: Lately,
    /// The zones in which the group could not be created, until that succeeds.
    pub(super) refused_groups: Mutex<BTreeSet<String>>,
    /// The balancers without leftovers, with their shape.
    settled: Mutex<BTreeMap<String, Shape>>,
    /// Lists that the caller had no permission for, and when they were refused.
    unlisted: Mutex<BTreeMap<Operation, Instant>>,
}

/// The results of many reads, in any order.
async fn few_at_once<F: Future>(reads: Vec<F>) -> Vec<F::Output> {
    stream::iter(reads).buffer_unordered(AT_ONCE).collect().await
}

/// What could not be read: see [`Observed::unread`].
#[derive(Debug, Default)]
struct Unread(Mutex<BTreeMap<String, ProviderError>>);

impl Unread {
    fn add(&self, kind: Collection, name: &str, error: ProviderError) {
        tracing::debug!(kind = kind.as_str(), name, %error, "not read");
        self.0.lock().insert(Observed::key(kind, name), error);
    }

    fn has(&self, kind: Collection, name: &str) -> bool {
        self.0.lock().contains_key(&Observed::key(kind, name))
    }

    fn into(self, observed: &mut Observed) {
        observed.unread.append(&mut self.0.lock());
    }
}

impl Reads {
    pub(super) fn new(client: Client, facts: Facts, cluster: Cluster) -> Self {
        let tags = ZoneTags(client.clone());
        let limits = Limits { window_max: WINDOW, ..Limits::of(64) };
        Self {
            client,
            facts,
            tags: Known::new(tags, limits, TAGS_AGE, Duration::ZERO),
            tags_used: Mutex::default(),
            former_tags: Mutex::default(),
            missing: Missing::default(),
            lately: Lately::new(cluster),
            refused_groups: Mutex::default(),
            settled: Mutex::default(),
            unlisted: Mutex::default(),
        }
    }

    /// Whether a balancer had no leftovers when it was last observed, and still has the same shape.
    fn is_settled(&self, item: &Item) -> bool {
        let settled = self.settled.lock();
        settled.get(&item.names.balancer).is_some_and(|shape| Some(*shape) == shape_of(item))
    }

    /// Records that there are no leftovers.
    pub(super) fn settle(&self, item: &Item) {
        let mut settled = self.settled.lock();
        settled.extend(shape_of(item).map(|shape| (item.names.balancer.clone(), shape)));
    }

    /// Records that there may be leftovers.
    pub(super) fn unsettle(&self, balancer: &str) {
        self.settled.lock().remove(balancer);
    }

    /// Everything that a plan for these items needs. The names of its objects are not known without the ID of the
    /// cluster.
    pub(super) async fn observe(&self, env: &Env, wanted: &Wanted) -> Result<Observed, ProviderError> {
        let is_internal =
            |item: &Item| item.scheme == Scheme::Internal && (item.settings.is_some() || item.is_by_name());
        let network = async {
            match wanted.items.values().any(is_internal) {
                true => self.facts.network().await,
                false => Ok(NetworkFacts::default()),
            }
        };
        let (cluster_id, network) = futures::join!(self.facts.cluster_id(), network);
        let refused_groups = self.refused_groups.lock().clone();
        let mut observed = Observed { cluster_id: cluster_id?, refused_groups, ..Observed::default() };
        note_network(&mut observed, network);
        let with_rule = wanted.items.values().filter(|item| needs_rule(env, item));
        let rules = with_rule.map(|item| item.names.balancer.clone()).collect();
        self.read(env, Needs { rules, ..Needs::default() }, &mut observed).await;
        let mut needs = Needs::default();
        for item in wanted.items.values().filter(|item| !item.is_refused() || item.serves) {
            needs.add(env, &observed, item, self.is_settled(item));
        }
        self.read(env, needs, &mut observed).await;
        self.read_lost(env, wanted, &mut observed).await;
        let mut replaced = Needs::default();
        wanted.items.values().for_each(|item| replaced.add_replaced(&observed, item));
        self.read(env, replaced.without(&observed), &mut observed).await;
        self.read_missing(wanted, &mut observed).await;
        self.read_unused(env, wanted, &mut observed).await;
        self.read_reserved(env, wanted, &mut observed).await;
        self.read_ranges(env, wanted, &mut observed).await;
        Ok(observed)
    }

    /// Whether something uses the shared objects: a deletion that finds nothing else may follow an interrupted creation.
    async fn read_unused(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
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
        let kinds: BTreeSet<Scheme> = wanted.items.values().filter(is_doubtful).map(|item| item.scheme).collect();
        let unread = Unread::default();
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
                Err(error) => unread.add(plan::users_of(kind), "", error.into()),
            }
        }
        unread.into(observed);
    }

    /// The rules of balancers whose hosts change and that were not found as the Service describes them, and what is
    /// behind these rules: it may ask for another kind by now, which was never ensured.
    async fn read_lost(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        let is_lost = |observed: &Observed, item: &Item| item.is_by_name() && !plan::is_found(observed, item);
        let lost: Vec<&Item> = wanted.items.values().filter(|item| is_lost(observed, item)).collect();
        let names: BTreeSet<String> = lost.iter().map(|item| item.names.balancer.clone()).collect();
        let rules = names.into_iter().filter(|name| !observed.rules.contains_key(name)).collect();
        self.read(env, Needs { rules, ..Needs::default() }, observed).await;
        let mut needs = Needs::default();
        for item in lost {
            if let Some(kind) = observed.rule(&item.names).and_then(|_| plan::existing(observed, item)) {
                if kind == Scheme::Internal && observed.network == NetworkFacts::default() {
                    note_network(observed, self.facts.network().await);
                }
                needs.add_hosts(env, observed, item, kind);
            }
        }
        self.read(env, needs, observed).await;
    }

    /// The hosts that do not exist. Those that were found are looked for again after a while: an instance may come back
    /// with its name.
    async fn read_missing(&self, wanted: &Wanted, observed: &mut Observed) {
        if self.missing.is_empty() {
            return;
        }
        let hosts: BTreeSet<&Host> = wanted.items.values().flat_map(|item| item.hosts.known.keys()).collect();
        let members = observed.groups.values().flat_map(|groups| groups.values()).flatten();
        self.missing.seen(members.chain(observed.tags.keys()));
        let due = self.missing.due(&hosts);
        let read = due.into_iter().map(async |host| (self.client.instance(&host.zone, &host.name).await, host));
        for (found, host) in few_at_once(read.collect()).await {
            match found {
                Ok(Some(_)) => self.missing.seen([&host]),
                Ok(None) => self.missing.add(host),
                Err(error) => tracing::warn!(%error, instance = host.name, "not known whether it is there again"),
            }
        }
        observed.missing.extend(hosts.into_iter().filter(|host| self.missing.contains(host)).cloned());
    }

    async fn read(&self, env: &Env, needs: Needs, observed: &mut Observed) {
        let (region, global, unread) = (env.region(), Scope::Global, Unread::default());
        let cluster = ClusterNames(&observed.cluster_id);
        let (rules, addresses, pools, backends, firewalls, http_checks, checks, groups, tags) = futures::join!(
            self.each((FORWARDING_RULE_GET, FORWARDING_RULE_LIST), &region, &needs.rules, &unread),
            self.each((ADDRESS_GET, ADDRESS_LIST), &region, &needs.addresses, &unread),
            self.each((TARGET_POOL_GET, TARGET_POOL_LIST), &region, &needs.pools, &unread),
            self.each((BACKEND_SERVICE_GET, BACKEND_SERVICE_LIST), &region, &needs.backends, &unread),
            self.each((FIREWALL_GET, FIREWALL_LIST), &global, &needs.firewalls, &unread),
            self.each((HTTP_HEALTH_CHECK_GET, HTTP_HEALTH_CHECK_LIST), &global, &needs.http_checks, &unread),
            self.each((HEALTH_CHECK_GET, HEALTH_CHECK_LIST), &global, &needs.checks, &unread),
            self.groups(env, cluster, &needs, &unread),
            self.tags_of(&needs.tagged, &unread),
        );
        observed.rules.extend(self.current(&needs.rules, rules, &unread));
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
        unread.into(observed);
    }

    /// Without the rules of which the cloud shows an older state than this process has written.
    fn current(
        &self,
        names: &BTreeSet<String>,
        mut rules: BTreeMap<String, ForwardingRule>,
        unread: &Unread,
    ) -> BTreeMap<String, ForwardingRule> {
        for name in names.iter().filter(|name| !unread.has(Collection::ForwardingRules, name)) {
            if let Err(error) = self.lately.check(name, rules.get(name)) {
                rules.remove(name);
                unread.add(Collection::ForwardingRules, name, error);
            }
        }
        rules
    }

    /// The objects with these names that exist, read one by one or with a list. Roles made for the Go program do not
    /// allow lists, and a list may be refused because of one of the names.
    async fn each<T: DeserializeOwned + Named>(
        &self,
        (get, list): (Operation, Operation),
        scope: &Scope,
        names: &BTreeSet<String>,
        unread: &Unread,
    ) -> BTreeMap<String, T> {
        let is_unlisted = self.unlisted.lock().get(&list).is_some_and(|refused| refused.elapsed() < LIST_AGAIN);
        if names.len() > ONE_BY_ONE && !is_unlisted {
            let filter = match names.len() <= MOST_NAMES {
                true => Filter::one_of("name", names.iter().map(String::as_str)),
                false => Filter::default(),
            };
            match self.client.list::<T>(list, scope, &filter).await {
                Ok(all) => {
                    let wanted = all.into_iter().filter(|object| names.contains(object.name()));
                    return wanted.map(|object| (object.name().to_owned(), object)).collect();
                }
                Err(error) if is_forbidden(&error) => {
                    tracing::warn!(%error, "the objects are read one by one, which takes long with many Services");
                    self.unlisted.lock().insert(list, Instant::now());
                }
                Err(error) if error.kind == ErrorKind::Refused => {
                    tracing::warn!(%error, "the list is refused: the objects are read one by one");
                }
                Err(error) => {
                    let error = ProviderError::from(error);
                    names.iter().for_each(|name| unread.add(get.collection, name, error.clone()));
                    return BTreeMap::new();
                }
            }
        }
        let read = names.iter().map(async |name| (name, self.client.get::<T>(get, scope, name).await));
        let mut all = BTreeMap::new();
        for (name, found) in few_at_once(read.collect()).await {
            match found {
                Ok(found) => all.extend(found.map(|found| (name.clone(), found))),
                Err(error) => unread.add(get.collection, name, error.into()),
            }
        }
        all
    }

    /// The groups of zones with hosts, with their members, and those of other zones if they may be deleted.
    async fn groups(&self, env: &Env, cluster: ClusterNames<'_>, needs: &Needs, unread: &Unread) -> Groups {
        let mut zones: BTreeMap<String, bool> = needs.members.iter().map(|zone| (zone.clone(), true)).collect();
        if needs.all_groups {
            match self.facts.zones().await {
                Ok(all) => all.into_iter().for_each(|zone| {
                    zones.entry(zone).or_insert(false);
                }),
                Err(error) => unread.add(Collection::InstanceGroups, "", error),
            }
        }
        let name = cluster.instance_group();
        let read =
            zones.into_iter().map(async |(zone, members)| (self.groups_of(env, &name, &zone, members).await, zone));
        let mut all = BTreeMap::new();
        for (groups, zone) in join_all(read).await {
            match groups {
                Ok(groups) => {
                    if groups.contains_key(&name) {
                        self.refused_groups.lock().remove(&zone);
                    }
                    all.insert(zone, groups);
                }
                Err(error) => unread.add(Collection::InstanceGroups, &zone, error.into()),
            }
        }
        all
    }

    /// The groups of one zone.
    async fn groups_of(
        &self,
        env: &Env,
        name: &str,
        zone: &str,
        with_members: bool,
    ) -> Result<BTreeMap<String, BTreeSet<Host>>, ApiError> {
        let scope = Scope::zone(zone);
        let mut groups = BTreeMap::new();
        if env.options.skips_groups {
            let ours = self.groups_beginning(&scope, name).await?;
            let ours = ours.into_iter().filter(|group| is_group_of(group, name));
            groups.extend(ours.map(|group| (group, BTreeSet::new())));
        } else if with_members {
            let prefix = &env.external_groups_prefix;
            let others = if prefix.is_empty() { Vec::new() } else { self.groups_beginning(&scope, prefix).await? };
            let all: BTreeSet<String> = others.into_iter().chain([name.to_owned()]).collect();
            let read = all.into_iter().map(async |group| {
                let members = self.members(&scope, &group).await?;
                Ok::<_, ApiError>(members.map(|members| (group, members)))
            });
            groups.extend(try_join_all(read).await?.into_iter().flatten());
        } else if self.client.get::<InstanceGroup>(INSTANCE_GROUP_GET, &scope, name).await?.is_some() {
            groups.insert(name.to_owned(), BTreeSet::new());
        }
        Ok(groups)
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
}

/// Members of instance groups, by zone and name.
type Groups = BTreeMap<String, BTreeMap<String, BTreeSet<Host>>>;

fn note_network(observed: &mut Observed, network: Result<NetworkFacts, ProviderError>) {
    match network {
        Ok(network) => observed.network = network,
        Err(error) => drop(observed.unread.insert(Observed::key(Collection::Networks, ""), error)),
    }
}

/// Determines the objects of a balancer: its kind, whether it has its own health check or a shared backend service.
type Shape = (Scheme, bool, bool);

fn shape_of(item: &Item) -> Option<Shape> {
    let settings = item.settings.as_ref()?;
    Some((item.scheme, settings.health_port.is_some(), settings.shares_backend))
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
