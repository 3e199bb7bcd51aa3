//! Floating IPs: their network and subnet, their owner, and their deletion.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::ServiceAction;
use serde_json::{Value, json};

use crate::scene::{FIPS, INTERNAL, LBS, Scene, annotation, forget, id, set, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        an_internal_service_gives_its_floating_ip_back,
        a_floating_ip_of_the_user_is_only_detached,
        a_free_load_balancer_ip_is_taken_and_survives,
        a_load_balancer_ip_that_does_not_exist_needs_an_administrator;
    simulated:
        a_floating_ip_that_a_user_binds_to_an_internal_service_stays,
        keep_floatingip_keeps_it_when_internal_and_when_deleted,
        what_was_kept_for_an_earlier_service_stays,
        a_floating_ip_is_not_lost_when_the_clock_of_the_cloud_is_late,
        a_bound_load_balancer_ip_is_refused,
        a_subnet_of_another_network_is_refused_before_anything_is_made,
        a_floating_ip_removed_by_hand_is_made_again,
        patterns_and_tags_choose_the_subnet_and_a_full_one_is_passed_over,
        a_pattern_that_is_none_concerns_only_services_without_a_floating_ip,
        floating_settings_that_come_after_the_floating_ip_are_reported,
        of_two_external_networks_the_one_that_a_router_joins_is_taken,
        without_external_network_the_address_of_the_balancer_is_published,
        an_ipv6_address_has_no_floating_ip_and_one_event,
        a_floating_ip_stays_while_the_named_one_cannot_be_reached,
        a_floating_ip_is_bound_again_if_the_named_one_cannot_be,
        a_move_to_another_floating_ip_that_was_interrupted_leaves_none,
        what_an_interrupted_move_has_left_is_taken_back_or_goes_with_the_service,
        a_floating_ip_that_the_user_detaches_for_another_one_stays,
        of_two_floating_ips_the_first_one_is_published;
}

async fn an_internal_service_gives_its_floating_ip_back(scene: &mut Scene) {
    let mut web = web();
    let external = scene.ensure(&mut web).await;
    set(&mut web, INTERNAL, "true");
    let internal = scene.ensure(&mut web).await;
    assert_eq!((internal.starts_with("10.50."), scene.floating_ips().await.len()), (true, 0));
    assert_eq!(annotation(&web, "load-balancer-address"), Some(&*internal));
    scene.is_steady(&mut web).await;
    unset(&mut web, INTERNAL);
    let again = scene.ensure(&mut web).await;
    assert_eq!(scene.floating_ips().await[0]["floating_ip_address"], *again);
    assert_ne!((again.starts_with("10.50."), external.starts_with("10.50.")), (true, true));
    scene.is_steady(&mut web).await;
}

/// A floating IP that the user created.
async fn by_hand(scene: &Scene) -> Value {
    let body = json!({"floatingip": {"floating_network_id": scene.place().external, "description": "mine"}});
    scene.write("POST", FIPS, body).await["floatingip"].clone()
}

async fn a_floating_ip_of_the_user_is_only_detached(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    let ip = by_hand(scene).await;
    let bind = json!({"floatingip": {"port_id": scene.balancer().await["vip_port_id"]}});
    scene.write("PUT", &format!("{FIPS}/{}", id(&ip)), bind.clone()).await;
    unset(&mut web, INTERNAL);
    assert_eq!(scene.ensure(&mut web).await, ip["floating_ip_address"].as_str().unwrap());
    assert_eq!(scene.floating_ips().await.len(), 1);
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    assert_eq!(scene.floating_ips().await[0]["port_id"], Value::Null);
    scene.write("PUT", &format!("{FIPS}/{}", id(&ip)), bind).await;
    scene.delete(&mut web).await;
    assert_eq!((scene.floating_ips().await.len(), scene.balancers().await.len()), (1, 0));
}

