//! Deletions, and leftovers of balancers that others deleted.

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{ErrorClass, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{FIPS, LBS, Scene, annotation, forget, id, service, set, web};

const MANAGED: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_deletion_leaves_nothing,
        without_cascade_every_part_is_deleted_first,
        leftovers_of_a_balancer_deleted_by_hand_go,
        a_balancer_in_error_is_deleted,
        a_balancer_at_work_is_deleted_later,
        a_balancer_of_the_user_is_left_with_its_own_listeners;
    simulated:
        a_balancer_deleted_by_hand_is_made_again,
        a_floating_ip_that_could_not_be_bound_again_is_not_lost,
        a_refused_deletion_names_the_right_that_is_missing,
        a_service_that_is_no_load_balancer_any_more_can_become_one_again,
        a_floating_ip_of_another_cluster_is_only_detached,
        the_balancer_of_a_published_service_with_a_truncated_name_is_deleted,
        a_balancer_of_the_user_in_error_is_not_said_to_be_deleted,
        a_balancer_that_octavia_shows_as_deleted_is_gone;
}

async fn a_deletion_leaves_nothing(scene: &mut Scene) {
    scene.configure(MANAGED).await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    set(&mut web, "enable-health-monitor", "true");
    scene.ensure(&mut web).await;
    let (calls, ()) = scene.counted(scene.delete(&mut web)).await;
    assert_eq!((calls.of("loadbalancer_delete"), calls.of("floating_ip_delete")), (1, 1), "{calls:?}");
    scene.is_empty().await;
    assert_eq!((annotation(&web, "load-balancer-id"), annotation(&web, "load-balancer-address")), (None, None));
    let (calls, ()) = scene.counted(scene.delete(&mut web)).await;
    assert_eq!(calls.writes(), "");
}

async fn without_cascade_every_part_is_deleted_first(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\ncascade-delete = false\ncreate-monitor = true\n").await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    scene.ensure(&mut web).await;
    let (calls, ()) = scene.counted(scene.delete(&mut web)).await;
    assert!(calls.of("loadbalancer_listener_delete") >= 2, "{calls:?}");
    scene.is_empty().await;
}

async fn leftovers_of_a_balancer_deleted_by_hand_go(scene: &mut Scene) {
    scene.configure(MANAGED).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    assert_eq!((scene.floating_ips().await.len(), scene.groups().await.len()), (1, 1));
    let found = scene.process.balancers.get("kubernetes", &web).await.unwrap();
    assert!(found.is_some(), "the finalizer stays while anything is left");
    scene.delete(&mut web).await;
    scene.is_empty().await;
    assert_eq!(scene.process.balancers.get("kubernetes", &web).await.unwrap(), None);
}

async fn a_balancer_deleted_by_hand_is_made_again(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    scene.ensure(&mut web).await;
    assert_ne!(annotation(&web, "load-balancer-id"), Some(id(&lb)));
    assert_eq!(scene.balancers().await.len(), 1);
    scene.is_steady(&mut web).await;
    let loose = scene.floating_ips().await.iter().filter(|ip| ip["port_id"].is_null()).count();
    assert_eq!(loose, 0, "the floating IP is used again");
    // A balancer that the provider did not record is not replaced.
    let mut other = service("other", &[(80, 30080)], json!({}));
    set(&mut other, "load-balancer-id", id(&lb));
    let error = scene.refused(&mut other).await;
    assert!(error.starts_with(&format!("failed to get load balancer {}", id(&lb))), "{error}");
}

async fn a_floating_ip_that_could_not_be_bound_again_is_not_lost(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    scene.simulation().fault(Rule::every(Fault::Deny).on("network", "floating_ip_update").window(0, 1));
    scene.refused(&mut web).await;
    assert_eq!(annotation(&web, "load-balancer-id"), Some(id(&scene.balancer().await)), "the new one is noted");
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(scene.floating_ips().await.len(), 1);
    scene.is_steady(&mut web).await;
}

/// A pool in ERROR is the reason only if Octavia says that the balancer has children.
async fn a_refused_deletion_names_the_right_that_is_missing(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let pool = id(&scene.pool().await).to_owned();
    scene.simulation().world(|world| world.row_mut("pool", &pool).unwrap().set("provisioning_status", "ERROR"));
    scene.simulation().fault(Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_delete").window(0, 1));
    let error = scene.process.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Denied { .. }), "{error:?}");
    let message = format!("Validation failure: Cannot delete Load Balancer {pool} - it has children");
    let children = Fault::Code { status: 400, code: String::new(), message };
    scene.simulation().fault(Rule::every(children).on("load-balancer", "loadbalancer_delete").window(0, 1));
    let error = scene.process.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap_err();
    assert!(error.to_string().contains("in ERROR: pool pool_0_"), "{error:?}");
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn a_service_that_is_no_load_balancer_any_more_can_become_one_again(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    web.spec.kind = "ClusterIP".to_owned();
    scene.delete(&mut web).await;
    assert_eq!(web.metadata.annotations.keys().collect::<Vec<_>>(), Vec::<&String>::new());
    web.spec.kind = "LoadBalancer".to_owned();
    scene.ensure(&mut web).await;
    scene.is_steady(&mut web).await;
}

