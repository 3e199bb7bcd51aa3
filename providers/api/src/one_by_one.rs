//! Adapters for clouds that answer for one object at a time.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::Semaphore;

use crate::deadline::{self, READ_DEADLINE};
use crate::error::ProviderError;
use crate::instance::{Aspects, Evidence, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup};
use crate::node::{Node, NodeRef};
use crate::route::{NewRoute, Route, Routes};
use crate::scope::Scope;

/// Instances, one at a time, as in the Go interface. Wrap it in [`OneByOne`].
#[async_trait]
pub trait SingleInstances: Send + Sync {
    /// Whether the instance exists: by provider ID, else by name. `false` is positive knowledge and deletes a node that
    /// is not Ready; a stopped instance exists.
    async fn exists(&self, node: &Node) -> Result<bool, ProviderError>;

    /// Whether the instance is stopped. [`ProviderError::NotImplemented`] means "no".
    async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError>;

    /// The values to write to the node; `Ok(None)` skips the node silently.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError>;

    /// Only the addresses, if that is cheaper; other fields of the answer are ignored.
    async fn addresses(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.metadata(node).await
    }

    /// See [`InstancesV2::provider_id_required`].
    fn provider_id_required(&self) -> bool {
        true
    }
}

/// Routes, one at a time, as in the Go interface. Wrap it in [`OneByOne`].
#[async_trait]
pub trait SingleRoutes: Send + Sync {
    /// See [`Routes::list`].
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError>;
    /// See [`Routes::create`].
    async fn create(&self, cluster: &str, route: &NewRoute) -> Result<(), ProviderError>;
    /// See [`Routes::delete`].
    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), ProviderError>;
}

/// Adapts a single-item interface to the batch interface, with a limit of concurrent calls and a deadline for each.
#[derive(Debug)]
pub struct OneByOne<T> {
    inner: T,
    in_flight: Arc<Semaphore>,
}

impl<T> OneByOne<T> {
    /// Default limit of concurrent calls; upstream's limit for routes.
    pub const DEFAULT_IN_FLIGHT: usize = 200;

    /// Wraps `inner` with at most `in_flight` concurrent calls.
    pub fn new(inner: T, in_flight: usize) -> Self {
        Self { inner, in_flight: Arc::new(Semaphore::new(in_flight.max(1))) }
    }

    async fn bounded<R>(
        &self,
        call: &str,
        future: impl Future<Output = Result<R, ProviderError>>,
    ) -> Result<R, ProviderError> {
        let _permit = self.in_flight.acquire().await.map_err(|_| ProviderError::bug("semaphore closed"))?;
        deadline::within(call, READ_DEADLINE, future).await
    }
}

impl<T: SingleRoutes> OneByOne<T> {
    /// A write that may have to wait for its turn, and does not begin after a shutdown has begun.
    async fn write(
        &self,
        scope: &Scope,
        call: &str,
        write: impl Future<Output = Result<(), ProviderError>>,
    ) -> Result<(), ProviderError> {
        let begun = async {
            scope.may_write()?;
            write.await
        };
        self.bounded(call, begun).await
    }
}

impl<T: SingleInstances> OneByOne<T> {
    async fn lookup_one(&self, node: &Node, aspects: Aspects) -> Lookup {
        if aspects.existence {
            let read_began = SystemTime::now();
            match self.bounded("InstanceExists", self.inner.exists(node)).await {
                Ok(true) => {}
                Ok(false) => {
                    return Lookup::Gone(Evidence {
                        kind: EvidenceKind::Absent,
                        read_began,
                        grace: std::time::Duration::ZERO,
                    });
                }
                Err(error) if error.is_not_owned() => return Lookup::Foreign,
                Err(error) => return Lookup::Unknown(error),
            }
        }
        let shutdown = match aspects.shutdown {
            true => self.bounded("InstanceShutdown", self.inner.shutdown(node)).await,
            false => Ok(false),
        };
        let metadata = match (aspects.metadata, aspects.addresses) {
            (true, _) => self.bounded("InstanceMetadata", self.inner.metadata(node)).await,
            (false, true) => self.bounded("InstanceMetadata", self.inner.addresses(node)).await,
            (false, false) => Ok(None),
        };
        let not_owned = |error: Option<&ProviderError>| error.is_some_and(ProviderError::is_not_owned);
        if not_owned(shutdown.as_ref().err()) || not_owned(metadata.as_ref().err()) {
            return Lookup::Foreign;
        }
        Lookup::Found(Arc::new(Instance { shutdown, metadata }))
    }
}

