//! Load balancers for Services: external ones with target pools, internal ones with backend services.
//!
//! Upstream: `providers/gce/gce_loadbalancer*.go` of cloud-provider-gcp. [`dispatch`] decides which controller owns a
//! Service; the desired state is built from the Service and its nodes ([`desired`], pure), the cloud is read
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
use serde::{Deserialize, Serialize};

use crate::annotations::{BACKEND_SERVICE, Scheme, TARGET_POOL};
use crate::client::Client;
use crate::client::balancing::ForwardingRule;
use crate::client::resource::{Links, Scope, last_part};

pub(crate) mod desired;
pub(crate) mod dispatch;
mod events;
mod firewall;
mod guard;
pub(crate) mod hosts;
mod missing;
mod observe;
pub(crate) mod observed;
mod parts;
pub(crate) mod plan;
mod ports;
mod step;
mod surroundings;
mod tags;
mod turns;
mod write;

use desired::Desired;
use dispatch::Owner;
use events::Events;
use observe::Reads;
use observed::Observed;
use step::{Outputs, Step};
pub(crate) use surroundings::{Here, Surroundings};
pub(crate) use turns::InTurn;
use write::{Ongoing, Writer};

/// The groups of Services.
const EXTERNAL: &str = "external load balancers";
const INTERNAL: &str = "internal load balancers";
/// The delay of another sync of a Service whose hosts do not all exist.
const MISSING_AGAIN: Duration = Duration::from_secs(60);

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
    ongoing: Ongoing,
}

impl Balancers {
    pub(crate) fn new(client: Client, surroundings: Arc<dyn Surroundings>, cluster: Cluster, env: Env) -> Self {
        let reads = Reads::new(client.clone(), surroundings);
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
    type Wanted = Desired;
    type Observed = Observed;
    type Write = Step;
    type Made = Outputs;

    /// One group for each of its kinds, and none of its own: Services with the same groups are processed together, and
    /// their operations run concurrently.
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        let mut kinds = dispatch::begun(service);
        kinds.insert(dispatch::scheme(service));
        let shared = kinds.into_iter().map(|kind| match kind {
            Scheme::External => EXTERNAL,
            Scheme::Internal => INTERNAL,
        });
        shared.map(|name| GroupKey(name.to_owned())).collect()
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        dispatch::finalizers(&self.env.options, service)
    }

    fn backend<'n>(&self, _: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        Some(hosts::backend(node).into())
    }

    fn wanted(&self, _: &str, work: &[ServiceWork]) -> (Desired, Vec<Result<(), ProviderError>>) {
        desired::desired(&self.env, work)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], desired: &Desired) -> Result<Observed, ProviderError> {
        self.cloud()?.reads.observe(&self.env, desired).await
    }

    fn strip(&self, _: &mut Observed, _: &Desired) {}

    fn plan(&self, observed: &Observed, desired: &Desired) -> Result<Plan<Step>, ProviderError> {
        Ok(plan::plan(&self.env, observed, desired).into())
    }

    fn guard(
        &self,
        observed: &Observed,
        desired: &Desired,
        steps: &[balancer::Step<Step>],
    ) -> Vec<(usize, ProviderError)> {
        guard::guard(&self.env, observed, desired, &steps.iter().map(|step| &step.write).collect::<Vec<_>>())
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

    fn report(&self, work: &[ServiceWork], findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        work.iter().for_each(|item| cloud.events.report(&item.service, item.action, findings));
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let item = reached.wanted.items.get(&reached.place)?;
        let rule = reached.observed.rule(&item.names).filter(|rule| !rule.ip_address.is_empty());
        if item.action == ServiceAction::Delete {
            (reached.remains() || !item.begun.is_empty()).then_some(())?;
            let ip = rule.map(|rule| rule.ip_address.clone());
            return Some(ip.map_or_else(LoadBalancerStatus::default, status));
        }
        // Another controller, or the former kind of the Service, has a rule of the same name.
        let is_ours = |rule: &&ForwardingRule| {
            !plan::is_foreign(rule) && (item.is_by_name() || plan::real_scheme(rule) == item.scheme)
        };
        rule.filter(is_ours).map(|rule| status(rule.ip_address.clone()))
    }

    /// An instance may come back with its name.
    fn again(&self, reached: &Reached<'_, Self>) -> Option<Duration> {
        let (item, cloud) = (reached.wanted.items.get(&reached.place)?, self.cloud.as_ref()?);
        let missing = &cloud.reads.missing;
        let lacks = !missing.is_empty() && item.hosts.known.keys().any(|host| missing.contains(host));
        lacks.then_some(MISSING_AGAIN)
    }

    fn notes(&self, reached: &Reached<'_, Self>) -> Notes {
        let observed = reached.observed;
        let Some(item) = reached.wanted.items.get(&reached.place) else { return Notes::default() };
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
        let is_done = !reached.remains();
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

fn status(ip: String) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }] }
}

impl From<plan::Steps> for Plan<Step> {
    fn from(plan::Steps { steps, findings, failed }: plan::Steps) -> Self {
        let wrapped = |step: Step| {
            let (summary, stage, items) = (step.describe(), step.stage(), Items::Some(step.items.clone()));
            let (part, needs) = (step.part.clone(), step.needs);
            balancer::Step::new(step, summary, items, part).needs(needs).stage(stage)
        };
        Self { steps: steps.into_iter().map(wrapped).collect(), findings, failed }
    }
}
