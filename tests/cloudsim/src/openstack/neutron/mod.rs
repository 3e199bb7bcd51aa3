//! Neutron: networks, subnets, ports, routers, floating IPs, security groups and tags.

pub(super) mod addresses;
pub(super) mod floating;
pub(super) mod groups;
pub(super) mod ports;
pub(super) mod routers;
pub(super) mod rules;
pub(super) mod tags;

use super::World;
use super::lists::{Listing, link, other_page, paged};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Mismatch, Why, check};
use serde_json::{Map, Value, json};

/// A kind of resource, with its errors.
pub(super) struct Kind {
    /// The list operation.
    pub(super) listing: Listing,
    /// The type of the error for a missing resource.
    missing: &'static str,
    /// The text of that error, before and after the ID.
    text: (&'static str, &'static str),
}

const fn kind(
    kind: &'static str,
    name: &'static str,
    filters: &'static [&'static str],
    missing: &'static str,
    text: (&'static str, &'static str),
) -> Kind {
    Kind { listing: Listing { kind, name, filters, shown: None }, missing, text }
}

pub(super) static NETWORK: Kind = kind(
    "network",
    "networks",
    &[
        "id",
        "name",
        "status",
        "admin_state_up",
        "shared",
        "project_id",
        "tenant_id",
        "router:external",
        "description",
        "mtu",
    ],
    "NetworkNotFound",
    ("Network ", " could not be found."),
);
pub(super) static SUBNET: Kind = kind(
    "subnet",
    "subnets",
    &[
        "id",
        "name",
        "network_id",
        "cidr",
        "ip_version",
        "gateway_ip",
        "enable_dhcp",
        "project_id",
        "tenant_id",
        "description",
    ],
    "SubnetNotFound",
    ("Subnet ", " could not be found."),
);
pub(super) static PORT: Kind = kind(
    "port",
    "ports",
    &[
        "id",
        "name",
        "network_id",
        "device_id",
        "device_owner",
        "status",
        "admin_state_up",
        "mac_address",
        "project_id",
        "tenant_id",
        "description",
        "security_groups",
        "fixed_ips",
    ],
    "PortNotFound",
    ("Port ", " could not be found."),
);
pub(super) static ROUTER: Kind = kind(
    "router",
    "routers",
    &["id", "name", "status", "admin_state_up", "project_id", "tenant_id", "description"],
    "RouterNotFound",
    ("Router ", " could not be found"),
);
pub(super) static FLOATING: Kind = Kind {
    listing: Listing {
        kind: "floatingip",
        name: "floatingips",
        filters: &[
            "id",
            "floating_ip_address",
            "floating_network_id",
            "port_id",
            "fixed_ip_address",
            "router_id",
            "status",
            "project_id",
            "tenant_id",
            "description",
        ],
        shown: Some(floating::shown),
    },
    missing: "FloatingIPNotFound",
    text: ("Floating IP ", " could not be found"),
};
pub(super) static GROUP: Kind = Kind {
    listing: Listing {
        kind: "security_group",
        name: "security_groups",
        filters: &["id", "name", "description", "project_id", "tenant_id", "shared", "stateful"],
        shown: Some(groups::shown),
    },
    missing: "SecurityGroupNotFound",
    text: ("Security group ", " does not exist"),
};
pub(super) static RULE: Kind = kind(
    "security_group_rule",
    "security_group_rules",
    &[
        "id",
        "security_group_id",
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "remote_group_id",
        "project_id",
        "tenant_id",
        "description",
    ],
    "SecurityGroupRuleNotFound",
    ("Security group rule ", " does not exist"),
);

impl Kind {
    /// The error for a missing resource with this ID.
    pub(super) fn not_found(&self, id: &str) -> Problem {
        Problem::new(404, self.missing, format!("{}{id}{}", self.text.0, self.text.1))
    }

    /// A resource that the caller can see.
    pub(super) fn find<'a>(&self, world: &'a World, id: &str) -> Result<&'a Row, Problem> {
        world.seen(self.listing.kind, id).ok_or_else(|| self.not_found(id))
    }

    /// An answer with one resource.
    pub(super) fn reply(&self, world: &World, status: u16, id: &str) -> Result<Reply, Problem> {
        let row = world.row(self.listing.kind, id).ok_or_else(|| self.not_found(id))?;
        Ok(self.listing.one(world, status, self.listing.kind, row))
    }

    /// The fields of a body, checked against their shape.
    pub(super) fn body(&self, call: &Call, fields: &[Field]) -> Result<Map<String, Value>, Problem> {
        let name = self.listing.kind;
        let Some(mut body) = (if call.body.is_empty() { Some(Map::new()) } else { call.object() }) else {
            return Err(bad("Body contains invalid data"));
        };
        let Some(Value::Object(inside)) = body.remove(name) else {
            return Err(bad(&format!("Unable to find '{name}' in request body")));
        };
        check(&inside, fields).map_err(|wrong| mismatch(&wrong, call.method_is_post()))?;
        Ok(inside)
    }

    /// The fields of a body for an existing resource, whose revision must match the one in the request.
    pub(super) fn update(&self, world: &World, call: &Call, fields: &[Field]) -> Result<Map<String, Value>, Problem> {
        let body = self.body(call, fields)?;
        let row = self.find(world, call.id(0))?;
        let revision = row.number("revision_number");
        let wanted = call.header("if-match").strip_prefix("revision_number=").and_then(|text| text.parse::<i64>().ok());
        match wanted {
            Some(wanted) if wanted != revision => {
                let text = format!("Constrained to {wanted}, but current revision is {revision}");
                Err(Problem::new(412, "RevisionNumberConstraintFailed", text))
            }
            _ => Ok(body),
        }
    }
}

