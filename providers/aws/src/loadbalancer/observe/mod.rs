//! Reads the objects in AWS for a Service, as an [`Observed`].
//!
//! Independent reads run concurrently. Both kinds of balancers are read for a deletion, and when the desired one does
//! not exist: one of the other kind may be left over.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::call::{ErrorKind, Meaning};
use ccm_provider::ProviderError;
use futures::future::{self, OptionFuture, join_all, try_join_all};
use futures::{FutureExt as _, TryFutureExt as _};

use crate::annotations::Kind;
use crate::client::elbv2::{self, Which};
use crate::client::operation::Service;
use crate::client::{Answer, ApiError, elb, is_unavailable};
use crate::loadbalancer::claim::{Marks, Unread, names_another};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{Classic, Instance, Network, Observed, TargetGroup};
use crate::loadbalancer::plan::network::KIND;
use crate::loadbalancer::plan::security_groups::nodes;
use crate::loadbalancer::reads::settings::{late, with_settings};
use crate::loadbalancer::reads::{FRESH, LONG, Reads, SHORT, SUBNET_MAX_AGE};
use crate::loadbalancer::subnets::{is_id, is_internal};
use crate::loadbalancer::wanted::{Goal, Port, Subnets, Wanted};
use crate::loadbalancer::{names, neighbors};
use crate::node::fleet::{self, Member};
use crate::node::identity::InstanceId;

/// Age of the list that is searched for leftovers while nothing is missing.
const LEFTOVERS: Duration = Duration::from_secs(3600);
const TARGET_GROUP_GONE: &[&str] = &["TargetGroupNotFound"];

/// Reads everything that a plan for the desired state needs. The nodes of a balancer that exists are followed even if
/// the rest cannot be read, and its address is known even if nothing else is. While another controller has the Service,
/// nothing more is read if there is no balancer with its name.
pub(crate) async fn gather(desired: &Wanted, reads: &Reads, env: &Env) -> Answer<Observed> {
    let found = balancers(desired, reads).await?;
    let Found { classic, network, unread_classic, unread_network } = &found;
    let is_there = classic.is_some() || network.is_some();
    if desired.elsewhere && !reads.has_found(&desired.name, is_there) {
        let (unread_classic, unread_network) = (unread_classic.clone(), unread_network.clone());
        return Ok(Observed { unread_classic, unread_network, ..Observed::default() });
    }
    let exists = match &desired.goal {
        Goal::Absent => false,
        Goal::Classic(_) => classic.is_some(),
        Goal::Network(_) => network.is_some(),
    };
    let address = exists.then(|| Observed {
        classic: classic.clone().map(Classic::unread),
        network: network.clone().map(Network::unread),
        only_address: true,
        ..Observed::default()
    });
    // In place, the state of all reads would be part of each caller's.
    match (Box::pin(details(desired, found, reads, env, exists)).await, address) {
        (Err(error), Some(address)) => Ok(Observed { unread: Some(error.into()), ..address }),
        (answer, _) => answer,
    }
}

async fn details(desired: &Wanted, found: Found, reads: &Reads, env: &Env, exists: bool) -> Answer<Observed> {
    let Found { classic, network, unread_classic, unread_network } = found;
    let mut observed = Observed { unread_classic, unread_network, ..Observed::default() };
    let mut unread = Unneeded { exists, error: None };
    let (classic, network, instances) = futures::try_join!(
        OptionFuture::from(classic.map(|balancer| read_classic(desired, balancer, reads))).map(Option::transpose),
        OptionFuture::from(network.map(|balancer| read_network(desired, balancer, reads))).map(Option::transpose),
        instances(desired, reads, env),
    )?;
    if let Some((classic, attributes, policies)) = classic {
        let (attributes, policies) = (setting(&mut observed, attributes), setting(&mut observed, policies));
        observed.classic = Some(Classic { attributes, policies, ..classic });
    }
    if let Some(ReadNetwork { network, attributes, listeners, target_groups }) = network {
        let attributes = setting(&mut observed, attributes);
        let listeners = unread.or_default(listeners)?;
        unread.or_default(target_groups.targets)?;
        setting(&mut observed, target_groups.attributes);
        observed.unread_targets = target_groups.unread_targets;
        observed.network = Some(Network { attributes, listeners, target_groups: target_groups.found, ..network });
    }
    (observed.instances, observed.missing_instances, observed.foreign_instances) = instances;
    if unread.error.is_none() {
        unread.or_default(rest(desired, &mut observed, reads, env).await)?;
    }
    observed.unread = unread.error;
    Ok(observed)
}

