//! What the suite needs from the author of a provider.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    CloudConfig, CloudProvider, FlagValues, NodeAddress, PersistentVolume, ProviderError, ProviderFactory, Service,
};

/// A provider and the cloud behind it. Each is used for one clause, and begins with a cloud that holds nothing of the
/// cluster; instances, objects of others and trouble come when the suite asks for them.
///
/// Only the methods without a default are needed. Clauses about what a cloud or its simulation can't do are skipped.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The factory of the provider.
    fn factory(&self) -> Arc<dyn ProviderFactory>;

    /// The configuration that leads to the cloud of this harness.
    fn config(&self) -> Option<CloudConfig>;

    /// Values of the flags. By default what the provider's own flags have as their default.
    fn flags(&self) -> FlagValues {
        let mut values = FlagValues::default();
        for flag in self.factory().flags() {
            values.insert(flag.name, vec![flag.default.to_owned()], false);
        }
        values
    }

    /// A new provider over the same cloud: what a restarted process has. Nothing in memory survives from an earlier one.
    async fn provider(&self) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        self.factory().build(self.config(), &self.flags()).await
    }

    /// Makes a running instance whose node has this name.
    async fn add_instance(&self, name: &str) -> Made;

    /// Stops an instance; false where instances can't be stopped.
    async fn stop_instance(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Removes an instance for good.
    async fn remove_instance(&self, name: &str);

    /// All objects of the cloud that are not instances: balancers and each of their parts, routes, addresses, tags on
    /// shared things. One line per object, with every property that a write can change, without times of changes.
    async fn contents(&self) -> BTreeSet<String>;

    /// How many writes reached the cloud so far, also those that changed nothing. Where writes can't be counted, a number
    /// that grows whenever the contents change.
    async fn writes(&self) -> u64;

    /// Disturbs the cloud until further notice. False for a kind of trouble that can't be made.
    async fn trouble(&self, trouble: Trouble) -> bool;

    /// Waits until the cloud has answered everything that was sent to it, also by a call that was abandoned, and the provider has
    /// the answers. For clouds behind a network: the suite moves no clock before that, so that a request on its way does not time
    /// out on a busy machine. It must not wait for tokio's clock.
    async fn settle(&self) {}

    /// Lets time pass in a cloud that has a clock of its own. The suite calls it when a call is not finished and asks
    /// for a retry ([`ProviderError::retry_after`]); the provider's clock and tokio's are moved by then.
    async fn pass(&self, time: Duration) {
        let _ = time;
    }

    /// How many times as fast tokio's clock runs while no request is on its way ([`Harness::settle`]). More than once, about ten,
    /// for a provider that calls its cloud over a network and paces its calls; it is also interrupted at fewer places, since each
    /// takes longer.
    fn haste(&self) -> u32 {
        1
    }

    /// What every Service of the suite has besides, such as the annotation that chooses a kind of balancer.
    fn dress(&self, service: &mut Service) {
        let _ = service;
    }

    /// Changes a Service so that it shares a cloud object with all others that were changed so; false where Services share
    /// nothing, or nothing that makes them one of the [`ccm_provider::LoadBalancer::groups`].
    fn share(&self, service: &mut Service) -> bool {
        let _ = service;
        false
    }

    /// Adds objects like those that the provider makes, but of another owner, and returns true. The suite looks at
    /// [`Harness::contents`] before and after.
    async fn add_objects_of_others(&self) -> bool {
        false
    }

    /// Turns a route of this cluster into a blackhole, as when its instance is gone; false where that can't be.
    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let _ = destination_cidr;
        false
    }

    /// Makes a volume with labels; `None` where there are no volumes.
    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let _ = name;
        None
    }

    /// Configurations that the factory must refuse.
    fn broken_configs(&self) -> Vec<BrokenConfig> {
        Vec::new()
    }

    /// Provider IDs with the scheme of this cloud that it can't have given out: `example://` or `example:///x`.
    fn malformed_provider_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the plan for a Service whose balancer is as wanted is empty. False for the default of
    /// [`ccm_provider::LoadBalancer::observe`], which knows only whether there is a balancer.
    fn plans_are_exact(&self) -> bool {
        false
    }

    /// Clauses that the provider breaks on purpose. One that is kept after all is an error.
    fn deviations(&self) -> &'static [Deviation] {
        &[]
    }
}

/// A new instance.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its provider ID, with scheme.
    pub provider_id: String,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
}

/// What the cloud does from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Everything works.
    None,
    /// Every call fails, reads too.
    Down,
    /// Reads work, and so many writes; every later one is refused and has no effect.
    WritesRefusedAfter(u64),
    /// Reads work, and so many writes; the next takes effect but its answer is lost, and every later one is refused.
    AnswerLostAfter(u64),
}

/// A configuration that must be refused.
#[derive(Debug, Clone)]
pub struct BrokenConfig {
    /// The file.
    pub config: CloudConfig,
    /// A word that the error must hold: the key that is wrong.
    pub names: &'static str,
    /// A word that it must not hold.
    pub secret: Option<&'static str>,
}

/// A clause that is broken on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    /// Name of the clause.
    pub clause: &'static str,
    /// Why.
    pub why: &'static str,
}
