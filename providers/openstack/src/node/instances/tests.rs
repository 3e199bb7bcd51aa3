use std::time::SystemTime;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::{Evidence, EvidenceKind, InstancesV2 as _};
use ccm_provider_contract::lookups::{evidence, found, metadata, unknown};
use serde_json::{Value, json};

use super::*;
use crate::world::{REGION, World, cluster};

const MISSING: &str = "11111111-2222-3333-4444-555555555555";

fn provider(world: &World, nodes: &[NodeRef]) -> NovaInstances {
    let identity = Identity { region: REGION.to_owned(), is_regional: false };
    let ports = NodePorts::new(world.client.clone());
    let settings = Settings { identity, networking: Networking::default() };
    instances(settings, world.client.clone(), ports, cluster(nodes.to_vec()).0)
}

fn known(id: &str) -> NodeRef {
    Arc::new(Node { name: id.into(), provider_id: Some(format!("openstack:///{id}").into()), ..Node::default() })
}

fn named(name: &str) -> NodeRef {
    Arc::new(Node { name: name.into(), ..Node::default() })
}

fn count(calls: &[String], action: &str) -> usize {
    calls.iter().filter(|call| call.ends_with(action)).count()
}

#[tokio::test]
async fn new_nodes_that_join_together_cost_one_list_of_servers_and_one_of_ports() {
    let world = World::with(30).await;
    let nodes: Vec<NodeRef> = (1..=30).map(|number| named(&format!("n{number}"))).collect();
    let answers = provider(&world, &nodes).lookup(&nodes, Aspects::METADATA).await;
    assert_eq!(world.calls(), ["compute:server_list", "network:port_list"]);
    let first = metadata(&answers[0]);
    assert_eq!(first.provider_id, format!("openstack:///{}", world.id("n1")));
    assert_eq!((&*first.instance_type, &*first.zone, &*first.region), ("m1.tiny", "nova", REGION));
    assert_eq!(first.node_addresses, world.node("n1", &[]).addresses.to_vec());
    let host = world.resource("server", "name", "n1")["hostId"].as_str().unwrap().to_owned();
    assert_eq!(first.additional_labels, BTreeMap::from([(LABEL_HOST.to_owned(), host)]));
}

#[tokio::test]
async fn a_server_that_has_no_host_yet_gives_no_label_of_it() {
    let world = World::with(1).await;
    for host in [json!(""), json!(null)] {
        world.set("server", &world.id("n1"), json!({"hostId": host}));
        let nodes = [named("n1")];
        let answers = provider(&world, &nodes).lookup(&nodes, Aspects::METADATA).await;
        assert!(metadata(&answers[0]).additional_labels.is_empty(), "{host}");
    }
}

#[tokio::test]
async fn whether_one_server_exists_costs_one_call() {
    let world = World::with(2).await;
    let answers = provider(&world, &[]).lookup(&[known(&world.id("n1"))], Aspects::LIFECYCLE).await;
    assert!(matches!(found(&answers[0]).metadata, Ok(None)));
    assert_eq!(world.calls(), ["compute:server_get"]);
}

#[tokio::test]
async fn what_a_list_lacks_is_asked_for_alone_before_it_is_gone() {
    let world = World::with(5).await;
    let mut nodes: Vec<NodeRef> = (1..=5).map(|number| known(&world.id(&format!("n{number}")))).collect();
    nodes.extend([known(MISSING), named("n1"), named("none")]);
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Lookup::Found(_))).count(), 6);
    let before = evidence(&answers[5]).read_began;
    assert!(before <= SystemTime::now());
    // Nova may answer so while its database changes over: a second look must agree.
    assert_eq!(*evidence(&answers[5]), Evidence { kind: EvidenceKind::Unlisted, read_began: before, grace: GRACE });
    let calls = world.calls();
    // The third list shows which servers come close to the name that none has.
    assert_eq!((count(&calls, "server_list"), count(&calls, "server_get")), (3, 1), "{calls:?}");
}

