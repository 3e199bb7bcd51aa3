//! When the operations of writes are looked at: not before Azure asks for it, and not before they usually end.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Pending;

/// The longest time after which the first look is due if Azure does not ask for a longer one.
const LONGEST: Duration = Duration::from_secs(5);
/// A new object is visible after this time.
const VISIBLE: Duration = Duration::from_secs(60);
/// An operation is forgotten after this time.
const KEPT: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ongoing: BTreeMap<String, Ongoing>,
    /// The time that operations of a kind of write take.
    usual: BTreeMap<String, Duration>,
}

#[derive(Debug)]
struct Ongoing {
    began: Instant,
    due: Instant,
    /// The pause that Azure has asked for.
    delay: Duration,
    /// The age at which it was last seen to go on.
    went_on: Option<Duration>,
}

impl Looks {
    pub(super) fn begins(&self, pending: &Pending, delay: Duration) {
        let mut state = self.0.lock();
        let now = Instant::now();
        state.ongoing.retain(|_, ongoing| ongoing.began.elapsed() < KEPT);
        let usual = state.usual.get(&pending.request).copied().unwrap_or_default();
        let ongoing = Ongoing { began: now, due: now + delay.max(usual), delay, went_on: None };
        state.ongoing.insert(pending.to_string(), ongoing);
    }

    pub(super) fn is_early(&self, pending: &Pending) -> bool {
        self.0.lock().ongoing.get(&pending.to_string()).is_some_and(|ongoing| Instant::now() < ongoing.due)
    }

    /// Whether reads may not show the object yet. An operation of another process is old.
    pub(super) fn is_new(&self, pending: &Pending) -> bool {
        self.0.lock().ongoing.get(&pending.to_string()).is_some_and(|ongoing| ongoing.began.elapsed() < VISIBLE)
    }

    /// The operation goes on; `delay` is the pause that the answer asks for, if it shows the operation.
    pub(super) fn goes_on(&self, pending: &Pending, delay: Option<Duration>) {
        if let Some(ongoing) = self.0.lock().ongoing.get_mut(&pending.to_string()) {
            ongoing.delay = delay.unwrap_or(ongoing.delay);
            ongoing.due = Instant::now() + ongoing.delay;
            ongoing.went_on = Some(ongoing.began.elapsed());
        }
    }

    /// The operation has ended, some time since it was seen to go on. If it never was, its kind may be faster.
    pub(super) fn ended(&self, pending: &Pending) {
        let mut state = self.0.lock();
        let Some(ongoing) = state.ongoing.remove(&pending.to_string()) else { return };
        let usual = state.usual.entry(pending.request.clone()).or_default();
        *usual = match ongoing.went_on {
            Some(age) => ((age + ongoing.began.elapsed()) / 2).min(LONGEST),
            None => *usual * 3 / 4,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::ArmId;
    use super::super::pending::Watch;
    use super::*;

    fn pending(name: &str, request: &str) -> Pending {
        let id = ArmId::new("s", "g", "Microsoft.Network/loadBalancers", name);
        Pending { request: request.to_owned(), id, watch: Watch::Object }
    }

    async fn after(looks: &Looks, pending: &Pending) -> Duration {
        let began = Instant::now();
        while looks.is_early(pending) {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_look_is_when_such_operations_usually_end() {
        let looks = Looks::default();
        let seconds = Duration::from_secs_f64;
        let (one, two) = (pending("one", "put"), pending("two", "put"));
        looks.begins(&one, Duration::ZERO);
        assert_eq!(after(&looks, &one).await, Duration::ZERO);
        tokio::time::advance(seconds(1.5)).await;
        looks.goes_on(&one, None);
        tokio::time::advance(seconds(1.0)).await;
        looks.ended(&one);
        looks.begins(&two, Duration::ZERO);
        assert_eq!(after(&looks, &two).await, seconds(2.0));
        looks.ended(&two);
        looks.begins(&two, Duration::ZERO);
        assert_eq!(after(&looks, &two).await, seconds(1.5), "it may be faster");
        let other = pending("one", "delete");
        looks.begins(&other, Duration::ZERO);
        assert_eq!(after(&looks, &other).await, Duration::ZERO);
        looks.goes_on(&two, None);
        tokio::time::advance(seconds(60.0)).await;
        looks.ended(&two);
        looks.begins(&two, Duration::ZERO);
        assert_eq!(after(&looks, &two).await, LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_may_be_hidden_for_a_minute_after_its_write() {
        let looks = Looks::default();
        let one = pending("one", "put");
        assert!(!looks.is_new(&one), "of another process");
        looks.begins(&one, Duration::ZERO);
        assert!(looks.is_new(&one));
        tokio::time::advance(VISIBLE).await;
        looks.goes_on(&one, None);
        assert!(!looks.is_new(&one));
    }

    #[tokio::test(start_paused = true)]
    async fn no_look_is_before_azure_asks_for_it() {
        let looks = Looks::default();
        let seconds = Duration::from_secs;
        let one = pending("one", "put");
        looks.begins(&one, seconds(10));
        assert_eq!(after(&looks, &one).await, seconds(10));
        looks.goes_on(&one, None);
        assert_eq!(after(&looks, &one).await, seconds(10), "the object does not say it again");
        looks.goes_on(&one, Some(seconds(3)));
        assert_eq!(after(&looks, &one).await, seconds(3));
        looks.ended(&one);
        assert_eq!(after(&looks, &one).await, Duration::ZERO);
    }
}
