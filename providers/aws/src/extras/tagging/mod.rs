//! The tagging controller: tags the instances of nodes with `--tags`, and removes the tags when the node is deleted.
//!
//! Off unless `--controllers` names `tagging`. A label on the node (the digest of the tags) records that they are set,
//! so a restart tags nothing again. Many instances are tagged with one call, whatever the value of
//! `--tagging-controller-enable-batching`.
//!
//! Source of the behavior: `kubernetes/cloud-provider-aws` `pkg/controllers/tagging`. Changed tags are set on all
//! instances; former ones stay, as upstream.

mod flags;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::call::ErrorKind;
use ccm_kit::{Cluster, split_refused};
use ccm_provider::{
    Change, Node, NodeChanges, NodeReader, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork, Plan, ProviderError, Risk,
    Step, Verb,
};
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use self::flags::{FLAGS, Settings};
use crate::client::metrics::Metrics;
use crate::client::write::{Ec2Write, Write};
use crate::client::{Api, ApiError, Id, Tags, names};
use crate::node::age;
use crate::node::identity::{InstanceId, ProviderId};
use crate::node::instances::GRACE;

pub(crate) const SPEC: NodeTaskSpec = NodeTaskSpec {
    name: "tagging",
    aliases: &[],
    queue: "tagging-controller",
    on_by_default: false,
    taints: &[],
    check: flags::check,
};

/// Records on a node which tags its instance has.
pub(crate) const LABEL: &str = "k8s.io/cloud-provider-aws";
/// After its instance was tagged, a node may still be observed without the label for this time.
const LABEL_LATE: Duration = Duration::from_secs(10);
/// Most instances in one call; EC2 accepts 1,000.
const BATCH: usize = 500;
/// Retries of a failed call.
const TRIES: u32 = 9;
const NOT_FOUND: &str = "InvalidInstanceID.NotFound";
/// IDs that EC2 never assigned: simulated nodes.
const NO_ID: [&str; 2] = ["InvalidID", "InvalidInstanceID.Malformed"];

#[derive(Debug)]
pub(crate) struct Tagging {
    api: Arc<dyn Api>,
    cluster: Cluster,
    metrics: Metrics,
    settings: Settings,
    digest: String,
    tagged: Mutex<BTreeMap<String, Instant>>,
}

#[derive(Debug, Clone)]
enum Outcome {
    Done,
    /// EC2 does not know the instance.
    NotFound(ApiError),
    /// EC2 reports that the ID is no instance ID.
    NoId,
    Failed(ApiError),
}

/// Hex MD5 of the sorted `key=value` pairs.
fn digest(tags: &Tags) -> String {
    let mut pairs: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    // Not the order of the keys: `-`, `.` and `/` come before `=`.
    pairs.sort();
    Md5::digest(pairs.join(",")).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Tagging {
    pub(crate) fn new(api: Arc<dyn Api>, cluster: Cluster, metrics: Metrics, settings: Settings) -> Self {
        let digest = digest(&settings.tags);
        Self { api, cluster, metrics, settings, digest, tagged: Mutex::default() }
    }

    /// The instances of all nodes. One stays tagged when its node is deleted, if it has another node: the machine was
    /// renamed.
    fn in_use(&self) -> BTreeSet<InstanceId> {
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        nodes.iter().filter_map(|node| ProviderId::instance(node.provider_id.as_deref())).collect()
    }

    fn write(&self, instances: &[String], delete: bool) -> Write {
        let tags = self.settings.tags.clone();
        Write::Ec2(match delete {
            true => Ec2Write::DeleteTags { resources: instances.to_vec(), tags },
            false => Ec2Write::CreateTags { resources: instances.iter().cloned().map(Id::Known).collect(), tags },
        })
    }

    /// One call for all instances. An instance that EC2 refuses, such as one without the tag on which the role depends,
    /// fails alone.
    async fn send(&self, instances: Vec<String>, delete: bool) -> BTreeMap<String, Outcome> {
        let call = |part: Vec<String>| async move { self.api.write(&self.write(&part, delete)).await };
        let concerns_some = |error: &ApiError| error.kind == ErrorKind::Refused;
        let results = split_refused(instances, concerns_some, |error, id| names(&error.message, id), call).await;
        let outcome = |result: &Result<_, ApiError>| match result {
            Ok(_) => Outcome::Done,
            Err(error) if error.is(&[NOT_FOUND]) => Outcome::NotFound(error.clone()),
            Err(error) if error.is(&NO_ID) => Outcome::NoId,
            Err(error) => Outcome::Failed(error.clone()),
        };
        let of_part = |(part, result): (Vec<String>, _)| {
            let outcome = outcome(&result);
            part.into_iter().map(move |id| (id, outcome.clone()))
        };
        results.into_iter().flat_map(of_part).collect()
    }

    /// The instances that need no further call, without those whose tags are about to be removed.
    fn tagged_just_now(&self, new: &[String], gone: &[String]) -> BTreeMap<String, Outcome> {
        let mut tagged = self.tagged.lock();
        tagged.retain(|id, at| at.elapsed() < LABEL_LATE && !gone.contains(id));
        new.iter().filter(|id| tagged.contains_key(*id)).map(|id| (id.clone(), Outcome::Done)).collect()
    }

    fn remember(&self, outcomes: &BTreeMap<String, Outcome>) {
        let done = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Done));
        let now = Instant::now();
        self.tagged.lock().extend(done.map(|(id, _)| (id.clone(), now)));
    }

    fn judge(&self, work: &NodeWork, outcome: Option<&Outcome>) -> Result<NodeChanges, ProviderError> {
        match (outcome, &work.node) {
            (None | Some(Outcome::NoId), _) | (Some(Outcome::Done | Outcome::NotFound(_)), None) => {
                Ok(NodeChanges::default())
            }
            (Some(Outcome::Done), Some(_)) => {
                Ok(NodeChanges { labels: [(LABEL.to_owned(), self.digest.clone())].into(), ..NodeChanges::default() })
            }
            (Some(Outcome::NotFound(error)), Some(node)) => {
                // EC2 shows new instances late.
                let is_young = age(node, &self.cluster).is_some_and(|age| age < GRACE);
                if is_young { Err(error.clone().into()) } else { Ok(NodeChanges::default()) }
            }
            (Some(Outcome::Failed(error)), _) => Err(error.clone().into()),
        }
    }
}

