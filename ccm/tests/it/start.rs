//! The order of the start and the exit of a process: the user sees the first error.

use std::net::TcpListener;

use crate::process::run;

#[test]
fn the_first_error_in_the_order_of_the_start_ends_the_program() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = ["--bind-address=127.0.0.1", &format!("--secure-port={}", listener.local_addr().unwrap().port())];
    // The API server is unreachable, which is detected last.
    let unreachable = ["--master=http://127.0.0.1:1"];
    let (fake, no_port) = (["--cloud-provider=fake"], ["--secure-port=0"]);
    let [no_kubeconfig, no_config] = [["--kubeconfig=/nonexistent"], ["--cloud-config=/nonexistent"]];
    let rows: [(Vec<&str>, i32, &str); 6] = [
        (
            [&fake[..], &["--controllers=nope"], &no_kubeconfig].concat(),
            1,
            "Error: \"nope\" is not in the list of known controllers",
        ),
        ([&fake[..], &no_kubeconfig, &taken].concat(), 1, "the kubeconfig /nonexistent: "),
        ([&fake[..], &unreachable, &no_config, &taken].concat(), 1, "failed to create listener: failed to listen on"),
        (
            [&fake[..], &unreachable, &no_port, &no_config].concat(),
            255,
            "Couldn't open cloud provider configuration /nonexistent: No such file",
        ),
        ([&["--cloud-provider=external"][..], &unreachable, &no_port].concat(), 255, "Cloud provider is nil"),
        (
            [&["--cloud-provider=nowhere"][..], &unreachable, &no_port].concat(),
            255,
            "unknown cloud provider \"nowhere\" (compiled in: ",
        ),
    ];
    for (args, code, text) in rows {
        let ended = run(&args);
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
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

    use ccm_test_bed::{Bed, Options};

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
        process.end();
    }

    #[tokio::test]
    async fn both_signals_end_with_0_and_a_second_one_at_once() {
        // A separate cluster: other managers would create the load balancer first.
        let Some(bed) = Bed::reused(Options::default()).await.unwrap() else { return };
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
        // Two delays between three controllers, each of one to two seconds.
        assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    }
}
