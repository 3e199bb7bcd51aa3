//! Token buckets in front of the services.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A token bucket: the calls that it limits, and its refill rate. It uses the virtual clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketSpec {
    /// The service name as in the ledger; `None`: every service.
    #[serde(default)]
    pub service: Option<String>,
    /// The action names, a trailing `*` matches any suffix; empty: every action.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Only writes (true) or only reads (false).
    #[serde(default)]
    pub mutating: Option<bool>,
    /// The size of the bucket.
    pub burst: f64,
    /// Tokens per second.
    pub rate: f64,
}

#[derive(Debug, Clone)]
struct Bucket {
    spec: BucketSpec,
    tokens: f64,
    at: Option<Timestamp>,
}

/// All buckets of a cloud.
#[derive(Debug, Clone, Default)]
pub struct Throttle(Vec<Bucket>);

impl Throttle {
    /// Creates full buckets.
    pub fn new(specs: &[BucketSpec]) -> Self {
        Throttle(specs.iter().map(|spec| Bucket { spec: spec.clone(), tokens: spec.burst, at: None }).collect())
    }

    /// Takes a token from every bucket that applies to the call; false, without taking any token, if one of them is
    /// empty.
    pub fn admit(&mut self, service: &str, action: &str, mutating: bool, now: Timestamp) -> bool {
        let applies = |bucket: &Bucket| bucket.spec.applies(service, action, mutating);
        for bucket in self.0.iter_mut().filter(|bucket| applies(bucket)) {
            if let Some(at) = bucket.at {
                let seconds = now.duration_since(at).as_secs_f64().max(0.0);
                bucket.tokens = (bucket.tokens + seconds * bucket.spec.rate).min(bucket.spec.burst);
            }
            bucket.at = Some(now);
        }
        if self.0.iter().any(|bucket| applies(bucket) && bucket.tokens < 1.0) {
            return false;
        }
        for bucket in self.0.iter_mut().filter(|bucket| applies(bucket)) {
            bucket.tokens -= 1.0;
        }
        true
    }
}

impl BucketSpec {
    fn applies(&self, service: &str, action: &str, mutating: bool) -> bool {
        self.service.as_deref().is_none_or(|wanted| wanted == service)
            && self.mutating.is_none_or(|wanted| wanted == mutating)
            && (self.actions.is_empty() || self.actions.iter().any(|pattern| matches(pattern, action)))
    }
}

/// Whether a name matches a pattern with an optional trailing `*`.
pub fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_refills_on_the_clock() {
        let spec = BucketSpec {
            service: Some("ec2".to_owned()),
            actions: vec!["Describe*".to_owned()],
            mutating: None,
            burst: 2.0,
            rate: 1.0,
        };
        let mut throttle = Throttle::new(&[spec]);
        let at = |s| Timestamp::from_second(s).unwrap();
        assert!(throttle.admit("ec2", "DescribeVpcs", false, at(0)));
        assert!(throttle.admit("ec2", "DescribeSubnets", false, at(0)));
        assert!(!throttle.admit("ec2", "DescribeSubnets", false, at(0)));
        assert!(throttle.admit("ec2", "CreateTags", true, at(0)), "another family is not held back");
        assert!(throttle.admit("elb", "DescribeLoadBalancers", false, at(0)));
        assert!(throttle.admit("ec2", "DescribeSubnets", false, at(1)));
        assert!(!throttle.admit("ec2", "DescribeSubnets", false, at(1)));
    }
}
