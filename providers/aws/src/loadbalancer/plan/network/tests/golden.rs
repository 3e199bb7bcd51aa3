//! The plan for each change of a Service, as text in `plans.txt`. Every plan is applied, and leaves nothing to do.
//! `UPDATE=1 cargo test -p ccm-provider-aws plans_are_as_written_down` regenerates the file.

use std::fmt::Write as _;

use std::collections::BTreeMap;

use ccm_cloudsim::aws::elbv2::{Listener, TargetGroup};

use crate::annotations::{
    ACCESS_LOG, ACCESS_LOG_BUCKET, ACCESS_LOG_PREFIX, ADDITIONAL_TAGS, BACKEND_PROTOCOL, CROSS_ZONE, EIP_ALLOCATIONS,
    HEALTH_INTERVAL, HEALTH_PATH, HEALTH_PORT, HEALTH_PROTOCOL, HEALTH_TIMEOUT, HEALTHY_THRESHOLD, INTERNAL,
    PRIVATE_IPV4, SECURITY_GROUPS, SSL_CERT, SSL_POLICY, SSL_PORTS, SUBNETS, TARGET_GROUP_ATTRIBUTES,
    UNHEALTHY_THRESHOLD,
};
use crate::loadbalancer::tests::scene::{Asked, CERTIFICATE, Scene, State, nlb as asked, sg};

struct Book {
    text: String,
    scene: Scene,
    empty: State,
    /// The states created before, by the Service that they were created for.
    made: BTreeMap<String, State>,
}

impl Book {
    async fn write(&mut self, title: &str, asked: &Asked) {
        let planned = self.scene.settle(asked).await;
        let text = self.scene.text(&planned).replace("sg-made-1", "sg-1");
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# {title}\n{text}\n");
    }

    /// Sets the state in which the balancer is as desired.
    async fn current(&mut self, asked: &Asked) {
        let key = format!("{asked:?}");
        if let Some(state) = self.made.get(&key) {
            return self.scene.load(state);
        }
        self.scene.load(&self.empty);
        self.scene.settle(asked).await;
        self.made.insert(key, self.scene.save());
    }

    /// Creates a Service.
    async fn creation(&mut self, title: &str, asked: &Asked) {
        self.scene.load(&self.empty);
        self.write(title, asked).await;
    }

    /// Changes a Service.
    async fn change(&mut self, title: &str, from: &Asked, to: &Asked) {
        self.current(from).await;
        self.write(title, to).await;
    }

    /// A change and its reversal.
    async fn there_and_back(&mut self, title: &str, from: &Asked, to: &Asked) {
        self.change(title, from, to).await;
        self.change(&format!("{title}: back"), to, from).await;
    }

    /// Reverts a manual change.
    async fn repair(&mut self, title: &str, asked: &Asked, hand: impl FnOnce(&Scene)) {
        self.current(asked).await;
        hand(&self.scene);
        self.write(title, asked).await;
    }

    async fn end(&mut self, title: &str, asked: &Asked, hand: impl FnOnce(&Scene)) {
        self.current(asked).await;
        hand(&self.scene);
        self.write(title, &asked.clone().gone()).await;
        self.scene.world.state(|state| {
            let left = &state.elbv2;
            assert!(left.groups.is_empty() && left.balancers.is_empty() && left.listeners.is_empty(), "{title}");
            assert!(state.ec2.groups.values().all(|group| group.ingress.is_empty()), "{title}");
            assert!(state.ec2.groups.values().all(|group| !group.name.starts_with("k8s-")), "{title}");
        });
    }
}

/// Changes the first listener.
fn listener(scene: &Scene, change: impl FnOnce(&mut Listener)) {
    scene.world.state(|state| change(state.elbv2.listeners.values_mut().next().unwrap()));
}

/// Adds a copy of the first target group with another name.
fn group(scene: &Scene, name: &str, change: impl FnOnce(&mut TargetGroup)) -> String {
    scene.world.state(|state| {
        let mut group = state.elbv2.groups.values().next().unwrap().clone();
        group.arn = group.arn.replace(&group.name, name);
        group.name = name.to_owned();
        change(&mut group);
        let arn = group.arn.clone();
        state.elbv2.groups.insert(arn.clone(), group);
        arn
    })
}

