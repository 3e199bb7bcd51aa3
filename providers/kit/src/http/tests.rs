use std::net::SocketAddr;
use std::sync::Arc;

use ccm_cloudsim::core::silence::Silence;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A server on 127.0.0.1 that gives every request the same answer. Stops with the runtime of the test.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// With `None` the server never answers.
    async fn start(answer: Option<Vec<u8>>, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let seen: Arc<Mutex<Vec<String>>> = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &tls {
                    None => one(stream, &seen, answer.as_deref()).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            one(stream, &seen, answer.as_deref()).await;
                        }
                    }
                }
            }
        });
        Self { address, requests }
    }

    async fn answering(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        Self::start(Some([head.as_bytes(), body].concat()), None).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock())
    }
}

async fn one(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<String>>, answer: Option<&[u8]>) {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
        request.push(byte[0]);
    }
    seen.lock().push(String::from_utf8(request).unwrap());
    match answer {
        Some(answer) => {
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
        None => std::future::pending().await,
    }
}

fn client_of(variables: &[(&str, &str)], tls: Tls<'_>) -> Result<Client, String> {
    client_with(variables, tls, Health::default())
}

fn client_with(variables: &[(&str, &str)], tls: Tls<'_>, health: Health) -> Result<Client, String> {
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let settings = Settings {
        cloud: "Stratus",
        environment: &get,
        tls,
        timeout: TIMEOUT,
        user_agent: "ccm/1",
        request_ids: &["x-stratus-id", "x-request-id"],
        refusal: |body| {
            let error = body.get("error")?;
            Some((error.get("type")?.as_str()?.to_owned(), error.get("message")?.as_str()?.to_owned()))
        },
    };
    Client::with_health(&settings, health)
}

async fn get(url: &str) -> Result<Answer, Failure> {
    let request = Request::get(url).header("authorization", "Bearer SECRET").body(Bytes::new()).unwrap();
    client_of(&[], Tls::default()).unwrap().send(request).await
}

#[tokio::test]
async fn an_answer_is_read_as_json() {
    let server = Server::answering("200 OK", "x-page: 1\r\n", r#"{"servers": [{"id": "a"}]}"#).await;
    let answer = get(&server.url("/servers?limit=1")).await.unwrap();
    assert_eq!((answer.status, &answer.headers["x-page"]), (200, &HeaderValue::from_static("1")));
    assert_eq!(answer.json::<Value>().unwrap(), json!({"servers": [{"id": "a"}]}));
    let request = &server.requests()[0];
    assert!(
        request.starts_with("GET /servers?limit=1 HTTP/1.1\r\n") && request.contains("user-agent: ccm/1"),
        "{request}"
    );
}

#[tokio::test]
async fn a_write_without_a_body_states_its_length_as_from_go() {
    let server = Server::answering("200 OK", "", "{}").await;
    let client = client_of(&[], Tls::default()).unwrap();
    for (method, is_stated) in [("POST", true), ("PUT", true), ("PATCH", true), ("GET", false), ("DELETE", false)] {
        let request = Request::builder().method(method).uri(server.url("/")).body(Bytes::new()).unwrap();
        client.send(request).await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.matches("content-length: 0\r\n").count(), usize::from(is_stated), "{request}");
    }
}

#[tokio::test]
async fn a_refusal_has_code_message_and_request_id() {
    let body = r#"{"error": {"type": "OverQuota", "message": "no more ports"}}"#;
    let server = Server::answering("409 Conflict", "X-Request-Id: req-1\r\nretry-after: 7\r\n", body).await;
    let failure = get(&server.url("/ports")).await.unwrap_err();
    assert_eq!((failure.status, &*failure.code, &*failure.message), (Some(409), "OverQuota", "no more ports"));
    assert_eq!((failure.request_id.as_deref(), failure.after), (Some("req-1"), Some(Duration::from_secs(7))));
    assert_eq!(failure.cause, Cause::Answered);

    let server = Server::answering("404 Not Found", "", "nothing here").await;
    let failure = get(&server.url("/x")).await.unwrap_err();
    assert_eq!((&*failure.code, &*failure.message, failure.cause), ("404", "Not Found", Cause::Answered));
    // Not followed, because the token would be sent along.
    let server = Server::answering("302 Found", "location: http://127.0.0.1:1/\r\n", "").await;
    assert_eq!(get(&server.url("/x")).await.unwrap_err().code, "302");
}

