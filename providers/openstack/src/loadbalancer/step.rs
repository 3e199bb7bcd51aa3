//! The writes of a plan, as data.
//!
//! A later write may need the ID of an object that an earlier one creates: the path or a text of the body contains the
//! [`placeholder`](ccm_kit::balancer::placeholder) of its name, for which the [`Outputs`] have the ID when the write is sent.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::balancer::{filled, filled_body};
use ccm_provider::{ProviderError, Verb};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::client::network::{Port, Rule};
use crate::client::octavia::LoadBalancer;
use crate::client::operation::Operation;
use crate::client::{ApiError, is_quota};

/// One step of a plan.
pub(crate) type Step = ccm_kit::balancer::Step<Order>;

/// A write for a Service.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The index of its work item.
    pub(crate) place: usize,
    /// The name of its Service's own balancer.
    pub(crate) owner: String,
    pub(crate) write: Write,
}

/// The request of a step.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// Creates a balancer and waits until it is active.
    CreateBalancer {
        name: String,
        body: Value,
    },
    /// Deletes a balancer and waits until it is gone.
    DeleteBalancer {
        id: String,
        cascade: bool,
        then: Then,
    },
    /// Changes a balancer or its parts, when the balancer is ready for it.
    Octavia {
        balancer: String,
        operation: Operation,
        /// Relative to `lbaas/`.
        path: String,
        body: Option<Value>,
        /// The body of the listener for which this deletion makes room: Octavia must refuse it only because of that.
        successor: Option<Value>,
        /// The placeholder name of the ID in the response, and its key there.
        output: Option<(String, &'static str)>,
        /// Whether the balancer must be active again before the step ends.
        is_last: bool,
    },
    /// Creates a floating IP with the first of these bodies that Neutron accepts.
    CreateFloatingIp {
        bodies: Vec<Value>,
        pattern: String,
    },
    /// Binds a floating IP to a port, or unbinds it.
    BindFloatingIp {
        id: String,
        port: Option<String>,
    },
    /// Binds a floating IP to a port that has another one, which stays if that is impossible. `descriptions`, if the
    /// other is to be deleted: its present one, and the one that marks it as replaced. An address that a user detaches
    /// has no such mark.
    MoveToFloatingIp {
        from: String,
        to: String,
        port: String,
        descriptions: Option<[String; 2]>,
    },
    DescribeFloatingIp {
        id: String,
        description: String,
    },
    DeleteFloatingIp {
        id: String,
    },
    CreateGroup {
        name: String,
        description: String,
    },
    /// Deletes the rules that Neutron adds to a new security group.
    EmptyGroup {
        name: String,
    },
    /// No write: the security group is planned when the balancer shows its subnet.
    GroupLater,
    DeleteGroup {
        id: String,
        name: String,
    },
    /// `makes_room`: rules go after it.
    CreateRule {
        group: String,
        rule: Rule,
        makes_room: bool,
    },
    DeleteRule {
        id: String,
    },
    /// Removes a tag from a port.
    UntagPort {
        port: String,
        tag: String,
    },
    /// Sets the security groups of a port.
    PortGroups {
        port: Box<Port>,
        groups: Vec<String>,
    },
}

/// What follows the deletion of a balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// The Service gets another one at once.
    Again,
    /// The Service gets another one later: the creation of this one failed.
    Later,
}

/// The results of a plan's writes.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Made>);

#[derive(Debug, Default)]
pub(crate) struct Made {
    /// IDs by placeholder name.
    pub(crate) ids: BTreeMap<String, String>,
    /// Balancers as last seen, by their ID.
    pub(crate) balancers: BTreeMap<String, LoadBalancer>,
    /// The items with a failed step.
    pub(crate) failed: BTreeSet<usize>,
    /// The owners of the steps that were sent.
    pub(crate) owners: BTreeSet<String>,
    /// The rules that Neutron added to new security groups, by the name of the group.
    pub(crate) default_rules: BTreeMap<String, Vec<String>>,
    /// Whether the last write was refused for a quota.
    is_out_of_quota: bool,
    /// The refusals for a quota, by item and kind of object.
    exhausted: BTreeMap<(usize, String), ProviderError>,
    /// The IDs of listeners, pools and monitors that were written.
    pub(crate) written: BTreeSet<String>,
    /// The balancers of which a pool was deleted.
    pub(crate) lost_pools: BTreeSet<String>,
}

impl Outputs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Made> {
        self.0.lock()
    }

    pub(crate) fn put(&self, name: &str, id: &str) {
        self.lock().ids.insert(name.to_owned(), id.to_owned());
    }

    /// Records a refusal for a quota.
    pub(super) fn note_quota<T>(&self, answer: &Result<T, ApiError>) {
        self.lock().is_out_of_quota = answer.as_ref().err().is_some_and(is_quota);
    }

    /// Whether the last write was refused for a quota. It is forgotten: the step goes on.
    pub(super) fn take_refusal_for_quota(&self) -> bool {
        std::mem::take(&mut self.lock().is_out_of_quota)
    }

    /// The refusal of an earlier creation of this kind for the same Service: the quota is exhausted for this pass.
    pub(super) fn exhausted(&self, step: &Step) -> Option<ProviderError> {
        let is_creation = step.summary.verb == Verb::Create;
        self.lock().exhausted.get(&kind_of(step)).filter(|_| is_creation).cloned()
    }

    /// Whether a creation for this item was refused for a quota, and nothing has made room since.
    pub(super) fn is_short(&self, place: usize) -> bool {
        self.lock().exhausted.keys().any(|(short, _)| *short == place)
    }

    /// A deletion makes room.
    pub(super) fn note_success(&self, step: &Step) {
        if step.summary.verb == Verb::Delete {
            self.lock().exhausted.remove(&kind_of(step));
        }
    }

    pub(super) fn note_failure(&self, step: &Step, error: &ProviderError) {
        let mut made = self.lock();
        made.failed.insert(step.write.place);
        if std::mem::take(&mut made.is_out_of_quota) {
            made.exhausted.insert(kind_of(step), error.clone());
        }
    }

    /// The text with the IDs of its placeholders.
    pub(crate) fn fill(&self, text: &str) -> String {
        filled(text, &self.ids())
    }

    /// The body with the IDs of its placeholders.
    pub(crate) fn fill_body(&self, body: &Value) -> Value {
        filled_body(body, &self.ids())
    }

    fn ids(&self) -> impl Fn(&str) -> Option<String> {
        |name| self.lock().ids.get(name).cloned()
    }
}

fn kind_of(step: &Step) -> (usize, String) {
    (step.write.place, step.summary.kind.to_string())
}

impl Order {
    /// Whether the write changes the address for clients.
    pub(crate) fn changes_address(&self) -> bool {
        matches!(
            self.write,
            Write::CreateFloatingIp { .. }
                | Write::BindFloatingIp { .. }
                | Write::MoveToFloatingIp { .. }
                | Write::DeleteFloatingIp { .. }
        )
    }
}
