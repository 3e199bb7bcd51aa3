//! Nodes: the instance of each, its metadata, and the evidence that it is gone.

use std::sync::Arc;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::gce::Options;
use ccm_cloudsim::gce::seed::InstanceSeed;
use ccm_provider::{Aspects, CloudProvider, EvidenceKind, Lookup, Node, NodeRef, ProviderError};
use ccm_provider_contract::TestCluster;
use ccm_provider_contract::lookups::{found, metadata, unknown};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, PROJECT, ZONE, ZONES, flags};

fn node(name: &str, provider_id: &str) -> NodeRef {
    let provider_id = (!provider_id.is_empty()).then(|| provider_id.into());
    Node { name: name.into(), provider_id, ..Node::default() }.into()
}

async fn with_flags(bed: &Bed, more: &str, given: &[&'static str]) -> Arc<dyn CloudProvider> {
    let provider = bed.build(more, &flags(given)).await.unwrap();
    provider.initialize(Arc::<TestCluster>::default().context(CLUSTER)).await.unwrap();
    provider
}

/// Makes an instance in the project `other`.
fn make_in_other(bed: &Bed, name: &str) {
    bed.cloud.world(|world| {
        let network = world.network("other", "default", false);
        let subnetwork = world.subnetwork(&network, "us-central1", "sub", "10.9.0.0/16", &[]);
        let (project, zone, subnetwork) = ("other", ZONE, &*subnetwork);
        world.instance(&InstanceSeed { project, zone, name, subnetwork, ..InstanceSeed::default() }).unwrap();
    });
}

async fn look_up(provider: &Arc<dyn CloudProvider>, node: &NodeRef) -> Lookup {
    provider.instances().unwrap().lookup(std::slice::from_ref(node), Aspects::ALL).await.pop().unwrap()
}

fn is_absent(lookup: &Lookup) -> bool {
    matches!(lookup, Lookup::Gone(evidence) if evidence.kind == EvidenceKind::Absent)
}

#[tokio::test]
async fn a_node_gets_id_type_zone_region_and_addresses() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-c", "n1", json!({}));
    let provider = with_flags(&bed, "regional", &[]).await;
    for name in ["n1", "n1.c.p.internal"] {
        let metadata = metadata(&look_up(&provider, &node(name, "")).await);
        assert_eq!(metadata.provider_id, "gce://p/us-central1-c/n1");
        assert_eq!(metadata.instance_type, "e2-standard-2");
        assert_eq!((&*metadata.zone, &*metadata.region), ("us-central1-c", "us-central1"));
        let addresses: Vec<&str> = metadata.node_addresses.iter().map(|address| &*address.address).collect();
        assert_eq!(addresses, [bed.address("n1")]);
        assert!(metadata.additional_labels.is_empty());
    }
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn p07_a_provider_id_of_another_form_or_cloud_says_nothing() {
    let bed = Bed::start(Options::default());
    let provider = with_flags(&bed, "", &[]).await;
    assert!(matches!(look_up(&provider, &node("a", "aws:///z/i-1")).await, Lookup::Foreign));
    for id in ["gce://p/z", "gce://p//n", "gce://p/z/n/"] {
        assert!(unknown(&look_up(&provider, &node("a", id)).await).starts_with("error splitting providerID"), "{id}");
    }
}

#[tokio::test]
async fn p08_a_node_of_another_project_is_read_in_ours_and_never_gone() {
    let bed = Bed::start(Options::default());
    bed.instance_in(ZONE, "n1", json!({}));
    let provider = with_flags(&bed, "", &[]).await;
    let here = look_up(&provider, &node("n1", &format!("gce://other/{ZONE}/n1"))).await;
    assert_eq!(metadata(&here).provider_id, format!("gce://other/{ZONE}/n1"));
    let error = unknown(&look_up(&provider, &node("n2", &format!("gce://other/{ZONE}/n2"))).await);
    for part in ["\"other\"", "\"p\"", "--enable-multi-project"] {
        assert!(error.contains(part), "{error}");
    }
    // The number of our project means the same project as its ID.
    let number = bed.cloud.world(|world| world.projects[PROJECT]);
    assert!(is_absent(&look_up(&provider, &node("n2", &format!("gce://{number}/{ZONE}/n2"))).await));
}

#[tokio::test]
async fn with_multi_project_the_project_of_the_provider_id_counts() {
    let bed = Bed::start(Options::default());
    make_in_other(&bed, "n1");
    let provider = with_flags(&bed, "", &["enable-multi-project"]).await;
    let id = format!("gce://other/{ZONE}/n1");
    assert_eq!(metadata(&look_up(&provider, &node("n1", &id)).await).provider_id, id);
    assert!(is_absent(&look_up(&provider, &node("n2", &format!("gce://other/{ZONE}/n2"))).await));
    // `enable-gke-tenant-controller` disables it.
    let provider = with_flags(&bed, "", &["enable-multi-project", "enable-gke-tenant-controller"]).await;
    assert!(matches!(look_up(&provider, &node("n1", &id)).await, Lookup::Unknown(_)));
}

#[tokio::test]
async fn p09_a_node_outside_the_managed_zones_is_found_by_name() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-c", "n1", json!({}));
    let provider = with_flags(&bed, "", &[]).await;
    let mark = bed.cloud.mark();
    assert_eq!(metadata(&look_up(&provider, &node("n1", "")).await).zone, "us-central1-c");
    assert_eq!(bed.calls(mark), ["instances.aggregatedList"]);
    // A search of the whole project shows absence, of a name that was that of an instance.
    bed.cloud.world(|world| world.delete_instance("projects/p/zones/us-central1-c/instances/n1"));
    let gone = look_up(&provider, &node("n1", "")).await;
    assert!(matches!(&gone, Lookup::Gone(evidence) if evidence.kind == EvidenceKind::Unlisted), "{gone:?}");
}

