//! The provider: wiring of its parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_kit::gcfg::table::{log, refuse};
use ccm_kit::inspect::replay;
use ccm_kit::{Cluster, http};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::metric::Registry;
use ccm_provider::{
    CloudConfig, CloudProvider, ConfigSource, ErrorClass, Finding, Inspect, InstancesV2, Lint, LoadBalancer, NodeTask,
    NodeTaskSpec, ProviderContext, ProviderError, ProviderFactory, Routes, Volumes, address,
};
use ipnet::IpNet;
use serde_json::Value;

use crate::client::failure::refusal;
use crate::client::id::{ArmId, same};
use crate::client::limit::RateLimits;
use crate::client::metrics::caller;
use crate::client::operation::ROUTE_TABLE;
use crate::client::session::Session;
use crate::client::{ApiError, Client};
use crate::extras::out_of_service::{self, OutOfService};
use crate::extras::volumes::ManagedDisks;
use crate::flags::{self, FLAGS, user_agent};
use crate::inspect::Inspector;
use crate::inspect::lint::Checks;
use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::{Ages, Env, Several};
use crate::loadbalancer::tags::Tags;
use crate::node::fleet::Fleet;
use crate::node::instances::{self, AzureInstances};
use crate::node::zones::Zones;
use crate::routes::{self, AzureRoutes};
use crate::shared::Shared;
use crate::start::cloud::Cloud;
use crate::start::config::{Config, Variable, in_words};
use crate::start::identity::{Connections, METADATA, METADATA_VARIABLE, identities, problems};

/// The timeout of one attempt of a call: lists of large scale sets take a while.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The start fails if the login takes longer.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);
/// The shortest pause between two looks at an operation with `enableMinimumRetryAfter`.
const LEAST_DELAY: Duration = Duration::from_secs(5);

/// The node controllers of this provider.
pub const NODE_TASKS: [NodeTaskSpec; 1] = [out_of_service::SPEC];

/// Builds the provider for `--cloud-provider=azure`.
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
        "azure"
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
    }

    fn config_source(&self, flags: &FlagValues) -> ConfigSource {
        flags::config_source(flags)
    }

    fn node_tasks(&self) -> &'static [NodeTaskSpec] {
        &NODE_TASKS
    }

    fn on_by_default(&self) -> &'static [&'static str] {
        &["node-ipam-controller"]
    }

    fn lint(&self) -> Option<&dyn Lint> {
        Some(&Checks)
    }

    fn replay(&self, facts: &Value, _: &FlagValues) -> Result<Option<Arc<dyn LoadBalancer>>, ProviderError> {
        Ok(Some(Arc::new(Engine::new(Balancers::without_cloud(replay::read(facts, "Azure")?)))))
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        values: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        flags::check(values)?;
        let config = config.ok_or_else(flags::no_config)?;
        let variable: Variable<'_> = &|name| self.variable(name);
        let (config, mut findings) = Config::parse(&config.text, variable)?;
        if config.disable_cloud_provider && flags::is_reloading(values) {
            tracing::warn!("disableCloudProvider is set: no controller runs");
            return Ok(Arc::new(Disabled { node_selector: flags::node_selector(values) }));
        }
        findings.extend(problems(&config.identity));
        refuse("the Azure cloud config names no usable login", &findings)?;
        let connecting = connect(config, variable);
        let limit = |_| ProviderError::deadline("the login at Azure", LOGIN_LIMIT);
        let shared = tokio::time::timeout(LOGIN_LIMIT, connecting).await.map_err(limit)??;
        log(&findings);
        let cidrs = values.text("cluster-cidr");
        let cidrs = cidrs.split(',').filter_map(|cidr| address::parse_cidr(cidr.trim())).collect();
        let env = env(&shared.config, shared.cloud.is_stack);
        let makes_routes = !values.given("configure-cloud-routes") || values.bool("configure-cloud-routes");
        let azure = Azure::new(shared, env, cidrs, makes_routes, findings);
        Ok(Arc::new(Azure { node_selector: flags::node_selector(values), ..azure }))
    }
}

