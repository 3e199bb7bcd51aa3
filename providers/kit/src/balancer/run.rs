//! Executes the steps of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use ccm_provider::{ErrorClass, GroupKey, ProviderError, Scope, ServiceWork, Verb};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::memory::{Memory, Parked, REFUSED, is_final};
use super::schedule::Schedule;
use super::step::{Part, Step};
use super::{BalancerCloud, Operation, Progress, Written};
use crate::lock::lock;

/// A call waits so long for operations while nothing else happens.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same if other Services of the call are ready for their answers.
const OTHERS_WAIT: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two polls of an operation; in between it is a fifth of its age.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The execution of one plan.
pub(super) struct Run<'a, C: BalancerCloud> {
    pub(super) cloud: &'a C,
    pub(super) memory: &'a Memory,
    pub(super) work: &'a [ServiceWork],
    pub(super) groups: &'a BTreeSet<GroupKey>,
    pub(super) made: &'a C::Made,
    pub(super) scope: &'a Scope,
    /// Operations of earlier calls that are not done, by object.
    pub(super) parked: &'a BTreeMap<String, Parked>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Results {
    /// The first failure of each item. What is only in progress gives way to others, and to that what is not this
    /// provider's.
    pub(super) errors: Vec<Option<ProviderError>>,
    /// The number of writes that succeeded.
    pub(super) written: usize,
    /// The objects with which another writer was faster.
    pub(super) lost: BTreeSet<String>,
    /// The parts that failed, by item.
    failed: Vec<BTreeSet<Part>>,
    /// The refused steps, by index.
    refused: BTreeMap<usize, ProviderError>,
    /// The objects that were deleted.
    deleted: BTreeSet<String>,
}

impl Results {
    pub(super) fn new(count: usize) -> Self {
        let (lost, refused, deleted) = Default::default();
        Self { errors: vec![None; count], written: 0, lost, failed: vec![BTreeSet::new(); count], refused, deleted }
    }

