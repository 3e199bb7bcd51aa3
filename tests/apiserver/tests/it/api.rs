//! A raw HTTP client for either server.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Longer than any request takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const NODES: &str = "/api/v1/nodes";

/// A server under test, and a prefix that separates the objects of a case from those of others.
pub(crate) struct Api {
    address: String,
    token: String,
    tls: Option<Arc<rustls::ClientConfig>>,
    case: String,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The object of a successful response.
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{self:?}");
        self.json()
    }

    /// Asserts a failure by code, reason and message (`*` in `message` matches anything).
    pub(crate) fn fails(self, code: u16, reason: &str, message: &str) -> Value {
        let body = self.json();
        let found = body["message"].as_str().unwrap_or_default();
        assert_eq!((self.code, body["code"].as_u64()), (code, Some(code.into())), "{}", self.text);
        assert_eq!(
            (body["kind"].as_str(), body["status"].as_str()),
            (Some("Status"), Some("Failure")),
            "{}",
            self.text
        );
        assert_eq!(body["reason"].as_str().unwrap_or_default(), reason, "{}", self.text);
        assert!(matches(message, found), "expected: {message}\nfound:    {found}");
        body
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let rest = text.strip_prefix(head);
    rest.is_some_and(|rest| rest.char_indices().any(|(at, _)| matches(tail, &rest[at..])) || matches(tail, ""))
}

impl Api {
    pub(crate) fn new(url: &str, token: &str, ca_pem: Option<&str>, case: &str) -> Api {
        let address = url.split("://").nth(1).unwrap().trim_end_matches('/').to_owned();
        let tls = ca_pem.map(|pem| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            Arc::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
        });
        Api { address, token: token.to_owned(), tls, case: case.replace('_', "-") }
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.case)
    }

    /// Creates the namespace of this case and returns the path of a resource in it.
    pub(crate) async fn namespaced(&self, resource: &str) -> String {
        let name = self.namespace();
        let made = self.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
        assert!(made.code == 201 || made.code == 409, "{made:?}");
        let root = if resource == "leases" { "/apis/coordination.k8s.io/v1" } else { "/api/v1" };
        format!("{root}/namespaces/{name}/{resource}")
    }

    /// The namespace of this case.
    pub(crate) fn namespace(&self) -> String {
        self.case.chars().take(63).collect::<String>().trim_end_matches('-').to_owned()
    }

    /// A node of this case.
    pub(crate) async fn node(&self, suffix: &str, mut node: Value) -> String {
        let name = self.name(suffix);
        node["metadata"]["name"] = name.clone().into();
        self.post(NODES, node).await.ok();
        format!("{NODES}/{name}")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "application/json", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, "application/json", "application/json", &body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, "application/json", "application/json", &body.to_string()).await
    }

    pub(crate) async fn patch(&self, format: &str, path: &str, body: Value) -> Answer {
        self.send("PATCH", path, format, "application/json", &body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", "application/json", "").await
    }

    pub(crate) async fn delete_with(&self, path: &str, body: Value) -> Answer {
        self.send("DELETE", path, "application/json", "application/json", &body.to_string()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, format: &str, accept: &str, body: &str) -> Answer {
        self.try_send(method, path, format, accept, body).await.unwrap()
    }

    /// Like [`Api::send`], for servers that may not answer.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        format: &str,
        accept: &str,
        body: &str,
    ) -> Result<Answer, String> {
        let work = async {
            let response = self.open(method, path, format, accept, body).await?;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, text })
        };
        tokio::time::timeout(PATIENCE, work).await.unwrap()
    }

    /// Opens a watch; the response must be 200.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        let path = format!("{path}{}watch=true", if path.contains('?') { "&" } else { "?" });
        let response = self.open("GET", &path, "", "application/json", "").await.unwrap();
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), buffer: Vec::new() }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        format: &str,
        accept: &str,
        body: &str,
    ) -> Result<http::Response<Incoming>, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
        let mut request = Request::builder().method(method).uri(path).header("host", &self.address);
        request = request.header("authorization", format!("Bearer {}", self.token)).header("accept", accept);
        request = request.header("user-agent", "conformance");
        if !format.is_empty() {
            request = request.header("content-type", format);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
                let stream = tokio_rustls::TlsConnector::from(tls.clone()).connect(name, stream).await;
                exchange(stream.map_err(|error| error.to_string())?, request).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<http::Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// The events of a watch.
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event, or `None` after the watch has ended (or broken).
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.unwrap()?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// The next event as type and object name.
    pub(crate) async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (word(&event["type"]), word(&event["object"]["metadata"]["name"]))
    }

    /// Whether no event arrives for a moment.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        let moment = Duration::from_millis(150);
        self.buffer.is_empty() && tokio::time::timeout(moment, self.body.frame()).await.is_err()
    }
}

/// The resourceVersion of an object or list.
pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}
