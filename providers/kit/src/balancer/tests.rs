use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::READ_DEADLINE;
use ccm_provider::{
    ErrorClass, LoadBalancer, LoadBalancerExt as _, LoadBalancerIngress, NodeRef, Risk, ServiceAction, ServiceAnswer,
    ServicePort, Severity, Step as Summary, Verb,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::engine::NOT_SHOWN;
use super::*;

/// Load balancers by Service, with their listeners and hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct State(BTreeMap<String, (BTreeSet<i32>, BTreeSet<String>)>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Write {
    Create(String),
    Listen(String, i32),
    Unlisten(String, i32),
    Attach(String, String),
    Detach(String, String),
    Delete(String),
}

/// A simulated cloud: its state, a log of calls, and the number of writes after which it fails.
#[derive(Default)]
struct Cloud {
    state: Mutex<State>,
    calls: Mutex<Vec<String>>,
    writes_left: Mutex<Option<usize>>,
    hangs: bool,
    no_verdicts: bool,
    /// The items of the work; a step belongs to the item of its Service.
    items: Vec<String>,
    /// The number of concurrent steps: current and maximum.
    at_once: Mutex<(usize, usize)>,
    /// Whether reads return the state before all writes.
    lags: bool,
    /// Whether simultaneous lookups share an observation.
    shares: bool,
    /// What earlier reads showed.
    known: Mutex<Option<State>>,
    /// Whether the next read fails.
    read_fails: Mutex<bool>,
}

