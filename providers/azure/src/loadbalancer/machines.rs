//! The machines behind load balancers, and what is read of them.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json;
use crate::client::id::ArmId;
use crate::client::operation::VMSS;
use crate::node::identity::machine_of;

/// A machine behind load balancers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Machine {
    /// An instance of a uniform scale set.
    Instance(ArmId),
    /// A virtual machine with interfaces of its own.
    Machine(ArmId),
}

impl Machine {
    /// The machine of a provider ID.
    pub(crate) fn of(provider_id: &str) -> Option<Self> {
        let id = machine_of(provider_id).ok()?;
        Some(if id.parent().is_some() { Self::Instance(id) } else { Self::Machine(id) })
    }

    pub(crate) fn id(&self) -> &ArmId {
        match self {
            Self::Instance(id) | Self::Machine(id) => id,
        }
    }

    /// The scale set of an instance.
    pub(crate) fn set(&self) -> Option<ArmId> {
        match self {
            Self::Instance(id) => id.parent(),
            Self::Machine(_) => None,
        }
    }

    /// Whether it is one of these, by ID in lower case.
    pub(crate) fn is_in(&self, ids: &BTreeSet<String>) -> bool {
        ids.contains(&self.id().folded())
    }
}

/// What was read of machines.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Interfaces {
    /// The machines of interfaces, both by ID in lower case.
    pub(crate) owners: BTreeMap<String, String>,
    /// The scale sets or availability sets of machines that are no instances, by ID in lower case.
    pub(crate) sets: BTreeMap<String, String>,
    /// By ID in lower case.
    pub(crate) instances: BTreeMap<String, Value>,
    pub(crate) models: BTreeMap<String, Value>,
    pub(crate) interfaces: BTreeMap<String, Value>,
    /// Scale sets and resource groups that could not be read, and machines whose interfaces are in such groups, in lower
    /// case.
    pub(crate) unread: BTreeMap<String, ProviderError>,
    /// Machines that were read before and could neither join nor leave, by ID in lower case: they are not read again yet.
    #[serde(default)]
    pub(crate) settled: BTreeSet<String>,
}

impl Interfaces {
    /// The instances, models and interfaces.
    pub(crate) fn objects_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.instances.values_mut().chain(self.models.values_mut()).chain(self.interfaces.values_mut())
    }

    /// Why nothing is known of a machine.
    pub(crate) fn unread_of(&self, machine: &Machine) -> Option<&ProviderError> {
        let id = machine.id();
        let holder = machine.set().map_or_else(|| id.group().to_lowercase(), |set| set.folded());
        self.unread.get(&holder).or_else(|| self.unread.get(&id.folded()))
    }

    /// The scale set whose model names the pools of a machine.
    pub(crate) fn model_of(&self, machine: &Machine) -> Option<ArmId> {
        let flexible = || ArmId::parse(self.sets.get(&machine.id().folded())?).ok().filter(|set| set.is(VMSS.kind));
        machine.set().or_else(flexible)
    }

    /// What is written to change the pools of a machine: the instance, or the primary interface.
    pub(crate) fn of(&self, machine: &Machine) -> Option<(ArmId, &Value)> {
        match machine {
            Machine::Instance(id) => Some((id.clone(), self.instances.get(&id.folded())?)),
            Machine::Machine(id) => {
                let id = id.folded();
                let own = self.interfaces.iter().filter(|(interface, _)| self.owners.get(*interface) == Some(&id));
                let own: Vec<&Value> = own.map(|(_, interface)| interface).collect();
                let is_primary = |it: &&&Value| match json::at(it, &["properties", "primary"]) {
                    Value::Bool(is_primary) => *is_primary,
                    _ => own.len() == 1,
                };
                let primary = own.iter().find(is_primary)?;
                Some((ArmId::parse(json::text(primary, &["id"])).ok()?, primary))
            }
        }
    }
}

/// A machine, and its scale set or availability set and its primary interface, by ID in lower case; empty: none.
pub(crate) fn set_of(machine: &Value) -> (String, (String, String)) {
    let set = |name: &str| json::reference(machine, name).to_lowercase();
    let set =
        Some(set("virtualMachineScaleSet")).filter(|set| !set.is_empty()).unwrap_or_else(|| set("availabilitySet"));
    let interfaces = json::list(machine, &["properties", "networkProfile", "networkInterfaces"]);
    let is_primary = |it: &&Value| interfaces.len() == 1 || json::at(it, &["properties", "primary"]) == &json!(true);
    let primary = interfaces.iter().find(is_primary).map(|it| json::text(it, &["id"]).to_lowercase());
    (json::text(machine, &["id"]).to_lowercase(), (set, primary.unwrap_or_default()))
}

/// The resource groups of the interfaces of machines, as far as they are known, with the machines: an interface may be in
/// another group than its machine. `sets` as [`set_of`] reads them.
pub(crate) fn groups_of_interfaces(
    machines: &BTreeSet<String>,
    owners: &BTreeMap<String, String>,
    sets: &BTreeMap<String, (String, String)>,
) -> BTreeMap<(String, String), Vec<String>> {
    let primary = sets.iter().map(|(machine, (_, interface))| (machine, interface));
    let all = owners.iter().map(|(interface, machine)| (machine, interface)).chain(primary);
    let mut groups = BTreeMap::<_, Vec<String>>::new();
    for (machine, interface) in all.filter(|(machine, _)| machines.contains(*machine)) {
        let Ok(id) = ArmId::parse(interface) else { continue };
        let group = (id.subscription().to_owned(), id.group().to_owned());
        groups.entry(group).or_default().push(machine.clone());
    }
    groups
}

/// The fields of an instance that its change needs. Others may hold what nobody else should see.
pub(super) fn instance_part(instance: &Value) -> Value {
    let property = |name: &str| json::at(instance, &["properties", name]);
    let mut part = json!({"properties": {
        "provisioningState": property("provisioningState"),
        "hardwareProfile": property("hardwareProfile"),
        "networkProfileConfiguration": property("networkProfileConfiguration"),
        "instanceView": {"statuses": json::at(property("instanceView"), &["statuses"])},
    }});
    common(&mut part, instance);
    part
}

/// The same of a model.
pub(super) fn model_part(model: &Value) -> Value {
    let network = json::at(model, &["properties", "virtualMachineProfile", "networkProfile"]);
    let mut part = json!({"properties": {
        "provisioningState": json::at(model, &["properties", "provisioningState"]),
        "virtualMachineProfile": {"networkProfile": network},
    }});
    common(&mut part, model);
    part
}

fn common(part: &mut Value, whole: &Value) {
    if let Some(fields) = part.as_object_mut() {
        let names = ["id", "name", "location", "etag", "extendedLocation"].into_iter();
        fields.extend(names.filter_map(|name| Some((name.to_owned(), whole.get(name)?.clone()))));
    }
}
