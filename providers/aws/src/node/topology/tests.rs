use super::*;
use crate::tests::world::{World, id};

fn topology(world: &Arc<World>) -> Topology {
    Topology::new(world.api(), None)
}

fn instances(numbers: impl IntoIterator<Item = usize>, kind: &str) -> BTreeMap<InstanceId, String> {
    numbers.into_iter().map(|number| (InstanceId::parse(&id(number)).unwrap(), kind.to_owned())).collect()
}

fn world(with_topology: impl IntoIterator<Item = usize>) -> Arc<World> {
    let world = World::with(250);
    for number in with_topology {
        world.instance(number, |instance| instance.topology = vec!["nn-1".into(), format!("nn-{number}")]);
    }
    Arc::new(world)
}

fn layers_of(layers: &Layers, number: usize) -> Option<Vec<String>> {
    layers.get(id(number).as_str()).map(|layers| layers.clone().unwrap())
}

#[test]
fn the_built_in_pattern_names_accelerated_types_only() {
    let required = Regex::new(REQUIRED_TYPES).unwrap();
    for kind in ["p5.48xlarge", "p4d.24xlarge", "trn1n.32xlarge", "hpc7a.96xlarge", "p6-b200.48xlarge"] {
        assert!(required.is_match(kind), "{kind}");
    }
    for kind in ["m5.large", "g5.xlarge", "c7gn.metal", "", "xp5.large"] {
        assert!(!required.is_match(kind), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_without_topology_costs_one_call_for_one_instance_a_day() {
    let world = world([]);
    let topology = topology(&world);
    let nodes = instances(1..=5000, "m5.large");
    assert!(topology.layers(&nodes).await.values().all(|layers| layers.as_ref().unwrap().is_empty()));
    assert_eq!(world.calls(), ["DescribeInstanceTopology 1 IDs"]);
    tokio::time::sleep(Duration::from_secs(24 * 3600 - 60)).await;
    topology.layers(&nodes).await;
    assert!(world.calls().is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    topology.layers(&nodes).await;
    assert_eq!(world.calls(), ["DescribeInstanceTopology 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn windows_that_overlap_ask_about_a_new_type_once() {
    let world = world([]);
    let topology = topology(&world);
    let (one, two) = (instances(1..=10, "m5.large"), instances(11..=20, "m5.large"));
    tokio::join!(topology.layers(&one), topology.layers(&two));
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn required_types_are_asked_about_a_hundred_at_a_time() {
    let world = world(1..=250);
    let layers = topology(&world).layers(&instances(1..=250, "p5.48xlarge")).await;
    assert_eq!(layers.len(), 250);
    assert_eq!(layers_of(&layers, 7), Some(vec!["nn-1".into(), "nn-7".into()]));
    let calls: Vec<String> = [100, 100, 50].iter().map(|n| format!("DescribeInstanceTopology {n} IDs")).collect();
    assert_eq!(world.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_type_that_turns_out_to_have_one_is_asked_about_in_full() {
    let world = world(1..=30);
    let topology = topology(&world);
    let layers = topology.layers(&instances(1..=30, "g6.48xlarge")).await;
    assert_eq!(layers_of(&layers, 30), Some(vec!["nn-1".into(), "nn-30".into()]));
    assert_eq!(world.calls(), ["DescribeInstanceTopology 1 IDs", "DescribeInstanceTopology 29 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn a_required_type_without_answer_is_remembered_by_instance() {
    let world = world([1]);
    let topology = topology(&world);
    assert_eq!(layers_of(&topology.layers(&instances([2], "p5.48xlarge")).await, 2), Some(Vec::new()));
    world.calls();
    let layers = topology.layers(&instances([1, 2], "p5.48xlarge")).await;
    assert_eq!((layers.len(), layers_of(&layers, 1).unwrap().len()), (1, 2));
    assert_eq!(world.calls(), ["DescribeInstanceTopology 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_asked_for_once_a_day_and_costs_no_node_its_start() {
    for code in ["UnauthorizedOperation", "UnsupportedOperation"] {
        let world = world(1..=150);
        world.fail("DescribeInstanceTopology", code, 1);
        let topology = topology(&world);
        let nodes = instances(1..=150, "p5.48xlarge");
        for _ in 0..3 {
            assert!(topology.layers(&nodes).await.values().all(|layers| layers.as_ref().unwrap().is_empty()));
        }
        assert_eq!(world.calls(), ["DescribeInstanceTopology 100 IDs"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_fails_required_types_only_and_is_not_remembered() {
    let world = world(1..=2);
    world.fail("DescribeInstanceTopology", "RequestLimitExceeded", 1);
    let topology = topology(&world);
    let mut nodes = instances([1], "p5.48xlarge");
    nodes.extend(instances([2], "m5.large"));
    let layers = topology.layers(&nodes).await;
    assert!(layers[id(1).as_str()].is_err());
    assert_eq!(layers_of(&layers, 2), Some(Vec::new()));
    assert_eq!(world.calls().len(), 1);
    assert_eq!(layers_of(&topology.layers(&nodes).await, 1).unwrap().len(), 2);
}
