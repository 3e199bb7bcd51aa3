//! Mistakes of users, over HTTP: the messages, and that everything else continues.

use std::collections::BTreeMap;

use ccm_provider::{LoadBalancerExt as _, LoadBalancerIngress, Node, NodeRef, Service, ServiceAction, ServiceWork};
use serde_json::json;

use crate::bed::{Bed, CERTIFICATE, CLUSTER, PREFIX, service, shape_of};
use crate::leader::watched;

fn desired(name: &str, annotations: &[(&str, &str)]) -> Service {
    service(name, annotations, &[(80, 31080)], json!({}))
}

#[tokio::test]
async fn a_mistake_made_since_keeps_no_node_from_coming_or_going() {
    for (kind, mistake) in [
        ("nlb", ("healthcheck-interval", "often")),
        ("nlb", ("extra-security-groups", "sg-1")),
        ("nlb", ("type", "clb")),
        ("clb", ("healthcheck-interval", "1")),
        ("clb", ("target-group-attributes", "proxy_protocol_v2.enabled=true")),
        ("clb", ("type", "nlb")),
    ] {
        let mut bed = Bed::start("");
        let process = bed.process().await;
        let status = bed.ensure(&*process, &desired("web", &[("type", kind)])).await;
        let mut wrong = desired("web", &[("type", kind), mistake]);
        wrong.status.load_balancer = status;
        let error = process.ensure(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains(mistake.0) && error.contains(mistake.1), "{error}");
        bed.add_nodes(2);
        bed.nodes.remove(0);
        let mark = bed.aws.mark();
        process.update(CLUSTER, &wrong, &bed.nodes).await.unwrap();
        assert_eq!(bed.hosts(), [4], "{kind} {mistake:?}");
        assert_eq!(bed.writes(mark).len(), 2, "{:?}", bed.writes(mark));
        let mark = bed.aws.mark();
        process.update(CLUSTER, &wrong, &bed.nodes).await.unwrap();
        assert_eq!(bed.writes(mark), Vec::<String>::new());
        bed.check();
    }
}

#[tokio::test]
async fn hosts_of_a_balancer_that_is_not_there_are_an_error_that_names_it() {
    let bed = Bed::start("");
    let process = bed.process().await;
    for kind in ["nlb", "clb"] {
        let mut wrong = desired("web", &[("type", kind), ("healthcheck-interval", "often")]);
        let error = process.update(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains(&wrong.default_load_balancer_name()), "{error}");
        let hostname = "no.hostname.of.aws".to_owned();
        wrong.status.load_balancer.ingress = vec![LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() }];
        assert!(process.update(CLUSTER, &wrong, &bed.nodes).await.is_err());
    }
    assert_eq!(bed.aws.ledger(|ledger| ledger.mutating(0).count()), 0);
}

