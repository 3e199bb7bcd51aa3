//! The calls of Azure Resource Manager.
//!
//! Objects are JSON: what the program does not know stays in an object that is read and written back. A list is complete
//! or an error. An object is missing only if Azure says so about the object or what contains it.

pub(crate) mod failure;
pub(crate) mod id;
pub(crate) mod limit;
mod looks;
pub(crate) mod metrics;
pub(crate) mod operation;
pub(crate) mod pending;
mod remaining;
pub(crate) mod session;
pub(crate) mod token;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ccm_kit::call::{self, CallError, Caller, ErrorKind, Failure, Meaning};
use ccm_kit::http::{Answer, Query, escaped, requested_delay};
use ccm_provider::LeaderToken;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use self::failure::unreadable;
use self::id::{ArmId, same};
use self::limit::{RateLimits, Turn};
use self::looks::Looks;
use self::metrics::{Metrics, Place};
use self::operation::{ABSENT_CODES, COMPUTE_OPERATION_GET, GROUP_ABSENT, NETWORK_OPERATION_GET, Operation};
pub(crate) use self::pending::{Pending, State};
use self::pending::{Watch, of_object, of_operation, provisioning_state};
use self::remaining::Remaining;
use self::session::{Message, Session};

/// A failed call.
pub(crate) type ApiError = CallError<Operation>;

/// The time limit of a request with all its attempts.
const DEADLINE: Duration = Duration::from_secs(90);
/// The pauses between two looks at an operation.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause that the answer for an operation can ask for.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) operation: Operation,
    pub(crate) id: ArmId,
    pub(crate) body: Option<Value>,
    /// Sent as `If-Match`: the write is refused if the object has another one.
    pub(crate) etag: Option<String>,
}

impl Write {
    /// Creates or replaces an object. The ETag of the body guards it.
    pub(crate) fn put(operation: Operation, id: ArmId, body: Value) -> Self {
        let etag = body.get("etag").and_then(Value::as_str).map(str::to_owned);
        Self { operation, id, body: Some(body), etag }
    }

    /// Deletes an object, or starts an action on it.
    pub(crate) fn bare(operation: Operation, id: ArmId) -> Self {
        Self { operation, id, body: None, etag: None }
    }

    /// The write without a guard, for objects that others change all the time.
    #[must_use]
    pub(crate) fn unguarded(self) -> Self {
        Self { etag: None, ..self }
    }
}

/// `load_balancers_create_or_update /subscriptions/…`
impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", call::Operation::name(&self.operation), self.id)
    }
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sent {
    /// It is done: the object, or null.
    Done(Value),
    /// Its operation goes on, whatever state the object of the answer has.
    Accepted(Pending, Value),
}

/// A look at the object of a write that goes on.
#[derive(Debug)]
pub(crate) enum Look {
    Running,
    /// The object is as the write has made it.
    Succeeded(Value),
    /// Only the operation says what has become of it.
    Unclear,
}

/// Subscriptions and names of resource groups, lower-cased.
pub(crate) type Groups = BTreeSet<(String, String)>;

/// The API. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    session: Session,
    /// The template of the callers of subscriptions.
    caller: Caller<Operation>,
    callers: Mutex<BTreeMap<String, Caller<Operation>>>,
    limits: RateLimits,
    metrics: Metrics,
    remaining: Remaining,
    looks: Looks,
    groups: Groups,
    /// Why operations cannot be read.
    unreadable: OnceLock<ApiError>,
    /// The shortest pause between looks at an operation that is honored.
    least_delay: Duration,
}

impl Client {
    /// `groups`: those of the cluster. They exist, whatever Azure says: Resource Manager has denied them by mistake.
    /// `least_delay`: the shortest pause between two looks at an operation that its answers can ask for.
    pub(crate) fn new(
        session: Session,
        caller: Caller<Operation>,
        limits: RateLimits,
        metrics: Metrics,
        groups: Groups,
        least_delay: Duration,
    ) -> Self {
        let (callers, looks, remaining, unreadable) = Default::default();
        let caller = caller.deadline(DEADLINE);
        Self(Arc::new(Inner {
            session,
            caller,
            callers,
            limits,
            metrics,
            remaining,
            looks,
            groups,
            unreadable,
            least_delay,
        }))
    }

