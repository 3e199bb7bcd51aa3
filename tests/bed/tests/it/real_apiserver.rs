use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ccm_test_bed::{
    AuditEntry, AuditLog, Authority, Bed, CCM_USER, ClientCertificate, FRONT_PROXY_USER, Options, User,
};
use serde_json::{Value, json};

pub(crate) fn node(name: &str) -> Value {
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
    assert_eq!(map["data"]["requestheader-client-ca-file"], bed.authority_pem(Authority::FrontProxy));
    assert_eq!(map["data"]["requestheader-allowed-names"], json!([FRONT_PROXY_USER]).to_string());
    assert_eq!(map["data"]["requestheader-username-headers"], r#"["X-Remote-User"]"#);
}

fn whoami(kubectl: &Path, config: &Path) -> Value {
    let run = Command::new(kubectl).arg("--kubeconfig").arg(config).args(["auth", "whoami", "-o", "json"]).output();
    let output = run.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["status"]["userInfo"].clone()
}

#[tokio::test]
async fn the_token_of_a_service_account_is_that_account_and_its_kubeconfig_is_private() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(kubectl) = ccm_test_bed::kubectl().unwrap() else { return };
    // The second time the account already exists.
    for _ in 0..2 {
        let config = bed.kubeconfig_for_service_account("accounts", "robot").await.unwrap();
        let mode = std::fs::metadata(&config).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let user = whoami(&kubectl, &config);
        assert_eq!(user["username"], "system:serviceaccount:accounts:robot");
        assert_eq!(user["groups"][1], "system:serviceaccounts:accounts", "{user}");
    }
    let token = bed.service_account_token("accounts", "robot").await.unwrap();
    let (status, body) = bed.request("GET", "/api/v1/nodes", &token, None).await.unwrap();
    assert_eq!(status, 403, "{body}");
    assert!(bed.service_account_token("accounts", "Not A Name").await.is_err());
}

#[tokio::test]
async fn a_client_certificate_is_its_user_and_groups_and_only_of_the_right_authority() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(kubectl) = ccm_test_bed::kubectl().unwrap() else { return };
    let user = whoami(&kubectl, &bed.kubeconfig_for_user("ann", &["one", "two"]).unwrap());
    assert_eq!(user["username"], "ann");
    assert_eq!(user["groups"], json!(["one", "two", "system:authenticated"]));

    let refused = |certificate: ClientCertificate| {
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let output = Command::new(&kubectl)
            .arg(format!("--server={}", bed.url))
            .arg(file("certificate-authority", &bed.authority_file(Authority::Client)))
            .arg(file("client-certificate", &certificate.certificate_file))
            .arg(file("client-key", &certificate.key_file))
            .args(["auth", "whoami"])
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("Unauthorized"), "{output:?}");
    };
    refused(bed.expired_client_certificate(Authority::Client, "ann", &[]).unwrap());
    refused(bed.client_certificate(Authority::FrontProxy, "ann", &[]).unwrap());
}

#[tokio::test]
async fn kubectl_works_with_the_kubeconfig() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let Some(kubectl) = ccm_test_bed::kubectl().unwrap() else { return };
    assert_eq!(whoami(&kubectl, &bed.kubeconfig())["username"], "bed-admin");
    assert_eq!(whoami(&kubectl, &bed.kubeconfig_with(&bed.ccm_token).unwrap())["username"], CCM_USER);
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

    let entry = until_entry(&mut bed.audit(), |entry| entry.user == "ann").await;
    assert_eq!((entry.verb.as_str(), entry.code, &entry.body), ("create", 201, &None), "{entry}");
    assert!(entry.is_about("services") && entry.is_write(), "{entry}");
    assert_eq!((entry.name.as_str(), entry.namespace.as_str()), ("s", "default"));
}

/// Waits for an entry that satisfies the condition.
pub(crate) async fn until_entry(log: &mut AuditLog, wanted: impl Fn(&AuditEntry) -> bool) -> AuditEntry {
    let started = Instant::now();
    loop {
        if let Some(entry) = log.read().unwrap().into_iter().find(&wanted) {
            return entry;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no such audit event");
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

/// The purpose of the guardian: after SIGKILL no process and no file remains.
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

/// Creates what is hard to delete over the API without controllers, and returns the names and addresses that are taken.
async fn fill(bed: &Bed) -> Value {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": CCM_USER}]);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "subjects": subjects,
        "metadata": {"name": "all"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "finalizers": ["a.example/f"]},
        "spec": {"type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_007}]}});
    for (path, object) in [
        ("/api/v1/nodes", &node("n")),
        (rbac, &binding),
        ("/api/v1/namespaces", &namespace),
        ("/api/v1/namespaces/team/services", &service),
    ] {
        let (status, body) = bed.request("POST", path, &bed.token, Some(object)).await.unwrap();
        assert_eq!(status, 201, "{path}: {body}");
    }
    let label = json!({"metadata": {"labels": {"changed": "yes"}}});
    let (status, body) = bed.request("PATCH", "/api/v1/namespaces/default", &bed.token, Some(&label)).await.unwrap();
    assert_eq!((status, body.contains(r#""changed":"yes""#)), (200, true), "{body}");
    let started = Instant::now();
    while bed.request("GET", "/api/v1/nodes", &bed.ccm_token, None).await.unwrap().0 != 200 {
        assert!(started.elapsed() < Duration::from_secs(60), "the binding never counts");
    }
    names(bed).await
}

async fn names(bed: &Bed) -> Value {
    let mut all = Value::Null;
    for path in ["nodes", "namespaces", "services"] {
        let list: Value = serde_json::from_str(&bed.get(&format!("/api/v1/{path}")).await.unwrap().1).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        all[path] = items.map(|item| json!([item["metadata"]["name"], item["metadata"]["labels"]])).collect();
    }
    all
}

#[tokio::test]
async fn the_next_test_finds_a_reused_bed_empty() {
    let options = Options::default().audit();
    let Some(first) = Bed::reused(options.clone()).await.unwrap() else { return };
    let (url, fresh) = (first.url.clone(), names(&first).await);
    let filled = fill(&first).await;
    assert_ne!(filled, fresh);
    let beside = Bed::reused(options.clone()).await.unwrap().unwrap();
    assert_ne!(beside.url, url, "two tests have one bed");
    drop((first, beside.stop_apiserver().await.unwrap(), beside));

    let second = Bed::reused(options.clone()).await.unwrap().unwrap();
    assert_eq!(second.url, url, "another server has started, or one without a server is reused");
    assert_eq!(names(&second).await, fresh);
    assert_eq!(second.request("GET", "/api/v1/nodes", &second.ccm_token, None).await.unwrap().0, 403);
    let old = second.audit().read().unwrap();
    assert!(!old.iter().any(AuditEntry::is_write), "{old:?}");
    assert_eq!(fill(&second).await, filled);
}
