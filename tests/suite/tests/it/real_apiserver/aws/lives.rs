//! The life cycle of a Classic Load Balancer and a Network Load Balancer, on the simulated cloud;
//! [`super::long_lane`] runs them on moto.

use std::collections::BTreeMap;

use serde_json::json;

use super::cloud::{Call, Cloud};
use super::*;

/// Only nodes and load balancers.
const ARGS: &[&str] = &["--configure-cloud-routes=false"];

/// The calls of each part, as text.
struct Ledger<'a> {
    world: &'a World,
    mark: usize,
    text: String,
}

impl<'a> Ledger<'a> {
    fn new(world: &'a World, title: &str) -> Self {
        Self { world, mark: world.cloud.mark(), text: format!("{title}\n") }
    }

    /// Ends a part after there are no more calls: the names of its writes, and the number of its reads.
    async fn part(&mut self, name: &str) -> (Vec<String>, usize) {
        self.world.quiet().await;
        let calls = self.world.cloud.since(self.mark);
        self.mark += calls.len();
        let (writes, reads): (Vec<Call>, Vec<Call>) = calls.into_iter().partition(Call::writes);
        self.text.push_str(&format!("  {name}: {} reads, {} writes\n", reads.len(), writes.len()));
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for read in &reads {
            *kinds.entry(&read.action).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} x{count}")).collect();
        self.text.push_str(&format!("    read   {}\n", kinds.join(", ")));
        for write in &writes {
            self.text.push_str(&format!("    write  {} {}\n", write.action, write.status));
        }
        (writes.into_iter().map(|call| call.action).collect(), reads.len())
    }
}

/// The common setup for both simulations: the program, two nodes, a Service.
async fn begin(world: &World, made: Make) -> Process {
    for number in 1..=2 {
        world.node(number).await;
    }
    let manager = world.manager(&world.config("", &[]), ARGS);
    for node in world.rig.list("nodes").await {
        world.rig.initialized(node.name()).await;
    }
    world.rig.create(made).await;
    manager
}

/// The number of instances and the listeners of the Classic Load Balancer with this name.
fn classic(cloud: &Cloud, name: &str) -> (usize, Vec<String>) {
    let form = format!("LoadBalancerNames.member.1={name}");
    let list = "LoadBalancerDescriptions/member";
    let texts =
        |path: &str, inner: &str| cloud.texts("elb:DescribeLoadBalancers", &form, &format!("{list}/{path}"), inner);
    (texts("Instances", "InstanceId").len(), texts("ListenerDescriptions", "Listener/LoadBalancerPort"))
}

