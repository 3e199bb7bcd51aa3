//! The trial of the manifests, by kustomize and by Helm, beside a program that leads.

use std::time::Duration;

use ccm_test_bed::{AuditEntry, Bed, Options};
use ccm_test_suite::{Cloud, Process, deadline};
use serde_json::{Value, json};

use super::accepted::apply;
use crate::rendered::{args, documents, template, with_components, workload};
use crate::tools::{helm, kubectl};

const LONG: Duration = Duration::from_secs(90);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
const CLOUD: &str = "unlisted: missing\ninterfaces: {routes: true}\ninstances: [{name: new}]";
/// The calls to the cloud that write nothing.
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

/// The program with the account and the arguments of these manifests. Only settings that a pod would supply differ.
async fn start(bed: &Bed, text: &str, cloud: &Cloud, more: &[String]) -> (Process, String) {
    let documents = documents(text);
    let workload = workload(&documents);
    let account = workload["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
    let kubeconfig = bed.kubeconfig_for_service_account("kube-system", account).await.unwrap();
    let mut args = args(workload);
    args.extend(
        ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| format!("--{flag}={}", kubeconfig.display())),
    );
    args.extend(["--cloud-provider=fake".to_owned(), format!("--cloud-config={}", cloud.file().display())]);
    args.push("--node-monitor-period=500ms".to_owned());
    args.extend(more.iter().cloned());
    let log = cloud.path("log");
    (Process::start(env!("CARGO_BIN_EXE_ccm-as-shipped"), &args, &log), account.to_owned())
}

async fn create(bed: &Bed, path: &str, object: &Value) {
    let (status, body) = bed.request("POST", path, &bed.token, Some(object)).await.unwrap();
    assert_eq!(status, 201, "{body}");
}

async fn holder(bed: &Bed) -> String {
    let (status, lease) = bed.get(LEASE).await.unwrap();
    let lease: Value = if status == 200 { serde_json::from_str(&lease).unwrap() } else { Value::Null };
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Whether the process listens on a port.
fn listens(process: &Process) -> bool {
    let links = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    // A file may have been closed meanwhile.
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let open: Vec<String> = links.map(|link| link.display().to_string()).collect();
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        // The fourth column is the state, 0A for a listening socket, the tenth the inode.
        let mut listening = rows.filter(|row| row[3] == "0A").map(|row| format!("socket:[{}]", row[9]));
        listening.any(|socket| open.contains(&socket))
    })
}

/// All requests to the API server, after the log is complete.
async fn asked(bed: &Bed) -> Vec<AuditEntry> {
    let (mut log, mut entries) = (bed.audit(), Vec::new());
    bed.get("/api/v1/namespaces/default/configmaps/the-last-request").await.unwrap();
    let last = async || {
        entries.extend(log.read().unwrap());
        entries.iter().any(|entry: &AuditEntry| entry.name == "the-last-request")
    };
    deadline(LONG, || "the audit log does not end".into(), last).await;
    entries
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_beside_the_program_that_leads_has_no_lease_and_no_port_and_writes_nothing() {
    let (Some(kubectl), Some(helm)) = (kubectl(), helm()) else { return };
    let (Some(old), Some(component)) =
        (with_components(&["cloud-config"]), with_components(&["cloud-config", "trial"]))
    else {
        return;
    };
    // With the names of the program that runs now.
    let named = "fullnameOverride=cloud-controller-manager,serviceAccount.name=cloud-controller-manager";
    let settings = format!("cloudProvider=fake,image.repository=example.com/ccm,trial=true,{named}");
    let chart = template(&helm, &["--set", &settings]).unwrap();
    for trial in [component, chart] {
        let Some(bed) = Bed::reused(Options::default().audit()).await.unwrap() else { return };
        for text in [&old, &trial] {
            apply(&bed, &kubectl, &["apply", "--validate=strict", "-f", "-"], text).unwrap();
        }
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}, "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]}});
        create(&bed, "/api/v1/nodes", &node).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}});
        create(&bed, "/api/v1/namespaces/default/services", &service).await;

        // Leads, and leaves the work to the plans of the trial.
        let (of_old, of_trial) = (Cloud::new("fake", CLOUD), Cloud::new("fake", CLOUD));
        let port = ccm_test_bed::free_port().unwrap();
        let more = [format!("--secure-port={port}"), "--controllers=node-route-controller".to_owned()];
        let (leader, account_of_old) = start(&bed, &old, &of_old, &more).await;
        deadline(LONG, || leader.output(), async || !holder(&bed).await.is_empty()).await;
        let leads = holder(&bed).await;

        let (dry, account) = start(&bed, &trial, &of_trial, &[]).await;
        assert_ne!(account, account_of_old);
        for subject in ["node new", "service default/web"] {
            let plan = format!("subject={subject:?}");
            deadline(LONG, || format!("no {plan} in\n{}", dry.output()), async || dry.output().contains(&plan)).await;
        }
        assert!(listens(&leader), "listening sockets are found");
        assert!(!listens(&dry), "{}", dry.output());
        assert_eq!(holder(&bed).await, leads);
        dry.stop().await;
        leader.stop().await;

        let user = format!("system:serviceaccount:kube-system:{account}");
        let asked: Vec<AuditEntry> = asked(&bed).await.into_iter().filter(|entry| entry.user == user).collect();
        assert!(asked.iter().any(|entry| entry.is_about("nodes")), "the audit log shows who asked");
        let is_wrong =
            |entry: &&AuditEntry| entry.is_write() || entry.is_about("leases") || matches!(entry.code, 401 | 403);
        assert_eq!(asked.iter().find(is_wrong), None);
        let calls: Vec<String> = of_trial.log().iter().map(|call| call["call"].as_str().unwrap().to_owned()).collect();
        assert!(calls.iter().any(|call| call == "GetLoadBalancer"), "{calls:?}");
        assert_eq!(calls.iter().find(|call| !READS.contains(&call.as_str())), None);
    }
}
