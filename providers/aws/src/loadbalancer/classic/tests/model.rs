//! A classic balancer in memory, with AWS's refusals and with what AWS fills in by itself.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::Service;
use serde_json::{Value, json};

use crate::annotations::Annotations;
use crate::client::Write;
use crate::client::elb::{
    AccessLog, Attributes, ConnectionDraining, HealthCheck, Listener, ListenerDescription, LoadBalancer, Policy,
};
use crate::client::write::ElbWrite;
use crate::loadbalancer::classic;
use crate::loadbalancer::desired::{Desired, Goal, NamedGroups};
use crate::loadbalancer::observe::{self, Observed};
use crate::loadbalancer::plan::{Env, Planned};
use crate::loadbalancer::security_groups::tests::model as groups;
use crate::start::config::HealthProbe;

pub(super) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
const AWS_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// A Service with ports 80 and 443 and annotations without their prefix.
pub(super) fn service(annotations: &[(&str, &str)]) -> Service {
    let ports = json!([
        {"name": "http", "port": 80, "nodePort": 31080, "protocol": "TCP"},
        {"name": "https", "port": 443, "nodePort": 31443, "protocol": "TCP"},
    ]);
    service_with(&ports, annotations)
}

pub(super) fn service_with(ports: &Value, annotations: &[(&str, &str)]) -> Service {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": ports},
    }))
    .unwrap()
}

/// The wish of a Service for the nodes `i-1` to `i-<nodes>`.
pub(super) fn wish_for(service: &Service, nodes: usize) -> Desired {
    let annotations = Annotations::read(&service.metadata.annotations);
    let mut common = groups::common(nodes, &["10.0.0.0/8"]);
    common.internal = annotations.get_or_default(&crate::annotations::INTERNAL).unwrap();
    common.tags = annotations.get_or_default(&crate::annotations::ADDITIONAL_TAGS).unwrap();
    let named_groups = NamedGroups {
        instead: annotations.get_or_default(&crate::annotations::SECURITY_GROUPS).unwrap(),
        extra: annotations.get_or_default(&crate::annotations::EXTRA_SECURITY_GROUPS).unwrap(),
    };
    let (classic, _) = classic::desired::classic(service, common, &HealthProbe::NodePort).unwrap();
    Desired { named_groups, ..groups::desired(Goal::Classic(Box::new(classic))) }
}

pub(super) fn hosts_only(mut desired: Desired) -> Desired {
    if let Goal::Classic(classic) = &mut desired.goal {
        classic.common.must_exist = true;
    }
    desired
}

pub(super) fn desired(annotations: &[(&str, &str)]) -> Desired {
    wish_for(&service(annotations), 3)
}

pub(super) const SUBNETS: &[&str] = &["subnet-a", "subnet-b"];

pub(super) fn plan(world: &Observed, desired: &Desired) -> Planned {
    plan_in(world, desired, SUBNETS, &groups::env())
}

pub(super) fn plan_in(world: &Observed, desired: &Desired, subnets: &[&str], env: &Env) -> Planned {
    let subnets: Vec<String> = subnets.iter().map(|subnet| (*subnet).to_owned()).collect();
    match &desired.goal {
        Goal::Classic(classic) => classic::plan(desired, classic, world, env, &|| Ok(subnets.clone())).unwrap(),
        _ => classic::delete(desired, world, env, "the Service wants no load balancer any more"),
    }
}

/// Plans, writes, and checks that nothing is left to plan.
pub(super) fn converge(world: &mut Observed, desired: &Desired) {
    converge_in(world, desired, SUBNETS);
}

pub(super) fn converge_in(world: &mut Observed, desired: &Desired, subnets: &[&str]) {
    let planned = plan_in(world, desired, subnets, &groups::env());
    groups::run(world, &planned.steps, usize::MAX, apply);
    let again = plan_in(world, desired, subnets, &groups::env());
    assert_eq!(groups::texts(&again.steps), [""; 0], "a second plan is empty");
}

/// A world with the balancer that the annotations ask for.
pub(super) fn current(annotations: &[(&str, &str)]) -> Observed {
    let mut world = groups::world();
    converge(&mut world, &desired(annotations));
    world
}

