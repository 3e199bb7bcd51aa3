use crate::case::{Case, case};

const LB: &str = "LoadBalancerName=lb&Subnets.member.1={subnet_a}&SecurityGroups.member.1={sg1}\
    &Listeners.member.1.Protocol=tcp&Listeners.member.1.LoadBalancerPort=80\
    &Listeners.member.1.InstanceProtocol=tcp&Listeners.member.1.InstancePort=30080";
const NAME: &str = "LoadBalancerName=lb";

fn listener(port: u16, protocol: &str, instance_port: u16, instance_protocol: &str) -> String {
    format!(
        "{NAME}&Listeners.member.1.Protocol={protocol}&Listeners.member.1.LoadBalancerPort={port}\
         &Listeners.member.1.InstanceProtocol={instance_protocol}&Listeners.member.1.InstancePort={instance_port}"
    )
}

fn health_check(target: &str, interval: u16, timeout: u16) -> String {
    format!(
        "{NAME}&HealthCheck.Target={target}&HealthCheck.Interval={interval}&HealthCheck.Timeout={timeout}\
         &HealthCheck.UnhealthyThreshold=6&HealthCheck.HealthyThreshold=2"
    )
}

fn new(name: &'static str) -> Case {
    case(name).ok("elb:CreateLoadBalancer", LB)
}

fn described(case: Case) -> Case {
    case.ok("elb:DescribeLoadBalancers", "LoadBalancerNames.member.1=lb")
}

pub(crate) fn cases() -> Vec<Case> {
    [balancers(), listeners(), policies(), instances(), attributes()].into_iter().flatten().collect()
}

fn balancers() -> Vec<Case> {
    vec![
        described(new("elb: a new balancer is described"))
            .is("LoadBalancerDescriptions/member/LoadBalancerName", "lb")
            .like("LoadBalancerDescriptions/member/DNSName", "lb-*.us-west-2.elb.amazonaws.com")
            .is("LoadBalancerDescriptions/member/VPCId", "{vpc}")
            .is("LoadBalancerDescriptions/member/Scheme", "internet-facing")
            .each("LoadBalancerDescriptions/member/Subnets", "", "{subnet_a}")
            .each("LoadBalancerDescriptions/member/SecurityGroups", "", "{sg1}")
            .is("LoadBalancerDescriptions/member/ListenerDescriptions/member/Listener/Protocol", "TCP")
            .is("LoadBalancerDescriptions/member/ListenerDescriptions/member/Listener/InstancePort", "30080"),
        described(new("elb: a new balancer has zones and a hosted zone"))
            .each("LoadBalancerDescriptions/member/AvailabilityZones", "", "us-west-2a")
            .like("LoadBalancerDescriptions/member/CanonicalHostedZoneNameID", "Z*"),
        described(new("elb: a new balancer has a health check"))
            .is("LoadBalancerDescriptions/member/HealthCheck/Target", "TCP:30080")
            .is("LoadBalancerDescriptions/member/HealthCheck/Interval", "30"),
        described(
            case("elb: an internal balancer has another host name")
                .ok("elb:CreateLoadBalancer", format!("{LB}&Scheme=internal")),
        )
        .is("LoadBalancerDescriptions/member/Scheme", "internal")
        .like("LoadBalancerDescriptions/member/DNSName", "internal-lb-*"),
        new("elb: a name is taken once").fails(
            "elb:CreateLoadBalancer",
            format!("{LB}&Scheme=internal"),
            "DuplicateLoadBalancerName",
        ),
        case("elb: a name longer than 32").fails(
            "elb:CreateLoadBalancer",
            LB.replace("=lb&", &format!("={}&", "x".repeat(33))),
            "ValidationError",
        ),
        case("elb: an unknown subnet").fails(
            "elb:CreateLoadBalancer",
            LB.replace("{subnet_a}", "subnet-0123456789abcdef0"),
            "SubnetNotFound",
        ),
        case("elb: an unknown security group").fails(
            "elb:CreateLoadBalancer",
            LB.replace("{sg1}", "sg-0123456789abcdef0"),
            "InvalidSecurityGroup",
        ),
        case("elb: an unknown balancer")
            .fails("elb:DescribeLoadBalancers", "LoadBalancerNames.member.1=lb", "LoadBalancerNotFound")
            .fails("elb:DescribeLoadBalancerAttributes", NAME, "LoadBalancerNotFound")
            .fails("elb:ConfigureHealthCheck", health_check("TCP:1", 10, 5), "LoadBalancerNotFound")
            .fails("elb:CreateLoadBalancerListeners", listener(81, "tcp", 2, "tcp"), "LoadBalancerNotFound")
            .fails(
                "elb:RegisterInstancesWithLoadBalancer",
                format!("{NAME}&Instances.member.1.InstanceId={{i1}}"),
                "LoadBalancerNotFound",
            ),
        described_gone(
            new("elb: deleting twice succeeds").ok("elb:DeleteLoadBalancer", NAME).ok("elb:DeleteLoadBalancer", NAME),
        ),
        described(
            new("elb: subnets are attached and detached")
                .ok("elb:AttachLoadBalancerToSubnets", format!("{NAME}&Subnets.member.1={{subnet_b}}"))
                .each("Subnets", "", "{subnet_a} {subnet_b}")
                .ok("elb:DetachLoadBalancerFromSubnets", format!("{NAME}&Subnets.member.1={{subnet_a}}"))
                .each("Subnets", "", "{subnet_b}"),
        )
        .each("LoadBalancerDescriptions/member/Subnets", "", "{subnet_b}"),
        new("elb: a second subnet in a zone").fails(
            "elb:AttachLoadBalancerToSubnets",
            format!("{NAME}&Subnets.member.1={{subnet_a2}}"),
            "InvalidConfigurationRequest",
        ),
        new("elb: the last subnet stays").fails(
            "elb:DetachLoadBalancerFromSubnets",
            format!("{NAME}&Subnets.member.1={{subnet_a}}"),
            "InvalidConfigurationRequest",
        ),
        described(
            new("elb: security groups are replaced")
                .ok("elb:ApplySecurityGroupsToLoadBalancer", format!("{NAME}&SecurityGroups.member.1={{sg2}}"))
                .each("SecurityGroups", "", "{sg2}"),
        )
        .each("LoadBalancerDescriptions/member/SecurityGroups", "", "{sg2}")
        .fails(
            "elb:ApplySecurityGroupsToLoadBalancer",
            format!("{NAME}&SecurityGroups.member.1=sg-0123456789abcdef0"),
            "InvalidSecurityGroup",
        ),
        new("elb: a balancer uses its security group")
            .ok("elb:ApplySecurityGroupsToLoadBalancer", format!("{NAME}&SecurityGroups.member.1={{sg2}}"))
            .fails("ec2:DeleteSecurityGroup", "GroupId={sg2}", "DependencyViolation"),
        new("elb: a balancer has an interface")
            .ok("ec2:DescribeNetworkInterfaces", "Filter.1.Name=description&Filter.1.Value.1=ELB%20lb")
            .each("networkInterfaceSet", "subnetId", "{subnet_a}"),
        new("elb: pages")
            .ok("elb:CreateLoadBalancer", LB.replace("=lb&", "=lb2&"))
            .ok("elb:DescribeLoadBalancers", "PageSize=1")
            .count("LoadBalancerDescriptions", 1)
            .save("marker", "NextMarker")
            .ok("elb:DescribeLoadBalancers", "PageSize=1&Marker={marker}")
            .is("LoadBalancerDescriptions/member/LoadBalancerName", "lb2")
            .absent("NextMarker"),
    ]
}

