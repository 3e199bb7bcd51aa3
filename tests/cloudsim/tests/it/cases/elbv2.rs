use crate::case::{Case, case};

const LB: &str = "Name=lb&Type=network&Subnets.member.1={subnet_a}&SecurityGroups.member.1={sg1}";
const TG: &str = "Name=tg&Protocol=TCP&Port=30080&VpcId={vpc}&TargetType=instance";

fn listener(port: u16, protocol: &str, group: &str) -> String {
    format!(
        "LoadBalancerArn={{lb}}&Port={port}&Protocol={protocol}&DefaultActions.member.1.Type=forward\
         &DefaultActions.member.1.TargetGroupArn={group}"
    )
}

fn new(name: &'static str) -> Case {
    case(name).ok("elbv2:CreateLoadBalancer", LB).save("lb", "LoadBalancers/member/LoadBalancerArn")
}

fn with_group(case: Case, form: &str) -> Case {
    case.ok("elbv2:CreateTargetGroup", form).save("tg", "TargetGroups/member/TargetGroupArn")
}

fn forwarding(name: &'static str) -> Case {
    with_group(new(name), TG)
        .ok("elbv2:CreateListener", listener(80, "TCP", "{tg}"))
        .save("listener", "Listeners/member/ListenerArn")
}

pub(crate) fn cases() -> Vec<Case> {
    [balancers(), placement(), groups(), listeners(), targets(), attributes()].into_iter().flatten().collect()
}

fn balancers() -> Vec<Case> {
    vec![
        new("elbv2: a network balancer has its shapes")
            .like("LoadBalancers/member/LoadBalancerArn", "arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/net/lb/*")
            .like("LoadBalancers/member/DNSName", "lb-*.elb.us-west-2.amazonaws.com")
            .is("LoadBalancers/member/Type", "network")
            .is("LoadBalancers/member/Scheme", "internet-facing")
            .is("LoadBalancers/member/VpcId", "{vpc}")
            .is("LoadBalancers/member/IpAddressType", "ipv4")
            .is("LoadBalancers/member/State/Code", "provisioning")
            .each("LoadBalancers/member/SecurityGroups", "", "{sg1}"),
        new("elbv2: a network balancer becomes active")
            .ok("elbv2:DescribeLoadBalancers", "Names.member.1=lb")
            .is("LoadBalancers/member/State/Code", "active")
            .is("LoadBalancers/member/AvailabilityZones/member/ZoneName", "us-west-2a")
            .is("LoadBalancers/member/AvailabilityZones/member/SubnetId", "{subnet_a}"),
        new("elbv2: a repeated creation finds the balancer").ok("elbv2:CreateLoadBalancer", LB).is("LoadBalancers/member/LoadBalancerArn", "{lb}"),
        new("elbv2: a name with other settings is taken")
            .fails("elbv2:CreateLoadBalancer", format!("{LB}&Scheme=internal"), "DuplicateLoadBalancerName"),
        case("elbv2: a name longer than 32")
            .fails("elbv2:CreateLoadBalancer", LB.replace("=lb&", &format!("={}&", "x".repeat(33))), "ValidationError"),
        case("elbv2: a name with a bad character").fails("elbv2:CreateLoadBalancer", LB.replace("=lb&", "=l_b&"), "ValidationError"),
        case("elbv2: no subnet").fails("elbv2:CreateLoadBalancer", "Name=lb&Type=network", "ValidationError"),
        case("elbv2: unknown words for scheme and address type")
            .fails("elbv2:CreateLoadBalancer", format!("{LB}&Scheme=outside"), "InvalidScheme")
            .fails("elbv2:CreateLoadBalancer", format!("{LB}&IpAddressType=ipx"), "ValidationError"),
        case("elbv2: an unknown balancer")
            .fails("elbv2:DescribeLoadBalancers", "Names.member.1=lb", "LoadBalancerNotFound")
            .fails(
                "elbv2:DescribeListeners",
                "LoadBalancerArn=arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/net/lb/0123456789abcdef",
                "LoadBalancerNotFound",
            ),
        new("elbv2: deleting twice succeeds")
            .ok("elbv2:DeleteLoadBalancer", "LoadBalancerArn={lb}")
            .ok("elbv2:DeleteLoadBalancer", "LoadBalancerArn={lb}")
            .fails("elbv2:DescribeLoadBalancers", "LoadBalancerArns.member.1={lb}", "LoadBalancerNotFound"),
        new("elbv2: pages")
            .ok("elbv2:CreateLoadBalancer", LB.replace("=lb&", "=lb2&"))
            .ok("elbv2:DescribeLoadBalancers", "PageSize=1")
            .count("LoadBalancers", 1)
            .save("marker", "NextMarker")
            .ok("elbv2:DescribeLoadBalancers", "PageSize=1&Marker={marker}")
            .count("LoadBalancers", 1)
            .absent("NextMarker"),
        new("elbv2: a tag on balancer, group and listener")
            .ok("elbv2:AddTags", "ResourceArns.member.1={lb}&Tags.member.1.Key=a&Tags.member.1.Value=1")
            .ok("elbv2:CreateTargetGroup", format!("{TG}&Tags.member.1.Key=a&Tags.member.1.Value=2"))
            .save("tg", "TargetGroups/member/TargetGroupArn")
            .ok("elbv2:CreateListener", format!("{}&Tags.member.1.Key=a&Tags.member.1.Value=3", listener(80, "TCP", "{tg}")))
            .save("listener", "Listeners/member/ListenerArn")
            .ok("elbv2:DescribeTags", "ResourceArns.member.1={lb}&ResourceArns.member.2={tg}&ResourceArns.member.3={listener}")
            .each("TagDescriptions", "Tags/member/Value", "1 2 3"),
        new("elbv2: tags of what is unknown").fails("elbv2:AddTags", "ResourceArns.member.1={lb}x&Tags.member.1.Key=a&Tags.member.1.Value=1", "LoadBalancerNotFound"),
    ]
}

