//! Alerts and dashboard only use existing metrics.

use std::collections::BTreeSet;
use std::path::Path;

use ccm_provider::ErrorClass;
use ccm_test_manifests::workspace;
use regex::Regex;
use serde_json::Value;

use crate::rendered::documents;
use crate::tools::read;

/// All expressions in the alerts and the dashboard.
pub(crate) fn expressions() -> Vec<String> {
    let mut found = Vec::new();
    for document in documents(&read("components/metrics/prometheus-rule.yaml")) {
        collect(&document, &mut found);
    }
    let alerts = found.len();
    collect(&serde_json::from_str(&read("components/metrics/dashboard.json")).unwrap(), &mut found);
    assert!(alerts > 8 && found.len() > alerts + 15, "{alerts} {}", found.len());
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// The metrics in an expression, with the labels that it filters or groups by.
pub(crate) fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let selector = Regex::new(r"([a-z_][a-z0-9_]*)\{([^}]*)\}").unwrap();
    let label = Regex::new(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*""#).unwrap();
    let grouping = Regex::new(r"\b(?:by|on)\s*\(([^)]*)\)").unwrap();
    let grouped: Vec<String> = grouping
        .captures_iter(expression)
        .flat_map(|groups| {
            groups[1].split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect::<Vec<_>>()
        })
        .collect();
    selector
        .captures_iter(expression)
        .map(|found| {
            let own = label.captures_iter(&found[2]).map(|label| label[1].to_owned());
            (found[1].to_owned(), own.chain(grouped.iter().cloned()).collect())
        })
        .collect()
}

/// The name without the suffixes of a histogram's series.
pub(crate) fn family(name: &str) -> &str {
    ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// `hack/alerts.sh` runs them.
#[test]
fn every_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_is_silent() {
    let rules = documents(&read("components/metrics/prometheus-rule.yaml")).remove(0);
    let tests = std::fs::read_to_string(workspace().join("tests/manifests/alerts.yaml")).unwrap();
    let of_group = rules["spec"]["groups"][0]["rules"].as_array().unwrap().iter();
    for alert in of_group.map(|rule| rule["alert"].as_str().unwrap()) {
        let cases = tests.split("\n# ").filter(|case| case.contains(&format!("alertname=\"{alert}\"")));
        let values: Vec<bool> = cases.map(|case| case.contains("{value: 1}")).collect();
        assert_eq!(values, [true, false], "{alert}");
    }
}

#[test]
fn the_outcomes_of_calls_in_the_alerts_and_the_dashboard_are_those_of_the_program() {
    let outcomes = Regex::new(r#"outcome(?:=~|!~|!=|=)"([^"]*)""#).unwrap();
    let all = expressions().join("\n");
    let found: BTreeSet<&str> =
        outcomes.captures_iter(&all).flat_map(|found| found.get(1).unwrap().as_str().split('|')).collect();
    assert!(!found.is_empty());
    for outcome in found {
        assert!(outcome == "ok" || ErrorClass::from_name(outcome).is_some(), "{outcome}");
    }
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_metric_of_the_alerts_and_the_dashboard_is_one_that_the_program_registers() {
    let mut code = String::new();
    for folder in ["ccm/src", "controllers/src", "controllers/runtime/src"] {
        sources(&workspace().join(folder), &mut code);
    }
    let names: BTreeSet<String> = expressions().iter().flat_map(|e| selectors(e)).map(|(name, _)| name).collect();
    assert!(names.len() > 15, "{names:?}");
    let unknown: Vec<&String> =
        names.iter().filter(|name| *name != "up" && !code.contains(&format!("\"{}\"", family(name)))).collect();
    assert!(unknown.is_empty(), "no code registers {unknown:?}");
}

#[test]
fn every_selector_names_the_job() {
    // Other components export metrics with the same names.
    for expression in expressions() {
        let selectors = selectors(&expression);
        assert!(!selectors.is_empty(), "{expression}");
        for (name, labels) in selectors {
            assert!(labels.contains(&"job".to_owned()), "{name} in {expression}");
        }
    }
}

#[test]
fn panels_do_not_overlap_and_have_numbers_of_their_own() {
    let dashboard: Value = serde_json::from_str(&read("components/metrics/dashboard.json")).unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
}