/// A setting that cannot be read stays as it is, and keeps nothing else from its change.
fn setting<T>(observed: &mut Observed, answer: Answer<T>) -> Option<T> {
    answer.map_err(|error| observed.unread_settings.get_or_insert(error.into())).ok()
}

/// Failed reads that nodes do not need.
struct Unneeded {
    /// Whether there is a balancer whose nodes can be followed.
    exists: bool,
    error: Option<ProviderError>,
}

impl Unneeded {
    fn or_default<T: Default>(&mut self, answer: Answer<T>) -> Answer<T> {
        match answer {
            Err(error) if self.exists => {
                self.error.get_or_insert(error.into());
                Ok(T::default())
            }
            answer => answer,
        }
    }
}

async fn rest(desired: &Wanted, observed: &mut Observed, reads: &Reads, env: &Env) -> Answer<()> {
    let ((unattached, unavailable), groups) = futures::try_join!(
        unattached(desired, observed, reads, env),
        groups::read(desired, observed, reads, env).map(|groups| match groups {
            Err(error) if error.meaning() == Meaning::Denied && !groups::are_needed(desired, observed, env) =>
                Ok(Ok(None)),
            // Listeners and target groups need none.
            Err(error) if matches!(desired.goal, Goal::Network(_)) && observed.network.is_some() => Ok(Err(error)),
            groups => groups.map(|groups| Ok(Some(groups))),
        }),
    )?;
    let groups = groups.unwrap_or_else(|error: ApiError| {
        observed.unread_groups = Some(error.into());
        Some(BTreeMap::new())
    });
    setting(observed, unattached.attributes);
    observed.unattached_target_groups = unattached.found;
    match unavailable {
        Some(error) if error.meaning() == Meaning::Denied => observed.target_groups_denied = true,
        Some(error) => observed.unread_network = Some(error.into()),
        None => {}
    }
    observed.groups_denied = groups.is_none();
    observed.groups = groups.unwrap_or_default();
    if matches!(desired.goal, Goal::Absent) && !env.node_groups_untouched {
        let more = groups::of_nodes(desired, observed, reads).await?;
        observed.groups.extend(more);
    }
    subnets(desired, observed, reads, env).await?;
    if nodes::gives_up_rules(desired, observed, env) {
        observed.neighbors(neighbors::read(&desired.name, &observed.subnets, reads).await?);
        observed.node_groups = groups::of_all_nodes(reads).await;
    }
    let going = groups::given_up(desired, observed, env);
    if !going.is_empty() {
        observed.shared_groups = reads.shared_groups(&going, &desired.name).await?;
    }
    Ok(())
}

/// Maximum age of reads that Services share. After a sync without changes the Service may not be read for a long time,
/// and after a deletion never again, so these need fresh reads.
fn shared_age(desired: &Wanted) -> Duration {
    match desired.goal.common() {
        None => Duration::ZERO,
        Some(common) if common.must_exist => SHORT,
        Some(_) => FRESH,
    }
}

fn tags_age(desired: &Wanted) -> Duration {
    match desired.goal.common() {
        None => Duration::ZERO,
        Some(common) if common.must_exist => LONG,
        Some(_) => SHORT,
    }
}

/// Reads only where that is needed.
async fn when<T: Default>(needed: bool, read: impl Future<Output = Answer<T>>) -> Answer<T> {
    if needed { read.await } else { Ok(T::default()) }
}

