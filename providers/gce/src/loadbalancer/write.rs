//! Sends the writes of a plan. Each lasts until its operation has ended.

use std::collections::BTreeSet;

use ccm_kit::call::{ErrorKind, Meaning};
use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;

use super::Env;
use super::events::Events;
use super::hosts::Host;
use super::observe::Reads;
use super::plan::{instance_url, instances_body, put};
use super::step::{Act, FirewallWrite, Outputs, Step, filled, is_unfilled};
use crate::annotations as keys;
use crate::client::balancing::{Address, ForwardingRule};
use crate::client::operation::{ADDRESS_GET, FORWARDING_RULE_GET, Verb};
use crate::client::resource::ResourceId;
use crate::client::{ApiError, Client, Write, is_conflict, is_forbidden, is_in_use};

/// The most repeats of a call, each without the instances that an error named.
const MOST_REPEATS: usize = 20;

/// The dependencies of writes.
pub(super) struct Writer<'a> {
    pub(super) env: &'a Env,
    pub(super) client: &'a Client,
    pub(super) reads: &'a Reads,
    pub(super) events: &'a Events,
}

impl Writer<'_> {
    /// Runs one step.
    pub(super) async fn apply(&self, step: &Step, outputs: &Outputs) -> Result<(), ProviderError> {
        // The write may leave objects behind.
        if let Some(balancer) = &step.balancer {
            self.reads.unsettle(balancer);
        }
        let address = outputs.address(step.item);
        let address = address.as_deref();
        match &step.act {
            Act::Send(write) => self.send(write, address).await,
            Act::Reserve(write) => {
                self.send(write, address).await?;
                let reserved: Option<Address> = self.client.get(ADDRESS_GET, &write.scope, &write.name).await?;
                known(step, outputs, reserved.map(|reserved| reserved.address))
            }
            Act::InsertRule(write) => {
                self.send(write, address).await?;
                let rule: Option<ForwardingRule> =
                    self.client.get(FORWARDING_RULE_GET, &write.scope, &write.name).await?;
                known(step, outputs, rule.map(|rule| rule.ip_address))
            }
            Act::Firewall(firewall) => self.firewall(step.item, firewall, address, outputs).await,
            Act::DeleteUnlessUsed { write, then } => match self.client.write(write).await {
                Err(error) if is_in_use(&error) => {
                    tracing::debug!(%write, "still in use: not deleted");
                    Ok(())
                }
                Err(error) => Err(error.into()),
                Ok(()) => match then {
                    Some(firewall) => self.firewall(step.item, firewall, address, outputs).await,
                    None => Ok(()),
                },
            },
            Act::InsertPool { write, hosts } => {
                let body = |hosts: &[Host]| {
                    let mut body = write.body.clone().unwrap_or_default();
                    let urls: Vec<String> = hosts.iter().map(|host| instance_url(self.env, host)).collect();
                    put(&mut body, "instances", urls);
                    body
                };
                self.with_hosts(write, hosts, false, body).await
            }
            Act::Join { write, hosts, has_others } => {
                self.with_hosts(write, hosts, *has_others, |hosts| instances_body(self.env, hosts)).await
            }
            Act::Leave { write, hosts } => {
                self.with_hosts(write, hosts, true, |hosts| instances_body(self.env, hosts)).await
            }
        }
    }

    async fn send(&self, write: &Write, address: Option<&str>) -> Result<(), ProviderError> {
        let write = complete(write, address)?;
        self.sent(&write).await.map_err(|error| match missing_subnetwork(&error, &write) {
            Some(name) => {
                let key = keys::SUBNET.row.key;
                let fix = format!("correct the annotation {key}, or subnetwork-name in [global] of gce.conf");
                ProviderError::from(error).wrap(format!("there is no subnetwork {name:?} in the region; {fix}"))
            }
            None => error.into(),
        })
    }

    /// An object that exists already was created by an earlier attempt; the next observation compares it.
    async fn sent(&self, write: &Write) -> Result<(), ApiError> {
        match self.client.write(write).await {
            Err(error) if write.operation.verb == Verb::Insert && is_conflict(&error) => {
                tracing::info!(%write, %error, "exists already");
                Ok(())
            }
            done => done,
        }
    }

    /// On a shared VPC, firewall rules may be left to the administrators: an event then shows the command.
    async fn firewall(
        &self,
        item: Option<usize>,
        firewall: &FirewallWrite,
        address: Option<&str>,
        outputs: &Outputs,
    ) -> Result<(), ProviderError> {
        let kept = |item| outputs.lock().kept_firewalls.contains(&item);
        // Without the rules of higher priority it would deny everything.
        if firewall.is_deny && (kept(item) || kept(None)) {
            return Ok(());
        }
        let write = complete(&firewall.write, address)?;
        match self.sent(&write).await {
            Err(error) if is_forbidden(&error) && self.env.links.is_shared_vpc() => {
                outputs.lock().kept_firewalls.insert(item);
                if !firewall.is_admitted && !firewall.is_deny {
                    let mut rule = serde_json::to_value(&firewall.rule).unwrap_or_default();
                    rule = filled(rule, address);
                    let rule = serde_json::from_value(rule).unwrap_or_else(|_| firewall.rule.clone());
                    let line = firewall.command.line(&rule, &self.env.links.network_project);
                    self.events.command(&firewall.subject, &line);
                }
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Sends a write for several instances, without those that do not exist. If none remains, that is an error, unless
    /// there are other members.
    async fn with_hosts(
        &self,
        write: &Write,
        hosts: &[Host],
        has_others: bool,
        body: impl Fn(&[Host]) -> Value,
    ) -> Result<(), ProviderError> {
        let mut hosts = hosts.to_vec();
        for _ in 0..MOST_REPEATS {
            if hosts.is_empty() && !has_others {
                return Err(ProviderError::unknown(format!("instance not found: {write} has none left")));
            }
            if hosts.is_empty() && write.operation.verb != Verb::Insert {
                return Ok(());
            }
            let error = match self.sent(&write.clone().body(body(&hosts))).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Some(denied) = denied(&error, &hosts) else { return Err(error.into()) };
            tracing::warn!(%write, instances = ?denied.hosts, %error, "repeated without them");
            if denied.are_missing {
                denied.hosts.iter().for_each(|host| self.reads.missing.add(host.clone()));
            }
            hosts.retain(|host| !denied.hosts.contains(host));
        }
        let text = format!("{write}: many instances of nodes do not exist; it goes on with the next attempt");
        Err(ProviderError::new(ErrorClass::Transient { after: None }, text))
    }
}

fn complete(write: &Write, address: Option<&str>) -> Result<Write, ProviderError> {
    let body = write.body.clone().map(|body| filled(body, address));
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
    let (Some(item), Some(address)) = (step.item, address.filter(|address| !address.is_empty())) else {
        let text = format!("{}: made, but the cloud does not show its address yet", step.act.write());
        return Err(ProviderError::new(ErrorClass::Transient { after: None }, text));
    };
    outputs.lock().addresses.insert(item, address);
    Ok(())
}

/// The instances of a request that an error names.
struct Denied {
    hosts: BTreeSet<Host>,
    /// Whether the error says that they do not exist.
    are_missing: bool,
}

fn denied(error: &ApiError, hosts: &[Host]) -> Option<Denied> {
    let is_about_request =
        matches!(error.meaning(), Meaning::NotFound | Meaning::Invalid | Meaning::Conflict | Meaning::Other);
    if error.kind != ErrorKind::Refused || !is_about_request {
        return None;
    }
    let text = error.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let are_missing = says(&["not found", "cannot be found", "does not exist", "was not found"]);
    let is_settled = says(&["already a member", "already in", "not a member"]);
    let named: BTreeSet<Host> = error
        .message
        .split(|c: char| !(c.is_ascii_alphanumeric() || "-_./:".contains(c)))
        .filter_map(|word| ResourceId::parse(word.trim_end_matches(['.', ':'])))
        .filter(|id| id.collection == "instances")
        .filter_map(|id| Some(Host { zone: id.scope.zone_name()?.to_owned(), name: id.name }))
        .filter(|host| hosts.contains(host))
        .collect();
    ((are_missing || is_settled) && !named.is_empty())
        .then_some(Denied { hosts: named, are_missing: are_missing && !is_settled })
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

    /// P-29
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
