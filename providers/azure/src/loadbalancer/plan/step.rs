//! The writes of a plan, and the results that later ones need.
//!
//! A write of a shared object holds the part of each Service. What is sent is put together when it is sent: from the parts
//! whose needs earlier writes have met.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::super::members::{InstanceChange, InterfaceChange, ModelChange, PoolChange};
use super::address::AddressChange;
use super::balancer::BalancerChange;
use super::security::{Claim, Keep};
use super::service::Reached;
use crate::client::id::ArmId;

/// One write.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Address(AddressChange),
    Balancer(BalancerChange),
    /// Deletes a load balancer.
    DeleteBalancer(ArmId),
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
    pub(crate) before: Value,
    pub(crate) parts: Vec<SecurityPart>,
    /// The destinations that belong to somebody.
    pub(crate) keep: Keep,
}

/// The part of one Service, with the addresses that later become destinations.
#[derive(Debug, Clone)]
pub(crate) struct SecurityPart {
    /// `namespace/name`
    pub(crate) key: String,
    pub(crate) fingerprint: u64,
    pub(crate) claim: Claim,
    pub(crate) pending: Vec<Reached>,
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
    /// Whether there are more members to change than one call does.
    pub(crate) has_more: bool,
}

impl Made {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Results> {
        self.0.lock()
    }
}
