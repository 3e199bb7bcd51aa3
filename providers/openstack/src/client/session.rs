//! A session: the token of Keystone, its catalog, and requests with it.
//!
//! A token is renewed shortly before it expires, while requests go on with it, and when a service answers 401:
//! concurrent requests wait for one login, share its failure, and are sent once more. Credentials are read again for
//! each login, so that a rotation needs no restart.
//!
//! Upstream: gophercloud `openstack/{client,endpoint_search}.go`, `provider_client.go`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ccm_kit::call::{CallError, Caller, Cause, ErrorKind, Failure};
use ccm_kit::http::{Answer, Client};
use ccm_kit::{Interrupted, Life, Renewed, Stamped, models};
use ccm_provider::ProviderError;
use futures::FutureExt as _;
use http::{HeaderMap, Request, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operation::{IDENTITY_VERSIONS, Operation, Service, TOKEN_CREATE};
use crate::start::login::{Login, choose_version};

/// A token is renewed this long before it expires, or after half of a shorter lifetime.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// The microversion from which Nova embeds the name of a server's flavor.
const NOVA_MICROVERSION: &str = "2.47";
const TOKEN_HEADER: &str = "x-auth-token";

/// Reads the credentials again from their files.
pub(crate) type Credentials = Arc<dyn Fn() -> Result<Login, ProviderError> + Send + Sync>;

/// The selection of catalog endpoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endpoints {
    /// `[Global] region`; empty: any.
    pub(crate) region: String,
    /// `[Global] os-endpoint-type`
    pub(crate) interface: String,
}

/// A session, one per process.
pub(crate) struct Session {
    http: Client,
    endpoints: Endpoints,
    token: Renewed<Token, Failure>,
    /// Whether Nova refused the microversion.
    is_nova_old: std::sync::atomic::AtomicBool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Logs in at Keystone.
struct Keystone {
    http: Client,
    caller: Caller<Operation>,
    credentials: Credentials,
}

/// A token and the data that Keystone returns with it.
pub(crate) struct Token {
    secret: header::HeaderValue,
    life: Option<Life>,
    catalog: Vec<Entry>,
    /// The project of the scope; empty in other scopes.
    pub(crate) project: String,
    /// The names of the roles in the scope.
    pub(crate) roles: Vec<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: TokenBody,
}

/// Without an ID it is an error: lists would have the objects of all projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Project {
    id: String,
}

models! {
    struct TokenBody {
        expires_at: Option<Timestamp>,
        catalog: Vec<Entry>,
        project: Option<Project>,
        roles: Vec<Role>,
    }

    struct Role {
        name: String,
    }

    /// A service in the catalog.
    struct Entry {
        #[serde(rename = "type")]
        kind: String,
        endpoints: Vec<Endpoint>,
    }

    struct Endpoint {
        interface: String,
        region: Option<String>,
        region_id: Option<String>,
        url: String,
    }
}

/// A request to a service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// Relative to the endpoint, with the query: `ports?device_id=…`.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The revision that the object must have.
    pub(crate) revision: Option<i64>,
}

impl Session {
    pub(crate) fn new(http: Client, caller: Caller<Operation>, credentials: Credentials, endpoints: Endpoints) -> Self {
        let keystone = Arc::new(Keystone { http: http.clone(), caller, credentials });
        let login = move || {
            let keystone = keystone.clone();
            async move { keystone.log_in().await }.boxed()
        };
        let late = |how: Interrupted| Failure {
            message: format!("login at Keystone: {how}"),
            cause: Cause::NoAnswer,
            ..Failure::default()
        };
        let token = Renewed::new(login, late, |token: &Token| token.life);
        Self { http, endpoints, token, is_nova_old: false.into() }
    }

