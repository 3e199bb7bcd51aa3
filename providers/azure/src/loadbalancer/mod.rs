//! Load balancers for Services: all Services share one external and one internal load balancer and a security group.
//!
//! Upstream: `pkg/provider/azure_loadbalancer*.go` of cloud-provider-azure. The desired state is derived from the Services
//! ([`wanted`], pure), the cloud is read once for all of them ([`observe`]), the writes are planned together ([`plan`],
//! pure): one for each shared object, with a part for each Service. They are checked ([`guard`]) and sent ([`write`]).
//! Objects are JSON ([`json`]): what others set in them stays.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_kit::balancer::{BalancerCloud, Operation, Plan, Progress, Reached, Step, Written};
use ccm_kit::inspect::replay::no_cloud;
use ccm_provider::{
    Finding, GroupKey, LoadBalancerIngress, LoadBalancerStatus, Node, Notes, ProviderError, Related, Scope, Service,
    ServiceAction, ServiceWork,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

pub(crate) mod balancer;
pub(crate) mod claim;
pub(crate) mod env;
mod events;
mod explained;
mod guard;
pub(crate) mod json;
mod known;
mod late;
pub(crate) mod machines;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod observe;
pub(crate) mod observed;
pub(crate) mod plan;
mod refused;
mod repair;
mod rests;
mod shares;
pub(crate) mod tags;
mod timed;
mod waiting;
pub(crate) mod wanted;
mod write;

use crate::client::Client;
use crate::client::metrics::Place;
use crate::node::zones::Zones;
use env::Env;
use events::Events;
use observe::{Base, Reads};
use observed::Observed;
use plan::address::{AddressChange, AddressEdit};
use plan::step::{Made, Write};
use repair::Repairs;
use rests::needed_now;
use timed::{Ended, Timed};
use waiting::Waiting;
use wanted::{Item, Wanted, hosts};
use write::{Ongoing, Writer};

/// The group of all Services.
const GROUP: &str = "load balancers";
/// The delay of the next call if one did not change all members.
const MORE: Duration = Duration::from_secs(1);
/// The same if new members are to be probed first: twice, with the usual interval of 5 seconds.
const PROBED: Duration = Duration::from_secs(15);

/// A Service is new for this time.
const NEW: SignedDuration = SignedDuration::from_secs(30);

/// The load balancers of a cluster.
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
    waiting: Waiting,
    repairs: Repairs,
    timed: Timed,
}

impl Balancers {
    pub(crate) fn new(client: Client, cluster: Cluster, zones: Zones, env: Env) -> Self {
        let reads = Reads::new(client.clone(), cluster.clone(), zones);
        let (events, waiting) = (Events::new(cluster), Waiting::new(client.clone()));
        let (ongoing, repairs, timed) = Default::default();
        let cloud = Cloud { client, reads, events, ongoing, waiting, repairs, timed };
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
        self.cloud.as_ref().ok_or_else(|| no_cloud("Azure"))
    }

    /// Records work that has ended.
    fn count(&self, ended: Option<Ended>) {
        let (Some(cloud), Some((request, succeeded, took))) = (&self.cloud, ended) else { return };
        let place = Place { group: &self.env.group, subscription: &self.env.subscription };
        cloud.client.metrics().reconciled(request, place, succeeded, took);
    }

    fn writer(&self) -> Result<Writer<'_>, ProviderError> {
        let Cloud { client, reads, ongoing, waiting, repairs, .. } = self.cloud()?;
        Ok(Writer { env: &self.env, client, reads, ongoing, waiting, repairs })
    }
}

/// Whether the name of an address contains the UID of its Service, and that is so new that nobody else knows it.
fn is_name_new(edit: &AddressEdit, change: &AddressChange, work: &[ServiceWork], wanted: &Wanted) -> bool {
    let has_uid = wanted.items.get(&edit.place).is_some_and(|item| change.id.name().contains(&item.names.base));
    let created = work.get(edit.place).and_then(|item| item.service.metadata.creation_timestamp);
    has_uid && created.is_some_and(|created| Timestamp::now().duration_since(created) < NEW)
}

