//! The rules that let a balancer reach the nodes.
//!
//! Traffic of a classic balancer comes from its main group, and one rule allows everything from there. A network
//! balancer keeps the clients' addresses, so its rules name networks; they are recognized by their descriptions, which
//! equal upstream's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{Finding, ProviderError};

use super::delete::{is_of_program, may_be_changed, references};
use super::own::transport;
use super::steps;
use crate::client::ec2::{Peer, SecurityGroup};
use crate::client::{Id, Tags};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::rules::shared::{CLIENT, HEALTH, SharedRules};
use crate::loadbalancer::rules::{Rule, peer, split};
use crate::loadbalancer::step::{Besides, Step};
use crate::loadbalancer::wanted::{Common, Goal, Network, Wanted, first_few};

#[derive(Debug, Clone, Default)]
pub(crate) struct NodeGroups {
    pub(crate) ids: BTreeSet<String>,
    /// Groups of nodes without a clear choice: no rule of them is closed.
    pub(crate) unclear: BTreeSet<String>,
    /// Whether the groups of some nodes are not known.
    pub(crate) incomplete: bool,
    pub(crate) findings: Vec<Finding>,
    pub(crate) errors: Vec<ProviderError>,
}

impl NodeGroups {
    /// Whether no wanted node has the group.
    fn is_left(&self, group: &str) -> bool {
        !self.incomplete && !self.ids.contains(group) && !self.unclear.contains(group)
    }
}

/// The one group of each wanted node that gets the rules.
pub(crate) fn groups(common: &Common, observed: &Observed, env: &Env) -> NodeGroups {
    let mut groups = NodeGroups { incomplete: !observed.doubtful_instances.is_empty(), ..NodeGroups::default() };
    let mut refused = Vec::new();
    for (id, name) in &common.targets {
        let Some(instance) = observed.instances.get(id) else { continue };
        match group_of(id, &instance.security_groups, &observed.groups, env) {
            Ok(Some(group)) if observed.groups.contains_key(group) => drop(groups.ids.insert(group.to_owned())),
            Ok(Some(group)) => {
                groups.unclear.insert(group.to_owned());
                let text = format!("EC2 does not show security group {group} of instance {id}");
                refused.push((name, ProviderError::unknown(text)));
            }
            Ok(None) => {
                let text = format!("instance {id} has no security group; no rule allows the load balancer");
                groups.findings.push(Finding::warning("node", text).value(name.clone()));
            }
            Err(error) => {
                groups.unclear.extend(instance.security_groups.iter().cloned());
                refused.push((name, error));
            }
        }
    }
    groups.errors.extend(refused_nodes(refused));
    groups
}

/// One error for all nodes without a clear choice.
fn refused_nodes(refused: Vec<(&String, ProviderError)>) -> Option<ProviderError> {
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    let nodes = first_few(&names);
    let (_, error) = refused.into_iter().next()?;
    Some(ProviderError::unknown(format!("{error} (no rules for: {nodes})")))
}

/// The group of an instance with the cluster's tag; among several the owned one; if none is tagged, the only one.
pub(crate) fn group_of<'a>(
    instance: &str,
    attached: &'a [String],
    groups: &BTreeMap<String, SecurityGroup>,
    env: &Env,
) -> Result<Option<&'a str>, ProviderError> {
    let tags = |id: &str| groups.get(id).map(|group| &group.tags);
    let has = |id: &str, test: &dyn Fn(&Tags) -> bool| tags(id).is_some_and(test);
    let all = attached.iter().map(String::as_str);
    let members: Vec<&str> = all.clone().filter(|id| has(id, &|tags| env.ownership.is_member(tags))).collect();
    let owned: Vec<&str> = members.iter().copied().filter(|id| has(id, &|tags| env.ownership.is_owned(tags))).collect();
    let key = env.ownership.cluster_key().unwrap_or_default();
    let named = |id: &&str| groups.get(*id).map_or_else(String::new, |group| format!("{id}({})", group.name));
    match (&*owned, &*members, attached.len()) {
        ([only], ..) | (_, [only], _) => Ok(Some(only)),
        (_, [], 0) => Ok(None),
        (_, [], 1) => Ok(all.clone().next()),
        (_, [], _) => Err(ProviderError::unknown(format!(
            "Multiple untagged security groups found for instance {instance}; ensure the k8s security group is tagged: of {} tag the \
             one that lets load balancers in with {key}=owned",
            attached.join(", ")
        ))),
        _ => Err(ProviderError::unknown(format!(
            "Multiple tagged security groups found for instance {instance}; ensure only the k8s security group is tagged; the tagged \
             groups were {}: leave {key}=owned on only one of them",
            members.iter().map(named).collect::<Vec<_>>().join(" ")
        ))),
    }
}

