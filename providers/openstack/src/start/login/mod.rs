//! The login to Keystone as data: URL and body.
//!
//! Upstream: `openstack/clientconfig/requests.go` of gophercloud/utils, `auth_options.go` and
//! `openstack/utils/choose_version.go` of gophercloud.

use std::fmt;

use ccm_kit::gcfg::table::refuse;
use ccm_provider::{Finding, ProviderError, Severity};
use http::Uri;
use serde_json::{Map, Value, json};

use super::config::Global;

#[cfg(test)]
mod tests;

/// A login.
#[derive(Clone)]
pub(crate) struct Login {
    /// The Keystone URL, without a trailing slash: of version 3, or of the list of versions.
    pub(crate) identity_url: String,
    /// Whether the versions must be listed first, see [`choose_version`].
    pub(crate) needs_discovery: bool,
    /// The authentication method.
    pub(crate) method: Method,
    /// The body of the POST to `auth/tokens`. Contains secrets.
    pub(crate) body: Value,
    /// The keys in `[Global]` with which it logs in.
    pub(crate) keys: Vec<&'static str>,
    /// The file that has them.
    pub(crate) file: Option<String>,
}

/// Authentication methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Password,
    ApplicationCredential,
    Trust,
    Token,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity_url, needs_discovery, method, body: _, keys: _, file: _ } = self;
        write!(f, "Login {{ {method:?} at {identity_url}, needs_discovery: {needs_discovery} }}")
    }
}

impl Login {
    /// The login that `[Global]` describes, and warnings. The error names all keys that are missing or in conflict.
    pub(crate) fn from(global: &Global) -> Result<(Self, Vec<Finding>), ProviderError> {
        let method = method(global);
        let mut check = Check { global, findings: Vec::new() };
        let (identity_url, needs_discovery) = check.identity(method);
        let (name, secret) = match method {
            Method::ApplicationCredential => ("application_credential", check.application_credential()),
            Method::Password => ("password", check.password()),
            Method::Trust => ("password", check.trustee()),
            Method::Token => ("token", json!({"id": global.token.0})),
        };
        let scope = check.scope(method);
        let mut auth = json!({"identity": {"methods": [name], name: secret}});
        if let (Some(scope), Some(auth)) = (scope, auth.as_object_mut()) {
            auth.insert("scope".to_owned(), scope);
        }
        refuse("the OpenStack login is not complete", &check.findings)?;
        let (body, keys) = (json!({"auth": auth}), keys(method, global));
        Ok((Self { identity_url, needs_discovery, method, body, keys, file: None }, check.findings))
    }

