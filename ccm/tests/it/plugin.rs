//! The program called by kubectl, and `ccm check`, on a real API server.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::completion::on_terminal;
use crate::process::{Ended, Process, ended, refused};
use crate::scene::{RBAC, Scene, bind, create, create_node, create_role, create_service, send, taint};

impl Scene {
    /// `kubectl ccm …`, without any flag of the program.
    fn kubectl_ccm(&self, words: &[&str]) -> Ended {
        ended(self.plugin(words).output().unwrap())
    }

    fn plugin(&self, words: &[&str]) -> Command {
        let program = self.path("kubectl-ccm");
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ccm"), &program).unwrap();
        }
        let mut command = Command::new(program);
        command.args(words).env("KUBECONFIG", self.bed.kubeconfig()).env_remove("HOME").stdin(Stdio::null());
        command
    }

    /// The PATH with [`KUBECTL`]; a command in the pod has this kubeconfig.
    fn path_with_kubectl(&self, kubeconfig: &Path) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let script = KUBECTL.replace("CCM", env!("CARGO_BIN_EXE_ccm")).replace("CLOUD", &self.text("cloud.yaml"));
        let script = script.replace("CREDENTIALS", &kubeconfig.display().to_string());
        std::fs::write(self.path("kubectl"), script).unwrap();
        std::fs::set_permissions(self.path("kubectl"), std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:{}", self.text(""), std::env::var("PATH").unwrap())
    }

    async fn run_pod(&self, name: &str, args: &[&str]) {
        let volume = json!({"secret": {"secretName": "cloud"}});
        self.run_pod_with("kube-system", name, volume, json!({ "args": args })).await;
    }

    /// A pod with the volume at `/etc/cloud`, and more fields of its container.
    async fn run_pod_with(&self, namespace: &str, name: &str, mut volume: Value, container: Value) {
        volume["name"] = json!("cloud");
        let mut all = json!({"name": "ccm", "image": "example.com/ccm:v0.1.0",
            "volumeMounts": [{"name": "cloud", "mountPath": "/etc/cloud"}]});
        all.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "serviceAccountName": "ccm-cloud-controller-manager", "automountServiceAccountToken": false,
            "volumes": [volume], "containers": [all],
        }});
        create(&self.bed, &format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    }

    async fn delete_pod(&self, name: &str) {
        let path = format!("/api/v1/namespaces/kube-system/pods/{name}?gracePeriodSeconds=0");
        self.bed.request("DELETE", &path, &self.bed.token, None).await.unwrap();
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

    scene.run_pod("ccm-0", &["--cloud-provider=fake", "--cluster-name=$(NAME)"]).await;
    let unknown = scene.kubectl_ccm(&["plan"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stdout);
    unknown.reports(&["pod ccm-0 has --cluster-name=$(NAME), with a variable whose value is not in the pod's"]);
    assert_ne!(scene.kubectl_ccm(&["plan", "--cluster-name=one"]).code, Some(1));
    scene.delete_pod("ccm-0").await;

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
async fn variables_of_the_pod_come_from_where_the_kubelet_and_its_shell_take_them() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    let volume = json!({"emptyDir": {}});
    let names = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "names"}, "data": {"a": "prod"}});
    create(&scene.bed, "/api/v1/namespaces/kube-system/configmaps", names).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "names"}, "stringData": {"b": "10.1.0.0/16"}});
    create(&scene.bed, "/api/v1/namespaces/kube-system/secrets", secret).await;
    let env = json!([
        {"name": "CN", "valueFrom": {"configMapKeyRef": {"name": "names", "key": "a"}}},
        {"name": "CIDR", "valueFrom": {"secretKeyRef": {"name": "names", "key": "b"}}},
        {"name": "NONE", "value": ""}, {"name": "NAME", "value": "$(CN)-1$(NONE)"},
        {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "names", "key": "absent", "optional": true}}},
    ]);
    let script = "exec /bin/ccm --cloud-provider=fake --cluster-name=${NAME} --cluster-cidr=$CIDR";
    let shell = |script: &str| json!({"command": ["/bin/sh", "-c", script], "env": env});
    scene.run_pod_with("kube-system", "ccm-a", volume.clone(), shell(script)).await;
    let taken = scene.kubectl_ccm(&["snapshot", "--file=-"]);
    let flags = document(&taken)["flags"].to_string();
    assert!(flags.contains("prod-1") && flags.contains("10.1.0.0/16"), "{flags}");
    let checked = scene.kubectl_ccm(&["migrate-check", "-o", "json"]);
    let checks = document(&checked)["checks"].to_string();
    assert!(!checks.contains("cluster-name=") && !checks.contains("cluster-cidr="), "no flag differs: {checks}");
    scene.delete_pod("ccm-a").await;

    let rows = [
        ("--cluster-name=$OTHER", "pod ccm-b has --cluster-name=$OTHER, with a variable", ": add --cluster-name=VALUE"),
        ("--cluster-name=$GONE", "(GONE: ConfigMap kube-system/names, key absent: it has no such key)", "VALUE"),
        ("\"$@\"", "pod ccm-b has the argument $@, with a variable", ": add the flags of the program"),
    ];
    for (words, error, fix) in rows {
        let script = format!("exec /bin/ccm --cloud-provider=fake {words}");
        scene.run_pod_with("kube-system", "ccm-b", volume.clone(), shell(&script)).await;
        let refused = scene.kubectl_ccm(&["plan"]);
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{words}");
        refused.reports(&[error, fix]);
        scene.delete_pod("ccm-b").await;
    }
}