async fn a_balancer_in_error_is_deleted(scene: &mut Scene) {
    // Octavia rejects changes of parts then, so the balancer is deleted with a cascade even without `cascade-delete`.
    for conf in ["", "[LoadBalancer]\ncascade-delete = false\n"] {
        scene.configure(conf).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        let lb = scene.balancer().await;
        scene.cloud.set_status(id(&lb), "ERROR").await;
        forget(&mut web);
        let error = scene.refused(&mut web).await;
        assert!(error.contains("is not ACTIVE, current provisioning status: ERROR"), "{error}");
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

async fn a_balancer_at_work_is_deleted_later(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.cloud.set_status(id(&lb), "PENDING_UPDATE").await;
    for action in [ServiceAction::Delete, ServiceAction::Ensure] {
        loop {
            let error = scene.process.ask(&mut web, &scene.nodes, action).await.unwrap_err();
            assert!(error.is_in_progress(), "{error}");
            if error.to_string().contains("PENDING_UPDATE") {
                break;
            }
        }
    }
    scene.cloud.set_status(id(&lb), "ACTIVE").await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn a_floating_ip_of_another_cluster_is_only_detached(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let path = format!("{FIPS}/{}", id(&scene.floating_ips().await[0]));
    let description = "Floating IP for Kubernetes external service shop/web from cluster other";
    scene.write("PUT", &path, json!({"floatingip": {"description": description}})).await;
    scene.delete(&mut web).await;
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), &left[0]["port_id"]), (1, &Value::Null));
}

async fn a_balancer_of_the_user_is_left_with_its_own_listeners(scene: &mut Scene) {
    let lb = json!({"name": "by-hand", "vip_subnet_id": scene.place().subnet});
    let lb = scene.make(LBS, "loadbalancer", lb).await;
    let listener = json!({"name": "mine", "protocol": "TCP", "protocol_port": 22, "loadbalancer_id": lb});
    scene.make("/v2.0/lbaas/listeners", "listener", listener).await;
    let body = json!({"floating_network_id": scene.place().external, "port_id": scene.balancer().await["vip_port_id"]});
    scene.make(FIPS, "floatingip", body).await;
    let mut web = web();
    set(&mut web, "load-balancer-id", &lb);
    scene.ensure(&mut web).await;
    assert_eq!((scene.listeners().await.len(), scene.members().await.len()), (2, 3));
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    let left = scene.balancer().await;
    assert_eq!((&left["name"], &left["tags"]), (&json!("by-hand"), &json!([])), "not a tag of nothing");
    assert_eq!(scene.listeners().await[0]["name"], "mine");
    assert_eq!((scene.pools().await.len(), scene.floating_ips().await.len()), (0, 1));
}

async fn a_balancer_that_octavia_shows_as_deleted_is_gone(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.cloud.set_status(id(&lb), "DELETED").await;
    let (calls, ()) = scene.counted(scene.delete(&mut web)).await;
    assert_eq!(calls.of("loadbalancer_delete"), 0, "{calls:?}");
}

/// An earlier version made such names, and did not always note the address.
async fn the_balancer_of_a_published_service_with_a_truncated_name_is_deleted(scene: &mut Scene) {
    let long = scene.process_of(&"c".repeat(235)).await;
    let mut fits = service("w", &[(80, 30080)], json!({}));
    long.work(&mut fits, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let mut web = web();
    set(&mut web, "load-balancer-id", annotation(&fits, "load-balancer-id").unwrap());
    web.status = fits.status.clone();
    long.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap();
    assert_eq!(scene.balancers().await.len(), 0);
}

async fn a_balancer_of_the_user_in_error_is_not_said_to_be_deleted(scene: &mut Scene) {
    let lb = json!({"name": "by-hand", "vip_subnet_id": scene.place().subnet});
    let lb = scene.make(LBS, "loadbalancer", lb).await;
    let mut web = web();
    set(&mut web, "load-balancer-id", &lb);
    let body = json!({"floating_network_id": scene.place().external, "port_id": scene.balancer().await["vip_port_id"]});
    scene.make(FIPS, "floatingip", body).await;
    scene.ensure(&mut web).await;
    scene.cloud.set_status(&lb, "ERROR").await;
    let error = scene.process.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap_err().to_string();
    assert!(error.contains("openstack loadbalancer failover") && !error.contains("deleted"), "{error}");
}
