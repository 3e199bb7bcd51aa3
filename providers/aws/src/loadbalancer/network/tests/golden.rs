//! What is done for each change of a Service, as text in `plans.txt`. Every plan is applied, and leaves nothing to do.
//! `UPDATE=1 cargo test -p ccm-provider-aws plans_are_as_written_down` writes the file anew.

use std::fmt::Write as _;

use super::*;
use crate::annotations::{
    ACCESS_LOG, ACCESS_LOG_BUCKET, ACCESS_LOG_PREFIX, BACKEND_PROTOCOL, CROSS_ZONE, EIP_ALLOCATIONS, HEALTH_INTERVAL,
    HEALTH_PATH, HEALTH_PORT, HEALTH_PROTOCOL, HEALTH_TIMEOUT, HEALTHY_THRESHOLD, PRIVATE_IPV4, SSL_CERT, SSL_POLICY,
    SSL_PORTS, TARGET_GROUP_ATTRIBUTES, UNHEALTHY_THRESHOLD,
};
use crate::client::elbv2::Listener;

#[derive(Default)]
struct Book(String);

impl Book {
    fn write(&mut self, title: &str, planned: &Planned) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# {title}\n{}\n", text(planned));
    }

    /// A Service that is new.
    fn creation(&mut self, title: &str, asked: &Asked) {
        self.write(title, &asked.settle(&mut Cloud::with_nodes(3)));
    }

    /// A Service that changes.
    fn change(&mut self, title: &str, from: &Asked, to: &Asked) {
        let mut cloud = current(from);
        self.write(title, &to.settle(&mut cloud));
    }

    /// A change and the way back.
    fn there_and_back(&mut self, title: &str, from: &Asked, to: &Asked) {
        self.change(title, from, to);
        self.change(&format!("{title}: back"), to, from);
    }

    /// What a hand did, undone.
    fn repair(&mut self, title: &str, asked: &Asked, hand: impl Fn(&mut Cloud)) {
        let mut cloud = current(asked);
        hand(&mut cloud);
        self.write(title, &asked.settle(&mut cloud));
    }

    fn end(&mut self, title: &str, asked: &Asked, hand: impl Fn(&mut Cloud)) {
        let mut cloud = current(asked);
        hand(&mut cloud);
        self.write(title, &asked.settle_wish(&asked.gone(), &mut cloud));
        let left: Vec<_> = cloud.groups.keys().chain(cloud.balancers.keys()).chain(cloud.listeners.keys()).collect();
        assert!(left.is_empty(), "{title} leaves {left:?}");
        let rules: Vec<_> = cloud.security_groups.values().flat_map(|group| &group.ingress).collect();
        assert!(rules.is_empty(), "{title} leaves {rules:?}");
        assert_eq!(cloud.security_groups.len(), 1, "{title}");
    }
}

fn first_listener(cloud: &mut Cloud) -> &mut Listener {
    &mut cloud.listeners.values_mut().next().unwrap().1
}

fn creations(book: &mut Book) {
    let web = asked(&[(443, 31443), (80, 31080)]);
    book.creation("a new Service", &web);
    book.creation("a new Service without nodes", &web.clone().nodes(&[]));
    book.creation("a new internal Service", &web.clone().with(&INTERNAL, "true"));
    let tls = web.clone().with(&SSL_CERT, CERTIFICATE).with(&SSL_PORTS, "443");
    book.creation("a new Service with TLS on one port", &tls);
    book.creation("a new Service with TLS to the nodes", &tls.clone().with(&BACKEND_PROTOCOL, "ssl"));
    book.creation("a new Service with a TLS policy", &tls.with(&SSL_POLICY, "ELBSecurityPolicy-TLS13-1-2-2021-06"));
    book.creation("a new UDP Service with a certificate", &asked(&[(53, 31053)]).udp().with(&SSL_CERT, CERTIFICATE));
    book.creation("a new Service with the traffic policy Local", &web.clone().local());
    book.creation("a new Service probed through kube-proxy", &web.clone().shared());
    let eips = web.clone().with(&SUBNETS, "subnet-b,subnet-a").with(&EIP_ALLOCATIONS, "eip-1, eip-2");
    book.creation("a new Service with Elastic IPs, in the order of its subnets", &eips);
    let private = web.clone().with(&INTERNAL, "true").with(&PRIVATE_IPV4, "10.0.1.7,10.0.2.7");
    book.creation("a new Service with private addresses", &private);
    let logs = web.clone().with(&ACCESS_LOG, "true").with(&ACCESS_LOG_BUCKET, "logs").with(&ACCESS_LOG_PREFIX, "web");
    book.creation("a new Service with logs and cross-zone balancing", &logs.with(&CROSS_ZONE, "true"));
    let attributes = "preserve_client_ip.enabled=false, proxy_protocol_v2.enabled=true";
    book.creation(
        "a new Service with target group attributes",
        &web.clone().with(&TARGET_GROUP_ATTRIBUTES, attributes),
    );
    book.creation("a new Service with tags", &web.clone().with(&ADDITIONAL_TAGS, "team=web"));
    book.creation("a new Service with a managed group", &web.clone().managed().ranges(&["10.0.0.0/8"]));
    book.creation("a new Service with groups of its own", &web.managed().with(&SECURITY_GROUPS, "sg-mine,sg-too"));
}

