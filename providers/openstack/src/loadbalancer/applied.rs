//! The record on a Service that its balancer matched: a hash of the desired state, and the balancer's update time.
//!
//! Octavia sets `updated_at` of a balancer on each change of it and of its parts. While that time and the desired state
//! are as recorded, the parts need not be read: a restart costs one list, not reads for each Service.

use sha2::{Digest, Sha256};

use super::desired::Item;
use super::observed::Observed;
use crate::client::octavia::{ACTIVE, LoadBalancer, Version};

/// `<hash>/<time>`; `None` if the balancer shows no time.
pub(super) fn note(item: &Item, lb: &LoadBalancer, version: Version) -> Option<String> {
    let state = serde_json::to_vec(&(item, version)).ok()?;
    let hash = u64::from_be_bytes(*Sha256::digest(state).first_chunk()?);
    (!lb.updated_at.is_empty()).then(|| format!("{hash:016x}/{}", lb.updated_at))
}

/// Whether everything is as recorded, including the floating IP.
pub(super) fn is_as_noted(item: &Item, lb: &LoadBalancer, observed: &Observed) -> bool {
    let Some(settings) = &item.settings else { return false };
    let is_noted = item.annotated.as_deref() == Some(&lb.id)
        && lb.provisioning_status == ACTIVE
        && item.applied.is_some()
        && item.applied == note(item, lb, observed.version);
    let needs_floating_ip = !settings.is_internal && !lb.vip_address.contains(':');
    let has_floating_ip = observed.floating_ips.iter().any(|ip| ip.port_id.as_ref() == Some(&lb.vip_port_id));
    is_noted && (needs_floating_ip == has_floating_ip || lb.vip_address.contains(':'))
}
