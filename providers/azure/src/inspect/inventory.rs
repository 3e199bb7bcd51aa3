//! The objects of load balancers, as all reports see them: what they say about their owner, their state, and what uses
//! them.
//!
//! All Services share the load balancers: what belongs to one is named by its UID, which names neither the Service nor the
//! cluster. The tags of public IP addresses name both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_kit::inspect::{Claim, DESIRED, Explained, LOAD_BALANCER, Object};
use ccm_provider::{Fact, Service};
use serde_json::Value;

use super::explain_service as state;
use crate::annotations::Scheme;
use crate::client::id::same;
use crate::loadbalancer::claim::is_of_some_service;
use crate::loadbalancer::json;
use crate::loadbalancer::machines::Machine;
use crate::loadbalancer::names::{is_of, is_pool_of_all};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Wanted;
use crate::loadbalancer::{Balancers, tags};

pub(super) const PUBLIC_IP: &str = "PublicIPAddress";
pub(super) const POOL: &str = "BackendPool";
pub(super) const SECURITY_GROUP: &str = "SecurityGroup";

/// The position of the only Service in its work.
const PLACE: usize = 0;
/// The part of the UID in names, with the letter before it.
const BASE: usize = 32;

impl Explained for Balancers {
    const NOT_FOUND: &'static str = "check loadBalancerName, loadBalancerResourceGroup and --cluster-name";

    fn elsewhere(_: &Service) -> Vec<Fact> {
        vec![Fact::good(DESIRED, "its class leaves the load balancer to another controller")]
    }

    fn in_words(desired: &Wanted) -> Option<String> {
        let item = desired.items.get(&PLACE)?;
        let settings = item.settings.as_ref()?;
        let rules = settings.rules.iter().map(|rule| format!("{} {}", rule.protocol, rule.frontend_port));
        let rules: Vec<String> = rules.collect();
        let scheme = if item.scheme == Scheme::Internal { "internal" } else { "external" };
        Some(format!("{} on a shared load balancer, {scheme}: {}", item.names.base, rules.join(", ")))
    }

    fn inventory(&self, service: &Service, desired: &Wanted, observed: &Observed) -> Vec<Object> {
        let Some(item) = desired.items.get(&PLACE) else { return Vec::new() };
        let env = self.env();
        let own =
            |object: &Object| object.claim.as_ref().is_some_and(|claim| same(&claim.marks.concat(), &item.names.base));
        let mut objects = Vec::new();
        for balancer in &observed.balancers {
            let state = state::frontends(env, service, item, observed, balancer);
            match parts(&desired.cluster, observed, balancer).into_iter().find(own) {
                Some(found) => objects.push(Object { state, ..found }),
                // It shares the frontend of another one, or has nothing there.
                None => objects.extend((!state.is_empty()).then(|| Object { state, ..Object::default() })),
            }
        }
        if item.settings.is_some() && !objects.iter().any(|object| !object.state.is_empty()) {
            let text = "not made yet: it is added to the load balancer with its rules";
            objects.push(Object::missing(Fact::waiting(format!("frontend {}", item.names.base), text)));
        }
        let ours = addresses(&desired.cluster, observed).into_iter();
        objects.extend(ours.filter(|object| {
            let claim = object.claim.as_ref();
            claim.is_some_and(|claim| claim.marks.iter().any(|of| same(of, &item.key)))
        }));
        objects
            .extend(state::security(env, item, observed).map(|fact| Object { state: vec![fact], ..Object::default() }));
        objects
    }

    fn keep_registered(desired: &mut Wanted, members: &BTreeSet<&str>) {
        for hosts in
            desired.hosts.iter_mut().chain(desired.items.values_mut().filter_map(|item| item.own_hosts.as_mut()))
        {
            hosts.retain(|_, host| {
                let machine = Machine::of(&host.provider_id).map(|machine| machine.id().folded());
                machine.is_some_and(|id| members.contains(&*id))
                    || host.addresses.iter().any(|ip| members.contains(&*ip.to_string()))
            });
        }
    }
}

