//! Checks requests and answers against Google's own description of the API.
//!
//! [`Model::shared`] finds the descriptions that `hack/gce.sh` put into the cache; without them nothing is checked, and
//! with `CI=true` that is an error.

use crate::cache::{self, Shared};
use crate::core::rest::{Call, Problem};
use crate::core::schema::{Description, Finding, Method, Way, Why};
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The versions that `hack/gce.sh` pins.
const REQUIREMENTS: &str = include_str!("../../../../hack/gce/requirements.txt");

/// The descriptions of the services.
#[derive(Debug)]
pub(super) struct Model {
    compute: Description,
    projects: Description,
}

/// The folder in which `hack/gce.sh` has put the official Python client and the descriptions, if any. With `CI=true`
/// there must be one.
pub fn cache_folder() -> io::Result<Option<PathBuf>> {
    let folder = cache::folder("gce", "google-api-python-client", REQUIREMENTS);
    cache::complete(folder, REQUIREMENTS, "no description of Google's APIs; hack/gce.sh obtains it")
}

impl Model {
    /// The descriptions on this machine, read once.
    pub(super) fn shared() -> io::Result<Option<Arc<Self>>> {
        static SHARED: Shared<Model> = Shared::new();
        cache::once(&SHARED, || {
            let Some(folder) = cache_folder()? else { return Ok(None) };
            let file = |name: &str| Description::read(&folder.join("descriptions").join(name));
            let (compute, projects) = (file("compute.v1.json")?, file("cloudresourcemanager.v1.json")?);
            Ok(Some(Model { compute, projects }))
        })
    }

    /// A service's description, and its method with this ID.
    fn method(&self, service: &str, action: &str) -> Option<(&Description, &Method)> {
        let description = match service {
            "compute" => &self.compute,
            "cloudresourcemanager" => &self.projects,
            _ => return None,
        };
        let method = description.methods.get(&format!("{service}.{action}"))?;
        Some((description, method))
    }

    /// Whether a route is a method of the API: the same HTTP method and path, regardless of parameter names.
    #[cfg(test)]
    pub(super) fn has(&self, service: &str, action: &str, method: &str, path: &str) -> bool {
        self.method(service, action).is_some_and(|(_, known)| {
            let filled = path.replace("{}", "x").replace("projects/x", "projects/x:testIamPermissions");
            let fits = known.path_values(&path.replace("{}", "x")).or(known.path_values(&filled)).is_some();
            known.http_method == method && fits
        })
    }

    /// Checks a request against the description.
    pub(super) fn check_request(&self, call: &Call) -> Result<(), Problem> {
        let Some((description, method)) = self.method(call.service, call.action) else { return Ok(()) };
        let path = method.path_values(&call.path).unwrap_or_default();
        let mut found = description.check_parameters(method, &path, &call.query);
        let id = format!("{}.{}", call.service, call.action);
        if let (Some(schema), Ok(body)) = (&method.request, serde_json::from_slice::<Value>(&call.body)) {
            found.extend(description.check(schema, "resource", &body, Way::In(&id)));
        } else if method.request.is_none() && !call.body.is_empty() && call.body.as_ref() != b"{}" {
            found.push(Finding { at: "body".to_owned(), is: String::new(), why: Why::Unknown });
        }
        // An object that was read and is written back has output-only fields, which the service ignores.
        found.retain(|finding| finding.why != Why::ReadOnly);
        found.first().map_or(Ok(()), |finding| Err(problem(finding)))
    }

    /// The mismatches of an answer, one line each.
    pub(super) fn check_answer(&self, call: &Call, body: &[u8]) -> Vec<String> {
        let Some((description, method)) = self.method(call.service, call.action) else { return Vec::new() };
        let what = format!("the simulation answers {}:{}", call.service, call.action);
        let Some(schema) = &method.response else { return Vec::new() };
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return vec![format!("{what} without JSON")] };
        let found = description.check(schema, "answer", &body, Way::Out);
        found.into_iter().map(|Finding { at, is, why }| format!("{what}: {at} is {is:?}: {why:?}")).collect()
    }
}

/// A mismatch as the service's error.
fn problem(finding: &Finding) -> Problem {
    let Finding { at, is, why } = finding;
    let inside = at.starts_with("resource.");
    let (parent, name) = at.rsplit_once('.').unwrap_or(("", at));
    match why {
        Why::Unknown if inside => Problem::violation(
            400,
            "badRequest",
            format!("Invalid JSON payload received. Unknown name \"{name}\" at '{parent}': Cannot find field."),
        ),
        Why::Unknown => Problem::violation(
            400,
            "badRequest",
            format!(
                "Invalid JSON payload received. Unknown name \"{name}\": Cannot bind query parameter. Field '{name}' could not be found in request message."
            ),
        ),
        Why::Type(kind) => Problem::violation(400, "badRequest", format!("Invalid value at '{at}' ({kind}), \"{is}\"")),
        Why::Missing => Problem::violation(400, "required", format!("Required field '{at}' not specified")),
        Why::Value | Why::Range(..) => Problem::violation(
            400,
            "invalid",
            format!("Invalid value for field '{at}': '{is}'. Must be one of the allowed values."),
        ),
        // Names that users choose may be invalid without a defect of the caller.
        Why::Pattern(pattern) => Problem::new(
            400,
            "invalid",
            format!("Invalid value for field '{at}': '{is}'. Must be a match of regex '{pattern}'"),
        ),
        Why::ReadOnly => {
            Problem::violation(400, "invalid", format!("Invalid value for field '{at}': '{is}'. Output only."))
        }
    }
}
