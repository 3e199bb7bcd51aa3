//! Changes by other clients in the cloud (drift), as reported by a running process: metrics of each controller, an
//! event, the plan.

mod real_apiserver {
    use serde_json::json;

    use crate::https;
    use crate::scene::{Scene, create_node, create_service, until};

    #[tokio::test(flavor = "multi_thread")]
    async fn drift_of_routes_and_of_balancers_is_in_metrics_of_one_process_and_in_the_plan() {
        const ROUTES: &str = "interfaces: {routes: true}";
        let Some(scene) = Scene::new(ROUTES, &["--cluster-cidr=10.1.0.0/16"]).await else { return };
        let bed = &scene.bed;
        let spec = json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "fake://a"});
        create_node(bed, "a", spec).await;
        create_service(bed, "web", json!({})).await;
        let port = https::free_port();
        let plan = |words: &[&str]| scene.ccm(&[&["plan"], words].concat());
        let manager = scene.start(&[
            &format!("--secure-port={port}"),
            &format!("--cert-dir={}", scene.text("certificates")),
            "--bind-address=127.0.0.1",
            "--authorization-always-allow-paths=/metrics",
            "--drift-check-period=1s",
            "--route-reconciliation-period=1s",
        ]);
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

        // Replaces the state of the cloud, which removes the objects of the controllers.
        scene.cloud(&format!(
            "{ROUTES}\nloadBalancers: {{initial: [{{service: default/unrelated, ingress: [{{ip: 203.0.113.77}}]}}]}}\n\
             routes: {{initial: [{{name: x, destinationCIDR: 192.168.0.0/16, targetNode: x}}]}}"
        ));
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
