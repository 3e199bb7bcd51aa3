//! The calls to OpenStack's services: reads, with lenient models, and writes.
//!
//! A model has only the fields that the program reads. Unknown fields and states are preserved: states are texts, and
//! writes contain only changes. A list is complete or an error.

pub(crate) mod compute;
pub(crate) mod keys;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod octavia;
pub(crate) mod operation;
mod ports;
pub(crate) mod session;
pub(crate) mod storage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{CallError, Caller, Cause, ErrorKind, Failure, Meaning};
use ccm_kit::http::Answer;
pub(crate) use ccm_kit::http::{Query, escaped, null};
use ccm_provider::{LeaderToken, ProviderError};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use self::operation::{Operation, Service};
use self::session::{Message, Session};

/// An optional call that was refused is not sent again for this time.
const REFUSED: Duration = Duration::from_secs(3600);
/// The same if what is in front of the service may have refused it.
const UNANSWERED: Duration = Duration::from_secs(60);

/// A failed call.
pub(crate) type ApiError = CallError<Operation>;

/// The services of a cloud. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    caller: Caller<Operation>,
    session: Arc<Session>,
    /// The time of the last write to a port: earlier reads of ports are outdated.
    ports_written: Arc<Mutex<Option<Instant>>>,
    turns: Arc<ports::Turns>,
    /// The same for load balancers and their parts.
    balancers_written: Arc<Mutex<Option<Instant>>>,
    /// Until when optional calls that were refused are not sent.
    refused: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
}

