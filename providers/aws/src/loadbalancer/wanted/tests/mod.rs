#[cfg(feature = "sdk")]
mod classic;
#[cfg(feature = "sdk")]
mod network;

use std::sync::Arc;

use ccm_provider::{
    ErrorClass, LoadBalancerIngress, Node, ProviderError, Service, ServiceAction, ServicePort, ServiceWork,
};

use super::of_service::*;
use super::*;
use crate::annotations::{EXTRA_SECURITY_GROUPS, PREFIX};
use crate::tests::env;

/// A Service with one port and these annotations, given by the ends of their names.
fn service(annotations: &[(&str, &str)]) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "shop".into();
    service.metadata.name = "web".into();
    service.metadata.uid = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab".into();
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.session_affinity = "None".to_owned();
    service.spec.external_traffic_policy = "Cluster".to_owned();
    service.spec.ports = vec![port("http", "TCP", 80, 30080)];
    service.metadata.annotations =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect();
    service
}

fn port(name: &str, protocol: &str, port: i32, node_port: i32) -> ServicePort {
    ServicePort { name: name.to_owned(), protocol: protocol.to_owned(), port, node_port, ..ServicePort::default() }
}

fn shown(mut service: Service, hostname: &str) -> Service {
    let ingress = LoadBalancerIngress { hostname: hostname.to_owned(), ..LoadBalancerIngress::default() };
    service.status.load_balancer.ingress = vec![ingress];
    service
}

fn node(name: &str, provider_id: &str, labels: &[(&str, &str)]) -> Arc<Node> {
    let labels = labels.iter().map(|(key, value)| (*key, *value)).collect();
    let provider_id = Some(provider_id).filter(|id| !id.is_empty()).map(Into::into);
    Arc::new(Node { name: name.into(), provider_id, labels, ..Node::default() })
}

fn work(service: Service, nodes: Vec<Arc<Node>>, action: ServiceAction) -> ServiceWork {
    ServiceWork { service: service.into(), nodes: nodes.into(), action, namespace: None }
}

fn ask(service: Service, action: ServiceAction) -> Result<Wanted, ProviderError> {
    of_service("kubernetes", &work(service, Vec::new(), action), &env())
}

fn ensure(service: Service) -> Result<Wanted, String> {
    ask(service, ServiceAction::Ensure).map_err(|error| error.to_string())
}

fn refusal(service: Service) -> String {
    let error = ask(service, ServiceAction::Ensure).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }), "{error}");
    error.to_string().replace(PREFIX, "~")
}

