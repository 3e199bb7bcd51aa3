//! The tags of objects of Elastic Load Balancing, as far as they are known.

use serde::{Deserialize, Serialize};

use crate::client::Tags;

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
    /// AWS shows the object, but not its tags yet.
    NotShown,
}

impl Marks {
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
