//! Network security groups.

use super::errors;
use super::ids::Id;
use super::json::{at, default, each, list, number, set, text, texts};
use super::kinds::Ref;
use super::world::World;
use crate::core::rest::Problem;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The more usual ones of the service tags that the documentation of virtual networks lists.
const TAGS: &[&str] = &[
    "ApiManagement",
    "AppService",
    "AzureActiveDirectory",
    "AzureBackup",
    "AzureCloud",
    "AzureContainerRegistry",
    "AzureCosmosDB",
    "AzureDevOps",
    "AzureFrontDoor",
    "AzureKeyVault",
    "AzureLoadBalancer",
    "AzureMonitor",
    "AzureResourceManager",
    "AzureTrafficManager",
    "EventHub",
    "GatewayManager",
    "Internet",
    "LogicApps",
    "ServiceBus",
    "Sql",
    "Storage",
    "VirtualNetwork",
];

/// The application security groups of the rules.
pub(super) fn refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let mut found = Vec::new();
    for rule in list(fields, "/properties/securityRules") {
        let user = id.child("securityRules", text(rule, "/name")).text();
        for name in ["sourceApplicationSecurityGroups", "destinationApplicationSecurityGroups"] {
            let groups = list(rule, &format!("/properties/{name}")).iter();
            found.extend(groups.map(|group| Ref {
                target: text(group, "/id").to_lowercase(),
                user: user.clone(),
                address: None,
            }));
        }
    }
    found
}

pub(super) fn check(world: &mut World, id: &Id, _: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    let limits = world.options.limits;
    for rule in each(fields, "/properties/securityRules") {
        for list in ["sourceAddressPrefixes", "destinationAddressPrefixes", "sourcePortRanges", "destinationPortRanges"]
        {
            default(rule, &format!("/properties/{list}"), json!([]));
        }
    }
    let rules = list(fields, "/properties/securityRules");
    if rules.len() > limits.security_rules {
        let text = format!("A security group cannot have more than {} security rules.", limits.security_rules);
        return Err(errors::bad("SecurityRuleCountLimitReached", text));
    }
    let (mut names, mut priorities) = (BTreeSet::new(), BTreeMap::new());
    for rule in rules {
        let name = text(rule, "/name");
        if !names.insert(name.to_lowercase()) {
            return Err(super::load_balancers::twice(id, name));
        }
        self::rule(id, rule)?;
        let slot = (number(rule, "/properties/priority"), text(rule, "/properties/direction").to_owned());
        if let Some(other) = priorities.insert(slot, name) {
            let text = format!(
                "Security rule {other} conflicts with rule {name}. Rules cannot have the same Priority and Direction."
            );
            return Err(errors::bad("SecurityRuleConflict", text));
        }
    }
    for (one, many, what) in [
        ("sourceAddressPrefix", "sourceAddressPrefixes", "SourceAddressPrefixes"),
        ("destinationAddressPrefix", "destinationAddressPrefixes", "DestinationAddressPrefixes"),
    ] {
        let count: usize = rules.iter().map(|rule| prefixes(rule, one, many).len()).sum();
        if count > limits.security_prefixes {
            let text = format!(
                "A security group cannot have more than {} {what} across all of its rules; {} has {count}.",
                limits.security_prefixes,
                id.text()
            );
            return Err(errors::bad("SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached", text));
        }
    }
    Ok(())
}

fn prefixes<'a>(rule: &'a Value, one: &str, many: &str) -> Vec<&'a str> {
    let single = text(rule, &format!("/properties/{one}"));
    let many = texts(rule, &format!("/properties/{many}"));
    std::iter::once(single).filter(|single| !single.is_empty()).chain(many).collect()
}

fn rule(id: &Id, rule: &Value) -> Result<(), Problem> {
    let name = text(rule, "/name");
    let user = id.child("securityRules", name).text();
    for required in ["protocol", "access", "direction"] {
        if text(rule, &format!("/properties/{required}")).is_empty() {
            let text =
                format!("Required security rule parameter {required} is missing for security rule with Id: {user}.");
            return Err(Problem::violation(400, "SecurityRuleParameterIsMissing", text));
        }
    }
    let priority = number(rule, "/properties/priority").unwrap_or_default();
    if !(100..=4096).contains(&priority) {
        let text = format!(
            "Security rule has invalid Priority. Value provided: {priority} Allowed range 100-4096. Security rule with Id: {user}."
        );
        return Err(errors::bad("SecurityRuleInvalidPriority", text));
    }
    let missing = |what: &str| {
        let text = format!("Required security rule parameter {what} is missing for security rule with Id: {user}.");
        Err(errors::bad("SecurityRuleParameterIsMissing", text))
    };
    for (one, many, groups) in [
        ("sourceAddressPrefix", "sourceAddressPrefixes", "sourceApplicationSecurityGroups"),
        ("destinationAddressPrefix", "destinationAddressPrefixes", "destinationApplicationSecurityGroups"),
    ] {
        let given = prefixes(rule, one, many);
        let groups = list(rule, &format!("/properties/{groups}"));
        if given.is_empty() && groups.is_empty() {
            return missing(one);
        }
        let both = !text(rule, &format!("/properties/{one}")).is_empty()
            && !list(rule, &format!("/properties/{many}")).is_empty();
        if both || (!given.is_empty() && !groups.is_empty()) {
            let text = format!("Security rule parameters {one} and {many} cannot be specified together. Rule: {user}.");
            return Err(errors::bad("SecurityRuleParameterConflict", text));
        }
        addresses(&user, one, &given)?;
    }
    for (one, many) in [("sourcePortRange", "sourcePortRanges"), ("destinationPortRange", "destinationPortRanges")] {
        let given = prefixes(rule, one, many);
        if given.is_empty() {
            return missing(one);
        }
        if let Some(wrong) = given.iter().find(|range| !is_port_range(range)) {
            let text = format!(
                "Security rule has invalid Port range. Value provided: {wrong}. Allowed range 0-65535. Security rule with Id: {user}."
            );
            return Err(errors::bad("SecurityRuleInvalidPortRange", text));
        }
    }
    Ok(())
}

