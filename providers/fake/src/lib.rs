//! A cloud in one YAML file.
//!
//! `--cloud-provider=fake` needs no account, no network and no credentials. It is for first tries, for authors of
//! manifests, and for tests that need a cloud in a known state: instances, load balancers, routes and volumes are
//! entries of the file of `--cloud-config`, which may be edited while the process runs. Rules delay calls, change their
//! answers or make them fail, and a log shows every call. `docs/file.md` lists all keys.
//!
//! It is also the smallest complete provider, and thus a starting point for writing another one: [`Factory`] reads the
//! configuration, [`Fake`] returns the existing interfaces, and one module implements each of them.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use ccm_provider::{Aspects, FlagValues, Lookup, Node, ProviderFactory};
//!
//! let cloud = ccm_provider_fake::Factory.build(None, &FlagValues::default()).await.unwrap();
//! let node = Node { name: "worker-1".into(), ..Node::default() };
//! let answers = cloud.instances().unwrap().lookup(&[node.into()], Aspects::METADATA).await;
//! let Lookup::Found(instance) = &answers[0] else { panic!() };
//! let metadata = instance.metadata.as_ref().unwrap().as_ref().unwrap();
//! assert_eq!((&*metadata.provider_id, &*metadata.instance_type), ("fake://worker-1", "fake.small"));
//! # });
//! ```
#![deny(missing_docs)]

mod answer;
mod call_log;
mod cloud;
mod config;
mod faults;
mod inspect;
mod instances;
mod legacy;
mod lint;
mod load_balancer;
mod method;
mod reload;
mod routes;
mod state;
mod values;
mod volumes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    CloudConfig, CloudProvider, Clusters, FlagValues, InformerUser, Inspect, Instances, InstancesV2, Lint,
    LoadBalancer, OneByOne, ProviderContext, ProviderError, ProviderFactory, Routes, SharedInformers, Volumes, Zones,
};
use serde_json::{Value as Json, json};

use crate::cloud::Cloud;
use crate::config::Interfaces;
use crate::faults::Subject;
use crate::inspect::FakeInspect;
use crate::instances::FakeInstances;
use crate::legacy::Legacy;
use crate::lint::Checks;
use crate::load_balancer::{FakeLoadBalancer, Replayed};
use crate::method::Method;
use crate::routes::FakeRoutes;
use crate::volumes::{FakeClusters, FakeVolumes};

/// Builds the provider for `--cloud-provider=fake`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Factory;

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        _: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        Ok(Arc::new(Fake::new(config.as_ref())?))
    }

    fn lint(&self) -> Option<&dyn Lint> {
        Some(&Checks)
    }

    fn replay(&self, _facts: &Json, _: &FlagValues) -> Result<Option<Arc<dyn LoadBalancer>>, ProviderError> {
        // The observation contains everything that a plan depends on.
        Ok(Some(Arc::new(Replayed)))
    }
}

/// The fake cloud.
#[derive(Debug)]
pub struct Fake {
    cloud: Arc<Cloud>,
}

impl Fake {
    /// Parses the configuration; `None` means all defaults.
    pub fn new(config: Option<&CloudConfig>) -> Result<Self, ProviderError> {
        Ok(Self { cloud: Arc::new(Cloud::new(config)?) })
    }

    fn shared(&self) -> Arc<Cloud> {
        Arc::clone(&self.cloud)
    }

    fn on(&self) -> &Interfaces {
        &self.cloud.start.interfaces
    }

    /// A call of the core without an answer, so an error can only be logged.
    async fn note(cloud: &Cloud, method: Method) {
        if let Err(error) = cloud.call(method, Subject::default(), json!({}), |_, _| Ok(())).await {
            tracing::warn!(call = method.name(), %error, "a fault of the fake cloud");
        }
    }
}

#[async_trait]
impl CloudProvider for Fake {
    fn name(&self) -> &str {
        &self.cloud.start.provider_name
    }

    fn has_cluster_id(&self) -> bool {
        self.cloud.start.has_cluster_id
    }

    async fn initialize(&self, _context: ProviderContext) -> Result<(), ProviderError> {
        Self::note(&self.cloud, Method::Initialize).await;
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        self.on().instances_v2.then(|| Arc::new(FakeInstances(self.shared())) as Arc<dyn InstancesV2>)
    }

    fn legacy_instances(&self) -> Option<Arc<dyn Instances>> {
        self.on().instances.then(|| Arc::new(Legacy(self.shared())) as Arc<dyn Instances>)
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        self.on().zones.then(|| Arc::new(Legacy(self.shared())) as Arc<dyn Zones>)
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.on().load_balancer.then(|| Arc::new(FakeLoadBalancer(self.shared())) as Arc<dyn LoadBalancer>)
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        let routes = || OneByOne::new(FakeRoutes(self.shared()), OneByOne::<FakeRoutes>::DEFAULT_IN_FLIGHT);
        self.on().routes.then(|| Arc::new(routes()) as Arc<dyn Routes>)
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        self.on().pv_labels.then(|| Arc::new(FakeVolumes(self.shared())) as Arc<dyn Volumes>)
    }

    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        self.on().clusters.then(|| Arc::new(FakeClusters(self.shared())) as Arc<dyn Clusters>)
    }

    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        Some(Arc::new(FakeInspect::new(self.shared())))
    }

    fn informer_user(&self) -> Option<Arc<dyn InformerUser>> {
        Some(Arc::new(Informed(self.shared())))
    }
}

/// Needs no informers, but logs when they are offered.
#[derive(Debug)]
struct Informed(Arc<Cloud>);

#[async_trait]
impl InformerUser for Informed {
    async fn set_informers(&self, _informers: Arc<dyn SharedInformers>) {
        Fake::note(&self.0, Method::SetInformers).await;
    }
}
