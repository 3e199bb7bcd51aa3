//! The older interfaces, for the code paths of the core that use only them.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{Instances, NodeAddress, ProviderError, ZoneInfo, Zones};
use serde_json::json;

use crate::answer::Answer;
use crate::cloud::Cloud;
use crate::config::Config;
use crate::faults::Subject;
use crate::instances::{Known, find};
use crate::method::Method;

#[cfg(test)]
mod tests;

/// [`Instances`] and [`Zones`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct Legacy(pub(crate) Arc<Cloud>);

impl Legacy {
    async fn by_name<T: Answer>(
        &self,
        method: Method,
        name: &str,
        answer: impl FnOnce(Known) -> T + Send,
    ) -> Result<T, ProviderError> {
        let subject = Subject { node: Some(name), ..Subject::default() };
        self.0
            .call(method, subject, json!({"node": name}), |config, _| {
                find(config, &self.0.start.provider_name, name, "")?.map(answer).ok_or(ProviderError::InstanceNotFound)
            })
            .await
    }

    async fn by_id<T: Answer>(
        &self,
        method: Method,
        id: &str,
        answer: impl FnOnce(Option<Known>) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let subject = Subject { provider_id: Some(id), ..Subject::default() };
        let act = |config: &Config, _: &mut _| answer(find(config, &self.0.start.provider_name, "", id)?);
        self.0.call(method, subject, json!({"providerID": id}), act).await
    }
}

fn needed(known: Option<Known>) -> Result<Known, ProviderError> {
    known.ok_or(ProviderError::InstanceNotFound)
}

#[async_trait]
impl Instances for Legacy {
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, ProviderError> {
        self.by_name(Method::NodeAddresses, node_name, Known::addresses).await
    }

    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, ProviderError> {
        self.by_id(Method::NodeAddressesByProviderId, provider_id, |known| needed(known).map(Known::addresses)).await
    }

    async fn instance_id(&self, node_name: &str) -> Result<String, ProviderError> {
        self.by_name(Method::InstanceId, node_name, |known| known.instance_id).await
    }

    async fn instance_type(&self, node_name: &str) -> Result<String, ProviderError> {
        self.by_name(Method::InstanceType, node_name, |known| known.metadata.instance_type).await
    }

    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, ProviderError> {
        let answer = |known| needed(known).map(|known| known.metadata.instance_type);
        self.by_id(Method::InstanceTypeByProviderId, provider_id, answer).await
    }

    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError> {
        self.by_id(Method::InstanceExistsByProviderId, provider_id, |known| Ok(known.is_some())).await
    }

    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError> {
        let answer = |known| needed(known).map(|known| known.shutdown);
        self.by_id(Method::InstanceShutdownByProviderId, provider_id, answer).await
    }
}

#[async_trait]
impl Zones for Legacy {
    async fn zone(&self) -> Result<ZoneInfo, ProviderError> {
        let act = |config: &Config, _: &mut _| {
            let zone = config.zone.clone();
            Ok(ZoneInfo { failure_domain: zone.failure_domain, region: zone.region })
        };
        self.0.call(Method::GetZone, Subject::default(), json!({}), act).await
    }

    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<ZoneInfo, ProviderError> {
        self.by_id(Method::GetZoneByProviderId, provider_id, |known| needed(known).map(Known::zone)).await
    }

    async fn zone_by_node_name(&self, node_name: &str) -> Result<ZoneInfo, ProviderError> {
        self.by_name(Method::GetZoneByNodeName, node_name, Known::zone).await
    }
}