#[tokio::test]
async fn the_configuration_of_the_pod_may_be_one_of_several_in_a_volume_and_binary() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    create_service(&scene.bed, "web", json!({})).await;
    // interfaces: {loadBalancer: false}
    let binary = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud"},
        "binaryData": {"cloud.yaml": "aW50ZXJmYWNlczoge2xvYWRCYWxhbmNlcjogZmFsc2V9Cg=="}});
    create(&scene.bed, "/api/v1/namespaces/kube-system/configmaps", binary).await;
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}, "stringData": {"ca": "x"}});
    create(&scene.bed, "/api/v1/namespaces/kube-system/secrets", other).await;
    let sources = json!([{"configMap": {"name": "cloud"}}, {"secret": {"name": "other"}}]);
    let args = json!({"args": ["--cloud-provider=fake", "--cloud-config=/etc/cloud/cloud.yaml"]});
    scene.run_pod_with("kube-system", "ccm-a", json!({"projected": {"sources": sources}}), args).await;
    let explained = scene.kubectl_ccm(&["explain", "svc/web", "-o", "json"]);
    let facts = document(&explained)["facts"].to_string();
    assert!(facts.contains("does not run: "), "{facts}");
}

/// The namespace is anybody's: only the user can say that it is trusted.
#[tokio::test]
async fn the_program_is_looked_for_in_the_namespace_that_the_user_names() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ccm-system"}});
    create(&scene.bed, "/api/v1/namespaces", own).await;
    scene.bed.service_account_token("ccm-system", "default").await.unwrap();
    let args = json!({"args": ["--cloud-provider=fake"]});
    scene.run_pod_with("ccm-system", "ccm-a", json!({"emptyDir": {}}), args).await;
    let elsewhere = scene.kubectl_ccm(&["check"]);
    assert_eq!((elsewhere.code, &*elsewhere.stdout), (Some(1), ""));
    let found = scene.kubectl_ccm(&["check", "-n", "ccm-system", "-o", "json"]);
    assert_eq!((found.code, &document(&found)["kind"]), (Some(2), &json!("Check")), "{}", found.stderr);
    let none = scene.kubectl_ccm(&["check", "-n", "default"]);
    none.reports(&["no pod of a cloud-controller-manager runs in the namespace default of this cluster"]);
}

