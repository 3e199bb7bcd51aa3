//! Load balancers for Services: external ones with target pools, internal ones with backend services.
//!
//! Upstream: `providers/gce/gce_loadbalancer*.go` of cloud-provider-gcp. [`dispatch`] decides which controller owns a
//! Service; the desired state is built from the Service and its nodes ([`desired`], pure), the cloud is read
//! ([`observe`]), the writes are planned ([`plan`], pure), checked ([`guard`]) and sent ([`apply`]). Services of one
//! kind share health checks, firewall rules and instance groups, so they are planned together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm_kit::inspect::replay::no_cloud;
use ccm_kit::{Cluster, lock};
use ccm_provider::{
    Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, Note, Notes, Planned, ProviderError, Service,
    ServiceAction, ServiceWork, Steps,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::annotations::{BACKEND_SERVICE, Scheme, TARGET_POOL};
use crate::client::Client;
use crate::client::resource::{Links, Scope, last_part};

mod apply;
pub(crate) mod desired;
pub(crate) mod dispatch;
mod events;
mod firewall;
mod guard;
pub(crate) mod hosts;
mod observe;
pub(crate) mod observed;
pub(crate) mod plan;
mod ports;
mod step;
mod surroundings;
mod tags;

use apply::Writer;
use desired::Desired;
use dispatch::Owner;
use events::Events;
use observe::Reads;
use observed::Observed;
use step::{Outputs, Step};
pub(crate) use surroundings::{Here, Surroundings};

/// An observation may be reused for the deletion of its balancer within this time.
const LOOKED: Duration = Duration::from_secs(1);
/// The time limit of a step: the write, and the reads after it.
const STEP_DEADLINE: Duration = Duration::from_secs(20 * 60);

/// The inputs of plans besides the observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Env {
    pub(crate) links: Links,
    pub(crate) region: String,
    /// The URL of the network.
    pub(crate) network: String,
    /// `node-tags`
    pub(crate) node_tags: Vec<String>,
    /// The source ranges of health checks.
    pub(crate) check_sources: Vec<String>,
    /// `external-instance-groups-prefix`; empty: no external groups are used.
    #[serde(default)]
    pub(crate) external_groups_prefix: String,
    pub(crate) options: Options,
}

impl Env {
    pub(crate) fn region(&self) -> Scope {
        Scope::region(&self.region)
    }
}

/// Feature switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // flags of the command line
pub(crate) struct Options {
    /// `--enable-rbs-default-l4-netlb`
    pub(crate) rbs_by_default: bool,
    /// `--enable-l4-lb-annotations`
    pub(crate) writes_annotations: bool,
    /// `--enable-l4-deny-firewall`
    pub(crate) denies: bool,
    /// `--enable-l4-deny-firewall-rollback-cleanup`
    pub(crate) removes_deny_rules: bool,
    /// `--enable-discrete-port-forwarding`
    pub(crate) discrete_ports: bool,
    /// `alpha-features = ILBSubsets`
    pub(crate) subsets: bool,
    /// `alpha-features = SkipIGsManagement`
    pub(crate) skips_groups: bool,
}

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
    /// Observations for deletions that are about to begin, by the name of the balancer. Each is used once.
    looked: Mutex<BTreeMap<String, (Instant, Observed)>>,
    /// Incremented when a write begins and when it ends.
    writes: AtomicU64,
}

impl Cloud {
    /// Records that a write begins or ends.
    fn written(&self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        lock(&self.looked).clear();
    }
}

impl Balancers {
    pub(crate) fn new(client: Client, surroundings: Arc<dyn Surroundings>, cluster: Cluster, env: Env) -> Self {
        let reads = Reads::new(client.clone(), surroundings);
        let cloud =
            Cloud { client, reads, events: Events::new(cluster), looked: Mutex::default(), writes: AtomicU64::new(0) };
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
}

impl Planned for Balancers {
    type Desired = Desired;
    type Observed = Observed;
    type Step = Step;
    type Outputs = Outputs;

    /// One group for each of its kinds, and none of its own: Services with the same groups are processed together, and
    /// their operations run concurrently.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let mut kinds = dispatch::begun(service);
        kinds.insert(dispatch::scheme(service));
        let shared = kinds.into_iter().map(|kind| match kind {
            Scheme::External => "external load balancers",
            Scheme::Internal => "internal load balancers",
        });
        shared.map(|name| GroupKey(name.to_owned())).collect()
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        dispatch::finalizers(&self.env.options, service)
    }

