use ccm_provider::Node;
use serde_json::{Value, json};

use super::super::env::PoolKind;
use super::*;

const INTERNAL: &str = "azure-load-balancer-internal";

fn env() -> Env {
    Env { group: "rg".into(), subnet: "subnet".into(), excludes_masters: true, ..Env::default() }
}

#[allow(clippy::needless_pass_by_value)] // literals at all callers
fn service(annotations: &[(&str, &str)], spec: Value) -> Service {
    let key = |key: &str| if key.contains("/") { key.to_owned() } else { format!("{}{key}", keys::DOMAIN) };
    let annotations: BTreeMap<String, String> =
        annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect();
    let mut whole = json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]});
    super::super::json::overlay(&mut whole, &spec);
    let meta = json!({"namespace": "default", "name": "web", "uid": "257b9655-5137-4ad2-b091-ef3f07043ad3", "annotations": annotations});
    serde_json::from_value(json!({"metadata": meta, "spec": whole})).unwrap()
}

fn ensure(env: &Env, service: &Service) -> Result<Item, ProviderError> {
    one(env, "kubernetes", &ServiceWork::new(service, &[], ServiceAction::Ensure))
}

fn settings(annotations: &[(&str, &str)], spec: Value) -> Settings {
    ensure(&env(), &service(annotations, spec)).unwrap().settings.unwrap()
}

fn refusal(annotations: &[(&str, &str)], spec: Value) -> String {
    ensure(&env(), &service(annotations, spec)).unwrap_err().to_string()
}

fn reasons(annotations: &[(&str, &str)], spec: Value) -> Vec<String> {
    ensure(&env(), &service(annotations, spec)).unwrap().findings.into_iter().map(|finding| finding.key).collect()
}

#[test]
fn what_a_plan_reads_of_a_service_is_in_its_fingerprint_and_nothing_else() {
    let of = |annotations: &[(&str, &str)], selected: &[&str]| {
        let selected = selected.iter().map(|name| (*name).to_owned()).collect();
        fingerprint(&service(annotations, json!({})), &Placing { named: None, selected }, ServiceAction::Ensure)
    };
    let plain = of(&[], &["a"]);
    assert_eq!(of(&[("example.com/seen", "now")], &["a"]), plain);
    assert_ne!(of(&[(INTERNAL, "true")], &["a"]), plain);
    assert_ne!(of(&[], &["b"]), plain, "labels choose the load balancer");
}

#[test]
fn a_plain_port_has_a_rule_with_floating_ip_and_a_tcp_probe() {
    let settings = settings(&[], json!({}));
    let rule = &settings.rules[0];
    assert_eq!((rule.protocol, rule.frontend_port, rule.backend_port, rule.has_floating_ip), ("Tcp", 80, 80, true));
    assert_eq!((rule.idle_minutes, rule.distribution, rule.resets), (4, "Default", Some(true)));
    let probe = &settings.probes[0];
    assert_eq!(rule.probe.as_ref(), Some(&probe.name));
    assert_eq!((probe.protocol, probe.port, probe.interval, probe.count, &probe.path), ("Tcp", 30080, 5, 2, &None));
    assert_eq!(settings.access.unwrap().tags, ["Internet"]);
}

#[test]
fn an_udp_port_has_neither_probe_nor_reset() {
    let settings = settings(
        &[],
        json!({"ports": [{"port": 53, "nodePort": 30053, "protocol": "UDP"}], "sessionAffinity": "ClientIP"}),
    );
    assert_eq!(settings.probes, []);
    assert_eq!((settings.rules[0].resets, settings.rules[0].distribution), (None, "SourceIP"));
}

#[test]
fn a_local_service_has_one_probe_for_all_its_ports() {
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 34567, "ports": [
        {"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"},
    ]});
    let settings = settings(&[("azure-load-balancer-health-probe-interval", "10")], spec);
    assert_eq!(settings.probes.len(), 1);
    let probe = &settings.probes[0];
    assert!(probe.name.ends_with("-TCP-34567"), "{}", probe.name);
    assert_eq!(
        (probe.protocol, probe.port, probe.interval, probe.path.as_deref()),
        ("Http", 34567, 10, Some("/healthz"))
    );
    assert!(settings.rules.iter().all(|rule| rule.probe.as_ref() == Some(&probe.name)));
}

