//! See [`crate::real_apiserver::pods`].

use ccm_cloudsim::aws::imds::ImdsOptions;

use super::*;
use crate::real_apiserver::pods::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_go_program_run_with_only_the_image_replaced() {
    let Some(world) = World::start(|| Some(Cloud::simulated())).await else { return };
    // Where the pods run. Those without a file get everything from it.
    let (control, _) = world.instance(0);
    let metadata = world.cloud.aws().imds(&control, ImdsOptions::default()).unwrap();
    let environment = [("AWS_ENDPOINT_URL", world.cloud.url()), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url())];
    for (number, pod) in Pod::all_of("aws") {
        let (id, name) = world.node(number + 1).await;
        let started = pod.start(&world.rig, &world.program, &world.config("", &[]), &environment);
        assert!(started.initialized(&world.rig, &name).await.provider_id().ends_with(&id));
        started.end(&world.rig).await;
    }
}
