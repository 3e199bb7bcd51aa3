//! Attributes of Network Load Balancers and their target groups.

use super::{Settings, balancer, group};
use crate::aws::balancing::{contradiction, invalid};
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeMap;

/// The allowed values.
enum Values {
    Flag,
    Text,
    Number(u32, u32),
    /// A number, a percentage or `off`.
    Threshold,
    OneOf(&'static [&'static str]),
}

/// Key, default and values.
type Row = (&'static str, &'static str, Values);

const BALANCER: [Row; 9] = [
    ("access_logs.s3.enabled", "false", Values::Flag),
    ("access_logs.s3.bucket", "", Values::Text),
    ("access_logs.s3.prefix", "", Values::Text),
    ("deletion_protection.enabled", "false", Values::Flag),
    (
        "dns_record.client_routing_policy",
        "any_availability_zone",
        Values::OneOf(&["any_availability_zone", "availability_zone_affinity", "partial_availability_zone_affinity"]),
    ),
    ("ipv6.deny_all_igw_traffic", "false", Values::Flag),
    ("load_balancing.cross_zone.enabled", "false", Values::Flag),
    ("secondary_ips.auto_assigned.per_subnet", "0", Values::Number(0, 7)),
    ("zonal_shift.config.enabled", "false", Values::Flag),
];

const GROUP: [Row; 13] = [
    ("deregistration_delay.connection_termination.enabled", "false", Values::Flag),
    ("deregistration_delay.timeout_seconds", "300", Values::Number(0, 3600)),
    (
        "load_balancing.cross_zone.enabled",
        "use_load_balancer_configuration",
        Values::OneOf(&["true", "false", "use_load_balancer_configuration"]),
    ),
    ("preserve_client_ip.enabled", "true", Values::Flag),
    ("proxy_protocol_v2.enabled", "false", Values::Flag),
    ("stickiness.enabled", "false", Values::Flag),
    ("stickiness.type", "source_ip", Values::OneOf(&["source_ip"])),
    ("target_group_health.dns_failover.minimum_healthy_targets.count", "1", Values::Threshold),
    ("target_group_health.dns_failover.minimum_healthy_targets.percentage", "off", Values::Threshold),
    ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.count", "1", Values::Threshold),
    ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage", "off", Values::Threshold),
    ("target_health_state.unhealthy.connection_termination.enabled", "true", Values::Flag),
    ("target_health_state.unhealthy.draining_interval_seconds", "0", Values::Number(0, 360_000)),
];

impl Values {
    fn allow(&self, value: &str) -> bool {
        match self {
            Values::Flag => value == "true" || value == "false",
            Values::Text => true,
            Values::Number(min, max) => value.parse().is_ok_and(|number: u32| (*min..=*max).contains(&number)),
            Values::Threshold => value == "off" || value.parse::<u32>().is_ok_and(|number| number > 0),
            Values::OneOf(words) => words.contains(&value),
        }
    }
}

/// Merges the request's attributes into the existing ones.
fn change(
    what: &str,
    rows: &[Row],
    present: &BTreeMap<String, String>,
    call: &Call,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut attributes = present.clone();
    for item in call.params.items("Attributes") {
        let (key, value) = (item.required("Key")?, item.get("Value").unwrap_or_default());
        let Some((_, _, values)) = rows.iter().find(|(known, _, _)| *known == key) else {
            return Err(invalid(format!("{what} attribute key '{key}' is not recognized")));
        };
        if !values.allow(value) {
            return Err(invalid(format!("{what} attribute value '{value}' is not valid for '{key}'")));
        }
        attributes.insert(key.to_owned(), value.to_owned());
    }
    Ok(attributes)
}

fn write(rows: &[Row], attributes: &BTreeMap<String, String>) -> Xml {
    let mut xml = Xml::new();
    xml.list("Attributes", "member", rows, |xml, (key, usual, _)| {
        xml.text("Key", key);
        xml.text("Value", attributes.get(*key).map_or(usual, String::as_str));
    });
    xml
}

pub(super) fn describe_balancer(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let balancer = balancer(world, call.params.required("LoadBalancerArn")?)?;
    Ok(write(&BALANCER, &balancer.attributes))
}

pub(super) fn modify_balancer(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let balancer = balancer(world, call.params.required("LoadBalancerArn")?)?;
    let arn = balancer.arn.clone();
    let attributes = change("Load balancer", &BALANCER, &balancer.attributes, call)?;
    let at = |key: &str| attributes.get(key).map(String::as_str).unwrap_or_default();
    if at("access_logs.s3.enabled") == "true" && at("access_logs.s3.bucket").is_empty() {
        return Err(contradiction("An S3 bucket must be specified when access logs are enabled"));
    }
    let xml = write(&BALANCER, &attributes);
    if let Some(balancer) = world.elbv2.balancers.get_mut(&arn) {
        balancer.attributes = attributes;
    }
    Ok(xml)
}

/// By default client addresses are preserved, except for IP targets over TCP and TLS.
pub(super) fn of_new_group(settings: &Settings) -> BTreeMap<String, String> {
    let ip_over_tcp = settings.target_type == "ip" && ["TCP", "TLS"].contains(&settings.protocol.as_str());
    ip_over_tcp.then(|| ("preserve_client_ip.enabled".to_owned(), "false".to_owned())).into_iter().collect()
}

pub(super) fn describe_group(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let group = group(world, call.params.required("TargetGroupArn")?)?;
    Ok(write(&GROUP, &group.attributes))
}

pub(super) fn modify_group(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let group = group(world, call.params.required("TargetGroupArn")?)?;
    let arn = group.arn.clone();
    let attributes = change("Target group", &GROUP, &group.attributes, call)?;
    let udp = group.settings.protocol.contains("UDP");
    if udp && attributes.get("preserve_client_ip.enabled").is_some_and(|value| value == "false") {
        return Err(contradiction("Client IP preservation cannot be disabled for UDP and TCP_UDP target groups"));
    }
    if group.settings.protocol == "TLS" && attributes.get("stickiness.enabled").is_some_and(|value| value == "true") {
        return Err(contradiction("You cannot enable stickiness on target groups with the TLS protocol"));
    }
    let xml = write(&GROUP, &attributes);
    if let Some(group) = world.elbv2.groups.get_mut(&arn) {
        group.attributes = attributes;
    }
    Ok(xml)
}
