//! Services whose part of a shared object the cloud refuses: they are left out of it, so that the others get theirs. And
//! the limits that it names when it refuses more.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_provider::{ErrorClass, ProviderError, ServiceAction};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::observed::Kept;
use super::wanted::Wanted;

/// A refused part is sent again after this time: what was missing may have been created.
pub(super) const REFUSED: Duration = Duration::from_secs(3600);
/// The same where it may succeed soon: for a Service that no load balancer serves until then, and where another object has
/// what is asked for. Each Service is retried with back-off.
pub(super) const BRIEFLY: Duration = Duration::from_secs(5);
/// The same for some of several that do not fit together, or of which one is refused and not named. The others are tried
/// several times in this time, each time with fewer.
pub(super) const ASIDE: Duration = Duration::from_secs(60);
/// The same for a missing permission or quota: somebody may have granted it.
pub(super) const DENIED: Duration = Duration::from_secs(600);
/// The end of the codes of what another object still uses.
pub(super) const STILL_USED: &str = "CannotBeDeleted";
/// The codes of refusals that end when another object changes or goes.
const PASSING: [&str; 5] =
    ["PublicIPAddressInUse", "PrivateIPAddressIsAllocated", "SubnetIsFull", "DnsRecordInUse", STILL_USED];

/// For how long what is refused with this error is not sent again.
pub(super) fn time_of(error: &ProviderError) -> Duration {
    match error.class() {
        _ if is_passing(&error.to_string()) => BRIEFLY,
        ErrorClass::Transient { .. } => BRIEFLY,
        ErrorClass::Denied { .. } => DENIED,
        _ => REFUSED,
    }
}

fn is_passing(text: &str) -> bool {
    PASSING.iter().any(|code| text.contains(code))
}

/// For how long a Service keeps what it has after this error; `None`: the change may succeed soon.
pub(super) fn keeping(error: &ProviderError) -> Option<Duration> {
    match error.class() {
        _ if is_passing(&error.to_string()) => None,
        ErrorClass::Invalid { .. } => Some(REFUSED),
        // Also a quota, a policy or a lock.
        ErrorClass::Denied { .. } | ErrorClass::Unknown => Some(DENIED),
        _ => None,
    }
}

/// What was refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// By Service.
    services: Refusals,
    /// The same of security rules.
    rules: Refusals,
    /// The load balancers that Services have left for another one, by key, with the fingerprint.
    left: Mutex<BTreeMap<String, (u64, String)>>,
    most_rules: Mutex<Option<usize>>,
}

type Refusals = Mutex<BTreeMap<String, Refusal>>;

#[derive(Debug)]
struct Refusal {
    fingerprint: u64,
    until: Instant,
    error: ProviderError,
    kept: Option<Kept>,
}

impl Refused {
    /// Records that the cloud refuses the part of a Service in a load balancer, and for how long it is left out.
    pub(super) fn note(&self, key: &str, fingerprint: u64, error: ProviderError, time: Duration) {
        note(&self.services, key, Refusal { fingerprint, until: Instant::now() + time, error, kept: None });
    }

    /// Records that the cloud refuses a change of a Service, and for how long this keeps what it has.
    pub(super) fn keep(&self, key: &str, fingerprint: u64, error: ProviderError, time: Duration, kept: Kept) {
        note(&self.services, key, Refusal { fingerprint, until: Instant::now() + time, error, kept: Some(kept) });
    }

    /// Records that the cloud refuses the security rules of a Service.
    pub(super) fn note_rules(&self, key: &str, fingerprint: u64, error: ProviderError, time: Duration) {
        note(&self.rules, key, Refusal { fingerprint, until: Instant::now() + time, error, kept: None });
    }

    /// Records the load balancer that a Service has left for another one, which could not be written with it.
    pub(super) fn moves(&self, key: &str, fingerprint: u64, from: &str) {
        self.left.lock().insert(key.to_owned(), (fingerprint, from.to_owned()));
    }

    /// The load balancer that a Service has left.
    pub(super) fn former(&self, key: &str, fingerprint: u64) -> Option<String> {
        let left = self.left.lock();
        left.get(key).filter(|(known, _)| *known == fingerprint).map(|(_, name)| name.clone())
    }

    /// Records the limit in the text of an error, until the next start; whether it is news.
    pub(super) fn learn(&self, text: &str) -> bool {
        let Some(most) = most_rules_in(text) else { return false };
        self.most_rules.lock().replace(most) != Some(most)
    }

    /// The limit of rules of an interface, if it is another one than usual.
    pub(super) fn most_rules(&self) -> Option<usize> {
        *self.most_rules.lock()
    }

    /// The refusals that still hold for these Services, and what they keep.
    pub(super) fn of(&self, wanted: &Wanted) -> (BTreeMap<String, ProviderError>, BTreeMap<String, Kept>) {
        let gone = wanted.items.values().filter(|item| item.action == ServiceAction::Delete);
        gone.for_each(|item| drop(self.left.lock().remove(&item.key)));
        let refused = still(&self.services, wanted);
        let services = self.services.lock();
        let kept = refused.keys().filter_map(|key| Some((key.clone(), services.get(key)?.kept.clone()?)));
        let kept = kept.collect();
        (refused, kept)
    }

    /// The same of security rules.
    pub(super) fn of_rules(&self, wanted: &Wanted) -> BTreeMap<String, ProviderError> {
        still(&self.rules, wanted)
    }
}

fn note(refused: &Refusals, key: &str, refusal: Refusal) {
    refused.lock().insert(key.to_owned(), refusal);
}

fn still(refused: &Refusals, wanted: &Wanted) -> BTreeMap<String, ProviderError> {
    let mut refused = refused.lock();
    refused.retain(|_, refusal| Instant::now() < refusal.until);
    let mut found = BTreeMap::new();
    for item in wanted.items.values() {
        let Some(refusal) = refused.get(&item.key) else { continue };
        match refusal.fingerprint == item.fingerprint {
            true => drop(found.insert(item.key.clone(), refusal.error.clone())),
            false => drop(refused.remove(&item.key)),
        }
    }
    found
}

/// `… cannot have more than 299 NAT or load balancing rules combined.`
fn most_rules_in(text: &str) -> Option<usize> {
    let (before, _) = text.split_once(" NAT or load balancing rules combined")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_learned_once_from_the_text_of_a_refusal() {
        let refused = Refused::default();
        assert!(!refused.learn("Load balancer lb cannot have more than 5 rules."));
        let text = "IpConfiguration c cannot have more than 249 NAT or load balancing rules combined.";
        assert!(refused.learn(text) && !refused.learn(text));
        assert_eq!(refused.most_rules(), Some(249));
    }
}
