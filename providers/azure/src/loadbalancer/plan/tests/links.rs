//! Private link services.

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
const CREATE: (&str, &str) = ("azure-pls-create", "true");

fn links(world: &World) -> Vec<Value> {
    world.observed.links.values().filter_map(Seen::present).flatten().cloned().collect()
}

#[test]
fn a_private_link_service_comes_and_goes_with_its_service() {
    let mut world = World::new();
    let given = [
        INTERNAL,
        CREATE,
        ("azure-pls-ip-configuration-ip-address-count", "2"),
        ("azure-pls-ip-configuration-ip-address", "10.0.9.9"),
    ];
    world.service("web", &given, json!({})).settle(&[]);
    let link = links(&world).remove(0);
    let base = world.services["web"].default_load_balancer_name();
    assert_eq!(json::name(&link), format!("pls-{base}"));
    assert_eq!(link["tags"], json!({"k8s-azure-cluster-name": "kubernetes", "k8s-azure-owner-service": "default/web"}));
    let names: Vec<&str> = json::items(&link, "ipConfigurations").iter().map(json::name).collect();
    assert_eq!(names, [format!("subnet-pls-{base}-static-10.0.9.9"), format!("subnet-pls-{base}-dynamic-0")]);
    let subnet = world.observed.subnets["subnet"].present().unwrap();
    assert_eq!(json::property(subnet, "privateLinkServiceNetworkPolicies"), "Disabled");
    world.settle(&["web"]);
    assert!(links(&world).is_empty());
    let place = |begin: &str| world.writes.iter().position(|write| write.starts_with(begin)).unwrap();
    assert!(place("delete PrivateLinkService") < place("delete LoadBalancer"), "{:?}", world.writes);
}

#[test]
fn without_the_annotation_it_goes() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    world.service("web", &[INTERNAL, ("azure-pls-create", "false")], json!({})).settle(&[]);
    assert!(links(&world).is_empty());
    assert_eq!(world.writes.len(), 1, "{:?}", world.writes);
}

#[test]
fn without_the_annotation_one_with_endpoints_stays_and_the_event_names_them() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    let endpoint = "/subscriptions/other/resourceGroups/g/providers/Microsoft.Network/privateEndpoints/partner";
    if let Some(Seen::Present(list)) = world.observed.links.get_mut("rg") {
        let connection = json!({"id": format!("{}/privateEndpointConnections/c", list[0]["id"].as_str().unwrap()),
            "name": "c", "properties": {"privateEndpoint": {"id": endpoint}}});
        list[0]["properties"]["privateEndpointConnections"] = json!([connection]);
    }
    world.service("web", &[INTERNAL, ("azure-pls-create", "false")], json!({}));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.steps.is_empty() && plan.failed.is_empty(), "{:?}", plan.steps);
    let findings: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
    assert!(findings.iter().any(|text| text.contains("partner") && text.contains("azure-pls-create")), "{findings:?}");
    world.settle(&["web"]);
    assert!(links(&world).is_empty(), "it goes with its Service");
}

#[test]
fn what_was_not_read_is_neither_made_nor_dropped_nor_kept_in_silence() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    let read = world.observed.links.insert("rg".into(), Seen::Unread(ProviderError::unknown("denied"))).unwrap();
    let errors = world.service("web", &[INTERNAL, CREATE], port(81)).pass(&[]);
    assert!(errors["web"].contains("the private link services: denied"), "{errors:?}");
    let rules = json::items(world.balancer("kubernetes-internal"), "loadBalancingRules");
    assert_eq!(rules[0]["properties"]["frontendPort"], 81, "the load balancer serves without it");
    assert_eq!(world.writes.iter().filter(|write| write.contains("PrivateLink")).count(), 0, "{:?}", world.writes);
    let off = [INTERNAL, ("azure-pls-create", "false")];
    let errors = world.service("web", &off, port(81)).pass(&[]);
    assert!(errors["web"].contains("denied"), "{errors:?}");
    let before = world.observed.balancers.clone();
    for (given, deleted) in [(&off[1..], &[][..]), (&off, &["web"])] {
        world.service("web", given, port(81));
        let (plan, _) = world.planned(deleted, ServiceAction::Ensure);
        assert!(plan.steps.is_empty() && plan.failed.len() == 1, "{deleted:?}: {:?}", plan.steps);
    }
    assert_eq!(world.observed.balancers, before);
    world.observed.links.insert("rg".into(), read);
    world.service("web", &off, port(81)).settle(&[]);
    assert!(links(&world).is_empty());
}

