use crate::case::{Case, case};

const UNKNOWN_INSTANCE: &str = "i-0123456789abcdef0";

fn tcp(port: u16, rest: &str) -> String {
    format!(
        "GroupId={{sg1}}&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort={port}&IpPermissions.1.ToPort={port}&{rest}"
    )
}

const ANYWHERE: &str = "IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0";
const RULES: &str = "securityGroupInfo/item/ipPermissions";

pub(crate) fn cases() -> Vec<Case> {
    [instances(), groups(), routes(), network()].into_iter().flatten().collect()
}

fn instances() -> Vec<Case> {
    let filter = |name: &str, value: &str| format!("Filter.1.Name={name}&Filter.1.Value.1={value}");
    vec![
        case("ec2: an instance by its ID")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}")
            .is("reservationSet/item/instancesSet/item/instanceId", "{i1}")
            .is("reservationSet/item/instancesSet/item/instanceState/name", "running")
            .is("reservationSet/item/instancesSet/item/placement/availabilityZone", "us-west-2a")
            .is("reservationSet/item/instancesSet/item/vpcId", "{vpc}")
            .like("reservationSet/item/instancesSet/item/privateDnsName", "ip-10-0-1-*.us-west-2.compute.internal")
            .is("reservationSet/item/instancesSet/item/groupSet/item/groupId", "{sg1}")
            .is("reservationSet/item/instancesSet/item/networkInterfaceSet/item/attachment/deviceIndex", "0")
            .is("reservationSet/item/instancesSet/item/networkInterfaceSet/item/status", "in-use"),
        case("ec2: an ID given twice")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}&InstanceId.2={i1}")
            .count("reservationSet", 1),
        case("ec2: one unknown ID fails the whole call").fails(
            "ec2:DescribeInstances",
            format!("InstanceId.1={{i1}}&InstanceId.2={UNKNOWN_INSTANCE}"),
            "InvalidInstanceID.NotFound",
        ),
        case("ec2: a malformed ID").fails(
            "ec2:DescribeInstances",
            "InstanceId.1=instance",
            "InvalidInstanceID.Malformed",
        ),
        case("ec2: the filter of IDs passes over unknown ones")
            .ok(
                "ec2:DescribeInstances",
                format!("{}&Filter.1.Value.2={UNKNOWN_INSTANCE}", filter("instance-id", "{i1}")),
            )
            .each("reservationSet", "instancesSet/item/instanceId", "{i1}"),
        case("ec2: an instance by its private name")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}")
            .save("dns", "reservationSet/item/instancesSet/item/privateDnsName")
            .ok("ec2:DescribeInstances", filter("private-dns-name", "{dns}"))
            .each("reservationSet", "instancesSet/item/instanceId", "{i1}"),
        case("ec2: page size and IDs exclude each other").fails(
            "ec2:DescribeInstances",
            "InstanceId.1={i1}&MaxResults=5",
            "InvalidParameterCombination",
        ),
        case("ec2: an unknown filter").fails(
            "ec2:DescribeInstances",
            filter("no-such-filter", "x"),
            "InvalidParameterValue",
        ),
        case("ec2: tags are made, filtered by, and deleted by value")
            .ok("ec2:CreateTags", "ResourceId.1={i1}&Tag.1.Key=kubernetes.io/cluster/c1&Tag.1.Value=owned")
            .ok("ec2:DescribeInstances", filter("tag-key", "kubernetes.io/cluster/c1"))
            .each("reservationSet", "instancesSet/item/instanceId", "{i1}")
            .ok("ec2:DeleteTags", "ResourceId.1={i1}&Tag.1.Key=kubernetes.io/cluster/c1&Tag.1.Value=shared")
            .ok("ec2:DescribeInstances", filter("tag-key", "kubernetes.io/cluster/c1"))
            .count("reservationSet", 1)
            .ok("ec2:DeleteTags", "ResourceId.1={i1}&Tag.1.Key=kubernetes.io/cluster/c1&Tag.1.Value=owned")
            .ok("ec2:DescribeInstances", filter("tag-key", "kubernetes.io/cluster/c1"))
            .count("reservationSet", 0),
        case("ec2: tags of an unknown instance")
            .fails(
                "ec2:CreateTags",
                format!("ResourceId.1={UNKNOWN_INSTANCE}&Tag.1.Key=a&Tag.1.Value=b"),
                "InvalidInstanceID.NotFound",
            )
            .fails(
                "ec2:DeleteTags",
                format!("ResourceId.1={UNKNOWN_INSTANCE}&Tag.1.Key=a"),
                "InvalidInstanceID.NotFound",
            ),
        case("ec2: a terminated instance stays visible without addresses")
            .ok("ec2:TerminateInstances", "InstanceId.1={i1}")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}")
            .is("reservationSet/item/instancesSet/item/instanceState/name", "terminated")
            .absent("reservationSet/item/instancesSet/item/privateIpAddress"),
        case("ec2: the source check is switched off")
            .ok("ec2:ModifyInstanceAttribute", "InstanceId={i1}&SourceDestCheck.Value=false")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}")
            .is("reservationSet/item/instancesSet/item/sourceDestCheck", "false"),
    ]
}