    /// Records an error of one item.
    pub(super) fn fail(&mut self, place: usize, error: &ProviderError) {
        let weight = |error: &ProviderError| match error {
            error if error.is_implemented_elsewhere() => 0,
            error if error.is_in_progress() => 1,
            _ => 2,
        };
        if let Some(known) = self.errors.get_mut(place)
            && known.as_ref().is_none_or(|known| weight(known) < weight(error))
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
type Accepted = Mutex<BTreeMap<usize, (Operation, Instant)>>;

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
                let Some(step) = steps.get(index) else { continue };
                let prevented = match refused.get(&index) {
                    _ if results.is_blocked(step) => {
                        if self.is_missed(step, steps, results) {
                            running.push(self.step(index, step, true, &accepted));
                            continue;
                        }
                        None
                    }
                    Some(error) => Some(error.clone()),
                    // Its refusal was reported.
                    None if step.optional && self.memory.refusal(step, self.work).is_some() => None,
                    None => match self.prevented(step).or_else(|| self.refused_after(index, steps)) {
                        Some(error) => Some(error),
                        None => {
                            running.push(self.step(index, step, false, &accepted));
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
                        self.ended(index, step, result, results);
                    }
                    due.extend(schedule.after(index));
                }
                Ok(None) => return,
                Err(_) if lock(&accepted).len() == running.len() => {
                    running.clear();
                    for (index, (operation, since)) in std::mem::take(&mut *lock(&accepted)) {
                        let Some(step) = steps.get(index) else { continue };
                        results.fail_step(step, &self.park(step, operation, since));
                        due.extend(schedule.after(index));
                    }
                }
                // A write has no answer yet.
                Err(_) => looked = Instant::now(),
            }
        }
    }

    /// The reason not to execute a step.
    fn prevented(&self, step: &Step<C::Write>) -> Option<ProviderError> {
        let of_object = self.parked.get(&step.object()).map(Parked::in_progress);
        let refusal = || self.memory.refusal(step, self.work).filter(|_| step.instead.is_none());
        of_object.or_else(refusal).or_else(|| self.scope.may_write().err())
    }

    /// Whether what a step replaces was deleted before another one of its part was refused. That is remembered: otherwise
    /// each call would delete what the one before has restored.
    fn is_missed(&self, step: &Step<C::Write>, steps: &[Step<C::Write>], results: &Results) -> bool {
        if step.restore.is_empty() || !results.deleted.contains(&step.object()) {
            return false;
        }
        let mut refused = results.refused.iter().filter_map(|(index, error)| Some((steps.get(*index)?, error)));
        let cause = refused.find(|(cause, _)| step.is_blocked_by(&cause.part) && step.items.overlap(&cause.items));
        if let Some((cause, error)) = cause {
            self.memory.keep(cause, self.work, error, REFUSED);
        }
        cause.is_some()
    }

    /// The refusal of a creation for which a deletion makes room, or of an attachment for which something is detached, or
    /// of a step of their part in between: what is there stays.
    fn refused_after(&self, index: usize, steps: &[Step<C::Write>]) -> Option<ProviderError> {
        let deletion = steps.get(index)?;
        let verb = match deletion.summary.verb {
            Verb::Delete => Verb::Create,
            Verb::Detach => Verb::Attach,
            Verb::Create | Verb::Update | Verb::Attach => return None,
        };
        let is_successor = |step: &&Step<C::Write>| {
            step.summary.verb == verb && step.instead.is_none() && deletion.makes_room_for(step)
        };
        let later = || steps.iter().skip(index + 1);
        let returns = later().position(|step| !step.restore.is_empty() && step.object() == deletion.object());
        let between = later().take(returns.unwrap_or_default()).filter(|step| deletion.makes_room_for(step));
        later().filter(is_successor).chain(between).find_map(|step| self.memory.refusal(step, self.work))
    }

    fn park(&self, step: &Step<C::Write>, operation: Operation, since: Instant) -> ProviderError {
        let services = step.items.of(self.work.len()).into_iter();
        let services = services.filter_map(|place| Some(self.work.get(place)?.service.key()));
        let (groups, services, verb) = (self.groups.clone(), services.collect(), step.summary.verb);
        let parked = Parked { operation, groups, services, verb, since };
        let error = parked.in_progress();
        self.memory.park(step.object(), parked);
        error
    }

    fn ended(&self, index: usize, step: &Step<C::Write>, result: Result<(), ProviderError>, results: &mut Results) {
        match result {
            Ok(()) => {
                results.written += 1;
                results.deleted.extend((step.summary.verb == Verb::Delete).then(|| step.object()));
            }
            Err(error) if step.optional && is_refusal(&error) => {
                let concerned = step.items.of(self.work.len()).into_iter();
                let work: Vec<ServiceWork> = concerned.filter_map(|place| self.work.get(place).cloned()).collect();
                self.cloud.report_refusal(&work, step, &error);
            }
            Err(error) => {
                results.fail_step(step, &error);
                if is_refusal(&error) {
                    results.refused.insert(index, error);
                }
            }
        }
    }

    /// One step, with its replacement, the return of what it replaces, or the removal of its remains. Of one that is
    /// blocked only the return.
    async fn step(
        &self,
        index: usize,
        step: &Step<C::Write>,
        is_blocked: bool,
        accepted: &Accepted,
    ) -> (usize, Result<(), ProviderError>) {
        if is_blocked {
            self.restore(index, step, accepted).await;
            return (index, Ok(()));
        }
        // A step that was refused before has another one for this case.
        let refused = self.memory.refusal(step, self.work).map(|error| Err(error.into()));
        let mut result = match refused {
            Some(refused) => refused,
            None => self.write(index, step, accepted).await.inspect_err(|failure| {
                // Each trial takes away what the step replaces.
                let lasts = match step.restore.is_empty() {
                    true => self.cloud.remembers(&failure.error),
                    false => REFUSED,
                };
                self.memory.note(step, self.work, &failure.error, lasts);
            }),
        };
        if let (Err(failure), Some(instead)) = (&result, &step.instead)
            && is_refusal(&failure.error)
        {
            result = self.write(index, instead, accepted).await;
        }
        if result.as_ref().is_err_and(|failure| is_refusal(&failure.error)) {
            self.restore(index, step, accepted).await;
        }
        if let (Err(Failure { error, was_accepted: true }), Some(undo)) = (&result, &step.undo)
            && let Err(Failure { error: second, .. }) = self.write(index, undo, accepted).await
        {
            tracing::warn!(object = undo.object(), %error, %second, "the rest of a failed write is not removed yet");
        }
        (index, result.map_err(|failure| failure.error))
    }

    /// Creates again what was deleted for a step.
    async fn restore(&self, index: usize, step: &Step<C::Write>, accepted: &Accepted) {
        for restore in &step.restore {
            if let Err(Failure { error, .. }) = self.write(index, restore, accepted).await {
                tracing::warn!(object = restore.object(), %error, "what a refused write replaces is not there again");
            }
        }
    }

    async fn write(&self, index: usize, step: &Step<C::Write>, accepted: &Accepted) -> Result<(), Failure> {
        self.scope.may_write()?;
        let limit = self.cloud.write_deadline();
        let late = || {
            let summary = &step.summary;
            let call = format!("{} {} {}", summary.verb.as_str(), summary.kind, summary.id);
            Err(ProviderError::deadline(&call, limit))
        };
        let write = self.cloud.write(step, self.made, self.scope);
        let operation = match tokio::time::timeout(limit, write).await.unwrap_or_else(|_| late())? {
            Written::Done => return Ok(()),
            Written::Failed(error) => return Err(Failure { error, was_accepted: true }),
            Written::Accepted(operation) => operation,
        };
        lock(accepted).insert(index, (operation.clone(), Instant::now()));
        let end = self.until_done(&operation).await;
        lock(accepted).remove(&index);
        end.map_err(|error| Failure { was_accepted: !error.is_in_progress(), error })?;
        Ok(self.cloud.completed(step, self.made).await?)
    }

    async fn until_done(&self, operation: &Operation) -> Result<(), ProviderError> {
        let began = Instant::now();
        loop {
            match self.scope.waiting(self.cloud.poll(operation)).await? {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Failed(error)) => return Err(error),
                Ok(Progress::Running) => {}
                Err(error) => tracing::debug!(operation = operation.name, %error, "the operation is read again"),
            }
            let pause = (began.elapsed() / 5).clamp(PAUSE.0, PAUSE.1);
            self.scope.waiting(tokio::time::sleep(pause)).await?;
        }
    }
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
