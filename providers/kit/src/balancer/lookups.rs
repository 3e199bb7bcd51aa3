//! [`LoadBalancer::get`](ccm_provider::LoadBalancer::get): whether something of a Service exists.

use ccm_provider::{LoadBalancerStatus, ProviderError, Service, ServiceAction, ServiceWork};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::engine::{Engine, RECENT, Recent};
use super::step::Plan;
use super::{BalancerCloud, Reached};
use crate::lock::lock;

type Found = Result<Option<LoadBalancerStatus>, ProviderError>;

/// Callers that wait for the lookup of another one, to share the next.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    waiting: Mutex<Vec<(Service, oneshot::Sender<Found>)>>,
    turn: tokio::sync::Mutex<()>,
}

impl<C: BalancerCloud> Engine<C> {
    pub(super) async fn lookup(&self, cluster: &str, service: &Service) -> Found {
        if !self.cloud.shares_lookups() {
            return self.find(cluster, &[service]).await.pop().unwrap_or(Ok(None));
        }
        let (answer, mut found) = oneshot::channel();
        lock(&self.lookups.waiting).push((service.clone(), answer));
        let _turn = self.lookups.turn.lock().await;
        if let Ok(found) = found.try_recv() {
            return found;
        }
        found.close();
        let mut others = std::mem::take(&mut *lock(&self.lookups.waiting));
        // This one, and callers that do not wait any more.
        others.retain(|(_, answer)| !answer.is_closed());
        let services: Vec<&Service> = others.iter().map(|(other, _)| other).chain([service]).collect();
        let mut all = self.find(cluster, &services).await;
        let own = all.pop().unwrap_or(Ok(None));
        for ((_, answer), found) in others.into_iter().zip(all) {
            drop(answer.send(found));
        }
        own
    }

    /// Observes as for deletions, which find all owned objects and ignore annotations. One answer for each Service.
    async fn find(&self, cluster: &str, services: &[&Service]) -> Vec<Found> {
        let work: Vec<ServiceWork> =
            services.iter().map(|service| ServiceWork::new(service, &[], ServiceAction::Delete)).collect();
        let (wanted, verdicts) = self.verdicts(cluster, &work);
        let refused = |error: ProviderError| if error.is_implemented_elsewhere() { Ok(None) } else { Err(error) };
        if verdicts.iter().all(Result::is_err) {
            return verdicts.into_iter().map(|verdict| verdict.map_or_else(refused, |()| Ok(None))).collect();
        }
        let runs = self.runs.load(Ordering::SeqCst);
        let observed = match self.look(cluster, &work, &wanted).await {
            Ok(observed) => observed,
            Err(error) => return work.iter().map(|_| Err(error.clone())).collect(),
        };
        // A state that allows no plan shows that something is there.
        let plan = self.cloud.plan(&observed, &wanted).unwrap_or_else(|error| Plan::impossible(work.len(), &error));
        let made = C::Made::default();
        let of = |(place, verdict): (usize, Result<(), ProviderError>)| {
            let Some(service) = services.get(place).copied() else { return Ok(None) };
            if let Err(error) = verdict {
                return refused(error);
            }
            let reached = Reached { observed: &observed, made: &made, wanted: &wanted, service, place, left: &plan };
            let is_left = reached.remains() || !self.memory.parked(&self.cloud.groups(service)).is_empty();
            Ok(self.cloud.status(&reached).or_else(|| is_left.then(LoadBalancerStatus::default)))
        };
        let found: Vec<Found> = verdicts.into_iter().enumerate().map(of).collect();
        if let ([Ok(Some(_))], [service]) = (&found[..], services) {
            let mut recent = lock(&self.recent);
            recent.retain(|_, recent| recent.at.elapsed() < RECENT);
            let uid = service.metadata.uid.to_string();
            recent.insert(service.key(), Recent { at: Instant::now(), runs, uid, observed });
        }
        found
    }
}
