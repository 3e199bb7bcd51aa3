//! Requests with a token.

use bytes::Bytes;
use ccm_kit::call::Failure;
use ccm_kit::http::{Answer, Client};
use http::{HeaderValue, Method, Request, Uri, header};
use serde_json::Value;

use super::failure::malformed;
use super::id::same;
use super::operation::{NIC, Operation};
use super::token::Tokens;

/// Holds tokens of other tenants.
const AUXILIARY: &str = "x-ms-authorization-auxiliary";
const REQUEST_ID: &str = "x-ms-client-request-id";

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) method: Method,
    /// With the query.
    pub(super) url: String,
    pub(super) body: Option<Value>,
    /// The value of `If-Match`.
    pub(super) etag: Option<String>,
}

/// The identities of the program.
#[derive(Debug, Clone)]
pub(crate) struct Identities {
    pub(crate) compute: Tokens,
    /// If the network belongs to another tenant.
    pub(crate) network: Option<NetworkIdentity>,
}

impl Identities {
    /// The tokens of all tenants.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Tokens> {
        std::iter::once(&self.compute).chain(self.network.as_ref().map(|network| &network.tokens))
    }
}

/// The identity for the network. Requests for machines and their interfaces have its token too, because they refer to
/// load balancers.
#[derive(Debug, Clone)]
pub(crate) struct NetworkIdentity {
    pub(crate) tokens: Tokens,
    /// The subscription of the network; `None`: that of the machines.
    pub(crate) subscription: Option<String>,
}

impl NetworkIdentity {
    /// Whether an object belongs to the network: its subscription says it, else its kind.
    fn has(&self, operation: Operation, url: &str) -> bool {
        match (&self.subscription, subscription_of(url)) {
            (Some(own), Some(other)) => same(own, &other),
            _ => operation.resource.is_network() && *operation.resource != NIC,
        }
    }
}

/// Sends requests to one endpoint.
#[derive(Debug)]
pub(crate) struct Session {
    http: Client,
    base: String,
    is_stack: bool,
    identities: Identities,
}

impl Session {
    /// For the Resource Manager at this URL.
    pub(crate) fn new(http: Client, base: &str, is_stack: bool, identities: Identities) -> Self {
        Self { http, base: base.trim_end_matches('/').to_owned(), is_stack, identities }
    }

    /// The URL of the endpoint, without a slash at its end.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Whether the cloud is an Azure Stack.
    pub(super) fn is_stack(&self) -> bool {
        self.is_stack
    }

    /// Sends a request; after 401 once more, with a new token.
    pub(super) async fn send(&self, operation: Operation, message: &Message) -> Result<Answer, Failure> {
        if !is_of(&self.base, &message.url) {
            return Err(malformed("a link leads to another host than that of the Resource Manager".to_owned()));
        }
        let Identities { compute, network } = &self.identities;
        let (tokens, auxiliary) = match network {
            Some(network) if network.has(operation, &message.url) => (&network.tokens, None),
            Some(network) => (compute, Some(network.tokens.get().await?.value.header())),
            None => (compute, None),
        };
        let token = tokens.get().await?;
        match self.exchange(message, token.value.header(), auxiliary.clone()).await {
            Err(failure) if failure.status == Some(401) => {
                let token = tokens.after(&token).await?;
                self.exchange(message, token.value.header(), auxiliary).await
            }
            answer => answer,
        }
    }

    async fn exchange(
        &self,
        message: &Message,
        token: HeaderValue,
        auxiliary: Option<HeaderValue>,
    ) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(&message.method).uri(&message.url);
        request = request.header(REQUEST_ID, uuid::Uuid::new_v4().to_string());
        if let Some(etag) = &message.etag {
            request = request.header(header::IF_MATCH, etag);
        }
        if let Some(headers) = request.headers_mut() {
            headers.insert(header::AUTHORIZATION, token);
            headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
            if message.body.is_some() {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            if let Some(token) = auxiliary {
                headers.insert(AUXILIARY, token);
            }
        }
        let body = message.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(body).map_err(|_| malformed(format!("{:?} is not a URL", message.url)))?;
        self.http.send(request).await
    }
}

/// The subscription in a URL, in lower case.
fn subscription_of(url: &str) -> Option<String> {
    let url = url.to_ascii_lowercase();
    let (_, rest) = url.split_once("/subscriptions/")?;
    rest.split(['/', '?']).next().map(str::to_owned)
}

/// Whether a URL belongs to the endpoint: tokens are for no other host. Links may name a region's host.
fn is_of(base: &str, url: &str) -> bool {
    let (Ok(base), Ok(url)) = (base.parse::<Uri>(), url.parse::<Uri>()) else { return false };
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    let (Some(own), Some(host)) = (base.host(), url.host()) else { return false };
    let (own, host) = (own.to_ascii_lowercase(), host.to_ascii_lowercase());
    let is_host = host == own || host.ends_with(&format!(".{own}"));
    is_host && port(&base) == port(&url) && base.scheme_str() == url.scheme_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_to_the_resource_manager_alone() {
        let base = "https://management.azure.com";
        for (url, expected) in [
            ("https://management.azure.com/subscriptions/s?x=1", true),
            ("https://MANAGEMENT.azure.com:443/subscriptions", true),
            ("https://westus.management.azure.com/operations/1", true),
            ("http://management.azure.com/", false),
            ("https://management.azure.com:8443/", false),
            ("https://evilmanagement.azure.com/", false),
            ("https://management.azure.com.evil.example/", false),
            ("/subscriptions", false),
        ] {
            assert_eq!(is_of(base, url), expected, "{url}");
        }
        assert!(is_of("http://127.0.0.1:8080", "http://127.0.0.1:8080/x"));
    }
}
