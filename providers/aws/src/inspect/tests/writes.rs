//! What writes do to the small AWS, and what it refuses.

use std::collections::BTreeSet;

use super::cloud::{State, refused};
use crate::client::ec2::{Permission, Route, SecurityGroup};
use crate::client::elbv2::{BalancerZone, Listener, LoadBalancer, Target, TargetGroup, TargetHealth};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite, ListenerWish, RouteTarget};
use crate::client::{Answer, Id, Write, elb};
use crate::loadbalancer::security_groups::permissions::{self, Rule};

/// When balancers are made here.
pub(super) const MADE: jiff::Timestamp = jiff::Timestamp::constant(1_700_000_000, 0);

fn known(id: &Id) -> String {
    id.known().unwrap().to_owned()
}

pub(super) fn subject(write: &Write) -> String {
    match write {
        Write::Ec2(
            Ec2Write::DeleteSecurityGroup { group }
            | Ec2Write::AuthorizeSecurityGroupIngress { group, .. }
            | Ec2Write::RevokeSecurityGroupIngress { group, .. }
            | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, .. },
        ) => known(group),
        Write::Ec2(Ec2Write::DeleteRoute { table, destination }) => format!("{table} {destination}"),
        Write::Elb(ElbWrite::DeleteLoadBalancer { balancer })
        | Write::ElbV2(ElbV2Write::DeleteLoadBalancer { balancer }) => balancer.clone(),
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group }) => target_group.clone(),
        _ => "…".to_owned(),
    }
}

pub(super) fn carry_out(state: &mut State, write: &Write) -> Answer<Option<String>> {
    match write {
        Write::Ec2(of_ec2) => ec2(state, write, of_ec2),
        Write::Elb(of_classic) => classic(state, write, of_classic).map(|()| None),
        Write::ElbV2(of_network) => network(state, write, of_network),
    }
}

fn rules(group: &SecurityGroup) -> Vec<Rule> {
    permissions::split(&group.ingress)
}

fn in_use(state: &State, id: &str) -> bool {
    let has = |groups: &Vec<String>| groups.iter().any(|group| group == id);
    state.instances.values().any(|instance| has(&instance.security_groups))
        || state.classic.values().any(|balancer| has(&balancer.security_groups))
        || state.network.values().any(|balancer| has(&balancer.security_groups))
        || state.groups.values().any(|group| group.id != id && rules(group).iter().any(|rule| rule.is_from(id)))
}

fn ec2(state: &mut State, write: &Write, of: &Ec2Write) -> Answer<Option<String>> {
    let no = |code| refused(write.operation(), code);
    match of {
        Ec2Write::CreateSecurityGroup { name, description, vpc, tags } => {
            if state.groups.values().any(|group| group.name == *name && group.vpc == *vpc) {
                return no("InvalidGroup.Duplicate");
            }
            let (id, ingress) = (format!("sg-{name}"), Vec::new());
            let (name, description, vpc, tags) = (name.clone(), description.clone(), vpc.clone(), tags.clone());
            state.groups.insert(id.clone(), SecurityGroup { id: id.clone(), name, description, vpc, ingress, tags });
            return Ok(Some(id));
        }
        Ec2Write::DeleteSecurityGroup { group } => {
            if in_use(state, &known(group)) {
                return no("DependencyViolation");
            }
            if state.groups.remove(&known(group)).is_none() {
                return no("InvalidGroup.NotFound");
            }
        }
        Ec2Write::AuthorizeSecurityGroupIngress { group, permissions } => {
            let group = state.groups.get_mut(&known(group)).unwrap();
            let (mut found, new) = (rules(group), permissions::split(permissions));
            if new.iter().any(|new| found.iter().any(|rule| rule.tuple() == new.tuple())) {
                return no("InvalidPermission.Duplicate");
            }
            found.extend(new);
            group.ingress = permissions::join(found);
        }
        Ec2Write::RevokeSecurityGroupIngress { group, permissions } => {
            return revoke(state, group, permissions).map_or_else(|| no("InvalidPermission.NotFound"), |()| Ok(None));
        }
        Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions } => {
            revoke(state, group, permissions).unwrap();
            let group = state.groups.get_mut(&known(group)).unwrap();
            let mut found = rules(group);
            found.extend(permissions::split(permissions));
            group.ingress = permissions::join(found);
        }
        Ec2Write::CreateTags { resources, tags } => {
            for id in resources {
                let instance = state.instances.get_mut(&known(id)).map(|instance| &mut instance.tags);
                let all = instance.or_else(|| state.groups.get_mut(&known(id)).map(|group| &mut group.tags));
                all.unwrap().extend(tags.clone());
            }
        }
        Ec2Write::DeleteTags { resources, tags } => {
            for id in resources {
                let instance = state.instances.get_mut(id).unwrap();
                instance.tags.retain(|key, value| tags.get(key) != Some(value));
            }
        }
        Ec2Write::ModifyInstanceAttribute { instance } => {
            state.instances.get_mut(instance).unwrap().source_dest_check = Some(false);
        }
        Ec2Write::ModifyNetworkInterfaceAttribute { interface } => {
            let all = state.instances.values_mut().flat_map(|instance| &mut instance.interfaces);
            all.filter(|found| found.id == *interface).for_each(|found| found.source_dest_check = Some(false));
        }
        Ec2Write::CreateRoute { .. } | Ec2Write::ReplaceRoute { .. } | Ec2Write::DeleteRoute { .. } => {
            return route(state, of).map_or_else(no, |()| Ok(None));
        }
    }
    Ok(None)
}