#[test]
fn a_service_without_any_goes_where_private_link_services_may_not_be_listed() {
    let mut world = World::new();
    let denied = || ProviderError::new(ccm_provider::ErrorClass::Denied { action: "read".into() }, "denied");
    world.service("web", &[INTERNAL], json!({})).settle(&[]);
    world.observed.links.insert("rg".into(), Seen::Unread(denied()));
    world.settle(&["web"]);
    // Nor does one whose annotation names a group that the program may not read.
    world.observed.links.clear();
    world.service("web", &[INTERNAL], json!({})).settle(&[]);
    world.service("web", &[INTERNAL, CREATE, ("azure-pls-resource-group", "mistake")], json!({}));
    world.observed.links.insert("mistake".into(), Seen::Unread(denied()));
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("azure-pls-resource-group \"mistake\""), "{errors:?}");
    world.settle(&["web"]);
}

#[test]
fn one_that_is_not_its_own_is_not_taken_over_by_its_name() {
    let named = [INTERNAL, CREATE, ("azure-pls-name", "shared")];
    for (owner, text) in [("", "is not made here"), ("default/gone", "is that of the Service default/gone")] {
        let mut world = World::new();
        let id = ArmId::new("s", "rg", "Microsoft.Network/privateLinkServices", "Shared");
        let theirs =
            json!({"id": id.as_str(), "name": "Shared", "tags": {"k8s-azure-owner-service": owner, "team": "a"}});
        world.observed.links.insert("rg".into(), Seen::Present(vec![theirs.clone()]));
        let errors = world.service("web", &named, json!({})).pass(&[]);
        assert!(errors["web"].contains(text) && errors["web"].contains("azure-pls-name"), "{errors:?}");
        world.settle(&["web"]);
        assert_eq!(links(&world), [theirs]);
    }
    // The second that names the same one in a pass.
    let mut world = World::new();
    world.service("a", &named, json!({})).service("b", &named, port(81));
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["b"], "{errors:?}");
    assert!(errors["b"].contains("is that of the Service default/a"), "{errors:?}");
    assert_eq!(world.count("create PrivateLinkService"), 1);
    // One that goes in the same pass is free soon.
    let errors = world.pass(&["a"]);
    assert!(errors["b"].contains("is deleted first"), "{errors:?}");
    world.settle(&[]);
    assert_eq!(links(&world)[0]["tags"]["k8s-azure-owner-service"], "default/b");
}

#[test]
fn one_of_a_service_of_the_same_name_in_another_cluster_is_not_its_own() {
    let id = ArmId::new("s", "rg", "Microsoft.Network/privateLinkServices", "shared");
    for tags in [
        json!({"k8s-azure-owner-service": "default/web", "k8s-azure-cluster-name": "other"}),
        json!({"k8s-azure-owner-service": "default/web"}),
    ] {
        let mut world = World::new();
        let theirs = json!({"id": id.as_str(), "name": "shared", "tags": tags});
        world.observed.links.insert("rg".into(), Seen::Present(vec![theirs.clone()]));
        world.service("web", &[INTERNAL, CREATE, ("azure-pls-name", "shared")], json!({}));
        let errors = world.pass(&[]);
        assert!(errors["web"].contains("is that of the Service default/web of the cluster"), "{errors:?}");
        world.settle(&["web"]);
        assert_eq!(links(&world), [theirs]);
    }
    // On the frontend of the Service it stays, too.
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    if let Some(Seen::Present(list)) = world.observed.links.get_mut("rg") {
        list[0]["tags"]["k8s-azure-cluster-name"] = json!("other");
    }
    let theirs = links(&world);
    let errors = world.service("web", &[INTERNAL, CREATE, ("azure-pls-fqdns", "a.example")], json!({})).pass(&[]);
    assert!(errors["web"].contains("of the cluster \"other\""), "{errors:?}");
    world.service("web", &[INTERNAL, ("azure-pls-create", "false")], json!({})).settle(&[]);
    let errors = world.pass(&["web"]);
    assert!(errors["web"].contains("the private link service pls-"), "{errors:?}");
    assert_eq!(links(&world), theirs);
}

#[test]
fn one_of_others_is_an_error_and_one_cannot_be_renamed() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    let errors = world.service("web", &[INTERNAL, CREATE, ("azure-pls-name", "other")], json!({})).pass(&[]);
    let names = ["cannot be renamed", "azure-pls-name \"other\""];
    assert!(names.iter().all(|text| errors["web"].contains(text)), "{}", errors["web"]);
    let group = [INTERNAL, CREATE, ("azure-pls-resource-group", "g2")];
    world.observed.links.insert("g2".into(), Seen::Present(Vec::new()));
    let errors = world.service("web", &group, json!({})).pass(&[]);
    assert!(errors["web"].contains("azure-pls-resource-group \"g2\""), "{}", errors["web"]);
    if let Some(Seen::Present(list)) = world.observed.links.get_mut("rg") {
        list[0]["tags"] = json!({});
    }
    let errors = world.service("web", &[INTERNAL, CREATE], json!({})).pass(&[]);
    assert!(errors["web"].contains("is not made here"), "{}", errors["web"]);
    assert_eq!(links(&world).len(), 1);
}

