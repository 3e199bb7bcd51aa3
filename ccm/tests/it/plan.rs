//! `ccm plan` as a process: its output and exit code; it writes nothing.

use crate::process::{refused, run, run_with};

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_fix() {
    let rows: [(&[&str], &str); 6] = [
        (&["--no-such"], "Error: unknown flag: --no-such"),
        (&["-o", "xml", "--cloud-provider=fake"], "Error: --output=xml: expected text or json or yaml or name"),
        (&["pod/x", "--cloud-provider=fake"], "expected node/NAME, service/NAMESPACE/NAME or routes"),
        (&[], "Error: --cloud-provider=NAME is missing ("),
        (&["--cloud-provider=fake", "--kubeconfig=/nonexistent"], "Error: the kubeconfig /nonexistent: "),
        (&["--cloud-provider=fake", "--master=http://127.0.0.1:1"], "nothing listens at 127.0.0.1:1"),
    ];
    refused("plan", &[], &rows);
    let ended = run(&["plan", "--cloud-provider=nowhere", "--master=http://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("unknown cloud provider \"nowhere\" (compiled in: "), "{}", ended.stderr);
}

#[test]
fn a_kubeconfig_from_a_pipe_serves_all_parts_of_a_command() {
    let text = "current-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        contexts: [{name: c, context: {cluster: c, namespace: shop}}]\n";
    let ended = run_with(&["plan", "svc/web", "--cloud-provider=fake", "--kubeconfig=/dev/stdin"], text);
    ended.reports(&["nothing listens at 127.0.0.1:1"]);
}

mod real_apiserver {
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use crate::process::{Ended, run, run_with};
    use crate::scene::{Scene, bind, create_node, create_role, create_service, register, set_ready, writes};

    const ROUTES: &str = "interfaces: {routes: true}";

    async fn scene() -> Option<Scene> {
        Scene::new(ROUTES, &["--cluster-cidr=10.1.0.0/16"]).await
    }

    impl Scene {
        /// [`Scene::ccm`] with this text on stdin.
        fn answered(&self, words: &[&str], answer: &str) -> Ended {
            let args = self.args(&self.bed.kubeconfig());
            run_with(&words.iter().copied().chain(args.iter().map(String::as_str)).collect::<Vec<_>>(), answer)
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
      because all its routes exist
service default/web
  ~ update Service default/web
      finalizer = service.kubernetes.io/load-balancer-cleanup
      because the load balancer must be deleted before the Service
";

    #[tokio::test]
    async fn the_controllers_write_the_plan_and_the_plan_itself_writes_nothing() {
        let Some(scene) = scene().await else { return };
        register(&scene.bed, "fresh").await;
        let spec = json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "fake://ranged"});
        create_node(&scene.bed, "ranged", spec).await;
        create_service(&scene.bed, "web", json!({})).await;
        let mut audit = scene.bed.audit();
        audit.read().unwrap();

        let all = scene.ccm(&["plan"]);
        assert_eq!((all.code, &*all.stderr), (Some(2), ""), "{}", all.stdout);
        assert!(all.stdout.starts_with(TEXT), "{}", all.stdout);
        assert!(all.stdout.ends_with("\n5 writes (2 create, 3 update).\n"), "{}", all.stdout);
        assert_eq!(scene.ccm(&["plan"]).stdout, all.stdout, "the same again, byte for byte");
        let one = scene.ccm(&["plan", "service/default/web", "-o", "json"]);
        assert_eq!(one.code, Some(2));
        let document: Value = serde_json::from_str(&one.stdout).unwrap();
        assert_eq!(
            (&document["kind"], &document["version"], &document["changes"]),
            (&json!("Plan"), &json!(1), &json!(2))
        );
        assert_eq!(document["plans"].as_array().unwrap().len(), 1);
        assert_eq!(document["plans"][0]["subject"], "service default/web");
        assert_eq!(document["plans"][0]["steps"][1]["kind"], "LoadBalancer");
        assert_eq!(scene.ccm(&["plan", "node", "ranged"]).stdout, "Nothing would be written.\n");
        assert_eq!(scene.ccm(&["plan", "node/ranged"]).code, Some(0));
        assert!(scene.ccm(&["plan", "routes"]).stdout.ends_with("\n2 writes (1 create, 1 update).\n"));

