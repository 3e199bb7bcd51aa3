//! Refusals of AWS, and their consequences.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_cloudsim::aws::ec2::{InstanceState, Interface, SecurityGroup, model};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_kit::Cluster;
use ccm_kit::balancer::{self, BalancerCloud as _, is_refusal};
use ccm_provider::Verb;

use super::super::rules::shared::SharedRules;
use super::*;
use crate::client::ec2::{Peer, Source};
use crate::client::elb::Listener;
use crate::client::elbv2::Target;
use crate::client::{Id, Object, Tags};
use crate::loadbalancer::Balancers;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::tests::scene::{BALANCER, Scene, clb, nlb};
use crate::node::fleet;
use crate::node::zones::Zones;
use crate::tests::env;
use crate::tests::world::{World, group, id, new_interface, rule};

const GROUP: &str = "sg-00000000000000007";

/// A cloud that refuses the first writes.
struct Bed {
    world: World,
    reads: Reads,
    outputs: Outputs,
}

impl Bed {
    fn new(refusals: &[(&str, &str)]) -> Self {
        let world = World::default();
        world.ec2(|ec2| ec2.groups.insert(GROUP.to_owned(), group("web", Tags::new())));
        let bed = Self::over(world);
        refusals.iter().for_each(|(code, message)| bed.refuse(code, message));
        bed
    }

    fn over(world: World) -> Self {
        let (api, zones) = (world.api(), Arc::new(Zones::new(world.api())));
        let reads = Reads::new(api.clone(), fleet::new(api), zones, Cluster::default(), &env());
        Self { world, reads, outputs: Outputs::default() }
    }

    /// Refuses another of the next writes.
    fn refuse(&self, code: &str, message: &str) {
        let fault = Fault::Code { status: 400, code: code.to_owned(), message: message.to_owned() };
        self.world.aws().fault(Rule { mutating: Some(true), ..Rule::every(fault).window(0, 1) });
    }

    async fn apply(&mut self, write: Write) -> Result<(), ProviderError> {
        let step = Step::new(Verb::Update, "Thing", "thing", "the test wants it", write);
        apply(&step, &mut self.outputs, &self.reads).await
    }

    fn written(&self) -> Vec<String> {
        self.world.calls().into_iter().filter(|call| !call.starts_with("Describe")).collect()
    }
}

fn create_group(name: &str) -> Write {
    let (name, description, vpc) = (name.to_owned(), "of a test".to_owned(), "vpc-1".to_owned());
    Write::Ec2(Ec2Write::CreateSecurityGroup { name, description, vpc, tags: Tags::new() })
}

fn delete_group() -> Write {
    Write::Ec2(Ec2Write::DeleteSecurityGroup { group: GROUP.into() })
}

fn permission(cidrs: &[&str]) -> Permission {
    let source = |cidr: &&str| Source { from: Peer::Ipv4((*cidr).to_owned()), description: String::new() };
    Permission {
        protocol: "tcp".to_owned(),
        from_port: Some(80),
        to_port: Some(80),
        sources: cidrs.iter().map(source).collect(),
    }
}

fn authorize(cidrs: &[&str]) -> Write {
    let permissions = vec![permission(cidrs)];
    Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group: GROUP.into(), permissions })
}

fn register(arn: &str, numbers: &[usize]) -> Write {
    let targets = numbers.iter().map(|number| Target { id: id(*number), port: 30080 }).collect();
    Write::ElbV2(ElbV2Write::RegisterTargets { target_group: arn.into(), targets })
}

