//! What the core lends to a provider that leads, over the clock of the simulated cloud.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use ccm_cloudsim::core::clock::Clock as VirtualClock;
use ccm_provider::{
    EventSink, EventType, LeaderToken, LoadBalancer, NodeReader, NodeRef, ProviderContext, Service, ServiceKey,
    ServiceReader, Subject,
};

use crate::bed::{Bed, CLUSTER};

/// Time of a process is that of the cloud.
#[derive(Debug)]
pub(crate) struct Lent {
    clock: VirtualClock,
    started: (Instant, jiff::Timestamp),
    events: Mutex<Vec<String>>,
}

impl NodeReader for Lent {
    fn get(&self, _: &str) -> Option<NodeRef> {
        None
    }
    fn list(&self) -> Vec<NodeRef> {
        Vec::new()
    }
}

impl ServiceReader for Lent {
    fn get(&self, _: &ServiceKey) -> Option<Arc<Service>> {
        None
    }
    fn list(&self) -> Vec<Arc<Service>> {
        Vec::new()
    }
}

impl EventSink for Lent {
    fn event(&self, _: &Subject, _: EventType, reason: &str, message: &str) {
        self.events.lock().unwrap().push(format!("{reason}: {message}"));
    }
}

#[async_trait]
impl LeaderToken for Lent {
    fn is_leading(&self) -> bool {
        true
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

impl ccm_provider::Clock for Lent {
    fn now(&self) -> Instant {
        let passed = self.clock.now().duration_since(self.started.1).unsigned_abs();
        self.started.0 + passed
    }
    fn wall(&self) -> SystemTime {
        self.clock.now().into()
    }
}

impl Lent {
    /// The events since last asked.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

/// The balancers of a new process that leads.
pub(crate) async fn leading(bed: &Bed) -> Arc<dyn LoadBalancer> {
    watched(bed).await.0
}

/// The same, with what it reports.
pub(crate) async fn watched(bed: &Bed) -> (Arc<dyn LoadBalancer>, Arc<Lent>) {
    let provider = bed.provider().await;
    let clock = bed.aws.clock().clone();
    let started = (Instant::now(), clock.now());
    let lent = Arc::new(Lent { clock, started, events: Mutex::default() });
    let all = lent.clone();
    let context = ProviderContext::new(CLUSTER.into(), all.clone(), all.clone(), all.clone(), all.clone(), all);
    provider.initialize(context).await.unwrap();
    (provider.load_balancer().unwrap(), lent)
}
