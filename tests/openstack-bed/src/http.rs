//! Requests to the services: plain HTTP on the loopback interface.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// For one request: the services are slow right after their start.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A service, by its type in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Keystone; paths begin with `/v3`.
    Identity,
    /// Neutron; `/v2.0`.
    Network,
    /// Octavia; `/v2.0/lbaas`.
    LoadBalancer,
    /// Nova; `/v2.1`.
    Compute,
    /// Glance; `/v2`.
    Image,
}

impl Service {
    fn port(self) -> u16 {
        match self {
            Self::Identity => 15000,
            Self::Network => 19696,
            Self::LoadBalancer => 19876,
            Self::Compute => 18774,
            Self::Image => 19292,
        }
    }
}

/// A response of a service.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body: JSON, a string if it is not JSON, or null if it is empty.
    pub body: Value,
    head: String,
}

impl Answer {
    fn parse(answer: &str) -> anyhow::Result<Self> {
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("the answer has no end of headers"))?;
        let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| anyhow!("the answer has no status: {head}"))?;
        let body = match body {
            "" => Value::Null,
            body => serde_json::from_str(body).unwrap_or_else(|_| body.into()),
        };
        Ok(Self { status, body, head: head.to_owned() })
    }

    /// A header, by its case-insensitive name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether the request succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A session of a user in a project.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) token: String,
}

impl Session {
    pub(crate) async fn with_password(user: &str, password: &str, project: &str) -> anyhow::Result<Self> {
        let user = json!({"name": user, "domain": {"id": "default"}, "password": password});
        let scope = json!({"project": {"name": project, "domain": {"id": "default"}}});
        let identity = json!({"methods": ["password"], "password": {"user": user}});
        let body = json!({"auth": {"identity": identity, "scope": scope}});
        let answer = send("", "POST", Service::Identity, "/v3/auth/tokens", Some(&body)).await?;
        let token = answer.header("X-Subject-Token").map(str::to_owned);
        Ok(Self { token: token.with_context(|| format!("no login: {} {}", answer.status, answer.body))? })
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        send(&self.token, method, service, path, body).await
    }

    /// The body of a successful response; any other response is an error.
    pub(crate) async fn call(
        &self,
        method: &str,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let answer = self.send(method, service, path, body).await?;
        anyhow::ensure!(answer.is_success(), "{method} {service:?} {path}: {} {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// Creates an object; `kind` is the key around it in request and response.
    pub(crate) async fn create(
        &self,
        service: Service,
        path: &str,
        kind: &str,
        object: &Value,
    ) -> anyhow::Result<Value> {
        let mut answer = self.call("POST", service, path, Some(&json!({kind: object}))).await?;
        let made = answer.get_mut(kind).map(Value::take);
        made.with_context(|| format!("POST {path}: the answer has no {kind}"))
    }

    /// The objects of a list: the first page, which has up to 1000.
    pub(crate) async fn list(&self, service: Service, path: &str) -> anyhow::Result<Vec<Value>> {
        let answer = self.call("GET", service, path, None).await?;
        // The body has one list besides those of links.
        let fields = answer.as_object().into_iter().flatten().filter(|(key, _)| !key.ends_with("links"));
        let objects = fields.filter_map(|(_, value)| value.as_array()).next();
        Ok(objects.with_context(|| format!("GET {path}: the answer has no list"))?.clone())
    }
}

/// A string of an object, empty if it is absent.
pub(crate) fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

async fn send(token: &str, method: &str, service: Service, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
    let what = || format!("{method} {service:?} {path}");
    let exchange = async {
        let body = body.map(Value::to_string).unwrap_or_default();
        let port = service.port();
        // HTTP/1.0: the response is never chunked and ends with the connection, so it needs no further parsing.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nX-Auth-Token: {token}\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len(),
        );
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Answer::parse(&String::from_utf8_lossy(&answer))
    };
    tokio::time::timeout(TIMEOUT, exchange).await.with_context(what)?.with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_headers_and_a_body() {
        let answer = Answer::parse("HTTP/1.0 201 CREATED\r\nX-Subject-Token: t\r\n\r\n{\"a\": 1}").unwrap();
        assert_eq!((answer.status, answer.header("x-subject-token")), (201, Some("t")));
        assert_eq!(answer.body, json!({"a": 1}));
        assert_eq!(Answer::parse("HTTP/1.0 204 No Content\r\nA: b\r\n\r\n").unwrap().body, Value::Null);
        assert_eq!(Answer::parse("HTTP/1.0 500 Oh\r\nA: b\r\n\r\noh").unwrap().body, json!("oh"));
        assert!(Answer::parse("HTTP/1.0").is_err());
    }
}
