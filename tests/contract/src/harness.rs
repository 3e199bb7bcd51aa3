//! The interface that the author of a provider implements for the suite.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    CloudConfig, CloudProvider, FlagValues, NodeAddress, PersistentVolume, ProviderError, ProviderFactory, Service,
};

use crate::{Simulation, TestCluster};

/// A provider and its cloud. Each harness is used for one clause, and begins with a cloud without objects of the
/// cluster; the suite requests instances, objects of other owners and faults as needed.
///
/// Methods without a default are required; without a [`Harness::simulation`], so are the methods whose default uses it.
/// Clauses about features that the cloud or its simulation does not support are skipped.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The factory of the provider.
    fn factory(&self) -> Arc<dyn ProviderFactory>;

    /// The configuration for the cloud of this harness.
    fn config(&self) -> Option<CloudConfig>;

    /// The values of the flags; the defaults of the provider's flags unless overridden.
    fn flags(&self) -> FlagValues {
        flags(&*self.factory(), &[])
    }

    /// Prepares the cluster before the first process: objects that a provider reads there.
    fn furnish(&self, cluster: &TestCluster) {
        let _ = cluster;
    }

    /// A new provider over the same cloud, as in a restarted process: it has no memory of an earlier one.
    async fn provider(&self) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        self.factory().build(self.config(), &self.flags()).await
    }

    /// The simulated cloud, if it is called over a network.
    fn simulation(&self) -> Option<&dyn Simulation> {
        None
    }

    /// Creates a running instance whose node has this name.
    async fn add_instance(&self, name: &str) -> Made;

    /// Stops an instance; false if the cloud cannot stop instances.
    async fn stop_instance(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Removes an instance permanently.
    async fn remove_instance(&self, name: &str);

    /// All objects of the cloud except instances: balancers and each of their parts, routes, addresses, tags on shared
    /// objects. One line per object, with every property that a write can change, without modification times.
    async fn contents(&self) -> BTreeSet<String>;

    /// The number of writes that reached the cloud so far, including those that changed nothing. If writes cannot be
    /// counted, a number that grows whenever the contents change.
    #[allow(clippy::expect_used, reason = "a mistake of the author, which fails the clause")]
    async fn writes(&self) -> u64 {
        let simulation = self.simulation().expect("Harness::writes or Harness::simulation");
        simulation.writes(0).len().try_into().unwrap_or(u64::MAX)
    }

    /// Injects faults into the cloud until the next call of this method. False if the cloud does not support this
    /// fault.
    #[allow(clippy::expect_used, reason = "a mistake of the author, which fails the clause")]
    async fn disrupt(&self, outage: Outage) -> bool {
        self.simulation().expect("Harness::disrupt or Harness::simulation").disrupt(outage);
        true
    }

    /// Waits until the cloud has answered all requests, including those of abandoned calls, and the provider has
    /// received the answers. For clouds behind a network: the suite moves no clock before that, so that a pending
    /// request does not time out on a busy machine. Must not wait for tokio's clock.
    async fn settle(&self) {
        if let Some(simulation) = self.simulation() {
            simulation.settled().await;
        }
    }

    /// Advances the time in a cloud with its own clock. The suite calls it when an unfinished call requests a retry
    /// ([`ProviderError::retry_after`]), after it has moved the clocks of the provider and of tokio.
    async fn pass(&self, time: Duration) {
        let _ = time;
    }

    /// The speed of tokio's clock while no request is pending ([`Harness::settle`]). Greater than 1, about 10, for a
    /// provider that calls its cloud over a network and paces its calls; such a provider is also interrupted at fewer
    /// places, because each takes longer.
    fn haste(&self) -> u32 {
        if self.simulation().is_some() { 10 } else { 1 }
    }

    /// Adjusts every Service of the suite, for example by the annotation that selects a kind of balancer.
    fn dress(&self, service: &mut Service) {
        let _ = service;
    }

    /// Changes a Service so that it shares a cloud object with all other Services changed by this method. False if
    /// nothing is to be changed for that: Services share no object, or all are in one group
    /// ([`ccm_provider::LoadBalancer::groups`]).
    fn share(&self, service: &mut Service) -> bool {
        let _ = service;
        false
    }

    /// Changes a Service so that an ensure must refuse it, for example by a wrong value of an annotation; false if nothing
    /// is refused.
    fn refuse(&self, service: &mut Service) -> bool {
        let _ = service;
        false
    }

    /// Adds objects like those of the provider, for this Service or as routes, but with another owner, and returns
    /// true. The suite compares [`Harness::contents`] before and after.
    async fn add_objects_of_others(&self, like: Option<&Service>) -> bool {
        let _ = like;
        false
    }

    /// Turns a route of this cluster into a blackhole, as if its instance were deleted; false if unsupported.
    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let _ = destination_cidr;
        false
    }

    /// Creates a volume with labels; `None` if the cloud has no volumes.
    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let _ = name;
        None
    }

    /// Configurations that the factory must reject.
    fn broken_configs(&self) -> Vec<BrokenConfig> {
        Vec::new()
    }

    /// Malformed provider IDs with the scheme of this cloud: `example://` or `example:///x`.
    fn malformed_provider_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the plan for a Service whose balancer is in the desired state is empty. False for the default of
    /// [`ccm_provider::LoadBalancer::observe`], which only shows whether a balancer exists.
    fn plans_are_exact(&self) -> bool {
        false
    }

    /// Clauses that the provider intentionally breaks. A listed clause that is kept is an error.
    fn deviations(&self) -> &'static [Deviation] {
        &[]
    }
}

/// The default flags of a provider, with `given` as flags on the command line.
pub fn flags(factory: &dyn ProviderFactory, given: &[(&'static str, &str)]) -> FlagValues {
    let mut values = FlagValues::default();
    for flag in factory.flags() {
        let default = Some(flag.default.to_owned()).filter(|default| !default.is_empty());
        values.insert(flag.name, default.into_iter().collect(), false);
    }
    for (name, value) in given {
        values.insert(name, vec![(*value).to_owned()], true);
    }
    values
}

/// A new instance.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its provider ID, with scheme.
    pub provider_id: String,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
}

/// Faults of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Everything works.
    None,
    /// Every call fails, including reads.
    Down,
    /// Reads and this many writes succeed; every later write is rejected without effect.
    WritesRefusedAfter(u64),
    /// Reads and this many writes succeed; the next write takes effect but its answer is lost, and every later one is
    /// rejected.
    AnswerLostAfter(u64),
}

/// A configuration that must be rejected.
#[derive(Debug, Clone)]
pub struct BrokenConfig {
    /// The configuration file.
    pub config: CloudConfig,
    /// A string that the error must contain: the wrong key.
    pub names: &'static str,
    /// A string that the error must not contain.
    pub secret: Option<&'static str>,
}

impl BrokenConfig {
    /// A file with this text; `names` is its wrong key.
    pub fn new(path: &str, text: impl Into<String>, names: &'static str) -> Self {
        Self { config: CloudConfig { path: path.into(), text: text.into() }, names, secret: None }
    }

    /// Adds a secret that the file contains.
    #[must_use]
    pub fn with_secret(self, secret: &'static str) -> Self {
        Self { secret: Some(secret), ..self }
    }
}

/// A clause that the provider intentionally breaks.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    /// The name of the clause.
    pub clause: &'static str,
    /// The reason.
    pub why: &'static str,
}
