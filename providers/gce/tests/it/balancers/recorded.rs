//! The objects of the Go program for Services of all shapes, and for nodes, are taken over unchanged, and deleted.
//!
//! `recordings/*.json` is the output of `cargo xtask bench gce takeover --ccm … --former …`: arguments, nodes,
//! Services, and the objects of the simulated cloud after the cloud-controller-manager of cloud-provider-gcp (commit
//! 4e24531 of August 2026, release line 36.3) had made them on a real API server.

use std::collections::BTreeSet;

use ccm_cloudsim::gce::seed::ClusterSeed;
use ccm_cloudsim::gce::{BALANCING, Options};
use ccm_provider::{NewRoute, Node, NodeRef, Route, Service};
use serde_json::Value;

use super::scene::Scene;
use crate::bed::{Bed, CLUSTER, PROJECT, ZONE};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/balancers/recordings");
const PLAIN: &str = "plain.json";
const DENYING: &str = "denying.json";
/// The writes of this program to a cluster that is taken over: see "Where it differs" of the README.
const CHANGES: [&str; 1] = [
    // Upstream opens it for the first external Service only.
    "firewalls.patch k8s-cid-node-http-hc",
];
/// The flags of recordings.
const SWITCHES: [&str; 3] =
    ["enable-l4-deny-firewall", "enable-l4-deny-firewall-rollback-cleanup", "enable-l4-lb-annotations"];

struct Recording {
    scene: Scene,
    services: Vec<Service>,
    /// The addresses of the Services.
    addresses: Vec<String>,
}

/// The recorded cluster, with this program in place of the former one.
async fn recorded(file: &str) -> Recording {
    let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap();
    let recording: Value = serde_json::from_str(&text).unwrap();
    let bed = Bed::of(
        Options::default(),
        &ClusterSeed { zones: &[ZONE], nodes: 0, range: "10.48.0.0/12", ..ClusterSeed::default() },
    );
    let nodes: Vec<NodeRef> = serde_json::from_value::<Vec<Node>>(recording["nodes"].clone())
        .unwrap()
        .into_iter()
        .map(NodeRef::from)
        .collect();
    for node in &nodes {
        let zone = node.provider_id.as_deref().unwrap().split('/').nth(3).unwrap();
        bed.instance_in(zone, &node.name, Value::Null);
    }
    bed.cloud.world(|world| {
        world.subnetwork(
            &format!("projects/{PROJECT}/global/networks/default"),
            "us-central1",
            "other",
            "10.240.0.0/20",
            &[],
        );
        world.restore(&recording);
    });
    let given: Vec<&str> = SWITCHES.into_iter().filter(|name| recording["args"].to_string().contains(name)).collect();
    let scene = Scene::over(bed, nodes, "multizone", &given).await;
    let address = |service: &Value| service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap().to_owned();
    let services = recording["services"].as_array().unwrap();
    Recording {
        scene,
        addresses: services.iter().map(address).collect(),
        services: services.iter().map(|service| serde_json::from_value(service.clone()).unwrap()).collect(),
    }
}

/// The writes since a mark, each with the name of its object.
fn writes(scene: &Scene, mark: u64) -> BTreeSet<String> {
    scene.cloud().ledger(|ledger| {
        let name = |params: &str| {
            params.split('&').next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned()
        };
        ledger.mutating(mark).map(|entry| format!("{} {}", entry.action, name(&entry.params))).collect()
    })
}

fn changes() -> BTreeSet<String> {
    CHANGES.iter().map(|change| (*change).to_owned()).collect()
}

