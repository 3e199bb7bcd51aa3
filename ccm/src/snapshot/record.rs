//! A provider that records all answers of another one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::deadline::READ_DEADLINE;
use ccm_provider::{
    Aspects, CloudProvider, GroupKey, InstancesV2, LoadBalancer, LoadBalancerStatus, Lookup, NewRoute, Node,
    NodeChanges, NodeRef, NodeTask, NodeTaskLimits, NodeWork, PersistentVolume, Plan, PodInterface, PodRanges,
    ProviderContext, ProviderError, Related, Route, Routes, Schemes, Scope, Service, ServiceAction, ServiceAnswer,
    ServiceWork, VolumeLabels, VolumeSource, Volumes,
};
use ccm_runtime::panics::panic_text;
use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manager;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer<T> {
    Ok(T),
    Error(ProviderError),
}

impl<T: Clone> Answer<T> {
    /// The result as the provider returned it.
    pub(crate) fn result(&self) -> Result<T, ProviderError> {
        match self {
            Self::Ok(answer) => Ok(answer.clone()),
            Self::Error(error) => Err(error.clone()),
        }
    }
}

/// All answers of a provider in one pass. Interfaces that it does not have are `None`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Answers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instances: Option<Instances>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_balancers: Option<Balancers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) routes: Option<RouteTable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volumes: Option<Labeler>,
    /// The network interfaces with pod ranges, by node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_ranges: Option<BTreeMap<String, Answer<Vec<PodInterface>>>>,
    /// The answers by name of the controller.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) node_tasks: BTreeMap<String, Task>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instances {
    pub(crate) provider_id_required: bool,
    /// The lookups by node, then by the requested aspects: `existence+shutdown`.
    #[serde(default)]
    pub(crate) lookups: BTreeMap<String, BTreeMap<String, Lookup>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Balancers {
    pub(crate) status: BTreeMap<String, Answer<Option<LoadBalancerStatus>>>,
    /// The observations by Service, then by action: `ensure`.
    pub(crate) observed: BTreeMap<String, BTreeMap<String, Answer<Value>>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RouteTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) list: Option<Answer<Vec<Route>>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Labeler {
    pub(crate) sources: Vec<Source>,
    /// The labels by name of the PersistentVolume.
    pub(crate) labels: BTreeMap<String, Answer<Option<VolumeLabels>>>,
}

/// [`VolumeSource`] as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) field: String,
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    pub(crate) words: String,
}

impl From<&VolumeSource> for Source {
    fn from(source: &VolumeSource) -> Self {
        let VolumeSource { field, id, driver, words } = *source;
        Self { field: field.into(), id: id.into(), driver: driver.map(Into::into), words: words.into() }
    }
}

/// Answers of one [`NodeTask`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) limits: NodeTaskLimits,
    /// The nodes that need work.
    #[serde(default)]
    pub(crate) due: BTreeSet<String>,
    /// The plans by node.
    #[serde(default)]
    pub(crate) plans: BTreeMap<String, Answer<Plan>>,
}

impl Answers {
    /// The number of answers that are errors.
    pub(crate) fn errors(&self) -> usize {
        fn of<'a, T: 'a>(answers: impl IntoIterator<Item = &'a Answer<T>>) -> usize {
            answers.into_iter().filter(|answer| matches!(answer, Answer::Error(_))).count()
        }
        let lookups = self.instances.iter().flat_map(|instances| instances.lookups.values());
        let instances =
            lookups.flat_map(BTreeMap::values).filter(|answer| matches!(answer, Lookup::Unknown(_))).count();
        let balancers = self.load_balancers.as_ref().map_or(0, |Balancers { status, observed }| {
            of(status.values()) + of(observed.values().flat_map(BTreeMap::values))
        });
        let routes = of(self.routes.iter().flat_map(|routes| &routes.list));
        let volumes = of(self.volumes.iter().flat_map(|volumes| volumes.labels.values()));
        let ranges = of(self.pod_ranges.iter().flat_map(BTreeMap::values));
        let tasks = of(self.node_tasks.values().flat_map(|task| task.plans.values()));
        instances + balancers + routes + volumes + ranges + tasks
    }
}

