//! Random lives of Services in the simulated AWS: see [`ccm_provider_contract::lives`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::model::{Peer, Rule as GroupRule};
use ccm_cloudsim::aws::ec2::{Ec2State, InstanceState};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancer, NodeRef, Service};
use ccm_provider_contract::Simulation;
use ccm_provider_contract::lives::LivingCloud;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use crate::bed::{Bed, CERTIFICATE, CLUSTER, USER_GROUP, service, shape};
use crate::leader::leading;
use crate::network;

/// The delay of reads in the rough time, by the virtual clock.
const STALE: Duration = Duration::from_secs(3);

/// The simulated AWS with neighbors.
struct Living {
    bed: Bed,
    config: Vec<&'static str>,
}

#[async_trait]
impl LivingCloud for Living {
    const CLUSTER: &'static str = CLUSTER;

    async fn start(seed: u64, rng: &mut StdRng) -> Self {
        let mut config = Vec::new();
        if rng.random_bool(0.5) {
            config.push("NLBSecurityGroupMode = Managed");
        }
        if rng.random_bool(0.3) {
            config.push("ClusterServiceLoadBalancerHealthProbeMode = Shared");
        }
        let bed = Bed::start(&config.join("\n"));
        bed.aws.change(|options| options.seed = seed);
        neighbors(&bed).await;
        Self { bed, config }
    }

    fn description(&self) -> String {
        format!("config {:?}", self.config)
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        leading(&self.bed).await
    }

    fn simulation(&self) -> &dyn Simulation {
        &self.bed.aws
    }

    fn nodes(&mut self) -> &mut Vec<NodeRef> {
        &mut self.bed.nodes
    }

    fn add_node(&mut self, _: usize) {
        self.bed.add_nodes(1);
    }

    fn remove_instance(&mut self, node: &NodeRef) {
        self.bed.terminate(node.provider_id_or_empty());
    }

