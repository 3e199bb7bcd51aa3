//! The result of a run as text, JSON, JUnit and a table.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::checks::{CHECKS, Check};

pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The reason.
    NotRun(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::NotRun(_) => "not run",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(message) | Self::NotRun(message) => message,
        }
    }
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) program: String,
    pub(crate) version: String,
    /// Of the program; empty if it does not know it.
    pub(crate) commit: String,
    pub(crate) provider: String,
    pub(crate) reference: bool,
    pub(crate) kubernetes: String,
    pub(crate) date: String,
    pub(crate) seconds: f64,
    pub(crate) results: Vec<(&'static Check, Outcome, f64)>,
}

impl Report {
    fn count(&self, word: &str) -> usize {
        self.results.iter().filter(|(_, outcome, _)| outcome.word() == word).count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.count("failed")
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n{} on Kubernetes {}, {}\n", self.program, self.version, self.kubernetes, self.date);
        let mut group = "";
        for (check, outcome, seconds) in &self.results {
            if check.group != group {
                group = check.group;
                let _ = writeln!(out, "\n{group}");
            }
            let _ = writeln!(out, "  {:<7} {seconds:>5.1}s  {}", outcome.word(), check.name);
            if !matches!(outcome, Outcome::Passed) {
                let _ = writeln!(out, "                  {}", outcome.message().replace('\n', "\n                  "));
                let _ = writeln!(out, "                  source: {}", check.source);
            }
        }
        let (passed, failed, not_run) = (self.count("passed"), self.failed(), self.count("not run"));
        let _ = writeln!(out, "\n{passed} passed, {failed} failed, {not_run} not run, in {:.0} s", self.seconds);
        if self.reference && failed > 0 {
            out.push_str("The program is the reference: what failed is a mistake of the expectation.\n");
        }
        out
    }

    pub(crate) fn json(&self) -> Value {
        let check = |(check, outcome, seconds): &(&Check, Outcome, f64)| {
            json!({"group": check.group, "name": check.name, "source": check.source, "result": outcome.word(),
                "seconds": (seconds * 10.0).round() / 10.0, "message": outcome.message()})
        };
        let program = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        json!({"program": program, "version": self.version, "commit": self.commit, "provider": self.provider, "reference": self.reference,
            "kubernetes": self.kubernetes, "date": self.date, "seconds": self.seconds.round(),
            "checks": self.results.iter().map(check).collect::<Vec<_>>()})
    }

    pub(crate) fn junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuite name=\"ccm-conformance\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.1}\">",
            self.results.len(),
            self.failed(),
            self.count("not run"),
            self.seconds,
        );
        for (check, outcome, seconds) in &self.results {
            let (group, name) = (escaped(check.group), escaped(check.name));
            let _ = writeln!(out, "  <testcase classname=\"{group}\" name=\"{name}\" time=\"{seconds:.1}\">");
            let _ = writeln!(
                out,
                "    <properties><property name=\"source\" value=\"{}\"/></properties>",
                escaped(check.source)
            );
            let message = escaped(outcome.message());
            let _ = match outcome {
                Outcome::Passed => Ok(()),
                Outcome::Failed(_) => writeln!(out, "    <failure>{message}</failure>"),
                Outcome::NotRun(_) => writeln!(out, "    <skipped message=\"{message}\"/>"),
            };
            out.push_str("  </testcase>\n");
        }
        out.push_str("</testsuite>\n");
        out
    }
}

/// For text and attributes of XML, which has no control characters but these.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// All checks with their sources.
pub(crate) fn list() -> String {
    CHECKS.iter().map(|check| format!("{:<10} {}  [{}]\n", check.group, check.name, check.source)).collect()
}

