//! Neutron: networks, subnets, ports, routers, floating IPs, security groups.

use std::collections::BTreeSet;

use ccm_kit::models;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::operation::{
    EXTENSION_LIST, FLOATING_IP_CREATE, FLOATING_IP_DELETE, FLOATING_IP_LIST, FLOATING_IP_UPDATE, NETWORK_LIST,
    Operation, PORT_GET, PORT_LIST, PORT_TAG_DELETE, ROUTER_GET, ROUTER_LIST, ROUTER_UPDATE, SECURITY_GROUP_CREATE,
    SECURITY_GROUP_DELETE, SECURITY_GROUP_LIST, SECURITY_GROUP_RULE_CREATE, SECURITY_GROUP_RULE_DELETE, SUBNET_GET,
    SUBNET_LIST,
};
use super::session::Message;
use super::{ApiError, Client, Query, null};

/// Device IDs in one query: common proxies limit the URL of a request to 8 KiB.
const IDS_AT_ONCE: usize = 100;
/// Names in the URL of a list, of up to 255 bytes each.
const NAMES_AT_ONCE: usize = 25;

/// The device owners of router ports in subnets: plain, distributed, highly available.
const ROUTER_INTERFACES: [&str; 3] =
    ["network:router_interface", "network:router_interface_distributed", "network:ha_router_replicated_interface"];

models! {
    /// A network.
    pub(crate) struct Network {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) subnets: Vec<String>,
        #[serde(rename = "router:external")]
        pub(crate) is_external: bool,
    }

    /// A subnet.
    pub(crate) struct Subnet {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) network_id: String,
        pub(crate) cidr: String,
        pub(crate) ip_version: u8,
    }

    /// A port.
    pub(crate) struct Port {
        pub(crate) id: String,
        pub(crate) status: String,
        pub(crate) network_id: String,
        pub(crate) device_id: String,
        pub(crate) device_owner: String,
        pub(crate) mac_address: String,
        pub(crate) fixed_ips: Vec<FixedIp>,
        pub(crate) security_groups: Vec<String>,
        pub(crate) allowed_address_pairs: Vec<AddressPair>,
        /// Absent without the extension: then ports are secured.
        pub(crate) port_security_enabled: Option<bool>,
        pub(crate) tags: Vec<String>,
        pub(crate) revision_number: Option<i64>,
        pub(crate) trunk_details: Option<TrunkDetails>,
    }

    /// An address of a port.
    pub(crate) struct FixedIp {
        pub(crate) subnet_id: String,
        pub(crate) ip_address: String,
    }

    /// A range that a port may use besides its addresses. The MAC address is kept as read.
    pub(crate) struct AddressPair {
        pub(crate) ip_address: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) mac_address: Option<String>,
    }

    /// The trunk of a parent port.
    pub(crate) struct TrunkDetails {
        pub(crate) sub_ports: Vec<SubPort>,
    }

    /// A port in a trunk.
    pub(crate) struct SubPort {
        pub(crate) port_id: String,
    }

    /// A router.
    pub(crate) struct Router {
        pub(crate) id: String,
        pub(crate) routes: Vec<ExtraRoute>,
        pub(crate) external_gateway_info: Option<Gateway>,
        pub(crate) revision_number: Option<i64>,
    }

    /// The gateway of a router.
    pub(crate) struct Gateway {
        pub(crate) network_id: String,
    }

    /// A route of a router.
    #[derive(PartialOrd, Ord)]
    pub(crate) struct ExtraRoute {
        pub(crate) destination: String,
        pub(crate) nexthop: String,
    }

    /// A floating IP.
    pub(crate) struct FloatingIp {
        pub(crate) id: String,
        pub(crate) floating_ip_address: String,
        pub(crate) floating_network_id: String,
        pub(crate) port_id: Option<String>,
        pub(crate) description: String,
        pub(crate) created_at: String,
    }

    /// A security group with its rules.
    pub(crate) struct SecurityGroup {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) security_group_rules: Vec<Rule>,
    }

    /// A rule of a security group.
    pub(crate) struct Rule {
        pub(crate) id: String,
        pub(crate) direction: String,
        pub(crate) ethertype: String,
        pub(crate) protocol: String,
        pub(crate) port_range_min: Option<i64>,
        pub(crate) port_range_max: Option<i64>,
        pub(crate) remote_ip_prefix: String,
        pub(crate) remote_group_id: Option<String>,
    }
}

impl Port {
    /// The IDs of its subports, in the order of its trunk.
    pub(crate) fn subports(&self) -> impl Iterator<Item = &str> {
        self.trunk_details.iter().flat_map(|trunk| &trunk.sub_ports).map(|subport| &*subport.port_id)
    }

    /// Whether Neutron filters the traffic of the port.
    pub(crate) fn is_secured(&self) -> bool {
        self.port_security_enabled.unwrap_or(true)
    }
}

