//! Target pools and their instances.

use super::errors;
use super::forwarding_rules::zone_is_in;
use super::kinds::Fields;
use super::places::{Spot, link, unlink};
use super::verbs::{custom, default, texts};
use super::world::{World, inner};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The maximum number of instances of a new pool. `unverified`: Google's own program sends no more.
const MOST_AT_FIRST: usize = 200;

/// The maximum number of instances that a call can add or remove.
const MOST_AT_ONCE: usize = 1000;

/// Checks a new pool.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    default(fields, "sessionAffinity", "NONE");
    let given = texts(fields, "instances");
    most(given.len(), MOST_AT_FIRST)?;
    let mut instances: Vec<String> = Vec::new();
    for (number, instance) in given.iter().enumerate() {
        let member = link(&member(world, spot, instance, &format!("resource.instances[{number}]"))?);
        if !instances.contains(&member) {
            instances.push(member);
        }
    }
    if !instances.is_empty() {
        fields.insert("instances".to_owned(), json!(instances));
    }
    let checks = texts(fields, "healthChecks");
    if checks.len() > 1 {
        return Err(errors::invalid(
            "resource.healthChecks",
            &checks.join(","),
            "At most one health check can be specified.",
        ));
    }
    let mut links = Vec::new();
    for check in &checks {
        let key = world.found(check, spot, "resource.healthChecks[0]", "httpHealthChecks")?;
        world.may("compute.httpHealthChecks.useReadOnly", &key)?;
        links.push(link(&key));
    }
    if !links.is_empty() {
        fields.insert("healthChecks".to_owned(), json!(links));
    }
    Ok(())
}

fn most(count: usize, most: usize) -> Result<(), Problem> {
    if count <= most {
        return Ok(());
    }
    // unverified: the text.
    Err(errors::invalid(
        "resource.instances",
        &count.to_string(),
        &format!("At most {most} instances can be specified."),
    ))
}

/// The key of an instance that can be in a pool.
fn member(world: &World, spot: &Spot, reference: &str, field: &str) -> Result<String, Problem> {
    let key = world.key_of(reference, spot, field, "instances")?;
    if !Spot::parse(&key).is_some_and(|other| zone_is_in(&other.place, &spot.place)) {
        return Err(errors::invalid(field, reference, "The instance is not in the region of the target pool."));
    }
    if !world.options.absent_pool_members {
        world.ready(&key)?;
        world.may("compute.instances.use", &key)?;
    }
    Ok(key)
}

/// `POST …/targetPools/{name}/addInstance`
pub(super) fn add(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    custom(world, call, |world, spot, body, pool| {
        let mut members = texts(pool, "instances");
        let mut known: HashSet<String> = members.iter().cloned().collect();
        for (field, reference) in references(body)? {
            let member = link(&member(world, spot, reference, &field)?);
            if known.insert(member.clone()) {
                members.push(member);
            }
        }
        pool.insert("instances".to_owned(), json!(members));
        Ok(())
    })
}

/// `POST …/targetPools/{name}/removeInstance`
pub(super) fn remove(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    custom(world, call, |world, spot, body, pool| {
        let mut members = texts(pool, "instances");
        for (field, reference) in references(body)? {
            let key = world.key_of(reference, spot, &field, "instances")?;
            let before = members.len();
            members.retain(|member| unlink(member) != key);
            if members.len() == before {
                let text = "Instance is not currently attached to this target pool.";
                return Err(errors::invalid("resource.instance", &link(&key), text));
            }
        }
        let left = if members.is_empty() { Value::Null } else { json!(members) };
        pool.insert("instances".to_owned(), left);
        Ok(())
    })
}

/// The references in the body of an add or remove call, with their paths.
fn references(body: &Fields) -> Result<Vec<(String, &str)>, Problem> {
    let items = body.get("instances").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return Err(errors::required("resource.instances"));
    }
    most(items.len(), MOST_AT_ONCE)?;
    let named = items.iter().enumerate();
    Ok(named
        .map(|(number, item)| (format!("resource.instances[{number}].instance"), inner(item, "instance")))
        .collect())
}

/// A pool cannot be deleted while a forwarding rule uses it.
pub(super) fn free(world: &World, spot: &Spot) -> Result<(), Problem> {
    match world.used_by(&spot.key(), "forwardingRules", "target") {
        Some(by) => Err(errors::in_use("target_pool", &spot.key(), &by)),
        None => Ok(()),
    }
}