impl Client {
    pub(crate) fn new(caller: Caller<Operation>, session: Session) -> Self {
        let session = Arc::new(session);
        Self {
            caller,
            session,
            ports_written: Arc::default(),
            turns: Arc::default(),
            balancers_written: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// Allows writes while this process leads.
    pub(crate) fn lend(&self, leader: Arc<dyn LeaderToken>) {
        self.caller.lend(leader);
    }

    /// The time of the last write to a port.
    pub(crate) fn ports_written(&self) -> Option<Instant> {
        *self.ports_written.lock()
    }

    /// The time of the last write to Octavia.
    pub(crate) fn balancers_written(&self) -> Option<Instant> {
        *self.balancers_written.lock()
    }

    /// The error of a start that gets no token or endpoint.
    pub(crate) fn unusable(&self, failure: Failure) -> ProviderError {
        match failure.cause {
            // The catalog lacks an entry, which the text names.
            Cause::Malformed => ProviderError::unknown(failure.message),
            _ => ApiError::new(operation::TOKEN_CREATE, failure).into(),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Reads one object under this key of the response; an empty key is the whole response.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        operation: Operation,
        path: String,
        key: &str,
    ) -> Result<T, ApiError> {
        self.find(operation, path, key).await?.ok_or_else(|| {
            let failure = Failure { code: "NotFound".to_owned(), status: Some(404), ..Failure::default() };
            ApiError::new(operation, failure)
        })
    }

    /// Like [`Self::find`], by an ID that users write: `None` also if no object can have it.
    pub(crate) async fn find_by_id<T: DeserializeOwned>(
        &self,
        operation: Operation,
        (list, id): (&str, &str),
        key: &str,
    ) -> Result<Option<T>, ApiError> {
        match is_id(id) {
            true => self.find(operation, format!("{list}/{id}"), key).await,
            false => Ok(None),
        }
    }

    /// Like [`Self::get`]; `None` if the object does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        operation: Operation,
        path: String,
        key: &str,
    ) -> Result<Option<T>, ApiError> {
        let message = Message { path, ..Message::default() };
        let read = || async {
            let answer = self.session.send(operation, &message).await;
            let Some(answer) = known(operation.of(), answer)? else { return Ok(None) };
            if key.is_empty() {
                return answer.json().map(Some);
            }
            let mut answer: Value = answer.json()?;
            // The status tree has the ID of its root.
            let object = answer.get(key).map(|found| found.get("loadbalancer").unwrap_or(found));
            match object.is_some_and(is_identified) {
                true => below(&mut answer, key).map(Some),
                false => Err(unreadable(format!("the answer has no {key:?} with an ID"))),
            }
        };
        self.caller.call(operation, read).await
    }

    /// The answer to a call that the Go program does not make, so that a role, an access rule or a driver's API may lack
    /// it; `None` if it is refused. Then it is not sent again for some time: each 401 costs a login.
    pub(crate) async fn optional<T>(
        &self,
        call: &'static str,
        read: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Option<T>, ApiError> {
        if self.refused.lock().get(call).is_some_and(|until| Instant::now() < *until) {
            return Ok(None);
        }
        match read.await {
            Err(error) if is_refused(&error) => {
                tracing::warn!(%error, "the program goes on without the answer");
                let kept = if error.kind == ErrorKind::NoAnswer { UNANSWERED } else { REFUSED };
                self.refused.lock().insert(call, Instant::now() + kept);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Reads all pages of a list. Only the marker of a link to the next page is used: a service behind a proxy may use
    /// another host name in the link, and Octavia leaves the filters out.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        operation: Operation,
        path: &str,
        query: Query,
        key: &str,
    ) -> Result<Vec<T>, ApiError> {
        let links = format!("{key}_links");
        let send = |marker: Option<String>| {
            let query = marker.iter().fold(query.clone(), |query, marker| query.with("marker", marker));
            let message = Message { path: format!("{path}{query}"), ..Message::default() };
            let links = &links;
            async move {
                let mut answer: Value = self.session.send(operation, &message).await?.json()?;
                let next = next_page(answer.get(links));
                let objects = answer.get(key).and_then(Value::as_array).into_iter().flatten();
                if !objects.into_iter().all(is_identified) {
                    return Err(unreadable(format!("an entry of {key:?} has no ID")));
                }
                // Services in Go write an empty list as null.
                let list: Vec<T> = below::<Option<_>>(&mut answer, key)?.unwrap_or_default();
                // A page without entries ends the list, even with a link to a next page.
                let next = next.filter(|_| !list.is_empty()).transpose()?;
                Ok((list, next))
            }
        };
        self.caller.pages(operation, send, |page| page).await
    }

    /// Writes, and returns the whole response; null if it has no body.
    pub(crate) async fn write(&self, operation: Operation, message: &Message) -> Result<Value, ApiError> {
        let send = || async {
            let answer = self.session.send(operation, message).await?;
            if answer.body.is_empty() { Ok(Value::Null) } else { answer.json() }
        };
        self.caller.call(operation, send).await
    }

    /// Creates or changes.
    pub(crate) async fn put(&self, operation: Operation, path: &str, body: Value) -> Result<Value, ApiError> {
        self.write(operation, &Message { path: path.to_owned(), body: Some(body), revision: None }).await
    }

    /// Deletes; a missing object counts as deleted.
    pub(crate) async fn delete(&self, operation: Operation, path: String) -> Result<(), ApiError> {
        let message = Message { path, ..Message::default() };
        let send = || async { known(operation.of(), self.session.send(operation, &message).await).map(drop) };
        self.caller.call(operation, send).await
    }
}

/// The response; `None` if the service itself reports that the object does not exist. A 404 without the body of the
/// service comes from a proxy or gateway, and proves nothing.
fn known(service: Service, answer: Result<Answer, Failure>) -> Result<Option<Answer>, Failure> {
    match answer {
        Err(failure) if failure.status == Some(404) && failure.cause == Cause::Answered => {
            match is_not_found_of(service, &failure.code) {
                true => Ok(None),
                false => Err(Failure { cause: Cause::NoAnswer, ..failure }),
            }
        }
        answer => answer.map(Some),
    }
}

/// Whether the code of a 404 is in the form of the service.
fn is_not_found_of(service: Service, code: &str) -> bool {
    match service {
        Service::Compute | Service::BlockStorage => code == "itemNotFound",
        // NeutronError: PortNotFound, HTTPNotFound.
        Service::Network => code.ends_with("NotFound") && code != "itemNotFound",
        Service::LoadBalancer => code == operation::FAULT,
        Service::KeyManager | Service::Identity => code == "Not Found",
    }
}

/// Whether the service itself reports that an object does not exist.
pub(crate) fn is_gone(error: &ApiError) -> bool {
    error.status == Some(404) && is_not_found_of(error.operation.of(), &error.code)
}

/// Whether a text can be the ID of an object: it is safe in a URL.
pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The objects visible to the project: none if the service refuses the read. A missing answer is still an error.
pub(crate) async fn seen<T: Default>(read: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    match read.await {
        Err(error) if error.kind == ErrorKind::Refused => {
            tracing::error!(%error, "treated as not visible");
            Ok(T::default())
        }
        answer => answer,
    }
}

/// Whether a call is refused, by the service or by what is in front of it. A failed login is no refusal of the call.
pub(crate) fn is_refused(error: &ApiError) -> bool {
    let is_answer = matches!(error.kind, ErrorKind::Refused | ErrorKind::Credentials | ErrorKind::NoAnswer);
    is_answer && matches!(error.status, Some(400..=499 | 501))
}

/// Whether the object is busy with an earlier change.
pub(crate) fn is_busy(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.is(&[operation::IMMUTABLE])
}

/// Whether a quota is exhausted.
pub(crate) fn is_quota(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Quota
}

/// The marker of the link to the next page, if there is one. A link without a marker would make the list incomplete.
fn next_page(links: Option<&Value>) -> Option<Result<String, Failure>> {
    let link = links?.as_array()?.iter().find(|link| link.get("rel").is_some_and(|rel| rel == "next"))?;
    let query = link.get("href").and_then(Value::as_str).and_then(|href| href.split_once('?'));
    let marker = query.and_then(|(_, query)| query.split('&').find_map(|pair| pair.strip_prefix("marker=")));
    Some(marker.map(str::to_owned).ok_or_else(|| unreadable("a link to the next page has no marker".to_owned())))
}

/// The value under a key of a response.
fn below<T: DeserializeOwned>(answer: &mut Value, key: &str) -> Result<T, Failure> {
    let Some(inner) = answer.get_mut(key).map(Value::take) else {
        return Err(unreadable(format!("the answer has no {key:?}")));
    };
    serde_json::from_value(inner).map_err(|error| {
        let text = error.to_string();
        // The rest of the text may quote a value.
        unreadable(format!("{key}: {}", text.split(['"', '`']).next().unwrap_or_default()))
    })
}

/// Whether an object of a response has its ID. Extensions have an alias in place of one.
fn is_identified(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    !text("id").is_empty() || !text("alias").is_empty()
}

fn unreadable(message: String) -> Failure {
    Failure { message, cause: Cause::NoAnswer, ..Failure::default() }
}

#[cfg(test)]
mod tests {
    use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
    use serde_json::json;

    use super::*;
    use crate::world::World;

    #[tokio::test]
    async fn a_list_that_is_null_is_empty_and_one_that_is_missing_is_no_answer() {
        let world = World::with(1).await;
        for (body, is_empty) in [(r#"{"servers": null}"#, true), ("{}", false), (r#"{"servers": {}}"#, false)] {
            let fault = Fault::Status { status: 200, body: body.to_owned() };
            world.cloud.fault(Rule::every(fault).on("compute", "server_list"));
            let servers = world.client.servers().await.ok();
            assert_eq!(servers, is_empty.then(Vec::new), "{body}");
            world.cloud.faults(Faults::clear);
        }
    }

    #[tokio::test]
    async fn a_refusal_that_may_be_a_short_failure_is_soon_forgotten() {
        let world = World::with(0).await;
        for (call, kind, kept) in [
            ("gateway", ErrorKind::NoAnswer, UNANSWERED),
            ("service", ErrorKind::Refused, REFUSED),
            ("role", ErrorKind::Credentials, REFUSED),
        ] {
            let error = ApiError::of_kind(operation::MONITOR_LIST, kind, "as the test says");
            let refused = async { Err(ApiError { status: Some(404), ..error }) };
            assert_eq!(world.client.optional::<()>(call, refused).await.unwrap(), None);
            for (passed, answer) in [(kept - UNANSWERED / 2, None), (UNANSWERED / 2, Some(()))] {
                tokio::time::pause();
                tokio::time::advance(passed).await;
                tokio::time::resume();
                assert_eq!(world.client.optional(call, async { Ok(()) }).await.unwrap(), answer, "{call}");
            }
        }
    }

    #[test]
    fn an_object_without_an_id_is_no_answer() {
        assert!(is_identified(&json!({"id": "a"})) && is_identified(&json!({"alias": "router"})));
        for none in [json!({}), json!({"id": ""}), json!({"id": null}), Value::Null, json!([]), json!("a")] {
            assert!(!is_identified(&none), "{none}");
        }
    }

    #[test]
    fn a_next_page_is_asked_for_by_its_marker_or_the_list_is_not_complete() {
        let link = |rel: &str, href: &str| json!([{"rel": "previous", "href": "x"}, {"rel": rel, "href": href}]);
        let next = |links: &Value| next_page(Some(links)).map(|marker| marker.map_err(|failure| failure.cause));
        assert_eq!(next(&link("next", "http://inside/v2.0/ports?limit=2&marker=b")), Some(Ok("b".to_owned())));
        assert_eq!(next(&link("next", "http://inside/v2.0/ports?page=2")), Some(Err(Cause::NoAnswer)));
        assert_eq!(next(&link("self", "http://inside/v2.0/ports?marker=b")), None);
        assert!(next_page(None).is_none() && next_page(Some(&Value::Null)).is_none());
    }
}
