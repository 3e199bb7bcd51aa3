use super::*;
use crate::node::identity::instance_of;
use crate::tests::world::{World, id};
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_provider::{Node, NodeRef};
use std::collections::BTreeSet;
use tokio::time::Instant;

fn node(name: &str, provider_id: &str) -> NodeRef {
    Arc::new(Node { name: name.into(), provider_id: Some(provider_id.into()), ..Node::default() })
}

fn ids(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<InstanceId> {
    numbers.into_iter().map(|number| InstanceId::parse(&id(number)).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn services_that_sync_together_share_one_lookup_whatever_odd_nodes_there_are() {
    let world = Arc::new(World::with(2));
    let fleet = new(world.api());
    let nodes = [
        node("a", &format!("aws:///us-west-2a/{}", id(1))),
        node("fargate", "aws:///us-west-2a/x/fargate-10.0.0.1"),
        node("bad", "aws:///us-west-2a/vol-1"),
        node("foreign", "azure:///x"),
        node("gone", &format!("aws:///us-west-2a/{}", id(99))),
        node("b", &format!("aws:///us-west-2a/{}", id(2))),
    ];
    for _ in 0..2 {
        let wanted = nodes.iter().filter_map(|node| instance_of(node)).collect();
        let members = fleet.get(&wanted, MAX_AGE, None).await.unwrap();
        assert!(members.keys().eq(&ids(1..=2)));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // The second call leaves out the ID that the first error named.
    assert_eq!(world.calls(), ["DescribeInstances 3 IDs", "DescribeInstances 2 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn only_what_is_missing_is_asked_for() {
    let world = Arc::new(World::with(600));
    let fleet = new(world.api());
    assert_eq!(fleet.get(&ids(1..=600), MAX_AGE, None).await.unwrap().len(), 600);
    assert_eq!(world.calls().len(), 2);
    assert!(fleet.get(&ids(1..=601), MAX_AGE, None).await.unwrap().len() == 600);
    assert_eq!(world.calls(), ["DescribeInstances 1 IDs"]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    fleet.get(&ids([601]), MAX_AGE, None).await.unwrap();
    assert!(world.calls().is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    fleet.get(&ids([601]), MAX_AGE, None).await.unwrap();
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_a_call() {
    let world = Arc::new(World::with(10));
    let fleet = new(world.api());
    let (one, two) = (ids(1..=8), ids(3..=10));
    let (one, two) = tokio::join!(fleet.get(&one, MAX_AGE, None), fleet.get(&two, MAX_AGE, None));
    assert_eq!((one.unwrap().len(), two.unwrap().len()), (8, 8));
    assert_eq!(world.calls(), ["DescribeInstances 10 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_write_only_what_was_read_later_counts() {
    let world = Arc::new(World::with(1));
    let fleet = new(world.api());
    let wanted = ids([1]);
    assert_eq!(fleet.get(&wanted, MAX_AGE, None).await.unwrap()[&*id(1)].source_dest_check, Some(true));
    world.interface(1, |interface| interface.source_dest_check = false);
    let written = Some(Instant::now());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(fleet.get(&wanted, MAX_AGE, None).await.unwrap()[&*id(1)].source_dest_check, Some(true));
    assert_eq!(fleet.get(&wanted, MAX_AGE, written).await.unwrap()[&*id(1)].source_dest_check, Some(false));
    assert_eq!(world.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_an_error_and_no_miss() {
    let world = Arc::new(World::with(1));
    world.fail("DescribeInstances", "RequestLimitExceeded", 1);
    let fleet = new(world.api());
    assert!(fleet.get(&ids([1]), MAX_AGE, None).await.is_err());
    assert_eq!(fleet.get(&ids([1]), MAX_AGE, None).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn leaving_instances_are_distinguished_from_stopped_ones() {
    let world = Arc::new(World::with(4));
    for (number, state) in
        [(1, InstanceState::ShuttingDown), (2, InstanceState::Terminated), (3, InstanceState::Stopped)]
    {
        world.instance(number, |instance| instance.state = state);
    }
    let members = new(world.api()).get(&ids(1..=4), MAX_AGE, None).await.unwrap();
    let leaving: Vec<bool> = members.values().map(|member| member.is_leaving).collect();
    assert_eq!(leaving, [true, true, false, false]);
}