/// No kubelet runs the pod, so that the API server refuses the request.
#[tokio::test]
async fn in_cluster_asks_for_an_exec_in_the_pod_and_a_refusal_names_the_fix() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    let Some(kubectl) = ccm_test_bed::kubectl().unwrap() else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    scene.run_pod("ccm-a", &["--cloud-provider=fake", "--cluster-name=one"]).await;
    let words = ["explain", "svc/web", "--in-cluster", "--cluster-name=two"];
    // The namespace of the context.
    let text = std::fs::read_to_string(scene.bed.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!("shop");
    std::fs::write(scene.path("shop.json"), kubeconfig.to_string()).unwrap();
    let mut log = scene.bed.audit();

    let without = ended(scene.plugin(&words).env("PATH", scene.path("")).output().unwrap());
    without.reports(&["--in-cluster: pod kube-system/ccm-a: kubectl exec: ", "is kubectl on the PATH?"]);
    // kubectl keeps a cache in the home.
    let with_kubectl = |command: &mut Command| {
        ended(command.env("PATH", kubectl.parent().unwrap()).env("HOME", scene.path("")).output().unwrap())
    };
    let refused = with_kubectl(scene.plugin(&words).env("KUBECONFIG", scene.path("shop.json")));
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    refused.reports(&["does not have a host assigned", "for the reason above; see that pod ccm-a runs"]);
    assert!(!refused.stderr.contains("pods/exec"), "{}", refused.stderr);
    let asked = log.read().unwrap();
    let asked: Vec<&str> = asked.iter().map(|entry| &*entry.request_uri).filter(|uri| uri.contains("/exec?")).collect();
    let command = [
        "%2Fccm",
        "explain",
        "service%2Fshop%2Fweb",
        "--cloud-provider%3Dfake",
        "--cluster-name%3Done",
        "--cluster-name%3Dtwo",
    ];
    let command: String = command.iter().map(|word| format!("command={word}&")).collect();
    let expected =
        format!("/api/v1/namespaces/kube-system/pods/ccm-a/exec?{command}container=ccm&stderr=true&stdout=true");
    assert!(!asked.is_empty() && asked.iter().all(|uri| *uri == expected), "{asked:?}");

    create_role(
        &scene.bed,
        "reads-pods",
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]),
    )
    .await;
    bind(&scene.bed, "reads-pods", "User", "reader").await;
    let reader = scene.bed.kubeconfig_for_user("reader", &[]).unwrap();
    let denied = with_kubectl(scene.plugin(&words).env("KUBECONFIG", reader));
    denied.reports(&[
        "is forbidden",
        "it needs `create` on pods/exec (kubectl auth can-i create pods/exec -n kube-system)",
    ]);
}

/// In place of kubectl: runs the program with the arguments behind `--`, as in the pod, and ends as kubectl does.
const KUBECTL: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift 2
KUBECONFIG=CREDENTIALS CCM "$@" --cloud-config=CLOUD
code=$?
[ $code = 0 ] || echo "command terminated with exit code $code" >&2
exit $code
"#;

#[tokio::test]
async fn in_cluster_ends_as_the_command_in_the_pod_and_prints_what_it_prints() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    scene.run_pod("ccm-a", &["--cloud-provider=fake"]).await;
    create_service(&scene.bed, "web", json!({})).await;
    let path = scene.path_with_kubectl(&scene.bed.kubeconfig());
    let run = |words: &[&str]| {
        let words = [words, &["--in-cluster"]].concat();
        ended(scene.plugin(&words).env("PATH", &path).output().unwrap())
    };

    let explained = run(&["explain", "svc/web", "-o", "json"]);
    assert_eq!((explained.code, &document(&explained)["object"]["name"]), (Some(2), &json!("web")));
    assert_eq!(run(&["plan", "-n", "kube-system"]).code, Some(0));
    let taken = run(&["snapshot", "--file=-"]);
    assert_eq!((taken.code, &document(&taken)["kind"]), (Some(0), &json!("Snapshot")), "{}", taken.stderr);
    let absent = run(&["explain", "svc/absent"]);
    assert_eq!((absent.code, &*absent.stdout), (Some(1), ""));
    absent.reports(&["service \"default/absent\" is not in the cluster\n", "pod kube-system/ccm-a: "]);
    let unknown = run(&["plan", "--cloud-provider=nowhere"]);
    assert_eq!((unknown.code, &*unknown.stdout), (Some(255), ""));
    unknown.reports(&["unknown cloud provider \"nowhere\""]);
    for failed in [absent, unknown] {
        assert!(!failed.stderr.contains("pods/exec"), "{}", failed.stderr);
    }

    let words = format!("{} explain svc/web --in-cluster", scene.text("kubectl-ccm"));
    let kubeconfig = scene.bed.kubeconfig();
    let shown = on_terminal(&words, "", &[("PATH", Path::new(&path)), ("KUBECONFIG", &kubeconfig)]);
    shown.prints(&["√", "\u{1b}[32m"]);
}

