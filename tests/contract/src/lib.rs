//! The contract of providers, as tests that the author of a provider runs.
//!
//! The author writes one [`Harness`], which creates the provider, and inspects and disturbs the (simulated) cloud. The
//! suite is a list of clauses, [`clauses`]; each runs over a clean cloud and is kept, broken, or not applicable. The
//! crate depends only on the provider API, not on a Kubernetes client or a program.
//!
//! ```
//! # mod mine {
//! # pub async fn harness() -> std::sync::Arc<dyn ccm_provider_contract::Harness> { unimplemented!() }
//! # }
//! // In tests/it/main.rs of the provider: one #[test] per clause.
//! ccm_provider_contract::contract!(mine::harness);
//! # fn main() {}
//! ```
//!
//! [`mod@lives`] runs random sequences of changes of Services over the same simulated cloud; in [`crash`] the process
//! dies after each of its writes; [`matrix`] gives every outcome to every operation that the life of a balancer uses.
//!
//! A clause states a property on which the core relies, and why. It has no rules of a particular cloud, so it can't
//! check whether a balancer forwards to the right port: the author's own tests do that.
#![deny(missing_docs)]

mod bed;
mod clauses;
mod cluster;
pub mod controller;
pub mod crash;
pub mod denied;
mod harness;
pub mod lives;
pub mod lookups;
mod macros;
pub mod matrix;
mod report;
mod simulation;
pub mod watch;

pub use clauses::{Clause, clauses};
pub use cluster::TestCluster;
pub use denied::Denied;
pub use harness::{BrokenConfig, Deviation, Harness, Made, Outage, flags};
pub use report::{Outcome, Report, Result};
pub use simulation::Simulation;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{Either, select};

/// The time limit of one clause. No clause waits in real time; a provider that sleeps instead of returning a retry
/// delay exceeds the limit.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Runs one clause over a clean cloud. Needs tokio's current-thread runtime: the clause moves its clock.
pub async fn check<F: Future<Output = Arc<dyn Harness>>>(clause: &Clause, make: impl Fn() -> F) -> Outcome {
    let harness = make().await;
    let deviation = harness.deviations().iter().find(|deviation| deviation.clause == clause.name);
    let run = AssertUnwindSafe((clause.check)(Arc::clone(&harness))).catch_unwind();
    let outcome = match limited(run, &harness).await {
        Some(Ok(Ok(()))) => Outcome::Kept,
        Some(Ok(Err(outcome))) => outcome,
        Some(Err(panic)) => Outcome::Broken(format!("the provider panicked: {}", panic_text(&*panic))),
        None => Outcome::Broken(format!("no end within {} s", LIMIT.as_secs())),
    };
    match (outcome, deviation) {
        (Outcome::Broken(how), Some(deviation)) => Outcome::Deviates { how, why: deviation.why },
        (Outcome::Kept, Some(_)) => Outcome::Broken("kept after all: take it out of `deviations`".into()),
        (outcome, _) => outcome,
    }
}

/// `None` after [`LIMIT`] on the machine's clock. Tokio's clock is moved by the clause, and runs [`Harness::haste`]
/// times as fast.
async fn limited<F: Future>(run: F, harness: &Arc<dyn Harness>) -> Option<F::Output> {
    const TICK: Duration = Duration::from_millis(5);
    let (began, haste, harness) = (Instant::now(), harness.haste(), Arc::clone(harness));
    // A task of its own, so that its ticks do not poll the clause.
    let mut time = tokio::spawn(async move {
        while began.elapsed() < LIMIT {
            tokio::time::sleep(TICK).await;
            if haste > 1 {
                harness.settle().await;
                bed::skip(TICK * (haste - 1));
            }
        }
    });
    let end = match select(pin!(run), &mut time).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    };
    time.abort();
    end
}

/// Runs all clauses.
pub async fn run<F: Future<Output = Arc<dyn Harness>>>(make: impl Fn() -> F) -> Report {
    let mut report = Report::default();
    for clause in clauses() {
        report.results.push((clause, check(clause, &make).await));
    }
    report
}

/// A broken clause, printed as text.
#[doc(hidden)]
pub struct Broken(String);

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// For [`contract!`]: runs the clause of this name in its own runtime.
#[doc(hidden)]
pub fn check_by_name<F: Future<Output = Arc<dyn Harness>>>(
    name: &str,
    make: impl Fn() -> F,
) -> std::result::Result<(), Broken> {
    let clause = clauses().iter().find(|clause| clause.name == name);
    let clause = clause.ok_or_else(|| Broken(format!("no clause {name}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Broken(format!("no runtime: {error}")))?;
    let outcome = runtime.block_on(check(clause, make));
    runtime.shutdown_background();
    match outcome {
        Outcome::Kept => Ok(()),
        Outcome::Broken(how) => Err(Broken(format!("{name}: {how}\n\nThe clause: {}", clause.text))),
        other => {
            println!("{name}: {other}");
            Ok(())
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
