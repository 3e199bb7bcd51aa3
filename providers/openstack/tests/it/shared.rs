//! Balancers that several Services use, and those of other clusters.

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{ProviderError, Scope, Service, ServiceAction, ServiceAnswer, ServiceWork};
use serde_json::{Value, json};

use crate::scene::{CLUSTER, GROUPS, INTERNAL, LBS, Scene, annotation, forget, id, service, set, texts, unset, web};

ccm_test_openstack::cases! { [crate::scene]
    both:
        sharers_leave_in_any_order,
        a_balancer_of_another_cluster_is_joined_and_left_without_touching_foreign_tags,
        a_new_cluster_name_renames_what_is_ours_alone;
    simulated:
        a_new_cluster_name_renames_the_parts_of_sharers,
        a_full_or_internal_sharer_is_refused_before_any_write,
        what_is_wrong_with_a_sharer_does_not_hold_up_the_others,
        an_owner_that_is_made_again_gets_the_balancer_that_others_kept,
        the_balancer_that_a_service_left_for_a_shared_one_goes_with_it,
        the_balancer_that_a_service_left_stays_for_those_that_share_it,
        a_health_monitor_that_cannot_be_read_keeps_no_balancer_that_a_service_left,
        a_left_balancer_that_may_be_of_another_cluster_is_reported,
        a_service_that_moves_from_a_shared_balancer_leaves_nothing_on_it,
        a_service_that_is_deleted_in_a_move_leaves_nothing_on_the_shared_balancer,
        a_shared_balancer_whose_owner_has_gone_goes_with_the_service_that_left_it,
        a_balancer_that_a_service_of_another_cluster_shares_stays,
        a_listener_of_another_service_stays_when_the_owner_goes,
        a_shared_balancer_in_error_goes_with_its_last_services,
        a_port_removed_before_the_deletion_leaves_no_listener,
        a_port_that_another_service_has_is_refused_whatever_its_protocol;
}

const WEB: &str = "kube_service_kubernetes_shop_web";
const API: &str = "kube_service_kubernetes_shop_api";

/// `shop/api` with the port 8080 on the balancer of another Service.
fn api(owner: &Service) -> Service {
    let mut api = service("api", &[(8080, 30808)], json!({}));
    set(&mut api, "load-balancer-id", annotation(owner, "load-balancer-id").unwrap());
    api
}

async fn sharers_leave_in_any_order(scene: &mut Scene) {
    for owner_first in [true, false] {
        let mut web = web();
        let address = scene.ensure(&mut web).await;
        let mut api = api(&web);
        let (calls, same) = scene.counted(scene.ensure(&mut api)).await;
        assert_eq!(same, address);
        assert_eq!(calls.of("loadbalancer_create") + calls.of("floating_ip_create"), 0);
        assert_eq!(texts(&scene.balancer().await["tags"]), [API, WEB]);
        assert_eq!(texts(&scene.listeners().await[1]["tags"]), [API]);
        for service in [&mut web, &mut api] {
            scene.is_steady(service).await;
        }
        let (first, second, stays) = if owner_first { (&mut web, &mut api, API) } else { (&mut api, &mut web, WEB) };
        scene.delete(first).await;
        assert_eq!(texts(&scene.balancer().await["tags"]), [stays]);
        let listeners = scene.listeners().await;
        assert_eq!((listeners.len(), texts(&listeners[0]["tags"])), (1, vec![stays]));
        assert_eq!((scene.pools().await.len(), scene.floating_ips().await.len()), (1, 1));
        forget(second);
        scene.is_steady(second).await;
        scene.delete(second).await;
        scene.is_empty().await;
    }
}

