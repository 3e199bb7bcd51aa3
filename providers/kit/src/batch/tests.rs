use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::*;

/// A cloud with the even numbers below 1000.
struct Cloud {
    calls: Mutex<Vec<Vec<u32>>>,
    away: AtomicBool,
    panics: AtomicBool,
    takes: Duration,
}

impl Cloud {
    fn new() -> Self {
        Self {
            calls: Mutex::default(),
            away: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            takes: Duration::from_millis(50),
        }
    }
}

#[async_trait]
impl Bulk for Arc<Cloud> {
    type Item = u32;
    type Answer = String;
    type Error = String;

    async fn call(&self, items: &[u32]) -> Result<BTreeMap<u32, String>, String> {
        self.calls.lock().push(items.to_vec());
        tokio::time::sleep(self.takes).await;
        assert!(!self.panics.load(Ordering::Relaxed), "as set");
        if self.away.load(Ordering::Relaxed) {
            return Err("away".into());
        }
        Ok(items
            .iter()
            .filter(|item| *item % 2 == 0 && **item < 1000)
            .map(|item| (*item, format!("#{item}")))
            .collect())
    }

    fn interrupted(&self, how: Interrupted) -> String {
        how.to_string()
    }
}

fn batcher(cloud: Cloud) -> (Arc<Cloud>, Batcher<Arc<Cloud>>) {
    let cloud = Arc::new(cloud);
    (cloud.clone(), Batcher::new(cloud, Limits::of(500)))
}

fn calls(cloud: &Cloud) -> Vec<Vec<u32>> {
    cloud.calls.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn questions_of_one_window_are_one_call_and_duplicates_are_sent_once() {
    let (cloud, batcher) = batcher(Cloud::new());
    let (one, two) = tokio::join!(batcher.ask([2, 4, 2]), batcher.ask_one(4));
    assert_eq!(one, BTreeMap::from([(2, Ok(Some("#2".into()))), (4, Ok(Some("#4".into())))]));
    assert_eq!(two, Ok(Some("#4".into())));
    assert_eq!(calls(&cloud), [[2, 4]]);
}

#[tokio::test(start_paused = true)]
async fn what_the_answer_lacks_does_not_exist() {
    let (_, batcher) = batcher(Cloud::new());
    assert_eq!(batcher.ask([2, 3]).await, BTreeMap::from([(2, Ok(Some("#2".into()))), (3, Ok(None))]));
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait_for_its_window() {
    let (cloud, batcher) = batcher(Cloud::new());
    let before = Instant::now();
    let answers = batcher.ask(0..1100).await;
    assert_eq!(answers.len(), 1100);
    let sizes: Vec<_> = calls(&cloud).iter().map(Vec::len).collect();
    assert_eq!(sizes, [500, 500, 100]);
    assert_eq!(before.elapsed(), Duration::from_millis(25 + 50));
}

#[tokio::test(start_paused = true)]
async fn the_window_grows_to_a_second_while_a_burst_lasts_and_is_small_again_afterwards() {
    let (cloud, batcher) = batcher(Cloud::new());
    let mut asks = Vec::new();
    for item in 0..1000 {
        let batcher = batcher.clone();
        asks.push(tokio::spawn(async move { batcher.ask_one(item).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    assert!(calls(&cloud).len() <= 17, "{} calls in ten seconds", calls(&cloud).len());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = Instant::now();
    batcher.ask_one(2).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(75));
}

#[tokio::test(start_paused = true)]
async fn an_asker_who_goes_away_takes_nobody_along() {
    let (cloud, batcher) = batcher(Cloud::new());
    let first = {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.ask_one(2).await })
    };
    tokio::time::sleep(Duration::from_millis(5)).await;
    let others = async { tokio::join!(batcher.ask_one(4), batcher.ask_one(2)) };
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        first.abort();
    };
    let (others, ()) = tokio::join!(others, cancel);
    assert_eq!(others, (Ok(Some("#4".into())), Ok(Some("#2".into()))));
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(calls(&cloud), [[2, 4]]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_away_is_asked_once() {
    let (cloud, batcher) = batcher(Cloud::new());
    cloud.away.store(true, Ordering::Relaxed);
    assert!(batcher.ask(0..500).await.values().all(|outcome| *outcome == Err("away".into())));
    assert_eq!(calls(&cloud).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_or_panics_is_an_error_and_the_next_one_is_made() {
    let hangs = Cloud { takes: Duration::from_secs(3600), ..Cloud::new() };
    let (_, slow) = batcher(hangs);
    assert_eq!(slow.ask_one(2).await, Err("no answer within 1m0s".into()));
    let (cloud, batcher) = batcher(Cloud::new());
    cloud.panics.store(true, Ordering::Relaxed);
    assert_eq!(batcher.ask_one(2).await, Err("the call ended without an answer".into()));
    cloud.panics.store(false, Ordering::Relaxed);
    assert_eq!(batcher.ask_one(2).await, Ok(Some("#2".into())));
}
