//! The controller with clouds that hang, refuse or lag behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm_provider::{NewRoute, NodeRef, ProviderError, Route, Routes, Scope};
use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{cluster, names, node, route};
use crate::Shared;
use crate::route::apply::{Busy, CREATE_DEADLINE, Open, PATIENCE, carry_out};
use crate::route::{RouteController, Trigger};
use crate::test_shared::{self, Events};

/// Runs reconciles, with a pause in between, until one returns what is wanted. Returns all results.
async fn reconcile_until(
    shared: Shared,
    cloud: Arc<dyn Routes>,
    events: Arc<Events>,
    wanted: impl Fn(&Result<(), String>) -> bool,
) -> Vec<Result<(), String>> {
    let leadership = shared.leadership.clone();
    let (controller, writes) = RouteController::new(shared, cloud, events, cluster());
    let reconciles = async {
        let mut results = Vec::new();
        loop {
            results.push(controller.reconcile(Trigger::Periodic).await);
            if results.last().is_some_and(&wanted) {
                return results;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        results = reconciles => results,
        () = carry_out(writes, leadership) => unreachable!("it leads"),
    }
}

async fn reconcile(shared: Shared, cloud: impl Routes + 'static, events: Arc<Events>) -> Result<(), String> {
    reconcile_until(shared, Arc::new(cloud), events, |_| true).await.remove(0)
}

/// A cloud that answers for the first new route of the first call, and then hangs.
#[derive(Default)]
struct Hanging(AtomicUsize);

#[async_trait::async_trait]
impl Routes for Hanging {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let created = (self.0.load(Ordering::SeqCst) > 0).then(|| route("10.0.1.0/24 a"));
        Ok([route("10.0.9.0/24 gone")].into_iter().chain(created).collect())
    }
    async fn create(&self, _cluster: &str, _routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        unreachable!("the controller calls create_in")
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        std::future::pending().await
    }
    async fn create_in(&self, _: &str, routes: &[NewRoute], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
            return vec![Err(ProviderError::unknown("asked again")); routes.len()];
        }
        scope.answer(0, &Ok(()));
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_hangs_over_routes_ends_the_reconcile_and_is_asked_again_after_the_deadline() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("a", "10.0.1.0/24", "10.9.0.1"));
    shared.nodes.apply(node("b", "10.0.2.0/24", "10.9.0.2"));
    let (events, cloud, began) = (Arc::new(Events::default()), Arc::new(Hanging::default()), Instant::now());
    let asked_again = {
        let cloud = cloud.clone();
        move |_: &_| cloud.0.load(Ordering::SeqCst) > 1
    };
    let results = reconcile_until(shared, cloud, events.clone(), asked_again).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(results[0].as_ref().unwrap_err(), "1 route is still being written");
    let (least, most) = (CREATE_DEADLINE, CREATE_DEADLINE + 2 * PATIENCE);
    assert!((least..most).contains(&began.elapsed()), "{:?}", began.elapsed());
    let events = events.0.lock();
    let late: Vec<&String> = events.iter().filter(|event| event.contains("did not answer within")).collect();
    let [event] = &late[..] else { panic!("{late:?}") };
    assert!(event.starts_with("Warning FailedToCreateRoute: Could not create route uid-b "), "{event}");
}

/// A cloud without routes, which refuses each new one for this reason.
struct Refusing<F>(F);

