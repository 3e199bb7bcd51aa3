//! ConfigMaps for provider data that must survive a restart, such as the ID of the cluster.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::error::ProviderError;

/// A ConfigMap that a provider reads and creates. [`crate::ProviderFactory::config_maps`] declares it, and the shipped
/// RBAC allows it.
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

/// Reads and creates ConfigMaps. Each method calls the API server: cache the result for a while.
#[async_trait]
pub trait ConfigMaps: Send + Sync {
    /// The data; `None` if the API server reports that the ConfigMap does not exist.
    ///
    /// # Errors
    ///
    /// The API server does not answer, or rejects the request: the ConfigMap may or may not exist.
    async fn get(&self, spec: &ConfigMapSpec) -> Result<Option<ConfigMapData>, ProviderError>;

    /// Creates the ConfigMap with this data and returns the stored data, which is that of another process if that
    /// process created it first. A dry run creates nothing and returns the given data.
    ///
    /// # Errors
    ///
    /// The API server does not answer or rejects the request, or this process does not lead.
    async fn create(&self, spec: &ConfigMapSpec, data: ConfigMapData) -> Result<ConfigMapData, ProviderError>;
}
