//! The table of all routes, and the API version of each.

use super::world::World;
use super::{compute, errors, lists, load_balancers, login, metadata, operations, pools, private_links, verbs};
use crate::core::rest::{Call, Lost, Problem, Reply, Route};
use crate::core::server::Request;

/// The lists and views of scale sets that Azure counts as expensive.
pub(super) const COSTLY: &[&str] =
    &["virtualMachineScaleSetVMs.list", "virtualMachines.list", "virtualMachines.listAll"];

/// What remains of the budgets of `Microsoft.Compute` after a write, as recordings of Microsoft's command line show it.
pub(super) fn budgets(action: &str) -> Option<&'static str> {
    match action {
        "virtualMachineScaleSets.put" => Some(
            "Microsoft.Compute/CreateVMScaleSet3Min;55,Microsoft.Compute/CreateVMScaleSet30Min;273,\
             Microsoft.Compute/VmssQueuedVMOperations;0",
        ),
        "virtualMachineScaleSetVMs.put" => Some(
            "Microsoft.Compute/VMScaleSetActions3Min;238,Microsoft.Compute/VMScaleSetActions30Min;1190,\
             Microsoft.Compute/VMScaleSetBatchedVMRequests5Min;1191,Microsoft.Compute/VmssQueuedVMOperations;0",
        ),
        _ => None,
    }
}

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
    "metadata" GET "/metadata/endpoints" "endpoints" login::endpoints;
    "imds" GET "/metadata/identity/oauth2/token" "token" login::managed;
    "imds" GET "/metadata/instance" "instance" metadata::instance;
    "imds" GET "/metadata/loadbalancer" "loadBalancer" metadata::load_balancer;
    "login" GET "/common/discovery/instance" "discovery" login::instance;
    "login" GET "/{}/v2.0/.well-known/openid-configuration" "openid" login::openid;
    "login" GET "/{}/.well-known/openid-configuration" "openid" login::openid;
    "login" ASK "/{}/oauth2/v2.0/token" "token" login::grant;
    "login" ASK "/{}/oauth2/token" "token" login::grant;
    "resources" GET "/subscriptions/{}/resourceGroups/{}" "resourceGroups.get" lists::group;
    "resources" GET "/subscriptions/{}/providers/Microsoft.Compute" "providers.get" lists::provider;
    "resources" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Authorization/permissions" "permissions.list" lists::permissions;
    "resources" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/{}/{}/providers/Microsoft.Authorization/permissions" "permissions.list" lists::permissions;
    "resources" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{}/subnets/{}/providers/Microsoft.Authorization/permissions" "permissions.list" lists::permissions;
    "network" GET "/subscriptions/{}/providers/Microsoft.Network/locations/{}/operations/{}" "operations.get" operations::status;
    "network" GET "/subscriptions/{}/providers/Microsoft.Network/locations/{}/operationResults/{}" "operationResults.get" operations::result;
    "compute" GET "/subscriptions/{}/providers/Microsoft.Compute/locations/{}/operations/{}" "operations.get" operations::status;
    "compute" GET "/subscriptions/{}/providers/Microsoft.Compute/locations/{}/operationResults/{}" "operationResults.get" operations::result;
    "network" GET "/subscriptions/{}/providers/Microsoft.Network/loadBalancers" "loadBalancers.listAll" lists::list_all;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers" "loadBalancers.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}" "loadBalancers.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}" "loadBalancers.put" verbs::put;
    "network" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}" "loadBalancers.patch" verbs::patch;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}" "loadBalancers.delete" verbs::delete;
    "network" POST "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/migrateToIpBased" "loadBalancers.migrateToIpBased" pools::migrate;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/backendAddressPools" "backendAddressPools.list" load_balancers::list_pools;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/backendAddressPools/{}" "backendAddressPools.get" pools::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/backendAddressPools/{}" "backendAddressPools.put" pools::put;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/backendAddressPools/{}" "backendAddressPools.delete" pools::delete;
    "network" GET "/subscriptions/{}/providers/Microsoft.Network/publicIPAddresses" "publicIPAddresses.listAll" lists::list_all;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPAddresses" "publicIPAddresses.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPAddresses/{}" "publicIPAddresses.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPAddresses/{}" "publicIPAddresses.put" verbs::put;
    "network" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPAddresses/{}" "publicIPAddresses.patch" verbs::patch;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPAddresses/{}" "publicIPAddresses.delete" verbs::delete;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPPrefixes" "publicIPPrefixes.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/publicIPPrefixes/{}" "publicIPPrefixes.get" verbs::get;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups" "networkSecurityGroups.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups/{}" "networkSecurityGroups.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups/{}" "networkSecurityGroups.put" verbs::put;
    "network" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups/{}" "networkSecurityGroups.patch" verbs::patch;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups/{}" "networkSecurityGroups.delete" verbs::delete;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/routeTables" "routeTables.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/routeTables/{}" "routeTables.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/routeTables/{}" "routeTables.put" verbs::put;
    "network" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/routeTables/{}" "routeTables.patch" verbs::patch;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/routeTables/{}" "routeTables.delete" verbs::delete;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks" "virtualNetworks.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{}" "virtualNetworks.get" verbs::get;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{}/subnets" "subnets.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{}/subnets/{}" "subnets.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/{}/subnets/{}" "subnets.put" verbs::put;
    "network" GET "/subscriptions/{}/providers/Microsoft.Network/networkInterfaces" "networkInterfaces.listAll" lists::list_all;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkInterfaces" "networkInterfaces.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkInterfaces/{}" "networkInterfaces.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkInterfaces/{}" "networkInterfaces.put" verbs::put;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkInterfaces/{}" "networkInterfaces.delete" verbs::delete;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/privateLinkServices" "privateLinkServices.list" lists::list;
    "network" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/privateLinkServices/{}" "privateLinkServices.get" verbs::get;
    "network" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/privateLinkServices/{}" "privateLinkServices.put" verbs::put;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/privateLinkServices/{}" "privateLinkServices.delete" verbs::delete;
    "network" DELETE "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/privateLinkServices/{}/privateEndpointConnections/{}" "privateEndpointConnections.delete" private_links::disconnect;
    "compute" GET "/subscriptions/{}/providers/Microsoft.Compute/virtualMachines" "virtualMachines.listAll" lists::list_all;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines" "virtualMachines.list" lists::list;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{}" "virtualMachines.get" verbs::get;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{}/instanceView" "virtualMachines.instanceView" compute::instance_view;
    "compute" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{}" "virtualMachines.put" verbs::put;
    "compute" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{}" "virtualMachines.patch" verbs::patch;
    "compute" GET "/subscriptions/{}/providers/Microsoft.Compute/virtualMachineScaleSets" "virtualMachineScaleSets.listAll" lists::list_all;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets" "virtualMachineScaleSets.list" lists::list;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}" "virtualMachineScaleSets.get" verbs::get;
    "compute" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}" "virtualMachineScaleSets.put" verbs::put;
    "compute" PATCH "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}" "virtualMachineScaleSets.patch" verbs::patch;
    "compute" POST "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/manualupgrade" "virtualMachineScaleSets.manualUpgrade" compute::upgrade;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines" "virtualMachineScaleSetVMs.list" compute::list_instances;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}" "virtualMachineScaleSetVMs.get" verbs::get;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}/instanceView" "virtualMachineScaleSetVMs.instanceView" compute::instance_view;
    "compute" PUT "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}" "virtualMachineScaleSetVMs.put" verbs::put;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/networkInterfaces" "virtualMachineScaleSetInterfaces.list" compute::list_interfaces;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}/networkInterfaces" "virtualMachineScaleSetInterfaces.listOfVM" compute::list_interfaces;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}/networkInterfaces/{}" "virtualMachineScaleSetInterfaces.get" compute::get_interface;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/publicIPAddresses" "virtualMachineScaleSetPublicIPAddresses.list" compute::list_addresses;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}/virtualMachines/{}/networkInterfaces/{}/ipConfigurations/{}/publicIPAddresses/{}" "virtualMachineScaleSetPublicIPAddresses.get" compute::get_address;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/availabilitySets" "availabilitySets.list" lists::list;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/availabilitySets/{}" "availabilitySets.get" verbs::get;
    "compute" GET "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/disks/{}" "disks.get" verbs::get;
};

