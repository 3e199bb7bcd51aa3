//! The duration of syncs of many Services, with the latencies of the real API.

mod long_lane {
    use std::time::{Duration, Instant};

    use ccm_cloudsim::core::latency::Latency;
    use ccm_cloudsim::gce::Options;
    use ccm_provider::{Scope, ServiceAction, ServiceWork};
    use serde_json::json;

    use crate::balancers::scene::{LB, Scene, internal, service, web};
    use crate::bed::CLUSTER;

    /// Operations of different Services run concurrently: one after the other, 100 would take half an hour.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn services_are_made_side_by_side() {
        for kind in [|service| service, internal] {
            let latency =
                Latency { read: Duration::from_millis(50), write: Duration::from_millis(50), ..Latency::default() };
            let options = Options { operation: Duration::from_secs(2), latency, ..Options::default() };
            let scene = Scene::of(options, &["n1", "n2"], "", &[]).await;
            let services: Vec<_> = (0..100).map(|number| kind(service(&format!("s{number}"), json!({})))).collect();
            let work: Vec<ServiceWork> =
                services.iter().map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure)).collect();
            let mut times = Vec::new();
            for action in
                [ServiceAction::Ensure, ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete]
            {
                let work: Vec<ServiceWork> = work.iter().map(|item| ServiceWork { action, ..item.clone() }).collect();
                let (begin, mark) = (Instant::now(), scene.cloud().mark());
                let answers = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await;
                let failed = answers.iter().find_map(|answer| answer.result.as_ref().err());
                assert!(failed.is_none(), "{failed:?}");
                times.push((action, begin.elapsed(), scene.bed.calls(mark).len(), scene.writes(mark).len()));
            }
            eprintln!("{times:?}");
            assert!(times[0].1 < Duration::from_secs(120) && times[1].1 < Duration::from_secs(2), "{times:?}");
            assert_eq!((times[1].3, times[2].3), (0, 0));
            assert_eq!(scene.names(), [] as [&str; 0]);
        }
    }

    /// An hour may pass until it ends, and each call for its group looks at it first.
    #[tokio::test]
    async fn an_operation_that_hangs_for_long_delays_a_new_service_only_briefly() {
        let scene = Scene::with(&["n1"]).await;
        scene
            .cloud()
            .change(|options| options.operations = [(format!("forwardingRules.insert {LB}"), 3_600_000)].into());
        let began = Instant::now();
        let mut hung = web();
        while began.elapsed() < Duration::from_secs(21) {
            assert!(scene.try_ensure(&mut hung).await.unwrap_err().is_in_progress());
        }
        let began = Instant::now();
        scene.ensure(&mut service("other", json!({}))).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
