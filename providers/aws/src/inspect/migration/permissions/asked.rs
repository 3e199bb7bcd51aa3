//! The questions.

use std::sync::Arc;

use super::super::nodes::Read;
use crate::client::ec2::{Instance, Peer, Permission, RouteTable, SecurityGroup, Source};
use crate::client::elbv2::Which;
use crate::client::operation::{Operation, Service};
use crate::client::write::{Ec2Write, RouteTarget};
use crate::client::{Answer, Query, Tags};
use crate::inspect::Inspector;
use crate::routes;

/// A name that no balancer or target group has.
const NOBODY: &str = "ccm-permission-check";
/// Of a block that is kept for documentation (RFC 5737): no route and no rule has it.
const NOWHERE: &str = "192.0.2.0/24";
/// A tag that no instance has.
const NO_TAG: &str = "k8s.io/ccm-permission-check";

/// What was asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) answers: Vec<(Operation, Answer<()>)>,
    /// What could not be asked without a risk, and why.
    pub(super) left_out: Vec<(Operation, &'static str)>,
    /// Whether the cluster's route table leads to instances.
    pub(super) routes: bool,
}

/// Asks for everything that can be asked.
pub(super) async fn ask(of: &Inspector, cluster: &str, read: Option<&Read>) -> Asked {
    let mut asked = Asked::default();
    let instances: Vec<&Arc<Instance>> = read.iter().flat_map(|read| read.instances()).collect();
    reads_of_ec2(of, &instances, &mut asked).await;
    reads_of_classic(of, &mut asked).await;
    reads_of_network(of, &mut asked).await;
    let attached =
        |group: &&SecurityGroup| instances.iter().any(|instance| instance.security_groups.contains(&group.id));
    let groups = read.iter().flat_map(|read| read.groups.values());
    let marked: Vec<&SecurityGroup> =
        groups.filter(|group| of.settings.ownership.is_member(&group.tags)).filter(attached).collect();
    writes_to_groups(of, &marked, &mut asked).await;
    writes_to_instances(of, &instances, &mut asked).await;
    let tables = routes::tables(&*of.api, &of.routes).await.unwrap_or_default();
    if let Ok(table) = routes::only_table(&tables, cluster, &of.routes) {
        asked.routes = table.routes.iter().any(|route| route.instance.is_some());
        writes_to_routes(of, table, &instances, &mut asked).await;
    } else {
        for name in ["CreateRoute", "ReplaceRoute", "DeleteRoute"] {
            asked.left_out.push((ec2(name), "no single route table is the cluster's, so no routes are made"));
        }
    }
    asked
}

const fn ec2(name: &'static str) -> Operation {
    Operation::new(Service::Ec2, name)
}

impl Asked {
    fn read<T>(&mut self, service: Service, name: &'static str, answer: Answer<T>) {
        self.answers.push((Operation::new(service, name), answer.map(drop)));
    }

    async fn dry(&mut self, of: &Inspector, write: Ec2Write) {
        let answer = of.api.dry_run(&write).await;
        self.answers.push((ec2(write.name()), answer));
    }
}

async fn reads_of_ec2(of: &Inspector, instances: &[&Arc<Instance>], asked: &mut Asked) {
    let (api, vpc) = (&of.api, [&of.settings.vpc]);
    let of_vpc = || Query::by("vpc-id", vpc);
    let answer = api.instances(&of_vpc().and("private-dns-name", [NOBODY])).await;
    asked.read(Service::Ec2, "DescribeInstances", answer);
    match instances.first() {
        Some(instance) => {
            let answer = api.instance_topology(std::slice::from_ref(&instance.id)).await;
            asked.read(Service::Ec2, "DescribeInstanceTopology", answer);
        }
        None => asked.left_out.push((ec2("DescribeInstanceTopology"), "no node has an instance to ask about")),
    }
    let answer = api.network_interfaces(&of_vpc().and("private-ip-address", ["192.0.2.1"])).await;
    asked.read(Service::Ec2, "DescribeNetworkInterfaces", answer);
    asked.read(Service::Ec2, "DescribeAvailabilityZones", api.availability_zones().await);
    asked.read(Service::Ec2, "DescribeSubnets", api.subnets(&of_vpc()).await);
    asked.read(Service::Ec2, "DescribeRouteTables", api.route_tables(&of_vpc()).await);
    let answer = api.security_groups(&of_vpc().and("group-name", [NOBODY])).await;
    asked.read(Service::Ec2, "DescribeSecurityGroups", answer);
    asked.read(Service::Ec2, "DescribeVolumes", api.volumes(&Query::by("volume-id", ["vol-00000000000000000"])).await);
}

