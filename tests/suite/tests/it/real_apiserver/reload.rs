//! A provider configuration that changes while the process runs: a mounted ConfigMap, and a Secret.

use std::fs;
use std::os::unix::fs::symlink;

use ccm_test_bed::Options;
use ccm_test_suite::Make;

use super::*;

const USER: &str = "reloading";
const LEASE: &str = "suite-reload";
const MARK: &str = "s3cret-in-the-config";

/// A cloud with or without load balancers, a key that the fake cloud itself reads only at the start.
fn config(rig: &Rig, balancers: bool) -> String {
    let log = rig.cloud.path("calls.jsonl");
    format!(
        "# {MARK}\ncallLog: {}\nproviderName: suite-reload\ninterfaces: {{loadBalancer: {balancers}}}\n",
        log.display()
    )
}

fn start(rig: &Rig, args: &[&str]) -> Process {
    let kubeconfig = rig.bed().kubeconfig_for_user(USER, &["system:masters"]).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let lease = format!("--leader-elect-resource-name={LEASE}");
    let controllers = "--controllers=cloud-node,service";
    let fixed = ["--cloud-provider=reloading", "--leader-elect=true", controllers, &lease, &kubeconfig, "-v=10"];
    let args = rig.args(&[&fixed, args].concat());
    Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &args, &rig.cloud.path("ccm.log"))
}

async fn until_initialized(rig: &Rig, process: &Process, times: usize) {
    let calls = || rig.cloud.calls("Initialize").len();
    deadline(LONG, || process.output(), async || calls() == times).await;
}

async fn until_output(process: &Process, text: &str) {
    deadline(LONG, || process.output(), async || process.output().contains(text)).await;
}

async fn lease(rig: &Rig) -> (String, String) {
    let lease = rig.get("leases", "kube-system", LEASE).await.unwrap();
    let spec = |field: &str| lease["spec"][field].to_string();
    (spec("holderIdentity"), spec("leaseTransitions"))
}

/// Asserts that it works, exits on SIGTERM, and never prints the content of its configuration.
async fn ends(rig: &Rig, mut process: Process) {
    rig.until(LONG, "an address", async |rig| rig.service("web").await.filter(|web| !web.ingress().is_empty())).await;
    process.terminate();
    assert!(process.ended(LONG).await.success(), "{}", process.output());
    let output = process.output();
    assert!(!output.contains(MARK) && !output.contains("panicked"), "{output}");
    for event in rig.list("events").await {
        assert!(!event.event_line().contains(MARK), "{}", event.event_line());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_file_that_changes_restarts_the_controllers_and_not_the_process() {
    let Some(rig) = Rig::real_alone(Options::default(), "suite-reload", "").await else { return };
    let mount = rig.cloud.path("mount");
    fs::create_dir(&mount).unwrap();
    // Like the kubelet.
    let swap = |version: &str, text: &str| {
        fs::create_dir(mount.join(version)).unwrap();
        fs::write(mount.join(version).join("cloud.yaml"), text).unwrap();
        symlink(version, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    swap("..v1", &config(&rig, false));
    symlink("..data/cloud.yaml", mount.join("cloud.yaml")).unwrap();
    let process = start(&rig, &[&format!("--cloud-config={}", mount.join("cloud.yaml").display())]);
    until_initialized(&rig, &process, 1).await;
    rig.create(service("web")).await;
    let held = lease(&rig).await;

    swap("..v2", "interfaces: [");
    until_output(&process, "the changed cloud configuration cannot be used").await;
    rig.create(node("still").uninitialized()).await;
    rig.until_node("still", "initialized", |node| !node.is_uninitialized()).await;
    assert_eq!(rig.cloud.calls("Initialize").len(), 1);

    swap("..v3", &config(&rig, true));
    until_initialized(&rig, &process, 2).await;
    rig.until_event(LEASE, "CloudConfigReloaded").await;
    assert_eq!(lease(&rig).await, held);
    ends(&rig, process).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_read_by_its_name_alone_and_followed() {
    let Some(rig) = Rig::real_alone(Options::default().audit(), "suite-reload", "").await else { return };
    let secret = ["--reloading-secret=suite-cloud"];
    let mut early = start(&rig, &secret);
    assert_eq!(early.ended(LONG).await.code(), Some(255));
    let output = early.output();
    let named = "Couldn't open cloud provider configuration Secret kube-system/suite-cloud, key cloud.yaml: ";
    assert!(output.contains(named) && output.contains("not found"), "{output}");

    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "suite-cloud", "namespace": "kube-system"},
        "stringData": {"cloud.yaml": config(&rig, false)}});
    rig.create(Make { resource: "secrets", object }).await;
    let process = start(&rig, &secret);
    until_initialized(&rig, &process, 1).await;
    rig.create(service("web")).await;
    let change = |change| rig.patch("secrets", "kube-system", "suite-cloud", "", change);
    change(json!({"data": {"cloud.yaml": null}, "stringData": {"other": MARK}})).await;
    until_output(&process, "there is no key \"cloud.yaml\" in it, only other").await;
    change(json!({"stringData": {"cloud.yaml": config(&rig, true)}})).await;
    until_initialized(&rig, &process, 2).await;
    ends(&rig, process).await;

    let asked = rig.bed().audit().read().unwrap();
    let secrets: Vec<_> = asked.iter().filter(|entry| entry.user == USER && entry.resource == "secrets").collect();
    assert!(secrets.len() > 4, "{secrets:?}");
    assert!(secrets.iter().all(|entry| entry.verb == "get" && entry.name == "suite-cloud"), "{secrets:?}");
}