/// `None`: a rule is not there.
fn revoke(state: &mut State, group: &Id, permissions: &[Permission]) -> Option<()> {
    let group = state.groups.get_mut(&known(group)).unwrap();
    let mut found = rules(group);
    for old in permissions::split(permissions) {
        let at = found.iter().position(|rule| rule.tuple() == old.tuple())?;
        found.remove(at);
    }
    group.ingress = permissions::join(found);
    Some(())
}

fn route(state: &mut State, write: &Ec2Write) -> Result<(), &'static str> {
    let target = |target: &RouteTarget, destination: &str| match target.clone() {
        RouteTarget::Instance(id) => {
            Route { destination: destination.to_owned(), instance: Some(id), ..Route::default() }
        }
        RouteTarget::Interface(id) => {
            Route { destination: destination.to_owned(), interface: Some(id), ..Route::default() }
        }
    };
    let (Ec2Write::CreateRoute { table, destination, .. }
    | Ec2Write::ReplaceRoute { table, destination, .. }
    | Ec2Write::DeleteRoute { table, destination }) = write
    else {
        panic!("{write:?}");
    };
    let table = state.tables.iter_mut().find(|found| found.id == *table).unwrap();
    let at = table.routes.iter().position(|route| route.destination == *destination);
    match (write, at) {
        (Ec2Write::CreateRoute { .. }, Some(_)) => return Err("RouteAlreadyExists"),
        (Ec2Write::CreateRoute { target: to, .. }, None) => table.routes.push(target(to, destination)),
        (Ec2Write::ReplaceRoute { .. }, None) => return Err("InvalidParameterValue"),
        (Ec2Write::ReplaceRoute { target: to, .. }, Some(at)) => table.routes[at] = target(to, destination),
        (_, None) => return Err("InvalidRoute.NotFound"),
        (_, Some(at)) => drop(table.routes.remove(at)),
    }
    Ok(())
}

fn classic(state: &mut State, write: &Write, of: &ElbWrite) -> Answer<()> {
    match of {
        ElbWrite::CreateLoadBalancer { balancer, listeners, subnets, security_groups, internal, tags } => {
            let described = |listener: &elb::Listener| elb::ListenerDescription {
                listener: Some(listener.clone()),
                policies: BTreeSet::new(),
            };
            let made = elb::LoadBalancer {
                name: balancer.clone(),
                dns_name: format!("{balancer}-1.us-west-2.elb.amazonaws.com"),
                scheme: if *internal { "internal" } else { "internet-facing" }.to_owned(),
                vpc: "vpc-1".to_owned(),
                subnets: subnets.iter().cloned().collect(),
                security_groups: security_groups.iter().map(known).collect(),
                listeners: listeners.iter().map(described).collect(),
                created: Some(MADE),
                ..elb::LoadBalancer::default()
            };
            state.classic.insert(balancer.clone(), made);
            state.classic_attributes.insert(balancer.clone(), defaults());
            state.tags.insert(balancer.clone(), tags.clone());
        }
        ElbWrite::DeleteLoadBalancer { balancer } => {
            // AWS counts that as done, too.
            state.classic.remove(balancer);
            state.classic_attributes.remove(balancer);
            state.tags.remove(balancer);
        }
        ElbWrite::ConfigureHealthCheck { balancer, check } => {
            state.classic.get_mut(balancer).unwrap().health_check = Some(check.clone());
        }
        ElbWrite::ModifyLoadBalancerAttributes {
            balancer,
            access_log,
            connection_draining,
            idle_timeout,
            cross_zone,
        } => {
            let is = state.classic_attributes.get_mut(balancer).unwrap();
            is.access_log = access_log.clone().or(is.access_log.take());
            is.connection_draining = connection_draining.clone().or(is.connection_draining.take());
            is.idle_timeout = idle_timeout.or(is.idle_timeout);
            is.cross_zone = cross_zone.or(is.cross_zone);
        }
        ElbWrite::RegisterInstancesWithLoadBalancer { balancer, instances } => {
            state.classic.get_mut(balancer).unwrap().instances.extend(instances.iter().cloned());
        }
        _ => panic!("{write:?}"),
    }
    Ok(())
}

