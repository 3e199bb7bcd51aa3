use super::addresses::wants;
use super::*;

const TIER: &str = "cloud.google.com/network-tier";

/// The objects of the Go program, byte for byte.
pub(super) fn go_made() -> Sketch {
    let mut sketch = Sketch::new();
    let service = r#"{"kubernetes.io/service-name":"default/web"}"#;
    let rule = json!({
        "name": LB, "description": service, "IPAddress": "203.0.113.7", "IPProtocol": "TCP", "portRange": "80-443",
        "target": format!("{WWW}/regions/us-central1/targetPools/{LB}"), "networkTier": "PREMIUM",
        "loadBalancingScheme": "EXTERNAL", "fingerprint": "x",
    });
    let traffic = json!({
        "name": format!("k8s-fw-{LB}"), "network": format!("{WWW}/global/networks/default"),
        "description": r#"{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"203.0.113.7"}"#,
        "sourceRanges": ["0.0.0.0/0"], "destinationRanges": ["203.0.113.7"], "targetTags": ["k8s-node"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["80", "443"]}], "priority": 1000, "direction": "INGRESS",
    });
    let checks = json!({
        "name": "k8s-cid-node-http-hc", "description": r#"{"kubernetes.io/cluster-id":"cid"}"#,
        "network": format!("{WWW}/global/networks/default"), "targetTags": ["k8s-node"], "priority": 1000,
        "sourceRanges": ["130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["10256"]}],
    });
    let check = json!({
        "name": "k8s-cid-node", "description": r#"{"kubernetes.io/service-name":"k8s-cid-node"}"#, "port": 10256,
        "requestPath": "/healthz", "checkIntervalSec": 8, "timeoutSec": 1, "healthyThreshold": 1, "unhealthyThreshold": 3,
    });
    let pool = json!({
        "name": LB, "description": service, "sessionAffinity": "NONE",
        "instances": [format!("{WWW}/zones/{ZONE}/instances/n1")],
        "healthChecks": [format!("{WWW}/global/httpHealthChecks/k8s-cid-node")],
    });
    let observed = &mut sketch.observed;
    observed.rules.insert(LB.to_owned(), serde_json::from_value(rule).unwrap());
    for firewall in [traffic, checks] {
        observed
            .firewalls
            .insert(firewall["name"].as_str().unwrap().to_owned(), serde_json::from_value(firewall).unwrap());
    }
    observed.http_checks.insert("k8s-cid-node".to_owned(), serde_json::from_value(check).unwrap());
    observed.pools.insert(LB.to_owned(), serde_json::from_value(pool).unwrap());
    sketch
}

fn two_ports() -> Service {
    web(json!({"ports": ports("TCP", &[80, 443])}))
}

#[test]
fn a_balancer_is_made_behind_first() {
    let mut sketch = Sketch::new();
    let steps = sketch.ensure(&two_ports());
    assert_eq!(
        steps,
        [
            "create HttpHealthCheck k8s-cid-node",
            "create Firewall k8s-cid-node-http-hc",
            "create TargetPool LB",
            "create ForwardingRule LB",
            "create Firewall k8s-fw-LB",
        ]
    );
    assert_eq!(sketch.ip().as_deref(), Some("203.0.113.1"));
}

#[test]
fn a_second_sync_writes_nothing() {
    let mut sketch = Sketch::new();
    for service in [two_ports(), local(), web(json!({"sessionAffinity": "ClientIP"}))] {
        sketch.ensure(&service);
        assert_eq!(sketch.ensure(&service), [] as [&str; 0]);
    }
}

