//! The events of load balancers, without repetitions.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ccm_kit::Cluster;
use ccm_provider::{EventType, Finding, ProviderError, Service, ServiceAction, Severity, Subject};
use parking_lot::Mutex;

use super::wanted::{CONFLICT, HOSTS, MIXED_PROTOCOLS, OPTIONS_IGNORED};

/// The reason of events about the configuration of a Service.
const CONFIGURATION: &str = "LoadBalancerConfiguration";
/// The reason of events with a command for the administrators of the network.
const MANUAL_CHANGE: &str = "LoadBalancerManualChange";
/// A command that was not run is shown again after this time.
const COMMAND_AGAIN: Duration = Duration::from_secs(3600);

/// The emitted events.
#[derive(Debug)]
pub(super) struct Events {
    cluster: Cluster,
    /// The last findings of each Service: reason and text.
    reported: Mutex<BTreeMap<String, BTreeSet<(String, String)>>>,
    /// The time of each command, by the UID of the Service and the command.
    commands: Mutex<BTreeMap<(String, String), Instant>>,
}

impl Events {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, reported: Mutex::default(), commands: Mutex::default() }
    }

    /// Emits the findings that were not emitted for this Service yet: its `own`, and those with its key. Those of an update
    /// of hosts are not all.
    pub(super) fn report(&self, service: &Service, action: ServiceAction, own: &[Finding], findings: &[Finding]) {
        let Some(context) = self.cluster.context() else { return };
        let key = service.key().to_string();
        let is_for = |finding: &&Finding| {
            finding.severity >= Severity::Warning && (finding.value.as_ref() == Some(&key) || own.contains(finding))
        };
        let event = |finding: &Finding| match &*finding.key {
            reason @ (MIXED_PROTOCOLS | CONFLICT | OPTIONS_IGNORED) => (reason.to_owned(), finding.message.clone()),
            HOSTS => (CONFIGURATION.to_owned(), finding.message.clone()),
            field if field.starts_with("spec.") => (CONFIGURATION.to_owned(), format!("{field}: {}", finding.message)),
            _ => (CONFIGURATION.to_owned(), finding.to_string()),
        };
        let mut now: BTreeSet<(String, String)> = findings.iter().filter(is_for).map(event).collect();
        let mut reported = self.reported.lock();
        let before = reported.remove(&key).unwrap_or_default();
        for (reason, message) in now.difference(&before) {
            context.events.event(&Subject::service(service), EventType::Warning, reason, message);
        }
        if action == ServiceAction::UpdateHosts {
            now.extend(before);
        }
        if !now.is_empty() {
            reported.insert(key, now);
        }
    }

    /// Emits a missing permission that the provider does without, which concerns all Services.
    pub(super) fn missing(&self, service: &Service, error: &ProviderError) {
        let Some(context) = self.cluster.context() else { return };
        let message = format!("{error}; the objects show what became of a write");
        context.events.event(&Subject::service(service), EventType::Warning, CONFIGURATION, &message);
    }

    /// Emits the command that an administrator of the network has to run.
    pub(super) fn command(&self, subject: &Subject, line: &str) {
        let Some(context) = self.cluster.context() else { return };
        let now = self.cluster.now();
        let mut commands = self.commands.lock();
        commands.retain(|_, shown| now.saturating_duration_since(*shown) < COMMAND_AGAIN);
        let key = (subject.uid.to_string(), line.to_owned());
        if let Entry::Vacant(entry) = commands.entry(key) {
            entry.insert(now);
            let message = format!("Firewall change required by security admin: `{line}`");
            context.events.event(subject, EventType::Normal, MANUAL_CHANGE, &message);
        }
    }
}
