//! The order of the start, and how a process ends: the first error is the one that the user sees.

use std::net::TcpListener;

use crate::process::run;

/// A port that is taken, as flags.
fn taken() -> (TcpListener, [String; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, ["--bind-address=127.0.0.1".into(), format!("--secure-port={port}")])
}

#[test]
fn validation_comes_before_the_kubeconfig() {
    let ended = run(&["--cloud-provider=fake", "--controllers=nope", "--kubeconfig=/nonexistent"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("\"nope\" is not in the list of known controllers"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("/nonexistent:"), "{}", ended.stderr);
}

#[test]
fn the_kubeconfig_comes_before_the_port() {
    let (_listener, [address, port]) = taken();
    let ended = run(&["--cloud-provider=fake", "--kubeconfig=/nonexistent", &address, &port]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("--kubeconfig /nonexistent: "), "{}", ended.stderr);
}

#[test]
fn the_port_comes_before_the_provider() {
    let (_listener, [address, port]) = taken();
    let master = "--master=http://127.0.0.1:1";
    let ended = run(&["--cloud-provider=fake", master, "--cloud-config=/nonexistent", &address, &port]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("failed to create listener"), "{}", ended.stderr);
}

#[test]
fn the_provider_is_made_before_anyone_leads() {
    // The API server is unreachable, and still the process ends with the provider's error.
    let start = |more: &[&str]| run(&[&["--master=http://127.0.0.1:1", "--secure-port=0"], more].concat());
    let ended = start(&["--cloud-provider=fake", "--cloud-config=/nonexistent"]);
    assert_eq!(ended.code, Some(255));
    assert!(
        ended.stderr.contains("Couldn't open cloud provider configuration /nonexistent: No such file"),
        "{}",
        ended.stderr
    );
    let ended = start(&["--cloud-provider=external"]);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("Cloud provider is nil"), "{}", ended.stderr);
    let ended = start(&["--cloud-provider=nowhere"]);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("unknown cloud provider \"nowhere\" (compiled in: "), "{}", ended.stderr);
}

#[test]
fn a_cloud_without_cluster_id_needs_a_flag_that_allows_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hasClusterID: false").unwrap();
    let config = format!("--cloud-config={}", file.path().display());
    let args =
        ["--cloud-provider=fake", &config, "--master=http://127.0.0.1:1", "--secure-port=0", "--leader-elect=false"];
    let ended = run(&args);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("no ClusterID found"), "{}", ended.stderr);
    let ended = run(&[&args[..], &["--allow-untagged-cloud"]].concat());
    assert!(ended.stderr.contains("detected a cluster without a ClusterID"), "{}", ended.stderr);
    assert!(ended.stderr.contains("failed to wait for apiserver being healthy"), "it goes on: {}", ended.stderr);
}

mod real_apiserver {
    use std::time::{Duration, Instant};

    use ccm_test_bed::Bed;

    use crate::process::Process;
    use crate::scene::{create_service, send, until};

    struct Cloud {
        config: tempfile::NamedTempFile,
        lease: String,
    }

    impl Cloud {
        fn new(text: &str) -> Self {
            let config = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(config.path(), text).unwrap();
            Self { config, lease: format!("start-{}", uuid::Uuid::new_v4()) }
        }

        fn start(&self, bed: &Bed, more: &[&str]) -> Process {
            let kubeconfig = format!("--kubeconfig={}", bed.kubeconfig().display());
            let config = format!("--cloud-config={}", self.config.path().display());
            let lease = format!("--leader-elect-resource-name={}", self.lease);
            let args = ["--cloud-provider=fake", &kubeconfig, &config, &lease, "--secure-port=0", "--v=2"];
            Process::start(&[&args, more].concat())
        }

        fn lease_path(&self) -> String {
            format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", self.lease)
        }
    }

    #[tokio::test]
    async fn routes_without_a_range_end_with_255_and_say_which_flags() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let cloud = Cloud::new("interfaces: {routes: true}");
        let mut process = cloud.start(bed, &[]);
        assert_eq!(process.wait(), Some(255));
        assert!(process.log().contains("--cluster-cidr"), "{}", process.log());
        let mut process = cloud.start(bed, &["--configure-cloud-routes=false"]);
        process.wait_for("Skipping \"node-route-controller\"");
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
    }

    #[tokio::test]
    async fn both_signals_end_with_0_and_a_second_one_at_once() {
        // Its own cluster: other managers would create the load balancer first.
        let Some(bed) = Bed::start().await.unwrap() else { return };
        let bed = &bed;
        let cloud = Cloud::new("");
        for signal in ["TERM", "INT"] {
            let mut process = cloud.start(bed, &[]);
            process.wait_for("Started \"service-lb-controller\"");
            process.signal(signal);
            assert_eq!(process.wait(), Some(0), "{signal}: {}", process.log());
        }
        // A hanging write to the cloud may take 20 s to end; the second signal does not wait for it.
        let calls = tempfile::NamedTempFile::new().unwrap();
        let config = format!("callLog: {}\nfaults: [{{call: EnsureLoadBalancer, delay: 10m}}]", calls.path().display());
        let hung = Cloud::new(&config);
        let mut process = hung.start(bed, &[]);
        let name = format!("hung-{}", uuid::Uuid::new_v4());
        create_service(bed, &name, serde_json::json!({})).await;
        until("the balancer is asked for", async || {
            std::fs::read_to_string(calls.path()).unwrap().contains("EnsureLoadBalancer")
        })
        .await;
        process.signal("TERM");
        process.wait_for("a second signal ends the process at once");
        let began = Instant::now();
        process.signal("TERM");
        assert_eq!(process.wait(), Some(1));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_lost_lease_ends_with_1() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let cloud = Cloud::new("");
        let mut process = cloud.start(bed, &[]);
        process.wait_for("Started \"service-lb-controller\"");
        let path = cloud.lease_path();
        let other = serde_json::json!({"spec": {"holderIdentity": "another"}});
        send(bed, "PATCH", &path, &other).await;
        assert_eq!(process.wait(), Some(1));
        assert!(process.log().contains("leaderelection lost"), "{}", process.log());
    }

    #[tokio::test]
    async fn controllers_start_in_the_interval_that_was_asked_for() {
        let Some(bed) = Bed::shared().await.unwrap() else { return };
        let cloud = Cloud::new("");
        let process = cloud.start(bed, &["--controller-start-interval=1s", "--configure-cloud-routes=false"]);
        process.wait_for("Started \"cloud-node-controller\"");
        let began = Instant::now();
        process.wait_for("Started \"service-lb-controller\"");
        // Two pauses between three controllers, each of one to two seconds.
        assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    }
}
