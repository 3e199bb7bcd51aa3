//! Load balancers.

use super::{
    BALANCER, LISTENER, MEMBER, MONITOR, POOL, begin, ids, invalid, list, listeners, members, monitors, parts, pools,
    providers, refused, room, shapes, stamp,
};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::openstack::World;
use crate::openstack::neutron::ports;
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// `GET /loadbalancers`
pub(in super::super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    list(&BALANCER, world, call)
}

/// `GET /loadbalancers/{id}`
pub(in super::super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    BALANCER.find(world, call.id(0))?;
    BALANCER.reply(world, 200, call.id(0))
}

/// The requested subnet, network and port of the VIP.
struct Vip {
    port: String,
    address: String,
    subnet: String,
    network: String,
    /// Whether the port was created for the load balancer, and is deleted with it.
    own: bool,
}

/// `POST /loadbalancers`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = BALANCER.body(call, shapes::BALANCER)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let project = text("project_id").unwrap_or_else(|| world.who.project.clone());
    if project != world.who.project && !world.who.admin {
        return Err(refused(403, "Policy does not allow this request to be performed."));
    }
    for listener in body.get("listeners").and_then(Value::as_array).into_iter().flatten() {
        if let Some(pool) = listener.get("default_pool").and_then(Value::as_object) {
            pools::known(world, pool)?;
        }
    }
    let (subnet, network) = place(world, &body)?;
    let provider = text("provider").or_else(|| world.options.providers.first().cloned()).unwrap_or_default();
    if !world.options.providers.contains(&provider) {
        return Err(refused(400, format!("Provider '{provider}' is not enabled.")));
    }
    // There are no flavors and zones, so each is unknown.
    if text("flavor_id").is_some() {
        return Err(invalid("Invalid flavor_id."));
    }
    if text("availability_zone").is_some() {
        return Err(invalid("Invalid availability zone."));
    }
    room(&BALANCER, world, 1)?;
    let id = world.uuid();
    let vip = vip(world, &body, &id, &project, &provider, subnet, network)?;
    // If one of these is rejected, the port remains, as in Octavia.
    let inside = body.remove("listeners").and_then(|listeners| listeners.as_array().cloned()).unwrap_or_default();
    populated(world, &provider, &inside)?;
    let base = json!({
        "id": id, "name": "", "description": "", "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
        "admin_state_up": true, "project_id": project, "tenant_id": project, "created_at": stamp(world),
        "updated_at": null, "vip_sg_ids": [], "additional_vips": [], "listeners": [], "pools": [],
        "flavor_id": null, "vip_qos_policy_id": null, "tags": [], "availability_zone": null, "vip_vnic_type": "normal",
    });
    body.retain(|_, value| !value.is_null());
    let place = json!({
        "provider": provider, "vip_address": vip.address, "vip_port_id": vip.port, "vip_subnet_id": vip.subnet,
        "vip_network_id": vip.network, "_own_port": vip.own,
    });
    body.extend(place.as_object().cloned().unwrap_or_default());
    world.add("loadbalancer", base, body);
    for listener in inside {
        fill(world, &id, listener)?;
    }
    begin(world, &id, "PENDING_CREATE", &[]);
    let row = world.row("loadbalancer", &id).ok_or_else(|| BALANCER.not_found(&id))?;
    Ok(Reply::json(201, &json!({"loadbalancer": whole(world, row)})))
}

/// The subnet and the network of the VIP in a body.
fn place(world: &World, body: &Map<String, Value>) -> Result<(String, String), Problem> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let find = |kind: &'static str, what: &str, id: &str| {
        world.seen(kind, id).ok_or_else(|| refused(400, format!("{what} {id} not found.")))
    };
    if let Some(port) = text("vip_port_id") {
        let port = find("port", "Port", port)?;
        let of = |fixed: &Value, key: &str| fixed.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let fixed = port.list("fixed_ips").iter().map(|fixed| (of(fixed, "subnet_id"), of(fixed, "ip_address")));
        let fixed: Vec<(String, Option<IpAddr>)> =
            fixed.map(|(subnet, address)| (subnet, address.parse().ok())).collect();
        let found = match (text("vip_address"), &*fixed) {
            (Some(wanted), _) => {
                let wanted = wanted.parse().ok();
                let found = fixed.iter().find(|(_, address)| *address == wanted);
                found.ok_or("Specified VIP address not found on the specified VIP port.")
            }
            (None, [only]) => Ok(only),
            (None, _) => {
                Err("VIP port's subnet could not be determined. Please specify either a VIP subnet or address.")
            }
        };
        let (subnet, _) = found.map_err(invalid)?;
        return Ok((subnet.clone(), port.text("network_id").to_owned()));
    }
    let network = text("vip_network_id").map(|network| find("network", "Network", network)).transpose()?;
    if let Some(subnet) = text("vip_subnet_id") {
        let subnet = find("subnet", "Subnet", subnet)?;
        return Ok((subnet.id().to_owned(), subnet.text("network_id").to_owned()));
    }
    let Some(network) = network else {
        return Err(invalid("VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id."));
    };
    // The first IPv4 subnet, else the first subnet.
    let subnets: Vec<&Row> = network.texts("subnets").filter_map(|subnet| world.row("subnet", subnet)).collect();
    let subnet = subnets.iter().find(|subnet| subnet.number("ip_version") == 4).or(subnets.first());
    let subnet = subnet.ok_or_else(|| invalid("Supplied network does not contain a subnet."))?;
    Ok((subnet.id().to_owned(), network.id().to_owned()))
}

