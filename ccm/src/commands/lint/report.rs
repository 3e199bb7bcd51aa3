//! Output of findings: for users, for programs, for GitHub.

use std::fmt::Write as _;

use ccm_provider::Severity;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::check::{Found, Looked};
use super::source::{STDIN, Unread};
use crate::commands::output::{Color, Format, Output, counted};

/// What a path in a URI escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) looked: Looked,
    /// The number of findings that `--suppress` left out.
    pub(super) hidden: usize,
    pub(super) unread: Vec<Unread>,
    /// The skipped checks with the reasons.
    pub(super) notes: Vec<String>,
}

pub(super) fn render(report: &Report, output: Output) -> String {
    match output.format {
        Format::Json | Format::Yaml => output.document("Lint", json(report)),
        Format::Github => github(report),
        Format::Sarif => format!("{:#}\n", sarif(report)),
        Format::Name => names(report),
        Format::Text | Format::Wide => text(report, output),
    }
}

/// The objects and files with findings, each once.
fn names(report: &Report) -> String {
    let mut names: Vec<String> = Vec::new();
    for found in &report.looked.found {
        let name = match (&*found.object, &found.file) {
            ("", file) => file.clone().unwrap_or_default(),
            (object, _) => object.replacen(' ', "/", 1),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.iter().map(|name| format!("{}\n", plain(name))).collect()
}

/// The place of a file for code scanners. Stdin has no path: it is the only one in the list of artifacts.
fn artifact(path: &str) -> Value {
    match path {
        STDIN => json!({"index": 0}),
        path => {
            let scheme = if path.starts_with('/') { "file://" } else { "" };
            let path = utf8_percent_encode(path.strip_prefix("./").unwrap_or(path), ESCAPED);
            json!({"uri": format!("{scheme}{path}")})
        }
    }
}

/// The Static Analysis Results Interchange Format: one result for each finding, one rule for each code.
fn sarif(report: &Report) -> Value {
    let mut codes: Vec<String> = report.looked.found.iter().map(Found::code).collect();
    codes.sort();
    codes.dedup();
    let results = report.looked.found.iter().map(|found| {
        let level = match found.finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "note",
        };
        // The file of a finding in the cluster is its object: a result without a location is not shown.
        let place = found.file.clone().unwrap_or_else(|| found.object.replace(' ', "/"));
        let line = found.line.unwrap_or(1);
        json!({
            "ruleId": found.code(),
            "level": level,
            "message": {"text": found.sentence()},
            "locations": [{"physicalLocation": {
                "artifactLocation": artifact(&place),
                "region": {"startLine": line},
            }}],
        })
    });
    let has_stdin = report.looked.found.iter().any(|found| found.file.as_deref() == Some(STDIN));
    let stdin = has_stdin.then(|| json!({"location": {"index": 0, "description": {"text": "stdin"}}}));
    let notification = |level: &str, text: String| json!({"level": level, "message": {"text": text}});
    let unread = report.unread.iter().map(|unread| notification("error", format!("{}: {}", unread.name, unread.error)));
    let notes = report.notes.iter().map(|note| notification("note", note.clone()));
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "ccm lint",
                "version": crate::version::VERSION,
                "rules": codes.iter().map(|code| json!({"id": code})).collect::<Vec<_>>(),
            }},
            "artifacts": stdin.into_iter().collect::<Vec<_>>(),
            "invocations": [{
                "executionSuccessful": report.unread.is_empty(),
                "toolExecutionNotifications": unread.chain(notes).collect::<Vec<_>>(),
            }],
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

impl Found {
    /// Names the rule: stable, so that it can be suppressed. `core/spec.loadBalancerIP`, `aws/file` for a whole file, and
    /// `core/spec.ports.name` for each port.
    pub(super) fn code(&self) -> String {
        let key = if self.finding.key.is_empty() { "file" } else { &self.finding.key };
        format!("{}/{}", self.rules, without_indexes(key))
    }

