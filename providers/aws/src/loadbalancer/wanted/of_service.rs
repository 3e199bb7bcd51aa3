//! From a Service to its [`Wanted`] state: the checks of upstream's `EnsureLoadBalancer` in the same order, then the
//! fields of both kinds of balancers, then those of one kind.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Finding, Node, ProviderError, Service, ServiceAction, ServiceWork, Severity};

use super::{
    Classic, Common, Goal, NamedGroups, Network, Subnets, Wanted, check, classic, first_few, hostname, network,
};
use crate::annotations::{
    ADDITIONAL_TAGS, Annotations, EXTRA_SECURITY_GROUPS, INTERNAL, Kind, LintContext, SECURITY_GROUPS, SUBNETS,
    TARGET_NODE_LABELS, TYPE, invalid, lint, refused,
};
use crate::loadbalancer::env::Env;
use crate::node::identity::{BadProviderId, Machine, ProviderId};
use crate::start::config::SharedProbe;

/// The controller that manages the balancer of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    This(Kind),
    /// The aws-load-balancer-controller: `external`, `nlb-ip`.
    Other,
}

impl Controller {
    /// Only these exact values, as upstream: any other makes a classic balancer.
    pub(super) fn of(annotations: Annotations<'_>) -> Self {
        match annotations.text(TYPE.row) {
            Some("nlb") => Self::This(Kind::Network),
            Some("external" | "nlb-ip") => Self::Other,
            _ => Self::This(Kind::Classic),
        }
    }
}

/// The desired state for one item of work.
pub(crate) fn of_service(cluster_name: &str, item: &ServiceWork, env: &Env) -> Result<Wanted, ProviderError> {
    let service = &*item.service;
    let annotations = Annotations::read(&service.metadata.annotations);
    let controller = Controller::of(annotations);
    let named = |key| annotations.get(key).ok().flatten().unwrap_or_default();
    let name = service.default_load_balancer_name();
    let elsewhere = controller == Controller::Other && !hostname::shows(service, &name);
    let of_annotation = if let Controller::This(kind) = controller { Some(kind) } else { None };
    let of_status = hostname::of(service).and_then(hostname::kind);
    let mut desired = Wanted {
        service: service.key(),
        uid: service.metadata.uid.clone(),
        cluster_name: cluster_name.into(),
        goal: Goal::Absent,
        elsewhere,
        name,
        network: of_annotation != Some(Kind::Classic) || of_status == Some(Kind::Network),
        kinds: of_annotation.into_iter().chain(of_status.filter(|_| !elsewhere)).collect(),
        target_groups: target_groups(service, env),
        named_groups: NamedGroups { instead: named(&SECURITY_GROUPS), extra: named(&EXTRA_SECURITY_GROUPS) },
        findings: Vec::new(),
    };
    if item.action == ServiceAction::Delete {
        // The Service may have had a balancer of this program before the annotation changed.
        return Ok(desired);
    }
    let Controller::This(kind) = controller else { return Err(ProviderError::ImplementedElsewhere) };
    match complete(&mut desired, item, env, kind) {
        Err(error) if item.action == ServiceAction::UpdateHosts => only_hosts(&mut desired, item, kind, error)?,
        verdict => verdict?,
    }
    Ok(desired)
}

fn target_groups(service: &Service, env: &Env) -> BTreeSet<String> {
    let network = network::network(service, Common::default(), env.shared_probe.as_ref());
    let ports = network.map(|(network, _)| network.ports).unwrap_or_default();
    ports.iter().map(|port| port.target_group(&env.ownership.cluster, &service.key())).collect()
}