fn described_gone(case: Case) -> Case {
    case.fails("elb:DescribeLoadBalancers", "LoadBalancerNames.member.1=lb", "LoadBalancerNotFound")
}

fn listeners() -> Vec<Case> {
    vec![
        described(
            new("elb: listeners come and go")
                .ok("elb:CreateLoadBalancerListeners", listener(81, "http", 30081, "http"))
                .ok("elb:CreateLoadBalancerListeners", listener(82, "tcp", 30082, "tcp"))
                .ok(
                    "elb:DeleteLoadBalancerListeners",
                    format!("{NAME}&LoadBalancerPorts.member.1=80&LoadBalancerPorts.member.2=82"),
                ),
        )
        .each("LoadBalancerDescriptions/member/ListenerDescriptions", "Listener/LoadBalancerPort", "81"),
        new("elb: the same listener again").ok("elb:CreateLoadBalancerListeners", listener(80, "tcp", 30080, "tcp")),
        new("elb: another listener on the port").fails(
            "elb:CreateLoadBalancerListeners",
            listener(80, "tcp", 30081, "tcp"),
            "DuplicateListener",
        ),
        described(
            new("elb: a secure listener keeps both protocols")
                .ok(
                    "elb:CreateLoadBalancerListeners",
                    format!("{}&Listeners.member.1.SSLCertificateId={{cert}}", listener(443, "ssl", 30443, "tcp")),
                )
                .ok("elb:DeleteLoadBalancerListeners", format!("{NAME}&LoadBalancerPorts.member.1=80")),
        )
        .is("LoadBalancerDescriptions/member/ListenerDescriptions/member/Listener/Protocol", "SSL")
        .is("LoadBalancerDescriptions/member/ListenerDescriptions/member/Listener/InstanceProtocol", "TCP")
        .is("LoadBalancerDescriptions/member/ListenerDescriptions/member/Listener/SSLCertificateId", "{cert}"),
        new("elb: an unknown certificate").fails(
            "elb:CreateLoadBalancerListeners",
            format!(
                "{}&Listeners.member.1.SSLCertificateId=arn:aws:acm:us-west-2:123456789012:certificate/x",
                listener(443, "ssl", 1, "tcp")
            ),
            "CertificateNotFound",
        ),
    ]
}

