//! The annotations of Services, each defined once in [`TABLE`]; those of single ports are in [`ports`].
//!
//! Upstream: `pkg/consts` of cloud-provider-azure. A boolean is `true` in any case; any other text is `false`. Blanks around it
//! count, except for private link services.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::annotations::{BalancerKind, On, Parsed, Spelling, Table, Wrong, value};
use ccm_provider::{Finding, Severity};
use serde::{Deserialize, Serialize};

pub(crate) use ccm_kit::annotations::Annotations;

use crate::client::id::{ArmId, same};

pub(crate) mod ports;

#[cfg(test)]
mod tests;

/// The location of a load balancer's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Scheme {
    /// Anywhere: frontends with public addresses.
    External,
    /// In the virtual network: frontends with addresses of a subnet.
    Internal,
}

impl BalancerKind for Scheme {
    const ALL: &'static [Self] = &[Self::External, Self::Internal];

    fn as_str(self) -> &'static str {
        match self {
            Self::External => "external load balancer",
            Self::Internal => "internal load balancer",
        }
    }
}

/// The beginning of all keys.
pub(crate) const DOMAIN: &str = "service.beta.kubernetes.io/";

pub(crate) static TABLE: Table<Scheme> = Table {
    spelling: Some(Spelling {
        prefix: "service.beta.kubernetes.io/azure-",
        cloud: "azure",
        names: &["loadbalancer", "pip", "pls"],
    }),
    rows: ROWS,
};

const EXTERNAL: On<Scheme> = On::Only(Scheme::External);
const INTERNAL: On<Scheme> = On::Only(Scheme::Internal);

