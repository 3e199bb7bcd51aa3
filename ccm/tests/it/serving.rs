//! The secure port of the program, asked by all kinds of clients, with a real API server behind it.

mod real_apiserver {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Arc;

    use ccm_test_bed::{Authority, Bed, ClientCertificate, FRONT_PROXY_USER};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

    use crate::process::Process;

    /// Takes any server: its certificate is self-signed.
    #[derive(Debug)]
    struct Any;

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }

    struct Served {
        _process: Process,
        port: u16,
    }

    impl Served {
        fn start(bed: &Bed, flags: &[&str]) -> Self {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let kubeconfig = bed.kubeconfig().display().to_string();
            let flag = |name: &str| format!("--{name}={kubeconfig}");
            let port_flag = format!("--secure-port={port}");
            let lease = format!("--leader-elect-resource-name=serving-{}", uuid::Uuid::new_v4());
            let (kube, authn, authz) =
                (flag("kubeconfig"), flag("authentication-kubeconfig"), flag("authorization-kubeconfig"));
            let mut args =
                vec!["--cloud-provider=fake", "--bind-address=127.0.0.1", &kube, &authn, &authz, &port_flag, &lease];
            args.extend(flags);
            let process = Process::start(&args);
            process.wait_for("Serving securely on");
            Self { _process: process, port }
        }

        fn ask(&self, path: &str, certificate: Option<&ClientCertificate>, headers: &str) -> (u16, String) {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Any));
            let config = match certificate {
                None => config.with_no_client_auth(),
                Some(own) => {
                    let chain = CertificateDer::from_pem_slice(own.certificate_pem.as_bytes()).unwrap();
                    let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes()).unwrap();
                    config.with_client_auth_cert(vec![chain], key).unwrap()
                }
            };
            let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").unwrap();
            let mut answer = String::new();
            // The server may close without a farewell.
            let _ = stream.read_to_string(&mut answer);
            let status =
                answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
            (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
        }
    }

    #[tokio::test]
    async fn each_kind_of_client_gets_what_it_may() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let served = Served::start(bed, &[]);
        let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");

        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(served.ask(path, None, ""), (200, "ok".into()), "{path}");
            assert_eq!(served.ask(path, None, &bearer("bad")).0, 401, "{path}");
        }
        let (status, body) = served.ask("/metrics", None, "");
        assert_eq!(status, 403);
        assert!(body.contains(r#"forbidden: User \"system:anonymous\" cannot get path \"/metrics\""#), "{body}");
        for path in ["/metrics", "/metrics/slis", "/configz", "/debug/state", "/debug/flags/v", "/nope"] {
            assert_eq!(served.ask(path, None, "").0, 403, "{path}");
            assert_eq!(served.ask(path, None, &bearer("bad")).0, 401, "{path}");
            assert_eq!(served.ask(path, None, &bearer(&bed.ccm_token)).0, 403, "{path}");
        }
        for (path, status) in [
            ("/metrics", 200),
            ("/metrics/slis", 200),
            ("/configz", 200),
            ("/debug/state", 200),
            ("/debug/flags/v", 406),
            ("/debug/pprof/heap", 501),
            ("/nope", 404),
            ("/", 404),
        ] {
            assert_eq!(served.ask(path, None, &bearer(&bed.token)).0, status, "{path}");
        }
        let (_, text) = served.ask("/metrics", None, &bearer(&bed.token));
        assert!(text.contains("apiserver_delegated_authn_request_total{code=\"201\"}"), "{text}");

        // Client certificates: the authority comes from the cluster's ConfigMap.
        let master = bed.client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        let plain = bed.client_certificate(Authority::Client, "joe", &[]).unwrap();
        let old = bed.expired_client_certificate(Authority::Client, "ann", &["system:masters"]).unwrap();
        assert_eq!(served.ask("/metrics", Some(&master), "").0, 200);
        let (status, body) = served.ask("/metrics", Some(&plain), "");
        assert!(status == 403 && body.contains(r#"User \"joe\""#), "{status} {body}");
        assert_eq!(served.ask("/metrics", Some(&old), "").0, 401);
        assert_eq!(served.ask("/healthz", Some(&old), "").0, 401);

        // The front proxy speaks for others; nobody else may.
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
    async fn cleared_paths_need_permission_and_plain_http_is_told_so() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let served = Served::start(bed, &["--authorization-always-allow-paths=", "--disable-http2-serving"]);
        // Every cluster lets everybody see /healthz and /livez through the binding system:public-info-viewer.
        assert_eq!(served.ask("/healthz", None, "").0, 200);
        assert_eq!(served.ask("/metrics", None, "").0, 403);
        let mut socket = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.contains("Client sent an HTTP request to an HTTPS server."), "{answer}");
    }
}
