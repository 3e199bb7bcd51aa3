//! [`Engine`]: the passes over a group of Services.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::deadline::{READ_DEADLINE, within};
use ccm_provider::{
    ErrorClass, Finding, GroupKey, LoadBalancer, LoadBalancerStatus, Node, Plan as Printed, ProviderError, Related,
    Scope, Service, ServiceAction, ServiceAnswer, ServiceKey, ServiceWork, Severity,
};
use futures::FutureExt as _;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::Instant;

use super::lookups::{Found, Lookups};
use super::memory::Memory;
use super::run::{Results, Run};
use super::step::{Kind, Plan, Step};
use super::{BalancerCloud, Reached};

/// An observation for a deletion may be used for the deletion itself within this time.
const RECENT: Duration = Duration::from_secs(1);
/// The delay before the next read of a new load balancer that the cloud does not show yet.
pub(super) const NOT_SHOWN: Duration = Duration::from_secs(5);

/// The load balancers of a cloud.
///
/// Each read and each write has its own deadline, so that a long plan is not cancelled while it progresses, and a
/// hanging call does not block its group indefinitely.
pub struct Engine<C: BalancerCloud> {
    pub(super) cloud: C,
    memory: Memory<C::Write>,
    lookups: Lookups,
    /// Observations that found something to delete, by Service; each is used once.
    recent: Mutex<BTreeMap<ServiceKey, Recent<C::Observed>>>,
    /// Counts runs with writes: an observation during one is not used again.
    runs: AtomicU64,
}

struct Recent<O> {
    at: Instant,
    runs: u64,
    uid: String,
    observed: O,
}

impl<C: BalancerCloud + fmt::Debug> fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("cloud", &self.cloud).finish_non_exhaustive()
    }
}

impl<C: BalancerCloud> Engine<C> {
    /// The load balancers of `cloud`.
    pub fn new(cloud: C) -> Self {
        let (memory, lookups) = (Memory::of(C::ANNOTATIONS), Lookups::default());
        Self { cloud, memory, lookups, recent: Mutex::default(), runs: AtomicU64::default() }
    }

    /// The cloud.
    pub fn cloud(&self) -> &C {
        &self.cloud
    }