/// The balancers with the name of the Service, and the reasons for which one of a kind is not known.
#[derive(Default)]
struct Found {
    classic: Option<elb::LoadBalancer>,
    network: Option<elbv2::LoadBalancer>,
    unread_classic: Option<ProviderError>,
    unread_network: Option<ProviderError>,
}

/// One of a kind that nothing shows may be left from an earlier annotation, and is looked for too. (Upstream calls only
/// the API that the annotation selects.) Nothing is deleted or given up when another one is created, so a failure only
/// becomes a finding then. A deletion is the last chance to find it, and waits for an API that is down, but not for one
/// that is not there.
async fn balancers(desired: &Wanted, reads: &Reads) -> Answer<Found> {
    let (name, mut found) = (&desired.name, Found::default());
    match &desired.goal {
        Goal::Absent => {
            let (classic, network) = future::join(reads.classic(name), reads.network(name)).await;
            let is_absent = |error: &ApiError, kind| {
                let is_absent = error.kind == ErrorKind::NotSent && reads.is_absent(error.operation.service);
                !desired.kinds.contains(&kind) && (is_unavailable(error) || is_absent)
            };
            found.classic = unless(classic, |error| is_absent(error, Kind::Classic), &mut found.unread_classic)?;
            found.network = unless(network, |error| is_absent(error, Kind::Network), &mut found.unread_network)?;
        }
        Goal::Classic(_) => {
            found.classic = reads.classic(name).await?;
            let network = when(found.classic.is_none(), reads.network(name)).await;
            found.network = unless(network, |_| true, &mut found.unread_network)?;
        }
        Goal::Network(_) => {
            found.network = reads.network(name).await?;
            let classic = when(found.network.is_none(), reads.classic(name)).await;
            found.classic = unless(classic, |_| true, &mut found.unread_classic)?;
        }
    }
    Ok(found)
}

/// `None` and the error if that is enough. A role that may not list balancers has made none.
fn unless<T>(
    answer: Answer<Option<T>>,
    is_enough: impl FnOnce(&ApiError) -> bool,
    unread: &mut Option<ProviderError>,
) -> Answer<Option<T>> {
    match answer {
        Err(error) if is_enough(&error) => {
            *unread = Some(error).filter(|error| error.meaning() != Meaning::Denied).map(Into::into);
            Ok(None)
        }
        answer => answer,
    }
}

/// The balancer with its tags, its attributes and its policies.
async fn read_classic(
    desired: &Wanted,
    balancer: elb::LoadBalancer,
    reads: &Reads,
) -> Answer<(Classic, Answer<elb::Attributes>, Answer<Vec<elb::Policy>>)> {
    let (compares, proxy_protocol, tls_policy) = match &desired.goal {
        Goal::Classic(classic) => (!classic.common.must_exist, classic.proxy_protocol, classic.ssl_policy.is_some()),
        Goal::Absent | Goal::Network(_) => (false, false, false),
    };
    let name = balancer.name.clone();
    let attributes = when(compares, reads.api.classic_attributes(&name));
    let policies = when((compares && proxy_protocol) || tls_policy, reads.api.classic_policies(&name));
    let late =
        || (late(Service::Elb, "DescribeLoadBalancerAttributes"), late(Service::Elb, "DescribeLoadBalancerPolicies"));
    let tags = reads.classic_tags(&name, tags_age(desired));
    let (tags, (attributes, policies)) = with_settings(tags, future::join(attributes, policies), late).await;
    let policies = match policies {
        // Upstream needs this permission for a TLS policy only. The other one may be created again.
        Err(error) if !tls_policy && is_unavailable(&error) => Ok(Vec::new()),
        policies => policies,
    };
    let added_tags = reads.added_tags(&name);
    Ok((Classic { tags: tags?, added_tags, ..Classic::unread(balancer) }, attributes, policies))
}

