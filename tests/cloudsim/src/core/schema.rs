//! A vendor's description of a JSON API; requests and answers are checked against it.
//!
//! The same people write a simulation and its client, so both could contain the same mistake; the description is
//! independent of them. Each cloud obtains its own description at test time, and reports mismatches with its service's
//! messages.

mod check;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io};

/// All methods and schemas of an API.
#[derive(Debug, Deserialize)]
pub struct Description {
    /// Methods by ID.
    pub methods: BTreeMap<String, Method>,
    /// Schemas by name.
    pub schemas: BTreeMap<String, Schema>,
}

/// A method.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Method {
    pub http_method: String,
    /// The path, with parameters in braces.
    pub path: String,
    /// The parameters in path and query.
    #[serde(default)]
    pub parameters: BTreeMap<String, Schema>,
    /// The schema of the body, if any.
    #[serde(default)]
    pub request: Option<String>,
    /// The schema of the answer, if it has a body.
    #[serde(default)]
    pub response: Option<String>,
    /// The statuses of successful answers; empty: unknown.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// The version of the API, if each call names one.
    #[serde(default)]
    pub version: Option<String>,
}

/// A schema, or a reference to one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Schema {
    /// The name of the referenced schema.
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    /// The JSON type; `None`: any type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The format of a string or number: `int32`, `uint64`, `byte`, …
    pub format: Option<String>,
    /// The pattern that the whole string must match.
    pub pattern: Option<String>,
    /// The allowed strings.
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<String>>,
    /// The properties of an object.
    pub properties: BTreeMap<String, Schema>,
    /// The schema of the values of an object with arbitrary keys.
    pub additional_properties: Option<Box<Schema>>,
    /// The schema of the elements of a list.
    pub items: Option<Box<Schema>>,
    /// Whether it is output only.
    pub read_only: bool,
    /// The least value of an integer.
    pub least: Option<i64>,
    /// The greatest value of an integer.
    pub most: Option<i64>,
    /// The methods whose requests require it; `*`: all.
    pub required_by: Vec<String>,
    /// Whether a parameter is required.
    pub required: bool,
    /// The location of a parameter: `path` or `query`.
    pub location: Option<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
}

/// A part of a request or an answer that does not match the description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its path, e.g. `resource.ports[0]`; for a parameter its name.
    pub at: String,
    /// The value, if any.
    pub is: String,
    pub why: Why,
}

/// The kind of a mismatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The property or parameter does not exist.
    Unknown,
    /// The value does not have this JSON type.
    Type(String),
    /// The value is none of the allowed values.
    Value,
    /// The value is out of this range.
    Range(Option<i64>, Option<i64>),
    /// The value does not match this pattern.
    Pattern(String),
    /// The property is output only.
    ReadOnly,
    /// A required property or parameter is missing.
    Missing,
}

/// The direction of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// A request of this method.
    In(&'a str),
    /// An answer.
    Out,
}

impl Description {
    /// Reads a description from a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let at = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
        serde_json::from_slice(&fs::read(path).map_err(|error| at(&error))?).map_err(|error| at(&error))
    }

    /// The mismatches of a request's parameters: those of its path, by name, and of its query.
    pub fn check_parameters(&self, method: &Method, path: &[(&str, &str)], query: &[(String, String)]) -> Vec<Finding> {
        let query = query.iter().map(|(name, value)| (name.as_str(), value.as_str(), "query"));
        let given = path.iter().map(|(name, value)| (*name, *value, "path")).chain(query);
        let mut found = Vec::new();
        for (name, value, location) in given.clone() {
            match method.parameters.get(name) {
                Some(schema) if schema.location.as_deref().is_none_or(|wanted| wanted == location) => {
                    found.extend(check::parameter(schema, name, value));
                }
                _ => found.push(Finding { at: name.to_owned(), is: value.to_owned(), why: Why::Unknown }),
            }
        }
        let needed = method.parameters.iter().filter(|(_, schema)| schema.required);
        let missing = needed.filter(|(name, _)| !given.clone().any(|(given, ..)| given == name.as_str()));
        found.extend(missing.map(|(name, _)| Finding { at: name.clone(), is: String::new(), why: Why::Missing }));
        found
    }

    /// The mismatches of a value.
    pub fn check(&self, schema: &str, at: &str, value: &Value, way: Way<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        match self.schemas.get(schema) {
            Some(schema) => check::value(self, schema, at, value, way, &mut found),
            None => found.push(Finding { at: at.to_owned(), is: schema.to_owned(), why: Why::Unknown }),
        }
        found
    }
}

impl Method {
    /// The parameters in a path by name, if the path matches.
    pub fn path_values<'a>(&'a self, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut values = Vec::new();
        let mut segments = path.trim_matches('/').split('/');
        for wanted in self.path.trim_matches('/').split('/') {
            let segment = segments.next()?;
            // A verb may follow a parameter: `{resource}:verb`.
            let named = wanted.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            match named {
                Some((name, tail)) => {
                    let value = segment.strip_suffix(tail).filter(|value| !value.is_empty())?;
                    values.push((name.trim_start_matches('+'), value));
                }
                None if wanted == segment => {}
                None => return None,
            }
        }
        segments.next().is_none().then_some(values)
    }
}

impl Schema {
    /// The pattern, compiled once. A pattern that this engine does not support is not checked.
    fn compiled(&self) -> Option<&Regex> {
        let compile = || Regex::new(&format!("^(?:{})$", self.pattern.as_ref()?)).ok();
        self.compiled.get_or_init(compile).as_ref()
    }
}

#[cfg(test)]
mod tests;
