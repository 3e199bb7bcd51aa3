//! Helpers for clauses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{
    CloudProvider, ErrorClass, InstancesV2, LegacyInstances, LoadBalancer, LoadBalancerStatus, Node, NodeRef, OneByOne,
    ProviderError, Routes, Scope, Service, ServicePort, ServiceWork, Volumes,
};

use futures::FutureExt as _;
use futures::future::join_all;

use crate::report::{Outcome, Result};
use crate::{Harness, Outage, TestCluster};

/// Maximum number of calls while the answer requests a retry.
const ATTEMPTS: usize = 40;

/// A provider may return a failure to calls that follow it within a second. Longer, for a slow timer.
const FAILURES_ARE_SHARED: Duration = Duration::from_millis(1_200);

/// `--cluster-name` of all clauses.
pub(crate) const CLUSTER: &str = "contract";

/// Ends a clause as broken unless a condition is true.
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
    pub(crate) cluster: Arc<TestCluster>,
}

/// One of several answers.
pub(crate) type Answer<T> = std::result::Result<T, ProviderError>;

/// An unexpected error.
pub(crate) fn failed(what: &str) -> impl FnOnce(ProviderError) -> Outcome {
    let what = what.to_owned();
    move |error| Outcome::Broken(format!("{what} failed although the cloud works: {error}"))
}

impl Bed {
    pub(crate) async fn new(harness: Arc<dyn Harness>) -> Result<Self> {
        Self::over(harness, Arc::default()).await
    }

    /// A cloud and a cluster that is still empty.
    pub(crate) async fn over(harness: Arc<dyn Harness>, cluster: Arc<TestCluster>) -> Result<Self> {
        harness.furnish(&cluster);
        Self::process(harness, cluster).await
    }

    /// A new process over the same cloud and cluster.
    pub(crate) async fn restarted(&self) -> Result<Self> {
        Self::process(Arc::clone(&self.harness), Arc::clone(&self.cluster)).await
    }

