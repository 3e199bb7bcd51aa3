//! The start before any controller runs: the configuration file, project, zone and network, the tokens, the cluster ID.

pub(crate) mod cluster_id;
pub(crate) mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{Cause, Failure};
use ccm_kit::http;
use ccm_provider::{ErrorClass, ProviderError};

use self::config::{Config, DEFAULT_CREDENTIALS};
use crate::client::Client;
use crate::client::credentials::{Tokens, alternate, file, metadata::Instance};
use crate::client::metadata::Metadata;
use crate::client::metrics::Metrics;
use crate::client::resource::{Links, is_number, last_part, region_of};

/// The base of calls and links in a universe, without `api-endpoint`.
fn base(universe: &str) -> String {
    format!("https://compute.{universe}/compute/v1/")
}

/// The base of links to networks without `api-endpoint`.
const NETWORK_BASE: &str = "https://www.googleapis.com/compute/v1/";
const UNIVERSE: &str = "googleapis.com";
/// Overrides the base of the Resource Manager API, as in `gcloud`.
const RESOURCE_MANAGER: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER";
/// The attempts to reach the metadata server at the start: it may start after this program.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// An environment variable, if it is set.
pub(crate) type Variable<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// The location of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) links: Links,
    pub(crate) zone: String,
    pub(crate) region: String,
    /// The URL of the network.
    pub(crate) network: String,
    /// The URL of the subnetwork, if the configuration names one.
    pub(crate) subnetwork: Option<String>,
}

/// Finds the location of the cluster, from the configuration and the metadata server. Projects may still be numbers.
pub(crate) async fn locate(config: &Config, metadata: &Metadata, universe: &str) -> Result<Location, ProviderError> {
    let (mut project, mut zone) = (config.project_id.clone(), config.local_zone.clone());
    // As in upstream, the metadata server has to provide both if one of them is not set.
    if project.is_empty() || zone.is_empty() {
        let known_project =
            ask(metadata, "project/project-id").await.map_err(|failure| unknown("project-id", &failure))?;
        let known_zone =
            zone_of(&ask(metadata, "instance/zone").await.map_err(|failure| unknown("local-zone", &failure))?)?;
        project = if project.is_empty() { known_project } else { project };
        zone = if zone.is_empty() { known_zone } else { zone };
    }
    let region = region_of(&zone).ok_or_else(|| invalid(format!("unexpected zone: {zone}")))?.to_owned();
    let network = match &*config.network_name {
        "" => network_of(metadata).await?,
        name => name.to_owned(),
    };
    let network_project = match &*config.network_project_id {
        "" => project.clone(),
        id => id.to_owned(),
    };
    let base = endpoint(&config.api_endpoint).unwrap_or_else(|| base(universe));
    let network_base = endpoint(&config.api_endpoint).unwrap_or_else(|| NETWORK_BASE.to_owned());
    let links = Links { base, network_base, project, network_project };
    Ok(Location { links, zone, region, network, subnetwork: given(&config.subnetwork_name) })
}

impl Location {
    /// Replaces project numbers with project names, and other names with URLs. A number that cannot be looked up stays.
    pub(crate) async fn named(self, client: &Client) -> Self {
        let name = async |project: String| match is_number(&project) {
            false => project,
            true => match client.project_name(&project).await {
                Ok(Some(name)) if !name.is_empty() => name,
                found => {
                    let error =
                        found.err().map(|error| error.to_string()).unwrap_or_else(|| "it does not exist".to_owned());
                    tracing::warn!(project, error, "the name of the project is not known: its number is used");
                    project
                }
            },
        };
        let project = name(self.links.project.clone()).await;
        let network_project = match self.links.network_project == self.links.project {
            true => project.clone(),
            false => name(self.links.network_project.clone()).await,
        };
        let links = Links { project, network_project, ..self.links };
        let in_network = format!("{}projects/{}", links.network_base, links.network_project);
        let network = url(&self.network, || format!("{in_network}/global/networks/{}", self.network));
        let subnetwork = self.subnetwork.map(|name| {
            let built = || format!("{in_network}/regions/{}/subnetworks/{name}", self.region);
            url(&name, built)
        });
        Self { links, network, subnetwork, ..self }
    }
}

/// The configured source of tokens, and the universe of the credentials.
pub(crate) fn tokens(
    config: &Config,
    environment: Variable<'_>,
    http: http::Client,
    metadata: &Metadata,
    metrics: &Metrics,
) -> Result<(Tokens, String), ProviderError> {
    let instance = || Tokens::new(Arc::new(Instance(metadata.clone())));
    let (tokens, universe) = match &*config.token_url {
        "" => (instance(), None),
        DEFAULT_CREDENTIALS => {
            let source = file::source(environment, http, metadata.clone());
            let source = source.map_err(|why| invalid(format!("token-url = nil: {why}")))?;
            (Tokens::new(source), file::universe(environment))
        }
        url => {
            let body = config.token_body.0.clone();
            let source = alternate::Alternate::new(url.to_owned(), body, http, instance(), metrics.clone());
            (Tokens::new(Arc::new(source)), None)
        }
    };
    Ok((tokens, universe.unwrap_or_else(|| UNIVERSE.to_owned())))
}

/// The base of the Resource Manager API.
pub(crate) fn resource_manager(environment: Variable<'_>, universe: &str) -> String {
    let given = environment(RESOURCE_MANAGER).and_then(|url| endpoint(&url));
    given.unwrap_or_else(|| format!("https://cloudresourcemanager.{universe}/"))
}

/// The base of a configured endpoint, with its slash. A base that ends with `projects` is accepted, too.
fn endpoint(text: &str) -> Option<String> {
    let base = text.trim_end_matches('/');
    let base = base.strip_suffix("/projects").unwrap_or(base);
    (!base.is_empty()).then(|| format!("{base}/"))
}

/// A value of the metadata server, with a few attempts.
async fn ask(metadata: &Metadata, path: &str) -> Result<String, Failure> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match metadata.text(path).await {
            Err(failure) if matches!(failure.cause, Cause::NotSent | Cause::NoAnswer) => {
                tracing::warn!(path, why = failure.message, "the metadata server is asked again");
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            answer => return answer,
        }
    }
    metadata.text(path).await
}

/// `projects/<number>/zones/<zone>`
fn zone_of(text: &str) -> Result<String, ProviderError> {
    match *text.split('/').collect::<Vec<_>>() {
        ["projects", _, "zones", zone] => Ok(zone.to_owned()),
        _ => Err(invalid(format!("unexpected zone of the metadata server: {text}"))),
    }
}

/// `projects/<number>/networks/<name>` of the first NIC.
async fn network_of(metadata: &Metadata) -> Result<String, ProviderError> {
    let path = "instance/network-interfaces/0/network";
    let text = ask(metadata, path).await.map_err(|failure| unknown("network-name", &failure))?;
    match *text.split('/').collect::<Vec<_>>() {
        ["projects", _, "networks", _] => Ok(last_part(&text).to_owned()),
        _ => Err(invalid(format!("unexpected network of the metadata server: {text}"))),
    }
}

fn unknown(key: &str, failure: &Failure) -> ProviderError {
    let why = if failure.message.is_empty() { &failure.code } else { &failure.message };
    invalid(format!(
        "{key} is not known: it is not in gce.conf, and the metadata server does not say it ({why}); a start without that server \
         needs project-id, local-zone, network-name and token-url"
    ))
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A name with a slash is already a URL.
fn url(text: &str, built: impl FnOnce() -> String) -> String {
    if text.contains('/') { text.to_owned() } else { built() }
}

pub(crate) fn invalid(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, message)
}
