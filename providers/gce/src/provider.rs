//! The provider: wiring of its parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_kit::inspect::replay;
use ccm_kit::{Cluster, gcfg, http};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::metric::Registry;
use ccm_provider::{
    CloudConfig, CloudProvider, ConfigMapSpec, ErrorClass, Finding, Inspect, InstancesV2, Lint, LoadBalancer,
    PodRanges, ProviderContext, ProviderError, ProviderFactory, Routes, ServiceControllerSpec, Volumes, address,
};
use ipnet::IpNet;
use serde_json::Value;

use crate::client::Client;
use crate::client::failure::refusal;
use crate::client::metadata::Metadata;
use crate::client::metrics::caller;
use crate::client::session::Session;
use crate::extras::balancer_metrics::BalancerMetrics;
use crate::extras::volumes::PersistentDisks;
use crate::flags::{self, FLAGS, Options, SERVICE_CONTROLLERS, user_agent};
use crate::inspect::Inspector;
use crate::inspect::lint::Checks;
use crate::loadbalancer::env::{self, Env};
use crate::loadbalancer::facts::Facts;
use crate::loadbalancer::{Balancers, InTurn};
use crate::node::instances::{self, GceInstances, GcePodRanges};
use crate::node::network::Network;
use crate::node::zones::Zones;
use crate::routes::{GceRoutes, NetworkRoutes};
use crate::shared::Shared;
use crate::start::cluster_id::{self, ClusterId};
use crate::start::config::{Config, ILB_SUBSETS, SKIP_GROUPS};
use crate::start::{self, Variable};

/// The time limit for finding project, zone and network at the start.
const LOCATE_LIMIT: Duration = Duration::from_secs(60);

/// The ConfigMaps that this provider reads and creates.
pub const CONFIG_MAPS: [ConfigMapSpec; 1] = [cluster_id::UID];

/// Builds the provider for `--cloud-provider=gce`.
#[derive(Debug, Clone, Default)]
pub struct Factory {
    environment: Option<BTreeMap<String, String>>,
}

impl Factory {
    /// Uses these environment variables instead of those of the process: for tests, which share one process.
    #[must_use]
    pub fn with_environment(environment: BTreeMap<String, String>) -> Self {
        Self { environment: Some(environment) }
    }

    fn variable(&self, name: &str) -> Option<String> {
        match &self.environment {
            Some(environment) => environment.get(name).cloned(),
            None => std::env::var(name).ok(),
        }
    }
}

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "gce"
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
    }

    fn config_maps(&self) -> &'static [ConfigMapSpec] {
        &CONFIG_MAPS
    }

    fn lint(&self) -> Option<&dyn Lint> {
        Some(&Checks)
    }

    fn replay(&self, facts: &Value, _: &FlagValues) -> Result<Option<Arc<dyn LoadBalancer>>, ProviderError> {
        Ok(Some(Arc::new(Engine::new(Balancers::without_cloud(replay::read(facts, "GCE")?)))))
    }

    fn service_controllers(&self) -> &'static [ServiceControllerSpec] {
        &SERVICE_CONTROLLERS
    }

    fn on_by_default(&self) -> &'static [&'static str] {
        &["node-ipam-controller"]
    }

    fn absent_controllers(&self) -> &'static [&'static str] {
        &["gkenetworkparamset", "gke-tenant-controller-manager", "gke-tenant"]
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        values: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let options = Options::read(values)?;
        for name in flags::missing(values) {
            tracing::error!("--{name} has no effect: this program does not have what it switches on");
        }
        let (config, findings) = config.map(|file| Config::parse(&file.text)).transpose()?.unwrap_or_default();
        gcfg::table::log(&findings);
        let registry = Registry::new();
        let variable: Variable<'_> = &|name| self.variable(name);
        let connecting = connect(&config, variable, &registry);
        let limit = |_| ProviderError::deadline("finding project, zone and network", LOCATE_LIMIT);
        let (client, location) = tokio::time::timeout(LOCATE_LIMIT, connecting).await.map_err(limit)??;
        let cluster = Cluster::default();
        let only = (!config.manages_region()).then(|| location.zone.clone());
        let (region, subnetwork) = (location.region.clone(), location.subnetwork.clone());
        let zones = Zones::new(client.clone(), cluster.clone(), region.clone(), only);
        let network = Network::new(client.clone(), cluster.clone(), region.clone(), location.network, subnetwork);
        let cluster_id = ClusterId::new(cluster.clone());
        if config.manages_region() {
            // As in upstream, a region whose zones cannot be read fails the start.
            zones.managed().await.map_err(|error| error.wrap("cannot list the zones of the region"))?;
        }
        let cidrs = values.text("cluster-cidr");
        let cidrs = cidrs.split(',').filter_map(|cidr| address::parse_cidr(cidr.trim())).collect();
        let shared = Shared { client, cluster, registry, config, options, region, network, zones, cluster_id };
        let makes_routes = values.bool("configure-cloud-routes");
        Ok(Arc::new(Gce::new(shared, cidrs, makes_routes, findings)))
    }
}

