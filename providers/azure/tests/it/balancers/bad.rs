//! Bad input and refusals: the error names the cause and the remedy, other Services go on, and deletion ends.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

/// The errors of one call that ensures a good Service and this one. The good one has an address after it.
async fn refused(scene: &mut Scene, annotations: &[(&str, &str)], spec: Value) -> String {
    scene.spec("bad", annotations, spec);
    let names = ["good", "bad"];
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let mut errors = errors(&names, &answers);
    let error = errors.remove("bad").unwrap_or_else(|| panic!("nothing is wrong with {annotations:?}"));
    assert!(errors.is_empty(), "{annotations:?}: {errors:?}");
    assert!(!scene.ip("good").is_empty());
    scene.delete(&["bad"]).await;
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wrong_annotation_fails_its_service_alone_with_key_and_value() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("good", &[], port(80));
    let external = [
        ("azure-load-balancer-ipv4", "10.0.0.300"),
        ("azure-pip-name", "missing"),
        ("azure-pip-prefix-id", "not-an-id"),
        ("azure-pip-prefix-id", "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Network/publicIPPrefixes/no"),
        ("azure-load-balancer-resource-group", "no-such-group"),
        ("azure-additional-public-ips", "203.0.113.300"),
        ("azure-load-balancer-tcp-idle-timeout", "3"),
        ("azure-load-balancer-tcp-idle-timeout", "101"),
        ("azure-load-balancer-tcp-idle-timeout", "5a"),
        ("azure-load-balancer-health-probe-interval", "4"),
        ("azure-load-balancer-health-probe-num-of-probe", "1"),
        ("port_81_health-probe_port", "no-such-port"),
        ("port_81_health-probe_interval", "1"),
        ("azure-dns-label-name", "Not_A_Label"),
        ("azure-allowed-service-tags", "AzureClod"),
        ("azure-allowed-service-tags", ""),
    ];
    let names = |error: &str, (key, value): (&str, &str)| {
        let has_fix = ["write ", "correct ", "create ", "add ", "raise "].iter().any(|word| error.contains(word));
        error.contains(key) && error.contains(value) && has_fix
    };
    for annotation in external {
        let error = refused(&mut scene, &[annotation], json!({"ports": port(81)})).await;
        assert!(names(&error, annotation), "{annotation:?}: {error}");
    }
    // The key is the one that gives the value, whatever the family.
    let id = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Network/publicIPPrefixes/no";
    for key in ["azure-pip-prefix-id", "azure-pip-prefix-id-ipv6"] {
        let spec = json!({"ports": port(81), "ipFamilies": ["IPv6"]});
        let error = refused(&mut scene, &[(key, id)], spec).await;
        assert!(error.contains(&format!("{key} \"{id}\"")), "{key}: {error}");
    }
    let internal = [
        ("azure-load-balancer-internal-subnet", "no-such-subnet"),
        ("azure-pls-ip-configuration-ip-address-count", "9"),
        ("azure-pls-ip-configuration-ip-address", "10.240.0.400"),
        ("azure-pls-ip-configuration-subnet", "no-such-subnet"),
        ("azure-pls-resource-group", "no-such-group"),
        ("azure-pls-auto-approval", "sub-b"),
    ];
    for annotation in internal {
        let all = [INTERNAL, ("azure-pls-create", "true"), annotation];
        let error = refused(&mut scene, &all, json!({"ports": port(81)})).await;
        assert!(names(&error, annotation), "{annotation:?}: {error}");
    }
    scene.delete(&["good"]).await;
    assert!(scene.objects("loadBalancers").is_empty() && scene.objects("publicIPAddresses").is_empty());
    scene.bed.is_clean();
}

