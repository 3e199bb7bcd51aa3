//! The controller with clouds that hang, refuse or lag behind.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{NewRoute, ProviderError, Route, Routes};

use super::{cluster, node, route};
use crate::route::{RouteController, Trigger};
use crate::test_shared::{self, Events};

struct Hanging;

#[async_trait::async_trait]
impl Routes for Hanging {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(vec![route("10.0.9.0/24 gone")])
    }
    async fn create(&self, _cluster: &str, _routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        std::future::pending().await
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_hangs_over_routes_ends_the_reconcile_after_the_deadline() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("a", "10.0.1.0/24", "10.9.0.1"));
    let events = Arc::new(Events::default());
    let controller = RouteController::new(shared, Arc::new(Hanging), events, cluster());
    let began = tokio::time::Instant::now();
    let error = controller.reconcile(Trigger::Periodic).await.unwrap_err();
    assert!(error.contains("nodes lack routes"), "{error}");
    assert_eq!(began.elapsed(), WRITE_DEADLINE);
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
    let controller = RouteController::new(shared, Arc::new(cloud), events.clone(), cluster());
    controller.reconcile(Trigger::Periodic).await.unwrap();
    assert!(events.0.lock().unwrap().is_empty());
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
    let controller = RouteController::new(shared, Arc::new(cloud), events.clone(), cluster());
    let error = controller.reconcile(Trigger::Periodic).await.unwrap_err();
    assert!(error.starts_with("2 nodes lack routes"), "{error}");
    let events = events.0.lock().unwrap();
    let [event] = &**events else { panic!("{events:?}") };
    assert!(event.starts_with("Warning FailedToCreateRoute: Could not create route uid-odd "), "{event}");
}
