//! The same scenarios on moto.

use super::World;
use super::cloud::Cloud;
use super::lives::{classic_life, network_life};
use super::nodes::nodes_get_everything;
use super::volumes::volumes_get_their_zone;

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_balancer_lives_on_moto() {
    let Some(world) = World::start(Cloud::moto).await else { return };
    classic_life("classic balancer, moto", world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_balancer_lives_on_moto() {
    let Some(world) = World::start(Cloud::moto).await else { return };
    network_life("network balancer, moto", world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_addresses_routes_and_tags_from_moto() {
    let Some(world) = World::start(Cloud::moto).await else { return };
    nodes_get_everything(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_get_their_zone_on_moto() {
    let Some(world) = World::start(Cloud::moto).await else { return };
    volumes_get_their_zone(world).await;
}
