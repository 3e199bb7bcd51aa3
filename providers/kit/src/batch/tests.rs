use super::*;
use std::sync::atomic::AtomicBool;

/// Knows even numbers below 1000; says whose fault it is as it is told to.
struct Cloud {
    calls: Mutex<Vec<(u8, Vec<u32>)>>,
    bad: Mutex<BTreeSet<u32>>,
    names_the_bad: bool,
    away: AtomicBool,
    panics: AtomicBool,
    takes: Duration,
}

impl Cloud {
    fn new() -> Self {
        Self {
            calls: Mutex::default(),
            bad: Mutex::default(),
            names_the_bad: true,
            away: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            takes: Duration::from_millis(50),
        }
    }

    fn bad(self, bad: impl IntoIterator<Item = u32>) -> Self {
        *self.bad.lock().unwrap() = bad.into_iter().collect();
        self
    }
}

#[async_trait]
impl Bulk for Arc<Cloud> {
    type Group = u8;
    type Item = u32;
    type Answer = String;
    type Error = String;

    async fn call(&self, group: &u8, items: &[u32]) -> Result<BTreeMap<u32, String>, String> {
        self.calls.lock().unwrap().push((*group, items.to_vec()));
        tokio::time::sleep(self.takes).await;
        assert!(!self.panics.load(Ordering::Relaxed), "told to");
        if self.away.load(Ordering::Relaxed) {
            return Err("away".into());
        }
        let bad: Vec<_> = items.iter().filter(|item| self.bad.lock().unwrap().contains(item)).collect();
        if !bad.is_empty() {
            return Err(format!("{bad:?}"));
        }
        Ok(items
            .iter()
            .filter(|item| *item % 2 == 0 && **item < 1000)
            .map(|item| (*item, format!("#{item}")))
            .collect())
    }

    fn blame(&self, error: &String, _: &[u32]) -> Blame<u32> {
        match error.as_str() {
            "away" => Blame::Nobody,
            text if text.starts_with('[') && self.names_the_bad => {
                Blame::These(text.trim_matches(['[', ']']).split(", ").map(|item| item.parse().unwrap()).collect())
            }
            _ => Blame::Somebody,
        }
    }

    fn interrupted(&self, how: Interrupted) -> String {
        how.to_string()
    }
}

fn batcher(cloud: Cloud) -> (Arc<Cloud>, Batcher<Arc<Cloud>>) {
    let cloud = Arc::new(cloud);
    (cloud.clone(), Batcher::new(cloud, Limits::of(500)))
}

