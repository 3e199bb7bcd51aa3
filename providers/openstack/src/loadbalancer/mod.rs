//! Octavia load balancers for Services.
//!
//! Upstream: `pkg/openstack/loadbalancer*.go`. The desired state is derived from the Service ([`wanted`], pure), the
//! cloud is read ([`observe`]), the writes are planned ([`plan`], pure), checked ([`guard`]) and sent one by one
//! ([`write`]). A balancer takes one change at a time, about a second each; the waits for it occupy no worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::{BalancerCloud, Kind, Plan, Reached, Written};
use ccm_kit::inspect::replay::no_cloud;
use ccm_provider::{
    EventType, Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, NodeReader, NodeRef, Notes,
    ProviderError, Scope, Service, ServiceAction, ServiceWork, Severity, Subject,
};
use parking_lot::Mutex;

use crate::annotations::{APPLIED, LB_METHOD, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID, NODE_SELECTOR};
use crate::client::Client;
use crate::client::metrics::Metrics;
use crate::client::octavia::{ERROR, LoadBalancer, PENDING_CREATE};
use crate::node::identity::Identity;
use crate::node::ports::NodePorts;

mod applied;
mod batched;
mod certificates;
pub(crate) mod claim;
pub(crate) mod env;
mod guard;
pub(crate) mod names;
mod observe;
pub(crate) mod observed;
mod pace;
mod parts;
pub(crate) mod plan;
mod redact;
pub(crate) mod selector;
mod settings;
mod settling;
mod step;
pub(crate) mod wanted;
mod write;

use claim::{Claim, Evidence, claim};
use env::Env;
use observe::Reads;
use observed::Observed;
use settling::{Settling, Trace};
use step::{Order, Outputs, Step, Write};
use wanted::{Item, Target, Wanted};
use write::Writer;

/// An event about a state that lasts is repeated after this time.
const REPEATED: Duration = Duration::from_secs(3600);
/// A refused write is sent again after this time: each refused creation leaves a port in Neutron.
const REFUSED: Duration = Duration::from_secs(3600);
/// The same for a refusal that a change of something else ends: of rights, of an external network, of Octavia's options,
/// of nodes.
const REFUSED_BY_OTHERS: Duration = Duration::from_secs(300);
const PASSING: [&str; 4] = [
    "Could not retrieve certificate",
    "is not a valid external network",
    "is not enabled",
    "not allowed in this deployment",
];
/// How Octavia refuses an object for its quota, that of balancers included.
const QUOTA_OF_PARTS: &str = "Quota has been met for resources: ";
const QUOTA_OF_BALANCERS: &str = "Quota has been met for resources: Load Balancer";
/// How Octavia refuses a second listener or member of the same port.
const PART_TAKEN: &str = "is already using";
/// The deadline of a step: the polls of [`write`] and the call itself.
const STEP_DEADLINE: Duration = Duration::from_secs(1200);

/// The reason of events about the configuration of a Service.
const CONFIGURATION: &str = "LoadBalancerConfiguration";

/// The load balancers of a project.
#[derive(Debug)]
pub(crate) struct Balancers {
    env: Env,
    /// `None` for a snapshot.
    cloud: Option<Cloud>,
}

/// Reason and message of an event.
type Event = (String, String);

/// The access for reads and writes.
#[derive(Debug)]
struct Cloud {
    reads: Reads,
    writer: Writer,
    cluster: Cluster,
    metrics: Metrics,
    /// The last emitted events by Service, with their time: only [`plan::NOT_ACTIVE`] is repeated.
    reported: Mutex<BTreeMap<String, BTreeMap<Event, std::time::Instant>>>,
    /// Since when balancers are busy with changes, by ID.
    busy: Mutex<BTreeMap<String, std::time::Instant>>,
    /// The Services whose last ensure met an exhausted quota.
    short: Mutex<BTreeSet<String>>,
    /// The names of the balancers of Services whose deletion has failed so far. A lookup observes as for a deletion, so it
    /// does not show that there is one.
    leaving: Mutex<BTreeSet<String>>,
    /// Records of matching balancers that are not on their Services yet; see [`applied`].
    records: Mutex<BTreeMap<String, String>>,
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
            busy: Mutex::default(),
            short: Mutex::default(),
            leaving: Mutex::default(),
            records: Mutex::default(),
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

