//! Public and private addresses.

use super::super::super::tags;
use super::*;

pub(super) fn users_ip(name: &str, ip: &str) -> Value {
    let id = ArmId::new("s", "rg", "Microsoft.Network/publicIPAddresses", name);
    json!({"id": id.as_str(), "name": name, "etag": "1", "mine": true, "properties": {"ipAddress": ip, "publicIPAddressVersion": "IPv4"}})
}

pub(super) fn add(world: &mut World, group: &str, ip: Value) {
    match world.observed.public_ips.entry(group.to_owned()).or_insert(Seen::Present(Vec::new())) {
        Seen::Present(list) => list.push(ip.into()),
        _ => panic!("the group is not there"),
    }
}

#[test]
fn an_address_of_users_is_used_and_never_touched() {
    for given in [&[("azure-pip-name", "mine")][..], &[("azure-load-balancer-ipv4", "198.51.100.7")]] {
        let mut world = World::new();
        let ip = users_ip("mine", "198.51.100.7");
        add(&mut world, "rg", ip.clone());
        world.service("web", given, json!({})).settle(&[]);
        assert_eq!(world.status("web"), ["198.51.100.7"]);
        assert_eq!(world.count("create PublicIP") + world.count("update PublicIP"), 0);
        world.settle(&["web"]);
        let mut left = world.addresses()[0].clone();
        left["properties"].as_object_mut().unwrap().remove("ipConfiguration");
        assert_eq!(left, ip);
    }
}

#[test]
fn a_snapshot_lacks_the_values_of_foreign_tags_and_gives_the_same_plan() {
    for (system, writes) in [("", 0), ("sys", 2)] {
        let mut world = World::new();
        world.env.tags = [("team".to_owned(), "blue".to_owned())].into();
        world.env.system_tags = Some(system.to_owned()).filter(|tag| !tag.is_empty()).into_iter().collect();
        world.service("web", &[("azure-pip-tags", "d=e")], json!({})).settle(&[]);
        world.balancer_mut("kubernetes")["tags"]["foo"] = json!("secret");
        world.ip_mut()["tags"]["foo"] = json!("secret");
        let (plan, wanted) = world.planned(&[], ServiceAction::Ensure);
        assert_eq!(plan.steps.len(), writes, "{:?}", shown(&plan));
        let mut seen = world.seen(&wanted);
        seen.strip(&world.env, &wanted);
        assert!(!serde_json::to_string(&seen).unwrap().contains("secret"));
    }
}

#[test]
fn a_missing_address_is_named_and_nothing_is_made() {
    let mut world = World::new();
    world.service("a", &[("azure-pip-name", "none")], json!({}));
    world.service("b", &[], json!({"loadBalancerIP": "198.51.100.9"}));
    let errors = world.pass(&[]);
    assert!(errors["a"].contains("azure-pip-name \"none\"") && errors["a"].contains("rg"), "{}", errors["a"]);
    let parts = [
        "azure-load-balancer-ipv4",
        "spec.loadBalancerIP",
        "198.51.100.9",
        "group rg",
        "azure-load-balancer-resource-group",
    ];
    assert!(parts.iter().all(|part| errors["b"].contains(part)), "{}", errors["b"]);
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn an_address_in_another_group_replaces_the_one_in_the_former() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    world.observed.public_ips.insert("other".into(), Seen::Present(Vec::new()));
    world.service("web", &[("azure-load-balancer-resource-group", "other")], json!({})).settle(&[]);
    assert_eq!((world.observed.public_ips_of("rg").len(), world.observed.public_ips_of("other").len()), (0, 1));
    assert_eq!(world.count("create PublicIP"), 1);
    let order: Vec<&str> = world.writes.iter().map(|write| write.split(' ').next().unwrap()).collect();
    assert_eq!((order[0], *order.last().unwrap()), ("create", "delete"), "{:?}", world.writes);
}

