//! Target groups.

use super::{Check, Settings, TargetGroup, arn_prefix, attributes, balancer, group};
use crate::aws::balancing::{self, invalid};
use crate::aws::ec2::Tags;
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeMap;

/// Creating a group with the name and settings of an existing one returns the existing one.
/// unverified: whether tags are compared too; here they are not.
pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("Name")?.to_owned();
    balancing::check_name("Target group", &name)?;
    let settings = settings(world, call)?;
    let tags = balancing::tags(call)?;
    if let Some(existing) = world.elbv2.groups.values().find(|group| group.name == name) {
        if existing.settings == settings {
            return Ok(answer(world, vec![existing], None));
        }
        let text = format!("A target group with the same name '{name}' exists, but with different settings");
        return Err(ApiError::new("DuplicateTargetGroupName", text));
    }
    if world.elbv2.groups.len() >= world.options.limits.target_groups {
        return Err(ApiError::new("TooManyTargetGroups", "The quota for the number of target groups has been reached"));
    }
    let tags = balancing::add_tags(world, Tags::new(), tags)?;
    let attributes = attributes::of_new_group(&settings);
    let made = TargetGroup {
        arn: format!("{}targetgroup/{name}/{}", arn_prefix(world), world.hex(16)),
        name,
        settings,
        targets: BTreeMap::new(),
        attributes,
        tags,
        created: world.now(),
        former: Default::default(),
    };
    let xml = answer(world, vec![&made], None);
    world.elbv2.groups.insert(made.arn.clone(), made);
    Ok(xml)
}

fn settings(world: &World, call: &Call) -> Result<Settings, ApiError> {
    let target_type = call.params.get("TargetType").unwrap_or("instance").to_owned();
    if target_type != "instance" && target_type != "ip" {
        return Err(invalid(format!("Target type '{target_type}' is not supported for network load balancers here")));
    }
    let protocol = call.params.get("Protocol").ok_or_else(|| invalid("A protocol must be specified"))?.to_owned();
    if !["TCP", "TLS", "UDP", "TCP_UDP"].contains(&protocol.as_str()) {
        return Err(invalid(format!("Protocol '{protocol}' is not supported for network load balancers")));
    }
    let port = call.params.within("Port", 1, 65535)?.ok_or_else(|| invalid("A port must be specified"))?;
    let vpc = call.params.get("VpcId").ok_or_else(|| invalid("A VPC ID must be specified"))?.to_owned();
    if !world.ec2.vpcs.contains_key(&vpc) {
        return Err(invalid(format!("The VPC ID '{vpc}' is not found")));
    }
    let address_type = call.params.get("IpAddressType").unwrap_or("ipv4").to_owned();
    Ok(Settings { protocol, port, vpc, target_type, address_type, check: check(call, None)? })
}

/// The health check of a request; missing values are taken from the present one or from AWS's defaults.
fn check(call: &Call, present: Option<&Check>) -> Result<Check, ApiError> {
    let given = |name| call.params.get(name).map(str::to_owned);
    if call.params.flag("HealthCheckEnabled")? == Some(false) {
        return Err(invalid("Health check enabled must be true for target groups with target type 'instance'"));
    }
    let protocol = given("HealthCheckProtocol").or_else(|| present.map(|check| check.protocol.clone()));
    let protocol = protocol.unwrap_or_else(|| "TCP".to_owned());
    if !["TCP", "HTTP", "HTTPS"].contains(&protocol.as_str()) {
        return Err(invalid(format!("Health check protocol '{protocol}' must be one of 'HTTP, HTTPS, TCP'")));
    }
    // A change of the protocol resets to the new protocol's defaults.
    let present = present.filter(|check| (check.protocol == "TCP") == (protocol == "TCP"));
    let http = protocol != "TCP";
    let path = given("HealthCheckPath");
    if path.is_some() && !http {
        return Err(invalid("Health check path is not supported for the TCP protocol"));
    }
    if path.as_ref().is_some_and(|path| !path.starts_with('/')) {
        return Err(invalid("Health check path must begin with a '/' character"));
    }
    let matcher = call.params.sub("Matcher").and_then(|matcher| matcher.get("HttpCode")).map(str::to_owned);
    let port = given("HealthCheckPort").or_else(|| present.map(|check| check.port.clone()));
    let port = port.unwrap_or_else(|| "traffic-port".to_owned());
    if port != "traffic-port" && !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(invalid(format!("Health check port '{port}' must be 'traffic-port' or between 1 and 65535")));
    }
    let timeout = if protocol == "HTTP" { 6 } else { 10 };
    let check = Check {
        path: path.or_else(|| present.and_then(|check| check.path.clone())).or_else(|| http.then(|| "/".to_owned())),
        matcher: matcher
            .or_else(|| present.and_then(|check| check.matcher.clone()))
            .or_else(|| http.then(|| "200-399".to_owned())),
        interval: call
            .params
            .within("HealthCheckIntervalSeconds", 5, 300)?
            .unwrap_or(present.map_or(30, |check| check.interval)),
        timeout: call
            .params
            .within("HealthCheckTimeoutSeconds", 2, 120)?
            .unwrap_or(present.map_or(timeout, |check| check.timeout)),
        healthy: call
            .params
            .within("HealthyThresholdCount", 2, 10)?
            .unwrap_or(present.map_or(5, |check| check.healthy)),
        unhealthy: call
            .params
            .within("UnhealthyThresholdCount", 2, 10)?
            .unwrap_or(present.map_or(2, |check| check.unhealthy)),
        protocol,
        port,
    };
    if check.timeout > check.interval {
        let text = "must be smaller than or equal to the interval";
        return Err(invalid(format!("Health check timeout '{}' {text} '{}'", check.timeout, check.interval)));
    }
    Ok(check)
}

