//! Lists, with pages.

use super::ids::Id;
use super::json::{same, text};
use super::store::Row;
use super::world::World;
use super::{errors, kinds};
use crate::core::rest::{Call, Problem, Reply, encoded};
use serde_json::{Value, json};

/// `GET …/{collection}` of a resource group or resource.
pub(super) fn list(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (_, id) = world.target(call)?;
    if let Some(parent) = id.parent().filter(|parent| world.store.seen(&parent.key(), world.now()).is_none()) {
        return Err(errors::no_parent(&id, &parent));
    }
    let rows = world.store.seen_under(&id.key(), world.now());
    let rows = filtered(world, call, rows)?;
    answer(world, call, rows)
}

/// `GET /subscriptions/{id}/providers/{namespace}/{collection}`
pub(super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let kind = call.path.to_lowercase();
    let kind = kind.split_once("/providers/").map(|(_, kind)| kind.trim_end_matches('/')).unwrap_or_default();
    world.known_subscription(call.id(0))?;
    let rows = world.store.seen_of_kind(call.id(0), kind, world.now());
    answer(world, call, rows)
}

/// The rows that `$filter` selects: only virtual machines of a flexible scale set can be selected.
fn filtered<'a>(world: &World, call: &Call, rows: Vec<&'a Row>) -> Result<Vec<&'a Row>, Problem> {
    let Some(filter) = call.get("$filter") else { return Ok(rows) };
    let set = filter.trim().strip_prefix("'virtualMachineScaleSet/id' eq '").and_then(|rest| rest.strip_suffix('\''));
    let Some(set) = set.filter(|_| call.action == "virtualMachines.list") else {
        let text = format!("The $filter '{filter}' is not supported.");
        return Err(Problem::violation(400, "InvalidParameter", text));
    };
    let id = Id::parse(set).ok_or_else(|| errors::bad("InvalidParameter", format!("'{set}' is not an ID.")))?;
    if world.store.seen(&id.key(), world.now()).is_none() {
        return Err(errors::not_found(&id));
    }
    let of = |row: &&Row| same(text(&row.fields, "/properties/virtualMachineScaleSet/id"), &id.text());
    Ok(rows.into_iter().filter(of).collect())
}

fn answer(world: &World, call: &Call, rows: Vec<&Row>) -> Result<Reply, Problem> {
    let compute = rows.first().is_some_and(|row| row.kind.starts_with("microsoft.compute/"));
    let page = page(world, call, rows)?;
    let mut values: Vec<Value> = page.items.into_iter().map(|row| world.shown(row)).collect();
    if compute {
        super::compute::expand_list(world, call, &mut values)?;
    }
    Ok(reply(&values, page.next))
}

/// A page.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

/// The requested page of a list.
pub(super) fn page<T>(world: &World, call: &Call, mut items: Vec<T>) -> Result<Page<T>, Problem> {
    let from = match call.get("$skiptoken") {
        None => 0,
        Some(token) => token.parse::<usize>().map_err(|_| {
            Problem::violation(400, "InvalidSkipToken", format!("The $skiptoken '{token}' is not valid."))
        })?,
    };
    let to = from.saturating_add(world.options.page.max(1));
    let more = items.len() > to;
    items.truncate(to);
    items.drain(..from.min(items.len()));
    let query = call.query.iter().filter(|(name, _)| name != "$skiptoken");
    let query: Vec<String> = query.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let next = more.then(|| format!("{}{}?{}&$skiptoken={to}", world.link(), call.path, query.join("&")));
    Ok(Page { items, next })
}

/// A page as an answer.
pub(super) fn reply(values: &[Value], next: Option<String>) -> Reply {
    let items = u64::try_from(values.len()).unwrap_or(u64::MAX);
    let mut body = json!({"value": values});
    if let Some(next) = next {
        super::json::set(&mut body, "/nextLink", next);
    }
    Reply { items, ..Reply::json(200, &body) }
}

/// `GET /subscriptions/{id}/providers/Microsoft.Compute`: the provider with the zones of each location.
pub(super) fn provider(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    world.known_subscription(call.id(0))?;
    let mappings: Vec<Value> = world
        .options
        .zones
        .iter()
        .map(|(location, zones)| json!({"location": display(location), "zones": zones}))
        .collect();
    let locations: Vec<String> = world.options.zones.keys().map(|location| display(location)).collect();
    let types = kinds::KINDS.iter().filter(|kind| kind.kind.starts_with("microsoft.compute/"));
    let types: Vec<Value> = types
        .map(|kind| {
            let name = kind.shown.split_once('/').map(|(_, name)| name).unwrap_or_default();
            json!({
                "resourceType": name, "locations": locations, "apiVersions": ["2025-04-01"], "zoneMappings": mappings,
            })
        })
        .collect();
    let body = json!({
        "id": format!("/subscriptions/{}/providers/Microsoft.Compute", call.id(0)), "namespace": "Microsoft.Compute",
        "resourceTypes": types, "registrationState": "Registered", "registrationPolicy": "RegistrationRequired",
    });
    Ok(Reply::json(200, &body))
}

/// `GET …/providers/Microsoft.Authorization/permissions`: the rights of the caller in a resource group, or on an object.
pub(super) fn permissions(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let excluded = [&world.options.not_actions, world.options.not_actions_of(&call.path)].concat();
    let mut roles = vec![json!({"actions": ["*"], "notActions": excluded})];
    if let Some(id) = Id::parse(&call.path).and_then(|id| id.parent()?.parent()) {
        world.store.get(&id.key()).ok_or_else(|| errors::not_found(&id))?;
        roles.push(json!({"actions": world.options.actions_on(&id.text()), "notActions": []}));
    }
    Ok(reply(&roles, None))
}

/// The display name of a location: `East US`.
fn display(location: &str) -> String {
    match location {
        "eastus" => "East US".to_owned(),
        "westeurope" => "West Europe".to_owned(),
        "westus" => "West US".to_owned(),
        other => other.to_owned(),
    }
}

/// `GET /subscriptions/{id}/resourceGroups/{name}`
pub(super) fn group(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    world.known_subscription(call.id(0))?;
    let key = super::ids::group_key(call.id(0), call.id(1));
    let name = world.groups.get(&key).ok_or_else(|| errors::no_group(call.id(1)))?;
    let id = format!("/subscriptions/{}/resourceGroups/{name}", call.id(0));
    let body = json!({
        "id": id, "name": name, "type": "Microsoft.Resources/resourceGroups", "location": "eastus",
        "properties": {"provisioningState": "Succeeded"},
    });
    Ok(Reply::json(200, &body))
}