ccm_kit::annotation_table! {
    pub(crate) static ROWS: Scheme;
    "service.beta.kubernetes.io/" {
        LB_INTERNAL: bool = yes, "azure-load-balancer-internal", On::All, "boolean", "`false`", "A change moves the Service to the other load balancer.",
            "An internal load balancer.";
        LB_SUBNET: String = value::text, "azure-load-balancer-internal-subnet", INTERNAL, "name of a subnet", "`subnetName`", "A change gives another address.",
            "The subnet of the frontend. Becomes part of the names of frontend, rules and probes.";
        LB_MODE: String = value::text, "azure-load-balancer-mode", On::All, "text", "", "",
            "Ignored: it chooses among load balancers of the basic SKU.";
        LB_CONFIGURATIONS: Vec<String> = lower_list, "azure-load-balancer-configurations", On::All, "comma-separated names", "all", "",
            "With `multipleStandardLoadBalancerConfigurations`: the load balancers that may hold the Service.";
        LB_GROUP: String = trimmed, "azure-load-balancer-resource-group", EXTERNAL, "name of a resource group", "`resourceGroup`", "A change gives another address.",
            "The resource group of the public IP address.";
        LB_IPV4: String = trimmed, "azure-load-balancer-ipv4", On::All, "IPv4 address", "`spec.loadBalancerIP`", "",
            "The IPv4 address: of an existing public IP address, or of the subnet.";
        LB_IPV6: String = trimmed, "azure-load-balancer-ipv6", On::All, "IPv6 address", "`spec.loadBalancerIP`", "",
            "The same for IPv6.";
        PIP_NAME: String = trimmed, "azure-pip-name", EXTERNAL, "name", "`<cluster>-<name of the load balancer>`", "A change gives another address.",
            "An existing public IP address.";
        PIP_NAME_IPV6: String = trimmed, "azure-pip-name-ipv6", EXTERNAL, "name", "", "A change gives another address.",
            "The same for IPv6.";
        PIP_PREFIX: String = prefix, "azure-pip-prefix-id", EXTERNAL, "ID of a public IP prefix", "", "A change gives another address.",
            "The prefix from which a new public IP address is taken.";
        PIP_PREFIX_IPV6: String = prefix, "azure-pip-prefix-id-ipv6", EXTERNAL, "ID of a public IP prefix", "", "A change gives another address.",
            "The same for IPv6.";
        PIP_IP_TAGS: Vec<(String, String)> = ip_tags, "azure-pip-ip-tags", EXTERNAL, "`type=tag`, comma-separated", "", "A change gives another address, unless `enableIPTagMutationForExistingPublicIP` is set.",
            "The IP tags of a new public IP address.";
        PIP_TAGS: BTreeMap<String, String> = pip_tags, "azure-pip-tags", EXTERNAL, "`key=value`, comma-separated", "`tags`", "",
            "Tags of the public IP address, in addition to the configured ones.";
        DNS_LABEL: String = value::text_or_empty, "azure-dns-label-name", EXTERNAL, "DNS label", "unchanged", "",
            "The DNS label of the public IP address. An empty text removes it.";
        ADDITIONAL_IPS: Vec<std::net::IpAddr> = addresses, "azure-additional-public-ips", On::All, "comma-separated addresses", "", "",
            "More addresses that lead to the load balancer. They get security rules and are published in the status.";
        DESTINATION_RANGES: String = value::text, "azure-allowed-destination-ip-ranges", On::All, "comma-separated networks", "the addresses of the nodes", "",
            "Destinations of the security rules where floating IP is disabled.";
        SERVICE_TAGS: Vec<String> = service_tags, "azure-allowed-service-tags", On::All, "comma-separated service tags", "", "",
            "Clients that may connect, such as `AzureCloud`.";
        IP_RANGES: String = value::text, "azure-allowed-ip-ranges", On::All, "comma-separated networks", "anyone", "",
            "Clients that may connect. Not together with `spec.loadBalancerSourceRanges`.";
        DENY_ALL: bool = yes, "azure-deny-all-except-load-balancer-source-ranges", On::All, "boolean", "`false`", "",
            "A rule denies all clients outside of the given networks, also those of the virtual network.";
        NO_NSG_RULE: bool = yes, "azure-disable-load-balancer-nsg-rule", On::All, "boolean", "`false`", "",
            "No security rules are made, and existing ones are removed.";
        IDLE_TIMEOUT: u16 = idle_timeout, "azure-load-balancer-tcp-idle-timeout", On::All, "4 to 100 (minutes)", "`4`", "",
            "When silent connections are closed.";
        HA_PORTS: bool = yes, "azure-load-balancer-enable-high-availability-ports", INTERNAL, "boolean", "`false`", "",
            "One rule for all ports and protocols.";
        NO_TCP_RESET: bool = yes, "azure-load-balancer-disable-tcp-reset", On::All, "boolean", "`false`", "",
            "No reset is sent when a silent connection is closed.";
        NO_FLOATING_IP: bool = yes, "azure-disable-load-balancer-floating-ip", On::All, "boolean", "`false`", "",
            "Traffic goes to the node ports of the nodes' own addresses.";
        PROBE_PROTOCOL: String = probe_protocol, "azure-load-balancer-health-probe-protocol", On::All, "`tcp`, `http`, `https`", "`tcp`", "",
            "The protocol of health probes. `appProtocol` of a port wins.";
        PROBE_INTERVAL: u16 = probe_interval, "azure-load-balancer-health-probe-interval", On::All, "at least 5 (seconds)", "`5`", "",
            "The interval of health probes.";
        PROBE_COUNT: u16 = probe_count, "azure-load-balancer-health-probe-num-of-probe", On::All, "at least 2", "`2`", "",
            "The number of probes that decide. Interval times number must be less than 120.";
        PROBE_PATH: String = value::text_or_empty, "azure-load-balancer-health-probe-request-path", On::All, "path", "`/`", "",
            "The path of HTTP and HTTPS probes.";
        PLS_CREATE: bool = yes_trimmed, "azure-pls-create", On::All, "boolean", "`false`", "",
            "A private link service in front of the load balancer.";
        PLS_NAME: String = trimmed, "azure-pls-name", On::All, "name", "`pls-<name of the frontend>`", "Cannot be changed.",
            "The name of the private link service.";
        PLS_GROUP: String = trimmed, "azure-pls-resource-group", On::All, "name of a resource group", "`privateLinkServiceResourceGroup`", "",
            "Its resource group.";
        PLS_SUBNET: String = trimmed, "azure-pls-ip-configuration-subnet", On::All, "name of a subnet", "that of the load balancer", "",
            "The subnet of its addresses.";
        PLS_COUNT: u16 = pls_count, "azure-pls-ip-configuration-ip-address-count", On::All, "1 to 8", "`1`", "",
            "The number of its addresses.";
        PLS_ADDRESSES: Vec<std::net::Ipv4Addr> = pls_addresses, "azure-pls-ip-configuration-ip-address", On::All, "IPv4 addresses, separated by blanks", "dynamic", "",
            "Its static addresses; the first is the primary one.";
        PLS_FQDNS: Vec<String> = words, "azure-pls-fqdns", On::All, "names, separated by blanks", "", "",
            "Its domain names.";
        PLS_PROXY: bool = yes_trimmed, "azure-pls-proxy-protocol", On::All, "boolean", "`false`", "",
            "Sends the PROXY protocol to the pods. The health check of `externalTrafficPolicy: Local` is then not used.";
        PLS_VISIBILITY: Vec<String> = words, "azure-pls-visibility", On::All, "subscription IDs, separated by blanks, or `*`", "", "",
            "Who sees it.";
        PLS_APPROVAL: Vec<String> = words, "azure-pls-auto-approval", On::All, "subscription IDs, separated by blanks", "", "",
            "Whose connections are approved at once.";
        SHARED_RULE: String = value::text_or_empty, "azure-shared-securityrule", On::All, "text", "", "",
            "Ignored: security rules are always shared.";
    }
}

