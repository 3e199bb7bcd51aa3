//! The view of the cloud's instances, shared by all controllers.
//!
//! One [`InstanceView`] per process is the only caller of the provider's instances. It joins the lookups of a short
//! [`Window`] into one call, so that the number of calls depends on neither the number of nodes nor the number of
//! callers. It keeps no answer: only the provider may answer from an earlier read.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ccm_provider::deadline::READ_DEADLINE;
use ccm_provider::window::Window;
use ccm_provider::{Aspects, InstancesV2, Lookup, NodeName, NodeRef, ProviderError, Schemes};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::panics::panic_text;

/// A failed batch is halved down to this size; its members are looked up one by one the next time.
const SPLIT_TO: usize = 8;
/// The maximum number of additional calls by halving in one window.
const EXTRA_CALLS: usize = 64;
/// The maximum number of nodes that are looked up one by one in one window.
const SUSPECTS_AT_MOST: usize = 64;
/// Maximum number of suspects. No answer ever clears the suspects of deleted nodes; after the list is dropped, the next
/// failure is halved again.
const SUSPECTS_KEPT: usize = 1024;

/// The maximum number of calls into which a lookup is divided after time-outs.
const PARTS_AT_MOST: usize = 64;

/// What happened in one window.
#[derive(Default)]
struct Calls {
    /// Additional calls.
    extra: AtomicUsize,
    /// Whether a call for more than a few nodes took too long.
    timed_out: AtomicBool,
}

/// The instances as last seen.
pub struct InstanceView {
    provider: Arc<dyn InstancesV2>,
    schemes: Schemes,
    state: Mutex<State>,
    metrics: Metrics,
}

impl std::fmt::Debug for InstanceView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstanceView").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    // By aspects: an error in one aspect must not affect the answer to another.
    pending: BTreeMap<Aspects, BTreeMap<Asked, Question>>,
    // Members of small batches that failed.
    suspects: BTreeSet<Asked>,
    // The number of calls into which the next lookup is divided.
    parts: usize,
    window: Window,
}

/// The key of a lookup: another Node of the same name may have another instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    name: NodeName,
    uid: Box<str>,
    provider_id: Option<Box<str>>,
}

impl Asked {
    fn of(node: &NodeRef) -> Self {
        Self { name: node.name.clone(), uid: node.uid.clone(), provider_id: node.provider_id.clone() }
    }
}

/// A node to look up, and the callers that wait for the answer.
struct Question {
    node: NodeRef,
    askers: Vec<oneshot::Sender<Lookup>>,
}

impl Question {
    fn asked(&self) -> Asked {
        Asked::of(&self.node)
    }

    fn answer(self, answer: &Lookup) {
        for asker in self.askers {
            // The caller may have stopped waiting.
            let _ = asker.send(answer.clone());
        }
    }
}

impl InstanceView {
    /// A view of the instances of a provider with these provider IDs.
    pub fn new(provider: Arc<dyn InstancesV2>, schemes: Schemes, metrics: Metrics) -> Arc<Self> {
        let state = Mutex::new(State { parts: 1, ..State::default() });
        Arc::new(Self { provider, schemes, state, metrics })
    }

    /// See [`InstancesV2::provider_id_required`].
    pub fn provider_id_required(&self) -> bool {
        self.provider.provider_id_required()
    }

    /// Whether other cloud controller managers share the cluster.
    pub fn is_hybrid(&self) -> bool {
        self.schemes.is_strict()
    }

    /// Whether the node carries the provider ID of another cloud. Such a node is counted and never touched.
    pub fn is_foreign(&self, provider_id: Option<&str>) -> bool {
        self.schemes.is_foreign(provider_id)
    }

    /// Returns one answer per node, in order.
    pub async fn get(self: &Arc<Self>, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        futures::future::join_all(self.ask(nodes, aspects)).await
    }

