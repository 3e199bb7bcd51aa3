//! Objects that tests create directly: projects, networks, instances and others that callers do not create through the
//! simulated API.

use super::kinds::{Fields, Kind};
use super::networks::fields;
use super::places::{Spot, link, region_of, unlink};
use super::world::{World, set};
use super::{kinds, verbs};
use serde_json::{Value, json};

/// A new instance.
#[derive(Debug, Clone, Default)]
pub struct InstanceSeed<'a> {
    pub project: &'a str,
    pub zone: &'a str,
    pub name: &'a str,
    pub subnetwork: &'a str,
    pub tags: &'a [&'a str],
    /// Whether it has an external address.
    pub external: bool,
    /// The name of a secondary range and the length of the alias range in it: `("pods", 24)`.
    pub alias: Option<(&'a str, u8)>,
    /// Additional or replaced fields: `status`, `machineType`, `networkInterfaces`, …
    pub fields: Value,
}

/// A project with a network, a subnetwork and instances in zones of one region.
#[derive(Debug, Clone)]
pub struct ClusterSeed<'a> {
    pub project: &'a str,
    /// The project of the network; empty: the same project.
    pub network_project: &'a str,
    pub network: &'a str,
    pub subnetwork: &'a str,
    /// The range of the subnetwork.
    pub range: &'a str,
    /// The secondary range `pods` of the subnetwork.
    pub pods: &'a str,
    /// The zones, in which instances are created in turn.
    pub zones: &'a [&'a str],
    /// The number of instances, named `n1`, `n2`, ….
    pub nodes: usize,
    pub tags: &'a [&'a str],
}

impl Default for ClusterSeed<'_> {
    fn default() -> Self {
        ClusterSeed {
            project: "p",
            network_project: "",
            network: "default",
            subnetwork: "sub",
            range: "10.0.0.0/16",
            pods: "10.64.0.0/10",
            zones: &["us-central1-b"],
            nodes: 1,
            tags: &["k8s-node"],
        }
    }
}

/// The paths of the objects of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    pub network: String,
    pub subnetwork: String,
    pub instances: Vec<String>,
}

impl World {
    /// Creates a project, unless it exists.
    pub fn project(&mut self, id: &str) {
        if !self.projects.contains_key(id) {
            let number = 100_000_000_000 + self.number() * 7919;
            self.projects.insert(id.to_owned(), number);
        }
    }

    /// Creates an object without checks. Returns its path.
    pub fn put(&mut self, path: &str, given: Value) -> String {
        let Some((kind, spot)) = Spot::parse(path).and_then(|spot| Some((kinds::of(&spot)?, spot))) else {
            return String::new();
        };
        self.project(&spot.project);
        self.add(kind, &spot, fields(given))
    }

    fn add(&mut self, kind: &Kind, spot: &Spot, fields: Fields) -> String {
        self.besides(|world| world.create(kind, spot, fields));
        spot.key()
    }

    /// All stored objects of these collections by path, with internal fields but without the fields that the service
    /// assigns.
    pub fn dump(&self, collections: &[&str]) -> Value {
        let assigned = ["kind", "id", "creationTimestamp", "name", "selfLink", "region", "zone"];
        let objects = collections.iter().flat_map(|collection| self.store.all(collection)).map(|(key, row)| {
            let fields = row.fields.iter().filter(|(name, _)| !assigned.contains(&name.as_str()));
            (key.to_owned(), fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Value>())
        });
        json!({"objects": objects.collect::<Value>(), "external": self.external})
    }

    /// Replaces the objects by those of a dump.
    pub fn restore(&mut self, dump: &Value) {
        for (path, fields) in dump.get("objects").and_then(Value::as_object).into_iter().flatten() {
            self.put(path, fields.clone());
        }
        // The external addresses of these objects are in use.
        for (tier, count) in dump.get("external").and_then(Value::as_object).into_iter().flatten() {
            let own = self.external.entry(tier.clone()).or_default();
            *own = (*own).max(count.as_u64().unwrap_or_default());
        }
    }

    /// Removes an object, even if it is in use.
    pub fn remove(&mut self, path: &str) {
        let due = self.at_once();
        self.store.remove(path, due);
    }

    /// A network; with `auto` the service creates its subnetworks. Returns its path.
    pub fn network(&mut self, project: &str, name: &str, auto: bool) -> String {
        self.put(
            &format!("projects/{project}/global/networks/{name}"),
            json!({
                "autoCreateSubnetworks": auto, "mtu": 1460, "routingConfig": {"routingMode": "REGIONAL"},
                "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
            }),
        )
    }

    /// A legacy network without subnetworks. Returns its path.
    pub fn legacy_network(&mut self, project: &str, name: &str, range: &str) -> String {
        self.put(&format!("projects/{project}/global/networks/{name}"), json!({"IPv4Range": range, "mtu": 1460}))
    }

    /// A subnetwork of a network, with secondary ranges by name. Returns its path.
    pub fn subnetwork(
        &mut self,
        network: &str,
        region: &str,
        name: &str,
        range: &str,
        secondary: &[(&str, &str)],
    ) -> String {
        let project = network.split('/').nth(1).unwrap_or_default().to_owned();
        let ranges: Vec<Value> =
            secondary.iter().map(|(name, range)| json!({"rangeName": name, "ipCidrRange": range})).collect();
        let gateway = range.parse::<ipnet::IpNet>().ok().and_then(|range| range.hosts().next());
        let fingerprint = self.fingerprint();
        self.put(
            &format!("projects/{project}/regions/{region}/subnetworks/{name}"),
            json!({
                "network": link(network), "ipCidrRange": range, "gatewayAddress": gateway, "privateIpGoogleAccess": false,
                "secondaryIpRanges": if ranges.is_empty() { Value::Null } else { json!(ranges) }, "fingerprint": fingerprint,
                "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS", "purpose": "PRIVATE", "stackType": "IPV4_ONLY",
            }),
        )
    }