    async fn process(harness: Arc<dyn Harness>, cluster: Arc<TestCluster>) -> Result<Self> {
        let provider = harness.provider().await.map_err(failed("making the provider"))?;
        provider.initialize(cluster.context(CLUSTER)).await.map_err(failed("initializing the provider"))?;
        if let Some(user) = provider.informer_user() {
            user.set_informers(cluster.clone()).await;
        }
        Ok(Self { harness, provider, cluster })
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

    pub(crate) async fn disrupt(&self, outage: Outage) -> Result {
        match self.harness.disrupt(outage).await {
            true => Ok(()),
            false => Err(Outcome::NotApplicable("the harness can't make this outage")),
        }
    }

    /// Ends the outage, and the time in which the process still returns its failures.
    pub(crate) async fn recover(&self) -> Result {
        self.disrupt(Outage::None).await?;
        tokio::time::sleep(FAILURES_ARE_SHARED).await;
        Ok(())
    }

    /// Creates a running instance and its node, which has the provider ID and is added to the cluster.
    pub(crate) async fn node(&self, name: &str) -> NodeRef {
        let made = self.harness.add_instance(name).await;
        let node = Arc::new(Node {
            addresses: made.addresses.into(),
            pod_cidrs: ["10.244.7.0/24".into()].into(),
            ..bare(name, &made.provider_id)
        });
        self.cluster.add_node(Arc::clone(&node));
        node
    }

    /// A Service of type LoadBalancer with one port.
    pub(crate) fn service(&self, name: &str) -> Service {
        let mut service = service(name);
        self.harness.dress(&mut service);
        service
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

    /// Makes a call that must not write, and returns its answer.
    pub(crate) async fn without_writing<T>(&self, what: &str, call: impl Future<Output = T>) -> Result<T> {
        let (writes, contents) = (self.harness.writes().await, self.contents().await);
        let answer = call.await;
        let (written, now) = (self.harness.writes().await.saturating_sub(writes), self.contents().await);
        let changed: Vec<&String> = contents.symmetric_difference(&now).collect();
        holds!(changed.is_empty(), "{what} changed what the cloud holds: {changed:?}");
        holds!(written == 0, "{what} wrote {written} time(s)");
        Ok(answer)
    }

    /// Advances the time without sleeping: both clocks of the provider, and the cloud.
    async fn pass(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.harness.settle().await;
        self.cluster.advance(time);
        skip(time);
        self.harness.pass(time).await;
    }

    /// Returns the answers to all items, one each. While an answer requests a retry, advances the time by the delay and
    /// repeats the call, as the core does.
    pub(crate) async fn answers<Q: Clone, T>(
        &self,
        questions: &[Q],
        ask: impl AsyncFn(&[Q]) -> Vec<Answer<T>>,
    ) -> Result<Vec<Answer<T>>> {
        let mut answers: Vec<Option<Answer<T>>> = questions.iter().map(|_| None).collect();
        for _ in 0..ATTEMPTS {
            let open = questions.iter().zip(&mut answers).filter(|(_, answer)| !answer.as_ref().is_some_and(is_final));
            let (asked, places): (Vec<Q>, Vec<_>) = open.map(|(question, place)| (question.clone(), place)).unzip();
            if asked.is_empty() {
                break;
            }
            let given = ask(&asked).await;
            holds!(given.len() == asked.len(), "{} answers to {} questions", given.len(), asked.len());
            let wait = given.iter().filter_map(look_again).max().unwrap_or_default();
            for (place, answer) in places.into_iter().zip(given) {
                *place = Some(answer);
            }
            self.pass(wait).await;
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Like [`Bed::answers`], for a call about one item.
    pub(crate) async fn finished<T>(&self, call: impl AsyncFn() -> Answer<T>) -> Answer<T> {
        let answers = self.answers(&[()], async |_| vec![call().await]).await;
        answers.ok().and_then(|mut answers| answers.pop()).unwrap_or_else(|| Err(ProviderError::bug("no answer")))
    }

    /// Reconciles like the core: one call for the Services of a group, and groups concurrently.
    pub(crate) async fn reconciled(&self, work: &[ServiceWork]) -> Result<Vec<Answer<Option<LoadBalancerStatus>>>> {
        let balancer = self.balancer()?;
        let reconcile = async |work: &[ServiceWork]| {
            let batches = ccm_provider::batches(&*balancer, work);
            let given = join_all(batches.iter().map(async |places| {
                let items: Vec<ServiceWork> = places.iter().filter_map(|place| work.get(*place).cloned()).collect();
                balancer.reconcile(CLUSTER, &items, &Scope::default()).await
            }))
            .await;
            let mut answers: Vec<_> =
                batches.iter().zip(given).flat_map(|(places, given)| places.iter().zip(given)).collect();
            answers.sort_by_key(|(place, _)| **place);
            answers.into_iter().map(|(_, answer)| answer.result).collect()
        };
        self.answers(work, reconcile).await
    }
}

/// Advances tokio's clock.
pub(crate) fn skip(time: Duration) {
    tokio::time::pause();
    // The clock moves with the first poll; the second would only let other tasks run.
    let _ = tokio::time::advance(time).now_or_never();
    tokio::time::resume();
}

/// The delay after which an unfinished call requests a retry.
fn look_again<T>(answer: &Answer<T>) -> Option<Duration> {
    let error = answer.as_ref().err()?;
    if error.class() == ErrorClass::Conflict { Some(Duration::ZERO) } else { error.retry_after() }
}

fn is_final<T>(answer: &Answer<T>) -> bool {
    look_again(answer).is_none()
}

/// A node that may have no instance. An empty provider ID means that it has none.
pub(crate) fn bare(name: &str, provider_id: &str) -> Node {
    let provider_id = Some(provider_id).filter(|id| !id.is_empty()).map(Into::into);
    Node { name: name.into(), uid: format!("uid-of-{name}").into(), provider_id, ..Node::default() }
}

fn service(name: &str) -> Service {
    let mut service = Service::default();
    // Another name means another UID and node port.
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
    spec.ports = vec![port(80, 30_100 + i32::try_from(hash % 2_600).unwrap_or_default())];
    service
}

pub(crate) fn port(port: i32, node_port: i32) -> ServicePort {
    ServicePort { name: format!("p{port}"), protocol: "TCP".into(), port, node_port, ..ServicePort::default() }
}