/// Whether the calls of a service need no token.
pub(super) fn is_open(service: &str) -> bool {
    matches!(service, "login" | "imds" | "metadata")
}

/// The versions of the actions of Azure, and of Azure Stack.
fn version(service: &str, group: &str) -> (&'static str, &'static str) {
    match (service, group) {
        (_, "virtualMachineScaleSetInterfaces" | "virtualMachineScaleSetPublicIPAddresses") => {
            ("2018-10-01", "2018-10-01")
        }
        (_, "disks") => ("2025-01-02", "2019-03-01"),
        (_, "privateLinkServices" | "privateEndpointConnections") => ("2025-05-01", "2019-03-01"),
        (_, "permissions") => ("2022-04-01", "2015-07-01"),
        ("network", _) => ("2025-05-01", "2018-11-01"),
        ("compute", "virtualMachines") => ("2025-04-01", "2017-12-01"),
        ("compute", _) => ("2025-04-01", "2019-07-01"),
        _ => ("2021-04-01", "2021-04-01"),
    }
}

/// The version of an action of Azure.
#[cfg(test)]
pub(super) fn version_of(service: &str, action: &str) -> &'static str {
    version(service, action.split('.').next().unwrap_or_default()).0
}

/// Checks the API version of a call.
pub(super) fn check_version(world: &World, call: &Call) -> Result<(), Problem> {
    let given = call.query.iter().find(|(name, _)| name.eq_ignore_ascii_case("api-version"));
    let Some((_, given)) = given else {
        let text = "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(Problem::violation(400, "MissingApiVersionParameter", text));
    };
    let group = call.action.split('.').next().unwrap_or_default();
    if matches!(group, "operations" | "operationResults") {
        return Ok(());
    }
    let (azure, stack) = version(call.service, group);
    let wanted = if world.options.stack { stack } else { azure };
    if given == wanted {
        return Ok(());
    }
    let namespace = if call.service == "network" { "Microsoft.Network" } else { "Microsoft.Compute" };
    let text = format!(
        "The resource type '{group}' could not be found in the namespace '{namespace}' for api version '{given}'. The supported api-versions are '{wanted}'."
    );
    Err(Problem::violation(400, "InvalidResourceType", text))
}

