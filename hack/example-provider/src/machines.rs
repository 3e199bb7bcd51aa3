//! Instances, one at a time: [`OneByOne`](ccm_provider::OneByOne) adapts it to the batch interface. Each lookup reads
//! the whole rack of tens of machines; a cloud with thousands implements `InstancesV2` and reads once for all.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{AddressType, InstanceMetadata, Node, NodeAddress, ProviderError, SingleInstances};
use serde::Deserialize;

use crate::NAME;
use crate::rack::Rack;

/// `machines/<name of the node>.json`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Machine {
    /// Serial number: stays the same when the name changes, and is never reused.
    pub(crate) serial: String,
    addresses: Vec<String>,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    powered_off: bool,
    /// Maintenance is planned.
    #[serde(default)]
    pub(crate) maintenance: bool,
}

#[derive(Debug)]
pub(crate) struct Machines(pub(crate) Arc<Rack>);

/// The machine of a node: by serial number if the node has one, else by name. A foreign ID is an error: it proves
/// nothing about any machine.
pub(crate) fn find(rack: &Rack, node: &Node) -> Result<Option<Machine>, ProviderError> {
    let id = node.provider_id_or_empty();
    let serial = match id.strip_prefix(NAME).and_then(|rest| rest.strip_prefix("://")) {
        Some("") => return Err(ProviderError::unknown(format!("provider ID {id:?} has no serial number"))),
        None if !id.is_empty() => return Err(ProviderError::unknown(format!("{id:?} is not a provider ID of {NAME}"))),
        serial => serial,
    };
    let mut machines = rack.list::<Machine>("machines")?.into_iter();
    let found = machines.find(|(name, machine)| match serial {
        Some(serial) => machine.serial == serial,
        None => *name == *node.name,
    });
    Ok(found.map(|(_, machine)| machine))
}

#[async_trait]
impl SingleInstances for Machines {
    async fn exists(&self, node: &Node) -> Result<bool, ProviderError> {
        Ok(find(&self.0, node)?.is_some())
    }

    async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError> {
        Ok(find(&self.0, node)?.ok_or(ProviderError::InstanceNotFound)?.powered_off)
    }

    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let machine = find(&self.0, node)?.ok_or(ProviderError::InstanceNotFound)?;
        let internal = |address: String| NodeAddress { kind: AddressType::InternalIp, address: address.into() };
        Ok(Some(InstanceMetadata {
            provider_id: format!("{NAME}://{}", machine.serial),
            instance_type: "rack.machine".into(),
            node_addresses: machine.addresses.into_iter().map(internal).collect(),
            zone: machine.zone,
            ..InstanceMetadata::default()
        }))
    }
}
