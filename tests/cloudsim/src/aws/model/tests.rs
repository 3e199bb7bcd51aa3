use super::*;

fn models() -> Option<Arc<Models>> {
    Models::shared().unwrap()
}

#[track_caller]
fn request(service: &str, version: &str, pairs: &[(&str, &str)], expected: &[&str]) {
    let Some(models) = models() else { return };
    let pairs: String = pairs.iter().map(|(key, value)| format!("{key}={value}&")).collect();
    let found = models.check_request(service, &Params::parse(&format!("{pairs}Version={version}")).unwrap());
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, part) in found.iter().zip(expected) {
        assert!(line.contains(part), "{line:?} does not contain {part:?}");
    }
}

#[test]
fn a_good_request_has_no_violations() {
    request(
        "ec2",
        "2016-11-15",
        &[
            ("Action", "DescribeInstances"),
            ("Filter.1.Name", "private-dns-name"),
            ("Filter.1.Value.1", "a"),
            ("Filter.1.Value.2", "b"),
            ("MaxResults", "1000"),
        ],
        &[],
    );
    request(
        "elb",
        "2012-06-01",
        &[
            ("Action", "SetLoadBalancerPoliciesForBackendServer"),
            ("LoadBalancerName", "a"),
            ("InstancePort", "80"),
            ("PolicyNames", ""),
        ],
        &[],
    );
    request(
        "elbv2",
        "2015-12-01",
        &[
            ("Action", "RegisterTargets"),
            ("TargetGroupArn", "arn"),
            ("Targets.member.1.Id", "i-1"),
            ("Targets.member.1.Port", "80"),
            ("Targets.member.2.Id", "i-2"),
        ],
        &[],
    );
}

#[test]
fn each_kind_of_mistake_in_a_request_is_named() {
    request("ec2", "2016-11-15", &[("Action", "DescribeInstancez")], &["no operation DescribeInstancez"]);
    request("ec2", "2014-01-01", &[("Action", "DescribeVpcs")], &["not \"2016-11-15\""]);
    request(
        "ec2",
        "2016-11-15",
        &[("Action", "DescribeVpcs"), ("Filters.1.Name", "a")],
        &["Filters is unknown; known here"],
    );
    request("ec2", "2016-11-15", &[("Action", "DescribeVpcs"), ("VpcId.2", "a")], &["entries [2], not 1 to 1"]);
    let twice = [("Action", "DescribeVpcs"), ("VpcId.1", "a"), ("VpcId.1", "b")];
    request("ec2", "2016-11-15", &twice, &["VpcId.1 is given twice"]);
    request("elbv2", "2015-12-01", &[("Action", "DeleteListener")], &["ListenerArn is required and absent"]);
    request(
        "elbv2",
        "2015-12-01",
        &[
            ("Action", "CreateTargetGroup"),
            ("Name", "a"),
            ("Port", "0"),
            ("Protocol", "tcp"),
            ("HealthyThresholdCount", "x"),
        ],
        &["\"x\" is no integer", "\"0\" is outside of", "\"tcp\" is none of"],
    );
    request(
        "elbv2",
        "2015-12-01",
        &[("Action", "RegisterTargets"), ("TargetGroupArn", "arn"), ("Targets.1.Id", "i-1")],
        &["Targets.1 is not the entry name", "a list without entries"],
    );
    request(
        "elb",
        "2012-06-01",
        &[
            ("Action", "AddTags"),
            ("LoadBalancerNames.member.1", "a"),
            ("Tags.member.1.Key", "a!"),
            ("Tags.member.1.Value", ""),
        ],
        &["\"a!\" does not match"],
    );
}

#[track_caller]
fn answer(service: &str, operation: &str, status: u16, body: &str, expected: &[&str]) {
    let Some(models) = models() else { return };
    let found = models.check_response(service, operation, status, body);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, part) in found.iter().zip(expected) {
        assert!(line.contains(part), "{line:?} does not contain {part:?}");
    }
}

#[test]
fn answers_are_checked_too() {
    let id = "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>";
    answer(
        "elb",
        "CreateLoadBalancer",
        200,
        &format!(
            "<CreateLoadBalancerResponse><CreateLoadBalancerResult><DNSName>a</DNSName></CreateLoadBalancerResult>{id}</CreateLoadBalancerResponse>"
        ),
        &[],
    );
    answer(
        "elb",
        "CreateLoadBalancer",
        200,
        "<CreateLoadBalancerResponse><CreateLoadBalancerResult><DnsName>a</DnsName></CreateLoadBalancerResult></CreateLoadBalancerResponse>",
        &["ResponseMetadata/RequestId is absent", "/DnsName is unknown"],
    );
    answer(
        "ec2",
        "DescribeVpcs",
        200,
        "<DescribeVpcsResponse><requestId>1</requestId><vpcSet><item><isDefault>yes</isDefault></item><vpc/></vpcSet></DescribeVpcsResponse>",
        &["\"yes\" is no boolean", "is <vpc>, not <item>"],
    );
    answer(
        "ec2",
        "DescribeVpcs",
        400,
        "<Response><Errors><Error><Code>X</Code><Message/></Error></Errors></Response>",
        &[],
    );
    answer(
        "elbv2",
        "DeleteListener",
        400,
        "<ErrorResponse><Error><Code>LoadBalancerNotFound</Code><Message>m</Message></Error></ErrorResponse>",
        &["which the operation does not declare"],
    );
    answer("elbv2", "DeleteListener", 500, "<html>", &["is no XML"]);
}

#[test]
fn documents_are_read_with_entities_and_prefixes() {
    let document =
        Element::parse("<?xml version=\"1.0\"?>\n<a:r x=\"1\"> <b>1 &lt; 2 &amp;&#x41;</b><c/></a:r>").unwrap();
    assert_eq!(document.name, "r");
    assert_eq!(document.at("b").unwrap().text, "1 < 2 &A");
    assert_eq!(document.at("c").unwrap().text, "");
    assert!(Element::parse("<a><b></a>").is_err());
    assert!(Element::parse("<a>").is_err());
    assert!(Element::parse("<a/><b/>").is_err());
    assert!(Element::parse("<a>&b;</a>").is_err());
}