#[test]
fn the_dns_label_moves_with_the_service_to_another_address() {
    let label = ("azure-dns-label-name", "shop");
    let mut world = World::new();
    world.service("web", &[label], json!({})).settle(&[]);
    add(&mut world, "rg", users_ip("theirs", "192.0.2.77"));
    for given in [
        ("azure-pip-prefix-id", "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/publicIPPrefixes/p"),
        ("azure-load-balancer-resource-group", "other"),
        ("azure-pip-name", "theirs"),
    ] {
        world.observed.public_ips.entry("other".into()).or_insert(Seen::Present(Vec::new()));
        let errors = world.service("web", &[label, given], json!({})).pass(&[]);
        assert!(errors["web"].contains("the DNS label follows"), "{errors:?}");
        world.settle(&[]);
        let labels = world.addresses().into_iter().map(address::label_of).filter(|label| !label.is_empty());
        assert_eq!(labels.collect::<Vec<_>>(), ["shop"], "{given:?}");
    }
    assert_eq!(world.status("web"), ["192.0.2.77"]);
}

#[test]
fn the_dns_label_of_an_address_of_users_is_that_of_the_annotation() {
    let mut world = World::new();
    let mut ip = users_ip("mine", "198.51.100.7");
    ip["properties"]["dnsSettings"] = json!({"domainNameLabel": "theirs"});
    add(&mut world, "rg", ip);
    for label in ["web1", "web2", ""] {
        world.service("web", &[("azure-pip-name", "mine"), ("azure-dns-label-name", label)], json!({})).settle(&[]);
        assert_eq!(address::label_of(world.addresses()[0]), label);
    }
    assert_eq!(world.addresses()[0].get("tags"), None);
}

#[test]
fn what_a_former_service_of_the_name_has_left_keeps_its_tag() {
    let mut world = World::new();
    world.service("other", &[], json!({})).service("web", &[], json!({})).settle(&[]);
    let before = world.addresses()[1].clone();
    // The cluster was restored.
    let mut service = world.services.remove("web").unwrap();
    service.metadata.uid = "00000009-1111-2222-3333-444444444444".into();
    service.status = Default::default();
    world.services.insert("web".to_owned(), service);
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.findings[0].message.contains("ccm orphans"), "{:?}", plan.findings);
    world.settle(&[]);
    assert!(world.addresses().contains(&&before), "its tag still shows whose it is");
    assert_eq!(world.addresses().len(), 3);
    world.settle(&["web"]);
    assert!(world.addresses().contains(&&before) && world.addresses().len() == 2);
}

#[test]
fn the_tag_of_another_cluster_is_not_ours() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let mut foreign = users_ip("foreign", "198.51.100.1");
    foreign["tags"] = json!({"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "other"});
    add(&mut world, "rg", foreign.clone());
    world.settle(&["web"]);
    assert_eq!(world.addresses(), [&foreign]);
}

#[test]
fn an_address_without_a_value_is_known_by_its_tag_and_goes() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    world.ip_mut()["properties"].as_object_mut().unwrap().remove("ipAddress");
    world.settle(&["web"]);
    assert!(world.addresses().is_empty());
}

#[test]
fn other_ip_tags_give_another_address_when_the_former_is_off_its_frontend() {
    let mut world = World::new();
    let other = port(81);
    world
        .service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/a")], json!({}))
        .service("api", &[], other)
        .settle(&[]);
    let (former, api) = (world.status("web"), world.status("api"));
    let name = format!("kubernetes-{}", world.services["web"].default_load_balancer_name());
    world.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/b")], json!({}));
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("is replaced"), "{}", errors["web"]);
    let of_address = |verb: &str| format!("{verb} PublicIPAddress {name}");
    assert_eq!(
        world.writes,
        [of_address("update"), "update LoadBalancer kubernetes".to_owned(), of_address("delete")],
        "it is tried first whether it may be written"
    );
    world.settle(&[]);
    assert!(world.status("web") != former && world.status("api") == api, "{:?}", world.status("web"));
    let of_web = world.addresses().into_iter().find(|ip| json::name(ip) == name).unwrap();
    assert_eq!(of_web["properties"]["ipTags"], json!([{"ipTagType": "FirstPartyUsage", "tag": "/b"}]));
}

