//! Routes: names, ownership, and failing operations.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_cloudsim::gce::Options;
use ccm_provider::{CloudProvider, ErrorClass, NewRoute, Node, NodeRef, ProviderError, Route};
use ccm_provider_contract::TestCluster;
use serde_json::json;

use crate::bed::{Bed, PROJECT};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn new(node: &Node, range: &str) -> NewRoute {
    let route = Route { target_node: Some(node.name.clone()), destination_cidr: range.to_owned(), ..Route::default() };
    NewRoute { name_hint: UID.to_owned(), route }
}

async fn scene(bed: &Bed, name: &str) -> (Arc<dyn CloudProvider>, NodeRef) {
    let zone = "us-central1-f";
    bed.instance_in(zone, "n1", json!({}));
    let id = format!("gce://{PROJECT}/{zone}/n1");
    let node: NodeRef = Node { name: name.into(), provider_id: Some(id.into()), ..Node::default() }.into();
    let cluster = Arc::<TestCluster>::default();
    cluster.add_node(node.clone());
    (bed.process("", &cluster).await, node)
}

async fn create(provider: &Arc<dyn CloudProvider>, cluster: &str, route: NewRoute) -> Result<(), ProviderError> {
    provider.routes().unwrap().create(cluster, &[route]).await.pop().unwrap()
}

#[tokio::test]
async fn a_route_has_upstreams_shape_and_leads_to_any_zone_and_name() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1.c.p.internal").await;
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    let routes = bed.cloud.objects("routes");
    let route = &routes[0];
    assert_eq!(route["name"], format!("kubernetes-{UID}"));
    assert_eq!((&route["priority"], &route["description"]), (&json!(1000), &json!("k8s-node-route")));
    assert_eq!(
        (&route["destRange"], route["network"].as_str().unwrap().ends_with("/networks/default")),
        (&json!("10.244.1.0/24"), true)
    );
    assert!(route["nextHopInstance"].as_str().unwrap().ends_with("/zones/us-central1-f/instances/n1"));
    // The route belongs to the node, whatever its name is, and nothing is written again.
    let listed = provider.routes().unwrap().list("kubernetes").await.unwrap();
    assert_eq!(listed[0].target_node.as_ref(), Some(&node.name));
    let mark = bed.cloud.mark();
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    assert!(!bed.calls(mark).iter().any(|call| call == "routes.insert"));
    assert_eq!(provider.routes().unwrap().delete("kubernetes", &listed).await.len(), 1);
    assert!(bed.cloud.objects("routes").is_empty());
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// Its instance has its name, and its labels the zone: a kubelet may set neither a provider ID nor the taint of clouds.
#[tokio::test]
async fn a_node_without_provider_id_has_a_route_to_the_instance_of_its_name_in_the_zone_of_its_labels() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-f", "n1", json!({}));
    let labels = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
    for (labels, is_made) in [(labels("us-central1-f"), true), (json!({}), false)] {
        let node = json!({"metadata": {"name": "n1.c.p.internal", "labels": labels}, "name": "n1.c.p.internal", "labels": labels});
        let node: NodeRef = serde_json::from_value::<Node>(node).unwrap().into();
        let cluster = Arc::<TestCluster>::default();
        cluster.add_node(node.clone());
        let provider = bed.process("", &cluster).await;
        let made = create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await;
        assert_eq!(made.is_ok(), is_made, "{made:?}");
        let listed = provider.routes().unwrap().list("kubernetes").await.unwrap();
        assert_eq!(listed[0].target_node.as_ref(), Some(&node.name));
    }
    assert_eq!(bed.cloud.objects("routes").len(), 1);
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// After Nodes are registered again, they have no provider ID until the node controller has come to them.
#[tokio::test]
async fn the_route_of_a_node_without_provider_id_is_its_own_and_no_blackhole() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    for (name, range, target) in [
        ("n1", "10.244.1.0/24", Some("n1")),
        // Its range changed meanwhile: the core deletes the route as that of the node.
        ("n1", "10.244.9.0/24", Some("n1")),
        // The instance has another name, and the range is that of the node: nothing is known.
        ("other", "10.244.1.0/24", None),
    ] {
        let cluster = Arc::<TestCluster>::default();
        cluster.add_node(Node { name: name.into(), pod_cidrs: [range.into()].into(), ..Node::default() }.into());
        let listed = bed.process("", &cluster).await.routes().unwrap().list("kubernetes").await.unwrap();
        let named: Vec<_> = listed.iter().map(|route| (route.target_node.as_deref(), route.blackhole)).collect();
        assert_eq!(named, target.map(|target| (Some(target), false)).into_iter().collect::<Vec<_>>(), "{name} {range}");
    }
    // Without any such node, it is that of a former node.
    let listed = bed.process("", &Arc::default()).await.routes().unwrap().list("kubernetes").await.unwrap();
    assert!(listed[0].blackhole);
}

