//! Private link services, and the private endpoints that are connected to them.

use super::ids::Id;
use super::json::{default, each, is, list, same, set, text, texts};
use super::kinds::{Ref, of_configuration, reference};
use super::operations::{self, Write};
use super::world::World;
use super::{errors, kinds, networks};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let mut found = Vec::new();
    for frontend in list(fields, "/properties/loadBalancerFrontendIpConfigurations") {
        found.extend(reference(frontend, "", &id.text()));
    }
    for configuration in list(fields, "/properties/ipConfigurations") {
        let user = id.child("ipConfigurations", text(configuration, "/name")).text();
        found.extend(of_configuration(configuration, &user));
    }
    found
}

pub(super) fn check(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    for frontend in each(fields, "/properties/loadBalancerFrontendIpConfigurations") {
        *frontend = json!({ "id": text(frontend, "/id") });
    }
    let frontends: Vec<String> = list(fields, "/properties/loadBalancerFrontendIpConfigurations")
        .iter()
        .map(|one| text(one, "/id").to_owned())
        .collect();
    if frontends.is_empty() && text(fields, "/properties/destinationIPAddress").is_empty() {
        let text = format!("Private link service {} must have a load balancer frontend IP configuration.", id.text());
        return Err(errors::bad("PrivateLinkServiceMustHaveFrontendIPConfiguration", text));
    }
    for frontend in &frontends {
        self::frontend(world, id, frontend)?;
    }
    let count = list(fields, "/properties/ipConfigurations").len();
    let primaries = list(fields, "/properties/ipConfigurations").iter().filter(|one| is(one, "/properties/primary"));
    if !(1..=8).contains(&count) || primaries.count() != 1 {
        // unverified: the code.
        let text =
            format!("Private link service {} must have 1 to 8 IP configurations, one of them primary.", id.text());
        return Err(errors::bad("PrivateLinkServiceIpConfigurationsInvalid", text));
    }
    let mut result = Ok(());
    for configuration in each(fields, "/properties/ipConfigurations") {
        super::interfaces::only_references(configuration);
        default(configuration, "/properties/privateIPAllocationMethod", "Dynamic");
        default(configuration, "/properties/privateIPAddressVersion", "IPv4");
        result = result.and_then(|()| self::configuration(world, id, old, configuration));
    }
    result?;
    approval(id, fields)?;
    if old.is_none() {
        let alias = format!(
            "{}.{}.{}.azure.privatelinkservice",
            id.name().to_lowercase(),
            world.uuid(),
            text(fields, "/location")
        );
        set(fields, "/_alias", alias);
    }
    Ok(())
}

fn frontend(world: &World, id: &Id, frontend: &str) -> Result<(), Problem> {
    let key = frontend.to_lowercase();
    if world.part(&key).is_none() {
        return Err(errors::no_reference(frontend, &id.text()));
    }
    let Some(balancer) = Id::parse(&key).map(|id| id.root().key()) else { return Ok(()) };
    let Some(row) = world.store.get(&balancer) else { return Ok(()) };
    if text(&row.fields, "/sku/name") == "Basic" {
        let text = format!("Private link service {} needs a Standard load balancer.", id.text());
        return Err(errors::bad("PrivateLinkServiceRequiresStandardLoadBalancer", text));
    }
    let services = |frontend: &Value| {
        let key = row.id.child("frontendIPConfigurations", text(frontend, "/name")).key();
        world.store.users(&key).map(|(user, ..)| user.to_owned()).collect::<Vec<_>>()
    };
    let all: BTreeSet<String> =
        list(&row.fields, "/properties/frontendIPConfigurations").iter().flat_map(services).collect();
    let others = all.iter().filter(|user| **user != id.key()).count();
    if let Some((_, other, _)) = world.store.users(&key).find(|(user, ..)| *user != id.key()) {
        // unverified: the code.
        let text = format!("Frontend IP configuration {frontend} is already in use by private link service {other}.");
        return Err(errors::bad("FrontendIPConfigurationInUseByPrivateLinkService", text));
    }
    let limit = world.options.limits.private_link_services_per_load_balancer;
    if others >= limit {
        // unverified: the code.
        let text = format!("Load balancer {} cannot have more than {limit} private link services.", row.id.text());
        return Err(errors::bad("PrivateLinkServiceCountLimitReached", text));
    }
    Ok(())
}

