//! Mistakes of users, over HTTP: the messages, and that everything else continues.

use ccm_provider::{LoadBalancerExt as _, LoadBalancerIngress, Service};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service};

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
