//! The provider: wiring of its parts, depending on the services in the catalog.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_kit::call::{Caller, ErrorKind};
use ccm_kit::{Cluster, gcfg, http};
use ccm_provider::flag::{Flag, FlagValues};
use ccm_provider::metric::Registry;
use ccm_provider::{
    CloudConfig, CloudProvider, ErrorClass, Finding, Inspect, InstancesV2, Lint, LoadBalancer, ProviderContext,
    ProviderError, ProviderFactory, Routes, Severity, Volumes, address,
};
use ipnet::IpNet;
use serde_json::Value;

use crate::client::Client;
use crate::client::metrics::{Metrics, caller};
use crate::client::operation::{Operation, Service};
use crate::client::session::{Credentials, Endpoints, Session, refusal};
use crate::extras::volumes::{self, CinderVolumes};
use crate::flags::{FLAGS, USER_AGENT, user_agent};
use crate::inspect::Inspector;
use crate::inspect::lint::Checks;
use crate::inspect::replay;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::{Balancers, names};
use crate::node::identity::Identity;
use crate::node::instances::{self, NovaInstances};
use crate::node::ports::NodePorts;
use crate::routes::{self, RouterRoutes, RouterTable};
use crate::start;
use crate::start::clouds::{self, Variable};
use crate::start::config::{Config, Global};
use crate::start::environment::Environment;
use crate::start::login::Login;

/// The start fails if the login takes longer.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

/// Builds the provider for `--cloud-provider=openstack`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Factory;

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "openstack"
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
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
        let variable: Variable<'_> = &|name| std::env::var(name).ok();
        let (environment, findings) = Environment::read(variable);
        gcfg::table::log(&findings);
        let mut start = Start::read(config, variable)?;
        gcfg::table::log(&start.findings);
        let registry = Registry::new();
        let agent = user_agent(&flags.list(USER_AGENT), concat!("v", env!("CARGO_PKG_VERSION")));
        let (client, metrics) = start.client(&registry, &agent)?;
        let session = client.session().token();
        let limit = |_| ProviderError::deadline("the login at Keystone", LOGIN_LIMIT);
        let token = tokio::time::timeout(LOGIN_LIMIT, session).await.map_err(limit)?;
        token.map_err(|failure| client.unusable(failure))?;
        let identity = Identity { region: start.config.global.region.clone(), is_regional: environment.is_regional };
        let cidrs = flags.text("cluster-cidr");
        let cluster_cidrs = cidrs.split(',').filter_map(|cidr| address::parse_cidr(cidr.trim())).collect();
        let findings = start.findings.into_iter().chain(start.differs).collect();
        let makes_routes = !flags.given("configure-cloud-routes") || flags.bool("configure-cloud-routes");
        let parts = Parts { client, metrics, registry, identity, environment, cluster_cidrs, makes_routes, findings };
        Ok(Arc::new(OpenStack::new(start.config, parts).await?))
    }
}

/// The configuration, and the credentials, which are read again.
struct Start {
    config: Config,
    credentials: Credentials,
    findings: Vec<Finding>,
    /// Keys with another effect in the Go program.
    differs: Option<Finding>,
}

impl Start {
    fn read(file: Option<CloudConfig>, variable: Variable<'_>) -> Result<Self, ProviderError> {
        let (mut config, mut findings) = Config::parse(file.as_ref().map(|file| &*file.text))?;
        let differs = clouds::ignored_upstream(&config.global);
        let folders = clouds::folders(variable("HOME").map(PathBuf::from).as_deref());
        findings.extend(clouds::fill(&mut config.global, variable, &folders)?);
        let (mut login, doubts) = Login::from(&config.global)?;
        findings.extend(doubts);
        findings.extend(file.iter().flat_map(|file| start::cut_secrets(&file.text)));
        let path = file.map(|file| file.path);
        login.file = path.as_deref().map(|path| origin(path, &config.global));
        let credentials: Credentials = Arc::new(move || {
            // A file that is being replaced must not fail the login.
            Ok(path.as_ref().and_then(|path| read_again(path, &folders)).unwrap_or_else(|| login.clone()))
        });
        Ok(Self { config, credentials, findings, differs })
    }

