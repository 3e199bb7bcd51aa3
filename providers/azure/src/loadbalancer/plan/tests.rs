//! Plans against a model of the cloud: what a plan writes is there at the next look, and a second plan is empty.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ccm_provider::{AddressType, Node, NodeAddress, NodeRef, Service, ServiceWork};
use ipnet::IpNet;
use serde_json::json;

use super::super::balancer;
use super::super::env::PoolKind;
use super::super::observed::{Facts, Seen, ServiceFacts};
use super::super::wanted::wanted;
use super::*;
use crate::annotations::DOMAIN;

mod addresses;
mod destinations;
mod handover;
mod kept;
mod links;
mod local;
mod members;
mod outbound;
mod several;
mod shared;

const CLUSTER: &str = "kubernetes";
const SET: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/set";

/// The cloud and the cluster.
struct World {
    env: Env,
    observed: Observed,
    services: BTreeMap<String, Service>,
    nodes: Vec<NodeRef>,
    /// The nodes with endpoints of Services that have only these.
    endpoints: BTreeMap<String, Vec<String>>,
    /// Counts addresses.
    next: u16,
    /// The writes of the last pass.
    writes: Vec<String>,
}

impl World {
    fn new() -> Self {
        let env = Env {
            subscription: "s".into(),
            location: "westus".into(),
            group: "rg".into(),
            balancer_group: "rg".into(),
            security_group: "nsg".into(),
            security_group_group: "rg".into(),
            network: "net".into(),
            network_group: "rg".into(),
            link_group: "rg".into(),
            subnet: "subnet".into(),
            excludes_masters: true,
            pools: PoolKind::Addresses,
            ..Env::default()
        };
        let subnet = json!({"id": env.subnet_id("subnet").as_str(), "name": "subnet", "properties": {"addressPrefix": "10.0.0.0/16"}});
        let group = json!({"id": env.security_group_id().as_str(), "name": "nsg", "properties": {"securityRules": []}});
        let observed = Observed {
            public_ips: [("rg".to_owned(), Seen::Present(Vec::new()))].into(),
            security_group: Some(Seen::Present(group.into())),
            subnets: [("subnet".to_owned(), Seen::Present(subnet))].into(),
            zones: vec!["1".into(), "2".into(), "3".into()],
            ..Observed::default()
        };
        let nodes = (1..=2).map(node).collect();
        let (services, endpoints, writes) = Default::default();
        Self { env, observed, services, nodes, endpoints, next: 0, writes }
    }

