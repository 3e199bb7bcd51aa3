//! Invalid input is reported to users with key, value and cause; other Services still work.

use ccm_cloudsim::core::faults::{Fault, Rule};

use super::cloud::Cloud;
use super::*;

const ARGS: &[&str] = &["--configure-cloud-routes=false", "--concurrent-service-syncs=4"];

impl World {
    /// The message of the Service's failure, which must contain all of these.
    async fn fails(&self, name: &str, words: &[&str]) -> String {
        let find = async |rig: &Rig| {
            rig.events(name).await.into_iter().find(|event| {
                event.starts_with("Warning SyncLoadBalancerFailed") && words.iter().all(|word| event.contains(word))
            })
        };
        self.rig.until(LONG, &format!("{name} fails with {words:?}"), find).await
    }

    /// Another Service without errors gets its load balancer.
    async fn another_goes_on(&self, name: &str, annotations: &[(&str, &str)]) {
        self.rig.create(service(name, annotations, &[80])).await;
        self.rig.address(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_named_and_other_services_continue() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    world.node(1).await;
    let mut manager = world.manager(&world.config("NLBSecurityGroupMode = Managed", &[]), ARGS);
    let subnet = "subnet-0badbadbadbadbad0";
    let certificate = "arn:aws:acm:us-west-2:123456789012:certificate/0bad";
    let group = "sg-0badbadbadbadbad0";
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)]);
    // The last annotation of each is invalid.
    let cases: [Case<'_>; 7] = [
        ("clb-subnet", &[("subnets", subnet)]),
        ("nlb-subnet", &[("type", "nlb"), ("subnets", subnet)]),
        ("clb-cert", &[("ssl-cert", certificate)]),
        ("nlb-cert", &[("type", "nlb"), ("ssl-cert", certificate)]),
        ("clb-group", &[("security-groups", group)]),
        ("nlb-group", &[("type", "nlb"), ("security-groups", group)]),
        ("clb-value", &[("connection-idle-timeout", "soon")]),
    ];
    for (name, annotations) in &cases {
        world.rig.create(service(name, annotations, &[443])).await;
    }
    world.another_goes_on("clb-good", &[]).await;
    world.another_goes_on("nlb-good", &[("type", "nlb"), ("connection-idle-timeout", "60")]).await;
    assert_eq!(world.rig.event_component("nlb-good", "AWSLoadBalancerWarning").await, "aws-cloud-provider");
    for (name, annotations) in &cases {
        let (key, value) = annotations.last().unwrap();
        println!("{name}: {}", world.fails(name, &[&format!("{ANNOTATION}{key}"), value]).await);
    }
    manager.terminate();
    manager.ended(LONG).await;

    // Without a default route, no subnet remains for internet-facing load balancers.
    let way_out = format!("RouteTableId={}&DestinationCidrBlock=0.0.0.0/0", world.table);
    world.cloud.hand("ec2:DeleteRoute", &way_out);
    let manager = world.manager(&world.config("NLBSecurityGroupMode = Managed", &[]), ARGS);
    world.rig.create(service("clb-public", &[], &[80])).await;
    println!("clb-public: {}", world.fails("clb-public", &["subnet", &world.vpc]).await);
    world.another_goes_on("clb-inside", &[("internal", "true")]).await;
    manager.terminate();
}

/// A new load balancer needs both load balancing APIs of AWS, to find a former one of the other kind; an existing one
/// needs only its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_refuses_or_answers_garbage_stops_only_its_users() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    world.node(1).await;
    let mut manager = world.manager(&world.config("", &[]), ARGS);
    world.another_goes_on("clb-stands", &[]).await;
    world.another_goes_on("nlb-stands", &[("type", "nlb")]).await;
    let (aws, balancer) = (world.cloud.aws(), world.balancer("clb-stands").await);
    let of = |service: &str, fault| Rule { service: Some(service.to_owned()), ..Rule::every(fault) };
    let moved = async |port: u16| {
        world.rig.patch_service("clb-stands", json!({"spec": {"ports": tcp_ports(&[port])}})).await;
        let form = format!("LoadBalancerNames.member.1={balancer}");
        let list = "LoadBalancerDescriptions/member/ListenerDescriptions";
        let ports = |cloud: &Cloud| cloud.texts("elb:DescribeLoadBalancers", &form, list, "Listener/LoadBalancerPort");
        world.until("another port", |cloud| ports(cloud) == [port.to_string()]).await;
    };
    aws.fault(of("elbv2", Fault::ExpiredCredentials));
    world.rig.create(service("nlb-expired", &[("type", "nlb")], &[80])).await;
    let said = ["ExpiredToken", "renew them", "elasticloadbalancing:DescribeLoadBalancers"];
    println!("expired: {}", world.fails("nlb-expired", &said).await);
    moved(8081).await;
    aws.faults(|faults| {
        faults.clear();
        faults.add(of("elbv2", Fault::Html { status: 502 }));
    });
    world.rig.create(service("nlb-html", &[("type", "nlb")], &[80])).await;
    println!("html: {}", world.fails("nlb-html", &["no usable answer", "502"]).await);
    moved(8082).await;
    // After the fault, the pending work completes without intervention.
    aws.faults(ccm_cloudsim::core::faults::Faults::clear);
    world.rig.address("nlb-expired").await;
    world.rig.address("nlb-html").await;
    manager.terminate();
    manager.ended(LONG).await;

    // A port without a listener.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let down = format!("http://{nobody}");
    let manager = world.manager(&world.config("", &[("Elastic Load Balancing v2", &down)]), ARGS);
    world.rig.create(service("nlb-down", &[("type", "nlb")], &[80])).await;
    println!("down: {}", world.fails("nlb-down", &["no connection to AWS", "check the endpoint"]).await);
    moved(8083).await;
    assert!(!manager.output().contains("not-a-secret"));
    manager.terminate();
}
