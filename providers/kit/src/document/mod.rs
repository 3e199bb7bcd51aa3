//! Settings from a YAML or JSON document, with errors that a user can act on.
//!
//! Parsing has two steps: the text becomes a tree ([`parse`]), and code extracts the known fields from the tree
//! ([`Value`], [`Fields`]). Each mistake is recorded in [`Problems`] with the path of its key and parsing continues, so
//! that the user sees all mistakes at once. A key that is not read is also a mistake.
//!
//! ```
//! use ccm_kit::document::{Problems, Value, parse};
//!
//! let tree = parse("instances:\n- {name: a, shutdwon: true}\n").unwrap();
//! let problems = Problems::default();
//! for instance in Value::root(&tree, &problems).fields().unwrap().list("instances") {
//!     let mut fields = instance.fields().unwrap();
//!     let (name, shutdown) = (fields.text("name"), fields.flag("shutdown"));
//!     assert_eq!((name.as_deref(), shutdown), (Some("a"), None));
//! }
//! assert_eq!(
//!     problems.into_result().unwrap_err().to_string(),
//!     "instances[0].shutdwon: unknown key; did you mean \"shutdown\"?"
//! );
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use ccm_provider::{Finding, Severity};
use serde_json::Value as Json;
use serde_saphyr::{DuplicateKeyPolicy, Options, options};

#[cfg(test)]
mod tests;

/// The error of an invalid document. Displays all mistakes in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problems().join("; "))]
pub struct DocumentError(Vec<Problem>);

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    /// Empty for a mistake about the whole document.
    path: String,
    text: String,
}

impl DocumentError {
    /// The mistakes, each prefixed with the path of its key, if any.
    pub fn problems(&self) -> Vec<String> {
        let line = |Problem { path, text }: &Problem| {
            if path.is_empty() { text.clone() } else { format!("{path}: {text}") }
        };
        self.0.iter().map(line).collect()
    }

    /// The mistakes as findings; `whole` is the key of the mistakes about the whole document.
    pub fn findings(&self, whole: &str) -> Vec<Finding> {
        let finding = |Problem { path, text }: &Problem| {
            let key = if path.is_empty() { whole } else { path };
            Finding::new(Severity::Error, key, text)
        };
        self.0.iter().map(finding).collect()
    }
}

/// Parses a YAML document into a tree. An empty document is null. Duplicate keys and multiple documents are errors.
/// Follows YAML 1.2: only `true` and `false` are booleans.
pub fn parse(text: &str) -> Result<Json, DocumentError> {
    parse_with(text, options! { strict_booleans: true })
}

/// Parses a YAML document as `sigs.k8s.io/yaml` of Go does: follows YAML 1.1, where `yes` and `on` are booleans and `010`
/// is octal, and of duplicate keys takes the last. Each value that [`parse`] would not read so is a warning. What is at
/// a path for which `is_new` holds follows YAML 1.2.
pub fn parse_as_go(text: &str, is_new: fn(&str) -> bool) -> Result<(Json, Vec<Finding>), DocumentError> {
    let last = DuplicateKeyPolicy::LastWins;
    let mut read = parse_with(text, options! { duplicate_keys: last, legacy_octal_numbers: true })?;
    let mut new = parse_with(text, options! { duplicate_keys: last, strict_booleans: true })?;
    let first = parse_with(text, options! { duplicate_keys: DuplicateKeyPolicy::FirstWins, strict_booleans: true })?;
    let (mut repeated, mut old) = (Vec::new(), Vec::new());
    differences(&first, &mut new, "", &mut |path, _, last| repeated.push((path.to_owned(), scalar(last))));
    differences(&new, &mut read, "", &mut |path, new, read| match is_new(path) {
        true => read.clone_from(new),
        false => old.push((path.to_owned(), scalar(read))),
    });
    let finding =
        |message: &str, (path, value): (String, Option<String>)| Finding { value, ..Finding::warning(path, message) };
    let repeated =
        repeated.into_iter().map(|at| finding("comes more than once, and the last value counts; keep one", at));
    let old = old.into_iter().map(|at| finding("read as YAML 1.1; write this value, or a text in quotes", at));
    Ok((read, repeated.chain(old).collect()))
}

fn parse_with(text: &str, mut options: Options) -> Result<Json, DocumentError> {
    // A document of only white space and comments has no node.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Json::Null);
    }
    (options.budget, options.with_snippet) = (None, false);
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        DocumentError(vec![Problem { path: String::new(), text }])
    })
}

