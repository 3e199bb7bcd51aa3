//! The table of all routes.

use super::places::PATH;
use super::world::World;
use super::{
    errors, instance_groups, instances, lists, networks, operations, permissions, target_pools, tokens, verbs,
};
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::server::Request;

/// A row of the table. `ASK` is a POST that changes nothing.
macro_rules! routes {
    ($($service:literal $method:ident $path:literal $action:literal $run:path;)*) => {
        &[$(Route {
            service: $service,
            method: http_method(stringify!($method)),
            path: $path,
            action: $action,
            mutating: !matches!(stringify!($method).as_bytes(), b"GET" | b"ASK"),
            run: $run as fn(&mut World, &Call) -> Result<Reply, Problem>,
        }),*]
    };
}

const fn http_method(name: &'static str) -> &'static str {
    match name.as_bytes() {
        b"ASK" => "POST",
        _ => name,
    }
}

/// All routes; the first match is used.
pub(super) static ROUTES: &[Route<World>] = routes! {
    "oauth2" ASK "/token" "token" tokens::grant;
    "cloudresourcemanager" ASK "/v1/projects/{}" "projects.testIamPermissions" permissions::test;
    "compute" GET "/compute/v1/projects/{}" "projects.get" networks::get_project;
    "compute" GET "/compute/v1/projects/{}/zones" "zones.list" networks::list_zones;
    "compute" GET "/compute/v1/projects/{}/zones/{}" "zones.get" networks::get_zone;
    "compute" GET "/compute/v1/projects/{}/regions" "regions.list" networks::list_regions;
    "compute" GET "/compute/v1/projects/{}/regions/{}" "regions.get" networks::get_region;
    "compute" GET "/compute/v1/projects/{}/global/operations/{}" "globalOperations.get" verbs::get;
    "compute" ASK "/compute/v1/projects/{}/global/operations/{}/wait" "globalOperations.wait" operations::wait;
    "compute" GET "/compute/v1/projects/{}/regions/{}/operations/{}" "regionOperations.get" verbs::get;
    "compute" ASK "/compute/v1/projects/{}/regions/{}/operations/{}/wait" "regionOperations.wait" operations::wait;
    "compute" GET "/compute/v1/projects/{}/zones/{}/operations/{}" "zoneOperations.get" verbs::get;
    "compute" ASK "/compute/v1/projects/{}/zones/{}/operations/{}/wait" "zoneOperations.wait" operations::wait;
    "compute" GET "/compute/v1/projects/{}/zones/{}/instances" "instances.list" lists::list;
    "compute" GET "/compute/v1/projects/{}/zones/{}/instances/{}" "instances.get" verbs::get;
    "compute" GET "/compute/v1/projects/{}/aggregated/instances" "instances.aggregatedList" lists::aggregated;
    "compute" PATCH "/compute/v1/projects/{}/zones/{}/instances/{}/updateNetworkInterface" "instances.updateNetworkInterface" instances::update_interface;
    "compute" GET "/compute/v1/projects/{}/global/networks" "networks.list" lists::list;
    "compute" GET "/compute/v1/projects/{}/global/networks/{}" "networks.get" verbs::get;
    "compute" GET "/compute/v1/projects/{}/regions/{}/subnetworks" "subnetworks.list" lists::list;
    "compute" GET "/compute/v1/projects/{}/regions/{}/subnetworks/{}" "subnetworks.get" verbs::get;
    "compute" ASK "/compute/v1/projects/{}/regions/{}/subnetworks/{}/testIamPermissions" "subnetworks.testIamPermissions" permissions::test_subnetwork;
    "compute" GET "/compute/v1/projects/{}/global/routes" "routes.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/global/routes" "routes.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/global/routes/{}" "routes.get" verbs::get;
    "compute" DELETE "/compute/v1/projects/{}/global/routes/{}" "routes.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/zones/{}/disks/{}" "disks.get" verbs::get;
    "compute" GET "/compute/v1/projects/{}/regions/{}/disks/{}" "regionDisks.get" verbs::get;
    "compute" GET "/compute/v1/projects/{}/global/firewalls" "firewalls.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/global/firewalls" "firewalls.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/global/firewalls/{}" "firewalls.get" verbs::get;
    "compute" PATCH "/compute/v1/projects/{}/global/firewalls/{}" "firewalls.patch" verbs::patch;
    "compute" PUT "/compute/v1/projects/{}/global/firewalls/{}" "firewalls.update" verbs::update;
    "compute" DELETE "/compute/v1/projects/{}/global/firewalls/{}" "firewalls.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/regions/{}/addresses" "addresses.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/regions/{}/addresses" "addresses.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/regions/{}/addresses/{}" "addresses.get" verbs::get;
    "compute" DELETE "/compute/v1/projects/{}/regions/{}/addresses/{}" "addresses.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/global/addresses" "globalAddresses.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/global/addresses" "globalAddresses.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/global/addresses/{}" "globalAddresses.get" verbs::get;
    "compute" DELETE "/compute/v1/projects/{}/global/addresses/{}" "globalAddresses.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/regions/{}/forwardingRules" "forwardingRules.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/regions/{}/forwardingRules" "forwardingRules.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/regions/{}/forwardingRules/{}" "forwardingRules.get" verbs::get;
    "compute" PATCH "/compute/v1/projects/{}/regions/{}/forwardingRules/{}" "forwardingRules.patch" verbs::patch;
    "compute" DELETE "/compute/v1/projects/{}/regions/{}/forwardingRules/{}" "forwardingRules.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/regions/{}/targetPools" "targetPools.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/regions/{}/targetPools" "targetPools.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/regions/{}/targetPools/{}" "targetPools.get" verbs::get;
    "compute" DELETE "/compute/v1/projects/{}/regions/{}/targetPools/{}" "targetPools.delete" verbs::delete;
    "compute" POST "/compute/v1/projects/{}/regions/{}/targetPools/{}/addInstance" "targetPools.addInstance" target_pools::add;
    "compute" POST "/compute/v1/projects/{}/regions/{}/targetPools/{}/removeInstance" "targetPools.removeInstance" target_pools::remove;
    "compute" GET "/compute/v1/projects/{}/global/httpHealthChecks" "httpHealthChecks.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/global/httpHealthChecks" "httpHealthChecks.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/global/httpHealthChecks/{}" "httpHealthChecks.get" verbs::get;
    "compute" PATCH "/compute/v1/projects/{}/global/httpHealthChecks/{}" "httpHealthChecks.patch" verbs::patch;
    "compute" PUT "/compute/v1/projects/{}/global/httpHealthChecks/{}" "httpHealthChecks.update" verbs::update;
    "compute" DELETE "/compute/v1/projects/{}/global/httpHealthChecks/{}" "httpHealthChecks.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/global/healthChecks" "healthChecks.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/global/healthChecks" "healthChecks.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/global/healthChecks/{}" "healthChecks.get" verbs::get;
    "compute" PATCH "/compute/v1/projects/{}/global/healthChecks/{}" "healthChecks.patch" verbs::patch;
    "compute" PUT "/compute/v1/projects/{}/global/healthChecks/{}" "healthChecks.update" verbs::update;
    "compute" DELETE "/compute/v1/projects/{}/global/healthChecks/{}" "healthChecks.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/regions/{}/backendServices" "regionBackendServices.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/regions/{}/backendServices" "regionBackendServices.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/regions/{}/backendServices/{}" "regionBackendServices.get" verbs::get;
    "compute" PATCH "/compute/v1/projects/{}/regions/{}/backendServices/{}" "regionBackendServices.patch" verbs::patch;
    "compute" PUT "/compute/v1/projects/{}/regions/{}/backendServices/{}" "regionBackendServices.update" verbs::update;
    "compute" DELETE "/compute/v1/projects/{}/regions/{}/backendServices/{}" "regionBackendServices.delete" verbs::delete;
    "compute" GET "/compute/v1/projects/{}/zones/{}/instanceGroups" "instanceGroups.list" lists::list;
    "compute" POST "/compute/v1/projects/{}/zones/{}/instanceGroups" "instanceGroups.insert" verbs::insert;
    "compute" GET "/compute/v1/projects/{}/zones/{}/instanceGroups/{}" "instanceGroups.get" verbs::get;
    "compute" DELETE "/compute/v1/projects/{}/zones/{}/instanceGroups/{}" "instanceGroups.delete" verbs::delete;
    "compute" ASK "/compute/v1/projects/{}/zones/{}/instanceGroups/{}/listInstances" "instanceGroups.listInstances" instance_groups::list;
    "compute" POST "/compute/v1/projects/{}/zones/{}/instanceGroups/{}/addInstances" "instanceGroups.addInstances" instance_groups::add;
    "compute" POST "/compute/v1/projects/{}/zones/{}/instanceGroups/{}/removeInstances" "instanceGroups.removeInstances" instance_groups::remove;
};

/// Whether a method needs no token.
pub(super) fn is_open(action: &str) -> bool {
    action == "token"
}

/// The answer if no route matches: the frontend of all services returns a page that is not JSON.
pub(super) fn lost(request: &Request, lost: Lost) -> (&'static str, Reply) {
    let path = request.uri().path();
    if lost == Lost::Method && path.starts_with(PATH) {
        return ("compute", errors::render(&Problem::new(405, "methodNotAllowed", "Method Not Allowed")));
    }
    let text = format!("The requested URL {path} was not found on this server.  That’s all we know.");
    let body = format!(
        "<!DOCTYPE html>\n<html lang=en>\n  <title>Error 404 (Not Found)!!1</title>\n  <p><b>404.</b> {text}\n"
    );
    let reply = Reply { status: 404, body: body.into_bytes(), kind: "text/html; charset=UTF-8", ..Reply::default() };
    (if path.starts_with(PATH) { "compute" } else { "" }, reply)
}
