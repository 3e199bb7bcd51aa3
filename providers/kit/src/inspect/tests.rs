use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{
    AddressType, Check, Claims, ErrorClass, Evidence, EvidenceKind, Fact, Finding, Instance, InstanceMetadata,
    LoadBalancerIngress, LoadBalancerStatus, Lookup, Node, NodeAddress, NodeRef, Orphan, ProviderError, Risk, Scope,
    Service, ServiceAction, ServicePort, ServiceWork, Severity, Step, Verb,
};
use parking_lot::Mutex;

use super::orphans::{Services, Unclaimed};
use super::{
    Claim, Explained, Health, LOAD_BALANCER, Member, Object, members, migration, node, orphans, replay, service,
};
use crate::balancer::{BalancerCloud, Items, Kind, Part, Plan, Reached, Step as Planned, Written};
use crate::routes::{Entry, Target};

type Hosts = BTreeSet<String>;

/// A cloud with one load balancer for all Services that is read and written as a whole: the hosts of each Service.
#[derive(Debug, Default)]
struct Cloud {
    rules: Mutex<BTreeMap<String, Hosts>>,
    is_down: bool,
}

/// The Service, and its hosts; `None` for no load balancer.
type Wanted = (String, Option<Hosts>);

impl BalancerCloud for Cloud {
    type Wanted = Vec<Wanted>;
    type Observed = BTreeMap<String, Hosts>;
    type Write = Wanted;
    type Made = ();

    fn wanted(&self, _: &str, work: &[ServiceWork]) -> (Vec<Wanted>, Vec<Result<(), ProviderError>>) {
        let (mut desired, mut verdicts) = (Vec::new(), Vec::new());
        for item in work {
            let is_wanted = item.action == ServiceAction::Ensure;
            match item.service.spec.ports.first().map(|port| port.port).filter(|_| is_wanted) {
                Some(0) => {
                    let class = ErrorClass::Invalid { findings: Vec::new() };
                    verdicts.push(Err(ProviderError::new(class, "port 0 cannot be served")));
                }
                Some(7777) => verdicts.push(Err(ProviderError::ImplementedElsewhere)),
                _ => {
                    let hosts = item.nodes.iter().map(|node| node.name.to_string()).collect();
                    desired.push((item.service.key().to_string(), is_wanted.then_some(hosts)));
                    verdicts.push(Ok(()));
                }
            }
        }
        (desired, verdicts)
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], _: &Vec<Wanted>) -> Result<Self::Observed, ProviderError> {
        if self.is_down { Err(ProviderError::unknown("down")) } else { Ok(self.rules.lock().clone()) }
    }

    fn strip(&self, _: &mut Self::Observed, _: &Vec<Wanted>) {}

    fn plan(&self, observed: &Self::Observed, wanted: &Vec<Wanted>) -> Result<Plan<Wanted>, ProviderError> {
        let differs = |(_, (key, hosts)): &(usize, &Wanted)| observed.get(key) != hosts.as_ref();
        let step = |(place, wanted): (usize, &Wanted)| {
            let (verb, kind, id, reason) = (Verb::Update, "LoadBalancer".into(), "shared".to_owned(), wanted.0.clone());
            let summary = Step { verb, kind, id, changes: Vec::new(), reason, risk: Risk::None };
            Planned::new(wanted.clone(), summary, Items::one(place), Part::new(Kind::Members))
        };
        Ok(Plan { steps: wanted.iter().enumerate().filter(differs).map(step).collect(), ..Plan::default() })
    }

    fn guard(&self, _: &Self::Observed, _: &Vec<Wanted>, steps: &[Planned<Wanted>]) -> Vec<(usize, ProviderError)> {
        let is_emptied = |step: &Planned<Wanted>| step.write.1.as_ref().is_some_and(BTreeSet::is_empty);
        let emptied = steps.iter().enumerate().filter(|(_, step)| is_emptied(step));
        emptied.map(|(index, _)| (index, ProviderError::unknown("no host is left"))).collect()
    }

    async fn write(&self, step: &Planned<Wanted>, (): &(), _: &Scope) -> Result<Written, ProviderError> {
        let (key, hosts) = &step.write;
        let mut rules = self.rules.lock();
        rules.remove(key);
        rules.extend(hosts.clone().map(|hosts| (key.clone(), hosts)));
        Ok(Written::Done)
    }

    fn status(&self, _: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        None
    }
}

