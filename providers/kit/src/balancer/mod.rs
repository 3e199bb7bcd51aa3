//! The engine of load balancers: everything about them that is the same in all clouds.
//!
//! A cloud implements [`BalancerCloud`]: the desired state, one read, a pure plan, one write. [`Engine`] makes a
//! [`LoadBalancer`](ccm_provider::LoadBalancer) of it, dry runs included:
//!
//! ```text
//! wanted ─> observe ─> plan ─> guard ─> steps, part by part ─> observe ─> status, notes: one answer per Service
//! ```
//!
//! * A plan is a list of [`Step`]s, each in a [`Part`]. A step that fails ends its part and the parts that need it, for
//!   its items only; everything else goes on. So the members of a load balancer follow the nodes, whatever else fails.
//! * An answer is an error and a status, if the load balancer has one.
//! * A Service whose settings are refused keeps its load balancer, whose members are updated.
//! * A write that takes long is [`Written::Accepted`]: the engine polls it, gives the worker back meanwhile, and after
//!   some time answers [`in progress`](ccm_provider::ProviderError::in_progress). The next call continues.
//! * No write begins after a shutdown has begun, except those that complete a replacement: what was deleted for a
//!   successor comes back if that is refused, or still fails after a minute, in this call or a later one. Nothing runs
//!   outside of the call.
//! * A creation or change that the cloud refused for good is not repeated until the Service has changed, or an hour has
//!   passed; after ten minutes if only a permission or a quota is missing and each trial removes something, or a
//!   permission for what an earlier step prepares ([`Step::prepares`]). The same holds for one whose trials leave
//!   something ([`BalancerCloud::leaves_something`]), and for none of an object that other Services use, too
//!   ([`Step::is_shared`]). A restart forgets that.
//! * What only prepares a replacement is released if that is refused and its predecessor is there
//!   ([`Step::releases`]).
//! * A conflict with another writer is observed and planned again once, in the same call ([`BalancerCloud::replans`]).

