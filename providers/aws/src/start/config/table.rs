//! Defines every key of the file once.

use ccm_kit::gcfg::{Field, Key, Table};
use ccm_provider::Finding;

use super::overrides::ServiceOverride;
use super::{Config, Family, KUBE_PROXY_HEALTH_PATH, KUBE_PROXY_HEALTH_PORT, SharedProbe};

/// `[Global]` as parsed, before keys are compared with each other.
#[derive(Debug, Default)]
pub(super) struct Global {
    config: Config,
    is_probe_shared: bool,
    probe_port: i64,
    probe_path: String,
}

#[rustfmt::skip]
pub(super) static GLOBAL: Table<Global> = Table {
    section: "Global",
    doc: "The cluster and its place in AWS. Every key may be left out.",
    keys: &[
        Key::new("Zone", Field::Optional(|g| &mut g.config.zone), "",
            "Availability zone that this program runs in. Only its region counts, and takes precedence over `Region`."),
        Key::new("Region", Field::Optional(|g| &mut g.config.region), "",
            "Region of the cluster. Without `Zone` and `Region` the instance metadata service is asked."),
        Key::new("VPC", Field::Optional(|g| &mut g.config.vpc), "",
            "VPC of the nodes. Together with (`SubnetID` or `RoleARN`) and (`KubernetesClusterTag` or `KubernetesClusterID`) it says that this program runs outside of the cluster's instances; otherwise it has no effect, and the VPC is that of the instance."),
        Key::new("SubnetID", Field::Optional(|g| &mut g.config.subnet), "",
            "Subnet for load balancers where no subnet of the VPC is tagged for the cluster. Only with `VPC`."),
        Key::new("RouteTableID", Field::Optional(|g| &mut g.config.route_table), "",
            "Route table for pod routes. Otherwise the one that is tagged for the cluster."),
        Key::new("RoleARN", Field::Optional(|g| &mut g.config.role), "",
            "Role to assume for all calls of EC2 and Elastic Load Balancing."),
        Key::new("SourceARN", Field::Optional(|g| &mut g.config.source), "",
            "Sent as `x-amz-source-arn` when the role is assumed, for the condition `aws:SourceArn` of its trust policy. Only with `RoleARN`."),
        Key::new("KubernetesClusterTag", Field::Text(|g| &mut g.config.cluster_tag), "",
            "Cluster ID; new objects get the tag `KubernetesCluster` as well. Otherwise the ID comes from the tags of the instance."),
        Key::new("KubernetesClusterID", Field::Text(|g| &mut g.config.cluster_id), "",
            "Cluster ID. If `KubernetesClusterTag` is set too, both must be equal."),
        Key::new("DisableSecurityGroupIngress", Field::Flag(|g| &mut g.config.leave_node_groups_alone), "false",
            "Leave the ingress rules of the nodes' security groups alone."),
        Key::new("ElbSecurityGroup", Field::Optional(|g| &mut g.config.classic_group), "",
            "Security group for every classic load balancer, instead of one for each. It is neither changed nor deleted."),
        Key::new("NodeIPFamilies",
            Field::CustomList {
                kind: "`ipv4`, `ipv6`",
                clear: |g| g.config.families.clear(),
                push: |g, value| family(value).map(|family| g.config.families.push(family)),
            },
            "ipv4",
            "Which addresses nodes get, in which order. One line for each."),
        Key::new("ClusterServiceLoadBalancerHealthProbeMode",
            Field::Custom {
                kind: "`ServiceNodePort`, `Shared`",
                set: |g, value| probe(value).map(|shared| g.is_probe_shared = shared),
            },
            "ServiceNodePort",
            "How load balancers check nodes for Services with the traffic policy `Cluster`: through the Service's node port, or all through kube-proxy."),
        Key::new("ClusterServiceSharedLoadBalancerHealthProbePort",
            Field::Integer { field: |g| &mut g.probe_port, min: 0, max: 65535 },
            "10256",
            "Port of kube-proxy. Only with mode `Shared`. 0 is the default."),
        Key::new("ClusterServiceSharedLoadBalancerHealthProbePath", Field::Text(|g| &mut g.probe_path), "/healthz",
            "Path there. Only with mode `Shared`."),
        Key::new("SupportedTopologyInstanceTypePattern", Field::Pattern(|g| &mut g.config.topology_types), "",
            "Instance types whose nodes must not start without network topology labels. Matches any part of the type. The built-in pattern knows the families `hpc`, `trn` and `p`."),
        Key::new("NLBSecurityGroupMode",
            Field::Custom {
                kind: "`Managed`",
                set: |g, value| nlb_groups(value).map(|managed| g.config.managed_network_groups = managed),
            },
            "",
            "`Managed`: new network load balancers get a security group of their own. Otherwise they get none."),
        Key::new("DisableStrictZoneCheck", Field::Retired::<Global>, "", "Switched off a check of zone names.")
            .note("Known to the in-tree provider only."),
    ],
};