    /// Looks up all nodes at once; one future per node, in order. Each is ready as soon as its own answer arrives: a
    /// hanging lookup does not delay the others.
    pub fn ask(
        self: &Arc<Self>,
        nodes: &[NodeRef],
        aspects: Aspects,
    ) -> Vec<impl Future<Output = Lookup> + Send + use<>> {
        let mut state = self.lock();
        let asked = nodes.iter().map(|node| {
            let is_foreign = self.is_foreign(node.provider_id.as_deref());
            let answer = (!is_foreign).then(|| self.join_window(&mut state, node, aspects));
            async move {
                let lost = || Lookup::Unknown(ProviderError::bug("the look-up ended without an answer"));
                match answer {
                    // The channel is closed: the process is ending.
                    Some(answer) => answer.await.unwrap_or_else(|_| lost()),
                    None => Lookup::Foreign,
                }
            }
        });
        asked.collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Joins the open window, or opens one.
    fn join_window(self: &Arc<Self>, state: &mut State, node: &NodeRef, aspects: Aspects) -> oneshot::Receiver<Lookup> {
        if !state.pending.contains_key(&aspects) {
            tokio::spawn(self.clone().close_window(aspects, state.window.open()));
        }
        let question = state.pending.entry(aspects).or_default().entry(Asked::of(node));
        let question = question.or_insert_with(|| Question { node: node.clone(), askers: Vec::new() });
        let (asker, answer) = oneshot::channel();
        question.askers.push(asker);
        answer
    }

    async fn close_window(self: Arc<Self>, aspects: Aspects, window: Duration) {
        tokio::time::sleep(window).await;
        let Some(pending) = self.lock().pending.remove(&aspects) else { return };
        let questions: Vec<Question> = pending.into_values().collect();
        self.lookup_all(questions, aspects).await;
        self.lock().window.called();
    }

    /// One call for all, except the members of a failed small batch: these are looked up one by one, so that one of
    /// them does not fail the others again.
    async fn lookup_all(&self, questions: Vec<Question>, aspects: Aspects) {
        if self.provider.is_one_by_one() {
            return self.lookup_each(questions, aspects).await;
        }
        let (parts, (mut alone, mut together)): (usize, (Vec<Question>, Vec<Question>)) = {
            let state = self.lock();
            (state.parts, questions.into_iter().partition(|question| state.suspects.contains(&question.asked())))
        };
        // With so many suspects, the fault is not in single nodes: make no call for each.
        together.extend(alone.split_off(alone.len().min(SUSPECTS_AT_MOST)));
        let calls = Calls::default();
        let mut batches: Vec<_> =
            alone.into_iter().map(|question| self.lookup(vec![question], aspects, &calls)).collect();
        let size = together.len().div_ceil(parts).max(1);
        while !together.is_empty() {
            let rest = together.split_off(size.min(together.len()));
            batches.push(self.lookup(std::mem::replace(&mut together, rest), aspects, &calls));
        }
        futures::future::join_all(batches).await;
        // A call that hangs takes long. So halves are not tried after it, but at the next lookup, all at once.
        self.lock().parts = if calls.timed_out.into_inner() { (parts * 2).min(PARTS_AT_MOST) } else { 1 };
    }

    /// A call for each, which answers for itself.
    async fn lookup_each(&self, questions: Vec<Question>, aspects: Aspects) {
        let began = Instant::now();
        let answers = questions.into_iter().map(|question| async move {
            let answer = match self.ask_provider(std::slice::from_ref(&question.node), aspects, Duration::MAX).await {
                Ok(answers) => answers.into_iter().next(),
                Err(error) => Some(Lookup::Unknown(error)),
            };
            let answer = answer.unwrap_or_else(|| Lookup::Unknown(ProviderError::bug("the look-up has no answer")));
            question.answer(&answer);
            answer
        });
        let answers = futures::future::join_all(answers).await;
        self.count(&Ok(answers), began);
    }

    /// Looks the nodes up in one call and answers the callers. A batch that fails as a whole is halved, since one node
    /// may be the reason; the number of calls is limited, since that does not help when the cloud is down. After a
    /// time-out, it is not halved now.
    fn lookup<'a>(&'a self, questions: Vec<Question>, aspects: Aspects, calls: &'a Calls) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let nodes: Vec<NodeRef> = questions.iter().map(|question| question.node.clone()).collect();
            let failure = match self.call(&nodes, aspects).await {
                Ok(answers) => {
                    let mut state = self.lock();
                    for (question, answer) in questions.into_iter().zip(answers) {
                        state.suspects.remove(&question.asked());
                        question.answer(&answer);
                    }
                    return;
                }
                Err(failure) => failure,
            };
            let is_small = questions.len() <= SPLIT_TO;
            let timed_out = failure.is_deadline();
            calls.timed_out.fetch_or(timed_out && !is_small, Ordering::Relaxed);
            let exhausted = calls.extra.fetch_add(2, Ordering::Relaxed) >= EXTRA_CALLS;
            if is_small || exhausted || timed_out {
                if is_small && !exhausted {
                    let suspects = &mut self.lock().suspects;
                    if suspects.len() + nodes.len() > SUSPECTS_KEPT {
                        suspects.clear();
                    }
                    suspects.extend(nodes.iter().map(Asked::of));
                }
                let answer = Lookup::Unknown(failure);
                questions.into_iter().for_each(|question| question.answer(&answer));
                return;
            }
            let mut left = questions;
            let right = left.split_off(left.len() / 2);
            futures::join!(self.lookup(left, aspects, calls), self.lookup(right, aspects, calls));
        })
    }

    async fn call(&self, nodes: &[NodeRef], aspects: Aspects) -> Result<Vec<Lookup>, ProviderError> {
        let began = Instant::now();
        let answer = self.ask_provider(nodes, aspects, READ_DEADLINE).await;
        self.count(&answer, began);
        answer
    }

    /// One call to the provider. A panic, a hanging call and a wrong number of answers are failures of the whole call.
    async fn ask_provider(
        &self,
        nodes: &[NodeRef],
        aspects: Aspects,
        limit: Duration,
    ) -> Result<Vec<Lookup>, ProviderError> {
        let call = AssertUnwindSafe(self.provider.lookup(nodes, aspects)).catch_unwind();
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answers)) if answers.len() == nodes.len() => Ok(answers),
            Ok(Ok(answers)) => {
                let text = format!("the provider answered for {} of {} nodes", answers.len(), nodes.len());
                tracing::error!("{text}: nothing is concluded from it");
                Err(ProviderError::bug(text))
            }
            Ok(Err(panic)) => Err(self.panicked(&*panic)),
            Err(_) => Err(ProviderError::deadline("the look-up of instances", limit)),
        }
    }

    fn count(&self, answer: &Result<Vec<Lookup>, ProviderError>, began: Instant) {
        let unknown = answer.iter().flatten().find_map(|answer| match answer {
            Lookup::Unknown(error) => Some(error),
            _ => None,
        });
        let error = answer.as_ref().err().or(unknown);
        self.metrics.provider_call("LookupInstances", error, began.elapsed());
        if error.is_none() {
            self.metrics.observed("instances");
        }
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> ProviderError {
        self.metrics.panicked("provider");
        let text = panic_text(panic);
        tracing::error!(panic = text, "the provider panicked");
        ProviderError::bug(format!("the provider panicked: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use ccm_provider::{InstanceMetadata, LegacyInstances, Node, NodeAddress, OneByOne};

    use super::*;

    #[derive(Default)]
    struct Cloud {
        calls: Mutex<Vec<usize>>,
        poison: Option<&'static str>,
        hangs: Option<&'static str>,
        one_by_one: bool,
        short: bool,
    }

    #[async_trait]
    impl InstancesV2 for Cloud {
        async fn lookup(&self, nodes: &[NodeRef], _aspects: Aspects) -> Vec<Lookup> {
            self.calls.lock().push(nodes.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(!nodes.iter().any(|node| Some(&*node.name) == self.poison), "poisoned");
            if nodes.iter().any(|node| Some(&*node.name) == self.hangs) {
                tokio::time::sleep(2 * READ_DEADLINE).await;
            }
            let answers = nodes.iter().map(|_| Lookup::found(InstanceMetadata::default()));
            answers.skip(usize::from(self.short)).collect()
        }

        fn is_one_by_one(&self) -> bool {
            self.one_by_one
        }
    }

    fn view(cloud: Cloud) -> (Arc<Cloud>, Arc<InstanceView>) {
        let cloud = Arc::new(cloud);
        (cloud.clone(), InstanceView::new(cloud, Schemes::new(["fake"]), Metrics::new()))
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
    async fn five_thousand_nodes_within_ten_seconds_are_few_calls() {
        let (cloud, view) = view(Cloud::default());
        let mut tasks = Vec::new();
        for i in 0..500 {
            let view = view.clone();
            tasks.push(tokio::spawn(
                async move { view.get(&nodes(i * 10..i * 10 + 10), Aspects::METADATA).await.len() },
            ));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), 10);
        }
        let calls = cloud.calls.lock();
        assert!(calls.len() <= 20, "{calls:?}");
        assert_eq!(calls.iter().sum::<usize>(), 5000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_cornered_by_halving_and_the_next_time_its_node_is_asked_about_alone() {
        let (cloud, view) = view(Cloud { poison: Some("n70"), ..Cloud::default() });
        let answers = view.get(&nodes(0..128), Aspects::METADATA).await;
        let unknown = |answers: &[Lookup]| -> Vec<usize> {
            (0..answers.len()).filter(|i| matches!(answers[*i], Lookup::Unknown(_))).collect()
        };
        assert_eq!(unknown(&answers).len(), 8);
        assert!(unknown(&answers).contains(&70));
        assert!(cloud.calls.lock().iter().all(|n| *n >= 8));
        cloud.calls.lock().clear();
        let answers = view.get(&nodes(0..128), Aspects::METADATA).await;
        assert_eq!(unknown(&answers), [70]);
        let mut calls = cloud.calls.lock().clone();
        calls.sort_unstable();
        assert_eq!(calls, [1, 1, 1, 1, 1, 1, 1, 1, 120]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_no_reason_for_more_calls_and_is_cornered_by_the_next_lookups() {
        let (cloud, view) = view(Cloud { hangs: Some("n70"), ..Cloud::default() });
        let mut unknown = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            let answers = view.get(&nodes(0..128), Aspects::METADATA).await;
            assert!(began.elapsed() < READ_DEADLINE + Duration::from_secs(2), "{:?}", began.elapsed());
            unknown.push(answers.iter().filter(|answer| matches!(answer, Lookup::Unknown(_))).count());
        }
        assert_eq!(unknown, [128, 64, 32, 16, 8, 1]);
        assert_eq!(cloud.calls.lock()[..3], [128, 64, 64]);
        assert_eq!(view.lock().parts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_with_a_call_per_node_answers_for_each_in_its_own_time() {
        let (cloud, view) = view(Cloud { hangs: Some("n7"), one_by_one: true, ..Cloud::default() });
        let began = Instant::now();
        let asked = view.ask(&nodes(0..300), Aspects::METADATA);
        let times = asked.into_iter().map(|answer| async {
            let answer = answer.await;
            assert!(matches!(answer, Lookup::Found(_)), "{answer:?}");
            began.elapsed()
        });
        let times = futures::future::join_all(times).await;
        assert_eq!(times.iter().filter(|time| **time > Duration::from_secs(1)).count(), 1);
        assert!(times[7] > 2 * READ_DEADLINE, "no limit beside that of each call");
        assert_eq!(*cloud.calls.lock(), [1; 300]);
    }

    /// The older interface of a slow cloud, with the number of its calls.
    #[derive(Default)]
    struct Slow(AtomicUsize);

    impl Slow {
        async fn call<T>(&self, answer: T) -> Result<T, ProviderError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(answer)
        }
    }

    #[async_trait]
    impl ccm_provider::Instances for Slow {
        async fn node_addresses(&self, _: &str) -> Result<Vec<NodeAddress>, ProviderError> {
            self.call(Vec::new()).await
        }
        async fn node_addresses_by_provider_id(&self, _: &str) -> Result<Vec<NodeAddress>, ProviderError> {
            self.call(Vec::new()).await
        }
        async fn instance_id(&self, node: &str) -> Result<String, ProviderError> {
            self.call(node.to_owned()).await
        }
        async fn instance_type(&self, _: &str) -> Result<String, ProviderError> {
            self.call(String::new()).await
        }
        async fn instance_type_by_provider_id(&self, _: &str) -> Result<String, ProviderError> {
            self.call(String::new()).await
        }
        async fn instance_exists_by_provider_id(&self, _: &str) -> Result<bool, ProviderError> {
            self.call(true).await
        }
        async fn instance_shutdown_by_provider_id(&self, _: &str) -> Result<bool, ProviderError> {
            self.call(false).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_older_interface_of_a_slow_cloud_answers_for_all_nodes_in_one_pass() {
        let cloud = Arc::new(Slow::default());
        let instances = OneByOne::new(LegacyInstances::new("fake", cloud.clone(), None), 20);
        let view = InstanceView::new(Arc::new(instances), Schemes::new(["fake"]), Metrics::new());
        let began = Instant::now();
        let answers = view.get(&nodes(0..300), Aspects::ADDRESSES).await;
        assert!(began.elapsed() > READ_DEADLINE, "{:?}", began.elapsed());
        let has_addresses =
            |answer: &Lookup| matches!(answer, Lookup::Found(found) if matches!(found.metadata, Ok(Some(_))));
        assert!(answers.iter().all(has_addresses), "{answers:?}");
        assert_eq!(cloud.0.load(Ordering::SeqCst), 300);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_is_away_costs_a_bounded_number_of_calls() {
        let (cloud, view) = view(Cloud { short: true, ..Cloud::default() });
        view.get(&nodes(0..5000), Aspects::METADATA).await;
        assert!(cloud.calls.lock().len() <= 2 * EXTRA_CALLS, "{:?}", cloud.calls);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_number_of_answers_is_no_answer() {
        let (_, view) = view(Cloud { short: true, ..Cloud::default() });
        let answers = view.get(&nodes(0..4), Aspects::LIFECYCLE).await;
        assert!(answers.iter().all(|a| matches!(a, Lookup::Unknown(_))), "{answers:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_of_one_name_share_no_answer_unless_they_are_the_same() {
        let (cloud, view) = view(Cloud::default());
        let node = |uid: &str, id: &str| {
            Arc::new(Node { name: "n".into(), uid: uid.into(), provider_id: Some(id.into()), ..Node::default() })
        };
        let (old, new, moved) = (node("1", "fake://a"), node("2", "fake://a"), node("2", "fake://b"));
        view.get(&[old.clone(), new, moved, old], Aspects::METADATA).await;
        assert_eq!(*cloud.calls.lock(), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn suspects_that_are_never_asked_about_again_are_forgotten() {
        let (_, view) = view(Cloud { short: true, ..Cloud::default() });
        for i in 0..2 * SUSPECTS_KEPT {
            view.get(&nodes(i..i + 1), Aspects::METADATA).await;
        }
        assert!(view.lock().suspects.len() <= SUSPECTS_KEPT);
    }
}