/// An error that indicates a defect of the caller.
pub(super) fn bad(text: &str) -> Problem {
    Problem::violation(400, "HTTPBadRequest", text)
}

/// An error that depends on the state of the cloud.
pub(super) fn invalid(text: &str) -> Problem {
    Problem::new(400, "InvalidInput", format!("Invalid input for operation: {text}"))
}

/// A value in Python's syntax.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<String>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("'{key}': {}", python(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Number(number) => number.to_string(),
    }
}

fn mismatch(wrong: &Mismatch, create: bool) -> Problem {
    let Mismatch { field, value, why, .. } = wrong;
    let shown = python(value);
    bad(&match why {
        Why::Unknown => format!("Unrecognized attribute(s) '{field}'"),
        Why::ReadOnly if create => format!("Attribute '{field}' not allowed in POST"),
        Why::ReadOnly => format!("Cannot update read-only attribute {field}"),
        Why::Missing => format!("Failed to parse request. Required attribute '{field}' not specified"),
        Why::NotOneOf(_) => {
            format!("Invalid input for {field}. Reason: {} is not in valid_values.", value.as_str().unwrap_or(&shown))
        }
        Why::Long(most) => format!("Invalid input for {field}. Reason: {shown} exceeds maximum length of {most}."),
        Why::Type("list") => format!("Invalid input for {field}. Reason: {shown} is not a list."),
        Why::Type("UUID format") => format!("Invalid input for {field}. Reason: {shown} is not a valid UUID."),
        Why::Type("boolean") => format!("Invalid input for {field}. Reason: {shown} cannot be converted to boolean."),
        Why::Type(kind) => format!("Invalid input for {field}. Reason: {shown} is not a valid {kind}."),
        Why::Low(_) | Why::High(_) => format!("Invalid input for {field}. Reason: {shown} is not in range."),
    })
}

/// Records a change of a resource.
pub(super) fn touch(world: &mut World, kind: &'static str, id: &str) {
    let stamp = stamp(world);
    if let Some(row) = world.row_mut(kind, id) {
        let revision = row.number("revision_number");
        row.set("revision_number", revision + 1);
        row.set("updated_at", stamp);
    }
}

/// The current time in the format of Neutron.
pub(super) fn stamp(world: &World) -> String {
    world.stamp("%Y-%m-%dT%H:%M:%SZ")
}

/// Changes fields; the revision increases if a value has changed.
pub(super) fn change(world: &mut World, kind: &'static str, id: &str, fields: Map<String, Value>) {
    let Some(row) = world.row_mut(kind, id) else { return };
    let different = fields.iter().any(|(name, value)| row.fields.get(name) != Some(value));
    row.fields.extend(fields);
    if different {
        touch(world, kind, id);
    }
}

/// Answers a list request of Neutron.
pub(super) fn list(kind: &Kind, world: &World, call: &Call) -> Result<Reply, Problem> {
    let listing = &kind.listing;
    if let Some(unknown) = listing.unknown(call) {
        return Err(bad(&format!("['{unknown}'] is invalid attribute for filtering")));
    }
    for name in ["admin_state_up", "shared", "router:external", "enable_dhcp", "stateful"] {
        let wrong = call.all(name).find(|text| !matches!(text.to_lowercase().as_str(), "true" | "false"));
        if let Some(wrong) = wrong {
            return Err(Problem { violation: true, ..invalid(&format!("'{wrong}' cannot be converted to boolean.")) });
        }
    }
    if call.all("sort_key").count() != call.all("sort_dir").count() {
        return Err(bad("The number of sort_keys and sort_dirs must be same"));
    }
    let limit = match call.get("limit") {
        None => None,
        Some(text) => Some(text.parse::<usize>().map_err(|_| {
            let text = format!("Bad limit request: Limit must be an integer 0 or greater and not '{text}'.");
            Problem::violation(400, "BadRequest", text)
        })?),
    };
    // 0 means an empty list.
    let mut rows = if limit == Some(0) { Vec::new() } else { matching(kind, world, call)? };
    if call.get("sort_key").is_none() {
        rows.sort_by(|one, other| one.id().cmp(other.id()));
    }
    let (rows, full) = paged(rows, call, limit).map_err(|marker| kind.not_found(&marker.message))?;
    let url = |marker: &str| other_page(&world.url, call, |_| true, marker);
    let mut links: Vec<Value> = Vec::new();
    if let Some(last) = rows.last().filter(|_| full) {
        links.push(link("next", &url(last.id())));
    }
    if let Some(first) = rows.first().filter(|_| limit.is_some()) {
        links.push(link("previous", &format!("{}&page_reverse=True", url(first.id()))));
    }
    let links = if links.is_empty() { None } else { Some(Value::Array(links)) };
    Ok(listing.reply(world, call, &rows, links))
}

