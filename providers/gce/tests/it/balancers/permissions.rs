//! Roles of the field: who swaps the image keeps them. Each is what it lacks of the permissions that this program can
//! use; `policies.txt` has the work that is refused for it, with the permission that the error names.

use ccm_cloudsim::gce::Options;
use ccm_cloudsim::gce::seed::ClusterSeed;
use ccm_provider::{Aspects, Claims, Lookup, NewRoute, PersistentVolume, Route, Service, ServiceAction, Severity};
use ccm_provider_contract::denied::{self, Denied};
use serde_json::json;

use super::scene::{Scene, internal, service, set};
use crate::bed::{CLUSTER, PROJECT, ZONE};

struct Role {
    name: &'static str,
    lacks: &'static [&'static str],
    /// The same in the host project of a shared VPC.
    host_lacks: Option<&'static [&'static str]>,
    /// The roles in Kubernetes that it is used with.
    with: &'static [&'static str],
}

const MANIFEST: &str = "the manifest of cloud-provider-gcp";
const KOPS: &str = "kOps on Google Cloud";
const KUBEONE: &str = "KubeOne on Google Cloud";
const ANY: &[&str] = &[MANIFEST, KOPS, KUBEONE];

/// Of `compute.networkUser`, what a subnetwork can grant.
const NETWORK_USER: [&str; 3] = ["compute.subnetworks.get", "compute.subnetworks.list", "compute.subnetworks.use"];
const FIREWALL_WRITES: [&str; 3] = ["compute.firewalls.create", "compute.firewalls.update", "compute.firewalls.delete"];

/// The contents of the predefined roles: Google's list of roles and permissions, as of August 2026.
const ROLES: &[Role] = &[
    Role {
        name: "`container.serviceAgent` (kOps), `editor` (kube-up), `compute.admin`, or `compute.instanceAdmin.v1`, \
               `compute.networkAdmin` and `compute.securityAdmin`",
        lacks: &[],
        host_lacks: None,
        with: ANY,
    },
    Role {
        name: "`compute.instanceAdmin.v1` and `compute.networkAdmin`",
        lacks: &FIREWALL_WRITES,
        host_lacks: None,
        with: ANY,
    },
    Role {
        name: "`compute.instanceAdmin` and `compute.loadBalancerAdmin`",
        lacks: &["compute.firewalls.*", "compute.networks.updatePolicy", "compute.routes.*"],
        host_lacks: None,
        with: ANY,
    },
    Role {
        name: "`compute.viewer`",
        lacks: &[
            "compute.addresses.create*",
            "compute.addresses.delete*",
            "compute.addresses.use*",
            "compute.firewalls.create",
            "compute.firewalls.delete",
            "compute.firewalls.update",
            "compute.forwardingRules.create",
            "compute.forwardingRules.delete",
            "compute.forwardingRules.update",
            "compute.healthChecks.create",
            "compute.healthChecks.delete",
            "compute.healthChecks.u*",
            "compute.httpHealthChecks.create",
            "compute.httpHealthChecks.delete",
            "compute.httpHealthChecks.u*",
            "compute.instanceGroups.create",
            "compute.instanceGroups.delete",
            "compute.instanceGroups.u*",
            "compute.instances.use",
            "compute.networks.u*",
            "compute.regionBackendServices.create",
            "compute.regionBackendServices.delete",
            "compute.regionBackendServices.u*",
            "compute.routes.create",
            "compute.routes.delete",
            "compute.subnetworks.use*",
            "compute.targetPools.addInstance",
            "compute.targetPools.create",
            "compute.targetPools.delete",
            "compute.targetPools.removeInstance",
            "compute.targetPools.use",
        ],
        host_lacks: None,
        with: ANY,
    },
    // `manifests/…_16_credentialsrequest-gcp.yaml` of OpenShift's cluster-cloud-controller-manager-operator: what the Go
    // program needs.
    Role {
        name: "OpenShift's (CredentialsRequest)",
        lacks: &[
            "compute.disks.get",
            "compute.firewalls.list",
            "compute.forwardingRules.list",
            "compute.forwardingRules.update",
            "compute.globalOperations.get",
            "compute.healthChecks.list",
            "compute.httpHealthChecks.list",
            "compute.networks.get",
            "compute.networks.use",
            "compute.projects.get",
            "compute.regionBackendServices.list",
            "compute.regionOperations.get",
            "compute.routes.*",
            "compute.subnetworks.list",
            "compute.targetPools.list",
            "compute.zoneOperations.get",
        ],
        host_lacks: None,
        with: &["OpenShift"],
    },
    // A service project of a shared VPC, as GKE's.
    Role {
        name: "all in the own project; in the host project `compute.networkUser` and `container.hostServiceAgentUser`",
        lacks: &[],
        host_lacks: Some(&[
            "compute.firewalls.create",
            "compute.firewalls.delete",
            "compute.firewalls.update",
            "compute.globalOperations.get",
            "compute.networks.updatePolicy",
            "compute.routes.create",
            "compute.routes.delete",
        ]),
        with: ANY,
    },
    Role {
        name: "all in the own project; in the host project the same, `compute.networkUser` for one subnetwork only",
        lacks: &[],
        host_lacks: Some(&[
            "compute.firewalls.create",
            "compute.firewalls.delete",
            "compute.firewalls.list",
            "compute.firewalls.update",
            "compute.globalOperations.get",
            "compute.networks.updatePolicy",
            "compute.networks.use",
            "compute.projects.get",
            "compute.routes.*",
            "compute.subnetworks.*",
        ]),
        with: ANY,
    },
    Role {
        name: "all in the own project; in the host project `compute.networkUser`, without any permission for firewall rules",
        lacks: &[],
        host_lacks: Some(&[
            "compute.firewalls.*",
            "compute.globalOperations.get",
            "compute.networks.updatePolicy",
            "compute.routes.*",
        ]),
        with: ANY,
    },
];