impl Explained for Cloud {
    const NOT_FOUND: &'static str = "look elsewhere";
    const CLASSES: &'static [&'static str] = &["ours"];

    fn in_words(desired: &Vec<Wanted>) -> Option<String> {
        let (_, hosts) = desired.first()?;
        Some(format!("hosts: {}", hosts.as_ref()?.len()))
    }

    fn inventory(&self, _: &Service, desired: &Vec<Wanted>, observed: &Self::Observed) -> Vec<Object> {
        let found = desired.iter().filter_map(|(key, _)| observed.get(key));
        let object = |members: &Hosts| Object {
            kind: LOAD_BALANCER,
            state: vec![Fact::good("rule", format!("{members:?}"))],
            members: members.clone(),
            ..Object::default()
        };
        found.map(object).collect()
    }

    fn keep_registered(desired: &mut Vec<Wanted>, members: &BTreeSet<&str>) {
        let hosts = desired.iter_mut().filter_map(|(_, hosts)| hosts.as_mut());
        hosts.for_each(|hosts| hosts.retain(|host| members.contains(&**host)));
    }
}

fn cloud(rules: &[(&str, &[&str])]) -> Cloud {
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect();
    let rules = rules.iter().map(|(key, of)| ((*key).to_owned(), hosts(of))).collect();
    Cloud { rules: Mutex::new(rules), is_down: false }
}

fn web(port: i32) -> Service {
    let mut service = Service::default();
    (service.metadata.namespace, service.metadata.name) = ("shop".into(), "web".into());
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.ports = vec![ServicePort { port, ..ServicePort::default() }];
    service
}

fn named(name: &str, id: &str) -> Node {
    Node { name: name.into(), provider_id: Some(id.into()), ..Node::default() }
}

fn nodes(names: &[&str]) -> Vec<NodeRef> {
    names.iter().map(|name| Arc::new(named(name, ""))).collect()
}

fn line(fact: &Fact) -> String {
    format!("{:?} {}: {}", fact.state, fact.about, fact.text)
}

async fn explain(cloud: &Cloud, service: &Service) -> Vec<String> {
    let facts = service::explain(cloud, "c", service, &nodes(&["a", "b"])).await.unwrap();
    facts.iter().map(line).collect()
}

#[tokio::test]
async fn a_service_is_explained_alone_with_its_registered_nodes() {
    let shared = cloud(&[("shop/api", &["x"]), ("shop/web", &["a"])]);
    let expected =
        ["Good desired state: hosts: 2", "Good rule: {\"a\"}", "Good plan: nothing is left to do in the cloud"];
    assert_eq!(explain(&shared, &web(80)).await, expected);
    let expected = ["Good desired state: hosts: 2", "Waiting plan: writes left: 1"];
    assert_eq!(explain(&cloud(&[("shop/api", &["x"])]), &web(80)).await, expected);
    let gone = Service { spec: Default::default(), ..web(80) };
    let left = explain(&shared, &gone).await;
    assert_eq!(left[0], "Good desired state: no load balancer (any more)");
    assert_eq!(left[2], "Waiting plan: writes left: 1");
    // None of the registered nodes exists any more.
    let refused = explain(&cloud(&[("shop/web", &["gone"])]), &web(80)).await;
    assert_eq!(refused[2], "Bad plan: no host is left");
}