/// The aggregated list is that of all regions, any of which may not answer. Nor does one zone withhold the others.
#[tokio::test]
async fn without_the_list_of_the_project_an_instance_of_a_managed_zone_is_found() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-c", "n1", json!({}));
    let provider = with_flags(&bed, "regional", &[]).await;
    let fault = || Fault::Code { status: 503, code: "backendError".to_owned(), message: "not now".to_owned() };
    bed.cloud.fault(Rule::every(fault()).on("compute", "instances.aggregatedList"));
    assert_eq!(metadata(&look_up(&provider, &node("n1", "")).await).provider_id, "gce://p/us-central1-c/n1");
    // Of another name nothing is known: it may be that of an instance elsewhere.
    assert!(unknown(&look_up(&provider, &node("n2", "")).await).contains("not now"));
    let of_zone = Rule { params: Some("us-central1-f".to_owned()), ..Rule::every(fault()) };
    bed.cloud.fault(of_zone.on("compute", "instances.list"));
    assert_eq!(metadata(&look_up(&provider, &node("n1.c.p.internal", "")).await).zone, "us-central1-c");
    bed.cloud.world(|world| world.delete_instance("projects/p/zones/us-central1-c/instances/n1"));
    assert!(unknown(&look_up(&provider, &node("n1", "")).await).contains("not now"));
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// They may have 512 KB each.
#[tokio::test]
async fn metadata_of_instances_is_not_listed_for_nodes_without_a_provider_id() {
    let bed = Bed::start(Options::default());
    // Not compressible.
    let value: String = (1..10_000_u64).map(|n| format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let metadata = json!({"metadata": {"items": [{"key": "user-data", "value": value}]}});
    for name in ["n0", "n1"] {
        bed.instance_in(ZONE, name, metadata.clone());
    }
    let provider = with_flags(&bed, "", &[]).await;
    let mark = bed.cloud.mark();
    let answers = provider.instances().unwrap().lookup(&[node("n0", ""), node("n1", "")], Aspects::METADATA).await;
    assert!(answers.iter().all(|answer| found(answer).metadata.is_ok()), "{answers:?}");
    assert_eq!(bed.calls(mark), ["instances.aggregatedList"]);
    let largest = bed.cloud.ledger(|ledger| ledger.since(mark).map(|call| call.bytes_out).max());
    assert!(largest < Some(50_000), "{largest:?}");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// 500 instances with this metadata would have more bytes than an answer may have.
#[tokio::test]
async fn metadata_of_instances_is_not_listed() {
    let bed = Bed::start(Options::default());
    let metadata = json!({"metadata": {"items": [{"key": "user-data", "value": "x".repeat(150_000)}]}});
    let nodes: Vec<NodeRef> = (0..500)
        .map(|number| {
            let name = format!("n{number}");
            bed.instance_in(ZONE, &name, metadata.clone());
            node(&name, &format!("gce://{PROJECT}/{ZONE}/{name}"))
        })
        .collect();
    let provider = with_flags(&bed, "", &[]).await;
    let mark = bed.cloud.mark();
    let answers = provider.instances().unwrap().lookup(&nodes, Aspects::LIFECYCLE).await;
    assert!(answers.iter().all(|answer| found(answer).shutdown.is_err()));
    assert_eq!(bed.calls(mark), ["instances.list", "instances.list"], "two pages, and no instance by itself");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// Such a node may be spelled differently from its instance: it waits for its network, and its instance works.
#[tokio::test]
async fn a_node_whose_name_no_instance_had_is_kept_and_the_error_names_what_comes_close() {
    let bed = Bed::start(Options::default());
    for name in ["node-2", "md-0-v1-26-3-x", "other"] {
        bed.instance_in(ZONE, name, json!({}));
    }
    let provider = with_flags(&bed, "node-instance-prefix = other", &[]).await;
    let address = bed.address("node-2");
    let addresses = [ccm_provider::NodeAddress::new(ccm_provider::AddressType::InternalIp, &*address)].into();
    let worker: NodeRef = Node { name: "worker-2".into(), addresses, ..Node::default() }.into();
    let near = [
        (worker, format!("node-2 ({ZONE}) has the address {address} of the Node")),
        (node("md-0-v1.26.3-x", ""), format!("md-0-v1-26-3-x ({ZONE}) differs in dots and dashes only")),
        (node("absent", ""), "no machine has a similar name".to_owned()),
    ];
    for (node, near) in near {
        for _ in 0..3 {
            let error = unknown(&look_up(&provider, &node).await);
            for part in [&*near, r#"no instance of project "p" has the name"#, "set its provider ID"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn of_two_instances_with_one_name_that_of_a_managed_zone_counts() {
    let bed = Bed::start(Options::default());
    bed.instance_in("us-central1-c", "n1", json!({}));
    bed.instance_in("us-east1-b", "n1", json!({}));
    let provider = with_flags(&bed, "", &[]).await;
    let error = unknown(&look_up(&provider, &node("n1", "")).await);
    assert!(error.contains("us-central1-c") && error.contains("us-east1-b"), "{error}");
    bed.instance_in(ZONE, "n1", json!({}));
    assert_eq!(metadata(&look_up(&provider, &node("n1", "")).await).zone, ZONE);
}

#[tokio::test]
async fn p10_a_stopped_instance_exists_and_its_node_is_tainted_only_on_demand() {
    let bed = Bed::start(Options::default());
    bed.instance_in(ZONE, "n1", json!({"status": "TERMINATED"}));
    bed.instance_in(ZONE, "n2", json!({"status": "SUSPENDING"}));
    let id = |name: &str| format!("gce://{PROJECT}/{ZONE}/{name}");
    let provider = with_flags(&bed, "", &[]).await;
    let answer = look_up(&provider, &node("n1", &id("n1"))).await;
    assert!(matches!(found(&answer).shutdown, Err(ProviderError::NotImplemented)));
    let provider = with_flags(&bed, "", &["gce-taint-stopped-instances"]).await;
    for (name, expected) in [("n1", true), ("n2", false)] {
        let answer = look_up(&provider, &node(name, &id(name))).await;
        assert_eq!(found(&answer).shutdown.as_ref().unwrap(), &expected, "{name}");
    }
}

#[tokio::test]
async fn a_missing_zone_or_project_says_nothing() {
    let bed = Bed::start(Options::default());
    let provider = with_flags(&bed, "", &["enable-multi-project"]).await;
    for id in ["gce://p/mars-east1-a/n1", "gce://nobody/us-central1-b/n1"] {
        unknown(&look_up(&provider, &node("n1", id)).await);
    }
    bed.cloud.fault(Rule::every(Fault::Html { status: 404 }));
    unknown(&look_up(&provider, &node("n1", &format!("gce://p/{ZONE}/n1"))).await);
}

/// The controllers ignore nodes with this label: nothing else keeps a node without an instance.
#[tokio::test]
async fn p52_a_node_that_somebody_else_manages_has_a_label() {
    let bed = Bed::start(Options::default());
    let provider = with_flags(&bed, "", &[]).await;
    assert_eq!(provider.unmanaged_label(), Some(("components.gke.io/gke-unmanaged-node", "true")));
    assert!(is_absent(&look_up(&provider, &node("theirs", &format!("gce://{PROJECT}/{ZONE}/theirs"))).await));
}

#[tokio::test]
async fn p55_a_new_zone_is_read_once() {
    let bed = Bed::start(Options::default());
    bed.cloud.change(|options| options.regions.get_mut("us-central1").unwrap().truncate(2));
    let cluster = Arc::<TestCluster>::default();
    let provider = bed.process("regional", &cluster).await;
    bed.cloud.change(|options| *options = Options { seed: options.seed, ..Options::default() });
    bed.instance_in("us-central1-c", "n1", json!({}));
    let mark = bed.cloud.mark();
    let volume = |name: &str| {
        let volume = json!({"metadata": {"name": name}, "spec": {"gcePersistentDisk": {"pdName": name}}});
        serde_json::from_value(volume).unwrap()
    };
    let lists = |mark| bed.calls(mark).iter().filter(|call| *call == "zones.list").count();
    let asked = async || drop(provider.volumes().unwrap().labels(&[volume("d")]).await);
    cluster.add_node(node("n1", "gce://p/us-central1-c/n1"));
    asked().await;
    assert_eq!((lists(mark), calls_in(&bed, mark, "us-central1-c")), (1, 1));
    // Other nodes are in a zone that does not exist.
    for number in 0..100 {
        cluster.add_node(node(&format!("m{number}"), "gce://p/us-central1-x/m1"));
    }
    asked().await;
    asked().await;
    assert_eq!(lists(mark), 1);
}

/// The number of lookups of disks in a zone.
fn calls_in(bed: &Bed, mark: u64, zone: &str) -> usize {
    bed.cloud.ledger(|ledger| {
        let gets = ledger.since(mark).filter(|entry| entry.action == "disks.get");
        gets.filter(|entry| entry.params.contains(zone)).count()
    })
}

#[tokio::test]
async fn p63_metadata_of_the_own_instance_are_for_nobody_else() {
    let bed = Bed::start(Options::default());
    // The provider runs on an instance `control` of project `p`; the cluster is in `other`.
    make_in_other(&bed, "control");
    let keys = format!("project-id = other\nlocal-zone = {ZONE}\nnetwork-name = default");
    let provider = with_flags(&bed, &keys, &[]).await;
    let metadata = metadata(&look_up(&provider, &node("control", "")).await);
    assert_eq!(metadata.provider_id, format!("gce://other/{ZONE}/control"));
    assert!(metadata.node_addresses[0].address.starts_with("10.9."), "{metadata:?}");
}

#[tokio::test]
async fn many_nodes_take_a_list_per_zone() {
    const NODES: usize = 2_000;
    let bed = Bed::start(Options::default());
    let nodes: Vec<NodeRef> = (0..NODES)
        .map(|number| {
            let (zone, name) = (ZONES[number % 3], format!("n{number}"));
            bed.instance_in(zone, &name, json!({}));
            node(&name, &format!("gce://p/{zone}/{name}"))
        })
        .collect();
    let cluster = Arc::<TestCluster>::default();
    cluster.set_nodes(nodes.clone());
    let provider = bed.process("regional", &cluster).await;
    for aspects in [Aspects::METADATA, Aspects::LIFECYCLE] {
        let mark = bed.cloud.mark();
        let answers = provider.instances().unwrap().lookup(&nodes, aspects).await;
        assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))));
        // Two pages for each of three zones, and one for the zone without nodes.
        assert!(bed.calls(mark).len() <= 8, "{:?}", bed.calls(mark));
    }
    // New nodes without a provider ID.
    let new: Vec<NodeRef> = nodes.iter().map(|known| node(known.name.as_str(), "")).collect();
    let mark = bed.cloud.mark();
    let answers = provider.instances().unwrap().lookup(&new, Aspects::METADATA).await;
    assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))));
    assert!(bed.calls(mark).len() <= 8, "{:?}", bed.calls(mark));
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

