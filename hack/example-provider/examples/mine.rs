//! The smallest provider: the blocks of the guide (`providers/api/README.md`), one after the other.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{CloudProvider, InstanceMetadata, InstancesV2, Node, OneByOne, ProviderError, SingleInstances};

struct Machines; // a client of your cloud

impl Machines {
    /// `Ok(None)`: the cloud says that there is no such machine. An error: it could not be asked.
    async fn find(&self, node: &Node) -> Result<Option<(String, bool)>, ProviderError> {
        match node.provider_id_or_empty() {
            "" => Ok(Some((format!("serial-of-{}", node.name), true))), // by name
            id => match id.strip_prefix("mine://") {
                Some(serial) => Ok(Some((serial.to_owned(), true))),
                // Of another cloud: this says nothing about any machine of ours.
                None => Err(ProviderError::unknown(format!("{id:?} is not a provider ID of mine"))),
            },
        }
    }
}

#[async_trait]
impl SingleInstances for Machines {
    async fn exists(&self, node: &Node) -> Result<bool, ProviderError> {
        Ok(self.find(node).await?.is_some())
    }
    async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError> {
        let (_, running) = self.find(node).await?.ok_or(ProviderError::InstanceNotFound)?;
        Ok(!running)
    }
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let (serial, _) = self.find(node).await?.ok_or(ProviderError::InstanceNotFound)?;
        Ok(Some(InstanceMetadata { provider_id: format!("mine://{serial}"), ..Default::default() }))
    }
}

struct Mine;

impl CloudProvider for Mine {
    fn name(&self) -> &str {
        "mine"
    }
    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(OneByOne::new(Machines, 8)))
    }
}

use ccm_provider::{CloudConfig, FlagValues, ProviderFactory};

struct Factory;

#[async_trait]
impl ProviderFactory for Factory {
    /// Value of `--cloud-provider`.
    fn name(&self) -> &'static str {
        "mine"
    }
    /// `config`: path and text of the file of `--cloud-config`, if there is one. `flags`: the values of all flags.
    async fn build(
        &self,
        config: Option<CloudConfig>,
        _flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        match config {
            Some(config) if config.text.trim().is_empty() => {
                Err(ProviderError::unknown(format!("{} is empty", config.path.display())))
            }
            _ => Ok(Arc::new(Mine)),
        }
    }
}

fn main() -> std::process::ExitCode {
    ccm::App::new().named("mine-ccm", "Runs Kubernetes on my machines.").register(Factory).run(std::env::args_os())
}
