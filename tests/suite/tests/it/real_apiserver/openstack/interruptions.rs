//! The program is stopped during its work, and the cloud fails for a while.

use std::time::Instant;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};

use super::*;

ccm_test_openstack::cases! { [crate::real_apiserver::openstack]
    both:;
    simulated:
        a_program_that_waits_for_a_balancer_stops_at_once,
        the_environment_sets_the_number_of_polls_of_a_pending_balancer,
        a_token_that_expires_in_the_middle_does_no_harm,
        a_proxy_that_answers_for_the_cloud_does_no_harm;
}

async fn a_program_that_waits_for_a_balancer_stops_at_once(world: &World) {
    let (mut manager, _machines) = world.with_nodes(1, "").await;
    world.simulation().freeze_provisioning(true);
    world.rig.create(service("web", &[], &[80])).await;
    // One read after the creation; then it waits.
    let looks =
        async || manager.calls("loadbalancer_create").await == 1 && manager.calls("loadbalancer_get").await >= 1;
    world.until("the program waits for the balancer", looks).await;
    assert_eq!(world.cloud.balancer().await["provisioning_status"], "PENDING_CREATE");
    let begin = Instant::now();
    manager.process.terminate();
    let status = manager.process.ended(LONG).await;
    assert!(status.success(), "{status}\n{}", manager.process.output());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}\n{}", begin.elapsed(), manager.process.output());

    world.simulation().freeze_provisioning(false);
    let manager = world.manager("", ARGS);
    world.rig.address("web").await;
    world.cloud.balancer().await;
    world.rig.delete_service("web").await;
    manager.stop().await;
}

async fn the_environment_sets_the_number_of_polls_of_a_pending_balancer(world: &World) {
    let first = world.with_nodes(1, "").await.0;
    first.stop().await;
    world.simulation().freeze_provisioning(true);
    // Some number of reads, and zero, which means the default of minutes.
    for (name, steps, gives_up) in [("short", "2", true), ("usual", "x", false)] {
        let manager =
            world.manager_with(&world.cloud.login(), ARGS, &[("OCCM_WAIT_LB_ACTIVE_STEPS", steps.to_owned())]);
        world.rig.create(service(name, &[], &[80])).await;
        let looks = async || manager.calls("loadbalancer_get").await >= if gives_up { 2 } else { 4 };
        world.until("looks at the balancer", looks).await;
        if gives_up {
            let event = world.rig.until_event(name, "SyncLoadBalancerFailed").await;
            assert!(event.contains("timeout waiting for the loadbalancer"), "{event}");
        } else {
            assert_eq!(world.rig.count_events(name, "SyncLoadBalancerFailed").await, 0);
        }
        manager.stop().await;
    }
    world.simulation().freeze_provisioning(false);
    let manager = world.manager("", ARGS);
    for name in ["short", "usual"] {
        world.rig.address(name).await;
        world.rig.delete_service(name).await;
    }
    manager.stop().await;
}

/// The delete requests since a position in the ledger.
fn deletions(world: &World, mark: u64) -> Vec<String> {
    world.simulation().ledger(|ledger| {
        ledger.mutating(mark).map(|entry| entry.action.clone()).filter(|action| action.ends_with("_delete")).collect()
    })
}

async fn a_token_that_expires_in_the_middle_does_no_harm(world: &World) {
    let (manager, _machines) = world.with_nodes(1, "").await;
    let mark = world.simulation().mark();
    world.slow(Duration::from_millis(300));
    world.rig.create(service("web", &[], &[80, 443])).await;
    world.until("a balancer", async || !world.cloud.balancers().await.is_empty()).await;
    world.simulation().expire_tokens();
    world.rig.address("web").await;
    assert_eq!(manager.calls("token_create").await, 2);
    world.simulation().expire_tokens();
    manager.is_steady("web").await;
    assert_eq!(manager.calls("token_create").await, 3);
    assert_eq!(world.rig.count_events("web", "SyncLoadBalancerFailed").await, 0);
    assert_eq!(deletions(world, mark), [""; 0]);
    world.rig.delete_service("web").await;
    manager.stop().await;
}

/// HTML instead of any response: the response of a broken proxy is no evidence.
async fn a_proxy_that_answers_for_the_cloud_does_no_harm(world: &World) {
    let (rig, simulation) = (&world.rig, world.simulation());
    let (manager, machines) = world.with_nodes(2, "").await;
    for status in [503, 404] {
        let name = |what: &str| format!("{what}-{status}");
        for what in ["goes", "stays"] {
            rig.create(service(&name(what), &[], &[80])).await;
            world.rig.address(&name(what)).await;
        }
        let (mark, before) = (simulation.mark(), simulation.balancers());
        simulation.fault(Rule::every(Fault::Html { status }));
        rig.set_ready(&machines[1].name, "Unknown").await;
        rig.patch_service(&name("stays"), json!({"spec": {"ports": tcp_ports(&[80, 443])}})).await;
        rig.delete("services", "default", &name("goes")).await;
        rig.create(service(&name("comes"), &[], &[80])).await;
        for what in ["stays", "goes", "comes"] {
            let failed =
                async |rig: &Rig| (rig.count_events(&name(what), "SyncLoadBalancerFailed").await > 0).then_some(());
            rig.until(LONG, &format!("{} fails", name(what)), failed).await;
        }
        let looks = async || simulation.ledger(|ledger| ledger.counts(mark)["compute:server_get"]) >= 3;
        world.until("looks at the server of a node that is not ready", looks).await;
        assert!(rig.node(&machines[1].name).await.is_some());
        assert!(rig.service(&name("goes")).await.is_some());
        assert_eq!(simulation.balancers(), before);

        simulation.faults(Faults::clear);
        rig.set_ready(&machines[1].name, "True").await;
        world.rig.address(&name("comes")).await;
        rig.until(LONG, "the deletion", async |rig| rig.service(&name("goes")).await.is_none().then_some(())).await;
        // The members of a port come last.
        let served = async || world.cloud.listeners().await.len() == 3 && world.cloud.members().await.len() == 6;
        world.until("the other port", served).await;
        manager.is_steady(&name("stays")).await;
        for what in ["stays", "comes"] {
            world.rig.delete_service(&name(what)).await;
        }
    }
    manager.stop().await;
}
