//! EC2 from the caller's perspective: calls on a state with a stepped clock.

use super::seed::{InstanceSeed, Network, NetworkSeed, instances, network};
use super::*;
use crate::aws::model::Models;
use crate::aws::query::Params;
use crate::aws::{Options, Service, frame, lbnet};
use crate::core::clock::Mode;
use crate::core::lag::Lag;
use std::sync::Arc;
use std::time::Duration;

fn world_with(options: Options) -> (World, Network) {
    let clock = Mode::Stepped { start: Timestamp::from_second(1_800_000_000).unwrap() };
    let mut world = World::new(Arc::new(Options { clock, ..options }));
    let made = network(&mut world, &NetworkSeed { cluster: Some("c1".to_owned()), ..NetworkSeed::default() }).unwrap();
    (world, made)
}

fn world() -> (World, Network) {
    world_with(Options::default())
}

fn nodes(world: &mut World, net: &Network, count: usize) -> Vec<String> {
    let seed = InstanceSeed {
        count,
        subnets: net.private.clone(),
        groups: vec![net.node_group.clone()],
        ..InstanceSeed::default()
    };
    instances(world, &seed).unwrap()
}

fn call(world: &mut World, action: &str, form: &str) -> Result<String, ApiError> {
    world.settle();
    let call = Call::direct(Service::Ec2, action, form)?;
    let xml = handle(world, &call)?;
    assert_eq!(call.params.unread(), Vec::<String>::new(), "{action} ignores parameters");
    if let Some(models) = Models::shared().unwrap() {
        let body = frame(Service::Ec2, action, "r-1", &xml);
        assert_eq!(models.check_response("ec2", action, 200, &body), Vec::<String>::new(), "{action}");
        let form = format!("Action={action}&Version=2016-11-15&{form}");
        assert_eq!(models.check_request("ec2", &Params::parse(&form).unwrap()), Vec::<String>::new(), "{action}");
    }
    Ok(xml.into_string())
}

fn ok(world: &mut World, action: &str, form: &str) -> String {
    call(world, action, form).unwrap_or_else(|error| panic!("{action} {form}: {error:?}"))
}

fn code(world: &mut World, action: &str, form: &str) -> String {
    call(world, action, form).expect_err(form).code
}

/// The texts of all elements of this name.
fn all(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open).skip(1).filter_map(|rest| Some(rest.split_once(&close)?.0.to_owned())).collect()
}

fn one(xml: &str, name: &str) -> String {
    let found = all(xml, name);
    assert_eq!(found.len(), 1, "{name} in {xml}");
    found[0].clone()
}

fn step(world: &World, seconds: u64) {
    world.clock.step(Duration::from_secs(seconds));
}

#[test]
fn a_partial_answer_leaves_instances_out_without_denying_them() {
    let (mut world, net) = world();
    let ids = nodes(&mut world, &net, 3);
    world.ec2.left_out.insert(ids[1].clone());
    let by_id = format!("InstanceId.1={}&InstanceId.2={}", ids[0], ids[1]);
    assert_eq!(all(&ok(&mut world, "DescribeInstances", &by_id), "instanceId"), [ids[0].clone()]);
    assert_eq!(all(&ok(&mut world, "DescribeInstances", ""), "instanceId").len(), 2);
    world.ec2.left_out.clear();
    assert_eq!(all(&ok(&mut world, "DescribeInstances", ""), "instanceId").len(), 3);
}

