//! Load balancers for Services: external ones with target pools, internal ones with backend services.
//!
//! Upstream: `providers/gce/gce_loadbalancer*.go` of cloud-provider-gcp. [`owner`] decides which controller owns a
//! Service; the desired state is built from the Service and its nodes ([`wanted`], pure), the cloud is read
//! ([`observe`]), the writes are planned ([`plan`], pure), checked ([`guard`]) and sent ([`write`]). Services of one
//! kind share health checks, firewall rules and instance groups, so they are planned together.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::{self, BalancerCloud, Items, Operation, Plan, Progress, Reached, Written};
use ccm_kit::inspect::replay::no_cloud;
use ccm_provider::{
    Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, Note, Notes, ProviderError, Service,
    ServiceAction, ServiceWork,
};

use crate::annotations::{BACKEND_SERVICE, Scheme, TARGET_POOL};
use crate::client::Client;
use crate::client::balancing::ForwardingRule;
use crate::client::operation::ORGANIZATION_POLICY;
use crate::client::resource::{Collection, last_part};

pub(crate) mod claim;
pub(crate) mod env;
mod events;
pub(crate) mod facts;
mod firewall;
mod guard;
pub(crate) mod hosts;
mod lately;
mod missing;
mod observe;
pub(crate) mod observed;
mod ongoing;
mod parts;
pub(crate) mod plan;
mod ports;
mod step;
mod tags;
mod turns;
pub(crate) mod wanted;
mod write;

use claim::Owner;
use env::Env;
use events::Events;
use facts::Facts;
use observe::Reads;
use observed::Observed;
use ongoing::Ongoing;
use step::{Outputs, Rank, Step};
pub(crate) use turns::InTurn;
use wanted::Wanted;
use write::Writer;

/// The groups of Services.
const EXTERNAL: &str = "external load balancers";
const INTERNAL: &str = "internal load balancers";
/// The delay of another sync of a Service whose hosts do not all exist.
const MISSING_AGAIN: Duration = Duration::from_secs(60);
/// The same if an instance has no tag for the firewall rules.
const UNTAGGED_AGAIN: Duration = Duration::from_secs(300);
/// A refused write is sent again after this time.
const REFUSED: Duration = Duration::from_secs(3600);
/// The same for a refusal that a change of something else ends: of another object, or of a policy.
const REFUSED_BY_OTHERS: Duration = Duration::from_secs(300);
/// The beginnings of the keys of annotations that are read.
const READ: [&str; 7] = [
    "service.beta.kubernetes.io/load-balancer-source-ranges",
    "networking.gke.io/load-balancer-type",
    "networking.gke.io/internal-load-balancer-",
    "cloud.google.com/load-balancer-",
    "cloud.google.com/network-tier",
    "cloud.google.com/l4-rbs",
    "alpha.cloud.google.com/load-balancer-backend-share",
];
/// A change that is refused after the former rule has gone: that may come back at another address.
const TRIAL: Duration = Duration::from_secs(24 * 3600);
const PASSING: [&str; 5] =
    ["InMultipleLoadBalancedIgs", "IN_MULTIPLE_LOAD_BALANCED_IGS", "cannot be found", "in-use", ORGANIZATION_POLICY];

/// Load balancers of a project.
#[derive(Debug)]
pub(crate) struct Balancers {
    env: Env,
    /// `None` for a snapshot.
    cloud: Option<Cloud>,
}

/// The dependencies of reads and writes.
#[derive(Debug)]
struct Cloud {
    client: Client,
    reads: Reads,
    events: Events,
    ongoing: Ongoing,
}

impl Balancers {
    pub(crate) fn new(client: Client, facts: Facts, cluster: Cluster, env: Env) -> Self {
        let reads = Reads::new(client.clone(), facts, cluster.clone());
        let cloud = Cloud { client, reads, events: Events::new(cluster), ongoing: Ongoing::default() };
        Self { env, cloud: Some(cloud) }
    }

    /// For plans from recorded observations only.
    pub(crate) fn without_cloud(env: Env) -> Self {
        Self { env, cloud: None }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    fn cloud(&self) -> Result<&Cloud, ProviderError> {
        self.cloud.as_ref().ok_or_else(|| no_cloud("the cloud"))
    }

    fn writer(&self) -> Result<Writer<'_>, ProviderError> {
        let Cloud { client, reads, events, ongoing } = self.cloud()?;
        Ok(Writer { env: &self.env, client, reads, events, ongoing })
    }
}

