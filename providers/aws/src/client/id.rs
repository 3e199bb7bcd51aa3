//! IDs of cloud objects in writes: known, or created by an earlier write of the same plan.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Id {
    /// ID or ARN.
    Known(String),
    /// The object that an earlier write of this plan creates: see [`Write::makes`](super::Write::makes).
    Made(Object),
}

/// An object, identified by the data known before its creation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Object {
    SecurityGroup(String),
    /// A v2 balancer by name.
    Balancer(String),
    TargetGroup(String),
}

/// IDs and ARNs of created objects, by object.
pub(crate) type Made = BTreeMap<Object, String>;

impl Id {
    pub(crate) fn known(&self) -> Option<&str> {
        match self {
            Self::Known(id) => Some(id),
            Self::Made(_) => None,
        }
    }
}

impl<T: Into<String>> From<T> for Id {
    fn from(id: T) -> Self {
        Self::Known(id.into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(id) => f.write_str(id),
            Self::Made(object) => write!(f, "<{object}>"),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::SecurityGroup(name) => ("SecurityGroup", name),
            Self::Balancer(name) => ("LoadBalancer", name),
            Self::TargetGroup(name) => ("TargetGroup", name),
        };
        write!(f, "{kind} {name}")
    }
}
