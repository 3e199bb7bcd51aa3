//! The Kubernetes side, as far as a provider reads it: what the core passes once the process leads.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use ccm_provider::{NodeReader, ProviderContext};

/// The context of the core. Empty until the core has initialized the provider; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Cluster(Arc<OnceLock<ProviderContext>>);

impl Cluster {
    /// Stores what the core passes. Only the first call has an effect.
    pub fn set(&self, context: ProviderContext) {
        let _ = self.0.set(context);
    }

    /// What the core passed.
    pub fn context(&self) -> Option<&ProviderContext> {
        self.0.get()
    }

    /// The nodes as watched; `None` before the provider is initialized.
    pub fn nodes(&self) -> Option<&dyn NodeReader> {
        self.context().map(|context| &*context.nodes)
    }

    /// Monotonic time: the clock of the core, once there is one.
    pub fn now(&self) -> Instant {
        self.context().map_or_else(|| tokio::time::Instant::now().into_std(), |context| context.clock.now())
    }

    /// The wall clock.
    pub fn wall(&self) -> SystemTime {
        self.context().map_or_else(SystemTime::now, |context| context.clock.wall())
    }
}