async fn reads_of_classic(of: &Inspector, asked: &mut Asked) {
    let (api, nobody) = (&of.api, [NOBODY.to_owned()]);
    asked.read(Service::Elb, "DescribeLoadBalancers", api.classic_balancers(&nobody).await);
    asked.read(Service::Elb, "DescribeLoadBalancerAttributes", api.classic_attributes(NOBODY).await);
    asked.read(Service::Elb, "DescribeLoadBalancerPolicies", api.classic_policies(NOBODY).await);
    asked.read(Service::Elb, "DescribeTags", api.classic_tags(&nobody).await);
}

/// An ARN must be one of the account: those of objects that are there are taken, whosoever they are.
async fn reads_of_network(of: &Inspector, asked: &mut Asked) {
    let api = &of.api;
    let balancers = api.balancers(&Which::All).await;
    let groups = api.target_groups(&Which::All).await;
    let balancer =
        balancers.iter().flatten().find(|balancer| balancer.vpc == of.settings.vpc).map(|found| found.arn.clone());
    let group = groups.iter().flatten().find(|group| group.vpc == of.settings.vpc).map(|found| found.arn.clone());
    asked.read(Service::ElbV2, "DescribeLoadBalancers", balancers);
    asked.read(Service::ElbV2, "DescribeTargetGroups", groups);
    let v2 = |name| Operation::new(Service::ElbV2, name);
    match &balancer {
        Some(arn) => {
            asked.read(Service::ElbV2, "DescribeLoadBalancerAttributes", api.balancer_attributes(arn).await);
            asked.read(Service::ElbV2, "DescribeListeners", api.listeners(arn).await);
        }
        None => asked.left_out.push((v2("DescribeListeners"), "there is no load balancer to ask about")),
    }
    match &group {
        Some(arn) => {
            asked.read(Service::ElbV2, "DescribeTargetGroupAttributes", api.target_group_attributes(arn).await);
            asked.read(Service::ElbV2, "DescribeTargetHealth", api.target_health(arn).await);
        }
        None => {
            for name in ["DescribeTargetGroupAttributes", "DescribeTargetHealth"] {
                asked.left_out.push((v2(name), "there is no target group to ask about"));
            }
        }
    }
    if let Some(arn) = balancer.or(group) {
        asked.read(Service::ElbV2, "DescribeTags", api.balancer_tags(&[arn]).await);
    }
}

/// `marked`: the cluster's groups that instances of nodes have, so that none of them can be deleted.
async fn writes_to_groups(of: &Inspector, marked: &[&SecurityGroup], asked: &mut Asked) {
    let ownership = &of.settings.ownership;
    let Some(group) = marked.first() else {
        for name in [
            "CreateSecurityGroup",
            "AuthorizeSecurityGroupIngress",
            "RevokeSecurityGroupIngress",
            "UpdateSecurityGroupRuleDescriptionsIngress",
            "CreateTags",
        ] {
            asked.left_out.push((ec2(name), "no security group of a node carries the cluster's tag"));
        }
        asked.left_out.push((ec2("DeleteSecurityGroup"), "no security group of a node is the cluster's own"));
        return;
    };
    // Its name is taken.
    let create = Ec2Write::CreateSecurityGroup {
        name: group.name.clone(),
        description: "never made".to_owned(),
        vpc: of.settings.vpc.clone(),
        tags: ownership.cluster_tags(),
    };
    asked.dry(of, create).await;
    match marked.iter().find(|group| ownership.is_owned(&group.tags)) {
        Some(owned) => asked.dry(of, Ec2Write::DeleteSecurityGroup { group: owned.id.clone().into() }).await,
        None => asked.left_out.push((ec2("DeleteSecurityGroup"), "no security group of a node is the cluster's own")),
    }
    match marked.iter().find_map(|group| Some((group.id.clone(), one_rule(group)?))) {
        Some((id, rule)) => {
            let (group, permissions) = (crate::client::Id::from(id), vec![rule]);
            let (same, again) = (group.clone(), permissions.clone());
            asked.dry(of, Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }).await;
            // It has this description already.
            let describe = Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group: same, permissions: again };
            asked.dry(of, describe).await;
        }
        None => {
            for name in ["AuthorizeSecurityGroupIngress", "UpdateSecurityGroupRuleDescriptionsIngress"] {
                asked.left_out.push((ec2(name), "no security group of a node has a rule to ask with"));
            }
        }
    }
    let group_id = || group.id.clone().into();
    asked.dry(of, Ec2Write::RevokeSecurityGroupIngress { group: group_id(), permissions: vec![no_rule()] }).await;
    // A mark that it has.
    let marks = group.tags.iter().filter(|(key, _)| ownership.is_reserved(key));
    let marks: Tags = marks.map(|(key, value)| (key.clone(), value.clone())).take(1).collect();
    if !marks.is_empty() {
        asked.dry(of, Ec2Write::CreateTags { resources: vec![group_id()], tags: marks }).await;
    }
}