/// All fields are wrong, and each fix shows the next mistake.
#[test]
fn checks_come_in_the_order_of_upstream() {
    let mut service = shown(
        service(&[
            ("type", "nlb"),
            ("extra-security-groups", ""),
            ("target-group-attributes", "preserve_client_ip.enabled=no"),
            ("healthcheck-port", "http"),
        ]),
        "a1.us-east-1.elb.amazonaws.com",
    );
    service.spec.session_affinity = "ClientIP".to_owned();
    service.spec.ports.clear();
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.1".to_owned()]);
    service.spec.load_balancer_ip = "192.0.2.1".to_owned();

    assert_eq!(
        refusal(service.clone()),
        "~type \"nlb\": cannot update Load Balancer Type annotation \"~type\" after creation for NLB: the Service has a \
         classic load balancer (a1.us-east-1.elb.amazonaws.com); set the annotation back, or delete the Service and create \
         it again"
    );
    service.status.load_balancer.ingress.clear();
    assert_eq!(
        refusal(service.clone()),
        "~extra-security-groups \"\": BYO extra security group annotation \"~extra-security-groups\" is not supported by \
         NLB; remove it, or name all groups in ~security-groups"
    );
    service.metadata.annotations.remove(EXTRA_SECURITY_GROUPS.row.key);
    assert_eq!(
        refusal(service.clone()),
        "~target-group-attributes \"preserve_client_ip.enabled=no\": error validating target group attributes: invalid \
         attribute value for \"preserve_client_ip.enabled\": no; write preserve_client_ip.enabled=true or \
         preserve_client_ip.enabled=false"
    );
    service.metadata.annotations.remove(&format!("{PREFIX}target-group-attributes"));
    assert_eq!(
        refusal(service.clone()),
        "spec.sessionAffinity \"ClientIP\": unsupported load balancer affinity; write None"
    );
    service.spec.session_affinity = "None".to_owned();
    assert_eq!(refusal(service.clone()), "spec.ports: requested load balancer with no ports; add one");
    service.spec.ports = vec![port("a", "TCP", 80, 30080), port("b", "UDP", 53, 30053)];
    assert_eq!(
        refusal(service.clone()),
        "spec.ports[].protocol \"TCP, UDP\": mixed protocol is not supported for LoadBalancer; make a Service for each \
         protocol"
    );
    service.spec.ports.pop();
    assert!(
        refusal(service.clone())
            .starts_with("spec.loadBalancerSourceRanges \"10.0.0.1\": not a CIDR, in: service.Spec.")
    );
    service.spec.load_balancer_source_ranges = None;
    assert_eq!(
        refusal(service.clone()),
        "~healthcheck-port \"http\": not a port; write a number from 1 to 65535 or \"traffic-port\""
    );
    service.metadata.annotations.remove(&format!("{PREFIX}healthcheck-port"));
    assert_eq!(
        refusal(service.clone()),
        "spec.loadBalancerIP \"192.0.2.1\": LoadBalancerIP cannot be specified for AWS ELB; remove it (network load \
         balancers take addresses by annotation)"
    );
    service.spec.load_balancer_ip.clear();
    assert!(matches!(ensure(service).unwrap().goal, Goal::Network(_)));
}

#[test]
fn hostnames_of_china_are_of_classic_balancers() {
    let desired = ensure(shown(service(&[]), "x.cn-north-1.elb.amazonaws.com.cn")).unwrap();
    assert!(matches!(desired.goal, Goal::Classic(_)));
}

#[test]
fn a_classic_balancer_does_not_become_a_network_one() {
    let text = refusal(shown(service(&[("type", "nlb")]), "x.us-east-1.elb.amazonaws.com"));
    assert!(text.starts_with("~type \"nlb\": cannot update Load Balancer Type annotation"), "{text}");
}

#[test]
fn the_type_is_kept_in_every_partition_and_odd_hostnames_do_not_block() {
    let classic = [
        "x.us-east-1.elb.amazonaws.com",
        "internal-x-1.us-iso-east-1.elb.c2s.ic.gov",
        "x.eusc-de-east-1.elb.amazonaws.eu",
    ];
    let network =
        ["x.elb.us-east-1.amazonaws.com", "x.elb.us-gov-west-1.amazonaws.com", "x.elb.cn-north-1.amazonaws.com.cn"];
    for hostname in classic {
        assert!(ensure(shown(service(&[]), hostname)).is_ok(), "{hostname}");
        assert!(ensure(shown(service(&[("type", "nlb")]), hostname)).is_err(), "{hostname}");
    }
    for hostname in network {
        assert!(ensure(shown(service(&[("type", "nlb")]), hostname)).is_ok(), "{hostname}");
        assert!(ensure(shown(service(&[]), hostname)).is_err(), "{hostname}");
    }
    for hostname in ["", "balancer.example.com", "elb.amazonaws.com", "x.elb.elb.amazonaws.com", "a.b.elb.c.d"] {
        for annotations in [&[][..], &[("type", "nlb")]] {
            assert!(ensure(shown(service(annotations), hostname)).is_ok(), "{hostname}");
        }
    }
}

#[test]
fn a_service_without_node_ports_is_refused() {
    for annotations in [&[][..], &[("type", "nlb")]] {
        let mut service = service(annotations);
        service.spec.ports = vec![port("http", "TCP", 80, 0)];
        let text = refusal(service);
        assert!(text.contains("no usable ports"), "{text}");
    }
}

