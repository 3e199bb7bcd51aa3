//! Mistakes of other programs, each tested separately.

use ccm_provider::ServiceAction;

use super::scene::{Scene, internal, local, web};

#[tokio::test]
async fn a_subnetwork_in_another_spelling_keeps_the_rule_and_its_address() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    let ip = scene.ensure(&mut web).await;
    let made = scene.object("forwardingRules", "LB");
    let path = scene.bed.subnetwork.clone();
    assert!(path.starts_with("projects/") && made["subnetwork"].as_str().unwrap().starts_with("https://"));
    let full = format!("https://compute.googleapis.com/compute/beta/{path}");
    for spelling in [path.clone(), full, path.rsplit('/').next().unwrap().to_owned()] {
        // The last value of a key is used.
        scene.reconfigure(&format!("subnetwork-name = {spelling}")).await;
        let mark = scene.cloud().mark();
        assert_eq!(scene.ensure(&mut web).await, ip, "{spelling}");
        assert_eq!(scene.writes(mark), [] as [&str; 0], "{spelling}");
    }
    assert_eq!(scene.object("forwardingRules", "LB"), made);
}

#[tokio::test]
async fn a_deletion_that_finds_everything_gone_is_done_whatever_finalizers_say() {
    let mut scene = Scene::with(&["n1"]).await;
    for mut service in [web(), internal(web()), local(), internal(local())] {
        scene.ensure(&mut service).await;
        // Another process has deleted everything; this one has an older copy with the finalizer.
        let mut older = service.clone();
        scene.delete(&mut service).await;
        scene.restart().await;
        assert!(!older.metadata.finalizers.is_empty());
        let mark = scene.cloud().mark();
        scene.ask(&mut older, ServiceAction::Delete).await.0.unwrap();
        assert_eq!((scene.writes(mark), older.metadata.finalizers), (Vec::new(), Vec::new()));
        assert_eq!(scene.names(), [] as [&str; 0]);
    }
}
