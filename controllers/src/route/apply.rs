//! The writes of a reconcile: deletions, creations, and the condition of each node as soon as its routes exist. Writes
//! that take long go on while the next reconciles serve other nodes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{
    ErrorClass, EventType, NewRoute, NodeName, NodeRef, ProviderError, Route, Scope, Subject, duration,
};
use ccm_runtime::gate::settled;
use ccm_runtime::runner;
use ccm_runtime::writer::{Network, NodePatch};
use ccm_runtime::{GateError, Leadership};
use futures::channel::{mpsc, oneshot};
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt, TryStreamExt};
use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::decide::{self, Changes};
use super::{NAME, RouteController};

/// The time for which a reconcile waits for its writes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit of a call that creates many routes. A provider has its own limit for each of them.
pub(super) const CREATE_DEADLINE: Duration = Duration::from_secs(2 * WRITE_DEADLINE.as_secs());
/// Attempts of a creation that meets a conflict, and the pause before the first repetition.
const CONFLICT_TRIES: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
/// The time for which ranges are gathered whose routes are created in one call.
const GATHER: Duration = Duration::from_secs(1);
/// Conditions written, and creations called, at once.
const IN_FLIGHT: usize = 32;

/// The writes of one reconcile.
pub(super) type Writes = BoxFuture<'static, ()>;
/// The answer for one route.
type Answer = Result<(), ProviderError>;
/// Ranges whose routes are being written, and the nodes that get them.
pub(super) type Busy = BTreeMap<IpNet, Option<NodeName>>;

/// The result of the writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Whether a route was created or deleted.
    pub(super) changed: bool,
    /// Nodes that lack routes. Failed deletions count as one: the reconcile failed, although no node lacks a route.
    pub(super) lacking: usize,
    /// Conditions that could not be written.
    pub(super) conditions: usize,
}

/// The error while this number of ranges is busy.
pub(super) fn still_written(ranges: usize) -> String {
    match ranges {
        1 => "1 route is still being written".to_owned(),
        _ => format!("{ranges} routes are still being written"),
    }
}

/// Carries out writes. Ends when no new work may begin, and the last of them has ended.
pub(super) async fn carry_out(mut writes: mpsc::UnboundedReceiver<Writes>, leadership: Leadership) {
    let mut running = FuturesUnordered::new();
    let mut ended = pin!(leadership.ended());
    loop {
        tokio::select! {
            biased;
            Some(writes) = writes.next() => running.push(writes),
            Some(()) = running.next() => {}
            () = &mut ended => break,
        }
    }
    while running.next().await.is_some() {}
}

/// The ranges of writes in flight, and how many writes each waits for. A range is free again when they are answered, at
/// the latest when this is dropped.
struct Marked {
    controller: Arc<RouteController>,
    open: Mutex<BTreeMap<IpNet, usize>>,
}

impl Marked {
    fn new(controller: Arc<RouteController>, changes: &Changes) -> Self {
        let deleted = changes.delete.iter().map(|route| (route, None));
        let created = changes.create.iter().map(|new| (&new.route, Some(target(new))));
        let mut open: BTreeMap<IpNet, usize> = BTreeMap::new();
        for (route, node) in deleted.chain(created) {
            if let Some(range) = decide::destination(route) {
                *open.entry(range).or_default() += 1;
                controller.busy().insert(range, node);
            }
        }
        Self { controller, open: Mutex::new(open) }
    }

    /// Another reconcile may mark the range of this route as soon as it is free.
    fn answered(&self, route: &Route) {
        let Some(range) = decide::destination(route) else { return };
        let mut open = self.open.lock();
        let Some(left) = open.get_mut(&range) else { return };
        *left -= 1;
        if *left == 0 {
            open.remove(&range);
            self.controller.busy().remove(&range);
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let open = self.open.get_mut();
        self.controller.busy().retain(|range, _| !open.contains_key(range));
    }
}

/// The routes that each node still waits for.
pub(super) struct Open {
    routes: BTreeMap<NodeName, usize>,
    lacking: BTreeSet<NodeName>,
    /// Receives each node whose last route is answered, and whether it has all.
    ended: mpsc::UnboundedSender<(NodeName, bool)>,
}

impl Open {
    pub(super) fn new(changes: &Changes, ended: mpsc::UnboundedSender<(NodeName, bool)>) -> Self {
        let mut routes: BTreeMap<NodeName, usize> = BTreeMap::new();
        // Others wait for routes that are still being written.
        for new in changes.create.iter().filter(|new| changes.nodes.contains_key(&target(new))) {
            *routes.entry(target(new)).or_default() += 1;
        }
        let open = Self { routes, lacking: BTreeSet::new(), ended };
        for (node, wanted) in changes.nodes.iter().filter(|(node, _)| !open.routes.contains_key(*node)) {
            open.report(node.clone(), *wanted > 0);
        }
        open
    }

