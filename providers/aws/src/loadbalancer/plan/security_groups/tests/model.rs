//! Observations of security groups, as data.

use crate::client::Tags;
use crate::client::ec2::{Peer, SecurityGroup, Subnet};
use crate::loadbalancer::observed::{Instance, Observed};
use crate::loadbalancer::rules::{self, Rule};
use crate::loadbalancer::step::Step;
use crate::loadbalancer::tests::scene::BALANCER;
use crate::loadbalancer::wanted::{Common, Goal, NamedGroups, Wanted};

pub(in crate::loadbalancer) fn desired(goal: Goal) -> Wanted {
    Wanted {
        service: ccm_provider::ServiceKey { namespace: "shop".into(), name: "web".into() },
        uid: "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab".into(),
        cluster_name: "kubernetes".into(),
        name: BALANCER.to_owned(),
        goal,
        elsewhere: false,
        network: false,
        kinds: Vec::new(),
        target_groups: Default::default(),
        named_groups: NamedGroups::default(),
        findings: Vec::new(),
    }
}

/// The nodes `i-1` to `i-<nodes>` behind the balancer.
pub(in crate::loadbalancer) fn common(nodes: usize, ranges: &[&str]) -> Common {
    let target = |number| (format!("i-{number}"), format!("node-{number}"));
    let source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
    Common { source_ranges, targets: (1..=nodes).map(target).collect(), ..Common::default() }
}

pub(in crate::loadbalancer) fn member(value: &str) -> Tags {
    Tags::from([("kubernetes.io/cluster/c1".to_owned(), value.to_owned())])
}

pub(in crate::loadbalancer) fn group(id: &str, name: &str, tags: Tags) -> SecurityGroup {
    let (id, name, vpc) = (id.to_owned(), name.to_owned(), "vpc-1".to_owned());
    SecurityGroup { id, name, vpc, tags, ..SecurityGroup::default() }
}

pub(in crate::loadbalancer) fn with(mut group: SecurityGroup, rules: Vec<Rule>) -> SecurityGroup {
    let mut all = rules::split(&group.ingress);
    all.extend(rules);
    group.ingress = rules::join(all);
    group
}

pub(in crate::loadbalancer) fn v4(cidr: &str) -> Peer {
    Peer::Ipv4(cidr.to_owned())
}

pub(in crate::loadbalancer) fn all_from(group: &str) -> Rule {
    Rule::all_from(group.into())
}

/// Two zones, the nodes `i-1` to `i-3` in the cluster's group `sg-nodes`, and an unrelated group.
pub(in crate::loadbalancer) fn world() -> Observed {
    let mut world = Observed::default();
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
    let security_groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let instance = Instance { security_groups, is_stopped: false };
    world.instances.insert(id.to_owned(), instance);
}

/// Each step as the user reads it.
pub(in crate::loadbalancer) fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.summary.to_string()).collect()
}
