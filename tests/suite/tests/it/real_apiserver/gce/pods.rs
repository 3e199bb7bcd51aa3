//! See [`crate::real_apiserver::pods`].

use super::*;
use crate::real_apiserver::pods::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_go_program_run_with_only_the_image_replaced() {
    let Some(world) = World::start().await else { return };
    let config = format!(
        "[global]\napi-endpoint = {}\nnode-tags = {TAG}\nmultizone = true\nsubnetwork-name = nodes\n",
        world.gce.url()
    );
    let environment = [("GCE_METADATA_HOST", world.metadata.host())];
    for (number, pod) in Pod::all_of("gce") {
        let (_, name) = world.machine(number).await;
        let started = pod.start(&world.rig, env!("CARGO_BIN_EXE_ccm-under-test"), &config, &environment);
        started.initialized(&world.rig, &name).await;
        started.end(&world.rig).await;
    }
    assert_eq!(world.gce.violations(), [""; 0]);
}