    pub(super) fn answered(&mut self, node: NodeName, is_good: bool) {
        if !is_good {
            self.lacking.insert(node.clone());
        }
        let Some(left) = self.routes.get_mut(&node) else { return };
        *left -= 1;
        if *left == 0 {
            let has_all = !self.lacking.contains(&node);
            self.report(node, has_all);
        }
    }

    fn report(&self, node: NodeName, has_all: bool) {
        // The receiver lives as long as the writes.
        let _ = self.ended.unbounded_send((node, has_all));
    }
}

/// Drives a call for these routes. Each answer is judged as soon as it is there: a route that takes long delays no other
/// one.
async fn each<R>(
    routes: &[R],
    call: impl Future<Output = Result<Vec<Answer>, GateError>>,
    mut early: mpsc::UnboundedReceiver<(usize, Answer)>,
    mut judge: impl FnMut(&R, Answer),
) -> Result<(), GateError> {
    let mut call = pin!(call);
    let mut waiting: BTreeMap<usize, &R> = routes.iter().enumerate().collect();
    let mut judge_one = |place, answer| {
        if let Some(route) = waiting.remove(&place) {
            judge(route, answer);
        }
    };
    let all = loop {
        tokio::select! {
            biased;
            Some((place, answer)) = early.next() => judge_one(place, answer),
            all = &mut call => break all?,
        }
    };
    while let Some(Some((place, answer))) = early.next().now_or_never() {
        judge_one(place, answer);
    }
    all.into_iter().enumerate().for_each(|(place, answer)| judge_one(place, answer));
    Ok(())
}

/// The ranges that are free, with those that follow within a second: a call for each would read the table for each.
async fn next_free(free: &mut mpsc::UnboundedReceiver<IpNet>) -> Option<BTreeSet<IpNet>> {
    let mut ranges = BTreeSet::from([free.next().await?]);
    let others = async {
        while let Some(range) = free.next().await {
            ranges.insert(range);
        }
    };
    let _ = tokio::time::timeout(GATHER, others).await;
    Some(ranges)
}

fn target(new: &NewRoute) -> NodeName {
    new.route.target_node.clone().unwrap_or_default()
}

impl RouteController {
    pub(super) fn busy(&self) -> MutexGuard<'_, Busy> {
        self.busy.lock()
    }

    /// Leaves out what earlier writes change that had not ended `before` the routes were listed. Returns the number of
    /// their ranges.
    pub(super) fn leave_busy(&self, changes: &mut Changes, before: Busy) -> usize {
        let mut busy = before;
        busy.extend(self.busy().clone());
        let is_free = |route: &Route| decide::destination(route).is_none_or(|range| !busy.contains_key(&range));
        for new in changes.create.iter().filter(|new| !is_free(&new.route)) {
            changes.nodes.remove(&target(new));
        }
        changes.create.retain(|new| is_free(&new.route));
        changes.delete.retain(is_free);
        changes.nodes.retain(|node, _| !busy.values().flatten().any(|waits| waits == node));
        busy.len()
    }