impl Cloud {
    fn say(&self, call: &str) {
        self.calls.lock().push(call.to_owned());
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    fn writes(&self) -> usize {
        self.calls().iter().filter(|call| *call != "observe").count()
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }
}

impl BalancerCloud for Cloud {
    type Wanted = State;
    type Observed = State;
    type Write = Write;
    type Made = ();

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(service.metadata.namespace.to_string())].into()
    }

    async fn observe(&self, _: &str, work: &[ServiceWork], _: &State) -> Result<State, ProviderError> {
        self.say("observe");
        if self.hangs {
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
        if std::mem::take(&mut *self.read_fails.lock()) {
            return Err(ProviderError::unknown("the cloud cannot be read"));
        }
        let State(all) = if self.lags { State::default() } else { self.state() };
        let ours = work.iter().map(|item| item.service.key().to_string());
        Ok(State(ours.filter_map(|key| all.get_key_value(&key)).map(|(k, v)| (k.clone(), v.clone())).collect()))
    }

    fn wanted(&self, _: &str, work: &[ServiceWork]) -> (State, Vec<Result<(), ProviderError>>) {
        let mut desired = State::default();
        let mut verdicts = Vec::new();
        for item in work {
            let ports: BTreeSet<i32> = item.service.spec.ports.iter().map(|port| port.port).collect();
            if ports.contains(&7777) {
                verdicts.push(Err(ProviderError::ImplementedElsewhere));
                continue;
            }
            if ports.contains(&0) {
                let error = ErrorClass::Invalid { findings: Vec::new() };
                verdicts.push(Err(ProviderError::new(error, "port 0 cannot be served")));
                continue;
            }
            if item.action != ServiceAction::Delete {
                let hosts = item.nodes.iter().map(|node| node.name.to_string()).collect();
                desired.0.insert(item.service.key().to_string(), (ports, hosts));
            }
            verdicts.push(Ok(()));
        }
        if self.no_verdicts {
            verdicts.clear();
        }
        (desired, verdicts)
    }

    async fn first(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        wanted: &State,
    ) -> Result<(State, Plan<Write>), ProviderError> {
        let known = self.known.lock().take();
        let observed = match known {
            Some(known) => known,
            None => self.observe(cluster, work, wanted).await?,
        };
        let plan = self.plan(&observed, wanted)?;
        Ok((observed, plan))
    }

    fn shares_lookups(&self) -> bool {
        self.shares
    }

    fn strip(&self, _: &mut State, _: &State) {}

    fn plan(&self, observed: &State, wanted: &State) -> Result<Plan<Write>, ProviderError> {
        let mut steps = Vec::new();
        let nothing = Default::default();
        for (key, (ports, hosts)) in &wanted.0 {
            let (old_ports, old_hosts) = observed.0.get(key).unwrap_or_else(|| {
                steps.push(Write::Create(key.clone()));
                &nothing
            });
            steps.extend(hosts.difference(old_hosts).map(|host| Write::Attach(key.clone(), host.clone())));
            steps.extend(ports.difference(old_ports).map(|port| Write::Listen(key.clone(), *port)));
            steps.extend(old_ports.difference(ports).map(|port| Write::Unlisten(key.clone(), *port)));
            steps.extend(old_hosts.difference(hosts).map(|host| Write::Detach(key.clone(), host.clone())));
        }
        let unwanted = observed.0.keys().filter(|key| !wanted.0.contains_key(*key));
        steps.extend(unwanted.map(|key| Write::Delete(key.clone())));
        Ok(Plan { steps: steps.into_iter().map(|write| self.step(write)).collect(), ..Plan::default() })
    }

    fn guard(&self, observed: &State, _: &State, steps: &[Step<Write>]) -> Vec<(usize, ProviderError)> {
        let attaches = steps.iter().any(|step| matches!(step.write, Write::Attach(..)));
        let detached = steps.iter().enumerate().filter(|(_, step)| matches!(step.write, Write::Detach(..)));
        let detached: Vec<usize> = detached.map(|(index, _)| index).collect();
        let present: usize = observed.0.values().map(|(_, hosts)| hosts.len()).sum();
        let is_mistake = present > 2 && detached.len() == present && !attaches;
        let refused = |index| (index, ProviderError::unknown("all hosts would be detached at once"));
        detached.into_iter().filter(|_| is_mistake).map(refused).collect()
    }

    async fn write(&self, step: &Step<Write>, (): &(), _: &Scope) -> Result<Written, ProviderError> {
        let step = &step.write;
        {
            let (now, most) = &mut *self.at_once.lock();
            *now += 1;
            *most = (*most).max(*now);
        }
        tokio::task::yield_now().await;
        self.at_once.lock().0 -= 1;
        self.say(&format!("{step:?}"));
        match &mut *self.writes_left.lock() {
            Some(0) => return Err(ProviderError::unknown("the cloud is down")),
            Some(left) => *left -= 1,
            None => {}
        }
        if matches!(step, Write::Listen(_, 4444)) {
            *self.read_fails.lock() = true;
            return Err(ProviderError::new(ErrorClass::Conflict, "changed"));
        }
        if matches!(step, Write::Listen(_, 6666)) {
            return Err(ProviderError::unknown("the port is refused"));
        }
        if matches!(step, Write::Listen(_, 9999)) {
            tokio::time::sleep(Duration::from_secs(100_000)).await;
        }
        let State(all) = &mut *self.state.lock();
        match step.clone() {
            Write::Create(key) => drop(all.insert(key, Default::default())),
            Write::Delete(key) => drop(all.remove(&key)),
            Write::Listen(key, port) => drop(all.get_mut(&key).unwrap().0.insert(port)),
            Write::Unlisten(key, port) => drop(all.get_mut(&key).unwrap().0.remove(&port)),
            Write::Attach(key, host) => drop(all.get_mut(&key).unwrap().1.insert(host)),
            Write::Detach(key, host) => drop(all.get_mut(&key).unwrap().1.remove(&host)),
        }
        Ok(Written::Done)
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let (ports, _) = reached.observed.0.get(&reached.service.key().to_string())?;
        let hostname = format!("{}-{}.example", reached.service.metadata.name, ports.len());
        Some(LoadBalancerStatus { ingress: vec![LoadBalancerIngress { hostname, ..Default::default() }] })
    }
}