    /// Sends a request with a token; again with a new one after 401.
    pub(crate) async fn send(&self, operation: Operation, message: &Message) -> Result<Answer, Failure> {
        let is_nova = operation.of() == Service::Compute;
        let Stamped { began, value: token } = self.token.get().await?;
        match self.exchange(operation, message, &token).await {
            Err(failure) if failure.status == Some(401) => {
                let token = self.token.after(began).await?.value;
                self.exchange(operation, message, &token).await
            }
            Err(failure) if failure.status == Some(406) && is_nova && !self.is_nova_old() => {
                self.is_nova_old.store(true, std::sync::atomic::Ordering::Relaxed);
                self.exchange(operation, message, &token).await
            }
            answer => answer,
        }
    }

    /// The URL of a service, with a trailing slash.
    pub(crate) async fn endpoint(&self, service: Service) -> Result<String, Failure> {
        find(&self.token().await?.catalog, service, &self.endpoints).map_err(malformed)
    }

    /// A valid token.
    pub(crate) async fn token(&self) -> Result<Arc<Token>, Failure> {
        Ok(self.token.get().await?.value)
    }

    fn is_nova_old(&self) -> bool {
        self.is_nova_old.load(std::sync::atomic::Ordering::Relaxed)
    }

    async fn exchange(&self, operation: Operation, message: &Message, token: &Token) -> Result<Answer, Failure> {
        let base = find(&token.catalog, operation.of(), &self.endpoints).map_err(malformed)?;
        // The version document is above the versioned URL.
        let url = match &*message.path {
            "" => unversioned(&base),
            path => format!("{base}{path}"),
        };
        let mut request = Request::builder().method(operation.method()).uri(&url);
        if let Some(headers) = request.headers_mut() {
            headers.insert(TOKEN_HEADER, token.secret.clone());
            headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
            self.more_headers(headers, operation.of(), message);
        }
        let body = message.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.http.send(request.body(body).map_err(|_| bad_url(&url))?).await
    }

    fn more_headers(&self, headers: &mut HeaderMap, service: Service, message: &Message) {
        if message.body.is_some() {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        }
        if let Some(revision) = message.revision
            && let Ok(value) = header::HeaderValue::from_str(&format!("revision_number={revision}"))
        {
            headers.insert(header::IF_MATCH, value);
        }
        if service == Service::Compute && !self.is_nova_old() {
            let version = header::HeaderValue::from_static(NOVA_MICROVERSION);
            headers.insert("x-openstack-nova-api-version", version);
        }
    }
}

impl Keystone {
    async fn log_in(&self) -> Result<Token, Failure> {
        let login = (self.credentials)().map_err(|error| no_login(error.to_string()))?;
        let base = match login.needs_discovery {
            false => login.identity_url.clone(),
            true => self.discover(&login).await?,
        };
        let url = format!("{}/auth/tokens", base.trim_end_matches('/'));
        let body = Bytes::from(login.body.to_string());
        let request = || {
            let request = Request::post(&url).header(header::CONTENT_TYPE, "application/json");
            request.header(header::ACCEPT, "application/json").body(body.clone()).map_err(|_| bad_url(&url))
        };
        let answer = self.caller.call(TOKEN_CREATE, || async { self.http.send(request()?).await }).await;
        let answer = answer.map_err(|error| failed_login(&error, &login))?;
        let secret =
            answer.headers.get("x-subject-token").cloned().ok_or_else(|| no_login("Keystone sent no token"))?;
        let TokenAnswer { token } = answer.json()?;
        tracing::debug!(expires = ?token.expires_at, "logged in at Keystone");
        let project = token.project.map(|project| project.id).unwrap_or_default();
        let roles = token.roles.into_iter().map(|role| role.name).collect();
        let life = token.expires_at.and_then(|end| Life::new(Timestamp::now(), end, RENEW_BEFORE));
        Ok(Token { secret: sensitive(secret), life, catalog: token.catalog, project, roles })
    }