#[tokio::test]
async fn an_invalid_service_shows_what_it_has_and_one_of_others_is_left_to_them() {
    let there = cloud(&[("shop/web", &["a"])]);
    let expected = ["Bad desired state: port 0 cannot be served", "Good rule: {\"a\"}"];
    assert_eq!(explain(&there, &web(0)).await, expected);
    let down = Cloud { is_down: true, ..Cloud::default() };
    assert_eq!(explain(&down, &web(0)).await[1], "Bad load balancer: could not be read: down");
    assert!(service::explain(&down, "c", &web(80), &[]).await.is_err());
    assert_eq!(explain(&there, &web(7777)).await, ["Good desired state: another controller makes the load balancer"]);
    let mut classed = web(80);
    classed.spec.load_balancer_class = Some("ours".to_owned());
    assert_eq!(explain(&there, &classed).await.len(), 3);
    classed.spec.load_balancer_class = Some("theirs".to_owned());
    let text = "Good desired state: loadBalancerClass \"theirs\": another controller makes the load balancer";
    assert_eq!(explain(&there, &classed).await, [text]);
}

#[tokio::test]
async fn a_check_says_what_a_take_over_does_to_a_service() {
    let check = async |cloud: &Cloud, service: &Service| {
        let claims = Claims { nodes: nodes(&["a"]), services: vec![Arc::new(service.clone())] };
        let checks = migration::services(cloud, "c", &claims).await;
        checks.iter().map(|check| format!("{} {}", check.severity.as_str(), check.message)).collect::<Vec<_>>()
    };
    let (there, empty) = (cloud(&[("shop/web", &["a"])]), Cloud::default());
    let down = Cloud { is_down: true, ..Cloud::default() };
    let mut shown = web(80);
    shown.status.load_balancer.ingress = vec![LoadBalancerIngress::default()];
    let mut left = web(80);
    left.spec.kind = "ClusterIP".to_owned();
    let none = left.clone();
    left.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    let step = "update LoadBalancer shared (because shop/web)";
    for (cloud, service, expected) in [
        (&there, &web(80), "info load balancer a is taken over as it is".to_owned()),
        (&empty, &web(80), format!("warning load balancer a would be created: {step}")),
        (&empty, &shown, format!("warning load balancer a does not exist; what would be done: {step}")),
        (&there, &left, format!("warning the remains of load balancer a would be deleted: {step}")),
        (&empty, &left, "info nothing of load balancer a is left in the cloud".to_owned()),
        (&empty, &web(0), "error port 0 cannot be served".to_owned()),
        (&empty, &web(7777), "info another controller makes the load balancer".to_owned()),
        (&down, &web(80), "error could not be checked: down".to_owned()),
    ] {
        assert_eq!(check(cloud, service).await, [expected]);
    }
    assert!(check(&there, &none).await.is_empty(), "never had one");
}

#[tokio::test]
async fn a_deletion_writes_what_counts_and_only_where_the_orphan_is_there() {
    let shared = cloud(&[("shop/api", &["x"]), ("shop/web", &["a"])]);
    let former = orphans::former("shop/web", "u").unwrap();
    let delete = async |found: Result<bool, ProviderError>, counts: bool| {
        let is_there = |now: &[Object]| found.map(|found| found && !now.is_empty());
        orphans::delete(&shared, "c", &former, is_there, |_| counts).await
    };
    delete(Ok(false), true).await.unwrap();
    delete(Ok(true), false).await.unwrap();
    delete(Err(ProviderError::unknown("changed")), true).await.unwrap_err();
    assert_eq!(shared.rules.lock().len(), 2);
    delete(Ok(true), true).await.unwrap();
    assert_eq!(*shared.rules.lock(), *cloud(&[("shop/api", &["x"])]).rules.lock());
    assert_eq!(orphans::former("web", "u").unwrap_err().class(), ErrorClass::Bug);
}

fn unclaimed(kind: &'static str, id: &str, users: &[&str], kept: Option<&str>) -> Unclaimed {
    let users = users.iter().map(|user| ((*user).to_owned(), format!("{user} uses it"))).collect();
    let claim = Claim { cluster: "c".to_owned(), service: "shop/web".to_owned(), ..Claim::default() };
    let object =
        Object { kind, id: id.to_owned(), name: "web".to_owned(), claim: Some(claim), users, ..Object::default() };
    let (found, _) = Services::new("c", &Claims::default()).former(object, "its name").unwrap();
    Unclaimed { kept: kept.map(str::to_owned), ..found }
}

