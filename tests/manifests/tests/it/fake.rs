//! The overlay with the simulated cloud has the effects on a cluster that `manifests/README.md` describes.

use std::sync::Arc;

use ccm_provider::{Aspects, CloudConfig, CloudProvider, FlagValues, Lookup, Node, ProviderFactory};
use ccm_provider_fake::Factory;

use crate::tools::read;

const FILE: &str = "overlays/fake/cloud.yaml";

async fn cloud(text: String) -> Arc<dyn CloudProvider> {
    Factory.build(Some(CloudConfig { text, path: FILE.into() }), &FlagValues::default()).await.unwrap()
}

#[tokio::test]
async fn the_fake_overlay_knows_its_nodes_only_and_serves_every_service_unless_switched_off() {
    let file = read(FILE);
    let cloud_of_overlay = cloud(file.clone()).await;
    let nodes = ["worker-1", "other"].map(|name| Arc::new(Node { name: name.into(), ..Node::default() }));
    let answers = cloud_of_overlay.instances().unwrap().lookup(&nodes, Aspects::LIFECYCLE).await;
    assert!(matches!(answers[..], [Lookup::Found(_), Lookup::Unknown(_)]), "{answers:?}");
    assert!(cloud_of_overlay.load_balancer().is_some());

    let off = file.replace("loadBalancer: true", "loadBalancer: false");
    assert_ne!(off, file);
    assert!(cloud(off).await.load_balancer().is_none());
}
