//! What was removed for a successor that the cloud refuses comes back.

use super::*;

/// The old one goes again only if the new one may be sent again.
#[tokio::test(start_paused = true)]
async fn what_was_removed_for_a_refused_successor_comes_back_and_stays() {
    for (removes, makes) in [(Verb::Delete, Verb::Create), (Verb::Detach, Verb::Attach)] {
        let quota = Fate::Refused(ErrorClass::Unknown);
        for (fate, lasts) in [(invalid(), memory::REFUSED), (denied(), memory::DENIED), (quota, memory::DENIED)] {
            let of = |name, verb| {
                let mut step = step(name, Items::one(0), Part::new(Kind::Frame));
                (step.summary.verb, step.summary.id) = (verb, "rule".to_owned());
                step
            };
            let new = of("new rule", makes).restore(of("old rule", makes));
            let engine = engine(vec![of("remove", removes), new], &[("new rule", fate.clone())]);
            let all = ["remove", "new rule", "old rule"];
            for (after, expected) in [(Duration::ZERO, &all[..]), (lasts / 2, &[]), (lasts / 2, &all)] {
                tokio::time::advance(after).await;
                let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
                assert_eq!(answer.result.unwrap_err().to_string(), "refused");
                assert_eq!(tried(&engine), expected, "{fate:?}");
                engine.cloud().written.lock().clear();
            }
        }
    }
}

/// Another step of the part is refused before.
#[tokio::test(start_paused = true)]
async fn what_was_deleted_comes_back_and_stays_if_its_successor_is_not_reached() {
    let of = |name, verb, id: &str| {
        let mut step = step(name, Items::one(0), Part::new(Kind::Frame));
        (step.summary.verb, step.summary.id) = (verb, id.to_owned());
        step
    };
    let passing = || Fate::Refused(ErrorClass::Transient { after: None });
    for (verb, fate, comes_back) in [
        (Verb::Delete, invalid(), true),
        (Verb::Delete, denied(), true),
        (Verb::Update, denied(), true),
        (Verb::Update, Fate::Refused(ErrorClass::Unknown), true),
        (Verb::Update, passing(), false),
    ] {
        let new = of("new rule", Verb::Create, "rule").restore(of("old pool", Verb::Update, "pool"));
        let new = new.restore(of("old rule", Verb::Create, "rule"));
        let steps = vec![of("remove", Verb::Delete, "rule"), of("pool", verb, "pool"), new];
        let engine = engine(steps, &[("pool", fate)]);
        let answer = reconcile(&engine, &ensure(&["web"])).await.remove(0);
        assert_eq!(answer.result.unwrap_err().to_string(), "refused");
        let restored: &[_] = if comes_back { &["old pool", "old rule"] } else { &[] };
        assert_eq!(tried(&engine), [&["remove", "pool"], restored].concat());
        engine.cloud().written.lock().clear();
        reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
        assert_eq!(tried(&engine).is_empty(), comes_back);
    }
}

/// It is there: nothing comes back.
#[tokio::test(start_paused = true)]
async fn a_successor_whose_result_cannot_be_read_stays() {
    let new = step("new", Items::one(0), Part::new(Kind::Frame));
    let new = new.restore(step("old", Items::one(0), Part::new(Kind::Frame)));
    let mut engine = engine(vec![new], &[("new", Fate::Takes(Duration::ZERO))]);
    engine.cloud.denies_results = true;
    reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
    assert_eq!(tried(&engine), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_passes_soon_is_remembered_for_an_hour_if_each_trial_removes_something() {
    for (restores, expected) in [(false, 1), (true, 0)] {
        let new = step("new", Items::one(0), Part::new(Kind::Frame));
        let old = step("old", Items::one(0), Part::new(Kind::Frame));
        let new = if restores { new.restore(old) } else { new };
        let mut engine = engine(vec![new], &[("new", invalid())]);
        engine.cloud.remembers = Some(Duration::from_secs(300));
        reconcile(&engine, &ensure(&["web"])).await;
        tried(&engine);
        tokio::time::advance(Duration::from_secs(301)).await;
        reconcile(&engine, &ensure(&["web"])).await;
        assert_eq!(tried(&engine).len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn two_refused_changes_of_one_object_are_both_remembered() {
    let of = |name, of| {
        let mut step = step(name, Items::one(0), Part::of(Kind::Settings, of));
        step.summary.id = "balancer".to_owned();
        step.summary.reason = name.to_owned();
        step
    };
    let steps = vec![of("logs", "logs"), of("timeout", "timeout")];
    let engine = engine(steps, &[("logs", invalid()), ("timeout", invalid())]);
    for expected in [vec!["logs", "timeout"], vec![]] {
        reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
        assert_eq!(tried(&engine), expected);
    }
}