    /// `web.yaml:7`, or `service default/web` in the cluster.
    fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, _) => self.object.clone(),
        }
    }

    /// The problem, with the object if the place does not name it.
    fn sentence(&self) -> String {
        let named =
            if self.file.is_some() && !self.object.is_empty() { format!("{}: ", self.object) } else { String::new() };
        let finding = &self.finding;
        if finding.key.is_empty() { format!("{named}{}", finding.message) } else { format!("{named}{finding}") }
    }
}

/// `spec.ports.name` of `spec.ports[1].name`
fn without_indexes(key: &str) -> String {
    let mut parts = key.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']').filter(|(index, _)| index.parse::<usize>().is_ok()) {
            Some((_, rest)) => text.push_str(rest),
            None => {
                text.push('[');
                text.push_str(part);
            }
        }
    }
    text
}

/// One line without terminal control characters: names in a file are untrusted input.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// `path:line: severity: message [code]`, in columns.
fn text(report: &Report, output: Output) -> String {
    let found: Vec<(String, &Found)> =
        report.looked.found.iter().map(|f| (format!("{}:", plain(&f.place())), f)).collect();
    let mut text = String::new();
    let width = found.iter().map(|(place, _)| place.chars().count()).max().unwrap_or_default();
    for (place, found) in found {
        let severity = found.finding.severity;
        let pad = " ".repeat("warning".len() - severity.as_str().len());
        let (sentence, code) = (plain(&found.sentence()), plain(&found.code()));
        let code = output.paint(Color::Dim, &format!("[{code}]"));
        let _ = writeln!(text, "{place:width$} {}:{pad} {sentence} {code}", output.severity(severity));
    }
    for unread in &report.unread {
        let (name, error) = (plain(&unread.name), plain(&unread.error));
        let _ = writeln!(text, "{name}: {}: {error}", output.severity(Severity::Error));
    }
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&summary(report));
    text
}

/// `2 findings (1 error, 1 warning) in 3 Services and 2 files; 4 other objects left out.`
fn summary(report: &Report) -> String {
    let looked = &report.looked;
    let of = |severity| looked.found.iter().filter(|found| found.finding.severity == severity).count();
    let parts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Info]
        .into_iter()
        .filter(|severity| of(*severity) > 0)
        .map(|severity| counted(of(severity), severity.as_str()))
        .collect();
    let mut text = match looked.found.len() {
        0 => "No findings".to_owned(),
        count => format!("{} ({})", counted(count, "finding"), parts.join(", ")),
    };
    let _ = write!(text, " in {}", counted(looked.services, "Service"));
    if looked.files > 0 {
        let _ = write!(text, " and {}", counted(looked.files, "file"));
    }
    if looked.skipped > 0 {
        let _ = write!(text, "; {} left out", counted(looked.skipped, "other object"));
    }
    if report.hidden > 0 {
        let _ = write!(text, "; {} hidden by --suppress", report.hidden);
    }
    if !report.unread.is_empty() {
        let _ = write!(text, "; {} could not be read", report.unread.len());
    }
    text.push_str(".\n");
    text
}

