//! Virtual machines, scale sets, their instances and the instances' interfaces, and availability sets.

use super::ids::Id;
use super::json::{at, default, each, is, list, number, remove, same, set, text, texts};
use super::kinds::{Ref, of_configuration, reference};
use super::operations::{self, Write};
use super::options::StatusOnly;
use super::world::World;
use super::{errors, interfaces, kinds, lists};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The interfaces of an instance of a scale set.
pub(super) const INSTANCE_INTERFACES: &str = "/properties/networkProfileConfiguration/networkInterfaceConfigurations";
/// The interfaces in the model of a scale set.
pub(super) const MODEL_INTERFACES: &str =
    "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations";

/// Fields of answers that the write of an instance ignores.
pub(super) const IGNORED_OF_INSTANCES: &[&str] = &[
    "/instanceId",
    "/sku",
    "/zones",
    "/properties/instanceView",
    "/properties/latestModelApplied",
    "/properties/modelDefinitionApplied",
    "/properties/vmId",
    "/properties/timeCreated",
    "/properties/networkProfile",
];

/// The references of a virtual machine: its interfaces, and its sets.
pub(super) fn machine_refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let user = id.text();
    let interfaces = list(fields, "/properties/networkProfile/networkInterfaces").iter();
    let mut found: Vec<Ref> = interfaces.filter_map(|interface| reference(interface, "", &user)).collect();
    for name in ["availabilitySet", "virtualMachineScaleSet"] {
        found.extend(reference(fields, &format!("/properties/{name}"), &user));
    }
    found
}

/// The references of a model: its pools, subnets and security groups.
pub(super) fn set_refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let user = id.text();
    let mut found = Vec::new();
    for interface in list(fields, MODEL_INTERFACES) {
        found.extend(reference(interface, "/properties/networkSecurityGroup", &user));
        for configuration in list(interface, "/properties/ipConfigurations") {
            found.extend(of_configuration(configuration, &user));
        }
    }
    found
}

/// The references of an instance of a scale set.
pub(super) fn instance_refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let mut found = Vec::new();
    for interface in list(fields, INSTANCE_INTERFACES) {
        let own = id.child("networkInterfaces", text(interface, "/name"));
        found.extend(reference(interface, "/properties/networkSecurityGroup", &own.text()));
        for configuration in list(interface, "/properties/ipConfigurations") {
            let user = own.child("ipConfigurations", text(configuration, "/name")).text();
            let address = text(fields, &address_of(interface, configuration)).parse().ok();
            let refs = of_configuration(configuration, &user).into_iter();
            found.extend(refs.map(|one| match one.target.contains("/subnets/") {
                true => Ref { address, ..one },
                false => one,
            }));
        }
    }
    found
}

/// Where the address of an IP configuration of an instance is remembered.
pub(super) fn address_of(interface: &Value, configuration: &Value) -> String {
    format!("/_addresses/{}+{}", text(interface, "/name"), text(configuration, "/name"))
}

/// Checks the interfaces of a model or instance, given the ID of each.
fn check_interfaces(world: &World, id: &Id, found: &[Value]) -> Result<(), Problem> {
    for interface in found {
        let own = id.child("networkInterfaces", text(interface, "/name"));
        let configurations: Vec<(String, &Value)> = list(interface, "/properties/ipConfigurations")
            .iter()
            .map(|one| (own.child("ipConfigurations", text(one, "/name")).text(), one))
            .collect();
        if configurations.is_empty() {
            let text = format!("Network interface configuration {} has no IP configurations.", own.text());
            return Err(Problem::violation(400, "InvalidParameter", text));
        }
        interfaces::joins(world, &configurations)?;
    }
    let primaries = found.iter().filter(|interface| is(interface, "/properties/primary")).count();
    if found.len() > 1 && primaries != 1 {
        let text = "Exactly one network interface configuration must be primary.";
        return Err(errors::bad("InvalidParameter", text));
    }
    Ok(())
}