    async fn run(&self, cluster: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer> {
        let mut results = Results::new(work.len());
        let (work, wanted, refused) = self.wanted(cluster, work, &mut results);
        if refused.len() == work.len() {
            return failed_all(&results);
        }
        let groups: BTreeSet<GroupKey> = work.iter().flat_map(|item| self.cloud.groups(&item.service)).collect();
        let made = C::Made::default();
        let (cloud, memory, parked) = (&self.cloud, &self.memory, BTreeMap::new());
        let mut run =
            Run { cloud, memory, work: &work, refused: &refused, groups: &groups, made: &made, scope, parked };
        run.parked = run.poll_parked(&mut results).await;
        let (mut observed, mut plan) = match self.first(cluster, &run, &wanted).await {
            Ok(first) => first,
            Err(error) => {
                (0..work.len()).for_each(|place| results.fail(place, &error));
                return failed_all(&results);
            }
        };
        self.cloud.report(&work, &wanted, &plan.findings);
        self.begin(&run, &mut plan, &mut results).await;
        self.wait_for_creations(&run, &mut plan, &mut results);
        let mut planned = plan.places(work.len());
        let mut conflicts = self.execute(cluster, &run, &observed, &wanted, &plan, &mut results).await;
        let mut replans = self.cloud.replans();
        while !conflicts.is_empty() && replans > 0 {
            replans -= 1;
            let mut second = Results::new(work.len());
            match self.first(cluster, &run, &wanted).await {
                Ok(next) => (observed, plan) = next,
                Err(error) => {
                    conflicts.iter().for_each(|place| second.fail(*place, &error));
                    results.take_over(second, &conflicts);
                    break;
                }
            }
            plan.steps.retain(|step| conflicts.iter().any(|place| step.items.contains(*place)));
            plan.failed.retain(|place, _| conflicts.contains(place));
            planned.extend(plan.places(work.len()));
            // The first round may have left operations.
            run.parked = self.memory.parked(&groups);
            conflicts = self.execute(cluster, &run, &observed, &wanted, &plan, &mut second).await;
            // Who was faster twice with the same object may always be.
            if !second.lost.is_disjoint(&results.lost) {
                replans = 0;
            }
            results.take_over(second, &conflicts);
        }
        if let Err(error) = self.cloud.finish(&made) {
            (0..work.len()).for_each(|place| results.fail(place, &error));
        }
        // Read again only if something was written and the status is needed: the addresses may be new.
        if results.written > 0 && work.iter().any(|item| item.action == ServiceAction::Ensure) {
            let after = self.cloud.observe_after(cluster, &work, &wanted, &observed);
            match within("observing the load balancer", READ_DEADLINE, after).await {
                Ok(after) => {
                    observed = after;
                    let unclear = |error: ProviderError| Plan::impossible(work.len(), &error);
                    plan = self.cloud.plan(&observed, &wanted).unwrap_or_else(unclear);
                }
                // Only those whose state has changed need the read.
                Err(error) => planned.iter().for_each(|place| results.fail(*place, &error)),
            }
        }
        let answers = work.iter().zip(results.errors).enumerate().map(|(place, (item, error))| {
            let service = &*item.service;
            if item.action == ServiceAction::Delete && error.is_none() {
                self.memory.is_gone(&service.metadata.uid);
            }
            if let Some(error) = error.clone().filter(|_| refused.contains(&place)) {
                return Err(error).into();
            }
            let error = error.map(|error| run.reported(item, error));
            let reached = Reached { observed: &observed, made: &made, wanted: &wanted, service, place, left: &plan };
            self.answer(item, error, &reached, !planned.is_empty())
        });
        answers.collect()
    }

    /// The desired state, with the errors of invalid items, and the items for which nothing is left to do. An invalid
    /// Service keeps its load balancer: the members are updated, and the status is read. Another client may have removed
    /// the status, so the finalizer alone shows that there may be one.
    fn wanted<'w>(
        &self,
        cluster: &str,
        work: &'w [ServiceWork],
        results: &mut Results,
    ) -> (Cow<'w, [ServiceWork]>, C::Wanted, BTreeSet<usize>) {
        let mut work = Cow::Borrowed(work);
        let (mut wanted, mut verdicts) = self.verdicts(cluster, &work);
        let serves = |item: &ServiceWork| {
            let service = &item.service;
            item.action == ServiceAction::Ensure
                && (service.has_finalizer() || !service.status.load_balancer.ingress.is_empty())
        };
        let is_refused = |verdict: &Result<(), ProviderError>| {
            verdict.as_ref().is_err_and(|error| !error.is_implemented_elsewhere() && error.class() != ErrorClass::Bug)
        };
        let refused: Vec<usize> = work
            .iter()
            .zip(&verdicts)
            .enumerate()
            .filter(|(_, (item, verdict))| serves(item) && is_refused(verdict))
            .map(|(place, _)| place)
            .collect();
        for (place, verdict) in verdicts.iter().enumerate() {
            if let Err(error) = verdict {
                results.fail(place, error);
            }
        }
        if !refused.is_empty() {
            for place in refused {
                if let Some(item) = work.to_mut().get_mut(place) {
                    item.action = ServiceAction::UpdateHosts;
                }
            }
            (wanted, verdicts) = self.verdicts(cluster, &work);
        }
        let errors = verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_err());
        let refused = errors.map(|(place, _)| place).collect();
        (work, wanted, refused)
    }

    /// One verdict per item, even if the cloud gives fewer or more.
    fn verdicts(&self, cluster: &str, work: &[ServiceWork]) -> (C::Wanted, Vec<Result<(), ProviderError>>) {
        let (wanted, mut verdicts) = self.cloud.wanted(cluster, work);
        verdicts.resize_with(work.len(), || Err(ProviderError::bug("wanted() gave no verdict")));
        (wanted, verdicts)
    }

    /// Adds missing finalizers of the provider. Nothing is created for a Service for which that fails. A second plan needs
    /// no call: it is only made for Services that this plan writes for.
    async fn begin(&self, run: &Run<'_, C>, plan: &mut Plan<C::Write>, results: &mut Results) {
        if !self.cloud.adds_finalizers() {
            return;
        }
        let adds = run.work.iter().enumerate().map(|(place, item)| {
            let makes = |step: &Step<C::Write>| {
                matches!(step.part.kind, Kind::Claim | Kind::Frame) && step.items.contains(place)
            };
            let is_due = match plan.failed.get(&place) {
                None => true,
                Some(error) => !error.is_implemented_elsewhere() && plan.steps.iter().any(makes),
            };
            let present = &item.service.metadata.finalizers;
            let missing = self.cloud.finalizers(&item.service).into_iter();
            let missing = missing.filter(|(name, is_needed)| *is_needed && !present.iter().any(|it| it == name));
            let is_due = is_due && item.action == ServiceAction::Ensure && !results.has_failed(place);
            let names: Vec<&str> = missing.map(|(name, _)| name).filter(|_| is_due).collect();
            async move { (place, run.scope.begins(&item.service, &names).await) }
        });
        for (place, added) in join_all(adds.collect::<Vec<_>>()).await {
            let Err(error) = added else { continue };
            results.fail(place, &error);
            plan.leave_only_members(place);
        }
    }

    /// A deletion waits for what is, or may have been, created for its Service just now: it would not find it.
    fn wait_for_creations(&self, run: &Run<'_, C>, plan: &mut Plan<C::Write>, results: &mut Results) {
        let deletions = run.work.iter().enumerate().filter(|(_, item)| item.action == ServiceAction::Delete);
        for (place, item) in deletions {
            let key = item.service.key();
            let parked = run.parked.values().find(|parked| parked.creates_for(&key)).map(|parked| parked.in_progress());
            if let Some(error) = parked.or_else(|| self.former(&item.service)) {
                results.fail(place, &error);
                plan.leave_out(place);
            }
        }
    }

    /// Whether the process that led before may have created a load balancer that reads do not show yet.
    fn former(&self, service: &Service) -> Option<ProviderError> {
        let is_new = service.has_finalizer() && service.status.load_balancer.ingress.is_empty();
        let left = self.cloud.former().filter(|_| is_new)?;
        Some(ProviderError::in_progress(
            "the cloud may not show yet what the process that led before has created",
            left,
        ))
    }

    /// Executes a plan, and returns the items that failed because another writer was faster.
    async fn execute(
        &self,
        cluster: &str,
        run: &Run<'_, C>,
        observed: &C::Observed,
        wanted: &C::Wanted,
        plan: &Plan<C::Write>,
        results: &mut Results,
    ) -> BTreeSet<usize> {
        let refused: BTreeMap<usize, ProviderError> =
            self.cloud.guard(observed, wanted, &plan.steps).into_iter().collect();
        for (place, error) in &plan.failed {
            results.fail(*place, error);
        }
        if !plan.steps.is_empty() {
            self.runs.fetch_add(1, Ordering::SeqCst);
            self.recent.lock().clear();
            let publish = |places| self.publish(cluster, run, observed, wanted, places).boxed();
            run.steps(&plan.steps, &refused, results, &publish).await;
            self.runs.fetch_add(1, Ordering::SeqCst);
        }
        results.conflicts()
    }

    /// Publishes the statuses of these Services. An error is left to the end of the call.
    async fn publish(
        &self,
        cluster: &str,
        run: &Run<'_, C>,
        before: &C::Observed,
        wanted: &C::Wanted,
        places: BTreeSet<usize>,
    ) {
        let after = self.cloud.observe_after(cluster, run.work, wanted, before);
        let Ok(observed) = within("observing the load balancer", READ_DEADLINE, after).await else { return };
        let Ok(left) = self.cloud.plan(&observed, wanted) else { return };
        for (place, item) in run.work.iter().enumerate() {
            let is_due = places.contains(&place) && !run.refused.contains(&place);
            if item.action == ServiceAction::Ensure && is_due {
                let (observed, left, service) = (&observed, &left, &*item.service);
                let reached = Reached { observed, made: run.made, wanted, service, place, left };
                self.cloud.status(&reached).into_iter().for_each(|status| run.scope.publish(place, status));
            }
        }
    }

    fn answer(
        &self,
        item: &ServiceWork,
        error: Option<ProviderError>,
        reached: &Reached<'_, C>,
        is_planned: bool,
    ) -> ServiceAnswer {
        let status = match item.action {
            ServiceAction::Delete => None,
            ServiceAction::Ensure | ServiceAction::UpdateHosts => self.cloud.status(reached),
        };
        let notes = self.cloud.notes(reached);
        let result = match (error, item.action, status.clone()) {
            (Some(error), _, _) => Err(error),
            (None, ServiceAction::Delete | ServiceAction::UpdateHosts, _) => Ok(None),
            // The cloud still returns the state before the writes. Without another read the address would never become
            // known.
            (None, ServiceAction::Ensure, None) if is_planned => {
                Err(reached.left.failed.get(&reached.place).cloned().unwrap_or_else(not_shown_yet))
            }
            (None, ServiceAction::Ensure, status) => Ok(status),
        };
        let again = if result.is_ok() { self.cloud.again(reached) } else { None };
        let status = if result.is_err() { status } else { None };
        ServiceAnswer { result, status, again, notes }
    }

    /// The observation that a plan is made of, and that plan, which has no steps for refused items.
    async fn first(
        &self,
        cluster: &str,
        run: &Run<'_, C>,
        wanted: &C::Wanted,
    ) -> Result<(C::Observed, Plan<C::Write>), ProviderError> {
        let (observed, mut plan) = match self.recent_of(run.work) {
            Some(observed) => {
                let plan = self.cloud.plan(&observed, wanted)?;
                (observed, plan)
            }
            None => {
                let first = self.cloud.first(cluster, run.work, wanted);
                within("observing the load balancer", READ_DEADLINE, first).await?
            }
        };
        run.refused.iter().for_each(|place| plan.leave_out(*place));
        Ok((observed, plan))
    }

    async fn look(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        wanted: &C::Wanted,
    ) -> Result<C::Observed, ProviderError> {
        within("observing the load balancer", READ_DEADLINE, self.cloud.observe(cluster, work, wanted)).await
    }

    /// Observes as for deletions, which find all owned objects and ignore annotations. One answer for each Service.
    async fn find(&self, cluster: &str, services: &[&Service]) -> Vec<Found> {
        let work: Vec<ServiceWork> =
            services.iter().map(|service| ServiceWork::new(service, &[], ServiceAction::Delete)).collect();
        let (wanted, verdicts) = self.verdicts(cluster, &work);
        let refused = |error: ProviderError| if error.is_implemented_elsewhere() { Ok(None) } else { Err(error) };
        if verdicts.iter().all(Result::is_err) {
            return verdicts.into_iter().map(|verdict| verdict.map_or_else(refused, |()| Ok(None))).collect();
        }
        let runs = self.runs.load(Ordering::SeqCst);
        let observed = match self.look(cluster, &work, &wanted).await {
            Ok(observed) => observed,
            Err(error) => return work.iter().map(|_| Err(error.clone())).collect(),
        };
        // A state that allows no plan shows that something is there.
        let plan = self.cloud.plan(&observed, &wanted).unwrap_or_else(|error| Plan::impossible(work.len(), &error));
        let made = C::Made::default();
        let of = |(place, verdict): (usize, Result<(), ProviderError>)| {
            let Some(service) = services.get(place).copied() else { return Ok(None) };
            if let Err(error) = verdict {
                return refused(error);
            }
            let reached = Reached { observed: &observed, made: &made, wanted: &wanted, service, place, left: &plan };
            let is_parked = || !self.memory.parked(&self.cloud.groups(service)).is_empty();
            let is_hidden = || service.needs_cleanup() && self.former(service).is_some();
            let is_left = reached.remains() || is_parked() || is_hidden();
            Ok(self.cloud.status(&reached).or_else(|| is_left.then(LoadBalancerStatus::default)))
        };
        let found: Vec<Found> = verdicts.into_iter().enumerate().map(of).collect();
        if let ([Ok(Some(_))], [service]) = (&found[..], services) {
            let mut recent = self.recent.lock();
            recent.retain(|_, recent| recent.at.elapsed() < RECENT);
            let uid = service.metadata.uid.to_string();
            recent.insert(service.key(), Recent { at: Instant::now(), runs, uid, observed });
        }
        found
    }

    /// The observation that has just found something to delete.
    fn recent_of(&self, work: &[ServiceWork]) -> Option<C::Observed> {
        let [item] = work else { return None };
        if item.action != ServiceAction::Delete {
            return None;
        }
        let recent = self.recent.lock().remove(&item.service.key())?;
        let is_current = recent.at.elapsed() < RECENT
            && recent.runs == self.runs.load(Ordering::SeqCst)
            && *recent.uid == *item.service.metadata.uid;
        is_current.then_some(recent.observed)
    }

    /// The desired state; `None` if another controller implements it: a real run treats that as done, so the plan is
    /// empty and there is no error.
    fn wanted_of(&self, cluster: &str, work: &[ServiceWork]) -> Result<Option<C::Wanted>, ProviderError> {
        let (wanted, verdicts) = self.cloud.wanted(cluster, work);
        match verdicts.into_iter().collect::<Result<Vec<_>, _>>() {
            Err(error) if error.is_implemented_elsewhere() => Ok(None),
            verdicts => verdicts.map(|_| Some(wanted)),
        }
    }

    /// The plan, with the refusals of a real run as findings.
    fn printed(
        &self,
        work: &ServiceWork,
        observed: &C::Observed,
        wanted: &C::Wanted,
    ) -> Result<Printed, ProviderError> {
        let Plan { steps, mut findings, failed } = self.cloud.plan(observed, wanted)?;
        // A real run treats a load balancer of another controller as done.
        if let Some(error) = failed.into_values().find(|error| !error.is_implemented_elsewhere()) {
            if steps.is_empty() {
                return Err(error);
            }
            findings.push(Finding::new(Severity::Error, "load balancer", error.to_string()));
        }
        // A real run would not execute these, so the dry run must not look successful.
        for (_, refusal) in self.cloud.guard(observed, wanted, &steps) {
            findings.push(Finding::new(Severity::Error, "guard", format!("the plan would be refused: {refusal}")));
        }
        Ok(Printed { subject: subject(work), steps: steps.into_iter().map(Step::printed).collect(), findings })
    }
}

