//! Balancers for Services: observe, wanted, plan, guard, write.
//!
//! One Service is one group; Services share nothing but the security groups of the nodes. [`wanted`] reads the Service
//! and its annotations without any call. [`observe`] reads the objects in AWS that carry this cluster's ownership tags
//! or that the Service names. [`plan`] is the difference, as an ordered list of writes that may stop after any of them.
//! [`guard`] refuses what looks like a mistake, and [`write`] sends the writes.

pub(crate) mod claim;
pub(crate) mod env;
pub(crate) mod guard;
pub(crate) mod marks;
pub(crate) mod names;
pub(crate) mod neighbors;
pub(crate) mod observe;
pub(crate) mod observed;
pub(crate) mod plan;
pub(crate) mod reads;
mod redact;
pub(crate) mod rules;
mod settling;
pub(crate) mod step;
pub(crate) mod subnets;
pub(crate) mod wanted;
pub(crate) mod write;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::{self, BalancerCloud, Items, Plan, Reached, Written, is_refusal};
use ccm_kit::inspect::replay::no_cloud;
use ccm_provider::{
    ErrorClass, EventType, Finding, LoadBalancerIngress, LoadBalancerStatus, Node, NodeRef, ProviderError, Scope,
    Service, ServiceKey, ServiceWork, Severity, Subject,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::annotations::TARGET_NODE_LABELS;
use crate::client::write::Ec2Write;
use crate::client::{Api, Write};
use crate::node::age;
use crate::node::fleet::Fleet;
use crate::node::identity::instance_of;
use crate::node::instances::GRACE;
use crate::node::zones::Zones;
use claim::Claim;
use env::Env;
use observed::Observed;
use plan::security_groups::nodes::client_rules;
use reads::Reads;
use settling::Settling;
use step::{Besides, Purpose, Step};
use wanted::{Goal, Wanted};
use write::Outputs;

/// Reason of the events about the annotations of a Service.
const REASON: &str = "AWSLoadBalancerWarning";

#[derive(Debug)]
pub(crate) struct Balancers {
    pub(crate) env: Env,
    cloud: Option<Cloud>,
    /// The missing permissions that an event has named.
    warned: Mutex<BTreeSet<String>>,
}

/// The dependencies of reads and writes.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) reads: Reads,
    settling: Settling,
    /// When EC2 first did not show an instance of a node.
    missing: Mutex<BTreeMap<String, std::time::Instant>>,
    /// Deletions of which only a security group is left, by balancer.
    waiting: Mutex<BTreeMap<String, Waiting>>,
    cluster: Cluster,
}

/// What AWS refuses for good is not sent again within this time.
const REFUSED: Duration = Duration::from_secs(3600);
/// The same for a refusal that a change of something else ends: an address in use, a certificate that is missing or
/// without a signature, a subnet without free addresses, what the account may have.
const REFUSED_BY_OTHERS: Duration = Duration::from_secs(300);
const PASSING: [&str; 8] = [
    "InvalidConfigurationRequest",
    "UnsupportedCertificate",
    "OperationNotPermitted",
    "ResourceAlreadyAssociated",
    "CertificateNotFound",
    "AllocationIdNotFound",
    "InvalidSubnet",
    "InvalidSecurityGroup",
];

/// Delay before an instance that EC2 does not show yet is read again.
const INSTANCE_RECHECK: Duration = Duration::from_secs(10);

/// Delay before a stopped instance is read again: it may have started.
const STOPPED_RECHECK: Duration = Duration::from_secs(60);
/// The same for one without the cluster's tag, which the user may add.
const FOREIGN_RECHECK: Duration = Duration::from_secs(300);
/// While a deletion waits for EC2, its observation serves for so long.
const WAITING_KEPT: Duration = Duration::from_secs(1800);

/// A deletion of which only a security group is left.
#[derive(Debug)]
struct Waiting {
    read: std::time::Instant,
    observed: Observed,
    /// Whether EC2 has refused to delete the group.
    blocked: bool,
}

