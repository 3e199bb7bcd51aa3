//! A small AWS that is read and written: enough for the plans of the provider to be carried out on it. It notes each write and
//! denies what it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use ccm_kit::call::Meaning;

use super::writes;
use crate::client::ec2::{AvailabilityZone, Instance, NetworkInterface, RouteTable, SecurityGroup, Subnet, Volume};
use crate::client::elbv2::{Listener, LoadBalancer, TargetGroup, TargetHealth, Which};
use crate::client::operation::{Operation, Service};
use crate::client::write::Ec2Write;
use crate::client::{Answer, Api, ApiError, Query, Tags, Write, elb, elbv2};
use crate::loadbalancer::security_groups::permissions;

#[derive(Debug, Default)]
pub(super) struct Cloud {
    pub(super) state: Mutex<State>,
    /// Calls so far.
    pub(super) calls: AtomicUsize,
    /// Permissions that are missing.
    pub(super) denied: Mutex<BTreeSet<&'static str>>,
    /// Carries dry runs out, as an endpoint might that does not know them.
    pub(super) knows_no_dry_runs: bool,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct State {
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) interfaces: Vec<NetworkInterface>,
    pub(super) zones: Vec<AvailabilityZone>,
    pub(super) subnets: Vec<Subnet>,
    pub(super) tables: Vec<RouteTable>,
    pub(super) groups: BTreeMap<String, SecurityGroup>,
    pub(super) classic: BTreeMap<String, elb::LoadBalancer>,
    pub(super) classic_attributes: BTreeMap<String, elb::Attributes>,
    pub(super) network: BTreeMap<String, LoadBalancer>,
    pub(super) attributes: BTreeMap<String, elbv2::Attributes>,
    pub(super) listeners: BTreeMap<String, Vec<Listener>>,
    pub(super) target_groups: BTreeMap<String, TargetGroup>,
    pub(super) targets: BTreeMap<String, Vec<TargetHealth>>,
    /// Of what is not EC2's, by name or ARN.
    pub(super) tags: BTreeMap<String, Tags>,
    /// Names of the writes, and what they were about.
    pub(super) written: Vec<String>,
}

pub(super) fn refused<T>(operation: Operation, code: &str) -> Answer<T> {
    Err(ApiError::refused(operation, code, "as told"))
}

impl Cloud {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn deny(&self, permission: &'static str) {
        self.denied.lock().unwrap().insert(permission);
    }

    /// The writes since last asked.
    pub(super) fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.state().written)
    }

    fn permit(&self, operation: Operation) -> Answer<()> {
        let code = match operation.service {
            Service::Ec2 => "UnauthorizedOperation",
            _ => "AccessDenied",
        };
        assert_eq!(ApiError::refused(operation, code, "").meaning(), Meaning::Denied);
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.denied.lock().unwrap().contains(&*operation.permission()) {
            true => refused(operation, code),
            false => Ok(()),
        }
    }

    fn ec2<T>(&self, name: &'static str, read: impl FnOnce(&State) -> T) -> Answer<T> {
        self.permit(Operation::new(Service::Ec2, name))?;
        Ok(read(&self.state()))
    }

    fn of<T>(
        &self,
        (service, name): (Service, &'static str),
        not_found: &str,
        read: impl FnOnce(&State) -> Option<T>,
    ) -> Answer<T> {
        let operation = Operation::new(service, name);
        self.permit(operation)?;
        let found = read(&self.state());
        found.map_or_else(|| refused(operation, not_found), Ok)
    }
}

fn passes(query: &Query, id: &str, field: impl Fn(&str, &str) -> bool) -> bool {
    let one = |filter: &crate::client::Filter| filter.values.iter().any(|value| field(&filter.name, value));
    (query.ids.is_empty() || query.ids.contains(id)) && query.filters.iter().all(one)
}

fn tagged(tags: &Tags, name: &str, value: &str) -> bool {
    match name.strip_prefix("tag:") {
        Some(key) => tags.get(key).is_some_and(|tag| tag == value),
        None if name == "tag-key" => tags.contains_key(value),
        None => panic!("filter {name}"),
    }
}