#[async_trait]
impl NodeTask for Tagging {
    fn limits(&self) -> NodeTaskLimits {
        let Settings { workers, rate, .. } = self.settings;
        NodeTaskLimits { batch: BATCH, workers, rate, tries: Some(TRIES) }
    }

    fn is_due(&self, node: &Node) -> bool {
        node.labels.get(LABEL) != Some(&*self.digest) && ProviderId::instance(node.provider_id.as_deref()).is_some()
    }

    fn minds_deletion(&self) -> bool {
        true
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        let instances = |deleted: bool| {
            let mut ids: Vec<String> = work
                .iter()
                .filter(|work| work.node.is_none() == deleted)
                .filter_map(|work| Some(ProviderId::instance(work.provider_id.as_deref())?.to_string()))
                .collect();
            ids.sort();
            ids.dedup();
            ids
        };
        let (mut new, mut gone) = (instances(false), instances(true));
        let in_use = self.in_use();
        gone.retain(|id| !in_use.contains(&**id));
        let done = self.tagged_just_now(&new, &gone);
        new.retain(|id| !done.contains_key(id));
        // Remove tags first, so that a node that was recreated with its provider ID keeps its tags.
        let untagged = self.send(gone, true).await;
        let mut tagged = self.send(new, false).await;
        self.remember(&tagged);
        tagged.extend(done);
        let outcome = |work: &NodeWork| {
            let id = ProviderId::instance(work.provider_id.as_deref())?;
            if work.node.is_some() { tagged.get(id.as_str()) } else { untagged.get(id.as_str()) }
        };
        work.iter().map(|work| self.judge(work, outcome(work))).collect()
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let mut plan = Plan::new(format!("node {} tags", work.name));
        let Some(instance) = ProviderId::instance(work.provider_id.as_deref()) else { return Ok(plan) };
        let deleted = work.node.is_none();
        if deleted && self.in_use().contains(&instance) {
            return Ok(plan);
        }
        let change = |(key, value): (&String, &String)| {
            let value = Some(value.clone());
            let (before, after) = if deleted { (value, None) } else { (None, value) };
            Change { field: format!("tag {key}").into(), before, after }
        };
        plan.steps.push(Step {
            verb: if deleted { Verb::Delete } else { Verb::Update },
            kind: "Tags".into(),
            id: instance.to_string(),
            changes: self.settings.tags.iter().map(change).collect(),
            reason: (if deleted { "the node is gone" } else { "--tags asks for them" }).into(),
            risk: Risk::None,
        });
        Ok(plan)
    }

    fn written(&self, node: &Node) {
        if let (None, Some(age)) = (node.labels.get(LABEL), age(node, &self.cluster)) {
            self.metrics.tagging_delay(age);
        }
    }

    fn failed(&self, work: &NodeWork, _error: &ProviderError, last: bool) {
        let instance = ProviderId::instance(work.provider_id.as_deref()).map(|id| id.to_string()).unwrap_or_default();
        self.metrics.tagging_error("total_errors", &instance);
        if last {
            self.metrics.tagging_error("errors_after_retries_exhausted", &instance);
        }
    }
}