pub(super) async fn classic_life(title: &str, world: World) {
    let (rig, cloud) = (&world.rig, &world.cloud);
    let manager = begin(&world, service("web", &[], &[80])).await;
    let mut ledger = Ledger::new(&world, title);
    let host = world.rig.address("web").await;
    assert!(host.contains(".elb.amazonaws.com"), "{host}");
    let name = world.balancer("web").await;
    world.until("both nodes registered", |cloud| classic(cloud, &name) == (2, vec!["80".to_owned()])).await;
    ledger.part("nodes there, create").await;

    rig.patch_service("web", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    world.until("a second look", |cloud| cloud.mark() > ledger.mark).await;
    let (writes, reads) = ledger.part("sync with nothing to do").await;
    assert_eq!(writes, [""; 0]);
    assert!(reads <= 5, "{reads} reads");

    let timeout = format!("{ANNOTATION}connection-idle-timeout");
    let change = json!({
        "metadata": {"annotations": {timeout: "120"}},
        "spec": {"ports": tcp_ports(&[8080, 443]), "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    });
    rig.patch_service("web", change).await;
    let changed = vec!["443".to_owned(), "8080".to_owned()];
    world.until("other ports", |cloud| classic(cloud, &name).1 == changed).await;
    let (writes, _) = ledger.part("other ports, source ranges, idle timeout").await;
    for write in ["CreateLoadBalancerListeners", "ModifyLoadBalancerAttributes", "AuthorizeSecurityGroupIngress"] {
        assert!(writes.iter().any(|made| made == write), "{write} in {writes:?}");
    }
    let attributes = format!("LoadBalancerName={name}");
    let idle = "LoadBalancerAttributes/ConnectionSettings/IdleTimeout";
    assert_eq!(cloud.text("elb:DescribeLoadBalancerAttributes", &attributes, idle), "120");

    let (instance, third) = world.node(3).await;
    world.until("the third node registered", |cloud| classic(cloud, &name).0 == 3).await;
    let (writes, _) = ledger.part("a node more").await;
    assert_eq!(writes, ["RegisterInstancesWithLoadBalancer"]);
    rig.delete("nodes", "", &third).await;
    world.until("the third node deregistered", |cloud| classic(cloud, &name).0 == 2).await;
    let (writes, _) = ledger.part("a node less").await;
    assert_eq!(writes, ["DeregisterInstancesFromLoadBalancer"]);
    cloud.hand("ec2:TerminateInstances", &format!("InstanceId.1={instance}"));

    let manager = restart(&world, manager).await;
    let (writes, _) = ledger.part("restart of the program").await;
    assert_eq!(writes, [""; 0]);

    rig.delete("services", "default", "web").await;
    rig.until(LONG, "the Service is gone", async |rig| rig.service("web").await.is_none().then_some(())).await;
    ledger.part("delete").await;
    let form = format!("LoadBalancerNames.member.1={name}");
    assert_eq!(cloud.try_hand("elb:DescribeLoadBalancers", &form).unwrap_err(), "LoadBalancerNotFound");
    nothing_is_left(&world);
    println!("{}", ledger.text);
    manager.terminate();
}

/// Restarts the program and waits until it has checked everything.
async fn restart(world: &World, mut manager: Process) -> Process {
    manager.terminate();
    manager.ended(LONG).await;
    let mark = world.cloud.mark();
    let manager = world.manager(&world.config("", &[]), ARGS);
    let looked = |cloud: &Cloud| cloud.since(mark).iter().any(|call| call.action == "DescribeLoadBalancers");
    world.until("a look at the balancers", looked).await;
    world.quiet().await;
    manager
}

/// Only the security groups of the setup remain, without rules in that of the nodes.
fn nothing_is_left(world: &World) {
    let of_vpc = format!("Filter.1.Name=vpc-id&Filter.1.Value.1={}", world.vpc);
    let names = world.cloud.texts("ec2:DescribeSecurityGroups", &of_vpc, "securityGroupInfo", "groupName");
    assert_eq!(names, ["default", "nodes"]);
    let group = format!("GroupId.1={}", world.node_group);
    let rules =
        world.cloud.texts("ec2:DescribeSecurityGroups", &group, "securityGroupInfo/item/ipPermissions", "ipProtocol");
    assert_eq!(rules, [""; 0]);
}

/// Front ports of a Network Load Balancer, and the total number of targets in its groups.
fn network(cloud: &Cloud, arn: &str) -> (Vec<String>, usize) {
    let form = format!("LoadBalancerArn={arn}");
    let ports = cloud.texts("elbv2:DescribeListeners", &form, "Listeners", "Port");
    let groups = cloud.texts("elbv2:DescribeTargetGroups", &form, "TargetGroups", "TargetGroupArn");
    let targets = |group: &String| {
        let health = "TargetHealthDescriptions";
        let form = format!("TargetGroupArn={group}");
        let all = cloud.texts("elbv2:DescribeTargetHealth", &form, health, "Target/Id").len();
        let leaving = cloud.texts("elbv2:DescribeTargetHealth", &form, health, "TargetHealth/Reason");
        all - leaving.iter().filter(|reason| *reason == "Target.DeregistrationInProgress").count()
    };
    (ports, groups.iter().map(targets).sum())
}

pub(super) async fn network_life(title: &str, world: World) {
    let (rig, cloud) = (&world.rig, &world.cloud);
    let manager = begin(&world, service("api", &[("type", "nlb")], &[80])).await;
    let mut ledger = Ledger::new(&world, title);
    let host = world.rig.address("api").await;
    assert!(host.contains(".elb.us-west-2.amazonaws.com"), "{host}");
    let name = world.balancer("api").await;
    let arn = "LoadBalancers/member/LoadBalancerArn";
    let arn = cloud.text("elbv2:DescribeLoadBalancers", &format!("Names.member.1={name}"), arn);
    world.until("both nodes registered", |cloud| network(cloud, &arn) == (vec!["80".to_owned()], 2)).await;
    ledger.part("nodes there, create").await;

    rig.patch_service("api", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    world.until("a second look", |cloud| cloud.mark() > ledger.mark).await;
    let (writes, reads) = ledger.part("sync with nothing to do").await;
    assert_eq!(writes, [""; 0]);
    assert!(reads <= 7, "{reads} reads");

    let cross = format!("{ANNOTATION}cross-zone-load-balancing-enabled");
    let change = json!({
        "metadata": {"annotations": {cross: "true"}},
        "spec": {"ports": tcp_ports(&[80, 443]), "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    });
    rig.patch_service("api", change).await;
    let both = vec!["443".to_owned(), "80".to_owned()];
    world.until("another port", |cloud| network(cloud, &arn) == (both.clone(), 4)).await;
    let (writes, _) = ledger.part("a port more, source ranges, cross-zone").await;
    for write in ["CreateTargetGroup", "RegisterTargets", "CreateListener", "ModifyLoadBalancerAttributes"] {
        assert_eq!(writes.iter().filter(|made| *made == write).count(), 1, "{write} in {writes:?}");
    }

    let (instance, third) = world.node(3).await;
    world.until("the third node registered", |cloud| network(cloud, &arn).1 == 6).await;
    let (writes, _) = ledger.part("a node more").await;
    assert_eq!(writes, ["RegisterTargets"; 2], "one for each port");
    rig.delete("nodes", "", &third).await;
    world.until("the third node deregistered", |cloud| network(cloud, &arn).1 == 4).await;
    let (writes, _) = ledger.part("a node less").await;
    assert_eq!(writes, ["DeregisterTargets"; 2]);
    cloud.hand("ec2:TerminateInstances", &format!("InstanceId.1={instance}"));

    let manager = restart(&world, manager).await;
    let (writes, _) = ledger.part("restart of the program").await;
    assert_eq!(writes, [""; 0]);

    rig.delete("services", "default", "api").await;
    rig.until(LONG, "the Service is gone", async |rig| rig.service("api").await.is_none().then_some(())).await;
    ledger.part("delete").await;
    let form = format!("Names.member.1={name}");
    assert_eq!(cloud.try_hand("elbv2:DescribeLoadBalancers", &form).unwrap_err(), "LoadBalancerNotFound");
    let groups = cloud.texts("elbv2:DescribeTargetGroups", "", "TargetGroups", "TargetGroupName");
    assert_eq!(groups, [""; 0]);
    nothing_is_left(&world);
    println!("{}", ledger.text);
    manager.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_balancer_lives_on_the_simulated_cloud() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    classic_life("classic balancer, simulated cloud", world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_balancer_lives_on_the_simulated_cloud() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    network_life("network balancer, simulated cloud", world).await;
}

async fn kept(rig: &Rig, name: &str) -> usize {
    rig.count_events(name, "LoadBalancerHostsKept").await
}

/// The Node objects of both hosts are deleted; their instances run. The other node could be no target.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_node_of_another_cloud_balancers_keep_the_hosts_whose_node_objects_are_gone() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    let (rig, cloud) = (&world.rig, &world.cloud);
    let mut manager = begin(&world, service("web", &[], &[80])).await;
    rig.create(service("api", &[("type", "nlb")], &[80])).await;
    rig.create(node("onprem-1").provider_id("onprem://rack/1")).await;
    for name in ["web", "api"] {
        rig.address(name).await;
    }
    let (web, api) = (world.balancer("web").await, world.balancer("api").await);
    let arn = "LoadBalancers/member/LoadBalancerArn";
    let arn = cloud.text("elbv2:DescribeLoadBalancers", &format!("Names.member.1={api}"), arn);
    let hosts = |cloud: &Cloud| (classic(cloud, &web).0, network(cloud, &arn).1);
    world.until("both nodes registered", |cloud| hosts(cloud) == (2, 2)).await;
    world.quiet().await;
    let mark = cloud.mark();
    for node in rig.list("nodes").await.iter().filter(|node| node.name() != "onprem-1") {
        rig.delete("nodes", "", node.name()).await;
    }
    for name in ["web", "api"] {
        rig.until_event(name, "LoadBalancerHostsKept").await;
    }
    manager.terminate();
    manager.ended(LONG).await;
    let before = [kept(rig, "web").await, kept(rig, "api").await];
    let manager = world.manager(&world.config("", &[]), ARGS);
    for (name, before) in ["web", "api"].into_iter().zip(before) {
        rig.until(LONG, "kept again", async |rig| (kept(rig, name).await > before).then_some(())).await;
    }
    assert_eq!((hosts(cloud), cloud.writes(mark)), ((2, 2), vec![]));
    manager.terminate();
}