/// A network balancer with its tags, and what may not have been read.
struct ReadNetwork {
    network: Network,
    attributes: Answer<elbv2::Attributes>,
    listeners: Answer<Vec<elbv2::Listener>>,
    target_groups: TargetGroups,
}

/// Target groups, and whether their targets and attributes could be read.
struct TargetGroups {
    found: Vec<TargetGroup>,
    targets: Answer<()>,
    /// The ARNs of those whose targets could not be read.
    unread_targets: BTreeSet<String>,
    attributes: Answer<()>,
}

async fn read_network(desired: &Wanted, balancer: elbv2::LoadBalancer, reads: &Reads) -> Answer<ReadNetwork> {
    let arn = balancer.arn.clone();
    // The parts of another kind, which this program did not create, are not read.
    let ours = balancer.kind == KIND;
    let wants = ours && matches!(desired.goal, Goal::Network(_));
    let compares = ours && matches!(&desired.goal, Goal::Network(network) if !network.is_hosts_only());
    let of_balancer = Which::OfBalancer(arn.clone());
    let groups = async {
        let groups = when(ours, reads.api.target_groups(&of_balancer)).await?;
        let marked = groups.iter().map(|group| group.arn.clone()).chain([arn.clone()]);
        let mut tags = reads.network_tags(marked, tags_age(desired)).await?;
        let own = tags.remove(&arn).unwrap_or_else(|| reads.not_shown(&arn));
        reads.saw_behind(&desired.name, &tags);
        Ok((own, target_groups(desired, groups, &tags, reads).await))
    };
    let needed = future::join(when(wants, reads.api.listeners(&arn)), groups);
    let settings = when(compares, reads.api.balancer_attributes(&arn));
    let late = || late(Service::ElbV2, "DescribeLoadBalancerAttributes");
    let ((listeners, groups), attributes) = with_settings(needed, settings, late).await;
    let (own, target_groups) = groups?;
    let network = Network { tags: own, ..Network::unread(balancer) };
    Ok(ReadNetwork { network, attributes, listeners, target_groups })
}

impl Default for TargetGroups {
    fn default() -> Self {
        Self { found: Vec::new(), targets: Ok(()), unread_targets: BTreeSet::new(), attributes: Ok(()) }
    }
}

impl Classic {
    /// The balancer alone.
    fn unread(balancer: elb::LoadBalancer) -> Self {
        let tags = Marks::Unread(Unread::NotShown);
        let (attributes, policies, added_tags) = Default::default();
        Self { balancer, attributes, policies, tags, added_tags }
    }
}

impl Network {
    /// The balancer alone.
    fn unread(balancer: elbv2::LoadBalancer) -> Self {
        let (listeners, target_groups) = Default::default();
        let tags = Marks::Unread(Unread::NotShown);
        Self { balancer, attributes: None, listeners, target_groups, tags }
    }
}

/// Completes target groups. One that was deleted meanwhile is left out.
async fn target_groups(
    desired: &Wanted,
    groups: Vec<elbv2::TargetGroup>,
    tags: &BTreeMap<String, Marks>,
    reads: &Reads,
) -> TargetGroups {
    let (wants, wants_attributes) = match &desired.goal {
        Goal::Network(network) => (true, network.target_group_attributes.is_some() && !network.is_hosts_only()),
        Goal::Absent | Goal::Classic(_) => (false, false),
    };
    let read = groups.into_iter().map(|group| async move {
        let (targets, attributes) = with_settings(
            when(wants, reads.api.target_health(&group.arn)),
            when(wants_attributes, reads.api.target_group_attributes(&group.arn).map_ok(Some)),
            || late(Service::ElbV2, "DescribeTargetGroupAttributes"),
        )
        .await;
        (group, targets, attributes)
    });
    let mut all = TargetGroups::default();
    for (group, targets, attributes) in join_all(read).await {
        let errors = [targets.as_ref().err(), attributes.as_ref().err()];
        if errors.into_iter().flatten().any(|error| error.is(TARGET_GROUP_GONE)) {
            continue;
        }
        let tags = tags.get(&group.arn).cloned().unwrap_or_else(|| reads.not_shown(&group.arn));
        let targets = targets.unwrap_or_else(|error| {
            all.targets = Err(error);
            all.unread_targets.insert(group.arn.clone());
            Vec::new()
        });
        let attributes = attributes.unwrap_or_else(|error| {
            all.attributes = Err(error);
            None
        });
        let was_behind = reads.was_behind(&group.arn, &desired.name);
        all.found.push(TargetGroup { group, attributes, targets, tags, was_behind });
    }
    all
}

