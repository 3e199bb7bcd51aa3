//! The writes of a plan, as data.
//!
//! An address that a step reserves is known only to later steps: [`RESERVED`] is its placeholder in their bodies,
//! replaced when they are sent.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::balancer::{Kind, Part, filled_body, placeholder};
use ccm_provider::{Change, Risk, Subject, Verb};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::firewall::Command;
use super::hosts::Host;
use crate::client::Write;
use crate::client::balancing::Firewall;
use crate::client::resource::{Collection, Scope};

/// The placeholder for an address of the Service that is not known yet.
pub(super) const RESERVED: &str = "{ip}";

/// The order of steps. Steps of one rank are for different objects and run concurrently; the steps of one Service run
/// rank by rank. Everything behind a forwarding rule exists before the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    WrongAddress,
    Reserve,
    NoDeny,
    Groups,
    /// Before instances of external groups join ours: an instance may be in one load-balanced group only.
    LeaveBackends,
    /// Before others join, if they do not fit otherwise.
    LeaveFullGroups,
    JoinGroups,
    LeaveGroups,
    Checks,
    Firewalls,
    /// Before a forwarding rule is replaced: what the current and the next one serve.
    BothFirewalls,
    /// Before the settings of a backend service change.
    JoinBackends,
    /// What of a backend service the current rule does not prevent.
    Backends,
    OldRule,
    OldPool,
    Pools,
    JoinPools,
    LeavePools,
    /// Of a load balancer that is deleted, or of the former kind: when everything that the new rule needs is there.
    GoRule,
    GoBehind,
    GoChecks,
    GoCheckFirewalls,
    GoGroups,
    /// While this firewall rule exists, shared objects may still have to be deleted.
    GoLast,
    /// Objects that a replaced rule used, deleted before the new rule exists: with a rule, they are not looked for.
    ReplacedBackends,
    ReplacedFirewalls,
    ReplacedChecks,
    Rules,
    /// For a new forwarding rule, where the address is not known before, or what only the former one served goes.
    LateFirewalls,
    Deny,
    Release,
    OldFirewalls,
    OldChecks,
    /// Of a shared health check that was deleted.
    OldCheckFirewalls,
    /// Removes the note that the check replaced the shared one.
    OwnChecks,
    /// What was behind the rule of the former kind, in the order of the ranks above: it comes back if the new one is refused.
    Former,
}

/// One write and its context.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The items that need the write.
    pub(crate) items: BTreeSet<usize>,
    /// Whether it is for an object that Services share.
    pub(crate) is_shared: bool,
    /// The name of the balancer, unless the object is shared.
    pub(crate) balancer: Option<String>,
    pub(crate) rank: Rank,
    /// Steps of one rank for one object run in this order.
    pub(crate) order: u32,
    pub(crate) part: Part,
    pub(crate) needs: &'static [Kind],
    pub(crate) act: Act,
    pub(crate) verb: Verb,
    /// `ForwardingRule`, `TargetPool`, …
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) changes: Vec<Change>,
    pub(crate) reason: &'static str,
    pub(crate) risk: Risk,
    /// Creates again what was deleted for this creation, if it is refused or not reached.
    pub(crate) restore: Vec<Step>,
    /// Whether it releases what was reserved for a rule in place of one that exists.
    pub(crate) releases: bool,
}

/// The action of a step.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sent unchanged.
    Send(Write),
    /// A patch with the fingerprint that the backend service has when it is sent.
    PatchLatest(Write),
    /// A deletion that is skipped if another object uses the target.
    DeleteUnlessUsed(Write),
    /// Reserves an address and reads it.
    Reserve(Write),
    /// Reserves the address of the rule that goes, so that it can come back; skipped if the quota has no room for it.
    Keep(Write),
    /// Creates a forwarding rule without a reserved address, and reads the address of the rule.
    InsertRule(Write),
    /// Creates the former forwarding rule again. `at_any`: at another address if its own is gone.
    RestoreRule {
        write: Write,
        at_any: bool,
    },
    Firewall(Box<FirewallWrite>),
    /// Creates a target pool with these instances. Instances that do not exist are left out.
    InsertPool {
        write: Write,
        hosts: Vec<Host>,
    },
    /// Adds instances. Those that do not exist are left out; if none remains and there are no other members, it fails.
    Join {
        write: Write,
        hosts: Vec<Host>,
        has_others: bool,
    },
    /// Removes instances.
    Leave {
        write: Write,
        hosts: Vec<Host>,
    },
}

