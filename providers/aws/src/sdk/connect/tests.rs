//! Tests requests on the wire, and reports of a process with a given environment. Safe code cannot set variables in a
//! running process, so those tests start this test program again.

use std::process::Command;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, NetworkSeed};
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::server::Request;
use ccm_provider::metric::Registry;

use super::*;
use crate::client::metrics::caller;
use crate::sdk::tests::{Running, elb_answer, elb_error, reply};

fn no_balancers() -> Running {
    Running::start(|_, _| elb_answer("DescribeLoadBalancers", "<LoadBalancerDescriptions/>"))
}

const ASSUMED: &str = "<Credentials><AccessKeyId>AKIDASSUMED</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                       <SessionToken>TOKEN</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>";

fn sdk(variables: &'static [(&'static str, &'static str)]) -> Sdk {
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let http = super::super::http::client(&get).unwrap();
    let (caller, metrics) = caller(&Registry::new());
    let metadata_http = super::super::metadata::client(http.clone());
    Sdk { http, metadata_http, caller, metrics, is_metadata_off: true }
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
fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Pitfall 2.
#[tokio::test]
async fn an_old_override_decides_address_and_signature() {
    let stub = no_balancers();
    let config = config(&override_of("elasticloadbalancing", &format!("{}/elb/", stub.url())));
    let clients = clients(&config, &shared().await, "us-west-2");
    clients.elb.describe_load_balancers().send().await.unwrap();
    let requests = stub.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].method().as_str(), requests[0].uri().path()), ("POST", "/elb/"));
    let signed = header(&requests[0], "authorization");
    assert!(signed.contains("/other-1/elasticloadbalancing/aws4_request"), "{signed}");
    assert!(header(&requests[0], "user-agent").contains(" kubernetes/ccm-v"), "{:?}", requests[0]);
}

#[tokio::test]
async fn an_override_may_name_what_is_signed_for() {
    let stub = no_balancers();
    let config = config(&format!("{}SigningName = special\n", override_of("Elastic Load Balancing", &stub.url())));
    clients(&config, &shared().await, "us-west-2").elb.describe_load_balancers().send().await.unwrap();
    let requests = stub.requests();
    let signed = header(&requests[0], "authorization");
    assert!(signed.contains("/other-1/special/aws4_request"), "{signed}");
}

/// Pitfall 5.
#[tokio::test]
async fn the_role_is_assumed_with_both_headers_signed() {
    let sts = Running::start(|_, _| elb_answer("AssumeRole", ASSUMED));
    let elb = no_balancers();
    let arn = "arn:aws:eks:us-west-2:123456789012:cluster/c1";
    let config = config(&format!(
        "[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\nSourceARN = {arn}\n{}{}",
        override_of("sts", &sts.url()),
        override_of("Elastic Load Balancing", &elb.url())
    ));
    let shared = shared().await;
    let answers = Answers(caller(&Registry::new()).1);
    let role = assumed_role(&config, config.role().unwrap().unwrap(), &shared, "us-west-2", answers).unwrap();
    let shared = shared.into_builder().credentials_provider(renewed(role)).build();
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
    let form = String::from_utf8_lossy(requests[0].body());
    assert!(form.contains("DurationSeconds=900"), "{form}");
    for request in elb.requests() {
        assert!(header(&request, "authorization").contains("Credential=AKIDASSUMED/"), "{request:?}");
        assert_eq!(header(&request, "x-amz-security-token"), "TOKEN");
    }
}