    /// Allows writes while this process leads.
    pub(crate) fn lend(&self, leader: Arc<dyn LeaderToken>) {
        self.0.caller.lend(leader);
    }

    /// The metrics of calls and reconciles.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Reads one object; `None` if it does not exist.
    pub(crate) async fn get(&self, operation: Operation, id: &ArmId) -> Result<Option<Value>, ApiError> {
        self.get_with(operation, id, Query::default()).await
    }

    /// Reads one object with more parameters: `$expand`.
    pub(crate) async fn get_with(
        &self,
        operation: Operation,
        id: &ArmId,
        query: Query,
    ) -> Result<Option<Value>, ApiError> {
        let place = Place { group: id.group(), subscription: id.subscription() };
        present(self.read(operation, place, id.as_str(), query, object).await)
    }

    /// Reads a document that is no object: `/subscriptions/…/providers/Microsoft.Compute`.
    pub(crate) async fn document(
        &self,
        operation: Operation,
        subscription: &str,
        path: &str,
    ) -> Result<Value, ApiError> {
        let place = Place { group: "", subscription };
        self.read(operation, place, path, Query::default(), Ok).await.map_err(inconclusive)
    }

    async fn read(
        &self,
        operation: Operation,
        place: Place<'_>,
        path: &str,
        query: Query,
        check: fn(Value) -> Result<Value, Failure>,
    ) -> Result<Value, ApiError> {
        let message = self.message(operation, path, query);
        self.counted(operation, place, async {
            let send = || async { check(self.send(operation, place, &message).await?.json()?) };
            self.caller(place.subscription).call(operation, send).await
        })
        .await
    }