#[rustfmt::skip]
pub(super) static OVERRIDE: Table<ServiceOverride> = Table {
    section: "ServiceOverride",
    doc: "Another address for a service. One section for each service and region; the subsection is any name: `[ServiceOverride \"1\"]`.",
    keys: &[
        Key::new("Service", Field::Text(|o| &mut o.service), "",
            "`EC2`, `Elastic Load Balancing`, `Elastic Load Balancing v2`, `STS`, or `ec2imds` for the instance metadata service, in any case. The words of the in-tree provider are known too: `ec2`, `elasticloadbalancing` for both kinds."),
        Key::new("Region", Field::Text(|o| &mut o.region), "",
            "The override counts only if this is the region of the cluster. Not compared for `ec2imds`."),
        Key::new("URL", Field::Text(|o| &mut o.url), "", "`https://host[:port][/path]`"),
        Key::new("SigningRegion", Field::Text(|o| &mut o.signing_region), "",
            "The region that requests are signed for."),
        Key::new("SigningMethod", Field::Text(|o| &mut o.signing_method), "",
            "Read and ignored: requests are always signed with version 4."),
        Key::new("SigningName", Field::Text(|o| &mut o.signing_name), "",
            "The service name that requests are signed for. Otherwise the service's own."),
    ],
};

fn family(value: &str) -> Result<Family, String> {
    match value {
        "ipv4" => Ok(Family::Ipv4),
        "ipv6" => Ok(Family::Ipv6),
        _ => Err("not an IP family; write ipv4 or ipv6, one line for each".to_owned()),
    }
}

fn probe(value: &str) -> Result<bool, String> {
    match value {
        "Shared" => Ok(true),
        "" | "ServiceNodePort" => Ok(false),
        _ => Err("not a health probe mode; write Shared or ServiceNodePort".to_owned()),
    }
}

/// Whether this program creates security groups for network balancers.
fn nlb_groups(value: &str) -> Result<bool, String> {
    match value {
        "Managed" => Ok(true),
        "" => Ok(false),
        _ => Err("invalid NLB security group mode; write Managed, or leave the key out".to_owned()),
    }
}

fn warning(key: &str, value: &str, message: impl Into<String>) -> Finding {
    Finding::warning(format!("[Global] {key}"), message).value(value)
}

impl Global {
    /// Compares the keys with each other.
    pub(super) fn check(self, findings: &mut Vec<Finding>) -> Config {
        let shared_probe = self.shared_probe(findings);
        let mut config = Config { shared_probe, ..self.config };
        let mut seen = Vec::new();
        config.families.retain(|family| {
            let is_new = !seen.contains(family);
            if is_new {
                seen.push(*family);
            } else {
                let text = "given more than once; remove the repetition";
                findings.push(warning("NodeIPFamilies", &family.to_string(), text));
            }
            is_new
        });
        doubts(&config, findings);
        config
    }

    fn shared_probe(&self, findings: &mut Vec<Finding>) -> Option<SharedProbe> {
        if self.is_probe_shared {
            let port = u16::try_from(self.probe_port).ok().filter(|port| *port != 0).unwrap_or(KUBE_PROXY_HEALTH_PORT);
            let path = if self.probe_path.is_empty() { KUBE_PROXY_HEALTH_PATH } else { &self.probe_path };
            return Some(SharedProbe { port, path: path.to_owned() });
        }
        let unused = "no effect without ClusterServiceLoadBalancerHealthProbeMode = Shared";
        if self.probe_port != 0 {
            let value = self.probe_port.to_string();
            findings.push(warning("ClusterServiceSharedLoadBalancerHealthProbePort", &value, unused));
        }
        if !self.probe_path.is_empty() {
            findings.push(warning("ClusterServiceSharedLoadBalancerHealthProbePath", &self.probe_path, unused));
        }
        None
    }
}

/// Values that are accepted but do not have the expected effect.
fn doubts(config: &Config, findings: &mut Vec<Finding>) {
    if let (Some(zone), Some(region)) = (&config.zone, &config.region)
        && super::region_of_zone(zone) != Some(region)
    {
        findings.push(warning("Region", region, format!("no effect: Zone = {zone:?} wins; remove one of them")));
    }
    findings.extend(forms(config));
    if let (Some(source), None) = (&config.source, &config.role) {
        findings.push(warning("SourceARN", source, "no effect without RoleARN"));
    }
    if config.is_off_instance() {
        return;
    }
    if let Some(vpc) = &config.vpc {
        let message = "no effect: it counts only together with SubnetID or RoleARN, and KubernetesClusterTag or KubernetesClusterID; the VPC of the instance is used";
        findings.push(warning("VPC", vpc, message));
    }
    if let Some(subnet) = &config.subnet {
        let message = "no effect: it counts only together with VPC, and KubernetesClusterTag or KubernetesClusterID; the subnet of the instance is used";
        findings.push(warning("SubnetID", subnet, message));
    }
}

/// Values whose form does not fit their key.
fn forms(config: &Config) -> Vec<Finding> {
    let ids = [
        ("VPC", &config.vpc, "vpc-"),
        ("SubnetID", &config.subnet, "subnet-"),
        ("RouteTableID", &config.route_table, "rtb-"),
        ("ElbSecurityGroup", &config.classic_group, "sg-"),
    ];
    let odd = ids.into_iter().filter_map(|(key, value, form)| {
        let value = value.as_ref().filter(|value| !value.starts_with(form))?;
        Some(warning(key, value, format!("does not look like an ID; write {form}…")))
    });
    let zone = config.region.as_ref().filter(|_| config.zone.is_none()).and_then(|region| {
        let meant = super::region_of_zone(region).filter(|meant| *meant != region)?;
        Some(warning("Region", region, format!("looks like a zone; the region is {meant}")))
    });
    odd.chain(zone).collect()
}