#[async_trait]
impl Api for Cloud {
    async fn instances(&self, query: &Query) -> Answer<Vec<Instance>> {
        let field = |instance: &Instance, name: &str, value: &str| match name {
            "instance-id" => instance.id == value,
            "private-dns-name" => instance.private_dns_name == value,
            "instance-state-name" => instance.state.as_deref() == Some(value),
            "vpc-id" => instance.vpc == value,
            _ => tagged(&instance.tags, name, value),
        };
        let operation = Operation::new(Service::Ec2, "DescribeInstances");
        let found: Vec<Instance> = self.ec2(operation.name, |state| {
            let all = state.instances.values();
            all.filter(|instance| passes(query, &instance.id, |n, v| field(instance, n, v))).cloned().collect()
        })?;
        let unknown: Vec<&String> = query.ids.iter().filter(|id| !self.state().instances.contains_key(*id)).collect();
        match unknown.is_empty() {
            true => Ok(found),
            false => {
                let message = format!("The instance IDs '{unknown:?}' do not exist");
                Err(ApiError::refused(operation, "InvalidInstanceID.NotFound", &message))
            }
        }
    }
    async fn instance_topology(&self, _: &[String]) -> Answer<BTreeMap<String, Vec<String>>> {
        self.ec2("DescribeInstanceTopology", |_| BTreeMap::new())
    }
    async fn network_interfaces(&self, query: &Query) -> Answer<Vec<NetworkInterface>> {
        let field = |interface: &NetworkInterface, name: &str, value: &str| match name {
            "vpc-id" => interface.vpc == value,
            "private-ip-address" => interface.private_ip.as_deref() == Some(value),
            "attachment.status" => true,
            _ => panic!("filter {name}"),
        };
        self.ec2("DescribeNetworkInterfaces", |state| {
            let all = state.interfaces.iter();
            all.filter(|interface| passes(query, &interface.id, |n, v| field(interface, n, v))).cloned().collect()
        })
    }
    async fn availability_zones(&self) -> Answer<Vec<AvailabilityZone>> {
        self.ec2("DescribeAvailabilityZones", |state| state.zones.clone())
    }
    async fn subnets(&self, query: &Query) -> Answer<Vec<Subnet>> {
        let field = |subnet: &Subnet, name: &str, value: &str| match name {
            "vpc-id" => subnet.vpc == value,
            "subnet-id" => subnet.id == value,
            _ => tagged(&subnet.tags, name, value),
        };
        self.ec2("DescribeSubnets", |state| {
            let all = state.subnets.iter();
            all.filter(|subnet| passes(query, &subnet.id, |n, v| field(subnet, n, v))).cloned().collect()
        })
    }
    async fn route_tables(&self, query: &Query) -> Answer<Vec<RouteTable>> {
        let field = |table: &RouteTable, name: &str, value: &str| match name {
            "vpc-id" => table.vpc == value,
            "route-table-id" => table.id == value,
            _ => tagged(&table.tags, name, value),
        };
        self.ec2("DescribeRouteTables", |state| {
            let all = state.tables.iter();
            all.filter(|table| passes(query, &table.id, |n, v| field(table, n, v))).cloned().collect()
        })
    }
    async fn security_groups(&self, query: &Query) -> Answer<Vec<SecurityGroup>> {
        let field = |group: &SecurityGroup, name: &str, value: &str| match name {
            "vpc-id" => group.vpc == value,
            "group-id" => group.id == value,
            "group-name" => group.name == value,
            "ip-permission.group-id" => permissions::split(&group.ingress).iter().any(|rule| rule.is_from(value)),
            _ => tagged(&group.tags, name, value),
        };
        self.ec2("DescribeSecurityGroups", |state| {
            let all = state.groups.values();
            all.filter(|group| passes(query, &group.id, |n, v| field(group, n, v))).cloned().collect()
        })
    }
    async fn volumes(&self, _: &Query) -> Answer<Vec<Volume>> {
        self.ec2("DescribeVolumes", |_| Vec::new())
    }

