//! Changes that others made in the cloud (drift), as reported by a running process: metrics of each controller, an
//! event, the plan.

mod real_apiserver {
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Bed, Options};
    use serde_json::{Value, json};

    use crate::https;
    use crate::process::{Process, run};

    /// Generous: the machine may be busy.
    const PATIENCE: Duration = Duration::from_secs(90);

    async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so().await {
            assert!(Instant::now() < deadline, "it does not come: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn create(bed: &Bed, path: &str, object: &Value) {
        let (status, body) = bed.request("POST", path, &bed.token, Some(object)).await.unwrap();
        assert_eq!(status, 201, "{body}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn drift_of_routes_and_of_balancers_is_in_metrics_of_one_process_and_in_the_plan() {
        let Some(bed) = Bed::start_with(Options::default()).await.unwrap() else { return };
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("cloud.yaml");
        let cloud = |more: &str| {
            let next = folder.path().join("next.yaml");
            std::fs::write(&next, format!("stateFile: state.json\ninterfaces: {{routes: true}}\n{more}\n")).unwrap();
            std::fs::rename(&next, &config).unwrap();
        };
        cloud("");
        let spec = json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "fake://a"});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": spec});
        create(&bed, "/api/v1/nodes", &node).await;
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
        create(&bed, "/api/v1/namespaces/default/services", &service).await;

        let shared = [
            "--cloud-provider=fake".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", bed.kubeconfig().display()),
            "--cluster-cidr=10.1.0.0/16".to_owned(),
        ];
        let port = https::free_port();
        let args: Vec<&str> = shared.iter().map(String::as_str).collect();
        let plan = |words: &[&str]| run(&[&["plan"], words, &args].concat());
        let (secure, certificates) =
            (format!("--secure-port={port}"), format!("--cert-dir={}", folder.path().display()));
        let more = [
            &secure,
            &certificates,
            "--bind-address=127.0.0.1",
            "--authorization-always-allow-paths=/metrics",
            "--drift-check-period=1s",
            "--route-reconciliation-period=1s",
        ];
        let manager = Process::start(&[&args[..], &more].concat());
        until("the plan is empty", async || plan(&[]).code == Some(0)).await;
        let metric = |name: &str, controller: &str| {
            let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            let (status, _, body) = https::exchange(port, None, request);
            assert_eq!(status, 200, "{body}");
            let start = format!("{name}{{controller=\"{controller}\"}} ");
            let line = body.lines().find_map(|line| line.strip_prefix(&start));
            line.map(|number| number.parse::<f64>().unwrap())
        };
        for controller in ["service-lb-controller", "node-route-controller"] {
            until("the first look", async || metric("ccm_drift_steps_total", controller).is_some()).await;
            assert_eq!(metric("ccm_drift_steps_total", controller), Some(0.0), "{controller}: {}", manager.log());
        }

        // Replaces the state of the cloud: what the controllers created is gone.
        cloud(
            "loadBalancers: {initial: [{service: default/unrelated, ingress: [{ip: 203.0.113.77}]}]}\n\
             routes: {initial: [{name: x, destinationCIDR: 192.168.0.0/16, targetNode: x}]}",
        );
        until("drift of balancers", async || metric("ccm_drift_steps", "service-lb-controller") > Some(0.0)).await;
        until("drift of routes", async || metric("ccm_drift_steps_total", "node-route-controller") > Some(0.0)).await;
        let drifted = plan(&["service/default/web"]);
        assert_eq!(drifted.code, Some(2), "{}", drifted.stderr);
        assert!(drifted.stdout.contains("+ create LoadBalancer"), "{}", drifted.stdout);
        until("the event", async || {
            let path = "/api/v1/namespaces/default/events";
            bed.request("GET", path, &bed.token, None).await.unwrap().1.contains("LoadBalancerDrift")
        })
        .await;
    }
}