#[tokio::test(start_paused = true)]
async fn what_one_write_makes_is_known_to_the_next() {
    let mut bed = Bed::new(&[]);
    bed.apply(create_group("api")).await.unwrap();
    let group = Id::Made(Object::SecurityGroup("api".to_owned()));
    let permissions = vec![permission(&["10.0.0.0/8"])];
    bed.apply(Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions })).await.unwrap();
    let made = bed.world.ec2(|ec2| ec2.groups.values().find(|group| group.name == "api").unwrap().clone());
    assert_eq!(made.ingress.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_names_what_was_not_made_is_never_sent() {
    let mut bed = Bed::new(&[]);
    let group = Id::Made(Object::SecurityGroup("api".to_owned()));
    let error = bed.apply(Write::Ec2(Ec2Write::DeleteSecurityGroup { group })).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_so_already_is_done() {
    let elb = |write| Write::Elb(write);
    let v2 = |write| Write::ElbV2(write);
    let name = || "web".to_owned();
    let policy = ElbWrite::CreateLoadBalancerPolicy {
        balancer: name(),
        policy: name(),
        kind: name(),
        attributes: BTreeMap::new(),
    };
    let revoke =
        Ec2Write::RevokeSecurityGroupIngress { group: GROUP.into(), permissions: vec![permission(&["10.0.0.0/8"])] };
    let cases = [
        (authorize(&["10.0.0.0/8"]), "InvalidPermission.Duplicate"),
        (Write::Ec2(revoke), "InvalidPermission.NotFound"),
        (delete_group(), "InvalidGroup.NotFound"),
        (elb(ElbWrite::DeleteLoadBalancer { balancer: name() }), "LoadBalancerNotFound"),
        (elb(policy), "DuplicatePolicyName"),
        (v2(ElbV2Write::DeleteLoadBalancer { balancer: name() }), "LoadBalancerNotFound"),
        (v2(ElbV2Write::DeleteTargetGroup { target_group: name() }), "TargetGroupNotFound"),
        (v2(ElbV2Write::DeleteListener { listener: name() }), "ListenerNotFound"),
    ];
    for (write, code) in cases {
        let mut bed = Bed::new(&[(code, "so already"), ("ValidationError", "no")]);
        bed.apply(write.clone()).await.unwrap_or_else(|error| panic!("{write:?}: {error}"));
        assert!(bed.apply(write.clone()).await.is_err(), "another code must not pass: {write:?}");
        assert_eq!(bed.written().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn one_rule_that_is_there_keeps_no_other_out() {
    let mut bed = Bed::new(&[]);
    bed.apply(authorize(&["10.0.0.0/8"])).await.unwrap();
    bed.written();
    bed.apply(authorize(&["10.0.0.0/8", "192.168.0.0/16"])).await.unwrap();
    assert_eq!(bed.written().len(), 3, "both, then one by one");
    assert_eq!(bed.world.ec2(|ec2| ec2.groups[GROUP].ingress.len()), 2);
}

/// Ports from 80 with three networks each.
fn ports(count: i32) -> Write {
    let of_port = |port| Permission { from_port: Some(port), to_port: Some(port), ..permission(&CIDRS) };
    let permissions = (80..80 + count).map(of_port).collect();
    Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group: GROUP.into(), permissions })
}

const CIDRS: [&str; 3] = ["10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/16"];

#[tokio::test(start_paused = true)]
async fn a_full_group_takes_the_rules_that_fit_and_none_is_refused_twice() {
    for room in 0..18 {
        let mut bed = Bed::new(&[]);
        bed.world.aws().change(|options| options.limits.rules_per_group = room);
        let error = bed.apply(ports(6)).await.unwrap_err().to_string();
        assert!(error.contains("has no room for"), "{error}");
        assert_eq!(bed.world.ec2(|ec2| ec2.groups[GROUP].ingress.len()), room);
        let written = bed.written();
        let different: BTreeSet<&String> = written.iter().collect();
        assert_eq!(written.len(), different.len(), "{room}: {written:#?}");
        assert!(written.len() <= 1 + room / 3 + 4, "{room}: {written:#?}");
    }
}

/// EC2 may show a rule late.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_there_keeps_no_other_of_its_port_out_of_a_full_group() {
    let mut bed = Bed::new(&[]);
    bed.apply(authorize(&CIDRS[1..2])).await.unwrap();
    bed.world.aws().change(|options| options.limits.rules_per_group = 4);
    bed.refuse(limits::FULL_GROUP[0], "as the test says");
    let error = bed.apply(ports(2)).await.unwrap_err().to_string();
    assert_eq!(bed.world.ec2(|ec2| ec2.groups[GROUP].ingress.len()), 4, "{error}");
    assert!(error.contains("tcp 81") && !error.contains("tcp 80"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn rules_at_the_nodes_are_opened_without_an_answer_of_elastic_load_balancing() {
    let web = |node_port: i32| nlb(&[(80, node_port)]).ranges(&["10.1.0.0/16"]);
    let scene = Scene::made(&web(30080)).await;
    let planned = scene.plan(&web(30090)).await;
    let mut steps = planned.steps.iter();
    let open = steps.find(|step| step.write.name() == "AuthorizeSecurityGroupIngress").unwrap();
    let fault = Fault::Code { status: 400, code: "Unusual".to_owned(), message: "as the test says".to_owned() };
    scene.world.aws().fault(Rule::every(fault).on("elbv2", "Describe*"));
    let mut bed = Bed::over(scene.world);
    apply(open, &mut bed.outputs, &bed.reads).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_target_keeps_no_other_out_and_is_reported_at_the_end() {
    let scene = Scene::made(&nlb(&[(80, 30080)]).nodes([])).await;
    scene.world.instance(3, |instance| instance.state = InstanceState::Stopped);
    let arn = scene.world.state(|state| state.elbv2.groups.keys().next().unwrap().clone());
    scene.world.calls();
    let mut bed = Bed::over(scene.world);
    bed.apply(register(&arn, &[1, 3])).await.unwrap();
    // The next group does not send it again.
    bed.apply(register(&arn, &[2, 3])).await.unwrap();
    bed.apply(register(&arn, &[3])).await.unwrap();
    let named = |call: &String| (1..=3).filter(|number| call.contains(&id(*number))).collect::<Vec<_>>();
    assert_eq!(bed.written().iter().map(named).collect::<Vec<_>>(), [vec![1, 3], vec![1], vec![2]]);
    // It may start: the Service is served, and read again later.
    assert!(bed.outputs.finish().is_ok());
    let text = bed.outputs.refused().unwrap().message;
    assert!(text.starts_with(&format!("AWS refuses {} as target: ", id(3))), "{text}");
    assert!(text.ends_with("; all others are registered; will be retried"), "{text}");
}

#[test]
fn what_another_group_refused_for_a_quota_may_be_in_this_one() {
    let refused = |of: &str, id: &str, full| {
        let (of, id, said) = (of.to_owned(), id.to_owned(), String::new());
        Refused { of, id, port: Some(30080), adding: true, full, needs_room: full, said }
    };
    let refused = vec![refused("other", "former", true), refused("other", "unfit", false), refused("arn", "new", true)];
    let outputs = Outputs { refused, ..Outputs::default() };
    assert_eq!(outputs.refused_by(&register("arn", &[])).into_iter().collect::<Vec<_>>(), ["new", "unfit"]);
}

#[tokio::test(start_paused = true)]
async fn targets_are_matched_by_whole_ids_and_an_error_that_names_none_divides_the_call() {
    let scene = Scene::made(&nlb(&[(80, 30080)]).nodes([])).await;
    let arn = scene.world.state(|state| state.elbv2.groups.keys().next().unwrap().clone());
    scene.world.calls();
    let mut bed = Bed::over(scene.world);
    // The whole call, the same again, and its first half.
    (0..3).for_each(|_| bed.refuse("InvalidTarget", &format!("{}1 is bad", id(1))));
    bed.apply(register(&arn, &[1, 2])).await.unwrap();
    let named = |call: &String| (1..=2).filter(|number| call.contains(&id(*number))).collect::<Vec<_>>();
    assert_eq!(bed.written().iter().map(named).collect::<Vec<_>>(), [vec![1, 2], vec![1, 2], vec![1], vec![2]]);
    let text = bed.outputs.refused().unwrap().message;
    assert!(text.starts_with(&format!("AWS refuses {} as target: ", id(1))), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_be_deregistered_is_gone_and_not_reported() {
    let scene = Scene::made(&clb(&[])).await;
    scene.world.calls();
    let mut bed = Bed::over(scene.world);
    bed.refuse("InvalidInstance", &format!("Could not find EC2 instance {}.", id(1)));
    let instances = vec![id(1), id(2)];
    let write = ElbWrite::DeregisterInstancesFromLoadBalancer { balancer: BALANCER.to_owned(), instances };
    bed.apply(Write::Elb(write)).await.unwrap();
    let written = bed.written();
    assert!(written.len() == 2 && written[1].contains(&id(2)) && !written[1].contains(&id(1)), "{written:#?}");
    assert!(bed.outputs.finish().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_held_is_tried_again_and_the_holder_named() {
    let mut bed = Bed::new(&[]);
    let holder = "sg-00000000000000009";
    bed.world.ec2(|ec2| {
        let ingress = vec![rule(None, model::Peer::Group(GROUP.to_owned()))];
        ec2.groups.insert(holder.to_owned(), SecurityGroup { ingress, ..group("database", Tags::new()) });
    });
    let error = bed.apply(delete_group()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(HELD.0));
    assert_eq!(
        error.to_string(),
        format!(
            "security group {GROUP} cannot be deleted yet: rules of {holder} (database) refer to it; remove them unless this \
             program manages them; will be retried (DependencyViolation)"
        )
    );
    let mut bed = Bed::new(&[]);
    bed.world.ec2(|ec2| {
        let interface = new_interface([10, 0, 0, 9].into(), None);
        ec2.interfaces.insert("eni-9".to_owned(), Interface { groups: vec![GROUP.to_owned()], ..interface });
    });
    let error = bed.apply(delete_group()).await.unwrap_err();
    assert!(error.to_string().contains("network interfaces of the load balancer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_target_group_in_use_is_tried_again() {
    let mut bed = Bed::new(&[("ResourceInUse", "Target group 'x' is currently in use by a listener or a rule")]);
    let write = Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group: "arn".to_owned() });
    assert_eq!(bed.apply(write).await.unwrap_err().retry_after(), Some(HELD.0));
}

/// What the checks of other balancers need takes several calls to read.
#[tokio::test(start_paused = true)]
async fn other_changes_of_a_node_group_go_on_while_the_neighbors_are_read() {
    let world = World::taking(Duration::from_secs(1));
    let checks = format!("kubernetes.io/rule/nlb/health={BALANCER}");
    let open = rule(Some(31080), model::Peer::V4("10.0.0.0/8".into()));
    let open = model::Rule { description: Some(checks), ..open };
    let nodes = SecurityGroup { ingress: vec![open], ..group("nodes", Tags::new()) };
    world.ec2(|ec2| ec2.groups.insert(GROUP.to_owned(), nodes));
    let mut bed = Bed::over(world);
    let desired = nlb(&[(80, 31080)]).desired().unwrap();
    let rules = Arc::new(SharedRules::of(&desired, &Observed::default()));
    let revoke = Ec2Write::RevokeSecurityGroupIngress { group: GROUP.into(), permissions: Vec::new() };
    let step = Step::new(Verb::Update, "SecurityGroup", GROUP, "the test wants it", Write::Ec2(revoke));
    let step = Step { besides: Besides::Shared(rules), ..step };
    let others = async {
        // The group is read, and then the neighbors.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let began = tokio::time::Instant::now();
        drop(bed.reads.at_nodes.turn().await.unwrap());
        began.elapsed()
    };
    let (closed, waited) = futures::join!(apply(&step, &mut bed.outputs, &bed.reads), others);
    closed.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(bed.world.ec2(|ec2| ec2.groups[GROUP].ingress.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn other_changes_of_a_node_group_go_on_while_the_users_of_a_group_are_listed() {
    let world = World::taking(Duration::from_secs(1));
    world.ec2(|ec2| ec2.groups.insert(GROUP.to_owned(), group("nodes", Tags::new())));
    let mut bed = Bed::over(world);
    let step = Step::new(Verb::Update, "SecurityGroup", GROUP, "the test wants it", authorize(&["10.0.0.0/8"]));
    let step = Step { besides: Besides::Users { group: "sg-user".to_owned(), close: Vec::new() }, ..step };
    let others = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let began = tokio::time::Instant::now();
        drop(bed.reads.at_nodes.turn().await.unwrap());
        began.elapsed()
    };
    let (closed, waited) = futures::join!(apply(&step, &mut bed.outputs, &bed.reads), others);
    closed.unwrap();
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(bed.written().len(), 1);
}

/// Something else than the Service may change soon.
#[tokio::test]
async fn a_refusal_that_an_address_or_a_certificate_causes_is_remembered_for_five_minutes() {
    let balancers = Balancers::without_cloud(env());
    for (code, minutes) in [
        ("InvalidConfigurationRequest", 5),
        ("UnsupportedCertificate", 5),
        ("OperationNotPermitted", 5),
        ("SSLPolicyNotFound", 60),
        ("ValidationError", 60),
    ] {
        let error = Bed::new(&[(code, "refused")]).apply(create_group("api")).await.unwrap_err();
        assert!(is_refusal(&error), "{code}");
        assert_eq!(balancers.remembers(&error), Duration::from_secs(60 * minutes), "{code}");
    }
}

#[test]
fn what_follows_a_refusal_is_printed() {
    let listener = Listener { port: 443, protocol: "SSL".to_owned(), ..Listener::default() };
    let former = (listener.clone(), Vec::new());
    let of = |besides| {
        let step = Step::new(Verb::Update, "Listener", "web:443", "the test wants it", delete_group());
        balancer::Step::from(Step { besides, ..step }).summary.reason
    };
    let besides = Besides::Listener { former: former.clone(), wanted: listener };
    let replaced = "the test wants it; if the permission is missing: delete Listener, create Listener";
    assert_eq!(of(besides), replaced);
    let again = "the test wants it; if one is refused: create Listener, as before";
    assert_eq!(of(Besides::Former(vec![former])), again);
    assert_eq!(of(Besides::Former(Vec::new())), "the test wants it");
}
