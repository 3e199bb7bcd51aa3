//! The calls that show which permissions the identity has.

use std::sync::Arc;

use super::super::nodes::NodeInstances;
use crate::client::ec2::{Instance, Peer, Permission, RouteTable, SecurityGroup, Source};
use crate::client::elbv2::Which;
use crate::client::operation::{Operation, Service};
use crate::client::write::{Ec2Write, RouteTarget};
use crate::client::{Answer, Query, Tags};
use crate::inspect::Inspector;
use crate::routes;

/// A name that no balancer or target group has.
const NOBODY: &str = "ccm-permission-check";
/// A documentation range (RFC 5737): no route and no rule has it.
const NOWHERE: &str = "192.0.2.0/24";
/// A tag that no instance has.
const NO_TAG: &str = "k8s.io/ccm-permission-check";

const OF_FORWARDING: [&str; 2] = ["ModifyInstanceAttribute", "ModifyNetworkInterfaceAttribute"];
const OF_ROUTES: [&str; 3] = ["CreateRoute", "ReplaceRoute", "DeleteRoute"];

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) answers: Vec<(Operation, Answer<()>)>,
    /// That of `CreateTags` for an instance: policies often allow it for other resources only.
    pub(super) instance_tags: Option<Answer<()>>,
    /// Calls that cannot be made without a risk, and the reason.
    pub(super) skipped: Vec<(Operation, &'static str)>,
    /// Whether the cluster's route table has routes to instances.
    pub(super) routes: bool,
}

pub(super) async fn make(aws: &Inspector, cluster: &str, read: Option<&NodeInstances>) -> Calls {
    let mut calls = Calls::default();
    let instances: Vec<&Arc<Instance>> = read.iter().flat_map(|read| read.instances()).collect();
    reads_of_ec2(aws, &instances, &mut calls).await;
    reads_of_classic(aws, &mut calls).await;
    reads_of_network(aws, &mut calls).await;
    let attached =
        |group: &&SecurityGroup| instances.iter().any(|instance| instance.security_groups.contains(&group.id));
    let groups = read.iter().flat_map(|read| read.groups.values());
    let tagged: Vec<&SecurityGroup> =
        groups.filter(|group| aws.settings.ownership.is_member(&group.tags)).filter(attached).collect();
    writes_to_groups(aws, &tagged, &mut calls).await;
    writes_to_instances(aws, &instances, &mut calls).await;
    if !aws.makes_routes {
        calls.skip(&OF_ROUTES, "no controller makes routes");
        return calls;
    }
    let tables = routes::tables(&*aws.api, &aws.routes).await.unwrap_or_default();
    if let Ok(table) = routes::only_table(&tables, cluster, &aws.routes) {
        calls.routes = table.routes.iter().any(|route| route.instance.is_some());
        writes_to_routes(aws, table, &instances, &mut calls).await;
    } else {
        let why = "the cluster has no single route table, so no routes are created";
        calls.skip(&OF_ROUTES, why);
    }
    calls
}

const fn ec2(name: &'static str) -> Operation {
    Operation::new(Service::Ec2, name)
}

impl Calls {
    fn read<T>(&mut self, service: Service, name: &'static str, answer: Answer<T>) {
        self.answers.push((Operation::new(service, name), answer.map(drop)));
    }

