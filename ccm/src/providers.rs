//! The provider of a run or a command, and its configuration.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ccm_controllers::route;
use ccm_kit::document::did_you_mean;
use ccm_provider::{
    CloudConfig, CloudProvider, ConfigSource, FlagValues, ProviderFactory, Registry, RegistryError, SecretKey,
};
use ccm_runtime::Client;
use ccm_runtime::client::Call;
use serde::Deserialize;

use crate::exit::Failure;
use crate::options::Options;

/// Providers of this project that are optional in a build.
pub(crate) const OPTIONAL: [&str; 5] = ["aws", "azure", "fake", "gce", "openstack"];

/// Reads the configuration of a provider and builds the provider.
#[derive(Clone)]
pub struct Configuration {
    factory: Arc<dyn ProviderFactory>,
    source: ConfigSource,
    /// `--cloud-config`
    file: String,
    values: FlagValues,
    allow_untagged: bool,
    client: Client,
}

opaque_debug!(Configuration, this, "source" = &this.source);

/// A provider and the configuration from which it was built.
#[derive(Clone)]
pub struct Loaded {
    /// The provider; not initialized.
    pub provider: Arc<dyn CloudProvider>,
    pub(crate) config: Option<CloudConfig>,
}

opaque_debug!(Loaded, this, "provider" = &this.provider.name());

impl Configuration {
    /// The configuration of the provider that the flags select. `client` reads it if it is in a Secret.
    ///
    /// # Errors
    ///
    /// There is no such provider; exit code 255.
    pub fn of(registry: &Registry, options: &Options, client: &Client) -> Result<Self, Failure> {
        let factory = registry.choose(&options.cloud_provider, &OPTIONAL).map_err(|error| fatal(&error))?;
        let mut values = options.values.clone();
        // Without its controller nobody makes routes: the provider must not say what they need.
        if !options.switched_on().any(|controller| controller.name == route::NAME) {
            values.insert("configure-cloud-routes", vec!["false".to_owned()], true);
        }
        Ok(Self {
            factory: factory.clone(),
            source: factory.config_source(&options.values),
            file: options.cloud_config.clone(),
            values,
            allow_untagged: options.allow_untagged_cloud,
            client: client.clone(),
        })
    }

    /// Whether changes take effect while the program runs.
    pub(crate) fn is_watched(&self) -> bool {
        self.source.reload
    }

    /// The current configuration. `None`: there is neither a file nor a Secret.
    pub(crate) async fn read(&self) -> Result<Option<CloudConfig>, RegistryError> {
        match &self.source.secret {
            Some(key) => {
                let text = secret(&self.client, key).await;
                let text = text.map_err(|source| RegistryError::Config { origin: key.to_string(), source })?;
                Ok(Some(CloudConfig { path: key.to_string().into(), text }))
            }
            None if self.file.is_empty() => Ok(None),
            None => CloudConfig::read(&self.file).map(Some),
        }
    }

    pub(crate) async fn build(&self, config: Option<CloudConfig>) -> Result<Loaded, Failure> {
        let provider =
            Registry::build(&*self.factory, config.clone(), &self.values).await.map_err(|error| fatal(&error))?;
        if !provider.has_cluster_id() {
            if !self.allow_untagged {
                return Err(Failure::fatal(
                    "no ClusterID found. A ClusterID is required for the cloud provider to function properly. This check can \
                     be bypassed by setting the --allow-untagged-cloud option",
                ));
            }
            tracing::warn!(
                "detected a cluster without a ClusterID. A ClusterID will be required in the future. Please tag your cluster to avoid any future issues"
            );
        }
        Ok(Loaded { provider, config })
    }

    /// Reads the configuration and builds a provider.
    ///
    /// # Errors
    ///
    /// The configuration cannot be read or used; exit code 255.
    pub async fn load(&self) -> Result<Loaded, Failure> {
        let config = self.read().await.map_err(|error| fatal(&error))?;
        self.build(config).await
    }
}

