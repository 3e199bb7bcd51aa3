//! Private link services in front of frontends. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_kit::balancer::{Items, Kind, Part, Step};
use ccm_provider::{ErrorClass, ProviderError, Risk, Verb};
use serde_json::{Value, json};

use super::super::claim;
use super::super::json::{self, same};
use super::super::members::scheme_of;
use super::super::names;
use super::super::observed::Seen;
use super::super::tags;
use super::super::wanted::links::Link;
use super::super::wanted::{Item, refused};
use super::limits::over;
use super::step::{LinkDeletion, Write};
use super::{Planner, SOON, summary};
use crate::annotations::{PLS_GROUP, PLS_NAME, PLS_SUBNET};
use crate::client::id::ArmId;

const GONE_LINKS: u32 = 5;
/// The private link services of a load balancer.
const MOST_LINKS: usize = 8;
const SUBNETS: u32 = 25;
const LINKS: u32 = 30;
const FRAME: &[Kind] = &[Kind::Claim, Kind::Frame];
const SERVICES: &str = "Microsoft.Network/privateLinkServices";
/// The reason of events about private link services that stay.
const KEPT: &str = "PrivateLinkServiceKept";

impl Planner<'_> {
    /// Plans the private link service of a frontend.
    pub(super) fn link(
        &mut self,
        place: usize,
        item: &Item,
        link: &Link,
        frontend: &ArmId,
    ) -> Result<(), ProviderError> {
        if let Some(error) = self.unread_links(item) {
            return Err(error);
        }
        let present = self.link_of(frontend).cloned();
        // Without the annotation it keeps the name that it has.
        let name = link.name.clone().or_else(|| present.as_ref().map(|it| json::name(it).to_owned()));
        let name = name.unwrap_or_else(|| names::private_link(frontend.name()));
        let id = ArmId::new(&self.env.subscription, &item.link_group, SERVICES, &name);
        if let Some(present) = &present {
            let found = json::name(present);
            match self.link_owner(present) {
                Err(whose) => {
                    return Err(refused(format!(
                        "the private link service {found} of the frontend {whose}; delete it, or use another frontend"
                    )));
                }
                Ok(owner) if !same(owner, &item.key) && link.is_plain => return Ok(()),
                Ok(owner) if !same(owner, &item.key) => {
                    return Err(refused(format!(
                        "the private link service {found} is that of the Service {owner}; remove all azure-pls-* annotations \
                         but azure-pls-create and azure-pls-resource-group"
                    )));
                }
                _ if !same(json::text(present, &["id"]), id.as_str()) => {
                    let (key, value) = match same(found, &name) {
                        true => (PLS_GROUP.row.key, &item.link_group),
                        false => (PLS_NAME.row.key, &name),
                    };
                    return Err(refused(format!(
                        "{key} {value:?}: the private link service {found} cannot be renamed to {name} of the resource group {}; set \
                         azure-pls-create to \"false\" first",
                        item.link_group
                    )));
                }
                _ => {}
            }
        }
        if present.is_none() {
            self.check_name(item, &id)?;
            self.check_links(frontend)?;
        }
        let mut body = present.clone().unwrap_or_else(|| json!({"name": name, "location": self.env.location}));
        self.set_link(&mut body, item, link, &name, frontend);
        let has_failed = present.as_ref().is_some_and(|it| same(json::property(it, "provisioningState"), "Failed"));
        if present.as_ref() == Some(&body) && !has_failed {
            return Ok(());
        }
        self.open_subnet(place, link)?;
        let verb = if present.is_some() { Verb::Update } else { Verb::Create };
        let summary = summary(verb, "PrivateLinkService", &id, "the Service asks for it", Risk::None);
        let step = Step::new(Write::Link { id, body }, summary, Items::one(place), Part::new(Kind::Settings));
        self.steps.push(step.needs(FRAME).stage(LINKS));
        Ok(())
    }

    /// Whether a private link service of this name, of another frontend or of none, is the Service's or does not exist.
    fn check_name(&self, item: &Item, id: &ArmId) -> Result<(), ProviderError> {
        let name = id.name();
        let is_going = |step: &Step<Write>| matches!(&step.write, Write::DeleteLink(deletion) if deletion.id == *id);
        if self.steps.iter().any(is_going) {
            let text = format!("the private link service {name} of another frontend is deleted first");
            return Err(ProviderError::in_progress(text, SOON));
        }
        let mut planned = self.steps.iter().filter_map(|step| match &step.write {
            Write::Link { id: other, body } if other == id => Some(body),
            _ => None,
        });
        let mut links = self.observed.links.values().filter_map(Seen::present).flatten();
        let seen = || links.find(|link| same(json::text(link, &["id"]), id.as_str()));
        let fix = format!("write another name in {}", PLS_NAME.row.key);
        match planned.next().or_else(seen).map(|link| self.link_owner(link)) {
            Some(Err(whose)) => Err(refused(format!("the private link service {name} {whose}; {fix}"))),
            Some(Ok(owner)) if !same(owner, &item.key) => {
                Err(refused(format!("the private link service {name} is that of the Service {owner}; {fix}")))
            }
            _ => Ok(()),
        }
    }

    /// The Service of this cluster that a private link service is made for, or whose it is.
    fn link_owner<'v>(&self, link: &'v Value) -> Result<&'v str, String> {
        let cluster = json::text(link, &["tags", tags::CLUSTER[0]]).trim();
        match json::text(link, &["tags", tags::OWNER]) {
            "" => Err("is not made here".to_owned()),
            owner if same(cluster, &self.wanted.cluster) => Ok(owner),
            owner => Err(format!("is that of the Service {owner} of the cluster {cluster:?}")),
        }
    }

    /// Whether the load balancer of a frontend has a place for another private link service.
    fn check_links(&self, frontend: &ArmId) -> Result<(), ProviderError> {
        let Some(balancer) = frontend.parent() else { return Ok(()) };
        let is_on = |link: &Value| {
            let mut frontends = json::items(link, "loadBalancerFrontendIpConfigurations").iter();
            frontends.any(|it| {
                ArmId::parse(json::text(it, &["id"])).ok().and_then(|id| id.parent()).as_ref() == Some(&balancer)
            })
        };
        let new = |step: &&Step<Write>| {
            step.summary.verb == Verb::Create && matches!(&step.write, Write::Link { body, .. } if is_on(body))
        };
        let present =
            self.observed.links.values().filter_map(Seen::present).flatten().filter(|link| is_on(link)).count();
        let all = present + self.steps.iter().filter(new).count() + 1;
        let fix = "share a frontend, or use several load balancers";
        over(balancer.name(), "private link services", all, MOST_LINKS, fix)
    }

    fn set_link(&self, body: &mut Value, item: &Item, link: &Link, name: &str, frontend: &ArmId) {
        let lists = json!({"properties": {
            "loadBalancerFrontendIpConfigurations": [{"id": frontend.as_str()}],
            "fqdns": link.fqdns,
            "enableProxyProtocol": link.has_proxy,
            "visibility": {"subscriptions": link.visibility},
            "autoApproval": {"subscriptions": link.approval},
        }});
        if let Some(zone) = self.env.edge_zone() {
            json::overlay(body, &json!({"extendedLocation": zone}));
        }
        set_missing(body, &lists);
        if !self.has_addresses(body, link) {
            let addresses = self.addresses_of(link, name);
            json::object_mut(body, "properties").insert("ipConfigurations".to_owned(), addresses);
        }
        let own = [(tags::CLUSTER[0], &self.wanted.cluster), (tags::OWNER, &item.key)];
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.clone()));
        let wanted = tags::with(self.env.tags.clone(), own.collect());
        tags::set(body, &wanted, &self.env.system_tags);
    }

    fn addresses_of(&self, link: &Link, name: &str) -> Value {
        let subnet = self.env.subnet_id(&link.subnet);
        let statics = link.addresses.iter().map(|ip| (format!("static-{ip}"), Some(ip.to_string())));
        let dynamics = (0..link.count - link.addresses.len()).map(|number| (format!("dynamic-{number}"), None));
        let one = |(place, (end, ip)): (usize, (String, Option<String>))| {
            let mut properties = json!({
                "subnet": {"id": subnet.as_str()}, "primary": place == 0, "privateIPAddressVersion": "IPv4",
                "privateIPAllocationMethod": if ip.is_some() { "Static" } else { "Dynamic" },
            });
            if let (Some(ip), Some(fields)) = (ip, properties.as_object_mut()) {
                fields.insert("privateIPAddress".to_owned(), json!(ip));
            }
            json!({"name": names::private_link_ip(&link.subnet, name, &end), "properties": properties})
        };
        statics.chain(dynamics).enumerate().map(one).collect()
    }

    /// Whether the addresses are the wanted ones: subnet, number, static ones, and the primary one.
    fn has_addresses(&self, body: &Value, link: &Link) -> bool {
        let present = json::items(body, "ipConfigurations");
        let subnet = self.env.subnet_id(&link.subnet);
        let is_static = |it: &&Value| same(json::property(it, "privateIPAllocationMethod"), "Static");
        let statics: BTreeSet<&str> =
            present.iter().filter(is_static).map(|it| json::property(it, "privateIPAddress")).collect();
        let wanted: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
        let primary = present.iter().find(|it| json::at(it, &["properties", "primary"]) == &json!(true));
        let is_primary =
            wanted.first().is_none_or(|ip| primary.is_some_and(|it| json::property(it, "privateIPAddress") == ip));
        present.len() == link.count
            && present.iter().all(|it| same(json::reference(it, "subnet"), subnet.as_str()))
            && statics == wanted.iter().map(String::as_str).collect()
            && is_primary
    }

    /// Private link services need a subnet without a policy for them.
    fn open_subnet(&mut self, place: usize, link: &Link) -> Result<(), ProviderError> {
        let id = self.env.subnet_id(&link.subnet);
        let Some(subnet) = self.observed.subnet(&link.subnet)? else {
            return Err(refused(format!(
                "the subnet {:?} of the private link service does not exist; create it, or correct {}",
                link.subnet, PLS_SUBNET.row.key
            )));
        };
        if same(json::property(subnet, "privateLinkServiceNetworkPolicies"), "Disabled") {
            return Ok(());
        }
        let is_it = |step: &&mut Step<Write>| matches!(&step.write, Write::Subnet { id: other, .. } if *other == id);
        if let Some(Items::Some(places)) = self.steps.iter_mut().find(is_it).map(|step| &mut step.items) {
            places.insert(place);
            return Ok(());
        }
        let mut body = subnet.clone();
        json::overlay(&mut body, &json!({"properties": {"privateLinkServiceNetworkPolicies": "Disabled"}}));
        let summary = summary(Verb::Update, "Subnet", &id, "a private link service needs it", Risk::None);
        let step = Step::new(Write::Subnet { id, body }, summary, Items::one(place), Part::new(Kind::Settings));
        self.steps.push(step.needs(FRAME).stage(SUBNETS));
        Ok(())
    }

    /// The private link service of a frontend.
    fn link_of(&self, frontend: &ArmId) -> Option<&Value> {
        let links = self.observed.links.values().filter_map(Seen::present).flatten();
        let is_of = |link: &&Value| {
            let mut frontends = json::items(link, "loadBalancerFrontendIpConfigurations").iter();
            frontends.any(|it| same(json::text(it, &["id"]), frontend.as_str()))
        };
        links.into_iter().find(is_of)
    }

    /// Why private link services of a Service may exist that were not read.
    fn unread_links(&self, item: &Item) -> Option<ProviderError> {
        self.unread_links_of(&item.link_group).or_else(|| self.unread_links_of(&self.env.link_group))
    }

    fn unread_links_of(&self, group: &str) -> Option<ProviderError> {
        let Some(Seen::Unread(error)) = self.observed.links.get(&group.to_lowercase()) else { return None };
        Some(error.clone().wrap(match same(group, &self.env.link_group) {
            true => "the private link services".to_owned(),
            false => format!("{} {group:?}", PLS_GROUP.row.key),
        }))
    }

    /// Whether a Service may give up frontends: with those of another load balancer than this one, and these of it, go their
    /// private link services. Where it may not list them, it has made none.
    pub(super) fn check_lost_links(
        &self,
        item: &Item,
        stays: Option<&str>,
        drops: &[String],
    ) -> Result<(), ProviderError> {
        let is_denied = |error: &ProviderError| matches!(error.class(), ErrorClass::Denied { .. });
        let usual = self.unread_links_of(&self.env.link_group);
        let usual = usual.filter(|error| item.may_have_link || !is_denied(error));
        let Some(error) = usual.or_else(|| self.unread_links(item).filter(|error| !is_denied(error))) else {
            return Ok(());
        };
        let may_lose = |balancer: &Arc<Value>| {
            let name = json::name(balancer);
            let there = Item { scheme: scheme_of(name), ..item.clone() };
            let is_dropped = |it: &&Value| drops.iter().any(|name| same(name, json::name(it)));
            let lost: Vec<&Value> = match stays.is_some_and(|stays| same(stays, name)) {
                true => json::items(balancer, "frontendIPConfigurations").iter().filter(is_dropped).collect(),
                false => self.left(&there, balancer),
            };
            lost.iter().any(|frontend| item.may_have_link || claim::may_have_link(balancer, frontend))
        };
        if self.observed.balancers.iter().any(may_lose) { Err(error) } else { Ok(()) }
    }

    /// Deletes the private link service that a Service does not ask for any more, unless somebody is connected to it.
    pub(super) fn drop_unused_link(&mut self, place: usize, item: &Item, frontend: ArmId) {
        if let Some(error) = self.unread_links(item) {
            self.without.insert(place, error);
            return;
        }
        let link =
            self.link_of(&frontend).filter(|link| self.link_owner(link).is_ok_and(|owner| same(owner, &item.key)));
        let endpoint = |connection: &Value| {
            let id = ArmId::parse(json::reference(connection, "privateEndpoint"));
            id.map_or_else(|_| json::name(connection).to_owned(), |id| id.name().to_owned())
        };
        let connections = link.map(|link| json::items(link, "privateEndpointConnections")).unwrap_or_default();
        let endpoints: Vec<String> = connections.iter().map(endpoint).collect();
        if endpoints.is_empty() {
            self.drop_links(place, item, &[frontend]);
            return;
        }
        let name = link.map(json::name).unwrap_or_default();
        let text = format!(
            "the private link service {name} is not deleted, because private endpoints are connected to it: {}; delete them, or \
             set azure-pls-create to \"true\" again",
            endpoints.join(", ")
        );
        self.findings.push(item.finding(KEPT, text));
    }

    /// Deletes the private link services of frontends that go, or that the Service does not want any more. The IDs of those
    /// that the load balancer must wait for.
    pub(super) fn drop_links(&mut self, place: usize, item: &Item, frontends: &[ArmId]) -> Vec<ArmId> {
        let of = |frontend: &ArmId| self.link_of(frontend).filter(|link| self.goes_with(item, link)).cloned();
        let links: Vec<Value> = frontends.iter().filter_map(of).collect();
        let mut gone = Vec::new();
        for link in links {
            let Ok(id) = ArmId::parse(json::text(&link, &["id"])) else { continue };
            let connections = json::items(&link, "privateEndpointConnections").iter();
            let connections = connections.filter_map(|it| ArmId::parse(json::text(it, &["id"])).ok()).collect();
            let text = "the Service no longer asks for it";
            let summary = summary(Verb::Delete, "PrivateLinkService", &id, text, Risk::Disruptive);
            let write = Write::DeleteLink(LinkDeletion { id: id.clone(), connections });
            let step = Step::new(write, summary, Items::one(place), Part::new(Kind::Frame));
            self.steps.push(step.needs(&[]).stage(GONE_LINKS));
            gone.push(id);
        }
        gone
    }

    /// The name of a private link service that stays when a Service gives up its frontend: one of users, or of another Service.
    pub(super) fn other_link(&self, item: &Item, frontend: &ArmId) -> Option<&str> {
        self.link_of(frontend).filter(|link| !self.goes_with(item, link)).map(json::name)
    }

    /// Why a Service that is deleted cannot give up its frontends.
    pub(super) fn held_by_link(&self, balancer: &str, item: &Item, frontends: &[Value]) -> Option<ProviderError> {
        frontends.iter().map(json::name).filter(|name| item.names.own(name)).find_map(|name| {
            let link = self.other_link(item, &self.env.balancer_id(balancer).child("frontendIPConfigurations", name))?;
            Some(refused(format!(
                "the frontend {name} of the load balancer {balancer} is not deleted, because the private link service {link}, which is \
                 not made for this Service, refers to it; delete that"
            )))
        })
    }

    fn goes_with(&self, item: &Item, link: &Value) -> bool {
        self.link_owner(link).is_ok_and(|owner| same(owner, &item.key) || self.is_left_behind(owner))
    }

    /// Whether a private link service is that of a Service that is gone or going: its frontend had others too.
    fn is_left_behind(&self, owner: &str) -> bool {
        let Some(facts) = &self.observed.cluster else { return false };
        let mut live = facts.services.iter().filter(|service| self.index.is_live(service));
        !live.any(|service| same(&service.key, owner))
    }
}

/// Sets the fields that differ; empty lists and absent ones are equal, and so are lists in another order, and an absent
/// boolean and false.
fn set_missing(body: &mut Value, wanted: &Value) {
    fn is_same(present: &Value, wanted: &Value) -> bool {
        match (present, wanted) {
            (Value::Null, Value::Bool(false)) => true,
            (present, Value::Array(list)) => {
                let mut left: Vec<&Value> = present.as_array().into_iter().flatten().collect();
                let mut is_there = |wanted: &Value| {
                    let place = left.iter().position(|present| is_same(present, wanted));
                    place.map(|place| left.swap_remove(place)).is_some()
                };
                list.iter().all(&mut is_there) && left.is_empty()
            }
            (present, Value::Object(fields)) => fields.iter().all(|(key, wanted)| is_same(&present[key], wanted)),
            (Value::String(present), Value::String(wanted)) => same(present, wanted),
            (present, wanted) => present == wanted,
        }
    }
    for (key, value) in wanted["properties"].as_object().into_iter().flatten() {
        if !is_same(json::at(body, &["properties", key]), value) {
            json::object_mut(body, "properties").insert(key.clone(), value.clone());
        }
    }
}