    async fn discover(&self, login: &Login) -> Result<String, Failure> {
        // Some servers redirect URLs without a trailing slash.
        let url = &format!("{}/", login.identity_url);
        let send = || async {
            let request = Request::get(url).body(Bytes::new()).map_err(|_| bad_url(url))?;
            self.http.send(request).await
        };
        let answer = self.caller.call(IDENTITY_VERSIONS, send).await.map_err(|error| failed_login(&error, login))?;
        choose_version(&answer.json::<Value>()?, url).map_err(no_login)
    }
}

fn sensitive(mut secret: header::HeaderValue) -> header::HeaderValue {
    secret.set_sensitive(true);
    secret
}

/// The URL of a service in a catalog, with its version and a trailing slash.
fn find(catalog: &[Entry], service: Service, wanted: &Endpoints) -> Result<String, String> {
    let types = || std::iter::once(service.name()).chain(service.aliases().iter().copied());
    let fits = |endpoint: &&Endpoint| {
        let in_region = [&endpoint.region, &endpoint.region_id].into_iter().flatten().any(|at| *at == wanted.region);
        endpoint.interface == wanted.interface && (wanted.region.is_empty() || in_region)
    };
    let of_type =
        |kind: &str| catalog.iter().filter(|entry| entry.kind == kind).flat_map(|entry| &entry.endpoints).find(fits);
    match types().find_map(of_type) {
        Some(endpoint) => Ok(versioned(service, &endpoint.url)),
        None => {
            let (name, interface, region) = (service.name(), &wanted.interface, &wanted.region);
            Err(format!(
                "failed to find {name} v2 {interface} endpoint for region {region}: the catalog of Keystone has none; check \
                 [Global] region and os-endpoint-type ({})",
                listed(catalog, &types().collect::<Vec<_>>())
            ))
        }
    }
}

/// The catalog's endpoints of these types; all its types if it has none of them.
fn listed(catalog: &[Entry], types: &[&str]) -> String {
    let endpoints = catalog.iter().filter(|entry| types.contains(&&*entry.kind)).flat_map(|entry| &entry.endpoints);
    let place = |endpoint: &Endpoint| {
        let region = endpoint.region.as_ref().or(endpoint.region_id.as_ref()).map_or("none", String::as_str);
        format!("{} in region {region}", endpoint.interface)
    };
    let places: BTreeSet<String> = endpoints.map(place).collect();
    match places.is_empty() {
        true => {
            let known: Vec<&str> = catalog.iter().map(|entry| &*entry.kind).collect();
            format!("types in the catalog: {}", known.join(", "))
        }
        false => format!("it has: {}", places.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// The endpoint with this program's API version once, and a trailing slash.
fn versioned(service: Service, url: &str) -> String {
    let url = url.trim_end_matches('/');
    let version = match service {
        Service::Network | Service::LoadBalancer => "v2.0",
        Service::KeyManager => "v1",
        // The catalog URLs of these have the version, and often the project.
        Service::Identity | Service::Compute | Service::BlockStorage => return format!("{url}/"),
    };
    // A catalog URL may end with another spelling of the version: /v2.
    let last = url.rsplit_once("://").map_or(url, |(_, rest)| rest).rsplit_once('/').map_or("", |(_, last)| last);
    let bare = match last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        true => url.strip_suffix(last).unwrap_or(url).trim_end_matches('/'),
        false => url,
    };
    format!("{bare}/{version}/")
}

/// The endpoint without its version, with a trailing slash.
fn unversioned(url: &str) -> String {
    let bare = url.trim_end_matches('/');
    format!("{}/", bare.strip_suffix("/v2.0").unwrap_or(bare))
}

/// The keys of Nova's and Cinder's errors.
const FAULTS: [&str; 16] = [
    "badMediaType",
    "badMethod",
    "badRequest",
    "buildInProgress",
    "cinderFault",
    "computeFault",
    "conflictingRequest",
    "forbidden",
    "itemNotFound",
    "notImplemented",
    "overLimit",
    "rateLimitFault",
    "serviceUnavailable",
    "tooManyRequests",
    "unauthorized",
    "unprocessableEntity",
];

/// The code and message in the body of a refusal, in the form of one of the services. A gateway has other forms.
pub(crate) fn refusal(body: &Value) -> Option<(String, String)> {
    use super::operation::{FAULT, IMMUTABLE, OVER_QUOTA};
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let has_all = |value: &Value, keys: &[&str]| keys.iter().all(|key| value.get(key).is_some());
    let wrapped = || body.as_object()?.iter().next().filter(|(_, inner)| text(inner, "message").is_some());
    let (code, message) = match wrapped() {
        // Octavia and Barbican use a flat body, the others one key.
        None if has_all(body, &["faultcode", "faultstring"]) => (FAULT.to_owned(), text(body, "faultstring")?),
        None if has_all(body, &["title", "description"]) => (text(body, "title")?, text(body, "description")?),
        Some((kind, inner)) if kind == "NeutronError" => (text(inner, "type")?, text(inner, "message")?),
        // Keystone, and its middleware in the other services.
        Some((kind, inner)) if kind == "error" => (text(inner, "title")?, text(inner, "message")?),
        Some((kind, inner)) if FAULTS.contains(&&**kind) => (kind.clone(), text(inner, "message")?),
        _ => return None,
    };
    let lower = message.to_lowercase();
    Some(match () {
        () if lower.contains("immutable") || lower.contains("invalid state pending") => (IMMUTABLE.to_owned(), message),
        () if lower.contains("quota") => (OVER_QUOTA.to_owned(), message),
        () => (code, message),
    })
}

fn malformed(message: String) -> Failure {
    Failure { message, cause: Cause::Malformed, ..Failure::default() }
}

fn bad_url(url: &str) -> Failure {
    malformed(format!("{url:?} is not a URL"))
}

fn no_login(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), cause: Cause::Credentials, ..Failure::default() }
}

