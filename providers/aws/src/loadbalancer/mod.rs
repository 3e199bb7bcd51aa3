//! Balancers for Services: observe, desired, plan, guard, apply.
//!
//! One Service is one group; Services share nothing but the security groups of the nodes. [`desired`] reads the Service
//! and its annotations without any call. [`observe`] reads the objects in AWS that carry this cluster's ownership tags
//! or that the Service names. [`plan`] is the difference, as an ordered list of writes that may stop after any of them.
//! [`guard`] refuses what looks like a mistake, and [`apply`] sends the writes.

pub(crate) mod apply;
pub(crate) mod classic;
pub(crate) mod desired;
pub(crate) mod env;
pub(crate) mod guard;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod observe;
pub(crate) mod observed;
pub(crate) mod reads;
mod redact;
pub(crate) mod rules;
pub(crate) mod security_groups;
mod settling;
pub(crate) mod step;
pub(crate) mod subnets;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm_kit::balancer::{self, BalancerCloud, Items, Kind, Part, Plan, Reached, Written};
use ccm_kit::inspect::replay::no_cloud;
use ccm_kit::{Cluster, lock};
use ccm_provider::{
    ErrorClass, EventType, Finding, LoadBalancerIngress, LoadBalancerStatus, NodeRef, ProviderError, Scope, Service,
    ServiceKey, ServiceWork, Severity, Subject,
};
use serde::{Deserialize, Serialize};

use crate::client::Api;
use crate::node::age;
use crate::node::fleet::Fleet;
use crate::node::identity::instance_of;
use crate::node::instances::GRACE;
use crate::node::zones::Zones;
use apply::Outputs;
use desired::{Desired, Goal};
use env::Env;
use observed::Observed;
use reads::Reads;
use settling::Settling;
use step::{Purpose, Step};

/// Reason of the events about the annotations of a Service.
const REASON: &str = "AWSLoadBalancerWarning";

#[derive(Debug)]
pub(crate) struct Balancers {
    pub(crate) env: Env,
    cloud: Option<Cloud>,
}

/// The dependencies of reads and writes.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) reads: Reads,
    settling: Settling,
    cluster: Cluster,
}

/// Delay before an instance that EC2 does not show yet is read again.
const INSTANCE_RECHECK: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(crate) observed: Observed,
    /// Delay of the next read if AWS does not show this process's last writes for the balancer yet.
    unsettled: Option<Duration>,
    /// Delay of the next read if EC2 may not show the instance of a new node yet.
    #[serde(default, alias = "late")]
    instance_recheck: Option<Duration>,
}

impl Balancers {
    pub(crate) fn new(api: Arc<dyn Api>, fleet: Fleet, zones: Arc<Zones>, cluster: Cluster, env: Env) -> Self {
        let reads = Reads::new(api, fleet, zones, cluster.clone(), &env);
        let settling = Settling::new(cluster.clone());
        let cloud = Some(Cloud { reads, settling, cluster });
        Self { env, cloud }
    }

    /// For plans from recorded observations only.
    pub(crate) fn without_cloud(env: Env) -> Self {
        Self { env, cloud: None }
    }

    pub(crate) fn cloud(&self) -> Result<&Cloud, ProviderError> {
        self.cloud.as_ref().ok_or_else(|| no_cloud("AWS"))
    }

    /// The writes that bring the cloud from the observed to the desired state.
    pub(crate) fn plan_one(&self, desired: &Desired, observed: &Observed) -> Result<step::Planned, ProviderError> {
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
            Goal::Classic(classic) => classic::plan(desired, classic, observed, env),
            Goal::Network(network) => network::plan(desired, network, observed, env),
        }
    }

    fn warn(&self, service: &Service, finding: &Finding) {
        if finding.severity < Severity::Warning {
            return;
        }
        if let Some(context) = self.cloud.as_ref().and_then(|cloud| cloud.cluster.context()) {
            let subject = Subject::service(service);
            context.events.event(&subject, EventType::Warning, REASON, &finding.to_string());
        }
    }
}

