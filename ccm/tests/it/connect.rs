//! Ways to connect and to authenticate to an API server.

use std::process::Command;

use rcgen::{CertificateParams, KeyPair};

use crate::kubeconfig::Kubeconfig;
use crate::process::ended;

/// The environment of a host that trusts no certificates.
const NO_AUTHORITIES: [(&str, &str); 2] = [("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")];

#[test]
fn the_certificates_of_the_host_are_needed_only_to_verify_a_server_without_its_own_authority() {
    let authority = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let refused = "Connection refused";
    for (server, cluster, ca_pem, expected) in [
        ("http://127.0.0.1:1", "", None, refused),
        ("https://127.0.0.1:1", "", Some(authority), refused),
        ("https://127.0.0.1:1", ", insecure-skip-tls-verify: true", None, refused),
        ("https://127.0.0.1:1", "", None, "No CA certificates were loaded from the system"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = Kubeconfig { server: server.into(), cluster: cluster.into(), user: String::new(), ca_pem };
        let kubeconfig = format!("--kubeconfig={}", config.write(folder.path()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
        command.args(["explain", "node/a", "--cloud-provider=fake", &kubeconfig]).envs(NO_AUTHORITIES);
        let ended = ended(command.output().unwrap());
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains(expected), "{server}{cluster}: {}", ended.stderr);
    }
}

mod real_apiserver {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ccm_test_bed::{Authority, Bed};

    use super::NO_AUTHORITIES;
    use crate::kubeconfig::{Kubeconfig, certificate_user};
    use crate::relay::{Relay, authority, prefixing, proxy};

    /// Starts, works, exits, and logs no secret.
    fn works(bed: &Bed, config: &Kubeconfig, folder: &Path, more: &[&str], environment: &[(&str, &str)]) {
        let mut process = config.start(folder, more, environment);
        process.wait_for("Started \"cloud-node-controller\"");
        process.end();
        assert!(!process.log().contains(&bed.token), "the token is in the log");
    }

    async fn connects(change: impl FnOnce(Kubeconfig, &Path) -> Kubeconfig) {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        works(bed, &change(Kubeconfig::of(bed), folder.path()), folder.path(), &[], &NO_AUTHORITIES);
    }

    #[tokio::test]
    async fn a_token_in_the_kubeconfig_works() {
        connects(|config, _| config).await;
    }

    #[tokio::test]
    async fn an_exec_plugin_works() {
        connects(|config, folder| {
            let script = folder.join("plugin.sh");
            let token = config.user.strip_prefix("token: ").unwrap();
            let answer = format!(
                r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{token}"}}}}"#
            );
            std::fs::write(&script, format!("echo '{answer}'\n")).unwrap();
            let user = format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{}'], interactiveMode: Never}}",
                script.display()
            );
            config.user(user)
        })
        .await;
    }

    #[tokio::test]
    async fn a_server_name_for_tls_is_held_against_the_certificate_instead_of_the_address() {
        connects(|config, _| config.cluster(", tls-server-name: localhost")).await;
    }

    #[tokio::test]
    async fn without_verification_no_authority_is_needed() {
        connects(|config, _| config.ca_pem(None).cluster(", insecure-skip-tls-verify: true")).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_address_of_ipv6_works() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
            let notice = "NOT RUN: this machine has no ::1";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{notice}");
            // Bypasses the test harness, which captures output.
            std::io::Write::write_all(&mut std::io::stderr(), format!("\n{notice}\n").as_bytes()).unwrap();
            return;
        };
        let relay = Relay::listening(listener, &bed.url);
        let folder = tempfile::tempdir().unwrap();
        let config = Kubeconfig::of(bed).server(format!("https://{}", relay.address));
        works(bed, &config.cluster(", tls-server-name: 127.0.0.1"), folder.path(), &[], &[]);
        assert!(relay.made() > 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_master_with_a_path_overrides_the_kubeconfig_and_its_path_begins_every_request() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let address = prefixing(&bed.url, &bed.ca_pem, "/k8s/clusters/c-1", &bed.token).await;
        let folder = tempfile::tempdir().unwrap();
        let config = Kubeconfig::of(bed).server("https://127.0.0.1:1");
        for end in ["", "/"] {
            let master = format!("--master=http://{address}/k8s/clusters/c-1{end}");
            works(bed, &config, folder.path(), &[&master], &[]);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_proxy_url_is_used() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let used = Arc::new(AtomicUsize::new(0));
        let proxy = proxy(None, used.clone()).await;
        let folder = tempfile::tempdir().unwrap();
        let config = Kubeconfig::of(bed).cluster(format!(", proxy-url: 'http://{proxy}'"));
        works(bed, &config, folder.path(), &[], &[]);
        assert!(used.load(Ordering::SeqCst) > 0, "no connection went through the proxy");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_proxy_of_the_environment_is_used_for_a_server_that_is_not_this_machine() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let used = Arc::new(AtomicUsize::new(0));
        // Only the proxy can resolve the address.
        let proxy = format!("http://me:geheim@{}", proxy(Some(authority(&bed.url)), used.clone()).await);
        let folder = tempfile::tempdir().unwrap();
        let config = Kubeconfig::of(bed).server("https://api.invalid:6443").cluster(", tls-server-name: localhost");
        works(bed, &config, folder.path(), &[], &[("HTTPS_PROXY", &proxy), ("NO_PROXY", "other.invalid")]);
        assert!(used.load(Ordering::SeqCst) > 0, "no connection went through the proxy");
    }

    #[tokio::test]
    async fn a_client_certificate_works() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let certificate = bed.client_certificate(Authority::Client, "ccm", &["system:masters"]).unwrap();
        connects(|config, _| config.user(certificate_user(&certificate.certificate_file, &certificate.key_file))).await;
    }
}
