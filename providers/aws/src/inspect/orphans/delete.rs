//! Removes one orphan, after another look. The writes are those of the controllers.

use std::sync::Mutex;

use ccm_provider::Planned as _;

use super::found::{is_to_instance, key};
use super::*;
use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{ApiError, FILTER_VALUES, Query};
use crate::loadbalancer::apply::Outputs;
use crate::loadbalancer::desired::{Desired, Goal, NamedGroups};
use crate::loadbalancer::guard::guard;
use crate::loadbalancer::observe::gather;
use crate::loadbalancer::plan;

/// When something that goes by itself is looked at again.
const HELD: Duration = Duration::from_secs(5);
const GONE: &[&str] =
    &["LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "InvalidRouteTableID.NotFound"];

/// # Errors
///
/// The orphan is to be kept, has lost its mark, is used, or AWS refused.
pub(in crate::inspect) async fn delete(of: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    if of.settings.ownership.cluster_key().is_none() {
        return Err(no_mark());
    }
    let what = format!("{} {}", orphan.kind, orphan.id);
    if let Some(kept) = &orphan.kept {
        return Err(refused(&what, kept));
    }
    let handle = serde_json::from_value(orphan.handle.clone())
        .map_err(|error| ProviderError::bug(format!("{what} was not told by this process: {error}")))?;
    match &handle {
        Handle::Classic { name, service } => {
            let Some(found) = there(of.api.classic_balancers(std::slice::from_ref(name)).await)? else { return Ok(()) };
            let tags =
                there(of.api.classic_tags(std::slice::from_ref(name)).await)?.and_then(|mut tags| tags.remove(name));
            if found.is_empty() {
                return Ok(());
            }
            check_mark(of, &what, &tags.unwrap_or_default(), service)?;
            write_all(of, of_balancer(of, cluster, &handle).await?.1).await
        }
        Handle::Network { name, arn, service } => {
            let which = elbv2::Which::Names(vec![name.clone()]);
            let found = there(of.api.balancers(&which).await)?.unwrap_or_default();
            if !found.iter().any(|balancer| balancer.arn == *arn) {
                return Ok(());
            }
            check_mark(of, &what, &network_tags(of, arn).await?, service)?;
            write_all(of, of_balancer(of, cluster, &handle).await?.1).await
        }
        Handle::TargetGroup { name, arn, service, of: balancers } => {
            target_group(of, &what, (name, arn), service, balancers).await
        }
        Handle::SecurityGroup { id, name, description } => security_group(of, &what, id, (name, description)).await,
        Handle::Route { table, destination } => route(of, &what, table, destination).await,
    }
}

fn refused(what: &str, why: &str) -> ProviderError {
    ProviderError::unknown(format!("{what} is not deleted: {why}"))
}

/// `None`: AWS says that it isn't there.
fn there<T>(answer: Answer<T>) -> Answer<Option<T>> {
    match answer {
        Err(error) if ApiError::is(&error, GONE) => Ok(None),
        answer => answer.map(Some),
    }
}

async fn network_tags(of: &Inspector, arn: &String) -> Answer<Tags> {
    let tags = there(of.api.balancer_tags(std::slice::from_ref(arn)).await)?;
    Ok(tags.and_then(|mut tags| tags.remove(arn)).unwrap_or_default())
}

fn check_mark(of: &Inspector, what: &str, tags: &Tags, service: &str) -> Result<(), ProviderError> {
    let same = of.settings.ownership.is_owned(tags) && tags.get(SERVICE_KEY).is_some_and(|found| found == service);
    if same { Ok(()) } else { Err(refused(what, "its tags are not those that it was recognized by any more")) }
}

/// What removes a balancer whose Service is gone: what the controller would do, save for the target groups and security
/// groups, which are orphans of their own.
pub(super) async fn of_balancer(
    of: &Inspector,
    cluster: &str,
    handle: &Handle,
) -> Result<(Observed, Vec<plan::Step>), ProviderError> {
    let (name, service, classic) = match handle {
        Handle::Classic { name, service } => (name, service, true),
        Handle::Network { name, service, .. } => (name, service, false),
        _ => return Err(ProviderError::bug("no load balancer")),
    };
    let service = key(service).ok_or_else(|| ProviderError::bug(format!("{service:?} names no Service")))?;
    let desired = Desired {
        service,
        // Part of its name, which is all that is needed.
        uid: "".into(),
        cluster_name: cluster.into(),
        name: name.clone(),
        goal: Goal::Absent,
        network: !classic,
        named_groups: NamedGroups::default(),
        findings: Vec::new(),
    };
    let balancers = of.balancers();
    let observed = gather(&desired, &balancers.reads, &balancers.env).await?;
    let mut steps = balancers.plan_one(&desired, &observed)?.steps;
    steps.retain(|step| match &step.write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) | Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => false,
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) => classic,
        Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => !classic,
        _ => true,
    });
    guard(&desired, &observed, &balancers.env, &steps)?;
    Ok((observed, steps))
}

