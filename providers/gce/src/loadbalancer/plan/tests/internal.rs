use super::*;

const TYPE: &str = "networking.gke.io/load-balancer-type";
const ACCESS: &str = "networking.gke.io/internal-load-balancer-allow-global-access";
const SUBNET: &str = "networking.gke.io/internal-load-balancer-subnet";
const SHARE: &str = "alpha.cloud.google.com/load-balancer-backend-share";

#[allow(clippy::needless_pass_by_value)] // literals at all callers
fn internal(spec: Value) -> Service {
    annotated(web(spec), TYPE, "Internal")
}

fn internal_local() -> Service {
    annotated(local(), TYPE, "Internal")
}

fn two_ports() -> Service {
    internal(json!({"ports": ports("TCP", &[80, 443])}))
}

/// The objects of the Go program, byte for byte.
fn go_made() -> Sketch {
    let mut sketch = Sketch::new();
    let service = r#"{"kubernetes.io/service-name":"default/web"}"#;
    let network = format!("{WWW}/global/networks/default");
    let rule = json!({
        "name": LB, "description": service, "IPAddress": "10.0.0.7", "IPProtocol": "TCP", "ports": ["80", "443"],
        "backendService": format!("{BASE}/regions/us-central1/backendServices/{LB}"), "loadBalancingScheme": "INTERNAL",
        "subnetwork": format!("{WWW}/regions/us-central1/subnetworks/sub"), "network": network, "networkTier": "PREMIUM",
    });
    let traffic = json!({
        "name": format!("k8s-fw-{LB}"), "network": network,
        "description": r#"{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"10.0.0.7"}"#,
        "sourceRanges": ["0.0.0.0/0"], "destinationRanges": ["10.0.0.7"], "targetTags": ["k8s-node"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["80", "443"]}], "priority": 1000,
    });
    let checks = json!({
        "name": "k8s-cid-node-hc", "description": "", "network": network, "targetTags": ["k8s-node"], "priority": 1000,
        "sourceRanges": ["130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["10256"]}],
    });
    let check = json!({
        "name": "k8s-cid-node", "description": "", "type": "HTTP", "httpHealthCheck": {"port": 10256, "requestPath": "/healthz"},
        "checkIntervalSec": 8, "timeoutSec": 1, "healthyThreshold": 1, "unhealthyThreshold": 3,
    });
    let group = format!("{BASE}/zones/{ZONE}/instanceGroups/k8s-ig--cid");
    let backend = json!({
        "name": LB, "description": service, "protocol": "TCP", "sessionAffinity": "NONE", "loadBalancingScheme": "INTERNAL",
        "healthChecks": [format!("{BASE}/global/healthChecks/k8s-cid-node")], "fingerprint": "abc=",
        "backends": [{"group": group, "balancingMode": "CONNECTION", "failover": false}],
    });
    let observed = &mut sketch.observed;
    observed.rules.insert(LB.to_owned(), serde_json::from_value(rule).unwrap());
    for firewall in [traffic, checks] {
        observed
            .firewalls
            .insert(firewall["name"].as_str().unwrap().to_owned(), serde_json::from_value(firewall).unwrap());
    }
    observed.checks.insert("k8s-cid-node".to_owned(), serde_json::from_value(check).unwrap());
    observed.backends.insert(LB.to_owned(), serde_json::from_value(backend).unwrap());
    let members = [Host { zone: ZONE.to_owned(), name: "n1".to_owned() }].into();
    observed.groups.insert(ZONE.to_owned(), [("k8s-ig--cid".to_owned(), members)].into());
    sketch
}

