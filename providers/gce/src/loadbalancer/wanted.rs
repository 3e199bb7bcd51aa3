//! The desired state of Services, from their specs and annotations and from the nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::annotations::Annotations;
use ccm_provider::source_ranges::SourceRanges;
use ccm_provider::{ErrorClass, Finding, ProviderError, Service, ServiceAction, ServiceWork, Subject};

use super::claim::{self, Owner, is_mixed};
use super::env::Env;
use super::hosts::Hosts;
use crate::annotations::{self as keys, Scheme, Tier};
use crate::ownership::{CLASS_EXTERNAL, Names};

/// The condition of a Service whose ports differ in protocol.
pub(super) const PORTS_ERROR: &str = "LoadBalancerPortsError";
/// Reasons of events.
pub(super) const MIXED_PROTOCOLS: &str = "LoadBalancerMixedProtocolNotSupported";
pub(super) const CONFLICT: &str = "ConflictingConfiguration";
pub(super) const OPTIONS_IGNORED: &str = "ILBOptionsIgnored";
/// The keys of findings about nodes.
pub(super) const HOSTS: &str = "hosts";

/// The error of a Service whose ports differ in protocol.
pub(crate) const MIXED: &str =
    "mixed protocol is not supported for LoadBalancer: spec.ports has several; make a Service for each protocol";

/// The most discrete ports that the API accepts in a forwarding rule.
pub(super) const MOST_PORTS: usize = 5;

/// The desired state of a group of Services.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// By position in the work; refused Services are absent.
    pub(crate) items: BTreeMap<usize, Item>,
}

/// One Service.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// `namespace/name`
    pub(crate) key: String,
    pub(crate) action: ServiceAction,
    pub(crate) names: Names,
    /// The requested kind.
    pub(crate) scheme: Scheme,
    pub(crate) owner: Owner,
    /// The kinds that it may have objects of, by its finalizers.
    pub(crate) begun: BTreeSet<Scheme>,
    /// Whether its ports differ in protocol, so that it is refused, and whether a condition reports that.
    pub(crate) is_mixed: bool,
    pub(crate) has_mixed_ports: bool,
    pub(crate) says_mixed: bool,
    /// Whether its status shows a load balancer.
    pub(crate) serves: bool,
    /// The nodes; none for a deletion.
    pub(crate) hosts: Hosts,
    /// `None` for a deletion, for mixed protocols, and for an update of hosts of a Service that cannot be ensured.
    pub(crate) settings: Option<Settings>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) subject: Subject,
}

/// The settings of a Service.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `TCP`, `UDP`
    pub(crate) protocol: String,
    pub(crate) ports: BTreeSet<u16>,
    /// `spec.loadBalancerIP`; `None`: any.
    pub(crate) ip: Option<String>,
    /// `None`, `ClientIP`
    pub(crate) affinity: String,
    /// The networks of clients that may connect, sorted.
    pub(crate) sources: Vec<String>,
    /// The port of its own health check.
    pub(crate) health_port: Option<u16>,
    /// External: the tier of the annotation.
    pub(crate) tier: Option<Tier>,
    /// Internal: whether the backend service is shared, also in a network that has no options.
    pub(crate) shares_backend: bool,
    pub(crate) internal: Internal,
}

/// Options of internal load balancers, which a legacy network does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Internal {
    pub(crate) has_global_access: bool,
    /// The name in the annotation.
    pub(crate) subnet: Option<String>,
}

impl Internal {
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl Settings {
    /// The value for the API. Unknown values are `NONE`.
    pub(super) fn api_affinity(&self) -> &'static str {
        if self.affinity == "ClientIP" { "CLIENT_IP" } else { "NONE" }
    }
}

/// The desired state for the work, and one result for each item.
pub(super) fn wanted(env: &Env, work: &[ServiceWork]) -> (Wanted, Vec<Result<(), ProviderError>>) {
    let mut wanted = Wanted::default();
    let mut verdicts = Vec::with_capacity(work.len());
    for (place, item) in work.iter().enumerate() {
        verdicts.push(one(env, item).map(|item| drop(wanted.items.insert(place, item))));
    }
    (wanted, verdicts)
}

