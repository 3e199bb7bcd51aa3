//! Octavia load balancers for Services.
//!
//! Upstream: `pkg/openstack/loadbalancer*.go`. The desired state is derived from the Service ([`desired`], pure), the
//! cloud is read ([`observe`]), the writes are planned ([`plan`], pure), checked ([`guard`]) and sent one by one
//! ([`apply`]). A balancer takes one change at a time, about a second each: [`ccm_kit::Background`] frees the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::inspect::replay::no_cloud;
use ccm_kit::{Cluster, lock};
use ccm_provider::{
    EventType, Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, Notes, Planned, ProviderError,
    Service, ServiceAction, ServiceWork, Severity, Steps, Subject,
};

use crate::annotations::{LB_METHOD, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use crate::client::Client;
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
use tokio::time::Instant;

/// The annotation that records the last match of the balancer; see [`applied`].
pub(crate) const APPLIED: &str = "cloud-controller-manager/openstack-applied";
/// The maximum age of an observation that a deletion reuses.
const LOOKED: Duration = Duration::from_secs(1);
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
    /// The last emitted events by Service: none is repeated.
    reported: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
    /// Observations for imminent deletions, by balancer name; each is used once.
    looked: Mutex<BTreeMap<String, (Instant, Observed)>>,
}

impl Balancers {
    pub(crate) fn new(client: Client, ports: NodePorts, cluster: Cluster, env: Env, wait_steps: Option<u32>) -> Self {
        let cloud = Cloud {
            reads: Reads::new(client.clone(), ports),
            writer: Writer::new(client, wait_steps, Settling::new(cluster.clone())),
            cluster,
            reported: Mutex::default(),
            looked: Mutex::default(),
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

impl Planned for Balancers {
    type Desired = Desired;
    type Observed = Observed;
    type Step = Step;
    type Outputs = Outputs;

    /// The keys of the Service and of the balancer that it has or shares.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let shared = service.metadata.annotations.get(LOAD_BALANCER_ID.row.key).filter(|id| !id.is_empty());
        let own = GroupKey(service.key().to_string());
        std::iter::once(own).chain(shared.map(|id| GroupKey(format!("load balancer {id}")))).collect()
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<std::borrow::Cow<'n, str>> {
        desired::backend_of(&self.env.config, service, node).map(Into::into)
    }

    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Desired, Vec<Result<(), ProviderError>>) {
        desired::desired(&self.env, cluster, work)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], desired: &Desired) -> Result<Observed, ProviderError> {
        let cloud = self.cloud()?;
        let mut items = desired.items.values();
        let deleted = match (items.next(), items.next()) {
            (Some(item), None) if item.action == ServiceAction::Delete => Some(&item.name),
            _ => None,
        };
        // The core checks whether there is anything to delete, and deletes right after.
        if let Some((at, observed)) = deleted.and_then(|name| lock(&cloud.looked).remove(name))
            && at.elapsed() < LOOKED
        {
            return Ok(observed);
        }
        let mut observed = cloud.reads.observe(desired).await?;
        cloud.writer.settling.mark(&mut observed, desired);
        if let Some(name) = deleted {
            let mut looked = lock(&cloud.looked);
            looked.retain(|_, (at, _)| at.elapsed() < LOOKED);
            looked.insert(name.clone(), (Instant::now(), observed.clone()));
        }
        Ok(observed)
    }

    fn strip(&self, observed: &mut Observed, desired: &Desired) {
        redact::redact(desired, observed);
    }

    fn plan(&self, observed: &Observed, desired: &Desired) -> Result<Steps<Step>, ProviderError> {
        let mut planned = plan::plan(&self.env, observed, desired);
        for place in &observed.unsettled {
            if !planned.failed.contains_key(place) && planned.steps.iter().all(|step| step.item != *place) {
                planned.failed.insert(*place, settling::not_shown());
            }
        }
        Ok(planned)
    }

    fn item(&self, step: &Step) -> Option<usize> {
        Some(step.item)
    }

    fn guard(&self, observed: &Observed, desired: &Desired, steps: &[Step]) -> Result<(), ProviderError> {
        guard::guard(observed, desired, steps)
    }

    fn step_deadline(&self) -> Duration {
        STEP_DEADLINE
    }

    async fn apply(&self, step: &Step, outputs: &Outputs) -> Result<(), ProviderError> {
        tracing::info!(step = %step.describe(), "writing");
        let cloud = self.cloud()?;
        lock(&cloud.looked).clear();
        let done = cloud.writer.apply(step, outputs, &|subject, message| cloud.refused(subject, message)).await;
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
        done
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

    fn describe(&self, step: &Step) -> ccm_provider::Step {
        step.describe()
    }

    fn status(&self, observed: &Observed, desired: &Desired, service: &Service) -> Option<LoadBalancerStatus> {
        let (place, item) = desired.item_of(service)?;
        // After a change of the address, reads may still show the previous one.
        let planned = || plan::plan(&self.env, observed, &desired.only(place, item));
        let is_late = item.action == ServiceAction::Ensure
            && (observed.hidden.contains(&place) || planned().steps.iter().any(Step::changes_address));
        let Some(address) = address(observed, place).filter(|_| !is_late) else {
            // A deletion has work left if anything would be deleted.
            let is_left = item.action == ServiceAction::Delete && {
                let only = desired.only(place, item);
                let planned = plan::plan(&self.env, observed, &only);
                !planned.steps.is_empty() || !planned.failed.is_empty()
            };
            return is_left.then(LoadBalancerStatus::default);
        };
        let ingress = match &item.settings {
            None => LoadBalancerIngress { ip: address, ..LoadBalancerIngress::default() },
            Some(settings) => settings.publish.ingress(address, settings.proxy_protocol.is_some()),
        };
        Some(LoadBalancerStatus { ingress: vec![ingress] })
    }

    fn notes(&self, observed: &Observed, outputs: &Outputs, desired: &Desired, service: &Service) -> Notes {
        let Some((place, item)) = desired.item_of(service) else { return Notes::default() };
        let mut notes = Notes::default();
        self.settle(observed, outputs, (place, item), desired);
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
                let only = desired.only(place, item);
                let planned = plan::plan(&self.env, observed, &only);
                if action == ServiceAction::Ensure
                    && planned.failed.is_empty()
                    && let Some(address) = address(observed, place)
                {
                    note(LOAD_BALANCER_ADDRESS.row.key, Some(address));
                }
                let is_done = match action {
                    ServiceAction::UpdateHosts => {
                        (planned.steps.is_empty() || made.balancers.contains_key(&lb.id))
                            && plan::only_hosts_differ(&self.env, observed, place, item)
                    }
                    _ => planned.steps.is_empty(),
                };
                let is_done = is_done && planned.failed.is_empty();
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
    fn settle(
        &self,
        observed: &Observed,
        outputs: &Outputs,
        (place, item): (usize, &desired::Item),
        desired: &Desired,
    ) {
        let Some(cloud) = self.cloud.as_ref().filter(|_| outputs.lock().owners.contains(&item.name)) else { return };
        let is_seen = match item.action {
            ServiceAction::Ensure => {
                let planned = plan::plan(&self.env, observed, &desired.only(place, item));
                planned.steps.is_empty() && planned.failed.is_empty()
            }
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

impl Desired {
    fn only(&self, place: usize, item: &desired::Item) -> Self {
        Self { items: [(place, item.clone())].into(), ..*self }
    }

    fn item_of(&self, service: &Service) -> Option<(usize, &desired::Item)> {
        let key = service.key().to_string();
        self.items.iter().find(|(_, item)| item.key == key).map(|(place, item)| (*place, item))
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