/// A mistake that only AWS can find: the message names the object, and another Service is still served.
#[tokio::test]
async fn objects_that_do_not_exist_are_named_and_other_services_go_on() {
    let bed = Bed::start("NLBSecurityGroupMode = Managed");
    let process = bed.process().await;
    for (kind, key, value) in [
        ("clb", "subnets", "subnet-0123456789abcdef0"),
        ("nlb", "subnets", "no-such-name"),
        ("clb", "security-groups", "sg-0123456789abcdef9"),
        ("nlb", "security-groups", "sg-0123456789abcdef9"),
        ("clb", "extra-security-groups", "sg-0123456789abcdef9"),
        ("clb", "ssl-cert", "arn:aws:acm:us-west-2:123456789012:certificate/gone"),
        ("nlb", "ssl-cert", "arn:aws:acm:us-west-2:123456789012:certificate/gone"),
        ("nlb", "eip-allocations", "eipalloc-0123456789abcdef0,eipalloc-0123456789abcdef1"),
        ("nlb", "eip-allocations", "eipalloc-0123456789abcdef0"),
        ("nlb", "private-ipv4-addresses", "10.0.0.1"),
    ] {
        let wrong = desired("wrong", &[("type", kind), (key, value)]);
        let error = process.ensure(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
        let object = value.split(',').next().unwrap();
        assert!(error.contains(object), "{kind} {key} {value}: {error}");
        println!("{kind} {key}={value}: {error}");
        bed.ensure(&*process, &desired("right", &[("type", kind)])).await;
        bed.delete(&*process, &wrong).await;
    }
    let left: Vec<String> = bed.aws.world(|world| {
        let elb = world.elb.balancers.keys().cloned();
        elb.chain(world.elbv2.balancers.values().map(|balancer| balancer.name.clone())).collect()
    });
    assert!(left.iter().all(|name| *name == desired("right", &[]).default_load_balancer_name()), "{left:?}");
}

/// A wrong value of each annotation, with the kind of balancer.
const WRONG: &[(&str, &str, &str)] = &[
    ("clb", "access-log-emit-interval", "7"),
    ("clb", "access-log-emit-interval", "often"),
    ("nlb", "access-log-enabled", "yes"),
    ("clb", "access-log-enabled", "yes"),
    ("clb", "access-log-s3-bucket-name", "logs-without-the-switch"),
    ("clb", "access-log-s3-bucket-prefix", "prefix-without-the-switch"),
    ("nlb", "additional-resource-tags", "aws:owner=me"),
    ("clb", "additional-resource-tags", "kubernetes.io/cluster/c1=shared"),
    ("clb", "backend-protocol", "gopher"),
    ("nlb", "backend-protocol", "gopher"),
    ("clb", "connection-draining-enabled", "yes"),
    ("clb", "connection-draining-timeout", "3601"),
    ("clb", "connection-draining-timeout", "long"),
    ("clb", "connection-idle-timeout", "0"),
    ("clb", "connection-idle-timeout", "60s"),
    ("clb", "cross-zone-load-balancing-enabled", "yes"),
    ("nlb", "cross-zone-load-balancing-enabled", "yes"),
    ("nlb", "eip-allocations", "eipalloc-0123456789abcdef0"),
    ("nlb", "eip-allocations", "203.0.113.7"),
    ("nlb", "extra-security-groups", "sg-0123456789abcdef9"),
    ("clb", "extra-security-groups", "sg-0123456789abcdef9"),
    ("clb", "healthcheck-healthy-threshold", "11"),
    ("nlb", "healthcheck-healthy-threshold", "x"),
    ("nlb", "healthcheck-interval", "301"),
    ("clb", "healthcheck-interval", "5s"),
    ("nlb", "healthcheck-path", "healthz-without-slash"),
    ("clb", "healthcheck-path", "healthz-without-slash"),
    ("nlb", "healthcheck-port", "70000"),
    ("clb", "healthcheck-port", "web"),
    ("nlb", "healthcheck-protocol", "ssl"),
    ("clb", "healthcheck-protocol", "udp"),
    ("clb", "healthcheck-timeout", "61"),
    ("nlb", "healthcheck-timeout", "121"),
    ("clb", "healthcheck-unhealthy-threshold", "1"),
    ("nlb", "healthcheck-unhealthy-threshold", "x"),
    ("clb", "internal", "no"),
    ("nlb", "private-ipv4-addresses", "10.0.0.300"),
    ("nlb", "private-ipv4-addresses", "10.99.99.99"),
    ("clb", "proxy-protocol", "v2"),
    ("nlb", "security-groups", "sg-0123456789abcdef9"),
    ("clb", "security-groups", "sg-0123456789abcdef9"),
    ("nlb", "ssl-cert", "arn:aws:acm:us-west-2:123456789012:certificate/gone"),
    ("clb", "ssl-cert", "arn:aws:acm:us-west-2:123456789012:certificate/gone"),
    ("clb", "ssl-negotiation-policy", "No-Such-Policy-2000-01"),
    ("nlb", "ssl-negotiation-policy", "No-Such-Policy-2000-01"),
    ("clb", "ssl-ports", "444"),
    ("nlb", "ssl-ports", ","),
    ("nlb", "subnets", "subnet-0123456789abcdef0"),
    ("clb", "subnets", "no-such-name"),
    ("nlb", "target-group-attributes", "stickiness.enabled=true"),
    ("clb", "target-group-attributes", "proxy_protocol_v2.enabled=true"),
    ("clb", "target-node-labels", "no-node=has-it"),
    ("clb", "type", "clb2"),
];

#[test]
fn each_annotation_has_a_wrong_value_here() {
    let reference = ccm_provider_aws::reference("annotations").unwrap();
    let keys = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let here = |key: &str| WRONG.iter().any(|(_, here, _)| key == format!("{PREFIX}{here}"));
    let missing: Vec<&str> = keys.filter(|key| key.starts_with(PREFIX) && !here(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn a_wrong_value_is_named_with_its_key() {
    let bed = Bed::start("NLBSecurityGroupMode = Managed");
    let (process, cluster) = watched(&bed).await;
    let empty = shape_of(&bed);
    let mut unnamed = BTreeMap::new();
    for (kind, key, value) in WRONG {
        let mut annotations = vec![("type", *kind)];
        match *key {
            // Policies and ports are those of a certificate.
            "ssl-negotiation-policy" | "ssl-ports" | "backend-protocol" => annotations.push(("ssl-cert", CERTIFICATE)),
            "private-ipv4-addresses" => annotations.push(("internal", "true")),
            _ => {}
        }
        annotations.push((key, value));
        let wrong = desired("wrong", &annotations);
        let answer = bed.work(&*process, &wrong, ServiceAction::Ensure).await.map_err(|error| error.to_string());
        let said = format!("{:?} {answer:?}", cluster.take_events());
        if !said.contains(&format!("{PREFIX}{key}")) || !said.contains(value) {
            unnamed.insert((kind, key, value), said);
        }
        bed.delete(&*process, &wrong).await;
    }
    assert_eq!(shape_of(&bed), empty);
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}

/// They are used at creation only.
#[tokio::test]
async fn addresses_that_cannot_be_read_do_not_stop_a_load_balancer_that_exists() {
    let bed = Bed::start("");
    let (process, cluster) = watched(&bed).await;
    let web =
        |port: i32| service("web", &[("type", "nlb"), ("private-ipv4-addresses", "x")], &[(port, 31080)], json!({}));
    let error = process.ensure(CLUSTER, &web(80), &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("private-ipv4-addresses"), "{error}");
    bed.ensure(&*process, &desired("web", &[("type", "nlb")])).await;
    cluster.take_events();
    bed.ensure(&*process, &web(81)).await;
    let ports = bed.aws.world(|world| world.elbv2.listeners.values().map(|one| one.port).collect::<Vec<_>>());
    assert_eq!(ports, [81]);
    let events = cluster.take_events();
    assert_eq!(events.iter().filter(|event| event.contains("not an IPv4 address")).count(), 1, "{events:?}");
    bed.check();
}

/// Another controller has the Service when it is deleted.
#[tokio::test]
async fn a_load_balancer_that_aws_refuses_leaves_no_target_group() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let [one, other] = ["eipalloc-0123456789abcdef0", "eipalloc-0123456789abcdef1"];
    let wrong = desired("web", &[("type", "nlb"), ("eip-allocations", &format!("{one},{other}"))]);
    let error = process.ensure(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains(one), "{error}");
    assert_eq!(bed.aws.world(|world| (world.elbv2.balancers.len(), world.elbv2.groups.len())), (0, 0));
    bed.delete(&*process, &desired("web", &[("type", "external")])).await;
    bed.check();
}

/// Otherwise one such node lets a balancer lose all targets because the other Node objects are gone.
#[tokio::test]
async fn a_node_that_can_be_no_target_is_no_host() {
    let process = Bed::start("").process().await;
    let instance = "aws:///us-west-2a/i-0123456789abcdef0";
    let is_host = |service: &Service, id: &str, labels: &[(&str, &str)]| {
        let provider_id = Some(id).filter(|id| !id.is_empty()).map(Into::into);
        let node = Node { name: "n".into(), provider_id, labels: labels.iter().copied().collect(), ..Node::default() };
        process.backend(service, &node).is_some()
    };
    let web = desired("web", &[]);
    for (id, expected) in [
        (instance, true),
        ("i-0123456789abcdef0", true),
        ("onprem://rack/1", false),
        ("aws:///us-west-2a/x/fargate-10.0.0.1", false),
        ("", false),
        // A mistake, which is reported.
        ("aws:///us-west-2a/vol-1", true),
    ] {
        assert_eq!(is_host(&web, id, &[]), expected, "{id}");
    }
    let labeled = desired("web", &[("target-node-labels", "pool=web,zone")]);
    assert!(is_host(&labeled, instance, &[("pool", "web"), ("zone", "x")]));
    assert!(!is_host(&labeled, instance, &[("pool", "db"), ("zone", "x")]));
    assert!(!is_host(&labeled, instance, &[("pool", "web")]));
}

#[tokio::test]
async fn without_its_labels_a_service_that_leaves_out_all_nodes_takes_none_away() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &desired("web", &[("type", kind)])).await;
        let none = desired("web", &[("type", kind), ("target-node-labels", "no-node=has-it")]);
        let steps = async |service: Service| {
            let work = ServiceWork::new(&service, &bed.nodes, ServiceAction::UpdateHosts);
            process.plan(CLUSTER, &work).await.unwrap().steps
        };
        assert!(!steps(none.clone()).await.is_empty(), "{kind}");
        assert_eq!(steps(process.unselective(&none).unwrap()).await, [], "{kind}");
    }
}

