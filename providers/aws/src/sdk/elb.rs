//! Operations of Elastic Load Balancing on classic balancers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_sdk_elasticloadbalancing::types as sdk;

use super::convert::present;
use super::{SdkApi, all_known, chunks, malformed, some, time};
use crate::client::elb::{
    AccessLog, Attributes, ConnectionDraining, HealthCheck, Listener, ListenerDescription, LoadBalancer, Policy,
};
use crate::client::operation::{Operation, Service};
use crate::client::write::ElbWrite;
use crate::client::{Answer, ReadElb, Tags};

const fn read(name: &'static str) -> Operation {
    Operation::new(Service::Elb, name)
}

/// Most balancers to name in one call, and the size of a page.
const NAMES: usize = 400;
/// Most balancers whose tags one call may read.
const TAGGED: usize = 20;

#[async_trait]
impl ReadElb for SdkApi {
    async fn classic_balancers(&self, names: &[String]) -> Answer<Vec<LoadBalancer>> {
        let mut all = Vec::new();
        for names in chunks(names, NAMES) {
            let send = |marker| {
                let request = self.clients.elb.describe_load_balancers();
                request.set_load_balancer_names(some(names.to_vec())).set_marker(marker).send()
            };
            let found = self.pages(read("DescribeLoadBalancers"), send, |page| {
                let list = page.load_balancer_descriptions.unwrap_or_default();
                (list.into_iter().map(balancer).collect(), page.next_marker)
            });
            all.append(&mut found.await?);
        }
        Ok(all)
    }

    async fn classic_attributes(&self, name: &str) -> Answer<Attributes> {
        let request = self.clients.elb.describe_load_balancer_attributes().load_balancer_name(name);
        let answer = self.call(read("DescribeLoadBalancerAttributes"), || request.clone().send()).await?;
        let Some(from) = answer.load_balancer_attributes else { return Ok(Attributes::default()) };
        Ok(Attributes {
            access_log: from.access_log.map(|from| AccessLog {
                enabled: from.enabled,
                emit_interval: from.emit_interval,
                bucket: from.s3_bucket_name,
                prefix: from.s3_bucket_prefix,
            }),
            connection_draining: from
                .connection_draining
                .map(|from| ConnectionDraining { enabled: from.enabled, timeout: from.timeout }),
            idle_timeout: from.connection_settings.map(|from| from.idle_timeout),
            cross_zone: from.cross_zone_load_balancing.map(|from| from.enabled),
        })
    }

    async fn classic_policies(&self, name: &str) -> Answer<Vec<Policy>> {
        let request = self.clients.elb.describe_load_balancer_policies().load_balancer_name(name);
        let answer = self.call(read("DescribeLoadBalancerPolicies"), || request.clone().send()).await?;
        let pair = |from: sdk::PolicyAttributeDescription| {
            Some((from.attribute_name?, from.attribute_value.unwrap_or_default()))
        };
        let policy = |from: sdk::PolicyDescription| Policy {
            name: from.policy_name.unwrap_or_default(),
            kind: from.policy_type_name.unwrap_or_default(),
            attributes: from.policy_attribute_descriptions.unwrap_or_default().into_iter().filter_map(pair).collect(),
        };
        Ok(answer.policy_descriptions.unwrap_or_default().into_iter().map(policy).collect())
    }

    async fn classic_tags(&self, names: &[String]) -> Answer<BTreeMap<String, Tags>> {
        let mut all = BTreeMap::new();
        for names in names.chunks(TAGGED) {
            let request = self.clients.elb.describe_tags().set_load_balancer_names(some(names.to_vec()));
            let answer = self.call(read("DescribeTags"), || request.clone().send()).await?;
            for from in answer.tag_descriptions.unwrap_or_default() {
                let tags = from.tags.unwrap_or_default().into_iter();
                let tags = tags.map(|tag| (tag.key, tag.value.unwrap_or_default())).collect();
                all.insert(from.load_balancer_name.unwrap_or_default(), tags);
            }
        }
        Ok(all)
    }
}