    /// Adds or changes a Service.
    #[allow(clippy::needless_pass_by_value)] // literals at all callers
    fn service(&mut self, name: &str, annotations: &[(&str, &str)], spec: Value) -> &mut Self {
        let number = self.services.len() + 1;
        let known = self.services.get(name);
        let uid =
            known.map_or_else(|| format!("{number:08}-1111-2222-3333-444444444444"), |it| it.metadata.uid.to_string());
        let annotations: BTreeMap<String, String> =
            annotations.iter().map(|(key, value)| (format!("{DOMAIN}{key}"), (*value).to_owned())).collect();
        let mut whole = json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]});
        json::overlay(&mut whole, &spec);
        let status = known.map(|service| service.status.clone());
        let meta = json!({"namespace": "default", "name": name, "uid": uid, "annotations": annotations});
        let mut service: Service = serde_json::from_value(json!({"metadata": meta, "spec": whole})).unwrap();
        service.status = status.unwrap_or_default();
        self.services.insert(name.to_owned(), service);
        self
    }

    fn work(&self, deleted: &[&str], action: ServiceAction) -> Vec<ServiceWork> {
        let of = |(name, service): (&String, &Service)| match deleted.contains(&&**name) {
            true => ServiceWork::new(service, &[], ServiceAction::Delete),
            false => ServiceWork::new(service, &self.nodes_of(name), action),
        };
        self.services.iter().map(of).collect()
    }

    fn nodes_of(&self, service: &str) -> Vec<NodeRef> {
        let with = self.endpoints.get(service);
        let has = |node: &&NodeRef| with.is_none_or(|names| names.iter().any(|name| node.name.as_str() == name));
        self.nodes.iter().filter(has).cloned().collect()
    }

    fn look(&mut self, deleted: &[&str]) {
        let services = self.services.iter().map(|(name, service)| {
            let mut facts = ServiceFacts::of(service);
            facts.is_going |= deleted.contains(&&**name);
            facts
        });
        self.observed.cluster = Some(Facts {
            services: services.collect(),
            nodes: self.nodes.iter().flat_map(|node| super::super::wanted::hosts::internal_addresses(node)).collect(),
            machines: self.nodes.iter().map(|node| node.provider_id_or_empty().to_owned()).collect(),
        });
    }

    fn planned(&mut self, deleted: &[&str], action: ServiceAction) -> (Plan<Write>, Wanted) {
        self.look(deleted);
        let work = self.work(deleted, action);
        let (wanted, verdicts) = wanted(&self.env, CLUSTER, &work);
        for (work, verdict) in work.iter().zip(verdicts) {
            verdict.unwrap_or_else(|error| panic!("{}: {error}", work.service.key()));
        }
        let seen = self.seen(&wanted);
        let plan = plan(&self.env, &seen, &wanted);
        assert_eq!(shown(&plan), shown(&self.plan_of_snapshot(seen, &wanted)), "the plan of a snapshot");
        (plan, wanted)
    }

    /// The plan from what a snapshot has of an observation.
    fn plan_of_snapshot(&self, mut seen: Observed, wanted: &Wanted) -> Plan<Write> {
        seen.strip(&self.env, wanted);
        plan(&self.env, &seen, wanted)
    }

    /// What is read for these Services: only the subnets that they need.
    fn seen(&self, wanted: &Wanted) -> Observed {
        let mut seen = self.observed.clone();
        let needed = super::super::observe::needed_subnets(&self.env, wanted, &seen);
        seen.subnets.retain(|name, _| needed.contains(name));
        seen
    }

    /// One pass: returns the errors, by Service.
    fn pass(&mut self, deleted: &[&str]) -> BTreeMap<String, String> {
        self.pass_of(deleted, ServiceAction::Ensure)
    }

    fn pass_of(&mut self, deleted: &[&str], action: ServiceAction) -> BTreeMap<String, String> {
        let (plan, wanted) = self.planned(deleted, action);
        let writes: Vec<&Write> = plan.steps.iter().map(|step| &step.write).collect();
        assert!(super::super::guard::guard(&self.env, &wanted, &writes).is_empty(), "the guard refuses the plan");
        self.writes.clear();
        for step in plan.steps {
            self.writes.push(step.summary.verb.as_str().to_owned() + " " + &step.object());
            self.apply(step.write);
        }
        let statuses: Vec<_> = wanted
            .items
            .values()
            .filter(|item| item.action != ServiceAction::Delete)
            .filter_map(|item| Some((item.key.clone(), super::super::status(&self.observed, item)?)))
            .collect();
        for (key, status) in statuses {
            let name = key.rsplit('/').next().unwrap().to_owned();
            self.services.get_mut(&name).unwrap().status.load_balancer = status;
        }
        for name in deleted {
            self.services.remove(*name);
        }
        let error = |(place, error): (usize, ProviderError)| {
            let key = &wanted.items[&place].key;
            (key.rsplit('/').next().unwrap().to_owned(), error.to_string())
        };
        plan.failed.into_iter().map(error).collect()
    }

    /// A pass in which only one Service takes part.
    fn pass_of_one(&mut self, name: &str, action: ServiceAction) {
        self.look(if action == ServiceAction::Delete { std::slice::from_ref(&name) } else { &[] });
        let work = ServiceWork::new(&self.services[name], &self.nodes_of(name), action);
        let (wanted, _) = wanted(&self.env, CLUSTER, &[work]);
        let plan = plan(&self.env, &self.seen(&wanted), &wanted);
        assert!(plan.failed.is_empty(), "{:?}", plan.failed);
        plan.steps.into_iter().for_each(|step| self.apply(step.write));
    }

    /// A pass that succeeds, after which nothing is left to do.
    fn settle(&mut self, deleted: &[&str]) {
        assert_eq!(self.pass(deleted), BTreeMap::new());
        let writes = std::mem::take(&mut self.writes);
        assert_eq!(self.pass(&[]), BTreeMap::new());
        assert_eq!(self.writes, [] as [String; 0], "a second pass writes nothing");
        self.writes = writes;
    }

    fn ip(&mut self, begin: &str) -> String {
        self.next += 1;
        if begin == "10.0." {
            format!("10.0.{}.{}", 1 + self.next / 250, self.next % 250)
        } else {
            format!("{begin}{}", self.next)
        }
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Address(change) => self.apply_address(&change),
            Write::Balancer(mut change) => {
                if change.is_second {
                    change.before = self.balancer(&change.name).clone().into();
                }
                let body = balancer::body(change.after(&self.env, |_| true));
                self.put_balancer(&change.id, body);
            }
            Write::DeleteBalancer(change) => {
                self.observed.balancers.retain(|it| !same(json::name(it), &change.name));
            }
            Write::Security(change) => {
                let mut made = step::Results::default();
                for part in &change.parts {
                    made.parts.extend(part.frames.iter().map(|id| (id.folded(), part.claim.place)));
                    for reached in &part.pending {
                        let Reached::Of(id) = reached else { continue };
                        made.addresses.extend(address_of(&self.observed, id).map(|ip| (id.folded(), ip)));
                    }
                }
                let now = match change.is_second {
                    true => self.observed.security_group.as_ref().and_then(Seen::present).unwrap(),
                    false => &change.before,
                };
                let (after, failed) = change.after(&self.env, now, &made);
                assert!(failed.is_empty());
                assert_no_overlap(&after);
                self.observed.security_group = Some(Seen::Present(after.into()));
            }
            Write::Pool(change) => {
                let balancer = change.id.named("loadBalancers").unwrap().to_owned();
                let mut body = change.body();
                body["id"] = json!(change.id.as_str());
                let own = self.balancer_mut(&balancer);
                let pools = json::items_mut(own, "backendAddressPools");
                pools.retain(|pool| !same(json::name(pool), change.id.name()));
                pools.push(body);
            }
            Write::Subnet { id, body } => drop(self.observed.subnets.insert(id.name().to_owned(), Seen::Present(body))),
            Write::Link { id, mut body } => {
                body["id"] = json!(id.as_str());
                let links = self.observed.links.entry("rg".into()).or_insert(Seen::Present(Vec::new()));
                let Seen::Present(list) = links else { panic!("not read") };
                list.retain(|link| !same(json::text(link, &["id"]), id.as_str()));
                list.push(body);
            }
            Write::DeleteLink(deletion) => {
                let Some(Seen::Present(list)) = self.observed.links.get_mut("rg") else { panic!("not read") };
                list.retain(|link| !same(json::text(link, &["id"]), deletion.id.as_str()));
            }
            Write::Migrate { id, .. } => {
                for pool in json::items_mut(self.balancer_mut(id.name()), "backendAddressPools") {
                    let addresses = json!([{"name": "node-1", "properties": {"ipAddress": "10.0.0.1"}}]);
                    pool["properties"] = json!({"loadBalancerBackendAddresses": addresses});
                }
            }
            Write::Model(change) => {
                let body = change.body().unwrap();
                json::overlay(self.observed.interfaces.models.get_mut(&change.id.folded()).unwrap(), &body);
            }
            Write::Instance(change) => {
                let body = change.body().unwrap();
                json::overlay(self.observed.interfaces.instances.get_mut(&change.id.folded()).unwrap(), &body);
                self.show_members();
            }
            Write::Interface(change) => {
                self.observed.interfaces.interfaces.insert(change.id.folded(), change.body().unwrap());
                self.show_members();
            }
        }
    }

    fn apply_address(&mut self, change: &AddressChange) {
        let ip = self.ip("192.0.2.");
        let group = change.id.group().to_lowercase();
        let Some(Seen::Present(list)) = self.observed.public_ips.get_mut(&group) else { panic!("no group {group}") };
        match change.after(&self.env, &change.before) {
            Outcome::Put(mut body) => {
                body["id"] = json!(change.id.as_str());
                let is_v6 = json::property(&body, "publicIPAddressVersion") == "IPv6";
                let ip = if is_v6 { ip.replace("192.0.2.", "2001:db8::") } else { ip };
                json::object_mut(&mut body, "properties").entry("ipAddress").or_insert(json!(ip));
                list.retain(|it| json::text(it, &["id"]) != change.id.as_str());
                let label = address::label_of(&body);
                assert!(label.is_empty() || list.iter().all(|it| address::label_of(it) != label), "DnsRecordInUse");
                list.push(body.into());
            }
            Outcome::Delete => {
                let used = |balancer: &Arc<Value>| {
                    let frontends = json::items(balancer, "frontendIPConfigurations").iter();
                    frontends.into_iter().any(|it| same(json::reference(it, "publicIPAddress"), change.id.as_str()))
                };
                assert!(!self.observed.balancers.iter().any(used), "the address is in use");
                list.retain(|it| json::text(it, &["id"]) != change.id.as_str());
            }
            Outcome::Same => panic!("a step without a change"),
        }
    }

    fn put_balancer(&mut self, id: &ArmId, mut body: Value) {
        body["id"] = json!(id.as_str());
        let mut attached = Vec::new();
        for list in ["frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools"] {
            for item in json::items_mut(&mut body, list) {
                let own = id.child(list, json::name(item));
                item["id"] = json!(own.as_str());
                let is_internal = !json::reference(item, "subnet").is_empty();
                if list == "frontendIPConfigurations"
                    && is_internal
                    && json::property(item, "privateIPAddress").is_empty()
                {
                    let is_v6 = json::property(item, "privateIPAddressVersion") == "IPv6";
                    item["properties"]["privateIPAddress"] = json!(self.ip(if is_v6 { "fd00::" } else { "10.0." }));
                }
                attached.push((json::reference(item, "publicIPAddress").to_owned(), own.to_string()));
            }
        }
        for (address, frontend) in attached.into_iter().filter(|(address, _)| !address.is_empty()) {
            let all = self
                .observed
                .public_ips
                .values_mut()
                .filter_map(|seen| if let Seen::Present(list) = seen { Some(list) } else { None });
            for ip in all.flatten().filter(|ip| same(json::text(ip, &["id"]), &address)) {
                Arc::make_mut(ip)["properties"]["ipConfiguration"] = json!({"id": frontend});
            }
        }
        self.observed.balancers.retain(|it| !same(json::name(it), id.name()));
        self.observed.balancers.push(body.into());
        let of = |frontend: &Value| {
            [json::reference(frontend, "publicIPAddress"), json::property(frontend, "privateIPAddress")].concat()
        };
        let all: Vec<String> = self.observed.frontends().map(of).collect();
        assert_eq!(BTreeSet::from_iter(&all).len(), all.len(), "an address is on one frontend: {all:?}");
        self.show_members();
    }

    fn balancer(&self, name: &str) -> &Value {
        self.observed.balancer(name).unwrap_or_else(|| panic!("no load balancer {name}"))
    }

    fn balancer_mut(&mut self, name: &str) -> &mut Value {
        Arc::make_mut(self.observed.balancers.iter_mut().find(|it| same(json::name(it), name)).unwrap())
    }

    fn group_mut(&mut self) -> &mut Value {
        Arc::make_mut(self.observed.security_group.as_mut().and_then(Seen::present_mut).unwrap())
    }

    /// The first public IP address.
    fn ip_mut(&mut self) -> &mut Value {
        let ips = self.observed.public_ips.get_mut("rg").and_then(Seen::present_mut).unwrap();
        Arc::make_mut(&mut ips[0])
    }

    /// The pools of load balancers show their members.
    fn show_members(&mut self) {
        let mut members = BTreeMap::<String, Vec<Value>>::new();
        let mut add = |configurations: &[Value], owner: &str| {
            for configuration in configurations {
                for pool in json::items(configuration, "loadBalancerBackendAddressPools") {
                    let id = format!("{owner}/ipConfigurations/{}", json::name(configuration));
                    members.entry(json::text(pool, &["id"]).to_lowercase()).or_default().push(json!({"id": id}));
                }
            }
        };
        for (id, instance) in &self.observed.interfaces.instances {
            add(super::super::members::configurations_of(instance), &format!("{id}/networkInterfaces/nic"));
        }
        for (id, interface) in &self.observed.interfaces.interfaces {
            add(json::items(interface, "ipConfigurations"), id);
        }
        for balancer in self.observed.balancers.iter_mut().map(Arc::make_mut) {
            for pool in json::items_mut(balancer, "backendAddressPools") {
                let own = members.remove(&json::text(pool, &["id"]).to_lowercase());
                if own.is_some() || pool["properties"].get("backendIPConfigurations").is_some() {
                    pool["properties"]["backendIPConfigurations"] = json!(own.unwrap_or_default());
                }
            }
        }
    }

    fn rules(&self) -> &[Value] {
        let group = self.observed.security_group.as_ref().and_then(Seen::present).unwrap();
        json::items(group, "securityRules")
    }

    fn addresses(&self) -> Vec<&Value> {
        self.observed.all_public_ips().collect()
    }

    fn status(&self, name: &str) -> Vec<String> {
        self.services[name].status.load_balancer.ingress.iter().map(|ingress| ingress.ip.clone()).collect()
    }

    fn count(&self, begin: &str) -> usize {
        self.writes.iter().filter(|write| write.starts_with(begin)).count()
    }
}

