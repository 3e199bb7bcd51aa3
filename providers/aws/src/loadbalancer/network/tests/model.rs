//! A small AWS in memory: balancers, listeners, target groups and security groups, with the refusals that matter here. Stricter
//! than AWS where AWS is lenient, so that no plan relies on that.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::ec2::{Permission, SecurityGroup, Source, Subnet};
use crate::client::elbv2::{self, BalancerZone, Listener, Target, TargetHealth};
use crate::client::write::{Ec2Write, ElbV2Write, Id, ListenerWish, Made};
use crate::client::{Tags, Write};
use crate::loadbalancer::desired::Desired;
use crate::loadbalancer::names;
use crate::loadbalancer::observe::{Instance, Network, Observed, TargetGroup};
use crate::loadbalancer::plan::{Env, Step};
use crate::ownership::is_of_service;

/// All balancers with what they carry, by ARN.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cloud {
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// Listeners by ARN, each with the ARN of its balancer.
    pub(super) listeners: BTreeMap<String, (String, Listener)>,
    pub(super) groups: BTreeMap<String, TargetGroup>,
    pub(super) security_groups: BTreeMap<String, SecurityGroup>,
    pub(super) subnets: BTreeMap<String, Subnet>,
    pub(super) instances: BTreeMap<String, Instance>,
    made: usize,
    /// Names of the writes, in order.
    pub(super) log: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Balancer {
    pub(super) balancer: elbv2::LoadBalancer,
    pub(super) attributes: elbv2::Attributes,
    pub(super) tags: Tags,
}

type Answer = Result<Option<String>, String>;

impl Cloud {
    /// Two subnets, nodes `i-1` to `i-<nodes>` in the group `sg-nodes` of the cluster `c1`.
    pub(super) fn with_nodes(nodes: usize) -> Self {
        let mut cloud = Self::default();
        for (id, zone, cidr) in [("subnet-a", "us-west-2a", "10.0.1.0/24"), ("subnet-b", "us-west-2b", "10.0.2.0/24")] {
            let subnet = Subnet {
                id: id.to_owned(),
                vpc: "vpc-1".to_owned(),
                zone: zone.to_owned(),
                cidr: cidr.to_owned(),
                ..Subnet::default()
            };
            cloud.subnets.insert(id.to_owned(), subnet);
        }
        for number in 1..=nodes {
            cloud.add_instance(&format!("i-{number}"));
        }
        let tags = Tags::from([("kubernetes.io/cluster/c1".to_owned(), "owned".to_owned())]);
        cloud.security_groups.insert("sg-nodes".to_owned(), security_group("sg-nodes", "nodes", "of the nodes", tags));
        cloud
    }

    pub(super) fn add_instance(&mut self, id: &str) {
        let instance = Instance {
            id: id.to_owned(),
            state: "running".to_owned(),
            zone: "us-west-2a".to_owned(),
            vpc: "vpc-1".to_owned(),
            security_groups: vec!["sg-nodes".to_owned()],
        };
        self.instances.insert(id.to_owned(), instance);
    }

    /// How many objects were made so far tells nothing of what is there.
    pub(super) fn forget_numbers(&mut self) {
        self.made = 0;
    }

    /// What a complete read for the wish gives.
    pub(super) fn observe(&self, desired: &Desired, env: &Env) -> Observed {
        let found = self.balancers.values().find(|one| one.balancer.name == desired.name);
        let network = found.map(|one| {
            let listeners = self.listeners_of(&one.balancer.arn);
            let used: BTreeSet<&String> = listeners.iter().filter_map(|one| one.target_group.as_ref()).collect();
            Network {
                balancer: one.balancer.clone(),
                attributes: one.attributes.clone(),
                target_groups: used.into_iter().filter_map(|arn| self.group(arn)).collect(),
                listeners,
                tags: one.tags.clone(),
            }
        });
        let used: BTreeSet<String> =
            network.iter().flat_map(|network| &network.target_groups).map(|found| found.group.arn.clone()).collect();
        let names: BTreeSet<String> = match &desired.goal {
            crate::loadbalancer::desired::Goal::Network(network) => {
                let name = |port| names::target_group(&env.ownership.cluster, &desired.service, port);
                network.ports.iter().map(name).collect()
            }
            _ => BTreeSet::new(),
        };
        let ties = |found: &TargetGroup| {
            let marked = env.ownership.is_member(&found.tags) && is_of_service(&found.tags, &desired.service);
            marked || names.contains(&found.group.name)
        };
        let unattached = self.groups.keys().filter_map(|arn| self.group(arn));
        Observed {
            classic: None,
            network,
            unattached_target_groups: unattached
                .filter(|found| !used.contains(&found.group.arn) && ties(found))
                .collect(),
            groups: self.security_groups.clone(),
            subnets: self.subnets.clone(),
            route_tables: Vec::new(),
            zones: BTreeMap::new(),
            instances: self.instances.clone(),
            other_balancers: BTreeMap::new(),
            unseen: Default::default(),
        }
    }

