//! Sends one write of a plan, and waits for its balancer.
//!
//! Octavia accepts one change of a balancer at a time and rejects the next one with 409 until it is active again. So a
//! change is sent when the previous one has probably ended, judged by recent durations ([`Pace`]); the balancer is read
//! only after rejections. The last step of a balancer waits until the balancer is active.
//!
//! Upstream: `pkg/util/openstack/loadbalancer.go`, which polls after each change, at growing intervals without a bound.

use std::time::Duration;

use ccm_kit::balancer::Written;
use ccm_kit::call::ErrorKind;
use ccm_provider::{ErrorClass, ProviderError, Scope};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::pace::{self, Pace};
use super::plan::create::{balancer_id, vip_port};
use super::settings::{KEYS_OF_BALANCERS, KEYS_OF_FLOATING_IPS, chosen_address, with_annotation, with_key};
use super::settling::{Settling, Trace};
use super::step::{Order, Outputs, Then, Write};
use crate::client::network::Port;
use crate::client::octavia::{ACTIVE, ERROR, LoadBalancer};
use crate::client::operation::{FLOATING_IP_CREATE, LB_CREATE, LB_DELETE, LISTENER_CREATE, Operation, POOL_DELETE};
use crate::client::{ApiError, Client, is_busy, is_gone, is_quota};

/// Maximum number of polls: about as long as upstream waits, 271 s and 326 s.
const LOOKS: u32 = 36;
const LOOKS_AT_DELETION: u32 = 42;
/// Number of polls that may not show a new balancer yet: some seconds.
const LOOKS_UNTIL_SHOWN: u32 = 6;
/// How Octavia refuses a listener for its port.
const PORT_TAKEN: &str = "Another Listener on this Load Balancer is already using";
/// Delay before a plan that needs another read of the cloud.
const NOW: Duration = Duration::from_millis(100);

/// Sends writes.
#[derive(Debug)]
pub(super) struct Writer {
    client: Client,
    looks: u32,
    looks_at_deletion: u32,
    pace: Mutex<Pace>,
    pub(super) settling: Settling,
}

impl Writer {
    /// `steps`: the number of polls of a busy balancer, if set in the environment.
    pub(super) fn new(client: Client, steps: Option<u32>, settling: Settling) -> Self {
        let looks_at_deletion = steps.map_or(LOOKS_AT_DELETION, |steps| steps.saturating_add(1));
        Self { client, looks: steps.unwrap_or(LOOKS), looks_at_deletion, pace: Mutex::default(), settling }
    }

    pub(super) async fn apply(
        &self,
        order: &Order,
        outputs: &Outputs,
        scope: &Scope,
    ) -> Result<Written, ProviderError> {
        outputs.lock().owners.insert(order.owner.clone());
        self.settling.wrote(Trace::Any(order.owner.clone()));
        match &order.write {
            Write::CreateBalancer { name, body } => {
                let made = self.create_balancer(name, body, outputs, scope).await;
                made.map_err(|error| with_annotation(with_key(error, body, &KEYS_OF_BALANCERS)))
            }
            Write::DeleteBalancer { id, cascade, then } => {
                let id = outputs.fill(id);
                self.delete_balancer(&id, *cascade, outputs, scope).await?;
                self.settling.forget(&Trace::Balancer(order.owner.clone()));
                self.settling.wrote(Trace::Deleted(id.clone()));
                {
                    let mut made = outputs.lock();
                    made.balancers.remove(&id);
                    made.ids.retain(|_, made| *made != id);
                }
                match then {
                    // The new balancer needs another read first.
                    Then::Again => Err(ProviderError::in_progress(format!("load balancer {id} is made again"), NOW)),
                    Then::Later => Err(creation_failed(&id)),
                    Then::Nothing => Ok(Written::Done),
                }
            }
            Write::Octavia { .. } => self.change(order, outputs, scope).await.map_err(with_annotation),
            _ => self.network(order, outputs).await.map(|()| Written::Done),
        }
    }

