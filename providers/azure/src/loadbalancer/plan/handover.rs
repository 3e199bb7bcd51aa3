//! What one Service gives up and another one of the same pass takes: addresses, ports and DNS labels. Pure.
//!
//! Who takes waits until the other one is planned, and Azure has an address or a label free in the next call only. Of
//! Services that wait for each other, one gives up what it has first.

use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;

use super::super::balancer::{self, Edit};
use super::super::claim;
use super::super::env::balancer_name;
use super::super::json::{self, same};
use super::super::members::scheme_of;
use super::super::names::Family;
use super::super::tags;
use super::super::wanted::{Item, PublicIp, Settings};
use super::address::{AddressEdit, EditKind, label_of};
use super::{Planner, SOON};
use crate::annotations::Scheme;
use crate::client::id::ArmId;

impl<'a> Planner<'a> {
    /// Plans a Service that is ensured.
    pub(super) fn attempt(&mut self, place: usize) {
        let Some((item, settings)) = self.whole(place) else { return };
        self.failed.remove(&place);
        self.waits.remove(&place);
        let mut refusal = self.observed.refused.get(&item.key);
        if self.observed.kept.contains_key(&item.key) {
            self.without.extend(refusal.take().map(|refusal| (place, refusal.clone())));
        }
        let result = match refusal {
            Some(refusal) => {
                // A failed write may have left what it could not make.
                if item.published.is_empty() {
                    self.leave(place, item, None);
                }
                Err(refusal.clone())
            }
            None => self.ensure(place, item, settings).map_err(|error| self.or_wait(place, item, settings, error)),
        };
        if let Err(error) = result {
            self.failed.insert(place, error);
        }
    }

    /// Plans those that have waited for others, which are planned now.
    pub(super) fn hand_over(&mut self) {
        loop {
            let due = self.waits.iter().find(|(_, giver)| self.is_decided(**giver)).map(|(place, _)| *place);
            match (due, self.first_of_cycle()) {
                (Some(place), _) => self.attempt(place),
                (None, Some(first)) => self.give_up(first),
                (None, None) => return,
            }
        }
    }

    fn whole(&self, place: usize) -> Option<(&'a Item, &'a Settings)> {
        let wanted = self.wanted;
        let item = wanted.items.get(&place).filter(|item| item.is_whole())?;
        Some((item, item.settings.as_ref()?))
    }

    /// The error of a Service, or the wait for another one that gives up what this one asks for.
    fn or_wait(&mut self, place: usize, item: &Item, settings: &Settings, error: ProviderError) -> ProviderError {
        let giver = self.giver(item, settings).filter(|_| error.class() != ErrorClass::Conflict);
        let Some(giver) = giver else { return error };
        if !self.is_decided(giver) {
            self.waits.insert(place, giver);
        }
        self.waiting(giver)
    }

    pub(super) fn waiting(&self, giver: usize) -> ProviderError {
        let key = self.wanted.items.get(&giver).map(|item| &*item.key).unwrap_or_default();
        ProviderError::in_progress(format!("the Service {key} gives up first what this one asks for"), SOON)
    }

    fn has_failed(&self, place: usize) -> bool {
        self.failed.get(&place).is_some_and(|error| !error.is_in_progress())
            || self.wanted.items.get(&place).is_some_and(|item| self.observed.refused.contains_key(&item.key))
    }

    /// Whether nothing more is planned that a Service gives up.
    fn is_decided(&self, place: usize) -> bool {
        self.reached.contains_key(&place) || self.gave.contains(&place) || self.has_failed(place)
    }

    /// A Service that waits for others which wait for it.
    fn first_of_cycle(&self) -> Option<usize> {
        let next = |place: &usize| self.waits.get(place).copied();
        let returns = |start: &&usize| {
            std::iter::successors(next(start), next).take(self.waits.len()).any(|place| place == **start)
        };
        self.waits.keys().find(returns).copied()
    }

    /// The Service that is still to be planned, and that gives up what another one asks for.
    fn giver(&self, item: &Item, settings: &Settings) -> Option<usize> {
        let ip_of = |family: &Family| Some((*family, self.wanted_ip(item, settings, *family).ok()?));
        let ips: Vec<(Family, Option<ArmId>)> = item.families.iter().map(ip_of).collect::<Option<_>>()?;
        let ids = || ips.iter().filter_map(|(_, ip)| ip.as_ref());
        let requested: Vec<&str> = ids().map(ArmId::as_str).collect();
        let name = balancer_name(&self.target(item, &requested).ok()?, item.scheme);
        let mut of_labels = ids().filter_map(|id| self.gives_label(item, settings, id));
        of_labels.next().or_else(|| {
            let of_family = |(family, ip): &(Family, Option<ArmId>)| match self.present_frontend(
                &name,
                item,
                settings,
                *family,
                ip.as_ref(),
            ) {
                Some(frontend) => self
                    .gives_frontend(item, &name, frontend)
                    .or_else(|| self.gives_port(item, settings, *family, &name, frontend)),
                None => self.stops_sharing(item, *family, &name),
            };
            ips.iter().find_map(of_family)
        })
    }