#[async_trait::async_trait]
impl<F: Fn(&NewRoute) -> ProviderError + Send + Sync> Routes for Refusing<F> {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(Vec::new())
    }
    async fn create(&self, _cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        routes.iter().map(|new| Err((self.0)(new))).collect()
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_while_its_route_is_made_makes_no_event() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("a", "10.0.1.0/24", "10.9.0.1"));
    let events = Arc::new(Events::default());
    let nodes = shared.nodes.clone();
    let cloud = Refusing(move |_: &NewRoute| {
        nodes.remove(&"a".into(), "");
        ProviderError::unknown("node a has no provider ID")
    });
    reconcile(shared, cloud, events.clone()).await.unwrap();
    assert!(events.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_route_that_waits_for_its_node_makes_no_event_and_the_node_still_lacks_it() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("new", "10.0.1.0/24", ""));
    shared.nodes.apply(node("odd", "10.0.2.0/24", "10.9.0.1"));
    let events = Arc::new(Events::default());
    let cloud = Refusing(|new: &NewRoute| match new.route.target_node.as_deref() {
        Some("new") => ProviderError::in_progress("node new has no address", Duration::from_secs(10)),
        _ => ProviderError::unknown("no"),
    });
    let error = reconcile(shared, cloud, events.clone()).await.unwrap_err();
    assert!(error.starts_with("nodes without all their routes: 2;"), "{error}");
    let events = events.0.lock();
    let [event] = &**events else { panic!("{events:?}") };
    assert!(event.starts_with("Warning FailedToCreateRoute: Could not create route uid-odd "), "{event}");
}

/// A table of routes. The creation of a route to node `stuck`, and the deletion of one to node `kept`, never end.
#[derive(Default)]
struct Table(Mutex<Vec<Route>>);

impl Table {
    async fn write(
        &self,
        route: &Route,
        is_wanted: bool,
        (place, scope): (usize, &Scope),
    ) -> Result<(), ProviderError> {
        let hangs = if is_wanted { "stuck" } else { "kept" };
        if route.target_node.as_deref() == Some(hangs) {
            std::future::pending::<()>().await;
        }
        {
            let mut table = self.0.lock();
            let found = table.iter().position(|known| known.destination_cidr == route.destination_cidr);
            match (found, is_wanted) {
                (None, true) => table.push(route.clone()),
                (Some(place), false) => drop(table.remove(place)),
                _ => panic!("written twice: {route:?}"),
            }
        }
        scope.answer(place, &Ok(()));
        Ok(())
    }

    /// `10.0.1.0/24 a`
    fn shown(&self) -> Vec<String> {
        let shown =
            |route: &Route| format!("{} {}", route.destination_cidr, route.target_node.as_deref().unwrap_or("-"));
        let mut routes: Vec<String> = self.0.lock().iter().map(shown).collect();
        routes.sort();
        routes
    }
}

#[async_trait::async_trait]
impl Routes for Table {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(self.0.lock().clone())
    }
    async fn create(&self, _cluster: &str, _routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        unreachable!("the controller calls create_in")
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        unreachable!("the controller calls delete_in")
    }
    async fn create_in(&self, _: &str, routes: &[NewRoute], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        join_all(routes.iter().enumerate().map(|(place, new)| self.write(&new.route, true, (place, scope)))).await
    }
    async fn delete_in(&self, _: &str, routes: &[Route], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        join_all(routes.iter().enumerate().map(|(place, route)| self.write(route, false, (place, scope)))).await
    }
}

/// Runs the controller with these nodes and ranges until their routes exist, then replaces all nodes, each time after a
/// pause in seconds. Returns the routes after another 45 s.
async fn after(before: &[(&str, &str)], changes: &[(u64, &[(&str, &str)])]) -> Vec<String> {
    let (shared, table) = (test_shared::shared(), Arc::new(Table::default()));
    let nodes = shared.nodes.clone();
    let set = |wanted: &[(&str, &str)]| {
        for node in nodes.list().iter().filter(|node| wanted.iter().all(|(name, _)| *name != node.name.as_str())) {
            nodes.remove(&node.name, "");
        }
        for (name, range) in wanted.iter().filter(|(name, _)| nodes.get(&(*name).into()).is_none()) {
            nodes.apply(node(name, range, "10.9.0.1"));
        }
    };
    let leadership = shared.leadership.clone();
    let (controller, writes) = RouteController::new(shared, table.clone(), Arc::new(Events::default()), cluster());
    controller.clone().listen(None);
    set(before);
    let changed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (pause, wanted) in changes {
            tokio::time::sleep(Duration::from_secs(*pause)).await;
            set(wanted);
        }
        tokio::time::sleep(Duration::from_secs(45)).await;
    };
    let reconciles = async {
        loop {
            let _ = controller.reconcile(Trigger::Periodic).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        () = changed => table.shown(),
        () = reconciles => unreachable!("it goes on"),
        () = carry_out(writes, leadership) => unreachable!("it leads"),
    }
}

