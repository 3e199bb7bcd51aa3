//! Load balancers: frontends, rules, probes, and what Resource Manager refuses.

use super::ids::Id;
use super::json::{at, default, each, list, number, same, set, text};
use super::kinds::{Ref, of_configuration, reference};
use super::networks::Beside;
use super::world::World;
use super::{errors, interfaces, networks, pools, public_ips};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of answers that a write ignores.
pub(super) const IGNORED: &[&str] = &[
    "/properties/scope",
    "/properties/frontendIPConfigurations/*/properties/loadBalancingRules",
    "/properties/frontendIPConfigurations/*/properties/outboundRules",
    "/properties/frontendIPConfigurations/*/properties/inboundNatRules",
    "/properties/frontendIPConfigurations/*/properties/inboundNatPools",
    "/properties/backendAddressPools/*/properties/backendIPConfigurations",
    "/properties/backendAddressPools/*/properties/loadBalancingRules",
    "/properties/backendAddressPools/*/properties/outboundRule",
    "/properties/backendAddressPools/*/properties/outboundRules",
    "/properties/backendAddressPools/*/properties/inboundNatRules",
    "/properties/probes/*/properties/loadBalancingRules",
    "/properties/inboundNatRules/*/properties/backendIPConfiguration",
];

/// The references in a part of a load balancer to its other parts: the list, the field, and whether it is a list.
const INNER: &[(&str, &str, &str)] = &[
    ("loadBalancingRules", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("loadBalancingRules", "backendAddressPool", "backendAddressPools"),
    ("loadBalancingRules", "probe", "probes"),
    ("inboundNatRules", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("inboundNatRules", "backendAddressPool", "backendAddressPools"),
    ("inboundNatPools", "frontendIPConfiguration", "frontendIPConfigurations"),
    ("outboundRules", "backendAddressPool", "backendAddressPools"),
];

/// The references of a load balancer: those of its frontends.
pub(super) fn refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let mut found = Vec::new();
    for frontend in list(fields, "/properties/frontendIPConfigurations") {
        let user = id.child("frontendIPConfigurations", text(frontend, "/name")).text();
        found.extend(of_configuration(frontend, &user));
        found.extend(reference(frontend, "/properties/publicIPPrefix", &user));
    }
    found
}

/// Two parts have the same name.
pub(super) fn twice(id: &Id, name: &str) -> Problem {
    errors::bad(
        "DuplicateResourceName",
        format!("Resource {} has two child resources with the same name ({name}).", id.text()),
    )
}

pub(super) fn check(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    for pool in each(fields, "/properties/backendAddressPools") {
        pools::strip(pool);
    }
    default(fields, "/sku/name", "Standard");
    default(fields, "/sku/tier", "Regional");
    if let Some(old) = old.filter(|old| text(old, "/sku/name") != text(fields, "/sku/name")) {
        // unverified: the code.
        let text = format!(
            "Load balancer {} cannot change its SKU from {} to {}.",
            id.text(),
            text(old, "/sku/name"),
            text(fields, "/sku/name")
        );
        return Err(errors::bad("LoadBalancerSkuCannotBeChanged", text));
    }
    names(id, fields)?;
    only_with_frontend(id, fields)?;
    inner_references(id, fields)?;
    frontends(world, id, old, fields)?;
    for pool in list(fields, "/properties/backendAddressPools") {
        pools::check(world, &id.child("backendAddressPools", text(pool, "/name")), pool)?;
    }
    probes(id, fields)?;
    rules(id, fields)?;
    outbound(id, fields)?;
    conflicts(id, fields)?;
    limits(world, id, fields)?;
    if let Some(old) = old {
        dropped(world, id, old, fields)?;
    }
    settled_members(world, id, fields)
}

/// Without a frontend it has no other parts.
fn only_with_frontend(id: &Id, fields: &Value) -> Result<(), Problem> {
    let has = |part: &str| !list(fields, &format!("/properties/{part}")).is_empty();
    let others = ["backendAddressPools", "loadBalancingRules", "probes", "inboundNatRules", "outboundRules"];
    if has("frontendIPConfigurations") || !others.into_iter().any(has) {
        return Ok(());
    }
    let text = format!(
        "Load Balancer {} does not have Frontend IP Configuration, but it has other child resources. This setup is not supported.",
        id.text()
    );
    Err(errors::bad("LoadBalancerWithoutFrontendIPCantHaveChildResources", text))
}

fn names(id: &Id, fields: &Value) -> Result<(), Problem> {
    let parts = ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "inboundNatRules"];
    for part in parts.into_iter().chain(["outboundRules", "inboundNatPools"]) {
        let mut seen = BTreeSet::new();
        for item in list(fields, &format!("/properties/{part}")) {
            let name = text(item, "/name");
            let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            let ends = name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            if name.is_empty() || name.len() > 80 || !name.chars().all(plain) || !ends {
                return Err(invalid_name(name));
            }
            if !seen.insert(name.to_lowercase()) {
                return Err(twice(id, name));
            }
        }
    }
    Ok(())
}

