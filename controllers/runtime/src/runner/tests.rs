use std::sync::atomic::{AtomicUsize, Ordering};

use ccm_provider::ProviderError;
use parking_lot::Mutex;

use super::*;
use crate::clock::SystemClock;
use crate::queue::RateLimit;

type Log = Mutex<Vec<Vec<u32>>>;

/// Groups keys by their tens, and those above 1000 also by their thousands. 13 panics once, 6 cannot be observed in
/// time, 99 has no group at first. At most five keys of a group are processed together.
#[derive(Default)]
struct Model {
    observed: Log,
    groups: Log,
    at_work: AtomicUsize,
    most: AtomicUsize,
    panicked: AtomicUsize,
}

#[async_trait]
impl Reconciler for Model {
    type Key = u32;
    type Observed = ();
    type Group = u32;
    fn name(&self) -> &'static str {
        "model"
    }
    fn groups(&self, key: &u32) -> BTreeSet<u32> {
        assert!(*key != 99 || self.panicked.fetch_add(1, Ordering::SeqCst) > 0, "no group yet");
        if *key >= 1000 { [key % 1000 / 10, key / 1000].into() } else { [key / 10].into() }
    }
    fn most_together(&self) -> usize {
        5
    }
    async fn observe(&self, keys: &[u32]) -> Vec<Result<(), SyncError>> {
        self.observed.lock().push(keys.to_vec());
        if keys.contains(&6) {
            std::future::pending::<()>().await;
        }
        keys.iter().map(|_| Ok(())).collect()
    }
    async fn reconcile(&self, work: Vec<(u32, ())>) -> Vec<(u32, Result<Outcome, SyncError>)> {
        let now = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        let keys: Vec<u32> = work.iter().map(|(key, ())| *key).collect();
        self.groups.lock().push(keys.clone());
        if keys.contains(&13) && self.panicked.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("thirteen");
        }
        keys.into_iter().map(|key| (key, Ok(Outcome::Done))).collect()
    }
}

fn start(groups: usize) -> (Arc<Model>, Arc<Queue<u32>>, Leadership, tokio::task::JoinHandle<()>) {
    let metrics = Metrics::new();
    let limit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };
    let queue = Queue::new("model", limit, &metrics);
    let leadership = Leadership::new(Arc::new(SystemClock));
    leadership.lead(None);
    let model = Arc::new(Model::default());
    let limits = Limits { batch: 1000, groups };
    let task = tokio::spawn(run(model.clone(), queue.clone(), limits, leadership.clone(), metrics));
    (model, queue, leadership, task)
}