    async fn classic_balancers(&self, names: &[String]) -> Answer<Vec<elb::LoadBalancer>> {
        self.of((Service::Elb, "DescribeLoadBalancers"), "LoadBalancerNotFound", |state| match names {
            [] => Some(state.classic.values().cloned().collect()),
            _ => names.iter().map(|name| state.classic.get(name).cloned()).collect(),
        })
    }
    async fn classic_attributes(&self, name: &str) -> Answer<elb::Attributes> {
        self.of((Service::Elb, "DescribeLoadBalancerAttributes"), "LoadBalancerNotFound", |state| {
            state.classic_attributes.get(name).cloned()
        })
    }
    async fn classic_policies(&self, name: &str) -> Answer<Vec<elb::Policy>> {
        self.of((Service::Elb, "DescribeLoadBalancerPolicies"), "LoadBalancerNotFound", |state| {
            state.classic.get(name).map(|_| Vec::new())
        })
    }
    async fn classic_tags(&self, names: &[String]) -> Answer<BTreeMap<String, Tags>> {
        assert!(names.len() <= 20);
        self.of((Service::Elb, "DescribeTags"), "LoadBalancerNotFound", |state| {
            names.iter().map(|name| Some((name.clone(), state.tags.get(name)?.clone()))).collect()
        })
    }

    async fn balancers(&self, which: &Which) -> Answer<Vec<LoadBalancer>> {
        self.of((Service::ElbV2, "DescribeLoadBalancers"), "LoadBalancerNotFound", |state| {
            let named = |name: &String| state.network.values().find(|balancer| balancer.name == *name).cloned();
            match which {
                Which::Names(names) => names.iter().map(named).collect(),
                _ => Some(state.network.values().cloned().collect()),
            }
        })
    }
    async fn balancer_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>> {
        self.of((Service::ElbV2, "DescribeLoadBalancerAttributes"), "LoadBalancerNotFound", |state| {
            state.attributes.get(arn).cloned()
        })
    }
    async fn listeners(&self, arn: &str) -> Answer<Vec<Listener>> {
        self.of((Service::ElbV2, "DescribeListeners"), "LoadBalancerNotFound", |state| {
            state.listeners.get(arn).cloned()
        })
    }
    async fn target_groups(&self, which: &Which) -> Answer<Vec<TargetGroup>> {
        self.of((Service::ElbV2, "DescribeTargetGroups"), "TargetGroupNotFound", |state| {
            let all = state.target_groups.values();
            let named = |name: &String| state.target_groups.values().find(|group| group.name == *name).cloned();
            match which {
                Which::All => Some(all.cloned().collect()),
                Which::OfBalancer(arn) => Some(all.filter(|group| group.balancers.contains(arn)).cloned().collect()),
                Which::Names(names) => names.iter().map(named).collect(),
            }
        })
    }
    async fn target_group_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>> {
        self.of((Service::ElbV2, "DescribeTargetGroupAttributes"), "TargetGroupNotFound", |state| {
            state.target_groups.get(arn).map(|_| BTreeMap::new())
        })
    }
    async fn target_health(&self, arn: &str) -> Answer<Vec<TargetHealth>> {
        self.of((Service::ElbV2, "DescribeTargetHealth"), "TargetGroupNotFound", |state| {
            state.targets.get(arn).cloned()
        })
    }
    async fn balancer_tags(&self, arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
        assert!(arns.len() <= 20);
        self.of((Service::ElbV2, "DescribeTags"), "LoadBalancerNotFound", |state| {
            arns.iter().map(|arn| Some((arn.clone(), state.tags.get(arn)?.clone()))).collect()
        })
    }

    async fn write(&self, write: &Write) -> Answer<Option<String>> {
        self.permit(write.operation())?;
        let made = writes::carry_out(&mut self.state(), write)?;
        self.state().written.push(format!("{} {}", write.operation().name, writes::subject(write)));
        Ok(made)
    }
    async fn dry_run(&self, write: &Ec2Write) -> Answer<()> {
        self.permit(Operation::new(Service::Ec2, write.name()))?;
        if self.knows_no_dry_runs {
            writes::carry_out(&mut self.state(), &Write::Ec2(write.clone()))?;
        }
        Ok(())
    }
}
