//! Sends one write and classifies the answer.
//!
//! Writes are idempotent: an object that already exists, or is already deleted, is a success. A write that waits for
//! something else returns an error with the time of the next attempt and the blocking object; no worker sleeps.

mod at_nodes;
mod limits;
mod listeners;
mod targets;

#[cfg(all(test, feature = "sdk"))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ccm_kit::call::{ErrorKind, Meaning};
use ccm_provider::{ErrorClass, Finding, ProviderError};

use super::reads::{Reads, Refused, SHORT};
use super::settling;
use super::step::{Besides, Kind, Step};
use super::wanted::first_few;
use crate::annotations::SSL_POLICY;
use crate::client::ec2::{Permission, Source};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite, TARGETS_AT_ONCE};
use crate::client::{self, ApiError, Made, Query, Write};
use crate::node::identity::InstanceId;

/// The first delay of the retry of a deletion that another object blocks; it doubles up to the second.
const HELD: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The answers to a write for an object that this process has just created, and that AWS does not show yet.
const LAGGING: &[&str] = &[
    "InvalidGroup.Duplicate",
    "InvalidGroup.NotFound",
    "InvalidSecurityGroup",
    "DuplicateLoadBalancerName",
    "DuplicateTargetGroupName",
    "LoadBalancerNotFound",
    "AccessPointNotFound",
    "TargetGroupNotFound",
];

#[derive(Debug, Clone, Default)]
pub(crate) struct Outputs {
    made: Made,
    /// Targets that AWS refused; the other writes continue.
    refused: Vec<Refused>,
    /// Registrations that were sent again after instances had left.
    again: Vec<Write>,
    /// The names, IDs and ARNs of what was created.
    created: BTreeSet<String>,
    /// The ports of new listeners of a classic balancer; also those for which no answer came.
    listeners: BTreeSet<i32>,
    /// Whether AWS did not show what a write needed.
    late: bool,
    /// Rules that a full group has no room for, and without which clients are served.
    unopened: Vec<Finding>,
    /// Operations that AWS refused because of a limit of the balancer or the account, by name.
    exhausted: BTreeMap<&'static str, ApiError>,
}

impl Outputs {
    /// The write with the IDs of objects that earlier writes created.
    pub(super) fn completed(&self, write: &Write) -> Write {
        write.complete(&self.made).unwrap_or_else(|_| write.clone())
    }

    /// Ends the plan after its last write. A full target group is an error: its quota must be raised.
    pub(crate) fn finish(&self) -> Result<(), ProviderError> {
        let full = targets::summary(self.refused.iter().filter(|refused| refused.full));
        full.map_or(Ok(()), |message| Err(ProviderError::unknown(message)))
    }

    /// The IDs of targets of which a write has changed nothing: those that its target group or balancer has no room for,
    /// and those that are refused everywhere.
    pub(crate) fn refused_by(&self, write: &Write) -> BTreeSet<String> {
        let Some((of, ..)) = targets::of(write) else { return BTreeSet::new() };
        let refused = self.refused.iter().filter(|one| one.is_refused_by(&of));
        refused.map(|one| one.id.clone()).collect()
    }

    pub(crate) fn again(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.again)
    }

    /// Whether AWS refuses all of these targets in a target group or balancer.
    fn refuses(&self, of: &str, ids: &[String]) -> bool {
        let is_refused =
            |id: &String| self.refused.iter().any(|one| one.adding && one.id == *id && one.is_refused_by(of));
        ids.iter().all(is_refused)
    }

    /// The answer of AWS to a registration of which it refuses all targets.
    fn refusal(&self, registration: &Write) -> Option<&str> {
        let (of, ids, _) = targets::of(&self.completed(registration))?;
        let is_first = |one: &&Refused| one.adding && ids.first() == Some(&one.id) && one.is_refused_by(&of);
        let first = self.refused.iter().find(is_first)?;
        self.refuses(&of, &ids).then_some(&*first.said)
    }

    /// Whether a target group or balancer may be full.
    fn needs_room(&self, of: &str) -> bool {
        self.refused.iter().any(|one| one.needs_room && one.of == of)
    }

    pub(crate) fn unopened(&self) -> &[Finding] {
        &self.unopened
    }

    /// The targets that AWS refuses for now.
    pub(crate) fn refused(&self) -> Option<Finding> {
        let text = targets::summary(self.refused.iter().filter(|refused| !refused.full))?;
        Some(Finding::warning("nodes", text))
    }
}