/// The rows that a query selects. Ports are also filtered by the pairs in `fixed_ips`.
fn matching<'a>(kind: &Kind, world: &'a World, call: &Call) -> Result<Vec<&'a Row>, Problem> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for text in call.all("fixed_ips") {
        match text.split_once('=') {
            Some((name @ ("ip_address" | "subnet_id"), value)) => pairs.push((name, value)),
            _ => {
                let problem = invalid(&format!("'{text}' is not of the form <key>=[value]."));
                return Err(Problem { violation: true, ..problem });
            }
        }
    }
    let table = world.table(kind.listing.kind).values();
    if pairs.is_empty() {
        return Ok(kind.listing.rows(world, call, table));
    }
    let mut call = call.clone();
    call.query.retain(|(name, _)| name != "fixed_ips");
    let mut rows = kind.listing.rows(world, &call, table);
    let of = |row: &Row, name: &str| {
        let has = |value: &str| row.list("fixed_ips").iter().any(|fixed| fixed.get(name).is_some_and(|is| is == value));
        let mut wanted = pairs.iter().filter(|(key, _)| *key == name).peekable();
        wanted.peek().is_none() || wanted.any(|(_, value)| has(value))
    };
    rows.retain(|row| of(row, "ip_address") && of(row, "subnet_id"));
    Ok(rows)
}

/// Extensions: alias, name, date.
pub(super) const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("allowed-address-pairs", "Allowed Address Pairs", "2013-07-23T10:00:00-00:00"),
    ("binding", "Port Binding", "2014-02-03T10:00:00-00:00"),
    ("external-net", "Neutron external network", "2013-01-14T10:00:00-00:00"),
    ("extraroute", "Neutron Extra Route", "2013-02-01T10:00:00-00:00"),
    ("extraroute-atomic", "Atomically add/remove extra routes", "2019-07-10T00:00:00+00:00"),
    ("filter-validation", "Filter parameters validation", "2018-07-04T10:00:00-00:00"),
    ("fip-port-details", "Floating IP Port Details Extension", "2018-04-09T10:00:00-00:00"),
    ("pagination", "Pagination support", "2016-06-12T00:00:00-00:00"),
    ("port-security", "Port Security", "2012-07-23T10:00:00-00:00"),
    ("revision-if-match", "If-Match constraints based on revision_number", "2016-12-11T00:00:00-00:00"),
    ("router", "Neutron L3 Router", "2012-07-20T10:00:00-00:00"),
    ("security-group", "security-group", "2012-10-05T10:00:00-00:00"),
    ("security-groups-normalized-cidr", "Normalized CIDR field for security group rules", "2020-07-28T10:00:00-00:00"),
    ("standard-attr-description", "standard-attr-description", "2016-02-10T10:00:00-00:00"),
    ("standard-attr-revisions", "Resource revision numbers", "2016-04-11T10:00:00-00:00"),
    ("standard-attr-tag", "Tag support for resources with standard attribute", "2017-01-01T00:00:00-00:00"),
    ("standard-attr-timestamp", "Resource timestamps", "2016-09-12T10:00:00-00:00"),
    ("trunk", "Trunk Extension", "2016-01-01T10:00:00-00:00"),
    ("trunk-details", "Trunk port details", "2016-01-01T10:00:00-00:00"),
];

fn extension((alias, name, updated): &(&str, &str, &str)) -> Value {
    json!({"alias": alias, "name": name, "description": name, "updated": updated, "links": []})
}

/// `GET /`
pub(super) fn versions(world: &mut World, _: &Call) -> Result<Reply, Problem> {
    let links = json!([{"rel": "self", "href": format!("{}/network/v2.0/", world.url)}]);
    Ok(Reply::json(200, &json!({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})))
}

/// `GET /v2.0/extensions`
pub(super) fn extensions(world: &mut World, _: &Call) -> Result<Reply, Problem> {
    let on = |entry: &&(&str, &str, &str)| world.options.extensions.iter().any(|alias| alias == entry.0);
    let found: Vec<Value> = EXTENSIONS.iter().filter(on).map(extension).collect();
    Ok(Reply::json(200, &json!({ "extensions": found })))
}

macro_rules! reads {
    ($($list:ident, $get:ident, $kind:ident;)*) => {
        $(
            pub(super) fn $list(world: &mut World, call: &Call) -> Result<Reply, Problem> {
                list(&$kind, world, call)
            }
            pub(super) fn $get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
                let row = $kind.find(world, call.id(0))?;
                Ok($kind.listing.one(world, 200, $kind.listing.kind, row))
            }
        )*
    };
}

reads! {
    list_networks, get_network, NETWORK;
    list_subnets, get_subnet, SUBNET;
    list_ports, get_port, PORT;
    list_routers, get_router, ROUTER;
    list_floating, get_floating, FLOATING;
    list_groups, get_group, GROUP;
    list_rules, get_rule, RULE;
}
