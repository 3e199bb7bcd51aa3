//! Whether the store of nodes is as new as the API server.
//!
//! A new leader must know every block that the previous one has written. Its store may be out of date: a standby's
//! watch can lag behind, and be served by a replica that lags too. So it requests the current version of every node
//! once, from a quorum, and waits until the store has these versions or newer ones. Only metadata is requested, since
//! the store has the rest. A node that the store cannot decode is waited for too: its block is not known, and must not go
//! to another node. (In Go, the list of all nodes fails then.)

use std::time::Duration;

use ccm_provider::{Node, NodeName};
use ccm_runtime::client::{ApiError, Call, Client};
use ccm_runtime::{Cached, Store};
use serde_json::Value;

use super::pool::is_at_least;

/// Nodes per page.
const PAGE: usize = 500;
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// The interval of checks of a late store, and the time after which the versions are requested again: a node deleted
/// since then never appears.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failure; doubles up to the maximum.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Waits until `store` has everything that the API server had at the time of this call.
pub(super) async fn until_current(client: &Client, store: &Store<Node>) {
    store.synced().await;
    let mut pause = BACKOFF.0;
    loop {
        let asked = match versions(client).await {
            Ok(versions) => {
                let missing = missing(store, versions).await;
                let Some(first) = missing.first() else { return };
                tracing::warn!(
                    node = %first,
                    missing = missing.len(),
                    "no pod range is assigned before the watch has shown the current state of every node, or a list shows that \
                     it is gone"
                );
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to list all nodes: no pod range is assigned before their current state is known");
                error.retry_after().unwrap_or_default()
            }
        };
        tokio::time::sleep(asked.max(pause)).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Name and version of every node, as of one time not before now.
async fn versions(client: &Client) -> Result<Vec<(NodeName, String)>, ApiError> {
    let mut all = Vec::new();
    let (mut next, mut limit) = (String::new(), PAGE);
    loop {
        let call = Call::get(format!("{}?limit={limit}{next}", Node::PATH));
        let page: Value = match client.read(&Call { accept: METADATA_ONLY, ..call }).await {
            // As client-go: pages may always take longer than the server keeps the version.
            Err(error) if error.is_gone() && !next.is_empty() => {
                (all, next, limit) = (Vec::new(), String::new(), 0);
                continue;
            }
            page => page?,
        };
        let text =
            |at: &Value, pointer: &str| at.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let items = page.get("items").filter(|items| items.is_array() || items.is_null());
        let items = items.ok_or_else(|| ApiError::Decode("a list of nodes without items".into()))?;
        all.extend(
            items
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| (NodeName::from(text(item, "/metadata/name")), text(item, "/metadata/resourceVersion"))),
        );
        let token = text(&page, "/metadata/continue");
        if token.is_empty() {
            return Ok(all);
        }
        next = format!("&continue={}", token.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F"));
    }
}

/// The nodes that the store does not get in time.
async fn missing(store: &Store<Node>, mut versions: Vec<(NodeName, String)>) -> Vec<NodeName> {
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        versions.retain(|(name, version)| {
            let known = store.get(name);
            !known.is_some_and(|node| is_at_least(&node.resource_version, version))
        });
        if versions.is_empty() || tokio::time::Instant::now() >= limit {
            return versions.into_iter().map(|(name, _)| name).collect();
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use ccm_runtime::store::FieldFilter;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nodes_that_the_store_does_not_get_are_named() {
        let store = Store::new(FieldFilter::default());
        let node =
            |name: &str, version: &str| Node { name: name.into(), resource_version: version.into(), ..Node::default() };
        let version = |name: &str, version: &str| (NodeName::from(name.to_owned()), version.to_owned());
        store.apply(node("current", "5"));
        store.apply(node("old", "1"));
        let versions = vec![version("current", "4"), version("old", "3"), version("unreadable", "2")];
        let missing = missing(&store, versions).await;
        assert_eq!(missing.iter().map(|name| &**name).collect::<Vec<_>>(), ["old", "unreadable"]);
    }
}
