//! Pod ranges from the instances.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_the_alias_ranges_of_their_instances() {
    let Some(world) = World::start().await else { return };
    for number in [1, 2] {
        world.instance(number);
        world.rig.create(node(&format!("node-{number}")).uninitialized()).await;
    }
    let args =
        [ARGS, &["--allocate-node-cidrs=true", "--cidr-allocator-type=CloudAllocator", "--cluster-cidr=10.88.0.0/16"]];
    let manager = world.manager("", &args.concat());
    for number in [1, 2] {
        let name = format!("node-{number}");
        let ranged = |node: &Object| node["spec"]["podCIDR"].is_string();
        let node = world.rig.until(LONG, "a pod range", async |rig| rig.node(&name).await.filter(ranged)).await;
        let path = format!("projects/{PROJECT}/zones/{}/instances/{name}", zone(number));
        let instance = world.gce.world(|gce| Value::Object(gce.object(&path).unwrap().clone()));
        assert_eq!(node["spec"]["podCIDR"], instance["networkInterfaces"][0]["aliasIpRanges"][0]["ipCidrRange"]);
        let ready =
            |node: &Object| node.condition("NetworkUnavailable").is_some_and(|it| it["reason"] == "RouteCreated");
        world.rig.until(LONG, "the condition", async |rig| rig.node(&name).await.filter(ready)).await;
    }
    manager.stop().await;
    world.end();
}
