//! Runs before any controller: reads configuration, region and credentials, this program's own instance, and the
//! cluster.
//!
//! Upstream: `init` and `newAWSCloud2` in `pkg/providers/v1/aws.go`. The order is upstream's, so that the same error is
//! reported first. Every replica runs this before leader election, so each wait is bounded.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{Finding, ProviderError, Severity};
use serde::Deserialize;

use crate::client::ec2::Instance;
use crate::client::{Api, Query};
use crate::ownership::Ownership;
use crate::start::config::{Config, Family};

pub(crate) mod config;
#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

/// Limit for all reads about the instance that this program runs on.
const SELF_LIMIT: Duration = Duration::from_secs(120);
/// The metadata service is on the same host; it answers quickly or not at all.
const METADATA_LIMIT: Duration = Duration::from_secs(20);

#[async_trait]
pub(crate) trait Connector: Send + Sync {
    /// The client of the metadata service. Sends no request yet.
    fn metadata(&self, config: &Config) -> Result<Arc<dyn Metadata>, ProviderError>;
    /// The clients of the services in a region. Sends no request yet: the first call gets the credentials.
    async fn api(self: Box<Self>, config: &Config, region: &str) -> Result<Arc<dyn Api>, ProviderError>;
}

/// The metadata service of the instance. Errors are texts with cause and remediation.
#[async_trait]
pub(crate) trait Metadata: Send + Sync {
    /// `/latest/dynamic/instance-identity/document`
    async fn identity(&self) -> Result<Identity, String>;
    /// `/latest/meta-data/instance-id`
    async fn instance_id(&self) -> Result<String, String>;
}

/// The identity document of an instance. A field may be absent or null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Identity {
    pub(crate) region: Option<String>,
    pub(crate) availability_zone: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) instance_id: Option<String>,
    pub(crate) private_ip: Option<String>,
    pub(crate) account_id: Option<String>,
    pub(crate) image_id: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) config: Config,
    pub(crate) region: String,
    pub(crate) vpc: String,
    /// The subnet of last resort for balancers; empty when there is none.
    pub(crate) subnet: String,
    /// The instance that this program runs on; `None` outside EC2.
    pub(crate) own: Option<Instance>,
    pub(crate) ownership: Ownership,
    pub(crate) api: Arc<dyn Api>,
}

/// Runs all start steps. `text` is the file of `--cloud-config`.
pub(crate) async fn start(
    text: Option<&str>,
    allow_untagged: bool,
    connector: Box<dyn Connector>,
) -> Result<Start, ProviderError> {
    let (config, findings) = Config::parse(text)?;
    log(&findings);
    tracing::info!("Building AWS cloudprovider");
    let metadata = connector.metadata(&config)?;
    let region = region(&config, &*metadata).await?;
    let api = connector.api(&config, &region).await?;
    let own = if config.is_off_instance() {
        tracing::info!(
            "Master is configured to run on a different AWS account, different cloud provider or on-premises"
        );
        None
    } else {
        Some(own_instance(&*metadata, &*api).await?)
    };
    let ownership = ownership(&config, own.as_ref(), allow_untagged)?;
    let families: Vec<String> = config.families().iter().map(Family::to_string).collect();
    tracing::info!(?families, "The following IP families will be added to nodes");
    let (vpc, subnet) = match &own {
        Some(own) => (own.vpc.clone(), own.subnet.clone()),
        None => (config.vpc.clone().unwrap_or_default(), config.subnet.clone().unwrap_or_default()),
    };
    Ok(Start { config, region, vpc, subnet, own, ownership, api })
}

fn log(findings: &[Finding]) {
    for finding in findings {
        let (key, value, message) = (&finding.key, &finding.value, &finding.message);
        match finding.severity {
            Severity::Info => tracing::info!(key, value, "cloud config: {message}"),
            Severity::Warning | Severity::Error => tracing::warn!(key, value, "cloud config: {message}"),
        }
    }
}