#[test]
fn what_another_controller_makes_is_left_to_it() {
    for kind in ["external", "nlb-ip"] {
        for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts] {
            assert!(ask(service(&[("type", kind)]), action).unwrap_err().is_implemented_elsewhere());
        }
        // No write, and only the two reads by name: nothing else shows that there is one of ours.
        assert!(ask(service(&[("type", kind)]), ServiceAction::Delete).unwrap().elsewhere);
        // A balancer of the other controller, or none of ours: the same result.
        let theirs = shown(service(&[("type", kind)]), "k8s-shop-web-1234.elb.us-east-1.amazonaws.com");
        assert!(ask(theirs, ServiceAction::Delete).unwrap().elsewhere);
    }
}

#[test]
fn a_balancer_of_ours_is_deleted_whatever_the_annotation_says_now() {
    let name = service(&[]).default_load_balancer_name();
    for hostname in [
        format!("{name}-123.us-east-1.elb.amazonaws.com"),
        format!("internal-{name}-123.us-east-1.elb.amazonaws.com"),
        format!("{name}-0a1b.elb.us-east-1.amazonaws.com"),
    ] {
        let service = shown(service(&[("type", "external")]), &hostname);
        assert!(previous_balancer(&service).unwrap().message.contains(&name));
        let desired = ask(service, ServiceAction::Delete).unwrap();
        assert!(matches!(desired.goal, Goal::Absent) && !desired.elsewhere);
    }
    assert!(previous_balancer(&service(&[("type", "external")])).is_none());
    assert!(previous_balancer(&shown(service(&[]), &format!("{name}-1.us-east-1.elb.amazonaws.com"))).is_none());
}

#[test]
fn a_deletion_minds_no_wrong_annotation_and_knows_the_named_groups() {
    let mut service =
        service(&[("proxy-protocol", "x"), ("security-groups", "sg-1, sg-2"), ("extra-security-groups", "sg-3")]);
    service.spec.ports.clear();
    let desired = ask(service, ServiceAction::Delete).unwrap();
    assert_eq!(desired.named_groups.instead, ["sg-1", "sg-2"]);
    assert_eq!(desired.named_groups.extra, ["sg-3"]);
    assert_eq!(desired.name, "a0f1e2d3caaaabbbbcccc0123456789a");
}

#[test]
fn ipv6_source_ranges_are_left_out_with_a_finding() {
    let mut service = service(&[("type", "nlb")]);
    service.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()]);
    let desired = ask(service.clone(), ServiceAction::Ensure).unwrap();
    let common = desired.goal.common().unwrap();
    assert_eq!((common.source_ranges.len(), common.no_client.is_none()), (1, true));
    let warning = "spec.loadBalancerSourceRanges \"2001:db8::/32\": IPv6 ranges cannot be served: load balancers of this \
                   program are IPv4; remove them";
    assert!(desired.findings.iter().any(|finding| finding.to_string().ends_with(warning)), "{:?}", desired.findings);
    service.spec.load_balancer_source_ranges = Some(vec!["2001:db8::/32".to_owned()]);
    let desired = ask(service, ServiceAction::Ensure).unwrap();
    let common = desired.goal.common().unwrap();
    assert_eq!(common.source_ranges, []);
    assert_eq!(common.no_client.as_ref().unwrap().to_string(), warning);
}

#[test]
fn client_addresses_cannot_be_hidden_from_udp() {
    let mut service = service(&[("type", "nlb"), ("target-group-attributes", "preserve_client_ip.enabled=false")]);
    assert!(ensure(service.clone()).is_ok());
    service.spec.ports = vec![port("dns", "UDP", 53, 30053)];
    assert!(refusal(service).contains("can't be disabled for UDP ports"));
}

