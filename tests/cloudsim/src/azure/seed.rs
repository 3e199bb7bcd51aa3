//! Resources that tests create directly: groups, networks, machines, scale sets, and others that callers do not create
//! through the simulated API.

use super::compute::{INSTANCE_INTERFACES, MODEL_INTERFACES, address_of};
use super::ids::{Id, compute, network};
use super::json::{at, default, list, merge, number, set, text};
use super::kinds;
use super::operations::Write;
use super::world::World;
use serde_json::{Value, json};

/// A resource group with what a cluster needs: a network, a security group, a route table.
#[derive(Debug, Clone)]
pub struct ClusterSeed<'a> {
    pub subscription: &'a str,
    pub group: &'a str,
    pub location: &'a str,
    pub network: &'a str,
    pub subnet: &'a str,
    /// The range of the subnet.
    pub range: &'a str,
    /// A second range of the subnet, for IPv6; empty: none.
    pub range_v6: &'a str,
    pub security_group: &'a str,
    pub route_table: &'a str,
    /// Single machines, named `vm0`, `vm1`, …
    pub machines: usize,
}

impl Default for ClusterSeed<'_> {
    fn default() -> Self {
        ClusterSeed {
            subscription: "sub",
            group: "rg",
            location: "eastus",
            network: "vnet",
            subnet: "subnet",
            range: "10.240.0.0/16",
            range_v6: "",
            security_group: "nsg",
            route_table: "rt",
            machines: 0,
        }
    }
}

/// The IDs of the resources of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    pub network: String,
    pub subnet: String,
    pub security_group: String,
    pub route_table: String,
    pub machines: Vec<String>,
}

/// A virtual machine with one interface, `{name}-nic`, and one IP configuration for each family, `ipconfig1` and
/// `ipconfigv6`.
#[derive(Debug, Clone)]
pub struct MachineSeed<'a> {
    pub subscription: &'a str,
    pub group: &'a str,
    pub location: &'a str,
    pub name: &'a str,
    /// The computer name; empty: the name.
    pub computer: &'a str,
    /// The ID of the subnet; empty: `vnet`/`subnet` in the same group.
    pub subnet: &'a str,
    /// The name of its availability set in the same group, which is created if it is missing; empty: none.
    pub availability_set: &'a str,
    /// The name of its flexible scale set in the same group; empty: none.
    pub scale_set: &'a str,
    pub zone: &'a str,
    pub fault_domain: i64,
    /// Whether it has a public IP address, `{name}-ip`.
    pub public: bool,
    /// Whether it has an IPv6 address.
    pub dual: bool,
    /// Additional or replaced fields.
    pub fields: Value,
}

impl Default for MachineSeed<'_> {
    fn default() -> Self {
        MachineSeed {
            subscription: "sub",
            group: "rg",
            location: "eastus",
            name: "vm0",
            computer: "",
            subnet: "",
            availability_set: "",
            scale_set: "",
            zone: "",
            fault_domain: 0,
            public: false,
            dual: false,
            fields: Value::Null,
        }
    }
}

/// A scale set. Instances of a uniform set have the interface `nic` with `ipconfig1` (and `ipconfigv6`), IDs from 0 and the
/// computer names `{prefix}000000`, `{prefix}000001`, … in base 36. Machines of a flexible set are named
/// `{name}_{number}`, with computer names as in a uniform set.
#[derive(Debug, Clone)]
pub struct SetSeed<'a> {
    pub subscription: &'a str,
    pub group: &'a str,
    pub location: &'a str,
    pub name: &'a str,
    /// The prefix of computer names; empty: the name.
    pub prefix: &'a str,
    pub subnet: &'a str,
    pub flexible: bool,
    pub zones: &'a [&'a str],
    pub instances: usize,
    /// Whether instances have public IP addresses.
    pub public: bool,
    pub dual: bool,
    /// Additional or replaced fields.
    pub fields: Value,
}

impl Default for SetSeed<'_> {
    fn default() -> Self {
        SetSeed {
            subscription: "sub",
            group: "rg",
            location: "eastus",
            name: "pool",
            prefix: "",
            subnet: "",
            flexible: false,
            zones: &[],
            instances: 0,
            public: false,
            dual: false,
            fields: Value::Null,
        }
    }
}

