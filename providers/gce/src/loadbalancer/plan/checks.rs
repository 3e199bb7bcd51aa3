//! Health checks. Services without their own share one. Pure.

use std::collections::BTreeMap;

use ccm_provider::Verb;
use serde_json::{Value, json};

use super::super::claim::real_scheme;
use super::super::observed::Observed;
use super::super::step::{Act, Rank};
use super::super::wanted::{Item, Settings};
use super::{Draft, change, put, update, what};
use crate::annotations::Scheme;
use crate::client::balancing::{HealthCheck, TargetPool};
use crate::client::operation::{
    HEALTH_CHECK_CREATE, HEALTH_CHECK_UPDATE, HTTP_HEALTH_CHECK_CREATE, HTTP_HEALTH_CHECK_UPDATE, Operation,
};
use crate::client::resource::last_part;
use crate::ownership::{http_check_description, is_replacing, replacing};

const PATH: &str = "/healthz";
/// The port where kube-proxy reports the health of the whole node.
pub(in super::super) const NODE_PORT: u16 = 10256;
/// Minimum seconds and counts; users may raise them.
const LEAST: [(&str, i64); 4] =
    [("checkIntervalSec", 8), ("timeoutSec", 1), ("healthyThreshold", 1), ("unhealthyThreshold", 3)];

/// What checks of other types have in place of `httpHealthCheck`.
const OTHER_TYPES: [&str; 6] = [
    "tcpHealthCheck",
    "sslHealthCheck",
    "httpsHealthCheck",
    "http2HealthCheck",
    "grpcHealthCheck",
    "grpcTlsHealthCheck",
];

/// The health check of a load balancer.
pub(super) struct Check {
    pub(super) name: String,
    pub(super) port: u16,
    description: String,
    pub(super) is_shared: bool,
    /// The description to set after the deletion of the replaced shared check was attempted. Nothing else records the
    /// attempt if the process dies in between.
    description_then: Option<String>,
}

impl Draft<'_> {
    /// The health check that a Service needs.
    pub(super) fn wanted_check(&self, settings: &Settings) -> Check {
        let own = settings.health_port.map(|port| (self.item.names.balancer.clone(), port));
        let is_shared = own.is_none();
        let (name, port) = own.unwrap_or_else(|| (self.cluster().health_check(), NODE_PORT));
        let description = match (self.item.scheme, is_shared) {
            (Scheme::External, _) => http_check_description(&name),
            (Scheme::Internal, true) => String::new(),
            (Scheme::Internal, false) => self.item.names.description(),
        };
        let mut check = Check { name, port, description, is_shared, description_then: None };
        if replaces_shared(self.observed, self.item) {
            let replacing = replacing(&check.description, &self.cluster().health_check());
            check.description_then = Some(std::mem::replace(&mut check.description, replacing));
        }
        check
    }

    fn found_check(&self, wanted: &Check) -> Option<&HealthCheck> {
        checks_of(self.observed, self.item.scheme).get(&wanted.name)
    }

    /// Creates or updates the health check.
    pub(super) fn check(&mut self, wanted: &Check) {
        let (kind, create, patch) = operations(self.item.scheme);
        let (write, what) = match self.found_check(wanted) {
            None => {
                let body = body(wanted, self.item.scheme, None);
                (
                    self.write(create, &wanted.name).body(body),
                    what(Verb::Create, kind, "the nodes are asked for their health"),
                )
            }
            Some(found) => {
                let changes = differences(wanted, self.item.scheme, found);
                if changes.is_empty() {
                    return;
                }
                let body = body(wanted, self.item.scheme, Some(found));
                (self.write(patch, &wanted.name).body(body), update(kind, changes, "it differs from what is needed"))
            }
        };
        self.push_as(wanted.is_shared, Rank::Checks, Act::Send(write), what);
    }

    /// Deletes the shared check if this one has replaced it.
    pub(super) fn replaced_check(&mut self, wanted: &Check) {
        let Some(then) = &wanted.description_then else { return };
        self.shared_check_goes(self.item.scheme, Rank::OldChecks);
        let changes = vec![change("description", &wanted.description, then)];
        let (kind, _, patch) = operations(self.item.scheme);
        let done = Check { name: wanted.name.clone(), description: then.clone(), description_then: None, ..*wanted };
        let body = body(&done, self.item.scheme, self.found_check(wanted));
        let write = self.write(patch, &wanted.name).body(body);
        self.push(
            Rank::OwnChecks,
            Act::Send(write),
            update(kind, changes, "the check that it replaces was looked after"),
        );
    }
}

