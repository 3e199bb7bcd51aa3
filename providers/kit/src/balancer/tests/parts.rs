//! Parts, operations, refusals and conflicts, with plans that the tests write down.

use async_trait::async_trait;
use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use tokio::time::Instant;

use super::*;

/// What becomes of a write.
#[derive(Debug, Clone)]
enum Fate {
    Refused(ErrorClass),
    /// Accepted, and done after this time.
    Takes(Duration),
    /// Accepted, and failed after that.
    Fails,
    /// Accepted, and failed after this time.
    TakesAndFails(Duration, ErrorClass),
    /// Not reached at the first try, and refused then.
    FailsAndIsRefused,
    /// Accepted at the first try, and nobody may read what became of it.
    Unread,
    /// A conflict at the first try.
    Loses,
    /// Without an answer.
    Silent,
    /// Answered after this time.
    Slow(Duration),
}

/// A cloud whose plan is the list of its steps that are not written.
#[derive(Default)]
struct Script {
    steps: Vec<Step<&'static str>>,
    fates: BTreeMap<&'static str, Fate>,
    written: Mutex<Vec<&'static str>>,
    tried: Mutex<Vec<&'static str>>,
    accepted: Mutex<BTreeMap<String, Instant>>,
    reported: Mutex<Vec<String>>,
    looks: Mutex<usize>,
    /// This one has no answer.
    hanging_look: Option<usize>,
    /// Services of this name are refused when they are ensured.
    refuses: Option<&'static str>,
    /// The finalizer that it adds.
    finalizer: Option<&'static str>,
    plans_twice_again: bool,
    /// For how long it remembers a refusal, if not for an hour.
    remembers: Option<Duration>,
    /// The first item is another controller's.
    is_elsewhere: bool,
    /// The time until reads show what a former process has written.
    former: Mutex<Option<Duration>>,
    /// Whether the results of accepted writes may not be read.
    denies_results: bool,
}

