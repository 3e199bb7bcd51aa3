//! Load balancers and the security group: one write for all Services, and nothing of others is touched.

use super::*;

#[test]
fn an_external_service_lives_and_goes() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let base = world.services["web"].default_load_balancer_name();
    assert_eq!(
        world.writes,
        [
            format!("create PublicIPAddress kubernetes-{base}"),
            "create LoadBalancer kubernetes".to_owned(),
            "update SecurityGroup nsg".to_owned(),
            "attach LoadBalancer kubernetes".to_owned(),
        ]
    );
    let balancer = world.balancer("kubernetes");
    assert_eq!(json::items(balancer, "frontendIPConfigurations")[0]["name"], json!(base));
    let rule = &json::items(balancer, "loadBalancingRules")[0];
    assert_eq!(rule["name"], json!(format!("{base}-TCP-80")));
    let pool = world.env.balancer_id("kubernetes").child("backendAddressPools", "kubernetes");
    assert_eq!(json::reference(rule, "backendAddressPool"), pool.as_str());
    assert_eq!(json::items(&json::items(balancer, "backendAddressPools")[0], "loadBalancerBackendAddresses").len(), 2);
    assert_eq!(world.status("web"), ["192.0.2.1"]);
    assert_eq!(world.rules()[0]["properties"]["destinationAddressPrefix"], "192.0.2.1");
    world.settle(&["web"]);
    assert!(world.observed.balancers.is_empty() && world.addresses().is_empty() && world.rules().is_empty());
}

#[test]
fn an_internal_service_lives_and_goes() {
    let mut world = World::new();
    world.service("web", &[("azure-load-balancer-internal", "true")], json!({})).settle(&[]);
    assert_eq!(world.writes, ["create LoadBalancer kubernetes-internal", "attach LoadBalancer kubernetes-internal"]);
    let frontend = &json::items(world.balancer("kubernetes-internal"), "frontendIPConfigurations")[0];
    assert_eq!(frontend["zones"], json!(["1", "2", "3"]));
    assert_eq!(json::property(frontend, "privateIPAllocationMethod"), "Dynamic");
    assert_eq!(world.status("web"), ["10.0.1.1"]);
    world.settle(&["web"]);
    assert!(world.observed.balancers.is_empty());
}

#[test]
fn an_internal_frontend_in_the_place_of_one_without_zones_has_none() {
    let internal = ("azure-load-balancer-internal", "true");
    let mut world = World::new();
    let zones = std::mem::take(&mut world.observed.zones);
    let subnet = world.observed.subnets["subnet"].present().unwrap().clone();
    world.observed.subnets.insert("other".into(), Seen::Present(subnet));
    world.service("web", &[internal], json!({})).settle(&[]);
    world.observed.zones = zones;
    world.service("web", &[internal, ("azure-load-balancer-internal-subnet", "other")], json!({})).settle(&[]);
    let frontends = json::items(world.balancer("kubernetes-internal"), "frontendIPConfigurations");
    assert_eq!((frontends.len(), frontends[0].get("zones")), (1, None));
}

