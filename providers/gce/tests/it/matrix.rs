//! Every operation, with every outcome, in every situation: see [`ccm_provider_contract::matrix`].

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::gce::{Options, World};
use ccm_provider::{LoadBalancerExt as _, ProviderFactory as _, Service, ServicePort};
use ccm_provider_contract::matrix::{Kind, Known, MatrixCloud, Operation, Part, Trouble, run};
use ccm_provider_contract::watch::{Call, Effect};
use ccm_provider_contract::{Harness, TestCluster};
use regex::Regex;
use serde_json::Value;

use crate::bed::{Bed, CLUSTER, flags};
use crate::contract;

const TYPE: &str = "networking.gke.io/load-balancer-type";

/// The balancers of the matrix: their scheme and the policy of their Services.
struct Cloud {
    harness: Arc<contract::Cloud>,
    is_internal: bool,
    is_local: bool,
}

fn start(is_internal: bool, is_local: bool) -> Arc<dyn MatrixCloud> {
    // Descriptions and answers are checked by the other tests, at a cost.
    let bed = Bed::start(Options { check: false, page: 2, ..Options::default() });
    let subnetwork = bed.subnetwork.rsplit('/').next().unwrap();
    let config = format!("subnetwork-name = {subnetwork}");
    bed.cloud.names(target_of);
    Arc::new(Cloud { harness: Arc::new(contract::Cloud { bed, config }), is_internal, is_local })
}

const KINDS: [Kind; 4] = [
    Kind { name: "external", is_variant: false, start: || Box::pin(async { start(false, false) }) },
    Kind { name: "external-local", is_variant: true, start: || Box::pin(async { start(false, true) }) },
    Kind { name: "internal", is_variant: false, start: || Box::pin(async { start(true, false) }) },
    Kind { name: "internal-local", is_variant: true, start: || Box::pin(async { start(true, true) }) },
];

mod long_lane {
    use super::*;

    /// In the long lane until the list of known failures is measured with the engine.
    #[test]
    fn a_sample_of_the_matrix_has_only_known_failures() {
        run(&KINDS, Part::Sample, &Known::of(env!("CARGO_MANIFEST_DIR")));
    }

    #[test]
    fn the_whole_matrix_has_only_known_failures() {
        run(&KINDS, Part::All, &Known::of(env!("CARGO_MANIFEST_DIR")));
    }
}

/// The object that the operation in a call to `wait` changes.
fn target_of(world: &World, params: &str) -> String {
    let path = params.split('&').next().unwrap_or_default();
    let key = path.trim_start_matches("/compute/v1/").trim_end_matches("/wait");
    world.store.get(key).map(|row| format!("&target={}", row.text("targetLink"))).unwrap_or_default()
}

impl Cloud {
    fn bed(&self) -> &Bed {
        &self.harness.bed
    }

    fn named(&self, collection: &str, name: &str) -> Option<Value> {
        self.bed().cloud.objects(collection).into_iter().find(|object| object["name"] == name)
    }
}

fn last(link: &str) -> String {
    link.rsplit('/').next().unwrap_or_default().to_owned()
}

#[async_trait]
impl MatrixCloud for Cloud {
    fn harness(&self) -> Arc<dyn Harness> {
        self.harness.clone()
    }

    /// The permissions of the roles for load balancers, without those for objects that requests name.
    fn table(&self) -> Vec<String> {
        const VERBS: [&str; 8] =
            ["get", "list", "create", "update", "delete", "addInstance", "removeInstance", "listInstances"];
        let roles = ccm_provider_gce::custom_roles();
        let roles = roles.iter().filter(|(path, _)| path.starts_with("gce/load-balancer"));
        let lines = roles.flat_map(|(_, text)| text.lines().filter_map(|line| line.strip_prefix("- ")));
        let own = lines.filter(|line| VERBS.contains(&line.rsplit('.').next().unwrap()));
        own.map(str::to_owned).collect()
    }

