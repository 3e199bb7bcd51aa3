//! A program with webhooks: its responses, and when it serves.

use std::process::Command;
use std::time::{Duration, Instant};

use ccm::App;
use ccm::webhook::{AdmissionHandler, AdmissionRequest, AdmissionResponse, Webhook};
use ccm_test_bed::Bed;
use serde_json::{Value, json};

use crate::https::{exchange, free_port, send};
use crate::process::Process;
use crate::scene::create;

/// The variable with the arguments for the program, one per line.
const ARGUMENTS: &str = "CCM_TEST_WEBHOOK_ARGUMENTS";
const GATE: &str = "--feature-gates=CloudControllerManagerWebhook=true";
pub(crate) const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const ALL: &str = "--webhooks=*";
/// An address without an API server: the process remains a standby.
const NOBODY: &str = "--master=http://127.0.0.1:1";

/// Answers according to the name of the object.
struct Obedient;

#[async_trait::async_trait]
impl AdmissionHandler for Obedient {
    async fn admit(&self, request: AdmissionRequest) -> Result<Option<AdmissionResponse>, String> {
        match request.name.as_str() {
            "fail" => Err("out of order".into()),
            "nothing" => Ok(None),
            "panic" => panic!("no way"),
            "deny" => Ok(Some(AdmissionResponse::deny("not today"))),
            _ => Ok(Some(AdmissionResponse {
                patch: Some(json!([{"op": "add", "path": "/data", "value": {"seen": request.operation}}])),
                warnings: vec!["it was seen".into()],
                ..AdmissionResponse::allow()
            })),
        }
    }
}

/// The program: the tests below start this test as a separate process.
#[test]
#[ignore = "no test, but the program of the others"]
fn program() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let webhook = |name, path| Webhook::new(name, path, Obedient);
    App::new()
        .register(ccm_provider_fake::Factory)
        .webhook(webhook("obedient", "/obey"))
        .webhook(webhook("other", "/other"))
        .run(std::iter::once("ccm").chain(arguments.lines()).map(Into::into));
}

struct Hosting {
    process: Process,
    port: u16,
    secure: u16,
}

impl Hosting {
    fn start(flags: &[&str]) -> Self {
        let (port, secure) = (free_port(), free_port());
        let mut arguments = vec![
            "--cloud-provider=fake".to_owned(),
            "--bind-address=127.0.0.1".into(),
            "--webhook-bind-address=127.0.0.1".into(),
            "--authorization-always-allow-paths=/healthz,/metrics".into(),
            format!("--webhook-secure-port={port}"),
            format!("--secure-port={secure}"),
        ];
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "webhook::program", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ARGUMENTS, arguments.join("\n"));
        let process = Process::spawn(command);
        process.wait_for(&format!("Serving securely on 127.0.0.1:{secure}"));
        Self { process, port, secure }
    }

    fn serving(flags: &[&str]) -> Self {
        let hosting = Self::start(flags);
        hosting.process.wait_for(&format!("Serving securely on 127.0.0.1:{}", hosting.port));
        hosting
    }

    fn post(&self, path: &str, kind: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{kind}Content-Length: {length}\r\n\r\n{body}"
        );
        exchange(self.port, None, request.as_bytes())
    }

    fn metrics(&self) -> String {
        exchange(self.secure, None, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").2
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

fn review(name: &str) -> String {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "u-1", "name": name, "operation": "CREATE", "object": {}}})
    .to_string()
}

/// Writes a new self-signed certificate for the address of a webhook; returns its CA bundle for the API server.
pub(crate) fn certify(certificate: &str, key: &str) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    let encoded = Command::new("base64").args(["-w0", certificate]).output().unwrap().stdout;
    String::from_utf8(encoded).unwrap()
}

/// Registers a webhook at the API server; `fields` are its address and its rules.
pub(crate) async fn create_hook(bed: &Bed, name: &str, fields: Value) {
    let mut hook =
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail"});
    hook.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [hook]});
    create(bed, HOOKS, hooks).await;
}

