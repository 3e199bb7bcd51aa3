//! Output of results: for users and for programs.

use std::io::IsTerminal as _;

use ccm_kit::document::did_you_mean;
use ccm_provider::Severity;
use serde_json::Value;

use crate::options::{help, parse};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for users: in columns and colors on a terminal, one line for each finding in a pipe.
    Text,
    /// One JSON document, stable.
    Json,
    /// The same document as YAML.
    Yaml,
    /// Only the names of the objects, one per line.
    Name,
    /// One line for each object, with all columns.
    Wide,
    /// Workflow commands that GitHub shows next to the lines of a change.
    Github,
    /// SARIF 2.1.0, which code scanners exchange.
    Sarif,
}

impl Format {
    fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Name => "name",
            Self::Wide => "wide",
            Self::Github => "github",
            Self::Sarif => "sarif",
        }
    }

    /// The format with this name: `text`, `json`, `yaml`, or one of `more`.
    pub(crate) fn parse(word: &str, more: &[Self]) -> Result<Self, String> {
        let known = Self::all(more);
        let found = known.clone().find(|format| format.word() == word);
        found.ok_or_else(|| {
            let words = Self::words(more);
            let hint = did_you_mean(word, &words).unwrap_or_default();
            format!("--output={word}: expected {}{hint}", words.join(" or "))
        })
    }

    fn all(more: &[Self]) -> impl Iterator<Item = Self> + Clone {
        [Self::Text, Self::Json, Self::Yaml].into_iter().chain(more.iter().copied())
    }

    /// The names of all formats of a command.
    pub(crate) fn words(more: &[Self]) -> Vec<&'static str> {
        Self::all(more).map(Self::word).collect()
    }

    /// Whether the result is one document for programs.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}

/// The column at which lines break with `--color=always` when there is no terminal.
const FIXED_WIDTH: usize = 100;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    colors: bool,
    /// The width of lines with symbols; `None`: words, and one line for each finding.
    width: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Green,
    Yellow,
    Bold,
    Dim,
}

/// Good, pending or harmless, broken: the symbols that other tools of the field print. And what was not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Good,
    Warning,
    Bad,
    Unknown,
}

impl Mark {
    /// A text that says that nothing was looked at is no good news.
    pub(crate) fn good(text: &str) -> Self {
        if text.contains("not checked") { Self::Unknown } else { Self::Good }
    }
}

impl Output {
    /// `color`: `--color`. With `auto`, colors are for a terminal, unless `NO_COLOR` is set, or for all with
    /// `CLICOLOR_FORCE`.
    pub(crate) fn new(format: Format, color: &str) -> Result<Self, String> {
        let terminal = parse::width(std::io::stdout()).or(std::io::stdout().is_terminal().then_some(FIXED_WIDTH));
        Self::of(format, color, terminal, |name| std::env::var(name).ok())
    }

    fn of(
        format: Format,
        color: &str,
        terminal: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let forced = || variable("CLICOLOR_FORCE").is_some_and(|value| !matches!(&*value, "" | "0"));
        let colors = match color {
            "always" => true,
            "never" => false,
            "auto" => !set("NO_COLOR") && (terminal.is_some() || forced()),
            other => {
                let hint = did_you_mean(other, &["always", "auto", "never"]).unwrap_or_default();
                return Err(format!("--color={other}: expected always, auto or never{hint}"));
            }
        };
        let text = format == Format::Text;
        let width = terminal.or((color == "always").then_some(FIXED_WIDTH));
        Ok(Self { format, colors: colors && text, width: width.filter(|_| text) })
    }

    /// Whether the text looks as with `--color=always` into a file: with colors and symbols, in lines of the same length.
    pub(crate) fn looks_forced(self) -> bool {
        self.colors && self.width.is_some_and(|width| width >= FIXED_WIDTH)
    }

    /// Without colors, for tests.
    #[cfg(test)]
    pub(crate) fn plain(format: Format) -> Self {
        Self { format, colors: false, width: None }
    }

