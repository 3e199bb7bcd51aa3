use ccm_provider::ErrorClass;

use super::*;
use crate::start::config::Config;

const URL: &str = "auth-url = https://keystone/v3\n";
const USER: &str = "username = n\npassword = hunter2\nuser-domain-id = ud\n";

fn global(conf: &str) -> Global {
    Config::parse(Some(&format!("[Global]\n{conf}\n"))).unwrap_or_else(|error| panic!("{conf}\n{error}")).0.global
}

/// The login, and its warnings.
fn login(conf: &str) -> (Login, Vec<String>) {
    let (login, findings) = Login::from(&global(conf)).unwrap_or_else(|error| panic!("{conf}\n{error}"));
    (login, findings.iter().map(ToString::to_string).collect())
}

/// The body of a login without warnings.
fn auth(conf: &str) -> Value {
    let (login, findings) = login(&format!("{URL}{conf}"));
    assert_eq!(findings, Vec::<String>::new(), "{conf}");
    login.body.get("auth").unwrap().clone()
}

fn bad(conf: &str) -> String {
    let error = Login::from(&global(conf)).expect_err(conf);
    assert!(matches!(error.class(), ErrorClass::Invalid { findings } if !findings.is_empty()));
    assert!(!error.to_string().contains("hunter2"));
    error.to_string().replace("the OpenStack login is not complete: ", "").replace("[Global] ", "")
}

#[test]
fn a_password_with_a_project_by_name() {
    let user = json!({"name": "n", "password": "hunter2", "domain": {"id": "ud"}});
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    let expected = json!({"identity": identity, "scope": {"project": {"name": "p", "domain": {"name": "pd"}}}});
    assert_eq!(auth(&format!("{USER}tenant-name = p\ntenant-domain-name = pd")), expected);
}

#[test]
fn a_password_with_a_user_by_id() {
    let user = json!({"id": "u", "password": "hunter2"});
    let expected = json!({
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": "p", "domain": {"id": "d"}}},
    });
    assert_eq!(auth("user-id = u\npassword = hunter2\ndomain-id = d\ntenant-name = p"), expected);
}

/// Pitfall 8.
#[test]
fn a_project_by_id_is_sent_without_name_and_domain() {
    let conf = format!("{USER}tenant-id = t\ntenant-domain-name = pd\ntenant-name = p");
    assert_eq!(auth(&conf)["scope"], json!({"project": {"id": "t"}}));
}

/// Pitfall 9.
#[test]
fn the_general_domain_is_that_of_user_and_project() {
    let auth = auth("username = n\npassword = p\ndomain-id = d\ntenant-name = t");
    assert_eq!(auth["identity"]["password"]["user"]["domain"], json!({"id": "d"}));
    assert_eq!(auth["scope"], json!({"project": {"name": "t", "domain": {"id": "d"}}}));
}

#[test]
fn without_a_project_the_scope_is_the_domain() {
    assert_eq!(auth(&format!("{USER}domain-name = d"))["scope"], json!({"domain": {"name": "d"}}));
    assert_eq!(auth(&format!("{USER}domain-name = d\ndomain-id = i"))["scope"], json!({"domain": {"id": "i"}}));
    let (login, findings) = login(&format!("{URL}{USER}"));
    assert_eq!(login.body["auth"].get("scope"), None);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].contains("the user's default project"), "{findings:?}");
}

/// Pitfall 10.
#[test]
fn an_application_credential_wins_over_a_password_and_has_no_scope() {
    let conf = "application-credential-id = a\napplication-credential-secret = s\ntenant-id = t\n";
    let credential = json!({"id": "a", "secret": "s"});
    let expected = json!({"identity": {"methods": ["application_credential"], "application_credential": credential}});
    assert_eq!(auth(conf), expected);
    let (login, findings) = login(&format!("{URL}{USER}{conf}"));
    assert_eq!((login.body, login.method), (json!({"auth": expected}), Method::ApplicationCredential));
    assert_eq!(findings, ["[Global] password: ignored: the application credential is used"]);
}

#[test]
fn an_application_credential_by_name_has_the_user() {
    let conf = "application-credential-name = a\napplication-credential-secret = s\n";
    let credential = |conf: &str| auth(conf)["identity"]["application_credential"].clone();
    let expected = json!({"name": "a", "secret": "s", "user": {"name": "n", "domain": {"name": "d"}}});
    assert_eq!(credential(&format!("{conf}username = n\ndomain-name = d")), expected);
    assert_eq!(credential(&format!("{conf}user-id = u"))["user"], json!({"id": "u"}));
    let all = "user-id = u\nusername = n\nuser-domain-name = d\ndomain-id = default";
    assert_eq!(credential(&format!("{conf}{all}"))["user"], json!({"id": "u"}), "upstream takes the ID");
}

