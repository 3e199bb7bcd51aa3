//! The tags of objects of Elastic Load Balancing, as far as they are known.

use ccm_kit::call::Meaning;
use serde::{Deserialize, Serialize};

use crate::client::{ApiError, Tags};

/// The permission without which names decide.
pub(crate) const READS_TAGS: &str = "elasticloadbalancing:DescribeTags";

/// The tags of an object of Elastic Load Balancing. They are read apart from the object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Marks {
    Read(Tags),
    Unread(Unread),
}

/// The reason why tags are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Unread {
    /// The role lacks [`READS_TAGS`].
    Denied,
    /// AWS does not know the operation.
    Unsupported,
    /// AWS shows the object, but not its tags yet.
    NotShown,
    /// The same for a minute or more.
    Hidden,
}

impl Unread {
    /// The reason for which names decide, if AWS refuses to show tags.
    pub(crate) fn refused(error: &ApiError) -> Option<Self> {
        match error.meaning() {
            Meaning::Denied => Some(Self::Denied),
            Meaning::Unsupported => Some(Self::Unsupported),
            _ => None,
        }
    }
}

impl Marks {
    /// Whether names decide.
    pub(crate) fn are_refused(&self) -> bool {
        matches!(self, Self::Unread(Unread::Denied | Unread::Unsupported))
    }

    pub(crate) fn read(&self) -> Option<&Tags> {
        match self {
            Self::Read(tags) => Some(tags),
            Self::Unread(_) => None,
        }
    }

    /// The value of a tag, as far as it is known.
    pub(crate) fn get(&self, key: &str) -> Option<&String> {
        self.read()?.get(key)
    }
}