async fn what_is_wrong_with_a_sharer_does_not_hold_up_the_others(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut api = api(&web);
    scene.ensure(&mut api).await;
    let groups = scene.groups().await;
    let of_api = groups.iter().find(|group| group["name"].as_str().unwrap().ends_with("-api")).unwrap();
    scene.make(GROUPS, "security_group", json!({"name": of_api["name"]})).await;
    for service in [&mut web, &mut api] {
        set(service, "connection-limit", "100");
    }
    let work = [&web, &api].map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure));
    let answers = loop {
        let answers = scene.process.balancers.reconcile(CLUSTER, &work, &Scope::default()).await;
        let is_at_work = |answer: &ServiceAnswer| answer.result.as_ref().is_err_and(ProviderError::is_in_progress);
        if !answers.iter().any(is_at_work) {
            break answers;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert!(answers[0].result.is_ok(), "{answers:?}");
    let error = answers[1].result.as_ref().unwrap_err().to_string();
    assert!(error.contains("2 security groups have the name"), "{error}");
    let limits: Vec<Value> = scene.listeners().await.iter().map(|it| it["connection_limit"].clone()).collect();
    assert_eq!(limits, [100, 100], "a setting needs no group");
}

async fn a_port_that_another_service_has_is_refused_whatever_its_protocol(scene: &mut Scene) {
    let mut web = web();
    set(&mut web, "x-forwarded-for", "true");
    scene.ensure(&mut web).await;
    let mut api = api(&web);
    api.spec.ports[0].port = 80;
    let (calls, error) = scene.counted(scene.refused(&mut api)).await;
    assert!(error.contains(&format!("the listener port 80 already exists (HTTP, used by {WEB})")), "{error}");
    assert_eq!(calls.writes(), "");
    api.spec.ports[0].protocol = "UDP".to_owned();
    scene.ensure(&mut api).await;
    assert_eq!(scene.listeners().await.len(), 2);
}

async fn a_full_or_internal_sharer_is_refused_before_any_write(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut internal = api(&web);
    set(&mut internal, INTERNAL, "true");
    let (calls, error) = scene.counted(scene.refused(&mut internal)).await;
    assert!(error.contains("internal Service cannot share a load balancer"), "{error}");
    assert_eq!(calls.writes(), "");
    let mut second = api(&web);
    scene.ensure(&mut second).await;
    let mut third = service("third", &[(9090, 30909)], json!({}));
    set(&mut third, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    let (calls, error) = scene.counted(scene.refused(&mut third)).await;
    assert!(error.contains("already shared with 2 Services"), "{error}");
    assert_eq!(calls.writes(), "");
    scene.configure("[LoadBalancer]\nmax-shared-lb = 3\n").await;
    scene.ensure(&mut third).await;
    assert_eq!(scene.listeners().await.len(), 3);
}

async fn a_balancer_of_another_cluster_is_joined_and_left_without_touching_foreign_tags(scene: &mut Scene) {
    let other = scene.process_of("other").await;
    let mut theirs = web();
    other.work(&mut theirs, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let tag = "kube_service_other_shop_web";
    // The same namespace, another name.
    let mut api = api(&theirs);
    scene.ensure(&mut api).await;
    let lb = scene.balancer().await;
    assert_eq!((&lb["name"], texts(&lb["tags"])), (&json!(tag), vec![API, tag]));
    scene.is_steady(&mut api).await;
    let before = other.calls();
    forget(&mut theirs);
    other.work(&mut theirs, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    assert_eq!((other.calls() - before).writes(), "");
    scene.delete(&mut api).await;
    let lb = scene.balancer().await;
    assert_eq!((&lb["name"], texts(&lb["tags"]), scene.listeners().await.len()), (&json!(tag), vec![tag], 1));
    other.work(&mut theirs, &scene.nodes, ServiceAction::Delete).await.unwrap();
    scene.is_empty().await;
}

async fn a_new_cluster_name_renames_what_is_ours_alone(scene: &mut Scene) {
    let old = scene.process_of("old_one").await;
    let mut web = service("web", &[(80, 30080), (443, 30443)], json!({}));
    set(&mut web, "enable-health-monitor", "true");
    old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let foreign = json!({"name": "listener_0_kube_service_x_y_z", "protocol": "TCP", "protocol_port": 9, "tags": ["kube_service_x_y_z"],
        "loadbalancer_id": annotation(&web, "load-balancer-id")});
    scene.make("/v2.0/lbaas/listeners", "listener", foreign).await;
    forget(&mut web);
    let address = scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    assert_eq!((&lb["name"], texts(&lb["tags"])), (&json!(WEB), vec![WEB]));
    assert_eq!(lb["description"], "Kubernetes external service shop/web from cluster kubernetes");
    let listeners = scene.listeners().await;
    assert_eq!(
        (&listeners[0]["name"], texts(&listeners[0]["tags"])),
        (&json!("listener_0_kube_service_x_y_z"), vec!["kube_service_x_y_z"])
    );
    assert_eq!((&listeners[2]["name"], texts(&listeners[2]["tags"])), (&json!(format!("listener_1_{WEB}")), vec![WEB]));
    assert_eq!(scene.pool().await["name"], format!("pool_0_{WEB}"));
    assert!(scene.monitors().await.iter().all(|monitor| monitor["name"].as_str().unwrap().ends_with(WEB)));
    let events = scene.events();
    assert!(events.len() == 1 && events[0].starts_with("LoadBalancerRename: "), "{events:?}");
    assert_eq!(scene.ensure(&mut web).await, address);
    scene.is_steady(&mut web).await;
    // Its floating IP is still recognized as ours.
    let foreign = format!("/v2.0/lbaas/listeners/{}", id(&listeners[0]));
    scene.write("DELETE", &foreign, Value::Null).await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// In any order of syncs, and also when a sharing Service is deleted without another sync.
async fn a_new_cluster_name_renames_the_parts_of_sharers(scene: &mut Scene) {
    for order in [["web", "api"], ["api", "web"], ["web", ""]] {
        let old = scene.process_of("old_one").await;
        let mut web = web();
        old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
        let mut api = api(&web);
        set(&mut api, "enable-health-monitor", "true");
        let address = status_ip(old.work(&mut api, &scene.nodes, ServiceAction::Ensure).await);
        let mut tags = vec!["kube_service_old_one_shop_api", "kube_service_old_one_shop_web"];
        assert_eq!(texts(&scene.balancer().await["tags"]), tags);
        for name in order {
            let (service, tag) = if name == "web" { (&mut web, WEB) } else { (&mut api, API) };
            if !name.is_empty() {
                assert_eq!(scene.ensure(service).await, address);
                scene.is_steady(service).await;
                tags[usize::from(name == "web")] = tag;
                let shown = scene.balancer().await["tags"].clone();
                assert!(texts(&shown).len() == 2 && tags.iter().all(|tag| texts(&shown).contains(tag)), "{shown}");
            }
        }
        if order[1].is_empty() {
            scene.delete(&mut api).await;
            assert_eq!((texts(&scene.balancer().await["tags"]), scene.listeners().await.len()), (vec![WEB], 1));
        } else {
            assert_eq!(scene.balancer().await["name"], WEB);
            for (parts, kind) in [(scene.listeners().await, "listener"), (scene.pools().await, "pool")] {
                let mut names: Vec<&str> = parts.iter().filter_map(|part| part["name"].as_str()).collect();
                names.sort_unstable();
                assert_eq!(names, [format!("{kind}_0_{API}"), format!("{kind}_0_{WEB}")]);
            }
            assert_eq!(scene.monitors().await[0]["name"], format!("monitor_0_{API}"));
            assert_eq!(texts(&scene.listeners().await[1]["tags"]), [API]);
            scene.delete(&mut api).await;
        }
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

async fn an_owner_that_is_made_again_gets_the_balancer_that_others_kept(scene: &mut Scene) {
    let mut first = web();
    let address = scene.ensure(&mut first).await;
    let mut api = api(&first);
    scene.ensure(&mut api).await;
    scene.delete(&mut first).await;
    scene.simulation().clock().step(std::time::Duration::from_secs(120));
    scene.restart().await;
    let mut again = web();
    again.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000009".into();
    again.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    assert_eq!(scene.ensure(&mut again).await, address);
    assert_eq!((texts(&scene.balancer().await["tags"]), scene.listeners().await.len()), (vec![API, WEB], 2));
    for service in [&mut again, &mut api] {
        scene.is_steady(service).await;
    }
    // With members of another cluster behind its own listener, it is that cluster's.
    scene.simulation().world(|world| {
        let of_web = world.table("member").values().filter(|row| row.number("protocol_port") == 30080);
        let ids: Vec<String> = of_web.map(|row| row.id().to_owned()).collect();
        for (at, id) in ids.iter().enumerate() {
            world.row_mut("member", id).unwrap().set("address", format!("10.50.0.{}", 200 + at));
        }
    });
    scene.restart().await;
    let mut copy = web();
    copy.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000010".into();
    copy.metadata.creation_timestamp = again.metadata.creation_timestamp;
    let error = scene.refused(&mut copy).await;
    assert!(error.contains("nothing shows that it belongs to this cluster"), "{error}");
}

fn status_ip(answer: crate::scene::Answer) -> String {
    answer.unwrap().unwrap().ingress[0].ip.clone()
}

async fn a_port_removed_before_the_deletion_leaves_no_listener(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut api = service("api", &[(8080, 30808), (8081, 30809)], json!({}));
    set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    set(&mut api, "enable-health-monitor", "true");
    scene.ensure(&mut api).await;
    api.spec.ports.pop();
    scene.delete(&mut api).await;
    assert_eq!((scene.listeners().await.len(), scene.pools().await.len(), scene.monitors().await.len()), (1, 1, 0));
    // Without the annotation, a sharing Service gets a balancer of its own.
    unset(&mut api, "load-balancer-id");
    scene.ensure(&mut api).await;
    assert_eq!(scene.list(LBS).await.len(), 2);
}

async fn the_balancer_that_a_service_left_for_a_shared_one_goes_with_it(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut own = service("api", &[(8080, 30808)], json!({}));
    scene.ensure(&mut own).await;
    set(&mut own, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    scene.ensure(&mut own).await;
    assert_eq!((scene.balancers().await.len(), scene.listeners().await.len()), (2, 3));
    scene.delete(&mut own).await;
    assert_eq!((scene.listeners().await.len(), scene.floating_ips().await.len()), (1, 1));
    assert_eq!(texts(&scene.balancer().await["tags"]), [WEB]);
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// Octavia deletes it with its parts.
async fn a_health_monitor_that_cannot_be_read_keeps_no_balancer_that_a_service_left(scene: &mut Scene) {
    let project = scene.place().project.clone();
    scene.simulation().world(|world| drop(world.user("boss", "secret", &project, &["admin"])));
    scene.configure("username = boss\npassword = secret\n[LoadBalancer]\ncreate-monitor = true\n").await;
    let mut own = service("api", &[(8080, 30808)], json!({}));
    scene.ensure(&mut own).await;
    let monitor = id(&scene.monitors().await[0]).to_owned();
    let mut web = web();
    scene.ensure(&mut web).await;
    set(&mut own, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    scene.ensure(&mut own).await;
    scene.simulation().world(|world| world.row_mut("healthmonitor", &monitor).unwrap().set("project_id", "other"));
    let rule = Rule::every(Fault::Deny).on("load-balancer", "loadbalancer_healthmonitor_list");
    scene.simulation().fault(Rule { params: Some(format!("id={monitor}")), ..rule });
    scene.delete(&mut own).await;
    assert_eq!((scene.balancers().await.len(), texts(&scene.balancer().await["tags"])), (1, vec![WEB]));
}

async fn the_balancer_that_a_service_left_stays_for_those_that_share_it(scene: &mut Scene) {
    for conf in ["", "[LoadBalancer]\ncascade-delete = false\ncreate-monitor = true\n"] {
        scene.configure(conf).await;
        let mut other = service("other", &[(9090, 30909)], json!({}));
        scene.ensure(&mut other).await;
        let mut web = web();
        let address = scene.ensure(&mut web).await;
        let mut api = api(&web);
        scene.ensure(&mut api).await;
        set(&mut web, "load-balancer-id", annotation(&other, "load-balancer-id").unwrap());
        scene.ensure(&mut web).await;
        scene.delete(&mut web).await;
        let owner = "kube_service_kubernetes_shop_other";
        let listeners = scene.listeners().await;
        let tags: Vec<_> = listeners.iter().map(|listener| texts(&listener["tags"])).collect();
        assert_eq!(tags, [[API], [owner]]);
        let balancers = scene.balancers().await;
        let mut tags: Vec<_> = balancers.iter().map(|lb| texts(&lb["tags"])).collect();
        tags.sort();
        assert_eq!((tags, scene.floating_ips().await.len()), (vec![vec![API], vec![owner]], 2));
        assert_eq!(scene.ensure(&mut api).await, address);
        scene.is_steady(&mut api).await;
        for service in [&mut api, &mut other] {
            scene.delete(service).await;
        }
        scene.is_empty().await;
    }
}

/// A join of the Go program, which writes the tag of the load balancer last.
async fn a_listener_of_another_service_stays_when_the_owner_goes(scene: &mut Scene) {
    for conf in ["", "[LoadBalancer]\ncascade-delete = false\n"] {
        scene.configure(conf).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        let listener = json!({"name": format!("listener_0_{API}"), "protocol": "TCP", "protocol_port": 8080, "tags": [API],
            "loadbalancer_id": annotation(&web, "load-balancer-id")});
        scene.make("/v2.0/lbaas/listeners", "listener", listener).await;
        let mut api = api(&web);
        scene.delete(&mut web).await;
        let left = scene.listeners().await;
        assert_eq!((left.len(), texts(&left[0]["tags"]), scene.floating_ips().await.len()), (1, vec![API], 1));
        scene.ensure(&mut api).await;
        scene.delete(&mut api).await;
        scene.is_empty().await;
    }
}

/// Octavia takes no change of a balancer in ERROR: nobody can leave it.
async fn a_shared_balancer_in_error_goes_with_its_last_services(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut api = api(&web);
    scene.ensure(&mut api).await;
    let lb = scene.balancer().await;
    scene.cloud.set_status(id(&lb), "ERROR").await;
    for service in [&mut web, &mut api] {
        forget(service);
    }
    let delete = async |service: &mut Service| scene.process.work(service, &scene.nodes, ServiceAction::Delete).await;
    delete(&mut api).await.unwrap_err();
    // A Service that is wanted again keeps it, also when it is looked up.
    scene.refused(&mut api).await;
    scene.process.balancers.get(CLUSTER, &api).await.unwrap();
    delete(&mut web).await.unwrap_err();
    assert_eq!(scene.listeners().await.len(), 2);
    // The first one may use what the lookup has just seen.
    let _ = delete(&mut api).await;
    delete(&mut api).await.unwrap();
    delete(&mut web).await.unwrap();
    scene.is_empty().await;
}

async fn a_left_balancer_that_may_be_of_another_cluster_is_reported(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut own = service("api", &[(8080, 30808)], json!({}));
    scene.ensure(&mut own).await;
    let left = annotation(&own, "load-balancer-id").unwrap().to_owned();
    set(&mut own, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    scene.ensure(&mut own).await;
    scene.nodes = vec![scene.node("new-1").await];
    scene.restart().await;
    scene.update_hosts(&mut own).await;
    scene.delete(&mut own).await;
    assert_eq!(scene.balancers().await.len(), 2);
    let events = scene.events();
    let names = |event: &&String| event.starts_with("LoadBalancerNotOurs: ") && event.contains(&left);
    assert_eq!(events.iter().filter(names).count(), 1, "{events:?}");
}

/// `shop/other` with a balancer of its own.
async fn other(scene: &Scene) -> Service {
    let mut other = service("other", &[(9090, 30909)], json!({}));
    scene.ensure(&mut other).await;
    other
}

/// The tags of the balancers, and the number of listeners of each, by name.
async fn used(scene: &Scene) -> Vec<(String, Vec<String>, usize)> {
    let mut used: Vec<_> = scene
        .balancers()
        .await
        .iter()
        .map(|lb| {
            let tags = texts(&lb["tags"]).into_iter().map(str::to_owned).collect();
            (lb["name"].as_str().unwrap().to_owned(), tags, lb["listeners"].as_array().unwrap().len())
        })
        .collect();
    used.sort();
    used
}

async fn a_service_that_moves_from_a_shared_balancer_leaves_nothing_on_it(scene: &mut Scene) {
    for (is_by_hand, to_other) in [(false, true), (false, false), (true, true), (true, false)] {
        let other = &mut other(scene).await;
        let mut web = web();
        let mut api = match is_by_hand {
            false => {
                scene.ensure(&mut web).await;
                api(&web)
            }
            true => {
                let lb = json!({"name": "by-hand", "vip_subnet_id": scene.place().subnet});
                let lb = scene.make(LBS, "loadbalancer", lb).await;
                let port = scene.balancers().await.iter().find(|it| id(it) == lb).unwrap()["vip_port_id"].clone();
                let ip = json!({"floating_network_id": scene.place().external, "port_id": port});
                scene.make(crate::scene::FIPS, "floatingip", ip).await;
                let mut api = service("api", &[(8080, 30808)], json!({}));
                set(&mut api, "load-balancer-id", &lb);
                api
            }
        };
        scene.ensure(&mut api).await;
        let before = used(scene).await;
        match to_other {
            true => set(&mut api, "load-balancer-id", annotation(other, "load-balancer-id").unwrap()),
            false => unset(&mut api, "load-balancer-id"),
        }
        scene.ensure(&mut api).await;
        scene.is_steady(&mut api).await;
        let left = if is_by_hand { "by-hand" } else { WEB };
        let (_, tags, listeners) = used(scene).await.into_iter().find(|(name, ..)| name == left).unwrap();
        let own = if is_by_hand { Vec::new() } else { vec![WEB.to_owned()] };
        assert_eq!((tags, listeners), (own.clone(), own.len()), "{before:?}");
        assert_eq!(
            (scene.pools().await.len(), scene.pools().await.len()),
            (scene.listeners().await.len(), own.len() + 2)
        );
        for service in [&mut api, other] {
            scene.delete(service).await;
        }
        match is_by_hand {
            false => scene.delete(&mut web).await,
            true => {
                let lb = scene.balancer().await;
                scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
                let ip = scene.floating_ips().await[0].clone();
                scene.write("DELETE", &format!("{}/{}", crate::scene::FIPS, id(&ip)), Value::Null).await;
                while !scene.balancers().await.is_empty() {}
            }
        }
        scene.is_empty().await;
    }
}

async fn a_service_that_is_deleted_in_a_move_leaves_nothing_on_the_shared_balancer(scene: &mut Scene) {
    for is_gone in [false, true] {
        let mut other = other(scene).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        let mut api = api(&web);
        scene.ensure(&mut api).await;
        set(&mut api, "load-balancer-id", annotation(&other, "load-balancer-id").unwrap());
        if is_gone {
            scene.delete(&mut other).await;
        }
        scene.delete(&mut api).await;
        let web_alone = (WEB.to_owned(), vec![WEB.to_owned()], 1);
        assert!(used(scene).await.contains(&web_alone), "{:?}", used(scene).await);
        scene.delete(&mut web).await;
        if !is_gone {
            scene.delete(&mut other).await;
        }
        scene.is_empty().await;
    }
}

async fn a_shared_balancer_whose_owner_has_gone_goes_with_the_service_that_left_it(scene: &mut Scene) {
    for moves in [true, false] {
        let mut other = other(scene).await;
        let mut web = web();
        scene.ensure(&mut web).await;
        let mut api = api(&web);
        scene.ensure(&mut api).await;
        scene.delete(&mut web).await;
        set(&mut api, "load-balancer-id", annotation(&other, "load-balancer-id").unwrap());
        if moves {
            scene.ensure(&mut api).await;
        }
        assert_eq!(scene.balancers().await.len(), 2);
        scene.delete(&mut api).await;
        assert_eq!((scene.balancers().await.len(), scene.floating_ips().await.len()), (1, 1));
        scene.delete(&mut other).await;
        scene.is_empty().await;
    }
}

/// Another cluster of the project with the same --cluster-name.
async fn a_balancer_that_a_service_of_another_cluster_shares_stays(scene: &mut Scene) {
    let (process, nodes) = (scene.process_of(CLUSTER).await, vec![scene.node("their-1").await]);
    for is_ours in [false, true] {
        let mut base = service("base", &[(9090, 30909)], json!({}));
        match is_ours {
            true => drop(scene.ensure(&mut base).await),
            false => drop(process.work(&mut base, &nodes, ServiceAction::Ensure).await.unwrap()),
        }
        let mut theirs = api(&base);
        process.work(&mut theirs, &nodes, ServiceAction::Ensure).await.unwrap();
        let before = used(scene).await;
        let mut ours = service("api", &[(8080, 30808)], json!({}));
        scene.ensure(&mut ours).await;
        scene.events();
        scene.delete(&mut ours).await;
        assert_eq!(used(scene).await, before);
        let events = scene.events();
        let named = annotation(&base, "load-balancer-id").unwrap();
        assert!(
            events.iter().any(|event| event.starts_with("LoadBalancerNotOurs: ") && event.contains(named)),
            "{events:?}"
        );
        for service in [&mut theirs, &mut base] {
            process.work(service, &nodes, ServiceAction::Delete).await.unwrap();
        }
    }
}
