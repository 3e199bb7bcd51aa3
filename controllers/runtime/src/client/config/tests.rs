//! The settings of a connection, from kubeconfigs and the environment.

use super::*;

fn chosen(target: &str, environment: &[(&str, &str)]) -> Option<String> {
    let variable = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let proxy = environment_proxy(&target.parse().unwrap(), variable).unwrap_or_else(|e| panic!("{e}"));
    proxy.map(|proxy| proxy.address.to_string())
}

#[test]
fn the_proxy_of_the_environment_is_taken_by_the_scheme_and_the_host_of_the_api_server() {
    let both = [("HTTPS_PROXY", "http://a:1"), ("http_proxy", "http://b:2")];
    assert_eq!(chosen("https://api.example:6443", &both).as_deref(), Some("http://a:1/"));
    assert_eq!(chosen("http://api.example:8080", &both).as_deref(), Some("http://b:2/"));
    for (no, proxied) in
        [("api.example", false), (".example", false), ("other.example", true), ("a", true), ("*", false)]
    {
        let environment = [both[0], both[1], ("NO_PROXY", no)];
        assert_eq!(chosen("https://api.example:6443", &environment).is_some(), proxied, "{no}");
    }
    let cidr = [both[0], ("NO_PROXY", "10.0.0.0/8,fd00::/8")];
    assert_eq!(chosen("https://10.1.2.3:6443", &cidr), None);
    assert_eq!(chosen("https://[fd00::1]:6443", &cidr), None);
    assert!(chosen("https://11.1.2.3:6443", &cidr).is_some());
}

#[test]
fn this_machine_is_never_reached_through_a_proxy_of_the_environment() {
    for target in ["https://localhost:6443", "https://127.0.0.1:6443", "https://[::1]:6443"] {
        assert_eq!(chosen(target, &[("HTTPS_PROXY", "http://a:1")]), None, "{target}");
    }
}

#[test]
fn the_users_name_goes_to_the_proxy_and_not_into_its_address() {
    let proxy = given_proxy("k", "http://me:p%40ss@proxy:3128", &"https://api".parse().unwrap()).ok().unwrap();
    assert_eq!(proxy.address.to_string(), "http://proxy:3128/");
    // me:p@ss
    assert_eq!(proxy.authorization.unwrap(), "Basic bWU6cEBzcw==");
}

