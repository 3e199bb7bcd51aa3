//! Failures to reach the API server: the log contains the failed operation and the address, but no secret.

mod real_apiserver {
    use ccm_test_bed::{Authority, Bed, Options};

    use crate::kubeconfig::{Kubeconfig, certificate_user};
    use crate::scene::{bind, register, until, until_initialized};

    /// Checks the log when the API server cannot be reached with these settings.
    async fn reported(
        change: impl FnOnce(Kubeconfig) -> Kubeconfig,
        more: &[&str],
        environment: &[(&str, &str)],
        expected: &[&str],
    ) {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let config = change(Kubeconfig::of(bed));
        let process = config.start(folder.path(), more, environment);
        let path = folder.path().join("kubeconfig").display().to_string();
        for text in expected {
            process.wait_for(&text.replace("KUBECONFIG", &path));
        }
        for secret in [&*bed.token, "geheim", "Bearer"] {
            assert!(!process.log().contains(secret), "{secret} is in the log:\n{}", process.log());
        }
    }

    #[tokio::test]
    async fn an_authority_that_did_not_sign_is_named_with_its_file() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let host = bed.url.replace("https://", "");
        let other = bed.authority_pem(Authority::FrontProxy).to_owned();
        let expected = format!(
            "the certificate of {host} is not signed by the certificate-authority in the kubeconfig KUBECONFIG"
        );
        reported(|config| config.ca_pem(Some(other)), &[], &[], &[&expected]).await;
        let expected =
            format!("the certificate of {host} is not signed by the certificate authorities of this machine");
        reported(|config| config.ca_pem(None), &[], &[], &[&expected]).await;
    }

    #[tokio::test]
    async fn a_name_that_the_certificate_does_not_have_is_reported_with_the_key_that_helps() {
        let expected = ["is made for other names", "tls-server-name"];
        reported(|config| config.cluster(", tls-server-name: other.invalid"), &[], &[], &expected).await;
    }

    #[tokio::test]
    async fn an_unknown_host_is_reported_with_the_flags_to_check() {
        let expected = "the name api.invalid:6443 cannot be resolved: check the address in the kubeconfig or --master";
        reported(|config| config.server("https://api.invalid:6443"), &[], &[], &[expected]).await;
        reported(|config| config, &["--master=https://api.invalid:6443"], &[], &[expected]).await;
        // The proxy is not mentioned, because it is not used.
        let proxy = [("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", ".invalid")];
        reported(|config| config.server("https://api.invalid:6443"), &[], &proxy, &[expected]).await;
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported() {
        reported(|config| config.server("https://127.0.0.1:1"), &[], &[], &["nothing listens at 127.0.0.1:1"]).await;
    }

    #[tokio::test]
    async fn a_refused_connection_to_the_proxy_is_reported_as_the_proxys() {
        let proxy = [("HTTPS_PROXY", "http://me:geheim@127.0.0.1:1")];
        reported(
            |config| config.server("https://api.invalid:6443"),
            &[],
            &proxy,
            &["the proxy 127.0.0.1:1 of HTTPS_PROXY cannot be reached"],
        )
        .await;
        let of_file = |config: Kubeconfig| config.cluster(", proxy-url: 'http://me:geheim@127.0.0.1:1'");
        reported(
            of_file,
            &[],
            &[],
            &["the proxy 127.0.0.1:1 of proxy-url in the kubeconfig KUBECONFIG cannot be reached"],
        )
        .await;
    }

    #[tokio::test]
    async fn a_token_that_ends_while_the_program_runs_is_read_again_from_its_file() {
        let Some(bed) = Bed::reused(Options::default()).await.unwrap() else { return };
        bind(&bed, "cluster-admin", "Group", "system:serviceaccounts").await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let first = bed.service_account_token("default", "manager").await.unwrap();
        std::fs::write(&file, &first).unwrap();
        let config = Kubeconfig::of(&bed).user(format!("tokenFile: '{}'", file.display()));
        let process = config.start(folder.path(), &["--leader-elect=false"], &[]);
        register(&bed, "first").await;
        until_initialized(&bed, "first").await;
        // A token becomes invalid with its account. The API server accepts it for some more seconds.
        let account = "/api/v1/namespaces/default/serviceaccounts/manager";
        let (status, body) = bed.request("DELETE", account, &bed.token, None).await.unwrap();
        assert_eq!(status, 200, "{body}");
        until("the token ends", async || bed.request("GET", "/api/v1/nodes", &first, None).await.unwrap().0 == 401)
            .await;
        register(&bed, "second").await;
        process.wait_for("Unauthorized");
        let second = bed.service_account_token("default", "manager").await.unwrap();
        std::fs::write(&file, &second).unwrap();
        until_initialized(&bed, "second").await;
        for secret in [first, second] {
            assert!(!process.log().contains(&secret), "a token is in the log");
        }
    }

    #[tokio::test]
    async fn a_client_certificate_that_is_replaced_is_used_by_the_next_connection() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("client.pem"), folder.path().join("client.key"));
        let write = |from: &ccm_test_bed::ClientCertificate| {
            std::fs::write(&certificate, &from.certificate_pem).unwrap();
            std::fs::write(&key, &from.key_pem).unwrap();
        };
        write(&bed.expired_client_certificate(Authority::Client, "ccm", &["system:masters"]).unwrap());
        let config = Kubeconfig::of(bed).user(certificate_user(&certificate, &key));
        let process = config.start(folder.path(), &[], &[]);
        process.wait_for("Unauthorized");
        // A partial update, since two files are not written atomically: it is not used, and the error does not contain
        // the key.
        let good = bed.client_certificate(Authority::Client, "ccm", &["system:masters"]).unwrap();
        std::fs::write(&key, &good.key_pem).unwrap();
        process.wait_for("the credentials cannot be used; the old ones stay in use");
        write(&good);
        process.wait_for("Started \"cloud-node-controller\"");
        assert!(!process.log().contains("PRIVATE"), "a key is in the log");
    }

    #[tokio::test]
    async fn a_token_file_is_read_again_after_a_401() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "not-a-token").unwrap();
        let config = Kubeconfig::of(bed).user(format!("tokenFile: '{}'", token.display()));
        let process = config.start(folder.path(), &[], &[]);
        process.wait_for("Unauthorized");
        // As `echo` writes it.
        std::fs::write(&token, format!("{}\n", bed.token)).unwrap();
        process.wait_for("Started \"cloud-node-controller\"");
    }
}