#[test]
fn interval_times_number_is_less_than_120() {
    let of = |interval: &str, count: &str| {
        let given = [
            ("azure-load-balancer-health-probe-interval", interval),
            ("azure-load-balancer-health-probe-num-of-probe", count),
        ];
        ensure(&env(), &service(&given, json!({})))
    };
    assert!(of("10", "20").is_err() && of("40", "3").is_err());
    assert!(of("20", "5").is_ok());
}

/// Values that are wrong whatever the cloud has, on an external Service with the port 80, by key.
const WARNED: &[(&str, &str)] = &[
    ("azure-load-balancer-internal", "maybe"),
    ("azure-pip-ip-tags", "RoutingPreference"),
    ("azure-pip-ip-tags", "a=b, c=d=e"),
    ("azure-pip-tags", "a=b=c"),
    ("azure-pip-tags", "d=e,team"),
    ("azure-allowed-destination-ip-ranges", "10.0.0.1/8"),
    ("azure-allowed-ip-ranges", "10.0.0.1/8"),
    ("load-balancer-source-ranges", "10.0.0.1/8"),
    ("azure-deny-all-except-load-balancer-source-ranges", "maybe"),
    ("azure-disable-load-balancer-nsg-rule", "maybe"),
    ("azure-load-balancer-enable-high-availability-ports", "true"),
    ("azure-load-balancer-disable-tcp-reset", "maybe"),
    ("azure-disable-load-balancer-floating-ip", "maybe"),
    ("azure-load-balancer-health-probe-protocol", "foo"),
    ("azure-pls-create", "maybe"),
    ("azure-pls-proxy-protocol", "maybe"),
    ("port_80_no_lb_rule", "maybe"),
    ("port_80_no_probe_rule", "1"),
    ("port_80_health-probe_protocol", "foo"),
    ("port_80_health-probe_path", "/"),
    ("port_99_no_lb_rule", "true"),
];
const REFUSED: &[(&str, &str)] = &[
    ("azure-load-balancer-ipv4", "10.0.0.300"),
    ("azure-load-balancer-ipv6", "fd00::x"),
    ("azure-pip-prefix-id", "none"),
    ("azure-pip-prefix-id-ipv6", "none"),
    ("azure-additional-public-ips", "203.0.113.300"),
    ("azure-allowed-service-tags", ""),
    ("azure-allowed-service-tags", " , "),
    ("azure-allowed-service-tags", "AzureCloud,,Storage"),
    ("azure-load-balancer-tcp-idle-timeout", "3"),
    ("azure-load-balancer-health-probe-interval", "4"),
    ("azure-load-balancer-health-probe-num-of-probe", "1"),
    ("azure-load-balancer-health-probe-request-path", ""),
    ("azure-pls-ip-configuration-ip-address-count", "9"),
    ("azure-pls-ip-configuration-ip-address", "10.0.0.400"),
    ("port_80_health-probe_port", "none"),
    ("port_80_health-probe_interval", "4"),
    ("port_80_health-probe_num-of-probe", "1"),
    ("port_80_health-probe_request-path", ""),
];
/// Whether they are wrong, the cloud says, or nobody: they are ignored.
const ANY_TEXT: &[&str] = &[
    "azure-load-balancer-internal-subnet",
    "azure-load-balancer-mode",
    "azure-load-balancer-configurations",
    "azure-load-balancer-resource-group",
    "azure-pip-name",
    "azure-pip-name-ipv6",
    "azure-dns-label-name",
    "azure-pls-name",
    "azure-pls-resource-group",
    "azure-pls-ip-configuration-subnet",
    "azure-pls-fqdns",
    "azure-pls-visibility",
    "azure-pls-auto-approval",
    "azure-shared-securityrule",
];

fn has_fix(text: &str) -> bool {
    ["write ", "correct ", "remove it", "add "].iter().any(|word| text.contains(word))
}

#[test]
fn each_wrong_value_has_one_finding_with_key_value_and_fix() {
    for (key, value) in WARNED {
        let found = ensure(&env(), &service(&[(key, value)], json!({}))).unwrap().findings;
        let [one] = &found[..] else { panic!("{key}: {found:?}") };
        let text = one.to_string();
        let wrong = value.split(',').next_back().unwrap().trim();
        assert!(text.contains(key) && text.contains(wrong) && has_fix(&text), "{text}");
    }
    let dual = json!({"ipFamilies": ["IPv4", "IPv6"]});
    for (key, value) in REFUSED {
        let link = [(INTERNAL, "true"), ("azure-pls-create", "true"), ("azure-pls-visibility", "sub-a")];
        let http = [("azure-load-balancer-health-probe-protocol", "http")];
        let around = if key.starts_with("azure-pls-") { &link[..] } else { &http };
        let text = refusal(&[around, &[(key, value)]].concat(), dual.clone());
        assert!(text.contains(key) && text.contains(value) && has_fix(&text), "{text}");
    }
}