/// Pitfall 11.
#[test]
fn a_trust_is_the_only_scope_and_the_trustee_replaces_the_user() {
    let conf = format!("{USER}tenant-id = t\ntrust-id = tr\n");
    let expected = json!({
        "identity": {"methods": ["password"], "password": {"user": {"id": "te", "password": "tp"}}},
        "scope": {"OS-TRUST:trust": {"id": "tr"}},
    });
    assert_eq!(auth(&format!("{conf}trustee-id = te\ntrustee-password = tp")), expected);
    let user = auth(&conf)["identity"]["password"]["user"].clone();
    assert_eq!(user, json!({"name": "n", "password": "hunter2", "domain": {"id": "ud"}}));
    let (login, findings) = login(&format!("auth-url = https://k/id\n{conf}token = x"));
    assert_eq!((login.identity_url.as_str(), login.needs_discovery), ("https://k/id/v3", false));
    assert_eq!(findings, ["[Global] token: ignored: trust-id is used"]);
}

#[test]
fn a_token_replaces_the_user_and_needs_a_scope() {
    let expected = json!({
        "identity": {"methods": ["token"], "token": {"id": "hunter2"}},
        "scope": {"project": {"id": "t"}},
    });
    assert_eq!(auth("token = hunter2\nusername = n\npassword = p\ntenant-id = t"), expected);
    let message = bad(&format!("{URL}token = hunter2"));
    assert_eq!(message, "token: needs a project: set tenant-id, or tenant-name and its domain");
}

#[test]
fn what_is_missing_or_contradicts_is_named_by_its_keys() {
    let credential = "application-credential-secret = hunter2\n";
    for (conf, expected) in [
        (
            "",
            "username: needed, or user-id; \
             user-domain-name: needed with username, or user-domain-id, domain-id or domain-name; \
             password: needed; or log in by application-credential-id, trust-id or token",
        ),
        ("username = n\nuser-id = u\npassword = p", "user-id: not possible together with username; remove one of them"),
        (
            "username = n\npassword = p",
            "user-domain-name: needed with username, or user-domain-id, domain-id or domain-name",
        ),
        (
            "username = n\npassword = p\nuser-domain-id = a\nuser-domain-name = b",
            "user-domain-id: not possible together with user-domain-name; remove one of them",
        ),
        (
            "username = n\npassword = p\ndomain-id = a\ndomain-name = b",
            "domain-id: not possible together with domain-name; remove one of them",
        ),
        (
            "user-id = n\npassword = p\nuser-domain-name = b",
            "user-domain-name: not possible together with user-id, which needs no domain; remove it",
        ),
        ("user-id = n", "password: needed; or log in by application-credential-id, trust-id or token"),
        (
            "user-id = n\npassword = p\ntenant-name = p",
            "tenant-domain-name: needed with tenant-name, or tenant-domain-id, domain-id or domain-name",
        ),
        ("application-credential-id = a", "application-credential-secret: needed for the application credential"),
        (&format!("{credential}user-id = u"), "application-credential-id: needed, or application-credential-name"),
        (
            &format!("{credential}application-credential-name = a"),
            "username: needed, or user-id; \
             user-domain-name: needed with username, or user-domain-id, domain-id or domain-name",
        ),
        (
            &format!("{credential}application-credential-id = a\ntrust-id = t"),
            "trust-id: not possible together with application-credential-*; remove one of them",
        ),
        ("user-id = u\ntrust-id = t", "trustee-password: needed with trust-id, or password"),
    ] {
        // A missing scope is only a warning.
        assert_eq!(bad(&format!("{URL}{conf}")), expected, "{conf}");
    }
    for (url, expected) in [
        ("", "needed: the URL of Keystone, here or as auth_url in clouds.yaml"),
        ("keystone:5000", "not a URL; write https://host:port/v3"),
        ("ftp://keystone", "not a URL; write https://host:port/v3"),
        ("https://n:hunter2@keystone/v3", "must not name a user; write https://host:port/v3"),
        ("https://keystone/v2.0/", "version 2.0 of Keystone is obsolete; end the URL with /v3, or without a version"),
    ] {
        assert_eq!(bad(&format!("auth-url = {url}\n{USER}")), format!("auth-url: {expected}"), "{url}");
    }
}

