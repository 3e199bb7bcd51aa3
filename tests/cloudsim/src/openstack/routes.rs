//! The table of all routes, and the formats of errors.

use super::neutron::{self, floating, groups, ports, routers, rules, tags};
use super::octavia::{self, balancers, listeners, members, monitors, pools};
use super::{World, keystone, nova, stores};
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::server::Request;
use serde_json::json;

/// A row of the table. The last word of an action determines whether it changes something; logins do not.
macro_rules! routes {
    ($($service:literal $method:ident $path:literal $action:literal $run:path;)*) => {
        &[$(Route {
            service: $service,
            method: stringify!($method),
            path: $path,
            action: $action,
            mutating: is_mutating($action, stringify!($method)),
            run: $run,
        }),*]
    };
}

const fn is_mutating(action: &str, method: &str) -> bool {
    let login = action.len() == 12 && matches!(action.as_bytes(), b"token_create");
    !login && !matches!(method.as_bytes(), b"GET")
}

/// All routes; the first match is used.
pub(super) static ROUTES: &[Route<World>] = routes! {
    "identity" GET "/identity" "version_list" keystone::versions;
    "identity" GET "/identity/v3" "version_list" keystone::versions;
    "identity" POST "/identity/v3/auth/tokens" "token_create" keystone::create_token;
    "compute" GET "/compute/v2.1/servers/detail" "server_list" nova::list_servers;
    "compute" GET "/compute/v2.1/servers/{}" "server_get" nova::get_server;
    "compute" DELETE "/compute/v2.1/servers/{}" "server_delete" nova::delete_server;
    "compute" GET "/compute/v2.1/flavors/detail" "flavor_list" nova::list_flavors;
    "compute" GET "/compute/v2.1/flavors/{}" "flavor_get" nova::get_flavor;
    "network" GET "/network" "version_list" neutron::versions;
    "network" GET "/network/v2.0/extensions" "network_extension_list" neutron::extensions;
    "network" GET "/network/v2.0/networks" "network_list" neutron::list_networks;
    "network" GET "/network/v2.0/networks/{}" "network_get" neutron::get_network;
    "network" GET "/network/v2.0/subnets" "subnet_list" neutron::list_subnets;
    "network" GET "/network/v2.0/subnets/{}" "subnet_get" neutron::get_subnet;
    "network" GET "/network/v2.0/ports" "port_list" neutron::list_ports;
    "network" GET "/network/v2.0/ports/{}" "port_get" neutron::get_port;
    "network" PUT "/network/v2.0/ports/{}" "port_update" ports::update;
    "network" DELETE "/network/v2.0/ports/{}" "port_delete" ports::delete;
    "network" GET "/network/v2.0/routers" "router_list" neutron::list_routers;
    "network" GET "/network/v2.0/routers/{}" "router_get" neutron::get_router;
    "network" PUT "/network/v2.0/routers/{}" "router_update" routers::update;
    "network" PUT "/network/v2.0/routers/{}/add_extraroutes" "router_update" routers::add_routes;
    "network" PUT "/network/v2.0/routers/{}/remove_extraroutes" "router_update" routers::remove_routes;
    "network" GET "/network/v2.0/floatingips" "floating_ip_list" neutron::list_floating;
    "network" POST "/network/v2.0/floatingips" "floating_ip_create" floating::create;
    "network" GET "/network/v2.0/floatingips/{}" "floating_ip_get" neutron::get_floating;
    "network" PUT "/network/v2.0/floatingips/{}" "floating_ip_update" floating::update;
    "network" DELETE "/network/v2.0/floatingips/{}" "floating_ip_delete" floating::delete;
    "network" GET "/network/v2.0/security-groups" "security_group_list" neutron::list_groups;
    "network" POST "/network/v2.0/security-groups" "security_group_create" groups::create;
    "network" GET "/network/v2.0/security-groups/{}" "security_group_get" neutron::get_group;
    "network" PUT "/network/v2.0/security-groups/{}" "security_group_update" groups::update;
    "network" DELETE "/network/v2.0/security-groups/{}" "security_group_delete" groups::delete;
    "network" GET "/network/v2.0/security-group-rules" "security_group_rule_list" neutron::list_rules;
    "network" POST "/network/v2.0/security-group-rules" "security_group_rule_create" rules::create;
    "network" GET "/network/v2.0/security-group-rules/{}" "security_group_rule_get" neutron::get_rule;
    "network" DELETE "/network/v2.0/security-group-rules/{}" "security_group_rule_delete" rules::delete;
    "network" PUT "/network/v2.0/subnets/{}/tags" "subnet_tag_update" tags::replace;
    "network" PUT "/network/v2.0/ports/{}/tags" "port_tag_update" tags::replace;
    "network" DELETE "/network/v2.0/ports/{}/tags/{}" "port_tag_delete" tags::delete;
    "network" PUT "/network/v2.0/floatingips/{}/tags" "floating_ip_tag_update" tags::replace;
    "network" GET "/network/v2.0/floatingips/{}/tags/{}" "floating_ip_tag_get" tags::has;
    "network" PUT "/network/v2.0/floatingips/{}/tags/{}" "floating_ip_tag_create" tags::add;
    "network" DELETE "/network/v2.0/floatingips/{}/tags/{}" "floating_ip_tag_delete" tags::delete;
    "network" PUT "/network/v2.0/security-groups/{}/tags" "security_group_tag_update" tags::replace;
    "load-balancer" GET "/load-balancer" "version_list" octavia::versions;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/loadbalancers" "loadbalancer_list" balancers::list_all;
    "load-balancer" POST "/load-balancer/v2.0/lbaas/loadbalancers" "loadbalancer_create" balancers::create;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/loadbalancers/{}" "loadbalancer_get" balancers::get;
    "load-balancer" PUT "/load-balancer/v2.0/lbaas/loadbalancers/{}" "loadbalancer_update" balancers::update;
    "load-balancer" DELETE "/load-balancer/v2.0/lbaas/loadbalancers/{}" "loadbalancer_delete" balancers::delete;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/loadbalancers/{}/status" "loadbalancer_status_get" balancers::status;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/loadbalancers/{}/statuses" "loadbalancer_status_get" balancers::status;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/listeners" "loadbalancer_listener_list" listeners::list_all;
    "load-balancer" POST "/load-balancer/v2.0/lbaas/listeners" "loadbalancer_listener_create" listeners::create;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/listeners/{}" "loadbalancer_listener_get" listeners::get;
    "load-balancer" PUT "/load-balancer/v2.0/lbaas/listeners/{}" "loadbalancer_listener_update" listeners::update;
    "load-balancer" DELETE "/load-balancer/v2.0/lbaas/listeners/{}" "loadbalancer_listener_delete" listeners::delete;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/pools" "loadbalancer_pool_list" pools::list_all;
    "load-balancer" POST "/load-balancer/v2.0/lbaas/pools" "loadbalancer_pool_create" pools::create;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/pools/{}" "loadbalancer_pool_get" pools::get;
    "load-balancer" PUT "/load-balancer/v2.0/lbaas/pools/{}" "loadbalancer_pool_update" pools::update;
    "load-balancer" DELETE "/load-balancer/v2.0/lbaas/pools/{}" "loadbalancer_pool_delete" pools::delete;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/pools/{}/members" "loadbalancer_member_list" members::list_all;
    "load-balancer" POST "/load-balancer/v2.0/lbaas/pools/{}/members" "loadbalancer_member_create" members::create;
    "load-balancer" PUT "/load-balancer/v2.0/lbaas/pools/{}/members" "loadbalancer_members_update" members::replace;
    "load-balancer" DELETE "/load-balancer/v2.0/lbaas/pools/{}/members/{}" "loadbalancer_member_delete" members::delete;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/healthmonitors" "loadbalancer_healthmonitor_list" monitors::list_all;
    "load-balancer" POST "/load-balancer/v2.0/lbaas/healthmonitors" "loadbalancer_healthmonitor_create" monitors::create;
    "load-balancer" GET "/load-balancer/v2.0/lbaas/healthmonitors/{}" "loadbalancer_healthmonitor_get" monitors::get;
    "load-balancer" PUT "/load-balancer/v2.0/lbaas/healthmonitors/{}" "loadbalancer_healthmonitor_update" monitors::update;
    "load-balancer" DELETE "/load-balancer/v2.0/lbaas/healthmonitors/{}" "loadbalancer_healthmonitor_delete" monitors::delete;
    "key-manager" GET "/key-manager" "version_list" stores::versions;
    "key-manager" GET "/key-manager/v1/containers/{}" "container_get" stores::get_container;
    "key-manager" GET "/key-manager/v1/secrets/{}" "secret_get" stores::get_secret;
    "block-storage" GET "/volume/v3/volumes/{}" "volume_get" stores::get_volume;
    "block-storage" GET "/volume/v3/{}/volumes/{}" "volume_get" stores::get_volume;
};