fn configuration(world: &mut World, id: &Id, old: Option<&Value>, one: &mut Value) -> Result<(), Problem> {
    let subnet = text(one, "/properties/subnet/id").to_owned();
    let row = world.store.get(&subnet.to_lowercase());
    let policies = row.map(|row| text(&row.fields, "/properties/privateLinkServiceNetworkPolicies"));
    if policies.is_some_and(|policies| policies != "Disabled") {
        let text = format!(
            "Call to PrivateLinkService {} failed: Private link service network policies cannot be enabled on private link service subnet {subnet}.",
            id.text()
        );
        return Err(errors::bad("PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet", text));
    }
    let name = text(one, "/name").to_owned();
    let user = id.child("ipConfigurations", &name).text();
    let before = old.and_then(|old| {
        list(old, "/properties/ipConfigurations").iter().find(|known| same(text(known, "/name"), &name))
    });
    networks::assign(world, one, &user, before, &mut networks::Beside::default())
}

/// Automatic approval is for subscriptions that see the service.
fn approval(id: &Id, fields: &Value) -> Result<(), Problem> {
    let seen: BTreeSet<&str> = texts(fields, "/properties/visibility/subscriptions").collect();
    let mut approved = texts(fields, "/properties/autoApproval/subscriptions");
    match approved.find(|one| !seen.contains(one) && !seen.contains("*")) {
        None => Ok(()),
        Some(other) => {
            // unverified: the code.
            let text = format!("Subscription {other} in autoApproval of {} is not in its visibility.", id.text());
            Err(errors::bad("PrivateLinkServiceAutoApprovalNotVisible", text))
        }
    }
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some(row) = world.store.get(&id.key()) else { return Ok(()) };
    let connections = list(&row.fields, "/_connections");
    if connections.is_empty() {
        return Ok(());
    }
    // unverified: the code.
    let names: Vec<&str> = connections.iter().map(|one| text(one, "/name")).collect();
    let text = format!(
        "Private link service {} cannot be deleted since it has private endpoint connections: {}. Delete the connections first.",
        id.text(),
        names.join(", ")
    );
    Err(errors::bad("PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted", text))
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    let row = world.store.get(&id.key()).map(|row| &row.fields);
    let connections: Vec<Value> = row.map(|row| list(row, "/_connections").to_vec()).unwrap_or_default();
    set(value, "/properties/privateEndpointConnections", connections);
    set(value, "/properties/alias", row.map(|row| text(row, "/_alias")).unwrap_or_default());
    default(value, "/properties/networkInterfaces", json!([]));
    default(value, "/properties/fqdns", json!([]));
    default(value, "/properties/enableProxyProtocol", false);
}

/// `DELETE …/privateEndpointConnections/{name}`
pub(super) fn disconnect(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = Id::parse(&call.path).map(|id| id.root()).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let row = world.store.get(&id.key()).cloned().ok_or_else(|| errors::not_found(&id))?;
    let mut fields = row.fields.clone();
    let left: Vec<Value> =
        list(&fields, "/_connections").iter().filter(|one| !same(text(one, "/name"), call.id(3))).cloned().collect();
    if left.len() == list(&fields, "/_connections").len() {
        return Ok(Reply::empty(204));
    }
    set(&mut fields, "/_connections", left);
    let Some(kind) = kinds::of("microsoft.network/privatelinkservices") else { return Ok(Reply::empty(500)) };
    let name = "DeletePrivateEndpointConnectionOperation".to_owned();
    let operation = world.begin_operation(Write { kind, id: &row.id, name, fields: Some(fields) });
    Ok(Reply { headers: operations::headers(world, &operation, true), ..Reply::empty(202) })
}

impl World {
    /// Connects a private endpoint to a private link service.
    pub fn connect(&mut self, service: &str, name: &str) {
        let key = service.to_lowercase();
        let number = self.number();
        let Some(row) = self.store.get_mut(&key) else { return };
        let mut all = list(&row.fields, "/_connections").to_vec();
        let endpoint = super::ids::network("others", "others", "privateEndpoints", name).text();
        all.push(json!({
            "name": name, "id": row.id.child("privateEndpointConnections", name).text(),
            "type": "Microsoft.Network/privateLinkServices/privateEndpointConnections",
            "properties": {
                "provisioningState": "Succeeded", "privateEndpoint": {"id": endpoint},
                "linkIdentifier": number.to_string(),
                "privateLinkServiceConnectionState": {"status": "Approved", "description": "", "actionsRequired": ""},
            },
        }));
        set(&mut row.fields, "/_connections", all);
    }
}