/// Pitfall 12.
#[test]
fn only_a_url_without_version_3_needs_the_list_of_versions() {
    for (url, identity_url, needs_discovery) in [
        ("https://k:5000", "https://k:5000", true),
        ("https://k:5000/", "https://k:5000", true),
        ("https://k/identity", "https://k/identity", true),
        ("https://k/identity/v3", "https://k/identity/v3", false),
        ("https://k/identity/v3/", "https://k/identity/v3", false),
        ("http://k/v3?a=b", "http://k/v3", false),
        ("https://k/v3/auth", "https://k", true),
        ("https://k/vault/v3.14/", "https://k/vault", true),
        ("https://[::1]:5000/v3", "https://[::1]:5000/v3", false),
    ] {
        let (login, _) = login(&format!("auth-url = {url}\n{USER}tenant-id = t"));
        assert_eq!((login.identity_url.as_str(), login.needs_discovery), (identity_url, needs_discovery), "{url}");
    }
}

fn version(id: &str, status: &str, href: &str) -> Value {
    json!({"id": id, "status": status, "links": [{"rel": "help", "href": "x"}, {"rel": "self", "href": href}]})
}

/// Pitfall 12.
#[test]
fn the_highest_usable_version_3_is_chosen_by_its_link() {
    let choose = |versions: &[Value]| choose_version(&json!({"versions": {"values": versions}}), "http://k/");
    let all = [
        version("v2.0", "deprecated", "https://k/v2.0/"),
        version("v3.9", "SUPPORTED", "https://k/v3.9/"),
        version("v3.14", "stable", "https://k/v3/"),
        version("v3.20", "experimental", "https://k/v3.20/"),
        json!({"id": "v3.19", "status": "stable", "links": []}),
    ];
    assert_eq!(choose(&all), Ok("https://k/v3".to_owned()));
    assert_eq!(
        choose(&all[..1]),
        Err("no usable version 3 of Keystone, only v2.0 (deprecated); see [Global] auth-url".to_owned())
    );
    let strange = "the answer lists no version of Keystone; does [Global] auth-url name Keystone?";
    assert_eq!(choose_version(&json!({"versions": [1]}), "http://k/"), Err(strange.to_owned()));
}

#[test]
fn a_link_does_not_take_the_encryption_away() {
    let chosen = |link: &str, asked: &str| {
        choose_version(&json!({"versions": {"values": [version("v3.14", "stable", link)]}}), asked).unwrap()
    };
    assert_eq!(chosen("http://inside:5000/v3/", "https://k:13000/"), "https://k:13000/v3");
    assert_eq!(chosen("http://inside:5000/v3/", "http://k:5000/"), "http://inside:5000/v3");
    assert_eq!(chosen("https://other/v3/", "https://k/"), "https://other/v3");
}

#[test]
fn a_login_shows_no_secret() {
    let (login, _) = login(&format!("{URL}{USER}tenant-id = t"));
    assert_eq!(format!("{login:?}"), "Login { Password at https://keystone/v3, needs_discovery: false }");
}

#[test]
fn the_account_has_user_project_and_domains_and_no_secret() {
    for (conf, account) in [
        (
            format!("{USER}tenant-name = p\ntenant-domain-name = pd"),
            "user \"n\" of domain \"ud\", project \"p\" of domain \"pd\" at https://keystone/v3",
        ),
        (
            "application-credential-id = a\napplication-credential-secret = hunter2".to_owned(),
            "application credential \"a\" at https://keystone/v3",
        ),
        (format!("{USER}trust-id = t"), "user \"n\" of domain \"ud\", trust \"t\" at https://keystone/v3"),
        ("token = hunter2\ntenant-id = t".to_owned(), "project \"t\" at https://keystone/v3"),
    ] {
        let (login, _) = login(&format!("{URL}{conf}"));
        assert_eq!(login.account(), account, "{conf}");
    }
}

#[test]
fn the_keys_of_a_login_are_those_that_are_set() {
    for (conf, keys) in [
        (format!("{USER}tenant-id = p"), "username, password"),
        ("user-id = u\npassword = hunter2\ntenant-id = p".to_owned(), "user-id, password"),
        (
            "application-credential-id = a\napplication-credential-secret = hunter2".to_owned(),
            "application-credential-id, application-credential-secret",
        ),
        (format!("{USER}trust-id = t"), "trust-id, username, password"),
        ("token = hunter2\ntenant-id = t".to_owned(), "token"),
    ] {
        let (login, _) = login(&format!("{URL}{conf}"));
        let login = Login { file: Some("/etc/cloud.conf".to_owned()), ..login };
        let account = login.account();
        assert!(account.ends_with(&format!("; [Global] {keys} of /etc/cloud.conf")), "{account}");
        assert!(!account.contains("hunter2"), "{account}");
    }
}