fn json(report: &Report) -> Value {
    let found = report.looked.found.iter().map(|found| {
        json!({
            "file": found.file,
            "line": found.line,
            "document": found.document,
            "object": found.object,
            "code": found.code(),
            "severity": found.finding.severity.as_str(),
            "key": found.finding.key,
            "value": found.finding.value,
            "message": found.finding.message,
            "rules": found.rules,
        })
    });
    json!({
        "findings": found.collect::<Vec<_>>(),
        "services": report.looked.services,
        "files": report.looked.files,
        "skipped": report.looked.skipped,
        "unread": report.unread.iter().map(|u| json!({"name": u.name, "error": u.error})).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}

/// Workflow commands: <https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>.
fn github(report: &Report) -> String {
    let mut text = String::new();
    for found in &report.looked.found {
        let command = match found.finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let title = if found.finding.key.is_empty() { "ccm lint" } else { &found.finding.key };
        // GitHub identifies files by their path in the repository.
        let file = found.file.as_deref().map(|file| file.strip_prefix("./").unwrap_or(file).to_owned());
        let line = found.line.map(|line| line.to_string());
        let named = match found.file {
            Some(_) => found.sentence(),
            None => format!("{}: {}", found.object, found.sentence()),
        };
        text.push_str(&workflow_command(
            command,
            &[("file", file), ("line", line), ("title", Some(title.to_owned()))],
            &named,
        ));
    }
    for unread in &report.unread {
        let title = Some("ccm lint".to_owned());
        text.push_str(&workflow_command("error", &[("title", title)], &format!("{}: {}", unread.name, unread.error)));
    }
    for note in &report.notes {
        text.push_str(&workflow_command("notice", &[("title", Some("ccm lint".to_owned()))], note));
    }
    text.push_str(&summary(report));
    text
}

fn workflow_command(name: &str, properties: &[(&str, Option<String>)], message: &str) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let given = properties.iter().filter_map(|(name, value)| Some(format!("{name}={}", property(value.as_deref()?))));
    format!("::{name} {}::{}\n", given.collect::<Vec<_>>().join(","), data(message))
}

#[cfg(test)]
mod tests {
    use ccm_provider::Finding;

    use super::*;

    fn report() -> Report {
        let found = |file: Option<&str>, line, object: &str, finding| Found {
            file: file.map(Into::into),
            line,
            document: line.map(|_| 1),
            object: object.into(),
            rules: "core",
            finding,
        };
        let warning = Finding {
            value: Some("50%,\nmore: x".into()),
            ..Finding::new(Severity::Warning, "example.com/a:b,c", "no effect; 100%")
        };
        Report {
            looked: Looked {
                found: vec![
                    found(Some("./a.yaml"), Some(7), "service web", warning),
                    found(Some("b.yaml"), Some(12), "", Finding::new(Severity::Error, "", "cannot be read: x")),
                    found(None, None, "service d/w", Finding::new(Severity::Info, "spec.x", "left")),
                ],
                files: 2,
                services: 1,
                skipped: 3,
            },
            unread: vec![Unread { name: "c.yaml".into(), error: "No such file".into() }],
            ..Report::default()
        }
    }

    #[test]
    fn people_get_columns_and_a_summary() {
        assert_eq!(
            render(&report(), Output::plain(Format::Text)),
            "./a.yaml:7:  warning: service web: example.com/a:b,c \"50%,\\nmore: x\": no effect; 100% [core/example.com/a:b,c]\n\
             b.yaml:12:   error:   cannot be read: x [core/file]\n\
             service d/w: info:    spec.x: left [core/spec.x]\n\
             c.yaml: error: No such file\n\n\
             3 findings (1 error, 1 warning, 1 info) in 1 Service and 2 files; 3 other objects left out; 1 could not be read.\n"
        );
        assert_eq!(render(&Report::default(), Output::plain(Format::Text)), "No findings in 0 Services.\n");
    }

    #[test]
    fn the_code_of_a_finding_does_not_depend_on_its_place_in_a_list() {
        let mut found = report().looked.found.remove(0);
        let mut code = |key: &str| {
            found.finding.key = key.into();
            found.code()
        };
        assert_eq!(code("spec.ports[1].name"), "core/spec.ports.name");
        assert_eq!(code("spec.loadBalancerSourceRanges[12]"), "core/spec.loadBalancerSourceRanges");
        assert_eq!(code("metadata.labels[\"a/b[0]\"]"), "core/metadata.labels[\"a/b\"]");
        assert_eq!(code("x[y].z[]"), "core/x[y].z[]");
    }

    #[test]
    fn names_with_control_characters_write_no_line_of_their_own() {
        let mut report = Report::default();
        report.looked.found = vec![Found {
            file: Some("a\nb.yaml".into()),
            line: Some(1),
            document: Some(1),
            object: "service web\n::error::no\u{1b}[2J".into(),
            rules: "core",
            finding: Finding::new(Severity::Warning, "x\ry", "wrong"),
        }];
        report.unread = vec![Unread { name: "c\n::set-env".into(), error: "no\nsuch".into() }];
        let text = render(&report, Output::plain(Format::Text));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "a\\nb.yaml:1: warning: service web\\n::error::no\\u{1b}[2J: x\\ry: wrong [core/x\\ry]",
                "c\\n::set-env: error: no\\nsuch",
                "",
                "1 finding (1 warning) in 0 Services; 1 could not be read.",
            ]
        );
        let github = render(&report, Output::plain(Format::Github));
        assert_eq!(github.lines().filter(|line| line.starts_with("::")).count(), 2, "{github}");
    }

    #[test]
    fn scanners_get_the_place_and_the_code_of_each_finding() {
        let found = sarif(&report());
        let run = &found["runs"][0];
        let result = &run["results"][0];
        assert_eq!(result["ruleId"], "core/example.com/a:b,c");
        assert_eq!(result["level"], "warning");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!((&place["artifactLocation"]["uri"], &place["region"]["startLine"]), (&json!("a.yaml"), &json!(7)));
        let rules: Vec<&str> = run["tool"]["driver"]["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["id"].as_str().unwrap())
            .collect();
        assert_eq!(rules, ["core/example.com/a:b,c", "core/file", "core/spec.x"]);
    }

    #[test]
    fn scanners_get_paths_as_uris_and_what_could_not_be_read() {
        assert_eq!(artifact("/a/b.yaml"), json!({"uri": "file:///a/b.yaml"}));
        let mut report = report();
        report.looked.found[0].file = Some("d2/my dir/wéb #1:a.yaml".into());
        report.looked.found[1].file = Some(STDIN.into());
        let found = sarif(&report);
        let run = &found["runs"][0];
        let place = |at: usize| &run["results"][at]["locations"][0]["physicalLocation"]["artifactLocation"];
        assert_eq!(place(0), &json!({"uri": "d2/my%20dir/w%C3%A9b%20%231%3Aa.yaml"}));
        assert_eq!(place(1), &json!({"index": 0}));
        assert_eq!(run["artifacts"], json!([{"location": {"index": 0, "description": {"text": "stdin"}}}]));
        assert_eq!(place(2), &json!({"uri": "service/d/w"}));
        let unread = json!([{"level": "error", "message": {"text": "c.yaml: No such file"}}]);
        let expected = json!([{"executionSuccessful": false, "toolExecutionNotifications": unread}]);
        assert_eq!(run["invocations"], expected);
    }

    #[test]
    fn names_are_those_of_objects_and_of_files_without_one() {
        assert_eq!(names(&report()), "service/web\nb.yaml\nservice/d/w\n");
    }

    #[test]
    fn github_gets_commands_with_its_escapes() {
        assert_eq!(
            render(&report(), Output::plain(Format::Github)),
            "::warning file=a.yaml,line=7,title=example.com/a%3Ab%2Cc::service web: example.com/a:b,c \"50%25,\\nmore: x\": no \
             effect; 100%25\n\
             ::error file=b.yaml,line=12,title=ccm lint::cannot be read: x\n\
             ::notice title=spec.x::service d/w: spec.x: left\n\
             ::error title=ccm lint::c.yaml: No such file\n\
             3 findings (1 error, 1 warning, 1 info) in 1 Service and 2 files; 3 other objects left out; 1 could not be read.\n"
        );
        assert_eq!(
            workflow_command("error", &[("file", Some("a%b\r\n,:".into())), ("line", None)], "x%\r\ny:,"),
            "::error file=a%25b%0D%0A%2C%3A::x%25%0D%0Ay:,\n"
        );
    }
}
