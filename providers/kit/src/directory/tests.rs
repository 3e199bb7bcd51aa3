use std::sync::atomic::{AtomicBool, AtomicU32};

use parking_lot::Mutex;

use super::*;

/// Instances by number; the value is whether the instance is running.
#[derive(Debug, Default)]
struct Cloud {
    machines: BTreeMap<u32, bool>,
    fails: AtomicBool,
    list_hangs: AtomicBool,
    /// Keys up to this one get no answer.
    unreachable: AtomicU32,
    calls: Mutex<Vec<String>>,
}

impl Cloud {
    fn called(&self, call: String) -> Result<(), ProviderError> {
        self.calls.lock().push(call);
        if self.fails.load(Ordering::Relaxed) { Err(ProviderError::unknown("away")) } else { Ok(()) }
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock())
    }
}

#[async_trait]
impl Source for Arc<Cloud> {
    type Key = u32;
    type Value = bool;
    type Error = ProviderError;

    async fn list(&self) -> Result<(usize, BTreeMap<u32, Seen<bool>>), ProviderError> {
        self.called("list".to_owned())?;
        if self.list_hangs.load(Ordering::Relaxed) {
            futures::future::pending::<()>().await;
        }
        let listed = self.machines.iter().map(|(key, running)| (*key, Seen::One(*running)));
        Ok((self.machines.len(), listed.collect()))
    }

    async fn look_up(&self, keys: BTreeSet<u32>) -> BTreeMap<u32, Answer<Self>> {
        let called = self.called(format!("look up {keys:?}"));
        let seen = |key| match self.machines.get(&key) {
            Some(running) => Seen::One(*running),
            None if key > 1000 => Seen::Several(vec!["a".to_owned(), "b".to_owned()]),
            None => Seen::Unlisted,
        };
        let answer = |key| match key <= self.unreachable.load(Ordering::Relaxed) {
            true => Err(ProviderError::unknown("unreachable")),
            false => called.clone().map(|()| seen(key)),
        };
        keys.into_iter().map(|key| (key, answer(key))).collect()
    }

    fn list_calls(instances: usize) -> usize {
        instances.div_ceil(100)
    }

    fn look_up_calls(keys: &BTreeSet<u32>) -> usize {
        keys.len().div_ceil(10)
    }

    fn is_settled(running: &bool) -> bool {
        *running
    }

    fn is_evidence(key: &u32) -> bool {
        *key != 100
    }

    fn ambiguous(&self, key: &u32, ids: &[String]) -> ProviderError {
        ProviderError::unknown(format!("{key} is {}", ids.join(" and ")))
    }

    fn interrupted(how: Interrupted) -> ProviderError {
        ProviderError::unknown(how.to_string())
    }
}

fn directory() -> (Arc<Cloud>, Directory<Arc<Cloud>>) {
    let machines = (1..=30).map(|number| (number, number != 7)).collect();
    let cloud = Arc::new(Cloud { machines, ..Cloud::default() });
    (cloud.clone(), Directory::new(cloud, Cluster::default()))
}

#[tokio::test(start_paused = true)]
async fn new_nodes_share_a_list_for_a_moment_and_only_settled_instances_come_from_it_later() {
    let (cloud, directory) = directory();
    assert_eq!(directory.recent((1..=30).collect()).await.one(&7), Some(&false));
    assert_eq!(cloud.calls(), ["list"]);
    assert_eq!(directory.recent([1].into()).await.one(&1), Some(&true));
    assert!(cloud.calls().is_empty());
    directory.recent([1, 7].into()).await;
    assert_eq!(cloud.calls(), ["look up {7}"]);
    directory.look_up([1].into()).await;
    assert_eq!(cloud.calls(), ["look up {1}"], "whether it exists is read now");
    tokio::time::sleep(RECENT).await;
    directory.recent([1].into()).await;
    assert_eq!(cloud.calls(), ["look up {1}"]);
}

#[tokio::test(start_paused = true)]
async fn many_new_nodes_that_a_recent_list_lacks_cost_another_list_and_no_look_up_each() {
    let (cloud, directory) = directory();
    directory.recent((1..=30).collect()).await;
    assert_eq!(cloud.calls(), ["list"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    directory.recent((31..=60).collect()).await;
    assert_eq!(cloud.calls()[0], "list");
}

#[tokio::test(start_paused = true)]
async fn what_a_list_lacks_is_looked_up_before_its_absence_says_anything() {
    let (cloud, directory) = directory();
    let observed = directory.look_up((1..=30).chain([99, 100, 1001]).collect()).await;
    assert_eq!(cloud.calls(), ["list", "look up {99, 100, 1001}"]);
    let judged = |key| observed.judge(&key, RECENT, |_| Lookup::Foreign);
    assert!(matches!(judged(1), Lookup::Foreign), "the meaning of an instance is defined by the cloud");
    let Lookup::Gone(evidence) = judged(99) else { panic!("not gone") };
    let unlisted = Evidence { kind: EvidenceKind::Unlisted, read_began: observed.began, grace: RECENT };
    assert_eq!(evidence, unlisted);
    let unknown = |key| match judged(key) {
        Lookup::Unknown(error) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!([unknown(100), unknown(1001)], ["instance not found", "1001 is a and b"]);
    assert_eq!(unknown(5000), "5000 was not looked up");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_never_evidence_and_a_list_without_an_answer_causes_few_calls() {
    let (cloud, directory) = directory();
    cloud.fails.store(true, Ordering::Relaxed);
    for (keys, calls) in [(1..=30, 2), (1..=170, 1)] {
        let observed = directory.look_up(keys.clone().collect()).await;
        assert_eq!(cloud.calls().len(), calls);
        for key in keys {
            let answer = observed.judge(&key, RECENT, |_| Lookup::Foreign);
            assert!(matches!(answer, Lookup::Unknown(_)), "{key}: {answer:?}");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_list_without_an_answer_all_keys_are_looked_up_and_the_list_waits_for_minutes() {
    let (cloud, directory) = directory();
    cloud.list_hangs.store(true, Ordering::Relaxed);
    let keys: BTreeSet<u32> = (1..=30).chain(200..400).collect();
    for (lists, pause) in [(1, 0), (0, 280), (1, 30)] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let observed = directory.look_up(keys.clone()).await;
        for key in &keys {
            let answer = observed.judge(key, RECENT, |_| Lookup::Foreign);
            assert!(matches!(answer, Lookup::Foreign | Lookup::Gone(_)), "{key}: {answer:?}");
        }
        let calls = cloud.calls();
        assert_eq!((calls.iter().filter(|call| *call == "list").count(), calls.len()), (lists, lists + 2), "{calls:?}");
    }
    cloud.list_hangs.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(300)).await;
    directory.look_up((1..=30).collect()).await;
    assert_eq!(cloud.calls(), ["list"]);
}

#[tokio::test(start_paused = true)]
async fn keys_without_an_answer_do_not_withhold_the_others_after_a_list_without_an_answer() {
    let (cloud, directory) = directory();
    cloud.list_hangs.store(true, Ordering::Relaxed);
    cloud.unreachable.store(170, Ordering::Relaxed);
    let observed = directory.look_up((1..=200).collect()).await;
    for key in 1..=200 {
        let is_unknown = matches!(observed.judge(&key, RECENT, |_| Lookup::Foreign), Lookup::Unknown(_));
        assert_eq!(is_unknown, key <= 170, "{key}");
    }
}
