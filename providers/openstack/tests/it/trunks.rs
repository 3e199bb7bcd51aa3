//! Nodes whose address is on a port in the trunk of their server. Such a port has no device.

use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::{AddressType, Node, NodeAddress, NodeRef, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{APPLIED, INTERNAL, Scene, id, set, texts, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both: ;
    simulated:
        a_balancer_is_ours_by_a_member_on_a_subport,
        the_security_group_is_on_the_subports_of_the_members;
}

/// Moves the addresses of all nodes to subports in a subnet of their own, which is that of load balancers.
async fn on_subports(scene: &mut Scene) -> Vec<String> {
    let (project, router) = (scene.place().project.clone(), scene.place().router.clone());
    let ports = scene.simulation().resources("port");
    let mut nodes: Vec<NodeRef> = Vec::new();
    let (subnet, subports) = scene.simulation().world(|world| {
        let network = world.network(&project, "vlan", json!({}));
        let seed = SubnetSeed { network: &network, name: "vlan", cidr: "10.0.0.0/24", ..SubnetSeed::default() };
        let (subnet, mut subports) = (world.subnet(&seed), Vec::new());
        let fields = json!({"device_id": router, "device_owner": "network:router_interface", "status": "ACTIVE"});
        world.port(&project, &[&subnet], fields).unwrap();
        for node in &scene.nodes {
            let server = node.provider_id.as_deref().unwrap().trim_start_matches("openstack:///");
            let parent = ports.iter().find(|port| port["device_id"] == server).unwrap();
            let subport = world.port(&project, &[&subnet], json!({"status": "ACTIVE"})).unwrap();
            let trunk = json!({"trunk_id": "t", "sub_ports": [{"port_id": subport, "segmentation_id": 1}]});
            world.row_mut("port", id(parent)).unwrap().set("trunk_details", trunk);
            let address = world.row("port", &subport).unwrap().list("fixed_ips")[0]["ip_address"].clone();
            let addresses = [NodeAddress::new(AddressType::InternalIp, address.as_str().unwrap())].into();
            nodes.push(Node { addresses, ..(**node).clone() }.into());
            subports.push(subport);
        }
        (subnet, subports)
    });
    scene.nodes = nodes;
    scene.configure(&format!("[LoadBalancer]\nsubnet-id = {subnet}\nmanage-security-groups = true\n")).await;
    subports
}

async fn a_balancer_is_ours_by_a_member_on_a_subport(scene: &mut Scene) {
    on_subports(scene).await;
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    // The process ends while Octavia makes the load balancer.
    assert!(!scene.work_until(&mut web, ServiceAction::Ensure, 1).await);
    scene.settle().await;
    let address = scene.ensure(&mut web).await;
    assert_eq!((scene.balancers().await.len(), scene.members().await.len()), (1, 3));
    // The same if everything that is noted was removed.
    for key in ["load-balancer-id", "load-balancer-address", APPLIED] {
        unset(&mut web, key);
    }
    web.status = Default::default();
    scene.restart().await;
    scene.nodes.pop();
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 2);
    scene.restart().await;
    assert_eq!(scene.ensure(&mut web).await, address);
    for key in ["load-balancer-id", "load-balancer-address", APPLIED] {
        unset(&mut web, key);
    }
    scene.restart().await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn the_security_group_is_on_the_subports_of_the_members(scene: &mut Scene) {
    let subports = on_subports(scene).await;
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
    scene.nodes.pop();
    scene.update_hosts(&mut web).await;
    let group = scene.groups().await.remove(0);
    let ports = scene.simulation().resources("port");
    let has = |port: &&Value| texts(&port["security_groups"]).contains(&id(&group));
    let mut with: Vec<&str> = ports.iter().filter(has).map(id).collect();
    let mut expected: Vec<&str> = subports[..2].iter().map(String::as_str).collect();
    with.sort_unstable();
    expected.sort_unstable();
    assert_eq!(with, expected);
    scene.delete(&mut web).await;
    scene.is_empty().await;
}
