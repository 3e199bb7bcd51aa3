//! Instances of Classic Load Balancers and their health.

use super::{Balancer, HealthCheck, named, named_mut};
use crate::aws::balancing::{contradiction, invalid};
use crate::aws::ec2::known_instance;
use crate::aws::query::Params;
use crate::aws::{ApiError, Call, World, Xml, lbnet};

impl HealthCheck {
    pub(super) fn write(&self, xml: &mut Xml) {
        xml.text("Target", &self.target);
        xml.value("Interval", self.interval);
        xml.value("Timeout", self.timeout);
        xml.value("UnhealthyThreshold", self.unhealthy);
        xml.value("HealthyThreshold", self.healthy);
    }

    fn read(params: &Params) -> Result<Self, ApiError> {
        let check = HealthCheck {
            target: target(params.required("Target")?)?,
            interval: params.required_within("Interval", 5, 300)?,
            timeout: params.required_within("Timeout", 2, 60)?,
            unhealthy: params.required_within("UnhealthyThreshold", 2, 10)?,
            healthy: params.required_within("HealthyThreshold", 2, 10)?,
        };
        if check.timeout >= check.interval {
            return Err(invalid("HealthCheck Timeout must be less than HealthCheck Interval"));
        }
        Ok(check)
    }
}

/// Parses `PROTOCOL:PORT[/PATH]`; the protocol becomes upper case. A path is required for HTTP and HTTPS, else invalid.
/// invalid.
fn target(text: &str) -> Result<String, ApiError> {
    let bad = || invalid(format!("HealthCheck Target '{text}' must begin with one of HTTP, TCP, HTTPS, SSL"));
    let (protocol, rest) = text.split_once(':').ok_or_else(bad)?;
    let protocol = protocol.to_ascii_uppercase();
    let at = rest.find('/').unwrap_or(rest.len());
    let (port, path) = rest.split_at(at);
    port.parse::<u16>()
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| invalid(format!("HealthCheck Target '{text}' must have a port between 1 and 65535")))?;
    match (protocol.as_str(), path.is_empty()) {
        ("HTTP" | "HTTPS", false) | ("TCP" | "SSL", true) => Ok(format!("{protocol}:{port}{path}")),
        ("HTTP" | "HTTPS", true) => {
            Err(invalid(format!("HealthCheck {protocol} Target must specify a port followed by a path")))
        }
        ("TCP" | "SSL", false) => Err(invalid(format!("HealthCheck {protocol} Target must not have a path"))),
        _ => Err(bad()),
    }
}

pub(super) fn configure_health_check(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let check = HealthCheck::read(call.params.sub("HealthCheck").ok_or_else(|| ApiError::missing("HealthCheck"))?)?;
    let mut xml = Xml::new();
    xml.elem("HealthCheck", |xml| check.write(xml));
    named_mut(world, call)?.health_check = check;
    Ok(xml)
}

impl Balancer {
    /// The registered instances; terminated ones are removed automatically.
    pub(super) fn alive<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a String> {
        self.instances.iter().filter(|id| lbnet::alive(world, id).is_some())
    }
}

fn ids(call: &Call) -> Result<Vec<String>, ApiError> {
    call.params.items("Instances").into_iter().map(|item| item.required("InstanceId").map(str::to_owned)).collect()
}

fn unknown(id: &str) -> ApiError {
    ApiError::new("InvalidInstance", format!("Could not find EC2 instance {id}."))
}

/// Registers all instances or none; registered instances keep their position.
pub(super) fn register(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let balancer = named(world, call)?;
    let mut instances: Vec<String> = balancer.alive(world).cloned().collect();
    for id in ids(call)? {
        let instance = lbnet::alive(world, &id).ok_or_else(|| unknown(&id))?;
        if instance.vpc != balancer.vpc {
            let text = format!("EC2 instance {id} is not in the same VPC as ELB.");
            return Err(ApiError::new("InvalidInstance", text));
        }
        if !instances.contains(&id) {
            instances.push(id);
        }
    }
    if instances.len() > world.options.limits.classic_instances {
        return Err(contradiction("The quota for the number of registered instances has been reached"));
    }
    store(world, call, instances)
}

/// unverified: an existing instance that is not registered is ignored.
pub(super) fn deregister(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let balancer = named(world, call)?;
    let gone = ids(call)?;
    if let Some(id) = gone.iter().find(|id| !balancer.instances.contains(id) && known_instance(world, id).is_none()) {
        return Err(unknown(id));
    }
    let instances = balancer.alive(world).filter(|id| !gone.contains(id)).cloned().collect();
    store(world, call, instances)
}

fn store(world: &mut World, call: &Call, instances: Vec<String>) -> Result<Xml, ApiError> {
    let mut xml = Xml::new();
    xml.list("Instances", "member", &instances, |xml, id| xml.text("InstanceId", id));
    named_mut(world, call)?.instances = instances;
    Ok(xml)
}