    /// What a balancer is to a Service that does not exist any more, and what its members show.
    pub(crate) async fn claim_of(
        &self,
        cluster: &str,
        former: &Service,
        lb: &LoadBalancer,
        nodes: &[NodeRef],
    ) -> Result<(Claim, Evidence), ProviderError> {
        let work = [ServiceWork::new(former, &[], ServiceAction::Delete)];
        let wanted = wanted::wanted(&self.env, cluster, &work, &Vec::new).0;
        let reads = &self.cloud()?.reads;
        let balancer = reads.whole(lb).await?;
        let item = wanted.items.get(&0).ok_or_else(|| ProviderError::bug("a deletion is refused"))?;
        let evidence = reads.evidence(item, &balancer, &wanted::everywhere(nodes, &self.env.identity)).await?;
        let observed = Observed {
            balancer_of: [(0, lb.id.clone())].into(),
            balancers: [(lb.id.clone(), balancer)].into(),
            evidence: [(0, evidence)].into(),
            ..Observed::default()
        };
        Ok((claim(&observed, 0, item), evidence))
    }

    fn cloud(&self) -> Result<&Cloud, ProviderError> {
        self.cloud.as_ref().ok_or_else(|| no_cloud("OpenStack"))
    }
}

impl Cloud {
    /// Adds since when balancers are busy.
    fn mark_busy(&self, observed: &mut Observed) {
        let (now, mut busy) = (self.cluster.now(), self.busy.lock());
        for (place, id) in &observed.balancer_of {
            let is_busy = observed.balancers.get(id).is_some_and(|balancer| !balancer.lb.is_changeable());
            if !is_busy {
                busy.remove(id);
                continue;
            }
            let since = *busy.entry(id.clone()).or_insert(now);
            observed.busy_for.insert(*place, now.saturating_duration_since(since).as_secs());
        }
    }

    /// The cluster's nodes.
    fn nodes(&self) -> Vec<NodeRef> {
        self.cluster.nodes().map(NodeReader::list).unwrap_or_default()
    }

    /// The addresses of the cluster's nodes.
    fn node_addresses(&self, work: &[ServiceWork], identity: &Identity) -> Vec<Target> {
        let mut nodes: BTreeMap<String, NodeRef> = BTreeMap::new();
        let of_work = work.iter().flat_map(|item| item.nodes.iter().cloned());
        nodes.extend(of_work.chain(self.nodes()).map(|node| (node.name.to_string(), node)));
        wanted::everywhere(&nodes.into_values().collect::<Vec<_>>(), identity)
    }

    /// Emits findings that were not emitted for this Service yet.
    fn report(&self, item: &ServiceWork, findings: &[&Finding]) {
        let Some(context) = self.cluster.context() else { return };
        let service = &item.service;
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
        let events: BTreeSet<Event> = findings.iter().map(event).collect();
        let (now, mut reported) = (self.cluster.now(), self.reported.lock());
        let before = reported.remove(&key).unwrap_or_default();
        // An update of members does not look at the rest.
        let mut emitted = match item.action {
            ServiceAction::UpdateHosts => before.clone(),
            ServiceAction::Ensure | ServiceAction::Delete => BTreeMap::new(),
        };
        for event in events {
            let is_repeated = event.0 == plan::NOT_ACTIVE;
            let is_recent = |at: &&std::time::Instant| !is_repeated || now.saturating_duration_since(**at) < REPEATED;
            let at = before.get(&event).filter(is_recent).copied();
            if at.is_none() {
                context.events.event(&Subject::service(service), EventType::Warning, &event.0, &event.1);
            }
            emitted.insert(event, at.unwrap_or(now));
        }
        if !emitted.is_empty() {
            reported.insert(key, emitted);
        }
    }
}

