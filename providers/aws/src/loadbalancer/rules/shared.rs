//! The rules of network balancers in the groups of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, Tuple, missing, split, surplus};
use crate::client::ec2::{Peer, SecurityGroup};
use crate::client::write::Ec2Write;
use crate::loadbalancer::observed::{Neighbors, Observed, Probes};
use crate::loadbalancer::wanted::Wanted;

/// Begins the description of a rule for clients; the name of the balancer follows after `=`.
pub(crate) const CLIENT: &str = "kubernetes.io/rule/nlb/client";
/// Begins the description of a rule for health checks; the name of the balancer follows after `=`.
pub(crate) const HEALTH: &str = "kubernetes.io/rule/nlb/health";
/// Description of the rules for "fragmentation needed", which all network balancers share.
pub(crate) const MTU: &str = "kubernetes.io/rule/nlb/mtu";
/// Descriptions of this program's rules contain one of these.
pub(crate) const DESCRIPTIONS: [&str; 3] = [CLIENT, HEALTH, MTU];

/// Whether a rule was created for the network balancer of this name.
pub(crate) fn is_for(rule: &Rule, balancer: &str) -> bool {
    let of = |kind: &str| rule.description.strip_prefix(kind).and_then(|rest| rest.strip_prefix('=')) == Some(balancer);
    of(CLIENT) || of(HEALTH)
}

pub(crate) fn is_for_clients(rule: &Rule) -> bool {
    rule.description.starts_with(CLIENT)
}

/// The rules that a network balancer needs in a node group. All network balancers change the same groups, so writes are
/// computed for one balancer at a time, from the group's current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedRules {
    balancer: String,
    pub(crate) wanted: Vec<Rule>,
    /// Whether rules of this balancer may be revoked; requires `others`.
    pub(crate) closes: bool,
    /// Whether only rules are revoked whose sources have changed: another rule for the same purpose has the port. Those
    /// for "fragmentation needed" too.
    pub(crate) keeps_ports: bool,
    /// Whether no node has the group.
    pub(crate) is_vacant: bool,
    /// The rules of this balancer that others want for their clients, with the name of one of them.
    clients: BTreeMap<Tuple, String>,
    others: BTreeMap<String, Probes>,
    own: Probes,
    living: BTreeSet<String>,
}

impl SharedRules {
    pub(crate) fn of(desired: &Wanted, observed: &Observed) -> Self {
        Self {
            balancer: desired.name.clone(),
            wanted: Vec::new(),
            closes: true,
            keeps_ports: false,
            is_vacant: false,
            clients: BTreeMap::new(),
            others: observed.other_balancers.clone(),
            own: observed.own_probes.clone(),
            living: observed.network_balancers.clone(),
        }
    }

    /// The same rules among other neighbors. The balancer itself may be deleted by now.
    pub(crate) fn among(&self, found: Neighbors) -> Self {
        Self { others: found.others, living: found.living, ..self.clone() }
    }

    /// The same rules, some of which others want for their clients.
    pub(crate) fn beside(&self, clients: BTreeMap<Tuple, String>) -> Self {
        Self { clients, ..self.clone() }
    }

    pub(crate) fn balancer(&self) -> &str {
        &self.balancer
    }

    /// The change of the group's current state; with `opens` only the rules that it adds. `recent` are this process's
    /// last writes, which EC2 may not show yet.
    pub(crate) fn change_now(&self, group: &SecurityGroup, opens: bool, recent: &Recent) -> Change {
        let found = split(&group.ingress);
        let mut change = if opens { Change::default() } else { self.change(&recent.at_most(found.clone())) };
        // Adding an existing rule again is harmless, but a rule that was just revoked must not be taken for existing.
        change.open = self.change(&recent.at_least(found)).open;
        change
    }

    pub(crate) fn change(&self, found: &[Rule]) -> Change {
        let wanted = &self.wanted;
        let mut open = missing(wanted, found);
        let mut close = surplus(found, wanted);
        close.retain(|rule| self.closes && (is_for(rule, &self.balancer) || self.is_stale(rule)));
        // A health check does not serve clients: a listener that could not be replaced may still need their rule.
        let is_kept =
            |rule: &Rule, wanted: &Rule| wanted.is_of_port_of(rule) && is_for_clients(wanted) == is_for_clients(rule);
        close.retain(|rule| !self.keeps_ports || wanted.iter().any(|wanted| is_kept(rule, wanted)));
        let gives_up = close.iter().any(|rule| is_for(rule, &self.balancer));
        let relabeled: Vec<Rule> = close.iter().filter_map(|rule| self.relabeled(rule)).collect();
        let stays = found.iter().filter(|rule| !close.contains(rule)).chain(&open).chain(&relabeled);
        let clients = stays.filter(|rule| rule.description.contains(CLIENT)).map(|rule| rule.peer.clone());
        let networks = clients.filter(|peer| matches!(peer, Peer::Ipv4(_) | Peer::Ipv6(_)));
        let mtu: Vec<Rule> = networks.map(|peer| Rule::too_big(peer).described(MTU)).collect();
        close.retain(|rule| !relabeled.iter().any(|stays| stays.tuple() == rule.tuple()));
        // The others open those of their clients.
        let is_of_client = |rule: &Rule| wanted.iter().any(|one| is_for_clients(one) && one.peer == rule.peer);
        open.extend(missing(&mtu, found).into_iter().filter(is_of_client));
        // Without any client rule they are left over from a previous balancer.
        if gives_up || !wanted.is_empty() || mtu.is_empty() {
            let stale = surplus(found, &mtu).into_iter();
            close.extend(stale.filter(|rule| rule.description == MTU));
        }
        Change { open, close, relabeled, gives_up }
    }