/// One call that makes a good Service and one with a service tag, and deletes a third. The errors, by name.
async fn with_tag(scene: &mut Scene, tag: &str) -> BTreeMap<String, String> {
    scene.service("gone", &[], port(79));
    scene.ensure(&["gone"]).await;
    scene.service("good", &[], port(80));
    scene.service("bad", &[("azure-allowed-service-tags", tag)], port(81));
    let mut work = scene.work(&["good", "bad"], ServiceAction::Ensure);
    work.extend(scene.work(&["gone"], ServiceAction::Delete));
    let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
    let gone = answers[2].result.as_ref().err();
    assert!(gone.is_none_or(ProviderError::is_in_progress), "{gone:?}");
    // Its address has gone in that call, or goes without another write.
    let mark = scene.mark();
    scene.delete(&["gone"]).await;
    assert_eq!(scene.writes(mark), BTreeMap::new());
    errors(&["good", "bad"], &answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_tag_that_azure_does_not_know_fails_its_service_alone() {
    // At once, and at the end of the operation.
    for is_late in [false, true] {
        let mut scene = Scene::new(BY_ADDRESS, 1).await;
        let tag = if is_late { "AzureCloud" } else { "AzureClod" };
        if is_late {
            let hash = "8896cece21a584b3d25e9e13ebcb92b0";
            let message = format!(
                "Security rule {GROUP}/Microsoft.Network/networkSecurityGroups/nsg/securityRules/k8s-azure-lb_allow_IPv4_{hash} has \
                 invalid Address prefix. Value provided: AzureCloud"
            );
            let fault = Fault::Operation { status: 400, code: "SecurityRuleInvalidAddressPrefix".into(), message };
            let rule = Rule { params: Some("AzureCloud".to_owned()), ..Rule::every(fault) };
            scene.bed.cloud.fault(rule.on("network", "networkSecurityGroups.put"));
        }
        let errors = with_tag(&mut scene, tag).await;
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["bad"], "{errors:?}");
        assert!(errors["bad"].contains(&format!("Value provided: {tag}")), "{errors:?}");
        let group = scene.object("networkSecurityGroups", "nsg");
        let ports: Vec<Value> = items(&group, "securityRules")
            .iter()
            .map(|rule| rule["properties"]["destinationPortRanges"][0].clone())
            .collect();
        assert_eq!(ports, ["80"], "those of the good Service only");
        let ips = scene.objects("publicIPAddresses");
        assert!(ips.iter().all(|ip| ip["tags"]["k8s-azure-service"] != "default/gone"), "{ips:#?}");
        scene.bed.cloud.faults(Faults::clear);
        let mark = scene.mark();
        let answers = scene.call(&["bad"], ServiceAction::Ensure).await;
        assert!(answers[0].result.is_err());
        assert_eq!(scene.writes(mark), BTreeMap::new(), "what is refused is not sent again");
        assert!(!scene.ip("bad").is_empty(), "its load balancer is there");
        scene.service("bad", &[("azure-allowed-service-tags", "AzureMonitor")], port(81));
        scene.ensure(&["good", "bad"]).await;
        let group = scene.object("networkSecurityGroups", "nsg");
        assert_eq!(items(&group, "securityRules").len(), 2);
        scene.delete(&["good", "bad"]).await;
        assert!(scene.objects("loadBalancers").is_empty() && scene.objects("publicIPAddresses").is_empty());
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_denies_and_is_refused_fails_the_services_that_deny() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let group = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg");
    let message = format!(
        "Security rule parameter DestinationAddressPrefix for rule with Id {group}/securityRules/k8s-azure-lb_deny-all_IPv4 \
         contains overlapping subnets [10.0.0.0/8, 10.0.0.4/32], which is not permitted."
    );
    let fault = Fault::Code { status: 400, code: "OverlappingSubnetsNotPermittedInSecurityRule".into(), message };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "networkSecurityGroups.put").window(0, 1));
    let names = ["denies", "good"];
    let denies = ("azure-deny-all-except-load-balancer-source-ranges", "true");
    scene.spec("denies", &[denies], json!({"ports": port(80), "loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.service("good", &[], port(81));
    let errors = errors(&names, &scene.call(&names, ServiceAction::Ensure).await);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["denies"], "{errors:?}");
    assert!(errors["denies"].contains("k8s-azure-lb_deny-all_IPv4"), "{errors:?}");
    let rules = items(&scene.object("networkSecurityGroups", "nsg"), "securityRules");
    assert_eq!(rules.len(), 1, "that of the other Service");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_azure_refuses_of_a_shared_address_fails_only_who_asks_for_it() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("a", &[], port(80));
    scene.ensure(&["a"]).await;
    let name = scene.objects("publicIPAddresses")[0]["name"].as_str().unwrap().to_owned();
    let shared = ("azure-pip-name", &*name);
    scene.service("b", &[shared], port(81));
    scene.ensure(&["b"]).await;
    let fault = Fault::Code { status: 400, code: "InvalidTagValue".into(), message: "the tag is too long".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "publicIPAddresses.put"));
    // The others change their load balancer in the same call.
    scene.service("a", &[], port(90));
    scene.service("b", &[shared], port(91));
    scene.service("c", &[shared], port(92));
    let names = ["a", "b", "c"];
    let errors = errors(&names, &scene.call(&names, ServiceAction::Ensure).await);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["c"], "{errors:?}");
    assert!(errors["c"].contains("the tag is too long"), "{errors:?}");
    let rules = items(&scene.object("loadBalancers", "kubernetes"), "loadBalancingRules");
    let ports: Vec<&Value> = rules.iter().map(|rule| &rule["properties"]["frontendPort"]).collect();
    assert!(ports.contains(&&json!(90)) && ports.contains(&&json!(91)), "{ports:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_the_subnet_does_not_have_fails_its_service_alone() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("good", &[INTERNAL], port(80));
    for address in ["10.9.9.9", "10.240.0.1", "10.240.255.255"] {
        let annotation = ("azure-load-balancer-ipv4", address);
        let error = refused(&mut scene, &[INTERNAL, annotation], json!({"ports": port(81)})).await;
        assert!(error.contains(annotation.0) && error.contains(address) && error.contains("10.240.0.0/16"), "{error}");
        scene.delete(&["good"]).await;
        scene.service("good", &[INTERNAL], port(80));
    }
    // One that a machine has, and a subnet without a free one: Azure refuses them.
    let network = others::path("virtualNetworks", "vnet");
    scene.bed.cloud.world(|world| world.subnet(&network, "tiny", &["10.241.0.0/29"], json!({})));
    let tiny = ("azure-load-balancer-internal-subnet", "tiny");
    let full = ["full0", "full1", "full2"];
    for (number, name) in (90_u16..).zip(full) {
        scene.service(name, &[INTERNAL, tiny], port(number));
    }
    scene.ensure(&full).await;
    for annotation in [("azure-load-balancer-ipv4", "10.240.0.4"), tiny] {
        let error = refused(&mut scene, &[INTERNAL, annotation], json!({"ports": port(81)})).await;
        assert!(error.contains(annotation.1), "{error}");
        scene.delete(&["good"]).await;
        scene.service("good", &[INTERNAL], port(80));
    }
    scene.services.remove("good");
    scene.delete(&full).await;
    assert!(scene.objects("loadBalancers").is_empty());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_new_services_one_gets_the_last_free_address_of_a_subnet() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let network = others::path("virtualNetworks", "vnet");
    scene.bed.cloud.world(|world| world.subnet(&network, "tiny", &["10.241.0.0/29"], json!({})));
    let tiny = [INTERNAL, ("azure-load-balancer-internal-subnet", "tiny")];
    let names = ["old0", "old1", "new0", "new1"];
    for (number, name) in (90_u16..).zip(names) {
        scene.service(name, &tiny, port(number));
    }
    scene.ensure(&names[..2]).await;
    // Alone, and beside a change of another Service.
    let answers = scene.call(&names[2..], ServiceAction::Ensure).await;
    let refused = errors(&names[2..], &answers);
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["new1"], "{refused:?}");
    scene.delete(&["new0"]).await;
    scene.service("new0", &tiny, port(92));
    scene.service("new2", &tiny, port(94));
    scene.service("old0", &tiny, port(95));
    let names = ["old0", "new0", "new2"];
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let refused = errors(&names, &answers);
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["new2"], "{refused:?}");
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_basic_load_balancer_is_left_as_it_is_and_named() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    let base = scene.services["web"].default_load_balancer_name();
    let ip = others::path("publicIPAddresses", &format!("kubernetes-{base}"));
    let basic = json!({"location": "eastus", "sku": {"name": "Basic"},
        "tags": {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": CLUSTER},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
    scene.bed.cloud.by_hand("PUT", &ip, &basic).unwrap();
    let frontends = json!([{"name": base, "properties": {"publicIPAddress": {"id": ip}}}]);
    let basic =
        json!({"location": "eastus", "sku": {"name": "Basic"}, "properties": {"frontendIPConfigurations": frontends}});
    scene.bed.cloud.by_hand("PUT", &others::path("loadBalancers", CLUSTER), &basic).unwrap();
    scene.service("new", &[], port(81));
    let names = ["web", "new"];
    let mark = scene.mark();
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let errors = errors(&names, &answers);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.values().all(|error| error.contains("basic") && error.contains(CLUSTER)), "{errors:?}");
    assert_eq!(scene.writes(mark), BTreeMap::new());
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_contradicts_fails_its_service_alone_and_names_both() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("good", &[], port(80));
    let cases = [
        (
            &[("azure-allowed-ip-ranges", "192.0.2.0/24")][..],
            json!({"ports": port(81), "loadBalancerSourceRanges": ["198.51.100.0/24"]}),
            ["azure-allowed-ip-ranges", "loadBalancerSourceRanges"],
        ),
        (
            &[
                ("azure-load-balancer-health-probe-interval", "10"),
                ("azure-load-balancer-health-probe-num-of-probe", "20"),
            ],
            json!({"ports": port(81)}),
            ["azure-load-balancer-health-probe-interval", "azure-load-balancer-health-probe-num-of-probe"],
        ),
        (
            &[],
            json!({"ports": [{"port": 81, "nodePort": 30081, "protocol": "SCTP"}]}),
            ["SCTP", "high-availability ports"],
        ),
        (&[], json!({"ports": port(80), "loadBalancerIP": "10.240.0.77"}), ["loadBalancerIP", "10.240.0.77"]),
    ];
    for (annotations, spec, words) in cases {
        let error = refused(&mut scene, annotations, spec).await;
        assert!(words.iter().all(|word| error.contains(word)), "{annotations:?}: {error}");
    }
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_that_is_taken_fails_its_service_alone_and_names_the_key() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let taken = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {
        "publicIPAllocationMethod": "Static", "dnsSettings": {"domainNameLabel": "shop"},
    }});
    scene.bed.cloud.by_hand("PUT", &format!("{GROUP}/Microsoft.Network/publicIPAddresses/users"), &taken).unwrap();
    scene.service("good", &[], port(80));
    let label = ("azure-dns-label-name", "shop");
    let error = refused(&mut scene, &[label], json!({"ports": port(81)})).await;
    assert!(error.contains(label.0) && error.contains(label.1), "{error}");
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_or_a_lock_is_named_with_its_remedy() {
    for (status, code, message, remedy) in [
        (403, "RequestDisallowedByPolicy", "Resource 'x' was disallowed by policy.", "ask for an exemption"),
        (409, "ScopeLocked", "The scope 'x' cannot perform write operation because of locks.", "remove the lock"),
    ] {
        let mut scene = Scene::new(BY_ADDRESS, 1).await;
        let names = ["web0", "web1", "web2"];
        for (number, name) in (80_u16..).zip(names) {
            scene.service(name, &[], port(number));
        }
        let fault = Fault::Code { status, code: code.into(), message: message.into() };
        scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", "publicIPAddresses.put").window(1, 1));
        let answers = scene.call(&names, ServiceAction::Ensure).await;
        let failed = errors(&names, &answers);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed.values().all(|error| error.contains(message) && error.contains(remedy)), "{failed:?}");
        scene.ensure(&names).await;
        // A lock of the whole group holds a deletion up until it is removed.
        scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.*"));
        let error = scene.settle(&["web0"], ServiceAction::Delete).await.unwrap_err().to_string();
        assert!(error.contains(remedy), "{error}");
        scene.bed.cloud.faults(Faults::clear);
        scene.delete(&names).await;
        assert!(scene.objects("loadBalancers").is_empty() && scene.objects("publicIPAddresses").is_empty());
        scene.bed.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_security_group_that_names_no_service_names_the_group_and_is_sent_again() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let names = ["web", "api"];
    names.iter().zip(80..).for_each(|(name, number)| scene.service(name, &[], port(number)));
    let fault = Fault::Code { status: 400, code: "BadRules".to_owned(), message: "no".to_owned() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "networkSecurityGroups.put"));
    let answers = scene.call(&names, ServiceAction::Ensure).await;
    let failed = errors(&names, &answers);
    let says =
        |error: &String| ["networkSecurityGroups nsg", "BadRules: no", "correct"].iter().all(|it| error.contains(it));
    assert!(failed.len() == 2 && failed.values().all(says), "{failed:?}");
    scene.bed.cloud.faults(Faults::clear);
    scene.ensure(&names).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_read_before_a_write_is_no_refusal_of_the_write() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    let fault = Fault::Code { status: 400, code: "InvalidRequestFormat".to_owned(), message: "no".to_owned() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "loadBalancers.get").window(0, 1));
    let error = scene.settle(&["web"], ServiceAction::Ensure).await.unwrap_err().to_string();
    assert!(error.contains("Microsoft.Network/loadBalancers/read"), "{error}");
    scene.ensure(&["web"]).await;
    scene.bed.is_clean();
}