#[tokio::test]
async fn valid_credentials_serve_to_their_end_while_no_others_can_be_had() {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(40);
    let last = ASSUMED.replace("2099-01-01T00:00:00Z", &end.to_string());
    let sts = Running::start(move |nth, _| match nth {
        0 => elb_answer("AssumeRole", &last),
        _ => elb_error(403, "AccessDenied", "not any more"),
    });
    let elb = no_balancers();
    let config = config(&format!(
        "[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\n{}{}",
        override_of("sts", &sts.url()),
        override_of("Elastic Load Balancing", &elb.url())
    ));
    let (role, answers, shared) = (config.role().unwrap().unwrap(), caller(&Registry::new()).1, shared().await);
    let role = assumed_role(&config, role, &shared, "us-west-2", Answers(answers)).unwrap();
    let clients = clients(&config, &shared.into_builder().credentials_provider(renewed(role)).build(), "us-west-2");
    for _ in 0..2 {
        clients.elb.describe_load_balancers().send().await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_role_is_reported_with_its_remediation() {
    let sts = Running::start(|_, _| elb_error(403, "AccessDenied", "not allowed"));
    let config =
        config(&format!("[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\n{}", override_of("STS", &sts.url())));
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
    let stub = Running::start(|_, _| reply(503, "<Error/>"));
    let config = config(&override_of("Elastic Load Balancing", &stub.url()));
    let clients = clients(&config, &shared().await, "us-west-2");
    assert!(clients.elb.describe_load_balancers().send().await.is_err());
    assert_eq!(stub.requests().len(), 1);
}

fn instance(aws: &Aws) -> String {
    let seed = NetworkSeed { zones: vec!['a'], ..NetworkSeed::default() };
    let network = aws.world(|world| seed::network(world, &seed)).unwrap();
    let seed = InstanceSeed { subnets: network.public, ..InstanceSeed::default() };
    aws.world(|world| seed::instances(world, &seed)).unwrap().remove(0)
}

/// An instance and its metadata service as it appears in a pod: requests for a token get this status; `None`: the answer
/// passes one hop and does not arrive.
struct Pod {
    aws: Aws,
    own: String,
    metadata: Imds,
}

impl Pod {
    fn start(status: Option<u16>, are_tokens_optional: bool) -> Self {
        let aws = Aws::start(Options::default()).unwrap();
        let own = instance(&aws);
        aws.world(|world| {
            let options = world.ec2.instances.get_mut(&own).unwrap();
            (options.metadata_hops, options.metadata_tokens_optional) = (1, are_tokens_optional);
        });
        if let Some(status) = status {
            let refused = Fault::Status { status, body: String::new() };
            aws.fault(Rule::every(refused).on("imds", "/latest/api/token"));
        }
        let metadata = aws.imds(&own, ImdsOptions { hops: 2, ..ImdsOptions::default() }).unwrap();
        Self { aws, own, metadata }
    }

    /// The own instance, as the start of the program finds it.
    fn client(&self) -> Arc<dyn Metadata> {
        let sdk = Sdk { is_metadata_off: false, ..sdk(&[]) };
        sdk.metadata(&config(&override_of("ec2imds", &self.metadata.url()))).unwrap()
    }

    /// Runs the program with the credentials of the instance.
    fn run(&self, elb: &Running, more: &[(&str, &str)]) -> String {
        let (metadata, elb) = (self.metadata.url(), elb.url());
        let variables = [
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str()),
            ("AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING", &elb),
        ];
        run(&[&variables, more].concat())
    }
}

/// Not a test: the part that runs in a separate process, which [`run`] starts.
#[tokio::test]
#[ignore = "started by the tests below"]
async fn in_another_process() {
    let (caller, metrics) = caller(&Registry::new());
    let sdk = Sdk::from_environment(caller, metrics).unwrap();
    let config = config(&std::env::var(CLOUD_CONFIG).unwrap_or_default());
    let api = Box::new(sdk).api(&config, "us-west-2").await.unwrap();
    for _ in 0..3 {
        match api.classic_balancers(&[]).await {
            Ok(found) => println!("found {}", found.len()),
            Err(error) => return println!("failed {}", error.message),
        }
    }
}

/// The variable with the cloud config of the other process.
const CLOUD_CONFIG: &str = "CCM_TEST_CLOUD_CONFIG";

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
    let stub = no_balancers();
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING"] {
        let output = run(&[KEYS[0], KEYS[1], (name, &stub.url())]);
        assert!(output.contains("found 0"), "{output}");
        let requests = stub.requests();
        let signed = header(&requests[0], "authorization");
        assert!(
            signed.contains("Credential=AKIDENV/") && signed.contains("/us-west-2/elasticloadbalancing/"),
            "{signed}"
        );
    }
}

/// The cache of the SDK asks for others in the last ten seconds of their life, and the request waits.
#[test]
fn requests_of_the_program_are_signed_with_the_same_credentials_to_their_end() {
    let left = Duration::from_secs(8);
    for role in ["", "RoleARN = arn:aws:iam::123456789012:role/ccm"] {
        let sts = Running::start(move |_, _| {
            let end = jiff::Timestamp::now() + left;
            elb_answer("AssumeRole", &ASSUMED.replace("2099-01-01T00:00:00Z", &end.to_string()))
        });
        let aws = Aws::start(Options::default()).unwrap();
        let own = instance(&aws);
        // Those that assume the role live longer.
        let lifetime = if role.is_empty() { left } else { Duration::from_secs(3600) };
        let metadata = aws.imds(&own, ImdsOptions { lifetime, ..ImdsOptions::default() }).unwrap();
        let output = run(&[
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url()),
            ("AWS_ENDPOINT_URL_STS", &sts.url()),
            ("AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING", &no_balancers().url()),
            (CLOUD_CONFIG, &format!("[Global]\n{role}\n")),
        ]);
        assert_eq!(output.matches("found 0").count(), 3, "{role}: {output}");
        let path = "/latest/meta-data/iam/security-credentials/node";
        let read = aws.ledger(|ledger| ledger.since(0).filter(|entry| entry.action == path).count());
        assert_eq!((read, sts.requests().len()), (1, usize::from(!role.is_empty())), "{role}");
    }
}