/// The nodes of a zone that is down.
#[tokio::test]
async fn a_zone_that_cannot_be_listed_costs_no_call_for_each_of_its_nodes() {
    let bed = Bed::start(Options::default());
    let nodes: Vec<NodeRef> = (0..200)
        .map(|number| {
            let (zone, name) = (ZONES[number % 2], format!("n{number}"));
            bed.instance_in(zone, &name, json!({}));
            node(&name, &format!("gce://p/{zone}/{name}"))
        })
        .collect();
    let cluster = Arc::<TestCluster>::default();
    cluster.set_nodes(nodes.clone());
    let provider = bed.process("regional", &cluster).await;
    let down = Fault::Code { status: 503, code: "backendError".to_owned(), message: "down".to_owned() };
    for action in ["instances.list", "instances.get"] {
        let rule = Rule { params: Some(format!("zones/{}/", ZONES[0])), ..Rule::every(down.clone()) };
        bed.cloud.fault(rule.on("compute", action));
    }
    let mark = bed.cloud.mark();
    let answers = provider.instances().unwrap().lookup(&nodes, Aspects::LIFECYCLE).await;
    for (number, answer) in answers.iter().enumerate() {
        match number % 2 {
            0 => assert!(unknown(answer).contains("down"), "{answer:?}"),
            _ => assert!(matches!(answer, Lookup::Found(_)), "{answer:?}"),
        }
    }
    assert!(bed.calls(mark).len() <= 6, "{} calls", bed.calls(mark).len());
}