fn checks_of(observed: &Observed, scheme: Scheme) -> &BTreeMap<String, HealthCheck> {
    if scheme == Scheme::External { &observed.http_checks } else { &observed.checks }
}

/// Whether a Service changes to its own health check, so that the shared one may have to be deleted: its rule exists,
/// or objects behind it that have a health check, or the new check says so.
pub(in super::super) fn replaces_shared(observed: &Observed, item: &Item) -> bool {
    let name = &item.names.balancer;
    if item.hosts_only() || item.settings.as_ref().is_none_or(|settings| settings.health_port.is_none()) {
        return false;
    }
    if let Some(own) = checks_of(observed, item.scheme).get(name) {
        return is_replacing(&own.description);
    }
    let rule = observed.rules.get(name).is_some_and(|rule| real_scheme(rule) == item.scheme);
    let behind = match item.scheme {
        Scheme::External => observed.pools.contains_key(name),
        Scheme::Internal => observed.backends.contains_key(name),
    };
    rule || behind
}

/// Whether a pool has the health check of its Service, not that of the nodes.
pub(super) fn has_own_check(balancer: &str, pool: &TargetPool) -> bool {
    pool.health_checks.iter().any(|check| last_part(check) == balancer)
}

/// The firewall rule of a Service's own health check, if the Service changes to that of the nodes.
pub(in super::super) fn left_check_firewall(observed: &Observed, item: &Item) -> Option<String> {
    let name = &item.names.balancer;
    let is_shared = item.settings.as_ref().is_some_and(|settings| settings.health_port.is_none());
    let pool = || observed.pools.get(name).is_some_and(|pool| has_own_check(name, pool));
    let has_own = checks_of(observed, item.scheme).contains_key(name) || item.scheme == Scheme::External && pool();
    (is_shared && has_own && !item.hosts_only()).then(|| match item.scheme {
        Scheme::External => item.names.external_check_firewall(),
        Scheme::Internal => item.names.internal_check_firewall(),
    })
}

/// The kind of health check, and the operations that create and update it.
fn operations(scheme: Scheme) -> (&'static str, Operation, Operation) {
    match scheme {
        Scheme::External => ("HttpHealthCheck", HTTP_HEALTH_CHECK_CREATE, HTTP_HEALTH_CHECK_UPDATE),
        Scheme::Internal => ("HealthCheck", HEALTH_CHECK_CREATE, HEALTH_CHECK_UPDATE),
    }
}

fn number(check: &HealthCheck, field: &str) -> i64 {
    match field {
        "checkIntervalSec" => check.check_interval_sec,
        "timeoutSec" => check.timeout_sec,
        "healthyThreshold" => check.healthy_threshold,
        _ => check.unhealthy_threshold,
    }
}

/// Port and path of a check of either collection.
fn target(check: &HealthCheck, scheme: Scheme) -> Option<(i64, &str)> {
    match scheme {
        Scheme::External => Some((check.port, &check.request_path)),
        Scheme::Internal => check.http_health_check.as_ref().map(|http| (http.port, &*http.request_path)),
    }
}

fn differences(wanted: &Check, scheme: Scheme, found: &HealthCheck) -> Vec<ccm_provider::Change> {
    let mut changes = Vec::new();
    let mut note = |field, before: String, after: String| {
        if before != after {
            changes.push(change(field, &before, &after));
        }
    };
    note("description", found.description.clone(), wanted.description.clone());
    let (port, path) = target(found, scheme).unwrap_or_default();
    note("port", port.to_string(), wanted.port.to_string());
    note("requestPath", path.to_owned(), PATH.to_owned());
    for (field, least) in LEAST {
        let now = number(found, field);
        note(field, now.to_string(), now.max(least).to_string());
    }
    changes
}

/// The fields of a check that we manage; larger numbers are kept.
fn body(wanted: &Check, scheme: Scheme, found: Option<&HealthCheck>) -> Value {
    let mut body = match scheme {
        Scheme::External => json!({"description": wanted.description, "port": wanted.port, "requestPath": PATH}),
        Scheme::Internal => json!({
            "description": wanted.description, "type": "HTTP",
            "httpHealthCheck": {"port": wanted.port, "requestPath": PATH},
        }),
    };
    // One whose type was changed: null removes what a check of our type cannot have.
    let is_of_other_type = scheme == Scheme::Internal && found.is_some_and(|found| found.http_health_check.is_none());
    for other in OTHER_TYPES.into_iter().filter(|_| is_of_other_type) {
        put(&mut body, other, Value::Null);
    }
    for (field, least) in LEAST {
        put(&mut body, field, json!(found.map_or(least, |found| number(found, field).max(least))));
    }
    body
}