#[tokio::test(start_paused = true)]
async fn all_waiting_keys_are_observed_in_one_call_and_grouped() {
    let (model, queue, _leadership, _task) = start(100);
    for key in [1, 2, 11, 12, 21] {
        queue.add(key);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(*model.observed.lock(), [[1, 2, 11, 12, 21]]);
    let mut groups = model.groups.lock().clone();
    groups.sort();
    assert_eq!(groups, [vec![1, 2], vec![11, 12], vec![21]]);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_never_worked_on_twice_at_once_and_waiting_keys_are_joined() {
    let (model, queue, _leadership, _task) = start(100);
    queue.add(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    for key in [2, 3, 4] {
        queue.add(key);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(*model.groups.lock(), [vec![1], vec![2, 3, 4]]);
    assert_eq!(model.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_keys_of_a_large_group_do_not_wait_for_the_last() {
    let (model, queue, _leadership, _task) = start(100);
    for key in 70..80 {
        queue.add(key);
    }
    queue.add(81);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    queue.add(71);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let groups = model.groups.lock().clone();
    let of_seventy: Vec<&Vec<u32>> = groups.iter().filter(|keys| keys[0] < 80).collect();
    assert_eq!(of_seventy, [&vec![70, 71, 72, 73, 74], &vec![75, 76, 77, 78, 79], &vec![71]]);
    assert_eq!(groups.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_two_groups_is_worked_on_beside_neither() {
    let (model, queue, _leadership, _task) = start(100);
    for key in [11, 2013, 21] {
        queue.add(key);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*model.groups.lock(), [vec![11], vec![21], vec![2013]]);
    for key in [2013, 11, 21, 2014] {
        queue.add(key);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let groups = model.groups.lock().split_off(3);
    assert_eq!(groups[0], [2013, 2014]);
    assert_eq!(groups.len(), 3, "{groups:?}");
}

#[test]
fn an_invalid_error_of_the_provider_follows_the_back_off_of_the_queue() {
    let invalid = ErrorClass::Invalid { findings: Vec::new() };
    let error = SyncError::provider("", &ProviderError::new(invalid, "no such certificate"));
    assert!(matches!(error, SyncError::Provider { after: None, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_groups_than_allowed_are_in_progress() {
    let (model, queue, _leadership, _task) = start(3);
    for key in 0..20 {
        queue.add(key * 10);
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(model.groups.lock().len(), 20);
    assert_eq!(model.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_retried_and_does_not_affect_others() {
    let (model, queue, _leadership, _task) = start(100);
    queue.add(13);
    queue.add(21);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(*model.groups.lock(), [vec![13], vec![21], vec![13]]);
    assert_eq!(queue.failures(&13), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_over_the_group_of_a_key_ends_no_controller() {
    let (model, queue, _leadership, _task) = start(100);
    queue.add(99);
    queue.add(21);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(*model.groups.lock(), [vec![21]]);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(*model.groups.lock(), [vec![21], vec![99]]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_holds_up_no_shutdown() {
    let (model, queue, leadership, task) = start(100);
    queue.add(6);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(model.observed.lock().len(), 1);
    leadership.drain();
    queue.shut_down();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutting_down_waits_for_work_in_progress() {
    let (model, queue, leadership, task) = start(100);
    queue.add(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    leadership.drain();
    queue.shut_down();
    task.await.unwrap();
    assert_eq!(model.groups.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_begins_nothing_that_waits_for_a_slot() {
    let (model, queue, leadership, task) = start(1);
    for key in [1, 11, 21] {
        queue.add(key);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    leadership.drain();
    queue.shut_down();
    task.await.unwrap();
    assert_eq!(*model.groups.lock(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_work_in_progress() {
    let (model, queue, leadership, task) = start(100);
    queue.add(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    queue.shut_down();
    leadership.lose();
    task.await.unwrap();
    assert!(model.groups.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn periods_count_from_start_or_end_and_survive_a_panic() {
    for (pace, expected) in [(Pace::FromStart, [0, 10, 20]), (Pace::FromEnd, [0, 13, 26])] {
        let leadership = Leadership::new(Arc::new(SystemClock));
        leadership.lead(None);
        let began = Instant::now();
        let log = Arc::new(Mutex::new(Vec::new()));
        let pass = {
            let log = log.clone();
            move || {
                let log = log.clone();
                async move {
                    let run = {
                        let mut log = log.lock();
                        log.push(began.elapsed().as_secs());
                        log.len()
                    };
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    assert!(run != 1, "the first run panics");
                }
            }
        };
        let ten = Duration::from_secs(10);
        let task = tokio::spawn(periodically("test", ten, pace, leadership.clone(), Metrics::new(), pass));
        tokio::time::sleep(Duration::from_secs(30)).await;
        leadership.drain();
        task.await.unwrap();
        assert_eq!(log.lock()[..3], expected);
    }
}

/// Hangs for key 1, and panics outside of its work for key 2, once. Its state is read when the work begins.
#[derive(Default)]
struct Odd {
    state: AtomicUsize,
    panicked: AtomicUsize,
    synced: Mutex<Vec<(u32, usize)>>,
}

#[async_trait]
impl Reconciler for Odd {
    type Key = u32;
    type Observed = usize;
    type Group = u32;
    fn name(&self) -> &'static str {
        "odd"
    }
    fn groups(&self, key: &u32) -> BTreeSet<u32> {
        [*key].into()
    }
    fn longest_delay(&self, key: &u32) -> Duration {
        if *key == 6 { Duration::from_secs(30) } else { Duration::MAX }
    }
    fn subject(&self, key: &u32) -> String {
        assert!(*key != 2 || self.panicked.fetch_add(1, Ordering::SeqCst) > 0, "two has no name");
        key.to_string()
    }
    fn reads_stores(&self) -> bool {
        true
    }
    async fn observe(&self, keys: &[u32]) -> Vec<Result<usize, SyncError>> {
        keys.iter().map(|_| Ok(self.state.load(Ordering::SeqCst))).collect()
    }
    async fn reconcile(&self, work: Vec<(u32, usize)>) -> Vec<(u32, Result<Outcome, SyncError>)> {
        if work.iter().any(|(key, _)| *key == 1) {
            std::future::pending::<()>().await;
        }
        self.synced.lock().extend(&work);
        let answer = |key| if key % 2 == 0 { Err(SyncError::Retry("even".into())) } else { Ok(Outcome::Done) };
        work.into_iter().map(|(key, _)| (key, answer(key))).collect()
    }
}

fn odd() -> (Arc<Odd>, Arc<Queue<u32>>, Metrics, tokio::task::JoinHandle<()>) {
    let metrics = Metrics::new();
    let limit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };
    let queue = Queue::new("odd", limit, &metrics);
    let leadership = Leadership::new(Arc::new(SystemClock));
    leadership.lead(None);
    let odd = Arc::new(Odd::default());
    let limits = Limits { batch: 1000, groups: 1 };
    let task = tokio::spawn(run(odd.clone(), queue.clone(), limits, leadership, metrics.clone()));
    (odd, queue, metrics, task)
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_hangs_gives_its_slot_back_and_the_next_one_sees_the_state_of_its_own_begin() {
    let (odd, queue, _metrics, _task) = odd();
    queue.add(1);
    queue.add(7);
    tokio::time::sleep(slot::AT_MOST / 2).await;
    odd.state.store(3, Ordering::SeqCst);
    assert_eq!(*odd.synced.lock(), []);
    tokio::time::sleep(slot::AT_MOST).await;
    assert_eq!(*odd.synced.lock(), [(7, 3)]);
    // The hanging one is still at work, so its group is not handed out again.
    queue.add(1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(queue.sizes().1, 1);
}

/// Key 1 has the only slot for 20 s.
#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_a_slot_count_as_waiting_and_a_change_meanwhile_is_no_second_sync() {
    let (odd, queue, metrics, _task) = odd();
    let metric = |name: &str| metrics.sample(&format!("workqueue_{name}{{name=\"odd\"}}"));
    for key in [1, 7, 9, 11] {
        queue.add(key);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((metric("depth"), queue.sizes()), (Some(3.0), (3, 1, 0)));
    assert_eq!(metric("unfinished_work_seconds"), Some(10.0));
    assert_eq!(metrics.sample("ccm_queue_oldest_seconds{name=\"odd\"}"), Some(10.0));
    queue.add(7);
    assert_eq!(metric("adds_total"), Some(4.0));
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(*odd.synced.lock(), [(7, 0), (9, 0), (11, 0)]);
    assert_eq!((metric("depth"), queue.sizes()), (Some(0.0), (0, 1, 0)));
    assert_eq!(metric("queue_duration_seconds_sum"), Some(60.0));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_key_that_waits_for_its_group_is_no_second_sync() {
    let (model, queue, _leadership, _task) = start(100);
    for key in [1, 2, 2] {
        queue.add(key);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(queue.sizes(), (1, 1, 0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*model.groups.lock(), [[1], [2]]);
    assert_eq!(queue.sizes(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_outside_of_a_sync_leaves_no_group_busy_and_is_counted() {
    let (odd, queue, metrics, _task) = odd();
    queue.add(2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(odd.synced.lock().len() >= 2, "{:?}", odd.synced);
    queue.add(7);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(odd.synced.lock().contains(&(7, 0)));
    assert_eq!(metrics.sample("ccm_panics_total{place=\"odd\"}"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn the_reconciler_may_shorten_the_longest_back_off_of_a_key() {
    for (key, syncs) in [(4, 6), (6, 9)] {
        let (odd, queue, _metrics, _task) = odd();
        queue.add(key);
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(odd.synced.lock().len(), syncs, "key {key}");
    }
}

/// Waits for the cloud a minute in each sync, and then writes.
#[derive(Default)]
struct Waits {
    at_work: AtomicUsize,
    ended: Log,
}

#[async_trait]
impl Reconciler for Waits {
    type Key = u32;
    type Observed = ();
    type Group = u32;
    fn name(&self) -> &'static str {
        "waits"
    }
    fn groups(&self, key: &u32) -> BTreeSet<u32> {
        [*key].into()
    }
    async fn observe(&self, keys: &[u32]) -> Vec<Result<(), SyncError>> {
        keys.iter().map(|_| Ok(())).collect()
    }
    async fn reconcile(&self, work: Vec<(u32, ())>) -> Vec<(u32, Result<Outcome, SyncError>)> {
        let scope = scope();
        assert!(scope.may_write().is_ok());
        let waited = scope.waiting(tokio::time::sleep(Duration::from_secs(60))).await;
        assert_eq!(waited.is_ok(), scope.may_write().is_ok());
        // Only one at a time is at work.
        assert_eq!(self.at_work.fetch_add(1, Ordering::SeqCst), 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.ended.lock().push(work.iter().filter(|_| waited.is_ok()).map(|(key, ())| *key).collect());
        work.into_iter().map(|(key, ())| (key, Ok(Outcome::Done))).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_waits_for_the_cloud_needs_no_slot_and_a_shutdown_ends_its_wait() {
    let (metrics, leadership) = (Metrics::new(), Leadership::new(Arc::new(SystemClock)));
    leadership.lead(None);
    let queue = Queue::new("waits", RateLimit::DEFAULT, &metrics);
    let waits = Arc::new(Waits::default());
    let limits = Limits { batch: 1000, groups: 1 };
    let task = tokio::spawn(run(waits.clone(), queue.clone(), limits, leadership.clone(), metrics));
    (1..=5).for_each(|key| queue.add(key));
    tokio::time::sleep(Duration::from_secs(66)).await;
    assert_eq!(*waits.ended.lock(), [[1], [2], [3], [4], [5]]);
    queue.add(6);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    leadership.drain();
    task.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(waits.ended.lock().last().unwrap().is_empty());
    // Outside of a runner there is nothing to give back.
    assert!(scope().waiting(std::future::ready(7)).await.is_ok_and(|value| value == 7));
}

/// Asks twice whether keys of its groups wait for its end.
struct Awaited(Mutex<Vec<bool>>);

#[async_trait]
impl Reconciler for Awaited {
    type Key = u32;
    type Observed = ();
    type Group = u32;
    fn name(&self) -> &'static str {
        "awaited"
    }
    fn groups(&self, key: &u32) -> BTreeSet<u32> {
        [key / 10].into()
    }
    async fn observe(&self, keys: &[u32]) -> Vec<Result<(), SyncError>> {
        keys.iter().map(|_| Ok(())).collect()
    }
    async fn reconcile(&self, work: Vec<(u32, ())>) -> Vec<(u32, Result<Outcome, SyncError>)> {
        for _ in 0..2 {
            self.0.lock().push(scope().is_waited_for());
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        work.into_iter().map(|(key, ())| (key, Ok(Outcome::Done))).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_sync_knows_whether_others_wait_for_its_groups() {
    let metrics = Metrics::new();
    let limit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };
    let queue = Queue::new("awaited", limit, &metrics);
    let leadership = Leadership::new(Arc::new(SystemClock));
    leadership.lead(None);
    let awaited = Arc::new(Awaited(Mutex::default()));
    let limits = Limits { batch: 1000, groups: 5 };
    let _task = tokio::spawn(run(awaited.clone(), queue.clone(), limits, leadership, metrics));
    queue.add(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.add(2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*awaited.0.lock(), [false, true, false, false]);
}

/// Fails with one class of errors after the other.
#[derive(Default)]
struct Fails(AtomicUsize);

#[async_trait]
impl Reconciler for Fails {
    type Key = u32;
    type Observed = ();
    type Group = u32;
    fn name(&self) -> &'static str {
        "fails"
    }
    fn groups(&self, key: &u32) -> BTreeSet<u32> {
        [*key].into()
    }
    async fn observe(&self, keys: &[u32]) -> Vec<Result<(), SyncError>> {
        keys.iter().map(|_| Ok(())).collect()
    }
    async fn reconcile(&self, work: Vec<(u32, ())>) -> Vec<(u32, Result<Outcome, SyncError>)> {
        let error = match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => SyncError::Retry("not yet".into()),
            _ => SyncError::Terminal("given up".into()),
        };
        work.into_iter().map(|(key, ())| (key, Err(error.clone()))).collect()
    }
}

/// Nothing says that the object of a failure without a retry was deleted.
#[tokio::test(start_paused = true)]
async fn only_failures_that_are_retried_count_as_failing_objects() {
    let (metrics, leadership) = (Metrics::new(), Leadership::new(Arc::new(SystemClock)));
    leadership.lead(None);
    let limit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };
    let queue = Queue::new("fails", limit, &metrics);
    let limits = Limits { batch: 10, groups: 10 };
    let running = run(Arc::new(Fails::default()), queue.clone(), limits, leadership.clone(), metrics.clone());
    let running = tokio::spawn(running);
    queue.add(1);
    for count in ["1", "0"] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let line = format!("ccm_failing_objects{{controller=\"fails\"}} {count}");
        assert!(metrics.text().lines().any(|found| found == line), "{line}\n{}", metrics.text());
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    running.abort();
}