fn placement() -> Vec<Case> {
    vec![
        case("elbv2: an unknown subnet").fails("elbv2:CreateLoadBalancer", LB.replace("{subnet_a}", "subnet-0123456789abcdef0"), "SubnetNotFound"),
        case("elbv2: two subnets in a zone")
            .fails("elbv2:CreateLoadBalancer", format!("{LB}&Subnets.member.2={{subnet_a2}}"), "InvalidConfigurationRequest"),
        case("elbv2: an unknown security group")
            .fails("elbv2:CreateLoadBalancer", LB.replace("{sg1}", "sg-0123456789abcdef0"), "InvalidSecurityGroup"),
        case("elbv2: an elastic address is kept")
            .ok("elbv2:CreateLoadBalancer", "Name=lb&Type=network&SubnetMappings.member.1.SubnetId={subnet_a}&SubnetMappings.member.1.AllocationId={eip}")
            .is("LoadBalancers/member/AvailabilityZones/member/LoadBalancerAddresses/member/AllocationId", "{eip}"),
        case("elbv2: an unknown elastic address").fails(
            "elbv2:CreateLoadBalancer",
            "Name=lb&Type=network&SubnetMappings.member.1.SubnetId={subnet_a}&SubnetMappings.member.1.AllocationId=eipalloc-0123456789abcdef0",
            "AllocationIdNotFound",
        ),
        case("elbv2: a private address is kept")
            .ok(
                "elbv2:CreateLoadBalancer",
                "Name=lb&Type=network&Scheme=internal&SubnetMappings.member.1.SubnetId={subnet_a}&SubnetMappings.member.1.PrivateIPv4Address=10.0.1.77",
            )
            .is("LoadBalancers/member/AvailabilityZones/member/LoadBalancerAddresses/member/PrivateIPv4Address", "10.0.1.77"),
        new("elbv2: security groups are replaced")
            .ok("elbv2:SetSecurityGroups", "LoadBalancerArn={lb}&SecurityGroups.member.1={sg2}")
            .each("SecurityGroupIds", "", "{sg2}")
            .ok("elbv2:DescribeLoadBalancers", "LoadBalancerArns.member.1={lb}")
            .each("LoadBalancers/member/SecurityGroups", "", "{sg2}")
            .fails("elbv2:SetSecurityGroups", "LoadBalancerArn={lb}&SecurityGroups.member.1=sg-0123456789abcdef0", "InvalidSecurityGroup"),
        case("elbv2: no security groups for a balancer born without")
            .ok("elbv2:CreateLoadBalancer", "Name=lb&Type=network&Subnets.member.1={subnet_a}")
            .save("lb", "LoadBalancers/member/LoadBalancerArn")
            .fails("elbv2:SetSecurityGroups", "LoadBalancerArn={lb}&SecurityGroups.member.1={sg1}", "InvalidConfigurationRequest"),
        new("elbv2: a balancer uses its security group")
            .ok("elbv2:SetSecurityGroups", "LoadBalancerArn={lb}&SecurityGroups.member.1={sg2}")
            .fails("ec2:DeleteSecurityGroup", "GroupId={sg2}", "DependencyViolation"),
        new("elbv2: a balancer has an interface")
            .ok("ec2:DescribeNetworkInterfaces", "Filter.1.Name=description&Filter.1.Value.1=ELB%20net/lb/%2A")
            .each("networkInterfaceSet", "subnetId", "{subnet_a}"),
    ]
}