    /// Whether a rule allows the health checks of this balancer in the name of one that no longer exists: it was not
    /// renamed when that was deleted, for which older roles lack the permission.
    fn is_stale(&self, rule: &Rule) -> bool {
        let name = rule.description.strip_prefix(HEALTH).and_then(|rest| rest.strip_prefix('='));
        let is_gone = name.is_some_and(|name| name != self.balancer && !self.living.contains(name));
        is_gone && self.own.allows(rule)
    }

    /// The rule with the description of another balancer whose clients or health checks it allows, if there is one. EC2
    /// keeps one description per rule: that of the first balancer.
    fn relabeled(&self, rule: &Rule) -> Option<Rule> {
        let client = self.clients.get(&rule.tuple()).map(|name| format!("{CLIENT}={name}"));
        let health = || self.others.iter().find(|(_, probes)| probes.allows(rule));
        let description = client.or_else(|| health().map(|(name, _)| format!("{HEALTH}={name}")));
        description.filter(|_| !self.is_vacant).map(|description| rule.clone().described(&description))
    }
}

impl Probes {
    /// Whether the checks need the rule.
    fn allows(&self, rule: &Rule) -> bool {
        let Peer::Ipv4(cidr) = &rule.peer else { return false };
        let port = rule.from_port.filter(|_| rule.from_port == rule.to_port && rule.protocol == "tcp");
        port.is_some_and(|port| self.ports.contains(&port)) && self.cidrs.contains(cidr)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) open: Vec<Rule>,
    pub(crate) close: Vec<Rule>,
    /// Rules that get the description of another balancer that needs them.
    pub(crate) relabeled: Vec<Rule>,
    /// Whether any rule of this balancer is revoked or relabeled.
    pub(crate) gives_up: bool,
}

impl Change {
    /// What is opened, what `first` takes away, and what is taken away besides.
    pub(crate) fn in_turn(self, first: Self) -> [Self; 3] {
        let rest = |all: Vec<Rule>, first: &[Rule]| all.into_iter().filter(|rule| !first.contains(rule)).collect();
        let open = Self { open: self.open, ..Self::default() };
        let last = Self {
            close: rest(self.close, &first.close),
            relabeled: rest(self.relabeled, &first.relabeled),
            ..Self::default()
        };
        [open, Self { open: Vec::new(), ..first }, last]
    }

    /// Whether a rule for health checks is revoked or relabeled.
    pub(crate) fn takes_probes_away(&self) -> bool {
        self.close.iter().chain(&self.relabeled).any(|rule| rule.description.starts_with(HEALTH))
    }

    pub(crate) fn takes_away(&self) -> bool {
        !self.close.is_empty() || !self.relabeled.is_empty()
    }
}

/// This process's last rule writes to a group, in order.
#[derive(Debug, Default)]
pub(crate) struct Recent(BTreeMap<Tuple, Last>);

#[derive(Debug)]
enum Last {
    Opened(Rule),
    Closed,
    /// It may have been opened or closed.
    Unanswered,
}

impl Recent {
    pub(crate) fn add(&mut self, write: &Ec2Write, is_answered: bool) {
        let (permissions, opens) = match write {
            Ec2Write::AuthorizeSecurityGroupIngress { permissions, .. }
            | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { permissions, .. } => (permissions, true),
            Ec2Write::RevokeSecurityGroupIngress { permissions, .. } => (permissions, false),
            _ => return,
        };
        let last = |rule| match is_answered {
            true if opens => Last::Opened(rule),
            true => Last::Closed,
            false => Last::Unanswered,
        };
        self.0.extend(split(permissions).into_iter().map(|rule| (rule.tuple(), last(rule))));
    }

    /// Whether the rule was, or may have been, closed.
    pub(crate) fn has_closed(&self, rule: &Tuple) -> bool {
        matches!(self.0.get(rule), Some(Last::Closed | Last::Unanswered))
    }

    fn at_least(&self, mut found: Vec<Rule>) -> Vec<Rule> {
        found.retain(|rule| !self.has_closed(&rule.tuple()));
        found
    }

    /// The rules without those that were closed, and with those that were opened. One whose write had no answer is there
    /// if EC2 shows it.
    fn at_most(&self, mut found: Vec<Rule>) -> Vec<Rule> {
        found.retain(|rule| matches!(self.0.get(&rule.tuple()), None | Some(Last::Unanswered)));
        found.extend(self.0.values().filter_map(|last| match last {
            Last::Opened(rule) => Some(rule.clone()),
            Last::Closed | Last::Unanswered => None,
        }));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Id;
    use crate::loadbalancer::rules::join;

    #[test]
    fn a_rule_whose_write_had_no_answer_is_open_if_it_is_shown_and_is_opened_again_if_it_is_wanted() {
        let rule = Rule::port("tcp", 31080, Peer::Ipv4("10.0.0.0/8".to_owned())).described(CLIENT);
        let (group, permissions) = (Id::from("sg-1"), join(vec![rule.clone()]));
        let (opened, closed) = (group.clone(), permissions.clone());
        let open = Ec2Write::AuthorizeSecurityGroupIngress { group: opened, permissions };
        let close = Ec2Write::RevokeSecurityGroupIngress { group, permissions: closed };
        let mut recent = Recent::default();
        recent.add(&open, true);
        let shown = vec![rule];
        assert_eq!(recent.at_most(Vec::new()), shown, "not shown yet");
        recent.add(&close, false);
        assert_eq!(recent.at_most(Vec::new()), []);
        assert_eq!(recent.at_most(shown.clone()), shown);
        assert_eq!(recent.at_least(shown), []);
    }
}