pub(crate) async fn apply(step: &Step, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    match (&step.besides, &step.write) {
        (Besides::Shared(rules), Write::Ec2(write)) => at_nodes::change(rules, write, outputs, reads).await,
        (Besides::Users { group, close }, _) => without_users(step, group, close, outputs, reads).await,
        (Besides::Listener { former, wanted }, write) => {
            listeners::certificate(write, former, wanted, outputs, reads).await
        }
        (Besides::Former(former), write) => listeners::create(write, former, outputs, reads).await,
        (Besides::OfNewListener, Write::Elb(ElbWrite::SetLoadBalancerPoliciesOfListener { port, .. }))
            if !outputs.listeners.contains(port) =>
        {
            Ok(())
        }
        (Besides::Filling(registration), _) => match outputs.refusal(registration) {
            Some(said) => {
                let text = "keeps its target group, as AWS refuses all targets of the new one";
                Err(ProviderError::retry(format!("listener {} {text}: {said}", step.summary.id), SHORT))
            }
            None => single(step, outputs, reads).await,
        },
        _ => single(step, outputs, reads).await,
    }
}

/// The answer of a read before a write. Refusing it does not refuse the write, which is sent again at the next sync.
fn of_read<T>(answer: Result<T, ApiError>) -> Result<T, ProviderError> {
    answer.map_err(|error| match error.meaning() {
        Meaning::Invalid | Meaning::Unsupported => ProviderError::unknown(ProviderError::from(error).to_string()),
        _ => error.into(),
    })
}

/// Gives up a group of the user, or nodes behind it. Several balancers with the group may be deleted at the same time: the
/// last one closes its rules. And one may get the group since the plan was made.
async fn without_users(
    step: &Step,
    group: &str,
    close: &[Step],
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let balancer = &step.purpose.balancer;
    if !step.purpose.keeps {
        reads.deleted(balancer);
    }
    let look = async || of_read(reads.shared_groups(&[group.to_owned()].into(), balancer).await);
    let mut is_shared = !look().await?.is_empty();
    // Others do not wait for that, and only the last one waits for them, and looks again.
    let turn = if is_shared { None } else { Some(reads.at_nodes.turn().await?) };
    if turn.is_some() {
        is_shared = !look().await?.is_empty();
    }
    if matches!(step.write, Write::Ec2(_)) {
        return if is_shared { Ok(()) } else { single(step, outputs, reads).await };
    }
    for close in close.iter().filter(|_| !is_shared) {
        single(close, outputs, reads).await?;
    }
    drop(turn);
    single(step, outputs, reads).await
}

async fn single(step: &Step, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    let missing = |object| match outputs.late {
        true => settling::recheck(settling::AGAIN),
        false => ProviderError::bug(format!("{object} was to be made before {}", step.summary.id)),
    };
    let write = step.write.complete(&outputs.made).map_err(missing)?;
    let Some(write) = targets::without(write, &outputs.refused) else { return Ok(()) };
    let Some((of, ids, registers)) = targets::of(&write) else { return one(step, write, outputs, reads).await };
    if registers && let Some(refused) = reads.refused_targets(&of, &ids) {
        outputs.refused.extend(refused);
        return Ok(());
    }
    if registers {
        let before = outputs.refused.len();
        let answer = one(step, write, outputs, reads).await;
        reads.refuse_targets(&of, outputs.refused.iter().skip(before));
        return answer;
    }
    let Besides::Successors { ids: successors, waits } = &step.besides else {
        return leave(step, write, &of, outputs, reads).await;
    };
    let mut rest = &*ids;
    // One leaves if there may be no room, and the others only if another one comes then.
    if outputs.refuses(&of, successors)
        && outputs.needs_room(&of)
        && !waits
        && let [first, others @ ..] = rest
        && !others.is_empty()
    {
        leave(step, targets::only(write.clone(), std::slice::from_ref(first)), &of, outputs, reads).await?;
        match &write {
            // There was room: it is not full.
            Write::Elb(_) if outputs.refuses(&of, successors) => {
                come_back(step, of.clone(), first, outputs, reads).await;
            }
            // A target group is. If that one still counts, it makes room when it has drained.
            _ => rest = others,
        }
    }
    if outputs.refuses(&of, successors) {
        let stays = |id: &String| Refused {
            of: of.clone(),
            id: id.clone(),
            port: None,
            adding: false,
            full: true,
            needs_room: false,
            said: String::new(),
        };
        outputs.refused.extend(rest.iter().map(stays));
        let stay: Vec<&str> = rest.iter().map(String::as_str).collect();
        let why = match &write {
            Write::Elb(_) => "the load balancer would be empty",
            _ => "the target group would have no healthy one",
        };
        let text = format!("stay, as AWS refuses all that would replace them: {why}");
        return Err(ProviderError::unknown(format!("instances {} {text}", first_few(&stay))));
    }
    leave(step, targets::only(write, rest), &of, outputs, reads).await
}

