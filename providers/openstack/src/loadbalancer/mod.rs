//! Octavia load balancers for Services.
//!
//! Upstream: `pkg/openstack/loadbalancer*.go`. The desired state is derived from the Service ([`desired`], pure), the
//! cloud is read ([`observe`]), the writes are planned ([`plan`], pure), checked ([`guard`]) and sent one by one
//! ([`apply`]). A balancer takes one change at a time, about a second each; the waits for it occupy no worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::balancer::{self, BalancerCloud, Items, Kind, Part, Plan, Reached, Written};
use ccm_kit::inspect::replay::no_cloud;
use ccm_kit::{Cluster, lock};
use ccm_provider::{
    EventType, Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, Notes, ProviderError, Scope, Service,
    ServiceAction, ServiceWork, Severity, Subject,
};

use crate::annotations::{LB_METHOD, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use crate::client::Client;
use crate::client::metrics::Metrics;
use crate::node::identity::Identity;
use crate::node::ports::NodePorts;
use crate::start::config::{Config, OVN};

mod applied;
mod apply;
mod batched;
mod certificates;
pub(crate) mod desired;
mod guard;
pub(crate) mod names;
mod observe;
pub(crate) mod observed;
mod pace;
mod parts;
pub(crate) mod pattern;
pub(crate) mod plan;
mod redact;
pub(crate) mod selector;
mod settling;
mod step;

use apply::Writer;
use desired::Desired;
use observe::Reads;
use observed::Observed;
use settling::{Settling, Trace};
use step::{Outputs, Step, Write};

/// The annotation that records the last match of the balancer; see [`applied`].
pub(crate) const APPLIED: &str = "cloud-controller-manager/openstack-applied";
/// The deadline of a step: the polls of [`apply`] and the call itself.
const STEP_DEADLINE: Duration = Duration::from_secs(1200);

/// The inputs of plans besides the observation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Env {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
}

impl Env {
    /// Whether Octavia's driver is `ovn`, which has the fewest features.
    pub(crate) fn is_ovn(&self) -> bool {
        self.config.load_balancer.lb_provider == OVN
    }
}

/// The reason of events about the configuration of a Service.
const CONFIGURATION: &str = "LoadBalancerConfiguration";

/// The load balancers of a project.
#[derive(Debug)]
pub(crate) struct Balancers {
    env: Env,
    /// `None` for a snapshot.
    cloud: Option<Cloud>,
}

/// The access for reads and writes.
#[derive(Debug)]
struct Cloud {
    reads: Reads,
    writer: Writer,
    cluster: Cluster,
    metrics: Metrics,
    /// The last emitted events by Service: none is repeated.
    reported: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
}

impl Balancers {
    pub(crate) fn new(
        client: Client,
        ports: NodePorts,
        cluster: Cluster,
        env: Env,
        wait_steps: Option<u32>,
        metrics: Metrics,
    ) -> Self {
        let cloud = Cloud {
            reads: Reads::new(client.clone(), ports),
            writer: Writer::new(client, wait_steps, Settling::new(cluster.clone())),
            cluster,
            metrics,
            reported: Mutex::default(),
        };
        Self { env, cloud: Some(cloud) }
    }

    /// Creates plans from recorded observations only.
    pub(crate) fn without_cloud(env: Env) -> Self {
        Self { env, cloud: None }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    fn cloud(&self) -> Result<&Cloud, ProviderError> {
        self.cloud.as_ref().ok_or_else(|| no_cloud("OpenStack"))
    }
}

impl Cloud {
    /// Reports that Octavia refused an optional change.
    fn refused(&self, subject: &Subject, message: &str) {
        if let Some(context) = self.cluster.context() {
            let fix = format!("correct the annotation {}, or lb-method in cloud.conf", LB_METHOD.row.key);
            let message = format!("Error updating LB method for LoadBalancer: {message}; {fix}");
            context.events.event(subject, EventType::Warning, "LoadBalancerLbMethodUnknown", &message);
        }
    }

    /// Emits findings that were not emitted for this Service yet.
    fn report(&self, service: &Service, findings: &[&Finding]) {
        let Some(context) = self.cluster.context() else { return };
        let key = service.key().to_string();
        let event = |finding: &&Finding| {
            let is_reason = finding.key.starts_with("LoadBalancer") && !finding.key.contains(['.', '/']);
            let is_annotation = finding.value.as_ref().is_some_and(|value| *value != key);
            match (is_reason, is_annotation) {
                (true, _) => (finding.key.clone(), finding.message.clone()),
                (false, true) => (CONFIGURATION.to_owned(), finding.to_string()),
                (false, false) => (CONFIGURATION.to_owned(), format!("{}: {}", finding.key, finding.message)),
            }
        };
        let now: BTreeSet<(String, String)> = findings.iter().map(event).collect();
        let mut reported = lock(&self.reported);
        let before = reported.remove(&key).unwrap_or_default();
        for (reason, message) in now.difference(&before) {
            context.events.event(&Subject::service(service), EventType::Warning, reason, message);
        }
        if !now.is_empty() {
            reported.insert(key, now);
        }
    }
}

impl BalancerCloud for Balancers {
    type Wanted = Desired;
    type Observed = Observed;
    type Write = Step;
    type Made = Outputs;

