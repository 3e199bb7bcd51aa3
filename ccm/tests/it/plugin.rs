//! The program called by kubectl, and `ccm check`, on a real API server.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::{Ended, ended};
use crate::scene::{Scene, create, create_node, create_service, taint};

impl Scene {
    /// `kubectl ccm …`, without any flag of the program.
    fn kubectl_ccm(&self, words: &[&str]) -> Ended {
        let program = self.path("kubectl-ccm");
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ccm"), &program).unwrap();
        }
        let mut command = Command::new(program);
        command.args(words).env("KUBECONFIG", self.bed.kubeconfig()).env_remove("HOME").stdin(Stdio::null());
        ended(command.output().unwrap())
    }

    async fn run_pod(&self, name: &str, args: &[&str]) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"}, "spec": {
            "automountServiceAccountToken": false,
            "volumes": [{"name": "cloud", "secret": {"secretName": "cloud"}}],
            "containers": [{"name": "ccm", "image": "example.com/ccm:v0.1.0", "args": args,
                "volumeMounts": [{"name": "cloud", "mountPath": "/etc/cloud"}]}],
        }});
        create(&self.bed, "/api/v1/namespaces/kube-system/pods", pod).await;
    }
}

fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr))
}

#[tokio::test]
async fn kubectl_ccm_takes_the_flags_and_the_configuration_of_the_pod() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    create_service(&scene.bed, "web", json!({})).await;

    let nothing = scene.kubectl_ccm(&["explain", "svc/web"]);
    assert_eq!(nothing.code, Some(1), "{}", nothing.stdout);
    nothing.reports(&[
        "no pod of a cloud-controller-manager runs in a namespace kube-… or openshift-…",
        "--cloud-provider=NAME",
    ]);

    let config = "interfaces: {loadBalancer: false}\nunlisted: error\n";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud"}, "stringData": {"cloud.yaml": config}});
    create(&scene.bed, "/api/v1/namespaces/kube-system/secrets", secret).await;
    let args =
        ["--cloud-provider=fake", "--cloud-config=/etc/cloud/cloud.yaml", "--kubeconfig=/etc/kubernetes/ccm.conf"];
    scene.run_pod("ccm-a", &args).await;

    let explained = scene.kubectl_ccm(&["explain", "svc/web", "-o", "json"]);
    assert_eq!(explained.code, Some(2), "{}", explained.stderr);
    let document = document(&explained);
    assert_eq!(document["object"]["name"], "web");
    // This comes from the Secret.
    let facts = document["facts"].to_string();
    assert!(facts.contains("does not run: "), "{facts}");

    scene.run_pod("ccm-b", &["--cloud-provider=fake", "--cluster-name=other"]).await;
    let several = scene.kubectl_ccm(&["plan"]);
    several.reports(&["several cloud-controller-managers with different arguments run here (ccm-a, ccm-b)"]);
    assert_ne!(scene.kubectl_ccm(&["plan", "--cloud-provider=fake"]).code, Some(255));
}

#[tokio::test]
async fn check_lists_what_is_fine_and_what_is_not() {
    let Some(scene) = Scene::new("unlisted: error\ninstances: [{name: fresh}]", &[]).await else { return };
    create_node(&scene.bed, "fresh", json!({"taints": [taint()]})).await;
    create_service(&scene.bed, "web", json!({})).await;
    let checked = scene.ccm(&["check", "-o", "json"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stderr);
    let document = document(&checked);
    assert_eq!((&document["kind"], &document["version"]), (&json!("Check"), &json!(1)));
    let checks = document["checks"].as_array().unwrap();
    let of = |code: &str| checks.iter().find(|check| check["check"] == code).unwrap_or_else(|| panic!("{checks:#?}"));
    assert_eq!((&of("leader")["severity"], &of("nodes")["fix"]), (&json!("error"), &json!("ccm explain node/fresh")));
    assert_eq!(of("services")["fix"], "ccm explain service/default/web");
    assert_eq!(of("drift")["severity"], "warning");
    let suppressed = scene.ccm(&["check", "-o", "yaml", "--suppress=leader,nod*"]).stdout;
    for code in ["leader", "nodes"] {
        assert!(!suppressed.contains(&format!("\"check\": \"{code}\"\n")), "{suppressed}");
    }

    let names = scene.ccm(&["plan", "-o", "name"]);
    assert_eq!(names.stdout, "node/fresh\nservice/default/web\n");
    assert_eq!(scene.ccm(&["plan", "-o", "name", "-n", "default"]).stdout, "service/default/web\n");
    let elsewhere = scene.ccm(&["plan", "-n", "elsewhere"]);
    assert_eq!(elsewhere.code, Some(0), "{}", elsewhere.stdout);
    assert!(elsewhere.stdout.ends_with("Nothing would be written.\n"), "{}", elsewhere.stdout);
}
