//! What a process remembers of the writes whose end it has not seen, and of what was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::balancer::Written;
use ccm_provider::ProviderError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::hosts::Host;
use super::step::Step;
use crate::client::operation::{ADDRESS_DELETE, ADDRESS_RESERVE};
use crate::client::resource::Collection;
use crate::client::{ApiError, Sent, Write};

/// An instance that a target pool or group refused is offered again after this time.
const REFUSED: Duration = Duration::from_secs(300);
/// The time until an object must show the effect of a write whose operation cannot be read.
pub(super) const SHOWN: Duration = Duration::from_secs(120);
/// A change whose end was not seen is looked at again after this time, doubled each time.
const UNSEEN: Duration = Duration::from_secs(10);
/// The least delay of such a look.
const SOON: Duration = Duration::from_secs(1);
/// A change whose end was not seen, and that was not sent since, is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The writes whose operations go on, by operation, and what earlier ones have shown.
#[derive(Debug, Default)]
pub(super) struct Ongoing {
    pub(super) sent: Mutex<BTreeMap<String, Begun>>,
    /// The balancers with a reserved address.
    pub(super) reserved: Mutex<BTreeSet<String>>,
    /// The objects that were not deleted because others use them. Both kinds of health checks have the same names.
    pub(super) used: Mutex<BTreeSet<(Collection, String)>>,
    /// The changes whose end was not seen, by [`key`].
    unseen: Mutex<BTreeMap<String, Unseen>>,
    /// The instances that were refused, by pool or group, with the reason.
    pub(super) refused: Mutex<BTreeMap<(String, Host), (ProviderError, Instant)>>,
    /// The pools and groups of which such a call failed at its end, without naming an instance: the next one is waited
    /// for, and made again with fewer.
    pub(super) fails_late: Mutex<BTreeSet<String>>,
    /// The reason why operations cannot be read, until it was reported.
    pub(super) unreadable: Unreadable,
}

/// A write whose operation goes on.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) sent: Sent,
    /// What its failure means.
    pub(super) meant: Meant,
    /// Its [`key`].
    pub(super) key: String,
    /// See [`Step::balancer`].
    pub(super) balancer: Option<String>,
}

impl Ongoing {
    /// The balancers with a reservation of which an operation goes on.
    pub(super) fn reserving(&self) -> BTreeSet<String> {
        let (sent, reserved) = (self.sent.lock(), self.reserved.lock());
        let balancers = sent.values().filter_map(|begun| begun.balancer.as_ref());
        balancers.filter(|balancer| reserved.contains(*balancer)).cloned().collect()
    }

    /// Notes a write that was accepted.
    pub(super) fn accepted(&self, write: &Write) {
        let mut reserved = self.reserved.lock();
        match write.operation {
            ADDRESS_RESERVE => drop(reserved.insert(write.name.clone())),
            ADDRESS_DELETE => drop(reserved.remove(&write.name)),
            _ => {}
        }
    }

    /// The reason why this instance could not join lately.
    pub(super) fn refusal(&self, write: &Write, host: &Host) -> Option<ProviderError> {
        if write.operation.is_removal() {
            return None;
        }
        let mut refused = self.refused.lock();
        refused.retain(|_, (_, at)| at.elapsed() < REFUSED);
        refused.get(&(target(write), host.clone())).map(|(error, _)| error.clone())
    }

    /// The delay of another look at changes whose end was not seen, if a balancer still needs one of them: only the
    /// object shows whether it has failed. Those that it needs no more have taken effect.
    pub(super) fn look_again<'s>(&self, balancer: &str, planned: impl Iterator<Item = &'s Step>) -> Option<Duration> {
        let mut unseen = self.unseen.lock();
        if unseen.is_empty() {
            return None;
        }
        let planned: BTreeSet<String> = planned.map(key).collect();
        unseen.retain(|key, change| planned.contains(key) || !change.needed_by.contains(balancer));
        let needed = unseen.iter_mut().filter(|(key, _)| planned.contains(*key)).map(|(_, change)| {
            change.needed_by.insert(balancer.to_owned());
            change.wait().max(SOON)
        });
        needed.min()
    }

    /// Notes that a change was accepted, and its end not seen. An error if that is so for long.
    pub(super) fn note_unseen(&self, key: &str, write: &Write, error: ApiError) -> Result<(), ProviderError> {
        let mut unseen = self.unseen.lock();
        unseen.retain(|_, change| change.last.elapsed() < FORGOTTEN);
        let (now, failure) = (Instant::now(), not_seen(write, error));
        match unseen.get_mut(key).filter(|change| !change.needed_by.is_empty()) {
            Some(change) => {
                (change.last, change.times) = (now, change.times.saturating_add(1));
                if change.first.elapsed() < SHOWN { Ok(()) } else { Err(failure) }
            }
            None => {
                let change = Unseen { first: now, last: now, times: 1, needed_by: BTreeSet::new(), failure };
                unseen.insert(key.to_owned(), change);
                Ok(())
            }
        }
    }

    /// The result of a change that is not sent now because its end was not seen lately.
    pub(super) fn withheld(&self, key: &str) -> Option<Result<Written, ProviderError>> {
        let unseen = self.unseen.lock();
        let change = unseen.get(key).filter(|change| !change.needed_by.is_empty() && !change.wait().is_zero())?;
        Some(if change.first.elapsed() < SHOWN { Ok(Written::Done) } else { Err(change.failure.clone()) })
    }

    /// Whether a pool or group refused this instance.
    pub(super) fn has_refused(&self, host: &Host) -> bool {
        let is_it = |((_, refused), (_, at)): (&(String, Host), &(ProviderError, Instant))| {
            refused == host && at.elapsed() < REFUSED
        };
        self.refused.lock().iter().any(is_it)
    }
}