#[test]
fn a_udp_rule_that_had_all_ports_resets_no_connections() {
    let internal = ("azure-load-balancer-internal", "true");
    let ha = ("azure-load-balancer-enable-high-availability-ports", "true");
    let spec = json!({"ports": [{"port": 53, "nodePort": 30053, "protocol": "UDP"}]});
    let mut world = World::new();
    world.service("dns", &[internal, ha], spec.clone()).settle(&[]);
    let rule = |world: &World| json::items(world.balancer("kubernetes-internal"), "loadBalancingRules")[0].clone();
    assert_eq!(rule(&world)["properties"]["enableTcpReset"], true);
    world.service("dns", &[internal], spec).settle(&[]);
    assert_eq!(
        (json::property(&rule(&world), "protocol"), rule(&world)["properties"].get("enableTcpReset")),
        ("Udp", None)
    );
    // As the API shows it.
    json::items_mut(world.balancer_mut("kubernetes-internal"), "loadBalancingRules")[0]["properties"]["enableTcpReset"] =
        json!(false);
    world.settle(&[]);
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn all_services_are_in_one_write_of_each_shared_object() {
    let mut world = World::new();
    for number in 0..50 {
        world.service(
            &format!("web{number}"),
            &[],
            json!({"ports": [{"port": 8000 + number, "nodePort": 30000 + number, "protocol": "TCP"}]}),
        );
    }
    world.settle(&[]);
    assert_eq!(
        (world.count("create LoadBalancer"), world.count("update SecurityGroup"), world.count("create PublicIP")),
        (1, 1, 50)
    );
    assert_eq!(json::items(world.balancer("kubernetes"), "loadBalancingRules").len(), 50);
    let names: Vec<String> = (0..50).map(|number| format!("web{number}")).collect();
    world.settle(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    assert_eq!(
        (world.count("delete LoadBalancer"), world.count("update SecurityGroup"), world.count("delete PublicIP")),
        (1, 1, 50)
    );
}

#[test]
fn a_service_that_becomes_internal_leaves_the_external_load_balancer() {
    let mut world = World::new();
    world.service("web", &[], json!({})).service("api", &[], port(81)).settle(&[]);
    world.service("web", &[("azure-load-balancer-internal", "true")], json!({})).settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 1);
    assert_eq!(world.addresses().len(), 1);
    assert!(world.status("web")[0].starts_with("10."));
    world.service("web", &[], json!({})).settle(&[]);
    assert!(world.observed.balancer("kubernetes-internal").is_none());
    assert_eq!(world.addresses().len(), 2);
}

#[test]
fn what_others_set_stays_byte_equal() {
    let mut world = World::new();
    world.service("web", &[], json!({})).service("api", &[], port(81)).settle(&[]);
    let balancer = world.balancer_mut("kubernetes");
    json::overlay(
        balancer,
        &json!({"tags": {"team": "a"}, "unknown": {"x": [1]}, "properties": {
            "outboundRules": [{"name": "out", "properties": {"x": 1}}],
            "inboundNatRules": [{"name": "nat", "properties": {"frontendPort": 22}}],
        }}),
    );
    json::items_mut(balancer, "backendAddressPools").push(json!({"name": "theirs", "properties": {"y": 2}}));
    json::items_mut(balancer, "loadBalancingRules")
        .push(json!({"name": "user-rule", "properties": {"frontendPort": 9}}));
    json::items_mut(balancer, "loadBalancingRules")[1]["properties"]["added"] = json!("later");
    let before = world.balancer("kubernetes").clone();
    assert_eq!(world.pass(&[]), BTreeMap::new());
    assert_eq!(world.writes, [] as [String; 0], "none of it is a difference");
    world.service("web", &[], json!({"ports": [{"port": 80, "nodePort": 30099, "protocol": "TCP"}]})).settle(&[]);
    world.settle(&["api"]);
    let after = world.balancer("kubernetes");
    for path in [&["tags"][..], &["unknown"], &["properties", "outboundRules"], &["properties", "inboundNatRules"]] {
        assert_eq!(json::at(after, path), json::at(&before, path), "{path:?}");
    }
    let named = |list: &str, name: &str| json::named(json::items(after, list), name).cloned();
    assert_eq!(named("backendAddressPools", "theirs").unwrap()["properties"], json!({"y": 2}));
    assert_eq!(named("loadBalancingRules", "user-rule").unwrap()["properties"], json!({"frontendPort": 9}));
    assert_eq!(json::items(after, "loadBalancingRules")[0]["properties"]["added"], "later");
}

#[test]
fn what_somebody_removed_comes_back() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let before = (world.balancer("kubernetes").clone(), world.rules().to_vec());
    for list in ["loadBalancingRules", "probes"] {
        json::items_mut(world.balancer_mut("kubernetes"), list).clear();
        world.settle(&[]);
        assert_eq!(world.writes, ["update LoadBalancer kubernetes"], "{list}");
    }
    json::items_mut(world.group_mut(), "securityRules").clear();
    world.settle(&[]);
    assert_eq!(world.writes, ["update SecurityGroup nsg"]);
    let after = (world.balancer("kubernetes").clone(), world.rules().to_vec());
    assert_eq!(after.1, before.1);
    assert_eq!(json::items(&after.0, "loadBalancingRules"), json::items(&before.0, "loadBalancingRules"));
}