async fn a_floating_ip_that_a_user_binds_to_an_internal_service_stays(scene: &mut Scene) {
    for keeps in ["false", "true"] {
        let mut web = web();
        set(&mut web, INTERNAL, "true");
        set(&mut web, "keep-floatingip", keeps);
        let address = scene.ensure(&mut web).await;
        let ip = by_hand(scene).await;
        let (path, port) = (format!("{FIPS}/{}", id(&ip)), scene.balancer().await["vip_port_id"].clone());
        scene.write("PUT", &path, json!({"floatingip": {"port_id": port}})).await;
        scene.restart().await;
        assert_eq!(scene.ensure(&mut web).await, address);
        let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
        assert_eq!((calls.writes(), calls.of("loadbalancer_listener_list")), (String::new(), 0), "{calls:?}");
        scene.is_steady(&mut web).await;
        let noted = annotation(&web, "load-balancer-address");
        assert_eq!((noted, &scene.floating_ips().await[0]["port_id"]), (Some(&*address), &port));
        let events = scene.events();
        let is_kept = |event: &&String| event.starts_with("LoadBalancerFloatingIPKept: ");
        assert_eq!((events.len(), events.iter().filter(is_kept).count()), (1, 1), "{events:?}");
        // A new load balancer has another port.
        set(&mut web, "recreate-in-error", "true");
        scene.cloud.set_status(id(&scene.balancer().await), "ERROR").await;
        scene.ensure(&mut web).await;
        scene.delete(&mut web).await;
        assert_eq!((scene.floating_ips().await.len(), scene.balancers().await.len()), (1, 0));
        scene.write("DELETE", &path, Value::Null).await;
    }
}

async fn keep_floatingip_keeps_it_when_internal_and_when_deleted(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "keep-floatingip", "true");
    scene.ensure(&mut web).await;
    set(&mut web, INTERNAL, "true");
    scene.ensure(&mut web).await;
    assert_eq!(scene.floating_ips().await[0]["port_id"], Value::Null);
    scene.is_steady(&mut web).await;
    web.spec.load_balancer_ip = scene.floating_ips().await[0]["floating_ip_address"].as_str().unwrap().to_owned();
    unset(&mut web, INTERNAL);
    scene.ensure(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!((scene.floating_ips().await.len(), scene.balancers().await.len()), (1, 0));
}

async fn what_was_kept_for_an_earlier_service_stays(scene: &mut Scene) {
    let mut first = web();
    first.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    set(&mut first, "keep-floatingip", "true");
    let kept = scene.ensure(&mut first).await;
    scene.delete(&mut first).await;
    scene.simulation().clock().step(std::time::Duration::from_secs(120));
    let mut second = web();
    second.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    assert_ne!(scene.ensure(&mut second).await, kept);
    // The kept one does not replace a deleted one either.
    let own = scene.floating_ips().await.into_iter().find(|ip| ip["floating_ip_address"] != *kept).unwrap();
    scene.write("DELETE", &format!("{FIPS}/{}", id(&own)), Value::Null).await;
    assert_ne!(scene.ensure(&mut second).await, kept);
    scene.delete(&mut second).await;
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), left[0]["floating_ip_address"].as_str()), (1, Some(&*kept)));
}

async fn a_floating_ip_is_not_lost_when_the_clock_of_the_cloud_is_late(scene: &mut Scene) {
    let mut web = web();
    let ahead = scene.simulation().clock().now() + jiff::SignedDuration::from_secs(30);
    web.metadata.creation_timestamp = Some(ahead);
    let address = scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    assert_eq!(scene.ensure(&mut web).await, address);
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn a_free_load_balancer_ip_is_taken_and_survives(scene: &mut Scene) {
    let ip = by_hand(scene).await;
    let mut web = web();
    web.spec.load_balancer_ip = ip["floating_ip_address"].as_str().unwrap().to_owned();
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.writes(), "floating_ip_update 1, loadbalancer_create 1");
    assert_eq!(address, web.spec.load_balancer_ip);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), &left[0]["port_id"]), (1, &Value::Null));
}

