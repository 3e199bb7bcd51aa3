//! Connections to a real API server: how many there are, and what happens when the server becomes unreachable.

mod real_apiserver {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Authority, Bed};
    use serde_json::json;

    use crate::kubeconfig::{Kubeconfig, certificate_user};
    use crate::process::Process;
    use crate::relay::Relay;

    /// Shorter than the default 45 s after which a silent peer is detected.
    const LONG: Duration = Duration::from_secs(40);

    /// Waits until the condition holds.
    async fn until(what: &str, process: &Process, mut is_so: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_so().await {
            assert!(Instant::now() < deadline, "never: {what}\n{}", process.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A node as a kubelet registers it.
    async fn register(bed: &Bed, name: &str) {
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [taint]}});
        let (status, body) = bed.request("POST", "/api/v1/nodes", &bed.token, Some(&node)).await.unwrap();
        assert_eq!(status, 201, "{body}");
    }

    async fn initialized(bed: &Bed, name: &str, process: &Process) {
        until(&format!("node {name} is initialized"), process, async || {
            let (_, node) = bed.get(&format!("/api/v1/nodes/{name}")).await.unwrap();
            node.contains("providerID") && !node.contains("cloudprovider.kubernetes.io/uninitialized")
        })
        .await;
    }

    fn end(process: &mut Process) {
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0), "{}", process.log());
    }

    struct Scene {
        bed: Bed,
        relay: Relay,
        folder: tempfile::TempDir,
    }

    impl Scene {
        async fn new() -> Option<Self> {
            let bed = Bed::start().await.unwrap()?;
            Some(Self { relay: Relay::to(&bed.url).await, bed, folder: tempfile::tempdir().unwrap() })
        }

        fn kubeconfig(&self) -> Kubeconfig {
            Kubeconfig::of(&self.bed).server(format!("https://{}", self.relay.address))
        }

        fn folder(&self) -> &Path {
            self.folder.path()
        }

        /// The number of connections of an idle process that watches, leads and has written.
        async fn connections(
            &self,
            config: &Kubeconfig,
            args: &[&str],
            environment: &[(&str, &str)],
            node: &str,
        ) -> usize {
            let mut process = config.start(self.folder(), args, environment);
            register(&self.bed, node).await;
            initialized(&self.bed, node, &process).await;
            // The lease is renewed twice while the number stays the same.
            let (mut count, mut since) = (self.relay.open(), Instant::now());
            until("the number of connections stays the same", &process, async || {
                if count != self.relay.open() {
                    (count, since) = (self.relay.open(), Instant::now());
                }
                since.elapsed() > Duration::from_secs(4)
            })
            .await;
            end(&mut process);
            until("all connections are closed", &process, async || self.relay.open() == 0).await;
            count
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn watches_and_requests_share_one_connection_unless_http2_is_switched_off() {
        let Some(scene) = Scene::new().await else { return };
        let token = scene.kubeconfig();
        assert_eq!(scene.connections(&token, &[], &[], "by-token").await, 1);
        // Requests with tokens of accounts share the connection of the process.
        let accounts = "--use-service-account-credentials";
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "accounts"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}]});
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let (status, body) = scene.bed.request("POST", path, &scene.bed.token, Some(&binding)).await.unwrap();
        assert_eq!(status, 201, "{body}");
        assert_eq!(scene.connections(&token, &[accounts], &[], "by-account").await, 1);
        // A client certificate belongs to a connection, so the accounts use another one.
        let certificate = scene.bed.client_certificate(Authority::Client, "base", &["system:masters"]).unwrap();
        let user = certificate_user(&certificate.certificate_file, &certificate.key_file);
        let certificate = scene.kubeconfig().user(user);
        assert_eq!(scene.connections(&certificate, &[accounts], &[], "by-certificate").await, 2);
        // Nodes and Services are watched: that alone takes two.
        let http1 = [("DISABLE_HTTP2", "1")];
        assert!(scene.connections(&token, &[], &http1, "over-http1").await >= 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_peer_that_falls_silent_is_noticed_and_nothing_is_missed() {
        let Some(scene) = Scene::new().await else { return };
        let soon = [("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1"), ("HTTP2_PING_TIMEOUT_SECONDS", "1")];
        // Only watches: without a lease, whose renewal would detect the silence.
        let mut process = scene.kubeconfig().start(scene.folder(), &["--leader-elect=false"], &soon);
        register(&scene.bed, "before").await;
        initialized(&scene.bed, "before", &process).await;
        for round in 1..=2 {
            let made = scene.relay.made();
            scene.relay.fall_silent();
            let name = format!("meanwhile-{round}");
            register(&scene.bed, &name).await;
            initialized(&scene.bed, &name, &process).await;
            assert!(scene.relay.made() > made, "over a connection that carries nothing?");
            // The silent connection is closed, and one of the new ones remains.
            until("one connection is open", &process, async || scene.relay.open() == 1).await;
        }
        end(&mut process);
    }
}
