//! Steps that change the cluster and the cloud: users, kubelets, instances.

use std::time::Duration;

use ccm_provider::well_known::{ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED};
use rand::Rng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::cloud::{Power, SIZE};
use crate::simulation::Simulation;
use crate::world::text;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A random step; schedules the next one.
    Anything,
    /// An instance of this name starts, and soon afterwards its kubelet.
    Join(String),
    /// The kubelet of an instance creates its node.
    Register {
        /// Name.
        name: String,
        /// Instance.
        id: String,
    },
    /// The Ready condition of an instance's node changes.
    Ready {
        /// Name.
        name: String,
        /// Instance.
        id: String,
        /// `True`, `False` or `Unknown`.
        status: &'static str,
    },
    /// An instance and its kubelet are stopped, started or terminated.
    Switch {
        /// Name.
        name: String,
        /// Its new state.
        power: Power,
    },
    /// A terminated instance is no longer visible in the cloud.
    Forget(String),
    /// An instance gets a new address.
    Readdress(String),
    /// A node is deleted; its kubelet creates it again if the instance exists.
    DeleteNode(String),
    /// A node is excluded from the balancers by label, or the exclusion is removed.
    Exclude(String, bool),
    /// A Service of type LoadBalancer is created.
    CreateService(String),
    /// The ports of a Service change.
    ChangePort(String, u16),
    /// A property of a Service's balancer changes.
    ChangeSize(String, u16),
    /// The type of a Service changes.
    ChangeType(String, &'static str),
    /// A Service is deleted.
    DeleteService(String),
    /// Lookups of all instances fail for this number of milliseconds.
    FailLookups(u64),
    /// The next patch of an object of this resource takes this number of milliseconds.
    SlowPatch(&'static str, u64),
    /// A replica starts.
    Start(usize),
    /// A replica receives SIGTERM.
    Stop(usize),
    /// A replica receives SIGKILL.
    Kill(usize),
    /// The end of a fault.
    Thaw(&'static str),
    /// The end of a fault.
    Fresh(&'static str),
    /// The end of a fault.
    ApiBack,
    /// The end of a fault.
    ApiFast,
    /// The end of a fault.
    Awake(usize),
    /// The end of a fault.
    Connected(usize),
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Simulation {
    /// Runs one step.
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Anything => self.anything(),
            Action::Join(name) if self.living(&name).is_some() => {}
            Action::Join(name) => {
                let id = self.world.cloud().launch(&name);
                let after = self.between(500, 8000);
                self.after(after, Action::Register { name, id });
            }
            Action::Register { name, id } => self.register(&name, &id),
            Action::Ready { name, id, status } => self.set_ready(&name, &id, status),
            Action::Switch { name, power } => self.switch(&name, power),
            Action::Forget(id) => self.world.cloud().switch(&id, Power::Forgotten),
            Action::Readdress(name) => {
                if let Some(id) = self.living(&name) {
                    self.world.cloud().readdress(&id);
                }
            }
            Action::DeleteNode(name) => {
                self.world.delete("nodes", &name);
                if let Some(id) = self.living(&name) {
                    let after = self.between(500, 40_000);
                    self.after(after, Action::Register { name, id });
                }
            }
            Action::Exclude(name, excluded) => self.world.exclude(&name, excluded),
            Action::CreateService(name) => self.create_service(&name),
            Action::ChangePort(name, port) => {
                let ports = json!({"spec": {"ports": [{"name": "http", "port": port, "protocol": "TCP"}]}});
                self.world.patch("services", &name, false, &ports);
            }
            Action::ChangeSize(name, size) => {
                let annotation = json!({"metadata": {"annotations": {SIZE: size.to_string()}}});
                self.world.patch("services", &name, false, &annotation);
            }
            Action::ChangeType(name, kind) => {
                self.world.patch("services", &name, false, &json!({"spec": {"type": kind}}));
            }
            Action::DeleteService(name) => self.world.delete("services", &name),
            other => self.hurt(&other),
        }
    }

    /// The instance with this name that is not gone.
    fn living(&self, name: &str) -> Option<String> {
        self.world.cloud().lock().living(name).map(|(id, _)| id.clone())
    }

    fn register(&mut self, name: &str, id: &str) {
        if self.living(name).as_deref() != Some(id) {
            return;
        }
        if let Some(present) = self.world.get("nodes", name) {
            // A kubelet adopts an existing node of its machine; a node of another machine must be deleted first.
            let uid = text(&present, "/metadata/uid").to_owned();
            let owner = text(&present, "/spec/providerID");
            if owner.is_empty() && present.pointer("/metadata/annotations").is_some() {
                let ip = self.world.cloud().lock().instances[id].addresses()[0].1.clone();
                let annotation = json!({"metadata": {"annotations": {ANNOTATION_PROVIDED_NODE_IP: ip}}});
                self.world.patch("nodes", name, false, &annotation);
            }
            if owner.ends_with(&format!("/{id}")) {
                self.world.lock().instance_of.insert(uid, id.to_owned());
                let after = self.between(500, 20_000);
                self.after(after, Action::Ready { name: name.to_owned(), id: id.to_owned(), status: "True" });
            } else {
                self.after(seconds(5), Action::Register { name: name.to_owned(), id: id.to_owned() });
            }
            return;
        }
        self.cidrs += 1;
        let cidr = format!("10.200.{}.0/24", self.cidrs % 250);
        let (kubelet_knows_id, provided_ip) = (self.rng.random_bool(0.2), self.rng.random_bool(0.2));
        let ip = self.world.cloud().lock().instances[id].addresses()[0].1.clone();
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {
                "podCIDR": cidr,
                "podCIDRs": [cidr],
                "taints": [{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "False"}],
                "addresses": [{"type": "Hostname", "address": name}],
            },
        });
        if kubelet_knows_id {
            node["spec"]["providerID"] = format!("sim:///{id}").into();
        }
        if provided_ip {
            node["metadata"]["annotations"] = json!({ANNOTATION_PROVIDED_NODE_IP: ip});
        }
        let Some(made) = self.world.create("nodes", node) else { return };
        self.world.note_exclusion(name, false);
        let uid = text(&made, "/metadata/uid").to_owned();
        self.world.lock().instance_of.insert(uid, id.to_owned());
        let after = self.between(500, 20_000);
        self.after(after, Action::Ready { name: name.to_owned(), id: id.to_owned(), status: "True" });
    }

    fn set_ready(&mut self, name: &str, id: &str, status: &'static str) {
        let Some(node) = self.world.get("nodes", name) else { return };
        let owner = self.world.lock().instance_of.get(text(&node, "/metadata/uid")).cloned();
        if owner.as_deref() != Some(id) {
            return;
        }
        let power = self.world.cloud().lock().instances[id].power;
        // A kubelet on a stopped machine reports nothing.
        let status = if power == Power::On { status } else { "Unknown" };
        self.world.set_ready(name, status);
    }

    fn switch(&mut self, name: &str, power: Power) {
        let Some(id) = self.living(name) else { return };
        self.world.cloud().switch(&id, power);
        // The condition follows the state of the machine at that time.
        let after = if power == Power::On { self.between(2000, 30_000) } else { self.between(1000, 45_000) };
        self.after(after, Action::Ready { name: name.to_owned(), id: id.clone(), status: "True" });
        if power == Power::Terminated {
            let after = self.between(20_000, 200_000);
            self.after(after, Action::Forget(id));
        }
    }

    fn create_service(&mut self, name: &str) {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            },
        });
        self.world.create("services", service);
    }

    /// Creates objects that no manager may change.
    pub(crate) fn create_foreign(&mut self) {
        let node = json!({
            "metadata": {
                "name": "foreign",
                "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""},
            },
            "spec": {
                "providerID": "other://x/1",
                "podCIDR": "10.200.255.0/24",
                "podCIDRs": ["10.200.255.0/24"],
                "taints": [{"key": TAINT_UNINITIALIZED, "effect": "NoSchedule"}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        let classed = json!({
            "metadata": {"name": "classed", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other", "ports": ports},
        });
        let plain = json!({
            "metadata": {"name": "plain", "namespace": "default"},
            "spec": {"type": "ClusterIP", "ports": ports},
        });
        self.world.create("nodes", node).unwrap();
        for service in [classed, plain] {
            self.world.create("services", service).unwrap();
        }
        let names = [("nodes", "foreign"), ("services", "classed"), ("services", "plain")];
        self.world.lock().foreign.extend(names.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
    }

    /// A random step.
    fn anything(&mut self) {
        let pace = u64::try_from(self.profile.pace.as_millis()).unwrap_or(5000);
        // Bursts and pauses.
        let gap = if self.rng.random_bool(0.35) { self.between(0, 80) } else { self.between(0, 2 * pace) };
        self.after(gap, Action::Anything);
        if !self.profile.luck.is_empty() && self.rng.random_bool(0.4) {
            return self.bad_luck();
        }
        let action = if self.rng.random_bool(0.6) { self.node_step() } else { self.service_step() };
        if let Some(action) = action {
            self.act(action);
        }
    }

    fn node_names(&self) -> Vec<String> {
        let nodes = self.world.store.objects("nodes").unwrap_or_default();
        let names = nodes.iter().map(|node| text(node, "/metadata/name").to_owned());
        names.filter(|name| name != "foreign").collect()
    }

    fn node_step(&mut self) -> Option<Action> {
        let names = self.node_names();
        let name = names.choose(&mut self.rng).cloned();
        let roll = self.rng.random_range(0..100);
        match roll {
            0..22 => {
                self.joined += 1;
                Some(Action::Join(format!("n{}", self.joined)))
            }
            22..34 => Some(Action::Switch { name: name?, power: Power::Terminated }),
            34..46 => Some(Action::Switch { name: name?, power: Power::Off }),
            46..58 => Some(Action::Switch { name: name?, power: Power::On }),
            58..68 => {
                let name = name?;
                let id = self.living(&name)?;
                let status = if self.rng.random_bool(0.5) { "Unknown" } else { "False" };
                let back = self.between(1000, 60_000);
                self.after(back, Action::Ready { name: name.clone(), id: id.clone(), status: "True" });
                Some(Action::Ready { name, id, status })
            }
            68..76 => Some(Action::DeleteNode(name?)),
            76..79 => {
                // A mistake of an administrator.
                for name in names {
                    self.act(Action::DeleteNode(name));
                }
                None
            }
            79..86 => {
                // A new machine with the same name.
                let name = name?;
                self.act(Action::Switch { name: name.clone(), power: Power::Terminated });
                Some(Action::Join(name))
            }
            86..95 => {
                let name = name?;
                let excluded = self.world.is_excluded(&name);
                Some(Action::Exclude(name, !excluded))
            }
            _ => Some(Action::Readdress(name?)),
        }
    }

    fn service_step(&mut self) -> Option<Action> {
        let services: Vec<Value> = self.world.store.objects("services").unwrap_or_default();
        let mut names: Vec<String> =
            services.iter().map(|service| text(service, "/metadata/name").to_owned()).collect();
        names.retain(|name| name.starts_with("svc"));
        let name = names.choose(&mut self.rng).cloned();
        match self.rng.random_range(0..100) {
            0..35 => Some(Action::CreateService(format!("svc{}", "x".repeat(self.rng.random_range(0..5))))),
            35..50 => Some(Action::ChangePort(name?, self.rng.random_range(80..90))),
            50..62 => Some(Action::ChangeSize(name?, self.rng.random_range(0..5))),
            62..72 => Some(Action::ChangeType(name?, "ClusterIP")),
            72..82 => Some(Action::ChangeType(name?, "LoadBalancer")),
            82..92 => Some(Action::DeleteService(name?)),
            _ => {
                // Deleted, and created again as soon as the name is free.
                let name = name?;
                self.act(Action::DeleteService(name.clone()));
                for wait in [20, 2000, 15_000] {
                    self.after(Duration::from_millis(wait), Action::CreateService(name.clone()));
                }
                None
            }
        }
    }
}
