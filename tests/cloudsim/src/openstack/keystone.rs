//! Keystone v3: the version document and logins.

use super::World;
use super::catalog::catalog;
use super::world::{Who, ends, unauthorized};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::shape::{Field, Kind, Why, check, may};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Users, projects and tokens. All are in the domain `default` with the name `Default`.
#[derive(Debug, Default)]
pub struct Identity {
    /// Users by ID.
    pub users: BTreeMap<String, User>,
    /// Names of projects by ID.
    pub projects: BTreeMap<String, String>,
    /// Application credentials by ID.
    pub credentials: BTreeMap<String, Credential>,
    /// Trusts by ID: the project and the trustee.
    pub trusts: BTreeMap<String, (String, String)>,
    tokens: BTreeMap<String, Token>,
}

/// A user.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub password: String,
    /// The roles by project ID; a role in the domain has the ID of the domain.
    pub roles: BTreeMap<String, Vec<String>>,
}

/// An application credential.
#[derive(Debug, Clone)]
pub struct Credential {
    pub name: String,
    pub secret: String,
    pub user: String,
    pub project: String,
}

#[derive(Debug, Clone)]
struct Token {
    user: String,
    scope: Scope,
    methods: Vec<String>,
    expires: Timestamp,
    admin: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    None,
    Project(String),
    Domain,
    Trust { id: String, project: String },
}

/// The domain of all users and projects.
const DOMAIN: &str = "default";

const REF: Kind = Kind::Object(&[may("id", Kind::Text(255)), may("name", Kind::Text(255))]);
const PROJECT: Kind = Kind::Object(&[may("id", Kind::Text(255)), may("name", Kind::Text(255)), may("domain", REF)]);
const USER: Kind = Kind::Object(&[
    may("id", Kind::Text(255)),
    may("name", Kind::Text(255)),
    may("domain", REF),
    may("password", Kind::Text(4096)),
]);
const CREDENTIAL: Kind = Kind::Object(&[
    may("id", Kind::Text(255)),
    may("name", Kind::Text(255)),
    may("secret", Kind::Text(4096)),
    may("user", USER),
]);
const IDENTITY: &[Field] = &[
    may("methods", Kind::List(&Kind::Text(255))),
    may("password", Kind::Object(&[may("user", USER)])),
    may("token", Kind::Object(&[may("id", Kind::Text(4096))])),
    may("application_credential", CREDENTIAL),
];
const AUTH: &[Field] = &[
    may("identity", Kind::Object(IDENTITY)),
    may(
        "scope",
        Kind::Object(&[
            may("project", PROJECT),
            may("domain", REF),
            may("OS-TRUST:trust", Kind::Object(&[may("id", Kind::Text(255))])),
        ]),
    ),
];

impl Identity {
    /// The caller with this token.
    pub fn who(&self, token: &str, now: Timestamp) -> Option<Who> {
        let token = self.tokens.get(token).filter(|token| token.expires > now)?;
        let project = match &token.scope {
            Scope::Project(project) | Scope::Trust { project, .. } => project.clone(),
            Scope::None | Scope::Domain => String::new(),
        };
        Some(Who { user: token.user.clone(), project, admin: token.admin })
    }

    /// Invalidates all tokens: the next calls get 401.
    pub fn expire_tokens(&mut self) {
        self.tokens.clear();
    }

    fn roles(&self, user: &str, scope: &str) -> Option<&Vec<String>> {
        self.users.get(user)?.roles.get(scope).filter(|roles| !roles.is_empty())
    }

    /// The ID of a user, from an ID or from a name and a domain.
    fn user(&self, user: &Value) -> Result<Option<&String>, Problem> {
        if let Some(id) = user.get("id").and_then(Value::as_str) {
            return Ok(self.users.get_key_value(id).map(|(id, _)| id));
        }
        let name = user.get("name").and_then(Value::as_str).ok_or_else(|| missing("id or name", "user"))?;
        let domain = user.get("domain").ok_or_else(|| missing("domain", "user"))?;
        let found = self.users.iter().find(|(_, user)| user.name == name).map(|(id, _)| id);
        Ok(found.filter(|_| is_domain(domain)))
    }

    fn project(&self, project: &Value) -> Result<Option<&String>, Problem> {
        if let Some(id) = project.get("id").and_then(Value::as_str) {
            return Ok(self.projects.get_key_value(id).map(|(id, _)| id));
        }
        let name = project.get("name").and_then(Value::as_str).ok_or_else(|| missing("id or name", "project"))?;
        let domain = project.get("domain").ok_or_else(|| missing("domain", "project"))?;
        let found = self.projects.iter().find(|(_, known)| *known == name).map(|(id, _)| id);
        Ok(found.filter(|_| is_domain(domain)))
    }
}