fn policies() -> Vec<Case> {
    let proxy = format!(
        "{NAME}&PolicyName=p&PolicyTypeName=ProxyProtocolPolicyType\
         &PolicyAttributes.member.1.AttributeName=ProxyProtocol&PolicyAttributes.member.1.AttributeValue=true"
    );
    let security = format!(
        "{NAME}&PolicyName=s&PolicyTypeName=SSLNegotiationPolicyType&PolicyAttributes.member.1.AttributeName=Reference-Security-Policy\
         &PolicyAttributes.member.1.AttributeValue=ELBSecurityPolicy-TLS-1-2-2017-01"
    );
    vec![
        described(
            new("elb: a policy of a backend")
                .ok("elb:CreateLoadBalancerPolicy", proxy.as_str())
                .ok("elb:CreateLoadBalancerPolicy", proxy.as_str())
                .ok(
                    "elb:SetLoadBalancerPoliciesForBackendServer",
                    format!("{NAME}&InstancePort=30080&PolicyNames.member.1=p"),
                ),
        )
        .is("LoadBalancerDescriptions/member/BackendServerDescriptions/member/InstancePort", "30080")
        .is("LoadBalancerDescriptions/member/BackendServerDescriptions/member/PolicyNames/member", "p"),
        described(
            new("elb: a backend loses its policies")
                .ok("elb:CreateLoadBalancerPolicy", proxy.as_str())
                .ok(
                    "elb:SetLoadBalancerPoliciesForBackendServer",
                    format!("{NAME}&InstancePort=30080&PolicyNames.member.1=p"),
                )
                .ok("elb:SetLoadBalancerPoliciesForBackendServer", format!("{NAME}&InstancePort=30080&PolicyNames=")),
        )
        .absent("LoadBalancerDescriptions/member/BackendServerDescriptions"),
        described(
            new("elb: a backend of a later listener")
                .ok("elb:CreateLoadBalancerPolicy", proxy.as_str())
                .ok("elb:CreateLoadBalancerListeners", listener(81, "tcp", 30081, "tcp"))
                .ok(
                    "elb:SetLoadBalancerPoliciesForBackendServer",
                    format!("{NAME}&InstancePort=30081&PolicyNames.member.1=p"),
                ),
        )
        .is("LoadBalancerDescriptions/member/BackendServerDescriptions/member/InstancePort", "30081"),
        new("elb: an unknown policy")
            .fails("elb:DescribeLoadBalancerPolicies", format!("{NAME}&PolicyNames.member.1=p"), "PolicyNotFound")
            .fails(
                "elb:SetLoadBalancerPoliciesForBackendServer",
                format!("{NAME}&InstancePort=30080&PolicyNames.member.1=p"),
                "PolicyNotFound",
            ),
        new("elb: a security policy of a listener")
            .ok(
                "elb:CreateLoadBalancerListeners",
                format!("{}&Listeners.member.1.SSLCertificateId={{cert}}", listener(443, "ssl", 30443, "tcp")),
            )
            .ok("elb:CreateLoadBalancerPolicy", security)
            .ok("elb:SetLoadBalancerPoliciesOfListener", format!("{NAME}&LoadBalancerPort=443&PolicyNames.member.1=s"))
            .ok("elb:DescribeLoadBalancerPolicies", format!("{NAME}&PolicyNames.member.1=s"))
            .is("PolicyDescriptions/member/PolicyTypeName", "SSLNegotiationPolicyType"),
        new("elb: a policy name is taken once").ok("elb:CreateLoadBalancerPolicy", proxy.as_str()).fails(
            "elb:CreateLoadBalancerPolicy",
            proxy.replace("=true", "=false"),
            "DuplicatePolicyName",
        ),
    ]
}

