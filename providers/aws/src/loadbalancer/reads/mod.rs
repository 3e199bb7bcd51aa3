//! Reads that Services share.
//!
//! Balancers and tags are read in batches, so that many concurrent syncs cost one call per twenty Services. Data of all
//! Services (subnets, route tables, the cluster's security groups, target groups, instances) is cached briefly,
//! until a write of this process that may have changed it.

mod at_nodes;
mod bulk;
pub(super) mod settings;
mod tags;
#[cfg(all(test, feature = "sdk"))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::balancer::Journal;
use ccm_kit::call::ErrorKind;
use ccm_kit::{Batcher, Cached, Cluster, Interrupted, Limits};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(super) use self::tags::WHOSE;
use super::env::Env;
use super::marks::{Marks, Unread};
use crate::client::ec2::{RouteTable, SecurityGroup, Subnet};
use crate::client::elbv2::Which;
use crate::client::operation::{Operation, Service};
use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{Answer, Api, ApiError, Id, Query, Tags, Write, elb, elbv2};
use crate::node::fleet::Fleet;
use crate::node::zones::Zones;
use crate::ownership::Ownership;

/// Maximum age, in a sync, of objects that others may change: subnets, route tables, security groups. Concurrent
/// syncs share the reads.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// The CIDR of a subnet never changes; a missing subnet is read again.
pub(crate) const SUBNET_MAX_AGE: Duration = Duration::from_secs(3600);
/// Maximum age if only the nodes changed.
pub(crate) const SHORT: Duration = Duration::from_secs(60);
/// Maximum age of tags if only the nodes changed.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// After this time, reads show a write.
pub(super) const SETTLED: Duration = Duration::from_secs(10);
/// After this time, what blocks a deletion is looked for again.
const BLOCKER_KEPT: Duration = Duration::from_secs(300);
/// A deletion that stays blocked is reported again after this time.
const REPORTED_KEPT: Duration = Duration::from_secs(3600);
const AT_ONCE: usize = 20;

/// A target that AWS has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The target group or classic balancer.
    pub(super) of: String,
    pub(super) id: String,
    /// A classic balancer has none.
    pub(super) port: Option<i32>,
    /// Whether it was being added. A target that cannot be removed is already deregistered.
    pub(super) adding: bool,
    /// Whether a quota is exhausted.
    pub(super) full: bool,
    /// Whether it may fit once others have left.
    pub(super) needs_room: bool,
    pub(super) said: String,
}

impl Refused {
    /// Whether the target is refused there: what one has no room for, another one may take.
    pub(super) fn is_refused_by(&self, of: &str) -> bool {
        self.of == of || !self.full
    }
}

#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) fleet: Fleet,
    pub(crate) zones: Arc<Zones>,
    classic: Batcher<bulk::Classic>,
    network: Batcher<bulk::Network>,
    classic_tags: Batcher<bulk::ClassicTags>,
    network_tags: Batcher<bulk::NetworkTags>,
    subnets: Cached<Vec<Subnet>, ApiError>,
    route_tables: Cached<Vec<RouteTable>, ApiError>,
    groups: Cached<Vec<SecurityGroup>, ApiError>,
    target_groups: Cached<Vec<elbv2::TargetGroup>, ApiError>,
    balancers: Cached<Vec<elbv2::LoadBalancer>, ApiError>,
    classic_balancers: Cached<Vec<elb::LoadBalancer>, ApiError>,
    pub(super) at_nodes: at_nodes::AtNodes,
    pub(super) env: Env,
    pub(crate) cluster: Cluster,
    remembered: Mutex<Remembered>,
    /// Balancers and target groups that this process created, by name.
    created: Journal<String>,
    /// The names of what AWS has accepted to create.
    made: Journal<String>,
    /// The targets that were refused because of a quota, by target group or balancer.
    refused: Mutex<BTreeMap<(String, String), (std::time::Instant, Refused)>>,
    /// Classic balancers that this process deletes, which AWS may still show.
    deleted: Journal<String>,
    /// The security groups that this process has given to classic balancers, by name.
    applied: Journal<(String, BTreeSet<Id>)>,
}

/// How long the deletion of an object has been blocked.
#[derive(Debug)]
pub(crate) struct Waited {
    pub(crate) since: Duration,
    /// Whether it must be reported now.
    pub(crate) overdue: bool,
    /// What blocked it a moment ago, if that was found out.
    pub(crate) by: Option<String>,
}

