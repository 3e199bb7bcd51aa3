//! The events of load balancers, without repetitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ccm_kit::{Cluster, lock};
use ccm_provider::{EventType, Finding, Service, ServiceAction, Severity, Subject};

use super::wanted::CONFIGURATION;

/// The emitted events.
#[derive(Debug)]
pub(super) struct Events {
    cluster: Cluster,
    /// The last findings of each Service: reason and text.
    reported: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
}

impl Events {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, reported: Mutex::default() }
    }

    /// Emits the findings that were not emitted for this Service yet. A deletion emits none.
    pub(super) fn report(&self, service: &Service, action: ServiceAction, findings: &[Finding]) {
        let Some(context) = self.cluster.context() else { return };
        let (key, annotations) = (service.key().to_string(), &service.metadata.annotations);
        let is_for = |finding: &&Finding| {
            let value = finding.value.as_ref();
            finding.severity >= Severity::Warning
                && value.is_some_and(|value| *value == key || annotations.get(&finding.key) == Some(value))
        };
        // The key of a finding about an annotation is the annotation, that of others the reason.
        let event = |finding: &Finding| match finding.key.contains('/') {
            false => (finding.key.clone(), finding.message.clone()),
            true => (CONFIGURATION.to_owned(), finding.to_string()),
        };
        let mut now: BTreeSet<(String, String)> = findings.iter().filter(is_for).map(event).collect();
        let mut reported = lock(&self.reported);
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
