//! Reads the security groups that a plan depends on.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::NodeReader;

use super::shared_age;
use crate::client::ec2::{Peer, SecurityGroup};
use crate::client::write::Ec2Write;
use crate::client::{Answer, Query, Write};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::names;
use crate::loadbalancer::observed::{Network, Observed};
use crate::loadbalancer::plan::network::KIND;
use crate::loadbalancer::plan::plan_one;
use crate::loadbalancer::reads::Reads;
use crate::loadbalancer::rules::split;
use crate::loadbalancer::wanted::{Goal, Wanted};
use crate::node::fleet;
use crate::node::identity::{InstanceId, instance_of};

/// Whether a plan depends on any security group, which upstream does not ask for otherwise: on the balancer's own one, or
/// on those of the nodes.
pub(super) fn are_needed(desired: &Wanted, observed: &Observed, env: &Env) -> bool {
    let named = desired.named_groups.instead.iter().chain(&desired.named_groups.extra).chain(&env.shared_group);
    let named: BTreeSet<&String> = named.collect();
    let has_other = observed.attached_groups().any(|id| !named.contains(id));
    let is_network = match &desired.goal {
        Goal::Absent => desired.network,
        Goal::Classic(_) => false,
        Goal::Network(_) => true,
    };
    // A network balancer without groups never gets one.
    let may_have_own = match is_network {
        true => env.managed_network_groups && observed.network.is_none(),
        false => env.shared_group.is_none(),
    };
    let may_have_own = may_have_own && desired.named_groups.instead.is_empty();
    !env.node_groups_untouched || has_other || may_have_own
}

/// The cluster's security groups, and all others that the plan needs.
pub(super) async fn read(
    desired: &Wanted,
    observed: &Observed,
    reads: &Reads,
    env: &Env,
) -> Answer<BTreeMap<String, SecurityGroup>> {
    let mut groups: BTreeMap<String, SecurityGroup> = by_id(reads.groups(shared_age(desired)).await?.iter().cloned());
    let attached: BTreeSet<&String> = observed.attached_groups().collect();
    let named = desired.named_groups.instead.iter().chain(&desired.named_groups.extra);
    let of_nodes = observed.instances.values().flat_map(|instance| &instance.security_groups);
    let wanted: BTreeSet<&String> =
        attached.iter().copied().chain(named).chain(of_nodes).chain(&env.shared_group).collect();
    let missing: Vec<&String> = wanted.into_iter().filter(|id| !groups.contains_key(*id)).collect();
    // As a filter: unknown IDs are simply absent, and the plan reports them.
    groups.extend(by_filter("group-id", missing.into_iter().cloned(), reads).await?);

    let managed = managed_names(desired, env);
    let nameless = managed.iter().filter(|name| !groups.values().any(|group| group.name == **name));
    // A group without the cluster's tags is found only by its name.
    let searched = match &desired.goal {
        Goal::Absent => true,
        Goal::Classic(_) => desired.named_groups.instead.is_empty() && env.shared_group.is_none(),
        Goal::Network(_) => {
            let has_groups = |network: &Network| !network.balancer.security_groups.is_empty();
            desired.named_groups.instead.is_empty() && observed.network.as_ref().is_none_or(has_groups)
        }
    };
    let nameless: Vec<String> = nameless.cloned().collect();
    if searched && !nameless.is_empty() {
        let query = Query::by("vpc-id", [env.vpc.clone()]).and("group-name", nameless);
        groups.extend(by_id(reads.api.security_groups(&query).await?));
    }
    // Groups with rules that refer to a group must be known before that group can be deleted; the cluster's own groups
    // are read already.
    let mut going: BTreeSet<String> =
        groups.values().filter(|group| managed.contains(&group.name)).map(|group| group.id.clone()).collect();
    going.extend(attached.iter().copied().cloned());
    if matches!(desired.goal, Goal::Absent) || may_leave(desired, &attached, &groups, &managed) {
        groups.extend(by_filter("ip-permission.group-id", going, reads).await?);
    }
    Ok(groups)
}

