//! Requests with a token.

use std::time::Duration;

use bytes::Bytes;
use ccm_kit::call::Failure;
use ccm_kit::http::{Answer, Client};
use http::{Method, Request, header};
use serde_json::Value;

use super::credentials::Tokens;
use super::failure::malformed;

/// The time limit of a wait call, which is then considered lost. The API answers after two minutes at most.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(150);

/// A request to send.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    /// Including the query.
    pub(crate) url: String,
    pub(crate) body: Option<Value>,
    /// Whether the answer may take minutes.
    pub(crate) is_long: bool,
}

/// Sends requests with a token. One per process.
#[derive(Debug)]
pub(crate) struct Session {
    http: Client,
    /// For responses that take minutes.
    patient: Client,
    tokens: Tokens,
    /// The base of the Resource Manager API, ending with a slash.
    pub(super) resource_manager: String,
}

impl Session {
    /// For the Compute API, and the Resource Manager API at this base.
    pub(crate) fn new(http: Client, tokens: Tokens, resource_manager: String) -> Self {
        Self { patient: http.patient(LONGEST_WAIT), http, tokens, resource_manager }
    }

    /// Sends a request; after 401 once more, with a new token.
    pub(crate) async fn send(&self, message: &Message) -> Result<Answer, Failure> {
        let token = self.tokens.get().await?;
        match self.exchange(message, token.value.header()).await {
            Err(failure) if failure.status == Some(401) => {
                let token = self.tokens.after(&token).await?;
                self.exchange(message, token.value.header()).await
            }
            answer => answer,
        }
    }

    async fn exchange(&self, message: &Message, token: header::HeaderValue) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(&message.method).uri(&message.url);
        if let Some(headers) = request.headers_mut() {
            headers.insert(header::AUTHORIZATION, token);
            headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
            if message.body.is_some() {
                headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            }
        }
        let body = message.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(body).map_err(|_| malformed(format!("{:?} is not a URL", message.url)))?;
        let http = if message.is_long { &self.patient } else { &self.http };
        http.send(request).await
    }
}