impl BalancerCloud for Balancers {
    type Wanted = Wanted;
    type Observed = Observed;
    type Write = Order;
    type Made = Outputs;
    const ANNOTATIONS: &'static [&'static str] = &["service.beta.kubernetes.io/", crate::annotations::PREFIX];

    /// The keys of the Service and of the balancer that it has or shares.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let shared = service.metadata.annotations.get(LOAD_BALANCER_ID.row.key).map(|id| id.trim());
        let shared = shared.filter(|id| !id.is_empty());
        let own = GroupKey(service.key().to_string());
        std::iter::once(own).chain(shared.map(|id| GroupKey(format!("load balancer {id}")))).collect()
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<std::borrow::Cow<'n, str>> {
        wanted::backend_of(&self.env.config, service, node).map(Into::into)
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        let mut service = service.clone();
        // The annotation replaces the selector of the configuration.
        service.metadata.annotations.insert(NODE_SELECTOR.row.key.into(), String::new());
        Some(service)
    }

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Wanted, Vec<Result<(), ProviderError>>) {
        let nodes = || self.cloud.as_ref().map(Cloud::nodes).unwrap_or_default();
        let (mut wanted, verdicts) = wanted::wanted(&self.env, cluster, work, &nodes);
        let records = self.cloud.as_ref().map(|cloud| cloud.records.lock());
        for item in wanted.items.values_mut() {
            // A user who removes the record wants everything to be read.
            if let Some(record) =
                records.as_ref().and_then(|records| records.get(&item.key)).filter(|_| item.applied.is_some())
            {
                item.applied = Some(record.clone());
            }
        }
        (wanted, verdicts)
    }

    async fn observe(&self, cluster: &str, work: &[ServiceWork], wanted: &Wanted) -> Result<Observed, ProviderError> {
        let cloud = self.cloud()?;
        let mut observed = cloud.reads.observe(wanted, || cloud.node_addresses(work, &self.env.identity)).await;
        // A deletion keeps nothing that it did not read.
        let is_for_nothing = |(place, item): (&usize, &Item)| {
            item.action == ServiceAction::Delete && observed.unread.contains_key(place)
        };
        if wanted.items.iter().all(is_for_nothing)
            && let Some(error) = observed.unread.values().next()
        {
            return Err(error.clone());
        }
        cloud.mark_busy(&mut observed);
        observed.leaving = {
            let mut leaving = cloud.leaving.lock();
            for item in work.iter().filter(|item| item.action != ServiceAction::Delete) {
                leaving.remove(&names::balancer(cluster, &item.service));
            }
            leaving.clone()
        };
        let is_short = |item: &Item| cloud.short.lock().contains(&item.key);
        observed.short = wanted.items.iter().filter(|(_, item)| is_short(item)).map(|(place, _)| *place).collect();
        cloud.writer.settling.mark(&mut observed, wanted);
        Ok(observed)
    }

    fn strip(&self, observed: &mut Observed, wanted: &Wanted) {
        redact::redact(wanted, observed);
    }

    fn plan(&self, observed: &Observed, wanted: &Wanted) -> Result<Plan<Order>, ProviderError> {
        let mut planned = plan::plan(&self.env, observed, wanted);
        for place in &observed.unsettled {
            if !planned.failed.contains_key(place) && planned.steps.iter().all(|step| step.write.place != *place) {
                planned.failed.insert(*place, settling::not_shown());
            }
        }
        Ok(planned)
    }

    fn guard(&self, observed: &Observed, wanted: &Wanted, steps: &[Step]) -> Vec<(usize, ProviderError)> {
        guard::guard(observed, wanted, steps)
    }

    fn write_deadline(&self) -> Duration {
        STEP_DEADLINE
    }

    async fn write(&self, step: &Step, outputs: &Outputs, scope: &Scope) -> Result<Written, ProviderError> {
        tracing::info!(step = %step.summary, "writing");
        let cloud = self.cloud()?;
        let order = &step.write;
        if let Some(error) = outputs.exhausted(step) {
            return Err(error);
        }
        let written = cloud.writer.apply(order, outputs, scope).await;
        let is_done = matches!(written, Ok(Written::Done | Written::Accepted(_)));
        match &order.write {
            Write::CreateBalancer { name, .. } if is_done => {
                if let Some(id) = outputs.lock().ids.get(&plan::create::balancer_id(name)) {
                    cloud.reads.made(name, id);
                }
            }
            Write::DeleteBalancer { id: gone, .. } => cloud.reads.gone(gone),
            Write::Octavia { balancer, .. } if !is_done => cloud.reads.parts.forget(balancer),
            _ => {}
        }
        match &written {
            Err(error) | Ok(Written::Failed(error)) => outputs.note_failure(step, error),
            Ok(_) => outputs.note_success(step),
        }
        written
    }

    fn report(&self, work: &[ServiceWork], wanted: &Wanted, findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        for (place, item) in work.iter().enumerate() {
            let key = item.service.key().to_string();
            let own = wanted.items.get(&place).map(|item| &*item.findings).unwrap_or_default();
            // The value is the key of the Service, or that of an annotation.
            let is_for = |finding: &&Finding| {
                finding.severity >= Severity::Warning && (finding.value.as_ref() == Some(&key) || own.contains(finding))
            };
            cloud.report(item, &findings.iter().filter(is_for).collect::<Vec<_>>());
        }
    }

    /// The only optional step is that of the algorithm of a pool.
    fn report_refusal(&self, work: &[ServiceWork], _: &Step, error: &ProviderError) {
        let Some(context) = self.cloud.as_ref().and_then(|cloud| cloud.cluster.context()) else { return };
        let fix = format!("correct the annotation {}, or lb-method in cloud.conf", LB_METHOD.row.key);
        let message = format!("Error updating LB method for LoadBalancer: {error}; {fix}");
        for item in work {
            let subject = Subject::service(&item.service);
            context.events.event(&subject, EventType::Warning, "LoadBalancerLbMethodUnknown", &message);
        }
    }

    fn former(&self) -> Option<Duration> {
        self.cloud.as_ref()?.writer.settling.former()
    }

    /// Octavia makes the port of a new balancer before it looks at the parts, and leaves it.
    fn leaves_something(&self, step: &Step, error: &ProviderError) -> bool {
        let text = error.to_string();
        let is_of_part =
            text.contains(QUOTA_OF_PARTS) && !text.contains(QUOTA_OF_BALANCERS) || text.contains(PART_TAKEN);
        is_of_part && matches!(step.write.write, Write::CreateBalancer { .. })
    }

    fn remembers(&self, error: &ProviderError) -> Duration {
        let text = error.to_string();
        if PASSING.iter().any(|words| text.contains(words)) { REFUSED_BY_OTHERS } else { REFUSED }
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

    /// `None`: what is published stays.
    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let (observed, place) = (reached.observed, reached.place);
        let item = reached.wanted.items.get(&place)?;
        let is_known = match item.action {
            // No floating IP was read.
            ServiceAction::UpdateHosts => false,
            ServiceAction::Ensure => is_address_known(reached, item),
            ServiceAction::Delete => true,
        };
        let is_user = claim(observed, place, item).is_user();
        let address = address(observed, place, item).filter(|_| is_user && is_known)?;
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
        if let Some(cloud) = self.cloud.as_ref().filter(|_| item.action != ServiceAction::UpdateHosts) {
            let mut short = cloud.short.lock();
            match outputs.is_short(place) {
                true => drop(short.insert(item.key.clone())),
                false => drop(short.remove(&item.key)),
            }
        }
        let mut note = |key: &str, value: Option<String>| drop(notes.annotations.insert(key.to_owned(), value));
        let made = outputs.lock();
        let lb = observed.balancer(place).map(|balancer| &balancer.lb);
        // The ID of one that cannot be read stays.
        let is_named =
            |lb: &&LoadBalancer| item.annotated.as_ref() == Some(&lb.id) || !observed.unread.contains_key(&place);
        let lb = lb.filter(is_named).filter(|_| claim(observed, place, item).is_user()).and_then(|lb| {
            // An update of members ends by reading only the balancer.
            let seen = made.balancers.get(&lb.id).filter(|_| item.action == ServiceAction::UpdateHosts);
            seen.or(Some(lb))
        });
        let of_this_run = made.ids.get(&plan::create::balancer_id(&item.name)).and_then(|id| made.balancers.get(id));
        match (item.action, lb.or(of_this_run)) {
            (ServiceAction::Delete, _) => {
                // They prove what is the Service's as long as anything of it is left.
                if failure(reached).is_some() || made.failed.contains(&place) {
                    if let Some(cloud) = &self.cloud {
                        cloud.leaving.lock().insert(item.name.clone());
                    }
                    return Notes::default();
                }
                if let Some(cloud) = &self.cloud {
                    cloud.records.lock().remove(&item.key);
                    cloud.leaving.lock().remove(&item.name);
                }
                for key in [LOAD_BALANCER_ID.row.key, LOAD_BALANCER_ADDRESS.row.key, APPLIED] {
                    note(key, None);
                }
            }
            (_, None) => {}
            (action, Some(lb)) => {
                note(LOAD_BALANCER_ID.row.key, Some(lb.id.clone()));
                // A balancer matches only if it has no work left.
                let is_possible = failure(reached).is_none();
                // Its address finds the floating IP of a balancer that is made again.
                let is_replaced = item.settings.as_ref().is_some_and(|settings| settings.is_recreated);
                if action == ServiceAction::Ensure
                    && (is_possible || is_replaced && lb.provisioning_status == ERROR)
                    && !reached.steps().any(|step| step.write.changes_address())
                    && let Some(address) = address(observed, place, item)
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
                    cloud.reads.parts.keep(lb, balancer, action == ServiceAction::Ensure, cloud.cluster.now());
                }
                let done = applied::note(item, lb, observed.version).filter(|_| is_done);
                let Some(cloud) = &self.cloud else { return notes };
                // A change of nodes concerns many Services: their records are written at the next ensure that changes
                // something in the cloud. So a restart writes nothing.
                let is_kept =
                    action == ServiceAction::UpdateHosts || item.has_matched() && !made.owners.contains(&item.name);
                match (action, done) {
                    (_, Some(done)) if is_kept => drop(cloud.records.lock().insert(item.key.clone(), done)),
                    (ServiceAction::UpdateHosts, None) => drop(cloud.records.lock().remove(&item.key)),
                    (_, done) => {
                        cloud.records.lock().remove(&item.key);
                        note(APPLIED, done.or_else(|| Some(applied::unmatched(item, lb).to_owned())));
                    }
                }
            }
        }
        notes
    }
}

