//! Types and parsers of annotation values.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::annotations::Parsed;
use ccm_kit::annotations::value::{self, items, list};

use crate::client::ec2::ipv4;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum SslPorts {
    #[default]
    All,
    Listed {
        numbers: BTreeSet<i32>,
        /// In lower case.
        names: BTreeSet<String>,
    },
}

impl SslPorts {
    /// Whether a port of a Service is selected. Names compare without case: upstream differs between the kinds of
    /// balancers, and a port that does not match is served without TLS.
    pub(crate) fn cover(&self, port: i32, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed { numbers, names } => numbers.contains(&port) || names.contains(&name.to_lowercase()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendProtocol {
    Http,
    Https,
    Ssl,
    Tcp,
    /// A value that upstream does not know: an error together with a certificate, otherwise the same as none.
    /// Case-sensitive.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthProtocol {
    Tcp,
    Http,
    Https,
    Ssl,
}

impl HealthProtocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Ssl => "SSL",
        }
    }

    pub(crate) fn has_path(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthPort {
    Traffic,
    Number(i32),
}

/// Any text but `false` is true.
pub(super) fn internal(value: &str) -> Parsed<bool> {
    Ok(Some(!matches!(value, "" | "false")))
}

pub(super) fn proxy_protocol(value: &str) -> Parsed<bool> {
    match value {
        "" => Ok(None),
        "*" => Ok(Some(true)),
        _ => Err("only \"*\" is supported, for all ports".into()),
    }
}

/// A list that must have items.
pub(super) fn subnets(value: &str) -> Parsed<Vec<String>> {
    match list(value)? {
        None => {
            Err("names no subnet; write IDs (subnet-…) or Name tags between commas, or remove the annotation".into())
        }
        found => Ok(found),
    }
}

pub(super) fn ipv4_list(value: &str) -> Parsed<Vec<String>> {
    match items(value).find(|item| ipv4(item).is_none()) {
        Some(bad) => Err(format!("{bad:?} is not an IPv4 address").into()),
        None => list(value),
    }
}

/// As [`value::pairs`]. Text after a second `=` is dropped, as upstream does: no label has such a value, so the nodes
/// that upstream chose would go.
pub(super) fn without_third_part(value: &str) -> Parsed<BTreeMap<String, String>> {
    let mut pairs = value::pairs(value)?.unwrap_or_default();
    for value in pairs.values_mut() {
        value.truncate(value.find('=').unwrap_or(value.len()));
    }
    Ok(Some(pairs))
}

/// The beginning of upstream's errors about them.
const UPSTREAM: &str = "error validating target group attributes";
const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL_V2: &str = "proxy_protocol_v2.enabled";

/// Two keys, exactly `true` or `false`.
pub(super) fn target_group_attributes(value: &str) -> Parsed<BTreeMap<String, String>> {
    let found = without_third_part(value)?.unwrap_or_default();
    for (key, value) in &found {
        if ![PRESERVE_CLIENT_IP, PROXY_PROTOCOL_V2].contains(&&**key) {
            return Err(format!(
                "{UPSTREAM}: the attribute {key:?} is not supported by the controller or is invalid; {PRESERVE_CLIENT_IP:?} and \
                 {PROXY_PROTOCOL_V2:?} can be set"
            )
            .into());
        }
        if !["true", "false"].contains(&&**value) {
            let problem = match &**value {
                "" => format!("attribute value is empty for {key:?}"),
                value => format!("invalid attribute value for {key:?}: {value}"),
            };
            return Err(format!("{UPSTREAM}: {problem}; write {key}=true or {key}=false").into());
        }
    }
    Ok(Some(found))
}

/// Whether the attributes hide the clients' addresses from pods.
pub(crate) fn hides_client_ip(attributes: &BTreeMap<String, String>) -> bool {
    attributes.get(PRESERVE_CLIENT_IP).is_some_and(|value| value == "false")
}

/// Empty and `*` mean all ports.
pub(super) fn ssl_ports(value: &str) -> Parsed<SslPorts> {
    if matches!(value.trim(), "" | "*") {
        return Ok(Some(SslPorts::All));
    }
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    for item in items(value) {
        match item.parse() {
            Ok(number) => drop(numbers.insert(number)),
            Err(_) => drop(names.insert(item.to_lowercase())),
        }
    }
    if numbers.is_empty() && names.is_empty() {
        return Err("names no port; write numbers or names between commas, or \"*\" for all".into());
    }
    Ok(Some(SslPorts::Listed { numbers, names }))
}

/// Empty is none.
pub(super) fn backend_protocol(value: &str) -> Parsed<BackendProtocol> {
    Ok(match value {
        "" => None,
        "http" => Some(BackendProtocol::Http),
        "https" => Some(BackendProtocol::Https),
        "ssl" => Some(BackendProtocol::Ssl),
        "tcp" => Some(BackendProtocol::Tcp),
        other => Some(BackendProtocol::Other(other.to_owned())),
    })
}

/// Case-insensitive; empty is invalid, as upstream.
pub(super) fn health_protocol(value: &str) -> Parsed<HealthProtocol> {
    let all = [HealthProtocol::Tcp, HealthProtocol::Http, HealthProtocol::Https, HealthProtocol::Ssl];
    match all.into_iter().find(|protocol| protocol.as_str().eq_ignore_ascii_case(value)) {
        Some(protocol) => Ok(Some(protocol)),
        None => Err("unknown; write TCP, HTTP, HTTPS or (classic load balancers) SSL".into()),
    }
}

/// Empty is invalid, as upstream.
pub(super) fn health_port(value: &str) -> Parsed<HealthPort> {
    if value == "traffic-port" {
        return Ok(Some(HealthPort::Traffic));
    }
    let port = value.parse().ok().filter(|port| (1..=65535).contains(port));
    match port {
        Some(port) => Ok(Some(HealthPort::Number(port))),
        None => Err("not a port; write a number from 1 to 65535 or \"traffic-port\"".into()),
    }
}
