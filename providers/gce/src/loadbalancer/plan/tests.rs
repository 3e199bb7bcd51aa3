//! Plans over a simple model of the cloud that executes steps: the results of plans, and that they may stop anywhere.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{ErrorClass, Node, NodeRef, Service, ServiceAction, ServiceWork, Verb as Does};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::env::{Env, Options};
use super::super::guard::guard;
use super::super::step::{RESERVED, filled, is_unfilled};
use super::super::wanted::{Wanted, wanted};
use super::*;
use crate::client::balancing::{Address, Firewall};
use crate::client::operation::Verb;
use crate::client::resource::Links;

mod addresses;
mod external;
mod internal;

const LB: &str = "a1111111122223333444455555555555";
const BASE: &str = "https://compute.googleapis.com/compute/v1/projects/p";
const WWW: &str = "https://www.googleapis.com/compute/v1/projects/p";
const ZONE: &str = "us-central1-b";
/// The description of what is made for [`web`].
const OURS: &str = r#"{"kubernetes.io/service-name":"default/web"}"#;

fn env() -> Env {
    Env {
        links: Links {
            base: "https://compute.googleapis.com/compute/v1/".to_owned(),
            network_base: "https://www.googleapis.com/compute/v1/".to_owned(),
            project: "p".to_owned(),
            network_project: "p".to_owned(),
        },
        region: "us-central1".to_owned(),
        network: format!("{WWW}/global/networks/default"),
        node_tags: vec!["k8s-node".to_owned()],
        check_sources: ["130.211.0.0/22", "209.85.152.0/22", "209.85.204.0/22", "35.191.0.0/16"]
            .map(str::to_owned)
            .into(),
        external_groups_prefix: String::new(),
        options: Options::default(),
    }
}

fn reserve(sketch: &mut Sketch, fields: Value) {
    let address: Address = serde_json::from_value(fields).unwrap();
    sketch.observed.addresses.insert(address.name.clone(), address);
}

/// A cluster and its cloud.
struct Sketch {
    env: Env,
    observed: Observed,
    nodes: Vec<NodeRef>,
    addresses: BTreeMap<usize, String>,
    /// Objects that were not deleted.
    used: Vec<(Collection, String)>,
    made: u32,
}

impl Sketch {
    fn new() -> Self {
        let network = super::super::facts::NetworkFacts {
            subnetwork: Some(format!("{WWW}/regions/us-central1/subnetworks/sub")),
            ..Default::default()
        };
        let observed = Observed { cluster_id: "cid".to_owned(), network, ..Observed::default() };
        Self {
            env: env(),
            observed,
            nodes: vec![node("n1", ZONE)],
            addresses: BTreeMap::new(),
            used: Vec::new(),
            made: 0,
        }
    }

    fn wanted(&self, service: &Service, action: ServiceAction) -> Result<Wanted, ProviderError> {
        let work = [ServiceWork::new(service, &self.nodes, action)];
        let (wanted, verdicts) = wanted(&self.env, &work);
        verdicts.into_iter().collect::<Result<Vec<()>, _>>().map(|_| wanted)
    }

    /// The steps for a Service.
    fn plan(&self, service: &Service, action: ServiceAction) -> Result<Vec<Step>, ProviderError> {
        let wanted = self.wanted(service, action)?;
        let mut observed = self.observed.clone();
        observed.reserved = observed.addresses.values().map(|it| (it.address.clone(), it.clone())).collect();
        let Steps { steps, mut failed, .. } = plan(&self.env, &observed, &wanted);
        if let Some(error) = failed.remove(&0) {
            return Err(error);
        }
        assert!(guard(&self.env, &observed, &wanted, &steps.iter().collect::<Vec<_>>()).is_empty());
        Ok(steps)
    }

    fn ensures(&self, service: &Service) -> Vec<Step> {
        self.plan(service, ServiceAction::Ensure).unwrap()
    }

    fn refuses(&self, service: &Service) -> String {
        self.plan(service, ServiceAction::Ensure).unwrap_err().to_string()
    }