fn texts(permissions: &[&str]) -> Vec<String> {
    permissions.iter().map(|permission| (*permission).to_owned()).collect()
}

async fn scene(role: &Role) -> Scene {
    let project = if role.host_lacks.is_some() { "host" } else { PROJECT };
    let seed = ClusterSeed { network_project: project, ..Scene::seed() };
    let mut scene = Scene::in_cluster(Options::default(), &seed, &["k8s-node-1"]).await;
    for kind in KINDS {
        scene.ensure(&mut of_kind("old", kind)).await;
    }
    scene.cloud().world(|world| world.disk(PROJECT, ZONE, "disk"));
    let subnetwork = scene.bed.subnetwork.clone();
    scene.cloud().change(|options| {
        options.denied = [(PROJECT.to_owned(), texts(role.lacks))].into();
        options.denied.extend(role.host_lacks.map(|lacks| ("host".to_owned(), texts(lacks))));
        options.granted.extend(role.host_lacks.map(|_| (subnetwork, texts(&NETWORK_USER))));
    });
    scene.cluster.add_node(scene.nodes[0].clone());
    scene.restart_with(&["configure-cloud-routes"]).await;
    scene.events();
    scene
}

const KINDS: [&str; 2] = ["external", "internal"];

fn of_kind(name: &str, kind: &str) -> Service {
    let service = service(&format!("{name}-{kind}"), json!({}));
    if kind == "internal" { internal(service) } else { service }
}

async fn services(scene: &mut Scene, kinds: &[&str], refused: &mut Denied) {
    for kind in kinds {
        let mark = scene.cloud().mark();
        refused.note(&format!("sync {kind}"), scene.try_ensure(&mut of_kind("old", kind)).await);
        assert_eq!(scene.writes(mark), [] as [&str; 0], "what exists is right");
    }
    for names in [&["k8s-node-1", "k8s-node-2"][..], &["k8s-node-2"]] {
        if names.len() > 1 {
            scene.nodes.push(scene.bed.node("k8s-node-2"));
        }
        scene.nodes.retain(|node| names.contains(&&*node.name));
        for kind in kinds {
            let answer = scene.ask(&mut of_kind("old", kind), ServiceAction::UpdateHosts).await.0;
            let (is_done, hosts) = (answer.is_ok(), scene.hosts(kind));
            refused.note(&format!("hosts {kind}"), answer);
            assert!(!is_done || hosts == names.len(), "{kind}: {hosts}");
        }
    }
    for kind in kinds {
        let mut new = of_kind("new", kind);
        refused.note(&format!("new {kind}"), scene.try_ensure(&mut new).await);
        for mut service in [new, of_kind("old", kind)] {
            refused.note(&format!("delete {kind}"), scene.ask(&mut service, ServiceAction::Delete).await.0);
        }
    }
}