/// Target groups with a name of this Service that belong to no balancer, or to this one and none of its listeners: left
/// over from an interrupted plan. (Other Services may have names that are abbreviated to the same.) AWS finds target groups
/// neither by tag nor by a part of the name, so all are listed: now if one is missing, else rarely.
///
/// Returns also the error if they cannot be listed although a network balancer may have been there before.
async fn unattached(
    desired: &Wanted,
    observed: &Observed,
    reads: &Reads,
    env: &Env,
) -> Answer<(TargetGroups, Option<ApiError>)> {
    let network = observed.network.as_ref();
    let attached: BTreeSet<&str> =
        network.iter().flat_map(|network| &network.target_groups).map(|group| &*group.group.name).collect();
    let is_unlikely = network.is_none() && !desired.network;
    let max_age = match &desired.goal {
        Goal::Classic(_) => return Ok(Default::default()),
        // Nor can they be listed.
        Goal::Absent if observed.unread_network.is_some() => return Ok(Default::default()),
        // A network balancer of an earlier annotation was created by an earlier process.
        Goal::Absent if is_unlikely => LEFTOVERS,
        Goal::Absent => Duration::ZERO,
        Goal::Network(goal) => {
            let name = |port: &Port| port.target_group(&env.ownership.cluster, &desired.service);
            let all_there = goal.ports.iter().all(|port| attached.contains(&*name(port)));
            if all_there { LEFTOVERS } else { Duration::ZERO }
        }
    };
    let arn = network.map(|network| &*network.balancer.arn);
    // AWS may show a deleted balancer on its groups for a while.
    let is_ours = |balancer: &str| names::is_balancer(balancer, &desired.name);
    let all = match reads.target_groups(max_age).await {
        // Upstream lists none for a classic balancer.
        Err(error) if is_unlikely && is_unavailable(&error) => return Ok((TargetGroups::default(), Some(error))),
        all => all?,
    };
    let is_candidate = |group: &&elbv2::TargetGroup| {
        names::may_be_target_group_of(&group.name, &desired.service)
            && !attached.contains(&*group.name)
            && group
                .balancers
                .iter()
                .all(|balancer| Some(&**balancer) == arn || (network.is_none() && is_ours(balancer)))
    };
    let candidates: Vec<elbv2::TargetGroup> = all.iter().filter(is_candidate).cloned().collect();
    let tags = reads.network_tags(candidates.iter().map(|group| group.arn.clone()), tags_age(desired)).await?;
    let is_named = |group: &elbv2::TargetGroup| desired.target_groups.contains(&group.name);
    let is_there = |group: &elbv2::TargetGroup| match tags.get(&group.arn) {
        // Deleted since it was listed.
        None => false,
        // Of another Service, which may be about to create its listener, or to delete it.
        Some(Marks::Read(tags)) => is_named(group) || !names_another(tags, desired, env),
        Some(marks @ Marks::Unread(_)) => {
            let was_behind = reads.was_behind(&group.arn, &desired.name);
            // The last chance to say that one may be left over.
            let is_last = marks.are_refused() && matches!(desired.goal, Goal::Absent);
            is_last || was_behind || is_named(group) || group.balancers.iter().any(|balancer| is_ours(balancer))
        }
    };
    let there = candidates.into_iter().filter(is_there).collect();
    let found = target_groups(desired, there, &tags, reads).await;
    found.targets.clone().map(|()| (found, None))
}