    /// Ensures the Service, and returns the steps as text.
    fn ensure(&mut self, service: &Service) -> Vec<String> {
        let steps = self.ensures(service);
        self.carry_out(&steps);
        words(&steps)
    }

    fn delete(&mut self, service: &Service) -> Vec<String> {
        let steps = self.plan(service, ServiceAction::Delete).unwrap();
        self.carry_out(&steps);
        words(&steps)
    }

    fn carry_out(&mut self, steps: &[Step]) {
        self.addresses.clear();
        self.used.clear();
        steps.iter().for_each(|step| self.step(step));
    }

    fn step(&mut self, step: &Step) {
        let place = *step.items.first().unwrap();
        let address = self.addresses.get(&place).cloned();
        match &step.act {
            Act::DeleteUnlessUsed(write) => match self.is_used(write) {
                true => self.used.push((write.operation.collection, write.name.clone())),
                false => self.write(write, None),
            },
            Act::Firewall(firewall) if firewall.unless_used.as_ref().is_some_and(|it| self.used.contains(it)) => {}
            Act::Reserve(write) => {
                self.write(write, None);
                let address = self.observed.addresses[LB].address.clone();
                self.addresses.insert(place, address);
            }
            Act::InsertRule(write) => {
                self.write(write, None);
                self.addresses.insert(place, self.observed.rules[LB].ip_address.clone());
            }
            Act::InsertPool { write, hosts } => {
                let mut write = write.clone();
                let urls: Vec<String> = hosts.iter().map(|host| instance_url(&self.env, host)).collect();
                write.body.as_mut().unwrap()["instances"] = json!(urls);
                assert!(urls.len() <= 200);
                self.write(&write, None);
            }
            Act::Join { write, hosts, .. } | Act::Leave { write, hosts } => {
                assert!(hosts.len() <= 1000);
                let joins = matches!(step.act, Act::Join { .. });
                self.members(write, hosts, joins);
            }
            Act::Send(write) | Act::RestoreRule { write, .. } | Act::Keep(write) | Act::PatchLatest(write) => {
                self.write(write, address.as_deref());
            }
            Act::Firewall(firewall) => self.write(&firewall.write, address.as_deref()),
        }
    }

    fn members(&mut self, write: &Write, hosts: &[Host], joins: bool) {
        match write.operation.collection {
            Collection::TargetPools => {
                let urls: Vec<String> = hosts.iter().map(|host| instance_url(&self.env, host)).collect();
                let pool = self.observed.pools.get_mut(&write.name).unwrap();
                pool.instances.retain(|url| !hosts.contains(&Host::of_url(url).unwrap()));
                pool.instances.extend(urls.into_iter().filter(|_| joins));
            }
            _ => {
                let zone = write.scope.zone_name().unwrap();
                let group = self.observed.groups.get_mut(zone).unwrap().get_mut(&write.name).unwrap();
                hosts.iter().for_each(|host| assert!(group.remove(host) || joins));
                group.extend(hosts.iter().filter(|_| joins).cloned());
            }
        }
    }

    /// Whether an object in the cloud uses the target of a write.
    fn is_used(&self, write: &Write) -> bool {
        let (observed, name) = (&self.observed, &write.name);
        let names = |urls: &[String]| urls.iter().any(|url| last_part(url) == name);
        match write.operation.collection {
            Collection::HttpHealthChecks => observed.pools.values().any(|pool| names(&pool.health_checks)),
            Collection::HealthChecks => observed.backends.values().any(|backend| names(&backend.health_checks)),
            Collection::BackendServices => observed.rules.values().any(|rule| last_part(&rule.backend_service) == name),
            Collection::InstanceGroups => observed.backends.values().any(|backend| backend.groups().next().is_some()),
            _ => false,
        }
    }