async fn a_bound_load_balancer_ip_is_refused(scene: &mut Scene) {
    let (ip, port) = (by_hand(scene).await, scene.cloud.port("").await);
    let path = format!("{FIPS}/{}", id(&ip));
    scene.write("PUT", &path, json!({"floatingip": {"port_id": port["id"]}})).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut other = crate::scene::service("other", &[(80, 30080)], json!({}));
    other.spec.load_balancer_ip = ip["floating_ip_address"].as_str().unwrap().to_owned();
    let error = scene.refused(&mut other).await;
    assert!(error.contains(&format!("floating IP {} is not available", other.spec.load_balancer_ip)), "{error}");
    scene.write("PUT", &path, json!({"floatingip": {"port_id": null}})).await;
    assert_eq!(scene.ensure(&mut other).await, other.spec.load_balancer_ip);
}

async fn a_load_balancer_ip_that_does_not_exist_needs_an_administrator(scene: &mut Scene) {
    let mut web = web();
    web.spec.load_balancer_ip = "172.24.4.250".to_owned();
    let error = scene.refused(&mut web).await;
    assert!(error.contains("disallowed by policy"), "{error}");
    assert_eq!(scene.balancers().await.len(), 1, "kept, and found again by its name");
    web.spec.load_balancer_ip = String::new();
    scene.ensure(&mut web).await;
    assert_eq!(scene.balancers().await.len(), 1);
    scene.is_steady(&mut web).await;
}

async fn a_subnet_of_another_network_is_refused_before_anything_is_made(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "floating-subnet-id", &scene.place().subnet);
    let error = scene.refused(&mut web).await;
    let (subnet, external, own) = (&scene.place().subnet, &scene.place().external, &scene.place().network);
    let expected =
        format!("floating IP subnet \"{subnet}\" doesn't belong to the network \"{external}\": it is in \"{own}\"");
    assert!(error.contains(&expected), "{error}");
    assert_eq!(scene.balancers().await.len(), 0);
}

async fn a_floating_ip_removed_by_hand_is_made_again(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let ip = scene.floating_ips().await.remove(0);
    scene.write("DELETE", &format!("{FIPS}/{}", id(&ip)), Value::Null).await;
    assert_eq!(scene.writes_to_ensure(&mut web).await, "floating_ip_create 1");
    scene.is_steady(&mut web).await;
}

/// A subnet of the external network; returns its ID.
fn external_subnet(scene: &Scene, name: &str, cidr: &str, tags: &[&str]) -> String {
    let network = &scene.place().external;
    scene.simulation().world(|world| world.subnet(&SubnetSeed { network, name, cidr, tags, ..SubnetSeed::default() }))
}

async fn address_for(scene: &mut Scene, annotations: &[(&str, &str)]) -> Result<String, String> {
    let mut web = web();
    for (key, value) in annotations {
        set(&mut web, key, value);
    }
    let answer = match scene.try_ensure(&mut web).await {
        Ok(status) => Ok(status.unwrap().ingress[0].ip.clone()),
        Err(error) => Err(error.to_string()),
    };
    scene.delete(&mut web).await;
    scene.is_empty().await;
    answer
}

