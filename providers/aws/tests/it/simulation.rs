//! Random lives of Services in a cloud that throttles, lags, loses answers and breaks off, by seed.
//!
//! While it is rough, anything may fail; but nobody else's objects change, ever. Once it is calm, all Services get what they
//! want within a few rounds, a further round writes nothing, the result is what a fresh start would have made, and when all
//! Services are gone so is everything that was made for them.
//!
//! A failing seed names itself; `CCM_AWS_SEEDS=7` runs that one alone, `CCM_AWS_SEEDS=100-200` many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::model::{Peer, Rule as GroupRule};
use ccm_cloudsim::aws::ec2::{Ec2State, InstanceState};
use ccm_cloudsim::core::faults::Faults;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancer, LoadBalancerExt as _, LoadBalancerStatus, ProviderError, Service};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use crate::bed::{Bed, CLUSTER, service};
use crate::lent::leading;
use crate::{classic, network};

const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/one";
/// A group of the user's.
const USER_GROUP: &str = "sg-00000000000000abc";
/// How late reads are while it is rough. Of the virtual clock.
const STALE: Duration = Duration::from_secs(3);
/// Rounds over all Services until everything is as wanted.
const ROUNDS: usize = 8;
/// Of one life.
const EVENTS: usize = 12;
/// Run without being asked.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// A Service in the cluster, as the controller sees it.
struct Living {
    service: Service,
    /// What the annotation asked for when the balancer came.
    made_as_network: bool,
    /// The user wants it gone.
    leaving: bool,
}

struct Life {
    seed: u64,
    rng: StdRng,
    bed: Bed,
    process: Arc<dyn LoadBalancer>,
    services: BTreeMap<String, Living>,
    generation: usize,
    /// What others have, in words.
    foreign: Vec<String>,
    log: Vec<String>,
}

impl Life {
    async fn start(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
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
        let process = leading(&bed).await;
        let mut life = Self {
            seed,
            rng,
            bed,
            process,
            services: BTreeMap::new(),
            generation: 0,
            foreign: Vec::new(),
            log: vec![format!("config {config:?}")],
        };
        life.foreign = life.bed.aws.world(|world| foreign(world));
        life
    }

    fn say(&mut self, what: &str) {
        let at = self.bed.aws.clock().now();
        self.log.push(format!("{} {what}", at.strftime("%H:%M:%S")));
    }

    fn pick(&mut self) -> Option<String> {
        let names: Vec<&String> = self.services.keys().collect();
        let at = self.rng.random_range(0..names.len().max(1));
        names.get(at).map(|name| (*name).clone())
    }

    /// Something goes wrong with a call or two of what comes next, or with none.
    fn trouble(&mut self) {
        self.bed.aws.faults(Faults::clear);
        let skip = self.rng.random_range(0..12);
        let code = |status, code: &str| Fault::Code { status, code: code.to_owned(), message: "trouble".to_owned() };
        let nth = skip / 2;
        let lost = if self.rng.random_bool(0.5) { Fault::ResetAfter } else { Fault::Truncate };
        let rule = match self.rng.random_range(0..16) {
            0..=4 => return,
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
        self.say(&format!("  trouble: {rule:?}"));
        self.bed.aws.fault(rule);
    }

    /// A wish. All that a balancer keeps when an annotation goes is always said.
    fn desired(&mut self, name: &str, network: bool) -> Service {
        let mut annotations: BTreeMap<&str, &str> = BTreeMap::new();
        let mut may = |chance: f64| self.rng.random_bool(chance);
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
            let range = ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/0"][self.rng.random_range(0..3)];
            spec.insert("loadBalancerSourceRanges".to_owned(), json!([range]));
        }
        let base = i32::from(name.as_bytes()[0] - b'a') * 10;
        let all = [(80, 30080 + base), (443, 30443 + base), (8443, 30844 + base)];
        let count = self.rng.random_range(1..=3);
        let first = self.rng.random_range(0..=3 - count);
        service(name, json!(annotations), &all[first..first + count], Value::Object(spec))
    }