impl World {
    /// Creates or replaces a resource without checks and effects on others' ETags; its group is created too. Returns its
    /// ID. Fields are as in the body of a PUT; those that begin with `_` are internal.
    pub fn put(&mut self, id: &str, fields: Value) -> String {
        let Some(id) = Id::parse(id) else { return String::new() };
        let Some(kind) = kinds::of(&id.kind()) else { return String::new() };
        self.group(&id.subscription, &id.group);
        let mut fields = World::stripped(kind, fields);
        default(&mut fields, "/location", "eastus");
        if id.parts.len() > 1 && !kind.merges {
            super::json::remove(&mut fields, "/location");
        }
        if kind.has_guid(&id) {
            let guid = self.uuid();
            default(&mut fields, "/properties/resourceGuid", guid);
        }
        let name = format!("Put{}Operation", kind.operation);
        self.besides(|world| {
            let coupled = std::mem::take(&mut world.options.coupled);
            world.begin_operation(Write { kind, id: &id, name, fields: Some(fields) });
            world.options.coupled = coupled;
        });
        id.text()
    }

    /// Removes a resource, even if it is in use. What it refers to is released.
    pub fn remove(&mut self, id: &str) {
        let Some(id) = Id::parse(id) else { return };
        let Some(row) = self.store.get(&id.key()).cloned() else { return };
        let Some(kind) = kinds::of(&row.kind) else { return };
        let inside = format!("{}/", id.key());
        let parts: Vec<String> =
            self.store.all().map(|row| row.id.text()).filter(|id| id.to_lowercase().starts_with(&inside)).collect();
        parts.iter().for_each(|part| self.remove(part));
        let name = format!("Delete{}Operation", kind.operation);
        self.besides(|world| world.begin_operation(Write { kind, id: &row.id, name, fields: None }));
    }

    /// Hides a resource from lists for some time.
    pub fn hide(&mut self, id: &str, time: std::time::Duration) {
        let shown = crate::core::clock::later(self.now(), time);
        if let Some(id) = Id::parse(id) {
            self.store.hide(&id.key(), shown);
        }
    }

    /// Sets the tenant of a subscription; the application `client` gets tokens in it. AD FS has the tenant `adfs`.
    pub fn tenant(&mut self, subscription: &str, tenant: &str) {
        self.subscriptions.insert(subscription.to_lowercase(), tenant.to_owned());
        if let Some(client) = self.identities.applications.get_mut("client") {
            client.tenants.insert(tenant.to_owned());
        }
    }

    /// Changes fields of a resource without checks: objects are merged, lists are replaced.
    pub fn alter(&mut self, id: &str, change: Value) {
        let Some(key) = Id::parse(id).map(|id| id.key()) else { return };
        let Some(row) = self.store.get(&key).cloned() else { return };
        let Some(kind) = kinds::of(&row.kind) else { return };
        let mut fields = row.fields;
        merge(&mut fields, change);
        let name = format!("Put{}Operation", kind.operation);
        self.besides(|world| world.begin_operation(Write { kind, id: &row.id, name, fields: Some(fields) }));
    }

    /// Sets the provisioning state of a resource: `Failed`, `Deleting`, …
    pub fn state(&mut self, id: &str, state: &str) {
        self.mark(id, "/properties/provisioningState", state);
        self.touch(&id.to_lowercase());
    }

    /// Sets a field of a resource and nothing else: one that writes by the API cannot set.
    fn mark(&mut self, id: &str, pointer: &str, value: impl Into<Value>) {
        if let Some(row) = self.store.get_mut(&id.to_lowercase()) {
            set(&mut row.fields, pointer, value);
        }
    }

    /// Sets the power state of a machine or instance: `running`, `stopped`, `deallocated`, …; empty: unknown to Azure.
    pub fn power(&mut self, id: &str, state: &str) {
        self.mark(id, "/_power", state);
    }

