//! The configuration of load balancers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::names::{INTERNAL, without_internal};
use super::tags::Tags;
use crate::annotations::Scheme;
use crate::client::id::{ArmId, same};
pub(crate) use crate::start::config::{PoolKind, Preconfigured};
use crate::start::selector::Selector;

pub(crate) const LOAD_BALANCERS: &str = "Microsoft.Network/loadBalancers";
pub(crate) const PUBLIC_IPS: &str = "Microsoft.Network/publicIPAddresses";
pub(crate) const SECURITY_GROUPS: &str = "Microsoft.Network/networkSecurityGroups";
pub(crate) const NETWORKS: &str = "Microsoft.Network/virtualNetworks";

/// The inputs of plans besides the observation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Env {
    /// The subscription of network objects.
    pub(crate) subscription: String,
    pub(crate) location: String,
    /// Name and type of the edge zone.
    pub(crate) extended_location: Option<(String, String)>,
    /// `resourceGroup`
    pub(crate) group: String,
    /// `loadBalancerResourceGroup`
    pub(crate) balancer_group: String,
    pub(crate) security_group: String,
    pub(crate) security_group_group: String,
    pub(crate) network: String,
    pub(crate) network_group: String,
    /// `subnetName`
    pub(crate) subnet: String,
    pub(crate) link_group: String,
    /// `loadBalancerName`; empty: the name of the cluster.
    pub(crate) balancer_name: String,
    pub(crate) pools: PoolKind,
    /// The load balancers whose members others manage.
    pub(crate) preconfigured: Preconfigured,
    /// `excludeMasterFromStandardLB`
    pub(crate) excludes_masters: bool,
    pub(crate) disables_outbound_snat: bool,
    /// Port and path of the probe that all Services with `externalTrafficPolicy: Cluster` share.
    pub(crate) shared_probe: Option<(u16, String)>,
    /// `enableIPTagMutationForExistingPublicIP`
    pub(crate) changes_ip_tags: bool,
    pub(crate) tags: Tags,
    pub(crate) system_tags: Vec<String>,
    pub(crate) is_stack: bool,
    /// `multipleStandardLoadBalancerConfigurations`, without the name ends of internal ones.
    pub(crate) several: Vec<Several>,
    /// The ages up to which what was read is used for Services that did not change.
    #[serde(skip)]
    pub(crate) ages: Ages,
}

/// `loadBalancerCacheTTLInSeconds`, `publicIPCacheTTLInSeconds`, `nsgCacheTTLInSeconds`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ages {
    pub(crate) balancers: Duration,
    pub(crate) public_ips: Duration,
    pub(crate) security_group: Duration,
}

/// One of several load balancers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Several {
    pub(crate) name: String,
    pub(crate) primary_set: String,
    /// `allowServicePlacement`
    pub(crate) takes_services: bool,
    /// `serviceLabelSelector`
    pub(crate) services: Option<Selector>,
    /// `serviceNamespaceSelector`
    pub(crate) namespaces: Option<Selector>,
    /// `nodeSelector`
    pub(crate) nodes: Option<Selector>,
}

impl Env {
    /// The name of the single load balancer, without the end of internal ones.
    pub(crate) fn balancer<'a>(&'a self, cluster: &'a str) -> &'a str {
        if self.balancer_name.is_empty() { cluster } else { &self.balancer_name }
    }

    /// Whether a load balancer is managed.
    pub(crate) fn manages(&self, cluster: &str, name: &str) -> bool {
        let (plain, _) = without_internal(name);
        same(plain, self.balancer(cluster)) || self.several.iter().any(|one| same(plain, &one.name))
    }

    pub(crate) fn balancer_id(&self, name: &str) -> ArmId {
        ArmId::new(&self.subscription, &self.balancer_group, LOAD_BALANCERS, name)
    }

    pub(crate) fn public_ip_id(&self, group: &str, name: &str) -> ArmId {
        ArmId::new(&self.subscription, group, PUBLIC_IPS, name)
    }

    pub(crate) fn security_group_id(&self) -> ArmId {
        ArmId::new(&self.subscription, &self.security_group_group, SECURITY_GROUPS, &self.security_group)
    }

    pub(crate) fn network_id(&self) -> ArmId {
        ArmId::new(&self.subscription, &self.network_group, NETWORKS, &self.network)
    }

    pub(crate) fn subnet_id(&self, name: &str) -> ArmId {
        self.network_id().child("subnets", name)
    }

    /// Whether others manage the members of the load balancers of this kind.
    pub(crate) fn leaves_members(&self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Internal => self.preconfigured.internal,
            Scheme::External => self.preconfigured.external,
        }
    }

    /// The location of an edge zone, as a field of objects.
    pub(crate) fn edge_zone(&self) -> Option<serde_json::Value> {
        let (name, kind) = self.extended_location.as_ref()?;
        Some(serde_json::json!({"name": name, "type": kind}))
    }
}

/// The whole name of a load balancer of a kind.
pub(crate) fn balancer_name(plain: &str, scheme: Scheme) -> String {
    match scheme {
        Scheme::External => plain.to_owned(),
        Scheme::Internal => format!("{plain}{INTERNAL}"),
    }
}