/// The group that node rules for a classic balancer name: by position in `security-groups`, then groups that no
/// annotation names, then by position in `extra-security-groups`; among equals, members of the cluster first.
pub(crate) fn main_group<'a>(ids: &'a [Id], desired: &Wanted, observed: &Observed, env: &Env) -> Option<&'a Id> {
    let position = |list: &[String], id: &Id| list.iter().position(|named| id.known() == Some(named));
    ids.iter().min_by_key(|id| {
        let instead = position(&desired.named_groups.instead, id);
        let extra = position(&desired.named_groups.extra, id);
        let place = match (instead, extra) {
            (Some(place), _) => (0, place),
            (None, None) => (1, 0),
            (None, Some(place)) => (2, place),
        };
        let member = match id {
            Id::Known(id) => observed.groups.get(id).is_some_and(|group| env.ownership.is_member(&group.tags)),
            Id::Made(_) => true,
        };
        (place, !member)
    })
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ClassicRules {
    /// Opens rules, before the balancer sends traffic.
    pub(crate) open: Vec<Step>,
    pub(crate) close: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) errors: Vec<ProviderError>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkRules {
    pub(crate) steps: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) errors: Vec<ProviderError>,
}

/// Allows everything from the main group. A node group that already refers to it in any way is left unchanged: the user
/// may have narrowed the rule.
pub(crate) fn classic(main: &Id, wanted: NodeGroups, observed: &Observed, env: &Env) -> ClassicRules {
    let mut rules = ClassicRules::default();
    let known = main.known().unwrap_or_default();
    let references = references(known, observed);
    let refers_to_itself =
        observed.groups.get(known).is_some_and(|group| split(&group.ingress).iter().any(|rule| rule.is_from(known)));
    for group in wanted.ids.iter().filter(|group| may_be_changed(group, env)) {
        let there = references.contains_key(&**group) || (group == known && refers_to_itself);
        if !there {
            let rule = vec![Rule::all_from(main.clone())];
            let reason = "the load balancer sends to nodes of that group";
            rules.open.extend(steps::authorize(&group.clone().into(), rule, reason));
        }
    }
    for (group, (holder, mut theirs)) in references {
        theirs.retain(is_of_program);
        let is_member = env.ownership.is_member(&holder.tags);
        // Another balancer with the group may send to other nodes.
        if is_member && wanted.is_left(group) && may_be_changed(group, env) && !observed.shared_groups.contains(known) {
            let reason = "the load balancer sends to no node of that group";
            rules.close.extend(steps::revoke(&group.into(), theirs, reason));
        }
    }
    rules.findings = wanted.findings;
    rules.errors = wanted.errors;
    rules
}

/// Updates the rules for a network balancer in every group of the cluster. `goal` is the desired balancer with its
/// subnets, or `None` if it is deleted. A rule that exists with another description is enough: several balancers may
/// need the same one.
pub(crate) fn network(
    desired: &Wanted,
    goal: Option<(&Network, &BTreeSet<String>)>,
    observed: &Observed,
    env: &Env,
) -> NetworkRules {
    if env.node_groups_untouched {
        return NetworkRules::default();
    }
    let (wanted, groups) = match network_goal(desired, goal, observed, env) {
        Ok(goal) => goal,
        Err(error) => return NetworkRules { errors: vec![error], ..NetworkRules::default() },
    };
    let mut steps = Vec::new();
    for group in observed.groups.values().filter(|group| may_be_changed(&group.id, env)) {
        let is_wanted = groups.ids.contains(&group.id);
        let mut rules = SharedRules::of(desired, observed);
        rules.is_vacant = observed.node_groups.as_ref().is_some_and(|all| !all.contains(&group.id));
        if is_wanted {
            rules.wanted.clone_from(&wanted);
        }
        let found = split(&group.ingress);
        // Whatever else fails, no source that is not wanted reaches a port that is.
        let mut of_ports = rules.clone();
        of_ports.keeps_ports = true;
        let (change, narrowed) = (rules.change(&found), of_ports.change(&found));
        (rules.closes, of_ports.closes) = (change.gives_up, change.gives_up);
        let is_left = goal.is_none() || groups.is_left(&group.id);
        // The rules of this balancer are known by its name, in whatever group.
        let may_close = env.ownership.is_member(&group.tags) || rules.closes;
        if is_wanted || (is_left && may_close && change.takes_away()) {
            let (rules, of_ports) = (Arc::new(rules), Arc::new(of_ports));
            let [open, narrowed, rest] = change.in_turn(narrowed);
            for (rules, change) in [(&rules, open), (&of_ports, narrowed), (&rules, rest)] {
                let of_change = steps::of_change(&group.id, change).into_iter();
                steps.extend(of_change.map(|step| Step { besides: Besides::Shared(rules.clone()), ..step }));
            }
        }
    }
    NetworkRules { steps, findings: groups.findings, errors: groups.errors }
}

