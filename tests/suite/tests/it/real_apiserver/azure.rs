//! The whole program with `--cloud-provider=azure`, as a process, with a real API server and a simulated Azure.

mod pods;
mod secure;

use std::collections::BTreeSet;

use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};
use ccm_test_suite::{LONG, Make, Object, Process, Rig, node, service_with};
use serde_json::json;

const ARGS: &[&str] =
    &["--cluster-cidr=10.244.0.0/16", "--route-reconciliation-period=500ms", "--node-monitor-period=500ms"];
const SECRET: &[&str] = &["--enable-dynamic-reloading", "--cloud-config-secret-name=azure"];

/// A cluster with a uniform scale set of two instances, whose nodes have registered.
struct World {
    rig: Rig,
    azure: Azure,
    set: String,
}

impl World {
    async fn start() -> Option<Self> {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Option<Self> {
        let rig = Rig::real_alone(ccm_test_bed::Options::default(), "unused", "").await?;
        let azure = Azure::start(options).unwrap();
        let set = azure.world(|world| {
            world.cluster(&ClusterSeed::default());
            world.scale_set(&SetSeed { name: "pool", instances: 2, zones: &["1"], ..SetSeed::default() })
        });
        for number in 0..2 {
            let name = format!("pool00000{number}");
            rig.create(node(&name).uninitialized().pod_cidr(&format!("10.244.{number}.0/24"))).await;
        }
        Some(Self { rig, azure, set })
    }

    fn config(&self, more: &str) -> String {
        format!(
            "resourceManagerEndpoint: {}\ntenantId: tenant\nsubscriptionId: sub\naadClientId: client\naadClientSecret: secret\n\
             resourceGroup: rg\nlocation: eastus\nvnetName: vnet\nsubnetName: subnet\nsecurityGroupName: nsg\n{more}",
            self.azure.root()
        )
    }

    fn args(&self, args: &[&str]) -> Vec<String> {
        let fixed = [
            "--cloud-provider=azure".to_owned(),
            format!("--kubeconfig={}", self.rig.bed().kubeconfig().display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "-v=2".to_owned(),
        ];
        fixed.into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect()
    }

    fn run(&self, args: &[&str]) -> Process {
        let log = self.rig.cloud.path(&format!("{}.log", self.azure.mark()));
        Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &self.args(args), &log)
    }

    /// The program with the configuration in a file.
    fn manager(&self) -> Process {
        let file = self.rig.cloud.path("azure.yaml");
        std::fs::write(&file, self.config("routeTableName: rt\nrouteTableCacheTTLInSeconds: 1\n")).unwrap();
        let config = format!("--cloud-config={}", file.display());
        self.run(&[&[&*config], ARGS].concat())
    }

    fn names(&self, kind: &str) -> BTreeSet<String> {
        let objects = self.azure.objects(&format!("Microsoft.Network/{kind}"));
        objects.iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
    }

    fn routes(&self) -> usize {
        let table = self.azure.objects("Microsoft.Network/routeTables").remove(0);
        table["properties"]["routes"].as_array().map_or(0, Vec::len)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_routes_and_services_of_a_cluster_come_and_go() {
    let Some(world) = World::start().await else { return };
    let rig = &world.rig;
    let manager = world.manager();
    let first = rig.initialized("pool000000").await;
    assert_eq!(first.provider_id(), format!("azure://{}/virtualMachines/0", world.set));
    assert_eq!(first.label("topology.kubernetes.io/zone"), "eastus-1");
    assert_eq!(first.taints(), [""; 0]);
    rig.initialized("pool000001").await;
    rig.until(LONG, "both routes", async |_| (world.routes() == 2).then_some(())).await;
    let ready = |node: &Object| node.condition("NetworkUnavailable").is_some_and(|it| it["status"] == "False");
    rig.until(LONG, "the condition", async |rig| rig.node("pool000000").await.filter(ready)).await;

    let tags = ("service.beta.kubernetes.io/azure-pip-tags", "team");
    rig.create(service_with("web", "", &[tags], &[80])).await;
    let address = rig.address("web").await;
    assert_eq!(rig.event_component("web", "LoadBalancerConfiguration").await, "azure-cloud-provider");
    let shown = world.azure.objects("Microsoft.Network/publicIPAddresses");
    assert!(shown.iter().any(|shown| shown["properties"]["ipAddress"] == *address), "{shown:?}");
    assert_eq!(rig.count_events("web", "SyncLoadBalancerFailed").await, 0, "{:?}", rig.events("web").await);
    manager.stop().await;

    let mark = world.azure.mark();
    let manager = world.manager();
    let reads = |azure: &Azure| azure.ledger(|ledger| ledger.counts(mark).get("network:routeTables.get").copied());
    rig.until(LONG, "a few looks", async |_| (reads(&world.azure) >= Some(2)).then_some(())).await;
    assert_eq!(world.azure.writes(mark), [""; 0], "a restart writes nothing");
    rig.delete_service("web").await;
    assert_eq!((world.names("loadBalancers"), world.names("publicIPAddresses")), (BTreeSet::new(), BTreeSet::new()));
    rig.delete("nodes", "", "pool000001").await;
    rig.until(LONG, "the route is gone", async |_| (world.routes() == 1).then_some(())).await;
    manager.stop().await;
    assert_eq!(world.azure.violations(), [""; 0]);
    assert_eq!(world.azure.superseded(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_may_be_in_a_secret_and_a_bad_change_of_it_has_no_effect() {
    let Some(world) = World::start().await else { return };
    let rig = &world.rig;
    let metadata = json!({"name": "azure", "namespace": "kube-system"});
    let data = |config: String| json!({"stringData": {"cloud-config": config}});
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    object["stringData"] = data(world.config(""))["stringData"].take();
    rig.create(Make { resource: "secrets", object }).await;
    let manager = world.run(SECRET);
    rig.initialized("pool000000").await;
    rig.initialized("pool000001").await;
    rig.patch("secrets", "kube-system", "azure", "", data(world.config("vmType: [\n"))).await;
    let refused = async |_: &Rig| manager.output().contains("failed to read the Azure cloud config").then_some(());
    rig.until(LONG, "the refusal", refused).await;
    world.azure.world(|azure| azure.scale_out(&world.set, 1));
    rig.create(node("pool000002").uninitialized()).await;
    rig.initialized("pool000002").await;
    let output = manager.output();
    assert!(!output.contains("aadClientSecret") && !output.contains("panicked"), "{output}");
    manager.stop().await;
}