impl Scene {
    /// The number of members of the only load balancer of a kind.
    fn hosts(&self, kind: &str) -> usize {
        match kind {
            "external" => self.cloud().objects("targetPools")[0]["instances"].as_array().map_or(0, Vec::len),
            _ => self.group(ZONE).len(),
        }
    }
}

async fn others(scene: &Scene, refused: &mut Denied) {
    let provider = scene.provider();
    for found in provider.instances().unwrap().lookup(&scene.nodes, Aspects::METADATA).await {
        let Lookup::Found(instance) = found else { panic!("{found:?}") };
        refused.note("nodes", instance.metadata.clone());
    }
    let target_node = Some(scene.nodes[0].name.clone());
    let route = Route { target_node, destination_cidr: "10.244.1.0/24".to_owned(), ..Route::default() };
    let new = NewRoute { name_hint: "11111111-2222-3333-4444-555555555555".to_owned(), route };
    let routes = provider.routes().unwrap();
    match routes.list(CLUSTER).await {
        Ok(_) => refused.note("route", routes.create(CLUSTER, &[new]).await.remove(0)),
        listed => refused.note("route", listed),
    }
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"gcePersistentDisk": {"pdName": "disk"}}});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    refused.note("volume", provider.volumes().unwrap().labels(&[volume]).await.remove(0));
}

/// The missing permissions in findings of `migrate-check` of one severity, and what is said about them.
async fn found(scene: &Scene, services: &[Service], severity: Severity) -> Vec<String> {
    let services = services.iter().map(|service| service.clone().into()).collect();
    let claims = Claims { nodes: scene.nodes.clone(), services };
    let checks = scene.provider().inspect().unwrap().migration_checks(CLUSTER, &claims).await;
    let found = checks.into_iter().filter(|it| it.check == "permissions" && it.severity == severity);
    found.map(|check| check.message).collect()
}

async fn errors(scene: &Scene, kinds: &[&str]) -> String {
    let services: Vec<Service> = kinds.iter().map(|kind| of_kind("old", kind)).collect();
    found(scene, &services, Severity::Error).await.concat()
}

#[tokio::test]
async fn work_goes_on_with_the_roles_of_the_field_and_names_what_they_lack() {
    let mut lines = Vec::new();
    for role in ROLES {
        let (mut scene, mut refused) = (scene(role).await, Denied::default());
        let errors = errors(&scene, &KINDS).await;
        others(&scene, &mut refused).await;
        services(&mut scene, &KINDS, &mut refused).await;
        let warned = denied::warned(&scene.events());
        assert!(warned.len() <= 1, "{}: {warned:?}", role.name);
        lines.push(refused.line(role.name, role.with, &warned));
        // Nothing shows whether there are volumes.
        refused.0.remove("volume");
        assert_eq!(refused.0.is_empty(), errors.is_empty(), "{}: {errors}", role.name);
        let of_services = refused.0.keys().any(|work| !["nodes", "route"].contains(&&**work));
        assert_eq!(errors.contains("Services"), of_services, "{}: {errors}", role.name);
        for permission in refused.0.values() {
            assert!(errors.contains(permission), "{}: {permission} in {errors}", role.name);
        }
        scene.is_correct();
    }
    denied::listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/policies.txt"), &lines);
}

/// The permissions of the other kind, and those for the groups of instances where another program manages them.
#[tokio::test]
async fn what_no_service_needs_is_not_missed() {
    const OF_TARGETS: &[&str] = &["compute.addresses.use", "compute.httpHealthChecks.*", "compute.targetPools.*"];
    const OF_BACKENDS: &[&str] = &[
        "compute.addresses.createInternal",
        "compute.addresses.deleteInternal",
        "compute.addresses.useInternal",
        "compute.healthChecks.*",
        "compute.instanceGroups.*",
        "compute.regionBackendServices.*",
        "compute.subnetworks.use",
    ];
    for (kind, lacks) in [("external", OF_BACKENDS), ("internal", OF_TARGETS)] {
        let role = Role { name: kind, lacks, host_lacks: None, with: ANY };
        let (mut scene, mut refused) = (scene(&role).await, Denied::default());
        assert_eq!(errors(&scene, &[kind]).await, "", "{kind}");
        services(&mut scene, &[kind], &mut refused).await;
        assert!(refused.0.is_empty(), "{kind}: {:?}", refused.0);
        let other = KINDS.into_iter().find(|other| *other != kind).unwrap();
        let missed = errors(&scene, &[other]).await;
        for permission in lacks {
            assert!(missed.contains(permission.trim_end_matches('*')), "{other}: {permission} in {missed}");
        }
    }
}

