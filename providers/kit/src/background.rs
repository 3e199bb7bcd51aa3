//! Load balancers of clouds whose changes take minutes: changes continue in the background.
//!
//! A worker of the service controller waits only briefly for the cloud. A longer change continues in its own task, and
//! the core retries until the task has ended. Such a retry makes no API call. There is never more than one task per
//! group.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    GroupKey, LoadBalancer, LoadBalancerStatus, Node, Plan, ProviderError, Service, ServiceAction, ServiceAnswer,
    ServiceKey, ServiceWork,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::lock::lock;

/// The wait of a call that starts a task: long enough for reads that find nothing to do.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The wait of later calls for the same work.
const NEXT_WAIT: Duration = Duration::from_millis(50);
/// The shortest and the longest delay until the core retries; in between it grows with the age of the task.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// An answer that is not requested is dropped after this time.
const KEPT: Duration = Duration::from_secs(600);

/// A [`LoadBalancer`] whose [`reconcile`](LoadBalancer::reconcile) does not wait for slow changes.
pub struct Background<B> {
    balancers: Arc<B>,
    ended: Ended,
    tasks: Mutex<Vec<Task>>,
}

/// Called for each Service when its work ends: the action, whether it succeeded, and its duration.
pub type Ended = Arc<dyn Fn(ServiceAction, bool, Duration) + Send + Sync>;

impl<B: Debug> Debug for Background<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("balancers", &self.balancers).finish_non_exhaustive()
    }
}

/// Work in a background task.
struct Task {
    groups: BTreeSet<GroupKey>,
    began: Instant,
    work: BTreeMap<ServiceKey, ServiceWork>,
    /// The answers of an ended task; a closed channel without answers means that the task was lost.
    answers: watch::Receiver<Option<BTreeMap<ServiceKey, ServiceAnswer>>>,
    stop: AbortHandle,
}

/// Aborts the task, which must not outlive the balancers.
impl Drop for Task {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl Task {
    fn is_running(&self) -> bool {
        self.answers.borrow().is_none() && self.answers.has_changed().is_ok()
    }
}

impl<B: LoadBalancer + 'static> Background<B> {
    /// A wrapper without tasks.
    pub fn new(balancers: Arc<B>, ended: Ended) -> Self {
        Self { balancers, ended, tasks: Mutex::default() }
    }

    /// Takes the answers to this work from ended tasks, or returns the running task of these groups. Drops other
    /// answers for the groups.
    fn answers(
        &self,
        groups: &BTreeSet<GroupKey>,
        work: &[ServiceWork],
    ) -> Result<BTreeMap<ServiceKey, ServiceAnswer>, Running> {
        let mut tasks = lock(&self.tasks);
        tasks.retain(|task| task.is_running() || task.began.elapsed() < KEPT);
        let concerns = |task: &Task| !task.groups.is_disjoint(groups);
        if let Some(task) = tasks.iter().find(|task| concerns(task) && task.is_running()) {
            return Err(Running { began: task.began, answers: task.answers.clone() });
        }
        let mut answers = BTreeMap::new();
        for task in tasks.extract_if(.., |task| concerns(task)) {
            let Some(ended) = task.answers.borrow().clone() else { continue };
            for (key, answer) in ended {
                let now = work.iter().find(|item| item.service.key() == key);
                if let (Some(now), Some(then)) = (now, task.work.get(&key))
                    && self.is_same(then, now)
                {
                    answers.insert(key, answer);
                }
            }
        }
        Ok(answers)
    }

    /// Whether the answer to `then` is valid for `now`: nothing that a plan depends on has changed.
    fn is_same(&self, then: &ServiceWork, now: &ServiceWork) -> bool {
        let (a, b) = (&then.service, &now.service);
        let backends = |work: &ServiceWork| -> BTreeSet<(String, Option<String>)> {
            let backend = |node: &Node| self.balancers.backend(&work.service, node).map(Cow::into_owned);
            work.nodes.iter().map(|node| (node.name.to_string(), backend(node))).collect()
        };
        then.action == now.action
            && a.spec == b.spec
            && a.metadata.uid == b.metadata.uid
            && a.metadata.annotations == b.metadata.annotations
            && a.metadata.deletion_timestamp == b.metadata.deletion_timestamp
            && (Arc::ptr_eq(&then.nodes, &now.nodes) || backends(then) == backends(now))
    }

