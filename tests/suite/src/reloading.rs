//! The fake cloud as a provider that reloads its configuration.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::flag::Kind;
use ccm_provider::{
    CloudConfig, CloudProvider, ConfigSource, Flag, FlagValues, ProviderError, ProviderFactory, SecretKey,
};

const SECRET: &str = "reloading-secret";
const FLAGS: [Flag; 1] =
    [Flag::new("Reloading", SECRET, Kind::Text, "", "Name of a Secret in kube-system with the key cloud.yaml.")];

/// `--cloud-provider=reloading`: reads its configuration from a file or a Secret, and reloads it after changes. The
/// fake cloud itself rereads its file, except the keys that it reads only at the start: those show the reload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reloading;

#[async_trait]
impl ProviderFactory for Reloading {
    fn name(&self) -> &'static str {
        "reloading"
    }

    fn flags(&self) -> &'static [Flag] {
        &FLAGS
    }

    fn config_source(&self, flags: &FlagValues) -> ConfigSource {
        let secret = Some(flags.text(SECRET)).filter(|name| !name.is_empty());
        let key = |name| SecretKey { namespace: "kube-system".into(), name, key: "cloud.yaml".into() };
        ConfigSource { secret: secret.map(key), reload: true }
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        ccm_provider_fake::Factory.build(config, flags).await
    }
}