    /// The owner of a frontend with the address that another Service asks for, if it gives that up. Who shares it already
    /// does not wait.
    pub(super) fn gives_frontend(&self, item: &Item, balancer: &str, frontend: &Value) -> Option<usize> {
        let id = self.frontend_id(balancer, frontend);
        let shares = claim::served(item, self.body(balancer)).iter().any(|served| same(served, id.as_str()));
        if shares || item.names.own(json::name(frontend)) {
            return None;
        }
        let (place, owner, settings) = self.undecided(json::name(frontend))?;
        (!self.stays_on(owner, settings, balancer, frontend)).then_some(place)
    }

    /// Azure counts an address as that of the former frontend also in the write that takes it from there: one that asks for
    /// it gets it in the next call.
    pub(super) fn check_given_up(
        &self,
        item: &Item,
        family: Family,
        public_ip: Option<&ArmId>,
    ) -> Result<(), ProviderError> {
        let ip = item.addresses.get(&family).filter(|_| item.scheme == Scheme::Internal);
        let has_it = |frontend: &&Value| {
            let id = json::reference(frontend, "publicIPAddress");
            let private = json::property(frontend, "privateIPAddress");
            let has_it =
                public_ip.is_some_and(|ip| same(ip.as_str(), id)) || ip.is_some_and(|ip| claim::is_ip(ip, private));
            has_it && !item.names.own(json::name(frontend))
        };
        let mut now = self.bodies().flat_map(|body| json::items(body, "frontendIPConfigurations"));
        match self.observed.frontends().find(has_it).filter(|_| !now.any(|frontend| has_it(&frontend))) {
            None => Ok(()),
            Some(former) => {
                let text = format!("the address is taken when the frontend {} has given it up", json::name(former));
                Err(ProviderError::in_progress(text, SOON))
            }
        }
    }

    /// The owner of the first rule that is in the way of a wanted one, if all that is in the way goes.
    fn gives_port(
        &self,
        item: &Item,
        settings: &Settings,
        family: Family,
        balancer: &str,
        frontend: &Value,
    ) -> Option<usize> {
        let id = self.frontend_id(balancer, frontend);
        let rules = settings.rules.iter().filter(|rule| rule.family == family);
        let taken = |rule| balancer::taken(self.body(balancer), id.as_str(), &item.names.base, rule);
        let givers = rules.filter_map(taken).map(|(_, other)| self.gives_rule(balancer, other));
        givers.collect::<Option<Vec<usize>>>()?.first().copied()
    }

    /// Who uses the frontend of a Service that is to get another address.
    fn stops_sharing(&self, item: &Item, family: Family, balancer: &str) -> Option<usize> {
        let body = self.body(balancer);
        let own = json::named(json::items(body, "frontendIPConfigurations"), &item.names.frontend(family))?;
        let id = json::text(own, &["id"]);
        let is_of_another = |rule: &&Value| {
            same(json::reference(rule, "frontendIPConfiguration"), id) && !item.names.own(json::name(rule))
        };
        let mut others = json::items(body, "loadBalancingRules").iter().filter(is_of_another);
        others.find_map(|rule| self.gives_rule(balancer, rule))
    }

    fn gives_rule(&self, balancer: &str, rule: &Value) -> Option<usize> {
        let (place, owner, settings) = self.undecided(json::name(rule))?;
        (!self.keeps_rule(owner, settings, balancer, rule)).then_some(place)
    }

    /// The Service with the DNS label that another one asks for, or with another label of the address, if it gives that up.
    pub(super) fn gives_label(&self, item: &Item, settings: &Settings, id: &ArmId) -> Option<usize> {
        let label = settings.public_ip.dns_label.as_deref().filter(|label| !label.is_empty())?;
        let is_in_the_way = |ip: &&Value| same(json::text(ip, &["id"]), id.as_str()) || same(label_of(ip), label);
        self.observed.all_public_ips().filter(is_in_the_way).find_map(|ip| {
            let owner = tags::get(ip, &tags::DNS_SERVICE);
            let is_owner = |it: &Item| it.key != item.key && same(&it.key, owner);
            let (place, _) = self.wanted.items.iter().find(|(_, it)| is_owner(it))?;
            let (owner, settings) = self.whole(*place).filter(|_| !self.has_failed(*place))?;
            (!self.keeps_label(owner, settings, ip)).then_some(*place)
        })
    }

    /// The Service of an object by its name, if it is still to be planned.
    fn undecided(&self, name: &str) -> Option<(usize, &'a Item, &'a Settings)> {
        let (place, _) = self.wanted.items.iter().find(|(_, item)| item.names.own(name))?;
        let (item, settings) = self.whole(*place).filter(|_| !self.is_decided(*place))?;
        Some((*place, item, settings))
    }

