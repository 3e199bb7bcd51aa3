//! The machine of a node: provider IDs and node names. All functions here are pure.
//!
//! Upstream: `azure_vmss.go`, `azure_vmssflex.go`, `azure_standard.go`.

use std::fmt;

use ccm_provider::Node;
use jiff::Timestamp;

use crate::client::id::{ArmId, same};
use crate::client::operation::{VM, VMSS_VM};

/// The scheme of our provider IDs.
pub(crate) const SCHEME: &str = "azure";
/// Names the resource group of a node's machine.
pub(crate) const GROUP_LABEL: &str = "kubernetes.azure.com/resource-group";
/// `false`: another program manages the node.
pub(crate) const MANAGED_LABEL: &str = "kubernetes.azure.com/managed";
/// The length of the part of a scale set instance's computer name that numbers it.
const NUMBER: usize = 6;

/// The reason why a node has no machine here. None says that a machine does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Foreign {
    /// Its provider ID is of another cloud, or its label says that another program manages it.
    Other,
    /// The provider ID is ours, and names no machine.
    Malformed(String),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("the node belongs to another cloud or program"),
            Self::Malformed(id) => write!(
                f,
                "the provider ID {id:?} names no virtual machine; expected azure:///subscriptions/<id>/resourceGroups/\
                 <group>/providers/Microsoft.Compute/virtualMachines/<name>, or that of a scale set instance"
            ),
        }
    }
}

/// How the machine of a node is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// When the Node was created. An earlier list may show a machine that had the name, and so the ID, before.
    pub(crate) created: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Machine(ArmId),
    /// By its name, in the resource group of its label; `None`: that of the cluster. Both lower-cased.
    Name {
        name: String,
        group: Option<String>,
    },
}

/// How the machine of a node is found: by its provider ID, else by its name.
pub(crate) fn wanted(node: &Node) -> Result<Wanted, Foreign> {
    if is_unmanaged(node) {
        return Err(Foreign::Other);
    }
    let key = match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Key::Machine(machine_of(id)?),
        None => {
            let group = group_label(node).map(str::to_ascii_lowercase);
            Key::Name { name: node.name.to_ascii_lowercase(), group }
        }
    };
    Ok(Wanted { key, created: node.created })
}

/// Whether another program manages the node.
pub(crate) fn is_unmanaged(node: &Node) -> bool {
    node.labels.get(MANAGED_LABEL).is_some_and(|value| same(value, "false"))
}

/// The resource group of the node's label.
pub(crate) fn group_label(node: &Node) -> Option<&str> {
    node.labels.get(GROUP_LABEL).filter(|group| !group.is_empty())
}

/// The machine in a provider ID, in any case.
pub(crate) fn machine_of(provider_id: &str) -> Result<ArmId, Foreign> {
    let malformed = || Foreign::Malformed(provider_id.to_owned());
    let path = match provider_id.split_once("://") {
        Some((scheme, path)) if same(scheme, SCHEME) => path,
        Some(_) => return Err(Foreign::Other),
        None => return Err(malformed()),
    };
    let id = ArmId::parse(path).map_err(|_| malformed())?;
    match () {
        () if id.is(VM.kind) => Ok(id),
        () if id.is(VMSS_VM.kind) => Ok(by_number(id)),
        () => Err(malformed()),
    }
}

/// The ID of an instance with its number. Azure also writes its name, `<set>_<number>`, as in `managedBy` of disks.
fn by_number(instance: ArmId) -> ArmId {
    let Some(set) = instance.parent() else { return instance };
    match instance.name().rsplit_once('_') {
        Some((name, number)) if same(name, set.name()) && !number.is_empty() => set.child("virtualMachines", number),
        _ => instance,
    }
}

/// The provider ID of a machine: its ID, with the resource group in lower case.
pub(crate) fn provider_id(machine: &ArmId) -> String {
    let mut parts: Vec<String> = machine.as_str().split('/').map(str::to_owned).collect();
    if let Some(group) = parts.get_mut(4) {
        *group = group.to_ascii_lowercase();
    }
    format!("{SCHEME}://{}", parts.join("/"))
}