#[test]
fn what_the_go_program_made_is_taken_over_without_a_write() {
    let mut sketch = go_made();
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn objects_are_those_of_the_go_program() {
    let go = go_made().observed;
    let mut sketch = Sketch::new();
    let steps = sketch.ensures(&two_ports());
    sketch.carry_out(&steps);
    let made = &sketch.observed;
    let (rule, go_rule) = (&made.rules[LB], &go.rules[LB]);
    assert_eq!(
        (&rule.description, &rule.port_range, &rule.ip_protocol),
        (&go_rule.description, &go_rule.port_range, &go_rule.ip_protocol)
    );
    assert_eq!(rule.target, format!("{BASE}/regions/us-central1/targetPools/{LB}"));
    assert_eq!(made.http_checks, go.http_checks);
    assert_eq!(made.firewalls["k8s-cid-node-http-hc"].description, go.firewalls["k8s-cid-node-http-hc"].description);
    let body_of_rule = body(&steps, "ForwardingRule", LB);
    assert_eq!((&body_of_rule["networkTier"], body_of_rule.get("IPAddress")), (&json!("PREMIUM"), None));
    assert_eq!(
        body(&steps, "TargetPool", LB)["healthChecks"],
        json!([format!("{BASE}/global/httpHealthChecks/k8s-cid-node")])
    );
}

#[test]
fn a_creation_survives_any_death() {
    Sketch::new().survives_any_death(&two_ports(), ServiceAction::Ensure);
    Sketch::new().survives_any_death(&local(), ServiceAction::Ensure);
}

#[test]
fn a_change_survives_any_death_with_its_address() {
    let sketch = go_made();
    let changed = web(json!({"ports": ports("TCP", &[81])}));
    sketch.survives_any_death(&changed, ServiceAction::Ensure);
    let steps = sketch.ensures(&changed);
    assert_eq!(
        words(&steps),
        [
            "create Address LB",
            "update Firewall k8s-fw-LB",
            "delete ForwardingRule LB",
            "create ForwardingRule LB",
            "update Firewall k8s-fw-LB",
            "delete Address LB"
        ]
    );
    let admits = |index: usize| steps[index].act.write().body.as_ref().unwrap()["allowed"][0]["ports"].clone();
    assert_eq!((admits(1), admits(4)), (json!(["80-81", "443"]), json!(["81"])));
    assert_eq!(body(&steps, "Address", LB)["address"], "203.0.113.7");
    // The rule could not be created: the address is kept, used by the next attempt, and then released.
    let mut sketch = go_made();
    sketch.carry_out(&steps[..3]);
    assert_eq!(sketch.observed.addresses[LB].address, "203.0.113.7");
    let rest = ["update Firewall k8s-fw-LB", "create ForwardingRule LB", "delete Address LB"];
    assert_eq!(sketch.ensure(&changed), rest);
    assert_eq!(sketch.ip().as_deref(), Some("203.0.113.7"));
}

#[test]
fn a_change_of_the_policy_replaces_pool_and_rule_and_keeps_the_address() {
    for (before, after, gone) in
        [(local(), web(json!({})), "http check LB"), (web(json!({})), local(), "http check k8s-cid-node")]
    {
        let mut sketch = Sketch::new();
        sketch.ensure(&before);
        let ip = sketch.ip();
        sketch.survives_any_death(&after, ServiceAction::Ensure);
        let steps = sketch.ensure(&after);
        for step in
            ["delete ForwardingRule LB", "delete TargetPool LB", "create TargetPool LB", "create ForwardingRule LB"]
        {
            assert!(steps.contains(&step.to_owned()), "{steps:?}");
        }
        assert_eq!(sketch.ip(), ip);
        let contents = sketch.contents().join("\n").replace(LB, "LB");
        assert!(!contents.contains(gone), "{contents}");
        assert_eq!(contents.matches("firewall").count(), 2, "{contents}");
        assert_eq!(sketch.ensure(&after), [] as [&str; 0]);
    }
}

#[test]
fn another_affinity_replaces_pool_and_rule() {
    let sketch = go_made();
    let sticky = web(json!({"ports": ports("TCP", &[80, 443]), "sessionAffinity": "ClientIP"}));
    sketch.survives_any_death(&sticky, ServiceAction::Ensure);
    let steps = sketch.ensures(&sticky);
    assert_eq!(
        body(&steps[steps.iter().position(|step| step.rank == Rank::Pools).unwrap()..], "TargetPool", LB)["sessionAffinity"],
        "CLIENT_IP"
    );
}

#[test]
fn a_rule_without_a_scheme_is_external() {
    let mut sketch = go_made();
    sketch.observed.rules.get_mut(LB).unwrap().load_balancing_scheme = String::new();
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn discrete_ports_of_an_older_release_stay() {
    let mut sketch = go_made();
    let rule = sketch.observed.rules.get_mut(LB).unwrap();
    (rule.ports, rule.port_range) = (vec!["80".to_owned(), "443".to_owned()], String::new());
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    // And a range stays if discrete ports are enabled.
    let mut sketch = go_made();
    sketch.env.options.discrete_ports = true;
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    let steps = Sketch { observed: Sketch::new().observed, ..sketch }.ensures(&two_ports());
    let rule = body(&steps, "ForwardingRule", LB);
    assert_eq!((&rule["ports"], rule.get("portRange")), (&json!(["80", "443"]), None));
}

#[test]
fn without_annotation_a_balancer_keeps_its_tier() {
    let mut sketch = Sketch::new();
    let standard = annotated(two_ports(), TIER, "Standard");
    sketch.ensure(&standard);
    assert_eq!(sketch.observed.rules[LB].network_tier, "STANDARD");
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    // Also if its rule is created again.
    let steps = sketch.ensures(&web(json!({})));
    assert_eq!(body(&steps, "Address", LB)["networkTier"], "STANDARD");
    // Another tier means another address.
    let premium = annotated(two_ports(), TIER, "Premium");
    sketch.survives_any_death(&premium, ServiceAction::Ensure);
    let ip = sketch.ip();
    sketch.ensure(&premium);
    assert!(sketch.ip() != ip && sketch.observed.rules[LB].network_tier == "PREMIUM");
}

#[test]
fn a_rule_of_a_fixed_standard_tier_keeps_its_address() {
    let standard = annotated(two_ports(), TIER, "Standard");
    for tier in ["FIXED_STANDARD", "STANDARD_OVERRIDES_FIXED_STANDARD"] {
        let mut sketch = Sketch::new();
        sketch.ensure(&standard);
        tier.clone_into(&mut sketch.observed.rules.get_mut(LB).unwrap().network_tier);
        let ip = sketch.ip();
        for service in [&two_ports(), &standard] {
            assert_eq!(sketch.ensure(service), [] as [&str; 0], "{tier}");
        }
        // Also if it is replaced for its ports.
        sketch.ensure(&web(json!({})));
        assert_eq!((sketch.ip(), &*sketch.observed.rules[LB].network_tier), (ip, "STANDARD"), "{tier}");
    }
    // Any other tier is left as it is, as by the Go program.
    let mut sketch = go_made();
    "SELECT".clone_into(&mut sketch.observed.rules.get_mut(LB).unwrap().network_tier);
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn a_wrong_tier_is_refused_before_anything_is_read() {
    let sketch = Sketch::new();
    let error = sketch.refuses(&annotated(two_ports(), TIER, "standard"));
    assert!(error.contains(r#"unsupported network tier: "standard""#) && error.contains(TIER), "{error}");
}

/// Of the Service, only what it was ensured with is served.
#[test]
fn an_update_of_hosts_changes_nothing_but_hosts_whatever_the_service_asks_for() {
    let mut sketch = go_made();
    sketch.env.node_tags = Vec::new();
    sketch.nodes.push(node("n2", ZONE));
    let host = |name: &str| Host { zone: ZONE.to_owned(), name: name.to_owned() };
    sketch.observed.tags = [(host("n1"), Some("k8s-node".to_owned())), (host("n2"), None)].into();
    for asked in [
        two_ports(),
        web(json!({"ports": ports("TCP", &[8080]), "loadBalancerIP": "300.1.1.1"})),
        web(json!({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]})),
        web(json!({"loadBalancerSourceRanges": ["fd00::/8"]})),
        web(json!({"ports": ports("SCTP", &[80])})),
        annotated(two_ports(), TIER, "standard"),
        annotated(two_ports(), "networking.gke.io/load-balancer-type", "Internal"),
        local(),
    ] {
        let wanted = sketch.wanted(&asked, ServiceAction::UpdateHosts).unwrap();
        let Steps { steps, findings, failed } = plan(&sketch.env, &sketch.observed, &wanted);
        assert_eq!((words(&steps), failed.len()), (vec!["attach Instances LB".to_owned()], 0), "{asked:?}");
        assert!(findings.iter().any(|finding| finding.message.contains("instance n2")), "{findings:?}");
    }
    // Only the tags of rules change, and while the tag of a host is not known, none is removed.
    sketch.observed.tags.insert(host("n2"), Some("other".to_owned()));
    let changed = web(json!({"ports": ports("TCP", &[8080])}));
    let steps = sketch.plan(&changed, ServiceAction::UpdateHosts).unwrap();
    let patch = body(&steps, "Firewall", &format!("k8s-fw-{LB}"));
    assert_eq!(patch, json!({"name": format!("k8s-fw-{LB}"), "targetTags": ["k8s-node", "other"]}));
    // An ensure that is refused leaves the hosts to the nodes, too.
    let wanted = sketch.wanted(&wants("198.51.100.1"), ServiceAction::Ensure).unwrap();
    let Steps { steps, failed, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&0]);
    assert!(
        words(&steps).contains(&"attach Instances LB".to_owned())
            && steps.iter().all(|step| step.kind != "ForwardingRule")
    );
}

#[test]
fn nodes_of_another_region_are_left_out_with_a_finding() {
    let mut sketch = go_made();
    sketch.nodes.push(node("n2", "us-east1-b"));
    for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
        let wanted = sketch.wanted(&two_ports(), action).unwrap();
        let Steps { steps, findings, failed } = plan(&sketch.env, &sketch.observed, &wanted);
        assert_eq!((words(&steps), failed.len()), (Vec::new(), 0));
        assert!(findings.iter().any(|it| it.message.contains("n2 in us-east1-b")), "{findings:?}");
    }
    sketch.nodes.remove(0);
    let error = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap_err().to_string();
    assert!(error.contains("instance not found") && error.contains("us-east1-b"), "{error}");
}

/// Not sent, and not advised to administrators.
#[test]
fn the_deletion_of_an_absent_firewall_is_not_planned() {
    for (before, after, absent) in [
        (two_ports(), None, "k8s-cid-node-http-hc"),
        (local(), Some(web(json!({}))), "k8s-LB-http-hc"),
        (web(json!({})), Some(local()), "k8s-cid-node-http-hc"),
    ] {
        let mut sketch = Sketch::new();
        sketch.ensure(&before);
        sketch.observed.firewalls.remove(&absent.replace("LB", LB));
        let steps = match &after {
            Some(after) => sketch.ensures(after),
            None => sketch.plan(&before, ServiceAction::Delete).unwrap(),
        };
        let deleted = steps.iter().filter(|step| step.verb == Does::Delete).map(|step| step.id.clone());
        let deleted: Vec<String> = deleted.collect();
        assert!(!deleted.contains(&absent.replace("LB", LB)), "{deleted:?}");
    }
}

#[test]
fn a_pool_begins_with_200_instances() {
    let mut sketch = Sketch { nodes: nodes(201), ..Sketch::new() };
    let steps = sketch.ensures(&web(json!({})));
    let hosts = |step: &Step| match &step.act {
        Act::InsertPool { hosts, .. } | Act::Join { hosts, .. } | Act::Leave { hosts, .. } => Some(hosts.len()),
        _ => None,
    };
    assert_eq!(steps.iter().filter_map(hosts).collect::<Vec<_>>(), [200, 1]);
    sketch.carry_out(&steps);
    assert_eq!(sketch.observed.pools[LB].instances.len(), 201);
    sketch.nodes = nodes(2203);
    let steps = sketch.plan(&web(json!({})), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(steps.iter().filter_map(hosts).collect::<Vec<_>>(), [1000, 1000, 2]);
    sketch.carry_out(&steps);
    sketch.nodes = nodes(3);
    let steps = sketch.plan(&web(json!({})), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(steps.iter().filter_map(hosts).collect::<Vec<_>>(), [1000, 1000, 200]);
}

#[test]
fn without_any_instance_the_pool_stays() {
    let mut sketch = go_made();
    sketch.nodes = nodes(2);
    let hosts = [1, 2].map(|number| Host { zone: ZONE.to_owned(), name: format!("n000{number}") });
    sketch.observed.missing.extend(hosts);
    for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
        let error = sketch.plan(&two_ports(), action).unwrap_err().to_string();
        assert!(error.contains("instance not found"), "{error}");
    }
    sketch.nodes = Vec::new();
    assert_eq!(sketch.refuses(&two_ports()), "cannot EnsureLoadBalancer() with no hosts");
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(kinds(&steps), ["detach Instances"]);
}

#[test]
fn an_instance_whose_node_has_no_zone_stays() {
    let mut sketch = go_made();
    sketch.nodes = vec![node("n2", ZONE), serde_json::from_value::<Node>(json!({"name": "n1"})).unwrap().into()];
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(kinds(&steps), ["attach Instances"]);
}

#[test]
fn the_firewall_that_services_share_is_for_no_address() {
    let mut sketch = go_made();
    let firewall = sketch.observed.firewalls.get_mut("k8s-cid-node-http-hc").unwrap();
    firewall.destination_ranges = vec!["203.0.113.6".to_owned()];
    let steps = sketch.ensures(&two_ports());
    assert_eq!(words(&steps), ["update Firewall k8s-cid-node-http-hc"]);
    assert_eq!(body(&steps, "Firewall", "k8s-cid-node-http-hc")["destinationRanges"], json!([]));
}

#[test]
fn numbers_of_a_health_check_that_users_raised_stay() {
    let mut sketch = go_made();
    let check = sketch.observed.http_checks.get_mut("k8s-cid-node").unwrap();
    check.check_interval_sec = 80;
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    let check = sketch.observed.http_checks.get_mut("k8s-cid-node").unwrap();
    (check.check_interval_sec, check.unhealthy_threshold) = (2, 30);
    assert_eq!(sketch.ensure(&two_ports()), ["update HttpHealthCheck k8s-cid-node"]);
    let check = &sketch.observed.http_checks["k8s-cid-node"];
    assert_eq!((check.check_interval_sec, check.unhealthy_threshold), (8, 30));
}

#[test]
fn another_protocol_on_the_same_ports_changes_the_firewall() {
    let mut sketch = go_made();
    let udp = web(json!({"ports": ports("UDP", &[80, 443])}));
    sketch.survives_any_death(&udp, ServiceAction::Ensure);
    sketch.ensure(&udp);
    assert_eq!(sketch.observed.firewalls[&format!("k8s-fw-{LB}")].allowed[0].protocol, "udp");
    assert_eq!(sketch.ensure(&udp), [] as [&str; 0]);
}

#[test]
fn what_another_balancer_uses_survives_a_deletion() {
    let mut sketch = go_made();
    let other = json!({"name": "b", "healthChecks": [format!("{WWW}/global/httpHealthChecks/k8s-cid-node")]});
    sketch.observed.pools.insert("b".to_owned(), serde_json::from_value(other).unwrap());
    sketch.survives_any_death(&two_ports(), ServiceAction::Delete);
    sketch.delete(&two_ports());
    assert_eq!(sketch.contents(), ["pool b", "firewall k8s-cid-node-http-hc", "http check k8s-cid-node"]);
}

#[test]
fn a_deletion_leaves_nothing_and_survives_any_death() {
    for service in [two_ports(), local()] {
        let mut sketch = Sketch::new();
        sketch.ensure(&service);
        let mut begun = service.clone();
        begun.metadata.finalizers = vec!["gke.networking.io/l4-netlb-v1".to_owned()];
        sketch.survives_any_death(&begun, ServiceAction::Delete);
        sketch.delete(&service);
        assert_eq!(sketch.contents(), [] as [&str; 0]);
        assert_eq!(sketch.delete(&service), [] as [&str; 0]);
    }
}

fn denying() -> Sketch {
    let mut sketch = go_made();
    (sketch.env.options.denies, sketch.env.options.removes_deny_rules) = (true, true);
    sketch
}

#[test]
fn what_admits_comes_before_what_denies() {
    let mut sketch = denying();
    let steps = sketch.ensures(&two_ports());
    assert_eq!(
        words(&steps),
        ["update Firewall k8s-fw-LB", "update Firewall k8s-cid-node-http-hc", "create Firewall k8s-fw-LB-deny"]
    );
    // All earlier steps belong to the same Service, or to all: if one fails, the deny rule is not created.
    assert!(steps.iter().map(|step| step.rank).is_sorted_by(|a, b| a <= b && (*a != *b || *a == Rank::Firewalls)));
    sketch.survives_any_death(&two_ports(), ServiceAction::Ensure);
    let changed = web(json!({"ports": ports("TCP", &[81])}));
    sketch.survives_any_death(&changed, ServiceAction::Ensure);
    sketch.carry_out(&steps);
    sketch.survives_any_death(&changed, ServiceAction::Ensure);
    assert_eq!(sketch.observed.firewalls[&format!("k8s-fw-{LB}")].priority, Some(999));
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn what_denies_goes_before_what_admits_is_lowered() {
    let mut sketch = denying();
    sketch.ensure(&two_ports());
    sketch.env.options.denies = false;
    sketch.survives_any_death(&two_ports(), ServiceAction::Ensure);
    let steps = sketch.ensure(&two_ports());
    assert_eq!(
        steps,
        ["delete Firewall k8s-fw-LB-deny", "update Firewall k8s-fw-LB", "update Firewall k8s-cid-node-http-hc"]
    );
    // Without the cleanup flag the deny rule is not looked for: the priorities stay.
    let mut sketch = denying();
    sketch.ensure(&two_ports());
    sketch.env.options = Options::default();
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
}

#[test]
fn firewalls_follow_the_tags_of_the_nodes() {
    let mut sketch = go_made();
    sketch.env.node_tags = Vec::new();
    let host = Host { zone: ZONE.to_owned(), name: "n1".to_owned() };
    sketch.observed.tags.insert(host.clone(), Some("n".to_owned()));
    let steps = sketch.plan(&two_ports(), ServiceAction::UpdateHosts).unwrap();
    assert_eq!(words(&steps), ["update Firewall k8s-fw-LB", "update Firewall k8s-cid-node-http-hc"]);
    // Without a tag of its own nothing changes, and no rule is made.
    sketch.observed.tags.insert(host, None);
    assert_eq!(sketch.ensure(&two_ports()), [] as [&str; 0]);
    for missing in [format!("k8s-fw-{LB}"), "k8s-cid-node-http-hc".to_owned()] {
        let rule = sketch.observed.firewalls.remove(&missing).unwrap();
        let error = sketch.refuses(&two_ports());
        assert!(error.contains("instance n1 in us-central1-b") && error.contains("node-tags"), "{error}");
        // One for all instances was made by hand.
        let open = Firewall { target_tags: Vec::new(), ..rule.clone() };
        sketch.observed.firewalls.insert(missing.clone(), open);
        assert_eq!(sketch.refuses(&two_ports()), error);
        sketch.observed.firewalls.insert(missing, rule);
    }
}

/// Registered again without provider ID, for example.
#[test]
fn the_rules_keep_the_tag_of_a_node_without_a_zone() {
    let mut sketch = go_made();
    sketch.env.node_tags = Vec::new();
    let host = |name: &str| Host { zone: ZONE.to_owned(), name: name.to_owned() };
    sketch.observed.tags = [(host("n1"), Some("k8s-node".to_owned()))].into();
    sketch.observed.firewalls.values_mut().for_each(|rule| rule.target_tags.push("other".to_owned()));
    let pool = sketch.observed.pools.get_mut(LB).unwrap();
    pool.instances.push(format!("{WWW}/zones/{ZONE}/instances/n2"));
    sketch.nodes.push(Node { name: "n2".into(), ..Node::default() }.into());
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        assert_eq!(words(&sketch.plan(&two_ports(), action).unwrap()), [] as [&str; 0]);
    }
    // It goes with the node.
    sketch.nodes.pop();
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let mut steps = words(&sketch.plan(&two_ports(), action).unwrap());
        steps.sort();
        assert_eq!(steps, ["detach Instances LB", "update Firewall k8s-cid-node-http-hc", "update Firewall k8s-fw-LB"]);
    }
}

#[test]
fn a_rule_with_a_backend_service_is_anothers() {
    let mut sketch = go_made();
    let rule = sketch.observed.rules.get_mut(LB).unwrap();
    (rule.target, rule.backend_service) = (String::new(), format!("{WWW}/regions/us-central1/backendServices/x"));
    assert!(sketch.plan(&two_ports(), ServiceAction::Ensure).unwrap_err().is_implemented_elsewhere());
    let steps = sketch.delete(&two_ports());
    assert!(!steps.iter().any(|step| step.contains("ForwardingRule")), "{steps:?}");
}

#[test]
fn bad_input_is_refused_with_field_and_remedy() {
    let sketch = Sketch::new();
    for (spec, expected) in [
        (json!({"ports": ports("SCTP", &[80])}), "invalid protocol SCTP, only TCP and UDP are supported"),
        (json!({"ports": []}), "no ports specified for GCE load balancer"),
        (
            json!({"loadBalancerIP": "fd00::1"}),
            r#"spec.loadBalancerIP "fd00::1" is not an IPv4 address; write one or remove it"#,
        ),
        (
            json!({"loadBalancerSourceRanges": ["x"]}),
            "service.Spec.LoadBalancerSourceRanges: [x] is not valid. Expecting a list of IP ranges. For example, 10.0.0.0/24. Error msg: invalid CIDR address: x",
        ),
    ] {
        assert_eq!(sketch.refuses(&web(spec)), expected);
    }
    let error = sketch.plan(&web(json!({"ports": []})), ServiceAction::Ensure).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }));
}