#[test]
fn an_address_with_more_ip_tags_stays() {
    let mut world = World::new();
    world.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/a")], json!({})).settle(&[]);
    world.ip_mut()["properties"]["ipTags"] =
        json!([{"ipTagType": "RoutingPreference", "tag": "Internet"}, {"ipTagType": "firstPartyUsage", "tag": "/a"}]);
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.steps.is_empty() && plan.failed.is_empty(), "{:?}", plan.failed);
    assert!(plan.findings[0].message.contains("has more IP tags"), "{:?}", plan.findings);
}

#[test]
fn an_address_that_another_service_has_is_not_replaced_for_ip_tags() {
    let tagged = ("azure-pip-ip-tags", "FirstPartyUsage=/a");
    let mut world = World::new();
    world.service("web", &[tagged], json!({})).settle(&[]);
    let ip = world.status("web");
    let shared = json!({"loadBalancerIP": ip[0], "ports": [{"port": 81, "nodePort": 30081, "protocol": "TCP"}]});
    world.service("api", &[], shared).settle(&[]);
    world.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/b")], json!({}));
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("default/api uses it"), "{}", errors["web"]);
    assert_eq!(world.writes, [] as [String; 0]);
    // Nor one that its own Service asks for.
    world.service("web", &[tagged], json!({})).settle(&["api"]);
    world.service("web", &[("azure-pip-ip-tags", "FirstPartyUsage=/b")], json!({"loadBalancerIP": ip[0]}));
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("requests it"), "{}", errors["web"]);
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn a_service_that_returns_to_its_address_which_another_one_shares_is_bound_to_it_again() {
    let prefix = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/publicIPPrefixes/p";
    for own in [&[][..], &[("azure-pip-prefix-id", prefix)]] {
        let mut world = World::new();
        world.service("a", own, json!({})).settle(&[]);
        let name = json::name(world.addresses()[0]).to_owned();
        world.service("b", &[("azure-pip-name", &name)], port(81)).settle(&[]);
        world.service("a", &[("azure-load-balancer-internal", "true")], json!({})).settle(&[]);
        let bound = |world: &World| tags::get(world.addresses()[0], &tags::SERVICE).to_owned();
        assert_eq!(bound(&world), "default/b");
        world.service("a", own, json!({})).settle(&[]);
        assert_eq!(bound(&world), "default/b,default/a");
        world.settle(&["b"]);
        world.settle(&["a"]);
        assert_eq!(world.addresses(), [] as [&Value; 0], "{own:?}");
    }
}

#[test]
fn a_shared_address_is_written_for_those_who_change_it() {
    let mut world = World::new();
    world.service("a", &[], json!({})).settle(&[]);
    let name = json::name(world.addresses()[0]).to_owned();
    let shared = ("azure-pip-name", &*name);
    world.service("b", &[shared], port(81)).settle(&[]);
    world.service("c", &[shared, ("azure-pip-tags", "x=y")], port(82)).service("d", &[shared], port(83));
    world.service("b", &[("azure-load-balancer-internal", "true")], port(81));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    let step = plan.steps.iter().find(|step| matches!(step.write, Write::Address(_))).unwrap();
    assert_eq!(step.items, Items::Some([1, 2, 3].into()), "a has it as it is");
    world.settle(&[]);
}

#[test]
fn an_unread_group_fails_external_services_alone() {
    let mut world = World::new();
    world.observed.public_ips.insert("rg".into(), Seen::Unread(ProviderError::unknown("denied")));
    world.service("ext", &[], json!({})).service("int", &[("azure-load-balancer-internal", "true")], port(81));
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["ext"]);
    assert_eq!(world.status("int").len(), 1);
}

