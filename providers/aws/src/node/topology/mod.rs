//! The position of an instance in the network: the labels `topology.k8s.aws/network-node-layer-…`.
//!
//! Upstream: `pkg/providers/v1/topology.go`, with one call per node. Here one call reads up to 100 instances, and for
//! an unknown type only one instance: if that has no topology, the type has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::ErrorKind;
use ccm_kit::{Misses, split_refused};
use ccm_provider::ProviderError;
use parking_lot::Mutex;
use regex::Regex;
use tokio::sync::Semaphore;

use crate::client::{Answer, Api, ApiError, names};
use crate::node::identity::InstanceId;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

/// Most instances in one call.
const AT_ONCE: usize = 100;
/// Cache lifetime of missing topology, for a region, a type or an instance.
const MISS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Types that require an answer, unless the configuration has a pattern.
const REQUIRED_TYPES: &str = r"^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$";
/// The region does not support topology. With the last code, it does not know the operation at all.
const UNSUPPORTED: &[&str] = &["UnsupportedOperation", "InvalidAction"];
const UNAUTHORIZED: &[&str] = &["UnauthorizedOperation"];

/// Answers by instance; a missing one gets no labels.
pub(crate) type Layers = BTreeMap<InstanceId, Result<Vec<String>, ProviderError>>;

#[derive(Debug)]
pub(crate) struct Topology {
    api: Arc<dyn Api>,
    /// Types whose nodes require an answer.
    required: Option<Regex>,
    none_in_region: Misses<()>,
    none_of_type: Misses<String>,
    none_of_instance: Misses<InstanceId>,
    // Types with at least one instance that had a topology.
    having: Mutex<BTreeSet<String>>,
    // One call at a time: its result for a type spares the others their call.
    turn: Semaphore,
}

impl Topology {
    /// `required` is the configured pattern, if any.
    pub(crate) fn new(api: Arc<dyn Api>, required: Option<Regex>) -> Self {
        Self {
            api,
            required: required.or_else(|| Regex::new(REQUIRED_TYPES).ok()),
            none_in_region: Misses::new(MISS_KEPT),
            none_of_type: Misses::new(MISS_KEPT),
            none_of_instance: Misses::new(MISS_KEPT),
            having: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }

    fn is_required(&self, kind: &str) -> bool {
        self.required.as_ref().is_some_and(|required| required.is_match(kind))
    }

    /// The layers of the instances, from the outermost. Fails only for types that require an answer.
    pub(crate) async fn layers(&self, instances: &BTreeMap<InstanceId, String>) -> Layers {
        let mut layers = Layers::new();
        if self.worth_asking(instances).next().is_none() {
            return layers;
        }
        let _turn = self.turn.acquire().await;
        // The first round also reads one instance of each unknown type; the second reads the others of it.
        for _ in 0..2 {
            let round = self.round(instances, &layers);
            let mut chunks = round.chunks(AT_ONCE);
            // The first call runs alone: it may show that there is nothing to read.
            let Some(first) = chunks.next() else { break };
            let mut failed = self.ask(first, &mut layers).await;
            for chunk in chunks {
                failed |= !self.none_in_region.contains(&()) && self.ask(chunk, &mut layers).await;
            }
            if failed {
                break;
            }
        }
        layers
    }

    /// The instances that are not known to lack a topology.
    fn worth_asking<'a>(
        &'a self,
        instances: &'a BTreeMap<InstanceId, String>,
    ) -> impl Iterator<Item = (&'a InstanceId, &'a String)> {
        let region = !self.none_in_region.contains(&());
        instances.iter().filter(move |(id, kind)| {
            region
                && !kind.is_empty()
                && !self.none_of_type.contains(kind.as_str())
                && !self.none_of_instance.contains(id.as_str())
        })
    }

    /// The instances to read next: all of the types that require or have a topology, one of each other type.
    fn round(&self, instances: &BTreeMap<InstanceId, String>, done: &Layers) -> Vec<(InstanceId, String)> {
        let having = self.having.lock().clone();
        let mut tried: BTreeSet<&str> = BTreeSet::new();
        let asked = self
            .worth_asking(instances)
            .filter(|(id, _)| !done.contains_key(*id))
            .filter(|(_, kind)| self.is_required(kind) || having.contains(*kind) || tried.insert(kind));
        asked.map(|(id, kind)| (id.clone(), kind.clone())).collect()
    }

    /// Makes one call, and more if EC2 refuses it because of some of the instances. Returns whether no answer came.
    async fn ask(&self, instances: &[(InstanceId, String)], layers: &mut Layers) -> bool {
        let call = |part: Vec<(InstanceId, String)>| async move {
            let ids: Vec<String> = part.iter().map(|(id, _)| id.to_string()).collect();
            self.without_support(self.api.instance_topology(&ids).await)
        };
        let concerns_some = |error: &ApiError| error.kind == ErrorKind::Refused;
        let named = |error: &ApiError, (id, _): &(InstanceId, String)| names(&error.message, id.as_str());
        let mut failed = false;
        for (part, answer) in split_refused(instances.to_vec(), concerns_some, named, call).await {
            failed |= answer.as_ref().is_err_and(|error| !concerns_some(error));
            for (id, kind) in part {
                let layer = match &answer {
                    Ok(answer) => Ok(self.learn(&id, &kind, answer.get(id.as_str()).cloned().unwrap_or_default())),
                    Err(error) if self.is_required(&kind) => Err(error.clone().into()),
                    Err(error) => {
                        tracing::warn!(instance = %id, instance_type = kind, %error, "no topology labels");
                        Ok(Vec::new())
                    }
                };
                layers.insert(id, layer);
            }
        }
        failed
    }

    /// A region without topology, or without permission to read it, is treated as if no instance had one.
    fn without_support(&self, answer: Answer<BTreeMap<String, Vec<String>>>) -> Answer<BTreeMap<String, Vec<String>>> {
        let unauthorized = |error: &ApiError| error.is(UNAUTHORIZED);
        match answer {
            Err(error) if error.is(UNSUPPORTED) || unauthorized(&error) => {
                if unauthorized(&error) {
                    tracing::warn!(%error, "no topology labels for a day: the permission is missing");
                }
                self.none_in_region.add(());
                Ok(BTreeMap::new())
            }
            answer => answer,
        }
    }

    fn learn(&self, id: &InstanceId, kind: &str, layers: Vec<String>) -> Vec<String> {
        if self.none_in_region.contains(&()) {
            return layers;
        }
        if !layers.is_empty() {
            self.having.lock().insert(kind.to_owned());
        } else if self.is_required(kind) || self.having.lock().contains(kind) {
            self.none_of_instance.add(id.clone());
        } else {
            self.none_of_type.add(kind.to_owned());
        }
        layers
    }
}