/// A change of the model makes a new one; the instances keep theirs until they are upgraded or written.
pub(super) fn check_set(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    default(fields, "/properties/orchestrationMode", "Uniform");
    default(fields, "/properties/upgradePolicy/mode", "Manual");
    for interface in each(fields, MODEL_INTERFACES) {
        each(interface, "/properties/ipConfigurations").for_each(interfaces::only_references);
    }
    let interfaces = list(fields, MODEL_INTERFACES).to_vec();
    check_interfaces(world, id, &interfaces)?;
    let Some(old) = old else { return Ok(()) };
    for fixed in ["/properties/orchestrationMode", "/properties/singlePlacementGroup"] {
        if at(old, fixed) != at(fields, fixed) && !at(old, fixed).is_null() {
            let name = fixed.rsplit('/').next().unwrap_or_default();
            let text = format!("Changing property '{name}' is not allowed.");
            return Err(Problem::new(409, "PropertyChangeNotAllowed", text));
        }
    }
    if at(old, "/properties/virtualMachineProfile") == at(fields, "/properties/virtualMachineProfile") {
        return Ok(());
    }
    let model = number(old, "/_model").unwrap_or_default() + 1;
    let prefix = id.child("virtualMachines", "").key();
    let rows = world.store.seen_under(&prefix, world.now());
    let mut used: BTreeSet<i64> = rows.iter().filter_map(|row| number(&row.fields, "/_model")).collect();
    used.insert(model);
    let limit = world.options.limits.models;
    if used.len() > limit {
        let text = format!(
            "The number of active VM Scale Set models used by VM Scale Set '{}' has reached the allowed limit of {limit}. Please upgrade existing VMs to the latest model.",
            id.name()
        );
        return Err(Problem::new(409, "VMScaleSetActiveModelsCountLimitReached", text));
    }
    set(fields, "/_model", model);
    Ok(())
}

/// The write of an instance. `unverified`: it counts as an instance of the latest model afterwards.
pub(super) fn check_instance(
    world: &mut World,
    id: &Id,
    old: Option<&Value>,
    fields: &mut Value,
) -> Result<(), Problem> {
    let Some(old) = old else { return Err(errors::not_found(id)) };
    if text(old, "/properties/provisioningState") == "Deleting" {
        let text = format!(
            "Operation 'Update VM' is not allowed on VM '{}' since the VM is marked for deletion. You can only retry the Delete \
             operation (or wait for an ongoing one to complete).",
            id.name()
        );
        return Err(Problem::new(409, "OperationNotAllowed", text));
    }
    for interface in each(fields, INSTANCE_INTERFACES) {
        each(interface, "/properties/ipConfigurations").for_each(interfaces::only_references);
    }
    let names = |fields: &Value| -> BTreeSet<String> {
        let interfaces = list(fields, INSTANCE_INTERFACES).iter();
        let all = interfaces
            .flat_map(|one| list(one, "/properties/ipConfigurations").iter().map(move |inner| address_of(one, inner)));
        all.collect()
    };
    if names(old) != names(fields) {
        // unverified: the code. A list that is sent replaces the whole list, so an interface would vanish.
        let text = format!("Network interfaces of {} cannot be added or removed.", id.text());
        return Err(Problem::new(409, "PropertyChangeNotAllowed", text));
    }
    let interfaces = list(fields, INSTANCE_INTERFACES).to_vec();
    check_interfaces(world, id, &interfaces)?;
    let set_row = id.parent().and_then(|parent| world.store.get(&parent.key()));
    let model = set_row.and_then(|row| number(&row.fields, "/_model")).unwrap_or_default();
    set(fields, "/_model", model);
    set(fields, "/_own", true);
    Ok(())
}

/// The view of a running machine.
fn view(fields: &Value) -> Value {
    let power = text(fields, "/_power");
    let state = text(fields, "/properties/provisioningState").to_lowercase();
    let mut statuses = vec![json!({
        "code": format!("ProvisioningState/{state}"), "level": "Info", "displayStatus": format!("Provisioning {state}"),
    })];
    if !power.is_empty() {
        let shown = format!("VM {power}");
        statuses.push(json!({"code": format!("PowerState/{power}"), "level": "Info", "displayStatus": shown}));
    }
    let mut view = json!({"statuses": statuses});
    if let Some(domain) = number(fields, "/_fault_domain") {
        set(&mut view, "/platformFaultDomain", domain);
        set(&mut view, "/platformUpdateDomain", domain);
    }
    view
}

pub(super) fn show_machine(world: &World, id: &Id, value: &mut Value) {
    if let Some(row) = world.store.get(&id.key()) {
        set(value, "/properties/instanceView", view(&row.fields));
    }
}

