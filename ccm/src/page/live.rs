//! The page of a running process, from what `/debug/state` shows and its stores.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Node, Service, duration};
use ccm_runtime::recent::{Failed, RecentEntry};
use serde::Deserialize as _;
use serde_json::Value;

use super::objects::{self, Problem, Problems};
use super::{Level, Page, Row, Table};

/// The remedy of an error without a class.
const NO_CLASS: &str = "see the message, and the log of the leader";

/// The page of the content of `/debug/state`, and these objects.
pub(crate) fn page(state: &Value, nodes: &[Arc<Node>], services: &[Arc<Service>]) -> Page {
    let [failures, plans] = ["recentFailures", "recentPlans"]
        .map(|name| Vec::<RecentEntry>::deserialize(state.get(name).unwrap_or(&Value::Null)).unwrap_or_default());
    let mut problems = Problems::default();
    for failure in &failures {
        let level = level(failure.failure.as_ref());
        if level > Level::Good {
            problems.add(&failure.subject, Problem { level, error: failure.text.clone(), fix: fix(failure) });
        }
    }
    let cluster = text(state, "/clusterName");
    let mut tables = vec![
        errors(&failures),
        objects::services(services.iter().map(|service| &**service), &problems),
        objects::nodes(nodes.iter().map(|node| &**node), &problems),
    ];
    let is_on = |name: &str| list(state, "/enabledControllers").iter().any(|on| on == name);
    if is_on(ccm_controllers::route::NAME) {
        tables.push(objects::routes(nodes.iter().map(|node| &**node), &problems));
    }
    tables.extend([drift(state), queues(state), calls(state), done(&plans)]);
    Page { title: format!("cloud-controller-manager of {cluster}"), notes: notes(state), facts: facts(state), tables }
}

fn level(failure: Option<&Failed>) -> Level {
    match failure {
        Some(failure) if failure.settled => Level::Good,
        Some(failure) if failure.is_passing() => Level::Waiting,
        _ => Level::Bad,
    }
}

fn fix(failure: &RecentEntry) -> String {
    let known = failure.failure.as_ref().and_then(|failure| failure.remediation.clone());
    known.unwrap_or_else(|| NO_CLASS.to_owned())
}

fn notes(state: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if text(state, "/leadership/state") != "leading" {
        notes.push("This replica does not lead: it does nothing, and knows no errors of the leader.".to_owned());
    }
    if state.get("dryRun") == Some(&Value::Bool(true)) {
        notes.push("It runs with --dry-run: it writes nothing.".to_owned());
    }
    notes
}

fn facts(state: &Value) -> Vec<(&'static str, String)> {
    let seen = state.get("observations").and_then(Value::as_object).into_iter().flatten();
    let seen: Vec<String> = seen.map(|(of, age)| format!("{of} {} ago", seconds(age, "/ageSeconds"))).collect();
    let facts = [
        ("Provider", text(state, "/provider")),
        ("Version", text(state, "/version")),
        ("State", text(state, "/leadership/state")),
        ("Replica", text(state, "/leadership/identity")),
        ("Lease", text(state, "/leadership/lease")),
        ("Running for", seconds(state, "/uptimeSeconds")),
        ("Nodes", text(state, "/stores/nodes/objects")),
        ("Services", text(state, "/stores/services/objects")),
        ("Complete reads of the cloud", seen.join(", ")),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn errors(failures: &[RecentEntry]) -> Table {
    let line = |entry: &RecentEntry| {
        let failure = entry.failure.as_ref();
        let state = match level(failure) {
            Level::Good => "succeeded since",
            Level::Waiting => "retried",
            Level::Plain | Level::Bad => "failing",
        };
        let next = match failure.and_then(|failure| failure.next_try_seconds) {
            Some(next) => format!("in {}", short(next)),
            None if failure.is_some_and(|failure| !failure.settled) => "when the object changes".to_owned(),
            None => String::new(),
        };
        let controller = failure.map_or_else(String::new, |failure| failure.controller.clone());
        let seen = format!("{} ago, {} times", short(entry.seconds_ago), entry.count);
        let cells = vec![entry.subject.clone(), state.into(), entry.text.clone(), fix(entry), seen, next, controller];
        Row { level: level(failure), cells }
    };
    Table {
        title: "Errors",
        columns: &["Object", "State", "Error", "Fix", "Seen", "Next attempt", "Controller"],
        rows: failures.iter().map(line).collect(),
        empty: "No sync has failed.",
    }
}

fn drift(state: &Value) -> Table {
    let line = |found: &Value| {
        let now = text(found, "/steps");
        let level = if now == "0" { Level::Good } else { Level::Waiting };
        Row { level, cells: vec![text(found, "/controller"), now, text(found, "/total")] }
    };
    Table {
        title: "Drift: changes of the cloud by others",
        columns: &["Controller", "Writes due at the last check", "Since the start"],
        rows: list(state, "/drift").iter().map(line).collect(),
        empty: "The cloud was not checked yet.",
    }
}

fn queues(state: &Value) -> Table {
    let line = |queue: &Value| {
        let [name, ready, working, waiting] =
            ["/name", "/ready", "/working", "/waiting"].map(|pointer| text(queue, pointer));
        let [oldest, longest] = ["/oldestReadySeconds", "/longestWorkSeconds"].map(|pointer| seconds(queue, pointer));
        Row { level: Level::Plain, cells: vec![name, ready, working, waiting, oldest, longest] }
    };
    Table {
        title: "Queues",
        columns: &["Queue", "Ready", "In progress", "Delayed", "Oldest ready", "Longest in progress"],
        rows: list(state, "/queues").iter().map(line).collect(),
        empty: "No controller has a queue.",
    }
}

fn calls(state: &Value) -> Table {
    let line = |call: &Value| {
        let outcome = text(call, "/outcome");
        let level = if outcome == "ok" { Level::Good } else { Level::Plain };
        Row { level, cells: vec![text(call, "/call"), outcome, text(call, "/count")] }
    };
    Table {
        title: "Calls to the provider, by kind",
        columns: &["Call", "Outcome", "Calls"],
        rows: list(state, "/calls").iter().map(line).collect(),
        empty: "The provider was not called yet.",
    }
}

fn done(plans: &[RecentEntry]) -> Table {
    let line = |plan: &RecentEntry| {
        let seen = format!("{} ago", short(plan.seconds_ago));
        Row { level: Level::Plain, cells: vec![plan.subject.clone(), plan.text.clone(), seen] }
    };
    Table {
        title: "Plans, the last 100",
        columns: &["Object", "Plan", "Made"],
        rows: plans.iter().map(line).collect(),
        empty: "No plan was made yet.",
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text or number; empty if it is absent.
fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A number of seconds, in whole seconds.
fn seconds(value: &Value, pointer: &str) -> String {
    let read = value.pointer(pointer).and_then(Value::as_f64);
    let read = read.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    read.map_or_else(String::new, |read| short(read.as_secs()))
}

fn short(seconds: u64) -> String {
    duration::format(Duration::from_secs(seconds))
}