    fn listeners_of(&self, balancer: &str) -> Vec<Listener> {
        self.listeners.values().filter(|(owner, _)| owner == balancer).map(|(_, listener)| listener.clone()).collect()
    }

    /// A group with the balancers that lead to it.
    pub(super) fn group(&self, arn: &str) -> Option<TargetGroup> {
        let mut found = self.groups.get(arn)?.clone();
        let leads = |listener: &Listener| listener.target_group.as_deref() == Some(arn);
        let owners = self.listeners.values().filter(|(_, listener)| leads(listener)).map(|(owner, _)| owner.clone());
        found.group.balancers = owners.collect::<BTreeSet<_>>().into_iter().collect();
        Some(found)
    }

    /// Does the steps; each write must be taken, and no listener may ever lead nowhere.
    pub(super) fn apply(&mut self, steps: &[Step]) {
        let mut made = Made::new();
        for step in steps {
            let write =
                step.write.complete(&made).unwrap_or_else(|object| panic!("{object} is not made before {step:?}"));
            let answer = self.write(&write).unwrap_or_else(|refusal| panic!("{refusal}: {step:?}"));
            made.extend(write.makes().zip(answer));
            for (_, listener) in self.listeners.values() {
                let group = listener.target_group.as_ref();
                assert!(group.is_some_and(|arn| self.groups.contains_key(arn)), "{listener:?} leads nowhere");
            }
        }
    }

