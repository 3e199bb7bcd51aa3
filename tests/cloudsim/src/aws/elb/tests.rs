use crate::aws::model::Element;
use crate::aws::tests::scene::{CERTIFICATE, call, pass, scene};
use crate::aws::{Service, World};

const LISTENER: &str = "Listeners.member.1.Protocol=tcp&Listeners.member.1.LoadBalancerPort=80\
    &Listeners.member.1.InstanceProtocol=tcp&Listeners.member.1.InstancePort=30080";

fn elb(world: &mut World, action: &str, form: &str) -> Result<Element, String> {
    call(world, Service::Elb, action, form)
}

fn with_balancer() -> World {
    let mut world = scene(|_| {});
    let form = format!("LoadBalancerName=lb&{LISTENER}&Subnets.member.1=subnet-a&SecurityGroups.member.1=sg-1");
    elb(&mut world, "CreateLoadBalancer", &form).unwrap();
    world
}

fn described(world: &mut World) -> Element {
    let answer = elb(world, "DescribeLoadBalancers", "LoadBalancerNames.member.1=lb").unwrap();
    answer.at("LoadBalancerDescriptions/member").unwrap().clone()
}

fn text(element: &Element, path: &str) -> String {
    element.at(path).unwrap_or_else(|| panic!("no {path} in {element:?}")).text.clone()
}

#[track_caller]
fn refused(world: &mut World, action: &str, form: &str, code: &str) {
    let before = world.dump();
    let answer = elb(world, action, form);
    assert_eq!(answer.unwrap_err(), code, "{action} {form}");
    let (before, after) = (before.elb, world.dump().elb);
    assert_eq!(before, after, "a refused call changed something");
}

#[test]
fn a_new_balancer_shows_the_name_of_its_group_and_a_defensive_mode() {
    let mut world = with_balancer();
    assert_eq!(text(&described(&mut world), "SourceSecurityGroup/GroupName"), "one");
    let attributes = elb(&mut world, "DescribeLoadBalancerAttributes", "LoadBalancerName=lb").unwrap();
    assert_eq!(text(&attributes, "LoadBalancerAttributes/AdditionalAttributes/member/Value"), "defensive");
}

#[test]
fn creation_is_refused_with_the_code_of_each_reason() {
    let mut world = with_balancer();
    let new = |rest: &str| format!("LoadBalancerName=new&{LISTENER}&{rest}");
    let mut check = |form: &str, code: &str| refused(&mut world, "CreateLoadBalancer", form, code);
    check(&format!("LoadBalancerName=lb&{LISTENER}&Subnets.member.1=subnet-a"), "DuplicateLoadBalancerName");
    check(&format!("LoadBalancerName=-&{LISTENER}&Subnets.member.1=subnet-a"), "ValidationError");
    check("LoadBalancerName=new&Subnets.member.1=subnet-a", "ValidationError");
    check(&new("Subnets.member.1=subnet-x"), "SubnetNotFound");
    check(&new("Subnets.member.1=subnet-a&Subnets.member.2=subnet-a2"), "InvalidConfigurationRequest");
    check(&new("Subnets.member.1=subnet-a&SecurityGroups.member.1=sg-far"), "InvalidSecurityGroup");
    check(&new("Subnets.member.1=subnet-a&Scheme=outside"), "InvalidScheme");
    let doubled = "Tags.member.1.Key=k&Tags.member.1.Value=1&Tags.member.2.Key=k&Tags.member.2.Value=2";
    check(&new(&format!("Subnets.member.1=subnet-a&{doubled}")), "DuplicateTagKeys");
    let secure = "Listeners.member.1.Protocol=SSL&Listeners.member.1.LoadBalancerPort=1&Listeners.member.1.InstancePort=2\
        &Listeners.member.1.InstanceProtocol=TCP";
    let secure = |rest: &str| format!("LoadBalancerName=new&{secure}{rest}&Subnets.member.1=subnet-a");
    check(&secure(""), "ValidationError");
    check(&secure("&Listeners.member.1.SSLCertificateId=arn:x"), "CertificateNotFound");
    world.ec2.gateways.clear();
    refused(&mut world, "CreateLoadBalancer", &new("Subnets.member.1=subnet-a"), "InvalidSubnet");
    elb(&mut world, "CreateLoadBalancer", &new("Subnets.member.1=subnet-a&Scheme=internal")).unwrap();
}

