//! Addresses whose IP tags change: Azure sets these on new addresses only. Pure.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{ErrorClass, ProviderError, Risk, Verb};

use super::super::claim;
use super::super::json::{self, same};
use super::super::names::Family;
use super::super::observed::Kept;
use super::super::tags;
use super::super::wanted::{Item, refused};
use super::address::{AddressChange, AddressEdit, EditKind};
use super::step::Write;
use super::{ADDRESSES, Planner, summary};
use crate::annotations as keys;
use crate::client::id::ArmId;

/// The reason of the event about IP tags that cannot be removed.
const MORE: &str = "LoadBalancerConfiguration";

impl Planner<'_> {
    /// Gives up the addresses of a Service that lack IP tags. The new ones have the same names, so they
    /// are made when the former are gone: the error lets the engine observe and plan again in the same call.
    pub(super) fn replace_addresses(
        &mut self,
        place: usize,
        item: &Item,
        addresses: &[(Family, ArmId)],
    ) -> Result<(), ProviderError> {
        let Some(wanted) = item.fixed_ip_tags(self.env) else { return Ok(()) };
        if self.observed.kept.get(&item.key) == Some(&Kept::Addresses) {
            return Ok(());
        }
        let own = |id: &ArmId| self.index.ip(id.as_str()).filter(|ip| !self.is_users(ip));
        let lacks = |(_, id): &(Family, ArmId)| own(id).is_some_and(|ip| item.wants_other_ip_tags(self.env, ip));
        let (former, kept): (Vec<_>, Vec<_>) = addresses.iter().cloned().partition(lacks);
        let key = keys::PIP_IP_TAGS.row.key;
        let more = kept.iter().filter(|(_, id)| own(id).is_some_and(|ip| tags::differ_of_ip(ip, wanted)));
        let more = more.map(|(_, id)| {
            let name = id.name();
            item.finding(
                MORE,
                format!("{key}: the public IP address {name} has more IP tags, which stay as long as it does"),
            )
        });
        self.findings.extend(more.collect::<Vec<_>>());
        for (_, id) in &former {
            if let Some(why) = self.needed(item, id) {
                let name = id.name();
                return Err(refused(format!(
                    "{key}: the public IP address {name} has other IP tags, and is not replaced because {why}; end that, or \
                     write the IP tags that the address has"
                )));
            }
        }
        let Some((_, first)) = former.first() else { return Ok(()) };
        self.check_lost_links(item, None, &[])?;
        self.leave(place, item, None);
        self.release_addresses(place, item, &kept);
        for (family, id) in &former {
            self.try_first(place, item, *family, id);
        }
        let text = format!("{key}: the public IP address {} has other IP tags and is replaced", first.name());
        Err(ProviderError::new(ErrorClass::Conflict, text))
    }

    /// Before an address is off its frontend, it is written as it is: without the right to write it, nothing would replace it.
    fn try_first(&mut self, place: usize, item: &Item, family: Family, id: &ArmId) {
        let replaced_by = Some(item.fingerprint);
        if let Some(release) = self.addresses.get_mut(id) {
            release.replaced_by = replaced_by;
        }
        let edits = vec![AddressEdit { place, key: item.key.clone(), family, kind: EditKind::Rewrite }];
        let change = AddressChange { replaced_by, edits, ..self.new_address_change(id) };
        let text = "it is written as it is, to find out whether one with other IP tags may follow";
        let summary = summary(Verb::Update, "PublicIPAddress", id, text, Risk::None);
        self.push(Write::Address(change), summary, [place].into(), Part::new(Kind::Frame), ADDRESSES);
        let edits = self.balancers.values_mut().flat_map(|(change, _)| &mut change.edits);
        edits.filter(|edit| edit.place == place).for_each(|edit| edit.needs.push(id.clone()));
    }

    /// Why an address is not to be deleted for new IP tags.
    fn needed(&self, item: &Item, id: &ArmId) -> Option<String> {
        let ip = self.index.ip(id.as_str())?;
        let services = tags::services(tags::get(ip, &tags::SERVICE));
        if let Some(other) = services.iter().find(|service| !same(service, &item.key)) {
            return Some(format!("the Service {other} uses it"));
        }
        if !claim::is_own(&self.wanted.cluster, item, ip) {
            return Some("its tags do not name the Service".to_owned());
        }
        if claim::requests(item, ip) {
            return Some("the Service requests it by address or name".to_owned());
        }
        if self.env.leaves_members(item.scheme) {
            return Some("preConfiguredBackendPoolLoadBalancerTypes keeps its frontend".to_owned());
        }
        let used_by = json::reference(ip, "ipConfiguration");
        for body in self.bodies() {
            let frontends = json::items(body, "frontendIPConfigurations").iter();
            let with_it =
                |frontend: &&serde_json::Value| same(json::reference(frontend, "publicIPAddress"), id.as_str());
            for frontend in frontends.filter(with_it) {
                let used = claim::other_use(body, json::text(frontend, &["id"]), &item.names.base);
                if let Some(used) = used {
                    return Some(format!("{used} uses it"));
                }
                if !item.names.own(json::name(frontend)) {
                    return Some(format!("the frontend {} has it", json::name(frontend)));
                }
            }
        }
        let of = ArmId::parse(used_by).ok();
        let balancer = of.as_ref().and_then(|of| of.named("loadBalancers"));
        let is_managed = balancer.is_some_and(|name| self.env.manages(&self.wanted.cluster, name));
        (!used_by.is_empty() && !is_managed).then(|| format!("{used_by} has it"))
    }
}