/// Registers an instance that has left a classic balancer for others, which AWS refuses.
async fn come_back(step: &Step, balancer: String, id: &str, outputs: &mut Outputs, reads: &Reads) {
    let instances = vec![id.to_owned()];
    let write = Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { balancer, instances });
    outputs.again.push(write.clone());
    if let Err(error) = one(step, write, outputs, reads).await {
        tracing::warn!(%error, instance = id, "an instance that has left for others cannot come back");
    }
}

/// Deregisters targets, and registers those for which there was no room.
async fn leave(step: &Step, write: Write, of: &str, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    let most = if matches!(write, Write::Elb(_)) { usize::MAX } else { TARGETS_AT_ONCE };
    one(step, write, outputs, reads).await?;
    reads.release_targets(of);
    let waiting: Vec<Refused> = outputs.refused.extract_if(.., |one| one.needs_room && one.of == of).collect();
    let mut parts = waiting.chunks(most);
    while let Some(some) = parts.next() {
        let write = targets::registration(of, some);
        outputs.again.push(write.clone());
        one(step, write, outputs, reads).await?;
        if outputs.needs_room(of) {
            // There is none for the others either.
            outputs.refused.extend(parts.flatten().cloned());
            break;
        }
    }
    Ok(())
}

/// Sends a write whose IDs are known.
async fn one(step: &Step, write: Write, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    let limited = [Some(write.name()), step.purpose.towards];
    if let Some(error) = limited.into_iter().flatten().find_map(|operation| outputs.exhausted.get(operation)) {
        return Err(error.clone().into());
    }
    match send(&write, reads).await {
        Ok(made) => {
            if let Some(name) = write.creates() {
                outputs.created.extend(made.clone().into_iter().chain([name.to_owned()]));
            }
            if let Some(object) = write.makes() {
                let none = || ProviderError::bug(format!("AWS made {object} and gave no ID"));
                outputs.made.insert(object.clone(), made.ok_or_else(none)?);
            }
            Ok(())
        }
        Err(error) if is_so_already(&write, &error) => Ok(()),
        Err(error) if is_lag(step, &write, &error, outputs, reads) => {
            tracing::debug!(%error, "a write came too soon");
            outputs.late = true;
            Err(settling::recheck(settling::AGAIN))
        }
        // What serves stays, and nothing else needs the tag. After a missing permission, the engine waits anyway.
        Err(error)
            if (step.restore.is_some() || step.part.kind == Kind::Claim) && error.meaning() != Meaning::Denied =>
        {
            Err(for_good(&write, error))
        }
        Err(error) if is_held(&write, &error) => Err(held(&write, error, reads).await),
        Err(error) if error.is(limits::FULL_GROUP) => limits::rules(step, &write, error, outputs, reads).await,
        Err(error) if limits::concerns_some_targets(&write, &error) && targets::named(&write, &error).is_empty() => {
            limits::targets(write, &error, outputs, reads).await
        }
        // A changed object does not concern the others.
        Err(error) if error.is(limits::EXHAUSTED) && write.name().starts_with("Create") => {
            outputs.exhausted.insert(write.name(), error.clone());
            Err(error.into())
        }
        Err(error) if is_rule_of_several(&write, &error) => one_by_one(&write, reads).await,
        Err(error) if makes_ssl_policy(&write) && error.meaning() == Meaning::Invalid => {
            Err(ProviderError::from(error).wrap(format!("correct {}", SSL_POLICY.row.key)))
        }
        Err(error) => without_refused(write, error, outputs, reads).await,
    }
}

/// What follows the error of a write for which something was deleted.
pub(super) const FOR_GOOD: &str = "each attempt interrupts the traffic: the next one is in an hour, or after a change of \
                                   the Service";