    fn backend<'n>(&self, _: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        Some(hosts::backend(node).into())
    }

    fn desired(&self, _: &str, work: &[ServiceWork]) -> (Desired, Vec<Result<(), ProviderError>>) {
        desired::desired(&self.env.options, work)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], desired: &Desired) -> Result<Observed, ProviderError> {
        let cloud = self.cloud()?;
        let mut items = desired.items.values();
        let deleted = match (items.next(), items.next()) {
            (Some(item), None) if item.action == ServiceAction::Delete => Some(&item.names.balancer),
            _ => None,
        };
        // The core checks whether there is anything to delete, and deletes immediately afterwards.
        if let Some((at, observed)) = deleted.and_then(|name| lock(&cloud.looked).remove(name))
            && at.elapsed() < LOOKED
        {
            return Ok(observed);
        }
        let written = cloud.writes.load(Ordering::SeqCst);
        let observed = cloud.reads.observe(&self.env, desired).await?;
        // An observation during a write may be inconsistent.
        if let Some(name) = deleted.filter(|_| written == cloud.writes.load(Ordering::SeqCst)) {
            let mut looked = lock(&cloud.looked);
            looked.retain(|_, (at, _)| at.elapsed() < LOOKED);
            looked.insert(name.clone(), (Instant::now(), observed.clone()));
        }
        Ok(observed)
    }

    fn plan(&self, observed: &Observed, desired: &Desired) -> Result<Steps<Step>, ProviderError> {
        Ok(plan::plan(&self.env, observed, desired))
    }

    fn item(&self, step: &Step) -> Option<usize> {
        step.item
    }

    fn stage(&self, step: &Step) -> Option<u32> {
        Some(step.stage())
    }

    fn guard(&self, observed: &Observed, desired: &Desired, steps: &[Step]) -> Result<(), ProviderError> {
        guard::guard(&self.env, observed, desired, steps)
    }

    fn step_deadline(&self) -> Duration {
        STEP_DEADLINE
    }

    async fn apply(&self, step: &Step, outputs: &Outputs) -> Result<(), ProviderError> {
        tracing::info!(step = %step.describe(), "writing");
        let cloud = self.cloud()?;
        let Cloud { client, reads, events, .. } = cloud;
        cloud.written();
        let done = Writer { env: &self.env, client, reads, events }.apply(step, outputs).await;
        cloud.written();
        done
    }

    fn report(&self, work: &[ServiceWork], findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        work.iter().for_each(|item| cloud.events.report(&item.service, findings));
    }

    fn describe(&self, step: &Step) -> ccm_provider::Step {
        step.describe()
    }

    fn status(&self, observed: &Observed, desired: &Desired, service: &Service) -> Option<LoadBalancerStatus> {
        let (place, item) = desired.item_of(service)?;
        let rule = observed.rule(&item.names).filter(|rule| !rule.ip_address.is_empty());
        if item.action == ServiceAction::Delete {
            let planned = plan::plan(&self.env, observed, &desired.only(place, item));
            // Writes to objects that other Services may use do not count.
            let is_left = planned.steps.iter().any(|step| step.item.is_some()) || !item.begun.is_empty();
            is_left.then_some(())?;
        }
        match rule {
            None => (item.action == ServiceAction::Delete).then(LoadBalancerStatus::default),
            Some(rule) => {
                let ingress = LoadBalancerIngress { ip: rule.ip_address.clone(), ..LoadBalancerIngress::default() };
                Some(LoadBalancerStatus { ingress: vec![ingress] })
            }
        }
    }

    fn notes(&self, observed: &Observed, _: &Outputs, desired: &Desired, service: &Service) -> Notes {
        let Some((place, item)) = desired.item_of(service) else { return Notes::default() };
        let mut notes = Notes::default();
        if item.action == ServiceAction::Ensure && item.owner != Owner::Other && (item.is_mixed || item.says_mixed) {
            notes.conditions.push(Note {
                kind: desired::PORTS_ERROR,
                status: item.is_mixed,
                reason: if item.is_mixed { desired::MIXED_PROTOCOLS } else { "LoadBalancerUniformProtocol" },
                message: match item.is_mixed {
                    true => "LoadBalancer with multiple protocols are not supported".to_owned(),
                    false => "all ports have the same protocol".to_owned(),
                },
            });
        }
        if item.action != ServiceAction::Ensure || item.is_mixed {
            return notes;
        }
        let planned = plan::plan(&self.env, observed, &desired.only(place, item));
        let is_done = planned.steps.is_empty() && planned.failed.is_empty();
        if let Some(cloud) = self.cloud.as_ref().filter(|_| is_done) {
            cloud.reads.settle(item);
        }
        if let Some(rule) = observed.rule(&item.names).filter(|_| is_done && self.env.options.writes_annotations) {
            let name = |url: &str| Some(last_part(url).to_owned()).filter(|name| !name.is_empty());
            notes.annotations.insert(BACKEND_SERVICE.row.key.to_owned(), name(&rule.backend_service));
            notes.annotations.insert(TARGET_POOL.row.key.to_owned(), name(&rule.target));
        }
        notes
    }
}

impl Desired {
    fn only(&self, place: usize, item: &desired::Item) -> Self {
        Self { items: [(place, item.clone())].into() }
    }

    fn item_of(&self, service: &Service) -> Option<(usize, &desired::Item)> {
        let key = service.key().to_string();
        self.items.iter().find(|(_, item)| item.key == key).map(|(place, item)| (*place, item))
    }
}