mod engine;
mod journal;
mod lookups;
mod memory;
mod parked;
mod placeholder;
mod run;
mod schedule;
mod step;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{
    Finding, GroupKey, LoadBalancerStatus, Node, Notes, ProviderError, Related, Scope, Service, ServiceAction,
    ServiceWork,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use engine::{Engine, write_all};
pub use journal::Journal;
pub use placeholder::{filled, filled_body, placeholder};
pub use run::is_refusal;
pub use step::{Items, Kind, Part, Plan, Step};

/// What differs between clouds.
pub trait BalancerCloud: Send + Sync + 'static {
    /// The desired state of the group, with defaults.
    type Wanted: Send + Sync;
    /// All cloud objects of the group: those that belong to this cluster and those to which they refer. What could not
    /// be read is marked as such. Saved in snapshots, so it must contain neither secrets nor parts of the desired state.
    type Observed: Serialize + DeserializeOwned + Send + Sync;
    /// One write.
    type Write: Send + Sync;
    /// Results of earlier writes of a plan that later writes need, such as an ID known only after creation.
    type Made: Default + Send + Sync;
    /// The beginnings of the keys of annotations that plans read. A change of others is no reason to send a refused write
    /// again.
    const ANNOTATIONS: &'static [&'static str] = &[""];

    /// [`LoadBalancer::groups`](ccm_provider::LoadBalancer::groups)
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(service.key().to_string())].into()
    }

    /// [`LoadBalancer::finalizers`](ccm_provider::LoadBalancer::finalizers)
    fn finalizers(&self, _service: &Service) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// [`LoadBalancer::adds_finalizers`](ccm_provider::LoadBalancer::adds_finalizers): after the first look, for Services
    /// that have an answer without an error, or get a load balancer.
    fn adds_finalizers(&self) -> bool {
        false
    }

    /// [`LoadBalancer::backend`](ccm_provider::LoadBalancer::backend)
    fn backend<'n>(&self, _service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        Some(node.provider_id_or_empty().into())
    }

    /// [`LoadBalancer::related`](ccm_provider::LoadBalancer::related)
    fn related(&self) -> Related {
        Related::default()
    }

    /// [`LoadBalancer::only_nodes_with_endpoints`](ccm_provider::LoadBalancer::only_nodes_with_endpoints)
    fn only_nodes_with_endpoints(&self, _service: &Service) -> bool {
        false
    }

    /// [`LoadBalancer::unselective`](ccm_provider::LoadBalancer::unselective)
    fn unselective(&self, _service: &Service) -> Option<Service> {
        None
    }

    /// The desired state of the group, and one result per item for invalid Services. Pure, and called before any read:
    /// if every item has an error, the cloud is not called at all. For one item with an error no step is executed, and it
    /// has no status, whatever the plan says; `plan` should leave it out, so that it takes nothing from the others.
    ///
    /// [`UpdateHosts`](ccm_provider::ServiceAction::UpdateHosts) uses nothing of the spec but the identity of the
    /// Service and what selects its nodes, and must not refuse what only an ensure needs.
    fn wanted(&self, cluster: &str, work: &[ServiceWork]) -> (Self::Wanted, Vec<Result<(), ProviderError>>);

    /// Reads the cloud. No other method may read it.
    fn observe(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        wanted: &Self::Wanted,
    ) -> impl Future<Output = Result<Self::Observed, ProviderError>> + Send;

    /// What the first plan is made of, and that plan; after a conflict, what the second one is made of. By default,
    /// everything is observed.
    ///
    /// A cloud may use what earlier reads showed where the plan stays right if that is not current any more: if nothing is
    /// written, or if the cloud refuses the writes as a conflict. What had a conflict must be read again.
    fn first(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        wanted: &Self::Wanted,
    ) -> impl Future<Output = Result<(Self::Observed, Plan<Self::Write>), ProviderError>> + Send {
        async move {
            let observed = self.observe(cluster, work, wanted).await?;
            let plan = self.plan(&observed, wanted)?;
            Ok((observed, plan))
        }
    }

    /// How often a call is planned again after conflicts with other writers, once for each object.
    fn replans(&self) -> usize {
        1
    }

    /// Whether simultaneous [lookups](ccm_provider::LoadBalancer::get) share an observation: if its reads are the same for
    /// many Services.
    fn shares_lookups(&self) -> bool {
        false
    }

    /// Reads the cloud after the writes of a plan, for the status of Services and for notes only. What these do not need
    /// may be as it was observed before.
    fn observe_after(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        wanted: &Self::Wanted,
        _before: &Self::Observed,
    ) -> impl Future<Output = Result<Self::Observed, ProviderError>> + Send {
        self.observe(cluster, work, wanted)
    }

    /// Removes all data that no plan for `wanted` uses from an observation that will be stored in a file (`ccm
    /// snapshot`): such files are shared, and users' tags and descriptions may contain anything. Pure; the plan must
    /// stay the same.
    fn strip(&self, observed: &mut Self::Observed, wanted: &Self::Wanted);

    /// The writes that change the observed state into the desired state. Pure; empty if they are equal. An error if the
    /// cloud's state makes all items impossible; then nothing is written.
    fn plan(&self, observed: &Self::Observed, wanted: &Self::Wanted) -> Result<Plan<Self::Write>, ProviderError>;

    /// The steps, by index, that are probably a mistake, with the reason: one changes a foreign object, or the steps
    /// remove all members. They are not executed. Pure.
    fn guard(
        &self,
        observed: &Self::Observed,
        wanted: &Self::Wanted,
        steps: &[Step<Self::Write>],
    ) -> Vec<(usize, ProviderError)>;

    /// The time limit of one write, including its waits. By default [`WRITE_DEADLINE`].
    fn write_deadline(&self) -> Duration {
        WRITE_DEADLINE
    }

    /// Executes one write. Waits for the cloud are [`Scope::waiting`].
    fn write(
        &self,
        step: &Step<Self::Write>,
        made: &Self::Made,
        scope: &Scope,
    ) -> impl Future<Output = Result<Written, ProviderError>> + Send;

    /// Reads the state of an accepted write; may wait for some seconds. After an error it is read again.
    fn poll(&self, _operation: &Operation) -> impl Future<Output = Result<Progress, ProviderError>> + Send {
        std::future::ready(Ok(Progress::Done))
    }

    /// Called after an accepted write is done: reads the results that later steps need.
    fn completed(
        &self,
        _step: &Step<Self::Write>,
        _made: &Self::Made,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Called after the last write; returns errors that did not prevent later writes.
    fn finish(&self, _made: &Self::Made) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Emits events about findings. Not called in dry runs, whose plans show the findings.
    fn report(&self, _work: &[ServiceWork], _wanted: &Self::Wanted, _findings: &[Finding]) {}

    /// Reports the refusal of an optional step, to the items that it is for.
    fn report_refusal(&self, _work: &[ServiceWork], _step: &Step<Self::Write>, _error: &ProviderError) {}

    /// For how long at least a refused write is not sent again for which this was deleted, and has come back.
    fn trial_of(&self, _restore: &[Arc<Step<Self::Write>>]) -> Duration {
        Duration::ZERO
    }

    /// Whether each refusal of a write leaves something in the cloud, so that it is remembered like one that is for good.
    fn leaves_something(&self, _step: &Step<Self::Write>, _error: &ProviderError) -> bool {
        false
    }

    /// For how long a refused write is not sent again, unless its Services change. Not asked for a step that restores
    /// what it replaces.
    fn remembers(&self, _error: &ProviderError) -> Duration {
        memory::REFUSED
    }

    /// The time until reads show what the process that led before has written; `None` if they do. So long, a deletion of a
    /// Service that has no status waits: its load balancer may be there.
    fn former(&self) -> Option<Duration> {
        None
    }

    /// Called when the work on a Service has ended, for metrics: whether it succeeded, and its duration.
    fn ended(&self, _action: ServiceAction, _succeeded: bool, _took: Duration) {}

    /// The status of a Service as observed; `None` if its load balancer does not exist or has no address yet. `None`
    /// after writes that should have created one means that the cloud does not show it yet: the state is read again.
    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus>;

    /// Notes for a Service. Called also if a write failed.
    fn notes(&self, _reached: &Reached<'_, Self>) -> Notes {
        Notes::default()
    }

    /// The delay of another sync of a Service whose work succeeded, if something that is not visible yet is missing.
    fn again(&self, _reached: &Reached<'_, Self>) -> Option<Duration> {
        None
    }
}

