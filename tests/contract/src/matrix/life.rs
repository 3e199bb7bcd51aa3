//! Three Services, their nodes, and the passes over them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{
    ErrorClass, LoadBalancer, LoadBalancerStatus, NodeRef, ProviderError, Scope, Service, ServiceAction, ServiceAnswer,
    ServiceWork, Turn, batches,
};
use futures::future::join_all;
use tokio::time::Instant;

use super::{MatrixCloud, pace};
use crate::bed::{Bed, CLUSTER, port};
use crate::{Outcome, TestCluster};

/// The Services: the hit one, and two others.
pub(super) const NAMES: [&str; 3] = ["hit", "one", "two"];
const PORTS: [i32; 3] = [31_110, 31_220, 31_330];
/// The place of the hit one.
pub(super) const HIT: usize = 0;

/// The longest pass: longer than any pause between two attempts.
const PASS: Duration = Duration::from_secs(300);
/// How often an error that requests another attempt gets it.
const ATTEMPTS: usize = 12;
/// How often a conflict is answered at once.
const CONFLICTS: usize = 3;

pub(super) struct Life {
    pub(super) cloud: Arc<dyn MatrixCloud>,
    pub(super) bed: Bed,
    pub(super) services: Vec<Service>,
    /// Deleted Services.
    pub(super) gone: BTreeSet<usize>,
    pub(super) nodes: Vec<NodeRef>,
    /// The statuses that the answers had, by Service.
    pub(super) published: Vec<Vec<LoadBalancerStatus>>,
    /// A process that may be asked to stop during a pass.
    pub(super) stops: Option<Arc<dyn Turn>>,
    /// A node that is not a host yet.
    spare: NodeRef,
}

/// The answer about a Service in a pass.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) answer: Result<Option<LoadBalancerStatus>, ProviderError>,
    /// The time since the beginning of the pass.
    pub(super) after: Duration,
}

impl Given {
    /// The error, unless the cloud only needs more time.
    pub(super) fn error(&self) -> Option<&ProviderError> {
        self.answer.as_ref().err().filter(|error| !error.is_in_progress())
    }
}

/// An item of a batch.
struct Item {
    place: usize,
    service: Service,
    action: ServiceAction,
    /// How often an error requested another attempt.
    attempts: usize,
    published: Vec<LoadBalancerStatus>,
    given: Option<Given>,
}

impl Life {
    pub(super) async fn start(cloud: Arc<dyn MatrixCloud>, cluster: Arc<TestCluster>) -> Result<Self, Outcome> {
        let bed = Bed::over(cloud.harness(), cluster).await?;
        let service = |(name, base): (&str, i32)| {
            let mut service = bed.service(name);
            service.spec.ports = vec![port(80, base)];
            cloud.dress(&mut service);
            service
        };
        let services = NAMES.into_iter().zip(PORTS).map(service).collect();
        let mut nodes = bed.nodes(&["n1", "n2", "n3"]).await;
        let spare = nodes.remove(2);
        let published = vec![Vec::new(); NAMES.len()];
        Ok(Self { cloud, bed, services, gone: BTreeSet::new(), nodes, published, stops: None, spare })
    }

    /// One node leaves, another one joins.
    pub(super) fn change_nodes(&mut self) {
        self.nodes.remove(0);
        self.nodes.push(self.spare.clone());
    }

    pub(super) async fn restart(&mut self) -> Result<(), Outcome> {
        self.bed = self.bed.restarted().await?;
        Ok(())
    }

    pub(super) fn leap(&self, time: Duration) {
        pace::leap(&*self.cloud, &self.bed.cluster, time);
    }

    /// The contents of the cloud.
    pub(super) async fn contents(&self) -> BTreeSet<String> {
        self.bed.contents().await.into_iter().map(|line| self.cloud.plain(line)).collect()
    }

    /// The objects of a Service among these contents.
    pub(super) fn lines_of(&self, place: usize, contents: &BTreeSet<String>) -> BTreeSet<String> {
        let marks = self.services.get(place).map(|service| self.cloud.marks(service)).unwrap_or_default();
        contents.iter().filter(|line| marks.iter().any(|mark| line.contains(mark))).cloned().collect()
    }

    /// The members that all pools must have.
    pub(super) fn expected_members(&self) -> BTreeSet<String> {
        self.nodes.iter().map(|node| self.cloud.member(node)).collect()
    }

    /// Ensures the Services that are wanted and deletes the others.
    pub(super) fn wanted(&self) -> Vec<Option<ServiceAction>> {
        let action = |place| if self.gone.contains(&place) { ServiceAction::Delete } else { ServiceAction::Ensure };
        (0..self.services.len()).map(|place| Some(action(place))).collect()
    }

