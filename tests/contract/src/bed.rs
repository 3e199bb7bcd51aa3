//! What the clauses are written with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use ccm_provider::{
    Clock, CloudProvider, EventSink, EventType, InstancesV2, LeaderToken, LegacyInstances, LoadBalancer, Node,
    NodeReader, NodeRef, ObjectChange, OneByOne, ProviderContext, ProviderError, Routes, Service, ServiceKey,
    ServicePort, ServiceReader, SharedInformers, Subject, Volumes,
};

use crate::report::{Outcome, Result};
use crate::{Harness, Trouble};

/// `--cluster-name` of all clauses.
pub(crate) const CLUSTER: &str = "contract";

/// Ends a clause as broken unless a condition holds.
macro_rules! holds {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Outcome::Broken(format!($($text)+)));
        }
    };
}
pub(crate) use holds;

/// A cloud with one process of the provider.
pub(crate) struct Bed {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) provider: Arc<dyn CloudProvider>,
}

/// What went wrong where everything works.
pub(crate) fn failed(what: &str) -> impl FnOnce(ProviderError) -> Outcome {
    let what = what.to_owned();
    move |error| Outcome::Broken(format!("{what} failed although the cloud works: {error}"))
}

impl Bed {
    pub(crate) async fn new(harness: Arc<dyn Harness>) -> Result<Self> {
        let provider = harness.provider().await.map_err(failed("making the provider"))?;
        provider.initialize(context()).await;
        if let Some(user) = provider.informer_user() {
            user.set_informers(Arc::new(Quiet)).await;
        }
        Ok(Self { harness, provider })
    }

    /// A new process over the same cloud.
    pub(crate) async fn restarted(&self) -> Result<Self> {
        Self::new(Arc::clone(&self.harness)).await
    }

    pub(crate) fn instances(&self) -> Result<Arc<dyn InstancesV2>> {
        if let Some(instances) = self.provider.instances() {
            return Ok(instances);
        }
        let legacy = self.provider.legacy_instances().ok_or(Outcome::NotApplicable("the provider has no instances"))?;
        let single = LegacyInstances::new(self.provider.name(), legacy, self.provider.zones());
        Ok(Arc::new(OneByOne::new(single, OneByOne::<LegacyInstances>::DEFAULT_IN_FLIGHT)))
    }

    pub(crate) fn balancer(&self) -> Result<Arc<dyn LoadBalancer>> {
        self.provider.load_balancer().ok_or(Outcome::NotApplicable("the provider has no load balancers"))
    }

    pub(crate) fn routes(&self) -> Result<Arc<dyn Routes>> {
        self.provider.routes().ok_or(Outcome::NotApplicable("the provider has no routes"))
    }

    pub(crate) fn volumes(&self) -> Result<Arc<dyn Volumes>> {
        self.provider.volumes().ok_or(Outcome::NotApplicable("the provider labels no volumes"))
    }

    pub(crate) async fn trouble(&self, trouble: Trouble) -> Result {
        match self.harness.trouble(trouble).await {
            true => Ok(()),
            false => Err(Outcome::NotApplicable("the harness can't make this trouble")),
        }
    }

    /// A running instance and its node, which knows its provider ID.
    pub(crate) async fn node(&self, name: &str) -> NodeRef {
        let made = self.harness.add_instance(name).await;
        Arc::new(Node {
            addresses: made.addresses.into(),
            pod_cidrs: ["10.244.7.0/24".into()].into(),
            ..bare(name, &made.provider_id)
        })
    }

    pub(crate) async fn nodes(&self, names: &[&str]) -> Vec<NodeRef> {
        let mut nodes = Vec::new();
        for name in names {
            nodes.push(self.node(name).await);
        }
        nodes
    }

    pub(crate) async fn contents(&self) -> BTreeSet<String> {
        self.harness.contents().await
    }

    /// The answer of a call that must not write.
    pub(crate) async fn without_writing<T>(&self, what: &str, call: impl Future<Output = T>) -> Result<T> {
        let (writes, contents) = (self.harness.writes().await, self.contents().await);
        let answer = call.await;
        let (written, now) = (self.harness.writes().await.saturating_sub(writes), self.contents().await);
        let changed: Vec<&String> = contents.symmetric_difference(&now).collect();
        holds!(changed.is_empty(), "{what} changed what the cloud holds: {changed:?}");
        holds!(written == 0, "{what} wrote {written} time(s)");
        Ok(answer)
    }
}

/// A node that the cloud may know nothing of; an empty provider ID is none.
pub(crate) fn bare(name: &str, provider_id: &str) -> Node {
    let provider_id = Some(provider_id).filter(|id| !id.is_empty()).map(Into::into);
    Node { name: name.into(), uid: format!("uid-of-{name}").into(), provider_id, ..Node::default() }
}

/// A Service of type LoadBalancer with one port.
pub(crate) fn service(name: &str) -> Service {
    let mut service = Service::default();
    // Another name, another UID.
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let meta = &mut service.metadata;
    meta.namespace = "default".into();
    meta.name = name.into();
    meta.uid = format!("{:08x}-0000-4000-8000-{:012x}", hash >> 32, hash & 0xffff_ffff_ffff).into();
    meta.resource_version = "1".into();
    let spec = &mut service.spec;
    spec.kind = "LoadBalancer".into();
    spec.cluster_ip = "10.96.0.10".into();
    spec.cluster_ips = vec!["10.96.0.10".into()];
    spec.ip_families = vec!["IPv4".into()];
    spec.ip_family_policy = Some("SingleStack".into());
    spec.session_affinity = "None".into();
    spec.external_traffic_policy = "Cluster".into();
    spec.ports = vec![port(80, 30080)];
    service
}

pub(crate) fn port(port: i32, node_port: i32) -> ServicePort {
    ServicePort { name: format!("p{port}"), protocol: "TCP".into(), port, node_port, ..ServicePort::default() }
}

fn context() -> ProviderContext {
    let quiet = Arc::new(Quiet);
    ProviderContext::new(CLUSTER.into(), quiet.clone(), quiet.clone(), quiet.clone(), quiet.clone(), quiet)
}

/// A cluster without objects, whose leader leads until the test ends.
#[derive(Debug)]
struct Quiet;

impl NodeReader for Quiet {
    fn get(&self, _: &str) -> Option<NodeRef> {
        None
    }
    fn list(&self) -> Vec<NodeRef> {
        Vec::new()
    }
}

impl ServiceReader for Quiet {
    fn get(&self, _: &ServiceKey) -> Option<Arc<Service>> {
        None
    }
    fn list(&self) -> Vec<Arc<Service>> {
        Vec::new()
    }
}

impl EventSink for Quiet {
    fn event(&self, _: &Subject, _: EventType, _: &str, _: &str) {}
}

impl Clock for Quiet {
    fn now(&self) -> Instant {
        Instant::now()
    }
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

#[async_trait]
impl LeaderToken for Quiet {
    fn is_leading(&self) -> bool {
        true
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

impl SharedInformers for Quiet {
    fn on_node(&self, _: Box<dyn Fn(ObjectChange<NodeRef>) + Send + Sync>) {}
    fn on_service(&self, _: Box<dyn Fn(ObjectChange<Arc<Service>>) + Send + Sync>) {}
}
