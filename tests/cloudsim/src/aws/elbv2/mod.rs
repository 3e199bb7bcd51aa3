//! Network load balancers and target groups (API 2015-12-01). Other kinds of balancers are refused.
//!
//! What AWS documents: <https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/>.

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

/// State of the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElbV2State {
    /// By ARN.
    pub balancers: BTreeMap<String, Balancer>,
    /// By ARN.
    pub groups: BTreeMap<String, TargetGroup>,
    /// By ARN.
    pub listeners: BTreeMap<String, Listener>,
    /// Instances whose health check fails, in every group.
    pub unhealthy: BTreeSet<String>,
}

/// A network load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancer {
    /// `arn:…:loadbalancer/net/NAME/ID`.
    pub arn: String,
    pub name: String,
    pub dns_name: String,
    /// Scheme `internal`.
    pub internal: bool,
    /// VPC of the subnets.
    pub vpc: String,
    /// By subnet.
    pub subnets: BTreeMap<String, Mapping>,
    /// Security groups. One made without any can never get one.
    pub groups: Vec<String>,
    /// Whether it was made with security groups.
    pub born_with_groups: bool,
    /// `ipv4` or `dualstack`.
    pub address_type: String,
    /// `provisioning`, `active`, `active_impaired`, `failed`.
    pub state: String,
    /// What is not at its default.
    pub attributes: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub created: Timestamp,
}

/// How a balancer is in a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub interface: String,
    /// Elastic address.
    pub allocation: Option<String>,
    /// Address of an internal balancer.
    pub private_ipv4: Option<String>,
}

/// A target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGroup {
    /// `arn:…:targetgroup/NAME/ID`.
    pub arn: String,
    pub name: String,
    /// What it was made with; the health check can change.
    pub settings: Settings,
    /// Targets, by instance (or address) and port.
    pub targets: BTreeMap<String, Target>,
    /// What is not at its default.
    pub attributes: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub created: Timestamp,
}

/// Settings of a target group; two creations with equal ones are one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `TCP`, `TLS`, `UDP`, `TCP_UDP`.
    pub protocol: String,
    /// Port of targets that have none of their own.
    pub port: u16,
    /// Where the targets are.
    pub vpc: String,
    /// `instance` or `ip`.
    pub target_type: String,
    /// `ipv4` or `ipv6`.
    pub address_type: String,
    pub check: Check,
}

/// Health check of a target group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `TCP`, `HTTP`, `HTTPS`.
    pub protocol: String,
    /// `traffic-port` or a number.
    pub port: String,
    /// With HTTP and HTTPS.
    pub path: Option<String>,
    /// Status codes, with HTTP and HTTPS.
    pub matcher: Option<String>,
    /// Seconds.
    pub interval: u16,
    /// Seconds.
    pub timeout: u16,
    /// Checks in a row.
    pub healthy: u16,
    /// Checks in a row.
    pub unhealthy: u16,
}

/// A target of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Instance ID or address.
    pub id: String,
    pub port: u16,
    /// Registered at.
    pub since: Timestamp,
    /// Being deregistered until then.
    pub draining_until: Option<Timestamp>,
}

/// A listener. There are no rules besides the default action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `arn:…:listener/net/NAME/ID/ID`.
    pub arn: String,
    /// ARN of the balancer.
    pub balancer: String,
    pub port: u16,
    /// `TCP`, `TLS`, `UDP`, `TCP_UDP`.
    pub protocol: String,
    /// ARN, with TLS.
    pub certificate: Option<String>,
    /// Security policy, with TLS.
    pub policy: Option<String>,
    /// `None`, `HTTP1Only`, …, with TLS.
    pub alpn: Option<String>,
    /// ARN of the group that it forwards to.
    pub group: String,
    pub tags: BTreeMap<String, String>,
}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// A balancer becomes active.
    Activate(String),
}

/// Lets something happen that was due.
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

/// Carries out a call.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.action.as_str() {
        "CreateLoadBalancer" => balancers::create(world, call),
        "DescribeLoadBalancers" => balancers::describe(world, call),
        "DeleteLoadBalancer" => balancers::delete(world, call),
        "SetSecurityGroups" => balancers::set_groups(world, call),
        "SetSubnets" => balancers::set_subnets(world, call),
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
    /// The balancer of a name.
    pub fn balancer_named(&self, name: &str) -> Option<&Balancer> {
        self.balancers.values().find(|balancer| balancer.name == name)
    }

    /// Puts a balancer into a state that AWS alone decides on, such as `active_impaired` or `failed`.
    /// Whether there is one of that name.
    pub fn set_state(&mut self, name: &str, state: &str) -> bool {
        let found = self.balancers.values_mut().find(|balancer| balancer.name == name);
        found.map(|balancer| state.clone_into(&mut balancer.state)).is_some()
    }

    /// The balancers whose listeners forward to a group now.
    fn balancers_of<'a>(&'a self, group: &'a str) -> BTreeSet<&'a str> {
        let listeners = self.listeners.values().filter(|listener| listener.group == group);
        listeners.map(|listener| listener.balancer.as_str()).collect()
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

/// A text that is no ARN of the kind gets another error than an unknown ARN.
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

/// `arn:aws:elasticloadbalancing:REGION:ACCOUNT:` before the resource.
fn arn_prefix(world: &World) -> String {
    let region = &world.options.region;
    format!("arn:{}:elasticloadbalancing:{region}:{}:", super::balancing::partition(region), world.options.account)
}

#[cfg(test)]
mod tests;
