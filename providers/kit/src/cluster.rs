//! The Kubernetes data that a provider reads, which the core passes when the process becomes the leader.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use ccm_provider::{NodeReader, ProviderContext};

/// The context from the core. Empty until the core has initialized the provider; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Cluster(Arc<OnceLock<(ProviderContext, Instant)>>);

impl Cluster {
    /// Stores the context. Only the first call has an effect.
    pub fn set(&self, context: ProviderContext) {
        let now = context.clock.now();
        let _ = self.0.set((context, now));
    }

    /// The context, once it is set.
    pub fn context(&self) -> Option<&ProviderContext> {
        self.0.get().map(|(context, _)| context)
    }

    /// For how long this process has led; `None` if it does not.
    pub fn leads_for(&self) -> Option<Duration> {
        self.0.get().map(|(_, since)| self.now().saturating_duration_since(*since))
    }

    /// The watched nodes; `None` before the provider is initialized.
    pub fn nodes(&self) -> Option<&dyn NodeReader> {
        self.context().map(|context| &*context.nodes)
    }

    /// Monotonic time from the core's clock, if it is set.
    pub fn now(&self) -> Instant {
        self.context().map_or_else(|| tokio::time::Instant::now().into_std(), |context| context.clock.now())
    }

    /// The wall clock.
    pub fn wall(&self) -> SystemTime {
        self.context().map_or_else(SystemTime::now, |context| context.clock.wall())
    }
}
