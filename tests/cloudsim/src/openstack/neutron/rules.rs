//! Rules of security groups.

use super::super::World;
use super::floating::over_quota;
use super::{GROUP, RULE, bad, touch};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Kind, answer, may, must};
use ipnet::IpNet;
use serde_json::{Map, Value, json};

const FIELDS: &[Field] = &[
    must("security_group_id", Kind::Uuid),
    must("direction", Kind::OneOf(&["ingress", "egress"])),
    may("ethertype", Kind::Text(40)),
    may("protocol", Kind::Any),
    may("port_range_min", Kind::Int(i64::MIN, i64::MAX)),
    may("port_range_max", Kind::Int(i64::MIN, i64::MAX)),
    may("remote_ip_prefix", Kind::Text(255)),
    may("remote_group_id", Kind::Uuid),
    may("description", Kind::Text(255)),
    may("project_id", Kind::Text(255)),
    may("tenant_id", Kind::Text(255)),
    answer("id"),
];

/// Protocol names and numbers.
const PROTOCOLS: &[(&str, u8)] = &[
    ("ah", 51),
    ("dccp", 33),
    ("egp", 8),
    ("esp", 50),
    ("gre", 47),
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pgm", 113),
    ("rsvp", 46),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
    ("udplite", 136),
    ("vrrp", 112),
];

/// The rules of a group.
pub(super) fn of<'a>(world: &'a World, group: &'a str) -> impl Iterator<Item = &'a Row> {
    world.table("security_group_rule").values().filter(move |rule| rule.text("security_group_id") == group)
}

/// `POST /v2.0/security-group-rules`: creates one rule, or all or none of a list.
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let many = call.object().and_then(|mut body| body.remove("security_group_rules"));
    let Some(Value::Array(rules)) = many else {
        let id = create_one(world, RULE.body(call, FIELDS)?)?;
        return RULE.reply(world, 201, &id);
    };
    let mut made: Vec<String> = Vec::new();
    for rule in rules {
        let body = serde_json::to_vec(&json!({"security_group_rule": rule})).unwrap_or_default();
        let one = Call { body: body.into(), ..call.clone() };
        match RULE.body(&one, FIELDS).and_then(|body| create_one(world, body)) {
            Ok(id) => made.push(id),
            Err(problem) => {
                for id in made {
                    world.remove("security_group_rule", &id);
                }
                return Err(problem);
            }
        }
    }
    let rows: Vec<&Map<String, Value>> =
        made.iter().filter_map(|id| Some(&world.row("security_group_rule", id)?.fields)).collect();
    Ok(Reply::json(201, &json!({ "security_group_rules": rows })))
}

fn create_one(world: &mut World, body: Map<String, Value>) -> Result<String, Problem> {
    let rule = normal(body)?;
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = GROUP.find(world, text("security_group_id"))?.id().to_owned();
    if !text("remote_group_id").is_empty() {
        GROUP.find(world, text("remote_group_id"))?;
    }
    let names = [
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "remote_group_id",
    ];
    let value = |fields: &Map<String, Value>, name: &str| {
        let value = fields.get(name).cloned().unwrap_or_default();
        if name == "protocol" { json!(value.as_str().map(number)) } else { value }
    };
    let same = |other: &&Row| names.iter().all(|name| value(&other.fields, name) == value(&rule, name));
    if let Some(other) = of(world, &group).find(same) {
        let text = format!("Security group rule already exists. Rule id is {}.", other.id());
        return Err(Problem::new(409, "SecurityGroupRuleExists", text));
    }
    if world.full("security_group_rule") {
        return Err(over_quota("security_group_rule"));
    }
    let project = world.who.project.clone();
    touch(world, "security_group", &group);
    Ok(make(world, &project, &group, rule))
}

/// Adds a rule without checks.
pub(in super::super) fn make(world: &mut World, project: &str, group: &str, with: Map<String, Value>) -> String {
    let stamp = super::stamp(world);
    let prefix = with.get("remote_ip_prefix").and_then(Value::as_str).and_then(|text| text.parse::<IpNet>().ok());
    let base = json!({
        "project_id": project, "tenant_id": project, "security_group_id": group, "ethertype": "IPv4", "protocol": null,
        "port_range_min": null, "port_range_max": null, "remote_ip_prefix": null, "remote_address_group_id": null,
        "normalized_cidr": prefix.map(|prefix| prefix.trunc()), "remote_group_id": null, "belongs_to_default_sg": false,
        "description": "", "created_at": stamp, "updated_at": stamp, "revision_number": 0,
    });
    world.add("security_group_rule", base, with)
}

