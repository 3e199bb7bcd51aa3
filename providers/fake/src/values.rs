//! Types that the file, the log and the saved tables have in common, and their formats.

use ccm_kit::{Fields, Value};
use ccm_provider::{AddressType, LoadBalancerIngress, NodeAddress, PortStatus, Route};
use serde_json::{Value as Json, json};

/// The items that could be parsed; the others were recorded as problems.
pub(crate) fn each<'a, T>(values: &[Value<'a>], read: impl Fn(Fields<'a>) -> Option<T>) -> Vec<T> {
    values.iter().filter_map(|value| value.fields().and_then(&read)).collect()
}

pub(crate) fn read_address(mut f: Fields<'_>) -> Option<NodeAddress> {
    let words = [
        ("Hostname", AddressType::Hostname),
        ("InternalIP", AddressType::InternalIp),
        ("ExternalIP", AddressType::ExternalIp),
        ("InternalDNS", AddressType::InternalDns),
        ("ExternalDNS", AddressType::ExternalDns),
    ];
    let kind = match f.value("type") {
        Some(value) => value.word(&words),
        None => {
            f.problem("type", "needed");
            None
        }
    };
    let address = f.needed_text("address");
    Some(NodeAddress::new(kind?, address?))
}

pub(crate) fn read_ip_mode(f: &mut Fields<'_>) -> Option<String> {
    f.word("ipMode", &[("VIP", "VIP"), ("Proxy", "Proxy")]).map(str::to_owned)
}

pub(crate) fn read_ingress(mut f: Fields<'_>) -> Option<LoadBalancerIngress> {
    Some(LoadBalancerIngress {
        ip: f.text("ip").unwrap_or_default(),
        hostname: f.text("hostname").unwrap_or_default(),
        ip_mode: read_ip_mode(&mut f),
        ports: each(&f.list("ports"), |mut port| {
            let number = port.value("port").and_then(|value| {
                let number = value.count().and_then(|number| u16::try_from(number).ok());
                if number.is_none() {
                    value.problem("expected a port number");
                }
                number
            });
            let words = [("TCP", "TCP"), ("UDP", "UDP"), ("SCTP", "SCTP")];
            Some(PortStatus {
                port: number.unwrap_or_default().into(),
                protocol: port.word("protocol", &words).unwrap_or("TCP").to_owned(),
                error: port.text("error"),
            })
        }),
    })
}

/// A route in the log.
pub(crate) fn route_to_json(route: &Route) -> Json {
    json!({
        "name": route.name,
        "targetNode": route.target_node.as_ref().map_or("", |node| node.as_str()),
        "targetNodeAddresses": route.target_node_addresses,
        "destinationCIDR": route.destination_cidr,
        "blackhole": route.blackhole,
    })
}

/// The fields of a route in the log.
pub(crate) fn read_route(f: &mut Fields<'_>) -> Option<Route> {
    let target = f.text("targetNode").filter(|node| !node.is_empty());
    let route = Route {
        name: f.text("name").unwrap_or_default(),
        target_node: target.map(|node| node.as_str().into()),
        enable_node_addresses: false,
        target_node_addresses: each(&f.list("targetNodeAddresses"), read_address),
        destination_cidr: String::new(),
        blackhole: f.flag("blackhole").unwrap_or(false),
    };
    Some(Route { destination_cidr: f.needed_text("destinationCIDR")?, ..route })
}

/// A route and the cluster for which it was created; empty for none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredRoute {
    pub(crate) cluster: String,
    pub(crate) route: Route,
}

impl StoredRoute {
    pub(crate) fn read(f: &mut Fields<'_>) -> Option<Self> {
        let cluster = f.text("cluster").unwrap_or_default();
        Some(Self { cluster, route: read_route(f)? })
    }

    pub(crate) fn to_json(&self) -> Json {
        let mut json = route_to_json(&self.route);
        if let Some(map) = json.as_object_mut() {
            map.insert("cluster".to_owned(), Json::String(self.cluster.clone()));
        }
        json
    }
}