#[tokio::test]
async fn a_route_of_a_user_is_left_alone_whatever_its_name_begins_with() {
    let bed = Bed::start(Options::default());
    let (provider, _) = scene(&bed, "n1").await;
    let network = "https://www.googleapis.com/compute/v1/projects/p/global/networks/default";
    let hop = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/control";
    for name in ["kubernetes-my-own-route", "kubernetes-vpn-11111111-2222-3333-4444-555555555555"] {
        let route = json!({"network": network, "destRange": "10.244.7.0/24", "priority": 1000,
            "description": "k8s-node-route", "nextHopInstance": hop});
        bed.cloud.world(|world| world.put(&format!("projects/p/global/routes/{name}"), route));
    }
    assert_eq!(provider.routes().unwrap().list("kubernetes").await.unwrap(), []);
}

/// The number of a project is that of its ID, so the routes are found.
#[tokio::test]
async fn a_network_by_the_number_of_its_project_has_the_same_routes() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    let number = bed.cloud.world(|world| world.projects[PROJECT]);
    let cluster = Arc::<TestCluster>::default();
    cluster.add_node(node.clone());
    let url = format!("network-name = https://www.googleapis.com/compute/v1/projects/{number}/global/networks/default");
    let provider = bed.process(&url, &cluster).await;
    assert_eq!(provider.routes().unwrap().list("kubernetes").await.unwrap().len(), 1);
    let mark = bed.cloud.mark();
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    assert!(bed.cloud.writes(mark).is_empty());
}

#[tokio::test]
async fn p14_both_ranges_of_a_node_have_routes() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    for range in ["10.244.1.0/24", "10.244.2.0/24"] {
        create(&provider, "kubernetes", new(&node, range)).await.unwrap();
    }
    let mut routes: Vec<(String, String)> = bed
        .cloud
        .objects("routes")
        .into_iter()
        .map(|route| (route["name"].as_str().unwrap().to_owned(), route["destRange"].as_str().unwrap().to_owned()))
        .collect();
    routes.sort();
    let bare = UID.replace('-', "");
    assert_eq!(
        routes,
        [
            (format!("kubernetes-{UID}"), "10.244.1.0/24".to_owned()),
            (format!("kubernetes-{bare}-4"), "10.244.2.0/24".to_owned()),
        ]
    );
}

#[tokio::test]
async fn p15_clusters_whose_names_begin_alike_share_a_network() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    create(&provider, "dev", new(&node, "10.244.1.0/24")).await.unwrap();
    create(&provider, "dev-2", new(&node, "10.244.2.0/24")).await.unwrap();
    for (cluster, range) in [("dev", "10.244.1.0/24"), ("dev-2", "10.244.2.0/24")] {
        let listed = provider.routes().unwrap().list(cluster).await.unwrap();
        assert_eq!(listed.iter().map(|route| &*route.destination_cidr).collect::<Vec<_>>(), [range], "{cluster}");
    }
}

