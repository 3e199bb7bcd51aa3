//! The cluster of a test, as a provider sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ccm_provider::{
    Clock, ConfigMapData, ConfigMapSpec, ConfigMaps, EventSink, EventType, LeaderToken, NodeReader, NodeRef,
    ObjectChange, ProviderContext, ProviderError, Service, ServiceKey, ServiceReader, SharedInformers, Subject,
};
use parking_lot::{Mutex, MutexGuard};

type Time = dyn Fn() -> (Instant, SystemTime) + Send + Sync;

/// Test implementation of everything in a [`ProviderContext`]: nodes and Services that the test sets, events that it
/// reads, a clock, and permanent leadership.
pub struct TestCluster {
    state: Mutex<State>,
    time: Box<Time>,
}

#[derive(Default)]
struct State {
    nodes: Vec<NodeRef>,
    services: Vec<Arc<Service>>,
    config_maps: BTreeMap<(&'static str, &'static str), ConfigMapData>,
    events: Vec<String>,
    /// The offset of the clock from `time`.
    passed: Duration,
}

impl Default for TestCluster {
    fn default() -> Self {
        Self::with_clock(|| (Instant::now(), SystemTime::now()))
    }
}

impl std::fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestCluster")
    }
}

impl TestCluster {
    /// A cluster with its own monotonic clock and wall clock.
    pub fn with_clock(time: impl Fn() -> (Instant, SystemTime) + Send + Sync + 'static) -> Self {
        Self { state: Mutex::default(), time: Box::new(time) }
    }

    /// A cluster whose clocks follow the clock of a simulated cloud.
    pub fn following(wall: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        let (began, start) = (Instant::now(), wall());
        Self::with_clock(move || {
            let now = wall();
            (began + now.duration_since(start).unwrap_or_default(), now)
        })
    }

    /// The context that the core passes to [`ccm_provider::CloudProvider::initialize`].
    pub fn context(self: &Arc<Self>, cluster_name: &str) -> ProviderContext {
        let me = || self.clone();
        ProviderContext::new(cluster_name.into(), me(), me(), me(), me(), me(), me())
    }

    /// Replaces the nodes.
    pub fn set_nodes(&self, nodes: Vec<NodeRef>) {
        self.state().nodes = nodes;
    }

    /// Adds a node.
    pub fn add_node(&self, node: NodeRef) {
        self.state().nodes.push(node);
    }

    /// Replaces the Services.
    pub fn set_services(&self, services: impl IntoIterator<Item = Service>) {
        self.state().services = services.into_iter().map(Arc::new).collect();
    }

    /// Creates a ConfigMap, or replaces its data.
    pub fn set_config_map(&self, spec: &ConfigMapSpec, data: ConfigMapData) {
        self.state().config_maps.insert((spec.namespace, spec.name), data);
    }

    /// Deletes a ConfigMap.
    pub fn remove_config_map(&self, spec: &ConfigMapSpec) {
        self.state().config_maps.remove(&(spec.namespace, spec.name));
    }

    /// The data of a ConfigMap.
    pub fn config_map(&self, spec: &ConfigMapSpec) -> Option<ConfigMapData> {
        self.state().config_maps.get(&(spec.namespace, spec.name)).cloned()
    }

    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        self.state().passed += time;
    }

    /// The events since the last call, as `reason: message`.
    pub fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.state().events)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl NodeReader for TestCluster {
    fn get(&self, name: &str) -> Option<NodeRef> {
        self.state().nodes.iter().find(|node| &*node.name == name).cloned()
    }
    fn list(&self) -> Vec<NodeRef> {
        self.state().nodes.clone()
    }
}

impl ServiceReader for TestCluster {
    fn get(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.state().services.iter().find(|service| service.key() == *key).cloned()
    }
    fn list(&self) -> Vec<Arc<Service>> {
        self.state().services.clone()
    }
}

impl EventSink for TestCluster {
    fn event(&self, _: &Subject, _: EventType, reason: &str, message: &str) {
        self.state().events.push(format!("{reason}: {message}"));
    }
}

impl Clock for TestCluster {
    fn now(&self) -> Instant {
        (self.time)().0 + self.state().passed
    }
    fn wall(&self) -> SystemTime {
        (self.time)().1 + self.state().passed
    }
}

#[async_trait]
impl LeaderToken for TestCluster {
    fn is_leading(&self) -> bool {
        true
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl ConfigMaps for TestCluster {
    async fn get(&self, spec: &ConfigMapSpec) -> Result<Option<ConfigMapData>, ProviderError> {
        Ok(self.config_map(spec))
    }
    async fn create(&self, spec: &ConfigMapSpec, data: ConfigMapData) -> Result<ConfigMapData, ProviderError> {
        Ok(self.state().config_maps.entry((spec.namespace, spec.name)).or_insert(data).clone())
    }
}

impl SharedInformers for TestCluster {
    fn on_node(&self, _: Box<dyn Fn(ObjectChange<NodeRef>) + Send + Sync>) {}
    fn on_service(&self, _: Box<dyn Fn(ObjectChange<Arc<Service>>) + Send + Sync>) {}
}