fn address_of(observed: &Observed, id: &ArmId) -> Option<IpAddr> {
    if let Some(ip) = observed.public_ip(id.as_str()) {
        return ccm_provider::address::parse_ip(json::property(ip, "ipAddress"));
    }
    let mut frontends = observed.frontends();
    observed.address(frontends.find(|frontend| same(json::text(frontend, &["id"]), id.as_str()))?)
}

/// Azure refuses networks and addresses of one rule that overlap.
fn assert_no_overlap(group: &Value) {
    let net =
        |text: &String| -> IpNet { text.parse().unwrap_or_else(|_| IpNet::from(text.parse::<IpAddr>().unwrap())) };
    for (rule, destinations) in security::destinations(group) {
        let nets: Vec<IpNet> = destinations.iter().map(net).collect();
        let is_in = |one: &IpNet| nets.iter().filter(|net| net.contains(one)).count() > 1;
        assert!(!nets.iter().any(is_in), "OverlappingSubnetsNotPermittedInSecurityRule: {rule} {destinations:?}");
    }
}

/// What a plan shows to users.
fn shown(plan: &Plan<Write>) -> (Vec<String>, BTreeMap<usize, String>) {
    let failed = plan.failed.iter().map(|(place, error)| (*place, error.to_string()));
    (plan.steps.iter().map(|step| format!("{:?}", step.summary)).collect(), failed.collect())
}

fn port(number: u16) -> Value {
    json!({"ports": [{"port": number, "nodePort": 30000 + number, "protocol": "TCP"}]})
}

fn node(number: u8) -> NodeRef {
    let ip = |text: String| NodeAddress::new(AddressType::InternalIp, text);
    Arc::new(Node {
        name: format!("node-{number}").into(),
        provider_id: Some(format!("azure://{SET}/virtualMachines/{number}").into()),
        addresses: [ip(format!("10.0.0.{number}")), ip(format!("fd00::{number}"))].into(),
        ..Node::default()
    })
}