/// The roles of the manifests do not allow the program to list pods.
#[tokio::test]
async fn the_account_of_the_pod_is_reviewed_in_it_and_none_is_guessed() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    scene.run_pod("ccm-a", &["--cloud-provider=fake"]).await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["list"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    create_role(&scene.bed, "program", rules).await;
    bind(&scene.bed, "program", "User", "program").await;
    let account = "system:serviceaccount:kube-system:ccm-cloud-controller-manager";
    bind(&scene.bed, "cluster-admin", "User", account).await;
    let program = scene.bed.kubeconfig_for_user("program", &[]).unwrap();
    let path = scene.path_with_kubectl(&program);
    let reviewed = |ended: &Ended| {
        let checks = document(ended)["checks"].as_array().unwrap().clone();
        let of_rbac = checks.iter().filter(|check| check["check"] == "rbac");
        of_rbac.map(|check| format!("{}: {}", check["severity"], check["message"])).collect::<Vec<_>>()
    };
    let expected = format!("\"info\": \"every permission is granted to {account}\"");
    for command in ["check", "migrate-check"] {
        let run = |more: &[&str]| {
            let words = [&[command, "--in-cluster", "-o", "json"], more].concat();
            reviewed(&ended(scene.plugin(&words).env("PATH", &path).output().unwrap()))
        };
        assert_eq!(run(&[]), [&*expected], "{command}");
        let named = run(&["--account=nobody"]);
        assert!(named.len() > 1 && named.iter().all(|line| line.contains("nobody may not")), "{command}: {named:?}");
        // Without kubectl, the account is unknown.
        let guessed = reviewed(&scene.ccm_as(&program, &[command, "-o", "json"]));
        assert_eq!(guessed.len(), 1, "{command}: {guessed:?}");
        assert!(guessed[0].starts_with("\"warning\"") && guessed[0].contains("pods cannot be listed"), "{guessed:?}");
    }
}