    fn client(&mut self, registry: &Registry, agent: &str) -> Result<(Client, Metrics), ProviderError> {
        let global = &self.config.global;
        let (caller, metrics) = caller(registry);
        let timeout = self.config.metadata.request_timeout;
        // An operation may be sent twice before it fails.
        let caller: Caller<Operation> = caller.deadline(timeout.saturating_mul(2));
        let given = |text: &'_ String| !text.is_empty();
        let settings = http::Settings {
            cloud: "OpenStack",
            environment: &|name| std::env::var(name).ok(),
            tls: http::Tls {
                authorities: Some(&*global.ca_file).filter(|file| !file.is_empty()),
                authorities_pem: Some(&*global.ca_file_contents).filter(|pem| !pem.is_empty()),
                identity: (given(&global.cert_file) && given(&global.key_file))
                    .then_some((&*global.cert_file, &*global.key_file)),
                insecure: global.tls_insecure == Some(true),
            },
            timeout,
            user_agent: agent,
            request_ids: &["x-openstack-request-id", "x-compute-request-id"],
            refusal,
        };
        let http = http::Client::new(&settings).map_err(|problem| unusable(global, &problem))?;
        let endpoints = Endpoints {
            region: global.region.clone(),
            interface: global.endpoint_type.unwrap_or_default().as_str().to_owned(),
        };
        let session = Session::new(http, caller.clone(), self.credentials.clone(), endpoints);
        Ok((Client::new(caller, session), metrics))
    }
}

/// The error of a connection that cannot be set up, with the wrong key.
fn unusable(global: &Global, problem: &str) -> ProviderError {
    const CONTEXT: &str = "cannot connect to OpenStack";
    let authorities = "name a file of PEM certificates, or remove the key: then those of the system count";
    let identity = "name the PEM files of a certificate and of its key, or remove cert-file and key-file";
    let files = [
        ("ca-file", &global.ca_file, authorities),
        ("cert-file", &global.cert_file, identity),
        ("key-file", &global.key_file, identity),
    ];
    let of_file = files.into_iter().find_map(|(key, path, fix)| {
        let problem = problem.strip_prefix(&format!("{path:?}")).filter(|_| !path.is_empty())?;
        Some((key, Some(path.clone()), format!("{}; {fix}", problem.trim_start_matches(": "))))
    });
    let of_text = || {
        let problem = problem.strip_prefix(http::PEM_TEXT)?;
        Some(("cafilecontents", None, format!("{problem}; write PEM certificates, or remove the key")))
    };
    let Some((key, value, message)) = of_file.or_else(of_text) else {
        let text = format!("{CONTEXT}: {problem}");
        return ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text);
    };
    let finding = Finding { value, ..Finding::new(Severity::Error, format!("[Global] {key}"), message) };
    let text = format!("{CONTEXT}: {}", gcfg::table::line(&finding));
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, text)
}

/// The login from the current file; `None` if it is not readable.
fn read_again(path: &PathBuf, folders: &[PathBuf]) -> Option<Login> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut global: Global = Config::parse(Some(&text)).ok()?.0.global;
    clouds::fill(&mut global, &|name| std::env::var(name).ok(), folders).ok()?;
    let login = Login::from(&global).ok()?.0;
    Some(Login { file: Some(origin(path, &global)), ..login })
}

/// The files of the login's keys.
fn origin(path: &Path, global: &Global) -> String {
    let or_clouds = if global.reads_clouds() { " or clouds.yaml" } else { "" };
    format!("{}{or_clouds}", path.display())
}

/// The parts of the provider besides the configuration.
struct Parts {
    client: Client,
    metrics: Metrics,
    registry: Registry,
    identity: Identity,
    environment: Environment,
    /// `--cluster-cidr`
    cluster_cidrs: Vec<IpNet>,
    /// `--configure-cloud-routes`
    makes_routes: bool,
    findings: Vec<Finding>,
}

/// The load balancers for the service controller.
type LoadBalancers = Engine<Balancers>;

#[derive(Debug)]
struct OpenStack {
    client: Client,
    registry: Registry,
    cluster: Cluster,
    instances: Option<Arc<NovaInstances>>,
    balancers: Option<Arc<LoadBalancers>>,
    routes: Option<Arc<RouterRoutes>>,
    volumes: Arc<CinderVolumes>,
    inspector: Arc<Inspector>,
    facts: Value,
}

impl OpenStack {
    async fn new(config: Config, parts: Parts) -> Result<Self, ProviderError> {
        let (client, cluster) = (parts.client.clone(), Cluster::default());
        let ports = NodePorts::new(client.clone());
        let instances = match missing(&client, &[Service::Compute, Service::Network]).await {
            None => {
                let settings =
                    instances::Settings { identity: parts.identity.clone(), networking: config.networking.clone() };
                Some(Arc::new(instances::instances(settings, client.clone(), ports.clone(), cluster.clone())))
            }
            Some(error) => {
                tracing::error!(%error, "no nodes are initialized or removed");
                None
            }
        };
        let routes = routes(&config, &parts, &cluster).await?.map(Arc::new);
        let settings = volumes::Settings {
            region: config.global.region.clone(),
            ignore_zones: config.block_storage.ignore_volume_az,
        };
        let volumes = Arc::new(CinderVolumes::new(settings, client.clone()));
        let (registry, router) = (parts.registry.clone(), config.route_router.clone());
        let (cluster_cidrs, findings) = (parts.cluster_cidrs.clone(), parts.findings.clone());
        let (identity, makes_routes) = (parts.identity.clone(), parts.makes_routes);
        let env = Env { config, identity: identity.clone() };
        let facts = replay::facts(&env);
        let planned = balancers(env, parts, ports, &cluster).await?.map(Arc::new);
        let balancers = planned.clone();
        let inspector = Inspector {
            client: client.clone(),
            cluster: cluster.clone(),
            identity,
            instances: instances.clone(),
            balancers: planned,
            router,
            cluster_cidrs,
            makes_routes,
            findings,
        };
        let inspector = Arc::new(inspector);
        Ok(Self { client, registry, cluster, instances, balancers, routes, volumes, inspector, facts })
    }
}