/// `existence+shutdown`
pub(crate) fn aspects_word(aspects: Aspects) -> String {
    let Aspects { existence, shutdown, addresses, metadata } = aspects;
    let all = [(existence, "existence"), (shutdown, "shutdown"), (addresses, "addresses"), (metadata, "metadata")];
    let asked: Vec<&str> = all.into_iter().filter_map(|(asked, word)| asked.then_some(word)).collect();
    asked.join("+")
}

/// `ensure`, `update-hosts`, `delete`
pub(crate) fn action_word(action: ServiceAction) -> &'static str {
    match action {
        ServiceAction::Ensure => "ensure",
        ServiceAction::UpdateHosts => "update-hosts",
        ServiceAction::Delete => "delete",
    }
}

/// The answers so far; shared by the parts of a [`Recorder`] and its reader.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Answers>>);

impl Record {
    pub(crate) fn answers(&self) -> Answers {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock()
    }

    fn instances(&self, keep: impl FnOnce(&mut Instances)) {
        self.lock().instances.as_mut().map(keep).unwrap_or_default();
    }

    fn balancers(&self, keep: impl FnOnce(&mut Balancers)) {
        keep(self.lock().load_balancers.get_or_insert_default());
    }

    fn lookups(&self, nodes: &[NodeRef], aspects: &str, answer: impl Fn(usize) -> Lookup) {
        self.instances(|kept| {
            for (at, node) in nodes.iter().enumerate() {
                kept.lookups.entry(node.name.to_string()).or_default().insert(aspects.to_owned(), answer(at));
            }
        });
    }
}

/// Waits for an answer. If dropped earlier, calls `lost` with the deadline error that the core would create.
async fn awaited<T>(name: &str, call: impl Future<Output = T>, lost: impl FnOnce(ProviderError)) -> T {
    struct Waiting<'a, F: FnOnce(ProviderError)>(&'a str, Option<F>);
    impl<F: FnOnce(ProviderError)> Drop for Waiting<'_, F> {
        fn drop(&mut self) {
            if let Some(lost) = self.1.take() {
                lost(ProviderError::deadline(self.0, READ_DEADLINE));
            }
        }
    }
    let mut waiting = Waiting(name, Some(lost));
    let answer = call.await;
    waiting.1 = None;
    answer
}

/// Waits for an answer and records it.
async fn recorded<T: Clone>(
    name: &str,
    call: impl Future<Output = Result<T, ProviderError>>,
    keep: impl Fn(Answer<T>),
) -> Result<T, ProviderError> {
    let answer = awaited(name, call, |error| keep(Answer::Error(error))).await;
    keep(answer.clone().into());
    answer
}

/// Wraps a provider and records all answers. Rejects writes: it is for passes that only read.
pub(crate) struct Recorder {
    inner: Arc<dyn CloudProvider>,
    kept: Record,
}

impl Recorder {
    pub(crate) fn new(inner: Arc<dyn CloudProvider>, kept: Record) -> Self {
        Self { inner, kept }
    }
}