    async fn ensure(&mut self, name: &str) -> Result<(), ProviderError> {
        let service = self.services[name].service.clone();
        let nodes = self.bed.nodes.clone();
        let answer = self.process.ensure(CLUSTER, &service, &nodes).await;
        let summary = answer.as_ref().map(drop).map_err(ToString::to_string);
        self.say(&format!("  ensured {name}: {summary:?}"));
        let status = answer?.unwrap_or_default();
        if let Some(living) = self.services.get_mut(name) {
            living.made_as_network |= is_network(&living.service) && !status.ingress.is_empty();
            living.service.status.load_balancer = status;
        }
        Ok(())
    }

    /// As the service controller: asks whether there is anything, deletes, and lets go of the Service.
    async fn delete(&mut self, name: &str) -> Result<(), ProviderError> {
        let service = self.services[name].service.clone();
        let answer = match self.process.get(CLUSTER, &service).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => self.process.ensure_deleted(CLUSTER, &service).await,
            Err(error) => Err(error),
        };
        let summary = answer.as_ref().map_err(ToString::to_string);
        let summary = format!("  deleted {name}: {summary:?}");
        self.say(&summary);
        answer?;
        self.services.remove(name);
        Ok(())
    }

    async fn event(&mut self) {
        self.trouble();
        match self.rng.random_range(0..100) {
            0..=39 => {
                let name = ["a", "b", "c", "d"][self.rng.random_range(0..4)];
                let living = self.services.iter().find(|(key, _)| key.starts_with(name));
                let found = living.map(|(key, living)| (key.clone(), living.leaving, is_network(&living.service)));
                match found {
                    Some((_, true, _)) => {}
                    Some((key, false, kind)) => {
                        let status = self.services[&key].service.status.clone();
                        // Now and then the user tries to make another kind of it.
                        let shown = !status.load_balancer.ingress.is_empty();
                        let kind = if shown && self.rng.random_bool(0.08) { !kind } else { kind };
                        let mut service = self.desired(&key, kind);
                        service.status = status;
                        self.say(&format!(
                            "{key} wants {:?} {:?}",
                            service.metadata.annotations,
                            service.spec.ports.len()
                        ));
                        self.services.get_mut(&key).unwrap().service = service;
                        let _ = self.ensure(&key).await;
                    }
                    None => {
                        self.generation += 1;
                        let key = format!("{name}{}", self.generation);
                        let network = self.rng.random_bool(0.5);
                        let service = self.desired(&key, network);
                        self.say(&format!(
                            "new {key} {:?} {:?}",
                            service.metadata.annotations,
                            service.spec.ports.len()
                        ));
                        self.services.insert(key.clone(), Living { service, made_as_network: false, leaving: false });
                        let _ = self.ensure(&key).await;
                    }
                }
            }
            40..=54 => {
                if let Some(name) = self.pick() {
                    self.say(&format!("{name} shall go"));
                    self.services.get_mut(&name).unwrap().leaving = true;
                    let _ = self.delete(&name).await;
                }
            }
            55..=69 => self.nodes_change().await,
            70..=79 => {
                self.say("a new process");
                // Another one leads only after the lease of the first has ended.
                self.bed.aws.clock().step(Duration::from_secs(15));
                self.bed.aws.faults(Faults::clear);
                self.process = leading(&self.bed).await;
            }
            80..=84 => self.hand_work(),
            _ => {
                if let Some(name) = self.pick() {
                    self.say(&format!("{name} again"));
                    let _ =
                        if self.services[&name].leaving { self.delete(&name).await } else { self.ensure(&name).await };
                }
            }
        }
        let pause = [0, 0, 1, 2, 10, 60][self.rng.random_range(0..6)];
        self.bed.aws.clock().step(Duration::from_secs(pause));
        let now = self.bed.aws.world(|world| foreign(world));
        self.assert_same(&now, &self.foreign, "what belongs to others changed");
    }

    async fn nodes_change(&mut self) {
        if self.bed.nodes.len() < 3 || self.rng.random_bool(0.5) {
            self.bed.add_nodes(1);
        } else {
            let gone = self.bed.nodes.remove(0);
            if self.rng.random_bool(0.5) {
                let id = gone.provider_id.as_deref().unwrap().rsplit('/').next().unwrap().to_owned();
                let form = format!("Action=TerminateInstances&Version=2016-11-15&InstanceId.1={id}");
                self.bed.aws.by_hand(ccm_cloudsim::aws::Service::Ec2, "TerminateInstances", &form).unwrap();
            }
        }
        self.say(&format!("{} nodes", self.bed.nodes.len()));
        let names: Vec<String> = self.services.keys().filter(|name| !self.services[*name].leaving).cloned().collect();
        for name in names {
            let service = self.services[&name].service.clone();
            let nodes = self.bed.nodes.clone();
            let answer = self.process.update(CLUSTER, &service, &nodes).await.map_err(|error| error.to_string());
            self.say(&format!("  updated {name}: {answer:?}"));
        }
    }

    /// Somebody removes a listener, a target group's target or a rule by hand.
    fn hand_work(&mut self) {
        let ours: Vec<String> =
            self.services.values().map(|living| living.service.default_load_balancer_name()).collect();
        let which = self.rng.random_range(0..3);
        self.say(&format!("work by hand {which}"));
        self.bed.aws.world(|world| match which {
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
        });
    }

    /// From now on all goes well.
    async fn calm(&mut self, how: &str) {
        self.say(how);
        self.bed.aws.faults(Faults::clear);
        self.bed.aws.change(|options| {
            options.stale_reads = Duration::ZERO;
            options.lag = Lag::default();
        });
        self.bed.aws.clock().step(Duration::from_secs(600));
        // A wish for another kind is refused for good; the user takes it back.
        for name in self.services.keys().cloned().collect::<Vec<_>>() {
            let (service, was) = { (self.services[&name].service.clone(), self.services[&name].made_as_network) };
            let made = !service.status.load_balancer.ingress.is_empty();
            if made && is_network(&service) != was {
                let mut service = self.desired(&name, was);
                service.status = self.services[&name].service.status.clone();
                self.services.get_mut(&name).unwrap().service = service;
            }
        }
        for round in 0..ROUNDS {
            let mark = self.bed.aws.mark();
            let mut failed = false;
            for name in self.services.keys().cloned().collect::<Vec<_>>() {
                let answer =
                    if self.services[&name].leaving { self.delete(&name).await } else { self.ensure(&name).await };
                let Err(error) = answer else { continue };
                failed = true;
                let wait = error.retry_after().unwrap_or_default().max(Duration::from_secs(30));
                self.bed.aws.clock().step(wait);
            }
            if !failed && self.bed.writes(mark).is_empty() {
                self.say(&format!("calm after {round} rounds"));
                return;
            }
        }
        self.fail("no end after so many rounds");
    }

    /// Without what is [`foreign`].
    fn shape(&self) -> Vec<String> {
        self.bed.aws.world(|world| {
            let mut world = world.clone();
            world.elb.balancers.values_mut().for_each(|one| one.instances.retain(|id| is_alive(&world.ec2, id)));
            shape(&world).into_iter().filter(|line| !is_theirs(line)).collect()
        })
    }

    async fn run(mut self) {
        let start = self.shape();
        let (stale, lag) = (self.rng.random_bool(0.5), self.rng.random_bool(0.3));
        self.say(&format!("stale {stale} lag {lag}"));
        self.bed.aws.change(|options| {
            options.validate = false;
            options.stale_reads = if stale { STALE } else { Duration::ZERO };
            if lag {
                let kinds = ["load-balancer", "target-group", "security-group"];
                options.lag = kinds.iter().fold(Lag::default(), |lag, kind| lag.with(kind, STALE));
            }
        });
        // The network has been there for a while.
        self.bed.aws.clock().step(Duration::from_secs(60));
        for _ in 0..EVENTS {
            self.event().await;
        }
        // What a process remembers of stale answers it forgets within a minute of real time; a new one has none.
        if stale || self.rng.random_bool(0.5) {
            self.process = leading_calmly(&self.bed).await;
        }
        self.calm("calm").await;
        let reached = self.shape();
        let mark = self.bed.aws.mark();
        self.process = leading_calmly(&self.bed).await;
        for name in self.services.keys().cloned().collect::<Vec<_>>() {
            self.ensure(&name).await.unwrap();
        }
        let writes = self.bed.writes(mark);
        if !writes.is_empty() {
            self.fail(&format!("a new process writes: {writes:?}"));
        }
        // The same wishes, from nothing.
        let kept: Vec<Service> = self.services.values().map(|living| living.service.clone()).collect();
        self.services.values_mut().for_each(|living| living.leaving = true);
        self.calm("all shall go").await;
        self.assert_same(&self.shape(), &start, "something was left behind");
        for mut service in kept {
            service.status.load_balancer = LoadBalancerStatus::default();
            let name = service.metadata.name.to_string();
            self.services.insert(name, Living { service, made_as_network: false, leaving: false });
        }
        self.calm("the same again").await;
        self.assert_same(&reached, &self.shape(), "the way there shows");
        let now = self.bed.aws.world(|world| foreign(world));
        self.assert_same(&now, &self.foreign, "what belongs to others changed");
    }

    fn assert_same(&self, now: &[String], expected: &[String], what: &str) {
        if now == expected {
            return;
        }
        let more: Vec<&String> = now.iter().filter(|line| !expected.contains(line)).collect();
        let less: Vec<&String> = expected.iter().filter(|line| !now.contains(line)).collect();
        self.fail(&format!("{what}:\n is {more:#?}\n should be {less:#?}"));
    }

    fn fail(&self, what: &str) -> ! {
        panic!("seed {}:\n{}\n{what}\nagain: CCM_AWS_SEEDS={}", self.seed, self.log.join("\n"), self.seed);
    }
}

