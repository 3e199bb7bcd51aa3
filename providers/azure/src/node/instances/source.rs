//! Finds the machines of nodes in the lists of the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::directory::{Answer, Seen, Source};
use ccm_kit::{Cluster, Interrupted};
use ccm_provider::ProviderError;
use futures::{StreamExt, stream};

use super::Settings;
use crate::client::ApiError;
use crate::client::operation::VM_LIST;
use crate::node::fleet::{Fleet, Holder};
use crate::node::identity::{Key, Wanted, may_be_of};
use crate::node::machine::Machine;
use crate::start::config::VmType;

/// The age up to which a list shows that a machine exists, and whether it runs. What it lacks is read again.
const CURRENT: Duration = Duration::from_secs(20);
/// A list of this age is not read again because of a new node.
pub(super) const JUST_READ: Duration = Duration::from_secs(5);
/// The most lists at the same time.
const IN_FLIGHT: usize = 8;

/// How old the data may be.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// Existence and state.
    Current,
    /// What does not change.
    Recent,
}

/// The machines of the cluster.
#[derive(Debug)]
pub(crate) struct Compute {
    fleet: Fleet,
    settings: Arc<Settings>,
    cluster: Cluster,
}

type Answers = Vec<(Wanted, Answer<Compute>)>;

impl Compute {
    pub(super) fn new(fleet: Fleet, settings: Arc<Settings>, cluster: Cluster) -> Self {
        Self { fleet, settings, cluster }
    }

    async fn find(&self, keys: BTreeSet<Wanted>, need: Need) -> BTreeMap<Wanted, Answer<Self>> {
        let mut by_holder: BTreeMap<Holder, Vec<Wanted>> = BTreeMap::new();
        let mut by_group: BTreeMap<Holder, BTreeSet<Wanted>> = BTreeMap::new();
        for key in keys {
            match &key.key {
                Key::Machine(id) => by_holder.entry(Holder::of(id)).or_default().push(key),
                Key::Name { group, .. } => {
                    by_group.entry(self.settings.group(group.as_deref())).or_default().insert(key);
                }
            }
        }
        let of_holders = by_holder.into_iter().map(|(holder, keys)| async move {
            let age = self.age(&holder, &keys, need);
            self.in_holder(&holder, keys, age, need).await
        });
        let of_groups = by_group.into_iter().map(|(group, keys)| self.in_group(group, keys, need));
        // Each holder and group in turn, a few at the same time.
        let (holders, groups) = (stream::iter(of_holders).buffer_unordered(IN_FLIGHT), stream::iter(of_groups));
        let groups = groups.buffer_unordered(IN_FLIGHT);
        let (one, other): (Vec<Answers>, Vec<Answers>) = futures::join!(holders.collect(), groups.collect());
        one.into_iter().chain(other).flatten().collect()
    }

    /// The age up to which a list is used for what it has.
    fn age(&self, holder: &Holder, keys: &[Wanted], need: Need) -> Duration {
        let youngest = keys.iter().filter_map(|key| key.created).max();
        let age = self.settings.age(holder, youngest, self.cluster.wall());
        match need {
            Need::Current => age.min(CURRENT),
            Need::Recent => age,
        }
    }

    /// The answers for keys whose holder is known.
    async fn in_holder(&self, holder: &Holder, keys: Vec<Wanted>, age: Duration, need: Need) -> Answers {
        let (mut answers, missing) = self.listed(holder, keys, age, need).await;
        if missing.is_empty() {
            return answers;
        }
        // The list may be older than the machine, or the machine newer than the list.
        let again = match need {
            Need::Current => Duration::ZERO,
            Need::Recent => JUST_READ.min(age),
        };
        let (found, missing) = self.listed(holder, missing, again, need).await;
        answers.extend(found);
        answers.extend(missing.into_iter().map(|key| (key, Ok(Seen::Unlisted))));
        answers
    }

    /// The answers of a list, and the keys that it lacks or whose machine is not complete yet. Whether a machine exists and
    /// runs, the list of one that is not complete shows as well.
    async fn listed(&self, holder: &Holder, keys: Vec<Wanted>, age: Duration, need: Need) -> (Answers, Vec<Wanted>) {
        let waits = matches!(need, Need::Recent) && age > JUST_READ;
        let listed = match self.fleet.machines(holder, age).await {
            Ok(listed) => listed.value,
            Err(error) => return (keys.into_iter().map(|key| (key, Err(error.clone()))).collect(), Vec::new()),
        };
        let Some(machines) = listed.as_ref() else {
            return (Vec::new(), keys);
        };
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for key in keys {
            let seen = match &key.key {
                Key::Machine(id) => machines.get(id).map(|machine| Seen::One(machine.clone())),
                Key::Name { name, .. } => one_of(&machines.named(name)),
            };
            match seen {
                Some(Seen::One(machine)) if waits && !machine.is_settled() => missing.push(key),
                Some(seen) => answers.push((key, Ok(seen))),
                None => missing.push(key),
            }
        }
        (answers, missing)
    }

