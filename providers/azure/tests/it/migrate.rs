//! `migrate-check`: permissions and Services.

use ccm_cloudsim::azure::Options;
use ccm_provider::{Check, Claims, Node, Service, Severity};
use ccm_provider_azure::Factory;
use serde_json::json;

use crate::bed::{Bed, CLUSTER, CLUSTER_CIDR, GROUP};

fn claims() -> Claims {
    let id = format!("azure://{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0");
    let node = Node { name: "pool000000".into(), provider_id: Some(id.into()), ..Node::default() };
    Claims { nodes: vec![node.into()], services: Vec::new() }
}

fn web(protocol: &str) -> Service {
    let port = json!({"port": 80, "nodePort": 30080, "protocol": "TCP", "appProtocol": protocol});
    let metadata = json!({"namespace": "default", "name": "web", "uid": "00000001-1111-2222-3333-444444444444"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": [port]}})).unwrap()
}

fn internal(protocol: &str) -> Service {
    let mut service = web(protocol);
    let annotations = &mut service.metadata.annotations;
    annotations.insert("service.beta.kubernetes.io/azure-load-balancer-internal".to_owned(), "true".to_owned());
    service
}

async fn checks(bed: &Bed, claims: &Claims) -> Vec<Check> {
    checks_with(bed, claims, "").await
}

/// With more keys in the configuration.
async fn checks_with(bed: &Bed, claims: &Claims, more: &str) -> Vec<Check> {
    bed.cluster.set_nodes(claims.nodes.clone());
    let provider = bed.process(more).await;
    let checks = provider.inspect().unwrap().migration_checks(CLUSTER, claims).await;
    bed.is_clean();
    checks
}

fn of<'a>(checks: &'a [Check], check: &str) -> Vec<(Severity, &'a str)> {
    let of = checks.iter().filter(|one| one.check == check && one.severity > Severity::Info);
    of.map(|one| (one.severity, &*one.message)).collect()
}

#[tokio::test]
async fn an_identity_with_all_rights_has_no_finding() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    let checks = checks(&bed, &claims()).await;
    assert!(checks.iter().all(|check| check.severity == Severity::Info), "{checks:?}");
    let granted = checks.iter().filter(|check| check.check == "permissions").count();
    assert_eq!(granted, 5, "each role, and the right on the subscription");
}

#[tokio::test]
async fn keys_that_act_here_alone_or_nowhere_are_named() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    let keys = "cloudProviderRateLimit: true\ncloudProviderRateLimitQPS: 10\ncloudProviderBackoff: true\nputVMSSVMBatchSize: 5\n";
    let checks = checks_with(&bed, &claims(), keys).await;
    let of_config = checks.iter().filter(|check| check.check == "cloud-config");
    let of_config: Vec<_> = of_config.map(|check| (check.severity, &*check.subject, &*check.message)).collect();
    let [idle, limit, backoff] = of_config[..] else { panic!("{of_config:?}") };
    assert_eq!((idle.0, idle.1), (Severity::Info, "putVMSSVMBatchSize"));
    assert_eq!((limit.0, limit.1), (Severity::Warning, "cloudProviderRateLimit"));
    assert!(limit.2.contains("loadBalancer 10/s (at once 5)"), "{}", limit.2);
    assert_eq!((backoff.0, backoff.1), (Severity::Info, "cloudProviderBackoff"));
}

#[tokio::test]
async fn the_optional_right_on_the_subscription_is_named_and_no_error() {
    let denied = vec!["virtualMachines.listAll".to_owned()];
    let bed = Bed::start(Options { denied, ..Options::default() });
    bed.uniform("pool", 1);
    let checks = checks(&bed, &claims()).await;
    let [(severity, text)] = of(&checks, "permissions")[..] else { panic!("{checks:?}") };
    assert_eq!(severity, Severity::Warning);
    assert!(
        text.contains("Microsoft.Compute/virtualMachines/read is missing on the subscription; it is optional"),
        "{text}"
    );
}

#[tokio::test]
async fn a_missing_right_is_an_error_if_work_that_is_there_needs_it() {
    let not_actions = vec!["Microsoft.Network/publicIPAddresses/write".to_owned()];
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    let expected = "missing for Services of type LoadBalancer: Microsoft.Network/publicIPAddresses/write";
    let without = checks(&bed, &claims()).await;
    let [(severity, text)] = of(&without, "permissions")[..] else { panic!("{without:?}") };
    assert_eq!((severity, text), (Severity::Warning, &*format!("{expected}; nothing seen here needs it")));
    let with = Claims { services: vec![web("tcp").into()], ..claims() };
    let with = checks(&bed, &with).await;
    assert_eq!(of(&with, "permissions"), [(Severity::Error, expected)]);
}

