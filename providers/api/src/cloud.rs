//! The root of a provider, and the context that the core passes to it.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use serde_json::Value;

use crate::config_map::ConfigMaps;
use crate::error::{ErrorClass, ProviderError};
use crate::inspect::Inspect;
use crate::instance::InstancesV2;
use crate::legacy::{Instances, Zones};
use crate::load_balancer::LoadBalancer;
use crate::metric;
use crate::node::{NodeName, NodeRef, Schemes};
use crate::node_task::NodeTask;
use crate::pod_ranges::PodRanges;
use crate::route::Routes;
use crate::service::{Service, ServiceKey};
use crate::volume::Volumes;

/// A cloud provider.
///
/// The accessors that return `Some` determine the controllers that run. The core caches their results after
/// [`CloudProvider::initialize`] returns.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// The name in logs (`aws`, `azure`, `gce`, `openstack`); by default also the provider ID scheme of its nodes.
    fn name(&self) -> &str;

    /// The schemes of the provider IDs of its nodes: nodes with another scheme are counted and never modified.
    fn provider_id_schemes(&self) -> Schemes {
        Schemes::new([self.name()])
    }

    /// The component that its events name, usually that of the Go program. Those of controllers have the controller's.
    fn event_component(&self) -> &str {
        "cloud-controller-manager"
    }

    /// Key and value of the label of nodes that another program manages. `cloud-node-controller`,
    /// `cloud-node-lifecycle-controller` and `node-ipam-controller` ignore such nodes: they do not initialize or delete
    /// them or assign pod ranges to them; their existing ranges stay occupied. All other controllers handle them.
    fn unmanaged_label(&self) -> Option<(&str, &str)> {
        None
    }

    /// Whether the cloud has a cluster ID or needs none. If false, the process exits unless `--allow-untagged-cloud` is
    /// given.
    fn has_cluster_id(&self) -> bool {
        true
    }

    /// Called once per provider, after this process becomes leader and before any controller starts. May start
    /// background tasks, which must end with [`ProviderContext::leader`]. Must not block for long: the controllers wait
    /// for it. Report configuration errors in [`crate::ProviderFactory::build`].
    ///
    /// # Errors
    ///
    /// The cloud cannot be used: the process releases its lease and exits with this error, and is then restarted. After
    /// a configuration change ([`crate::ConfigSource::reload`]) it returns to the previous configuration instead.
    async fn initialize(&self, _context: ProviderContext) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Instances in batches; preferred. If this and [`CloudProvider::legacy_instances`] are `None`, the node
    /// controllers are skipped.
    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }

    /// The older interface, used only if [`CloudProvider::instances`] is absent.
    fn legacy_instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }

    /// Used together with [`CloudProvider::legacy_instances`].
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }

    /// `None`: the service controller is skipped.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }

    /// `None`: the route controller is skipped with a warning.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }

    /// `None`: `--cidr-allocator-type=CloudAllocator` is an error at the start of `node-ipam-controller`.
    fn pod_ranges(&self) -> Option<Arc<dyn PodRanges>> {
        None
    }

    /// `None`: volumes are not labeled.
    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        None
    }

    /// The [`crate::ProviderFactory::node_tasks`] controller with this name; `None`: that controller does not run.
    fn node_task(&self, _name: &str) -> Option<Arc<dyn NodeTask>> {
        None
    }

    /// Diagnosis for `ccm explain`, `ccm orphans` and `ccm migrate-check`. `None`: the commands show only the core's
    /// own data.
    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        None
    }

    /// Inputs of plans for Services besides the Service and the result of [`LoadBalancer::observe`]: settings, IDs of
    /// network and cluster. Saved in snapshots for [`crate::ProviderFactory::replay`]; must not contain secrets.
    fn facts(&self) -> Value {
        Value::Null
    }

    /// Metrics of the provider, with names that the program does not use. Read at each scrape.
    fn metrics(&self) -> Option<metric::Registry> {
        None
    }

    /// Exists for parity; no controller calls it.
    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        None
    }

    /// For providers that watch nodes or Services themselves.
    fn informer_user(&self) -> Option<Arc<dyn InformerUser>> {
        None
    }

    /// Node annotations that the provider reads; others are dropped during parsing. Independent of the configuration.
    fn node_annotations(&self) -> &[&str] {
        &[]
    }

    /// A label selector: all controllers ignore other nodes, as if they did not exist. Independent of the configuration.
    fn node_selector(&self) -> Option<&str> {
        None
    }

    /// Prefixes of the Service annotations that the provider reads, for example `loadbalancer.example.com/`.
    /// `service.beta.kubernetes.io` and similar ones need not be listed. Snapshots contain no other annotations of
    /// Services.
    fn service_annotations(&self) -> &[&str] {
        &[]
    }
}

/// Managed Kubernetes clusters of the cloud (upstream: `Clusters`). No controller calls it.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// Names of the clusters.
    async fn list_clusters(&self) -> Result<Vec<String>, ProviderError>;
    /// Address of the API server of a cluster.
    async fn master(&self, cluster_name: &str) -> Result<String, ProviderError>;
}

