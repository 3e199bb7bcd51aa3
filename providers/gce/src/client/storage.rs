//! Persistent disks.

use ccm_kit::http::null;
use serde::Deserialize;

use super::operation::DISK_GET;
use super::resource::Scope;
use super::{ApiError, Client, named};

/// A zonal or regional disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// The URL of its zone; empty for a regional disk.
    #[serde(deserialize_with = "null")]
    pub(crate) zone: String,
    /// The URL of its region; empty for a zonal disk.
    #[serde(deserialize_with = "null")]
    pub(crate) region: String,
    /// The URLs of the zones of a regional disk.
    #[serde(deserialize_with = "null")]
    pub(crate) replica_zones: Vec<String>,
}

named!(Disk);

impl Client {
    /// The disk of a zone or region; `None` if it does not exist.
    pub(crate) async fn disk(&self, scope: &Scope, name: &str) -> Result<Option<Disk>, ApiError> {
        self.get(DISK_GET, scope, name).await
    }
}
