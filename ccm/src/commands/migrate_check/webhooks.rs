//! Admission webhooks for the writes of this program.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_provider::{Check, NodeRef, Service};

use super::join;
use super::objects::{Rule, Selector, Webhook, WebhookConfiguration};

const CHECK: &str = "webhook";
/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Written if persistentvolume-label-controller runs.
const VOLUMES: &str = "persistentvolumes";

/// A write of this program; a patch is an update.
struct Write {
    group: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
    namespaced: bool,
}

const WRITES: [Write; 5] = [
    Write { group: "", resource: "nodes", operations: &["UPDATE", "DELETE"], namespaced: false },
    Write { group: "", resource: "nodes/status", operations: &["UPDATE"], namespaced: false },
    Write { group: "", resource: "services/status", operations: &["UPDATE"], namespaced: true },
    Write { group: "", resource: VOLUMES, operations: &["UPDATE"], namespaced: false },
    Write { group: "coordination.k8s.io", resource: "leases", operations: &["CREATE", "UPDATE"], namespaced: true },
];

pub(super) struct Written<'a> {
    pub(super) nodes: &'a [NodeRef],
    pub(super) services: &'a [Arc<Service>],
    /// The namespace of the lease.
    pub(super) lease: &'a str,
    /// Labels of the namespaces by name, without those that could not be read.
    pub(super) namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// Whether persistentvolume-label-controller runs.
    pub(super) volumes: bool,
    /// Whether all webhooks could be read.
    pub(super) all: bool,
}

pub(super) fn checks(configurations: &[(&'static str, WebhookConfiguration)], written: &Written<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    for (kind, configuration) in configurations {
        for webhook in &configuration.webhooks {
            let subject = format!("{kind} {}/{}", configuration.metadata.name, webhook.name);
            checks.extend(blocks(&subject, webhook, written));
            checks.extend(labels(&subject, webhook, written).filter(|_| *kind == "mutatingwebhook"));
        }
    }
    if checks.is_empty() && written.all {
        checks.push(Check::good(CHECK, "", "no webhook can refuse what this program writes"));
    }
    checks
}

fn blocks(subject: &str, webhook: &Webhook, written: &Written<'_>) -> Option<Check> {
    // The default policy is `Fail`.
    if webhook.failure_policy.as_deref() == Some("Ignore") {
        return None;
    }
    let met: Vec<&str> =
        WRITES.iter().filter(|write| meets(webhook, write, written)).map(|write| write.resource).collect();
    if met.is_empty() {
        return None;
    }
    let fix =
        format!("take {} out of its rules, or exclude them by its selectors, or set failurePolicy: Ignore", join(&met));
    let maybe = if webhook.match_conditions.is_empty() { "" } else { " (unless its matchConditions exclude it)" };
    let Some(service) = &webhook.client_config.service else {
        let text = format!("while it does not answer, no write of {} goes through{maybe}", join(&met));
        return Some(Check::warning(CHECK, subject, text, fix));
    };
    let there = |known: &&Arc<Service>| {
        *known.metadata.namespace == *service.namespace && *known.metadata.name == *service.name
    };
    let named = format!("{}/{}", service.namespace, service.name);
    if !written.services.iter().any(|known| there(&known)) {
        let text = format!("its service {named} does not exist: every write of {} is refused{maybe}", join(&met));
        return Some(Check::error(CHECK, subject, text, format!("delete it, or install what it belongs to; or {fix}")));
    }
    let text = format!(
        "while its service {named} does not answer, no write of {} goes through{maybe}; its pods may need nodes that only \
         such a write makes usable",
        join(&met)
    );
    Some(Check::warning(CHECK, subject, text, fix))
}

fn meets(webhook: &Webhook, write: &Write, written: &Written<'_>) -> bool {
    if write.resource == VOLUMES && !written.volumes {
        return false;
    }
    let matches = |rule: &Rule| write.operations.iter().any(|operation| covers(rule, write, operation));
    webhook.rules.iter().any(matches) && selected(webhook, write, written)
}

fn covers(rule: &Rule, write: &Write, operation: &str) -> bool {
    let has = |list: &[String], word: &str| list.iter().any(|known| known == "*" || known == word);
    let scope = match rule.scope.as_deref() {
        Some("Cluster") => !write.namespaced,
        Some("Namespaced") => write.namespaced,
        _ => true,
    };
    let resource = rule.resources.iter().any(|known| covers_resource(known, write.resource));
    has(&rule.api_groups, write.group) && has(&rule.operations, operation) && resource && scope
}

/// `*` means every resource without subresources, `*/*` all, `x/*` the subresources of x, `*/y` y of all resources.
fn covers_resource(known: &str, resource: &str) -> bool {
    let part = |known: &str, part: &str| known == "*" || known == part;
    match (known.split_once('/'), resource.split_once('/')) {
        (None, None) => part(known, resource),
        (None, Some(_)) => false,
        (Some((first, sub)), None) => part(first, resource) && sub == "*",
        (Some((first, sub)), Some((resource, subresource))) => part(first, resource) && part(sub, subresource),
    }
}

/// Whether the selectors match any of the objects.
fn selected(webhook: &Webhook, write: &Write, written: &Written<'_>) -> bool {
    let object = webhook.object_selector.as_ref();
    match write.resource {
        // Namespace selectors do not apply to cluster-scoped objects.
        "nodes" | "nodes/status" => {
            let node = |node: &NodeRef| object.is_none_or(|selector| selector.selects(|key| node.labels.get(key)));
            written.nodes.iter().any(node)
        }
        // The labels of volumes are unknown here.
        VOLUMES => object.is_none_or(|selector| selector.selects(|_| None)),
        "leases" => {
            let object = object.is_none_or(|selector| selector.selects(|_| None));
            object && namespace(webhook.namespace_selector.as_ref(), written.lease, written)
        }
        _ => written.services.iter().filter(|service| service.wants_load_balancer() || service.has_finalizer()).any(
            |service| {
                let metadata = &service.metadata;
                let label = |key: &str| metadata.labels.get(key).map(String::as_str);
                object.is_none_or(|selector| selector.selects(label))
                    && namespace(webhook.namespace_selector.as_ref(), &metadata.namespace, written)
            },
        ),
    }
}

fn namespace(selector: Option<&Selector>, name: &str, written: &Written<'_>) -> bool {
    let labels = written.namespaces.get(name);
    let label = |key: &str| match labels.and_then(|labels| labels.get(key)) {
        Some(value) => Some(value.as_str()),
        None if key == NAMESPACE_NAME => Some(name),
        None => None,
    };
    selector.is_none_or(|selector| selector.selects(label))
}

/// A second webhook that labels volumes.
fn labels(subject: &str, webhook: &Webhook, written: &Written<'_>) -> Option<Check> {
    let names = |list: &[String], word: &str| list.iter().any(|known| known == word);
    let volumes = |rule: &Rule| {
        names(&rule.resources, VOLUMES) && (names(&rule.operations, "CREATE") || names(&rule.operations, "*"))
    };
    (written.volumes && webhook.rules.iter().any(volumes)).then(|| {
        let text =
            "it changes PersistentVolumes as they are made, and persistentvolume-label-controller labels them too";
        Check::warning("volume-labels", subject, text, "keep one: remove it, or give --controllers=*,-pvlabel")
    })
}
