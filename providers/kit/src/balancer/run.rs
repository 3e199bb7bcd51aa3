//! Executes the steps of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{ErrorClass, GroupKey, ProviderError, Scope, ServiceWork, Verb};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either};
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::memory::{DENIED, Memory, Parked, REFUSED, Removed, Request, is_final};
use super::schedule::Schedule;
use super::step::{Part, Step};
use super::{BalancerCloud, Operation, Progress, Written};

/// A call waits so long for operations while nothing else happens.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The same if other Services of the call are ready for their answers, or others wait for its end.
const OTHERS_WAIT: Duration = Duration::from_secs(1);
/// An operation that is not done after this time is reported as a failure, and looked at in these intervals.
const LONG: (Duration, Duration) = (Duration::from_secs(1800), Duration::from_secs(60));
/// The shortest and the longest pause between two polls of an operation; in between it is a third of its age.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The execution of one plan.
pub(super) struct Run<'a, C: BalancerCloud> {
    pub(super) cloud: &'a C,
    pub(super) memory: &'a Memory<C::Write>,
    pub(super) work: &'a [ServiceWork],
    /// The items for which [`BalancerCloud::wanted`] gave an error.
    pub(super) refused: &'a BTreeSet<usize>,
    pub(super) groups: &'a BTreeSet<GroupKey>,
    pub(super) made: &'a C::Made,
    pub(super) scope: &'a Scope,
    /// Operations of earlier calls and plans that are not done, by object.
    pub(super) parked: BTreeMap<String, Arc<Parked<C::Write>>>,
}

/// Publishes the statuses of Services whose steps have ended, while a write for another one has no answer yet.
pub(super) type Publish<'p> = dyn Fn(BTreeSet<usize>) -> BoxFuture<'p, ()> + Sync + 'p;

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
    /// The errors of steps, by index.
    by_step: BTreeMap<usize, ProviderError>,
    /// The steps that were done, by index. The result of one may not be what is needed.
    done: BTreeSet<usize>,
}

