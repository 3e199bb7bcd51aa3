//! The public IP addresses of a Service: which it uses, and which it gives up. Pure.

use std::sync::Arc;

use ccm_provider::ProviderError;
use serde_json::Value;

use super::super::claim;
use super::super::json::{self, same};
use super::super::names::Family;
use super::super::tags;
use super::super::wanted::{Given, Item, PublicIp, Settings, refused};
use super::address::{AddressChange, AddressEdit, EditKind, label_of, label_problem};
use super::service::KEPT_FRONTEND;
use super::{Planner, SOON};
use crate::annotations::{self as keys, Scheme};
use crate::client::id::ArmId;

impl Planner<'_> {
    /// The public IP addresses of an external Service.
    pub(super) fn public_ips(&self, item: &Item, settings: &Settings) -> Result<Vec<(Family, ArmId)>, ProviderError> {
        if item.scheme == Scheme::Internal {
            return Ok(Vec::new());
        }
        let group = &item.public_ip_group;
        if let Some(error) = self.observed.unread_public_ips(group) {
            return Err(match same(group, &self.env.group) {
                true => error.clone(),
                false => error.clone().wrap(format!("{} {group:?}", keys::LB_GROUP.row.key)),
            });
        }
        let mut ips = Vec::new();
        for family in &item.families {
            let id = self.public_ip(item, &settings.public_ip, *family)?;
            let present = self.index.ip(id.as_str());
            if let Some(ip) = present.filter(|ip| claim::family_of(ip) != *family) {
                let key = if *family == Family::V6 { keys::PIP_NAME_IPV6.row.key } else { keys::PIP_NAME.row.key };
                return Err(refused(format!(
                    "the public IP address {} is an {} one, and the Service needs one of {}; make it, and name it in {key}",
                    id.name(),
                    claim::family_of(ip).as_str(),
                    family.as_str()
                )));
            }
            if let Some(giver) = self.gives_label(item, settings, &id) {
                return Err(self.waiting(giver));
            }
            if let Some(label) = &settings.public_ip.dns_label
                && let Some(problem) = label_problem(present.unwrap_or(&Value::Null), &item.key, label)
            {
                return Err(refused(format!("{} {label:?}: {problem}", keys::DNS_LABEL.row.key)));
            }
            ips.push((*family, id));
        }
        Ok(ips)
    }

    pub(super) fn is_users(&self, ip: &Value) -> bool {
        tags::get(ip, &tags::SERVICE).is_empty() && tags::get(ip, &tags::CLUSTER).is_empty()
    }

    pub(super) fn public_ip(&self, item: &Item, settings: &PublicIp, family: Family) -> Result<ArmId, ProviderError> {
        let group = &item.public_ip_group;
        let present = self.observed.public_ips_of(group);
        let id_of = |ip: &Value| self.env.public_ip_id(group, json::name(ip));
        if let Some(Given { key, text: name }) = item.public_ips.get(&family) {
            let missing = || {
                refused(format!(
                    "{key} {name:?}: no public IP address of that name exists in the resource group {group}; create it"
                ))
            };
            return json::named(present, name).map(id_of).ok_or_else(missing);
        }
        let prefix = settings.prefixes.get(&family);
        if let (None, Some(address)) = (prefix, item.addresses.get(&family)) {
            let found =
                present.iter().map(Arc::as_ref).find(|ip| claim::is_ip(json::property(ip, "ipAddress"), address));
            let missing = || {
                let key = if family == Family::V6 { keys::LB_IPV6.row.key } else { keys::LB_IPV4.row.key };
                refused(format!(
                    "{key} or spec.loadBalancerIP {address:?}: no public IP address of the resource group {group} has it; write one that \
                     is there, or name its group in {}",
                    keys::LB_GROUP.row.key
                ))
            };
            return found.map(id_of).ok_or_else(missing);
        }
        let name = item.names.public_ip(&self.wanted.cluster, prefix.map(|given| &*given.text), family);
        Ok(self.env.public_ip_id(group, &name))
    }

    pub(super) fn use_addresses(&mut self, place: usize, item: &Item, settings: &Settings, ips: &[(Family, ArmId)]) {
        for (family, id) in ips {
            let present = self.index.ip(id.as_str());
            let is_users = present.is_some_and(|ip| self.is_users(ip));
            // One whose tag names no Service is users', as for the Go program.
            let binds = present.is_none_or(|ip| !tags::services(tags::get(ip, &tags::SERVICE)).is_empty());
            let mut settings = settings.public_ip.clone();
            if self.has_label_elsewhere(item, &settings, ips, *family) {
                settings.dns_label = None;
                let text = "the DNS label follows when the former address of the Service has given it up";
                self.without.entry(place).or_insert_with(|| ProviderError::in_progress(text, SOON));
            }
            let kind = EditKind::Use { settings, is_users, binds };
            self.add_address_edit(id, AddressEdit { place, key: item.key.clone(), family: *family, kind });
        }
    }

    /// Whether an address that a Service gives up in this plan has its DNS label. Azure has no label twice in a region.
    fn has_label_elsewhere(&self, item: &Item, settings: &PublicIp, ips: &[(Family, ArmId)], family: Family) -> bool {
        let Some(label) = settings.dns_label.as_deref().filter(|label| !label.is_empty()) else { return false };
        let former =
            self.own_addresses(item).into_iter().filter(|(id, of)| *of == family && ips.iter().all(|(_, ip)| ip != id));
        let mut former = former.filter_map(|(id, _)| self.index.ip(id.as_str()));
        former.any(|ip| same(label_of(ip), label))
    }

    /// Gives up the addresses that a Service has and does not want any more.
    pub(super) fn release_addresses(&mut self, place: usize, item: &Item, wanted: &[(Family, ArmId)]) {
        let is_wanted = |id: &ArmId| wanted.iter().any(|(_, wanted)| wanted == id);
        for (id, family) in self.own_addresses(item).into_iter().filter(|(id, _)| !is_wanted(id)) {
            let stays = self.is_attached_elsewhere(&id);
            if let Some(frontend) = self.former_frontend(item, &id).filter(|_| stays) {
                let text = format!(
                    "the public IP address {} stays, because the frontend {frontend} of a former Service of this name has it: \
                     `ccm orphans` lists what that has left",
                    id.name()
                );
                self.findings.push(item.finding(KEPT_FRONTEND, text));
                continue;
            }
            let kind = EditKind::Release { stays };
            self.add_address_edit(&id, AddressEdit { place, key: item.key.clone(), family, kind });
        }
    }

    /// The frontend with an address that only this Service is bound to, if it is of none that exists: of one with the name of
    /// this one. Without the tag, nothing would show whose address it is.
    fn former_frontend(&self, item: &Item, id: &ArmId) -> Option<&str> {
        let bound = tags::services(tags::get(self.index.ip(id.as_str())?, &tags::SERVICE));
        let frontends = self.bodies().flat_map(|body| json::items(body, "frontendIPConfigurations"));
        let mut with_it =
            frontends.filter(|it| same(json::reference(it, "publicIPAddress"), id.as_str())).map(json::name);
        let is_former = |name: &&str| !item.names.own(name) && !self.is_of_a_live_service(name);
        with_it.find(is_former).filter(|_| bound.len() == 1)
    }

    fn own_addresses(&self, item: &Item) -> Vec<(ArmId, Family)> {
        let all = self.index.tagged(&item.key).iter();
        let own = all.filter(|ip| claim::is_own(&self.wanted.cluster, item, ip));
        own.filter_map(|ip| Some((ArmId::parse(json::text(ip, &["id"])).ok()?, claim::family_of(ip)))).collect()
    }

    /// Whether an address stays on a frontend after this plan, or on something that is not a managed load balancer.
    fn is_attached_elsewhere(&self, id: &ArmId) -> bool {
        let Some(ip) = self.index.ip(id.as_str()) else { return false };
        let used_by = json::reference(ip, "ipConfiguration");
        if used_by.is_empty() {
            return false;
        }
        let frontends = self.bodies().flat_map(|body| json::items(body, "frontendIPConfigurations"));
        let mut stays = frontends.filter(|frontend| same(json::reference(frontend, "publicIPAddress"), id.as_str()));
        let of = ArmId::parse(used_by).ok();
        let balancer = of.as_ref().and_then(|of| of.named("loadBalancers"));
        let is_managed = balancer.is_some_and(|name| self.env.manages(&self.wanted.cluster, name));
        stays.next().is_some() || !is_managed
    }

    pub(super) fn new_address_change(&self, id: &ArmId) -> AddressChange {
        AddressChange {
            id: id.clone(),
            cluster: self.wanted.cluster.clone(),
            zones: self.observed.zones.clone(),
            before: self.index.ip(id.as_str()).cloned().unwrap_or(Value::Null),
            edits: Vec::new(),
            replaced_by: None,
        }
    }
}