/// The failure, with the provider that a misspelt name may mean.
pub(crate) fn fatal(error: &RegistryError) -> Failure {
    let hint = match error {
        RegistryError::Unknown { name, known } => did_you_mean(name, &known.split(", ").collect::<Vec<_>>()),
        _ => None,
    };
    Failure::fatal(format!("{error}{}", hint.unwrap_or_default()))
}

/// The value of a key of a Secret.
pub(crate) async fn secret(client: &Client, SecretKey { namespace, name, key }: &SecretKey) -> Result<String, Error> {
    let call = Call::get(format!("/api/v1/namespaces/{namespace}/secrets/{name}"));
    let answer = client.send(&call).await.map_err(|error| {
        let hint = match error.is_forbidden() {
            true => ": it must be allowed to `get` this Secret; see the RBAC in manifests/",
            false => "",
        };
        Error::other(format!("{error}{hint}"))
    })?;
    value(&answer, key)
}

/// The same from the API server's response. Errors never contain a value.
fn value(answer: &[u8], key: &str) -> Result<String, Error> {
    /// Keys and base64.
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let invalid = |text: String| Error::new(ErrorKind::InvalidData, text);
    // The parser's error may quote the text.
    let secret: Secret = serde_json::from_slice(answer).map_err(|_| invalid("the answer is not a Secret".into()))?;
    let Some(value) = secret.data.get(key) else {
        let keys: Vec<&str> = secret.data.keys().map(String::as_str).collect();
        let keys = if keys.is_empty() { "no data".into() } else { format!("only {}", keys.join(", ")) };
        return Err(invalid(format!("there is no key {key:?} in it, {keys}")));
    };
    decoded(value, key)
}

/// The text of a key whose value is in base64.
pub(crate) fn decoded(value: &str, key: &str) -> Result<String, Error> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidData, text);
    let bytes = BASE64_STANDARD.decode(value).map_err(|_| invalid(format!("the value of {key:?} is not base64")))?;
    String::from_utf8(bytes).map_err(|_| invalid(format!("the value of {key:?} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use ccm_runtime::Metrics;

    use super::*;

    #[tokio::test]
    async fn a_provider_makes_no_routes_without_the_controller_of_routes() {
        let mut registry = Registry::new();
        registry.register(Arc::new(ccm_provider_fake::Factory)).unwrap();
        let client = Client::without_server("a test", Metrics::new());
        for (flag, expected) in [
            ("--v=0", true),
            ("--configure-cloud-routes=false", false),
            ("--controllers=*,-node-route-controller", false),
            ("--controllers=*,-route", false),
            ("--controllers=service", false),
            ("--controllers=route", true),
        ] {
            let options = Options::from_args(["--cloud-provider=fake", flag]).unwrap();
            let values = Configuration::of(&registry, &options, &client).unwrap().values;
            assert_eq!(values.bool("configure-cloud-routes"), expected, "{flag}");
        }
    }

    #[test]
    fn errors_of_a_secret_do_not_contain_its_values() {
        let table = [
            (r#"{"data": {"cloud-config": "YTogMQ=="}}"#, Ok("a: 1")),
            (r#"{"data": {"cloud-config": ""}}"#, Ok("")),
            (r#"{"metadata": {}}"#, Err(r#"there is no key "cloud-config" in it, no data"#)),
            (r#"{"data": {"a": "eA==", "b": "eA=="}}"#, Err(r#"there is no key "cloud-config" in it, only a, b"#)),
            (r#"{"data": {"cloud-config": "hunter2!"}}"#, Err(r#"the value of "cloud-config" is not base64"#)),
            (r#"{"data": {"cloud-config": "/w=="}}"#, Err(r#"the value of "cloud-config" is not UTF-8"#)),
            (r#"{"data": "hunter2"}"#, Err("the answer is not a Secret")),
        ];
        for (answer, expected) in table {
            let found = value(answer.as_bytes(), "cloud-config").map_err(|error| error.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{answer}");
        }
    }
}
