//! The provider: wiring of its parts.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::balancer::Engine;
use ccm_kit::call::Caller;
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::metric::Registry;
use ccm_provider::{
    CloudConfig, CloudProvider, Inspect, InstancesV2, Lint, LoadBalancer, NodeTask, NodeTaskSpec, ProviderContext,
    ProviderError, ProviderFactory, Routes, Volumes,
};
use serde_json::Value;

use crate::client::metrics::{Metrics, caller};
use crate::client::operation::Operation;
use crate::extras::prefix_ipam::{self, PrefixIpam};
use crate::extras::tagging::{self, Tagging};
use crate::extras::volumes::EbsVolumes;
use crate::flags::{FARGATE_SHUTDOWN, FLAGS};
use crate::inspect::Inspector;
use crate::inspect::lint::Checks;
use crate::inspect::replay;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;
use crate::node::fleet;
use crate::node::identity::{InstanceId, Own};
use crate::node::instances::{self, Ec2Instances, Settings};
use crate::node::zones::Zones;
use crate::routes::{self, VpcRoutes, VpcTable};
use crate::sdk::connect::Sdk;
use crate::start::{Start, start};

/// Builds the provider for `--cloud-provider=aws`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Factory;

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
    }

    fn node_tasks(&self) -> &'static [NodeTaskSpec] {
        &[tagging::SPEC, prefix_ipam::SPEC]
    }

    fn lint(&self) -> Option<&dyn Lint> {
        Some(&Checks)
    }

    fn replay(&self, facts: &Value, _: &FlagValues) -> Result<Option<Arc<dyn LoadBalancer>>, ProviderError> {
        Ok(Some(Arc::new(replay::balancers(facts)?)))
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let registry = Registry::new();
        let (caller, metrics) = caller(&registry);
        let sdk = Sdk::from_environment(caller.clone(), metrics.clone())?;
        let text = config.as_ref().map(|config| &*config.text);
        let start = start(text, flags.bool("allow-untagged-cloud"), Box::new(sdk)).await?;
        Ok(Arc::new(Aws::new(start, flags.clone(), caller, metrics, registry)))
    }
}

#[derive(Debug)]
struct Aws {
    start: Start,
    flags: FlagValues,
    caller: Caller<Operation>,
    metrics: Metrics,
    registry: Registry,
    cluster: Cluster,
    instances: Arc<Ec2Instances>,
    balancers: Arc<Engine<Balancers>>,
    routes: Arc<VpcRoutes>,
    volumes: Arc<EbsVolumes>,
    inspector: Arc<Inspector>,
}

impl Aws {
    fn new(start: Start, flags: FlagValues, caller: Caller<Operation>, metrics: Metrics, registry: Registry) -> Self {
        let (api, cluster) = (start.api.clone(), Cluster::default());
        let zones = Arc::new(Zones::new(api.clone()));
        let fleet = fleet::new(api.clone());
        let settings = settings(&start, flags.bool(FARGATE_SHUTDOWN));
        let instances = instances::instances(settings.clone(), api.clone(), zones.clone(), cluster.clone());
        let balancers = Balancers::new(api.clone(), fleet.clone(), zones, cluster.clone(), env(&start));
        let routes = VpcRoutes::new(VpcTable::new(route_settings(&start), api.clone(), fleet), cluster.clone());
        let volumes = EbsVolumes::new(api.clone());
        let (instances, balancers) = (Arc::new(instances), Arc::new(Engine::new(balancers)));
        let inspector = Inspector {
            api,
            instances: instances.clone(),
            balancers: balancers.clone(),
            settings,
            routes: route_settings(&start),
            makes_routes: !flags.given("configure-cloud-routes") || flags.bool("configure-cloud-routes"),
            tags_instances: flags.list("controllers").iter().any(|name| name == tagging::SPEC.name),
            cluster: cluster.clone(),
        };
        let (routes, volumes, inspector) = (Arc::new(routes), Arc::new(volumes), Arc::new(inspector));
        Self { start, flags, caller, metrics, registry, cluster, instances, balancers, routes, volumes, inspector }
    }
}

fn settings(start: &Start, fargate_counts_as_stopped: bool) -> Settings {
    let own = start.own.as_ref().and_then(|own| {
        Some(Own { instance: InstanceId::parse(&own.id)?, private_dns_name: own.private_dns_name.clone() })
    });
    Settings {
        region: start.region.clone(),
        vpc: start.vpc.clone(),
        families: start.config.families().to_vec(),
        own,
        ownership: start.ownership.clone(),
        topology_types: start.config.topology_types.clone(),
        fargate_counts_as_stopped,
    }
}

fn route_settings(start: &Start) -> routes::Settings {
    routes::Settings {
        vpc: start.vpc.clone(),
        table: start.config.route_table.clone(),
        ownership: start.ownership.clone(),
    }
}

fn env(start: &Start) -> Env {
    Env {
        ownership: start.ownership.clone(),
        vpc: start.vpc.clone(),
        self_subnet: start.subnet.clone(),
        node_groups_untouched: start.config.leave_node_groups_alone,
        shared_group: start.config.classic_group.clone(),
        managed_network_groups: start.config.managed_network_groups,
        shared_probe: start.config.shared_probe.clone(),
    }
}

#[async_trait]
impl CloudProvider for Aws {
    fn name(&self) -> &str {
        "aws"
    }

    fn event_component(&self) -> &str {
        "aws-cloud-provider"
    }

    fn has_cluster_id(&self) -> bool {
        !self.start.ownership.cluster.is_empty()
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        self.caller.lend(context.leader.clone());
        self.cluster.set(context);
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone())
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.balancers.clone())
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(self.routes.clone())
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        Some(self.volumes.clone())
    }

    fn node_task(&self, name: &str) -> Option<Arc<dyn NodeTask>> {
        let api = self.start.api.clone();
        if name == tagging::SPEC.name {
            // Validated before the controller starts.
            let settings = tagging::Settings::read(&self.flags).ok()?;
            return Some(Arc::new(Tagging::new(api, self.cluster.clone(), self.metrics.clone(), settings)));
        }
        (name == prefix_ipam::SPEC.name).then(|| Arc::new(PrefixIpam(api)) as Arc<dyn NodeTask>)
    }

    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        Some(self.inspector.clone())
    }

    fn facts(&self) -> Value {
        replay::facts(&env(&self.start))
    }

    fn metrics(&self) -> Option<Registry> {
        Some(self.registry.clone())
    }
}
