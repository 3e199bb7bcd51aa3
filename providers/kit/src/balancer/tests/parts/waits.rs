//! Operations that take long, what comes back for a successor that is refused later, and the end of the process.

use std::sync::atomic::{AtomicBool, Ordering};

use ccm_provider::Turn;

use super::*;

const LONG: Duration = Duration::from_secs(90);

#[tokio::test(start_paused = true)]
async fn an_operation_that_takes_long_withholds_nothing_from_others_and_is_not_sent_twice() {
    let steps = vec![
        step("rule of a", Items::one(0), Part::new(Kind::Frame)).stage(1),
        step("rule of b", Items::one(1), Part::new(Kind::Frame)).stage(1),
        step("members of a", Items::one(0), Part::new(Kind::Members)).stage(2),
    ];
    let (long, short) = (Duration::from_secs(90), Duration::from_secs(5));
    let engine = engine(steps, &[("rule of a", Fate::Takes(long)), ("rule of b", Fate::Takes(short))]);
    let (began, work) = (Instant::now(), ensure(&["a", "b"]));
    let answers = reconcile(&engine, &work).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let error = answers[0].result.as_ref().unwrap_err();
    assert!(error.is_in_progress(), "{error}");
    assert_eq!(error.to_string(), "the cloud is still changing rule of a");
    assert_eq!(hostname(answers[1].result.clone().unwrap()), "b");
    tried(&engine);
    while reconcile(&engine, &work).await[0].result.is_err() {
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert_eq!(tried(&engine), ["members of a"], "the operation was awaited, not repeated");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_withholds_no_status_of_others() {
    let of = |name, item| step(name, Items::one(item), Part::new(Kind::Frame)).stage(1);
    let steps = vec![of("rule of a", 0), of("rule of b", 1), of("rule of c", 2)];
    let fates =
        [("rule of a", Fate::Silent), ("rule of b", Fate::Takes(Duration::from_secs(5))), ("rule of c", invalid())];
    let engine = engine(steps, &fates);
    let published = Arc::new(Mutex::new(Vec::new()));
    let receiver = published.clone();
    let scope =
        Scope::default().with_statuses(move |place, status| receiver.lock().push((place, hostname(Some(status)))));
    let work = ensure(&["a", "b", "c", "d"]);
    let call = engine.reconcile("c", &work, &scope);
    assert!(tokio::time::timeout(Duration::from_secs(8), call).await.is_err(), "the first one hangs");
    assert_eq!(*published.lock(), [(1, "b".to_owned())], "once, and not of what failed or had no step");
}

#[tokio::test(start_paused = true)]
async fn an_early_look_that_hangs_holds_up_neither_a_step_nor_the_end_of_the_call() {
    let of = |name, item| step(name, Items::one(item), Part::new(Kind::Frame));
    let steps = vec![of("slow", 0).stage(1), of("next", 0).stage(2), of("done", 1).stage(1)];
    let mut engine = engine(steps, &[("slow", Fate::Slow(Duration::from_secs(5)))]);
    engine.cloud.hanging_look = Some(2);
    let began = Instant::now();
    let answers = reconcile(&engine, &ensure(&["a", "b"])).await;
    assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(*engine.cloud().looks.lock(), 3, "the second one began");
}

#[tokio::test(start_paused = true)]
async fn an_operation_beside_which_nothing_else_is_done_is_left_too() {
    let hour = Fate::Takes(Duration::from_secs(3600));
    let engine = engine(vec![step("rule", Items::one(0), Part::new(Kind::Frame))], &[("rule", hour)]);
    let began = Instant::now();
    let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
    assert!(answer.result.unwrap_err().is_in_progress());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_does_not_end_is_an_error_after_half_an_hour() {
    let hour = Fate::Takes(Duration::from_secs(3600));
    let engine = engine(vec![step("rule", Items::one(0), Part::new(Kind::Frame))], &[("rule", hour)]);
    let work = ensure(&["web", "other"]);
    for is_late in [false, true] {
        let answers = reconcile(&engine, &work).await;
        let error = answers[0].result.as_ref().unwrap_err();
        assert_eq!(error.is_in_progress(), !is_late, "{error}");
        assert_eq!(error.to_string().ends_with("after half an hour; see why it does not end"), is_late, "{error}");
        assert!(answers[1].result.is_ok());
        tokio::time::sleep(Duration::from_secs(1800)).await;
    }
    assert!(reconcile(&engine, &work).await.remove(0).result.is_ok(), "it is followed to its end");
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_left_soon_after_others_wait_for_the_end_of_the_call() {
    let engine = engine(vec![step("rule", Items::one(0), Part::new(Kind::Frame))], &[("rule", Fate::Takes(LONG))]);
    let awaited = Arc::new(Stopping::default());
    let (scope, work, began) = (Scope::new(awaited.clone()), ensure(&["web"]), Instant::now());
    let (answers, ()) = tokio::join!(engine.reconcile("c", &work, &scope), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        awaited.2.store(true, Ordering::SeqCst);
    });
    assert!(answers[0].result.as_ref().unwrap_err().is_in_progress());
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
}

/// The next observation shows what became of it.
#[tokio::test(start_paused = true)]
async fn an_operation_that_may_not_be_read_does_not_block_its_object() {
    let engine = engine(vec![step("rule", Items::one(0), Part::new(Kind::Frame))], &[("rule", Fate::Unread)]);
    let mut errors = Vec::new();
    for _ in 0..3 {
        let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
        errors.push(answer.result.map_or_else(|error| error.to_string(), |_| String::new()));
    }
    let reason = "changing rule was accepted, and cannot be followed: the role lacks the right";
    assert_eq!(errors, ["the cloud is still changing rule", reason, ""]);
    assert_eq!(tried(&engine), ["rule", "rule"]);
}

/// An observation may not show it before it is done, and nobody would look for it afterwards.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_what_is_still_being_made() {
    let mut rule = step("rule", Items::one(0), Part::new(Kind::Frame));
    rule.summary.verb = Verb::Create;
    let steps = vec![rule, step("rest", Items::one(0), Part::new(Kind::Members))];
    let engine = engine(steps, &[("rule", Fate::Takes(Duration::from_secs(90)))]);
    reconcile(&engine, &ensure(&["web"])).await;
    tried(&engine);
    let deletion = [ServiceWork::new(&service("web", &[80]), &[], ServiceAction::Delete)];
    let answer = reconcile(&engine, &deletion).await.remove(0);
    assert!(answer.result.unwrap_err().is_in_progress());
    assert_eq!(tried(&engine), [""; 0]);
    tokio::time::advance(Duration::from_secs(90)).await;
    reconcile(&engine, &deletion).await;
    assert_eq!(tried(&engine), ["rest"], "the rule is there, and the deletion goes on");
}

/// Nobody would look for it afterwards.
#[tokio::test]
async fn a_deletion_without_status_waits_until_reads_show_what_the_former_leader_has_made() {
    let mut unpublished = service("web", &[80]);
    unpublished.metadata.finalizers = vec![FINALIZER_LOAD_BALANCER.into()];
    let mut published = unpublished.clone();
    published.status.load_balancer.ingress.push(LoadBalancerIngress::default());
    let left = Duration::from_secs(8);
    for (service, former, waits) in [
        (&unpublished, Some(left), true),
        (&unpublished, None, false),
        (&published, Some(left), false),
        (&service("never", &[80]), Some(left), false),
    ] {
        let engine = engine(vec![step("rest", Items::one(0), Part::new(Kind::Members))], &[]);
        *engine.cloud.former.lock() = former;
        let deletion = [ServiceWork::new(service, &[], ServiceAction::Delete)];
        let result = reconcile(&engine, &deletion).await.remove(0).result;
        assert_eq!(result.err().and_then(|error| error.retry_after()), former.filter(|_| waits));
        assert_eq!(tried(&engine).is_empty(), waits);
    }
}

/// A process that is asked to stop, and whether others wait.
#[derive(Default)]
struct Stopping(AtomicBool, tokio::sync::Notify, AtomicBool);

#[async_trait]
impl Turn for Stopping {
    fn may_write(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }

    fn may_complete(&self) -> bool {
        true
    }

    async fn ended(&self) {
        self.1.notified().await;
    }

    fn wait_begins(&self) {}

    fn wait_ends(&self) {}

    async fn resumed(&self) {}

    fn is_waited_for(&self) -> bool {
        self.2.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn no_write_begins_after_a_shutdown_has_begun_and_the_next_leader_continues() {
    let steps = vec![
        step("rule", Items::one(0), Part::new(Kind::Frame)),
        step("members", Items::one(0), Part::new(Kind::Members)),
    ];
    let engine = engine(steps, &[("rule", Fate::Takes(Duration::from_secs(15)))]);
    let stopping = Arc::new(Stopping::default());
    let (scope, work) = (Scope::new(stopping.clone()), ensure(&["web"]));
    let began = Instant::now();
    let (answers, ()) = tokio::join!(engine.reconcile("c", &work, &scope), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stopping.0.store(true, Ordering::SeqCst);
        stopping.1.notify_waiters();
    });
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert!(answers[0].result.as_ref().unwrap_err().is_in_progress());
    assert_eq!(tried(&engine), ["rule"]);
    tokio::time::advance(Duration::from_secs(15)).await;
    let answer = reconcile(&engine, &work).await.remove(0);
    assert!(answer.result.is_ok(), "{answer:?}");
}

/// A rule that is replaced, and its successor.
fn replaced() -> Vec<Step<&'static str>> {
    let of = |name, verb| {
        let mut step = step(name, Items::one(0), Part::new(Kind::Frame));
        (step.summary.verb, step.summary.id) = (verb, "rule".to_owned());
        step
    };
    let new = of("new rule", Verb::Create).restore(of("old rule", Verb::Create));
    vec![of("remove", Verb::Delete).stage(1), new.stage(2)]
}

fn beside() -> Step<&'static str> {
    step("rule of b", Items::one(1), Part::new(Kind::Frame)).stage(1)
}

fn refused_later() -> ErrorClass {
    ErrorClass::Invalid { findings: Vec::new() }
}

/// Calls until nothing is in progress; returns what was tried.
async fn until_done(engine: &Engine<Script>, work: &[ServiceWork]) -> Vec<&'static str> {
    let mut all = Vec::new();
    for _ in 0..40 {
        let answers = reconcile(engine, work).await;
        all.extend(tried(engine));
        if answers.iter().all(|answer| !answer.result.as_ref().is_err_and(ProviderError::is_in_progress)) {
            break;
        }
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_comes_back_if_the_removal_or_the_creation_takes_long() {
    let late = || Fate::TakesAndFails(LONG, refused_later());
    let denied_later = Fate::TakesAndFails(LONG, ErrorClass::Denied { action: String::new() });
    let quota_later = Fate::TakesAndFails(LONG, ErrorClass::Unknown);
    for fates in [
        [("remove", Fate::Takes(LONG)), ("new rule", invalid())],
        [("remove", Fate::Takes(LONG)), ("new rule", denied())],
        [("remove", Fate::Takes(Duration::ZERO)), ("new rule", late())],
        [("remove", Fate::Takes(Duration::ZERO)), ("new rule", denied_later)],
        [("remove", Fate::Takes(Duration::ZERO)), ("new rule", quota_later)],
        [("remove", Fate::Takes(LONG)), ("new rule", late())],
    ] {
        let engine = engine([replaced(), vec![beside()]].concat(), &fates);
        let all = until_done(&engine, &ensure(&["a", "b"])).await;
        let of_a: Vec<_> = all.into_iter().filter(|name| *name != "rule of b").collect();
        assert_eq!(of_a, ["remove", "new rule", "old rule"], "{fates:?}");
        let answers = reconcile(&engine, &ensure(&["a", "b"])).await;
        assert!(answers[0].result.as_ref().unwrap_err().to_string().starts_with("refused"), "{answers:?}");
        assert_eq!(tried(&engine), [""; 0], "{fates:?}");
    }
}

/// Others wait for it, but without it there is no traffic.
#[tokio::test(start_paused = true)]
async fn a_removal_for_a_successor_is_not_left_for_the_answers_of_others() {
    let removes = ("remove", Fate::Takes(Duration::from_secs(8)));
    let engine = engine([replaced(), vec![beside()]].concat(), &[removes]);
    let answers = reconcile(&engine, &ensure(&["a", "b"])).await;
    assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_comes_back_if_its_successor_fails_and_is_refused_then() {
    let engine = engine(replaced(), &[("new rule", Fate::FailsAndIsRefused)]);
    let work = ensure(&["web"]);
    let mut all = until_done(&engine, &work).await;
    all.extend(until_done(&engine, &work).await);
    assert_eq!(all, ["remove", "new rule", "new rule", "old rule"]);
}

/// The port is not left without traffic for as long as that lasts.
#[tokio::test(start_paused = true)]
async fn what_was_removed_comes_back_after_a_minute_of_passing_failures_and_stays_for_a_while() {
    let with_pool = || {
        let mut pool = step("pool", Items::one(0), Part::new(Kind::Frame)).stage(2);
        pool.summary.id = "pool".to_owned();
        let [remove, new] = replaced().try_into().unwrap();
        vec![remove, pool, new.stage(3)]
    };
    for (steps, fails) in [(replaced(), "new rule"), (with_pool(), "pool")] {
        for class in [ErrorClass::Transient { after: None }, ErrorClass::Throttled { after: None }] {
            let engine = engine(steps.clone(), &[(fails, Fate::Refused(class))]);
            let work = ensure(&["web"]);
            for (seconds, expected) in [
                (0, &["remove", fails][..]),
                (59, &[fails]),
                (2, &[fails, "old rule"]),
                (599, &[]),
                (2, &["remove", fails]),
            ] {
                tokio::time::advance(Duration::from_secs(seconds)).await;
                let answer = reconcile(&engine, &work).await.remove(0);
                assert_eq!(answer.result.unwrap_err().to_string(), "refused");
                let tried = tried(&engine);
                assert_eq!(tried, expected, "{fails} after {seconds} s");
                if tried.contains(&"old rule") {
                    engine.cloud().written.lock().clear();
                }
            }
        }
    }
}

/// The second plan of the call most likely succeeds.
#[tokio::test(start_paused = true)]
async fn a_conflict_brings_nothing_back_however_late() {
    let engine = engine(replaced(), &[("new rule", Fate::Refused(ErrorClass::Conflict))]);
    for _ in 0..2 {
        reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
        let tried = tried(&engine);
        assert!(tried.contains(&"new rule") && !tried.contains(&"old rule"), "{tried:?}");
        tokio::time::advance(Duration::from_secs(61)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_refusal_brings_nothing_back_if_the_successor_is_there() {
    let mut engine = engine(replaced(), &[("new rule", Fate::Takes(Duration::ZERO)), ("change", invalid())]);
    engine.cloud.denies_results = true;
    reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
    assert_eq!(tried(&engine), ["remove", "new rule"]);
    let mut change = step("change", Items::one(0), Part::new(Kind::Frame));
    (change.summary.verb, change.summary.id) = (Verb::Update, "rule".to_owned());
    engine.cloud.steps = vec![change];
    reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
    assert_eq!(tried(&engine), ["change"]);
}

/// There is nothing that a trial would interrupt.
#[tokio::test(start_paused = true)]
async fn a_refused_successor_is_sent_again_if_what_was_removed_is_refused_too() {
    let pool = |fate| {
        let mut pool = step("pool", Items::one(0), Part::new(Kind::Frame));
        pool.summary.id = "pool".to_owned();
        let [remove, new] = replaced().try_into().unwrap();
        (vec![remove, pool.stage(2), new.stage(3)], vec![("pool", fate), ("old rule", invalid())])
    };
    let refused = |fate| (replaced(), vec![("new rule", fate), ("old rule", invalid())]);
    let late = Fate::TakesAndFails(LONG, refused_later());
    let of_unknown = || Fate::Refused(ErrorClass::Unknown);
    let unknown = (replaced(), vec![("new rule", of_unknown()), ("old rule", of_unknown())]);
    for ((steps, fates), first, again) in [
        (refused(invalid()), &["remove", "new rule", "old rule"][..], ["new rule", "old rule"]),
        // The call in which the refusal arrives sends it again.
        (refused(late), &["remove", "new rule", "old rule", "new rule"], ["old rule", "new rule"]),
        (pool(invalid()), &["remove", "pool", "old rule"], ["pool", "old rule"]),
        (unknown, &["remove", "new rule", "old rule"], ["new rule", "old rule"]),
    ] {
        let mut engine = engine(steps, &fates);
        let work = ensure(&["web"]);
        assert_eq!(until_done(&engine, &work).await, first);
        for _ in 0..3 {
            assert_eq!(until_done(&engine, &work).await, again);
        }
        engine.cloud.fates.retain(|name, fate| *name == "new rule" && matches!(fate, Fate::TakesAndFails(..)));
        engine.cloud.fates.values_mut().for_each(|fate| *fate = Fate::Takes(LONG));
        until_done(&engine, &work).await;
        assert!(written(&engine).contains(&"new rule"));
    }
}

/// It was the rule of another object of this name.
#[tokio::test(start_paused = true)]
async fn what_was_removed_does_not_come_back_for_another_service_of_the_name() {
    let engine = engine(replaced(), &[("new rule", Fate::FailsAndIsRefused)]);
    until_done(&engine, &ensure(&["web"])).await;
    let mut other = service("web", &[80]);
    other.metadata.uid = "other".into();
    let work = [ServiceWork::new(&other, &[], ServiceAction::Ensure)];
    assert_eq!(until_done(&engine, &work).await, ["new rule"]);
}

/// The first one takes longer than a call waits.
#[tokio::test(start_paused = true)]
async fn all_that_comes_back_does_so_although_the_first_takes_long() {
    let mut steps = replaced();
    let old_rule = std::mem::take(&mut steps[1].restore).remove(0);
    let mut pool = step("old pool", Items::one(0), Part::new(Kind::Frame)).stage(1);
    pool.summary.id = "pool".to_owned();
    steps[1].restore = vec![Arc::new(pool), old_rule];
    let engine = engine(steps, &[("new rule", invalid()), ("old pool", Fate::Takes(LONG))]);
    let all = [until_done(&engine, &ensure(&["web"])).await, until_done(&engine, &ensure(&["web"])).await].concat();
    assert_eq!(all.last(), Some(&"old rule"), "{all:?}");
}

/// It is for another load balancer of the same Service.
#[tokio::test(start_paused = true)]
async fn what_was_removed_does_not_come_back_after_a_deletion() {
    let engine = engine(replaced(), &[("new rule", Fate::FailsAndIsRefused)]);
    until_done(&engine, &ensure(&["web"])).await;
    engine.cloud().written.lock().extend(["remove", "new rule"]);
    let deletion = [ServiceWork::new(&service("web", &[80]), &[], ServiceAction::Delete)];
    reconcile(&engine, &deletion).await.remove(0).result.unwrap();
    engine.cloud().written.lock().retain(|name| *name == "remove");
    tried(&engine);
    assert_eq!(until_done(&engine, &ensure(&["web"])).await, ["new rule"]);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_has_begun_is_completed_when_the_process_stops() {
    for (removes, makes) in [(Verb::Delete, Verb::Create), (Verb::Detach, Verb::Attach)] {
        let mut steps = replaced();
        (steps[0].summary.verb, steps[1].summary.verb) = (removes, makes);
        steps[0].stage = None;
        steps[1].stage = None;
        steps.insert(1, step("pool", Items::one(0), Part::of(Kind::Frame, "pool")));
        steps.push(step("settings", Items::one(0), Part::new(Kind::Settings)));
        for refused in [false, true] {
            let mut fates = vec![("remove", Fate::Takes(Duration::from_secs(6)))];
            fates.extend(refused.then(|| ("new rule", invalid())));
            let engine = engine(steps.clone(), &fates);
            let stopping = Arc::new(Stopping::default());
            let (scope, work) = (Scope::new(stopping.clone()), ensure(&["web"]));
            tokio::join!(engine.reconcile("c", &work, &scope), async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                stopping.0.store(true, Ordering::SeqCst);
                stopping.1.notify_waiters();
            });
            let expected: &[&str] = match refused {
                false => &["remove", "pool", "new rule"],
                true => &["remove", "pool", "new rule", "old rule"],
            };
            assert_eq!(tried(&engine), expected);
        }
    }
}

/// Each removal has a successor of its own.
#[tokio::test(start_paused = true)]
async fn two_replacements_that_have_begun_are_completed_when_the_process_stops() {
    let of = |name, verb, id: &str| {
        let mut step = step(name, Items::one(0), Part::new(Kind::Frame));
        (step.summary.verb, step.summary.id) = (verb, id.to_owned());
        step
    };
    let new = |name, old, id| of(name, Verb::Create, id).restore(of(old, Verb::Create, id));
    let steps = vec![
        of("remove", Verb::Delete, "rule"),
        of("remove pool", Verb::Delete, "pool"),
        new("new pool", "old pool", "pool"),
        new("new rule", "old rule", "rule"),
    ];
    let engine = engine(steps, &[("remove", Fate::Takes(Duration::from_secs(6)))]);
    let stopping = Arc::new(Stopping::default());
    let (scope, work) = (Scope::new(stopping.clone()), ensure(&["web"]));
    tokio::join!(engine.reconcile("c", &work, &scope), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stopping.0.store(true, Ordering::SeqCst);
        stopping.1.notify_waiters();
    });
    assert_eq!(tried(&engine), ["remove", "remove pool", "new pool", "new rule"]);
}

#[tokio::test(start_paused = true)]
async fn no_removal_begins_after_a_shutdown_has_begun() {
    let engine = engine(replaced(), &[]);
    let stopping = Arc::new(Stopping::default());
    stopping.0.store(true, Ordering::SeqCst);
    engine.reconcile("c", &ensure(&["web"]), &Scope::new(stopping)).await;
    assert_eq!(tried(&engine), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_an_operation_that_took_long_is_remembered() {
    let steps = vec![step("rule", Items::one(0), Part::new(Kind::Frame)).stage(1)];
    let engine = engine(steps, &[("rule", Fate::TakesAndFails(LONG, refused_later()))]);
    let work = ensure(&["web"]);
    reconcile(&engine, &work).await;
    for expected in [0, 0, 0] {
        tokio::time::advance(LONG).await;
        tried(&engine);
        let answer = reconcile(&engine, &work).await.remove(0);
        assert_eq!(answer.result.unwrap_err().to_string(), "refused afterwards");
        assert_eq!(tried(&engine).len(), expected);
    }
    tokio::time::advance(Duration::from_secs(3600)).await;
    reconcile(&engine, &work).await;
    assert_eq!(tried(&engine), ["rule"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_plan_after_a_conflict_leaves_out_what_runs_since_the_first() {
    let of_b = |name, kind| step(name, Items::one(1), Part::new(kind)).stage(1);
    let steps = vec![
        step("rule of a", Items::one(0), Part::new(Kind::Frame)).stage(1),
        of_b("rule of b", Kind::Frame),
        of_b("other of b", Kind::Rules),
    ];
    let engine = engine(steps, &[("rule of b", Fate::Takes(LONG)), ("other of b", Fate::Loses)]);
    let answers = reconcile(&engine, &ensure(&["a", "b"])).await;
    assert!(answers[1].result.as_ref().unwrap_err().is_in_progress());
    let mut tried = tried(&engine);
    tried.sort_unstable();
    assert_eq!(tried, ["other of b", "other of b", "rule of a", "rule of b"]);
}

/// The plan was made after it.
#[tokio::test(start_paused = true)]
async fn the_conflict_of_an_operation_that_took_long_is_planned_again_once() {
    let steps = vec![step("members", Items::one(0), Part::new(Kind::Members)).stage(1)];
    let engine = engine(steps, &[("members", Fate::TakesAndFails(LONG, ErrorClass::Conflict))]);
    let work = ensure(&["web"]);
    reconcile(&engine, &work).await;
    tokio::time::advance(LONG).await;
    let answer = reconcile(&engine, &work).await.remove(0);
    assert!(answer.result.unwrap_err().is_in_progress());
    assert_eq!(tried(&engine), ["members", "members"], "once in each call");
}