/// The error of a write for which something was deleted, or that others do not need. Even if the reason may pass, the
/// next attempts wait as for a request that must change.
fn for_good(write: &Write, error: ApiError) -> ProviderError {
    let passes = error.meaning() == Meaning::Conflict || error.kind != ErrorKind::Refused;
    let error = ProviderError::from(error);
    if passes {
        return error;
    }
    let text = match write {
        Write::Elb(ElbWrite::CreateLoadBalancerListeners { .. }) | Write::ElbV2(ElbV2Write::CreateListener { .. }) => {
            format!("{error}; {FOR_GOOD}")
        }
        _ => error.to_string(),
    };
    ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
}

/// Whether the policy of an annotation is made, which AWS does not name by a code of its own.
fn makes_ssl_policy(write: &Write) -> bool {
    let Write::Elb(ElbWrite::CreateLoadBalancerPolicy { kind, .. }) = write else { return false };
    kind == "SSLNegotiationPolicyType"
}

/// Retries a write without the targets that AWS refuses. Each round drops at least one, so the retries end.
async fn without_refused(
    mut write: Write,
    mut error: ApiError,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    loop {
        let named = targets::named(&write, &error);
        if named.is_empty() {
            return Err(error.into());
        }
        for id in named.iter().filter_map(|refused| InstanceId::parse(&refused.id)) {
            // The cached instance is out of date.
            reads.fleet.forget(&id);
        }
        let rest = targets::without(write, &named);
        outputs.refused.extend(named);
        let Some(rest) = rest else { return Ok(()) };
        write = rest;
        error = match send(&write, reads).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
    }
}

/// Invalidates the caches whatever the result: a lost answer may hide a success.
async fn send(write: &Write, reads: &Reads) -> Result<Option<String>, ApiError> {
    if let Write::Elb(ElbWrite::CreateLoadBalancer { balancer: name, .. })
    | Write::ElbV2(ElbV2Write::CreateLoadBalancer { name, .. } | ElbV2Write::CreateTargetGroup { name, .. }) = write
    {
        reads.created(name);
    }
    let answer = reads.api.write(write).await;
    reads.wrote(write);
    if let (Some(name), Ok(_)) = (write.creates(), &answer) {
        reads.made(name);
    }
    match (write, &answer) {
        (Write::Ec2(Ec2Write::DeleteSecurityGroup { group }), Ok(_)) => reads.released(&group.to_string()),
        (Write::Ec2(write), Ok(_)) => reads.at_nodes.wrote(write, true),
        (Write::Ec2(write), Err(error)) if error.kind == ErrorKind::NoAnswer => reads.at_nodes.wrote(write, false),
        (
            Write::Elb(ElbWrite::CreateLoadBalancer { balancer, tags, .. } | ElbWrite::AddTags { balancer, tags }),
            Ok(_),
        ) => reads.tagged(balancer, tags),
        (Write::Elb(ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer, security_groups }), Ok(_)) => {
            reads.applied(balancer, security_groups);
        }
        (Write::Elb(ElbWrite::DeleteLoadBalancer { balancer }), Ok(_)) => reads.deleted(balancer),
        (Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group }), Ok(_)) => reads.released(target_group),
        _ => {}
    }
    answer
}

/// Whether AWS refuses because the desired state exists already.
fn is_so_already(write: &Write, error: &ApiError) -> bool {
    let codes: &[&str] = match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) => &["InvalidGroup.NotFound", "InvalidGroupId.NotFound"],
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { permissions, .. }) if is_one(permissions) => {
            &["InvalidPermission.Duplicate"]
        }
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { permissions, .. }) if is_one(permissions) => {
            &["InvalidPermission.NotFound", "InvalidGroup.NotFound"]
        }
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) => &["LoadBalancerNotFound", "AccessPointNotFound"],
        Write::Elb(ElbWrite::CreateLoadBalancerPolicy { .. }) => &["DuplicatePolicyName"],
        Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => &["LoadBalancerNotFound"],
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => &["TargetGroupNotFound"],
        Write::ElbV2(ElbV2Write::DeleteListener { .. }) => &["ListenerNotFound"],
        _ => &[],
    };
    error.is(codes)
}

