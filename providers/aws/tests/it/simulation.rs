//! Random lives of Services in the simulated AWS: see [`lives`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::model::{Peer, Rule as GroupRule};
use ccm_cloudsim::aws::ec2::{Ec2State, InstanceState};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancer, NodeRef, Service};
use ccm_provider_contract::lives::{self, LivingCloud};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use crate::bed::{Bed, CLUSTER, service};
use crate::lent::leading;
use crate::{classic, network};

const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/one";
/// A group of the user's.
const USER_GROUP: &str = "sg-00000000000000abc";
/// How late reads are in the rough time, by the virtual clock.
const STALE: Duration = Duration::from_secs(3);
/// Run without being asked.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// The simulated AWS with neighbours.
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
        bed.aws.world(|world| world.elb.add_certificate(CERTIFICATE));
        neighbours(&bed).await;
        Self { bed, config }
    }

    fn description(&self) -> String {
        format!("config {:?}", self.config)
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        leading(&self.bed).await
    }

    fn nodes(&self) -> &[NodeRef] {
        &self.bed.nodes
    }

    fn change_nodes(&mut self, rng: &mut StdRng) {
        if self.bed.nodes.len() < 3 || rng.random_bool(0.5) {
            self.bed.add_nodes(1);
            return;
        }
        let gone = self.bed.nodes.remove(0);
        if rng.random_bool(0.5) {
            let id = gone.provider_id.as_deref().unwrap().rsplit('/').next().unwrap().to_owned();
            let form = format!("Action=TerminateInstances&Version=2016-11-15&InstanceId.1={id}");
            self.bed.aws.by_hand(ccm_cloudsim::aws::Service::Ec2, "TerminateInstances", &form).unwrap();
        }
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
        let annotations: BTreeMap<String, &str> =
            annotations.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect();
        let mut spec = Map::new();
        if may(0.3) {
            spec.insert("externalTrafficPolicy".to_owned(), json!("Local"));
            // No two Services have the same.
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
        service(name, json!(annotations), &all[first..first + count], Value::Object(spec))
    }

    fn kind(&self, service: &Service) -> bool {
        service.metadata.annotations.get(&format!("{PREFIX}type")).is_some_and(|kind| kind == "nlb")
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

    fn trouble(&mut self, rng: &mut StdRng) -> Option<String> {
        self.bed.aws.faults(Faults::clear);
        let skip = rng.random_range(0..12);
        let code = |status, code: &str| Fault::Code { status, code: code.to_owned(), message: "trouble".to_owned() };
        let nth = skip / 2;
        let lost = if rng.random_bool(0.5) { Fault::ResetAfter } else { Fault::Truncate };
        let rule = match rng.random_range(0..16) {
            0..=4 => return None,
            5 => Rule::every(Fault::Throttle).window(skip, 1),
            6 => Rule { mutating: Some(true), ..Rule::every(Fault::Throttle).window(nth, 1) },
            7 | 8 => Rule { mutating: Some(true), ..Rule::every(lost).window(nth, 1) },
            9 => Rule { mutating: Some(false), ..Rule::every(lost).window(skip, 1) },
            10 | 11 => Rule::writes_from(nth + 1, code(400, "ValidationError")),
            12 => Rule::every(code(403, "AccessDenied")).window(skip, 2),
            13 => Rule::every(Fault::Html { status: 502 }).window(skip, 1),
            14 => Rule::every(Fault::UnknownElements),
            _ => Rule::every(code(500, "InternalFailure")).window(skip, 3),
        };
        let text = format!("{rule:?}");
        self.bed.aws.fault(rule);
        Some(text)
    }

    fn end_trouble(&mut self) {
        self.bed.aws.faults(Faults::clear);
    }

    fn calm(&mut self) {
        self.end_trouble();
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

    fn step(&self, time: Duration) {
        self.bed.aws.clock().step(time);
    }

    fn now(&self) -> jiff::Timestamp {
        self.bed.aws.clock().now()
    }

    fn mark(&self) -> u64 {
        self.bed.aws.mark()
    }

    fn writes(&self, mark: u64) -> Vec<String> {
        self.bed.writes(mark)
    }

    /// Without what is [`foreign`], and without the instances that have ended: a classic balancer does not show them, and no
    /// write removes them.
    fn shape(&self) -> Vec<String> {
        self.bed.aws.world(|world| {
            let mut world = world.clone();
            world.elb.balancers.values_mut().for_each(|one| one.instances.retain(|id| is_alive(&world.ec2, id)));
            shape(&world).into_iter().filter(|line| !is_theirs(line)).collect()
        })
    }

    fn foreign(&self) -> Vec<String> {
        self.bed.aws.world(|world| foreign(world))
    }
}

/// What a user removes: a listener of a network balancer, the instances of a classic one, or the rules for a balancer.
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
                // What is left of the rules for "fragmentation needed" goes with the next change, not before.
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

/// A rule for "fragmentation needed" that the neighbours don't need.
fn is_mtu(rule: &GroupRule) -> bool {
    let peer = format!("{:?}", rule.peer);
    rule.description.as_deref() == Some("kubernetes.io/rule/nlb/mtu") && !peer.contains("172.16.")
}

/// Another cluster with a balancer of each kind that sends to the same nodes, and a user with a group and a rule.
async fn neighbours(bed: &Bed) {
    bed.aws.world(|world| {
        let mut group = world.ec2.groups[&bed.network.node_group].clone();
        (group.name, group.description) = ("of the user".to_owned(), "of the user".to_owned());
        group.tags.clear();
        group.ingress.clear();
        world.ec2.groups.insert(USER_GROUP.to_owned(), group);
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
        let annotations = json!({format!("{PREFIX}type"): kind, format!("{PREFIX}subnets"): subnets});
        let ranges = json!({"loadBalancerSourceRanges": ["172.16.0.0/12"]});
        bed.ensure(&*theirs, &service(name, annotations, &[(80, 31999)], ranges)).await;
    }
}

/// Balancers, listeners, target groups and security groups without the IDs that differ with the way that led there.
fn shape(world: &World) -> Vec<String> {
    let mut lines = classic::shape(world);
    let network = network::shape(world).into_iter().filter(|line| !line.starts_with("security group"));
    // What was switched off is the same as what never was on.
    lines.extend(network.map(|line| line.replace("\"load_balancing.cross_zone.enabled\": \"false\"", "")));
    lines.sort();
    lines
}

/// What the cluster neither made nor may change.
fn foreign(world: &World) -> Vec<String> {
    let mut lines: Vec<String> = shape(world).into_iter().filter(|line| is_theirs(line)).collect();
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

/// Whether a line is about a balancer of the other cluster, or a part of it.
fn is_theirs(line: &str) -> bool {
    !line.starts_with("security group") && line.contains("cluster/c2")
}

/// Names and groups of the other cluster's balancers, as they stand in rules.
fn theirs_in(world: &World) -> Vec<String> {
    let is_marked = |tags: &BTreeMap<String, String>| tags.contains_key("kubernetes.io/cluster/c2");
    let balancers =
        world.elbv2.balancers.values().filter(|one| is_marked(&one.tags)).map(|one| format!("={}", one.name));
    let groups = world.ec2.groups.iter().filter(|(_, one)| is_marked(&one.tags)).map(|(id, _)| id.clone());
    balancers.chain(groups).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_lives_reach_the_desired_state_and_leave_nothing() {
    lives::live::<Living>(lives::seeds("CCM_AWS_SEEDS", SEEDS)).await;
}

mod long_lane {
    use super::{Living, lives};

    /// About four minutes of one core.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_lives_of_the_day_reach_the_desired_state_and_leave_nothing() {
        lives::live_of_the_day::<Living>("CCM_AWS_SEEDS", 150).await;
    }
}