fn yes(text: &str) -> Parsed<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        _ if text.is_empty() || text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        _ => value::or_default(Err(Wrong::from("counts as false; write \"true\" or remove it"))),
    }
}

fn yes_trimmed(text: &str) -> Parsed<bool> {
    yes(text.trim())
}

fn trimmed(text: &str) -> Parsed<String> {
    value::text(text.trim())
}

fn prefix(text: &str) -> Parsed<String> {
    let is_id = |id: &str| ArmId::parse(id).is_ok_and(|id| id.named("publicIPPrefixes").is_some());
    match trimmed(text)? {
        Some(id) if !is_id(&id) => Err(Wrong::from(
            "no ID of a public IP prefix; write /subscriptions/…/providers/Microsoft.Network/publicIPPrefixes/NAME",
        )),
        id => Ok(id),
    }
}

fn lower_list(text: &str) -> Parsed<Vec<String>> {
    value::list(&text.to_lowercase())
}

/// Azure refuses an empty item, and without any the Service would be open to everybody.
fn service_tags(text: &str) -> Parsed<Vec<String>> {
    let tags: Vec<String> = text.split(',').map(|tag| tag.trim().to_owned()).collect();
    if tags.iter().any(String::is_empty) {
        return Err("an item is empty; write service tags, for example \"AzureCloud,Storage\", or remove it".into());
    }
    Ok(Some(tags))
}

fn words(text: &str) -> Parsed<Vec<String>> {
    Ok(Some(text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).filter(|words| !words.is_empty()))
}

fn addresses(text: &str) -> Parsed<Vec<std::net::IpAddr>> {
    let one =
        |item: &str| item.parse().map_err(|_| format!("{item:?} is not an IP address; write for example 192.0.2.1"));
    let list = text.trim().split(',').map(|item| one(item.trim())).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(list))
}

fn probe_protocol(text: &str) -> Parsed<String> {
    match text.trim() {
        "" => Ok(None),
        word if ["tcp", "http", "https"].iter().any(|known| same(known, word)) => Ok(Some(word.to_owned())),
        _ => value::or_default(Err("not a protocol of probes; write \"tcp\", \"http\" or \"https\"".into())),
    }
}

