//! Creates the SDK's clients.
//!
//! Upstream: `pkg/providers/v1/aws_sdk.go`. Environment and profile supply the settings that the cloud config lacks:
//! credentials, endpoints (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_EC2`, …), FIPS and dual-stack endpoints.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::identity::IdentityCache;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig, imds};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextMut;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use ccm_kit::call::Caller;
use ccm_provider::ProviderError;
use http::HeaderValue;

use super::credentials::{AssumedRole, Explained, metadata_failure, renewed};
use super::endpoint::Overridden;
use super::intercept::Answers;
use super::{Clients, SdkApi};
use crate::client::Api;
use crate::client::metrics::Metrics as CallMetrics;
use crate::client::operation::Operation;
use crate::client::operation::Service;
use crate::start::config::{Config, Endpoint, Role};
use crate::start::{Connector, Identity, Metadata};

#[cfg(test)]
mod tests;

/// Pins the SDK's defaults to a date, so that a newer SDK does not change them.
fn behavior() -> BehaviorVersion {
    BehaviorVersion::v2026_01_12()
}

/// Limit of one attempt. After a slower answer the SDK would compute a wrong clock skew, and AWS would refuse every
/// later signature (upstream: PR #1374).
const ATTEMPT: Duration = Duration::from_secs(30);

/// The SDK's configuration before region and role are known.
#[derive(Debug)]
pub(crate) struct Sdk {
    http: SharedHttpClient,
    /// The one for the metadata service.
    metadata_http: SharedHttpClient,
    caller: Caller<Operation>,
    metrics: CallMetrics,
    is_metadata_off: bool,
}

impl Sdk {
    pub(crate) fn from_environment(caller: Caller<Operation>, metrics: CallMetrics) -> Result<Self, ProviderError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_true = |name| variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let http = super::http::client(&variable)?;
        let metadata_http = match is_true("AWS_EC2_METADATA_V1_DISABLED") {
            true => http.clone(),
            false => super::metadata::client(http.clone()),
        };
        Ok(Self { http, metadata_http, caller, metrics, is_metadata_off: is_true("AWS_EC2_METADATA_DISABLED") })
    }

    fn metadata_client(&self, config: &Config) -> Result<imds::Client, ProviderError> {
        let provider = ProviderConfig::without_region().with_http_client(self.metadata_http.clone());
        let builder = imds::Client::builder().configure(&provider);
        let builder = match config.override_for(Endpoint::Metadata, "") {
            None => builder,
            Some(entry) => builder.endpoint(&entry.url).map_err(|error| {
                ProviderError::unknown(format!(
                    "error creating AWS metadata client: [ServiceOverride {:?}] URL = {:?}: {error}",
                    entry.name, entry.url
                ))
            })?,
        };
        Ok(builder.build())
    }

    /// The configuration without credentials.
    async fn base(&self, region: &str) -> SdkConfig {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build();
        aws_config::defaults(behavior())
            .region(Region::new(region.to_owned()))
            .http_client(self.http.clone())
            .timeout_config(timeouts)
            // The credentials have their own.
            .identity_cache(IdentityCache::no_cache())
            .no_credentials()
            .load()
            .await
    }

    /// Adds the credentials of the chain.
    async fn with_chain(&self, base: SdkConfig, metadata: imds::Client) -> SdkConfig {
        let provider = ProviderConfig::without_region()
            .with_region(base.region().cloned())
            // A profile may name the metadata service, too.
            .with_http_client(self.metadata_http.clone())
            .with_use_fips(base.use_fips())
            .with_use_dual_stack(base.use_dual_stack())
            .with_behavior_version(Some(behavior()));
        let mut chain = DefaultCredentialsChain::builder().configure(provider).imds_client(metadata.clone());
        chain.set_region(base.region().cloned());
        let explained = Explained { chain: chain.build().await, metadata, is_metadata_off: self.is_metadata_off };
        base.into_builder().credentials_provider(renewed(explained)).build()
    }
}

#[async_trait]
impl Connector for Sdk {
    fn metadata(&self, config: &Config) -> Result<Arc<dyn Metadata>, ProviderError> {
        let client = self.metadata_client(config)?;
        Ok(Arc::new(Imds { client, is_off: self.is_metadata_off }))
    }