fn is_domain(domain: &Value) -> bool {
    match domain.get("id") {
        Some(id) => id == DOMAIN,
        None => domain.get("name").is_some_and(|name| name == "Default"),
    }
}

/// The error of two services for a malformed request.
pub(super) const MALFORMED: &str =
    "The server could not comply with the request since it is either malformed or otherwise incorrect.";

fn missing(what: &str, inside: &str) -> Problem {
    Problem::violation(
        400,
        "Bad Request",
        format!("Expecting to find {what} in {inside}. {MALFORMED} The client is assumed to be in error."),
    )
}

/// The contents of a login: the user, the method, and the scope of an application credential.
struct Login {
    user: String,
    methods: Vec<String>,
    scope: Option<Scope>,
    credential: Option<String>,
    /// The expiry of the renewed token, which also applies to the new one.
    expires: Option<Timestamp>,
}

/// `POST /v3/auth/tokens`
pub(super) fn create_token(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = call.object().ok_or_else(|| missing("valid JSON", "request body"))?;
    let Some(Value::Object(auth)) = body.get("auth") else { return Err(missing("auth", "request body")) };
    let violation = match check(auth, AUTH) {
        Ok(()) => None,
        // Keystone ignores unknown fields.
        Err(wrong) if wrong.why == Why::Unknown => Some(format!("unknown field {} in {}", wrong.field, wrong.inside)),
        Err(wrong) => {
            let text = format!("{} is not of type {:?} ({})", wrong.value, wrong.why, wrong.field);
            return Err(Problem::violation(400, "Bad Request", text));
        }
    };
    let login = identify(world, auth)?;
    let scope = scope(world, auth, &login)?;
    let (status, headers, token) = issue(world, &login, scope)?;
    let reply = Reply::json(status, &json!({ "token": token }));
    Ok(Reply { headers, violation, ..reply })
}

/// The user, after the secret was verified.
fn identify(world: &World, auth: &Map<String, Value>) -> Result<Login, Problem> {
    let identity = auth.get("identity").ok_or_else(|| missing("identity", "auth"))?;
    let method =
        identity.pointer("/methods/0").and_then(Value::as_str).ok_or_else(|| missing("methods", "identity"))?;
    let part = identity.get(method).ok_or_else(|| missing(method, "identity"))?;
    let known = &world.identity;
    match method {
        "password" => {
            let user = part.get("user").ok_or_else(|| missing("user", "password"))?;
            let id = known.user(user)?.ok_or_else(unauthorized)?;
            let password = user.get("password").and_then(Value::as_str);
            let good = known.users.get(id).is_some_and(|known| Some(known.password.as_str()) == password);
            let login = Login {
                user: id.clone(),
                methods: vec![method.to_owned()],
                scope: None,
                credential: None,
                expires: None,
            };
            if good { Ok(login) } else { Err(unauthorized()) }
        }
        "token" => {
            let id = part.get("id").and_then(Value::as_str).unwrap_or_default();
            let token = known.tokens.get(id).filter(|token| token.expires > world.now()).ok_or_else(unauthorized)?;
            let mut methods = token.methods.clone();
            methods.push(method.to_owned());
            methods.dedup();
            let expires = Some(token.expires);
            Ok(Login { user: token.user.clone(), methods, scope: None, credential: None, expires })
        }
        "application_credential" => with_credential(world, auth, part),
        _ => {
            let text = "Attempted to authenticate with an unsupported method.";
            Err(Problem::violation(401, "Unauthorized", text))
        }
    }
}

fn with_credential(world: &World, auth: &Map<String, Value>, part: &Value) -> Result<Login, Problem> {
    let known = &world.identity;
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    let (id, credential) = if let Some(id) = text("id") {
        let text = || format!("Could not find Application Credential: {id}.");
        known.credentials.get_key_value(id).ok_or_else(|| Problem::new(404, "Not Found", text()))?
    } else {
        let name = text("name").ok_or_else(|| missing("id or name", "application_credential"))?;
        let user = part.get("user").ok_or_else(|| missing("user", "application_credential"))?;
        let user = known.user(user)?.ok_or_else(unauthorized)?;
        let mine = |(_, credential): &(&String, &Credential)| credential.name == name && credential.user == *user;
        known.credentials.iter().find(mine).ok_or_else(unauthorized)?
    };
    if text("secret") != Some(credential.secret.as_str()) {
        return Err(unauthorized());
    }
    if auth.contains_key("scope") {
        let text = "Error authenticating with application credential: Application credentials cannot request a scope.";
        return Err(Problem::violation(401, "Unauthorized", text));
    }
    Ok(Login {
        user: credential.user.clone(),
        methods: vec!["application_credential".to_owned()],
        scope: Some(Scope::Project(credential.project.clone())),
        credential: Some(id.clone()),
        expires: None,
    })
}