    fn write(&mut self, write: &Write, address: Option<&str>) {
        let body = filled(&write.body.clone().unwrap_or_default(), address);
        assert!(!is_unfilled(&body), "{write}: {body}");
        let (name, observed, verb) = (&*write.name, &mut self.observed, write.operation.verb);
        match write.operation.collection {
            Collection::Addresses => {
                if verb == Verb::Insert {
                    assert!(!observed.addresses.contains_key(name));
                    self.made += 1;
                    let internal = body["addressType"] == "INTERNAL";
                    let new =
                        if internal { format!("10.0.0.{}", self.made) } else { format!("203.0.113.{}", self.made) };
                    let mut address: Address = serde_json::from_value(body).unwrap();
                    name.clone_into(&mut address.name);
                    if address.address.is_empty() {
                        address.address = new;
                    }
                    observed.addresses.insert(name.to_owned(), address);
                } else {
                    observed.addresses.remove(name);
                }
            }
            Collection::ForwardingRules => {
                if verb == Verb::Delete {
                    observed.rules.remove(name);
                    return;
                }
                // Everything behind the rule exists.
                if verb == Verb::Insert {
                    let [target, backend] =
                        ["target", "backendService"].map(|key| last_part(body[key].as_str().unwrap_or("")));
                    assert!(target.is_empty() || observed.pools.contains_key(target));
                    assert!(backend.is_empty() || observed.backends.contains_key(backend));
                    assert!(!observed.rules.contains_key(name));
                }
                apply(&mut observed.rules, name, verb, body);
                let rule = observed.rules.get_mut(name).unwrap();
                if rule.load_balancing_scheme.is_empty() {
                    "EXTERNAL".clone_into(&mut rule.load_balancing_scheme);
                }
                if rule.ip_address.is_empty() && rule.load_balancing_scheme == "EXTERNAL" {
                    self.made += 1;
                    rule.ip_address = format!("203.0.113.{}", self.made);
                } else if rule.ip_address.is_empty() {
                    "10.240.0.9".clone_into(&mut rule.ip_address);
                }
            }
            Collection::TargetPools => {
                assert!(verb != Verb::Delete || !observed.rules.values().any(|rule| last_part(&rule.target) == name));
                apply(&mut observed.pools, name, verb, body);
            }
            Collection::BackendServices => {
                if verb == Verb::Patch {
                    assert_eq!(body["fingerprint"], json!(observed.backends[name].fingerprint));
                    // As in the API, the protocol cannot change while a rule uses the backend service.
                    let protocol = observed.backends[name].protocol.clone();
                    let used = observed.rules.values().any(|rule| last_part(&rule.backend_service) == name);
                    assert!(body.get("protocol").is_none_or(|new| *new == json!(protocol)) || !used);
                }
                apply(&mut observed.backends, name, verb, body);
            }
            Collection::Firewalls => {
                apply(&mut observed.firewalls, name, verb, body);
                // No rule ever denies traffic that another one should admit.
                if let Some(deny) = observed.firewalls.get(&format!("k8s-fw-{LB}-deny")) {
                    let priority = |rule: &Firewall| rule.priority.unwrap_or(1000);
                    let allow = observed.firewalls.get(&format!("k8s-fw-{LB}"));
                    let serves = |ip: &String| observed.rules.values().any(|rule| rule.ip_address == *ip);
                    let is_denied = deny.destination_ranges.iter().any(serves);
                    assert!(!is_denied || allow.is_some_and(|allow| priority(allow) < priority(deny)), "{write}");
                }
            }
            Collection::HttpHealthChecks => apply(&mut observed.http_checks, name, verb, body),
            Collection::HealthChecks => apply(&mut observed.checks, name, verb, body),
            Collection::InstanceGroups => {
                let zone = observed.groups.entry(write.scope.zone_name().unwrap().to_owned()).or_default();
                match verb {
                    Verb::Insert => drop(zone.insert(name.to_owned(), BTreeSet::new())),
                    _ => drop(zone.remove(name)),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The existing objects, by kind and name.
    fn contents(&self) -> Vec<String> {
        let observed = &self.observed;
        let named = |kind: &str, names: Vec<&String>| {
            names.into_iter().map(|name| format!("{kind} {name}")).collect::<Vec<_>>()
        };
        let mut all = named("rule", observed.rules.keys().collect());
        all.extend(named("address", observed.addresses.keys().collect()));
        all.extend(named("pool", observed.pools.keys().collect()));
        all.extend(named("backend", observed.backends.keys().collect()));
        all.extend(named("firewall", observed.firewalls.keys().collect()));
        all.extend(named("http check", observed.http_checks.keys().collect()));
        all.extend(named("check", observed.checks.keys().collect()));
        all.extend(named("group", observed.groups.values().flat_map(|zone| zone.keys()).collect()));
        all
    }

    /// From this state, a process that dies after any step ends in the same state as one that is not interrupted.
    fn survives_any_death(&self, service: &Service, action: ServiceAction) {
        let steps = self.plan(service, action).unwrap();
        assert!(steps.len() > 2, "{:?}", words(&steps));
        let copy = |from: &Self| Self {
            env: from.env.clone(),
            observed: from.observed.clone(),
            nodes: from.nodes.clone(),
            addresses: BTreeMap::new(),
            used: Vec::new(),
            made: from.made,
        };
        let mut whole = copy(self);
        whole.carry_out(&steps);
        for dead in 0..=steps.len() {
            let mut sketch = copy(self);
            sketch.carry_out(&steps[..dead]);
            for _ in 0..2 {
                let rest = sketch.plan(service, action).unwrap();
                sketch.carry_out(&rest);
            }
            let left = sketch.plan(service, action).unwrap();
            let left: Vec<String> = words(&left.into_iter().filter(|step| !step.is_shared).collect::<Vec<_>>());
            assert_eq!(left, [] as [String; 0], "dead after {dead} of {:?}", words(&steps));
            assert_eq!(sketch.contents(), whole.contents(), "dead after {dead} of {:?}", words(&steps));
            assert_eq!(sketch.ip(), whole.ip(), "dead after {dead} of {:?}", words(&steps));
        }
    }

    fn ip(&self) -> Option<String> {
        self.observed.rules.get(LB).map(|rule| rule.ip_address.clone())
    }
}

fn apply<T: Serialize + DeserializeOwned + Default>(
    all: &mut BTreeMap<String, T>,
    name: &str,
    verb: Verb,
    body: Value,
) {
    match verb {
        Verb::Delete => drop(all.remove(name)),
        Verb::Insert => {
            assert!(!all.contains_key(name), "{name} exists already");
            let mut object: Value = body;
            object["name"] = json!(name);
            all.insert(name.to_owned(), serde_json::from_value(object).unwrap());
        }
        Verb::Patch => {
            let mut object = serde_json::to_value(&all[name]).unwrap();
            for (key, value) in body.as_object().unwrap() {
                object[key] = value.clone();
            }
            all.insert(name.to_owned(), serde_json::from_value(object).unwrap());
        }
        other => panic!("{other:?}"),
    }
}

fn words(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| format!("{} {} {}", step.verb.as_str(), step.kind, step.id.replace(LB, "LB"))).collect()
}

/// The verbs and kinds only.
fn kinds(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| format!("{} {}", step.verb.as_str(), step.kind)).collect()
}

fn node(name: &str, zone: &str) -> NodeRef {
    serde_json::from_value::<Node>(json!({"name": name, "providerId": format!("gce://p/{zone}/{name}")}))
        .unwrap()
        .into()
}

fn nodes(count: usize) -> Vec<NodeRef> {
    (1..=count).map(|number| node(&format!("n{number:04}"), ZONE)).collect()
}

/// `default/web` with these fields of its spec.
#[allow(clippy::needless_pass_by_value)] // literals at all callers
fn web(spec: Value) -> Service {
    let mut service = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "11111111-2222-3333-4444-555555555555", "annotations": {}},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    serde_json::from_value(service).unwrap()
}

fn ports(protocol: &str, ports: &[i32]) -> Value {
    json!(ports.iter().map(|port| json!({"port": port, "protocol": protocol})).collect::<Vec<_>>())
}

fn annotated(mut service: Service, key: &str, value: &str) -> Service {
    service.metadata.annotations.insert(key.to_owned(), value.to_owned());
    service
}

fn local() -> Service {
    web(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}))
}

fn body(steps: &[Step], kind: &str, name: &str) -> Value {
    let step = steps.iter().find(|step| step.kind == kind && step.id == name).unwrap();
    step.act.write().body.clone().unwrap()
}