#[test]
fn an_instance_lives_on_the_clock_and_stays_visible_for_an_hour_after() {
    let (mut world, net) = world();
    let form = format!(
        "ImageId=ami-1&InstanceType=m5.large&MinCount=2&MaxCount=2&SubnetId={}&SecurityGroupId.1={}&ClientToken=t\
         &TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.Tag.1.Value=v",
        net.private[0], net.node_group
    );
    let xml = ok(&mut world, "RunInstances", &form);
    let ids = all(&xml, "instanceId");
    assert_eq!(ids.len(), 2);
    assert_eq!(all(&ok(&mut world, "RunInstances", &form), "instanceId"), ids, "the token makes the repeat harmless");
    assert_eq!(code(&mut world, "RunInstances", &form.replace("m5", "m6")), "IdempotentParameterMismatch");
    let id = &ids[0];
    let state = |world: &mut World| {
        let xml = ok(world, "DescribeInstances", &format!("InstanceId.1={id}"));
        one(&one(&xml, "instanceState"), "name")
    };
    assert_eq!(state(&mut world), "pending");
    step(&world, 10);
    assert_eq!(state(&mut world), "running");
    ok(&mut world, "StopInstances", &format!("InstanceId.1={id}"));
    assert_eq!(state(&mut world), "stopping");
    step(&world, 30);
    assert_eq!(state(&mut world), "stopped");
    ok(&mut world, "TerminateInstances", &format!("InstanceId.1={id}"));
    assert_eq!(state(&mut world), "shutting-down");
    step(&world, 30);
    assert_eq!(state(&mut world), "terminated");
    let xml = ok(&mut world, "DescribeInstances", &format!("InstanceId.1={id}"));
    assert!(!xml.contains("privateIpAddress>") && xml.contains("<privateDnsName></privateDnsName>"), "{xml}");
    assert!(xml.contains("<key>k</key>"));
    step(&world, 3600);
    assert_eq!(code(&mut world, "DescribeInstances", &format!("InstanceId.1={id}")), "InvalidInstanceID.NotFound");
}

#[test]
fn one_unknown_id_fails_the_whole_call_but_not_a_filter() {
    let (mut world, net) = world();
    let id = nodes(&mut world, &net, 1).remove(0);
    let (a, b) = ("i-00000000000000001", "i-00000000000000002");
    let error = call(&mut world, "DescribeInstances", &format!("InstanceId.1={b}&InstanceId.2={id}&InstanceId.3={a}"))
        .unwrap_err();
    assert_eq!(error.message, format!("The instance IDs '{a}, {b}' do not exist"));
    assert_eq!(code(&mut world, "DescribeInstances", "InstanceId.1=i-x"), "InvalidInstanceID.Malformed");
    let form = format!("Filter.1.Name=instance-id&Filter.1.Value.1={a}&Filter.1.Value.2={id}");
    assert_eq!(all(&ok(&mut world, "DescribeInstances", &form), "instanceId"), [id.as_str()]);
    assert_eq!(code(&mut world, "DescribeInstances", "Filter.1.Name=nope&Filter.1.Value.1=x"), "InvalidParameterValue");
    let many: String = (0..201).map(|n| format!("&Filter.1.Value.{}={n}", n + 1)).collect();
    let form = format!("Filter.1.Name=instance-id{many}");
    assert_eq!(code(&mut world, "DescribeInstances", &form), "FilterLimitExceeded");
    let form = format!("InstanceId.1={id}&MaxResults=10");
    assert_eq!(code(&mut world, "DescribeInstances", &form), "InvalidParameterCombination");
}

#[test]
fn filters_find_instances_by_name_address_state_and_tags() {
    let (mut world, net) = world();
    let ids = nodes(&mut world, &net, 4);
    let call = format!("ResourceId.1={}&Tag.1.Key=role&Tag.1.Value=node-7", ids[2]);
    ok(&mut world, "CreateTags", &call);
    let xml = ok(&mut world, "DescribeInstances", &format!("InstanceId.1={}", ids[2]));
    let dns = all(&xml, "privateDnsName")[0].clone();
    let ip = all(&xml, "privateIpAddress")[0].clone();
    assert_eq!(dns, format!("ip-{}.us-west-2.compute.internal", ip.replace('.', "-")));
    let filters = [
        ("private-dns-name", dns.as_str()),
        ("private-ip-address", ip.as_str()),
        ("tag-key", "role"),
        ("tag:role", "node-*"),
    ];
    for (name, value) in filters {
        let form = format!(
            "Filter.1.Name={name}&Filter.1.Value.1={value}&Filter.2.Name=instance-state-name&Filter.2.Value.1=pending\
             &Filter.2.Value.2=running&Filter.3.Name=vpc-id&Filter.3.Value.1={}",
            net.vpc
        );
        assert_eq!(all(&ok(&mut world, "DescribeInstances", &form), "instanceId"), [ids[2].as_str()], "{name}");
        let form = format!(
            "Filter.1.Name={name}&Filter.1.Value.1={value}&Filter.2.Name=instance-state-name&Filter.2.Value.1=stopped"
        );
        assert!(!ok(&mut world, "DescribeInstances", &form).contains("instanceId"), "{name}");
    }
}