    /// A virtual network. Returns its ID.
    pub fn network(&mut self, subscription: &str, group: &str, name: &str, ranges: &[&str]) -> String {
        let id = network(subscription, group, "virtualNetworks", name).text();
        self.put(
            &id,
            json!({"properties": {"addressSpace": {"addressPrefixes": ranges}, "enableDdosProtection": false}}),
        )
    }

    /// A subnet of a network, with one range or more. Returns its ID.
    pub fn subnet(&mut self, network: &str, name: &str, ranges: &[&str], more: Value) -> String {
        let mut properties = json!({
            "privateEndpointNetworkPolicies": "Disabled", "privateLinkServiceNetworkPolicies": "Enabled",
        });
        match ranges {
            [one] => set(&mut properties, "/addressPrefix", *one),
            more => set(&mut properties, "/addressPrefixes", json!(more)),
        }
        merge(&mut properties, more);
        self.put(&format!("{network}/subnets/{name}"), json!({ "properties": properties }))
    }

    /// A resource group with a network, a security group, a route table and single machines.
    pub fn cluster(&mut self, seed: &ClusterSeed<'_>) -> Cluster {
        let ClusterSeed { subscription, group, location, .. } = *seed;
        self.group(subscription, group);
        let id = |kind: &str, name: &str| network(subscription, group, kind, name).text();
        let security_group = id("networkSecurityGroups", seed.security_group);
        let security_group =
            self.put(&security_group, json!({"location": location, "properties": {"securityRules": []}}));
        let route_table = id("routeTables", seed.route_table);
        let route_table = self.put(&route_table, json!({"location": location, "properties": {"routes": []}}));
        let mut ranges = vec![seed.range];
        ranges.extend(Some(seed.range_v6).filter(|range| !range.is_empty()));
        let network = self.network(subscription, group, seed.network, &ranges);
        let more = json!({"networkSecurityGroup": {"id": security_group}, "routeTable": {"id": route_table}});
        let subnet = self.subnet(&network, seed.subnet, &ranges, more);
        let machines = (0..seed.machines).map(|number| {
            self.machine(&MachineSeed {
                subscription,
                group,
                location,
                name: &format!("vm{number}"),
                subnet: &subnet,
                dual: !seed.range_v6.is_empty(),
                ..MachineSeed::default()
            })
        });
        let machines = machines.collect();
        Cluster { network, subnet, security_group, route_table, machines }
    }

    /// A running virtual machine with its interface. Returns its ID.
    pub fn machine(&mut self, seed: &MachineSeed<'_>) -> String {
        let MachineSeed { subscription, group, location, name, .. } = *seed;
        let interface = self.interface(seed);
        let computer = if seed.computer.is_empty() { name } else { seed.computer };
        let id = compute(subscription, group, "virtualMachines", name).text();
        let vm = self.uuid();
        let mut fields = json!({
            "location": location, "_power": "running", "_fault_domain": seed.fault_domain,
            "properties": {
                "hardwareProfile": {"vmSize": "Standard_D2s_v5"}, "osProfile": {"computerName": computer},
                "networkProfile": {"networkInterfaces": [{"id": interface, "properties": {"primary": true}}]},
            },
        });
        if !seed.zone.is_empty() {
            set(&mut fields, "/zones", json!([seed.zone]));
        }
        if !seed.availability_set.is_empty() {
            let set_id = self.availability_set(subscription, group, location, seed.availability_set);
            set(&mut fields, "/properties/availabilitySet", json!({ "id": set_id }));
        }
        if !seed.scale_set.is_empty() {
            let set_id = compute(subscription, group, "virtualMachineScaleSets", seed.scale_set).text();
            set(&mut fields, "/properties/virtualMachineScaleSet", json!({ "id": set_id }));
        }
        merge(&mut fields, if seed.fields.is_null() { json!({}) } else { seed.fields.clone() });
        let id = self.put(&id, fields);
        self.mark(&id, "/properties/vmId", vm);
        id
    }

