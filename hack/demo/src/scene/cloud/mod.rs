//! The simulated clouds: actions of the tour, and the properties of each cloud.

#[cfg(feature = "aws")]
mod aws;
mod azure;
mod fake;
mod gce;
mod openstack;
mod simulated;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ccm_provider::ProviderFactory;
use tokio::task::JoinSet;

use crate::act::Act;
use crate::args::{Args, CloudName};
use crate::feed::Feed;
use crate::world::World;

/// Up to this number, machines get the pod ranges that are common in other tools.
const SMALL: usize = 200;

/// A cloud whose machines can be terminated, and whose calls can be made to fail.
pub(crate) trait Cloud: fmt::Debug + Send + Sync {
    fn profile(&self) -> &'static Profile;

    /// The file of `--cloud-config`.
    fn config(&self) -> &Path;

    /// The real provider.
    fn factory(&self) -> Box<dyn ProviderFactory>;

    fn names(&self) -> Vec<String>;

    /// The current machines, in a stable order.
    fn machines(&self) -> Vec<Machine>;

    /// Terminates a machine; returns a description.
    fn terminate(&self, name: &str) -> Result<String>;

    /// Makes calls for a machine fail; returns a description.
    fn fail(&self, name: &str) -> Result<String>;

    /// Ends the failures; returns a description.
    fn recover(&self) -> Result<String>;

    /// Reports calls, load balancers and routes to the world, until the tasks end.
    fn watch(self: Arc<Self>, world: Arc<World>, feed: Arc<Feed>, tasks: &mut JoinSet<()>);

    /// The remaining parts of load balancers.
    fn left_of_balancers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Other ways to inspect the cloud.
    fn windows(&self) -> Vec<String> {
        Vec::new()
    }

    /// Suggestions for after the tour.
    fn try_next(&self) -> String;
}

/// The differences between the clouds in actions and texts of the tour.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) acts: &'static [Act],
    /// Annotations of the Services: name of the Service, key, value.
    pub(crate) annotations: &'static [(&'static str, &'static str, &'static str)],
    /// Services that the last act deletes.
    pub(crate) leaving: &'static [&'static str],
    /// The parts of a load balancer in the cloud.
    pub(crate) parts: &'static str,
    /// Title of the act in which the cloud does not answer.
    pub(crate) doubt: &'static str,
    /// The cause of the failure.
    pub(crate) cause: &'static str,
    /// Calls that a new process makes at least once before it finds that there is no work.
    pub(crate) known_after: &'static [&'static str],
    /// Additional time per node for each step.
    pub(crate) per_node: Duration,
    /// The time without writes after which the manager counts as done: some providers continue in the background.
    pub(crate) settles: Duration,
    /// The age of new Nodes: for some providers, absence is no evidence for young nodes.
    pub(crate) age: Duration,
    /// The page about its provider, and its content.
    pub(crate) read_next: (&'static str, &'static str),
}

/// The properties of a machine that its kubelet needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) on: bool,
    /// The kubelet's `--provider-id`.
    pub(crate) provider_id: Option<String>,
    /// The kubelet's `--node-ip`.
    pub(crate) node_ip: Option<String>,
}

/// Starts the selected cloud; its files are in the folder.
pub(crate) fn start(args: Args, folder: &Path) -> Result<Arc<dyn Cloud>> {
    Ok(match args.cloud {
        CloudName::Fake => Arc::new(fake::CloudFile::create(folder, args.nodes)?),
        CloudName::Azure => Arc::new(azure::SimulatedAzure::start(folder, args.nodes)?),
        CloudName::Gce => Arc::new(gce::SimulatedGce::start(folder, args.nodes)?),
        CloudName::OpenStack => Arc::new(openstack::SimulatedOpenStack::start(folder, args.nodes)?),
        #[cfg(feature = "aws")]
        CloudName::Aws => Arc::new(aws::SimulatedAws::start(folder, args.nodes)?),
        #[cfg(not(feature = "aws"))]
        CloudName::Aws => anyhow::bail!("this build has no simulated AWS; it needs the feature aws"),
    })
}

/// `node-01`, `node-02`, …
fn names(nodes: usize) -> impl Iterator<Item = String> {
    let width = nodes.to_string().len().max(2);
    (1..=nodes).map(move |i| format!("node-{i:0width$}"))
}

/// `--cluster-cidr` for this many machines.
pub(crate) fn cluster_cidr(nodes: usize) -> &'static str {
    if nodes <= SMALL { "10.244.0.0/16" } else { "10.128.0.0/9" }
}

/// The pod range of a machine, within the range of the cluster.
pub(crate) fn pod_cidr(nodes: usize, index: usize) -> String {
    match nodes <= SMALL {
        true => format!("10.244.{}.0/24", index % 256),
        false => format!("10.{}.{}.0/24", 128 + index / 256 % 128, index % 256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_pod_range_of_its_own() {
        for nodes in [SMALL, 5000] {
            let ranges: std::collections::HashSet<String> = (0..nodes).map(|i| pod_cidr(nodes, i)).collect();
            assert_eq!(ranges.len(), nodes);
        }
    }
}