#[tokio::test]
async fn a_node_whose_name_no_server_ever_had_stays_and_the_error_names_the_servers_that_come_close() {
    let world = World::with(1).await;
    let id = world.server("md-0-v1.26.3-x", json!({}));
    let node = |name: &str, address: &str, created: Option<jiff::Timestamp>| {
        let addresses = [ccm_provider::NodeAddress::new(ccm_provider::AddressType::InternalIp, address)].into();
        Arc::new(Node { name: name.into(), addresses, created, ..Node::default() })
    };
    let instances = provider(&world, &[]);
    let ip = world.ip("md-0-v1.26.3-x");
    let nodes = [node("md-0-v1-26-3-x", "192.0.2.1", None), node("other", &ip, None), node("none", "192.0.2.1", None)];
    for _ in 0..2 {
        let answers = instances.lookup(&nodes, Aspects::LIFECYCLE).await;
        for (answer, expected) in answers.iter().zip([
            format!("md-0-v1.26.3-x ({id}) differs in dots and dashes only"),
            format!("md-0-v1.26.3-x ({id}) has the address {ip} of the Node"),
            "no machine has a similar name or the address of the Node".to_owned(),
        ]) {
            let error = unknown(answer);
            assert!(error.contains(&expected) && error.contains("no server of the project has the name"), "{error}");
        }
    }
    // Of each look-up one list and one for each missing name, and one to compare with.
    assert_eq!(count(&world.calls(), "server_list"), 2 * 4 + 1);
    let young = [node("new", "192.0.2.1", Some(jiff::Timestamp::now()))];
    assert_eq!(unknown(&instances.lookup(&young, Aspects::LIFECYCLE).await[0]), "instance not found");
}

#[tokio::test]
async fn a_name_is_gone_only_if_a_server_had_it() {
    let world = World::with(1).await;
    let instances = provider(&world, &[]);
    found(&instances.lookup(&[named("n1")], Aspects::LIFECYCLE).await[0]);
    let id = world.id("n1");
    world.cloud.world(|inside| inside.remove("server", &id));
    assert_eq!(evidence(&instances.lookup(&[named("n1")], Aspects::LIFECYCLE).await[0]).kind, EvidenceKind::Unlisted);
    unknown(&provider(&world, &[]).lookup(&[named("n1")], Aspects::LIFECYCLE).await[0]);
}

#[tokio::test]
async fn nothing_follows_while_nova_fails() {
    let world = World::with(0).await;
    let instances = provider(&world, &[]);
    for status in [500, 403, 404, 429] {
        world.fail(("compute", "server_list"), status, 1);
        let answers = instances.lookup(&[named("n1")], Aspects::LIFECYCLE).await;
        unknown(&answers[0]);
        world.fail(("compute", "server_get"), if status == 404 { 502 } else { status }, 1);
        let answers = instances.lookup(&[known(MISSING)], Aspects::LIFECYCLE).await;
        unknown(&answers[0]);
    }
}

/// Nova takes too long to list a large project.
#[tokio::test]
async fn while_the_servers_are_not_listed_each_is_read_alone() {
    let world = World::with(20).await;
    let whole = Rule { params: Some("limit=".to_owned()), ..Rule::every(Fault::Html { status: 504 }) };
    world.cloud.fault(whole.on("compute", "server_list"));
    let mut nodes: Vec<NodeRef> = (1..=20).map(|number| known(&world.id(&format!("n{number}")))).collect();
    nodes.extend([known(MISSING), named("none")]);
    let instances = provider(&world, &[]);
    // The second list is compared with the name that no server has. Neither is repeated for some minutes.
    for lists in [2, 0] {
        let answers = instances.lookup(&nodes, Aspects::LIFECYCLE).await;
        for answer in &answers[..20] {
            found(answer);
        }
        evidence(&answers[20]);
        unknown(&answers[21]);
        let calls = world.calls();
        assert_eq!((count(&calls, "server_get"), count(&calls, "server_list")), (21, lists + 1), "{calls:?}");
    }
}

