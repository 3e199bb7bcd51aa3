//! Creation of a balancer: in one call, or part by part if the driver requires serial calls.

use ccm_kit::balancer::{Kind, Part, placeholder};
use ccm_provider::{ProviderError, Verb};
use serde_json::Value;

use super::super::observed::Balancer;
use super::super::step::{Then, Write};
use super::super::wanted::Settings;
use super::{Draft, Fields, refused};
use crate::annotations as keys;
use crate::client::octavia::LoadBalancer;
use crate::start::config::{OVN, method_problem};

/// The placeholder name of a new balancer's ID.
pub(crate) fn balancer_id(name: &str) -> String {
    format!("load balancer {name}")
}

/// The placeholder name of its VIP port's ID.
pub(crate) fn vip_port(name: &str) -> String {
    format!("port of {name}")
}

impl Draft<'_> {
    /// Fails if Octavia or its driver is known to refuse the listeners and pools. Each refused creation of a balancer
    /// leaves a port in Neutron.
    pub(super) fn must_be_known(&self, settings: &Settings) -> Result<(), ProviderError> {
        let (provider, algorithm, proxy) = (self.provider, &settings.algorithm, settings.proxy_protocol);
        let refuses = |key: &str, is_set: bool| {
            is_set.then(|| format!("{key}: the Octavia provider {OVN} refuses it; remove it"))
        };
        let of_ovn = || {
            refuses(keys::PROXY_PROTOCOL.row.key, proxy.is_some())
                .or_else(|| refuses(keys::X_FORWARDED_FOR.row.key, settings.forwards_client_address))
                .or_else(|| refuses(keys::DEFAULT_TLS_CONTAINER_REF.row.key, !settings.tls_container.is_empty()))
        };
        // amphora takes any algorithm with a new balancer.
        let is_taken = provider != OVN && self.observed.balancer(self.place).is_none();
        let method = method_problem(provider, algorithm).filter(|_| !is_taken).map(|problem| {
            let key = keys::LB_METHOD.row.key;
            format!("lb-method {algorithm}: {problem}; correct the annotation {key}, or lb-method in cloud.conf")
        });
        let problem = method.or_else(|| match proxy {
            _ if provider == OVN => of_ovn(),
            Some("PROXYV2") if !self.features.proxy_v2 => Some(format!(
                "{} v2: this Octavia has no such pools (since 2.22); write v1, or remove it",
                keys::PROXY_PROTOCOL.row.key
            )),
            _ => None,
        });
        problem.map_or(Ok(()), |problem| Err(refused(problem)))
    }

    pub(super) fn create_balancer(&mut self, settings: &Settings) -> Result<(), ProviderError> {
        let places = self.observed.places.get(&self.place).cloned().unwrap_or_default();
        // Before any creation: a balancer without its floating IP would be a leftover.
        if let Some(problem) = &places.problem {
            return Err(refused(problem.clone()));
        }
        self.must_be_known(settings)?;
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
        } else {
            fields.put("vip_port_id", &*vip.port);
        }
        // Of a port, too: it may have several.
        fields.put_text("vip_address", &vip.address);
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
        let id = placeholder(&balancer_id(&item.name));
        let undo = Write::DeleteBalancer { id, cascade: true, then: Then::Nothing };
        self.push(undo, (Verb::Delete, "LoadBalancer", &item.name), "its creation failed");
        if let Some(undo) = self.steps.pop() {
            self.amend(|step| step.undo(undo));
        }
        let new = Balancer {
            lb: LoadBalancer {
                id: placeholder(&balancer_id(&item.name)),
                name: item.name.clone(),
                vip_port_id: placeholder(&vip_port(&item.name)),
                vip_address: if places.is_v6 { "::" } else { "" }.into(),
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