impl BalancerCloud for Balancers {
    type Wanted = Wanted;
    type Observed = Observed;
    type Write = Write;
    type Made = Made;
    const ANNOTATIONS: &'static [&'static str] = &["service.beta.kubernetes.io/"];

    fn groups(&self, _: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(GROUP.to_owned())].into()
    }

    fn backend<'n>(&self, _: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        hosts::backend(&self.env, node).map(Into::into)
    }

    fn related(&self) -> Related {
        let namespaces = self.env.several.iter().any(|one| one.namespaces.is_some());
        Related { namespaces, endpoint_slices: !self.env.several.is_empty() }
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        wanted::has_own_pools(&self.env, service)
    }

    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Wanted, Vec<Result<(), ProviderError>>) {
        wanted::wanted(&self.env, cluster, work)
    }

    fn shares_lookups(&self) -> bool {
        true
    }

    /// After a conflict, only what had it is read again: the security group, which is written after the load balancers, may
    /// have one too.
    fn replans(&self) -> usize {
        2
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], wanted: &Wanted) -> Result<Observed, ProviderError> {
        self.cloud()?.reads.observed(&self.env, wanted, &mut Base::default()).await
    }

    async fn first(
        &self,
        _: &str,
        work: &[ServiceWork],
        wanted: &Wanted,
    ) -> Result<(Observed, Plan<Write>), ProviderError> {
        let is_young = |change: &AddressChange| change.edits.iter().all(|edit| is_name_new(edit, change, work, wanted));
        let reads = &self.cloud()?.reads;
        let has_deletion = wanted.items.values().any(|item| item.action == ServiceAction::Delete);
        let mut base = if has_deletion { Base::default() } else { reads.known(&self.env, wanted) };
        loop {
            let observed = reads.observed(&self.env, wanted, &mut base).await?;
            let plan = plan::plan(&self.env, &observed, wanted);
            if !base.forget(needed_now(&plan, is_young)) {
                reads.settle(&self.env, wanted, &observed, &plan);
                return Ok((observed, plan));
            }
        }
    }

    async fn observe_after(
        &self,
        _: &str,
        _: &[ServiceWork],
        _: &Wanted,
        before: &Observed,
    ) -> Result<Observed, ProviderError> {
        self.cloud()?.reads.observe_after(&self.env, before).await
    }

    fn strip(&self, observed: &mut Observed, wanted: &Wanted) {
        observed.strip(&self.env, wanted);
    }

    fn plan(&self, observed: &Observed, wanted: &Wanted) -> Result<Plan<Write>, ProviderError> {
        Ok(plan::plan(&self.env, observed, wanted))
    }

    fn guard(&self, _: &Observed, wanted: &Wanted, steps: &[Step<Write>]) -> Vec<(usize, ProviderError)> {
        guard::guard(&self.env, wanted, &steps.iter().map(|step| &step.write).collect::<Vec<_>>())
    }

    async fn write(&self, step: &Step<Write>, made: &Made, _: &Scope) -> Result<Written, ProviderError> {
        tracing::info!(step = %step.summary, "writing");
        let began = Instant::now();
        let written = self.writer()?.apply(&step.write, made).await;
        let cloud = self.cloud()?;
        self.count(cloud.timed.written(&step.write, began, &written));
        cloud.events.pool_written(&step.write, &written);
        written
    }

    async fn poll(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        let progress = self.writer()?.poll(operation).await;
        let cloud = self.cloud()?;
        self.count(cloud.timed.polled(&operation.name, &progress));
        cloud.events.pool_polled(&operation.name, &progress);
        progress
    }

    async fn completed(&self, step: &Step<Write>, made: &Made) -> Result<(), ProviderError> {
        Writer::completed(&step.write, made);
        Ok(())
    }

    fn report(&self, work: &[ServiceWork], wanted: &Wanted, findings: &[Finding]) {
        let Some(cloud) = &self.cloud else { return };
        for (place, item) in work.iter().enumerate() {
            let own = wanted.items.get(&place).map(|item| &*item.findings).unwrap_or_default();
            cloud.events.report(&item.service, item.action, own, findings);
        }
    }

    fn remembers(&self, error: &ProviderError) -> Duration {
        refused::time_of(error)
    }

    fn ended(&self, action: ServiceAction, succeeded: bool, took: Duration) {
        let request = match action {
            ServiceAction::Ensure => "services_ensure_loadbalancer",
            ServiceAction::UpdateHosts => "services_update_loadbalancer",
            ServiceAction::Delete => "services_ensure_loadbalancer_deleted",
        };
        self.count(Some((request, succeeded, took)));
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let item = reached.wanted.items.get(&reached.place)?;
        status(reached.observed, item)
    }

    fn notes(&self, reached: &Reached<'_, Self>) -> Notes {
        if let Some((cloud, error)) = self.cloud.as_ref().and_then(|cloud| Some((cloud, cloud.client.unreadable()?))) {
            cloud.events.missing(reached.service, error);
        }
        Notes::default()
    }

    fn again(&self, reached: &Reached<'_, Self>) -> Option<Duration> {
        let made = reached.made.lock();
        made.has_more.then_some(MORE).or_else(|| made.takes_over.then_some(PROBED))
    }
}