/// A blocked deletion, with the times of the first and last attempts and of the last report.
#[derive(Debug)]
struct Held {
    first: std::time::Instant,
    last: std::time::Instant,
    reported: Option<std::time::Instant>,
    by: Option<(std::time::Instant, String)>,
}

/// Tags by name or ARN, and the times of the last writes.
#[derive(Debug, Default)]
struct Remembered {
    tags: BTreeMap<String, (Instant, Tags)>,
    /// The objects without tags in the last answer, by name or ARN, with the times of the first and last such answers.
    hidden: BTreeMap<String, (std::time::Instant, std::time::Instant)>,
    groups: Option<Instant>,
    target_groups: Option<Instant>,
    balancers: Option<Instant>,
    /// The last refusals to show tags.
    refused: BTreeMap<Service, (Instant, Unread)>,
    classic: Option<Instant>,
    /// The times of the first and last calls of services that have never answered; `None` for those that have.
    silent: BTreeMap<Service, Option<(std::time::Instant, std::time::Instant)>>,
    /// The tags that this process has written to classic balancers, by name.
    added_tags: BTreeMap<String, Tags>,
    held: BTreeMap<String, Held>,
    /// The names of balancers that were there although another controller has their Service.
    left: BTreeSet<String>,
    /// The names of the balancers behind which target groups were whose tags may not be read, by ARN.
    behind: BTreeMap<String, String>,
}

impl Reads {
    pub(crate) fn new(api: Arc<dyn Api>, fleet: Fleet, zones: Arc<Zones>, cluster: Cluster, env: &Env) -> Self {
        // A short window: a single Service hardly notices it, and a full batch does not wait.
        let limits = Limits {
            window_min: Duration::from_millis(10),
            window_max: Duration::from_millis(200),
            ..Limits::of(AT_ONCE)
        };
        let of_vpc = if env.vpc.is_empty() { Query::all() } else { Query::by("vpc-id", [&env.vpc]) };
        let ownership = env.ownership.clone();
        Self {
            classic: Batcher::new(bulk::Classic(api.clone()), limits),
            network: Batcher::new(bulk::Network(api.clone()), limits),
            classic_tags: Batcher::new(bulk::ClassicTags(api.clone()), limits),
            network_tags: Batcher::new(bulk::NetworkTags(api.clone()), limits),
            subnets: cached(&api, &of_vpc, |api, query| async move { api.subnets(&query).await }.boxed()),
            route_tables: cached(&api, &of_vpc, |api, query| async move { api.route_tables(&query).await }.boxed()),
            groups: cached(&api, &of_vpc, move |api, query| {
                let ownership = ownership.clone();
                async move { cluster_groups(&*api, query, &ownership).await }.boxed()
            }),
            target_groups: cached(&api, &of_vpc, |api, _| async move { api.target_groups(&Which::All).await }.boxed()),
            balancers: cached(&api, &of_vpc, |api, _| async move { api.balancers(&Which::All).await }.boxed()),
            classic_balancers: cached(&api, &of_vpc, |api, _| async move { api.classic_balancers(&[]).await }.boxed()),
            at_nodes: at_nodes::AtNodes::new(cluster.clone()),
            created: Journal::new(cluster.clone(), SETTLED),
            made: Journal::new(cluster.clone(), SETTLED),
            refused: Mutex::default(),
            deleted: Journal::new(cluster.clone(), SETTLED),
            applied: Journal::new(cluster.clone(), SETTLED),
            cluster,
            env: env.clone(),
            remembered: Mutex::default(),
            api,
            fleet,
            zones,
        }
    }

    /// A classic balancer by name, read now.
    pub(crate) async fn classic(&self, name: &str) -> Answer<Option<elb::LoadBalancer>> {
        let answer = self.classic.ask_one(name.to_owned()).await.and_then(Option::transpose);
        self.heard(Service::Elb, &answer);
        answer
    }

    /// A balancer of the v2 API by name, of whatever kind, read now.
    pub(crate) async fn network(&self, name: &str) -> Answer<Option<elbv2::LoadBalancer>> {
        let answer = self.network.ask_one(name.to_owned()).await.and_then(Option::transpose);
        self.heard(Service::ElbV2, &answer);
        answer
    }

