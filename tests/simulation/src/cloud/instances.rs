//! Instances: visible after a delay, looked up in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    AddressType, Aspects, ErrorClass, Evidence, EvidenceKind, Instance as Reported, InstanceMetadata, InstancesV2,
    Lookup, NodeAddress, NodeRef, ProviderError,
};
use rand::Rng;

use super::{Cloud, Handle, SCHEME, State};
use crate::life::epoch;
use crate::world::MONITOR_PERIOD;

/// The power state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// Running.
    On,
    /// Stopped; can be started again.
    Off,
    /// Terminated, but still visible.
    Terminated,
    /// Terminated, and no longer visible.
    Forgotten,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The name of its node.
    pub name: String,
    /// The power state.
    pub power: Power,
    /// The time at which the instance becomes visible.
    pub visible: Duration,
    /// Its number, from which its addresses are derived.
    pub number: u32,
    /// The number of its external address, which may change.
    pub external: u32,
}

impl Instance {
    /// Whether the instance is permanently gone.
    pub fn is_gone(&self) -> bool {
        matches!(self.power, Power::Terminated | Power::Forgotten)
    }

    /// The addresses that its node must have, without the host name.
    pub fn addresses(&self) -> Vec<(&'static str, String)> {
        let (number, external) = (self.number, self.external);
        vec![
            ("InternalIP", format!("10.0.{}.{}", number / 200, number % 200 + 1)),
            ("ExternalIP", format!("198.51.{}.{}", external / 200, external % 200 + 1)),
        ]
    }

    /// Its zone.
    pub fn zone(&self) -> String {
        format!("sim-1{}", if self.number.is_multiple_of(2) { 'a' } else { 'b' })
    }

    fn metadata(&self, id: &str) -> InstanceMetadata {
        let address = |(kind, address): (&str, String)| {
            let kind = if kind == "InternalIP" { AddressType::InternalIp } else { AddressType::ExternalIp };
            NodeAddress { kind, address: address.as_str().into() }
        };
        InstanceMetadata {
            provider_id: provider_id(id),
            instance_type: "sim.large".into(),
            node_addresses: self.addresses().into_iter().map(address).collect(),
            zone: self.zone(),
            region: "sim-1".into(),
            additional_labels: BTreeMap::from([("sim.example/rack".to_owned(), format!("r{}", self.number))]),
        }
    }
}

/// `sim:///i-1`
pub fn provider_id(id: &str) -> String {
    format!("{SCHEME}:///{id}")
}

/// The ID in a provider ID of this cloud.
pub fn id_of(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or_default()
}

impl State {
    /// The instance with this name that is not gone.
    pub fn living(&self, name: &str) -> Option<(&String, &Instance)> {
        self.instances.iter().find(|(_, instance)| instance.name == name && !instance.is_gone())
    }

    /// Whether a lookup finds an incomplete list, one less of which is left.
    fn takes_partial_list(&mut self) -> bool {
        let left = &mut self.mishaps.partial_lists;
        std::mem::replace(left, left.saturating_sub(1)) > 0
    }

    /// Whether the instance of a node is permanently gone; by name if the node has no provider ID.
    pub fn is_gone(&self, name: &str, provider_id: &str) -> bool {
        match provider_id {
            "" => self.living(name).is_none(),
            id => self.instances.get(id_of(id)).is_none_or(Instance::is_gone),
        }
    }
}

impl Cloud {
    /// Creates an instance; returns its ID.
    pub fn launch(&self, name: &str) -> String {
        let late = u64::try_from(self.traits.grace.as_millis()).unwrap_or_default().saturating_sub(2000);
        let late = self.dice(|rng| if rng.random_bool(0.3) { rng.random_range(0..=late) } else { 0 });
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let id = format!("i-{number:03}");
        let visible = self.trace.now() + Duration::from_millis(late);
        let instance = Instance { name: name.to_owned(), power: Power::On, visible, number, external: number };
        state.instances.insert(id.clone(), instance);
        drop(state);
        self.trace.say(format_args!("instance {id} of {name} starts, visible after {late}ms"));
        id
    }

    /// Changes the power state of an instance. A terminated instance stays terminated.
    pub fn switch(&self, id: &str, power: Power) {
        let mut state = self.lock();
        let Some(instance) = state.instances.get_mut(id) else { return };
        if instance.is_gone() && power != Power::Forgotten {
            return;
        }
        instance.power = power;
        drop(state);
        self.trace.say(format_args!("instance {id}: {power:?}"));
    }

