use std::collections::BTreeMap;

use ccm_cloudsim::core::server::{Answer as Reply, Handler, Request as Received, Runtime, Server};
use ccm_kit::http::{Settings, Tls};
use ccm_provider::metric::Registry;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::alternate::Alternate;
use super::file::Credentials;
use super::*;
use crate::client::failure::refusal;
use crate::client::metrics::Metrics;

/// Token endpoints on one port: the response of each path, and the requests.
struct Issuers {
    server: Server,
    seen: Arc<Seen>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Seen {
    answers: Mutex<BTreeMap<String, Value>>,
    requests: Mutex<Vec<(String, String, String)>>,
}

impl Handler for Seen {
    fn answer(self: Arc<Self>, request: Received) -> BoxFuture<'static, Reply> {
        let path = request.uri().path().to_owned();
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let holder = header("authorization").or_else(|| header("x-holder")).unwrap_or_default();
        self.requests.lock().push((path.clone(), holder, body));
        let answer = self.answers.lock().get(&path).cloned();
        let (status, body) = answer.map_or((400, json!({"error": "invalid_grant"})), |answer| (200, answer));
        let response = http::Response::builder().status(status).body(Bytes::from(body.to_string())).unwrap();
        Box::pin(std::future::ready(Reply::Reply(response)))
    }
}

impl Issuers {
    fn start(answers: &[(&str, Value)]) -> Self {
        let runtime = Runtime::start("issuers").unwrap();
        let seen = Arc::new(Seen::default());
        let answers = answers.iter().map(|(path, answer)| ((*path).to_owned(), answer.clone())).collect();
        *seen.answers.lock() = answers;
        let server = runtime.spawner().serve(0, seen.clone()).unwrap();
        Self { server, seen, _runtime: runtime }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.url())
    }

    fn requests(&self) -> Vec<(String, String, String)> {
        std::mem::take(&mut *self.seen.requests.lock())
    }
}

fn client() -> Client {
    let settings = Settings {
        cloud: "GCE",
        environment: &|_| None,
        tls: Tls::default(),
        timeout: Duration::from_secs(5),
        user_agent: "test",
        request_ids: &[],
        refusal,
    };
    Client::new(&settings).unwrap()
}

async fn token(credentials: &Value) -> Result<String, String> {
    let credentials = Credentials::parse(credentials.to_string().as_bytes())?;
    let token = credentials.token(&client(), SCOPE, 0).await.map_err(|failure| failure.message)?;
    Ok(token.text().to_owned())
}

fn granted(token: &str) -> Value {
    json!({"access_token": token, "expires_in": 3600})
}

#[tokio::test]
async fn a_person_has_a_refresh_token() {
    let issuers = Issuers::start(&[("/token", granted("t"))]);
    let user = json!({"type": "authorized_user", "client_id": "c d", "client_secret": "s", "refresh_token": "r",
        "token_uri": issuers.url("/token")});
    assert_eq!(token(&user).await.unwrap(), "t");
    let (_, _, body) = issuers.requests().remove(0);
    assert_eq!(body, "grant_type=refresh_token&client_id=c%20d&client_secret=s&refresh_token=r");
}

#[tokio::test]
async fn a_person_of_another_identity_provider_has_a_refresh_token_and_a_client() {
    let issuers = Issuers::start(&[("/v1/oauthtoken", granted("t"))]);
    let user = json!({"type": "external_account_authorized_user", "audience": "//iam/pool", "client_id": "c", "client_secret": "s",
        "refresh_token": "r/1", "token_url": issuers.url("/v1/oauthtoken")});
    assert_eq!(token(&user).await.unwrap(), "t");
    let (_, holder, body) = issuers.requests().remove(0);
    assert_eq!((&*holder, &*body), ("Basic Yzpz", "grant_type=refresh_token&refresh_token=r%2F1"));
}

