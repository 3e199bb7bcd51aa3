//! The calls of the Compute API: reads as lenient models, and writes as data.
//!
//! A model has the fields that the program reads. An object that is read and written back keeps its unknown fields:
//! read it as [`serde_json::Value`], or flatten the rest. A list is complete or an error.

pub(crate) mod balancing;
pub(crate) mod credentials;
pub(crate) mod failure;
pub(crate) mod filter;
pub(crate) mod instance;
pub(crate) mod metadata;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod operation;
pub(crate) mod permission;
pub(crate) mod resource;
pub(crate) mod session;
pub(crate) mod storage;
pub(crate) mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{CallError, Caller, ErrorKind, Failure, Meaning};
use ccm_kit::http::{Query, escaped, null};
use ccm_provider::LeaderToken;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use self::filter::Filter;
use self::metrics::Metrics;
use self::operation::{DISK_GET, Operation, Verb};
use self::resource::{Collection, Links, Scope};
use self::session::{Message, Session};
pub(crate) use self::write::{Sent, Write, is_passing};

/// A failed call.
pub(crate) type ApiError = CallError<Operation>;

/// The API of a project. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    caller: Caller<Operation>,
    /// The same, with the deadline of wait calls.
    waiting: Caller<Operation>,
    session: Arc<Session>,
    links: Arc<Links>,
    metrics: Metrics,
    write_limit: Duration,
}

/// An object of an answer. One without a name is none.
pub(crate) trait Named {
    /// The name, or the URL.
    fn name(&self) -> &str;
}

impl Named for Value {
    fn name(&self) -> &str {
        self.get("name").and_then(Self::as_str).unwrap_or_default()
    }
}

