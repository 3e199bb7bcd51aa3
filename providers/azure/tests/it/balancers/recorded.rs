//! The objects of the Go program for Services of all shapes are taken over unchanged, and go with their Services.
//!
//! `recordings/*.json` are simulated clouds in which cloud-provider-azure (commit 7b31c76 of August 2026) made the load
//! balancers of some Services on a real API server: the configuration, the machines, the nodes, the Services, the objects
//! that were there before, and those that it made or changed.

use std::collections::BTreeSet;

use ccm_cloudsim::azure::{MachineSeed, SetSeed};
use ccm_provider::ServicePort;
use serde_json::Map;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/balancers/recordings");
/// What stands for the beginnings of IDs.
const SHORT: [(&str, &str); 2] = [("%N/", "Microsoft.Network"), ("%C/", "Microsoft.Compute")];
/// What Services have in the cloud, with the lists of named parts.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "loadBalancers",
        &["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "outboundRules"],
    ),
    ("networkSecurityGroups", &["securityRules"]),
    ("publicIPAddresses", &[]),
    ("privateLinkServices", &[]),
];

/// The recordings, by name.
fn recordings() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = SHORT.iter().fold(text, |text, (short, long)| text.replace(short, &format!("{GROUP}/{long}/")));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), serde_json::from_str(&text).unwrap())
    };
    let all: BTreeMap<String, Value> = files.map(read).collect();
    assert!(all.len() >= 10, "{:?}", all.keys());
    all
}

/// The recorded cluster, with this program in place of the Go one.
async fn taken_over(recording: &Value) -> Scene {
    let bed = Bed::start(Options::default());
    let (before, objects) = (&recording["before"], &recording["objects"]);
    let networks = before.as_object().unwrap().iter().filter(|(id, _)| id.contains("/virtualNetworks/"));
    let networks: Map<String, Value> = networks.map(|(id, fields)| (id.clone(), fields.clone())).collect();
    let count = usize::try_from(recording["machines"].as_u64().unwrap()).unwrap();
    let dual = recording["dual"].as_bool().unwrap();
    bed.cloud.world(|world| {
        world.restore(&Value::Object(networks));
        if recording["kind"] == "standard" {
            let names: Vec<String> = (0..count).map(|number| format!("vm{number}")).collect();
            for name in &names {
                world.machine(&MachineSeed { name, dual, ..MachineSeed::default() });
            }
        } else {
            let flexible = recording["kind"] == "vmssflex";
            world.scale_set(&SetSeed { flexible, instances: count, dual, ..SetSeed::default() });
        }
        world.restore(before);
        world.restore(objects);
    });
    let nodes = recording["nodes"].as_array().unwrap().iter().map(node).collect();
    let mut scene = Scene::of(bed, recording["configuration"].as_str().unwrap(), nodes).await;
    for service in recording["services"].as_array().unwrap() {
        let service: Service = serde_json::from_value(service.clone()).unwrap();
        scene.services.insert(service.metadata.name.to_string(), service);
    }
    scene.bed.cluster.set_services(scene.services.values().cloned());
    scene
}

fn node(recorded: &Value) -> NodeRef {
    let text = |field: &str| recorded[field].as_str().unwrap().to_owned();
    let addresses = recorded["addresses"].as_array().unwrap().iter();
    let addresses = addresses.map(|ip| NodeAddress::new(AddressType::InternalIp, ip.as_str().unwrap()));
    Node {
        name: text("name").into(),
        provider_id: Some(text("providerID").into()),
        addresses: addresses.collect(),
        labels: serde_json::from_value(recorded["labels"].clone()).unwrap(),
        ..Node::default()
    }
    .into()
}

/// The names of all objects and of their parts, and the tags of addresses.
fn names<'v>(objects: impl Iterator<Item = (String, &'v Value)>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (id, object) in objects {
        let id = id.to_lowercase();
        let Some((kind, lists)) = KINDS.iter().find(|(kind, _)| id.contains(&format!("/{}/", kind.to_lowercase())))
        else {
            continue;
        };
        names.insert(id.clone());
        for list in *lists {
            let parts = items(object, list).into_iter();
            names.extend(parts.map(|part| format!("{kind} {list} {}", part["name"].as_str().unwrap())));
        }
        // Configured tags stay on what is the users'.
        let tags = object["tags"].as_object().filter(|_| *kind == "publicIPAddresses").into_iter().flatten();
        names.extend(tags.map(|(key, value)| format!("{id} {key}={value}")));
    }
    names
}