/// The wanted instances of the cluster, those that EC2 does not show, and those without the cluster's tag. Instances that are
/// shutting down or terminated are left out: AWS would refuse them.
async fn instances(
    desired: &Wanted,
    reads: &Reads,
    env: &Env,
) -> Answer<(BTreeMap<String, Instance>, BTreeSet<String>, BTreeSet<String>)> {
    let Some(common) = desired.goal.common() else { return Ok(Default::default()) };
    let ids: BTreeSet<InstanceId> = common.targets.keys().filter_map(|id| InstanceId::parse(id)).collect();
    let mut members = reads.fleet.get(&ids, fleet::MAX_AGE, None).await?;
    let is_ours = |member: &Member| env.ownership.is_member(&member.clusters);
    // They may run again, or get the tag.
    let changing = members.iter().filter(|(_, member)| member.is_stopped || !is_ours(member));
    let changing = changing.map(|(id, _)| id.clone()).collect();
    members.extend(reads.fleet.get(&changing, SHORT, None).await?);
    let missing_instances = ids.iter().filter(|id| !members.contains_key(*id)).map(ToString::to_string).collect();
    let (mut ours, mut others) = (BTreeMap::new(), BTreeSet::new());
    for (id, member) in members.into_iter().filter(|(_, member)| !member.is_leaving) {
        let Member { is_stopped, security_groups, .. } = &*member;
        let instance = Instance { security_groups: security_groups.clone(), is_stopped: *is_stopped };
        match is_ours(&member) {
            true => drop(ours.insert(id.to_string(), instance)),
            false => drop(others.insert(id.to_string())),
        }
    }
    Ok((ours, missing_instances, others))
}

/// The subnets that are wanted or in use, with routes and zones if subnets have to be chosen.
async fn subnets(desired: &Wanted, observed: &mut Observed, reads: &Reads, env: &Env) -> Answer<()> {
    let Some(common) = desired.goal.common() else { return Ok(()) };
    let current: BTreeSet<String> = observed
        .network
        .iter()
        .flat_map(|network| &network.balancer.zones)
        .map(|zone| zone.subnet.clone())
        .chain(observed.classic.iter().flat_map(|classic| classic.balancer.subnets.iter().cloned()))
        .collect();
    // A network balancer keeps its subnets.
    let chosen = observed.network.is_none() || matches!(desired.goal, Goal::Classic(_));
    let max_age = if chosen { shared_age(desired) } else { SUBNET_MAX_AGE };
    let all = reads.subnets(max_age).await?;
    observed.subnets = all.iter().map(|subnet| (subnet.id.clone(), subnet.clone())).collect();
    let named: Vec<String> = match &common.subnets {
        Subnets::Named(items) => items.iter().filter(|item| is_id(item)).cloned().collect(),
        Subnets::Discover => [env.self_subnet.clone()].into_iter().filter(|id| chosen && !id.is_empty()).collect(),
    };
    let missing = named.into_iter().chain(current).filter(|id| !observed.subnets.contains_key(id));
    let missing: BTreeSet<String> = missing.collect();
    let more = try_join_all(missing.into_iter().map(|id| reads.one_subnet(id))).await?;
    observed.subnets.extend(more.into_iter().flatten().map(|subnet| (subnet.id.clone(), subnet)));
    if chosen && common.subnets == Subnets::Discover {
        let internal = match &desired.goal {
            Goal::Classic(_) => is_internal(common, observed),
            Goal::Absent | Goal::Network(_) => common.internal,
        };
        if !internal {
            observed.route_tables = reads.route_tables(shared_age(desired)).await?.to_vec();
        }
        let zones = observed.subnets.values().map(|subnet| &*subnet.zone);
        observed.zones = reads.zones.knowing(zones).await?.map(|zones| (*zones).clone()).unwrap_or_default();
    }
    Ok(())
}