    /// The keys of the Service and of the balancer that it has or shares.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let shared = service.metadata.annotations.get(LOAD_BALANCER_ID.row.key).filter(|id| !id.is_empty());
        let own = GroupKey(service.key().to_string());
        std::iter::once(own).chain(shared.map(|id| GroupKey(format!("load balancer {id}")))).collect()
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<std::borrow::Cow<'n, str>> {
        desired::backend_of(&self.env.config, service, node).map(Into::into)
    }

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Desired, Vec<Result<(), ProviderError>>) {
        desired::desired(&self.env, cluster, work)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], desired: &Desired) -> Result<Observed, ProviderError> {
        let cloud = self.cloud()?;
        let mut observed = cloud.reads.observe(desired).await?;
        cloud.writer.settling.mark(&mut observed, desired);
        Ok(observed)
    }

    fn strip(&self, observed: &mut Observed, desired: &Desired) {
        redact::redact(desired, observed);
    }

    fn plan(&self, observed: &Observed, desired: &Desired) -> Result<Plan<Step>, ProviderError> {
        let mut planned = plan::plan(&self.env, observed, desired);
        for place in &observed.unsettled {
            if !planned.failed.contains_key(place) && planned.steps.iter().all(|step| step.item != *place) {
                planned.failed.insert(*place, settling::not_shown());
            }
        }
        Ok(planned.into())
    }

    fn guard(
        &self,
        observed: &Observed,
        desired: &Desired,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        let writes: Vec<Step> = steps.iter().map(|step| step.write.clone()).collect();
        let refused = guard::guard(observed, desired, &writes).err().into_iter();
        refused.flat_map(|error| (0..steps.len()).map(move |index| (index, error.clone()))).collect()
    }

    fn write_deadline(&self) -> Duration {
        STEP_DEADLINE
    }

    async fn write(&self, step: &balancer::Step<Step>, outputs: &Outputs, _: &Scope) -> Result<Written, ProviderError> {
        let step = &step.write;
        tracing::info!(step = %step.describe(), "writing");
        let cloud = self.cloud()?;
        let refused = |subject: &Subject, message: &str| cloud.refused(subject, message);
        let done = cloud.writer.apply(step, outputs, &refused).await;
        match &step.write {
            Write::CreateBalancer { name, .. } if done.is_ok() => {
                if let Some(id) = outputs.lock().ids.get(&plan::create::balancer_id(name)) {
                    cloud.reads.made(name, id);
                }
            }
            Write::DeleteBalancer { id: gone, .. } => cloud.reads.parts.forget(gone),
            Write::Octavia { balancer, .. } if done.is_err() => cloud.reads.parts.forget(balancer),
            _ => {}
        }
        done.map(|()| Written::Done)
    }

    fn report(&self, work: &[ServiceWork], findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        for item in work {
            let (key, annotations) = (item.service.key().to_string(), &item.service.metadata.annotations);
            // The value is the key of the Service, or its annotation's value.
            let is_for = |finding: &&Finding| {
                finding.severity >= Severity::Warning
                    && finding
                        .value
                        .as_ref()
                        .is_none_or(|value| *value == key || annotations.get(&finding.key) == Some(value))
            };
            cloud.report(&item.service, &findings.iter().filter(is_for).collect::<Vec<_>>());
        }
    }

    fn ended(&self, action: ServiceAction, succeeded: bool, took: Duration) {
        let operation = match action {
            ServiceAction::Ensure => "loadbalancer_ensure",
            ServiceAction::UpdateHosts => "loadbalancer_update",
            ServiceAction::Delete => "loadbalancer_delete",
        };
        if let Some(cloud) = &self.cloud {
            cloud.metrics.reconciled(operation, succeeded, took);
        }
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let (observed, place) = (reached.observed, reached.place);
        let item = reached.wanted.items.get(&place)?;
        // After a change of the address, reads may still show the previous one.
        let is_late = item.action == ServiceAction::Ensure
            && (observed.hidden.contains(&place) || reached.steps().any(|step| step.write.changes_address()));
        let Some(address) = address(observed, place).filter(|_| !is_late) else {
            // A deletion has work left if anything would be deleted.
            let is_left = item.action == ServiceAction::Delete && reached.remains();
            return is_left.then(LoadBalancerStatus::default);
        };
        let ingress = match &item.settings {
            None => LoadBalancerIngress { ip: address, ..LoadBalancerIngress::default() },
            Some(settings) => settings.publish.ingress(address, settings.proxy_protocol.is_some()),
        };
        Some(LoadBalancerStatus { ingress: vec![ingress] })
    }

    fn notes(&self, reached: &Reached<'_, Self>) -> Notes {
        let (observed, outputs, place) = (reached.observed, reached.made, reached.place);
        let Some(item) = reached.wanted.items.get(&place) else { return Notes::default() };
        let mut notes = Notes::default();
        self.settle(reached, item);
        let mut note = |key: &str, value: Option<String>| drop(notes.annotations.insert(key.to_owned(), value));
        let made = outputs.lock();
        let lb = observed.balancer(place).map(|balancer| &balancer.lb);
        let lb = lb.and_then(|lb| {
            // An update of members ends by reading only the balancer.
            let seen = made.balancers.get(&lb.id).filter(|_| item.action == ServiceAction::UpdateHosts);
            seen.or(Some(lb))
        });
        let of_this_run = made.ids.get(&plan::create::balancer_id(&item.name)).and_then(|id| made.balancers.get(id));
        match (item.action, lb.or(of_this_run)) {
            (ServiceAction::Delete, _) => {
                for key in [LOAD_BALANCER_ID.row.key, LOAD_BALANCER_ADDRESS.row.key, APPLIED] {
                    note(key, None);
                }
            }
            (_, None) => {}
            (action, Some(lb)) => {
                note(LOAD_BALANCER_ID.row.key, Some(lb.id.clone()));
                // A balancer matches only if it has no work left.
                let is_possible = !reached.left.failed.contains_key(&place);
                if action == ServiceAction::Ensure
                    && is_possible
                    && let Some(address) = address(observed, place)
                {
                    note(LOAD_BALANCER_ADDRESS.row.key, Some(address));
                }
                let is_done = match action {
                    ServiceAction::UpdateHosts => {
                        (reached.steps().next().is_none() || made.balancers.contains_key(&lb.id))
                            && plan::only_hosts_differ(&self.env, observed, place, item)
                    }
                    _ => reached.steps().next().is_none(),
                };
                let is_done = is_done && is_possible;
                if let (true, Some(cloud), Some(balancer)) = (is_done, &self.cloud, observed.balancer(place)) {
                    cloud.reads.parts.keep(lb, balancer);
                }
                note(APPLIED, applied::note(item, lb, observed.version).filter(|_| is_done));
            }
        }
        notes
    }
}