fn one(env: &Env, work: &ServiceWork) -> Result<Item, ProviderError> {
    let service = &*work.service;
    let scheme = claim::scheme(service);
    let owner = claim::owner(&env.options, service, work.action);
    let begun = claim::begun(service);
    let has_others = begun.contains(&scheme.other()) && work.action != ServiceAction::UpdateHosts;
    // Services of a foreign class are never touched.
    let is_foreign = service.spec.load_balancer_class.is_some();
    if owner == Owner::Other && (is_foreign || !has_others) {
        return Err(ProviderError::ImplementedElsewhere);
    }
    let mut item = Item {
        key: service.key().to_string(),
        action: work.action,
        names: Names::of(service),
        scheme,
        owner,
        begun,
        is_mixed: work.action == ServiceAction::Ensure && is_mixed(service),
        has_mixed_ports: work.action != ServiceAction::Delete && is_mixed(service),
        says_mixed: service.status.conditions.iter().any(|it| it.kind == PORTS_ERROR && it.status == "True"),
        serves: !service.status.load_balancer.ingress.is_empty(),
        hosts: Hosts::of(work.nodes.iter().map(|node| &**node)).in_region(&env.region),
        settings: None,
        findings: Vec::new(),
        subject: Subject::service(service),
    };
    if owner == Owner::Other || work.action == ServiceAction::Delete {
        return Ok(item);
    }
    item.findings.extend(elsewhere(&item, &env.region));
    if let (Some(finding), true) =
        (item.findings.first(), item.hosts.known.is_empty() && item.hosts.unplaced.is_empty())
    {
        return Err(ProviderError::unknown(format!("instance not found: {}", finding.message)));
    }
    if item.hosts_only() {
        // Hosts follow the nodes, whatever else the Service asks for by now.
        item.settings = settings(scheme, service).ok().filter(|_| !is_mixed(service));
        return Ok(item);
    }
    if item.is_mixed {
        if !item.says_mixed {
            item.findings
                .push(item.finding(MIXED_PROTOCOLS, "LoadBalancer with multiple protocols are not supported."));
        }
        return Ok(item);
    }
    item.findings.extend(remarks(&item, service));
    item.settings = Some(settings(scheme, service)?);
    if scheme == Scheme::External && work.nodes.is_empty() {
        return Err(ProviderError::unknown("cannot EnsureLoadBalancer() with no hosts"));
    }
    Ok(item)
}

impl Item {
    /// A finding that becomes an event with this reason.
    pub(super) fn finding(&self, reason: &str, text: impl Into<String>) -> Finding {
        Finding { value: Some(self.key.clone()), ..Finding::warning(reason, text) }
    }

    /// Whether it is refused regardless of the state of the cloud.
    pub(super) fn is_refused(&self) -> bool {
        self.is_mixed && self.owner == Owner::Us
    }

    /// Whether the hosts of what exists follow the nodes if nothing else can be done.
    pub(super) fn follows(&self) -> bool {
        self.action == ServiceAction::Ensure && (self.settings.is_some() || self.is_refused() && self.serves)
    }

    /// Whether what exists is looked for by its names alone.
    pub(super) fn is_by_name(&self) -> bool {
        self.hosts_only() || self.is_refused() && self.serves
    }

    /// Whether only the hosts change.
    pub(super) fn hosts_only(&self) -> bool {
        self.action == ServiceAction::UpdateHosts
    }
}

/// The finding about nodes of other regions, which would make the calls for all hosts fail.
fn elsewhere(item: &Item, region: &str) -> Option<Finding> {
    let first = item.hosts.elsewhere.first()?;
    let text = format!(
        "nodes of other regions are not hosts: {} in {} and {} more; load balancers are in {region}, and have instances of \
         it only",
        first.name,
        first.zone,
        item.hosts.elsewhere.len() - 1
    );
    Some(item.finding(HOSTS, text))
}

/// Findings that a user should know about a Service that works.
fn remarks(item: &Item, service: &Service) -> Vec<Finding> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let mut findings = Vec::new();
    let says_internal = annotations.text(keys::LOAD_BALANCER_TYPE.row) == Some("Internal");
    if service.spec.load_balancer_class.as_deref() == Some(CLASS_EXTERNAL) && says_internal {
        let text = format!(
            "loadBalancerClass conflicts with {}: Internal annotation. External LoadBalancer Service provisioned.",
            keys::LOAD_BALANCER_TYPE.row.key
        );
        findings.push(item.finding(CONFLICT, text));
    }
    if service.spec.ip_families.iter().any(|family| family == "IPv6") {
        let text =
            "load balancers made here have an IPv4 address only: the family IPv6 of spec.ipFamilies is not served";
        findings.push(item.finding("spec.ipFamilies", text));
    }
    let local_without_port = service.needs_health_check() && service.spec.health_check_node_port == 0;
    if local_without_port && item.scheme == Scheme::External {
        let text = "externalTrafficPolicy is Local but healthCheckNodePort is 0: nodes without pods get traffic too";
        findings.push(item.finding("spec.healthCheckNodePort", text));
    }
    findings.extend(keys::TABLE.review(annotations, item.scheme));
    findings
}

