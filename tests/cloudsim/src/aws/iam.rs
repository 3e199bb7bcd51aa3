//! IAM policies: the calls that they allow, by action, resource and tags. The resources of an action are those of the
//! Service Authorization Reference, <https://docs.aws.amazon.com/service-authorization/latest/reference/>.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::call::mutating;
use super::ec2::Tags;
use super::{Call, Service, World};

/// A policy document of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Policy {
    version: String,
    statement: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Statement {
    #[serde(default)]
    sid: String,
    effect: Effect,
    action: OneOrMore,
    resource: OneOrMore,
    #[serde(default)]
    condition: BTreeMap<Operator, BTreeMap<String, OneOrMore>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Effect {
    Allow,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Operator {
    StringEquals,
    StringLike,
    /// Whether the key is absent.
    Null,
}

/// What a call does to one resource.
struct Access {
    action: String,
    arn: String,
    keys: BTreeMap<String, String>,
}

impl OneOrMore {
    fn any(&self, mut is: impl FnMut(&str) -> bool) -> bool {
        match self {
            Self::One(one) => is(one),
            Self::More(more) => more.iter().any(|one| is(one)),
        }
    }
}

impl Statement {
    fn allows(&self, access: &Access) -> bool {
        let holds = |operator: Operator, key: &str, values: &OneOrMore| {
            let value = access.keys.get(key);
            values.any(|wanted| match operator {
                Operator::StringEquals => value.is_some_and(|value| value == wanted),
                Operator::StringLike => value.is_some_and(|value| is_like(value, wanted)),
                Operator::Null => value.is_none() == (wanted == "true"),
            })
        };
        self.action.any(|action| is_like(&access.action, action))
            && self.resource.any(|resource| is_like(&access.arn, resource))
            && self
                .condition
                .iter()
                .all(|(operator, keys)| keys.iter().all(|(key, values)| holds(*operator, key, values)))
    }
}

/// Whether the text matches a pattern with `*` and `?`.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return text.is_empty() };
    let (rest, mut next) = (pattern.get(first.len_utf8()..).unwrap_or_default(), text.chars());
    match (first, next.next()) {
        ('*', Some(_)) => is_like(text, rest) || is_like(next.as_str(), pattern),
        ('*', None) => is_like(text, rest),
        (one, Some(found)) => (one == '?' || one == found) && is_like(next.as_str(), rest),
        (_, None) => false,
    }
}

/// The action for which no policy allows the call.
pub(super) fn refused(world: &World, call: &Call) -> Option<String> {
    let policies = &world.options.policies;
    let statements = || policies.iter().flat_map(|policy| &policy.statement);
    let is_allowed = |access: &Access| policies.is_empty() || statements().any(|statement| statement.allows(access));
    accesses(world, call).into_iter().find(|access| !is_allowed(access)).map(|access| access.action)
}

/// The resources of a call. Whether they exist is checked later.
fn accesses(world: &World, call: &Call) -> Vec<Access> {
    let tags = request_tags(call);
    let access = |action: &str, arn: String, of: Option<Tags>| {
        let of = of.unwrap_or_default().into_iter().map(|(key, value)| (format!("aws:ResourceTag/{key}"), value));
        let sent = tags.iter().map(|(key, value)| (format!("aws:RequestTag/{key}"), value.clone()));
        let service = call.service.iam();
        Access { action: format!("{service}:{action}"), arn, keys: of.chain(sent).collect() }
    };
    let (service, action) = (call.service, call.action.as_str());
    // A dry run needs the same rights.
    if !mutating(&call.action) {
        return vec![access(action, "*".to_owned(), None)];
    }
    let named: Vec<(String, Option<Tags>)> = match service {
        Service::Ec2 => of_ec2(world, call),
        Service::Elb => of_elb(world, call),
        Service::Elbv2 => of_elbv2(world, call),
    };
    let mut all: Vec<Access> = named.into_iter().map(|(arn, of)| access(action, arn, of)).collect();
    if let Some((key, arn)) = tagged_on_creation(world, call).filter(|_| !tags.is_empty()) {
        let verb = if service == Service::Ec2 { "CreateTags" } else { "AddTags" };
        // unverified: that the new tags count as those of the resource. kOps' policy, which the Go program has, needs it.
        let mut tagging = access(verb, arn, Some(tags.clone()));
        tagging.keys.insert(key.to_owned(), action.to_owned());
        all.push(tagging);
    }
    all
}

/// The condition key for the action that creates a resource with tags, and the resource.
fn tagged_on_creation(world: &World, call: &Call) -> Option<(&'static str, String)> {
    let new = |kind: &str| arn(world, call.service, &format!("{kind}/new"));
    match (call.service, call.action.as_str()) {
        (Service::Ec2, "CreateSecurityGroup") => Some(("ec2:CreateAction", new("security-group"))),
        (Service::Elb, "CreateLoadBalancer") => Some(("elasticloadbalancing:CreateAction", new("loadbalancer"))),
        (Service::Elbv2, "CreateLoadBalancer") => Some(("elasticloadbalancing:CreateAction", new("loadbalancer/net"))),
        (Service::Elbv2, "CreateTargetGroup") => Some(("elasticloadbalancing:CreateAction", new("targetgroup"))),
        (Service::Elbv2, "CreateListener") => Some(("elasticloadbalancing:CreateAction", new("listener/net"))),
        _ => None,
    }
}

fn of_ec2(world: &World, call: &Call) -> Vec<(String, Option<Tags>)> {
    let ec2 = &world.ec2;
    let tags = |kind: &str, id: &str| match kind {
        "security-group" => ec2.groups.get(id).map(|group| group.tags.clone()),
        "route-table" => ec2.route_tables.get(id).map(|table| table.tags.clone()),
        "instance" => ec2.instances.get(id).map(|instance| instance.tags.clone()),
        "network-interface" => ec2.interfaces.get(id).map(|interface| interface.tags.clone()),
        "vpc" => ec2.vpcs.get(id).map(|vpc| vpc.tags.clone()),
        _ => None,
    };
    let one = |kind: &str, id: &str| (arn(world, Service::Ec2, &format!("{kind}/{id}")), tags(kind, id));
    let param = |name: &str| call.params.get(name).unwrap_or_default();
    match call.action.as_str() {
        "CreateSecurityGroup" => vec![one("security-group", "new"), one("vpc", param("VpcId"))],
        "CreateRoute" | "ReplaceRoute" | "DeleteRoute" => vec![one("route-table", param("RouteTableId"))],
        "ModifyInstanceAttribute" => vec![one("instance", param("InstanceId"))],
        "ModifyNetworkInterfaceAttribute" => vec![one("network-interface", param("NetworkInterfaceId"))],
        "CreateTags" | "DeleteTags" => {
            let ids = call.params.texts("ResourceId");
            ids.iter().map(|id| one(super::ec2::kind(id).unwrap_or_default(), id)).collect()
        }
        _ => vec![one("security-group", param("GroupId"))],
    }
}

fn of_elb(world: &World, call: &Call) -> Vec<(String, Option<Tags>)> {
    let mut names = call.params.texts("LoadBalancerNames");
    names.extend(call.params.get("LoadBalancerName").map(str::to_owned));
    let tags = |name: &String| world.elb.balancers.get(name).map(|balancer| balancer.tags.clone());
    names.iter().map(|name| (arn(world, Service::Elb, &format!("loadbalancer/{name}")), tags(name))).collect()
}

fn of_elbv2(world: &World, call: &Call) -> Vec<(String, Option<Tags>)> {
    let state = &world.elbv2;
    let param = |name: &str| call.params.get(name).unwrap_or_default();
    let tags = |arn: &str| {
        let balancer = state.balancers.get(arn).map(|balancer| balancer.tags.clone());
        let group = || state.groups.get(arn).map(|group| group.tags.clone());
        balancer.or_else(group).or_else(|| state.listeners.get(arn).map(|listener| listener.tags.clone()))
    };
    let new = |kind: &str| vec![(arn(world, Service::Elbv2, &format!("{kind}/{}/new", param("Name"))), None)];
    let one = |name: &str| vec![(param(name).to_owned(), tags(param(name)))];
    match call.action.as_str() {
        "CreateLoadBalancer" => new("loadbalancer/net"),
        "CreateTargetGroup" => new("targetgroup"),
        "AddTags" | "RemoveTags" => {
            let arns = call.params.texts("ResourceArns");
            arns.into_iter().map(|arn| (arn.clone(), tags(&arn))).collect()
        }
        "ModifyListener" | "DeleteListener" => one("ListenerArn"),
        action if action.contains("Target") => one("TargetGroupArn"),
        _ => one("LoadBalancerArn"),
    }
}

fn request_tags(call: &Call) -> Tags {
    let of_ec2 = || {
        let specified = call.params.items("TagSpecification").into_iter().filter_map(|one| one.tags("Tag").ok());
        specified.chain(call.params.tags("Tag").ok()).flatten().collect()
    };
    match call.service {
        Service::Ec2 => of_ec2(),
        Service::Elb | Service::Elbv2 => call.params.tags("Tags").unwrap_or_default(),
    }
}

fn arn(world: &World, service: Service, resource: &str) -> String {
    let (region, account) = (&world.options.region, &world.options.account);
    format!("arn:{}:{}:{region}:{account}:{resource}", super::balancing::partition(region), service.iam())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_stars_and_question_marks() {
        for (text, pattern, matches) in [
            ("ec2:CreateTags", "ec2:*", true),
            ("ec2:CreateTags", "ec2:CreateTags", true),
            ("ec2:CreateTags", "ec2:Create", false),
            ("arn:aws:ec2:us-west-2:1:vpc/vpc-1", "arn:*:ec2:*:*:vpc/*", true),
            ("arn:aws:ec2:us-west-2:1:subnet/vpc/x", "arn:*:ec2:*:*:vpc/*", false),
            ("a", "?", true),
            ("", "?", false),
            ("", "*", true),
        ] {
            assert_eq!(is_like(text, pattern), matches, "{text} {pattern}");
        }
    }
}
