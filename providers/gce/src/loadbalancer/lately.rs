//! The forwarding rules that this process has lately made and deleted.
//!
//! Both kinds of load balancers of a Service have a rule of the same name: if a read lags, the one that was deleted looks
//! like one to delete, and its successor goes.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::Journal;
use ccm_provider::ProviderError;
use parking_lot::Mutex;

use crate::client::Write;
use crate::client::balancing::ForwardingRule;
use crate::client::operation::Verb;
use crate::client::resource::Collection;

/// After this time, reads show a write.
const SHOWN: Duration = Duration::from_secs(60);
/// The delay until they are repeated.
const AGAIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Lately {
    written: Journal<Effect>,
    /// The IDs of rules as they were last read, by name.
    ids: Mutex<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// By name.
    Made(String),
    /// By name and ID.
    Deleted(String, String),
}

impl Effect {
    fn name(&self) -> &str {
        match self {
            Self::Made(name) | Self::Deleted(name, _) => name,
        }
    }
}

impl Lately {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { written: Journal::new(cluster, SHOWN), ids: Mutex::default() }
    }

    /// Notes a write that has succeeded.
    pub(super) fn wrote(&self, write: &Write) {
        if write.operation.collection != Collection::ForwardingRules {
            return;
        }
        let name = &write.name;
        match write.operation.verb {
            Verb::Insert => drop(self.written.wrote([Effect::Made(name.clone())])),
            Verb::Delete => {
                self.written.forget(|effect| *effect == Effect::Made(name.clone()));
                let id = self.ids.lock().remove(name);
                self.written.wrote(id.map(|id| Effect::Deleted(name.clone(), id)));
            }
            _ => {}
        }
    }

    /// Fails if what was read of a rule is older than the writes of this process.
    pub(super) fn check(&self, name: &str, found: Option<&ForwardingRule>) -> Result<(), ProviderError> {
        let is_older = |effect: &Effect| match (effect, found) {
            (Effect::Made(made), None) => made == name,
            (Effect::Deleted(deleted, id), Some(found)) => deleted == name && *id == found.id,
            _ => false,
        };
        if self.written.hidden(is_older).is_some() {
            let text =
                format!("the cloud does not show yet what was written of the forwarding rule {name}; read again");
            return Err(ProviderError::retry(text, AGAIN));
        }
        // It may be absent because its deletion goes on, and be shown again by a read that lags.
        if let Some(id) = found.map(|found| &found.id).filter(|id| !id.is_empty()) {
            self.ids.lock().insert(name.to_owned(), id.clone());
        }
        self.written.forget(|effect| found.is_some() && *effect == Effect::Made(name.to_owned()));
        Ok(())
    }

    /// Whether reads may not show yet what was written of a rule.
    pub(super) fn has_written(&self, name: &str) -> bool {
        self.written.hidden(|effect| effect.name() == name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::client::operation::{FORWARDING_RULE_CREATE, FORWARDING_RULE_DELETE, Operation};
    use crate::client::resource::Scope;

    fn wrote(lately: &Lately, operation: Operation) {
        lately.wrote(&Write::new(operation, Scope::region("us-central1"), "a"));
    }

    fn rule(id: &str) -> ForwardingRule {
        ForwardingRule { id: id.to_owned(), ..ForwardingRule::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_is_older_than_a_write_fails_until_the_lag_is_over() {
        let lately = Lately::new(Cluster::default());
        let is_current = |found: Option<&str>| lately.check("a", found.map(rule).as_ref()).is_ok();
        assert!(is_current(None) && is_current(Some("1")));
        wrote(&lately, FORWARDING_RULE_DELETE);
        assert!(!is_current(Some("1")) && is_current(None));
        // The object was gone before the operation had ended.
        assert!(is_current(Some("0")) && is_current(None));
        wrote(&lately, FORWARDING_RULE_DELETE);
        assert!(!is_current(Some("0")) && is_current(None));
        wrote(&lately, FORWARDING_RULE_CREATE);
        assert!(!is_current(Some("1")) && !is_current(None) && lately.has_written("a"));
        // Once it was shown, it may be deleted by hand. Another server may still show the first one.
        assert!(is_current(Some("2")) && is_current(None) && !is_current(Some("1")));
        assert!(lately.check("b", Some(&rule("1"))).is_ok());
        advance(SHOWN).await;
        assert!(is_current(Some("1")) && !lately.has_written("a"));
    }
}
