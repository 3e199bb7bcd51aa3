//! The objects of a cloud, from which the reports follow: `explain`, members, orphans and their deletion.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::Fact;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The kind of load balancers.
pub const LOAD_BALANCER: &str = "LoadBalancer";

/// An object in the cloud, or what is said about one that is not there.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// Its kind: [`LOAD_BALANCER`], `SecurityGroup`; empty if it is not there.
    pub kind: &'static str,
    /// Its ID in the cloud.
    pub id: String,
    /// Another ID by which others refer to it; or empty.
    pub alias: String,
    /// Its name, if different from the ID.
    pub name: String,
    /// The creation time, if the cloud reports it.
    pub created: Option<Timestamp>,
    /// Whose it is, if it says so itself.
    pub claim: Option<Claim>,
    /// Its state in the words of the cloud.
    pub state: Vec<Fact>,
    /// The members behind it.
    pub members: BTreeSet<String>,
    /// The IDs of what uses it, each with the reason to keep it: it is deleted after them.
    pub users: BTreeMap<String, String>,
}

/// What an object says about its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The name of the cluster; empty if it is not named.
    pub cluster: String,
    /// The Service `namespace/name`; empty if it is not named.
    pub service: String,
    /// The part of the Service's UID in its name.
    pub uid: String,
    /// The names, tags and descriptions that say so.
    pub marks: Vec<String>,
}

impl Object {
    /// An object that is wanted, and not there.
    pub fn missing(fact: Fact) -> Self {
        Self { state: vec![fact], ..Self::default() }
    }
}
