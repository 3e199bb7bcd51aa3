//! Tests requests on the wire, and reports of a process with a given environment. Safe code cannot set variables in a
//! running process, so those tests start this test program again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use aws_credential_types::Credentials;
use ccm_provider::metric::Registry;

use super::*;
use crate::client::metrics::caller;

/// A server on 127.0.0.1 that gives every request the same answer and records the requests. Ends with the process.
struct Stub {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn start(status: &'static str, body: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut content = vec![0; length];
                reader.read_exact(&mut content).unwrap();
                seen.lock().unwrap().push(format!("{head}\n{}", String::from_utf8_lossy(&content)));
                let answer =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn no_balancers() -> String {
    "<DescribeLoadBalancersResponse xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/\">\
     <DescribeLoadBalancersResult><LoadBalancerDescriptions/></DescribeLoadBalancersResult>\
     <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></DescribeLoadBalancersResponse>"
        .to_owned()
}

fn assumed() -> String {
    "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\
     <AccessKeyId>AKIDASSUMED</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>TOKEN</SessionToken>\
     <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>\
     <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleResponse>"
        .to_owned()
}

fn refused() -> String {
    "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>AccessDenied</Code>\
     <Message>not allowed</Message></Error><RequestId>r</RequestId></ErrorResponse>"
        .to_owned()
}

fn sdk(variables: &'static [(&'static str, &'static str)]) -> Sdk {
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let http = super::super::http::client(&get).unwrap();
    let (caller, metrics) = caller(&Registry::new());
    Sdk { http, caller, metrics, is_metadata_off: true }
}

/// In us-west-2, with fixed keys instead of the chain.
async fn shared() -> SdkConfig {
    let base = sdk(&[]).base("us-west-2").await;
    let keys = Credentials::new("AKIDBASE", "secret", None, None, "test");
    base.into_builder().credentials_provider(SharedCredentialsProvider::new(keys)).build()
}

fn config(text: &str) -> Config {
    Config::parse(Some(text)).unwrap().0
}

fn override_of(service: &str, url: &str) -> String {
    format!(
        "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = us-west-2\nURL = {url}\nSigningRegion = other-1\n"
    )
}

/// The value of a header.
fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let found = request.lines().find_map(|line| {
        line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    });
    found.unwrap_or_default()
}

/// Pitfall 2.
#[tokio::test]
async fn an_old_override_decides_address_and_signature() {
    let stub = Stub::start("200 OK", no_balancers());
    let config = config(&override_of("elasticloadbalancing", &format!("{}/elb/", stub.url)));
    let clients = clients(&config, &shared().await, "us-west-2");
    clients.elb.describe_load_balancers().send().await.unwrap();
    let requests = stub.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].starts_with("POST /elb/ HTTP/1.1"), "{}", requests[0]);
    let signed = header(&requests[0], "authorization");
    assert!(signed.contains("/other-1/elasticloadbalancing/aws4_request"), "{signed}");
    assert!(header(&requests[0], "user-agent").contains(" kubernetes/ccm-v"), "{}", requests[0]);
}

#[tokio::test]
async fn an_override_may_name_what_is_signed_for() {
    let stub = Stub::start("200 OK", no_balancers());
    let config = config(&format!("{}SigningName = special\n", override_of("Elastic Load Balancing", &stub.url)));
    clients(&config, &shared().await, "us-west-2").elb.describe_load_balancers().send().await.unwrap();
    let requests = stub.requests();
    let signed = header(&requests[0], "authorization");
    assert!(signed.contains("/other-1/special/aws4_request"), "{signed}");
}

