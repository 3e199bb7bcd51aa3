//! Plans for Services where there is no AWS: from what was observed elsewhere, and the facts that every plan rests on.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::call::ErrorKind;
use ccm_provider::{ErrorClass, PlannedLoadBalancer, ProviderError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::operation::{Operation, Service};
use crate::client::write::Ec2Write;
use crate::client::{Answer, Api, ApiError, Query, Tags, Write, ec2, elb, elbv2};
use crate::loadbalancer::Balancers;
use crate::loadbalancer::plan::Env;
use crate::node::fleet::Fleet;
use crate::node::zones::Zones;
use crate::ownership::Ownership;
use crate::start::config::HealthProbe;

#[cfg(test)]
mod tests;

/// What plans for Services depend on beside the Service and the observation: [`Ground`] and [`HealthProbe`], as a snapshot
/// keeps them. A key that is added later has a default, so that older snapshots can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    /// Empty with `--allow-untagged-cloud`.
    cluster: String,
    /// Whether new objects get the tag `KubernetesCluster` as well.
    #[serde(default)]
    legacy_tag: bool,
    vpc: String,
    /// Subnet of last resort; empty when there is none.
    #[serde(default)]
    subnet: String,
    /// `DisableSecurityGroupIngress`
    #[serde(default)]
    node_groups_untouched: bool,
    /// `ElbSecurityGroup`
    #[serde(default)]
    shared_group: Option<String>,
    /// `NLBSecurityGroupMode = Managed`
    #[serde(default)]
    managed_network_groups: bool,
    /// `ClusterServiceLoadBalancerHealthProbeMode = Shared`; `None` is `ServiceNodePort`.
    #[serde(default)]
    shared_probe: Option<Probe>,
}

/// Where kube-proxy answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Probe {
    port: u16,
    path: String,
}

impl Facts {
    fn of(env: &Env, probe: &HealthProbe) -> Self {
        // All fields by name: what is added to the ground must be kept, too.
        let Env { ownership, vpc, self_subnet, node_groups_untouched, shared_group, managed_network_groups } = env;
        let Ownership { cluster, legacy } = ownership;
        Self {
            cluster: cluster.clone(),
            legacy_tag: *legacy,
            vpc: vpc.clone(),
            subnet: self_subnet.clone(),
            node_groups_untouched: *node_groups_untouched,
            shared_group: shared_group.clone(),
            managed_network_groups: *managed_network_groups,
            shared_probe: match probe {
                HealthProbe::NodePort => None,
                HealthProbe::Shared { port, path } => Some(Probe { port: *port, path: path.clone() }),
            },
        }
    }

    fn env(self) -> (Env, HealthProbe) {
        let env = Env {
            ownership: Ownership { cluster: self.cluster, legacy: self.legacy_tag },
            vpc: self.vpc,
            self_subnet: self.subnet,
            node_groups_untouched: self.node_groups_untouched,
            shared_group: self.shared_group,
            managed_network_groups: self.managed_network_groups,
        };
        let probe = self
            .shared_probe
            .map_or(HealthProbe::NodePort, |probe| HealthProbe::Shared { port: probe.port, path: probe.path });
        (env, probe)
    }
}

/// The facts for a snapshot. IDs and settings; nothing of credentials, roles and endpoints.
pub(crate) fn facts(env: &Env, probe: &HealthProbe) -> Value {
    // A struct of texts, numbers and flags has no form that JSON lacks.
    serde_json::to_value(Facts::of(env, probe)).unwrap_or_default()
}

/// The balancers over such facts. They plan from observations; every call to AWS is refused.
///
/// # Errors
///
/// The facts are not those of this provider.
pub(crate) fn balancers(facts: &Value) -> Result<PlannedLoadBalancer<Balancers>, ProviderError> {
    let facts = Facts::deserialize(facts).map_err(|error| {
        let text = format!("the facts about AWS in the snapshot cannot be read: {error}; take the snapshot again");
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
    })?;
    let (env, probe) = facts.env();
    let api: Arc<dyn Api> = Arc::new(NoCloud);
    let (fleet, zones) = (Fleet::new(api.clone()), Arc::new(Zones::new(api.clone())));
    Ok(PlannedLoadBalancer(Balancers::new(api, fleet, zones, Cluster::default(), env, probe)))
}

/// AWS where there is none.
#[derive(Debug)]
struct NoCloud;

fn refuse<T>(operation: Operation) -> Answer<T> {
    let text = "there is no AWS behind a snapshot: only what was observed can be planned from";
    Err(ApiError::of_kind(operation, ErrorKind::Malformed, text))
}

/// The reads of [`Api`], each with its operation.
macro_rules! no_cloud {
    ($($method:ident($($argument:ty),*) -> $answer:ty = $service:ident $operation:literal;)*) => {
        #[async_trait]
        impl Api for NoCloud {
            $(async fn $method(&self, $(_: $argument),*) -> Answer<$answer> {
                refuse(Operation::new(Service::$service, $operation))
            })*

            async fn write(&self, write: &Write) -> Answer<Option<String>> {
                refuse(write.operation())
            }

            async fn dry_run(&self, write: &Ec2Write) -> Answer<()> {
                refuse(Operation::new(Service::Ec2, write.name()))
            }
        }
    };
}

no_cloud! {
    instances(&Query) -> Vec<ec2::Instance> = Ec2 "DescribeInstances";
    instance_topology(&[String]) -> BTreeMap<String, Vec<String>> = Ec2 "DescribeInstanceTopology";
    network_interfaces(&Query) -> Vec<ec2::NetworkInterface> = Ec2 "DescribeNetworkInterfaces";
    availability_zones() -> Vec<ec2::AvailabilityZone> = Ec2 "DescribeAvailabilityZones";
    subnets(&Query) -> Vec<ec2::Subnet> = Ec2 "DescribeSubnets";
    route_tables(&Query) -> Vec<ec2::RouteTable> = Ec2 "DescribeRouteTables";
    security_groups(&Query) -> Vec<ec2::SecurityGroup> = Ec2 "DescribeSecurityGroups";
    volumes(&Query) -> Vec<ec2::Volume> = Ec2 "DescribeVolumes";
    classic_balancers(&[String]) -> Vec<elb::LoadBalancer> = Elb "DescribeLoadBalancers";
    classic_attributes(&str) -> elb::Attributes = Elb "DescribeLoadBalancerAttributes";
    classic_policies(&str) -> Vec<elb::Policy> = Elb "DescribeLoadBalancerPolicies";
    classic_tags(&[String]) -> BTreeMap<String, Tags> = Elb "DescribeTags";
    balancers(&elbv2::Which) -> Vec<elbv2::LoadBalancer> = ElbV2 "DescribeLoadBalancers";
    balancer_attributes(&str) -> BTreeMap<String, String> = ElbV2 "DescribeLoadBalancerAttributes";
    listeners(&str) -> Vec<elbv2::Listener> = ElbV2 "DescribeListeners";
    target_groups(&elbv2::Which) -> Vec<elbv2::TargetGroup> = ElbV2 "DescribeTargetGroups";
    target_group_attributes(&str) -> BTreeMap<String, String> = ElbV2 "DescribeTargetGroupAttributes";
    target_health(&str) -> Vec<elbv2::TargetHealth> = ElbV2 "DescribeTargetHealth";
    balancer_tags(&[String]) -> BTreeMap<String, Tags> = ElbV2 "DescribeTags";
}
