//! The keys of a gcfg file: one entry per key is the source of the reader, the reference and the findings.
//!
//! ```
//! use ccm_kit::gcfg::{self, Field, Key, Reader, Table};
//! use ccm_provider::Severity;
//!
//! #[derive(Default)]
//! struct Global { region: String, families: Vec<String> }
//!
//! static GLOBAL: Table<Global> = Table {
//!     section: "Global",
//!     doc: "The cloud.",
//!     keys: &[
//!         Key::new("Region", Field::Text(|global| &mut global.region), "", "Where the nodes are."),
//!         Key::new("NodeIPFamilies", Field::List(|global| &mut global.families), "ipv4", "In order."),
//!     ],
//! };
//!
//! let document = gcfg::parse("[GLOBAL]\nnodeipfamilies = ipv6\nNodeIPFamilies = ipv4\nRegoin = x\n").unwrap();
//! let mut reader = Reader::new(&document, Severity::Warning);
//! let global = reader.section(&GLOBAL);
//! let findings = reader.finish();
//! assert_eq!(global.families, ["ipv6", "ipv4"]);
//! assert_eq!(findings[0].key, "[Global] Regoin");
//! assert_eq!(findings[0].message, "line 4: unknown key, ignored; did you mean \"Region\"?");
//! ```

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};
use regex::Regex;

use super::{Document, Entry, Section};
use crate::document::did_you_mean;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub String);

impl Secret {
    /// Whether the secret is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { "hidden" })
    }
}

/// A section and its keys.
#[derive(Debug)]
pub struct Table<T: 'static> {
    /// The name as the reference spells it.
    pub section: &'static str,
    /// The purpose of the section, in Markdown.
    pub doc: &'static str,
    /// The keys in the order of the reference.
    pub keys: &'static [Key<T>],
}

/// A key.
#[derive(Debug)]
pub struct Key<T: 'static> {
    /// The name as the reference spells it. Hyphens and underscores are equivalent, as in Go.
    pub name: &'static str,
    /// The type, and the field that stores the value.
    pub field: Field<T>,
    /// The default as the reference shows it; the effective default is that of `T::default()`. Empty: none.
    pub default: &'static str,
    /// The description, in Markdown.
    pub doc: &'static str,
    /// The versions that have the key; may be empty.
    pub note: &'static str,
    /// Whether the value must not be shown.
    pub secret: bool,
}

/// The type of a key, and the field that stores its value.
pub enum Field<T: 'static> {
    /// Any text.
    Text(fn(&mut T) -> &mut String),
    /// Any text; an empty text is `None`.
    Optional(fn(&mut T) -> &mut Option<String>),
    /// `true`, `yes`, `on`, `1` and their opposites in any case; the key alone is true.
    Flag(fn(&mut T) -> &mut bool),
    /// Decimal, or hexadecimal with `0x`. Leading zeros are ignored.
    Integer {
        /// The field.
        field: fn(&mut T) -> &mut i64,
        /// The smallest valid value.
        min: i64,
        /// The largest valid value.
        max: i64,
    },
    /// Each occurrence of the key adds an item; the key alone empties the list.
    List(fn(&mut T) -> &mut Vec<String>),
    /// A duration in Go syntax: `1m30s`.
    Duration(fn(&mut T) -> &mut Duration),
    /// A regular expression; an empty text is `None`.
    Pattern(fn(&mut T) -> &mut Option<Regex>),
    /// A value of a provider-defined type.
    Custom {
        /// The type, as the reference shows it.
        kind: &'static str,
        /// Stores the value, or returns which values are valid.
        set: fn(&mut T, &str) -> Result<(), String>,
    },
    /// Like `Custom`, for values that may be accepted with a warning.
    Lenient {
        /// The type, as the reference shows it.
        kind: &'static str,
        /// Stores the value, with an optional warning, or returns which values are valid.
        set: fn(&mut T, &str) -> Result<Option<String>, String>,
    },
    /// A list of values of a provider-defined type.
    CustomList {
        /// The type of one value, as the reference shows it.
        kind: &'static str,
        /// Empties the list.
        clear: fn(&mut T),
        /// Adds a value, or returns which values are valid.
        push: fn(&mut T, &str) -> Result<(), String>,
    },
    /// A former key: accepted with a warning, without effect.
    Retired,
}

impl<T> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())
    }
}

impl<T> Field<T> {
    /// The type, as the reference shows it.
    pub fn kind(&self) -> String {
        match self {
            Self::Text(_) | Self::Optional(_) => "string".to_owned(),
            Self::Flag(_) => "boolean".to_owned(),
            Self::Integer { .. } => "integer".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Duration(_) => "duration".to_owned(),
            Self::Pattern(_) => "regular expression".to_owned(),
            Self::Custom { kind, .. } | Self::Lenient { kind, .. } => (*kind).to_owned(),
            Self::CustomList { kind, .. } => format!("list of {kind}"),
            Self::Retired => "ignored".to_owned(),
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::CustomList { .. })
    }

