//! EC2 (API 2016-11-15): instances, VPCs, security groups, routes, volumes, tags.

pub mod filters;
mod instances;
mod interfaces;
pub mod lifecycle;
pub mod model;
pub mod network;
mod permissions;
mod routes;
pub mod security_groups;
pub mod seed;
mod subnets;
mod tags;
mod volumes;

pub(super) use instances::known as known_instance;
pub use model::{Ec2State, Instance, InstanceState, Interface, SecurityGroup, Subnet, Tags};
pub(super) use tags::kind;

use super::{ApiError, Call, World, Xml};
use jiff::Timestamp;
use model::Token;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A scheduled event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// An instance reaches its next state.
    Instance {
        id: String,
        /// The next state.
        to: InstanceState,
    },
    /// A terminated instance is removed.
    Forget(String),
    /// An interface is deleted.
    Release(String),
}

/// Executes an event that is due.
pub fn settle(world: &mut World, due: &Due) {
    match due {
        Due::Instance { id, to } => lifecycle::reach(world, id, *to),
        Due::Forget(id) => lifecycle::forget(world, id),
        Due::Release(id) => network::remove_interface(world, id),
    }
}

/// Executes a call.
pub fn handle(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    if call.params.flag("DryRun")? == Some(true) {
        // On a copy: a dry run checks exactly what the run would check.
        carry_out(&mut world.clone(), call)?;
        let text = "Request would have succeeded, but DryRun flag is set.";
        return Err(ApiError::with_status(412, "DryRunOperation", text));
    }
    carry_out(world, call)
}

fn carry_out(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    match call.action.as_str() {
        "DescribeInstances" => instances::describe(world, call),
        "DescribeInstanceTopology" => instances::describe_topology(world, call),
        "RunInstances" => lifecycle::run(world, call),
        "TerminateInstances" => lifecycle::terminate(world, call),
        "StopInstances" => lifecycle::stop(world, call),
        "ModifyInstanceAttribute" => lifecycle::modify_attribute(world, call),
        "DescribeNetworkInterfaces" => interfaces::describe(world, call),
        "ModifyNetworkInterfaceAttribute" => interfaces::modify_attribute(world, call),
        "DescribeAvailabilityZones" => subnets::describe_zones(world, call),
        "DescribeVpcs" => subnets::describe_vpcs(world, call),
        "CreateVpc" => subnets::create_vpc(world, call),
        "DescribeSubnets" => subnets::describe(world, call),
        "CreateSubnet" => subnets::create(world, call),
        "CreateInternetGateway" => subnets::create_gateway(world, call),
        "AttachInternetGateway" => subnets::attach_gateway(world, call),
        "AllocateAddress" => volumes::allocate_address(world, call),
        "DescribeVolumes" => volumes::describe(world, call),
        "CreateVolume" => volumes::create(world, call),
        "DescribeRouteTables" => routes::describe(world, call),
        "CreateRoute" => routes::create(world, call),
        "ReplaceRoute" => routes::replace(world, call),
        "DeleteRoute" => routes::delete(world, call),
        "DescribeSecurityGroups" => security_groups::describe(world, call),
        "CreateSecurityGroup" => security_groups::create(world, call),
        "DeleteSecurityGroup" => security_groups::delete(world, call),
        "AuthorizeSecurityGroupIngress" => security_groups::authorize(world, call),
        "RevokeSecurityGroupIngress" => security_groups::revoke(world, call),
        "UpdateSecurityGroupRuleDescriptionsIngress" => security_groups::update_descriptions(world, call),
        "CreateTags" => tags::create(world, call),
        "DeleteTags" => tags::delete(world, call),
        other => Err(ApiError::unknown_action(other)),
    }
}

/// The objects that an earlier call with the same idempotency token created. Its parameters must be the same.
fn made_before(world: &World, call: &Call) -> Result<Option<Vec<String>>, ApiError> {
    let Some(key) = token_key(call) else { return Ok(None) };
    match world.ec2.tokens.get(&key) {
        None => Ok(None),
        Some(token) if token.params == call.params.summary(usize::MAX) => {
            call.params.read_all();
            Ok(Some(token.made.clone()))
        }
        Some(_) => Err(ApiError::new(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
        )),
    }
}

/// Stores the objects that a call created under its idempotency token, if it has one.
fn remember(world: &mut World, call: &Call, made: &[String]) {
    if let Some(key) = token_key(call) {
        let params = call.params.summary(usize::MAX);
        world.ec2.tokens.insert(key, Token { params, made: made.to_vec() });
    }
}

fn token_key(call: &Call) -> Option<String> {
    let token = call.params.get("ClientToken").filter(|token| !token.is_empty())?;
    Some(format!("{}/{token}", call.action))
}

/// The tags that a create call sets on resources of a kind.
fn tags_for(world: &World, call: &Call, kind: &str) -> Result<Tags, ApiError> {
    let mut tags = Tags::new();
    for spec in call.params.items("TagSpecification") {
        if spec.required("ResourceType")? == kind {
            tags.extend(spec.tags("Tag")?);
        }
    }
    tags::check(world, &tags, tags.len())?;
    Ok(tags)
}

fn tag_set(xml: &mut Xml, tags: &Tags) {
    if tags.is_empty() {
        return;
    }
    xml.list("tagSet", "item", tags, |xml, (key, value)| {
        xml.text("key", key);
        xml.text("value", value);
    });
}

/// A time in EC2's format.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

/// The error for unknown IDs: EC2 names all of them, and rejects the whole call.
fn unknown_ids(code: &str, what: &str, ids: &[&str]) -> ApiError {
    let text = match ids {
        [one] => format!("The {what} ID '{one}' does not exist"),
        many => format!("The {what} IDs '{}' do not exist", many.join(", ")),
    };
    ApiError::new(code, text)
}

/// Checks that objects with all these IDs exist.
fn check_known(ids: &[&str], code: &str, what: &str, known: impl Fn(&str) -> bool) -> Result<(), ApiError> {
    let unknown: BTreeSet<&str> = ids.iter().copied().filter(|id| !known(id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(unknown_ids(code, what, &Vec::from_iter(unknown)))
}

/// Whether an ID has the format of its kind: prefix and 8 or 17 hexadecimal digits.
fn well_formed(id: &str, prefix: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|digits| {
        [8, 17].contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests;