#[test]
fn an_orphan_is_recognized_by_what_it_says_about_its_owner() {
    let found = Orphan::from(unclaimed("LoadBalancer", "1", &[], None));
    assert_eq!(
        (&*found.owner, &*found.reason),
        ("service shop/web", "there is no Service shop/web; recognized by its name")
    );
    assert_eq!(found.step.to_string(), "delete LoadBalancer web (because there is no Service shop/web)");
    assert_eq!(orphans::claim(&found).unwrap().service, "shop/web");
    let is_there = |object: Object| orphans::is_there(&found, &[object]).map_err(|error| error.to_string());
    let now = |users: &[&str]| unclaimed("LoadBalancer", "1", users, None).object;
    assert_eq!(is_there(now(&[])), Ok(true));
    assert_eq!(is_there(Object { kind: "SecurityGroup", ..now(&[]) }), Ok(false));
    let changed = "LoadBalancer 1 is not deleted: the marks by which it was recognized have changed";
    assert_eq!(is_there(Object { claim: None, ..now(&[]) }).unwrap_err(), changed);
    assert_eq!(is_there(now(&["2"])).unwrap_err(), "LoadBalancer 1 is not deleted: 2 uses it");
    let error = orphans::claim(&unclaimed("LoadBalancer", "1", &[], Some("in use")).into()).unwrap_err();
    assert_eq!(error.to_string(), "LoadBalancer 1 is not deleted: in use");
    let error = orphans::claim(&Orphan { handle: 7.into(), ..found.clone() }).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    // Of another cluster, or without an owner.
    let (other, claims) = (now(&[]), Claims::default());
    assert!(Services::new("d", &claims).former(other, "").is_none());
    assert!(Services::new("", &claims).former(Object::default(), "").is_none());
}

#[test]
fn users_go_first_and_what_is_used_by_what_stays_is_kept() {
    let alias = |mut found: Unclaimed, alias: &str| {
        found.object.alias = alias.to_owned();
        found
    };
    let all = [
        unclaimed("SecurityGroup", "group", &["balancer", "pool"], None),
        unclaimed("SecurityGroup", "used", &["kept"], None),
        unclaimed("TargetGroup", "pool", &["port"], None),
        unclaimed("TargetGroup", "foreign", &["unknown"], None),
        alias(unclaimed("LoadBalancer", "balancer", &[], None), "port"),
        unclaimed("LoadBalancer", "kept", &[], Some("doubtful")),
        unclaimed("LoadBalancer", "a", &["b"], None),
        unclaimed("LoadBalancer", "b", &["a"], None),
    ];
    let orphans = orphans::in_order(all.into());
    let line = |orphan: &Orphan| format!("{} {}", orphan.id, orphan.kept.as_deref().unwrap_or("goes"));
    assert_eq!(
        orphans.iter().map(line).collect::<Vec<_>>(),
        [
            "foreign unknown uses it",
            "balancer goes",
            "pool goes",
            "group goes",
            "kept doubtful",
            "used kept uses it",
            "a b uses it",
            "b a uses it",
        ]
    );
    let pool = orphans.iter().find(|orphan| orphan.id == "pool").unwrap();
    let now = unclaimed("TargetGroup", "pool", &["port"], None).object;
    let error = orphans::is_there(pool, &[now]).unwrap_err();
    assert!(error.retry_after().is_some() && error.to_string().contains("cannot be deleted yet"), "{error}");
}