#[test]
fn each_annotation_is_wrong_here_or_only_in_the_cloud() {
    let wrong = WARNED.iter().chain(REFUSED).map(|(key, _)| *key).chain(ANY_TEXT.iter().copied());
    let known: std::collections::BTreeSet<String> = wrong.map(|key| format!("{}{key}", keys::DOMAIN)).collect();
    let missing: Vec<&str> = keys::TABLE.rows.iter().map(|row| row.key).filter(|key| !known.contains(*key)).collect();
    assert_eq!(missing, [] as [&str; 0]);
}

#[test]
fn what_is_left_out_of_tags_leaves_the_others() {
    let given = [("azure-pip-tags", "a=b=c,d=e"), ("azure-pip-ip-tags", "RoutingPreference, x=y")];
    let ip = settings(&given, json!({})).public_ip;
    assert_eq!(ip.tags, [("d".to_owned(), "e".to_owned())].into());
    assert_eq!(ip.ip_tags, Some(vec![("x".to_owned(), "y".to_owned())]));
}

#[test]
fn a_wrong_value_that_nothing_reads_is_a_warning() {
    let shared = Env { shared_probe: Some((10256, "/healthz".into())), ..env() };
    let interval = ("azure-load-balancer-health-probe-interval", "4");
    let udp = json!({"ports": [{"port": 53, "nodePort": 30053, "protocol": "UDP"}]});
    let ha = ("azure-load-balancer-enable-high-availability-ports", "true");
    let prefix = ("azure-pip-prefix-id", "none");
    let warned = |env: &Env, given: &[(&str, &str)], spec: Value| {
        let item = ensure(env, &service(given, spec)).unwrap_or_else(|error| panic!("{given:?}: {error}"));
        let is_it = |finding: &&Finding| finding.key.ends_with(given[0].0);
        let found: Vec<_> = item.findings.iter().filter(is_it).map(|finding| finding.severity).collect();
        assert_eq!(found, [ccm_provider::Severity::Warning], "{given:?}");
    };
    warned(&env(), &[("azure-pls-ip-configuration-ip-address-count", "0")], json!({}));
    warned(&shared, &[interval], json!({}));
    warned(&env(), &[interval], udp);
    warned(&env(), &[interval, ("port_80_health-probe_interval", "10")], json!({}));
    warned(&env(), &[interval, (INTERNAL, "true"), ha], json!({}));
    warned(&env(), &[prefix, ("azure-pip-name", "mine")], json!({}));
    for given in [
        &[interval][..],
        &[("azure-pls-create", "true"), (INTERNAL, "true"), ("azure-pls-ip-configuration-ip-address-count", "0")],
        &[prefix],
    ] {
        assert!(ensure(&env(), &service(given, json!({}))).is_err(), "{given:?}");
    }
    let dual = json!({"ipFamilies": ["IPv4", "IPv6"]});
    let of_ipv6 = [("azure-pip-name", "mine"), ("azure-pip-prefix-id-ipv6", "none")];
    assert!(ensure(&env(), &service(&of_ipv6, dual)).is_err(), "the IPv6 address is made from it");
}

#[test]
fn a_probed_port_is_named_by_name_number_or_the_port_of_the_node() {
    let port = |value: &str| {
        let spec = json!({"ports": [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}]});
        ensure(&env(), &service(&[("port_80_health-probe_port", value)], spec))
            .map(|item| item.settings.unwrap().probes[0].port)
    };
    assert_eq!((port("HTTP").unwrap(), port("80").unwrap(), port("8080").unwrap()), (30080, 30080, 8080));
    for wrong in ["https", "70000", "0"] {
        let text = port(wrong).unwrap_err().to_string();
        assert!(text.contains("port_80_health-probe_port") && text.contains(wrong), "{text}");
    }
}