impl Results {
    /// Replaces the results of the items that were planned again.
    fn take_over(&mut self, second: Results, still: &BTreeSet<usize>) {
        let again = self.conflicts();
        self.written += second.written;
        self.lost.extend(second.lost);
        for (place, error) in second.errors.into_iter().enumerate() {
            if !again.contains(&place) {
                continue;
            }
            if let Some(known) = self.errors.get_mut(place) {
                *known = error;
            }
        }
        if !still.is_empty() {
            tracing::debug!(items = ?still, "another writer was faster twice");
        }
    }
}

/// Executes steps outside of the controllers, for commands.
///
/// # Errors
///
/// A write failed; those that depend on it were not sent.
pub async fn write_all<C: BalancerCloud>(
    cloud: &C,
    work: &[ServiceWork],
    steps: &[Step<C::Write>],
) -> Result<(), ProviderError> {
    let made = C::Made::default();
    let (memory, groups, refused) = (&Memory::of(C::ANNOTATIONS), &BTreeSet::new(), &BTreeSet::new());
    let (scope, parked) = (&Scope::default(), BTreeMap::new());
    let run = Run { cloud, memory, work, refused, groups, made: &made, scope, parked };
    let mut results = Results::new(work.len());
    run.steps(steps, &BTreeMap::new(), &mut results, &|_| std::future::ready(()).boxed()).await;
    results.errors.into_iter().flatten().next().map_or(Ok(()), Err)?;
    cloud.finish(&made)
}

