//! The models of scale sets that are to be read because of what they may still name.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use ccm_kit::http::Query;
use futures::future::join_all;
use serde_json::Value;

use super::Reads;
use crate::client::id::ArmId;
use crate::client::operation::VMSS_LIST;
use crate::loadbalancer::env::{Env, PoolKind};
use crate::loadbalancer::json;
use crate::loadbalancer::machines::Machine;
use crate::loadbalancer::members::names_pool;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Wanted;

impl Reads {
    /// The model of a scale set is to be read and planned again.
    pub(in crate::loadbalancer) fn model_is_due(&self, set: &ArmId) {
        self.due_models.lock().insert(set.clone());
    }

    /// Looks once for models that name pools of addresses: an earlier process may have ended after the migration. One list
    /// shows those of a resource group.
    pub(super) async fn find_models(&self, env: &Env, wanted: &Wanted, observed: &Observed) {
        let Some(hosts) = wanted.hosts.as_ref().filter(|_| env.pools == PoolKind::Addresses) else { return };
        if self.has_models.load(Ordering::Relaxed) {
            return;
        }
        let sets = hosts.values().filter_map(|host| Machine::of(&host.provider_id)?.set());
        let sets = sets.filter(|_| !observed.balancers.is_empty());
        let groups: BTreeSet<(String, String)> =
            sets.map(|set| (set.subscription().to_lowercase(), set.group().to_lowercase())).collect();
        let lists = groups.iter().map(|(subscription, group)| {
            let is_due = |model: Value| {
                // The instances of others have models of their own.
                let is_uniform = !json::same(json::property(&model, "orchestrationMode"), "Flexible");
                let is_due = is_uniform && names_pool(env, wanted, &observed.balancers, &model);
                is_due.then(|| ArmId::parse(json::text(&model, &["id"])).ok()).flatten()
            };
            self.client.list(VMSS_LIST, subscription, group, Query::default(), is_due)
        });
        let mut is_whole = true;
        for list in join_all(lists).await {
            is_whole &= list.is_ok();
            list.ok().flatten().unwrap_or_default().iter().for_each(|set| self.model_is_due(set));
        }
        // Without nodes nothing was looked at.
        self.has_models.store(is_whole && !groups.is_empty(), Ordering::Relaxed);
    }
}
