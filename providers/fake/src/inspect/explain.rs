//! The chain from an object to the cloud.

use ccm_provider::{Fact, LoadBalancerStatus, Node, ProviderError, Service, SingleRoutes as _};

use super::FakeInspect;
use crate::config::{Config, Instance, Unlisted};
use crate::faults::{Rule, Subject};
use crate::instances::find;
use crate::load_balancer::{Observed, words};
use crate::method::Method;
use crate::routes::target;
use crate::state::Balancer;

const IN_BATCHES: &[Method] =
    &[Method::Lookup, Method::InstanceExists, Method::InstanceShutdown, Method::InstanceMetadata];
const BY_NAME: &[Method] =
    &[Method::InstanceId, Method::NodeAddresses, Method::InstanceType, Method::GetZoneByNodeName];
const BY_ID: &[Method] = &[
    Method::NodeAddressesByProviderId,
    Method::InstanceTypeByProviderId,
    Method::InstanceExistsByProviderId,
    Method::InstanceShutdownByProviderId,
    Method::GetZoneByProviderId,
];
const OF_BALANCERS: &[Method] = &[
    Method::GetLoadBalancer,
    Method::EnsureLoadBalancer,
    Method::UpdateLoadBalancer,
    Method::EnsureLoadBalancerDeleted,
];

