//! Many seeds, on two threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ccm_test_simulation::{Failure, Summary, run};
use parking_lot::Mutex;

type Done = (u64, Result<Summary, Box<Failure>>);

const SEEDS: u64 = 150;
const THREADS: usize = 2;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn no_schedule_breaks_an_invariant() {
    if let Some(seed) = number("CCM_SIM_SEED") {
        return replay(seed);
    }
    check(number("CCM_SIM_FIRST").unwrap_or(1), number("CCM_SIM_SEEDS").unwrap_or(SEEDS));
}

mod long_lane {
    use std::io::Write as _;
    use std::time::SystemTime;

    /// About five minutes on one core.
    const SEEDS: u64 = 3000;

    /// Different seeds each day.
    #[test]
    fn no_schedule_of_the_day_breaks_an_invariant() {
        let day = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
        let first = super::number("CCM_SIM_FIRST").unwrap_or(day * SEEDS);
        // Bypasses the test harness, which shows only the output of failed tests.
        let seeds = format!("\nsimulation: {SEEDS} seeds from CCM_SIM_FIRST={first}\n");
        std::io::stderr().write_all(seeds.as_bytes()).unwrap();
        super::check(first, SEEDS);
    }
}

/// Runs these seeds; panics if one breaks an invariant.
fn check(first: u64, count: u64) {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let done: Mutex<Vec<Done>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= first + count {
                        return;
                    }
                    let mut result = run(seed);
                    if let Ok(summary) = &mut result {
                        summary.lines.clear();
                    }
                    done.lock().push((seed, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(seed, _)| *seed);
    let good: Vec<&Summary> = done.iter().filter_map(|(_, result)| result.as_ref().ok()).collect();
    let sum = |of: fn(&Summary) -> usize| good.iter().map(|summary| of(summary)).sum::<usize>();
    println!(
        "{} of {count} seeds in {:?}: {} processes, {} API writes, {} cloud writes, longest time to settle {:?}",
        good.len(),
        began.elapsed(),
        sum(|summary| summary.lives),
        sum(|summary| summary.api_writes),
        sum(|summary| summary.cloud_writes),
        good.iter().map(|summary| summary.settled).max().unwrap_or_default(),
    );
    let failures: Vec<(u64, &Failure)> =
        done.iter().filter_map(|(seed, result)| Some((*seed, &**result.as_ref().err()?))).collect();
    if let Some((_, first)) = failures.first() {
        println!("{first}");
        for (seed, failure) in &failures {
            println!("seed {seed}: {}", failure.violation);
        }
        panic!("{} seeds broke an invariant", failures.len());
    }
}

/// Runs one seed, and prints its trace.
fn replay(seed: u64) {
    match run(seed) {
        Ok(summary) => println!("{}\nseed {seed} is good", summary.lines.join("\n")),
        Err(failure) => {
            println!("{}", failure.lines.join("\n"));
            panic!("{failure}");
        }
    }
}