    /// What `--color=always` prints into a file, for pictures.
    #[cfg(test)]
    pub(crate) fn picture() -> Self {
        Self { format: Format::Text, colors: true, width: Some(FIXED_WIDTH) }
    }

    /// The same for a terminal of this width.
    #[cfg(test)]
    pub(crate) fn terminal(width: usize) -> Self {
        Self { format: Format::Text, colors: false, width: Some(width) }
    }

    /// `√ text`, wrapped, with the fix below it; `None` if the output is not a terminal.
    pub(crate) fn item(self, mark: Mark, text: &str, fix: Option<&str>) -> Option<String> {
        const INDENT: usize = 4;
        let width = self.width?;
        let (symbol, color) = match mark {
            Mark::Good => ("√", Color::Green),
            Mark::Warning => ("‼", Color::Yellow),
            Mark::Bad => ("×", Color::Red),
            Mark::Unknown => ("-", Color::Dim),
        };
        let wrap = |text: &str| help::wrap(&flat(text), INDENT, width);
        let mut item = format!("  {} {}\n", self.paint(color, symbol), wrap(text));
        if let Some(fix) = fix {
            item.push_str(&format!("{:INDENT$}{}\n", "", wrap(&format!("→ {fix}"))));
        }
        Some(item)
    }

    /// The text, wrapped on a terminal.
    pub(crate) fn wrap(self, text: &str) -> String {
        self.width.map_or_else(|| text.to_owned(), |width| help::wrap(text, 0, width))
    }

    /// Whether findings are grouped and have symbols, as for a terminal.
    pub(crate) fn has_groups(self) -> bool {
        self.width.is_some()
    }

    /// A document for programs in the format of the user.
    pub(crate) fn document(self, kind: &str, body: Value) -> String {
        let document = document(kind, body);
        match self.format {
            Format::Yaml => yaml(&document),
            _ => format!("{document:#}\n"),
        }
    }

    /// The text in this color, if colors are enabled.
    pub(crate) fn paint(self, color: Color, text: &str) -> String {
        if !self.colors {
            return text.to_owned();
        }
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Bold => 1,
            Color::Dim => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// `error`, `warning` or `info` in its color.
    pub(crate) fn severity(self, severity: Severity) -> String {
        let color = match severity {
            Severity::Error => Color::Red,
            Severity::Warning => Color::Yellow,
            Severity::Info => Color::Dim,
        };
        self.paint(color, severity.as_str())
    }
}

/// A document for programs: `kind`, `version` and the fields of `body`, sorted by name. The version changes when a
/// field changes its meaning or is removed, not when fields are added.
fn document(kind: &str, body: Value) -> Value {
    let mut document = serde_json::Map::new();
    document.insert("kind".into(), kind.into());
    document.insert("version".into(), 1.into());
    if let Value::Object(fields) = body {
        document.extend(fields);
    }
    Value::Object(document)
}

/// The value as YAML. Texts are quoted as in JSON, which every parser of YAML 1.2 reads.
pub(crate) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    push_yaml(&mut text, value, 0);
    text
}

/// Starts on the current line if the value is a scalar or empty, else on lines of its own.
fn push_yaml(text: &mut String, value: &Value, indent: usize) {
    let nested = |value: &Value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    let mut entry = |head: String, value: &Value, indent: usize| {
        text.push_str(&format!("{:indent$}{head}", ""));
        if nested(value) {
            text.push('\n');
            push_yaml(text, value, indent + 2);
        } else {
            text.push_str(&format!(" {value}\n"));
        }
    };
    match value {
        Value::Object(fields) if nested(value) => {
            for (key, value) in fields {
                entry(format!("{}:", yaml_key(key)), value, indent);
            }
        }
        Value::Array(items) if nested(value) => {
            for item in items {
                entry("-".to_owned(), item, indent);
            }
        }
        scalar => text.push_str(&format!("{scalar}\n")),
    }
}

