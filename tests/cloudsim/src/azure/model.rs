//! Checks requests and answers against Microsoft's own description of the API.
//!
//! [`Model::shared`] finds the description that `hack/azure.sh` put into the cache; without it nothing is checked, and
//! with `CI=true` that is an error.

use super::routes::ROUTES;
use crate::cache::{self, Shared};
use crate::core::rest::{Call, Problem};
use crate::core::schema::{Description, Finding, Method, Way, Why};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The versions that `hack/azure.sh` pins.
const REQUIREMENTS: &str = include_str!("../../../../hack/azure/requirements.txt");

/// Fields that real answers have and the description lacks, as recordings of the real service show: of interfaces and of
/// private link services. A caller that keeps what it has read sends them back.
const UNDESCRIBED: [&str; 3] = [".kind", ".properties.allowPort25Out", ".properties.resourceGuid"];

/// The description of the services.
#[derive(Debug)]
pub(super) struct Model {
    description: Description,
    /// The ID of the method of each route, by service and action.
    methods: BTreeMap<(&'static str, &'static str), String>,
}

/// The folder in which `hack/azure.sh` has put the official Python client and the description, if any. With `CI=true`
/// there must be one.
pub fn cache_folder() -> io::Result<Option<PathBuf>> {
    let folder = cache::folder("azure", "azure-mgmt-network", REQUIREMENTS);
    cache::complete(folder, REQUIREMENTS, "no description of Azure's APIs; hack/azure.sh obtains it")
}

impl Model {
    /// The description on this machine, read once.
    pub(super) fn shared() -> io::Result<Option<Arc<Self>>> {
        static SHARED: Shared<Model> = Shared::new();
        cache::once(&SHARED, || {
            let Some(folder) = cache_folder()? else { return Ok(None) };
            let description = Description::read(&folder.join("descriptions").join("azure.json"))?;
            Ok(Some(Model::new(description)))
        })
    }

    fn new(description: Description) -> Self {
        let known: BTreeMap<(String, String), &String> = description
            .methods
            .iter()
            .map(|(id, method)| ((method.http_method.clone(), template(&method.path)), id))
            .collect();
        let methods = ROUTES.iter().filter_map(|route| {
            let id = known.get(&(route.method.to_owned(), template(route.path)))?;
            Some(((route.service, route.action), (*id).clone()))
        });
        let methods = methods.collect();
        Model { description, methods }
    }

    fn method(&self, call: &Call) -> Option<(&String, &Method)> {
        let id = self.methods.get(&(call.service, call.action))?;
        Some((id, self.description.methods.get(id)?))
    }

    /// The API version with which the official client calls the method of a route; `None`: there is no such method.
    #[cfg(test)]
    pub(super) fn version(&self, service: &'static str, action: &'static str) -> Option<&str> {
        let id = self.methods.get(&(service, action))?;
        self.description.methods.get(id)?.version.as_deref()
    }

    /// Checks a request against the description.
    pub(super) fn check_request(&self, call: &Call) -> Result<(), Problem> {
        let Some((id, method)) = self.method(call) else { return Ok(()) };
        let own = |(name, _): &&(String, String)| !matches!(name.as_str(), "$skiptoken" | "api-version");
        let query: Vec<(String, String)> = call.query.iter().filter(own).cloned().collect();
        let mut found = self.description.check_parameters(method, &[], &query);
        let body = serde_json::from_slice::<Value>(&call.body);
        if let (Some(schema), Ok(body)) = (&method.request, body) {
            found.extend(self.description.check(schema, "", &body, Way::In(id)));
        }
        // An object that was read and is written back has output-only fields, which the service ignores.
        found.retain(|finding| finding.why != Why::ReadOnly && !undescribed(finding));
        found.first().map_or(Ok(()), |finding| Err(problem(finding)))
    }

    /// The mismatches of an answer, one line each.
    pub(super) fn check_answer(&self, call: &Call, status: u16, body: &[u8]) -> Vec<String> {
        let Some((_, method)) = self.method(call) else { return Vec::new() };
        let what = format!("the simulation answers {}:{}", call.service, call.action);
        if !method.statuses.is_empty() && !method.statuses.contains(&status) {
            return vec![format!("{what} with {status}, not one of {:?}", method.statuses)];
        }
        if body.is_empty() {
            return Vec::new();
        }
        let Some(schema) = &method.response else { return Vec::new() };
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return vec![format!("{what} without JSON")] };
        let found = self.description.check(schema, "", &body, Way::Out);
        let found = found.into_iter().filter(|finding| !undescribed(finding));
        found.map(|Finding { at, is, why }| format!("{what}: {at} is {is:?}: {why:?}")).collect()
    }
}

fn undescribed(finding: &Finding) -> bool {
    finding.why == Why::Unknown && UNDESCRIBED.iter().any(|known| finding.at.ends_with(known))
}

/// A path in lower case without the names of its parameters.
fn template(path: &str) -> String {
    let segments = path.trim_matches('/').split('/');
    let plain = segments.map(|segment| if segment.starts_with('{') { "{}".to_owned() } else { segment.to_lowercase() });
    plain.collect::<Vec<_>>().join("/")
}

/// A mismatch as the service's error.
fn problem(finding: &Finding) -> Problem {
    let Finding { at, is, why } = finding;
    let name = at.rsplit('.').next().unwrap_or(at);
    let text = match why {
        Why::Unknown => format!("Could not find member '{name}' on object. Path '{}'.", at.trim_start_matches('.')),
        Why::Missing => format!("Required member '{name}' is missing. Path '{}'.", at.trim_start_matches('.')),
        _ => format!("Error converting value \"{is}\" of path '{}': {why:?}.", at.trim_start_matches('.')),
    };
    Problem::violation(400, "InvalidRequestFormat", format!("Cannot parse the request. {text}"))
}