impl Results {
    pub(super) fn new(count: usize) -> Self {
        let (lost, by_step, done) = Default::default();
        Self { errors: vec![None; count], written: 0, lost, failed: vec![BTreeSet::new(); count], by_step, done }
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
pub(super) type Accepted = Mutex<BTreeMap<usize, Running>>;

/// A write that the cloud works on.
pub(super) struct Running {
    pub(super) operation: Operation,
    pub(super) since: Instant,
    /// Whether it is the step itself, not what is executed after its failure.
    is_step: bool,
    /// Whether nothing follows it: it is no restoration before another one.
    pub(super) is_last: bool,
}

/// How a write is sent.
pub(super) struct Sending<'s> {
    pub(super) index: usize,
    pub(super) is_step: bool,
    pub(super) is_last: bool,
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
        publish: &Publish<'_>,
    ) {
        let mut schedule = Schedule::new(steps, self.work.len());
        let with_steps: Vec<usize> = (0..self.work.len()).filter(|place| !schedule.has_ended(*place)).collect();
        let (accepted, mut published, mut publishing) = (Accepted::default(), BTreeSet::new(), 0);
        let mut running = FuturesUnordered::new();
        let mut due = schedule.first();
        let mut last = Instant::now();
        let mut looked = last;
        loop {
            while let Some(index) = due.pop() {
                let Some((step, later)) = at(steps, index) else { continue };
                let prevented = match refused.get(&index) {
                    _ if results.is_blocked(step) => {
                        let is_missed = self.is_missed(step, steps, results);
                        if is_missed || self.is_left(step, steps, results) {
                            running.push(Either::Left(self.step(index, steps, is_missed, &accepted)));
                            continue;
                        }
                        None
                    }
                    Some(error) => Some(error.clone()),
                    // Its refusal was reported.
                    None if step.optional && self.memory.refusal(step, self.work).is_some() => None,
                    None => match self.prevented(step, later).or_else(|| self.refused_after(step, later)) {
                        Some(error) => Some(error),
                        None => {
                            running.push(Either::Left(self.step(index, steps, false, &accepted)));
                            continue;
                        }
                    },
                };
                if let Some(error) = prevented {
                    results.fail_step(step, &error);
                }
                due.extend(schedule.after(index));
            }
            // The end of the call has all statuses.
            if running.len() == publishing {
                return;
            }
            let others_wait = self.scope.is_waited_for() || with_steps.iter().any(|place| schedule.has_ended(*place));
            let patience = if others_wait { OTHERS_WAIT } else { PATIENCE };
            let look = (last + patience).max(looked + OTHERS_WAIT);
            // Others may wait from now on.
            let soon = look.min(Instant::now() + OTHERS_WAIT);
            match tokio::time::timeout_at(soon, running.next()).await {
                Ok(Some((index, result))) => {
                    last = Instant::now();
                    match steps.get(index) {
                        Some(step) => self.ended(index, step, result, results),
                        None => publishing -= 1,
                    }
                    due.extend(schedule.after(index));
                }
                Ok(None) => return,
                Err(_) if soon < look => {}
                // A write has no answer yet, or its Service has no traffic until it is done.
                Err(_) if accepted.lock().len() + publishing < running.len() => {
                    looked = Instant::now();
                    let ready = |place: &&usize| schedule.has_ended(**place) && !results.has_failed(**place);
                    let ready: BTreeSet<usize> = with_steps.iter().filter(ready).copied().collect();
                    let ready: BTreeSet<usize> = &ready - &published;
                    if !ready.is_empty() {
                        published.extend(&ready);
                        publishing += 1;
                        running.push(Either::Right(publish(ready).map(|()| (steps.len(), Ok(())))));
                    }
                }
                Err(_) if last.elapsed() < PATIENCE && self.replaces_any(&accepted, steps) => looked = Instant::now(),
                Err(_) => {
                    running.clear();
                    for (index, running) in std::mem::take(&mut *accepted.lock()) {
                        let Some((step, later)) = at(steps, index) else { continue };
                        results.fail_step(step, &self.park(step, later, running));
                        due.extend(schedule.after(index));
                    }
                }
            }
        }
    }

    /// The answer to a Service that waits: an operation that goes on for long is a failure that its user should see.
    pub(super) fn reported(&self, item: &ServiceWork, error: ProviderError) -> ProviderError {
        let key = item.service.key();
        let is_long = |one: &Parked<C::Write>| one.services.contains(&key) && one.since.elapsed() >= LONG.0;
        if !error.is_in_progress() || !self.parked.values().any(|one| is_long(one)) {
            return error;
        }
        let text = format!("{error} after half an hour; see why it does not end");
        ProviderError::new(ErrorClass::Transient { after: Some(LONG.1) }, text)
    }

