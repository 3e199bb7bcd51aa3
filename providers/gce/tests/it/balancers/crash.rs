//! A process that dies after any of its writes: see [`ccm_provider_contract::crash`].

use async_trait::async_trait;
use ccm_provider::{ProviderError, Service, ServiceAction};
use ccm_provider_contract::{Outage, Simulation, crash};

use super::scene::{Scene, TYPE, internal, local, ports, set, web};
use crate::bed::contents;

const SHARE: &str = "alpha.cloud.google.com/load-balancer-backend-share";

/// The work during which a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    CreateExternal,
    CreateInternal,
    ChangeExternal,
    ChangeInternal,
    ToInternal,
    ToExternal,
    /// From its own health check to that of the nodes.
    ToClusterExternal,
    ToClusterInternal,
    /// From the nodes' health check to its own; nothing else needs the former.
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
    /// Creates the earlier state, and returns the Service that is then processed.
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

/// A process that is about to process a Service.
struct Work {
    scene: Scene,
    service: Service,
}

#[async_trait(?Send)]
impl crash::Stage for Work {
    fn simulation(&self) -> &dyn Simulation {
        self.scene.cloud()
    }

    async fn work(&mut self, action: ServiceAction) -> Result<(), ProviderError> {
        self.scene.ask(&mut self.service, action).await.0.map(drop)
    }

    async fn restart(&mut self) {
        self.scene.restart().await;
    }

    async fn contents(&self) -> Vec<String> {
        contents(self.scene.cloud())
    }
}

async fn dies_after_each_write(life: Life) {
    let expected = crash::every_prefix(life.action(), 5, 8, async || {
        let mut scene = Scene::with(&["n1"]).await;
        let service = life.before(&mut scene).await;
        Work { scene, service }
    })
    .await;
    if life.action() == ServiceAction::Delete {
        assert_eq!(expected, [] as [&str; 0]);
    }
    // Objects that no Service needs any more are gone.
    let gone = match life {
        Life::ToLocalExternal | Life::ToLocalInternal | Life::UnshareToLocal => "k8s-cid-node",
        Life::UnshareBackend => "k8s-cid-internal-",
        _ => "nothing",
    };
    assert!(!expected.iter().any(|line| line.contains(gone)), "{expected:#?}");
}

/// The next process looks for what a change has made, whatever the Service asks for by then.
#[tokio::test]
async fn a_change_of_the_policy_that_is_taken_back_after_any_death_leaves_nothing() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        for last in 0..9 {
            let mut scene = Scene::with(&["n1"]).await;
            let (mut asked, mut changed) = (kind(web()), kind(local()));
            scene.ensure(&mut asked).await;
            let before = scene.names();
            changed.metadata.finalizers.clone_from(&asked.metadata.finalizers);
            scene.cloud().disrupt(Outage::AnswerLostAfter(last));
            let _ = scene.try_ensure(&mut changed).await;
            scene.cloud().disrupt(Outage::None);
            scene.restart().await;
            scene.ensure(&mut asked).await;
            assert_eq!(scene.names(), before, "dead after write {last}");
            scene.is_steady(&mut asked).await;
            scene.delete(&mut asked).await;
            assert_eq!(scene.names(), [] as [&str; 0], "dead after write {last}");
        }
    }
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
