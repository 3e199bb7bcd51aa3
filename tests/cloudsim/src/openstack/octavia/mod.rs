//! Octavia: load balancers, listeners, pools, members and health monitors.
//!
//! A change makes the load balancer immutable until it is provisioned, which takes time on the virtual clock.

pub(super) mod balancers;
pub(super) mod listeners;
pub(super) mod members;
pub(super) mod monitors;
pub(super) mod pools;
mod providers;
mod shapes;

use super::World;
use super::lists::{Listing, link, other_page, paged};
use super::neutron::python;
use super::world::ends;
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Mismatch, Why, check};
use serde_json::{Map, Value, json};

/// A kind of resource.
pub(super) struct Kind {
    /// The list operation.
    pub(super) listing: Listing,
    /// The name in messages.
    text: &'static str,
    /// The name in errors about bodies.
    argument: &'static str,
}

macro_rules! kinds {
    ($($name:ident: $kind:literal, $list:literal, $text:literal, $argument:literal, [$($filter:literal),*];)*) => {
        $(
            pub(super) static $name: Kind = Kind {
                listing: Listing {
                    kind: $kind,
                    name: $list,
                    filters: &["id", "name", "project_id", "tenant_id", "provisioning_status", "operating_status",
                               "admin_state_up", "created_at", "updated_at", $($filter),*],
                    shown: None,
                },
                text: $text,
                argument: $argument,
            };
        )*
    };
}

kinds! {
    BALANCER: "loadbalancer", "loadbalancers", "Load Balancer", "load_balancer",
        ["vip_address", "vip_port_id", "vip_subnet_id", "vip_network_id", "provider", "flavor_id", "availability_zone", "description"];
    LISTENER: "listener", "listeners", "Listener", "listener_",
        ["loadbalancer_id", "load_balancer_id", "protocol", "protocol_port", "default_pool_id", "connection_limit", "description"];
    POOL: "pool", "pools", "Pool", "pool_", ["loadbalancer_id", "load_balancer_id", "protocol", "lb_algorithm", "description"];
    MEMBER: "member", "members", "Member", "member_", ["address", "protocol_port", "subnet_id", "weight", "backup", "monitor_port"];
    MONITOR: "healthmonitor", "healthmonitors", "Health Monitor", "health_monitor_", ["pool_id", "type", "delay", "timeout", "max_retries"];
}

/// An error of the request or of the state.
pub(super) fn refused(status: u16, text: impl Into<String>) -> Problem {
    Problem::new(status, "", text)
}

/// A validation failure.
pub(super) fn invalid(text: &str) -> Problem {
    refused(400, format!("Validation failure: {text}"))
}

impl Kind {
    fn not_found(&self, id: &str) -> Problem {
        refused(404, format!("{} {id} not found.", self.text))
    }

    /// A resource that the caller can see.
    fn find<'a>(&self, world: &'a World, id: &str) -> Result<&'a Row, Problem> {
        world.seen(self.listing.kind, id).ok_or_else(|| match world.row(self.listing.kind, id) {
            // That of another project.
            Some(_) => refused(403, "Policy does not allow this request to be performed."),
            None => self.not_found(id),
        })
    }

    /// An answer with one resource.
    fn reply(&self, world: &World, status: u16, id: &str) -> Result<Reply, Problem> {
        let row = world.row(self.listing.kind, id).ok_or_else(|| self.not_found(id))?;
        Ok(self.listing.one(world, status, self.listing.kind, row))
    }

    /// The fields of a body, checked against their shape.
    fn body(&self, call: &Call, fields: &[Field]) -> Result<Map<String, Value>, Problem> {
        let name = self.listing.kind;
        let Some(mut body) = call.object() else {
            return Err(Problem::violation(400, "", "Request is not in valid JSON format"));
        };
        let Some(Value::Object(inside)) = body.remove(name) else {
            return Err(Problem::violation(500, "", format!("'UnsetType' object: the request has no {name}")));
        };
        check(&inside, fields).map_err(|wrong| mismatch(&wrong, self.argument, name))?;
        Ok(inside)
    }
}

/// The error for a body, with Octavia's text.
fn mismatch(wrong: &Mismatch, argument: &str, name: &str) -> Problem {
    let Mismatch { inside, field, value, why } = wrong;
    let shown = match value {
        Value::String(text) => text.clone(),
        other => python(other),
    };
    let wants = match why {
        Why::Unknown | Why::ReadOnly => {
            let dot = if inside.is_empty() { "" } else { "." };
            let text = format!("Unknown attribute for argument {argument}.{name}{dot}{inside}: {field}");
            return Problem::violation(400, "", text);
        }
        Why::Type(kind @ ("integer" | "list" | "boolean")) => {
            let text = format!("Invalid input for field/attribute {argument}. Value not a valid {kind}: {shown}");
            return Problem::violation(400, "", text);
        }
        Why::Missing => "Mandatory field missing.".to_owned(),
        Why::Type(kind) => format!("Value should be {kind}"),
        Why::Long(most) => format!("Value should have a maximum character requirement of {most}"),
        Why::Low(low) => format!("Value should be greater or equal to {low}"),
        Why::High(high) => format!("Value should be lower or equal to {high}"),
        Why::NotOneOf(names) => format!("Value should be one of: {}", names.join(", ")),
    };
    Problem::violation(400, "", format!("Invalid input for field/attribute {field}. Value: '{shown}'. {wants}"))
}

