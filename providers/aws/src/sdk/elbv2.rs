//! Operations of Elastic Load Balancing v2.

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_sdk_elasticloadbalancingv2::types as sdk;

use super::convert::present;
use super::{SdkApi, all_known, known, some, time, word};
use crate::client::elbv2::{
    BalancerZone, HealthCheck, Listener, LoadBalancer, SubnetMapping, Target, TargetGroup, TargetHealth, Which,
};
use crate::client::operation::{Operation, Service};
use crate::client::write::{ElbV2Write, ListenerSettings};
use crate::client::{Answer, ReadElbV2, Tags};

const fn read(name: &'static str) -> Operation {
    Operation::new(Service::ElbV2, name)
}

/// Most objects to name in one call.
const NAMED: usize = 20;

/// Splits a [`Which`] into single calls, each with its names or its balancer.
fn parts(which: &Which) -> Vec<(Option<Vec<String>>, Option<String>)> {
    match which {
        Which::All => vec![(None, None)],
        Which::Names(names) => names.chunks(NAMED).map(|names| (Some(names.to_vec()), None)).collect(),
        Which::OfBalancer(arn) => vec![(None, Some(arn.clone()))],
    }
}

#[async_trait]
impl ReadElbV2 for SdkApi {
    async fn balancers(&self, which: &Which) -> Answer<Vec<LoadBalancer>> {
        let mut all = Vec::new();
        for (names, arn) in parts(which) {
            // For balancers, `OfBalancer` is the balancer itself.
            let arns = arn.map(|arn| vec![arn]);
            let send = |marker| {
                let request = self.clients.elbv2.describe_load_balancers();
                request.set_names(names.clone()).set_load_balancer_arns(arns.clone()).set_marker(marker).send()
            };
            let found = self.pages(read("DescribeLoadBalancers"), send, |page| {
                (page.load_balancers.unwrap_or_default().into_iter().map(balancer).collect(), page.next_marker)
            });
            all.append(&mut found.await?);
        }
        Ok(all)
    }

    async fn balancer_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>> {
        let request = self.clients.elbv2.describe_load_balancer_attributes().load_balancer_arn(arn);
        let answer = self.call(read("DescribeLoadBalancerAttributes"), || request.clone().send()).await?;
        let pair = |from: sdk::LoadBalancerAttribute| Some((from.key?, from.value.unwrap_or_default()));
        Ok(answer.attributes.unwrap_or_default().into_iter().filter_map(pair).collect())
    }

    async fn listeners(&self, balancer_arn: &str) -> Answer<Vec<Listener>> {
        let send = |marker| {
            let request = self.clients.elbv2.describe_listeners();
            request.load_balancer_arn(balancer_arn).set_marker(marker).send()
        };
        let found = self.pages(read("DescribeListeners"), send, |page| {
            (page.listeners.unwrap_or_default().into_iter().map(listener).collect(), page.next_marker)
        });
        found.await
    }

    async fn target_groups(&self, which: &Which) -> Answer<Vec<TargetGroup>> {
        let mut all = Vec::new();
        for (names, balancer_arn) in parts(which) {
            let send = |marker| {
                let request = self.clients.elbv2.describe_target_groups();
                request.set_names(names.clone()).set_load_balancer_arn(balancer_arn.clone()).set_marker(marker).send()
            };
            let found = self.pages(read("DescribeTargetGroups"), send, |page| {
                (page.target_groups.unwrap_or_default().into_iter().map(target_group).collect(), page.next_marker)
            });
            all.append(&mut found.await?);
        }
        Ok(all)
    }

    async fn target_group_attributes(&self, arn: &str) -> Answer<BTreeMap<String, String>> {
        let request = self.clients.elbv2.describe_target_group_attributes().target_group_arn(arn);
        let answer = self.call(read("DescribeTargetGroupAttributes"), || request.clone().send()).await?;
        let pair = |from: sdk::TargetGroupAttribute| Some((from.key?, from.value.unwrap_or_default()));
        Ok(answer.attributes.unwrap_or_default().into_iter().filter_map(pair).collect())
    }

    async fn target_health(&self, target_group_arn: &str) -> Answer<Vec<TargetHealth>> {
        let request = self.clients.elbv2.describe_target_health().target_group_arn(target_group_arn);
        let answer = self.call(read("DescribeTargetHealth"), || request.clone().send()).await?;
        let health = |from: sdk::TargetHealthDescription| {
            let target = from.target?;
            let (state, reason) = from.target_health.map(|health| (health.state, health.reason)).unwrap_or_default();
            Some(TargetHealth {
                target: Target { id: target.id.unwrap_or_default(), port: target.port.unwrap_or_default() },
                state: word(state),
                reason: word(reason),
            })
        };
        Ok(answer.target_health_descriptions.unwrap_or_default().into_iter().filter_map(health).collect())
    }