/// Azure asks for these on the objects that a write names.
#[tokio::test]
async fn permissions_to_join_are_errors_where_writes_name_the_objects() {
    for (config, action) in [
        ("", "publicIPAddresses/join/action"),
        ("", "loadBalancers/backendAddressPools/join/action"),
        ("", "virtualNetworks/subnets/join/action"),
        ("loadBalancerBackendPoolConfigurationType: nodeIP\n", "virtualNetworks/joinLoadBalancer/action"),
    ] {
        let not_actions = vec![format!("Microsoft.Network/{action}")];
        let bed = Bed::start(Options { not_actions, ..Options::default() });
        let set = bed.uniform("pool", 1);
        let nodes = vec![crate::balancers::node_of(&set, 0, false)];
        let claims = Claims { services: vec![web("tcp").into()], nodes };
        let checks = bed.process(config).await.inspect().unwrap().migration_checks(CLUSTER, &claims).await;
        let expected = format!("missing for Services of type LoadBalancer: Microsoft.Network/{action}");
        assert_eq!(of(&checks, "permissions"), [(Severity::Error, &*expected)], "{action}");
    }
}

/// A list that another permission replaces, what no Service asks for, and the interfaces of machines that no node is.
#[tokio::test]
async fn a_missing_right_that_nothing_here_needs_is_a_warning() {
    let denied = ["Compute/virtualMachineScaleSets/networkInterfaces/read", "Network/locations/operations/read"];
    let denied = denied.into_iter().chain(["Network/publicIPPrefixes/read", "Network/networkInterfaces/write"]);
    let not_actions = denied.map(|action| format!("Microsoft.{action}")).collect();
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    let found = checks(&bed, &Claims { services: vec![web("tcp").into()], ..claims() }).await;
    let severities =
        |found: &[Check]| of(found, "permissions").iter().map(|(severity, _)| *severity).collect::<Vec<_>>();
    assert_eq!(severities(&found), [Severity::Warning; 3], "nodes, Services, routes: {found:?}");
    let each = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read".to_owned();
    bed.cloud.world(|world| world.options.not_actions.push(each));
    let found = checks(&bed, &claims()).await;
    assert_eq!(severities(&found), [Severity::Error, Severity::Warning, Severity::Warning], "{found:?}");
}

/// The list of the Go program's page has them; a role may have the single rights in their place, or none.
#[tokio::test]
async fn a_right_that_no_request_uses_is_never_an_error() {
    let denied = ["Network/routeTables/routes/*", "Compute/virtualMachineScaleSets/manualUpgrade/action"];
    let not_actions = denied.map(|action| format!("Microsoft.{action}")).into();
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    let found = checks(&bed, &Claims { services: vec![web("tcp").into()], ..claims() }).await;
    let found = of(&found, "permissions");
    assert!(found.len() == 2 && found.iter().all(|(severity, _)| *severity == Severity::Warning), "{found:?}");
}

#[tokio::test]
async fn rights_for_routes_are_not_checked_where_the_flags_make_none() {
    let not_actions = vec!["Microsoft.Network/routeTables/write".to_owned()];
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    bed.cluster.set_nodes(claims().nodes);
    for (makes_routes, wanted) in [("true", 1), ("false", 0)] {
        let flags = [("cluster-cidr", CLUSTER_CIDR), ("configure-cloud-routes", makes_routes)];
        let flags = ccm_provider_contract::flags(&Factory::default(), &flags);
        let provider = bed.build_with(bed.config(""), &flags).await.unwrap();
        provider.initialize(bed.cluster.context(CLUSTER)).await.unwrap();
        let checks = provider.inspect().unwrap().migration_checks(CLUSTER, &claims()).await;
        assert_eq!(of(&checks, "permissions").len(), wanted, "{makes_routes}: {checks:?}");
    }
}

#[tokio::test]
async fn rights_are_needed_in_the_group_of_their_objects() {
    let network = "vnetResourceGroup: net\nsecurityGroupResourceGroup: net\nrouteTableResourceGroup: net\n";
    let excluded = |group: &str, actions: &[&str]| {
        let actions = actions.iter().map(|action| (*action).to_owned()).collect();
        let not_actions_in = [(group.to_owned(), actions)].into();
        let bed = Bed::start(Options { not_actions_in, ..Options::default() });
        bed.cloud.world(|world| world.group("sub", "net"));
        bed.uniform("pool", 1);
        bed
    };
    let claims = Claims { services: vec![internal("tcp").into()], ..claims() };
    let actions = ["Microsoft.Network/routeTables/write", "Microsoft.Network/virtualNetworks/subnets/read"];
    let bed = excluded("net", &actions);
    let found = checks_with(&bed, &claims, network).await;
    let errors: Vec<(&str, &str)> = found
        .iter()
        .filter(|check| check.check == "permissions" && check.severity > Severity::Info)
        .map(|check| (&*check.subject, &*check.message))
        .collect();
    let subject = "resource group net";
    let expected = [
        (subject, format!("missing for Services of type LoadBalancer: {}", actions[1])),
        (subject, format!("missing for routes to the pods (`--configure-cloud-routes`): {}", actions[0])),
    ];
    assert_eq!(errors, expected.each_ref().map(|(subject, text)| (*subject, &**text)));
    let bed = excluded("rg", &actions);
    let found = checks_with(&bed, &claims, network).await;
    assert_eq!(of(&found, "permissions"), [], "{found:?}");
}