impl Cloud {
    fn step(&self, write: Write) -> Step<Write> {
        let (verb, kind, id, risk, part) = match &write {
            Write::Create(key) => (Verb::Create, "Balancer", key.clone(), Risk::None, Part::new(Kind::Frame)),
            Write::Delete(key) => (Verb::Delete, "Balancer", key.clone(), Risk::Disruptive, Part::new(Kind::Release)),
            Write::Listen(key, port) => {
                let part = Part::of(Kind::Frame, port.to_string());
                (Verb::Create, "Listener", format!("{key}:{port}"), Risk::None, part)
            }
            Write::Unlisten(key, port) => {
                let part = Part::of(Kind::Retire, port.to_string());
                (Verb::Delete, "Listener", format!("{key}:{port}"), Risk::Disruptive, part)
            }
            Write::Attach(key, host) => {
                (Verb::Attach, "Host", format!("{key} {host}"), Risk::None, Part::new(Kind::Members))
            }
            Write::Detach(key, host) => {
                (Verb::Detach, "Host", format!("{key} {host}"), Risk::Brief, Part::new(Kind::Members))
            }
        };
        let reason = "the Service wants it so".to_owned();
        let summary = Summary { verb, kind: kind.into(), id, changes: Vec::new(), reason, risk };
        let of = match &write {
            Write::Create(key) | Write::Listen(key, _) | Write::Unlisten(key, _) | Write::Attach(key, _) => Some(key),
            Write::Detach(..) | Write::Delete(_) => None,
        };
        let items = of.and_then(|key| self.items.iter().position(|item| item == key)).map_or(Items::All, Items::one);
        let is_first = matches!(write, Write::Create(_) | Write::Delete(_));
        let step = Step::new(write, summary, items, part);
        if self.items.is_empty() { step } else { step.stage(u32::from(!is_first)) }
    }
}

fn service(name: &str, ports: &[i32]) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "default".into();
    service.metadata.name = name.into();
    service.spec.ports = ports.iter().map(|&port| ServicePort { port, ..Default::default() }).collect();
    service
}

fn nodes(names: &[&str]) -> Vec<NodeRef> {
    names.iter().map(|&name| Arc::new(Node { name: name.into(), ..Node::default() })).collect()
}

#[tokio::test]
async fn a_balancer_that_was_made_and_is_not_shown_yet_is_looked_for_again() {
    let lagging = Engine::new(Cloud { lags: true, ..Cloud::default() });
    let answer = lagging.ensure("c", &service("a", &[80]), &nodes(&["n1"])).await;
    assert_eq!(answer.unwrap_err().retry_after(), Some(NOT_SHOWN));
    assert!(lagging.cloud().state().0.contains_key("default/a"));
}

fn adapter() -> Engine<Cloud> {
    Engine::new(Cloud::default())
}

fn hostname(status: Option<LoadBalancerStatus>) -> String {
    status.unwrap().ingress[0].hostname.clone()
}

#[tokio::test]
async fn second_reconcile_writes_nothing() {
    let balancer = adapter();
    let (web, hosts) = (service("web", &[80, 443]), nodes(&["a", "b"]));
    let first = balancer.ensure("c", &web, &hosts).await.unwrap();
    assert_eq!(hostname(first.clone()), "web-2.example", "the status is that after the writes");
    assert_eq!(balancer.cloud().writes(), 5);
    assert_eq!(balancer.ensure("c", &web, &hosts).await.unwrap(), first);
    assert_eq!(balancer.cloud().calls(), ["observe"], "nothing written, so nothing read again");
}

#[tokio::test]
async fn a_cloud_chooses_what_the_first_plan_is_made_of() {
    let balancer = adapter();
    let (web, hosts) = (service("web", &[80]), nodes(&["a", "b"]));
    let first = balancer.ensure("c", &web, &hosts).await.unwrap();
    let made = balancer.cloud().state();
    *balancer.cloud().known.lock() = Some(made);
    balancer.cloud().calls();
    assert_eq!(balancer.ensure("c", &web, &hosts).await.unwrap(), first);
    assert_eq!(balancer.cloud().calls(), [""; 0]);
    assert_eq!(balancer.ensure("c", &web, &hosts).await.unwrap(), first);
    assert_eq!(balancer.cloud().calls(), ["observe"]);
}

