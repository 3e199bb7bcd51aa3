//! Reads of settings, for which the nodes do not wait.

use std::pin::pin;
use std::time::Duration;

use ccm_kit::Interrupted;
use futures::future::{Either, select};
use tokio::time::timeout;

use super::interrupted;
use crate::client::Answer;
use crate::client::operation::Service;

/// For so long after the other reads, those of settings are waited for.
const LATE: Duration = Duration::from_secs(5);

/// The answers of reads, and of reads of settings, which may be late.
pub(in crate::loadbalancer) async fn with_settings<A, S>(
    needed: impl Future<Output = A>,
    settings: impl Future<Output = S>,
    late: impl FnOnce() -> S,
) -> (A, S) {
    let (needed, settings) = (pin!(needed), pin!(settings));
    match select(needed, settings).await {
        Either::Left((needed, settings)) => (needed, timeout(LATE, settings).await.unwrap_or_else(|_| late())),
        Either::Right((settings, needed)) => (needed.await, settings),
    }
}

/// The answer of a read that is late. It may be between two attempts, which the client makes after a pause.
pub(in crate::loadbalancer) fn late<T>(service: Service, read: &'static str) -> Answer<T> {
    let mut error = interrupted(service, read, Interrupted::Late(LATE));
    error.message.push_str("; AWS is silent, or asks for fewer calls");
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn settings_are_waited_for_a_little_longer_than_the_others() {
        let start = Instant::now();
        let needed = || sleep(Duration::from_secs(7));
        assert_eq!(with_settings(needed(), ready(1), || 0).await.1, 1);
        assert_eq!(with_settings(needed(), sleep(Duration::from_secs(11)).map(|()| 1), || 0).await.1, 1);
        assert_eq!(start.elapsed(), Duration::from_secs(18));
        assert_eq!(with_settings(needed(), pending(), || 0).await.1, 0);
        assert_eq!(start.elapsed(), Duration::from_secs(30));
    }
}
