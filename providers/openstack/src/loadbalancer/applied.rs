//! The record on a Service that its balancer matched: a hash of the desired state, and the balancer's update time.
//!
//! Octavia sets `updated_at` of a balancer on each change of it and of its parts. While that time and the desired state
//! are as recorded, the parts need not be read: a restart costs one list, not reads for each Service.

use sha2::{Digest, Sha256};

use super::observed::Observed;
use super::wanted::Item;
use crate::client::octavia::{ACTIVE, LoadBalancer, Version};

/// The end of the record if the balancer was not created for the Service.
const SHARED: &str = "shared";
/// The record of a balancer that was created for the Service and does not match.
const OWN: &str = "own";

/// `<hash>/<time>`, with `/shared` if the balancer was not created for the Service; `None` if the balancer shows no time.
pub(super) fn note(item: &Item, lb: &LoadBalancer, version: Version) -> Option<String> {
    let state = serde_json::to_vec(&(item, version)).ok()?;
    let hash = u64::from_be_bytes(*Sha256::digest(state).first_chunk()?);
    let end = if is_own(item, lb) { String::new() } else { format!("/{SHARED}") };
    (!lb.updated_at.is_empty()).then(|| format!("{hash:016x}/{}{end}", lb.updated_at))
}

/// The record of a balancer that does not match.
pub(super) fn unmatched(item: &Item, lb: &LoadBalancer) -> &'static str {
    if is_own(item, lb) { OWN } else { SHARED }
}

fn is_own(item: &Item, lb: &LoadBalancer) -> bool {
    [&item.name, &item.legacy].contains(&&lb.name)
}

impl Item {
    /// Whether its balancer matched at the time of its record.
    pub(super) fn has_matched(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.contains('/'))
    }

    /// Whether its balancer has not changed since its record.
    pub(super) fn has_matched_at(&self, updated_at: &str) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.split('/').nth(1) == Some(updated_at))
    }

    /// Whether the noted balancer was created for the Service, as far as is known: records of older versions and of the
    /// Go program do not say.
    pub(super) fn noted_own(&self) -> bool {
        let is_shared = self.applied.as_ref().is_some_and(|applied| applied.ends_with(SHARED));
        !is_shared && (self.noted_address.is_some() || self.applied.is_some())
    }
}

/// Whether everything is as recorded, including the floating IP.
pub(super) fn is_as_noted(item: &Item, lb: &LoadBalancer, observed: &Observed) -> bool {
    let Some(settings) = &item.settings else { return false };
    let is_noted = item.annotated.as_deref() == Some(&lb.id)
        && lb.provisioning_status == ACTIVE
        && item.applied.is_some()
        && item.applied == note(item, lb, observed.version);
    let needs_none = settings.is_internal || lb.vip_address.contains(':');
    let has_floating_ip = || observed.floating_ips.iter().any(|ip| ip.port_id.as_ref() == Some(&lb.vip_port_id));
    is_noted && (needs_none || has_floating_ip())
}
