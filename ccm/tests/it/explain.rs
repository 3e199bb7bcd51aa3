//! `ccm explain` as a process: its output for various problems, and that it writes nothing.

use crate::process::run;

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_way_out() {
    let missing = "--leader-ca=/nonexistent";
    let leader = "--leader=https://127.0.0.1:1";
    let rows: [(&[&str], &str); 12] = [
        (&[], "which object? want node/NAME or service/NAMESPACE/NAME\n"),
        (&["routes"], "\"routes\": one object at a time; want node/NAME or"),
        (&["pod/x"], "\"pod/x\": want node/NAME or service/NAMESPACE/NAME\n"),
        (&["service/web"], "write service/NAMESPACE/web"),
        (&["node/a", "--no-such"], "unknown flag: --no-such"),
        (&["node/a", "-o", "github"], "--output=github: want text or json"),
        (&["node/a", "--leader=http://127.0.0.1:1"], "--leader=http://127.0.0.1:1: without https the credentials"),
        (&["node/a", "--leader=10258"], "--leader=10258: not an https address; give something like https://"),
        (&["node/a", "--leader-insecure"], "about --leader, which is not given"),
        (&["node/a", leader, missing], "--leader-ca=/nonexistent: No such file"),
        (&["node/a", leader, missing, "--leader-insecure"], "contradict each other"),
        (&["node/a", "--kubeconfig=/nonexistent"], "--kubeconfig /nonexistent: "),
    ];
    for (words, text) in rows {
        let ended = run(&[&["explain"], words, &["--cloud-provider=fake"]].concat());
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{words:?}: {}", ended.stderr);
    }
    let ended = run(&["explain", "node/a", "--cloud-provider=fake", "--master=http://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("nobody listens at 127.0.0.1:1"), "{}", ended.stderr);
    let help = run(&["explain", "--help"]).stdout;
    assert!(help.contains("ccm explain node/NAME | service/NAMESPACE/NAME [flags]"), "{help}");
    assert!(help.contains("Exit codes: 0 all is as it should be, 2 ") && help.contains("port-forward"), "{help}");
}

mod real_apiserver {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Bed, Options};
    use serde_json::{Value, json};

    use crate::https::free_port;
    use crate::process::{Ended, Process, run};

    const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

    /// A cluster and a cloud for one test.
    struct Ground {
        bed: Bed,
        folder: tempfile::TempDir,
    }

    impl Ground {
        async fn new(cloud: &str) -> Option<Self> {
            let bed = Bed::start_with(Options::default().audit()).await.unwrap()?;
            let ground = Self { bed, folder: tempfile::tempdir().unwrap() };
            std::fs::write(ground.folder.path().join("cloud.yaml"), format!("stateFile: state.json\n{cloud}")).unwrap();
            Some(ground)
        }

        fn flags(&self, kubeconfig: &Path) -> Vec<String> {
            vec![
                "--cloud-provider=fake".into(),
                format!("--cloud-config={}", self.folder.path().join("cloud.yaml").display()),
                format!("--kubeconfig={}", kubeconfig.display()),
            ]
        }

        fn explain_as(&self, kubeconfig: &Path, words: &[&str]) -> Ended {
            let flags = self.flags(kubeconfig);
            let all = ["explain"].into_iter().chain(words.iter().copied()).chain(flags.iter().map(String::as_str));
            run(&all.collect::<Vec<_>>())
        }

        fn explain(&self, words: &[&str]) -> Ended {
            self.explain_as(&self.bed.kubeconfig(), words)
        }

        /// The output, with varying parts replaced.
        fn text(&self, object: &str, uid: &str) -> (Option<i32>, String) {
            let ended = self.explain(&[object]);
            assert_eq!(ended.stderr, "");
            let balancer: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
            let text = ended.stdout.replace(&balancer, "BALANCER").replace(uid, "UID");
            let ages = text.split(' ').map(|word| {
                let age =
                    word.strip_suffix('s').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
                if age { "AGE" } else { word }
            });
            (ended.code, ages.collect::<Vec<_>>().join(" "))
        }

        async fn create(&self, path: &str, object: Value) -> String {
            let (status, body) = self.bed.request("POST", path, &self.bed.token, Some(&object)).await.unwrap();
            assert_eq!(status, 201, "{body}");
            let made: Value = serde_json::from_str(&body).unwrap();
            made["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
        }

        async fn node(&self, name: &str, spec: Value) -> String {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
            self.create("/api/v1/nodes", node).await
        }

        async fn service(&self, name: &str, spec: Value) -> String {
            let mut all = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "a"}});
            all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": all});
            self.create("/api/v1/namespaces/default/services", service).await
        }

        /// A leader that serves its port.
        fn lead(&self) -> (Process, String) {
            let (port, kubeconfig) = (free_port(), self.bed.kubeconfig());
            let mut flags = self.flags(&kubeconfig);
            flags.extend(["--bind-address=127.0.0.1".into(), format!("--secure-port={port}"), "--v=2".into()]);
            for who in ["authentication", "authorization"] {
                flags.push(format!("--{who}-kubeconfig={}", kubeconfig.display()));
            }
            let process = Process::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
            process.wait_for("Started \"service-lb-controller\"");
            (process, format!("--leader=https://127.0.0.1:{port}"))
        }

        /// Explains until the output contains this text.
        fn until(&self, words: &[&str], text: &str) -> Ended {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let ended = self.explain(words);
                if ended.stdout.contains(text) {
                    return ended;
                }
                assert!(Instant::now() < deadline, "{text:?} is never said: {}{}", ended.stdout, ended.stderr);
            }
        }
    }

    /// The API server lists events by name, which begins with the oldest.
    #[tokio::test]
    async fn the_newest_event_is_told_however_many_there_are() {
        let Some(ground) = Ground::new("").await else { return };
        let uid = ground.service("web", json!({})).await;
        let told = |name: String, time: &str| {
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Warning",
                "reason": "SyncLoadBalancerFailed", "message": format!("told by {name}"), "lastTimestamp": time,
                "involvedObject": {"kind": "Service", "namespace": "default", "name": "web", "uid": uid},
                "source": {"component": "service-controller"}})
        };
        let events = "/api/v1/namespaces/default/events";
        for number in 0..250 {
            ground.create(events, told(format!("web.{number:03}"), "2026-01-02T03:04:05Z")).await;
        }
        ground.create(events, told("web.last".into(), "2026-01-02T03:04:06Z")).await;
        let ended = ground.explain(&["service/default/web", "-o", "json"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let all = document["events"].as_array().unwrap();
        assert_eq!((all.len(), &all[0]["message"]), (251, &json!("told by web.last")));
    }

    const PENDING: &str = "\
service default/web
  done    Service: type LoadBalancer, made AGE ago
  waiting finalizer: service.kubernetes.io/load-balancer-cleanup is not there yet
  waiting address: the status shows none yet
  done    service-lb-controller: switched on; it makes and removes its balancer
  broken  lease kube-system/cloud-controller-manager: does not exist: nobody works under this name
          → start the controller manager, or give the --leader-elect-resource-name and -namespace that it has
  waiting the next leader's write: update Service default/web: finalizer = service.kubernetes.io/load-balancer-cleanup \
(because the load balancer must go before the Service does)
  waiting the next leader's write: create LoadBalancer BALANCER: ingress = 203.0.113.1 or the next free address \
(because the Service wants a load balancer)
  broken  hosts: the cluster has no node, so that nothing can stand behind the balancer
          → add nodes; the hosts follow by themselves
  waiting load balancer BALANCER: not made yet
broken: lease kube-system/cloud-controller-manager: does not exist: nobody works under this name → \
start the controller manager, or give the --leader-elect-resource-name and -namespace that it has (and 1 more above)
";

    #[tokio::test]
    async fn without_a_leader_each_link_is_told_and_nothing_is_written() {
        let Some(ground) =
            Ground::new("unlisted: error\ninstances: [{name: listed}, {name: denied, exists: false}]").await
        else {
            return;
        };
        let uid = ground.service("web", json!({})).await;
        let mut audit = ground.bed.audit();
        audit.read().unwrap();
        assert_eq!(ground.text("service/default/web", &uid), (Some(2), PENDING.to_owned()));

        let taint = json!([{"key": TAINT, "value": "true", "effect": "NoSchedule"}]);
        // The list of events is the last request; its audit entry may arrive a moment later.
        let mut made = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !made.iter().any(|entry: &ccm_test_bed::AuditEntry| entry.is_about("events") && entry.verb == "list") {
            assert!(Instant::now() < deadline, "{made:#?}");
            made.extend(audit.read().unwrap());
        }
        assert!(made.iter().all(|entry| !entry.is_write()), "{made:#?}");
        assert!(made.iter().any(|entry| entry.is_about("leases") && entry.verb == "get"), "{made:#?}");

        ground.node("fresh", json!({"taints": taint})).await;
        ground.node("stranger", json!({"providerID": "aws:///a/i-1"})).await;
        ground.node("lost", json!({"providerID": "aws:///a/i-2", "taints": taint})).await;
        ground.service("plain", json!({"type": "ClusterIP"})).await;
        ground.service("classy", json!({"loadBalancerClass": "example.com/x"})).await;

        let fresh = ground.explain(&["node/fresh", "--leader-elect=false"]);
        assert_eq!(fresh.code, Some(2), "{}", fresh.stderr);
        assert!(fresh.stdout.contains("waiting initialization: the taint node.cloudprovider"), "{}", fresh.stdout);
        assert!(fresh.stdout.contains("unlisted instance (unknown)"), "{}", fresh.stdout);
        let end = fresh.stdout.lines().last().unwrap();
        assert!(end.starts_with("broken: instance fresh: not listed") && end.contains("→ list it under"), "{end}");

        // The lookup of the controllers explains less than the provider's own facts.
        ground.node("denied", json!({})).await;
        let denied = ground.explain(&["node/denied", "--leader-elect=false"]);
        assert!(
            denied.stdout.contains("  broken  the cloud: the cloud says that the instance does not exist"),
            "{}",
            denied.stdout
        );
        let end = denied.stdout.lines().last().unwrap();
        assert!(
            end.starts_with("broken: instance denied: listed with exists: false") && end.contains("→ take "),
            "{end}"
        );

        let stranger = ground.explain(&["node", "stranger"]);
        assert_eq!(stranger.code, Some(0), "{}", stranger.stdout);
        assert!(
            stranger.stdout.ends_with(
                "OK: the provider ID aws:///a/i-1 is another cloud's: this program never touches the node\n"
            )
        );
        let lost = ground.explain(&["node/lost"]);
        assert_eq!(lost.code, Some(2));
        assert!(lost.stdout.lines().last().unwrap().contains("broken: taint: "), "{}", lost.stdout);
        assert!(lost.stdout.contains("correct --provider-id of its kubelet"), "{}", lost.stdout);

        let plain = ground.explain(&["service/default/plain"]);
        assert_eq!(plain.code, Some(0), "{}", plain.stdout);
        assert!(plain.stdout.ends_with("OK: a Service of type ClusterIP gets no load balancer\n"), "{}", plain.stdout);
        let classy = ground.explain(&["service/default/classy"]);
        assert_eq!(classy.code, Some(2));
        assert!(
            classy.stdout.contains("loadBalancerClass \"example.com/x\" is another controller's"),
            "{}",
            classy.stdout
        );

        let note = json!({"service.beta.kubernetes.io/load-balancer-source-range": "10.0.0.0/8"});
        let path = "/api/v1/namespaces/default/services/web";
        let patch = json!({"metadata": {"annotations": note}});
        assert_eq!(ground.bed.request("PATCH", path, &ground.bed.token, Some(&patch)).await.unwrap().0, 200);
        let misspelt = ground.explain(&["service/default/web"]);
        let meant = "did you mean \"service.beta.kubernetes.io/load-balancer-source-ranges\"?";
        assert!(misspelt.stdout.contains("warning: ") && misspelt.stdout.contains(meant), "{}", misspelt.stdout);

        let none = ground.explain(&["service/default/none"]);
        assert_eq!((none.code, &*none.stdout), (Some(1), ""));
        assert!(none.stderr.contains("service \"default/none\" is not in the cluster"), "{}", none.stderr);
    }

    #[tokio::test]
    async fn with_a_leader_its_errors_are_told_and_what_is_done_is_ok() {
        let cloud = "faults: [{call: EnsureLoadBalancer, service: default/api, error: 'the quota is used up'}]";
        let Some(ground) = Ground::new(cloud).await else { return };
        ground.node("worker", json!({"providerID": "fake://worker"})).await;
        let uid = ground.service("web", json!({})).await;
        ground.service("api", json!({})).await;
        let (mut process, leader) = ground.lead();
        // Events are written last, in the background.
        ground.until(&["service/default/web"], "  Normal EnsuredLoadBalancer ");
        let (code, text) = ground.text("service/default/web", &uid);
        assert_eq!(code, Some(0), "{text}");
        for line in [
            "  done    address: 203.0.113.",
            "  done    lease kube-system/cloud-controller-manager: held by ",
            "  done    the controllers: have nothing to write for it\n",
            "  done    hosts: 1 of 1 nodes belong behind the balancer\n",
            "  Normal EnsuredLoadBalancer ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.ends_with("\nOK\n"), "{text}");

        // This pass plans the write; only the leader knows that it fails.
        let api = ground.until(&["service/default/api"], "last error: SyncLoadBalancerFailed");
        assert_eq!(api.code, Some(2));
        let end = api.stdout.lines().last().unwrap();
        assert!(end.starts_with("broken: ") && end.contains("the quota is used up"), "{end}");

        let said = ground.explain(&["service/default/api", &leader, "--leader-insecure"]);
        assert!(said.stdout.contains("  done    the asked replica: "), "{}", said.stdout);
        assert!(said.stdout.contains("service-lb-controller of the leader: "), "{}", said.stdout);
        assert!(said.stdout.contains("; tried again "), "{}", said.stdout);
        let document = ground.explain(&["service/default/api", &leader, "--leader-insecure", "-o", "json"]);
        assert_eq!((document.code, &*document.stderr), (Some(2), ""));
        let document: Value = serde_json::from_str(&document.stdout).unwrap();
        assert_eq!(
            (&document["kind"], &document["version"], &document["state"]),
            (&json!("Explanation"), &json!(1), &json!("broken"))
        );
        assert_eq!((&document["object"]["kind"], &document["object"]["name"]), (&json!("Service"), &json!("api")));
        assert_eq!(document["leader"]["failures"][0]["subject"], "service default/api");
        assert_eq!(document["leader"]["leadership"]["state"], "leading");
        assert_eq!(document["plan"]["plans"][0]["subject"], "service default/api");
        let warned = |event: &Value| event["type"] == "Warning" && event["secondsAgo"].is_i64();
        assert!(document["events"].as_array().unwrap().iter().any(warned), "{document:#}");

        // Its certificate is self-signed: no authority of the kubeconfig has signed it.
        let distrusted = ground.explain(&["service/default/web", &leader]);
        assert_eq!(distrusted.code, Some(0), "{}", distrusted.stdout);
        assert!(
            distrusted.stdout.contains("cannot be reached: ") && distrusted.stdout.contains("--leader-ca"),
            "{}",
            distrusted.stdout
        );
        assert!(distrusted.stdout.ends_with("\nOK, as far as it could be seen\n"), "{}", distrusted.stdout);

        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
        let left = ground.explain(&["service/default/web"]);
        assert!(left.stdout.contains("held by nobody since it was given back"), "{}", left.stdout);
        assert_eq!(left.code, Some(2));
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_a_line_and_no_failure() {
        let Some(ground) = Ground::new("").await else { return };
        ground.node("worker", json!({"providerID": "fake://worker"})).await;
        ground.service("plain", json!({"type": "ClusterIP"})).await;
        ground.service("web", json!({})).await;
        let reader = ground.bed.kubeconfig_for_user("reader", &[]).unwrap();
        let nothing = ground.explain_as(&reader, &["node/worker"]);
        assert_eq!(nothing.code, Some(1));
        assert!(
            nothing.stderr.contains("cannot list nodes: ") && nothing.stderr.contains("needs `get` and `list`"),
            "{}",
            nothing.stderr
        );

        let role = "/apis/rbac.authorization.k8s.io/v1";
        let rules = json!([{"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list"]}]);
        let meta = json!({"name": "explain-reader"});
        let api = "rbac.authorization.k8s.io/v1";
        let cluster_role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": meta, "rules": rules});
        ground.create(&format!("{role}/clusterroles"), cluster_role).await;
        let binding = json!({
            "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "explain-reader"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
        });
        ground.create(&format!("{role}/clusterrolebindings"), binding).await;
        let (process, leader) = ground.lead();
        let deadline = Instant::now() + Duration::from_secs(30);
        let words = ["service/default/web", &*leader, "--leader-insecure"];
        let seen = loop {
            let seen = ground.explain_as(&reader, &words);
            if seen.code == Some(0) {
                break seen;
            }
            assert!(Instant::now() < deadline, "{}{}{}", seen.stdout, seen.stderr, process.log());
        };
        for line in [
            "  unseen  lease kube-system/cloud-controller-manager: may not be read: grant get on leases",
            "  unseen  events: may not be listed: grant list on events in the namespace default",
            ": the user of the kubeconfig may not see it: grant get on the nonResourceURL /debug/state\n",
        ] {
            assert!(seen.stdout.contains(line), "{line}\n{}", seen.stdout);
        }
        assert!(seen.stdout.ends_with("\nOK, as far as it could be seen\n"), "{}", seen.stdout);
    }
}