/// Prefixes must be addresses, ranges or tags; ranges of one rule must not overlap, and be of one family.
fn addresses(user: &str, parameter: &str, given: &[&str]) -> Result<(), Problem> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for prefix in given {
        let range = prefix.parse::<IpNet>().ok();
        let range = range.or_else(|| prefix.parse::<std::net::IpAddr>().ok().map(IpNet::from));
        let tag = *prefix == "*" || is_tag(prefix);
        match range {
            None if tag => {}
            Some(range) => {
                if let Some(other) = ranges.iter().find(|other| other.contains(&range) || range.contains(*other)) {
                    let parameter = if parameter.starts_with("source") { "Source" } else { "Destination" };
                    let text = format!(
                        "Security rule parameter {parameter}AddressPrefix for rule with Id {user} contains overlapping subnets [{other}, {range}], which is not permitted."
                    );
                    return Err(errors::bad("OverlappingSubnetsNotPermittedInSecurityRule", text));
                }
                if ranges.first().is_some_and(|other| other.addr().is_ipv6() != range.addr().is_ipv6()) {
                    // unverified: the code.
                    let text = format!("Security rule {user} has address prefixes of both IP versions.");
                    return Err(errors::bad("SecurityRuleCannotMixIPVersions", text));
                }
                ranges.push(range);
            }
            None => {
                let text = format!("Security rule {user} has invalid Address prefix. Value provided: {prefix}");
                return Err(errors::bad("SecurityRuleInvalidAddressPrefix", text));
            }
        }
    }
    Ok(())
}

/// Whether a word is one of the service tags, or one of a region: `Storage.WestUS`.
fn is_tag(text: &str) -> bool {
    let (name, region) = text.split_once('.').unwrap_or((text, "-"));
    TAGS.contains(&name) && !region.is_empty()
}

fn is_port_range(text: &str) -> bool {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok();
    text == "*" || port(from).zip(port(to)).is_some_and(|(from, to)| from <= to)
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some((_, user, _)) = world.store.users(&id.key()).next() else { return Ok(()) };
    let text = format!(
        "Network security group {} cannot be deleted because it is in use by the following resources: {user}. In order to delete the Network security group, remove the association with the resource(s).",
        id.text()
    );
    Err(errors::bad("InUseNetworkSecurityGroupCannotBeDeleted", text))
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    let defaults = [
        ("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
        ("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
        ("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
        ("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
        ("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
        ("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
    ];
    let etag = at(value, "/etag").clone();
    let rules = defaults.map(|(name, priority, direction, access, source, destination)| {
        json!({
            "name": name, "id": id.child("defaultSecurityRules", name).text(), "etag": etag,
            "type": "Microsoft.Network/networkSecurityGroups/defaultSecurityRules",
            "properties": {
                "provisioningState": "Succeeded", "protocol": "*", "access": access, "priority": priority,
                "direction": direction, "sourcePortRange": "*", "destinationPortRange": "*", "sourceAddressPrefix": source,
                "destinationAddressPrefix": destination, "sourceAddressPrefixes": [], "destinationAddressPrefixes": [],
                "sourcePortRanges": [], "destinationPortRanges": [],
            },
        })
    });
    set(value, "/properties/defaultSecurityRules", json!(rules));
    default(value, "/properties/securityRules", json!([]));
    let of = |part: &str| -> Vec<Value> {
        let users = world.store.users(&id.key()).filter(|(key, ..)| key.contains(part));
        users.map(|(_, user, _)| json!({ "id": user })).collect()
    };
    for (name, part) in [("subnets", "/subnets/"), ("networkInterfaces", "/networkinterfaces/")] {
        let users = of(part);
        if !users.is_empty() {
            set(value, &format!("/properties/{name}"), users);
        }
    }
}
