//! The calls that remain, as answers say: `x-ms-ratelimit-remaining-*`.
//!
//! Near the end of a budget, calls wait for its refill: other programs with the identity share it, and a throttled call
//! holds back all others for longer.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How the headers begin; those of Resource Manager end with `subscription-reads`, `subscription-global-writes`, ….
const PREFIX: &str = "x-ms-ratelimit-remaining-";
/// The refills of Resource Manager, in calls per second, by the end of its headers.
const REFILLS: [(&str, f64); 3] = [("reads", 25.0), ("writes", 10.0), ("deletes", 10.0)];
/// The header of resource providers, once or for each budget: `Microsoft.Compute/HighCostGet3Min;107,…`.
const OF_PROVIDERS: &str = "x-ms-ratelimit-remaining-resource";
/// The ends of those of their budgets that refill. Others count work or the calls for one object, and 0 is usual:
/// `Microsoft.Compute/VmssQueuedVMOperations;0`.
const REFILLED: [&str; 3] = ["3Min", "5Min", "30Min"];
/// The slowest of their refills that was seen: 140 calls in three minutes.
const REFILL: f64 = 140.0 / 180.0;
/// The calls that are left to others.
const RESERVE: f64 = 10.0;
/// The longest wait of a call.
const LONGEST: Duration = Duration::from_secs(5);

/// The remaining calls by subscription and kind of call.
#[derive(Debug, Default)]
pub(super) struct Remaining(Mutex<BTreeMap<(String, &'static str), Left>>);

#[derive(Debug, Clone, Copy)]
struct Left {
    calls: f64,
    per_second: f64,
    at: Instant,
}

impl Remaining {
    /// Remembers what an answer to a call of this kind says, and returns it by budget.
    pub(super) fn note(&self, subscription: &str, kind: &'static str, headers: &HeaderMap) -> Vec<(String, f64)> {
        let of_arm = headers.iter().filter_map(|(name, value)| {
            let budget = name.as_str().strip_prefix(PREFIX)?;
            let (_, per_second) = REFILLS.iter().find(|(end, _)| budget.ends_with(end))?;
            Some((budget.to_owned(), value.to_str().ok()?.trim().parse::<f64>().ok()?, Some(*per_second)))
        });
        let texts = headers.get_all(OF_PROVIDERS).iter().filter_map(|value| value.to_str().ok());
        let of_providers = texts.flat_map(|text| text.split(',')).filter_map(|part| {
            let (budget, calls) = part.rsplit_once(';')?;
            let is_refilled = REFILLED.iter().any(|end| budget.trim().ends_with(end));
            Some((budget.trim().to_owned(), calls.trim().parse::<f64>().ok()?, is_refilled.then_some(REFILL)))
        });
        let all: Vec<(String, f64, Option<f64>)> = of_arm.chain(of_providers).collect();
        let at = Instant::now();
        let refilled =
            all.iter().filter_map(|(_, calls, refill)| Some(Left { calls: *calls, per_second: (*refill)?, at }));
        if let Some(left) = refilled.min_by(|one, other| one.calls.total_cmp(&other.calls)) {
            self.0.lock().insert((subscription.to_ascii_lowercase(), kind), left);
        }
        all.into_iter().map(|(budget, calls, _)| (budget, calls)).collect()
    }

    /// The wait before the next call of this kind.
    pub(super) fn wait(&self, subscription: &str, kind: &'static str) -> Duration {
        let known = self.0.lock().get(&(subscription.to_ascii_lowercase(), kind)).copied();
        let missing =
            known.map_or(0.0, |left| RESERVE - left.calls - left.at.elapsed().as_secs_f64() * left.per_second);
        match known.filter(|_| missing > 0.0) {
            Some(left) => Duration::from_secs_f64(missing / left.per_second).min(LONGEST),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const READS: &str = "x-ms-ratelimit-remaining-subscription-reads";
    const WRITES: &str = "x-ms-ratelimit-remaining-subscription-writes";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_the_refill_near_the_end_of_a_budget() {
        let remaining = Remaining::default();
        let answer = headers(&[(WRITES, "5")]);
        assert_eq!(remaining.note("S", "writes", &answer), [("subscription-writes".to_owned(), 5.0)]);
        assert_eq!(remaining.wait("s", "writes"), Duration::from_millis(500));
        assert_eq!(remaining.wait("s", "reads") + remaining.wait("t", "writes"), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(remaining.wait("s", "writes"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tightest_budget_of_a_call_counts_and_a_wait_has_a_limit() {
        let remaining = Remaining::default();
        let of_compute = "Microsoft.Compute/HighCostGet3Min;0,Microsoft.Compute/HighCostGet30Min;534";
        let answer = headers(&[(READS, "11999"), (OF_PROVIDERS, of_compute)]);
        let noted = remaining.note("s", "lists", &answer);
        assert_eq!(noted.len(), 3);
        assert_eq!(noted[1], ("Microsoft.Compute/HighCostGet3Min".to_owned(), 0.0));
        assert_eq!(remaining.wait("s", "lists"), LONGEST);
        assert!(remaining.note("s", "other", &headers(&[(READS, "x")])).is_empty(), "no number");
    }

    #[tokio::test(start_paused = true)]
    async fn each_header_of_a_resource_provider_counts_and_what_does_not_refill_delays_nothing() {
        let remaining = Remaining::default();
        // As Azure answers the write of a scale set and that of an instance.
        let of_set = "Microsoft.Compute/CreateVMScaleSet3Min;55,Microsoft.Compute/CreateVMScaleSet30Min;273,\
                      Microsoft.Compute/VmssQueuedVMOperations;0";
        let of_instance = "Microsoft.Compute/VMScaleSetActions3Min;238,Microsoft.Compute/VMScaleSetActions30Min;1190,\
                           Microsoft.Compute/VMScaleSetBatchedVMRequests5Min;1191,\
                           Microsoft.Compute/VmssQueuedVMOperations;0";
        for of_compute in [of_set, of_instance] {
            let noted = remaining.note("s", "writes", &headers(&[(WRITES, "1186"), (OF_PROVIDERS, of_compute)]));
            assert_eq!(noted.last(), Some(&("Microsoft.Compute/VmssQueuedVMOperations".to_owned(), 0.0)));
            assert_eq!(remaining.wait("s", "writes"), Duration::ZERO, "{of_compute}");
        }
        let [minutes, batches] =
            ["Microsoft.Compute/DeleteVMScaleSet3Min;107", "Microsoft.Compute/VMScaleSetBatchedVMRequests5Min;3"];
        remaining.note("s", "writes", &headers(&[(OF_PROVIDERS, minutes), (OF_PROVIDERS, batches)]));
        assert_eq!(remaining.wait("s", "writes"), LONGEST);
    }
}