pub(super) fn show_instance(world: &World, id: &Id, value: &mut Value) {
    let Some(row) = world.store.get(&id.key()) else { return };
    set(value, "/properties/instanceView", view(&row.fields));
    set(value, "/instanceId", id.name());
    let parent = id.parent().and_then(|parent| world.store.get(&parent.key()));
    set(value, "/name", format!("{}_{}", parent.map(|row| row.id.name()).unwrap_or_default(), id.name()));
    let model = parent.and_then(|row| number(&row.fields, "/_model")).unwrap_or_default();
    let latest = number(&row.fields, "/_model").unwrap_or_default() == model;
    set(value, "/properties/latestModelApplied", latest);
    let own = is(&row.fields, "/_own");
    set(value, "/properties/modelDefinitionApplied", if own { "VirtualMachine" } else { "VirtualMachineScaleSet" });
    let interfaces = list(&row.fields, INSTANCE_INTERFACES).iter();
    let refs = interfaces.map(|one| {
        let primary = is(one, "/properties/primary");
        json!({"id": id.child("networkInterfaces", text(one, "/name")).text(), "properties": {"primary": primary}})
    });
    let refs: Vec<Value> = refs.collect();
    // An instance that is being created has no network profile yet.
    if !refs.is_empty() {
        set(value, "/properties/networkProfile/networkInterfaces", refs);
    }
}

pub(super) fn show_availability_set(world: &World, id: &Id, value: &mut Value) {
    let users: Vec<Value> = world.store.users(&id.key()).map(|(_, user, _)| json!({ "id": user })).collect();
    set(value, "/properties/virtualMachines", users);
    remove(value, "/etag");
    remove(value, "/properties/provisioningState");
}

pub(super) fn show_disk(_: &World, _: &Id, value: &mut Value) {
    remove(value, "/etag");
}

/// Removes the instance view that a GET did not ask for.
pub(super) fn expand(call: &Call, value: &mut Value) -> Result<(), Problem> {
    match call.get("$expand") {
        None => drop(remove(value, "/properties/instanceView")),
        Some(wanted) if same(wanted, "instanceView") => {}
        Some(other) => return Err(unsupported("$expand", other)),
    }
    Ok(())
}

fn unsupported(name: &str, value: &str) -> Problem {
    Problem::violation(400, "InvalidParameter", format!("The value '{value}' of parameter {name} is not supported."))
}

/// Removes the instance views that a list did not ask for. The list of a group takes `$expand` only with `$filter`, and
/// that of a subscription `statusOnly`.
pub(super) fn expand_list(world: &World, call: &Call, values: &mut [Value]) -> Result<(), Problem> {
    let status_only = world.options.status_only;
    let (expand, filter) = (call.get("$expand"), call.get("$filter"));
    let shown = match (call.action, expand, call.get("statusOnly")) {
        ("virtualMachines.list", Some(_), _) if filter.is_none() => {
            return Err(unsupported("$expand", "instanceView"));
        }
        ("virtualMachines.list" | "virtualMachineScaleSetVMs.list", Some(wanted), None) => same(wanted, "instanceView"),
        ("virtualMachines.listAll", None, Some(only)) if status_only == StatusOnly::Refused => {
            return Err(errors::bad("InvalidParameter", format!("statusOnly={only} is not supported.")));
        }
        ("virtualMachines.listAll", None, Some(only)) => same(only, "true"),
        (_, None, None) => false,
        (_, Some(other), _) => return Err(unsupported("$expand", other)),
        (_, None, Some(other)) => return Err(unsupported("statusOnly", other)),
    };
    if !shown {
        values.iter_mut().for_each(|value| drop(remove(value, "/properties/instanceView")));
    } else if call.action == "virtualMachines.listAll" && status_only == StatusOnly::WithoutDomain {
        values.iter_mut().for_each(|value| drop(remove(value, "/properties/instanceView/platformFaultDomain")));
    }
    Ok(())
}

/// `GET …/instanceView` of a machine or instance.
pub(super) fn instance_view(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = Id::parse(&call.path).and_then(|id| id.parent());
    let id = id.ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let row = world.store.seen(&id.key(), world.now()).ok_or_else(|| errors::not_found(&id))?;
    Ok(Reply::json(200, &view(&row.fields)))
}