impl Client {
    /// The query for objects of this project only: an administrator sees those of all.
    pub(super) async fn of_project(&self, query: Query) -> Query {
        let project = self.session().token().await.map(|token| token.project.clone()).unwrap_or_default();
        if project.is_empty() { query } else { query.with("project_id", &project) }
    }

    /// The aliases of the extensions.
    pub(crate) async fn extensions(&self) -> Result<Vec<String>, ApiError> {
        #[derive(Deserialize)]
        struct Extension {
            #[serde(default, deserialize_with = "null")]
            alias: String,
        }
        let list: Vec<Extension> = self.list(EXTENSION_LIST, "extensions", Query::default(), "extensions").await?;
        Ok(list.into_iter().map(|extension| extension.alias).collect())
    }

    /// The networks with these IDs that are visible to the project.
    pub(crate) async fn networks_by_id(&self, ids: &[&str]) -> Result<Vec<Network>, ApiError> {
        self.by_each(NETWORK_LIST, "networks", Query::default(), "id", ids).await
    }

    /// The ports with these IDs that are visible to the project.
    pub(crate) async fn ports_by_id(&self, ids: &[&str]) -> Result<Vec<Port>, ApiError> {
        self.ports_by_each("id", ids).await
    }

    /// The ports with one of these addresses, in all networks visible to the project.
    pub(crate) async fn ports_at(&self, addresses: &[String]) -> Result<Vec<Port>, ApiError> {
        let filters: Vec<String> = addresses.iter().map(|address| format!("ip_address={address}")).collect();
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        self.ports_by_each("fixed_ips", &filters).await
    }

    /// The ports with one of these security groups.
    pub(crate) async fn ports_in(&self, groups: &[&str]) -> Result<Vec<Port>, ApiError> {
        self.ports_by_each("security_groups", groups).await
    }

    /// The ports that match one of these values, each once: one that matches several may be in several lists.
    async fn ports_by_each(&self, filter: &str, values: &[&str]) -> Result<Vec<Port>, ApiError> {
        let mut ports: Vec<Port> = self.by_each(PORT_LIST, "ports", Query::default(), filter, values).await?;
        let mut seen = BTreeSet::new();
        ports.retain(|port| seen.insert(port.id.clone()));
        Ok(ports)
    }

    /// The objects that match one of these values, in as many lists as the URL length requires.
    async fn by_each<T: DeserializeOwned>(
        &self,
        operation: Operation,
        list: &str,
        query: Query,
        filter: &str,
        values: &[&str],
    ) -> Result<Vec<T>, ApiError> {
        let key = list.replace('-', "_");
        // IPv6 addresses are escaped, and longer than IDs; names may be longer still.
        let at_once = if filter == "name" { NAMES_AT_ONCE } else { IDS_AT_ONCE / 2 };
        let lists = values.chunks(at_once).map(|some| {
            let query = query.clone().each(filter, some.iter().copied());
            self.list(operation, list, query, &key)
        });
        Ok(futures::future::try_join_all(lists).await?.into_iter().flatten().collect())
    }

    /// All networks visible to the project.
    pub(crate) async fn networks(&self) -> Result<Vec<Network>, ApiError> {
        self.list(NETWORK_LIST, "networks", Query::default(), "networks").await
    }

    /// The subnets that match, in Neutron's order.
    pub(crate) async fn subnets(&self, query: Query) -> Result<Vec<Subnet>, ApiError> {
        self.list(SUBNET_LIST, "subnets", query, "subnets").await
    }

    /// A subnet; `None` if Neutron reports that it does not exist.
    pub(crate) async fn subnet(&self, id: &str) -> Result<Option<Subnet>, ApiError> {
        self.find_by_id(SUBNET_GET, ("subnets", id), "subnet").await
    }

    /// The ports that match, in Neutron's order.
    pub(crate) async fn ports(&self, query: Query) -> Result<Vec<Port>, ApiError> {
        self.list(PORT_LIST, "ports", query, "ports").await
    }

    /// The ports of these devices. Other projects may own some of them, so the list of this project would lack them.
    pub(crate) async fn ports_of(&self, devices: &[&str]) -> Result<Vec<Port>, ApiError> {
        let lists = devices
            .chunks(IDS_AT_ONCE)
            .map(|some| self.ports(Query::default().each("device_id", some.iter().copied())));
        Ok(futures::future::try_join_all(lists).await?.into_iter().flatten().collect())
    }

    pub(crate) async fn delete_port_tag(&self, port: &str, tag: &str) -> Result<(), ApiError> {
        self.delete(PORT_TAG_DELETE, format!("ports/{port}/tags/{tag}")).await
    }

    /// A port; `None` if Neutron reports that it does not exist.
    pub(crate) async fn port(&self, id: &str) -> Result<Option<Port>, ApiError> {
        self.find_by_id(PORT_GET, ("ports", id), "port").await
    }

