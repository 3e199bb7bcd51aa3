//! Objects that are full: what fits is written, and the error names the rest.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::split_refused;
use ccm_provider::{Finding, ProviderError};
use parking_lot::Mutex;

use super::{Outputs, send, targets};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};
use crate::client::{self, ApiError, Id, Write};
use crate::loadbalancer::reads::Reads;
use crate::loadbalancer::rules::shared::HEALTH;
use crate::loadbalancer::rules::{Port, Rule, join, port, split};
use crate::loadbalancer::step::{Besides, Room, Step};
use crate::loadbalancer::wanted::first_few;

/// The security group has no room for the rules.
pub(super) const FULL_GROUP: &[&str] = &["RulesPerSecurityGroupLimitExceeded"];
/// The target group has no room for the targets, or a target is in too many groups.
const FULL_TARGETS: &[&str] = &["TooManyTargets", "TooManyRegistrationsForTargetId"];

/// A limit of the balancer or the account: AWS refuses every other creation of the kind, too.
pub(super) const EXHAUSTED: &[&str] = &[
    "TooManyLoadBalancers",
    "TooManyListeners",
    "TooManyTargetGroups",
    "TooManyUniqueTargetGroupsPerLoadBalancer",
    "TooManyPolicies",
];

/// The target cannot be registered.
const UNFIT: &[&str] = &["InvalidTarget", "InvalidInstance", "InvalidEndPoint"];

/// Whether AWS may refuse only some of the targets of a registration. (It has no code for a full classic balancer.)
pub(super) fn concerns_some_targets(write: &Write, error: &ApiError) -> bool {
    let registers = matches!(
        write,
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { .. })
            | Write::ElbV2(ElbV2Write::RegisterTargets { .. })
    );
    let codes = [FULL_TARGETS, UNFIT, &["InvalidConfigurationRequest", "ValidationError"]];
    registers && codes.iter().any(|codes| error.is(codes))
}

/// A full security group.
struct FullGroup<'a> {
    group: &'a Id,
    reads: &'a Reads,
    /// Its rules that make room for others.
    spare: Vec<Rule>,
    /// The smallest number of rules for which there was no room since some were closed.
    refused: usize,
    last: ApiError,
}

/// Opens rules of a full group after its surplus rules are closed: those of each port if all of them fit, then those for
/// clients alone, and if all fit those for "fragmentation needed".
pub(super) async fn rules(
    step: &Step,
    write: &Write,
    full: ApiError,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }) = write else {
        return Err(full.into());
    };
    let shared = if let Besides::Shared(rules) = &step.besides { Some(&**rules) } else { None };
    let Room { surplus, spare } = match &step.besides {
        Besides::Room(room) => room.clone(),
        _ => super::at_nodes::room(shared, group, reads).await?,
    };
    let wanted = split(permissions);
    let mut full = FullGroup { group, reads, spare, refused: wanted.len(), last: full };
    full.close(surplus).await?;
    let (mtu, serving): (Vec<Rule>, Vec<Rule>) = wanted.into_iter().partition(Rule::is_icmp);
    let of_clients = shared.map_or(&*serving, |rules| &*rules.wanted).iter().filter(|rule| !is_check(rule));
    let (mut checks, ports) = ports(&serving, &of_clients.map(port).collect());
    let mut left = Vec::new();
    for port in ports {
        let whole: Vec<Rule> = port.iter().chain(&checks).cloned().collect();
        match full.open_whole(&whole).await? {
            true => checks.clear(),
            false => left.push(port),
        }
    }
    if let Some(rules) = shared.filter(|_| !left.is_empty()) {
        let ports = left.iter().flatten().map(port).collect();
        reads.at_nodes.incomplete(group, rules.balancer(), ports);
    }
    let left = full.open_some(left, checks).await?;
    let no_room = |left: &[Rule]| {
        format!("security group {group} has no room for {}: remove rules or raise the quota", texts(left))
    };
    if !left.is_empty() {
        return Err(ProviderError::from(full.last).wrap(no_room(&left)));
    }
    if !full.open(&mtu).await? {
        let text = format!("{}; until then, large packets of these clients may be lost", no_room(&mtu));
        outputs.unopened.push(Finding::warning("security group", text));
    }
    Ok(())
}