    /// Reads all objects of a kind in a resource group; `None` if the group does not exist. Those of the cluster do.
    /// `keep` returns what is kept of each, so that at most a page is in memory as a whole.
    pub(crate) async fn list<T>(
        &self,
        operation: Operation,
        subscription: &str,
        group: &str,
        query: Query,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ApiError> {
        let kind = operation.resource.kind;
        let path = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{kind}");
        let place = Place { group, subscription };
        let read = self.pages(operation, place, &path, query, keep).await;
        present(read.map_err(|error| self.without_mistake(place, error, is_absent)))
    }

    /// Reads all objects of a kind in a subscription; `keep` as in [`Client::list`].
    pub(crate) async fn list_all<T>(
        &self,
        operation: Operation,
        subscription: &str,
        query: Query,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ApiError> {
        let path = format!("/subscriptions/{subscription}/providers/{}", operation.resource.kind);
        present(self.pages(operation, Place { group: "", subscription }, &path, query, keep).await)
    }

    /// Reads all objects of a kind inside another one; `None` if that does not exist. `keep` as in [`Client::list`].
    pub(crate) async fn list_in<T>(
        &self,
        operation: Operation,
        parent: &ArmId,
        query: Query,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ApiError> {
        let path = format!("{parent}/{}", operation.resource.segment());
        let place = Place { group: parent.group(), subscription: parent.subscription() };
        present(self.pages(operation, place, &path, query, keep).await)
    }

    async fn pages<T>(
        &self,
        operation: Operation,
        place: Place<'_>,
        path: &str,
        query: Query,
        keep: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let first = self.message(operation, path, query);
        self.counted(operation, place, async {
            let send = |next: Option<String>| {
                let message = next.map_or_else(|| first.clone(), |url| Message { url, ..first.clone() });
                async move { page(self.send(operation, place, &message).await?.json()?) }
            };
            let take = |(objects, next): (Vec<Value>, _)| (objects.into_iter().filter_map(&keep).collect(), next);
            self.caller(place.subscription).pages(operation, send, take).await
        })
        .await
    }

    /// Sends a write. A deletion of what does not exist is done.
    pub(crate) async fn begin(&self, write: &Write) -> Result<Sent, ApiError> {
        let operation = write.operation;
        let path = match operation.verb {
            operation::Verb::Post(action) => format!("{}/{action}", write.id),
            _ => write.id.to_string(),
        };
        let message = Message {
            body: write.body.clone(),
            etag: write.etag.clone(),
            ..self.message(operation, &path, Query::default())
        };
        let place = Place { group: write.id.group(), subscription: write.id.subscription() };
        let sent = self.counted(operation, place, async {
            let send = || self.send(operation, place, &message);
            self.caller(place.subscription).call(operation, send).await
        });
        let answer = match sent.await {
            Err(error) if operation.is_deletion() && is_absent(&error) => return Ok(Sent::Done(Value::Null)),
            answer => answer?,
        };
        let request = call::Operation::name(&operation);
        if let Some(pending) = Pending::of(request, &write.id, operation.is_deletion(), &answer) {
            self.0.looks.begins(&pending, self.delay(&answer).unwrap_or_default());
            return Ok(Sent::Accepted(pending, answer.json().unwrap_or_default()));
        }
        let body = if answer.body.is_empty() { Ok(Value::Null) } else { answer.json() };
        let body: Value = body.map_err(|failure| ApiError::new(operation, failure))?;
        let is_empty = body.is_null() && operation.verb == operation::Verb::Put;
        if is_empty {
            return Err(ApiError::new(operation, unreadable("the answer has no body")));
        }
        Ok(Sent::Done(body))
    }

    /// Looks at the operation of a write. Until the pause that its last answer asked for is over, it goes on.
    pub(crate) async fn poll(&self, pending: &Pending) -> Result<State<ApiError>, ApiError> {
        if self.0.looks.is_early(pending) {
            return Ok(State::Running);
        }
        let Some(write) = Operation::named(&pending.request) else { return Ok(State::Done) };
        let state = match self.state(pending, write).await? {
            State::Running => State::Running,
            State::Done => State::Done,
            State::Failed(failure) => State::Failed(ApiError::new(write, failure)),
        };
        if let State::Failed(error) = &state {
            let place = Place { group: pending.id.group(), subscription: pending.id.subscription() };
            self.0.metrics.request(write, place, Some(error), Duration::ZERO);
        }
        if !matches!(state, State::Running) {
            self.0.looks.ended(pending);
        }
        Ok(state)
    }

    /// Reads the object of a write that goes on, as soon as [`Self::poll`] would read its operation. `is_end`: whether the
    /// object has what was written.
    pub(crate) async fn look(&self, pending: &Pending, is_end: impl Fn(&Value) -> bool) -> Result<Look, ApiError> {
        let looks = &self.0.looks;
        if looks.is_early(pending) {
            return Ok(Look::Running);
        }
        let Some(write) = Operation::named(&pending.request) else { return Ok(Look::Unclear) };
        let Some(object) = self.get(write.reading(), &pending.id).await? else { return Ok(Look::Unclear) };
        Ok(match provisioning_state(&object) {
            Some(state) if same(state, "Updating") => {
                looks.goes_on(pending, None);
                Look::Running
            }
            Some(state) if same(state, "Succeeded") && is_end(&object) => {
                looks.ended(pending);
                Look::Succeeded(object)
            }
            _ => Look::Unclear,
        })
    }

    async fn state(&self, pending: &Pending, write: Operation) -> Result<State<Failure>, ApiError> {
        let operation = if write.resource.is_network() { NETWORK_OPERATION_GET } else { COMPUTE_OPERATION_GET };
        let (Watch::Operation(url) | Watch::Location(url)) = &pending.watch else {
            return self.shown(pending, write).await;
        };
        let message = Message { url: url.clone(), ..self.message(operation, "", Query::default()) };
        let place = Place { group: pending.id.group(), subscription: pending.id.subscription() };
        let answer = self.counted(operation, place, async {
            let send = || self.send(operation, place, &message);
            self.caller(place.subscription).call(operation, send).await
        });
        let answer = match answer.await {
            // An operation that is not known any more has ended.
            Err(error) if error.kind == ErrorKind::Refused && error.meaning() == Meaning::NotFound => {
                return Ok(State::Done);
            }
            // Roles for the Go program lack the right: OpenShift's does. The object shows the end.
            Err(error)
                if is_forbidden(&error) && (matches!(pending.watch, Watch::Operation(_)) || is_of_look(&error)) =>
            {
                self.0.unreadable.get_or_init(|| error);
                return self.shown(pending, write).await;
            }
            // The result of the write itself.
            Err(error) if error.kind == ErrorKind::Refused && matches!(pending.watch, Watch::Location(_)) => {
                let (status, code, message) = (error.status, error.code, error.message);
                return Ok(State::Failed(Failure { status, code, message, ..Failure::default() }));
            }
            answer => answer?,
        };
        let state = match &pending.watch {
            Watch::Location(_) if answer.status == StatusCode::ACCEPTED.as_u16() => State::Running,
            Watch::Location(_) => State::Done,
            _ => {
                let state = answer.json().and_then(|body: Value| of_operation(&body));
                state.map_err(|failure| ApiError::new(operation, failure))?
            }
        };
        if matches!(state, State::Running) {
            self.0.looks.goes_on(pending, Some(self.delay(&answer).unwrap_or_default()));
        }
        Ok(state)
    }

    /// The state of an operation as its object shows it.
    async fn shown(&self, pending: &Pending, write: Operation) -> Result<State<Failure>, ApiError> {
        let object = self.get(write.reading(), &pending.id).await?;
        let state = of_object(object.as_ref(), write.is_deletion(), self.0.looks.is_new(pending));
        if matches!(state, State::Running) {
            self.0.looks.goes_on(pending, None);
        }
        Ok(state)
    }

    /// Why operations cannot be read, if it was tried.
    pub(crate) fn unreadable(&self) -> Option<&ApiError> {
        self.0.unreadable.get()
    }

    /// Sends a write and waits for its operation, at most for `limit`.
    pub(crate) async fn finish(&self, write: &Write, limit: Duration) -> Result<(), ApiError> {
        let Sent::Accepted(pending, _) = self.begin(write).await? else { return Ok(()) };
        let (deadline, mut pause) = (Instant::now() + limit, FIRST_PAUSE);
        loop {
            tokio::time::sleep(pause).await;
            match self.poll(&pending).await {
                Ok(State::Done) => return Ok(()),
                Ok(State::Failed(error)) => return Err(error),
                Err(error) if !is_passing(&error) => return Err(error),
                Ok(State::Running) | Err(_) => {}
            }
            if Instant::now() >= deadline {
                let why = "the operation has not ended in time and goes on";
                return Err(ApiError::of_kind(write.operation, ErrorKind::NoAnswer, why));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The pause that an answer asks for.
    fn delay(&self, answer: &Answer) -> Option<Duration> {
        let delay = requested_delay(&answer.headers)?;
        Some(delay.clamp(self.0.least_delay, LONGEST_DELAY.max(self.0.least_delay)))
    }

    fn message(&self, operation: Operation, path: &str, query: Query) -> Message {
        let query = query.with("api-version", operation.resource.version(self.0.session.is_stack()));
        let path: Vec<String> = path.split('/').map(escaped).collect();
        let url = format!("{}{}{query}", self.0.session.base(), path.join("/"));
        Message { method: operation.verb.method(), url, body: None, etag: None }
    }

    /// The caller of a subscription.
    fn caller(&self, subscription: &str) -> Caller<Operation> {
        let mut callers = self.0.callers.lock();
        let key = subscription.to_ascii_lowercase();
        callers.entry(key).or_insert_with(|| self.0.caller.for_another_account()).clone()
    }

    /// One attempt, unless the budget of Azure is nearly used up: then after its refill.
    async fn send(&self, operation: Operation, place: Place<'_>, message: &Message) -> Result<Answer, Failure> {
        let Inner { session, remaining, metrics, .. } = &*self.0;
        let kind = call::Operation::budget(&operation).name;
        let wait = remaining.wait(place.subscription, kind);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let answer = session.send(operation, message).await.inspect_err(|failure| {
            if matches!(ApiError::new(operation, failure.clone()).kind, ErrorKind::Throttled { .. }) {
                metrics.throttled(operation, place);
            }
        })?;
        for (budget, calls) in remaining.note(place.subscription, kind, &answer.headers) {
            metrics.remains(place.subscription, &budget, calls);
        }
        Ok(answer)
    }

    /// Waits for the configured rate limit, makes the calls of an operation, and records them.
    async fn counted<T>(
        &self,
        operation: Operation,
        place: Place<'_>,
        calls: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let limit = operation.resource.limit;
        let turn = self.0.limits.take(limit, call::Operation::is_mutating(&operation));
        if turn != Turn::Now {
            self.0.metrics.rate_limited(operation, place);
        }
        match turn {
            Turn::Now => {}
            Turn::After(wait) => tokio::time::sleep(wait).await,
            Turn::Never => {
                let why = format!("not sent: the calls of {limit}RateLimit (or cloudProviderRateLimit) are used up");
                return Err(ApiError::of_kind(operation, ErrorKind::Throttled { after: None }, why));
            }
        }
        let began = Instant::now();
        let is_of_group = |error: &ApiError| is_absent(error) && same(GROUP_ABSENT, &error.code);
        let result = calls.await.map_err(|error| self.without_mistake(place, error, is_of_group));
        let error = result.as_ref().err().filter(|error| !is_absent(error));
        self.0.metrics.request(operation, place, error, began.elapsed());
        result
    }

    /// The error of a call; nothing follows from one that `denies` a resource group of the cluster.
    fn without_mistake(&self, place: Place<'_>, error: ApiError, denies: impl Fn(&ApiError) -> bool) -> ApiError {
        let group = (place.subscription.to_ascii_lowercase(), place.group.to_ascii_lowercase());
        if !denies(&error) || !self.0.groups.contains(&group) {
            return error;
        }
        let message = format!(
            "the resource group {} of the cluster is not found: check resourceGroup, loadBalancerResourceGroup and the subscription",
            place.group
        );
        ApiError { kind: ErrorKind::Incomplete, message, ..error }
    }
}

/// An object that was read. What is none must not be the base of a write.
fn object(object: Value) -> Result<Value, Failure> {
    if object.get("id").is_some_and(Value::is_string) {
        Ok(object)
    } else {
        Err(unreadable("an object without \"id\""))
    }
}

/// The objects of a page and the URL of the next one.
fn page(mut page: Value) -> Result<(Vec<Value>, Option<String>), Failure> {
    let next = page.get("nextLink").and_then(Value::as_str).map(str::to_owned);
    match page.get_mut("value").map(Value::take) {
        Some(Value::Array(objects)) => Ok((objects, next)),
        _ => Err(unreadable("a list without \"value\"")),
    }
}

/// Whether an answer says that the object, or what contains it, does not exist.
fn is_absent(error: &ApiError) -> bool {
    let is_code = || ABSENT_CODES.iter().any(|code| same(code, &error.code));
    error.kind == ErrorKind::Refused && error.status == Some(StatusCode::NOT_FOUND.as_u16()) && is_code()
}

/// What was read; `None` if it does not exist.
#[expect(clippy::result_large_err, reason = "the error of the reads, as they return it")]
fn present<T>(read: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match read {
        Err(error) if is_absent(&error) => Ok(None),
        read => read.map(Some).map_err(inconclusive),
    }
}

/// Any other 404 says nothing about the object.
fn inconclusive(error: ApiError) -> ApiError {
    match error.kind == ErrorKind::Refused && error.meaning() == Meaning::NotFound {
        true => ApiError { kind: ErrorKind::Incomplete, ..error },
        false => error,
    }
}

/// Whether a failed look says nothing about the operation.
fn is_passing(error: &ApiError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NoAnswer | ErrorKind::NotSent | ErrorKind::Throttled { .. } | ErrorKind::Credentials
    )
}

/// Whether the request is one that Azure does not understand.
pub(crate) fn is_invalid(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Invalid
}

/// Whether what is missing is a permission to read operations, and not one of the write.
fn is_of_look(error: &ApiError) -> bool {
    <Operation as call::Operation>::lacking(&error.message).is_some_and(|action| action.contains("/locations/"))
}

/// Whether a permission is missing.
pub(crate) fn is_forbidden(error: &ApiError) -> bool {
    error.kind == ErrorKind::Refused && error.meaning() == Meaning::Denied
}
