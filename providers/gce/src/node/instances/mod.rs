//! The instances behind the nodes.
//!
//! Upstream: `gce_instances.go`, one get for each node and question. Here the core asks about many nodes at once: their
//! instances are read ([`Directory`] over [`source`]), and the answers are evaluated ([`Judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::near_miss::{FoundNames, Machine, no_machine};
use ccm_kit::{Cached, Cluster, Directory, Interrupted, call, directory, lock};
use ccm_provider::{
    Aspects, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup, Node, NodeRef, PodInterface, PodRanges,
    ProviderError, Snapshot,
};
use futures::FutureExt;

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
/// How long the instances are kept that are compared with a name that none has.
const MACHINES_AGE: Duration = Duration::from_secs(300);
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

/// The Compute API behind [`InstancesV2`].
#[derive(Debug)]
pub(crate) struct GceInstances {
    settings: Settings,
    client: Client,
    cluster: Cluster,
    directory: Directory<Compute>,
    /// The names of projects that provider IDs contain as numbers.
    projects: Mutex<BTreeMap<String, String>>,
    /// Names of nodes that were those of instances: only their absence is evidence.
    found: FoundNames,
    /// All instances, to show those that come close to a name that none has.
    machines: Cached<Vec<Machine>, ProviderError>,
}

type Observed = directory::Observed<Compute>;

impl GceInstances {
    pub(crate) fn new(settings: Settings, client: Client, zones: Zones, cluster: Cluster) -> Self {
        let source = Compute::new(client.clone(), zones.clone(), settings.prefix.clone());
        let directory = Directory::new(source, cluster.clone());
        let reader = client.clone();
        let read = move || {
            let (client, zones) = (reader.clone(), zones.clone());
            async move { Compute::machines(&client, &zones).await }.boxed()
        };
        let interrupted = |how: Interrupted| ProviderError::unknown(how.to_string());
        let machines = Cached::new(read, interrupted as fn(Interrupted) -> ProviderError);
        let (projects, found) = (Mutex::default(), FoundNames::default());
        Self { settings, client, cluster, directory, projects, found, machines }
    }

    /// The keys of nodes, in order. Without multi-project, the project of a provider ID is ignored.
    pub(crate) fn wanted(&self, nodes: &[NodeRef]) -> Vec<Wanted> {
        let project = &self.client.links().project;
        let key = |node: &NodeRef| match wanted(node) {
            Wanted::Instance(id) if !self.settings.multi_project => {
                Wanted::Instance(InstanceId { project: project.clone(), ..id })
            }
            key => key,
        };
        nodes.iter().map(key).collect()
    }

    fn judge<'a>(&'a self, observed: &'a Observed) -> Judge<'a> {
        Judge { settings: &self.settings, project: &self.client.links().project, observed }
    }

    /// The answer for a node. An instance missing in the project of the cluster says nothing about other projects, nor
    /// does a name that no instance ever had.
    async fn answer(&self, judge: &Judge<'_>, node: &Node, key: &Wanted) -> Lookup {
        let answer = judge.node(node, key);
        if let (Wanted::Name(name), Lookup::Unknown(ProviderError::InstanceNotFound)) = (key, &answer) {
            return match self.found.contains(name) {
                true => judge.observed.gone(EvidenceKind::Unlisted, GRACE),
                false => answer,
            };
        }
        match (&answer, InstanceId::of(node)) {
            (Lookup::Gone(_), Some(id)) if !self.settings.multi_project && !self.is_own(&id.project).await => {
                Lookup::Unknown(ProviderError::unknown(format!(
                    "the provider ID {id} is of project {:?}, and instances are looked for in project {:?} only, which has none of \
                     this name: start with --enable-multi-project, or correct project-id",
                    id.project, judge.project
                )))
            }
            _ => answer,
        }
    }

    /// The error for a node without provider ID whose name no instance has.
    async fn never_found(&self, node: &Node, name: &str) -> ProviderError {
        let machines = self.machines.get(MACHINES_AGE, None).await;
        let looked_for = format!("no instance of project {:?} has the name {name:?}", self.client.links().project);
        let remedy = "name the Node like its instance, or set its provider ID (gce://<project>/<zone>/<instance>)";
        let machines = machines.as_ref().map(|machines| machines.value.as_slice()).map_err(ToString::to_string);
        no_machine(node, &looked_for, machines, remedy)
    }

