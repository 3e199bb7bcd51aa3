//! A load balancer in ERROR is recreated if its Service requests it.

use ccm_provider::{Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{FIPS, INTERNAL, LBS, Scene, annotation, id, service, set, texts, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_balancer_in_error_is_made_again_where_the_service_asks_for_it,
        a_shared_balancer_in_error_stays;
    simulated:
        a_balancer_in_error_stays_where_the_service_does_not_ask,
        a_floating_ip_that_could_not_be_found_again_keeps_the_balancer,
        a_floating_ip_under_an_older_cluster_name_is_found_again,
        a_balancer_that_is_not_noted_yet_is_noted_before_it_goes,
        an_internal_service_gets_another_balancer_without_a_floating_ip,
        an_update_of_nodes_makes_nothing_again;
}

async fn goes_into_error(scene: &Scene) -> Value {
    let balancers = scene.balancers().await;
    let ours = balancers.into_iter().find(|lb| lb["name"] == "kube_service_kubernetes_shop_web").unwrap();
    scene.cloud.set_status(id(&ours), "ERROR").await;
    ours
}

fn recreated(service: &mut Service) {
    set(service, "recreate-in-error", "true");
}

async fn a_balancer_in_error_is_made_again_where_the_service_asks_for_it(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let neighbor = scene.process_of("theirs").await;
    let mut theirs = service("theirs", &[(80, 31999)], json!({}));
    neighbor.work(&mut theirs, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    let address = scene.ensure(&mut web).await;
    let (old, groups) = (goes_into_error(scene).await, scene.groups().await);
    recreated(&mut web);
    assert_eq!(scene.ensure(&mut web).await, address, "the floating IP stays");
    let balancers = scene.balancers().await;
    let names: Vec<&Value> = balancers.iter().map(|lb| &lb["name"]).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let new = balancers.iter().find(|lb| lb["name"] == old["name"]).unwrap();
    assert_ne!(id(new), id(&old));
    assert_eq!(annotation(&web, "load-balancer-id"), Some(id(new)));
    assert_eq!((scene.listeners().await.len(), scene.members().await.len()), (3, 9));
    assert_eq!((scene.floating_ips().await.len(), scene.groups().await), (2, groups));
    let events = scene.events();
    assert!(events.iter().any(|event| event.starts_with("LoadBalancerRecreated: ")), "{events:?}");
    scene.is_steady(&mut web).await;
}

async fn a_shared_balancer_in_error_stays(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut api = service("api", &[(8080, 30808)], json!({}));
    set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    scene.ensure(&mut api).await;
    let old = goes_into_error(scene).await;
    recreated(&mut web);
    recreated(&mut api);
    let error = scene.refused(&mut web).await;
    assert!(error.contains("does not replace it: it is shared with kube_service_kubernetes_shop_api"), "{error}");
    let error = scene.refused(&mut api).await;
    assert!(error.contains("does not replace it: it was not made for this Service"), "{error}");
    assert_eq!(id(&scene.balancer().await), id(&old));
    // A listener with a Service tag that the balancer lacks.
    scene.cloud.set_status(id(&old), "ACTIVE").await;
    let tags = json!({"loadbalancer": {"tags": [old["name"]]}});
    scene.write("PUT", &format!("{LBS}/{}", id(&old)), tags).await;
    scene.cloud.set_status(id(&old), "ERROR").await;
    let error = scene.refused(&mut web).await;
    assert!(error.contains("it is shared with kube_service_kubernetes_shop_api"), "{error}");
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (1, 2));
}

async fn a_balancer_in_error_stays_where_the_service_does_not_ask(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let old = goes_into_error(scene).await;
    for value in [None, Some("false"), Some("yes")] {
        value.into_iter().for_each(|value| set(&mut web, "recreate-in-error", value));
        let (calls, error) = scene.counted(scene.refused(&mut web)).await;
        assert!(error.contains("loadbalancer.openstack.org/recreate-in-error=true"), "{error}");
        assert_eq!(calls.writes(), "");
    }
    assert_eq!(id(&scene.balancer().await), id(&old));
}

async fn a_floating_ip_that_could_not_be_found_again_keeps_the_balancer(scene: &mut Scene) {
    let body = json!({"floating_network_id": scene.place().external, "description": "of the user"});
    scene.make(FIPS, "floatingip", body).await;
    let address = scene.floating_ips().await[0]["floating_ip_address"].as_str().unwrap().to_owned();
    let mut web = web();
    web.spec.load_balancer_ip.clone_from(&address);
    assert_eq!(scene.ensure(&mut web).await, address);
    goes_into_error(scene).await;
    recreated(&mut web);
    web.spec.load_balancer_ip.clear();
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.contains(&format!("write {address} into spec.loadBalancerIP")), "{error}");
    assert_eq!(calls.writes(), "");
    web.spec.load_balancer_ip.clone_from(&address);
    assert_eq!(scene.ensure(&mut web).await, address);
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), &left[0]["description"]), (1, &json!("of the user")));
    scene.is_steady(&mut web).await;
}

async fn a_floating_ip_under_an_older_cluster_name_is_found_again(scene: &mut Scene) {
    let mut web = web();
    let old = scene.process_of("old").await;
    old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let balancer = scene.balancer().await;
    let address = scene.floating_ips().await[0]["floating_ip_address"].as_str().unwrap().to_owned();
    scene.cloud.set_status(id(&balancer), "ERROR").await;
    recreated(&mut web);
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(scene.floating_ips().await.len(), 1);
    assert_eq!(texts(&scene.balancer().await["tags"]), ["kube_service_kubernetes_shop_web"]);
    scene.is_steady(&mut web).await;
}

async fn a_balancer_that_is_not_noted_yet_is_noted_before_it_goes(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let old = goes_into_error(scene).await;
    unset(&mut web, "load-balancer-id");
    unset(&mut web, "load-balancer-address");
    recreated(&mut web);
    let (calls, answer) = scene.counted(scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure)).await;
    assert!(answer.unwrap_err().is_in_progress());
    assert_eq!((calls.writes(), annotation(&web, "load-balancer-id")), (String::new(), Some(id(&old))));
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(scene.floating_ips().await.len(), 1);
    scene.is_steady(&mut web).await;
}

async fn an_internal_service_gets_another_balancer_without_a_floating_ip(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let old = goes_into_error(scene).await;
    recreated(&mut web);
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    assert_ne!(id(&scene.balancer().await), id(&old));
    assert_eq!(scene.floating_ips().await.len(), 0);
    scene.is_steady(&mut web).await;
}

async fn an_update_of_nodes_makes_nothing_again(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let old = goes_into_error(scene).await;
    recreated(&mut web);
    scene.nodes.pop();
    let answer = scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await;
    assert!(answer.unwrap_err().to_string().contains("is not ACTIVE"));
    assert_eq!(id(&scene.balancer().await), id(&old));
    // The controller ensures a Service whose update failed.
    scene.ensure(&mut web).await;
    assert_eq!(scene.members().await, ["node-1 30080", "node-2 30080"]);
}