/// Connects to the API and determines the location of the cluster.
async fn connect(
    config: &Config,
    variable: Variable<'_>,
    registry: &Registry,
) -> Result<(Client, start::Location), ProviderError> {
    let agent = user_agent();
    let settings = http::Settings {
        cloud: "GCE",
        environment: variable,
        tls: http::Tls::default(),
        timeout: http::TIMEOUT,
        user_agent: &agent,
        request_ids: &["x-goog-request-id"],
        refusal,
    };
    let unusable = |problem: String| {
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, format!("cannot connect to GCE: {problem}"))
    };
    let metadata = Metadata::new(variable, &agent).map_err(unusable)?;
    let (caller, metrics) = caller(registry);
    let http = http::Client::new(&settings).map_err(unusable)?;
    let (tokens, universe) = start::tokens(config, variable, http.clone(), &metadata, &metrics)?;
    let location = start::locate(config, &metadata, &universe).await?;
    let client = Client::new(
        caller,
        metrics,
        Session::new(http, tokens, start::resource_manager(variable, &universe)),
        location.links.clone(),
    );
    let location = location.named(&client).await;
    Ok((client.with_links(location.links.clone()), location))
}

#[derive(Debug)]
struct Gce {
    shared: Shared,
    instances: Arc<GceInstances>,
    routes: Arc<GceRoutes>,
    volumes: Arc<PersistentDisks>,
    /// The inputs of plans, for snapshots.
    facts: Value,
    in_turn: Arc<InTurn>,
    inspector: Arc<Inspector>,
    metrics: BalancerMetrics,
}

impl Gce {
    fn new(shared: Shared, cluster_cidrs: Vec<IpNet>, makes_routes: bool, findings: Vec<Finding>) -> Self {
        let (client, cluster) = (shared.client.clone(), shared.cluster.clone());
        let settings = instances::Settings {
            prefix: shared.config.node_instance_prefix.clone(),
            stack_type: shared.config.stack_type.clone(),
            multi_project: shared.options.multi_project,
            taint_stopped: shared.options.taint_stopped,
        };
        let instances = instances::instances(settings, client.clone(), shared.zones.clone(), cluster.clone());
        let table = NetworkRoutes::new(client.clone(), cluster.clone(), shared.network.url.clone(), cluster_cidrs);
        let volumes = PersistentDisks::new(client, shared.zones.clone());
        let balancers = Arc::new(Engine::new(balancers(&shared)));
        let metrics = BalancerMetrics::start(&shared.registry, shared.options.fine_lock);
        let facts = replay::facts(balancers.cloud().env());
        let (instances, routes) = (Arc::new(instances), Arc::new(GceRoutes::new(table, cluster)));
        let inspector = Inspector {
            shared: shared.clone(),
            instances: instances.clone(),
            routes: routes.clone(),
            balancers: balancers.clone(),
            makes_routes,
            findings,
        };
        let (volumes, inspector) = (Arc::new(volumes), Arc::new(inspector));
        let in_turn = Arc::new(InTurn::new(balancers));
        Self { facts, in_turn, shared, instances, routes, volumes, inspector, metrics }
    }
}

fn options(Shared { config, options: flags, .. }: &Shared) -> env::Options {
    env::Options {
        rbs_by_default: flags.rbs_default,
        writes_annotations: flags.lb_annotations,
        denies: flags.deny_firewall,
        removes_deny_rules: flags.deny_cleanup,
        discrete_ports: flags.discrete_ports,
        subsets: config.has(ILB_SUBSETS),
        skips_groups: config.has(SKIP_GROUPS),
    }
}

/// The load balancers of the cluster.
fn balancers(shared: &Shared) -> Balancers {
    let (config, flags) = (&shared.config, &shared.options);
    let mut check_sources: Vec<String> = flags.l4_ranges.iter().map(ToString::to_string).collect();
    check_sources.sort();
    if config.node_tags.is_empty() {
        tracing::warn!(
            "node-tags is not set: firewall rules of load balancers are for the tags of instances that begin their names, and \
             cannot be made for instances without such a tag"
        );
    }
    let env = Env {
        links: shared.client.links().clone(),
        region: shared.region.clone(),
        network: shared.network.url.clone(),
        node_tags: config.node_tags.clone(),
        check_sources,
        external_groups_prefix: config.external_instance_groups_prefix.clone(),
        options: options(shared),
    };
    let facts = Facts {
        client: shared.client.clone(),
        region: shared.region.clone(),
        network: shared.network.clone(),
        cluster_id: shared.cluster_id.clone(),
        is_denied: false.into(),
    };
    Balancers::new(shared.client.clone(), facts, shared.cluster.clone(), env)
}

#[async_trait]
impl CloudProvider for Gce {
    fn name(&self) -> &str {
        "gce"
    }

    fn event_component(&self) -> &str {
        "g-cloudprovider"
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        self.shared.client.lend(context.leader.clone());
        tokio::spawn(self.metrics.clone().keep(context.clone(), options(&self.shared)));
        self.shared.cluster.set(context);
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone())
    }

    fn unmanaged_label(&self) -> Option<(&str, &str)> {
        Some(("components.gke.io/gke-unmanaged-node", "true"))
    }

    fn pod_ranges(&self) -> Option<Arc<dyn PodRanges>> {
        Some(Arc::new(GcePodRanges(self.instances.clone())))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.in_turn.clone())
    }

    fn service_annotations(&self) -> &[&str] {
        &crate::annotations::PREFIXES
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(self.routes.clone())
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        Some(self.volumes.clone())
    }

    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        Some(self.inspector.clone())
    }

    fn facts(&self) -> Value {
        self.facts.clone()
    }

    fn metrics(&self) -> Option<Registry> {
        Some(self.shared.registry.clone())
    }
}
