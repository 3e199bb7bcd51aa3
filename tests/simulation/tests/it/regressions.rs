//! Reproducible runs, and a script of a former bug.

use std::time::Duration;

use ccm_test_simulation::{Action, play, run};

#[test]
fn a_run_repeats_itself() {
    for seed in [3, 110, 201] {
        let [first, second] = [run(seed), run(seed)].map(|result| result.unwrap_or_else(|failure| panic!("{failure}")));
        let differ = first.lines.iter().zip(&second.lines).find(|(one, other)| one != other);
        assert_eq!((differ, first.digest), (None, second.digest), "seed {seed}");
    }
}

#[test]
fn a_node_that_changes_while_the_finalizer_is_written_reaches_the_balancer() {
    let script = [
        (0, Action::FailLookups(20_500)),
        (100, Action::Join("a".into())),
        (200, Action::Join("b".into())),
        (300, Action::Join("c".into())),
        (20_000, Action::SlowPatch("services", 25_000)),
        (20_010, Action::CreateService("svc".into())),
    ];
    let replay = "cargo test -p ccm-test-simulation --test it regressions".to_owned();
    if let Err(failure) = play(&script, Duration::from_secs(60), None, replay) {
        panic!("{failure}");
    }
}
