//! The findings for given inputs.

#![expect(clippy::needless_pass_by_value, reason = "literals at all callers")]

mod of_cluster;
mod of_flags;
mod of_objects;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_controllers::preview::Unplanned;
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    Change, Check, Evidence, EvidenceKind, Finding, Instance, Lookup, Node, Plan, ProviderError, Related, Risk,
    Schemes, Service, Severity, Step, Taint, Verb,
};
use ccm_runtime::SyncError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::objects::{Lease, Pod};
use super::running::{Found, Running};
use super::*;
use crate::options::Options;
use crate::program::Program;

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn options(more: &[&str]) -> Options {
    Options::from_args(["--cloud-provider=fake"].iter().chain(more)).unwrap()
}

/// `error check subject`, sorted as printed.
fn lines(checks: Vec<Check>) -> Vec<String> {
    let line = |check: Check| format!("{} {} {}", check.severity.as_str(), check.check, check.subject);
    sorted(checks).into_iter().map(|check| line(check).trim_end().to_owned()).collect()
}

fn only(checks: Vec<Check>, word: &str) -> Check {
    let mut found: Vec<Check> = checks.into_iter().filter(|check| check.check == word).collect();
    assert_eq!(found.len(), 1, "{word}: {found:?}");
    found.remove(0)
}

fn node(name: &str, id: Option<&str>) -> Node {
    Node { name: name.into(), provider_id: id.map(Into::into), ready: Some(ConditionStatus::True), ..Node::default() }
}

fn service(name: &str, finalizers: &[&str], spec: Value, ip: Option<&str>) -> Arc<Service> {
    let ingress: Vec<Value> = ip.iter().map(|ip| json!({"ip": ip})).collect();
    Arc::new(of(json!({"metadata": {"namespace": "default", "name": name, "finalizers": finalizers}, "spec": spec,
        "status": {"loadBalancer": {"ingress": ingress}}})))
}

#[test]
fn a_terminal_shows_each_group_once_and_that_with_the_worst_finding_first() {
    let checks = sorted(vec![
        Check::warning("rbac", "", "an event", "grant it"),
        Check::error("rbac", "", "a node", "grant it"),
        Check::warning("leader", "", "none", "start one"),
        Check::good("nodes", "", "fine"),
    ]);
    let shown = text(&checks, 0, Output::terminal(80));
    let heads: Vec<&str> = shown.lines().filter(|line| line.chars().all(|c| c.is_ascii_lowercase())).collect();
    assert_eq!(heads, ["rbac", "leader", "nodes", ""], "{shown}");
    let severities: Vec<String> = text(&checks, 0, Output::plain(Format::Text))
        .lines()
        .map_while(|line| line.split("  ").next().filter(|word| !word.is_empty()).map(str::to_owned))
        .collect();
    assert_eq!(severities, ["error", "warning", "warning", "info"], "a pipe: errors first");
}
