//! What a call of [`LoadBalancer::reconcile`](crate::LoadBalancer::reconcile) asks of its caller: whether a write may
//! begin, and that a wait for the cloud occupies no worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};

use crate::error::ProviderError;
use crate::service::{LoadBalancerStatus, Service};

/// The delay in the error of work that ended because the process stops.
const NEXT_LEADER: Duration = Duration::from_secs(1);

/// The caller's side of a [`Scope`].
#[async_trait]
pub trait Turn: Send + Sync {
    /// Whether a write may begin: this process leads, and no shutdown has begun.
    fn may_write(&self) -> bool;
    /// Whether a write may begin that completes earlier ones of the call: this process leads, also while it stops.
    fn may_complete(&self) -> bool {
        self.may_write()
    }
    /// Completes when no write may begin any more.
    async fn ended(&self);
    /// The work waits for the cloud, in one more place.
    fn wait_begins(&self);
    /// The wait has ended or was dropped.
    fn wait_ends(&self);
    /// Completes when the work may go on.
    async fn resumed(&self);
    /// Whether work on other objects waits for the end of this one.
    fn is_waited_for(&self) -> bool {
        false
    }
}

/// Adds finalizers to a Service: see [`Scope::begins`].
#[async_trait]
pub trait Finalizers: Send + Sync {
    /// Adds these finalizers.
    async fn add(&self, service: &Service, names: &[&'static str]) -> Result<(), ProviderError>;
}

/// Receives answers for single items: see [`Scope::answer`].
type Answers = dyn Fn(usize, &Result<(), ProviderError>) + Send + Sync;

/// Receives statuses of single Services: see [`Scope::publish`].
type Statuses = dyn Fn(usize, LoadBalancerStatus) + Send + Sync;

/// The scope of one call. The default one is that of tools and tests: nothing limits the call.
#[derive(Clone, Default)]
pub struct Scope {
    turn: Option<Arc<dyn Turn>>,
    finalizers: Option<Arc<dyn Finalizers>>,
    answers: Option<Arc<Answers>>,
    statuses: Option<Arc<Statuses>>,
    completes: bool,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("may_write", &self.may_write().is_ok()).finish()
    }
}

impl Scope {
    /// The scope of a call from this turn.
    pub fn new(turn: Arc<dyn Turn>) -> Self {
        Self { turn: Some(turn), ..Self::default() }
    }

    /// The scope with the caller's way to add finalizers.
    #[must_use]
    pub fn with_finalizers(self, finalizers: Arc<dyn Finalizers>) -> Self {
        Self { finalizers: Some(finalizers), ..self }
    }

    /// The scope with the receiver of early answers.
    #[must_use]
    pub fn with_answers(self, receive: impl Fn(usize, &Result<(), ProviderError>) + Send + Sync + 'static) -> Self {
        Self { answers: Some(Arc::new(receive)), ..self }
    }

    /// The scope with the receiver of early statuses.
    #[must_use]
    pub fn with_statuses(self, receive: impl Fn(usize, LoadBalancerStatus) + Send + Sync + 'static) -> Self {
        Self { statuses: Some(Arc::new(receive)), ..self }
    }

    /// The scope for writes that complete earlier ones of the call, such as the replacement of what was deleted: the shutdown
    /// waits for them. It limits the time of all work in flight.
    #[must_use]
    pub fn completing(&self) -> Self {
        Self { completes: true, ..self.clone() }
    }

    /// Returns the answer for the item at this place early, so that it need not wait for those of others. The call still returns
    /// all answers.
    pub fn answer(&self, place: usize, answer: &Result<(), ProviderError>) {
        if let Some(receive) = &self.answers {
            receive(place, answer);
        }
    }

    /// Returns the status of the Service at this place early: its load balancer is complete, and the call goes on for
    /// others. The call still returns all answers.
    pub fn publish(&self, place: usize, status: LoadBalancerStatus) {
        if let Some(receive) = &self.statuses {
            receive(place, status);
        }
    }

    /// Adds finalizers to a Service before the first write for it: see
    /// [`LoadBalancer::adds_finalizers`](crate::LoadBalancer::adds_finalizers).
    ///
    /// # Errors
    ///
    /// They could not be added, so nothing may be written for the Service.
    pub async fn begins(&self, service: &Service, names: &[&'static str]) -> Result<(), ProviderError> {
        match &self.finalizers {
            Some(finalizers) if !names.is_empty() => finalizers.add(service, names).await,
            _ => Ok(()),
        }
    }

    /// Succeeds if a write may begin now. Ask before each write: a shutdown begins at any time.
    ///
    /// # Errors
    ///
    /// The process stops, or no longer leads. The work is left to the next leader.
    pub fn may_write(&self) -> Result<(), ProviderError> {
        let may_write = |turn: &Arc<dyn Turn>| if self.completes { turn.may_complete() } else { turn.may_write() };
        if self.turn.as_ref().is_none_or(may_write) { Ok(()) } else { Err(stopping()) }
    }

    /// Whether work on other objects waits for the end of the call: it should not wait for long.
    pub fn is_waited_for(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_waited_for())
    }

    /// Waits for the cloud without occupying a worker. A wait only reads, so a shutdown ends it, unless it is
    /// [completing](Self::completing).
    ///
    /// # Errors
    ///
    /// The process stops, or no longer leads.
    pub async fn waiting<T>(&self, wait: impl Future<Output = T> + Send) -> Result<T, ProviderError> {
        let Some(turn) = &self.turn else { return Ok(wait.await) };
        let waiting = Waiting::new(&**turn);
        let ended = async {
            match self.completes {
                true => std::future::pending().await,
                false => turn.ended().await,
            }
        };
        let ended = match select(std::pin::pin!(wait), std::pin::pin!(ended)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        };
        drop(waiting);
        let value = ended.ok_or_else(stopping)?;
        turn.resumed().await;
        Ok(value)
    }
}

fn stopping() -> ProviderError {
    ProviderError::in_progress("the process stops; the next leader continues", NEXT_LEADER)
}

/// Ends the wait also if its future is dropped.
struct Waiting<'a>(&'a dyn Turn);

impl<'a> Waiting<'a> {
    fn new(turn: &'a dyn Turn) -> Self {
        turn.wait_begins();
        Self(turn)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.wait_ends();
    }
}
