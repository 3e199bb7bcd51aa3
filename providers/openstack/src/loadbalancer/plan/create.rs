//! Creation of a balancer: in one call, or part by part if the driver requires serial calls.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{ProviderError, Verb};
use serde_json::Value;

use super::super::observed::Balancer;
use super::super::step::{Then, Write, made};
use super::super::wanted::{Family, Settings};
use super::{Draft, Fields, refused};
use crate::annotations as keys;
use crate::client::octavia::LoadBalancer;
use crate::start::config::{OVN, method_problem};

/// The placeholder name of a new balancer's ID.
pub(crate) fn balancer_id(name: &str) -> String {
    format!("balancer {name}")
}

/// The placeholder name of its VIP port's ID.
pub(crate) fn vip_port(name: &str) -> String {
    format!("port of {name}")
}

impl Draft<'_> {
    /// The reason why the driver would refuse the creation, which would leave a port in Neutron each time. It takes an
    /// existing balancer as it is. (amphora refuses an algorithm only in changes.)
    fn refused_by_driver(&self, settings: &Settings) -> Option<String> {
        if !self.env.is_ovn() {
            return None;
        }
        let refuses = |key: &str, is_set: bool| {
            is_set.then(|| format!("{key}: the Octavia provider {OVN} refuses it; remove it"))
        };
        let method = method_problem(OVN, &settings.algorithm).map(|problem| {
            let key = keys::LB_METHOD.row.key;
            let algorithm = &settings.algorithm;
            format!("lb-method {algorithm}: {problem}; correct the annotation {key}, or lb-method in cloud.conf")
        });
        method
            .or_else(|| refuses(keys::PROXY_PROTOCOL.row.key, settings.proxy_protocol.is_some()))
            .or_else(|| refuses(keys::X_FORWARDED_FOR.row.key, settings.forwards_client_address))
            .or_else(|| refuses(keys::DEFAULT_TLS_CONTAINER_REF.row.key, !settings.tls_container.is_empty()))
    }

    pub(super) fn create_balancer(&mut self, settings: &Settings) -> Result<(), ProviderError> {
        let places = self.observed.places.get(&self.place).cloned().unwrap_or_default();
        // Before any creation: a balancer without its floating IP would be a leftover.
        if let Some(problem) = &places.problem {
            return Err(refused(problem.clone()));
        }
        if let Some(problem) = self.refused_by_driver(settings) {
            return Err(refused(problem));
        }
        let item = self.item;
        let lb = &self.env.config.load_balancer;
        let mut fields = Fields::default();
        fields.put("name", &*item.name);
        fields.put("description", &*item.descriptions.balancer);
        fields.put_text("provider", &lb.lb_provider);
        let vip = &item.hosts.vip;
        if vip.port.is_empty() {
            fields.put_text("vip_subnet_id", places.node_subnet.as_deref().unwrap_or(&vip.subnet));
            fields.put_text("vip_network_id", &vip.network);
            fields.put_text("vip_address", &vip.address);
        } else {
            fields.put("vip_port_id", &*vip.port);
        }
        if self.features.flavors {
            fields.put_text("flavor_id", &settings.flavor);
        }
        if self.features.zones {
            fields.put_text("availability_zone", &settings.zone);
        }
        if self.features.tags {
            let tags: Vec<&str> =
                std::iter::once(&item.name).chain(&settings.tags.balancer).map(String::as_str).collect();
            fields.put("tags", tags);
        }
        let serial = lb.serial_calls;
        if !serial {
            let trees = (0..settings.ports.len()).filter_map(|index| self.listener_tree(settings, index));
            fields.put("listeners", trees.collect::<Vec<Value>>());
        }
        let write = Write::CreateBalancer { name: item.name.clone(), body: fields.below("loadbalancer") };
        // It has the name and the tag of the Service.
        self.part = Part::new(Kind::Claim);
        self.push(write, (Verb::Create, "LoadBalancer", &item.name), "the Service asks for a load balancer");
        // In ERROR only a cascade deletes it.
        let id = made(&balancer_id(&item.name));
        let undo = Write::DeleteBalancer { id, cascade: true, then: Then::Nothing };
        self.push(undo, (Verb::Delete, "LoadBalancer", &item.name), "its creation failed");
        if let Some(undo) = self.steps.pop() {
            self.amend(|step| step.undo(undo));
        }
        let new = Balancer {
            lb: LoadBalancer {
                id: made(&balancer_id(&item.name)),
                name: item.name.clone(),
                vip_port_id: made(&vip_port(&item.name)),
                vip_address: if item.hosts.family == Some(Family::V6) { "::" } else { "" }.into(),
                ..LoadBalancer::default()
            },
            ..Balancer::default()
        };
        if serial {
            self.ports(&new, settings);
        }
        self.floating_ip(&new, settings)
    }
}