fn step(name: &'static str, items: Items, part: Part) -> Step<&'static str> {
    let (verb, kind, id) = (Verb::Update, "Thing".into(), name.to_owned());
    let summary = Summary { verb, kind, id, changes: Vec::new(), reason: "wanted".into(), risk: Risk::None };
    Step::new(name, summary, items, part)
}

impl BalancerCloud for Script {
    type Wanted = ();
    type Observed = ();
    type Write = &'static str;
    type Made = ();

    fn groups(&self, _: &Service) -> BTreeSet<GroupKey> {
        [GroupKey("all".into())].into()
    }

    fn wanted(&self, _: &str, work: &[ServiceWork]) -> ((), Vec<Result<(), ProviderError>>) {
        let verdict = |item: &ServiceWork| {
            let is_refused = self.refuses == Some(&item.service.metadata.name) && item.action == ServiceAction::Ensure;
            let invalid = ErrorClass::Invalid { findings: Vec::new() };
            if is_refused { Err(ProviderError::new(invalid, "the annotation is wrong")) } else { Ok(()) }
        };
        ((), work.iter().map(verdict).collect())
    }

    async fn observe(&self, _: &str, _: &[ServiceWork], (): &()) -> Result<(), ProviderError> {
        let looks = {
            let mut looks = self.looks.lock();
            *looks += 1;
            *looks
        };
        if self.hanging_look == Some(looks) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn finalizers(&self, _: &Service) -> Vec<(&'static str, bool)> {
        self.finalizer.iter().map(|name| (*name, true)).collect()
    }

    fn adds_finalizers(&self) -> bool {
        self.finalizer.is_some()
    }

    fn remembers(&self, _: &ProviderError) -> Duration {
        self.remembers.unwrap_or(memory::REFUSED)
    }

    fn replans(&self) -> usize {
        if self.plans_twice_again { 2 } else { 1 }
    }

    fn strip(&self, (): &mut (), (): &()) {}

    fn plan(&self, (): &(), (): &()) -> Result<Plan<&'static str>, ProviderError> {
        let written = self.written.lock();
        let mut steps: Vec<_> = self.steps.iter().filter(|step| !written.contains(&step.write)).cloned().collect();
        if written.contains(&"remove") {
            // What is not there is not made again by a later plan.
            steps.iter_mut().for_each(|step| step.restore.clear());
        }
        let failed = self.is_elsewhere.then_some((0, ProviderError::ImplementedElsewhere));
        Ok(Plan { steps, failed: failed.into_iter().collect(), ..Plan::default() })
    }

    fn guard(&self, (): &(), (): &(), _: &[Step<&'static str>]) -> Vec<(usize, ProviderError)> {
        Vec::new()
    }

    async fn write(&self, step: &Step<&'static str>, (): &(), _: &Scope) -> Result<Written, ProviderError> {
        let is_first = !self.tried.lock().contains(&step.write);
        self.tried.lock().push(step.write);
        let operation = Operation { name: step.write.to_owned(), text: format!("changing {}", step.write) };
        match self.fates.get(step.write) {
            Some(Fate::Refused(class)) => return Err(ProviderError::new(class.clone(), "refused")),
            Some(Fate::Loses) if is_first => return Err(ProviderError::new(ErrorClass::Conflict, "changed")),
            Some(Fate::Silent) => std::future::pending().await,
            Some(Fate::Slow(time)) => tokio::time::sleep(*time).await,
            Some(Fate::Fails) => return Ok(Written::Failed(ProviderError::unknown("it failed"))),
            Some(Fate::FailsAndIsRefused) => {
                let is_first = self.accepted.lock().insert(operation.name, Instant::now()).is_none();
                let transient = ErrorClass::Transient { after: None };
                let class = if is_first { transient } else { ErrorClass::Invalid { findings: Vec::new() } };
                return Err(ProviderError::new(class, "refused"));
            }
            Some(Fate::Takes(_)) if self.written.lock().contains(&step.write) => {}
            Some(Fate::Takes(time) | Fate::TakesAndFails(time, _)) => {
                self.accepted.lock().insert(operation.name.clone(), Instant::now() + *time);
                return Ok(Written::Accepted(operation));
            }
            Some(Fate::Unread) if is_first => return Ok(Written::Accepted(operation)),
            Some(Fate::Unread | Fate::Loses) | None => {}
        }
        self.written.lock().push(step.write);
        Ok(Written::Done)
    }

    async fn poll(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        if let Some(Fate::Unread) = self.fates.get(&*operation.name) {
            return Err(ProviderError::new(ErrorClass::Denied { action: String::new() }, "the role lacks the right"));
        }
        if self.accepted.lock()[&operation.name] > Instant::now() {
            return Ok(Progress::Running);
        }
        if let Some(Fate::TakesAndFails(_, class)) = self.fates.get(&*operation.name) {
            return Ok(Progress::Failed(ProviderError::new(class.clone(), "refused afterwards")));
        }
        let (name, _) = self.fates.get_key_value(&*operation.name).unwrap();
        self.written.lock().push(name);
        Ok(Progress::Done)
    }

    fn former(&self) -> Option<Duration> {
        *self.former.lock()
    }

    async fn completed(&self, _: &Step<&'static str>, (): &()) -> Result<(), ProviderError> {
        let denied = ErrorClass::Denied { action: String::new() };
        if self.denies_results { Err(ProviderError::new(denied, "the role lacks the right")) } else { Ok(()) }
    }

    fn report_refusal(&self, _: &[ServiceWork], step: &Step<&'static str>, error: &ProviderError) {
        self.reported.lock().push(format!("{}: {error}", step.object()));
    }

    fn status(&self, reached: &Reached<'_, Self>) -> Option<LoadBalancerStatus> {
        let hostname = reached.service.metadata.name.to_string();
        Some(LoadBalancerStatus { ingress: vec![LoadBalancerIngress { hostname, ..Default::default() }] })
    }
}

fn engine(steps: Vec<Step<&'static str>>, fates: &[(&'static str, Fate)]) -> Engine<Script> {
    Engine::new(Script { steps, fates: fates.iter().cloned().collect(), ..Script::default() })
}