/// A name has other characters, or is too long.
pub(super) fn invalid_name(name: &str) -> Problem {
    let text = format!(
        "Resource name {name} is invalid. The name can be up to 80 characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."
    );
    errors::bad("InvalidResourceName", text)
}

/// References between parts must be to parts of the same load balancer.
fn inner_references(id: &Id, fields: &mut Value) -> Result<(), Problem> {
    let mut known = BTreeSet::new();
    for part in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        let items = list(fields, &format!("/properties/{part}")).iter();
        known.extend(items.map(|item| id.child(part, text(item, "/name")).key()));
    }
    let check = |user: &str, target: &str| {
        if known.contains(&target.to_lowercase()) { Ok(()) } else { Err(errors::no_reference(target, user)) }
    };
    for (part, field, _) in INNER {
        for item in list(fields, &format!("/properties/{part}")) {
            let user = id.child(part, text(item, "/name")).text();
            let target = text(item, &format!("/properties/{field}/id"));
            if !target.is_empty() {
                check(&user, target)?;
            }
            for pool in list(item, "/properties/backendAddressPools").iter().filter(|_| *field == "backendAddressPool")
            {
                check(&user, text(pool, "/id"))?;
            }
        }
    }
    for rule in list(fields, "/properties/outboundRules") {
        let user = id.child("outboundRules", text(rule, "/name")).text();
        for frontend in list(rule, "/properties/frontendIPConfigurations") {
            check(&user, text(frontend, "/id"))?;
        }
    }
    // A rule has both fields with the same pool in answers.
    for rule in each(fields, "/properties/loadBalancingRules") {
        let pool = at(rule, "/properties/backendAddressPool").clone();
        if let Some(id) = pool.get("id").filter(|_| at(rule, "/properties/backendAddressPools").is_null()) {
            let id = id.clone();
            set(rule, "/properties/backendAddressPools", json!([{ "id": id }]));
        }
    }
    Ok(())
}

fn frontends(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    let sku = text(fields, "/sku/name").to_owned();
    let mut taken = BTreeMap::new();
    let mut result = Ok(());
    let mut beside = beside(id, old, fields);
    for frontend in each(fields, "/properties/frontendIPConfigurations") {
        result = result.and_then(|()| self::frontend(world, id, old, &sku, frontend, &mut taken, &mut beside));
    }
    result
}

/// The frontends that a write removes, and the private addresses of the others.
fn beside(id: &Id, old: Option<&Value>, fields: &Value) -> Beside {
    let of = |balancer| list(balancer, "/properties/frontendIPConfigurations");
    let key = |frontend| id.child("frontendIPConfigurations", text(frontend, "/name")).key();
    let stay: BTreeSet<String> = of(fields).iter().map(key).collect();
    let gone = old.map(of).unwrap_or_default().iter().map(key).filter(|key| !stay.contains(key)).collect();
    let taken = of(fields).iter().filter_map(|it| text(it, "/properties/privateIPAddress").parse().ok()).collect();
    Beside { gone, taken }
}

