//! The secure port and its cluster: changed authorities, the number of requests, and a cluster that does not answer.

mod real_apiserver {
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Authority, Bed, ClientCertificate, Options, Pki};
    use serde_json::{Value, json};

    use crate::https::{Served, bearer, exchange, free_port, until};
    use crate::process::run;

    const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

    /// An authority unknown to the cluster, as PEM, and a certificate that it signed for a member of `system:masters`.
    fn authority() -> (String, ClientCertificate) {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::write(folder.path()).unwrap();
        let ann = pki.sign(Authority::Client, "ann", "ann", &["system:masters"], false).unwrap();
        (pki.pem(Authority::Client).to_owned(), ann)
    }

    async fn patch(bed: &Bed, key: &str, value: &str) {
        let patch = json!({"data": {key: value}});
        let (status, body) = bed.request("PATCH", CONFIG_MAP, &bed.token, Some(&patch)).await.unwrap();
        assert_eq!(status, 200, "{body}");
    }

    #[tokio::test]
    async fn authorities_and_front_proxies_are_those_that_the_cluster_names_now() {
        // A separate bed: the authorities of the shared one must not change.
        let Some(bed) = Bed::start().await.unwrap() else { return };
        // Without a lease: a restart of the API server may outlast its deadline, at which the program ends.
        let served = Served::start(&bed, &["--leader-elect=false"]);
        let map: Value = serde_json::from_str(&bed.get(CONFIG_MAP).await.unwrap().1).unwrap();
        let now = |key: &str| map["data"][key].as_str().unwrap().to_owned();

        let (pem, ann) = authority();
        let ask = || served.ask("/metrics", Some(&ann), "");
        assert_eq!(ask().0, 401);
        let old = now("client-ca-file");
        patch(&bed, "client-ca-file", &format!("{old}{pem}")).await;
        until(200, ask);
        let known = bed.client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        assert_eq!(served.ask("/metrics", Some(&known), "").0, 200);
        patch(&bed, "client-ca-file", &old).await;
        until(401, ask);
        assert_eq!(served.ask("/metrics", Some(&known), "").0, 200);
        // The watch ends with the API server; a change after the restart must arrive through the next watch.
        bed.stop_apiserver().await.unwrap();
        bed.start_apiserver().await.unwrap();
        patch(&bed, "client-ca-file", &format!("{old}{pem}")).await;
        until(200, ask);
        patch(&bed, "client-ca-file", &old).await;
        until(401, ask);

        let proxy = bed.client_certificate(Authority::FrontProxy, "another-proxy", &[]).unwrap();
        let ask = || served.ask("/metrics", Some(&proxy), "X-Remote-User: jane\r\nX-Remote-Group: system:masters\r\n");
        assert_eq!(ask().0, 401);
        let old = now("requestheader-allowed-names");
        patch(&bed, "requestheader-allowed-names", &old.replace(']', r#","another-proxy"]"#)).await;
        until(200, ask);
        // An invalid value changes nothing.
        patch(&bed, "requestheader-username-headers", "no list").await;
        served.process.wait_for("extension-apiserver-authentication cannot be used, the last content stays in force");
        assert_eq!(ask().0, 200);
        patch(&bed, "requestheader-username-headers", &now("requestheader-username-headers")).await;
        patch(&bed, "requestheader-allowed-names", &old).await;
        until(401, ask);
        bed.stop().await;
    }

    #[tokio::test]
    async fn without_the_api_server_only_requests_that_need_no_review_are_answered() {
        let Some(bed) = Bed::start().await.unwrap() else { return };
        let flags = [
            "--leader-elect=false",
            "--authentication-token-webhook-cache-ttl=0s",
            "--authorization-webhook-cache-authorized-ttl=0s",
            "--authorization-webhook-cache-unauthorized-ttl=0s",
        ];
        let served = Served::start(&bed, &flags);
        served.until_ready();
        let admin = bearer(&bed.token);
        let master = bed.client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        let plain = bed.client_certificate(Authority::Client, "joe", &[]).unwrap();
        let probes = || {
            for path in ["/healthz", "/livez", "/readyz"] {
                assert_eq!(served.ask(path, None, ""), (200, "ok".into()), "{path}");
            }
        };
        let with_cluster = || {
            probes();
            assert_eq!(served.ask("/metrics", None, &admin).0, 200);
            assert_eq!(served.ask("/metrics", None, "").0, 403);
            assert_eq!(served.ask("/metrics", Some(&plain), "").0, 403);
            assert_eq!(served.ask("/metrics", Some(&master), "").0, 200);
        };
        with_cluster();

        bed.stop_apiserver().await.unwrap();
        probes();
        let (status, body) = served.ask("/metrics", None, "");
        assert_eq!((status, body.contains("the API server could not be asked")), (500, true), "{body}");
        assert_eq!(served.ask("/metrics", Some(&plain), "").0, 500);
        assert_eq!(served.ask("/metrics", None, &admin).0, 401);
        // Certificates of members of `system:masters` need no review.
        assert_eq!(served.ask("/metrics", Some(&master), "").0, 200);
        bed.start_apiserver().await.unwrap();
        with_cluster();

        // A server that accepts connections and never answers: only requests that need it wait.
        bed.pause_apiserver().await.unwrap();
        let (port, request) =
            (served.port, format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{admin}\r\n"));
        let waiting = std::thread::spawn(move || exchange(port, None, request.as_bytes()).0);
        for _ in 0..20 {
            probes();
        }
        assert!(!waiting.is_finished());
        bed.resume_apiserver().await.unwrap();
        assert_eq!(waiting.join().unwrap(), 200);
        bed.stop().await;
    }

    #[tokio::test]
    async fn a_repeated_request_causes_no_second_review() {
        let Some(bed) = Bed::start_with(Options::default().audit()).await.unwrap() else { return };
        let served = Served::start(&bed, &["--leader-elect=false"]);
        for _ in 0..3 {
            assert_eq!(served.ask("/metrics", None, &bearer("bad")).0, 401);
            assert_eq!(served.ask("/metrics", None, &bearer(&bed.ccm_token)).0, 403);
        }
        assert_eq!(served.ask("/configz", None, &bearer(&bed.ccm_token)).0, 403);
        assert_eq!(served.ask("/configz", None, &bearer("other")).0, 401);

        let (mut audit, mut seen) = (bed.audit(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(30);
        let count = |seen: &[ccm_test_bed::AuditEntry], resource: &str| {
            seen.iter().filter(|entry| entry.is_about(resource) && entry.user_agent.starts_with("ccm/")).count()
        };
        while count(&seen, "tokenreviews") < 5 || count(&seen, "subjectaccessreviews") < 2 {
            assert!(Instant::now() < deadline, "{seen:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            seen.extend(audit.read().unwrap());
        }
        // As in upstream, the response to an invalid token is an error, which is not cached: four TokenReviews for the
        // four bad tokens, one for the account, and one SubjectAccessReview per path.
        assert_eq!((count(&seen, "tokenreviews"), count(&seen, "subjectaccessreviews")), (5, 2));
        bed.stop().await;
    }

    #[tokio::test]
    async fn two_processes_serve_on_one_port_when_both_permit_it() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let port = free_port();
        let share = ["--permit-port-sharing"];
        let (one, two) = (Served::start_at(bed, port, &share), Served::start_at(bed, port, &share));
        assert_eq!(one.ask("/healthz", None, "").0, 200);
        let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig().display());
        let port = format!("--secure-port={port}");
        let ended = run(&["--cloud-provider=fake", "--bind-address=127.0.0.1", &kubeconfig, &port]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("failed to create listener"), "{}", ended.stderr);
        drop(one);
        // The remaining process serves all requests.
        for _ in 0..10 {
            assert_eq!(two.ask("/healthz", None, "").0, 200);
        }
    }
}