/// The right that a call needs, with the capitals of the kind's name: `Microsoft.Network/loadBalancers/write`.
pub(super) fn right(call: &Call) -> String {
    let verb = match call.method.as_str() {
        "GET" => "read",
        "DELETE" => "delete",
        "POST" => "action",
        _ => "write",
    };
    let id = super::ids::Id::parse(&call.path);
    if let Some(kind) = id.as_ref().and_then(|id| super::kinds::of(&id.kind())) {
        return format!("{}/{verb}", kind.shown);
    }
    let namespace = if call.service == "network" { "Microsoft.Network" } else { "Microsoft.Compute" };
    let types: Vec<String> = id.map(|id| id.parts.into_iter().map(|(kind, _)| kind).collect()).unwrap_or_else(|| {
        let mut of_location = call.path.split('/').skip_while(|part| *part != "locations");
        match (of_location.next(), of_location.nth(1)) {
            (Some(locations), Some(operations)) => vec![locations.to_owned(), operations.to_owned()],
            _ => vec![call.path.rsplit('/').next().unwrap_or_default().to_owned()],
        }
    });
    format!("{namespace}/{}/{verb}", types.join("/"))
}

/// The answer if no route matches.
pub(super) fn lost(request: &Request, lost: Lost) -> (&'static str, Reply) {
    let path = request.uri().path();
    let problem = match lost {
        Lost::Method => Problem::new(
            405,
            "HttpMethodNotSupported",
            format!("The requested resource does not support http method '{}'.", request.method()),
        ),
        Lost::Path => {
            Problem::new(404, "InvalidResourceType", format!("The resource type of '{path}' could not be found."))
        }
    };
    let lower = path.to_lowercase();
    let service = if lower.contains("/microsoft.network/") {
        "network"
    } else if lower.contains("/microsoft.compute/") {
        "compute"
    } else {
        "resources"
    };
    (service, errors::render(&problem))
}
