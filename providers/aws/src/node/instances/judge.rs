//! What an answer of EC2 means for a node. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_provider::{Evidence, EvidenceKind, InstanceMetadata, Lookup, Node, NodeAddress, ProviderError};

use super::describe::Seen;
use super::{GRACE, Labels, Observed, Settings, addresses};
use crate::client::ec2::{Instance, NetworkInterface};
use crate::node::identity::{self, BadProviderId, InstanceId, Machine, ProviderId, Wanted};
use crate::node::zones;

/// Label with the ID of the zone, which is the same in all accounts.
pub(super) const LABEL_ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// A node with this label needs no topology.
pub(super) const LABEL_LAYER_1: &str = "topology.k8s.aws/network-node-layer-1";
const LABEL_LAYER: &str = "topology.k8s.aws/network-node-layer-";

/// What was found for a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'a> {
    Ec2(&'a Instance),
    Fargate(&'a NetworkInterface),
}

impl<'a> Found<'a> {
    pub(super) fn zone(self) -> &'a str {
        match self {
            Self::Ec2(instance) => &instance.zone,
            Self::Fargate(interface) => &interface.zone,
        }
    }

    /// ID and type of an EC2 instance.
    pub(super) fn instance_type(self) -> Option<(InstanceId, String)> {
        match self {
            Self::Ec2(instance) => Some((InstanceId::parse(&instance.id)?, instance.instance_type.clone())),
            Self::Fargate(_) => None,
        }
    }
}

impl Observed {
    /// The one thing that was found, if it was one.
    pub(super) fn one(&self, wanted: &Wanted) -> Option<Found<'_>> {
        match wanted {
            Wanted::Machine(Machine::Ec2(id)) => match self.by_id.get(id)? {
                Ok(Some(Seen::Instance(instance))) => Some(Found::Ec2(instance)),
                _ => None,
            },
            Wanted::Machine(Machine::Fargate(address)) => match self.by_address.get(address)?.as_deref() {
                Ok([interface]) => Some(Found::Fargate(interface)),
                _ => None,
            },
            Wanted::Name(name) => match self.by_name.get(name)?.as_deref() {
                Ok([instance]) => Some(Found::Ec2(instance)),
                _ => None,
            },
            Wanted::Never(_) => None,
        }
    }
}

/// Everything that a judgement is made of.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    pub(super) settings: &'a Settings,
    pub(super) observed: &'a Observed,
    /// `None`: the caller reads no labels.
    pub(super) labels: Option<&'a Labels>,
    /// When the reads began.
    pub(super) began: SystemTime,
}