/// Whether [`network`] would revoke rules, so that the health checks of other balancers must be known.
pub(crate) fn gives_up_rules(desired: &Wanted, observed: &Observed, env: &Env) -> bool {
    let subnets = observed.network.iter().flat_map(|network| &network.balancer.zones);
    let subnets: BTreeSet<String> = subnets.map(|zone| zone.subnet.clone()).collect();
    let goal = match &desired.goal {
        Goal::Network(network) => Some((&**network, &subnets)),
        Goal::Absent | Goal::Classic(_) => None,
    };
    let Ok((wanted, groups)) = network_goal(desired, goal, observed, env) else { return false };
    observed.groups.values().any(|group| {
        let mut rules = SharedRules::of(desired, observed);
        if groups.ids.contains(&group.id) {
            rules.wanted.clone_from(&wanted);
        }
        rules.change(&split(&group.ingress)).gives_up
    })
}

/// The wanted rules, and the groups that need them.
fn network_goal(
    desired: &Wanted,
    goal: Option<(&Network, &BTreeSet<String>)>,
    observed: &Observed,
    env: &Env,
) -> Result<(Vec<Rule>, NodeGroups), ProviderError> {
    let Some((network, subnets)) = goal else { return Ok(Default::default()) };
    let groups = groups(&network.common, observed, env);
    let mut cidrs = BTreeSet::new();
    for subnet in subnets {
        let Some(subnet) = observed.subnets.get(subnet) else {
            return Err(ProviderError::unknown(format!(
                "the network of subnet {subnet} of the load balancer is not known"
            )));
        };
        cidrs.insert(subnet.cidr.clone());
    }
    cidrs.remove("");
    Ok((network_rules(&desired.name, network, &cidrs), groups))
}

/// The rules of a network balancer for its clients.
pub(crate) fn client_rules(balancer: &str, network: &Network) -> Vec<Rule> {
    let ports = network.ports.iter().map(|port| (transport(&port.traffic_protocol), port.node_port));
    let ports: BTreeSet<(&str, i32)> = ports.collect();
    let ranges: Vec<Peer> = network.common.source_ranges.iter().map(peer).collect();
    let mut rules = Vec::new();
    for (protocol, port) in ports {
        let peers = ranges.iter().cloned();
        rules.extend(peers.map(|peer| Rule::port(protocol, port, peer).described(&format!("{CLIENT}={balancer}"))));
    }
    rules
}

fn network_rules(balancer: &str, network: &Network, cidrs: &BTreeSet<String>) -> Vec<Rule> {
    let clients = client_rules(balancer, network);
    let probed = network.probed();
    // A client rule for 0.0.0.0/0 allows the health checks too.
    let from_all = |port: &i32| Rule::port("tcp", *port, Peer::Ipv4("0.0.0.0/0".to_owned())).tuple();
    let implied = clients.iter().map(Rule::tuple).eq(probed.iter().map(from_all));
    let mut rules = Vec::new();
    if !implied {
        for port in &probed {
            let peers = cidrs.iter().map(|cidr| Peer::Ipv4(cidr.clone()));
            rules.extend(peers.map(|peer| Rule::port("tcp", *port, peer).described(&format!("{HEALTH}={balancer}"))));
        }
    }
    rules.extend(clients);
    rules
}
