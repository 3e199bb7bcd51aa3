//! Balancers for Services: observe, desired, plan, guard, apply.
//!
//! One Service is one group: nothing but the security groups of the nodes is shared. [`wish`] reads the Service and its
//! annotations without any call; [`observe`] reads what AWS has that carries our marks or that the wish names; [`plan`] is
//! the difference as writes in an order of which any prefix is safe to die after; [`guard`] refuses what looks like a
//! mistake; [`apply`] sends the writes.

pub(crate) mod apply;
pub(crate) mod classic;
pub(crate) mod desired;
pub(crate) mod guard;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod reads;
pub(crate) mod security_groups;
mod settling;
mod strip;
pub(crate) mod subnets;

#[cfg(all(test, feature = "sdk"))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_provider::{
    ErrorClass, EventType, Finding, LoadBalancerStatus, Node, NodeRef, Planned, ProviderError, Service, ServiceKey,
    ServiceWork, Severity, Steps, Subject,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::client::Api;
use crate::node::fleet::Fleet;
use crate::node::identity::instance_of;
use crate::node::instances::GRACE;
use crate::node::zones::Zones;
use crate::start::config::HealthProbe;
use apply::Outputs;
use desired::{Desired, Goal};
use observe::Observed;
use plan::{Env, Purpose, Step};
use reads::Reads;
use settling::Settling;

/// Reason of the events that tell what was found in a Service's wishes.
const REASON: &str = "AWSLoadBalancerWarning";

/// The balancers of the cluster.
#[derive(Debug)]
pub(crate) struct Balancers {
    pub(crate) env: Env,
    probe: HealthProbe,
    pub(crate) reads: Reads,
    settling: Settling,
    /// What was seen a moment ago of balancers that shall go, by name, each for one use.
    recent: Mutex<BTreeMap<String, (Instant, Observed)>>,
    cluster: Cluster,
}

/// For how long what was seen of a balancer that shall go serves its deletion.
const LOOK_KEPT: Duration = Duration::from_secs(1);
/// When an instance that EC2 does not show yet is looked for again.
const INSTANCE_LATE: Duration = Duration::from_secs(10);

/// What was seen for a wish.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(crate) observed: Observed,
    /// When to look again, because AWS does not show yet what this process wrote for the balancer.
    unsettled: Option<Duration>,
    /// When to look again, because EC2 may not show the instance of a new node yet.
    #[serde(default)]
    late: Option<Duration>,
}

impl Balancers {
    /// Nothing is called yet.
    pub(crate) fn new(
        api: Arc<dyn Api>,
        fleet: Fleet,
        zones: Arc<Zones>,
        cluster: Cluster,
        env: Env,
        probe: HealthProbe,
    ) -> Self {
        let reads = Reads::new(api, fleet, zones, cluster.clone(), &env);
        let settling = Settling::new(cluster.clone());
        Self { env, probe, reads, settling, recent: Mutex::default(), cluster }
    }

    /// What brings the cloud from what is observed to what is wished for.
    ///
    /// # Errors
    ///
    /// The wish cannot be met in the cloud as it is.
    pub(crate) fn plan_one(&self, desired: &Desired, observed: &Observed) -> Result<plan::Planned, ProviderError> {
        let env = &self.env;
        match &desired.goal {
            Goal::Absent => {
                let reason = "the Service wants no load balancer any more";
                let mut planned = classic::delete(desired, observed, env, reason);
                let network = network::delete(desired, observed, env, reason)?;
                planned.steps.extend(network.steps);
                planned.findings.extend(network.findings);
                Ok(planned)
            }
            Goal::Classic(classic) => {
                let current = observed.classic.as_ref().map(|classic| &classic.balancer.subnets);
                let current = current.cloned().unwrap_or_default();
                let internal = subnets::is_internal(&classic.common, observed);
                let choice = &classic.common.subnets;
                let subnets = || subnets::wanted(choice, internal, &current, observed, env);
                classic::plan(desired, classic, observed, env, &subnets)
            }
            Goal::Network(network) => {
                let common = &network.common;
                let subnets = || subnets::wanted(&common.subnets, common.internal, &BTreeSet::new(), observed, env);
                network::plan(desired, network, observed, env, &subnets)
            }
        }
    }

    fn warn(&self, service: &Service, finding: &Finding) {
        if finding.severity < Severity::Warning {
            return;
        }
        if let Some(context) = self.cluster.context() {
            let subject = Subject::service(service);
            context.events.event(&subject, EventType::Warning, REASON, &finding.to_string());
        }
    }

