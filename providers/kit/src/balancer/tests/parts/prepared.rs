//! What only prepares a replacement is released if that is refused.

use super::*;

fn of(name: &'static str, verb: Verb, id: &str) -> Step<&'static str> {
    let mut step = step(name, Items::one(0), Part::new(Kind::Frame));
    (step.summary.verb, step.summary.id) = (verb, id.to_owned());
    step
}

/// The replacement of a rule whose address is reserved meanwhile.
fn replacement() -> Vec<Step<&'static str>> {
    let part = Part::of(Kind::Retire, "old");
    let release = Step { part, ..of("release", Verb::Delete, "address") };
    vec![
        of("reserve", Verb::Create, "address").prepares(true),
        of("admit", Verb::Update, "firewall"),
        of("remove", Verb::Delete, "rule"),
        of("new", Verb::Create, "rule").restore(of("old", Verb::Create, "rule")),
        release.needs(&[Kind::Claim, Kind::Frame]).releases(true),
    ]
}

fn unknown() -> Fate {
    Fate::Refused(ErrorClass::Unknown)
}

fn passing() -> Fate {
    Fate::Refused(ErrorClass::Transient { after: None })
}

async fn fails(engine: &Engine<Script>) -> Vec<&'static str> {
    reconcile(engine, &ensure(&["web"])).await.remove(0).result.unwrap_err();
    tried(engine)
}

#[tokio::test(start_paused = true)]
async fn what_was_prepared_is_released_if_its_predecessor_stays_or_has_come_back() {
    let whole = ["reserve", "admit", "remove", "new"];
    for (fates, expected) in [
        (vec![("admit", denied())], [&whole[..2], &["release"]].concat()),
        (vec![("admit", unknown())], [&whole[..2], &["release"]].concat()),
        (vec![("admit", passing())], whole[..2].to_vec()),
        (vec![("remove", denied())], [&whole[..3], &["release"]].concat()),
        // It may be gone.
        (vec![("remove", unknown())], whole[..3].to_vec()),
        (vec![("new", denied())], [&whole[..], &["old", "release"]].concat()),
        (vec![("new", unknown())], [&whole[..], &["old", "release"]].concat()),
        (vec![("new", passing())], whole.to_vec()),
        (vec![("new", denied()), ("old", denied())], [&whole[..], &["old"]].concat()),
        (vec![("reserve", denied())], whole[..1].to_vec()),
    ] {
        let engine = engine(replacement(), &fates);
        assert_eq!(fails(&engine).await, expected, "{fates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_prepared_for_what_was_refused_for_good() {
    for refused in ["admit", "new"] {
        let engine = engine(replacement(), &[(refused, invalid())]);
        assert!(fails(&engine).await.ends_with(&["release"]), "{refused}");
        engine.cloud().written.lock().clear();
        assert_eq!(fails(&engine).await, [""; 0], "{refused}");
    }
}

/// Each trial would prepare it and release that again. Somebody may grant the permission.
#[tokio::test(start_paused = true)]
async fn nothing_is_prepared_for_what_lacks_a_permission_for_ten_minutes() {
    for refused in ["admit", "remove"] {
        let mut engine = engine(replacement(), &[(refused, denied())]);
        for _ in 0..2 {
            assert!(fails(&engine).await.ends_with(&[refused, "release"]), "{refused}");
            for _ in 0..2 {
                engine.cloud().written.lock().clear();
                assert_eq!(fails(&engine).await, [""; 0], "{refused}");
                tokio::time::advance(memory::DENIED / 3).await;
            }
            tokio::time::advance(memory::DENIED / 3).await;
        }
        engine.cloud.fates.clear();
        reconcile(&engine, &ensure(&["web"])).await.remove(0).result.unwrap();
        assert_eq!(tried(&engine), ["reserve", "admit", "remove", "new", "release"], "{refused}");
    }
    // What fails in passing is tried again.
    let engine = engine(replacement(), &[("admit", passing())]);
    for _ in 0..2 {
        assert_eq!(fails(&engine).await, ["reserve", "admit"]);
        engine.cloud().written.lock().clear();
    }
}

/// The reservation is there: an earlier call has made it.
#[tokio::test(start_paused = true)]
async fn what_was_prepared_is_released_in_the_call_that_sees_its_predecessor_come_back() {
    let engine = engine(replacement(), &[("new", denied()), ("old", Fate::Takes(Duration::from_secs(30)))]);
    assert_eq!(fails(&engine).await, ["reserve", "admit", "remove", "new", "old"]);
    *engine.cloud().written.lock() = vec!["reserve"];
    assert_eq!(fails(&engine).await, ["admit"], "it goes on");
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(fails(&engine).await, ["release"]);
}

/// The rule that still has the address is gone soon.
#[tokio::test(start_paused = true)]
async fn what_was_prepared_stays_while_its_predecessor_is_being_deleted() {
    let mut engine = engine(replacement(), &[("remove", Fate::Takes(Duration::from_secs(60)))]);
    assert_eq!(fails(&engine).await, ["reserve", "admit", "remove"]);
    // Another change of the Service, whose reservation is there already.
    engine.cloud.steps.remove(0);
    engine.cloud.fates.insert("admit", denied());
    engine.cloud.written.lock().clear();
    assert_eq!(fails(&engine).await, ["admit"]);
}

/// What ends it is in none of its Services.
#[tokio::test]
async fn the_refusal_of_a_shared_object_is_not_remembered() {
    let check = step("check", Items::one(0), Part::new(Kind::Frame)).shared(true);
    let engine = engine(vec![check], &[("check", invalid())]);
    for _ in 0..2 {
        assert_eq!(fails(&engine).await, ["check"]);
    }
}
