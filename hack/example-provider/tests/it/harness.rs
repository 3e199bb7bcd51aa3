//! A rack in a temporary folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ccm_provider::{AddressType, CloudConfig, NodeAddress, ProviderFactory, Service};
use ccm_provider_contract::{BrokenConfig, Harness, Made, Outage};
use serde_json::{Value, json};

pub async fn rack() -> Arc<dyn Harness> {
    Arc::new(Rack::new())
}

/// With the load balancers of `simple.rs`.
pub async fn simple() -> Arc<dyn Harness> {
    Arc::new(Rack { simple: true, ..Rack::new() })
}

pub struct Rack {
    simple: bool,
    folder: tempfile::TempDir,
    seen: Mutex<(BTreeSet<String>, u64)>,
}

impl Rack {
    pub fn new() -> Self {
        let rack = Self { simple: false, folder: tempfile::tempdir().unwrap(), seen: Mutex::default() };
        for kind in ["machines", "balancers", "routes"] {
            std::fs::create_dir_all(rack.path("rack").join(kind)).unwrap();
        }
        let addresses: Vec<String> = (1..=200).map(|number| format!("192.0.2.{number}")).collect();
        std::fs::write(rack.path("cloud.yaml"), json!({"directory": "rack", "addresses": addresses}).to_string())
            .unwrap();
        rack
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an object as the operator of the rack does.
    pub fn write(&self, object: &str, value: &Value) {
        let path = self.path("rack").join(format!("{object}.json"));
        std::fs::write(path.with_extension("new"), value.to_string()).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub fn objects(&self, kind: &str) -> BTreeSet<String> {
        let read = |path: &Path| format!("{} {}", path.display(), std::fs::read_to_string(path).unwrap());
        let entries = std::fs::read_dir(self.path("rack").join(kind)).unwrap();
        entries.map(|entry| read(&entry.unwrap().path())).collect()
    }

    fn all(&self) -> BTreeSet<String> {
        ["balancers", "routes"].iter().flat_map(|kind| self.objects(kind)).collect()
    }
}

#[async_trait]
impl Harness for Rack {
    fn factory(&self) -> Arc<dyn ProviderFactory> {
        Arc::new(if self.simple { example_ccm::Factory::simple() } else { example_ccm::Factory::default() })
    }

    fn config(&self) -> Option<CloudConfig> {
        let path = self.path("cloud.yaml");
        Some(CloudConfig { text: std::fs::read_to_string(&path).unwrap(), path })
    }

    async fn add_instance(&self, name: &str) -> Made {
        let address = format!("10.0.0.{}", 1 + name.bytes().map(u32::from).sum::<u32>() % 250);
        let machine = json!({"serial": format!("sn-{name}"), "addresses": [address], "zone": "rack-1"});
        self.write(&format!("machines/{name}"), &machine);
        let addresses = vec![NodeAddress { kind: AddressType::InternalIp, address: address.into() }];
        Made { provider_id: format!("example://sn-{name}"), addresses }
    }

    async fn stop_instance(&self, name: &str) -> bool {
        let path = self.path("rack").join(format!("machines/{name}.json"));
        let mut machine: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        machine["poweredOff"] = true.into();
        self.write(&format!("machines/{name}"), &machine);
        true
    }

    async fn remove_instance(&self, name: &str) {
        std::fs::remove_file(self.path("rack").join(format!("machines/{name}.json"))).unwrap();
    }

    async fn contents(&self) -> BTreeSet<String> {
        if self.path("rack").exists() { self.all() } else { self.seen.lock().unwrap().0.clone() }
    }

    async fn writes(&self) -> u64 {
        let now = self.contents().await;
        let mut seen = self.seen.lock().unwrap();
        if seen.0 != now {
            *seen = (now, seen.1 + 1);
        }
        seen.1
    }

    /// Acts as if the file system of the folder were unmounted. Every change of this cloud is a single write, so none
    /// can be interrupted.
    async fn disrupt(&self, outage: Outage) -> bool {
        match outage {
            Outage::None if self.path("away").exists() => {
                std::fs::rename(self.path("away"), self.path("rack")).unwrap()
            }
            Outage::None => {}
            Outage::Down => {
                self.writes().await;
                std::fs::rename(self.path("rack"), self.path("away")).unwrap();
            }
            Outage::WritesRefusedAfter(_) | Outage::AnswerLostAfter(_) => return false,
        }
        true
    }

    fn refuse(&self, service: &mut Service) -> bool {
        service.spec.ports.iter_mut().for_each(|port| port.protocol = "UDP".into());
        true
    }

    async fn add_objects_of_others(&self, _: Option<&Service>) -> bool {
        let theirs = json!({"owner": "somebody", "address": "192.0.2.1", "ports": [], "hosts": []});
        self.write("balancers/theirs", &theirs);
        self.write("routes/10.99.0.0_16", &json!({"cluster": "theirs", "node": "x", "range": "10.99.0.0/16"}));
        true
    }

    async fn orphan_route(&self, destination_cidr: &str) -> bool {
        let file = destination_cidr.replace('/', "_");
        let text = std::fs::read(self.path("rack").join(format!("routes/{file}.json"))).unwrap();
        let mut route: Value = serde_json::from_slice(&text).unwrap();
        route["node"] = "gone".into();
        self.write(&format!("routes/{file}"), &route);
        true
    }

    fn broken_configs(&self) -> Vec<BrokenConfig> {
        let broken = |text: &str, names| BrokenConfig::new("cloud.yaml", text, names);
        vec![
            broken("addresses: []", "directory"),
            broken("directory: rack\naddresses: [192.0.2.300]", "addresses[0]"),
            broken("directry: rack", "directory"),
        ]
    }

    fn malformed_provider_ids(&self) -> Vec<String> {
        vec!["example://".into()]
    }

    fn plans_are_exact(&self) -> bool {
        !self.simple
    }
}
