//! Sends the writes of a plan. Those whose operation goes on are looked at by the engine.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_kit::balancer::{Operation, Progress, Written};
use ccm_kit::call::{ErrorKind, Meaning};
use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;
use tokio::time::Instant;

use super::env::Env;
use super::events::Events;
use super::hosts::Host;
use super::observe::Reads;
use super::ongoing::{Meant, Ongoing, SHOWN, key, not_seen, object, target};
use super::plan::{instance_url, instances_body, put};
use super::step::{Act, FirewallWrite, Outputs, Rank, Step, filled, is_unfilled};
use crate::annotations as keys;
use crate::client::balancing::{Address, BackendService, ForwardingRule, group_of};
use crate::client::operation::{ADDRESS_GET, BACKEND_SERVICE_GET, FORWARDING_RULE_GET, INSTANCE_GROUP_CREATE, Verb};
use crate::client::resource::ResourceId;
use crate::client::{ApiError, Client, Sent, Write, is_conflict, is_forbidden, is_in_use, is_over_quota, is_passing};

/// The most repeats of a call, each without the instances that an error named.
const MOST_REPEATS: usize = 20;
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

    async fn begin(&self, step: &Step, write: &Write, meant: Meant) -> Result<Written, ApiError> {
        let Some(sent) = self.client.begin(write).await? else {
            self.reads.lately.wrote(write);
            return Ok(Written::Done);
        };
        let name = sent.key().to_owned();
        self.ongoing.sent.lock().insert(name.clone(), (sent, meant, key(step)));
        let verb = match step.verb {
            ccm_provider::Verb::Create => "creating",
            ccm_provider::Verb::Update => "updating",
            ccm_provider::Verb::Delete => "deleting",
            ccm_provider::Verb::Attach => "attaching",
            ccm_provider::Verb::Detach => "detaching",
        };
        Ok(Written::Accepted(Operation { name, text: format!("{verb} {} {}", step.kind, step.id) }))
    }

    /// Looks at an operation for a moment.
    pub(super) async fn poll(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        let ongoing = self.ongoing.sent.lock().get(&operation.name).cloned();
        let Some((mut sent, meant, key)) = ongoing else { return Ok(Progress::Done) };
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
            Meant::Hosts(hosts) => match denied(&error, hosts) {
                Some(denied) => {
                    self.note(write, &denied, &error);
                    Err(ProviderError::new(ErrorClass::Conflict, error.to_string()))
                }
                None => Err(error.into()),
            },
            Meant::Failure | Meant::UnlessUsed | Meant::UnlessFull | Meant::Lasting => Err(explained(error, write)),
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
                known(step, outputs, reserved.map(|reserved| reserved.address))
            }
            Act::InsertRule(_) => {
                let rule: Option<ForwardingRule> =
                    self.client.get(FORWARDING_RULE_GET, &write.scope, &write.name).await?;
                let rule = rule.filter(|rule| self.reads.lately.check(&write.name, Some(rule)).is_ok());
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

    /// Sends a write for several instances, without those that do not exist. If none remains, that is an error, unless
    /// there are other members.
    async fn with_hosts(
        &self,
        step: &Step,
        write: &Write,
        hosts: &[Host],
        has_others: bool,
        body: impl Fn(&[Host]) -> Value,
    ) -> Result<Written, ProviderError> {
        let refusal = || hosts.iter().find_map(|host| self.ongoing.refusal(write, host));
        let offered = hosts.iter().filter(|host| self.ongoing.refusal(write, host).is_none());
        let mut hosts: Vec<Host> = offered.cloned().collect();
        for _ in 0..MOST_REPEATS {
            if hosts.is_empty() && !has_others {
                let missing = || ProviderError::unknown(format!("instance not found: {write} has none left"));
                return Err(refusal().unwrap_or_else(missing));
            }
            if hosts.is_empty() && write.operation.verb != Verb::Insert {
                return Ok(Written::Done);
            }
            let meant = Meant::Hosts(hosts.clone());
            let error = match self.begin(step, &write.clone().body(body(&hosts)), meant).await {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            let Some(denied) = denied(&error, &hosts) else { return Err(explained(error, write)) };
            self.note(write, &denied, &error);
            hosts.retain(|host| !denied.hosts.contains(host));
        }
        let text = format!("{write}: many instances of nodes do not exist; the next attempt continues");
        Err(ProviderError::new(ErrorClass::Transient { after: None }, text))
    }

    fn note(&self, write: &Write, denied: &Denied, error: &ApiError) {
        tracing::warn!(%write, instances = ?denied.hosts, %error, "repeated without them");
        for host in denied.hosts.iter().cloned() {
            match denied.why {
                Why::Missing => self.reads.missing.add(host),
                Why::Settled => {}
                Why::Refused => {
                    let refusal = (error.clone().into(), Instant::now());
                    self.ongoing.refused.lock().insert((target(write), host), refusal);
                }
            }
        }
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

/// The instances of a request that an error names.
struct Denied {
    hosts: BTreeSet<Host>,
    why: Why,
}

/// What the error says about them.
#[derive(Debug, Clone, Copy)]
enum Why {
    Missing,
    /// They are members already, or no members any more.
    Settled,
    /// They cannot be members: they are in another network, or in another group of balancers.
    Refused,
}

fn denied(error: &ApiError, hosts: &[Host]) -> Option<Denied> {
    let is_about_request =
        matches!(error.meaning(), Meaning::NotFound | Meaning::Invalid | Meaning::Conflict | Meaning::Other);
    if error.kind != ErrorKind::Refused || !is_about_request {
        return None;
    }
    let text = error.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let why = match () {
        () if says(&["already a member", "already in", "not a member"]) => Why::Settled,
        () if says(&["not found", "cannot be found", "does not exist", "was not found"]) => Why::Missing,
        () if error.meaning() == Meaning::Invalid => Why::Refused,
        () => return None,
    };
    let named: BTreeSet<Host> = error
        .message
        .split(|c: char| !(c.is_ascii_alphanumeric() || "-_./:".contains(c)))
        .filter_map(|word| ResourceId::parse(word.trim_end_matches(['.', ':'])))
        .filter(|id| id.collection == "instances")
        .filter_map(|id| Some(Host { zone: id.scope.zone_name()?.to_owned(), name: id.name }))
        .filter(|host| hosts.contains(host))
        .collect();
    (!named.is_empty()).then_some(Denied { hosts: named, why })
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Failure;

    use super::*;
    use crate::client::operation::TARGET_POOL_ADD;

    fn error(status: u16, code: &str, message: &str) -> ApiError {
        let failure =
            Failure { status: Some(status), code: code.to_owned(), message: message.to_owned(), ..Failure::default() };
        ApiError::new(TARGET_POOL_ADD, failure)
    }

    fn names(error: &ApiError) -> Option<Vec<String>> {
        let hosts = ["n1", "n2"].map(|name| Host { zone: "us-central1-b".to_owned(), name: name.to_owned() });
        denied(error, &hosts).map(|denied| denied.hosts.into_iter().map(|host| host.name).collect())
    }

    #[test]
    fn an_instance_that_an_error_denies_is_left_out() {
        let n1 = Some(vec!["n1".to_owned()]);
        for (status, code, message) in [
            (404, "notFound", "The resource 'projects/p/zones/us-central1-b/instances/n1' was not found"),
            (
                400,
                "invalid",
                "Invalid value for field 'instances[0].instance': 'https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/n1'. The referenced instance resource cannot be found.",
            ),
        ] {
            assert_eq!(names(&error(status, code, message)), n1, "{message}");
        }
        for (status, code, message) in [
            (404, "notFound", "The resource 'projects/p/regions/us-central1/targetPools/a' was not found"),
            (404, "notFound", "The resource 'projects/p/zones/us-central1-b/instances/n3' was not found"),
            (
                403,
                "forbidden",
                "Required 'compute.instances.use' permission for 'projects/p/zones/us-central1-b/instances/n1'",
            ),
            (503, "backendError", "projects/p/zones/us-central1-b/instances/n1 was not found"),
        ] {
            assert_eq!(names(&error(status, code, message)), None, "{message}");
        }
    }
}