    /// The interface of a machine. Returns its ID.
    fn interface(&mut self, seed: &MachineSeed<'_>) -> String {
        let MachineSeed { subscription, group, location, name, .. } = *seed;
        let subnet = self.subnet_of(subscription, group, seed.subnet);
        let mut configurations = vec![json!({
            "name": "ipconfig1",
            "properties": {
                "primary": true, "privateIPAddressVersion": "IPv4", "privateIPAllocationMethod": "Dynamic",
                "privateIPAddress": self.next_address(&subnet, false), "subnet": {"id": subnet},
            },
        })];
        if seed.public {
            let address = self.public_ip(subscription, group, &format!("{name}-ip"), json!({"location": location}));
            configurations.iter_mut().for_each(|one| set(one, "/properties/publicIPAddress", json!({ "id": address })));
        }
        if seed.dual {
            configurations.push(json!({
                "name": "ipconfigv6",
                "properties": {
                    "primary": false, "privateIPAddressVersion": "IPv6", "privateIPAllocationMethod": "Dynamic",
                    "privateIPAddress": self.next_address(&subnet, true), "subnet": {"id": subnet},
                },
            }));
        }
        let interface = network(subscription, group, "networkInterfaces", &format!("{name}-nic")).text();
        let mac = self.number();
        self.put(
            &interface,
            json!({
                "location": location, "_mac": mac,
                "properties": {
                    "ipConfigurations": configurations, "enableIPForwarding": true, "enableAcceleratedNetworking": false,
                    "nicType": "Standard",
                },
            }),
        );
        interface
    }

    fn availability_set(&mut self, subscription: &str, group: &str, location: &str, name: &str) -> String {
        let id = compute(subscription, group, "availabilitySets", name).text();
        if self.store.get(&id.to_lowercase()).is_some() {
            return id;
        }
        let fields = json!({
            "location": location, "sku": {"name": "Aligned"},
            "properties": {"platformUpdateDomainCount": 5, "platformFaultDomainCount": 3},
        });
        self.put(&id, fields)
    }

    fn subnet_of(&self, subscription: &str, group: &str, given: &str) -> String {
        if !given.is_empty() {
            return given.to_owned();
        }
        network(subscription, group, "virtualNetworks", "vnet").child("subnets", "subnet").text()
    }

