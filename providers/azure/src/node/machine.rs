//! Machines, scale sets, network interfaces and states, as far as nodes need them.

use std::net::IpAddr;

use serde_json::Value;

use crate::client::id::{ArmId, same};
use crate::client::view::{flag, id, list, text};

/// A virtual machine, or an instance of a uniform scale set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) id: ArmId,
    /// The name of its node, lower-cased: the name of the computer.
    pub(crate) node_name: String,
    /// The scale set, if it is in one.
    pub(crate) scale_set: Option<ArmId>,
    pub(crate) size: String,
    pub(crate) location: String,
    /// The number of the zone.
    pub(crate) zone: Option<String>,
    pub(crate) provisioning: String,
    /// Read with the instances of uniform scale sets; that of other machines is read apart.
    pub(crate) state: Option<State>,
    pub(crate) interfaces: Vec<ArmId>,
}

/// The instance view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// `running`, `deallocated`, …; empty if unknown.
    pub(crate) power: String,
    pub(crate) fault_domain: Option<u64>,
}

impl State {
    /// Reads an instance view.
    pub(crate) fn read(view: &Value) -> Self {
        let codes = list(view, "/statuses").iter().map(|status| text(status, "/code"));
        let mut power =
            codes.filter_map(|code| code.get(..11).filter(|head| same(head, "PowerState/")).and(code.get(11..)));
        Self {
            power: power.next_back().unwrap_or_default().to_ascii_lowercase(),
            fault_domain: view.get("platformFaultDomain").and_then(Value::as_u64),
        }
    }

    /// Whether the machine is stopped: only a complete stop counts.
    pub(crate) fn is_stopped(&self) -> bool {
        ["stopped", "deallocated", "deallocating"].contains(&&*self.power)
    }
}

impl Machine {
    /// Reads a machine; `None` without an ID.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let own = id(object, "/id")?;
        let view = object.pointer("/properties/instanceView").filter(|view| !view.is_null());
        let computer = text(object, "/properties/osProfile/computerName");
        let scale_set = match own.parent() {
            Some(set) => Some(set),
            None => id(object, "/properties/virtualMachineScaleSet/id"),
        };
        let size = [text(object, "/properties/hardwareProfile/vmSize"), text(object, "/sku/name")];
        let mut size = size.into_iter().filter(|size| !size.is_empty());
        // The size of an instance is that of its model.
        let size = if own.parent().is_some() { size.next_back() } else { size.next() };
        let mut interfaces: Vec<(bool, ArmId)> = list(object, "/properties/networkProfile/networkInterfaces")
            .iter()
            .filter_map(|interface| Some((!flag(interface, "/properties/primary"), id(interface, "/id")?)))
            .collect();
        interfaces.sort_by_key(|(is_secondary, _)| *is_secondary);
        Some(Self {
            node_name: if computer.is_empty() { own.name() } else { computer }.to_ascii_lowercase(),
            scale_set,
            size: size.unwrap_or_default().to_owned(),
            location: text(object, "/location").to_owned(),
            zone: list(object, "/zones").first().and_then(Value::as_str).map(str::to_owned),
            provisioning: text(object, "/properties/provisioningState").to_owned(),
            state: view.map(State::read),
            interfaces: interfaces.into_iter().map(|(_, id)| id).collect(),
            id: own,
        })
    }

    /// Whether it is an instance of a uniform scale set.
    pub(crate) fn is_uniform(&self) -> bool {
        self.id.parent().is_some()
    }

    /// Whether it does not change by itself.
    pub(crate) fn is_settled(&self) -> bool {
        same(&self.provisioning, "Succeeded") && !self.interfaces.is_empty()
    }
}

/// A scale set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScaleSet {
    pub(crate) id: ArmId,
    pub(crate) is_flexible: bool,
    /// The first part of the names of its computers.
    pub(crate) prefix: String,
}

