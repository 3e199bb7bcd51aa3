//! Objects that tests create directly: projects, networks, servers and others that callers do not create through the
//! simulated API.

use super::World;
use super::keystone::{Credential, User};
use super::neutron::{addresses, groups, ports, stamp};
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A new subnet. The default is an IPv4 range.
#[derive(Debug, Clone, Default)]
pub struct SubnetSeed<'a> {
    pub network: &'a str,
    pub name: &'a str,
    pub cidr: &'a str,
    pub tags: &'a [&'a str],
    /// The first and last address of the pool; `None`: all but the first and the last.
    pub pool: Option<(&'a str, &'a str)>,
}

/// A new server.
#[derive(Debug, Clone, Default)]
pub struct ServerSeed<'a> {
    pub project: &'a str,
    pub name: &'a str,
    /// The flavor; empty: the name of a missing flavor.
    pub flavor: &'a str,
    /// The subnets; the server gets a port for each network, with an address in each of its subnets.
    pub subnets: &'a [&'a str],
    /// The availability zone; empty: `nova`.
    pub zone: &'a str,
    /// Additional or replaced fields of the server: `status`, `metadata`, `accessIPv4`, `OS-EXT-SRV-ATTR:host`, …
    pub fields: Value,
}

/// Times of Barbican have no time zone, and its clients refuse one.
const BARBICAN_TIME: &str = "%Y-%m-%dT%H:%M:%S";

/// Fields of a JSON object.
fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}

impl World {
    /// A project with its default security group; returns its ID.
    pub fn project(&mut self, name: &str) -> String {
        let id = self.hex(32);
        self.identity.projects.insert(id.clone(), name.to_owned());
        groups::make(self, &id, object(json!({"name": "default", "description": "Default security group"})));
        id
    }

    /// A user with these roles in a project (or in the domain `default`); returns its ID.
    pub fn user(&mut self, name: &str, password: &str, scope: &str, roles: &[&str]) -> String {
        let id = self.hex(32);
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let roles = BTreeMap::from([(scope.to_owned(), roles)]);
        self.identity.users.insert(id.clone(), User { name: name.to_owned(), password: password.to_owned(), roles });
        id
    }

    /// An application credential of a user; returns its ID.
    pub fn application_credential(&mut self, user: &str, project: &str, name: &str, secret: &str) -> String {
        let id = self.hex(32);
        let credential = Credential {
            name: name.to_owned(),
            secret: secret.to_owned(),
            user: user.to_owned(),
            project: project.to_owned(),
        };
        self.identity.credentials.insert(id.clone(), credential);
        id
    }

    /// A trust that lets a user act in a project; returns its ID.
    pub fn trust(&mut self, trustee: &str, project: &str) -> String {
        let id = self.hex(32);
        self.identity.trusts.insert(id.clone(), (project.to_owned(), trustee.to_owned()));
        id
    }

    /// A network; `fields` override the defaults: `router:external`, `shared`, `tags`, … Returns its ID.
    pub fn network(&mut self, project: &str, name: &str, fields: Value) -> String {
        let stamp = stamp(self);
        let base = json!({
            "name": name, "tenant_id": project, "project_id": project, "admin_state_up": true, "mtu": 1500,
            "status": "ACTIVE", "subnets": [], "shared": false, "availability_zone_hints": [], "availability_zones": [],
            "ipv4_address_scope": null, "ipv6_address_scope": null, "router:external": false, "description": "",
            "port_security_enabled": true, "qos_policy_id": null, "tags": [], "created_at": stamp,
            "updated_at": stamp, "revision_number": 2,
        });
        let mut fields = object(fields);
        if fields.get("router:external") == Some(&json!(true)) {
            fields.entry("is_default").or_insert(json!(false));
        }
        self.add("network", base, fields)
    }