/// The pairs of [`PIP_IP_TAGS`]; as in the Go program, other items are left out.
pub(crate) fn pairs_of_ip_tags(text: &str) -> Vec<(String, String)> {
    let pairs = value::items(text).filter_map(|item| item.split_once('=').filter(|(_, tag)| !tag.contains('=')));
    let tags: BTreeMap<_, _> = pairs.map(|(kind, tag)| (kind.trim().to_owned(), tag.trim().to_owned())).collect();
    tags.into_iter().collect()
}

fn ip_tags(text: &str) -> Parsed<Vec<(String, String)>> {
    let wrong: Vec<&str> = value::items(text).filter(|item| item.split('=').count() != 2).collect();
    if wrong.is_empty() {
        Ok(Some(pairs_of_ip_tags(text)))
    } else {
        Err(left_out(&wrong, "RoutingPreference=Internet"))
    }
}

/// Parses `k1=v1,k2=v2`, and returns also the items that are not pairs.
pub(crate) fn parse_tags(text: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut tags, mut wrong) = (BTreeMap::new(), Vec::new());
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let parts: Vec<&str> = pair.split('=').collect();
        match parts[..] {
            [key, value] if !key.trim().is_empty() => drop(tags.insert(key.trim().to_owned(), without_blanks(value))),
            _ => wrong.push(pair.to_owned()),
        }
    }
    (tags, wrong)
}

/// Without blanks around it; the word `null`, which Azure reserves, keeps them.
fn without_blanks(value: &str) -> String {
    let trimmed = value.trim();
    if same(trimmed, "null") { value.to_owned() } else { trimmed.to_owned() }
}

fn pip_tags(text: &str) -> Parsed<BTreeMap<String, String>> {
    let (tags, wrong) = parse_tags(text);
    if wrong.is_empty() { Ok(Some(tags)) } else { Err(left_out(&wrong, "team=web")) }
}

fn left_out(wrong: &[impl std::fmt::Debug], example: &str) -> Wrong {
    let message = format!("{wrong:?} is left out: write pairs, for example {example:?}");
    Wrong { severity: Severity::Warning, message }
}

fn bounded(text: &str, least: u16, most: u16, what: &str) -> Parsed<u16> {
    let wrong = || format!("not a whole number of {what} from {least} to {most}; write for example {least:?}");
    let number: u16 = text.trim().parse().map_err(|_| wrong())?;
    if (least..=most).contains(&number) { Ok(Some(number)) } else { Err(wrong().into()) }
}

fn idle_timeout(text: &str) -> Parsed<u16> {
    bounded(text, 4, 100, "minutes")
}

fn probe_interval(text: &str) -> Parsed<u16> {
    bounded(text, 5, 59, "seconds")
}

fn probe_count(text: &str) -> Parsed<u16> {
    bounded(text, 2, 23, "probes")
}

fn pls_count(text: &str) -> Parsed<u16> {
    bounded(text, 1, 8, "addresses")
}

fn pls_addresses(text: &str) -> Parsed<Vec<std::net::Ipv4Addr>> {
    let one =
        |item: &str| item.parse().map_err(|_| format!("{item:?} is not an IPv4 address; write for example 10.0.0.4"));
    let mut list = text.split_whitespace().map(one).collect::<Result<Vec<_>, _>>()?;
    let mut known = BTreeSet::new();
    list.retain(|ip| known.insert(*ip));
    Ok(Some(list).filter(|list| !list.is_empty()))
}

/// Whether the Service requests an internal load balancer.
pub(crate) fn scheme_of(annotations: Annotations<'_>) -> Scheme {
    if annotations.readable(&LB_INTERNAL) == Some(true) { Scheme::Internal } else { Scheme::External }
}

/// All findings about the annotations of a Service. A value with an error does not work until it is changed.
pub(crate) fn lint(annotations: Annotations<'_>, scheme: Scheme) -> Vec<Finding> {
    let mut findings = TABLE.review(annotations, scheme);
    findings.extend(
        annotations
            .iter()
            .filter(|(key, _)| !ports::is_key(key))
            .filter_map(|(key, value)| TABLE.unknown(key, value, &[])),
    );
    findings
}