pub(super) fn balancer(world: &Observed) -> &LoadBalancer {
    &world.classic.as_ref().unwrap().balancer
}

pub(super) fn apply(world: &mut Observed, write: &Write) -> Result<Option<String>, String> {
    match write {
        Write::Ec2(write) => groups::apply_ec2(world, write),
        Write::Elb(write) => apply_elb(world, write).map(|()| None),
        Write::ElbV2(write) => Err(format!("nothing of a classic balancer: {write:?}")),
    }
}

fn apply_elb(world: &mut Observed, write: &ElbWrite) -> Result<(), String> {
    if let ElbWrite::CreateLoadBalancer { balancer, listeners, subnets, security_groups, internal, tags } = write {
        if world.classic.is_some() {
            return Err(format!("DuplicateLoadBalancerName {balancer}"));
        }
        let ids = security_groups.iter().map(|id| id.known().unwrap().to_owned()).collect();
        let mut made = observe::Classic {
            balancer: LoadBalancer {
                name: balancer.clone(),
                dns_name: format!("{balancer}-1.us-west-2.elb.amazonaws.com"),
                scheme: if *internal { "internal" } else { "internet-facing" }.to_owned(),
                vpc: "vpc-1".to_owned(),
                health_check: Some(aws_health_check()),
                ..LoadBalancer::default()
            },
            attributes: aws_attributes(),
            policies: vec![Policy {
                name: AWS_POLICY.to_owned(),
                kind: "SSLNegotiationPolicyType".to_owned(),
                ..Policy::default()
            }],
            tags: tags.clone(),
        };
        set_groups(world, &mut made, ids)?;
        attach(world, &mut made, subnets)?;
        listen(&mut made, listeners)?;
        world.classic = Some(made);
        return Ok(());
    }
    let mut classic = world.classic.take().ok_or("LoadBalancerNotFound")?;
    let answer = change(world, &mut classic, write);
    if !matches!(write, ElbWrite::DeleteLoadBalancer { .. }) || answer.is_err() {
        world.classic = Some(classic);
    }
    answer
}

fn change(world: &Observed, classic: &mut observe::Classic, write: &ElbWrite) -> Result<(), String> {
    let balancer = &mut classic.balancer;
    match write.clone() {
        ElbWrite::CreateLoadBalancer { .. } | ElbWrite::DeleteLoadBalancer { .. } => {}
        ElbWrite::AddTags { tags, .. } => classic.tags.extend(tags),
        ElbWrite::CreateLoadBalancerListeners { listeners, .. } => listen(classic, &listeners)?,
        ElbWrite::DeleteLoadBalancerListeners { ports, .. } => {
            balancer.listeners.retain(|listener| !ports.contains(&listener.listener.as_ref().unwrap().port));
        }
        ElbWrite::AttachLoadBalancerToSubnets { subnets, .. } => attach(world, classic, &subnets)?,
        ElbWrite::DetachLoadBalancerFromSubnets { subnets, .. } => {
            balancer.subnets.retain(|subnet| !subnets.contains(subnet));
            if balancer.subnets.is_empty() {
                return Err("InvalidConfigurationRequest: no subnet left".to_owned());
            }
        }
        ElbWrite::ApplySecurityGroupsToLoadBalancer { security_groups, .. } => {
            let ids = security_groups.iter().map(|id| id.known().unwrap().to_owned()).collect();
            set_groups(world, classic, ids)?;
        }
        ElbWrite::ConfigureHealthCheck { check, .. } => balancer.health_check = Some(check),
        ElbWrite::ModifyLoadBalancerAttributes {
            access_log, connection_draining, idle_timeout, cross_zone, ..
        } => {
            let attributes = &mut classic.attributes;
            if let Some(log) = access_log {
                attributes.access_log = Some(match log.enabled {
                    true => AccessLog { emit_interval: log.emit_interval.or(Some(60)), ..log },
                    false => AccessLog::default(),
                });
            }
            if let Some(draining) = connection_draining {
                let timeout = draining.timeout.or(Some(300));
                attributes.connection_draining = Some(ConnectionDraining { timeout, ..draining });
            }
            attributes.idle_timeout = idle_timeout.or(attributes.idle_timeout);
            attributes.cross_zone = cross_zone.or(attributes.cross_zone);
        }
        ElbWrite::CreateLoadBalancerPolicy { policy, kind, attributes, .. } => {
            if classic.policies.iter().any(|known| known.name == policy) {
                return Err(format!("DuplicatePolicyName {policy}"));
            }
            classic.policies.push(Policy { name: policy, kind, attributes });
        }
        ElbWrite::SetLoadBalancerPoliciesForBackendServer { instance_port, policies, .. } => {
            known(&classic.policies, &policies)?;
            // AWS leaves a port without policies out.
            match policies.is_empty() {
                true => drop(balancer.backend_policies.remove(&instance_port)),
                false => drop(balancer.backend_policies.insert(instance_port, policies.into_iter().collect())),
            }
        }
        ElbWrite::SetLoadBalancerPoliciesOfListener { port, policies, .. } => {
            known(&classic.policies, &policies)?;
            let is_it = |found: &&mut ListenerDescription| found.listener.as_ref().unwrap().port == port;
            let listener = balancer.listeners.iter_mut().find(is_it).ok_or(format!("ListenerNotFound {port}"))?;
            listener.policies = policies.into_iter().collect();
        }
        ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. } => balancer.instances.extend(instances),
        ElbWrite::DeregisterInstancesFromLoadBalancer { instances, .. } => {
            balancer.instances.retain(|instance| !instances.contains(instance));
        }
    }
    Ok(())
}