/// Converts a failed login to the failure of the request that needed it.
fn failed_login(error: &CallError<Operation>, login: &Login) -> Failure {
    let mut message = match error.message.is_empty() {
        true => format!("login at Keystone: {}", error.code),
        false => format!("login at Keystone: {}", error.message),
    };
    let cause = match error.kind {
        ErrorKind::NotSent => Cause::NotSent,
        ErrorKind::NoAnswer | ErrorKind::Throttled { .. } => Cause::NoAnswer,
        // A refusal with only the HTTP status text does not come from Keystone.
        ErrorKind::Refused if error.status.is_some_and(|status| error.code == status.to_string()) => {
            message.push_str("; is [Global] auth-url the URL of Keystone?");
            Cause::NoAnswer
        }
        _ => {
            message.push_str(&format!(" ({})", login.account()));
            Cause::Credentials
        }
    };
    // The status of Keystone is not that of the service.
    let status = error.status.filter(|status| *status == StatusCode::TOO_MANY_REQUESTS.as_u16());
    Failure { status, message, request_id: error.request_id.clone(), cause, ..Failure::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog() -> Vec<Entry> {
        serde_json::from_value(json!([
            {"type": "network", "endpoints": [
                {"interface": "admin", "region": "A", "url": "http://net-admin:9696"},
                {"interface": "public", "region": "A", "region_id": "A", "url": "http://net-a:9696/v2.0"},
                {"interface": "public", "region": null, "region_id": "B", "url": "http://net-b:9696/"}]},
            {"type": "compute", "endpoints": [{"interface": "public", "region": "A", "url": "http://nova/v2.1"}]},
            {"type": "load-balancer", "endpoints": [{"interface": "public", "region": "A", "url": "http://lb/lb/v2.0/"}]},
            {"type": "key-manager", "endpoints": [{"interface": "public", "region": "A", "url": "http://keys/v1"}]},
            {"type": "volumev3", "endpoints": [{"interface": "public", "region": "A", "url": "http://vol/v3/p"}]},
        ]))
        .unwrap()
    }

    #[test]
    fn an_endpoint_is_found_by_type_interface_and_region() {
        let find = |service, region: &str, interface: &str| {
            find(&catalog(), service, &Endpoints { region: region.to_owned(), interface: interface.to_owned() })
        };
        for (service, region, expected) in [
            // A version in the catalog is not added twice.
            (Service::Network, "A", "http://net-a:9696/v2.0/"),
            (Service::Network, "", "http://net-a:9696/v2.0/"),
            (Service::Network, "B", "http://net-b:9696/v2.0/"),
            (Service::Compute, "A", "http://nova/v2.1/"),
            (Service::LoadBalancer, "A", "http://lb/lb/v2.0/"),
            (Service::KeyManager, "A", "http://keys/v1/"),
            (Service::BlockStorage, "A", "http://vol/v3/p/"),
        ] {
            assert_eq!(find(service, region, "public").unwrap(), expected);
        }
        assert_eq!(find(Service::Network, "A", "admin").unwrap(), "http://net-admin:9696/v2.0/");
        let problem = find(Service::LoadBalancer, "B", "internal").unwrap_err();
        assert!(problem.starts_with("failed to find load-balancer v2 internal endpoint for region B: "), "{problem}");
        assert!(problem.ends_with("(it has: public in region A)"), "{problem}");
        assert_eq!(unversioned("http://lb/lb/v2.0/"), "http://lb/lb/");
        assert_eq!(versioned(Service::Network, "https://v2.example.com"), "https://v2.example.com/v2.0/");
    }

    /// As the Go program does.
    #[test]
    fn null_in_a_token_is_what_is_missing() {
        let nulls = json!({"expires_at": null, "catalog": null, "project": null, "roles": null, "is_domain": null});
        assert_eq!(serde_json::from_value::<TokenBody>(nulls).unwrap(), TokenBody::default());
        let token: TokenBody = serde_json::from_value(json!({"roles": [{"name": null}], "catalog": [
            {"type": null, "endpoints": null}, {"type": "network"}, {"type": "network", "endpoints": [
                {"interface": null, "region": null, "url": null}, {"region": "A"},
                {"interface": "public", "region_id": "A", "url": "http://net:9696"}]}]}))
        .unwrap();
        let public = Endpoints { region: "A".to_owned(), interface: "public".to_owned() };
        assert_eq!(find(&token.catalog, Service::Network, &public).unwrap(), "http://net:9696/v2.0/");
        // Without its ID, lists would have the objects of all projects.
        assert!(serde_json::from_value::<TokenBody>(json!({"project": {"id": null}})).is_err());
    }

    #[test]
    fn refusals_of_all_services_are_read() {
        let immutable = "Load Balancer x is immutable and cannot be updated.";
        for (body, code, message) in [
            (json!({"NeutronError": {"type": "PortInUse", "message": "m", "detail": ""}}), "PortInUse", "m"),
            (
                json!({"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port']."}}),
                "OverQuota",
                "Quota exceeded for resources: ['port'].",
            ),
            (json!({"itemNotFound": {"code": 404, "message": "m"}}), "itemNotFound", "m"),
            (json!({"faultcode": "Client", "faultstring": immutable, "debuginfo": null}), "Immutable", immutable),
            (
                json!({"faultcode": "Client", "faultstring": "Invalid state PENDING_UPDATE of loadbalancer resource x"}),
                "Immutable",
                "Invalid state PENDING_UPDATE of loadbalancer resource x",
            ),
            (json!({"error": {"code": 401, "title": "Unauthorized", "message": "m"}}), "Unauthorized", "m"),
            (json!({"code": 404, "title": "Not Found", "description": "m"}), "Not Found", "m"),
        ] {
            assert_eq!(refusal(&body), Some((code.to_owned(), message.to_owned())), "{body}");
        }
        assert_eq!(refusal(&json!([])), None);
        assert_eq!(refusal(&json!({"error": "x"})), None);
    }
}
