//! Nova: servers and flavors, read only.

use super::World;
use super::lists::{Listing, link, other_page, paged};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use regex::RegexBuilder;
use serde_json::{Map, Value, json};

const SERVERS: Listing = Listing { kind: "server", name: "servers", filters: &[], shown: None };

/// Filters that Nova applies only for administrators, and filters that are not simulated.
const IGNORED: &[&str] = &["project_id", "tenant_id", "host", "deleted", "user_id", "uuid", "node", "terminated_at"];
/// Filters that are simulated.
const FILTERS: &[&str] = &["name", "status", "limit", "marker", "all_tenants"];

/// The microversion of a call, the part after `2.`.
fn version(world: &World, call: &Call) -> Result<u32, Problem> {
    let text = call
        .header("openstack-api-version")
        .strip_prefix("compute ")
        .map_or_else(|| call.header("x-openstack-nova-api-version"), str::trim);
    let highest = world.options.compute_version;
    match text {
        "" => return Ok(1),
        "latest" => return Ok(highest),
        _ => {}
    }
    let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some((major, minor)): Option<(u32, u32)> = parts else {
        let text = format!("API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum.");
        return Err(Problem::violation(400, "badRequest", text));
    };
    if major == 2 && (1..=highest).contains(&minor) {
        return Ok(minor);
    }
    let text = format!("Version {text} is not supported by the API. Minimum is 2.1 and maximum is 2.{highest}.");
    Err(Problem::new(406, "computeFault", text))
}

/// The version headers of an answer.
pub(super) fn version_headers(world: &World, call: &Call, reply: &mut Reply) {
    if let Ok(minor) = version(world, call) {
        reply.headers.push(("openstack-api-version", format!("compute 2.{minor}")));
        reply.headers.push(("x-openstack-nova-api-version", format!("2.{minor}")));
        reply.headers.push(("vary", "OpenStack-API-Version".to_owned()));
    }
}

/// `GET /servers/detail`
pub(super) fn list_servers(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let version = version(world, call)?;
    let violation = unknown(call, version)?;
    if call.get("all_tenants").is_some() && !world.who.admin {
        let text = "Policy doesn't allow os_compute_api:servers:detail:get_all_tenants to be performed.";
        return Err(Problem::new(403, "forbidden", text));
    }
    let bad = |name: &str, value: &str, why: &str| {
        Problem::violation(
            400,
            "badRequest",
            format!("Invalid input for query parameters {name}. Value: {value}. {why}"),
        )
    };
    let limit = match call.get("limit") {
        None => None,
        Some(text) => Some(
            text.parse::<usize>().map_err(|_| bad("limit", text, &format!("'{text}' does not match '^[0-9]*$'")))?,
        ),
    };
    let name = match call.get("name") {
        None => None,
        Some(text) => {
            let regex = RegexBuilder::new(text).case_insensitive(!world.options.compute_is_case_sensitive).build();
            Some(regex.map_err(|_| bad("name", text, &format!("'{text}' is not a 'regex'")))?)
        }
    };
    let status = call.get("status");
    let fits = |row: &&Row| {
        name.as_ref().is_none_or(|name| name.is_match(row.text("name")))
            && status.is_none_or(|status| row.text("status") == status)
            && (world.who.admin && call.get("all_tenants").is_some() || row.text("tenant_id") == world.who.project)
            && world.options.lag.known("server", row.made, world.now())
    };
    let mut rows: Vec<&Row> = world.table("server").values().filter(fits).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
    let most = limit.unwrap_or(usize::MAX).min(world.options.compute_page);
    let (rows, full) = paged(rows, call, Some(most))
        .map_err(|marker| Problem::new(400, "badRequest", format!("marker [{}] not found", marker.message)))?;
    let servers: Value = rows.iter().map(|row| shown(world, row, version)).collect();
    let mut body = Map::from_iter([("servers".to_owned(), servers)]);
    if let Some(last) = rows.last().filter(|_| full) {
        let next = other_page(&world.url, call, |_| true, last.id());
        body.insert("servers_links".to_owned(), json!([link("next", &next)]));
    }
    let items = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    Ok(Reply { items, violation, ..Reply::json(200, &body) })
}