fn texts(rules: &[Rule]) -> String {
    let texts: Vec<String> = rules.iter().map(Rule::to_string).collect();
    first_few(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn is_check(rule: &Rule) -> bool {
    rule.description.contains(HEALTH)
}

/// The rules for the clients of each port and for its health checks. First, the health checks of another port, which all
/// ports need; if the clients of a port are let in already, there is one that needs nothing else.
fn ports(rules: &[Rule], of_clients: &BTreeSet<Port>) -> (Vec<Rule>, Vec<Vec<Rule>>) {
    let mut ports = BTreeMap::<Port, Vec<Rule>>::new();
    for rule in rules {
        ports.entry(port(rule)).or_default().push(rule.clone());
    }
    let is_open = of_clients.iter().any(|port| ports.get(port).is_none_or(|rules| rules.iter().all(is_check)));
    let (mut checks, mut all) = (Vec::new(), Vec::new());
    for (port, rules) in ports {
        if of_clients.contains(&port) { all.push(rules) } else { checks.extend(rules) }
    }
    if is_open && !checks.is_empty() {
        all.insert(0, Vec::new());
    }
    (checks, all)
}

impl FullGroup<'_> {
    /// Opens all of the rules or none. Those for "fragmentation needed" make room, if that is enough.
    async fn open_whole(&mut self, rules: &[Rule]) -> Result<bool, ProviderError> {
        if self.open(rules).await? {
            return Ok(true);
        }
        // The first ones show whether it is.
        let (first, rest) = rules.split_at(rules.len().saturating_sub(self.spare.len()));
        if rest.is_empty() || !self.open(first).await? {
            return Ok(false);
        }
        let room = self.spare.drain(..rest.len()).collect();
        self.close(room).await?;
        self.open(rest).await
    }

    /// Opens what fits of ports that do not fit whole: the clients of a port, then single ones, then health checks.
    /// Returns what does not fit; what is closed to clients says it all.
    async fn open_some(&mut self, ports: Vec<Vec<Rule>>, checks: Vec<Rule>) -> Result<Vec<Rule>, ProviderError> {
        let (mut all_checks, mut single) = (checks, Vec::new());
        for port in ports {
            let (checks, clients): (Vec<Rule>, Vec<Rule>) = port.into_iter().partition(is_check);
            all_checks.extend(checks);
            if !self.open(&clients).await? {
                single.extend(clients);
            }
        }
        let left = self.open_first(single).await?;
        if left.is_empty() { self.open_first(all_checks).await } else { Ok(left) }
    }

    /// Opens the first of the rules, as many as there is room for. Returns the others.
    async fn open_first(&mut self, mut rules: Vec<Rule>) -> Result<Vec<Rule>, ProviderError> {
        let mut count = 1;
        while !rules.is_empty() && count > 0 {
            count = count.min(rules.len());
            if self.open(rules.get(..count).unwrap_or_default()).await? {
                rules.drain(..count);
                count *= 2;
            } else {
                count /= 2;
            }
        }
        Ok(rules)
    }

    /// Opens all of the rules; `false`: there is no room.
    async fn open(&mut self, rules: &[Rule]) -> Result<bool, ProviderError> {
        if rules.is_empty() || rules.len() >= self.refused {
            return Ok(rules.is_empty());
        }
        let mut answer = self.authorize(rules).await;
        if answer.is_ok() {
            self.refused -= rules.len();
        } else if answer.as_ref().is_err_and(|error| error.is(&["InvalidPermission.Duplicate"])) {
            // One that exists takes no room.
            for rule in rules {
                answer = self.authorize(std::slice::from_ref(rule)).await;
                if answer.is_err() {
                    break;
                }
            }
        }
        match answer {
            Err(error) if error.is(FULL_GROUP) => {
                (self.refused, self.last) = (rules.len(), error);
                Ok(false)
            }
            answer => Ok(answer.map(|()| true)?),
        }
    }

    async fn authorize(&self, rules: &[Rule]) -> Result<(), ApiError> {
        let (group, permissions) = (self.group.clone(), join(rules.to_vec()));
        let write = Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions });
        match send(&write, self.reads).await {
            Err(error) if super::is_so_already(&write, &error) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn close(&mut self, rules: Vec<Rule>) -> Result<(), ProviderError> {
        if rules.is_empty() {
            return Ok(());
        }
        self.refused = usize::MAX;
        let (group, permissions) = (self.group.clone(), join(rules));
        let revoke = Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions });
        match send(&revoke, self.reads).await {
            Err(error) if super::is_rule_of_several(&revoke, &error) => super::one_by_one(&revoke, self.reads).await,
            answer => answer.map(drop).map_err(Into::into),
        }
    }
}

/// Registers the targets that AWS takes. Those that are registered stay.
pub(super) async fn targets(
    write: Write,
    error: &ApiError,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let ids: Vec<String> = match &write {
        Write::ElbV2(ElbV2Write::RegisterTargets { targets, .. }) => targets.iter().map(|one| one.id.clone()).collect(),
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. }) => instances.clone(),
        _ => return Err(ProviderError::bug("not the registration of targets")),
    };
    // One target that a full group refuses shows that there is no room for the others.
    let full = &Mutex::new(None::<ApiError>);
    let register = |ids: Vec<String>| {
        let part = targets::only(write.clone(), &ids);
        async move {
            if let Some(error) = full.lock().clone() {
                return Err(error);
            }
            let answer = send(&part, reads).await;
            if let (1, Err(error)) = (ids.len(), &answer)
                && error.is(&["TooManyTargets"])
            {
                *full.lock() = Some(error.clone());
            }
            answer
        }
    };
    let is_unfit = |error: &ApiError| error.is(UNFIT);
    let is_refused = |error: &ApiError| concerns_some_targets(&write, error);
    if ids.len() == 1 {
        outputs.refused.extend(targets::refused(&write, ids, error, !is_unfit(error)));
        return Ok(());
    }
    let names = |error: &ApiError, id: &String| !error.is(&["TooManyTargets"]) && client::names(&error.message, id);
    for (some, answer) in split_refused(ids, is_refused, names, register).await {
        match answer {
            Ok(_) => {}
            Err(error) if is_refused(&error) => {
                outputs.refused.extend(targets::refused(&write, some, &error, !is_unfit(&error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