/// The state that a call has reached for one Service.
#[derive(Debug)]
pub struct Reached<'a, C: BalancerCloud + ?Sized> {
    /// The last observation of the group.
    pub observed: &'a C::Observed,
    /// The results of the writes of this call.
    pub made: &'a C::Made,
    /// The desired state of the group.
    pub wanted: &'a C::Wanted,
    /// The Service.
    pub service: &'a Service,
    /// Its index in the work.
    pub place: usize,
    /// The plan for the last observation: what is left to do.
    pub left: &'a Plan<C::Write>,
}

impl<C: BalancerCloud + ?Sized> Reached<'_, C> {
    /// Whether something is left to do for this Service alone. Steps for all Services of the group do not count.
    pub fn remains(&self) -> bool {
        self.left.failed.contains_key(&self.place) || self.steps().next().is_some()
    }

    /// The steps that are left for this Service.
    pub fn steps(&self) -> impl Iterator<Item = &Step<C::Write>> {
        let is_own = |step: &&Step<C::Write>| step.items != Items::All && step.items.contains(self.place);
        self.left.steps.iter().filter(is_own)
    }
}

/// The result of a write.
#[derive(Debug)]
pub enum Written {
    /// It is done.
    Done,
    /// The cloud works on it.
    Accepted(Operation),
    /// The cloud accepted it, and it failed: [`Step::undo`] is due.
    Failed(ProviderError),
}

/// Work of the cloud that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name or URL, for [`BalancerCloud::poll`].
    pub name: String,
    /// What it does, for users: `creating the forwarding rule a1b2`.
    pub text: String,
}

/// The state of an [`Operation`].
#[derive(Debug, Clone)]
pub enum Progress {
    /// It goes on.
    Running,
    /// It has succeeded, or is not known any more: the next observation shows what became of it.
    Done,
    /// It has failed.
    Failed(ProviderError),
}