fn ensure(names: &[&str]) -> Vec<ServiceWork> {
    names.iter().map(|name| ServiceWork::new(&service(name, &[80]), &[], ServiceAction::Ensure)).collect()
}

async fn reconcile(engine: &Engine<Script>, work: &[ServiceWork]) -> Vec<ServiceAnswer> {
    engine.reconcile("c", work, &Scope::default()).await
}

fn written(engine: &Engine<Script>) -> Vec<&'static str> {
    engine.cloud().written.lock().clone()
}

fn tried(engine: &Engine<Script>) -> Vec<&'static str> {
    std::mem::take(&mut engine.cloud().tried.lock())
}

fn invalid() -> Fate {
    Fate::Refused(ErrorClass::Invalid { findings: Vec::new() })
}

fn denied() -> Fate {
    Fate::Refused(ErrorClass::Denied { action: String::new() })
}

#[tokio::test]
async fn a_failed_part_stops_what_needs_it_and_nothing_else() {
    let one = || Items::one(0);
    let steps = vec![
        step("listener 443", one(), Part::of(Kind::Frame, "443")),
        step("members 443", one(), Part::of(Kind::Members, "443")),
        step("listener 80", one(), Part::of(Kind::Frame, "80")),
        step("members 80", one(), Part::of(Kind::Members, "80")),
        step("rules", one(), Part::new(Kind::Rules)),
        step("settings", one(), Part::new(Kind::Settings)),
        step("old listener", one(), Part::new(Kind::Retire)),
        step("claim", one(), Part::new(Kind::Release)),
    ];
    let engine = engine(steps, &[("listener 443", invalid())]);
    let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert_eq!(written(&engine), ["listener 80", "members 80", "rules", "settings"]);
    assert_eq!(answer.result.unwrap_err().to_string(), "refused");
    assert_eq!(hostname(answer.status), "web", "the address is known nevertheless");
}

#[tokio::test]
async fn what_needs_the_parts_of_all_ports_waits_for_each_and_fails_alone() {
    let old = |name, port| Step { needs_all: true, ..step(name, Items::one(0), Part::of(Kind::Retire, port)) };
    let steps = || {
        let of = |kind| Part::of(kind, "443");
        vec![
            step("listener 443", Items::one(0), of(Kind::Frame)),
            step("settings 443", Items::one(0), of(Kind::Settings)),
            old("old 80", "80"),
            old("old 81", "81"),
        ]
    };
    for (fails, left) in [
        ("listener 443", vec![]),
        ("settings 443", vec!["listener 443", "old 80", "old 81"]),
        ("old 80", vec!["listener 443", "settings 443", "old 81"]),
    ] {
        let engine = engine(steps(), &[(fails, invalid())]);
        reconcile(&engine, &ensure(&["web"])).await;
        assert_eq!(written(&engine), left, "{fails}");
    }
}

#[tokio::test]
async fn a_failed_step_concerns_only_its_items() {
    let both = || Items::Some([0, 1].into());
    let shared = step("check of both", both(), Part::of(Kind::Shared, "check")).stage(1);
    let steps = vec![
        shared,
        step("frame of a", Items::one(0), Part::new(Kind::Frame)).needs(&[Kind::Shared]).stage(2),
        step("frame of b", Items::one(1), Part::new(Kind::Frame)).stage(2),
        step("frame of c", Items::one(2), Part::new(Kind::Frame)).stage(2),
    ];
    let engine = engine(steps, &[("check of both", denied())]);
    let answers = reconcile(&engine, &ensure(&["a", "b", "c"])).await;
    let failed: Vec<bool> = answers.iter().map(|answer| answer.result.is_err()).collect();
    assert_eq!(failed, [true, true, false]);
    assert!(!written(&engine).contains(&"check of both"));
    assert!(written(&engine).contains(&"frame of b"), "what does not need the shared object goes on");
}

