//! Sends the writes of a plan. Those whose operation goes on are looked at by the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ccm_kit::balancer::{Operation, Progress, Written};
use ccm_kit::call::{ErrorKind, Meaning};
use ccm_kit::split_refused;
use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;
use tokio::time::Instant;

use super::env::Env;
use super::events::Events;
use super::hosts::Host;
use super::observe::Reads;
use super::ongoing::{Begun, Meant, Ongoing, SHOWN, key, not_seen, object, target};
use super::plan::{in_use, instance_url, instances_body, put};
use super::step::{Act, FirewallWrite, Outputs, Rank, Step, filled, is_unfilled};
use crate::annotations as keys;
use crate::client::balancing::{Address, BackendService, ForwardingRule, group_of};
use crate::client::operation::{
    ADDRESS_GET, BACKEND_SERVICE_GET, FORWARDING_RULE_GET, INSTANCE_GROUP_CREATE, TARGET_POOL_ADD, Verb,
};
use crate::client::resource::{ResourceId, last_part};
use crate::client::{ApiError, Client, Sent, Write, is_conflict, is_forbidden, is_in_use, is_over_quota, is_passing};

/// Backend services do not wait longer for the creation of a group.
const SLOW_GROUP: Duration = Duration::from_secs(10);
/// One look at an operation. It ends earlier if the operation does.
const LOOK: Duration = Duration::from_secs(3);
/// An operation that goes on for this time is only read: other Services of the group wait for the look.
const LONG: Duration = Duration::from_secs(20);

/// The dependencies of writes.
pub(super) struct Writer<'a> {
    pub(super) env: &'a Env,
    pub(super) client: &'a Client,
    pub(super) reads: &'a Reads,
    pub(super) events: &'a Events,
    pub(super) ongoing: &'a Ongoing,
}

