//! Network Load Balancers and target groups (API 2015-12-01). Other kinds of load balancers are rejected.
//!
//! Documentation of AWS: <https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/>.

mod attributes;
mod balancers;
mod groups;
mod health;
mod listeners;
mod tags;
mod targets;

use super::{ApiError, Call, World, Xml};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElbV2State {
    /// The balancers by ARN.
    pub balancers: BTreeMap<String, Balancer>,
    /// The groups by ARN.
    pub groups: BTreeMap<String, TargetGroup>,
    /// The listeners by ARN.
    pub listeners: BTreeMap<String, Listener>,
    /// The instances whose health check fails, in every group.
    pub unhealthy: BTreeSet<String>,
}

/// A Network Load Balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    /// `arn:…:loadbalancer/net/NAME/ID`.
    pub arn: String,
    pub name: String,
    pub dns_name: String,
    /// Whether the scheme is `internal`.
    pub internal: bool,
    /// The VPC of the subnets.
    pub vpc: String,
    /// The mappings by subnet.
    pub subnets: BTreeMap<String, Mapping>,
    /// The security groups. A balancer that is created without any can never get one.
    pub groups: Vec<String>,
    /// Whether it was created with security groups.
    pub born_with_groups: bool,
    /// `ipv4` or `dualstack`.
    pub address_type: String,
    /// `provisioning`, `active`, `active_impaired`, `failed`.
    pub state: String,
    /// The attributes with non-default values.
    pub attributes: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub created: Timestamp,
}

/// The part of a balancer in a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub interface: String,
    /// The allocation ID of an Elastic IP address.
    pub allocation: Option<String>,
    /// The address of an internal balancer.
    pub private_ipv4: Option<String>,
}

/// A target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGroup {
    /// `arn:…:targetgroup/NAME/ID`.
    pub arn: String,
    pub name: String,
    /// The settings at creation; the health check can change.
    pub settings: Settings,
    /// The targets, by instance (or address) and port.
    pub targets: BTreeMap<String, Target>,
    /// The attributes with non-default values.
    pub attributes: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub created: Timestamp,
    /// Deleted balancers that the group still shows, by ARN, with the end of that.
    #[serde(default)]
    pub former: BTreeMap<String, Timestamp>,
}

/// The settings of a target group; a repeated creation with the same settings is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `TCP`, `TLS`, `UDP`, `TCP_UDP`.
    pub protocol: String,
    /// The default port of targets.
    pub port: u16,
    /// The VPC of the targets.
    pub vpc: String,
    /// `instance` or `ip`.
    pub target_type: String,
    /// `ipv4` or `ipv6`.
    pub address_type: String,
    pub check: Check,
}

/// The health check of a target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `TCP`, `HTTP`, `HTTPS`.
    pub protocol: String,
    /// `traffic-port` or a number.
    pub port: String,
    /// The path, for HTTP and HTTPS.
    pub path: Option<String>,
    /// The status codes, for HTTP and HTTPS.
    pub matcher: Option<String>,
    /// The interval in seconds.
    pub interval: u16,
    /// The timeout in seconds.
    pub timeout: u16,
    /// The number of consecutive successes.
    pub healthy: u16,
    /// The number of consecutive failures.
    pub unhealthy: u16,
}

/// A target of a target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The instance ID or address.
    pub id: String,
    pub port: u16,
    /// The time of registration.
    pub since: Timestamp,
    /// The end of deregistration, if it is in progress.
    pub draining_until: Option<Timestamp>,
}

/// A listener. It has no rules except the default action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `arn:…:listener/net/NAME/ID/ID`.
    pub arn: String,
    /// The ARN of the balancer.
    pub balancer: String,
    pub port: u16,
    /// `TCP`, `TLS`, `UDP`, `TCP_UDP`.
    pub protocol: String,
    /// The ARN of the certificate, with TLS.
    pub certificate: Option<String>,
    /// The security policy, with TLS.
    pub policy: Option<String>,
    /// The ALPN policy, with TLS: `None`, `HTTP1Only`, …
    pub alpn: Option<String>,
    /// The ARN of the target group.
    pub group: String,
    pub tags: BTreeMap<String, String>,
}

/// A scheduled event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// A balancer becomes active.
    Activate(String),
}

/// Executes an event that is due.
pub fn settle(world: &mut World, due: &Due) {
    match due {
        Due::Activate(arn) => {
            if let Some(balancer) = world.elbv2.balancers.get_mut(arn)
                && balancer.state == "provisioning"
            {
                "active".clone_into(&mut balancer.state);
            }
        }
    }
}

