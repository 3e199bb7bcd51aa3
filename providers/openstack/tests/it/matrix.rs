//! Every operation, with every outcome, in every situation: see [`ccm_provider_contract::matrix`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloudsim::core::rows::Row;
use ccm_cloudsim::openstack::{Options, World};
use ccm_provider::{NodeRef, Service, ServicePort};
use ccm_provider_contract::Harness;
use ccm_provider_contract::matrix::{Kind, Known, MatrixCloud, Operation, Part, Trouble, run};
use ccm_provider_contract::watch::Effect;
use ccm_test_openstack::id;
use serde_json::Value;

use crate::bed::Bed;
use crate::contract;
use crate::scene::{INTERNAL, PREFIX};

struct Cloud {
    harness: Arc<contract::Cloud>,
    is_internal: bool,
}

fn start(is_internal: bool, config: &'static str) -> Arc<dyn MatrixCloud> {
    let bed = Bed::start(Options::default());
    bed.cloud.names(names_in);
    Arc::new(Cloud { harness: Arc::new(contract::Cloud { bed, config }), is_internal })
}

const SERIAL: &str = "provider-requires-serial-api-calls = true\ncascade-delete = false\ncreate-monitor = true";

const KINDS: [Kind; 2] = [
    Kind {
        name: "public",
        is_variant: false,
        start: || Box::pin(async { start(false, "manage-security-groups = true\ncreate-monitor = true") }),
    },
    Kind { name: "serial", is_variant: false, start: || Box::pin(async { start(true, SERIAL) }) },
];

#[test]
fn a_sample_of_the_matrix_has_only_known_failures() {
    run(&KINDS, Part::Sample, &Known::of(env!("CARGO_MANIFEST_DIR")));
}

mod long_lane {
    use super::*;

    #[test]
    fn the_whole_matrix_has_only_known_failures() {
        run(&KINDS, Part::All, &Known::of(env!("CARGO_MANIFEST_DIR")));
    }
}

/// The names and descriptions of the objects whose IDs are in the parameters of a call, and of those to which they
/// belong.
fn names_in(world: &World, params: &str) -> String {
    let rows: BTreeMap<&str, &Row> = world.tables.values().flatten().map(|(id, row)| (id.as_str(), row)).collect();
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
        parts.filter(|part| part.len() == 36).map(str::to_owned).collect()
    };
    let mut names = String::new();
    let (mut open, mut seen) = (words(params), BTreeSet::new());
    while let Some(id) = open.pop() {
        let Some(row) = rows.get(id.as_str()).filter(|_| seen.insert(id.clone())) else { continue };
        for key in ["name", "description"] {
            names = format!("{names}&{key}={}", row.text(key));
        }
        // Upwards only: a network has the ports of all balancers.
        for key in ["pool_id", "security_group_id", "loadbalancer_id", "port_id"] {
            open.extend(words(row.text(key)));
        }
        for key in ["loadbalancers", "pools"] {
            open.extend(row.list(key).iter().flat_map(|it| words(&it.to_string())));
        }
    }
    names
}

impl Cloud {
    fn all(&self, kind: &str) -> Vec<Value> {
        self.harness.bed.cloud.resources(kind)
    }

    fn balancer(&self, service: &Service) -> Option<Value> {
        let name = format!("_{}_{}", service.metadata.namespace, service.metadata.name);
        self.all("loadbalancer").into_iter().find(|balancer| balancer["name"].as_str().unwrap().ends_with(&name))
    }
}

#[async_trait]
impl MatrixCloud for Cloud {
    fn harness(&self) -> Arc<dyn Harness> {
        self.harness.clone()
    }

    /// The access rules of load balancers, as operations.
    fn table(&self) -> Vec<String> {
        let rules = ccm_provider_openstack::access_rules();
        let (_, text) = rules.iter().find(|(path, _)| path.ends_with("load-balancer.json")).unwrap();
        let rules: Vec<Value> = serde_json::from_str(text).unwrap();
        rules
            .iter()
            .map(|rule| ["service", "method", "path"].map(|key| rule[key].as_str().unwrap()))
            .map(action)
            .collect()
    }