#[test]
fn a_master_without_scheme_is_https_where_the_kubeconfig_has_tls() {
    let text = |master, tls| address(master, tls).unwrap().to_string();
    assert_eq!(text("10.0.0.1:8080", false), "http://10.0.0.1:8080/");
    assert_eq!(text("10.0.0.1:6443", true), "https://10.0.0.1:6443/");
    assert_eq!(
        text("https://[2001:db8::1]:6443/k8s/clusters/c-1", false),
        "https://[2001:db8::1]:6443/k8s/clusters/c-1"
    );
    for bad in ["ftp://x", "https://", "a b", "2001:db8::1"] {
        let error = master_address(bad, false).unwrap_err().to_string();
        assert!(error.contains("--master") && error.contains("give something like"), "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_context_and_a_user_are_chosen_as_in_kubectl() {
    let path = std::env::temp_dir().join(format!("ccm-contexts-{}", std::process::id()));
    let text = "current-context: a\n\
         clusters:\n- {name: a, cluster: {server: 'https://a:1'}}\n- {name: b, cluster: {server: 'https://b:2'}}\n\
         users: [{name: u, user: {token: t}}]\n\
         contexts:\n- {name: a, context: {cluster: a, user: u}}\n\
         - {name: b, context: {cluster: b, user: u, namespace: shop}}\n";
    std::fs::write(&path, text).unwrap();
    let other = path.with_extension("more");
    let more = "current-context: d\nclusters: [{name: a, cluster: {server: 'https://x:9'}}]\n\
         contexts: [{name: d, context: {cluster: a, user: u, namespace: docs}}]\n";
    std::fs::write(&other, more).unwrap();
    let with = |context: &str| {
        let access = Access {
            more: vec![other.display().to_string()],
            context: context.to_owned(),
            user: "jane".to_owned(),
            groups: vec!["dev".to_owned()],
            timeout: None,
        };
        ConnectOptions { kubeconfig: path.display().to_string(), access, ..ConnectOptions::default() }
    };
    let config = load(&with("b")).await.ok().unwrap().config;
    assert_eq!(config.cluster_url.to_string(), "https://b:2/");
    assert_eq!(config.auth_info.impersonate.as_deref(), Some("jane"));
    assert_eq!(config.auth_info.impersonate_groups, Some(vec!["dev".to_owned()]));
    let namespace = |context| context_namespace(&with(context).kubeconfig, &with(context).access);
    assert_eq!((namespace("").as_deref(), namespace("b").as_deref()), (None, Some("shop")));
    // The first of several files wins.
    assert_eq!(namespace("d").as_deref(), Some("docs"));
    let address = async |context: &str| load(&with(context)).await.ok().unwrap().config.cluster_url.to_string();
    assert_eq!((&*address("").await, &*address("d").await), ("https://a:1/", "https://a:1/"));
    let error = load(&with("c")).await.err().unwrap().to_string();
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&other).unwrap();
    assert!(error.ends_with("--context=c: no such context; it has a, b, d"), "{error}");
}

#[tokio::test]
async fn an_error_in_a_kubeconfig_quotes_no_secret() {
    let folder = std::env::temp_dir().join(format!("ccm-kubeconfig-{}", std::process::id()));
    std::fs::write(&folder, "users:\n- name: u\n  user:\n    token: geheim\n  : [\n").unwrap();
    let options = ConnectOptions { kubeconfig: folder.display().to_string(), ..Default::default() };
    let error = load(&options).await.err().unwrap().to_string();
    std::fs::remove_file(&folder).unwrap();
    assert!(error.starts_with("the kubeconfig ") && error.contains("line"), "{error}");
    assert!(!error.contains("geheim"), "{error}");
}

/// The settings of a kubeconfig with these keys of the cluster and the user.
async fn loaded(name: &str, cluster: &str, user: &str, master: &str) -> Result<kube::Config, String> {
    let path = std::env::temp_dir().join(format!("ccm-{name}-{}", std::process::id()));
    let text = format!(
        "current-context: c\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(&path, text).unwrap();
    let (kubeconfig, master) = (path.display().to_string(), master.to_owned());
    let setup = load(&ConnectOptions { kubeconfig, master, ..ConnectOptions::default() }).await;
    std::fs::remove_file(&path).unwrap();
    setup.map(|setup| setup.config).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_token_of_a_file_has_no_newline_and_comes_before_an_inline_one() {
    let path = std::env::temp_dir().join(format!("ccm-token-{}", std::process::id()));
    let file = path.display().to_string();
    let token = async |user: &str| {
        let config = loaded("token-file", "server: 'https://a:1'", user, "").await?;
        let auth = serde_json::to_value(&config.auth_info).unwrap();
        Ok::<_, String>((auth["token"].as_str().map(str::to_owned), config.auth_info.token_file))
    };
    let is = |token: &str| Ok((Some(token.to_owned()), None));
    std::fs::write(&path, " of-the-file\n").unwrap();
    assert_eq!(token(&format!("tokenFile: '{file}'")).await, is("of-the-file"));
    assert_eq!(token(&format!("tokenFile: '{file}', token: inline")).await, is("of-the-file"));
    std::fs::write(&path, "\n").unwrap();
    let error = token(&format!("tokenFile: '{file}'")).await.unwrap_err();
    assert!(error.ends_with(&format!("the token file {file}: it is empty")), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = token(&format!("tokenFile: '{file}'")).await.unwrap_err();
    assert!(error.contains(&file), "{error}");
    assert_eq!(token(&format!("tokenFile: '{file}', token: inline")).await, is("inline"));
}

#[tokio::test]
async fn an_empty_value_counts_as_absent_as_with_client_go() {
    let cluster =
        "server: 'https://a:1', tls-server-name: '', certificate-authority: '', certificate-authority-data: ''";
    let user = "username: '', password: '', token: '', tokenFile: '', client-certificate: '', client-key: '', as: '', \
                client-certificate-data: '', client-key-data: ''";
    let config = loaded("empty", cluster, user, "").await.unwrap();
    assert!(config.root_cert.is_none() && config.tls_server_name.is_none());
    assert_eq!(serde_json::to_value(&config.auth_info).unwrap(), serde_json::json!({}));
    // The current context is that of the first file that has one.
    let path = std::env::temp_dir().join(format!("ccm-no-context-{}", std::process::id()));
    let other = path.with_extension("more");
    std::fs::write(&path, "current-context: ''\n").unwrap();
    let more = "current-context: b\nclusters: [{name: b, cluster: {server: 'https://b:2'}}]\n\
         contexts: [{name: b, context: {cluster: b}}]\n";
    std::fs::write(&other, more).unwrap();
    let access = Access { more: vec![other.display().to_string()], ..Access::default() };
    let options = ConnectOptions { kubeconfig: path.display().to_string(), access, ..ConnectOptions::default() };
    let loaded = load(&options).await;
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&other).unwrap();
    assert_eq!(loaded.ok().unwrap().config.cluster_url.to_string(), "https://b:2/");
}

#[tokio::test]
async fn a_server_without_scheme_is_https_where_the_kubeconfig_has_tls() {
    for (cluster, url) in [
        ("server: '10.0.0.1:8080'", "http://10.0.0.1:8080/"),
        ("server: 'localhost:8080/'", "http://localhost:8080/"),
        ("server: '10.0.0.1:6443', insecure-skip-tls-verify: true", "https://10.0.0.1:6443/"),
    ] {
        let config = loaded("scheme", cluster, "", "").await.unwrap();
        assert_eq!(config.cluster_url.to_string(), url, "{cluster}");
    }
    let error = loaded("scheme", "server: 'ftp://a'", "", "").await.unwrap_err();
    assert!(error.contains(": server: neither http nor https; give something like"), "{error}");
    let config = loaded("scheme", "server: 'ftp://a'", "", "https://b:1").await.unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://b:1/");
}

#[tokio::test]
async fn no_credentials_go_to_a_server_without_tls() {
    let sent = async |server: &str, user: &str, master: &str| {
        let config = loaded("plain", &format!("server: '{server}'"), user, master).await.unwrap();
        serde_json::to_value(&config.auth_info).unwrap()
    };
    let jane = serde_json::json!({"as": "jane", "as-groups": ["dev"]});
    for user in ["token: t", "username: u, password: p", "tokenFile: /nonexistent", "exec: {command: /nonexistent}"] {
        let user = format!("{user}, as: jane, as-groups: [dev]");
        assert_eq!(sent("http://a:1", &user, "").await, jane, "{user}");
        assert_eq!(sent("https://a:1", &user, "http://a:1").await, jane, "{user}");
    }
    assert_eq!(sent("http://a:1", "token: t", "https://a:1").await, serde_json::json!({"token": "t"}));
}

#[tokio::test]
async fn certificates_of_a_bundle_that_cannot_be_read_are_left_out() {
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let server = ccm_cloudsim::core::silence::Silence::start("h2", "{}").await.unwrap();
    let path = std::env::temp_dir().join(format!("ccm-bundle-{}", std::process::id()));
    let cluster = format!("server: 'https://a:1', certificate-authority: '{}'", path.display());
    std::fs::write(&path, format!("{broken}{}", server.certificate())).unwrap();
    assert_eq!(loaded("authority", &cluster, "", "").await.unwrap().root_cert.unwrap().len(), 1);
    std::fs::write(&path, broken).unwrap();
    let error = loaded("authority", &cluster, "", "").await.unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("has no certificate that can be read"), "{error}");
}

#[test]
fn a_client_certificate_of_version_1_is_taken_as_it_is() {
    // Of `openssl x509 -req`, with its key.
    let first = include_bytes!("../../../../../ccm/src/serve/tests/version1.pem");
    let data = BASE64.encode(first);
    let mut auth = AuthInfo {
        client_certificate_data: Some(data.clone()),
        client_key_data: Some(data.into()),
        ..AuthInfo::default()
    };
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let identity = Identity::take(&mut auth).unwrap().unwrap();
    identity.resolver(&provider).unwrap();
    assert_eq!(serde_json::to_value(&auth).unwrap(), serde_json::json!({}));
    let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let other = Identity { certificate: other.cert.pem().into(), key: first.to_vec() };
    let error = other.resolver(&provider).unwrap_err();
    assert!(error.contains("KeyMismatch"), "{error}");
    auth.client_certificate_data = Some(BASE64.encode(first));
    assert!(Identity::take(&mut auth).is_err());
}
