//! Whose an object is. Pure.
//!
//! Objects on a shared load balancer are a Service's by their names, public IP addresses by their tags. A Service may
//! share the frontend of another one: by the address or the name of its public IP address, or by its private address.

use ccm_provider::address::parse_ip;
use serde_json::Value;

use super::json::{self, same};
use super::names::{Family, is_of, without_internal};
use super::observed::Observed;
use super::tags;
use super::wanted::Item;
use crate::annotations::Scheme;

/// What a frontend is to a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frontend {
    /// It has the name of the Service.
    Own,
    /// Another one's, which it uses too.
    Shared,
    Foreign,
}

/// The claim of a Service to a frontend of a load balancer of its kind.
pub(crate) fn frontend(observed: &Observed, item: &Item, frontend: &Value) -> Frontend {
    if item.names.own(json::name(frontend)) {
        return Frontend::Own;
    }
    let is_shared = match item.scheme {
        Scheme::Internal => {
            let address = json::property(frontend, "privateIPAddress");
            !address.is_empty() && item.addresses.values().any(|wanted| is_ip(wanted, address))
        }
        // Nearly all: without it, hundreds of Services would look through all addresses for each frontend.
        Scheme::External if item.addresses.is_empty() && item.public_ips.is_empty() => false,
        Scheme::External => {
            let id = json::reference(frontend, "publicIPAddress");
            let group = observed.public_ips_of(&item.public_ip_group);
            let used = group.iter().find(|ip| same(json::text(ip, &["id"]), id));
            used.is_some_and(|ip| requests(item, ip))
        }
    };
    if is_shared { Frontend::Shared } else { Frontend::Foreign }
}

/// Whether a Service requests a public IP address, by its address or its name.
pub(crate) fn requests(item: &Item, ip: &Value) -> bool {
    let (address, family) = (json::property(ip, "ipAddress"), family_of(ip));
    let by_address = item.addresses.get(&family).is_some_and(|wanted| !address.is_empty() && is_ip(wanted, address));
    let by_name = item.public_ips.get(&family).is_some_and(|wanted| same(&wanted.text, json::name(ip)));
    by_address || by_name
}

/// Whether two texts are one address. IPv6 has several notations.
pub(crate) fn is_ip(one: &str, other: &str) -> bool {
    let parsed = |text: &str| Some(text).filter(|text| text.contains(':')).and_then(parse_ip);
    same(one, other) || parsed(one).is_some_and(|ip| parsed(other) == Some(ip))
}

/// Whether the tag of a public IP address names a Service of the cluster.
pub(crate) fn is_own(cluster: &str, item: &Item, ip: &Value) -> bool {
    let of_cluster = tags::get(ip, &tags::CLUSTER);
    // The older program set no tag of the cluster.
    (of_cluster.is_empty() || same(of_cluster, cluster))
        && tags::services(tags::get(ip, &tags::SERVICE)).iter().any(|service| same(service, &item.key))
}

/// The family of a public IP address.
pub(crate) fn family_of(ip: &Value) -> Family {
    if same(json::property(ip, "publicIPAddressVersion"), "IPv6") { Family::V6 } else { Family::V4 }
}

/// The family of a frontend of a Service.
pub(crate) fn family_of_frontend(observed: &Observed, item: &Item, frontend: &Value) -> Family {
    let known = observed.address(frontend).map(Family::of);
    let public = || observed.public_ip(json::reference(frontend, "publicIPAddress")).map(family_of);
    let version = || match json::property(frontend, "privateIPAddressVersion") {
        text if same(text, "IPv6") => Some(Family::V6),
        text if same(text, "IPv4") => Some(Family::V4),
        _ => None,
    };
    known.or_else(public).or_else(version).unwrap_or_else(|| match item.families[..] {
        [one] => one,
        _ if json::name(frontend).ends_with("-IPv6") => Family::V6,
        _ => Family::V4,
    })
}

/// Whether a frontend of a load balancer may have a private link service: a public one needs rules without floating IP.
pub(crate) fn may_have_link(balancer: &Value, frontend: &Value) -> bool {
    let is_of = |rule: &&Value| same(json::reference(rule, "frontendIPConfiguration"), json::text(frontend, &["id"]));
    let mut rules = json::items(balancer, "loadBalancingRules").iter().filter(is_of);
    without_internal(json::name(balancer)).1
        || rules.any(|rule| json::at(rule, &["properties", "enableFloatingIP"]) != true)
}

/// The IDs of the frontends of a load balancer to which the rules of a Service refer.
pub(crate) fn served<'v>(item: &Item, balancer: &'v Value) -> Vec<&'v str> {
    let rules = json::items(balancer, "loadBalancingRules").iter().filter(|rule| item.names.own(json::name(rule)));
    rules.map(|rule| json::reference(rule, "frontendIPConfiguration")).collect()
}

/// What else uses a frontend of a load balancer, besides the rules of the Service whose names begin with `base`.
pub(crate) fn other_use(balancer: &Value, id: &str, base: &str) -> Option<String> {
    let refers = |object: &&Value| same(json::reference(object, "frontendIPConfiguration"), id);
    let rules = json::items(balancer, "loadBalancingRules").iter();
    let rule = rules.filter(refers).find(|rule| !is_of(json::name(rule), base));
    if let Some(rule) = rule {
        return Some(format!("the load balancing rule {} of another Service", json::name(rule)));
    }
    let of = |outbound: &&Value| {
        let frontends = json::items(outbound, "frontendIPConfigurations").iter();
        frontends.into_iter().any(|frontend| same(json::text(frontend, &["id"]), id))
    };
    let outbound = json::items(balancer, "outboundRules").iter().find(of);
    let nat = json::items(balancer, "inboundNatRules").iter().find(refers);
    let pool = json::items(balancer, "inboundNatPools").iter().find(refers);
    let used = |what: &str, object: Option<&Value>| object.map(|object| format!("the {what} {}", json::name(object)));
    used("outbound rule", outbound).or_else(|| used("inbound NAT rule", nat)).or_else(|| used("inbound NAT pool", pool))
}

/// Whether a pool with the name of a Service's own is that: a rule of the Service refers to it, or it has only nodes. Users
/// may have made one with this name.
pub(crate) fn is_own_pool(observed: &Observed, item: &Item, balancer: &Value, pool: &Value) -> bool {
    let id = json::text(pool, &["id"]);
    let refers =
        |rule: &Value| item.names.own(json::name(rule)) && same(json::reference(rule, "backendAddressPool"), id);
    let nodes = observed.cluster.as_ref().map(|facts| &facts.nodes);
    let is_node = |address: &Value| {
        let ip = parse_ip(json::property(address, "ipAddress"));
        ip.zip(nodes).is_some_and(|(ip, nodes)| nodes.contains(&ip))
    };
    let members = json::items(pool, "loadBalancerBackendAddresses");
    json::items(balancer, "loadBalancingRules").iter().any(refers) || !members.is_empty() && members.iter().all(is_node)
}

/// Whether a name is that of an object of some Service: `a` and most of a UID.
pub(crate) fn is_of_some_service(name: &str) -> bool {
    let digits = name.strip_prefix('a').and_then(|rest| rest.get(..31));
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}