/// Finds the endpoints, and logs in.
async fn connect(config: Config, variable: Variable<'_>) -> Result<Shared, ProviderError> {
    let agent = user_agent(&config.user_agent);
    let settings = http::Settings {
        cloud: "Azure",
        environment: variable,
        tls: http::Tls::default(),
        timeout: TIMEOUT,
        user_agent: &agent,
        request_ids: &["x-ms-request-id", "x-ms-correlation-request-id"],
        refusal,
    };
    let unusable = |problem: String| {
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, format!("cannot connect to Azure: {problem}"))
    };
    let http = http::Client::new(&settings).map_err(unusable)?;
    let direct = http::Settings { cloud: "the metadata service", environment: &|_| None, ..settings };
    let direct = http::Client::new(&direct).map_err(unusable)?;
    let cloud = Cloud::of(&config, &http, variable).await?;
    let metadata = variable(METADATA_VARIABLE).filter(|url| !url.is_empty()).unwrap_or_else(|| METADATA.to_owned());
    let metadata = metadata.trim_end_matches('/').to_owned();
    let identities = identities(&config.identity, &cloud, &Connections { http: http.clone(), direct, metadata })?;
    // Errors of the login are those of the start.
    for tokens in identities.all() {
        let refused = |failure| ProviderError::from(ApiError::new(crate::client::operation::VM_LIST, failure));
        tokens.get().await.map_err(refused)?;
    }
    let registry = Registry::new();
    let (caller, metrics) = caller(&registry);
    let caller = match config.limits.backoff.retries() {
        Some(retries) => caller.retries(retries),
        None => caller,
    };
    let rates = config.limits.rates();
    if !rates.is_empty() {
        tracing::info!(limits = in_words(&rates), "cloudProviderRateLimit is in force");
    }
    let limits = RateLimits::new(rates);
    let least = if config.limits.minimum_retry_after { LEAST_DELAY } else { Duration::ZERO };
    let session = Session::new(http, &cloud.arm, cloud.is_stack, identities);
    let (network, group) = (&config.identity.network_subscription, &config.resource_group);
    let groups =
        [(&config.identity.subscription, group), (network, group), (network, &config.balancing.resource_group)];
    let groups = groups.map(|(subscription, group)| (subscription.to_ascii_lowercase(), group.to_ascii_lowercase()));
    let client = Client::new(session, caller, limits, metrics, groups.into(), least);
    let zones = Zones::new(client.clone(), config.identity.subscription.clone());
    if !cloud.is_stack {
        // As in upstream: without them, new load balancers would be in no zone.
        zones.read().await.map_err(|error| ProviderError::from(error).wrap("cannot read the zones of the regions"))?;
    }
    Ok(Shared { client, cluster: Cluster::default(), registry, config, cloud, zones })
}

/// The provider while `disableCloudProvider` is set.
#[derive(Debug)]
struct Disabled {
    node_selector: Option<String>,
}

impl CloudProvider for Disabled {
    fn name(&self) -> &str {
        "azure"
    }

    fn node_selector(&self) -> Option<&str> {
        self.node_selector.as_deref()
    }
}

#[derive(Debug)]
struct Azure {
    shared: Shared,
    instances: Arc<AzureInstances>,
    balancers: Arc<Engine<Balancers>>,
    /// The inputs of plans, for snapshots.
    facts: Value,
    routes: Option<Arc<AzureRoutes>>,
    volumes: Arc<ManagedDisks>,
    inspector: Arc<Inspector>,
    node_selector: Option<String>,
}

impl Azure {
    fn new(shared: Shared, env: Env, cluster_cidrs: Vec<IpNet>, makes_routes: bool, findings: Vec<Finding>) -> Self {
        let (client, cluster, config) = (shared.client.clone(), shared.cluster.clone(), &shared.config);
        let settings = instances::Settings::of(config, shared.cloud.is_stack);
        let fleet = Fleet::new(client.clone(), config.without_instance_view);
        let instances = Arc::new(instances::instances(settings, client.clone(), fleet, cluster));
        let routes = routes(&shared, cluster_cidrs, instances.clone()).map(Arc::new);
        let balancers = Balancers::new(client.clone(), shared.cluster.clone(), shared.zones.clone(), env);
        let balancers = Arc::new(Engine::new(balancers));
        let facts = replay::facts(balancers.cloud().env());
        let volumes = Arc::new(ManagedDisks::new(client, config.location.clone()));
        let inspector = Inspector {
            shared: shared.clone(),
            instances: instances.clone(),
            balancers: balancers.clone(),
            routes: routes.clone(),
            makes_routes,
            findings,
        };
        Self {
            shared,
            instances,
            balancers,
            facts,
            routes,
            volumes,
            inspector: Arc::new(inspector),
            node_selector: None,
        }
    }
}