#[test]
fn pages_hold_what_was_asked_and_end() {
    let (mut world, net) = world();
    let mut expected = nodes(&mut world, &net, 13);
    expected.sort();
    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let form = if token.is_empty() { "MaxResults=5".to_owned() } else { format!("MaxResults=5&NextToken={token}") };
        let xml = ok(&mut world, "DescribeInstances", &form);
        seen.extend(all(&xml, "instanceId"));
        pages += 1;
        match all(&xml, "nextToken").pop() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!((pages, seen), (3, expected));
    assert_eq!(code(&mut world, "DescribeInstances", "MaxResults=4"), "InvalidParameterValue");
    assert_eq!(code(&mut world, "DescribeInstances", "NextToken=zz"), "InvalidNextToken");
}

#[test]
fn a_new_instance_is_unknown_until_its_lag_is_over() {
    let lag = Lag::default().with("instance", Duration::from_secs(2));
    let (mut world, net) = world_with(Options { lag, ..Options::default() });
    let form = format!("ImageId=ami-1&MinCount=1&MaxCount=1&SubnetId={}", net.private[0]);
    let id = one(&ok(&mut world, "RunInstances", &form), "instanceId");
    let tag = format!("ResourceId.1={id}&Tag.1.Key=a&Tag.1.Value=b");
    assert_eq!(code(&mut world, "CreateTags", &tag), "InvalidInstanceID.NotFound");
    assert!(!ok(&mut world, "DescribeInstances", "").contains(&id));
    step(&world, 2);
    ok(&mut world, "CreateTags", &tag);
    assert!(ok(&mut world, "DescribeInstances", "").contains(&id));
}

#[test]
fn a_dry_run_checks_and_changes_nothing() {
    let (mut world, net) = world();
    let form = format!("GroupName=x&GroupDescription=x&VpcId={}&DryRun=true", net.vpc);
    let error = call(&mut world, "CreateSecurityGroup", &form).unwrap_err();
    assert_eq!((error.status, error.code.as_str()), (412, "DryRunOperation"));
    assert!(security_groups::by_name(&world, &net.vpc, "x").is_none());
    assert_eq!(code(&mut world, "CreateSecurityGroup", &form.replace(&net.vpc, "vpc-1")), "InvalidVpcID.NotFound");
}

fn group(world: &mut World, net: &Network, name: &str) -> String {
    let form = format!("GroupName={name}&GroupDescription=d&VpcId={}", net.vpc);
    one(&ok(world, "CreateSecurityGroup", &form), "groupId")
}