impl Balancers {
    /// Checks after writes whether reads show them. An update of members ends by reading only the balancer.
    fn settle(&self, reached: &Reached<'_, Self>, item: &Item) {
        let is_own = |_: &&Cloud| reached.made.lock().owners.contains(&item.name);
        let Some(cloud) = self.cloud.as_ref().filter(is_own) else { return };
        let is_seen = match item.action {
            ServiceAction::Ensure => failure(reached).is_none() && reached.steps().next().is_none(),
            ServiceAction::UpdateHosts | ServiceAction::Delete => true,
        };
        if is_seen {
            cloud.writer.settling.forget(&Trace::Any(item.name.clone()));
        }
    }
}

/// The error of the plan, except that reads may not show the last writes yet.
fn failure<'r>(reached: &'r Reached<'_, Balancers>) -> Option<&'r ProviderError> {
    let (observed, place) = (reached.observed, reached.place);
    let is_unsettled = observed.unsettled.contains(&place) && !observed.hidden.contains(&place);
    let is_late = |error: &&ProviderError| is_unsettled && settling::is_not_shown(error);
    reached.left.failed.get(&place).filter(|error| !is_late(error))
}

/// Whether an ensure has come to the address that clients get.
fn is_address_known(reached: &Reached<'_, Balancers>, item: &Item) -> bool {
    let (observed, place) = (reached.observed, reached.place);
    let (Some(balancer), Some(settings)) = (observed.balancer(place), &item.settings) else { return false };
    // A balancer that fails before it has an address is made again.
    if [PENDING_CREATE, ERROR].contains(&&*balancer.lb.provisioning_status) {
        return false;
    }
    // After a change of the address, reads may still show the previous one.
    if reached.steps().any(|step| step.write.changes_address() && step.part.kind != Kind::Retire) {
        return false;
    }
    if observed.floating_ip_of(place).is_some() {
        return true;
    }
    // Without a floating IP, that of the balancer is the one of a Service that needs none, or cannot have one.
    let is_inside =
        |finding: &Finding| finding.key == plan::FORCED_INTERNAL && finding.value.as_ref() == Some(&item.key);
    let needs_none = settings.is_internal || balancer.lb.vip_address.contains(':');
    !observed.hidden.contains(&place) && (needs_none || reached.left.findings.iter().any(is_inside))
}

/// The address for clients: the floating IP, else that of the balancer. A floating IP of an internal Service is its
/// user's.
fn address(observed: &Observed, place: usize, item: &Item) -> Option<String> {
    let lb = &observed.balancer(place)?.lb;
    let is_internal = item.settings.as_ref().is_some_and(|settings| settings.is_internal);
    let floating = observed.floating_ip_of(place).filter(|_| !is_internal).map(|ip| ip.floating_ip_address.clone());
    Some(floating.unwrap_or_else(|| lb.vip_address.clone())).filter(|address| !address.is_empty())
}

impl wanted::Publish {
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
