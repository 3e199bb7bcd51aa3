//! The published address is the one that an ensure has reached, whatever fails before and after.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{APPLIED, FIPS, INTERNAL, Scene, id, service, set, web};

ccm_test_openstack::cases! { [crate::scene]
    both:;
    simulated:
        a_host_update_that_fails_publishes_no_other_address,
        without_its_floating_ip_an_external_service_gets_no_address,
        a_lost_floating_ip_stays_published_until_there_is_another,
        a_creation_that_fails_after_the_wait_for_it_is_made_again;
}

/// The published addresses.
fn published(service: &Service) -> Vec<&str> {
    service.status.load_balancer.ingress.iter().map(|ingress| &*ingress.ip).collect()
}

async fn a_host_update_that_fails_publishes_no_other_address(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.nodes.pop();
    for trouble in ["busy", "refused", "unread"] {
        let deny = |action: &str| Rule::every(Fault::Deny).on("load-balancer", action);
        match trouble {
            "busy" => scene.cloud.set_status(id(&lb), "PENDING_UPDATE").await,
            "refused" => scene.simulation().fault(deny("loadbalancer_members_update")),
            _ => scene.simulation().fault(deny("loadbalancer_pool_list")),
        }
        let answer = scene.process.ask(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await;
        assert!(answer.is_err(), "{trouble}: {answer:?}");
        assert_eq!(published(&web), [&*address], "{trouble}");
        scene.cloud.set_status(id(&lb), "ACTIVE").await;
        scene.simulation().faults(Faults::clear);
    }
}

async fn without_its_floating_ip_an_external_service_gets_no_address(scene: &mut Scene) {
    // Its address is that of another object.
    let body = json!({"floatingip": {"floating_network_id": scene.place().external}});
    let ip = scene.write("POST", FIPS, body).await["floatingip"].clone();
    let bind = json!({"floatingip": {"port_id": scene.cloud.port("").await["id"]}});
    scene.write("PUT", &format!("{FIPS}/{}", id(&ip)), bind).await;
    let mut bound = service("bound", &[(80, 30080)], json!({"loadBalancerIP": ip["floating_ip_address"]}));
    let error = scene.refused(&mut bound).await;
    assert!(error.contains("is not available"), "{error}");
    assert_eq!(published(&bound), [""; 0]);
    scene.delete(&mut bound).await;
    // Its balancer is that of an internal Service.
    let mut inside = service("inside", &[(80, 30080)], json!({}));
    set(&mut inside, INTERNAL, "true");
    scene.ensure(&mut inside).await;
    let mut shared = service("shared", &[(443, 30443)], json!({}));
    set(&mut shared, "load-balancer-id", id(&scene.balancer().await));
    let error = scene.refused(&mut shared).await;
    assert!(error.contains("cannot attach a floating IP"), "{error}");
    assert_eq!(published(&shared), [""; 0]);
}

async fn a_lost_floating_ip_stays_published_until_there_is_another(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let ip = scene.floating_ips().await.remove(0);
    scene.write("DELETE", &format!("{FIPS}/{}", id(&ip)), Value::Null).await;
    let good = web.clone();
    // The first is refused with the floating IP, the second before it.
    for (key, value) in [("floating-subnet", "no-such"), ("default-tls-container-ref", "http://x/v1/secrets/x")] {
        let mut web = good.clone();
        set(&mut web, key, value);
        let mut wiped = web.clone();
        scene.refused(&mut web).await;
        assert_eq!(published(&web), [&*address], "{key}");
        wiped.status = Default::default();
        scene.refused(&mut wiped).await;
        assert_eq!(published(&wiped), [""; 0], "{key}");
    }
    let another = scene.ensure(&mut web).await;
    assert_eq!(published(&web), [&*another]);
}

/// The driver may need longer than the program waits.
async fn a_creation_that_fails_after_the_wait_for_it_is_made_again(scene: &mut Scene) {
    for internal in ["false", "true"] {
        let mut web = web();
        set(&mut web, INTERNAL, internal);
        assert!(!scene.work_until(&mut web, ServiceAction::Ensure, 1).await);
        scene.settle().await;
        let slow = scene.balancer().await;
        // As a process notes that has waited in vain.
        set(&mut web, "load-balancer-id", id(&slow));
        set(&mut web, APPLIED, "own");
        scene.cloud.set_status(id(&slow), "PENDING_CREATE").await;
        let answer = scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure).await;
        assert!(answer.as_ref().is_err_and(ccm_provider::ProviderError::is_in_progress), "{answer:?}");
        assert_eq!(published(&web), [""; 0], "internal {internal}");
        scene.cloud.set_status(id(&slow), "ERROR").await;
        let error = scene.refused(&mut web).await;
        assert!(error.contains("its creation will be retried"), "internal {internal}: {error}");
        scene.is_empty().await;
        scene.ensure(&mut web).await;
        scene.delete(&mut web).await;
    }
}