impl Writer<'_> {
    /// Begins one step.
    pub(super) async fn apply(&self, step: &Step, outputs: &Outputs) -> Result<Written, ProviderError> {
        if let Some(result) = self.ongoing.withheld(&key(step)) {
            return result;
        }
        let written = self.send(step, outputs).await.inspect_err(|_| self.note_group(step.act.write()))?;
        if matches!(written, Written::Done) {
            self.completed(step, outputs).await?;
        }
        Ok(written)
    }

    /// Notes that a group could not be created, or not yet: no backend service can have it.
    fn note_group(&self, write: &Write) {
        if let (true, Some(zone)) = (write.operation == INSTANCE_GROUP_CREATE, write.scope.zone_name()) {
            self.reads.refused_groups.lock().insert(zone.to_owned());
        }
    }

    /// The creation of a backend service without the groups that could not be created since it was planned.
    fn without_refused(&self, mut write: Write) -> Write {
        let refused = self.reads.refused_groups.lock();
        let is_due = !refused.is_empty() && write.operation.verb == Verb::Insert;
        let backends = write.body.as_mut().and_then(|body| body.get_mut("backends")).and_then(Value::as_array_mut);
        if let Some(backends) = backends.filter(|_| is_due) {
            let zone = |backend: &Value| Some(ResourceId::parse(group_of(backend)?)?.scope.zone_name()?.to_owned());
            backends.retain(|backend| zone(backend).is_none_or(|zone| !refused.contains(&zone)));
        }
        write
    }

    async fn send(&self, step: &Step, outputs: &Outputs) -> Result<Written, ProviderError> {
        // The write may leave objects behind, except firewall rules, which are always looked for.
        if let Some(balancer) = step.balancer.as_ref().filter(|_| !step.is_admission()) {
            self.reads.unsettle(balancer);
        }
        let address = outputs.address(step);
        let address = address.as_deref();
        let written = match &step.act {
            Act::RestoreRule { write, at_any } => self.restore(step, write, *at_any).await?,
            Act::Send(write) | Act::Reserve(write) | Act::Keep(write) | Act::InsertRule(write) => {
                let write = self.without_refused(complete(write, address)?);
                let meant = match step.act {
                    Act::Keep(_) => Meant::UnlessFull,
                    _ if step.rank == Rank::OldPool => Meant::Lasting,
                    _ => Meant::Failure,
                };
                match self.begin(step, &write, meant.clone()).await {
                    Err(error) => self.failed(&write, &meant, error).map(|()| Written::Done)?,
                    Ok(written) => written,
                }
            }
            Act::PatchLatest(write) => {
                let found: Option<BackendService> =
                    self.client.get(BACKEND_SERVICE_GET, &write.scope, &write.name).await?;
                let mut body = write.body.clone().unwrap_or_default();
                put(&mut body, "fingerprint", found.unwrap_or_default().fingerprint);
                self.begin(step, &write.clone().body(body), Meant::Failure)
                    .await
                    .map_err(|error| explained(error, write))?
            }
            Act::Firewall(firewall) => self.firewall(step, firewall, address, outputs).await?,
            Act::DeleteUnlessUsed(write) => {
                self.ongoing.used.lock().remove(&object(write));
                match self.begin(step, write, Meant::UnlessUsed).await {
                    Err(error) => self.failed(write, &Meant::UnlessUsed, error).map(|()| Written::Done)?,
                    Ok(written) => written,
                }
            }
            Act::InsertPool { write, hosts } => {
                let body = |hosts: &[Host]| {
                    let mut body = write.body.clone().unwrap_or_default();
                    let urls: Vec<String> = hosts.iter().map(|host| instance_url(self.env, host)).collect();
                    put(&mut body, "instances", urls);
                    body
                };
                self.with_hosts(step, write, hosts, false, body).await?
            }
            Act::Join { write, hosts, has_others } => {
                self.with_hosts(step, write, hosts, *has_others, |hosts| instances_body(self.env, hosts)).await?
            }
            Act::Leave { write, hosts } => {
                self.with_hosts(step, write, hosts, true, |hosts| instances_body(self.env, hosts)).await?
            }
        };
        Ok(written)
    }

    async fn restore(&self, step: &Step, write: &Write, at_any: bool) -> Result<Written, ProviderError> {
        let mut sent = self.begin(step, write, Meant::Failure).await;
        if at_any && sent.as_ref().is_err_and(|error| error.meaning() == Meaning::Invalid) {
            let mut other = write.clone();
            other.body.as_mut().and_then(Value::as_object_mut).and_then(|body| body.remove("IPAddress"));
            sent = self.begin(step, &other, Meant::Failure).await;
        }
        sent.map_err(|error| explained(error, write))
    }

    async fn begin(&self, step: &Step, write: &Write, meant: Meant) -> Result<Written, ApiError> {
        let begun = self.client.begin(write).await?;
        self.ongoing.accepted(write);
        let Some(sent) = begun else {
            self.reads.lately.wrote(write);
            return Ok(Written::Done);
        };
        let name = sent.key().to_owned();
        let begun = Begun { sent, meant, key: key(step), balancer: step.balancer.clone() };
        self.ongoing.sent.lock().insert(name.clone(), begun);
        let verb = match step.verb {
            ccm_provider::Verb::Create => "creating",
            ccm_provider::Verb::Update => "updating",
            ccm_provider::Verb::Delete => "deleting",
            ccm_provider::Verb::Attach => "attaching",
            ccm_provider::Verb::Detach => "detaching",
        };
        Ok(Written::Accepted(Operation { name, text: format!("{verb} {} {}", step.kind, step.id) }))
    }

    /// Looks for a moment at each operation of a step.
    pub(super) async fn poll(&self, all: &Operation) -> Result<Progress, ProviderError> {
        for name in all.name.lines() {
            let progress = self.look(&Operation { name: name.to_owned(), text: all.text.clone() }).await?;
            if !matches!(progress, Progress::Done) {
                return Ok(progress);
            }
        }
        Ok(Progress::Done)
    }

    async fn look(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        let ongoing = self.ongoing.sent.lock().get(&operation.name).cloned();
        let Some(Begun { mut sent, meant, key, .. }) = ongoing else { return Ok(Progress::Done) };
        let waits = sent.age() < LONG;
        let look = tokio::time::timeout(LOOK, self.client.look(&mut sent, waits)).await;
        if sent.age() > SLOW_GROUP && !matches!(look, Ok(None)) {
            self.note_group(&sent.write);
        }
        match look {
            Err(_) | Ok(Some(Ok(()))) => return Ok(Progress::Running),
            Ok(Some(Err(error))) if is_passing(&error) => return Err(error.into()),
            // The operation is not known any more, or may not be read: roles for the Go program lack the right, as
            // OpenShift's does.
            Ok(Some(Err(error))) if error.meaning() == Meaning::NotFound || is_forbidden(&error) => {
                tracing::debug!(%error, write = %sent.write, "the object shows what became of it");
                if is_forbidden(&error) {
                    self.ongoing.unreadable.note(error.clone().into());
                }
                let progress = self.shown(&sent, &key, error).await?;
                if matches!(progress, Progress::Done) {
                    self.reads.lately.wrote(&sent.write);
                }
                if !matches!(progress, Progress::Running) {
                    self.ongoing.sent.lock().remove(&operation.name);
                }
                return Ok(progress);
            }
            // Whether it has ended is not known. The next steps would only guess, and the next pass sees the objects.
            Ok(Some(Err(error))) => {
                self.ongoing.sent.lock().remove(&operation.name);
                let text = format!("{} was accepted, and cannot be followed", operation.text);
                return Ok(Progress::Failed(ProviderError::from(error).wrap(text)));
            }
            Ok(None) => drop(self.ongoing.sent.lock().remove(&operation.name)),
        }
        let ended = self.client.ended(&sent).inspect(|()| self.reads.lately.wrote(&sent.write));
        let result = ended.or_else(|error| self.failed(&sent.write, &meant, error));
        Ok(result.inspect_err(|_| self.note_group(&sent.write)).err().map_or(Progress::Done, Progress::Failed))
    }

    /// The progress of a write whose operation cannot be read, from the object: whether it is there, or is gone. A change
    /// is seen by the next observation: until then it is sent again ever more rarely, and fails in the end.
    async fn shown(&self, sent: &Sent, key: &str, error: ApiError) -> Result<Progress, ProviderError> {
        let write = &sent.write;
        let is_there = match (write.operation.verb, write.operation.read()) {
            (Verb::Insert | Verb::Delete, Some(read)) => {
                self.client.get::<Value>(read, &write.scope, &write.name).await?.is_some()
            }
            _ => {
                let noted = self.ongoing.note_unseen(key, write, error);
                return Ok(noted.map_or_else(Progress::Failed, |()| Progress::Done));
            }
        };
        match is_there == (write.operation.verb == Verb::Insert) {
            true => Ok(Progress::Done),
            false if sent.age() < SHOWN => Ok(Progress::Running),
            false => Ok(Progress::Failed(not_seen(write, error))),
        }
    }

    /// What the failure of a write means. On a conflict, the engine observes and plans again.
    fn failed(&self, write: &Write, meant: &Meant, error: ApiError) -> Result<(), ProviderError> {
        match meant {
            Meant::UnlessUsed if is_in_use(&error) => {
                tracing::debug!(%write, "still in use: not deleted");
                self.ongoing.used.lock().insert(object(write));
                Ok(())
            }
            Meant::UnlessFull if is_over_quota(&error) => {
                tracing::warn!(%write, "the quota is exhausted: the address of the former rule is not kept");
                Ok(())
            }
            Meant::Lasting if is_in_use(&error) => {
                let invalid = ErrorClass::Invalid { findings: Vec::new() };
                Err(ProviderError::new(invalid, ProviderError::from(error).to_string()))
            }
            Meant::Hosts(hosts) if concerns_some(&error) => {
                let named: Vec<Host> = hosts.iter().filter(|host| about(&error, host).is_some()).cloned().collect();
                let is_news = match &*named {
                    [] => hosts.len() > 1 && self.ongoing.fails_late.lock().insert(target(write)),
                    named => self.note(write, named, &error, false),
                };
                match is_news {
                    true => Err(ProviderError::new(ErrorClass::Conflict, error.to_string())),
                    false => Err(error.into()),
                }
            }
            Meant::Failure | Meant::UnlessUsed | Meant::UnlessFull | Meant::Lasting | Meant::Hosts(_) => {
                Err(explained(error, write))
            }
        }
    }

    /// Reads what later steps need.
    pub(super) async fn completed(&self, step: &Step, outputs: &Outputs) -> Result<(), ProviderError> {
        let write = step.act.write();
        match &step.act {
            Act::Send(_) if step.rank == Rank::Groups => {
                let zone = write.scope.zone_name().unwrap_or_default();
                match self.reads.refused_groups.lock().remove(zone) {
                    true => Err(ProviderError::new(ErrorClass::Conflict, format!("{write} exists now: planned again"))),
                    false => Ok(()),
                }
            }
            Act::Reserve(_) => {
                let reserved: Option<Address> = self.client.get(ADDRESS_GET, &write.scope, &write.name).await?;
                // The address of an instance can be reserved, and a rule cannot have it.
                if let Some(reserved) = &reserved
                    && let Some(other) = reserved.other_user(&write.name)
                {
                    return Err(in_use(&reserved.address, last_part(other)));
                }
                known(step, outputs, reserved.map(|reserved| reserved.address))
            }
            Act::InsertRule(_) => {
                let rule = self.client.get::<ForwardingRule>(FORWARDING_RULE_GET, &write.scope, &write.name).await;
                let rule =
                    rule.map_err(unread)?.filter(|rule| self.reads.lately.check(&write.name, Some(rule)).is_ok());
                known(step, outputs, rule.map(|rule| rule.ip_address))
            }
            // The others are members.
            Act::Join { hosts, .. } | Act::Leave { hosts, .. } => {
                let refusal = hosts.iter().find_map(|host| self.ongoing.refusal(write, host));
                refusal.map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }

    /// On a shared VPC, firewall rules may be left to the administrators: an event then shows the command.
    async fn firewall(
        &self,
        step: &Step,
        firewall: &FirewallWrite,
        address: Option<&str>,
        outputs: &Outputs,
    ) -> Result<Written, ProviderError> {
        let is_kept = !outputs.lock().kept_firewalls.is_disjoint(&step.items);
        let is_used = firewall.unless_used.as_ref().is_some_and(|check| self.ongoing.used.lock().contains(check));
        // Without the rules of higher priority it would deny everything.
        if is_used || firewall.is_deny && is_kept {
            return Ok(Written::Done);
        }
        let write = complete(&firewall.write, address)?;
        match self.begin(step, &write, Meant::Failure).await {
            Err(error) if is_forbidden(&error) && self.env.links.is_shared_vpc() => {
                outputs.lock().kept_firewalls.extend(&step.items);
                if !firewall.is_admitted && !firewall.is_deny {
                    let mut rule = serde_json::to_value(&firewall.rule).unwrap_or_default();
                    rule = filled(&rule, address);
                    let rule = serde_json::from_value(rule).unwrap_or_else(|_| firewall.rule.clone());
                    let line = firewall.command.line(&rule, &self.env.links.network_project);
                    self.events.command(&firewall.subject, &line);
                }
                Ok(Written::Done)
            }
            done => done.map_err(|error| explained(error, &write)),
        }
    }

    /// Sends a write for several instances: those that do not exist are left out, and those that are refused fail alone.
    /// If none remains, that is an error, unless there are other members.
    async fn with_hosts(
        &self,
        step: &Step,
        write: &Write,
        hosts: &[Host],
        has_others: bool,
        body: impl Fn(&[Host]) -> Value,
    ) -> Result<Written, ProviderError> {
        let offered = hosts.iter().filter(|host| self.ongoing.refusal(write, host).is_none());
        let offered: Vec<Host> = offered.cloned().collect();
        let (count, fails_late) = (offered.len(), self.ongoing.fails_late.lock().remove(&target(write)));
        let is_made = AtomicBool::new(write.operation.verb != Verb::Insert);
        let send = async |some: Vec<Host>| {
            // What a refused creation has left out joins what was made.
            let is_creation = write.operation.verb == Verb::Insert;
            let write = match is_creation && is_made.load(Ordering::Relaxed) {
                true => Write { operation: TARGET_POOL_ADD, ..write.clone() }.body(instances_body(self.env, &some)),
                false => write.clone().body(body(&some)),
            };
            let is_part = is_creation && some.len() < count;
            let sent = match fails_late || is_part {
                true => self.client.write(&write).await.map(|()| {
                    self.reads.lately.wrote(&write);
                    Written::Done
                }),
                false => self.begin(step, &write, Meant::Hosts(some)).await,
            };
            sent.inspect(|_| is_made.store(true, Ordering::Relaxed))
        };
        let results = match count {
            0 => Vec::new(),
            _ => split_refused(offered, concerns_some, |error, host| about(error, host).is_some(), send).await,
        };
        let are_others_accepted = results.iter().any(|(_, result)| result.is_ok());
        let (mut operations, mut failure) = (Vec::new(), None);
        for (some, result) in results {
            match result {
                Ok(Written::Accepted(operation)) => operations.push(operation),
                Ok(_) => {}
                Err(error) if self.note(write, &some, &error, are_others_accepted) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (failure, together(operations)) {
            (Some(error), _) => Err(explained(error, write)),
            (None, Some(operation)) => Ok(Written::Accepted(operation)),
            (None, None) if are_others_accepted || has_others => Ok(Written::Done),
            (None, None) => {
                let refusal = hosts.iter().find_map(|host| self.ongoing.refusal(write, host));
                let missing = || ProviderError::unknown(format!("instance not found: {write} has none left"));
                Err(refusal.unwrap_or_else(missing))
            }
        }
    }

    /// Remembers what an error says about these instances. Whether it is about each of them: it names it, or it is the
    /// only one of its call, and others were accepted.
    fn note(&self, write: &Write, hosts: &[Host], error: &ApiError, are_others_accepted: bool) -> bool {
        tracing::warn!(%write, instances = ?hosts, %error, "not with these");
        let is_alone = are_others_accepted && hosts.len() == 1 && concerns_some(error) && !error.operation.is_removal();
        let mut all = hosts.iter().map(|host| (host.clone(), about(error, host).or(is_alone.then_some(Why::Refused))));
        all.all(|(host, why)| {
            match why {
                Some(Why::Missing) => self.reads.missing.add(host),
                Some(Why::Refused) => {
                    let refusal = (error.clone().into(), Instant::now());
                    self.ongoing.refused.lock().insert((target(write), host), refusal);
                }
                Some(Why::Settled) | None => {}
            }
            why.is_some()
        })
    }
}

/// The error for users. An object that exists already was created by an earlier attempt or somebody else: it is observed
/// and compared.
fn explained(error: ApiError, write: &Write) -> ProviderError {
    if write.operation.verb == Verb::Insert && is_conflict(&error) {
        tracing::info!(%write, %error, "exists already");
        return ProviderError::new(ErrorClass::Conflict, error.to_string());
    }
    match missing_subnetwork(&error, write) {
        Some(name) => {
            let key = keys::SUBNET.row.key;
            let fix = format!("correct the annotation {key}, or subnetwork-name in [global] of gce.conf");
            ProviderError::from(error).wrap(format!("there is no subnetwork {name:?} in the region; {fix}"))
        }
        None => error.into(),
    }
}

/// The error of the read of what a write has made. It is no refusal of the write, for which the former would come back.
fn unread(error: ApiError) -> ProviderError {
    let error = ProviderError::from(error);
    match error.retry_after() {
        Some(_) => error,
        None => ProviderError::new(ErrorClass::Transient { after: None }, error.to_string()),
    }
}

fn complete(write: &Write, address: Option<&str>) -> Result<Write, ProviderError> {
    let body = write.body.as_ref().map(|body| filled(body, address));
    if body.as_ref().is_some_and(is_unfilled) {
        return Err(ProviderError::bug(format!("{write}: the address is not known yet")));
    }
    Ok(Write { body, ..write.clone() })
}

/// The subnetwork of a write, if an error says that it does not exist.
fn missing_subnetwork(error: &ApiError, write: &Write) -> Option<String> {
    let named = ResourceId::parse(write.body.as_ref()?.get("subnetwork")?.as_str()?)?;
    let is_missing = matches!(error.meaning(), Meaning::NotFound | Meaning::Invalid);
    let says = is_missing && error.message.contains(&format!("subnetworks/{}'", named.name));
    says.then_some(named.name)
}

/// Records an address that a step has found.
fn known(step: &Step, outputs: &Outputs, address: Option<String>) -> Result<(), ProviderError> {
    let (Some(item), Some(address)) = (step.items.first(), address.filter(|address| !address.is_empty())) else {
        let text = format!("{}: made, but the cloud does not show its address yet", step.act.write());
        return Err(ProviderError::new(ErrorClass::Transient { after: None }, text));
    };
    let mut made = outputs.lock();
    if matches!(step.act, Act::InsertRule(_)) {
        made.rules.insert(*item, address.clone());
    }
    made.addresses.insert(*item, address);
    Ok(())
}

/// The operations of one step, as one.
fn together(operations: Vec<Operation>) -> Option<Operation> {
    operations.into_iter().reduce(|all, one| Operation { name: format!("{}\n{}", all.name, one.name), text: all.text })
}

/// What an error says about an instance of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Missing,
    /// It is a member already, or no member any more.
    Settled,
    /// It cannot be a member: it is in another network or in another group of balancers, or may not be used.
    Refused,
}

/// Whether an error may be about some of the instances only.
fn concerns_some(error: &ApiError) -> bool {
    let may = match error.meaning() {
        Meaning::Invalid => true,
        Meaning::NotFound | Meaning::Conflict | Meaning::Denied | Meaning::Other => named(error).next().is_some(),
        _ => false,
    };
    may && error.kind == ErrorKind::Refused
}

/// What an error says about this instance, if it names it.
fn about(error: &ApiError, host: &Host) -> Option<Why> {
    if !concerns_some(error) || !named(error).any(|named| named == *host) {
        return None;
    }
    let text = error.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match error.meaning() {
        Meaning::Denied => (!error.operation.is_removal()).then_some(Why::Refused),
        _ if says(&["already a member", "already in", "not a member", "not currently attached"]) => Some(Why::Settled),
        _ if says(&["not found", "cannot be found", "does not exist", "was not found"]) => Some(Why::Missing),
        Meaning::Invalid if error.operation.is_removal() => Some(Why::Settled),
        Meaning::Invalid => Some(Why::Refused),
        _ => None,
    }
}

/// The instances that an error names.
fn named(error: &ApiError) -> impl Iterator<Item = Host> {
    let words = error.message.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./:".contains(c)));
    words.filter_map(|word| Host::of_url(word.trim_end_matches(['.', ':'])))
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Failure;

    use super::*;
    use crate::client::operation::{INSTANCE_GROUP_REMOVE, Operation, TARGET_POOL_REMOVE};

    fn error(operation: Operation, status: u16, code: &str, message: &str) -> ApiError {
        let failure =
            Failure { status: Some(status), code: code.to_owned(), message: message.to_owned(), ..Failure::default() };
        ApiError::new(operation, failure)
    }

    fn host(name: &str) -> Host {
        Host { zone: "us-central1-b".to_owned(), name: name.to_owned() }
    }

    const N1: &str = "'https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/n1'";

    #[test]
    fn an_instance_that_an_error_denies_is_left_out() {
        let use_it = "Required 'compute.instances.use' permission for 'projects/p/zones/us-central1-b/instances/n1'";
        for (status, code, message, why) in [
            (404, "notFound", "The resource 'projects/p/zones/us-central1-b/instances/n1' was not found", Why::Missing),
            (
                400,
                "invalid",
                &*format!(
                    "Invalid value for field 'instances[0].instance': {N1}. The referenced instance resource cannot be found."
                ),
                Why::Missing,
            ),
            (400, "invalid", &*format!("{N1} is already a member of it"), Why::Settled),
            (400, "invalid", &*format!("{N1} is of another network"), Why::Refused),
            (403, "forbidden", use_it, Why::Refused),
        ] {
            let error = error(TARGET_POOL_ADD, status, code, message);
            assert_eq!((about(&error, &host("n1")), about(&error, &host("n2"))), (Some(why), None), "{message}");
            assert!(concerns_some(&error), "{message}");
        }
        for (status, code, message, concerns) in [
            (404, "notFound", "The resource 'projects/p/regions/us-central1/targetPools/a' was not found", false),
            (403, "forbidden", "Required 'compute.targetPools.addInstance' permission for 'projects/p'", false),
            (503, "backendError", "projects/p/zones/us-central1-b/instances/n1 was not found", false),
            (400, "invalid", "Invalid value", true),
            (400, "badRequest", "Instance 'n1' cannot be a member.", true),
        ] {
            let error = error(TARGET_POOL_ADD, status, code, message);
            assert_eq!((about(&error, &host("n1")), concerns_some(&error)), (None, concerns), "{message}");
        }
    }

    #[test]
    fn an_instance_that_cannot_leave_is_no_member() {
        let denied = "Required 'compute.instances.use' permission for 'projects/p/zones/us-central1-b/instances/n1'";
        assert_eq!(about(&error(TARGET_POOL_REMOVE, 403, "forbidden", denied), &host("n1")), None, "it stays one");
        let detached = "Instance is not currently attached to this target pool.";
        for operation in [TARGET_POOL_REMOVE, INSTANCE_GROUP_REMOVE] {
            for why in [detached, "It is something else."] {
                let message = format!("Invalid value for field 'resource.instance': {N1}. {why}");
                assert_eq!(
                    about(&error(operation, 400, "invalid", &message), &host("n1")),
                    Some(Why::Settled),
                    "{why}"
                );
            }
        }
    }
}