/// An instance that is missing for so long is missing for the first time again.
const MISSING_KEPT: Duration = Duration::from_secs(3600);

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
        let (missing, waiting) = (Mutex::default(), Mutex::default());
        let cloud = Some(Cloud { reads, settling, missing, waiting, cluster });
        Self { env, cloud, warned: Mutex::default() }
    }

    /// For plans from recorded observations only.
    pub(crate) fn without_cloud(env: Env) -> Self {
        Self { env, cloud: None, warned: Mutex::default() }
    }

    pub(crate) fn cloud(&self) -> Result<&Cloud, ProviderError> {
        self.cloud.as_ref().ok_or_else(|| no_cloud("AWS"))
    }

    pub(crate) fn plan_one(&self, desired: &Wanted, observed: &Observed) -> Result<step::Planned, ProviderError> {
        plan::plan_one(desired, observed, &self.env)
    }

    fn warn(&self, service: &Service, finding: &Finding) {
        // A missing permission concerns all Services.
        let known = claim::is_of_role(finding) && !self.warned.lock().insert(finding.key.clone());
        if finding.severity < Severity::Warning || known {
            return;
        }
        if let Some(context) = self.cloud.as_ref().and_then(|cloud| cloud.cluster.context()) {
            let subject = Subject::service(service);
            context.events.event(&subject, EventType::Warning, REASON, &finding.to_string());
        }
    }
}

impl Cloud {
    /// Whether one of the instances belongs to a node so young that EC2 may not show its instance, or its tags, yet.
    fn has_young(&self, work: &[ServiceWork], instances: &BTreeSet<String>) -> bool {
        let is_young = |node: &NodeRef| age(node, &self.cluster).is_some_and(|age| age < GRACE);
        let is_one = |node: &NodeRef| instance_of(node).is_some_and(|id| instances.contains(id.as_str()));
        !instances.is_empty() && work.iter().flat_map(|item| &*item.nodes).any(|node| is_young(node) && is_one(node))
    }

    /// The instances that EC2 does not show for the first time.
    fn doubtful(&self, observed: &Observed) -> BTreeSet<String> {
        let now = self.cluster.now();
        let mut missing = self.missing.lock();
        missing.retain(|id, since| {
            let is_old = now.saturating_duration_since(*since) > MISSING_KEPT;
            !is_old && !observed.instances.contains_key(id)
        });
        let is_new = |id: &&String| {
            let since = missing.entry((*id).clone()).or_insert(now);
            now.saturating_duration_since(*since) < INSTANCE_RECHECK
        };
        observed.missing_instances.iter().filter(is_new).cloned().collect()
    }

    /// Reads everything; but while a deletion only waits until EC2 gives up the security group, nothing.
    async fn read(&self, desired: &Wanted, env: &Env) -> Result<Observed, ProviderError> {
        let deleting = matches!(desired.goal, Goal::Absent);
        let now = self.cluster.now();
        {
            let mut waiting = self.waiting.lock();
            let is_recent = |one: &Waiting| now.saturating_duration_since(one.read) < WAITING_KEPT;
            waiting.retain(|name, one| is_recent(one) && (deleting || *name != desired.name));
            if let Some(one) = waiting.get(&desired.name).filter(|one| one.blocked) {
                return Ok(one.observed.clone());
            }
        }
        let mut observed = observe::gather(desired, &self.reads, env).await?;
        observed.doubtful_instances = self.doubtful(&observed);
        let is_group = |step: &Step| matches!(step.write, Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }));
        if deleting
            && let Ok(planned) = plan::plan_one(desired, &observed, env)
            && !planned.steps.is_empty()
            && planned.steps.iter().all(is_group)
        {
            let waits = Waiting { read: now, observed: observed.clone(), blocked: false };
            self.waiting.lock().insert(desired.name.clone(), waits);
        }
        Ok(observed)
    }

    /// Records the result of the deletion of a security group.
    fn tried(&self, balancer: &str, is_deleted: bool) {
        let mut waiting = self.waiting.lock();
        match waiting.get_mut(balancer) {
            Some(_) if is_deleted => drop(waiting.remove(balancer)),
            Some(one) => one.blocked = true,
            None => {}
        }
    }
}

fn purposeful(desired: &Wanted, step: Step) -> Step {
    let keeps = !matches!(desired.goal, Goal::Absent);
    let purpose = Purpose { balancer: desired.name.clone(), keeps, ..step.purpose };
    Step { purpose, ..step }
}