    fn skip(&mut self, names: &[&'static str], why: &'static str) {
        self.skipped.extend(names.iter().copied().map(|name| (ec2(name), why)));
    }

    async fn dry(&mut self, aws: &Inspector, write: Ec2Write) {
        let answer = aws.api.dry_run(&write).await;
        self.answers.push((ec2(write.name()), answer));
    }
}

async fn reads_of_ec2(aws: &Inspector, instances: &[&Arc<Instance>], calls: &mut Calls) {
    let (api, vpc) = (&aws.api, [&aws.settings.vpc]);
    let of_vpc = || Query::by("vpc-id", vpc);
    let answer = api.instances(&of_vpc().and("private-dns-name", [NOBODY])).await;
    calls.read(Service::Ec2, "DescribeInstances", answer);
    match instances.first() {
        Some(instance) => {
            let answer = api.instance_topology(std::slice::from_ref(&instance.id)).await;
            calls.read(Service::Ec2, "DescribeInstanceTopology", answer);
        }
        None => calls.skip(&["DescribeInstanceTopology"], "no node has an instance"),
    }
    let answer = api.network_interfaces(&of_vpc().and("private-ip-address", ["192.0.2.1"])).await;
    calls.read(Service::Ec2, "DescribeNetworkInterfaces", answer);
    calls.read(Service::Ec2, "DescribeAvailabilityZones", api.availability_zones().await);
    calls.read(Service::Ec2, "DescribeSubnets", api.subnets(&of_vpc()).await);
    calls.read(Service::Ec2, "DescribeRouteTables", api.route_tables(&of_vpc()).await);
    let answer = api.security_groups(&of_vpc().and("group-name", [NOBODY])).await;
    calls.read(Service::Ec2, "DescribeSecurityGroups", answer);
    calls.read(Service::Ec2, "DescribeVolumes", api.volumes(&Query::by("volume-id", ["vol-00000000000000000"])).await);
}

async fn reads_of_classic(aws: &Inspector, calls: &mut Calls) {
    let (api, nobody) = (&aws.api, [NOBODY.to_owned()]);
    calls.read(Service::Elb, "DescribeLoadBalancers", api.classic_balancers(&nobody).await);
    calls.read(Service::Elb, "DescribeLoadBalancerAttributes", api.classic_attributes(NOBODY).await);
    calls.read(Service::Elb, "DescribeLoadBalancerPolicies", api.classic_policies(NOBODY).await);
    calls.read(Service::Elb, "DescribeTags", api.classic_tags(&nobody).await);
}

/// An ARN must exist in the account: any existing object is used, whatever its owner.
async fn reads_of_network(aws: &Inspector, calls: &mut Calls) {
    let api = &aws.api;
    let balancers = api.balancers(&Which::All).await;
    let groups = api.target_groups(&Which::All).await;
    let balancer =
        balancers.iter().flatten().find(|balancer| balancer.vpc == aws.settings.vpc).map(|found| found.arn.clone());
    let group = groups.iter().flatten().find(|group| group.vpc == aws.settings.vpc).map(|found| found.arn.clone());
    calls.read(Service::ElbV2, "DescribeLoadBalancers", balancers);
    calls.read(Service::ElbV2, "DescribeTargetGroups", groups);
    let v2 = |name| Operation::new(Service::ElbV2, name);
    match &balancer {
        Some(arn) => {
            calls.read(Service::ElbV2, "DescribeLoadBalancerAttributes", api.balancer_attributes(arn).await);
            calls.read(Service::ElbV2, "DescribeListeners", api.listeners(arn).await);
        }
        None => calls.skipped.push((v2("DescribeListeners"), "there is no load balancer")),
    }
    match &group {
        Some(arn) => {
            calls.read(Service::ElbV2, "DescribeTargetGroupAttributes", api.target_group_attributes(arn).await);
            calls.read(Service::ElbV2, "DescribeTargetHealth", api.target_health(arn).await);
        }
        None => {
            for name in ["DescribeTargetGroupAttributes", "DescribeTargetHealth"] {
                calls.skipped.push((v2(name), "there is no target group"));
            }
        }
    }
    if let Some(arn) = balancer.or(group) {
        calls.read(Service::ElbV2, "DescribeTags", api.balancer_tags(&[arn]).await);
    }
}

/// `tagged`: the cluster's groups that are attached to nodes, so that none of them can be deleted.
async fn writes_to_groups(aws: &Inspector, tagged: &[&SecurityGroup], calls: &mut Calls) {
    const RULES: [&str; 2] = ["AuthorizeSecurityGroupIngress", "UpdateSecurityGroupRuleDescriptionsIngress"];
    let ownership = &aws.settings.ownership;
    let none_owned = "no security group of a node is the cluster's own";
    let Some(group) = tagged.first() else {
        let [authorize, describe] = RULES;
        let names = ["CreateSecurityGroup", authorize, "RevokeSecurityGroupIngress", describe, "CreateTags"];
        calls.skip(&names, "no security group of a node carries the cluster's tag");
        return calls.skip(&["DeleteSecurityGroup"], none_owned);
    };
    // The name is taken, so nothing is created.
    let create = Ec2Write::CreateSecurityGroup {
        name: group.name.clone(),
        description: "never created".to_owned(),
        vpc: aws.settings.vpc.clone(),
        tags: ownership.cluster_tags(),
    };
    calls.dry(aws, create).await;
    match tagged.iter().find(|group| ownership.is_owned(&group.tags)) {
        Some(owned) => calls.dry(aws, Ec2Write::DeleteSecurityGroup { group: owned.id.clone().into() }).await,
        None => calls.skip(&["DeleteSecurityGroup"], none_owned),
    }
    match tagged.iter().find_map(|group| Some((group.id.clone(), one_rule(group)?))) {
        Some((id, rule)) => {
            let (group, permissions) = (crate::client::Id::from(id), vec![rule]);
            let (same, again) = (group.clone(), permissions.clone());
            calls.dry(aws, Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }).await;
            // The rule has this description already.
            let describe = Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group: same, permissions: again };
            calls.dry(aws, describe).await;
        }
        None => calls.skip(&RULES, "no security group of a node has a rule"),
    }
    let group_id = || group.id.clone().into();
    calls.dry(aws, Ec2Write::RevokeSecurityGroupIngress { group: group_id(), permissions: vec![no_rule()] }).await;
    if let Some(tags) = mark(aws, &group.tags) {
        calls.dry(aws, Ec2Write::CreateTags { resources: vec![group_id()], tags }).await;
    }
}