/// The current time in the format of Octavia.
fn stamp(world: &World) -> String {
    world.stamp("%Y-%m-%dT%H:%M:%S")
}

/// Answers a list request of Octavia with all resources of a kind.
fn list(kind: &Kind, world: &World, call: &Call) -> Result<Reply, Problem> {
    list_among(kind, world, call, world.table(kind.listing.kind).values())
}

/// Answers a list request of Octavia with some rows.
fn list_among<'a>(
    kind: &Kind,
    world: &'a World,
    call: &Call,
    among: impl Iterator<Item = &'a Row>,
) -> Result<Reply, Problem> {
    if kind.listing.unknown(call).is_some() {
        return Err(Problem::violation(400, "", "One or more arguments are either duplicate or invalid"));
    }
    let limit = match call.get("limit") {
        None => None,
        Some(text) => Some(text.parse::<usize>().map_err(|_| {
            Problem::violation(400, "plain", format!("Supplied pagination limit '{text}' is not valid."))
        })?),
    };
    let (rows, full) = paged(kind.listing.rows(world, call, among), call, limit)
        .map_err(|marker| refused(400, format!("Supplied pagination marker '{}' is not valid.", marker.message)))?;
    // The links keep the limit and drop the filters, as in Octavia.
    let url = |marker: &str| other_page(&world.url, call, |name| name == "limit", marker);
    let mut links: Vec<Value> = Vec::new();
    if let Some(last) = rows.last().filter(|_| full) {
        links.push(link("next", &url(last.id())));
    }
    if let Some(first) = rows.first().filter(|_| call.get("marker").is_some()) {
        links.push(link("previous", &format!("{}&page_reverse=True", url(first.id()))));
    }
    Ok(kind.listing.reply(world, call, &rows, Some(Value::Array(links))))
}

/// Checks whether a load balancer can be changed.
fn mutable(world: &World, balancer: &str) -> Result<(), Problem> {
    let row = BALANCER.find(world, balancer)?;
    if row.text("provisioning_status") == "ACTIVE" { Ok(()) } else { Err(immutable("Load Balancer", balancer)) }
}

fn immutable(what: &str, id: &str) -> Problem {
    refused(409, format!("{what} {id} is immutable and cannot be updated."))
}

