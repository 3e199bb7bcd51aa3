//! Tags of balancers, target groups and listeners.

use super::{balancer, group, listener};
use crate::aws::balancing::{self, invalid};
use crate::aws::ec2::Tags;
use crate::aws::{ApiError, Call, World, Xml};

/// The resources of a request with their tags. Each kind has its own error for unknown resources.
fn named(world: &World, call: &Call) -> Result<Vec<(String, Tags)>, ApiError> {
    let arns = balancing::unique(call, "ResourceArns");
    if arns.is_empty() || arns.len() > 20 {
        return Err(invalid("Between 1 and 20 resource ARNs must be specified"));
    }
    let tags = |arn: &String| {
        let resource = arn.rsplit(':').next().unwrap_or_default();
        match resource.split('/').next() {
            Some("targetgroup") => group(world, arn).map(|group| group.tags.clone()),
            Some("listener") => listener(world, arn).map(|listener| listener.tags.clone()),
            Some("loadbalancer") => balancer(world, arn).map(|balancer| balancer.tags.clone()),
            _ => Err(invalid(format!("'{arn}' is not a valid ARN of a resource with tags"))),
        }
    };
    arns.iter().map(|arn| tags(arn).map(|tags| (arn.clone(), tags))).collect()
}

fn store(world: &mut World, arn: &str, tags: Tags) {
    let state = &mut world.elbv2;
    let place = if let Some(balancer) = state.balancers.get_mut(arn) {
        Some(&mut balancer.tags)
    } else if let Some(group) = state.groups.get_mut(arn) {
        Some(&mut group.tags)
    } else {
        state.listeners.get_mut(arn).map(|listener| &mut listener.tags)
    };
    if let Some(place) = place {
        *place = tags;
    }
}

pub(super) fn add(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let new = balancing::tags(call)?;
    let mut all = named(world, call)?;
    for (_, tags) in &mut all {
        *tags = balancing::add_tags(world, std::mem::take(tags), new.clone())?;
    }
    for (arn, tags) in all {
        store(world, &arn, tags);
    }
    Ok(Xml::new())
}

/// The tags of a new resource may be shown later than the resource.
pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let all = named(world, call)?;
    for (arn, _) in &all {
        let created = world.elbv2.balancers.get(arn).map(|balancer| ("LoadBalancerNotFound", balancer.created));
        let created = created.or_else(|| Some(("TargetGroupNotFound", world.elbv2.groups.get(arn)?.created)));
        if let Some((code, _)) = created.filter(|(_, created)| !world.known("tags", *created)) {
            return Err(ApiError::new(code, format!("'{arn}' not found")));
        }
    }
    Ok(balancing::listing("TagDescriptions", all, None, |xml, (arn, tags)| {
        xml.text("ResourceArn", &arn);
        balancing::write_tags(xml, &tags);
    }))
}