#[tokio::test]
async fn simultaneous_lookups_share_an_observation() {
    for (shares, observations) in [(true, 2), (false, 4)] {
        let balancer = Engine::new(Cloud { shares, ..Cloud::default() });
        for name in ["a", "b"] {
            balancer.ensure("c", &service(name, &[80]), &[]).await.unwrap();
        }
        balancer.cloud().calls();
        // The first one does not wait for others.
        let services = [("a", 80), ("gone", 80), ("b", 80), ("b", 80), ("other", 7777), ("wrong", 0)];
        let services = services.map(|(name, port)| service(name, &[port]));
        let found = futures::future::join_all(services.iter().map(|one| balancer.get("c", one))).await;
        let names = found.iter().map(|one| {
            one.clone().map(|status| status.map(|it| hostname(Some(it)))).map_err(|error| error.to_string())
        });
        let some = |name: &str| Ok(Some(format!("{name}-1.example")));
        let wrong = Err("port 0 cannot be served".to_owned());
        assert_eq!(names.collect::<Vec<_>>(), [some("a"), Ok(None), some("b"), some("b"), Ok(None), wrong]);
        assert_eq!(balancer.cloud().calls(), vec!["observe"; observations]);
    }
}

#[tokio::test]
async fn a_plan_does_not_write() {
    let balancer = adapter();
    let work = ServiceWork::new(&service("web", &[80]), &nodes(&["a"]), ServiceAction::Ensure);
    let plan = balancer.plan("c", &work).await.unwrap();
    assert_eq!(
        plan.to_string(),
        "service default/web:\n  1. create Balancer default/web (because the Service wants it so)\n  \
         2. attach Host default/web a (because the Service wants it so)\n  \
         3. create Listener default/web:80 (because the Service wants it so)"
    );
    assert_eq!(balancer.cloud().calls(), ["observe"]);
    assert_eq!(balancer.cloud().state(), State::default());
    balancer.reconcile("c", std::slice::from_ref(&work), &Scope::default()).await.remove(0).result.unwrap();
    assert!(balancer.plan("c", &work).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_plan_for_a_bad_service_is_its_error() {
    let work = ServiceWork::new(&service("web", &[0]), &[], ServiceAction::Ensure);
    assert_eq!(adapter().plan("c", &work).await.unwrap_err().to_string(), "port 0 cannot be served");
}

#[tokio::test]
async fn invalid_requests_cost_no_call() {
    let balancer = adapter();
    balancer.ensure("c", &service("web", &[0]), &[]).await.unwrap_err();
    assert!(balancer.cloud().calls().is_empty());
}

#[tokio::test]
async fn a_service_of_another_controller_has_an_empty_plan_and_costs_no_call() {
    let work = ServiceWork::new(&service("web", &[7777]), &[], ServiceAction::Ensure);
    let balancer = adapter();
    assert!(balancer.plan("c", &work).await.unwrap().is_empty());
    assert!(balancer.ensure("c", &work.service, &[]).await.unwrap_err().is_implemented_elsewhere());
    assert!(balancer.cloud().calls().is_empty());
}

#[tokio::test]
async fn the_guard_stops_a_run_before_its_first_write_and_a_dry_run_says_so() {
    let balancer = adapter();
    let web = service("web", &[80]);
    balancer.ensure("c", &web, &nodes(&["a", "b", "c"])).await.unwrap();
    let before = balancer.cloud().state();
    balancer.cloud().calls();
    let error = balancer.update("c", &web, &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "all hosts would be detached at once");
    assert_eq!((balancer.cloud().writes(), balancer.cloud().state()), (0, before));
    let plan = balancer.plan("c", &ServiceWork::new(&web, &[], ServiceAction::UpdateHosts)).await.unwrap();
    assert_eq!(plan.steps.len(), 3);
    assert_eq!(plan.findings[0].severity, Severity::Error);
    assert_eq!(plan.findings[0].message, "the plan would be refused: all hosts would be detached at once");
}

#[tokio::test]
async fn a_group_is_read_once_and_a_bad_service_fails_alone() {
    let balancer = adapter();
    balancer.ensure("c", &service("other", &[1]), &[]).await.unwrap();
    balancer.ensure("c", &service("old", &[1]), &[]).await.unwrap();
    balancer.cloud().calls();
    let hosts = nodes(&["a"]);
    let work = [
        ServiceWork::new(&service("web", &[80]), &hosts, ServiceAction::Ensure),
        ServiceWork::new(&service("bad", &[0]), &hosts, ServiceAction::Ensure),
        ServiceWork::new(&service("old", &[1]), &[], ServiceAction::Delete),
        ServiceWork::new(&service("api", &[8443]), &hosts, ServiceAction::UpdateHosts),
    ];
    let mut answers = balancer.reconcile("c", &work, &Scope::default()).await.into_iter();
    assert_eq!(hostname(answers.next().unwrap().result.unwrap()), "web-1.example");
    assert_eq!(answers.next().unwrap().result.unwrap_err().to_string(), "port 0 cannot be served");
    assert_eq!(answers.next().unwrap().result.unwrap(), None);
    assert_eq!(answers.next().unwrap().result.unwrap(), None);
    assert_eq!(balancer.cloud().calls().iter().filter(|call| *call == "observe").count(), 2);
    let keys: Vec<_> = balancer.cloud().state().0.into_keys().collect();
    assert_eq!(keys, ["default/api", "default/other", "default/web"], "what is not in the work stays");
    assert_eq!(LoadBalancer::groups(&balancer, &service("web", &[])), [GroupKey("default".into())].into());
}

#[tokio::test]
async fn every_item_gets_an_answer_even_from_a_broken_provider() {
    let balancer = Engine::new(Cloud { no_verdicts: true, ..Cloud::default() });
    let work = ["a", "b"].map(|name| ServiceWork::new(&service(name, &[80]), &[], ServiceAction::Ensure));
    let answers = balancer.reconcile("c", &work, &Scope::default()).await;
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.result.as_ref().unwrap_err().class() == ErrorClass::Bug));
    assert_eq!(balancer.ensure_deleted("c", &work[0].service).await.unwrap_err().class(), ErrorClass::Bug);
}

