//! Nodes that are replaced.

mod long_lane {
    use super::super::*;

    const NODES: usize = 100;

    /// The writes after 10 of 100 nodes were replaced.
    async fn writes(more: &str, services: usize) -> BTreeMap<String, usize> {
        let mut scene = Scene::with(Options { check: false, ..Options::default() }, more, NODES).await;
        let names: Vec<String> = (0..services).map(|number| format!("web{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (number, name) in (0_u16..).zip(&names) {
            scene.service(name, &[], port(8000 + number % 10));
        }
        scene.ensure(&names).await;
        let set = format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool");
        scene.bed.cloud.world(|world| {
            (0..10).for_each(|number| world.delete_machine(&format!("{set}/virtualMachines/{number}")));
            world.scale_out(&set, 10)
        });
        scene.nodes.drain(..10);
        scene.nodes.extend((NODES..NODES + 10).map(|number| node_of(&set, number, false)));
        scene.bed.cluster.set_nodes(scene.nodes.clone());
        let mark = scene.mark();
        scene.done(&names, ServiceAction::UpdateHosts).await;
        scene.writes(mark)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_replaced_nodes_cost_the_same_for_few_and_many_services() {
        for services in [1, 50] {
            assert_eq!(writes("", services).await, BTreeMap::new(), "the model of the set has the pools");
            let of_pool = BTreeMap::from([("backendAddressPools.put".to_owned(), 1)]);
            assert_eq!(writes(BY_ADDRESS, services).await, of_pool);
        }
    }
}
