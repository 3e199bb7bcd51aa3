//! Instances, routes and volumes over HTTP.

use std::sync::Arc;

use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_provider::{Aspects, CloudProvider, EvidenceKind, InstanceMetadata, Lookup, NewRoute, Node, NodeRef, Route};
use ccm_provider_contract::TestCluster;
use serde_json::json;

use crate::bed::Bed;

/// A process that leads over these nodes.
pub(crate) async fn leading(bed: &Bed, nodes: &[NodeRef]) -> Arc<dyn CloudProvider> {
    let provider = bed.provider().await;
    let cluster = Arc::new(TestCluster::default());
    cluster.set_nodes(nodes.to_vec());
    provider.initialize(cluster.context("kubernetes")).await.unwrap();
    provider
}

fn node(name: &str, provider_id: Option<&str>) -> NodeRef {
    Arc::new(Node { name: name.into(), provider_id: provider_id.map(Into::into), ..Node::default() })
}

fn id_of(node: &NodeRef) -> String {
    node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned()
}

fn metadata(answer: &Lookup) -> &InstanceMetadata {
    match answer {
        Lookup::Found(instance) => instance.metadata.as_ref().unwrap().as_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Calls of EC2; those for credentials come and go with their own clock.
fn describes(bed: &Bed, mark: u64) -> usize {
    bed.aws.ledger(|ledger| ledger.since(mark).filter(|entry| entry.service == "ec2").count())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_unknown_instance_costs_one_more_call_and_each_answer_is_right() {
    let bed = Bed::start("");
    let (stopped, terminated) = (id_of(&bed.nodes[1]), id_of(&bed.nodes[2]));
    let name = bed.aws.world(|world| {
        world.ec2.instances.get_mut(&stopped).unwrap().state = InstanceState::Stopped;
        world.ec2.instances.get_mut(&terminated).unwrap().state = InstanceState::Terminated;
        world.ec2.instances[&id_of(&bed.nodes[0])].private_dns.clone()
    });
    let mut nodes = bed.nodes.clone();
    nodes.push(node("gone", Some("aws:///us-west-2a/i-0123456789abcdef0")));
    let instances = leading(&bed, &nodes).await.instances().unwrap();
    let mark = bed.aws.mark();
    let answers = instances.lookup(&nodes, Aspects::LIFECYCLE).await;
    assert!(matches!(&answers[0], Lookup::Found(instance) if instance.shutdown.as_ref().is_ok_and(|stopped| !stopped)));
    assert!(matches!(&answers[1], Lookup::Found(instance) if instance.shutdown.as_ref().is_ok_and(|stopped| *stopped)));
    let evidence = |answer: &Lookup| match answer {
        Lookup::Gone(evidence) => evidence.kind.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(evidence(&answers[2]), EvidenceKind::Terminated { .. }));
    assert_eq!(evidence(&answers[3]), EvidenceKind::Absent);
    assert_eq!(describes(&bed, mark), 2);
    let mark = bed.aws.mark();
    let by_name = instances.lookup(&[node(&name, None)], Aspects::METADATA).await;
    let found = metadata(&by_name[0]);
    assert!(found.provider_id.ends_with(&id_of(&bed.nodes[0])), "{found:?}");
    assert!(found.additional_labels.contains_key("topology.k8s.aws/zone-id"), "{found:?}");
    assert_eq!(describes(&bed, mark), 3, "instance, zones, topology");
    bed.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_1500_nodes_is_two_pages() {
    let mut bed = Bed::start("");
    bed.add_nodes(1497);
    let instances = leading(&bed, &bed.nodes).await.instances().unwrap();
    let mark = bed.aws.mark();
    let snapshot = instances.list().await.unwrap().unwrap();
    assert_eq!(snapshot.by_provider_id.len(), 1500);
    assert!(snapshot.by_provider_id.values().all(|answer| matches!(answer, Lookup::Found(_))));
    assert_eq!(describes(&bed, mark), 2);
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
    // Somebody removes the first beforehand.
    let again = leading(&bed, &bed.nodes).await.routes().unwrap();
    assert_eq!(again.list("kubernetes").await.unwrap(), listed);
    again.delete("kubernetes", &listed[..1]).await.remove(0).unwrap();
    for answer in routes.delete("kubernetes", &listed).await {
        answer.unwrap();
    }
    assert!(routes.list("kubernetes").await.unwrap().is_empty());
    bed.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_has_the_labels_of_its_zone() {
    let bed = Bed::start("");
    let mut dump: serde_json::Value = serde_json::from_str(&bed.aws.dump().unwrap()).unwrap();
    dump["ec2"]["volumes"]["vol-0123456789abcdef0"] = json!({
        "zone": "us-west-2b", "size": 1, "kind": "gp3", "state": "available", "tags": {}, "created": dump["now"],
    });
    bed.aws.load(&dump.to_string()).unwrap();
    let volume = |id: &str| {
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"awsElasticBlockStore": {"volumeID": id}}});
        serde_json::from_value(volume).unwrap()
    };
    let volumes = bed.provider().await.volumes().unwrap();
    let labels =
        volumes.labels(&[volume("aws://us-west-2b/vol-0123456789abcdef0"), volume("vol-0fedcba9876543210")]).await;
    let first = labels[0].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(first["topology.kubernetes.io/zone"], "us-west-2b");
    assert_eq!(first["topology.kubernetes.io/region"], "us-west-2");
    assert!(labels[1].is_err());
    bed.check();
}