/// A change that was accepted, and whose end was not seen.
#[derive(Debug)]
struct Unseen {
    first: Instant,
    last: Instant,
    times: u32,
    /// The balancers whose plans had it afterwards; none if it has taken effect.
    needed_by: BTreeSet<String>,
    failure: ProviderError,
}

impl Unseen {
    /// The time until it may be sent again; doubled each time.
    fn wait(&self) -> Duration {
        let delay = UNSEEN.saturating_mul(1 << (self.times.clamp(1, 8) - 1)).min(SHOWN);
        delay.saturating_sub(self.last.elapsed())
    }
}

/// Identifies a change with its content.
pub(super) fn key(step: &Step) -> String {
    format!("{:?}", step.act)
}

pub(super) fn not_seen(write: &Write, error: ApiError) -> ProviderError {
    ProviderError::from(error).wrap(format!("{write} was accepted, and its effect is not seen"))
}

/// The reason why operations cannot be read.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<(Option<ProviderError>, bool)>);

impl Unreadable {
    pub(super) fn note(&self, error: ProviderError) {
        let mut noted = self.0.lock();
        if !noted.1 {
            noted.0.get_or_insert(error);
        }
    }

    /// The reason, the first time.
    pub(super) fn news(&self) -> Option<ProviderError> {
        let mut noted = self.0.lock();
        let error = noted.0.take()?;
        noted.1 = true;
        Some(error)
    }
}

pub(super) fn object(write: &Write) -> (Collection, String) {
    (write.operation.collection, write.name.clone())
}

pub(super) fn target(write: &Write) -> String {
    format!("{}{}", write.scope, write.name)
}

/// What the failure of an operation means.
#[derive(Debug, Clone)]
pub(super) enum Meant {
    Failure,
    /// Not if another object uses the target.
    UnlessUsed,
    /// Another object that uses the target does not go by itself.
    Lasting,
    /// Not if the quota is exhausted.
    UnlessFull,
    /// It may name instances that do not exist.
    Hosts(Vec<Host>),
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Failure;

    use super::super::step::{Act, Rank};
    use super::*;
    use crate::client::operation::TARGET_POOL_ADD;

    fn denied() -> ApiError {
        ApiError::new(
            TARGET_POOL_ADD,
            Failure { status: Some(403), message: "denied".to_owned(), ..Failure::default() },
        )
    }

    /// A change that fails at its end each time.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_never_seen_is_sent_ever_more_rarely_and_fails() {
        let (ongoing, step) = (Ongoing::default(), change());
        let note = |step: &Step| ongoing.note_unseen(&key(step), step.act.write(), denied());
        let look = |step: &Step| ongoing.look_again("a", [step].into_iter());
        let waits = async |wait| {
            assert_eq!(look(&step), Some(Duration::from_secs(wait)));
            assert!(matches!(ongoing.withheld(&key(&step)), Some(Ok(Written::Done))));
            tokio::time::advance(Duration::from_secs(wait)).await;
            assert!(ongoing.withheld(&key(&step)).is_none());
        };
        for wait in [10, 20, 40, 80] {
            note(&step).unwrap();
            waits(wait).await;
        }
        let text = note(&step).unwrap_err().to_string();
        assert!(text.contains("was accepted, and its effect is not seen"), "{text}");
        assert!(matches!(ongoing.withheld(&key(&step)), Some(Err(_))));
        // Once its effect is seen, the same change starts again.
        assert_eq!(ongoing.look_again("b", [].into_iter()), None);
        assert!(ongoing.withheld(&key(&step)).is_some());
        assert_eq!(ongoing.look_again("a", [].into_iter()), None);
        assert!(ongoing.withheld(&key(&step)).is_none());
        note(&step).unwrap();
    }

    fn change() -> Step {
        let write = Write::new(TARGET_POOL_ADD, crate::client::resource::Scope::region("us-central1"), "a");
        Step {
            items: [0].into(),
            is_shared: false,
            balancer: Some("a".to_owned()),
            rank: Rank::JoinPools,
            order: 0,
            part: ccm_kit::balancer::Part::of(ccm_kit::balancer::Kind::Members, "pool"),
            needs: &[],
            act: Act::Join { write, hosts: Vec::new(), has_others: true },
            verb: ccm_provider::Verb::Attach,
            kind: "Instances",
            id: "a".to_owned(),
            changes: Vec::new(),
            reason: "",
            risk: ccm_provider::Risk::None,
            restore: Vec::new(),
            releases: false,
        }
    }
}
