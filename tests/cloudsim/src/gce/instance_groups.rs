//! Unmanaged instance groups.

use super::kinds::Fields;
use super::lists;
use super::places::{Spot, link, unlink};
use super::verbs::{self, custom, text, texts};
use super::world::{World, inner};
use super::{backend_services, errors, instances};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// The maximum number of members of a group. `unverified`: Google's own program adds no more.
const MOST: usize = 1000;

/// A new group has no members, and therefore no network.
pub(super) fn make(world: &mut World, _: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    let fingerprint = world.fingerprint();
    fields.insert("fingerprint".to_owned(), json!(fingerprint));
    fields.remove("size");
    Ok(())
}

/// Adds the number of members.
pub(super) fn show(world: &World, key: &str, fields: &mut Fields) {
    fields.insert("size".to_owned(), json!(members(world, key).len()));
}

/// The keys of the members of a group.
pub(super) fn members(world: &World, group: &str) -> Vec<String> {
    world.object(group).map(|row| texts(row, "_members")).unwrap_or_default()
}

/// `POST …/instanceGroups/{name}/listInstances`
pub(super) fn list(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (_, spot) = verbs::at(world, call)?;
    let key = spot.key();
    let body = if call.body.is_empty() { Fields::new() } else { verbs::body(call)? };
    let only_running = text(&body, "instanceState") == "RUNNING";
    let group = world.store.seen(&key, world.now()).ok_or_else(|| errors::not_found(&key))?;
    let listed = group.texts("_members").map(|member| {
        let status = world.store.get(member).map_or("TERMINATED", |row| row.text("status"));
        (member.to_owned(), shown(member, status))
    });
    let listed: Vec<(String, Fields)> =
        listed.filter(|(_, fields)| !only_running || text(fields, "status") == "RUNNING").collect();
    let page = lists::page(world, call, listed)?;
    Ok(lists::reply("compute#instanceGroupsListInstances", call, page))
}

fn shown(member: &str, status: &str) -> Fields {
    Fields::from_iter([("instance".to_owned(), json!(link(member))), ("status".to_owned(), json!(status))])
}

/// `POST …/instanceGroups/{name}/addInstances`
pub(super) fn add(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    custom(world, call, |world, spot, body, group| {
        let own = spot.key();
        let mut members = texts(group, "_members");
        let mut new = Vec::new();
        for (field, reference) in references(body)? {
            let key = world.found(reference, spot, &field, "instances")?;
            world.may("compute.instances.use", &key)?;
            if !key.starts_with(&format!("{}/", spot.location())) {
                return Err(errors::invalid(
                    &field,
                    reference,
                    "The instance is not in the zone of the instance group.",
                ));
            }
            if members.contains(&key) {
                let text = format!("Resource '{key}' is already a member of '{own}'.");
                return Err(Problem::new(400, "memberAlreadyExists", text));
            }
            joins(world, group, &key, &field)?;
            members.push(key.clone());
            new.push(key);
        }
        if members.len() > MOST {
            // unverified: the text.
            let text = format!("The instance group would have more than {MOST} instances.");
            return Err(errors::invalid("resource.instances", &members.len().to_string(), &text));
        }
        once_balanced(world, &own, &new, &[])?;
        members.sort();
        group.insert("_members".to_owned(), json!(members));
        Ok(())
    })
}

/// The first member determines the network and subnetwork of a group. `unverified`: also when all members have left.
fn joins(world: &World, group: &mut Fields, instance: &str, field: &str) -> Result<(), Problem> {
    let Some(row) = world.object(instance) else { return Ok(()) };
    let Some(first) = instances::interfaces(row).first() else { return Ok(()) };
    let network = inner(first, "network");
    if text(group, "network").is_empty() {
        for name in ["network", "subnetwork"] {
            group.insert(name.to_owned(), json!(inner(first, name)));
        }
        group.retain(|_, value| value.as_str() != Some(""));
    }
    if text(group, "network") != network {
        return Err(errors::invalid(
            field,
            &link(instance),
            "The instance is not in the network of the instance group.",
        ));
    }
    let (expected, subnetwork) = (text(group, "subnetwork"), inner(first, "subnetwork"));
    if expected == subnetwork {
        return Ok(());
    }
    let text = format!(
        "Resource '{instance}' is expected to be in the subnetwork '{}' but is in the subnetwork '{}'.",
        unlink(expected),
        unlink(subnetwork)
    );
    Err(Problem::new(400, "wrongSubnetwork", text))
}

/// `POST …/instanceGroups/{name}/removeInstances`
pub(super) fn remove(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    custom(world, call, |world, spot, body, group| {
        let mut members = texts(group, "_members");
        for (field, reference) in references(body)? {
            let key = world.found(reference, spot, &field, "instances")?;
            let before = members.len();
            members.retain(|member| *member != key);
            if members.len() == before {
                // unverified: the status.
                let text = format!("Resource '{key}' is not a member of '{}'.", spot.key());
                return Err(Problem::new(400, "memberNotFound", text));
            }
        }
        group.insert("_members".to_owned(), json!(members));
        Ok(())
    })
}

/// The references in the body of an add or remove call, with their paths.
fn references(body: &Fields) -> Result<Vec<(String, &str)>, Problem> {
    let items = body.get("instances").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return Err(errors::required("resource.instances"));
    }
    let named = items.iter().enumerate();
    Ok(named
        .map(|(number, item)| (format!("resource.instances[{number}].instance"), inner(item, "instance")))
        .collect())
}

/// An instance is in at most one group that a load balancer uses. `with`: groups that are about to be used.
pub(super) fn once_balanced(world: &World, group: &str, new: &[String], with: &[String]) -> Result<(), Problem> {
    let mut used: Vec<String> = backend_services::groups(world).into_iter().map(|(_, group)| group).collect();
    used.extend_from_slice(with);
    if !used.iter().any(|used| used == group) {
        return Ok(());
    }
    used.retain(|used| used != group);
    used.sort();
    used.dedup();
    for other in used {
        let members = members(world, &other);
        if let Some(instance) = new.iter().find(|instance| members.contains(instance)) {
            let text = format!(
                "Validation failed for instance '{instance}': instance may belong to at most one load-balanced instance group."
            );
            return Err(Problem::new(400, "instanceInMultipleLoadBalancedIgs", text));
        }
    }
    Ok(())
}

/// A group cannot be deleted while a backend service uses it.
pub(super) fn free(world: &World, spot: &Spot) -> Result<(), Problem> {
    let key = spot.key();
    match backend_services::groups(world).into_iter().find(|(_, group)| *group == key) {
        Some((by, _)) => Err(errors::in_use("instance_group", &key, &by)),
        None => Ok(()),
    }
}
