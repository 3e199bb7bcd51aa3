//! What keeps a load balancer from being written or deleted: objects in the state Failed are written once more as they
//! are, and models of scale sets that still name it are written without it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::env::{Env, PoolKind};
use super::json::{self, same};
use super::members::{ModelChange, Pools, has_addresses, instance_again, pools_of_model, scheme_of};
use super::names::without_internal;
use crate::client::id::ArmId;
use crate::client::operation::{
    LB_GET, NIC, NIC_GET, NIC_PUT, PUBLIC_IP, PUBLIC_IP_GET, PUBLIC_IP_PUT, VMSS, VMSS_GET, VMSS_PUT, VMSS_VM,
    VMSS_VM_GET, VMSS_VM_PUT,
};
use crate::client::{Client, Write};

/// One that fails again after its repair is left alone for this time.
const AGAIN: Duration = Duration::from_secs(3600);
/// The same after a repair that has failed: the first time, and at most.
const FAILED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));
const LIMIT: Duration = Duration::from_secs(60);
const REFUSAL: &str = "Cannot proceed with operation because resource ";

/// The repairs of this process.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// By object: when the next one may begin, and the pause after the last one if that has failed.
    next: Mutex<BTreeMap<ArmId, (Instant, Duration)>>,
    /// The models of scale sets are written one after the other. Sets and load balancers whose pools the model no longer names
    /// since it was written for another load balancer.
    detached: tokio::sync::Mutex<BTreeSet<(ArmId, ArmId)>>,
}

/// The object that an error names as not provisioned.
pub(super) fn neighbor(message: &str) -> Option<ArmId> {
    let (_, rest) = message.split_once(REFUSAL)?;
    let id = ArmId::parse(rest.split_whitespace().next()?).ok()?;
    // Interfaces are named by one of their configurations, and those of instances are part of these.
    let mut around = std::iter::successors(id.parent(), ArmId::parent);
    Some(around.find(|it| it.is(NIC.kind) || it.is(VMSS_VM.kind)).unwrap_or(id))
}

/// Whether an error of a write of an instance or interface says that the machine goes: it leaves its pools by itself.
pub(super) fn is_going(id: &ArmId, message: &str) -> bool {
    let says = ["is marked for deletion", "is not an active Virtual Machine Scale Set VM instanceId"];
    (id.is(NIC.kind) || id.is(VMSS_VM.kind)) && says.iter().any(|text| message.contains(text))
}

/// The scale set that an error names as the user of a load balancer.
pub(super) fn user(message: &str) -> Option<ArmId> {
    let (_, rest) = message.split_once("in use by virtual machine scale set ")?;
    let id = ArmId::parse(rest.split_whitespace().next()?.trim_end_matches('.')).ok()?;
    id.is(VMSS.kind).then_some(id)
}

impl Repairs {
    /// Whether the repair of an object may begin.
    fn begins(&self, id: &ArmId) -> bool {
        let (mut next, now) = (self.next.lock(), Instant::now());
        next.retain(|_, (at, _)| at.elapsed() < AGAIN);
        let (at, pause) = next.get(id).copied().unwrap_or((now, Duration::ZERO));
        if at <= now {
            next.insert(id.clone(), (now + LIMIT, pause));
        }
        at <= now
    }

    fn ended(&self, id: &ArmId, has_failed: bool) {
        let mut next = self.next.lock();
        let (at, pause) = next.entry(id.clone()).or_insert((Instant::now(), Duration::ZERO));
        *pause = if has_failed { (*pause * 2).clamp(FAILED.0, FAILED.1) } else { Duration::ZERO };
        *at = Instant::now() + if has_failed { *pause } else { AGAIN };
    }