/// The region from the file, else from the metadata service. Upstream always reads the identity document, for a log
/// line; here it is read only if needed, so that a host without metadata service starts at once.
async fn region(config: &Config, metadata: &dyn Metadata) -> Result<String, ProviderError> {
    if let Some(zone) = &config.zone {
        tracing::info!(zone, "Zone configured in cloud config. Using that to get region.");
    }
    let configured = config.region()?;
    if let Some(region) = configured.clone().filter(|_| config.is_off_instance()) {
        return Ok(region);
    }
    let identity = limited(METADATA_LIMIT, metadata.identity()).await;
    if let Ok(identity) = &identity {
        log_identity(identity);
    }
    if let Some(region) = configured {
        return Ok(region);
    }
    tracing::info!("Loading region from metadata service");
    match identity {
        Ok(identity) => identity
            .region
            .filter(|region| !region.is_empty())
            .ok_or_else(|| no_region("the instance identity document names none")),
        Err(error) => Err(no_region(&error)),
    }
}

fn log_identity(identity: &Identity) {
    tracing::info!(
        region = identity.region,
        availability_zone = identity.availability_zone,
        instance_type = identity.instance_type,
        architecture = identity.architecture,
        instance_id = identity.instance_id,
        private_ip = identity.private_ip,
        account_id = identity.account_id,
        image_id = identity.image_id,
        "instance metadata identity"
    );
}

fn no_region(why: &str) -> ProviderError {
    ProviderError::unknown(format!(
        "no region: neither Zone nor Region is set in section [Global] of the cloud config, and {why}"
    ))
}

async fn limited<T>(limit: Duration, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {}", ccm_provider::duration::format(limit)));
    tokio::time::timeout(limit, answer).await.unwrap_or_else(late)
}

async fn own_instance(metadata: &dyn Metadata, api: &dyn Api) -> Result<Instance, ProviderError> {
    let id = limited(METADATA_LIMIT, metadata.instance_id()).await.map_err(|error| {
        ProviderError::unknown(format!(
            "error fetching instance-id from ec2 metadata service: {error}; to run outside of the cluster's instances set VPC, \
             SubnetID or RoleARN, and KubernetesClusterID in section [Global] of the cloud config"
        ))
    })?;
    let failed = |error: ProviderError| error.wrap(format!("error finding instance {id}"));
    let query = Query::ids([&id]);
    let found = match tokio::time::timeout(SELF_LIMIT, api.instances(&query)).await {
        Ok(found) => found.map_err(|error| failed(error.into()))?,
        Err(_) => return Err(failed(ProviderError::deadline("DescribeInstances", SELF_LIMIT))),
    };
    let mut matching = found.into_iter().filter(|instance| instance.id == id);
    match (matching.next(), matching.next()) {
        (Some(instance), None) => Ok(instance),
        (None, _) => Err(failed(ProviderError::InstanceNotFound)),
        (Some(_), Some(_)) => {
            Err(failed(ProviderError::unknown(format!("multiple instances found for instance: {id}"))))
        }
    }
}

fn ownership(config: &Config, own: Option<&Instance>, allow_untagged: bool) -> Result<Ownership, ProviderError> {
    use crate::ownership::OwnershipError;
    let configured = Ownership::from_config(&config.cluster_tag, &config.cluster_id);
    let from_tags = || own.map_or(Err(OwnershipError::Missing), |own| Ownership::from_tags(&own.tags));
    match configured.and_then(|configured| configured.map_or_else(from_tags, Ok)) {
        Ok(ownership) => {
            tracing::info!(cluster = ownership.cluster, "AWS cloud filtering on ClusterID");
            Ok(ownership)
        }
        Err(OwnershipError::Missing) if allow_untagged => {
            tracing::warn!(
                "no cluster ID, and --allow-untagged-cloud is set: every object of the VPC counts as this cluster's, and no \
                 security group is ever deleted. Do not run two clusters in one VPC like this."
            );
            Ok(Ownership::untagged())
        }
        Err(error) => Err(ProviderError::unknown(error.to_string())),
    }
}
