use ccm_kit::gcfg::table::line;
use ccm_provider::ErrorClass;
use proptest::prelude::*;

use super::*;
use crate::client::operation::Service;

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{:?} {}", finding.severity, line(finding))).collect()
}

fn good(text: &str) -> (Config, Vec<String>) {
    let (config, findings) = Config::parse(Some(text)).unwrap_or_else(|error| panic!("{text}\n{error}"));
    (config, lines(&findings))
}

fn bad(text: &str) -> String {
    let error = Config::parse(Some(text)).expect_err(text);
    assert!(matches!(error.class(), ErrorClass::Invalid { findings } if !findings.is_empty()), "{error}");
    error.to_string()
}

#[test]
fn no_file_is_an_empty_file() {
    let (none, findings) = Config::parse(None).unwrap();
    assert_eq!(format!("{none:?}"), format!("{:?}", Config::default()));
    assert_eq!(findings, []);
    assert_eq!(format!("{:?}", good("; nothing\n").0), format!("{none:?}"));
    assert_eq!(none.families(), [Family::Ipv4]);
    assert_eq!(none.region().unwrap(), None);
    assert_eq!(none.role().unwrap(), None);
    assert_eq!(none.shared_probe, None);
}

/// Pitfall 1.
#[test]
fn old_spellings_pass_with_one_warning_each() {
    let (config, findings) =
        good("[GLOBAL]\nnodeipfamilies = ipv6\nNodeIPFamilies = ipv4\nDisableStrictZoneCheck = true\n[Nope]\n");
    assert_eq!(config.families(), [Family::Ipv6, Family::Ipv4]);
    assert_eq!(
        findings,
        [
            "Warning [Global] DisableStrictZoneCheck = \"true\": line 4: this key has no effect any more; remove it",
            "Warning [Nope]: line 5: unknown section, ignored",
        ]
    );
}

#[test]
fn every_key_is_read() {
    let (config, findings) = good(
        r#"
[Global]
Zone = us-west-2a
VPC = vpc-1
SubnetID = subnet-1
RouteTableID = rtb-1
RoleARN = arn:aws:iam::123456789012:role/path/ccm
SourceARN = arn:aws:eks:us-west-2:123456789012:cluster/c1
KubernetesClusterTag = c1
KubernetesClusterID = c1
DisableSecurityGroupIngress
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 0x2710
ClusterServiceSharedLoadBalancerHealthProbePath = "/ready?a#b"
SupportedTopologyInstanceTypePattern = "^(?i)P\\d+\\."
NLBSecurityGroupMode = Managed
"#,
    );
    assert_eq!(findings, Vec::<String>::new());
    assert_eq!(config.region().unwrap().as_deref(), Some("us-west-2"));
    let ids = [&config.vpc, &config.subnet, &config.route_table, &config.classic_group].map(Option::as_deref);
    assert_eq!(ids, [Some("vpc-1"), Some("subnet-1"), Some("rtb-1"), Some("sg-1")]);
    assert_eq!(config.role().unwrap().map(|role| role.account).as_deref(), Some("123456789012"));
    assert_eq!(config.source.as_deref(), Some("arn:aws:eks:us-west-2:123456789012:cluster/c1"));
    assert_eq!((config.cluster_tag.as_str(), config.cluster_id.as_str()), ("c1", "c1"));
    assert!(config.leave_node_groups_alone && config.is_off_instance());
    assert_eq!(config.families(), [Family::Ipv6]);
    assert_eq!(config.shared_probe, Some(SharedProbe { port: 10000, path: "/ready?a#b".to_owned() }));
    assert!(config.managed_network_groups);
    assert!(
        config.topology_types.as_ref().is_some_and(|types| types.is_match("p5.large") && !types.is_match("m5.large"))
    );
}

