use super::model::{common, desired, group, member, put, texts, world};
use crate::annotations::SSL_CERT;
use crate::client::Tags;
use crate::client::elbv2;
use crate::loadbalancer::claim::Marks;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{self, Observed};
use crate::loadbalancer::plan::security_groups::own::{self, Groups};
use crate::loadbalancer::tests::scene::{CERTIFICATE, Scene, clb, nlb, sg};
use crate::loadbalancer::wanted::{Classic, Goal, Network, Port};
use crate::tests::env;

fn classic(ranges: &[&str]) -> Classic {
    let open_ports = vec![("tcp".to_owned(), 80), ("tcp".to_owned(), 443)];
    Classic { common: common(3, ranges), open_ports, ..Classic::default() }
}

fn network(protocol: &str) -> Network {
    let (protocol, traffic_protocol) = (protocol.to_owned(), "TCP".to_owned());
    let port = Port { port: 443, protocol, node_port: 31443, traffic_protocol, ..Port::default() };
    Network { common: common(3, &["10.0.0.0/8"]), ports: vec![port], ..Network::default() }
}

fn current(groups: &[&str]) -> Observed {
    let balancer = elbv2::LoadBalancer {
        security_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..elbv2::LoadBalancer::default()
    };
    let network = observed::Network {
        balancer,
        attributes: Some(elbv2::Attributes::new()),
        listeners: Vec::new(),
        target_groups: Vec::new(),
        tags: Marks::Read(member("owned")),
    };
    Observed { network: Some(network), ..world() }
}

fn ids(groups: &Groups) -> Vec<String> {
    groups.ids.iter().map(ToString::to_string).collect()
}

fn managed() -> Env {
    Env { managed_network_groups: true, ..env() }
}

#[tokio::test(start_paused = true)]
async fn a_classic_balancer_gets_a_managed_group_with_exactly_its_ports_and_the_mtu_rule() {
    let asked = clb(&[("extra-security-groups", sg("sg-bystander"))]).ranges(&["10.0.0.0/8", "192.0.2.0/24"]);
    let scene = Scene::made(&asked).await;
    let mut attached = Vec::new();
    scene.classic(|balancer| attached.clone_from(&balancer.groups));
    assert_eq!(attached[1..], [sg("sg-bystander")]);
    let made = scene.world.ec2(|ec2| ec2.groups[&attached[0]].clone());
    assert_eq!(made.name, "k8s-elb-a0f1e2d3caaaabbbbcccc0123456789a");
    assert_eq!(made.description, "Security group for Kubernetes ELB a0f1e2d3caaaabbbbcccc0123456789a (shop/web)");
    assert_eq!(made.tags, member("owned"));
    assert_eq!(
        scene.rules(&attached[0]),
        [
            "icmp 3 from 10.0.0.0/8",
            "icmp 3 from 192.0.2.0/24",
            "tcp 443 from 10.0.0.0/8",
            "tcp 443 from 192.0.2.0/24",
            "tcp 80 from 10.0.0.0/8",
            "tcp 80 from 192.0.2.0/24",
        ]
    );
}

#[test]
fn named_and_configured_groups_replace_the_managed_one_and_keep_their_rules() {
    let (world, mut desired) = (world(), desired(Goal::Absent));
    desired.named_groups.extra = vec!["sg-2".to_owned(), "sg-2".to_owned()];
    let configured = Env { shared_group: Some("sg-all".to_owned()), ..env() };
    let groups = own::classic(&desired, &classic(&["0.0.0.0/0"]), &world, &configured).unwrap();
    assert_eq!((ids(&groups), groups.before, groups.rules), (vec!["sg-all".into(), "sg-2".into()], vec![], vec![]));
    desired.named_groups.instead = vec!["sg-3".to_owned(), "sg-1".to_owned()];
    let groups = own::classic(&desired, &classic(&["0.0.0.0/0"]), &world, &configured).unwrap();
    assert_eq!(ids(&groups), ["sg-3", "sg-1", "sg-2"]);
    assert_eq!((groups.before, groups.rules), (vec![], vec![]));
}

#[test]
fn a_found_group_without_the_clusters_tag_gets_it_and_that_of_another_cluster_is_an_error() {
    let (mut world, desired) = (world(), desired(Goal::Absent));
    let name = "k8s-elb-a0f1e2d3caaaabbbbcccc0123456789a";
    put(&mut world, group("sg-1", name, Tags::new()));
    let groups = own::classic(&desired, &classic(&[]), &world, &env()).unwrap();
    assert_eq!(
        texts(&groups.before),
        [
            "update SecurityGroup sg-1: tag kubernetes.io/cluster/c1 = owned (because the managed group lacks the cluster's tags)"
        ]
    );
    let legacy = Env { ownership: crate::ownership::Ownership { cluster: "c1".to_owned(), legacy: true }, ..env() };
    put(&mut world, group("sg-1", name, Tags::from([("KubernetesCluster".to_owned(), "c2".to_owned())])));
    let error = own::classic(&desired, &classic(&[]), &world, &legacy).unwrap_err().to_string();
    assert!(error.contains("sg-1") && error.contains("another cluster"), "{error}");
    // A group with the same name in another VPC does not match.
    put(&mut world, crate::client::ec2::SecurityGroup { vpc: "vpc-2".to_owned(), ..group("sg-1", name, Tags::new()) });
    assert!(ids(&own::classic(&desired, &classic(&[]), &world, &env()).unwrap())[0].starts_with('<'));
}

#[test]
fn network_groups_in_every_mode() {
    let mut desired = desired(Goal::Absent);
    let of =
        |desired: &_, world: &Observed, env: &Env| ids(&own::network(desired, &network("TCP"), world, env).unwrap());
    let none: [&str; 0] = [];
    assert_eq!(of(&desired, &world(), &env()), none, "not managed, new");
    assert_eq!(of(&desired, &current(&["sg-x"]), &env()), ["sg-x"], "not managed, there");
    assert_eq!(of(&desired, &current(&[]), &managed()), none, "AWS adds none to a balancer made without");
    assert_eq!(of(&desired, &world(), &managed()), ["<SecurityGroup k8s-shop-web-6110eb0328>"]);
    assert_eq!(of(&desired, &current(&["sg-x"]), &managed()), ["<SecurityGroup k8s-shop-web-6110eb0328>"]);
    desired.named_groups.instead = vec!["sg-user".to_owned()];
    assert_eq!(of(&desired, &world(), &managed()), ["sg-user"]);
    assert_eq!(of(&desired, &current(&["sg-x"]), &managed()), ["sg-user"]);
    assert_eq!(of(&desired, &world(), &env()), none, "the annotation counts in managed mode only");
}

#[tokio::test(start_paused = true)]
async fn the_managed_group_of_a_tls_port_lets_tcp_in() {
    let asked = nlb(&[(443, 31443)]).with(&SSL_CERT, CERTIFICATE).ranges(&["10.0.0.0/8"]).managed();
    let scene = Scene::made(&asked).await;
    let mut attached = Vec::new();
    scene.network(|balancer| attached.clone_from(&balancer.groups));
    assert_eq!(scene.rules(&attached[0]), ["icmp 3 from 10.0.0.0/8", "tcp 443 from 10.0.0.0/8"]);
    let description = scene.world.ec2(|ec2| ec2.groups[&attached[0]].description.clone());
    assert_eq!(description, "[k8s] Managed SecurityGroup for LoadBalancer");
}
