//! Who calls: applications with secrets, certificates and federated tokens, managed identities, and the tokens that the
//! login endpoint and the metadata service of instances issue.

use super::ids::Id;
use super::json::{at, same, text};
use super::world::World;
use super::{errors, routes};
use crate::core::clock::later;
use crate::core::rest::{Call, Problem, Reply, query};
use crate::core::throttle::matches;
use crate::gce::tokens::unbase64;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// An application (service principal).
#[derive(Debug, Clone, Default)]
pub struct Application {
    /// The tenants in which it gets tokens.
    pub tenants: BTreeSet<String>,
    /// Its secrets, each with its expiry.
    pub secrets: BTreeMap<String, Option<Timestamp>>,
    /// The federated tokens that are accepted in place of a secret; `*`: any.
    pub federated: BTreeSet<String>,
    /// The thumbprints of its certificates, as in `x5t` or `x5t#S256` of an assertion. The signature is not verified.
    pub certificates: BTreeSet<String>,
}

/// Applications, managed identities, and tokens.
#[derive(Debug)]
pub struct Identities {
    /// The tenant of subscriptions that name no other.
    pub tenant: String,
    /// Applications by client ID. At the start there is `client` with the secret `secret`.
    pub applications: BTreeMap<String, Application>,
    /// Client IDs and resource IDs of the managed identities of instances; the system-assigned one is the empty text.
    pub managed: BTreeSet<String>,
    tokens: BTreeMap<String, Token>,
}

#[derive(Debug, Clone)]
struct Token {
    client: String,
    tenant: String,
    ends: Timestamp,
}

/// The caller.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller {
    pub(super) client: String,
    /// The tenants of its token and of its auxiliary tokens.
    pub(super) tenants: Vec<String>,
}

impl Default for Identities {
    fn default() -> Self {
        let application = Application {
            tenants: BTreeSet::from(["tenant".to_owned()]),
            secrets: BTreeMap::from([("secret".to_owned(), None)]),
            ..Application::default()
        };
        Identities {
            tenant: "tenant".to_owned(),
            applications: BTreeMap::from([("client".to_owned(), application)]),
            managed: BTreeSet::from([String::new()]),
            tokens: BTreeMap::new(),
        }
    }
}

impl World {
    /// A new token of a client in a tenant, with its lifetime in seconds.
    pub fn token(&mut self, client: &str, tenant: &str) -> (String, u64) {
        let token = format!("sim.{}", self.uuid());
        let ends = later(self.now(), self.options.token_lifetime);
        let (client, tenant) = (client.to_owned(), tenant.to_owned());
        self.identities.tokens.insert(token.clone(), Token { client, tenant, ends });
        (token, self.options.token_lifetime.as_secs().saturating_sub(1))
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&mut self) {
        self.identities.tokens.clear();
    }
}

/// An error in the format of the login endpoint.
pub(super) fn render(problem: &Problem) -> Reply {
    let number = problem.message.strip_prefix("AADSTS").and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
    let codes: Vec<u64> = number.into_iter().collect();
    let body = json!({"error": problem.code, "error_description": problem.message, "error_codes": codes});
    Reply::json(problem.status, &body)
}

/// `POST /{tenant}/oauth2/v2.0/token` and `POST /{tenant}/oauth2/token`, the latter for AD FS, whose tenant is `adfs`.
pub(super) fn grant(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let tenant = call.id(0).to_owned();
    let form = query(std::str::from_utf8(&call.body).unwrap_or_default());
    let field =
        |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    let old = !call.path.ends_with("/v2.0/token");
    let wanted = if old && field("scope").is_empty() { field("resource") } else { field("scope") };
    if field("grant_type") != "client_credentials" || wanted.is_empty() {
        let text = "AADSTS900144: The request body must contain the following parameter: 'scope'.";
        return Err(Problem::violation(400, "invalid_request", text));
    }
    let known = world.identities.tenant == tenant
        || world.subscriptions.values().any(|known| *known == tenant)
        || world.identities.applications.values().any(|known| known.tenants.contains(&tenant));
    if !known {
        let text =
            format!("AADSTS90002: Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID.");
        return Err(Problem::new(400, "invalid_request", text));
    }
    let client = field("client_id").to_owned();
    let Some(application) = world.identities.applications.get(&client).filter(|known| known.tenants.contains(&tenant))
    else {
        let text =
            format!("AADSTS700016: Application with identifier '{client}' was not found in the directory '{tenant}'.");
        return Err(Problem::new(400, "unauthorized_client", text));
    };
    match field("client_assertion") {
        "" => secret(application, field("client_secret"), &client, world.now())?,
        assertion => asserted(application, assertion, field("client_assertion_type"), &client, &tenant, world.now())?,
    }
    let (token, lifetime) = world.token(&client, &tenant);
    let mut body = json!({
        "token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime, "access_token": token,
    });
    if old {
        let ends = world.now().as_second().saturating_add(i64::try_from(lifetime).unwrap_or_default());
        super::json::set(&mut body, "/expires_on", ends.to_string());
        super::json::set(&mut body, "/expires_in", lifetime.to_string());
        super::json::set(&mut body, "/resource", wanted);
    }
    Ok(Reply::json(200, &body))
}

