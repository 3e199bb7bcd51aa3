//! All nodes in few calls: the list of the cluster's instances, completed by look-ups of the nodes that it lacks.

use super::*;
use crate::client::FILTER_VALUES;
use ccm_kit::Stamped;
use describe::{IDS_AT_ONCE, Seen};

/// Instances on a page.
const PAGE: usize = 1000;

/// The instances that carry the mark of the cluster.
#[derive(Debug)]
pub(super) struct Listed {
    /// When the read began.
    pub(super) wall: SystemTime,
    by_id: BTreeMap<InstanceId, Arc<Instance>>,
    by_name: BTreeMap<String, Vec<InstanceId>>,
}

impl Listed {
    fn new(wall: SystemTime, instances: Vec<Arc<Instance>>) -> Self {
        let mut listed = Self { wall, by_id: BTreeMap::new(), by_name: BTreeMap::new() };
        for instance in instances {
            let Some(id) = InstanceId::parse(&instance.id) else { continue };
            // A name outlives its instance: the next one may get the address.
            if instance.state.as_deref() != Some("terminated") && !instance.private_dns_name.is_empty() {
                listed.by_name.entry(instance.private_dns_name.clone()).or_default().push(id.clone());
            }
            listed.by_id.insert(id, instance);
        }
        listed
    }

    pub(super) fn by_id(&self, id: &InstanceId) -> Option<Seen> {
        self.by_id.get(id).cloned().map(Seen::Instance)
    }

    /// `None` when there is none of the name: it may lack the mark.
    pub(super) fn by_name(&self, name: &str) -> Option<Vec<Arc<Instance>>> {
        let ids = self.by_name.get(name)?;
        Some(ids.iter().filter_map(|id| self.by_id.get(id).cloned()).collect())
    }

    /// Without those that may still get addresses or change their state in a moment.
    fn running(&self) -> Self {
        let running = self.by_id.values().filter(|instance| instance.state.as_deref() == Some("running"));
        Self::new(self.wall, running.cloned().collect())
    }
}

pub(super) fn cached(
    instances: Instances,
    ownership: Ownership,
    vpc: String,
    cluster: Cluster,
) -> Cached<Listed, ApiError> {
    let read = move || {
        let (instances, ownership, vpc, cluster) = (instances.clone(), ownership.clone(), vpc.clone(), cluster.clone());
        async move {
            let wall = cluster.wall();
            Ok(Listed::new(wall, instances.of_cluster(&ownership, &vpc).await?))
        }
        .boxed()
    };
    Cached::new(read, describe::interrupted as fn(Interrupted) -> ApiError)
}

impl Ec2Instances {
    /// A list that is young enough for new nodes: the last one, or a new one where that costs less than looking them up.
    pub(super) async fn recent(&self, wanted: &[Wanted]) -> Option<Arc<Listed>> {
        let young = |listed: &Stamped<Listed>| listed.began.elapsed() < RECENT;
        let listed = match self.listed.last().filter(young) {
            Some(listed) => listed,
            // Should it fail, the look-up shows why.
            None if self.is_list_cheaper(wanted) => self.read_list(RECENT).await.ok()?,
            None => return None,
        };
        Some(Arc::new(listed.value.running()))
    }

    /// A list of the cluster's instances, kept for a moment only: it is as large as the cluster.
    async fn read_list(&self, max_age: Duration) -> Result<Stamped<Listed>, ApiError> {
        let listed = self.listed.get(max_age, None).await?;
        self.size.store(listed.value.by_id.len(), std::sync::atomic::Ordering::Relaxed);
        let (cached, began) = (self.listed.clone(), listed.began);
        tokio::spawn(async move {
            tokio::time::sleep(RECENT).await;
            if cached.last().is_some_and(|last| last.began == began) {
                cached.forget();
            }
        });
        Ok(listed)
    }

    /// Whether all pages of the list are fewer calls than look-ups of what is wanted.
    fn is_list_cheaper(&self, wanted: &[Wanted]) -> bool {
        let ids = wanted.iter().filter(|wanted| matches!(wanted, Wanted::Machine(Machine::Ec2(_)))).count();
        let names = wanted.iter().filter(|wanted| matches!(wanted, Wanted::Name(_))).count();
        let calls = ids.div_ceil(IDS_AT_ONCE) + names.div_ceil(FILTER_VALUES);
        let known = match self.size.load(std::sync::atomic::Ordering::Relaxed) {
            0 => wanted.len(),
            size => size,
        };
        known.div_ceil(PAGE) < calls
    }

    /// All nodes. What the list lacks, because its instance has no mark or is no instance, is looked up by itself, so that
    /// absence from the result means that EC2 does not have it.
    pub(super) async fn list_nodes(&self, nodes: &[NodeRef]) -> Result<Snapshot, ProviderError> {
        let wanted = self.wanted(nodes);
        let began = self.cluster.wall();
        let listed = match self.is_list_cheaper(&wanted) {
            true => Some(self.read_list(Duration::ZERO).await?),
            false => None,
        };
        let observed = self.observe(&wanted, listed.as_ref().map(|listed| &*listed.value)).await;
        observed.complete()?;
        // Labels are given once, at initialization.
        let is_new = |(node, _): &(&Node, &Wanted)| node.has_taint(TAINT_UNINITIALIZED);
        let pairs = nodes.iter().map(|node| &**node).zip(&wanted);
        let labels = match pairs.clone().any(|pair| is_new(&pair)) {
            true => Some(self.labels(pairs.filter(is_new), &observed).await),
            false => None,
        };
        let mut snapshot = Snapshot { began, grace: GRACE, by_provider_id: BTreeMap::new(), by_name: BTreeMap::new() };
        for (node, wanted) in nodes.iter().zip(&wanted) {
            let labels = labels.as_ref().filter(|_| node.has_taint(TAINT_UNINITIALIZED));
            let judge = judge::Judge { settings: &self.settings, observed: &observed, labels, began };
            let id = match (&node.provider_id, observed.one(wanted)) {
                (Some(id), _) => id.to_string(),
                (None, Some(judge::Found::Ec2(instance))) => ProviderId::format(&instance.zone, &instance.id),
                // Absence of a name is told by look-ups only.
                (None, _) => continue,
            };
            let answer = judge.node(node, wanted);
            if matches!(answer, Lookup::Foreign) {
                continue;
            }
            snapshot.by_name.insert(node.name.to_string(), id.clone());
            snapshot.by_provider_id.insert(id, answer);
        }
        Ok(snapshot)
    }
}

impl Observed {
    /// # Errors
    ///
    /// A part could not be read, so the whole is no list.
    fn complete(&self) -> Result<(), ProviderError> {
        let errors = self.by_id.values().filter_map(|answer| answer.as_ref().err());
        let errors = errors.chain(self.by_name.values().filter_map(|answer| answer.as_ref().err()));
        let mut errors = errors.chain(self.by_address.values().filter_map(|answer| answer.as_ref().err()));
        errors.next().map_or(Ok(()), |error| Err(error.clone().into()))
    }
}
