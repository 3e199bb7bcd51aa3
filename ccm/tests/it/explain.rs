//! `ccm explain` as a process: its output for various problems; it writes nothing.

use crate::process::refused;

#[test]
fn wrong_arguments_name_the_key_the_value_and_the_fix() {
    let missing = "--leader-ca=/nonexistent";
    let leader = "--leader=https://127.0.0.1:1";
    let rows: [(&[&str], &str); 16] = [
        (&[], "expected node/NAME or service/NAMESPACE/NAME\n"),
        (&["routes"], "\"routes\": one object at a time; expected node/NAME or"),
        (&["pod/x"], "\"pod/x\": expected node/NAME or service/NAMESPACE/NAME\n"),
        (&["service/a/web", "-n", "b"], "\"service/a/web\" and --namespace=b contradict each other"),
        (&["node/a", "-A", "-n", "b"], "--all-namespaces and --namespace contradict each other"),
        (&["node/a", "--as-group=x"], "--as-group=x: add --as=USER"),
        (&["node/a", "--context=x", "--master=http://127.0.0.1:1"], "--context=x: there is no kubeconfig"),
        (&["node/a", "--no-such"], "unknown flag: --no-such"),
        (&["node/a", "-o", "github"], "--output=github: expected text or json"),
        (&["node/a", "--leader=http://127.0.0.1:1"], "--leader=http://127.0.0.1:1: without https the credentials"),
        (&["node/a", "--leader=10258"], "--leader=10258: not an https address; give something like https://"),
        (&["node/a", "--leader-insecure"], "about --leader, which is not given"),
        (&["node/a", leader, missing], "--leader-ca=/nonexistent: No such file"),
        (&["node/a", leader, missing, "--leader-insecure"], "contradict each other"),
        (&["node/a", "--kubeconfig=/nonexistent"], "the kubeconfig /nonexistent: "),
        (&["node/a", "--master=http://127.0.0.1:1"], "nothing listens at 127.0.0.1:1"),
    ];
    refused("explain", &["--cloud-provider=fake"], &rows);
}

mod real_apiserver {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use crate::https::free_port;
    use crate::process::{Ended, Process};
    use crate::scene::{Scene, bind, create, create_node, create_role, create_service, send, taint, writes};

    impl Scene {
        fn explain_as(&self, kubeconfig: &Path, words: &[&str]) -> Ended {
            self.ccm_as(kubeconfig, &[&["explain"], words].concat())
        }

        fn explain(&self, words: &[&str]) -> Ended {
            self.explain_as(&self.bed.kubeconfig(), words)
        }

        /// The output, with varying parts replaced.
        fn explained(&self, object: &str, uid: &str) -> (Option<i32>, String) {
            let ended = self.explain(&[object]);
            assert_eq!(ended.stderr, "");
            let balancer: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
            // The API server repairs its allocations soon after its start, and may do so for a Service that is being created.
            let mut lines: Vec<&str> =
                ended.stdout.lines().filter(|line| !line.contains("ClusterIPNotAllocated")).collect();
            let events = lines.iter().position(|line| *line == "Events, newest first");
            let is_empty = |at: &usize| lines.get(at + 1).is_none_or(|line| !line.starts_with(' '));
            if let Some(at) = events.filter(is_empty) {
                lines.remove(at);
            }
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let text = text.replace(&balancer, "BALANCER").replace(uid, "UID");
            let ages = text.split(' ').map(|word| {
                let age =
                    word.strip_suffix('s').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
                if age { "AGE" } else { word }
            });
            (ended.code, ages.collect::<Vec<_>>().join(" "))
        }

        async fn node(&self, name: &str, spec: Value) {
            create_node(&self.bed, name, spec).await;
        }

        /// Creates a Service and returns its UID.
        async fn service(&self, name: &str, spec: Value) -> String {
            create_service(&self.bed, name, spec).await["metadata"]["uid"].as_str().unwrap().to_owned()
        }

        /// A leader that serves its port.
        fn lead(&self) -> (Process, String) {
            let (port, kubeconfig) = (free_port(), self.bed.kubeconfig());
            let [authn, authz] =
                ["authentication", "authorization"].map(|who| format!("--{who}-kubeconfig={}", kubeconfig.display()));
            let port_flag = format!("--secure-port={port}");
            let process = self.start(&["--bind-address=127.0.0.1", &port_flag, "--v=2", &authn, &authz]);
            process.wait_for("Started \"service-lb-controller\"");
            (process, format!("--leader=https://127.0.0.1:{port}"))
        }

