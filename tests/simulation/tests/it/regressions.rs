//! Seeds that found something. Each is run again by its name; what a seed stands for may change with the simulation.

use std::time::Duration;

use ccm_test_simulation::{Action, play, run};

fn check(seeds: &[u64]) {
    for seed in seeds {
        if let Err(failure) = run(*seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_run_repeats_itself() {
    // One with two processes, one large, one with a stalled watch.
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

#[test]
fn nodes_that_return_while_the_cloud_is_asked_about_them_stay_behind_the_balancer() {
    check(&[247]);
}

#[test]
fn a_host_that_the_cloud_does_not_show_yet_stays_behind_the_balancer() {
    check(&[114]);
}

#[test]
fn a_restart_with_no_node_but_foreign_ones_keeps_the_hosts() {
    check(&[43, 145, 279]);
}

#[test]
fn a_node_that_went_while_the_cloud_was_asked_about_it_is_left_alone() {
    check(&[529]);
}