    /// Begins the writes, and waits for them for a limited time.
    pub(super) async fn write(self: &Arc<Self>, changes: Changes) -> Result<Written, String> {
        let marked = Marked::new(self.clone(), &changes);
        let (answer, answered) = oneshot::channel();
        let controller = self.clone();
        let writes = async move {
            let written = AssertUnwindSafe(settled(controller.apply(&changes, &marked))).catch_unwind().await;
            drop(marked);
            if let Err(written) = answer.send(written) {
                controller.ended_late(written);
            }
        };
        let _ = self.writes.unbounded_send(writes.boxed());
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(Ok(written))) => written.map_err(|closed| closed.to_string()),
            Ok(Ok(Err(panic))) => resume_unwind(panic),
            Ok(Err(_)) => Err(GateError::Ending.to_string()),
            Err(_) => Err(still_written(self.busy().len())),
        }
    }

    /// Failed routes have their own events, and the next reconcile finds what is left.
    fn ended_late(&self, written: Result<Result<Written, GateError>, Box<dyn Any + Send>>) {
        match written {
            Ok(Ok(Written { lacking, conditions, .. })) => {
                tracing::info!(lacking, conditions, "routes that took long were written");
            }
            Ok(Err(closed)) => tracing::info!(%closed, "routes that took long were not all written"),
            Err(panic) => {
                self.shared.metrics.panicked(NAME);
                let panic = ccm_runtime::panics::panic_text(&*panic);
                tracing::error!(panic, "the writes of routes panicked");
            }
        }
    }

    async fn apply(&self, changes: &Changes, marked: &Marked) -> Result<Written, GateError> {
        let (ended, nodes) = mpsc::unbounded();
        let open = Open::new(changes, ended);
        let conditions = nodes
            .map(|(node, has_all)| self.report_to_node(node, has_all))
            .buffer_unordered(IN_FLIGHT)
            .filter(|good| std::future::ready(!good))
            .count();
        let (freed, free) = mpsc::unbounded();
        let create = self.create(changes, free, open, marked);
        let writes = async { futures::try_join!(self.delete(changes, marked, freed), create) };
        let (writes, conditions) = futures::join!(writes, conditions);
        let ((deleted, undeleted), (created, lacking)) = writes?;
        Ok(Written { changed: deleted || created, lacking: lacking + usize::from(undeleted), conditions })
    }

    /// Returns whether a route was deleted, and whether one could not be deleted. `freed` gets each moving range when all
    /// deletions of it are answered.
    async fn delete(
        &self,
        changes: &Changes,
        marked: &Marked,
        freed: mpsc::UnboundedSender<IpNet>,
    ) -> Result<(bool, bool), GateError> {
        let mut moving = changes.moving.clone();
        let (mut deleted, mut undeleted) = (false, false);
        if changes.delete.is_empty() {
            return Ok((deleted, undeleted));
        }
        let (scope, early) = self.scope();
        let call = self.routes.delete_in(&self.shared.cluster, &changes.delete, &scope);
        let call = self.shared.gate.cloud_each("DeleteRoutes", WRITE_DEADLINE, changes.delete.len(), call);
        each(&changes.delete, call, early, |route, answer| {
            marked.answered(route);
            match answer {
                Ok(()) => {
                    deleted = true;
                    tracing::info!(route = route.name, cidr = route.destination_cidr, "deleted route");
                }
                Err(error) if error.is_in_progress() => {
                    undeleted = true;
                    tracing::info!(route = route.name, cidr = route.destination_cidr, %error, "the route waits");
                }
                Err(error) => {
                    undeleted = true;
                    tracing::error!(route = route.name, cidr = route.destination_cidr, %error, "could not delete route");
                }
            }
            if let Some(range) = decide::destination(route)
                && let Some(left) = moving.get_mut(&range)
            {
                *left -= 1;
                if *left == 0 {
                    let _ = freed.unbounded_send(range);
                }
            }
        })
        .await?;
        Ok((deleted, undeleted))
    }

    /// Creates the routes whose ranges are free, and each other one as soon as its range is. Returns whether one was
    /// created, and the number of nodes that lack one.
    async fn create(
        &self,
        changes: &Changes,
        free: mpsc::UnboundedReceiver<IpNet>,
        open: Open,
        marked: &Marked,
    ) -> Result<(bool, usize), GateError> {
        let is_moving =
            |new: &NewRoute| decide::destination(&new.route).is_some_and(|it| changes.moving.contains_key(&it));
        let (waiting, now) = changes.create.iter().cloned().partition(is_moving);
        let later = stream::unfold((waiting, free), |(waiting, mut free): (Vec<NewRoute>, _)| async move {
            let ranges = next_free(&mut free).await?;
            let is_free = |new: &NewRoute| decide::destination(&new.route).is_some_and(|it| ranges.contains(&it));
            let (routes, waiting) = waiting.into_iter().partition(is_free);
            Some((routes, (waiting, free)))
        });
        let open = Mutex::new(open);
        let calls = stream::once(async { now }).chain(later);
        let calls = calls.map(|routes| self.create_all(routes, &open, marked)).buffer_unordered(IN_FLIGHT);
        let created = calls.try_fold(false, async |before, created| Ok(before || created)).await?;
        Ok((created, open.into_inner().lacking.len()))
    }

    /// Creates routes; those that met a conflict are tried again. Returns whether one was created.
    async fn create_all(
        &self,
        mut todo: Vec<NewRoute>,
        open: &Mutex<Open>,
        marked: &Marked,
    ) -> Result<bool, GateError> {
        let (began, mut created) = (Instant::now(), false);
        for attempt in 1..=CONFLICT_TRIES {
            if todo.is_empty() {
                break;
            }
            let mut again = Vec::new();
            let (scope, early) = self.scope();
            let call = self.routes.create_in(&self.shared.cluster, &todo, &scope);
            let call = self.shared.gate.cloud_each("CreateRoutes", CREATE_DEADLINE, todo.len(), call);
            each(&todo, call, early, |new, answer| {
                let is_good = match answer {
                    Ok(()) => {
                        created = true;
                        tracing::info!(node = %target(new), cidr = new.route.destination_cidr, "created route");
                        true
                    }
                    Err(error) if error.class() == ErrorClass::Conflict && attempt < CONFLICT_TRIES => {
                        return again.push(new.clone());
                    }
                    Err(error) => !self.creation_failed(new, &error, began.elapsed()),
                };
                open.lock().answered(target(new), is_good);
                marked.answered(&new.route);
            })
            .await?;
            todo = again;
            if !todo.is_empty() {
                tokio::time::sleep(CONFLICT_PAUSE * attempt).await;
            }
        }
        Ok(created)
    }

    /// The scope of a call, and its early answers.
    fn scope(&self) -> (Scope, mpsc::UnboundedReceiver<(usize, Answer)>) {
        let (answer, early) = mpsc::unbounded();
        let scope = runner::scope_of(&self.shared.leadership);
        (scope.with_answers(move |place, result| drop(answer.unbounded_send((place, result.clone())))), early)
    }

    /// Reports a failed creation. Returns whether the node lacks the route: one that was deleted does not.
    fn creation_failed(&self, new: &NewRoute, error: &ProviderError, took: Duration) -> bool {
        let (node, cidr) = (target(new), &new.route.destination_cidr);
        if self.shared.nodes.get(&node).is_none() {
            tracing::info!(%node, cidr, "deleted before it got its route");
            return false;
        }
        if error.is_in_progress() {
            tracing::info!(%node, cidr, %error, "the route waits");
            return true;
        }
        let message = format!(
            "Could not create route {} {cidr} for node {node} after {}: {error}",
            new.name_hint,
            duration::format(took)
        );
        tracing::error!("{message}");
        let subject = Subject::node(&node, &new.name_hint);
        self.events.event(&subject, EventType::Warning, "FailedToCreateRoute", &message);
        true
    }

    /// Writes the condition of a node if it differs. Returns whether that succeeded.
    async fn report_to_node(&self, name: NodeName, has_all: bool) -> bool {
        // A route that waits for the next leader is no reason to send pods elsewhere.
        if !has_all && !self.shared.leadership.may_begin() {
            return true;
        }
        let node = self.shared.nodes.get(&name);
        match node.filter(|node| decide::condition(node, has_all).is_some()) {
            Some(node) => self.write_condition(node, has_all).await,
            None => true,
        }
    }

    async fn write_condition(&self, node: NodeRef, available: bool) -> bool {
        let now = ccm_runtime::clock::timestamp(self.shared.clock.wall());
        let network = if available { Network::Routed } else { Network::Unrouted };
        let patch = NodePatch { network: Some((network, now)), ..NodePatch::default() };
        let written = self.shared.node_writer().write(&node, |_| Some(patch.clone())).await;
        if let Err(error) = &written
            && !error.is_closed()
        {
            tracing::error!(node = %node.name, %error, "could not write the condition NetworkUnavailable");
        }
        written.is_ok()
    }
}