    /// Records whether a service answers.
    fn heard<T>(&self, service: Service, answer: &Answer<T>) {
        let answers = |error: &ApiError| {
            error.status.is_some() || matches!(error.kind, ErrorKind::Refused | ErrorKind::Throttled { .. })
        };
        let now = self.cluster.now();
        let silent = &mut self.remembered.lock().silent;
        match answer {
            Err(error) if !answers(error) => {
                if let Some((first, last)) = silent.entry(service).or_insert(Some((now, now))) {
                    // Single failures, far apart, show nothing.
                    if now.saturating_duration_since(*last) >= LONG {
                        *first = now;
                    }
                    *last = now;
                }
            }
            _ => drop(silent.insert(service, None)),
        }
    }

    /// Whether calls over a minute have not reached a service, and none has before: it is not down, but not there.
    pub(crate) fn is_absent(&self, service: Service) -> bool {
        let silent = self.remembered.lock().silent.get(&service).copied().flatten();
        silent.is_some_and(|(first, last)| last.saturating_duration_since(first) >= SHORT)
    }

    pub(crate) async fn subnets(&self, max_age: Duration) -> Answer<Arc<Vec<Subnet>>> {
        Ok(self.subnets.get(max_age, None).await?.value)
    }

    /// A subnet of another VPC, or one created since the list was read; `None` if it does not exist.
    pub(crate) async fn one_subnet(&self, id: String) -> Answer<Option<Subnet>> {
        match self.api.subnets(&Query::ids([id])).await {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.is(&["InvalidSubnetID.NotFound", "InvalidSubnetId.Malformed"]) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn route_tables(&self, max_age: Duration) -> Answer<Arc<Vec<RouteTable>>> {
        Ok(self.route_tables.get(max_age, None).await?.value)
    }

    /// The security groups of the VPC with the cluster's tag.
    pub(crate) async fn groups(&self, max_age: Duration) -> Answer<Arc<Vec<SecurityGroup>>> {
        let not_before = self.remembered.lock().groups;
        Ok(self.groups.get(max_age, not_before).await?.value)
    }

    pub(crate) async fn target_groups(&self, max_age: Duration) -> Answer<Arc<Vec<elbv2::TargetGroup>>> {
        let not_before = self.remembered.lock().target_groups;
        Ok(self.target_groups.get(max_age, not_before).await?.value)
    }

    /// All v2 balancers of the account, at most a second old.
    pub(crate) async fn balancers(&self) -> Answer<Arc<Vec<elbv2::LoadBalancer>>> {
        let not_before = self.remembered.lock().balancers;
        Ok(self.balancers.get(Duration::from_secs(1), not_before).await?.value)
    }

    /// All classic balancers of the account, at most two seconds old, without those that this process deleted a moment
    /// ago.
    pub(crate) async fn classic_balancers(&self) -> Answer<Vec<elb::LoadBalancer>> {
        let not_before = self.remembered.lock().classic;
        let found = self.classic_balancers.get(FRESH, not_before).await?.value;
        let is_deleted = |name: &str| self.deleted.hidden(|deleted| deleted == name).is_some();
        Ok(found.iter().filter(|balancer| !is_deleted(&balancer.name)).cloned().collect())
    }

    /// Those of the security groups that a classic balancer of the cluster has, other than the one of this name.
    pub(crate) async fn shared_groups(&self, groups: &BTreeSet<String>, except: &str) -> Answer<BTreeSet<String>> {
        let mut all = self.classic_balancers().await?;
        for balancer in &mut all {
            balancer.security_groups = groups.iter().filter(|group| self.has(balancer, group)).cloned().collect();
        }
        all.retain(|balancer| balancer.name != except && !balancer.security_groups.is_empty());
        let marks = try_join_all(all.iter().map(|balancer| self.classic_tags(&balancer.name, WHOSE))).await?;
        let may_be_ours = |marks: &Marks| marks.read().is_none_or(|tags| self.env.ownership.is_member(tags));
        let ours = all.into_iter().zip(marks).filter(|(_, marks)| may_be_ours(marks));
        Ok(ours.flat_map(|(balancer, _)| balancer.security_groups).collect())
    }

    /// Whether a classic balancer has a security group, also if AWS does not show its last change yet.
    fn has(&self, balancer: &elb::LoadBalancer, group: &str) -> bool {
        let is_applied = |has: fn(&BTreeSet<Id>, &str) -> bool| {
            self.applied.hidden(|(name, groups)| *name == balancer.name && has(groups, group)).is_some()
        };
        match is_applied(|_, _| true) {
            true => is_applied(|groups, group| groups.iter().any(|id| id.known() == Some(group))),
            false => balancer.security_groups.iter().any(|id| id == group),
        }
    }

    /// Records that AWS has accepted the security groups of a classic balancer.
    pub(crate) fn applied(&self, balancer: &str, groups: &[Id]) {
        self.applied.forget(|(name, _)| name == balancer);
        self.applied.wrote([(balancer.to_owned(), groups.iter().cloned().collect())]);
    }

    /// Records that the deletion of an object is blocked, and returns for how long it has been.
    pub(crate) fn held(&self, object: &str) -> Waited {
        let now = self.cluster.now();
        let mut remembered = self.remembered.lock();
        let held = &mut remembered.held;
        held.retain(|_, held| now.saturating_duration_since(held.last) < LONG);
        let new = Held { first: now, last: now, reported: None, by: None };
        let held = held.entry(object.to_owned()).or_insert(new);
        held.last = now;
        let since = now.saturating_duration_since(held.first);
        let reported = held.reported.is_some_and(|at| now.saturating_duration_since(at) < REPORTED_KEPT);
        let overdue = since >= LONG && !reported;
        if overdue {
            held.reported = Some(now);
        }
        let by = held.by.as_ref().filter(|(at, _)| !overdue && now.saturating_duration_since(*at) < BLOCKER_KEPT);
        Waited { since, overdue, by: by.map(|(_, text)| text.clone()) }
    }

    /// Remembers what blocks the deletion of an object.
    pub(crate) fn held_by(&self, object: &str, text: &str) {
        let now = self.cluster.now();
        if let Some(held) = self.remembered.lock().held.get_mut(object) {
            held.by = Some((now, text.to_owned()));
        }
    }

    pub(crate) fn released(&self, object: &str) {
        let mut remembered = self.remembered.lock();
        remembered.held.remove(object);
        remembered.behind.remove(object);
    }

    /// Records the target groups of a balancer whose tags may not be read: without the balancer, nothing else shows
    /// whose they are.
    pub(crate) fn saw_behind(&self, balancer: &str, tags: &BTreeMap<String, Marks>) {
        let refused = tags.iter().filter(|(_, marks)| marks.are_refused());
        let behind = refused.map(|(arn, _)| (arn.clone(), balancer.to_owned()));
        self.remembered.lock().behind.extend(behind);
    }

    /// Whether this process saw a target group behind a balancer.
    pub(crate) fn was_behind(&self, target_group: &str, balancer: &str) -> bool {
        self.remembered.lock().behind.get(target_group).is_some_and(|name| name == balancer)
    }

    /// Whether a balancer is there, or was: its deletion may not have removed all of its parts yet.
    pub(crate) fn has_found(&self, balancer: &str, is_there: bool) -> bool {
        let left = &mut self.remembered.lock().left;
        left.contains(balancer) || (is_there && left.insert(balancer.to_owned()))
    }

    /// Records the creation of an object whose tags AWS may show late. A classic balancer may have the name of one that
    /// was deleted a moment ago.
    pub(crate) fn created(&self, name: &str) {
        self.created.wrote([name.to_owned()]);
        self.deleted.forget(|deleted| deleted == name);
        self.applied.forget(|(applied, _)| applied == name);
    }

    /// Records that AWS has created an object with this name.
    pub(crate) fn made(&self, name: &str) {
        self.made.wrote([name.to_owned()]);
    }

    /// Whether AWS created an object with this name for this process a moment ago.
    pub(crate) fn is_made(&self, name: &str) -> bool {
        self.made.hidden(|made| made == name).is_some()
    }

    /// The refusals of these targets, if all of them were refused a moment ago.
    pub(super) fn refused_targets(&self, of: &str, ids: &[String]) -> Option<Vec<Refused>> {
        let (now, refused) = (self.cluster.now(), self.refused.lock());
        let recent = |id: &String| {
            let (at, one) = refused.get(&(of.to_owned(), id.clone()))?;
            (now.saturating_duration_since(*at) < SHORT).then(|| one.clone())
        };
        ids.iter().map(recent).collect()
    }

    /// Remembers the targets that do not fit.
    pub(super) fn refuse_targets<'a>(&self, of: &str, targets: impl Iterator<Item = &'a Refused>) {
        let (now, mut refused) = (self.cluster.now(), self.refused.lock());
        refused.retain(|_, (at, _)| now.saturating_duration_since(*at) < SHORT);
        let full = targets.filter(|one| one.full);
        refused.extend(full.map(|one| ((of.to_owned(), one.id.clone()), (now, one.clone()))));
    }

    /// Forgets them, as there may be room.
    pub(super) fn release_targets(&self, of: &str) {
        self.refused.lock().retain(|(group, _), _| group != of);
    }

    /// Whether this process created the object with this name or ARN a moment ago.
    fn is_new(&self, object: &str) -> bool {
        // arn:…:loadbalancer/net/<name>/<ID>, arn:…:targetgroup/<name>/<ID>
        let name = object.rsplit('/').nth(1).unwrap_or(object);
        self.created.hidden(|created| created == name).is_some()
    }

    /// The tags that this process has written to a classic balancer.
    pub(crate) fn added_tags(&self, balancer: &str) -> Tags {
        self.remembered.lock().added_tags.get(balancer).cloned().unwrap_or_default()
    }

    /// Records that AWS has accepted the tags of a classic balancer.
    pub(crate) fn tagged(&self, balancer: &str, tags: &Tags) {
        self.remembered.lock().added_tags.entry(balancer.to_owned()).or_default().extend(tags.clone());
    }

    /// Records that a classic balancer is being deleted: it needs its security groups no more.
    pub(crate) fn deleted(&self, balancer: &str) {
        self.remembered.lock().added_tags.remove(balancer);
        self.deleted.wrote([balancer.to_owned()]);
    }

    /// Invalidates the caches that a write may affect. Called after each write, whatever its result.
    pub(crate) fn wrote(&self, write: &Write) {
        let now = Instant::now();
        let mut remembered = self.remembered.lock();
        match write {
            // Of EC2, balancers write security groups and their tags.
            Write::Ec2(_) => remembered.groups = Some(now),
            Write::Elb(write) => remembered.forget_classic(write, now),
            Write::ElbV2(write) => remembered.forget_network(write, now),
        }
    }
}

impl Remembered {
    fn forget_classic(&mut self, write: &ElbWrite, now: Instant) {
        if matches!(
            write,
            ElbWrite::CreateLoadBalancer { .. }
                | ElbWrite::DeleteLoadBalancer { .. }
                | ElbWrite::ApplySecurityGroupsToLoadBalancer { .. }
        ) {
            self.classic = Some(now);
        }
        if let ElbWrite::AddTags { balancer, .. }
        | ElbWrite::CreateLoadBalancer { balancer, .. }
        | ElbWrite::DeleteLoadBalancer { balancer } = write
        {
            self.tags.remove(balancer);
        }
    }