fn ports(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("a port is added", &one, &asked(&[(80, 31080), (443, 31443)]));
    book.change("a port is renumbered", &one, &asked(&[(81, 31080)]));
    book.change("a node port is renumbered", &one, &asked(&[(80, 31081)]));
    let (two, swapped) = (asked(&[(80, 31080), (443, 31443)]), asked(&[(80, 31443), (443, 31080)]));
    book.change("two ports swap their node ports", &two, &swapped);
    book.there_and_back("the protocol changes", &one, &one.clone().udp());
    book.there_and_back("a certificate is added", &one, &one.clone().with(&SSL_CERT, CERTIFICATE));
    let tls = one.clone().with(&SSL_CERT, CERTIFICATE);
    book.there_and_back("TLS to the nodes", &tls, &tls.clone().with(&BACKEND_PROTOCOL, "ssl"));
    let renewed = one.clone().with(&SSL_CERT, "arn:aws:acm:us-west-2:123456789012:certificate/two");
    book.change("the certificate is another", &tls, &renewed);
    book.there_and_back(
        "a TLS policy is asked for",
        &tls,
        &tls.clone().with(&SSL_POLICY, "ELBSecurityPolicy-FS-2018-06"),
    );
}

fn health(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("the traffic policy becomes Local", &one, &one.clone().local());
    book.there_and_back("kube-proxy is probed", &one, &one.clone().shared());
    let http = one.clone().with(&HEALTH_PROTOCOL, "http");
    book.there_and_back("HTTP checks", &one, &http);
    book.there_and_back("another path", &http, &http.clone().with(&HEALTH_PATH, "/ready"));
    book.there_and_back("another port", &http, &http.clone().with(&HEALTH_PORT, "9000"));
    book.there_and_back("another interval", &http, &http.clone().with(&HEALTH_INTERVAL, "10"));
    book.there_and_back("another timeout", &http, &http.clone().with(&HEALTH_TIMEOUT, "5"));
    let (fewer, more) = (one.clone().with(&HEALTHY_THRESHOLD, "2"), one.clone().with(&UNHEALTHY_THRESHOLD, "5"));
    book.there_and_back("another healthy threshold", &one, &fewer);
    book.there_and_back("another unhealthy threshold", &one, &more);
}

fn nodes_and_attributes(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("a node comes", &one, &one.clone().nodes(&["i-1", "i-2", "i-3"]));
    book.change("a node is replaced", &one, &one.clone().nodes(&["i-2", "i-3"]));
    book.change("all nodes are replaced", &one.clone().nodes(&["i-1"]), &one.clone().nodes(&["i-3"]));
    book.change("no node is left", &one, &one.clone().nodes(&[]));
    book.there_and_back("cross-zone balancing", &one, &one.clone().with(&CROSS_ZONE, "true"));
    let logs = one.clone().with(&ACCESS_LOG, "true").with(&ACCESS_LOG_BUCKET, "logs");
    book.there_and_back("logs", &one, &logs);
    book.there_and_back("logs under a prefix", &logs, &logs.clone().with(&ACCESS_LOG_PREFIX, "web"));
    let attributes = one.clone().with(&TARGET_GROUP_ATTRIBUTES, "preserve_client_ip.enabled=false");
    book.there_and_back("a target group attribute", &one, &attributes);
    book.there_and_back("a source range", &one, &one.clone().ranges(&["10.0.0.0/8"]));
}