/// The port of the VIP: the one in the body, or a new one.
fn vip(
    world: &mut World,
    body: &Map<String, Value>,
    id: &str,
    project: &str,
    provider: &str,
    subnet: String,
    network: String,
) -> Result<Vip, Problem> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let (port, own) = match text("vip_port_id") {
        Some(port) => (port.to_owned(), false),
        None => {
            let wanted = text("vip_address").and_then(|address| address.parse::<IpAddr>().ok());
            let groups: Vec<&str> = world
                .table("security_group")
                .values()
                .filter(|group| group.text("project_id") == project && group.text("name") == "default")
                .map(Row::id)
                .collect();
            let with = json!({
                "name": format!("octavia-lb-{id}"), "device_id": format!("lb-{id}"), "device_owner": "Octavia",
                "admin_state_up": false, "project_id": project, "security_groups": groups,
            });
            let made = ports::make(world, &[(&subnet, wanted)], with.as_object().cloned().unwrap_or_default());
            (made.ok_or_else(|| no_port(world, wanted, provider, &subnet, &network))?, true)
        }
    };
    let row = world.row("port", &port);
    let first = row.and_then(|row| row.list("fixed_ips").first()?.get("ip_address")?.as_str());
    let address = text("vip_address").or(first).unwrap_or_default().to_owned();
    Ok(Vip { address, port, subnet, network, own })
}

/// The reason why no port can be created for a VIP.
fn no_port(world: &World, wanted: Option<IpAddr>, provider: &str, subnet: &str, network: &str) -> Problem {
    let range = world.row("subnet", subnet).and_then(|row| row.text("cidr").parse::<IpNet>().ok());
    let why = match wanted {
        None => format!("No more IP addresses available on network {network}."),
        Some(address) if range.is_some_and(|range| range.contains(&address)) => {
            format!("IP address {address} already allocated in subnet {subnet}")
        }
        Some(_) => return refused(500, format!("Provider '{provider}' reports error: BadRequestException: 400")),
    };
    refused(409, format!("The VIP IP address is already in use: {why}"))
}

/// Checks whether the listeners of a fully populated request can be created.
fn populated(world: &World, provider: &str, inside: &[Value]) -> Result<(), Problem> {
    let pools = || inside.iter().filter_map(|listener| listener.get("default_pool")?.as_object());
    room(&POOL, world, pools().count())?;
    room(&LISTENER, world, inside.len())?;
    room(&MONITOR, world, pools().filter(|pool| pool.contains_key("healthmonitor")).count())?;
    room(&MEMBER, world, pools().filter_map(|pool| Some(pool.get("members")?.as_array()?.len())).sum())?;
    let mut seen: Vec<(&str, i64, &str)> = Vec::new();
    for listener in inside.iter().filter_map(Value::as_object) {
        let protocol = listener.get("protocol").and_then(Value::as_str).unwrap_or_default();
        let port = listener.get("protocol_port").and_then(Value::as_i64).unwrap_or_default();
        listeners::free(world, protocol, port, seen.iter().copied())?;
        seen.push((protocol, port, protocol));
        listeners::sensible(listener)?;
        let Some(pool) = listener.get("default_pool").and_then(Value::as_object) else { continue };
        if pool.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(invalid("Pools must be named when creating a fully populated loadbalancer."));
        }
        let of_pool = pool.get("protocol").and_then(Value::as_str).unwrap_or_default();
        pools::compatible(protocol, of_pool)?;
        if let Some(monitor) = pool.get("healthmonitor").and_then(Value::as_object) {
            monitors::fits(of_pool, monitor)?;
        }
        if provider == "ovn" {
            // In a fully populated request, amphora accepts listeners that it rejects in other requests.
            providers::listener(provider, listener)?;
            providers::pool(provider, pool)?;
        }
    }
    Ok(())
}

/// Creates a listener of a fully populated request with its pool, members and health monitor.
fn fill(world: &mut World, balancer: &str, listener: Value) -> Result<(), Problem> {
    let Value::Object(mut listener) = listener else { return Ok(()) };
    let pool = listener.remove("default_pool");
    let listener = listeners::make(world, balancer, listener)?;
    let Some(Value::Object(mut pool)) = pool else { return Ok(()) };
    let (inside, monitor) = (pool.remove("members"), pool.remove("healthmonitor"));
    let pool = pools::make(world, balancer, Some(&listener), pool);
    for member in inside.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object) {
        members::make(world, &pool, member.clone());
    }
    if let Some(Value::Object(monitor)) = monitor {
        monitors::make(world, &pool, monitor);
    }
    Ok(())
}

