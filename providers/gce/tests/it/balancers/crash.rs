//! A process that dies after any of its writes: the next one ends where an undisturbed one does.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Service, ServiceAction};
use futures::future::join_all;

use super::scene::{Scene, TYPE, internal, local, ports, set, web};
use crate::bed::contents;

const SHARE: &str = "alpha.cloud.google.com/load-balancer-backend-share";

/// What a process dies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    CreateExternal,
    CreateInternal,
    ChangeExternal,
    ChangeInternal,
    ToInternal,
    ToExternal,
    /// From health checks of its own to those of the nodes.
    ToClusterExternal,
    ToClusterInternal,
    /// From the nodes' health checks to those of its own; nobody else needs the former.
    ToLocalExternal,
    ToLocalInternal,
    /// From a backend service that Services may share to one of its own, with each policy.
    UnshareBackend,
    UnshareToLocal,
    DeleteExternal,
    DeleteInternal,
    DeleteCluster,
    DeleteShared,
}

impl Life {
    /// What there is before, and the Service that is then worked on.
    async fn before(self, scene: &mut Scene) -> Service {
        let mut service = match self {
            Self::CreateExternal
            | Self::ChangeExternal
            | Self::ToInternal
            | Self::ToLocalExternal
            | Self::DeleteCluster => web(),
            Self::CreateInternal | Self::ChangeInternal | Self::ToExternal | Self::ToLocalInternal => internal(web()),
            Self::UnshareBackend | Self::UnshareToLocal | Self::DeleteShared => {
                let mut web = internal(web());
                set(&mut web, SHARE, "true");
                web
            }
            Self::DeleteExternal | Self::ToClusterExternal => local(),
            Self::DeleteInternal | Self::ToClusterInternal => internal(local()),
        };
        if matches!(self, Self::CreateExternal | Self::CreateInternal) {
            return service;
        }
        scene.ensure(&mut service).await;
        match self {
            Self::ChangeExternal => {
                service.spec.ports = ports("UDP", &[53, 54]);
                service.spec.session_affinity = "ClientIP".to_owned();
                service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
            }
            Self::ChangeInternal => {
                service.spec.ports = ports("UDP", &[53, 54]);
                set(&mut service, SHARE, "true");
            }
            Self::ToInternal => set(&mut service, TYPE, "Internal"),
            Self::ToExternal => service.metadata.annotations.clear(),
            Self::ToClusterExternal | Self::ToClusterInternal => {
                service.spec.external_traffic_policy = "Cluster".to_owned();
                service.spec.health_check_node_port = 0;
            }
            Self::ToLocalExternal | Self::ToLocalInternal | Self::UnshareToLocal => {
                service.spec.external_traffic_policy = "Local".to_owned();
                service.spec.health_check_node_port = 31000;
            }
            Self::UnshareBackend => drop(service.metadata.annotations.remove(SHARE)),
            _ => {}
        }
        if matches!(self, Self::ChangeExternal | Self::ChangeInternal) {
            scene.nodes = vec![scene.bed.node("n2")];
        }
        service
    }

    fn action(self) -> ServiceAction {
        match self {
            Self::DeleteExternal | Self::DeleteInternal | Self::DeleteCluster | Self::DeleteShared => {
                ServiceAction::Delete
            }
            _ => ServiceAction::Ensure,
        }
    }
}

/// The end of an undisturbed life, and its writes.
async fn undisturbed(life: Life) -> (Vec<String>, usize) {
    let mut scene = Scene::with(&["n1"]).await;
    let mut service = life.before(&mut scene).await;
    let mark = scene.cloud().mark();
    scene.ask(&mut service, life.action()).await.0.unwrap();
    (contents(scene.cloud()), scene.writes(mark).len())
}

/// The write with this number is the last one that is done, and its answer is lost; 0: none is done.
async fn dies(life: Life, last: u64, expected: &[String]) {
    let mut scene = Scene::with(&["n1"]).await;
    let mut service = life.before(&mut scene).await;
    if last > 0 {
        scene.cloud().fault(Rule::writes_from(last, Fault::ResetAfter).window(last - 1, 1));
    }
    // Refused at once: who is dead does not try again. The rule does not see the write whose answer is lost.
    scene.cloud().fault(Rule::writes_from(last, Fault::Deny));
    let _ = scene.ask(&mut service, life.action()).await;
    scene.cloud().faults(Faults::clear);
    scene.restart().await;
    let answer = scene.ask(&mut service, life.action()).await.0;
    assert!(answer.is_ok(), "{life:?}, dead after write {last}: {answer:?}");
    let now = contents(scene.cloud());
    let (left, missing): (Vec<_>, Vec<_>) = (
        now.iter().filter(|it| !expected.contains(it)).collect(),
        expected.iter().filter(|it| !now.contains(it)).collect(),
    );
    assert!(left.is_empty() && missing.is_empty(), "{life:?}, dead after write {last}: {left:#?}, not {missing:#?}");
    if life.action() == ServiceAction::Ensure {
        scene.is_steady(&mut service).await;
    }
    scene.is_correct();
}

async fn dies_after_each_write(life: Life) {
    let (expected, writes) = undisturbed(life).await;
    assert!(writes >= 5, "{writes}");
    if life.action() == ServiceAction::Delete {
        assert_eq!(expected, [] as [&str; 0]);
    }
    // What no Service needs any more is gone.
    let gone = match life {
        Life::ToLocalExternal | Life::ToLocalInternal | Life::UnshareToLocal => "k8s-cid-node",
        Life::UnshareBackend => "k8s-cid-internal-",
        _ => "nothing",
    };
    assert!(!expected.iter().any(|line| line.contains(gone)), "{expected:#?}");
    join_all((0..=u64::try_from(writes).unwrap()).map(|last| dies(life, last, &expected))).await;
}

macro_rules! lives {
    ($($name:ident $life:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            dies_after_each_write(Life::$life).await;
        })*
    };
}

lives!(
    an_external_creation_survives_any_death CreateExternal,
    an_internal_creation_survives_any_death CreateInternal,
    an_external_change_survives_any_death ChangeExternal,
    an_internal_change_survives_any_death ChangeInternal,
    a_change_to_internal_survives_any_death ToInternal,
    a_change_to_external_survives_any_death ToExternal,
    another_policy_of_an_external_balancer_survives_any_death ToClusterExternal,
    another_policy_of_an_internal_balancer_survives_any_death ToClusterInternal,
    an_own_policy_of_an_external_balancer_survives_any_death ToLocalExternal,
    an_own_policy_of_an_internal_balancer_survives_any_death ToLocalInternal,
    the_end_of_a_shared_backend_service_survives_any_death UnshareBackend,
    the_end_of_a_shared_backend_service_and_health_check_survives_any_death UnshareToLocal,
    an_external_deletion_survives_any_death DeleteExternal,
    an_internal_deletion_survives_any_death DeleteInternal,
    the_deletion_of_the_last_external_balancer_survives_any_death DeleteCluster,
    the_deletion_of_the_last_internal_balancer_survives_any_death DeleteShared,
);
