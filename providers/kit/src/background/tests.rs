use std::sync::atomic::{AtomicUsize, Ordering};

use ccm_provider::{LoadBalancerExt as _, LoadBalancerIngress};
use tokio::sync::Semaphore;

use super::*;

/// Balancers whose changes block until `gate` is opened.
struct Slow {
    gate: Semaphore,
    calls: AtomicUsize,
}

#[async_trait]
impl LoadBalancer for Slow {
    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork]) -> Vec<ServiceAnswer> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.gate.acquire().await.unwrap().forget();
        let ingress = LoadBalancerIngress { ip: format!("192.0.2.{call}"), ..LoadBalancerIngress::default() };
        let status = LoadBalancerStatus { ingress: vec![ingress] };
        work.iter().map(|_| Ok(Some(status.clone())).into()).collect()
    }
}

fn slow(gates: usize) -> Background<Slow> {
    Background::new(Arc::new(Slow { gate: Semaphore::new(gates), calls: AtomicUsize::new(0) }), Arc::new(|_, _, _| {}))
}

fn service(name: &str) -> Service {
    let mut service = Service::default();
    service.metadata.name = name.into();
    service
}

async fn ensure(balancers: &Background<Slow>, service: &Service) -> Result<String, Duration> {
    match balancers.ensure("c", service, &[]).await {
        Ok(status) => Ok(status.unwrap().ingress[0].ip.clone()),
        Err(error) => {
            assert!(error.is_in_progress(), "{error}");
            Err(error.retry_after().unwrap())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fast_work_is_answered_at_once() {
    let balancers = slow(1);
    assert_eq!(ensure(&balancers, &service("a")).await.unwrap(), "192.0.2.1");
    assert!(lock(&balancers.tasks).is_empty());
}

#[tokio::test(start_paused = true)]
async fn slow_work_goes_on_and_its_answer_waits_for_the_next_call() {
    let balancers = slow(0);
    let a = service("a");
    let first = ensure(&balancers, &a).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(ensure(&balancers, &a).await.unwrap_err() > first, "old work is asked about less often");
    assert_eq!(ensure(&balancers, &service("b")).await.unwrap_err(), AGAIN.0, "another group has work of its own");
    balancers.balancers.gate.add_permits(2);
    tokio::task::yield_now().await;
    assert_eq!(ensure(&balancers, &a).await.unwrap(), "192.0.2.1");
    assert_eq!(balancers.balancers.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_an_older_object_is_not_used() {
    let balancers = slow(0);
    let mut a = service("a");
    ensure(&balancers, &a).await.unwrap_err();
    a.metadata.annotations.insert("x".into(), "1".into());
    ensure(&balancers, &a).await.unwrap_err();
    assert_eq!(balancers.balancers.calls.load(Ordering::SeqCst), 1, "not while the older work runs");
    balancers.balancers.gate.add_permits(2);
    tokio::task::yield_now().await;
    assert_eq!(ensure(&balancers, &a).await.unwrap(), "192.0.2.2");
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_ends() {
    let balancers = slow(0);
    balancers.balancers.gate.close();
    let error = balancers.ensure("c", &service("a"), &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "the work on the load balancer ended without an answer");
}
