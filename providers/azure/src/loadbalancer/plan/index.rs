//! What plans look up for each Service among the objects of all. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_provider::ServiceAction;
use ccm_provider::address::parse_ip;
use serde_json::Value;

use super::super::json;
use super::super::names::is_pool_of_all;
use super::super::observed::{Observed, ServiceFacts, address};
use super::super::tags;
use super::super::wanted::Wanted;

/// Without it, hundreds of Services would look through each other's objects.
#[derive(Default)]
pub(super) struct Index<'a> {
    /// The public IP addresses, by ID in lower case.
    ips: BTreeMap<String, &'a Value>,
    /// The public IP addresses whose tag names a Service, by its key in lower case.
    tagged: BTreeMap<String, Vec<&'a Value>>,
    /// The Services that are deleted, by key in lower case.
    going: BTreeSet<String>,
    /// The addresses in the pools of all nodes of each load balancer, by its name in lower case.
    members: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl<'a> Index<'a> {
    pub(super) fn of(observed: &'a Observed, wanted: &Wanted) -> Self {
        let mut index = Self::default();
        for ip in observed.all_public_ips() {
            index.ips.entry(json::text(ip, &["id"]).to_ascii_lowercase()).or_insert(ip);
            let services = tags::services(&tags::get(ip, &tags::SERVICE).to_ascii_lowercase());
            for service in BTreeSet::from_iter(services) {
                index.tagged.entry(service).or_default().push(ip);
            }
        }
        for balancer in &observed.balancers {
            let pools = json::items(balancer, "backendAddressPools").iter();
            let pools = pools.filter(|pool| is_pool_of_all(&wanted.cluster, json::name(pool)));
            let addresses = pools.flat_map(|pool| json::items(pool, "loadBalancerBackendAddresses"));
            let members = addresses.filter_map(|address| parse_ip(json::property(address, "ipAddress"))).collect();
            index.members.insert(json::name(balancer).to_ascii_lowercase(), members);
        }
        let going = wanted.items.values().filter(|item| item.action == ServiceAction::Delete);
        index.going = going.map(|item| item.key.to_ascii_lowercase()).collect();
        index
    }

    /// The public IP address with an ID.
    pub(super) fn ip(&self, id: &str) -> Option<&'a Value> {
        self.ips.get(&id.to_ascii_lowercase()).copied()
    }

    /// The public IP addresses whose tag names a Service.
    pub(super) fn tagged(&self, service: &str) -> &[&'a Value] {
        self.tagged.get(&service.to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The address of a frontend of a load balancer.
    pub(super) fn address(&self, frontend: &Value) -> Option<IpAddr> {
        address(frontend, self.ip(json::reference(frontend, "publicIPAddress")))
    }

    /// Whether an address is in a pool of all nodes of a load balancer.
    pub(super) fn has_member(&self, balancer: &Value, ip: IpAddr) -> bool {
        self.members.get(&json::name(balancer).to_ascii_lowercase()).is_some_and(|members| members.contains(&ip))
    }

    /// Whether a Service stays.
    pub(super) fn is_live(&self, service: &ServiceFacts) -> bool {
        !service.is_going && !self.going.contains(&service.key.to_ascii_lowercase())
    }
}
