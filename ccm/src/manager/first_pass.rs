//! A dry run: when the controllers have looked at everything once.

use std::time::Duration;

use ccm_runtime::{Gate, Metrics};

/// Between two looks at the queues.
const LOOK: Duration = Duration::from_secs(1);
/// An object gets into its queue a moment after its store has it: so many looks in a row must find nothing to do.
const QUIET: usize = 3;

/// Logs when all objects have been planned once, so that a reader of the log knows that nothing is missing. Objects that
/// failed wait for their next try, and may add to it.
pub(super) async fn report(gate: Gate, metrics: Metrics, synced: impl Future<Output = ()>) {
    synced.await;
    let mut quiet = 0;
    while quiet < QUIET {
        tokio::time::sleep(LOOK).await;
        quiet = if metrics.is_idle() { quiet + 1 } else { 0 };
    }
    let (plans, writes) = gate.withheld();
    let failed =
        metrics.failures().list().iter().filter(|entry| entry.failure.as_ref().is_some_and(|f| !f.settled)).count();
    tracing::info!(
        "--dry-run: the first pass is complete: plans: {plans}, writes withheld: {writes}, objects that could not be planned \
         yet: {failed}; from now on only changes are logged"
    );
}