/// A tag that the object already has: rather `kubernetes.io/cluster/…` than `KubernetesCluster`, which the policy of kOps
/// allows in no request.
fn mark(aws: &Inspector, tags: &Tags) -> Option<Tags> {
    let (key, value) = tags.iter().rfind(|(key, _)| aws.settings.ownership.is_reserved(key))?;
    Some([(key.clone(), value.clone())].into())
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

async fn writes_to_instances(aws: &Inspector, instances: &[&Arc<Instance>], calls: &mut Calls) {
    let tagged = |instance: &&&Arc<Instance>| aws.settings.ownership.is_member(&instance.tags);
    match instances.iter().find(tagged) {
        Some(instance) => {
            let tags = [(NO_TAG.to_owned(), "x".to_owned())].into();
            calls.dry(aws, Ec2Write::DeleteTags { resources: vec![instance.id.clone()], tags }).await;
            if let Some(tags) = mark(aws, &instance.tags).filter(|_| aws.tags_instances) {
                let write = Ec2Write::CreateTags { resources: vec![instance.id.clone().into()], tags };
                calls.instance_tags = Some(aws.api.dry_run(&write).await);
            }
        }
        None => calls.skip(&["DeleteTags"], "no instance of a node carries the cluster's tag"),
    }
    // Instances forward packets of pods only for routes.
    if !aws.makes_routes {
        return calls.skip(&OF_FORWARDING, "no controller makes routes");
    }
    // Only if the check is off already.
    let forwarding = instances.iter().filter(tagged).find_map(|instance| {
        let interface = instance.interfaces.iter().find(|interface| interface.source_dest_check == Some(false))?;
        Some((instance.id.clone(), interface.id.clone(), instance.interfaces.len()))
    });
    let why = "no node forwards packets for its pods yet, and the call is made only where nothing would change";
    match forwarding {
        Some((instance, interface, interfaces)) => {
            // EC2 refuses it for instances with several interfaces.
            if interfaces == 1 {
                calls.dry(aws, Ec2Write::ModifyInstanceAttribute { instance }).await;
            }
            calls.dry(aws, Ec2Write::ModifyNetworkInterfaceAttribute { interface }).await;
        }
        None => calls.skip(&OF_FORWARDING, why),
    }
}

async fn writes_to_routes(aws: &Inspector, table: &RouteTable, instances: &[&Arc<Instance>], calls: &mut Calls) {
    let id = || table.id.clone();
    calls.dry(aws, Ec2Write::DeleteRoute { table: id(), destination: NOWHERE.to_owned() }).await;
    // Preferably a route to an instance; the local route always exists.
    let mut routes: Vec<_> = table.routes.iter().filter(|route| !route.destination.is_empty()).collect();
    routes.sort_by_key(|route| route.instance.is_none());
    let there = routes.first().map(|route| &route.destination);
    let target = instances.first().map(|instance| RouteTarget::Instance(instance.id.clone()));
    match (target, there) {
        (Some(target), Some(there)) => {
            let write = Ec2Write::CreateRoute { table: id(), destination: there.clone(), target: target.clone() };
            calls.dry(aws, write).await;
            calls.dry(aws, Ec2Write::ReplaceRoute { table: id(), destination: NOWHERE.to_owned(), target }).await;
        }
        _ => calls.skip(&["CreateRoute", "ReplaceRoute"], "no node has an instance that a route could target"),
    }
}
