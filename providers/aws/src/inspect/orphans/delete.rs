//! Deletes one orphan after reading it again, with the writes of the controllers.

use super::found::{is_to_instance, name};
use super::*;
use crate::annotations::Kind;
use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{Answer, ApiError, FILTER_VALUES, Query};
use crate::loadbalancer::guard::guard;
use crate::loadbalancer::observe::gather;
use crate::loadbalancer::step;
use crate::loadbalancer::wanted::{Goal, NamedGroups, Wanted};

const GONE: &[&str] =
    &["LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "InvalidRouteTableID.NotFound"];

pub(in crate::inspect) async fn delete(aws: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    if aws.settings.ownership.cluster_key().is_none() {
        return Err(no_cluster_id());
    }
    let claim = orphans::claim(orphan)?;
    match &*orphan.kind {
        LOAD_BALANCER => {
            let (desired, observed) = look(aws, cluster, &orphan.name, &orphan.id, &claim.service).await?;
            let now: Vec<Object> = inventory::balancers(aws.env(), &observed).collect();
            if orphans::is_there(orphan, &now)? {
                execute(aws, steps(aws, &desired, &observed)?).await?;
            }
            Ok(())
        }
        TARGET_GROUP => target_group(aws, orphan).await,
        SECURITY_GROUP => security_group(aws, orphan).await,
        _ => route(aws, orphan).await,
    }
}

/// `None`: AWS reports that the object does not exist.
fn there<T>(answer: Answer<T>) -> Answer<Option<T>> {
    match answer {
        Err(error) if ApiError::is(&error, GONE) => Ok(None),
        answer => answer.map(Some),
    }
}

/// A balancer whose Service no longer exists, by name and ID.
pub(super) async fn look(
    aws: &Inspector,
    cluster: &str,
    named: &str,
    id: &str,
    service: &str,
) -> Result<(Wanted, Observed), ProviderError> {
    let desired = Wanted {
        service: orphans::former(service, "")?.key(),
        // Only used in the name, which is known.
        uid: "".into(),
        cluster_name: cluster.into(),
        name: name(named, id).to_owned(),
        goal: Goal::Absent,
        elsewhere: false,
        network: !named.is_empty(),
        kinds: vec![if named.is_empty() { Kind::Classic } else { Kind::Network }],
        target_groups: BTreeSet::new(),
        named_groups: NamedGroups::default(),
        findings: Vec::new(),
    };
    let observed = gather(&desired, &aws.balancers().cloud()?.reads, aws.env()).await?;
    Ok((desired, observed))
}

/// The steps of the controller that delete a balancer, except for target groups and security groups, which are orphans of
/// their own.
pub(super) fn steps(aws: &Inspector, desired: &Wanted, observed: &Observed) -> Result<Vec<step::Step>, ProviderError> {
    let mut steps = aws.balancers().plan_one(desired, observed)?.steps;
    steps.retain(|step| match &step.write {
        Write::Ec2(Ec2Write::CreateTags { .. } | Ec2Write::DeleteSecurityGroup { .. })
        | Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => false,
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) => !desired.network,
        Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => desired.network,
        _ => true,
    });
    let refused = guard(desired, observed, aws.env(), &steps).into_iter().next();
    refused.map_or(Ok(steps), |(_, refusal)| Err(refusal))
}

async fn target_group(aws: &Inspector, orphan: &Orphan) -> Result<(), ProviderError> {
    let which = elbv2::Which::Names(vec![orphan.name.clone()]);
    let found = there(aws.api.target_groups(&which).await)?.unwrap_or_default();
    let tags = there(aws.api.balancer_tags(std::slice::from_ref(&orphan.id)).await)?.unwrap_or_default();
    let now = found.iter().map(|group| inventory::target_group(aws.env(), group, tags.get(&orphan.id)));
    if !orphans::is_there(orphan, &now.collect::<Vec<_>>())? {
        return Ok(());
    }
    let write = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: orphan.id.clone() });
    execute(aws, vec![step::Step::new(Verb::Delete, TARGET_GROUP, &orphan.name, "nothing claims it", write)]).await
}

async fn execute(aws: &Inspector, steps: Vec<step::Step>) -> Result<(), ProviderError> {
    let steps: Vec<_> = steps.into_iter().map(Into::into).collect();
    orphans::write(aws.balancers(), &steps).await
}

/// The groups with rules that refer to one of these: such rules must be revoked first, or they block the deletion.
pub(super) async fn referring(aws: &Inspector, groups: &[&SecurityGroup]) -> Result<Observed, ProviderError> {
    let mut observed = Observed::default();
    for some in groups.chunks(FILTER_VALUES) {
        let ids = some.iter().map(|group| &group.id);
        let found = aws.api.security_groups(&Query::by("ip-permission.group-id", ids)).await?;
        observed.groups.extend(found.into_iter().map(|group| (group.id.clone(), group)));
    }
    Ok(observed)
}

async fn security_group(aws: &Inspector, orphan: &Orphan) -> Result<(), ProviderError> {
    let found = aws.api.security_groups(&Query::by("group-id", [&orphan.id])).await?;
    let now: Vec<Object> = found.iter().map(|group| inventory::security_group(aws.env(), group)).collect();
    let is_there = orphans::is_there(orphan, &now)?;
    let Some(group) = found.iter().find(|group| is_there && group.id == orphan.id) else { return Ok(()) };
    let (mut steps, blocked) = revoke_references(group, &referring(aws, &[group]).await?, aws.env());
    if !blocked.is_empty() {
        let blocked: Vec<String> = blocked.iter().map(ToString::to_string).collect();
        return Err(orphans::refused(orphan, blocked.join("; ")));
    }
    let write = Write::Ec2(Ec2Write::DeleteSecurityGroup { group: orphan.id.clone().into() });
    steps.push(step::Step::new(Verb::Delete, SECURITY_GROUP, &orphan.id, "nothing claims it", write));
    execute(aws, steps).await
}

async fn route(aws: &Inspector, orphan: &Orphan) -> Result<(), ProviderError> {
    let (table, destination) = orphan.id.split_once(' ').unwrap_or_default();
    let found = there(aws.api.route_tables(&Query::by("route-table-id", [table])).await)?.unwrap_or_default();
    let Some(found) = found.first() else { return Ok(()) };
    if !aws.settings.ownership.is_owned(&found.tags) {
        return Err(orphans::refused(orphan, "the route table is no longer tagged as the cluster's own"));
    }
    if found.routes.iter().any(|route| route.destination == destination && !is_to_instance(route)) {
        return Err(orphans::refused(orphan, "it is no longer a route to an instance"));
    }
    let Some(write) = routes::removal(found, destination)? else { return Ok(()) };
    match aws.api.write(&Write::Ec2(write)).await {
        Err(error) if !error.is(&["InvalidRoute.NotFound"]) => Err(error.into()),
        _ => Ok(()),
    }
}