/// The scope of the token, if the user has a role in it.
fn scope(world: &World, auth: &Map<String, Value>, login: &Login) -> Result<Scope, Problem> {
    let known = &world.identity;
    if let Some(scope) = &login.scope {
        return Ok(scope.clone());
    }
    let Some(scope) = auth.get("scope") else { return Ok(Scope::None) };
    if let Some(project) = scope.get("project") {
        let id = known.project(project)?.ok_or_else(unauthorized)?;
        return known.roles(&login.user, id).map(|_| Scope::Project(id.clone())).ok_or_else(unauthorized);
    }
    if let Some(trust) = scope.get("OS-TRUST:trust") {
        let id = trust.get("id").and_then(Value::as_str).unwrap_or_default();
        let found = known.trusts.get(id).filter(|(_, trustee)| *trustee == login.user);
        let (project, _) = found.ok_or_else(unauthorized)?;
        return Ok(Scope::Trust { id: id.to_owned(), project: project.clone() });
    }
    let domain = scope.get("domain").is_some_and(is_domain) && known.roles(&login.user, DOMAIN).is_some();
    if domain { Ok(Scope::Domain) } else { Err(unauthorized()) }
}

type Issued = (u16, Vec<(&'static str, String)>, Value);

fn issue(world: &mut World, login: &Login, scope: Scope) -> Result<Issued, Problem> {
    let secret = format!("gAAAAA{}", world.hex(177));
    let expires = login.expires.unwrap_or_else(|| ends(world, world.options.token_lifetime));
    let audit = world.hex(22);
    let user = world.identity.users.get(&login.user).ok_or_else(unauthorized)?;
    let stamp = |time: Timestamp| json!(time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string());
    let domain = json!({"id": DOMAIN, "name": "Default"});
    let shown = json!({"domain": domain, "id": login.user, "name": user.name, "password_expires_at": null});
    let mut token: Vec<(&str, Value)> = vec![
        ("methods", json!(login.methods)),
        ("user", shown),
        ("audit_ids", json!([audit])),
        ("expires_at", stamp(expires)),
        ("issued_at", stamp(world.now())),
    ];
    let place = match &scope {
        Scope::None => None,
        Scope::Domain => Some(DOMAIN.to_owned()),
        Scope::Project(project) | Scope::Trust { project, .. } => Some(project.clone()),
    };
    match &scope {
        Scope::Trust { id, .. } => {
            let user = json!({"id": login.user});
            let trust = json!({"id": id, "trustor_user": user, "trustee_user": user, "impersonation": true});
            token.push(("OS-TRUST:trust", trust));
        }
        Scope::Project(_) => token.push(("is_domain", json!(false))),
        Scope::Domain => token.push(("domain", domain.clone())),
        Scope::None => {}
    }
    let mut admin = false;
    if let Some(place) = place {
        if let Some(name) = world.identity.projects.get(&place) {
            token.push(("project", json!({"domain": domain, "id": place, "name": name})));
        }
        let roles = world.identity.roles(&login.user, &place).cloned().unwrap_or_default();
        admin = roles.iter().any(|role| role == "admin");
        let role = |(number, name): (u32, &String)| json!({"id": format!("{number:032x}"), "name": name});
        token.push(("roles", (1..).zip(&roles).map(role).collect()));
        token.push(("catalog", catalog(world)));
    }
    if let Some(id) = &login.credential {
        let name = world.identity.credentials.get(id).map(|credential| credential.name.as_str());
        token.push(("application_credential", json!({"id": id, "name": name, "restricted": true})));
    }
    let known = Token { user: login.user.clone(), scope, methods: login.methods.clone(), expires, admin };
    world.identity.tokens.insert(secret.clone(), known);
    let headers = vec![("x-subject-token", secret), ("vary", "X-Auth-Token".to_owned())];
    let token = token.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok((201, headers, Value::Object(token)))
}

/// `GET /` and `GET /v3`
pub(super) fn versions(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let version = json!({
        "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/identity/v3/", world.url)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    });
    Ok(if call.path.trim_end_matches('/').ends_with("v3") {
        Reply::json(200, &json!({ "version": version }))
    } else {
        Reply::json(300, &json!({"versions": {"values": [version]}}))
    })
}