impl Cloud {
    /// Whether one of the instances belongs to a node so young that EC2 may not show its instance yet.
    fn has_young(&self, work: &[ServiceWork], instances: &BTreeSet<String>) -> bool {
        let is_young = |node: &NodeRef| age(node, &self.cluster).is_some_and(|age| age < GRACE);
        let is_one = |node: &NodeRef| instance_of(node).is_some_and(|id| instances.contains(id.as_str()));
        !instances.is_empty() && work.iter().flat_map(|item| &*item.nodes).any(|node| is_young(node) && is_one(node))
    }
}

/// The status of a Service: empty until its balancer has a DNS name.
fn status(hostname: &str) -> LoadBalancerStatus {
    let ingress = LoadBalancerIngress { hostname: hostname.to_owned(), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Some(ingress).filter(|_| !hostname.is_empty()).into_iter().collect() }
}

/// Whether AWS certainly changed nothing.
fn is_refusal(error: &ProviderError) -> bool {
    matches!(error.class(), ErrorClass::Invalid { .. } | ErrorClass::Denied { .. } | ErrorClass::Unsupported)
}

fn missing_instances(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let common = desired.goal.common()?;
    let nodes = observed.missing_instances.iter().filter_map(|id| common.targets.get(id).map(String::as_str));
    let nodes: Vec<&str> = nodes.collect();
    let text = format!("no traffic for {}: EC2 does not show their instances", desired::first_few(&nodes));
    (!nodes.is_empty()).then(|| Finding::warning("nodes", text))
}

/// A finding about a balancer of this name and the other kind.
fn of_other_kind(desired: &Desired, observed: &Observed) -> Option<Finding> {
    let other = match &desired.goal {
        Goal::Absent => None,
        Goal::Classic(_) => observed.network.as_ref().map(|network| &network.balancer.dns_name),
        Goal::Network(_) => observed.classic.as_ref().map(|classic| &classic.balancer.dns_name),
    }?;
    let text = format!(
        "a load balancer {} of the other kind exists too, and stays until the Service is deleted; delete the Service and \
         create it again to remove it sooner",
        desired.name
    );
    Some(Finding::warning("load balancer", text).value(other.clone()))
}

impl From<Step> for balancer::Step<Step> {
    fn from(step: Step) -> Self {
        let summary = step.summary.clone();
        Self::new(step, summary, Items::one(0), Part::new(Kind::Frame))
    }
}

