//! What is known of the cloud's instances, shared by all controllers.
//!
//! One [`InstanceView`] per process is the only caller of the provider's instances. It joins the questions of a short
//! window into one call, so that the number of calls depends on neither the number of nodes nor that of the askers. When
//! a large share of the cluster is asked about and the cloud has a cheap complete list, it lists.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ccm_provider::load_balancer::READ_DEADLINE;
use ccm_provider::{Aspects, InstancesV2, Lookup, NodeName, NodeRef, ProviderError, Snapshot};
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::runner::panic_text;

/// How long the first question of a quiet time waits for others.
const WINDOW_MIN: Duration = Duration::from_millis(25);
/// How long questions wait for others while a burst lasts.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// A call within this time after the last one is part of a burst.
const BURST: Duration = Duration::from_secs(2);
/// How long a list is remembered.
const SNAPSHOT_KEPT: Duration = Duration::from_secs(60);
/// Fewer nodes than this are always looked up, never listed.
const LIST_AT_LEAST: usize = 100;
/// A failed batch is halved down to this size, never into single calls.
const SPLIT_TO: usize = 8;

type Answers = Arc<HashMap<NodeName, Lookup>>;

/// The instances as last seen.
pub struct InstanceView {
    provider: Arc<dyn InstancesV2>,
    scheme: String,
    // Number of nodes in the cluster, for the choice between look-up and list.
    cluster_size: Box<dyn Fn() -> usize + Send + Sync>,
    state: Arc<Mutex<State>>,
    metrics: Metrics,
}

impl std::fmt::Debug for InstanceView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstanceView").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    // By what is asked: an error in one aspect must not spoil the answer to another.
    pending: BTreeMap<Aspects, Pending>,
    window: Duration,
    last_call: Option<Instant>,
    snapshot: Option<(Instant, Arc<Snapshot>)>,
    cannot_list: bool,
}

/// Questions that wait for the end of the window.
struct Pending {
    nodes: BTreeMap<NodeName, NodeRef>,
    // Wakes in the order of asking, unlike tokio's watch: so that a simulation repeats itself.
    answers: Shared<oneshot::Receiver<Answers>>,
}