macro_rules! named {
    ($($type:ty),*) => {
        $(impl crate::client::Named for $type {
            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}
use named;

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    /// The API sends it always.
    kind: Option<String>,
    items: Option<Vec<T>>,
    next_page_token: Option<String>,
    warning: Option<Warning>,
}

impl<T: Named> Page<T> {
    /// An answer that is no list, or has an object without a name, is an error.
    fn check(&self) -> Result<(), Failure> {
        let is_list = self.kind.is_some() || self.items.is_some();
        match !is_list || self.items.iter().flatten().any(|item| item.name().is_empty()) {
            true => Err(unreadable("the answer is not a list of named objects".to_owned())),
            false => Ok(()),
        }
    }
}

/// A warning about a list.
#[derive(Debug, Deserialize)]
struct Warning {
    #[serde(default, deserialize_with = "null")]
    code: String,
}

impl Warning {
    /// An incomplete list is an error. Other warnings say that it is empty, or that something in it is old.
    fn check(self) -> Result<(), Failure> {
        match &*self.code {
            "UNREACHABLE" | "PARTIAL_SUCCESS" | "LIST_OVERHEAD_QUOTA_EXCEED" => {
                Err(unreadable(format!("the list is not complete: {}", self.code)))
            }
            _ => Ok(()),
        }
    }
}

/// A page of a list across all scopes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopedPage {
    kind: Option<String>,
    items: Option<BTreeMap<String, Value>>,
    next_page_token: Option<String>,
    #[serde(deserialize_with = "null")]
    unreachables: Vec<String>,
    warning: Option<Warning>,
}

impl Client {
    pub(crate) fn new(caller: Caller<Operation>, metrics: Metrics, session: Session, links: Links) -> Self {
        Self {
            waiting: caller.clone().deadline(session::LONGEST_WAIT),
            caller,
            session: Arc::new(session),
            links: Arc::new(links),
            metrics,
            write_limit: write::WRITE_LIMIT,
        }
    }

    /// Allows writes while this process leads.
    pub(crate) fn lend(&self, leader: Arc<dyn LeaderToken>) {
        self.caller.lend(leader);
    }

    /// The URLs of objects.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// The same API with other projects.
    #[must_use]
    pub(crate) fn with_links(&self, links: Links) -> Self {
        Self { links: Arc::new(links), ..self.clone() }
    }

    /// The same API for objects of another project.
    #[must_use]
    pub(crate) fn of_project(&self, project: &str) -> Self {
        self.with_links(Links { project: project.to_owned(), ..(*self.links).clone() })
    }

    /// Reads one object; `None` if the API says that it does not exist. A 404 for something else, such as a project or
    /// zone, is an error.
    pub(crate) async fn get<T: DeserializeOwned + Named>(
        &self,
        operation: Operation,
        scope: &Scope,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        let start = Instant::now();
        let message = self.read(operation, &self.path(operation, scope, name), None);
        let read = || async {
            let found: T = self.session.send(&message).await?.json()?;
            if found.name().is_empty() {
                Err(unreadable(format!("the answer about {name} has no name")))
            } else {
                Ok(found)
            }
        };
        let found = self.caller.call(operation, read).await;
        let (found, counts) = match found {
            Ok(found) => (Ok(Some(found)), true),
            // As in upstream, a missing object is a failed request, except a disk, which is looked up in many places.
            Err(error) if absence(&error, name) => (Ok(None), operation == DISK_GET),
            Err(error) => (Err(inconclusive(error)), false),
        };
        self.metrics.request(operation, scope, counts, start.elapsed());
        found
    }

    /// Reads all pages of a list.
    pub(crate) async fn list<T: DeserializeOwned + Named>(
        &self,
        operation: Operation,
        scope: &Scope,
        filter: &Filter,
    ) -> Result<Vec<T>, ApiError> {
        self.pages(operation, scope, self.path(operation, scope, ""), filter, None).await.map_err(inconclusive)
    }

    /// Reads all pages of the contents of an object, by POST. `None` if the object does not exist.
    pub(crate) async fn list_of<T: DeserializeOwned + Named>(
        &self,
        operation: Operation,
        scope: &Scope,
        name: &str,
        body: Value,
    ) -> Result<Option<Vec<T>>, ApiError> {
        let path = self.path(operation, scope, name);
        match self.pages(operation, scope, path, &Filter::default(), Some(body)).await {
            Err(error) if absence(&error, name) => Ok(None),
            read => read.map(Some).map_err(inconclusive),
        }
    }

    async fn pages<T: DeserializeOwned + Named>(
        &self,
        operation: Operation,
        scope: &Scope,
        path: String,
        filter: &Filter,
        body: Option<Value>,
    ) -> Result<Vec<T>, ApiError> {
        let start = Instant::now();
        let send = |token: Option<String>| {
            let message =
                self.read(operation, &format!("{path}{}", paged(operation, filter, token.as_deref())), body.clone());
            async move {
                let page: Page<T> = self.session.send(&message).await?.json()?;
                page.check()?;
                page.warning.map_or(Ok(()), Warning::check)?;
                Ok((page.items.unwrap_or_default(), page.next_page_token))
            }
        };
        let list = self.caller.pages(operation, send, |page| page).await;
        self.metrics.request(operation, scope, list.is_ok(), start.elapsed());
        list
    }

    /// Reads all pages of a list across all zones and regions. A scope that could not be read is an error.
    pub(crate) async fn list_all<T: DeserializeOwned + Named>(
        &self,
        operation: Operation,
        filter: &Filter,
    ) -> Result<Vec<T>, ApiError> {
        let start = Instant::now();
        let key = operation.collection.as_str();
        let path = self.path(operation, &Scope::Project, "");
        let send = |token: Option<String>| {
            // Without the parameter that allows it, a partial list is an error.
            let message = self.read(operation, &format!("{path}{}", paged(operation, filter, token.as_deref())), None);
            async move {
                let page: ScopedPage = self.session.send(&message).await?.json()?;
                if page.kind.is_none() && page.items.is_none() {
                    return Err(unreadable("the answer is not a list".to_owned()));
                }
                if let Some(scope) = page.unreachables.first() {
                    return Err(unreadable(format!("{scope} could not be read")));
                }
                page.warning.map_or(Ok(()), Warning::check)?;
                let mut all = Vec::new();
                for scope in page.items.unwrap_or_default().into_values() {
                    all.extend(of_scope::<T>(scope, key)?);
                }
                if all.iter().any(|object| object.name().is_empty()) {
                    return Err(unreadable("an object of the answer has no name".to_owned()));
                }
                Ok((all, page.next_page_token))
            }
        };
        let list = self.caller.pages(operation, send, |page| page).await;
        self.metrics.request(operation, &Scope::Project, list.is_ok(), start.elapsed());
        list.map_err(inconclusive)
    }

    fn read(&self, operation: Operation, path: &str, body: Option<Value>) -> Message {
        Message { method: operation.verb.method(), url: self.url(path), body, is_long: false }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.links.base)
    }

    /// The path of a request: that of an object, or of its collection.
    fn path(&self, operation: Operation, scope: &Scope, name: &str) -> String {
        let (collection, verb) = (operation.collection, operation.verb);
        if collection == Collection::Projects {
            return format!("projects/{}", escaped(name));
        }
        let (project, collection) = (escaped(self.links.project_of(collection)), collection.as_str());
        match (verb, verb.action()) {
            (Verb::AggregatedList, _) => format!("projects/{project}/aggregated/{collection}"),
            (Verb::List | Verb::Insert, _) => format!("projects/{project}/{scope}{collection}"),
            (_, None) => format!("projects/{project}/{scope}{collection}/{}", escaped(name)),
            (_, Some(action)) => format!("projects/{project}/{scope}{collection}/{}/{action}", escaped(name)),
        }
    }
}

