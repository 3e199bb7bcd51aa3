//! Gets and lists.

use super::Core;
use super::state::{Objects, Scope, State, Stored, key};
use crate::error::{ApiError, Cause};
use crate::kind::Kind;
use crate::selector::Selector;
use std::ops::Bound;
use std::sync::Arc;

/// The query parameters of a list or a watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) namespace: String,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    /// 0 for no limit.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    /// The selectors.
    pub(crate) fn scope(&self, kind: &Kind) -> Result<Scope, ApiError> {
        let labels = Selector::labels(&self.label_selector)?;
        Ok(Scope { namespace: self.namespace.clone(), labels, fields: Selector::fields(kind, &self.field_selector)? })
    }
}

/// A page of objects.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) kind: &'static Kind,
    /// The version of the list.
    pub(crate) version: u64,
    /// Token for the next page; empty on the last page.
    pub(crate) continue_token: String,
    /// The number of objects after this page, if known.
    pub(crate) remaining: Option<usize>,
    pub(crate) items: Vec<Arc<Stored>>,
}

/// The objects of a kind at some version, as served by a stale cache.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) objects: Objects,
}

/// Parses a resourceVersion parameter.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        ApiError::new(500, "", format!("resourceVersion: Invalid value: \"{text}\": {why}"))
    })
}

/// The position of the next page. Opaque to clients.
struct Token {
    /// 0 for the current state (a token returned with a 410).
    version: u64,
    after: String,
}

impl Token {
    fn write(&self) -> String {
        format!("{}/{}", self.version, self.after)
    }

    fn read(text: &str) -> Result<Token, ApiError> {
        let parts = text.split_once('/').and_then(|(version, after)| Some((version.parse().ok()?, after.to_owned())));
        let why = "invalid continue token: continue key is not valid: encoded value is not valid";
        parts.map(|(version, after)| Token { version, after }).ok_or_else(|| ApiError::bad_request(why))
    }
}

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token \
results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may \
show up in the list.";

impl Core {
    /// The current object, or the one in `view`.
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

    /// A page of the current objects, or of those in `view`.
    pub(crate) fn list(
        &self,
        kind: &'static Kind,
        options: &ListOptions,
        view: Option<&Snapshot>,
    ) -> Result<List, ApiError> {
        let scope = options.scope(kind)?;
        check_match(options)?;
        let state = self.lock();
        let asked = parse_version(&options.resource_version).map_err(|error| {
            // Lists wrap, but gets and watches do not.
            ApiError::bad_request(format!("invalid resource version: {}", error.message))
        })?;
        let versioned = asked.is_some_and(|asked| asked > 0);
        if options.resource_version_match == "Exact"
            || (options.limit > 0 && options.resource_version_match.is_empty() && versioned)
        {
            return Err(ApiError::not_implemented("lists of an exact version"));
        }
        if !options.continue_token.is_empty() {
            let token = Token::read(&options.continue_token)?;
            if versioned {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            if token.version == 0 {
                let objects = &state.of(kind).objects;
                return Ok(page(kind, &scope, options, objects, state.version, Some(token.after)));
            }
            let Some(objects) = state.objects_at(kind, token.version) else {
                let continue_token = Some(Token { version: 0, ..token }.write());
                return Err(ApiError { continue_token, ..ApiError::expired(EXPIRED) });
            };
            return Ok(page(kind, &scope, options, &objects, token.version, Some(token.after)));
        }
        let newest = view.map_or(state.version, |view| view.version);
        if let Some(asked) = asked.filter(|asked| *asked > newest) {
            return Err(ApiError::too_large(asked, newest));
        }
        let (objects, version) = match view {
            Some(view) => (&view.objects, view.version),
            None => (&state.of(kind).objects, state.version),
        };
        Ok(page(kind, &scope, options, objects, version, None))
    }

    /// The current objects of a kind.
    pub(crate) fn snapshot(&self, kind: &Kind) -> Snapshot {
        let state = self.lock();
        Snapshot { version: state.version, objects: state.of(kind).objects.clone() }
    }
}

/// The error for a version older than the history.
pub(crate) fn too_old(asked: u64, state: &State, kind: &Kind) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({})", state.of(kind).floor))
}

fn check_match(options: &ListOptions) -> Result<(), ApiError> {
    let refuse = |cause: Cause| Err(ApiError::invalid_options(&[cause]));
    if options.send_initial_events.is_some() {
        return refuse(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
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
        let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        return refuse(Cause::forbidden(field, detail));
    }
    Ok(())
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
        // A namespace is a prefix of its keys, so the scan starts there.
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