impl InstanceView {
    /// A view of the instances of the provider whose provider IDs begin with `<scheme>://`.
    pub fn new(
        provider: Arc<dyn InstancesV2>,
        scheme: &str,
        cluster_size: impl Fn() -> usize + Send + Sync + 'static,
        metrics: Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            scheme: scheme.to_owned(),
            cluster_size: Box::new(cluster_size),
            state: Arc::new(Mutex::new(State { window: WINDOW_MIN, ..State::default() })),
            metrics,
        })
    }

    /// See [`InstancesV2::provider_id_required`].
    pub fn provider_id_required(&self) -> bool {
        self.provider.provider_id_required()
    }

    /// Whether the node carries the provider ID of another cloud. Such a node is counted and never touched.
    pub fn is_foreign(&self, provider_id: Option<&str>) -> bool {
        let scheme = provider_id.and_then(|id| id.split_once("://")).map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme != self.scheme)
    }

    /// Answers for each node, in order. What is younger than `max_age` may come from memory.
    pub async fn get(self: &Arc<Self>, nodes: &[NodeRef], aspects: Aspects, max_age: Duration) -> Vec<Lookup> {
        let ours: Vec<&NodeRef> = nodes.iter().filter(|n| !self.is_foreign(n.provider_id.as_deref())).collect();
        let answers = match self.remembered(&ours, max_age) {
            Some(answers) => answers,
            None if ours.is_empty() => Answers::default(),
            None => self.ask(&ours, aspects).await,
        };
        let answer = |node: &NodeRef| match answers.get(&*node.name) {
            _ if self.is_foreign(node.provider_id.as_deref()) => Lookup::Foreign,
            Some(answer) => answer.clone(),
            None => Lookup::Unknown(ProviderError::bug("the look-up ended without an answer")),
        };
        nodes.iter().map(answer).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, nodes: &[&NodeRef], max_age: Duration) -> Option<Answers> {
        let (at, snapshot) = self.lock().snapshot.clone()?;
        (at.elapsed() < max_age).then(|| from_snapshot(&snapshot, nodes.iter().copied()))
    }

    /// Joins the open window, or opens one.
    async fn ask(self: &Arc<Self>, nodes: &[&NodeRef], aspects: Aspects) -> Answers {
        let answers = {
            let mut state = self.lock();
            if !state.pending.contains_key(&aspects) {
                let (publish, answers) = oneshot::channel();
                let window = next_window(&mut state);
                tokio::spawn(self.clone().close_window(aspects, window, publish));
                state.pending.insert(aspects, Pending { nodes: BTreeMap::new(), answers: answers.shared() });
            }
            let Some(pending) = state.pending.get_mut(&aspects) else { return Answers::default() };
            pending.nodes.extend(nodes.iter().map(|node| (node.name.clone(), (*node).clone())));
            pending.answers.clone()
        };
        // An error: the process is ending.
        answers.await.unwrap_or_default()
    }

    async fn close_window(self: Arc<Self>, aspects: Aspects, window: Duration, publish: oneshot::Sender<Answers>) {
        tokio::time::sleep(window).await;
        let Some(pending) = self.lock().pending.remove(&aspects) else { return };
        let nodes: Vec<NodeRef> = pending.nodes.into_values().collect();
        let list = self.worth_a_list(nodes.len());
        let answers = match if list { self.list().await } else { None } {
            Some(Ok(snapshot)) => from_snapshot(&snapshot, nodes.iter()),
            Some(Err(error)) => {
                Arc::new(nodes.iter().map(|n| (n.name.clone(), Lookup::Unknown(error.clone()))).collect())
            }
            None => Arc::new(self.lookup(nodes, aspects).await),
        };
        self.lock().last_call = Some(Instant::now());
        // Whoever asked may be gone.
        let _ = publish.send(answers);
    }

    fn worth_a_list(&self, asked: usize) -> bool {
        asked >= LIST_AT_LEAST && asked * 2 >= (self.cluster_size)() && !self.lock().cannot_list
    }

    async fn list(self: &Arc<Self>) -> Option<Result<Arc<Snapshot>, ProviderError>> {
        let began = Instant::now();
        let call = AssertUnwindSafe(self.provider.list()).catch_unwind();
        let answer = match tokio::time::timeout(READ_DEADLINE, call).await {
            Ok(Ok(None)) => {
                self.lock().cannot_list = true;
                return None;
            }
            Ok(Ok(Some(answer))) => answer,
            Ok(Err(panic)) => Err(self.panicked(&*panic)),
            Err(_) => Err(ProviderError::deadline("the list of instances", READ_DEADLINE)),
        };
        self.metrics.provider_call("ListInstances", answer.is_ok(), began.elapsed());
        Some(answer.map(|snapshot| {
            let snapshot = Arc::new(snapshot);
            self.lock().snapshot = Some((began, snapshot.clone()));
            tokio::spawn(self.clone().forget_snapshot(began));
            snapshot
        }))
    }

    /// A snapshot is as large as the cluster and of use for a moment only.
    async fn forget_snapshot(self: Arc<Self>, began: Instant) {
        tokio::time::sleep(SNAPSHOT_KEPT).await;
        let mut state = self.lock();
        if state.snapshot.as_ref().is_some_and(|(at, _)| *at == began) {
            state.snapshot = None;
        }
    }

    /// Looks the nodes up in one call; a call that fails as a whole is halved, since one node may be the reason.
    async fn lookup(&self, nodes: Vec<NodeRef>, aspects: Aspects) -> HashMap<NodeName, Lookup> {
        let began = Instant::now();
        let call = AssertUnwindSafe(self.provider.lookup(&nodes, aspects)).catch_unwind();
        let failure = match tokio::time::timeout(READ_DEADLINE, call).await {
            Ok(Ok(answers)) if answers.len() == nodes.len() => {
                self.metrics.provider_call("LookupInstances", true, began.elapsed());
                return nodes.iter().map(|node| node.name.clone()).zip(answers).collect();
            }
            Ok(Ok(answers)) => {
                let text = format!("the provider answered for {} of {} nodes", answers.len(), nodes.len());
                tracing::error!("{text}: nothing is concluded from it");
                ProviderError::bug(text)
            }
            Ok(Err(panic)) => self.panicked(&*panic),
            Err(_) => ProviderError::deadline("the look-up of instances", READ_DEADLINE),
        };
        self.metrics.provider_call("LookupInstances", false, began.elapsed());
        if nodes.len() <= SPLIT_TO {
            return nodes.iter().map(|n| (n.name.clone(), Lookup::Unknown(failure.clone()))).collect();
        }
        let (left, right) = nodes.split_at(nodes.len() / 2);
        let halves = futures::future::join(
            Box::pin(self.lookup(left.to_vec(), aspects)),
            Box::pin(self.lookup(right.to_vec(), aspects)),
        );
        let (mut left, right) = halves.await;
        left.extend(right);
        left
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> ProviderError {
        self.metrics.panicked("provider");
        let text = panic_text(panic);
        tracing::error!(panic = text, "the provider panicked");
        ProviderError::bug(format!("the provider panicked: {text}"))
    }
}

