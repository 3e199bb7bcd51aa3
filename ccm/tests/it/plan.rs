//! `ccm plan` as a process: its output and exit code, and that it writes nothing.

use crate::process::run;

#[test]
fn its_help_names_what_follows_it_and_the_exit_codes() {
    let ended = run(&["plan", "--help"]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    for part in
        ["ccm plan [node/NAME | service/NAMESPACE/NAME | routes] [flags]", "Exit codes: 0 ", "-o, --output string"]
    {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    let all = run(&["--help"]).stdout;
    assert!(all.contains("\n  ccm plan [node/NAME") && all.contains("\n  ccm orphans [flags]\n"), "{all}");
}

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_way_out() {
    let rows: [(&[&str], &str); 7] = [
        (&["plan", "--no-such"], "Error: unknown flag: --no-such"),
        (&["plan", "-o", "yaml", "--cloud-provider=fake"], "Error: --output=yaml: want text or json"),
        (&["plan", "pod/x", "--cloud-provider=fake"], "want node/NAME, service/NAMESPACE/NAME or routes"),
        (&["plan", "service/web", "--cloud-provider=fake"], "write service/NAMESPACE/web"),
        (&["plan"], "Error: --cloud-provider cannot be empty"),
        (&["plan", "--cloud-provider=fake", "--kubeconfig=/nonexistent"], "Error: --kubeconfig /nonexistent: "),
        (&["plan", "--cloud-provider=fake", "--master=http://127.0.0.1:1"], "nobody listens at 127.0.0.1:1"),
    ];
    for (args, text) in rows {
        let ended = run(args);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
        // No backtrace, no log.
        assert!(ended.stderr.lines().count() < 5, "{args:?}: {}", ended.stderr);
    }
    let ended = run(&["plan", "--cloud-provider=nowhere", "--master=http://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("unknown cloud provider \"nowhere\" (compiled in: "), "{}", ended.stderr);
}

mod real_apiserver {
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Bed, Options};
    use serde_json::{Value, json};

    use crate::process::{Ended, Process, run, run_with};

    /// A cluster and a cloud for one test.
    struct Ground {
        bed: Bed,
        folder: tempfile::TempDir,
    }

    impl Ground {
        async fn new() -> Option<Self> {
            let bed = Bed::start_with(Options::default().audit()).await.unwrap()?;
            let ground = Self { bed, folder: tempfile::tempdir().unwrap() };
            ground.cloud("");
            Some(ground)
        }

        fn config(&self) -> PathBuf {
            self.folder.path().join("cloud.yaml")
        }

        fn cloud(&self, yaml: &str) {
            let text = format!("callLog: calls.jsonl\nstateFile: state.json\ninterfaces: {{routes: true}}\n{yaml}\n");
            std::fs::write(self.config(), text).unwrap();
        }

        fn calls(&self) -> String {
            std::fs::read_to_string(self.folder.path().join("calls.jsonl")).unwrap_or_default()
        }

        fn args(&self, kubeconfig: &Path) -> Vec<String> {
            vec![
                "--cloud-provider=fake".into(),
                format!("--cloud-config={}", self.config().display()),
                format!("--kubeconfig={}", kubeconfig.display()),
                "--cluster-cidr=10.1.0.0/16".into(),
            ]
        }

        fn ccm_as(&self, kubeconfig: &Path, words: &[&str]) -> Ended {
            let args = self.args(kubeconfig);
            let all: Vec<&str> = words.iter().copied().chain(args.iter().map(String::as_str)).collect();
            run(&all)
        }

        fn ccm(&self, words: &[&str]) -> Ended {
            self.ccm_as(&self.bed.kubeconfig(), words)
        }

        /// The same with this on stdin.
        fn answered(&self, words: &[&str], answer: &str) -> Ended {
            let args = self.args(&self.bed.kubeconfig());
            run_with(&words.iter().copied().chain(args.iter().map(String::as_str)).collect::<Vec<_>>(), answer)
        }

        async fn create(&self, path: &str, object: Value) {
            let (status, body) = self.bed.request("POST", path, &self.bed.token, Some(&object)).await.unwrap();
            assert_eq!(status, 201, "{body}");
        }

        async fn node(&self, name: &str, spec: Value) {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
            self.create("/api/v1/nodes", node).await;
        }

        async fn service(&self, name: &str) {
            let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "a"}});
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
            self.create("/api/v1/namespaces/default/services", service).await;
        }
    }

    const TEXT: &str = "\
node fresh
  ~ update Node fresh
      spec.providerID = fake://fresh
      label beta.kubernetes.io/instance-type = fake.small
      label node.kubernetes.io/instance-type = fake.small
      taint node.cloudprovider.kubernetes.io/uninitialized removed
      because the node waits for initialization