/// Quoted, unless every parser reads it as a text: YAML 1.1 has booleans of up to five letters, such as `on` and `false`.
fn yaml_key(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        && !["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&&*name.to_ascii_lowercase());
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

/// One line without terminal control characters, since the text may contain untrusted input.
pub(crate) fn flat(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the user does not want to see findings with this code.
pub(crate) fn is_suppressed(patterns: &[String], code: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => code.starts_with(start),
        None => pattern == code,
    })
}

/// `1 node`, `2 nodes`
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Columns, each as wide as its longest cell; the last column is not padded. Cells must not contain color codes.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_form_is_an_error_that_names_the_known_ones() {
        assert_eq!(Format::parse("json", &[]), Ok(Format::Json));
        assert_eq!(Format::parse("csv", &[]).unwrap_err(), "--output=csv: expected text or json or yaml");
        let error = Format::parse("x", &[Format::Github]).unwrap_err();
        assert_eq!(error, "--output=x: expected text or json or yaml or github");
        assert_eq!(Format::parse("github", &[Format::Github]), Ok(Format::Github));
    }

    #[test]
    fn colors_follow_the_flag_and_then_the_environment() {
        let colors = |color: &str, terminal: Option<usize>, environment: &[(&str, &str)]| {
            let variable = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            Output::of(Format::Text, color, terminal, variable).map(|output| (output.colors, output.width))
        };
        assert_eq!(colors("auto", Some(80), &[]), Ok((true, Some(80))));
        assert_eq!(colors("auto", None, &[]), Ok((false, None)));
        assert_eq!(colors("auto", Some(80), &[("NO_COLOR", "1")]), Ok((false, Some(80))));
        assert_eq!(colors("auto", None, &[("CLICOLOR_FORCE", "1")]), Ok((true, None)));
        assert_eq!(colors("auto", None, &[("CLICOLOR_FORCE", "0")]), Ok((false, None)));
        assert_eq!(colors("always", None, &[("NO_COLOR", "1")]), Ok((true, Some(FIXED_WIDTH))));
        assert_eq!(colors("never", Some(80), &[("CLICOLOR_FORCE", "1")]), Ok((false, Some(80))));
        assert_eq!(colors("blue", None, &[]), Err("--color=blue: expected always, auto or never".to_owned()));
    }

    #[test]
    fn an_item_has_a_symbol_and_its_fix_on_a_terminal_only() {
        let item = Output::terminal(24).item(Mark::Bad, "one two three four\u{1b} five", Some("fix this"));
        assert_eq!(item.as_deref(), Some("  × one two three four\n    five\n    → fix this\n"));
        assert_eq!(Output::plain(Format::Text).item(Mark::Good, "x", None), None);
        let skipped = "not checked: there is no target group";
        let item = Output::terminal(80).item(Mark::good(skipped), skipped, None);
        assert_eq!(item.as_deref(), Some("  - not checked: there is no target group\n"));
    }

    #[test]
    fn a_document_is_the_same_in_yaml_as_in_json() {
        let body = serde_json::json!({
            "a": [{"x": 1, "y": ["true", null]}, [], {}],
            "no": "a: \"b\"\n- c",
            "z": {"k: 1": false},
        });
        let written = yaml(&document("Test", body.clone()));
        let parsed = crate::commands::lint::parse(&written);
        assert_eq!(parsed, [document("Test", body)], "{written}");
    }

    #[test]
    fn a_suppressed_code_is_named_whole_or_by_its_beginning() {
        let is = |pattern: &str| is_suppressed(&[pattern.to_owned()], "core/spec.loadBalancerIP");
        assert!(is("core/spec.loadBalancerIP") && is("core/*") && is("*"));
        assert!(!is("core/spec.loadBalancer") && !is("aws/*") && !is(""));
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "bb", "c"]), row(["aaa", "b", ""])]), "a    bb  c\naaa  b\n");
    }
}