#[test]
fn a_balancer_is_made_behind_first() {
    let mut sketch = Sketch::new();
    let steps = sketch.ensures(&two_ports());
    assert_eq!(
        words(&steps),
        [
            "create InstanceGroup k8s-ig--cid",
            "attach Instances k8s-ig--cid",
            "create HealthCheck k8s-cid-node",
            "create Firewall k8s-cid-node-hc",
            "create BackendService LB",
            "create ForwardingRule LB",
            "create Firewall k8s-fw-LB",
        ]
    );
    sketch.carry_out(&steps);
    let (made, go) = (&sketch.observed, go_made().observed);
    assert_eq!(made.rules[LB].backend_service, go.rules[LB].backend_service);
    assert_eq!(made.rules[LB].ports, go.rules[LB].ports);
    assert_eq!(made.checks, go.checks);
    assert_eq!(made.backends[LB].health_checks, go.backends[LB].health_checks);
    let rule = body(&steps, "ForwardingRule", LB);
    assert_eq!((&rule["subnetwork"], rule.get("IPAddress")), (&json!(go.rules[LB].subnetwork), None));
    assert_eq!(body(&steps, "Firewall", "k8s-cid-node-hc").get("priority"), None);
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn what_the_go_program_made_is_taken_over_without_a_write() {
    assert_eq!(go_made().ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn urls_in_other_spellings_are_the_same() {
    let mut sketch = go_made();
    sketch.observed.network.subnetwork = Some("projects/p/regions/us-central1/subnetworks/sub".to_owned());
    let rule = sketch.observed.rules.get_mut(LB).unwrap();
    rule.backend_service = rule.backend_service.replace("compute.googleapis.com", "www.googleapis.com");
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn every_change_survives_any_death() {
    Sketch::new().survives_any_death(&two_ports(), ServiceAction::Ensure);
    Sketch::new().survives_any_death(&internal_local(), ServiceAction::Ensure);
    let sketch = go_made();
    for changed in [
        internal(json!({"ports": ports("UDP", &[80, 443])})),
        internal_local(),
        annotated(two_ports(), SHARE, "true"),
        annotated(two_ports(), SUBNET, "other"),
        annotated(internal(json!({"ports": ports("TCP", &[1, 2, 3, 4, 5, 6])})), ACCESS, "true"),
    ] {
        sketch.survives_any_death(&changed, ServiceAction::Ensure);
    }
    let mut begun = two_ports();
    begun.metadata.finalizers = vec!["gke.networking.io/l4-ilb-v1".to_owned()];
    sketch.survives_any_death(&begun, ServiceAction::Delete);
}

#[test]
fn more_than_five_ports_are_all_ports() {
    let mut sketch = go_made();
    let ip = sketch.ip();
    let six = internal(json!({"ports": ports("TCP", &[1, 2, 3, 4, 5, 6])}));
    let steps = sketch.ensures(&six);
    let rule = body(&steps[steps.iter().position(|step| step.rank == Rank::Rules).unwrap()..], "ForwardingRule", LB);
    assert_eq!((&rule["allPorts"], rule.get("ports")), (&json!(true), None));
    sketch.carry_out(&steps);
    assert_eq!(sketch.ensure(&six), [] as [&str; 0]);
    let five = internal(json!({"ports": ports("TCP", &[1, 2, 3, 4, 5])}));
    sketch.ensure(&five);
    assert_eq!(sketch.observed.rules[LB].ports, ["1", "2", "3", "4", "5"]);
    assert_eq!((sketch.ip(), sketch.observed.rules[LB].all_ports), (ip, false));
    assert_eq!(sketch.ensure(&five), [] as [&str; 0]);
}

#[test]
fn the_rule_goes_before_the_protocol_of_its_backend_service_changes() {
    let mut sketch = go_made();
    let ip = sketch.ip();
    let steps = sketch.ensure(&internal(json!({"ports": ports("UDP", &[80, 443])})));
    let at = |step: &str| steps.iter().position(|other| other == step).unwrap();
    assert!(at("delete ForwardingRule LB") < at("update BackendService LB"));
    assert!(at("update BackendService LB") < at("create ForwardingRule LB"));
    assert_eq!(sketch.ip(), ip);
}

#[test]
fn a_group_has_the_first_thousand_by_name() {
    let mut sketch = Sketch { nodes: nodes(1005), ..Sketch::new() };
    sketch.nodes.reverse();
    let service = internal(json!({}));
    sketch.ensure(&service);
    let members = &sketch.observed.groups[ZONE]["k8s-ig--cid"];
    assert_eq!((members.len(), &*members.last().unwrap().name), (1000, "n1000"));
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
}

/// Members that are there stay: a full group does not change without need, and others leave before new ones join.
#[test]
fn what_does_not_fit_into_a_full_group_is_a_finding_and_no_error() {
    let mut sketch = Sketch { nodes: nodes(1005), ..Sketch::new() };
    let service = internal(json!({}));
    sketch.ensure(&service);
    sketch.nodes.push(node("n0000", ZONE));
    let wanted = sketch.wanted(&service, ServiceAction::UpdateHosts).unwrap();
    let Steps { steps, findings, failed } = plan(&sketch.env, &sketch.observed, &wanted);
    assert_eq!((words(&steps), failed.len()), (Vec::new(), 0));
    assert!(findings[0].message.contains("at most 1000 instances, and 6 nodes"), "{findings:?}");
    // Two nodes are swapped.
    sketch.nodes.retain(|node| !["n0007", "n0900"].contains(&node.name.as_str()));
    let steps = sketch.plan(&service, ServiceAction::UpdateHosts).unwrap();
    assert_eq!(kinds(&steps), ["detach Instances", "attach Instances"]);
    sketch.carry_out(&steps);
    assert_eq!(sketch.observed.groups[ZONE]["k8s-ig--cid"].len(), 1000);
}

#[test]
fn without_nodes_nothing_is_opened() {
    let mut sketch = Sketch { nodes: Vec::new(), ..Sketch::new() };
    sketch.env.node_tags = Vec::new();
    let steps = sketch.ensure(&internal(json!({})));
    assert!(!steps.iter().any(|step| step.contains("Firewall")), "{steps:?}");
    assert!(sketch.observed.backends[LB].backends.is_empty() && sketch.ip().is_some());
    // The first node adds all of it.
    sketch.nodes = vec![node("n1", ZONE)];
    sketch.observed.tags.insert(Host { zone: ZONE.to_owned(), name: "n1".to_owned() }, Some("n".to_owned()));
    let steps = sketch.plan(&internal(json!({})), ServiceAction::UpdateHosts).unwrap();
    sketch.carry_out(&steps);
    assert_eq!(
        words(&steps),
        [
            "create InstanceGroup k8s-ig--cid",
            "attach Instances k8s-ig--cid",
            "create Firewall k8s-fw-LB",
            "create Firewall k8s-cid-node-hc",
            "update BackendService LB",
        ]
    );
    assert_eq!(sketch.ensure(&internal(json!({}))), [] as [&str; 0]);
}

#[test]
fn a_new_zone_comes_and_an_empty_one_goes() {
    let mut sketch = go_made();
    sketch.nodes = vec![node("n2", "us-central1-c")];
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(
        words(&steps),
        ["create InstanceGroup k8s-ig--cid", "attach Instances k8s-ig--cid", "update BackendService LB"]
    );
    let patch = body(&steps, "BackendService", LB);
    assert_eq!(patch["backends"], json!([{"group": format!("{BASE}/zones/us-central1-c/instanceGroups/k8s-ig--cid")}]));
    assert_eq!(patch.as_object().unwrap().len(), 2, "only what changed, and the fingerprint");
    // User settings of a remaining group are kept.
    sketch.nodes.push(node("n1", ZONE));
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(body(&steps, "BackendService", LB)["backends"][0]["balancingMode"], "CONNECTION");
    sketch.nodes.clear();
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(body(&steps, "BackendService", LB)["backends"], json!([]));
}

/// Registered again without provider ID, for example.
#[test]
fn the_group_of_a_node_without_a_zone_stays_behind_the_balancer() {
    let unplaced = || NodeRef::from(Node { name: "n2".into(), ..Node::default() });
    let mut sketch = go_made();
    sketch.nodes.push(node("n2", "us-central1-c"));
    sketch.ensure(&two_ports());
    sketch.nodes[1] = unplaced();
    // Only zones with nodes are read.
    sketch.observed.groups.remove("us-central1-c");
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        assert_eq!(words(&sketch.plan(&two_ports(), action).unwrap()), [] as [&str; 0]);
    }
    // The other node of its zone is in a group of another program.
    let mut sketch = go_made();
    sketch.env.external_groups_prefix = "infra-".to_owned();
    sketch.nodes.push(unplaced());
    let members = ["n1", "n2"].map(|name| BTreeSet::from([Host { zone: ZONE.to_owned(), name: name.to_owned() }]));
    let groups = ["infra-a", "k8s-ig--cid"].map(str::to_owned).into_iter().zip(members).collect();
    sketch.observed.groups.insert(ZONE.to_owned(), groups);
    let steps = sketch.ensures(&two_ports());
    assert_eq!(words(&steps), ["update BackendService LB"]);
    assert_eq!(body(&steps, "BackendService", LB)["backends"].as_array().unwrap().len(), 2);
}

#[test]
fn the_own_health_check_goes_with_a_service_that_changed_its_type() {
    let mut sketch = Sketch::new();
    sketch.ensure(&internal_local());
    let mut plain = internal_local();
    (plain.spec.kind, plain.spec.external_traffic_policy) = ("ClusterIP".to_owned(), String::new());
    plain.spec.health_check_node_port = 0;
    sketch.delete(&plain);
    assert_eq!(sketch.contents(), [] as [&str; 0]);
}

#[test]
fn a_change_of_the_policy_leaves_no_health_check() {
    for (before, after) in [(internal_local(), internal(json!({}))), (internal(json!({})), internal_local())] {
        let mut sketch = Sketch::new();
        sketch.ensure(&before);
        let ip = sketch.ip();
        sketch.survives_any_death(&after, ServiceAction::Ensure);
        let steps = sketch.ensure(&after);
        assert!(!steps.iter().any(|step| step.contains("ForwardingRule")), "{steps:?}");
        assert_eq!((sketch.ip(), sketch.observed.checks.len(), sketch.observed.firewalls.len()), (ip, 1, 2));
        assert_eq!(sketch.ensure(&after), [] as [&str; 0]);
    }
}

#[test]
fn both_kinds_go_when_the_annotation_changed_before_the_deletion() {
    for (made, deleted, finalizer) in [
        (internal(json!({})), web(json!({})), "gke.networking.io/l4-ilb-v1"),
        (web(json!({})), internal(json!({})), "gke.networking.io/l4-netlb-v1"),
    ] {
        let mut sketch = Sketch::new();
        sketch.ensure(&made);
        // By the real scheme of the rule, or by the finalizer if the rule is gone.
        let mut left = deleted.clone();
        left.metadata.finalizers = vec![finalizer.to_owned()];
        sketch.survives_any_death(&left, ServiceAction::Delete);
        sketch.delete(&deleted);
        assert_eq!(sketch.contents(), [] as [&str; 0]);
    }
}

#[test]
fn a_change_of_the_scheme_replaces_everything() {
    for (before, after, finalizer) in [
        (internal(json!({})), web(json!({})), "gke.networking.io/l4-ilb-v1"),
        (web(json!({})), internal(json!({})), "gke.networking.io/l4-netlb-v1"),
        (internal_local(), local(), "gke.networking.io/l4-ilb-v1"),
        (local(), internal_local(), "gke.networking.io/l4-netlb-v1"),
    ] {
        let mut sketch = Sketch::new();
        sketch.ensure(&before);
        let mut after = after;
        after.metadata.finalizers = vec![finalizer.to_owned()];
        sketch.survives_any_death(&after, ServiceAction::Ensure);
        sketch.ensure(&after);
        let mut fresh = Sketch::new();
        fresh.ensure(&after);
        assert_eq!(sketch.contents(), fresh.contents());
    }
}

#[test]
fn an_internal_balancer_does_not_keep_the_priority_above_a_deny_rule() {
    for are_used in [true, false] {
        let mut sketch = Sketch::new();
        (sketch.env.options.denies, sketch.env.options.removes_deny_rules) = (true, true);
        sketch.ensure(&web(json!({})));
        let mut after = internal(json!({}));
        after.metadata.finalizers = vec!["gke.networking.io/l4-netlb-v1".to_owned()];
        let firewall = format!("k8s-fw-{LB}");
        assert_eq!(sketch.observed.firewalls[&firewall].priority, Some(999));
        (sketch.env.options.denies, sketch.env.options.removes_deny_rules) = (are_used, are_used);
        sketch.ensure(&after);
        assert_eq!(sketch.observed.firewalls[&firewall].priority, Some(1000), "{are_used}");
        assert_eq!(sketch.ensure(&internal(json!({}))), [] as [&str; 0], "{are_used}");
    }
}

#[test]
fn a_left_over_address_is_used_only_if_it_is_the_wanted_one() {
    let mut sketch = go_made();
    reserve(&mut sketch, json!({"name": LB, "description": OURS, "address": "10.0.0.99", "addressType": "INTERNAL"}));
    let udp = internal(json!({"ports": ports("UDP", &[80, 443])}));
    let steps = sketch.ensures(&udp);
    assert_eq!(words(&steps)[..2], ["delete Address LB", "create Address LB"]);
    assert_eq!(body(&steps[1..], "Address", LB)["address"], "10.0.0.7");
    sketch.carry_out(&steps);
    assert_eq!((sketch.ip().as_deref(), sketch.observed.addresses.len()), (Some("10.0.0.7"), 0));
}

#[test]
fn a_reserved_address_of_the_user_is_used_and_never_released() {
    let mut sketch = Sketch::new();
    reserve(&mut sketch, json!({"name": "mine", "address": "10.0.0.50", "addressType": "INTERNAL"}));
    let service = internal(json!({"loadBalancerIP": "10.0.0.50"}));
    let steps = sketch.ensure(&service);
    assert!(!steps.iter().any(|step| step.contains("Address")), "{steps:?}");
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
    sketch.delete(&service);
    assert_eq!(sketch.contents(), ["address mine"]);
    reserve(&mut sketch, json!({"name": "mine", "address": "10.0.0.50", "addressType": "EXTERNAL"}));
    let error = sketch.refuses(&service);
    assert!(error.contains("EXTERNAL") && error.contains("loadBalancerIP"), "{error}");
    // Only a shared address may have other users.
    let users = json!([format!("{WWW}/regions/us-central1/forwardingRules/x")]);
    reserve(&mut sketch, json!({"name": "mine", "address": "10.0.0.50", "addressType": "INTERNAL", "users": users}));
    assert!(sketch.refuses(&service).contains("in use by x"));
    let shared = "SHARED_LOADBALANCER_VIP";
    reserve(
        &mut sketch,
        json!({"name": "mine", "address": "10.0.0.50", "addressType": "INTERNAL", "users": users, "purpose": shared}),
    );
    assert!(!sketch.ensures(&service).is_empty());
    for (fields, expected) in [
        (json!({"subnetwork": format!("{WWW}/regions/us-central1/subnetworks/other")}), "of the subnetwork other"),
        (json!({"purpose": "VPC_PEERING"}), "VPC_PEERING"),
    ] {
        let mut address = json!({"name": "mine", "address": "10.0.0.50", "addressType": "INTERNAL"});
        address.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        reserve(&mut sketch, address);
        let error = sketch.refuses(&service);
        assert!(error.contains("spec.loadBalancerIP") && error.contains(expected), "{error}");
    }
}

/// The names are those of the balancer that exists.
#[test]
fn hosts_follow_the_rule_if_the_service_asks_for_another_backend_service() {
    let mut sketch = go_made();
    sketch.nodes = vec![node("n2", "us-central1-c")];
    for asked in [
        internal(json!({"ports": ports("UDP", &[80, 443]), "sessionAffinity": "ClientIP"})),
        annotated(two_ports(), SHARE, "true"),
        two_ports(),
        web(json!({})),
    ] {
        let steps = sketch.plan(&asked, ServiceAction::UpdateHosts).unwrap();
        let expected = ["create InstanceGroup k8s-ig--cid", "attach Instances k8s-ig--cid", "update BackendService LB"];
        assert_eq!(words(&steps), expected);
    }
}

#[test]
fn a_rule_without_a_known_subnetwork_is_replaced_in_its_own() {
    let mut sketch = go_made();
    let problem = Some("ccm lacks compute.networks.get".to_owned());
    sketch.observed.network = super::super::super::facts::NetworkFacts { problem, ..Default::default() };
    let steps = sketch.ensures(&internal(json!({"ports": ports("UDP", &[80, 443])})));
    let created = steps.iter().rfind(|step| step.kind == "ForwardingRule").unwrap().act.write().body.clone().unwrap();
    assert_eq!(created["subnetwork"], json!(sketch.observed.rules[LB].subnetwork));
    assert!(sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap().is_empty());
}

#[test]
fn global_access_is_patched() {
    let mut sketch = go_made();
    let open = annotated(two_ports(), ACCESS, "true");
    let steps = sketch.ensures(&open);
    assert_eq!(words(&steps), ["update ForwardingRule LB"]);
    sketch.carry_out(&steps);
    let steps = sketch.ensures(&two_ports());
    assert_eq!(body(&steps, "ForwardingRule", LB)["allowGlobalAccess"], json!(false));
    assert_eq!(sketch.ensure(&open), [] as [&str; 0]);
}

#[test]
fn another_subnetwork_gives_another_address() {
    let mut sketch = go_made();
    sketch.ensure(&annotated(two_ports(), SUBNET, "other"));
    let rule = &sketch.observed.rules[LB];
    assert_eq!(rule.subnetwork, format!("{WWW}/regions/us-central1/subnetworks/other"));
    assert!(rule.ip_address != "10.0.0.7");
}

#[test]
fn a_shared_backend_service_is_named_after_protocol_and_affinity() {
    let mut sketch = go_made();
    let shared = annotated(two_ports(), SHARE, "true");
    sketch.ensure(&shared);
    let name = "k8s-cid-internal-tcp-nmv1-6eef6648406c333a";
    assert_eq!(sketch.observed.backends.keys().collect::<Vec<_>>(), [name]);
    assert_eq!(sketch.observed.backends[name].description, "");
    assert_eq!(sketch.ensure(&shared), [] as [&str; 0]);
    sketch.delete(&shared);
    assert_eq!(sketch.contents(), [] as [&str; 0]);
    // Not with its own health checks.
    let steps = Sketch::new().ensures(&annotated(internal_local(), SHARE, "true"));
    assert!(words(&steps).contains(&"create BackendService LB".to_owned()));
}

#[test]
fn the_older_firewall_goes_once_the_newer_one_is_there() {
    let mut sketch = go_made();
    let old = Firewall { name: LB.to_owned(), ..sketch.observed.firewalls[&format!("k8s-fw-{LB}")].clone() };
    sketch.observed.firewalls.insert(LB.to_owned(), old);
    let newer = sketch.observed.firewalls.remove(&format!("k8s-fw-{LB}")).unwrap();
    assert_eq!(sketch.ensure(&two_ports()), ["create Firewall k8s-fw-LB"]);
    sketch.observed.firewalls.insert(newer.name.clone(), newer);
    assert_eq!(sketch.ensure(&two_ports()), ["delete Firewall LB"]);
}

#[test]
fn a_changed_backend_service_is_patched_with_its_fingerprint() {
    let mut sketch = go_made();
    sketch.observed.backends.get_mut(LB).unwrap().description = "by hand".to_owned();
    let steps = sketch.ensures(&two_ports());
    let patch = body(&steps, "BackendService", LB);
    assert_eq!(patch, json!({"fingerprint": "abc=", "description": sketch.observed.rules[LB].description}));
}

#[test]
fn nodes_with_long_names_join_once() {
    let mut sketch = go_made();
    let node: Node =
        serde_json::from_value(json!({"name": "n1.c.p.internal", "labels": {"topology.kubernetes.io/zone": ZONE}}))
            .unwrap();
    sketch.nodes = vec![node.into()];
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn instances_of_nodes_without_a_zone_stay_in_their_group() {
    let mut sketch = go_made();
    sketch.nodes = vec![node("n2", ZONE), serde_json::from_value::<Node>(json!({"name": "n1"})).unwrap().into()];
    assert_eq!(sketch.ensure(&two_ports()), ["attach Instances k8s-ig--cid"]);
}

#[test]
fn groups_are_left_alone_where_others_manage_them() {
    let mut sketch = go_made();
    sketch.env.options.skips_groups = true;
    sketch.nodes.push(node("n2", ZONE));
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    sketch.delete(&two_ports());
    assert_eq!(sketch.contents(), ["group k8s-ig--cid"]);
}

#[test]
fn a_legacy_network_has_no_options_and_no_reservations() {
    let mut sketch = Sketch::new();
    sketch.observed.network = super::super::super::facts::NetworkFacts { is_legacy: true, ..Default::default() };
    let service = annotated(internal(json!({})), ACCESS, "true");
    let wanted = sketch.wanted(&service, ServiceAction::Ensure).unwrap();
    let Steps { steps, findings, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    assert_eq!(findings[0].key, "ILBOptionsIgnored");
    assert!(!words(&steps).iter().any(|step| step.contains("Address")));
    sketch.carry_out(&steps);
    assert!(!sketch.observed.rules[LB].allow_global_access);
    assert_eq!(sketch.observed.firewalls[&format!("k8s-fw-{LB}")].destination_ranges, ["10.240.0.9"]);
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
    let plain = sketch.wanted(&internal(json!({})), ServiceAction::Ensure).unwrap();
    assert!(plan(&sketch.env, &sketch.observed, &plain).findings.is_empty());
}

/// It is no option: the Go program shares it there, too.
#[test]
fn services_share_a_backend_service_in_a_legacy_network() {
    let mut sketch = Sketch::new();
    sketch.observed.network = super::super::super::facts::NetworkFacts { is_legacy: true, ..Default::default() };
    let service = annotated(internal(json!({})), SHARE, "true");
    let wanted = sketch.wanted(&service, ServiceAction::Ensure).unwrap();
    let Steps { steps, findings, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    assert!(findings.is_empty(), "{findings:?}");
    sketch.carry_out(&steps);
    assert_eq!(last_part(&sketch.observed.rules[LB].backend_service), "k8s-cid-internal-tcp-nmv1-6eef6648406c333a");
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
}

#[test]
fn without_a_known_subnetwork_nothing_is_made_and_the_reason_is_given() {
    let mut sketch = Sketch::new();
    let problem = Some("no node has a NIC in the network".to_owned());
    sketch.observed.network = super::super::super::facts::NetworkFacts { problem, ..Default::default() };
    let error = sketch.refuses(&internal(json!({})));
    assert!(error.contains("no node has a NIC") && error.contains("subnetwork-name"), "{error}");
    assert!(!sketch.ensures(&annotated(internal(json!({})), SUBNET, "s")).is_empty());
    // An existing balancer has a subnetwork.
    let made = go_made();
    sketch.observed = Observed { network: sketch.observed.network, ..made.observed };
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn local_without_a_port_is_refused_with_the_field() {
    let error = Sketch::new().refuses(&internal(json!({"externalTrafficPolicy": "Local"})));
    assert!(error.contains("spec.healthCheckNodePort"), "{error}");
    let error = Sketch::new().refuses(&internal(json!({"ports": ports("SCTP", &[80])})));
    assert_eq!(error, "Invalid protocol SCTP, only TCP and UDP are supported");
}

/// Instances of our zone.
fn hosts(names: &[&str]) -> BTreeSet<Host> {
    names.iter().map(|name| Host { zone: ZONE.to_owned(), name: (*name).to_owned() }).collect()
}

#[test]
fn a_group_of_others_is_left_before_its_instances_join_ours() {
    let mut sketch = Sketch { nodes: vec![node("n1", ZONE), node("n2", ZONE)], ..Sketch::new() };
    sketch.env.external_groups_prefix = "infra-".to_owned();
    let groups = [("infra-a".to_owned(), hosts(&["n1"])), ("other".to_owned(), hosts(&["n2"]))];
    sketch.observed.groups.insert(ZONE.to_owned(), groups.into());
    let service = internal(json!({}));
    sketch.ensure(&service);
    let of = |sketch: &Sketch| {
        let mut names: Vec<String> =
            sketch.observed.backends[LB].groups().map(|group| last_part(group).to_owned()).collect();
        names.sort();
        (names, sketch.observed.groups[ZONE]["k8s-ig--cid"].clone())
    };
    assert_eq!(of(&sketch), (vec!["infra-a".to_owned(), "k8s-ig--cid".to_owned()], hosts(&["n2"])));
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
    // An instance that is not a node joins it.
    sketch.observed.groups.get_mut(ZONE).unwrap().insert("infra-a".to_owned(), hosts(&["bastion", "n1"]));
    let steps = sketch.ensure(&service);
    assert_eq!(steps, ["update BackendService LB", "attach Instances k8s-ig--cid"]);
    assert_eq!(of(&sketch), (vec!["k8s-ig--cid".to_owned()], hosts(&["n1", "n2"])));
    // An empty group is not used.
    sketch.observed.groups.get_mut(ZONE).unwrap().insert("infra-a".to_owned(), hosts(&[]));
    assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
}