/// Proxies and gateways send a 404 of their own while Nova is unavailable.
#[tokio::test]
async fn a_404_that_is_not_in_the_words_of_nova_is_no_evidence() {
    let world = World::with(0).await;
    let instances = provider(&world, &[]);
    let status = |body: &str| Fault::Status { status: 404, body: body.to_owned() };
    for fault in [
        Fault::Html { status: 404 },
        Fault::Html { status: 200 },
        status(""),
        status(r#"{"message": "no Route matched with those values"}"#),
        status(r#"{"error": {"code": 404, "message": "no backend"}}"#),
        status(r#"{"fault": {"faultstring": "no backend"}}"#),
        Fault::Status { status: 200, body: "{}".to_owned() },
    ] {
        world.cloud.faults(Faults::clear);
        world.cloud.fault(Rule::every(fault).on("compute", "server_get"));
        unknown(&instances.lookup(&[known(MISSING)], Aspects::LIFECYCLE).await[0]);
    }
    world.cloud.faults(Faults::clear);
    evidence(&instances.lookup(&[known(MISSING)], Aspects::LIFECYCLE).await[0]);
}

#[tokio::test]
async fn a_list_in_pages_is_whole_also_when_the_token_ends_in_the_middle_or_it_is_an_error() {
    let world = World::of(7, Options { compute_page: 2, ..Options::default() }).await;
    let failed = |status| Fault::Code { status, code: "Failed".to_owned(), message: "as the test says".to_owned() };
    let second = |fault| Rule::every(fault).on("compute", "server_list").window(1, 1);
    world.cloud.fault(second(failed(401)));
    let servers = world.client.servers().await.unwrap();
    let ids: BTreeSet<&str> = servers.iter().map(|server| &*server.id).collect();
    assert_eq!((servers.len(), ids.len()), (7, 7));
    // Four pages, one of which was requested twice.
    assert_eq!(count(&world.calls(), "server_list"), 5);
    world.cloud.faults(Faults::clear);
    world.cloud.fault(second(failed(500)));
    world.client.servers().await.unwrap_err();
}

#[tokio::test]
async fn of_names_that_differ_only_by_case_the_exact_one_counts_and_two_equal_ones_are_ambiguous() {
    let world = World::with(0).await;
    let exact = world.server("node1", json!({}));
    world.server("NODE1", json!({}));
    let (one, two) = (world.server("twin", json!({})), world.server("twin", json!({})));
    let instances = provider(&world, &[]);
    for nodes in [vec![named("node1")], vec![named("node1"), named("twin"), named("node1"), named("x")]] {
        let answers = instances.lookup(&nodes, Aspects::METADATA).await;
        assert_eq!(metadata(&answers[0]).provider_id, format!("openstack:///{exact}"));
    }
    let error = unknown(&instances.lookup(&[named("twin")], Aspects::METADATA).await[0]);
    assert!(error.starts_with("multiple results where only one expected: servers "), "{error}");
    assert!(error.contains(&one) && error.contains(&two), "{error}");
}

#[tokio::test]
async fn a_server_whose_name_has_capitals_is_found_by_the_node_in_lower_case() {
    for compute_is_case_sensitive in [false, true] {
        let world = World::of(0, Options { compute_is_case_sensitive, ..Options::default() }).await;
        let id = world.server("Worker-1", json!({}));
        let (one, two) = (world.server("Twin", json!({})), world.server("TWIN", json!({})));
        let instances = provider(&world, &[]);
        // By name, and by the list.
        for nodes in [vec![named("worker-1")], vec![named("worker-1"), named("twin"), named("x"), named("y")]] {
            let answers = instances.lookup(&nodes, Aspects::METADATA).await;
            assert_eq!(metadata(&answers[0]).provider_id, format!("openstack:///{id}"));
        }
        let error = unknown(&instances.lookup(&[named("twin")], Aspects::METADATA).await[0]);
        assert!(error.contains(&one) && error.contains(&two), "{error}");
    }
}

/// The server of the user `WEB` may have nothing to do with the node `web`.
#[tokio::test]
async fn a_server_whose_name_differs_in_case_is_no_evidence_when_it_is_gone() {
    for compute_is_case_sensitive in [false, true] {
        let world = World::of(0, Options { compute_is_case_sensitive, ..Options::default() }).await;
        let id = world.server("WEB", json!({}));
        let instances = provider(&world, &[]);
        // The list finds it, and the look-up of a single name does.
        for nodes in [vec![named("web"), named("x"), named("y"), named("z")], vec![named("web")]] {
            found(&instances.lookup(&nodes, Aspects::LIFECYCLE).await[0]);
        }
        world.cloud.world(|inside| inside.remove("server", &id));
        unknown(&instances.lookup(&[named("web")], Aspects::LIFECYCLE).await[0]);
    }
}

#[tokio::test]
async fn a_flavor_whose_name_is_no_label_gives_its_id() {
    let world = World::with(1).await;
    world.cloud.world(|inside| inside.flavor("43", "m1 tiny/x"));
    world.set("server", &world.id("n1"), json!({"_flavor": {"id": "43", "name": "m1 tiny/x"}}));
    let answers = provider(&world, &[]).lookup(&[named("n1")], Aspects::METADATA).await;
    assert_eq!(metadata(&answers[0]).instance_type, "43");
}

#[tokio::test]
async fn a_provider_id_that_names_no_server_of_ours_is_never_evidence_and_never_asked_for() {
    let world = World::with(1).await;
    let id = world.id("n1");
    let odd = |id: String| Arc::new(Node { name: "odd".into(), provider_id: Some(id.into()), ..Node::default() });
    let nodes = [
        odd(format!("openstack://{id}")),
        odd(format!("openstack://RegionTwo/{id}")),
        odd("aws:///eu-1a/i-1".to_owned()),
        odd(format!("/{id}")),
    ];
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await;
    assert!(unknown(&answers[0]).contains("didn't match expected format"));
    assert!(unknown(&answers[1]).contains("didn't match supported region \"RegionOne\""));
    assert!(matches!(answers[2], Lookup::Foreign));
    assert_eq!(metadata(&answers[3]).provider_id, format!("/{id}"), "an existing ID is echoed");
    assert_eq!(count(&world.calls(), "server_get"), 1);
}

#[tokio::test]
async fn only_a_server_that_is_shut_off_is_shut_down_and_any_status_exists() {
    let world = World::with(0).await;
    let statuses = ["ACTIVE", "SHUTOFF", "SHELVED", "SHELVED_OFFLOADED", "PAUSED", "SUSPENDED", "ERROR", "NEW_ONE"];
    let nodes: Vec<NodeRef> = statuses.map(|status| known(&world.server(status, json!({"status": status})))).to_vec();
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::LIFECYCLE).await;
    let stopped: Vec<bool> = answers.iter().map(|answer| *found(answer).shutdown.as_ref().unwrap()).collect();
    assert_eq!(stopped, [false, true, false, false, false, false, false, false]);
}

#[tokio::test]
async fn an_old_nova_names_flavors_by_id_and_a_deleted_one_gives_its_id() {
    let world = World::of(2, Options { compute_version: 40, ..Options::default() }).await;
    let nodes = [named("n1"), named("n2")];
    let instances = provider(&world, &[]);
    let types = |answers: Vec<Lookup>| -> Vec<String> {
        answers.iter().map(|answer| metadata(answer).instance_type.clone()).collect()
    };
    assert_eq!(types(instances.lookup(&nodes, Aspects::METADATA).await), ["m1.tiny"; 2]);
    assert_eq!(count(&world.calls(), "flavor_get"), 1);
    instances.lookup(&nodes, Aspects::METADATA).await;
    assert_eq!(count(&world.calls(), "flavor_get"), 0, "a flavor is remembered");
    world.cloud.world(|inside| inside.remove("flavor", "42"));
    assert_eq!(types(provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await), ["42"; 2]);
    world.fail(("compute", "flavor_get"), 500, 1);
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await;
    assert!(found(&answers[0]).metadata.is_err(), "a type that could not be read is not guessed");
}

fn trunk(world: &World, subports: &[&str]) {
    let subports: Vec<Value> = subports.iter().map(|id| json!({"port_id": id, "segmentation_id": 1})).collect();
    let details = json!({"trunk_details": {"trunk_id": "t", "sub_ports": subports}});
    world.set("port", world.port("n1")["id"].as_str().unwrap(), details);
}

#[tokio::test]
async fn subports_are_read_only_where_there_are_any_and_one_that_is_not_visible_is_left_out() {
    use ccm_cloudsim::openstack::seed::SubnetSeed;
    let world = World::with(2).await;
    let subport = world.cloud.world(|inside| {
        let network = inside.network(&world.project, "a-trunk", json!({}));
        let subnet = inside.subnet(&SubnetSeed { network: &network, cidr: "10.5.0.0/24", ..SubnetSeed::default() });
        inside.port(&world.project, &[&subnet], json!({})).unwrap()
    });
    trunk(&world, &[&subport, MISSING]);
    let nodes = [known(&world.id("n1")), known(&world.id("n2"))];
    let ips = |answer: &Lookup| -> Vec<String> {
        metadata(answer).node_addresses.iter().map(|address| address.address.to_string()).collect()
    };
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await;
    let ip = world.resource("port", "id", &subport)["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
    assert_eq!(ips(&answers[0]).last(), Some(&ip));
    assert_eq!(ips(&answers[1]).len(), 2);
    let calls = world.calls();
    assert_eq!((count(&calls, "port_list"), count(&calls, "network_list")), (2, 1), "{calls:?}");
    world.fail(("network", "network_list"), 403, 1);
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await;
    assert_eq!(ips(&answers[0]).len(), 2, "what may not be read is left out");
    world.fail(("network", "network_list"), 503, 1);
    let answers = provider(&world, &[]).lookup(&nodes, Aspects::METADATA).await;
    assert!(found(&answers[0]).metadata.is_err(), "no answer takes no address away");
    assert_eq!(ips(&answers[1]).len(), 2);
}

#[tokio::test]
async fn ports_that_could_not_be_read_are_an_error_and_no_missing_addresses() {
    let world = World::with(1).await;
    world.fail(("network", "port_list"), 503, 1);
    let answers = provider(&world, &[]).lookup(&[named("n1")], Aspects::ADDRESSES).await;
    assert!(found(&answers[0]).metadata.is_err());
}

#[tokio::test]
async fn a_port_of_another_project_is_found_among_many_servers() {
    let world = World::with(101).await;
    let port = world.port("n1")["id"].as_str().unwrap().to_owned();
    let fields = json!({"device_id": world.id("n1"), "device_owner": "compute:nova"});
    let own = world.cloud.world(|cloud| cloud.port(&world.project, &[&world.subnet], fields).unwrap());
    world.set("port", &port, json!({"project_id": "other", "tenant_id": "other"}));
    let names = (1..=101).map(|number| format!("n{number}"));
    let all: BTreeSet<ServerId> = names.filter_map(|name| ServerId::parse(&world.id(&name))).collect();
    let read = NodePorts::new(world.client.clone()).of(&all).await.unwrap();
    let ids: Vec<&str> = read[&*world.id("n1")].iter().map(|port| &*port.id).collect();
    assert_eq!((read.len(), ids), (101, vec![&*port, &*own]));
    assert_eq!(world.calls(), ["network:port_list", "network:port_list"]);
}

#[tokio::test]
async fn the_ports_of_servers_are_one_list_and_are_read_again_after_a_write() {
    let world = World::with(3).await;
    let ports = NodePorts::new(world.client.clone());
    let ids = |names: &[&str]| names.iter().filter_map(|name| ServerId::parse(&world.id(name))).collect();
    let both: BTreeSet<ServerId> = ids(&["n1", "n2"]);
    let read = ports.of(&both).await.unwrap();
    assert_eq!(read.len(), 2);
    let port = &read[&*world.id("n1")][0];
    assert_eq!(port.id, world.port("n1")["id"]);
    assert!(port.revision_number.is_some() && port.fixed_ips.iter().all(|fixed| !fixed.subnet_id.is_empty()));
    ports.of(&ids(&["n1"])).await.unwrap();
    assert_eq!(world.calls(), ["network:port_list"]);
    world.client.change_port(port, |_| Some(json!({"security_groups": []}))).await.unwrap();
    ports.of(&both).await.unwrap();
    assert_eq!(world.calls(), ["network:port_update", "network:port_list"]);
}

/// Each Service asks for them.
#[tokio::test]
async fn the_ports_of_trunks_are_one_list_of_parents_and_one_of_subports() {
    let world = World::with(2).await;
    let subports = ["n1", "n2"].map(|name| {
        let subport = world.cloud.world(|cloud| cloud.port(&world.project, &[&world.subnet], json!({})).unwrap());
        let trunk = json!({"trunk_id": name, "sub_ports": [{"port_id": subport, "segmentation_id": 1}]});
        world.set("port", world.port(name)["id"].as_str().unwrap(), json!({"trunk_details": trunk}));
        subport
    });
    let ports = NodePorts::new(world.client.clone());
    let ids: BTreeSet<ServerId> =
        ["n1", "n2"].into_iter().filter_map(|name| ServerId::parse(&world.id(name))).collect();
    for expected in [&["network:port_list", "network:port_list"][..], &[]] {
        let read = ports.with_subports(&ids).await.unwrap();
        let last = ["n1", "n2"].map(|name| read[&*world.id(name)].last().unwrap().id.clone());
        assert_eq!(last, subports);
        assert_eq!(world.calls(), expected);
    }
    let read = ports.of(&ids).await.unwrap();
    assert!(read.values().all(|ports| ports.len() == 1));
    world.calls();
    world.client.change_port(&read[&*world.id("n1")][0], |_| Some(json!({"security_groups": []}))).await.unwrap();
    ports.with_subports(&ids).await.unwrap();
    assert_eq!(world.calls(), ["network:port_update", "network:port_list", "network:port_list"]);
}

#[tokio::test]
async fn a_flavor_that_cannot_be_read_fails_only_its_own_servers_and_is_read_again() {
    let world = World::of(1, Options { compute_version: 40, ..Options::default() }).await;
    let odd = "x-large";
    world.cloud.world(|inside| inside.flavor(odd, "x1.large"));
    let id = world.server("odd", json!({}));
    world.set("server", &id, json!({"_flavor": {"id": odd}}));
    let nodes = [named("n1"), named("odd")];
    let instances = provider(&world, &[]);
    let broken = Rule {
        params: Some(format!("id={odd}")),
        ..Rule::every(Fault::Html { status: 500 }).on("compute", "flavor_get").window(0, 1)
    };
    world.cloud.fault(broken);
    let answers = instances.lookup(&nodes, Aspects::METADATA).await;
    assert_eq!(&*metadata(&answers[0]).instance_type, "m1.tiny");
    assert!(found(&answers[1]).metadata.is_err());
    assert_eq!(&*metadata(&instances.lookup(&nodes, Aspects::METADATA).await[1]).instance_type, "x1.large");
}
