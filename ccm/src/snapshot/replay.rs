//! A provider that answers from a snapshot.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    Aspects, CloudProvider, ErrorClass, GroupKey, InstancesV2, LoadBalancer, LoadBalancerStatus, Lookup, NewRoute,
    Node, NodeChanges, NodeRef, NodeTask, NodeTaskLimits, NodeWork, PersistentVolume, Plan, PodInterface, PodRanges,
    ProviderError, Registry, Related, Route, Routes, Schemes, Scope, Service, ServiceAnswer, ServiceWork, VolumeLabels,
    VolumeSource, Volumes,
};
use serde_json::Value;

use super::record::{Answer, Answers, Source, Task, action_word, aspects_word};

/// The provider's planner for Services, or the reason why there is none.
type Planner = Result<Arc<dyn LoadBalancer>, String>;

fn planner(registry: &Registry, name: &str, facts: &Value, flags: &FlagValues) -> Planner {
    let Some(factory) = registry.get(name) else {
        let known = registry.names().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "the provider {name:?} of the snapshot is not compiled into this program (compiled in: {known}); use the program that took it"
        ));
    };
    match factory.replay(facts, flags) {
        Ok(Some(planner)) => Ok(planner),
        Ok(None) => Err(format!("the provider {name:?} cannot make plans for Services without its cloud")),
        Err(error) => Err(format!("the facts of the provider {name:?} in the snapshot cannot be read: {error}")),
    }
}

/// The answers of a snapshot as a provider, with all its interfaces.
#[derive(Clone)]
pub(crate) struct Replay {
    name: String,
    schemes: Schemes,
    unmanaged: Option<(String, String)>,
    answers: Arc<Answers>,
    planner: Planner,
    sources: Vec<VolumeSource>,
}

impl Replay {
    /// The provider of the snapshot, with its answers.
    pub(crate) fn new(provider: super::Provider, answers: Answers, registry: &Registry, flags: &FlagValues) -> Self {
        let planner = planner(registry, &flags.text("cloud-provider"), &provider.facts, flags);
        let schemes = provider.schemes.unwrap_or_else(|| Schemes::new([&*provider.name]));
        let sources = answers.volumes.iter().flat_map(|labeler| &labeler.sources).map(source).collect();
        let unmanaged = provider.unmanaged;
        Self { name: provider.name, schemes, unmanaged, answers: Arc::new(answers), planner, sources }
    }
}

/// The error for a call that the recorded pass did not make.
fn missing(question: &str) -> ProviderError {
    ProviderError::unknown(format!(
        "the snapshot has no answer to this question: {question}. It was taken by another version, or changed; take it again"
    ))
}

fn refused() -> ProviderError {
    ProviderError::bug("a snapshot cannot be written to")
}

#[async_trait]
impl CloudProvider for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn provider_id_schemes(&self) -> Schemes {
        self.schemes.clone()
    }

    fn unmanaged_label(&self) -> Option<(&str, &str)> {
        self.unmanaged.as_ref().map(|(key, value)| (&**key, &**value))
    }

    fn pod_ranges(&self) -> Option<Arc<dyn PodRanges>> {
        self.answers.pod_ranges.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        self.answers.instances.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.answers.load_balancers.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.answers.routes.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        self.answers.volumes.as_ref()?;
        Some(Arc::new(self.clone()))
    }

    fn node_task(&self, name: &str) -> Option<Arc<dyn NodeTask>> {
        let task = self.answers.node_tasks.get(name)?.clone();
        Some(Arc::new(ReplayedTask { name: name.to_owned(), task }))
    }
}

impl Replay {
    /// The answer for this node.
    fn one(&self, node: &Node, aspects: &str) -> Lookup {
        let answers = self.answers.instances.as_ref().and_then(|instances| instances.lookups.get(node.name.as_str()));
        let unknown = || Lookup::Unknown(missing(&format!("{aspects} of the instance of node {}", node.name)));
        answers.and_then(|answers| answers.get(aspects)).cloned().unwrap_or_else(unknown)
    }
}

#[async_trait]
impl InstancesV2 for Replay {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let word = aspects_word(aspects);
        nodes.iter().map(|node| self.one(node, &word)).collect()
    }

    fn provider_id_required(&self) -> bool {
        self.answers.instances.as_ref().is_none_or(|instances| instances.provider_id_required)
    }
}

