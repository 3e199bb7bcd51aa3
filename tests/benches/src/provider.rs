//! The cloud of the benchmarks: every node has an instance; a read takes 50 ms and a page has 1,000 instances.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    AddressType, Aspects, CloudConfig, CloudProvider, FlagValues, InstanceMetadata, InstancesV2, Lookup, NodeAddress,
    NodeRef, ProviderError, ProviderFactory,
};
use parking_lot::Mutex;

/// Latency of one read.
const READ: Duration = Duration::from_millis(50);
/// Instances per page.
const PAGE: usize = 1000;

/// Registers the provider as `bench`; the text of `--cloud-config` is the path of its call log.
pub(crate) struct Factory;

#[async_trait]
impl ProviderFactory for Factory {
    fn name(&self) -> &'static str {
        "bench"
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        _: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let path = config.map(|config| config.text.trim().to_owned()).unwrap_or_default();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|error| ProviderError::unknown(format!("call log {path:?}: {error}")))?;
        Ok(Arc::new(Bench { instances: Arc::new(Cloud { log: Mutex::new(log) }) }))
    }
}

struct Bench {
    instances: Arc<Cloud>,
}

impl CloudProvider for Bench {
    fn name(&self) -> &str {
        "bench"
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone())
    }
}

struct Cloud {
    log: Mutex<std::fs::File>,
}

#[async_trait]
impl InstancesV2 for Cloud {
    async fn lookup(&self, nodes: &[NodeRef], _aspects: Aspects) -> Vec<Lookup> {
        for page in nodes.chunks(PAGE) {
            tokio::time::sleep(READ).await;
            let mut log = self.log.lock();
            // A lost line would make the figure too low, so a failure ends the run.
            if let Err(error) = writeln!(log, "{}", page.len()) {
                return nodes.iter().map(|_| Lookup::Unknown(ProviderError::unknown(error.to_string()))).collect();
            }
        }
        nodes.iter().map(|node| Lookup::found(metadata(&node.name))).collect()
    }
}

fn metadata(name: &str) -> InstanceMetadata {
    let number: u32 = name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or_default();
    let [_, b, c, d] = number.to_be_bytes();
    InstanceMetadata {
        provider_id: format!("bench:///zone-{}/{name}", number % 3),
        instance_type: "bench.large".into(),
        node_addresses: vec![
            NodeAddress::new(AddressType::InternalIp, format!("10.{b}.{c}.{d}")),
            NodeAddress::new(AddressType::InternalDns, format!("{name}.internal")),
        ],
        zone: format!("zone-{}", number % 3),
        region: "here".into(),
        additional_labels: BTreeMap::new(),
    }
}