/// Pitfall 5.
#[tokio::test]
async fn the_role_is_assumed_with_both_headers_signed() {
    let sts = Stub::start("200 OK", assumed());
    let elb = Stub::start("200 OK", no_balancers());
    let arn = "arn:aws:eks:us-west-2:123456789012:cluster/c1";
    let config = config(&format!(
        "[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\nSourceARN = {arn}\n{}{}",
        override_of("sts", &sts.url),
        override_of("Elastic Load Balancing", &elb.url)
    ));
    let shared = shared().await;
    let answers = Answers(caller(&Registry::new()).1);
    let role = assumed_role(&config, config.role().unwrap().unwrap(), &shared, "us-west-2", answers).unwrap();
    let shared = shared
        .into_builder()
        .credentials_provider(SharedCredentialsProvider::new(role))
        .identity_cache(identity_cache())
        .build();
    let clients = clients(&config, &shared, "us-west-2");
    clients.elb.describe_load_balancers().send().await.unwrap();
    clients.elb.describe_load_balancers().send().await.unwrap();

    let requests = sts.requests();
    assert_eq!(requests.len(), 1, "the role is assumed once");
    assert_eq!(header(&requests[0], "x-amz-source-account"), "123456789012");
    assert_eq!(header(&requests[0], "x-amz-source-arn"), arn);
    let signed = header(&requests[0], "authorization");
    let names = signed.split("SignedHeaders=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let names: Vec<&str> = names.split(';').collect();
    assert!(names.contains(&"x-amz-source-account") && names.contains(&"x-amz-source-arn"), "{signed}");
    assert!(signed.contains("Credential=AKIDBASE/") && signed.contains("/other-1/sts/aws4_request"), "{signed}");
    assert!(requests[0].contains("DurationSeconds=900"), "{}", requests[0]);
    for request in elb.requests() {
        assert!(header(&request, "authorization").contains("Credential=AKIDASSUMED/"), "{request}");
        assert_eq!(header(&request, "x-amz-security-token"), "TOKEN");
    }
}

#[tokio::test]
async fn a_refused_role_is_reported_with_its_remediation() {
    let sts = Stub::start("403 Forbidden", refused());
    let config =
        config(&format!("[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\n{}", override_of("STS", &sts.url)));
    let answers = Answers(caller(&Registry::new()).1);
    let role = config.role().unwrap().unwrap();
    let role = assumed_role(&config, role, &shared().await, "us-west-2", answers).unwrap();
    let error = aws_credential_types::provider::ProvideCredentials::provide_credentials(&role).await.unwrap_err();
    let text = ccm_kit::http::causes(&error, None);
    let expected = "cannot assume role arn:aws:iam::123456789012:role/ccm ([Global] RoleARN): AccessDenied: not allowed; the trust policy";
    assert!(text.starts_with(expected), "{text}");
}

#[tokio::test]
async fn the_sdk_makes_one_attempt() {
    let stub = Stub::start("503 Service Unavailable", "<Error/>".to_owned());
    let config = config(&override_of("Elastic Load Balancing", &stub.url));
    let clients = clients(&config, &shared().await, "us-west-2");
    assert!(clients.elb.describe_load_balancers().send().await.is_err());
    assert_eq!(stub.requests().len(), 1);
}

/// Not a test: the part that runs in a separate process, which [`run`] starts.
#[tokio::test]
#[ignore = "started by the tests below"]
async fn in_another_process() {
    let (caller, metrics) = caller(&Registry::new());
    let sdk = Sdk::from_environment(caller, metrics).unwrap();
    let api = Box::new(sdk).api(&Config::default(), "us-west-2").await.unwrap();
    match api.classic_balancers(&[]).await {
        Ok(found) => println!("found {}", found.len()),
        Err(error) => println!("failed {}", error.message),
    }
}

/// Runs it with exactly these variables.
fn run(variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "sdk::connect::tests::in_another_process", "--ignored", "--nocapture"]);
    child.env_clear().env("HOME", "/nonexistent").envs(variables.iter().copied());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    text
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKIDENV"), ("AWS_SECRET_ACCESS_KEY", "secret")];

#[test]
fn keys_and_endpoints_come_from_the_environment() {
    let stub = Stub::start("200 OK", no_balancers());
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING"] {
        let output = run(&[KEYS[0], KEYS[1], (name, &stub.url)]);
        assert!(output.contains("found 0"), "{output}");
        let requests = stub.requests();
        let signed = header(&requests[0], "authorization");
        assert!(
            signed.contains("Credential=AKIDENV/") && signed.contains("/us-west-2/elasticloadbalancing/"),
            "{signed}"
        );
    }
}

#[test]
fn https_goes_through_the_proxy_of_the_environment() {
    let proxy = Stub::start("407 Proxy Authentication Required", String::new());
    let output = run(&[KEYS[0], KEYS[1], ("HTTPS_PROXY", &proxy.url)]);
    assert!(output.contains("failed "), "{output}");
    let requests = proxy.requests();
    assert!(
        requests.iter().any(|text| text.starts_with("CONNECT elasticloadbalancing.us-west-2.amazonaws.com:443 ")),
        "{requests:?}"
    );
}

#[test]
fn missing_credentials_are_explained() {
    let output = run(&[("AWS_EC2_METADATA_DISABLED", "true")]);
    let expected = "no AWS credentials: the environment names no source of credentials, and the instance metadata service is \
                    switched off by AWS_EC2_METADATA_DISABLED";
    assert!(output.contains(expected), "{output}");
}

#[test]
fn a_refusing_metadata_service_is_explained() {
    let imds = Stub::start("403 Forbidden", String::new());
    let output = run(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url)]);
    assert!(output.contains("the instance metadata service refuses (HTTP 403): it is switched off"), "{output}");
}

#[test]
fn a_missing_web_identity_token_is_reported_with_its_file() {
    let output = run(&[
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ]);
    assert!(output.contains("/nonexistent/token") && output.contains("is the volume mounted?"), "{output}");
}
