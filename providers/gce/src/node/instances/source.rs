//! The sources of instances: one get, the list of a zone, or a search by name in the whole project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Interrupted;
use ccm_kit::call::ErrorKind;
use ccm_kit::directory::{Answer, Seen, Source};
use ccm_kit::near_miss::Machine;
use ccm_provider::{NodeAddress, ProviderError};
use futures::{StreamExt, future, stream};

use super::addresses::of_instance;
use crate::client::instance::Instance;
use crate::client::operation::INSTANCE_LIST;
use crate::client::{ApiError, Client, is_forbidden};
use crate::node::identity::{InstanceId, Wanted};
use crate::node::zones::Zones;

/// Instances per page of a list.
const PAGE: usize = 500;
/// Zones of a typical region.
const ZONES: usize = 3;
/// From this number of instances on, the list of their zone is read instead of each instance.
const WORTH_A_LIST: usize = 30;
/// Names in one search: the length of a URL is limited.
const NAMES: usize = 40;
/// Concurrent calls.
const IN_FLIGHT: usize = 16;
const RUNNING: &str = "RUNNING";

type List = BTreeMap<Wanted, Seen<Arc<Instance>>>;

/// The Compute API as a source of instances.
#[derive(Debug)]
pub(crate) struct Compute {
    client: Client,
    zones: Zones,
    /// `node-instance-prefix`
    prefix: String,
}

impl Compute {
    pub(super) fn new(client: Client, zones: Zones, prefix: String) -> Self {
        Self { client, zones, prefix }
    }

    fn project(&self) -> &str {
        &self.client.links().project
    }

    async fn by_id(&self, id: InstanceId) -> (Wanted, Answer<Self>) {
        let found = self.client.of_project(&id.project).instance(&id.zone, &id.name).await;
        let seen = found.map(|found| found.map_or(Seen::Absent, |instance| Seen::One(Arc::new(instance))));
        (Wanted::Instance(id), seen)
    }

    /// The instances of a zone, each under its ID.
    async fn zone(&self, project: &str, zone: &str) -> Result<List, ApiError> {
        let found = self.client.of_project(project).instances(zone, &self.prefix).await?;
        let id = |name: &str| InstanceId { project: project.to_owned(), zone: zone.to_owned(), name: name.to_owned() };
        let entry = |instance: Instance| (Wanted::Instance(id(&instance.name)), Seen::One(Arc::new(instance)));
        Ok(found.into_iter().map(entry).collect())
    }

    /// The instances of the managed zones, whatever their names, to compare with those of nodes.
    pub(super) async fn machines(client: &Client, zones: &Zones) -> Result<Vec<Machine>, ProviderError> {
        let zones = zones.managed().await?;
        let lists = future::try_join_all(zones.iter().map(|zone| client.instances(zone, ""))).await?;
        let machine = |instance: Instance| Machine {
            place: instance.zone().to_owned(),
            addresses: of_instance(&instance, "").iter().filter_map(NodeAddress::ip).collect(),
            name: instance.name,
        };
        Ok(lists.into_iter().flatten().map(machine).collect())
    }

    /// Instances by ID, from the list of their zone if there are many. Instances that it lacks are read one by one, and
    /// all of them if the list is refused. A zone that does not answer gets no more calls.
    async fn of_zone(&self, project: String, zone: String, ids: Vec<InstanceId>) -> Vec<(Wanted, Answer<Self>)> {
        let mut listed = match ids.len() < WORTH_A_LIST {
            true => List::new(),
            false => match self.zone(&project, &zone).await {
                Ok(list) => list,
                Err(error) if error.kind == ErrorKind::Refused => List::new(),
                Err(error) => return ids.into_iter().map(|id| (Wanted::Instance(id), Err(error.clone()))).collect(),
            },
        };
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for id in ids {
            let key = Wanted::Instance(id.clone());
            match listed.remove(&key) {
                Some(seen) => answers.push((key, Ok(seen))),
                None => missing.push(self.by_id(id)),
            }
        }
        let looked_up: Vec<_> = stream::iter(missing).buffer_unordered(IN_FLIGHT).collect().await;
        answers.extend(looked_up);
        answers
    }

    /// Instances by name, anywhere in the project: a node outside the managed zones has an instance, too.
    async fn by_names(&self, names: Vec<String>) -> Vec<(Wanted, Answer<Self>)> {
        let managed = self.zones.managed().await.unwrap_or_default();
        let (found, error) = match self.client.instances_named(&names).await {
            Ok(found) => (found, None),
            Err(error) => (self.near(&names, &managed, &error).await, Some(error)),
        };
        let found: Vec<Arc<Instance>> = found.into_iter().map(Arc::new).collect();
        let seen = |name: &str| match (one_of(found.iter().filter(|instance| instance.name == name), &managed), &error)
        {
            (Seen::Unlisted, Some(error)) => Err(error.clone()),
            (seen, _) => Ok(seen),
        };
        names.into_iter().map(|name| (Wanted::Name(name.clone()), seen(&name))).collect()
    }