/// New nodes with their instances.
fn in_three_zones(bed: &Bed, count: usize) -> Vec<NodeRef> {
    let new = |number| {
        let name = format!("n{number}");
        bed.instance_in(ZONES[number % 3], &name, json!({}));
        node(&name, "")
    };
    (0..count).map(new).collect()
}

#[tokio::test]
async fn five_thousand_nodes_join_with_few_calls() {
    const NODES: usize = 5_000;
    let bed = Bed::start(Options::default());
    let cluster = Arc::<TestCluster>::default();
    let nodes = in_three_zones(&bed, NODES);
    cluster.set_nodes(nodes.clone());
    let provider = bed.process("regional", &cluster).await;
    let mark = bed.cloud.mark();
    // In bursts, as the core batches them.
    for some in nodes.chunks(1_000) {
        let answers = provider.instances().unwrap().lookup(some, Aspects::METADATA).await;
        assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))));
    }
    let calls = bed.calls(mark).len();
    println!("{NODES} nodes joined with {calls} calls");
    assert!(calls <= 30, "{calls}");
}

/// A node of another cloud, and one whose label is wrong.
#[tokio::test]
async fn a_zone_that_the_project_does_not_have_keeps_no_other_from_its_list() {
    const NODES: usize = 1_000;
    let zoned = |name: &str, id: &str, zone: &str| -> NodeRef {
        let node = json!({"name": name, "providerId": id, "labels": {"topology.kubernetes.io/zone": zone}});
        serde_json::from_value::<Node>(node).unwrap().into()
    };
    for (stray, calls_there) in [
        (zoned("rack-1", "onprem://rack/1", "dc1"), 0),
        (zoned("stray", "", "us-central1-x"), 1),
        (zoned("gone", "gce://p/us-central1-x/gone", ""), 1),
    ] {
        let bed = Bed::start(Options::default());
        let nodes = in_three_zones(&bed, NODES);
        let cluster = Arc::<TestCluster>::default();
        cluster.set_nodes(nodes.iter().cloned().chain([stray.clone()]).collect());
        let provider = bed.process("regional", &cluster).await;
        let mark = bed.cloud.mark();
        let answers = provider.instances().unwrap().lookup(&nodes, Aspects::METADATA).await;
        assert!(answers.iter().all(|answer| matches!(answer, Lookup::Found(_))));
        // A page for each zone, and the zones themselves.
        let calls = bed.calls(mark);
        assert!(calls.len() <= 6 && !calls.contains(&"instances.aggregatedList".to_owned()), "{stray:?}: {calls:?}");
        let there = bed.cloud.ledger(|ledger| {
            let there = |params: &str| params.contains("dc1") || params.contains("us-central1-x");
            ledger.since(mark).filter(|entry| there(&entry.params)).count()
        });
        assert_eq!(there, calls_there, "{stray:?}");
        // It is looked up by itself.
        let answer = look_up(&provider, &stray).await;
        assert!(!matches!(answer, Lookup::Found(_) | Lookup::Gone(_)), "{answer:?}");
        assert_eq!(bed.cloud.violations(), Vec::<String>::new());
    }
}

