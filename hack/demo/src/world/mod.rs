//! The state of the cluster and the cloud, for quick access.

pub(crate) mod calls;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_test_apiserver::Store;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use self::calls::Balancer;
pub(crate) use self::calls::Calls;
pub(crate) use self::objects::{NodeRow, Ready, ServiceRow};
use crate::feed::Feed;

/// The state of the cluster and the cloud.
#[derive(Debug, Default)]
pub(crate) struct World(Mutex<State>);

/// The state behind the lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) nodes: BTreeMap<String, NodeRow>,
    pub(crate) services: BTreeMap<String, ServiceRow>,
    /// The cloud's load balancers, by Service.
    pub(crate) balancers: BTreeMap<String, Balancer>,
    /// The cloud's routes: range to node.
    pub(crate) routes: BTreeMap<String, String>,
    pub(crate) calls: Calls,
    /// Plans of the dry run, by subject, one line per step.
    pub(crate) plans: BTreeMap<String, Vec<String>>,
    /// All Nodes, including deleted ones.
    pub(crate) joined: BTreeSet<String>,
    /// Nodes whose taint was removed.
    pub(crate) initialized: BTreeSet<String>,
    /// The machine without a network although it is running.
    pub(crate) cut_off: Option<String>,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
    }

    pub(crate) fn node(&self, name: &str) -> Option<NodeRow> {
        self.lock().nodes.get(name).cloned()
    }

    pub(crate) fn planned(&self, subject: String, lines: Vec<String>) {
        self.lock().plans.insert(subject, lines);
    }

    pub(crate) fn watch(self: &Arc<Self>, store: &Store, feed: &Arc<Feed>, tasks: &mut JoinSet<()>) {
        for kind in ["nodes", "services", "events"] {
            tasks.spawn(objects::follow(kind, store.clone(), self.clone(), feed.clone()));
        }
    }
}

impl State {
    /// The number of nodes that meet a condition.
    pub(crate) fn count(&self, is: impl Fn(&NodeRow) -> bool) -> usize {
        self.nodes.values().filter(|node| is(node)).count()
    }

    /// The number of hosts of a Service's load balancer; `None` without a load balancer.
    pub(crate) fn hosts(&self, service: &str) -> Option<usize> {
        self.balancers.get(service).map(|balancer| balancer.hosts.len())
    }
}
