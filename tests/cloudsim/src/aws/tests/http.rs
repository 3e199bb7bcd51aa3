//! The running services, called in plain HTTP over a socket.

use crate::aws::ec2::InstanceState;
use crate::aws::ec2::seed::{InstanceSeed, NetworkSeed, instances, network};
use crate::aws::imds::ImdsOptions;
use crate::aws::{Aws, Call, Options, Service, handle};
use crate::core::client::{self, Answer};
use crate::core::clock::{Mode, later};
use crate::core::faults::{Fault, Faults, Rule};
use crate::core::throttle::BucketSpec;
use jiff::Timestamp;
use std::io;
use std::time::{Duration, Instant};

/// Sends one request on a new connection; an error if the connection breaks before the end of the body.
fn send(url: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Answer> {
    client::send(method, &format!("{url}{path}"), headers, body)
}

fn signed(key: &str, service: &str, region: &str) -> String {
    let zeros = "0".repeat(64);
    format!(
        "AWS4-HMAC-SHA256 Credential={key}/20261121/{region}/{service}/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date, Signature={zeros}"
    )
}

fn call_as(aws: &Aws, key: &str, service: &str, version: &str, form: &str) -> io::Result<Answer> {
    let authorization = signed(key, service, "us-west-2");
    let headers = [
        ("authorization", authorization.as_str()),
        ("x-amz-date", "20261121T120000Z"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("user-agent", "test/1"),
    ];
    send(&aws.url(), "POST", "/", &headers, &format!("Version={version}&Action={form}"))
}

fn ec2(aws: &Aws, form: &str) -> io::Result<Answer> {
    call_as(aws, "AKIATEST", "ec2", "2016-11-15", form)
}

fn start(options: Options) -> Aws {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    Aws::start(Options { clock: Mode::Stepped { start }, ..options }).unwrap()
}

fn vpc(aws: &Aws) -> String {
    aws.world(|world| network(world, &NetworkSeed::default()).unwrap().vpc)
}

fn group_form(vpc: &str, name: &str) -> String {
    format!("CreateSecurityGroup&GroupName={name}&GroupDescription=d&VpcId={vpc}")
}

fn groups(aws: &Aws) -> usize {
    aws.world(|world| world.ec2.groups.len())
}

#[test]
fn the_scope_of_the_signature_chooses_the_service_and_must_fit() {
    let aws = start(Options::default());
    let unsigned = send(&aws.url(), "POST", "/", &[], "Version=2016-11-15&Action=DescribeVpcs").unwrap();
    assert_eq!(unsigned.status, 401);
    assert!(unsigned.text.contains("<Response><Errors><Error><Code>AuthFailure</Code>"), "{}", unsigned.text);
    let unsigned = send(&aws.url(), "POST", "/", &[], "Version=2012-06-01&Action=X").unwrap();
    assert_eq!(unsigned.status, 403);
    assert!(unsigned.text.contains("<Type>Sender</Type><Code>MissingAuthenticationToken</Code>"), "{}", unsigned.text);
    let good = ec2(&aws, "DescribeVpcs").unwrap();
    assert_eq!(good.status, 200);
    assert!(good.text.contains("<DescribeVpcsResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">"));
    let wrong = call_as(&aws, "AKIATEST", "elasticloadbalancing", "2016-11-15", "DescribeVpcs").unwrap();
    assert!(wrong.text.contains("NoSuchVersion"), "{}", wrong.text);
    let authorization = signed("AKIATEST", "ec2", "eu-west-1");
    let headers = [("authorization", authorization.as_str()), ("x-amz-date", "20261121T120000Z")];
    let abroad = send(&aws.url(), "POST", "/", &headers, "Version=2016-11-15&Action=DescribeVpcs").unwrap();
    assert_eq!((abroad.status, abroad.text.contains("AuthFailure")), (401, true));
    let unknown = ec2(&aws, "MakeCoffee").unwrap();
    assert!(unknown.text.contains("<Code>InvalidAction</Code>"), "{}", unknown.text);
    // The invalid requests here were intentional.
    let _ = aws.take_violations();
}

#[test]
fn a_reset_comes_before_or_after_the_effect() {
    let aws = start(Options::default());
    let vpc = vpc(&aws);
    let before = groups(&aws);
    aws.fault(Rule::every(Fault::ResetBefore).on("ec2", "CreateSecurityGroup").window(0, 1));
    aws.fault(Rule::every(Fault::ResetAfter).on("ec2", "CreateSecurityGroup").window(0, 1));
    let error = ec2(&aws, &group_form(&vpc, "a")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(groups(&aws), before);
    let error = ec2(&aws, &group_form(&vpc, "a")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(groups(&aws), before + 1, "done but not acknowledged");
    assert!(ec2(&aws, &group_form(&vpc, "a")).unwrap().text.contains("InvalidGroup.Duplicate"));
    let seen: Vec<_> = aws.ledger(|ledger| {
        ledger.mutating(0).map(|entry| (entry.applied, entry.status, entry.fault.clone(), entry.code.clone())).collect()
    });
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [
            (false, 0, some("reset before"), None),
            (true, 0, some("reset after"), None),
            (false, 400, None, some("InvalidGroup.Duplicate")),
        ]
    );
}

#[test]
fn broken_answers_are_broken_in_the_ways_that_were_asked_for() {
    let aws = start(Options::default());
    vpc(&aws);
    let with = |fault: Fault| {
        aws.faults(Faults::clear);
        aws.fault(Rule::every(fault).on("ec2", "Describe*").window(0, 1));
        ec2(&aws, "DescribeSecurityGroups")
    };
    assert!(with(Fault::Truncate).is_err());
    let html = with(Fault::Html { status: 502 }).unwrap();
    assert!(html.status == 502 && html.headers["content-type"].starts_with("text/html"), "{html:?}");
    let unknown = with(Fault::UnknownElements).unwrap();
    assert_eq!((unknown.status, unknown.text.matches("<fromTheFuture").count()), (200, 2));
    assert!(unknown.text.contains("<securityGroupInfo>"));
    let expired = with(Fault::ExpiredCredentials).unwrap();
    assert!(expired.text.contains("<Code>RequestExpired</Code>"), "{}", expired.text);
    let code = with(Fault::Code { status: 500, code: "InternalError".to_owned(), message: String::new() }).unwrap();
    assert!(code.status == 500 && code.text.contains("<Code>InternalError</Code>"));
    assert_eq!(ec2(&aws, "DescribeSecurityGroups").unwrap().status, 200, "the window is over");
}

#[test]
fn a_missing_permission_shows_in_dry_runs_too_and_a_dry_run_counts_as_no_write() {
    let aws = start(Options::default());
    let (vpc, before) = (vpc(&aws), groups(&aws));
    let dry = format!("{}&DryRun=true", group_form(&vpc, "g"));
    let mark = aws.mark();
    assert!(ec2(&aws, &dry).unwrap().text.contains("<Code>DryRunOperation</Code>"));
    aws.fault(Rule::every(Fault::Deny).on("ec2", "CreateSecurityGroup"));
    let denied = ec2(&aws, &dry).unwrap();
    assert_eq!(denied.status, 403);
    assert!(denied.text.contains("<Code>UnauthorizedOperation</Code>"), "{}", denied.text);
    assert!(denied.text.contains("not authorized to perform: ec2:CreateSecurityGroup"), "{}", denied.text);
    assert_eq!(aws.ledger(|ledger| ledger.mutating(mark).count()), 0);
    assert_eq!(groups(&aws), before);
}

#[test]
fn writes_fail_from_the_nth_on_and_reads_go_on() {
    let aws = start(Options::default());
    let (vpc, before) = (vpc(&aws), groups(&aws));
    aws.fault(Rule::writes_from(3, Fault::ResetBefore));
    let made: Vec<bool> = (0..5).map(|n| ec2(&aws, &group_form(&vpc, &format!("g{n}"))).is_ok()).collect();
    assert_eq!(made, [true, true, false, false, false]);
    assert_eq!(groups(&aws), before + 2);
    assert_eq!(ec2(&aws, "DescribeVpcs").unwrap().status, 200);
}

#[test]
fn throttles_answer_with_the_services_own_codes_and_refill_on_the_clock() {
    let bucket = |service: &str| BucketSpec {
        service: Some(service.to_owned()),
        actions: Vec::new(),
        mutating: Some(false),
        burst: 2.0,
        rate: 1.0,
    };
    let aws = start(Options { throttle: vec![bucket("ec2"), bucket("elb")], ..Options::default() });
    let describe = || ec2(&aws, "DescribeVpcs").unwrap();
    let elb = || call_as(&aws, "AKIATEST", "elasticloadbalancing", "2012-06-01", "DescribeLoadBalancers").unwrap();
    assert_eq!([describe().status, describe().status], [200, 200]);
    let held = describe();
    assert_eq!((held.status, held.text.contains("<Code>RequestLimitExceeded</Code>")), (503, true));
    let _ = (elb(), elb());
    let held = elb();
    assert_eq!((held.status, held.text.contains("<Code>Throttling</Code>")), (400, true));
    aws.clock().step(Duration::from_secs(1));
    assert_eq!(describe().status, 200);
    assert_eq!(describe().status, 503);
    aws.change(|options| options.throttle.clear());
    assert_eq!(describe().status, 200);
}

#[test]
fn latency_is_spent_and_the_clock_stands_still() {
    let aws = start(Options::default());
    let begun = aws.clock().now();
    aws.change(|options| {
        options.latency.read = Duration::from_millis(40);
        options.latency.actions.insert("DescribeSubnets".to_owned(), 120);
    });
    let took = |form: &str| {
        let start = Instant::now();
        assert_eq!(ec2(&aws, form).unwrap().status, 200);
        start.elapsed()
    };
    assert!(took("DescribeVpcs") >= Duration::from_millis(40));
    assert!(took("DescribeSubnets") >= Duration::from_millis(120));
    assert_eq!(aws.clock().now(), begun);
}

#[test]
fn stale_reads_show_the_world_as_it_was() {
    let aws = start(Options { stale_reads: Duration::from_secs(3), ..Options::default() });
    let vpc = vpc(&aws);
    let described = |name: &str| ec2(&aws, "DescribeSecurityGroups").unwrap().text.contains(&format!(">{name}<"));
    let made = ec2(&aws, &group_form(&vpc, "a")).unwrap().text;
    let id = made.split("<groupId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(!described("a"));
    aws.clock().step(Duration::from_secs(3));
    assert!(described("a"));
    assert_eq!(ec2(&aws, &format!("DeleteSecurityGroup&GroupId={id}")).unwrap().status, 200);
    assert!(described("a"), "still seen after its deletion");
    aws.clock().step(Duration::from_secs(3));
    assert!(!described("a"));
}

#[test]
fn the_ledger_reports_what_was_called_and_what_it_cost() {
    let aws = start(Options::default());
    let vpc = vpc(&aws);
    ec2(&aws, "DescribeSecurityGroups").unwrap();
    let mark = aws.mark();
    ec2(&aws, &group_form(&vpc, "a")).unwrap();
    let page = ec2(&aws, "DescribeSecurityGroups&MaxResults=5&Unheard=1").unwrap();
    let entries: Vec<_> = aws.ledger(|ledger| ledger.since(mark).cloned().collect());
    assert_eq!(entries.len(), 2);
    assert_eq!(
        (entries[0].action.as_str(), entries[0].mutating, entries[0].applied),
        ("CreateSecurityGroup", true, true)
    );
    assert!(entries[0].params.contains(&format!("VpcId={vpc}")), "{}", entries[0].params);
    assert_eq!((entries[1].items, entries[1].status, entries[1].user_agent.as_str()), (3, 200, "test/1"));
    assert_eq!(entries[1].bytes_out, u64::try_from(page.text.len()).unwrap());
    assert_eq!(entries[1].unread, ["Unheard"]);
    assert_eq!(aws.ledger(|ledger| ledger.counts(0)["ec2:DescribeSecurityGroups"]), 2);
    let (mark, before) = (aws.mark(), groups(&aws));
    let form = format!("GroupName=b&GroupDescription=d&VpcId={vpc}");
    aws.by_hand(Service::Ec2, "CreateSecurityGroup", &form).unwrap();
    assert_eq!((aws.mark(), groups(&aws)), (mark, before + 1), "what is done by hand is not booked");
    let _ = aws.take_violations();
    aws.change(|options| options.validate = false);
    ec2(&aws, "DescribeSecurityGroups&Unheard=1").unwrap();
    assert_eq!(aws.violations(), Vec::<String>::new(), "switched off");
}

#[test]
fn credentials_of_a_role_end_on_the_clock() {
    let aws = start(Options::default());
    let ends = later(aws.clock().now(), Duration::from_secs(900));
    aws.world(|world| world.sts.sessions.insert("ASIATEST".to_owned(), ends));
    let describe = || call_as(&aws, "ASIATEST", "ec2", "2016-11-15", "DescribeVpcs").unwrap();
    assert_eq!(describe().status, 200);
    assert_eq!(aws.ledger(|ledger| ledger.since(0).next().unwrap().access_key.clone()), "ASIATEST");
    aws.clock().step(Duration::from_secs(901));
    let expired = describe();
    assert_eq!((expired.status, expired.text.contains("RequestExpired")), (400, true));
    let expired = call_as(&aws, "ASIATEST", "elasticloadbalancing", "2012-06-01", "DescribeLoadBalancers").unwrap();
    assert_eq!((expired.status, expired.text.contains("ExpiredToken")), (403, true));
}

#[test]
fn instance_metadata_is_that_of_the_instance() {
    let aws = start(Options::default());
    let (id, dns) = aws.world(|world| {
        let net = network(world, &NetworkSeed::default()).unwrap();
        let seed = InstanceSeed { subnets: net.private, groups: vec![net.node_group], ..InstanceSeed::default() };
        let id = instances(world, &seed).unwrap().remove(0);
        let dns = world.ec2.instances[&id].private_dns.clone();
        (id, dns)
    });
    let imds = aws.imds(&id, ImdsOptions::default()).unwrap();
    let token_for = |seconds: &str| {
        let ttl = ("x-aws-ec2-metadata-token-ttl-seconds", seconds);
        send(&imds.url(), "PUT", "/latest/api/token", &[ttl], "").unwrap()
    };
    assert_eq!(token_for("0").status, 400);
    let token = token_for("60").text;
    let get = |path: &str| send(&imds.url(), "GET", path, &[("x-aws-ec2-metadata-token", &token)], "").unwrap();
    assert_eq!(send(&imds.url(), "GET", "/latest/meta-data/instance-id", &[], "").unwrap().status, 401);
    assert_eq!(get("/latest/meta-data/instance-id").text, id);
    assert_eq!(get("/latest/meta-data/local-hostname").text, dns);
    assert_eq!(get("/latest/meta-data/placement/").text, "availability-zone\navailability-zone-id\nregion");
    let mac = get("/latest/meta-data/mac").text;
    assert_eq!(get("/latest/meta-data/network/interfaces/macs/").text, format!("{mac}/"));
    assert!(get(&format!("/latest/meta-data/network/interfaces/macs/{mac}/vpc-id")).text.starts_with("vpc-"));
    let identity: serde_json::Value =
        serde_json::from_str(&get("/latest/dynamic/instance-identity/document").text).unwrap();
    assert_eq!((identity["instanceId"].as_str(), identity["region"].as_str()), (Some(id.as_str()), Some("us-west-2")));
    assert_eq!(get("/latest/meta-data/nothing").status, 404);
    assert_eq!(get("/latest/meta-data/iam/security-credentials/").text, "node");
    let credentials = get("/latest/meta-data/iam/security-credentials/node").text;
    assert_eq!(get("/latest/meta-data/iam/security-credentials/node").text, credentials, "the same until they end");
    let credentials: serde_json::Value = serde_json::from_str(&credentials).unwrap();
    let key = credentials["AccessKeyId"].as_str().unwrap();
    assert_eq!(call_as(&aws, key, "ec2", "2016-11-15", "DescribeVpcs").unwrap().status, 200);
    aws.clock().step(Duration::from_secs(61));
    assert_eq!(get("/latest/meta-data/instance-id").status, 401, "the token has ended");
    aws.fault(Rule::every(Fault::Status { status: 503, body: String::new() }).on("imds", "/latest/meta-data/*"));
    assert_eq!(get("/latest/meta-data/instance-id").status, 503);
    assert_eq!(aws.ledger(|ledger| ledger.counts(0)["imds:/latest/meta-data/instance-id"]), 4);
    aws.faults(Faults::clear);
    aws.world(|world| world.ec2.instances.get_mut(&id).unwrap().metadata_tokens_optional = true);
    assert_eq!(send(&imds.url(), "GET", "/latest/meta-data/instance-id", &[], "").unwrap().text, id);
    assert_eq!(get("/latest/meta-data/instance-id").status, 401, "a token counts even if none is needed");
    let far = aws.imds(&id, ImdsOptions { disabled: true, ..ImdsOptions::default() }).unwrap();
    assert_eq!(send(&far.url(), "PUT", "/latest/api/token", &[], "").unwrap().status, 403);
    let limit = aws.world(|world| world.ec2.instances[&id].metadata_hops);
    let far = aws.imds(&id, ImdsOptions { hops: limit + 1, ..ImdsOptions::default() }).unwrap();
    let ttl = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
    let token =
        client::send_within(Duration::from_millis(200), "PUT", &format!("{}/latest/api/token", far.url()), &ttl, "");
    assert!(token.is_err(), "too many hops: the answer never arrives");
    assert!(aws.imds("i-00000000000000001", ImdsOptions::default()).is_err());
}

#[test]
fn the_admin_api_steps_breaks_and_reports() {
    let aws = start(Options::default());
    aws.world(|world| {
        let subnets = network(world, &NetworkSeed::default()).unwrap().private;
        instances(world, &InstanceSeed { subnets, state: InstanceState::Pending, ..InstanceSeed::default() }).unwrap();
    });
    let admin = |method: &str, path: &str, body: &str| {
        let reply = send(&aws.admin_url(), method, path, &[], body).unwrap();
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text);
        serde_json::from_str::<serde_json::Value>(&reply.text).unwrap()
    };
    assert_eq!(admin("GET", "/", "")["endpoint"], aws.url());
    assert!(ec2(&aws, "DescribeInstances").unwrap().text.contains("<name>pending</name>"));
    admin("POST", "/clock", r#"{"step_ms":10000}"#);
    assert!(!ec2(&aws, "DescribeInstances").unwrap().text.contains("<name>pending</name>"));
    admin("POST", "/faults", r#"{"action":"DescribeInstances","times":1,"fault":"throttle"}"#);
    assert_eq!(ec2(&aws, "DescribeInstances").unwrap().status, 503);
    assert_eq!(admin("GET", "/faults", "")[0]["struck"], 1);
    assert_eq!(admin("GET", "/ledger/counts?since=0", "")["ec2:DescribeInstances"], 3);
    assert_eq!(admin("GET", "/ledger/counts?since=2", "")["ec2:DescribeInstances"], 1);
    assert_eq!(admin("POST", "/options", r#"{"limits":{"tags":1}}"#)["limits"]["tags"], 1);
    assert_eq!(admin("GET", "/dump", "")["ec2"]["instances"].as_object().unwrap().len(), 1);
    let bad = send(&aws.admin_url(), "POST", "/options", &[], r#"{"limitz":{}}"#).unwrap();
    assert!(bad.status == 400 && bad.text.contains("limitz"), "{}", bad.text);
    assert_eq!(send(&aws.admin_url(), "GET", "/nothing", &[], "").unwrap().status, 404);
}

#[test]
fn dropping_it_closes_the_port() {
    let aws = start(Options::default());
    let (url, admin) = (aws.url(), aws.admin_url());
    assert!(send(&url, "POST", "/", &[], "").is_ok());
    drop(aws);
    assert!(send(&url, "POST", "/", &[], "").is_err());
    assert!(send(&admin, "GET", "/", &[], "").is_err());
}

#[test]
fn thousands_of_instances_are_seeded_and_paged() {
    let aws = start(Options { validate: false, ..Options::default() });
    let begun = Instant::now();
    aws.world(|world| {
        let net = network(world, &NetworkSeed::default()).unwrap();
        let seed = InstanceSeed { count: 5000, subnets: net.private, ..InstanceSeed::default() };
        instances(world, &seed).unwrap();
    });
    println!("5000 instances seeded in {:?}", begun.elapsed());
    let (mut token, mut pages, mut seen) = (String::new(), 0, 0);
    loop {
        let begun = Instant::now();
        let body = ec2(&aws, &format!("DescribeInstances&MaxResults=1000{token}")).unwrap().text;
        println!("page {pages}: {} bytes in {:?}", body.len(), begun.elapsed());
        pages += 1;
        seen += body.matches("<instanceId>").count();
        match body.split("<nextToken>").nth(1) {
            Some(rest) => token = format!("&NextToken={}", rest.split('<').next().unwrap()),
            None => break,
        }
    }
    assert_eq!((pages, seen), (5, 5000));
    let begun = Instant::now();
    let page = Call::direct(Service::Ec2, "DescribeInstances", "MaxResults=1000").unwrap();
    let items = aws.world(|world| handle(world, &page).unwrap().items());
    println!("a page of {items} written in {:?}", begun.elapsed());
}