impl BalancerCloud for Balancers {
    type Wanted = Wanted;
    type Observed = Observed;
    type Write = Step;
    type Made = Outputs;
    const ANNOTATIONS: &'static [&'static str] = &READ;

    /// One group for each of its kinds, and none of its own: Services with the same groups are processed together, and
    /// their operations run concurrently.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let mut kinds = claim::begun(service);
        kinds.insert(claim::scheme(service));
        let shared = kinds.into_iter().map(|kind| match kind {
            Scheme::External => EXTERNAL,
            Scheme::Internal => INTERNAL,
        });
        shared.map(|name| GroupKey(name.to_owned())).collect()
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        claim::finalizers(&self.env.options, service)
    }

    /// The rule may show that another controller made the load balancer, for which the finalizer is a mark of ours.
    fn adds_finalizers(&self) -> bool {
        true
    }

    fn backend<'n>(&self, _: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        hosts::backend(node).map(Cow::from)
    }

    fn wanted(&self, _: &str, work: &[ServiceWork]) -> (Wanted, Vec<Result<(), ProviderError>>) {
        wanted::wanted(&self.env, work)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], wanted: &Wanted) -> Result<Observed, ProviderError> {
        let cloud = self.cloud()?;
        let mut observed = cloud.reads.observe(&self.env, wanted).await?;
        observed.reserving = cloud.ongoing.reserving();
        // What cannot be read of a single load balancer says nothing about whether it exists.
        match wanted.items.first_key_value().filter(|_| wanted.items.len() == 1) {
            Some((_, item)) if item.action == ServiceAction::Delete => plan::is_read(&self.env, &observed, item)?,
            _ => {}
        }
        Ok(observed)
    }

    fn strip(&self, observed: &mut Observed, _: &Wanted) {
        observed.strip();
    }

    fn plan(&self, observed: &Observed, wanted: &Wanted) -> Result<Plan<Step>, ProviderError> {
        Ok(plan::plan(&self.env, observed, wanted).into())
    }

    fn guard(
        &self,
        observed: &Observed,
        wanted: &Wanted,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        guard::guard(&self.env, observed, wanted, &steps.iter().map(|step| &step.write).collect::<Vec<_>>())
    }

    async fn write(
        &self,
        step: &balancer::Step<Step>,
        outputs: &Outputs,
        _: &ccm_provider::Scope,
    ) -> Result<Written, ProviderError> {
        tracing::info!(step = %step.summary, "writing");
        self.writer()?.apply(&step.write, outputs).await
    }

    async fn poll(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        self.writer()?.poll(operation).await
    }

    async fn completed(&self, step: &balancer::Step<Step>, outputs: &Outputs) -> Result<(), ProviderError> {
        self.writer()?.completed(&step.write, outputs).await
    }

    fn report(&self, work: &[ServiceWork], wanted: &Wanted, findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        for (place, item) in work.iter().enumerate() {
            let own = wanted.items.get(&place).map(|item| &*item.findings).unwrap_or_default();
            cloud.events.report(&item.service, item.action, own, findings);
        }
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let item = reached.wanted.items.get(&reached.place)?;
        let rule = reached.observed.rule(&item.names).filter(|rule| !rule.ip_address.is_empty());
        // Another controller has a rule of the same name. That of the former kind serves until it is replaced.
        let is_any = item.is_by_name() || item.action == ServiceAction::Delete;
        let is_former = |rule: &ForwardingRule| item.begun.contains(&claim::real_scheme(rule));
        let is_ours = |rule: &&ForwardingRule| {
            (is_any || is_former(rule)) && !claim::is_foreign(rule) || claim::is_of_kind(item.scheme, rule)
        };
        let published = &reached.service.status.load_balancer;
        let is_unread = reached.observed.unread(Collection::ForwardingRules, &item.names.balancer).is_some();
        let made = || reached.made.lock().rules.get(&reached.place).cloned().filter(|_| is_unread).map(status);
        // What was published may be the address of a rule that was deleted since.
        let is_of_now =
            || self.cloud.as_ref().is_none_or(|cloud| !cloud.reads.lately.has_written(&item.names.balancer));
        let kept = || Some(published.clone()).filter(|status| is_unread && !status.ingress.is_empty() && is_of_now());
        rule.filter(is_ours).map(|rule| status(rule.ip_address.clone())).or_else(made).or_else(kept)
    }

    fn trial_of(&self, restore: &[Arc<balancer::Step<Step>>]) -> Duration {
        let moves =
            |step: &Arc<balancer::Step<Step>>| matches!(step.write.act, step::Act::RestoreRule { at_any: true, .. });
        if restore.iter().any(moves) { TRIAL } else { Duration::ZERO }
    }

    fn remembers(&self, error: &ProviderError) -> Duration {
        remembered(error)
    }

    /// An instance may come back with its name, be accepted later, or have got another tag. A change that was sent may have
    /// failed.
    fn again(&self, reached: &Reached<'_, Self>) -> Option<Duration> {
        let (item, cloud) = (reached.wanted.items.get(&reached.place)?, self.cloud.as_ref()?);
        let planned = reached.left.steps.iter().filter(|step| step.items.contains(reached.place));
        if let Some(soon) = cloud.ongoing.look_again(&item.names.balancer, planned.map(|step| &step.write)) {
            return Some(soon);
        }
        let tags = cloud.reads.tags_again(&item.names.balancer, item.hosts.known.keys());
        let missing = &cloud.reads.missing;
        let is_out = |host| missing.contains(host) || cloud.ongoing.has_refused(host);
        let lacks = item.hosts.known.keys().any(is_out);
        let is_untagged = |host| matches!(reached.observed.tags.get(host), Some(None));
        let untagged = item.hosts.known.keys().any(is_untagged).then_some(UNTAGGED_AGAIN);
        tags.or(lacks.then_some(MISSING_AGAIN)).or(untagged)
    }

    fn notes(&self, reached: &Reached<'_, Self>) -> Notes {
        if let Some((cloud, error)) =
            self.cloud.as_ref().and_then(|cloud| Some((cloud, cloud.ongoing.unreadable.news()?)))
        {
            cloud.events.missing(reached.service, &error);
        }
        let observed = reached.observed;
        let Some(item) = reached.wanted.items.get(&reached.place) else { return Notes::default() };
        let mut notes = Notes::default();
        let is_news = item.has_mixed_ports || item.says_mixed && item.action == ServiceAction::Ensure;
        if item.owner != Owner::Other && is_news {
            notes.conditions.push(Note {
                kind: wanted::PORTS_ERROR,
                status: item.has_mixed_ports,
                reason: if item.has_mixed_ports { wanted::MIXED_PROTOCOLS } else { "LoadBalancerUniformProtocol" },
                message: match item.has_mixed_ports {
                    true => "LoadBalancer with multiple protocols are not supported".to_owned(),
                    false => "all ports have the same protocol".to_owned(),
                },
            });
        }
        if item.action != ServiceAction::Ensure || item.is_mixed {
            return notes;
        }
        let is_kept = reached.made.lock().kept_firewalls.contains(&reached.place);
        let mut left = reached.steps().filter(|step| !(is_kept && step.write.is_admission()));
        let is_done = left.next().is_none() && !reached.left.failed.contains_key(&reached.place);
        if let Some(cloud) = self.cloud.as_ref().filter(|_| is_done) {
            cloud.reads.settle(item);
        }
        let rule = observed.rule(&item.names).filter(|rule| claim::is_of_kind(item.scheme, rule));
        if let Some(rule) = rule.filter(|_| self.env.options.writes_annotations) {
            let name = |url: &str| Some(last_part(url).to_owned()).filter(|name| !name.is_empty());
            notes.annotations.insert(BACKEND_SERVICE.row.key.to_owned(), name(&rule.backend_service));
            notes.annotations.insert(TARGET_POOL.row.key.to_owned(), name(&rule.target));
        }
        notes
    }
}