/// A parameter of the query that is not simulated: Nova rejects unknown ones since 2.75, and ignored them before.
fn unknown(call: &Call, version: u32) -> Result<Option<String>, Problem> {
    let known = |name: &str| FILTERS.contains(&name) || IGNORED.contains(&name);
    let Some((name, _)) = call.query.iter().find(|(name, _)| !known(name)) else { return Ok(None) };
    if version < 75 {
        return Ok(Some(format!("filter {name} is ignored")));
    }
    Err(Problem::violation(400, "badRequest", format!("'{name}' does not match any of the regexes: '^_'")))
}

/// `GET /servers/{id}`
pub(super) fn get_server(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let version = version(world, call)?;
    Ok(Reply::json(200, &json!({"server": shown(world, server(world, call.id(0))?, version)})))
}

/// `DELETE /servers/{id}`: in a real Nova, the server is deleted after a moment.
pub(super) fn delete_server(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    version(world, call)?;
    let id = server(world, call.id(0))?.id().to_owned();
    world.delete_server(&id);
    Ok(Reply::empty(204))
}

/// A server that the caller can see.
fn server<'a>(world: &'a World, id: &str) -> Result<&'a Row, Problem> {
    let mine = |row: &&Row| {
        (world.who.admin || row.text("tenant_id") == world.who.project)
            && world.options.lag.known("server", row.made, world.now())
    };
    let row = world.row(SERVERS.kind, id).filter(mine);
    row.ok_or_else(|| not_found(&format!("Instance {id} could not be found.")))
}

/// `GET /flavors/{id}`
pub(super) fn get_flavor(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let version = version(world, call)?;
    let id = call.id(0);
    let row = world.row("flavor", id).ok_or_else(|| not_found(&format!("Flavor {id} could not be found.")))?;
    Ok(Reply::json(200, &json!({"flavor": shown_flavor(world, row, version)})))
}

/// `GET /flavors/detail`, without its filters and pages.
pub(super) fn list_flavors(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let version = version(world, call)?;
    let flavors: Value = world.table("flavor").values().map(|row| shown_flavor(world, row, version)).collect();
    Ok(Reply::json(200, &json!({ "flavors": flavors })))
}

fn shown_flavor(world: &World, row: &Row, version: u32) -> Value {
    let mut fields = row.fields.clone();
    fields.insert("links".to_owned(), links(world, "flavors", row.id()));
    if version >= 55 {
        fields.insert("description".to_owned(), Value::Null);
    }
    if version >= 61 {
        fields.insert("extra_specs".to_owned(), json!({}));
    }
    Value::Object(fields)
}

fn not_found(text: &str) -> Problem {
    Problem::new(404, "itemNotFound", text)
}

fn links(world: &World, kind: &str, id: &str) -> Value {
    let url = &world.url;
    json!([
        link("self", &format!("{url}/compute/v2.1/{kind}/{id}")),
        link("bookmark", &format!("{url}/compute/{kind}/{id}"))
    ])
}

/// A server in the format of a microversion.
fn shown(world: &World, row: &Row, version: u32) -> Value {
    let mut fields = row.shown();
    let flavor = row.fields.get("_flavor").unwrap_or(&Value::Null);
    let id = flavor.get("id").and_then(Value::as_str).unwrap_or_default();
    let flavor = if version < 47 {
        json!({"id": id, "links": [link("bookmark", &format!("{}/compute/flavors/{id}", world.url))]})
    } else {
        json!({
            "vcpus": flavor.get("vcpus"), "ram": flavor.get("ram"), "disk": flavor.get("disk"), "ephemeral": 0, "swap": 0,
            "original_name": flavor.get("name"), "extra_specs": {},
        })
    };
    fields.insert("flavor".to_owned(), flavor);
    fields.insert("links".to_owned(), links(world, "servers", row.id()));
    let since: [(u32, &str, Value); 5] = [
        (9, "locked", json!(false)),
        (19, "description", json!(row.text("name"))),
        (26, "tags", json!([])),
        (63, "trusted_image_certificates", Value::Null),
        (71, "server_groups", json!([])),
    ];
    fields.extend(
        since.into_iter().filter(|(from, ..)| version >= *from).map(|(_, name, value)| (name.to_owned(), value)),
    );
    if !world.who.admin {
        fields.retain(|name, _| !name.starts_with("OS-EXT-SRV-ATTR:"));
    }
    Value::Object(fields)
}