#[tokio::test]
async fn services_of_another_controller_need_nothing_but_a_look_for_what_was_made_here() {
    let role = Role { name: "none", lacks: &[], host_lacks: None, with: ANY };
    let mut scene = scene(&role).await;
    scene.cloud().change(|options| {
        let all = ["addresses", "firewalls", "forwardingRules", "healthChecks", "httpHealthChecks", "instanceGroups"];
        let more = ["regionBackendServices", "subnetworks", "targetPools"];
        let all = all.iter().chain(&more).map(|kind| format!("compute.{kind}.*"));
        options.denied = [(PROJECT.to_owned(), all.collect())].into();
    });
    let marked = |kind: &str, finalizer: &str| {
        let mut service = of_kind("new", kind);
        service.metadata.finalizers = vec![finalizer.to_owned()];
        service
    };
    let mut rbs = of_kind("new", "external");
    set(&mut rbs, "cloud.google.com/l4-rbs", "enabled");
    for mut service in [rbs, marked("external", "gke.networking.io/l4-netlb-v2")] {
        assert_eq!(found(&scene, &[service.clone()], Severity::Error).await, [""; 0], "{service:?}");
        assert!(scene.try_ensure(&mut service).await.unwrap_err().is_implemented_elsewhere());
    }
    let mut subsetted = marked("internal", "gke.networking.io/l4-ilb-v2");
    let missing = found(&scene, &[subsetted.clone()], Severity::Error).await.concat();
    assert!(missing.contains("compute.regionBackendServices.get") && !missing.contains(".create"), "{missing}");
    assert!(scene.refused(&mut subsetted).await.contains("compute."));
    // Our own classes have their own controller.
    let mut classed = of_kind("new", "external");
    classed.spec.load_balancer_class = Some("networking.gke.io/l4-regional-internal-legacy".to_owned());
    assert_eq!(found(&scene, &[classed.clone()], Severity::Error).await, [""; 0]);
    scene.restart_with(&["controllers=gke-service"]).await;
    let missing = found(&scene, &[classed], Severity::Error).await.concat();
    assert!(missing.contains("compute.regionBackendServices.create") && !missing.contains("targetPools"), "{missing}");
}

/// The administrators of a shared network let the cluster use some subnetworks.
#[tokio::test]
async fn each_subnetwork_of_a_service_is_asked_for_its_use_and_an_unknown_one_may_grant_it() {
    let role = ROLES.iter().find(|role| role.name.contains("one subnetwork only")).unwrap();
    let mut scene = scene(role).await;
    let web = of_kind("old", "internal");
    assert!(
        !found(&scene, std::slice::from_ref(&web), Severity::Error).await.concat().contains("compute.subnetworks.use")
    );
    let mut other = of_kind("new", "internal");
    set(&mut other, "networking.gke.io/internal-load-balancer-subnet", "other");
    let network = "projects/host/global/networks/default";
    let path = scene.cloud().world(|world| world.subnetwork(network, "us-central1", "other", "10.9.0.0/24", &[]));
    scene.cloud().change(|options| drop(options.granted.insert(path, texts(&["compute.subnetworks.list"]))));
    let missing = found(&scene, &[web.clone(), other.clone()], Severity::Error).await.concat();
    assert!(missing.contains("compute.subnetworks.use"), "{missing}");
    assert!(scene.refused(&mut other).await.contains("compute.subnetworks.use"));
    // Neither configured nor to be read.
    scene.cloud().change(|options| options.denied.get_mut("host").unwrap().push("compute.networks.get".to_owned()));
    scene.without_subnetwork().await;
    assert!(
        !found(&scene, std::slice::from_ref(&web), Severity::Error).await.concat().contains("compute.subnetworks.use")
    );
    let doubt = found(&scene, &[web], Severity::Warning).await.concat();
    assert!(doubt.contains("compute.subnetworks.use; it may be granted on the subnetwork alone"), "{doubt}");
}
