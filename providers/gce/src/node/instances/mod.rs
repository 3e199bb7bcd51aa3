//! The instances behind the nodes.
//!
//! Upstream: `gce_instances.go`, one get for each node and question. Here the core asks about many nodes at once: their
//! instances are read ([`Nodes`] over [`source`]), and the answers are evaluated ([`Judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::directory::{self, NodeCloud, Nodes};
use ccm_kit::near_miss::Machine;
use ccm_provider::{
    Aspects, Instance, InstanceMetadata, Lookup, Node, NodeRef, PodInterface, PodRanges, ProviderError,
};
use parking_lot::Mutex;

use self::source::Compute;
use super::identity::{BadProviderId, InstanceId, Wanted, wanted};
use super::zones::Zones;
use crate::client::resource::{is_number, region_of};
use crate::client::{Client, instance};

pub(crate) mod addresses;
mod ranges;
mod source;

/// Lists may show new instances late: for a node younger than this, absence is no evidence.
const GRACE: Duration = Duration::from_secs(60);
/// The states of a stopped instance.
const STOPPED: [&str; 3] = ["TERMINATED", "STOPPED", "SUSPENDED"];

/// The configuration of lookups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// `node-instance-prefix`
    pub(crate) prefix: String,
    /// `stack-type`
    pub(crate) stack_type: String,
    /// `--enable-multi-project`: instances are read in the projects of the provider IDs.
    pub(crate) multi_project: bool,
    /// Whether nodes of stopped instances are tainted.
    pub(crate) taint_stopped: bool,
}

/// The instances of Compute Engine.
pub(crate) type GceInstances = Nodes<GceNodes>;

/// The rules of Compute Engine.
#[derive(Debug)]
pub(crate) struct GceNodes {
    settings: Settings,
    client: Client,
    zones: Zones,
    /// The names of projects that provider IDs contain as numbers.
    projects: Mutex<BTreeMap<String, String>>,
}

type Observed = directory::Observed<Compute>;

pub(crate) fn instances(settings: Settings, client: Client, zones: Zones, cluster: Cluster) -> GceInstances {
    let source = Compute::new(client.clone(), zones.clone(), settings.prefix.clone());
    Nodes::new(GceNodes { settings, client, zones, projects: Mutex::default() }, source, cluster)
}

#[async_trait]
impl NodeCloud for GceNodes {
    type Source = Compute;
    /// The projects of provider IDs that are not that of the cluster.
    type Details = BTreeSet<String>;

    const GRACE: Duration = GRACE;

    /// Without multi-project, the project of a provider ID is ignored.
    fn key(&self, node: &Node) -> Result<Wanted, Lookup> {
        match wanted(node) {
            Wanted::Never(BadProviderId::Foreign(_)) => Err(Lookup::Foreign),
            Wanted::Never(error) => Err(Lookup::Unknown(ProviderError::unknown(error.to_string()))),
            Wanted::Instance(id) if !self.settings.multi_project => {
                Ok(Wanted::Instance(InstanceId { project: self.project().to_owned(), ..id }))
            }
            key => Ok(key),
        }
    }

    fn name(key: &Wanted) -> Option<&str> {
        match key {
            Wanted::Name(name) => Some(name),
            _ => None,
        }
    }

    fn missing(&self, name: &str) -> (String, &'static str) {
        let remedy = "name the Node like its instance, or set its provider ID (gce://<project>/<zone>/<instance>)";
        (format!("no instance of project {:?} has the name {name:?}", self.project()), remedy)
    }

    async fn machines(&self) -> Result<Vec<Machine>, ProviderError> {
        Compute::machines(&self.client, &self.zones).await
    }

    async fn details(&self, nodes: &[(&NodeRef, &Wanted)], observed: &Observed, _: Aspects) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        for (node, key) in nodes {
            let is_missing = !self.settings.multi_project && observed.one(key).is_none();
            if let Some(id) = InstanceId::of(node).filter(|id| is_missing && !others.contains(&id.project))
                && !self.is_own(&id.project).await
            {
                others.insert(id.project);
            }
        }
        others
    }

    /// An instance missing in the project of the cluster says nothing about other projects.
    fn judge(&self, node: &Node, key: &Wanted, observed: &Observed, others: &BTreeSet<String>) -> Lookup {
        let answer = self.of(observed).node(node, key);
        match (&answer, InstanceId::of(node)) {
            (Lookup::Gone(_), Some(id)) if others.contains(&id.project) => {
                Lookup::Unknown(ProviderError::unknown(format!(
                    "the provider ID {id} is of project {:?}, and instances are looked for in project {:?} only, which has none of \
                     this name: start with --enable-multi-project, or correct project-id",
                    id.project,
                    self.project()
                )))
            }
            _ => answer,
        }
    }
}