#[test]
fn without_its_name_it_keeps_the_one_that_it_has() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE, ("azure-pls-name", "mine")], json!({})).settle(&[]);
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    assert_eq!(world.writes, [] as [String; 0]);
    world.service("web", &[INTERNAL, CREATE, ("azure-pls-fqdns", "a.example")], json!({})).settle(&[]);
    assert_eq!(world.writes, ["update PrivateLinkService mine"]);
}

#[test]
fn another_service_of_the_frontend_shares_it_whatever_its_group() {
    let mut world = World::new();
    world.observed.links.insert("links".into(), Seen::Present(Vec::new()));
    let given = [INTERNAL, CREATE, ("azure-pls-resource-group", "links")];
    world.service("a", &given, json!({})).settle(&[]);
    let shared = json!({"loadBalancerIP": world.status("a")[0], "ports": port(81)["ports"]});
    world.service("b", &given, shared.clone()).settle(&[]);
    assert_eq!(links(&world).len(), 1);
    let named = [&given[..], &[("azure-pls-name", "other")]].concat();
    let errors = world.service("b", &named, shared).pass(&[]);
    let parts = ["default/a", "azure-pls-create", "azure-pls-resource-group"];
    assert!(parts.iter().all(|part| errors["b"].contains(part)), "{errors:?}");
}

#[test]
fn it_stays_in_its_group() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    let errors = world.service("web", &[INTERNAL, CREATE, ("azure-pls-resource-group", "links")], json!({})).pass(&[]);
    assert!(errors["web"].contains("the resource group links"), "{errors:?}");
    assert_eq!(links(&world).len(), 1);
}

#[test]
fn its_error_does_not_hold_the_load_balancer_back() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    let errors = world.service("web", &[INTERNAL, CREATE, ("azure-pls-name", "other")], port(81)).pass(&[]);
    assert!(errors["web"].contains("cannot be renamed"), "{errors:?}");
    let rules = json::items(world.balancer("kubernetes-internal"), "loadBalancingRules");
    assert_eq!(rules[0]["properties"]["frontendPort"], 81);
}

#[test]
fn fields_of_others_stay() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({})).settle(&[]);
    if let Some(Seen::Present(list)) = world.observed.links.get_mut("rg") {
        json::overlay(
            &mut list[0],
            &json!({"unknown": 1, "tags": {"team": "a"}, "properties": {"alias": "x", "fqdns": []}}),
        );
    }
    assert_eq!(world.pass(&[]), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0]);
    world.service("web", &[INTERNAL, CREATE, ("azure-pls-fqdns", "a.example b.example")], json!({})).settle(&[]);
    let link = links(&world).remove(0);
    assert_eq!(
        (&link["unknown"], &link["tags"]["team"], &link["properties"]["alias"]),
        (&json!(1), &json!("a"), &json!("x"))
    );
    assert_eq!(link["properties"]["fqdns"], json!(["a.example", "b.example"]));
}

#[test]
fn the_order_of_its_lists_and_an_address_that_is_given_twice_do_not_count() {
    let mut world = World::new();
    let given = |fqdns, visibility, addresses| {
        [
            INTERNAL,
            CREATE,
            ("azure-pls-fqdns", fqdns),
            ("azure-pls-visibility", visibility),
            ("azure-pls-auto-approval", visibility),
            ("azure-pls-ip-configuration-ip-address-count", "2"),
            ("azure-pls-ip-configuration-ip-address", addresses),
        ]
    };
    world.service("web", &given("a b", "s1 s2", "10.0.9.9 10.0.9.9"), json!({})).settle(&[]);
    let link = links(&world).remove(0);
    let base = world.services["web"].default_load_balancer_name();
    let names: Vec<&str> = json::items(&link, "ipConfigurations").iter().map(json::name).collect();
    assert_eq!(names, [format!("subnet-pls-{base}-static-10.0.9.9"), format!("subnet-pls-{base}-dynamic-0")]);
    world.service("web", &given("b a", "s2 s1", "10.0.9.9"), json!({})).settle(&[]);
    assert_eq!(world.writes, [] as [String; 0]);
    for (fqdns, visibility) in [("a a", "s1 s2"), ("a", "s1 s2"), ("a", "s1 s2 s3")] {
        world.service("web", &given(fqdns, visibility, "10.0.9.9"), json!({})).settle(&[]);
        assert_eq!(world.writes.len(), 1, "{fqdns} {visibility}");
    }
}

#[test]
fn a_service_of_two_families_has_one_of_ipv4() {
    let mut world = World::new();
    world.service("web", &[INTERNAL, CREATE], json!({"ipFamilies": ["IPv6", "IPv4"]})).settle(&[]);
    let all = links(&world);
    let frontends = json::items(&all[0], "loadBalancerFrontendIpConfigurations");
    let base = world.services["web"].default_load_balancer_name();
    assert_eq!(all.len(), 1);
    assert!(json::text(&frontends[0], &["id"]).ends_with(&format!("/{base}")), "{frontends:?}");
}
