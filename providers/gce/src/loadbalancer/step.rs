//! The writes of a plan, as data.
//!
//! An address that a step reserves is known to later ones only: it stands as [`RESERVED`] in their texts, and is filled in when
//! they are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use ccm_kit::lock;
use ccm_provider::{Change, Risk, Subject, Verb};
use serde_json::Value;

use super::firewall::Command;
use super::hosts::Host;
use crate::client::Write;
use crate::client::balancing::Firewall;
use crate::client::resource::Scope;

/// Stands for the address of the Service that is not known yet.
pub(super) const RESERVED: &str = "{ip}";

/// The order of steps. Steps of one rank are for different objects and run at the same time; those of one Service are done rank
/// by rank. Everything behind a forwarding rule is there before the rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    GoRule,
    GoBehind,
    GoChecks,
    GoCheckFirewalls,
    GoGroups,
    /// As long as this is there, what Services share may have to go.
    GoLast,
    WrongAddress,
    Reserve,
    NoDeny,
    Groups,
    /// Before the instances of a group of others join ours: they may be in one balanced group only.
    LeaveBackends,
    JoinGroups,
    LeaveGroups,
    Checks,
    Firewalls,
    OldRule,
    OldPool,
    Pools,
    JoinPools,
    LeavePools,
    /// What a rule used that is replaced: before it is there again, so that nothing is looked for as long as it is.
    ReplacedBackends,
    ReplacedFirewalls,
    ReplacedChecks,
    Rules,
    /// Where the address is that of the new rule.
    LateFirewalls,
    Deny,
    Release,
    OldFirewalls,
    OldChecks,
    /// The check that replaced the shared one no longer says so.
    OwnChecks,
}

/// One write, with what it needs.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The item of the work that it is for; `None`: all.
    pub(crate) item: Option<usize>,
    /// The name of the balancer of that item.
    pub(crate) balancer: Option<String>,
    pub(crate) rank: Rank,
    /// Steps of one rank for one object are done in this order.
    pub(crate) order: u32,
    pub(crate) act: Act,
    pub(crate) verb: Verb,
    /// `ForwardingRule`, `TargetPool`, …
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) changes: Vec<Change>,
    pub(crate) reason: &'static str,
    pub(crate) risk: Risk,
}

/// What is done.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sent as it is.
    Send(Write),
    /// A deletion that leaves alone what something else uses.
    DeleteUnlessUsed {
        write: Write,
        then: Option<Box<FirewallWrite>>,
    },
    /// Reserves an address, and reads which one it is.
    Reserve(Write),
    /// Makes a forwarding rule whose address is that of the rule, and reads which one it is.
    InsertRule(Write),
    Firewall(Box<FirewallWrite>),
    /// Makes a target pool with these instances. Instances that do not exist are left out.
    InsertPool {
        write: Write,
        hosts: Vec<Host>,
    },
    /// Adds instances. Those that do not exist are left out; without any other member that is an error.
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
    /// Whether the rule as it is admits the traffic.
    pub(crate) is_admitted: bool,
    /// Done only if no rule before was kept by the administrators; then without a word.
    pub(crate) is_deny: bool,
    /// Gets the event.
    pub(crate) subject: Subject,
}

/// What earlier steps have brought about.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Made>);

/// See [`Outputs`].
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Addresses, by item.
    pub(crate) addresses: BTreeMap<usize, String>,
    /// Items with firewall rules that the administrators keep.
    pub(crate) kept_firewalls: BTreeSet<Option<usize>>,
}

impl Outputs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Made> {
        lock(&self.0)
    }

    /// The address of an item, if a step made it known.
    pub(crate) fn address(&self, item: Option<usize>) -> Option<String> {
        self.lock().addresses.get(&item?).cloned()
    }
}

/// Fills an address into the texts of a body.
pub(super) fn filled(mut value: Value, address: Option<&str>) -> Value {
    fill(&mut value, address);
    value
}

fn fill(value: &mut Value, address: Option<&str>) {
    match value {
        Value::String(text) => {
            if let Some(address) = address.filter(|_| text.contains(RESERVED)) {
                *text = text.replace(RESERVED, address);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| fill(value, address)),
        Value::Object(fields) => fields.values_mut().for_each(|value| fill(value, address)),
        _ => {}
    }
}

/// Whether an address is still missing in a body.
pub(super) fn is_unfilled(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(RESERVED),
        Value::Array(list) => list.iter().any(is_unfilled),
        Value::Object(fields) => fields.values().any(is_unfilled),
        _ => false,
    }
}

impl Act {
    /// The write, without what is added when it is sent.
    pub(crate) fn write(&self) -> &Write {
        match self {
            Self::Send(write)
            | Self::Reserve(write)
            | Self::InsertRule(write)
            | Self::DeleteUnlessUsed { write, .. }
            | Self::InsertPool { write, .. }
            | Self::Join { write, .. }
            | Self::Leave { write, .. } => write,
            Self::Firewall(firewall) => &firewall.write,
        }
    }
}

impl Step {
    /// What distinguishes the steps that do not run at the same time.
    pub(crate) fn stage(&self) -> u32 {
        u32::from(self.rank as u8) * 10_000 + self.order
    }

    /// In words. Which instances come and go belongs to it.
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