#[async_trait]
impl CloudProvider for Recorder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn event_component(&self) -> &str {
        self.inner.event_component()
    }

    fn provider_id_schemes(&self) -> Schemes {
        self.inner.provider_id_schemes()
    }

    fn unmanaged_label(&self) -> Option<(&str, &str)> {
        self.inner.unmanaged_label()
    }

    fn has_cluster_id(&self) -> bool {
        self.inner.has_cluster_id()
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        self.inner.initialize(context).await
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        // Also adapts the older interface, like the core.
        let inner = manager::instances(&*self.inner)?;
        let provider_id_required = inner.provider_id_required();
        let empty = || Instances { provider_id_required, lookups: BTreeMap::new() };
        self.kept.lock().instances.get_or_insert_with(empty);
        Some(Arc::new(Recorded { inner, kept: self.kept.clone() }))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        let inner = self.inner.load_balancer()?;
        self.kept.balancers(|_| {});
        Some(Arc::new(Recorded { inner, kept: self.kept.clone() }))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        let inner = self.inner.routes()?;
        self.kept.lock().routes.get_or_insert_default();
        Some(Arc::new(Recorded { inner, kept: self.kept.clone() }))
    }

    fn pod_ranges(&self) -> Option<Arc<dyn PodRanges>> {
        let inner = self.inner.pod_ranges()?;
        self.kept.lock().pod_ranges.get_or_insert_default();
        Some(Arc::new(Recorded { inner, kept: self.kept.clone() }))
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        let inner = self.inner.volumes()?;
        let sources = inner.sources().iter().map(Source::from).collect();
        let empty = || Labeler { sources, labels: BTreeMap::new() };
        self.kept.lock().volumes.get_or_insert_with(empty);
        Some(Arc::new(Recorded { inner, kept: self.kept.clone() }))
    }

    fn node_task(&self, name: &str) -> Option<Arc<dyn NodeTask>> {
        let inner = self.inner.node_task(name)?;
        let empty = || Task { limits: inner.limits(), due: BTreeSet::new(), plans: BTreeMap::new() };
        self.kept.lock().node_tasks.entry(name.to_owned()).or_insert_with(empty);
        Some(Arc::new(RecordedTask { inner, name: name.to_owned(), kept: self.kept.clone() }))
    }

    fn facts(&self) -> Value {
        self.inner.facts()
    }

    fn node_annotations(&self) -> &[&str] {
        self.inner.node_annotations()
    }

    fn node_selector(&self) -> Option<&str> {
        self.inner.node_selector()
    }

    fn service_annotations(&self) -> &[&str] {
        self.inner.service_annotations()
    }
}

/// An interface whose answers are recorded.
struct Recorded<T: ?Sized> {
    inner: Arc<T>,
    kept: Record,
}

fn refused() -> ProviderError {
    ProviderError::bug("a read-only pass called a method that writes")
}

#[async_trait]
impl InstancesV2 for Recorded<dyn InstancesV2> {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let word = aspects_word(aspects);
        // Errors of a whole call have the same text as in the core's view, which receives them next.
        let failed = |error: ProviderError| self.kept.lookups(nodes, &word, |_| Lookup::Unknown(error.clone()));
        let call = AssertUnwindSafe(self.inner.lookup(nodes, aspects)).catch_unwind();
        match awaited("the look-up of instances", call, failed).await {
            Ok(answers) if answers.len() == nodes.len() => {
                let unknown = || Lookup::Unknown(ProviderError::bug("the look-up ended without an answer"));
                self.kept.lookups(nodes, &word, |at| answers.get(at).cloned().unwrap_or_else(unknown));
                answers
            }
            Ok(answers) => {
                let text = format!("the provider answered for {} of {} nodes", answers.len(), nodes.len());
                failed(ProviderError::bug(text));
                answers
            }
            Err(panic) => {
                failed(ProviderError::bug(format!("the provider panicked: {}", panic_text(&*panic))));
                resume_unwind(panic)
            }
        }
    }

    fn is_one_by_one(&self) -> bool {
        self.inner.is_one_by_one()
    }

    fn provider_id_required(&self) -> bool {
        self.inner.provider_id_required()
    }
}