async fn patterns_and_tags_choose_the_subnet_and_a_full_one_is_passed_over(scene: &mut Scene) {
    external_subnet(scene, "prod-1", "198.51.100.0/24", &["a", "b"]);
    let full = external_subnet(scene, "dev-1", "203.0.113.0/30", &["a"]);
    external_subnet(scene, "dev-2", "192.0.2.0/24", &["b"]);
    // The only address of the subnet.
    let body = json!({"floatingip": {"floating_network_id": scene.place().external, "subnet_id": full}});
    let only = scene.write("POST", FIPS, body).await["floatingip"].clone();
    let check = |answer: Result<String, String>, start: &str| {
        assert!(answer.as_ref().is_ok_and(|address| address.starts_with(start)), "{start}: {answer:?}");
    };
    let taken = scene.simulation().world(|world| world.remove("floatingip", id(&only)));
    assert!(taken.is_some());
    for (annotations, start) in [
        (&[("floating-subnet", "dev-*")][..], "192.0.2."),
        (&[("floating-subnet", "!~prod-.*"), ("floating-subnet-tags", "a,b")], "192.0.2."),
        (&[("floating-subnet-tags", "&a,b")], "198.51.100."),
        (&[("floating-subnet-tags", "!&a,b"), ("floating-subnet", "dev-*")], "192.0.2."),
        (&[("floating-subnet-tags", "!a,b")], "172.24.4."),
        (&[("floating-subnet", "~prod-\\d")], "198.51.100."),
    ] {
        check(address_for(scene, annotations).await, start);
    }
    let error = address_for(scene, &[("floating-subnet", "test-*")]).await.unwrap_err();
    assert!(error.contains("no subnet matching \"test-*\""), "{error}");
    let error = address_for(scene, &[("floating-subnet-tags", "none")]).await.unwrap_err();
    assert!(error.contains("could not find subnets for network"), "{error}");
    let error = address_for(scene, &[("floating-subnet", "dev-1")]).await.unwrap_err();
    assert!(error.contains("No more IP addresses"), "{error}");
}

async fn a_pattern_that_is_none_concerns_only_services_without_a_floating_ip(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    scene.configure("[LoadBalancer]\nfloating-subnet = ~(\n[LoadBalancerClass \"odd\"]\nfloating-subnet = {a\n").await;
    set(&mut web, "connection-limit", "5");
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(scene.listener().await["connection_limit"], 5);
    scene.is_steady(&mut web).await;
    for (class, pattern, key) in [
        ("", "", "[LoadBalancer] floating-subnet"),
        ("", "[b", "loadbalancer.openstack.org/floating-subnet"),
        ("odd", "", "[LoadBalancerClass \"odd\"] floating-subnet"),
    ] {
        let mut api = crate::scene::service("api", &[(80, 30081)], json!({}));
        for (key, value) in [("class", class), ("floating-subnet", pattern)] {
            if !value.is_empty() {
                set(&mut api, key, value);
            }
        }
        let (calls, error) = scene.counted(scene.refused(&mut api)).await;
        assert!(error.contains(key), "{error}");
        assert_eq!(calls.writes(), "", "{key}");
    }
}

async fn of_two_external_networks_the_one_that_a_router_joins_is_taken(scene: &mut Scene) {
    let external = scene.place().external.clone();
    scene.simulation().world(|world| {
        // This network is listed first.
        let unreachable = world.network("other", "a", json!({"router:external": true}));
        world.subnet(&SubnetSeed { network: &unreachable, cidr: "198.51.100.0/24", ..SubnetSeed::default() });
        let seq = world.row("network", &external).unwrap().seq;
        let row = world.row_mut("network", &unreachable).unwrap();
        let later = std::mem::replace(&mut row.seq, seq);
        world.row_mut("network", &external).unwrap().seq = later;
    });
    let mut web = web();
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert!(address.starts_with("172.24.4."), "{address}");
    assert_eq!(calls.of("router_list"), 1);
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.of("router_list") + calls.of("port_list"), 0);
}

async fn without_external_network_the_address_of_the_balancer_is_published(scene: &mut Scene) {
    let external = scene.place().external.clone();
    scene.configure(&format!("[LoadBalancer]\nfloating-network-id = {external}\n")).await;
    scene.simulation().world(|world| {
        world.row_mut("network", &external).unwrap().set("router:external", false);
    });
    let mut web = web();
    // An empty annotation replaces the configured network.
    set(&mut web, "floating-network-id", "");
    assert!(scene.ensure(&mut web).await.starts_with("10.50."));
    let events = scene.events();
    let reasons: Vec<&str> = events.iter().map(|event| event.split(':').next().unwrap()).collect();
    assert_eq!(reasons, ["LoadBalancerExternalNetworkSearchFailed", "LoadBalancerForcedInternal"]);
    scene.is_steady(&mut web).await;
    assert_eq!(scene.events(), Vec::<String>::new(), "an event is for news");
}

