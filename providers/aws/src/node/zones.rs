//! Availability zones: their IDs and kinds.
//!
//! Upstream: `pkg/providers/v1/zones.go`. Zones do not change during the life of a process, so they are read once, and
//! again only if a wanted zone is missing; a zone that is still missing is not looked up again for a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::{Cached, Interrupted, Misses};
use ccm_provider::ProviderError;
use futures::FutureExt;

use crate::client::ec2::AvailabilityZone;
use crate::client::operation::{Operation, Service};
use crate::client::{Api, ApiError, is_unavailable};

/// Time before a zone unknown to EC2 is looked up again.
const MISS_KEPT: Duration = Duration::from_secs(60);

/// Time before a refused read is tried again.
const DENIED_KEPT: Duration = Duration::from_secs(300);

pub(crate) type ByName = BTreeMap<String, AvailabilityZone>;

#[derive(Debug)]
pub(crate) struct Zones {
    read: Cached<ByName, ApiError>,
    unknown: Misses<String>,
    denied: Misses<()>,
}

impl Zones {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        let read = move || {
            let api = api.clone();
            async move {
                let zones = api.availability_zones().await?;
                Ok(zones.into_iter().map(|zone| (zone.name.clone(), zone)).collect())
            }
            .boxed()
        };
        Self { read: Cached::new(read, interrupted), unknown: Misses::new(MISS_KEPT), denied: Misses::new(DENIED_KEPT) }
    }

    /// All zones, read again if a wanted zone is not among the known ones. `None`: AWS does not know the operation, or
    /// the role lacks the permission, which older policies of this program's predecessors do not grant.
    pub(crate) async fn knowing<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Arc<ByName>>, ApiError> {
        let wanted: Vec<&str> = wanted.into_iter().filter(|name| !name.is_empty()).collect();
        if let Some(last) = self.read.last()
            && wanted.iter().all(|name| last.value.contains_key(*name) || self.unknown.contains(*name))
        {
            return Ok(Some(last.value));
        }
        if self.denied.contains(&()) {
            return Ok(None);
        }
        let zones = match self.read.get(Duration::ZERO, None).await {
            Err(error) if is_unavailable(&error) => {
                tracing::warn!(%error, "no label for the ID of the zone, and zones of all kinds are used");
                self.denied.add(());
                return Ok(None);
            }
            zones => zones?.value,
        };
        for name in wanted.into_iter().filter(|name| !zones.contains_key(*name)) {
            self.unknown.add(name.to_owned());
        }
        Ok(Some(zones))
    }
}

pub(crate) fn zone_id<'a>(zones: &'a ByName, name: &str) -> Result<&'a str, ProviderError> {
    zones.get(name).map(|zone| zone.id.as_str()).ok_or_else(|| {
        ProviderError::unknown(format!(
            "EC2 lists no availability zone {name:?} in this region: its zone ID is not known"
        ))
    })
}

fn interrupted(how: Interrupted) -> ApiError {
    ApiError::interrupted(Operation::new(Service::Ec2, "DescribeAvailabilityZones"), how)
}
