//! API server responses, cached for some seconds; concurrent requests for the same response share one review.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// The key of a review, hashed with a secret of this process: memory contains neither tokens nor user input, and a
/// client cannot construct colliding keys.
pub(super) type Key = [u8; 32];

pub(super) struct Hasher(hmac::Key);

impl Hasher {
    pub(super) fn new() -> Self {
        let random: [u8; 32] = rand::random();
        Self(hmac::Key::new(hmac::HMAC_SHA256, &random))
    }

    pub(super) fn key(&self, question: &[u8]) -> Key {
        let mut key = Key::default();
        let tag = hmac::sign(&self.0, question);
        key.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        key
    }
}

/// A response and the time for which it may be cached; an error is not cached.
pub(super) type Asked<V> = Result<(V, Duration), String>;
type Waiting<V> = Shared<BoxFuture<'static, Result<V, String>>>;

/// The maximum number of requests that wait for a response. Each has a head of up to 64 KiB and continues after its
/// client disconnects: without a limit, a flood of different tokens would exhaust the memory.
const WAITING: usize = 256;

/// Bounded; evicts the oldest entry.
pub(super) struct Cache<V> {
    inner: Arc<Mutex<Inner<V>>>,
    places: Arc<Semaphore>,
}

struct Inner<V> {
    capacity: usize,
    entries: HashMap<Key, (Instant, V)>,
    order: VecDeque<(Instant, Key)>,
    asked: HashMap<Key, Waiting<V>>,
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let inner = Inner { capacity, entries: HashMap::new(), order: VecDeque::new(), asked: HashMap::new() };
        Self { inner: Arc::new(Mutex::new(inner)), places: Arc::new(Semaphore::new(WAITING)) }
    }

    /// The cached response, or that of `ask`. Concurrent callers with the same key share one response. The review
    /// continues when its callers are dropped. If too many requests are waiting, returns an error at once.
    pub(super) async fn get(&self, key: Key, ask: impl FnOnce() -> BoxFuture<'static, Asked<V>>) -> Result<V, String> {
        let (waiting, _place) = {
            let mut inner = self.inner.lock();
            if let Some(kept) = inner.kept(&key) {
                return Ok(kept);
            }
            let place = self.places.clone().try_acquire_owned();
            let place = place.map_err(|_| "too many requests are waiting for answers of the API server".to_owned())?;
            match inner.asked.get(&key) {
                Some(waiting) => (waiting.clone(), Some(place)),
                None => {
                    let waiting = self.ask(key, ask(), place);
                    inner.asked.insert(key, waiting.clone());
                    (waiting, None)
                }
            }
        };
        waiting.await
    }

    fn ask(&self, key: Key, question: BoxFuture<'static, Asked<V>>, place: OwnedSemaphorePermit) -> Waiting<V> {
        let inner = self.inner.clone();
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let _place = place;
            // A panic must not leave an entry that never gets a response.
            let asked = std::panic::AssertUnwindSafe(question).catch_unwind().await;
            let asked = asked.unwrap_or_else(|_| Err("the review ended unexpectedly".into()));
            let mut inner = inner.lock();
            inner.asked.remove(&key);
            if let Ok((value, ttl)) = &asked {
                inner.keep(key, value.clone(), *ttl);
            }
            // The receivers may have been dropped.
            drop(sender.send(asked.map(|(value, _)| value)));
        });
        async move { receiver.await.unwrap_or_else(|_| Err("the review was dropped".into())) }.boxed().shared()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }
}