#[tokio::test]
async fn what_is_no_answer_of_the_cloud_says_so() {
    let page = "<!DOCTYPE html><html></html>";
    let large = "x".repeat(LARGEST_REFUSAL + 1);
    let text = "a web page with HTTP 502 instead of an answer: a proxy or portal stands between this host and Stratus";
    for (status, body, expected) in [
        ("502 Bad", page, text),
        ("200 OK", page, "a web page with HTTP 200"),
        ("500 Bad", &large, "it is larger than"),
    ] {
        let server = Server::answering(status, "", body).await;
        let failure = get(&server.url("/")).await.unwrap_err();
        assert!(failure.cause == Cause::NoAnswer && failure.message.starts_with(expected), "{failure:?}");
        assert_eq!(failure.status.map(|status| status.to_string()).as_deref(), status.get(..3));
    }
    let server = Server::start(Some("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\"".into()), None).await;
    let failure = get(&server.url("/")).await.unwrap_err();
    assert!(failure.cause == Cause::NoAnswer && failure.message.starts_with("it breaks off: "), "{failure:?}");
    let server = Server::answering("200 OK", "", "{\"a\": \"SECRET\"").await;
    let failure = get(&server.url("/")).await.unwrap().json::<Value>().unwrap_err();
    assert!(
        failure.cause == Cause::NoAnswer && failure.message.starts_with("unreadable JSON at line 1"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn errors_have_no_secrets() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failure = get(&format!("http://{closed}/?token=SECRET")).await.unwrap_err();
    assert_eq!(failure.cause, Cause::NotSent, "{failure:?}");
    assert!(!format!("{failure:?}").contains("SECRET"), "{failure:?}");
    let server = Server::answering("200 OK", "", "{\"port\": \"SECRET\"}").await;
    let answer = get(&server.url("/")).await.unwrap();
    let failure = answer.json::<std::collections::BTreeMap<String, u16>>().unwrap_err();
    assert!(!format!("{failure:?}").contains("SECRET"), "{failure:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let server = Server::start(None, None).await;
    let url = server.url("/");
    let request = tokio::spawn(async move { get(&url).await });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(TIMEOUT).await;
    let failure = request.await.unwrap().unwrap_err();
    assert_eq!((failure.cause, &*failure.message), (Cause::NoAnswer, "none within 30s"));
}

#[tokio::test]
async fn https_goes_through_a_tunnel_of_the_proxy_and_plain_http_in_absolute_form() {
    let proxy = Server::answering("407 Proxy Authentication Required", "", "").await;
    let url = format!("http://user:SECRET@{}", proxy.address);
    for (name, target, line) in [
        ("HTTPS_PROXY", "https://cloud.example/v2?a=b", "CONNECT cloud.example:443 HTTP/1.1\r\n"),
        ("http_proxy", "http://cloud.example:8774/v2?a=b", "GET http://cloud.example:8774/v2?a=b HTTP/1.1\r\n"),
    ] {
        let client = client_of(&[(name, &url), ("NO_PROXY", "other.example")], Tls::default()).unwrap();
        let failure = client.send(Request::get(target).body(Bytes::new()).unwrap()).await.unwrap_err();
        assert!(failure.cause == Cause::NotSent && !failure.message.contains("SECRET"), "{failure:?}");
        let request = proxy.requests().remove(0);
        assert!(request.starts_with(line), "{request}");
        assert!(request.to_ascii_lowercase().contains("proxy-authorization: basic "), "{request}");
    }
}

#[tokio::test]
async fn a_socks_proxy_gets_the_name_of_the_host_as_from_go() {
    for scheme in ["socks5", "socks5h"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let client = client_of(&[("HTTP_PROXY", &url)], Tls::default()).unwrap();
        let request = Request::get("http://cloud.example/v2").body(Bytes::new()).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 3];
            stream.read_exact(&mut greeting).await.unwrap();
            stream.write_all(&[5, 0]).await.unwrap();
            let mut target = [0; 4 + 1 + "cloud.example".len() + 2];
            stream.read_exact(&mut target).await.unwrap();
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            (greeting, target)
        };
        let (answer, (greeting, target)) = tokio::join!(client.send(request), server);
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(greeting, [5, 1, 0]);
        assert_eq!(&target[..5], [5, 1, 0, 3, 13]);
        assert_eq!(&target[5..18], b"cloud.example");
        assert_eq!(target[18..], 80u16.to_be_bytes());
    }
}

#[tokio::test]
async fn a_compressed_answer_is_unpacked() {
    let packed =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV*N-*K-*V\xb2R\x88\x8e\xad\x05\x00\x22\x0a)\xac\x0f\x00\x00\x00";
    let server = Server::answering("200 OK", "content-encoding: gzip\r\n", packed).await;
    let answer = get(&server.url("/servers")).await.unwrap();
    assert_eq!(answer.json::<Value>().unwrap(), json!({"servers": []}));
    let request = &server.requests()[0];
    assert!(request.contains("accept-encoding: gzip\r\n"), "{request}");
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_replaced_also_if_it_was_idle() {
    let short = Duration::from_millis(300);
    let health = Health { read_idle: short, ping_timeout: short, ..Health::default() };
    for is_idle in [false, true] {
        let server = Silence::start("h2", "{}").await.unwrap();
        let tls = Tls { authorities_pem: Some(server.certificate()), ..Tls::default() };
        let client = client_with(&[], tls, health).unwrap();
        let ask = async || client.send(Request::get(server.url()).body(Bytes::new()).unwrap()).await;
        ask().await.unwrap();
        server.fall();
        let began = Instant::now();
        if is_idle {
            tokio::time::sleep(short * 5).await;
        } else {
            assert_eq!(ask().await.unwrap_err().cause, Cause::NoAnswer);
        }
        ask().await.unwrap();
        assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn a_silent_connection_of_http_1_costs_one_request_its_timeout() {
    let server = Silence::start("http/1.1", "{}").await.unwrap();
    let tls = Tls { authorities_pem: Some(server.certificate()), ..Tls::default() };
    let client = client_of(&[], tls).unwrap();
    let hasty = client.patient(Duration::from_millis(300));
    let ask = async |client: &Client| client.send(Request::get(server.url()).body(Bytes::new()).unwrap()).await;
    ask(&client).await.unwrap();
    server.fall();
    assert_eq!(ask(&hasty).await.unwrap_err().cause, Cause::NoAnswer);
    ask(&client).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn certificates_are_chosen_by_the_settings() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let (path, key_path) = (file("ca.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let server = async |asks_for_a_certificate: bool| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let roots = Arc::new(bundle(&path).unwrap().0);
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = match asks_for_a_certificate {
            true => config.unwrap().with_client_cert_verifier(verifier.build().unwrap()),
            false => config.unwrap().with_no_client_auth(),
        };
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".into();
        Server::start(Some(answer), Some(Arc::new(config).into())).await
    };
    let send = async |server: &Server, tls: Tls<'_>| {
        let request = Request::get(format!("https://{}/", server.address)).body(Bytes::new()).unwrap();
        client_of(&[], tls).unwrap().send(request).await
    };
    let (open, asking, pem) = (server(false).await, server(true).await, made.cert.pem());
    let trusting = Tls { authorities: Some(&path), ..Tls::default() };
    for tls in
        [trusting, Tls { authorities_pem: Some(&pem), ..Tls::default() }, Tls { insecure: true, ..Tls::default() }]
    {
        assert_eq!(send(&open, tls).await.unwrap().json::<Value>().unwrap(), json!({}), "{tls:?}");
        send(&asking, tls).await.unwrap_err();
        send(&asking, Tls { identity: Some((&path, &key_path)), ..tls }).await.unwrap();
    }
    let failure = send(&open, Tls::default()).await.unwrap_err();
    assert!(failure.cause == Cause::NotSent && failure.message.contains("certificate"), "{failure:?}");
    let problem = client_of(&[], Tls { identity: Some((&path, &path)), ..trusting }).unwrap_err();
    assert!(problem.starts_with(&format!("{path:?}: ")), "{problem}");
}

/// `openssl req -x509` creates such certificates, or the issuer is not trusted. Go programs accept both.
#[tokio::test]
async fn a_server_may_show_the_very_certificate_that_is_trusted_if_it_is_valid_for_it() {
    let cases = [("127.0.0.1", 2195, true), ("127.0.0.2", 2195, false), ("127.0.0.1", 2015, false)];
    for ((name, end, works), by_itself) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        if by_itself {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2014, 1, 1), rcgen::date_time_ymd(end, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::new(rcgen::CertificateParams::default(), rcgen::KeyPair::generate().unwrap());
        let made = if by_itself { params.self_signed(&key) } else { params.signed_by(&key, &issuer) }.unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let secret = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![made.der().clone()], secret).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".into();
        let server = Server::start(Some(answer), Some(Arc::new(config).into())).await;
        let request = || Request::get(format!("https://{}/", server.address)).body(Bytes::new()).unwrap();
        let pem = made.pem();
        let client = client_of(&[], Tls { authorities_pem: Some(&pem), ..Tls::default() }).unwrap();
        let answer = client.send(request()).await;
        assert_eq!(answer.is_ok(), works, "{name} until {end}, by itself: {by_itself}: {answer:?}");
        let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
        let client = client_of(&[], Tls { authorities_pem: Some(&other), ..Tls::default() }).unwrap();
        client.send(request()).await.unwrap_err();
    }
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
    assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    assert!(retry_after("Wed, 21 Oct 2195 07:28:00 GMT").is_some_and(|after| after > Duration::from_secs(1 << 32)));
    assert_eq!(retry_after("soon"), None);
}

#[test]
fn a_delay_is_read_from_each_of_its_headers() {
    let of = |headers: &[(&'static str, &'static str)]| {
        let headers =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        requested_delay(&headers.collect())
    };
    assert_eq!(of(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
    assert_eq!(of(&[("retry-after", "7"), ("x-ms-retry-after-ms", "250")]), Some(Duration::from_millis(250)));
    assert_eq!(of(&[("retry-after-ms", "1500")]), Some(Duration::from_millis(1500)));
    assert_eq!(of(&[("x-ms-retry-after-ms", "soon")]), None);
}