#[tokio::test]
async fn what_the_go_program_made_is_as_desired() {
    for file in [PLAIN, DENYING] {
        let Recording { mut scene, mut services, addresses } = recorded(file).await;
        let mark = scene.cloud().mark();
        for (service, address) in services.iter_mut().zip(&addresses) {
            let (name, finalizers) = (service.metadata.name.clone(), service.metadata.finalizers.clone());
            assert_eq!(scene.ensure(service).await, *address, "{name}");
            assert_eq!(service.metadata.finalizers, finalizers, "{name}");
        }
        assert_eq!(writes(&scene, mark), changes());
        // The same nodes, or another start, cause no writes either.
        let mark = scene.cloud().mark();
        for service in &mut services {
            scene.update(service).await;
        }
        scene.restart().await;
        for service in &mut services {
            scene.ensure(service).await;
        }
        assert_eq!(writes(&scene, mark), BTreeSet::new());
        assert_eq!(scene.cloud().violations(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn routes_of_the_go_program_are_those_of_the_nodes() {
    let Recording { scene, .. } = recorded(PLAIN).await;
    scene.nodes.iter().for_each(|node| scene.cluster.add_node(node.clone()));
    let routes = scene.provider().clone().routes().unwrap();
    let listed: BTreeSet<_> = routes.list(CLUSTER).await.unwrap().into_iter().map(route).collect();
    let wanted: Vec<NewRoute> = scene.nodes.iter().map(wanted).collect();
    assert_eq!(listed, wanted.iter().map(|new| route(new.route.clone())).collect());
    assert_eq!(listed.len(), scene.nodes.len());
    let mark = scene.cloud().mark();
    for made in routes.create(CLUSTER, &wanted).await {
        made.unwrap();
    }
    assert_eq!(writes(&scene, mark), BTreeSet::new());
}

fn wanted(node: &NodeRef) -> NewRoute {
    let [range] = &*node.pod_cidrs else { panic!("{}: {:?}", node.name, node.pod_cidrs) };
    let route = Route { target_node: Some(node.name.clone()), destination_cidr: range.to_string(), ..Route::default() };
    NewRoute { name_hint: node.uid.to_string(), route }
}

fn route(route: Route) -> (String, String) {
    (route.target_node.unwrap().to_string(), route.destination_cidr)
}

#[tokio::test]
async fn what_the_go_program_made_goes_with_its_service() {
    for file in [PLAIN, DENYING] {
        // Another order deletes the shared objects with another Service.
        for backwards in [false, true] {
            let Recording { scene, mut services, .. } = recorded(file).await;
            if backwards {
                services.reverse();
            }
            for service in &mut services {
                scene.delete(service).await;
                assert_eq!(
                    service.metadata.finalizers,
                    [ccm_provider::well_known::FINALIZER_LOAD_BALANCER],
                    "{}",
                    service.metadata.name
                );
                let own = format!("a{}", service.metadata.uid.replace('-', ""));
                let own = own.get(..32).unwrap();
                let left: Vec<String> = scene.names().into_iter().filter(|name| name.contains(own)).collect();
                assert_eq!(left, [] as [&str; 0], "{}", service.metadata.name);
            }
            assert_eq!(scene.names(), ["addresses of-user"]);
            assert_eq!(scene.cloud().violations(), [] as [&str; 0]);
        }
    }
}

/// What the Go program finds its objects by: kind, name and, but for health checks, the description with the Service.
fn found(scene: &Scene) -> BTreeSet<String> {
    let lines = BALANCING.iter().flat_map(|kind| {
        let objects = scene.cloud().objects(kind);
        objects.into_iter().map(move |object| {
            let description =
                if kind.ends_with("ealthChecks") { "" } else { object["description"].as_str().unwrap_or("") };
            format!("{kind} {} {description}", object["name"].as_str().unwrap())
        })
    });
    lines.collect()
}

/// What the cloud sets.
const OUTPUT: [&str; 4] = ["creationTimestamp", "fingerprint", "id", "labelFingerprint"];

/// Kind, name and fields of each object. Lists have no order.
fn fields(scene: &Scene) -> BTreeSet<(&'static str, String, String)> {
    let sorted = |value: Value| match value {
        Value::Array(items) => items.iter().map(Value::to_string).collect::<BTreeSet<_>>().into_iter().collect(),
        other => other,
    };
    let objects = BALANCING.iter().flat_map(|kind| scene.cloud().objects(kind).into_iter().map(move |it| (*kind, it)));
    let all = objects.flat_map(|(kind, object)| {
        let name = object["name"].as_str().unwrap().to_owned();
        let fields = object.as_object().unwrap().clone().into_iter();
        let fields = fields.filter(|(field, value)| !OUTPUT.contains(&&**field) && value != "");
        fields.map(move |(field, value)| (kind, format!("{name} {field}"), sorted(value).to_string()))
    });
    all.collect()
}

/// The way back: after changes by this program, the Go program finds its objects, and no others.
#[tokio::test]
async fn what_this_program_changes_is_still_found_by_the_go_program() {
    let Recording { mut scene, services, addresses } = recorded(PLAIN).await;
    let (before, nodes, was) = (found(&scene), scene.nodes.clone(), fields(&scene));
    for (service, address) in services.iter().zip(&addresses) {
        let mut changed = service.clone();
        changed.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
        let mut more = service.spec.ports[0].clone();
        (more.name, more.port, more.node_port) = ("more".to_owned(), 9090, 32_767);
        changed.spec.ports.push(more);
        scene.nodes.pop();
        assert_eq!(scene.ensure(&mut changed).await, *address, "{}", service.metadata.name);
        assert_eq!(found(&scene), before, "{}", service.metadata.name);
        assert_eq!(changed.metadata.finalizers, service.metadata.finalizers, "{}", service.metadata.name);
        scene.nodes.clone_from(&nodes);
        // To the other kind of health check, and back.
        let policy = match service.metadata.name.rsplit('-').next() {
            Some("cluster") => Some(("Local", 32_766)),
            Some("local") => Some(("Cluster", 0)),
            _ => None,
        };
        if let Some((policy, port)) = policy {
            let mut other = service.clone();
            (other.spec.external_traffic_policy, other.spec.health_check_node_port) = (policy.into(), port);
            assert_eq!(scene.ensure(&mut other).await, *address, "{}", service.metadata.name);
        }
        let mut again = service.clone();
        assert_eq!(scene.ensure(&mut again).await, *address, "{}", service.metadata.name);
        assert_eq!(found(&scene), before, "{}", service.metadata.name);
        assert_eq!(again.metadata.annotations, service.metadata.annotations, "{}", service.metadata.name);
    }
    let now = fields(&scene);
    let changed = was.symmetric_difference(&now).map(|(kind, field, _)| {
        format!("{} {}", kind.rsplit('/').next().unwrap_or_default(), field.rsplit(' ').next().unwrap_or_default())
    });
    let changed: BTreeSet<String> = changed.collect();
    let left: BTreeSet<String> =
        ccm_provider_gce::left_behind().into_iter().map(|(field, _)| field.to_owned()).collect();
    assert_eq!(changed, left);
    assert_eq!(scene.cloud().violations(), [] as [&str; 0]);
}
