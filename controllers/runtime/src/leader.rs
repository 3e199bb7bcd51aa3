//! Whether this process may write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ccm_provider::{Clock, LeaderToken};
use tokio::sync::watch;

use crate::metrics::{Def, IntGaugeVec, Metrics};

/// The state of the process. It only changes in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Standby: watches and keeps its stores filled, writes nothing.
    Standby,
    /// May write until the given time unless the lease is renewed. `None`: no election, no limit.
    Leading {
        /// The time at which another process may take the lease.
        until: Option<Instant>,
    },
    /// Shutting down: work in flight may end, no new work begins.
    Draining {
        /// As in [`State::Leading`].
        until: Option<Instant>,
    },
    /// Another process may lead by now: nothing may be written any more.
    Lost,
}

impl State {
    /// One word, for metrics and `/debug/state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Leading { .. } => "leading",
            Self::Draining { .. } => "draining",
            Self::Lost => "lost",
        }
    }
}

/// A shared handle of the state; every write checks it.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: Arc<watch::Sender<State>>,
    /// The leadership that this one depends on.
    main: Option<Box<Self>>,
    clock: Arc<dyn Clock>,
}

fn may_write(state: State, now: Instant) -> bool {
    match state {
        State::Leading { until } | State::Draining { until } => until.is_none_or(|until| now < until),
        State::Standby | State::Lost => false,
    }
}

impl Leadership {
    /// Starts as a standby.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::new(watch::Sender::new(State::Standby)), main: None, clock }
    }

    /// Leadership for a part of the work, by a second lease or with one configuration: it ends with this one, too.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { main: Some(Box::new(self.clone())), ..Self::new(self.clock.clone()) }
    }

    /// The current state.
    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Enters or extends leadership. Has no effect after draining began or the lease was lost.
    pub fn lead(&self, for_at_most: Option<Duration>) {
        let until = for_at_most.map(|d| self.clock.now() + d);
        self.state.send_if_modified(|state| match state {
            State::Standby => {
                *state = State::Leading { until };
                true
            }
            // Waiters are only woken when the kind of state changes, not at each renewal.
            State::Leading { until: old } | State::Draining { until: old } => {
                *old = until;
                false
            }
            State::Lost => false,
        });
    }

    /// Forbids new work.
    pub fn drain(&self) {
        self.state.send_if_modified(|state| match *state {
            State::Leading { until } => {
                *state = State::Draining { until };
                true
            }
            State::Standby => {
                *state = State::Draining { until: Some(self.clock.now()) };
                true
            }
            State::Draining { .. } | State::Lost => false,
        });
    }

    /// Forbids every write.
    pub fn lose(&self) {
        self.state.send_if_modified(|state| std::mem::replace(state, State::Lost) != State::Lost);
    }

    /// Whether a write may start: leading or draining, and the lease has not expired by the local clock.
    pub fn may_write(&self) -> bool {
        may_write(self.state(), self.clock.now()) && self.main.as_ref().is_none_or(|main| main.may_write())
    }

    /// Whether new work may begin: leading, and no shutdown has begun.
    pub fn may_begin(&self) -> bool {
        matches!(self.state(), State::Leading { .. })
            && self.may_write()
            && self.main.as_ref().is_none_or(|main| main.may_begin())
    }

    /// The time for which the lease has been expired without being lost: a sign that renewal hangs.
    pub fn overdue(&self) -> Option<Duration> {
        match self.state() {
            State::Leading { until: Some(until) } | State::Draining { until: Some(until) } => {
                self.clock.now().checked_duration_since(until).filter(|late| !late.is_zero())
            }
            _ => None,
        }
    }

    /// The maximum time of a write that starts now, so that it ends before another process can take the lease: for
    /// writes that the next leader cannot foresee. `None` without election; zero if nothing may be written.
    pub fn left(&self) -> Option<Duration> {
        let own = match self.state() {
            State::Leading { until } | State::Draining { until } => {
                until.map(|until| until.saturating_duration_since(self.clock.now()))
            }
            State::Standby | State::Lost => Some(Duration::ZERO),
        };
        let main = self.main.as_ref().and_then(|main| main.left());
        own.into_iter().chain(main).min()
    }

    /// Waits until the process leads; false if it cannot lead any more.
    pub async fn leading(&self) -> bool {
        let mut states = self.state.subscribe();
        match states.wait_for(|state| *state != State::Standby).await {
            Ok(state) => matches!(*state, State::Leading { .. }),
            Err(_) => false,
        }
    }

    /// Waits until no new work may begin.
    pub async fn ended(&self) {
        self.any(|state| matches!(state, State::Draining { .. } | State::Lost)).await;
    }

    /// Runs a read and drops it (`None`) once no new work may begin: slow reads must not delay a shutdown.
    pub async fn until_ended<R>(&self, read: impl Future<Output = R>) -> Option<R> {
        tokio::select! {
            biased;
            () = self.ended() => None,
            answer = read => Some(answer),
        }
    }

    /// Waits until nothing may be written any more.
    pub async fn lost(&self) {
        self.any(|state| *state == State::Lost).await;
    }

    /// Waits until this leadership, or one that it depends on, is in a wanted state. The senders are in self, so
    /// waiting cannot fail.
    async fn any(&self, wanted: fn(&State) -> bool) {
        let mut own = self.state.subscribe();
        let Some(main) = &self.main else {
            drop(own.wait_for(wanted).await);
            return;
        };
        tokio::select! {
            _ = own.wait_for(wanted) => {}
            () = Box::pin(main.any(wanted)) => {}
        }
    }
}