    async fn balancer_tags(&self, arns: &[String]) -> Answer<BTreeMap<String, Tags>> {
        let mut all = BTreeMap::new();
        for arns in arns.chunks(NAMED) {
            let request = self.clients.elbv2.describe_tags().set_resource_arns(some(arns.to_vec()));
            let answer = self.call(read("DescribeTags"), || request.clone().send()).await?;
            for from in answer.tag_descriptions.unwrap_or_default() {
                let pair = |tag: sdk::Tag| Some((tag.key?, tag.value.unwrap_or_default()));
                let tags = from.tags.unwrap_or_default().into_iter().filter_map(pair).collect();
                all.insert(from.resource_arn.unwrap_or_default(), tags);
            }
        }
        Ok(all)
    }
}

fn balancer(from: sdk::LoadBalancer) -> LoadBalancer {
    LoadBalancer {
        arn: from.load_balancer_arn.unwrap_or_default(),
        name: from.load_balancer_name.unwrap_or_default(),
        dns_name: from.dns_name.unwrap_or_default(),
        kind: word(from.r#type),
        scheme: word(from.scheme),
        state: word(from.state.and_then(|state| state.code)),
        vpc: from.vpc_id.unwrap_or_default(),
        zones: from.availability_zones.unwrap_or_default().into_iter().map(zone).collect(),
        security_groups: from.security_groups.unwrap_or_default(),
        created: from.created_time.and_then(time),
    }
}

fn zone(from: sdk::AvailabilityZone) -> BalancerZone {
    let addresses = from.load_balancer_addresses.unwrap_or_default();
    BalancerZone {
        zone: from.zone_name.unwrap_or_default(),
        subnet: from.subnet_id.unwrap_or_default(),
        allocations: addresses.iter().filter_map(|address| address.allocation_id.clone()).collect(),
        private_ipv4: addresses.into_iter().filter_map(|address| address.private_ipv4_address).collect(),
    }
}

fn listener(from: sdk::Listener) -> Listener {
    let certificates = from.certificates.unwrap_or_default().into_iter();
    Listener {
        arn: from.listener_arn.unwrap_or_default(),
        port: from.port.unwrap_or_default(),
        protocol: word(from.protocol),
        certificates: certificates.filter_map(|certificate| present(certificate.certificate_arn)).collect(),
        ssl_policy: present(from.ssl_policy),
        target_group: from.default_actions.unwrap_or_default().into_iter().find_map(forward),
    }
}

/// The target group of an action: AWS answers in the short form, the long one, or both.
fn forward(from: sdk::Action) -> Option<String> {
    let groups = from.forward_config.and_then(|config| config.target_groups).unwrap_or_default();
    present(from.target_group_arn).or_else(|| groups.into_iter().find_map(|group| present(group.target_group_arn)))
}

fn target_group(from: sdk::TargetGroup) -> TargetGroup {
    TargetGroup {
        arn: from.target_group_arn.unwrap_or_default(),
        name: from.target_group_name.unwrap_or_default(),
        protocol: word(from.protocol),
        port: from.port.unwrap_or_default(),
        target_type: word(from.target_type),
        vpc: from.vpc_id.unwrap_or_default(),
        health_check: HealthCheck {
            protocol: word(from.health_check_protocol),
            port: from.health_check_port.unwrap_or_default(),
            path: present(from.health_check_path),
            interval: from.health_check_interval_seconds.unwrap_or_default(),
            timeout: from.health_check_timeout_seconds,
            healthy_threshold: from.healthy_threshold_count.unwrap_or_default(),
            unhealthy_threshold: from.unhealthy_threshold_count.unwrap_or_default(),
        },
        balancers: from.load_balancer_arns.unwrap_or_default(),
    }
}

/// The settings of a listener, in a request that creates or modifies one.
macro_rules! with_settings {
    ($operation:ident, $desired:ident, $request:expr) => {
        $request
            .port($desired.port)
            .protocol($desired.protocol.as_str().into())
            .set_certificates(certificates($desired))
            .set_ssl_policy($desired.ssl_policy.clone())
            .default_actions(forward_to($operation, $desired)?)
    };
}

/// The health check of a target group, in a request that creates or modifies one; protocol and interval only with
/// `$pace`.
macro_rules! with_check {
    ($check:ident, $pace:expr, $request:expr) => {
        $request
            .set_health_check_protocol($pace.then(|| $check.protocol.as_str().into()))
            .health_check_port(&$check.port)
            .set_health_check_path($check.path.clone())
            .set_health_check_interval_seconds($pace.then_some($check.interval))
            .set_health_check_timeout_seconds($check.timeout)
            .healthy_threshold_count($check.healthy_threshold)
            .unhealthy_threshold_count($check.unhealthy_threshold)
    };
}

pub(super) async fn write(api: &SdkApi, operation: Operation, write: &ElbV2Write) -> Answer<Option<String>> {
    let elb = &api.clients.elbv2;
    macro_rules! send {
        ($request:expr) => {{
            let request = $request;
            api.call(operation, || request.clone().send()).await?
        }};
    }
    match write {
        ElbV2Write::CreateLoadBalancer { name, mappings, security_groups, internal, tags } => {
            use sdk::LoadBalancerSchemeEnum::{Internal, InternetFacing};
            let request = elb.create_load_balancer().name(name).r#type(sdk::LoadBalancerTypeEnum::Network);
            let request = request.scheme(if *internal { Internal } else { InternetFacing });
            let request = request.set_subnet_mappings(some(new_mappings(mappings))).set_tags(some(new_tags(tags)));
            let answer = send!(request.set_security_groups(some(all_known(operation, security_groups)?)));
            return Ok(answer.load_balancers.unwrap_or_default().into_iter().find_map(|made| made.load_balancer_arn));
        }
        ElbV2Write::DeleteLoadBalancer { balancer } => {
            drop(send!(elb.delete_load_balancer().load_balancer_arn(balancer)));
        }
        ElbV2Write::ModifyLoadBalancerAttributes { balancer, attributes } => {
            let attribute = |(key, value)| sdk::LoadBalancerAttribute::builder().key(key).value(value).build();
            let request = elb.modify_load_balancer_attributes().load_balancer_arn(known(operation, balancer)?);
            drop(send!(request.set_attributes(Some(attributes.iter().map(attribute).collect()))));
        }
        ElbV2Write::SetSecurityGroups { balancer, security_groups } => {
            let request = elb.set_security_groups().load_balancer_arn(balancer);
            drop(send!(request.set_security_groups(Some(all_known(operation, security_groups)?))));
        }
        ElbV2Write::CreateListener { balancer, listener, tags } => {
            let request = elb.create_listener().load_balancer_arn(known(operation, balancer)?);
            let answer = send!(with_settings!(operation, listener, request).set_tags(some(new_tags(tags))));
            return Ok(answer.listeners.unwrap_or_default().into_iter().find_map(|made| made.listener_arn));
        }
        ElbV2Write::ModifyListener { listener, desired } => {
            drop(send!(with_settings!(operation, desired, elb.modify_listener().listener_arn(listener))));
        }
        ElbV2Write::DeleteListener { listener } => drop(send!(elb.delete_listener().listener_arn(listener))),
        ElbV2Write::CreateTargetGroup { name, protocol, port, vpc, health_check, tags } => {
            let request = elb.create_target_group().name(name).protocol(protocol.as_str().into()).port(*port);
            let request = request.vpc_id(vpc).target_type(sdk::TargetTypeEnum::Instance);
            let answer = send!(with_check!(health_check, true, request).set_tags(some(new_tags(tags))));
            return Ok(answer.target_groups.unwrap_or_default().into_iter().find_map(|made| made.target_group_arn));
        }
        ElbV2Write::ModifyTargetGroup { target_group, health_check, pace } => {
            drop(send!(with_check!(health_check, *pace, elb.modify_target_group().target_group_arn(target_group))));
        }
        ElbV2Write::DeleteTargetGroup { target_group } => {
            drop(send!(elb.delete_target_group().target_group_arn(target_group)));
        }
        ElbV2Write::ModifyTargetGroupAttributes { target_group, attributes } => {
            let attribute = |(key, value)| sdk::TargetGroupAttribute::builder().key(key).value(value).build();
            let request = elb.modify_target_group_attributes().target_group_arn(known(operation, target_group)?);
            drop(send!(request.set_attributes(Some(attributes.iter().map(attribute).collect()))));
        }
        ElbV2Write::RegisterTargets { target_group, targets } => {
            let request = elb.register_targets().target_group_arn(known(operation, target_group)?);
            drop(send!(request.set_targets(Some(new_targets(targets)))));
        }
        ElbV2Write::DeregisterTargets { target_group, targets } => {
            let request = elb.deregister_targets().target_group_arn(target_group);
            drop(send!(request.set_targets(Some(new_targets(targets)))));
        }
    }
    Ok(None)
}

fn new_mappings(mappings: &[SubnetMapping]) -> Vec<sdk::SubnetMapping> {
    let mapping = |from: &SubnetMapping| {
        sdk::SubnetMapping::builder()
            .subnet_id(&from.subnet)
            .set_allocation_id(from.allocation.clone())
            .set_private_ipv4_address(from.private_ipv4.clone())
            .build()
    };
    mappings.iter().map(mapping).collect()
}

fn new_tags(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

fn new_targets(targets: &[Target]) -> Vec<sdk::TargetDescription> {
    let target = |from: &Target| sdk::TargetDescription::builder().id(&from.id).port(from.port).build();
    targets.iter().map(target).collect()
}

fn certificates(desired: &ListenerSettings) -> Option<Vec<sdk::Certificate>> {
    let arn = desired.certificate.as_ref()?;
    Some(vec![sdk::Certificate::builder().certificate_arn(arn).build()])
}

fn forward_to(operation: Operation, desired: &ListenerSettings) -> Answer<sdk::Action> {
    let target_group = known(operation, &desired.target_group)?;
    Ok(sdk::Action::builder().r#type(sdk::ActionTypeEnum::Forward).target_group_arn(target_group).build())
}