async fn creations(book: &mut Book) {
    let web = asked(&[(443, 31443), (80, 31080)]);
    book.creation("a new Service", &web).await;
    book.creation("a new Service without nodes", &web.clone().nodes([])).await;
    book.creation("a new internal Service", &web.clone().with(&INTERNAL, "true")).await;
    let tls = web.clone().with(&SSL_CERT, CERTIFICATE).with(&SSL_PORTS, "443");
    book.creation("a new Service with TLS on one port", &tls).await;
    book.creation("a new Service with TLS to the nodes", &tls.clone().with(&BACKEND_PROTOCOL, "ssl")).await;
    book.creation("a new Service with a TLS policy", &tls.with(&SSL_POLICY, "ELBSecurityPolicy-TLS13-1-2-2021-06"))
        .await;
    book.creation("a new UDP Service with a certificate", &asked(&[(53, 31053)]).udp().with(&SSL_CERT, CERTIFICATE))
        .await;
    book.creation("a new Service with the traffic policy Local", &web.clone().local()).await;
    book.creation("a new Service probed through kube-proxy", &web.clone().shared()).await;
    let eips = web.clone().with(&SUBNETS, "subnet-b,subnet-a").with(&EIP_ALLOCATIONS, "eip-1, eip-2");
    book.creation("a new Service with Elastic IPs, in the order of its subnets", &eips).await;
    let private = web.clone().with(&INTERNAL, "true").with(&PRIVATE_IPV4, "10.0.1.7,10.0.2.7");
    book.creation("a new Service with private addresses", &private).await;
    let logs = web.clone().with(&ACCESS_LOG, "true").with(&ACCESS_LOG_BUCKET, "logs").with(&ACCESS_LOG_PREFIX, "web");
    book.creation("a new Service with logs and cross-zone balancing", &logs.with(&CROSS_ZONE, "true")).await;
    let attributes = "preserve_client_ip.enabled=false, proxy_protocol_v2.enabled=true";
    book.creation(
        "a new Service with target group attributes",
        &web.clone().with(&TARGET_GROUP_ATTRIBUTES, attributes),
    )
    .await;
    book.creation("a new Service with tags", &web.clone().with(&ADDITIONAL_TAGS, "team=web")).await;
    book.creation("a new Service with a managed group", &web.clone().managed().ranges(&["10.0.0.0/8"])).await;
    book.creation(
        "a new Service with groups of its own",
        &web.managed().with(&SECURITY_GROUPS, &format!("{},{}", sg("sg-mine"), sg("sg-too"))),
    )
    .await;
}

async fn ports(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("a port is added", &one, &asked(&[(80, 31080), (443, 31443)])).await;
    book.change("a port is renumbered", &one, &asked(&[(81, 31080)])).await;
    book.change("a node port is renumbered", &one, &asked(&[(80, 31081)])).await;
    let (two, swapped) = (asked(&[(80, 31080), (443, 31443)]), asked(&[(80, 31443), (443, 31080)]));
    book.change("two ports swap their node ports", &two, &swapped).await;
    book.there_and_back("the protocol changes", &one, &one.clone().udp()).await;
    book.there_and_back("a certificate is added", &one, &one.clone().with(&SSL_CERT, CERTIFICATE)).await;
    let tls = one.clone().with(&SSL_CERT, CERTIFICATE);
    book.there_and_back("TLS to the nodes", &tls, &tls.clone().with(&BACKEND_PROTOCOL, "ssl")).await;
    let renewed = one.clone().with(&SSL_CERT, "arn:aws:acm:us-west-2:123456789012:certificate/two");
    book.change("the certificate is another", &tls, &renewed).await;
    book.there_and_back(
        "a TLS policy is asked for",
        &tls,
        &tls.clone().with(&SSL_POLICY, "ELBSecurityPolicy-FS-2018-06"),
    )
    .await;
}

async fn health(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("the traffic policy becomes Local", &one, &one.clone().local()).await;
    book.there_and_back("kube-proxy is probed", &one, &one.clone().shared()).await;
    let http = one.clone().with(&HEALTH_PROTOCOL, "http");
    book.there_and_back("HTTP checks", &one, &http).await;
    book.there_and_back("another path", &http, &http.clone().with(&HEALTH_PATH, "/ready")).await;
    book.there_and_back("another port", &http, &http.clone().with(&HEALTH_PORT, "9000")).await;
    book.there_and_back("another interval", &http, &http.clone().with(&HEALTH_INTERVAL, "10")).await;
    book.there_and_back("another timeout", &http, &http.clone().with(&HEALTH_TIMEOUT, "5")).await;
    let (fewer, more) = (one.clone().with(&HEALTHY_THRESHOLD, "2"), one.clone().with(&UNHEALTHY_THRESHOLD, "5"));
    book.there_and_back("another healthy threshold", &one, &fewer).await;
    book.there_and_back("another unhealthy threshold", &one, &more).await;
}

async fn nodes_and_attributes(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("a node comes", &one, &one.clone().nodes([1, 2, 3])).await;
    book.change("a node is replaced", &one, &one.clone().nodes([2, 3])).await;
    book.change("all nodes are replaced", &one.clone().nodes([1]), &one.clone().nodes([3])).await;
    book.change("no node is left", &one, &one.clone().nodes([])).await;
    book.there_and_back("cross-zone balancing", &one, &one.clone().with(&CROSS_ZONE, "true")).await;
    let logs = one.clone().with(&ACCESS_LOG, "true").with(&ACCESS_LOG_BUCKET, "logs");
    book.there_and_back("logs", &one, &logs).await;
    book.there_and_back("logs under a prefix", &logs, &logs.clone().with(&ACCESS_LOG_PREFIX, "web")).await;
    let attributes = one.clone().with(&TARGET_GROUP_ATTRIBUTES, "preserve_client_ip.enabled=false");
    book.there_and_back("a target group attribute", &one, &attributes).await;
    book.there_and_back("a source range", &one, &one.clone().ranges(&["10.0.0.0/8"])).await;
}