    /// The next address of a subnet; the first of its range of this family is the fourth host.
    fn next_address(&mut self, subnet: &str, six: bool) -> String {
        let mut one = json!({"properties": {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic"}});
        if six {
            set(&mut one, "/properties/privateIPAddressVersion", "IPv6");
        }
        let _ = super::networks::assign(self, &mut one, "", None, &mut super::networks::Beside::default());
        text(&one, "/properties/privateIPAddress").to_owned()
    }

    /// A scale set with its instances. Returns its ID.
    pub fn scale_set(&mut self, seed: &SetSeed<'_>) -> String {
        let SetSeed { subscription, group, location, name, .. } = *seed;
        let subnet = self.subnet_of(subscription, group, seed.subnet);
        let prefix = if seed.prefix.is_empty() { name } else { seed.prefix };
        let mut configurations = vec![json!({
            "name": "ipconfig1",
            "properties": {"primary": true, "privateIPAddressVersion": "IPv4", "subnet": {"id": subnet}},
        })];
        if seed.public {
            let public = json!({"name": "pub1", "properties": {"idleTimeoutInMinutes": 4}});
            configurations
                .iter_mut()
                .for_each(|one| set(one, "/properties/publicIPAddressConfiguration", public.clone()));
        }
        if seed.dual {
            configurations.push(json!({
                "name": "ipconfigv6",
                "properties": {"primary": false, "privateIPAddressVersion": "IPv6", "subnet": {"id": subnet}},
            }));
        }
        let interface = json!({
            "name": "nic",
            "properties": {
                "primary": true, "enableAcceleratedNetworking": false, "enableIPForwarding": true,
                "ipConfigurations": configurations, "dnsSettings": {"dnsServers": []},
            },
        });
        let id = compute(subscription, group, "virtualMachineScaleSets", name).text();
        let unique = self.uuid();
        let mut fields = json!({
            "location": location, "_model": 1, "_next": 0,
            "sku": {"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 0},
            "properties": {
                "orchestrationMode": if seed.flexible { "Flexible" } else { "Uniform" },
                "singlePlacementGroup": false, "platformFaultDomainCount": 1,
                "virtualMachineProfile": {"osProfile": {"computerNamePrefix": prefix, "adminUsername": "azureuser"}},
            },
        });
        set(&mut fields, MODEL_INTERFACES, json!([interface]));
        if seed.flexible {
            set(&mut fields, "/properties/virtualMachineProfile/networkProfile/networkApiVersion", "2020-11-01");
        } else {
            set(&mut fields, "/properties/upgradePolicy", json!({"mode": "Manual"}));
            set(&mut fields, "/properties/overprovision", false);
        }
        if !seed.zones.is_empty() {
            set(&mut fields, "/zones", json!(seed.zones));
        }
        merge(&mut fields, if seed.fields.is_null() { json!({}) } else { seed.fields.clone() });
        let id = self.put(&id, fields);
        self.mark(&id, "/properties/uniqueId", unique);
        self.scale_out(&id, seed.instances);
        id
    }

    /// Adds running instances to a scale set, by its model: they are in the pools that the model names. Returns their IDs.
    pub fn scale_out(&mut self, set_id: &str, count: usize) -> Vec<String> {
        (0..count).filter_map(|_| self.add_instance(set_id)).collect()
    }

    fn add_instance(&mut self, set_id: &str) -> Option<String> {
        let row = self.store.get(&set_id.to_lowercase())?.clone();
        let next = number(&row.fields, "/_next").unwrap_or_default();
        let capacity = number(&row.fields, "/sku/capacity").unwrap_or_default();
        self.mark(set_id, "/_next", next + 1);
        self.mark(set_id, "/sku/capacity", capacity + 1);
        let prefix = text(&row.fields, "/properties/virtualMachineProfile/osProfile/computerNamePrefix");
        let computer = format!("{prefix}{}", base_36(next));
        let zones: Vec<&str> = super::json::texts(&row.fields, "/zones").collect();
        let at_zone = usize::try_from(next).ok().and_then(|next| next.checked_rem(zones.len()));
        let zone = at_zone.and_then(|at| zones.get(at)).copied().unwrap_or_default();
        if text(&row.fields, "/properties/orchestrationMode") == "Flexible" {
            return Some(self.add_flexible(&row, next, &computer, zone));
        }
        let interfaces = at(&row.fields, MODEL_INTERFACES).clone();
        let vm = self.uuid();
        let mut fields = json!({
            "location": text(&row.fields, "/location"), "sku": {"name": text(&row.fields, "/sku/name"), "tier": "Standard"},
            "_power": "running", "_model": number(&row.fields, "/_model"),
            "properties": {
                "osProfile": {"computerName": computer},
                "hardwareProfile": {},
            },
        });
        if zone.is_empty() {
            set(&mut fields, "/_fault_domain", next % 5);
        } else {
            set(&mut fields, "/zones", json!([zone]));
        }
        set(&mut fields, INSTANCE_INTERFACES, interfaces.clone());
        for interface in interfaces.as_array().into_iter().flatten() {
            for one in list(interface, "/properties/ipConfigurations") {
                let six = text(one, "/properties/privateIPAddressVersion") == "IPv6";
                let address = self.next_address(text(one, "/properties/subnet/id"), six);
                set(&mut fields, &address_of(interface, one), address);
                if !at(one, "/properties/publicIPAddressConfiguration").is_null() {
                    let address = self.next_external(false).to_string();
                    set(&mut fields, &address_of(interface, one).replacen("/_addresses/", "/_public/", 1), address);
                }
            }
        }
        let kept = [("/sku", at(&fields, "/sku").clone()), ("/zones", at(&fields, "/zones").clone())];
        let id = self.put(&row.id.child("virtualMachines", &next.to_string()).text(), fields);
        for (pointer, value) in kept.into_iter().filter(|(_, value)| !value.is_null()) {
            self.mark(&id, pointer, value);
        }
        self.mark(&id, "/properties/vmId", vm);
        Some(id)
    }

    fn add_flexible(&mut self, row: &super::store::Row, next: i64, computer: &str, zone: &str) -> String {
        let interface = at(&row.fields, &format!("{MODEL_INTERFACES}/0")).clone();
        let configurations = list(&interface, "/properties/ipConfigurations");
        let subnet =
            configurations.first().map(|one| text(one, "/properties/subnet/id").to_owned()).unwrap_or_default();
        let name = format!("{}_{next}", row.id.name());
        let machine = self.machine(&MachineSeed {
            subscription: &row.id.subscription,
            group: &row.id.group,
            location: text(&row.fields, "/location"),
            name: &name,
            computer,
            subnet: &subnet,
            scale_set: row.id.name(),
            zone,
            public: configurations.iter().any(|one| !at(one, "/properties/publicIPAddressConfiguration").is_null()),
            dual: configurations.len() > 1,
            ..MachineSeed::default()
        });
        let nic = network(&row.id.subscription, &row.id.group, "networkInterfaces", &format!("{name}-nic"));
        if let Some(old) = self.store.get(&nic.key()).map(|row| row.fields.clone()) {
            let mut fields = old;
            for (one, model) in super::json::each(&mut fields, "/properties/ipConfigurations").zip(configurations) {
                let pools = at(model, "/properties/loadBalancerBackendAddressPools");
                if !pools.is_null() {
                    set(one, "/properties/loadBalancerBackendAddressPools", pools.clone());
                }
            }
            self.put(&nic.text(), fields);
        }
        machine
    }

    /// Deletes a machine with its interfaces, or an instance of a scale set.
    pub fn delete_machine(&mut self, id: &str) {
        let Some(row) = Id::parse(id).and_then(|id| self.store.get(&id.key()).cloned()) else { return };
        self.remove(id);
        for interface in list(&row.fields, "/properties/networkProfile/networkInterfaces") {
            self.remove(text(interface, "/id"));
        }
        let Some(parent) = row.id.parent() else { return };
        let capacity = self.store.get(&parent.key()).and_then(|set| number(&set.fields, "/sku/capacity"));
        self.mark(&parent.text(), "/sku/capacity", (capacity.unwrap_or_default() - 1).max(0));
    }

    /// A public IP address of the Standard SKU with an address. Returns its ID.
    pub fn public_ip(&mut self, subscription: &str, group: &str, name: &str, more: Value) -> String {
        let address = self.next_external(false).to_string();
        let mut fields = json!({
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {
                "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": address,
                "idleTimeoutInMinutes": 4, "ipTags": [],
            },
        });
        merge(&mut fields, more);
        self.put(&network(subscription, group, "publicIPAddresses", name).text(), fields)
    }

    /// A prefix of public IP addresses. Returns its ID.
    pub fn public_ip_prefix(&mut self, subscription: &str, group: &str, name: &str, range: &str) -> String {
        let length = range.parse::<ipnet::IpNet>().map(|range| range.prefix_len()).unwrap_or_default();
        let fields = json!({
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {"prefixLength": length, "ipPrefix": range, "publicIPAddressVersion": "IPv4"},
        });
        self.put(&network(subscription, group, "publicIPPrefixes", name).text(), fields)
    }

    /// A managed disk. Returns its ID.
    pub fn disk(&mut self, subscription: &str, group: &str, name: &str, zone: &str) -> String {
        let mut fields = json!({
            "sku": {"name": "Premium_LRS"},
            "properties": {"diskSizeGB": 10, "diskState": "Unattached", "creationData": {"createOption": "Empty"}},
        });
        if !zone.is_empty() {
            set(&mut fields, "/zones", json!([zone]));
        }
        self.put(&compute(subscription, group, "disks", name).text(), fields)
    }
}

/// Six digits in base 36, as in the computer names of scale sets.
fn base_36(number: i64) -> String {
    let mut left = number;
    let mut digits = Vec::new();
    for _ in 0..6 {
        let digit = u32::try_from(left % 36).unwrap_or_default();
        digits.push(char::from_digit(digit, 36).unwrap_or('0').to_ascii_uppercase());
        left /= 36;
    }
    digits.into_iter().rev().collect()
}