/// Changes and deletes a Service while a read has no usable answer.
async fn unanswered(fault: Fault, reads: &str) {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[], port(80));
    scene.ensure(&["web"]).await;
    let before = scene.object("loadBalancers", "kubernetes");
    scene.bed.cloud.fault(Rule::every(fault.clone()).on("network", reads));
    scene.service("web", &[], port(81));
    for action in [ServiceAction::Ensure, ServiceAction::Delete] {
        let answers = scene.call(&["web"], action).await;
        assert!(answers[0].result.is_err(), "{fault:?} of {reads} is no answer: {action:?}");
    }
    if reads != "networkSecurityGroups.get" {
        assert_eq!(scene.objects("publicIPAddresses").len(), 1, "{fault:?} of {reads}");
    }
    if reads == "loadBalancers.list" {
        assert_eq!(scene.object("loadBalancers", "kubernetes"), before, "{fault:?}");
    }
    scene.bed.cloud.faults(Faults::clear);
    scene.delete(&["web"]).await;
    assert!(scene.objects("loadBalancers").is_empty(), "{fault:?} of {reads}");
    assert!(scene.objects("publicIPAddresses").is_empty(), "{fault:?} of {reads}");
    assert!(items(&scene.object("networkSecurityGroups", "nsg"), "securityRules").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_none_changes_nothing_and_deletion_ends_after_it() {
    let text = |body: &str| Fault::Status { status: 200, body: body.to_owned() };
    // The group of the cluster exists, whatever Azure says.
    let no_group = Fault::Code { status: 404, code: "ResourceGroupNotFound".into(), message: String::new() };
    let faults =
        [Fault::Html { status: 503 }, Fault::Html { status: 200 }, text(""), text("{}"), text("null"), no_group];
    let reads = ["loadBalancers.list", "publicIPAddresses.list", "networkSecurityGroups.get"];
    let all = faults.iter().flat_map(|fault| reads.map(|reads| unanswered(fault.clone(), reads)));
    futures::future::join_all(all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_finds_no_group_of_the_cluster_has_deleted_nothing() {
    for action in ["publicIPAddresses.delete", "loadBalancers.delete"] {
        let mut scene = Scene::new(BY_ADDRESS, 1).await;
        scene.service("web", &[], port(80));
        scene.ensure(&["web"]).await;
        let fault = Fault::Code { status: 404, code: "ResourceGroupNotFound".into(), message: String::new() };
        scene.bed.cloud.fault(Rule::every(fault).on("network", action).window(0, 1));
        let error = scene.settle(&["web"], ServiceAction::Delete).await.unwrap_err().to_string();
        assert!(error.contains("loadBalancerResourceGroup"), "{error}");
        scene.delete(&["web"]).await;
        assert!(scene.objects("loadBalancers").is_empty() && scene.objects("publicIPAddresses").is_empty());
    }
}

/// Refusals whose cause is gone: what frees it, and the Service that is made then without another change.
async fn after_its_cause(scene: &mut Scene, given: &[(&str, &str)], code: &str, free: impl AsyncFnOnce(&mut Scene)) {
    scene.service("web", given, port(83));
    let answers = scene.call(&["web"], ServiceAction::Ensure).await;
    let error = answers[0].result.as_ref().unwrap_err().to_string();
    assert!(error.contains(code), "{given:?}: {error}");
    let mark = scene.mark();
    assert!(scene.call(&["web"], ServiceAction::Ensure).await[0].result.is_err());
    assert_eq!(scene.writes(mark), BTreeMap::new(), "it is not sent again at once");
    free(scene).await;
    crate::bed::pass(6).await;
    scene.ensure(&["web"]).await;
    assert!(!scene.ip("web").is_empty(), "{given:?}");
    scene.delete(&["web"]).await;
}

#[tokio::test]
async fn what_another_object_has_is_used_soon_after_it_is_free() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    let ip = others::path("publicIPAddresses", "users");
    let balancer = others::path("loadBalancers", "users");
    let free = json!({"location": "eastus", "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "dnsSettings": {"domainNameLabel": "shop"}}});
    scene.bed.cloud.by_hand("PUT", &ip, &free).unwrap();
    let frontends = json!([{"name": "f", "properties": {"publicIPAddress": {"id": ip}}}]);
    let users = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"frontendIPConfigurations": frontends}});
    scene.bed.cloud.by_hand("PUT", &balancer, &users).unwrap();
    scene.service("old", &[], port(80));
    scene.ensure(&["old"]).await;
    after_its_cause(&mut scene, &[("azure-pip-name", "users")], "PublicIPAddressInUse", async |scene| {
        scene.bed.cloud.by_hand("DELETE", &balancer, &Value::Null).unwrap();
    })
    .await;
    after_its_cause(&mut scene, &[("azure-dns-label-name", "shop")], "DnsRecordInUse", async |scene| {
        scene.bed.cloud.by_hand("DELETE", &ip, &Value::Null).unwrap();
    })
    .await;
    let network = others::path("virtualNetworks", "vnet");
    scene.bed.cloud.world(|world| world.subnet(&network, "tiny", &["10.241.0.0/29"], json!({})));
    let tiny = [INTERNAL, ("azure-load-balancer-internal-subnet", "tiny")];
    let full = ["full0", "full1", "full2"];
    for (number, name) in (90_u16..).zip(full) {
        scene.service(name, &tiny, port(number));
    }
    scene.ensure(&full).await;
    after_its_cause(&mut scene, &tiny, "SubnetIsFull", async |scene| scene.delete(&["full0"]).await).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_stays_holds_the_deletion_of_its_private_link_service_up_and_is_named() {
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("web", &[INTERNAL, ("azure-pls-create", "true"), ("azure-pls-name", "link")], port(80));
    scene.service("api", &[], port(81));
    scene.ensure(&["web", "api"]).await;
    let link = format!("{GROUP}/Microsoft.Network/privateLinkServices/link");
    scene.bed.cloud.world(|world| world.connect(&link, "shop-endpoint"));
    let fault = Fault::Code { status: 403, code: "AuthorizationFailed".into(), message: "no".into() };
    scene.bed.cloud.fault(Rule::every(fault).on("network", "privateEndpointConnections.delete"));
    let error = scene.settle(&["web"], ServiceAction::Delete).await.unwrap_err().to_string();
    assert!(error.contains("shop-endpoint"), "{error}");
    assert_eq!(scene.objects("privateLinkServices").len(), 1, "its clients keep their connections");
    scene.ensure(&["api"]).await;
    scene.bed.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_about_an_annotation_is_that_of_its_service_alone() {
    let ports = ("azure-load-balancer-enable-high-availability-ports", "true");
    let mut scene = Scene::new(BY_ADDRESS, 1).await;
    scene.service("a", &[ports], port(80));
    scene.service("b", &[INTERNAL, ports], port(80));
    scene.ensure(&["a", "b"]).await;
    let events = scene.bed.cluster.take_events();
    assert!(events.len() == 1 && events[0].contains("has no effect on an external load balancer"), "{events:?}");
}

/// A private link service that somebody has made on the frontend of a Service, in this resource group.
fn link_by_hand(scene: &Scene, group: &str, service: &str) {
    let balancer = scene.object("loadBalancers", "kubernetes-internal");
    let base = scene.services[service].default_load_balancer_name();
    let frontends = items(&balancer, "frontendIPConfigurations");
    let frontend = frontends.iter().find(|it| it["name"].as_str().unwrap().starts_with(&base)).unwrap();
    let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/subnet");
    let configuration = json!({"name": "c", "properties": {"primary": true, "privateIPAddressVersion": "IPv4",
        "privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet}}});
    let link = format!("{}/Microsoft.Network/privateLinkServices/theirs", GROUP.replace("/rg/", &format!("/{group}/")));
    let properties =
        json!({"loadBalancerFrontendIpConfigurations": [{"id": frontend["id"]}], "ipConfigurations": [configuration]});
    scene.bed.cloud.world(|world| world.put(&link, json!({"properties": properties})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_a_link_of_others_uses_stays_and_holds_up_its_service_alone() {
    let other_subnet = ("azure-load-balancer-internal-subnet", "other");
    for group in ["rg", "theirs"] {
        for deletes in [true, false] {
            let mut scene = Scene::new(BY_ADDRESS, 1).await;
            let subnet = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets/other");
            let range = json!({"properties": {"addressPrefix": "10.240.64.0/24"}});
            scene.bed.cloud.world(|world| world.put(&subnet, range));
            scene.service("a", &[INTERNAL], port(80));
            scene.service("b", &[INTERNAL], port(81));
            scene.ensure(&["a", "b"]).await;
            link_by_hand(&scene, group, "a");
            scene.service("b", &[INTERNAL], port(82));
            let action = if deletes { ServiceAction::Delete } else { ServiceAction::Ensure };
            if !deletes {
                scene.service("a", &[INTERNAL, other_subnet], port(80));
            }
            let work = |scene: &Scene| [scene.work(&["a"], action), scene.work(&["b"], ServiceAction::Ensure)].concat();
            for _ in 0..2 {
                let work = work(&scene);
                let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
                assert!(answers[1].result.is_ok(), "{group} {deletes}: {:?}", answers[1].result);
                let stays = group == "rg" && !deletes;
                assert_eq!(answers[0].result.is_ok(), stays, "{group} {deletes}: {:?}", answers[0].result);
                if let Err(error) = &answers[0].result {
                    assert!(error.to_string().contains("theirs"), "{group} {deletes}: {error}");
                }
            }
            let rules = items(&scene.object("loadBalancers", "kubernetes-internal"), "loadBalancingRules");
            let has = |port: u16| rules.iter().any(|rule| rule["properties"]["frontendPort"] == port);
            assert!(has(82) && !has(81), "{group} {deletes}: {rules:?}");
            let frontends = |scene: &Scene| {
                items(&scene.object("loadBalancers", "kubernetes-internal"), "frontendIPConfigurations").len()
            };
            // One that was not read is found out by the refusal.
            if group == "rg" {
                let mark = scene.mark();
                scene.balancers().reconcile(CLUSTER, &work(&scene), &Scope::default()).await;
                assert_eq!(scene.writes(mark), BTreeMap::new(), "{deletes}");
                assert_eq!(frontends(&scene), if deletes { 2 } else { 3 });
                let events = scene.bed.cluster.take_events();
                assert!(deletes || events.iter().any(|event| event.contains("theirs")), "{events:?}");
                let link = format!("{GROUP}/Microsoft.Network/privateLinkServices/theirs");
                scene.bed.cloud.by_hand("DELETE", &link, &Value::Null).unwrap();
                scene.done(&["a"], action).await;
                assert_eq!(frontends(&scene), if deletes { 1 } else { 2 });
            }
            scene.bed.is_clean();
        }
    }
}