/// Doubles while calls follow each other closely, else starts small again.
fn next_window(state: &mut State) -> Duration {
    let burst = state.last_call.is_some_and(|at| at.elapsed() < BURST);
    state.window = if burst { (state.window * 2).min(WINDOW_MAX) } else { WINDOW_MIN };
    state.window
}

fn from_snapshot<'a>(snapshot: &Snapshot, nodes: impl Iterator<Item = &'a NodeRef>) -> Answers {
    Arc::new(nodes.map(|n| (n.name.clone(), snapshot.find(&n.name, n.provider_id.as_deref()))).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use async_trait::async_trait;
    use ccm_provider::{InstanceMetadata, Node};

    use super::*;

    #[derive(Default)]
    struct Cloud {
        calls: Mutex<Vec<usize>>,
        lists: AtomicUsize,
        can_list: bool,
        poison: Option<&'static str>,
        short: bool,
        hang: Option<&'static str>,
    }

    #[async_trait]
    impl InstancesV2 for Cloud {
        async fn lookup(&self, nodes: &[NodeRef], _aspects: Aspects) -> Vec<Lookup> {
            self.calls.lock().unwrap().push(nodes.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
            let has = |name: Option<&str>| name.is_some_and(|name| nodes.iter().any(|n| &*n.name == name));
            assert!(!has(self.poison), "poisoned");
            if has(self.hang) {
                std::future::pending::<()>().await;
            }
            let answers = nodes.iter().map(|_| Lookup::found(InstanceMetadata::default()));
            answers.skip(usize::from(self.short)).collect()
        }

        async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
            self.lists.fetch_add(1, Ordering::SeqCst);
            self.can_list.then(|| {
                Ok(Snapshot {
                    began: SystemTime::now(),
                    grace: Duration::ZERO,
                    by_provider_id: BTreeMap::new(),
                    by_name: BTreeMap::new(),
                })
            })
        }
    }

    fn view(cloud: Cloud, size: usize) -> (Arc<Cloud>, Arc<InstanceView>) {
        let cloud = Arc::new(cloud);
        (cloud.clone(), InstanceView::new(cloud, "fake", move || size, Metrics::new()))
    }

    fn nodes(range: std::ops::Range<usize>) -> Vec<NodeRef> {
        let node = |i| Node {
            name: format!("n{i}").into(),
            provider_id: Some(format!("fake://n{i}").into()),
            ..Node::default()
        };
        range.map(|i| Arc::new(node(i))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn questions_of_one_window_are_one_call() {
        let (cloud, view) = view(Cloud::default(), 10);
        let asks = (0..10).map(|i| {
            let view = view.clone();
            async move { view.get(&nodes(i..i + 1), Aspects::METADATA, Duration::ZERO).await }
        });
        let answers = futures::future::join_all(asks).await;
        assert!(answers.iter().all(|a| matches!(a[..], [Lookup::Found(_)])));
        assert_eq!(*cloud.calls.lock().unwrap(), [10]);
    }

    #[tokio::test(start_paused = true)]
    async fn five_thousand_nodes_within_ten_seconds_are_few_calls() {
        let (cloud, view) = view(Cloud::default(), 5000);
        let mut tasks = Vec::new();
        for i in 0..500 {
            let view = view.clone();
            tasks.push(tokio::spawn(async move {
                view.get(&nodes(i * 10..i * 10 + 10), Aspects::METADATA, Duration::ZERO).await.len()
            }));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), 10);
        }
        let calls = cloud.calls.lock().unwrap();
        assert!(calls.len() <= 20, "{calls:?}");
        assert_eq!(calls.iter().sum::<usize>(), 5000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_share_of_the_cluster_is_listed_where_the_cloud_can() {
        let (cloud, view) = view(Cloud { can_list: true, ..Cloud::default() }, 1000);
        let answers = view.get(&nodes(0..600), Aspects::LIFECYCLE, Duration::ZERO).await;
        assert!(matches!(answers[0], Lookup::Gone(_)));
        assert!(cloud.calls.lock().unwrap().is_empty());
        // A snapshot that is young enough answers from memory.
        view.get(&nodes(0..3), Aspects::LIFECYCLE, Duration::from_secs(60)).await;
        assert_eq!(cloud.lists.load(Ordering::SeqCst), 1);
        assert!(cloud.calls.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_cloud_has_no_list_it_is_asked_only_once_for_one() {
        let (cloud, view) = view(Cloud::default(), 1000);
        for _ in 0..3 {
            view.get(&nodes(0..1000), Aspects::ADDRESSES, Duration::ZERO).await;
        }
        assert_eq!(cloud.lists.load(Ordering::SeqCst), 1);
        assert_eq!(*cloud.calls.lock().unwrap(), [1000; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_cornered_by_halving_and_never_into_single_calls() {
        let (cloud, view) = view(Cloud { poison: Some("n70"), ..Cloud::default() }, 128);
        let answers = view.get(&nodes(0..128), Aspects::METADATA, Duration::ZERO).await;
        let unknown = answers.iter().filter(|a| matches!(a, Lookup::Unknown(_))).count();
        assert_eq!(unknown, 8);
        assert!(matches!(answers[70], Lookup::Unknown(_)));
        assert!(cloud.calls.lock().unwrap().iter().all(|n| *n >= 8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_number_of_answers_tells_nothing() {
        let (_, view) = view(Cloud { short: true, ..Cloud::default() }, 4);
        let answers = view.get(&nodes(0..4), Aspects::LIFECYCLE, Duration::ZERO).await;
        assert!(answers.iter().all(|a| matches!(a, Lookup::Unknown(_))), "{answers:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_ends_and_does_not_hold_up_later_questions() {
        let (_, view) = view(Cloud { hang: Some("n0"), ..Cloud::default() }, 4);
        let hanging = tokio::spawn({
            let view = view.clone();
            async move { view.get(&nodes(0..1), Aspects::METADATA, Duration::ZERO).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        let answers = view.get(&nodes(1..2), Aspects::METADATA, Duration::ZERO).await;
        assert!(matches!(answers[..], [Lookup::Found(_)]));
        assert!(began.elapsed() < Duration::from_secs(2));
        assert!(matches!(hanging.await.unwrap()[..], [Lookup::Unknown(_)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_node_is_never_asked_about() {
        let (cloud, view) = view(Cloud::default(), 2);
        let foreign = Node { name: "x".into(), provider_id: Some("other://x".into()), ..Node::default() };
        let answers = view.get(&[Arc::new(foreign)], Aspects::LIFECYCLE, Duration::ZERO).await;
        assert!(matches!(answers[..], [Lookup::Foreign]));
        assert!(cloud.calls.lock().unwrap().is_empty());
    }
}
