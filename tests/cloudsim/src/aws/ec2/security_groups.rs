//! Security groups and their inbound rules.

use super::filters::{Filters, Page, listing};
use super::model::{Peer, Rule, SecurityGroup};
use super::permissions::{describes, load, read, write, write_rules};
use super::{tag_set, tags_for, well_formed};
use crate::aws::{ApiError, Call, World, Xml};

const FILTERS: &[&str] = &["group-id", "group-name", "ip-permission.group-id", "vpc-id"];

/// The error for an unknown security group.
pub fn not_found(id: &str) -> ApiError {
    ApiError::new("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))
}

/// Finds a security group of a VPC by its name.
pub fn by_name(world: &World, vpc: &str, name: &str) -> Option<String> {
    let found = world.ec2.groups.iter().find(|(_, group)| group.vpc == vpc && group.name == name);
    found.map(|(id, _)| id.clone())
}

fn known<'a>(world: &'a World, id: &str) -> Result<&'a SecurityGroup, ApiError> {
    if !well_formed(id, "sg-") {
        return Err(ApiError::new("InvalidGroupId.Malformed", format!("Invalid id: \"{id}\" (expecting \"sg-...\")")));
    }
    find(world, id)
}

/// A security group, if it is visible yet.
pub(in crate::aws) fn find<'a>(world: &'a World, id: &str) -> Result<&'a SecurityGroup, ApiError> {
    let found = world.ec2.groups.get(id).filter(|group| world.known("security-group", group.created));
    found.ok_or_else(|| not_found(id))
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, FILTERS)?;
    let ids = call.params.list("GroupId");
    if !ids.is_empty() && call.params.has("MaxResults") {
        let text = "The parameter groupIds cannot be used with the parameter maxResults";
        return Err(ApiError::new("InvalidParameterCombination", text));
    }
    for id in &ids {
        known(world, id)?;
    }
    let page = Page::parse(call, 5..=1000)?;
    let passes = |id: &String, group: &SecurityGroup| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && world.known("security-group", group.created)
            && filters.pass(&group.tags, |name, is| has(id, group, name, is))
    };
    let found = page.take(world.ec2.groups.iter().filter(|(id, group)| passes(id, group)));
    let account = &world.ec2.account;
    Ok(listing("securityGroupInfo", found, |xml, id, group| {
        xml.text("ownerId", account);
        xml.text("groupId", id);
        xml.text("groupName", &group.name);
        xml.text("groupDescription", &group.description);
        xml.text("vpcId", &group.vpc);
        write(xml, "ipPermissions", account, &group.ingress);
        write(xml, "ipPermissionsEgress", account, &group.egress);
        tag_set(xml, &group.tags);
        xml.text("securityGroupArn", &arn(world, id));
    }))
}

fn arn(world: &World, id: &str) -> String {
    format!("arn:aws:ec2:{}:{}:security-group/{id}", world.ec2.region, world.ec2.account)
}

fn has(id: &str, group: &SecurityGroup, name: &str, is: &dyn Fn(&str) -> bool) -> bool {
    match name {
        "group-id" => is(id),
        "group-name" => is(&group.name),
        "ip-permission.group-id" => group.ingress.iter().any(|rule| matches!(&rule.peer, Peer::Group(id) if is(id))),
        "vpc-id" => is(&group.vpc),
        _ => false,
    }
}

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("GroupName")?.to_owned();
    let description = call.params.required("GroupDescription")?.to_owned();
    // No account has a default VPC.
    let vpc = call.params.get("VpcId");
    let vpc = vpc.ok_or_else(|| ApiError::new("VPCIdNotSpecified", "No default VPC for this user"))?.to_owned();
    if !world.ec2.vpcs.contains_key(&vpc) {
        return Err(ApiError::new("InvalidVpcID.NotFound", format!("The vpc ID '{vpc}' does not exist")));
    }
    if name.len() > 255 || name.starts_with("sg-") || name == "default" {
        return Err(ApiError::new(
            "InvalidParameterValue",
            format!("Value ({name}) for parameter groupName is invalid."),
        ));
    }
    if !describes(&description) {
        let text = format!(
            "Value ({description}) for parameter GroupDescription is invalid. Character sets beyond ASCII are not supported."
        );
        return Err(ApiError::new("InvalidParameterValue", text));
    }
    if by_name(world, &vpc, &name).is_some() {
        let text = format!("The security group '{name}' already exists for VPC '{vpc}'");
        return Err(ApiError::new("InvalidGroup.Duplicate", text));
    }
    if world.ec2.groups.len() >= world.options.limits.groups {
        let text = "The maximum number of security groups has been reached.";
        return Err(ApiError::new("SecurityGroupLimitExceeded", text));
    }
    let tags = tags_for(world, call, "security-group")?;
    let id = insert(world, &vpc, &name, &description, tags);
    let mut xml = Xml::new();
    xml.text("groupId", &id);
    if let Some(group) = world.ec2.groups.get(&id) {
        tag_set(&mut xml, &group.tags);
    }
    xml.text("securityGroupArn", &arn(world, &id));
    Ok(xml)
}

