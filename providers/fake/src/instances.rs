//! Instances in batches.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{
    Aspects, Evidence, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup, Node, NodeAddress, NodeRef,
    ProviderError, ZoneInfo,
};

use crate::cloud::{Batch, Cloud};
use crate::config::{self, Config, Unlisted};
use crate::method::Method;

#[cfg(test)]
mod tests;

/// Type of instances that are not listed.
const INVENTED_TYPE: &str = "fake.small";

/// An instance as the cloud reports it, with all defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) metadata: InstanceMetadata,
    pub(crate) instance_id: String,
    pub(crate) shutdown: bool,
    no_metadata: bool,
}

/// The instance in the file; name or provider ID may be empty. `None`: there is no such instance.
pub(crate) fn find(
    config: &Config,
    provider_name: &str,
    name: &str,
    provider_id: &str,
) -> Result<Option<Known>, ProviderError> {
    if let Some(entry) = config.instances.find(name, provider_id) {
        return Ok(entry.exists.then(|| Known::listed(entry, config, provider_name)));
    }
    match config.unlisted {
        Unlisted::Error => Err(ProviderError::unknown("unlisted instance")),
        Unlisted::Invent if !(name.is_empty() && provider_id.is_empty()) => {
            Ok(Some(Known::invented(config, provider_name, name, provider_id)))
        }
        // The file is complete only for this cloud.
        Unlisted::Missing if is_foreign(provider_id, provider_name) => {
            Err(ProviderError::unknown(format!("{provider_id:?} is not a provider ID of {provider_name}")))
        }
        Unlisted::Invent | Unlisted::Missing => Ok(None),
    }
}

fn is_foreign(provider_id: &str, provider_name: &str) -> bool {
    provider_id.split_once("://").is_some_and(|(scheme, _)| scheme != provider_name)
}

impl Known {
    fn listed(entry: &config::Instance, config: &Config, provider_name: &str) -> Self {
        let provider_id = entry.provider_id.clone();
        let default = |own: &Option<String>, zone: &String| own.as_ref().unwrap_or(zone).clone();
        Self {
            instance_id: entry.instance_id.clone().unwrap_or_else(|| without_scheme(&provider_id, provider_name)),
            shutdown: entry.shutdown,
            no_metadata: entry.no_metadata,
            metadata: InstanceMetadata {
                provider_id,
                instance_type: entry.kind.clone(),
                node_addresses: entry.addresses.clone(),
                zone: default(&entry.zone, &config.zone.failure_domain),
                region: default(&entry.region, &config.zone.region),
                additional_labels: entry.labels.clone(),
            },
        }
    }

    fn invented(config: &Config, provider_name: &str, name: &str, provider_id: &str) -> Self {
        // The name of an instance that is looked up by ID alone is its ID, so that both lookups find the same one.
        let provider_id = match provider_id {
            "" => format!("{provider_name}://{name}"),
            id => id.to_owned(),
        };
        Self {
            instance_id: without_scheme(&provider_id, provider_name),
            shutdown: false,
            no_metadata: false,
            metadata: InstanceMetadata {
                provider_id,
                instance_type: INVENTED_TYPE.to_owned(),
                zone: config.zone.failure_domain.clone(),
                region: config.zone.region.clone(),
                ..InstanceMetadata::default()
            },
        }
    }

    pub(crate) fn zone(self) -> ZoneInfo {
        ZoneInfo { failure_domain: self.metadata.zone, region: self.metadata.region }
    }

    pub(crate) fn addresses(self) -> Vec<NodeAddress> {
        self.metadata.node_addresses
    }
}

fn without_scheme(provider_id: &str, provider_name: &str) -> String {
    let rest = provider_id.strip_prefix(provider_name).and_then(|rest| rest.strip_prefix("://"));
    rest.unwrap_or(provider_id).to_owned()
}

/// [`InstancesV2`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeInstances(pub(crate) Arc<Cloud>);

impl FakeInstances {
    fn find(&self, config: &Config, node: &Node) -> Result<Option<Known>, ProviderError> {
        find(config, &self.0.start.provider_name, &node.name, node.provider_id_or_empty())
    }

    fn must_find(&self, config: &Config, node: &Node) -> Result<Known, ProviderError> {
        self.find(config, node)?.ok_or(ProviderError::InstanceNotFound)
    }

    /// Answers for the nodes marked in `open`, `None` for the others. Without such nodes there is no call.
    async fn ask<T: crate::answer::Answer>(
        &self,
        method: Method,
        nodes: &[NodeRef],
        open: &[bool],
        act: impl Fn(&Config, &Node) -> Result<T, ProviderError> + Send,
    ) -> Vec<Option<Result<T, ProviderError>>> {
        let asked: Vec<&Node> = nodes.iter().zip(open).filter_map(|(node, open)| open.then_some(&**node)).collect();
        let mut answers = if asked.is_empty() {
            Vec::new().into_iter()
        } else {
            self.0.batch(method, &asked, act).await.answers.into_iter()
        };
        open.iter().map(|open| if *open { answers.next() } else { None }).collect()
    }
}

#[async_trait]
impl InstancesV2 for FakeInstances {
    /// Up to three batch calls, one per aspect, because each is a separate call in upstream's interface: in the log and
    /// for faults.
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let mut settled: Vec<Option<Lookup>> = nodes.iter().map(|_| None).collect();
        if aspects.existence && !nodes.is_empty() {
            let asked: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
            let act = |config: &Config, node: &Node| self.find(config, node).map(|known| known.is_some());
            let Batch { began, config, answers } = self.0.batch(Method::InstanceExists, &asked, act).await;
            settled = answers
                .into_iter()
                .map(|answer| match answer {
                    Ok(true) => None,
                    // The file is complete and current: no second list is needed.
                    Ok(false) => Some(Lookup::Gone(Evidence {
                        kind: EvidenceKind::Absent,
                        read_began: began,
                        grace: config.absence_grace,
                    })),
                    Err(error) => Some(Lookup::Unknown(error)),
                })
                .collect();
        }
        let open = |wanted: bool| settled.iter().map(|lookup| wanted && lookup.is_none()).collect::<Vec<bool>>();
        let asked = open(aspects.shutdown);
        let shutdown = self
            .ask(Method::InstanceShutdown, nodes, &asked, |config, node| Ok(self.must_find(config, node)?.shutdown))
            .await;
        let asked = open(aspects.metadata || aspects.addresses);
        let metadata = self
            .ask(Method::InstanceMetadata, nodes, &asked, |config, node| {
                let known = self.must_find(config, node)?;
                Ok((!known.no_metadata).then_some(known.metadata))
            })
            .await;
        let only_metadata = !aspects.existence && !aspects.shutdown;
        let answers = settled.into_iter().zip(shutdown).zip(metadata);
        answers
            .map(|((settled, shutdown), metadata)| {
                if let Some(lookup) = settled {
                    return lookup;
                }
                match metadata {
                    // Its existence was not requested, so this is no evidence.
                    Some(Err(error)) if only_metadata && error.is_instance_not_found() => Lookup::Unknown(error),
                    metadata => Lookup::Found(Arc::new(Instance {
                        shutdown: shutdown.unwrap_or(Ok(false)),
                        metadata: metadata.unwrap_or(Ok(None)),
                    })),
                }
            })
            .collect()
    }
}