    /// A running instance. Returns its path, or `None` if its subnetwork is full.
    pub fn instance(&mut self, seed: &InstanceSeed<'_>) -> Option<String> {
        let InstanceSeed { project, zone, name, subnetwork, .. } = *seed;
        self.project(project);
        let spot = Spot::parse(&format!("projects/{project}/zones/{zone}/instances/{name}"))?;
        let address = self.free_address(subnetwork)?;
        let network = self.store.get(subnetwork)?.text("network").to_owned();
        let mut interface = json!({
            "kind": "compute#networkInterface", "name": "nic0", "network": network, "subnetwork": link(subnetwork),
            "networkIP": address, "stackType": "IPV4_ONLY", "fingerprint": self.fingerprint(),
        });
        if seed.external {
            let address = self.external_address("PREMIUM");
            let config = json!({
                "kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "name": "External NAT", "natIP": address,
                "networkTier": "PREMIUM",
            });
            set(&mut interface, "accessConfigs", json!([config]));
        }
        if let Some((range, length)) = seed.alias {
            let wanted = json!([{"ipCidrRange": format!("/{length}"), "subnetworkRangeName": range}]);
            let own = fields(interface.clone());
            let ranges = super::ip::alias_ranges(self, &spot.key(), &own, &wanted).ok()?;
            set(&mut interface, "aliasIpRanges", ranges);
        }
        let machine = link(&format!("projects/{project}/zones/{zone}/machineTypes/e2-standard-2"));
        let mut base = fields(json!({
            "tags": {"items": seed.tags, "fingerprint": self.fingerprint()}, "machineType": machine, "status": "RUNNING",
            "canIpForward": true, "networkInterfaces": [interface], "cpuPlatform": "Intel Broadwell",
            "metadata": {"kind": "compute#metadata", "fingerprint": self.fingerprint()}, "fingerprint": self.fingerprint(),
            "labelFingerprint": self.fingerprint(), "lastStartTimestamp": self.stamp(self.now()), "deletionProtection": false,
            "startRestricted": false,
        }));
        if seed.tags.is_empty()
            && let Some(Value::Object(tags)) = base.get_mut("tags")
        {
            tags.remove("items");
        }
        verbs::merge(&mut base, fields(seed.fields.clone()));
        Some(self.add(kinds::of(&spot)?, &spot, base))
    }

    /// A project with a network, a subnetwork and instances in alternating zones.
    pub fn cluster(&mut self, seed: &ClusterSeed<'_>) -> Cluster {
        let owner = if seed.network_project.is_empty() { seed.project } else { seed.network_project };
        self.project(seed.project);
        self.project(owner);
        let network = self.network(owner, seed.network, false);
        let region = region_of(seed.zones.first().copied().unwrap_or_default()).to_owned();
        let subnetwork = self.subnetwork(&network, &region, seed.subnetwork, seed.range, &[("pods", seed.pods)]);
        let zones = seed.zones.iter().cycle().take(seed.nodes);
        let instances = zones.enumerate().filter_map(|(number, zone)| {
            let name = format!("n{}", number + 1);
            let seed = InstanceSeed {
                project: seed.project,
                zone,
                name: &name,
                subnetwork: &subnetwork,
                tags: seed.tags,
                ..InstanceSeed::default()
            };
            self.instance(&seed)
        });
        let instances = instances.collect();
        Cluster { network, subnetwork, instances }
    }

    /// A disk in a zone. Returns its path.
    pub fn disk(&mut self, project: &str, zone: &str, name: &str) -> String {
        let kind = link(&format!("projects/{project}/zones/{zone}/diskTypes/pd-standard"));
        self.put(
            &format!("projects/{project}/zones/{zone}/disks/{name}"),
            json!({"sizeGb": "10", "status": "READY", "type": kind, "physicalBlockSizeBytes": "4096"}),
        )
    }

    /// A disk in two zones of a region. Returns its path.
    pub fn region_disk(&mut self, project: &str, region: &str, name: &str, zones: &[&str]) -> String {
        let kind = link(&format!("projects/{project}/regions/{region}/diskTypes/pd-standard"));
        let zones: Vec<String> = zones.iter().map(|zone| link(&format!("projects/{project}/zones/{zone}"))).collect();
        self.put(
            &format!("projects/{project}/regions/{region}/disks/{name}"),
            json!({
                "sizeGb": "200", "status": "READY", "type": kind, "replicaZones": zones, "physicalBlockSizeBytes": "4096",
            }),
        )
    }

    /// Deletes an instance and its membership in instance groups. `unverified`: target pools keep it.
    pub fn delete_instance(&mut self, path: &str) {
        self.remove(path);
        let groups: Vec<String> = self
            .store
            .all("instanceGroups")
            .filter(|(_, row)| row.texts("_members").any(|member| member == path))
            .map(|(key, _)| key.to_owned())
            .collect();
        for group in groups {
            if let Some(row) = self.store.get_mut(&group) {
                let left: Vec<String> =
                    row.texts("_members").filter(|member| *member != path).map(str::to_owned).collect();
                row.set("_members", left);
            }
        }
    }

    /// The fields of an object, including internal ones; `None` if it does not exist.
    pub fn object(&self, path: &str) -> Option<&Fields> {
        self.store.get(unlink(path)).map(|row| &row.fields)
    }
}
