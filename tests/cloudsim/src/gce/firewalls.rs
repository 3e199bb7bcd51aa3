//! Firewall rules of a network.

use super::errors;
use super::kinds::Fields;
use super::places::Spot;
use super::verbs::{default, is_name, refer, text, texts};
use super::world::{World, inner};
use crate::core::rest::Problem;
use crate::core::rows::Row;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The maximum length of each list of a rule. Source: the quotas page of VPC networks.
const MOST: [(&str, usize); 4] =
    [("sourceRanges", 5000), ("destinationRanges", 5000), ("sourceTags", 30), ("targetTags", 70)];

/// Checks a new rule.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    default(fields, "network", "global/networks/default");
    let network = refer(world, spot, fields, "network", "networks")?;
    world.may("compute.networks.updatePolicy", &network)?;
    default(fields, "direction", "INGRESS");
    default(fields, "priority", 1000);
    default(fields, "disabled", false);
    default(fields, "logConfig", json!({"enable": false}));
    check(fields)
}

/// Checks a changed rule.
pub(super) fn change(world: &mut World, spot: &Spot, old: &Row, fields: &mut Fields) -> Result<(), Problem> {
    make(world, spot, fields)?;
    for name in ["network", "direction"] {
        if text(fields, name) != old.text(name) {
            let text_ = format!("The {name} of a firewall cannot be changed.");
            return Err(errors::invalid(&format!("resource.{name}"), text(fields, name), &text_));
        }
    }
    Ok(())
}

fn check(fields: &mut Fields) -> Result<(), Problem> {
    let empty = |name: &str| fields.get(name).and_then(Value::as_array).is_none_or(Vec::is_empty);
    match (empty("allowed"), empty("denied")) {
        (true, true) => return Err(errors::required("resource.allowed")),
        (false, false) => return Err(errors::bad_request("Only one of allowed and denied can be specified.")),
        _ => {}
    }
    if text(fields, "direction") == "INGRESS"
        && ["sourceRanges", "sourceTags", "sourceServiceAccounts"].iter().all(|name| empty(name))
    {
        fields.insert("sourceRanges".to_owned(), json!(["0.0.0.0/0"]));
    }
    let priority = fields.get("priority").and_then(Value::as_i64).unwrap_or(-1);
    if !(0..=65535).contains(&priority) {
        let text = "Must be greater than or equal to 0 and less than or equal to 65535.";
        return Err(errors::invalid("resource.priority", &priority.to_string(), text));
    }
    for (list, most) in MOST {
        let given = texts(fields, list).len();
        if given > most {
            // unverified: the text.
            let text = format!("At most {most} can be specified.");
            return Err(errors::invalid(&format!("resource.{list}"), &given.to_string(), &text));
        }
    }
    let all: Vec<String> = ["sourceRanges", "destinationRanges"].iter().flat_map(|list| texts(fields, list)).collect();
    if all.iter().any(|range| range.contains(':')) && all.iter().any(|range| !range.contains(':')) {
        // unverified: the text. A rule applies to one address family.
        let text = "IPv4 and IPv6 ranges cannot be mixed in a firewall.";
        return Err(errors::invalid("resource.sourceRanges", &all.join(","), text));
    }
    for list in ["sourceRanges", "destinationRanges"] {
        for (number, range) in texts(fields, list).iter().enumerate() {
            if !is_range(range) {
                let field = format!("resource.{list}[{number}]");
                return Err(errors::invalid(&field, range, "Must be a valid IPv4 or IPv6 address range."));
            }
        }
    }
    for list in ["sourceTags", "targetTags"] {
        if let Some(tag) = texts(fields, list).iter().find(|tag| !is_name(tag)) {
            let text = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'";
            return Err(errors::invalid(&format!("resource.{list}"), tag, text));
        }
    }
    for list in ["allowed", "denied"] {
        entries(fields, list)?;
    }
    Ok(())
}

fn entries(fields: &Fields, list: &str) -> Result<(), Problem> {
    let entries = fields.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, entry) in entries.iter().enumerate() {
        let protocol = inner(entry, "IPProtocol");
        if protocol.is_empty() {
            return Err(errors::required(&format!("resource.{list}[{number}].IPProtocol")));
        }
        let ports = texts(entry.as_object().unwrap_or(&Fields::new()), "ports");
        let takes = matches!(protocol.to_lowercase().as_str(), "tcp" | "udp" | "sctp" | "6" | "17" | "132");
        let wrong = ports.iter().find(|port| !takes || !is_port(port));
        if let Some(port) = wrong {
            let field = format!("resource.{list}[{number}].ports");
            return Err(errors::invalid(
                &field,
                port,
                "Must be a port or a range of ports of a protocol that has them.",
            ));
        }
    }
    Ok(())
}

fn is_port(text: &str) -> bool {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(from), Ok(to)) if from <= to)
}

/// Whether a text is an address, or a range without host bits.
fn is_range(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || text.parse::<IpNet>().is_ok_and(|range| range.trunc() == range)
}