    /// Writes the model of a scale set without the pools of a load balancer, if it names any; whether that succeeded, also as
    /// part of the write for another one. Pools of the same names go too that have addresses in other managed load balancers:
    /// Azure refuses to write a model that names some.
    pub(super) async fn detach(&self, client: &Client, env: &Env, set: &ArmId, balancer: &ArmId) -> bool {
        let mut detached = self.detached.lock().await;
        if detached.remove(&(set.clone(), balancer.clone())) {
            return true;
        }
        let Some(before) = client.get(VMSS_GET, set).await.ok().flatten() else { return false };
        let mut remove: BTreeSet<ArmId> =
            pools_of_model(&before).filter(|pool| pool.parent().as_ref() == Some(balancer)).collect();
        for pool in pools_of_model(&before) {
            let is_like = remove.iter().any(|gone| same(gone.name(), pool.name()));
            if is_like && migrated(client, env, balancer, &pool).await {
                remove.insert(pool);
            }
        }
        let others = remove.iter().filter_map(ArmId::parent).filter(|other| other != balancer);
        let others: Vec<_> = others.map(|other| (set.clone(), other)).collect();
        let pools = Pools { remove, ..Pools::default() };
        let change = ModelChange { id: set.clone(), before, pools, zone: None };
        let Some(body) = change.body() else { return false };
        tracing::info!(%set, %balancer, "the model of a scale set names a load balancer that is deleted: it is written without it");
        let written = client.finish(&Write::put(VMSS_PUT, set.clone(), body), LIMIT).await;
        if let Err(error) = written {
            tracing::warn!(%set, %error, "the model still names the load balancer");
            return false;
        }
        detached.extend(others);
        true
    }

    /// Writes an object again if it has failed; whether that succeeded.
    pub(super) async fn repair(&self, client: &Client, id: &ArmId) -> bool {
        let (get, put) = match () {
            () if id.is(NIC.kind) => (NIC_GET, NIC_PUT),
            () if id.is(PUBLIC_IP.kind) => (PUBLIC_IP_GET, PUBLIC_IP_PUT),
            () if id.is(VMSS_VM.kind) => (VMSS_VM_GET, VMSS_VM_PUT),
            () => return false,
        };
        let object = client.get(get, id).await.ok().flatten();
        let Some(object) = object.filter(|it| same(json::property(it, "provisioningState"), "Failed")) else {
            return false;
        };
        if !self.begins(id) {
            return false;
        }
        tracing::warn!(%id, "an object in the state Failed keeps the load balancer from being written: it is written again");
        let body = if id.is(VMSS_VM.kind) { instance_again(&object) } else { object };
        let written = client.finish(&Write::put(put, id.clone(), body), LIMIT).await;
        self.ended(id, written.is_err());
        written.inspect_err(|error| tracing::warn!(%id, %error, "it is not repaired")).is_ok()
    }
}

/// Whether a pool is one of addresses of a managed load balancer whose members this program changes.
async fn migrated(client: &Client, env: &Env, balancer: &ArmId, pool: &ArmId) -> bool {
    let Some(other) = pool.parent().filter(|other| {
        env.pools == PoolKind::Addresses
            && other != balancer
            && other.group().eq_ignore_ascii_case(balancer.group())
            && env.manages(without_internal(balancer.name()).0, other.name())
            && !env.leaves_members(scheme_of(other.name()))
    }) else {
        return false;
    };
    let Some(other) = client.get(LB_GET, &other).await.ok().flatten() else { return false };
    json::named(json::items(&other, "backendAddressPools"), pool.name()).is_some_and(has_addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_repair_that_has_failed_is_tried_again_soon_and_one_that_has_not_in_an_hour() {
        let (repairs, id) = (Repairs::default(), ArmId::new("s", "g", NIC.kind, "n"));
        let is_due_after = async |seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            let is_early = repairs.begins(&id);
            tokio::time::advance(Duration::from_millis(2)).await;
            !is_early && repairs.begins(&id)
        };
        assert!(repairs.begins(&id) && !repairs.begins(&id));
        for seconds in [30, 60, 120, 240, 480, 600, 600] {
            repairs.ended(&id, true);
            assert!(is_due_after(seconds).await, "{seconds}");
        }
        for seconds in [3600, 3600] {
            repairs.ended(&id, false);
            assert!(is_due_after(seconds).await, "{seconds}");
        }
        repairs.ended(&id, true);
        assert!(is_due_after(30).await);
    }

    #[test]
    fn the_error_names_the_object() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
        let text = format!("{REFUSAL}{id} used by resource /subscriptions/s is not in Succeeded state.");
        assert_eq!(neighbor(&text).unwrap().as_str(), id);
        assert_eq!(neighbor(&format!("{REFUSAL}{id}/ipConfigurations/c used")).unwrap().as_str(), id);
        let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set";
        let of = format!("{set}/virtualMachines/3/networkInterfaces/n/ipConfigurations/c");
        let instance = neighbor(&format!("{REFUSAL}{of} used")).unwrap();
        assert_eq!(instance.as_str(), format!("{set}/virtualMachines/3"));
        assert_eq!(neighbor("no"), None);
        let text = format!(
            "Cannot delete load balancer lb since its child resources p are in use by virtual machine scale set {set}."
        );
        assert_eq!(user(&text).unwrap().as_str(), set);
    }
}
