//! The reads about addresses that new forwarding rules get: their reservations, the subnetworks, and who has them.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;
use futures::future::try_join_all;

use super::super::env::Env;
use super::super::observed::Observed;
use super::super::plan;
use super::super::wanted::{Item, Wanted};
use super::{Reads, Unread, few_at_once};
use crate::annotations::Scheme;
use crate::client::balancing::{Address, ForwardingRule};
use crate::client::filter::Filter;
use crate::client::operation::{ADDRESS_LIST, FORWARDING_RULE_GET};
use crate::client::resource::{Collection, ResourceId, last_part, same_url};
use crate::client::{ApiError, is_forbidden};

impl Reads {
    /// The reservations of the addresses that new rules get.
    pub(super) async fn read_reserved(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        let looked_for: BTreeSet<String> =
            wanted.items.values().flat_map(|item| plan::addresses_to_look_for(env, observed, item)).collect();
        let found = looked_for.into_iter().map(async |ip| (self.reserved(env, &ip).await, ip));
        let unread = Unread::default();
        for (address, ip) in few_at_once(found.collect()).await {
            match address {
                Ok(address) => observed.reserved.extend(address.map(|address| (ip, address))),
                Err(error) => unread.add(Collection::Addresses, &ip, error.into()),
            }
        }
        self.read_sharers(env, &unread, observed).await;
        unread.into(observed);
    }

    /// The forwarding rules that have one of these addresses: others may have it, too, if they differ.
    async fn read_sharers(&self, env: &Env, unread: &Unread, observed: &mut Observed) {
        let region = env.region();
        let users = observed.reserved.iter().flat_map(|(ip, address)| address.users.iter().map(move |user| (ip, user)));
        let read = users.filter_map(|(ip, user)| {
            let id = ResourceId::parse(user)?;
            let is_ours = !env.links.is_shared_vpc() || id.project.as_ref().is_none_or(|it| *it == env.links.project);
            let is_rule = id.collection == Collection::ForwardingRules.as_str() && id.scope == region;
            (is_rule && is_ours).then_some((ip, user, id.name))
        });
        let read = read.map(async |(ip, user, name)| {
            let rule = match observed.rules.get(&name) {
                Some(rule) => Ok(Some(rule.clone())),
                None => self.client.get::<ForwardingRule>(FORWARDING_RULE_GET, &region, &name).await,
            };
            (ip, user, rule)
        });
        let mut sharers = BTreeMap::new();
        for (ip, user, rule) in few_at_once(read.collect()).await {
            match rule {
                Ok(rule) => sharers.extend(rule.map(|rule| (user.clone(), rule))),
                Err(error) if is_forbidden(&error) => {}
                Err(error) => unread.add(Collection::Addresses, ip, error.into()),
            }
        }
        observed.sharers = sharers;
    }

    /// The ranges of the subnetworks, and the instances that have an address that a Service asks for: its reservation would
    /// promote it. If that is not known, the cloud refuses the address, once everything else is made.
    pub(super) async fn read_ranges(&self, env: &Env, wanted: &Wanted, observed: &mut Observed) {
        let asks = |item: &Item| {
            let looked_for = plan::address_to_look_for(env, observed, item).filter(|_| item.scheme == Scheme::Internal);
            let rule = observed.rule(&item.names);
            let is_new = |ip: &String| rule.is_none_or(|rule| rule.ip_address != *ip);
            let ip = looked_for.filter(|ip| is_new(ip) && !observed.reserved.contains_key(ip))?;
            Some((ip, rule.is_some()))
        };
        let asked: BTreeMap<String, bool> = wanted.items.values().filter_map(asks).collect();
        if asked.is_empty() {
            return;
        }
        match self.client.subnetworks(&env.region, last_part(&env.network)).await {
            Ok(all) => observed.ranges.extend(all.into_iter().map(|one| (one.self_link, one.ip_cidr_range))),
            Err(error) => tracing::debug!(%error, "the ranges of the subnetworks are not known"),
        }
        // Nothing is reserved for the first rule of a Service.
        let to_reserve: BTreeSet<String> =
            asked.into_iter().filter(|(_, has_rule)| *has_rule).map(|(ip, _)| ip).collect();
        match self.instances_with(env, &to_reserve).await {
            Ok(all) => observed.in_use = all,
            Err(error) => tracing::debug!(%error, "the addresses of the instances are not known"),
        }
    }

    /// The instances of the network that have one of these addresses, by address.
    async fn instances_with(
        &self,
        env: &Env,
        asked: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, ProviderError> {
        let mut found = BTreeMap::new();
        if asked.is_empty() {
            return Ok(found);
        }
        let zones = self.facts.zones().await?;
        for instance in
            try_join_all(zones.iter().map(|zone| self.client.instances(zone, ""))).await?.into_iter().flatten()
        {
            for nic in instance.network_interfaces {
                if asked.contains(&nic.network_ip) && same_url(&nic.network, &env.network) {
                    found.insert(nic.network_ip, instance.name.clone());
                }
            }
        }
        Ok(found)
    }

    /// The reservation of an address in the region.
    async fn reserved(&self, env: &Env, ip: &str) -> Result<Option<Address>, ApiError> {
        let list: Vec<Address> = self.client.list(ADDRESS_LIST, &env.region(), &Filter::is("address", ip)).await?;
        Ok(list.into_iter().find(|address| address.address == ip))
    }
}