const A: (&str, &str) = ("a", "10.0.1.0/24");
const STUCK: (&str, &str) = ("stuck", "10.0.2.0/24");
const KEPT: (&str, &str) = ("kept", "10.0.3.0/24");

#[tokio::test(start_paused = true)]
async fn a_creation_that_hangs_holds_up_no_range_whose_route_was_created_in_the_same_call() {
    assert_eq!(after(&[A, STUCK], &[(0, &[STUCK])]).await, [""; 0]);
    assert_eq!(after(&[A, STUCK], &[(0, &[STUCK, ("new", A.1)])]).await, ["10.0.1.0/24 new"]);
    assert_eq!(after(&[A, STUCK], &[(0, &[STUCK]), (35, &[STUCK, ("new", A.1)])]).await, ["10.0.1.0/24 new"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_holds_up_no_range_whose_route_was_deleted_in_the_same_call() {
    let left = ["10.0.1.0/24 new", "10.0.3.0/24 kept"];
    assert_eq!(after(&[A, KEPT], &[(0, &[]), (20, &[("new", A.1)])]).await, left);
    // Nor one that moves in the same call.
    assert_eq!(after(&[A, KEPT], &[(0, &[("new", A.1)])]).await, left);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_holds_up_the_creation_for_its_own_range_alone() {
    let kept = "10.0.3.0/24 kept";
    let (next, other) = (("next", KEPT.1), ("other", A.1));
    assert_eq!(after(&[KEPT], &[(0, &[next, A])]).await, ["10.0.1.0/24 a", kept]);
    // The other range is given to another node, too.
    assert_eq!(after(&[A, KEPT], &[(0, &[next, other])]).await, ["10.0.1.0/24 other", kept]);
}

#[tokio::test(start_paused = true)]
async fn a_range_waits_for_the_deletions_of_all_its_routes() {
    let table = Table(Mutex::new(vec![route("10.0.3.0/24 gone"), route("10.0.3.0/24 kept")]));
    let shared = test_shared::shared();
    shared.nodes.apply(node("next", KEPT.1, "10.9.0.1"));
    let events = Arc::new(Events::default());
    let (controller, writes) = RouteController::new(shared, Arc::new(table), events.clone(), cluster());
    controller.departed.lock().extend(names("gone kept"));
    let leadership = controller.shared.leadership.clone();
    tokio::select! {
        reconciled = controller.reconcile(Trigger::Periodic) => {
            assert_eq!(reconciled.unwrap_err(), "1 route is still being written");
        }
        () = carry_out(writes, leadership) => unreachable!("it leads"),
    }
    assert!(events.0.lock().is_empty(), "no creation was tried");
}

#[tokio::test]
async fn a_node_one_of_whose_ranges_is_busy_is_not_reported_to_have_all_routes() {
    let nodes = [NodeRef::new(node("a", "10.0.1.0/24 10.0.2.0/24", "10.9.0.1"))];
    let cloud = Refusing(|_: &NewRoute| ProviderError::unknown("no"));
    let (controller, _) =
        RouteController::new(test_shared::shared(), Arc::new(cloud), Arc::new(Events::default()), cluster());
    for (busy, reported) in [(None, Some(("a".into(), true))), (Some("10.0.1.0/24".parse().unwrap()), None)] {
        controller.busy().extend(busy.map(|range| (range, None)));
        let mut changes = controller.plan(&[], &nodes);
        controller.leave_busy(&mut changes, Busy::default());
        let (ended, mut nodes) = mpsc::unbounded();
        let mut open = Open::new(&changes, ended);
        changes.create.iter().for_each(|_| open.answered("a".into(), true));
        drop(open);
        assert_eq!(nodes.next().await, reported);
    }
}