/// What AWS gives a new classic balancer.
fn defaults() -> elb::Attributes {
    elb::Attributes {
        access_log: Some(elb::AccessLog { enabled: false, emit_interval: None, bucket: None, prefix: None }),
        connection_draining: Some(elb::ConnectionDraining { enabled: false, timeout: Some(300) }),
        idle_timeout: Some(60),
        cross_zone: Some(false),
    }
}

fn network(state: &mut State, write: &Write, of: &ElbV2Write) -> Answer<Option<String>> {
    match of {
        ElbV2Write::CreateLoadBalancer { name, mappings, security_groups, internal, tags, .. } => {
            let arn = format!("arn:balancer/{name}");
            let zone =
                |subnet: String| BalancerZone { zone: "us-west-2a".to_owned(), subnet, ..BalancerZone::default() };
            let made = LoadBalancer {
                arn: arn.clone(),
                name: name.clone(),
                dns_name: format!("{name}-1.elb.us-west-2.amazonaws.com"),
                kind: "network".to_owned(),
                scheme: if *internal { "internal" } else { "internet-facing" }.to_owned(),
                state: "active".to_owned(),
                vpc: "vpc-1".to_owned(),
                zones: mappings.iter().map(|mapping| zone(mapping.subnet.clone())).collect(),
                security_groups: security_groups.iter().map(known).collect(),
                created: Some(MADE),
            };
            state.network.insert(arn.clone(), made);
            state.listeners.insert(arn.clone(), Vec::new());
            let defaults = ["load_balancing.cross_zone.enabled", "access_logs.s3.enabled"];
            let mut defaults: crate::client::elbv2::Attributes =
                defaults.map(|key| (key.to_owned(), "false".to_owned())).into();
            defaults
                .extend(["access_logs.s3.bucket", "access_logs.s3.prefix"].map(|key| (key.to_owned(), String::new())));
            state.attributes.insert(arn.clone(), defaults);
            state.tags.insert(arn.clone(), tags.clone());
            return Ok(Some(arn));
        }
        ElbV2Write::DeleteLoadBalancer { balancer } => {
            state.network.remove(balancer);
            state.listeners.remove(balancer);
            state.attributes.remove(balancer);
            state.tags.remove(balancer);
            for group in state.target_groups.values_mut() {
                group.balancers.retain(|arn| arn != balancer);
            }
        }
        ElbV2Write::ModifyLoadBalancerAttributes { balancer, attributes } => {
            state.attributes.get_mut(&known(balancer)).unwrap().extend(attributes.clone());
        }
        ElbV2Write::CreateListener { balancer, listener, .. } => {
            let ListenerWish { port, protocol, target_group, .. } = listener;
            let arn = known(balancer);
            let group = known(target_group);
            state.target_groups.get_mut(&group).unwrap().balancers.push(arn.clone());
            let (port, protocol, target_group) = (*port, protocol.clone(), Some(group));
            let made = Listener { arn: format!("{arn}/{port}"), port, protocol, target_group, ..Listener::default() };
            state.listeners.get_mut(&arn).unwrap().push(made);
        }
        ElbV2Write::CreateTargetGroup { name, protocol, port, vpc, health_check, tags, .. } => {
            let arn = format!("arn:group/{name}");
            let made = TargetGroup {
                arn: arn.clone(),
                name: name.clone(),
                protocol: protocol.clone(),
                port: *port,
                target_type: "instance".to_owned(),
                vpc: vpc.clone(),
                health_check: health_check.clone(),
                balancers: Vec::new(),
            };
            state.target_groups.insert(arn.clone(), made);
            state.targets.insert(arn.clone(), Vec::new());
            state.tags.insert(arn.clone(), tags.clone());
            return Ok(Some(arn));
        }
        ElbV2Write::DeleteTargetGroup { target_group } => {
            match state.target_groups.get(target_group) {
                None => return refused(write.operation(), "TargetGroupNotFound"),
                Some(group) if !group.balancers.is_empty() => return refused(write.operation(), "ResourceInUse"),
                Some(_) => drop(state.target_groups.remove(target_group)),
            }
            state.targets.remove(target_group);
            state.tags.remove(target_group);
        }
        ElbV2Write::RegisterTargets { target_group, targets } => {
            let healthy = |target: &Target| TargetHealth {
                target: target.clone(),
                state: "healthy".to_owned(),
                reason: String::new(),
            };
            state.targets.get_mut(&known(target_group)).unwrap().extend(targets.iter().map(healthy));
        }
        _ => panic!("{write:?}"),
    }
    Ok(None)
}