/// The pages give a user these roles.
#[tokio::test]
async fn check_is_complete_with_the_roles_of_the_pages() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    let Some(kubectl) = ccm_test_bed::kubectl().unwrap() else { return };
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/plan.md")).unwrap();
    let (_, commands) = page.split_once("```\n").unwrap();
    let (commands, _) = commands.split_once("```\n").unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-euc", commands]).env("PATH", kubectl.parent().unwrap()).env("HOME", scene.path(""));
    let made = ended(shell.env("KUBECONFIG", scene.bed.kubeconfig()).output().unwrap());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let roles: Vec<&str> = made.stdout.lines().filter_map(|line| line.split(['/', ' ']).nth(1)).collect();
    for role in roles {
        bind(&scene.bed, role, "User", "reader").await;
    }
    bind(&scene.bed, "cluster-admin", "User", ccm_test_bed::CCM_USER).await;
    let reader = scene.bed.kubeconfig_for_user("reader", &[]).unwrap();
    let checked = scene.ccm_as(&reader, &["check", "-o", "json", "--suppress=leader"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
}

#[test]
fn a_file_of_this_machine_is_not_asked_of_the_pod() {
    let rows: [(&str, &[&str], &str); 6] = [
        ("snapshot", &["--file=/tmp/x.json"], "--file=/tmp/x.json: leave out --file and redirect stdout"),
        ("snapshot", &["--html", "x.html"], "--html=x.html: give --html=- and redirect stdout"),
        ("check", &["--rbac=roles.yaml"], "--rbac=roles.yaml: leave out --in-cluster"),
        ("migrate-check", &["--rbac=-"], "--rbac=-: leave out --in-cluster"),
        ("plan", &["--from-snapshot=x.json"], "--from-snapshot=x.json: leave out --in-cluster"),
        ("explain", &["svc/web", "--leader-ca=ca.pem"], "--leader-ca=ca.pem: leave out --in-cluster"),
    ];
    for (command, words, text) in rows {
        let text = format!("--in-cluster runs the command in a pod, which has no file of this machine; {text}");
        refused(command, &["--in-cluster", "--master=http://127.0.0.1:1"], &[(words, &text)]);
    }
    // In the pod, the load balancers of the cluster would be orphans.
    let gone: &[&str] = &["--cluster-is-gone", "--delete", "--yes"];
    let text =
        "--in-cluster and --cluster-is-gone contradict each other: the cluster of the pod is there; leave one out";
    refused("orphans", &["--in-cluster"], &[(gone, text)]);
    let text =
        "--in-cluster and --watch contradict each other: Ctrl-C would end kubectl exec, and not the command in the";
    refused("explain", &["--in-cluster"], &[(&["svc/web", "--watch"], text)]);
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
    // A trial holds no lease: is a leader there?
    let trial = self::document(&scene.ccm(&["check", "-o", "json", "--dry-run"]));
    assert_eq!(trial["checks"].as_array().unwrap().iter().find(|check| check["check"] == "leader"), Some(of("leader")));
    let explained = scene.ccm(&["explain", "svc/web", "-o", "json", "--dry-run"]);
    assert!(!explained.stdout.contains("--leader-elect=false"), "{}", explained.stdout);
    explained.prints(&["lease kube-system/cloud-controller-manager"]);
    let suppressed = scene.ccm(&["check", "-o", "yaml", "--suppress=leader,nod*"]).stdout;
    for code in ["leader", "nodes"] {
        assert!(!suppressed.contains(&format!("\"check\": \"{code}\"\n")), "{suppressed}");
    }

    let names = scene.ccm(&["plan", "-o", "name"]);
    assert_eq!(names.stdout, "node/fresh\nservice/default/web\n");
    assert_eq!(scene.ccm(&["plan", "-o", "name", "-n", "default"]).stdout, "service/default/web\n");
    // The namespace is that of Services.
    assert_eq!(scene.ccm(&["plan", "node/fresh", "-o", "name", "-n", "default"]).stdout, "node/fresh\n");
    let other = scene.ccm(&["plan", "-n", "kube-system"]);
    assert_eq!(other.code, Some(0), "{}", other.stdout);
    assert!(other.stdout.ends_with("Nothing would be written.\n"), "{}", other.stdout);
    for words in [&["plan", "-n", "elsewhere"][..], &["lint", "--cluster", "-n", "elsewhere"]] {
        let elsewhere = scene.ccm(words);
        let said = [&*elsewhere.stdout, &*elsewhere.stderr].concat();
        assert_eq!(elsewhere.code, Some(1), "{said}");
        assert!(said.contains("--namespace=elsewhere: the cluster has no such namespace"), "{said}");
    }
}

#[tokio::test]
async fn check_lists_the_warnings_that_a_plan_prints() {
    let Some(scene) = Scene::new("unlisted: error\nloadBalancers: {statuses: [{missing: true}]}", &[]).await else {
        return;
    };
    create_service(&scene.bed, "web", json!({})).await;
    let warning = "loadBalancers.statuses: the file answers without a status";
    scene.ccm(&["plan", "svc/web"]).prints(&[&format!("warning: {warning}")]);
    let checks = document(&scene.ccm(&["check", "-o", "json"]))["checks"].clone();
    let of_plan = |check: &&Value| check["check"] == "plan" && check["severity"] == "warning";
    let found: Vec<&Value> = checks.as_array().unwrap().iter().filter(of_plan).collect();
    assert!(matches!(&*found, [one] if one["subject"] == "service default/web"), "{checks:#}");
    assert!(found[0]["message"].as_str().unwrap().starts_with(warning), "{checks:#}");
}

#[tokio::test]
async fn one_namespace_is_looked_at_with_the_rights_of_one() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    create_service(&scene.bed, "web", json!({})).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mine"},
        "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mine"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "owner"}]});
    create(&scene.bed, &format!("{RBAC}/namespaces/default/roles"), role).await;
    create(&scene.bed, &format!("{RBAC}/namespaces/default/rolebindings"), binding).await;
    let owner = scene.bed.kubeconfig_for_user("owner", &[]).unwrap();
    let kubeconfig = format!("--kubeconfig={}", owner.display());
    let looked = crate::process::run(&["lint", "--cluster", "-n", "default", &kubeconfig]);
    assert_eq!(looked.code, Some(0), "{}{}", looked.stdout, looked.stderr);
}