#[async_trait]
impl LoadBalancer for Recorded<dyn LoadBalancer> {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let keep = |answer: Answer<_>| {
            self.kept.balancers(|kept| drop(kept.status.insert(service.key().to_string(), answer)));
        };
        recorded("GetLoadBalancer", self.inner.get(cluster, service), keep).await
    }

    fn name(&self, cluster: &str, service: &Service) -> String {
        self.inner.name(cluster, service)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.inner.groups(service)
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.inner.backend(service, node)
    }

    fn related(&self) -> Related {
        self.inner.related()
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        self.inner.only_nodes_with_endpoints(service)
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        self.inner.unselective(service)
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.inner.finalizers(service)
    }

    fn adds_finalizers(&self) -> bool {
        self.inner.adds_finalizers()
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        work.iter().map(|_| Err(refused()).into()).collect()
    }

    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        let keep = |answer: Answer<Value>| {
            let (key, action) = (item.service.key().to_string(), action_word(item.action).to_owned());
            self.kept.balancers(|kept| drop(kept.observed.entry(key).or_default().insert(action, answer)));
        };
        recorded("the plan", self.inner.observe(cluster, item), keep).await
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        self.inner.plan_observed(cluster, item, observed)
    }
}

#[async_trait]
impl Routes for Recorded<dyn Routes> {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let keep = |answer: Answer<_>| self.kept.lock().routes.get_or_insert_default().list = Some(answer);
        recorded("ListRoutes", self.inner.list(cluster), keep).await
    }

    async fn create(&self, _: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        routes.iter().map(|_| Err(refused())).collect()
    }

    async fn delete(&self, _: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        routes.iter().map(|_| Err(refused())).collect()
    }
}

impl Recorded<dyn Volumes> {
    fn keep(&self, volume: &PersistentVolume, answer: Answer<Option<VolumeLabels>>) {
        let mut kept = self.kept.lock();
        kept.volumes.get_or_insert_default().labels.insert(volume.metadata.name.to_string(), answer);
    }
}

#[async_trait]
impl Volumes for Recorded<dyn Volumes> {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Result<Option<VolumeLabels>, ProviderError>> {
        let failed = |error: ProviderError| {
            volumes.iter().for_each(|volume| self.keep(volume, Answer::Error(error.clone())));
        };
        let answers = awaited("GetLabelsForVolume", self.inner.labels(volumes), failed).await;
        if answers.len() == volumes.len() {
            volumes.iter().zip(&answers).for_each(|(volume, answer)| self.keep(volume, answer.clone().into()));
        } else {
            let text = format!("the provider answered for {} of {} volumes", answers.len(), volumes.len());
            failed(ProviderError::bug(text));
        }
        answers
    }

    fn sources(&self) -> &[VolumeSource] {
        self.inner.sources()
    }
}

impl Recorded<dyn PodRanges> {
    fn keep(&self, node: &NodeRef, answer: Answer<Vec<PodInterface>>) {
        self.kept.lock().pod_ranges.get_or_insert_default().insert(node.name.to_string(), answer);
    }
}

#[async_trait]
impl PodRanges for Recorded<dyn PodRanges> {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        let failed = |error: ProviderError| nodes.iter().for_each(|node| self.keep(node, Answer::Error(error.clone())));
        let answers = awaited("PodRanges", self.inner.pod_ranges(nodes), failed).await;
        if answers.len() == nodes.len() {
            nodes.iter().zip(&answers).for_each(|(node, answer)| self.keep(node, answer.clone().into()));
        } else {
            failed(ProviderError::bug(format!(
                "the provider gave {} answers for {} nodes",
                answers.len(),
                nodes.len()
            )));
        }
        answers
    }
}

struct RecordedTask {
    inner: Arc<dyn NodeTask>,
    name: String,
    kept: Record,
}

impl RecordedTask {
    fn keep(&self, keep: impl FnOnce(&mut Task)) {
        self.kept.lock().node_tasks.get_mut(&self.name).map(keep).unwrap_or_default();
    }
}

#[async_trait]
impl NodeTask for RecordedTask {
    fn limits(&self) -> NodeTaskLimits {
        self.inner.limits()
    }

    fn is_due(&self, node: &Node) -> bool {
        let due = self.inner.is_due(node);
        if due {
            self.keep(|task| {
                task.due.insert(node.name.to_string());
            });
        }
        due
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        work.iter().map(|_| Err(refused())).collect()
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let answer = self.inner.plan(work).await;
        self.keep(|task| drop(task.plans.insert(work.name.to_string(), answer.clone().into())));
        answer
    }
}