#[test]
fn a_port_of_another_service_of_the_address_is_a_conflict() {
    let mut world = World::new();
    world.service("a", &[], json!({})).settle(&[]);
    let ip = world.status("a")[0].clone();
    world.service("b", &[], json!({"loadBalancerIP": ip}));
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["b"]);
    assert!(errors["b"].contains("-TCP-80") && errors["b"].contains("use another port"), "{}", errors["b"]);
    assert_eq!(world.status("b"), [""; 0], "traffic for it would arrive at the pods of a");
    world
        .service("b", &[], json!({"loadBalancerIP": ip, "ports": [{"port": 80, "nodePort": 30081, "protocol": "UDP"}]}))
        .settle(&[]);
    assert_eq!(world.status("b"), [ip]);
}

#[test]
fn a_service_that_shares_a_private_address_has_it_with_its_rules_or_if_it_wants_none() {
    let internal = ("azure-load-balancer-internal", "true");
    let shared = |number: u16| json!({"loadBalancerIP": "10.0.9.9", "ports": port(number)["ports"]});
    let mut world = World::new();
    world.service("a", &[internal], shared(80)).settle(&[]);
    assert!(world.service("b", &[internal], shared(80)).pass(&[])["b"].contains("use another port"));
    assert_eq!(world.status("b"), [""; 0]);
    world.service("b", &[internal, ("port_80_no_lb_rule", "true")], shared(80)).settle(&[]);
    assert_eq!(world.status("b"), ["10.0.9.9"]);
}

#[test]
fn high_availability_ports_share_an_address_where_all_rules_have_floating_ip() {
    let internal = ("azure-load-balancer-internal", "true");
    let all = ("azure-load-balancer-enable-high-availability-ports", "true");
    let spec = |port: u16| json!({"loadBalancerIP": "10.0.9.9", "ports": [{"port": port, "nodePort": 30000 + port, "protocol": "TCP"}]});
    for single in [&[internal][..], &[internal, ("azure-disable-load-balancer-floating-ip", "true")]] {
        let mut world = World::new();
        world.service("a", single, spec(80)).settle(&[]);
        world.service("b", &[internal, all], spec(443));
        let errors = world.pass(&[]);
        let rules = json::items(world.balancer("kubernetes-internal"), "loadBalancingRules").len();
        match single.len() {
            1 => assert_eq!((errors, rules), (BTreeMap::new(), 2)),
            _ => assert!(errors["b"].contains("use another port or address") && rules == 1, "{errors:?}"),
        }
    }
    // Two rules for all ports never do.
    let mut world = World::new();
    world.service("a", &[internal, all], spec(80)).settle(&[]);
    world.service("b", &[internal, all], spec(443));
    assert_eq!(world.pass(&[]).keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_shared_frontend_stays_until_its_last_service_goes() {
    let mut world = World::new();
    world.service("a", &[], json!({"ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "TCP"}]})).settle(&[]);
    let ip = world.status("a")[0].clone();
    world
        .service(
            "b",
            &[],
            json!({"loadBalancerIP": ip, "ports": [{"port": 8443, "nodePort": 30444, "protocol": "TCP"}]}),
        )
        .settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 1);
    assert_eq!(
        super::super::super::tags::get(world.addresses()[0], &super::super::super::tags::SERVICE),
        "default/a,default/b"
    );
    world.settle(&["a"]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 1);
    let ports: Vec<&Value> = world.rules().iter().map(|rule| &rule["properties"]["destinationPortRanges"]).collect();
    assert_eq!(ports, [&json!(["8443"])]);
    world.settle(&["b"]);
    assert!(world.observed.balancers.is_empty() && world.addresses().is_empty() && world.rules().is_empty());
}

#[test]
fn both_services_of_a_frontend_may_go_together() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut world = World::new();
        world.service(names[0], &[], json!({})).settle(&[]);
        let ip = world.status(names[0])[0].clone();
        world
            .service(
                names[1],
                &[],
                json!({"loadBalancerIP": ip, "ports": [{"port": 81, "nodePort": 30081, "protocol": "TCP"}]}),
            )
            .settle(&[]);
        world.settle(&names);
        assert!(world.observed.balancers.is_empty() && world.addresses().is_empty(), "{names:?}");
    }
}

#[test]
fn the_frontend_of_a_service_that_is_gone_goes_when_its_last_sharer_leaves_it() {
    let internal = ("azure-load-balancer-internal", "true");
    let frontends = |world: &World, balancer: &str| {
        world.observed.balancer(balancer).map_or(0, |it| json::items(it, "frontendIPConfigurations").len())
    };
    for by_name in [false, true] {
        let begin = || {
            let mut world = World::new();
            world.service("a", &[], json!({})).settle(&[]);
            let name = json::name(world.addresses()[0]).to_owned();
            let ip = world.status("a")[0].clone();
            let named = [("azure-pip-name", &*name)];
            match by_name {
                true => world.service("b", &named, port(81)),
                false => world.service("b", &[], json!({"loadBalancerIP": ip, "ports": port(81)["ports"]})),
            };
            world.settle(&[]);
            world.settle(&["a"]);
            assert_eq!((frontends(&world, CLUSTER), world.addresses().len()), (1, 1));
            (world, name)
        };
        let (mut world, _) = begin();
        world.service("b", &[], port(81)).settle(&[]);
        assert_eq!((frontends(&world, CLUSTER), world.addresses().len()), (1, 1), "by name: {by_name}");
        world.settle(&["b"]);
        assert!(world.observed.balancers.is_empty() && world.addresses().is_empty() && world.rules().is_empty());
        let (mut world, name) = begin();
        let both = [internal, ("azure-pip-name", &*name)];
        world.service("b", &both[..1 + usize::from(by_name)], port(81)).settle(&[]);
        assert_eq!(
            (frontends(&world, CLUSTER), frontends(&world, "kubernetes-internal")),
            (0, 1),
            "by name: {by_name}"
        );
        assert!(world.addresses().is_empty(), "by name: {by_name}");
        let (mut world, _) = begin();
        world.service("b", &[], port(81)).settle(&["b"]);
        assert!(world.observed.balancers.is_empty() && world.addresses().is_empty(), "by name: {by_name}");
    }
}

#[test]
fn a_frontend_that_a_service_stops_to_share_stays_for_others() {
    let mut world = World::new();
    world.service("a", &[], json!({})).settle(&[]);
    let ip = world.status("a")[0].clone();
    let shared = |number: u16| json!({"loadBalancerIP": ip, "ports": port(number)["ports"]});
    world.service("b", &[], shared(81)).service("c", &[], shared(82)).settle(&[]);
    world.service("b", &[], port(81)).settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 2, "that of a is live");
    world.service("b", &[], shared(81)).settle(&[]);
    world.settle(&["a"]);
    world.service("b", &[], port(81));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    world.settle(&[]);
    assert_eq!(world.status("c")[0], ip);
    assert_ne!(world.status("b")[0], ip);
    world.service("c", &[], port(82)).settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 2);
    assert_eq!(world.addresses().len(), 2);
}

