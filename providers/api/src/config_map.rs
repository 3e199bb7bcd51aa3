//! ConfigMaps for data of a provider that must outlive the process, such as the ID of the cluster.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::error::ProviderError;

/// A ConfigMap that a provider reads and creates. [`crate::ProviderFactory::config_maps`] declares it, and the shipped RBAC
/// allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigMapSpec {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Purpose, in a few words; shipped as a comment of the RBAC rule.
    pub why: &'static str,
}

/// `data` of a ConfigMap.
pub type ConfigMapData = BTreeMap<String, String>;

/// Reads and creates ConfigMaps. Each method is a call to the API server: cache the result for a while.
#[async_trait]
pub trait ConfigMaps: Send + Sync {
    /// The data; `None` when the API server says that there is no such ConfigMap.
    ///
    /// # Errors
    ///
    /// The API server does not answer, or refuses: absence is then not known.
    async fn get(&self, spec: &ConfigMapSpec) -> Result<Option<ConfigMapData>, ProviderError>;

    /// Creates it with this data, and returns the stored data: that of another process, if that one was faster. A dry
    /// run creates nothing and returns the given data.
    ///
    /// # Errors
    ///
    /// The API server does not answer, or refuses, or this process does not lead.
    async fn create(&self, spec: &ConfigMapSpec, data: ConfigMapData) -> Result<ConfigMapData, ProviderError>;
}
