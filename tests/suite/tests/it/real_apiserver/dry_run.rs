//! A dry run as a separate process: its requests to the API server and the cloud.

use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{AuditEntry, Bed, Options};
use ccm_test_suite::Cloud;

use super::*;

const DRY: &str = "dry-run";
const LEADER: &str = "leader";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/suite-dry";
const CLOUD: &str = r#"
zone: {region: r, failureDomain: z}
unlisted: missing
absenceGrace: 1h
interfaces: {routes: true}
instances: [{name: new}, {name: stopped, shutdown: true}]
loadBalancers: {initial: [{service: default/leaving, ingress: [{ip: 203.0.113.9}]}]}
routes: {initial: [{destinationCIDR: 10.88.9.0/24, blackhole: true}]}
faults: [{call: InstanceExists, node: unsure, error: busy}]
"#;
/// All cloud calls that a dry run may make.
const READS: [&str; 9] = [
    "Initialize",
    "SetInformers",
    "Lookup",
    "InstanceExists",
    "InstanceShutdown",
    "InstanceMetadata",
    "GetLoadBalancer",
    "ListRoutes",
    "GetLabelsForVolume",
];

/// Creates objects that every controller would write to.
async fn populate(rig: &Rig) {
    rig.create(node("new").uninitialized().pod_cidr("10.88.1.0/24")).await;
    for name in ["stopped", "missing", "unsure"] {
        rig.create(node(name).provider_id(&id(rig, name)).ready("Unknown")).await;
    }
    rig.create(node("ranges").provider_id(&id(rig, "ranges"))).await;
    rig.create(service("web")).await;
    rig.create(service("leaving").finalizer("service.kubernetes.io/load-balancer-cleanup").with(|service| {
        service["spec"]["type"] = "ClusterIP".into();
    }))
    .await;
}

fn start(rig: &Rig, cloud: &Cloud, user: &str, args: &[&str]) -> Process {
    let kubeconfig = rig.bed().kubeconfig_for_user(user, &["system:masters"]).unwrap();
    let more = [
        "--leader-elect=true".to_owned(),
        "--leader-elect-resource-name=suite-dry".into(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--authentication-kubeconfig={}", kubeconfig.display()),
        format!("--authorization-kubeconfig={}", kubeconfig.display()),
        format!("--cloud-config={}", cloud.file().display()),
    ];
    let more: Vec<&str> = more.iter().map(String::as_str).chain(args.iter().copied()).collect();
    Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &rig.args(&more), &cloud.path(&format!("{user}.log")))
}

/// Sends a request to the process, as a user whom the API server must review.
async fn ask(bed: &Bed, cloud: &Cloud, port: u16, path: &str) -> String {
    let token = bed.service_account_token("default", "somebody").await.unwrap();
    let cluster = json!({"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true});
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "own",
        "clusters": [{"name": "own", "cluster": cluster}], "users": [{"name": "own", "user": {"token": token}}],
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}]});
    let file = cloud.path("own.kubeconfig");
    std::fs::write(&file, config.to_string()).unwrap();
    let options = ConnectOptions { kubeconfig: file.display().to_string(), ..ConnectOptions::default() };
    let own = Client::connect(&options, Metrics::new()).await.unwrap();
    match own.send(&Call::get(path)).await {
        Ok(answer) => String::from_utf8(answer.to_vec()).unwrap(),
        Err(error) => error.to_string(),
    }
}

