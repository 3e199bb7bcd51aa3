//! The interface that the author of a provider implements for the suite.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    CloudConfig, CloudProvider, FlagValues, NodeAddress, PersistentVolume, ProviderError, ProviderFactory, Service,
};

use crate::Simulation;

/// A provider and its cloud. Each harness is used for one clause, and begins with a cloud without objects of the
/// cluster; the suite requests instances, objects of others and trouble as needed.
///
/// Only the methods without a default are required, and without a [`Harness::simulation`] also those whose default uses it.
/// Clauses about unsupported features of a cloud or its simulation are skipped.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The factory of the provider.
    fn factory(&self) -> Arc<dyn ProviderFactory>;

    /// The configuration for the cloud of this harness.
    fn config(&self) -> Option<CloudConfig>;

    /// Values of the flags. By default the defaults of the provider's flags.
    fn flags(&self) -> FlagValues {
        flags(&*self.factory(), &[])
    }

    /// A new provider over the same cloud, as in a restarted process: it has no memory of an earlier one.
    async fn provider(&self) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        self.factory().build(self.config(), &self.flags()).await
    }

    /// The simulated cloud, if it is one that is called over a network.
    fn simulation(&self) -> Option<&dyn Simulation> {
        None
    }

    /// Creates a running instance whose node has this name.
    async fn add_instance(&self, name: &str) -> Made;

    /// Stops an instance; false where instances can't be stopped.
    async fn stop_instance(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Removes an instance permanently.
    async fn remove_instance(&self, name: &str);

    /// All objects of the cloud that are not instances: balancers and each of their parts, routes, addresses, tags on
    /// shared things. One line per object, with every property that a write can change, without times of changes.
    async fn contents(&self) -> BTreeSet<String>;

    /// How many writes reached the cloud so far, also those that changed nothing. Where writes can't be counted, a number
    /// that grows whenever the contents change.
    #[allow(clippy::expect_used, reason = "a mistake of the author, which fails the clause")]
    async fn writes(&self) -> u64 {
        let simulation = self.simulation().expect("Harness::writes or Harness::simulation");
        simulation.writes(0).len().try_into().unwrap_or(u64::MAX)
    }

    /// Disturbs the cloud until the next call. False for an unsupported kind of trouble.
    #[allow(clippy::expect_used, reason = "a mistake of the author, which fails the clause")]
    async fn trouble(&self, trouble: Trouble) -> bool {
        self.simulation().expect("Harness::trouble or Harness::simulation").trouble(trouble);
        true
    }

    /// Waits until the cloud has answered everything that was sent to it, also by a call that was abandoned, and the provider has
    /// the answers. For clouds behind a network: the suite moves no clock before that, so that a request on its way does not time
    /// out on a busy machine. It must not wait for tokio's clock.
    async fn settle(&self) {
        if let Some(simulation) = self.simulation() {
            simulation.settled().await;
        }
    }

    /// Lets time pass in a cloud that has a clock of its own. The suite calls it when a call is not finished and asks
    /// for a retry ([`ProviderError::retry_after`]); the provider's clock and tokio's are moved by then.
    async fn pass(&self, time: Duration) {
        let _ = time;
    }

    /// How many times as fast tokio's clock runs while no request is on its way ([`Harness::settle`]). More than once, about ten,
    /// for a provider that calls its cloud over a network and paces its calls; it is also interrupted at fewer places, since each
    /// takes longer.
    fn haste(&self) -> u32 {
        if self.simulation().is_some() { 10 } else { 1 }
    }

    /// Adds to every Service of the suite, for example the annotation that chooses a kind of balancer.
    fn dress(&self, service: &mut Service) {
        let _ = service;
    }

    /// Changes a Service so that it shares a cloud object with all other Services changed by this method; false if
    /// Services share no object, or none that puts them into a common group ([`ccm_provider::LoadBalancer::groups`]).
    fn share(&self, service: &mut Service) -> bool {
        let _ = service;
        false
    }

    /// Adds objects like those that the provider makes, for this Service or as routes, but of another owner, and returns true. The
    /// suite looks at [`Harness::contents`] before and after.
    async fn add_objects_of_others(&self, like: Option<&Service>) -> bool {
        let _ = like;
        false
    }

    /// Turns a route of this cluster into a blackhole, as when its instance is gone; false if unsupported.
    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let _ = destination_cidr;
        false
    }

    /// Creates a volume with labels; `None` if there are no volumes.
    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let _ = name;
        None
    }

    /// Configurations that the factory must refuse.
    fn broken_configs(&self) -> Vec<BrokenConfig> {
        Vec::new()
    }

    /// Malformed provider IDs with the scheme of this cloud: `example://` or `example:///x`.
    fn malformed_provider_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the plan for a Service whose balancer is in the desired state is empty. False for the default of
    /// [`ccm_provider::LoadBalancer::observe`], which only shows whether there is a balancer.
    fn plans_are_exact(&self) -> bool {
        false
    }

    /// Clauses that the provider breaks on purpose. One that it keeps is an error.
    fn deviations(&self) -> &'static [Deviation] {
        &[]
    }
}

/// The flags of a provider with their defaults, and these, which stand on the command line.
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

/// The behaviour of the cloud from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Everything works.
    None,
    /// Every call fails, reads too.
    Down,
    /// Reads and this many writes work; every later write is refused and has no effect.
    WritesRefusedAfter(u64),
    /// Reads and this many writes work; the next write takes effect but its answer is lost, and every later one is
    /// refused.
    AnswerLostAfter(u64),
}

/// A configuration that must be refused.
#[derive(Debug, Clone)]
pub struct BrokenConfig {
    /// The file.
    pub config: CloudConfig,
    /// A text that the error must contain: the wrong key.
    pub names: &'static str,
    /// A text that it must not contain.
    pub secret: Option<&'static str>,
}

impl BrokenConfig {
    /// A file with this text, whose wrong key is this one.
    pub fn new(path: &str, text: impl Into<String>, names: &'static str) -> Self {
        Self { config: CloudConfig { path: path.into(), text: text.into() }, names, secret: None }
    }

    /// The same with a secret in it.
    #[must_use]
    pub fn with_secret(self, secret: &'static str) -> Self {
        Self { secret: Some(secret), ..self }
    }
}

/// A clause that is broken on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    /// Name of the clause.
    pub clause: &'static str,
    /// Why.
    pub why: &'static str,
}