fn secret(application: &Application, secret: &str, client: &str, now: Timestamp) -> Result<(), Problem> {
    let wrong = |text: String| Err(Problem::new(401, "invalid_client", text));
    match application.secrets.get(secret) {
        Some(Some(ends)) if *ends <= now => {
            wrong(format!("AADSTS7000222: The provided client secret keys for app '{client}' are expired."))
        }
        Some(_) => Ok(()),
        None => wrong(format!("AADSTS7000215: Invalid client secret provided for app '{client}'.")),
    }
}

/// Checks a federated token, or an assertion that a certificate has signed.
fn asserted(
    application: &Application,
    assertion: &str,
    kind: &str,
    client: &str,
    tenant: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    if kind != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
        let text = "AADSTS900144: The request body must contain the following parameter: 'client_assertion_type'.";
        return Err(Problem::violation(400, "invalid_request", text));
    }
    if ["*", assertion].iter().any(|known| application.federated.contains(*known)) {
        return Ok(());
    }
    let mut parts = assertion.split('.');
    let mut part = || parts.next().and_then(unbase64).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let wrong = |text: String| Err(Problem::new(401, "invalid_client", text));
    let Some((head, claims)) = part().zip(part()) else {
        return wrong("AADSTS50027: JWT token is invalid or malformed.".to_owned());
    };
    let print = ["/x5t", "/x5t#S256"].iter().any(|name| application.certificates.contains(text(&head, name)));
    if !print {
        return wrong(format!(
            "AADSTS700027: The certificate with identifier used to sign the client assertion is not registered on application. [Reason - The key was not found., Thumbprint of key used by client: '{}']",
            text(&head, "/x5t")
        ));
    }
    let meant = text(&claims, "/iss") == client && text(&claims, "/sub") == client;
    let audience = text(&claims, "/aud").contains(&format!("/{tenant}/"));
    let in_time = at(&claims, "/exp").as_i64().is_some_and(|ends| ends > now.as_second());
    if meant && audience && in_time {
        return Ok(());
    }
    wrong("AADSTS700023: Client assertion audience, issuer, subject or time range is not valid.".to_owned())
}

/// `GET /common/discovery/instance`
pub(super) fn instance(world: &mut World, _: &Call) -> Result<Reply, Problem> {
    let link = world.link();
    let host = link.split_once("://").map_or(link, |(_, host)| host);
    let known = json!([{"preferred_network": host, "preferred_cache": host, "aliases": [host]}]);
    let body = json!({
        "api-version": "1.1", "metadata": known,
        "tenant_discovery_endpoint": format!("{link}/{}/v2.0/.well-known/openid-configuration", world.identities.tenant),
    });
    Ok(Reply::json(200, &body))
}

/// `GET /{tenant}/v2.0/.well-known/openid-configuration`
pub(super) fn openid(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (link, tenant) = (world.link(), call.id(0));
    let version = if same(tenant, "adfs") { "" } else { "/v2.0" };
    let base = format!("{link}/{tenant}/oauth2{version}");
    let body = json!({
        "token_endpoint": format!("{base}/token"), "authorization_endpoint": format!("{base}/authorize"),
        "issuer": format!("{link}/{tenant}{version}"), "jwks_uri": format!("{link}/{tenant}/discovery/keys"),
        "device_authorization_endpoint": format!("{base}/devicecode"),
    });
    Ok(Reply::json(200, &body))
}

/// `GET /metadata/endpoints`
pub(super) fn endpoints(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    if call.get("api-version") != Some("2019-05-01") {
        let text = "The api-version of the endpoint discovery is 2019-05-01.";
        return Err(Problem::violation(400, "InvalidApiVersionParameter", text));
    }
    let link = world.link();
    let cloud = |name: &str| {
        json!({
            "name": name, "resourceManager": format!("{link}/"),
            "authentication": {
                "loginEndpoint": format!("{link}/"), "tenant": "common", "identityProvider": "AAD",
                "audiences": [format!("{link}/"), "https://management.azure.com/"],
            },
        })
    };
    Ok(Reply::json(200, &json!(["AzureCloud", "AzureChinaCloud", "AzureUSGovernment", "AzureStackCloud"].map(cloud))))
}

