use super::*;
use crate::tests::world::{World, dns_name, id, new_interface};
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::Zone;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::node::Pairs;
use ccm_provider::{AddressType, Evidence, EvidenceKind, InstancesV2 as _, Node};
use ccm_provider_contract::TestCluster;
use ccm_provider_contract::lookups::{evidence, found, metadata, unknown};
use std::time::SystemTime;

const WALL: SystemTime = SystemTime::UNIX_EPOCH;

fn settings() -> Settings {
    Settings {
        region: "us-west-2".into(),
        vpc: "vpc-1".into(),
        families: vec![Family::Ipv4],
        own: None,
        ownership: Ownership { cluster: "c1".into(), legacy: false },
        topology_types: None,
        fargate_counts_as_stopped: true,
    }
}

fn provider(world: &Arc<World>, nodes: &[NodeRef]) -> Ec2Instances {
    with(world, nodes, settings())
}

fn with(world: &Arc<World>, nodes: &[NodeRef], settings: Settings) -> Ec2Instances {
    let cluster = Cluster::default();
    let _ = lend(&cluster, nodes.to_vec());
    let zones = Arc::new(Zones::new(world.api()));
    instances(settings, world.api(), zones, cluster)
}

fn known(number: usize) -> NodeRef {
    let provider_id = Some(format!("aws:///us-west-2a/{}", id(number)).into());
    Arc::new(Node { name: format!("n{number}").into(), provider_id, ..Node::default() })
}

fn odd(provider_id: &str) -> NodeRef {
    Arc::new(Node { name: "odd".into(), provider_id: Some(provider_id.into()), ..Node::default() })
}

/// A new node that has only its instance's private DNS name.
fn nameless(number: usize) -> NodeRef {
    named(&dns_name(number))
}

fn named(name: &str) -> NodeRef {
    Arc::new(Node { name: name.into(), ..Node::default() })
}

fn with_provider_id(node: &NodeRef, id: &str) -> NodeRef {
    Arc::new(Node { provider_id: Some(id.into()), ..(**node).clone() })
}

fn describes(calls: &[String]) -> usize {
    calls.iter().filter(|call| call.starts_with("DescribeInstances")).count()
}

#[tokio::test(start_paused = true)]
async fn one_unknown_instance_costs_one_more_call_and_spoils_nobody() {
    let world = Arc::new(World::with(2));
    let provider = provider(&world, &[]);
    let answers = provider.lookup(&[known(1), known(2), known(99)], Aspects::LIFECYCLE).await;
    assert!(matches!(answers[..], [Lookup::Found(_), Lookup::Found(_), Lookup::Gone(_)]), "{answers:?}");
    assert_eq!(world.calls(), ["DescribeInstances 3 IDs", "DescribeInstances 2 IDs"]);
}