/// Classic balancers show no instance that has ended, and no write takes it out.
fn is_alive(ec2: &Ec2State, id: &str) -> bool {
    ec2.instances.get(id).is_some_and(|instance| instance.state != InstanceState::Terminated)
}

/// A rule for "fragmentation needed" that the neighbours don't need.
fn is_mtu(rule: &GroupRule) -> bool {
    let peer = format!("{:?}", rule.peer);
    rule.description.as_deref() == Some("kubernetes.io/rule/nlb/mtu") && !peer.contains("172.16.")
}

fn is_network(service: &Service) -> bool {
    service.metadata.annotations.get(&format!("{PREFIX}type")).is_some_and(|kind| kind == "nlb")
}

/// Its first calls meet no trouble.
async fn leading_calmly(bed: &Bed) -> Arc<dyn LoadBalancer> {
    bed.aws.faults(Faults::clear);
    leading(bed).await
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

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("CCM_AWS_SEEDS") else { return SEEDS.collect() };
    let number = |text: &str| text.trim().parse::<u64>().expect("CCM_AWS_SEEDS is a number or first-last");
    match text.split_once('-') {
        Some((first, last)) => (number(first)..=number(last)).collect(),
        None => vec![number(&text)],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_lives_end_as_wished_and_leave_nothing() {
    live(seeds()).await;
}

mod long_lane {
    use std::io::Write as _;
    use std::time::SystemTime;

    /// About four minutes of one core.
    const SEEDS: u64 = 150;

    /// Others each day.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_lives_of_the_day_end_as_wished_and_leave_nothing() {
        let day = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
        let (first, last) = (day * SEEDS, (day + 1) * SEEDS - 1);
        // Past the test harness, which shows the output of failed tests only.
        std::io::stderr().write_all(format!("\nAWS: CCM_AWS_SEEDS={first}-{last}\n").as_bytes()).unwrap();
        super::live((first..=last).collect()).await;
    }
}

async fn live(seeds: Vec<u64>) {
    let mut lives = tokio::task::JoinSet::new();
    for seed in seeds {
        // Most of their time they wait.
        if lives.len() >= 8 {
            finished(&lives.join_next().await.unwrap());
        }
        lives.spawn(async move { Life::start(seed).await.run().await });
    }
    while let Some(life) = lives.join_next().await {
        finished(&life);
    }
}

/// A life that failed has said why itself.
fn finished(life: &Result<(), tokio::task::JoinError>) {
    assert!(life.is_ok(), "a life failed; its seed stands above");
}
