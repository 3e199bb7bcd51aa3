//! The work queue: client-go's semantics, and `take_ready`, which hands out all waiting keys at once.
//!
//! * A waiting key is not added twice, also while the runner holds it for a slot or its groups (`begin`).
//! * A key is never processed twice at the same time; if it is added meanwhile, it is handed out again after
//!   [`Queue::done`].
//! * A delayed add keeps the earliest due time. It is cancelled if the key is handed out earlier, unlike in client-go:
//!   that sync sees the current state, and requests another one if needed.
//! * Failures are counted per key and decide the delay of the next try.
//! * After [`Queue::shut_down`] no key is handed out; running work may finish.
//!
//! Source: `kubernetes/client-go` `util/workqueue`.

mod metrics;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ccm_provider::Clock;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limit::{Limiter, Rate};
use crate::metrics::Metrics;
pub(crate) use metrics::Families;
pub use metrics::QueueState;
use metrics::{QueueMetrics, QueueTimes};

/// A key that can be queued.
pub trait Key: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> Key for T {}

/// The delays of keys that failed.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    /// Delay after the first failure; doubles with each.
    pub base: Duration,
    /// Longest delay.
    pub max: Duration,
    /// Tokens per second and burst that all retries of the queue share, if any.
    pub bucket: Option<Rate>,
}

impl RateLimit {
    /// client-go's default: 5 ms doubling to 1000 s, and at most 10 retries a second, 100 in a burst.
    pub const DEFAULT: Self = Self {
        base: Duration::from_millis(5),
        max: Duration::from_secs(1000),
        bucket: Some(Rate { qps: 10.0, burst: 100 }),
    };

    /// The delay after `failures` earlier failures, with this share of the longest jitter.
    fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
        let delay = self.base.checked_mul(factor).map_or(self.max, |delay| delay.min(self.max));
        delay + delay.mul_f64(JITTER * jitter.clamp(0.0, 1.0))
    }
}

/// The longest jitter, as a share of the delay: keys that failed together are not all retried at the same moment. Never
/// earlier than client-go.
const JITTER: f64 = 0.2;

/// A queue of keys.
pub struct Queue<K: Key> {
    state: Mutex<State<K>>,
    changed: Notify,
    limit: RateLimit,
    bucket: Option<Limiter>,
    /// The source of the jitter; `None`: none.
    clock: Option<Arc<dyn Clock>>,
    metrics: QueueMetrics,
}

struct State<K> {
    ready: VecDeque<K>,
    dirty: HashSet<K>,
    /// Keys that are handed out, each with the begin of its work.
    processing: HashMap<K, Option<Instant>>,
    /// The number of those whose work has not begun.
    taken: usize,
    waiting: BTreeMap<(Instant, u64), K>,
    due: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    added: HashMap<K, Instant>,
    sequence: u64,
    closed: bool,
}

impl<K: Key> QueueTimes for Queue<K> {
    fn running(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let state = self.lock();
        let times = state.processing.values().flatten().map(|since| now.saturating_duration_since(*since));
        times.fold((Duration::ZERO, Duration::ZERO), |(sum, max), time| (sum + time, max.max(time)))
    }

    fn oldest(&self) -> Duration {
        let now = Instant::now();
        let state = self.lock();
        let taken = state.processing.iter().filter(|(_, begin)| begin.is_none()).map(|(key, _)| key);
        let since = state.ready.iter().chain(taken).filter_map(|key| state.added.get(key)).min();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(*since))
    }

    fn sizes(&self) -> (usize, usize, usize) {
        Self::sizes(self)
    }
}

impl<K: Key> Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Queue")
            .field("ready", &state.ready.len())
            .field("processing", &state.processing.len())
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

impl<K: Key> Queue<K> {
    /// An empty queue without jitter; `name` is the label of its metrics.
    pub fn new(name: &str, limit: RateLimit, metrics: &Metrics) -> Arc<Self> {
        Self::of(name, limit, None, metrics)
    }

    /// An empty queue whose retries the clock spreads.
    pub fn with_jitter(name: &str, limit: RateLimit, clock: Arc<dyn Clock>, metrics: &Metrics) -> Arc<Self> {
        Self::of(name, limit, Some(clock), metrics)
    }