#[test]
fn the_shared_probe_has_defaults() {
    let (config, _) = good("[Global]\nClusterServiceLoadBalancerHealthProbeMode = Shared\n");
    assert_eq!(config.shared_probe, Some(SharedProbe { port: 10256, path: "/healthz".to_owned() }));
    let (config, _) = good("[Global]\nClusterServiceLoadBalancerHealthProbeMode = ServiceNodePort\n");
    assert_eq!(config.shared_probe, None);
}

#[test]
fn wrong_values_are_refused_at_the_start() {
    let text = "[Global]\nNodeIPFamilies = ipv4,ipv6\nClusterServiceLoadBalancerHealthProbeMode = shared\n\
                ClusterServiceSharedLoadBalancerHealthProbePort = 70000\nSupportedTopologyInstanceTypePattern = [\n\
                NLBSecurityGroupMode = managed\nDisableSecurityGroupIngress = maybe\nVPC\n";
    assert_eq!(
        bad(text),
        "unable to read AWS cloud provider config file: \
         [Global] NodeIPFamilies = \"ipv4,ipv6\": line 2: not an IP family; write ipv4 or ipv6, one line for each; \
         [Global] ClusterServiceLoadBalancerHealthProbeMode = \"shared\": line 3: not a health probe mode; write Shared or ServiceNodePort; \
         [Global] ClusterServiceSharedLoadBalancerHealthProbePort = \"70000\": line 4: not an integer from 0 to 65535; \
         [Global] SupportedTopologyInstanceTypePattern = \"[\": line 5: not a regular expression (error: unclosed character class); \
         [Global] NLBSecurityGroupMode = \"managed\": line 6: invalid NLB security group mode; write Managed, or leave the key out; \
         [Global] DisableSecurityGroupIngress = \"maybe\": line 7: not a boolean; write true or false; \
         [Global] VPC: line 8: a value is missing; write key = string"
    );
    let syntax = "unable to read AWS cloud provider config file: line 2, column 1: expected a section header";
    assert!(bad("\nVPC = vpc-1\n").starts_with(syntax));
}

#[test]
fn what_has_no_effect_is_reported() {
    let (config, findings) = good(
        "[Global]\nZone = us-west-2a\nRegion = eu-west-1\nSourceARN = arn:x\nVPC = vpc-1\nSubnetID = subnet-1\n\
         ClusterServiceSharedLoadBalancerHealthProbePort = 1\nClusterServiceSharedLoadBalancerHealthProbePath = /x\n\
         NodeIPFamilies = ipv4\nNodeIPFamilies = ipv4\n",
    );
    assert!(!config.is_off_instance());
    assert_eq!(config.families(), [Family::Ipv4]);
    let keys: Vec<&str> = findings.iter().filter_map(|text| text.split(' ').nth(2)).collect();
    assert_eq!(
        keys,
        [
            "ClusterServiceSharedLoadBalancerHealthProbePort",
            "ClusterServiceSharedLoadBalancerHealthProbePath",
            "NodeIPFamilies",
            "Region",
            "SourceARN",
            "VPC",
            "SubnetID"
        ]
    );
    let off_instance = "[Global]\nVPC = vpc-1\nRoleARN = arn:aws:iam::1:role/x\nKubernetesClusterTag = c1\n";
    assert_eq!(good(off_instance).1, Vec::<String>::new());
}

#[test]
fn the_region_of_a_zone() {
    let cases = [
        ("us-west-2a", Some("us-west-2")),
        ("us-west-2-lax-1a", Some("us-west-2")),
        ("us-gov-west-1b", Some("us-gov-west-1")),
        ("us-west-2", Some("us-west-2")),
        ("us-iso-east-12-x", Some("us-iso-east-12")),
        ("", None),
        ("2a", None),
        ("us", None),
        ("us-west", None),
        ("us--2a", None),
        ("u1-west-2", None),
    ];
    for (zone, region) in cases {
        assert_eq!(region_of_zone(zone), region, "{zone}");
    }
    let error = good("[Global]\nZone = nowhere\n").0.region().unwrap_err().to_string();
    assert!(error.starts_with("invalid AZ: nowhere; [Global] Zone must be"), "{error}");
}