/// The groups of the nodes without the cluster's tag, which may have rules of a network balancer that is about to be
/// deleted.
pub(super) async fn of_nodes(
    desired: &Wanted,
    observed: &Observed,
    reads: &Reads,
) -> Answer<BTreeMap<String, SecurityGroup>> {
    let network = observed.network.as_ref();
    // Also if the balancer is gone: its rules are closed after it.
    let is_possible = network.map_or(desired.network, |network| network.balancer.kind == KIND);
    if !is_possible {
        return Ok(BTreeMap::new());
    }
    let nodes = reads.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    let mut ids: BTreeSet<InstanceId> = nodes.iter().filter_map(|node| instance_of(node)).collect();
    if let Some(group) = network.and_then(|network| network.target_groups.first()).filter(|_| ids.is_empty()) {
        let targets = reads.api.target_health(&group.group.arn).await?;
        ids = targets.iter().filter_map(|health| InstanceId::parse(&health.target.id)).collect();
    }
    let members = reads.fleet.get(&ids, fleet::MAX_AGE, None).await?;
    let attached: BTreeSet<&String> = members.values().flat_map(|member| &member.security_groups).collect();
    let missing = attached.into_iter().filter(|id| !observed.groups.contains_key(*id));
    by_filter("group-id", missing.cloned(), reads).await
}

/// The security groups of all nodes; `None` if some are not known.
pub(super) async fn of_all_nodes(reads: &Reads) -> Option<BTreeSet<String>> {
    let nodes = reads.cluster.nodes().map(NodeReader::list)?;
    let ids: BTreeSet<InstanceId> = nodes.iter().filter_map(|node| instance_of(node)).collect();
    let members = reads.fleet.get(&ids, fleet::MAX_AGE, None).await.ok()?;
    let is_known = !ids.is_empty() && ids.iter().all(|id| members.contains_key(id));
    is_known.then(|| members.values().flat_map(|member| member.security_groups.iter().cloned()).collect())
}

/// Whether the balancer has a group other than those named and its managed one, or has its managed one although others
/// are named.
fn may_leave(
    desired: &Wanted,
    attached: &BTreeSet<&String>,
    groups: &BTreeMap<String, SecurityGroup>,
    managed: &BTreeSet<String>,
) -> bool {
    let named = |id: &String| desired.named_groups.instead.contains(id) || desired.named_groups.extra.contains(id);
    let is_managed = |id: &String| groups.get(id).is_some_and(|group| managed.contains(&group.name));
    let replaced = !desired.named_groups.instead.is_empty();
    attached.iter().any(|id| !named(id) && (replaced || !is_managed(id)))
}

fn managed_names(desired: &Wanted, env: &Env) -> BTreeSet<String> {
    let classic = names::classic_group(&desired.name);
    let network = names::network_group(&desired.cluster_name, &desired.service, &desired.uid);
    match &desired.goal {
        Goal::Absent => [classic, network].into(),
        Goal::Classic(_) => [classic].into(),
        Goal::Network(_) if env.managed_network_groups => [network].into(),
        Goal::Network(_) => BTreeSet::new(),
    }
}

async fn by_filter(
    name: &str,
    ids: impl IntoIterator<Item = String>,
    reads: &Reads,
) -> Answer<BTreeMap<String, SecurityGroup>> {
    let ids: Vec<String> = ids.into_iter().collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(by_id(reads.api.security_groups(&Query::by(name, ids)).await?))
}

fn by_id(groups: impl IntoIterator<Item = SecurityGroup>) -> BTreeMap<String, SecurityGroup> {
    groups.into_iter().map(|group| (group.id.clone(), group)).collect()
}

/// The groups of the user whose rules the plan would revoke: a classic balancer has them, or gets them.
pub(super) fn given_up(desired: &Wanted, observed: &Observed, env: &Env) -> BTreeSet<String> {
    let managed = managed_names(desired, env);
    let is_managed = |id: &String| observed.groups.get(id).is_some_and(|group| managed.contains(&group.name));
    let named = desired.named_groups.instead.iter().chain(&desired.named_groups.extra).chain(&env.shared_group);
    let named = named.filter(|_| matches!(desired.goal, Goal::Classic(_)));
    let attached = observed.classic.iter().flat_map(|found| &found.balancer.security_groups);
    if named.chain(attached).all(is_managed) {
        return BTreeSet::new();
    }
    let steps = plan_one(desired, observed, env).map(|planned| planned.steps).unwrap_or_default();
    let revoked = steps.iter().flat_map(|step| match &step.write {
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { permissions, .. }) => split(permissions),
        _ => Vec::new(),
    });
    let groups = revoked.filter_map(|rule| match rule.peer {
        Peer::Group { id, .. } => id.known().map(str::to_owned),
        Peer::Ipv4(_) | Peer::Ipv6(_) | Peer::PrefixList(_) => None,
    });
    groups.filter(|id| !is_managed(id)).collect()
}