fn complete(desired: &mut Wanted, item: &ServiceWork, env: &Env, kind: Kind) -> Result<(), ProviderError> {
    let service = &*item.service;
    let annotations = Annotations::read(&service.metadata.annotations);
    if let Some(refused) = check::before_ports(service, annotations, kind).into_iter().next() {
        return Err(refused);
    }
    let (source_ranges, ignored) = check::source_ranges(service)?;
    let no_client = check::no_client(ignored.as_ref());
    if let Some(error) = no_client.clone().filter(|_| item.action == ServiceAction::UpdateHosts) {
        return Err(error);
    }
    let (targets, wrong_ids, noticed) = targets(item, annotations)?;
    let common = Common {
        must_exist: item.action == ServiceAction::UpdateHosts,
        internal: annotations.get_or_default(&INTERNAL)?,
        source_ranges,
        no_client,
        subnets: annotations.get(&SUBNETS)?.map_or(Subnets::Discover, Subnets::Named),
        tags: env.ownership.user_tags(&annotations.get_or_default(&ADDITIONAL_TAGS)?),
        targets,
        wrong_ids,
    };
    let (goal, findings) = of_kind(service, common, kind, env.shared_probe.as_ref())?;
    check::after_ports(service)?;
    let context = LintContext {
        service,
        kind,
        managed_network_groups: Some(env.managed_network_groups),
        shared_probe: Some(env.shared_probe.is_some()),
        ownership: &env.ownership,
    };
    desired.goal = goal;
    desired.findings = lint(&context).into_iter().chain(findings).chain(noticed).collect();
    Ok(())
}

/// All errors of [`complete`], which stops at the first, and the other findings. Unreadable annotation values are left
/// to [`lint`].
pub(super) fn refusals(service: &Service, kind: Kind) -> (Vec<ProviderError>, Vec<Finding>) {
    let mut refused = check::before_ports(service, Annotations::read(&service.metadata.annotations), kind);
    let ignored = check::source_ranges(service).ok().and_then(|(_, ignored)| ignored);
    refused.extend(check::no_client(ignored.as_ref()));
    let (of_kind, noticed) = match of_kind(service, Common::default(), kind, None) {
        Ok((_, noticed)) => (None, noticed),
        Err(error) => (Some(error), Vec::new()),
    };
    refused.extend(of_kind);
    refused.extend(check::after_ports(service).err());
    (refused, noticed)
}

/// The desired state of an existing balancer when the current Service is invalid: only its nodes are updated. The error
/// itself was emitted as an event when the Service changed.
fn only_hosts(
    desired: &mut Wanted,
    item: &ServiceWork,
    kind: Kind,
    mistake: ProviderError,
) -> Result<(), ProviderError> {
    let service = &*item.service;
    let Ok((targets, wrong_ids, noticed)) = targets(item, Annotations::read(&service.metadata.annotations)) else {
        return Err(mistake);
    };
    let common = Common { must_exist: true, internal: true, targets, wrong_ids, ..Common::default() };
    // The kind itself may be the mistake.
    desired.goal = match hostname::of(service).and_then(hostname::kind).unwrap_or(kind) {
        Kind::Classic => Goal::Classic(Box::new(Classic { common, ..Classic::default() })),
        Kind::Network => Goal::Network(Box::new(Network { common, ..Network::default() })),
    };
    desired.findings = noticed;
    desired.findings.push(Finding::new(
        Severity::Info,
        "nodes",
        format!("only the nodes behind the load balancer are updated, until this is corrected: {mistake}"),
    ));
    Ok(())
}

fn of_kind(
    service: &Service,
    common: Common,
    kind: Kind,
    probe: Option<&SharedProbe>,
) -> Result<(Goal, Vec<Finding>), ProviderError> {
    let (goal, noticed) = match kind {
        Kind::Classic => {
            let (classic, noticed) = classic::classic(service, common, probe)?;
            (Goal::Classic(Box::new(classic)), noticed)
        }
        Kind::Network => {
            let (network, noticed) = network::network(service, common, probe)?;
            (Goal::Network(Box::new(network)), noticed)
        }
    };
    let annotations = Annotations::read(&service.metadata.annotations);
    if let Some(finding) = refused(kind, service, annotations, probe.is_some()) {
        return Err(invalid(finding));
    }
    let findings = check::families(service).into_iter().chain(noticed).collect();
    Ok((goal, findings))
}

