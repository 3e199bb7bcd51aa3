//! The events of load balancers, without repetitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use ccm_kit::Cluster;
use ccm_kit::balancer::{Progress, Written};
use ccm_provider::{
    ErrorClass, EventType, Finding, ProviderError, Service, ServiceAction, ServiceKey, Severity, Subject,
};
use parking_lot::Mutex;

use super::plan::step::Write;
use super::wanted::CONFIGURATION;
use crate::client::ApiError;

/// Reasons and text of the Go program for pools of single Services.
const POOL_UPDATED: &str = "LoadBalancerBackendPoolUpdated";
const POOL_FAILED: &str = "LoadBalancerBackendPoolUpdateFailed";
const POOL_TEXT: &str = "Load balancer backend pool updated successfully";

/// The emitted events.
#[derive(Debug)]
pub(super) struct Events {
    cluster: Cluster,
    /// The last findings of each Service: reason and text.
    reported: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
    /// The Services whose pools are being written, by operation.
    pools: Mutex<BTreeMap<String, String>>,
    /// Whether the missing permission was emitted.
    missing: OnceLock<()>,
}

impl Events {
    pub(super) fn new(cluster: Cluster) -> Self {
        let (reported, pools, missing) = Default::default();
        Self { cluster, reported, pools, missing }
    }

    /// Emits a missing permission that the provider does without, which concerns all Services: once.
    pub(super) fn missing(&self, service: &Service, error: &ApiError) {
        let Some(context) = self.cluster.context() else { return };
        if self.missing.set(()).is_ok() {
            let error = ProviderError::from(error.clone());
            let message = format!("{error}; the objects show what became of a write");
            context.events.event(&Subject::service(service), EventType::Warning, CONFIGURATION, &message);
        }
    }

    /// Emits the result of a write of the pool of a single Service. What is planned again at once has no event.
    pub(super) fn pool_written(&self, write: &Write, written: &Result<Written, ProviderError>) {
        let Write::Pool(change) = write else { return };
        let Some(service) = &change.service else { return };
        match written {
            Ok(Written::Accepted(operation)) => {
                self.pools.lock().insert(operation.name.clone(), service.clone());
            }
            Ok(Written::Done) => self.pool_ended(service, None),
            Ok(Written::Failed(error)) | Err(error) => self.pool_ended(service, Some(error)),
        }
    }

    /// The same for a write that takes long.
    pub(super) fn pool_polled(&self, operation: &str, progress: &Result<Progress, ProviderError>) {
        let error = match progress {
            Ok(Progress::Done) => None,
            Ok(Progress::Failed(error)) => Some(error),
            Ok(Progress::Running) | Err(_) => return,
        };
        let service = self.pools.lock().remove(operation);
        service.inspect(|service| self.pool_ended(service, error));
    }

    fn pool_ended(&self, service: &str, error: Option<&ProviderError>) {
        let Some(context) = self.cluster.context() else { return };
        let Some(service) = ServiceKey::parse(service).and_then(|key| context.services.get(&key)) else { return };
        let subject = Subject::service(&service);
        match error {
            None => context.events.event(&subject, EventType::Normal, POOL_UPDATED, POOL_TEXT),
            Some(error) => match error.class() {
                ErrorClass::Conflict | ErrorClass::NotFound | ErrorClass::InProgress { .. } => {}
                class => context.events.failure(&subject, POOL_FAILED, &error.to_string(), Some(&class)),
            },
        }
    }

    /// Emits the findings that were not emitted for this Service yet: its `own`, and those with its key. A deletion emits
    /// none.
    pub(super) fn report(&self, service: &Service, action: ServiceAction, own: &[Finding], findings: &[Finding]) {
        let Some(context) = self.cluster.context() else { return };
        let key = service.key().to_string();
        let is_for = |finding: &&Finding| {
            finding.severity >= Severity::Warning && (finding.value.as_ref() == Some(&key) || own.contains(finding))
        };
        // The key of a finding about an annotation is the annotation, that of others the reason.
        let event = |finding: &Finding| match finding.key.contains('/') {
            false => (finding.key.clone(), finding.message.clone()),
            true => (CONFIGURATION.to_owned(), finding.to_string()),
        };
        let mut now: BTreeSet<(String, String)> = findings.iter().filter(is_for).map(event).collect();
        let mut reported = self.reported.lock();
        let before = reported.remove(&key).unwrap_or_default();
        if action == ServiceAction::Delete {
            return;
        }
        for (reason, message) in now.difference(&before) {
            context.events.event(&Subject::service(service), EventType::Warning, reason, message);
        }
        // An update of hosts does not look at the rest.
        if action == ServiceAction::UpdateHosts {
            now.extend(before);
        }
        if !now.is_empty() {
            reported.insert(key, now);
        }
    }
}
