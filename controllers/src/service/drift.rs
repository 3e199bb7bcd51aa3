//! Finds load balancers that differ although their Service did not change, reports them, and with `--drift-repair` queues a
//! sync: it repairs nothing by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::{EventType, LoadBalancerExt as _, Plan, ServiceAction, ServiceKey, Subject};
use futures::StreamExt;

use super::{ServiceController, ServiceState, Work};

/// The number of Services that are checked at once: enough for a provider to batch its reads.
const AT_ONCE: usize = 20;
/// The longest text about the differences in an event.
const LONGEST: usize = 800;

impl ServiceController {
    /// One check of the load balancers of all Services that are in sync.
    pub(super) async fn look_for_drift(self: Arc<Self>) {
        let converged: Vec<(ServiceKey, ServiceState)> = self
            .lock()
            .iter()
            .filter(|(_, known)| known.is_converged())
            .map(|(k, known)| (k.clone(), known.clone()))
            .collect();
        let looks = converged.into_iter().map(|(key, known)| async {
            let plan = self.plan_of(&known).await;
            // A sync that began meanwhile explains the difference.
            let still =
                self.known(&key).is_some_and(|now| now.is_converged() && Arc::ptr_eq(&now.service, &known.service));
            still.then_some((key, known, plan))
        });
        let found: Vec<_> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let mut seen = BTreeMap::new();
        let mut new = 0;
        let before = std::mem::take(&mut *self.lock_drifted());
        for (key, known, plan) in found.into_iter().flatten() {
            let earlier = before.get(&key);
            // What is still due after a sync for it is found again.
            let is_found = plan.is_some() && self.config.drift_repair;
            // Without an answer, the earlier finding stays.
            let Some(plan) = plan.or_else(|| earlier.cloned()).filter(|plan| !plan.is_empty()) else { continue };
            if is_found || earlier != Some(&plan) {
                new += plan.steps.len();
                self.report_drift(&known, &plan);
            }
            if is_found {
                self.queue.add(Work::Sync(key.clone()));
            }
            seen.insert(key, plan);
        }
        let steps = seen.values().map(|plan| plan.steps.len()).sum();
        *self.lock_drifted() = seen;
        self.drift.saw(steps, new);
    }

    /// The writes of an ensure at this time; `None` if the cloud returns no plan.
    async fn plan_of(&self, known: &ServiceState) -> Option<Plan> {
        let nodes = known.hosts.clone()?;
        let work = self.work(known.service.clone(), nodes, ServiceAction::Ensure);
        let plan = self.balancer.plan(&self.shared.cluster, &work);
        match self.shared.leadership.until_ended(deadline::within("the plan", READ_DEADLINE, plan)).await? {
            Ok(plan) => Some(plan),
            Err(error) => {
                tracing::debug!(service = %known.service.key(), %error, "whether the load balancer drifted is not known");
                None
            }
        }
    }

    fn report_drift(&self, known: &ServiceState, plan: &Plan) {
        tracing::warn!(service = %known.service.key(), %plan, "the load balancer differs although the Service did not change");
        let text: String = plan.to_string().chars().take(LONGEST).collect();
        let when = match self.config.drift_repair {
            true => "now",
            false => "at the next change of the Service or restart of the controller",
        };
        let message = format!(
            "The load balancer differs from the Service, although the Service did not change: another client changed \
             the load balancer. It is corrected {when}. {text}"
        );
        self.events.event(&Subject::service(&known.service), EventType::Warning, "LoadBalancerDrift", &message);
    }
}