#[async_trait]
impl<T: SingleInstances> InstancesV2 for OneByOne<T> {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        join_all(nodes.iter().map(|node| self.lookup_one(node, aspects))).await
    }

    fn is_one_by_one(&self) -> bool {
        true
    }

    fn provider_id_required(&self) -> bool {
        self.inner.provider_id_required()
    }
}

#[async_trait]
impl<T: SingleRoutes> Routes for OneByOne<T> {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        self.bounded("ListRoutes", self.inner.list(cluster)).await
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        self.create_in(cluster, routes, &Scope::default()).await
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        self.delete_in(cluster, routes, &Scope::default()).await
    }

    async fn create_in(&self, cluster: &str, routes: &[NewRoute], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        let calls = routes.iter().enumerate().map(|(place, route)| async move {
            let answer = self.write(scope, "CreateRoute", self.inner.create(cluster, route)).await;
            scope.answer(place, &answer);
            answer
        });
        join_all(calls).await
    }

    async fn delete_in(&self, cluster: &str, routes: &[Route], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        let calls = routes.iter().enumerate().map(|(place, route)| async move {
            let answer = self.write(scope, "DeleteRoute", self.inner.delete(cluster, route)).await;
            scope.answer(place, &answer);
            answer
        });
        join_all(calls).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::error::ErrorClass;

    /// Answers according to the name of the node, `<kind>-<number>`; counts the concurrent calls.
    #[derive(Default)]
    struct Cloud {
        under_way: AtomicUsize,
        most: AtomicUsize,
        calls: AtomicUsize,
    }

    struct UnderWay<'a>(&'a Cloud);

    impl Drop for UnderWay<'_> {
        fn drop(&mut self) {
            self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Cloud {
        fn enter(&self) -> UnderWay<'_> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(self.under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            UnderWay(self)
        }

        async fn answer(&self, name: &str) -> Result<bool, ProviderError> {
            let _under_way = self.enter();
            let (kind, number) = name.split_once('-').unwrap();
            // Later nodes are answered earlier.
            sleep(Duration::from_millis(1000 - number.parse::<u64>().unwrap())).await;
            match kind {
                "hang" => std::future::pending().await,
                "fail" => Err(ProviderError::unknown(format!("no answer for {name}"))),
                kind => Ok(kind != "gone"),
            }
        }
    }

    #[async_trait]
    impl SingleInstances for Cloud {
        async fn exists(&self, node: &Node) -> Result<bool, ProviderError> {
            self.answer(&node.name).await
        }
        async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError> {
            self.answer(&node.name).await.map(|_| node.name.starts_with("stopped"))
        }
        async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
            self.answer(&node.name).await?;
            Ok(Some(InstanceMetadata { provider_id: format!("fake://{}", node.name), ..Default::default() }))
        }
    }

    #[async_trait]
    impl SingleRoutes for Cloud {
        async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
            self.answer(cluster).await.map(|_| Vec::new())
        }
        async fn create(&self, _: &str, route: &NewRoute) -> Result<(), ProviderError> {
            self.answer(&route.name_hint).await.map(drop)
        }
        async fn delete(&self, _: &str, route: &Route) -> Result<(), ProviderError> {
            self.answer(&route.name).await.map(drop)
        }
    }

    fn nodes<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Vec<NodeRef> {
        names.into_iter().map(|name| Arc::new(Node { name: name.as_ref().into(), ..Node::default() })).collect()
    }

    fn many(kind: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{kind}-{number}")).collect()
    }

    const EXISTENCE: Aspects = Aspects { existence: true, shutdown: false, addresses: false, metadata: false };

    #[tokio::test(start_paused = true)]
    async fn never_more_than_the_bound_in_flight() {
        let cloud = OneByOne::new(Cloud::default(), 7);
        let nodes = nodes(many("run", 100));
        // Overlapping batches share the bound.
        let (one, other) = tokio::join!(cloud.lookup(&nodes, Aspects::LIFECYCLE), cloud.lookup(&nodes, EXISTENCE));
        assert_eq!((one.len(), other.len()), (100, 100));
        assert_eq!(cloud.inner.most.load(Ordering::SeqCst), 7);
        assert_eq!(cloud.inner.calls.load(Ordering::SeqCst), 300);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bound_of_zero_is_one() {
        let cloud = OneByOne::new(Cloud::default(), 0);
        assert_eq!(cloud.lookup(&nodes(["run-1", "run-2"]), EXISTENCE).await.len(), 2);
        assert_eq!(cloud.inner.most.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_call_fails_alone_after_the_deadline() {
        let cloud = OneByOne::new(Cloud::default(), 2);
        let began = Instant::now();
        let answers = cloud.lookup(&nodes(["run-0", "hang-0", "gone-0", "run-1"]), EXISTENCE).await;
        assert_eq!(began.elapsed(), READ_DEADLINE);
        let [Lookup::Found(_), Lookup::Unknown(error), Lookup::Gone(_), Lookup::Found(_)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert_eq!(error.to_string(), "InstanceExists did not answer within 2m0s");
        assert_eq!(error.class(), ErrorClass::Transient { after: None });
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_of_a_call_does_not_count_the_wait_for_its_turn() {
        let cloud = OneByOne::new(Cloud::default(), 1);
        let answers = cloud.lookup(&nodes(["hang-0", "hang-1", "run-0"]), EXISTENCE).await;
        assert!(matches!(answers[2], Lookup::Found(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_batch_gives_its_permits_back() {
        let cloud = OneByOne::new(Cloud::default(), 2);
        let hanging = nodes(["hang-0", "hang-1"]);
        let batch = cloud.lookup(&hanging, EXISTENCE);
        assert!(tokio::time::timeout(Duration::from_secs(5), batch).await.is_err());
        assert_eq!(cloud.inner.under_way.load(Ordering::SeqCst), 0);
        assert!(matches!(cloud.lookup(&nodes(["run-0"]), EXISTENCE).await[0], Lookup::Found(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_come_in_the_order_of_the_questions() {
        let cloud = OneByOne::new(Cloud::default(), 200);
        let names = many("run", 500);
        for (name, answer) in names.iter().zip(cloud.lookup(&nodes(&names), Aspects::METADATA).await) {
            let Lookup::Found(instance) = answer else { panic!("{answer:?}") };
            let metadata = instance.metadata.as_ref().unwrap().as_ref().unwrap();
            assert_eq!(metadata.provider_id, format!("fake://{name}"));
        }
        let routes =
            ["ok-1", "fail-2", "ok-3"].map(|name| NewRoute { name_hint: name.into(), route: Route::default() });
        let answers = cloud.create("c", &routes).await;
        assert!(answers[0].is_ok() && answers[2].is_ok());
        assert_eq!(answers[1].as_ref().unwrap_err().to_string(), "no answer for fail-2");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_unknown_and_a_no_is_gone() {
        let cloud = OneByOne::new(Cloud::default(), 10);
        let answers = cloud.lookup(&nodes(["fail-0", "gone-0", "stopped-0"]), Aspects::LIFECYCLE).await;
        assert!(matches!(&answers[0], Lookup::Unknown(error) if error.to_string() == "no answer for fail-0"));
        assert!(matches!(&answers[1], Lookup::Gone(Evidence { kind: EvidenceKind::Absent, .. })));
        assert!(matches!(&answers[2], Lookup::Found(instance) if matches!(instance.shutdown, Ok(true))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_aspect_does_not_hide_that_the_instance_exists() {
        let cloud = OneByOne::new(Cloud::default(), 10);
        let aspects = Aspects { existence: false, shutdown: true, addresses: true, metadata: true };
        let answers = cloud.lookup(&nodes(["fail-0"]), aspects).await;
        let Lookup::Found(instance) = &answers[0] else { panic!("{answers:?}") };
        assert!(instance.shutdown.is_err() && instance.metadata.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_requested_aspects_are_called() {
        for (aspects, calls) in [
            (Aspects::default(), 0),
            (EXISTENCE, 1),
            (Aspects::LIFECYCLE, 2),
            (Aspects::ADDRESSES, 1),
            (Aspects::METADATA, 1),
        ] {
            let cloud = OneByOne::new(Cloud::default(), 10);
            cloud.lookup(&nodes(["run-0"]), aspects).await;
            assert_eq!(cloud.inner.calls.load(Ordering::SeqCst), calls, "{aspects:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_list_of_routes_is_an_error() {
        let cloud = OneByOne::new(Cloud::default(), 10);
        let error = Routes::list(&cloud, "hang-0").await.unwrap_err();
        assert_eq!(error.to_string(), "ListRoutes did not answer within 2m0s");
    }
}