async fn an_ipv6_address_has_no_floating_ip_and_one_event(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let subnet = scene
        .simulation()
        .world(|world| world.subnet(&SubnetSeed { network: &network, cidr: "fd00:50::/64", ..SubnetSeed::default() }));
    let nodes = scene.nodes.iter().enumerate().map(|(number, node)| {
        let mut node = (**node).clone();
        let address = format!("fd00:50::{}", number + 100);
        node.addresses = [ccm_provider::NodeAddress::new(ccm_provider::AddressType::InternalIp, &*address)].into();
        node.into()
    });
    scene.nodes = nodes.collect();
    let mut web =
        crate::scene::service("web", &[(80, 30080)], json!({"ipFamilies": ["IPv6"], "loadBalancerIP": "fd00:50::80"}));
    set(&mut web, "subnet-id", &subnet);
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.writes(), address), ("loadbalancer_create 1".to_owned(), "fd00:50::80".to_owned()));
    assert_eq!(scene.listener().await["allowed_cidrs"], json!(["::/0"]));
    assert_eq!(calls.of("floating_ip_list") + calls.of("network_list"), 0, "{calls:?}");
    let (calls, _) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!(calls.of("floating_ip_list"), 0);
    forget(&mut web);
    scene.ensure(&mut web).await;
    let events = scene.events();
    assert!(events.len() == 1 && events[0].starts_with("LoadBalancerFloatingIPSkipped: "), "{events:?}");
}

/// `web` with its floating IP, and a free one of the user in this network.
async fn web_and_a_free_one(scene: &mut Scene, network: &str) -> (ccm_provider::Service, String, String) {
    let mut web = web();
    let before = scene.ensure(&mut web).await;
    let free = scene.make(FIPS, "floatingip", json!({"floating_network_id": network, "description": "mine"})).await;
    let address = scene.get(&format!("{FIPS}/{free}")).await["floatingip"]["floating_ip_address"].clone();
    (web, before, address.as_str().unwrap().to_owned())
}

/// The addresses of the floating IPs that are bound, and the number of all.
async fn bound(scene: &Scene) -> (Vec<String>, usize) {
    let all = scene.floating_ips().await;
    let is_bound = |ip: &&Value| ip["port_id"].is_string();
    let text = |ip: &Value| ip["floating_ip_address"].as_str().unwrap().to_owned();
    (all.iter().filter(is_bound).map(text).collect(), all.len())
}

fn another_external_network(scene: &Scene) -> String {
    scene.simulation().world(|world| {
        let network = world.network("other", "other", json!({"router:external": true}));
        world.subnet(&SubnetSeed { network: &network, cidr: "198.51.100.0/24", ..SubnetSeed::default() });
        network
    })
}

async fn a_floating_ip_stays_while_the_named_one_cannot_be_reached(scene: &mut Scene) {
    let other = another_external_network(scene);
    let (mut web, before, free) = web_and_a_free_one(scene, &other).await;
    web.spec.load_balancer_ip = free;
    let (calls, address) = scene.counted(scene.ensure(&mut web)).await;
    assert_eq!((calls.writes(), &address), (String::new(), &before));
    assert!(scene.events().iter().any(|event| event.starts_with("LoadBalancerSettingNotApplied: ")));
    assert_eq!(bound(scene).await, (vec![before.clone()], 2));
    // The same if the configuration says that it can be reached.
    set(&mut web, "floating-network-id", &other);
    scene.refused(&mut web).await;
    assert_eq!(bound(scene).await, (vec![before.clone()], 2));
    web.spec.load_balancer_ip = String::new();
    assert_eq!(scene.ensure(&mut web).await, before);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(bound(scene).await, (Vec::new(), 1));
}

