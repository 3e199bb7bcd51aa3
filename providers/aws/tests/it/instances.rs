//! Nodes and routes over HTTP.

use std::sync::Arc;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{Aspects, CloudProvider, Lookup, NewRoute, NodeRef, Route};
use ccm_provider_contract::TestCluster;

use crate::bed::Bed;

/// A leading process with these nodes.
pub(crate) async fn leading(bed: &Bed, nodes: &[NodeRef]) -> Arc<dyn CloudProvider> {
    let provider = bed.provider().await;
    let cluster = Arc::new(TestCluster::default());
    cluster.set_nodes(nodes.to_vec());
    provider.initialize(cluster.context("kubernetes")).await.unwrap();
    provider
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_come_and_go_and_a_second_reconcile_writes_nothing() {
    let bed = Bed::start("");
    bed.aws.world(|world| {
        let table = world.ec2.route_tables.get_mut(&bed.network.main_table).unwrap();
        table.tags.insert("kubernetes.io/cluster/c1".to_owned(), "shared".to_owned());
    });
    let routes = leading(&bed, &bed.nodes).await.routes().unwrap();
    let desired = |number: usize| NewRoute {
        name_hint: "uid".into(),
        route: Route {
            target_node: Some(bed.nodes[number].name.clone()),
            destination_cidr: format!("10.200.{number}.0/24"),
            ..Route::default()
        },
    };
    let wanted = [desired(0), desired(1)];
    for answer in routes.create("kubernetes", &wanted).await {
        answer.unwrap();
    }
    let listed = routes.list("kubernetes").await.unwrap();
    let targets: Vec<_> = listed.iter().map(|route| (&*route.destination_cidr, route.target_node.clone())).collect();
    let node = |number: usize| Some(bed.nodes[number].name.clone());
    assert_eq!(targets, [("10.200.0.0/24", node(0)), ("10.200.1.0/24", node(1))]);
    let mark = bed.aws.mark();
    for answer in routes.create("kubernetes", &wanted).await {
        answer.unwrap();
    }
    assert_eq!(bed.writes(mark), Vec::<String>::new());
    // The first route is removed beforehand by somebody else.
    let again = leading(&bed, &bed.nodes).await.routes().unwrap();
    assert_eq!(again.list("kubernetes").await.unwrap(), listed);
    again.delete("kubernetes", &listed[..1]).await.remove(0).unwrap();
    for answer in routes.delete("kubernetes", &listed).await {
        answer.unwrap();
    }
    assert!(routes.list("kubernetes").await.unwrap().is_empty());
    bed.check();
}

/// EC2 refuses the whole call when it does not know one of the instances; the message may name it or not.
#[tokio::test]
async fn one_instance_without_topology_keeps_no_other_node_from_its_labels() {
    for is_named in [true, false] {
        let mut bed = Bed::start("");
        bed.add_nodes(5);
        let ids: Vec<String> =
            bed.nodes.iter().map(|node| node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned()).collect();
        bed.aws.world(|world| {
            for id in &ids {
                let instance = world.ec2.instances.get_mut(id).unwrap();
                instance.instance_type = "p5.48xlarge".to_owned();
                instance.topology = vec!["nn-1".to_owned(), format!("nn-{id}")];
            }
        });
        let name = if is_named { &*ids[2] } else { "" };
        let message = format!("The instance ID '{name}' does not exist");
        let fault = Fault::Code { status: 400, code: "InvalidInstanceID.NotFound".to_owned(), message };
        let rule = Rule::every(fault).on("ec2", "DescribeInstanceTopology");
        bed.aws.fault(Rule { params: Some(ids[2].clone()), ..rule });
        let provider = leading(&bed, &bed.nodes).await;
        let found = provider.instances().unwrap().lookup(&bed.nodes, Aspects::METADATA).await;
        for (number, found) in found.iter().enumerate() {
            let Lookup::Found(instance) = found else { panic!("{number}: {found:?}") };
            match instance.metadata.clone() {
                Ok(metadata) if number != 2 => {
                    let labels = metadata.unwrap().additional_labels;
                    assert_eq!(labels["topology.k8s.aws/network-node-layer-2"], format!("nn-{}", ids[number]));
                }
                Err(error) if number == 2 => assert!(error.to_string().contains("InvalidInstanceID.NotFound")),
                metadata => panic!("{number}: {metadata:?}"),
            }
        }
    }
}