fn failed_all(results: &Results) -> Vec<ServiceAnswer> {
    let answer = |error: &Option<ProviderError>| error.clone().map_or(Ok(None), Err).into();
    results.errors.iter().map(answer).collect()
}

fn not_shown_yet() -> ProviderError {
    ProviderError::retry("the load balancer was created, but the cloud does not show it yet; checked again", NOT_SHOWN)
}

fn subject(work: &ServiceWork) -> String {
    format!("service {}", work.service.key())
}

#[async_trait]
impl<C: BalancerCloud> LoadBalancer for Engine<C> {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        if !self.cloud.shares_lookups() {
            return self.find(cluster, &[service]).await.pop().unwrap_or(Ok(None));
        }
        match self.lookups.turn(service).await {
            ControlFlow::Break(found) => found,
            ControlFlow::Continue(turn) => {
                let found = self.find(cluster, &turn.services(service)).await;
                turn.answer(found)
            }
        }
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.cloud.backend(service, node)
    }

    fn related(&self) -> Related {
        self.cloud.related()
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        self.cloud.only_nodes_with_endpoints(service)
    }

    fn unselective(&self, service: &Service) -> Option<Service> {
        self.cloud.unselective(service)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.cloud.groups(service)
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.cloud.finalizers(service)
    }

    fn adds_finalizers(&self) -> bool {
        self.cloud.adds_finalizers()
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer> {
        let began = Instant::now();
        let answers = self.run(cluster, work, scope).await;
        for (item, answer) in work.iter().zip(&answers) {
            if !answer.result.as_ref().is_err_and(ProviderError::is_in_progress) {
                self.cloud.ended(item.action, answer.result.is_ok(), began.elapsed());
            }
        }
        answers
    }

    async fn observe(&self, cluster: &str, work: &ServiceWork) -> Result<Value, ProviderError> {
        let one = std::slice::from_ref(work);
        let Some(wanted) = self.wanted_of(cluster, one)? else { return Ok(Value::Null) };
        let mut observed = self.look(cluster, one, &wanted).await?;
        self.cloud.strip(&mut observed, &wanted);
        serde_json::to_value(observed)
            .map_err(|error| ProviderError::bug(format!("the observed state is not JSON: {error}")))
    }

    fn plan_observed(&self, cluster: &str, work: &ServiceWork, observed: &Value) -> Result<Printed, ProviderError> {
        let Some(wanted) = self.wanted_of(cluster, std::slice::from_ref(work))? else {
            return Ok(Printed::new(subject(work)));
        };
        let observed = C::Observed::deserialize(observed).map_err(|error| {
            let text = format!("the observed state for the Service {} cannot be read: {error}", work.service.key());
            ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
        })?;
        self.printed(work, &observed, &wanted)
    }
}
