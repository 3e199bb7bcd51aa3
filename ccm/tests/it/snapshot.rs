//! `ccm snapshot` and `ccm plan --from-snapshot` as processes: the same plan from the file, and no secret in it.

use std::path::Path;

use serde_json::{Value, json};

use crate::process::{refused, run};

/// A valid empty snapshot of a provider that this program does not have.
fn empty() -> Value {
    json!({"kind": "Snapshot", "version": 1, "ccm": "v1.0.0", "taken": "2026-01-02T03:04:05Z", "redacted": 0,
        "provider": {"name": "fake"}, "flags": {"cloud-provider": ["fake"]}, "plan": {}, "nodes": [], "services": [],
        "answers": {}})
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_fix() {
    let rows: [(&[&str], &str); 8] = [
        (&["node/x", "--cloud-provider=fake"], "\"node/x\": a snapshot is of everything; name the object in"),
        (&["-o", "xml", "--cloud-provider=fake"], "--output=xml: expected text or json or yaml"),
        (&["-o", "yaml", "--cloud-provider=fake"], "--output=yaml: the snapshot on stdout is JSON"),
        (&["--html=-", "-o", "json", "--cloud-provider=fake"], "--output=json: the page on stdout is HTML"),
        (&["--fil=x"], "unknown flag: --fil (did you mean --file?)"),
        (
            &["--file=-", "--html=-", "--cloud-provider=fake"],
            "--file and --html are both stdout; name a file for one of",
        ),
        (&[], "--cloud-provider=NAME is missing ("),
        (&["--cloud-provider=fake", "--master=http://127.0.0.1:1"], "nothing listens at 127.0.0.1:1"),
    ];
    refused("snapshot", &[], &rows);
}

#[test]
fn a_file_that_is_no_snapshot_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let good = empty().to_string();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = empty();
        change(&mut value);
        value.to_string()
    };
    let rows = [
        ("none", None, "No such file"),
        ("", None, "it is a directory"),
        ("empty", Some(String::new()), "it is empty"),
        ("truncated", Some(good[..good.len() - 9].to_owned()), "it is truncated"),
        ("blank", Some(" \n".into()), "it is empty"),
        ("words", Some("hello".into()), "it is not JSON"),
        ("number", Some("7".into()), "it is not a JSON object"),
        ("list", Some("[\"a\"]".into()), "expected \"Snapshot\""),
        ("none of it", Some("{\"a\": 1}".into()), "it has no kind \"Snapshot\""),
        ("version", Some(with(&|v| v["version"] = json!("x"))), "version \"x\": expected 1"),
        ("labels", Some(with(&|v| v["nodes"] = json!([{"name": "a", "labels": 7}]))), "nodes[0].labels: "),
        ("time", Some(with(&|v| v["taken"] = json!("yesterday"))), "taken: "),
        ("huge", None, "it is larger than 1024 MiB"),
        ("plan", Some(r#"{"kind": "Plan", "version": 1}"#.into()), "kind \"Plan\": expected \"Snapshot\""),
        (
            "newer",
            Some(with(&|v| v["version"] = json!(2))),
            "version 2 of the format is newer than this program, which reads 1; it was written by ccm v1.0.0: use that one",
        ),
        ("type", Some(with(&|v| v["nodes"] = json!([{"name": 7}]))), "nodes[0].name: invalid type: integer `7`"),
        ("half", Some(with(&|v| drop(v.as_object_mut().unwrap().remove("answers")))), "half: missing field `answers`"),
        ("flags", Some(with(&|v| v["flags"]["node-deletion-budget"] = json!(["many"]))), "--node-deletion-budget"),
    ];
    // A sparse file.
    std::fs::File::create(folder.path().join("huge")).unwrap().set_len((1 << 30) + 1).unwrap();
    for (name, text, expected) in rows {
        let path = match text {
            Some(text) => write(folder.path(), name, &text),
            None => folder.path().join(name).display().to_string(),
        };
        let ended = run(&["plan", "--from-snapshot", &path]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{name}: {}", ended.stderr);
        if name != "flags" {
            assert!(ended.stderr.starts_with(&format!("Error: --from-snapshot={path}: ")), "{name}: {}", ended.stderr);
        }
    }
    let ended = run(&["plan", "--from-snapshot="]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("--from-snapshot=: No such file"), "{}", ended.stderr);
}

#[test]
fn a_snapshot_of_nothing_plans_nothing_and_needs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "s.json", &empty().to_string());
    let ended = run(&["plan", "--from-snapshot", &path]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.ends_with("Nothing would be written.\n"), "{}", ended.stdout);
    let ended = run(&["plan", "--from-snapshot", &path, "node/a"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
    assert!(ended.stderr.ends_with("Error: node \"a\" is not in the cluster\n"), "{}", ended.stderr);
}

#[test]
fn texts_of_others_steer_no_terminal_and_many_differences_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut snapshot = empty();
    snapshot["ccm"] = "v1\u{1b}[2J".into();
    let service = |number: usize| {
        json!({"metadata": {"namespace": "d", "name": format!("s{number:02}\u{1b}[31m\nnode x")},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}})
    };
    snapshot["services"] = (0..13).map(service).collect();
    snapshot["answers"] = json!({"loadBalancers": {}});
    let path = write(folder.path(), "s.json", &snapshot.to_string());
    let ended = run(&["plan", "--from-snapshot", &path]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("service d/s00 [31m node x\n  not planned: "), "{}", ended.stdout);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains('\u{1b}'), "{}", ended.stderr);
    assert!(ended.stderr.contains("service d/s09 [31m node x and 4 more.\n"), "{}", ended.stderr);
    snapshot["answers"] = json!({"instances": {"lookups": {"a": {"metadata": {"\u{1b}": 1}}}}});
    let path = write(folder.path(), "s.json", &snapshot.to_string());
    let ended = run(&["plan", "--from-snapshot", &path]);
    assert!(ended.code == Some(1) && !ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
}