    /// A subnet; returns its ID.
    pub fn subnet(&mut self, seed: &SubnetSeed<'_>) -> String {
        let stamp = stamp(self);
        let network = self.row("network", seed.network);
        let project = network.map(|network| network.text("project_id").to_owned()).unwrap_or_default();
        let external = network.is_some_and(|network| network.is("router:external"));
        let range = seed.cidr.parse::<IpNet>().ok();
        let pools = match seed.pool {
            Some((start, end)) => json!([{"start": start, "end": end}]),
            None => range.map(addresses::default_pools).unwrap_or_default(),
        };
        let six = range.is_some_and(|range| range.addr().is_ipv6());
        let base = json!({
            "name": seed.name, "project_id": project, "tenant_id": project, "network_id": seed.network,
            "ip_version": if six { 6 } else { 4 }, "subnetpool_id": null, "enable_dhcp": true, "ipv6_ra_mode": null,
            "ipv6_address_mode": null, "gateway_ip": range.map(addresses::gateway), "cidr": seed.cidr,
            "allocation_pools": pools, "host_routes": [], "dns_nameservers": [], "description": "",
            "router:external": external, "service_types": [], "tags": seed.tags, "created_at": stamp,
            "updated_at": stamp, "revision_number": 0,
        });
        let id = self.add("subnet", base, Map::new());
        if let Some(Value::Array(subnets)) =
            self.row_mut("network", seed.network).and_then(|network| network.fields.get_mut("subnets"))
        {
            subnets.push(json!(id));
        }
        id
    }

    /// A router between subnets, with a gateway in the external network, if any; returns its ID.
    pub fn router(&mut self, project: &str, name: &str, external: Option<&str>, subnets: &[&str]) -> String {
        let stamp = stamp(self);
        let outside = external.and_then(|network| {
            let subnet = self.row("network", network)?.texts("subnets").next()?.to_owned();
            let address = addresses::take(self, &subnet, None)?;
            let fixed = json!([{"subnet_id": subnet, "ip_address": address}]);
            Some(json!({"network_id": network, "external_fixed_ips": fixed, "enable_snat": true}))
        });
        let base = json!({
            "name": name, "project_id": project, "tenant_id": project, "admin_state_up": true, "status": "ACTIVE",
            "external_gateway_info": outside, "description": "", "availability_zones": [], "availability_zone_hints": [],
            "routes": [], "flavor_id": null, "tags": [], "created_at": stamp, "updated_at": stamp, "revision_number": 3,
            "_gw_port_id": self.uuid(),
        });
        let id = self.add("router", base, Map::new());
        for subnet in subnets {
            let address = self.row("subnet", subnet).and_then(|row| row.text("gateway_ip").parse::<IpAddr>().ok());
            let with = json!({
                "project_id": project, "device_id": id, "device_owner": "network:router_interface",
                "port_security_enabled": false, "status": "ACTIVE",
            });
            ports::make(self, &[(subnet, address)], object(with));
        }
        id
    }

    /// A flavor of Nova with this ID.
    pub fn flavor(&mut self, id: &str, name: &str) {
        let base = json!({
            "id": id, "name": name, "ram": 512, "disk": 1, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
            "OS-FLV-DISABLED:disabled": false, "vcpus": 1, "os-flavor-access:is_public": true, "rxtx_factor": 1.0,
        });
        self.add("flavor", base, Map::new());
    }

    /// A port with a free address in each of these subnets of one network. `fields` override the defaults:
    /// `trunk_details`, `port_security_enabled`, `status`, … Returns its ID, or `None` if a subnet is full.
    pub fn port(&mut self, project: &str, subnets: &[&str], fields: Value) -> Option<String> {
        let groups: Vec<String> = self
            .table("security_group")
            .values()
            .filter(|group| group.text("project_id") == project && group.text("name") == "default")
            .map(|group| group.id().to_owned())
            .collect();
        let mut with = object(json!({"project_id": project, "security_groups": groups}));
        with.extend(object(fields));
        let subnets: Vec<(&str, Option<IpAddr>)> = subnets.iter().map(|subnet| (*subnet, None)).collect();
        ports::make(self, &subnets, with)
    }

