//! What a path and a query mean.

use crate::error::ApiError;
use crate::kind::{KINDS, Kind};
use http::{Method, Uri};
use std::collections::BTreeMap;

/// Where a request goes.
#[derive(Debug, Clone)]
pub(super) enum Route {
    /// All objects of a kind, or of a namespace.
    Collection { kind: &'static Kind, namespace: String },
    /// One object.
    Object { kind: &'static Kind, namespace: String, name: String, subresource: String },
    /// Not about objects: discovery, health, control.
    Other(String),
}

/// A path below a served group version that names nothing served.
#[derive(Debug)]
pub(super) struct UnknownResource;

impl Route {
    pub(super) fn parse(path: &str) -> Result<Route, UnknownResource> {
        let steps: Vec<String> = path.split('/').filter(|step| !step.is_empty()).map(decode).collect();
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let (group, version, rest) = match steps.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Route::Other(path.to_owned())),
        };
        let served = |kind: &Kind| kind.group == group && kind.version == version;
        if !KINDS.iter().any(served) {
            return Ok(Route::Other(path.to_owned()));
        }
        let find = |plural: &str| {
            let same = |kind: &&Kind| kind.group == group && kind.version == version && kind.plural == plural;
            KINDS.iter().find(same).ok_or(UnknownResource)
        };
        let (kind, namespace, rest) = match rest {
            // `namespaces/x/status` and `namespaces/x/finalize` are about the namespace itself.
            ["namespaces", namespace, plural, rest @ ..] if !matches!(*plural, "status" | "finalize") => {
                let kind = find(plural)?;
                if !kind.namespaced {
                    return Err(UnknownResource);
                }
                (kind, *namespace, rest)
            }
            [plural, rest @ ..] => (find(plural)?, "", rest),
            [] => return Err(UnknownResource),
        };
        let namespace = namespace.to_owned();
        match rest {
            [] => Ok(Route::Collection { kind, namespace }),
            [name] if !kind.namespaced || !namespace.is_empty() => {
                Ok(Route::Object { kind, namespace, name: (*name).to_owned(), subresource: String::new() })
            }
            [name, "status"] if kind.status && (!kind.namespaced || !namespace.is_empty()) => {
                Ok(Route::Object { kind, namespace, name: (*name).to_owned(), subresource: "status".to_owned() })
            }
            _ => Err(UnknownResource),
        }
    }

    /// The verb as audit logs and RBAC call it.
    pub(super) fn verb(&self, method: &Method, query: &Query) -> Result<&'static str, ApiError> {
        let verb = match (self, method.as_str()) {
            (Route::Collection { .. }, "GET") if query.flag("watch") => "watch",
            (Route::Collection { .. }, "GET") => "list",
            (Route::Collection { kind, namespace }, "POST" | "DELETE") if kind.namespaced && namespace.is_empty() => {
                return Err(ApiError::method_not_allowed());
            }
            (Route::Collection { .. }, "POST") => "create",
            (Route::Collection { .. }, "DELETE") => "deletecollection",
            (Route::Object { .. }, "GET") => "get",
            (Route::Object { .. }, "PUT") => "update",
            (Route::Object { .. }, "PATCH") => "patch",
            (Route::Object { subresource, .. }, "DELETE") if subresource.is_empty() => "delete",
            (Route::Other(_), "GET" | "HEAD") => "get",
            (Route::Other(_), "POST" | "PUT") => "post",
            (Route::Other(_), "DELETE") => "delete",
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok(verb)
    }
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Query {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        };
        Query(pairs.map(read).collect())
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// A flag as the real server reads it: present means true, unless it says otherwise.
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

/// Undoes percent-encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let escaped = escaped.and_then(|pair| std::str::from_utf8(pair).ok());
        match escaped.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