#[test]
fn a_service_that_becomes_internal_while_its_address_cannot_be_read_keeps_its_frontend() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let read = world.observed.public_ips.insert("rg".into(), Seen::Unread(ProviderError::unknown("unread"))).unwrap();
    world.service("web", &[("azure-load-balancer-internal", "true")], json!({}));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.steps.is_empty() && plan.failed.len() == 1, "{:?}", plan.steps);
    world.observed.public_ips.insert("rg".into(), read);
    world.settle(&[]);
    assert!(world.addresses().is_empty());
}

#[test]
fn an_address_that_another_service_gives_up_is_taken_when_it_is_free() {
    let (mine, other) = (("azure-pip-name", "mine"), ("azure-pip-name", "other"));
    let internal = ("azure-load-balancer-internal", "true");
    let (free, fixed) = (("azure-load-balancer-ipv4", "10.0.9.9"), ("azure-load-balancer-ipv4", "10.0.9.8"));
    for (before, after, takes) in [
        (&[mine][..], &[other][..], &[mine][..]),
        (&[mine], &[internal], &[mine]),
        (&[internal, free], &[internal, fixed], &[internal, free]),
    ] {
        let mut world = World::new();
        add(&mut world, "rg", users_ip("mine", "198.51.100.7"));
        add(&mut world, "rg", users_ip("other", "198.51.100.8"));
        world.service("a", before, json!({})).settle(&[]);
        world.service("a", after, json!({})).service("b", takes, port(81));
        let (plan, _) = world.planned(&[], ServiceAction::Ensure);
        assert!(plan.failed[&1].is_in_progress(), "{after:?}: {:?}", plan.failed);
        let errors = world.pass(&[]);
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["b"], "{after:?}: {errors:?}");
        world.settle(&[]);
        // The same where it is given up by a deletion.
        world.service("c", takes, port(82));
        let errors = world.pass(&["b"]);
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["c"], "{after:?}: {errors:?}");
        world.settle(&[]);
    }
}

#[test]
fn an_internal_address_is_the_requested_or_the_published_one() {
    let internal = ("azure-load-balancer-internal", "true");
    let mut world = World::new();
    world.service("web", &[internal], json!({"loadBalancerIP": "10.0.7.7"})).settle(&[]);
    assert_eq!(world.status("web"), ["10.0.7.7"]);
    world.observed.balancers.clear();
    world.service("web", &[internal], json!({})).settle(&[]);
    assert_eq!(world.status("web"), ["10.0.7.7"], "clients keep the address");
    world.service("web", &[internal], json!({"loadBalancerIP": "10.0.8.8"})).settle(&[]);
    assert_eq!(world.status("web"), ["10.0.8.8"]);
}

#[test]
fn an_internal_service_that_stops_sharing_gets_another_address() {
    let internal = ("azure-load-balancer-internal", "true");
    let mut world = World::new();
    let shared = |number: u16| json!({"loadBalancerIP": "10.0.7.7", "ports": port(number)["ports"]});
    world.service("a", &[internal], shared(80)).service("b", &[internal], shared(81)).settle(&[]);
    world.service("b", &[internal], port(81)).settle(&[]);
    let base = world.services["b"].default_load_balancer_name();
    let frontends = json::items(world.balancer("kubernetes-internal"), "frontendIPConfigurations");
    let own = json::named(frontends, &base).unwrap();
    assert_eq!(json::property(own, "privateIPAllocationMethod"), "Dynamic");
    assert_eq!(world.status("a"), ["10.0.7.7"]);
    assert_ne!(world.status("b"), world.status("a"));
}