fn frontend(
    world: &mut World,
    id: &Id,
    old: Option<&Value>,
    sku: &str,
    frontend: &mut Value,
    taken: &mut BTreeMap<String, String>,
    beside: &mut Beside,
) -> Result<(), Problem> {
    let name = text(frontend, "/name").to_owned();
    let user = id.child("frontendIPConfigurations", &name).text();
    let targets = ["publicIPAddress", "publicIPPrefix", "subnet"];
    for target in targets {
        // Only the reference counts.
        if let Some(reference) = frontend.pointer(&format!("/properties/{target}/id")).cloned() {
            set(frontend, &format!("/properties/{target}"), json!({ "id": reference }));
        }
    }
    let given = targets.iter().filter(|target| !text(frontend, &format!("/properties/{target}/id")).is_empty());
    if given.count() != 1 {
        let text = format!(
            "Frontend IP configuration {user} must reference either a subnet, a public IP address or a public IP prefix."
        );
        return Err(errors::bad("LoadBalancerFrontendIPConfigMustReferenceSubnetOrPublicIP", text));
    }
    let address = text(frontend, "/properties/publicIPAddress/id").to_owned();
    if !address.is_empty() {
        set(frontend, "/properties/privateIPAllocationMethod", "Dynamic");
        if !list(frontend, "/zones").is_empty() {
            let text = format!(
                "Load balancer frontend IP config {user} cannot have zones when referencing a public IP address."
            );
            return Err(errors::bad("LoadBalancerFrontendIPConfigCannotHaveZoneWhenReferencingPublicIPAddress", text));
        }
        public_ips::usable(world, &address, &user, sku, &id.text())?;
        if let Some(other) = taken.insert(address.to_lowercase(), user.clone()) {
            return Err(public_ips::in_use(&user, &address, &other));
        }
    }
    let subnet = text(frontend, "/properties/subnet/id").to_owned();
    if !subnet.is_empty() {
        default(frontend, "/properties/privateIPAllocationMethod", "Dynamic");
        default(frontend, "/properties/privateIPAddressVersion", "IPv4");
        let before = old.and_then(|old| {
            list(old, "/properties/frontendIPConfigurations").iter().find(|known| same(text(known, "/name"), &name))
        });
        networks::assign(world, frontend, &user, before, beside)?;
    }
    Ok(())
}

fn probes(id: &Id, fields: &Value) -> Result<(), Problem> {
    for probe in list(fields, "/properties/probes") {
        let user = id.child("probes", text(probe, "/name")).text();
        let protocol = text(probe, "/properties/protocol");
        let path = text(probe, "/properties/requestPath");
        let wrong = match protocol {
            "Tcp" if !path.is_empty() => Some("requestPath is not allowed for the protocol Tcp"),
            "Http" | "Https" if path.is_empty() => Some("requestPath is required for the protocol Http"),
            "Tcp" | "Http" | "Https" => None,
            _ => Some("the protocol is none of Tcp, Http, Https"),
        };
        if let Some(wrong) = wrong {
            // unverified: the code.
            return Err(errors::bad("InvalidProbeConfiguration", format!("Probe {user} is invalid: {wrong}.")));
        }
        let port = number(probe, "/properties/port").unwrap_or_default();
        let interval = number(probe, "/properties/intervalInSeconds").unwrap_or(15);
        if !(1..=65535).contains(&port) || interval < 5 {
            // unverified: the code.
            let text = format!("Probe {user} has an invalid port {port} or interval {interval}.");
            return Err(errors::bad("InvalidProbeConfiguration", text));
        }
    }
    Ok(())
}