#[async_trait]
impl LoadBalancer for Replay {
    async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let key = service.key().to_string();
        let answer = self.answers.load_balancers.as_ref().and_then(|kept| kept.status.get(&key));
        answer.map_or_else(|| Err(missing(&format!("the load balancer of service {key}"))), Answer::result)
    }

    fn name(&self, cluster: &str, service: &Service) -> String {
        match &self.planner {
            Ok(planner) => planner.name(cluster, service),
            Err(_) => service.default_load_balancer_name(),
        }
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        match &self.planner {
            Ok(planner) => planner.groups(service),
            Err(_) => [GroupKey(service.key().to_string())].into(),
        }
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        match &self.planner {
            Ok(planner) => planner.backend(service, node),
            Err(_) => Some(node.provider_id_or_empty().into()),
        }
    }

    fn related(&self) -> Related {
        self.planner.as_ref().map_or_else(|_| Related::default(), |planner| planner.related())
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        self.planner.as_ref().is_ok_and(|planner| planner.only_nodes_with_endpoints(service))
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        self.planner.as_ref().ok()?.unselective(service)
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.planner.as_ref().map_or_else(|_| Vec::new(), |planner| planner.finalizers(service))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        work.iter().map(|_| Err(refused()).into()).collect()
    }

    async fn observe(&self, _: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        let (key, action) = (item.service.key().to_string(), action_word(item.action));
        let answers = self.answers.load_balancers.as_ref().and_then(|kept| kept.observed.get(&key));
        let answer = answers.and_then(|answers| answers.get(action));
        let question = || format!("what there is for service {key}, to {action} its load balancer");
        answer.map_or_else(|| Err(missing(&question())), Answer::result)
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        match &self.planner {
            Ok(planner) => planner.plan_observed(cluster, item, observed),
            Err(why) => Err(ProviderError::new(ErrorClass::Unsupported, why.clone())),
        }
    }
}

#[async_trait]
impl Routes for Replay {
    async fn list(&self, _: &str) -> Result<Vec<Route>, ProviderError> {
        let answer = self.answers.routes.as_ref().and_then(|kept| kept.list.as_ref());
        answer.map_or_else(|| Err(missing("the list of routes")), Answer::result)
    }

    async fn create(&self, _: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        routes.iter().map(|_| Err(refused())).collect()
    }

    async fn delete(&self, _: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        routes.iter().map(|_| Err(refused())).collect()
    }
}

/// The contract requires static strings: unknown ones are leaked. A process reads one snapshot, which has few sources.
fn source(source: &Source) -> VolumeSource {
    let known = VolumeSource::ALL.into_iter().find(|known| Source::from(known) == *source);
    let leak = |text: &String| -> &'static str { text.clone().leak() };
    known.unwrap_or_else(|| VolumeSource {
        field: leak(&source.field),
        id: leak(&source.id),
        driver: source.driver.as_ref().map(leak),
        words: leak(&source.words),
    })
}

#[async_trait]
impl PodRanges for Replay {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        let kept = self.answers.pod_ranges.as_ref();
        let one = |node: &NodeRef| {
            let answer = kept.and_then(|kept| kept.get(node.name.as_str()));
            answer.map_or_else(|| Err(missing(&format!("pod ranges of node {}", node.name))), Answer::result)
        };
        nodes.iter().map(one).collect()
    }
}

#[async_trait]
impl Volumes for Replay {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Result<Option<VolumeLabels>, ProviderError>> {
        let kept = self.answers.volumes.as_ref();
        let one = |volume: &PersistentVolume| {
            let answer = kept.and_then(|kept| kept.labels.get(&*volume.metadata.name));
            let question = || format!("labels of volume {}", volume.metadata.name);
            answer.map_or_else(|| Err(missing(&question())), Answer::result)
        };
        volumes.iter().map(one).collect()
    }

    fn sources(&self) -> &[VolumeSource] {
        &self.sources
    }
}

struct ReplayedTask {
    name: String,
    task: Task,
}

#[async_trait]
impl NodeTask for ReplayedTask {
    fn limits(&self) -> NodeTaskLimits {
        self.task.limits
    }

    fn is_due(&self, node: &Node) -> bool {
        self.task.due.contains(node.name.as_str())
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        work.iter().map(|_| Err(refused())).collect()
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let answer = self.task.plans.get(work.name.as_str());
        let question = || format!("what the controller {} does for node {}", self.name, work.name);
        answer.map_or_else(|| Err(missing(&question())), Answer::result)
    }
}