/// The addresses of a Service, if it has one of each family, in the order of their frontends, as in the Go program.
fn status(observed: &Observed, item: &Item) -> Option<LoadBalancerStatus> {
    // A write that has failed may show what it could not make.
    let is_sure = |balancer: &serde_json::Value| {
        !item.published.is_empty() || !json::same(json::property(balancer, "provisioningState"), "Failed")
    };
    let of_scheme = |balancer: &&Arc<serde_json::Value>| {
        members::scheme_of(json::name(balancer)) == item.scheme && is_sure(balancer)
    };
    let balancers: Vec<&Arc<serde_json::Value>> = observed.balancers.iter().filter(of_scheme).collect();
    let frontends = || balancers.iter().flat_map(|balancer| json::items(balancer, "frontendIPConfigurations"));
    let served: Vec<&str> = balancers.iter().flat_map(|balancer| claim::served(item, balancer)).collect();
    let serves = |frontend: &&serde_json::Value| served.iter().any(|id| json::same(id, json::text(frontend, &["id"])));
    let frontend = |family: &names::Family| {
        let name = item.names.frontend(*family);
        let own = frontends().find(|frontend| json::same(json::name(frontend), &name));
        let is_shared = |frontend: &&serde_json::Value| {
            claim::frontend(observed, item, frontend) == claim::Frontend::Shared
                && claim::family_of_frontend(observed, item, frontend) == *family
        };
        // Its own one may be there only because others use it.
        let serving = own.filter(serves).or_else(|| frontends().filter(serves).find(is_shared));
        // On that of another one without its rules, traffic for it would arrive at the other one's pods.
        let wants_none = item.settings.as_ref().is_some_and(|settings| settings.rules.is_empty());
        serving.or(own).or_else(|| frontends().find(is_shared).filter(|_| wants_none))
    };
    let mut own = item.families.iter().map(frontend).collect::<Option<Vec<_>>>()?;
    own.sort_by_key(|frontend| frontends().position(|it| std::ptr::eq(it, *frontend)));
    let own = own.into_iter().map(|frontend| observed.address(frontend)).collect::<Option<Vec<_>>>()?;
    let all = own.into_iter().chain(item.access.additional.iter().copied());
    let ingress = all.map(|ip| LoadBalancerIngress { ip: ip.to_string(), ..LoadBalancerIngress::default() });
    Some(LoadBalancerStatus { ingress: ingress.collect() })
}