    /// One pass, as the core does it: one call for each group, concurrently.
    pub(super) async fn pass(&mut self, actions: &[Option<ServiceAction>]) -> Result<Vec<Option<Given>>, Outcome> {
        let balancer = self.bed.balancer()?;
        let mut items = Vec::new();
        for (place, (service, action)) in self.services.iter_mut().zip(actions).enumerate() {
            let Some(action) = *action else { continue };
            if action == ServiceAction::Ensure {
                add_finalizers(&*balancer, service);
            }
            let published = Vec::new();
            items.push(Item { place, service: service.clone(), action, attempts: 0, published, given: None });
        }
        let work: Vec<ServiceWork> = items.iter().map(|item| self.work(item)).collect();
        let mut open: Vec<Option<Item>> = items.into_iter().map(Some).collect();
        let groups: Vec<Vec<Item>> = batches(&*balancer, &work)
            .into_iter()
            .map(|places| places.into_iter().filter_map(|place| open.get_mut(place)?.take()).collect())
            .collect();
        let begin = Instant::now();
        let done = join_all(groups.into_iter().map(|group| self.batch(&*balancer, group, begin))).await;
        let mut given: Vec<Option<Given>> = self.services.iter().map(|_| None).collect();
        for item in done.into_iter().flatten() {
            if let Some(service) = self.services.get_mut(item.place) {
                *service = item.service;
            }
            if let Some(published) = self.published.get_mut(item.place) {
                published.extend(item.published);
            }
            if let Some(place) = given.get_mut(item.place) {
                *place = item.given;
            }
        }
        Ok(given)
    }

    fn work(&self, item: &Item) -> ServiceWork {
        let nodes: &[NodeRef] = if item.action == ServiceAction::Delete { &[] } else { &self.nodes };
        ServiceWork::new(&item.service, nodes, item.action)
    }

    /// The calls for one group, until each item has an answer that is final.
    async fn batch(&self, balancer: &dyn LoadBalancer, mut items: Vec<Item>, begin: Instant) -> Vec<Item> {
        let mut conflicts = 0;
        for item in items.iter_mut().filter(|item| item.action == ServiceAction::Delete) {
            let answer = match balancer.get(CLUSTER, &item.service).await {
                Ok(Some(_)) => continue,
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            item.given = Some(Given { answer, after: begin.elapsed() });
        }
        loop {
            let open: Vec<usize> =
                items.iter().enumerate().filter(|(_, item)| item.given.is_none()).map(|(at, _)| at).collect();
            if open.is_empty() {
                return items;
            }
            let work: Vec<ServiceWork> =
                open.iter().filter_map(|at| items.get(*at)).map(|item| self.work(item)).collect();
            let scope = self.stops.clone().map_or_else(Scope::default, Scope::new);
            let answers = balancer.reconcile(CLUSTER, &work, &scope).await;
            let is_over = begin.elapsed() > PASS || scope.may_write().is_err();
            let mut wait = Duration::ZERO;
            for (at, ServiceAnswer { result, status, notes, .. }) in open.into_iter().zip(answers) {
                let Some(item) = items.get_mut(at) else { continue };
                let annotations = &mut item.service.metadata.annotations;
                for (key, value) in notes.annotations {
                    match value {
                        Some(value) => drop(annotations.insert(key, value)),
                        None => drop(annotations.remove(&key)),
                    }
                }
                if let Some(status) = result.as_ref().ok().and_then(|status| status.as_ref()).or(status.as_ref()) {
                    item.service.status.load_balancer = status.clone();
                    item.published.push(status.clone());
                }
                match &result {
                    Err(error) if error.is_in_progress() && !is_over => {
                        wait = wait.max(error.retry_after().unwrap_or_default());
                        continue;
                    }
                    Err(error) if error.retry_after().is_some() && item.attempts < ATTEMPTS && !is_over => {
                        item.attempts += 1;
                        wait = wait.max(error.retry_after().unwrap_or_default());
                        continue;
                    }
                    Err(error) if error.class() == ErrorClass::Conflict && conflicts < CONFLICTS => {
                        conflicts += 1;
                        continue;
                    }
                    _ => {}
                }
                item.given = Some(Given { answer: result, after: begin.elapsed() });
            }
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}

fn add_finalizers(balancer: &dyn LoadBalancer, service: &mut Service) {
    for (name, is_needed) in balancer.finalizers(service) {
        if is_needed && !service.metadata.finalizers.iter().any(|present| present == name) {
            service.metadata.finalizers.push(name.to_owned());
        }
    }
}