    fn unused(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("key-manager:container_get", "no Service has a certificate"),
            ("key-manager:secret_get", "no Service has a certificate"),
            ("load-balancer:loadbalancer_healthmonitor_get", "the list has those of the project"),
            ("load-balancer:loadbalancer_member_list", "the status of a balancer has its members"),
            ("network:floating_ip_update", "no Service has an address of its user"),
            ("network:network_get", "Octavia itself calls it"),
            ("network:port_get", "no Service has a port of its user"),
            ("network:port_tag_delete", "no port has tags of an old Go program"),
            ("network:router_list", "the external network is the only one"),
        ]
    }

    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
        effect(operation, trouble)
    }

    fn names(&self, service: &Service) -> Vec<String> {
        let metadata = &service.metadata;
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        vec![format!("_{namespace}_{name}"), format!("{namespace}/{name}"), format!("-{namespace}-{name}")]
    }

    fn dress(&self, service: &mut Service) {
        if self.is_internal {
            service.metadata.annotations.insert(INTERNAL.to_owned(), "true".to_owned());
        }
    }

    fn change(&self, service: &mut Service) {
        let first = service.spec.ports[0].clone();
        let node_port = first.node_port + 1;
        service.spec.ports.push(ServicePort { name: "more".to_owned(), port: 443, node_port, ..first });
        service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
        service.spec.session_affinity = "ClientIP".to_owned();
        for (key, value) in
            [("health-monitor-delay", "7"), ("load-balancer-tags", "green"), ("timeout-client-data", "60000")]
        {
            service.metadata.annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
        }
    }

    fn has_frame(&self, service: &Service) -> bool {
        let Some(balancer) = self.balancer(service) else { return false };
        let has_address = !self.all("floatingip").iter().all(|ip| ip["port_id"] != balancer["vip_port_id"]);
        balancer["provisioning_status"] == "ACTIVE" && (self.is_internal || has_address)
    }

    /// Octavia may need minutes, and a creation may fail.
    fn shows_frame(&self, operation: &str) -> bool {
        operation == "load-balancer:loadbalancer_get"
    }

    fn members(&self, service: &Service) -> Vec<BTreeSet<String>> {
        let Some(balancer) = self.balancer(service) else { return Vec::new() };
        let members = self.all("member");
        let is_ours = |pool: &&Value| pool["loadbalancers"].to_string().contains(id(&balancer));
        let addresses = |pool: &Value| {
            let listed = pool["members"].to_string();
            let own = members.iter().filter(|member| listed.contains(id(member)));
            own.map(|member| member["address"].as_str().unwrap().to_owned()).collect()
        };
        self.all("pool").iter().filter(is_ours).map(addresses).collect()
    }

    fn member(&self, node: &NodeRef) -> String {
        node.addresses[0].address.to_string()
    }

    fn moves_members(&self, operation: &str) -> bool {
        // The status of a balancer has its members, and only the tags of a listener show whose they are.
        let needed =
            ["_member", "_pool_list", "_listener_list", "_status_get", "loadbalancer_list", "loadbalancer_get"];
        needed.iter().any(|word| operation.contains(word))
    }

    /// Neutron refuses no filter because of one of its values, and a port has one list of groups for all Services.
    fn divides(&self, operation: &str) -> bool {
        !operation.starts_with("network:") || !(operation.ends_with("_list") || operation == "network:port_update")
    }

    /// An administrator repairs balancers in ERROR.
    fn repair(&self) {
        for kind in ["loadbalancer", "listener", "pool", "member", "healthmonitor"] {
            for object in self.all(kind) {
                self.harness.bed.cloud.world(|world| {
                    let row = world.row_mut(kind, id(&object)).unwrap();
                    if row.text("provisioning_status") == "ERROR" {
                        row.set("provisioning_status", "ACTIVE");
                    }
                });
            }
        }
    }
}