fn balancer(from: sdk::LoadBalancerDescription) -> LoadBalancer {
    let names = |names: Option<Vec<String>>| names.unwrap_or_default().into_iter().collect();
    let backends = from.backend_server_descriptions.unwrap_or_default().into_iter();
    let listeners = from.listener_descriptions.unwrap_or_default().into_iter();
    let instances = from.instances.unwrap_or_default().into_iter();
    LoadBalancer {
        name: from.load_balancer_name.unwrap_or_default(),
        dns_name: from.dns_name.unwrap_or_default(),
        scheme: from.scheme.unwrap_or_default(),
        vpc: from.vpc_id.unwrap_or_default(),
        subnets: from.subnets.unwrap_or_default().into_iter().collect(),
        security_groups: from.security_groups.unwrap_or_default(),
        listeners: listeners
            .map(|from| ListenerDescription {
                listener: from.listener.map(listener),
                policies: names(from.policy_names),
            })
            .collect(),
        backend_policies: backends.filter_map(|from| Some((from.instance_port?, names(from.policy_names)))).collect(),
        health_check: from.health_check.map(health_check),
        instances: instances.filter_map(|instance| instance.instance_id).collect(),
        created: from.created_time.and_then(time),
    }
}

fn listener(from: sdk::Listener) -> Listener {
    Listener {
        port: from.load_balancer_port,
        // AWS's default is the protocol of the listener.
        instance_protocol: from.instance_protocol.unwrap_or_else(|| from.protocol.clone()),
        protocol: from.protocol,
        instance_port: from.instance_port,
        certificate: present(from.ssl_certificate_id),
    }
}

fn health_check(from: sdk::HealthCheck) -> HealthCheck {
    HealthCheck {
        target: from.target,
        interval: from.interval,
        timeout: from.timeout,
        healthy_threshold: from.healthy_threshold,
        unhealthy_threshold: from.unhealthy_threshold,
    }
}

pub(super) async fn write(api: &SdkApi, operation: Operation, write: &ElbWrite) -> Answer<()> {
    let elb = &api.clients.elb;
    macro_rules! send {
        ($request:expr) => {{
            let request = $request;
            drop(api.call(operation, || request.clone().send()).await?)
        }};
    }
    match write {
        ElbWrite::CreateLoadBalancer { balancer, listeners, subnets, security_groups, internal, tags } => {
            let request = elb.create_load_balancer().load_balancer_name(balancer);
            let request = request.set_listeners(Some(new_listeners(operation, listeners)?));
            let request = request.set_subnets(some(subnets.clone()));
            let request = request.set_security_groups(some(all_known(operation, security_groups)?));
            let request = request.set_scheme(internal.then(|| "internal".to_owned()));
            send!(request.set_tags(some(new_tags(operation, tags)?)));
        }
        ElbWrite::DeleteLoadBalancer { balancer } => send!(elb.delete_load_balancer().load_balancer_name(balancer)),
        ElbWrite::AddTags { balancer, tags } => {
            send!(elb.add_tags().load_balancer_names(balancer).set_tags(Some(new_tags(operation, tags)?)));
        }
        ElbWrite::CreateLoadBalancerListeners { balancer, listeners } => {
            let request = elb.create_load_balancer_listeners().load_balancer_name(balancer);
            send!(request.set_listeners(Some(new_listeners(operation, listeners)?)));
        }
        ElbWrite::DeleteLoadBalancerListeners { balancer, ports } => {
            let request = elb.delete_load_balancer_listeners().load_balancer_name(balancer);
            send!(request.set_load_balancer_ports(Some(ports.clone())));
        }
        ElbWrite::AttachLoadBalancerToSubnets { balancer, subnets } => {
            let request = elb.attach_load_balancer_to_subnets().load_balancer_name(balancer);
            send!(request.set_subnets(Some(subnets.clone())));
        }
        ElbWrite::DetachLoadBalancerFromSubnets { balancer, subnets } => {
            let request = elb.detach_load_balancer_from_subnets().load_balancer_name(balancer);
            send!(request.set_subnets(Some(subnets.clone())));
        }
        ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer, security_groups } => {
            let request = elb.apply_security_groups_to_load_balancer().load_balancer_name(balancer);
            send!(request.set_security_groups(Some(all_known(operation, security_groups)?)));
        }
        ElbWrite::ConfigureHealthCheck { balancer, check } => {
            let request = elb.configure_health_check().load_balancer_name(balancer);
            send!(request.health_check(new_health_check(operation, check)?));
        }
        ElbWrite::ModifyLoadBalancerAttributes { balancer, attributes } => {
            let request = elb.modify_load_balancer_attributes().load_balancer_name(balancer);
            send!(request.load_balancer_attributes(new_attributes(operation, attributes)?));
        }
        ElbWrite::CreateLoadBalancerPolicy { balancer, policy, kind, attributes } => {
            let request = elb.create_load_balancer_policy().load_balancer_name(balancer);
            let attribute =
                |(name, value)| sdk::PolicyAttribute::builder().attribute_name(name).attribute_value(value).build();
            let request = request.set_policy_attributes(some(attributes.iter().map(attribute).collect()));
            send!(request.policy_name(policy).policy_type_name(kind));
        }
        ElbWrite::SetLoadBalancerPoliciesForBackendServer { balancer, instance_port, policies } => {
            // An empty list must be sent: it removes all policies.
            let request = elb.set_load_balancer_policies_for_backend_server().load_balancer_name(balancer);
            send!(request.instance_port(*instance_port).set_policy_names(Some(policies.clone())));
        }
        ElbWrite::SetLoadBalancerPoliciesOfListener { balancer, port, policies } => {
            let request = elb.set_load_balancer_policies_of_listener().load_balancer_name(balancer);
            send!(request.load_balancer_port(*port).set_policy_names(Some(policies.clone())));
        }
        ElbWrite::SetLoadBalancerListenerSSLCertificate { balancer, port, certificate } => {
            let request = elb.set_load_balancer_listener_ssl_certificate().load_balancer_name(balancer);
            send!(request.load_balancer_port(*port).ssl_certificate_id(certificate));
        }
        ElbWrite::RegisterInstancesWithLoadBalancer { balancer, instances } => {
            let request = elb.register_instances_with_load_balancer().load_balancer_name(balancer);
            send!(request.set_instances(Some(backends(instances))));
        }
        ElbWrite::DeregisterInstancesFromLoadBalancer { balancer, instances } => {
            let request = elb.deregister_instances_from_load_balancer().load_balancer_name(balancer);
            send!(request.set_instances(Some(backends(instances))));
        }
    }
    Ok(())
}