impl Balancers {
    /// Checks after writes whether reads show them. An update of members ends by reading only the balancer.
    fn settle(&self, reached: &Reached<'_, Self>, item: &desired::Item) {
        let is_own = |_: &&Cloud| reached.made.lock().owners.contains(&item.name);
        let Some(cloud) = self.cloud.as_ref().filter(is_own) else { return };
        let is_seen = match item.action {
            ServiceAction::Ensure => !reached.remains(),
            ServiceAction::UpdateHosts | ServiceAction::Delete => true,
        };
        if is_seen {
            cloud.writer.settling.forget(&Trace::Any(item.name.clone()));
        }
    }
}

/// The address for clients: the floating IP, else that of the balancer.
fn address(observed: &Observed, place: usize) -> Option<String> {
    let lb = &observed.balancer(place)?.lb;
    let floating = observed.floating_ip_of(place).map(|ip| ip.floating_ip_address.clone());
    Some(floating.unwrap_or_else(|| lb.vip_address.clone())).filter(|address| !address.is_empty())
}

impl From<plan::Steps> for Plan<Step> {
    fn from(plan::Steps { steps, findings, failed }: plan::Steps) -> Self {
        let wrapped = |step: Step| {
            let (summary, items) = (step.describe(), Items::one(step.item));
            balancer::Step::new(step, summary, items, Part::new(Kind::Frame))
        };
        Self { steps: steps.into_iter().map(wrapped).collect(), findings, failed }
    }
}

impl desired::Publish {
    fn ingress(&self, address: String, is_proxied: bool) -> LoadBalancerIngress {
        if !self.hostname.is_empty() {
            return LoadBalancerIngress { hostname: self.hostname.clone(), ..LoadBalancerIngress::default() };
        }
        if let Some(suffix) = &self.suffix {
            return LoadBalancerIngress { hostname: format!("{address}.{suffix}"), ..LoadBalancerIngress::default() };
        }
        let mode = if is_proxied { "Proxy" } else { "VIP" };
        LoadBalancerIngress { ip: address, ip_mode: Some(mode.to_owned()), ..LoadBalancerIngress::default() }
    }
}
