//! The types of values and how they are read. A parser answers `Ok(None)` where an empty value is the same as no annotation,
//! and in the error what to write instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::client::ec2::ipv4;

/// Which ports get a certificate.
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
    /// Whether a port of a Service is meant. Names are compared without regard to case: upstream compares differently for
    /// each kind of balancer, and a port that isn't found is served without TLS.
    pub(crate) fn cover(&self, port: i32, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed { numbers, names } => numbers.contains(&port) || names.contains(&name.to_lowercase()),
        }
    }
}

/// What pods speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendProtocol {
    Http,
    Https,
    Ssl,
    Tcp,
    /// A word that upstream doesn't know: an error together with a certificate, else the same as none. Case counts.
    Other(String),
}

impl fmt::Display for BackendProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ssl => "ssl",
            Self::Tcp => "tcp",
            Self::Other(word) => word,
        })
    }
}

/// How nodes are asked for their health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthProtocol {
    Tcp,
    Http,
    Https,
    /// Classic balancers only.
    Ssl,
}

impl HealthProtocol {
    /// As AWS spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Ssl => "SSL",
        }
    }

    /// Whether a path is asked for.
    pub(crate) fn has_path(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// Where nodes are asked for their health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthPort {
    /// `traffic-port`
    Traffic,
    Number(i32),
}

/// What a parser answers.
type Parsed<T> = Result<Option<T>, String>;

/// Any text; empty is none.
pub(super) fn text(value: &str) -> Parsed<String> {
    Ok(Some(value.to_owned()).filter(|text| !text.is_empty()))
}

/// The words of Go's `strconv.ParseBool`; empty is none.
pub(super) fn flag(value: &str) -> Parsed<bool> {
    match value {
        "" => Ok(None),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
        _ => Err("not a boolean; write \"true\" or \"false\"".to_owned()),
    }
}

/// Any text but `false` is true.
pub(super) fn internal(value: &str) -> Parsed<bool> {
    Ok(Some(!matches!(value, "" | "false")))
}

pub(super) fn proxy_protocol(value: &str) -> Parsed<bool> {
    match value {
        "" => Ok(None),
        "*" => Ok(Some(true)),
        _ => Err("only \"*\" is known, for all ports".to_owned()),
    }
}

/// Decimal in 32 bits; empty is none.
pub(super) fn integer(value: &str) -> Parsed<i32> {
    if value.is_empty() { Ok(None) } else { number(value).map(Some) }
}

/// Decimal in 32 bits; empty is wrong, as upstream.
pub(super) fn health_number(value: &str) -> Parsed<i32> {
    number(value).map(Some)
}

fn number(value: &str) -> Result<i32, String> {
    value.parse().map_err(|_| format!("not a whole number from {} to {}; write for example \"10\"", i32::MIN, i32::MAX))
}

/// Items between commas, without blanks around them; empty ones are dropped.
fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A list without items is none.
pub(super) fn list(value: &str) -> Parsed<Vec<String>> {
    Ok(Some(items(value).map(str::to_owned).collect::<Vec<_>>()).filter(|list| !list.is_empty()))
}

/// A list that must have items.
pub(super) fn subnets(value: &str) -> Parsed<Vec<String>> {
    let found = list(value)?;
    if found.is_none() {
        return Err(
            "names no subnet; write IDs (subnet-…) or Name tags between commas, or remove the annotation".to_owned()
        );
    }
    Ok(found)
}

pub(super) fn ipv4_list(value: &str) -> Parsed<Vec<String>> {
    match items(value).find(|item| ipv4(item).is_none()) {
        Some(bad) => Err(format!("{bad:?} is not an IPv4 address")),
        None => list(value),
    }
}

/// `k=v`, `k=` and `k` between commas; what follows a second `=` is dropped, so are empty keys. The last of equal keys wins.
pub(super) fn pairs(value: &str) -> Parsed<BTreeMap<String, String>> {
    let pair = |item: &str| {
        let mut parts = item.split('=');
        let key = parts.next().unwrap_or_default().to_owned();
        (key, parts.next().unwrap_or_default().to_owned())
    };
    Ok(Some(items(value).map(pair).filter(|(key, _)| !key.is_empty()).collect()))
}

/// Attributes of target groups that may be set.
const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL_V2: &str = "proxy_protocol_v2.enabled";

/// Two keys, `true` or `false` exactly.
pub(super) fn target_group_attributes(value: &str) -> Parsed<BTreeMap<String, String>> {
    let found = pairs(value)?.unwrap_or_default();
    for (key, value) in &found {
        if ![PRESERVE_CLIENT_IP, PROXY_PROTOCOL_V2].contains(&&**key) {
            return Err(format!(
                "the attribute {key:?} cannot be set; {PRESERVE_CLIENT_IP:?} and {PROXY_PROTOCOL_V2:?} can"
            ));
        }
        if !["true", "false"].contains(&&**value) {
            return Err(format!("{key:?} cannot be {value:?}; write {key}=true or {key}=false"));
        }
    }
    Ok(Some(found))
}

/// Whether the attributes ask to hide the clients' addresses from pods.
pub(crate) fn hides_client_ip(attributes: &BTreeMap<String, String>) -> bool {
    attributes.get(PRESERVE_CLIENT_IP).is_some_and(|value| value == "false")
}

/// Empty and `*` are all ports.
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
        return Err("names no port; write numbers or names between commas, or \"*\" for all".to_owned());
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

/// Any case; empty is wrong, as upstream.
pub(super) fn health_protocol(value: &str) -> Parsed<HealthProtocol> {
    let all = [HealthProtocol::Tcp, HealthProtocol::Http, HealthProtocol::Https, HealthProtocol::Ssl];
    match all.into_iter().find(|protocol| protocol.as_str().eq_ignore_ascii_case(value)) {
        Some(protocol) => Ok(Some(protocol)),
        None => Err("unknown; write TCP, HTTP, HTTPS or (classic load balancers) SSL".to_owned()),
    }
}

/// Empty is wrong, as upstream.
pub(super) fn health_port(value: &str) -> Parsed<HealthPort> {
    if value == "traffic-port" {
        return Ok(Some(HealthPort::Traffic));
    }
    let port = value.parse().ok().filter(|port| (1..=65535).contains(port));
    match port {
        Some(port) => Ok(Some(HealthPort::Number(port))),
        None => Err("not a port; write a number from 1 to 65535 or \"traffic-port\"".to_owned()),
    }
}
