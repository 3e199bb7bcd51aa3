//! Gets and lists.

use super::Core;
use super::state::{Objects, Scope, State, Stored, key};
use crate::error::{ApiError, Cause};
use crate::kind::Kind;
use crate::selector::{Fields, Labels};
use serde_json::{Value, json};
use std::ops::Bound;
use std::sync::Arc;

/// What a list asks for; the members are the query parameters of the same names.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Namespace; empty for all.
    pub namespace: String,
    /// `labelSelector`.
    pub label_selector: String,
    /// `fieldSelector`.
    pub field_selector: String,
    /// `limit`; 0 for no limit.
    pub limit: usize,
    /// `continue`; empty for the first page.
    pub continue_token: String,
    /// `resourceVersion`; empty when not given.
    pub resource_version: String,
    /// `resourceVersionMatch`; empty when not given.
    pub resource_version_match: String,
}

/// A page of objects.
#[derive(Debug)]
pub struct List {
    /// Kind of the items.
    pub kind: &'static Kind,
    /// The version at which the list was true.
    pub version: u64,
    /// Token for the next page; empty on the last.
    pub continue_token: String,
    /// How many objects are left behind this page, when that is known.
    pub remaining: Option<usize>,
    /// The objects.
    pub items: Vec<Arc<Stored>>,
}

/// The objects of a kind as they were at some version: what a stale cache would serve.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
}

pub(crate) fn parse_scope(kind: &Kind, namespace: &str, labels: &str, fields: &str) -> Result<Scope, ApiError> {
    Ok(Scope { namespace: namespace.to_owned(), labels: Labels::parse(labels)?, fields: Fields::parse(kind, fields)? })
}

/// Reads a resourceVersion parameter.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        ApiError::new(500, "", format!("resourceVersion: Invalid value: \"{text}\": {why}"))
    })
}

/// Where the next page begins. Opaque to clients.
struct Token {
    /// 0 for "whatever is there now" (a token handed out with a 410).
    version: u64,
    after: String,
}

impl Token {
    fn write(&self) -> String {
        let plain = json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": self.after}).to_string();
        plain.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn read(text: &str) -> Result<Token, ApiError> {
        let digits: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect();
        let plain: Option<Value> = digits.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let token = plain.as_ref().and_then(|plain| {
            let (version, after) = (plain.get("rv")?.as_u64()?, plain.get("start")?.as_str()?.to_owned());
            Some(Token { version, after })
        });
        token.ok_or_else(|| {
            ApiError::bad_request("invalid continue token: continue key is not valid: encoded value is not valid")
        })
    }
}

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token \
results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may \
show up in the list.";

impl Core {
    /// The object as it is now, or as it was in `view`.
    pub(crate) fn get(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        view: Option<&Snapshot>,
    ) -> Result<Arc<Stored>, ApiError> {
        let found = match view {
            Some(view) => view.objects.get(&key(namespace, name)).cloned(),
            None => self.lock().find(kind, namespace, name),
        };
        found.ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// A page of objects, as they are now or as they were in `view`.
    pub(crate) fn list(
        &self,
        kind: &'static Kind,
        options: &ListOptions,
        view: Option<&Snapshot>,
    ) -> Result<List, ApiError> {
        let scope = parse_scope(kind, &options.namespace, &options.label_selector, &options.field_selector)?;
        check_match(options)?;
        let state = self.lock();
        let asked = parse_version(&options.resource_version).map_err(|error| {
            // Lists wrap what gets and watches let through.
            ApiError::bad_request(format!("invalid resource version: {}", error.message))
        })?;
        let exact = options.resource_version_match == "Exact"
            || (options.limit > 0 && options.resource_version_match.is_empty() && asked.is_some_and(|asked| asked > 0));
        if !options.continue_token.is_empty() {
            let token = Token::read(&options.continue_token)?;
            if asked.is_some_and(|asked| asked > 0) {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            return next_page(&state, kind, &scope, options, token);
        }
        let newest = view.map_or(state.version, |view| view.version);
        if let Some(asked) = asked.filter(|asked| *asked > newest) {
            return Err(ApiError::too_large(asked, newest));
        }
        if let Some(view) = view {
            return Ok(page(kind, &scope, options, &view.objects, view.version, None));
        }
        match asked {
            Some(asked) if exact => {
                let objects = state.objects_at(kind, asked);
                let objects = objects.ok_or_else(|| too_old(asked, &state, kind))?;
                Ok(page(kind, &scope, options, &objects, asked, None))
            }
            _ => Ok(page(kind, &scope, options, &state.of(kind).objects, state.version, None)),
        }
    }

    /// The objects of a kind now.
    pub(crate) fn snapshot(&self, kind: &Kind) -> Snapshot {
        let state = self.lock();
        Snapshot { version: state.version, objects: state.of(kind).objects.clone() }
    }
}

/// The answer to a version from before the history.
pub(crate) fn too_old(asked: u64, state: &State, kind: &Kind) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({})", state.of(kind).floor))
}

fn check_match(options: &ListOptions) -> Result<(), ApiError> {
    let refuse =
        |cause: Cause| Err(ApiError::invalid_as("ListOptions.meta.k8s.io", "ListOptions", "meta.k8s.io", "", &[cause]));
    let matching = options.resource_version_match.as_str();
    if matching.is_empty() {
        return Ok(());
    }
    let field = "resourceVersionMatch";
    if options.resource_version.is_empty() {
        return refuse(Cause::forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if !options.continue_token.is_empty() {
        return refuse(Cause::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if !["Exact", "NotOlderThan"].contains(&matching) {
        return refuse(Cause::not_supported(field, matching, &["Exact", "NotOlderThan", ""]));
    }
    if matching == "Exact" && options.resource_version == "0" {
        return refuse(Cause::forbidden(
            field,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ));
    }
    Ok(())
}

fn next_page(
    state: &State,
    kind: &'static Kind,
    scope: &Scope,
    options: &ListOptions,
    token: Token,
) -> Result<List, ApiError> {
    if token.version == 0 {
        let objects = &state.of(kind).objects;
        return Ok(page(kind, scope, options, objects, state.version, Some(token.after)));
    }
    let Some(objects) = state.objects_at(kind, token.version) else {
        let mut error = ApiError::expired(EXPIRED);
        error.continue_token = Some(Token { version: 0, after: token.after }.write());
        return Err(error);
    };
    Ok(page(kind, scope, options, &objects, token.version, Some(token.after)))
}

fn page(
    kind: &'static Kind,
    scope: &Scope,
    options: &ListOptions,
    objects: &Objects,
    version: u64,
    after: Option<String>,
) -> List {
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let start = match after {
        Some(after) => Bound::Excluded(after),
        // A namespace is a prefix of its keys; scanning starts there.
        None if !scope.namespace.is_empty() => Bound::Included(key(&scope.namespace, "")),
        None => Bound::Unbounded,
    };
    let prefix = if scope.namespace.is_empty() { String::new() } else { key(&scope.namespace, "") };
    let mut rest = objects
        .range((start, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(_, stored)| stored)
        .filter(|stored| stored.matches(scope));
    let items: Vec<Arc<Stored>> = rest.by_ref().take(limit).map(Arc::clone).collect();
    let left = if items.len() == limit { rest.count() } else { 0 };
    let mut list = List { kind, version, continue_token: String::new(), remaining: None, items };
    if let (1.., Some(last)) = (left, list.items.last()) {
        list.continue_token = Token { version, after: last.key() }.write();
        list.remaining = (!scope.is_selective()).then_some(left);
    }
    list
}
