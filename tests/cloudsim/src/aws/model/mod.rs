//! The vendor's own description of each request and answer, as included in botocore, and the check against it.
//!
//! The same people write the simulation and the provider, so both could contain the same mistake; these models are
//! independent. [`Models::shared`] finds the files that `hack/moto.sh` puts into the cache; without them nothing is
//! checked, and with `CI=true` that is an error.

mod document;
mod request;
mod response;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{env, fs, io};

use regex::Regex;
use serde::Deserialize;

pub use document::Element;

use super::query::Params;
use crate::cache::{self, Shared};

/// The alternative folder of the models, with `ec2.json`, `elb.json` and `elbv2.json`.
pub const FOLDER_ENV: &str = "CCM_AWS_MODELS";

/// The names of the services and of their files.
pub const SERVICES: [&str; 3] = ["ec2", "elb", "elbv2"];

/// Error codes of any call, in addition to those in the model.
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/CommonErrors.html>
const COMMON_ERRORS: [&str; 21] = [
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InternalFailure",
    "InvalidAction",
    "InvalidClientTokenId",
    "InvalidParameterCombination",
    "InvalidParameterValue",
    "MalformedQueryString",
    "MissingAction",
    "MissingAuthenticationToken",
    "MissingParameter",
    "OptInRequired",
    "RequestExpired",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "Throttling",
    "ValidationError",
];

/// The models of all services.
#[derive(Debug)]
pub struct Models {
    services: BTreeMap<&'static str, Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    metadata: Metadata,
    operations: HashMap<String, Operation>,
    shapes: HashMap<String, Shape>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    api_version: String,
    protocol: String,
}

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(default)]
    input: Option<Reference>,
    #[serde(default)]
    output: Option<Reference>,
    #[serde(default)]
    errors: Vec<Reference>,
}

/// A reference to a shape, with its serialization at this place.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    shape: String,
    #[serde(default)]
    location_name: Option<String>,
    #[serde(default)]
    query_name: Option<String>,
    #[serde(default)]
    result_wrapper: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Shape {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    members: BTreeMap<String, Reference>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    member: Option<Box<Reference>>,
    #[serde(default)]
    flattened: bool,
    #[serde(default, rename = "enum")]
    allowed: Option<BTreeSet<String>>,
    #[serde(default)]
    min: Option<f64>,
    #[serde(default)]
    max: Option<f64>,
    #[serde(default)]
    pattern: Option<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
    #[serde(default)]
    error: Option<ErrorTrait>,
}

#[derive(Debug, Deserialize)]
struct ErrorTrait {
    #[serde(default)]
    code: Option<String>,
}

impl Models {
    /// The models on this machine, read once. With `CI=true` there must be some.
    pub fn shared() -> io::Result<Option<Arc<Self>>> {
        static SHARED: Shared<Models> = Shared::new();
        cache::once(&SHARED, || match folder() {
            Some(folder) => Self::read(&folder).map(Some),
            None => missing().map(|()| None),
        })
    }

    /// Reads the four files of a folder.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut services = BTreeMap::new();
        for name in SERVICES {
            let path = folder.join(format!("{name}.json"));
            let at = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
            let text = fs::read(&path).map_err(|error| at(&error))?;
            services.insert(name, serde_json::from_slice(&text).map_err(|error| at(&error))?);
        }
        Ok(Self { services })
    }

    /// The errors in a request, one line each.
    pub fn check_request(&self, service: &str, params: &Params) -> Vec<String> {
        let Some(model) = self.services.get(service) else {
            return vec![format!("no model of a service {service:?}")];
        };
        request::check(service, model, params)
    }

    /// The errors in an answer of the simulation, one line each.
    pub fn check_response(&self, service: &str, operation: &str, status: u16, body: &str) -> Vec<String> {
        let Some(model) = self.services.get(service) else {
            return vec![format!("no model of a service {service:?}")];
        };
        response::check(service, model, operation, status, body)
    }
}

impl Service {
    fn is_ec2(&self) -> bool {
        self.metadata.protocol == "ec2"
    }

    fn shape(&self, reference: &Reference) -> Option<&Shape> {
        self.shapes.get(&reference.shape)
    }
}

impl Shape {
    /// The error in the text of a scalar.
    fn check_text(&self, text: &str) -> Option<String> {
        let number = match self.kind.as_str() {
            "integer" | "long" => match text.parse::<i64>() {
                #[allow(clippy::cast_precision_loss, reason = "limits in the models are far below 2^52")]
                Ok(number) => Some(number as f64),
                Err(_) => return Some(format!("{text:?} is no integer")),
            },
            "double" | "float" => match text.parse::<f64>() {
                Ok(number) => Some(number),
                Err(_) => return Some(format!("{text:?} is no number")),
            },
            "boolean" if text != "true" && text != "false" => return Some(format!("{text:?} is no boolean")),
            "timestamp" if text.parse::<jiff::Timestamp>().is_err() => {
                return Some(format!("{text:?} is no timestamp"));
            }
            #[allow(clippy::cast_precision_loss, reason = "a length")]
            "string" => Some(text.chars().count() as f64),
            _ => None,
        };
        if let Some(number) = number
            && (self.min.is_some_and(|min| number < min) || self.max.is_some_and(|max| number > max))
        {
            return Some(format!("{text:?} is outside of {:?}..={:?}", self.min, self.max));
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(text)
        {
            return Some(format!("{text:?} is none of {allowed:?}"));
        }
        // A pattern that this engine doesn't support (some have look-ahead) is not checked.
        let compile = || self.pattern.as_ref().and_then(|pattern| Regex::new(&format!("^(?:{pattern})$")).ok());
        let pattern = self.compiled.get_or_init(compile).as_ref();
        (pattern.is_some_and(|pattern| !pattern.is_match(text)))
            .then(|| format!("{text:?} does not match {}", self.pattern.as_deref().unwrap_or_default()))
    }

    fn check_count(&self, count: usize) -> Option<String> {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let number = count as f64;
        (self.min.is_some_and(|min| number < min) || self.max.is_some_and(|max| number > max))
            .then(|| format!("has {count} entries, outside of {:?}..={:?}", self.min, self.max))
    }
}

fn folder() -> Option<PathBuf> {
    let own = env::var_os(FOLDER_ENV).filter(|value| !value.is_empty()).map(PathBuf::from);
    own.or_else(|| crate::moto::cache_folder().map(|folder| folder.join("models"))).filter(|folder| folder.is_dir())
}

fn missing() -> io::Result<()> {
    cache::not_here("no models of the AWS services: hack/moto.sh makes them, or set CCM_AWS_MODELS")
}

#[cfg(test)]
mod tests;