    /// Gives an instance a new external address.
    pub fn readdress(&self, id: &str) {
        let mut state = self.lock();
        state.next += 1;
        let external = state.next;
        if let Some(instance) = state.instances.get_mut(id) {
            instance.external = external;
            drop(state);
            self.trace.say(format_args!("instance {id} has another address"));
        }
    }
}

impl Handle {
    fn evidence(&self, kind: EvidenceKind, began: Duration) -> Lookup {
        let grace = match kind {
            EvidenceKind::Terminated { .. } => Duration::ZERO,
            EvidenceKind::Absent | EvidenceKind::Unlisted => self.cloud.traits.grace,
        };
        Lookup::Gone(Evidence { kind, read_began: epoch() + began, grace })
    }

    /// The answer for an ID without an instance.
    fn absence(&self, began: Duration) -> Lookup {
        let kind = if self.cloud.traits.unlisted { EvidenceKind::Unlisted } else { EvidenceKind::Absent };
        self.evidence(kind, began)
    }

    fn found(&self, id: &str, instance: &Instance) -> Lookup {
        Lookup::Found(Arc::new(Reported {
            shutdown: Ok(instance.power == Power::Off),
            metadata: Ok(Some(instance.metadata(id))),
        }))
    }

    fn answer(&self, state: &State, node: &NodeRef, began: Duration) -> Lookup {
        let now = self.cloud.trace.now();
        if let Some(wanted) = node.provider_id.as_deref() {
            return match state.instances.get_key_value(id_of(wanted)) {
                Some((id, instance)) if instance.visible <= now => match instance.power {
                    Power::On | Power::Off => self.found(id, instance),
                    Power::Terminated => self.evidence(EvidenceKind::Terminated { state: "terminated".into() }, began),
                    Power::Forgotten => self.absence(began),
                },
                _ => self.absence(began),
            };
        }
        match state.living(&node.name) {
            Some((id, instance)) if instance.visible <= now => self.found(id, instance),
            _ if self.cloud.traits.absent_by_name => self.evidence(EvidenceKind::Absent, began),
            _ => Lookup::Unknown(ProviderError::unknown("no instance has this name")),
        }
    }

    /// Records the nodes that were reported as gone to this process. An error changes nothing: an earlier report to
    /// another controller of the process stays valid.
    fn report(&self, nodes: &[NodeRef], answers: &[Lookup]) {
        let mut state = self.lock();
        let now = self.cloud.trace.now();
        for (index, node) in nodes.iter().enumerate() {
            let key = (self.life.name.clone(), node.uid.to_string());
            match answers.get(index).filter(|_| answers.len() == nodes.len()) {
                Some(Lookup::Gone(_)) => drop(state.reported_gone.insert(key, now)),
                Some(Lookup::Unknown(_))
                    if state.reported_gone.get(&key).is_some_and(|at| now - *at < MONITOR_PERIOD) => {}
                _ => drop(state.reported_gone.remove(&key)),
            }
        }
    }
}

#[async_trait]
impl InstancesV2 for Handle {
    async fn lookup(&self, nodes: &[NodeRef], _aspects: Aspects) -> Vec<Lookup> {
        let began = self.cloud.trace.now();
        let all = |error: ProviderError| nodes.iter().map(|_| Lookup::Unknown(error.clone())).collect::<Vec<_>>();
        let mut answers = match self.begin("lookup", false).await {
            Err(error) => all(error),
            Ok(()) if self.lock().takes_partial_list() => {
                all(ProviderError::new(ErrorClass::Transient { after: None }, "page 2 of 3 is missing"))
            }
            Ok(()) => {
                let state = self.lock();
                let now = self.cloud.trace.now();
                let failing = state.mishaps.lookups_fail.filter(|(until, _)| now < *until);
                let fails = |node: &NodeRef| match failing {
                    Some((_, everywhere)) => {
                        everywhere || node.name.len().is_multiple_of(2) || node.name.ends_with('1')
                    }
                    None => false,
                };
                let one = |node: &NodeRef| match fails(node) {
                    true => Lookup::Unknown(ProviderError::new(ErrorClass::Unknown, "the region does not answer")),
                    false => self.answer(&state, node, began),
                };
                nodes.iter().map(one).collect()
            }
        };
        let miscounts = {
            let mut state = self.lock();
            let left = state.mishaps.miscounts;
            state.mishaps.miscounts = left.saturating_sub(1);
            if left > 0 {
                state.failed_lookups.push(began);
            }
            left
        };
        if miscounts > 0 {
            match miscounts % 2 {
                0 => drop(answers.pop()),
                _ => answers.extend(answers.last().cloned()),
            }
        }
        self.report(nodes, &answers);
        // The latency of the answer.
        self.pause().await;
        answers
    }
}