async fn a_floating_ip_is_bound_again_if_the_named_one_cannot_be(scene: &mut Scene) {
    let external = scene.place().external.clone();
    let (mut web, before, free) = web_and_a_free_one(scene, &external).await;
    let id_of = scene.floating_ips().await.into_iter().find(|ip| ip["floating_ip_address"] == *free).unwrap();
    let on = |fault: Fault| Rule {
        params: Some(format!("id={}", id(&id_of))),
        ..Rule::every(fault).on("network", "floating_ip_update").window(0, 2)
    };
    for status in [409, 404, 400] {
        let fault = Fault::Code { status, code: "No".to_owned(), message: "as the test says".to_owned() };
        scene.simulation().fault(on(fault));
        web.spec.load_balancer_ip.clone_from(&free);
        scene.refused(&mut web).await;
        assert_eq!(bound(scene).await, (vec![before.clone()], 2), "{status}");
        web.spec.load_balancer_ip = String::new();
        assert_eq!(scene.ensure(&mut web).await, before, "{status}");
        scene.simulation().faults(Faults::clear);
    }
    web.spec.load_balancer_ip.clone_from(&free);
    set(&mut web, "connection-limit", "5");
    assert_eq!(scene.ensure(&mut web).await, free);
    assert_eq!(bound(scene).await, (vec![free], 1));
    scene.is_steady(&mut web).await;
}

async fn a_move_to_another_floating_ip_that_was_interrupted_leaves_none(scene: &mut Scene) {
    let external = scene.place().external.clone();
    for writes in 1..4 {
        let (mut web, before, free) = web_and_a_free_one(scene, &external).await;
        web.spec.load_balancer_ip.clone_from(&free);
        scene.work_until(&mut web, ServiceAction::Ensure, writes).await;
        assert!(scene.floating_ips().await.len() == 2 || writes == 3, "{writes}");
        assert_eq!(scene.ensure(&mut web).await, free, "{writes}: from {before}");
        assert_eq!(bound(scene).await, (vec![free.clone()], 1), "{writes}");
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
        let left = scene.floating_ips().await.remove(0);
        scene.write("DELETE", &format!("{FIPS}/{}", id(&left)), Value::Null).await;
    }
}

async fn what_an_interrupted_move_has_left_is_taken_back_or_goes_with_the_service(scene: &mut Scene) {
    let external = scene.place().external.clone();
    for (writes, back) in [(1, Some("")), (1, Some("its address")), (1, None), (2, None)] {
        let (mut web, before, free) = web_and_a_free_one(scene, &external).await;
        web.spec.load_balancer_ip.clone_from(&free);
        assert!(!scene.work_until(&mut web, ServiceAction::Ensure, writes).await);
        if let Some(back) = back {
            web.spec.load_balancer_ip = if back.is_empty() { String::new() } else { before.clone() };
            assert_eq!(scene.ensure(&mut web).await, before);
            assert_eq!(bound(scene).await, (vec![before], 2));
            scene.is_steady(&mut web).await;
        }
        scene.delete(&mut web).await;
        let left = scene.floating_ips().await;
        assert_eq!((left.len(), left[0]["floating_ip_address"].as_str()), (1, Some(&*free)), "{writes} {back:?}");
        scene.write("DELETE", &format!("{FIPS}/{}", id(&left[0])), Value::Null).await;
    }
}

/// `openstack floating ip unset --port` is the way to another address that the Go program has.
async fn a_floating_ip_that_the_user_detaches_for_another_one_stays(scene: &mut Scene) {
    let external = scene.place().external.clone();
    for binds in [false, true] {
        let (mut web, before, free) = web_and_a_free_one(scene, &external).await;
        let all = scene.floating_ips().await;
        for (address, port) in [(&before, Value::Null), (&free, scene.balancer().await["vip_port_id"].clone())] {
            let ip = all.iter().find(|ip| ip["floating_ip_address"] == **address).unwrap();
            if binds || address == &before {
                scene.write("PUT", &format!("{FIPS}/{}", id(ip)), json!({"floatingip": {"port_id": port}})).await;
            }
        }
        web.spec.load_balancer_ip.clone_from(&free);
        scene.events();
        assert_eq!(scene.ensure(&mut web).await, free);
        assert_eq!(bound(scene).await, (vec![free], 2), "{binds}");
        let events = scene.events();
        let is_kept = |event: &&String| event.starts_with("LoadBalancerFloatingIPKept: ") && event.contains(&before);
        assert_eq!((events.len(), events.iter().filter(is_kept).count()), (1, 1), "{events:?}");
        scene.is_steady(&mut web).await;
        scene.delete(&mut web).await;
        assert_eq!(bound(scene).await, (Vec::new(), 2), "{binds}");
        for ip in all {
            scene.write("DELETE", &format!("{FIPS}/{}", id(&ip)), Value::Null).await;
        }
    }
}