routes
  + create Route 10.1.2.0/24 to ranged
      because the node has this pod range
  ~ update Node ranged
      condition NetworkUnavailable = False
      because all its routes are there
service default/web
  ~ update Service default/web
      finalizer = service.kubernetes.io/load-balancer-cleanup
      because the load balancer must go before the Service does
";

    #[tokio::test]
    async fn a_plan_is_what_the_controllers_then_write_and_writes_nothing_itself() {
        let Some(ground) = Ground::new().await else { return };
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        ground.node("fresh", json!({"taints": [taint]})).await;
        ground
            .node(
                "ranged",
                json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "fake://ranged"}),
            )
            .await;
        ground.service("web").await;
        let mut audit = ground.bed.audit();
        audit.read().unwrap();

        let all = ground.ccm(&["plan"]);
        assert_eq!((all.code, &*all.stderr), (Some(2), ""), "{}", all.stdout);
        assert!(all.stdout.starts_with(TEXT), "{}", all.stdout);
        assert!(all.stdout.ends_with("\n5 writes (2 create, 3 update).\n"), "{}", all.stdout);
        assert_eq!(ground.ccm(&["plan"]).stdout, all.stdout, "the same again, byte for byte");
        let one = ground.ccm(&["plan", "service/default/web", "-o", "json"]);
        assert_eq!(one.code, Some(2));
        let document: Value = serde_json::from_str(&one.stdout).unwrap();
        assert_eq!(
            (&document["kind"], &document["version"], &document["changes"]),
            (&json!("Plan"), &json!(1), &json!(2))
        );
        assert_eq!(document["plans"].as_array().unwrap().len(), 1);
        assert_eq!(document["plans"][0]["subject"], "service default/web");
        assert_eq!(document["plans"][0]["steps"][1]["kind"], "LoadBalancer");
        assert_eq!(ground.ccm(&["plan", "node", "ranged"]).stdout, "Nothing would be written.\n");
        assert_eq!(ground.ccm(&["plan", "node/ranged"]).code, Some(0));
        assert!(ground.ccm(&["plan", "routes"]).stdout.ends_with("\n2 writes (1 create, 1 update).\n"));

        let entries = audit.read().unwrap();
        assert!(!entries.is_empty());
        let writes: Vec<_> = entries.iter().filter(|entry| entry.is_write()).collect();
        assert_eq!(writes.len(), 0, "{writes:?}");
        for write in ["Ensure", "Update", "CreateRoute", "DeleteRoute"] {
            assert!(!ground.calls().contains(&format!("\"call\":\"{write}")), "{}", ground.calls());
        }

        // Then the controllers carry out the plan, and nothing is left to do.
        let args = [ground.args(&ground.bed.kubeconfig()), vec!["--secure-port=0".into(), "--v=2".into()]].concat();
        let mut manager = Process::start(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = async || {
            let deadline = Instant::now() + Duration::from_secs(90);
            loop {
                let ended = ground.ccm(&["plan"]);
                if ended.code == Some(0) || Instant::now() > deadline {
                    return ended;
                }
            }
        };
        let settled = plan().await;
        assert!(
            settled.stdout.ends_with("Nothing would be written.\n") && settled.stderr.is_empty(),
            "{}",
            settled.stdout
        );
        manager.signal("TERM");
        assert_eq!(manager.wait(), Some(0));

        // Drift: the load balancer is deleted in the cloud.
        std::fs::remove_file(ground.folder.path().join("state.json")).unwrap();
        let drifted = ground.ccm(&["plan", "service/default/web"]);
        assert_eq!(drifted.code, Some(2));
        assert!(drifted.stdout.contains("+ create LoadBalancer"), "{}", drifted.stdout);
    }

    #[tokio::test]
    async fn what_cannot_be_planned_or_read_is_told_and_the_rest_goes_on() {
        let Some(ground) = Ground::new().await else { return };
        ground.service("web").await;
        ground.cloud("faults: [{call: GetLoadBalancer, error: 'the account is closed'}]");
        let ended = ground.ccm(&["plan"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains("service default/web\n  not planned: "), "{}", ended.stdout);
        assert!(ended.stdout.contains("the account is closed"), "{}", ended.stdout);
        assert_eq!(ended.stderr, "Error: 1 of the objects could not be planned\n");

        let ended = ground.ccm(&["plan", "service/default/none"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        assert_eq!(ended.stderr, "Error: service \"default/none\" is not in the cluster\n");
        let ended = ground.ccm(&["plan", "node/none"]);
        assert_eq!(ended.stderr, "Error: node \"none\" is not in the cluster\n");

        let nobody = ground.bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let ended = ground.ccm_as(&nobody, &["plan"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        assert!(ended.stderr.contains("cannot list nodes: ") && ended.stderr.contains("nobody"), "{}", ended.stderr);
        assert!(ended.stderr.contains("needs `get` and `list`"), "{}", ended.stderr);

        let text = std::fs::read_to_string(ground.bed.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"] = json!({"token": "expired"});
        let expired = ground.folder.path().join("expired.kubeconfig");
        std::fs::write(&expired, config.to_string()).unwrap();
        let ended = ground.ccm_as(&expired, &["plan"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        assert!(ended.stderr.contains("Unauthorized (the API server does not know this user: "), "{}", ended.stderr);
    }

    #[tokio::test]
    async fn of_a_node_that_goes_only_its_deletion_is_planned_and_what_waits_for_the_next_pass_is_told() {
        let Some(ground) = Ground::new().await else { return };
        ground.cloud("unlisted: missing\ninstances: [{name: ready}]");
        ground.node("ready", json!({"providerID": "fake://ready"})).await;
        ground.node("gone-1", json!({"providerID": "fake://gone-1"})).await;
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        ground.node("gone-2", json!({"taints": [taint]})).await;
        for name in ["gone-1", "gone-2"] {
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
            let path = format!("/api/v1/nodes/{name}/status");
            let (code, body) = ground.bed.request("PATCH", &path, &ground.bed.token, Some(&status)).await.unwrap();
            assert_eq!(code, 200, "{body}");
        }
        let ended = ground.ccm(&["plan"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("\n2 writes (2 delete).\n"), "{}", ended.stdout);
        assert_eq!(ground.ccm(&["plan", "node/gone-2"]).code, Some(2));

        let ended = ground.ccm(&["plan", "--node-deletion-budget=1", "--node-deletion-budget-percent=0"]);
        assert_eq!(ended.code, Some(1), "the other keeps its taint: {}", ended.stdout);
        assert!(ended.stdout.contains("- delete Node gone-1"), "{}", ended.stdout);
        for told in ["node gone-2\n  not planned: failed to get instance metadata", "(NodeDeletionDeferred)"] {
            assert!(ended.stdout.contains(told), "{told}: {}", ended.stdout);
        }
        assert!(!ended.stdout.contains("FailedToInitializeNode"), "{}", ended.stdout);
    }

    #[tokio::test]
    async fn a_controller_that_is_switched_off_is_told_where_it_would_have_something_to_say() {
        let Some(ground) = Ground::new().await else { return };
        ground.service("web").await;
        let off = "--controllers=*,-service";
        let ended = ground.ccm(&["plan", off]);
        let told = "service-lb-controller does not run: --controllers switches it off\n";
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
        assert!(ended.stdout.contains(told), "{}", ended.stdout);
        assert!(ground.ccm(&["plan", "service/default/web", off]).stdout.starts_with(told));
        let routes = ground.ccm(&["plan", "routes", off, "-o", "json"]);
        assert_eq!(serde_json::from_str::<Value>(&routes.stdout).unwrap()["skipped"], json!([]), "it makes no routes");
        let file = ground.folder.path().join("s.json").display().to_string();
        assert_eq!(ground.ccm(&["snapshot", "-f", &file, off]).code, Some(0));
        assert_eq!(run(&["plan", "--from-snapshot", &file]).stdout, ended.stdout);
    }

    #[tokio::test]
    async fn a_result_that_finds_no_room_is_an_error_and_nobody_who_reads_it_is_none() {
        let Some(ground) = Ground::new().await else { return };
        let args = ground.args(&ground.bed.kubeconfig());
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        for words in [&["plan"][..], &["plan", "-o", "json"], &["snapshot"]] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ccm"));
            let output = command.args(words).args(&args).stdout(full()).output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?}: {stderr}");
            let text = "Error: the result could not be written to stdout: No space left on device";
            assert!(stderr.contains(text) && !stderr.contains("Snapshot in"), "{words:?}: {stderr}");
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ccm"));
            let output = command.args(words).arg("--no-such").stdout(full()).stderr(full()).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?}");
            let (closed, pipe) = std::io::pipe().unwrap();
            drop(closed);
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ccm"));
            let output = command.args(words).args(&args).stdout(pipe).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{words:?}");
        }
        // Another name of stdout is not replaced as a file.
        let file = ground.ccm(&["snapshot", "-f", "/dev/stdout"]);
        assert_eq!(file.code, Some(0), "{}", file.stderr);
        let document: Value = serde_json::from_str(&file.stdout).unwrap();
        assert_eq!(document["kind"], "Snapshot");
    }

    /// `ccm orphans` with the same cluster and cloud.
    #[tokio::test]
    async fn orphans_are_listed_and_go_only_when_asked_for_and_still_unclaimed() {
        let Some(ground) = Ground::new().await else { return };
        ground.service("web").await;
        let state = json!({"loadBalancers": {
            "default/web": {"service": "default/web", "name": "a", "ingress": [{"ip": "203.0.113.1"}], "nodes": []},
            "default/leaked": {"service": "default/leaked", "name": "b", "ingress": [{"ip": "203.0.113.2"}], "nodes": []},
        }, "routes": []});
        let file = ground.folder.path().join("state.json");
        let set = || std::fs::write(&file, state.to_string()).unwrap();
        let has = |service: &str| std::fs::read_to_string(&file).unwrap().contains(service);
        set();
        let listed = ground.ccm(&["orphans"]);
        assert_eq!((listed.code, &*listed.stderr), (Some(2), ""));
        assert_eq!(
            listed.stdout,
            "LoadBalancer default/leaked (b)\n  made for        service default/leaked\n  orphan because  it is in the table of \
             load balancers, and the Service default/leaked does not exist\n\n1 orphan; --delete removes 1 of them.\n"
        );
        let document: Value = serde_json::from_str(&ground.ccm(&["orphans", "-o", "json"]).stdout).unwrap();
        assert_eq!((&document["kind"], &document["orphans"][0]["id"]), (&json!("Orphans"), &json!("default/leaked")));

        // A cluster none of whose nodes is in this cloud may be another one.
        let ended = ground.ccm(&["orphans", "--delete", "--yes"]);
        assert_eq!((ended.code, has("leaked")), (Some(1), true));
        assert!(ended.stderr.contains("--cluster-is-gone"), "{}", ended.stderr);
        ground.node("n", json!({"providerID": "fake://n"})).await;
        // Nothing is on stdin.
        let ended = ground.ccm(&["orphans", "--delete"]);
        assert_eq!((ended.code, has("leaked")), (Some(1), true));
        assert!(ended.stdout.starts_with("- delete LoadBalancer default/leaked"), "{}", ended.stdout);
        assert!(ended.stderr.contains("Type yes: ") && ended.stderr.contains("add --yes"), "{}", ended.stderr);
        let ended = ground.answered(&["orphans", "--delete"], "no\n");
        assert_eq!((ended.code, has("leaked")), (Some(2), true));
        assert!(ended.stderr.ends_with("Nothing is deleted.\n"), "{}", ended.stderr);
        let ended = ground.ccm(&["orphans", "--delete", "--yes", "--dry-run"]);
        assert_eq!((ended.code, has("leaked")), (Some(2), true), "{}", ended.stderr);

        let ended = ground.answered(&["orphans", "--delete"], "yes\n");
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.starts_with("- delete LoadBalancer default/leaked"), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("deleted LoadBalancer default/leaked\n"), "{}", ended.stdout);
        assert!(!has("leaked") && has("default/web"));
        assert_eq!(ground.ccm(&["orphans"]).stdout, "No orphans: every marked cloud object is claimed.\n");

        // Without a cluster nothing claims anything, and no API server is asked.
        set();
        let config = format!("--cloud-config={}", ground.config().display());
        let ended = run(&["orphans", "--cluster-is-gone", "--cloud-provider=fake", &config]);
        assert!(ended.stdout.contains("2 orphans; --delete removes 2"), "{}", ended.stdout);

        // A deletion that fails says why, and the others go on.
        ground.cloud("faults: [{call: EnsureLoadBalancerDeleted, service: default/leaked, error: 'in use'}]");
        let ended = run(&["orphans", "--cluster-is-gone", "--delete", "--yes", "--cloud-provider=fake", &config]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains("not deleted LoadBalancer default/leaked: in use"), "{}", ended.stdout);
        assert!(ended.stdout.contains("deleted LoadBalancer default/web"), "{}", ended.stdout);
        assert!(has("leaked") && !has("default/web"));
    }
}