#[test]
fn failed_health_checks_are_bad_unless_the_traffic_is_local() {
    let fact = |local: bool, states: &[&str]| {
        let member = |(place, state): (usize, &&str)| {
            let (health, meaning) = match *state {
                "up" => (Health::Serving, ""),
                "down" => (Health::Failing("look"), "fails"),
                "off" => (Health::Good, "unchecked"),
                _ => (Health::Waiting, ""),
            };
            Member { name: &"abcdefgh"[place..=place], state: (*state).to_owned(), health, meaning }
        };
        line(&members("p".to_owned(), "RR: ", local, states.iter().enumerate().map(member)))
    };
    assert_eq!(fact(false, &["up", "down", "down"]), "Bad p: RR: 2 down b, c: fails; 1 up");
    let expected = ": expected with externalTrafficPolicy Local where the node has no ready pod";
    assert_eq!(fact(true, &["up", "down"]), format!("Good p: RR: 1 down b{expected}; 1 up"));
    assert_eq!(fact(true, &["down", "down"]), "Bad p: RR: 2 down a, b: fails", "no node serves");
    assert_eq!(fact(false, &["off", "off"]), "Good p: RR: 2 off: unchecked");
    assert_eq!(fact(false, &["new"; 8]), "Waiting p: RR: 8 new a, b, c, d, e and 3 more");
    assert_eq!(fact(false, &[]), "Bad p: no node is registered");
}

#[test]
fn a_service_claims_by_type_or_finalizer() {
    let (mut former, mut other) = (web(80), web(80));
    former.metadata.name = "former".into();
    former.spec.kind = "ClusterIP".to_owned();
    (other.metadata.name, other.spec.kind) = ("other".into(), "ClusterIP".to_owned());
    former.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.to_owned()];
    let claims = Claims { services: [web(80), former, other].map(Arc::new).into(), ..Claims::default() };
    let services = Services::new("c", &claims);
    let claiming: Vec<String> = services.claiming().map(|service| service.key().to_string()).collect();
    assert_eq!(claiming, ["shop/former", "shop/web"]);
    assert_eq!(services.why("shop/web"), "Service shop/web has another UID");
    let why = "Service shop/other is of type ClusterIP, and no longer has a load balancer";
    assert_eq!(services.why("shop/other"), why);
    assert_eq!(services.why("shop/x"), "there is no Service shop/x");
    assert!(services.namesake("shop/web").is_some() && services.namesake("shop/other").is_none());
}

fn evidence() -> Evidence {
    let (read_began, grace) = (SystemTime::UNIX_EPOCH, Duration::from_secs(60));
    Evidence { kind: EvidenceKind::Absent, read_began, grace }
}

#[test]
fn the_answer_of_a_look_up_says_what_becomes_of_a_node() {
    let text = |answer: Option<Lookup>| {
        node::missing("i".to_owned(), "not seen", answer.as_ref(), "Nova", "another region: correct it").text
    };
    let gone = "not seen: the cloud says that the instance does not exist. The node is deleted once it is not Ready and \
                older than 60 s";
    assert_eq!(text(Some(Lookup::Gone(evidence()))), gone);
    let unknown = Lookup::Unknown(ProviderError::unknown("down"));
    assert_eq!(text(Some(unknown.clone())), "not seen: down. The node is left unchanged");
    assert_eq!(text(None), "not seen, in one of two reads: Nova is not consistent yet");

    let all: Vec<NodeRef> = ["x://1", "y://2", "x://3", "", "x://5"].iter().map(|id| Arc::new(named(id, id))).collect();
    let found = Lookup::found(InstanceMetadata::default());
    let answers = [found.clone(), Lookup::Foreign, Lookup::Gone(evidence()), unknown, found];
    let more = |node: &Node, _: &InstanceMetadata| {
        (*node.name == *"x://5").then(|| Check::warning("more", "node x://5", "odd", ""))
    };
    let checks = migration::nodes(&all, &answers, "server", "project is that", more);
    let lines: Vec<String> =
        checks.iter().map(|check| format!("{} {} {}", check.severity.as_str(), check.check, check.message)).collect();
    assert_eq!(
        lines,
        [
            "info provider-ids its provider ID is that of another cloud: it is left unchanged",
            "error provider-ids no server: the cloud says that the instance does not exist. A node that is not Ready would be \
             deleted",
            "error node-names down",
            "warning more odd",
            "info provider-ids nodes without a finding, of 5: 1",
        ]
    );
}