#[test]
fn a_standby_answers_reviews_and_refuses_other_requests() {
    let hosting = Hosting::serving(&[GATE, ALL, NOBODY]);
    let good = review("x");
    let empty = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#;
    for (kind, body, status, text) in [
        (
            "Content-Type: text/plain\r\n",
            good.as_str(),
            400,
            r#"Content-Type: "text/plain" should be "application/json""#,
        ),
        ("", &good, 400, r#"Content-Type: "" should be "application/json""#),
        (JSON, "", 400, "admission request HTTP body is empty"),
        (JSON, "{", 400, "could not deserialize incoming admission review: "),
        (JSON, r#"{"kind":"Pod","apiVersion":"v1"}"#, 400, "could not deserialize incoming admission review: "),
        (JSON, empty, 400, "admission review can't be used: Request field is nil"),
        (JSON, &review("fail"), 500, "error generating admission response: out of order"),
        (JSON, &review("panic"), 500, "error generating admission response: the handler panicked"),
        (JSON, &review("nothing"), 500, "admission response cannot be nil"),
    ] {
        let (seen, head, answer) = hosting.post("/obey", kind, body);
        assert_eq!(seen, status, "{kind}{body}: {answer}");
        assert!(answer.starts_with(text), "{answer}");
        assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
    }
    for kind in [JSON, "Content-Type: application/json; charset=utf-8\r\n"] {
        let (status, head, body) = hosting.post("/obey", kind, &good);
        assert_eq!(status, 200, "{body}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&answer["kind"], &answer["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u-1"), &json!(true)));
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
    }
    let (_, _, body) = hosting.post("/obey", JSON, &review("deny"));
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["message"], "not today");
    for path in ["/", "/obey/", "/obey/x", "/healthz", "/metrics"] {
        assert_eq!(hosting.post(path, JSON, &good).0, 404, "{path}");
    }

    let metrics = hosting.metrics();
    for line in [
        r#"cloud_provider_webhook_request_total{code="200",webhook="obedient"} 3"#,
        r#"cloud_provider_webhook_request_total{code="400",webhook="obedient"} 6"#,
        r#"cloud_provider_webhook_request_total{code="500",webhook="obedient"} 3"#,
        r#"cloud_provider_webhook_request_duration_seconds_count{code="200",webhook="obedient"} 3"#,
        r#"cloud_provider_webhook_request_duration_seconds_bucket{code="500",webhook="obedient",le="0.25"} 3"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains(r#"webhook="other""#), "nobody asked the other");
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let hosting = Hosting::serving(&[GATE, ALL, NOBODY]);
    let request =
        format!("POST /obey HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}Content-Length: 999999999\r\n\r\n");
    // One byte too many: what the server leaves unread resets the connection, perhaps before the answer is read.
    let large = " ".repeat((8 << 20) + 1);
    let (status, _, body) = exchange(hosting.port, None, format!("{request}{large}").as_bytes());
    assert_eq!((status, body.as_str()), (400, "could not read the admission request: length limit exceeded\n"));
}

#[test]
fn clients_that_send_nothing_or_stop_after_a_part_hold_up_no_review() {
    let hosting = Hosting::serving(&[GATE, ALL, NOBODY]);
    let head = |length: &str| format!("POST /obey HTTP/1.1\r\nHost: x\r\n{JSON}{length}\r\n\r\n");
    let chunk = format!("{}2000\r\n{}\r\n", head("Transfer-Encoding: chunked"), " ".repeat(0x2000));
    let length = head(&format!("Content-Length: {}", 8 << 20));
    // More of them than there are shares of the memory.
    let part = format!("{length}{}", " ".repeat(20 << 10));
    let silent = [head("Transfer-Encoding: chunked"), length, chunk, part];
    let held: Vec<_> = silent.iter().cycle().take(160).map(|text| send(hosting.port, None, text.as_bytes())).collect();
    let began = Instant::now();
    for name in ["x".to_owned(), "x".repeat(60 << 10), "x".repeat(3 << 20)] {
        assert_eq!(hosting.post("/obey", JSON, &review(&name)).0, 200, "{}", name.len());
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}: they would be held for 10 s", began.elapsed());
    drop(held);
}

#[test]
fn without_the_gate_a_webhook_or_a_port_nothing_is_served() {
    for flags in [
        &[NOBODY, ALL][..],
        &[NOBODY, GATE],
        &[NOBODY, GATE, "--webhooks=-obedient,-other"],
        &[NOBODY, GATE, ALL, "--webhook-secure-port=0"],
    ] {
        let hosting = Hosting::start(flags);
        assert_eq!(hosting.process.listeners(), 1, "{flags:?}");
        let refused = std::net::TcpStream::connect(("127.0.0.1", hosting.port)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{flags:?}");
    }
    let hosting = Hosting::serving(&[NOBODY, GATE, "--webhooks=other"]);
    assert_eq!(hosting.post("/obey", JSON, &review("x")).0, 404, "it is not enabled");
    assert_eq!(hosting.post("/other", JSON, &review("x")).0, 200);
    assert_eq!(hosting.process.listeners(), 2);
}

#[test]
fn with_both_ports_at_zero_nothing_listens() {
    let process = Process::start(&["--cloud-provider=fake", NOBODY, "--secure-port=0", "--webhook-secure-port=0"]);
    process.wait_for("Version: v");
    assert_eq!(process.listeners(), 0);
}

mod real_apiserver {
    use ccm_test_bed::Bed;
    use serde_json::json;

    use super::{ALL, GATE, HOOKS, Hosting, JSON, certify, create_hook, review};
    use crate::scene::{create, post, until};

    #[tokio::test]
    async fn the_api_server_asks_each_replica_on_leader_and_standby() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (certificate, key) = (file("tls.crt"), file("tls.key"));
        let bundle = certify(&certificate, &key);
        let space = format!("hooks-{}", uuid::Uuid::new_v4());
        let flags = [
            GATE.to_owned(),
            ALL.into(),
            format!("--kubeconfig={}", bed.kubeconfig().display()),
            format!("--leader-elect-resource-name={space}"),
            format!("--webhook-tls-cert-file={certificate}"),
            format!("--webhook-tls-private-key-file={key}"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let leader = Hosting::serving(&flags);
        leader.process.wait_for("successfully acquired lease");
        let standby = Hosting::serving(&flags);
        assert_eq!(leader.post("/obey", JSON, &review("x")).0, 200);

        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}});
        create(bed, "/api/v1/namespaces", namespace).await;
        let reviewed = json!({
            "name": "obey.example.com",
            "clientConfig": {"url": format!("https://127.0.0.1:{}/obey", standby.port), "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
        });
        create_hook(bed, &space, reviewed).await;

        let maps = format!("/api/v1/namespaces/{space}/configmaps");
        let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        // The API server applies its own configuration with a delay.
        let mut number = 0;
        let seen = async || {
            number += 1;
            create(bed, &maps, map(&format!("good-{number}"))).await["data"]["seen"] == "CREATE"
        };
        until("the webhook is asked", seen).await;
        let (status, answer) = post(bed, &maps, &map("deny")).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer["message"].as_str().unwrap().ends_with("denied the request: not today"), "{answer}");
        let (status, answer) = post(bed, &maps, &map("fail")).await;
        assert_eq!(status, 500, "{answer}");
        assert!(!standby.process.log().contains("successfully acquired lease"));
        let (status, body) = bed.request("DELETE", &format!("{HOOKS}/{space}"), &bed.token, None).await.unwrap();
        assert_eq!(status, 200, "{body}");
    }
}