/// Whether a scale set with this prefix of computer names can have an instance of this name.
pub(crate) fn may_be_of(prefix: &str, node_name: &str) -> bool {
    let Some(end) = node_name.len().checked_sub(NUMBER) else { return false };
    let (Some(start), Some(number)) = (node_name.get(..end), node_name.get(end..)) else { return false };
    same(start, prefix) && number.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM_ID: &str = "/subscriptions/s/resourceGroups/MC_Rg/providers/Microsoft.Compute/virtualMachines/Vm1";
    const INSTANCE: &str = "/subscriptions/s/resourceGroups/MC_Rg/providers/Microsoft.Compute/virtualMachineScaleSets/ss/virtualMachines/7";

    fn node(provider_id: &str, labels: &[(&str, &str)]) -> Node {
        Node {
            name: "Node-A".into(),
            provider_id: Some(provider_id.into()),
            labels: labels.iter().copied().collect(),
            ..Node::default()
        }
    }

    #[test]
    fn a_provider_id_is_read_in_any_case_and_written_with_a_lower_case_group() {
        for id in [VM_ID, INSTANCE] {
            let written = provider_id(&ArmId::parse(id).unwrap());
            assert_eq!(written, format!("azure://{}", id.replace("MC_Rg", "mc_rg")));
            assert_eq!(machine_of(&written).unwrap(), machine_of(&written.to_ascii_uppercase()).unwrap());
        }
    }

    #[test]
    fn an_instance_may_have_its_name_in_place_of_its_number() {
        let of = |name: &str| machine_of(&format!("azure://{}", INSTANCE.replace("/7", name))).unwrap();
        assert_eq!(of("/SS_7").as_str(), INSTANCE);
        assert_eq!(of("/other_7").name(), "other_7");
        assert_eq!(of("/ss_").name(), "ss_");
    }

    #[test]
    fn other_provider_ids_name_no_machine() {
        assert_eq!(wanted(&node("aws:///z/i-123", &[])), Err(Foreign::Other));
        let disk = format!("azure://{}", VM_ID.replace("virtualMachines", "disks"));
        for id in ["azure://", "Vm1", "azure:///subscriptions/s", &*disk] {
            assert_eq!(wanted(&node(id, &[])), Err(Foreign::Malformed(id.to_owned())));
        }
    }

    #[test]
    fn an_unmanaged_node_has_no_machine_whatever_its_provider_id() {
        for value in ["false", "False"] {
            assert_eq!(wanted(&node(&format!("azure://{VM_ID}"), &[(MANAGED_LABEL, value)])), Err(Foreign::Other));
        }
        assert!(wanted(&node(&format!("azure://{VM_ID}"), &[(MANAGED_LABEL, "true")])).is_ok());
    }

    #[test]
    fn a_node_without_a_provider_id_is_found_by_name_in_its_group() {
        let name = |group: Option<&str>| Wanted {
            key: Key::Name { name: "node-a".to_owned(), group: group.map(str::to_owned) },
            created: None,
        };
        assert_eq!(wanted(&node("", &[])), Ok(name(None)));
        assert_eq!(wanted(&node("", &[(GROUP_LABEL, "Other")])), Ok(name(Some("other"))));
    }

    #[test]
    fn instances_have_the_prefix_of_their_scale_set_and_six_characters() {
        assert!(may_be_of("aks-np-vmss", "aks-np-vmss00000a"));
        assert!(may_be_of("AKS-np-vmss", "aks-np-vmss00000Z"));
        for name in ["aks-np-vmss00000", "aks-np-vmss0000-a", "ab", "", "aks-np-vmss000000a", "zürich"] {
            assert!(!may_be_of("aks-np-vmss", name), "{name}");
        }
    }
}