/// The error if the catalog lacks one of these services.
async fn missing(client: &Client, services: &[Service]) -> Option<ProviderError> {
    for service in services {
        if let Err(failure) = client.session().endpoint(*service).await {
            return Some(client.unusable(failure));
        }
    }
    None
}

/// Routes, if the cloud has extra routes and the configuration names a router. As upstream, a refused read of the
/// extensions only disables routes; without an answer the start fails.
async fn routes(config: &Config, parts: &Parts, cluster: &Cluster) -> Result<Option<RouterRoutes>, ProviderError> {
    // Upstream lists the extensions first, and never reports a missing router.
    let Some(router) = config.route_router.clone() else {
        tracing::info!("no routes: [Route] router-id is not set");
        return Ok(None);
    };
    if let Some(error) = missing(&parts.client, &[Service::Network]).await {
        tracing::error!(%error, "no routes");
        return Ok(None);
    }
    let aliases = match parts.client.extensions().await {
        Err(error) if matches!(error.kind, ErrorKind::Refused | ErrorKind::Credentials) => {
            tracing::error!(%error, "no routes: Neutron does not show its extensions");
            return Ok(None);
        }
        answer => answer?,
    };
    let Some(extensions) = routes::Extensions::of(&aliases) else {
        tracing::warn!("no routes: Neutron has neither the extension extraroute-atomic nor extraroute");
        return Ok(None);
    };
    let (cluster_cidrs, identity) = (parts.cluster_cidrs.clone(), parts.identity.clone());
    let settings = routes::Settings { router, cluster_cidrs, identity, extensions };
    Ok(Some(RouterRoutes::new(RouterTable::new(settings, &parts.client), cluster.clone())))
}

/// Load balancers, if they are enabled. If the cloud then lacks them, the process ends: ignoring Services would be
/// worse.
async fn balancers(
    env: Env,
    parts: Parts,
    ports: NodePorts,
    cluster: &Cluster,
) -> Result<Option<Engine<Balancers>>, ProviderError> {
    let Parts { client, environment, metrics, .. } = parts;
    if !env.config.load_balancer.enabled {
        return Ok(None);
    }
    if let Some(error) = missing(&client, &[Service::Network, Service::LoadBalancer]).await {
        return Err(error.wrap("load balancers are enabled"));
    }
    if let Some(error) = missing(&client, &[Service::KeyManager]).await {
        tracing::warn!(%error, "no load balancer can end TLS");
    }
    let made = Balancers::new(client, ports, cluster.clone(), env, environment.wait_steps, metrics);
    Ok(Some(Engine::new(made)))
}

#[async_trait]
impl CloudProvider for OpenStack {
    fn name(&self) -> &str {
        "openstack"
    }

    fn event_component(&self) -> &str {
        "cloud-provider-openstack"
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        if self.balancers.is_some() && &*context.cluster_name == names::DEFAULT_CLUSTER {
            let [risk, fix] = names::SHARED_NAME;
            tracing::warn!("{risk}; {fix}");
        }
        self.client.lend(context.leader.clone());
        self.cluster.set(context);
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone()?)
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(self.routes.clone()?)
    }

    fn volumes(&self) -> Option<Arc<dyn Volumes>> {
        Some(self.volumes.clone())
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.balancers.clone()?)
    }

    fn service_annotations(&self) -> &[&str] {
        &[crate::annotations::PREFIX, crate::annotations::APPLIED]
    }

    fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        Some(self.inspector.clone())
    }

    fn facts(&self) -> Value {
        self.facts.clone()
    }

    fn metrics(&self) -> Option<Registry> {
        Some(self.registry.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_a_comment_cuts_is_reported_at_the_start() {
        let text = "[Global]\nauth-url = https://k/v3\nuser-id = u\npassword = s3cret;x\ntenant-id = t\n".to_owned();
        let file = CloudConfig { path: "/nonexistent/cloud.conf".into(), text };
        let findings = Start::read(Some(file), &|_| None).unwrap().findings;
        let keys: Vec<&str> = findings.iter().map(|finding| &*finding.key).collect();
        assert_eq!(keys, ["[Global] password"]);
        assert!(!format!("{findings:?}").contains("s3cret"), "{findings:?}");
    }
}