#[test]
fn https_goes_through_the_proxy_of_the_environment() {
    let proxy = Running::start(|_, _| reply(407, ""));
    let output = run(&[KEYS[0], KEYS[1], ("HTTPS_PROXY", &proxy.url())]);
    assert!(output.contains("failed "), "{output}");
    let requests = proxy.requests();
    let lines: Vec<String> = requests.iter().map(|request| format!("{} {}", request.method(), request.uri())).collect();
    assert!(lines.contains(&"CONNECT elasticloadbalancing.us-west-2.amazonaws.com:443".to_owned()), "{lines:?}");
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
    let imds = Running::start(|_, _| reply(403, ""));
    let output = run(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url())]);
    assert!(output.contains("the instance metadata service refuses (HTTP 403): it is switched off"), "{output}");
}

#[tokio::test]
async fn in_a_pod_the_optional_token_is_done_without() {
    for status in [None, Some(403), Some(404), Some(405)] {
        let pod = Pod::start(status, true);
        let client = pod.client();
        assert_eq!(client.instance_id().await.as_ref(), Ok(&pod.own), "{status:?}");
        assert_eq!(client.identity().await.unwrap().instance_id.as_ref(), Some(&pod.own), "{status:?}");
        let elb = no_balancers();
        let output = pod.run(&elb, &[]);
        assert_eq!(output.matches("found 0").count(), 3, "{status:?}: {output}");
        let requests = elb.requests();
        assert!(header(&requests[0], "authorization").contains("Credential=ASIA"), "{status:?}: {requests:?}");
    }
}

#[tokio::test]
async fn a_null_in_the_identity_document_is_an_absent_field() {
    let fields =
        ["privateIp", "accountId", "availabilityZone", "instanceType", "architecture", "instanceId", "imageId"];
    let nulls: String = fields.iter().map(|field| format!(", \"{field}\": null")).collect();
    let pod = Pod::start(Some(404), true);
    let document = Fault::Status { status: 200, body: format!("{{\"region\": \"us-west-2\"{nulls}}}") };
    pod.aws.fault(Rule::every(document).on("imds", "/latest/dynamic/instance-identity/document"));
    let expected = Identity { region: Some("us-west-2".to_owned()), ..Identity::default() };
    assert_eq!(pod.client().identity().await, Ok(expected));
}

#[tokio::test]
async fn in_a_pod_a_required_token_that_is_not_to_be_had_is_explained() {
    for status in [None, Some(403), Some(404), Some(405)] {
        let pod = Pod::start(status, false);
        for text in [pod.client().instance_id().await.unwrap_err(), pod.run(&no_balancers(), &[])] {
            assert!(text.contains("a request without a token is refused): in a pod, run with hostNetwork"), "{text}");
            assert!(text.contains("--http-put-response-hop-limit 2"), "{text}");
        }
    }
}

#[tokio::test]
async fn tokens_are_used_again_as_soon_as_they_are_to_be_had() {
    let pod = Pod::start(Some(404), true);
    let client = pod.client();
    client.instance_id().await.unwrap();
    pod.aws.faults(Faults::clear);
    pod.aws.world(|world| {
        let options = world.ec2.instances.get_mut(&pod.own).unwrap();
        (options.metadata_hops, options.metadata_tokens_optional) = (2, false);
    });
    assert_eq!(client.instance_id().await, Ok(pod.own));
}

#[test]
fn the_environment_forbids_to_do_without_a_token() {
    let pod = Pod::start(Some(404), true);
    let output = pod.run(&no_balancers(), &[("AWS_EC2_METADATA_V1_DISABLED", "true")]);
    assert!(output.contains("no AWS credentials"), "{output}");
    let read: Vec<String> = pod.aws.ledger(|ledger| ledger.since(0).map(|entry| entry.action.clone()).collect());
    assert!(!read.is_empty() && read.iter().all(|path| path == "/latest/api/token"), "{read:?}");
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
