//! Whose a load balancer, a listener and a floating IP are.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::seed::SubnetSeed;
use ccm_provider::{NodeRef, Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{
    CLUSTER, FIPS, INTERNAL, LBS, Process, Scene, annotation, forget, id, service, set, texts, unset, web,
};

ccm_test_openstack::cases! { [crate::scene]
    both:
        a_balancer_of_another_cluster_with_our_name_is_left_alone,
        a_join_that_fails_half_way_leaves_nothing,
        a_listener_with_only_foreign_tags_is_left_alone,
        a_floating_ip_that_was_detached_is_not_deleted;
    simulated:
        a_balancer_is_ours_by_a_member_or_by_the_noted_id,
        a_balancer_is_ours_by_the_published_address,
        a_balancer_without_members_is_ours_by_its_name,
        a_balancer_that_was_ours_by_a_member_stays_ours_without_members,
        a_copy_of_a_service_in_another_cluster_takes_nothing,
        a_member_in_a_network_with_the_same_addresses_is_no_node_of_the_cluster,
        a_balancer_that_reaches_the_nodes_through_a_router_is_ours_by_a_member,
        a_copy_that_is_younger_than_the_balancer_takes_nothing,
        a_copy_that_is_seconds_younger_than_the_balancer_takes_nothing,
        a_service_that_seems_younger_than_its_own_balancer_keeps_it,
        a_copy_of_a_service_that_shares_a_balancer_takes_nothing,
        a_service_that_shares_a_balancer_keeps_it_with_other_nodes_and_with_none,
        a_service_that_is_made_again_gets_what_its_deletion_left_on_a_shared_balancer,
        a_new_cluster_name_renames_what_a_service_without_members_has_on_a_shared_balancer,
        a_failed_join_of_a_namesake_renames_nothing,
        a_loose_floating_ip_of_another_cluster_is_left_alone,
        a_shared_balancer_that_disappears_is_not_replaced;
}

const NOT_OURS: &str = "nothing shows that it belongs to this cluster";

/// Everything in the project, without states that health checks set.
async fn all(scene: &Scene) -> Vec<Value> {
    let mut all = scene.balancers().await;
    all.extend(scene.listeners().await);
    all.extend(scene.pools().await);
    all.extend(scene.whole_members().await);
    all.extend(scene.floating_ips().await);
    all.extend(scene.groups().await);
    for object in &mut all {
        object.as_object_mut().unwrap().remove("operating_status");
    }
    all
}

/// Another cluster with nodes of its own, and its `shop/web`.
async fn neighbor(scene: &Scene, cluster: &str) -> (Process, Vec<NodeRef>, Service) {
    let nodes = vec![scene.node("their-1").await, scene.node("their-2").await];
    let process = scene.process_of(cluster).await;
    let mut theirs = service("web", &[(6666, 31666)], json!({}));
    process.work(&mut theirs, &nodes, ServiceAction::Ensure).await.unwrap();
    (process, nodes, theirs)
}

async fn is_refused(scene: &Scene, web: &mut Service) {
    let error = scene.refused(web).await;
    assert!(error.contains(NOT_OURS), "{error}");
    let events = scene.events();
    assert!(events.iter().any(|event| event.starts_with("LoadBalancerNotOurs: ")), "{events:?}");
}

async fn a_balancer_of_another_cluster_with_our_name_is_left_alone(scene: &mut Scene) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let (process, nodes, mut theirs) = neighbor(scene, CLUSTER).await;
    let before = all(scene).await;
    let mut web = service("web", &[(8888, 30888)], json!({}));
    web.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000001".into();
    is_refused(scene, &mut web).await;
    assert_eq!(annotation(&web, "load-balancer-id"), None);
    let error = scene.process.work(&mut web, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
    assert!(error.to_string().contains(NOT_OURS), "{error}");
    assert_eq!(scene.process.balancers.get(CLUSTER, &web).await.unwrap(), None);
    // Nothing of the Service is there, so its deletion ends; if it ever had an address, that is an error.
    scene.delete(&mut web).await;
    web.status.load_balancer.ingress.push(Default::default());
    web.status.load_balancer.ingress[0].ip = "192.0.2.1".to_owned();
    scene.process.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap_err();
    assert_eq!(all(scene).await, before);
    // The other cluster goes on.
    forget(&mut theirs);
    let calls = process.calls();
    process.work(&mut theirs, &nodes, ServiceAction::Ensure).await.unwrap();
    assert_eq!((process.calls() - calls).writes(), "");
    process.work(&mut theirs, &nodes, ServiceAction::Delete).await.unwrap();
}

async fn a_balancer_is_ours_by_a_member_or_by_the_noted_id(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let noted = web.clone();
    // One node of three is left, and nothing is noted.
    scene.nodes = vec![scene.nodes.remove(0), scene.node("new-1").await];
    unset(&mut web, "load-balancer-id");
    unset(&mut web, "load-balancer-address");
    forget(&mut web);
    scene.restart().await;
    assert_eq!(scene.ensure(&mut web).await, address);
    // All nodes were replaced, and the Service notes the ID.
    scene.nodes = vec![scene.node("new-2").await];
    let mut web = noted;
    scene.restart().await;
    assert_eq!(scene.ensure(&mut web).await, address);
    assert_eq!(scene.members().await, ["new-2 30080"]);
    scene.nodes = vec![scene.node("new-3").await];
    scene.restart().await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// All nodes were replaced, and another program removed the annotations.
async fn a_balancer_is_ours_by_the_published_address(scene: &mut Scene) {
    for is_internal in ["true", "false"] {
        let mut web = web();
        web.metadata.creation_timestamp = Some(scene.simulation().clock().now());
        set(&mut web, INTERNAL, is_internal);
        let address = scene.ensure(&mut web).await;
        web.metadata.annotations.retain(|key, _| key == INTERNAL);
        scene.nodes = vec![scene.node(&format!("new-{is_internal}")).await];
        scene.restart().await;
        let before = all(scene).await;
        is_refused(scene, &mut made_again(scene, &web, 120)).await;
        assert_eq!(all(scene).await, before);
        assert_eq!(scene.ensure(&mut web).await, address);
        assert_eq!(scene.members().await.len(), 1);
        web.metadata.annotations.retain(|key, _| key == INTERNAL);
        scene.nodes = vec![scene.node(&format!("newer-{is_internal}")).await];
        scene.restart().await;
        scene.delete(&mut web).await;
        scene.is_empty().await;
    }
}

async fn a_balancer_without_members_is_ours_by_its_name(scene: &mut Scene) {
    let name = "kube_service_kubernetes_shop_web";
    let lb = json!({"name": name, "tags": [name], "vip_subnet_id": scene.place().subnet});
    let lb = scene.make(LBS, "loadbalancer", lb).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    assert_eq!((annotation(&web, "load-balancer-id"), scene.balancers().await.len()), (Some(&*lb), 1));
}

/// The Go program takes one that is older than its Service.
async fn a_balancer_that_was_ours_by_a_member_stays_ours_without_members(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    scene.simulation().clock().step(std::time::Duration::from_secs(120));
    web.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    scene.restart().await;
    scene.ensure(&mut web).await;
    let nodes = std::mem::take(&mut scene.nodes);
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 0);
    scene.nodes = nodes;
    scene.update_hosts(&mut web).await;
    assert_eq!(scene.members().await.len(), 3);
}

/// A restored backup has the annotations, too.
async fn a_copy_of_a_service_in_another_cluster_takes_nothing(scene: &mut Scene) {
    let (process, nodes, mut theirs) = neighbor(scene, "theirs").await;
    let before = all(scene).await;
    let mut copy = theirs.clone();
    copy.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000002".into();
    copy.status = Default::default();
    is_refused(scene, &mut copy).await;
    scene.process.work(&mut copy, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
    scene.delete(&mut copy).await;
    assert_eq!(all(scene).await, before);
    process.work(&mut theirs, &nodes, ServiceAction::Delete).await.unwrap();
    scene.is_empty().await;
}

/// Clusters are often in networks of their own with the same range.
async fn a_member_in_a_network_with_the_same_addresses_is_no_node_of_the_cluster(scene: &mut Scene) {
    // The status tree does not show the subnet of a member.
    for (cluster, of_vip) in [(CLUSTER, true), ("theirs", true), (CLUSTER, false)] {
        let (process, nodes, mut theirs) = neighbor(scene, cluster).await;
        let (lb, project) = (id(&scene.balancer().await).to_owned(), scene.place().project.clone());
        let ours: Vec<String> =
            scene.nodes.iter().map(|node| node.addresses.iter().next().unwrap().address.to_string()).collect();
        scene.simulation().world(|world| {
            let network = world.network(&project, "theirs", json!({}));
            let subnet = world.subnet(&SubnetSeed { network: &network, cidr: "10.50.0.0/24", ..SubnetSeed::default() });
            if of_vip {
                world.row_mut("loadbalancer", &lb).unwrap().set("vip_subnet_id", &*subnet);
            }
            let members: Vec<String> = world.table("member").values().map(|row| row.id().to_owned()).collect();
            for (member, address) in members.iter().zip(&ours) {
                let row = world.row_mut("member", member).unwrap();
                row.set("address", &**address);
                row.set("subnet_id", &*subnet);
            }
        });
        let before = all(scene).await;
        // A restored backup has the annotations, too.
        let mut copy = if cluster == CLUSTER { web() } else { theirs.clone() };
        copy.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000004".into();
        copy.status = Default::default();
        scene.restart().await;
        is_refused(scene, &mut copy).await;
        scene.process.work(&mut copy, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
        // The same if Neutron refuses to show the subnet.
        scene.restart().await;
        scene.simulation().fault(Rule::every(Fault::Deny).on("network", "subnet_get"));
        is_refused(scene, &mut copy).await;
        scene.simulation().faults(Faults::clear);
        // An older Service, whose annotations were removed, may publish the same address in its own network.
        if cluster == CLUSTER && of_vip {
            copy.status.load_balancer.ingress.push(Default::default());
            copy.status.load_balancer.ingress[0].ip = texts(&json!([scene.balancer().await["vip_address"]]))[0].into();
            scene.restart().await;
            is_refused(scene, &mut copy).await;
            copy.status = Default::default();
        }
        // Without the ports of the nodes, nothing is known of them.
        scene.restart().await;
        scene.simulation().fault(Rule::every(Fault::Deny).on("network", "port_list"));
        let error = scene.refused(&mut copy).await;
        assert!(!error.contains(NOT_OURS), "{error}");
        scene.process.work(&mut copy, &scene.nodes, ServiceAction::Delete).await.unwrap_err();
        scene.simulation().faults(Faults::clear);
        scene.delete(&mut copy).await;
        assert_eq!(all(scene).await, before);
        process.work(&mut theirs, &nodes, ServiceAction::Delete).await.unwrap();
        scene.is_empty().await;
    }
}

async fn a_balancer_that_reaches_the_nodes_through_a_router_is_ours_by_a_member(scene: &mut Scene) {
    let network = scene.place().network.clone();
    let seed = SubnetSeed { network: &network, cidr: "10.51.0.0/24", ..SubnetSeed::default() };
    let subnet = scene.simulation().world(|world| world.subnet(&seed));
    scene.configure(&format!("[LoadBalancer]\nsubnet-id = {subnet}\ninternal-lb = true\n")).await;
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    assert!(scene.whole_members().await.iter().all(|member| member["subnet_id"] == *subnet));
    let lb = id(&scene.balancer().await).to_owned();
    for is_hidden in [false, true] {
        // Neutron does not show the subnets of an external network.
        scene.simulation().world(|world| {
            if is_hidden {
                world
                    .row_mut("loadbalancer", &lb)
                    .unwrap()
                    .set("vip_subnet_id", "0badbad0-1111-4222-8333-444455556666");
                let members: Vec<String> = world.table("member").values().map(|row| row.id().to_owned()).collect();
                members.iter().for_each(|id| world.row_mut("member", id).unwrap().set("subnet_id", Value::Null));
            }
        });
        unset(&mut web, "load-balancer-id");
        unset(&mut web, "load-balancer-address");
        forget(&mut web);
        scene.restart().await;
        assert_eq!(scene.ensure(&mut web).await, address);
    }
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn a_copy_that_is_younger_than_the_balancer_takes_nothing(scene: &mut Scene) {
    let (_, _, theirs) = neighbor(scene, CLUSTER).await;
    let before = all(scene).await;
    let mut copy = theirs.clone();
    copy.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000003".into();
    copy.status = Default::default();
    copy.metadata.creation_timestamp = Some("2999-01-01T00:00:00Z".parse().unwrap());
    is_refused(scene, &mut copy).await;
    scene.delete(&mut copy).await;
    assert_eq!(all(scene).await, before);
    // Its user asks for it.
    let mut asked = copy;
    set(&mut asked, "load-balancer-id", annotation(&theirs, "load-balancer-id").unwrap());
    unset(&mut asked, "load-balancer-address");
    scene.ensure(&mut asked).await;
    assert_eq!(scene.balancers().await.len(), 1);
}

/// The clocks of the cloud and of the API server may differ by that.
async fn a_copy_that_is_seconds_younger_than_the_balancer_takes_nothing(scene: &mut Scene) {
    let (_, _, theirs) = neighbor(scene, CLUSTER).await;
    let before = all(scene).await;
    let mut copy = theirs.clone();
    copy.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000005".into();
    copy.status = Default::default();
    scene.simulation().clock().step(std::time::Duration::from_secs(2));
    copy.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    is_refused(scene, &mut copy).await;
    scene.process.work(&mut copy, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
    scene.delete(&mut copy).await;
    assert_eq!(all(scene).await, before);
}

/// Its members show that it is ours, or it has none.
async fn a_service_that_seems_younger_than_its_own_balancer_keeps_it(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    scene.simulation().clock().step(std::time::Duration::from_secs(30));
    web.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    for has_nodes in [true, false] {
        scene.restart().await;
        assert_eq!(scene.ensure(&mut web).await, address);
        scene.is_steady(&mut web).await;
        let nodes = std::mem::take(&mut scene.nodes);
        scene.update_hosts(&mut web).await;
        assert_eq!(scene.members().await.len(), 0);
        if has_nodes {
            scene.nodes = nodes;
            scene.restart().await;
            scene.update_hosts(&mut web).await;
        }
    }
    // Also if all nodes were replaced while the process was away.
    for name in ["new-1", "new-2"] {
        scene.nodes = vec![scene.node(name).await];
        scene.restart().await;
        assert_eq!(scene.ensure(&mut web).await, address);
        assert_eq!(scene.members().await.len(), 1);
    }
    scene.restart().await;
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

/// Namespace and name are the same in both clusters.
/// `shop/api` on the balancer of another Service.
fn api(owner: &Service) -> Service {
    let mut api = service("api", &[(8080, 30808)], json!({}));
    set(&mut api, "load-balancer-id", annotation(owner, "load-balancer-id").unwrap());
    api
}

/// The same Service with another UID, made some seconds later.
fn made_again(scene: &Scene, service: &Service, seconds: u64) -> Service {
    let mut again = service.clone();
    again.metadata.uid = "0badbad0-aaaa-4bbb-8ccc-000000000006".into();
    scene.simulation().clock().step(std::time::Duration::from_secs(seconds));
    again.metadata.creation_timestamp = Some(scene.simulation().clock().now());
    again
}

async fn a_copy_of_a_service_that_shares_a_balancer_takes_nothing(scene: &mut Scene) {
    let (process, nodes, mut theirs) = neighbor(scene, CLUSTER).await;
    let mut shares = api(&theirs);
    process.work(&mut shares, &nodes, ServiceAction::Ensure).await.unwrap();
    for is_last in [false, true] {
        if is_last {
            process.work(&mut theirs, &nodes, ServiceAction::Delete).await.unwrap();
        }
        let mut young = made_again(scene, &shares, 2);
        young.status = Default::default();
        // The other cluster may make the listener again.
        let mut old = young.clone();
        old.metadata.creation_timestamp = Some("2000-01-01T00:00:00Z".parse().unwrap());
        let with_status = made_again(scene, &shares, 120);
        let before = all(scene).await;
        for mut copy in [young, old, with_status] {
            scene.restart().await;
            is_refused(scene, &mut copy).await;
            scene.process.work(&mut copy, &scene.nodes, ServiceAction::UpdateHosts).await.unwrap_err();
            let deleted = scene.process.work(&mut copy, &scene.nodes, ServiceAction::Delete).await;
            assert_eq!(deleted.is_ok(), copy.status == Default::default(), "{deleted:?}");
            assert_eq!(all(scene).await, before);
        }
    }
    // Its user asks for it.
    let mut asked = made_again(scene, &api(&shares), 120);
    scene.ensure(&mut asked).await;
    assert_eq!(scene.members().await.len(), 3);
    scene.delete(&mut asked).await;
    scene.is_empty().await;
}

async fn a_service_that_shares_a_balancer_keeps_it_with_other_nodes_and_with_none(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let mut shares = made_again(scene, &api(&web), 120);
    let address = scene.ensure(&mut shares).await;
    for name in ["new-1", "new-2"] {
        scene.nodes = vec![scene.node(name).await];
        scene.restart().await;
        forget(&mut shares);
        assert_eq!(scene.ensure(&mut shares).await, address);
        let nodes = std::mem::take(&mut scene.nodes);
        scene.restart().await;
        scene.update_hosts(&mut shares).await;
        scene.nodes = nodes;
    }
    scene.delete(&mut web).await;
    scene.restart().await;
    scene.delete(&mut shares).await;
    scene.is_empty().await;
}

/// Somebody removed the finalizer.
async fn a_service_that_is_made_again_gets_what_its_deletion_left_on_a_shared_balancer(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    for writes in 0..3 {
        let mut first = api(&web);
        scene.ensure(&mut first).await;
        if writes > 0 {
            assert!(!scene.work_until(&mut first.clone(), ServiceAction::Delete, writes).await);
            scene.settle().await;
        }
        let mut exported = made_again(scene, &first, 120);
        exported.status = Default::default();
        scene.restart().await;
        scene.ensure(&mut exported).await;
        let listeners = scene.listeners().await;
        assert_eq!((listeners.len(), scene.members().await.len()), (2, 6), "{writes}");
        scene.is_steady(&mut exported).await;
        // The process knows them when all are other ones.
        let new = vec![scene.node("new-1").await];
        let nodes = std::mem::replace(&mut scene.nodes, new);
        scene.update_hosts(&mut exported).await;
        scene.nodes = nodes;
        scene.ensure(&mut web).await;
        scene.delete(&mut exported).await;
        assert_eq!(scene.listeners().await.len(), 1);
    }
}

async fn a_new_cluster_name_renames_what_a_service_without_members_has_on_a_shared_balancer(scene: &mut Scene) {
    let old = scene.process_of("old").await;
    let mut web = web();
    old.work(&mut web, &scene.nodes, ServiceAction::Ensure).await.unwrap();
    let mut shares = made_again(scene, &api(&web), 120);
    old.work(&mut shares, &[], ServiceAction::Ensure).await.unwrap();
    // One in another cluster, from a backup.
    let mut copy = made_again(scene, &shares, 120);
    copy.status = Default::default();
    let before = all(scene).await;
    is_refused(scene, &mut copy).await;
    assert_eq!(all(scene).await, before);
    scene.restart().await;
    scene.process.work(&mut shares, &[], ServiceAction::UpdateHosts).await.unwrap();
    scene.ensure(&mut shares).await;
    let mut tags = texts(&scene.balancer().await["tags"]).into_iter().map(str::to_owned).collect::<Vec<_>>();
    tags.sort();
    assert_eq!(tags, ["kube_service_kubernetes_shop_api", "kube_service_old_shop_web"]);
    assert_eq!((scene.listeners().await.len(), scene.members().await.len()), (2, 6));
    scene.is_steady(&mut shares).await;
    scene.delete(&mut shares).await;
    old.work(&mut web, &scene.nodes, ServiceAction::Delete).await.unwrap();
    scene.is_empty().await;
}

async fn a_failed_join_of_a_namesake_renames_nothing(scene: &mut Scene) {
    let (_, _, theirs) = neighbor(scene, "theirs").await;
    let name = scene.balancer().await["name"].clone();
    let mut web = web();
    set(&mut web, "load-balancer-id", annotation(&theirs, "load-balancer-id").unwrap());
    let refused = Fault::Code { status: 403, code: String::new(), message: "no".to_owned() };
    scene.simulation().fault(Rule::every(refused).on("load-balancer", "loadbalancer_pool_create").window(0, 2));
    for _ in 0..2 {
        scene.refused(&mut web).await;
        assert_eq!(scene.balancer().await["name"], name);
    }
    scene.ensure(&mut web).await;
    assert_eq!(scene.balancer().await["name"], name);
    assert_eq!(scene.listeners().await.len(), 2);
    scene.delete(&mut web).await;
    assert_eq!((scene.balancer().await["name"].clone(), scene.listeners().await.len()), (name, 1));
}

async fn a_join_that_fails_half_way_leaves_nothing(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let before = scene.listeners().await;
    let mut api = service("api", &[(8080, 30808)], json!({}));
    set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    for writes in 1..3 {
        assert!(!scene.work_until(&mut api, ServiceAction::Ensure, writes).await);
        scene.settle().await;
        assert_eq!(texts(&scene.balancer().await["tags"]).len(), 2, "the tag is the first write");
        scene.delete(&mut api).await;
        assert_eq!((scene.listeners().await.len(), scene.pools().await.len()), (before.len(), 1));
        assert_eq!(texts(&scene.balancer().await["tags"]), ["kube_service_kubernetes_shop_web"]);
        set(&mut api, "load-balancer-id", annotation(&web, "load-balancer-id").unwrap());
    }
    // A join of the Go program, which wrote the tag last.
    let listener = json!({"name": "listener_0_kube_service_kubernetes_shop_api", "protocol": "TCP", "protocol_port": 8080,
        "tags": ["kube_service_kubernetes_shop_api"], "loadbalancer_id": annotation(&web, "load-balancer-id")});
    scene.make("/v2.0/lbaas/listeners", "listener", listener).await;
    scene.delete(&mut api).await;
    assert_eq!(scene.listeners().await.len(), before.len());
    scene.delete(&mut web).await;
    scene.is_empty().await;
}

async fn a_listener_with_only_foreign_tags_is_left_alone(scene: &mut Scene) {
    let mut web = web();
    scene.ensure(&mut web).await;
    let listener = json!({"name": "mine", "protocol": "TCP", "protocol_port": 9, "tags": ["terraform"],
        "loadbalancer_id": annotation(&web, "load-balancer-id")});
    let listener = scene.make("/v2.0/lbaas/listeners", "listener", listener).await;
    forget(&mut web);
    assert_eq!(scene.writes_to_ensure(&mut web).await, "");
    assert_eq!(id(&scene.listener().await), listener);
    web.spec.ports[0].port = 9;
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    assert!(error.contains("the listener port 9 already exists"), "{error}");
    assert_eq!(calls.writes(), "");
    // One without any tags is a leftover of older programs.
    web.spec.ports[0].port = 80;
    scene.write("PUT", &format!("/v2.0/lbaas/listeners/{listener}"), json!({"listener": {"tags": []}})).await;
    forget(&mut web);
    scene.ensure(&mut web).await;
    assert_eq!(scene.listeners().await.len(), 1);
}

async fn a_floating_ip_that_was_detached_is_not_deleted(scene: &mut Scene) {
    let mut web = web();
    let address = scene.ensure(&mut web).await;
    let ip = scene.floating_ips().await.remove(0);
    scene.write("PUT", &format!("{FIPS}/{}", id(&ip)), json!({"floatingip": {"port_id": null}})).await;
    scene.events();
    scene.delete(&mut web).await;
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), &left[0]["floating_ip_address"]), (1, &json!(address)));
    let events = scene.events();
    assert!(events.iter().any(|event| event.starts_with("LoadBalancerFloatingIPKept: ")), "{events:?}");
    scene.write("DELETE", &format!("{FIPS}/{}", id(&ip)), Value::Null).await;
    scene.is_empty().await;
}

/// Its description has only the names of cluster and Service.
async fn a_loose_floating_ip_of_another_cluster_is_left_alone(scene: &mut Scene) {
    let description = "Floating IP for Kubernetes external service shop/web from cluster kubernetes";
    let body = json!({"floating_network_id": scene.place().external, "description": description});
    let ip = scene.make(FIPS, "floatingip", body).await;
    let mut web = web();
    scene.delete(&mut web).await;
    let theirs = scene.floating_ips().await.remove(0);
    assert_ne!(json!(scene.ensure(&mut web).await), theirs["floating_ip_address"]);
    forget(&mut web);
    scene.ensure(&mut web).await;
    let lb = scene.balancer().await;
    scene.write("DELETE", &format!("{LBS}/{}?cascade=true", id(&lb)), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    scene.delete(&mut web).await;
    let left = scene.floating_ips().await;
    assert_eq!((left.len(), id(&left[0])), (1, &*ip));
}

async fn a_shared_balancer_that_disappears_is_not_replaced(scene: &mut Scene) {
    let lb = json!({"name": "by-hand", "vip_subnet_id": scene.place().subnet});
    let lb = scene.make(LBS, "loadbalancer", lb).await;
    let body = json!({"floating_network_id": scene.place().external, "port_id": scene.balancer().await["vip_port_id"]});
    scene.make(FIPS, "floatingip", body).await;
    let mut web = web();
    set(&mut web, "load-balancer-id", &lb);
    scene.ensure(&mut web).await;
    scene.write("DELETE", &format!("{LBS}/{lb}?cascade=true"), Value::Null).await;
    while !scene.balancers().await.is_empty() {}
    let (calls, error) = scene.counted(scene.refused(&mut web)).await;
    let fix = "it does not exist; correct or remove the annotation loadbalancer.openstack.org/load-balancer-id";
    assert!(error.contains(fix), "{error}");
    assert_eq!((calls.writes(), annotation(&web, "load-balancer-id")), (String::new(), Some(&*lb)));
    scene.restart().await;
    scene.refused(&mut web).await;
    assert_eq!(scene.balancers().await.len(), 0);
    scene.delete(&mut web).await;
    scene.ensure(&mut web).await;
    assert_eq!(scene.balancers().await.len(), 1);
}