fn instances() -> Vec<Case> {
    let id = |id: &str| format!("{NAME}&Instances.member.1.InstanceId={id}");
    vec![
        described(
            new("elb: an instance is registered once")
                .ok("elb:RegisterInstancesWithLoadBalancer", id("{i1}"))
                .ok("elb:RegisterInstancesWithLoadBalancer", id("{i1}"))
                .ok("elb:RegisterInstancesWithLoadBalancer", id("{i2}"))
                .ok("elb:DeregisterInstancesFromLoadBalancer", id("{i2}")),
        )
        .each("LoadBalancerDescriptions/member/Instances", "InstanceId", "{i1}"),
        new("elb: registering answers with all instances")
            .ok("elb:RegisterInstancesWithLoadBalancer", id("{i1}"))
            .ok("elb:RegisterInstancesWithLoadBalancer", id("{i2}"))
            .each("Instances", "InstanceId", "{i1} {i2}"),
        new("elb: an unknown instance").fails(
            "elb:RegisterInstancesWithLoadBalancer",
            id("i-0123456789abcdef0"),
            "InvalidInstance",
        ),
        described(
            new("elb: a health check in lower case")
                .ok("elb:ConfigureHealthCheck", health_check("http:30080/healthz", 10, 5)),
        )
        .is("LoadBalancerDescriptions/member/HealthCheck/Target", "HTTP:30080/healthz")
        .is("LoadBalancerDescriptions/member/HealthCheck/UnhealthyThreshold", "6"),
        new("elb: a health check whose timeout is not below its interval").fails(
            "elb:ConfigureHealthCheck",
            health_check("TCP:30080", 10, 10),
            "ValidationError",
        ),
        new("elb: a health check outside of its limits").fails(
            "elb:ConfigureHealthCheck",
            health_check("TCP:30080", 4, 2),
            "ValidationError",
        ),
        new("elb: a health check of an unknown protocol").fails(
            "elb:ConfigureHealthCheck",
            health_check("ICMP:1", 10, 5),
            "ValidationError",
        ),
    ]
}

fn attributes() -> Vec<Case> {
    const A: &str = "LoadBalancerName=lb&LoadBalancerAttributes";
    vec![
        new("elb: attributes of a new balancer")
            .ok("elb:DescribeLoadBalancerAttributes", NAME)
            .is("LoadBalancerAttributes/CrossZoneLoadBalancing/Enabled", "false")
            .is("LoadBalancerAttributes/AccessLog/Enabled", "false")
            .is("LoadBalancerAttributes/ConnectionDraining/Enabled", "false")
            .is("LoadBalancerAttributes/ConnectionDraining/Timeout", "300")
            .is("LoadBalancerAttributes/ConnectionSettings/IdleTimeout", "60")
            .is("LoadBalancerAttributes/AdditionalAttributes/member/Key", "elb.http.desyncmitigationmode"),
        new("elb: attributes that are not given stay")
            .ok("elb:ModifyLoadBalancerAttributes", format!("{A}.ConnectionSettings.IdleTimeout=120"))
            .ok("elb:ModifyLoadBalancerAttributes", format!("{A}.CrossZoneLoadBalancing.Enabled=true"))
            .ok("elb:ModifyLoadBalancerAttributes", format!("{A}.ConnectionDraining.Enabled=true&LoadBalancerAttributes.ConnectionDraining.Timeout=20"))
            .ok("elb:DescribeLoadBalancerAttributes", NAME)
            .is("LoadBalancerAttributes/CrossZoneLoadBalancing/Enabled", "true")
            .is("LoadBalancerAttributes/ConnectionDraining/Timeout", "20")
            .is("LoadBalancerAttributes/ConnectionSettings/IdleTimeout", "120")
            .count("LoadBalancerAttributes/AdditionalAttributes", 1),
        new("elb: tags are added and replaced")
            .ok("elb:AddTags", "LoadBalancerNames.member.1=lb&Tags.member.1.Key=a&Tags.member.1.Value=1")
            .ok("elb:AddTags", "LoadBalancerNames.member.1=lb&Tags.member.1.Key=a&Tags.member.1.Value=3")
            .ok("elb:DescribeTags", "LoadBalancerNames.member.1=lb")
            .each("TagDescriptions/member/Tags", "Key", "a")
            .each("TagDescriptions/member/Tags", "Value", "3"),
        case("elb: tags on creation")
            .ok("elb:CreateLoadBalancer", format!("{LB}&Tags.member.1.Key=kubernetes.io/cluster/c1&Tags.member.1.Value=owned"))
            .ok("elb:DescribeTags", "LoadBalancerNames.member.1=lb")
            .is("TagDescriptions/member/Tags/member/Key", "kubernetes.io/cluster/c1"),
        new("elb: a tag given twice").fails(
            "elb:AddTags",
            "LoadBalancerNames.member.1=lb&Tags.member.1.Key=a&Tags.member.1.Value=1&Tags.member.2.Key=a&Tags.member.2.Value=2",
            "DuplicateTagKeys",
        ),
    ]
}