    /// A server with its ports; returns its ID.
    pub fn server(&mut self, seed: &ServerSeed<'_>) -> String {
        let id = self.uuid();
        let zone = if seed.zone.is_empty() { "nova" } else { seed.zone };
        let mut networks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for subnet in seed.subnets {
            let network = self.row("subnet", subnet).map(|row| row.text("network_id").to_owned()).unwrap_or_default();
            networks.entry(network).or_default().push(subnet);
        }
        let mut addresses = Map::new();
        for (network, subnets) in networks {
            let fields = json!({"device_id": id, "device_owner": format!("compute:{zone}"), "status": "ACTIVE"});
            let Some(port) = self.port(seed.project, &subnets, fields) else { continue };
            let name = self.row("network", &network).map(|row| row.text("name").to_owned()).unwrap_or_default();
            let port = self.row("port", &port);
            let mac = port.map(|port| port.text("mac_address").to_owned()).unwrap_or_default();
            let fixed = port.map(|port| port.list("fixed_ips")).unwrap_or_default();
            let shown = fixed.iter().filter_map(|fixed| fixed.get("ip_address")?.as_str()).map(|address| {
                let version = if address.contains(':') { 6 } else { 4 };
                json!({"version": version, "addr": address, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": mac})
            });
            addresses.insert(name, shown.collect());
        }
        let flavor = self.row("flavor", seed.flavor).map(|row| Value::Object(row.fields.clone()));
        let stamp = stamp(self);
        let image = self.uuid();
        let bookmark = json!([{"rel": "bookmark", "href": format!("{}/compute/images/{image}", self.url)}]);
        let image = json!({"id": image, "links": bookmark});
        let base = json!({
            "id": id, "name": seed.name, "status": "ACTIVE", "accessIPv4": "", "accessIPv6": "", "addresses": addresses,
            "created": stamp, "updated": stamp, "hostId": self.hex(56), "image": image, "metadata": {},
            "tenant_id": seed.project, "user_id": "", "OS-DCF:diskConfig": "MANUAL",
            "progress": 0, "OS-EXT-AZ:availability_zone": zone, "config_drive": "", "key_name": null,
            "OS-SRV-USG:launched_at": self.stamp("%Y-%m-%dT%H:%M:%S.000000"), "OS-SRV-USG:terminated_at": null, "security_groups": [{"name": "default"}],
            "OS-EXT-STS:task_state": null, "OS-EXT-STS:vm_state": "active", "OS-EXT-STS:power_state": 1,
            "os-extended-volumes:volumes_attached": [], "OS-EXT-SRV-ATTR:host": "host-1",
            "_flavor": flavor.unwrap_or_else(|| json!({"id": seed.flavor, "name": seed.flavor})),
        });
        self.add("server", base, object(seed.fields.clone()))
    }

    /// Removes a server and its ports.
    pub fn delete_server(&mut self, id: &str) {
        self.remove("server", id);
        let own: Vec<String> = self
            .table("port")
            .values()
            .filter(|port| port.text("device_id") == id)
            .map(|port| port.id().to_owned())
            .collect();
        for port in own {
            ports::remove(self, &port);
        }
    }

    /// A container of Barbican; returns its ID.
    pub fn container(&mut self, project: &str) -> String {
        let id = self.uuid();
        let reference = format!("{}/key-manager/v1/containers/{id}", self.url);
        let base = json!({
            "id": id, "project_id": project, "name": "tls", "status": "ACTIVE", "type": "certificate",
            "container_ref": reference, "created": self.stamp(BARBICAN_TIME),
        });
        self.add("container", base, Map::new())
    }

    /// A secret of Barbican; returns its ID.
    pub fn secret(&mut self, project: &str) -> String {
        let id = self.uuid();
        let reference = format!("{}/key-manager/v1/secrets/{id}", self.url);
        let base = json!({
            "id": id, "project_id": project, "name": "tls", "status": "ACTIVE", "secret_ref": reference, "created": self.stamp(BARBICAN_TIME),
        });
        self.add("secret", base, Map::new())
    }

    /// A volume of Cinder in an availability zone; returns its ID.
    pub fn volume(&mut self, project: &str, zone: &str) -> String {
        let base = json!({
            "project_id": project, "name": "", "status": "in-use", "availability_zone": zone, "size": 1,
            "created_at": stamp(self), "attachments": [], "metadata": {}, "volume_type": null, "bootable": "false",
        });
        self.add("volume", base, Map::new())
    }
}