    /// A write of Neutron.
    async fn network(&self, order: &Order, outputs: &Outputs) -> Result<(), ProviderError> {
        let client = &self.client;
        match &order.write {
            Write::CreateBalancer { .. } | Write::DeleteBalancer { .. } | Write::Octavia { .. } => Ok(()),
            Write::CreateFloatingIp { bodies, pattern } => {
                let made = self.create_floating_ip(&order.owner, bodies, pattern, outputs).await;
                made.map_err(|error| {
                    bodies.iter().fold(error, |error, body| with_key(error, body, &KEYS_OF_FLOATING_IPS))
                })
            }
            Write::BindFloatingIp { id, port } => {
                let filled = port.as_ref().map(|port| outputs.fill(port));
                if filled.as_ref().is_some_and(|port| is_of_ipv6(outputs, port)) {
                    return Ok(());
                }
                client.update_floating_ip(id, json!({"port_id": filled})).await?;
                if port.is_none() {
                    self.settling.forget(&Trace::FloatingIp(order.owner.clone()));
                }
                Ok(())
            }
            Write::MoveToFloatingIp { from, to, port, descriptions } => {
                let [before, after] = descriptions.as_ref().map(|texts| texts.each_ref().map(Some)).unwrap_or_default();
                let body = |port: Option<&String>, description: Option<&String>| match description {
                    Some(text) => json!({"port_id": port, "description": text}),
                    None => json!({ "port_id": port }),
                };
                // A port has one floating IP of a network.
                client.update_floating_ip(from, body(None, after)).await?;
                let moved = client.update_floating_ip(to, body(Some(port), None)).await;
                if moved.is_err()
                    && let Err(error) = client.update_floating_ip(from, body(Some(port), before)).await
                {
                    tracing::warn!(floating_ip = from, %error, "a floating IP is not bound again");
                }
                Ok(moved?)
            }
            Write::DescribeFloatingIp { id, description } => {
                Ok(client.update_floating_ip(id, json!({"description": description})).await?)
            }
            Write::DeleteFloatingIp { id } => {
                client.delete_floating_ip(id).await?;
                self.settling.forget(&Trace::FloatingIp(order.owner.clone()));
                Ok(())
            }
            Write::CreateGroup { name, description } => {
                let made = client.create_security_group(name, description).await;
                outputs.note_quota(&made);
                self.made(Trace::Group(name.clone()), &made);
                let group = made?;
                outputs.put(&format!("group {name}"), &group.id);
                let rules = group.security_group_rules.into_iter().map(|rule| rule.id).collect();
                outputs.lock().default_rules.insert(name.clone(), rules);
                Ok(())
            }
            Write::EmptyGroup { name } => {
                let rules = outputs.lock().default_rules.remove(name).unwrap_or_default();
                for rule in rules {
                    client.delete_rule(&rule).await?;
                }
                Ok(())
            }
            Write::GroupLater => Err(ProviderError::in_progress(
                "the security group is made when the load balancer shows its subnet",
                NOW,
            )),
            Write::DeleteGroup { id, name } => {
                client.delete_security_group(id).await?;
                self.settling.forget(&Trace::Group(name.clone()));
                Ok(())
            }
            Write::CreateRule { group, rule, makes_room } => {
                let made = client.create_rule(&outputs.fill(group), rule).await;
                outputs.note_quota(&made);
                made.map_err(|error| match is_quota(&error) && *makes_room {
                    // It is planned again after the rules that go.
                    true => ProviderError::new(ErrorClass::Conflict, ProviderError::from(error).to_string()),
                    false => error.into(),
                })
            }
            Write::DeleteRule { id } => Ok(client.delete_rule(id).await?),
            Write::UntagPort { port, tag } => Ok(client.delete_port_tag(port, tag).await?),
            Write::PortGroups { port, groups } => {
                let groups: Vec<String> = groups.iter().map(|group| outputs.fill(group)).collect();
                self.set_groups(port, &groups).await
            }
        }
    }

    /// Records a creation that succeeded or may have.
    fn made<T>(&self, trace: Trace, answer: &Result<T, ApiError>) {
        if answer.as_ref().err().is_none_or(|error| error.kind == ErrorKind::NoAnswer) {
            self.settling.wrote(trace);
        }
    }