    /// Who logs in where, and what says so, without secrets.
    pub(crate) fn account(&self) -> String {
        let text = |place: &str| self.body.pointer(&format!("/auth/{place}")).and_then(Value::as_str);
        let named = |what: &str, place: &str| {
            let name = text(&format!("{place}/name")).or_else(|| text(&format!("{place}/id")))?;
            let domain = text(&format!("{place}/domain/name")).or_else(|| text(&format!("{place}/domain/id")));
            let domain = domain.map(|domain| format!(" of domain {domain:?}")).unwrap_or_default();
            Some(format!("{what} {name:?}{domain}"))
        };
        let parts = [
            named("application credential", "identity/application_credential"),
            named("user", "identity/application_credential/user"),
            named("user", "identity/password/user"),
            named("project", "scope/project"),
            named("domain", "scope/domain"),
            named("trust", "scope/OS-TRUST:trust"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let of_file =
            self.file.as_ref().map(|file| format!("; [Global] {} of {file}", self.keys.join(", "))).unwrap_or_default();
        format!("{} at {}{of_file}", parts.join(", "), self.identity_url)
    }
}

/// An application credential takes precedence: it is meant for programs.
fn method(global: &Global) -> Method {
    let credential = [&global.application_credential_id, &global.application_credential_name];
    if credential.iter().any(|part| !part.is_empty()) || !global.application_credential_secret.is_empty() {
        return Method::ApplicationCredential;
    }
    match (global.trust_id.is_empty(), global.token.is_empty()) {
        (false, _) => Method::Trust,
        (true, false) => Method::Token,
        (true, true) => Method::Password,
    }
}

/// The keys that say who logs in, and the secret.
fn keys(method: Method, global: &Global) -> Vec<&'static str> {
    let user = [("user-id", &global.user_id), ("username", &global.username)];
    let trustee = [("trustee-id", &global.trustee_id), ("user-id", &global.user_id), ("username", &global.username)];
    let credential = [
        ("application-credential-id", &global.application_credential_id),
        ("application-credential-name", &global.application_credential_name),
    ];
    let secret = [("application-credential-secret", &global.application_credential_secret.0)];
    let passwords = [("trustee-password", &global.trustee_password.0), ("password", &global.password.0)];
    let [_, password] = passwords;
    let groups: &[&[(&'static str, &String)]] = match method {
        Method::ApplicationCredential => &[&credential, &secret],
        Method::Password => &[&user, &[password]],
        Method::Trust => &[&[("trust-id", &global.trust_id)], &trustee, &passwords],
        Method::Token => &[&[("token", &global.token.0)]],
    };
    let set = groups.iter().filter_map(|group| group.iter().find(|(_, value)| !value.is_empty()));
    set.map(|(key, _)| *key).collect()
}

/// `[Global]`, and its problems.
struct Check<'a> {
    global: &'a Global,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn error(&mut self, key: &str, message: &str) {
        self.findings.push(Finding::new(Severity::Error, format!("[Global] {key}"), message));
    }

    fn warn(&mut self, key: &str, message: &str) {
        self.findings.push(Finding::new(Severity::Warning, format!("[Global] {key}"), message));
    }

    fn identity(&mut self, method: Method) -> (String, bool) {
        match identity(&self.global.auth_url) {
            // A trust requires version 3; as upstream, the versions are not listed.
            Ok((base, true)) if method == Method::Trust => (format!("{base}/v3"), false),
            Ok(found) => found,
            Err(problem) => {
                self.error("auth-url", &problem);
                Default::default()
            }
        }
    }

    fn application_credential(&mut self) -> Value {
        let global = self.global;
        let ignored = [("password", &global.password), ("token", &global.token)];
        for (key, _) in ignored.into_iter().filter(|(_, secret)| !secret.is_empty()) {
            self.warn(key, "ignored: the application credential is used");
        }
        if !global.trust_id.is_empty() {
            self.error("trust-id", "not possible together with application-credential-*; remove one of them");
        }
        let secret = &global.application_credential_secret.0;
        if secret.is_empty() {
            self.error("application-credential-secret", "needed for the application credential");
        }
        let (id, name) = (&global.application_credential_id, &global.application_credential_name);
        if !id.is_empty() {
            return json!({"id": id, "secret": secret});
        }
        if name.is_empty() {
            self.error("application-credential-id", "needed, or application-credential-name");
        }
        // As upstream: a user ID takes precedence over a user name and domain.
        let user = if global.user_id.is_empty() { self.user() } else { object("id", &global.user_id) };
        json!({"name": name, "secret": secret, "user": user})
    }

    fn password(&mut self) -> Value {
        let user = self.user();
        let password = &self.global.password.0;
        if password.is_empty() {
            self.error("password", "needed; or log in by application-credential-id, trust-id or token");
        }
        with_password(user, password)
    }

    fn trustee(&mut self) -> Value {
        let global = self.global;
        let user = match global.trustee_id.as_str() {
            "" => self.user(),
            id => object("id", id),
        };
        if !global.token.is_empty() {
            self.warn("token", "ignored: trust-id is used");
        }
        let secrets = [&global.trustee_password, &global.password];
        let Some(password) = secrets.into_iter().find(|secret| !secret.is_empty()) else {
            self.error("trustee-password", "needed with trust-id, or password");
            return Value::Null;
        };
        with_password(user, &password.0)
    }

    /// The user by ID, or by name and domain.
    fn user(&mut self) -> Map<String, Value> {
        let global = self.global;
        let (id, name) = (&global.user_id, &global.username);
        let (domain_id, domain_name) = (&global.user_domain_id, &global.user_domain_name);
        if !id.is_empty() {
            if !name.is_empty() {
                self.error("user-id", "not possible together with username; remove one of them");
            }
            for (key, domain) in [("user-domain-id", domain_id), ("user-domain-name", domain_name)] {
                if !domain.is_empty() {
                    self.error(key, "not possible together with user-id, which needs no domain; remove it");
                }
            }
            return object("id", id);
        }
        if name.is_empty() {
            self.error("username", "needed, or user-id");
        }
        let has_own = !(domain_id.is_empty() && domain_name.is_empty());
        let (domain_id, domain_name) =
            if has_own { (domain_id, domain_name) } else { (&global.domain_id, &global.domain_name) };
        let domain = match (domain_id.as_str(), domain_name.as_str()) {
            ("", "") => {
                self.error("user-domain-name", "needed with username, or user-domain-id, domain-id or domain-name");
                return Map::new();
            }
            ("", name) => object("name", name),
            (id, "") => object("id", id),
            _ if has_own => {
                self.error("user-domain-id", "not possible together with user-domain-name; remove one of them");
                return Map::new();
            }
            _ => {
                self.error("domain-id", "not possible together with domain-name; remove one of them");
                return Map::new();
            }
        };
        let mut user = object("name", name);
        user.insert("domain".to_owned(), domain.into());
        user
    }

    /// The scope of the token.
    fn scope(&mut self, method: Method) -> Option<Value> {
        let global = self.global;
        match method {
            // The credential implies its scope.
            Method::ApplicationCredential => return None,
            Method::Trust => return Some(json!({"OS-TRUST:trust": {"id": global.trust_id}})),
            Method::Password | Method::Token => {}
        }
        if !global.tenant_id.is_empty() {
            return Some(json!({"project": {"id": global.tenant_id}}));
        }
        if global.tenant_name.is_empty() {
            let domain = either(&global.domain_id, &global.domain_name);
            match method {
                _ if domain.is_some() => {}
                Method::Token => self.error("token", "needs a project: set tenant-id, or tenant-name and its domain"),
                _ => self.warn(
                    "tenant-id",
                    "neither this nor tenant-name is set: Keystone takes the user's default project, if any",
                ),
            }
            return domain.map(|domain| json!({"domain": domain}));
        }
        // As upstream: an ID takes precedence over a name, even if the ID is the general one.
        let of = |own: &str, general: &str| if own.is_empty() { general.to_owned() } else { own.to_owned() };
        let id = of(&global.tenant_domain_id, &global.domain_id);
        let domain = either(&id, &of(&global.tenant_domain_name, &global.domain_name));
        if domain.is_none() {
            self.error("tenant-domain-name", "needed with tenant-name, or tenant-domain-id, domain-id or domain-name");
        }
        Some(json!({"project": {"name": global.tenant_name, "domain": domain}}))
    }
}

fn object(key: &str, value: &str) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value.into())])
}