/// The networks of two VPCs are often the same.
#[tokio::test(start_paused = true)]
async fn without_a_cluster_id_an_instance_of_another_vpc_has_no_name_here() {
    let world = Arc::new(World::with(2));
    world.instance(2, |instance| {
        (instance.vpc, instance.private_dns) = ("vpc-2".to_owned(), dns_name(1));
    });
    let settings = Settings { ownership: Ownership::untagged(), ..settings() };
    let lookup = async || {
        let provider = with(&world, &[], settings.clone());
        provider.lookup(&[nameless(1)], Aspects::ALL).await.remove(0)
    };
    assert_eq!(metadata(&lookup().await).provider_id, format!("aws:///us-west-2a/{}", id(1)));
    world.ec2(|ec2| ec2.instances.remove(&id(1)));
    let gone = lookup().await;
    assert!(matches!(gone, Lookup::Gone(_)), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_lacks_the_tag_of_the_cluster_is_not_gone() {
    let world = Arc::new(World::with(2));
    world.instance(1, |instance| instance.tags.clear());
    let lookup = async |node: NodeRef| provider(&world, &[]).lookup(&[node], Aspects::LIFECYCLE).await.remove(0);
    let error = unknown(&lookup(nameless(1)).await);
    assert!(error.contains(&id(1)) && error.contains("tag kubernetes.io/cluster/c1"), "{error}");
    // The same network in another VPC.
    world.instance(1, |instance| instance.vpc = "vpc-2".to_owned());
    let gone = lookup(nameless(1)).await;
    assert!(matches!(gone, Lookup::Gone(_)), "{gone:?}");
    // A domain name that somebody has copied from another region.
    let error = unknown(&lookup(named("ip-10-0-0-9.ec2.internal")).await);
    assert!(error.contains("us-west-2") && error.contains("DHCP options"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_names_nobody_is_sorted_out_by_filter() {
    let world = Arc::new(World::with(450));
    let (code, message) = ("InvalidInstanceID.NotFound".to_owned(), "The instance IDs 'some' do not exist".to_owned());
    world.aws().fault(Rule::every(Fault::Code { status: 400, code, message }).window(0, 1));
    let nodes: Vec<NodeRef> = (1..=451).map(known).collect();
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Lookup::Found(_))).count(), 450);
    assert_eq!(evidence(&answers[450]).kind, EvidenceKind::Unlisted);
    assert_eq!(describes(&world.calls()), 4);
}

#[tokio::test(start_paused = true)]
async fn a_denied_instance_is_absent_and_the_core_gets_the_grace_and_the_time_of_the_read() {
    let world = Arc::new(World::with(1));
    let answers = provider(&world, &[]).lookup(&[known(99)], Aspects::LIFECYCLE).await;
    let five_minutes = Duration::from_secs(300);
    assert_eq!(*evidence(&answers[0]), Evidence { kind: EvidenceKind::Absent, read_began: WALL, grace: five_minutes });
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_a_good_answer_leaves_out_needs_a_second_answer() {
    let world = Arc::new(World::with(10));
    world.ec2(|ec2| ec2.left_out.insert(id(3)));
    let nodes: Vec<NodeRef> = (1..=10).map(known).collect();
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    assert_eq!(evidence(&answers[2]).kind, EvidenceKind::Unlisted);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Lookup::Found(_))).count(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_is_gone_when_no_instance_has_its_name() {
    let world = Arc::new(World::with(1));
    let nodes = [nameless(1), named("ip-10-9-9-9.us-west-2.compute.internal"), named("worker-1.corp.example")];
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    assert_eq!(metadata(&answers[0]).provider_id, format!("aws:///us-west-2a/{}", id(1)));
    assert_eq!((&evidence(&answers[1]).kind, evidence(&answers[1]).grace), (&EvidenceKind::Unlisted, GRACE));
    // EC2 does not assign such a name: its absence means nothing.
    assert_eq!(unknown(&answers[2]), "instance not found");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_is_foreign_and_never_asked_about() {
    let world = Arc::new(World::with(1));
    let answers = provider(&world, &[]).lookup(&[odd("azure:///x/y"), odd("kwok://n")], Aspects::ALL).await;
    assert!(answers.iter().all(|answer| matches!(answer, Lookup::Foreign)));
    assert!(world.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_id_that_no_instance_can_have_is_an_error_and_never_asked_about() {
    let world = Arc::new(World::with(1));
    let answers = provider(&world, &[]).lookup(&[odd("aws:///z/i-kwok"), known(1)], Aspects::LIFECYCLE).await;
    assert!(unknown(&answers[0]).starts_with("provider ID \"aws:///z/i-kwok\" names no EC2 instance"));
    found(&answers[1]);
    assert_eq!(world.calls(), ["DescribeInstances 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn states_are_judged_as_upstream_does_but_a_missing_one_is_no_evidence() {
    use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
    let world = Arc::new(World::with(7));
    for (number, state) in (1..).zip([Pending, Running, Stopping, Stopped, ShuttingDown, Terminated]) {
        world.instance(number, |instance| instance.state = state);
    }
    world.instance(7, |instance| instance.state = Pending);
    world.edit(|answer| match answer.split_once(&id(7)) {
        Some((before, of_it)) => format!("{before}{}{}", id(7), of_it.replacen("instanceState", "elsewhere", 2)),
        None => answer.to_owned(),
    });
    let nodes: Vec<NodeRef> = (1..=7).map(known).collect();
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    let stopped: Vec<bool> = answers[..5].iter().map(|answer| *found(answer).shutdown.as_ref().unwrap()).collect();
    assert_eq!(stopped, [false, false, false, true, false]);
    assert_eq!(evidence(&answers[5]).kind, EvidenceKind::Terminated { state: "terminated".into() });
    assert_eq!(unknown(&answers[6]), format!("EC2 gives no state of {}", id(7)));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_cloud_is_no_evidence() {
    let world = Arc::new(World::with(1));
    for code in ["RequestLimitExceeded", "UnauthorizedOperation", "InternalError"] {
        // A list, and the look-ups in its place: by ID and by name.
        world.fail("DescribeInstances", code, 3);
        let nodes = [known(1), known(99), nameless(1)];
        let answers = provider(&world, &nodes).lookup(&nodes, Aspects::LIFECYCLE).await;
        assert!(answers.iter().all(|answer| matches!(answer, Lookup::Unknown(_))), "{code}: {answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_is_what_upstream_gives() {
    let world = Arc::new(World::with(1));
    let node = with_provider_id(&named("x"), &format!("aws:////{}", id(1)));
    let answers = provider(&world, &[]).lookup(&[node], Aspects::METADATA).await;
    let metadata = metadata(&answers[0]);
    assert_eq!(metadata.provider_id, format!("aws:////{}", id(1)), "an existing ID is echoed");
    assert_eq!((&*metadata.instance_type, &*metadata.zone, &*metadata.region), ("m5.large", "us-west-2a", "us-west-2"));
    assert_eq!(metadata.additional_labels, BTreeMap::from([(LABEL_ZONE_ID.to_owned(), "usw2-az2".to_owned())]));
    let kinds: Vec<_> = metadata.node_addresses.iter().map(|address| address.kind.clone()).collect();
    assert_eq!(kinds, [AddressType::InternalIp, AddressType::InternalDns, AddressType::Hostname]);
    // The instance, the zones, and the topology of an unknown type.
    assert_eq!(world.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_of_addresses_asks_for_no_labels() {
    let world = Arc::new(World::with(1));
    let answers = provider(&world, &[]).lookup(&[known(1)], Aspects::ADDRESSES).await;
    assert!(metadata(&answers[0]).additional_labels.is_empty());
    assert_eq!(world.calls(), ["DescribeInstances 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn labels_that_a_node_has_are_not_asked_for() {
    let world = Arc::new(World::with(1));
    let labels: Pairs = [(LABEL_ZONE_ID, "usw2-az1"), (LABEL_LAYER_1, "nn-1")].into_iter().collect();
    let node = Arc::new(Node { labels, ..(*known(1)).clone() });
    let answers = provider(&world, &[]).lookup(&[node], Aspects::METADATA).await;
    assert!(metadata(&answers[0]).additional_labels.is_empty());
    assert_eq!(world.calls(), ["DescribeInstances 1 IDs"]);
}

#[tokio::test(start_paused = true)]
async fn layers_become_labels_in_their_order() {
    let world = Arc::new(World::with(1));
    world.instance(1, |instance| {
        instance.instance_type = "p5.48xlarge".into();
        instance.topology = vec!["nn-a".into(), "nn-b".into(), "nn-c".into()];
    });
    let answers = provider(&world, &[]).lookup(&[known(1)], Aspects::METADATA).await;
    let labels = &metadata(&answers[0]).additional_labels;
    let layers: Vec<_> =
        (1..=3).map(|n| labels[&format!("topology.k8s.aws/network-node-layer-{n}")].as_str()).collect();
    assert_eq!(layers, ["nn-a", "nn-b", "nn-c"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_zone_fails_the_metadata_and_is_asked_for_once_a_minute() {
    let world = Arc::new(World::with(1));
    world.instance(1, |instance| instance.zone = "us-west-2-new-1a".into());
    let provider = provider(&world, &[]);
    for _ in 0..100 {
        let answers = provider.lookup(&[known(1)], Aspects::METADATA).await;
        let error = found(&answers[0]).metadata.as_ref().unwrap_err().to_string();
        assert!(error.contains("\"us-west-2-new-1a\""), "{error}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let zones = |calls: Vec<String>| calls.iter().filter(|call| *call == "DescribeAvailabilityZones").count();
    assert_eq!(zones(world.calls()), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let new = Zone { id: "usw2-new1".into(), kind: "local-zone".into(), state: "available".into() };
    world.ec2(|ec2| ec2.zones.insert("us-west-2-new-1a".into(), new));
    let answers = provider.lookup(&[known(1)], Aspects::METADATA).await;
    assert_eq!(metadata(&answers[0]).additional_labels[LABEL_ZONE_ID], "usw2-new1");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_found_among_live_members_only_and_must_be_unique() {
    let world = Arc::new(World::with(4));
    world.instance(2, |instance| {
        instance.private_dns = dns_name(1);
        instance.state = InstanceState::Terminated;
    });
    world.instance(3, |instance| {
        instance.private_dns = dns_name(1);
        instance.tags = [("kubernetes.io/cluster/other".into(), "owned".into())].into();
    });
    let provider = provider(&world, &[]);
    let answers = provider.lookup(&[nameless(1)], Aspects::LIFECYCLE).await;
    assert!(metadata(&answers[0]).provider_id.ends_with(&id(1)));
    world.instance(4, |instance| instance.private_dns = dns_name(1));
    let answers = provider.lookup(&[nameless(1)], Aspects::LIFECYCLE).await;
    assert!(unknown(&answers[0]).contains(&format!("{}, {}", id(1), id(4))), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn fargate_nodes_share_one_call_and_count_as_stopped_unless_configured_otherwise() {
    let world = Arc::new(World::with(0));
    for (id, last) in [("eni-1", 1), ("eni-3", 3), ("eni-4", 3)] {
        world.ec2(|ec2| ec2.interfaces.insert(id.into(), new_interface([10, 0, 0, last].into(), None)));
    }
    let node = |ip: &str| odd(&format!("aws:///us-west-2a/task/fargate-{ip}"));
    let nodes = [node("ip-10-0-0-1.us-west-2.compute.internal"), node("10.0.0.2"), node("10.0.0.3")];
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::ALL).await;
    assert!(found(&answers[0]).shutdown.clone().unwrap());
    let data = metadata(&answers[0]);
    assert_eq!((&*data.instance_type, &*data.zone), ("", "us-west-2a"));
    assert_eq!(data.provider_id, nodes[0].provider_id_or_empty());
    assert_eq!((&evidence(&answers[1]).kind, evidence(&answers[1]).grace), (&EvidenceKind::Unlisted, GRACE));
    assert!(unknown(&answers[2]).contains("several attached network interfaces"));
    assert_eq!(world.calls().iter().filter(|call| call.starts_with("DescribeNetworkInterfaces")).count(), 1);
    let sane = with(&world, &[], Settings { fargate_counts_as_stopped: false, ..settings() });
    assert!(!found(&sane.lookup(&nodes, Aspects::ALL).await[0]).shutdown.clone().unwrap());
}

#[tokio::test(start_paused = true)]
async fn many_nodes_cost_a_call_per_thousand_and_are_known_by_their_own_spelling() {
    let world = Arc::new(World::with(2000));
    world.instance(1, |instance| instance.tags.clear());
    world.instance(2, |instance| instance.state = InstanceState::Terminated);
    world.ec2(|ec2| ec2.instances.remove(&id(3)));
    let mut nodes: Vec<NodeRef> = (1..=1990).map(known).collect();
    nodes.push(with_provider_id(&named("short"), &id(1995)));
    nodes.push(nameless(1996));
    nodes.push(odd("aws:///z/i-kwok"));
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    assert!(matches!(answers[0], Lookup::Found(_)), "without the mark of the cluster");
    assert!(matches!(evidence(&answers[1]).kind, EvidenceKind::Terminated { .. }));
    assert_eq!(evidence(&answers[2]).kind, EvidenceKind::Absent);
    assert!(answers[3..1992].iter().all(|answer| matches!(answer, Lookup::Found(_))));
    assert!(unknown(&answers[1992]).contains("names no EC2 instance"));
    // Two pages; then the instance without the tag and the missing one, read again without the latter.
    let calls = world.calls();
    assert_eq!((calls.len(), calls[2].as_str()), (4, "DescribeInstances 2 IDs"), "{calls:?}");
}

/// 2,000 nodes within four seconds, in the core's windows of up to a second.
async fn burst(node: fn(usize) -> NodeRef) -> Vec<String> {
    let world = Arc::new(World::with(2000));
    let provider = provider(&world, &[]);
    let (mut made, mut window) = (0, Duration::from_millis(25));
    while made < 2000 {
        tokio::time::sleep(window).await;
        let joined = usize::try_from(window.as_millis()).unwrap() / 2;
        let new: Vec<NodeRef> = (made + 1..=(made + joined).min(2000)).map(node).collect();
        made += new.len();
        let answers = provider.lookup(&new, Aspects::METADATA).await;
        assert!(answers.iter().all(|answer| metadata(answer).additional_labels.contains_key(LABEL_ZONE_ID)));
        window = (window * 2).min(Duration::from_secs(1));
    }
    world.calls()
}

/// Passes these nodes to a provider, with the test's clock.
pub(crate) fn lend(cluster: &Cluster, nodes: Vec<NodeRef>) -> Arc<TestCluster> {
    let kubernetes = Arc::new(TestCluster::with_clock(|| (tokio::time::Instant::now().into_std(), WALL)));
    kubernetes.set_nodes(nodes);
    cluster.set(kubernetes.context("c"));
    kubernetes
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_2000_nodes_costs_at_most_20_calls_with_provider_ids_and_without() {
    for node in [known as fn(usize) -> NodeRef, nameless] {
        let calls = burst(node).await;
        assert!(calls.len() <= 20, "{} calls: {calls:#?}", calls.len());
    }
}