/// A write of a firewall rule, which the network's administrators may have kept to themselves.
#[derive(Debug, Clone)]
pub(crate) struct FirewallWrite {
    pub(crate) write: Write,
    pub(crate) command: Command,
    pub(crate) rule: Firewall,
    /// Whether the current rule admits the traffic.
    pub(crate) is_admitted: bool,
    /// Whether the rule denies traffic: skipped silently if an earlier rule is left to the administrators.
    pub(crate) is_deny: bool,
    /// The health check that it is for: skipped if an earlier step left the check, which another object uses.
    pub(crate) unless_used: Option<(Collection, String)>,
    /// The object that gets the event.
    pub(crate) subject: Subject,
}

/// The results of earlier steps.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Made>);

/// See [`Outputs`].
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Addresses, by item.
    pub(crate) addresses: BTreeMap<usize, String>,
    /// Those of rules that were made.
    pub(crate) rules: BTreeMap<usize, String>,
    /// Items with firewall rules that are left to the administrators.
    pub(crate) kept_firewalls: BTreeSet<usize>,
}

impl Outputs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Made> {
        self.0.lock()
    }

    /// The address of the item of a step, if an earlier step has found it.
    pub(crate) fn address(&self, step: &Step) -> Option<String> {
        self.lock().addresses.get(step.items.first().filter(|_| !step.is_shared)?).cloned()
    }
}

/// The body with the address of its placeholder, if it is known.
pub(super) fn filled(body: &Value, address: Option<&str>) -> Value {
    filled_body(body, &|name| address.filter(|_| RESERVED == placeholder(name)).map(str::to_owned))
}

/// Whether a body still contains the placeholder.
pub(super) fn is_unfilled(body: &Value) -> bool {
    body.to_string().contains(RESERVED)
}

impl Act {
    /// The write, without the fields that are added when it is sent.
    pub(crate) fn write(&self) -> &Write {
        match self {
            Self::Send(write)
            | Self::PatchLatest(write)
            | Self::Reserve(write)
            | Self::Keep(write)
            | Self::InsertRule(write)
            | Self::RestoreRule { write, .. }
            | Self::DeleteUnlessUsed(write)
            | Self::InsertPool { write, .. }
            | Self::Join { write, .. }
            | Self::Leave { write, .. } => write,
            Self::Firewall(firewall) => &firewall.write,
        }
    }
}

impl Step {
    /// The stage of the step. Steps of different stages do not run at the same time.
    pub(crate) fn stage(&self) -> u32 {
        u32::from(self.rank as u8) * 10_000 + self.order
    }

    /// Whether it creates or changes a firewall rule.
    pub(crate) fn is_admission(&self) -> bool {
        matches!(self.act, Act::Firewall(_)) && self.verb != Verb::Delete
    }

    /// The step for display, with the instances that are added or removed.
    pub(crate) fn describe(&self) -> ccm_provider::Step {
        let mut changes = self.changes.clone();
        let names = |hosts: &[Host]| {
            Some(hosts.iter().map(|host| format!("{}/{}", host.zone, host.name)).collect::<Vec<_>>().join(" "))
        };
        match &self.act {
            Act::InsertPool { hosts, .. } | Act::Join { hosts, .. } => {
                changes.push(Change { field: "instances".into(), before: None, after: names(hosts) });
            }
            Act::Leave { hosts, .. } => {
                changes.push(Change { field: "instances".into(), before: names(hosts), after: None });
            }
            _ => {}
        }
        let id = match &self.act.write().scope {
            Scope::Zone(zone) => format!("{zone}/{}", self.id),
            _ => self.id.clone(),
        };
        ccm_provider::Step {
            verb: self.verb,
            kind: self.kind.into(),
            id,
            changes,
            reason: self.reason.to_owned(),
            risk: self.risk,
        }
    }
}