#[tokio::test]
async fn a_step_that_is_for_one_item_fails_that_item_only() {
    let items = ["default/a", "default/b"].map(str::to_owned).to_vec();
    let balancer = Engine::new(Cloud { items, ..Cloud::default() });
    let hosts = nodes(&["n"]);
    let work = [("a", 6666), ("b", 80)]
        .map(|(name, port)| ServiceWork::new(&service(name, &[port, 443]), &hosts, ServiceAction::Ensure));
    let answers = balancer.reconcile("c", &work, &Scope::default()).await;
    assert_eq!(answers[0].result.as_ref().unwrap_err().to_string(), "the port is refused");
    assert_eq!(hostname(answers[1].result.clone().unwrap()), "b-2.example");
    // Steps of one stage ran concurrently: those of both items that do not depend on each other.
    assert!(balancer.cloud().at_once.lock().1 > 1);
    assert_eq!(balancer.cloud().state().0["default/b"].0, BTreeSet::from([80, 443]));
}

#[tokio::test]
async fn a_failed_read_after_a_conflict_fails_only_the_services_of_the_conflict() {
    let items = ["default/a", "default/b"].map(str::to_owned).to_vec();
    let balancer = Engine::new(Cloud { items, ..Cloud::default() });
    let work = [("a", 4444), ("b", 80)]
        .map(|(name, port)| ServiceWork::new(&service(name, &[port]), &nodes(&["n"]), ServiceAction::Ensure));
    let answers = balancer.reconcile("c", &work, &Scope::default()).await;
    assert_eq!(answers[0].result.as_ref().unwrap_err().to_string(), "the cloud cannot be read");
    assert_eq!(hostname(answers[0].status.clone()), "a-0.example");
    assert_eq!(hostname(answers[1].result.clone().unwrap()), "b-1.example");
}