#[tokio::test]
async fn the_members_of_an_invalid_service_are_updated() {
    let engine = Engine::new(Script {
        steps: vec![step("members", Items::one(0), Part::new(Kind::Members))],
        refuses: Some("web"),
        ..Script::default()
    });
    let mut work = ensure(&["web"]);
    let answer = reconcile(&engine, &work).await.remove(0);
    assert_eq!(answer.result.unwrap_err().to_string(), "the annotation is wrong");
    assert!(tried(&engine).is_empty(), "a Service that has nothing is not looked at");
    let mut served = service("web", &[80]);
    served.status.load_balancer.ingress.push(LoadBalancerIngress::default());
    work[0].service = served.into();
    let answer = reconcile(&engine, &work).await.remove(0);
    assert_eq!(answer.result.unwrap_err().to_string(), "the annotation is wrong");
    assert_eq!(written(&engine), ["members"]);
}

#[tokio::test]
async fn an_invalid_service_whose_status_was_wiped_keeps_its_members_and_gets_its_status_back() {
    let engine = Engine::new(Script {
        steps: vec![step("members", Items::one(0), Part::new(Kind::Members))],
        refuses: Some("web"),
        ..Script::default()
    });
    let mut wiped = service("web", &[80]);
    wiped.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.into()];
    let work = [ServiceWork::new(&wiped, &[], ServiceAction::Ensure)];
    let answer = reconcile(&engine, &work).await.remove(0);
    assert_eq!(answer.result.unwrap_err().to_string(), "the annotation is wrong");
    assert_eq!(written(&engine), ["members"]);
    assert_eq!(hostname(answer.status), "web");
}

#[tokio::test]
async fn nothing_is_written_or_published_for_a_refused_service_among_others() {
    let frame = |name, place| step(name, Items::one(place), Part::new(Kind::Frame));
    let steps = || vec![frame("frame of bad", 0), frame("frame of good", 1)];
    let fates = [None, Some(Fate::Loses), Some(Fate::Takes(Duration::from_secs(3)))];
    for fate in fates {
        let fates = fate.clone().map(|fate| ("frame of good", fate)).into_iter().collect();
        let engine = Engine::new(Script { steps: steps(), fates, refuses: Some("bad"), ..Script::default() });
        let [bad, good] = <[_; 2]>::try_from(reconcile(&engine, &ensure(&["bad", "good"])).await).unwrap();
        assert_eq!(bad.result.unwrap_err().to_string(), "the annotation is wrong", "{fate:?}");
        assert_eq!(bad.status, None, "{fate:?}");
        assert_eq!(hostname(good.result.unwrap()), "good", "{fate:?}");
        assert_eq!(written(&engine), ["frame of good"], "{fate:?}");
    }
}

/// Adds no finalizer.
struct NoFinalizers;