#[test]
fn an_internal_service_that_becomes_dual_stack_keeps_no_frontend_of_the_wrong_family() {
    let internal = ("azure-load-balancer-internal", "true");
    let mut world = World::new();
    let subnet = json!({"addressPrefixes": ["10.0.0.0/16", "fd00::/64"]});
    if let Some(Seen::Present(it)) = world.observed.subnets.get_mut("subnet") {
        it["properties"] = subnet;
    }
    world.service("web", &[internal], json!({"ipFamilies": ["IPv6"]})).settle(&[]);
    world.service("web", &[internal], json!({"ipFamilies": ["IPv6", "IPv4"]})).settle(&[]);
    let status = world.status("web");
    assert!(status[0].starts_with("10.0.") && status[1].starts_with("fd00::"), "{status:?}");
}

#[test]
fn an_address_of_the_other_family_is_named_and_the_service_goes_on_with_what_it_has() {
    let mut world = World::new();
    world.service("web", &[], json!({"ipFamilies": ["IPv6"]})).settle(&[]);
    let (before, status) = (world.balancer("kubernetes").clone(), world.status("web"));
    let errors = world.service("web", &[], json!({"ipFamilies": ["IPv6", "IPv4"]})).pass(&[]);
    let name = format!("kubernetes-{}", world.services["web"].default_load_balancer_name());
    assert!(errors["web"].contains(&name) && errors["web"].contains("azure-pip-name"), "{errors:?}");
    assert_eq!((world.balancer("kubernetes"), world.status("web"), &world.writes[..]), (&before, status, &[][..]));
}

#[test]
fn a_missing_subnet_fails_its_service_alone() {
    let mut world = World::new();
    world.observed.subnets.insert("none".into(), Seen::Absent);
    let internal = ("azure-load-balancer-internal", "true");
    world.service("a", &[internal, ("azure-load-balancer-internal-subnet", "none")], json!({})).service(
        "b",
        &[internal],
        port(81),
    );
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["a"]);
    assert!(errors["a"].contains("subnet none of the virtual network net"), "{}", errors["a"]);
    assert_eq!(world.status("b").len(), 1);
}

#[test]
fn objects_of_the_go_program_are_taken_over_without_a_write() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    // Other spellings, and the fields that the API returns.
    let balancer = world.balancer_mut("kubernetes");
    for rule in json::items_mut(balancer, "loadBalancingRules") {
        let properties = rule["properties"].as_object_mut().unwrap();
        properties.remove("disableOutboundSnat");
        properties.insert("provisioningState".into(), json!("Succeeded"));
        let pool = properties["backendAddressPool"]["id"].as_str().unwrap().to_uppercase();
        properties.insert("backendAddressPool".into(), json!({"id": pool}));
    }
    assert_eq!(world.pass(&[]), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn a_requested_address_is_known_in_any_notation() {
    let ipv6 = json!({"ipFamilies": ["IPv6"]});
    let mut world = World::new();
    let internal = [("azure-load-balancer-internal", "true"), ("azure-load-balancer-ipv6", "FD00:0:0::5")];
    world.service("inner", &internal, ipv6.clone());
    assert_eq!(world.pass(&[]), BTreeMap::new());
    let frontends = json::items_mut(world.balancer_mut("kubernetes-internal"), "frontendIPConfigurations");
    frontends[0]["properties"]["privateIPAddress"] = json!("fd00::5");
    world.settle(&[]);
    assert_eq!(world.writes, [] as [String; 0]);
    world.settle(&["inner"]);
    // Of a public one too, and for another Service at the same address.
    world.service("web", &[], ipv6).settle(&[]);
    let ip = world.status("web")[0].clone();
    let requested = ip.replace("::", ":0:0::");
    assert_ne!(requested, ip);
    let shared = json!({"ipFamilies": ["IPv6"], "ports": port(81)["ports"]});
    world.service("api", &[("azure-load-balancer-ipv6", &requested)], shared).settle(&[]);
    assert_eq!(world.status("api"), [ip]);
}