/// Passes on the path of each value that differs, with both values.
fn differences(one: &Json, other: &mut Json, path: &str, found: &mut dyn FnMut(&str, &Json, &mut Json)) {
    match (one, other) {
        (one, other) if one == other => {}
        (Json::Object(one), Json::Object(other)) if one.keys().eq(other.keys()) => {
            for ((key, one), other) in one.iter().zip(other.values_mut()) {
                differences(one, other, &join(path, key), found);
            }
        }
        (Json::Array(one), Json::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                differences(one, other, &format!("{path}[{at}]"), found);
            }
        }
        (one, other) => found(path, one, other),
    }
}

/// A text, number or boolean as text.
pub fn scalar(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(_) | Json::Bool(_) => Some(json.to_string()),
        _ => None,
    }
}

/// Collects mistakes.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Adds a mistake at a path; an empty path means the whole document.
    pub fn add(&self, path: &str, problem: impl std::fmt::Display) {
        self.0.borrow_mut().push(Problem { path: path.to_owned(), text: problem.to_string() });
    }

    /// Whether there are no mistakes.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// An error if there are mistakes.
    pub fn into_result(self) -> Result<(), DocumentError> {
        match self.0.into_inner() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(DocumentError(problems)),
        }
    }
}

/// A value of the tree and its path.
#[derive(Debug, Clone)]
pub struct Value<'a> {
    json: &'a Json,
    path: String,
    problems: &'a Problems,
}

impl<'a> Value<'a> {
    /// The whole tree.
    pub fn root(json: &'a Json, problems: &'a Problems) -> Self {
        Self::at(json, String::new(), problems)
    }

    /// A tree that is part of something else: `path` is the prefix of the paths of its mistakes.
    pub fn at(json: &'a Json, path: String, problems: &'a Problems) -> Self {
        Self { json, path, problems }
    }

    /// A value below this one.
    #[must_use]
    pub fn at_key(&self, key: &str, json: &'a Json) -> Self {
        Self::at(json, join(&self.path, key), self.problems)
    }

    /// The value as JSON.
    pub fn json(&self) -> &'a Json {
        self.json
    }

    /// The path of the value: `instances[2].name`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds a mistake at this value.
    pub fn problem(&self, problem: impl std::fmt::Display) {
        self.problems.add(&self.path, problem);
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        self.json.is_null()
    }

    fn wrong<T>(&self, want: &str) -> Option<T> {
        let found = match self.json {
            Json::Null => "nothing".to_owned(),
            Json::Bool(b) => format!("{b}"),
            Json::Number(n) => format!("the number {n}"),
            Json::String(s) => format!("the text {s:?}"),
            Json::Array(_) => "a list".to_owned(),
            Json::Object(_) => "a map".to_owned(),
        };
        self.problem(format_args!("expected {want}, found {found}"));
        None
    }

    /// A map. Null is a mistake.
    pub fn fields(&self) -> Option<Fields<'a>> {
        let Some(map) = self.json.as_object() else { return self.wrong("a map") };
        Some(Fields { map, path: self.path.clone(), problems: self.problems, known: Vec::new() })
    }

    /// A string. A number or boolean is a mistake; quotes make it a string.
    pub fn text(&self) -> Option<String> {
        match self.json {
            Json::String(text) => Some(text.clone()),
            Json::Number(_) | Json::Bool(_) => self.wrong("text (in quotes)"),
            _ => self.wrong("text"),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        self.json.as_bool().or_else(|| self.wrong("true or false"))
    }

    /// A non-negative integer, which may be written as `5.0` or `1e3`: Go's YAML readers take these.
    pub fn count(&self) -> Option<u64> {
        let whole = |number: f64| format!("{number}").parse().ok();
        self.json
            .as_u64()
            .or_else(|| self.json.as_f64().and_then(whole))
            .or_else(|| self.wrong("a whole number, 0 or more"))
    }

    /// A string with a duration in Go syntax.
    pub fn duration(&self) -> Option<Duration> {
        let Json::String(text) = self.json else { return self.wrong("a duration such as \"1m30s\"") };
        ccm_provider::duration::parse(text).map_err(|error| self.problem(error)).ok()
    }

    /// A list. Null is a mistake.
    pub fn list(&self) -> Option<Vec<Value<'a>>> {
        let Some(items) = self.json.as_array() else { return self.wrong("a list") };
        let item = |(at, json)| Self::at(json, format!("{}[{at}]", self.path), self.problems);
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A map of strings.
    pub fn texts(&self) -> Option<BTreeMap<String, String>> {
        let Some(map) = self.json.as_object() else { return self.wrong("a map of texts") };
        let value = |(key, json): (&String, &'a Json)| {
            let value = Self::at(json, join(&self.path, key), self.problems);
            Some((key.clone(), value.text()?))
        };
        Some(map.iter().filter_map(value).collect())
    }

    /// One word of a fixed set.
    pub fn word<T: Clone>(&self, words: &[(&str, T)]) -> Option<T> {
        one_of(&self.text()?, words).map_err(|problem| self.problem(problem)).ok()
    }
}