fn groups() -> Vec<Case> {
    vec![
        case("elbv2: a target group has defaults")
            .ok("elbv2:CreateTargetGroup", TG)
            .like("TargetGroups/member/TargetGroupArn", "arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/tg/*")
            .is("TargetGroups/member/HealthCheckProtocol", "TCP")
            .is("TargetGroups/member/HealthCheckPort", "traffic-port")
            .is("TargetGroups/member/HealthCheckIntervalSeconds", "30")
            .is("TargetGroups/member/HealthCheckTimeoutSeconds", "10")
            .is("TargetGroups/member/HealthyThresholdCount", "5")
            .is("TargetGroups/member/UnhealthyThresholdCount", "2")
            .is("TargetGroups/member/TargetType", "instance")
            .absent("TargetGroups/member/HealthCheckPath"),
        case("elbv2: an HTTP health check has defaults")
            .ok("elbv2:CreateTargetGroup", format!("{TG}&HealthCheckProtocol=HTTP&HealthCheckIntervalSeconds=10"))
            .is("TargetGroups/member/HealthCheckPath", "/")
            .is("TargetGroups/member/HealthCheckTimeoutSeconds", "6")
            .is("TargetGroups/member/Matcher/HttpCode", "200-399"),
        with_group(case("elbv2: a repeated target group is found"), TG)
            .ok("elbv2:CreateTargetGroup", TG)
            .is("TargetGroups/member/TargetGroupArn", "{tg}"),
        with_group(case("elbv2: a group name with other settings is taken"), TG)
            .fails("elbv2:CreateTargetGroup", TG.replace("30080", "30081"), "DuplicateTargetGroupName"),
        case("elbv2: a target group in an unknown network")
            .fails("elbv2:CreateTargetGroup", TG.replace("{vpc}", "vpc-0123456789abcdef0"), "ValidationError"),
        case("elbv2: a target group without a port").fails("elbv2:CreateTargetGroup", TG.replace("&Port=30080", ""), "ValidationError"),
        case("elbv2: a target group of a protocol that there isn't").fails("elbv2:CreateTargetGroup", TG.replace("=TCP", "=tcp"), "ValidationError"),
        case("elbv2: a group's port outside of its limits").fails("elbv2:CreateTargetGroup", TG.replace("30080", "70000"), "ValidationError"),
        case("elbv2: thresholds outside of their limits").fails("elbv2:CreateTargetGroup", format!("{TG}&HealthyThresholdCount=11"), "ValidationError"),
        with_group(case("elbv2: a target group is modified"), &format!("{TG}&HealthCheckProtocol=HTTP&HealthCheckPath=/a"))
            .ok("elbv2:ModifyTargetGroup", "TargetGroupArn={tg}&HealthCheckPort=10256&HealthyThresholdCount=3&UnhealthyThresholdCount=4")
            .ok("elbv2:DescribeTargetGroups", "TargetGroupArns.member.1={tg}")
            .is("TargetGroups/member/HealthCheckPort", "10256")
            .is("TargetGroups/member/HealthyThresholdCount", "3")
            .is("TargetGroups/member/UnhealthyThresholdCount", "4")
            .is("TargetGroups/member/HealthCheckIntervalSeconds", "30")
            .is("TargetGroups/member/HealthCheckPath", "/a"),
        case("elbv2: an unknown target group")
            .fails("elbv2:DescribeTargetGroups", "Names.member.1=tg", "TargetGroupNotFound")
            .ok(
                "elbv2:DeleteTargetGroup",
                "TargetGroupArn=arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/tg/0123456789abcdef",
            ),
        forwarding("elbv2: a group in use stays")
            .fails("elbv2:DeleteTargetGroup", "TargetGroupArn={tg}", "ResourceInUse")
            .ok("elbv2:DeleteListener", "ListenerArn={listener}")
            .ok("elbv2:DeleteTargetGroup", "TargetGroupArn={tg}"),
        forwarding("elbv2: a group belongs to who forwards to it now")
            .ok("elbv2:DescribeTargetGroups", "LoadBalancerArn={lb}")
            .each("TargetGroups", "TargetGroupArn", "{tg}")
            .each("TargetGroups/member/LoadBalancerArns", "", "{lb}")
            .ok("elbv2:CreateTargetGroup", TG.replace("=tg&", "=tg2&"))
            .save("tg2", "TargetGroups/member/TargetGroupArn")
            .ok("elbv2:ModifyListener", "ListenerArn={listener}&DefaultActions.member.1.Type=forward&DefaultActions.member.1.TargetGroupArn={tg2}")
            .ok("elbv2:DescribeTargetGroups", "LoadBalancerArn={lb}")
            .each("TargetGroups", "TargetGroupArn", "{tg2}")
            .ok("elbv2:DeleteTargetGroup", "TargetGroupArn={tg}"),
    ]
}