#[tokio::test]
async fn a_token_of_another_issuer_is_exchanged_and_impersonates() {
    let issuers = Issuers::start(&[
        ("/sts", granted("federated")),
        ("/account:generateAccessToken", json!({"accessToken": "impersonated", "expireTime": "2100-01-01T00:00:00Z"})),
        ("/subject", json!({"id_token": "of-url"})),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "of-file\n").unwrap();
    let external = |source: Value, impersonation: Option<String>| {
        json!({"type": "external_account", "audience": "//iam/pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": issuers.url("/sts"), "service_account_impersonation_url": impersonation, "credential_source": source})
    };
    let mut of_file = external(json!({"file": path, "headers": null, "format": {"type": null}}), None);
    of_file["service_account_impersonation"] = Value::Null;
    assert_eq!(token(&of_file).await.unwrap(), "federated");
    assert!(issuers.requests()[0].2.ends_with("&subject_token=of-file"));
    let format = json!({"type": "json", "subject_token_field_name": "id_token"});
    let source = json!({"url": issuers.url("/subject"), "headers": {"x-holder": "me"}, "format": format});
    let account = issuers.url("/account:generateAccessToken");
    assert_eq!(token(&external(source, Some(account))).await.unwrap(), "impersonated");
    let requests = issuers.requests();
    assert_eq!((&*requests[0].0, &*requests[0].1), ("/subject", "me"));
    assert!(requests[1].2.ends_with("&subject_token=of-url"), "{requests:?}");
    assert_eq!((&*requests[2].1, requests[2].2.contains(SCOPE)), ("Bearer federated", true));
    for (source, expected) in [
        (json!({"environment_id": "aws1"}), "of AWS"),
        (json!({"executable": {"command": "/bin/x"}}), "of an executable"),
        (json!({}), "neither file nor url"),
        (json!({"file": "/does/not/exist"}), "/does/not/exist"),
    ] {
        let error = token(&external(source, None)).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn the_exchange_for_a_workforce_pool_names_its_project_or_its_client() {
    let issuers = Issuers::start(&[
        ("/sts", granted("federated")),
        ("/account", json!({"accessToken": "impersonated", "expireTime": "2100-01-01T00:00:00Z"})),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "of-file").unwrap();
    let mut pool = json!({"type": "external_account", "audience": "//iam/pool", "subject_token_type": "x",
        "token_url": issuers.url("/sts"), "credential_source": {"file": path}, "workforce_pool_user_project": "p1",
        "service_account_impersonation_url": issuers.url("/account"),
        "service_account_impersonation": {"token_lifetime_seconds": 2800}});
    assert_eq!(token(&pool).await.unwrap(), "impersonated");
    pool["client_id"] = json!("c");
    pool["client_secret"] = json!("s");
    assert_eq!(token(&pool).await.unwrap(), "impersonated");
    let requests = issuers.requests();
    assert!(requests[0].2.ends_with("&options=%7B%22userProject%22%3A%22p1%22%7D"), "{requests:?}");
    assert!(requests[1].2.contains("\"lifetime\":\"2800s\""), "{requests:?}");
    assert_eq!((&*requests[2].1, requests[2].2.contains("options")), ("Basic Yzpz", false));
}

#[tokio::test]
async fn an_impersonated_account_has_the_token_of_its_holder() {
    let issuers = Issuers::start(&[
        ("/token", granted("own")),
        ("/account", json!({"accessToken": "theirs", "expireTime": "2100-01-01T00:00:00Z"})),
    ]);
    let source = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
        "token_uri": issuers.url("/token")});
    let impersonated = |source: Value| {
        json!({"type": "impersonated_service_account", "service_account_impersonation_url": issuers.url("/account"),
            "delegates": ["d"], "source_credentials": source})
    };
    assert_eq!(token(&impersonated(source.clone())).await.unwrap(), "theirs");
    let requests = issuers.requests();
    assert_eq!((&*requests[1].1, requests[1].2.contains("\"delegates\":[\"d\"]")), ("Bearer own", true));
    let mut undelegated = impersonated(source.clone());
    undelegated["delegates"] = Value::Null;
    assert_eq!(token(&undelegated).await.unwrap(), "theirs");
    let deep = (0..5).fold(source, |inner, _| impersonated(inner));
    assert!(token(&deep).await.unwrap_err().contains("too many"));
}

#[test]
fn a_file_of_another_kind_is_named_and_not_quoted() {
    for (file, expected) in [
        (json!({"type": "gdch_service_account"}), "\"gdch_service_account\" are not supported"),
        (json!({"type": "authorized_user", "client_id": 7, "refresh_token": "hush"}), "authorized_user: "),
        (json!({"type": "service_account", "private_key": "hush"}), "service_account: no `client_email`"),
        (json!({}), "no \"type\""),
    ] {
        let error = Credentials::parse(file.to_string().as_bytes()).err().unwrap();
        assert!(error.contains(expected) && !error.contains("hush"), "{error}");
    }
    assert!(Credentials::parse(b"{").is_err());
}

/// Issues numbered tokens, each valid for this many seconds.
#[derive(Debug)]
struct Numbered(Mutex<u32>, i64);

#[async_trait]
impl Source for Numbered {
    async fn fetch(&self) -> Result<Token, Failure> {
        let mut number = self.0.lock();
        *number += 1;
        Answer { access_token: format!("t{number}"), expires_in: Some(self.1) }.token()
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_until_it_is_old_or_refused() {
    let tokens = Tokens::new(Arc::new(Numbered(Mutex::default(), 3600)));
    let all = futures::future::join_all((0..10).map(|_| tokens.get())).await;
    assert!(all.iter().all(|token| token.as_ref().unwrap().value.text() == "t1"));
    let first = tokens.get().await.unwrap();
    let life = first.value.life.unwrap();
    assert_eq!(life.end.duration_since(life.renew).as_secs(), 225);
    // Several callers see the same refusal.
    let (one, two) = tokio::join!(tokens.after(&first), tokens.after(&first));
    assert_eq!((one.unwrap().value.text(), two.unwrap().value.text()), ("t2", "t2"));
    assert!(!format!("{tokens:?} {first:?}").contains("t1"));
}

/// The first token is old enough to renew, and valid; the later ones never come.
#[derive(Debug, Default)]
struct Hanging(Mutex<u32>);

#[async_trait]
impl Source for Hanging {
    async fn fetch(&self) -> Result<Token, Failure> {
        let at = |seconds| Timestamp::now() + SignedDuration::from_secs(seconds);
        let number = {
            let mut number = self.0.lock();
            *number += 1;
            *number
        };
        if number > 1 {
            std::future::pending::<()>().await;
        }
        Ok(Token { life: Some(Life { renew: at(-1), end: at(200) }), ..Token::new("valid", None)? })
    }
}

#[tokio::test(start_paused = true)]
async fn requests_go_on_with_a_valid_token_while_its_source_hangs() {
    let (source, began) = (Arc::new(Hanging::default()), tokio::time::Instant::now());
    let tokens = Tokens::new(source.clone());
    tokens.get().await.unwrap();
    for _ in 0..2 {
        let all = futures::future::join_all((0..10).map(|_| tokens.get())).await;
        assert!(all.iter().all(|token| token.as_ref().unwrap().value.text() == "valid"));
        tokio::task::yield_now().await;
    }
    assert_eq!((*source.0.lock(), began.elapsed()), (2, Duration::ZERO));
}

#[tokio::test]
async fn an_alternate_url_is_asked_with_the_token_of_the_instance() {
    let issuers =
        Issuers::start(&[("/alternate", json!({"accessToken": "other", "expireTime": "2100-01-01T00:00:00Z"}))]);
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let instance = Tokens::new(Arc::new(Numbered(Mutex::default(), 3600)));
    let url = issuers.url("/alternate");
    let source = Alternate::new(url, "{\"a\":1}".to_owned(), client(), instance, metrics.clone());
    assert_eq!(source.fetch().await.unwrap().text(), "other");
    assert_eq!(issuers.requests(), [("/alternate".to_owned(), "Bearer t1".to_owned(), "{\"a\":1}".to_owned())]);
    let count = |name: &str| registry.value(name, &[]);
    assert_eq!((count("get_token_count"), count("get_token_fail_count")), (Some(1.0), Some(0.0)));
    issuers.seen.answers.lock().clear();
    assert!(source.fetch().await.is_err());
    assert_eq!((count("get_token_count"), count("get_token_fail_count")), (Some(2.0), Some(1.0)));
}

#[tokio::test(start_paused = true)]
async fn an_alternate_url_is_asked_at_a_pace() {
    let instance = Tokens::new(Arc::new(Numbered(Mutex::default(), 3600)));
    let metrics = Metrics::new(&Registry::new());
    let source = Alternate::new("http://x/".to_owned(), String::new(), client(), instance, metrics);
    let start = tokio::time::Instant::now();
    let turns: Vec<u64> = (0..5).map(|_| source.turn().duration_since(start).as_secs()).collect();
    assert_eq!(turns, [0, 0, 0, 20, 40]);
}