    async fn api(self: Box<Self>, config: &Config, region: &str) -> Result<Arc<dyn Api>, ProviderError> {
        let base = self.base(region).await;
        let mut shared = self.with_chain(base, self.metadata_client(config)?).await;
        if let Some(role) = config.role()? {
            tracing::info!(role = role.arn, "Using AWS assumed role");
            let answers = Answers(self.metrics.clone());
            let assumed = assumed_role(config, role, &shared, region, answers)?;
            shared = shared.into_builder().credentials_provider(renewed(assumed)).build();
        }
        Ok(Arc::new(SdkApi::new(&clients(config, &shared, region), self.caller, &self.metrics)))
    }
}

/// The SDK's retries stay enabled here and in the chain: nothing else repeats these requests.
fn assumed_role(
    config: &Config,
    role: Role,
    shared: &SdkConfig,
    region: &str,
    answers: Answers,
) -> Result<AssumedRole, ProviderError> {
    let header = |source: &String| {
        HeaderValue::from_str(source).map_err(|_| {
            ProviderError::unknown(format!(
                "unable to create sts v2 client: [Global] SourceARN = {source:?}: not an ARN: it cannot be sent as a header"
            ))
        })
    };
    let source = config.source.as_ref().map(header).transpose()?;
    let mut builder = aws_sdk_sts::config::Builder::from(shared).interceptor(UserAgent).interceptor(answers);
    if let Some(entry) = config.override_for(Endpoint::Of(Service::Sts), region) {
        builder = builder.endpoint_resolver(Overridden::new(Service::Sts, entry));
    }
    Ok(AssumedRole { sts: aws_sdk_sts::Client::from_conf(builder.build()), role, source })
}

/// The clients of the services. The SDK makes one attempt; [`Caller`] retries.
pub(crate) fn clients(config: &Config, shared: &SdkConfig, region: &str) -> Clients {
    macro_rules! client {
        ($sdk:ident, $service:expr) => {{
            let mut builder =
                $sdk::config::Builder::from(shared).retry_config(RetryConfig::disabled()).interceptor(UserAgent);
            if let Some(entry) = config.override_for(Endpoint::Of($service), region) {
                builder = builder.endpoint_resolver(Overridden::new($service, entry));
            }
            $sdk::Client::from_conf(builder.build())
        }};
    }
    Clients {
        ec2: client!(aws_sdk_ec2, Service::Ec2),
        elb: client!(aws_sdk_elasticloadbalancing, Service::Elb),
        elbv2: client!(aws_sdk_elasticloadbalancingv2, Service::ElbV2),
    }
}

/// Adds this program to the user agent. Administrators search their CloudTrail logs for `kubernetes/`.
#[derive(Debug)]
struct UserAgent;

impl Intercept for UserAgent {
    fn name(&self) -> &'static str {
        "UserAgent"
    }

    // The header is not part of the signature, so it may still change here.
    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        let version = env!("CARGO_PKG_VERSION");
        let agent = format!("{} kubernetes/ccm-v{version}", headers.get("user-agent").unwrap_or_default());
        headers.try_insert("user-agent", agent.trim().to_owned())?;
        Ok(())
    }
}

/// The metadata service of the instance.
#[derive(Debug)]
struct Imds {
    client: imds::Client,
    is_off: bool,
}

impl Imds {
    async fn get(&self, path: &str) -> Result<String, String> {
        if self.is_off {
            return Err("the instance metadata service is switched off by AWS_EC2_METADATA_DISABLED".to_owned());
        }
        let answer = self.client.get(path).await.map_err(|error| metadata_failure(&error))?;
        Ok(answer.as_ref().trim().to_owned())
    }
}

#[async_trait]
impl Metadata for Imds {
    async fn identity(&self) -> Result<Identity, String> {
        let document = self.get("/latest/dynamic/instance-identity/document").await?;
        serde_json::from_str(&document).map_err(|error| format!("unreadable instance identity document: {error}"))
    }

    async fn instance_id(&self) -> Result<String, String> {
        self.get("/latest/meta-data/instance-id").await
    }
}
