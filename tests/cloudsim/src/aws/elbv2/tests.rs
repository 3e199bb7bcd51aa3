use crate::aws::model::Element;
use crate::aws::tests::scene::{CERTIFICATE, call, pass, scene};
use crate::aws::{Options, Service, World};

fn v2(world: &mut World, action: &str, form: &str) -> Result<Element, String> {
    call(world, Service::Elbv2, action, form)
}

fn text(element: &Element, path: &str) -> String {
    element.at(path).unwrap_or_else(|| panic!("no {path} in {element:?}")).text.clone()
}

#[track_caller]
fn refused(world: &mut World, action: &str, form: &str, code: &str) {
    let before = world.dump().elbv2;
    let answer = v2(world, action, form);
    assert_eq!(answer.unwrap_err(), code, "{action} {form}");
    assert_eq!(before, world.dump().elbv2, "a refused call changed something");
}

const BALANCER: &str = "Name=lb&Type=network&Subnets.member.1=subnet-a&SecurityGroups.member.1=sg-1";
const GROUP: &str = "Name=tg&Protocol=TCP&Port=30080&VpcId=vpc-1";

fn balancer(world: &mut World) -> String {
    text(&v2(world, "CreateLoadBalancer", BALANCER).unwrap(), "LoadBalancers/member/LoadBalancerArn")
}

fn group(world: &mut World, form: &str) -> String {
    text(&v2(world, "CreateTargetGroup", form).unwrap(), "TargetGroups/member/TargetGroupArn")
}

fn listener(balancer: &str, group: &str, port: u16, protocol: &str) -> String {
    format!(
        "LoadBalancerArn={balancer}&Port={port}&Protocol={protocol}&DefaultActions.member.1.Type=forward\
         &DefaultActions.member.1.TargetGroupArn={group}"
    )
}

/// A balancer that forwards to a group; returns their ARNs.
fn forwarding(change: impl FnOnce(&mut Options)) -> (World, String, String) {
    let mut world = scene(change);
    let (balancer, group) = (balancer(&mut world), group(&mut world, GROUP));
    v2(&mut world, "CreateListener", &listener(&balancer, &group, 80, "TCP")).unwrap();
    (world, balancer, group)
}

#[test]
fn a_network_balancer_has_its_shapes_and_becomes_active_in_time() {
    let mut world = scene(|_| {});
    let made = v2(&mut world, "CreateLoadBalancer", BALANCER).unwrap();
    let made = made.at("LoadBalancers/member").unwrap();
    let arn = text(made, "LoadBalancerArn");
    assert!(arn.starts_with("arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/net/lb/"), "{arn}");
    let id = arn.rsplit('/').next().unwrap();
    assert_eq!(text(made, "DNSName"), format!("lb-{id}.elb.us-west-2.amazonaws.com"));
    assert_eq!(text(made, "State/Code"), "provisioning");
    assert_eq!(world.ec2.interfaces.values().next().unwrap().description, format!("ELB net/lb/{id}"));
    pass(&world, 90);
    let found = v2(&mut world, "DescribeLoadBalancers", "Names.member.1=lb").unwrap();
    assert_eq!(text(&found, "LoadBalancers/member/State/Code"), "active");
}

#[test]
fn a_repeated_creation_finds_the_balancer_and_another_one_is_refused() {
    let mut world = scene(|_| {});
    let first = balancer(&mut world);
    assert_eq!(balancer(&mut world), first);
    for other in ["Scheme=internal", "Subnets.member.2=subnet-b", "SecurityGroups.member.2=sg-2"] {
        refused(&mut world, "CreateLoadBalancer", &format!("{BALANCER}&{other}"), "DuplicateLoadBalancerName");
    }
    assert_eq!(world.elbv2.balancers.len(), 1);
    assert_eq!(world.ec2.interfaces.len(), 1);
}