    /// Whether one of the instances is that of a node that is younger than EC2 may be late.
    fn has_young(&self, work: &[ServiceWork], instances: &BTreeSet<String>) -> bool {
        let now = self.cluster.wall();
        let is_young = |node: &Node| {
            let created = node.created.map(std::time::SystemTime::from);
            created.is_some_and(|created| now.duration_since(created).unwrap_or_default() < GRACE)
        };
        let is_one = |node: &NodeRef| instance_of(node).is_some_and(|id| instances.contains(id.as_str()));
        !instances.is_empty() && work.iter().flat_map(|item| &*item.nodes).any(|node| is_young(node) && is_one(node))
    }

    /// Keeps what was seen for the deletion that the core begins after it asked whether there is anything to delete.
    fn keep_observation(&self, balancer: &str, observed: &Observed) {
        let mut recent = self.recent();
        recent.retain(|_, (at, _)| at.elapsed() < LOOK_KEPT);
        recent.insert(balancer.to_owned(), (Instant::now(), observed.clone()));
    }

    fn take_observation(&self, balancer: &str) -> Option<Observed> {
        let (at, observed) = self.recent().remove(balancer)?;
        (at.elapsed() < LOOK_KEPT).then_some(observed)
    }

    fn recent(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, Observed)>> {
        lock(&self.recent)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether AWS certainly did nothing.
fn is_refusal(error: &ProviderError) -> bool {
    matches!(error.class(), ErrorClass::Invalid { .. } | ErrorClass::Denied { .. } | ErrorClass::Unsupported)
}

/// The wanted instances that get no traffic because EC2 does not show them.
fn unseen(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let common = match &desired.goal {
        Goal::Absent => return None,
        Goal::Classic(classic) => &classic.common,
        Goal::Network(network) => &network.common,
    };
    let nodes = observed.unseen.iter().filter_map(|id| common.targets.get(id).map(|node| &*node.name));
    let nodes: Vec<&str> = nodes.collect();
    (!nodes.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        key: "nodes".to_owned(),
        value: None,
        message: format!("no traffic for {}: EC2 does not show their instances", desired::first_few(&nodes)),
    })
}

/// A balancer of the kind that isn't wanted, with our name.
fn of_other_kind(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let other = match &desired.goal {
        Goal::Absent => None,
        Goal::Classic(_) => observed.network.as_ref().map(|network| &network.balancer.dns_name),
        Goal::Network(_) => observed.classic.as_ref().map(|classic| &classic.balancer.dns_name),
    }?;
    Some(Finding {
        severity: Severity::Warning,
        key: "load balancer".to_owned(),
        value: Some(other.clone()),
        message: format!(
            "a load balancer {} of the other kind is there too, and stays until the Service is deleted; delete the Service \
             and create it again to remove it sooner",
            desired.name
        ),
    })
}

impl Planned for Balancers {
    type Desired = Vec<Desired>;
    type Observed = Vec<Observation>;
    type Step = Step;
    type Outputs = Mutex<Outputs>;

    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Vec<Desired>, Vec<Result<(), ProviderError>>) {
        let mut wanted = Vec::new();
        let mut verdicts = Vec::new();
        for item in work {
            let desired = desired::of_service(cluster, item, &self.env, &self.probe);
            if let (Err(ProviderError::ImplementedElsewhere), Some(finding)) =
                (&desired, desired::left_behind(&item.service))
            {
                self.warn(&item.service, &finding);
            }
            verdicts.push(desired.map(|desired| wanted.extend(desired)));
        }
        (wanted, verdicts)
    }

    async fn observe(
        &self,
        _: &str,
        work: &[ServiceWork],
        wanted: &Vec<Desired>,
    ) -> Result<Vec<Observation>, ProviderError> {
        let mut all = Vec::new();
        for desired in wanted {
            let goes = matches!(desired.goal, Goal::Absent);
            let observed = match self.take_observation(&desired.name).filter(|_| goes) {
                Some(observed) => observed,
                None => {
                    let observed = observe::gather(desired, &self.reads, &self.env).await?;
                    if goes {
                        self.keep_observation(&desired.name, &observed);
                    }
                    observed
                }
            };
            let unsettled = self.settling.left(&desired.name, &observed, goes);
            let late = self.has_young(work, &observed.unseen).then_some(INSTANCE_LATE);
            all.push(Observation { observed, unsettled, late });
        }
        Ok(all)
    }