#[test]
fn a_role_must_be_an_arn() {
    let role = |arn: &str| good(&format!("[Global]\nRoleARN = {arn}\n")).0.role();
    assert_eq!(role("arn:aws-cn:iam::210987654321:role/a:b").unwrap().unwrap().account, "210987654321");
    for arn in ["my-role", "arn:aws:iam::1", "urn:aws:iam::1:role/x"] {
        let error = role(arn).unwrap_err().to_string();
        let expected =
            format!("unable to create sts v2 client: [Global] RoleARN = {arn:?}: not an ARN; expected arn:aws:iam::");
        assert!(error.starts_with(&expected), "{error}");
    }
}

fn override_of(service: &str, region: &str, url: &str) -> String {
    format!("Service = {service}\nRegion = {region}\nURL = {url}\nSigningRegion = signing-1\n")
}

/// Pitfall 2, the part that needs no connection: which override applies to which service.
#[test]
fn both_vocabularies_name_a_service() {
    let chosen = |word: &str, service: Endpoint, region: &str| {
        let text = format!("[ServiceOverride \"1\"]\n{}", override_of(word, "us-west-2", "http://127.0.0.1:1/x"));
        good(&text).0.override_for(service, region).is_some()
    };
    let cases: &[(&str, &[Endpoint])] = &[
        ("ec2", &[Endpoint::Of(Service::Ec2)]),
        ("EC2", &[Endpoint::Of(Service::Ec2)]),
        ("Elastic Load Balancing", &[Endpoint::Of(Service::Elb)]),
        ("elastic load balancing V2", &[Endpoint::Of(Service::ElbV2)]),
        ("elasticloadbalancing", &[Endpoint::Of(Service::Elb), Endpoint::Of(Service::ElbV2)]),
        ("STS", &[Endpoint::Of(Service::Sts)]),
        ("sts", &[Endpoint::Of(Service::Sts)]),
        ("ec2imds", &[Endpoint::Metadata]),
        ("KMS", &[]),
        ("s3", &[]),
    ];
    for (word, services) in cases {
        for service in Endpoint::ALL {
            assert_eq!(chosen(word, service, "us-west-2"), services.contains(&service), "{word} {service:?}");
            let elsewhere = service == Endpoint::Metadata && services.contains(&service);
            assert_eq!(chosen(word, service, "eu-west-1"), elsewhere, "{word} {service:?}");
        }
    }
}

#[test]
fn the_spelling_of_todays_sdk_wins() {
    for words in [["ec2", "EC2"], ["EC2", "ec2"]] {
        let [first, second] = words;
        let text = format!(
            "[ServiceOverride \"1\"]\n{}[ServiceOverride \"2\"]\n{}",
            override_of(first, "r", &format!("http://{first}")),
            override_of(second, "r", &format!("http://{second}"))
        );
        let (config, findings) = good(&text);
        assert_eq!(
            config.override_for(Endpoint::Of(Service::Ec2), "r").map(|entry| entry.url.as_str()),
            Some("http://EC2")
        );
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings.iter().all(|text| text.starts_with("Info ")), "{findings:?}");
    }
}

