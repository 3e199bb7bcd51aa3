//! See [`crate::real_apiserver::pods`].

use serde_json::Value;

use super::*;
use crate::real_apiserver::pods::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_go_program_run_with_only_the_image_replaced() {
    let Some(world) = World::start().await else { return };
    let rig = &world.rig;
    let config = world.config("routeTableName: rt\n");
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"cloud-config": config}});
    object["metadata"] = json!({"name": "azure-cloud-provider", "namespace": "kube-system"});
    rig.create(Make { resource: "secrets", object }).await;
    // The cloud-node-manager initializes nodes.
    for number in 0..2 {
        let id = format!("azure://{}/virtualMachines/{number}", world.set);
        let change = json!({"spec": {"providerID": id, "taints": null}});
        rig.patch_node(&format!("pool00000{number}"), change).await;
    }
    for (number, pod) in Pod::all_of("azure") {
        assert!(!pod.initializes_nodes());
        let name = format!("web-{number}");
        rig.create(service_with(&name, "", &[], &[80])).await;
        world.azure.world(|azure| azure.scale_out(&world.set, 1));
        let fresh = format!("pool00000{}", number + 2);
        rig.create(node(&fresh)).await;
        let id = format!("azure://{}/virtualMachines/{}", world.set, number + 2);
        rig.patch_node(&fresh, json!({"spec": {"providerID": id}})).await;
        let started = pod.start(rig, env!("CARGO_BIN_EXE_ccm-under-test"), &config, &[]);
        rig.address(&name).await;
        // The Go program has node IPAM on, for --allocate-node-cidrs.
        if pod.allocates() {
            rig.until_node(&fresh, "has a pod range", |node| node["spec"]["podCIDR"].is_string()).await;
        } else {
            assert_eq!(rig.node(&fresh).await.unwrap()["spec"]["podCIDR"], Value::Null);
        }
        rig.delete_service(&name).await;
        started.end(rig).await;
    }
    assert_eq!(world.azure.violations(), [""; 0]);
}