    fn strip(&self, observed: &mut Vec<Observation>, wanted: &Vec<Desired>) {
        for (desired, seen) in wanted.iter().zip(observed) {
            strip::strip(desired, &mut seen.observed);
        }
    }

    fn plan(&self, observed: &Vec<Observation>, wanted: &Vec<Desired>) -> Result<Steps<Step>, ProviderError> {
        let (mut steps, mut findings) = (Vec::new(), Vec::new());
        for (desired, seen) in wanted.iter().zip(observed) {
            let planned = self.plan_one(desired, &seen.observed)?;
            // What is hidden may hold up the deletion of what is shown, or be forgotten when something else changes.
            if let Some(after) = seen.unsettled {
                return Err(settling::recheck(after).into());
            }
            let recheck = seen.late.map(|after| settling::look_for_instances(&seen.observed, after));
            let purpose = match recheck {
                Some(recheck) if planned.steps.is_empty() => return Err(recheck.into()),
                recheck => {
                    Purpose { balancer: desired.name.clone(), keeps: !matches!(desired.goal, Goal::Absent), recheck }
                }
            };
            steps.extend(planned.steps.into_iter().map(|step| Step { purpose: purpose.clone(), ..step }));
            findings.extend(desired.findings.iter().cloned());
            findings.extend(of_other_kind(desired, &seen.observed));
            findings.extend(unseen(desired, &seen.observed));
            findings.extend(planned.findings);
        }
        Ok(Steps { steps, findings, failed: BTreeMap::new() })
    }

    fn guard(&self, observed: &Vec<Observation>, wanted: &Vec<Desired>, steps: &[Step]) -> Result<(), ProviderError> {
        let mut seen = wanted.iter().zip(observed);
        seen.try_for_each(|(desired, seen)| guard::guard(desired, &seen.observed, &self.env, steps))
    }

    async fn apply(&self, step: &Step, shared: &Mutex<Outputs>) -> Result<(), ProviderError> {
        // One write at a time.
        let mut outputs = std::mem::take(&mut *lock(shared));
        tracing::info!(step = %step.summary, "writing");
        let Purpose { balancer, keeps, recheck } = &step.purpose;
        outputs.recheck.clone_from(recheck);
        self.recent().remove(balancer);
        let write = outputs.completed(&step.write);
        // Before it, too: the answer may never come.
        if *keeps {
            self.settling.wrote(balancer, &write);
        }
        let answer = apply::apply(step, &mut outputs, &self.reads).await;
        *lock(shared) = outputs;
        match &answer {
            Err(error) if is_refusal(error) => self.settling.refused(balancer, &write),
            Err(_) if !keeps => {}
            _ => self.settling.wrote(balancer, &write),
        }
        answer
    }

    fn finish(&self, outputs: &Mutex<Outputs>) -> Result<(), ProviderError> {
        std::mem::take(&mut *lock(outputs)).finish()
    }

    fn report(&self, work: &[ServiceWork], findings: &[Finding]) {
        for item in work {
            for finding in findings {
                self.warn(&item.service, finding);
            }
        }
    }

    fn describe(&self, step: &Step) -> ccm_provider::Step {
        step.summary.clone()
    }

    fn status(
        &self,
        observed: &Vec<Observation>,
        wanted: &Vec<Desired>,
        service: &Service,
    ) -> Option<LoadBalancerStatus> {
        let key: ServiceKey = service.key();
        let (desired, seen) = wanted.iter().zip(observed).find(|(desired, _)| desired.service == key)?;
        let network = seen.observed.network.as_ref().map(|network| &network.balancer);
        let network = network.filter(|balancer| balancer.kind == network::KIND).map(network::status);
        let classic = seen.observed.classic.as_ref().map(|classic| classic::status(&classic.balancer));
        match desired.goal {
            Goal::Classic(_) => classic,
            Goal::Network(_) => network,
            // Without a balancer there may be parts of one, or AWS doesn't show it yet: worth asking for the deletion.
            Goal::Absent => classic.or(network).or_else(|| {
                let parts = seen.unsettled.is_some()
                    || self.plan_one(desired, &seen.observed).is_ok_and(|planned| !planned.steps.is_empty());
                parts.then(LoadBalancerStatus::default)
            }),
        }
    }
}