/// As with a login that the cloud refuses.
#[tokio::test]
async fn a_provider_that_does_not_start_is_a_finding_of_check() {
    let Some(scene) = Scene::new("instances: 7", &[]).await else { return };
    create_node(&scene.bed, "fresh", json!({"taints": [taint()]})).await;
    let checked = scene.ccm(&["check", "-o", "json"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stderr);
    let checks = document(&checked)["checks"].clone();
    let codes: Vec<&str> = checks.as_array().unwrap().iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(codes, ["leader", "provider", "nodes", "services"], "{checks:#}");
}

#[tokio::test]
async fn each_look_of_a_watch_reads_the_configuration_of_the_pod() {
    let Some(scene) = Scene::new("unlisted: error", &[]).await else { return };
    scene.bed.service_account_token("kube-system", "default").await.unwrap();
    create_service(&scene.bed, "web", json!({})).await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let config = |text: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud"}, "stringData": {"cloud.yaml": text}});
    create(&scene.bed, secrets, config("interfaces: {loadBalancer: false}\n")).await;
    scene.run_pod("ccm-a", &["--cloud-provider=fake", "--cloud-config=/etc/cloud/cloud.yaml"]).await;
    let mut command = Command::new("sh");
    let plugin = scene.plugin(&["explain", "svc/web", "--watch", "-o=yaml"]);
    command.args(["-c", r#"exec "$0" "$@" >&2"#]).arg(plugin.get_program()).args(plugin.get_args());
    command.env("KUBECONFIG", scene.bed.kubeconfig());
    let watch = Process::spawn(command);
    watch.wait_for("does not run: ");
    send(&scene.bed, "PATCH", &format!("{secrets}/cloud"), &config("unlisted: error\n")).await;
    watch.wait_for("create LoadBalancer");
}

#[tokio::test]
async fn a_watch_separates_the_documents_that_it_prints() {
    let Some(scene) = Scene::new("unlisted: error\ninstances: [{name: fresh}]", &[]).await else { return };
    create_node(&scene.bed, "fresh", json!({"taints": [taint()]})).await;
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r#"exec "$0" "$@" >&2"#,
        env!("CARGO_BIN_EXE_ccm"),
        "explain",
        "node/fresh",
        "--watch",
        "-o=yaml",
    ]);
    command.args(scene.args(&scene.bed.kubeconfig()));
    let watch = Process::spawn(command);
    watch.wait_for("conclusion:");
    let held = json!({"holderIdentity": "b_1", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "cloud-controller-manager"}, "spec": held});
    create(&scene.bed, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease).await;
    watch.wait_for("\n---\n");
}