#[test]
fn the_quota_of_balancers_holds() {
    let mut world = scene(|options| options.limits.classic_balancers = 1);
    let form = |name: &str| format!("LoadBalancerName={name}&{LISTENER}&Subnets.member.1=subnet-a");
    elb(&mut world, "CreateLoadBalancer", &form("one")).unwrap();
    refused(&mut world, "CreateLoadBalancer", &form("two"), "TooManyLoadBalancers");
}

#[test]
fn interfaces_outlive_the_balancer_and_keep_its_groups_in_use() {
    let mut world = with_balancer();
    let groups = |world: &World| world.ec2.interfaces.values().map(|i| i.groups.clone()).collect::<Vec<_>>();
    assert_eq!(groups(&world), [["sg-1"]]);
    elb(&mut world, "ApplySecurityGroupsToLoadBalancer", "LoadBalancerName=lb&SecurityGroups.member.1=sg-2").unwrap();
    assert_eq!(groups(&world), [["sg-2"]]);
    elb(&mut world, "DeleteLoadBalancer", "LoadBalancerName=lb").unwrap();
    refused(&mut world, "DescribeLoadBalancers", "LoadBalancerNames.member.1=lb", "LoadBalancerNotFound");
    assert_eq!(groups(&world), [["sg-2"]]);
    pass(&world, 60);
    world.settle();
    assert!(world.ec2.interfaces.is_empty());
    elb(&mut world, "DeleteLoadBalancer", "LoadBalancerName=lb").unwrap();
}

#[test]
fn subnets_come_and_go_but_never_all_and_never_two_in_a_zone() {
    let mut world = with_balancer();
    elb(&mut world, "AttachLoadBalancerToSubnets", "LoadBalancerName=lb&Subnets.member.1=subnet-b").unwrap();
    for (subnet, code) in [("subnet-a2", "InvalidConfigurationRequest"), ("subnet-x", "SubnetNotFound")] {
        let form = format!("LoadBalancerName=lb&Subnets.member.1={subnet}");
        refused(&mut world, "AttachLoadBalancerToSubnets", &form, code);
    }
    let both = "LoadBalancerName=lb&Subnets.member.1=subnet-a&Subnets.member.2=subnet-b";
    refused(&mut world, "DetachLoadBalancerFromSubnets", both, "InvalidConfigurationRequest");
    elb(&mut world, "DetachLoadBalancerFromSubnets", "LoadBalancerName=lb&Subnets.member.1=subnet-a").unwrap();
    assert_eq!(text(&described(&mut world), "Subnets/member"), "subnet-b");
}

#[test]
fn listeners_repeat_without_harm_and_conflict_with_a_code() {
    let mut world = with_balancer();
    let form = |rest: &str| format!("LoadBalancerName=lb&{LISTENER}{rest}");
    elb(&mut world, "CreateLoadBalancerListeners", &form("")).unwrap();
    let other = form("").replace("30080", "30081");
    refused(&mut world, "CreateLoadBalancerListeners", &other, "DuplicateListener");
    let secure = format!(
        "LoadBalancerName=lb&Listeners.member.1.Protocol=HTTPS&Listeners.member.1.LoadBalancerPort=443\
         &Listeners.member.1.InstanceProtocol=http&Listeners.member.1.InstancePort=30443&Listeners.member.1.SSLCertificateId={CERTIFICATE}"
    );
    elb(&mut world, "CreateLoadBalancerListeners", &secure).unwrap();
    let listener = &world.elb.balancers["lb"].listeners[&443];
    assert_eq!(listener.policies, ["ELBSecurityPolicy-2016-08"]);
    refused(
        &mut world,
        "CreateLoadBalancerListeners",
        &secure.replace("=HTTPS", "=QUIC").replace("=443", "=444"),
        "UnsupportedProtocol",
    );
    refused(
        &mut world,
        "CreateLoadBalancerListeners",
        &form("")
            .replace("=tcp&Listeners.member.1.InstancePort", "=http&Listeners.member.1.InstancePort")
            .replace("=80&", "=81&"),
        "ValidationError",
    );
    let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
    let set = |port: u16, arn: &str| format!("LoadBalancerName=lb&LoadBalancerPort={port}&SSLCertificateId={arn}");
    refused(&mut world, "SetLoadBalancerListenerSSLCertificate", &set(443, other), "CertificateNotFound");
    world.elb.add_certificate(other);
    refused(&mut world, "SetLoadBalancerListenerSSLCertificate", &set(9, other), "ListenerNotFound");
    refused(&mut world, "SetLoadBalancerListenerSSLCertificate", &set(80, other), "InvalidConfigurationRequest");
    elb(&mut world, "SetLoadBalancerListenerSSLCertificate", &set(443, other)).unwrap();
    let listener = &world.elb.balancers["lb"].listeners[&443];
    assert_eq!((listener.certificate.as_deref(), listener.policies.len()), (Some(other), 1));
    let ports =
        "LoadBalancerName=lb&LoadBalancerPorts.member.1=443&LoadBalancerPorts.member.2=80&LoadBalancerPorts.member.3=9";
    elb(&mut world, "DeleteLoadBalancerListeners", ports).unwrap();
    assert!(world.elb.balancers["lb"].listeners.is_empty());
}