#[test]
fn creation_is_refused_with_the_code_of_each_reason() {
    let mut world = scene(|_| {});
    let mut check = |form: &str, code: &str| refused(&mut world, "CreateLoadBalancer", form, code);
    let net = |rest: &str| format!("Name=lb&Type=network&{rest}");
    check("Name=lb&Subnets.member.1=subnet-a", "OperationNotPermitted");
    check(&net(""), "ValidationError");
    check(&BALANCER.replace("Name=lb", "Name=internal-lb"), "ValidationError");
    check(&BALANCER.replace("Name=lb", &format!("Name={}", "x".repeat(33))), "ValidationError");
    check(&net("Subnets.member.1=subnet-x"), "SubnetNotFound");
    check(&net("Subnets.member.1=subnet-a&Subnets.member.2=subnet-a2"), "InvalidConfigurationRequest");
    check(&net("Subnets.member.1=subnet-a&Subnets.member.2=subnet-far"), "InvalidConfigurationRequest");
    check(&net("Subnets.member.1=subnet-a&SubnetMappings.member.1.SubnetId=subnet-b"), "ValidationError");
    check(&net("Subnets.member.1=subnet-a&SecurityGroups.member.1=sg-far"), "InvalidSecurityGroup");
    check(&net("Subnets.member.1=subnet-a&IpAddressType=dualstack"), "InvalidSubnet");
    let mapping =
        |rest: &str| net(&format!("SubnetMappings.member.1.SubnetId=subnet-a&SubnetMappings.member.1.{rest}"));
    check(&mapping("AllocationId=eip-x"), "AllocationIdNotFound");
    check(&mapping("AllocationId=eip-1&Scheme=internal"), "InvalidConfigurationRequest");
    check(&mapping("PrivateIPv4Address=10.0.1.9"), "InvalidConfigurationRequest");
    check(&mapping("PrivateIPv4Address=10.0.2.9&Scheme=internal"), "InvalidConfigurationRequest");
}

#[test]
fn addresses_are_kept_and_free_again_after_the_balancer() {
    let mut world = scene(|_| {});
    let form = |name: &str, eip: &str| {
        format!(
            "Name={name}&Type=network&SubnetMappings.member.1.SubnetId=subnet-a&SubnetMappings.member.1.AllocationId={eip}"
        )
    };
    let made = v2(&mut world, "CreateLoadBalancer", &form("one", "eip-1")).unwrap();
    let address = "LoadBalancers/member/AvailabilityZones/member/LoadBalancerAddresses/member";
    assert_eq!(text(&made, &format!("{address}/IpAddress")), "100.64.0.1");
    assert_eq!(text(&made, &format!("{address}/AllocationId")), "eip-1");
    refused(&mut world, "CreateLoadBalancer", &form("two", "eip-1"), "ResourceInUse");
    let arn = text(&made, "LoadBalancers/member/LoadBalancerArn");
    v2(&mut world, "DeleteLoadBalancer", &format!("LoadBalancerArn={arn}")).unwrap();
    refused(&mut world, "CreateLoadBalancer", &form("two", "eip-1"), "ResourceInUse");
    pass(&world, 60);
    v2(&mut world, "CreateLoadBalancer", &form("two", "eip-1")).unwrap();
    let internal = "Name=in&Type=network&Scheme=internal&SubnetMappings.member.1.SubnetId=subnet-b\
        &SubnetMappings.member.1.PrivateIPv4Address=10.0.2.9";
    let made = v2(&mut world, "CreateLoadBalancer", internal).unwrap();
    assert_eq!(text(&made, &format!("{address}/PrivateIPv4Address")), "10.0.2.9");
}

#[test]
fn one_born_without_security_groups_never_gets_any() {
    let mut world = scene(|_| {});
    let with = balancer(&mut world);
    let without = "Name=bare&Type=network&Subnets.member.1=subnet-a";
    let without = text(&v2(&mut world, "CreateLoadBalancer", without).unwrap(), "LoadBalancers/member/LoadBalancerArn");
    let set = |arn: &str, groups: &str| format!("LoadBalancerArn={arn}&SecurityGroups.member.1={groups}");
    refused(&mut world, "SetSecurityGroups", &set(&without, "sg-1"), "InvalidConfigurationRequest");
    refused(&mut world, "SetSecurityGroups", &set(&with, "sg-x"), "InvalidSecurityGroup");
    v2(&mut world, "SetSecurityGroups", &set(&with, "sg-2")).unwrap();
    assert!(world.ec2.interfaces.values().any(|interface| interface.groups == ["sg-2"]));
}