impl Judge<'_> {
    /// The answer for one node.
    pub(super) fn node(&self, node: &Node, wanted: &Wanted) -> Lookup {
        match wanted {
            Wanted::Never(BadProviderId::Foreign(_)) => Lookup::Foreign,
            Wanted::Never(error @ BadProviderId::Malformed(_)) => {
                Lookup::Unknown(ProviderError::unknown(error.to_string()))
            }
            Wanted::Machine(Machine::Ec2(id)) => self.by_id(node, id),
            Wanted::Machine(Machine::Fargate(address)) => self.by_address(node, *address),
            Wanted::Name(name) => self.by_name(node, name),
        }
    }

    fn by_id(&self, node: &Node, id: &InstanceId) -> Lookup {
        match self.observed.by_id.get(id) {
            Some(Ok(Some(Seen::Instance(instance)))) => self.instance(node, instance),
            Some(Ok(Some(Seen::Denied))) => self.gone(EvidenceKind::Absent, GRACE),
            // A good answer that lacks an instance may be one that lags: a second one must agree.
            Some(Ok(None)) => self.gone(EvidenceKind::Unlisted, GRACE),
            Some(Err(error)) => Lookup::Unknown(error.clone().into()),
            None => unasked(id.as_str()),
        }
    }

    fn by_name(&self, node: &Node, name: &str) -> Lookup {
        match self.observed.by_name.get(name).map(Result::as_deref) {
            Some(Ok([instance])) => self.instance(node, instance),
            Some(Ok([])) if identity::is_ec2_dns_name(name) => self.gone(EvidenceKind::Unlisted, GRACE),
            // A name of one's own, which EC2 may never have known.
            Some(Ok([])) => Lookup::Unknown(ProviderError::InstanceNotFound),
            Some(Ok(several)) => {
                let ids: Vec<&str> = several.iter().map(|instance| instance.id.as_str()).collect();
                let ids = ids.join(", ");
                Lookup::Unknown(ProviderError::unknown(format!(
                    "several instances have the private DNS name {name:?}: {ids}; set the provider ID of the node"
                )))
            }
            Some(Err(error)) => Lookup::Unknown(error.clone().into()),
            None => unasked(name),
        }
    }

    fn by_address(&self, node: &Node, address: Ipv4Addr) -> Lookup {
        match self.observed.by_address.get(&address).map(Result::as_deref) {
            Some(Ok([interface])) => Lookup::Found(Arc::new(ccm_provider::Instance {
                shutdown: Ok(self.settings.fargate_counts_as_stopped),
                metadata: self.fargate_metadata(node, interface).map(Some),
            })),
            Some(Ok([])) => self.gone(EvidenceKind::Unlisted, GRACE),
            Some(Ok(_)) => Lookup::Unknown(ProviderError::unknown(format!(
                "several attached network interfaces have the private address {address} in {}",
                self.settings.vpc
            ))),
            Some(Err(error)) => Lookup::Unknown(error.clone().into()),
            None => unasked(&address.to_string()),
        }
    }

    fn instance(&self, node: &Node, instance: &Instance) -> Lookup {
        match instance.state.as_deref() {
            // Upstream takes it for gone.
            None => Lookup::Unknown(ProviderError::unknown(format!("EC2 gives no state of {}", instance.id))),
            Some("terminated") => {
                self.gone(EvidenceKind::Terminated { state: "terminated".to_owned() }, Duration::ZERO)
            }
            Some(state) => Lookup::Found(Arc::new(ccm_provider::Instance {
                shutdown: Ok(state == "stopped"),
                metadata: self.metadata(node, instance).map(Some),
            })),
        }
    }

    fn gone(&self, kind: EvidenceKind, grace: Duration) -> Lookup {
        Lookup::Gone(Evidence { kind, read_began: self.began, grace })
    }

    fn metadata(&self, node: &Node, instance: &Instance) -> Result<InstanceMetadata, ProviderError> {
        let addresses = addresses::of_instance(instance, &self.settings.families)?;
        let written = match node.provider_id.as_deref() {
            Some(id) => id.to_owned(),
            None => ProviderId::format(&instance.zone, &instance.id),
        };
        let mut metadata = self.common(node, written, &instance.zone, addresses)?;
        metadata.instance_type.clone_from(&instance.instance_type);
        if let Some(labels) = self.labels
            && !node.labels.contains_key(LABEL_LAYER_1)
            && let Some(layers) = labels.layers.get(&*instance.id)
        {
            let layers = layers.as_ref().map_err(Clone::clone)?;
            let numbered = layers.iter().zip(1_usize..).map(|(layer, n)| (format!("{LABEL_LAYER}{n}"), layer.clone()));
            metadata.additional_labels.extend(numbered);
        }
        Ok(metadata)
    }

    fn fargate_metadata(&self, node: &Node, interface: &NetworkInterface) -> Result<InstanceMetadata, ProviderError> {
        let addresses = addresses::of_interface(interface, &self.settings.families)?;
        self.common(node, node.provider_id_or_empty().to_owned(), &interface.zone, addresses)
    }

    fn common(
        &self,
        node: &Node,
        provider_id: String,
        zone: &str,
        node_addresses: Vec<NodeAddress>,
    ) -> Result<InstanceMetadata, ProviderError> {
        let mut additional_labels = BTreeMap::new();
        if let Some(labels) = self.labels
            && !node.labels.contains_key(LABEL_ZONE_ID)
        {
            let zones = labels.zones.as_ref().map_err(Clone::clone)?;
            additional_labels.insert(LABEL_ZONE_ID.to_owned(), zones::zone_id(zones, zone)?.to_owned());
        }
        Ok(InstanceMetadata {
            provider_id,
            node_addresses,
            zone: zone.to_owned(),
            region: self.settings.region.clone(),
            additional_labels,
            ..InstanceMetadata::default()
        })
    }
}

fn unasked(what: &str) -> Lookup {
    Lookup::Unknown(ProviderError::bug(format!("{what} was not asked for")))
}