#[test]
fn rules_of_a_group_are_merged_on_the_wire_and_single_inside() {
    let (mut world, net) = world();
    let (id, other) = (group(&mut world, &net, "a"), group(&mut world, &net, "b"));
    let tcp = "IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=80&IpPermissions.1.ToPort=80";
    let form = format!(
        "GroupId={id}&{tcp}&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.9/8&IpPermissions.1.IpRanges.1.Description=one\
         &IpPermissions.1.IpRanges.2.CidrIp=192.168.0.0/16&IpPermissions.1.Ipv6Ranges.1.CidrIpv6=2001:DB8::/32\
         &IpPermissions.1.Groups.1.GroupId={other}&IpPermissions.1.Groups.1.UserId=123456789012\
         &IpPermissions.2.IpProtocol=-1&IpPermissions.2.IpRanges.1.CidrIp=0.0.0.0/0"
    );
    ok(&mut world, "AuthorizeSecurityGroupIngress", &form);
    let describe = format!("GroupId.1={id}");
    let xml = ok(&mut world, "DescribeSecurityGroups", &describe);
    let permissions = one(&xml, "ipPermissions");
    assert_eq!(all(&permissions, "ipProtocol"), ["tcp", "-1"]);
    assert_eq!(all(&permissions, "cidrIp"), ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/0"]);
    assert_eq!(all(&permissions, "cidrIpv6"), ["2001:db8::/32"]);
    assert_eq!(all(&permissions, "fromPort"), ["80"]);
    // A different description does not make it a different rule.
    let again = format!("GroupId={id}&{tcp}&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8");
    let error = call(&mut world, "AuthorizeSecurityGroupIngress", &again).unwrap_err();
    assert_eq!(error.code, "InvalidPermission.Duplicate");
    assert!(error.message.contains("peer: 10.0.0.0/8, TCP, from port: 80, to port: 80, ALLOW"), "{}", error.message);
    let describe_again = format!("{again}&IpPermissions.1.IpRanges.1.Description=two");
    ok(&mut world, "UpdateSecurityGroupRuleDescriptionsIngress", &describe_again);
    assert!(ok(&mut world, "DescribeSecurityGroups", &describe).contains("<description>two</description>"));
    ok(&mut world, "RevokeSecurityGroupIngress", &again);
    assert_eq!(code(&mut world, "RevokeSecurityGroupIngress", &again), "InvalidPermission.NotFound");
    let xml = ok(&mut world, "DescribeSecurityGroups", &describe);
    assert_eq!(all(&one(&xml, "ipPermissions"), "cidrIp"), ["192.168.0.0/16", "0.0.0.0/0"]);
    let by_reference = format!("Filter.1.Name=ip-permission.group-id&Filter.1.Value.1={other}");
    assert_eq!(
        all(&one(&ok(&mut world, "DescribeSecurityGroups", &by_reference), "securityGroupInfo"), "groupName"),
        ["a"]
    );
}

#[test]
fn bad_permissions_are_refused_and_change_nothing() {
    let (mut world, net) = world();
    let id = group(&mut world, &net, "a");
    let cases = [
        (
            "IpProtocol=tls&IpPermissions.1.FromPort=1&IpPermissions.1.ToPort=1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0",
            "InvalidParameterValue",
        ),
        (
            "IpProtocol=tcp&IpPermissions.1.FromPort=2&IpPermissions.1.ToPort=1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0",
            "InvalidParameterValue",
        ),
        ("IpProtocol=tcp&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0", "InvalidParameterValue"),
        ("IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=fd00::/8", "InvalidParameterValue"),
        ("IpProtocol=-1&IpPermissions.1.Groups.1.GroupId=sg-00000000000000001", "InvalidGroup.NotFound"),
        (
            "IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0&IpPermissions.1.IpRanges.1.Description=%C3%A4",
            "InvalidParameterValue",
        ),
        (
            "IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8&IpPermissions.1.IpRanges.2.CidrIp=10.0.0.0/8",
            "InvalidParameterValue",
        ),
    ];
    for (form, expected) in cases {
        let form = format!("GroupId={id}&IpPermissions.1.{form}");
        assert_eq!(code(&mut world, "AuthorizeSecurityGroupIngress", &form), expected, "{form}");
    }
    assert!(world.ec2.groups[&id].ingress.is_empty());
}

#[test]
fn the_rule_quota_counts_each_family_apart_and_is_all_or_nothing() {
    let (mut world, net) = world();
    let id = group(&mut world, &net, "a");
    let rules = |key: &str, field: &str, blocks: std::ops::Range<usize>, text: fn(usize) -> String| {
        blocks.map(|n| format!("&IpPermissions.1.{key}.{}.{field}={}", n + 1, text(n))).collect::<String>()
    };
    let all_traffic = format!("GroupId={id}&IpPermissions.1.IpProtocol=-1");
    let v4 = rules("IpRanges", "CidrIp", 0..61, |n| format!("10.{n}.0.0/16"));
    let error = code(&mut world, "AuthorizeSecurityGroupIngress", &format!("{all_traffic}{v4}"));
    assert_eq!(error, "RulesPerSecurityGroupLimitExceeded");
    assert!(world.ec2.groups[&id].ingress.is_empty());
    let v4 = rules("IpRanges", "CidrIp", 0..60, |n| format!("10.{n}.0.0/16"));
    let v6 = rules("Ipv6Ranges", "CidrIpv6", 0..60, |n| format!("2001:db8:{n:x}::/48"));
    ok(&mut world, "AuthorizeSecurityGroupIngress", &format!("{all_traffic}{v4}{v6}"));
    assert_eq!(world.ec2.groups[&id].ingress.len(), 120);
}

#[test]
fn a_group_in_use_cannot_be_deleted() {
    let (mut world, net) = world();
    nodes(&mut world, &net, 1);
    assert_eq!(code(&mut world, "DeleteSecurityGroup", &format!("GroupId={}", net.node_group)), "DependencyViolation");
    assert_eq!(code(&mut world, "DeleteSecurityGroup", &format!("GroupId={}", net.default_group)), "CannotDelete");
    let (a, b) = (group(&mut world, &net, "a"), group(&mut world, &net, "b"));
    let reference = format!("GroupId={b}&IpPermissions.1.IpProtocol=-1&IpPermissions.1.Groups.1.GroupId={a}");
    ok(&mut world, "AuthorizeSecurityGroupIngress", &reference);
    assert_eq!(code(&mut world, "DeleteSecurityGroup", &format!("GroupId={a}")), "DependencyViolation");
    ok(&mut world, "RevokeSecurityGroupIngress", &reference);
    ok(&mut world, "DeleteSecurityGroup", &format!("GroupId={a}"));
    assert_eq!(code(&mut world, "DeleteSecurityGroup", &format!("GroupId={a}")), "InvalidGroup.NotFound");
    let again = format!("GroupName=b&GroupDescription=d&VpcId={}", net.vpc);
    assert_eq!(code(&mut world, "CreateSecurityGroup", &again), "InvalidGroup.Duplicate");
}

#[test]
fn interfaces_of_a_deleted_balancer_hold_their_group_until_they_are_gone() {
    let (mut world, net) = world();
    let id = group(&mut world, &net, "lb");
    let new = network::NewInterface {
        subnet: net.public[0].clone(),
        groups: vec![id.clone()],
        description: "ELB a1".to_owned(),
        public: true,
        ..network::NewInterface::default()
    };
    let interface = network::create_balancer_interface(&mut world, new).unwrap();
    let form =
        "Filter.1.Name=description&Filter.1.Value.1=ELB a1&Filter.2.Name=requester-managed&Filter.2.Value.1=true";
    assert_eq!(one(&ok(&mut world, "DescribeNetworkInterfaces", form), "networkInterfaceId"), interface);
    lbnet::unplug(&mut world, [interface]);
    assert_eq!(code(&mut world, "DeleteSecurityGroup", &format!("GroupId={id}")), "DependencyViolation");
    step(&world, 60);
    ok(&mut world, "DeleteSecurityGroup", &format!("GroupId={id}"));
}

#[test]
fn a_route_to_an_instance_is_blackhole_when_that_is_gone() {
    let (mut world, net) = world();
    let id = nodes(&mut world, &net, 1).remove(0);
    let table = &net.main_table;
    let create = format!("RouteTableId={table}&DestinationCidrBlock=10.244.1.7/24&InstanceId={id}");
    ok(&mut world, "CreateRoute", &create);
    assert_eq!(code(&mut world, "CreateRoute", &create), "RouteAlreadyExists");
    let v6 = format!("RouteTableId={table}&DestinationIpv6CidrBlock=2001:db8:ffff::/80&InstanceId={id}");
    ok(&mut world, "CreateRoute", &v6);
    let describe = format!("Filter.1.Name=route-table-id&Filter.1.Value.1={table}");
    let xml = ok(&mut world, "DescribeRouteTables", &describe);
    assert_eq!(all(&xml, "destinationCidrBlock"), ["10.0.0.0/16", "10.244.1.0/24"]);
    assert_eq!(all(&xml, "destinationIpv6CidrBlock"), ["2001:db8:ffff::/80"]);
    assert_eq!(all(&one(&xml, "routeSet"), "state"), ["active", "active", "active"]);
    assert_eq!(all(&xml, "networkInterfaceId").len(), 2);
    ok(&mut world, "TerminateInstances", &format!("InstanceId.1={id}"));
    step(&world, 30);
    let xml = ok(&mut world, "DescribeRouteTables", &describe);
    assert_eq!(all(&one(&xml, "routeSet"), "state"), ["active", "blackhole", "blackhole"]);
    let delete = format!("RouteTableId={table}&DestinationCidrBlock=10.244.1.0/24");
    ok(&mut world, "DeleteRoute", &delete);
    assert_eq!(code(&mut world, "DeleteRoute", &delete), "InvalidRoute.NotFound");
    assert_eq!(
        code(&mut world, "DeleteRoute", &delete.replace("10.244.1.0/24", "10.0.0.0/16")),
        "InvalidParameterValue"
    );
}

#[test]
fn an_instance_with_two_interfaces_is_routed_through_one_of_them() {
    let (mut world, net) = world();
    let run = format!(
        "ImageId=ami-1&MinCount=1&MaxCount=1&NetworkInterface.1.DeviceIndex=1&NetworkInterface.1.SubnetId={}\
         &NetworkInterface.2.DeviceIndex=0&NetworkInterface.2.SubnetId={}",
        net.private[0], net.public[0]
    );
    let id = one(&ok(&mut world, "RunInstances", &run), "instanceId");
    let modify = format!("InstanceId={id}&SourceDestCheck.Value=false");
    assert_eq!(code(&mut world, "ModifyInstanceAttribute", &modify), "InvalidInstanceID");
    let create = format!("RouteTableId={}&DestinationCidrBlock=10.244.1.0/24", net.main_table);
    assert_eq!(code(&mut world, "CreateRoute", &format!("{create}&InstanceId={id}")), "InvalidInstanceID");
    let primary = world.ec2.instances[&id].interfaces[0].clone();
    assert_eq!(world.ec2.interfaces[&primary].subnet, net.public[0], "device 0 comes first");
    let modify = format!("NetworkInterfaceId={primary}&SourceDestCheck.Value=false");
    ok(&mut world, "ModifyNetworkInterfaceAttribute", &modify);
    ok(&mut world, "CreateRoute", &format!("{create}&NetworkInterfaceId={primary}"));
    let other = nodes(&mut world, &net, 1).remove(0);
    ok(&mut world, "ModifyInstanceAttribute", &format!("InstanceId={other}&SourceDestCheck.Value=false"));
    ok(&mut world, "ReplaceRoute", &format!("{create}&InstanceId={other}"));
    let xml = ok(&mut world, "DescribeRouteTables", &format!("RouteTableId.1={}", net.main_table));
    assert_eq!(one(&xml, "instanceId"), other);
}

#[test]
fn tags_are_set_once_for_all_or_not_at_all() {
    let (mut world, net) = world();
    let ids = nodes(&mut world, &net, 2);
    let unknown = "i-00000000000000001";
    let both = format!("ResourceId.1={}&ResourceId.2={unknown}&Tag.1.Key=a&Tag.1.Value=1", ids[0]);
    assert_eq!(code(&mut world, "CreateTags", &both), "InvalidInstanceID.NotFound");
    assert!(world.ec2.instances[&ids[0]].tags.is_empty());
    assert_eq!(code(&mut world, "CreateTags", "ResourceId.1=kwok&Tag.1.Key=a&Tag.1.Value=1"), "InvalidID");
    let both = both.replace(unknown, &ids[1]);
    ok(&mut world, "CreateTags", &both);
    let aws = format!("ResourceId.1={}&Tag.1.Key=aws:x&Tag.1.Value=1", ids[0]);
    assert_eq!(code(&mut world, "CreateTags", &aws), "InvalidParameterValue");
    ok(&mut world, "DeleteTags", &both.replace("Value=1", "Value=2"));
    let describe = "Filter.1.Name=tag-key&Filter.1.Value.1=a";
    assert_eq!(
        all(&ok(&mut world, "DescribeInstances", describe), "instanceId").len(),
        2,
        "another value: nothing goes"
    );
    ok(&mut world, "DeleteTags", &both);
    assert!(!ok(&mut world, "DescribeInstances", describe).contains("instanceId"));
}

#[test]
fn topology_is_reported_for_the_types_that_have_one() {
    let (mut world, net) = world();
    let plain = nodes(&mut world, &net, 1).remove(0);
    let seed = InstanceSeed {
        count: 9,
        subnets: net.private.clone(),
        instance_type: "p5.48xlarge".to_owned(),
        ..InstanceSeed::default()
    };
    let big = instances(&mut world, &seed).unwrap();
    let form = format!("InstanceId.1={plain}&InstanceId.2={}", big[0]);
    let xml = ok(&mut world, "DescribeInstanceTopology", &form);
    assert_eq!(all(&xml, "instanceId"), [big[0].as_str()]);
    assert_eq!(all(&one(&xml, "networkNodeSet"), "item").len(), 3);
    world.ec2.topology_unsupported = true;
    assert_eq!(code(&mut world, "DescribeInstanceTopology", &form), "UnsupportedOperation");
}

#[test]
fn networks_are_built_through_the_api_too() {
    let (mut world, _) = world();
    let vpc = one(&ok(&mut world, "CreateVpc", "CidrBlock=10.1.0.0/16"), "vpcId");
    let subnet = format!("VpcId={vpc}&CidrBlock=10.1.1.0/24&AvailabilityZone=us-west-2b");
    let xml = ok(&mut world, "CreateSubnet", &subnet);
    assert_eq!(one(&xml, "availableIpAddressCount"), "251");
    let subnet_id = one(&xml, "subnetId");
    assert_eq!(code(&mut world, "CreateSubnet", &subnet), "InvalidSubnet.Conflict");
    let gateway = one(&ok(&mut world, "CreateInternetGateway", ""), "internetGatewayId");
    ok(&mut world, "AttachInternetGateway", &format!("InternetGatewayId={gateway}&VpcId={vpc}"));
    let of_vpc = format!("Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let table = all(&ok(&mut world, "DescribeRouteTables", &of_vpc), "routeTableId").remove(0);
    ok(&mut world, "CreateRoute", &format!("RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}"));
    assert_eq!(all(&ok(&mut world, "DescribeRouteTables", &of_vpc), "gatewayId"), ["local", gateway.as_str()]);
    let form = format!("ImageId=ami-1&MinCount=1&MaxCount=1&SubnetId={subnet_id}&PrivateIpAddress=10.1.1.77");
    assert!(ok(&mut world, "RunInstances", &form).contains("10.1.1.77"));
    assert_eq!(code(&mut world, "RunInstances", &form), "InvalidIPAddress.InUse");
    let zones = ok(&mut world, "DescribeAvailabilityZones", "");
    assert_eq!(all(&zones, "zoneId"), ["usw2-az2", "usw2-az1", "usw2-az3", "usw2-az4"]);
    let volume = "AvailabilityZone=us-west-2a&Size=8&ClientToken=v";
    let id = one(&ok(&mut world, "CreateVolume", volume), "volumeId");
    assert_eq!(one(&ok(&mut world, "CreateVolume", volume), "volumeId"), id);
    assert_eq!(one(&ok(&mut world, "DescribeVolumes", &format!("VolumeId.1={id}")), "availabilityZone"), "us-west-2a");
    assert_eq!(code(&mut world, "DescribeVolumes", "VolumeId.1=vol-00000000000000001"), "InvalidVolume.NotFound");
    one(&ok(&mut world, "AllocateAddress", "Domain=vpc"), "allocationId");
}

#[test]
fn a_dump_is_stable_and_can_be_loaded_again() {
    let (mut world, net) = world();
    let ids = nodes(&mut world, &net, 3);
    ok(&mut world, "TerminateInstances", &format!("InstanceId.1={}", ids[0]));
    let text = |world: &World| serde_json::to_string_pretty(&world.dump()).unwrap();
    let before = text(&world);
    let mut other = World::new(world.options.clone());
    other.load(serde_json::from_str(&before).unwrap());
    assert_eq!(text(&other), before);
    // The scheduled events and the indexes were loaded too.
    step(&other, 30);
    let by_name = |id: &str| format!("Filter.1.Name=private-dns-name&Filter.1.Value.1={}", other_name(&world, id));
    assert!(!ok(&mut other, "DescribeInstances", &by_name(&ids[0])).contains("instanceId"));
    assert!(ok(&mut other, "DescribeInstances", &by_name(&ids[1])).contains(&ids[1]));
}

fn other_name(world: &World, id: &str) -> String {
    world.ec2.instances[id].private_dns.clone()
}

#[test]
fn ipv6_addresses_and_prefixes_come_from_the_subnets_block() {
    let (mut world, _) = world();
    let seed = NetworkSeed { cidr: "10.9.0.0/16".to_owned(), ipv6: true, ..NetworkSeed::default() };
    let net = network(&mut world, &seed).unwrap();
    let form = format!(
        "ImageId=ami-1&MinCount=2&MaxCount=2&NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId={}\
         &NetworkInterface.1.Ipv6AddressCount=2&NetworkInterface.1.Ipv6PrefixCount=1",
        net.private[0]
    );
    let xml = ok(&mut world, "RunInstances", &form);
    let block: ipnet::Ipv6Net = world.ec2.subnets[&net.private[0]].ipv6_cidr.as_deref().unwrap().parse().unwrap();
    let sets = all(&xml, "ipv6AddressesSet");
    let addresses: BTreeSet<String> = sets.iter().flat_map(|set| all(set, "ipv6Address")).collect();
    assert_eq!(addresses.len(), 4);
    assert!(addresses.iter().all(|text| block.contains(&text.parse::<std::net::Ipv6Addr>().unwrap())));
    let prefixes = all(&xml, "ipv6Prefix");
    assert!(prefixes.len() == 2 && prefixes[0] != prefixes[1]);
    assert!(prefixes.iter().all(|text| block.contains(&text.parse::<ipnet::Ipv6Net>().unwrap())));
    let plain = form.replace(
        &net.private[0],
        &world.ec2.subnets.keys().find(|id| world.ec2.subnets[*id].ipv6_cidr.is_none()).unwrap().clone(),
    );
    assert_eq!(code(&mut world, "RunInstances", &plain), "InvalidParameterValue");
    assert_eq!(world.ec2.instances.len(), 2, "nothing is left of the refused ones");
    assert_eq!(world.ec2.interfaces.len(), 2);
    let new = network::NewInterface {
        subnet: net.public[0].clone(),
        allocation: Some("eipalloc-1".to_owned()),
        ..network::NewInterface::default()
    };
    let refused = network::create_interface(&mut world, new).unwrap_err();
    assert_eq!(refused.code, "InvalidAllocationID.NotFound");
    assert_eq!(world.ec2.index.by_ip.len(), 2, "nor is an address");
}