/// `GET /metadata/identity/oauth2/token`: the metadata service of instances.
pub(super) fn managed(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    from_metadata(call)?;
    let resource = call.get("resource").unwrap_or_default().to_owned();
    let version = call.get("api-version").unwrap_or_default();
    if resource.is_empty() || version != "2018-02-01" {
        let text = "Required query variable 'resource' or 'api-version' is missing or not supported";
        return Err(Problem::violation(400, "bad_request_102", text));
    }
    let named = ["client_id", "msi_res_id", "mi_res_id"].iter().find_map(|name| call.get(name)).unwrap_or_default();
    if !world.identities.managed.iter().any(|known| same(known, named)) {
        return Err(Problem::new(400, "invalid_request", "Identity not found"));
    }
    let client = if named.is_empty() { "system" } else { named }.to_owned();
    let tenant = world.identities.tenant.clone();
    let (token, lifetime) = world.token(&client, &tenant);
    let ends = world.now().as_second().saturating_add(i64::try_from(lifetime).unwrap_or_default());
    let body = json!({
        "access_token": token, "client_id": client, "expires_in": lifetime.to_string(), "expires_on": ends.to_string(),
        "ext_expires_in": lifetime.to_string(), "not_before": world.now().as_second().to_string(),
        "resource": resource, "token_type": "Bearer",
    });
    Ok(Reply::json(200, &body))
}

/// Checks the header that only clients of the metadata service set.
pub(super) fn from_metadata(call: &Call) -> Result<(), Problem> {
    if same(call.header("metadata"), "true") {
        return Ok(());
    }
    Err(Problem::violation(400, "Bad Request", "Required metadata header not specified"))
}

/// Checks the token of a call.
pub(super) fn authorize(world: &mut World, call: &Call) -> Result<(), Problem> {
    let now = world.now();
    let valid = |text: &str| {
        let token = text.trim().strip_prefix("Bearer ").unwrap_or_default();
        world.identities.tokens.get(token).filter(|token| token.ends > now).cloned()
    };
    let given = call.header("authorization");
    let token = valid(given).ok_or_else(|| errors::unauthorized(!given.is_empty()))?;
    let auxiliary = call.header("x-ms-authorization-auxiliary");
    let mut tenants = vec![token.tenant.clone()];
    for text in auxiliary.split(',').filter(|text| !text.trim().is_empty()) {
        let other = valid(text)
            .ok_or_else(|| Problem::new(401, "InvalidAuthenticationToken", "The auxiliary access token is invalid."))?;
        tenants.push(other.tenant);
    }
    let subscription = call.path.split('/').nth(2).unwrap_or_default().to_lowercase();
    if let Some(tenant) = world.subscriptions.get(&subscription).filter(|tenant| **tenant != token.tenant) {
        let text = format!(
            "The access token is from the wrong issuer 'https://sts.windows.net/{}/'. It must match the tenant 'https://sts.windows.net/{tenant}/' associated with this subscription.",
            token.tenant
        );
        return Err(Problem::new(401, "InvalidAuthenticationTokenTenant", text));
    }
    world.caller = Caller { client: token.client, tenants };
    let (options, right) = (&world.options, routes::right(call));
    let is_denied = options.denied.iter().any(|pattern| matches(pattern, call.action));
    if is_denied || !may(world, &right, &call.path) {
        return Err(errors::forbidden(&world.caller.client, &right, &call.path));
    }
    Ok(())
}

/// Whether the role of the caller has a right on an object. Neither roles nor paths depend on capitals.
pub(super) fn may(world: &World, right: &str, path: &str) -> bool {
    let (options, right) = (&world.options, right.to_lowercase());
    let is_in = |patterns: &[String]| patterns.iter().any(|pattern| matches(&pattern.to_lowercase(), &right));
    !(is_in(&options.not_actions) || is_in(options.not_actions_of(path))) || is_in(&options.actions_on(path))
}

/// Checks that the caller may link a resource to one in another subscription: this needs a token of its tenant.
pub(super) fn may_link(world: &World, id: &Id, target: &str) -> Result<(), Problem> {
    if world.action.is_empty() {
        return Ok(());
    }
    let subscription = target.split('/').nth(2).unwrap_or_default().to_lowercase();
    match world.subscriptions.get(&subscription) {
        Some(tenant) if !world.caller.tenants.contains(tenant) => {
            let kind = Id::parse(target).map(|target| target.kind()).unwrap_or_default();
            let text = format!(
                "The client has permission to perform action '{kind}/join/action' on scope '{}', however the current tenant '{}' is not authorized to access linked subscription '{subscription}'.",
                id.text(),
                world.caller.tenants.first().map(String::as_str).unwrap_or_default()
            );
            Err(Problem::new(403, "LinkedAuthorizationFailed", text))
        }
        _ => Ok(()),
    }
}