fn known(policies: &[Policy], names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| !policies.iter().any(|policy| policy.name == **name)) {
        Some(unknown) => Err(format!("PolicyNotFound {unknown}")),
        None => Ok(()),
    }
}

fn set_groups(world: &Observed, classic: &mut observe::Classic, ids: Vec<String>) -> Result<(), String> {
    if let Some(unknown) = ids.iter().find(|id| !world.groups.contains_key(*id)) {
        return Err(format!("InvalidSecurityGroup {unknown}"));
    }
    if ids.is_empty() || ids.len() > 5 {
        return Err(format!("InvalidConfigurationRequest: {} groups", ids.len()));
    }
    classic.balancer.security_groups = ids;
    Ok(())
}

fn attach(world: &Observed, classic: &mut observe::Classic, subnets: &[String]) -> Result<(), String> {
    for subnet in subnets {
        let zone = &world.subnets[subnet].zone;
        if classic.balancer.subnets.iter().any(|other| world.subnets[other].zone == *zone) {
            return Err(format!("InvalidConfigurationRequest: two subnets of {zone}"));
        }
        classic.balancer.subnets.insert(subnet.clone());
    }
    Ok(())
}

fn listen(classic: &mut observe::Classic, listeners: &[Listener]) -> Result<(), String> {
    for listener in listeners {
        let port = listener.port;
        if classic.balancer.listeners.iter().any(|other| other.listener.as_ref().unwrap().port == port) {
            return Err(format!("DuplicateListener {port}"));
        }
        let listener = Listener {
            protocol: listener.protocol.to_uppercase(),
            instance_protocol: listener.instance_protocol.to_uppercase(),
            ..listener.clone()
        };
        let tls = listener.certificate.is_some();
        let policies = BTreeSet::from([AWS_POLICY.to_owned()]).into_iter().filter(|_| tls).collect();
        classic.balancer.listeners.push(ListenerDescription { listener: Some(listener), policies });
    }
    Ok(())
}

fn aws_health_check() -> HealthCheck {
    HealthCheck {
        target: "TCP:31080".to_owned(),
        interval: 30,
        timeout: 5,
        healthy_threshold: 10,
        unhealthy_threshold: 2,
    }
}

fn aws_attributes() -> Attributes {
    Attributes {
        access_log: Some(AccessLog::default()),
        connection_draining: Some(ConnectionDraining { enabled: false, timeout: Some(300) }),
        idle_timeout: Some(60),
        cross_zone: Some(false),
    }
}