/// Whether an action needs no token.
pub(super) fn is_open(action: &str) -> bool {
    matches!(action, "version_list" | "token_create")
}

/// The answer if no route matches.
pub(super) fn lost(request: &Request, lost: Lost) -> (&'static str, Reply) {
    let path = request.uri().path();
    let services = ["identity", "compute", "network", "load-balancer", "key-manager"];
    let service = services.into_iter().find(|service| path.trim_start_matches('/').split('/').next() == Some(service));
    let service = service.unwrap_or(if path.starts_with("/volume") { "block-storage" } else { "" });
    let status = if lost == Lost::Method && service != "compute" { 405 } else { 404 };
    let reply = match service {
        "network" => {
            let (kind, text) = if status == 405 {
                ("HTTPMethodNotAllowed", keystone::MALFORMED)
            } else {
                ("HTTPNotFound", "The resource could not be found.")
            };
            Reply::json(status, &json!({"NeutronError": {"type": kind, "message": text, "detail": ""}}))
        }
        "load-balancer" => {
            let title = if status == 405 { "Method Not Allowed" } else { "Not Found" };
            Reply::json(status, &json!({"code": status, "title": title, "description": ""}))
        }
        _ => {
            let body = b"404 Not Found\n\nThe resource could not be found.\n\n   ".to_vec();
            Reply { status, body, kind: "text/plain", ..Reply::default() }
        }
    };
    (service, reply)
}

