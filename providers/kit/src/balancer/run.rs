//! Executes the steps of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm_provider::{ErrorClass, GroupKey, ProviderError, Scope, ServiceWork};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::memory::{Memory, Parked, REFUSED, Removed, Request, is_final};
use super::schedule::Schedule;
use super::step::{Part, Step};
use super::{BalancerCloud, Operation, Progress, Written};
use crate::lock::lock;

/// A call waits so long for operations while nothing else happens.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The same if other Services of the call are ready for their answers.
const OTHERS_WAIT: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two polls of an operation; in between it is a fifth of its age.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The execution of one plan.
pub(super) struct Run<'a, C: BalancerCloud> {
    pub(super) cloud: &'a C,
    pub(super) memory: &'a Memory<C::Write>,
    pub(super) work: &'a [ServiceWork],
    pub(super) groups: &'a BTreeSet<GroupKey>,
    pub(super) made: &'a C::Made,
    pub(super) scope: &'a Scope,
    /// Operations of earlier calls and plans that are not done, by object.
    pub(super) parked: BTreeMap<String, Arc<Parked<C::Write>>>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Results {
    /// The first failure of each item; one that is only in progress gives way to others.
    pub(super) errors: Vec<Option<ProviderError>>,
    /// The number of writes that succeeded.
    pub(super) written: usize,
    /// The objects with which another writer was faster.
    pub(super) lost: BTreeSet<String>,
    /// The parts that failed, by item.
    failed: Vec<BTreeSet<Part>>,
}

impl Results {
    pub(super) fn new(count: usize) -> Self {
        Self { errors: vec![None; count], written: 0, lost: BTreeSet::new(), failed: vec![BTreeSet::new(); count] }
    }

    /// Records an error of one item.
    pub(super) fn fail(&mut self, place: usize, error: &ProviderError) {
        if let Some(known) = self.errors.get_mut(place)
            && known.as_ref().is_none_or(|known| known.is_in_progress() && !error.is_in_progress())
        {
            *known = Some(error.clone());
        }
    }

    pub(super) fn has_failed(&self, place: usize) -> bool {
        self.errors.get(place).is_some_and(Option::is_some)
    }

    /// The items that failed because another writer was faster.
    pub(super) fn conflicts(&self) -> BTreeSet<usize> {
        let is_conflict = |error: &ProviderError| error.class() == ErrorClass::Conflict;
        let conflicts = self.errors.iter().enumerate().filter(|(_, error)| error.as_ref().is_some_and(is_conflict));
        conflicts.map(|(place, _)| place).collect()
    }

    /// Records the failure of a step for its items.
    fn fail_step<W>(&mut self, step: &Step<W>, error: &ProviderError) {
        if error.class() == ErrorClass::Conflict {
            self.lost.insert(step.object());
        }
        for place in step.items.of(self.errors.len()) {
            if self.blocks(place, step) {
                continue;
            }
            self.fail(place, error);
            if let Some(failed) = self.failed.get_mut(place) {
                failed.insert(step.part.clone());
            }
        }
    }

    fn blocks<W>(&self, place: usize, step: &Step<W>) -> bool {
        self.failed.get(place).is_some_and(|failed| failed.iter().any(|part| step.is_blocked_by(part)))
    }

    /// Whether earlier failures leave no item for the step.
    fn is_blocked<W>(&self, step: &Step<W>) -> bool {
        step.items.of(self.errors.len()).into_iter().all(|place| self.blocks(place, step))
    }
}

/// The accepted writes of a run, by step.
pub(super) type Accepted = Mutex<BTreeMap<usize, Running>>;

/// A write that the cloud works on.
pub(super) struct Running {
    pub(super) operation: Operation,
    pub(super) since: Instant,
    /// Whether it is the step itself, not what is executed after its failure.
    is_step: bool,
}

/// How a write is sent.
pub(super) struct Sending<'s> {
    pub(super) index: usize,
    pub(super) is_step: bool,
    pub(super) scope: &'s Scope,
    pub(super) accepted: &'s Accepted,
}

