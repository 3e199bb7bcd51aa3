//! See [`crate::real_apiserver::pods`].

use super::*;
use crate::real_apiserver::pods::Pod;

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_go_program_run_with_only_the_image_replaced() {
    simulated(async |world| {
        for (number, pod) in Pod::all_of("openstack") {
            let machine = world.machine(number + 1).await;
            let program = env!("CARGO_BIN_EXE_ccm-under-test");
            let started = pod.start(&world.rig, program, &world.cloud.login(), &[]);
            started.initialized(&world.rig, &machine.name).await;
            started.end(&world.rig).await;
        }
    })
    .await;
}