/// The error of a caller without the permission.
pub(super) fn denied(call: &Call) -> Problem {
    match call.service {
        "network" => Problem::new(403, "PolicyNotAuthorized", format!("rule:{} is disallowed by policy", call.action)),
        "compute" | "block-storage" => {
            Problem::new(403, "forbidden", format!("Policy doesn't allow {} to be performed.", call.action))
        }
        "load-balancer" => Problem::new(403, "", "Policy does not allow this request to be performed."),
        _ => Problem::new(403, "Forbidden", "You are not authorized to perform the requested action."),
    }
}

/// An error in the format of a service.
pub(super) fn render(service: &str, problem: &Problem, url: &str) -> Reply {
    let Problem { status, code, message, .. } = problem;
    if *status == 401 && service != "identity" {
        // All services check tokens with the same middleware.
        let error = json!({"code": 401, "title": "Unauthorized", "message": message});
        return with_login(Reply::json(401, &json!({ "error": error })), url);
    }
    let body = match service {
        "network" => json!({"NeutronError": {"type": code, "message": message, "detail": ""}}),
        "load-balancer" if code == "plain" => {
            json!({"code": status, "title": "Bad Request", "description": message})
        }
        "load-balancer" => {
            let fault = if *status < 500 { "Client" } else { "Server" };
            json!({"faultcode": fault, "faultstring": message, "debuginfo": null})
        }
        "compute" | "block-storage" => json!({code.as_str(): {"code": status, "message": message}}),
        "key-manager" => json!({"code": status, "title": code, "description": message}),
        _ => json!({"error": {"code": status, "message": message, "title": code}}),
    };
    let reply = Reply::json(*status, &body);
    if *status == 401 { with_login(reply, url) } else { reply }
}

fn with_login(mut reply: Reply, url: &str) -> Reply {
    reply.headers.push(("www-authenticate", format!("Keystone uri=\"{url}/identity/v3\"")));
    reply
}