fn backends(instances: &[String]) -> Vec<sdk::Instance> {
    instances.iter().map(|id| sdk::Instance::builder().instance_id(id).build()).collect()
}

fn new_listeners(operation: Operation, listeners: &[Listener]) -> Answer<Vec<sdk::Listener>> {
    let listener = |from: &Listener| {
        sdk::Listener::builder()
            .protocol(&from.protocol)
            .load_balancer_port(from.port)
            .instance_protocol(&from.instance_protocol)
            .instance_port(from.instance_port)
            .set_ssl_certificate_id(from.certificate.clone())
            .build()
            .map_err(|error| malformed(operation, error))
    };
    listeners.iter().map(listener).collect()
}

fn new_tags(operation: Operation, tags: &Tags) -> Answer<Vec<sdk::Tag>> {
    let tag =
        |(key, value)| sdk::Tag::builder().key(key).value(value).build().map_err(|error| malformed(operation, error));
    tags.iter().map(tag).collect()
}

fn new_health_check(operation: Operation, from: &HealthCheck) -> Answer<sdk::HealthCheck> {
    sdk::HealthCheck::builder()
        .target(&from.target)
        .interval(from.interval)
        .timeout(from.timeout)
        .healthy_threshold(from.healthy_threshold)
        .unhealthy_threshold(from.unhealthy_threshold)
        .build()
        .map_err(|error| malformed(operation, error))
}

fn new_attributes(operation: Operation, from: &Attributes) -> Answer<sdk::LoadBalancerAttributes> {
    let access_log = from.access_log.as_ref().map(|from| {
        sdk::AccessLog::builder()
            .enabled(from.enabled)
            .set_emit_interval(from.emit_interval)
            .set_s3_bucket_name(from.bucket.clone())
            .set_s3_bucket_prefix(from.prefix.clone())
            .build()
    });
    let draining = from
        .connection_draining
        .as_ref()
        .map(|from| sdk::ConnectionDraining::builder().enabled(from.enabled).set_timeout(from.timeout).build());
    let settings = from.idle_timeout.map(|seconds| sdk::ConnectionSettings::builder().idle_timeout(seconds).build());
    let cross_zone = from.cross_zone.map(|enabled| sdk::CrossZoneLoadBalancing::builder().enabled(enabled).build());
    Ok(sdk::LoadBalancerAttributes::builder()
        .set_access_log(access_log)
        .set_connection_draining(draining)
        .set_connection_settings(settings.transpose().map_err(|error| malformed(operation, error))?)
        .set_cross_zone_load_balancing(cross_zone)
        .build())
}