/// By ID, else by name.
fn either(id: &str, name: &str) -> Option<Map<String, Value>> {
    match (id, name) {
        ("", "") => None,
        ("", name) => Some(object("name", name)),
        (id, _) => Some(object("id", id)),
    }
}

fn with_password(mut user: Map<String, Value>, password: &str) -> Value {
    user.insert("password".to_owned(), password.into());
    json!({"user": user})
}

/// The Keystone URL without a trailing slash, and whether its versions must be listed first.
fn identity(auth_url: &str) -> Result<(String, bool), String> {
    if auth_url.is_empty() {
        return Err("needed: the URL of Keystone, here or as auth_url in clouds.yaml".to_owned());
    }
    let uri = auth_url.parse::<Uri>().ok();
    let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?, uri.path())));
    let Some((scheme @ ("http" | "https"), host, path)) = parts else {
        return Err("not a URL; write https://host:port/v3".to_owned());
    };
    if host.as_str().contains('@') {
        return Err("must not name a user; write https://host:port/v3".to_owned());
    }
    let path = path.trim_end_matches('/');
    let mut parts: Vec<&str> = path.split('/').collect();
    let last = parts.last().copied();
    if last == Some("v2.0") {
        return Err("version 2.0 of Keystone is obsolete; end the URL with /v3, or without a version".to_owned());
    }
    if last != Some("v3") {
        parts.truncate(parts.iter().position(|part| is_version(part)).unwrap_or(parts.len()));
    }
    Ok((format!("{scheme}://{host}{}", parts.join("/").trim_end_matches('/')), last != Some("v3")))
}

/// `v3`, `v2.0`
fn is_version(part: &str) -> bool {
    let digits = part.strip_prefix('v').unwrap_or_default();
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())
}

/// The URL of version 3, without a trailing slash, from the list of versions at the base URL.
pub(crate) fn choose_version(document: &Value, asked: &str) -> Result<String, String> {
    let versions = document.pointer("/versions/values").and_then(Value::as_array);
    let text = |version: &Value, key: &str| version.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let link = |version: &Value| {
        let links = version.get("links")?.as_array()?;
        let own = links.iter().find(|link| text(link, "rel") == "self")?;
        Some(text(own, "href").trim_end_matches('/').to_owned()).filter(|href| !href.is_empty())
    };
    let (mut best, mut seen): (Option<(Vec<u32>, String)>, Vec<String>) = (None, Vec::new());
    for version in versions.into_iter().flatten() {
        let (id, status) = (text(version, "id"), text(version, "status"));
        let is_usable = id.contains("v3") && ["current", "supported", "stable"].contains(&&*status.to_lowercase());
        let number: Vec<u32> = id
            .trim_start_matches(|c: char| !c.is_ascii_digit())
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect();
        if let (true, Some(link)) = (is_usable, link(version))
            && best.as_ref().is_none_or(|(highest, _)| number > *highest)
        {
            best = Some((number, link));
        }
        seen.push(format!("{id} ({status})"));
    }
    best.map(|(_, link)| encrypted(link, asked)).ok_or_else(|| match seen.as_slice() {
        [] => "the answer lists no version of Keystone; does [Global] auth-url name Keystone?".to_owned(),
        seen => format!("no usable version 3 of Keystone, only {}; see [Global] auth-url", seen.join(", ")),
    })
}

/// The link, with the beginning of the URL that was asked if that is encrypted and the link is not: behind a proxy that
/// ends TLS, Keystone may not know, and the password would be readable.
fn encrypted(link: String, asked: &str) -> String {
    let Some((plain, beginning)) = link.strip_prefix("http://").zip(asked.strip_prefix("https://")) else {
        return link;
    };
    let path = plain.split_once('/').map_or("", |(_, path)| path);
    let host = beginning.split('/').next().unwrap_or_default();
    let secure = format!("https://{host}/{path}");
    tracing::warn!(link, used = secure, "Keystone names a URL without encryption, while [Global] auth-url has it");
    secure
}