#[test]
fn a_frontend_of_an_outbound_rule_stays_with_its_address() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let frontend =
        json::text(&json::items(world.balancer("kubernetes"), "frontendIPConfigurations")[0], &["id"]).to_owned();
    let rule = json!({"name": "out", "properties": {"frontendIPConfigurations": [{"id": frontend}]}});
    json::items_mut(world.balancer_mut("kubernetes"), "outboundRules").push(rule);
    world.settle(&["web"]);
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 1);
    assert_eq!(json::items(world.balancer("kubernetes"), "loadBalancingRules").len(), 0);
    assert_eq!(
        super::super::super::tags::get(world.addresses()[0], &super::super::super::tags::SERVICE),
        "",
        "it is the users' now"
    );
}

#[test]
fn the_status_has_the_address_of_the_frontend_that_serves() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let frontend = json::items(world.balancer("kubernetes"), "frontendIPConfigurations")[0]["id"].clone();
    world.service("api", &[], port(81)).settle(&[]);
    let rule = json!({"name": "out", "properties": {"frontendIPConfigurations": [{"id": frontend}]}});
    json::items_mut(world.balancer_mut("kubernetes"), "outboundRules").push(rule);
    let name = format!("kubernetes-{}", world.services["api"].default_load_balancer_name());
    world.service("web", &[("azure-pip-name", &name)], port(82)).pass(&[]);
    assert_eq!(
        json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(),
        2,
        "an outbound rule uses it"
    );
    assert_eq!(world.status("web"), world.status("api"));
}