async fn fixed(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    book.there_and_back("the scheme is changed", &one, &one.clone().with(&INTERNAL, "true")).await;
    book.there_and_back("Elastic IPs are requested", &one, &one.clone().with(&EIP_ALLOCATIONS, "eip-1,eip-2")).await;
    book.change("private addresses are requested", &one, &one.clone().with(&PRIVATE_IPV4, "10.0.1.7,10.0.2.7")).await;
    book.change("other subnets are requested", &one, &one.clone().with(&SUBNETS, "subnet-a")).await;
    book.change("the same subnets are requested", &one, &one.clone().with(&SUBNETS, "subnet-b,subnet-a")).await;
    book.change("tags are requested", &one, &one.clone().with(&ADDITIONAL_TAGS, "team=web")).await;
}

async fn groups(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    let managed = one.clone().managed();
    book.change("managed groups come too late for a balancer without", &one, &managed).await;
    let named = managed.clone().with(&SECURITY_GROUPS, sg("sg-mine"));
    book.change("named groups come too late for a balancer without", &one, &named).await;
    book.change("managed groups are no longer requested", &managed, &one).await;
    book.there_and_back("groups are named", &managed, &managed.clone().with(&SECURITY_GROUPS, sg("sg-mine"))).await;
    book.change("the source range of a managed group", &managed, &managed.clone().ranges(&["10.0.0.0/8"])).await;
}

async fn repairs(book: &mut Book) {
    let one = asked(&[(80, 31080)]);
    let tls = one.clone().with(&SSL_CERT, CERTIFICATE);
    book.repair("the balancer was removed by hand", &one, Scene::delete_by_hand).await;
    let without_listeners = |scene: &Scene| scene.world.state(|state| state.elbv2.listeners.clear());
    book.repair("the listener was removed by hand", &one, without_listeners).await;
    let secured = |scene: &Scene| {
        listener(scene, |listener| {
            listener.protocol = "TLS".to_owned();
            listener.certificate = Some(CERTIFICATE.to_owned());
            listener.policy = Some("ELBSecurityPolicy-2016-08".to_owned());
        });
    };
    book.repair("a certificate was set by hand", &one, secured).await;
    let other_policy = |scene: &Scene| {
        listener(scene, |listener| listener.policy = Some("ELBSecurityPolicy-TLS-1-1-2017-01".to_owned()));
    };
    book.repair("another TLS policy was set by hand", &tls, other_policy).await;
    let interval = |scene: &Scene| {
        scene.world.state(|state| state.elbv2.groups.values_mut().next().unwrap().settings.check.interval = 10);
    };
    book.repair("the health check's interval was changed by hand", &one, interval).await;
    let led_away = |scene: &Scene| {
        let foreign = group(scene, "foreign", |group| {
            group.settings.port = 8080;
            group.tags.clear();
        });
        listener(scene, |listener| listener.group = foreign);
    };
    book.repair("the listener was led to a foreign group by hand", &one, led_away).await;
    let added = |scene: &Scene| {
        scene.world.state(|state| {
            let mut listener = state.elbv2.listeners.values().next().unwrap().clone();
            (listener.arn, listener.port) = (format!("{}0", listener.arn), 8080);
            state.elbv2.listeners.insert(listener.arn.clone(), listener);
        });
    };
    book.repair("a listener was added by hand", &one, added).await;
    let left = |scene: &Scene| drop(group(scene, "k8s-shop-web-0000000000", |_| {}));
    book.repair("a target group was left behind by an attempt that died", &one, left).await;
}

async fn ends(book: &mut Book) {
    let two = asked(&[(80, 31080), (443, 31443)]).ranges(&["10.0.0.0/8"]);
    let managed = two.clone().managed();
    book.end("the Service is deleted", &managed, |_| {}).await;
    book.end("the Service is deleted, the balancer is gone", &managed, Scene::delete_by_hand).await;
    let only_groups = |scene: &Scene| {
        scene.delete_by_hand();
        scene.world.state(|state| state.elbv2.groups.clear());
    };
    book.end("the Service is deleted, balancer and target groups are gone", &managed, only_groups).await;
    let without_listener = |scene: &Scene| scene.world.state(|state| drop(state.elbv2.listeners.pop_first()));
    book.end("the Service is deleted, a listener was removed by hand", &two, without_listener).await;
}

#[tokio::test(start_paused = true)]
async fn plans_are_as_written_down() {
    let scene = Scene::with_nodes(3);
    let empty = scene.save();
    let mut book = Book { text: String::new(), scene, empty, made: BTreeMap::new() };
    creations(&mut book).await;
    ports(&mut book).await;
    health(&mut book).await;
    nodes_and_attributes(&mut book).await;
    fixed(&mut book).await;
    groups(&mut book).await;
    repairs(&mut book).await;
    ends(&mut book).await;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loadbalancer/plan/network/tests/plans.txt");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &book.text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let differs = written.lines().zip(book.text.lines()).position(|(old, new)| old != new);
    assert!(
        written == book.text,
        "line {:?} of plans.txt differs; after a look, write it again with UPDATE=1",
        differs.map(|at| at + 1)
    );
}