fn calls(cloud: &Cloud) -> Vec<(u8, Vec<u32>)> {
    cloud.calls.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn questions_of_one_window_are_one_call_and_duplicates_are_sent_once() {
    let (cloud, batcher) = batcher(Cloud::new());
    let (one, two) = tokio::join!(batcher.ask(&0, [2, 4, 2]), batcher.ask_one(&0, 4));
    assert_eq!(one, BTreeMap::from([(2, Ok(Some("#2".into()))), (4, Ok(Some("#4".into())))]));
    assert_eq!(two, Ok(Some("#4".into())));
    assert_eq!(calls(&cloud), [(0, vec![2, 4])]);
}

#[tokio::test(start_paused = true)]
async fn what_the_answer_lacks_does_not_exist() {
    let (_, batcher) = batcher(Cloud::new());
    assert_eq!(batcher.ask(&0, [2, 3]).await, BTreeMap::from([(2, Ok(Some("#2".into()))), (3, Ok(None))]));
}

#[tokio::test(start_paused = true)]
async fn groups_are_not_mixed() {
    let (cloud, batcher) = batcher(Cloud::new());
    tokio::join!(batcher.ask_one(&0, 2), batcher.ask_one(&1, 2), batcher.ask_one(&1, 4)).0.unwrap();
    let mut calls = calls(&cloud);
    calls.sort();
    assert_eq!(calls, [(0, vec![2]), (1, vec![2, 4])]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait_for_its_window() {
    let (cloud, batcher) = batcher(Cloud::new());
    let before = Instant::now();
    let answers = batcher.ask(&0, 0..1100).await;
    assert_eq!(answers.len(), 1100);
    let sizes: Vec<_> = calls(&cloud).iter().map(|(_, items)| items.len()).collect();
    assert_eq!(sizes, [500, 500, 100]);
    assert_eq!(before.elapsed(), Duration::from_millis(25 + 50));
}

#[tokio::test(start_paused = true)]
async fn the_window_grows_to_a_second_while_a_burst_lasts_and_is_small_again_afterwards() {
    let (cloud, batcher) = batcher(Cloud::new());
    let mut asks = Vec::new();
    for item in 0..1000 {
        let batcher = batcher.clone();
        asks.push(tokio::spawn(async move { batcher.ask_one(&0, item).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    assert!(calls(&cloud).len() <= 17, "{} calls in ten seconds", calls(&cloud).len());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = Instant::now();
    batcher.ask_one(&0, 2).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(75));
}

#[tokio::test(start_paused = true)]
async fn an_asker_who_goes_away_takes_nobody_along() {
    let (cloud, batcher) = batcher(Cloud::new());
    let first = {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.ask_one(&0, 2).await })
    };
    tokio::time::sleep(Duration::from_millis(5)).await;
    let others = async { tokio::join!(batcher.ask_one(&0, 4), batcher.ask_one(&0, 2)) };
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        first.abort();
    };
    let (others, ()) = tokio::join!(others, cancel);
    assert_eq!(others, (Ok(Some("#4".into())), Ok(Some("#2".into()))));
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(calls(&cloud), [(0, vec![2, 4])]);
}

#[tokio::test(start_paused = true)]
async fn items_that_the_error_names_cost_one_more_call_and_spoil_nobody() {
    let (cloud, batcher) = batcher(Cloud::new().bad([7, 99]));
    let answers = batcher.ask(&0, 0..200).await;
    let failed: Vec<_> = answers.iter().filter(|(_, outcome)| outcome.is_err()).map(|(item, _)| *item).collect();
    assert_eq!(failed, [7, 99]);
    assert_eq!(calls(&cloud).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_culprit_is_not_named_is_halved_but_never_into_singles() {
    let (cloud, batcher) = batcher(Cloud { names_the_bad: false, ..Cloud::new() }.bad([7]));
    let answers = batcher.ask(&0, 0..500).await;
    let failed: Vec<_> = answers.iter().filter(|(_, outcome)| outcome.is_err()).map(|(item, _)| *item).collect();
    assert!(failed.contains(&7) && failed.len() <= SPLIT_TO, "{failed:?}");
    let calls = calls(&cloud);
    assert!(calls.iter().all(|(_, items)| items.len() > 1));
    assert!(calls.len() <= 13, "{} calls", calls.len());
}

#[tokio::test(start_paused = true)]
async fn splitting_is_bounded_when_everything_fails() {
    let (cloud, batcher) = batcher(Cloud { names_the_bad: false, ..Cloud::new() }.bad(0..500));
    let answers = batcher.ask(&0, 0..500).await;
    assert!(answers.values().all(Result::is_err));
    assert!(calls(&cloud).len() <= 1 + EXTRA_CALLS);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_away_is_asked_once() {
    let (cloud, batcher) = batcher(Cloud::new());
    cloud.away.store(true, Ordering::Relaxed);
    assert!(batcher.ask(&0, 0..500).await.values().all(|outcome| *outcome == Err("away".into())));
    assert_eq!(calls(&cloud).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_or_panics_is_an_error_and_the_next_one_is_made() {
    let hangs = Cloud { takes: Duration::from_secs(3600), ..Cloud::new() };
    let (_, slow) = batcher(hangs);
    assert_eq!(slow.ask_one(&0, 2).await, Err("no answer within 1m0s".into()));
    let (cloud, batcher) = batcher(Cloud::new());
    cloud.panics.store(true, Ordering::Relaxed);
    assert_eq!(batcher.ask_one(&0, 2).await, Err("the call ended without an answer".into()));
    cloud.panics.store(false, Ordering::Relaxed);
    assert_eq!(batcher.ask_one(&0, 2).await, Ok(Some("#2".into())));
}
