//! Tokens from a configured URL: `token-url` and `token-body`.
//!
//! Upstream: `token_source.go` of cloud-provider-gcp.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ccm_kit::call::Failure;
use ccm_kit::http::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Source, Token, Tokens, post_json};
use crate::client::metrics::Metrics;

/// One request per interval, after a burst at the start.
const INTERVAL: Duration = Duration::from_secs(20);
const BURST: u32 = 3;

/// A URL that issues tokens to holders of the instance's token.
#[derive(Debug)]
pub(crate) struct Alternate {
    url: String,
    body: Bytes,
    http: Client,
    instance: Tokens,
    metrics: Metrics,
    /// The time of the next request after the burst.
    pace: Mutex<Option<Instant>>,
}

impl Alternate {
    pub(crate) fn new(url: String, body: String, http: Client, instance: Tokens, metrics: Metrics) -> Self {
        Self { url, body: body.into(), http, instance, metrics, pace: Mutex::default() }
    }

    /// Reserves the next request, and returns its time.
    pub(super) fn turn(&self) -> Instant {
        let now = Instant::now();
        let mut pace = self.pace.lock();
        let full = now.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(now);
        let turn = pace.map_or(full, |next| next.max(full));
        *pace = Some(turn + INTERVAL);
        turn.max(now)
    }

    async fn asked(&self) -> Result<Token, Failure> {
        tokio::time::sleep_until(self.turn()).await;
        let token = self.instance.get().await?;
        match self.request(&token.value).await {
            Err(failure) if failure.status == Some(401) => {
                self.request(&self.instance.after(&token).await?.value).await
            }
            answer => answer,
        }
    }

    async fn request(&self, token: &Token) -> Result<Token, Failure> {
        post_json(&self.http, &self.url, "token-url", token, self.body.clone()).await
    }
}

#[async_trait]
impl Source for Alternate {
    async fn fetch(&self) -> Result<Token, Failure> {
        self.metrics.tokens.inc();
        let token = self.asked().await;
        if token.is_err() {
            self.metrics.failed_tokens.inc();
        }
        token
    }
}