    fn entry(&self, operation: &str) -> String {
        let action = operation.rsplit(':').next().unwrap();
        let (resource, verb) = action.split_once('.').unwrap_or((action, ""));
        let verb = match (resource, verb) {
            (_, "aggregatedList") | ("instanceGroups", "listInstances") => "list",
            ("instanceGroups", "addInstances" | "removeInstances") | (_, "patch") => "update",
            (_, "wait") => "get",
            (_, "insert") => "create",
            (_, verb) => verb,
        };
        format!("compute.{resource}.{verb}")
    }

    fn unused(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("compute.firewalls.get", "more than two names at a time are a list"),
            ("compute.regionBackendServices.get", "more than two names at a time are a list, as of each deletion"),
            ("compute.forwardingRules.update", "a change of the ports replaces the forwarding rule"),
            ("compute.instances.get", "the configuration names the tags of the nodes"),
            ("compute.instances.list", "the configuration names the tags of the nodes"),
            ("compute.networks.get", "the network belongs to the project"),
            ("compute.projects.get", "the network belongs to the project"),
            ("compute.subnetworks.list", "the configuration names the subnetwork"),
        ]
    }

    fn effect(&self, operation: &Operation, trouble: Trouble) -> Result<Effect, &'static str> {
        let name = operation.name.as_str();
        let is = |verb: &str| name.ends_with(verb);
        let is_wait = is(".wait");
        let is_list = is(".list") || is(".aggregatedList") || is(".listInstances");
        match trouble {
            Trouble::Denied => Ok(Effect::Denied),
            Trouble::Refused => {
                Ok(Effect::code(400, "invalid", "Invalid value for field 'resource.name': 'x'. It is not possible."))
            }
            Trouble::NotFound if is(".delete") || is(".removeInstance") || is(".removeInstances") => {
                Err("the removal of a missing object is done")
            }
            Trouble::NotFound if operation.writes => {
                Ok(Effect::code(404, "notFound", "The resource 'projects/p/global/networks/x' was not found"))
            }
            Trouble::NotFound => {
                Err("a read that denies an existing object is a stale read, which has tests of its own")
            }
            Trouble::Conflict if is(".patch") => Ok(Effect::code(412, "conditionNotMet", "Invalid fingerprint.")),
            Trouble::Conflict => {
                Err("only patches conflict; an object that exists already is what follows a lost answer")
            }
            Trouble::Busy if is(".delete") => Ok(Effect::code(
                400,
                "resourceInUseByAnotherResource",
                "The resource 'projects/p/x' is already being used by 'projects/p/y'",
            )),
            Trouble::Busy if operation.writes => {
                Ok(Effect::code(400, "resourceNotReady", "The resource 'projects/p/x' is not ready"))
            }
            Trouble::Busy => Err("a read waits for nothing"),
            Trouble::Quota if is(".insert") => {
                Ok(Effect::code(403, "quotaExceeded", "Quota 'THINGS' exceeded.  Limit: 1.0 in region us-central1."))
            }
            Trouble::Quota => Err("only insertions have a quota"),
            Trouble::Throttled => Ok(Effect::Throttled),
            Trouble::Server => Ok(Effect::code(503, "backendError", "Backend Error")),
            Trouble::Html => Ok(Effect::Html),
            Trouble::Lost => Ok(Effect::AnswerLost),
            Trouble::FailsLater if operation.writes && !is_wait => Ok(Effect::FailsLater {
                status: 500,
                code: "INTERNAL_ERROR".to_owned(),
                message: "Internal error. Please try again or contact Google Support.".to_owned(),
            }),
            Trouble::FailsLater => Err("only writes begin an operation"),
            Trouble::Hangs => Ok(Effect::Hangs),
            Trouble::Stops => Ok(Effect::Served),
            Trouble::Half if is_list && operation.continued => Ok(Effect::code(503, "backendError", "Backend Error")),
            Trouble::Half if is_list => Ok(Effect::AnswerCut),
            Trouble::Half => Err("only lists have pages"),
        }
    }

    fn dress(&self, service: &mut Service) {
        if self.is_internal {
            service.metadata.annotations.insert(TYPE.to_owned(), "Internal".to_owned());
        }
        if self.is_local {
            service.spec.external_traffic_policy = "Local".to_owned();
            service.spec.health_check_node_port = service.spec.ports[0].node_port + 9;
        }
    }

    fn change(&self, service: &mut Service) {
        let first = service.spec.ports[0].clone();
        let node_port = first.node_port + 1;
        service.spec.ports.push(ServicePort { name: "more".to_owned(), port: 443, node_port, ..first });
        service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
        if self.is_local {
            service.spec.health_check_node_port -= 1;
        }
        if self.is_internal {
            service.spec.session_affinity = "ClientIP".to_owned();
            let access = "networking.gke.io/internal-load-balancer-allow-global-access".to_owned();
            service.metadata.annotations.insert(access, "true".to_owned());
        }
    }

    /// Lines have no node ports.
    fn marks(&self, service: &Service) -> Vec<String> {
        self.names(service)
    }

    fn has_frame(&self, service: &Service) -> bool {
        self.named("forwardingRules", &service.default_load_balancer_name()).is_some()
    }

    /// Internal balancers share the groups of instances.
    fn members(&self, service: &Service) -> Vec<BTreeSet<String>> {
        let name = service.default_load_balancer_name();
        if !self.is_internal {
            let links = |pool: Value| pool["instances"].as_array().cloned().unwrap_or_default();
            let names = |pool| links(pool).iter().map(|link| last(link.as_str().unwrap())).collect();
            return self.named("targetPools", &name).map(names).into_iter().collect();
        }
        let Some(service) = self.named("backendServices", &name) else { return Vec::new() };
        let groups = service["backends"].as_array().cloned().unwrap_or_default();
        let group = |group: &Value| {
            let link = group["group"].as_str().unwrap();
            let key = link.split("/v1/").last().unwrap().to_owned();
            self.bed().cloud.world(|world| world.store.get(&key).map(|row| row.texts("_members").map(last).collect()))
        };
        groups.iter().filter_map(group).collect()
    }

    fn moves_members(&self, operation: &str) -> bool {
        let kinds = ["instances.", "zones.", "instanceGroups.", "targetPools.", "Operations."];
        kinds.iter().any(|kind| operation.contains(kind))
            || self.is_internal && operation.contains("BackendServices.get")
    }

    /// Without the addresses that the cloud assigned, and without a field that equals its absence.
    fn plain(&self, line: String) -> String {
        static ADDRESS: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\b(35\.206\.[0-9]+|10\.0\.[0-9]+)\.[1-9][0-9]*\b").unwrap());
        ADDRESS.replace_all(&line, "ADDRESS").replace("\"allowGlobalAccess\":false,", "")
    }

    /// Without the ID of the request.
    fn plain_call(&self, call: &Call) -> String {
        static REQUEST: LazyLock<Regex> = LazyLock::new(|| Regex::new("requestId=[^&]*").unwrap());
        REQUEST.replace_all(&call.text, "").into_owned()
    }

    /// Adds balancers of another cluster in the same project, and routes.
    async fn add_others(&self, like: &Service) {
        let theirs = Arc::new(TestCluster::default());
        theirs.set_config_map(&self.bed().factory().config_maps()[0], [("uid".to_owned(), "theirs".to_owned())].into());
        let provider = self.bed().build(&self.harness.config, &flags(&[])).await.unwrap();
        provider.initialize(theirs.context(CLUSTER)).await.unwrap();
        let balancers = provider.load_balancer().unwrap();
        let node = self.bed().node("theirs");
        let mut service = like.clone();
        self.dress(&mut service);
        while let Err(error) = balancers.ensure(CLUSTER, &service, std::slice::from_ref(&node)).await {
            assert!(error.is_in_progress(), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.harness.add_objects_of_others(Some(like)).await;
    }
}