mod real_apiserver {
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use serde_json::{Value, json};

    use crate::process::{Ended, ended, run};
    use crate::scene::{Scene, send, taint, writes};

    /// A text that the program does not print otherwise.
    const CANARY: &str = "canary_5b21e7";

    /// A cloud with failing calls, and with secrets in all places where a user could write one.
    fn cloud() -> String {
        format!(
            "# {CANARY}\ninterfaces: {{routes: true, clusters: true, pvLabels: true}}\n\
             clusters: [{{name: {CANARY}, master: {CANARY}}}]\nunlisted: missing\ninstances:\n\
             - {{name: fresh, zone: a, region: r, labels: {{example.com/rack: r1}}}}\n\
             - {{name: ranged, addresses: [{{type: InternalIP, address: 10.0.0.2}}]}}\n\
             - {{name: stopped, shutdown: true}}\n- {{name: throttled}}\n\
             volumes: [{{id: vol-1, labels: {{topology.kubernetes.io/zone: a, topology.kubernetes.io/region: r}}}}]\n\
             faults:\n- {{call: GetLoadBalancer, service: default/refused, error: 'POST https://me:{CANARY}@cloud.example.com/lb?sig={CANARY}: \
             403, Authorization: Bearer {CANARY}, password={CANARY}'}}\n\
             - {{call: 'Instance*', node: throttled, kind: Retry, after: 0, retryAfter: 30s, error: slow down}}\n\
             - {{call: GetLabelsForVolume, volume: vol-gone, kind: DiskNotFound}}\n"
        )
    }

    async fn scene() -> Option<Scene> {
        let more = format!("--cert-dir=/{CANARY}");
        let flags = ["--cluster-cidr=10.1.0.0/16", "--cluster-name=c1", "--controllers=*,node-ipam-controller"];
        Scene::new(&cloud(), &[&flags[..], &["--allocate-node-cidrs", &more]].concat()).await
    }

    impl Scene {
        fn secretive(&self, kubeconfig: &Path, words: &[&str]) -> Ended {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ccm"));
            command.args(words).args(self.args(kubeconfig)).stdin(Stdio::null());
            command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
            for name in
                ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "HTTPS_PROXY_PASSWORD", "HOME"]
            {
                command.env(name, CANARY);
            }
            ended(command.output().unwrap())
        }