fn number(protocol: &str) -> Option<u8> {
    let lower = protocol.to_lowercase();
    lower.parse().ok().or_else(|| PROTOCOLS.iter().find(|(name, _)| *name == lower).map(|(_, number)| *number))
}

/// The stored form of a rule, if it is valid.
fn normal(mut rule: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let wrong = |kind: &str, text: String| Err(Problem::new(400, kind, text));
    let family = rule.get("ethertype").and_then(Value::as_str).unwrap_or("IPv4").to_owned();
    let family = match family.to_lowercase().as_str() {
        "ipv4" => "IPv4",
        "ipv6" => "IPv6",
        _ => {
            let text = format!(
                "Security group rule for ethertype '{family}' not supported. Allowed values are ['IPv4', 'IPv6']."
            );
            return Err(Problem::violation(400, "SecurityGroupRuleInvalidEtherType", text));
        }
    };
    rule.insert("ethertype".to_owned(), json!(family));
    let protocol = match rule.get("protocol") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.to_lowercase()),
        Some(other) => Some(other.to_string()),
    };
    let protocol = protocol.filter(|protocol| protocol != "any");
    if let Some(protocol) = protocol.as_ref().filter(|protocol| number(protocol).is_none()) {
        let text = format!("Security group rule protocol {protocol} not supported.");
        return Err(Problem::violation(400, "SecurityGroupRuleInvalidProtocol", text));
    }
    rule.insert("protocol".to_owned(), json!(protocol));
    ports(&rule, protocol.as_deref())?;
    if let Some(prefix) = rule.get("remote_ip_prefix").and_then(Value::as_str) {
        let Some(range) = prefix_of(prefix) else {
            let text = format!("Invalid CIDR {prefix} given as IP prefix.");
            return Err(Problem::violation(400, "InvalidCIDR", text));
        };
        if range.addr().is_ipv4() != (family == "IPv4") {
            let text = format!("Conflicting value ethertype {family} for CIDR {prefix}");
            return wrong("SecurityGroupRuleParameterConflict", text);
        }
        if rule.get("remote_group_id").is_some_and(Value::is_string) {
            let text = "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.";
            return wrong("SecurityGroupMultipleRemoteEntites", text.to_owned());
        }
    }
    Ok(rule)
}

fn prefix_of(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

fn ports(rule: &Map<String, Value>, protocol: Option<&str>) -> Result<(), Problem> {
    let at = |name: &str| rule.get(name).and_then(Value::as_i64);
    let (low, high) = (at("port_range_min"), at("port_range_max"));
    if low.is_none() && high.is_none() {
        return Ok(());
    }
    let Some(protocol) = protocol else {
        let text = "Must also specify protocol if port range is given.";
        return Err(Problem::new(400, "SecurityGroupProtocolRequiredWithPorts", text));
    };
    if !matches!(number(protocol), Some(6 | 17 | 33 | 132 | 136)) {
        return if number(protocol) == Some(1) { Ok(()) } else { Err(bad("port range for a protocol without ports")) };
    }
    for port in [low, high].into_iter().flatten() {
        if !(1..=65535).contains(&port) {
            let text = format!("Invalid value for port {port}");
            return Err(Problem::violation(400, "SecurityGroupInvalidPortValue", text));
        }
    }
    if low.is_none() || high.is_none() || low > high {
        let text = "For TCP/UDP protocols, port_range_min must be <= port_range_max";
        return Err(Problem::new(400, "SecurityGroupInvalidPortRange", text));
    }
    Ok(())
}

/// `DELETE /v2.0/security-group-rules/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let group = RULE.find(world, call.id(0))?.text("security_group_id").to_owned();
    world.remove("security_group_rule", call.id(0));
    touch(world, "security_group", &group);
    Ok(Reply::empty(204))
}