    /// The instances with these names in the managed zones that can be read: the list of the project fails if one zone of
    /// any region does not answer. Without the right to list them, each is read.
    async fn near(&self, names: &[String], managed: &BTreeSet<String>, error: &ApiError) -> Vec<Instance> {
        if is_forbidden(error) {
            let mut reads = Vec::new();
            for zone in managed {
                reads.extend(names.iter().map(|name| self.client.instance(zone, name)));
            }
            let found: Vec<_> = stream::iter(reads).buffer_unordered(IN_FLIGHT).collect().await;
            return found.into_iter().flatten().flatten().collect();
        }
        let lists = managed.iter().map(|zone| self.client.instances_named_in(zone, names));
        let lists = future::join_all(lists).await;
        lists.into_iter().flat_map(Result::unwrap_or_default).collect()
    }
}

/// The instance with a name: of several, the one in a managed zone.
fn one_of<'a>(found: impl Iterator<Item = &'a Arc<Instance>>, managed: &BTreeSet<String>) -> Seen<Arc<Instance>> {
    let all: Vec<&Arc<Instance>> = found.collect();
    let near: Vec<&Arc<Instance>> = all.iter().copied().filter(|instance| managed.contains(instance.zone())).collect();
    match (&*near, &*all) {
        (_, []) => Seen::Unlisted,
        ([one], _) | (_, [one]) => Seen::One((*one).clone()),
        (_, several) => Seen::Several(several.iter().map(|instance| instance.zone().to_owned()).collect()),
    }
}

#[async_trait]
impl Source for Compute {
    type Key = Wanted;
    type Value = Arc<Instance>;
    type Error = ApiError;

    /// The managed zones, and the other zones of nodes. One of the others that does not exist, or may not be read, is
    /// left out: its nodes are looked up.
    async fn list(&self) -> Result<(usize, List), ApiError> {
        let managed = self
            .zones
            .managed()
            .await
            .map_err(|error| ApiError::of_kind(INSTANCE_LIST, ErrorKind::NoAnswer, error.to_string()))?;
        let zones: BTreeSet<String> = managed.union(&self.zones.of_nodes()).cloned().collect();
        // A missing zone is an incomplete answer.
        let is_refused = |error: &ApiError| matches!(error.kind, ErrorKind::Refused | ErrorKind::Incomplete);
        let lists = zones.iter().map(async |zone| match self.zone(self.project(), zone).await {
            Err(error) if !managed.contains(zone) && is_refused(&error) => {
                tracing::warn!(zone, %error, "the instances in the zone of a node are not listed");
                Ok(List::new())
            }
            list => list,
        });
        let lists = future::try_join_all(lists).await?;
        let mut list: List = lists.into_iter().flatten().collect();
        let size = list.len();
        let mut names: BTreeMap<String, Vec<Arc<Instance>>> = BTreeMap::new();
        for seen in list.values() {
            if let Seen::One(instance) = seen {
                names.entry(instance.name.clone()).or_default().push(instance.clone());
            }
        }
        list.extend(names.into_iter().map(|(name, found)| (Wanted::Name(name), one_of(found.iter(), &managed))));
        Ok((size, list))
    }

    async fn look_up(&self, keys: BTreeSet<Wanted>) -> BTreeMap<Wanted, Answer<Self>> {
        let (mut by_zone, mut names) = (BTreeMap::<_, Vec<InstanceId>>::new(), Vec::new());
        for key in keys {
            match key {
                Wanted::Instance(id) => by_zone.entry((id.project.clone(), id.zone.clone())).or_default().push(id),
                Wanted::Name(name) => names.push(name),
                Wanted::Never(_) => {}
            }
        }
        let zones = by_zone.into_iter().map(|((project, zone), ids)| self.of_zone(project, zone, ids));
        let names: Vec<_> = names.chunks(NAMES).map(|names| self.by_names(names.to_vec())).collect();
        let zones = stream::iter(zones).buffer_unordered(IN_FLIGHT).collect::<Vec<_>>();
        let (zones, names) = futures::join!(zones, future::join_all(names));
        zones.into_iter().chain(names).flatten().collect()
    }

    fn list_calls(instances: usize) -> usize {
        ZONES + instances.div_ceil(PAGE)
    }

    fn look_up_calls(keys: &BTreeSet<Wanted>) -> usize {
        let (mut by_zone, mut names) = (BTreeMap::new(), 0_usize);
        for key in keys {
            match key {
                Wanted::Instance(id) => *by_zone.entry((&id.project, &id.zone)).or_default() += 1,
                Wanted::Name(_) => names += 1,
                Wanted::Never(_) => {}
            }
        }
        let calls = |count: usize| if count < WORTH_A_LIST { count } else { count.div_ceil(PAGE) };
        by_zone.into_values().map(calls).sum::<usize>() + names.div_ceil(NAMES)
    }

    fn is_settled(instance: &Arc<Instance>) -> bool {
        instance.status == RUNNING && instance.network_interfaces.iter().any(|nic| !nic.network_ip.is_empty())
    }

    /// A node may have another name than its instance.
    fn is_evidence(key: &Wanted) -> bool {
        matches!(key, Wanted::Instance(_))
    }

    fn ambiguous(&self, key: &Wanted, zones: &[String]) -> ProviderError {
        let Wanted::Name(name) = key else { return ProviderError::bug(format!("{key:?} is not unique")) };
        let zones = zones.join(", ");
        ProviderError::unknown(format!(
            "instances of the zones {zones} have the name {name:?}: set the provider ID of the node, or regional and local-zone"
        ))
    }

    fn interrupted(how: Interrupted) -> ApiError {
        ApiError::interrupted(INSTANCE_LIST, how)
    }
}