#[test]
fn the_shared_probe_goes_with_its_last_rule() {
    let mut world = World::new();
    world.env.shared_probe = Some((10256, "/healthz".into()));
    world.service("a", &[], json!({})).service("b", &[], port(81)).settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes"), "probes").len(), 1);
    world.settle(&["a"]);
    assert_eq!(json::items(world.balancer("kubernetes"), "probes").len(), 1);
    world.service("b", &[], json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000})).settle(&[]);
    let names: Vec<&str> = json::items(world.balancer("kubernetes"), "probes").iter().map(json::name).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].ends_with("-TCP-31000"));
}

#[test]
fn the_load_balancer_may_be_in_another_resource_group_and_its_name_in_another_case() {
    let mut world = World::new();
    world.env.balancer_group = "lbs".into();
    world.service("web", &[], json!({})).settle(&[]);
    let balancer = world.balancer("kubernetes");
    let rule = &json::items(balancer, "loadBalancingRules")[0];
    for id in [json::text(balancer, &["id"]), json::reference(rule, "frontendIPConfiguration")] {
        assert_eq!(ArmId::parse(id).unwrap().group(), "lbs");
    }
    for part in ["backendAddressPool", "probe"] {
        assert_eq!(ArmId::parse(json::reference(rule, part)).unwrap().group(), "lbs");
    }
    let pool = &json::items(balancer, "backendAddressPools")[0];
    assert_eq!(json::items(pool, "loadBalancerBackendAddresses").len(), 2);
    let upper = json::text(balancer, &["id"]).replace("kubernetes", "KUBERNETES");
    json::overlay(world.balancer_mut("kubernetes"), &json!({"id": upper, "name": "KUBERNETES"}));
    assert_eq!((world.pass(&[]), world.writes.len()), (BTreeMap::new(), 0), "{:?}", world.writes);
    world.settle(&["web"]);
    assert!(world.observed.balancers.is_empty());
}

#[test]
fn a_missing_security_group_blocks_no_deletion() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    world.observed.security_group = Some(Seen::Absent);
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("securityGroupName"), "{}", errors["web"]);
    world.settle(&["web"]);
    assert!(world.observed.balancers.is_empty());
}

#[test]
fn rules_that_a_service_gives_up_go_when_the_security_group_can_be_read() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    let unread = Seen::Unread(ProviderError::unknown("unread"));
    let group = world.observed.security_group.replace(unread);
    let errors = world.service("web", &[("azure-disable-load-balancer-nsg-rule", "true")], json!({})).pass(&[]);
    assert!(errors["web"].contains("the security group: unread"), "{errors:?}");
    world.observed.security_group = group;
    world.settle(&[]);
    assert!(world.rules().is_empty(), "{:?}", world.rules());
    world.observed.security_group = Some(Seen::Absent);
    assert_eq!(world.pass(&[]), BTreeMap::new(), "one that does not exist has none");
}

#[test]
fn a_full_load_balancer_refuses_the_surplus_alone() {
    let mut world = World::new();
    for number in 0..300 {
        world.service(
            &format!("web{number:03}"),
            &[("azure-load-balancer-internal", "true")],
            json!({"ports": [{"port": 8000 + number, "nodePort": 30000 + number, "protocol": "TCP"}]}),
        );
    }
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["web299"]);
    assert!(errors["web299"].contains("300") && errors["web299"].contains("299"), "{}", errors["web299"]);
    assert_eq!(json::items(world.balancer("kubernetes-internal"), "loadBalancingRules").len(), 299);
}

#[test]
fn a_dual_stack_service_has_two_of_everything() {
    let mut world = World::new();
    let spec = json!({"ipFamilies": ["IPv6", "IPv4"]});
    world.service("web", &[], spec.clone()).settle(&[]);
    assert_eq!(world.status("web").iter().map(|ip| ip.contains(':')).collect::<Vec<_>>(), [false, true]);
    let names = |list| json::items(world.balancer("kubernetes"), list).iter().map(json::name).collect::<Vec<_>>();
    assert_eq!(names("backendAddressPools"), ["kubernetes", "kubernetes-IPv6"]);
    let frontends = names("frontendIPConfigurations");
    assert_eq!(frontends.iter().map(|name| name.ends_with("-IPv6")).collect::<Vec<_>>(), [false, true]);
    assert_eq!((world.addresses().len(), world.rules().len()), (2, 2));
    world.service("web", &[("azure-load-balancer-internal", "true")], spec).settle(&[]);
    assert_eq!((world.addresses().len(), world.rules().len()), (0, 0));
    world.service("web", &[("azure-load-balancer-internal", "true")], json!({"ipFamilies": ["IPv4"]})).settle(&[]);
    assert_eq!(json::items(world.balancer("kubernetes-internal"), "frontendIPConfigurations").len(), 1);
    world.settle(&["web"]);
    assert!(world.observed.balancers.is_empty());
}