#[test]
fn the_backends_of_an_instance_port_are_all_secure_or_none_is() {
    let mut world = with_balancer();
    let listener = |port: u16, protocol: &str, backend: &str, instance: u16| {
        format!(
            "LoadBalancerName=lb&Listeners.member.1.Protocol={protocol}&Listeners.member.1.LoadBalancerPort={port}\
             &Listeners.member.1.InstanceProtocol={backend}&Listeners.member.1.InstancePort={instance}\
             &Listeners.member.1.SSLCertificateId={CERTIFICATE}"
        )
    };
    // Port 30080 has a backend without TLS.
    let create = "CreateLoadBalancerListeners";
    refused(&mut world, create, &listener(443, "ssl", "ssl", 30080), "InvalidConfigurationRequest");
    for (port, protocol, backend, instance) in [
        (443, "ssl", "tcp", 30080),
        (444, "https", "http", 30080),
        (445, "ssl", "ssl", 30081),
        (446, "https", "https", 30081),
    ] {
        elb(&mut world, create, &listener(port, protocol, backend, instance)).unwrap();
    }
    refused(&mut world, create, &listener(81, "tcp", "tcp", 30081), "InvalidConfigurationRequest");
    let both = format!(
        "{}&Listeners.member.2.Protocol=tcp&Listeners.member.2.LoadBalancerPort=80&Listeners.member.2.InstanceProtocol=tcp\
         &Listeners.member.2.InstancePort=30443&Subnets.member.1=subnet-a",
        listener(443, "ssl", "ssl", 30443).replace("=lb&", "=new&")
    );
    refused(&mut world, "CreateLoadBalancer", &both, "InvalidConfigurationRequest");
}

#[test]
fn policies_repeat_without_harm_and_are_refused_while_in_use() {
    let mut world = with_balancer();
    let policy = "LoadBalancerName=lb&PolicyName=p&PolicyTypeName=ProxyProtocolPolicyType\
        &PolicyAttributes.member.1.AttributeName=ProxyProtocol&PolicyAttributes.member.1.AttributeValue=true";
    elb(&mut world, "CreateLoadBalancerPolicy", policy).unwrap();
    elb(&mut world, "CreateLoadBalancerPolicy", policy).unwrap();
    refused(&mut world, "CreateLoadBalancerPolicy", &policy.replace("=true", "=false"), "DuplicatePolicyName");
    let unknown = policy.replace("ProxyProtocolPolicyType", "X");
    refused(&mut world, "CreateLoadBalancerPolicy", &unknown, "PolicyTypeNotFound");
    let set = |port: u16, rest: &str| format!("LoadBalancerName=lb&InstancePort={port}&PolicyNames{rest}");
    elb(&mut world, "SetLoadBalancerPoliciesForBackendServer", &set(30080, ".member.1=p")).unwrap();
    for (port, name, code) in [(30080, "q", "PolicyNotFound"), (1, "p", "InvalidConfigurationRequest")] {
        let form = set(port, &format!(".member.1={name}"));
        refused(&mut world, "SetLoadBalancerPoliciesForBackendServer", &form, code);
    }
    assert_eq!(text(&described(&mut world), "BackendServerDescriptions/member/PolicyNames/member"), "p");
    elb(&mut world, "SetLoadBalancerPoliciesForBackendServer", &set(30080, "=")).unwrap();
    elb(&mut world, "SetLoadBalancerPoliciesForBackendServer", &set(1, "=")).unwrap();
}

