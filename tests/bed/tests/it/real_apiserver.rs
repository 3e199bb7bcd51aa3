use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ccm_test_bed::{Bed, CCM_USER, Options, User};
use serde_json::{Value, json};

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[tokio::test]
async fn the_administrator_may_write_and_the_service_account_may_not() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let (status, body) = bed.request("POST", "/api/v1/nodes", &bed.token, Some(&node("rights"))).await.unwrap();
    assert_eq!(status, 201, "{body}");

    let (status, body) = bed.request("GET", "/api/v1/nodes/rights", &bed.ccm_token, None).await.unwrap();
    assert_eq!(status, 403, "{body}");
    assert!(body.contains(CCM_USER), "{body}");
    let (status, _) = bed.request("GET", "/api/v1/nodes", "nobody", None).await.unwrap();
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_second_runtime_gets_the_same_shared_bed() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let url = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Bed::shared()).unwrap().unwrap().url.clone()
    })
    .join()
    .unwrap();
    assert_eq!(url, bed.url);
}

#[tokio::test]
async fn delegated_authentication_finds_its_config_map() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (status, body) = bed.get(path).await.unwrap();
    assert_eq!(status, 200, "{body}");
    let map: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(map["data"]["client-ca-file"], bed.ca_pem);
}

#[tokio::test]
async fn kubectl_works_with_the_kubeconfig() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(kubectl) = bed.kubectl() else { return };
    let run = |config: &Path| {
        Command::new(&kubectl).arg("--kubeconfig").arg(config).args(["auth", "whoami", "-o", "json"]).output().unwrap()
    };
    let output = run(&bed.kubeconfig());
    assert!(output.status.success(), "{output:?}");
    let output = run(&bed.kubeconfig_with(&bed.ccm_token).unwrap());
    assert!(String::from_utf8_lossy(&output.stdout).contains(CCM_USER), "{output:?}");
}

#[tokio::test]
async fn objects_survive_a_stop_of_the_api_server() {
    let Some(bed) = Bed::start().await.unwrap() else { return };
    let (status, body) = bed.request("POST", "/api/v1/nodes", &bed.token, Some(&node("survivor"))).await.unwrap();
    assert_eq!(status, 201, "{body}");

    bed.stop_apiserver().await.unwrap();
    assert!(bed.get("/readyz").await.is_err());
    assert!(bed.stop_apiserver().await.is_err());
    bed.start_apiserver().await.unwrap();
    assert!(bed.start_apiserver().await.is_err());
    assert_eq!(bed.get("/api/v1/nodes/survivor").await.unwrap().0, 200);

    bed.pause_apiserver().await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(300), bed.get("/readyz")).await;
    assert!(waiting.is_err(), "a paused server answered: {waiting:?}");
    bed.resume_apiserver().await.unwrap();
    assert_eq!(bed.get("/readyz").await.unwrap().0, 200);

    let folder = bed.folder().to_owned();
    bed.stop().await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn options_reach_the_api_server() {
    let ann = User { token: "ann-token".into(), name: "ann".into(), groups: vec!["system:masters".into()] };
    let options = Options::default().audit().user(ann).apiserver_arg("--service-cluster-ip-range=10.77.0.0/16");
    let Some(bed) = Bed::start_with(options).await.unwrap() else { return };
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services";
    let (status, body) = bed.request("POST", path, "ann-token", Some(&service)).await.unwrap();
    assert_eq!(status, 201, "{body}");
    assert!(body.contains(r#""clusterIP":"10.77."#), "{body}");

    let started = Instant::now();
    while !std::fs::read_to_string(bed.audit_log()).unwrap_or_default().contains(r#""username":"ann""#) {
        assert!(started.elapsed() < Duration::from_secs(10), "no audit event for ann");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_flag_the_server_refuses_is_an_error_with_its_log() {
    if Bed::shared().await.unwrap().is_none() {
        return;
    }
    let error = Bed::start_with(Options::default().apiserver_arg("--no-such-flag")).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("kube-apiserver ended") && text.contains("no-such-flag"), "{text}");
}

/// The guardian's whole reason: SIGKILL leaves nothing behind.
#[tokio::test]
async fn a_killed_owner_leaves_neither_processes_nor_data() {
    if Bed::shared().await.unwrap().is_none() {
        return;
    }
    let mut owner = Command::new(env!("CARGO_BIN_EXE_ccm-bed")).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut config = None;
    for line in lines {
        config = config.or(line.strip_prefix("export KUBECONFIG=").map(str::to_owned));
        if line.starts_with("Ctrl-C") {
            break;
        }
    }
    let config = config.expect("ccm-bed prints its kubeconfig");
    let text: Value = serde_json::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    let url = text["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let address = url.trim_start_matches("https://").to_owned();
    assert!(std::net::TcpStream::connect(&address).is_ok());

    owner.kill().unwrap();
    owner.wait().unwrap();
    let started = Instant::now();
    while std::net::TcpStream::connect(&address).is_ok() || Path::new(&config).exists() {
        assert!(started.elapsed() < Duration::from_secs(20), "left behind: {url} or {config}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
