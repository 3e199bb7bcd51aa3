//! Deletes one orphan after reading it again, with the writes of the controllers.

use ccm_kit::inspect::orphans;

use super::found::is_to_instance;
use super::*;
use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{Answer, ApiError, FILTER_VALUES, Query};
use crate::loadbalancer::guard::guard;
use crate::loadbalancer::observe::gather;
use crate::loadbalancer::step;
use crate::loadbalancer::wanted::{Goal, NamedGroups, Wanted};

/// Delay of the retry of a deletion that AWS blocks for a while.
const HELD: Duration = Duration::from_secs(5);
const GONE: &[&str] =
    &["LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "InvalidRouteTableID.NotFound"];

/// # Errors
///
/// The orphan must be kept, has lost its tags, is in use, or AWS refused.
pub(in crate::inspect) async fn delete(aws: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    if aws.settings.ownership.cluster_key().is_none() {
        return Err(no_cluster_id());
    }
    let handle = orphans::handle(orphan)?;
    match &handle {
        OrphanRef::Classic { name, service } => {
            let Some(found) = there(aws.api.classic_balancers(std::slice::from_ref(name)).await)? else {
                return Ok(());
            };
            let tags =
                there(aws.api.classic_tags(std::slice::from_ref(name)).await)?.and_then(|mut tags| tags.remove(name));
            if found.is_empty() {
                return Ok(());
            }
            check_tags(aws, orphan, &tags.unwrap_or_default(), service)?;
            execute(aws, of_balancer(aws, cluster, &handle).await?.1).await
        }
        OrphanRef::Network { name, arn, service } => {
            let which = elbv2::Which::Names(vec![name.clone()]);
            let found = there(aws.api.balancers(&which).await)?.unwrap_or_default();
            if !found.iter().any(|balancer| balancer.arn == *arn) {
                return Ok(());
            }
            check_tags(aws, orphan, &network_tags(aws, arn).await?, service)?;
            execute(aws, of_balancer(aws, cluster, &handle).await?.1).await
        }
        OrphanRef::TargetGroup { name, arn, service, balancers } => {
            target_group(aws, orphan, (name, arn), service, balancers).await
        }
        OrphanRef::SecurityGroup { id, name, description } => {
            security_group(aws, orphan, id, (name, description)).await
        }
        OrphanRef::Route { table, destination } => route(aws, orphan, table, destination).await,
    }
}

/// `None`: AWS reports that the object does not exist.
fn there<T>(answer: Answer<T>) -> Answer<Option<T>> {
    match answer {
        Err(error) if ApiError::is(&error, GONE) => Ok(None),
        answer => answer.map(Some),
    }
}

async fn network_tags(aws: &Inspector, arn: &String) -> Answer<Tags> {
    let tags = there(aws.api.balancer_tags(std::slice::from_ref(arn)).await)?;
    Ok(tags.and_then(|mut tags| tags.remove(arn)).unwrap_or_default())
}

fn check_tags(aws: &Inspector, orphan: &Orphan, tags: &Tags, service: &str) -> Result<(), ProviderError> {
    let same = aws.settings.ownership.is_owned(tags) && tags.get(SERVICE_KEY).is_some_and(|found| found == service);
    if same { Ok(()) } else { Err(orphans::changed(orphan, "tags")) }
}

/// The steps that delete a balancer whose Service no longer exists: those of the controller, except for target groups
/// and security groups, which are orphans of their own.
pub(super) async fn of_balancer(
    aws: &Inspector,
    cluster: &str,
    handle: &OrphanRef,
) -> Result<(Observed, Vec<step::Step>), ProviderError> {
    let (name, service, classic) = match handle {
        OrphanRef::Classic { name, service } => (name, service, true),
        OrphanRef::Network { name, service, .. } => (name, service, false),
        _ => return Err(ProviderError::bug("no load balancer")),
    };
    let desired = Wanted {
        service: orphans::former(service, "")?.key(),
        // Only used in the name, which is known.
        uid: "".into(),
        cluster_name: cluster.into(),
        name: name.clone(),
        goal: Goal::Absent,
        network: !classic,
        target_groups: BTreeSet::new(),
        named_groups: NamedGroups::default(),
        findings: Vec::new(),
    };
    let balancers = aws.balancers();
    let observed = gather(&desired, &balancers.cloud()?.reads, &balancers.env).await?;
    let mut steps = balancers.plan_one(&desired, &observed)?.steps;
    steps.retain(|step| match &step.write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) | Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => false,
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) => classic,
        Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => !classic,
        _ => true,
    });
    if let Some((_, refusal)) = guard(&desired, &observed, &balancers.env, &steps).into_iter().next() {
        return Err(refusal);
    }
    Ok((observed, steps))
}

async fn target_group(
    aws: &Inspector,
    orphan: &Orphan,
    (name, arn): (&String, &String),
    service: &str,
    going: &[String],
) -> Result<(), ProviderError> {
    let which = elbv2::Which::Names(vec![name.clone()]);
    let found = there(aws.api.target_groups(&which).await)?.unwrap_or_default();
    let Some(found) = found.into_iter().find(|group| group.arn == *arn) else { return Ok(()) };
    check_tags(aws, orphan, &network_tags(aws, arn).await?, service)?;
    if let Some(user) = found.balancers.iter().find(|balancer| !going.contains(balancer)) {
        return Err(orphans::refused(orphan, format!("load balancer {user} forwards to it")));
    }
    if let Some(user) = found.balancers.first() {
        let message = format!(
            "{} {} cannot be deleted yet: load balancer {user} forwards to it, or did until just now",
            orphan.kind, orphan.id
        );
        return Err(ProviderError::retry(message, HELD));
    }
    let write = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: arn.clone() });
    let step = step::Step::new(Verb::Delete, "TargetGroup", name, "nothing claims it", write);
    execute(aws, vec![step]).await
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

async fn security_group(
    aws: &Inspector,
    orphan: &Orphan,
    id: &String,
    (name, description): (&str, &str),
) -> Result<(), ProviderError> {
    let found = aws.api.security_groups(&Query::by("group-id", [id])).await?;
    let Some(group) = found.into_iter().find(|group| group.id == *id) else { return Ok(()) };
    let same = aws.settings.ownership.is_owned(&group.tags) && group.name == name && group.description == description;
    if !same {
        return Err(orphans::changed(orphan, "tags"));
    }
    let (mut steps, blocked) = revoke_references(&group, &referring(aws, &[&group]).await?, aws.env());
    if !blocked.is_empty() {
        let blocked: Vec<String> = blocked.iter().map(ToString::to_string).collect();
        return Err(orphans::refused(orphan, blocked.join("; ")));
    }
    let write = Write::Ec2(Ec2Write::DeleteSecurityGroup { group: id.clone().into() });
    steps.push(step::Step::new(Verb::Delete, "SecurityGroup", id, "nothing claims it", write));
    execute(aws, steps).await
}

async fn route(aws: &Inspector, orphan: &Orphan, table: &str, destination: &str) -> Result<(), ProviderError> {
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
