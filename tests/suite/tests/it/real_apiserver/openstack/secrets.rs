//! No output contains a secret. Every test asserts this at its end for its logs and events; this module at the highest
//! verbosity.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

ccm_test_openstack::cases! { [crate::real_apiserver::openstack]
    both:
        no_secret_is_shown_at_any_verbosity;
    simulated:
}

const LOUD: &[&str] = &["--configure-cloud-routes=false", "-v=10"];

async fn no_secret_is_shown_at_any_verbosity(world: &World) {
    let rig = &world.rig;
    let wrong = world.cloud.login().replace(&world.cloud.secrets()[0], "wr0ng-password");
    let mut refused = world.manager_with(&wrong, LOUD, &[]);
    let status = refused.process.ended(LONG).await;
    let output = refused.process.output();
    assert!(!status.success() && output.contains("401") && !output.contains("wr0ng"), "{output}");

    world.machine(1).await;
    let credential = world.cloud.login_with_credential();
    for (name, login) in [("password", world.cloud.login()), ("credential", credential)] {
        let manager = world.manager_with(&login, LOUD, &[]);
        rig.create(service(&format!("{name}-bad"), &[("flavor-id", "0badbad0-1111-4222-8333-444455556666")], &[80]))
            .await;
        if let Some(simulation) = world.cloud.simulation() {
            let message = "refused".to_owned();
            let fault = Fault::Code { status: 400, code: "Bad".to_owned(), message };
            simulation.fault(Rule::every(fault).on("load-balancer", "loadbalancer_create"));
        }
        rig.until(LONG, "a failure", async |rig| {
            (rig.count_events(&format!("{name}-bad"), "SyncLoadBalancerFailed").await > 0).then_some(())
        })
        .await;
        if let Some(simulation) = world.cloud.simulation() {
            simulation.faults(Faults::clear);
            simulation.expire_tokens();
        }
        rig.create(service(name, &[], &[80])).await;
        world.rig.address(name).await;
        for path in ["/metrics", "/configz", "/debug/state", "/healthz?verbose"] {
            let (status, text) = rig.bed().get_from(manager.port, path).await.unwrap();
            assert_eq!(status, 200, "{path}: {text}");
            world.shows_no_secret(path, &text);
        }
        world.rig.delete_service(&format!("{name}-bad")).await;
        world.rig.delete_service(name).await;
        assert!(manager.process.output().contains("logged in at Keystone"), "not loud:\n{}", manager.process.output());
        manager.stop().await;
    }
}