async fn floating_settings_that_come_after_the_floating_ip_are_reported(scene: &mut Scene) {
    const NOT_APPLIED: &str = "LoadBalancerSettingNotApplied: ";
    let near = external_subnet(scene, "prod-1", "198.51.100.0/24", &["a"]);
    let (elsewhere, far) = scene.simulation().world(|world| {
        let network = world.network("other", "far", json!({"router:external": true}));
        let seed = SubnetSeed { network: &network, name: "far", cidr: "192.0.2.0/24", ..SubnetSeed::default() };
        let subnet = world.subnet(&seed);
        (network, subnet)
    });
    let external = scene.place().external.clone();
    let present = scene.list(&format!("/v2.0/subnets?network_id={external}")).await;
    let present = present.iter().find(|subnet| subnet["cidr"] == "172.24.4.0/24").unwrap().clone();
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    assert!(address.starts_with("172.24.4."), "{address}");
    let nowhere = "0badbad0-1111-4222-8333-444455556666";
    for (key, value, is_said) in [
        ("floating-network-id", &*elsewhere, true),
        ("floating-network-id", nowhere, true),
        ("floating-network-id", &external, false),
        ("floating-subnet-id", &near, true),
        ("floating-subnet-id", &far, true),
        ("floating-subnet-id", nowhere, true),
        ("floating-subnet-id", id(&present), false),
        ("floating-subnet", "nosuch*", true),
        ("floating-subnet", "~(", true),
        ("floating-subnet", "prod-*", true),
        ("floating-subnet", present["name"].as_str().unwrap(), false),
        ("floating-subnet-tags", "a", true),
        ("floating-subnet-tags", "none", true),
        ("floating-subnet-tags", "!a", false),
    ] {
        set(&mut web, key, value);
        assert_eq!(scene.writes_to_ensure(&mut web).await, "", "{key} {value}");
        let events = scene.events();
        let is_named = |event: &&String| event.starts_with(NOT_APPLIED) && event.contains(key) && event.contains(value);
        assert_eq!(events.iter().filter(is_named).count(), usize::from(is_said), "{key} {value}: {events:?}");
        unset(&mut web, key);
        scene.ensure(&mut web).await;
    }
    // The one that the Service names is in its own subnet.
    web.spec.load_balancer_ip = address;
    set(&mut web, "floating-subnet", "prod-*");
    scene.ensure(&mut web).await;
    assert_eq!(scene.events(), Vec::<String>::new());
}

/// As by the Go program. The second one is of another external network, which another router joins.
async fn of_two_floating_ips_the_first_one_is_published(scene: &mut Scene) {
    let other = another_external_network(scene);
    let (mut web, before, _) = web_and_a_free_one(scene, &other).await;
    let (lb, all) = (scene.balancer().await, scene.floating_ips().await);
    let second = all.iter().find(|ip| ip["floating_ip_address"] != *before).unwrap();
    scene.simulation().world(|world| {
        world.row_mut("floatingip", id(second)).unwrap().set("port_id", lb["vip_port_id"].clone());
    });
    let listed = scene.list(&format!("{FIPS}?port_id={}", lb["vip_port_id"].as_str().unwrap())).await;
    assert_eq!(listed.len(), 2);
    scene.restart().await;
    assert_eq!(json!(scene.ensure(&mut web).await), listed[0]["floating_ip_address"]);
    scene.is_steady(&mut web).await;
}