#[tokio::test]
async fn a_failed_write_is_the_answer_of_the_whole_group() {
    let balancer = Engine::new(Cloud { writes_left: Mutex::new(Some(1)), ..Cloud::default() });
    let work = ["a", "b"].map(|name| ServiceWork::new(&service(name, &[80]), &[], ServiceAction::Ensure));
    let answers = balancer.reconcile("c", &work, &Scope::default()).await;
    assert!(answers.iter().all(|answer| answer.result.as_ref().unwrap_err().to_string() == "the cloud is down"));
    assert_eq!(answers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_cloud_is_an_error_after_the_deadline() {
    let balancer = Engine::new(Cloud { hangs: true, ..Cloud::default() });
    let began = tokio::time::Instant::now();
    let work = [ServiceWork::new(&service("web", &[80]), &[], ServiceAction::Ensure)];
    let error = balancer.reconcile("c", &work, &Scope::default()).await.remove(0).result.unwrap_err();
    assert_eq!(error.to_string(), "observing the load balancer did not answer within 2m0s");
    assert_eq!(began.elapsed(), READ_DEADLINE);

    let slow = adapter();
    let work = [ServiceWork::new(&service("web", &[9999]), &[], ServiceAction::Ensure)];
    let error = slow.reconcile("c", &work, &Scope::default()).await.remove(0).result.unwrap_err();
    assert_eq!(error.to_string(), "create Listener default/web:9999 did not answer within 10m0s");
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn ports_and_hosts() -> impl Strategy<Value = (BTreeSet<i32>, BTreeSet<&'static str>)> {
    let host = proptest::sample::select(vec!["a", "b", "c", "d"]);
    (proptest::collection::btree_set(1..5, 0..4), proptest::collection::btree_set(host, 1..4))
}

proptest! {
    #[test]
    fn any_prefix_of_a_plan_then_another_run_converges(
        (old_ports, old_hosts) in ports_and_hosts(),
        (ports, hosts) in ports_and_hosts(),
        goes in any::<bool>(),
    ) {
        let list = |set: &BTreeSet<i32>| set.iter().copied().collect::<Vec<_>>();
        let names = |set: &BTreeSet<&'static str>| nodes(&set.iter().copied().collect::<Vec<_>>());
        let start = |writes_left| {
            let balancer = adapter();
            block_on(balancer.ensure("c", &service("web", &list(&old_ports)), &names(&old_hosts))).unwrap();
            block_on(balancer.ensure("c", &service("bystander", &[7]), &names(&old_hosts))).unwrap();
            balancer.cloud().calls();
            *balancer.cloud().writes_left.lock() = writes_left;
            balancer
        };
        let run = |balancer: &Engine<Cloud>| {
            let web = service("web", &list(&ports));
            match goes {
                true => block_on(balancer.ensure_deleted("c", &web)),
                false => block_on(balancer.ensure("c", &web, &names(&hosts))).map(drop),
            }
        };
        let whole = start(None);
        run(&whole).unwrap();
        let writes = whole.cloud().writes();
        for prefix in 0..writes {
            let broken = start(Some(prefix));
            run(&broken).unwrap_err();
            // No earlier observation or decision is reused.
            *broken.cloud().writes_left.lock() = None;
            run(&broken).unwrap();
            prop_assert_eq!(broken.cloud().state(), whole.cloud().state());
            broken.cloud().calls();
            run(&broken).unwrap();
            prop_assert_eq!(broken.cloud().writes(), 0);
        }
    }
}

mod parts;
