//! Steps that change the rules of a group.

use std::collections::BTreeSet;

use ccm_provider::Verb;

use crate::client::ec2::{Peer, Permission};
use crate::client::write::Ec2Write;
use crate::client::{Id, Write};
use crate::loadbalancer::rules::shared::Change;
use crate::loadbalancer::rules::{Rule, join, missing, split, surplus};
use crate::loadbalancer::step::{Besides, Kind, Room, Step};

/// Sets the rules of a group exactly, except that IPv6 ranges and prefix lists stay on the wanted ports while no other
/// source of the port is closed: only users add them, and upstream keeps them as long. Missing rules are opened before
/// surplus ones are closed, so that no client is blocked in between.
pub(crate) fn set_exactly(group: &Id, found: &[Permission], wanted: &[Rule], reason: &str) -> Vec<Step> {
    let found = split(found);
    let is_users = |rule: &Rule| matches!(rule.peer, Peer::Ipv6(_) | Peer::PrefixList(_));
    let (by_users, mut old): (Vec<Rule>, Vec<Rule>) = surplus(&found, wanted).into_iter().partition(is_users);
    let has_port = |rules: &[Rule], rule: &Rule| rules.iter().any(|one| one.is_of_port_of(rule));
    let closed = by_users.into_iter().filter(|rule| !has_port(wanted, rule) || has_port(&old, rule));
    old.extend(closed.collect::<Vec<_>>());
    let mtu = found.iter().filter(|rule| rule.is_icmp() && !is_users(rule) && !old.contains(rule)).cloned().collect();
    let room = Besides::Room(Room { surplus: old.clone(), spare: mtu });
    let opened = authorize(group, missing(wanted, &found), reason).map(|step| Step { besides: room, ..step });
    let closed = revoke(group, old, "the Service doesn't ask for it");
    opened.into_iter().chain(closed).collect()
}

/// The steps of a change of shared rules. Opens before it closes, so that no traffic is blocked in between.
pub(crate) fn of_change(group: &str, change: Change) -> Vec<Step> {
    let id = Id::from(group);
    let open = authorize(&id, change.open, "clients and health checks of the load balancer need it");
    let close = revoke(&id, change.close, "the load balancer no longer needs it");
    let relabeled = describe(&id, change.relabeled, "another load balancer needs it");
    [open, relabeled, close].into_iter().flatten().collect()
}

pub(crate) fn authorize(group: &Id, rules: Vec<Rule>, reason: &str) -> Option<Step> {
    change(group, rules, reason, |group, permissions| Ec2Write::AuthorizeSecurityGroupIngress { group, permissions })
}

pub(crate) fn revoke(group: &Id, rules: Vec<Rule>, reason: &str) -> Option<Step> {
    change(group, rules, reason, |group, permissions| Ec2Write::RevokeSecurityGroupIngress { group, permissions })
}

pub(crate) fn describe(group: &Id, rules: Vec<Rule>, reason: &str) -> Option<Step> {
    if rules.is_empty() {
        return None;
    }
    let summary: Vec<(String, String)> =
        rules.iter().map(|rule| (rule.to_string(), rule.description.clone())).collect();
    let (group, permissions) = (group.clone(), join(rules));
    let id = group.to_string();
    let write = Write::Ec2(Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions });
    let step = Step::new(Verb::Update, "SecurityGroup", id, reason, write);
    let summary = summary.into_iter();
    Some(summary.fold(step, |step, (rule, text)| step.change(format!("description of {rule}"), None, Some(text))))
}

fn change(group: &Id, rules: Vec<Rule>, reason: &str, write: impl Fn(Id, Vec<Permission>) -> Ec2Write) -> Option<Step> {
    if rules.is_empty() {
        return None;
    }
    let mut texts: Vec<String> = rules.iter().map(Rule::to_string).collect();
    texts.sort();
    let write = write(group.clone(), join(rules));
    let opens = matches!(write, Ec2Write::AuthorizeSecurityGroupIngress { .. });
    let step = Step::new(Verb::Update, "SecurityGroup", group.to_string(), reason, Write::Ec2(write));
    Some(texts.into_iter().fold(step, |step, text| match opens {
        true => step.change("ingress", None, Some(text)),
        false => step.change("ingress", Some(text), None),
    }))
}

/// Divides steps into those that open rules and those that close some. The second of a pair is whether the balancer keeps
/// the ports of what is closed: then nothing else needs it. Otherwise, what could not be changed may still need it.
pub(crate) fn divide(steps: impl Iterator<Item = (Step, bool)>) -> (Vec<Step>, Vec<Step>) {
    let opens = |step: &Step| matches!(step.write, Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }));
    let (open, close): (Vec<_>, Vec<_>) = steps.partition(|(step, _)| opens(step));
    let released = |step: Step| Step { needs: None, ..step.part(Kind::Release, "") };
    let close = close.into_iter().map(|(step, narrows)| if narrows { step } else { released(step) });
    (open.into_iter().map(|(step, _)| step).collect(), close.collect())
}

/// Divides the closing of rules of the balancer's own group: those of ports that it keeps, of which only the sources
/// have changed (`true`), and the rest. `ports` are those that it keeps, with their protocols.
pub(crate) fn by_port(ports: &BTreeSet<(&str, i32)>, step: Step) -> Vec<(Step, bool)> {
    let Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions }) = &step.write else {
        return vec![(step, false)];
    };
    let is_kept = |rule: &Rule| {
        let port = rule.from_port.filter(|_| rule.from_port == rule.to_port);
        rule.is_icmp() || port.is_some_and(|port| ports.contains(&(&*rule.protocol, port)))
    };
    let (kept, rest): (Vec<Rule>, Vec<Rule>) = split(permissions).into_iter().partition(is_kept);
    let revoke = |rules, narrows| Some((revoke(group, rules, &step.summary.reason)?, narrows));
    revoke(kept, true).into_iter().chain(revoke(rest, false)).collect()
}