async fn write_all(of: &Inspector, steps: Vec<plan::Step>) -> Result<(), ProviderError> {
    let outputs = Mutex::new(Outputs::default());
    for step in &steps {
        of.balancers().apply(step, &outputs).await?;
    }
    of.balancers().finish(&outputs)
}

async fn target_group(
    of: &Inspector,
    what: &str,
    (name, arn): (&String, &String),
    service: &str,
    going: &[String],
) -> Result<(), ProviderError> {
    let which = elbv2::Which::Names(vec![name.clone()]);
    let found = there(of.api.target_groups(&which).await)?.unwrap_or_default();
    let Some(found) = found.into_iter().find(|group| group.arn == *arn) else { return Ok(()) };
    check_mark(of, what, &network_tags(of, arn).await?, service)?;
    if let Some(user) = found.balancers.iter().find(|balancer| !going.contains(balancer)) {
        return Err(refused(what, &format!("load balancer {user} leads to it")));
    }
    if let Some(user) = found.balancers.first() {
        let message = format!("{what} cannot be deleted yet: load balancer {user} leads to it, or did a moment ago");
        return Err(ProviderError::retry(message, HELD));
    }
    let write = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: arn.clone() });
    let step = plan::Step::new(Verb::Delete, "TargetGroup", name, "nothing claims it", write);
    write_all(of, vec![step]).await
}

/// The groups with rules that refer to one of these: such rules go before it, or keep it from going.
pub(super) async fn referring(of: &Inspector, groups: &[&SecurityGroup]) -> Result<Observed, ProviderError> {
    let mut observed = Observed::default();
    for some in groups.chunks(FILTER_VALUES) {
        let ids = some.iter().map(|group| &group.id);
        let found = of.api.security_groups(&Query::by("ip-permission.group-id", ids)).await?;
        observed.groups.extend(found.into_iter().map(|group| (group.id.clone(), group)));
    }
    Ok(observed)
}

async fn security_group(
    of: &Inspector,
    what: &str,
    id: &String,
    (name, description): (&str, &str),
) -> Result<(), ProviderError> {
    let found = of.api.security_groups(&Query::by("group-id", [id])).await?;
    let Some(group) = found.into_iter().find(|group| group.id == *id) else { return Ok(()) };
    let same = of.settings.ownership.is_owned(&group.tags) && group.name == name && group.description == description;
    if !same {
        return Err(refused(what, "its tags are not those that it was recognized by any more"));
    }
    let (mut steps, blocked) = revoke_references(&group, &referring(of, &[&group]).await?, of.env());
    if !blocked.is_empty() {
        let blocked: Vec<String> = blocked.iter().map(ToString::to_string).collect();
        return Err(refused(what, &blocked.join("; ")));
    }
    let write = Write::Ec2(Ec2Write::DeleteSecurityGroup { group: id.clone().into() });
    steps.push(plan::Step::new(Verb::Delete, "SecurityGroup", id, "nothing claims it", write));
    write_all(of, steps).await
}

async fn route(of: &Inspector, what: &str, table: &str, destination: &str) -> Result<(), ProviderError> {
    let found = there(of.api.route_tables(&Query::by("route-table-id", [table])).await)?.unwrap_or_default();
    let Some(found) = found.first() else { return Ok(()) };
    if !of.settings.ownership.is_owned(&found.tags) {
        return Err(refused(what, "the route table is not tagged as the cluster's own any more"));
    }
    if found.routes.iter().any(|route| route.destination == destination && !is_to_instance(route)) {
        return Err(refused(what, "it is no route to an instance any more"));
    }
    let Some(write) = routes::removal(found, destination)? else { return Ok(()) };
    match of.api.write(&Write::Ec2(write)).await {
        Err(error) if !error.is(&["InvalidRoute.NotFound"]) => Err(error.into()),
        _ => Ok(()),
    }
}
