//! A new balancer: whole in one call, or bare where the driver needs one call after the other.

use ccm_provider::{ProviderError, Verb};
use serde_json::{Value, json};

use super::super::desired::Settings;
use super::super::observe::Balancer;
use super::super::step::{Write, made};
use super::{Draft, refused};
use crate::client::octavia::LoadBalancer;

/// The name of the ID of a balancer that is made.
pub(crate) fn balancer_id(name: &str) -> String {
    format!("balancer {name}")
}

/// The name of the ID of its port.
pub(crate) fn vip_port(name: &str) -> String {
    format!("port of {name}")
}

impl Draft<'_> {
    pub(super) fn create_balancer(&mut self, settings: &Settings) -> Result<(), ProviderError> {
        let places = self.observed.places.get(&self.place).cloned().unwrap_or_default();
        // Before anything is made: a balancer without its floating IP would be a leftover.
        if let Some(problem) = &places.problem {
            return Err(refused(problem.clone()));
        }
        let item = self.item;
        let mut body = json!({"name": item.name, "description": item.descriptions.balancer});
        if let Some(fields) = body.as_object_mut() {
            let lb = &self.env.config.load_balancer;
            let mut put = |key: &str, text: &str| {
                if !text.is_empty() {
                    fields.insert(key.to_owned(), text.into());
                }
            };
            put("provider", &lb.lb_provider);
            if settings.vip.port.is_empty() {
                put("vip_subnet_id", places.node_subnet.as_deref().unwrap_or(&settings.vip.subnet));
                put("vip_network_id", &settings.vip.network);
                put("vip_address", &settings.vip.address);
            } else {
                put("vip_port_id", &settings.vip.port);
            }
            if self.features.flavors {
                put("flavor_id", &settings.flavor);
            }
            if self.features.zones {
                put("availability_zone", &settings.zone);
            }
            if self.features.tags {
                let tags: Vec<&String> = std::iter::once(&item.name).chain(&settings.tags.balancer).collect();
                fields.insert("tags".to_owned(), json!(tags));
            }
        }
        let serial = self.env.config.load_balancer.serial_calls;
        if !serial {
            let listeners: Vec<Value> =
                (0..settings.ports.len()).filter_map(|index| self.listener_tree(settings, index)).collect();
            body["listeners"] = listeners.into();
        }
        let write = Write::CreateBalancer {
            name: item.name.clone(),
            body: json!({ "loadbalancer": body }),
            cascade: self.env.config.load_balancer.cascade_delete,
        };
        self.push(write, (Verb::Create, "LoadBalancer", &item.name), "the Service asks for a load balancer");
        let new = Balancer {
            lb: LoadBalancer {
                id: made(&balancer_id(&item.name)),
                name: item.name.clone(),
                vip_port_id: made(&vip_port(&item.name)),
                vip_address: if settings.family == Some(super::super::desired::Family::V6) { "::" } else { "" }.into(),
                ..LoadBalancer::default()
            },
            ..Balancer::default()
        };
        if serial {
            self.ports(&new, settings, true, false)?;
        }
        self.floating_ip(&new, settings, true)
    }
}