        async fn labeled_node(&self, name: &str, spec: &Value, ready: bool) {
            let metadata = json!({"name": name, "labels": {"team": CANARY, "kubernetes.io/arch": "amd64", "pool": "web"},
                "annotations": {"example.com/token": CANARY, "kubeadm.alpha.kubernetes.io/x": CANARY}});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec});
            send(&self.bed, "POST", "/api/v1/nodes", &node).await;
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "x", "message": CANARY, "lastHeartbeatTime": "2026-01-02T03:04:05Z",
                    "lastTransitionTime": "2026-01-02T03:04:05Z"})
            };
            let mut network = condition("NetworkUnavailable", "True");
            network["reason"] = CANARY.into();
            let status = json!({"conditions": [condition("Ready", if ready { "True" } else { "False" }), network],
                "images": [{"names": [CANARY], "sizeBytes": 1}]});
            send(&self.bed, "PATCH", &format!("/api/v1/nodes/{name}/status"), &json!({ "status": status })).await;
        }

        async fn service_of(&self, name: &str, kind: &str, metadata: &Value) {
            let mut all = json!({"name": name, "labels": {"app": CANARY}, "annotations": {"example.com/password": CANARY,
                "kubectl.kubernetes.io/last-applied-configuration": CANARY, "password": CANARY, "app.k8s.io/hook": CANARY,
                "external-dns.alpha.kubernetes.io/target": CANARY, "service.beta.kubernetes.io/x-token": CANARY}});
            for (field, value) in metadata.as_object().unwrap() {
                match value {
                    Value::Object(pairs) => all[field].as_object_mut().unwrap().extend(pairs.clone()),
                    other => all[field] = other.clone(),
                }
            }
            let spec = json!({"type": kind, "ports": [{"port": 80}], "selector": {"app": CANARY}});
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": all, "spec": spec});
            send(&self.bed, "POST", "/api/v1/namespaces/default/services", &service).await;
            let condition = json!({"type": "example.com/x", "status": "True", "reason": CANARY, "message": CANARY,
                "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let path = format!("/api/v1/namespaces/default/services/{name}/status");
            send(&self.bed, "PATCH", &path, &json!({"status": {"conditions": [condition]}})).await;
        }

        /// Creates one object of each kind that can, or cannot, be planned.
        async fn furnish(&self) {
            let taint = taint();
            let foreign = json!({"key": "example.com/x", "value": CANARY, "effect": "NoSchedule"});
            self.labeled_node("fresh", &json!({ "taints": [taint, foreign] }), true).await;
            let ranged = json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "fake://ranged"});
            self.labeled_node("ranged", &ranged, true).await;
            self.labeled_node("stopped", &json!({"providerID": "fake://stopped"}), false).await;
            self.labeled_node("gone", &json!({"providerID": "fake://gone"}), false).await;
            self.labeled_node("throttled", &json!({"providerID": "fake://throttled", "taints": [taint]}), true).await;
            self.labeled_node("stranger", &json!({"providerID": "aws:///us-east-1a/i-0123456789abcdef0"}), true).await;
            let none = json!({});
            let annotated = |key: &str, value: &str| {
                let key = format!("service.beta.kubernetes.io/{key}");
                json!({"annotations": {key: value}})
            };
            self.service_of("web", "LoadBalancer", &annotated("target-node-labels", "pool=web")).await;
            self.service_of("refused", "LoadBalancer", &none).await;
            let ranges = annotated("load-balancer-source-ranges", "10.0.0.0/8");
            self.service_of("narrow", "LoadBalancer", &ranges).await;
            self.service_of("internal", "ClusterIP", &none).await;
            let finalizers = json!({"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]});
            self.service_of("former", "ClusterIP", &finalizers).await;
            for (name, id) in [("pv-1", "vol-1"), ("pv-gone", "vol-gone"), ("pv-other", "vol-2")] {
                let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "mountOptions": [CANARY],
                    "awsElasticBlockStore": {"volumeID": id}});
                let metadata = json!({"name": name, "labels": {"team": CANARY}, "annotations": {"note": CANARY}});
                let volume =
                    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec});
                send(&self.bed, "POST", "/api/v1/persistentvolumes", &volume).await;
            }
            let secret =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": CANARY}});
            send(&self.bed, "POST", "/api/v1/namespaces/default/secrets", &secret).await;
        }

        /// The administrator's kubeconfig, with the password of another user.
        fn kubeconfig(&self) -> PathBuf {
            let text = std::fs::read_to_string(self.bed.kubeconfig()).unwrap();
            let mut config: Value = serde_json::from_str(&text).unwrap();
            let other =
                json!({"name": "other", "user": {"username": CANARY, "password": CANARY, "client-key-data": CANARY}});
            config["users"].as_array_mut().unwrap().push(other);
            let path = self.path("kubeconfig");
            std::fs::write(&path, config.to_string()).unwrap();
            path
        }
    }

    #[tokio::test]
    async fn the_plan_of_a_snapshot_is_the_plan_of_then_byte_for_byte_and_nothing_secret_is_in_the_file() {
        let Some(scene) = scene().await else { return };
        scene.furnish().await;
        let kubeconfig = scene.kubeconfig();
        let file = scene.text("s.json");
        let mut audit = scene.bed.audit();
        audit.read().unwrap();

        let taken = scene.secretive(&kubeconfig, &["snapshot", "-f", &file]);
        assert_eq!((taken.code, &*taken.stderr), (Some(0), ""), "{}", taken.stdout);
        let summary = "6 nodes, 6 Services, 3 volumes, 3 errors of the provider; 6";
        let redacted = " values were redacted: the plan that is made of it may differ there.";
        taken.prints(&[summary, redacted]);
        let page = scene.text("s.html");
        let shown = scene.secretive(&kubeconfig, &["snapshot", "--html", &page]);
        assert_eq!((shown.code, &*shown.stderr), (Some(0), ""), "{}", shown.stdout);
        shown.prints(&["6 nodes, 6 Services", "s.html: "]);
        let printed = scene.secretive(&kubeconfig, &["snapshot"]);
        assert_eq!(printed.code, Some(0));
        let plan = ["plan", "node/fresh", "routes", "service/default/web", "service/default/former"];
        let then: Vec<[Ended; 2]> = plan
            .iter()
            .map(|scope| {
                let words: &[&str] = if *scope == "plan" { &["plan"] } else { &["plan", scope] };
                [words.to_vec(), [words, &["-o", "json"]].concat()].map(|words| scene.secretive(&kubeconfig, &words))
            })
            .collect();
        let entries = audit.read().unwrap();
        assert!(!entries.is_empty());
        assert_eq!(writes(&entries), [""; 0]);
        scene.assert_no_writes_to_the_cloud();

        // From here on only the file exists.
        let text = std::fs::read_to_string(&file).unwrap();
        let page = std::fs::read_to_string(&page).unwrap();
        for shown in ["service default/refused", "not planned", "`ccm explain node/throttled` shows the cause"] {
            assert!(page.contains(shown), "{shown:?} is not in {page}");
        }
        let token = scene.bed.token.clone();
        scene.bed.stop_apiserver().await.unwrap();
        for secret in [CANARY, &token, "-----BEGIN"] {
            for (place, text) in [
                ("the file", &text),
                ("the page", &page),
                ("stdout", &taken.stdout),
                ("stderr", &printed.stderr),
                ("the printed file", &printed.stdout),
            ] {
                let line = text.lines().find(|line| line.contains(secret));
                assert!(line.is_none(), "a secret is in {place}: {}", line.unwrap_or_default());
            }
        }
        for (scope, [text, json]) in plan.iter().zip(&then) {
            let words: &[&str] = if *scope == "plan" { &["plan"] } else { &["plan", scope] };
            for (then, format) in [(text, "text"), (json, "json")] {
                let now = run(&[words, &["--from-snapshot", &file, "-o", format]].concat());
                // The error of one Service contained a secret, which was redacted.
                let clean = without_secrets(&then.stdout);
                assert_eq!(now.stdout, clean, "{scope} {format}");
                assert_eq!(now.code, then.code, "{scope} {format}: {}", now.stderr);
                assert!(now.stderr.contains("the plan equals the recorded one."), "{scope} {format}: {}", now.stderr);
            }
        }
        let document: Value = serde_json::from_str(&then[0][1].stdout).unwrap();
        let subjects: Vec<&str> = ["plans", "unplanned"]
            .iter()
            .flat_map(|list| document[*list].as_array().unwrap())
            .filter_map(|item| item["subject"].as_str())
            .collect();
        for subject in [
            "node fresh",
            "node gone",
            "node stopped shutdown taint",
            "node throttled",
            "routes",
            "service default/web",
            "service default/refused",
            "service default/former",
            "node ranged addresses",
            "persistentvolume pv-1",
            "persistentvolume pv-gone",
        ] {
            assert!(subjects.contains(&subject), "{subject} is not in {subjects:?}");
        }
        tampered(&file, &text);
    }

    /// Redacts this text as the program does.
    fn without_secrets(text: &str) -> String {
        text.replace(&format!("https://me:{CANARY}@"), "https://[redacted]@").replace(
            &format!("?sig={CANARY}: 403, Authorization: Bearer {CANARY}, password={CANARY}"),
            "?[redacted] 403, Authorization: [redacted] password=[redacted]",
        )
    }

    /// Modified snapshots.
    fn tampered(file: &str, text: &str) {
        let whole: Value = serde_json::from_str(text).unwrap();
        let replay = |change: &dyn Fn(&mut Value), words: &[&str]| {
            let mut value = whole.clone();
            change(&mut value);
            std::fs::write(file, value.to_string()).unwrap();
            run(&[&["plan", "--from-snapshot", file], words].concat())
        };
        let gone =
            replay(&|v| v["answers"]["loadBalancers"]["observed"]["default/web"] = json!({}), &["service/default/web"]);
        assert_eq!(gone.code, Some(1));
        let question = "the snapshot has no answer to this question: what there is for service default/web, to ensure its load balancer";
        assert!(gone.stdout.contains(question), "{}", gone.stdout);
        gone.reports(&["the plan differs from the recorded one for service default/web."]);

        let gone = replay(&|v| v["answers"]["instances"]["lookups"]["fresh"] = json!({}), &["node/fresh"]);
        assert!(gone.stdout.contains("addresses+metadata of the instance of node fresh"), "{}", gone.stdout);

        let moon = replay(&|v| v["flags"]["cloud-provider"] = json!(["moon"]), &[]);
        assert_eq!(moon.code, Some(1));
        let why = "the provider \"moon\" of the snapshot is not compiled into this program (compiled in: ";
        moon.prints(&["service default/web\n  not planned: ", why]);
        assert!(moon.stdout.contains("+ create Route 10.1.2.0/24 to ranged"), "the rest goes on: {}", moon.stdout);
    }

    #[tokio::test]
    async fn places_and_rights_that_are_missing_are_errors_that_name_them() {
        let Some(scene) = scene().await else { return };
        let admin = scene.bed.kubeconfig();
        let folder = scene.text("");
        for (path, text) in [
            (folder.clone(), "it is a directory; name a file in it".to_owned()),
            (format!("{folder}/no/s.json"), "No such file or directory".into()),
            ("/dev/null".into(), "it is not a regular file".into()),
            ("/proc/s.json".into(), "cannot write the snapshot /proc/s.json: ".into()),
        ] {
            let ended = scene.secretive(&admin, &["snapshot", "-f", &path]);
            assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
            ended.reports(&[&format!("cannot write the snapshot {path}: "), &text]);
        }
        let nobody = scene.bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let file = scene.path("s.json");
        let ended = scene.secretive(&nobody, &["snapshot", "-f", &file.display().to_string()]);
        ended.assert_may_not_list_nodes();
        assert!(!file.exists());

        let json = scene.secretive(&admin, &["snapshot", "-o", "json", "-f", &file.display().to_string()]);
        let document: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(
            (&document["kind"], &document["nodes"], &document["redacted"]),
            (&json!("SnapshotTaken"), &json!(0), &json!(0))
        );
        assert_eq!(document["file"], file.display().to_string());
    }
}