/// `GET …/virtualMachineScaleSets/{name}/virtualMachines`: of a flexible set too, with the machines' names as IDs.
pub(super) fn list_instances(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (_, id) = world.target(call)?;
    let Some(parent) = id.parent() else { return Err(errors::not_found(&id)) };
    let Some(set_row) = world.store.seen(&parent.key(), world.now()) else {
        return Err(errors::no_parent(&id, &parent));
    };
    let rows = if text(&set_row.fields, "/properties/orchestrationMode") == "Flexible" {
        let machines = world.store.users(&parent.key()).filter_map(|(key, ..)| world.store.get(key));
        machines.filter(|row| row.kind == "microsoft.compute/virtualmachines").collect()
    } else {
        world.store.seen_under(&id.key(), world.now())
    };
    let page = lists::page(world, call, rows)?;
    let mut values: Vec<Value> = page.items.into_iter().map(|row| world.shown(row)).collect();
    for value in &mut values {
        let name = text(value, "/name").to_owned();
        if at(value, "/instanceId").is_null() {
            set(value, "/instanceId", name.as_str());
            set(value, "/id", parent.child("virtualMachines", &name).text());
            set(value, "/type", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
            remove(value, "/properties/virtualMachineScaleSet");
        }
    }
    expand_list(world, call, &mut values)?;
    Ok(lists::reply(&values, page.next))
}

/// The instances of the set, or the one instance, of a call below `virtualMachineScaleSets`.
fn instances(world: &World, call: &Call) -> Result<Vec<super::store::Row>, Problem> {
    let id = Id::parse(&call.path).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let root = id.root();
    if !world.groups.contains_key(&id.group_key()) {
        return Err(errors::no_group(&id.group));
    }
    if world.store.seen(&root.key(), world.now()).is_none() {
        return Err(errors::no_parent(&id, &root));
    }
    match id.parts.get(1).filter(|(kind, name)| same(kind, "virtualMachines") && !name.is_empty()) {
        Some((_, name)) => {
            let instance = root.child("virtualMachines", name);
            let row = world.store.seen(&instance.key(), world.now());
            row.map(|row| vec![row.clone()]).ok_or_else(|| errors::no_parent(&id, &instance))
        }
        None => {
            let prefix = root.child("virtualMachines", "").key();
            Ok(world.store.seen_under(&prefix, world.now()).into_iter().cloned().collect())
        }
    }
}

/// The interfaces of an instance, as version 2018-10-01 shows them.
fn shown_interfaces(row: &super::store::Row) -> Vec<Value> {
    let etag = at(&row.fields, "/etag");
    let shown = |interface: &Value| {
        let id = row.id.child("networkInterfaces", text(interface, "/name"));
        let configurations = list(interface, "/properties/ipConfigurations").iter().map(|one| {
            let own = id.child("ipConfigurations", text(one, "/name"));
            let mut inner = json!({
                "provisioningState": "Succeeded", "privateIPAllocationMethod": "Dynamic",
                "privateIPAddressVersion": version(one), "primary": is(one, "/properties/primary"),
                "subnet": at(one, "/properties/subnet"),
            });
            let address = text(&row.fields, &address_of(interface, one));
            if !address.is_empty() {
                set(&mut inner, "/privateIPAddress", address);
            }
            let pools = list(one, "/properties/loadBalancerBackendAddressPools");
            if !pools.is_empty() {
                set(&mut inner, "/loadBalancerBackendAddressPools", pools.to_vec());
            }
            if let Some(address) = public_address(row, interface, one) {
                set(&mut inner, "/publicIPAddress", json!({ "id": at(&address, "/id") }));
            }
            json!({"name": own.name(), "id": own.text(), "etag": etag, "properties": inner})
        });
        json!({
            "name": id.name(), "id": id.text(), "etag": etag,
            "properties": {
                "provisioningState": "Succeeded", "primary": is(interface, "/properties/primary"),
                "ipConfigurations": configurations.collect::<Vec<_>>(), "macAddress": "00-0D-3A-00-00-01",
                "enableIPForwarding": is(interface, "/properties/enableIPForwarding"),
                "enableAcceleratedNetworking": is(interface, "/properties/enableAcceleratedNetworking"),
                "virtualMachine": {"id": row.id.text()}, "dnsSettings": {"dnsServers": [], "appliedDnsServers": []},
            },
        })
    };
    list(&row.fields, INSTANCE_INTERFACES).iter().map(shown).collect()
}

fn version(configuration: &Value) -> &str {
    match text(configuration, "/properties/privateIPAddressVersion") {
        "" => "IPv4",
        other => other,
    }
}

/// The public IP address of an IP configuration of an instance.
fn public_address(row: &super::store::Row, interface: &Value, configuration: &Value) -> Option<Value> {
    let name = text(configuration, "/properties/publicIPAddressConfiguration/name");
    let address = text(&row.fields, &address_of(interface, configuration).replacen("/_addresses/", "/_public/", 1));
    if name.is_empty() || address.is_empty() {
        return None;
    }
    let own = row.id.child("networkInterfaces", text(interface, "/name"));
    let own = own.child("ipConfigurations", text(configuration, "/name"));
    let id = own.child("publicIPAddresses", name);
    Some(json!({
        "name": name, "id": id.text(), "etag": at(&row.fields, "/etag"),
        "properties": {
            "provisioningState": "Succeeded", "ipAddress": address, "publicIPAllocationMethod": "Static",
            "publicIPAddressVersion": version(configuration), "idleTimeoutInMinutes": 4,
            "ipConfiguration": {"id": own.text()},
        },
    }))
}

/// `GET …/networkInterfaces` of a set or an instance.
pub(super) fn list_interfaces(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let rows = instances(world, call)?;
    let all: Vec<Value> = rows.iter().flat_map(shown_interfaces).collect();
    let page = lists::page(world, call, all)?;
    Ok(lists::reply(&page.items, page.next))
}

/// `GET …/networkInterfaces/{name}` of an instance.
pub(super) fn get_interface(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    one(call, instances(world, call)?.iter().flat_map(shown_interfaces))
}

fn public_addresses(row: &super::store::Row) -> Vec<Value> {
    let interfaces = list(&row.fields, INSTANCE_INTERFACES).iter();
    let all = interfaces.flat_map(|interface| {
        let configurations = list(interface, "/properties/ipConfigurations").iter();
        configurations.filter_map(move |one| public_address(row, interface, one))
    });
    all.collect()
}

/// `GET …/publicIPAddresses` of a set.
pub(super) fn list_addresses(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let all: Vec<Value> = instances(world, call)?.iter().flat_map(public_addresses).collect();
    let page = lists::page(world, call, all)?;
    Ok(lists::reply(&page.items, page.next))
}

/// `GET …/publicIPAddresses/{name}` of an IP configuration of an instance.
pub(super) fn get_address(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    one(call, instances(world, call)?.iter().flat_map(public_addresses))
}

/// The value whose ID is the path of a call.
fn one(call: &Call, mut all: impl Iterator<Item = Value>) -> Result<Reply, Problem> {
    let id = Id::parse(&call.path).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let found = all.find(|value| same(text(value, "/id"), &id.text()));
    found.map(|value| Reply::json(200, &value)).ok_or_else(|| errors::not_found(&id))
}

/// `POST …/manualupgrade`: the named instances get the model.
pub(super) fn upgrade(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = Id::parse(&call.path).map(|id| id.root()).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    let Some(set_row) = world.store.get(&id.key()).cloned() else { return Err(errors::not_found(&id)) };
    let body = call.object().map(Value::Object).unwrap_or_default();
    let named: Vec<String> = texts(&body, "/instanceIds").map(str::to_owned).collect();
    for instance in named {
        let instance = id.child("virtualMachines", &instance);
        let Some(row) = world.store.get(&instance.key()).cloned() else { return Err(errors::not_found(&instance)) };
        let mut fields = row.fields.clone();
        set(&mut fields, INSTANCE_INTERFACES, at(&set_row.fields, MODEL_INTERFACES).clone());
        set(&mut fields, "/_model", number(&set_row.fields, "/_model").unwrap_or_default());
        let Some(kind) = kinds::of(&row.kind) else { continue };
        let name = "ManualUpgradeOperation".to_owned();
        world.begin_operation(Write { kind, id: &row.id, name, fields: Some(fields) });
    }
    let Some(kind) = kinds::of(&set_row.kind) else { return Ok(Reply::empty(500)) };
    let name = "ManualUpgradeOperation".to_owned();
    let write = Write { kind, id: &set_row.id, name, fields: Some(set_row.fields.clone()) };
    let operation = world.begin_operation(write);
    Ok(Reply { headers: operations::headers(world, &operation, true), ..Reply::empty(202) })
}