    /// Stores a value; `None` is the key alone. Returns a warning, if any.
    fn store(&self, into: &mut T, value: Option<&str>) -> Result<Option<String>, String> {
        match (self, value) {
            (Self::Retired, _) => {}
            (Self::Flag(field), None) => *field(into) = true,
            (Self::List(field), None) => field(into).clear(),
            (Self::CustomList { clear, .. }, None) => clear(into),
            (_, None) => return Err(format!("a value is missing; write key = {}", self.kind())),
            (Self::Text(field), Some(value)) => value.clone_into(field(into)),
            (Self::Optional(field), Some(value)) => {
                *field(into) = Some(value.to_owned()).filter(|value| !value.is_empty());
            }
            (Self::Flag(field), Some(value)) => *field(into) = flag(value)?,
            (Self::Integer { field, min, max }, Some(value)) => *field(into) = integer(value, *min, *max)?,
            (Self::List(field), Some(value)) => field(into).push(value.to_owned()),
            (Self::Duration(field), Some(value)) => {
                *field(into) = ccm_provider::duration::parse(value)
                    .map_err(|_| "not a duration; write for example 30s, 5m or 1h30m".to_owned())?;
            }
            (Self::Pattern(field), Some(value)) => *field(into) = pattern(value)?,
            (Self::Custom { set, .. }, Some(value)) => set(into, value)?,
            (Self::Lenient { set, .. }, Some(value)) => return set(into, value),
            (Self::CustomList { push, .. }, Some(value)) => push(into, value)?,
        }
        Ok(None)
    }
}

impl<T> Key<T> {
    /// A key that has no note and is not secret. An empty `default` means none.
    pub const fn new(name: &'static str, field: Field<T>, default: &'static str, doc: &'static str) -> Self {
        Self { name, field, default, doc, note: "", secret: false }
    }

    /// Sets a note for the reference.
    #[must_use]
    pub const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    /// Marks the value as secret; it is never shown.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }
}

/// Whether gcfg considers two names the same.
fn same(a: &str, b: &str) -> bool {
    let fold = |c: char| if c == '_' { '-' } else { c };
    a.chars().map(fold).flat_map(char::to_lowercase).eq(b.chars().map(fold).flat_map(char::to_lowercase))
}

fn flag(value: &str) -> Result<bool, String> {
    match value.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("not a boolean; write true or false".to_owned()),
    }
}

/// Parses an integer as Go's gcfg does: decimal, or hexadecimal with `0x`. Leading zeros are ignored.
///
/// # Errors
///
/// Not a number, or out of bounds.
pub fn integer(value: &str, min: i64, max: i64) -> Result<i64, String> {
    let trimmed = value.trim();
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    // The parser of the standard library would accept a second sign.
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        _ if digits.contains(['-', '+']) => None,
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    let number = parsed.map(|number: i64| if negative { -number } else { number });
    let in_range = number.filter(|number| (min..=max).contains(number));
    in_range.ok_or_else(|| format!("not an integer from {min} to {max}"))
}

fn pattern(value: &str) -> Result<Option<Regex>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    // The regex crate prints the pattern on several lines.
    let last_line = |error: &regex::Error| error.to_string().lines().last().unwrap_or_default().trim().to_owned();
    Regex::new(value).map(Some).map_err(|error| format!("not a regular expression ({})", last_line(&error)))
}

