//! Classic load balancers (API 2012-06-01).
//!
//! What AWS documents: <https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/>.

mod attributes;
mod balancers;
mod instances;
mod listeners;
mod policies;

use super::{ApiError, Call, World, Xml};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// State of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElbState {
    /// By name.
    pub balancers: BTreeMap<String, Balancer>,
    /// ARNs of the certificates that exist, in ACM or IAM; network balancers take them from here too.
    pub certificates: BTreeSet<String>,
}

/// A classic load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    pub name: String,
    pub dns_name: String,
    /// Scheme `internal`.
    pub internal: bool,
    /// VPC of the subnets.
    pub vpc: String,
    /// Subnet to its interface there.
    pub subnets: BTreeMap<String, String>,
    pub groups: Vec<String>,
    /// By balancer port.
    pub listeners: BTreeMap<u16, Listener>,
    /// Policies of instance ports, where there are any.
    pub backends: BTreeMap<u16, Vec<String>>,
    /// By name.
    pub policies: BTreeMap<String, Policy>,
    /// Registered instances, oldest first.
    pub instances: Vec<String>,
    pub health_check: HealthCheck,
    pub attributes: Attributes,
    pub tags: BTreeMap<String, String>,
    pub created: Timestamp,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `HTTP`, `HTTPS`, `TCP`, `SSL`.
    pub protocol: String,
    /// The same words.
    pub instance_protocol: String,
    /// Port on the instances.
    pub instance_port: u16,
    /// ARN, with HTTPS and SSL.
    pub certificate: Option<String>,
    /// Names of policies.
    pub policies: Vec<String>,
}

/// A policy: type and attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// For instance `ProxyProtocolPolicyType`.
    pub kind: String,
    /// Names and values as given.
    pub attributes: Vec<(String, String)>,
}

/// A health check, target normalised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// `TCP:80`, `HTTP:80/path`.
    pub target: String,
    /// Seconds.
    pub interval: u16,
    /// Seconds.
    pub timeout: u16,
    /// Checks in a row.
    pub unhealthy: u16,
    /// Checks in a row.
    pub healthy: u16,
}

/// Attributes with AWS's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub cross_zone: bool,
    pub draining: bool,
    /// Of connection draining, seconds. Reported also while that is off.
    pub draining_timeout: u16,
    /// Seconds.
    pub idle_timeout: u16,
    pub access_log: AccessLog,
    /// `elb.http.desyncmitigationmode`.
    pub desync_mode: String,
}

/// Access log settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLog {
    pub enabled: bool,
    /// Minutes: 5 or 60.
    pub emit_interval: Option<u16>,
    pub bucket: Option<String>,
    /// Prefix in the bucket.
    pub prefix: Option<String>,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            cross_zone: false,
            draining: false,
            draining_timeout: 300,
            idle_timeout: 60,
            access_log: AccessLog::default(),
            desync_mode: "defensive".to_owned(),
        }
    }
}

/// Carries out a call.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.action.as_str() {
        "CreateLoadBalancer" => balancers::create(world, call),
        "DescribeLoadBalancers" => balancers::describe(world, call),
        "DeleteLoadBalancer" => balancers::delete(world, call),
        "AttachLoadBalancerToSubnets" => balancers::attach(world, call),
        "DetachLoadBalancerFromSubnets" => balancers::detach(world, call),
        "ApplySecurityGroupsToLoadBalancer" => balancers::apply_groups(world, call),
        "CreateLoadBalancerListeners" => listeners::create(world, call),
        "DeleteLoadBalancerListeners" => listeners::delete(world, call),
        "CreateLoadBalancerPolicy" => policies::create(world, call),
        "DescribeLoadBalancerPolicies" => policies::describe(world, call),
        "SetLoadBalancerPoliciesForBackendServer" => policies::set_backend(world, call),
        "SetLoadBalancerPoliciesOfListener" => policies::set_listener(world, call),
        "ConfigureHealthCheck" => instances::configure_health_check(world, call),
        "RegisterInstancesWithLoadBalancer" => instances::register(world, call),
        "DeregisterInstancesFromLoadBalancer" => instances::deregister(world, call),
        "DescribeLoadBalancerAttributes" => attributes::describe(world, call),
        "ModifyLoadBalancerAttributes" => attributes::modify(world, call),
        "AddTags" => attributes::add_tags(world, call),
        "DescribeTags" => attributes::describe_tags(world, call),
        other => Err(ApiError::unknown_action(other)),
    }
}

impl ElbState {
    /// Makes a certificate known.
    pub fn add_certificate(&mut self, arn: &str) {
        self.certificates.insert(arn.to_owned());
    }
}

/// The balancer that the request names, if it is there and known yet.
fn named<'a>(world: &'a World, call: &Call) -> Result<&'a Balancer, ApiError> {
    let name = call.params.required("LoadBalancerName")?;
    find(world, name).ok_or_else(|| not_found(name))
}

/// The same, to change it.
fn named_mut<'a>(world: &'a mut World, call: &Call) -> Result<&'a mut Balancer, ApiError> {
    let name = named(world, call)?.name.clone();
    world.elb.balancers.get_mut(&name).ok_or_else(|| not_found(&name))
}

fn find<'a>(world: &'a World, name: &str) -> Option<&'a Balancer> {
    world.elb.balancers.get(name).filter(|balancer| world.known("load-balancer", balancer.created))
}

fn not_found(name: &str) -> ApiError {
    ApiError::new("LoadBalancerNotFound", format!("There is no ACTIVE Load Balancer named '{name}'"))
}

#[cfg(test)]
mod tests;