/// A finding if this program's balancer still exists although the Service now belongs to another controller.
pub(crate) fn previous_balancer(service: &Service) -> Option<Finding> {
    let annotations = Annotations::read(&service.metadata.annotations);
    let name = service.default_load_balancer_name();
    let behind = Controller::of(annotations) == Controller::Other && hostname::shows(service, &name);
    behind.then(|| {
        let problem = format!(
            "the previous load balancer {name} stays until the Service is deleted; delete the Service and create it \
             again to remove it"
        );
        annotations.warn(TYPE.row, problem)
    })
}

/// Whether a node has these labels. One without a value matches any value.
fn has_labels(node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let has = |(key, value): (&String, &String)| {
        node.labels.get(key).is_some_and(|found| value.is_empty() || found == value.as_str())
    };
    labels.iter().all(has)
}

/// Whether a node may be a target of the load balancer. With a wrong provider ID it may, so that the mistake is
/// reported.
pub(crate) fn may_be_target(service: &Service, node: &Node) -> bool {
    let may_be = match ProviderId::parse(node.provider_id_or_empty()) {
        Ok(id) => matches!(id.machine, Machine::Ec2(_)),
        Err(BadProviderId::Malformed(id)) => !id.is_empty(),
        Err(BadProviderId::Foreign(_)) => false,
    };
    may_be && {
        let annotations = Annotations::read(&service.metadata.annotations);
        has_labels(node, &annotations.readable(&TARGET_NODE_LABELS).unwrap_or_default())
    }
}

/// The nodes that get traffic, by instance ID, the number of those with a wrong provider ID, and findings about nodes that
/// cannot.
type Targets = (BTreeMap<String, String>, usize, Vec<Finding>);

fn targets(item: &ServiceWork, annotations: Annotations<'_>) -> Result<Targets, ProviderError> {
    let labels = annotations.get_or_default(&TARGET_NODE_LABELS)?;
    let mut targets = BTreeMap::new();
    let (mut unusable, mut skipped, mut waiting, mut labeled) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for node in &*item.nodes {
        if !has_labels(node, &labels) {
            continue;
        }
        labeled += 1;
        match node.provider_id.as_deref().map(ProviderId::parse) {
            Some(Ok(ProviderId { machine: Machine::Ec2(id) })) => {
                targets.insert(id.to_string(), node.name.to_string());
            }
            Some(Err(BadProviderId::Malformed(_))) => unusable.push(&*node.name),
            None => waiting.push(&*node.name),
            _ if node.provider_id_or_empty().is_empty() => waiting.push(&*node.name),
            // A Fargate node has no instance to register. A node of another cloud is not an error.
            Some(Ok(_) | Err(BadProviderId::Foreign(_))) => skipped.push(&*node.name),
        }
    }
    let wrong = unusable.len();
    let summary = [
        (Severity::Warning, unusable, "their spec.providerID names no instance; correct it"),
        (Severity::Info, waiting, "they have no spec.providerID yet"),
        (Severity::Info, skipped, "they are not EC2 instances of this cloud"),
    ];
    let findings = summary.into_iter().filter(|(_, nodes, _)| !nodes.is_empty()).map(|(severity, nodes, why)| {
        Finding::new(severity, "nodes", format!("no traffic for {}: {why}", first_few(&nodes)))
    });
    let mut findings: Vec<Finding> = findings.collect();
    if labeled == 0 && !labels.is_empty() {
        let problem = "no traffic for any node: none with an instance has all these labels; if that stays so, correct them or those of the nodes";
        findings.push(annotations.warn(TARGET_NODE_LABELS.row, problem));
    }
    Ok((targets, wrong, findings))
}

pub(crate) fn shortened(mut texts: Vec<String>, most: usize, between: &str) -> String {
    let more = texts.len().saturating_sub(most);
    texts.truncate(most);
    let shown = texts.join(between);
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
