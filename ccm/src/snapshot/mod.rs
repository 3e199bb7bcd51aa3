//! Snapshots: one file with all inputs of a plan, so that the plan can be recreated without the cluster, the cloud or
//! any credentials.
//!
//! ```text
//! ccm snapshot:             World + preview, the provider inside a Recorder ─> prune ─> redact ─> file
//! ccm plan --from-snapshot: file ─> World over a Replay, the clock stopped  ─> preview
//! ```
//!
//! Both run the pass of `ccm plan`. Only listed fields are kept ([`redact`]): an allowlist, so that nothing leaks by
//! omission.

pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod redact;
pub(crate) mod replay;

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use ccm_provider::{Clock, Node, PersistentVolume, Schemes, Service};
use ccm_runtime::clock::timestamp;
use ccm_runtime::store::{EndpointSlice, Namespace};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use record::{Answer, Answers};

pub(crate) const KIND: &str = "Snapshot";
/// `version` of the file; a higher one is rejected.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) kind: String,
    pub(crate) version: u32,
    pub(crate) ccm: String,
    /// The time of the plan.
    pub(crate) taken: Timestamp,
    /// The number of values that were replaced because they look like secrets; if any, the plan may differ.
    pub(crate) redacted: usize,
    pub(crate) provider: Provider,
    /// The given flags that plans depend on.
    pub(crate) flags: BTreeMap<String, Vec<String>>,
    /// The recorded plan, as printed by `ccm plan -o json`.
    pub(crate) plan: Value,
    pub(crate) nodes: Vec<Node>,
    /// Services without a load balancer have only the fields that show this.
    pub(crate) services: Vec<Service>,
    /// The volumes; `None` if no controller labels them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) volumes: Option<Listed>,
    /// The objects besides nodes and Services that load balancers depend on; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) related: Option<ListedRelated>,
    pub(crate) answers: Answers,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Provider {
    /// Its name; `--cloud-provider` is among the flags.
    pub(crate) name: String,
    /// The schemes of its provider IDs; `None` if its name is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schemes: Option<Schemes>,
    /// See [`ccm_provider::CloudProvider::unmanaged_label`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unmanaged: Option<(String, String)>,
    /// See [`ccm_provider::CloudProvider::facts`].
    #[serde(default)]
    pub(crate) facts: Value,
}

/// Volumes, or the reason why they could not be listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Listed {
    Volumes(Vec<PersistentVolume>),
    Failed(String),
}

/// Objects that load balancers depend on, or the reason why they could not be listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ListedRelated {
    #[serde(rename_all = "camelCase")]
    Objects {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint_slices: Option<Vec<EndpointSlice>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespaces: Option<Vec<Namespace>>,
    },
    Failed(String),
}

/// A stopped clock: the same pass over the same answers produces the same plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    now: Instant,
    wall: SystemTime,
}

impl Stopped {
    pub(crate) fn at(wall: SystemTime) -> Self {
        Self { now: tokio::time::Instant::now().into_std(), wall }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        timestamp(self.wall)
    }
}

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.now
    }

    fn wall(&self) -> SystemTime {
        self.wall
    }
}

impl<T> From<Result<T, ccm_provider::ProviderError>> for Answer<T> {
    fn from(result: Result<T, ccm_provider::ProviderError>) -> Self {
        match result {
            Ok(answer) => Self::Ok(answer),
            Err(error) => Self::Error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn related_objects_are_kept_as_far_as_plans_read_them() {
        let slice = json!({"name": "web-1", "namespace": "shop", "service": "web", "ready": ["a", "b"]});
        let document = json!({"objects": {"endpointSlices": [slice], "namespaces": [{"name": "shop", "labels": {"tier": "gold"}}]}});
        let read: ListedRelated = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), document);
        let failed = json!({"failed": "cannot list namespaces: forbidden"});
        assert!(matches!(serde_json::from_value(failed).unwrap(), ListedRelated::Failed(_)));
    }
}