#[test]
fn target_groups_are_found_again_or_refused() {
    let mut world = scene(|_| {});
    let first = group(&mut world, GROUP);
    assert_eq!(group(&mut world, GROUP), first);
    let mut check = |form: &str, code: &str| refused(&mut world, "CreateTargetGroup", form, code);
    check(&GROUP.replace("30080", "30081"), "DuplicateTargetGroupName");
    check(&format!("{GROUP}&HealthyThresholdCount=3"), "DuplicateTargetGroupName");
    let new = |rest: &str| GROUP.replace("Name=tg", &format!("Name=new{rest}"));
    check(&new("-"), "ValidationError");
    check(&new("&HealthCheckPort=0"), "ValidationError");
    check(&new("&HealthCheckPath=/x"), "ValidationError");
    check(&new("&HealthCheckProtocol=HTTP&HealthCheckPath=x"), "ValidationError");
    check(&new("&HealthCheckIntervalSeconds=5"), "ValidationError");
    check(&GROUP.replace("Name=tg", "Name=new").replace("vpc-1", "vpc-x"), "ValidationError");
    check(&GROUP.replace("Name=tg", "Name=new").replace("=TCP", "=HTTP"), "ValidationError");
}

#[test]
fn modifying_a_group_changes_only_what_is_given() {
    let mut world = scene(|_| {});
    let arn = group(&mut world, &format!("{GROUP}&HealthCheckProtocol=HTTP&HealthCheckPath=/a"));
    let form = format!("TargetGroupArn={arn}&HealthCheckPort=10256&HealthyThresholdCount=3");
    let changed = v2(&mut world, "ModifyTargetGroup", &form).unwrap();
    let changed = changed.at("TargetGroups/member").unwrap();
    assert_eq!((text(changed, "HealthCheckPort"), text(changed, "HealthCheckPath")), ("10256".into(), "/a".into()));
    let changed =
        v2(&mut world, "ModifyTargetGroup", &format!("TargetGroupArn={arn}&HealthCheckProtocol=TCP")).unwrap();
    assert!(changed.at("TargetGroups/member/HealthCheckPath").is_none(), "the path went with the protocol");
}

#[test]
fn a_group_belongs_to_the_balancer_that_forwards_to_it_now() {
    let (mut world, balancer, group) = forwarding(|_| {});
    let of = |world: &mut World| {
        let found = v2(world, "DescribeTargetGroups", &format!("TargetGroupArns.member.1={group}")).unwrap();
        found.at("TargetGroups/member/LoadBalancerArns").unwrap().children.len()
    };
    assert_eq!(of(&mut world), 1);
    refused(&mut world, "DeleteTargetGroup", &format!("TargetGroupArn={group}"), "ResourceInUse");
    let other = "Name=other&Type=network&Subnets.member.1=subnet-b";
    let other = text(&v2(&mut world, "CreateLoadBalancer", other).unwrap(), "LoadBalancers/member/LoadBalancerArn");
    refused(&mut world, "CreateListener", &listener(&other, &group, 80, "TCP"), "TargetGroupAssociationLimit");
    v2(&mut world, "DeleteLoadBalancer", &format!("LoadBalancerArn={balancer}")).unwrap();
    assert_eq!(of(&mut world), 0);
    v2(&mut world, "CreateListener", &listener(&other, &group, 80, "TCP")).unwrap();
    let arn = world.elbv2.listeners.keys().next().unwrap().clone();
    v2(&mut world, "DeleteListener", &format!("ListenerArn={arn}")).unwrap();
    v2(&mut world, "DeleteTargetGroup", &format!("TargetGroupArn={group}")).unwrap();
    v2(&mut world, "DeleteTargetGroup", &format!("TargetGroupArn={group}")).unwrap();
}

