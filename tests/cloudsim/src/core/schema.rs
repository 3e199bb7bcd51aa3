//! What a vendor says of a JSON API, and requests and answers held against it: which methods there are, what goes in and out.
//!
//! A double is written by the same people as its client, so a mistake of theirs could be in both. These descriptions are the
//! vendor's. Each cloud obtains its own at test time and words the mismatches as its service does.

mod check;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io};

/// All methods of an API with their schemas.
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
    /// Path; a parameter stands in braces.
    pub path: String,
    /// Parameters in path and query.
    #[serde(default)]
    pub parameters: BTreeMap<String, Schema>,
    /// Schema of the body, if there is one.
    #[serde(default)]
    pub request: Option<String>,
    /// Schema of the answer, if it has a body.
    #[serde(default)]
    pub response: Option<String>,
}

/// A schema, or a mention of one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Schema {
    /// Name of another schema that this stands for.
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    /// JSON type; none: anything.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// What a text or a number holds: `int32`, `uint64`, `byte`, …
    pub format: Option<String>,
    /// What a whole text matches.
    pub pattern: Option<String>,
    /// The texts that are allowed.
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<String>>,
    /// Properties of an object.
    pub properties: BTreeMap<String, Schema>,
    /// Schema of the values of an object with any keys.
    pub additional_properties: Option<Box<Schema>>,
    /// Schema of the elements of a list.
    pub items: Option<Box<Schema>>,
    /// Only answers have it.
    pub read_only: bool,
    /// The methods whose requests need it.
    pub required_by: Vec<String>,
    /// Whether a parameter must be there.
    pub required: bool,
    /// Where a parameter stands: `path` or `query`.
    pub location: Option<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
}

/// A part of a request or an answer that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where, e.g. `resource.ports[0]`; for a parameter its name.
    pub at: String,
    /// What is there, or nothing.
    pub is: String,
    pub why: Why,
}

/// What is wrong with a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no such property or parameter.
    Unknown,
    /// It is of another JSON type; this is the one it has to be.
    Type(String),
    /// It is none of the values that are allowed.
    Value,
    /// It does not match this pattern.
    Pattern(String),
    /// Only answers have it.
    ReadOnly,
    /// It has to be there.
    Missing,
}

/// Which way a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// Into the service, for this method.
    In(&'a str),
    /// Out of it.
    Out,
}

impl Description {
    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, or is no description.
    pub fn read(path: &Path) -> io::Result<Self> {
        let at = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
        serde_json::from_slice(&fs::read(path).map_err(|error| at(&error))?).map_err(|error| at(&error))
    }

    /// What is wrong with the parameters of a request: those of its path, by name, and of its query.
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

    /// What is wrong with a value of a schema.
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
    /// What stands for the parameters of the path, by name, if a path fits it.
    pub fn path_values<'a>(&'a self, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut values = Vec::new();
        let mut segments = path.trim_matches('/').split('/');
        for wanted in self.path.trim_matches('/').split('/') {
            let segment = segments.next()?;
            // A verb may stand behind a parameter: `{resource}:verb`.
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
    /// The pattern, compiled once; one that this engine does not understand is not checked.
    fn compiled(&self) -> Option<&Regex> {
        let compile = || Regex::new(&format!("^(?:{})$", self.pattern.as_ref()?)).ok();
        self.compiled.get_or_init(compile).as_ref()
    }
}

#[cfg(test)]
mod tests;