fn fixed(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("the scheme is wished otherwise", &one, &one.clone().with(&INTERNAL, "true"));
    book.there_and_back("Elastic IPs are wished", &one, &one.clone().with(&EIP_ALLOCATIONS, "eip-1,eip-2"));
    book.change("private addresses are wished", &one, &one.clone().with(&PRIVATE_IPV4, "10.0.1.7,10.0.2.7"));
    book.change("other subnets are wished", &one, &one.clone().with(&SUBNETS, "subnet-a"));
    book.change("the same subnets are wished", &one, &one.clone().with(&SUBNETS, "subnet-b,subnet-a"));
    book.change("tags are wished", &one, &one.clone().with(&ADDITIONAL_TAGS, "team=web"));
}

fn groups(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    let managed = one.clone().managed();
    book.change("managed groups come too late for a balancer without", &one, &managed);
    let named = managed.clone().with(&SECURITY_GROUPS, "sg-mine");
    book.change("named groups come too late for a balancer without", &one, &named);
    book.change("managed groups are no longer wished", &managed, &one);
    book.there_and_back("groups are named", &managed, &managed.clone().with(&SECURITY_GROUPS, "sg-mine"));
    book.change("the source range of a managed group", &managed, &managed.clone().ranges(&["10.0.0.0/8"]));
}

fn repairs(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.repair("the balancer was removed by hand", &one, |cloud| {
        cloud.balancers.clear();
        cloud.listeners.clear();
    });
    book.repair("the listener was removed by hand", &one, |cloud| cloud.listeners.clear());
    book.repair("a certificate was set by hand", &one, |cloud| {
        let listener = first_listener(cloud);
        listener.protocol = "TLS".to_owned();
        listener.certificates = vec![CERTIFICATE.to_owned()];
        listener.ssl_policy = Some(model::DEFAULT_POLICY.to_owned());
    });
    book.repair("another TLS policy was set by hand", &one.clone().with(&SSL_CERT, CERTIFICATE), |cloud| {
        first_listener(cloud).ssl_policy = Some("ELBSecurityPolicy-TLS-1-1-2017-01".to_owned());
    });
    book.repair("the health check's interval was changed by hand", &one, |cloud| {
        cloud.groups.values_mut().next().unwrap().group.health_check.interval = 10;
    });
    book.repair("the listener was led to a foreign group by hand", &one, |cloud| {
        let mut foreign = cloud.groups.values().next().unwrap().clone();
        foreign.group.arn = "arn:group-foreign".to_owned();
        foreign.group.name = "foreign".to_owned();
        foreign.group.port = 8080;
        foreign.tags.clear();
        cloud.groups.insert(foreign.group.arn.clone(), foreign);
        first_listener(cloud).target_group = Some("arn:group-foreign".to_owned());
    });
    book.repair("a listener was added by hand", &one, |cloud| {
        let (owner, mut listener) = cloud.listeners.values().next().unwrap().clone();
        listener.arn = "arn:listener-hand".to_owned();
        listener.port = 8080;
        cloud.listeners.insert(listener.arn.clone(), (owner, listener));
    });
    book.repair("a target group was left behind by an attempt that died", &asked(&[(80, 31080)]), |cloud| {
        let mut left = cloud.groups.values().next().unwrap().clone();
        left.group.arn = "arn:group-left".to_owned();
        left.group.name = "k8s-shop-web-0000000000".to_owned();
        cloud.groups.insert(left.group.arn.clone(), left);
    });
}

fn ends(book: &mut Book) {
    let two = asked(&[(80, 31080), (443, 31443)]).ranges(&["10.0.0.0/8"]);
    let managed = two.clone().managed();
    book.end("the Service is deleted", &managed, |_| {});
    book.end("the Service is deleted, the balancer is gone", &managed, |cloud| {
        cloud.balancers.clear();
        cloud.listeners.clear();
    });
    book.end("the Service is deleted, balancer and target groups are gone", &managed, |cloud| {
        cloud.balancers.clear();
        cloud.listeners.clear();
        cloud.groups.clear();
    });
    book.end("the Service is deleted, a listener was removed by hand", &two, |cloud| {
        let arn = cloud.listeners.keys().next().unwrap().clone();
        cloud.listeners.remove(&arn);
    });
}

#[test]
fn plans_are_as_written_down() {
    let mut book = Book::default();
    for chapter in [creations, ports, health, nodes_and_attributes, fixed, groups, repairs, ends] {
        chapter(&mut book);
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loadbalancer/network/tests/plans.txt");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &book.0).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let differs = written.lines().zip(book.0.lines()).position(|(old, new)| old != new);
    assert!(
        written == book.0,
        "line {:?} of plans.txt differs; after a look, write it anew with UPDATE=1",
        differs.map(|at| at + 1)
    );
}