    fn write(&mut self, write: &Write) -> Answer {
        self.log.push(write.operation().name.to_owned());
        match write {
            Write::Ec2(write) => self.ec2(write),
            Write::Elb(write) => Err(format!("a classic write: {write:?}")),
            Write::ElbV2(write) => self.elbv2(write.clone()),
        }
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn elbv2(&mut self, write: ElbV2Write) -> Answer {
        match write {
            ElbV2Write::CreateLoadBalancer { name, mappings, security_groups, internal, tags, .. } => {
                if self.balancers.values().any(|one| one.balancer.name == name) {
                    return Err("DuplicateLoadBalancerName".to_owned());
                }
                let zone = |mapping: elbv2::SubnetMapping| BalancerZone {
                    zone: self.subnets[&mapping.subnet].zone.clone(),
                    subnet: mapping.subnet,
                    allocations: mapping.allocation.into_iter().collect(),
                    private_ipv4: mapping.private_ipv4.into_iter().collect(),
                };
                let zones: Vec<BalancerZone> = mappings.into_iter().map(zone).collect();
                assert!(!zones.is_empty(), "a balancer stands somewhere");
                let arn = self.id("arn:balancer");
                let balancer = elbv2::LoadBalancer {
                    arn: arn.clone(),
                    dns_name: format!("{name}.elb.us-west-2.amazonaws.com"),
                    name,
                    kind: "network".to_owned(),
                    scheme: if internal { "internal" } else { "internet-facing" }.to_owned(),
                    state: "provisioning".to_owned(),
                    vpc: "vpc-1".to_owned(),
                    zones,
                    security_groups: known(&security_groups),
                    created: None,
                };
                let attribute = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
                let attributes = [
                    ("load_balancing.cross_zone.enabled", "false"),
                    ("access_logs.s3.enabled", "false"),
                    ("access_logs.s3.bucket", ""),
                    ("access_logs.s3.prefix", ""),
                    ("deletion_protection.enabled", "false"),
                ]
                .map(attribute)
                .into();
                self.balancers.insert(arn.clone(), Balancer { balancer, attributes, tags });
                Ok(Some(arn))
            }
            ElbV2Write::DeleteLoadBalancer { balancer } => {
                self.balancers.remove(&balancer);
                self.listeners.retain(|_, (owner, _)| *owner != balancer);
                Ok(None)
            }
            ElbV2Write::ModifyLoadBalancerAttributes { balancer, attributes } => {
                let found = self.balancers.get_mut(balancer.known().unwrap()).ok_or("LoadBalancerNotFound")?;
                assert!(!attributes.is_empty());
                found.attributes.extend(attributes);
                Ok(None)
            }
            ElbV2Write::SetSecurityGroups { balancer, security_groups } => {
                let found = self.balancers.get_mut(&balancer).ok_or("LoadBalancerNotFound")?;
                if found.balancer.security_groups.is_empty() || security_groups.is_empty() {
                    return Err("InvalidConfigurationRequest".to_owned());
                }
                found.balancer.security_groups = known(&security_groups);
                Ok(None)
            }
            ElbV2Write::CreateListener { balancer, listener, tags } => {
                assert!(!tags.is_empty());
                let owner = balancer.known().unwrap().to_owned();
                if !self.balancers.contains_key(&owner) {
                    return Err("LoadBalancerNotFound".to_owned());
                }
                if self.listeners_of(&owner).iter().any(|one| one.port == listener.port) {
                    return Err("DuplicateListener".to_owned());
                }
                let arn = self.id("arn:listener");
                let listener = self.listener(arn.clone(), &owner, listener)?;
                self.listeners.insert(arn.clone(), (owner, listener));
                Ok(Some(arn))
            }
            ElbV2Write::ModifyListener { listener, desired } => {
                let (owner, old) = self.listeners.get(&listener).cloned().ok_or("ListenerNotFound")?;
                let mut new = self.listener(listener.clone(), &owner, desired)?;
                if new.protocol == "TLS" && old.protocol == "TLS" && new.ssl_policy.as_deref() == Some(DEFAULT_POLICY) {
                    // Not sent: stays.
                    new.ssl_policy = old.ssl_policy;
                }
                self.listeners.insert(listener, (owner, new));
                Ok(None)
            }
            ElbV2Write::DeleteListener { listener } => {
                self.listeners.remove(&listener).ok_or("ListenerNotFound")?;
                Ok(None)
            }
            write => self.target_group(write),
        }
    }

    fn target_group(&mut self, write: ElbV2Write) -> Answer {
        match write {
            ElbV2Write::CreateTargetGroup { name, protocol, port, vpc, health_check, tags, .. } => {
                if self.groups.values().any(|one| one.group.name == name) {
                    return Err("DuplicateTargetGroupName".to_owned());
                }
                let arn = self.id("arn:group");
                let mut health_check = health_check;
                health_check.timeout.get_or_insert(if health_check.protocol == "HTTP" { 6 } else { 10 });
                let group = elbv2::TargetGroup {
                    arn: arn.clone(),
                    name,
                    protocol,
                    port,
                    target_type: "instance".to_owned(),
                    vpc,
                    health_check,
                    balancers: Vec::new(),
                };
                let attributes = [("preserve_client_ip.enabled", "true"), ("proxy_protocol_v2.enabled", "false")];
                let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
                let group = TargetGroup { group, attributes: Some(attributes), targets: Vec::new(), tags };
                self.groups.insert(arn.clone(), group);
                Ok(Some(arn))
            }
            ElbV2Write::ModifyTargetGroup { target_group, health_check } => {
                let found = self.groups.get_mut(&target_group).ok_or("TargetGroupNotFound")?;
                let old = std::mem::replace(&mut found.group.health_check, health_check);
                let new = &mut found.group.health_check;
                new.timeout = new.timeout.or(old.timeout);
                Ok(None)
            }
            ElbV2Write::DeleteTargetGroup { target_group } => {
                if self.group(&target_group).is_some_and(|found| !found.group.balancers.is_empty()) {
                    return Err("ResourceInUse".to_owned());
                }
                self.groups.remove(&target_group);
                Ok(None)
            }
            ElbV2Write::ModifyTargetGroupAttributes { target_group, attributes } => {
                let found = self.groups.get_mut(target_group.known().unwrap()).ok_or("TargetGroupNotFound")?;
                found.attributes.get_or_insert_default().extend(attributes);
                Ok(None)
            }
            ElbV2Write::RegisterTargets { target_group, targets } => {
                assert!((1..=100).contains(&targets.len()));
                let found = self.groups.get_mut(target_group.known().unwrap()).ok_or("TargetGroupNotFound")?;
                for target in targets {
                    if !self.instances.contains_key(&target.id) {
                        return Err("InvalidTarget".to_owned());
                    }
                    found.targets.retain(|health| health.target != target);
                    found.targets.push(healthy(target));
                }
                found.targets.sort_by(|a, b| a.target.cmp(&b.target));
                Ok(None)
            }
            ElbV2Write::DeregisterTargets { target_group, targets } => {
                assert!((1..=100).contains(&targets.len()));
                let found = self.groups.get_mut(&target_group).ok_or("TargetGroupNotFound")?;
                for health in found.targets.iter_mut().filter(|health| targets.contains(&health.target)) {
                    health.state = "draining".to_owned();
                    health.reason = "Target.DeregistrationInProgress".to_owned();
                }
                Ok(None)
            }
            write => Err(format!("not expected: {write:?}")),
        }
    }

    /// Targets on their way out are gone.
    pub(super) fn drain(&mut self) {
        for found in self.groups.values_mut() {
            found.targets.retain(|health| health.state != "draining");
        }
    }

    fn listener(&self, arn: String, owner: &str, desired: ListenerWish) -> Result<Listener, String> {
        let target_group = desired.target_group.known().unwrap().to_owned();
        let found = self.group(&target_group).ok_or("TargetGroupNotFound")?;
        if found.group.balancers.iter().any(|balancer| balancer != owner) {
            return Err("TargetGroupAssociationLimit".to_owned());
        }
        let datagrams = |protocol: &str| protocol == "UDP";
        if datagrams(&desired.protocol) != datagrams(&found.group.protocol) {
            return Err("IncompatibleProtocols".to_owned());
        }
        let tls = desired.protocol == "TLS";
        if tls != desired.certificate.is_some() {
            return Err("CertificateNotFound".to_owned());
        }
        Ok(Listener {
            arn,
            port: desired.port,
            protocol: desired.protocol,
            certificates: desired.certificate.into_iter().collect(),
            ssl_policy: tls.then(|| desired.ssl_policy.unwrap_or_else(|| DEFAULT_POLICY.to_owned())),
            target_group: Some(target_group),
        })
    }

    fn ec2(&mut self, write: &Ec2Write) -> Answer {
        match write {
            Ec2Write::CreateSecurityGroup { name, description, tags, .. } => {
                if self.security_groups.values().any(|group| group.name == *name) {
                    return Err("InvalidGroup.Duplicate".to_owned());
                }
                let id = self.id("sg");
                self.security_groups.insert(id.clone(), security_group(&id, name, description, tags.clone()));
                Ok(Some(id))
            }
            Ec2Write::DeleteSecurityGroup { group } => {
                let id = group.known().unwrap();
                if self.balancers.values().any(|one| one.balancer.security_groups.iter().any(|used| used == id)) {
                    return Err("DependencyViolation".to_owned());
                }
                self.security_groups.remove(id).ok_or("InvalidGroup.NotFound")?;
                Ok(None)
            }
            Ec2Write::AuthorizeSecurityGroupIngress { group, permissions } => self.rules(group, permissions, true),
            Ec2Write::RevokeSecurityGroupIngress { group, permissions } => self.rules(group, permissions, false),
            Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions } => {
                self.rules(group, permissions, false)?;
                self.rules(group, permissions, true)
            }
            write => Err(format!("not expected: {write:?}")),
        }
    }

