//! Health checks: legacy ones of target pools, and those of backend services.

use super::errors;
use super::kinds::Fields;
use super::places::Spot;
use super::verbs::{default, text};
use super::world::World;
use crate::core::rest::Problem;
use crate::core::rows::Row;
use serde_json::{Value, json};

/// The parts of a health check by type.
const PARTS: [(&str, &str); 7] = [
    ("HTTP", "httpHealthCheck"),
    ("HTTPS", "httpsHealthCheck"),
    ("HTTP2", "http2HealthCheck"),
    ("TCP", "tcpHealthCheck"),
    ("SSL", "sslHealthCheck"),
    ("GRPC", "grpcHealthCheck"),
    ("GRPC_WITH_TLS", "grpcTlsHealthCheck"),
];

/// Checks a legacy HTTP health check.
pub(super) fn make_http(_: &mut World, _: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    numbers(fields)?;
    default(fields, "port", 80);
    default(fields, "requestPath", "/");
    port(fields, "resource.port")
}

/// Checks a changed legacy HTTP health check.
pub(super) fn change_http(world: &mut World, spot: &Spot, _: &Row, fields: &mut Fields) -> Result<(), Problem> {
    make_http(world, spot, fields)
}

/// Checks a health check.
pub(super) fn make(_: &mut World, _: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    numbers(fields)?;
    let kind = text(fields, "type").to_owned();
    if kind.is_empty() {
        return Err(errors::required("resource.type"));
    }
    for (other, part) in PARTS {
        let own = other == kind;
        if !own && fields.contains_key(part) {
            return Err(errors::invalid(&format!("resource.{part}"), "", &format!("The type is {kind}.")));
        }
        if !own {
            continue;
        }
        default(fields, part, json!({}));
        if let Some(Value::Object(inside)) = fields.get_mut(part) {
            if kind.starts_with("HTTP") {
                default(inside, "requestPath", "/");
                default(inside, "port", if kind == "HTTP" { 80 } else { 443 });
            }
            if !kind.starts_with("GRPC") {
                default(inside, "proxyHeader", "NONE");
            }
            port(inside, &format!("resource.{part}.port"))?;
        }
    }
    Ok(())
}

/// Checks a changed health check.
pub(super) fn change(world: &mut World, spot: &Spot, _: &Row, fields: &mut Fields) -> Result<(), Problem> {
    make(world, spot, fields)
}

/// Checks intervals and thresholds.
fn numbers(fields: &mut Fields) -> Result<(), Problem> {
    for (name, usual) in
        [("checkIntervalSec", 5), ("timeoutSec", 5), ("healthyThreshold", 2), ("unhealthyThreshold", 2)]
    {
        default(fields, name, usual);
        let most = if name.ends_with("Threshold") { 10 } else { 300 };
        let number = fields.get(name).and_then(Value::as_i64).unwrap_or_default();
        if !(1..=most).contains(&number) {
            let text = format!("Must be greater than or equal to 1 and less than or equal to {most}.");
            return Err(errors::invalid(&format!("resource.{name}"), &number.to_string(), &text));
        }
    }
    let number = |name: &str| fields.get(name).and_then(Value::as_i64).unwrap_or_default();
    if number("timeoutSec") > number("checkIntervalSec") {
        let text = "Timeout must not be greater than the check interval.";
        return Err(errors::invalid("resource.timeoutSec", &number("timeoutSec").to_string(), text));
    }
    Ok(())
}

fn port(fields: &Fields, field: &str) -> Result<(), Problem> {
    let port = fields.get("port").and_then(Value::as_i64).unwrap_or(80);
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    let text = "Must be greater than or equal to 1 and less than or equal to 65535.";
    Err(errors::invalid(field, &port.to_string(), text))
}

/// A check cannot be deleted while a target pool uses it.
pub(super) fn free_http(world: &World, spot: &Spot) -> Result<(), Problem> {
    match world.used_by(&spot.key(), "targetPools", "healthChecks") {
        Some(by) => Err(errors::in_use("http_health_check", &spot.key(), &by)),
        None => Ok(()),
    }
}

/// A check cannot be deleted while a backend service uses it.
pub(super) fn free(world: &World, spot: &Spot) -> Result<(), Problem> {
    match world.used_by(&spot.key(), "backendServices", "healthChecks") {
        Some(by) => Err(errors::in_use("health_check", &spot.key(), &by)),
        None => Ok(()),
    }
}
