//! Cinder: volumes.

use serde::Deserialize;

use super::operation::VOLUME_GET;
use super::{ApiError, Client, null};

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Volume {
    pub(crate) id: String,
    #[serde(deserialize_with = "null")]
    pub(crate) availability_zone: String,
}

impl Client {
    /// A volume; `None` if Cinder reports that it does not exist.
    pub(crate) async fn volume(&self, id: &str) -> Result<Option<Volume>, ApiError> {
        self.find_by_id(VOLUME_GET, ("volumes", id), "volume").await
    }
}
