//! Attributes and tags of Classic Load Balancers.

use super::{AccessLog, Attributes, find, named, named_mut, not_found};
use crate::aws::balancing::{self, contradiction, invalid};
use crate::aws::query::Params;
use crate::aws::{ApiError, Call, World, Xml};

const DESYNC_MODE: &str = "elb.http.desyncmitigationmode";
/// The structures in the request and the answer.
const PARTS: [&str; 5] =
    ["CrossZoneLoadBalancing", "AccessLog", "ConnectionDraining", "ConnectionSettings", "AdditionalAttributes"];

pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let balancer = named(world, call)?;
    let mut xml = Xml::new();
    xml.elem("LoadBalancerAttributes", |xml| {
        for part in PARTS {
            balancer.attributes.write(xml, part);
        }
    });
    Ok(xml)
}

/// Changes the given attributes, and returns only these.
pub(super) fn modify(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = named(world, call)?.name.clone();
    let params =
        call.params.sub("LoadBalancerAttributes").ok_or_else(|| ApiError::missing("LoadBalancerAttributes"))?;
    let mut attributes = named(world, call)?.attributes.clone();
    attributes.change(params)?;
    let mut xml = Xml::new();
    xml.text("LoadBalancerName", &name);
    xml.elem("LoadBalancerAttributes", |xml| {
        for part in PARTS.into_iter().filter(|part| params.has(part)) {
            attributes.write(xml, part);
        }
    });
    named_mut(world, call)?.attributes = attributes;
    Ok(xml)
}

impl Attributes {
    fn change(&mut self, params: &Params) -> Result<(), ApiError> {
        if let Some(part) = params.sub("CrossZoneLoadBalancing") {
            self.cross_zone = enabled(part)?;
        }
        if let Some(part) = params.sub("ConnectionDraining") {
            self.draining = enabled(part)?;
            // unverified: without a timeout, the default is restored.
            self.draining_timeout = part.within("Timeout", 1, 3600)?.unwrap_or(300);
        }
        if let Some(part) = params.sub("ConnectionSettings") {
            self.idle_timeout = part.required_within("IdleTimeout", 1, 4000)?;
        }
        if let Some(part) = params.sub("AccessLog") {
            self.access_log = access_log(part)?;
        }
        for item in params.items("AdditionalAttributes") {
            match (item.required("Key")?, item.get("Value").unwrap_or_default()) {
                (DESYNC_MODE, value @ ("monitor" | "defensive" | "strictest")) => {
                    value.clone_into(&mut self.desync_mode);
                }
                (key, value) => return Err(contradiction(format!("The attribute {key}={value} is not supported"))),
            }
        }
        Ok(())
    }

    fn write(&self, xml: &mut Xml, part: &str) {
        if part == "AdditionalAttributes" {
            return xml.list(part, "member", [&self.desync_mode], |xml, mode| {
                xml.text("Key", DESYNC_MODE);
                xml.text("Value", mode);
            });
        }
        xml.elem(part, |xml| match part {
            "CrossZoneLoadBalancing" => xml.value("Enabled", self.cross_zone),
            "ConnectionDraining" => {
                xml.value("Enabled", self.draining);
                xml.value("Timeout", self.draining_timeout);
            }
            "ConnectionSettings" => xml.value("IdleTimeout", self.idle_timeout),
            _ => self.access_log.write(xml),
        });
    }
}

impl AccessLog {
    fn write(&self, xml: &mut Xml) {
        xml.value("Enabled", self.enabled);
        xml.opt("S3BucketName", self.bucket.as_deref());
        xml.opt("S3BucketPrefix", self.prefix.as_deref());
        if let Some(interval) = self.emit_interval {
            xml.value("EmitInterval", interval);
        }
    }
}

/// A disabled log loses its other settings. unverified: what AWS reports about a disabled log.
fn access_log(part: &Params) -> Result<AccessLog, ApiError> {
    let text = |name| part.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let interval = part.within("EmitInterval", 5, 60)?;
    if interval.is_some_and(|interval| interval != 5 && interval != 60) {
        return Err(invalid("EmitInterval must be 5 or 60"));
    }
    let log = AccessLog {
        enabled: enabled(part)?,
        emit_interval: interval.or(Some(60)),
        bucket: text("S3BucketName"),
        prefix: text("S3BucketPrefix"),
    };
    if !log.enabled {
        return Ok(AccessLog::default());
    }
    if log.bucket.is_none() {
        return Err(contradiction("S3BucketName is required when access logs are enabled"));
    }
    Ok(log)
}

fn enabled(part: &Params) -> Result<bool, ApiError> {
    part.flag("Enabled")?.ok_or_else(|| ApiError::missing("Enabled"))
}

/// AWS accepts only one name, although the parameter is a list.
pub(super) fn add_tags(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let new = balancing::tags(call)?;
    for name in names(world, call)? {
        let tags = find(world, &name).map(|balancer| balancer.tags.clone()).unwrap_or_default();
        let tags = balancing::add_tags(world, tags, new.clone())?;
        if let Some(balancer) = world.elb.balancers.get_mut(&name) {
            balancer.tags = tags;
        }
    }
    Ok(Xml::new())
}

pub(super) fn describe_tags(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let names = names(world, call)?;
    // The tags of a new balancer may be shown later than the balancer.
    let is_late = |name: &&String| world.elb.balancers.get(*name).is_some_and(|one| !world.known("tags", one.created));
    if let Some(late) = names.iter().find(is_late) {
        return Err(not_found(late));
    }
    let balancers = names.iter().filter_map(|name| find(world, name)).collect();
    Ok(balancing::listing("TagDescriptions", balancers, None, |xml, balancer| {
        xml.text("LoadBalancerName", &balancer.name);
        balancing::write_tags(xml, &balancer.tags);
    }))
}

fn names(world: &World, call: &Call) -> Result<Vec<String>, ApiError> {
    let names = balancing::unique(call, "LoadBalancerNames");
    if names.is_empty() || names.len() > 20 {
        return Err(invalid("Between 1 and 20 load balancer names must be specified"));
    }
    match names.iter().find(|name| find(world, name).is_none()) {
        Some(missing) => Err(not_found(missing)),
        None => Ok(names),
    }
}