/// A map whose keys are read one by one. On drop, the keys that were not read are added as mistakes.
///
/// A key with the value null is treated as absent, as everywhere in Kubernetes.
#[derive(Debug)]
pub struct Fields<'a> {
    map: &'a serde_json::Map<String, Json>,
    path: String,
    problems: &'a Problems,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The value of a key, which may be null.
    pub fn value_or_null(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        self.map.get(key).map(|json| Value::at(json, join(&self.path, key), self.problems))
    }

    /// The value of a key, unless it is absent or null.
    pub fn value(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.value_or_null(key).filter(|value| !value.is_null())
    }

    /// See [`Value::text`].
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.value(key)?.text()
    }

    /// A required, non-empty string.
    pub fn needed_text(&mut self, key: &'static str) -> Option<String> {
        match self.value(key) {
            Some(value) => value.text().filter(|text| {
                if text.is_empty() {
                    value.problem("must not be empty");
                }
                !text.is_empty()
            }),
            None => {
                self.problem(key, "needed");
                None
            }
        }
    }

    /// See [`Value::flag`].
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.value(key)?.flag()
    }

    /// See [`Value::count`].
    pub fn count(&mut self, key: &'static str) -> Option<u64> {
        self.value(key)?.count()
    }

    /// See [`Value::duration`].
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.value(key)?.duration()
    }

    /// See [`Value::list`]; absent is empty.
    pub fn list(&mut self, key: &'static str) -> Vec<Value<'a>> {
        self.value(key).and_then(|value| value.list()).unwrap_or_default()
    }

    /// See [`Value::texts`]; absent is empty.
    pub fn texts(&mut self, key: &'static str) -> BTreeMap<String, String> {
        self.value(key).and_then(|value| value.texts()).unwrap_or_default()
    }

    /// See [`Value::fields`].
    pub fn fields(&mut self, key: &'static str) -> Option<Fields<'a>> {
        self.value(key)?.fields()
    }

    /// See [`Value::word`].
    pub fn word<T: Clone>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.value(key)?.word(words)
    }

    /// Adds a mistake at a key.
    pub fn problem(&self, key: &str, problem: impl std::fmt::Display) {
        self.problems.add(&join(&self.path, key), problem);
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        for key in self.map.keys().filter(|key| !self.known.contains(&key.as_str())) {
            let hint =
                did_you_mean(key, &self.known).unwrap_or_else(|| format!("; known keys: {}", self.known.join(", ")));
            self.problem(key, format_args!("unknown key{hint}"));
        }
    }
}

/// `a.b`, or `a["b.c"]` if the key contains dots or other special characters.
fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    match (path, plain) {
        ("", true) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{key:?}]"),
    }
}

/// The value of a word, or the error message if the word is unknown.
pub(crate) fn one_of<T: Clone>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone()).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = did_you_mean(text, &known).unwrap_or_default();
        format!("unknown word {text:?}; expected one of {}{hint}", known.join(", "))
    })
}

/// `; did you mean "…"?` if one of the words is similar.
pub fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|best| format!("; did you mean {best:?}?"))
}

/// The first of the words that are most similar, if they are similar enough. Case-insensitive; two swapped letters are one
/// error.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let close = |candidate: &&str| {
        let limit = (candidate.chars().count() / 2).clamp(1, 3);
        strsim::osa_distance(&lower, &candidate.to_lowercase()) <= limit
    };
    let known = known.iter().copied();
    known.filter(close).min_by_key(|candidate| strsim::osa_distance(&lower, &candidate.to_lowercase()))
}