    fn forget_network(&mut self, write: &ElbV2Write, now: Instant) {
        match write {
            ElbV2Write::CreateLoadBalancer { .. } | ElbV2Write::DeleteLoadBalancer { .. } => {
                // Deleting a balancer deletes its listeners, which changes the target groups.
                self.balancers = Some(now);
                self.target_groups = Some(now);
            }
            ElbV2Write::CreateTargetGroup { .. }
            | ElbV2Write::DeleteTargetGroup { .. }
            | ElbV2Write::ModifyTargetGroup { .. }
            | ElbV2Write::CreateListener { .. }
            | ElbV2Write::ModifyListener { .. }
            | ElbV2Write::DeleteListener { .. } => self.target_groups = Some(now),
            ElbV2Write::SetSecurityGroups { .. } => self.balancers = Some(now),
            _ => {}
        }
    }
}

/// The groups with the cluster's tag, and those with the legacy tag if that is in use.
async fn cluster_groups(api: &dyn Api, of_vpc: Query, ownership: &Ownership) -> Answer<Vec<SecurityGroup>> {
    let Some((marked, legacy)) = ownership.marked(&of_vpc) else { return api.security_groups(&of_vpc).await };
    let mut groups = api.security_groups(&marked).await?;
    if ownership.legacy {
        let known: BTreeSet<String> = groups.iter().map(|group| group.id.clone()).collect();
        let more = api.security_groups(&legacy).await?;
        groups.extend(more.into_iter().filter(|group| !known.contains(&group.id)));
    }
    Ok(groups)
}

fn cached<T: Send + Sync + 'static>(
    api: &Arc<dyn Api>,
    query: &Query,
    read: impl Fn(Arc<dyn Api>, Query) -> BoxFuture<'static, Answer<T>> + Send + Sync + 'static,
) -> Cached<T, ApiError> {
    let (api, query) = (api.clone(), query.clone());
    Cached::new(move || read(api.clone(), query.clone()), |how| interrupted(Service::Ec2, "Describe", how))
}

pub(super) fn interrupted(service: Service, name: &'static str, how: Interrupted) -> ApiError {
    ApiError::interrupted(Operation::new(service, name), how)
}