/// Executes a call.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.action.as_str() {
        "CreateLoadBalancer" => balancers::create(world, call),
        "DescribeLoadBalancers" => balancers::describe(world, call),
        "DeleteLoadBalancer" => balancers::delete(world, call),
        "SetSecurityGroups" => balancers::set_groups(world, call),
        "DescribeLoadBalancerAttributes" => attributes::describe_balancer(world, call),
        "ModifyLoadBalancerAttributes" => attributes::modify_balancer(world, call),
        "DescribeTargetGroupAttributes" => attributes::describe_group(world, call),
        "ModifyTargetGroupAttributes" => attributes::modify_group(world, call),
        "CreateTargetGroup" => groups::create(world, call),
        "DescribeTargetGroups" => groups::describe(world, call),
        "ModifyTargetGroup" => groups::modify(world, call),
        "DeleteTargetGroup" => groups::delete(world, call),
        "CreateListener" => listeners::create(world, call),
        "DescribeListeners" => listeners::describe(world, call),
        "ModifyListener" => listeners::modify(world, call),
        "DeleteListener" => listeners::delete(world, call),
        "RegisterTargets" => targets::register(world, call),
        "DeregisterTargets" => targets::deregister(world, call),
        "DescribeTargetHealth" => health::describe(world, call),
        "AddTags" => tags::add(world, call),
        "DescribeTags" => tags::describe(world, call),
        other => Err(ApiError::unknown_action(other)),
    }
}

impl ElbV2State {
    /// The balancer with this name.
    pub fn balancer_named(&self, name: &str) -> Option<&Balancer> {
        self.balancers.values().find(|balancer| balancer.name == name)
    }

    /// The balancers whose listeners currently forward to a group.
    fn balancers_of<'a>(&'a self, group: &'a str) -> BTreeSet<&'a str> {
        let listeners = self.listeners.values().filter(|listener| listener.group == group);
        listeners.map(|listener| listener.balancer.as_str()).collect()
    }

    /// The balancers that a group shows.
    fn shown_balancers<'a>(&'a self, group: &'a TargetGroup, now: Timestamp) -> BTreeSet<&'a str> {
        let former = group.former.iter().filter(|(_, until)| **until > now).map(|(arn, _)| arn.as_str());
        self.balancers_of(&group.arn).into_iter().chain(former).collect()
    }
}

fn balancer<'a>(world: &'a World, arn: &str) -> Result<&'a Balancer, ApiError> {
    check_arn(arn, "loadbalancer")?;
    let found = world.elbv2.balancers.get(arn).filter(|balancer| world.known("load-balancer", balancer.created));
    found.ok_or_else(|| ApiError::new("LoadBalancerNotFound", format!("Load balancer '{arn}' not found")))
}

fn group<'a>(world: &'a World, arn: &str) -> Result<&'a TargetGroup, ApiError> {
    check_arn(arn, "targetgroup")?;
    let found = world.elbv2.groups.get(arn).filter(|group| world.known("target-group", group.created));
    found.ok_or_else(|| ApiError::new("TargetGroupNotFound", format!("Target group '{arn}' not found")))
}

fn listener<'a>(world: &'a World, arn: &str) -> Result<&'a Listener, ApiError> {
    check_arn(arn, "listener")?;
    let found = world.elbv2.listeners.get(arn);
    found.ok_or_else(|| ApiError::new("ListenerNotFound", format!("Listener '{arn}' not found")))
}

/// A text that is not an ARN of this kind has another error than an unknown ARN.
fn check_arn(arn: &str, kind: &str) -> Result<(), ApiError> {
    let mut parts = arn.splitn(6, ':');
    let fits = parts.next() == Some("arn")
        && parts.nth(1) == Some("elasticloadbalancing")
        && parts.nth(2).is_some_and(|resource| resource.split('/').next() == Some(kind));
    if fits {
        return Ok(());
    }
    let what = match kind {
        "loadbalancer" => "load balancer",
        "targetgroup" => "target group",
        other => other,
    };
    Err(super::balancing::invalid(format!("'{arn}' is not a valid {what} ARN")))
}

/// `arn:aws:elasticloadbalancing:REGION:ACCOUNT:`, the prefix of the resource.
fn arn_prefix(world: &World) -> String {
    let region = &world.options.region;
    format!("arn:{}:elasticloadbalancing:{region}:{}:", super::balancing::partition(region), world.options.account)
}

#[cfg(test)]
mod tests;