/// The status of a Service: empty until its balancer has a DNS name.
fn status(hostname: &str) -> LoadBalancerStatus {
    let ingress = LoadBalancerIngress { hostname: hostname.to_owned(), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Some(ingress).filter(|_| !hostname.is_empty()).into_iter().collect() }
}

fn missing_instances(desired: &Wanted, observed: &Observed) -> Option<Finding> {
    let common = desired.goal.common()?;
    let nodes = observed.missing_instances.iter().filter_map(|id| common.targets.get(id).map(String::as_str));
    let nodes: Vec<&str> = nodes.collect();
    let text = format!("no traffic for {}: EC2 does not show their instances", wanted::first_few(&nodes));
    (!nodes.is_empty()).then(|| Finding::warning("nodes", text))
}

fn stopped_instances(desired: &Wanted, observed: &Observed) -> Option<Finding> {
    let common = desired.goal.common()?;
    let stopped = observed.instances.iter().filter(|(_, instance)| instance.is_stopped);
    let nodes = stopped.filter_map(|(id, _)| common.targets.get(id).map(String::as_str));
    let nodes: Vec<&str> = nodes.collect();
    let text = format!("no traffic for {} while their instances are stopped", wanted::first_few(&nodes));
    (!nodes.is_empty()).then(|| Finding::warning("nodes", text))
}

fn foreign_instances(desired: &Wanted, observed: &Observed, env: &Env) -> Option<Finding> {
    let common = desired.goal.common()?;
    let key = env.ownership.cluster_key()?;
    let nodes = observed.foreign_instances.iter().filter_map(|id| common.targets.get(id).map(String::as_str));
    let nodes: Vec<&str> = nodes.collect();
    let text = format!("no traffic for {}: tag their instances {key} = owned", wanted::first_few(&nodes));
    (!nodes.is_empty()).then(|| Finding::warning("nodes", text))
}

/// A finding about a balancer of this name and the other kind.
fn of_other_kind(desired: &Wanted, observed: &Observed) -> Option<Finding> {
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
        let (mut summary, part, needs) = (step.summary.clone(), step.part.clone(), step.needs);
        summary.reason.push_str(match &step.besides {
            Besides::Listener { .. } => "; if the permission is missing: delete Listener, create Listener",
            Besides::Former(former) if !former.is_empty() => "; if one is refused: create Listener, as before",
            _ => "",
        });
        let restore = step.restore.clone().map(|write| {
            let step = Step { write, besides: Besides::Nothing, restore: None, ..step.clone() };
            Self::new(step, summary.clone(), Items::one(0), part.clone())
        });
        // A role may lack the permission for a tag that only shows later passes more.
        let optional = part.kind == step::Kind::Claim;
        let mut step = Self { optional, ..Self::new(step, summary, Items::one(0), part) };
        if let Some(restore) = restore {
            step = step.restore(restore);
        }
        match needs {
            Some(needs) => step.needs(needs),
            None => step,
        }
    }
}