/// The name of the operation of a request.
fn action([service, method, path]: [&str; 3]) -> String {
    let segments: Vec<&str> = path.split('/').skip(2).filter(|segment| *segment != "lbaas").collect();
    let is_one = segments.last() == Some(&"*");
    let kinds: Vec<&str> = segments.iter().filter(|segment| **segment != "*").copied().collect();
    let kind = match *kinds {
        ["loadbalancers", "status"] => "loadbalancer_status".to_owned(),
        ["loadbalancers"] => "loadbalancer".to_owned(),
        ["ports", "tags"] => "port_tag".to_owned(),
        ["floatingips"] => "floating_ip".to_owned(),
        ["pools", "members"] if method == "PUT" && !is_one => "loadbalancer_members".to_owned(),
        [.., kind] => {
            let one = kind.trim_end_matches('s').replace('-', "_");
            if service == "load-balancer" { format!("loadbalancer_{one}") } else { one }
        }
        [] => String::new(),
    };
    let verb = match (method, is_one) {
        ("GET", false) if kinds.last() == Some(&"status") => "get",
        ("GET", false) => "list",
        ("GET", true) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        _ => "delete",
    };
    format!("{service}:{kind}_{verb}")
}

/// The answers of the services, as in their API references.
fn effect(operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
    let name = operation.name.as_str();
    let is_octavia = name.starts_with("load-balancer:");
    let code = |status, code, message| Ok(Effect::code(status, code, message));
    let is_creation = name.ends_with("_create");
    match trouble {
        Trouble::Denied => Ok(Effect::Denied),
        Trouble::Refused if is_octavia => code(400, "", "Validation failure: it is not possible."),
        Trouble::Refused => code(400, "HTTPBadRequest", "Invalid input: it is not possible."),
        Trouble::NotFound if !operation.writes => {
            Err("a read that denies an existing object is a stale read, which has tests of its own")
        }
        Trouble::NotFound if name.ends_with("_delete") => Err("the removal of a missing object is done"),
        Trouble::NotFound if is_octavia => code(404, "", "Subnet 5eb5a7f2 not found."),
        Trouble::NotFound => code(404, "NetworkNotFound", "Network 5eb5a7f2 could not be found."),
        Trouble::Conflict if name.ends_with("_get") || name.ends_with("_list") => Err("a read does not conflict"),
        Trouble::Conflict if is_octavia && is_creation => {
            code(409, "", "Another one on this Load Balancer is already using protocol_port 80")
        }
        Trouble::Conflict if is_octavia => Err("changes of one balancer exclude each other: it is busy"),
        Trouble::Conflict if name.ends_with("_delete") => code(409, "SecurityGroupInUse", "Security Group x in use."),
        Trouble::Conflict if is_creation => code(409, "IpAddressGenerationFailure", "No more IP addresses available."),
        Trouble::Conflict => code(412, "RevisionNumberConstraintFailed", "Constrained to 3, but current revision is 4"),
        Trouble::Busy if name.ends_with(":loadbalancer_create") => Err("a new balancer is not busy"),
        Trouble::Busy if is_octavia && operation.writes => {
            code(409, "", "Load Balancer x is immutable and cannot be updated.")
        }
        Trouble::Busy => Err("only balancers are busy"),
        Trouble::Quota if is_octavia && is_creation => code(403, "", "Quota has been met for resources: x"),
        Trouble::Quota if is_creation => code(409, "OverQuota", "Quota exceeded for resources: ['x']."),
        Trouble::Quota => Err("only creations have a quota"),
        Trouble::Throttled => Ok(Effect::Throttled),
        Trouble::Server => code(500, "HTTPInternalServerError", "Request Failed: internal server error"),
        Trouble::Html => Ok(Effect::Html),
        Trouble::Lost => Ok(Effect::AnswerLost),
        Trouble::FailsLater if name.ends_with(":loadbalancer_delete") => Err("a deletion does not fail later"),
        Trouble::FailsLater if is_octavia && operation.writes => {
            Ok(Effect::FailsLater { status: 500, code: "ERROR".to_owned(), message: "ERROR".to_owned() })
        }
        Trouble::FailsLater => Err("only changes of balancers end later"),
        Trouble::Hangs => Ok(Effect::Hangs),
        Trouble::Stops => Ok(Effect::Served),
        Trouble::Half if name.ends_with("_list") && operation.continued => {
            code(500, "HTTPInternalServerError", "Request Failed: internal server error")
        }
        Trouble::Half if name.ends_with("_list") => Ok(Effect::AnswerCut),
        Trouble::Half => Err("only lists have pages"),
    }
}