fn listeners() -> Vec<Case> {
    vec![
        forwarding("elbv2: a listener is described")
            .ok("elbv2:DescribeListeners", "LoadBalancerArn={lb}")
            .is("Listeners/member/Port", "80")
            .is("Listeners/member/Protocol", "TCP")
            .is("Listeners/member/DefaultActions/member/TargetGroupArn", "{tg}")
            .absent("Listeners/member/SslPolicy")
            .absent("Listeners/member/Certificates"),
        with_group(new("elbv2: a TLS listener has a default policy"), TG)
            .ok(
                "elbv2:CreateListener",
                format!("{}&Certificates.member.1.CertificateArn={{cert}}", listener(443, "TLS", "{tg}")),
            )
            .is("Listeners/member/SslPolicy", "ELBSecurityPolicy-2016-08")
            .is("Listeners/member/Certificates/member/CertificateArn", "{cert}"),
        forwarding("elbv2: a listener gains and loses TLS")
            .ok(
                "elbv2:ModifyListener",
                "ListenerArn={listener}&Port=80&Protocol=TLS&SslPolicy=ELBSecurityPolicy-2016-08\
                 &Certificates.member.1.CertificateArn={cert}",
            )
            .is("Listeners/member/Protocol", "TLS")
            .is("Listeners/member/SslPolicy", "ELBSecurityPolicy-2016-08")
            .ok("elbv2:ModifyListener", "ListenerArn={listener}&Port=80&Protocol=TCP")
            .absent("Listeners/member/SslPolicy")
            .absent("Listeners/member/Certificates"),
        with_group(new("elbv2: an unknown certificate"), TG).fails(
            "elbv2:CreateListener",
            format!(
                "{}&Certificates.member.1.CertificateArn=arn:aws:acm:us-west-2:123456789012:certificate/x",
                listener(443, "TLS", "{tg}")
            ),
            "CertificateNotFound",
        ),
        forwarding("elbv2: one listener for a port").fails(
            "elbv2:CreateListener",
            listener(80, "TLS", "{tg}") + "&Certificates.member.1.CertificateArn={cert}",
            "DuplicateListener",
        ),
        forwarding("elbv2: TCP and UDP share a port")
            .ok("elbv2:CreateTargetGroup", TG.replace("=tg&", "=tg2&").replace("=TCP", "=UDP"))
            .save("tg2", "TargetGroups/member/TargetGroupArn")
            .ok("elbv2:CreateListener", listener(80, "UDP", "{tg2}")),
        forwarding("elbv2: the same listener again")
            .ok("elbv2:CreateListener", listener(80, "TCP", "{tg}"))
            .is("Listeners/member/ListenerArn", "{listener}"),
        with_group(new("elbv2: protocols of listener and group"), TG).fails(
            "elbv2:CreateListener",
            listener(80, "UDP", "{tg}"),
            "IncompatibleProtocols",
        ),
        with_group(new("elbv2: a listener of an application balancer's protocol"), TG).fails(
            "elbv2:CreateListener",
            listener(80, "HTTP", "{tg}"),
            "ValidationError",
        ),
        new("elbv2: a listener needs a group")
            .fails("elbv2:CreateListener", "LoadBalancerArn={lb}&Port=80&Protocol=TCP", "ValidationError")
            .fails(
                "elbv2:CreateListener",
                listener(
                    80,
                    "TCP",
                    "arn:aws:elasticloadbalancing:us-west-2:123456789012:targetgroup/tg/0123456789abcdef",
                ),
                "TargetGroupNotFound",
            ),
        forwarding("elbv2: a group for one balancer")
            .ok("elbv2:CreateLoadBalancer", LB.replace("=lb&", "=lb2&"))
            .save("lb", "LoadBalancers/member/LoadBalancerArn")
            .fails("elbv2:CreateListener", listener(80, "TCP", "{tg}"), "TargetGroupAssociationLimit"),
        forwarding("elbv2: listeners go with their balancer")
            .ok("elbv2:DeleteLoadBalancer", "LoadBalancerArn={lb}")
            .fails("elbv2:DescribeListeners", "ListenerArns.member.1={listener}", "ListenerNotFound")
            .fails("elbv2:DeleteListener", "ListenerArn={listener}", "ListenerNotFound")
            .ok("elbv2:DeleteTargetGroup", "TargetGroupArn={tg}"),
    ]
}