fn rules(id: &Id, fields: &Value) -> Result<(), Problem> {
    let standard = text(fields, "/sku/name") != "Basic";
    for rule in list(fields, "/properties/loadBalancingRules") {
        let user = id.child("loadBalancingRules", text(rule, "/name")).text();
        let missing = ["protocol", "frontendPort", "frontendIPConfiguration"]
            .into_iter()
            .find(|name| at(rule, &format!("/properties/{name}")).is_null());
        if let Some(name) = missing {
            let text = format!("Value for {name} must be specified for load balancing rule {user}.");
            return Err(Problem::violation(400, "InvalidRequestFormat", text));
        }
        let port = |name: &str| number(rule, &format!("/properties/{name}")).unwrap_or_default();
        let (frontend, backend) = (port("frontendPort"), port("backendPort"));
        let all = text(rule, "/properties/protocol") == "All";
        let internal = !is_public(fields, text(rule, "/properties/frontendIPConfiguration/id"));
        // unverified: the codes of the rest, and that All with other ports is refused.
        if all && (frontend != 0 || backend != 0 || !internal || !standard) {
            let text = format!(
                "Load balancing rule {user} with protocol All must have frontend and backend port 0, and an internal frontend of a Standard load balancer."
            );
            return Err(errors::bad("LoadBalancingRuleProtocolAllInvalid", text));
        }
        let ports = |port: i64| (1..=65534).contains(&port) || port == 65535;
        if !(all || ports(frontend) && ports(backend)) {
            let text = format!("Load balancing rule {user} has an invalid port: {frontend}, {backend}.");
            return Err(errors::bad("LoadBalancingRulePortInvalid", text));
        }
        let idle = number(rule, "/properties/idleTimeoutInMinutes").unwrap_or(4);
        if !(4..=100).contains(&idle) {
            let text = format!("Load balancing rule {user} has an invalid idle timeout of {idle} minutes.");
            return Err(errors::bad("LoadBalancingRuleIdleTimeoutInvalid", text));
        }
        if text(rule, "/properties/protocol") == "Udp" && super::json::is(rule, "/properties/enableTcpReset") {
            let text = format!("Load balancing rule {user} cannot enable TCP reset for protocol Udp.");
            return Err(errors::bad("LoadBalancingRuleTcpResetInvalid", text));
        }
    }
    Ok(())
}

/// A frontend of an outbound rule serves no connections from inside by other rules.
fn outbound(id: &Id, fields: &Value) -> Result<(), Problem> {
    for outbound in list(fields, "/properties/outboundRules") {
        let frontends = list(outbound, "/properties/frontendIPConfigurations");
        let uses = |rule: &&Value| {
            let own = text(rule, "/properties/frontendIPConfiguration/id");
            let pool = text(rule, "/properties/backendAddressPool/id");
            frontends.iter().any(|frontend| same(text(frontend, "/id"), own))
                && same(text(outbound, "/properties/backendAddressPool/id"), pool)
                && !super::json::is(rule, "/properties/disableOutboundSnat")
        };
        if let Some(rule) = list(fields, "/properties/loadBalancingRules").iter().find(uses) {
            let text = format!(
                "Load balancing rule {} must disable SNAT since same frontend IP configuration is referenced by outbound rule {}.",
                id.child("loadBalancingRules", text(rule, "/name")).text(),
                id.child("outboundRules", text(outbound, "/name")).text()
            );
            let code = "LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule";
            return Err(errors::bad(code, text));
        }
    }
    Ok(())
}

fn is_public(fields: &Value, frontend: &str) -> bool {
    let name = frontend.rsplit('/').next().unwrap_or_default();
    let mut all = list(fields, "/properties/frontendIPConfigurations").iter();
    let found = all.find(|known| same(text(known, "/name"), name));
    found.is_some_and(|found| at(found, "/properties/subnet").is_null())
}

/// Rules must differ in what they serve, and without floating IP in what they send it to.
fn conflicts(id: &Id, fields: &Value) -> Result<(), Problem> {
    let (mut fronts, mut backs): (BTreeMap<_, String>, BTreeMap<_, String>) = (BTreeMap::new(), BTreeMap::new());
    let all = ["loadBalancingRules", "inboundNatRules"].into_iter();
    let all = all.flat_map(|part| list(fields, &format!("/properties/{part}")).iter().map(move |rule| (part, rule)));
    for (part, rule) in all {
        let user = id.child(part, text(rule, "/name")).text();
        let protocol = text(rule, "/properties/protocol").to_lowercase();
        let front = text(rule, "/properties/frontendIPConfiguration/id").to_lowercase();
        let port = number(rule, "/properties/frontendPort").unwrap_or_default();
        if let Some(other) = fronts.insert((front.clone(), protocol.clone(), port), user.clone()) {
            let text = format!(
                "Load balancing rules {other} and {user} belong to load balancer {} and use the same frontend port {port} and protocol {protocol} with frontendIPConfiguration {front}.",
                id.text()
            );
            return Err(errors::bad("RulesUseSameFrontendPortProtocolAndIPConfig", text));
        }
        if super::json::is(rule, "/properties/enableFloatingIP") || part == "inboundNatRules" {
            continue;
        }
        let pool = text(rule, "/properties/backendAddressPool/id").to_lowercase();
        let port = number(rule, "/properties/backendPort").unwrap_or_default();
        if let Some(other) = backs.insert((pool.clone(), protocol.clone(), port), user.clone()) {
            let name = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
            let text = format!(
                "Load balancing rules {} and {} with floating IP disabled use the same protocol {protocol} and backend port {port}, and must not be used with the same backend address pool {}.",
                name(&other),
                name(&user),
                name(&pool)
            );
            return Err(errors::bad("RulesUseSameBackendPortProtocolAndPool", text));
        }
    }
    Ok(())
}