    /// Adds and removes the groups of a port as planned, and keeps its other groups.
    async fn set_groups(&self, planned: &Port, groups: &[String]) -> Result<(), ProviderError> {
        let added: Vec<&String> = groups.iter().filter(|group| !planned.security_groups.contains(group)).collect();
        let removed: Vec<&String> = planned.security_groups.iter().filter(|group| !groups.contains(group)).collect();
        let change = |port: &Port| {
            let present = &port.security_groups;
            let kept = present.iter().filter(|group| !removed.contains(group));
            let wanted: Vec<&String> =
                kept.chain(added.iter().copied().filter(|group| !present.contains(group))).collect();
            (!wanted.iter().copied().eq(present)).then(|| json!({ "security_groups": wanted }))
        };
        // A missing port was deleted with its server.
        let changed = self.client.change_port(planned, change).await;
        changed.map(drop).map_err(|error| {
            let is_raced = error.status == Some(412);
            let error = ProviderError::from(error).wrap(format!("security groups of port {}", planned.id));
            // It was read again several times already.
            let later = ErrorClass::Transient { after: None };
            if is_raced { ProviderError::new(later, error.to_string()) } else { error }
        })
    }

    async fn create_floating_ip(
        &self,
        owner: &str,
        bodies: &[Value],
        pattern: &str,
        outputs: &Outputs,
    ) -> Result<(), ProviderError> {
        let mut last = None;
        for body in bodies {
            let body = outputs.fill_body(body);
            if body.get("port_id").and_then(Value::as_str).is_some_and(|port| is_of_ipv6(outputs, port)) {
                return Ok(());
            }
            let made = self.client.create_floating_ip(&body).await;
            self.made(Trace::FloatingIp(owner.to_owned()), &made);
            outputs.note_quota(&made);
            match made {
                Ok(ip) => {
                    tracing::info!(address = ip.floating_ip_address, "created a floating IP");
                    return Ok(());
                }
                // The next subnet may have a free address.
                Err(error) if error.kind == ErrorKind::Refused && !is_quota(&error) && bodies.len() > 1 => {
                    last = Some(error);
                }
                Err(error) => return Err(chosen_address(error, &body)),
            }
        }
        let error = last.unwrap_or_else(|| ApiError::of_kind(FLOATING_IP_CREATE, ErrorKind::Malformed, "no body"));
        Err(ProviderError::from(error).wrap(format!("no free subnet matching {pattern:?} (last error follows)")))
    }

    async fn create_balancer(
        &self,
        name: &str,
        body: &Value,
        outputs: &Outputs,
        scope: &Scope,
    ) -> Result<Written, ProviderError> {
        let began = Instant::now();
        let answer = self.client.write_octavia(LB_CREATE, "loadbalancers", Some(outputs.fill_body(body))).await;
        self.made(Trace::Balancer(name.to_owned()), &answer);
        let answer = answer.map_err(|error| match ProviderError::from(error) {
            // Another read of the cloud shows nothing that would help.
            error if error.class() == ErrorClass::Conflict => ProviderError::unknown(error.to_string()),
            error => error,
        })?;
        let created: LoadBalancer = serde_json::from_value(answer.get("loadbalancer").cloned().unwrap_or_default())
            .map_err(|_| ApiError::of_kind(LB_CREATE, ErrorKind::NoAnswer, "the answer has no load balancer"))?;
        outputs.put(&balancer_id(name), &created.id);
        outputs.put(&vip_port(name), &created.vip_port_id);
        let id = created.id.clone();
        outputs.lock().balancers.insert(id.clone(), created);
        let listeners = body.pointer("/loadbalancer/listeners").and_then(Value::as_array).map_or(0, Vec::len);
        let first_look = self.pace.lock().first_look(listeners, began.elapsed());
        let began = Instant::now();
        match scope.waiting(self.until_active(&id, first_look, true)).await? {
            // Nothing uses it yet.
            Err(Wait::Failed) => Ok(Written::Failed(creation_failed(&id))),
            answer => {
                let lb = answer.map_err(|wait| wait.error(&id))?;
                self.pace.lock().created(&id, listeners, began.elapsed());
                outputs.lock().balancers.insert(id, lb);
                Ok(Written::Done)
            }
        }
    }

