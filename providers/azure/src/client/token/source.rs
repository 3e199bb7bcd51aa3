//! The sources of tokens: Entra ID, AD FS, and the managed identity of the machine.
//!
//! Files are read for each token, so that a renewed certificate or federated token needs no restart.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ccm_kit::call::Failure;
use ccm_kit::gcfg::Secret;
use ccm_kit::http::{Client, Query, escaped};
use http::{Request, header};
use serde_json::Value;

use super::certificate::Certificate;
use super::{Source, Token, refused};
use crate::client::failure::{malformed, unreadable};

const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The version of the token endpoint of managed identities.
const METADATA_VERSION: &str = "2018-02-01";
/// Used if an answer does not say how long its token is valid.
const LIFETIME: Duration = Duration::from_secs(600);

/// How an application proves itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    Secret(Secret),
    /// The path of a PEM file with the key and the certificate.
    Certificate(String),
    /// The path of a file with a token of another issuer.
    Federated(String),
}

/// An application of Entra ID or AD FS.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) http: Client,
    /// The token endpoint.
    pub(crate) url: String,
    pub(crate) client: String,
    pub(crate) proof: Proof,
    /// What the token is for: a scope, or a resource at AD FS.
    pub(crate) audience: Audience,
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audience {
    /// `https://management.core.windows.net/.default`
    Scope(String),
    Resource(String),
}

#[async_trait]
impl Source for Application {
    async fn fetch(&self) -> Result<Token, Failure> {
        let (key, value) = match &self.audience {
            Audience::Scope(scope) => ("scope", scope),
            Audience::Resource(resource) => ("resource", resource),
        };
        let mut fields = vec![("grant_type", "client_credentials"), ("client_id", &*self.client), (key, &**value)];
        let assertion = match &self.proof {
            Proof::Secret(secret) => {
                fields.push(("client_secret", &*secret.0));
                None
            }
            Proof::Certificate(path) => {
                let certificate = Certificate::parse(&read("aadClientCertPath", path).await?);
                let signed = certificate.and_then(|certificate| certificate.assertion(&self.client, &self.url));
                Some(signed.map_err(|why| refused(format!("aadClientCertPath {path:?}: {why}")))?)
            }
            Proof::Federated(path) => {
                let token = read("aadFederatedTokenFile", path).await?;
                let token = String::from_utf8(token.to_vec()).unwrap_or_default().trim().to_owned();
                if token.is_empty() {
                    return Err(refused(format!("aadFederatedTokenFile {path:?}: no token in the file")));
                }
                Some(token)
            }
        };
        if let Some(assertion) = &assertion {
            fields.extend([("client_assertion_type", ASSERTION), ("client_assertion", &**assertion)]);
        }
        let form: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        let request = Request::post(&self.url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.header(header::ACCEPT, "application/json").body(Bytes::from(form.join("&")));
        let request = request.map_err(|_| malformed(format!("{:?} is not a URL", self.url)))?;
        token(&self.http.send(request).await?.json()?)
    }
}

async fn read(key: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let owned = path.to_owned();
    let content = tokio::task::spawn_blocking(move || std::fs::read(owned)).await;
    let content = content.map_err(|_| refused(format!("{key} {path:?}: the reading was broken off")))?;
    content.map_err(|error| refused(format!("{key} {path:?}: {error}")))
}

/// The managed identity of the machine.
#[derive(Debug)]
pub(crate) struct Managed {
    /// Never through a proxy.
    pub(crate) http: Client,
    /// `http://169.254.169.254`
    pub(crate) base: String,
    /// Empty: the identity that the system assigned. The client ID or the ID of a user-assigned identity.
    pub(crate) identity: String,
    pub(crate) resource: String,
}

#[async_trait]
impl Source for Managed {
    async fn fetch(&self) -> Result<Token, Failure> {
        let query = Query::default().with("api-version", METADATA_VERSION).with("resource", &self.resource);
        let is_id = self.identity.to_ascii_lowercase().contains("/subscriptions/");
        let query = match (self.identity.is_empty(), is_id) {
            (true, _) => query,
            (false, true) => query.with("msi_res_id", &self.identity),
            (false, false) => query.with("client_id", &self.identity),
        };
        let url = format!("{}/metadata/identity/oauth2/token{query}", self.base);
        let request = Request::get(&url).header("metadata", "true").body(Bytes::new());
        let request = request.map_err(|_| malformed(format!("{:?} is not a URL", self.base)))?;
        token(&self.http.send(request).await?.json()?)
    }
}

/// The token of an answer. The lifetime is a number at Entra ID, and a text at the machine.
fn token(answer: &Value) -> Result<Token, Failure> {
    let text = answer.get("access_token").and_then(Value::as_str);
    let text = text.ok_or_else(|| unreadable("the answer of the token endpoint has no access_token"))?;
    let lifetime = answer.get("expires_in");
    let seconds = lifetime.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    Token::new(text, seconds.map_or(LIFETIME, Duration::from_secs))
}