    pub(crate) async fn router(&self, id: &str) -> Result<Router, ApiError> {
        self.get(ROUTER_GET, format!("routers/{id}"), "router").await
    }

    /// The gateway networks of the routers connected to a subnet, if visible to the project.
    pub(crate) async fn gateways_of(&self, subnet: &str) -> Result<Vec<String>, ApiError> {
        let query = Query::default()
            .with("fixed_ips", &format!("subnet_id={subnet}"))
            .each("device_owner", ROUTER_INTERFACES.iter().copied());
        let ports = self.ports(query).await?;
        let routers: Vec<&str> = ports.iter().map(|port| &*port.device_id).collect();
        let routers: Vec<Router> = self.by_each(ROUTER_LIST, "routers", Query::default(), "id", &routers).await?;
        let gateways = routers.into_iter().filter_map(|router| router.external_gateway_info);
        Ok(gateways.map(|gateway| gateway.network_id).collect())
    }

    /// Changes a router. `action`: empty, `/add_extraroutes` or `/remove_extraroutes`.
    pub(crate) async fn update_router(
        &self,
        id: &str,
        action: &str,
        routes: &[ExtraRoute],
        revision: Option<i64>,
    ) -> Result<(), ApiError> {
        let message = Message {
            path: format!("routers/{id}{action}"),
            body: Some(json!({"router": {"routes": routes}})),
            revision,
        };
        self.write(ROUTER_UPDATE, &message).await.map(drop)
    }

    /// The floating IPs of the project that match.
    pub(crate) async fn floating_ips(&self, query: Query) -> Result<Vec<FloatingIp>, ApiError> {
        self.list(FLOATING_IP_LIST, "floatingips", self.of_project(query).await, "floatingips").await
    }

    pub(crate) async fn create_floating_ip(&self, body: &Value) -> Result<FloatingIp, ApiError> {
        let answer = self.put(FLOATING_IP_CREATE, "floatingips", json!({ "floatingip": body })).await?;
        serde_json::from_value(answer.get("floatingip").cloned().unwrap_or_default()).map_err(|_| {
            ApiError::of_kind(FLOATING_IP_CREATE, ccm_kit::call::ErrorKind::NoAnswer, "the answer has no floating IP")
        })
    }

    pub(crate) async fn update_floating_ip(&self, id: &str, changes: Value) -> Result<(), ApiError> {
        self.put(FLOATING_IP_UPDATE, &format!("floatingips/{id}"), json!({ "floatingip": changes })).await.map(drop)
    }

    pub(crate) async fn delete_floating_ip(&self, id: &str) -> Result<(), ApiError> {
        self.delete(FLOATING_IP_DELETE, format!("floatingips/{id}")).await
    }

    /// The security groups of the project with this name.
    pub(crate) async fn security_groups(&self, names: &[&str]) -> Result<Vec<SecurityGroup>, ApiError> {
        let query = self.of_project(Query::default()).await;
        self.by_each(SECURITY_GROUP_LIST, "security-groups", query, "name", names).await
    }

    /// All security groups of the project.
    pub(crate) async fn all_security_groups(&self) -> Result<Vec<SecurityGroup>, ApiError> {
        let query = self.of_project(Query::default()).await;
        self.list(SECURITY_GROUP_LIST, "security-groups", query, "security_groups").await
    }

    pub(crate) async fn create_security_group(&self, name: &str, description: &str) -> Result<SecurityGroup, ApiError> {
        let body = json!({"security_group": {"name": name, "description": description}});
        let answer = self.put(SECURITY_GROUP_CREATE, "security-groups", body).await?;
        serde_json::from_value(answer.get("security_group").cloned().unwrap_or_default()).map_err(|_| {
            ApiError::of_kind(SECURITY_GROUP_CREATE, ccm_kit::call::ErrorKind::NoAnswer, "the answer has no group")
        })
    }

    pub(crate) async fn delete_security_group(&self, id: &str) -> Result<(), ApiError> {
        self.delete(SECURITY_GROUP_DELETE, format!("security-groups/{id}")).await
    }

    /// Creates a rule; one that exists already counts as created.
    pub(crate) async fn create_rule(&self, group: &str, rule: &Rule) -> Result<(), ApiError> {
        let body = json!({"security_group_rule": {
            "security_group_id": group, "direction": rule.direction, "ethertype": rule.ethertype,
            "protocol": rule.protocol, "port_range_min": rule.port_range_min, "port_range_max": rule.port_range_max,
            "remote_ip_prefix": rule.remote_ip_prefix}});
        match self.put(SECURITY_GROUP_RULE_CREATE, "security-group-rules", body).await {
            Err(error) if error.is(&["SecurityGroupRuleExists"]) => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub(crate) async fn delete_rule(&self, id: &str) -> Result<(), ApiError> {
        self.delete(SECURITY_GROUP_RULE_DELETE, format!("security-group-rules/{id}")).await
    }
}