#[test]
fn the_status_has_the_addresses_in_the_order_of_their_frontends() {
    let mut world = World::new();
    world.service("web", &[], json!({"ipFamilies": ["IPv4", "IPv6"]})).settle(&[]);
    let before = world.status("web");
    json::items_mut(world.balancer_mut("kubernetes"), "frontendIPConfigurations").reverse();
    world.settle(&[]);
    assert_eq!(world.status("web"), before.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(world.writes, Vec::<String>::new());
}

#[test]
fn a_refused_service_is_left_out_and_keeps_what_it_has() {
    let mut world = World::new();
    world.service("a", &[], json!({})).settle(&[]);
    let rules = json::items(world.balancer("kubernetes"), "loadBalancingRules").to_vec();
    world.observed.refused.insert("default/a".into(), super::super::super::wanted::refused("no"));
    world.service("a", &[], port(90));
    world.service("b", &[], port(81));
    assert_eq!(world.pass(&[]).keys().collect::<Vec<_>>(), ["a"]);
    let after = json::items(world.balancer("kubernetes"), "loadBalancingRules");
    assert_eq!((&after[..1], after.len()), (&rules[..], 2));
}

#[test]
fn a_group_whose_last_write_has_failed_is_written_again_for_all_services() {
    let mut world = World::new();
    world.service("a", &[("azure-disable-load-balancer-nsg-rule", "true")], port(81));
    world.service("b", &[], port(82)).service("c", &[], port(83)).settle(&[]);
    world.group_mut()["properties"]["provisioningState"] = json!("Failed");
    let (plan, _) = world.planned(&["a", "b", "c"], ServiceAction::Ensure);
    let step = plan.steps.iter().find(|step| matches!(step.write, Write::Security(_))).unwrap();
    assert_eq!(step.items, Items::Some([0, 1, 2].into()), "whatever is planned again after a conflict");
}

#[test]
fn without_a_list_of_the_services_no_security_rule_changes() {
    let mut world = World::new();
    world.service("web", &[], json!({})).settle(&[]);
    world.service("web", &[], port(81));
    world.look(&[]);
    world.observed.cluster = None;
    let (wanted, _) = wanted(&world.env, CLUSTER, &world.work(&[], ServiceAction::Ensure));
    let plan = plan(&world.env, &world.observed, &wanted);
    assert!(plan.steps.is_empty(), "its load balancer is as its rules are");
    assert!(plan.failed[&0].to_string().contains("not known yet"), "{}", plan.failed[&0]);
}

#[test]
fn one_port_of_two_protocols_may_be_of_two_services_of_an_address() {
    let mut world = World::new();
    let port = |protocol: &str| json!({"ports": [{"port": 53, "nodePort": 30053, "protocol": protocol}]});
    world.service("tcp", &[], port("TCP")).settle(&[]);
    let mut udp = port("UDP");
    json::overlay(&mut udp, &json!({"loadBalancerIP": world.status("tcp")[0]}));
    world.service("udp", &[], udp).settle(&[]);
    assert_eq!(world.status("udp"), world.status("tcp"));
    assert_eq!(json::items(world.balancer("kubernetes"), "frontendIPConfigurations").len(), 1);
}

#[test]
fn a_service_whose_shared_frontend_goes_in_the_same_pass_gets_its_own_in_the_next() {
    let mut world = World::new();
    let internal = [("azure-load-balancer-internal", "true")];
    world.service("a", &internal, port(81)).settle(&[]);
    let ip = world.status("a")[0].clone();
    world.service("b", &internal, json!({"loadBalancerIP": ip, "ports": port(82)["ports"]}));
    let errors = world.pass(&["a"]);
    assert!(errors["b"].starts_with("the address is taken when the frontend "), "{errors:?}");
    world.settle(&[]);
    assert_eq!(world.status("b"), [ip]);
}