fn targets() -> Vec<Case> {
    let of = |ids: &[&str]| {
        let each = (1..).zip(ids).map(|(n, id)| format!("&Targets.member.{n}.Id={id}&Targets.member.{n}.Port=30080"));
        format!("TargetGroupArn={{tg}}{}", each.collect::<String>())
    };
    const H: &str = "TargetHealthDescriptions";
    vec![
        with_group(case("elbv2: targets are registered and healthy"), TG)
            .ok("elbv2:CreateLoadBalancer", format!("{LB}&Subnets.member.2={{subnet_b}}"))
            .each("LoadBalancers/member/AvailabilityZones", "SubnetId", "{subnet_a} {subnet_b}")
            .save("lb", "LoadBalancers/member/LoadBalancerArn")
            .ok("elbv2:CreateListener", listener(80, "TCP", "{tg}"))
            .ok("elbv2:RegisterTargets", of(&["{i1}", "{i2}"]))
            .ok("elbv2:RegisterTargets", of(&["{i1}"]))
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .each(H, "Target/Id", "{i1} {i2}")
            .each(H, "TargetHealth/State", "healthy healthy")
            .is("TargetHealthDescriptions/member/Target/Port", "30080"),
        forwarding("elbv2: a target in a zone without the balancer")
            .ok("elbv2:RegisterTargets", of(&["{i2}"]))
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .is("TargetHealthDescriptions/member/TargetHealth/State", "unused"),
        with_group(case("elbv2: a target of an unused group"), TG)
            .ok("elbv2:RegisterTargets", of(&["{i1}"]))
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .is("TargetHealthDescriptions/member/TargetHealth/State", "unused")
            .is("TargetHealthDescriptions/member/TargetHealth/Reason", "Target.NotInUse"),
        with_group(case("elbv2: targets are deregistered, strangers too"), TG)
            .ok("elbv2:RegisterTargets", of(&["{i1}", "{i2}"]))
            .ok("elbv2:DeregisterTargets", of(&["{i1}", "i-0123456789abcdef0"]))
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .each(H, "Target/Id", "{i2}"),
        with_group(case("elbv2: an unknown target takes the others with it"), TG)
            .fails("elbv2:RegisterTargets", of(&["{i1}", "i-0123456789abcdef0"]), "InvalidTarget")
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .count(H, 0),
        with_group(case("elbv2: a stopped target"), TG)
            .ok("ec2:StopInstances", "InstanceId.1={i1}")
            .fails("elbv2:RegisterTargets", of(&["{i1}"]), "InvalidTarget"),
        with_group(case("elbv2: an instance on two ports"), TG)
            .ok("elbv2:RegisterTargets", "TargetGroupArn={tg}&Targets.member.1.Id={i1}&Targets.member.1.Port=1&Targets.member.2.Id={i1}&Targets.member.2.Port=2")
            .ok("elbv2:DescribeTargetHealth", "TargetGroupArn={tg}")
            .each(H, "Target/Port", "1 2"),
        with_group(case("elbv2: a target that is not registered"), TG)
            .ok("elbv2:DescribeTargetHealth", of(&["{i1}"]))
            .is("TargetHealthDescriptions/member/TargetHealth/Reason", "Target.NotRegistered"),
    ]
}

