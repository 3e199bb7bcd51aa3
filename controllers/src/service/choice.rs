//! The hosts of many load balancers after a change of nodes. Pure.
//!
//! Thousands of Services with thousands of nodes are millions of questions to the provider. So it is asked only about
//! the nodes that changed, and Services with the same hosts before and after share one list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ccm_provider::{Node, NodeName, NodeRef};

/// The questions after which other tasks must have a turn.
pub(super) const TURN: usize = 1000;

type List = Arc<[NodeRef]>;
/// A list, as a key.
type Address = usize;
/// The former hosts, the candidates among which they were chosen, and which of the changed nodes are hosts now.
type Choice = (Address, Address, Vec<bool>);

fn address(list: &List) -> Address {
    Arc::as_ptr(list).cast::<NodeRef>().addr()
}

/// A node that was a candidate, is one, or both.
struct Changed {
    old: Option<NodeRef>,
    new: Option<NodeRef>,
}

/// The choices of one pass. Lists are kept with their results, so that no other list gets their address.
pub(super) struct Choices {
    candidates: List,
    changed: HashMap<Address, (List, Arc<[Changed]>)>,
    chosen: HashMap<Choice, (List, List)>,
    asked: usize,
}

impl Choices {
    /// Among these nodes.
    pub(super) fn new(candidates: List) -> Self {
        Self { candidates, changed: HashMap::new(), chosen: HashMap::new(), asked: 0 }
    }

    /// The candidates of this pass.
    pub(super) fn candidates(&self) -> &List {
        &self.candidates
    }

    /// Counts other questions.
    pub(super) fn ask(&mut self, questions: usize) {
        self.asked += questions;
    }

    /// Whether there were so many questions that other tasks must have a turn.
    pub(super) fn is_turn_over(&mut self) -> bool {
        let over = self.asked >= TURN;
        if over {
            self.asked = 0;
        }
        over
    }

    /// The new hosts of a load balancer whose `hosts` were chosen among the nodes `among`; `None` if they are the same,
    /// with the same backends.
    pub(super) fn after(
        &mut self,
        hosts: &List,
        among: &List,
        backend: impl Fn(&Node) -> Option<String>,
    ) -> Option<List> {
        if Arc::ptr_eq(among, &self.candidates) {
            return None;
        }
        let changed = self.changed_since(among);
        self.asked += changed.len() + 1;
        let what = |node: &Option<NodeRef>| -> Option<(String, String)> {
            let node = node.as_ref()?;
            Some((node.provider_id_or_empty().to_owned(), backend(node)?))
        };
        let mut same = true;
        let mut belong = Vec::with_capacity(changed.len());
        for node in changed.iter() {
            let new = what(&node.new);
            same &= what(&node.old) == new;
            belong.push(new.is_some());
        }
        if same {
            return None;
        }
        let key = (address(hosts), address(among), belong);
        if let Some((_, chosen)) = self.chosen.get(&key) {
            return Some(chosen.clone());
        }
        let chosen = self.choose(hosts, among, &changed, &key.2);
        self.chosen.insert(key, (hosts.clone(), chosen.clone()));
        Some(chosen)
    }

    fn choose(&mut self, hosts: &List, among: &[NodeRef], changed: &[Changed], belong: &[bool]) -> List {
        self.asked += self.candidates.len();
        let joined = || changed.iter().zip(belong).filter_map(|(node, belongs)| Some((node.new.as_ref()?, *belongs)));
        if hosts.len() == among.len() && joined().all(|(_, belongs)| belongs) {
            return self.candidates.clone();
        }
        let mut names: HashSet<&NodeName> = hosts.iter().map(|host| &host.name).collect();
        for (node, belongs) in joined() {
            match belongs {
                true => drop(names.insert(&node.name)),
                false => drop(names.remove(&node.name)),
            }
        }
        self.candidates.iter().filter(|node| names.contains(&node.name)).cloned().collect()
    }

    /// The candidates that are new, gone, or another object.
    fn changed_since(&mut self, among: &List) -> Arc<[Changed]> {
        if let Some((_, changed)) = self.changed.get(&address(among)) {
            return changed.clone();
        }
        self.asked += self.candidates.len();
        let mut left: HashMap<&NodeName, &NodeRef> = among.iter().map(|node| (&node.name, node)).collect();
        let mut changed = Vec::new();
        for new in self.candidates.iter() {
            match left.remove(&new.name) {
                Some(old) if Arc::ptr_eq(old, new) => {}
                old => changed.push(Changed { old: old.cloned(), new: Some(new.clone()) }),
            }
        }
        changed.extend(left.into_values().map(|old| Changed { old: Some(old.clone()), new: None }));
        let changed: Arc<[Changed]> = changed.into();
        self.changed.insert(address(among), (among.clone(), changed.clone()));
        changed
    }
}
