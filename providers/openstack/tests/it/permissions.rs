//! Roles of the field: who swaps the image keeps them. Each is the calls that the policies refuse it; `policies.txt` has
//! the work that fails for it, with the rule that the error names.
//!
//! Default policies of Nova, Neutron and Octavia: `reader` reads and `member` writes. Octavia's older ones need
//! `load-balancer_observer` or `load-balancer_member` instead; newer ones accept both unless `enforce_new_defaults` is
//! set. Barbican's older ones let only `creator` and `observer` read secrets.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::{Aspects, Lookup, NewRoute, PersistentVolume, Route, Service, ServiceAction};
use ccm_provider_contract::TestCluster;
use ccm_provider_contract::denied::{self, Denied};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, contents};
use crate::scene::{INTERNAL, Scene, service, set};

struct Role {
    name: &'static str,
    /// Service, action, and whether only writes.
    refuses: &'static [(&'static str, &'static str, bool)],
}

/// The roles in Kubernetes that they are used with.
const WITH: [&str; 4] = [
    "the chart of cloud-provider-openstack, and KubeOne and kOps on OpenStack",
    "the manifests of cloud-provider-openstack",
    "kubespray on OpenStack",
    "OpenShift",
];

const ROLES: &[Role] = &[
    Role { name: "`member`; with Octavia's older policies also `load-balancer_member`", refuses: &[] },
    Role {
        name: "`member` without `creator`, with Barbican's older policies",
        refuses: &[("key-manager", "*", false)],
    },
    Role {
        name: "`member` and `load-balancer_observer`, with older policies",
        refuses: &[("load-balancer", "loadbalancer*", true)],
    },
    Role {
        name: "`member` alone, with Octavia's older policies",
        refuses: &[("load-balancer", "loadbalancer*", false)],
    },
    Role {
        name: "`reader`",
        refuses: &[("load-balancer", "loadbalancer*", true), ("network", "*", true), ("key-manager", "*", false)],
    },
];

fn rules(role: &Role) -> impl Iterator<Item = Rule> {
    role.refuses.iter().map(|(service, action, only_writes)| Rule {
        mutating: only_writes.then_some(true),
        ..Rule::every(Fault::Deny).on(service, action)
    })
}

fn of_kind(name: &str, kind: &str) -> Service {
    let mut service = service(&format!("{name}-{kind}"), &[(80, 30080)], json!({}));
    if kind == "internal" {
        set(&mut service, INTERNAL, "true");
    }
    service
}

async fn services(role: &Role, scene: &mut Scene, failing: &mut Denied) {
    scene.configure("[LoadBalancer]\nmanage-security-groups = true\n").await;
    let mut old = ["external", "internal"].map(|kind| (kind, of_kind("old", kind)));
    for (_, service) in &mut old {
        scene.ensure(service).await;
    }
    let project = scene.place().project.clone();
    let container = scene.simulation().world(|world| world.container(&project));
    let certificate = format!("{}/key-manager/v1/containers/{container}", scene.simulation().url());
    rules(role).for_each(|rule| scene.simulation().fault(rule));
    scene.restart().await;
    for (kind, service) in &mut old {
        let (calls, answer) = scene.counted(scene.try_ensure(service)).await;
        failing.note(&format!("sync {kind}"), answer);
        assert_eq!(calls.writes(), "", "what exists is right");
    }
    scene.nodes.pop();
    for (kind, service) in &mut old {
        let answer = scene.process.work(service, &scene.nodes, ServiceAction::UpdateHosts).await;
        failing.note(&format!("hosts {kind}"), answer);
    }
    for kind in ["external", "tls"] {
        let before = contents(scene.simulation());
        let mut new = of_kind("new", kind);
        if kind == "tls" {
            set(&mut new, "default-tls-container-ref", &certificate);
        }
        failing.note(&format!("new {kind}"), scene.try_ensure(&mut new).await);
        let answer = scene.process.work(&mut new, &scene.nodes, ServiceAction::Delete).await;
        failing.note(&format!("delete {kind}"), answer);
        assert_eq!(contents(scene.simulation()), before, "{}: a refused creation leaves nothing", role.name);
    }
    for (kind, service) in &mut old {
        let answer = scene.process.work(service, &scene.nodes, ServiceAction::Delete).await;
        failing.note(&format!("delete {kind}"), answer);
    }
}

async fn others(role: &Role, failing: &mut Denied) {
    let bed = Bed::start(Options::default());
    let nodes = ["node-1", "node-2"].map(|name| bed.node(name));
    let volume = bed.cloud.world(|world| world.volume(&bed.project, "zone-1"));
    rules(role).for_each(|rule| bed.cloud.fault(rule));
    let cluster = Arc::new(TestCluster::default());
    nodes.iter().for_each(|node| cluster.add_node(node.clone()));
    let provider = bed.process("", &cluster).await;
    for found in provider.instances().unwrap().lookup(&nodes, Aspects::METADATA).await {
        let Lookup::Found(instance) = found else { panic!("{found:?}") };
        failing.note("nodes", instance.metadata.clone());
    }
    let target_node = Some(nodes[0].name.clone());
    let route = Route { target_node, destination_cidr: "10.244.1.0/24".to_owned(), ..Route::default() };
    let routes = provider.routes().unwrap();
    routes.list(CLUSTER).await.unwrap();
    let new = NewRoute { name_hint: "uid".to_owned(), route };
    failing.note("route", routes.create(CLUSTER, &[new]).await.remove(0));
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"cinder": {"volumeID": volume}}});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    failing.note("volume", provider.volumes().unwrap().labels(&[volume]).await.remove(0));
}

/// The line of a role.
async fn line(role: &Role) -> String {
    let mut failing = Denied::default();
    others(role, &mut failing).await;
    let mut scene = Scene::simulated().await;
    services(role, &mut scene, &mut failing).await;
    assert_eq!(scene.events(), [] as [&str; 0], "{}", role.name);
    scene.cloud.end().await;
    failing.line(role.name, &WITH, &BTreeSet::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_with_the_roles_of_the_field_and_names_what_they_lack() {
    let lines = futures::future::join_all(ROLES.iter().map(line)).await;
    denied::listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/policies.txt"), &lines);
}