pub(super) fn modify(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut changed = group(world, call.params.required("TargetGroupArn")?)?.clone();
    changed.settings.check = check(call, Some(&changed.settings.check))?;
    let xml = answer(world, vec![&changed], None);
    world.elbv2.groups.insert(changed.arn.clone(), changed);
    Ok(xml)
}

fn answer(world: &World, groups: Vec<&TargetGroup>, next: Option<&str>) -> Xml {
    balancing::listing("TargetGroups", groups, next, |xml, group| {
        let (settings, check) = (&group.settings, &group.settings.check);
        xml.text("TargetGroupArn", &group.arn);
        xml.text("TargetGroupName", &group.name);
        xml.text("Protocol", &settings.protocol);
        xml.value("Port", settings.port);
        xml.text("VpcId", &settings.vpc);
        xml.text("HealthCheckProtocol", &check.protocol);
        xml.text("HealthCheckPort", &check.port);
        xml.value("HealthCheckEnabled", true);
        xml.value("HealthCheckIntervalSeconds", check.interval);
        xml.value("HealthCheckTimeoutSeconds", check.timeout);
        xml.value("HealthyThresholdCount", check.healthy);
        xml.value("UnhealthyThresholdCount", check.unhealthy);
        xml.opt("HealthCheckPath", check.path.as_deref());
        if let Some(codes) = &check.matcher {
            xml.elem("Matcher", |xml| xml.text("HttpCode", codes));
        }
        xml.texts("LoadBalancerArns", "member", world.elbv2.shown_balancers(group, world.now()));
        xml.text("TargetType", &settings.target_type);
        xml.text("IpAddressType", &settings.address_type);
    })
}

pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let (arns, names) = (balancing::unique(call, "TargetGroupArns"), balancing::unique(call, "Names"));
    let of = call.params.get("LoadBalancerArn");
    if usize::from(of.is_some()) + usize::from(!arns.is_empty()) + usize::from(!names.is_empty()) > 1 {
        let text =
            "Target group names, target group ARNs, and a load balancer ARN cannot be specified at the same time";
        return Err(invalid(text));
    }
    let known = |group: &&TargetGroup| world.known("target-group", group.created);
    let found: Vec<String> = if let Some(of) = of {
        let of = balancer(world, of)?.arn.as_str();
        let groups = world.elbv2.groups.values().filter(known);
        groups
            .filter(|group| world.elbv2.balancers_of(&group.arn).contains(of))
            .map(|group| group.arn.clone())
            .collect()
    } else if !arns.is_empty() {
        arns.iter().map(|arn| group(world, arn).map(|group| group.arn.clone())).collect::<Result<_, _>>()?
    } else if !names.is_empty() {
        let by_name = |name: &String| {
            let one = world.elbv2.groups.values().filter(known).find(|group| group.name == *name);
            let missing = || ApiError::new("TargetGroupNotFound", "One or more target groups not found");
            one.map(|group| group.arn.clone()).ok_or_else(missing)
        };
        names.iter().map(by_name).collect::<Result<_, _>>()?
    } else {
        world.elbv2.groups.values().filter(known).map(|group| group.arn.clone()).collect()
    };
    let (page, next) = balancing::page(call, found)?;
    Ok(answer(world, page.iter().filter_map(|arn| world.elbv2.groups.get(arn)).collect(), next.as_deref()))
}

/// Deleting a missing group succeeds.
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arn = call.params.required("TargetGroupArn")?;
    super::check_arn(arn, "targetgroup")?;
    let found = world.elbv2.groups.get(arn);
    if found.is_some_and(|group| !world.elbv2.shown_balancers(group, world.now()).is_empty()) {
        let text = format!("Target group '{arn}' is currently in use by a listener or a rule");
        return Err(ApiError::new("ResourceInUse", text));
    }
    world.elbv2.groups.remove(arn);
    Ok(Xml::new())
}