/// A rule that the group has, with one source.
fn one_rule(group: &SecurityGroup) -> Option<Permission> {
    let permission = group.ingress.iter().find(|permission| !permission.sources.is_empty())?;
    let sources = permission.sources.iter().take(1).cloned().collect();
    Some(Permission { sources, ..permission.clone() })
}

fn no_rule() -> Permission {
    let source = Source { from: Peer::Ipv4(NOWHERE.to_owned()), description: String::new() };
    Permission { protocol: "tcp".to_owned(), from_port: Some(9), to_port: Some(9), sources: vec![source] }
}

async fn writes_to_instances(of: &Inspector, instances: &[&Arc<Instance>], asked: &mut Asked) {
    let marked = |instance: &&&Arc<Instance>| of.settings.ownership.is_member(&instance.tags);
    match instances.iter().find(marked) {
        Some(instance) => {
            let tags = [(NO_TAG.to_owned(), "x".to_owned())].into();
            asked.dry(of, Ec2Write::DeleteTags { resources: vec![instance.id.clone()], tags }).await;
        }
        None => asked.left_out.push((ec2("DeleteTags"), "no instance of a node carries the cluster's tag")),
    }
    // Where the check is off already.
    let forwarding = instances.iter().filter(marked).find_map(|instance| {
        let interface = instance.interfaces.iter().find(|interface| interface.source_dest_check == Some(false))?;
        Some((instance.id.clone(), interface.id.clone(), instance.interfaces.len()))
    });
    let why = "no node forwards packets for its pods yet, and the question is only asked where nothing would change";
    match forwarding {
        Some((instance, interface, interfaces)) => {
            // EC2 refuses it for an instance with several.
            if interfaces == 1 {
                asked.dry(of, Ec2Write::ModifyInstanceAttribute { instance }).await;
            }
            asked.dry(of, Ec2Write::ModifyNetworkInterfaceAttribute { interface }).await;
        }
        None => {
            asked.left_out.push((ec2("ModifyInstanceAttribute"), why));
            asked.left_out.push((ec2("ModifyNetworkInterfaceAttribute"), why));
        }
    }
}

async fn writes_to_routes(of: &Inspector, table: &RouteTable, instances: &[&Arc<Instance>], asked: &mut Asked) {
    let id = || table.id.clone();
    asked.dry(of, Ec2Write::DeleteRoute { table: id(), destination: NOWHERE.to_owned() }).await;
    // Best one like those that are made here; that to the network itself is always there.
    let mut routes: Vec<_> = table.routes.iter().filter(|route| !route.destination.is_empty()).collect();
    routes.sort_by_key(|route| route.instance.is_none());
    let there = routes.first().map(|route| &route.destination);
    let target = instances.first().map(|instance| RouteTarget::Instance(instance.id.clone()));
    match (target, there) {
        (Some(target), Some(there)) => {
            let write = Ec2Write::CreateRoute { table: id(), destination: there.clone(), target: target.clone() };
            asked.dry(of, write).await;
            asked.dry(of, Ec2Write::ReplaceRoute { table: id(), destination: NOWHERE.to_owned(), target }).await;
        }
        _ => {
            asked.left_out.push((ec2("CreateRoute"), "no node has an instance that a route could lead to"));
            asked.left_out.push((ec2("ReplaceRoute"), "no node has an instance that a route could lead to"));
        }
    }
}