fn groups() -> Vec<Case> {
    let described = "GroupId.1={sg1}";
    vec![
        case("ec2: a group name is taken once in a network")
            .fails("ec2:CreateSecurityGroup", "GroupName=one&GroupDescription=x&VpcId={vpc}", "InvalidGroup.Duplicate"),
        case("ec2: a group has tags from the start")
            .ok(
                "ec2:CreateSecurityGroup",
                "GroupName=three&GroupDescription=x&VpcId={vpc}&TagSpecification.1.ResourceType=security-group&TagSpecification.1.Tag.1.Key=a\
                 &TagSpecification.1.Tag.1.Value=1",
            )
            .ok("ec2:DescribeSecurityGroups", "Filter.1.Name=tag:a&Filter.1.Value.1=1")
            .is("securityGroupInfo/item/groupName", "three"),
        case("ec2: a group by name and network")
            .ok("ec2:DescribeSecurityGroups", "Filter.1.Name=group-name&Filter.1.Value.1=one&Filter.2.Name=vpc-id&Filter.2.Value.1={vpc}")
            .each("securityGroupInfo", "groupId", "{sg1}"),
        case("ec2: an unknown group")
            .fails("ec2:DescribeSecurityGroups", "GroupId.1=sg-0123456789abcdef0", "InvalidGroup.NotFound")
            .fails("ec2:DeleteSecurityGroup", "GroupId=sg-0123456789abcdef0", "InvalidGroup.NotFound"),
        case("ec2: rules of one protocol and port are one permission")
            .ok("ec2:AuthorizeSecurityGroupIngress", tcp(80, ANYWHERE))
            .ok("ec2:AuthorizeSecurityGroupIngress", tcp(80, "IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8&IpPermissions.1.IpRanges.1.Description=ours"))
            .ok("ec2:DescribeSecurityGroups", described)
            .count(RULES, 1)
            .each("securityGroupInfo/item/ipPermissions/item/ipRanges", "cidrIp", "0.0.0.0/0 10.0.0.0/8"),
        case("ec2: a rule again").ok("ec2:AuthorizeSecurityGroupIngress", tcp(80, ANYWHERE)).fails(
            "ec2:AuthorizeSecurityGroupIngress",
            tcp(80, ANYWHERE),
            "InvalidPermission.Duplicate",
        ),
        case("ec2: a rule that there isn't").fails("ec2:RevokeSecurityGroupIngress", tcp(80, ANYWHERE), "InvalidPermission.NotFound"),
        case("ec2: one of two ranges is revoked")
            .ok("ec2:AuthorizeSecurityGroupIngress", tcp(80, &format!("{ANYWHERE}&IpPermissions.1.IpRanges.2.CidrIp=10.0.0.0/8")))
            .ok("ec2:RevokeSecurityGroupIngress", tcp(80, ANYWHERE))
            .ok("ec2:DescribeSecurityGroups", described)
            .each("securityGroupInfo/item/ipPermissions/item/ipRanges", "cidrIp", "10.0.0.0/8"),
        case("ec2: a reference to a group")
            .ok("ec2:AuthorizeSecurityGroupIngress", "GroupId={sg1}&IpPermissions.1.IpProtocol=-1&IpPermissions.1.Groups.1.GroupId={sg2}")
            .ok("ec2:DescribeSecurityGroups", "Filter.1.Name=ip-permission.group-id&Filter.1.Value.1={sg2}")
            .each("securityGroupInfo", "groupId", "{sg1}")
            .is("securityGroupInfo/item/ipPermissions/item/groups/item/groupId", "{sg2}")
            .fails("ec2:DeleteSecurityGroup", "GroupId={sg2}", "DependencyViolation"),
        case("ec2: a group of an instance stays").fails("ec2:DeleteSecurityGroup", "GroupId={sg1}", "DependencyViolation"),
        case("ec2: a free group is deleted")
            .ok("ec2:DeleteSecurityGroup", "GroupId={sg2}")
            .fails("ec2:DescribeSecurityGroups", "GroupId.1={sg2}", "InvalidGroup.NotFound"),
    ]
}