    async fn delete_balancer(
        &self,
        id: &str,
        cascade: bool,
        outputs: &Outputs,
        scope: &Scope,
    ) -> Result<(), ProviderError> {
        let path = path_of(id, cascade);
        if let Err(error) = self.when_ready(id, LB_DELETE, &path, None, outputs, scope).await {
            if !matches!(error.class(), ErrorClass::Invalid { .. }) {
                return Err(error);
            }
            // Octavia says only that it has children; its status does not show pools without a listener.
            let pools = scope.waiting(self.client.pools(id)).await?.unwrap_or_default();
            let failed = pools.iter().filter(|pool| pool.provisioning_status == ERROR);
            return Err(match failed.map(|pool| format!("pool {}", pool.name)).collect::<Vec<_>>() {
                failed if failed.is_empty() => error,
                failed => driver_failed(id, &failed),
            });
        }
        self.pace.lock().forget(id);
        scope.waiting(self.until_gone(id)).await?
    }

    async fn until_gone(&self, id: &str) -> Result<(), ProviderError> {
        let (began, mut wait) = (Instant::now(), self.pace.lock().first_look_at_deletion());
        let mut failed = None;
        for _ in 0..self.looks_at_deletion {
            sleep(wait).await;
            match self.client.load_balancer(id).await {
                Ok(None) => return Ok(()),
                // Octavia could not delete it; the next sync reads what is left.
                Ok(Some(lb)) if lb.provisioning_status == ERROR => {
                    return Err(ProviderError::unknown(format!(
                        "loadbalancer {id} has gone into ERROR state while deleted"
                    )));
                }
                Ok(Some(_)) => failed = None,
                Err(error) => failed = Some(error),
            }
            wait = pace::pause(began.elapsed());
        }
        Err(late("loadbalancer failed to delete within the allotted time".to_owned(), failed))
    }

    async fn change(&self, order: &Order, outputs: &Outputs, scope: &Scope) -> Result<Written, ProviderError> {
        let Write::Octavia { balancer, operation, path, body, successor, output, is_last } = &order.write else {
            return Ok(Written::Done);
        };
        let (balancer, path) = (outputs.fill(balancer), outputs.fill(path));
        if let Some(successor) = successor {
            self.needs_only_the_port(&balancer, outputs.fill_body(successor), outputs, scope).await?;
        }
        let body = body.as_ref().map(|body| outputs.fill_body(body));
        let answer = self.when_ready(&balancer, *operation, &path, body, outputs, scope).await?;
        {
            let mut made = outputs.lock();
            made.written.extend(path.split('/').nth(1).map(str::to_owned));
            made.lost_pools.extend((*operation == POOL_DELETE).then(|| balancer.clone()));
        }
        if let Some((name, key)) = output
            && let Some(id) = answer.pointer(&format!("/{key}/id")).and_then(Value::as_str)
        {
            outputs.put(name, id);
            outputs.lock().written.insert(id.to_owned());
        }
        if *is_last {
            let lb = scope.waiting(self.until_active(&balancer, pace::FIRST, false)).await?;
            let lb = lb.map_err(|wait| wait.error(&balancer))?;
            self.has_no_failed_part(&balancer, outputs).await?;
            outputs.lock().balancers.insert(balancer, lb);
        }
        Ok(Written::Done)
    }

    /// Fails unless Octavia refuses a new listener for its port or for the quota: the deletion of the old one ends both.
    /// Some fields it reads only after that.
    async fn needs_only_the_port(
        &self,
        balancer: &str,
        listener: Value,
        outputs: &Outputs,
        scope: &Scope,
    ) -> Result<(), ProviderError> {
        match self.when_ready(balancer, LISTENER_CREATE, "listeners", Some(listener), outputs, scope).await {
            Err(error) if error.class() == ErrorClass::Conflict && error.to_string().contains(PORT_TAKEN) => Ok(()),
            Err(_) if outputs.take_refusal_for_quota() => Ok(()),
            Err(error) => Err(error),
            // What stood in its way has just gone.
            Ok(_) => Err(ProviderError::new(ErrorClass::Conflict, "the listener that was to be replaced is gone")),
        }
    }