/// As by the Go program, which reads single instances only.
#[tokio::test]
async fn without_the_right_to_list_instances_a_node_is_found_in_the_managed_zones() {
    let denied = [(PROJECT.to_owned(), vec!["compute.instances.list".to_owned()])].into();
    let bed = Bed::start(Options { denied, ..Options::default() });
    bed.instance_in("us-central1-c", "n1", json!({}));
    let provider = with_flags(&bed, "regional", &[]).await;
    let known = metadata(&look_up(&provider, &node("n1.c.p.internal", "")).await);
    assert_eq!((&*known.provider_id, &*known.zone), ("gce://p/us-central1-c/n1", "us-central1-c"));
    // It may be elsewhere, or have another name.
    let error = unknown(&look_up(&provider, &node("n2", "")).await);
    assert!(error.contains("compute.instances.list"), "{error}");
    assert_eq!(bed.cloud.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn alias_ranges_of_new_nodes_are_read_with_one_list() {
    let bed = Bed::start(Options::default());
    let cluster = Arc::<TestCluster>::default();
    let nodes: Vec<NodeRef> = (0..50)
        .map(|number| {
            let name = format!("n{number}");
            let seed = InstanceSeed {
                project: PROJECT,
                zone: ZONE,
                name: &name,
                subnetwork: &bed.subnetwork,
                alias: (number > 0).then_some(("pods", 24)),
                ..InstanceSeed::default()
            };
            bed.cloud.world(|world| world.instance(&seed)).unwrap();
            node(&name, &format!("gce://p/{ZONE}/{name}"))
        })
        .collect();
    cluster.set_nodes(nodes.clone());
    let provider = bed.process("", &cluster).await;
    let mark = bed.cloud.mark();
    let ranges = provider.pod_ranges().unwrap().pod_ranges(&nodes).await;
    assert_eq!(bed.calls(mark), ["instances.list"]);
    for (number, ranges) in ranges.into_iter().enumerate() {
        let [nic] = &*ranges.unwrap() else { panic!("{number}") };
        assert!(nic.primary && nic.ranges.len() == usize::from(number > 0), "{number}: {nic:?}");
    }
    let gone = node("gone", &format!("gce://p/{ZONE}/gone"));
    assert!(provider.pod_ranges().unwrap().pod_ranges(&[gone]).await.pop().unwrap().is_err());
}