impl BalancerCloud for Balancers {
    type Wanted = Vec<Wanted>;
    type Observed = Vec<Observation>;
    type Write = Step;
    type Made = Mutex<Outputs>;
    const ANNOTATIONS: &'static [&'static str] = &["service.beta.kubernetes.io/"];

    /// A node that can be no target is no host: with only such nodes, the load balancer would be empty.
    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        wanted::may_be_target(service, node).then(|| node.provider_id_or_empty().into())
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        let mut service = service.clone();
        service.metadata.annotations.remove(TARGET_NODE_LABELS.row.key)?;
        Some(service)
    }

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Vec<Wanted>, Vec<Result<(), ProviderError>>) {
        let mut wanted = Vec::new();
        let mut verdicts = Vec::new();
        for item in work {
            let desired = wanted::of_service(cluster, item, &self.env);
            if let (Err(ProviderError::ImplementedElsewhere), Some(finding)) =
                (&desired, wanted::previous_balancer(&item.service))
            {
                self.warn(&item.service, &finding);
            }
            verdicts.push(desired.map(|desired| wanted.push(desired)));
        }
        (wanted, verdicts)
    }

    async fn observe(
        &self,
        _: &str,
        work: &[ServiceWork],
        wanted: &Vec<Wanted>,
    ) -> Result<Vec<Observation>, ProviderError> {
        let cloud = self.cloud()?;
        let at_nodes = &cloud.reads.at_nodes;
        let mut all = Vec::new();
        for desired in wanted {
            let deleting = matches!(desired.goal, Goal::Absent);
            match &desired.goal {
                Goal::Network(network) if network.is_hosts_only() => {}
                Goal::Network(network) => {
                    at_nodes.will_probe(&desired.name, Some(network.probed()));
                    at_nodes.will_serve(&desired.name, &client_rules(&desired.name, network));
                }
                Goal::Absent | Goal::Classic(_) => {
                    at_nodes.will_probe(&desired.name, None);
                    at_nodes.will_serve(&desired.name, &[]);
                }
            }
            let observed = cloud.read(desired, &self.env).await?;
            let unsettled = cloud.settling.left(&desired.name, &observed, deleting);
            let late = &observed.missing_instances | &observed.foreign_instances;
            let instance_recheck = cloud.has_young(work, &late).then_some(INSTANCE_RECHECK);
            all.push(Observation { observed, unsettled, instance_recheck });
        }
        Ok(all)
    }

    fn strip(&self, observed: &mut Vec<Observation>, wanted: &Vec<Wanted>) {
        for (desired, observation) in wanted.iter().zip(observed) {
            redact::redact(desired, &mut observation.observed);
        }
    }

    fn plan(&self, observed: &Vec<Observation>, wanted: &Vec<Wanted>) -> Result<Plan<Step>, ProviderError> {
        let (mut steps, mut findings, mut failed) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (desired, observation) in wanted.iter().zip(observed) {
            let planned = match self.plan_one(desired, &observation.observed) {
                Ok(planned) => planned,
                Err(error) => {
                    failed.insert(0, error);
                    continue;
                }
            };
            // Objects that AWS does not show yet may block the deletion of visible ones, or be leaked when something
            // else changes.
            if let Some(after) = observation.unsettled {
                failed.insert(0, settling::recheck(after));
                continue;
            }
            // The sync of a Service also reads its status; that of its nodes alone does nothing else.
            let waits = |common: &wanted::Common| common.must_exist;
            let late = observation.instance_recheck.filter(|_| desired.goal.common().is_some_and(waits));
            let late = late.map(|after| settling::recheck_instances(&observation.observed, after));
            failed.extend(planned.errors.into_iter().next().or(late).map(|error| (0, error)));
            let purposeful = planned.steps.into_iter().map(|step| purposeful(desired, step));
            steps.extend(purposeful.map(balancer::Step::from));
            findings.extend(desired.findings.iter().cloned());
            findings.extend(of_other_kind(desired, &observation.observed));
            findings.extend(missing_instances(desired, &observation.observed));
            findings.extend(stopped_instances(desired, &observation.observed));
            let is_late = observation.instance_recheck.is_some();
            findings.extend(foreign_instances(desired, &observation.observed, &self.env).filter(|_| !is_late));
            findings.extend(claim::denied_reads(&observation.observed));
            findings.extend(planned.findings);
        }
        Ok(Plan { steps, findings, failed })
    }

    fn guard(
        &self,
        observed: &Vec<Observation>,
        wanted: &Vec<Wanted>,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        let writes: Vec<Step> = steps.iter().map(|step| step.write.clone()).collect();
        let observations = wanted.iter().zip(observed);
        let refused = observations
            .flat_map(|(desired, observation)| guard::guard(desired, &observation.observed, &self.env, &writes));
        refused.collect()
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
        let mut outputs = shared.lock().clone();
        tracing::info!(step = %step.summary, "writing");
        let Purpose { balancer, keeps, .. } = &step.purpose;
        let write = outputs.completed(&step.write);
        // Recorded before the call too: the answer may be lost.
        let new = if *keeps { cloud.settling.wrote(balancer, &write) } else { Vec::new() };
        let unopened = outputs.unopened().len();
        let answer = write::apply(step, &mut outputs, &cloud.reads).await;
        match &answer {
            // Also where an object that it names does not exist, or changes just now: AWS has written nothing.
            Err(error) if is_refusal(error) || error.class() == ErrorClass::Conflict || error.is_in_progress() => {
                cloud.settling.refused(&new);
            }
            Ok(()) if outputs.unopened().len() > unopened => cloud.settling.refused_icmp(&new),
            Err(_) if !keeps => {}
            _ => drop(cloud.settling.wrote(balancer, &write)),
        }
        let again = outputs.again();
        let all = std::iter::once(&write).chain(&again);
        again.iter().for_each(|write| drop(cloud.settling.wrote(balancer, write)));
        cloud.settling.refused_targets(balancer, all, &outputs.refused_by(&write));
        if matches!(write, Write::Ec2(Ec2Write::DeleteSecurityGroup { .. })) {
            cloud.tried(balancer, answer.is_ok());
        }
        *shared.lock() = outputs;
        answer.map(|()| Written::Done)
    }

    fn former(&self) -> Option<Duration> {
        self.cloud.as_ref()?.settling.former()
    }

    fn remembers(&self, error: &ProviderError) -> Duration {
        let text = error.to_string();
        let passes = !text.contains(write::FOR_GOOD) && PASSING.iter().any(|code| text.contains(code));
        if passes { REFUSED_BY_OTHERS } else { REFUSED }
    }

    fn finish(&self, outputs: &Mutex<Outputs>) -> Result<(), ProviderError> {
        outputs.lock().finish()
    }

    fn report(&self, work: &[ServiceWork], _: &Vec<Wanted>, findings: &[Finding]) {
        for item in work {
            for finding in findings {
                self.warn(&item.service, finding);
            }
        }
    }

    fn report_refusal(&self, work: &[ServiceWork], step: &balancer::Step<Step>, error: &ProviderError) {
        let finding = Finding::warning("security group", error.to_string()).value(step.summary.id.clone());
        work.iter().for_each(|item| self.warn(&item.service, &finding));
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let key: ServiceKey = reached.service.key();
        let (desired, observation) =
            reached.wanted.iter().zip(reached.observed).find(|(desired, _)| desired.service == key)?;
        let Observed { classic, network, .. } = &observation.observed;
        // A deletion looks at what has the name, as upstream.
        let shows = |tags| desired.goal.common().is_none() || claim::balancer(tags, &self.env) != Claim::Foreign;
        let network = network.as_ref().filter(|found| found.balancer.kind == plan::network::KIND && shows(&found.tags));
        let network = network.map(|found| plan::network::status(&found.balancer));
        let classic = classic.as_ref().filter(|found| shows(&found.tags));
        let classic = classic.map(|found| status(&found.balancer.dns_name));
        match desired.goal {
            Goal::Classic(_) => classic,
            Goal::Network(_) => network,
            Goal::Absent => classic.or(network),
        }
    }

    fn again(&self, reached: &Reached<'_, Self>) -> Option<Duration> {
        let key: ServiceKey = reached.service.key();
        let (desired, observation) =
            reached.wanted.iter().zip(reached.observed).find(|(desired, _)| desired.service == key)?;
        let (refused, unopened) = {
            let outputs = reached.made.lock();
            (outputs.refused(), outputs.unopened().to_vec())
        };
        for finding in refused.iter().chain(&unopened) {
            self.warn(reached.service, finding);
        }
        let Observation { observed, instance_recheck, .. } = observation;
        // Another Service may have closed a rule that this one found and needs.
        let is_ensured = desired.goal.common().is_some_and(|common| !common.must_exist);
        let mut is_closed = false;
        if is_ensured && let Ok(cloud) = self.cloud() {
            cloud.reads.at_nodes.complete(&desired.name);
            is_closed = cloud.reads.at_nodes.has_closed(&desired.name);
        }
        let opens = |step: &balancer::Step<Step>| {
            matches!(step.write.write, Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }))
        };
        // What a full group has no room for now, the next sync does not open either.
        if is_closed || (is_ensured && unopened.is_empty() && reached.steps().any(opens)) {
            return Some(settling::AGAIN);
        }
        let is_late = instance_recheck.is_some() || !observed.doubtful_instances.is_empty();
        let is_stopped = refused.is_some() || observed.instances.values().any(|instance| instance.is_stopped);
        let is_foreign = !observed.foreign_instances.is_empty();
        let slowly = is_stopped.then_some(STOPPED_RECHECK).or(is_foreign.then_some(FOREIGN_RECHECK));
        is_late.then_some(INSTANCE_RECHECK).or(slowly)
    }
}
