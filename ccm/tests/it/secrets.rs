//! The process never outputs a secret, at any verbosity and with any error.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crate::process::Process;

/// A secret with a text that the program does not print otherwise.
const CANARY: &str = "canary-7f3a91c5e8";
/// The secret in base64, as in kubeconfigs and headers: one of the three occurs, depending on its offset.
const ENCODED: [&str; 3] = ["Y2FuYXJ5LTdmM2E5MWM1ZT", "NhbmFyeS03ZjNhOTFjNWU4", "jYW5hcnktN2YzYTkxYzVlO"];
const FORMATS: [&str; 2] = ["text", "json"];

fn assert_none(text: &str, place: &str) {
    for secret in [CANARY].iter().chain(&ENCODED) {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "a secret is in {place}: {}", line.unwrap_or_default());
    }
}

/// A server that rejects every request. Ends with the process of the test.
fn refusing() -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tls = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(tls, stream);
            std::thread::spawn(move || {
                let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|count| count > 0) {
                    let head = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length:";
                    if stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("https://{address}")
}

struct Case {
    name: &'static str,
    server: String,
    /// The user of the kubeconfig, a YAML flow mapping.
    user: String,
    cloud: &'static str,
    /// The text in the log that shows that the case has occurred.
    sign: &'static str,
}

fn cases(folder: &Path) -> Vec<Case> {
    let script = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let exec = "apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never";
        format!("exec: {{{exec}, args: ['{}'], env: [{{name: SECRET, value: {CANARY}}}]}}", path.display())
    };
    let closed = || {
        // Nothing listens there any more.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        format!("https://{address}")
    };
    // An invalid key, in base64.
    let key =
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tClkyRnVZWEo1TFRkbU0yRTVNV00xWlRnPQotLS0tLUVORCBQUklWQVRFIEtFWS0tLS0tCg==";
    let case = |name, server, user, sign| Case { name, server, user, cloud: "{}", sign };
    vec![
        case("no server", closed(), format!("token: {CANARY}"), "refused"),
        case("bad token", refusing(), format!("token: {CANARY}"), "Unauthorized"),
        case("bad password", refusing(), format!("username: u, password: {CANARY}"), "Unauthorized"),
        case("a plugin that fails", refusing(), script("fails", "echo $SECRET; exit 7\n"), "plugin"),
        case(
            "a plugin that talks nonsense",
            refusing(),
            script("nonsense", "echo '{\"status\": {\"token\": \"'$SECRET'\"'\n"),
            "plugin",
        ),
        case(
            "a key that is none",
            closed(),
            format!("client-certificate-data: {key}, client-key-data: {key}"),
            "Error: ",
        ),
        case("a kubeconfig that is none", closed(), format!("token: {CANARY}, exec: 5"), "Error: "),
        Case {
            cloud: "instances: [{name: a, passwords: canary-7f3a91c5e8}]\npassword: canary-7f3a91c5e8",
            ..case("an unknown key in the cloud config", refusing(), "token: x".into(), "Error: ")
        },
    ]
}

#[test]
fn no_secret_is_printed_whatever_goes_wrong() {
    let folder = tempfile::tempdir().unwrap();
    // In parallel, because most of them wait for a retry.
    let started: Vec<(Case, Vec<Process>)> = cases(folder.path())
        .into_iter()
        .enumerate()
        .map(|(number, case)| {
            let kubeconfig = folder.path().join(format!("{number}.kubeconfig"));
            let cloud = folder.path().join(format!("{number}.yaml"));
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: '{}', insecure-skip-tls-verify: true}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers:\n- name: u\n  user: {{{}}}\n",
                case.server, case.user
            );
            std::fs::write(&kubeconfig, text).unwrap();
            std::fs::write(&cloud, case.cloud).unwrap();
            let start = |format: &str| {
                Process::start(&[
                    "--cloud-provider=fake",
                    &format!("--cloud-config={}", cloud.display()),
                    &format!("--kubeconfig={}", kubeconfig.display()),
                    "--secure-port=0",
                    "--v=10",
                    &format!("--logging-format={format}"),
                ])
            };
            let processes = FORMATS.map(start).into();
            (case, processes)
        })
        .collect();
    for (case, processes) in started {
        for process in processes {
            process.wait_for(case.sign);
            assert_none(&process.log(), case.name);
        }
    }
}

mod real_apiserver {
    use ccm_test_bed::Bed;

    use crate::https;
    use crate::process::Process;

    /// Status, head and body of the response.
    fn get(port: u16, path: &str, token: &str) -> (u16, String) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        let (status, head, body) = https::exchange(port, None, request.as_bytes());
        (status, format!("{head}\r\n\r\n{body}"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_secret_is_in_the_log_the_events_or_the_answers() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let cloud = folder.path().join("cloud.yaml");
        std::fs::write(&cloud, "unlisted: error").unwrap();
        for (format, accounts) in [("text", "true"), ("json", "true"), ("text", "false")] {
            let port = https::free_port();
            let kubeconfig = bed.kubeconfig().display().to_string();
            let mut process = Process::start(&[
                "--cloud-provider=fake",
                &format!("--cloud-config={}", cloud.display()),
                &format!("--kubeconfig={kubeconfig}"),
                &format!("--authentication-kubeconfig={kubeconfig}"),
                &format!("--authorization-kubeconfig={kubeconfig}"),
                &format!("--use-service-account-credentials={accounts}"),
                &format!("--leader-elect-resource-name=secrets-{}", uuid::Uuid::new_v4()),
                "--bind-address=127.0.0.1",
                &format!("--secure-port={port}"),
                "--controllers=cloud-node,cloud-node-lifecycle,service",
                "--v=10",
                &format!("--logging-format={format}"),
            ]);
            process.wait_for("service-lb-controller");
            let mut places = Vec::new();
            for path in [
                "/metrics",
                "/metrics/slis",
                "/configz",
                "/debug/state",
                "/debug/",
                "/healthz?verbose",
                "/debug/flags/v",
            ] {
                let (status, answer) = get(port, path, &bed.token);
                assert_eq!(status, if path == "/debug/flags/v" { 406 } else { 200 }, "{path}: {answer}");
                places.push((path.to_owned(), answer));
                places.push((format!("{path} with a bad token"), get(port, path, super::CANARY).1));
            }
            assert!(places[0].1.contains("rest_client_requests_total"), "{}", places[0].1);
            for kind in ["events", "serviceaccounts"] {
                let (code, body) = bed.get(&format!("/api/v1/{kind}")).await.unwrap();
                assert_eq!(code, 200);
                places.push((kind.to_owned(), body));
            }
            process.end();
            places.push((format!("the {format} log"), process.log()));
            for (place, text) in places {
                super::assert_none(&text, &place);
                assert!(!text.contains(&bed.token), "the token of the kubeconfig is in {place}");
                // The prefix of every signed token.
                assert!(!text.contains("eyJhbGciOi"), "a token of a service account is in {place}");
            }
        }
    }
}