#[tokio::test]
async fn p51_a_wait_that_fails_is_repeated_and_the_write_succeeds() {
    // The answer to the write must not be late enough to show its end.
    let bed = Bed::start(Options { operation: Duration::from_secs(2), ..Options::default() });
    let (provider, node) = scene(&bed, "n1").await;
    let fault = Fault::Code { status: 503, code: "backendError".into(), message: "later".into() };
    bed.cloud.fault(Rule::every(fault).on("compute", "globalOperations.wait").window(0, 1));
    let mark = bed.cloud.mark();
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    let waits = bed.calls(mark).into_iter().filter(|call| call == "globalOperations.wait").count();
    assert_eq!((waits, bed.cloud.objects("routes").len()), (2, 1));
}

/// When the API is overloaded, a wait is answered at once.
#[tokio::test]
async fn between_waits_that_are_answered_at_once_there_is_a_pause() {
    let (wait, operation) = (Duration::ZERO, Duration::from_secs(2));
    let bed = Bed::start(Options { wait, operation, ..Options::default() });
    let (provider, node) = scene(&bed, "n1").await;
    let mark = bed.cloud.mark();
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    let waits = bed.calls(mark).into_iter().filter(|call| call == "globalOperations.wait").count();
    assert!((2..=4).contains(&waits), "{waits}");
}

#[tokio::test]
async fn p60_a_web_page_in_place_of_an_answer_passes() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    bed.cloud.fault(Rule::every(Fault::Html { status: 502 }).on("compute", "routes.insert"));
    let error = create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Transient { .. }), "{error}");
    assert!(error.to_string().contains("web page with HTTP 502") && !error.to_string().contains("JSON"), "{error}");
    bed.cloud.faults(Faults::clear);
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
}

#[tokio::test]
async fn an_operation_that_fails_at_its_end_is_an_error_with_its_reason() {
    let bed = Bed::start(Options { quotas: [("ROUTES".to_owned(), 0)].into(), ..Options::default() });
    let (provider, node) = scene(&bed, "n1").await;
    let error = create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap_err();
    assert!(error.to_string().contains("quota"), "{error}");
    assert!(bed.cloud.objects("routes").is_empty());
}

#[tokio::test]
async fn the_answer_to_a_write_may_get_lost() {
    let bed = Bed::start(Options::default());
    let (provider, node) = scene(&bed, "n1").await;
    bed.cloud.fault(Rule::every(Fault::ResetAfter).on("compute", "routes.insert").window(0, 1));
    create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    assert_eq!(bed.cloud.objects("routes").len(), 1);
}

/// Another process made it since the list was read.
#[tokio::test]
async fn a_route_that_exists_already_is_done_if_it_is_the_same() {
    for (range, is_same) in [("10.244.1.0/24", true), ("10.244.2.0/24", false)] {
        let bed = Bed::start(Options::default());
        let (provider, node) = scene(&bed, "n1").await;
        assert_eq!(provider.routes().unwrap().list("kubernetes").await.unwrap(), []);
        let cluster = Arc::<TestCluster>::default();
        cluster.add_node(node.clone());
        create(&bed.process("", &cluster).await, "kubernetes", new(&node, range)).await.unwrap();
        let mark = bed.cloud.mark();
        let made = create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await;
        assert!(bed.calls(mark).iter().any(|call| call == "routes.insert"));
        assert_eq!(made.is_ok(), is_same, "{made:?}");
    }
}

#[tokio::test]
async fn a_route_that_the_list_does_not_show_yet_is_done() {
    let bed =
        Bed::start(Options { lag: Lag::default().with("routes", Duration::from_secs(3600)), ..Options::default() });
    let (provider, node) = scene(&bed, "n1").await;
    for _ in 0..3 {
        create(&provider, "kubernetes", new(&node, "10.244.1.0/24")).await.unwrap();
    }
    let error = create(&provider, "kubernetes", new(&node, "10.244.2.0/24")).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}
