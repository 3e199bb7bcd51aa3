//! Connections to a real API server: their number, and the effect of an unreachable server.

mod real_apiserver {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use ccm_test_bed::{Authority, Bed, Options, Reused};

    use crate::kubeconfig::{Kubeconfig, certificate_user};
    use crate::relay::Relay;
    use crate::scene::{bind, register, until, until_initialized};

    struct Scene {
        bed: Reused,
        relay: Relay,
        folder: tempfile::TempDir,
    }

    impl Scene {
        async fn new() -> Option<Self> {
            let bed = Bed::reused(Options::default()).await.unwrap()?;
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
            until_initialized(&self.bed, node).await;
            // The lease is renewed twice while the number stays the same.
            let (mut count, mut since) = (self.relay.open(), Instant::now());
            until("the number of connections stays the same", async || {
                if count != self.relay.open() {
                    (count, since) = (self.relay.open(), Instant::now());
                }
                since.elapsed() > Duration::from_secs(4)
            })
            .await;
            process.end();
            until("all connections are closed", async || self.relay.open() == 0).await;
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
        bind(&scene.bed, "cluster-admin", "Group", "system:serviceaccounts").await;
        assert_eq!(scene.connections(&token, &[accounts], &[], "by-account").await, 1);
        // A client certificate belongs to a connection, so the accounts use another one.
        let certificate = scene.bed.client_certificate(Authority::Client, "base", &["system:masters"]).unwrap();
        let user = certificate_user(&certificate.certificate_file, &certificate.key_file);
        let certificate = scene.kubeconfig().user(user);
        assert_eq!(scene.connections(&certificate, &[accounts], &[], "by-certificate").await, 2);
        // The watches of nodes and Services take two connections.
        let http1 = [("DISABLE_HTTP2", "1")];
        assert!(scene.connections(&token, &[], &http1, "over-http1").await >= 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_peer_that_falls_silent_is_noticed_and_nothing_is_missed() {
        let Some(scene) = Scene::new().await else { return };
        let soon = [("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1"), ("HTTP2_PING_TIMEOUT_SECONDS", "1")];
        // Only watches: without a lease, whose renewal would detect the unresponsive connection.
        let mut process = scene.kubeconfig().start(scene.folder(), &["--leader-elect=false"], &soon);
        register(&scene.bed, "before").await;
        until_initialized(&scene.bed, "before").await;
        for round in 1..=2 {
            let made = scene.relay.made();
            scene.relay.fall_silent();
            let name = format!("meanwhile-{round}");
            register(&scene.bed, &name).await;
            until_initialized(&scene.bed, &name).await;
            assert!(scene.relay.made() > made, "over a connection that carries nothing?");
            // The unresponsive connection is closed, and one of the new ones remains.
            until("one connection is open", async || scene.relay.open() == 1).await;
        }
        process.end();
    }

    /// Pings find such a connection later than the renew deadline.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_whose_connection_falls_silent_renews_its_lease_over_another() {
        let Some(scene) = Scene::new().await else { return };
        let lease = "--leader-elect-resource-name=silent";
        let mut process = scene.kubeconfig().start(scene.folder(), &[lease], &[]);
        register(&scene.bed, "before").await;
        until_initialized(&scene.bed, "before").await;
        let spec = async || {
            let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/silent";
            let (_, lease) = scene.bed.get(path).await.unwrap();
            serde_json::from_str::<serde_json::Value>(&lease).unwrap()["spec"].clone()
        };
        let (made, before) = (scene.relay.made(), spec().await);
        scene.relay.fall_silent();
        let mut renewed = std::collections::BTreeSet::new();
        until("the lease is renewed again and again", async || {
            assert!(!process.log().contains("leaderelection lost"), "{}", process.log());
            renewed.insert(spec().await["renewTime"].to_string());
            renewed.len() > 3
        })
        .await;
        assert!(scene.relay.made() > made, "over a connection that carries nothing?");
        assert_eq!(spec().await["leaseTransitions"], before["leaseTransitions"]);
        process.end();
    }
}
