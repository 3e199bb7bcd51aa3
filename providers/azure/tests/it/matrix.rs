//! Every operation, with every outcome, in every situation: see [`ccm_provider_contract::matrix`].

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloudsim::azure::Options;
use ccm_provider::{Service, ServicePort};
use ccm_provider_contract::Harness;
use ccm_provider_contract::matrix::{Kind, Known, MatrixCloud, Operation, Part, Trouble, run};
use ccm_provider_contract::watch::{Call, Effect};
use serde_json::{Value, json};

use crate::balancers::{BY_ADDRESS, items};
use crate::bed::{Bed, GROUP};
use crate::contract;

const DOMAIN: &str = "service.beta.kubernetes.io/";

struct Cloud {
    harness: Arc<contract::Cloud>,
    is_internal: bool,
}

fn start(is_internal: bool, more: &'static str) -> Arc<dyn MatrixCloud> {
    // Descriptions and answers are checked by the other tests, at a cost.
    let bed = Bed::start(Options { check: false, page: 2, ..Options::default() });
    Arc::new(Cloud { harness: Arc::new(contract::Cloud { bed, more }), is_internal })
}

const KINDS: [Kind; 3] = [
    Kind { name: "addresses", is_variant: false, start: || Box::pin(async { start(false, BY_ADDRESS) }) },
    Kind { name: "interfaces", is_variant: true, start: || Box::pin(async { start(false, "") }) },
    Kind { name: "internal", is_variant: true, start: || Box::pin(async { start(true, BY_ADDRESS) }) },
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

impl Cloud {
    fn balancer(&self) -> Value {
        let name = if self.is_internal { "kubernetes-internal" } else { "kubernetes" };
        self.harness.bed.cloud.object(&format!("{GROUP}/Microsoft.Network/loadBalancers/{name}"))
    }
}

#[async_trait]
impl MatrixCloud for Cloud {
    fn harness(&self) -> Arc<dyn Harness> {
        self.harness.clone()
    }

    /// The actions of the role for load balancers, without those for objects that requests name.
    fn table(&self) -> Vec<String> {
        let roles = ccm_provider_azure::custom_roles();
        let (_, text) = roles.iter().find(|(path, _)| path.ends_with("load-balancer.json")).unwrap();
        let role: Value = serde_json::from_str(text).unwrap();
        let actions = role["Actions"].as_array().unwrap().iter().map(|action| action.as_str().unwrap().to_owned());
        actions.filter(|action| !action.ends_with("/action")).collect()
    }

    fn entry(&self, operation: &str) -> String {
        let (service, action) = operation.split_once(':').unwrap_or_default();
        let (resource, verb) = action.split_once('.').unwrap_or_default();
        let kind = match resource {
            "backendAddressPools" => "loadBalancers/backendAddressPools",
            "subnets" => "virtualNetworks/subnets",
            "operations" | "operationResults" => "locations/operations",
            "virtualMachineScaleSetVMs" => "virtualMachineScaleSets/virtualMachines",
            "virtualMachineScaleSetInterfaces" => "virtualMachineScaleSets/networkInterfaces",
            "privateEndpointConnections" => "privateLinkServices/privateEndpointConnections",
            resource => resource,
        };
        let provider = if service == "network" { "Microsoft.Network" } else { "Microsoft.Compute" };
        let verb = match verb {
            "put" => "write",
            "delete" => "delete",
            _ => "read",
        };
        format!("{provider}/{kind}/{verb}")
    }

    fn unused(&self) -> &'static [(&'static str, &'static str)] {
        const MACHINES: &str = "the nodes are no instances of scale sets";
        const LINK: &str = "no Service has a private link service";
        &[
            ("Microsoft.Compute/locations/operations/read", MACHINES),
            ("Microsoft.Compute/virtualMachineScaleSets/read", MACHINES),
            ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read", MACHINES),
            ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write", MACHINES),
            ("Microsoft.Compute/virtualMachineScaleSets/write", MACHINES),
            ("Microsoft.Network/loadBalancers/backendAddressPools/delete", "the pools go with their load balancer"),
            ("Microsoft.Network/privateLinkServices/delete", LINK),
            ("Microsoft.Network/privateLinkServices/privateEndpointConnections/delete", LINK),
            ("Microsoft.Network/privateLinkServices/write", LINK),
            ("Microsoft.Network/publicIPPrefixes/read", "no Service names a prefix"),
            ("Microsoft.Network/virtualNetworks/subnets/write", LINK),
        ]
    }

    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
        effect(operation, trouble)
    }

    fn dress(&self, service: &mut Service) {
        if self.is_internal {
            let key = format!("{DOMAIN}azure-load-balancer-internal");
            service.metadata.annotations.insert(key, "true".to_owned());
        }
    }

    fn change(&self, service: &mut Service) {
        let first = service.spec.ports[0].clone();
        let node_port = first.node_port + 1;
        service.spec.ports.push(ServicePort { name: "more".to_owned(), port: 443, node_port, ..first });
        service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
        service.spec.session_affinity = "ClientIP".to_owned();
        let key = format!("{DOMAIN}azure-load-balancer-tcp-idle-timeout");
        service.metadata.annotations.insert(key, "7".to_owned());
    }

    fn has_frame(&self, service: &Service) -> bool {
        let name = service.default_load_balancer_name();
        items(&self.balancer(), "frontendIPConfigurations").iter().any(|frontend| frontend["name"] == *name)
    }

    /// All Services share the pools.
    fn members(&self, service: &Service) -> Vec<BTreeSet<String>> {
        if !self.has_frame(service) {
            return Vec::new();
        }
        let pool = |pool: &Value| {
            let named = items(pool, "loadBalancerBackendAddresses").into_iter().map(|it| it["name"].clone());
            let of_interface = |it: &Value| {
                let id = it["id"].as_str()?.split("/networkInterfaces/").nth(1)?;
                Some(id.split("-nic").next()?.to_owned())
            };
            let interfaces = items(pool, "backendIPConfigurations");
            let interfaces = interfaces.iter().filter_map(of_interface);
            named.filter_map(|name| Some(name.as_str()?.to_owned())).chain(interfaces).collect()
        };
        items(&self.balancer(), "backendAddressPools").iter().map(pool).collect()
    }

    fn moves_members(&self, operation: &str) -> bool {
        let needed = ["backendAddressPools.", "networkInterfaces.", "operations.", "loadBalancers.list"];
        needed.iter().any(|word| operation.contains(word))
    }

    /// One object for all Services, and an error that names none of them.
    fn divides(&self, _: &str) -> bool {
        false
    }

    /// Without ETags.
    fn plain_call(&self, call: &Call) -> String {
        let mut text = call.text.split("\"etag\":\"");
        let first = text.next().unwrap_or_default().to_owned();
        text.fold(first, |plain, part| plain + part.split_once("\"\"").map_or(part, |(_, rest)| rest))
    }

    /// Without the priorities that the program has chosen: which is free depends on what was there before.
    fn plain(&self, line: String) -> String {
        let is_own = line.contains("\"name\":\"k8s-azure-lb_");
        match line.split_once("\"priority\":") {
            Some((begin, rest)) if is_own => {
                format!("{begin}\"priority\":{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            _ => line,
        }
    }

    /// The security group is a user's, and after a write that has failed it and all its rules show that until the next one.
    fn of_others(&self, line: &str) -> String {
        line.replace("\"provisioningState\":\"Failed\"", "\"provisioningState\":\"Succeeded\"")
    }

    /// Adds a rule and an address of a user.
    async fn add_others(&self, _: &Service) {
        let properties = json!({
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 100, "sourcePortRange": "*",
            "sourceAddressPrefix": "*", "destinationAddressPrefix": "10.9.9.9", "destinationPortRange": "22",
        });
        let group = format!("{GROUP}/Microsoft.Network/networkSecurityGroups/nsg");
        let cloud = &self.harness.bed.cloud;
        let mut fields = cloud.object(&group);
        fields["properties"]["securityRules"] = json!([{"name": "mine", "properties": properties}]);
        cloud.by_hand("PUT", &group, &fields).unwrap();
        cloud.world(|world| drop(world.public_ip("sub", "rg", "mine", json!({}))));
    }
}

/// The answers of Azure, with its codes.
fn effect(operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
    let name = operation.name.as_str();
    let code = |status, code, message| Ok(Effect::code(status, code, message));
    let (is_put, is_deletion) = (name.ends_with(".put"), name.ends_with(".delete"));
    let is_list = name.ends_with(".list") || name.ends_with(".listAll");
    match trouble {
        Trouble::Denied => Ok(Effect::Denied),
        Trouble::Refused => code(400, "InvalidRequestFormat", "Cannot parse the request: it is not possible."),
        Trouble::NotFound if is_deletion => Err("the removal of a missing object is done"),
        Trouble::NotFound if operation.writes => {
            code(404, "ParentResourceNotFound", "Can not perform requested operation on nested resource.")
        }
        Trouble::NotFound => Err("a read that denies an existing object is a stale read, which has tests of its own"),
        Trouble::Conflict if is_put => code(412, "PreconditionFailed", "Precondition failed: the ETag is another one."),
        Trouble::Conflict => Err("only changes are guarded"),
        Trouble::Busy if is_put => code(429, "RetryableError", "A retryable error occurred."),
        Trouble::Busy if is_deletion => {
            code(400, "PublicIPAddressCannotBeDeleted", "It is still allocated to a resource.")
        }
        Trouble::Busy => Err("a read waits for nothing"),
        Trouble::Quota if name.ends_with(":publicIPAddresses.put") => {
            code(400, "PublicIPCountLimitReached", "Cannot create more than 10 public IP addresses.")
        }
        Trouble::Quota => Err("only public IP addresses have a quota here"),
        Trouble::Throttled => Ok(Effect::Throttled),
        Trouble::Server => code(503, "ServiceUnavailable", "The service is unavailable."),
        Trouble::Html => Ok(Effect::Html),
        Trouble::Lost => Ok(Effect::AnswerLost),
        Trouble::FailsLater if operation.writes => Ok(Effect::FailsLater {
            status: 500,
            code: "InternalServerError".to_owned(),
            message: "An error occurred.".to_owned(),
        }),
        Trouble::FailsLater => Err("only writes begin an operation"),
        Trouble::Hangs => Ok(Effect::Hangs),
        Trouble::Stops => Ok(Effect::Served),
        Trouble::Half if is_list && operation.continued => {
            code(503, "ServiceUnavailable", "The service is unavailable.")
        }
        Trouble::Half if is_list => Ok(Effect::AnswerCut),
        Trouble::Half => Err("only lists have pages"),
    }
}