/// As with `az role assignment create --scope` of a virtual network, a subnet, a route table or a security group.
#[tokio::test]
async fn roles_on_single_objects_count_for_them() {
    let kinds = ["routeTables", "networkSecurityGroups", "virtualNetworks"];
    let not_actions = kinds.map(|kind| format!("Microsoft.Network/{kind}/*")).into();
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    let mut web = internal("tcp");
    let claims_of = |web: &Service| Claims { services: vec![web.clone().into()], ..claims() };
    let errors = |found: &[Check]| {
        let of_errors = of(found, "permissions").into_iter().filter(|(severity, _)| *severity == Severity::Error);
        of_errors.map(|(_, message)| message.to_owned()).collect::<String>()
    };
    let missing = errors(&checks(&bed, &claims_of(&web)).await);
    for action in ["routeTables/read", "routeTables/write", "networkSecurityGroups/write", "subnets/read"] {
        assert!(missing.contains(action), "{action} in {missing}");
    }
    let grant = |objects: &[&str]| {
        let on =
            |object: &&str| (format!("{GROUP}/Microsoft.Network/{object}"), vec!["Microsoft.Network/*".to_owned()]);
        bed.cloud.world(|world| world.options.actions_on = objects.iter().map(on).collect());
    };
    for network in ["virtualNetworks/vnet", "virtualNetworks/vnet/subnets/subnet"] {
        grant(&["routeTables/rt", "networkSecurityGroups/nsg", network]);
        let found = checks(&bed, &claims_of(&web)).await;
        assert_eq!(of(&found, "permissions"), [], "{found:?}");
    }
    let process = bed.process("").await;
    process.routes().unwrap().list(CLUSTER).await.unwrap();
    let key = "service.beta.kubernetes.io/azure-load-balancer-internal-subnet".to_owned();
    web.metadata.annotations.insert(key, "other".to_owned());
    let network = format!("{GROUP}/Microsoft.Network/virtualNetworks/vnet");
    bed.cloud.world(|world| world.subnet(&network, "other", &["10.241.0.0/16"], json!({})));
    let missing = errors(&checks(&bed, &claims_of(&web)).await);
    let of_subnets =
        ["join/action", "read"].map(|action| format!("Microsoft.Network/virtualNetworks/subnets/{action}"));
    assert_eq!(missing, format!("missing for Services of type LoadBalancer: {}", of_subnets.join(", ")));
    grant(&["virtualNetworks/vnet"]);
    let missing = errors(&checks(&bed, &claims_of(&web)).await);
    assert!(missing.contains("routeTables/write") && !missing.contains("subnets/read"), "{missing}");
}

#[tokio::test]
async fn internal_load_balancers_need_no_right_for_public_addresses_or_private_links() {
    let of_public = ["publicIPAddresses/write", "publicIPAddresses/delete", "privateLinkServices/*"];
    let not_actions = of_public.map(|action| format!("Microsoft.Network/{action}")).into();
    let bed = Bed::start(Options { not_actions, ..Options::default() });
    bed.uniform("pool", 1);
    let mut web = internal("tcp");
    let create = "service.beta.kubernetes.io/azure-pls-create".to_owned();
    web.metadata.annotations.insert(create, "false".to_owned());
    let found = checks(&bed, &Claims { services: vec![web.into()], ..claims() }).await;
    let [(severity, text)] = of(&found, "permissions")[..] else { panic!("{found:?}") };
    assert_eq!(severity, Severity::Warning, "{text}");
    assert!(text.contains("publicIPAddresses/write") && text.contains("nothing seen here needs it"), "{text}");
}

#[tokio::test]
async fn services_are_checked_by_their_plan_and_their_probes() {
    let bed = Bed::start(Options::default());
    bed.uniform("pool", 1);
    for (protocol, count) in [("http", 1), ("tcp", 0)] {
        let claims = Claims { services: vec![web(protocol).into()], ..claims() };
        let checks = checks(&bed, &claims).await;
        assert_eq!(of(&checks, "health-probes").len(), count, "{checks:?}");
        let [(Severity::Warning, text)] = of(&checks, "load-balancers")[..] else { panic!("{checks:?}") };
        assert!(text.contains("would be created"), "{text}");
    }
}