/// Receives the core's watches after [`CloudProvider::initialize`], before any controller is created.
#[async_trait]
pub trait InformerUser: Send + Sync {
    /// May register handlers. A handler receives all existing objects as additions first, then the changes in order. It
    /// is called by the watch and must not block.
    async fn set_informers(&self, informers: Arc<dyn SharedInformers>);
}

/// The core's watches.
pub trait SharedInformers: Send + Sync {
    /// Calls back for each change of a node.
    fn on_node(&self, handler: Box<dyn Fn(ObjectChange<NodeRef>) + Send + Sync>);
    /// Calls back for each change of a Service.
    fn on_service(&self, handler: Box<dyn Fn(ObjectChange<Arc<Service>>) + Send + Sync>);
}

/// A change received from a watch.
#[derive(Debug, Clone)]
pub enum ObjectChange<T> {
    /// Added, or present when the handler was registered.
    Added(T),
    /// The old and the new state; equal at a resync.
    Updated(T, T),
    /// The last known state.
    Deleted(T),
}

/// The services of the core for a provider.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderContext {
    /// `--cluster-name`
    pub cluster_name: Arc<str>,
    /// The watched nodes.
    pub nodes: Arc<dyn NodeReader>,
    /// The watched Services.
    pub services: Arc<dyn ServiceReader>,
    /// Creates events about objects of the cluster.
    pub events: Arc<dyn EventSink>,
    /// Time; simulated in tests.
    pub clock: Arc<dyn Clock>,
    /// Whether this process still leads with this provider.
    pub leader: Arc<dyn LeaderToken>,
    /// The ConfigMaps of [`crate::ProviderFactory::config_maps`].
    pub config_maps: Arc<dyn ConfigMaps>,
}

impl std::fmt::Debug for ProviderContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderContext").field("cluster_name", &self.cluster_name).finish_non_exhaustive()
    }
}

impl ProviderContext {
    /// Builds the context; called by the core and by tests of providers.
    pub fn new(
        cluster_name: Arc<str>,
        nodes: Arc<dyn NodeReader>,
        services: Arc<dyn ServiceReader>,
        events: Arc<dyn EventSink>,
        clock: Arc<dyn Clock>,
        leader: Arc<dyn LeaderToken>,
        config_maps: Arc<dyn ConfigMaps>,
    ) -> Self {
        Self { cluster_name, nodes, services, events, clock, leader, config_maps }
    }
}

/// Reads the watched nodes; never calls the API server.
pub trait NodeReader: Send + Sync {
    /// The node with this name.
    fn get(&self, name: &str) -> Option<NodeRef>;
    /// The node with this provider ID.
    fn by_provider_id(&self, provider_id: &str) -> Option<NodeRef> {
        self.list().into_iter().find(|node| node.provider_id.as_deref() == Some(provider_id))
    }
    /// All nodes, sorted by name.
    fn list(&self) -> Vec<NodeRef>;
}

/// Reads the watched Services; never calls the API server.
pub trait ServiceReader: Send + Sync {
    /// The Service with this namespace and name.
    fn get(&self, key: &ServiceKey) -> Option<Arc<Service>>;
    /// All Services, sorted by key.
    fn list(&self) -> Vec<Arc<Service>>;
}

/// Accepts events; never blocks, never fails.
pub trait EventSink: Send + Sync {
    /// Records an event. Repeats are counted; bursts are limited.
    fn event(&self, subject: &Subject, kind: EventType, reason: &str, message: &str);

    /// Records a warning about a failure, with the class of the error in the event's annotation [`EVENT_ERROR_CLASS`].
    /// The default omits the class.
    fn failure(&self, subject: &Subject, reason: &str, message: &str, class: Option<&ErrorClass>) {
        let _ = class;
        self.event(subject, EventType::Warning, reason, message);
    }
}

/// Annotation of events that report a failure: [`ErrorClass::as_str`], for tools that explain the failure without
/// access to the error.
pub const EVENT_ERROR_CLASS: &str = "cloud-controller-manager/error-class";

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// `Node`, `Service`, `Lease`
    pub kind: &'static str,
    /// `v1`, `coordination.k8s.io/v1`
    pub api_version: &'static str,
    /// Empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// The version of the object that the event is about; empty: not said.
    pub resource_version: Arc<str>,
}

impl Subject {
    /// A node by name and UID.
    pub fn node(name: &NodeName, uid: &str) -> Self {
        Self {
            kind: "Node",
            api_version: "v1",
            namespace: "".into(),
            name: name.as_str().into(),
            uid: uid.into(),
            resource_version: "".into(),
        }
    }

    /// A Service.
    pub fn service(service: &Service) -> Self {
        let meta = &service.metadata;
        Self {
            kind: "Service",
            api_version: "v1",
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }
}

/// Time. Intervals use the monotonic clock; the wall clock is only written into objects and compared with them.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The monotonic clock.
    fn now(&self) -> Instant;
    /// The wall clock; may jump.
    fn wall(&self) -> SystemTime;
    /// A random share, from 0 to 1, of the longest time by which a retry is spread. By default 0, so that runs replay.
    fn jitter(&self) -> f64 {
        0.0
    }
}

/// Whether this process leads.
#[async_trait]
pub trait LeaderToken: Send + Sync {
    /// Whether writes are allowed: never in a dry run.
    fn is_leading(&self) -> bool;
    /// Returns when this process stops leading or shuts down.
    async fn lost(&self);
}