fn paged(operation: Operation, filter: &Filter, token: Option<&str>) -> Query {
    let filter = filter.to_string();
    let query = if filter.is_empty() { Query::default() } else { Query::default().with("filter", &filter) };
    let query = query.with("maxResults", "500");
    let query = instance::listed(operation).iter().fold(query, |query, fields| query.with("fields", fields));
    token.iter().fold(query, |query, token| query.with("pageToken", token))
}

/// The objects of one scope. An empty scope has a warning that says so; any other warning is a failure.
fn of_scope<T: DeserializeOwned>(mut scope: Value, key: &str) -> Result<Vec<T>, Failure> {
    match scope.get_mut(key).map(Value::take).filter(|items| !items.is_null()) {
        Some(items) => serde_json::from_value(items).map_err(|error| {
            let text = error.to_string();
            // The rest of the message may quote a value.
            unreadable(format!("{key}: {}", text.split(['"', '`']).next().unwrap_or_default()))
        }),
        None => match scope.pointer("/warning/code").and_then(Value::as_str) {
            None | Some("NO_RESULTS_ON_PAGE") => Ok(Vec::new()),
            Some(code) => Err(unreadable(format!("a scope could not be read: {code}"))),
        },
    }
}

fn unreadable(message: String) -> Failure {
    Failure { message, cause: ccm_kit::call::Cause::NoAnswer, ..Failure::default() }
}

/// Whether a response says that the object itself does not exist. The message quotes the missing object, which may be
/// the project or the zone; a response without a reason comes from an intermediary.
pub(crate) fn absence(error: &ApiError, name: &str) -> bool {
    if error.kind != ErrorKind::Refused || error.meaning() != Meaning::NotFound || error.code == "404" {
        return false;
    }
    let collection = error.operation.collection;
    let mut quoted = error.message.split('\'').skip(1).step_by(2).filter(|part| part.contains('/')).peekable();
    match quoted.peek() {
        // Other responses do not show which object is missing, and a node may be deleted because of this.
        None => collection != Collection::Instances,
        Some(_) => quoted.any(|url| url.ends_with(&format!("{}/{name}", collection.as_str()))),
    }
}

/// A missing project or zone says nothing about the objects in it.
fn inconclusive(error: ApiError) -> ApiError {
    match error.kind == ErrorKind::Refused && error.meaning() == Meaning::NotFound {
        true => ApiError { kind: ErrorKind::Incomplete, ..error },
        false => error,
    }
}

/// Whether a permission is missing.
pub(crate) fn is_forbidden(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Denied
}

/// Whether the object exists already, or has changed since it was read.
pub(crate) fn is_conflict(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Conflict
}

/// Whether a quota has no room for the object.
pub(crate) fn is_over_quota(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Quota
}

/// Whether another object still uses the one to be deleted.
pub(crate) fn is_in_use(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.is(&[operation::IN_USE, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"])
}

#[cfg(test)]
mod tests;