impl BalancerCloud for Balancers {
    type Wanted = Vec<Desired>;
    type Observed = Vec<Observation>;
    type Write = Step;
    type Made = Mutex<Outputs>;

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Vec<Desired>, Vec<Result<(), ProviderError>>) {
        let mut wanted = Vec::new();
        let mut verdicts = Vec::new();
        for item in work {
            let desired = desired::of_service(cluster, item, &self.env);
            if let (Err(ProviderError::ImplementedElsewhere), Some(finding)) =
                (&desired, desired::previous_balancer(&item.service))
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
        let cloud = self.cloud()?;
        let mut all = Vec::new();
        for desired in wanted {
            let deleting = matches!(desired.goal, Goal::Absent);
            let observed = observe::gather(desired, &cloud.reads, &self.env).await?;
            let unsettled = cloud.settling.left(&desired.name, &observed, deleting);
            let instance_recheck = cloud.has_young(work, &observed.missing_instances).then_some(INSTANCE_RECHECK);
            all.push(Observation { observed, unsettled, instance_recheck });
        }
        Ok(all)
    }

    fn strip(&self, observed: &mut Vec<Observation>, wanted: &Vec<Desired>) {
        for (desired, observation) in wanted.iter().zip(observed) {
            redact::redact(desired, &mut observation.observed);
        }
    }

    fn plan(&self, observed: &Vec<Observation>, wanted: &Vec<Desired>) -> Result<Plan<Step>, ProviderError> {
        let (mut steps, mut findings) = (Vec::new(), Vec::new());
        for (desired, observation) in wanted.iter().zip(observed) {
            let planned = self.plan_one(desired, &observation.observed)?;
            // Objects that AWS does not show yet may block the deletion of visible ones, or be leaked when something
            // else changes.
            if let Some(after) = observation.unsettled {
                return Err(settling::recheck(after).into());
            }
            let recheck =
                observation.instance_recheck.map(|after| settling::recheck_instances(&observation.observed, after));
            let purpose = match recheck {
                Some(recheck) if planned.steps.is_empty() => return Err(recheck.into()),
                recheck => {
                    Purpose { balancer: desired.name.clone(), keeps: !matches!(desired.goal, Goal::Absent), recheck }
                }
            };
            let purposeful = |step| Step { purpose: purpose.clone(), ..step };
            steps.extend(planned.steps.into_iter().map(purposeful).map(balancer::Step::from));
            findings.extend(desired.findings.iter().cloned());
            findings.extend(of_other_kind(desired, &observation.observed));
            findings.extend(missing_instances(desired, &observation.observed));
            findings.extend(planned.findings);
        }
        Ok(Plan { steps, findings, failed: BTreeMap::new() })
    }

    fn guard(
        &self,
        observed: &Vec<Observation>,
        wanted: &Vec<Desired>,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        let writes: Vec<Step> = steps.iter().map(|step| step.write.clone()).collect();
        let mut observation = wanted.iter().zip(observed);
        let refused = observation
            .try_for_each(|(desired, observation)| guard::guard(desired, &observation.observed, &self.env, &writes));
        let refused = refused.err().into_iter();
        refused.flat_map(|error| (0..steps.len()).map(move |index| (index, error.clone()))).collect()
    }

    async fn write(
        &self,
        step: &balancer::Step<Step>,
        shared: &Mutex<Outputs>,
        _: &Scope,
    ) -> Result<Written, ProviderError> {
        let step = &step.write;
        let cloud = self.cloud()?;
        // One write at a time.
        let mut outputs = std::mem::take(&mut *lock(shared));
        tracing::info!(step = %step.summary, "writing");
        let Purpose { balancer, keeps, recheck } = &step.purpose;
        outputs.recheck.clone_from(recheck);
        let write = outputs.completed(&step.write);
        // Recorded before the call too: the answer may be lost.
        if *keeps {
            cloud.settling.wrote(balancer, &write);
        }
        let answer = apply::apply(step, &mut outputs, &cloud.reads).await;
        *lock(shared) = outputs;
        match &answer {
            Err(error) if is_refusal(error) => cloud.settling.refused(balancer, &write),
            Err(_) if !keeps => {}
            _ => cloud.settling.wrote(balancer, &write),
        }
        answer.map(|()| Written::Done)
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

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let key: ServiceKey = reached.service.key();
        let (desired, observation) =
            reached.wanted.iter().zip(reached.observed).find(|(desired, _)| desired.service == key)?;
        let network = observation.observed.network.as_ref().map(|network| &network.balancer);
        let network = network.filter(|balancer| balancer.kind == network::KIND).map(network::status);
        let classic = observation.observed.classic.as_ref().map(|classic| status(&classic.balancer.dns_name));
        match desired.goal {
            Goal::Classic(_) => classic,
            Goal::Network(_) => network,
            // Without a balancer there may be other objects to delete, or AWS does not show the balancer yet.
            Goal::Absent => classic.or(network).or_else(|| {
                let parts = observation.unsettled.is_some()
                    || self.plan_one(desired, &observation.observed).is_ok_and(|planned| !planned.steps.is_empty());
                parts.then(LoadBalancerStatus::default)
            }),
        }
    }
}