impl GceNodes {
    /// The project of the cluster.
    fn project(&self) -> &str {
        &self.client.links().project
    }

    fn of<'a>(&'a self, observed: &'a Observed) -> Judge<'a> {
        Judge { settings: &self.settings, project: self.project(), observed }
    }

    /// Whether this is the project of the cluster, by ID or number.
    async fn is_own(&self, project: &str) -> bool {
        let own = self.project();
        if project == own || !is_number(project) {
            return project == own;
        }
        let known = self.projects.lock().get(project).cloned();
        if let Some(name) = known {
            return name == own;
        }
        let Ok(Some(name)) = self.client.project_name(project).await else { return false };
        let mut projects = self.projects.lock();
        *projects.entry(project.to_owned()).or_insert(name) == own
    }
}

/// The pod ranges of instances.
#[derive(Debug)]
pub(crate) struct GcePodRanges(pub(crate) Arc<GceInstances>);

#[async_trait]
impl PodRanges for GcePodRanges {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        let cloud = self.0.cloud();
        let keys: Vec<Result<Wanted, Lookup>> = nodes.iter().map(|node| cloud.key(node)).collect();
        let wanted = keys.iter().filter_map(|key| key.as_ref().ok()).cloned().collect();
        let observed = self.0.directory().recent(wanted).await;
        let judge = cloud.of(&observed);
        let answer = |(node, key): (&NodeRef, &Result<Wanted, Lookup>)| {
            let answer = match key {
                Ok(key) => match observed.one(key) {
                    Some(instance) => return Ok(ranges::of_instance(instance)),
                    None => judge.node(node, key),
                },
                Err(answer) => answer.clone(),
            };
            match answer {
                Lookup::Unknown(error) => Err(error),
                _ => Err(ProviderError::InstanceNotFound.wrap(node.provider_id_or_empty())),
            }
        };
        nodes.iter().zip(&keys).map(answer).collect()
    }
}

/// Evaluates an answer of the API for a node. Pure.
struct Judge<'a> {
    settings: &'a Settings,
    /// The project of the cluster.
    project: &'a str,
    observed: &'a Observed,
}

impl Judge<'_> {
    fn node(&self, node: &Node, key: &Wanted) -> Lookup {
        self.observed.judge(key, GRACE, |instance| {
            Lookup::Found(Arc::new(Instance {
                shutdown: self.shutdown(instance),
                metadata: self.metadata(node, key, instance).map(Some),
            }))
        })
    }

    /// Upstream does not implement this, so nodes of stopped instances are not tainted.
    fn shutdown(&self, instance: &instance::Instance) -> Result<bool, ProviderError> {
        match self.settings.taint_stopped {
            true => Ok(STOPPED.contains(&&*instance.status)),
            false => Err(ProviderError::NotImplemented),
        }
    }

    /// The ID of an instance that was found.
    fn id(&self, key: &Wanted, instance: &instance::Instance) -> InstanceId {
        match key {
            Wanted::Instance(id) => id.clone(),
            _ => InstanceId {
                project: self.project.to_owned(),
                zone: instance.zone().to_owned(),
                name: instance.name.clone(),
            },
        }
    }

    fn metadata(
        &self,
        node: &Node,
        key: &Wanted,
        instance: &instance::Instance,
    ) -> Result<InstanceMetadata, ProviderError> {
        let id = self.id(key, instance);
        if instance.network_interfaces.is_empty() {
            let text = format!("could not find network interfaces for instanceID {:?}", id.to_string());
            return Err(ProviderError::unknown(text));
        }
        Ok(InstanceMetadata {
            provider_id: match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
                Some(own) => own.to_owned(),
                None => id.to_string(),
            },
            instance_type: instance.machine_type().to_owned(),
            node_addresses: addresses::of_instance(instance, &self.settings.stack_type),
            region: region_of(&id.zone).unwrap_or_default().to_owned(),
            zone: id.zone,
            additional_labels: BTreeMap::new(),
        })
    }
}