fn attributes() -> Vec<Case> {
    let set = |key: &str, value: &str| format!("&Attributes.member.1.Key={key}&Attributes.member.1.Value={value}");
    vec![
        new("elbv2: balancer attributes")
            .ok("elbv2:DescribeLoadBalancerAttributes", "LoadBalancerArn={lb}")
            .each(
                "Attributes",
                "Key",
                "access_logs.s3.bucket access_logs.s3.enabled access_logs.s3.prefix deletion_protection.enabled dns_record.client_routing_policy \
                 ipv6.deny_all_igw_traffic load_balancing.cross_zone.enabled secondary_ips.auto_assigned.per_subnet zonal_shift.config.enabled",
            ),
        new("elbv2: a balancer attribute is set")
            .ok("elbv2:ModifyLoadBalancerAttributes", format!("LoadBalancerArn={{lb}}{}", set("load_balancing.cross_zone.enabled", "true")))
            .ok("elbv2:ModifyLoadBalancerAttributes", format!("LoadBalancerArn={{lb}}{}", set("deletion_protection.enabled", "true")))
            .fails("elbv2:DeleteLoadBalancer", "LoadBalancerArn={lb}", "OperationNotPermitted"),
        new("elbv2: an unknown balancer attribute").fails(
            "elbv2:ModifyLoadBalancerAttributes",
            format!("LoadBalancerArn={{lb}}{}", set("no.such.key", "1")),
            "ValidationError",
        ),
        with_group(case("elbv2: group attributes"), TG)
            .ok("elbv2:DescribeTargetGroupAttributes", "TargetGroupArn={tg}")
            .each(
                "Attributes",
                "Key",
                "deregistration_delay.connection_termination.enabled deregistration_delay.timeout_seconds load_balancing.cross_zone.enabled \
                 preserve_client_ip.enabled proxy_protocol_v2.enabled stickiness.enabled stickiness.type \
                 target_group_health.dns_failover.minimum_healthy_targets.count target_group_health.dns_failover.minimum_healthy_targets.percentage \
                 target_group_health.unhealthy_state_routing.minimum_healthy_targets.count \
                 target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage \
                 target_health_state.unhealthy.connection_termination.enabled target_health_state.unhealthy.draining_interval_seconds",
            ),
        with_group(case("elbv2: a group attribute is set"), TG)
            .ok("elbv2:ModifyTargetGroupAttributes", format!("TargetGroupArn={{tg}}{}", set("preserve_client_ip.enabled", "false")))
            .fails("elbv2:ModifyTargetGroupAttributes", format!("TargetGroupArn={{tg}}{}", set("no.such.key", "1")), "ValidationError"),
        with_group(case("elbv2: UDP keeps client addresses"), &TG.replace("=TCP", "=UDP")).fails(
            "elbv2:ModifyTargetGroupAttributes",
            format!("TargetGroupArn={{tg}}{}", set("preserve_client_ip.enabled", "false")),
            "InvalidConfigurationRequest",
        ),
    ]
}