/// Begins the provisioning of a load balancer and these parts of it.
fn begin(world: &mut World, balancer: &str, status: &str, parts: &[(&'static str, &str, &str)]) {
    let stamp = stamp(world);
    for (kind, id, status) in parts.iter().chain(&[("loadbalancer", balancer, status)]) {
        if let Some(row) = world.row_mut(kind, id) {
            row.set("provisioning_status", *status);
            if *status != "PENDING_CREATE" {
                row.set("updated_at", stamp.as_str());
            }
        }
    }
    if world.spoiled {
        world.failing_balancers.insert(balancer.to_owned());
    }
    queue(world, balancer);
}

/// Lets the provisioning of a load balancer end after its time.
pub(super) fn queue(world: &mut World, balancer: &str) {
    let due = (ends(world, world.options.provisioning), world.number());
    world.pending.insert(due, balancer.to_owned());
}

/// Checks that the quota of a kind has room.
fn room(kind: &Kind, world: &World, more: usize) -> Result<(), Problem> {
    match world.lacks_room(kind.listing.kind, more) {
        true => Err(refused(403, format!("Quota has been met for resources: {}", kind.text))),
        false => Ok(()),
    }
}

/// Whether a load balancer, or a part of it, is being provisioned.
pub(super) fn is_pending(row: &Row) -> bool {
    row.text("provisioning_status").starts_with("PENDING")
}

/// The IDs in a list of `{"id": …}`.
fn ids(row: &Row, name: &str) -> Vec<String> {
    row.list(name).iter().filter_map(|entry| Some(entry.get("id")?.as_str()?.to_owned())).collect()
}

/// Adds an ID to a list of `{"id": …}`.
fn add_id(world: &mut World, kind: &'static str, of: &str, list: &str, id: &str) {
    if let Some(Value::Array(entries)) = world.row_mut(kind, of).and_then(|row| row.fields.get_mut(list)) {
        entries.push(json!({ "id": id }));
    }
}

/// Removes an ID from a list of `{"id": …}`.
fn take_id(world: &mut World, kind: &'static str, of: &str, list: &str, id: &str) {
    if let Some(Value::Array(entries)) = world.row_mut(kind, of).and_then(|row| row.fields.get_mut(list)) {
        entries.retain(|entry| entry.get("id").is_none_or(|is| is != id));
    }
}

/// All parts of a load balancer: kind and ID.
fn parts(world: &World, balancer: &Row) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&'static str, String)> =
        ids(balancer, "listeners").into_iter().map(|id| ("listener", id)).collect();
    for pool in ids(balancer, "pools") {
        if let Some(row) = world.row("pool", &pool) {
            parts.extend(ids(row, "members").into_iter().map(|id| ("member", id)));
            parts.extend(
                Some(row.text("healthmonitor_id"))
                    .filter(|id| !id.is_empty())
                    .map(|id| ("healthmonitor", id.to_owned())),
            );
        }
        parts.push(("pool", pool));
    }
    parts
}

/// Ends the provisioning of a load balancer.
pub(super) fn settle(world: &mut World, id: &str) {
    let spoiled = world.failing_balancers.remove(id);
    let Some(balancer) = world.row("loadbalancer", id) else { return };
    let parts = parts(world, balancer);
    if balancer.text("provisioning_status") == "PENDING_DELETE" {
        balancers::remove(world, id, &parts);
        return;
    }
    let fails = spoiled || world.failing > 0;
    let failing = if fails { innermost(world, balancer, &parts) } else { "" };
    world.failing = world.failing.saturating_sub(u32::from(!spoiled));
    let stamp = stamp(world);
    for (kind, part) in parts.into_iter().chain([("loadbalancer", id.to_owned())]) {
        let Some(row) = world.row_mut(kind, &part) else { continue };
        let failed = fails && (failing == "loadbalancer" || failing == kind);
        match row.text("provisioning_status") {
            "PENDING_DELETE" if !failed => remove(world, kind, &part),
            status if status.starts_with("PENDING") => {
                row.set("provisioning_status", if failed { "ERROR" } else { "ACTIVE" });
                row.set("updated_at", stamp.as_str());
                let operating = if failed { "ERROR" } else { "ONLINE" };
                if kind != "member" {
                    row.set("operating_status", operating);
                }
            }
            _ => {}
        }
    }
}

/// The kind of the changed part: its parents are also pending, and become ACTIVE if the change fails. If a creation
/// fails, the whole load balancer is in ERROR.
fn innermost(world: &World, balancer: &Row, parts: &[(&'static str, String)]) -> &'static str {
    let any_pending = |wanted: &str| {
        let mut rows = parts.iter().filter(|(kind, _)| *kind == wanted).filter_map(|(kind, id)| world.row(kind, id));
        rows.any(is_pending)
    };
    match balancer.text("provisioning_status") {
        "PENDING_CREATE" => "loadbalancer",
        _ => ["member", "healthmonitor", "pool", "listener"]
            .into_iter()
            .find(|kind| any_pending(kind))
            .unwrap_or("loadbalancer"),
    }
}

/// Removes a part of a load balancer and its children.
fn remove(world: &mut World, kind: &'static str, id: &str) {
    let Some(row) = world.remove(kind, id) else { return };
    let balancer = row.text("_loadbalancer_id");
    match kind {
        "listener" => {
            take_id(world, "loadbalancer", balancer, "listeners", id);
            take_id(world, "pool", row.text("default_pool_id"), "listeners", id);
        }
        "pool" => {
            take_id(world, "loadbalancer", balancer, "pools", id);
            for listener in ids(&row, "listeners") {
                if let Some(listener) = world.row_mut("listener", &listener) {
                    listener.set("default_pool_id", Value::Null);
                }
            }
            for member in ids(&row, "members") {
                world.remove("member", &member);
            }
            world.remove("healthmonitor", row.text("healthmonitor_id"));
        }
        "member" => take_id(world, "pool", row.text("_pool_id"), "members", id),
        _ => {
            if let Some(pool) = world.row_mut("pool", row.text("_pool_id")) {
                pool.fields.remove("healthmonitor_id");
            }
        }
    }
}

/// The last part of the newest version of the API.
fn minor_version(world: &World) -> u32 {
    let current = world.options.balancer_versions.last().and_then(|version| version.rsplit('.').next()?.parse().ok());
    current.unwrap_or_default()
}

/// `GET /`
pub(super) fn versions(world: &mut World, _: &Call) -> Result<Reply, Problem> {
    let href = json!([link("self", &format!("{}/load-balancer/v2", world.url))]);
    let known = &world.options.balancer_versions;
    let entry = |(number, id): (usize, &String)| {
        let status = if number == known.len() { "CURRENT" } else { "SUPPORTED" };
        json!({"id": id, "status": status, "updated": "2016-12-11T00:00:00Z", "links": href})
    };
    Ok(Reply::json(200, &json!({"versions": (1..).zip(known).map(entry).collect::<Vec<Value>>()})))
}