/// Pitfall 3.
#[test]
fn incomplete_and_repeated_overrides_are_refused_by_name() {
    let complete = override_of("EC2", "us-west-2", "https://ec2.example");
    let twice = format!("[ServiceOverride \"1\"]\n{complete}[ServiceOverride \"again\"]\n{complete}");
    assert_eq!(
        bad(&twice),
        "unable to validate custom endpoint overrides: [ServiceOverride \"again\"] Service = \"EC2\": \
         duplicate entry found for service override [again] (EC2 in us-west-2); remove one"
    );
    let keys = [
        ("Service", "service name is missing [Service is \"\"] in override one"),
        ("Region", "service region is missing [Region is \"\"] in override one"),
        ("URL", "url is missing [URL is \"\"] in override one"),
        ("SigningRegion", "signingRegion is missing [SigningRegion is \"\"] in override one"),
    ];
    for (key, expected) in keys {
        for replacement in ["", "x = y\n", &format!("{key} = \"  \"\n")] {
            let lines: Vec<&str> = complete.lines().filter(|text| !text.starts_with(&format!("{key} "))).collect();
            let error = bad(&format!("[ServiceOverride \"one\"]\n{}\n{replacement}", lines.join("\n")));
            assert!(
                error.starts_with("unable to validate custom endpoint overrides: [ServiceOverride \"one\"] "),
                "{error}"
            );
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn urls_must_be_usable() {
    for url in ["ec2.example", "ftp://ec2.example", "https://", "\"https://a b\"", "/path", "https://h/?q=1"] {
        let error = bad(&format!("[ServiceOverride \"1\"]\n{}", override_of("EC2", "r", url)));
        assert!(error.contains("] URL = "), "{error}");
        assert!(
            error.contains("could not parse override URL in override 1; expected http[s]://host[:port][/path]"),
            "{error}"
        );
    }
    let (config, findings) =
        good(&format!("[ServiceOverride \"1\"]\n{}", override_of("EC2", " r", "\" http://[::1]:8/p/ \"")));
    assert_eq!(findings, Vec::<String>::new());
    let found =
        config.override_for(Endpoint::Of(Service::Ec2), "r").map(|entry| (entry.url.as_str(), &*entry.signing_name));
    assert_eq!(found, Some(("http://[::1]:8/p/", "")));
}

#[test]
fn overrides_without_effect_are_reported() {
    let complete = |service: &str| override_of(service, "r", "https://x.example");
    let text = format!(
        "[ServiceOverride \"a\"]\n{}SigningMethod = v2\n[ServiceOverride \"b\"]\n{}[ServiceOverride \"c\"]\n{}SigningMethod=v4\n",
        complete("Elastic Load Balancing v3"),
        complete("KMS"),
        complete("EC2"),
    );
    assert_eq!(
        good(&text).1,
        [
            "Warning [ServiceOverride \"a\"] Service = \"Elastic Load Balancing v3\": no effect: unknown service; expected one of EC2, \
             Elastic Load Balancing, Elastic Load Balancing v2, STS, ec2imds; did you mean \"Elastic Load Balancing v2\"?",
            "Warning [ServiceOverride \"a\"] SigningMethod = \"v2\": no effect: requests are signed with version 4; remove the key",
            "Info [ServiceOverride \"b\"] Service = \"KMS\": no effect: this service is not called",
        ]
    );
}

#[test]
fn the_reference_lists_every_key_once() {
    let reference = reference();
    for key in ["Zone", "NodeIPFamilies", "DisableStrictZoneCheck", "SigningName"] {
        assert_eq!(reference.matches(&format!("| `{key}` |")).count(), 1, "{key}\n{reference}");
    }
    assert_eq!(reference.lines().filter(|row| row.starts_with("| `")).count(), 24, "{reference}");
}

proptest! {
    #[test]
    fn no_file_panics(
        keys in prop::collection::vec(("[A-Za-z]{1,4}|Zone|VPC|NodeIPFamilies|RoleARN|Service|URL|Region", "\\PC{0,12}|ipv6|https://x"), 0..8),
        section in "Global|ServiceOverride|ServiceOverride \"1\"|X",
    ) {
        let lines: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if let Ok((config, _)) = Config::parse(Some(&format!("[{section}]\n{}\n", lines.join("\n")))) {
            let _ = (config.region(), config.role(), config.is_off_instance());
            let _ = config.override_for(Endpoint::Of(Service::Ec2), "r");
            prop_assert!(!config.families().is_empty());
        }
    }
}
