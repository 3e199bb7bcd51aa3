//! Nodes, routes, tags and pod ranges.

use std::collections::BTreeMap;

use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, NetworkSeed};
use ccm_cloudsim::aws::imds::ImdsOptions;
use ccm_test_suite::Object;

use super::cloud::Cloud;
use super::*;

const ARGS: &[&str] = &[
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.88.0.0/16",
    "--route-reconciliation-period=1s",
    "--controllers=*,tagging",
    "--tags=team=web",
    "--resources=instance",
];

/// Pod ranges with a route to an instance.
fn routes(world: &World) -> Vec<String> {
    let form = format!("RouteTableId.1={}", world.table);
    let list = "routeTableSet/item/routeSet";
    let mut all = world.cloud.texts("ec2:DescribeRouteTables", &form, list, "destinationCidrBlock");
    all.retain(|destination| destination.starts_with("10.88."));
    all
}

fn teams(cloud: &Cloud) -> usize {
    let form = "Filter.1.Name=tag:team&Filter.1.Value.1=web";
    cloud.texts("ec2:DescribeInstances", form, "reservationSet", "instancesSet/item/instanceId").len()
}

/// Checks an initialized node, as users and other controllers see it.
fn check(node: &Object, id: &str, zone: &str) {
    assert_eq!(node.provider_id(), format!("aws:///{zone}/{id}"));
    assert_eq!(node.label("topology.kubernetes.io/region"), REGION);
    assert_eq!(node.label("topology.kubernetes.io/zone"), zone);
    assert_eq!(node.label("node.kubernetes.io/instance-type"), "m5.large");
    assert!(node.label("topology.k8s.aws/zone-id").starts_with("usw2-az"), "{}", node.0);
    let addresses = node.addresses();
    let internal = addresses[0].strip_prefix("InternalIP=10.0.").unwrap_or_else(|| panic!("{addresses:?}"));
    let dns = format!("ip-10-0-{}.us-west-2.compute.internal", internal.replace('.', "-"));
    assert!(addresses.contains(&format!("InternalDNS={dns}")), "{addresses:?}");
    assert!(addresses.contains(&format!("Hostname={dns}")), "{addresses:?}");
    assert_eq!(node.taints(), [""; 0]);
}

pub(super) async fn nodes_get_everything(world: World) {
    let (rig, cloud) = (&world.rig, &world.cloud);
    let (first, second) = (world.node(0).await, world.node(1).await);
    let mut manager = world.manager(&world.config("", &[]), ARGS);
    for ((id, name), zone) in [(&first, "us-west-2a"), (&second, "us-west-2b")] {
        // As in the Go program, the addresses are written right after the removal of the taint.
        let complete = |node: &Object| !node.is_uninitialized() && !node.addresses().is_empty();
        let what = format!("{name} is initialized");
        check(&rig.until(LONG, &what, async |rig| rig.node(name).await.filter(complete)).await, id, zone);
    }
    world.until("both routes", |_| routes(&world) == ["10.88.0.0/24", "10.88.1.0/24"]).await;
    for (_, name) in [&first, &second] {
        let what = format!("{name} is marked");
        let complete = |node: &Object| {
            let network = node.condition("NetworkUnavailable");
            network.is_some_and(|condition| condition["status"] == "False")
                && !node.label("k8s.io/cloud-provider-aws").is_empty()
        };
        rig.until(LONG, &what, async |rig| rig.node(name).await.filter(complete)).await;
        assert_eq!(rig.count_events(name, "Synced").await, 1);
        assert_eq!(rig.count_events(name, "FailedToCreateRoute").await, 0);
    }
    assert_eq!(teams(cloud), 2);

    manager.terminate();
    manager.ended(LONG).await;
    let mark = cloud.mark();
    let manager = world.manager(&world.config("", &[]), ARGS);
    let looked =
        |cloud: &Cloud| cloud.since(mark).iter().filter(|call| call.action == "DescribeRouteTables").count() > 1;
    world.until("two looks at the routes", looked).await;
    assert_eq!(cloud.writes(mark), [""; 0]);

    rig.delete("nodes", "", &second.1).await;
    world.until("route and tag are gone", |cloud| routes(&world) == ["10.88.0.0/24"] && teams(cloud) == 1).await;
    let mut writes = cloud.writes(mark);
    writes.sort_unstable();
    assert_eq!(writes, ["DeleteRoute", "DeleteTags"]);

    cloud.hand("ec2:TerminateInstances", &format!("InstanceId.1={}", first.0));
    let grace = "node younger than five minutes";
    // The cloud may list the instance of a new node late: the node stays.
    world.until(grace, |cloud| cloud.mark() > mark + 4).await;
    assert!(rig.node(&first.1).await.is_some(), "{grace}");
    manager.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_addresses_routes_and_tags_from_the_simulated_cloud() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    nodes_get_everything(world).await;
}

/// On an instance of the cluster the program needs no file: the instance provides region, network, cluster and
/// credentials, and the variables of the SDK the endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn on_an_instance_without_any_file_nodes_get_ranges_from_their_ipv6_prefixes() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    let (rig, aws) = (&world.rig, world.cloud.aws());
    let tags = BTreeMap::from([("kubernetes.io/cluster/c6".to_owned(), "owned".to_owned())]);
    let cluster = Some("c6".to_owned());
    let network = NetworkSeed { ipv6: true, zones: vec!['a', 'b'], cluster, ..NetworkSeed::default() };
    let network = aws.world(|world| seed::network(world, &network)).unwrap();
    let instances =
        InstanceSeed { count: 2, subnets: network.private, groups: vec![network.node_group], ..Default::default() };
    let instances = InstanceSeed { ipv6: 1, ipv6_prefix: true, tags, ..instances };
    let ids = aws.world(|world| seed::instances(world, &instances)).unwrap();
    let name = |id: &String| {
        let path = "reservationSet/item/instancesSet/item/privateDnsName";
        world.cloud.text("ec2:DescribeInstances", &format!("InstanceId.1={id}"), path)
    };
    let names: Vec<String> = ids.iter().map(name).collect();
    for name in &names {
        rig.create(node(name).uninitialized()).await;
    }
    let metadata = aws.imds(&ids[0], ImdsOptions::default()).unwrap();
    let environment = [("AWS_ENDPOINT_URL", world.cloud.url()), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url())];
    let args = ["--configure-cloud-routes=false", "--controllers=*,aws-ipv6-prefix-ipam"];
    let manager = world.start_program(&args, &environment);
    for (id, name) in ids.iter().zip(&names) {
        let node = world.rig.initialized(name).await;
        assert!(node.provider_id().ends_with(id), "{}", node.0);
        let what = format!("{name} has a range");
        let range = rig
            .until(LONG, &what, async |rig| rig.node(name).await?["spec"]["podCIDR"].as_str().map(str::to_owned))
            .await;
        let interface = "reservationSet/item/instancesSet/item/networkInterfaceSet/item";
        let prefix = world.cloud.text(
            "ec2:DescribeInstances",
            &format!("InstanceId.1={id}"),
            &format!("{interface}/ipv6PrefixSet/item/ipv6Prefix"),
        );
        assert_eq!(range, prefix);
    }
    assert_eq!(world.cloud.writes(0), [""; 0]);
    assert!(!manager.output().contains("not-a-secret"));
    manager.terminate();
}
