//! Workload identity federation: a token of another issuer is exchanged for one of Google.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ccm_kit::call::Failure;
use ccm_kit::http::{Client, null};
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SCOPE, Token, post_form, post_json, refused};
use crate::client::failure::malformed;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The lifetime of an impersonated account's token, in seconds.
pub(super) const LIFETIME: u32 = 3600;

/// The holder of a token of another issuer.
#[derive(Deserialize)]
pub(super) struct External {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    #[serde(default, deserialize_with = "null")]
    service_account_impersonation: Impersonation,
    client_id: Option<String>,
    client_secret: Option<String>,
    /// The project that pays for the exchange of a token of a workforce pool.
    workforce_pool_user_project: Option<String>,
    credential_source: CredentialSource,
}

/// How a service account is impersonated.
#[derive(Default, Deserialize)]
struct Impersonation {
    token_lifetime_seconds: Option<u32>,
}

/// The location of the other issuer's token.
#[derive(Deserialize)]
struct CredentialSource {
    file: Option<String>,
    url: Option<String>,
    #[serde(default, deserialize_with = "null")]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null")]
    format: Format,
    /// `aws1`: signed AWS requests.
    environment_id: Option<String>,
    executable: Option<Value>,
    certificate: Option<Value>,
}

/// The format of the token in its file or response.
#[derive(Default, Deserialize)]
struct Format {
    #[serde(rename = "type", default, deserialize_with = "null")]
    kind: String,
    subject_token_field_name: Option<String>,
}

impl External {
    pub(super) async fn token(&self, http: &Client, scope: &str) -> Result<Token, Failure> {
        let subject = self.credential_source.token(http).await?;
        // The exchanged token needs the scope for impersonation; the impersonated account gets the narrower one.
        let exchanged = if self.service_account_impersonation_url.is_some() { SCOPE } else { scope };
        let mut fields = vec![
            ("grant_type", EXCHANGE),
            ("audience", &*self.audience),
            ("scope", exchanged),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", &*self.subject_token_type),
            ("subject_token", &*subject),
        ];
        let secret = self.client_secret.as_deref().unwrap_or_default();
        let client = self.client_id.as_deref().map(|id| format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))));
        // A client belongs to a project of its own.
        let project = self.workforce_pool_user_project.as_ref().filter(|_| client.is_none());
        let options = project.map(|project| json!({"userProject": project}).to_string());
        fields.extend(options.iter().map(|options| ("options", &**options)));
        let token = post_form(http, &self.token_url, &fields, client.as_deref()).await?;
        let lifetime = self.service_account_impersonation.token_lifetime_seconds.unwrap_or(LIFETIME);
        match &self.service_account_impersonation_url {
            Some(url) => impersonate(http, url, &token, &[], scope, lifetime).await,
            None => Ok(token),
        }
    }
}

impl CredentialSource {
    async fn token(&self, http: &Client) -> Result<String, Failure> {
        let unsupported = [
            (self.environment_id.is_some(), "of AWS (environment_id)"),
            (self.executable.is_some(), "of an executable"),
            (self.certificate.is_some(), "of a certificate"),
        ];
        if let Some((_, what)) = unsupported.into_iter().find(|(is_there, _)| *is_there) {
            return Err(refused(format!("a credential_source {what} is not supported; expected file or url")));
        }
        let text = match (&self.file, &self.url) {
            (Some(path), _) => {
                let text = tokio::task::spawn_blocking({
                    let path = path.clone();
                    move || std::fs::read(path)
                });
                let text = text.await.map_err(|_| refused("the reading of a file was broken off"))?;
                Bytes::from(text.map_err(|error| refused(format!("credential_source file {path}: {error}")))?)
            }
            (None, Some(url)) => {
                let mut request = Request::get(url);
                for (name, value) in &self.headers {
                    request = request.header(name, value);
                }
                let request = request.body(Bytes::new()).map_err(|_| malformed(format!("{url:?} is not a URL")))?;
                http.send(request).await?.body
            }
            (None, None) => return Err(refused("credential_source has neither file nor url")),
        };
        self.format.token(&text).ok_or_else(|| refused("credential_source holds no token in its format"))
    }
}

impl Format {
    fn token(&self, text: &[u8]) -> Option<String> {
        let token = match &*self.kind {
            "json" => {
                let document: Value = serde_json::from_slice(text).ok()?;
                document.get(self.subject_token_field_name.as_deref()?)?.as_str()?.to_owned()
            }
            _ => String::from_utf8(text.to_vec()).ok()?.trim().to_owned(),
        };
        Some(token).filter(|token| !token.is_empty())
    }
}

/// A token of the service account at this URL, for a caller that may impersonate it.
pub(super) async fn impersonate(
    http: &Client,
    url: &str,
    token: &Token,
    delegates: &[String],
    scope: &str,
    lifetime: u32,
) -> Result<Token, Failure> {
    let body = json!({"delegates": delegates, "scope": [scope], "lifetime": format!("{lifetime}s")});
    post_json(http, url, &format!("{url:?}"), token, Bytes::from(body.to_string())).await
}
