//! Routers and their extra routes.

use super::super::World;
use super::floating::over_quota;
use super::{ROUTER, bad, change, python};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Kind, answer, may, must};
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

const ROUTE: Kind = Kind::Object(&[must("destination", Kind::Cidr), must("nexthop", Kind::Address)]);
const FIELDS: &[Field] = &[
    may("name", Kind::Text(255)),
    may("description", Kind::Text(255)),
    may("admin_state_up", Kind::Bool),
    may("external_gateway_info", Kind::Any),
    may("routes", Kind::List(&ROUTE)),
    answer("id"),
    answer("status"),
    answer("tenant_id"),
    answer("project_id"),
    answer("tags"),
    answer("created_at"),
    answer("updated_at"),
    answer("revision_number"),
];

/// `PUT /v2.0/routers/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = ROUTER.update(world, call, FIELDS)?;
    let router = ROUTER.find(world, call.id(0))?;
    if let Some(Value::Array(routes)) = body.get("routes") {
        let twice = (1..).zip(routes).find(|(rest, route)| routes.iter().skip(*rest).any(|other| other == *route));
        if let Some((_, route)) = twice {
            return Err(bad(&format!("Invalid input for routes. Reason: Duplicate hostroute '{}'.", python(route))));
        }
        allowed(world, router, routes)?;
    }
    change(world, "router", call.id(0), body);
    ROUTER.reply(world, 200, call.id(0))
}

/// `PUT /v2.0/routers/{id}/add_extraroutes`
pub(in super::super) fn add_routes(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let given = given(call)?;
    let router = ROUTER.find(world, call.id(0))?;
    let old = router.list("routes");
    let mut routes: Vec<Value> = given.into_iter().filter(|route| !old.contains(route)).collect();
    let new = routes.len();
    routes.extend_from_slice(old);
    if new > 0 {
        allowed(world, router, &routes)?;
    }
    // The newest routes are last, as in Neutron.
    routes.rotate_left(new);
    store(world, call, routes)
}

/// `PUT /v2.0/routers/{id}/remove_extraroutes`
pub(in super::super) fn remove_routes(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let given = given(call)?;
    let router = ROUTER.find(world, call.id(0))?;
    let routes = router.list("routes").iter().filter(|route| !given.contains(route)).cloned().collect();
    store(world, call, routes)
}

fn store(world: &mut World, call: &Call, routes: Vec<Value>) -> Result<Reply, Problem> {
    let fields = Map::from_iter([("routes".to_owned(), Value::Array(routes))]);
    change(world, "router", call.id(0), fields);
    let router = ROUTER.find(world, call.id(0))?;
    let mut shown = router.shown();
    // Only these two calls show implementation details.
    let more = json!({
        "enable_snat": true, "gw_port_id": router.text("_gw_port_id"), "distributed": false, "ha": false, "ha_vr_id": 0,
        "enable_default_route_ecmp": false, "enable_default_route_bfd": false,
    });
    shown.extend(more.as_object().cloned().unwrap_or_default());
    Ok(Reply::json(200, &json!({ "router": shown })))
}

/// The routes of a body. Anything but a list of routes causes an internal error, as in Neutron.
fn given(call: &Call) -> Result<Vec<Value>, Problem> {
    let body = call.object().ok_or_else(|| bad("Body contains invalid data"))?;
    let routes = body.get("router").and_then(|router| router.get("routes")).and_then(Value::as_array);
    let text = "Request Failed: internal server error while processing your request.";
    let broken = || Problem::violation(500, "HTTPInternalServerError", text);
    let routes = routes.ok_or_else(broken)?;
    for route in routes {
        let part = |name: &str| route.get(name).and_then(Value::as_str).ok_or_else(broken);
        let (destination, hop) = (part("destination")?, part("nexthop")?);
        if !crate::core::shape::cidr(destination) {
            return Err(Problem::violation(400, "AddrFormatError", format!("invalid IPNetwork {destination}")));
        }
        if hop.parse::<IpAddr>().is_err() {
            return Err(Problem::violation(
                400,
                "AddrFormatError",
                format!("failed to detect a valid IP address from {}", python(&json!(hop))),
            ));
        }
    }
    Ok(routes.clone())
}

/// Checks whether a router can have all these routes.
fn allowed(world: &World, router: &Row, routes: &[Value]) -> Result<(), Problem> {
    if let Some(most) = world.options.max_routes.filter(|most| routes.len() > *most) {
        let id = router.id();
        let text = format!("Unable to complete operation for {id}. The number of routes exceeds the maximum {most}.");
        return Err(Problem::new(400, "RoutesExhausted", text));
    }
    connected(world, router, routes)?;
    let quota = world.options.quotas.get("router_route");
    if quota.is_some_and(|most| routes.len() > *most) { Err(over_quota("router_route")) } else { Ok(()) }
}

/// Checks that each next hop is in a subnet of the router, and is not the router itself.
fn connected(world: &World, router: &Row, routes: &[Value]) -> Result<(), Problem> {
    let mut own: Vec<IpAddr> = Vec::new();
    let mut ranges: Vec<IpNet> = Vec::new();
    for fixed in interfaces(world, router.id()).chain(gateway(router)) {
        let text = |name: &str| fixed.get(name).and_then(Value::as_str).unwrap_or_default();
        own.extend(text("ip_address").parse::<IpAddr>());
        ranges.extend(
            world.row("subnet", text("subnet_id")).and_then(|subnet| subnet.text("cidr").parse::<IpNet>().ok()),
        );
    }
    for route in routes {
        let hop = route.get("nexthop").and_then(Value::as_str).and_then(|hop| hop.parse::<IpAddr>().ok());
        let why = match hop {
            Some(hop) if own.contains(&hop) => "the nexthop is used by router",
            Some(hop) if ranges.iter().any(|range| range.contains(&hop)) => continue,
            _ => "the nexthop is not connected with router",
        };
        let text = format!("Invalid format for routes: {}, {why}", python(&json!(routes)));
        return Err(Problem::new(400, "InvalidRoutes", text));
    }
    Ok(())
}

/// The addresses of a router in the subnets that it connects.
pub(super) fn interfaces<'a>(world: &'a World, router: &'a str) -> impl Iterator<Item = &'a Value> {
    let ports = world.table("port").values().filter(move |port| port.text("device_id") == router);
    ports.flat_map(|port| port.list("fixed_ips"))
}

fn gateway(router: &Row) -> impl Iterator<Item = &Value> {
    router
        .fields
        .get("external_gateway_info")
        .and_then(|info| info.get("external_fixed_ips")?.as_array())
        .into_iter()
        .flatten()
}
