//! Classic Load Balancers (API 2012-06-01).
//!
//! Documentation of AWS: <https://docs.aws.amazon.com/elasticloadbalancing/2012-06-01/APIReference/>.

mod attributes;
mod balancers;
mod instances;
mod listeners;
mod policies;

use super::{ApiError, Call, World, Xml};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElbState {
    /// The balancers by name.
    pub balancers: BTreeMap<String, Balancer>,
    /// The ARNs of existing certificates, in ACM or IAM; also used by Network Load Balancers.
    pub certificates: BTreeSet<String>,
}

/// A Classic Load Balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    pub name: String,
    pub dns_name: String,
    /// Whether the scheme is `internal`.
    pub internal: bool,
    /// The VPC of the subnets.
    pub vpc: String,
    /// The network interface in each subnet.
    pub subnets: BTreeMap<String, String>,
    pub groups: Vec<String>,
    /// The listeners by load balancer port.
    pub listeners: BTreeMap<u16, Listener>,
    /// The policies of instance ports that have any.
    pub backends: BTreeMap<u16, Vec<String>>,
    /// The policies by name.
    pub policies: BTreeMap<String, Policy>,
    /// The registered instances, oldest first.
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
    /// The same values as for `protocol`.
    pub instance_protocol: String,
    /// The port on the instances.
    pub instance_port: u16,
    /// The ARN of the certificate, for HTTPS and SSL.
    pub certificate: Option<String>,
    /// The names of the policies.
    pub policies: Vec<String>,
}

/// A policy: its type and attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The type, e.g. `ProxyProtocolPolicyType`.
    pub kind: String,
    /// The names and values as given.
    pub attributes: Vec<(String, String)>,
}

/// A health check with a normalized target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// `TCP:80`, `HTTP:80/path`.
    pub target: String,
    /// The interval in seconds.
    pub interval: u16,
    /// The timeout in seconds.
    pub timeout: u16,
    /// The number of consecutive failures.
    pub unhealthy: u16,
    /// The number of consecutive successes.
    pub healthy: u16,
}

/// The attributes, with AWS's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub cross_zone: bool,
    pub draining: bool,
    /// The connection draining timeout in seconds. Also reported while draining is disabled.
    pub draining_timeout: u16,
    /// The idle timeout in seconds.
    pub idle_timeout: u16,
    pub access_log: AccessLog,
    /// The attribute `elb.http.desyncmitigationmode`.
    pub desync_mode: String,
}

/// The settings of the access log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLog {
    pub enabled: bool,
    /// The interval in minutes: 5 or 60.
    pub emit_interval: Option<u16>,
    pub bucket: Option<String>,
    /// The prefix in the bucket.
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

/// Executes a call.
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
        "SetLoadBalancerListenerSSLCertificate" => listeners::set_certificate(world, call),
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
    /// Adds a certificate.
    pub fn add_certificate(&mut self, arn: &str) {
        self.certificates.insert(arn.to_owned());
    }
}

/// The balancer with the name in the request, if it exists and is visible.
fn named<'a>(world: &'a World, call: &Call) -> Result<&'a Balancer, ApiError> {
    let name = call.params.required("LoadBalancerName")?;
    find(world, name).ok_or_else(|| not_found(name))
}

/// Like [`named`], but mutable.
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
