//! Regional backend services.

use super::forwarding_rules::zone_is_in;
use super::kinds::Fields;
use super::places::{Spot, link, unlink};
use super::verbs::{default, text, texts};
use super::world::{World, inner};
use super::{errors, instance_groups};
use crate::core::rest::Problem;
use crate::core::rows::Row;
use serde_json::{Value, json};

/// Maximum number of groups of a backend service. Source: the page about quotas of Cloud Load Balancing.
const MOST_BACKENDS: usize = 50;

/// Checks a new backend service.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    check(world, spot, fields)?;
    let fingerprint = world.fingerprint();
    fields.insert("fingerprint".to_owned(), json!(fingerprint));
    Ok(())
}

/// Checks a changed backend service: its protocol and scheme must match those of the rules that use it.
pub(super) fn change(world: &mut World, spot: &Spot, old: &Row, fields: &mut Fields) -> Result<(), Problem> {
    check(world, spot, fields)?;
    if text(fields, "loadBalancingScheme") != old.text("loadBalancingScheme") {
        let text_ = "The load balancing scheme cannot be changed.";
        return Err(errors::invalid("resource.loadBalancingScheme", text(fields, "loadBalancingScheme"), text_));
    }
    let (was, is) = (old.text("protocol"), text(fields, "protocol"));
    if was != is
        && let Some(by) = world.used_by(&spot.key(), "forwardingRules", "backendService")
    {
        // unverified: the text.
        let text =
            format!("The protocol cannot be changed while the forwarding rule '{by}' refers to the backend service.");
        return Err(errors::invalid("resource.protocol", is, &text));
    }
    Ok(())
}

fn check(world: &World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    default(fields, "loadBalancingScheme", "EXTERNAL");
    default(fields, "protocol", "TCP");
    default(fields, "sessionAffinity", "NONE");
    default(fields, "timeoutSec", 30);
    default(fields, "connectionDraining", json!({"drainingTimeoutSec": 0}));
    if !matches!(text(fields, "protocol"), "TCP" | "UDP" | "UNSPECIFIED") {
        let text_ = "A passthrough load balancer takes TCP, UDP or UNSPECIFIED.";
        return Err(errors::invalid("resource.protocol", text(fields, "protocol"), text_));
    }
    let checks = texts(fields, "healthChecks");
    let [check] = checks.as_slice() else {
        let text = "Exactly one health check must be specified.";
        return Err(errors::invalid("resource.healthChecks", &checks.join(","), text));
    };
    let check = world.found(check, spot, "resource.healthChecks[0]", "healthChecks")?;
    world.may("compute.healthChecks.useReadOnly", &check)?;
    fields.insert("healthChecks".to_owned(), json!([link(&check)]));
    let Some(backends) = fields.get("backends").and_then(Value::as_array).cloned() else { return Ok(()) };
    let (mut shown, mut groups) = (Vec::new(), Vec::new());
    if backends.len() > MOST_BACKENDS {
        // unverified: the text.
        let text = format!("At most {MOST_BACKENDS} backends can be specified.");
        return Err(errors::invalid("resource.backends", &backends.len().to_string(), &text));
    }
    let internal = text(fields, "loadBalancingScheme") == "INTERNAL";
    for (number, backend) in backends.iter().enumerate() {
        if let mode @ ("UTILIZATION" | "RATE") = inner(backend, "balancingMode")
            && internal
        {
            let field = format!("resource.backends[{number}].balancingMode");
            return Err(errors::invalid(
                &field,
                mode,
                "Balancing mode must be CONNECTION for an INTERNAL backend service.",
            ));
        }
        let (backend, group) = self::backend(world, spot, number, backend)?;
        if groups.contains(&group) {
            let field = format!("resource.backends[{number}].group");
            return Err(errors::invalid(&field, &link(&group), "Duplicate instance groups in backend service."));
        }
        groups.push(group);
        shown.push(backend);
    }
    for group in &groups {
        instance_groups::once_balanced(world, group, &instance_groups::members(world, group), &groups)?;
    }
    fields.insert("backends".to_owned(), if shown.is_empty() { Value::Null } else { json!(shown) });
    Ok(())
}

/// A backend with its defaults, and the key of its group.
fn backend(world: &World, spot: &Spot, number: usize, backend: &Value) -> Result<(Value, String), Problem> {
    let field = format!("resource.backends[{number}].group");
    let group = world.found(inner(backend, "group"), spot, &field, "instanceGroups")?;
    world.may("compute.instanceGroups.use", &group)?;
    if !Spot::parse(&group).is_some_and(|other| zone_is_in(&other.place, &spot.place)) {
        return Err(errors::invalid(
            &field,
            &link(&group),
            "The instance group is not in the region of the backend service.",
        ));
    }
    let mut shown = backend.as_object().cloned().unwrap_or_default();
    shown.insert("group".to_owned(), json!(link(&group)));
    default(&mut shown, "balancingMode", "CONNECTION");
    Ok((Value::Object(shown), group))
}

/// The instance groups of all existing backend services, by the keys of the backend services.
pub(super) fn groups(world: &World) -> Vec<(String, String)> {
    let services = world.store.alive("backendServices", world.now());
    let groups = services.flat_map(|(key, row)| {
        let backends = row.list("backends").iter();
        backends.map(move |backend| (key.to_owned(), unlink(inner(backend, "group")).to_owned()))
    });
    groups.collect()
}

/// Adds the rules that use the backend service.
pub(super) fn show(world: &World, key: &str, fields: &mut Fields) {
    let (rules, own) = (world.store.all("forwardingRules"), link(key));
    let users: Vec<Value> = rules
        .filter(|(_, row)| row.text("backendService") == own)
        .map(|(rule, _)| json!({ "reference": link(rule) }))
        .collect();
    if !users.is_empty() {
        fields.insert("usedBy".to_owned(), json!(users));
    }
}

/// A backend service cannot be deleted while a forwarding rule uses it.
pub(super) fn free(world: &World, spot: &Spot) -> Result<(), Problem> {
    match world.used_by(&spot.key(), "forwardingRules", "backendService") {
        Some(by) => Err(errors::in_use("backend_service", &spot.key(), &by)),
        None => Ok(()),
    }
}