fn limits(world: &World, id: &Id, fields: &Value) -> Result<(), Problem> {
    let limits = world.options.limits;
    let count = |part: &str| list(fields, &format!("/properties/{part}")).len();
    // unverified: the codes and texts of these two.
    if count("loadBalancingRules") > limits.rules_per_load_balancer {
        let text = format!("A load balancer cannot have more than {} rules.", limits.rules_per_load_balancer);
        return Err(errors::bad("LoadBalancingRuleCountLimitReached", text));
    }
    if count("frontendIPConfigurations") > limits.frontends_per_load_balancer {
        let text = format!("A load balancer cannot have more than {} frontends.", limits.frontends_per_load_balancer);
        return Err(errors::bad("FrontendIPConfigurationCountLimitReached", text));
    }
    let own = rules_by_pool(id, fields);
    let members: BTreeSet<&str> = own.keys().flat_map(|pool| pools::members(world, pool)).collect();
    for member in members {
        interfaces::within_limit(world, member, &own)?;
    }
    Ok(())
}

/// The number of load-balancing and NAT rules by pool.
pub(super) fn rules_by_pool(id: &Id, fields: &Value) -> BTreeMap<String, usize> {
    let pools = list(fields, "/properties/backendAddressPools").iter();
    let mut found: BTreeMap<String, usize> =
        pools.map(|pool| (id.child("backendAddressPools", text(pool, "/name")).key(), 0)).collect();
    for part in ["loadBalancingRules", "inboundNatRules"] {
        for rule in list(fields, &format!("/properties/{part}")) {
            let pool = text(rule, "/properties/backendAddressPool/id").to_lowercase();
            if let Some(count) = found.get_mut(&pool) {
                *count += 1;
            }
        }
    }
    found
}

/// What others refer to cannot be dropped.
fn dropped(world: &World, id: &Id, old: &Value, fields: &Value) -> Result<(), Problem> {
    for part in ["frontendIPConfigurations", "backendAddressPools", "inboundNatPools", "inboundNatRules"] {
        let pointer = format!("/properties/{part}");
        let kept = |name: &str| list(fields, &pointer).iter().any(|item| same(text(item, "/name"), name));
        for item in list(old, &pointer).iter().filter(|item| !kept(text(item, "/name"))) {
            let gone = id.child(part, text(item, "/name"));
            let Some((_, user, _)) = world.store.users(&gone.key()).next() else { continue };
            return Err(in_use(&gone, user, id));
        }
    }
    Ok(())
}

fn in_use(part: &Id, user: &str, id: &Id) -> Problem {
    let name = part.name();
    let (what, _) = part.parts.last().cloned().unwrap_or_default();
    if what == "frontendIPConfigurations" {
        // unverified: the code.
        let text = format!("Frontend IP configuration {} is in use by {user} and cannot be deleted.", part.text());
        return errors::bad("InUseFrontendIPConfigurationCannotBeDeleted", text);
    }
    let set = user.to_lowercase();
    if set.contains("/virtualmachinescalesets/") {
        let end = set.find("/virtualmachines/").unwrap_or(set.len());
        let text = format!(
            "Cannot remove backend address pool {name} from load balancer {} since it is in use by virtual machine scale set {}.",
            id.text(),
            user.get(..end).unwrap_or(user)
        );
        return errors::bad("LoadBalancerBackendPoolInUseByVirtualMachineScaleSet", text);
    }
    // unverified: the code.
    let text = format!("Backend address pool {} is in use by {user} and cannot be deleted.", part.text());
    errors::bad("InUseBackendAddressPoolCannotBeDeleted", text)
}