impl FakeInspect {
    pub(super) async fn node(&self, cluster: &str, node: &Node) -> Vec<Fact> {
        let config = self.cloud.config();
        let on = &self.cloud.start.interfaces;
        let mut facts = if on.instances_v2 || on.instances {
            of_instance(&config, &self.cloud.start.provider_name, node)
        } else {
            vec![off("instances", "instancesV2", "the cloud is not asked about nodes")]
        };
        let (name, id) = (Some(node.name.as_str()), Some(node.provider_id_or_empty()));
        let both = Subject { node: name, provider_id: id, ..Subject::default() };
        let mut asked: Vec<(&[Method], Subject<'_>)> = Vec::new();
        if on.instances_v2 {
            asked.push((IN_BATCHES, both));
        } else if on.instances {
            asked.push((BY_NAME, Subject { node: name, ..Subject::default() }));
            asked.push((BY_ID, Subject { provider_id: id, ..Subject::default() }));
        }
        if on.routes {
            facts.extend(self.routes_of(cluster, node).await);
            let to = |cidr| Subject { node: name, cidr, ..Subject::default() };
            let cidrs =
                node.pod_cidrs.iter().map(|cidr| (&[Method::CreateRoute, Method::DeleteRoute][..], to(Some(&**cidr))));
            asked.extend(cidrs);
            asked.push((&[Method::ListRoutes], Subject::default()));
        }
        facts.extend(faults(&config, &asked));
        facts
    }

    async fn routes_of(&self, cluster: &str, node: &Node) -> Vec<Fact> {
        let routes = match self.routes.list(cluster).await {
            Ok(routes) => routes,
            Err(error) => return vec![unreadable("routes", &error)],
        };
        let own: Vec<_> = routes.iter().filter(|route| target(route) == node.name.as_str()).collect();
        let leads = own.iter().map(|route| {
            let about = format!("route {}", route.destination_cidr);
            if node.pod_cidrs.iter().any(|cidr| **cidr == *route.destination_cidr) {
                Fact::good(about, "leads to the node")
            } else {
                Fact::waiting(about, "leads to the node, which has another pod range; it goes with the next pass")
            }
        });
        let missing = node.pod_cidrs.iter().filter(|cidr| !own.iter().any(|route| ***cidr == *route.destination_cidr));
        let missing = missing.map(|cidr| Fact::waiting(format!("route {cidr}"), "missing; the next pass creates it"));
        leads.chain(missing).collect()
    }

    pub(super) async fn service(&self, cluster: &str, service: &Service) -> Vec<Fact> {
        let wants = service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none();
        if !self.cloud.start.interfaces.load_balancer {
            let concerned = wants || service.has_finalizer();
            return concerned
                .then(|| off("load balancers", "loadBalancer", "no Service gets one"))
                .into_iter()
                .collect();
        }
        let mut facts = match self.balancers.look(cluster, service).await {
            Ok(seen) if wants => wanted(service, &seen),
            Ok(seen) => unwanted(service, seen.balancer.as_ref()),
            Err(error) => vec![unreadable("load balancer", &error)],
        };
        let key = service.key().to_string();
        let subject = Subject { service: Some(&key), ..Subject::default() };
        facts.extend(faults(&self.cloud.config(), &[(OF_BALANCERS, subject)]));
        facts
    }
}

fn off(about: &str, switch: &str, consequence: &str) -> Fact {
    let text = format!("interfaces.{switch} is false: {consequence}");
    Fact::bad(about, text, format!("set interfaces.{switch}: true in the cloud config and restart"))
}

/// Errors of reads can only result from the file.
fn unreadable(about: &str, error: &ProviderError) -> Fact {
    Fact::bad(about, format!("cannot be read: {error}"), "remove the fault from the cloud config")
}

/// The machine of a node according to the file.
#[derive(Debug)]
pub(super) enum Machine<'a> {
    Listed(&'a Instance),
    /// Listed as not existing.
    Denied,
    /// An entry has the name of the node and another provider ID.
    Other(&'a Instance),
    Invented,
    /// The cloud has no such instance.
    Missing,
    /// Belongs to another cloud.
    Foreign(ProviderError),
    /// `unlisted: error`
    Refused(ProviderError),
}

impl<'a> Machine<'a> {
    pub(super) fn of(config: &'a Config, provider_name: &str, node: &Node) -> Self {
        let id = node.provider_id_or_empty();
        match config.instances.find(&node.name, id) {
            Some(entry) if entry.exists => return Self::Listed(entry),
            Some(_) => return Self::Denied,
            None => {}
        }
        if let Some(entry) = config.instances.find(&node.name, "") {
            return Self::Other(entry);
        }
        match (find(config, provider_name, &node.name, id), config.unlisted) {
            (Ok(Some(_)), _) => Self::Invented,
            (Ok(None), _) => Self::Missing,
            (Err(error), Unlisted::Error) => Self::Refused(error),
            (Err(error), _) => Self::Foreign(error),
        }
    }

    /// The problem and its remedy.
    pub(super) fn problem(&self, node: &Node) -> Option<(String, &'static str)> {
        Some(match self {
            Self::Listed(_) | Self::Invented => return None,
            Self::Denied => (
                "listed with exists: false: the cloud is sure that there is no such instance, so a node that is not Ready is \
                 deleted"
                    .to_owned(),
                "remove exists: false from its entry if the machine exists",
            ),
            Self::Other(entry) => (
                format!(
                    "an entry has its name, but provider ID {:?} and not {:?}",
                    entry.provider_id,
                    node.provider_id_or_empty()
                ),
                "correct providerID in the entry, or delete the Node so that it registers again",
            ),
            Self::Missing => (
                "not listed, and unlisted: missing makes the cloud sure that it is gone: a node that is not Ready is deleted"
                    .to_owned(),
                "list it under instances",
            ),
            Self::Foreign(error) => (
                format!("{error}: the node is left alone"),
                "nothing, if it is a node of another cloud; otherwise list its provider ID",
            ),
            Self::Refused(error) => (
                format!("not listed, and unlisted: error fails every call about it: {error}"),
                "list it under instances, or set unlisted: invent",
            ),
        })
    }
}

fn of_instance(config: &Config, provider_name: &str, node: &Node) -> Vec<Fact> {
    let id = node.provider_id_or_empty();
    let about = format!("instance {}", if id.is_empty() { node.name.as_str() } else { id });
    let machine = Machine::of(config, provider_name, node);
    if let Some((text, hint)) = machine.problem(node) {
        return vec![Fact::bad(about, text, hint)];
    }
    let Machine::Listed(entry) = machine else {
        return vec![Fact::good(about, "not listed: the cloud invents it (unlisted: invent)")];
    };
    let mut facts = vec![Fact::good(&about, described(entry, config))];
    if entry.shutdown {
        let text = "stopped: a node that is not Ready gets the shutdown taint";
        facts.push(Fact::bad(&about, text, "remove shutdown: true from its entry"));
    }
    if entry.no_metadata {
        let text = "the cloud has no metadata of it, so the node cannot be initialized";
        facts.push(Fact::bad(&about, text, "remove noMetadata: true from its entry"));
    }
    if entry.name != node.name.as_str() {
        facts.push(Fact::good(&about, format!("found by its provider ID; its entry is named {:?}", entry.name)));
    }
    facts
}

fn described(entry: &Instance, config: &Config) -> String {
    let mut words = vec!["listed in the cloud config".to_owned()];
    if !entry.provider_id.is_empty() {
        words.push(format!("provider ID {}", entry.provider_id));
    }
    let zone = entry.zone.as_ref().unwrap_or(&config.zone.failure_domain);
    for (what, text) in [("type", &entry.kind), ("zone", zone)] {
        if !text.is_empty() {
            words.push(format!("{what} {text}"));
        }
    }
    let addresses: Vec<&str> = entry.addresses.iter().map(|address| &*address.address).collect();
    words.push(if addresses.is_empty() { "no addresses".to_owned() } else { addresses.join(" ") });
    words.join(", ")
}

/// The load balancer of a Service that needs one.
fn wanted(service: &Service, seen: &Observed) -> Vec<Fact> {
    let about = format!("load balancer {}", service.default_load_balancer_name());
    let next = seen.offer.ingress(seen.balancer.as_ref(), service);
    let mut facts = Vec::new();
    match &seen.balancer {
        None => facts.push(Fact::waiting(&about, "not made yet")),
        Some(balancer) => {
            let has = words(&balancer.ingress).unwrap_or_else(|| "no ingress".to_owned());
            facts.push(Fact::good(&about, has));
            facts.push(hosts(&about, balancer));
        }
    }
    match next {
        Err(error) => {
            let hint = "make loadBalancers.pool larger, or delete Services that need no address";
            facts.push(Fact::bad(&about, error.to_string(), hint));
        }
        Ok(None) => {
            let text = "an entry of loadBalancers.statuses answers without a status: an error for the controller";
            facts.push(Fact::bad(&about, text, "remove missing: true from that entry"));
        }
        Ok(Some(next)) => {
            if seen.balancer.as_ref().is_some_and(|balancer| balancer.ingress != next) {
                let next = words(&next).unwrap_or_else(|| "no ingress".to_owned());
                facts.push(Fact::waiting(&about, format!("the next ensure gives it {next}")));
            }
        }
    }
    if let Some(balancer) = &seen.balancer {
        let has = LoadBalancerStatus { ingress: balancer.ingress.clone() };
        if !service.status.load_balancer.same_as(&has) {
            facts.push(Fact::waiting("status", "the status of the Service does not show these addresses yet"));
        }
    }
    facts
}

fn hosts(about: &str, balancer: &Balancer) -> Fact {
    if balancer.nodes.is_empty() {
        let hint = "see that nodes are initialized, not excluded from load balancers and not being deleted";
        return Fact::bad(about, "no node behind it", hint);
    }
    Fact::good(about, format!("nodes behind it: {}", balancer.nodes.join(" ")))
}

/// The load balancer of a Service that needs none.
fn unwanted(service: &Service, balancer: Option<&Balancer>) -> Vec<Fact> {
    let about = format!("load balancer {}", service.default_load_balancer_name());
    match balancer {
        None => vec![Fact::good(about, "none, as the Service requests")],
        Some(_) if service.has_finalizer() => {
            vec![Fact::waiting(about, "still present; the controller deletes it before it removes the finalizer")]
        }
        Some(_) => {
            let text = "still present, and the Service has no finalizer that would make the controller delete it";
            vec![Fact::bad(about, text, "see ccm orphans")]
        }
    }
}

/// The rules that apply to such calls. Their counters are known only to the process that serves the calls.
fn faults(config: &Config, asked: &[(&[Method], Subject<'_>)]) -> Vec<Fact> {
    let hits = |rule: &Rule| {
        let mut names: Vec<&str> = Vec::new();
        for method in asked.iter().flat_map(|(methods, subject)| rule.hits(methods, subject)) {
            if !names.contains(&method.name()) {
                names.push(method.name());
            }
        }
        names
    };
    let fact = |(index, rule): (usize, &Rule)| {
        let names = hits(rule);
        if names.is_empty() {
            return None;
        }
        let id = if rule.id.is_empty() { String::new() } else { format!(" ({})", rule.id) };
        let (about, text) = (format!("fault {index}{id}"), format!("{}: {}", names.join(", "), rule.effect()));
        Some(if rule.error().is_some() {
            Fact::bad(about, text, format!("remove faults[{index}] from the cloud config"))
        } else if rule.disturbs() {
            Fact::waiting(about, text)
        } else {
            Fact::good(about, text)
        })
    };
    config.faults.iter().enumerate().filter_map(fact).collect()
}