    fn of(name: &str, limit: RateLimit, clock: Option<Arc<dyn Clock>>, metrics: &Metrics) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashSet::new(),
                processing: HashMap::new(),
                taken: 0,
                waiting: BTreeMap::new(),
                due: HashMap::new(),
                failures: HashMap::new(),
                added: HashMap::new(),
                sequence: 0,
                closed: false,
            }),
            changed: Notify::new(),
            limit,
            bucket: limit.bucket.map(|rate| Limiter::new(rate, Instant::now().into_std())),
            clock,
            metrics: QueueMetrics::new(metrics, name, me.clone()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// Adds a key now. Has no effect if the key is already waiting or the queue is shut down.
    pub fn add(&self, key: K) {
        let mut state = self.lock();
        self.add_locked(&mut state, key);
        drop(state);
        self.changed.notify_waiters();
    }

    fn add_locked(&self, state: &mut State<K>, key: K) {
        if state.closed || !state.dirty.insert(key.clone()) {
            return;
        }
        self.metrics.adds.inc();
        state.added.insert(key.clone(), Instant::now());
        if !state.processing.contains_key(&key) {
            state.ready.push_back(key);
            self.depth(state);
        }
    }

    fn depth(&self, state: &State<K>) {
        self.metrics.depth.set(i64::try_from(state.ready.len() + state.taken).unwrap_or(i64::MAX));
    }

    /// Adds a key after a delay, as a retry. Of several delays, the earliest applies.
    pub fn add_after(&self, key: K, delay: Duration) {
        if !delay.is_zero() {
            self.metrics.retries.inc();
        }
        self.add_soon(key, delay);
    }

    /// Adds a key after a delay in which more changes may come: no retry.
    pub fn add_soon(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let at = Instant::now() + delay;
        if let Some(old) = state.due.get(&key).copied() {
            if old.0 <= at {
                return;
            }
            state.waiting.remove(&old);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.waiting.insert(slot, key.clone());
        state.due.insert(key, slot);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Counts a failure of the key and adds it after the delay that follows from the count. Returns the delay.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        self.add_rate_limited_within(key, Duration::MAX)
    }

    /// The same with a shorter longest delay.
    pub fn add_rate_limited_within(&self, key: K, max: Duration) -> Duration {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        let before = *failures;
        *failures = failures.saturating_add(1);
        drop(state);
        let limit = RateLimit { max: self.limit.max.min(max), ..self.limit };
        self.add_after_failures(key, before, limit)
    }

    /// Adds a key after the delay of a first failure, and counts none: for events whose rate is limited.
    pub fn add_limited(&self, key: K) {
        self.add_after_failures(key, 0, self.limit);
    }

    fn add_after_failures(&self, key: K, failures: u32, limit: RateLimit) -> Duration {
        let own = limit.delay(failures, self.clock.as_ref().map_or(0.0, |clock| clock.jitter()));
        let now = Instant::now().into_std();
        let shared = self.bucket.as_ref().and_then(|bucket| bucket.reserve(now, Duration::MAX));
        let delay = own.max(shared.unwrap_or_default());
        self.add_after(key, delay);
        delay
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// The number of failures of the key since they were last forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Waits for at least one key and takes all that are ready, at most `max`. Each must be marked with
    /// [`Queue::done`]. `None` once the queue is shut down.
    pub async fn take_ready(&self, max: usize) -> Option<Vec<K>> {
        let keys = self.take_early(max).await?;
        self.begin(&keys);
        Some(keys)
    }

    /// The same, but the keys still count as waiting until [`Queue::begin`].
    pub(crate) async fn take_early(&self, max: usize) -> Option<Vec<K>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no added key is missed.
            changed.as_mut().enable();
            let next = {
                let mut state = self.lock();
                self.promote(&mut state);
                if state.closed {
                    return None;
                }
                if !state.ready.is_empty() {
                    return Some(self.hand_out(&mut state, max));
                }
                state.waiting.keys().next().map(|(at, _)| *at)
            };
            match next {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    fn promote(&self, state: &mut State<K>) {
        let now = Instant::now();
        while let Some(entry) = state.waiting.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            state.due.remove(&key);
            self.add_locked(state, key);
        }
    }

    fn hand_out(&self, state: &mut State<K>, max: usize) -> Vec<K> {
        let count = state.ready.len().min(max.max(1));
        let keys: Vec<K> = state.ready.drain(..count).collect();
        state.processing.extend(keys.iter().map(|key| (key.clone(), None)));
        state.taken += count;
        keys
    }

    /// Marks the begin of the work on keys that were taken early. It sees all changes before, and none after.
    pub(crate) fn begin(&self, keys: &[K]) {
        let (mut state, now) = (self.lock(), Instant::now());
        let state = &mut *state;
        for key in keys {
            let Some(begin @ None) = state.processing.get_mut(key) else { continue };
            *begin = Some(now);
            state.taken -= 1;
            state.dirty.remove(key);
            if let Some(slot) = state.due.remove(key) {
                state.waiting.remove(&slot);
            }
            if let Some(since) = state.added.remove(key) {
                self.metrics.waited.observe(now.saturating_duration_since(since).as_secs_f64());
            }
        }
        self.depth(state);
    }

    /// Marks a key as done. If it was added meanwhile, it is ready again.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        match state.processing.remove(key) {
            Some(Some(since)) => self.metrics.worked.observe(since.elapsed().as_secs_f64()),
            // Its work has failed before it began.
            Some(None) => {
                state.taken -= 1;
                state.dirty.remove(key);
                state.added.remove(key);
            }
            None => {}
        }
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
        }
        self.depth(&state);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Hands out no more keys and drops the waiting ones.
    pub fn shut_down(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.ready.clear();
        state.waiting.clear();
        state.due.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Keys ready, in progress, and waiting for a delay to pass.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.ready.len() + state.taken, state.processing.len() - state.taken, state.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };

    fn queue(limit: RateLimit) -> Arc<Queue<&'static str>> {
        Queue::new("test", limit, &Metrics::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_key_is_not_added_twice() {
        let q = queue(LIMIT);
        q.add("a");
        q.add("b");
        q.add("a");
        assert_eq!(q.take_ready(10).await, Some(vec!["a", "b"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_in_work_is_handed_out_again_only_after_done() {
        let q = queue(LIMIT);
        q.add("a");
        assert_eq!(q.take_ready(10).await, Some(vec!["a"]));
        q.add("a");
        assert_eq!(q.sizes(), (0, 1, 0));
        assert!(tokio::time::timeout(Duration::from_secs(1), q.take_ready(10)).await.is_err());
        q.done(&"a");
        assert_eq!(q.take_ready(10).await, Some(vec!["a"]));
        q.done(&"a");
        assert_eq!(q.sizes(), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn take_ready_hands_out_all_at_once_up_to_the_maximum() {
        let q = queue(LIMIT);
        for key in ["a", "b", "c"] {
            q.add(key);
        }
        assert_eq!(q.take_ready(2).await, Some(vec!["a", "b"]));
        assert_eq!(q.take_ready(2).await, Some(vec!["c"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_add_keeps_the_earliest_time() {
        let q = queue(LIMIT);
        let start = Instant::now();
        q.add_after("a", Duration::from_secs(10));
        q.add_after("a", Duration::from_secs(3));
        q.add_after("a", Duration::from_secs(20));
        assert_eq!(q.take_ready(1).await, Some(vec!["a"]));
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        q.done(&"a");
        assert!(tokio::time::timeout(Duration::from_secs(60), q.take_ready(1)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_up_to_the_maximum_and_are_forgotten() {
        let q = queue(LIMIT);
        let delays: Vec<u64> = (0..8)
            .map(|_| {
                q.lock().waiting.clear();
                q.lock().due.clear();
                q.add_rate_limited("a").as_secs()
            })
            .collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(q.failures(&"a"), 8);
        q.forget(&"a");
        assert_eq!(q.failures(&"a"), 0);
        // Each key has its own count.
        assert_eq!(q.add_rate_limited("b").as_secs(), 5);
    }

    /// A clock with this jitter.
    #[derive(Debug)]
    struct Jittery(f64);

    impl Clock for Jittery {
        fn now(&self) -> std::time::Instant {
            Instant::now().into_std()
        }
        fn wall(&self) -> std::time::SystemTime {
            std::time::SystemTime::UNIX_EPOCH
        }
        fn jitter(&self) -> f64 {
            self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_spread_by_up_to_a_fifth_and_never_come_early() {
        for (jitter, delays) in [(0.0, [5.0, 10.0, 20.0]), (0.5, [5.5, 11.0, 22.0]), (1.0, [6.0, 12.0, 24.0])] {
            let q = Queue::with_jitter("jitter", LIMIT, Arc::new(Jittery(jitter)), &Metrics::new());
            let taken: Vec<f64> = (0..3)
                .map(|_| {
                    q.lock().waiting.clear();
                    q.lock().due.clear();
                    q.add_rate_limited("a").as_secs_f64()
                })
                .collect();
            assert_eq!(taken, delays);
        }
        let shares: Vec<f64> = (0..100).map(|_| crate::clock::JitteryClock.jitter()).collect();
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(shares.iter().any(|share| *share != shares[0]), "the clock of the process has jitter");
    }

    #[tokio::test(start_paused = true)]
    async fn the_shared_bucket_slows_retries_after_the_burst() {
        let q: Arc<Queue<u32>> = Queue::new("bucket", RateLimit::DEFAULT, &Metrics::new());
        let delays: Vec<Duration> = (0..120).map(|key| q.add_rate_limited(key)).collect();
        assert_eq!(delays[99], Duration::from_millis(5));
        assert_eq!(delays[119].as_millis(), 2000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_shut_down_no_key_is_handed_out_and_running_work_may_end() {
        let q = queue(LIMIT);
        q.add("a");
        q.add("b");
        assert_eq!(q.take_ready(1).await, Some(vec!["a"]));
        q.shut_down();
        assert_eq!(q.take_ready(1).await, None);
        assert_eq!(q.sizes(), (0, 1, 0));
        q.done(&"a");
        assert_eq!(q.sizes(), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_taker_wakes_when_a_key_comes() {
        let q = queue(LIMIT);
        let taker = tokio::spawn({
            let q = q.clone();
            async move { q.take_ready(1).await }
        });
        tokio::task::yield_now().await;
        q.add("a");
        assert_eq!(taker.await.unwrap(), Some(vec!["a"]));
    }
}