fn settings(scheme: Scheme, service: &Service) -> Result<Settings, ProviderError> {
    if let Some((_, problem)) = problems(scheme, service).into_iter().next() {
        return Err(refused(problem));
    }
    let annotations = Annotations::read(&service.metadata.annotations);
    let spec = &service.spec;
    let tier = match scheme {
        Scheme::Internal => annotations.readable(&keys::NETWORK_TIER),
        Scheme::External => annotations.get(&keys::NETWORK_TIER)?,
    };
    Ok(Settings {
        protocol: protocol(service),
        ports: spec.ports.iter().filter_map(|port| u16::try_from(port.port).ok()).collect(),
        ip: Some(spec.load_balancer_ip.clone()).filter(|ip| !ip.is_empty()),
        affinity: spec.session_affinity.clone(),
        sources: sources(service).map_err(refused)?,
        health_port: u16::try_from(service.health_check_path_port().1).ok().filter(|port| *port != 0),
        tier,
        shares_backend: shares_backend(service),
        internal: Internal {
            has_global_access: annotations.readable(&keys::GLOBAL_ACCESS) == Some(true),
            subnet: annotations.readable(&keys::SUBNET),
        },
    })
}

/// `TCP`, `UDP`; without ports upstream's default.
fn protocol(service: &Service) -> String {
    service.spec.ports.first().map_or("UDP", |port| &*port.protocol).to_owned()
}

fn shares_backend(service: &Service) -> bool {
    let annotations = Annotations::read(&service.metadata.annotations);
    let keys = [&keys::BACKEND_SHARE, &keys::OLD_BACKEND_SHARE];
    keys.iter().any(|key| annotations.readable(key) == Some(true)) && !service.requests_only_local_traffic()
}

/// The fields that make a load balancer of this kind impossible whatever the cloud has, each with what is wrong.
pub(crate) fn problems(scheme: Scheme, service: &Service) -> Vec<(&'static str, String)> {
    let (spec, is_internal) = (&service.spec, scheme == Scheme::Internal);
    let mut problems = Vec::new();
    if is_internal && service.health_check_path_port().0.is_empty() && service.needs_health_check() {
        let text = "spec.healthCheckNodePort is 0 although externalTrafficPolicy is Local: an internal load balancer cannot ask \
                    the nodes for their health; set the port, or the policy Cluster";
        problems.push(("spec.healthCheckNodePort", text.to_owned()));
    }
    problems.extend(sources(service).err().map(|problem| ("spec.loadBalancerSourceRanges", problem)));
    let protocol = match spec.ports.first().map(|port| &*port.protocol) {
        None if !is_internal => Some("no ports specified for GCE load balancer".to_owned()),
        None | Some("TCP" | "UDP") => None,
        Some(other) => {
            let begin = if is_internal { "Invalid" } else { "invalid" };
            Some(format!("{begin} protocol {other}, only TCP and UDP are supported"))
        }
    };
    problems.extend(protocol.map(|problem| ("spec.ports", problem)));
    problems.extend(address_problem(is_internal, &spec.load_balancer_ip).map(|it| ("spec.loadBalancerIP", it)));
    problems
}

/// The networks of clients, sorted; or what is wrong with them.
fn sources(service: &Service) -> Result<Vec<String>, String> {
    let sources = SourceRanges::of(service).map_err(|error| error.to_string())?;
    // The address is an IPv4 one: IPv6 networks cannot reach it, and a rule cannot mix families.
    let sources = sources.iter().filter(|net| net.addr().is_ipv4()).map(ToString::to_string).collect::<BTreeSet<_>>();
    match sources.is_empty() {
        true => Err(
            "spec.loadBalancerSourceRanges holds no IPv4 network, and the load balancer has an IPv4 address: nobody \
                     could connect; add one"
                .to_owned(),
        ),
        false => Ok(sources.into_iter().collect()),
    }
}

fn address_problem(is_internal: bool, ip: &str) -> Option<String> {
    if ip.is_empty() {
        return None;
    }
    match ip.parse::<std::net::Ipv4Addr>() {
        Err(_) => Some(format!("spec.loadBalancerIP {ip:?} is not an IPv4 address; write one or remove it")),
        Ok(parsed) if parsed.is_private() && !is_internal => Some(format!(
            "spec.loadBalancerIP {ip:?} is a private address, and the load balancer EXTERNAL; use a regional external address, \
             or set the annotation {} to Internal",
            keys::LOAD_BALANCER_TYPE.row.key
        )),
        Ok(_) => None,
    }
}

pub(super) fn refused(message: impl Into<String>) -> ProviderError {
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, message)
}
