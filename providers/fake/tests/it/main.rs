//! The contract suite over the fake cloud: with the batch interface for instances and with the older one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod matrix;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{AddressType, CloudConfig, NodeAddress, PersistentVolume, ProviderFactory};
use ccm_provider_contract::{BrokenConfig, Deviation, Harness, Made, Outage};
use parking_lot::Mutex;
use serde_json::{Value, json};

mod batch {
    ccm_provider_contract::contract!(super::batch_interface);
}

mod legacy {
    ccm_provider_contract::contract!(super::older_interface);
}

async fn batch_interface() -> Arc<dyn Harness> {
    Arc::new(Fake::new(false))
}

async fn older_interface() -> Arc<dyn Harness> {
    Arc::new(Fake::new(true))
}

/// The file of a fake cloud in a separate folder.
struct Fake {
    folder: tempfile::TempDir,
    state: Mutex<State>,
}

struct State {
    file: Value,
    troubles: u32,
    writes: u64,
    seen: BTreeSet<String>,
}

impl Fake {
    fn new(legacy: bool) -> Self {
        let file = json!({
            "stateFile": "state.json",
            "callLog": "calls.log",
            "unlisted": "missing",
            "interfaces": {"instancesV2": !legacy, "instances": legacy, "zones": legacy, "routes": true, "pvLabels": true},
            "zone": {"region": "here", "failureDomain": "here-a"},
            "instances": [],
            "volumes": [],
            "loadBalancers": {"ports": true},
            "routes": {"initial": []},
            "faults": [],
        });
        let state = State { file, troubles: 0, writes: 0, seen: BTreeSet::new() };
        let fake = Self { folder: tempfile::tempdir().unwrap(), state: Mutex::new(state) };
        fake.edit(|_| ());
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn edit<T>(&self, change: impl FnOnce(&mut Value) -> T) -> T {
        let mut state = self.state.lock();
        let answer = change(&mut state.file);
        std::fs::write(self.path("next"), state.file.to_string()).unwrap();
        std::fs::rename(self.path("next"), self.path("cloud.yaml")).unwrap();
        answer
    }

    fn instance<T>(&self, name: &str, change: impl FnOnce(&mut Value) -> T) -> T {
        self.edit(|file| {
            let instances = file["instances"].as_array_mut().unwrap();
            change(instances.iter_mut().find(|instance| instance["name"] == name).unwrap())
        })
    }

    /// The tables that the fake cloud preserves across restarts.
    fn tables(&self) -> Value {
        match std::fs::read_to_string(self.path("state.json")) {
            Ok(text) => serde_json::from_str(&text).unwrap(),
            Err(_) => json!({"loadBalancers": {}, "routes": []}),
        }
    }

    fn objects(&self) -> BTreeSet<String> {
        let mut tables = self.tables();
        for balancer in tables["loadBalancers"].as_object_mut().unwrap().values_mut() {
            // The fake cloud stores the hosts in the order of the call, which does not matter for a load balancer.
            balancer["nodes"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
        }
        let balancers =
            tables["loadBalancers"].as_object().unwrap().iter().map(|(key, b)| format!("balancer {key} {b}"));
        let routes = tables["routes"].as_array().unwrap().iter().map(|route| format!("route {route}"));
        balancers.chain(routes).collect()
    }
}

const WRITES: [&str; 5] =
    ["EnsureLoadBalancer", "UpdateLoadBalancer", "EnsureLoadBalancerDeleted", "CreateRoute", "DeleteRoute"];

#[async_trait]
impl Harness for Fake {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(ccm_provider_fake::Factory)
    }

    fn config(&self) -> Option<CloudConfig> {
        let path = self.path("cloud.yaml");
        Some(CloudConfig { text: std::fs::read_to_string(&path).unwrap(), path })
    }

    fn plans_are_exact(&self) -> bool {
        true
    }

    async fn add_instance(&self, name: &str) -> Made {
        let address = format!("10.0.0.{}", name.len());
        let entry =
            json!({"name": name, "type": "fake.large", "addresses": [{"type": "InternalIP", "address": address}]});
        self.edit(|file| file["instances"].as_array_mut().unwrap().push(entry));
        let addresses = vec![NodeAddress { kind: AddressType::InternalIp, address: address.into() }];
        Made { provider_id: format!("fake://{name}"), addresses }
    }

    async fn stop_instance(&self, name: &str) -> bool {
        self.instance(name, |instance| instance["shutdown"] = true.into());
        true
    }

    async fn remove_instance(&self, name: &str) {
        self.edit(|file| file["instances"].as_array_mut().unwrap().retain(|instance| instance["name"] != name));
    }

    async fn contents(&self) -> BTreeSet<String> {
        self.objects()
    }

    /// The fake cloud counts calls, not changes: this number grows with each change of the tables.
    async fn writes(&self) -> u64 {
        let now = self.objects();
        let mut state = self.state.lock();
        if state.seen != now {
            state.writes += 1;
            state.seen = now;
        }
        state.writes
    }

    async fn disrupt(&self, outage: Outage) -> bool {
        let number = {
            let mut state = self.state.lock();
            state.troubles += 1;
            state.troubles
        };
        let rule = |name: &str, after: u64| json!({"id": format!("{name}-{number}"), "call": WRITES, "after": after, "error": "refused"});
        let faults = match outage {
            Outage::None => json!([]),
            Outage::Down => json!([{"id": format!("down-{number}"), "call": "*", "error": "the cloud is down"}]),
            Outage::WritesRefusedAfter(writes) => json!([rule("refused", writes)]),
            Outage::AnswerLostAfter(writes) => {
                let mut lost = rule("lost", writes);
                (lost["applied"], lost["times"]) = (true.into(), 1.into());
                json!([lost, rule("refused", writes)])
            }
        };
        self.edit(|file| file["faults"] = faults);
        true
    }

    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let mut routes = self.tables()["routes"].take();
        for route in routes.as_array_mut().unwrap() {
            if route["destinationCIDR"] == destination_cidr {
                route["blackhole"] = true.into();
            }
        }
        self.edit(|file| file["routes"]["initial"] = routes);
        true
    }

    async fn add_volume(&self, name: &str) -> Option<PersistentVolume> {
        let entry = json!({"id": name, "labels": {"topology.kubernetes.io/zone": "here-a"}});
        self.edit(|file| file["volumes"].as_array_mut().unwrap().push(entry));
        let volume = json!({"metadata": {"name": name}, "spec": {"csi": {"volumeHandle": name}}});
        Some(serde_json::from_value(volume).unwrap())
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let broken = |text: &str, names| BrokenConfig::new("cloud.yaml", text, names);
        vec![
            broken("unlistd: missing", "unlistd"),
            broken("unlisted: mising", "unlisted"),
            broken("instances: [{nam: a}]", "instances[0]"),
            broken("faults: [{cal: x}]", "faults[0]"),
        ]
    }

    fn deviations(&self) -> &'static [Deviation] {
        &[Deviation {
            clause: "an_equal_route_again_is_a_success",
            why: "the fake of the Go project answers an error too, and shows so how a controller takes it",
        }]
    }
}