/// Reads a document by tables. Every error becomes a finding, and reading continues.
#[derive(Debug)]
pub struct Reader<'a> {
    document: &'a Document,
    unknown: Severity,
    findings: Vec<Finding>,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// `unknown` is the severity of an unknown section or key.
    pub fn new(document: &'a Document, unknown: Severity) -> Self {
        Self { document, unknown, findings: Vec::new(), known: Vec::new() }
    }

    /// Merges and reads all sections with the table's name that have no subsection.
    pub fn section<T: Default>(&mut self, table: &Table<T>) -> T {
        let mut value = T::default();
        let mut seen = Vec::new();
        for section in self.named(table) {
            match &section.subsection {
                None => self.entries(table, section, &mut value, &mut seen),
                Some(_) => self.unknown_name(header(section), section.at.line, "this section has no subsections"),
            }
        }
        value
    }

    /// Reads the sections with the table's name by subsection, in order of first occurrence; the name without one is
    /// empty.
    pub fn subsections<T: Default>(&mut self, table: &Table<T>) -> Vec<(String, T)> {
        let mut values: Vec<(String, T, Vec<usize>)> = Vec::new();
        for section in self.named(table) {
            let name = section.subsection.clone().unwrap_or_default();
            if !values.iter().any(|(known, _, _)| *known == name) {
                values.push((name.clone(), T::default(), Vec::new()));
            }
            if let Some((_, value, seen)) = values.iter_mut().find(|(known, _, _)| *known == name) {
                self.entries(table, section, value, seen);
            }
        }
        values.into_iter().map(|(name, value, _)| (name, value)).collect()
    }

    /// Adds a provider-specific finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Returns all findings; the last ones are the sections that no table has read, once each.
    pub fn finish(mut self) -> Vec<Finding> {
        let mut reported: Vec<&str> = Vec::new();
        for section in &self.document.sections {
            let name = section.name.as_str();
            if self.known.iter().chain(&reported).any(|known| same(known, name)) {
                continue;
            }
            reported.push(name);
            let hint = did_you_mean(name, &self.known).unwrap_or_default();
            self.unknown_name(
                format!("[{name}]"),
                section.at.line,
                &format!("unknown section{}{hint}", self.consequence()),
            );
        }
        self.findings
    }

    fn named<T>(&mut self, table: &Table<T>) -> Vec<&'a Section> {
        self.known.push(table.section);
        self.document.sections.iter().filter(|section| same(&section.name, table.section)).collect()
    }

    fn entries<T>(&mut self, table: &Table<T>, section: &Section, into: &mut T, seen: &mut Vec<usize>) {
        for entry in &section.entries {
            let found = table.keys.iter().enumerate().find(|(_, key)| same(key.name, &entry.key));
            let place = header(&Section { name: table.section.to_owned(), ..section.clone() });
            let Some((index, key)) = found else {
                let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
                let hint = did_you_mean(&entry.key, &names).unwrap_or_default();
                let problem = format!("unknown key{}{hint}", self.consequence());
                self.unknown_name(format!("{place} {}", entry.key), entry.at.line, &problem);
                continue;
            };
            let name = format!("{place} {}", key.name);
            if seen.contains(&index) && !key.field.is_list() {
                self.found(Severity::Warning, &name, key.secret, entry, "given more than once; the last one counts");
            }
            seen.push(index);
            if let Field::Retired = key.field {
                self.found(Severity::Warning, &name, key.secret, entry, "this key has no effect any more; remove it");
            }
            match key.field.store(into, entry.value.as_deref()) {
                Ok(None) => {}
                Ok(Some(doubt)) => self.found(Severity::Warning, &name, key.secret, entry, &doubt),
                Err(problem) => self.found(Severity::Error, &name, key.secret, entry, &problem),
            }
        }
    }

    fn consequence(&self) -> &'static str {
        if self.unknown == Severity::Error { "" } else { ", ignored" }
    }

    fn unknown_name(&mut self, key: String, line: usize, problem: &str) {
        // The value is omitted: it may be secret.
        self.findings.push(Finding {
            severity: self.unknown,
            key,
            value: None,
            message: format!("line {line}: {problem}"),
        });
    }

    fn found(&mut self, severity: Severity, key: &str, secret: bool, entry: &Entry, problem: &str) {
        let value = if secret { None } else { entry.value.clone() };
        let message = format!("line {}: {problem}", entry.at.line);
        self.findings.push(Finding { severity, key: key.to_owned(), value, message });
    }
}

fn header(section: &Section) -> String {
    match &section.subsection {
        None => format!("[{}]", section.name),
        Some(name) => format!("[{} {name:?}]", section.name),
    }
}

/// Formats a finding as one line: key, value, message.
pub fn line(finding: &Finding) -> String {
    match &finding.value {
        Some(value) => format!("{} = {value:?}: {}", finding.key, finding.message),
        None => format!("{}: {}", finding.key, finding.message),
    }
}

/// Logs findings, one line each.
pub fn log(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Info => tracing::info!("{}", line(finding)),
            _ => tracing::warn!("{}", line(finding)),
        }
    }
}

/// An error `<context>: <every error>`, if any finding is an error.
pub fn refuse(context: &str, findings: &[Finding]) -> Result<(), ProviderError> {
    let errors: Vec<Finding> = findings.iter().filter(|finding| finding.severity == Severity::Error).cloned().collect();
    if errors.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = errors.iter().map(line).collect();
    let message = format!("{context}: {}", lines.join("; "));
    Err(ProviderError::new(ErrorClass::Invalid { findings: errors }, message))
}

impl<T> Table<T> {
    /// The reference of the section: a heading and a table, in Markdown.
    pub fn reference(&self) -> String {
        let mut text = format!(
            "### `[{}]`\n\n{}\n\n| Key | Type | Default | Effect |\n| --- | --- | --- | --- |\n",
            self.section, self.doc
        );
        for key in self.keys {
            let default = if key.default.is_empty() { "–".to_owned() } else { format!("`{}`", key.default) };
            let note = if key.note.is_empty() { String::new() } else { format!(" *{}*", key.note) };
            let cell = format!("{}{note}", key.doc).replace('|', "\\|");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| `{}` | {} | {default} | {cell} |", key.name, key.field.kind());
        }
        text
    }
}
