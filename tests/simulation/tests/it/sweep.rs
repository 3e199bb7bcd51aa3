//! Runs with a crash at each write in turn, until a run has no further write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ccm_test_simulation::{Action, CrashPoint, Power, play};
use parking_lot::Mutex;

/// Every kind of change once: nodes and their instances, Services and their hosts, routes.
fn script() -> Vec<(u64, Action)> {
    let name = |text: &str| text.to_owned();
    vec![
        (100, Action::Join(name("a"))),
        (200, Action::Join(name("b"))),
        (300, Action::CreateService(name("svc-one"))),
        (20_000, Action::CreateService(name("svc-two"))),
        (30_000, Action::Join(name("c"))),
        (45_000, Action::ChangePort(name("svc-one"), 81)),
        (50_000, Action::ChangeSize(name("svc-two"), 3)),
        (60_000, Action::Exclude(name("a"), true)),
        (70_000, Action::Exclude(name("a"), false)),
        (80_000, Action::Switch { name: name("b"), power: Power::Off }),
        (100_000, Action::Readdress(name("a"))),
        (140_000, Action::Switch { name: name("b"), power: Power::On }),
        (180_000, Action::Switch { name: name("c"), power: Power::Terminated }),
        (240_000, Action::Join(name("c"))),
        (270_000, Action::ChangeType(name("svc-one"), "ClusterIP")),
        (280_000, Action::ChangeType(name("svc-one"), "LoadBalancer")),
        (290_000, Action::DeleteService(name("svc-two"))),
        (300_000, Action::DeleteNode(name("a"))),
        (310_000, Action::CreateService(name("svc-two"))),
        (320_000, Action::DeleteService(name("svc-one"))),
    ]
}

const LENGTH: Duration = Duration::from_secs(330);

#[test]
fn a_crash_before_or_after_any_write_converges() {
    let only: Option<(u64, bool)> = std::env::var("CCM_SIM_CRASH").ok().map(|text| {
        let (skip, after) = text.split_once(',').expect("<number>,<before or after>");
        (skip.parse().expect("a number"), after == "after")
    });
    let whole = play(&script(), LENGTH, None, String::new()).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(whole.first_writes > 50, "the script makes only {} writes", whole.first_writes);
    let next = AtomicU64::new(0);
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let (skip, after) = (number / 2, number % 2 == 1);
                    if skip >= whole.first_writes {
                        return;
                    }
                    if only.is_some_and(|only| only != (skip, after)) {
                        continue;
                    }
                    let side = if after { "after" } else { "before" };
                    let replay = format!(
                        "CCM_SIM_CRASH={skip},{side} cargo test -p ccm-test-simulation --test it sweep -- --nocapture"
                    );
                    match play(&script(), LENGTH, Some(CrashPoint { target: None, skip, after }), replay) {
                        Ok(summary) => {
                            assert!(summary.lives > whole.lives, "write {skip} {side}: nothing died");
                            if only.is_some() {
                                println!("{}", summary.lines.join("\n"));
                            }
                        }
                        Err(failure) => {
                            failures.lock().push(failure.to_string());
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    println!("{} writes, each with a crash before and after it", whole.first_writes);
    assert!(failures.is_empty(), "{} crashes do not converge:\n{}", failures.len(), failures.join("\n"));
}