    /// A driver that cannot make a change leaves the part in ERROR and the balancer ACTIVE.
    async fn has_no_failed_part(&self, balancer: &str, outputs: &Outputs) -> Result<(), ProviderError> {
        let tree = self.client.status_tree(balancer).await?;
        let written = outputs.lock().written.clone();
        let is_failed = |status: &str, id: &String| status == ERROR && written.contains(id);
        let mut failed = tree.as_ref().map(|tree| tree.failed_among(&written)).unwrap_or_default();
        // The tree does not show pools without a listener.
        if failed.is_empty() && (tree.is_none() || outputs.lock().lost_pools.contains(balancer)) {
            let pools = self.client.pools(balancer).await?;
            let pools = pools.iter().filter(|pool| is_failed(&pool.provisioning_status, &pool.id));
            failed = pools.map(|pool| format!("pool {}", pool.name)).collect();
        }
        if tree.is_none() {
            let listeners = self.client.listeners(balancer).await?;
            let listeners = listeners.iter().filter(|listener| is_failed(&listener.provisioning_status, &listener.id));
            failed.extend(listeners.map(|listener| format!("listener {}", listener.name)));
        }
        if failed.is_empty() { Ok(()) } else { Err(driver_failed(balancer, &failed)) }
    }

    /// Sends a change when the balancer is probably ready for it, and again while it is busy.
    async fn when_ready(
        &self,
        balancer: &str,
        operation: Operation,
        path: &str,
        body: Option<Value>,
        outputs: &Outputs,
        scope: &Scope,
    ) -> Result<Value, ProviderError> {
        let (is_deletion, mut conflicts, mut was_active) = (operation.method() == http::Method::DELETE, 0, false);
        loop {
            let due = self.pace.lock().next_change(balancer);
            if let Some(due) = due {
                scope.waiting(sleep_until(due)).await?;
            }
            scope.may_write()?;
            let answer = self.client.write_octavia(operation, path, body.clone()).await;
            outputs.note_quota(&answer);
            match answer {
                Ok(answer) => {
                    self.pace.lock().sent(balancer, Instant::now());
                    return Ok(answer);
                }
                Err(error) if is_deletion && is_gone(&error) => {
                    return Ok(Value::Null);
                }
                Err(error) if is_busy(&error) && conflicts < self.looks => {
                    conflicts += 1;
                    self.pace.lock().not_ended(balancer, Instant::now());
                    // A balancer or pool in ERROR also causes a 409.
                    if conflicts % 4 == 0
                        && operation != LB_DELETE
                        && let Some(lb) = self.client.load_balancer(balancer).await?
                    {
                        match &*lb.provisioning_status {
                            ERROR => return Err(Wait::Failed.error(balancer)),
                            // No wait ends that. Seen once, a change may just have ended.
                            ACTIVE if was_active => return Err(part_in_error(balancer, &error)),
                            status => was_active = status == ACTIVE,
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until a balancer is active. A new one may not be shown yet.
    async fn until_active(&self, id: &str, first_look: Duration, is_new: bool) -> Result<LoadBalancer, Wait> {
        let began = Instant::now();
        let (mut wait, mut failed) = (first_look, None);
        for look in 0..self.looks {
            let due = self.pace.lock().next_look(id);
            sleep_until(due.unwrap_or_else(|| Instant::now() + wait)).await;
            match self.client.load_balancer(id).await {
                Ok(Some(lb)) if lb.provisioning_status == ACTIVE => {
                    self.pace.lock().ended(id, Instant::now());
                    return Ok(lb);
                }
                Ok(Some(lb)) if lb.provisioning_status == ERROR => return Err(Wait::Failed),
                Ok(Some(_)) => {
                    failed = None;
                    if due.is_some() {
                        self.pace.lock().not_ended(id, Instant::now());
                    }
                }
                Ok(None) if is_new && look < LOOKS_UNTIL_SHOWN => {}
                Ok(None) => return Err(Wait::Gone),
                // Another look gets the same answer.
                Err(error) if matches!(error.kind, ErrorKind::Refused | ErrorKind::NotLeading) => {
                    return Err(Wait::Late(Some(error)));
                }
                Err(error) => {
                    failed = Some(error);
                    sleep(wait).await;
                }
            }
            wait = pace::pause(began.elapsed());
        }
        Err(Wait::Late(failed))
    }
}

/// Whether the port is that of a balancer of this run with an IPv6 address, which has no floating IP.
fn is_of_ipv6(outputs: &Outputs, port: &str) -> bool {
    outputs.lock().balancers.values().any(|lb| lb.vip_port_id == port && lb.vip_address.contains(':'))
}

fn driver_failed(balancer: &str, parts: &[String]) -> ProviderError {
    ProviderError::unknown(format!(
        "the driver of Octavia could not change loadbalancer {balancer} (in ERROR: {}); the next sync tries again. If that \
         does not help, see the logs of octavia-worker",
        parts.join(", ")
    ))
}

/// The refusal of a change by a balancer that is ready for changes.
fn part_in_error(balancer: &str, error: &ApiError) -> ProviderError {
    ProviderError::unknown(format!(
        "loadbalancer {balancer} is ACTIVE and takes no change, so a part of it is in ERROR; see \
         `openstack loadbalancer status show {balancer}`: {error}"
    ))
}

/// A wait without an end, with the error of the last look.
fn late(text: String, failed: Option<ApiError>) -> ProviderError {
    match failed {
        Some(error) => ProviderError::from(error).wrap(text),
        None => ProviderError::new(ErrorClass::Transient { after: None }, text),
    }
}

fn creation_failed(id: &str) -> ProviderError {
    ProviderError::unknown(format!(
        "loadbalancer {id} has gone into ERROR state, please check Octavia for details. Load balancer was deleted and its \
         creation will be retried"
    ))
}

fn path_of(id: &str, cascade: bool) -> String {
    format!("loadbalancers/{id}{}", if cascade { "?cascade=true" } else { "" })
}

/// The failure of a wait for an active balancer.
#[derive(Debug)]
enum Wait {
    Failed,
    Gone,
    /// With the error of the last look.
    Late(Option<ApiError>),
}

impl Wait {
    fn error(self, id: &str) -> ProviderError {
        match self {
            Self::Failed => ProviderError::unknown(format!(
                "loadbalancer {id} has gone into ERROR state; see `openstack loadbalancer status show {id}`"
            )),
            Self::Gone => ProviderError::new(ErrorClass::Conflict, format!("loadbalancer {id} was deleted meanwhile")),
            Self::Late(failed) => late(format!("timeout waiting for the loadbalancer {id} ACTIVE"), failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::{Service, ServiceAction, ServiceWork};

    use super::*;
    use crate::loadbalancer::env::Env;
    use crate::loadbalancer::observed::Observed;
    use crate::loadbalancer::wanted::wanted;
    use crate::world::{World, cluster};

    /// What an earlier write made may still be there, and not be shown.
    #[tokio::test]
    async fn a_refused_write_does_not_end_the_wait_for_an_earlier_one() {
        let world = World::with(0).await;
        let writer = Writer::new(world.client.clone(), None, Settling::new(cluster(Vec::new()).0));
        let mut service = Service::default();
        service.metadata.name = "web".into();
        let work = [ServiceWork::new(&service, &[], ServiceAction::Delete)];
        let wanted = wanted(&Env::default(), "c", &work, &Vec::new).0;
        let owner = wanted.items[&0].name.clone();
        let is_hidden = || {
            let mut observed = Observed::default();
            writer.settling.mark(&mut observed, &wanted);
            observed.hidden.contains(&0)
        };
        let id = "0badbad0-1111-4222-8333-444455556666".to_owned();
        let body = json!({"floating_network_id": id});
        for (action, write) in [
            ("floating_ip_create", Write::CreateFloatingIp { bodies: vec![body], pattern: String::new() }),
            ("floating_ip_update", Write::BindFloatingIp { id: id.clone(), port: None }),
            ("floating_ip_delete", Write::DeleteFloatingIp { id }),
        ] {
            writer.settling.wrote(Trace::FloatingIp(owner.clone()));
            world.fail(("network", action), 409, 1);
            let order = Order { place: 0, owner: owner.clone(), write };
            writer.apply(&order, &Outputs::default(), &Scope::default()).await.unwrap_err();
            assert!(is_hidden(), "{action}");
        }
    }
}