#[test]
fn there_is_one_listener_for_each_port_and_transport() {
    let (mut world, balancer, group_tcp) = forwarding(|_| {});
    v2(&mut world, "CreateListener", &listener(&balancer, &group_tcp, 80, "TCP")).unwrap();
    assert_eq!(world.elbv2.listeners.len(), 1, "the same listener again is the same listener");
    let udp = group(&mut world, &GROUP.replace("=tg", "=udp").replace("=TCP", "=UDP"));
    let both = group(&mut world, &GROUP.replace("=tg", "=both").replace("=TCP", "=TCP_UDP"));
    v2(&mut world, "CreateListener", &listener(&balancer, &udp, 80, "UDP")).unwrap();
    let mut check = |form: &str, code: &str| refused(&mut world, "CreateListener", form, code);
    check(&listener(&balancer, &both, 80, "TCP_UDP"), "DuplicateListener");
    check(&listener(&balancer, &group_tcp, 81, "UDP"), "IncompatibleProtocols");
    check(&listener(&balancer, &group_tcp, 81, "HTTP"), "ValidationError");
    check(&listener(&balancer, &format!("{group_tcp}x"), 81, "TCP"), "TargetGroupNotFound");
    check(&listener("lb", &group_tcp, 81, "TCP"), "ValidationError");
    check(&listener(&format!("{balancer}x"), &group_tcp, 81, "TCP"), "LoadBalancerNotFound");
    check(&listener(&balancer, &group_tcp, 81, "TLS"), "ValidationError");
    let tls = |arn: &str| {
        format!("{}&Certificates.member.1.CertificateArn={arn}", listener(&balancer, &group_tcp, 81, "TLS"))
    };
    check(&tls("arn:x"), "CertificateNotFound");
    check(&format!("{}&SslPolicy=x", tls(CERTIFICATE)), "SSLPolicyNotFound");
}

#[test]
fn a_listener_gains_and_loses_tls_in_place() {
    let (mut world, _, group) = forwarding(|_| {});
    let arn = world.elbv2.listeners.keys().next().unwrap().clone();
    refused(&mut world, "ModifyListener", &format!("ListenerArn={arn}&Protocol=TLS"), "ValidationError");
    let certificate = format!("ListenerArn={arn}&Protocol=TLS&Certificates.member.1.CertificateArn={CERTIFICATE}");
    refused(&mut world, "ModifyListener", &certificate, "ValidationError");
    let tls = format!("{certificate}&SslPolicy=ELBSecurityPolicy-2016-08");
    let changed = v2(&mut world, "ModifyListener", &tls).unwrap();
    assert_eq!(text(&changed, "Listeners/member/SslPolicy"), "ELBSecurityPolicy-2016-08");
    let policy = format!("ListenerArn={arn}&SslPolicy=ELBSecurityPolicy-TLS13-1-2-2021-06");
    v2(&mut world, "ModifyListener", &policy).unwrap();
    let plain = v2(&mut world, "ModifyListener", &format!("ListenerArn={arn}&Protocol=TCP")).unwrap();
    let plain = plain.at("Listeners/member").unwrap();
    assert!(plain.child("SslPolicy").is_none() && plain.child("Certificates").is_none());
    assert_eq!(text(plain, "DefaultActions/member/TargetGroupArn"), group);
}

fn targets(group: &str, ids: &[&str]) -> String {
    let each = (1..).zip(ids).map(|(n, id)| format!("&Targets.member.{n}.Id={id}"));
    format!("TargetGroupArn={group}{}", each.collect::<String>())
}

fn health(world: &mut World, group: &str) -> Vec<(String, String)> {
    let found = v2(world, "DescribeTargetHealth", &format!("TargetGroupArn={group}")).unwrap();
    let rows = &found.child("TargetHealthDescriptions").unwrap().children;
    rows.iter().map(|row| (text(row, "Target/Id"), text(row, "TargetHealth/State"))).collect()
}