#[tokio::test]
async fn a_wrong_provider_id_of_the_only_node_takes_no_target_away() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let web = desired("web", &[("type", kind)]);
        bed.ensure(&*process, &web).await;
        let wrong = Node { name: "n".into(), provider_id: Some("aws:///us-west-2a/vol-1".into()), ..Node::default() };
        let error = process.update(CLUSTER, &web, &[NodeRef::new(wrong)]).await.unwrap_err().to_string();
        assert!(error.contains("no target would be left"), "{error}");
        assert_eq!(bed.hosts(), [3], "{kind}");
        bed.check();
    }
}

/// Another interval needs a new target group.
#[tokio::test]
async fn a_listener_does_not_move_to_a_target_group_without_targets() {
    let bed = Bed::start("");
    bed.ensure(&*bed.process().await, &desired("web", &[("type", "nlb")])).await;
    let groups =
        || bed.aws.world(|world| world.elbv2.listeners.values().map(|it| it.group.clone()).collect::<Vec<_>>());
    let before = groups();
    bed.aws.world(|world| world.ec2.instances.values_mut().for_each(|instance| instance.tags.clear()));
    let changed = desired("web", &[("type", "nlb"), ("healthcheck-interval", "10")]);
    let error = bed.process().await.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("no target would be left"), "{error}");
    assert_eq!(groups(), before);
    assert!(bed.hosts().contains(&3));
}

