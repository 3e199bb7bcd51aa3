//! The page of a snapshot: the objects, and the plan that was recorded with them.

use serde_json::Value;

use super::Document;
use crate::page::objects::{self, Problem, Problems};
use crate::page::{Level, Page, Row, Table};

/// The page of a snapshot without secrets.
pub(crate) fn page(document: &Document) -> Page {
    let plan = &document.plan;
    let mut problems = Problems::default();
    // Errors come first, so that they hide warnings.
    for (section, name) in [("unplanned", "error"), ("warnings", "message")] {
        for item in items(plan, section) {
            let fix = format!("`ccm explain {}` shows the cause", argument(text(item, "subject")));
            problems.add(text(item, "subject"), Problem { level: Level::Bad, error: text(item, name).to_owned(), fix });
        }
    }
    let skipped = items(plan, "skipped");
    let skipped = skipped.map(|item| format!("{} does not run: {}", text(item, "controller"), text(item, "reason")));
    let mut notes = vec![
        "This is a snapshot: it has no queues, no counts of calls, and no errors of the program that runs.".to_owned(),
    ];
    notes.extend(skipped);
    let mut tables = vec![
        due(plan),
        objects::services(document.services.iter(), &problems),
        objects::nodes(document.nodes.iter(), &problems),
    ];
    if document.answers.routes.is_some() {
        tables.push(objects::routes(document.nodes.iter(), &problems));
    }
    let facts = vec![
        ("Provider", document.provider.name.clone()),
        ("Taken", document.taken.to_string()),
        ("Taken by", document.ccm.clone()),
        ("Nodes", document.nodes.len().to_string()),
        ("Services", document.services.len().to_string()),
        ("Errors of the provider", document.answers.errors().to_string()),
        ("Redacted values", document.redacted.to_string()),
    ];
    Page { title: "Snapshot of cluster and cloud".into(), notes, facts, tables }
}

/// The writes of the plan, the objects without one, and the warnings.
fn due(plan: &Value) -> Table {
    let mut rows = Vec::new();
    for of in items(plan, "plans") {
        for step in items(of, "steps") {
            let write = format!("{} {} {}", text(step, "verb"), text(step, "kind"), text(step, "id"));
            let cells = [text(of, "subject"), "due", &write, text(step, "reason"), text(step, "risk")];
            rows.push(Row { level: Level::Waiting, cells: cells.map(str::to_owned).into() });
        }
    }
    for (section, state, name) in [("unplanned", "not planned", "error"), ("warnings", "warning", "message")] {
        let bad = items(plan, section).map(|item| {
            let cells = [text(item, "subject"), state, "", text(item, name), ""];
            Row { level: Level::Bad, cells: cells.map(str::to_owned).into() }
        });
        rows.extend(bad);
    }
    Table {
        title: "Drift: what a pass would change, and what it could not plan",
        columns: &["Object", "State", "Write", "Reason", "Risk"],
        rows,
        empty: "A pass would write nothing.",
    }
}

/// `service/default/web` for `service default/web hosts`.
fn argument(subject: &str) -> String {
    subject.splitn(3, ' ').take(2).collect::<Vec<_>>().join("/")
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