    fn wanted_ip(&self, item: &Item, settings: &Settings, family: Family) -> Result<Option<ArmId>, ProviderError> {
        match item.scheme {
            Scheme::External => self.public_ip(item, &settings.public_ip, family).map(Some),
            Scheme::Internal => Ok(None),
        }
    }

    /// Whether a frontend has the address that a Service asks for.
    fn stays_on(&self, item: &Item, settings: &Settings, balancer: &str, frontend: &Value) -> bool {
        let is_for = |family: &Family| {
            let Ok(ip) = self.wanted_ip(item, settings, *family) else { return false };
            let is_own = same(json::name(frontend), &item.names.frontend(*family));
            is_own && self.fits(item, settings, *family, ip.as_ref(), frontend)
                || self.is_shared(item, *family, ip.as_ref(), frontend)
        };
        scheme_of(balancer) == item.scheme && item.families.iter().any(is_for)
    }

    fn keeps_rule(&self, item: &Item, settings: &Settings, balancer: &str, rule: &Value) -> bool {
        let id = json::reference(rule, "frontendIPConfiguration");
        let mut frontends = json::items(self.body(balancer), "frontendIPConfigurations").iter();
        let frontend = frontends.find(|frontend| same(json::text(frontend, &["id"]), id));
        settings.rules.iter().any(|wanted| same(&wanted.name, json::name(rule)))
            && frontend.is_some_and(|frontend| self.stays_on(item, settings, balancer, frontend))
    }

    fn keeps_label(&self, item: &Item, settings: &Settings, ip: &Value) -> bool {
        let is_it = |id: ArmId| same(json::text(ip, &["id"]), id.as_str());
        let mut ids = item.families.iter().filter_map(|family| self.wanted_ip(item, settings, *family).ok()?);
        ids.any(is_it) && settings.public_ip.dns_label.as_deref().is_none_or(|label| same(label, label_of(ip)))
    }

    /// A Service gives up what it does not ask for any more, unless none of those that wait for it can take it.
    fn give_up(&mut self, place: usize) {
        let Some((item, settings)) = self.whole(place) else { return };
        let (balancers, addresses, steps) = (self.balancers.clone(), self.addresses.clone(), self.steps.len());
        for (change, _) in balancers.values() {
            self.give_up_on(&change.name, place, item, settings);
        }
        for family in &item.families {
            self.give_up_label(place, item, settings, *family);
        }
        self.gave.insert(place);
        let takers = self.waits.iter().filter(|(_, giver)| **giver == place);
        let takers: Vec<usize> = takers.map(|(taker, _)| *taker).collect();
        takers.iter().for_each(|taker| self.attempt(*taker));
        if takers.iter().all(|taker| self.has_failed(*taker)) {
            (self.balancers, self.addresses) = (balancers, addresses);
            self.steps.truncate(steps);
        }
    }

    fn give_up_on(&mut self, balancer: &str, place: usize, item: &Item, settings: &Settings) {
        let body = self.body(balancer);
        let own = |list: &str| {
            let all = json::items(body, list).iter().filter(|object| item.names.own(json::name(object)));
            all.cloned().collect::<Vec<Value>>()
        };
        let (mut left, mut rules, probes) = (own("frontendIPConfigurations"), own("loadBalancingRules"), own("probes"));
        left.retain(|frontend| !self.stays_on(item, settings, balancer, frontend));
        rules.retain(|rule| self.keeps_rule(item, settings, balancer, rule));
        let (mut drops, _) = self.droppable(balancer, item, &left);
        // A load balancer whose pools users configure keeps its last frontend.
        if self.env.leaves_members(scheme_of(balancer))
            && drops.len() == json::items(body, "frontendIPConfigurations").len()
        {
            drops.clear();
        }
        let edit = Edit::of(place, item, self.observed, body);
        let waits = self.drop_links(place, item, &self.frontends_of(balancer, &drops));
        let pools = edit.own_pools.clone();
        self.add_edit(balancer, Edit { drops, rules, probes, pools, waits, ..edit });
    }

    fn give_up_label(&mut self, place: usize, item: &Item, settings: &Settings, family: Family) {
        let Ok(Some(id)) = self.wanted_ip(item, settings, family) else { return };
        let is_own = |ip: &&Value| same(tags::get(ip, &tags::DNS_SERVICE), &item.key);
        let ip = self.index.ip(id.as_str()).filter(is_own);
        if ip.is_none_or(|ip| self.keeps_label(item, settings, ip)) {
            return;
        }
        let settings = PublicIp { dns_label: Some(String::new()), ..settings.public_ip.clone() };
        let kind = EditKind::Use { settings, is_users: false, binds: false };
        self.add_address_edit(&id, AddressEdit { place, key: item.key.clone(), family, kind });
    }
}
