//! A process that dies after any of its writes, with balancers of both kinds: see [`ccm_provider_contract::crash`].

use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{LoadBalancer, ProviderError, Service, ServiceAction};
use ccm_provider_contract::{Simulation, crash};
use serde_json::json;

use crate::bed::{self, Bed, shape_of};
use crate::{classic, network};

/// Work on a Service.
struct Work {
    bed: Rc<Bed>,
    process: Arc<dyn LoadBalancer>,
    service: Service,
}

#[async_trait(?Send)]
impl crash::Stage for Work {
    fn simulation(&self) -> &dyn Simulation {
        &self.bed.aws
    }

    async fn work(&mut self, action: ServiceAction) -> Result<(), ProviderError> {
        self.bed.work(&*self.process, &self.service, action).await.map(drop)
    }

    async fn restart(&mut self) {
        self.process = self.bed.process().await;
    }

    async fn contents(&self) -> Vec<String> {
        shape_of(&self.bed)
    }
}

/// From one desired state of a Service to another; `None` is no Service. A neighbor shares the groups of the nodes.
async fn survives_any_death(least: usize, start: fn() -> Bed, before: Option<Service>, after: Option<Service>) {
    let (bed, action) = (start(), if after.is_some() { ServiceAction::Ensure } else { ServiceAction::Delete });
    let service = after.as_ref().or(before.as_ref()).unwrap();
    let is_network = service.metadata.annotations.contains_key(network::TYPE);
    let annotations: &[(&str, &str)] = if is_network { &[("type", "nlb")] } else { &[] };
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let process = bed.process().await;
    bed.ensure(&*process, &bed::service("other", annotations, &[(80, 30080)], ranges)).await;
    if let Some(before) = &before {
        bed.ensure(&*process, before).await;
    }
    // All lives run in the same account, one after the other.
    let begin = bed.aws.dump().unwrap();
    let bed = Rc::new(bed);
    crash::every_prefix(action, least, 1, async || {
        bed.aws.load(&begin).unwrap();
        Work { bed: bed.clone(), process: bed.process().await, service: service.clone() }
    })
    .await;
}

#[tokio::test]
async fn the_creation_of_a_classic_balancer_survives_any_death() {
    survives_any_death(3, classic::start, None, Some(classic::plain())).await;
}

#[tokio::test]
async fn an_update_of_a_classic_balancer_survives_any_death() {
    survives_any_death(3, classic::start, Some(classic::plain()), Some(classic::changed())).await;
}

#[tokio::test]
async fn a_change_to_a_group_of_the_user_survives_any_death() {
    survives_any_death(3, classic::start, Some(classic::plain()), Some(classic::named())).await;
}

#[tokio::test]
async fn the_deletion_of_a_classic_balancer_survives_any_death() {
    survives_any_death(3, classic::start, Some(classic::plain()), None).await;
}

#[tokio::test]
async fn the_creation_of_a_network_balancer_survives_any_death() {
    survives_any_death(4, network::start, None, Some(network::plain())).await;
}

#[tokio::test]
async fn an_update_of_a_network_balancer_survives_any_death() {
    survives_any_death(4, network::start, Some(network::plain()), Some(network::changed())).await;
}

#[tokio::test]
async fn the_deletion_of_a_network_balancer_survives_any_death() {
    survives_any_death(4, network::start, Some(network::plain()), None).await;
}