#[async_trait]
impl ccm_provider::Finalizers for NoFinalizers {
    async fn add(&self, _: &Service, _: &[&'static str]) -> Result<(), ProviderError> {
        Err(ProviderError::unknown("the role does not allow it"))
    }
}

#[tokio::test]
async fn without_the_finalizer_of_the_provider_nothing_is_created_and_members_are_updated() {
    let scope = Scope::default().with_finalizers(Arc::new(NoFinalizers));
    for (frame, expected) in [(None, &["members"][..]), (Some(Kind::Frame), &[]), (Some(Kind::Claim), &[])] {
        let steps = frame.into_iter().map(|kind| step("frame", Items::one(0), Part::new(kind)));
        let rest = [Kind::Members, Kind::Rules, Kind::Settings].map(|kind| {
            let name = if kind == Kind::Members { "members" } else { "other" };
            step(name, Items::one(0), Part::new(kind))
        });
        let engine = Engine::new(Script {
            steps: steps.chain(rest).collect(),
            finalizer: Some("cloud/finalizer"),
            ..Script::default()
        });
        let answer = engine.reconcile("c", &ensure(&["web"]), &scope).await.remove(0);
        assert_eq!(answer.result.unwrap_err().to_string(), "the role does not allow it");
        assert_eq!(written(&engine), expected, "{frame:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_repeated_only_for_a_changed_service_or_after_an_hour() {
    tokio::time::pause();
    let steps = vec![step("frame", Items::one(0), Part::new(Kind::Frame))];
    let engine = engine(steps, &[("frame", invalid())]);
    let mut work = ensure(&["web"]);
    for expected in [1, 0, 0] {
        let answer = reconcile(&engine, &work).await.remove(0);
        assert_eq!(answer.result.unwrap_err().to_string(), "refused", "the reason stays visible");
        assert_eq!(tried(&engine).len(), expected);
    }
    let mut changed = service("web", &[80]);
    changed.metadata.annotations.insert("x".into(), "y".into());
    work[0].service = changed.into();
    for (expected, minutes) in [(1, 1), (0, 60), (1, 0)] {
        reconcile(&engine, &work).await;
        assert_eq!(tried(&engine).len(), expected);
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
    }
}

/// Otherwise each sync would delete what the one before has restored.
#[tokio::test]
async fn nothing_is_deleted_for_a_successor_that_was_refused() {
    let of = |verb, mut step: Step<&'static str>| {
        step.summary.verb = verb;
        step
    };
    let part = |kind| Part::of(kind, "80");
    let steps = vec![
        of(Verb::Delete, step("old", Items::one(0), part(Kind::Retire))),
        of(Verb::Create, step("new", Items::one(0), part(Kind::Frame))),
        of(Verb::Delete, step("other", Items::one(0), Part::of(Kind::Retire, "443"))),
    ];
    let engine = engine(steps, &[("new", invalid())]);
    reconcile(&engine, &ensure(&["web"])).await;
    assert_eq!(tried(&engine), ["old", "new", "other"]);
    engine.cloud().written.lock().clear();
    let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert_eq!(answer.result.unwrap_err().to_string(), "refused");
    assert_eq!(tried(&engine), ["other"]);
}

#[tokio::test]
async fn members_are_sent_again_after_a_refusal() {
    let steps = vec![step("members", Items::one(0), Part::new(Kind::Members))];
    let engine = engine(steps, &[("members", invalid())]);
    for _ in 0..2 {
        reconcile(&engine, &ensure(&["web"])).await;
        assert_eq!(tried(&engine).len(), 1);
    }
}

#[tokio::test]
async fn a_conflict_is_planned_again_once_and_silently() {
    let steps = vec![
        step("first", Items::one(0), Part::new(Kind::Frame)),
        step("second", Items::one(0), Part::new(Kind::Members)),
    ];
    let engine = engine(steps, &[("first", Fate::Loses)]);
    let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert_eq!(hostname(answer.result.unwrap()), "web");
    assert_eq!(tried(&engine), ["first", "first", "second"]);
}

#[tokio::test]
async fn a_cloud_that_plans_twice_again_does_so_for_another_object() {
    let always = || Fate::Refused(ErrorClass::Conflict);
    for (first, second, expected) in [
        (Fate::Loses, Fate::Loses, &["first", "first", "second", "second"][..]),
        (always(), Fate::Loses, &["first", "first"]),
        (Fate::Loses, always(), &["first", "first", "second", "second"]),
    ] {
        let steps = vec![
            step("first", Items::one(0), Part::new(Kind::Frame)),
            step("second", Items::one(0), Part::new(Kind::Members)),
        ];
        let mut engine = engine(steps, &[("first", first), ("second", second)]);
        engine.cloud.plans_twice_again = true;
        reconcile(&engine, &ensure(&["web"])).await;
        assert_eq!(tried(&engine), expected);
    }
}

/// Notes the finalizers that it adds; refuses those of one Service.
#[derive(Default)]
struct Adds(Mutex<Vec<String>>);

#[async_trait]
impl ccm_provider::Finalizers for Adds {
    async fn add(&self, service: &Service, names: &[&'static str]) -> Result<(), ProviderError> {
        self.0.lock().push(format!("{} {}", service.metadata.name, names.join(" ")));
        if &*service.metadata.name == "denied" { Err(ProviderError::unknown("denied")) } else { Ok(()) }
    }
}

#[tokio::test]
async fn finalizers_are_added_once_before_the_writes_and_nothing_is_written_for_a_service_without_them() {
    let steps = vec![
        step("frame", Items::one(0), Part::new(Kind::Frame)),
        step("other frame", Items::one(1), Part::new(Kind::Frame)),
    ];
    let mut engine = engine(steps, &[("frame", Fate::Loses)]);
    engine.cloud.finalizer = Some("example.com/mark");
    let adds = Arc::new(Adds::default());
    let scope = Scope::default().with_finalizers(adds.clone());
    let answers = engine.reconcile("c", &ensure(&["web", "denied"]), &scope).await;
    assert!(answers[0].result.is_ok(), "{answers:?}");
    assert_eq!(answers[1].result.as_ref().unwrap_err().to_string(), "denied");
    assert_eq!(written(&engine), ["frame"]);
    assert_eq!(*adds.0.lock(), ["web example.com/mark", "denied example.com/mark"]);
}

/// What it had here before is deleted.
#[tokio::test]
async fn a_service_of_another_controller_gets_no_finalizer_and_a_refused_write_is_its_error() {
    for (fate, expected) in
        [(None, ProviderError::ImplementedElsewhere.to_string()), (Some(invalid()), "refused".into())]
    {
        let steps = vec![step("goes", Items::one(0), Part::new(Kind::Claim))];
        let fates: Vec<_> = fate.map(|fate| ("goes", fate)).into_iter().collect();
        let mut engine = engine(steps, &fates);
        (engine.cloud.finalizer, engine.cloud.is_elsewhere) = (Some("example.com/mark"), true);
        let adds = Arc::new(Adds::default());
        let work = ensure(&["web"]);
        let plan = engine.plan("c", &work[0]).await.unwrap();
        assert_eq!((plan.steps.len(), plan.findings.len()), (1, 0));
        let answer = engine.reconcile("c", &work, &Scope::default().with_finalizers(adds.clone())).await.remove(0);
        assert_eq!(answer.result.unwrap_err().to_string(), expected);
        assert_eq!(tried(&engine), ["goes"]);
        assert_eq!(*adds.0.lock(), [""; 0]);
    }
}

#[tokio::test]
async fn what_happens_after_a_refusal_or_a_failure_is_part_of_the_plan() {
    let of = |name, port| step(name, Items::one(0), Part::of(Kind::Frame, port));
    let steps = vec![of("new rule", "80").restore(of("old rule", "80")), of("rule", "81").undo(of("remains", "81"))];
    let engine = engine(steps, &[("new rule", invalid()), ("rule", Fate::Fails)]);
    let work = ensure(&["web"]);
    assert_eq!(
        engine.plan("c", &work[0]).await.unwrap().to_string(),
        "service default/web:\n  \
         1. update Thing new rule (because wanted; if it is refused: update Thing old rule, as before)\n  \
         2. update Thing rule (because wanted; if it fails afterwards: update Thing remains)"
    );
    reconcile(&engine, &work).await.remove(0).result.unwrap_err();
    assert_eq!(tried(&engine), ["new rule", "old rule", "rule", "remains"]);
}

#[tokio::test]
async fn the_refusal_of_an_optional_step_is_reported_and_the_others_go_on() {
    let steps = vec![
        step("method", Items::one(0), Part::new(Kind::Frame)).optional(),
        step("members", Items::one(0), Part::new(Kind::Members)),
    ];
    let engine = engine(steps, &[("method", Fate::Refused(ErrorClass::Unsupported))]);
    let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert!(answer.result.is_ok());
    assert_eq!(written(&engine), ["members"]);
    let again = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert!(again.result.is_ok(), "{again:?}");
    assert_eq!(*engine.cloud().reported.lock(), ["Thing method: refused"], "once");
}

mod prepared;
mod restored;
mod waits;