#[test]
fn nodes_are_chosen_by_label_and_reported_by_instance() {
    let nodes = vec![
        node("a", "aws:///us-west-2a/i-0123456789abcdef0", &[("pool", "web"), ("zone", "x")]),
        node("b", "aws:///us-west-2a/i-00000001", &[("pool", "db"), ("zone", "x")]),
        node("c", "aws:///us-west-2a/i-00000002", &[]),
        node("d", "aws:///us-west-2a/i-00000003", &[("pool", "web")]),
    ];
    let ids = |labels: &str| {
        let service = service(&[("target-node-labels", labels)]);
        let item = work(service, nodes.clone(), ServiceAction::Ensure);
        let desired = of_service("kubernetes", &item, &env()).unwrap();
        let Goal::Classic(classic) = desired.goal else { panic!() };
        classic.common.targets.into_values().collect::<Vec<_>>().join("")
    };
    assert_eq!(ids(""), "bcda");
    assert_eq!(ids("pool=web"), "da");
    assert_eq!(ids("pool,zone=x"), "ba");
    assert_eq!(ids("pool="), "bda");
    assert_eq!(ids("pool=web,zone"), "a");
}

#[test]
fn nodes_without_an_instance_are_left_out_and_bad_ids_are_reported() {
    let nodes = vec![
        node("good", "aws:///us-west-2a/i-00000001", &[]),
        node("bad", "aws:///us-west-2a/vol-1", &[]),
        node("fargate", "aws:///us-west-2a/x/fargate-10.0.0.1", &[]),
        node("foreign", "gce://p/z/i-1", &[]),
        node("new", "", &[]),
    ];
    let item = work(service(&[]), nodes, ServiceAction::Ensure);
    let desired = of_service("kubernetes", &item, &env()).unwrap();
    let summary: Vec<String> =
        desired.findings.iter().map(|finding| format!("{:?} {finding}", finding.severity)).collect();
    assert_eq!(
        summary,
        [
            "Warning nodes: no traffic for bad: their spec.providerID names no instance; correct it",
            "Info nodes: no traffic for new: they have no spec.providerID yet",
            "Info nodes: no traffic for fargate, foreign: they are not EC2 instances of this cloud",
        ]
    );
    let Goal::Classic(classic) = desired.goal else { panic!() };
    assert_eq!(classic.common.targets.len(), 1);
}

#[test]
fn tags_of_ours_cannot_be_set_and_are_reported() {
    let desired = ensure(service(&[("additional-resource-tags", "team=a,kubernetes.io/cluster/c1=shared")])).unwrap();
    let Goal::Classic(classic) = &desired.goal else { panic!() };
    assert_eq!(classic.common.tags, [("team".to_owned(), "a".to_owned())].into());
    assert_eq!(desired.findings.len(), 1);
}

#[test]
fn only_hosts_changed_asks_for_a_balancer_that_exists() {
    for annotations in [&[][..], &[("type", "nlb")]] {
        let desired = ask(service(annotations), ServiceAction::UpdateHosts).unwrap();
        let common = match desired.goal {
            Goal::Classic(classic) => classic.common,
            Goal::Network(network) => network.common,
            Goal::Absent => panic!(),
        };
        assert!(common.must_exist);
    }
}

#[test]
fn services_that_need_ipv6_are_warned_whatever_the_kind() {
    for kind in ["nlb", "clb"] {
        let keys = |families: &[&str], policy: Option<&str>| {
            let mut service = service(&[("type", kind)]);
            service.spec.ip_families = families.iter().map(|family| (*family).to_owned()).collect();
            service.spec.ip_family_policy = policy.map(str::to_owned);
            ensure(service).unwrap().findings.into_iter().map(|finding| finding.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&["IPv6"], None), ["spec.ipFamilies"], "{kind}");
        assert_eq!(keys(&["IPv4", "IPv6"], None), [""; 0], "{kind}");
        assert_eq!(keys(&["IPv4", "IPv6"], Some("RequireDualStack")), ["spec.ipFamilyPolicy"], "{kind}");
    }
}