    /// The reason not to execute a step.
    fn prevented(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> Option<ProviderError> {
        let of_object = self.parked.get(&step.object()).map(|parked| parked.in_progress());
        let comes_back = || self.memory.removed_for(step, self.work).is_some();
        let refusal = || self.memory.refusal(step, self.work).filter(|_| !comes_back());
        let ends = || match self.is_replacing(step, later) {
            true => self.scope.completing().may_write().err(),
            false => self.scope.may_write().err(),
        };
        of_object.or_else(refusal).or_else(ends)
    }

    /// Whether what was removed for the step comes back although its failure may pass: it is missing for some time.
    fn is_overdue(&self, step: &Step<C::Write>, error: &ProviderError) -> bool {
        let may_succeed_now = error.is_in_progress() || error.class() == ErrorClass::Conflict;
        !may_succeed_now && self.memory.is_overdue(step, self.work)
    }

    /// Whether what a step replaces was deleted before another one of its part failed. That is remembered: otherwise
    /// each call would delete what the one before has restored.
    fn is_missed(&self, step: &Step<C::Write>, steps: &[Step<C::Write>], results: &Results) -> bool {
        let deletes = |(index, one): (usize, &Step<_>)| {
            one.summary.verb == Verb::Delete && one.object() == step.object() && results.done.contains(&index)
        };
        let is_deleted = !step.restore.is_empty() && steps.iter().enumerate().any(deletes);
        let is_made = self.parked.contains_key(&step.object());
        if is_made || !is_deleted && self.memory.removed_for(step, self.work).is_none() {
            return false;
        }
        let given_up =
            results.by_step.iter().filter(|(_, error)| is_refused(error, true) || self.is_overdue(step, error));
        let mut causes = given_up.filter_map(|(index, error)| Some((steps.get(*index)?, error)));
        let cause = causes.find(|(cause, _)| step.is_blocked_by(&cause.part) && step.items.overlap(&cause.items));
        if let Some((_, error)) = cause {
            self.memory.keep(self.memory.room_for(step, self.work), error, trial_after(error));
        }
        cause.is_some()
    }

    /// Whether what was prepared is left although the steps that need it are refused: nothing else removes it. It stays as
    /// long as something is missing that was deleted for them.
    fn is_left(&self, step: &Step<C::Write>, steps: &[Step<C::Write>], results: &Results) -> bool {
        if !step.releases || self.parked.contains_key(&step.object()) {
            return false;
        }
        let of_items = || steps.iter().enumerate().filter(|(_, one)| one.items.overlap(&step.items));
        let is_there = |(index, one): (usize, &Step<C::Write>)| {
            !one.prepares || one.object() != step.object() || results.done.contains(&index)
        };
        // What is being deleted is missing soon.
        let is_going = |one: &Step<C::Write>| self.parked.contains_key(&one.object());
        let is_missing = of_items().any(|(_, one)| is_going(one) || self.memory.removed_for(one, self.work).is_some());
        let is_refused = |(index, one): (usize, &Step<C::Write>)| {
            // After any other failure of a deletion, it may be gone.
            let is_it = |error: &ProviderError| is_refused(error, one.summary.verb != Verb::Delete);
            results.by_step.get(&index).is_some_and(is_it)
                || self.memory.refusal(one, self.work).or_else(|| self.memory.no_room(one, self.work)).is_some()
        };
        let mut needed = of_items().filter(|(_, one)| step.is_blocked_by(&one.part) && one.part != step.part);
        !is_missing && of_items().all(is_there) && needed.any(is_refused)
    }

    /// The refusal of a step that is prepared, or of a creation for which a deletion makes room, or of an attachment for
    /// which something is detached, or of a step of their part in between: what is there stays.
    fn refused_after(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> Option<ProviderError> {
        step.successors(later)
            .chain(step.prepared(later))
            .find_map(|next| self.memory.refusal(next, self.work).or_else(|| self.memory.no_room(next, self.work)))
    }

    /// Whether a Service of the step lacks what this or a later step makes again: a shutdown waits for them.
    fn is_replacing(&self, step: &Step<C::Write>, later: &[Step<C::Write>]) -> bool {
        let lacks = |next: &Step<C::Write>| {
            next.items.overlap(&step.items) && self.memory.removed_for(next, self.work).is_some()
        };
        self.memory.replaces() && (lacks(step) || later.iter().any(lacks))
    }

    fn replaces_any(&self, accepted: &Accepted, steps: &[Step<C::Write>]) -> bool {
        let running: Vec<usize> = accepted.lock().keys().copied().collect();
        let mut running = running.into_iter().filter_map(|index| at(steps, index));
        running.any(|(step, later)| Removed::by(step, later, self.work).is_some() || self.is_replacing(step, later))
    }

    /// What comes back if the cloud refuses the step.
    fn restored_after(&self, step: &Step<C::Write>) -> Vec<Arc<Step<C::Write>>> {
        match step.restore.is_empty() {
            true => self.memory.removed_for(step, self.work).unwrap_or_default(),
            false => step.restore.clone(),
        }
    }

    fn park(&self, step: &Step<C::Write>, later: &[Step<C::Write>], running: Running) -> ProviderError {
        let services = step.items.of(self.work.len()).into_iter();
        let services = services.filter_map(|place| Some(self.work.get(place)?.service.key()));
        let Running { operation, since, is_step, is_last } = running;
        let own = Some(step).filter(|_| is_step);
        let parked = Parked {
            operation,
            groups: self.groups.clone(),
            services: services.collect(),
            verb: step.summary.verb,
            since,
            request: own.and_then(|step| self.memory.request(step, self.work)),
            is_last,
            restore: own.map(|step| self.restored_after(step)).unwrap_or_default(),
            room: own.and_then(|step| Removed::by(step, later, self.work)),
        };
        let error = parked.in_progress();
        self.memory.park(step.object(), parked);
        error
    }

    fn ended(&self, index: usize, step: &Step<C::Write>, result: Result<(), Failure>, results: &mut Results) {
        let is_done = result.as_ref().err().is_none_or(|failure| failure.at == Stage::Done);
        results.done.extend(is_done.then_some(index));
        match result.map_err(|failure| failure.error) {
            Ok(()) => results.written += 1,
            Err(error) if step.optional && is_refusal(&error) => {
                let concerned = step.items.of(self.work.len()).into_iter();
                let work: Vec<ServiceWork> = concerned.filter_map(|place| self.work.get(place).cloned()).collect();
                self.cloud.report_refusal(&work, step, &error);
            }
            Err(error) => {
                results.fail_step(step, &error);
                results.by_step.insert(index, error);
            }
        }
    }

    /// One step, with the return of what it replaces, or the removal of its remains.
    async fn step(
        &self,
        index: usize,
        steps: &[Step<C::Write>],
        is_missed: bool,
        accepted: &Accepted,
    ) -> (usize, Result<(), Failure>) {
        let Some((step, later)) = at(steps, index) else { return (index, Ok(())) };
        let room = Removed::by(step, later, self.work);
        let scope = match room.is_some() || self.is_replacing(step, later) {
            true => self.scope.completing(),
            false => self.scope.clone(),
        };
        let sending = Sending { index, is_step: true, is_last: true, scope: &scope, accepted };
        let after = Sending { is_step: false, ..sending };
        let restore = self.restored_after(step);
        if is_missed {
            self.bring_back(&step.object(), &restore, &after).await;
            return (index, Ok(()));
        }
        // What was removed for a step that was refused before comes back.
        let refused = self.memory.refusal(step, self.work).map(|error| Err(error.into()));
        let result = match refused {
            Some(refused) => refused,
            None => self.write(step, &sending).await.inspect_err(|failure| {
                if failure.at != Stage::Done {
                    self.note_prepared(step, steps.get(..index).unwrap_or_default(), later, &failure.error);
                    let is_kept = is_final(&failure.error) || self.cloud.leaves_something(step, &failure.error);
                    self.note(self.memory.request(step, self.work), &restore, &failure.error, is_kept);
                }
            }),
        };
        match &result {
            Ok(()) => {
                self.memory.is_replaced(&step.object());
                room.into_iter().for_each(|room| self.memory.removed(room));
            }
            Err(Failure { at: Stage::Done, .. }) => self.memory.is_replaced(&step.object()),
            Err(failure) if failure.is_refusal(!restore.is_empty()) => {
                self.bring_back(&step.object(), &restore, &after).await;
            }
            Err(Failure { error, .. }) if self.is_overdue(step, error) => {
                self.memory.keep(self.memory.room_for(step, self.work), error, DENIED);
                self.bring_back(&step.object(), &restore, &after).await;
            }
            Err(_) => {}
        }
        if let (Err(Failure { error, at: Stage::Accepted }), Some(undo)) = (&result, &step.undo)
            && let Err(Failure { error: second, .. }) = self.write(undo, &after).await
        {
            tracing::warn!(object = undo.object(), %error, %second, "the rest of a failed write is not removed yet");
        }
        (index, result)
    }

    /// Remembers the refusal of a step that an earlier one prepares, also if it may pass: each trial would prepare it, and
    /// remove that again.
    fn note_prepared(
        &self,
        step: &Step<C::Write>,
        earlier: &[Step<C::Write>],
        later: &[Step<C::Write>],
        error: &ProviderError,
    ) {
        if !is_refusal(error) || !step.is_prepared_by(earlier) {
            return;
        }
        let request = match step.summary.verb {
            // That of a deletion is not remembered: a successor for which nothing makes room is.
            Verb::Delete => step.successors(later).next().map(|next| self.memory.room_for(next, self.work)),
            _ => self.memory.request(step, self.work),
        };
        if let Some(request) = request {
            self.memory.keep(request, error, trial_after(error));
        }
    }

    /// Remembers a refusal; also one that may pass if each trial takes away what the step replaces.
    pub(super) fn note(
        &self,
        request: Option<Request>,
        restore: &[Arc<Step<C::Write>>],
        error: &ProviderError,
        is_kept: bool,
    ) {
        let lasts = match restore.is_empty() {
            true if is_kept => self.cloud.remembers(error),
            false if is_refused(error, true) => trial_after(error).max(self.cloud.trial_of(restore)),
            _ => return,
        };
        if let Some(request) = request {
            self.memory.keep(request, error, lasts);
        }
    }

    /// Makes again what a refused write replaces.
    pub(super) async fn bring_back(&self, object: &str, restore: &[Arc<Step<C::Write>>], sending: &Sending<'_>) {
        let scope = self.scope.completing();
        let mut is_back = true;
        for (index, one) in restore.iter().enumerate() {
            let sending = Sending { scope: &scope, is_last: index + 1 == restore.len(), ..*sending };
            let result = self.write(one, &sending).await;
            if let Err(Failure { error, at: Stage::Sent | Stage::Accepted }) = result {
                tracing::warn!(object = one.object(), %error, "what a refused write replaces is not there again");
                is_back = false;
                if is_refused(&error, true) {
                    self.memory.is_missing(object);
                }
            }
        }
        // Otherwise, the next call tries again.
        if is_back {
            self.memory.is_replaced(object);
        }
    }

    async fn write(&self, step: &Step<C::Write>, sending: &Sending<'_>) -> Result<(), Failure> {
        let Sending { index, is_step, is_last, scope, accepted } = *sending;
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
            Written::Failed(error) => return Err(Failure { error, at: Stage::Accepted }),
            Written::Accepted(operation) => operation,
        };
        let running = Running { operation: operation.clone(), since: Instant::now(), is_step, is_last };
        accepted.lock().insert(index, running);
        let end = self.until_done(&operation, scope).await;
        accepted.lock().remove(&index);
        end.map_err(|error| match error.is_in_progress() {
            true => error.into(),
            false => Failure { error, at: Stage::Accepted },
        })?;
        self.cloud.completed(step, self.made).await.map_err(|error| Failure { error, at: Stage::Done })
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
            let pause = (began.elapsed() / 3).clamp(PAUSE.0, PAUSE.1);
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
    at: Stage,
}

/// What a write had reached when it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sent,
    Accepted,
    /// Only its result could not be read.
    Done,
}

impl Failure {
    fn is_refusal(&self, restores: bool) -> bool {
        self.at != Stage::Done && is_refused(&self.error, restores)
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self { error, at: Stage::Sent }
    }
}

/// The time after which something is removed again for a request that failed.
fn trial_after(error: &ProviderError) -> Duration {
    if is_final(error) { REFUSED } else { DENIED }
}

/// Whether the cloud changed nothing and refuses the request.
pub fn is_refusal(error: &ProviderError) -> bool {
    is_final(error) || matches!(error.class(), ErrorClass::Denied { .. })
}

/// Whether the cloud refuses a request, or, if something was removed for it, also for a reason such as a quota or a policy.
pub(super) fn is_refused(error: &ProviderError, restores: bool) -> bool {
    is_refusal(error) || restores && error.class() == ErrorClass::Unknown
}