fn text(run: &Value, key: &str) -> String {
    run.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// `ccm v0.1.0 at 0123abcd, on Kubernetes v1.36.3, 2026-11-29`
fn title(run: &Value) -> String {
    let name = if run.get("reference") == Some(&true.into()) { "Go core" } else { "ccm" };
    let (version, kubernetes, date) = (text(run, "version"), text(run, "kubernetes"), text(run, "date"));
    let commit = text(run, "commit").get(..8).map(|short| format!(" at {short}")).unwrap_or_default();
    format!("{name} {}{commit}, on Kubernetes {kubernetes}, {date}", version.trim_start_matches("Kubernetes "))
}

/// A Markdown table of several runs, from their JSON reports.
pub(crate) fn table(files: &[PathBuf]) -> Result<String> {
    let read = |path: &PathBuf| -> Result<Value> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    };
    let runs: Vec<Value> = files.iter().map(read).collect::<Result<_>>()?;
    let mut out = String::from("| | Expectation | Source |");
    for run in &runs {
        let _ = write!(out, " {} |", title(run));
    }
    let _ = writeln!(out, "\n|---|---|---|{}", "---|".repeat(runs.len()));
    for check in CHECKS {
        let _ = write!(out, "| {} | {} | {} |", check.group, check.name, check.source);
        for run in &runs {
            let all = run.get("checks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let same = |other: &&Value| text(other, "group") == check.group && text(other, "name") == check.name;
            let result = all.iter().find(same).map_or("not run".to_owned(), |found| text(found, "result"));
            let _ = write!(out, " {result} |");
        }
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let results = CHECKS.iter().zip([
            Outcome::Passed,
            Outcome::Failed("a < b\n\u{1b}".into()),
            Outcome::NotRun("no \"cloud\"".into()),
        ]);
        let results = results.map(|(check, outcome)| (check, outcome, 1.25)).collect();
        Report { version: "v1".into(), seconds: 9.0, results, ..Report::default() }
    }

    #[test]
    fn a_failure_has_its_message_and_source_in_every_form() {
        let report = report();
        let source = CHECKS.get(1).unwrap().source;
        let text = report.text();
        assert!(text.contains("a < b") && text.contains(source), "{text}");
        assert!(text.contains("\n1 passed, 1 failed, 1 not run, in 9 s\n"), "{text}");
        assert_eq!(report.json().pointer("/checks/1/message").unwrap(), "a < b\n\u{1b}");
        let junit = report.junit();
        assert!(junit.contains("tests=\"3\" failures=\"1\" skipped=\"1\" time=\"9.0\""), "{junit}");
        assert!(junit.contains("<failure>a &lt; b\n\u{fffd}</failure>"), "{junit}");
        assert!(junit.contains("<skipped message=\"no &quot;cloud&quot;\"/>"), "{junit}");
        assert_eq!(junit.matches("<testcase ").count(), junit.matches("</testcase>").count());
    }

    #[test]
    fn names_are_unique_within_their_group() {
        let mut names: Vec<_> = CHECKS.iter().map(|check| (check.group, check.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }

    /// The README shows the runs in `results/`, and the first page their sum.
    #[test]
    fn the_pages_show_the_stored_runs_and_these_have_every_check() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let files = [folder.join("results/ccm.json"), folder.join("results/reference.json")];
        let page = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
        let table = table(&files).unwrap();
        assert!(page("README.md").contains(&table), "the table of tests/conformance/README.md should be:\n{table}");
        let known: Vec<_> = CHECKS.iter().map(|c| [c.group, c.name, c.source].map(str::to_owned)).collect();
        for file in &files {
            let run: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            let checks = run["checks"].as_array().unwrap();
            let stored: Vec<_> = checks.iter().map(|c| ["group", "name", "source"].map(|key| text(c, key))).collect();
            assert_eq!(stored, known, "{}", file.display());
            let passed = checks.iter().filter(|check| text(check, "result") == "passed").count();
            let sum = format!("{passed} of {} for {}", checks.len(), title(&run));
            let first = page("../../README.md").replace('\n', " ");
            assert!(first.contains(&sum), "the first page should have: {sum}");
        }
    }
}