/// Whether AWS does not show yet what this call has created for the balancer, or what this process has created under the
/// name of a creation, unless the error names another object. What a later call has observed is shown.
fn is_lag(step: &Step, write: &Write, error: &ApiError, outputs: &Outputs, reads: &Reads) -> bool {
    let ids = write.known_ids();
    let is_ours = |object: &String| outputs.created.contains(object);
    let is_late = ids.iter().chain([&step.purpose.balancer]).any(is_ours);
    let is_second = write.creates().is_some_and(|name| reads.is_made(name));
    let mut quoted = error.message.split('\'').skip(1).step_by(2).map(str::to_owned).peekable();
    let mut is_named = || quoted.peek().is_none() || quoted.any(|it| is_ours(&it) || write.creates() == Some(&*it));
    let others = || ids.iter().any(|id| !is_ours(id) && client::names(&error.message, id));
    error.is(LAGGING) && (is_late || is_second) && !others() && is_named()
}

fn is_one(permissions: &[Permission]) -> bool {
    matches!(permissions, [one] if one.sources.len() == 1)
}

/// Whether EC2 refuses a list of rules because one of them exists already, or does not exist.
fn is_rule_of_several(write: &Write, error: &ApiError) -> bool {
    match write {
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }) => error.is(&["InvalidPermission.Duplicate"]),
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { .. }) => error.is(&["InvalidPermission.NotFound"]),
        _ => false,
    }
}

/// Sends rules one at a time, so that one existing rule does not block the others.
async fn one_by_one(write: &Write, reads: &Reads) -> Result<(), ProviderError> {
    for single in singles(write) {
        if let Err(error) = send(&single, reads).await
            && !is_so_already(&single, &error)
        {
            return Err(error.into());
        }
    }
    Ok(())
}

fn singles(write: &Write) -> Vec<Write> {
    use Ec2Write::{AuthorizeSecurityGroupIngress as Authorize, RevokeSecurityGroupIngress as Revoke};
    let Write::Ec2(Authorize { group, permissions } | Revoke { group, permissions }) = write else { return Vec::new() };
    let opens = matches!(write, Write::Ec2(Authorize { .. }));
    let single = |permission: &Permission, source: &Source| {
        let group = group.clone();
        let permissions = vec![Permission { sources: vec![source.clone()], ..permission.clone() }];
        Write::Ec2(if opens { Authorize { group, permissions } } else { Revoke { group, permissions } })
    };
    let sources = permissions.iter().flat_map(|all| all.sources.iter().map(move |one| (all, one)));
    sources.map(|(permission, source)| single(permission, source)).collect()
}

/// Whether another object blocks the write for now.
fn is_held(write: &Write, error: &ApiError) -> bool {
    match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) => error.is(&["DependencyViolation", "InvalidGroup.InUse"]),
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => error.is(&["ResourceInUse"]),
        // Created just now by an attempt that died or whose answer was lost.
        Write::Ec2(Ec2Write::CreateSecurityGroup { .. }) => error.is(&["InvalidGroup.Duplicate"]),
        _ => false,
    }
}

/// The error that names the blocking object and the time of the next attempt.
async fn held(write: &Write, error: ApiError, reads: &Reads) -> ProviderError {
    let code = &error.code;
    let (waited, message) = match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { group }) => {
            let group = group.to_string();
            let waited = reads.held(&group);
            let by = match waited.by.clone() {
                Some(known) => known,
                None => blocking(&group, reads).await,
            };
            (waited, format!("security group {group} cannot be deleted yet: {by}; will be retried ({code})"))
        }
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group }) => (
            reads.held(target_group),
            format!(
                "{} is not possible yet: a listener forwards to the target group, or did until just now; will be retried \
                 ({code}: {})",
                error.operation.name, error.message
            ),
        ),
        write => {
            let object = write.makes().map(|object| object.to_string()).unwrap_or_default();
            let message = format!("{object} exists already, but EC2 does not show it yet; will be read again ({code})");
            return ProviderError::retry(message, HELD.0);
        }
    };
    match waited.overdue {
        true => ProviderError::retry(message, HELD.1),
        false => ProviderError::in_progress(message, (waited.since + HELD.0).min(HELD.1)),
    }
}

async fn blocking(group: &str, reads: &Reads) -> String {
    let referring = reads.api.security_groups(&Query::by("ip-permission.group-id", [group])).await;
    let others = referring.iter().flatten().filter(|other| other.id != group);
    let names: Vec<String> = others.map(|other| format!("{} ({})", other.id, other.name)).collect();
    if names.is_empty() {
        return "something still uses it, most likely network interfaces of the load balancer, which AWS deletes some time after it"
            .to_owned();
    }
    let text = format!("rules of {} refer to it; remove them unless this program manages them", names.join(", "));
    reads.held_by(group, &text);
    text
}