#[async_trait]
impl LeaderToken for Leadership {
    fn is_leading(&self) -> bool {
        self.may_write()
    }

    async fn lost(&self) {
        self.ended().await;
    }
}

crate::metrics! {
    pub(crate) struct LeaseMetrics {
        state: IntGaugeVec = Def::gauge(
            "ccm_lease_state", &["state"], "1 for the state of this process: standby, leading, draining or lost; 0 for the others.",
        );
    }
}

impl Leadership {
    /// Exports the state as metrics.
    pub fn export(&self, registry: &Metrics) {
        let (leadership, gauge) = (self.clone(), registry.part::<LeaseMetrics>());
        registry.at_scrape("lease", move || {
            let now = leadership.state().as_str();
            for state in ["standby", "leading", "draining", "lost"] {
                gauge.state.with_label_values(&[state]).set(i64::from(state == now));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_renewed_ends_writes_by_the_local_clock() {
        let leadership = Leadership::new(Arc::new(SystemClock));
        assert!(!leadership.may_write());
        assert_eq!(leadership.left(), Some(Duration::ZERO));
        leadership.lead(Some(Duration::from_secs(15)));
        assert!(leadership.may_write());
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(leadership.may_write());
        assert_eq!(leadership.left(), Some(Duration::from_secs(1)));
        leadership.lead(Some(Duration::from_secs(15)));
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(leadership.may_write());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!leadership.may_write());
        assert_eq!(leadership.left(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_never_comes_back() {
        let leadership = Leadership::new(Arc::new(SystemClock));
        leadership.lead(None);
        leadership.lose();
        leadership.lead(None);
        leadership.drain();
        assert_eq!(leadership.state(), State::Lost);
        assert!(!leadership.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_lease_is_worth_nothing_without_the_first() {
        let main = Leadership::new(Arc::new(SystemClock));
        let second = main.part();
        main.lead(Some(Duration::from_secs(15)));
        assert!(!second.may_write());
        second.lead(None);
        assert!(second.may_write());
        assert_eq!(second.left(), Some(Duration::from_secs(15)));
        tokio::time::advance(Duration::from_secs(16)).await;
        assert!(!second.may_write() && main.overdue() == Some(Duration::from_secs(1)));
        main.lead(Some(Duration::from_secs(15)));
        assert!(second.may_write() && main.overdue().is_none());
        main.lose();
        second.ended().await;
        second.lost().await;
        assert!(!second.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_part_ends_with_each_of_them_and_ends_none() {
        let main = Leadership::new(Arc::new(SystemClock));
        main.lead(None);
        for level in 0..3 {
            let second = main.part();
            let part = second.part();
            second.lead(None);
            part.lead(None);
            assert!(part.may_write());
            if let Some(ended) = [&part, &second].get(level) {
                ended.lose();
                assert!(main.may_write() && second.may_write() == (level == 0));
            } else {
                main.lose();
            }
            part.ended().await;
            part.lost().await;
            assert!(!part.may_write());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_new_work_but_not_writes_in_flight() {
        let leadership = Leadership::new(Arc::new(SystemClock));
        leadership.lead(None);
        assert!(leadership.may_begin() && leadership.part().state() == State::Standby);
        let part = leadership.part();
        part.lead(None);
        assert!(part.may_begin());
        leadership.drain();
        leadership.ended().await;
        assert!(leadership.may_write() && part.may_write());
        assert!(!leadership.may_begin() && !part.may_begin());
        assert_eq!(leadership.left(), None);
    }

    #[test]
    fn exactly_one_state_of_the_lease_is_in_force() {
        let metrics = Metrics::new();
        let leadership = Leadership::new(Arc::new(SystemClock));
        leadership.export(&metrics);
        let state = |name: &str| metrics.sample(&format!("ccm_lease_state{{state=\"{name}\"}}"));
        assert_eq!(["standby", "leading", "draining", "lost"].map(state), [1.0, 0.0, 0.0, 0.0].map(Some));
        leadership.lead(None);
        assert_eq!(["standby", "leading", "draining", "lost"].map(state), [0.0, 1.0, 0.0, 0.0].map(Some));
        leadership.lose();
        assert_eq!(["standby", "leading", "draining", "lost"].map(state), [0.0, 0.0, 0.0, 1.0].map(Some));
    }
}