#[test]
fn the_application_protocol_wins_over_the_annotation_of_all_ports() {
    let with = |app: Value, given: &[(&str, &str)]| {
        let spec = json!({"ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP", "appProtocol": app}]});
        let item = ensure(&env(), &service(given, spec)).unwrap();
        let probe = item.settings.unwrap().probes[0].clone();
        (probe.protocol, probe.path, item.findings.len())
    };
    let global = [("azure-load-balancer-health-probe-protocol", "https")];
    assert_eq!(with(json!("HTTP"), &global), ("Http", Some("/".to_owned()), 1));
    assert_eq!(with(json!("grpc"), &global).0, "Tcp");
    assert_eq!(with(Value::Null, &global), ("Https", Some("/".to_owned()), 0));
    let path = [("azure-load-balancer-health-probe-request-path", "/ready")];
    assert_eq!(with(json!("http"), &path), ("Http", Some("/ready".to_owned()), 0));
}

#[test]
fn high_availability_ports_are_one_rule_on_an_internal_load_balancer_only() {
    let ha = ("azure-load-balancer-enable-high-availability-ports", "true");
    let two = json!({"ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 90, "nodePort": 30090, "protocol": "SCTP"}]});
    let internal = settings(&[(INTERNAL, "True"), ha], two);
    assert_eq!(internal.rules.len(), 1);
    let rule = &internal.rules[0];
    assert_eq!((rule.protocol, rule.frontend_port, rule.backend_port, rule.has_floating_ip), ("All", 0, 0, true));
    assert!(rule.name.ends_with("-TCP-80") && rule.probe.as_deref() == Some(&*rule.name), "{rule:?}");
    let external = ensure(&env(), &service(&[ha], json!({}))).unwrap();
    assert_eq!(external.settings.unwrap().rules[0].protocol, "Tcp");
    assert_eq!(external.findings.iter().map(|found| &*found.key).collect::<Vec<_>>(), [keys::HA_PORTS.row.key]);
}

#[test]
fn sctp_is_refused_with_the_alternative() {
    let sctp = json!({"ports": [{"port": 132, "nodePort": 30132, "protocol": "SCTP"}]});
    assert!(refusal(&[], sctp.clone()).contains("SCTP is only supported on an internal load balancer"));
    assert!(refusal(&[(INTERNAL, "true")], sctp).contains("azure-load-balancer-enable-high-availability-ports"));
}

#[test]
fn without_floating_ip_traffic_goes_to_node_ports() {
    let item = ensure(&env(), &service(&[("azure-disable-load-balancer-floating-ip", "true")], json!({}))).unwrap();
    let rule = &item.settings.as_ref().unwrap().rules[0];
    assert_eq!((rule.backend_port, rule.has_floating_ip), (30080, false));
    assert_eq!(item.access.ports["Tcp"], [30080]);
}

#[test]
fn an_internal_ipv6_rule_uses_the_node_port() {
    let item = ensure(&env(), &service(&[(INTERNAL, "true")], json!({"ipFamilies": ["IPv4", "IPv6"]}))).unwrap();
    let rules = item.settings.unwrap().rules;
    let of = |family: Family| {
        rules.iter().find(|rule| rule.family == family).map(|rule| (rule.backend_port, rule.has_floating_ip))
    };
    assert_eq!((of(Family::V4), of(Family::V6)), (Some((80, true)), Some((30080, false))));
}

#[test]
fn ports_may_have_no_rule_or_no_probe() {
    let spec = json!({"ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 81, "nodePort": 30081, "protocol": "TCP"}]});
    let settings = settings(&[("port_80_no_lb_rule", "true"), ("port_81_no_probe_rule", "TRUE")], spec);
    assert_eq!((settings.rules.len(), settings.probes.len()), (1, 0));
    assert_eq!((settings.rules[0].frontend_port, &settings.rules[0].probe), (81, &None));
}

#[test]
fn services_with_the_policy_cluster_share_a_probe() {
    let env = Env { shared_probe: Some((10256, "/healthz".into())), ..env() };
    let cluster = ensure(&env, &service(&[], json!({}))).unwrap().settings.unwrap();
    assert_eq!(cluster.probes[0].name, "cluster-service-shared-health-probe");
    assert_eq!((cluster.probes[0].port, cluster.probes[0].protocol), (10256, "Http"));
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30999});
    assert_eq!(ensure(&env, &service(&[], local)).unwrap().settings.unwrap().probes[0].port, 30999);
}

#[test]
fn both_kinds_of_source_ranges_are_refused_and_a_deletion_validates_nothing() {
    let both =
        service(&[("azure-allowed-ip-ranges", "10.0.0.0/8")], json!({"loadBalancerSourceRanges": ["10.1.0.0/16"]}));
    assert!(ensure(&env(), &both).unwrap_err().to_string().contains("remove one of them"));
    for action in [ServiceAction::Delete, ServiceAction::UpdateHosts] {
        let item = one(&env(), "kubernetes", &ServiceWork::new(&both, &[], action)).unwrap();
        assert!(item.settings.is_none() && item.findings.is_empty());
    }
}

#[test]
fn ranges_are_merged_and_those_of_another_family_ignored() {
    let spec = json!({"loadBalancerSourceRanges": ["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "fd00::/64"]});
    let access = settings(&[], spec.clone()).access.unwrap();
    assert_eq!(access.ranges, [(Family::V4, vec!["10.0.0.0/8".to_owned()])].into());
    assert_eq!((access.tags.len(), access.denies), (0, false));
    assert_eq!(reasons(&[], spec), ["IPRangeFamilyMismatch"]);
}

#[test]
fn an_invalid_range_denies_all_others() {
    let spec = json!({"loadBalancerSourceRanges": ["10.0.0.1/8"]});
    let access = settings(&[], spec.clone()).access.unwrap();
    assert!(access.denies && access.tags.is_empty() && access.ranges.is_empty(), "{access:?}");
    assert_eq!(reasons(&[], spec), ["InvalidSourceRanges"]);
    let tags = [("azure-allowed-service-tags", "AzureCloud")];
    assert_eq!(reasons(&tags, json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})), ["ConflictConfiguration"]);
}

#[test]
fn an_internal_service_admits_only_whom_it_names() {
    let of = |given: &[(&str, &str)], spec: Value| {
        let access = settings(&[&[(INTERNAL, "true")], given].concat(), spec).access.unwrap();
        (access.tags.len(), access.ranges.len(), access.denies)
    };
    assert_eq!(of(&[], json!({})), (0, 0, false));
    assert_eq!(of(&[], json!({"loadBalancerSourceRanges": ["0.0.0.0/0"]})), (0, 1, false));
    let deny = ("azure-deny-all-except-load-balancer-source-ranges", "true");
    assert_eq!(of(&[deny], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})), (0, 1, true));
    assert_eq!(of(&[deny], json!({})), (0, 0, false), "nobody is named");
    assert!(settings(&[("azure-disable-load-balancer-nsg-rule", "true")], json!({})).access.is_none());
}

#[test]
fn a_pool_of_its_own_has_a_name_that_azure_takes() {
    let several = Env { several: vec![Several::default()], ..env() };
    let of = |env: &Env, policy: &str, family: &str, length: usize| {
        let mut service = service(&[], json!({"externalTrafficPolicy": policy, "ipFamilies": [family]}));
        service.metadata.namespace = "n".repeat(length - "-web".len()).into();
        ensure(env, &service).err().map(|error| error.to_string())
    };
    let error = of(&several, "Local", "IPv4", 81).unwrap();
    for text in ["externalTrafficPolicy \"Local\"", "nn-web\"", "80 characters", "shorter name", "\"Cluster\""] {
        assert!(error.contains(text), "{error}");
    }
    assert!(of(&several, "Local", "IPv6", 76).is_some_and(|error| error.contains("-web-ipv6")));
    for (env, policy, family, length) in [
        (&several, "Local", "IPv4", 80),
        (&several, "Local", "IPv6", 75),
        (&several, "Cluster", "IPv4", 81),
        (&env(), "Local", "IPv4", 81),
    ] {
        assert_eq!(of(env, policy, family, length), None, "{policy} {family} {length}");
    }
}

#[test]
fn a_requested_address_must_fit_the_load_balancer() {
    for wrong in ["10.0.0.5", "168.63.129.16", "100.64.0.1", "x", "127.0.0.1"] {
        let text = refusal(&[], json!({"loadBalancerIP": wrong}));
        assert!(text.contains(wrong), "{text}");
    }
    let stack = Env { is_stack: true, ..env() };
    assert!(ensure(&stack, &service(&[], json!({"loadBalancerIP": "10.0.0.5"}))).is_ok());
    assert!(ensure(&env(), &service(&[(INTERNAL, "true")], json!({"loadBalancerIP": "10.0.0.5"}))).is_ok());
    let given = [("azure-load-balancer-ipv4", "192.0.2.7")];
    let item = ensure(&env(), &service(&given, json!({"loadBalancerIP": "192.0.2.8"}))).unwrap();
    assert_eq!(item.addresses[&Family::V4], "192.0.2.7", "the annotation wins");
}

#[test]
fn keys_of_ipv6_are_for_ipv6() {
    let names = |families: &[&str], given: &[(&str, &str)]| {
        ensure(&env(), &service(given, json!({"ipFamilies": families}))).unwrap().public_ips
    };
    let of = |family: Family, key: &'static str, text: &str| -> BTreeMap<Family, Given> {
        [(family, Given { key, text: text.to_owned() })].into()
    };
    let (plain, of_ipv6) = (keys::PIP_NAME.row.key, keys::PIP_NAME_IPV6.row.key);
    let six = ("azure-pip-name-ipv6", "six");
    let four = ("azure-pip-name", "four");
    assert_eq!(names(&["IPv4"], &[six]), BTreeMap::new());
    assert_eq!(names(&["IPv6"], &[six, four]), of(Family::V6, of_ipv6, "six"));
    assert_eq!(names(&["IPv6"], &[four]), of(Family::V6, plain, "four"));
    assert_eq!(names(&["IPv4", "IPv6"], &[four]), of(Family::V4, plain, "four"));
}