fn states(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, state)| ((*id).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn registering_takes_all_targets_or_none() {
    let (mut world, _, group) = forwarding(|options| options.limits.targets_per_group = 1);
    refused(&mut world, "RegisterTargets", &targets(&group, &["i-a", "i-stopped"]), "InvalidTarget");
    refused(&mut world, "RegisterTargets", &targets(&group, &["i-a", "i-far"]), "InvalidTarget");
    refused(&mut world, "RegisterTargets", &targets(&group, &["i-none"]), "InvalidTarget");
    refused(&mut world, "RegisterTargets", &targets(&group, &["i-a", "i-b"]), "TooManyTargets");
    refused(&mut world, "RegisterTargets", &targets(&group, &[]), "ValidationError");
    v2(&mut world, "RegisterTargets", &targets(&group, &["i-a", "i-a"])).unwrap();
    refused(&mut world, "RegisterTargets", &targets(&group, &["i-b"]), "TooManyTargets");
    assert_eq!(world.elbv2.groups[&group].targets.len(), 1);
}

#[test]
fn targets_become_healthy_and_drain_on_the_clock() {
    let (mut world, _, group) = forwarding(|_| {});
    v2(&mut world, "RegisterTargets", &targets(&group, &["i-a", "i-b"])).unwrap();
    assert_eq!(health(&mut world, &group), states(&[("i-a", "initial"), ("i-b", "unused")]), "b is in another zone");
    pass(&world, 30);
    assert_eq!(health(&mut world, &group), states(&[("i-a", "healthy"), ("i-b", "unused")]));
    world.elbv2.unhealthy.insert("i-a".to_owned());
    assert_eq!(health(&mut world, &group)[0].1, "unhealthy");
    v2(&mut world, "DeregisterTargets", &targets(&group, &["i-a", "i-none"])).unwrap();
    assert_eq!(health(&mut world, &group)[0].1, "draining");
    pass(&world, 299);
    assert_eq!(health(&mut world, &group)[0].1, "draining");
    pass(&world, 1);
    assert_eq!(health(&mut world, &group), states(&[("i-b", "unused")]));
    world.ec2.instances.remove("i-b");
    assert_eq!(health(&mut world, &group), []);
}

#[test]
fn a_target_of_an_unused_group_is_gone_at_once_and_one_can_come_back_while_draining() {
    let mut world = scene(|_| {});
    let arn = group(&mut world, GROUP);
    v2(&mut world, "RegisterTargets", &targets(&arn, &["i-a"])).unwrap();
    assert_eq!(health(&mut world, &arn), states(&[("i-a", "unused")]));
    v2(&mut world, "DeregisterTargets", &targets(&arn, &["i-a"])).unwrap();
    assert_eq!(health(&mut world, &arn), []);
    let (mut world, _, arn) = forwarding(|_| {});
    v2(&mut world, "RegisterTargets", &targets(&arn, &["i-a"])).unwrap();
    v2(&mut world, "DeregisterTargets", &targets(&arn, &["i-a"])).unwrap();
    v2(&mut world, "RegisterTargets", &targets(&arn, &["i-a"])).unwrap();
    assert_eq!(health(&mut world, &arn), states(&[("i-a", "initial")]));
    let asked = v2(&mut world, "DescribeTargetHealth", &targets(&arn, &["i-b"])).unwrap();
    assert_eq!(text(&asked, "TargetHealthDescriptions/member/TargetHealth/Reason"), "Target.NotRegistered");
}

#[test]
fn attributes_have_defaults_and_unknown_keys_are_refused() {
    let (mut world, balancer, group) = forwarding(|_| {});
    let set = |arn: &str, key: &str, value: &str| {
        format!("{arn}&Attributes.member.1.Key={key}&Attributes.member.1.Value={value}")
    };
    let (of_balancer, of_group) = (format!("LoadBalancerArn={balancer}"), format!("TargetGroupArn={group}"));
    let answer =
        v2(&mut world, "ModifyLoadBalancerAttributes", &set(&of_balancer, "load_balancing.cross_zone.enabled", "true"))
            .unwrap();
    assert_eq!(answer.child("Attributes").unwrap().children.len(), 9);
    for (key, value, code) in [
        ("idle_timeout.timeout_seconds", "60", "ValidationError"),
        ("access_logs.s3.enabled", "yes", "ValidationError"),
        ("access_logs.s3.enabled", "true", "InvalidConfigurationRequest"),
    ] {
        refused(&mut world, "ModifyLoadBalancerAttributes", &set(&of_balancer, key, value), code);
    }
    v2(&mut world, "ModifyTargetGroupAttributes", &set(&of_group, "preserve_client_ip.enabled", "false")).unwrap();
    let unknown = set(&of_group, "slow_start.duration_seconds", "30");
    refused(&mut world, "ModifyTargetGroupAttributes", &unknown, "ValidationError");
    v2(&mut world, "ModifyLoadBalancerAttributes", &set(&of_balancer, "deletion_protection.enabled", "true")).unwrap();
    refused(&mut world, "DeleteLoadBalancer", &of_balancer, "OperationNotPermitted");
}

#[test]
fn tags_are_on_all_three_kinds_and_unknown_ones_have_their_codes() {
    let (mut world, balancer, group) = forwarding(|options| options.limits.tags = 2);
    let listener = world.elbv2.listeners.keys().next().unwrap().clone();
    for arn in [&balancer, &group, &listener] {
        let form = format!("ResourceArns.member.1={arn}");
        v2(&mut world, "AddTags", &format!("{form}&Tags.member.1.Key=a&Tags.member.1.Value=1&Tags.member.2.Key=b"))
            .unwrap();
        refused(&mut world, "AddTags", &format!("{form}&Tags.member.1.Key=c"), "TooManyTags");
        let found = v2(&mut world, "DescribeTags", &form).unwrap();
        assert_eq!(text(&found, "TagDescriptions/member/Tags/member/Key"), "a");
    }
    refused(&mut world, "DescribeTags", &format!("ResourceArns.member.1={balancer}x"), "LoadBalancerNotFound");
    refused(&mut world, "DescribeTags", &format!("ResourceArns.member.1={group}x"), "TargetGroupNotFound");
    refused(&mut world, "DescribeTags", &format!("ResourceArns.member.1={listener}x"), "ListenerNotFound");
}

#[test]
fn the_quotas_hold() {
    let mut world = scene(|options| {
        options.limits.network_balancers = 1;
        options.limits.target_groups = 1;
        options.limits.network_listeners = 1;
    });
    let (balancer, group) = (balancer(&mut world), group(&mut world, GROUP));
    v2(&mut world, "CreateListener", &listener(&balancer, &group, 80, "TCP")).unwrap();
    refused(&mut world, "CreateLoadBalancer", &BALANCER.replace("=lb", "=lb2"), "TooManyLoadBalancers");
    refused(&mut world, "CreateTargetGroup", &GROUP.replace("=tg", "=tg2"), "TooManyTargetGroups");
    refused(&mut world, "CreateListener", &listener(&balancer, &group, 81, "TCP"), "TooManyListeners");
}

#[test]
fn a_state_survives_dump_and_load() {
    let (mut world, _, group) = forwarding(|_| {});
    v2(&mut world, "RegisterTargets", &targets(&group, &["i-a"])).unwrap();
    let dump = serde_json::to_string(&world.dump()).unwrap();
    let mut copy = scene(|_| {});
    copy.load(serde_json::from_str(&dump).unwrap());
    pass(&copy, 90);
    assert_eq!(health(&mut copy, &group), states(&[("i-a", "healthy")]));
    let found = v2(&mut copy, "DescribeLoadBalancers", "Names.member.1=lb").unwrap();
    assert_eq!(text(&found, "LoadBalancers/member/State/Code"), "active");
}