impl ScaleSet {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let id = id(object, "/id")?;
        let prefix = text(object, "/properties/virtualMachineProfile/osProfile/computerNamePrefix");
        let prefix = if prefix.is_empty() { id.name() } else { prefix }.to_owned();
        Some(Self { is_flexible: same(text(object, "/properties/orchestrationMode"), "Flexible"), prefix, id })
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) machine: ArmId,
    pub(crate) is_primary: bool,
    pub(crate) configs: Vec<IpConfig>,
}

/// An address of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IpConfig {
    pub(crate) is_primary: bool,
    pub(crate) address: Option<IpAddr>,
    pub(crate) public_ip: Option<ArmId>,
}

impl Interface {
    /// Reads an interface; `None` if no machine has it.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let config = |config: &Value| IpConfig {
            is_primary: flag(config, "/properties/primary"),
            address: text(config, "/properties/privateIPAddress").parse().ok(),
            public_ip: id(config, "/properties/publicIPAddress/id"),
        };
        Some(Self {
            machine: id(object, "/properties/virtualMachine/id")?,
            is_primary: flag(object, "/properties/primary"),
            configs: list(object, "/properties/ipConfigurations").iter().map(config).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_instance_of_a_uniform_set_has_the_size_of_its_model() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/ss/virtualMachines/3";
        let interface = |name: &str| format!("{id}/networkInterfaces/{name}");
        let machine = Machine::read(&json!({
            "id": id, "location": "westus", "zones": ["2"], "sku": {"name": "Standard_D2"},
            "properties": {
                "hardwareProfile": {"vmSize": "Other"}, "osProfile": {"computerName": "SS00000a"},
                "provisioningState": "Succeeded",
                "instanceView": {"platformFaultDomain": 1, "statuses": [
                    {"code": "ProvisioningState/succeeded"}, {"code": "PowerState/deallocated"}]},
                "networkProfile": {"networkInterfaces": [
                    {"id": interface("b"), "properties": {"primary": false}},
                    {"id": interface("a"), "properties": {"primary": true}}]},
            },
        }))
        .unwrap();
        assert_eq!(
            (&*machine.node_name, &*machine.size, machine.zone.as_deref()),
            ("ss00000a", "Standard_D2", Some("2"))
        );
        assert_eq!(machine.scale_set.as_ref().map(ArmId::name), Some("ss"));
        assert!(machine.is_uniform() && machine.is_settled());
        let state = machine.state.unwrap();
        assert!(state.is_stopped() && state.fault_domain == Some(1));
        assert_eq!(machine.interfaces[0].name(), "a");
    }

    #[test]
    fn a_machine_without_details_is_read_as_far_as_it_goes() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/Vm";
        let machine = Machine::read(&json!({"id": id})).unwrap();
        assert_eq!((&*machine.node_name, machine.scale_set.is_none(), machine.is_settled()), ("vm", true, false));
        assert_eq!(Machine::read(&json!({"id": "x"})), None);
        assert_eq!(Interface::read(&json!({"id": id})), None);
    }

    #[test]
    fn only_a_complete_stop_counts() {
        let power = |code: &str| State::read(&json!({"statuses": [{"code": code}]}));
        for (code, stopped) in [
            ("PowerState/stopped", true),
            ("PowerState/Deallocated", true),
            ("powerstate/deallocating", true),
            ("PowerState/stopping", false),
            ("PowerState/running", false),
            ("PowerState/unknown", false),
            ("x", false),
        ] {
            assert_eq!(power(code).is_stopped(), stopped, "{code}");
        }
    }

    #[test]
    fn a_scale_set_without_a_prefix_names_its_computers_by_its_name() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/ss";
        let read = |properties: Value| ScaleSet::read(&json!({"id": id, "properties": properties})).unwrap();
        assert_eq!(read(json!({})).prefix, "ss");
        let flexible = read(
            json!({"orchestrationMode": "flexible", "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "p"}}}),
        );
        assert!(flexible.is_flexible && flexible.prefix == "p");
    }
}
