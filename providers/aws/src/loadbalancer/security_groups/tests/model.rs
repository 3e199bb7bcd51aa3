//! Security groups in memory, with EC2's refusals.

use std::collections::BTreeMap;

use crate::client::ec2::{Peer, SecurityGroup, Subnet};
use crate::client::write::{Ec2Write, Made};
use crate::client::{Id, Tags, Write};
use crate::loadbalancer::desired::{Common, Desired, Goal, NamedGroups, Subnets, TargetNode};
use crate::loadbalancer::observe::{Instance, Observed};
use crate::loadbalancer::plan::{Env, Step};
use crate::loadbalancer::security_groups::permissions::{self, Rule, Tuple};
use crate::ownership::Ownership;

pub(in crate::loadbalancer) const BALANCER: &str = "a0f1e2d3caaaabbbbcccc0123456789a";

pub(in crate::loadbalancer) fn env() -> Env {
    Env {
        ownership: Ownership { cluster: "c1".to_owned(), legacy: false },
        vpc: "vpc-1".to_owned(),
        self_subnet: String::new(),
        node_groups_untouched: false,
        shared_group: None,
        managed_network_groups: false,
    }
}

pub(in crate::loadbalancer) fn desired(goal: Goal) -> Desired {
    Desired {
        service: ccm_provider::ServiceKey { namespace: "shop".into(), name: "web".into() },
        uid: "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab".into(),
        cluster_name: "kubernetes".into(),
        name: BALANCER.to_owned(),
        goal,
        network: false,
        named_groups: NamedGroups::default(),
        findings: Vec::new(),
    }
}

/// The nodes `i-1` to `i-<nodes>` behind it.
pub(in crate::loadbalancer) fn common(nodes: usize, ranges: &[&str]) -> Common {
    let target = |number| (format!("i-{number}"), TargetNode { name: format!("node-{number}") });
    Common {
        must_exist: false,
        internal: false,
        source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        subnets: Subnets::Discover,
        tags: Tags::new(),
        targets: (1..=nodes).map(target).collect(),
    }
}

pub(in crate::loadbalancer) fn member(value: &str) -> Tags {
    Tags::from([("kubernetes.io/cluster/c1".to_owned(), value.to_owned())])
}

pub(in crate::loadbalancer) fn group(id: &str, name: &str, tags: Tags) -> SecurityGroup {
    SecurityGroup {
        id: id.to_owned(),
        name: name.to_owned(),
        vpc: "vpc-1".to_owned(),
        tags,
        ..SecurityGroup::default()
    }
}

pub(in crate::loadbalancer) fn with(mut group: SecurityGroup, rules: Vec<Rule>) -> SecurityGroup {
    let mut all = permissions::split(&group.ingress);
    all.extend(rules);
    group.ingress = permissions::join(all);
    group
}

pub(in crate::loadbalancer) fn v4(cidr: &str) -> Peer {
    Peer::Ipv4(cidr.to_owned())
}

pub(in crate::loadbalancer) fn all_from(group: &str) -> Rule {
    Rule::all_from(group.into())
}

/// Two zones, the nodes `i-1` to `i-3` in the cluster's group `sg-nodes`, and a bystander.
pub(in crate::loadbalancer) fn world() -> Observed {
    let mut world = Observed {
        classic: None,
        network: None,
        unattached_target_groups: Vec::new(),
        groups: BTreeMap::new(),
        subnets: BTreeMap::new(),
        route_tables: Vec::new(),
        zones: BTreeMap::new(),
        instances: BTreeMap::new(),
        other_balancers: BTreeMap::new(),
        unseen: Default::default(),
    };
    for (id, zone, cidr) in [
        ("subnet-a", "us-west-2a", "10.0.1.0/24"),
        ("subnet-b", "us-west-2b", "10.0.2.0/24"),
        ("subnet-a2", "us-west-2a", "10.0.11.0/24"),
        ("subnet-b2", "us-west-2b", "10.0.12.0/24"),
    ] {
        let (id, zone, cidr) = (id.to_owned(), zone.to_owned(), cidr.to_owned());
        world.subnets.insert(id.clone(), Subnet { id, zone, cidr, vpc: "vpc-1".to_owned(), ..Subnet::default() });
    }
    let ssh = Rule::port("tcp", 22, v4("192.0.2.0/24")).described("mine");
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![ssh.clone()]));
    put(&mut world, with(group("sg-bystander", "bystander", Tags::new()), vec![ssh]));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-nodes"]);
    }
    world
}

pub(in crate::loadbalancer) fn put(world: &mut Observed, group: SecurityGroup) {
    world.groups.insert(group.id.clone(), group);
}

pub(in crate::loadbalancer) fn instance(world: &mut Observed, id: &str, groups: &[&str]) {
    let instance = Instance {
        id: id.to_owned(),
        state: "running".to_owned(),
        zone: "us-west-2a".to_owned(),
        vpc: "vpc-1".to_owned(),
        security_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    };
    world.instances.insert(id.to_owned(), instance);
}