#[test]
fn what_is_not_there_is_an_error_that_names_the_key() {
    let link = refusal(&[("azure-pls-create", "true")], json!({}));
    assert!(link.contains("azure-disable-load-balancer-floating-ip"), "{link}");
    assert!(refusal(&[("azure-load-balancer-tcp-idle-timeout", "3")], json!({})).contains("tcp-idle-timeout"));
    let none = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
    assert!(refusal(&[], none).contains("allocateLoadBalancerNodePorts"));
}

#[test]
fn nodes_that_the_cloud_does_not_manage_never_serve() {
    let node = |labels: &[(&str, &str)], id: Option<&str>| Node {
        labels: labels.iter().map(|(key, value)| (*key, *value)).collect(),
        provider_id: id.map(Into::into),
        ..Node::default()
    };
    let azure = Some("azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/a");
    let serves = |env: &Env, labels: &[(&str, &str)]| hosts::may_serve(env, &node(labels, azure));
    assert!(serves(&env(), &[]));
    for label in [
        ("kubernetes.azure.com/managed", "False"),
        ("kubernetes.azure.com/resource-group", "other"),
        ("node-role.kubernetes.io/control-plane", ""),
        ("kubernetes.io/role", "master"),
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ] {
        assert!(!serves(&env(), &[label]), "{label:?}");
    }
    assert!(serves(&env(), &[("kubernetes.azure.com/resource-group", "RG")]));
    let master = [("node-role.kubernetes.io/control-plane", "")];
    let with_masters = Env { excludes_masters: false, ..env() };
    assert!(serves(&with_masters, &master));
    assert!(!serves(&Env { pools: PoolKind::Addresses, ..with_masters }, &master));
    assert!(!hosts::may_serve(&env(), &node(&[], Some("aws:///i-1"))));
}

#[test]
fn local_traffic_has_pools_of_its_own_only_with_several_load_balancers() {
    let local = service(&[], json!({"externalTrafficPolicy": "Local"}));
    let several = Env { several: vec![Several::default()], ..env() };
    let node: ccm_provider::NodeRef = Node { name: "a".into(), ..Node::default() }.into();
    let of = |env: &Env, cluster: &str| {
        let work = [ServiceWork::new(&local, std::slice::from_ref(&node), ServiceAction::Ensure)];
        let (wanted, _) = wanted(env, cluster, &work);
        (wanted.items[&0].pool(cluster, Family::V4), wanted.hosts.is_some())
    };
    assert_eq!(of(&env(), "kubernetes"), ("kubernetes".to_owned(), true));
    assert_eq!(of(&several, "kubernetes"), ("default-web".to_owned(), false), "these are not all nodes");
    assert_eq!(of(&several, "default-web"), ("default-web".to_owned(), false));
    let work = [ServiceWork::new(&local, &[], ServiceAction::Ensure)];
    assert!(
        wanted(&several, "default-web", &work).0.items[&0].own_hosts.is_none(),
        "the pool of all nodes is not its own"
    );
}
