//! Reviews of clients by the API server: TokenReview and SubjectAccessReview.

use std::sync::Arc;
use std::time::Duration;

use ccm_runtime::client::{ApiError, Call};
use ccm_runtime::{Client, Metrics};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::AccessMetrics;

/// The time limit for all attempts of one review.
const LIMIT: Duration = Duration::from_secs(10);
/// Delays between attempts: 500 ms, each 1.5 times the previous one, plus up to 20 % jitter.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
const TRIES: u32 = 5;
/// Maximum concurrent reviews; others wait. A flood of tokens must not flood the API server.
const AT_ONCE: usize = 32;

/// Sends one kind of review.
#[derive(Clone)]
pub(super) struct Reviewer {
    client: Client,
    path: &'static str,
    slots: Arc<Semaphore>,
    count: fn(&AccessMetrics, &str, Duration),
    metrics: Metrics,
}

impl Reviewer {
    pub(super) fn tokens(client: Client, metrics: &Metrics) -> Self {
        Self::new(client, "/apis/authentication.k8s.io/v1/tokenreviews", AccessMetrics::token_review, metrics)
    }

    pub(super) fn access(client: Client, metrics: &Metrics) -> Self {
        Self::new(client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", AccessMetrics::access_review, metrics)
    }

    fn new(client: Client, path: &'static str, count: fn(&AccessMetrics, &str, Duration), metrics: &Metrics) -> Self {
        Self { client, path, slots: Arc::new(Semaphore::new(AT_ONCE)), count, metrics: metrics.clone() }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Posts a review and returns the `status` of the response.
    ///
    /// # Errors
    ///
    /// The API server rejected it, or no attempt got a response within [`LIMIT`].
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: &Value) -> Result<T, String> {
        let asked = tokio::time::timeout(LIMIT, async {
            let _slot = self.slots.acquire().await.map_err(|error| error.to_string())?;
            self.with_retries(question).await.map_err(|error| error.to_string())
        });
        asked.await.unwrap_or_else(|_| Err("the API server did not answer in time".into()))
    }

    async fn with_retries<T: DeserializeOwned>(&self, question: &Value) -> Result<T, ApiError> {
        let call = Call::json(Method::POST, self.path, question).within(LIMIT);
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let answer: Result<Reviewed<T>, ApiError> = self.client.read(&call).await;
            self.observe(&answer, began.elapsed());
            tries += 1;
            match answer {
                Ok(reviewed) => return Ok(reviewed.status),
                Err(error) if tries == TRIES || !is_passing(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, path = self.path, "asked again");
                    let pause = wait.mul_f64(1.0 + JITTER * rand::random::<f64>());
                    tokio::time::sleep(error.retry_after().unwrap_or_default().max(pause)).await;
                    wait = wait.mul_f64(FACTOR);
                }
            }
        }
    }

    fn observe<T>(&self, answer: &Result<T, ApiError>, took: Duration) {
        let code = match answer {
            // Both reviews are create calls.
            Ok(_) => "201".to_owned(),
            Err(ApiError::Status { code, .. }) => code.to_string(),
            Err(_) => "<error>".to_owned(),
        };
        (self.count)(&AccessMetrics::of(&self.metrics), &code, took);
    }
}

#[derive(serde::Deserialize)]
struct Reviewed<T> {
    status: T,
}

/// As upstream's `DefaultShouldRetry`. A refused connection is not retried: clients should not wait for seconds.
fn is_passing(error: &ApiError) -> bool {
    match error {
        ApiError::Status { code, .. } => matches!(code, 429 | 500 | 504) || error.retry_after().is_some(),
        ApiError::Transport(text) => !text.to_lowercase().contains("refused"),
        ApiError::Deadline(_) | ApiError::Paced | ApiError::Decode(_) => false,
    }
}