    fn service(&mut self, rng: &mut StdRng, name: &str, network: bool) -> Service {
        let mut annotations: BTreeMap<&str, &str> = BTreeMap::new();
        let mut may = |chance: f64| rng.random_bool(chance);
        if may(0.3) {
            annotations.extend([("ssl-cert", CERTIFICATE), ("ssl-ports", "443")]);
            annotations.insert("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
            if may(0.3) {
                annotations.insert("backend-protocol", "ssl");
            }
        }
        if may(0.3) {
            annotations.insert("cross-zone-load-balancing-enabled", "true");
        }
        if may(0.2) {
            annotations.insert("healthcheck-protocol", "http");
        }
        if may(0.2) {
            annotations.insert("healthcheck-interval", "15");
        }
        if may(0.2) {
            annotations.insert("security-groups", USER_GROUP);
        }
        if network {
            annotations.insert("type", "nlb");
            annotations.insert("target-group-attributes", "proxy_protocol_v2.enabled=false");
        } else {
            if may(0.2) {
                annotations.insert("proxy-protocol", "*");
            }
            if may(0.2) {
                annotations.insert("connection-idle-timeout", "600");
            }
        }
        let annotations: Vec<(&str, &str)> = annotations.into_iter().collect();
        let mut spec = Map::new();
        if may(0.3) {
            spec.insert("externalTrafficPolicy".to_owned(), json!("Local"));
            // The port is unique per Service.
            spec.insert("healthCheckNodePort".to_owned(), json!(32000 + i32::from(name.as_bytes()[0])));
        }
        if may(0.5) {
            let range = ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/0"][rng.random_range(0..3)];
            spec.insert("loadBalancerSourceRanges".to_owned(), json!([range]));
        }
        let base = i32::from(name.as_bytes()[0] - b'a') * 10;
        let all = [(80, 30080 + base), (443, 30443 + base), (8443, 30844 + base)];
        let count = rng.random_range(1..=3);
        let first = rng.random_range(0..=3 - count);
        service(name, &annotations, &all[first..first + count], Value::Object(spec))
    }

    fn kind(&self, service: &Service) -> bool {
        service.metadata.annotations.get(network::TYPE).is_some_and(|kind| kind == "nlb")
    }

    fn rough(&mut self, rng: &mut StdRng) -> bool {
        let (stale, lag) = (rng.random_bool(0.5), rng.random_bool(0.3));
        self.bed.aws.change(|options| {
            options.validate = false;
            options.stale_reads = if stale { STALE } else { Duration::ZERO };
            if lag {
                let kinds = ["load-balancer", "target-group", "security-group"];
                options.lag = kinds.iter().fold(Lag::default(), |lag, kind| lag.with(kind, STALE));
            }
        });
        // A process forgets stale answers within a minute of real time.
        stale
    }

    fn disrupt(&mut self, rng: &mut StdRng) -> String {
        let nth = rng.random_range(0..8);
        self.bed.aws.fault(Rule::writes_from(1, Fault::Throttle).window(nth, 1));
        format!("write {nth} is throttled")
    }

    fn calm(&mut self) {
        self.bed.aws.change(|options| {
            options.stale_reads = Duration::ZERO;
            options.lag = Lag::default();
        });
    }

    fn change_by_hand(&mut self, rng: &mut StdRng, balancers: &[String]) -> String {
        let which = rng.random_range(0..3);
        self.bed.aws.world(|world| remove_a_part(world, which, balancers));
        ["a listener is removed", "all instances are removed", "rules are removed"][which].to_owned()
    }

    /// Without terminated instances: a classic balancer does not show them, and no write removes them. The rule for
    /// the shared health check has the name of one of its balancers: that which came first.
    fn contents(&self) -> Vec<String> {
        self.bed.aws.world(|world| {
            let mut world = world.clone();
            let rules = world.ec2.groups.values_mut().flat_map(|group| &mut group.ingress);
            rules.filter(|rule| rule.from == Some(10256)).for_each(|rule| rule.description = None);
            world.elb.balancers.values_mut().for_each(|one| one.instances.retain(|id| is_alive(&world.ec2, id)));
            shape(&world)
        })
    }

    /// Whether a line describes a balancer of the other cluster, or a part of it.
    fn is_theirs(line: &str) -> bool {
        !line.starts_with("security group") && line.contains("cluster/c2")
    }

    /// Objects that the cluster did not create and may not change.
    fn foreign(&self) -> Vec<String> {
        self.bed.aws.world(|world| foreign(world))
    }
}

/// A part that a user removes: a listener of a network balancer, the instances of a classic one, or a balancer's rules.
fn remove_a_part(world: &mut World, which: usize, ours: &[String]) {
    match which {
        0 => {
            let balancers = &world.elbv2.balancers;
            let of_ours = |arn: &String| balancers.get(arn).is_some_and(|found| ours.contains(&found.name));
            let found = world.elbv2.listeners.iter().find(|(_, listener)| of_ours(&listener.balancer));
            if let Some(arn) = found.map(|(arn, _)| arn.clone()) {
                world.elbv2.listeners.remove(&arn);
            }
        }
        1 => {
            let found = world.elb.balancers.values_mut().find(|found| ours.contains(&found.name));
            if let Some(balancer) = found {
                balancer.instances.clear();
            }
        }
        _ => {
            for group in world.ec2.groups.values_mut() {
                let ours = |rule: &GroupRule| {
                    rule.description.as_deref().is_some_and(|text| ours.iter().any(|name| text.ends_with(&**name)))
                };
                // The remaining rules for "fragmentation needed" are removed with the next change, not before.
                if group.ingress.iter().any(ours) {
                    group.ingress.retain(|rule| !ours(rule) && !is_mtu(rule));
                }
            }
        }
    }
}

fn is_alive(ec2: &Ec2State, id: &str) -> bool {
    ec2.instances.get(id).is_some_and(|instance| instance.state != InstanceState::Terminated)
}

/// A rule for "fragmentation needed" that the neighbors don't need.
fn is_mtu(rule: &GroupRule) -> bool {
    let peer = format!("{:?}", rule.peer);
    rule.description.as_deref() == Some("kubernetes.io/rule/nlb/mtu") && !peer.contains("172.16.")
}

/// Adds another cluster with a balancer of each kind for the same nodes, and a user with a group and a rule.
async fn neighbors(bed: &Bed) {
    bed.add_group(USER_GROUP, None, Vec::new());
    bed.aws.world(|world| {
        let rule = GroupRule {
            id: "sgr-00000000000000abc".to_owned(),
            protocol: "tcp".to_owned(),
            from: Some(22),
            to: Some(22),
            peer: Peer::V4("10.0.0.0/8".to_owned()),
            description: Some("ssh".to_owned()),
        };
        world.ec2.groups.get_mut(&bed.network.node_group).unwrap().ingress.push(rule);
    });
    let theirs = bed.process_of("c2").await;
    for (name, kind) in [("theirs", "clb"), ("theirs-too", "nlb")] {
        let subnets = bed.network.public.join(",");
        let annotations = [("type", kind), ("subnets", &*subnets)];
        let ranges = json!({"loadBalancerSourceRanges": ["172.16.0.0/12"]});
        bed.ensure(&*theirs, &service(name, &annotations, &[(80, 31999)], ranges)).await;
    }
}

fn foreign(world: &World) -> Vec<String> {
    let mut lines: Vec<String> = shape(world).into_iter().filter(|line| Living::is_theirs(line)).collect();
    for (id, group) in &world.ec2.groups {
        let theirs = group.tags.contains_key("kubernetes.io/cluster/c2") || id == USER_GROUP;
        let others: Vec<String> = theirs_in(world);
        for rule in &group.ingress {
            let text = format!("{rule:?}");
            if theirs || text.contains("ssh") || others.iter().any(|mark| text.contains(mark)) {
                lines.push(format!("rule in {id}: {text}"));
            }
        }
        if theirs {
            lines.push(format!("group {id} {} {:?}", group.name, group.tags));
        }
    }
    lines.sort();
    lines
}

/// Names and groups of the other cluster's balancers, as rules contain them.
fn theirs_in(world: &World) -> Vec<String> {
    let is_marked = |tags: &BTreeMap<String, String>| tags.contains_key("kubernetes.io/cluster/c2");
    let balancers =
        world.elbv2.balancers.values().filter(|one| is_marked(&one.tags)).map(|one| format!("={}", one.name));
    let groups = world.ec2.groups.iter().filter(|(_, one)| is_marked(&one.tags)).map(|(id, _)| id.clone());
    balancers.chain(groups).collect()
}

// The daily seeds take about four minutes of one core.
ccm_provider_contract::lives!(Living, "CCM_AWS_SEEDS", 1..=16, 150);
