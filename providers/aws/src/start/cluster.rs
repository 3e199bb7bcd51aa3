//! The Kubernetes side, as far as the provider looks at it: what the core lends once it leads.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use ccm_provider::{NodeReader, ProviderContext};

/// Empty until the core has initialized the provider; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster(Arc<OnceLock<ProviderContext>>);

impl Cluster {
    /// What the core lends. The first time counts.
    pub(crate) fn set(&self, context: ProviderContext) {
        let _ = self.0.set(context);
    }

    pub(crate) fn context(&self) -> Option<&ProviderContext> {
        self.0.get()
    }

    /// The nodes as watched; `None` before the core has lent anything.
    pub(crate) fn nodes(&self) -> Option<&dyn NodeReader> {
        self.context().map(|context| &*context.nodes)
    }

    /// Monotonic time: the clock of the core, once it has lent one.
    pub(crate) fn now(&self) -> Instant {
        self.context().map_or_else(|| tokio::time::Instant::now().into_std(), |context| context.clock.now())
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> SystemTime {
        self.context().map_or_else(SystemTime::now, |context| context.clock.wall())
    }
}
