//! Roles of the field: who swaps the image keeps them. `policies.txt` has the work that is refused for each, with the
//! action that the error names.

use std::collections::BTreeSet;

use ccm_cloudsim::azure::SetSeed;
use ccm_kit::Glob;
use ccm_provider::{
    Aspects, Claims, Lookup, NewRoute, Node, NodeRef, PersistentVolume, Route, ServiceAction, Severity,
};
use ccm_provider_contract::denied::{self, Denied};
use serde_json::{Value, json};

use crate::balancers::{Scene, machine_node, node_of, port};
use crate::bed::{CLUSTER, GROUP, node_at};

/// The page "Azure Permissions" of cloud-provider-azure, without storage.
const DOCUMENTED: &[&str] = &[
    "Microsoft.Network/loadBalancers/delete",
    "Microsoft.Network/loadBalancers/read",
    "Microsoft.Network/loadBalancers/write",
    "Microsoft.Network/loadBalancers/backendAddressPools/read",
    "Microsoft.Network/loadBalancers/backendAddressPools/write",
    "Microsoft.Network/loadBalancers/backendAddressPools/delete",
    "Microsoft.Network/loadBalancers/inboundNatRules/join/action",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPPrefixes/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action",
    "Microsoft.Compute/disks/*",
    "Microsoft.Network/routeTables/read",
    "Microsoft.Network/routeTables/routes/*",
    "Microsoft.Network/routeTables/write",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualmachines/instanceView/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Compute/virtualMachineScaleSets/write",
    "Microsoft.Compute/virtualMachineScaleSets/virtualmachines/write",
    "Microsoft.Compute/virtualMachineScaleSets/manualupgrade/action",
    "Microsoft.Network/networkInterfaces/read",
    "microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipconfigurations/publicipaddresses/read",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/subnets/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Network/privatelinkservices/*",
    "Microsoft.Network/virtualNetworks/subnets/write",
];

/// The CredentialsRequest of OpenShift's cluster-cloud-controller-manager-operator.
const OPENSHIFT: &[&str] = &[
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/loadBalancers/read",
    "Microsoft.Network/loadBalancers/write",
    "Microsoft.Network/loadBalancers/inboundNatRules/join/action",
    "Microsoft.Network/loadBalancers/delete",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/privatelinkservices/delete",
    "Microsoft.Network/privatelinkservices/read",
    "Microsoft.Network/privatelinkservices/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/subnets/read",
    "Microsoft.Network/virtualNetworks/subnets/write",
    "Microsoft.Network/publicIPPrefixes/join/action",
    "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action",
];

struct Role {
    name: &'static str,
    granted: &'static [&'static str],
    /// Whether the nodes are instances of a uniform scale set.
    of_set: bool,
    /// The roles in Kubernetes that it is used with.
    with: &'static str,
}

const CHART: &str = "the chart of cloud-provider-azure, and KubeOne and kOps on Azure";

const NETWORK: &[&str] = &["Microsoft.Network/*", "*/read"];

const ROLES: &[Role] = &[
    Role { name: "`Owner` (kOps), `Contributor` (Cluster API)", granted: &["*"], of_set: true, with: CHART },
    Role { name: "the documented list, scale sets", granted: DOCUMENTED, of_set: true, with: CHART },
    Role { name: "the documented list, single machines", granted: DOCUMENTED, of_set: false, with: CHART },
    Role { name: "`Network Contributor` and `Reader`, scale sets", granted: NETWORK, of_set: true, with: CHART },
    Role { name: "`Network Contributor` and `Reader`, single machines", granted: NETWORK, of_set: false, with: CHART },
    Role { name: "`Reader`", granted: &["*/read"], of_set: true, with: CHART },
    Role { name: "OpenShift's (CredentialsRequest)", granted: OPENSHIFT, of_set: false, with: "OpenShift" },
];

/// The actions of this program that the role does not have.
fn lacking(role: &Role) -> Vec<String> {
    let granted = |action: &str| {
        let is_of = |pattern: &&str| Glob::new(&pattern.to_lowercase()).matches(&action.to_lowercase());
        role.granted.iter().any(is_of)
    };
    let actions: BTreeSet<String> = ccm_provider_azure::custom_roles()
        .iter()
        .flat_map(|(_, text)| serde_json::from_str::<Value>(text).unwrap()["Actions"].as_array().unwrap().clone())
        .map(|action| action.as_str().unwrap().to_owned())
        .collect();
    actions.into_iter().filter(|action| !granted(action)).collect()
}

const KINDS: [&str; 2] = ["external", "internal"];

/// A cluster with two nodes, and Services that were made with every permission, for the first of them.
async fn scene(role: &Role) -> Scene {
    let mut scene = Scene::new("", 0).await;
    scene.nodes = if role.of_set {
        let seed = SetSeed { name: "pool", instances: 2, zones: &["1"], ..SetSeed::default() };
        let set = scene.bed.cloud.world(|world| world.scale_set(&seed));
        [0, 1].map(|number| node_of(&set, number, false)).into()
    } else {
        ["vm0", "vm1"].map(|name| with_address(&scene, name)).into()
    };
    scene.bed.cluster.set_nodes(scene.nodes.clone());
    for (name, number) in [("old", 80), ("new", 81)] {
        scene.service(&format!("{name}-external"), &[], port(number));
        scene.service(&format!("{name}-internal"), &[("azure-load-balancer-internal", "true")], port(number));
    }
    let second = scene.nodes.pop();
    scene.ensure(&["old-external", "old-internal"]).await;
    let not_actions = lacking(role);
    scene.bed.cloud.world(|world| world.options.not_actions = not_actions);
    scene.restart().await;
    scene.bed.cluster.take_events();
    scene.nodes.extend(second);
    scene
}

/// A node on a new machine of its own.
fn with_address(scene: &Scene, name: &str) -> NodeRef {
    let node = machine_node(scene, name);
    Node { addresses: node_at(name, &scene.bed.address(name)).addresses, ..Node::clone(&node) }.into()
}

async fn services(scene: &mut Scene, refused: &mut Denied) {
    let all = scene.nodes.clone();
    for (work, nodes) in [("sync", &all[..1]), ("joining node", &all), ("leaving node", &all[1..])] {
        scene.nodes = nodes.to_vec();
        for kind in KINDS {
            let mark = scene.mark();
            let action = if work == "sync" { ServiceAction::Ensure } else { ServiceAction::UpdateHosts };
            refused.note(&format!("{work} {kind}"), scene.settle(&[&format!("old-{kind}")], action).await);
            assert!(work != "sync" || scene.writes(mark).is_empty(), "what exists is right");
        }
    }
    for kind in KINDS {
        let new = format!("new-{kind}");
        refused.note(&format!("new {kind}"), scene.settle(&[&new], ServiceAction::Ensure).await);
        for name in [new, format!("old-{kind}")] {
            refused.note(&format!("delete {kind}"), scene.settle(&[&name], ServiceAction::Delete).await);
        }
    }
}

async fn others(scene: &Scene, refused: &mut Denied) {
    let provider = scene.bed.process("").await;
    for found in provider.instances().unwrap().lookup(&scene.nodes, Aspects::METADATA).await {
        match found {
            Lookup::Found(instance) => refused.note("nodes", instance.metadata.clone()),
            Lookup::Unknown(error) => refused.note::<()>("nodes", Err(error)),
            other => panic!("{other:?}"),
        }
    }
    let target_node = Some(scene.nodes[0].name.clone());
    let route = Route { target_node, destination_cidr: "10.244.1.0/24".to_owned(), ..Route::default() };
    let new = NewRoute { name_hint: "uid".to_owned(), route };
    let routes = provider.routes().unwrap();
    match routes.list(CLUSTER).await {
        Ok(_) => refused.note("route", routes.create(CLUSTER, &[new]).await.remove(0)),
        listed => refused.note("route", listed),
    }
    let disk = scene.bed.cloud.world(|world| world.disk("sub", "rg", "d", "2"));
    let spec = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": disk}});
    let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
    refused.note("volume", provider.volumes().unwrap().labels(&[volume]).await.remove(0));
}

/// The messages of errors of `migrate-check`.
async fn checked(scene: &Scene) -> Vec<String> {
    let services = scene.services.values().cloned().map(Into::into).collect();
    let claims = Claims { nodes: scene.nodes.clone(), services };
    let checks = scene.bed.process("").await.inspect().unwrap().migration_checks(CLUSTER, &claims).await;
    let errors = checks.into_iter().filter(|it| it.check == "permissions" && it.severity == Severity::Error);
    errors.map(|check| check.message).collect()
}

/// The line of a role.
async fn line(role: &Role) -> String {
    let (mut scene, mut refused) = (scene(role).await, Denied::default());
    let errors = checked(&scene).await;
    others(&scene, &mut refused).await;
    services(&mut scene, &mut refused).await;
    let line = refused.line(role.name, &[role.with], &denied::warned(&scene.bed.cluster.take_events()));
    // Nothing shows whether there are volumes.
    refused.0.remove("volume");
    for action in refused.0.values() {
        assert!(errors.iter().any(|error| error.contains(action)), "{}: {action} in {errors:?}", role.name);
    }
    // Only for what fails.
    let kind = |work: &str| match work {
        "nodes" => "missing for nodes",
        "route" => "missing for routes",
        _ => "missing for Services",
    };
    let failing: BTreeSet<&str> = refused.0.keys().map(|work| kind(work)).collect();
    for error in &errors {
        assert!(failing.iter().any(|kind| error.starts_with(kind)), "{}: {error}", role.name);
    }
    scene.bed.is_clean();
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_with_the_roles_of_the_field_and_names_what_they_lack() {
    let lines = futures::future::join_all(ROLES.iter().map(line)).await;
    denied::listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/policies.txt"), &lines);
}

/// Azure checks each object that a write names: what Services ask for, and what users added to machines and networks.
#[tokio::test]
async fn the_generated_roles_suffice_for_all_that_writes_name() {
    for (pools, needed) in [("nodeIPConfiguration", "publicIPAddresses/join/action"), ("nodeIP", "joinLoadBalancer")] {
        let mut scene = Scene::new(&format!("loadBalancerBackendPoolConfigurationType: {pools}\n"), 0).await;
        let network = |kind: &str| format!("{GROUP}/Microsoft.Network/{kind}");
        let asg = json!([{"id": network("applicationSecurityGroups/asg")}]);
        let rule = json!([{"name": "of-users", "properties": {
            "priority": 4000, "direction": "Inbound", "access": "Allow", "protocol": "*", "sourcePortRange": "*",
            "sourceAddressPrefix": "*", "destinationPortRange": "22", "destinationApplicationSecurityGroups": asg,
        }}]);
        let table = json!({"properties": {"routeTable": {"id": network("routeTables/rt")}}});
        let (set, prefix) = scene.bed.cloud.world(|world| {
            world.put(&network("applicationSecurityGroups/asg"), json!({}));
            world.alter(&network("networkSecurityGroups/nsg"), json!({"properties": {"securityRules": rule}}));
            world.alter(&network("virtualNetworks/vnet/subnets/subnet"), table);
            let set = world.scale_set(&SetSeed { name: "pool", instances: 1, zones: &["1"], ..SetSeed::default() });
            (set, world.public_ip_prefix("sub", "rg", "prefix", "20.41.0.0/28"))
        });
        scene.nodes = vec![node_of(&set, 0, false)];
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        let roles = ccm_provider_azure::custom_roles();
        let actions = |text: &str| serde_json::from_str::<Value>(text).unwrap()["Actions"].as_array().unwrap().clone();
        let all = roles.iter().flat_map(|(_, text)| actions(text));
        let mut granted: Vec<String> = all.map(|action| action.as_str().unwrap().to_owned()).collect();
        let grant = |scene: &Scene, granted: &[String]| {
            scene.bed.cloud.world(|world| {
                world.options.not_actions = vec!["*".to_owned()];
                world.options.actions_on = [(String::new(), granted.to_vec())].into();
            });
        };
        grant(&scene, &granted);
        scene.service("external", &[("azure-pip-prefix-id", &prefix)], port(80));
        scene.service("internal", &[("azure-load-balancer-internal", "true"), ("azure-pls-create", "true")], port(81));
        scene.ensure(&["external", "internal"]).await;
        granted.retain(|action| !action.contains(needed));
        grant(&scene, &granted);
        scene.service("late", &[], port(82));
        let error = scene.settle(&["late"], ServiceAction::Ensure).await.unwrap_err().to_string();
        assert!(error.contains(needed), "{pools}: {error}");
        scene.bed.is_clean();
    }
}
