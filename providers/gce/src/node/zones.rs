//! The zones that the provider manages.
//!
//! Either the local zone alone, or all zones of the region. A node in an unknown zone shows that the region has a new
//! one: the list is then read again, once for all callers, and at most every five minutes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_provider::well_known::{LABEL_ZONE, LABEL_ZONE_BETA};
use ccm_provider::{Node, NodeReader, ProviderError};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::identity::{Wanted, wanted};
use crate::client::Client;
use crate::client::resource::region_of;

/// The minimum time between reads of the list.
const INTERVAL: Duration = Duration::from_secs(300);

/// The zones of the provider. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Zones {
    client: Client,
    cluster: Cluster,
    pub(crate) region: String,
    /// `None`: all zones of the region.
    only: Option<String>,
    listed: Arc<tokio::sync::Mutex<()>>,
    known: Arc<Mutex<Option<Known>>>,
}

#[derive(Debug, Clone)]
struct Known {
    zones: BTreeSet<String>,
    /// The time of the last read because of a missing zone.
    again: Option<Instant>,
}

impl Known {
    /// Whether the nodes show no other zones, or it is too early to read the list again.
    fn serves(&self, region: &str, of_nodes: &BTreeSet<String>) -> bool {
        let of_region = |zone: &&String| region_of(zone) == Some(region);
        let is_complete = of_nodes.iter().filter(of_region).all(|zone| self.zones.contains(zone));
        is_complete || self.again.is_some_and(|again| again.elapsed() < INTERVAL)
    }
}

impl Zones {
    /// The zones of a region, or `only` this one.
    pub(crate) fn new(client: Client, cluster: Cluster, region: String, only: Option<String>) -> Self {
        Self { client, cluster, region, only, listed: Arc::default(), known: Arc::default() }
    }

    /// The managed zones. An error if they could never be read.
    pub(crate) async fn managed(&self) -> Result<BTreeSet<String>, ProviderError> {
        if let Some(zone) = &self.only {
            return Ok(BTreeSet::from([zone.clone()]));
        }
        let of_nodes = self.of_nodes();
        if let Some(zones) = self.known(&of_nodes) {
            return Ok(zones);
        }
        let _turn = self.listed.lock().await;
        // Another caller may have read the list meanwhile.
        if let Some(zones) = self.known(&of_nodes) {
            return Ok(zones);
        }
        let before = self.known.lock().as_ref().map(|known| known.zones.clone());
        let again = before.is_some().then(Instant::now);
        let zones: BTreeSet<String> = match (self.client.zones(&self.region).await, before) {
            (Ok(zones), _) => zones.into_iter().collect(),
            // The old list is kept; the next attempt is after the interval.
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "the zones of the region cannot be read again");
                before
            }
            (Err(error), None) => return Err(error.into()),
        };
        if let Some(zone) = of_nodes.difference(&zones).find(|zone| region_of(zone) == Some(&*self.region)) {
            tracing::warn!(zone, "a node is in a zone that the region does not have");
        }
        let known = Known { zones: zones.clone(), again };
        *self.known.lock() = Some(known);
        Ok(zones)
    }

    /// The known zones, unless the list has to be read again.
    fn known(&self, of_nodes: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let known = self.known.lock().clone()?;
        known.serves(&self.region, of_nodes).then_some(known.zones)
    }

    /// The zones that have nodes.
    pub(crate) fn of_nodes(&self) -> BTreeSet<String> {
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        nodes.iter().filter_map(|node| zone_of(node)).collect()
    }
}

/// The zone of a node: from its provider ID, without one from its labels.
pub(crate) fn zone_of(node: &Node) -> Option<String> {
    let label = |key: &str| node.labels.get(key).map(str::to_owned);
    match wanted(node) {
        Wanted::Instance(id) => Some(id.zone),
        Wanted::Name(_) => label(LABEL_ZONE).or_else(|| label(LABEL_ZONE_BETA)),
        // The labels may be those of another cloud.
        Wanted::Never(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn p55_an_unknown_zone_is_looked_for_every_five_minutes() {
        let mut known = Known { zones: zones(&["us-a", "us-b"]), again: None };
        assert!(known.serves("us", &zones(&["us-a", "other-c"])));
        // The first new zone is looked up immediately.
        assert!(!known.serves("us", &zones(&["us-c"])));
        known.again = Some(Instant::now());
        assert!(known.serves("us", &zones(&["us-c"])));
        tokio::time::advance(INTERVAL).await;
        assert!(!known.serves("us", &zones(&["us-c"])));
    }
}