impl<V: Clone> Inner<V> {
    fn kept(&self, key: &Key) -> Option<V> {
        let (until, value) = self.entries.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn keep(&mut self, key: Key, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        while let Some((until, old)) = self.order.front().copied()
            && (until <= now || self.order.len() >= self.capacity)
        {
            self.order.pop_front();
            // The key may have been inserted again since.
            if self.entries.get(&old).is_some_and(|(current, _)| *current == until) {
                self.entries.remove(&old);
            }
        }
        self.entries.insert(key, (now + ttl, value));
        self.order.push_back((now + ttl, key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::watch;

    use super::*;

    const TTL: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(20);

    fn answer(calls: &Arc<AtomicUsize>, value: Asked<u32>) -> BoxFuture<'static, Asked<u32>> {
        let calls = calls.clone();
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            value
        }
        .boxed()
    }

    #[tokio::test]
    async fn an_answer_is_kept_for_its_time_and_an_error_is_not() {
        let (cache, calls) = (Cache::new(8), Arc::new(AtomicUsize::new(0)));
        let key = Hasher::new().key(b"x");
        assert_eq!(cache.get(key, || answer(&calls, Err("no".into()))).await, Err("no".into()));
        assert_eq!(cache.get(key, || answer(&calls, Ok((1, SHORT)))).await, Ok(1));
        tokio::time::sleep(SHORT).await;
        assert_eq!(cache.get(key, || answer(&calls, Ok((3, Duration::ZERO)))).await, Ok(3));
        assert_eq!(cache.get(key, || answer(&calls, Ok((4, TTL)))).await, Ok(4));
        assert_eq!(cache.get(key, || answer(&calls, Ok((5, TTL)))).await, Ok(4));
        assert_eq!(calls.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn equal_requests_share_one_review_that_outlives_its_caller() {
        let (cache, calls) = (Arc::new(Cache::new(8)), Arc::new(AtomicUsize::new(0)));
        let key = Hasher::new().key(b"x");
        let first = tokio::spawn({
            let (cache, calls) = (cache.clone(), calls.clone());
            async move { cache.get(key, || answer(&calls, Ok((7, TTL)))).await }
        });
        tokio::task::yield_now().await;
        first.abort();
        let all = (0..20).map(|_| cache.get(key, || answer(&calls, Ok((8, TTL)))));
        assert!(futures::future::join_all(all).await.into_iter().all(|got| got == Ok(7)));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_and_forgets_the_oldest() {
        let (cache, calls) = (Cache::new(4), Arc::new(AtomicUsize::new(0)));
        let hasher = Hasher::new();
        for number in 0..100_u32 {
            let key = hasher.key(&number.to_be_bytes());
            cache.get(key, || answer(&calls, Ok((number, Duration::from_secs(1000))))).await.unwrap();
            assert!(cache.len() <= 4);
        }
        let last = hasher.key(&99_u32.to_be_bytes());
        assert_eq!(cache.get(last, || answer(&calls, Ok((0, TTL)))).await, Ok(99));
        assert_eq!(calls.load(Ordering::SeqCst), 100);
    }

    #[tokio::test]
    async fn reviews_without_waiting_callers_are_bounded_too() {
        let (cache, hasher) = (Cache::<u32>::new(4), Hasher::new());
        let (open, gate) = watch::channel(());
        let ask = |number: u32| {
            let mut gate = gate.clone();
            let question = async move {
                drop(gate.changed().await);
                Ok((number, TTL))
            };
            cache.get(hasher.key(&number.to_be_bytes()), || question.boxed())
        };
        let mut refused = 0;
        for number in 0..10_000 {
            // Like a client that cancels its request at once.
            refused += usize::from(ask(number).now_or_never().is_some_and(|answer| answer.is_err()));
        }
        assert_eq!(cache.inner.lock().asked.len(), WAITING);
        assert_eq!(refused, 10_000 - WAITING);
        open.send_replace(());
        while !cache.inner.lock().asked.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(open);
        assert_eq!(ask(10_000).await, Ok(10_000));
    }

    #[tokio::test]
    async fn a_question_that_panics_is_an_error_for_all_and_can_be_asked_again() {
        let (cache, calls) = (Cache::new(4), Arc::new(AtomicUsize::new(0)));
        let key = Hasher::new().key(b"x");
        assert!(cache.get(key, || async { panic!("oops") }.boxed()).await.is_err());
        assert_eq!(cache.get(key, || answer(&calls, Ok((1, TTL)))).await, Ok(1));
    }
}
