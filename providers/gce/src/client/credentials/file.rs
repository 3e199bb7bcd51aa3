//! Application Default Credentials: the file of `GOOGLE_APPLICATION_CREDENTIALS`, then that of `gcloud`, then the
//! metadata server.
//!
//! A file is read again for each token, so that a rotated key needs no restart.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm_kit::call::Failure;
use ccm_kit::http::{Client, null};
use serde::Deserialize;
use serde_json::Value;

use super::exchange::{External, LIFETIME};
use super::metadata::Instance;
use super::{SCOPE, Source, Token, post_form, refused, sign};
use crate::client::metadata::Metadata;

const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const CONFIG_VARIABLE: &str = "CLOUDSDK_CONFIG";
const WELL_KNOWN: &str = "application_default_credentials.json";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const JWT_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The deepest nesting of credentials that refer to others.
const DEEPEST: usize = 3;

/// The file of the credentials, if there is one: `(path, whether the environment names it)`.
pub(crate) fn find(environment: &dyn Fn(&str) -> Option<String>) -> Option<(PathBuf, bool)> {
    let given = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(path) = given(VARIABLE) {
        return Some((path.into(), true));
    }
    let folder = given(CONFIG_VARIABLE).map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(given("HOME")?).join(".config/gcloud")))?;
    Some((folder.join(WELL_KNOWN), false)).filter(|(path, _)| path.exists())
}

/// The source that the environment describes.
pub(crate) fn source(
    environment: &dyn Fn(&str) -> Option<String>,
    http: Client,
    metadata: Metadata,
) -> Result<Arc<dyn Source>, String> {
    let Some((path, _)) = find(environment) else { return Ok(Arc::new(Instance(metadata))) };
    // Read now, so that the start reports errors.
    Credentials::read(&path)?;
    Ok(Arc::new(File { path, http }))
}

/// The universe that the credentials belong to, if their file names it.
pub(crate) fn universe(environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let file: Value = serde_json::from_slice(&std::fs::read(find(environment)?.0).ok()?).ok()?;
    file.get("universe_domain")?.as_str().map(str::to_owned).filter(|domain| !domain.is_empty())
}

/// A file of credentials.
#[derive(Debug)]
struct File {
    path: PathBuf,
    http: Client,
}

#[async_trait]
impl Source for File {
    async fn fetch(&self) -> Result<Token, Failure> {
        let credentials = Credentials::read(&self.path).map_err(refused)?;
        credentials.token(&self.http, SCOPE, 0).await.map_err(|failure| {
            let message = format!("{}: {}", self.path.display(), failure.message);
            Failure { message, ..failure }
        })
    }
}

/// The content of a credentials file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Credentials {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    ExternalAccount(Box<External>),
    ExternalAccountAuthorizedUser(Federated),
    ImpersonatedServiceAccount(Impersonated),
}

/// The key of a service account.
#[derive(Deserialize)]
pub(super) struct ServiceAccount {
    client_email: String,
    private_key: String,
    #[serde(default, deserialize_with = "null")]
    private_key_id: String,
    token_uri: Option<String>,
}

/// A user who logged in with `gcloud`.
#[derive(Deserialize)]
pub(super) struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

/// A user of another identity provider who logged in with `gcloud`.
#[derive(Deserialize)]
pub(super) struct Federated {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_url: String,
}

/// A service account that other credentials impersonate.
#[derive(Deserialize)]
pub(super) struct Impersonated {
    service_account_impersonation_url: String,
    #[serde(default, deserialize_with = "null")]
    delegates: Vec<String>,
    source_credentials: Box<Credentials>,
}

impl Credentials {
    /// The error quotes no value.
    fn read(path: &std::path::Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| format!("credentials {shown}: {error}"))?;
        Self::parse(&text).map_err(|why| format!("credentials {shown}: {why}"))
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let known = [
            "service_account",
            "authorized_user",
            "external_account",
            "external_account_authorized_user",
            "impersonated_service_account",
        ];
        let file: Value = serde_json::from_slice(text).map_err(|_| "not a JSON document".to_owned())?;
        let kind = file.get("type").and_then(Value::as_str).ok_or("no \"type\"")?.to_owned();
        if !known.contains(&&*kind) {
            return Err(format!(
                "credentials of the type {kind:?} are not supported; expected one of {}",
                known.join(", ")
            ));
        }
        serde_json::from_value(file).map_err(|error| {
            let text = error.to_string();
            // A missing field is named in backticks; anything else may quote a value.
            let field = text.strip_prefix("missing field ").map(|field| format!("no {field}"));
            format!("{kind}: {}", field.unwrap_or_else(|| "a field has a wrong type".to_owned()))
        })
    }

    pub(super) async fn token(&self, http: &Client, scope: &str, depth: usize) -> Result<Token, Failure> {
        if depth > DEEPEST {
            return Err(refused("source_credentials refer to too many others"));
        }
        match self {
            Self::ServiceAccount(account) => account.token(http, scope).await,
            Self::AuthorizedUser(user) => {
                let url = user.token_uri.as_deref().unwrap_or(TOKEN_URI);
                let fields = [
                    ("grant_type", "refresh_token"),
                    ("client_id", &user.client_id),
                    ("client_secret", &user.client_secret),
                    ("refresh_token", &user.refresh_token),
                ];
                post_form(http, url, &fields, None).await
            }
            Self::ExternalAccount(account) => account.token(http, scope).await,
            Self::ExternalAccountAuthorizedUser(user) => {
                let holder = STANDARD.encode(format!("{}:{}", user.client_id, user.client_secret));
                let fields = [("grant_type", "refresh_token"), ("refresh_token", &*user.refresh_token)];
                post_form(http, &user.token_url, &fields, Some(&format!("Basic {holder}"))).await
            }
            Self::ImpersonatedServiceAccount(account) => {
                let token = Box::pin(account.source_credentials.token(http, SCOPE, depth + 1)).await?;
                let url = &account.service_account_impersonation_url;
                super::exchange::impersonate(http, url, &token, &account.delegates, scope, LIFETIME).await
            }
        }
    }
}

impl ServiceAccount {
    async fn token(&self, http: &Client, scope: &str) -> Result<Token, Failure> {
        let url = self.token_uri.as_deref().unwrap_or(TOKEN_URI);
        let claims = serde_json::json!({"iss": self.client_email, "scope": scope, "aud": url});
        let assertion = sign::assertion(&self.private_key, &self.private_key_id, claims).map_err(refused)?;
        post_form(http, url, &[("grant_type", JWT_GRANT), ("assertion", &assertion)], None).await
    }
}