/// Creates a security group with the default outbound rule.
pub(super) fn insert(world: &mut World, vpc: &str, name: &str, description: &str, tags: super::Tags) -> String {
    let id = world.new_id("sg-");
    let everything = Rule {
        id: world.new_id("sgr-"),
        protocol: "-1".to_owned(),
        from: None,
        to: None,
        peer: Peer::V4("0.0.0.0/0".to_owned()),
        description: None,
    };
    let group = SecurityGroup {
        name: name.to_owned(),
        description: description.to_owned(),
        vpc: vpc.to_owned(),
        ingress: Vec::new(),
        egress: vec![everything],
        tags,
        created: world.now(),
    };
    world.ec2.groups.insert(id.clone(), group);
    id
}

pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("GroupId")?.to_owned();
    let group = known(world, &id)?;
    if group.name == "default" {
        let text = format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user");
        return Err(ApiError::new("CannotDelete", text));
    }
    let attached = world.ec2.interfaces.values().any(|interface| interface.groups.contains(&id));
    let reference = Peer::Group(id.clone());
    let named = world.ec2.groups.iter().any(|(other, group)| {
        *other != id && group.ingress.iter().chain(&group.egress).any(|rule| rule.peer == reference)
    });
    if attached || named {
        return Err(ApiError::new("DependencyViolation", format!("resource {id} has a dependent object")));
    }
    world.ec2.groups.remove(&id);
    let mut xml = Xml::done();
    xml.text("groupId", &id);
    Ok(xml)
}

/// The security group of a rule call, to change it, and the rules in the call.
fn addressed(world: &World, call: &Call) -> Result<(String, SecurityGroup, Vec<Rule>), ApiError> {
    let id = call.params.required("GroupId")?;
    let group = known(world, id)?.clone();
    let rules = read(world, &call.params, &group.vpc)?;
    Ok((id.to_owned(), group, rules))
}

pub(super) fn authorize(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let (id, mut group, mut added) = addressed(world, call)?;
    for new in &mut added {
        if group.ingress.iter().any(|rule| new.is(rule)) {
            let text = format!("the specified rule {} already exists", new.words());
            return Err(ApiError::new("InvalidPermission.Duplicate", text));
        }
        new.id = world.new_id("sgr-");
        group.ingress.push(new.clone());
    }
    let (v4, v6) = load(&group);
    let limit = world.options.limits.rules_per_group;
    if v4 > limit || v6 > limit {
        let text = "The maximum number of rules per security group has been reached.";
        return Err(ApiError::new("RulesPerSecurityGroupLimitExceeded", text));
    }
    world.ec2.groups.insert(id.clone(), group);
    let mut xml = Xml::done();
    write_rules(&mut xml, "securityGroupRuleSet", &world.ec2.account, &id, &added, false);
    Ok(xml)
}

pub(super) fn revoke(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let rule_ids = call.params.list("SecurityGroupRuleId");
    let mut revoked = Vec::new();
    let (id, mut group) = if rule_ids.is_empty() {
        let (id, mut group, wanted) = addressed(world, call)?;
        for gone in wanted {
            let Some(at) = group.ingress.iter().position(|rule| gone.is(rule)) else {
                // unverified for default VPCs, where AWS documents an answer without an error.
                let text = "The specified rule does not exist in this security group.";
                return Err(ApiError::new("InvalidPermission.NotFound", text));
            };
            revoked.push(group.ingress.remove(at));
        }
        (id, group)
    } else {
        let id = call.params.required("GroupId")?.to_owned();
        let group = known(world, &id)?.clone();
        if let Some(unknown) = rule_ids.iter().find(|id| !group.ingress.iter().any(|rule| rule.id == **id)) {
            let text = format!("The security group rule ID '{unknown}' does not exist");
            return Err(ApiError::new("InvalidSecurityGroupRuleId.NotFound", text));
        }
        (id, group)
    };
    group.ingress.retain(|rule| {
        let stays = !rule_ids.contains(&rule.id.as_str());
        if !stays {
            revoked.push(rule.clone());
        }
        stays
    });
    world.ec2.groups.insert(id.clone(), group);
    let mut xml = Xml::done();
    write_rules(&mut xml, "revokedSecurityGroupRuleSet", &world.ec2.account, &id, &revoked, true);
    Ok(xml)
}

pub(super) fn update_descriptions(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let (id, mut group, wanted) = addressed(world, call)?;
    for new in wanted {
        let Some(rule) = group.ingress.iter_mut().find(|rule| new.is(rule)) else {
            let text = "The specified rule does not exist in this security group.";
            return Err(ApiError::new("InvalidPermission.NotFound", text));
        };
        rule.description = new.description;
    }
    world.ec2.groups.insert(id, group);
    Ok(Xml::done())
}