    fn rules(&mut self, group: &Id, permissions: &[Permission], adds: bool) -> Answer {
        let group = self.security_groups.get_mut(group.known().unwrap()).ok_or("InvalidGroup.NotFound")?;
        for permission in permissions {
            let key = |one: &Permission| (one.protocol.clone(), one.from_port, one.to_port);
            let index = group.ingress.iter().position(|one| key(one) == key(permission)).unwrap_or_else(|| {
                group.ingress.push(Permission { sources: Vec::new(), ..permission.clone() });
                group.ingress.len() - 1
            });
            let sources = &mut group.ingress[index].sources;
            for source in &permission.sources {
                let found = sources.iter().position(|one: &Source| one.from == source.from);
                match (found, adds) {
                    (Some(_), true) => return Err("InvalidPermission.Duplicate".to_owned()),
                    (None, false) => return Err("InvalidPermission.NotFound".to_owned()),
                    (None, true) => sources.push(source.clone()),
                    (Some(found), false) => drop(sources.remove(found)),
                }
            }
        }
        group.ingress.retain(|one| !one.sources.is_empty());
        group.ingress.sort();
        group.ingress.iter_mut().for_each(|one| one.sources.sort());
        Ok(None)
    }
}

/// What AWS gives a TLS listener by itself.
pub(super) const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

fn known(ids: &[Id]) -> Vec<String> {
    ids.iter().map(|id| id.known().unwrap().to_owned()).collect()
}

pub(super) fn healthy(target: Target) -> TargetHealth {
    TargetHealth { target, state: "healthy".to_owned(), reason: String::new() }
}

pub(super) fn security_group(id: &str, name: &str, description: &str, tags: Tags) -> SecurityGroup {
    SecurityGroup {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        vpc: "vpc-1".to_owned(),
        ingress: Vec::new(),
        tags,
    }
}