    /// Whether this is the project of the cluster, by ID or number.
    async fn is_own(&self, project: &str) -> bool {
        let own = &self.client.links().project;
        if project == own || !is_number(project) {
            return project == own;
        }
        let known = lock(&self.projects).get(project).cloned();
        if let Some(name) = known {
            return name == *own;
        }
        let Ok(Some(name)) = self.client.project_name(project).await else { return false };
        let mut projects = lock(&self.projects);
        *projects.entry(project.to_owned()).or_insert(name) == *own
    }

    async fn answers(&self, observed: &Observed, nodes: &[NodeRef], wanted: &[Wanted]) -> Vec<Lookup> {
        let named = wanted.iter().filter_map(|key| match key {
            Wanted::Name(name) if observed.one(key).is_some() => Some(&**name),
            _ => None,
        });
        self.found.add(named);
        let judge = self.judge(observed);
        let mut answers = Vec::with_capacity(nodes.len());
        for (node, key) in nodes.iter().zip(wanted) {
            answers.push(self.answer(&judge, node, key).await);
        }
        answers
    }
}

/// The keys to read.
fn keys(wanted: &[Wanted]) -> BTreeSet<Wanted> {
    wanted.iter().filter(|wanted| !matches!(wanted, Wanted::Never(_))).cloned().collect()
}

#[async_trait]
impl InstancesV2 for GceInstances {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let wanted = self.wanted(nodes);
        let keys = keys(&wanted);
        let observed = match aspects {
            // Only a current read shows whether an instance exists or is stopped.
            Aspects { existence: true, .. } | Aspects { shutdown: true, .. } => self.directory.look_up(keys).await,
            // The addresses of working nodes are not urgent.
            Aspects::ADDRESSES => call::refreshing(self.directory.recent(keys)).await,
            _ => self.directory.recent(keys).await,
        };
        let mut answers = self.answers(&observed, nodes, &wanted).await;
        for ((node, key), answer) in nodes.iter().zip(&wanted).zip(&mut answers) {
            if let (Wanted::Name(name), Lookup::Unknown(ProviderError::InstanceNotFound)) = (key, &answer) {
                *answer = Lookup::Unknown(self.never_found(node, name).await);
            }
        }
        answers
    }

    async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
        // Without the nodes, the IDs that an answer must contain are unknown.
        let nodes = self.cluster.nodes()?.list();
        let wanted = self.wanted(&nodes);
        let observed = match self.directory.all(keys(&wanted)).await {
            Ok(observed) => observed,
            Err(error) => return Some(Err(error)),
        };
        let answers = self.answers(&observed, &nodes, &wanted).await;
        let judge = self.judge(&observed);
        let answers = nodes.iter().zip(&wanted).zip(answers).map(|((node, key), answer)| {
            let id = observed.one(key).map(|instance| judge.id(key, instance).to_string());
            (node, id, answer)
        });
        Some(Ok(observed.snapshot(GRACE, answers)))
    }
}

#[async_trait]
impl PodRanges for GceInstances {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        let wanted = self.wanted(nodes);
        let observed = self.directory.recent(keys(&wanted)).await;
        let judge = self.judge(&observed);
        let answer = |(node, key): (&NodeRef, &Wanted)| match (observed.one(key), judge.node(node, key)) {
            (Some(instance), _) => Ok(ranges::of_instance(instance)),
            (None, Lookup::Unknown(error)) => Err(error),
            (None, _) => Err(ProviderError::InstanceNotFound.wrap(node.provider_id_or_empty())),
        };
        nodes.iter().zip(&wanted).map(answer).collect()
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
        match key {
            Wanted::Never(BadProviderId::Foreign(_)) => Lookup::Foreign,
            Wanted::Never(error) => Lookup::Unknown(ProviderError::unknown(error.to_string())),
            _ => self.observed.judge(key, GRACE, |instance| {
                Lookup::Found(Arc::new(Instance {
                    shutdown: self.shutdown(instance),
                    metadata: self.metadata(node, key, instance).map(Some),
                }))
            }),
        }
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