fn routes() -> Vec<Case> {
    let route =
        |instance: &str| format!("RouteTableId={{rtb}}&DestinationCidrBlock=100.64.1.0/24&InstanceId={instance}");
    const DELETE: &str = "RouteTableId={rtb}&DestinationCidrBlock=100.64.1.0/24";
    let found = "Filter.1.Name=route-table-id&Filter.1.Value.1={rtb}";
    vec![
        case("ec2: a route to an instance")
            .ok("ec2:CreateRoute", route("{i1}"))
            .ok("ec2:DescribeRouteTables", found)
            .each("routeTableSet/item/routeSet", "destinationCidrBlock", "10.0.0.0/16 100.64.1.0/24")
            .each("routeTableSet/item/routeSet", "instanceId", "{i1}")
            .each("routeTableSet/item/routeSet", "state", "active active"),
        case("ec2: a route again").ok("ec2:CreateRoute", route("{i1}")).fails(
            "ec2:CreateRoute",
            route("{i2}"),
            "RouteAlreadyExists",
        ),
        case("ec2: a route is replaced")
            .ok("ec2:CreateRoute", route("{i1}"))
            .ok("ec2:ReplaceRoute", route("{i2}"))
            .ok("ec2:DescribeRouteTables", found)
            .each("routeTableSet/item/routeSet", "instanceId", "{i2}"),
        case("ec2: a route without its instance is a blackhole")
            .ok("ec2:CreateRoute", route("{i1}"))
            .ok("ec2:TerminateInstances", "InstanceId.1={i1}")
            .ok("ec2:DescribeRouteTables", found)
            .each("routeTableSet/item/routeSet", "state", "active blackhole"),
        case("ec2: a route that there isn't").ok("ec2:CreateRoute", route("{i1}")).ok("ec2:DeleteRoute", DELETE).fails(
            "ec2:DeleteRoute",
            DELETE,
            "InvalidRoute.NotFound",
        ),
    ]
}

fn network() -> Vec<Case> {
    vec![
        case("ec2: subnets of a network")
            .ok("ec2:DescribeSubnets", "Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}")
            .each("subnetSet", "subnetId", "{subnet_a} {subnet_b} {subnet_a2}"),
        case("ec2: an unknown subnet").fails(
            "ec2:DescribeSubnets",
            "SubnetId.1=subnet-0123456789abcdef0",
            "InvalidSubnetID.NotFound",
        ),
        case("ec2: zones have IDs and kinds")
            .ok("ec2:DescribeAvailabilityZones", "ZoneName.1=us-west-2a")
            .is("availabilityZoneInfo/item/zoneName", "us-west-2a")
            .is("availabilityZoneInfo/item/zoneType", "availability-zone")
            .like("availabilityZoneInfo/item/zoneId", "usw2-az*"),
        case("ec2: an interface by address")
            .ok("ec2:DescribeInstances", "InstanceId.1={i1}")
            .save("ip1", "reservationSet/item/instancesSet/item/privateIpAddress")
            .ok(
                "ec2:DescribeNetworkInterfaces",
                "Filter.1.Name=attachment.status&Filter.1.Value.1=attached&Filter.2.Name=vpc-id&Filter.2.Value.1={vpc}\
                 &Filter.3.Name=private-ip-address&Filter.3.Value.1={ip1}",
            )
            .each("networkInterfaceSet", "attachment/instanceId", "{i1}"),
        case("ec2: topology of an instance").ok("ec2:DescribeInstanceTopology", "InstanceId.1={i1}"),
    ]
}