#[test]
fn of_several_services_each_step_of_what_they_share_is_done_once() {
    let sketch = Sketch::new();
    let mut other = two_ports();
    (other.metadata.uid, other.metadata.name) = ("22222222-2222-3333-4444-555555555555".into(), "other".into());
    let mut bad = two_ports();
    (bad.metadata.uid, bad.metadata.name) = ("33333333-2222-3333-4444-555555555555".into(), "bad".into());
    bad.spec.load_balancer_ip = "198.51.100.1".to_owned();
    let work =
        [two_ports(), other, bad].map(|service| ServiceWork::new(&service, &sketch.nodes, ServiceAction::Ensure));
    let (wanted, _) = wanted(&sketch.env, &work);
    let Steps { steps, failed, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&2]);
    assert!(steps.iter().all(|step| !step.items.contains(&2)));
    let of = |name: &str| steps.iter().find(|step| step.id == name).unwrap().items.clone();
    assert_eq!((of("k8s-cid-node"), of("k8s-cid-node-http-hc")), ([0, 1].into(), [0, 1].into()));
    assert_eq!(steps.iter().filter(|step| step.id == "k8s-cid-node").count(), 1);
    assert_eq!(steps.iter().filter(|step| step.id == "k8s-cid-node-http-hc").count(), 1);
    // The rules of both are created concurrently.
    let rules: Vec<u32> = steps.iter().filter(|step| step.rank == Rank::Rules).map(Step::stage).collect();
    assert_eq!((rules.len(), rules[0]), (2, rules[1]));
    assert!(steps.iter().all(|step| step.verb != Does::Update));
    assert!(body(&steps, "Firewall", &format!("k8s-fw-{LB}"))["description"].as_str().unwrap().contains(RESERVED));
}
