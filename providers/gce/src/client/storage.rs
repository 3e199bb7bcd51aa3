//! Persistent disks.

use ccm_kit::http::null;
use serde::Deserialize;

use super::operation::DISK_GET;
use super::resource::Scope;
use super::{ApiError, Client};

/// A disk of a zone, or of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// The URL of its zone; empty for the disk of a region.
    #[serde(deserialize_with = "null")]
    pub(crate) zone: String,
    /// The URL of its region; empty for the disk of a zone.
    #[serde(deserialize_with = "null")]
    pub(crate) region: String,
    /// The URLs of the zones in which the disk of a region is.
    #[serde(deserialize_with = "null")]
    pub(crate) replica_zones: Vec<String>,
}

impl Client {
    /// The disk of a zone or region; `None` where it does not exist.
    pub(crate) async fn disk(&self, scope: &Scope, name: &str) -> Result<Option<Disk>, ApiError> {
        self.get(DISK_GET, scope, name).await
    }
}