#[test]
fn health_checks_are_normalised_and_checked() {
    let mut world = with_balancer();
    let form = |target: &str, timeout: u8| {
        format!(
            "LoadBalancerName=lb&HealthCheck.Target={target}&HealthCheck.Interval=10&HealthCheck.Timeout={timeout}\
             &HealthCheck.UnhealthyThreshold=6&HealthCheck.HealthyThreshold=2"
        )
    };
    let answer = elb(&mut world, "ConfigureHealthCheck", &form("http:30080/healthz", 5)).unwrap();
    assert_eq!(text(&answer, "HealthCheck/Target"), "HTTP:30080/healthz");
    for bad in ["HTTP:30080", "TCP:30080/x", "ICMP:1", "TCP:0", "TCP"] {
        refused(&mut world, "ConfigureHealthCheck", &form(bad, 5), "ValidationError");
    }
    refused(&mut world, "ConfigureHealthCheck", &form("TCP:1", 10), "ValidationError");
}

#[test]
fn instances_must_exist_in_the_network_and_leave_when_they_end() {
    let mut world = with_balancer();
    let form = |id: &str| format!("LoadBalancerName=lb&Instances.member.1.InstanceId={id}");
    for id in ["i-a", "i-a", "i-b", "i-stopped"] {
        elb(&mut world, "RegisterInstancesWithLoadBalancer", &form(id)).unwrap();
    }
    refused(&mut world, "RegisterInstancesWithLoadBalancer", &form("i-far"), "InvalidInstance");
    refused(&mut world, "RegisterInstancesWithLoadBalancer", &form("i-none"), "InvalidInstance");
    refused(&mut world, "DeregisterInstancesFromLoadBalancer", &form("i-none"), "InvalidInstance");
    elb(&mut world, "DeregisterInstancesFromLoadBalancer", &form("i-a")).unwrap();
    world.ec2.instances.remove("i-b");
    let left = described(&mut world);
    let left: Vec<String> = left.child("Instances").unwrap().children.iter().map(|m| text(m, "InstanceId")).collect();
    assert_eq!(left, ["i-stopped"]);
}

#[test]
fn attributes_that_are_not_given_stay() {
    let mut world = with_balancer();
    let set = |rest: &str| format!("LoadBalancerName=lb&LoadBalancerAttributes.{rest}");
    elb(&mut world, "ModifyLoadBalancerAttributes", &set("ConnectionSettings.IdleTimeout=120")).unwrap();
    let answer = elb(&mut world, "ModifyLoadBalancerAttributes", &set("CrossZoneLoadBalancing.Enabled=true")).unwrap();
    assert_eq!(answer.at("LoadBalancerAttributes").unwrap().children.len(), 1, "only what was given is answered");
    assert_eq!(world.elb.balancers["lb"].attributes.idle_timeout, 120);
    refused(&mut world, "ModifyLoadBalancerAttributes", &set("AccessLog.Enabled=true"), "InvalidConfigurationRequest");
    let log = "AccessLog.Enabled=true&LoadBalancerAttributes.AccessLog.S3BucketName=b&LoadBalancerAttributes.AccessLog.EmitInterval=7";
    refused(&mut world, "ModifyLoadBalancerAttributes", &set(log), "ValidationError");
    refused(&mut world, "ModifyLoadBalancerAttributes", &set("ConnectionSettings.IdleTimeout=0"), "ValidationError");
}

#[test]
fn pages_follow_each_other_and_lag_hides_what_is_new() {
    let mut world = scene(|options| options.lag = serde_json::from_str(r#"{"load-balancer": 5000}"#).unwrap());
    for name in ["a", "b", "c"] {
        elb(&mut world, "CreateLoadBalancer", &format!("LoadBalancerName={name}&{LISTENER}&Subnets.member.1=subnet-a"))
            .unwrap();
    }
    refused(&mut world, "DescribeLoadBalancers", "LoadBalancerNames.member.1=a", "LoadBalancerNotFound");
    pass(&world, 5);
    let first = elb(&mut world, "DescribeLoadBalancers", "PageSize=2").unwrap();
    assert_eq!(first.child("LoadBalancerDescriptions").unwrap().children.len(), 2);
    let marker = text(&first, "NextMarker");
    let second = elb(&mut world, "DescribeLoadBalancers", &format!("PageSize=2&Marker={marker}")).unwrap();
    assert_eq!(text(&second, "LoadBalancerDescriptions/member/LoadBalancerName"), "c");
    assert!(second.child("NextMarker").is_none());
    refused(&mut world, "DescribeLoadBalancers", "PageSize=0", "ValidationError");
    refused(&mut world, "DescribeLoadBalancers", "Marker=x", "ValidationError");
}