fn status(ip: String) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
}

/// For how long a refusal is remembered.
fn remembered(error: &ProviderError) -> Duration {
    let text = error.to_string();
    if PASSING.iter().any(|words| text.contains(words)) { REFUSED_BY_OTHERS } else { REFUSED }
}

impl From<plan::Steps> for Plan<Step> {
    fn from(plan::Steps { steps, findings, failed }: plan::Steps) -> Self {
        fn wrapped(mut step: Step) -> balancer::Step<Step> {
            let restore = std::mem::take(&mut step.restore);
            let (summary, stage, items) = (step.describe(), step.stage(), Items::Some(step.items.clone()));
            let (part, needs) = (step.part.clone(), step.needs);
            let (prepares, releases, is_shared) = (step.rank == Rank::Reserve, step.releases, step.is_shared);
            let step = balancer::Step::new(step, summary, items, part).needs(needs).stage(stage);
            let step = step.prepares(prepares).releases(releases).shared(is_shared);
            restore.into_iter().map(wrapped).fold(step, balancer::Step::restore)
        }
        Self { steps: steps.into_iter().map(wrapped).collect(), findings, failed }
    }
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Failure;

    use super::*;
    use crate::client::ApiError;
    use crate::client::operation::BACKEND_SERVICE_CREATE;

    /// The Service does not change when an instance leaves another group, or a policy has an exception.
    #[test]
    fn a_refusal_that_a_change_elsewhere_ends_is_remembered_for_minutes() {
        let minutes = |status: u16, code: &str, message: &str| {
            let (code, message) = (code.to_owned(), message.to_owned());
            let failure = Failure { status: Some(status), code, message, ..Failure::default() };
            let error = ApiError::new(BACKEND_SERVICE_CREATE, failure);
            remembered(&error.into()).as_secs() / 60
        };
        for (status, code, message, expected) in [
            (400, "instanceInMultipleLoadBalancedIgs", "Validation failed for instance 'x'", 5),
            (400, "INSTANCE_IN_MULTIPLE_LOAD_BALANCED_IGS", "Validation failed for instance 'x'", 5),
            (400, "invalid", "Invalid value: The referenced network resource cannot be found.", 5),
            (400, "invalid", "Specified IP address is in-use and would result in a conflict.", 5),
            (412, ORGANIZATION_POLICY, "Constraint constraints/compute.x violated for project p.", 5),
            (400, "invalid", "Invalid value for field 'resource.name'", 60),
        ] {
            assert_eq!(minutes(status, code, message), expected, "{message}");
        }
    }
}