#[test]
fn addresses_are_those_that_the_node_would_get() {
    let address = |kind: AddressType, text: &str| NodeAddress::new(kind, text);
    let (inner, outer) = (address(AddressType::InternalIp, "10.0.0.1"), address(AddressType::ExternalIp, "192.0.2.1"));
    let has = Node { addresses: [inner.clone()].into(), ..Node::default() };
    let fact = |addresses: &[NodeAddress]| {
        let metadata = InstanceMetadata { node_addresses: addresses.to_vec(), ..InstanceMetadata::default() };
        let instance = Instance { shutdown: Ok(false), metadata: Ok(Some(metadata)) };
        line(&node::addresses(&has, &instance, "hint").unwrap())
    };
    assert_eq!(fact(&[]), "Bad addresses: the instance has none");
    assert_eq!(fact(from_ref(&outer)), "Bad addresses: no internal one among: ExternalIP 192.0.2.1");
    assert_eq!(fact(from_ref(&inner)), "Good addresses: InternalIP 10.0.0.1");
    let late = "Waiting addresses: InternalIP 10.0.0.1, ExternalIP 192.0.2.1; the node does not have all of them yet";
    assert_eq!(fact(&[inner, outer]), late);
}

#[test]
fn routes_lead_to_the_node_or_elsewhere() {
    let node =
        Node { pod_cidrs: ["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "x"].map(Into::into).into(), ..named("n", "") };
    let entry = |destination: &str, target| Entry { name: String::new(), destination: destination.to_owned(), target };
    let facts = |entries: &[Entry<u8>], none| {
        node::routes(&node, &[1], entries, "t", none).iter().map(line).collect::<Vec<_>>()
    };
    let entries = [entry("10.1.0.0/24", Target::Hop(1)), entry("10.2.0.0/24", Target::Hop(2))];
    let elsewhere = "Bad route 10.2.0.0/24: leads to 2 in t, not to the node";
    let there = "Good route 10.1.0.0/24: leads to the node in t";
    assert_eq!(facts(&entries, None), [there, elsewhere]);
    assert_eq!(facts(&entries, Some("not yet")), [there, elsewhere, "Waiting route 10.3.0.0/24: not yet"]);
    let others =
        [entry("10.1.0.0/24", Target::Blackhole(None)), entry("10.2.0.0/24", Target::Foreign("igw".to_owned()))];
    let blackhole = "Waiting route 10.1.0.0/24: a blackhole in t: the route controller replaces it";
    assert_eq!(facts(&others, None), [blackhole, "Bad route 10.2.0.0/24: leads to igw in t, not to the node"]);
    let stopped = "Waiting route 10.1.0.0/24: a blackhole in t that leads to the node: its instance does not run";
    assert_eq!(facts(&[entry("10.1.0.0/24", Target::Blackhole(Some(1)))], None), [stopped]);
}

#[test]
fn what_the_configuration_means_otherwise_is_a_warning_and_what_it_does_not_mean_a_note() {
    let findings = [
        Finding::new(Severity::Info, "[BlockStorage] x", "unknown"),
        Finding::warning("[LoadBalancer] monitor-delay", "without a unit, read as seconds; write 5s"),
    ];
    let checks = migration::configuration(&findings);
    let checks: Vec<_> = checks.iter().map(|check| (check.severity, &*check.subject)).collect();
    let expected = [(Severity::Info, "[BlockStorage] x"), (Severity::Warning, "[LoadBalancer] monitor-delay")];
    assert_eq!(checks, expected);
    let [none] = &migration::configuration(&[])[..] else { panic!("one check") };
    assert_eq!((none.severity, &*none.message), (Severity::Info, "no findings"));
}

#[test]
fn facts_of_another_program_are_refused() {
    let facts = replay::facts(&("vpc", 7));
    assert_eq!(replay::read::<(String, i32)>(&facts, "AWS").unwrap(), ("vpc".to_owned(), 7));
    let error = replay::read::<i32>(&facts, "AWS").unwrap_err();
    assert!(error.to_string().starts_with("the facts about AWS in the snapshot cannot be read: "), "{error}");
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }));
}