#[tokio::test]
async fn an_instance_without_the_tag_of_the_cluster_gets_no_traffic() {
    for kind in ["nlb", "clb"] {
        for wrong in [None, Some("kubernetes.io/cluster/other")] {
            let what = format!("{kind} {wrong:?}");
            let bed = Bed::start("");
            let id = bed.nodes[2].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
            let set = |key: Option<&str>| {
                let tags = key.map(|key| (key.to_owned(), "owned".to_owned())).into_iter().collect();
                bed.aws.world(|world| world.ec2.instances.get_mut(&id).unwrap().tags = tags);
            };
            set(wrong);
            let (process, cluster) = watched(&bed).await;
            let web = desired("web", &[("type", kind)]);
            bed.ensure(&*process, &web).await;
            assert_eq!(bed.hosts(), [2], "{what}");
            let events = cluster.take_events();
            let names = |event: &String| event.contains("node-2") && event.contains("kubernetes.io/cluster/c1");
            assert_eq!(events.iter().filter(|event| names(event)).count(), 1, "{what}: {events:?}");
            // The user follows the advice.
            set(Some("kubernetes.io/cluster/c1"));
            bed.ensure(&*bed.process().await, &web).await;
            assert_eq!(bed.hosts(), [3], "{what}");
            set(wrong);
            bed.ensure(&*bed.process().await, &web).await;
            assert_eq!(bed.hosts(), [2], "{what}");
            bed.check();
        }
    }
}