/// The interfaces in the pools must not have failed, and must not be in deletion.
fn settled_members(world: &World, id: &Id, fields: &Value) -> Result<(), Problem> {
    if world.action.is_empty() {
        return Ok(());
    }
    for pool in list(fields, "/properties/backendAddressPools") {
        let key = id.child("backendAddressPools", text(pool, "/name")).key();
        for member in pools::members(world, &key) {
            let (state, operation) = interfaces::state_of(world, member);
            let blocks = match state {
                "Failed" | "Deleting" => true,
                "Updating" | "Creating" => world.options.updating_members_block,
                _ => false,
            };
            if blocks {
                return Err(errors::not_provisioned(member, &id.text(), state, operation));
            }
        }
    }
    Ok(())
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some(fields) = world.store.get(&id.key()).map(|row| row.fields.clone()) else { return Ok(()) };
    settled_members(world, id, &fields)?;
    let mut leaving = Vec::new();
    for part in ["frontendIPConfigurations", "backendAddressPools", "inboundNatPools"] {
        for item in list(&fields, &format!("/properties/{part}")) {
            let child = id.child(part, text(item, "/name"));
            for (key, user, _) in world.store.users(&child.key()) {
                if key.contains("/virtualmachinescalesets/") {
                    let end = key.find("/virtualmachines/").unwrap_or(key.len());
                    let text = format!(
                        "Cannot delete load balancer {} since its child resources {} are in use by virtual machine scale set {}.",
                        id.text(),
                        child.name(),
                        user.get(..end).unwrap_or(user)
                    );
                    return Err(errors::bad("LoadBalancerInUseByVirtualMachineScaleSet", text));
                }
                if part == "frontendIPConfigurations" {
                    return Err(in_use(&child, user, id));
                }
                leaving.push((user.to_owned(), child.key()));
            }
        }
    }
    // Interfaces lose their reference with the load balancer.
    for (member, pool) in leaving {
        interfaces::leave(world, &member, &pool);
    }
    Ok(())
}

pub(super) fn show(world: &World, _: &Id, value: &mut Value) {
    let mut back: BTreeMap<String, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    let mut add = |target: &str, name: &'static str, user: Value| {
        back.entry(target.to_lowercase()).or_default().entry(name).or_default().push(json!({ "id": user }));
    };
    for part in ["loadBalancingRules", "inboundNatRules", "outboundRules", "inboundNatPools"] {
        for item in list(value, &format!("/properties/{part}")) {
            let user = at(item, "/id").clone();
            for field in ["frontendIPConfiguration", "backendAddressPool", "probe"] {
                let target = text(item, &format!("/properties/{field}/id"));
                if !target.is_empty() {
                    add(target, part, user.clone());
                }
            }
            if part == "outboundRules" {
                for frontend in list(item, "/properties/frontendIPConfigurations") {
                    add(text(frontend, "/id"), part, user.clone());
                }
            }
        }
    }
    for part in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        for item in each(value, &format!("/properties/{part}")) {
            let key = text(item, "/id").to_lowercase();
            for (name, users) in back.remove(&key).into_iter().flatten() {
                set(item, &format!("/properties/{name}"), users);
            }
            if part == "backendAddressPools" {
                default(item, "/properties/loadBalancerBackendAddresses", json!([]));
                pools::show(world, item);
            }
        }
    }
    for name in ["inboundNatRules", "outboundRules", "inboundNatPools", "probes", "loadBalancingRules"] {
        default(value, &format!("/properties/{name}"), json!([]));
    }
    default(value, "/properties/backendAddressPools", json!([]));
    default(value, "/properties/frontendIPConfigurations", json!([]));
    if text(value, "/sku/name").is_empty() {
        set(value, "/sku", json!({"name": "Standard", "tier": "Regional"}));
    }
}

/// `GET …/backendAddressPools`
pub(super) fn list_pools(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = Id::parse(&call.path).map(|id| id.root()).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let row = world.store.seen(&id.key(), world.now()).ok_or_else(|| errors::not_found(&id))?;
    let shown = world.shown(row);
    Ok(super::lists::reply(list(&shown, "/properties/backendAddressPools"), None))
}
