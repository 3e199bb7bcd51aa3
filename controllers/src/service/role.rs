//! The Services that each of several service controllers of a program handles.
//!
//! The standard controller handles Services without a class; a provider may have others for its own classes.
//! When a Service loses its class because its type changed, its controller keeps it until the cleanup is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Service, ServiceControllerSpec, ServiceKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::decide;

/// One of the service controllers of a program.
#[derive(Debug, Clone)]
pub struct Role {
    /// Canonical name.
    pub name: &'static str,
    /// The classes of its Services; empty for Services without a class.
    classes: &'static [&'static str],
    /// Classes that other service controllers of this process handle.
    others: Arc<[&'static str]>,
    /// Prefix of the names of its metrics and queues.
    pub(super) prefix: Option<&'static str>,
}

impl Role {
    /// `service-lb-controller`, beside controllers for these classes.
    pub fn standard(others: impl IntoIterator<Item = &'static str>) -> Self {
        Self { name: super::NAME, classes: &[], others: others.into_iter().collect(), prefix: None }
    }

    /// A provider's own service controller.
    pub fn of(spec: &'static ServiceControllerSpec) -> Self {
        Self { name: spec.name, classes: spec.classes, others: Arc::default(), prefix: Some(spec.metrics_prefix) }
    }

    fn is_standard(&self) -> bool {
        self.prefix.is_none()
    }

    /// Whether another service controller may run beside this one.
    pub(super) fn is_alone(&self) -> bool {
        self.is_standard() && self.others.is_empty()
    }

    /// Whether the Service requests a load balancer from this controller, or did before it was deleted.
    pub(super) fn asks(&self, service: &Service) -> bool {
        match service.spec.load_balancer_class.as_deref() {
            None => self.is_standard() && service.is_load_balancer(),
            Some(class) => self.classes.contains(&class) && service.is_load_balancer(),
        }
    }

    /// Whether the Service needs a load balancer of this controller now. One that is being deleted needs none, even if
    /// it waits for other finalizers: the API server accepts no new finalizer on it, so every attempt would fail.
    pub(super) fn wants(&self, service: &Service) -> bool {
        self.asks(service) && !decide::is_leaving(service)
    }

    /// Whether a change of the object requires a sync.
    pub(super) fn needs_update(&self, old: &Service, new: &Service) -> bool {
        match (self.asks(old), self.asks(new)) {
            (false, false) => false,
            (true, true) => decide::differs(old, new),
            _ => true,
        }
    }

    /// Whether this controller must delete the load balancer of the Service. As upstream, the standard one does so
    /// whatever the class, unless another controller of this process handles that class.
    pub(super) fn needs_cleanup(&self, service: &Service) -> bool {
        let class = service.spec.load_balancer_class.as_deref();
        let ours = match self.is_standard() {
            true => class.is_none_or(|class| !self.others.contains(&class)),
            false => class.is_some_and(|class| self.classes.contains(&class)),
        };
        ours && service.needs_cleanup()
    }
}

/// The time for which a released Service stays reserved: its controller's last write must reach the store first.
pub(super) const CHANGE_HANDS: Duration = Duration::from_secs(1);

/// The owning controller of each Service, from the first sync until its load balancer is completely deleted.
#[derive(Debug, Clone, Default)]
pub struct Owners(Arc<Mutex<BTreeMap<ServiceKey, Owner>>>);

#[derive(Debug)]
struct Owner {
    controller: &'static str,
    /// The time at which it released the Service.
    until: Option<Instant>,
}

impl Owners {
    /// Takes ownership of a Service; false if another controller owns it.
    pub(super) fn take(&self, key: &ServiceKey, controller: &'static str) -> bool {
        let mut owners = self.0.lock();
        owners.retain(|_, owner| owner.until.is_none_or(|until| until.elapsed() < CHANGE_HANDS));
        let owner = owners.entry(key.clone()).or_insert(Owner { controller, until: None });
        if owner.controller != controller {
            return false;
        }
        owner.until = None;
        true
    }

    /// Releases a Service.
    pub(super) fn release(&self, key: &ServiceKey, controller: &'static str) {
        if let Some(owner) = self.0.lock().get_mut(key).filter(|owner| owner.controller == controller) {
            owner.until = Some(Instant::now());
        }
    }
}
