//! Requests to an OpenStack, simulated or real.

use crate::http::{Answer, send};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A project of a cloud, with a token for it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) token: String,
    pub(crate) project: String,
    /// The base URLs by service type.
    pub(crate) urls: BTreeMap<String, String>,
}

/// A login with a password, scoped to a project.
pub(crate) fn password(user: &str, password: &str, project: &str) -> Value {
    let domain = json!({"id": "default"});
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {"name": user, "domain": domain, "password": password}}},
        "scope": {"project": {"name": project, "domain": domain}},
    }})
}

impl Client {
    /// Logs in at a Keystone, whose URL ends in its version.
    pub(crate) fn login(keystone: &str, login: &Value) -> Self {
        let answer = send("POST", &format!("{keystone}/auth/tokens"), &[], &login.to_string()).expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.text);
        let mut urls = BTreeMap::from([("identity".to_owned(), keystone.to_owned())]);
        for service in answer.json["token"]["catalog"].as_array().expect("a catalog") {
            let public = service["endpoints"].as_array().unwrap().iter().find(|entry| entry["interface"] == "public");
            let kind = service["type"].as_str().unwrap();
            // With the version, as in clients.
            let version = match kind {
                "network" => "/v2.0",
                "load-balancer" => "/v2.0/lbaas",
                "key-manager" => "/v1",
                _ => "",
            };
            let url = public.expect("a public endpoint")["url"].as_str().unwrap();
            urls.insert(kind.to_owned(), format!("{url}{version}"));
        }
        Client {
            token: answer.headers["x-subject-token"].clone(),
            project: answer.json["token"]["project"]["id"].as_str().unwrap().to_owned(),
            urls,
        }
    }

    /// Sends a request: `network GET /ports?name=x`.
    pub(crate) fn call(&self, what: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.try_call(what, headers, body).expect("an answer")
    }

    /// Like [`Client::call`], for a connection that may break.
    pub(crate) fn try_call(&self, what: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<Answer> {
        let (service, method, path) = {
            let mut parts = what.splitn(3, ' ');
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
        };
        let url = format!("{}{path}", self.urls[service]);
        let headers: Vec<(&str, &str)> =
            headers.iter().copied().chain([("X-Auth-Token", self.token.as_str())]).collect();
        send(method, &url, &headers, body)
    }

    /// Creates an object and returns its ID.
    pub(crate) fn make(&self, path: &str, kind: &str, fields: &Value) -> String {
        let answer = self.call(path, &[], &json!({ kind: fields }).to_string());
        assert!(matches!(answer.status, 200..=202), "{path} {fields}: {} {}", answer.status, answer.text);
        answer.json[kind]["id"].as_str().unwrap_or_default().to_owned()
    }
}