/// All requests to the API server, after the log is complete.
async fn asked(rig: &Rig) -> Vec<AuditEntry> {
    let (mut log, mut entries) = (rig.bed().audit(), Vec::new());
    rig.get("configmaps", "default", "the-last-request").await;
    let last = async || {
        entries.extend(log.read().unwrap());
        entries.iter().any(|entry: &AuditEntry| entry.name == "the-last-request")
    };
    deadline(LONG, || "the audit log does not end".into(), last).await;
    entries
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_beside_a_leader_writes_nothing_and_logs_each_plan_and_event_once() {
    let Some(rig) = Rig::real_alone(Options::default().audit(), "suite-dry", CLOUD).await else { return };
    populate(&rig).await;
    // Holds the lease and does nothing.
    let leaders_cloud = Cloud::new("suite-dry", "");
    let mut leader = start(&rig, &leaders_cloud, LEADER, &["--controllers=node-route-controller"]);
    let holder = async || {
        let (code, lease) = rig.bed().get(LEASE).await.unwrap();
        let lease: serde_json::Value = serde_json::from_str(&lease).unwrap();
        if code == 200 {
            lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
        } else {
            String::new()
        }
    };
    deadline(LONG, || leader.output(), async || !holder().await.is_empty()).await;
    let held_by = holder().await;

    let port = ccm_test_bed::free_port().unwrap();
    let secure = format!("--secure-port={port}");
    let mut dry = start(
        &rig,
        &rig.cloud,
        DRY,
        &[
            "--dry-run",
            "--bind-address=127.0.0.1",
            &secure,
            "--controllers=*,node-ipam-controller",
            "--use-service-account-credentials=true",
            "--configure-cloud-routes=true",
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.88.0.0/16",
            "--node-monitor-period=300ms",
            "--route-reconciliation-period=300ms",
            "--node-status-update-frequency=300ms",
            "--feature-gates=ServiceLoadBalancerConditions=true",
        ],
    );
    let plan = |subject: &str| format!("subject={subject:?}\n");
    let wanted = [
        "takes part in no election".to_owned(),
        plan("node new"),
        plan("node stopped shutdown taint"),
        plan("node ranges pod ranges"),
        plan("service default/web"),
        plan("service default/leaving"),
        "Warning NodeDeletionDeferred: Not deleted yet: ".into(),
        "Warning InstanceStateUnknown: ".into(),
        "delete Route".into(),
        "--dry-run: the first pass is complete".into(),
    ];
    for text in &wanted {
        deadline(LONG, || format!("no {text:?} in\n{}", dry.output()), async || dry.output().contains(text)).await;
    }
    // Several more passes of each kind.
    for call in ["InstanceExists", "ListRoutes"] {
        rig.until_calls(call, rig.cloud.calls(call).len() + 5).await;
    }
    let state = async |path: &str| ask(rig.bed(), &rig.cloud, port, path).await;
    assert_eq!(state("/healthz").await, "ok");
    assert!(state("/metrics").await.contains("forbidden"), "asked the API server who may");
    assert_eq!(holder().await, held_by, "the leader still leads");
    for text in &wanted[5..8] {
        assert_eq!(dry.output().matches(text.as_str()).count(), 1, "{text:?} in\n{}", dry.output());
    }
    dry.terminate();
    assert!(dry.ended(LONG).await.success(), "{}", dry.output());
    leader.terminate();
    assert!(leader.ended(LONG).await.success(), "{}", leader.output());

    let entries = asked(&rig).await;
    let of = |user: &str| entries.iter().filter(|entry| entry.user == user).cloned().collect::<Vec<_>>();
    let dry_run = of(DRY);
    assert!(dry_run.iter().any(|entry| entry.is_about("nodes")), "the audit log shows who asked");
    assert!(of(LEADER).iter().any(AuditEntry::is_write), "and what is a write");
    let reviews = ["tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"];
    let (reviewed, written): (Vec<_>, Vec<_>) =
        dry_run.iter().filter(|entry| entry.is_write()).partition(|entry| reviews.contains(&&*entry.resource));
    assert!(!reviewed.is_empty());
    assert!(written.is_empty(), "{}", written.iter().map(|entry| format!("\n{entry}")).collect::<String>());
    assert!(!dry_run.iter().any(|entry| entry.is_about("leases")), "nor does it look at leases");
    let other: Vec<_> = entries.iter().filter(|e| e.user.starts_with("system:serviceaccount:kube-system:")).collect();
    assert!(other.is_empty(), "{other:?}");
    let calls: Vec<String> = rig.cloud.log().iter().map(|line| line["call"].as_str().unwrap().to_owned()).collect();
    let writes: Vec<_> = calls.iter().filter(|call| !READS.contains(&call.as_str())).collect();
    assert!(calls.iter().any(|call| call == "GetLoadBalancer") && writes.is_empty(), "{writes:?}");
}
