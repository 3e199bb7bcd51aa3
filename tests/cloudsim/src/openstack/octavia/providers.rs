//! Requests that the providers reject. `unverified` for ovn: not checked on a real service.

use super::refused;
use crate::core::rest::Problem;
use serde_json::{Map, Value};

fn unsupported(provider: &str, text: &str) -> Problem {
    refused(501, format!("Provider '{provider}' does not support a requested option: {text}"))
}

/// Checks a listener.
pub(super) fn listener(provider: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    if provider != "ovn" {
        return Ok(());
    }
    let protocol = fields.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        return Err(unsupported(provider, &format!("OVN provider does not support {protocol} protocol")));
    }
    if fields.get("allowed_cidrs").and_then(Value::as_array).is_some_and(|cidrs| !cidrs.is_empty()) {
        return Err(unsupported(provider, "OVN provider does not support allowed_cidrs option"));
    }
    Ok(())
}

/// Checks a pool.
pub(super) fn pool(provider: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let algorithm = text("lb_algorithm");
    if provider != "ovn" {
        return match algorithm {
            Some(name @ "SOURCE_IP_PORT") => {
                // `octavia` is an alias of `amphora`.
                Err(unsupported("amphora", &format!("Amphora provider does not support {name} algorithm.")))
            }
            _ => Ok(()),
        };
    }
    if let Some(name) = algorithm.filter(|name| *name != "SOURCE_IP_PORT") {
        return Err(unsupported(provider, &format!("OVN provider does not support {name} algorithm")));
    }
    if let Some(name) = text("protocol").filter(|name| !matches!(*name, "TCP" | "UDP" | "SCTP")) {
        return Err(unsupported(provider, &format!("OVN provider does not support {name} protocol")));
    }
    let kind = fields.get("session_persistence").and_then(|persistence| persistence.get("type")?.as_str());
    match kind.filter(|kind| *kind != "SOURCE_IP") {
        Some(kind) => Err(unsupported(provider, &format!("OVN provider does not support {kind} session persistence"))),
        None => Ok(()),
    }
}

/// Checks a health monitor.
pub(super) fn monitor(provider: &str, kind: &str) -> Result<(), Problem> {
    if provider == "ovn" && !matches!(kind, "TCP" | "UDP-CONNECT") {
        return Err(unsupported(provider, &format!("OVN provider does not support {kind} health monitors")));
    }
    Ok(())
}

/// Amphora rejects members of another address family than the VIP for UDP and SCTP.
pub(super) fn mixed(protocol: &str) -> Problem {
    let what = "This provider doesn't support mixing IPv4 and IPv6 addresses for its VIP and members in";
    unsupported("amphora", &format!("{what} {protocol} load balancers."))
}