    fn start(&self, cluster: &str, groups: BTreeSet<GroupKey>, work: &[ServiceWork]) -> Running {
        let (sender, answers) = watch::channel(None);
        let began = Instant::now();
        let by_key = work.iter().map(|item| (item.service.key(), item.clone())).collect();
        let (balancers, report) = (self.balancers.clone(), self.ended.clone());
        let (cluster, work) = (cluster.to_owned(), work.to_vec());
        let task = tokio::spawn(async move {
            let ended = balancers.reconcile(&cluster, &work).await;
            for (item, answer) in work.iter().zip(&ended) {
                report(item.action, answer.result.is_ok(), began.elapsed());
            }
            let _ = sender.send(Some(work.iter().map(|item| item.service.key()).zip(ended).collect()));
        });
        let stop = task.abort_handle();
        lock(&self.tasks).push(Task { groups, began, work: by_key, answers: answers.clone(), stop });
        Running { began, answers }
    }
}

/// A running task, as seen by a call that waits for it.
struct Running {
    began: Instant,
    answers: watch::Receiver<Option<BTreeMap<ServiceKey, ServiceAnswer>>>,
}

impl Running {
    async fn wait(&mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.answers.wait_for(Option::is_some)).await;
    }

    fn not_yet(&self, work: &[ServiceWork]) -> Vec<ServiceAnswer> {
        let after = (self.began.elapsed() / 4).clamp(AGAIN.0, AGAIN.1);
        let text = "the cloud is at work on the load balancer";
        work.iter().map(|_| Err(ProviderError::in_progress(text, after)).into()).collect()
    }
}

#[async_trait]
impl<B: LoadBalancer + 'static> LoadBalancer for Background<B> {
    fn name(&self, cluster: &str, service: &Service) -> String {
        self.balancers.name(cluster, service)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.balancers.groups(service)
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.balancers.backend(service, node)
    }

    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let groups = self.groups(service);
        let concerns = |task: &Task| !task.groups.is_disjoint(&groups);
        if lock(&self.tasks).iter().any(|task| concerns(task) && (task.is_running() || task.deletes(&service.key()))) {
            // The deletion that follows takes the answer of the task.
            return Ok(Some(service.status.load_balancer.clone()));
        }
        self.balancers.get(cluster, service).await
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.balancers.finalizers(service)
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork]) -> Vec<ServiceAnswer> {
        let groups: BTreeSet<GroupKey> = work.iter().flat_map(|item| self.groups(&item.service)).collect();
        let mut known = match self.answers(&groups, work) {
            Err(mut running) => {
                running.wait(NEXT_WAIT).await;
                match self.answers(&groups, work) {
                    Err(running) => return running.not_yet(work),
                    Ok(known) => known,
                }
            }
            Ok(known) => known,
        };
        let rest: Vec<ServiceWork> =
            work.iter().filter(|item| !known.contains_key(&item.service.key())).cloned().collect();
        if !rest.is_empty() {
            let mut running = self.start(cluster, groups.clone(), &rest);
            running.wait(FIRST_WAIT).await;
            known.extend(match self.answers(&groups, &rest) {
                Ok(ended) => ended,
                Err(running) => rest.iter().map(|item| item.service.key()).zip(running.not_yet(&rest)).collect(),
            });
        }
        let lost = || Err(ProviderError::unknown("the work on the load balancer ended without an answer")).into();
        work.iter().map(|item| known.remove(&item.service.key()).unwrap_or_else(lost)).collect()
    }

    async fn observe(&self, cluster: &str, item: &ServiceWork) -> Result<Value, ProviderError> {
        self.balancers.observe(cluster, item).await
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        self.balancers.plan_observed(cluster, item, observed)
    }
}

impl Task {
    /// Whether it has the answer to a deletion.
    fn deletes(&self, key: &ServiceKey) -> bool {
        self.work.get(key).is_some_and(|item| item.action == ServiceAction::Delete) && self.answers.borrow().is_some()
    }
}

#[cfg(test)]
mod tests;