    /// The answers for names in a resource group: from the scale sets whose instances may have the name and from the
    /// machines, as known; then from what may be new.
    async fn in_group(&self, group: Holder, mut left: BTreeSet<Wanted>, need: Need) -> Answers {
        let mut answers = Answers::new();
        let mut sets = match self.settings.vm_type {
            VmType::Vmss => self.in_sets(&group, &mut left, &mut answers, self.settings.ages.sets(), need).await,
            VmType::Standard | VmType::VmssFlex => Ok(false),
        };
        // Not read again in this look-up.
        let mut failed: BTreeMap<Wanted, Answer<Self>> = BTreeMap::new();
        if self.settings.has_machines && !left.is_empty() {
            let keys: Vec<Wanted> = std::mem::take(&mut left).into_iter().collect();
            let age = self.age(&group, &keys, need);
            let (listed, missing) = self.listed(&group, keys, age, need).await;
            let found: BTreeMap<_, _>;
            (failed, found) = listed.into_iter().partition(|(_, answer)| answer.is_err());
            answers.extend(found);
            left.extend(missing);
        }
        if matches!(sets, Ok(true)) && !(left.is_empty() && failed.is_empty()) {
            // A new scale set may have what a list that failed does not show.
            left.extend(failed.keys().cloned());
            sets = self.in_sets(&group, &mut left, &mut answers, JUST_READ, need).await;
            failed.retain(|key, _| left.remove(key));
        }
        answers.extend(failed);
        if self.settings.has_machines && !left.is_empty() {
            let keys = std::mem::take(&mut left).into_iter().collect();
            answers.extend(self.in_holder(&group, keys, JUST_READ, need).await);
        }
        answers.extend(left.into_iter().map(|key| (key, Ok(Seen::Unlisted))));
        if let Err(error) = sets {
            // A name that no machine has may be of a scale set.
            let unlisted = answers.iter_mut().filter(|(_, answer)| matches!(answer, Ok(Seen::Unlisted)));
            unlisted.for_each(|(_, answer)| *answer = Err(error.clone()));
        }
        answers
    }

    /// Moves the names of instances of uniform scale sets to the answers. Returns whether some of the rest may be of a
    /// scale set that is not known.
    async fn in_sets(
        &self,
        group: &Holder,
        left: &mut BTreeSet<Wanted>,
        answers: &mut Answers,
        age: Duration,
        need: Need,
    ) -> Result<bool, ApiError> {
        let sets = self.fleet.sets(group, age).await?.value;
        let is_of = |key: &Wanted, prefix: &str| matches!(&key.key, Key::Name { name, .. } if may_be_of(prefix, name));
        for set in sets.iter().filter(|set| !set.is_flexible) {
            let of_set: Vec<Wanted> = left.iter().filter(|key| is_of(key, &set.prefix)).cloned().collect();
            if of_set.is_empty() {
                continue;
            }
            let holder = Holder::ScaleSet(set.id.clone());
            let age = self.age(&holder, &of_set, need);
            let found = self.in_holder(&holder, of_set, age, need).await;
            for (key, answer) in found.into_iter().filter(|(_, answer)| !matches!(answer, Ok(Seen::Unlisted))) {
                left.remove(&key);
                answers.push((key, answer));
            }
        }
        Ok(left.iter().any(|key| !sets.iter().any(|set| is_of(key, &set.prefix))))
    }
}

fn one_of(found: &[&Arc<Machine>]) -> Option<Seen<Arc<Machine>>> {
    match found {
        [] => None,
        [one] => Some(Seen::One((*one).clone())),
        several => Some(Seen::Several(several.iter().map(|machine| machine.id.to_string()).collect())),
    }
}

#[async_trait]
impl Source for Compute {
    type Key = Wanted;
    type Value = Arc<Machine>;
    type Error = ApiError;

    /// Never used: look-ups read lists.
    async fn list(&self) -> Result<(usize, BTreeMap<Wanted, Seen<Arc<Machine>>>), ApiError> {
        Ok((0, BTreeMap::new()))
    }

    async fn look_up(&self, keys: BTreeSet<Wanted>) -> BTreeMap<Wanted, Answer<Self>> {
        self.find(keys, Need::Current).await
    }

    async fn look_up_recent(&self, keys: BTreeSet<Wanted>) -> BTreeMap<Wanted, Answer<Self>> {
        self.find(keys, Need::Recent).await
    }

    fn list_calls(_: usize) -> usize {
        usize::MAX
    }

    fn look_up_calls(keys: &BTreeSet<Wanted>) -> usize {
        keys.len()
    }

    fn is_settled(machine: &Arc<Machine>) -> bool {
        machine.is_settled()
    }

    /// A node may have another name than its machine.
    fn is_evidence(key: &Wanted) -> bool {
        matches!(key.key, Key::Machine(_))
    }

    fn ambiguous(&self, key: &Wanted, ids: &[String]) -> ProviderError {
        let Key::Name { name, .. } = &key.key else { return ProviderError::bug(format!("{key:?} is not unique")) };
        let ids = ids.join(", ");
        ProviderError::unknown(format!(
            "several machines have the name {name:?}: {ids}; set the provider ID of the node"
        ))
    }

    fn interrupted(how: Interrupted) -> ApiError {
        ApiError::interrupted(VM_LIST, how)
    }
}
