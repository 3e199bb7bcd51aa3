//! Parses paths and queries.

use crate::error::ApiError;
use crate::kind::{KINDS, Kind};
use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// The target of a request.
#[derive(Debug, Clone)]
pub(super) enum Route {
    /// Objects: one by name; if the name is empty, all of a kind or namespace.
    Objects { kind: &'static Kind, namespace: String, name: String, subresource: String },
    /// Discovery or health.
    Other(String),
}

impl Route {
    pub(super) fn parse(path: &str) -> Result<Route, ApiError> {
        let decode = |step| percent_decode_str(step).decode_utf8_lossy().into_owned();
        let steps: Vec<String> = path.split('/').filter(|step| !step.is_empty()).map(decode).collect();
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let (group, rest) = match steps.as_slice() {
            ["api", "v1", rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, "v1", rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => return Ok(Route::Other(path.to_owned())),
        };
        if !KINDS.iter().any(|kind| kind.group == group) {
            return Ok(Route::Other(path.to_owned()));
        }
        let (namespace, rest) = match rest {
            // `namespaces/x/status` and `namespaces/x/finalize` refer to the namespace itself.
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize", ..]) => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let [plural, rest @ ..] = rest else { return Err(ApiError::no_resource()) };
        let kind = KINDS.iter().find(|kind| kind.group == group && kind.plural == *plural);
        let kind = kind.filter(|kind| kind.namespaced || namespace.is_empty()).ok_or_else(ApiError::no_resource)?;
        let (name, subresource) = match rest {
            [] => ("", ""),
            _ if kind.namespaced && namespace.is_empty() => return Err(ApiError::no_resource()),
            [name] => (*name, ""),
            [name, "status"] if kind.status => (*name, "status"),
            _ => return Err(ApiError::no_resource()),
        };
        let (namespace, name, subresource) = (namespace.to_owned(), name.to_owned(), subresource.to_owned());
        Ok(Route::Objects { kind, namespace, name, subresource })
    }

    /// The verb, with the name in audit logs and RBAC.
    pub(super) fn verb(&self, method: &Method, query: &Query) -> Result<&'static str, ApiError> {
        let (kind, namespace, name, subresource) = match self {
            Route::Other(_) if matches!(method.as_str(), "GET" | "HEAD") => return Ok("get"),
            Route::Other(_) => return Err(ApiError::method_not_allowed()),
            Route::Objects { kind, namespace, name, subresource } => (kind, namespace, name, subresource),
        };
        match (method.as_str(), name.is_empty()) {
            ("GET", true) if query.flag("watch") => Ok("watch"),
            ("GET", true) => Ok("list"),
            ("POST", true) if !kind.namespaced || !namespace.is_empty() => Ok("create"),
            ("DELETE", true) if !kind.namespaced || !namespace.is_empty() => {
                Err(ApiError::not_implemented("the deletion of collections"))
            }
            ("GET", false) => Ok("get"),
            ("PUT", false) => Ok("update"),
            ("PATCH", false) => Ok("patch"),
            ("DELETE", false) if subresource.is_empty() => Ok("delete"),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Query {
        Query(form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect())
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// A boolean parameter, parsed as by the real server: if present, it is true unless its value is false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !matches!(value.as_str(), "false" | "0" | "f" | "False"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(|value| value.parse().ok())
    }
}
