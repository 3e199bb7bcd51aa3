//! The list of providers that a program was built with.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::cloud::CloudProvider;
use crate::error::ProviderError;

/// Makes a provider from its configuration file.
#[async_trait]
pub trait ProviderFactory: Send + Sync {
    /// The word for `--cloud-provider`.
    fn name(&self) -> &'static str;

    /// Reads the configuration; `None` when `--cloud-config` was not given, which differs from an empty file.
    ///
    /// Called once per process, on every replica, before election. Should fail early on what is wrong with the
    /// configuration and make no cloud call that can wait.
    async fn build(&self, config: Option<CloudConfig>) -> Result<Arc<dyn CloudProvider>, ProviderError>;
}

/// The file of `--cloud-config`.
#[derive(Clone)]
pub struct CloudConfig {
    /// Where it was read from.
    pub path: PathBuf,
    /// What it held. May hold secrets.
    pub text: String,
}

impl std::fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudConfig").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The providers of a program, by name.
#[derive(Default, Clone)]
pub struct Registry {
    factories: Vec<Arc<dyn ProviderFactory>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Why no provider came out of the registry. All end the process with code 255.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Two crates claim one name.
    #[error("Cloud provider {0:?} was registered twice")]
    Twice(String),
    /// The file of `--cloud-config` cannot be read.
    #[error("Couldn't open cloud provider configuration {path}: {source}")]
    Config {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The factory failed.
    #[error("Cloud provider could not be initialized: could not init cloud provider {name:?}: {source}")]
    Init {
        /// Name of the provider.
        name: String,
        /// Why.
        source: ProviderError,
    },
    /// A provider of this project that was left out of the build.
    #[error(
        "Cloud provider could not be initialized: unknown cloud provider {0:?}: it exists but was not compiled in; build with `cargo build --features {0}`"
    )]
    NotCompiledIn(String),
    /// No such provider.
    #[error("Cloud provider could not be initialized: unknown cloud provider {name:?} (compiled in: {known})")]
    Unknown {
        /// The word given.
        name: String,
        /// The words that would do.
        known: String,
    },
    /// `--cloud-provider=external` is for the other Kubernetes components.
    #[error("Cloud provider is nil")]
    Nil,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider; the same name twice is an error.
    pub fn register(&mut self, factory: Arc<dyn ProviderFactory>) -> Result<(), RegistryError> {
        if self.is_registered(factory.name()) {
            return Err(RegistryError::Twice(factory.name().to_owned()));
        }
        self.factories.push(factory);
        Ok(())
    }

    /// Whether there is a provider of that name.
    pub fn is_registered(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The factory of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn ProviderFactory>> {
        self.factories.iter().find(|factory| factory.name() == name)
    }

    /// The names in the order of registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.factories.iter().map(|factory| factory.name())
    }

    /// Whether the name stands for "provided elsewhere".
    pub fn is_external(name: &str) -> bool {
        name == "external"
    }

    /// Reads the configuration file and makes the provider. An empty path means "no configuration".
    ///
    /// `optional` names the providers of this project that may be left out of a build.
    pub async fn init(
        &self,
        name: &str,
        config_path: &str,
        optional: &[&str],
    ) -> Result<Arc<dyn CloudProvider>, RegistryError> {
        if name.is_empty() || Self::is_external(name) {
            return Err(RegistryError::Nil);
        }
        let Some(factory) = self.get(name) else {
            if optional.contains(&name) {
                return Err(RegistryError::NotCompiledIn(name.to_owned()));
            }
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(RegistryError::Unknown { name: name.to_owned(), known });
        };
        let config = match config_path {
            "" => None,
            path => Some(CloudConfig {
                path: path.into(),
                text: std::fs::read_to_string(path)
                    .map_err(|source| RegistryError::Config { path: path.to_owned(), source })?,
            }),
        };
        factory.build(config).await.map_err(|source| RegistryError::Init { name: name.to_owned(), source })
    }
}