/// The rules of a group as text, with descriptions.
pub(in crate::loadbalancer) fn rules(world: &Observed, group: &str) -> Vec<String> {
    let text = |rule: Rule| match &*rule.description {
        "" => rule.to_string(),
        description => format!("{rule} [{description}]"),
    };
    let mut texts: Vec<String> = permissions::split(&world.groups[group].ingress).into_iter().map(text).collect();
    texts.sort();
    texts
}

/// Each step as the user reads it.
pub(in crate::loadbalancer) fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.summary.to_string()).collect()
}

/// Does one write to EC2 as strictly as EC2 would: nothing twice, nothing that isn't there, no group that is referred to.
pub(in crate::loadbalancer) fn apply_ec2(world: &mut Observed, write: &Ec2Write) -> Result<Option<String>, String> {
    let found = |world: &Observed, id: &Id| {
        let id = id.known().ok_or("not made yet")?.to_owned();
        if world.groups.contains_key(&id) { Ok(id) } else { Err(format!("InvalidGroup.NotFound {id}")) }
    };
    match write {
        Ec2Write::CreateSecurityGroup { name, description, vpc, tags } => {
            if world.groups.values().any(|group| group.name == *name && group.vpc == *vpc) {
                return Err(format!("InvalidGroup.Duplicate {name}"));
            }
            let number = (1..).find(|number| !world.groups.contains_key(&format!("sg-made-{number}"))).unwrap();
            let mut made = group(&format!("sg-made-{number}"), name, tags.clone());
            (made.description, made.vpc) = (description.clone(), vpc.clone());
            let id = made.id.clone();
            put(world, made);
            Ok(Some(id))
        }
        Ec2Write::DeleteSecurityGroup { group } => {
            let id = found(world, group)?;
            let refers = |other: &SecurityGroup| {
                other.id != id && permissions::split(&other.ingress).iter().any(|rule| rule.is_from(&id))
            };
            let used = world.classic.iter().any(|classic| classic.balancer.security_groups.contains(&id))
                || world.network.iter().any(|network| network.balancer.security_groups.contains(&id))
                || world.instances.values().any(|instance| instance.security_groups.contains(&id));
            if used || world.groups.values().any(refers) {
                return Err(format!("DependencyViolation {id}"));
            }
            world.groups.remove(&id);
            Ok(None)
        }
        Ec2Write::AuthorizeSecurityGroupIngress { group, permissions } => {
            let id = found(world, group)?;
            let mut rules = permissions::split(&world.groups[&id].ingress);
            for rule in permissions::split(permissions) {
                if rules.iter().any(|other| other.tuple() == rule.tuple()) {
                    return Err(format!("InvalidPermission.Duplicate {rule} in {id}"));
                }
                if let Peer::Group { id, .. } = &rule.peer {
                    found(world, id)?;
                }
                rules.push(rule);
            }
            world.groups.get_mut(&id).unwrap().ingress = permissions::join(rules);
            Ok(None)
        }
        Ec2Write::RevokeSecurityGroupIngress { group, permissions } => {
            let id = found(world, group)?;
            let mut rules = permissions::split(&world.groups[&id].ingress);
            for rule in permissions::split(permissions) {
                let tuple: Tuple = rule.tuple();
                let place = rules.iter().position(|other| other.tuple() == tuple);
                rules.remove(place.ok_or_else(|| format!("InvalidPermission.NotFound {rule} in {id}"))?);
            }
            world.groups.get_mut(&id).unwrap().ingress = permissions::join(rules);
            Ok(None)
        }
        Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions } => {
            let id = found(world, group)?;
            let mut rules = permissions::split(&world.groups[&id].ingress);
            for rule in permissions::split(permissions) {
                let tuple: Tuple = rule.tuple();
                let place = rules.iter_mut().find(|other| other.tuple() == tuple);
                let place = place.ok_or_else(|| format!("InvalidPermission.NotFound {rule} in {id}"))?;
                *place = rule;
            }
            world.groups.get_mut(&id).unwrap().ingress = permissions::join(rules);
            Ok(None)
        }
        Ec2Write::CreateTags { resources, tags } => {
            for resource in resources {
                let id = found(world, resource)?;
                world.groups.get_mut(&id).unwrap().tags.extend(tags.clone());
            }
            Ok(None)
        }
        other => Err(format!("no such write in the model: {}", other.name())),
    }
}

/// Does the first `count` steps.
pub(in crate::loadbalancer) fn run(
    world: &mut Observed,
    steps: &[Step],
    count: usize,
    apply: impl Fn(&mut Observed, &Write) -> Result<Option<String>, String>,
) {
    let mut made = Made::new();
    for step in steps.iter().take(count) {
        let write = step.write.complete(&made).unwrap_or_else(|object| panic!("{object} was never made: {step:#?}"));
        let id = apply(world, &write).unwrap_or_else(|refusal| panic!("{refusal}: {step:#?}"));
        if let (Some(object), Some(id)) = (write.makes(), id) {
            made.insert(object, id);
        }
    }
}

/// Does all steps, which are all about EC2.
pub(in crate::loadbalancer) fn run_ec2(world: &mut Observed, steps: &[Step]) {
    run(world, steps, steps.len(), |world, write| match write {
        Write::Ec2(write) => apply_ec2(world, write),
        other => Err(format!("not about groups: {other:?}")),
    });
}