        /// Runs `explain` until the output contains this text.
        fn explain_until(&self, words: &[&str], text: &str) -> Ended {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let ended = self.explain(words);
                if ended.stdout.contains(text) {
                    return ended;
                }
                assert!(Instant::now() < deadline, "{text:?} is never printed: {}{}", ended.stdout, ended.stderr);
            }
        }
    }

    /// The API server lists events by name, so the oldest is the first.
    #[tokio::test]
    async fn the_newest_event_is_reported_however_many_there_are() {
        let Some(scene) = Scene::new("", &[]).await else { return };
        let uid = scene.service("web", json!({})).await;
        let event = |name: String, time: &str| {
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Warning",
                "reason": "SyncLoadBalancerFailed", "message": format!("reported by {name}"), "lastTimestamp": time,
                "involvedObject": {"kind": "Service", "namespace": "default", "name": "web", "uid": uid},
                "source": {"component": "service-controller"}})
        };
        let events = "/api/v1/namespaces/default/events";
        for number in 0..250 {
            create(&scene.bed, events, event(format!("web.{number:03}"), "2026-01-02T03:04:05Z")).await;
        }
        create(&scene.bed, events, event("web.last".into(), "2026-01-02T03:04:06Z")).await;
        let ended = scene.explain(&["service/default/web", "-o", "json"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let all = document["events"].as_array().unwrap();
        assert_eq!((all.len(), &all[0]["message"]), (251, &json!("reported by web.last")));
    }

    const PENDING: &str = "\
service default/web
  done    Service: type LoadBalancer, created AGE ago
  waiting finalizer: service.kubernetes.io/load-balancer-cleanup is not set yet
  waiting address: none yet
  done    service-lb-controller: enabled; it manages this load balancer
  broken  lease kube-system/cloud-controller-manager: does not exist: no replica is active under this name → start the controller manager, or give the --leader-elect-resource-name and -namespace that it has
  waiting the next leader's write: update Service default/web: finalizer = service.kubernetes.io/load-balancer-cleanup \
(because the load balancer must be deleted before the Service)
  waiting the next leader's write: create LoadBalancer BALANCER: ingress = 203.0.113.1 or the next free address \
(because the Service wants a load balancer)
  broken  hosts: the cluster has no node, so that the load balancer has no hosts → add nodes; they become hosts automatically
  waiting load balancer BALANCER: not made yet
broken: lease kube-system/cloud-controller-manager: does not exist: no replica is active under this name → \
start the controller manager, or give the --leader-elect-resource-name and -namespace that it has (and 1 more above)
";

    #[tokio::test]
    async fn without_a_leader_each_link_is_reported_and_nothing_is_written() {
        let cloud = "unlisted: error\ninstances: [{name: listed}, {name: denied, exists: false}]";
        let Some(scene) = Scene::new(cloud, &[]).await else { return };
        let uid = scene.service("web", json!({})).await;
        let mut audit = scene.bed.audit();
        audit.read().unwrap();
        assert_eq!(scene.explained("service/default/web", &uid), (Some(2), PENDING.to_owned()));

        let taint = json!([taint()]);
        // The list of events is the last request; its audit entry may arrive a moment later.
        let mut made = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !made.iter().any(|entry: &ccm_test_bed::AuditEntry| entry.is_about("events") && entry.verb == "list") {
            assert!(Instant::now() < deadline, "{made:#?}");
            made.extend(audit.read().unwrap());
        }
        assert_eq!(writes(&made), [""; 0]);
        assert!(made.iter().any(|entry| entry.is_about("leases") && entry.verb == "get"), "{made:#?}");

        scene.node("fresh", json!({"taints": taint})).await;
        scene.node("stranger", json!({"providerID": "aws:///a/i-1"})).await;
        scene.node("lost", json!({"providerID": "aws:///a/i-2", "taints": taint})).await;
        scene.service("plain", json!({"type": "ClusterIP"})).await;
        scene.service("classy", json!({"loadBalancerClass": "example.com/x"})).await;

        let fresh = scene.explain(&["node/fresh", "--leader-elect=false"]);
        assert_eq!(fresh.code, Some(2), "{}", fresh.stderr);
        fresh.prints(&["waiting initialization: the taint node.cloudprovider", "unlisted instance (unknown)"]);
        let end = fresh.stdout.lines().last().unwrap();
        assert!(end.starts_with("broken: instance fresh: not listed") && end.contains("→ list it under"), "{end}");

        // The provider's own facts explain more than the controllers' lookup.
        scene.node("denied", json!({})).await;
        let denied = scene.explain(&["node/denied", "--leader-elect=false"]);
        denied.prints(&["  broken  the cloud: the cloud says that the instance does not exist"]);
        let end = denied.stdout.lines().last().unwrap();
        assert!(
            end.starts_with("broken: instance denied: listed with exists: false")
                && end.contains("→ remove exists: false"),
            "{end}"
        );

        let stranger = scene.explain(&["node", "stranger"]);
        assert_eq!(stranger.code, Some(0), "{}", stranger.stdout);
        assert!(
            stranger.stdout.ends_with(
                "OK: the provider ID aws:///a/i-1 is another cloud's: this program never touches the node\n"
            )
        );
        let lost = scene.explain(&["node/lost"]);
        assert_eq!(lost.code, Some(2));
        assert!(lost.stdout.lines().last().unwrap().contains("broken: taint: "), "{}", lost.stdout);
        assert!(lost.stdout.contains("correct --provider-id of its kubelet"), "{}", lost.stdout);

        let plain = scene.explain(&["service/default/plain"]);
        assert_eq!(plain.code, Some(0), "{}", plain.stdout);
        assert!(plain.stdout.ends_with("OK: a Service of type ClusterIP gets no load balancer\n"), "{}", plain.stdout);
        let classy = scene.explain(&["service/default/classy"]);
        assert_eq!(classy.code, Some(2));
        classy.prints(&["loadBalancerClass \"example.com/x\" is another controller's"]);

        let note = json!({"service.beta.kubernetes.io/load-balancer-source-range": "10.0.0.0/8"});
        let path = "/api/v1/namespaces/default/services/web";
        let patch = json!({"metadata": {"annotations": note}});
        send(&scene.bed, "PATCH", path, &patch).await;
        let misspelt = scene.explain(&["service/default/web"]);
        let meant = "did you mean \"service.beta.kubernetes.io/load-balancer-source-ranges\"?";
        assert!(misspelt.stdout.contains("warning: ") && misspelt.stdout.contains(meant), "{}", misspelt.stdout);

        let none = scene.explain(&["service/default/none"]);
        assert_eq!((none.code, &*none.stdout), (Some(1), ""));
        assert!(none.stderr.contains("service \"default/none\" is not in the cluster"), "{}", none.stderr);
    }

    #[tokio::test]
    async fn with_a_leader_its_errors_are_reported_and_finished_work_is_ok() {
        let cloud = "faults: [{call: EnsureLoadBalancer, service: default/api, error: 'the quota is used up'}]";
        let Some(scene) = Scene::new(cloud, &[]).await else { return };
        scene.node("worker", json!({"providerID": "fake://worker"})).await;
        let uid = scene.service("web", json!({})).await;
        scene.service("api", json!({})).await;
        let (mut process, leader) = scene.lead();
        // Events are written last, in the background.
        scene.explain_until(&["service/default/web"], "  Normal EnsuredLoadBalancer ");
        let (code, text) = scene.explained("service/default/web", &uid);
        assert_eq!(code, Some(0), "{text}");
        for line in [
            "  done    address: 203.0.113.",
            "  done    lease kube-system/cloud-controller-manager: held by ",
            "  done    the controllers: have nothing to change for it\n",
            "  done    hosts: 1 of 1 nodes are hosts of the load balancer\n",
            "  Normal EnsuredLoadBalancer ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.ends_with("\nOK\n"), "{text}");

        // This pass plans the write; only the leader knows that it fails.
        let api = scene.explain_until(&["service/default/api"], "last error: SyncLoadBalancerFailed");
        assert_eq!(api.code, Some(2));
        let end = api.stdout.lines().last().unwrap();
        assert!(end.starts_with("broken: ") && end.contains("the quota is used up"), "{end}");

        let said = scene.explain(&["service/default/api", &leader, "--leader-insecure"]);
        said.prints(&["  done    the asked replica: ", "service-lb-controller of the leader: ", "; retried "]);
        let document = scene.explain(&["service/default/api", &leader, "--leader-insecure", "-o", "json"]);
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

        // Its certificate is self-signed: no authority of the kubeconfig signed it.
        let distrusted = scene.explain(&["service/default/web", &leader]);
        assert_eq!(distrusted.code, Some(0), "{}", distrusted.stdout);
        distrusted.prints(&["cannot be reached: ", "--leader-ca"]);
        assert!(distrusted.stdout.ends_with("\nOK, as far as it could be seen\n"), "{}", distrusted.stdout);

        process.end();
        let left = scene.explain(&["service/default/web"]);
        assert!(left.stdout.contains("without a holder: no replica is active"), "{}", left.stdout);
        assert_eq!(left.code, Some(2));
    }

    #[tokio::test]
    async fn an_object_without_read_permission_is_a_line_and_no_failure() {
        let Some(scene) = Scene::new("", &[]).await else { return };
        scene.node("worker", json!({"providerID": "fake://worker"})).await;
        scene.service("plain", json!({"type": "ClusterIP"})).await;
        scene.service("web", json!({})).await;
        let reader = scene.bed.kubeconfig_for_user("reader", &[]).unwrap();
        let nothing = scene.explain_as(&reader, &["node/worker"]);
        nothing.assert_may_not_list_nodes();

        let rules = json!([{"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list"]}]);
        create_role(&scene.bed, "explain-reader", rules).await;
        bind(&scene.bed, "explain-reader", "User", "reader").await;
        let (process, leader) = scene.lead();
        let deadline = Instant::now() + Duration::from_secs(30);
        let words = ["service/default/web", &*leader, "--leader-insecure"];
        let seen = loop {
            let seen = scene.explain_as(&reader, &words);
            if seen.code == Some(0) {
                break seen;
            }
            assert!(Instant::now() < deadline, "{}{}{}", seen.stdout, seen.stderr, process.log());
        };
        seen.prints(&[
            "  unseen  lease kube-system/cloud-controller-manager: may not be read: grant get on leases",
            "  unseen  events: may not be listed: grant list on events in the namespace default",
            ": the user of the kubeconfig may not see it: grant get on the nonResourceURL /debug/state\n",
        ]);
        assert!(seen.stdout.ends_with("\nOK, as far as it could be seen\n"), "{}", seen.stdout);
    }
}