fn present(scene: &Scene) -> BTreeSet<String> {
    let all: Vec<Value> = KINDS.iter().flat_map(|(kind, _)| scene.objects(kind)).collect();
    names(all.iter().map(|object| (object["id"].as_str().unwrap().to_owned(), object)))
}

/// Looks at all recordings together.
async fn in_all<F: Future<Output = ()> + Send + 'static>(look: impl Fn(String, Value) -> F) {
    let all: Vec<_> = recordings().into_iter().map(|(name, recording)| tokio::spawn(look(name, recording))).collect();
    for one in all {
        one.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_go_program_made_is_as_desired() {
    in_all(|name, recording| async move {
        let mut scene = taken_over(&recording).await;
        let services: Vec<String> = scene.services.keys().cloned().collect();
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        let statuses = |scene: &Scene| {
            let all = scene.services.values().map(|service| service.status.load_balancer.ingress.iter());
            all.map(|ingress| ingress.map(|one| one.ip.clone()).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let (mark, recorded) = (scene.mark(), statuses(&scene));
        scene.ensure(&services).await;
        assert_eq!(scene.writes(mark), BTreeMap::new(), "{name}");
        assert_eq!(statuses(&scene), recorded, "{name}");
        scene.done(&services, ServiceAction::UpdateHosts).await;
        scene.restart().await;
        scene.ensure(&services).await;
        assert_eq!(scene.writes(mark), BTreeMap::new(), "{name}: the same nodes, or another start");
        scene.bed.is_clean();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_go_program_made_goes_with_its_services() {
    in_all(|name, recording| async move {
        let before = recording["before"].as_object().unwrap();
        let before = names(before.iter().map(|(id, object)| (id.clone(), object)));
        for together in [true, false] {
            let mut scene = taken_over(&recording).await;
            let superseded = scene.bed.cloud.superseded();
            let services: Vec<String> = scene.services.keys().cloned().collect();
            let services: Vec<&str> = services.iter().map(String::as_str).collect();
            if together {
                scene.delete(&services).await;
            }
            for service in services.iter().rev().filter(|_| !together) {
                scene.delete(&[service]).await;
                scene.bed.cluster.set_services(scene.services.values().cloned());
            }
            assert_eq!(present(&scene), before, "{name}");
            assert_eq!(scene.bed.cloud.superseded(), superseded, "{name}");
            scene.bed.is_clean();
        }
    })
    .await;
}

/// The way back: after changes by this program, the Go program finds its objects, and those that came since look like
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_this_program_changes_is_still_found_by_the_go_program() {
    // The names of security rules follow their sources, those of other parts only the Service and its ports.
    let lasting = |names: &BTreeSet<String>| -> BTreeSet<String> {
        names.iter().filter(|name| !name.starts_with("networkSecurityGroups ")).cloned().collect()
    };
    in_all(move |name, recording| async move {
        let mut scene = taken_over(&recording).await;
        let (before, nodes, services) = (present(&scene), scene.nodes.clone(), scene.services.clone());
        for (key, recorded) in &services {
            let first = recorded.spec.ports[0].clone();
            let more = ServicePort { name: "more".to_owned(), port: 9090, node_port: 32_767, ..first };
            scene.services.get_mut(key).unwrap().spec.ports.push(more);
            scene.bed.cluster.set_services(scene.services.values().cloned());
            scene.nodes.truncate(1);
            scene.ensure(&[key]).await;
            let (was, now) = (lasting(&before), lasting(&present(&scene)));
            assert_eq!(was.difference(&now).collect::<Vec<_>>(), [] as [&String; 0], "{name} {key}");
            for new in now.difference(&was) {
                let begin = new.split_once("-9090").and_then(|(begin, _)| Some(begin.rsplit_once('-')?.0));
                let is_like = begin.is_some_and(|begin| was.iter().any(|known| known.starts_with(begin)));
                assert!(is_like, "{name} {key}: {new}");
            }
            scene.services.insert(key.clone(), recorded.clone());
            scene.bed.cluster.set_services(scene.services.values().cloned());
            scene.nodes.clone_from(&nodes);
            scene.ensure(&[key]).await;
            assert_eq!(present(&scene), before, "{name} {key}");
        }
        scene.bed.is_clean();
    })
    .await;
}