/// What each Service has on a load balancer: frontends, rules and probes.
pub(super) fn parts(cluster: &str, observed: &Observed, balancer: &Value) -> Vec<Object> {
    let id = json::text(balancer, &["id"]).to_lowercase();
    let lists = ["frontendIPConfigurations", "loadBalancingRules", "probes"];
    let all = lists.into_iter().flat_map(|list| json::items(balancer, list));
    let bases = all.map(json::name).filter(|name| is_of_some_service(name));
    let bases: BTreeSet<String> = bases.filter_map(|name| Some(name.get(..BASE)?.to_lowercase())).collect();
    let members = state::members(observed, balancer, |_| true);
    let object = |base: String| {
        let frontends = json::items(balancer, "frontendIPConfigurations").iter();
        let own = frontends.filter(|frontend| is_of(json::name(frontend), &base));
        let ips = own.filter_map(|frontend| observed.public_ip(json::reference(frontend, "publicIPAddress")));
        let service = ips.flat_map(|ip| tags::services(tags::get(ip, &tags::SERVICE))).next();
        let claim = Claim {
            cluster: cluster.to_owned(),
            service: service.unwrap_or_default(),
            uid: base.get(1..).unwrap_or_default().to_owned(),
            marks: vec![base.clone()],
        };
        Object {
            kind: LOAD_BALANCER,
            id: part_id(&id, &base),
            name: format!("{}: frontends, rules and probes {base}", json::name(balancer)),
            claim: Some(claim),
            members: members.clone(),
            ..Object::default()
        }
    };
    bases.into_iter().map(object).collect()
}

fn part_id(balancer: &str, base: &str) -> String {
    format!("{balancer}/{base}")
}

/// The part of a load balancer to which an object with this name belongs; the object itself if it is of no Service.
fn part_of(balancer: &str, name: &str) -> String {
    let name = name.to_lowercase();
    part_id(balancer, name.get(..BASE).filter(|_| is_of_some_service(&name)).unwrap_or(&name))
}

/// The pools of load balancers that are not those of all nodes, with the rules that refer to them.
pub(super) fn pools(cluster: &str, observed: &Observed) -> Vec<Object> {
    let of = |balancer: &Value| {
        let id = json::text(balancer, &["id"]).to_lowercase();
        let object = |pool: &Value| {
            let (name, own) = (json::name(pool), json::text(pool, &["id"]));
            let rules = ["loadBalancingRules", "outboundRules", "inboundNatRules"].into_iter();
            let rules = rules.flat_map(|list| json::items(balancer, list));
            let rules = rules.filter(|rule| same(json::reference(rule, "backendAddressPool"), own)).map(json::name);
            let claim = Claim { cluster: cluster.to_owned(), marks: vec![name.to_owned()], ..Claim::default() };
            Object {
                kind: POOL,
                id: own.to_lowercase(),
                name: format!("{}: pool {name}", json::name(balancer)),
                claim: Some(claim),
                members: state::members(observed, balancer, |other| other == name),
                users: rules.map(|rule| (part_of(&id, rule), format!("the rule {rule} uses it"))).collect(),
                ..Object::default()
            }
        };
        let pools = json::items(balancer, "backendAddressPools").iter();
        pools.filter(|pool| !is_pool_of_all(cluster, json::name(pool))).map(object).collect::<Vec<_>>()
    };
    observed.balancers.iter().map(Arc::as_ref).flat_map(of).collect()
}

/// The public IP addresses that were made for Services of the cluster.
pub(super) fn addresses(cluster: &str, observed: &Observed) -> Vec<Object> {
    let users = users(observed);
    let object = |ip: &Value| {
        let services = tags::services(tags::get(ip, &tags::SERVICE));
        let is_ours = same(tags::get(ip, &tags::CLUSTER), cluster) && !services.is_empty();
        let id = json::text(ip, &["id"]).to_lowercase();
        let claim = Claim {
            cluster: cluster.to_owned(),
            service: services.first().cloned().unwrap_or_default(),
            uid: String::new(),
            marks: services,
        };
        let mut users = users.get(&id).cloned().unwrap_or_default();
        // That of a load balancer that was not read.
        let other = json::text(ip, &["properties", "ipConfiguration", "id"]).to_lowercase();
        if users.is_empty() && !other.is_empty() {
            users.insert(other.clone(), format!("{other} uses it"));
        }
        let name = json::name(ip).to_owned();
        is_ours.then(|| Object { kind: PUBLIC_IP, id, name, claim: Some(claim), users, ..Object::default() })
    };
    observed.all_public_ips().filter_map(object).collect()
}

/// What uses each public IP address, both by ID in lower case.
fn users(observed: &Observed) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut users = BTreeMap::<String, BTreeMap<String, String>>::new();
    for balancer in &observed.balancers {
        let id = json::text(balancer, &["id"]).to_lowercase();
        for frontend in json::items(balancer, "frontendIPConfigurations") {
            let name = json::name(frontend).to_lowercase();
            let why = format!("the frontend {name} of the load balancer {} uses it", json::name(balancer));
            let ip = json::reference(frontend, "publicIPAddress").to_lowercase();
            users.entry(ip).or_default().insert(part_of(&id, &name), why);
        }
    }
    users
}
