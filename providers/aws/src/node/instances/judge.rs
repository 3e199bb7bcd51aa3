//! Interprets EC2's answers for a node. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{EvidenceKind, InstanceMetadata, Lookup, Node, NodeAddress, ProviderError};

use super::source::Found;
use super::{GRACE, Observed, Settings, addresses};
use crate::client::ec2::{Instance, NetworkInterface};
use crate::node::identity::{ProviderId, Wanted};
use crate::node::topology::Layers;
use crate::node::zones;

/// Label with the ID of the zone, which is the same in all accounts.
pub(super) const LABEL_ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// A node with this label needs no topology.
pub(super) const LABEL_LAYER_1: &str = "topology.k8s.aws/network-node-layer-1";
const LABEL_LAYER: &str = "topology.k8s.aws/network-node-layer-";

#[derive(Debug)]
pub(crate) struct Labels {
    /// `None`: not read.
    pub(super) zones: Result<Option<Arc<zones::ByName>>, ProviderError>,
    pub(super) layers: Layers,
}

#[derive(Debug)]
pub(super) struct Judge<'a> {
    pub(super) settings: &'a Settings,
    pub(super) observed: &'a Observed,
    /// `None`: the caller reads no labels.
    pub(super) labels: Option<&'a Labels>,
}

impl Judge<'_> {
    pub(super) fn node(&self, node: &Node, wanted: &Wanted) -> Lookup {
        self.observed.judge(wanted, GRACE, |found| match found {
            Found::Ec2(instance) => self.instance(node, instance),
            Found::Fargate(interface) => Lookup::Found(Arc::new(ccm_provider::Instance {
                shutdown: Ok(self.settings.fargate_counts_as_stopped),
                metadata: self.fargate_metadata(node, interface).map(Some),
            })),
        })
    }

    fn instance(&self, node: &Node, instance: &Instance) -> Lookup {
        match instance.state.as_deref() {
            // Upstream treats the instance as deleted.
            None => Lookup::Unknown(ProviderError::unknown(format!("EC2 gives no state of {}", instance.id))),
            Some("terminated") => {
                self.observed.gone(EvidenceKind::Terminated { state: "terminated".to_owned() }, Duration::ZERO)
            }
            Some(state) => Lookup::Found(Arc::new(ccm_provider::Instance {
                shutdown: Ok(state == "stopped"),
                metadata: self.metadata(node, instance).map(Some),
            })),
        }
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
            && let Some(zones) = labels.zones.as_ref().map_err(Clone::clone)?
        {
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