        let entries = audit.read().unwrap();
        assert!(!entries.is_empty());
        assert_eq!(writes(&entries), [""; 0]);
        scene.assert_no_writes_to_the_cloud();

        // Then the controllers execute the plan, and no changes remain.
        let mut manager = scene.start(&["--secure-port=0", "--v=2"]);
        let plan = async || {
            let deadline = Instant::now() + Duration::from_secs(90);
            loop {
                let ended = scene.ccm(&["plan"]);
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
        manager.end();
        // A picture of the pages is made of this file.
        let one = scene.ccm(&["plan", "service/default/web", "--color=always"]);
        assert_eq!(one.stdout, include_str!("plan/take-over.ansi"));

        // Drift: the load balancer is deleted in the cloud.
        std::fs::remove_file(scene.path("state.json")).unwrap();
        let drifted = scene.ccm(&["plan", "service/default/web"]);
        assert_eq!(drifted.code, Some(2));
        assert!(drifted.stdout.contains("+ create LoadBalancer"), "{}", drifted.stdout);
    }

    #[tokio::test]
    async fn failed_plans_and_reads_are_reported_and_others_continue() {
        let Some(scene) = scene().await else { return };
        create_service(&scene.bed, "web", json!({})).await;
        scene.cloud(&format!("{ROUTES}\nfaults: [{{call: GetLoadBalancer, error: 'the account is closed'}}]"));
        let ended = scene.ccm(&["plan"]);
        assert_eq!(ended.code, Some(1));
        ended.prints(&["service default/web\n  not planned: ", "the account is closed"]);
        assert_eq!(ended.stderr, "Error: 1 of the objects could not be planned\n");

        let ended = scene.ccm(&["plan", "service/default/none"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        assert_eq!(ended.stderr, "Error: service \"default/none\" is not in the cluster\n");
        let ended = scene.ccm(&["plan", "node/none"]);
        assert_eq!(ended.stderr, "Error: node \"none\" is not in the cluster\n");

        let nobody = scene.bed.kubeconfig_for_user("nobody", &[]).unwrap();
        let ended = scene.ccm_as(&nobody, &["plan"]);
        ended.assert_may_not_list_nodes();
        assert!(ended.stderr.contains("nobody"), "{}", ended.stderr);

        let text = std::fs::read_to_string(scene.bed.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"] = json!({"token": "expired"});
        let expired = scene.path("expired.kubeconfig");
        std::fs::write(&expired, config.to_string()).unwrap();
        let ended = scene.ccm_as(&expired, &["plan"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""));
        assert!(ended.stderr.contains("Unauthorized (the API server does not know this user: "), "{}", ended.stderr);
    }

    #[tokio::test]
    async fn a_node_to_delete_has_only_its_deletion_planned_and_deferred_deletions_are_reported() {
        let Some(scene) = scene().await else { return };
        scene.cloud(&format!("{ROUTES}\nunlisted: missing\ninstances: [{{name: ready}}]"));
        create_node(&scene.bed, "ready", json!({"providerID": "fake://ready"})).await;
        create_node(&scene.bed, "gone-1", json!({"providerID": "fake://gone-1"})).await;
        register(&scene.bed, "gone-2").await;
        for name in ["gone-1", "gone-2"] {
            set_ready(&scene.bed, name, "False").await;
        }
        let ended = scene.ccm(&["plan"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(2), ""), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("\n2 writes (2 delete).\n"), "{}", ended.stdout);
        assert_eq!(scene.ccm(&["plan", "node/gone-2"]).code, Some(2));

        let ended = scene.ccm(&["plan", "--node-deletion-budget=1", "--node-deletion-budget-percent=0"]);
        assert_eq!(ended.code, Some(1), "the other keeps its taint: {}", ended.stdout);
        assert!(ended.stdout.contains("- delete Node gone-1"), "{}", ended.stdout);
        ended.prints(&["node gone-2\n  not planned: failed to get instance metadata", "(NodeDeletionDeferred)"]);
        assert!(!ended.stdout.contains("FailedToInitializeNode"), "{}", ended.stdout);
    }

    #[tokio::test]
    async fn a_controller_that_is_switched_off_is_reported_where_it_would_have_something_to_say() {
        let Some(scene) = scene().await else { return };
        create_service(&scene.bed, "web", json!({})).await;
        let off = "--controllers=*,-service";
        let ended = scene.ccm(&["plan", off]);
        let text = "service-lb-controller does not run: disabled by --controllers\n";
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
        assert!(ended.stdout.contains(text), "{}", ended.stdout);
        assert!(scene.ccm(&["plan", "service/default/web", off]).stdout.starts_with(text));
        let routes = scene.ccm(&["plan", "routes", off, "-o", "json"]);
        assert_eq!(serde_json::from_str::<Value>(&routes.stdout).unwrap()["skipped"], json!([]), "it makes no routes");
        let file = scene.text("s.json");
        assert_eq!(scene.ccm(&["snapshot", "-f", &file, off]).code, Some(0));
        assert_eq!(run(&["plan", "--from-snapshot", &file]).stdout, ended.stdout);
    }

    /// So it is for the account of the pod with an account for each controller, or with the role of a Go program.
    #[tokio::test]
    async fn volumes_that_the_user_may_not_list_are_left_out_and_the_rest_is_planned() {
        let Some(scene) = scene().await else { return };
        scene.cloud("interfaces: {pvLabels: true}");
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes", "services", "pods"], "verbs": ["list"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        ]);
        create_role(&scene.bed, "program", rules).await;
        bind(&scene.bed, "program", "User", "program").await;
        let program = scene.bed.kubeconfig_for_user("program", &[]).unwrap();

        let planned = scene.ccm_as(&program, &["plan"]);
        assert_eq!((planned.code, &*planned.stderr), (Some(0), ""), "{}", planned.stdout);
        let reason = "the user of this command may not list persistentvolumes: persistentvolumes is forbidden: ";
        planned.prints(&[
            &format!("persistentvolume-label-controller does not run: {reason}"),
            "Nothing would be written.\n",
        ]);
        let file = scene.text("s.json");
        assert_eq!(scene.ccm_as(&program, &["snapshot", "-f", &file]).code, Some(0));
        assert_eq!(run(&["plan", "--from-snapshot", &file]).stdout, planned.stdout);

        let found = |command: &str| {
            let ended = scene.ccm_as(&program, &[command, "-o", "json"]);
            let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
            let text =
                |check: &Value| ["severity", "check", "subject"].map(|key| check[key].as_str().unwrap().to_owned());
            document["checks"].as_array().unwrap().iter().map(|check| text(check).join(" ")).collect::<Vec<_>>()
        };
        let checked = found("check");
        assert!(checked.contains(&"info plan persistentvolume-label-controller".to_owned()), "{checked:?}");
        assert!(!checked.iter().any(|line| line.starts_with("error plan")), "{checked:?}");
        // The program itself may need it.
        assert!(checked.contains(&"warning rbac persistentvolumes".to_owned()), "{checked:?}");
        let before = found("migrate-check");
        assert!(before.contains(&"warning unread persistentvolumes".to_owned()), "{before:?}");
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
        let Some(scene) = scene().await else { return };
        let args = scene.args(&scene.bed.kubeconfig());
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
        let file = scene.ccm(&["snapshot", "-f", "/dev/stdout"]);
        assert_eq!(file.code, Some(0), "{}", file.stderr);
        let document: Value = serde_json::from_str(&file.stdout).unwrap();
        assert_eq!(document["kind"], "Snapshot");
    }

    /// `ccm orphans` with the same cluster and cloud.
    #[tokio::test]
    async fn orphans_are_listed_and_go_only_when_asked_for_and_still_unclaimed() {
        let Some(scene) = scene().await else { return };
        create_service(&scene.bed, "web", json!({})).await;
        let state = json!({"loadBalancers": {
            "default/web": {"service": "default/web", "name": "a", "ingress": [{"ip": "203.0.113.1"}], "nodes": []},
            "default/leaked": {"service": "default/leaked", "name": "b", "ingress": [{"ip": "203.0.113.2"}], "nodes": []},
        }, "routes": []});
        let file = scene.path("state.json");
        let set = || std::fs::write(&file, state.to_string()).unwrap();
        let has = |service: &str| std::fs::read_to_string(&file).unwrap().contains(service);
        set();
        let listed = scene.ccm(&["orphans"]);
        assert_eq!((listed.code, &*listed.stderr), (Some(2), ""));
        assert_eq!(
            listed.stdout,
            "LoadBalancer default/leaked (b)\n  made for        service default/leaked\n  orphan because  there is no Service \
             default/leaked; recognized by its entry in the table of load balancers\n\n1 orphan; --delete removes 1 of them.\n"
        );
        let document: Value = serde_json::from_str(&scene.ccm(&["orphans", "-o", "json"]).stdout).unwrap();
        assert_eq!((&document["kind"], &document["orphans"][0]["id"]), (&json!("Orphans"), &json!("default/leaked")));

        // A cluster without nodes in this cloud may be another one.
        let ended = scene.ccm(&["orphans", "--delete", "--yes"]);
        assert_eq!((ended.code, has("leaked")), (Some(1), true));
        assert!(ended.stderr.contains("--cluster-is-gone"), "{}", ended.stderr);
        create_node(&scene.bed, "n", json!({"providerID": "fake://n"})).await;
        // stdin is empty.
        let ended = scene.ccm(&["orphans", "--delete"]);
        assert_eq!((ended.code, has("leaked")), (Some(1), true));
        assert!(ended.stdout.starts_with("- delete LoadBalancer default/leaked"), "{}", ended.stdout);
        assert!(ended.stderr.contains("Type yes: ") && ended.stderr.contains("add --yes"), "{}", ended.stderr);
        let ended = scene.answered(&["orphans", "--delete"], "no\n");
        assert_eq!((ended.code, has("leaked")), (Some(2), true));
        assert!(ended.stderr.ends_with("Nothing is deleted.\n"), "{}", ended.stderr);
        let ended = scene.ccm(&["orphans", "--delete", "--yes", "--dry-run"]);
        assert_eq!((ended.code, has("leaked")), (Some(2), true), "{}", ended.stderr);

        let ended = scene.answered(&["orphans", "--delete"], "yes\n");
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.starts_with("- delete LoadBalancer default/leaked"), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("deleted LoadBalancer default/leaked\n"), "{}", ended.stdout);
        assert!(!has("leaked") && has("default/web"));
        assert_eq!(scene.ccm(&["orphans"]).stdout, "No orphans: every cloud object of this cluster is claimed.\n");

        // Without a cluster there are no claims, and no API server is called.
        set();
        let config = format!("--cloud-config={}", scene.text("cloud.yaml"));
        let ended = run(&["orphans", "--cluster-is-gone", "--cloud-provider=fake", &config]);
        assert!(ended.stdout.contains("2 orphans; --delete removes 2"), "{}", ended.stdout);

        // A failed deletion prints its reason, and the others continue.
        let fault = "faults: [{call: EnsureLoadBalancerDeleted, service: default/leaked, error: 'in use'}]";
        scene.cloud(&format!("{ROUTES}\n{fault}"));
        let ended = run(&["orphans", "--cluster-is-gone", "--delete", "--yes", "--cloud-provider=fake", &config]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.contains("not deleted LoadBalancer default/leaked: in use"), "{}", ended.stdout);
        assert!(ended.stdout.contains("\ndeleted LoadBalancer default/web"), "{}", ended.stdout);
        assert!(has("leaked") && !has("default/web"));
    }
}
