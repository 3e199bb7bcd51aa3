//! The secure port of the program, with all kinds of clients and a real API server.

mod real_apiserver {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use ccm_test_bed::{Authority, Bed, FRONT_PROXY_USER};

    use crate::https::{Served, bearer};

    #[tokio::test]
    async fn each_kind_of_client_gets_the_permitted_answers() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let served = Served::start(bed, &[]);
        served.until_ready();

        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(served.ask(path, None, ""), (200, "ok".into()), "{path}");
            assert_eq!(served.ask(path, None, &bearer("bad")).0, 401, "{path}");
        }
        let (status, body) = served.ask("/metrics", None, "");
        assert_eq!(status, 403);
        assert!(body.contains(r#"forbidden: User \"system:anonymous\" cannot get path \"/metrics\""#), "{body}");
        for path in
            ["/metrics", "/metrics/slis", "/configz", "/debug/state", "/debug/", "/debug", "/debug/flags/v", "/nope"]
        {
            assert_eq!(served.ask(path, None, "").0, 403, "{path}");
            assert_eq!(served.ask(path, None, &bearer("bad")).0, 401, "{path}");
            assert_eq!(served.ask(path, None, &bearer(&bed.ccm_token)).0, 403, "{path}");
        }
        for (path, status) in [
            ("/metrics", 200),
            ("/metrics/slis", 200),
            ("/configz", 200),
            ("/debug/state", 200),
            ("/debug/", 200),
            ("/debug", 301),
            ("/debug/flags/v", 406),
            ("/debug/pprof/heap", 501),
            ("/nope", 404),
            ("/", 404),
        ] {
            assert_eq!(served.ask(path, None, &bearer(&bed.token)).0, status, "{path}");
        }
        let (_, text) = served.ask("/metrics", None, &bearer(&bed.token));
        assert!(text.contains("apiserver_delegated_authn_request_total{code=\"201\"}"), "{text}");

        // Who may see the state may see the page, and nobody else.
        let (_, page) = served.ask("/debug/", None, &bearer(&bed.token));
        assert!(page.starts_with("<!doctype html>") && page.contains(r#""title":"Nodes""#), "{page}");

        // Client certificates: the authority is in the cluster's ConfigMap.
        let master = bed.client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        let plain = bed.client_certificate(Authority::Client, "joe", &[]).unwrap();
        let old = bed.expired_client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        assert_eq!(served.ask("/metrics", Some(&master), "").0, 200);
        let (status, body) = served.ask("/metrics", Some(&plain), "");
        assert!(status == 403 && body.contains(r#"User \"joe\""#), "{status} {body}");
        assert_eq!(served.ask("/metrics", Some(&old), "").0, 401);
        assert_eq!(served.ask("/healthz", Some(&old), "").0, 401);

        // Only the front proxy may specify another user.
        let proxy = bed.client_certificate(Authority::FrontProxy, FRONT_PROXY_USER, &[]).unwrap();
        let impostor = bed.client_certificate(Authority::FrontProxy, "impostor", &[]).unwrap();
        let jane = "X-Remote-User: jane\r\nX-Remote-Group: system:masters\r\n";
        assert_eq!(served.ask("/metrics", Some(&proxy), jane).0, 200);
        assert_eq!(served.ask("/metrics", Some(&impostor), jane).0, 401);
        assert_eq!(served.ask("/metrics", None, jane).0, 403);
        let (status, body) = served.ask("/metrics", Some(&plain), jane);
        assert!(status == 403 && body.contains(r#"User \"joe\""#), "{status} {body}");
    }

    #[tokio::test]
    async fn cleared_paths_need_permission_and_plain_http_is_reported_so() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let served = Served::start(bed, &["--authorization-always-allow-paths=", "--disable-http2-serving"]);
        // Every cluster allows /healthz and /livez for everybody, with the binding system:public-info-viewer.
        assert_eq!(served.ask("/healthz", None, "").0, 200);
        assert_eq!(served.ask("/metrics", None, "").0, 403);
        let mut socket = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.contains("Client sent an HTTP request to an HTTPS server."), "{answer}");
    }
}