/// A load balancer with all its parts.
pub(in super::super) fn whole(world: &World, balancer: &Row) -> Value {
    // A nested part does not show its parents.
    let part = |row: &Row| -> Map<String, Value> {
        row.shown().into_iter().filter(|(name, _)| name != "loadbalancers" && name != "healthmonitor_id").collect()
    };
    let all = |kind: &str, row: &Row, list: &str| -> Vec<Map<String, Value>> {
        ids(row, list).iter().filter_map(|id| world.row(kind, id)).map(part).collect()
    };
    let mut whole = balancer.shown();
    whole.insert("listeners".to_owned(), json!(all("listener", balancer, "listeners")));
    let mut pools: Vec<Value> = Vec::new();
    for pool in ids(balancer, "pools").iter().filter_map(|id| world.row("pool", id)) {
        let mut shown = part(pool);
        shown.insert("members".to_owned(), json!(all("member", pool, "members")));
        let monitor = world.row("healthmonitor", pool.text("healthmonitor_id")).map(Row::shown);
        let monitor = monitor.map(|fields| fields.into_iter().filter(|(name, _)| name != "pools").collect());
        shown.insert("healthmonitor".to_owned(), monitor.map_or(Value::Null, Value::Object));
        pools.push(Value::Object(shown));
    }
    whole.insert("pools".to_owned(), Value::Array(pools));
    Value::Object(whole)
}

/// `PUT /loadbalancers/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = BALANCER.body(call, shapes::BALANCER_PUT)?;
    let id = call.id(0);
    let status = BALANCER.find(world, id)?.text("provisioning_status");
    if status != "ACTIVE" {
        return Err(wrong_state(status, id));
    }
    if let Some(row) = world.row_mut("loadbalancer", id) {
        row.fields.extend(body);
    }
    begin(world, id, "PENDING_UPDATE", &[]);
    BALANCER.reply(world, 200, id)
}

fn wrong_state(status: &str, id: &str) -> Problem {
    refused(409, format!("Invalid state {status} of loadbalancer resource {id}"))
}

/// `DELETE /loadbalancers/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = call.id(0);
    let row = BALANCER.find(world, id)?;
    let status = row.text("provisioning_status");
    if !matches!(status, "ACTIVE" | "ERROR") {
        return Err(wrong_state(status, id));
    }
    let cascade = call.get("cascade").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let parts = parts(world, row);
    if !cascade && !parts.is_empty() {
        return Err(invalid(&format!("Cannot delete Load Balancer {id} - it has children")));
    }
    let parts: Vec<(&'static str, &str, &str)> =
        parts.iter().map(|(kind, id)| (*kind, id.as_str(), "PENDING_DELETE")).collect();
    begin(world, id, "PENDING_DELETE", &parts);
    Ok(Reply::empty(204))
}

/// Removes a load balancer with its parts and the port that was created for it.
pub(super) fn remove(world: &mut World, id: &str, parts: &[(&'static str, String)]) {
    for (kind, part) in parts {
        world.remove(kind, part);
    }
    if let Some(row) = world.remove("loadbalancer", id).filter(|row| row.is("_own_port")) {
        ports::remove(world, row.text("vip_port_id"));
    }
}

/// `GET /loadbalancers/{id}/status`
pub(in super::super) fn status(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let balancer = BALANCER.find(world, call.id(0))?;
    let tell = |row: &Row, more: &[&str]| {
        let names = ["id", "name", "operating_status", "provisioning_status"];
        let names = names.iter().chain(more);
        names
            .map(|name| ((*name).to_owned(), row.fields.get(*name).cloned().unwrap_or_default()))
            .collect::<Map<String, Value>>()
    };
    let mut listeners = Vec::new();
    for listener in ids(balancer, "listeners").iter().filter_map(|id| world.row("listener", id)) {
        let mut shown = tell(listener, &[]);
        let mut inside = Vec::new();
        if let Some(pool) = world.row("pool", listener.text("default_pool_id")) {
            let mut shown = tell(pool, &[]);
            if let Some(monitor) = world.row("healthmonitor", pool.text("healthmonitor_id")) {
                shown.insert("health_monitor".to_owned(), Value::Object(tell(monitor, &["type"])));
            }
            let members = ids(pool, "members");
            let members = members.iter().filter_map(|id| world.row("member", id));
            let members: Vec<_> = members.map(|member| tell(member, &["address", "protocol_port"])).collect();
            shown.insert("members".to_owned(), json!(members));
            inside.push(shown);
        }
        shown.insert("pools".to_owned(), json!(inside));
        listeners.push(shown);
    }
    let mut shown = tell(balancer, &[]);
    shown.insert("listeners".to_owned(), json!(listeners));
    Ok(Reply::json(200, &json!({"statuses": {"loadbalancer": shown}})))
}