/// The inputs of load balancers.
fn env(config: &Config, is_stack: bool) -> Env {
    let balancing = &config.balancing;
    let edge = (config.extended_location_name.clone(), config.extended_location_type.clone());
    let several = balancing.several.iter().map(|one| Several {
        name: one.name.clone(),
        primary_set: one.primary_vm_set.clone(),
        takes_services: one.allows_placement,
        services: one.services.clone(),
        namespaces: one.namespaces.clone(),
        nodes: one.nodes.clone(),
    });
    let age = |key: &str| config.ttl(key, Duration::from_secs(120));
    Env {
        subscription: config.identity.network_subscription.clone(),
        location: config.location.clone(),
        extended_location: Some(edge).filter(|(name, _)| !name.is_empty()),
        group: config.resource_group.clone(),
        balancer_group: balancing.resource_group.clone(),
        security_group: config.security_group_name.clone(),
        security_group_group: config.security_group_resource_group.clone(),
        network: config.vnet_name.clone(),
        network_group: config.vnet_resource_group.clone(),
        subnet: config.subnet_name.clone(),
        link_group: balancing.private_link_resource_group.clone(),
        balancer_name: balancing.name.clone(),
        pools: balancing.pools,
        preconfigured: balancing.preconfigured,
        excludes_masters: balancing.exclude_masters,
        disables_outbound_snat: balancing.disable_outbound_snat,
        shared_probe: balancing
            .shared_probe
            .then(|| (balancing.shared_probe_port, balancing.shared_probe_path.clone())),
        changes_ip_tags: balancing.mutates_ip_tags,
        tags: config.tags.iter().cloned().collect(),
        system_tags: config.system_tags.clone(),
        is_stack,
        several: several.collect(),
        ages: Ages {
            balancers: age("loadBalancerCacheTTLInSeconds"),
            public_ips: age("publicIPCacheTTLInSeconds"),
            security_group: age("nsgCacheTTLInSeconds"),
        },
    }
}

/// The routes in the table of the configuration.
fn routes(shared: &Shared, cluster_cidrs: Vec<IpNet>, instances: Arc<AzureInstances>) -> Option<AzureRoutes> {
    let config = &shared.config;
    if config.route_table_name.is_empty() {
        return None;
    }
    let (subscription, group) = (&config.identity.network_subscription, &config.route_table_resource_group);
    let settings = routes::Settings {
        table: ArmId::new(subscription, group, ROUTE_TABLE.kind, &config.route_table_name),
        location: config.location.clone(),
        tags: if same(group, &config.resource_group) { config.tags.iter().cloned().collect() } else { Tags::new() },
        system_tags: config.system_tags.clone(),
        cluster_cidrs,
        age: config.ttl("routeTableCacheTTLInSeconds", Duration::from_secs(120)),
    };
    Some(AzureRoutes::new(settings, &shared.client, shared.cluster.clone(), instances))
}

#[async_trait]
impl CloudProvider for Azure {
    fn name(&self) -> &str {
        "azure"
    }

    fn event_component(&self) -> &str {
        "azure-cloud-provider"
    }

    fn node_selector(&self) -> Option<&str> {
        self.node_selector.as_deref()
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        self.shared.client.lend(context.leader.clone());
        self.shared.cluster.set(context);
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone())
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.balancers.clone())
    }

    fn facts(&self) -> Value {
        self.facts.clone()
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        let routes = self.routes.clone()?;
        Some(routes)
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        Some(self.volumes.clone())
    }

    fn node_task(&self, name: &str) -> Option<Arc<dyn NodeTask>> {
        (name == out_of_service::SPEC.name).then(|| Arc::new(OutOfService) as Arc<dyn NodeTask>)
    }

    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        Some(self.inspector.clone())
    }

    fn metrics(&self) -> Option<Registry> {
        Some(self.shared.registry.clone())
    }
}