impl<C: BalancerCloud> Run<'_, C> {
    /// Executes the steps; `refused` are those that the guard refuses.
    pub(super) async fn steps(
        &self,
        steps: &[Step<C::Write>],
        refused: &BTreeMap<usize, ProviderError>,
        results: &mut Results,
    ) {
        let mut schedule = Schedule::new(steps, self.work.len());
        let with_steps: Vec<usize> = (0..self.work.len()).filter(|place| !schedule.has_ended(*place)).collect();
        let accepted = Accepted::default();
        let mut running = FuturesUnordered::new();
        let mut due = schedule.first();
        let mut last = Instant::now();
        let mut looked = last;
        loop {
            while let Some(index) = due.pop() {
                let Some((step, later)) = at(steps, index) else { continue };
                let prevented = match refused.get(&index) {
                    _ if results.is_blocked(step) => None,
                    Some(error) => Some(error.clone()),
                    // Its refusal was reported.
                    None if step.optional && self.memory.refusal(step, self.work).is_some() => None,
                    None => match self.prevented(step, later).or_else(|| self.refused_after(step, later)) {
                        Some(error) => Some(error),
                        None => {
                            running.push(self.step(index, steps, &accepted));
                            continue;
                        }
                    },
                };
                if let Some(error) = prevented {
                    results.fail_step(step, &error);
                }
                due.extend(schedule.after(index));
            }
            if running.is_empty() {
                return;
            }
            let others_wait = with_steps.iter().any(|place| schedule.has_ended(*place));
            let patience = if others_wait { OTHERS_WAIT } else { PATIENCE };
            let look = (last + patience).max(looked + OTHERS_WAIT);
            match tokio::time::timeout_at(look, running.next()).await {
                Ok(Some((index, result))) => {
                    last = Instant::now();
                    if let Some(step) = steps.get(index) {
                        self.ended(step, result, results);
                    }
                    due.extend(schedule.after(index));
                }
                Ok(None) => return,
                // A write has no answer yet, or its Service has no traffic until it is done.
                Err(_) if lock(&accepted).len() < running.len() => looked = Instant::now(),
                Err(_) if last.elapsed() < PATIENCE && self.replaces_any(&accepted, steps) => looked = Instant::now(),
                Err(_) => {
                    running.clear();
                    for (index, running) in std::mem::take(&mut *lock(&accepted)) {
                        let Some((step, later)) = at(steps, index) else { continue };
                        results.fail_step(step, &self.park(step, later, running));
                        due.extend(schedule.after(index));
                    }
                }
            }
        }
    }

    /// The reason not to execute a step.
    fn prevented(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> Option<ProviderError> {
        let of_object = self.parked.get(&step.object()).map(|parked| parked.in_progress());
        let has_next = || step.instead.is_some() || self.memory.removed_for(step, self.work).is_some();
        let refusal = || self.memory.refusal(step, self.work).filter(|_| !has_next());
        let ends = || match self.is_replacing(step, later) {
            true => self.scope.completing().may_write().err(),
            false => self.scope.may_write().err(),
        };
        of_object.or_else(refusal).or_else(ends)
    }

    /// The refusal of a creation for which a deletion makes room, or of an attachment for which something is detached:
    /// what is there stays.
    fn refused_after(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> Option<ProviderError> {
        let mut successors = step.successors(later).filter(|next| next.instead.is_none());
        successors.find_map(|next| self.memory.refusal(next, self.work))
    }

    /// Whether a Service of the step lacks what this or a later step makes again: a shutdown waits for them.
    fn is_replacing(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> bool {
        let lacks = |next: &Step<C::Write>| {
            next.items.overlap(&step.items) && self.memory.removed_for(next, self.work).is_some()
        };
        self.memory.replaces() && (lacks(step) || later.iter().any(lacks))
    }

    fn replaces_any(&self, accepted: &Accepted, steps: &[Step<C::Write>]) -> bool {
        let running: Vec<usize> = lock(accepted).keys().copied().collect();
        let mut running = running.into_iter().filter_map(|index| at(steps, index));
        running.any(|(step, later)| Removed::by(step, later, self.work).is_some() || self.is_replacing(step, later))
    }

    /// What comes back if the cloud refuses the step.
    fn restored_after(&self, step: &Step<C::Write>) -> Option<Arc<Step<C::Write>>> {
        step.restore.clone().or_else(|| self.memory.removed_for(step, self.work))
    }

    fn park(&self, step: &Step<C::Write>, later: &[Step<C::Write>], running: Running) -> ProviderError {
        let services = step.items.of(self.work.len()).into_iter();
        let services = services.filter_map(|place| Some(self.work.get(place)?.service.key()));
        let Running { operation, since, is_step } = running;
        let own = Some(step).filter(|_| is_step);
        let parked = Parked {
            operation,
            groups: self.groups.clone(),
            services: services.collect(),
            verb: step.summary.verb,
            since,
            request: own.and_then(|step| Request::of(step, self.work)),
            restore: own.and_then(|step| self.restored_after(step)),
            room: own.and_then(|step| Removed::by(step, later, self.work)),
        };
        let error = parked.in_progress();
        self.memory.park(step.object(), parked);
        error
    }

    fn ended(&self, step: &Step<C::Write>, result: Result<(), ProviderError>, results: &mut Results) {
        match result {
            Ok(()) => results.written += 1,
            Err(error) if step.optional && is_refusal(&error) => {
                let concerned = step.items.of(self.work.len()).into_iter();
                let work: Vec<ServiceWork> = concerned.filter_map(|place| self.work.get(place).cloned()).collect();
                self.cloud.report_refusal(&work, step, &error);
            }
            Err(error) => results.fail_step(step, &error),
        }
    }

    /// One step, with its replacement, the return of what it replaces, or the removal of its remains.
    async fn step(
        &self,
        index: usize,
        steps: &[Step<C::Write>],
        accepted: &Accepted,
    ) -> (usize, Result<(), ProviderError>) {
        let Some((step, later)) = at(steps, index) else { return (index, Ok(())) };
        let room = Removed::by(step, later, self.work);
        let scope = match room.is_some() || self.is_replacing(step, later) {
            true => self.scope.completing(),
            false => self.scope.clone(),
        };
        let sending = Sending { index, is_step: true, scope: &scope, accepted };
        let after = Sending { is_step: false, ..sending };
        let restore = self.restored_after(step);
        // A step that was refused before has another one for this case.
        let refused = self.memory.refusal(step, self.work).map(|error| Err(error.into()));
        let mut result = match refused {
            Some(refused) => refused,
            None => self.write(step, &sending).await.inspect_err(|failure| {
                let lasts = self.remembers(restore.is_some(), &failure.error);
                self.memory.note(Request::of(step, self.work), &failure.error, lasts);
            }),
        };
        if let (Err(failure), Some(instead)) = (&result, &step.instead)
            && is_refusal(&failure.error)
        {
            result = self.write(instead, &after).await;
        }
        match (&result, restore) {
            (Ok(()), _) => {
                self.memory.is_replaced(&step.object());
                room.into_iter().for_each(|room| self.memory.removed(room));
            }
            (Err(failure), Some(restore)) if is_refusal(&failure.error) => {
                self.bring_back(&step.object(), &restore, &after).await;
            }
            _ => {}
        }
        if let (Err(Failure { error, was_accepted: true }), Some(undo)) = (&result, &step.undo)
            && let Err(Failure { error: second, .. }) = self.write(undo, &after).await
        {
            tracing::warn!(object = undo.object(), %error, %second, "the rest of a failed write is not removed yet");
        }
        (index, result.map_err(|failure| failure.error))
    }

    /// For how long a refusal is remembered. Each trial takes away what the step replaces.
    pub(super) fn remembers(&self, replaces: bool, error: &ProviderError) -> Duration {
        if replaces { REFUSED } else { self.cloud.remembers(error) }
    }

    /// Makes again what a refused write replaces.
    pub(super) async fn bring_back(&self, object: &str, restore: &Step<C::Write>, sending: &Sending<'_>) {
        let scope = self.scope.completing();
        let written = self.write(restore, &Sending { scope: &scope, ..*sending }).await;
        if let Err(Failure { error, .. }) = &written {
            tracing::warn!(object, %error, "what a refused write replaces is not there again");
        }
        // After other errors, the next call tries again.
        if written.as_ref().err().is_none_or(|failure| is_refusal(&failure.error)) {
            self.memory.is_replaced(object);
        }
    }

    async fn write(&self, step: &Step<C::Write>, sending: &Sending<'_>) -> Result<(), Failure> {
        let Sending { index, is_step, scope, accepted } = *sending;
        scope.may_write()?;
        let limit = self.cloud.write_deadline();
        let late = || {
            let summary = &step.summary;
            let call = format!("{} {} {}", summary.verb.as_str(), summary.kind, summary.id);
            Err(ProviderError::deadline(&call, limit))
        };
        let write = self.cloud.write(step, self.made, scope);
        let operation = match tokio::time::timeout(limit, write).await.unwrap_or_else(|_| late())? {
            Written::Done => return Ok(()),
            Written::Failed(error) => return Err(Failure { error, was_accepted: true }),
            Written::Accepted(operation) => operation,
        };
        let running = Running { operation: operation.clone(), since: Instant::now(), is_step };
        lock(accepted).insert(index, running);
        let end = self.until_done(&operation, scope).await;
        lock(accepted).remove(&index);
        end.map_err(|error| Failure { was_accepted: !error.is_in_progress(), error })?;
        Ok(self.cloud.completed(step, self.made).await?)
    }

    async fn until_done(&self, operation: &Operation, scope: &Scope) -> Result<(), ProviderError> {
        let began = Instant::now();
        loop {
            match scope.waiting(self.cloud.poll(operation)).await? {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Failed(error)) => return Err(error),
                Ok(Progress::Running) => {}
                Err(error) => tracing::debug!(operation = operation.name, %error, "the operation is read again"),
            }
            let pause = (began.elapsed() / 5).clamp(PAUSE.0, PAUSE.1);
            scope.waiting(tokio::time::sleep(pause)).await?;
        }
    }
}

/// A step, and those after it.
fn at<W>(steps: &[Step<W>], index: usize) -> Option<(&Step<W>, &[Step<W>])> {
    steps.get(index..)?.split_first()
}

/// The failure of a write.
struct Failure {
    error: ProviderError,
    was_accepted: bool,
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self { error, was_accepted: false }
    }
}

/// Whether the cloud changed nothing and refuses the request.
pub fn is_refusal(error: &ProviderError) -> bool {
    is_final(error) || matches!(error.class(), ErrorClass::Denied { .. })
}
