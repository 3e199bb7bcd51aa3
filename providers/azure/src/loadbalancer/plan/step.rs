//! The writes of a plan, and the results that later ones need.
//!
//! A write of a shared object holds the part of each Service. What is sent is put together when it is sent: from the parts
//! whose needs earlier writes have met.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::super::balancer::{BalancerChange, Edit};
use super::super::members::{InstanceChange, InterfaceChange, ModelChange, PoolChange};
use super::address::AddressChange;
use super::security::{Claim, Keep};
use super::service::Reached;
use crate::client::id::ArmId;

/// One write.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Address(AddressChange),
    Balancer(BalancerChange),
    /// Deletes a load balancer that all its Services leave. If some of them stay, it is written for the others.
    DeleteBalancer(BalancerChange),
    Security(SecurityChange),
    Pool(PoolChange),
    /// Turns interfaces in the pools of a load balancer into addresses. The models of these scale sets still name the pools
    /// then.
    Migrate {
        id: ArmId,
        pools: Vec<String>,
        sets: BTreeSet<ArmId>,
    },
    Model(ModelChange),
    Instance(InstanceChange),
    Interface(InterfaceChange),
    Subnet {
        id: ArmId,
        body: Value,
    },
    Link {
        id: ArmId,
        body: Value,
    },
    DeleteLink(LinkDeletion),
}

/// A private link service to delete, with its connections.
#[derive(Debug, Clone)]
pub(crate) struct LinkDeletion {
    pub(crate) id: ArmId,
    pub(crate) connections: Vec<ArmId>,
}

/// All changes of the security group.
#[derive(Debug, Clone)]
pub(crate) struct SecurityChange {
    pub(crate) id: ArmId,
    /// As it was read.
    pub(crate) before: Arc<Value>,
    pub(crate) parts: Vec<SecurityPart>,
    /// The destinations that belong to somebody. `None`: nothing is removed.
    pub(crate) keep: Option<Keep>,
    /// Whether this plan writes it before: it is read again.
    pub(crate) is_second: bool,
}

/// The part of one Service, with the addresses that later become destinations.
#[derive(Debug, Clone)]
pub(crate) struct SecurityPart {
    /// `namespace/name`
    pub(crate) key: String,
    pub(crate) fingerprint: u64,
    /// How the names of its objects on load balancers begin.
    pub(crate) base: String,
    pub(crate) claim: Claim,
    pub(crate) pending: Vec<Reached>,
    /// The load balancers that have its part before: otherwise its rules stay as they are.
    pub(crate) frames: Vec<ArmId>,
}

/// The results of writes.
#[derive(Debug, Default)]
pub(crate) struct Made(Mutex<Results>);

/// See [`Made`].
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Addresses, by ID of the public IP address or frontend in lower case.
    pub(crate) addresses: BTreeMap<String, IpAddr>,
    /// Public IP addresses that exist now, private link services and load balancers that are deleted, and frontends that
    /// Services have given up to move, by ID in lower case.
    pub(crate) ready: BTreeSet<String>,
    /// The pools of written load balancers that somebody needed, by ID in lower case.
    pub(crate) pools: BTreeSet<String>,
    /// The load balancers that have the part of a Service, by ID in lower case.
    pub(crate) parts: BTreeSet<(String, usize)>,
    /// The pools that got members, by ID in lower case.
    pub(crate) filled: BTreeSet<String>,
    /// The Services whose clients the security group admits.
    pub(crate) admitted: BTreeSet<usize>,
    /// Whether there are more members to change than one call does.
    pub(crate) has_more: bool,
    /// Whether members leave when others, which are new, have been probed.
    pub(crate) takes_over: bool,
}

impl SecurityPart {
    /// Whether it may be written: its load balancers have its part, and some of its addresses are known.
    pub(crate) fn is_due(&self, made: &Results) -> bool {
        let has_frame = |id: &ArmId| made.parts.contains(&(id.folded(), self.claim.place));
        let is_known = |reached: &Reached| match reached {
            Reached::Known(_) => true,
            Reached::Of(id) => made.addresses.contains_key(&id.folded()),
        };
        self.frames.iter().all(has_frame) && (self.pending.is_empty() || self.pending.iter().any(is_known))
    }
}

impl Results {
    /// Whether the public IP addresses of a part exist, what must go before it is gone, and what serves in its place is
    /// there.
    pub(crate) fn may_be_sent(&self, edit: &Edit) -> bool {
        let is_ready = |id: &ArmId| self.ready.contains(&id.folded());
        // A frontend goes with its load balancer.
        let is_gone = |id: &ArmId| is_ready(id) || id.parent().is_some_and(|balancer| is_ready(&balancer));
        edit.needs.iter().chain(&edit.waits).all(is_ready)
            && edit.follows.iter().all(is_gone)
            && edit.joins.iter().all(|id| self.parts.contains(&(id.folded(), edit.place)))
            && edit.fills.iter().all(|pool| self.filled.contains(&pool.folded()))
            && (!edit.admits || self.admitted.contains(&edit.place))
    }

    /// Whether the parts of all Services may be sent.
    pub(crate) fn is_whole(&self, change: &BalancerChange) -> bool {
        change.edits.iter().all(|edit| self.may_be_sent(edit))
    }
}

impl Made {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Results> {
        self.0.lock()
    }
}
