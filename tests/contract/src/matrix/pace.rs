//! The time of a case: it passes quickly while no request is pending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::MatrixCloud;
use crate::{TestCluster, bed};

const FIRST: Duration = Duration::from_millis(5);
/// Short enough to hit no deadline before the delay that a caller waits for, nor that of a request which a busy machine has
/// not delivered yet.
const LONGEST: Duration = Duration::from_secs(1);
/// Maximum time of a case on the machine's clock.
const LIMIT: Duration = Duration::from_secs(600);

/// Advances all clocks until [`LIMIT`] on the machine's clock: with growing steps, as long as no call arrives.
pub(super) async fn run(cloud: Arc<dyn MatrixCloud>, cluster: Arc<TestCluster>) {
    let began = Instant::now();
    let harness = cloud.harness();
    let (mut step, mut known) = (FIRST, 0);
    while began.elapsed() < LIMIT {
        harness.settle().await;
        let calls = cloud.mark();
        step = if calls == known { (step * 2).min(LONGEST) } else { FIRST };
        known = calls;
        leap(&*cloud, &cluster, step);
        tokio::task::yield_now().await;
    }
}

/// Advances all clocks at once.
pub(super) fn leap(cloud: &dyn MatrixCloud, cluster: &TestCluster, time: Duration) {
    cluster.advance(time);
    cloud.step(time);
    bed::skip(time);
}
