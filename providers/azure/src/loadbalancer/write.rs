//! Sends the writes of a plan.
//!
//! A write of a shared object is put together when it is sent: Services whose public IP address could not be made are left
//! out. Writes are guarded by ETags; a conflict is planned again by the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::balancer::{Operation, Progress, Written};
use ccm_kit::call::ErrorKind;
use ccm_provider::address::parse_ip;
use ccm_provider::{ErrorClass, ProviderError};
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::balancer::{self, BalancerChange, Edit};
use super::env::{Env, PUBLIC_IPS};
use super::explained::{address_stays, approves_unseen, explained, is_final, object, with_annotation};
use super::json;
use super::known::LATE;
use super::members::{InstanceChange, InterfaceChange, ModelChange, Pools};
use super::names::without_internal;
use super::observe::Reads;
use super::plan::address::{AddressChange, Outcome};
use super::plan::security::has_failed;
use super::plan::service::Reached;
use super::plan::step::{Made, SecurityChange, SecurityPart, Write};
use super::repair::{self, Repairs};
use super::shares::Shares;
use super::waiting::Waiting;
use crate::annotations as keys;
use crate::client::id::ArmId;
use crate::client::operation::{
    LB_DELETE, LB_GET, LB_MIGRATE, LB_PUT, NIC_GET, NIC_PUT, NSG_GET, NSG_PUT, PLS_CONNECTION_DELETE, PLS_DELETE,
    PLS_PUT, POOL_PUT, PUBLIC_IP_DELETE, PUBLIC_IP_GET, PUBLIC_IP_PUT, SUBNET_PUT, VMSS, VMSS_GET, VMSS_PUT,
    VMSS_VM_GET, VMSS_VM_PUT,
};
use crate::client::{self, Client, Look, Pending, Sent, State};

/// The limit of the deletion of a connection to a private link service.
const CONNECTION: Duration = Duration::from_secs(20);

/// The writer of one call.
pub(super) struct Writer<'a> {
    pub(super) env: &'a Env,
    pub(super) client: &'a Client,
    pub(super) reads: &'a Reads,
    pub(super) ongoing: &'a Ongoing,
    pub(super) waiting: &'a Waiting,
    pub(super) repairs: &'a Repairs,
}

/// The writes of load balancers and of the security group that are not done, by operation.
#[derive(Debug, Default)]
pub(super) struct Ongoing(Mutex<BTreeMap<String, Watched>>);

/// A write that is not done.
#[derive(Debug, Clone)]
struct Watched {
    change: Arc<Change>,
    end: End,
}

/// What shows the end of a write.
#[derive(Debug, Clone)]
enum End {
    /// The object, which is Updating since then.
    Object(Instant),
    /// The operation; after it, the object is as in the answer to the write. Azure may show success before the end.
    Operation(Option<Arc<Value>>),
}

/// The time after which the operation is asked, because others may keep an object in the state Updating.
const UPDATING: Duration = Duration::from_secs(30);

/// What a write of an object that all Services share changes.
#[derive(Debug)]
enum Change {
    /// The parts of the Services in a load balancer.
    Balancer(Vec<Edit>),
    /// The whole security group, and the parts of the Services in it.
    Security(Value, Vec<SecurityPart>),
}

impl Change {
    fn shares(&self) -> Shares<'_> {
        match self {
            Self::Balancer(edits) => Shares::Balancer(edits),
            Self::Security(_, parts) => Shares::Security(parts),
        }
    }

    /// Whether the object has all of it.
    fn is_in(&self, object: &Value) -> bool {
        match self {
            Self::Balancer(edits) => edits.iter().cloned().all(|mut edit| {
                // What is left to Azure: an address of the subnet.
                let frontends = edit.frontends.iter_mut();
                frontends.for_each(|it| json::object_mut(it, "properties").retain(|_, value| !value.is_null()));
                !edit.changes(object)
            }),
            Self::Security(group, _) => rules(group) == rules(object),
        }
    }
}

/// What the rules of a security group say, by name.
fn rules(group: &Value) -> BTreeMap<&str, BTreeMap<&str, &Value>> {
    let is_said = |(key, value): &(&String, &Value)| {
        *key != "provisioningState" && !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
    };
    let of = |rule| {
        let fields = json::at(rule, &["properties"]).as_object().into_iter().flatten();
        (json::name(rule), fields.filter(is_said).map(|(key, value)| (key.as_str(), value)).collect())
    };
    json::items(group, "securityRules").iter().map(of).collect()
}

impl End {
    /// `object`: that of the answer to the write.
    fn of(object: Value) -> Self {
        match json::property(&object, "provisioningState") {
            state if json::same(state, "Updating") => Self::Object(Instant::now()),
            state if json::same(state, "Succeeded") && !json::text(&object, &["etag"]).is_empty() => {
                Self::Operation(Some(object.into()))
            }
            _ => Self::Operation(None),
        }
    }
}

impl Writer<'_> {
    /// Sends a write.
    pub(super) async fn apply(&self, write: &Write, made: &Made) -> Result<Written, ProviderError> {
        let partial;
        let write = match write {
            Write::DeleteBalancer(change) if !made.lock().is_whole(change) => {
                partial = Write::Balancer(BalancerChange { is_second: true, ..change.clone() });
                &partial
            }
            _ => write,
        };
        let request = match write {
            Write::Address(change) => return self.address(change, made).await,
            Write::Balancer(change) => {
                let second;
                let change = match change.is_second {
                    true => {
                        second = self.current(change).await?;
                        &second
                    }
                    false => change,
                };
                let after = self.balancer_after(change, made);
                if change.is_new() && BalancerChange::is_empty(&after) {
                    return Ok(Written::Done);
                }
                if after == *change.before && !change.has_failed() {
                    Self::completed(write, made);
                    return Ok(Written::Done);
                }
                if change.is_new() {
                    self.is_absent(&change.id).await?;
                }
                client::Write::put(LB_PUT, change.id.clone(), balancer::body(after))
            }
            Write::DeleteBalancer(change) => client::Write::bare(LB_DELETE, change.id.clone()),
            Write::Security(change) => return self.security(change, made).await,
            // Without the address of any Service that needs it, it was not made.
            Write::Pool(change) if change.is_new() && !made.lock().pools.contains(&change.id.folded()) => {
                return Ok(Written::Done);
            }
            Write::Pool(change) => {
                made.lock().has_more |= change.has_more;
                made.lock().takes_over |= change.takes_over;
                client::Write::put(POOL_PUT, change.id.clone(), change.body()).unguarded()
            }
            Write::Migrate { id, pools, sets } => {
                sets.iter().for_each(|set| self.reads.model_is_due(set));
                made.lock().has_more = true;
                let body = Some(serde_json::json!({"pools": pools}));
                client::Write { body, ..client::Write::bare(LB_MIGRATE, id.clone()) }
            }
            Write::Model(_) | Write::Instance(_) | Write::Interface(_) => match self.member(write, made).await? {
                Some(request) => request,
                None => return Ok(Written::Done),
            },
            Write::Subnet { id, body } => client::Write::put(SUBNET_PUT, id.clone(), body.clone()).unguarded(),
            Write::Link { id, body } => client::Write::put(PLS_PUT, id.clone(), body.clone()).unguarded(),
            Write::DeleteLink(deletion) => {
                for connection in &deletion.connections {
                    let request = client::Write::bare(PLS_CONNECTION_DELETE, connection.clone());
                    let deleted = self.client.finish(&request, CONNECTION).await;
                    deleted.map_err(|error| {
                        let text = format!("the private endpoint connection {}", connection.name());
                        ProviderError::from(error).wrap(text)
                    })?;
                }
                client::Write::bare(PLS_DELETE, deletion.id.clone())
            }
        };
        let (Write::Instance(InstanceChange { has_more, .. }) | Write::Interface(InterfaceChange { has_more, .. })) =
            write
        else {
            let sent = self.send(&request, write, made).await;
            let Write::Link { id, body } = write else { return sent };
            let group = (id.group() != self.env.link_group).then_some((keys::PLS_GROUP.row.key, id.group()));
            return sent.map_err(|error| match approves_unseen(body) {
                Some(one) => error.wrap(format!(
                    "{} {one:?}; add it to {}",
                    keys::PLS_APPROVAL.row.key,
                    keys::PLS_VISIBILITY.row.key
                )),
                None => with_annotation(error, group.into_iter()),
            });
        };
        made.lock().has_more |= has_more;
        self.send(&request, write, made).await
    }

    /// A change of the load balancer as it is now: this plan has written it before.
    async fn current(&self, change: &BalancerChange) -> Result<BalancerChange, ProviderError> {
        let before = self.present(LB_GET, &change.id).await?.into();
        Ok(BalancerChange { before, ..change.clone() })
    }

    /// Reads an object for a write. A refusal of that is none of the write, which the engine would not send for long.
    async fn read(&self, get: client::operation::Operation, id: &ArmId) -> Result<Option<Value>, ProviderError> {
        self.client.get(get, id).await.map_err(|error| match ProviderError::from(error) {
            error if is_final(&error) => ProviderError::new(ErrorClass::Transient { after: None }, error.to_string()),
            error => error,
        })
    }

    /// An object as it is now.
    async fn present(&self, get: client::operation::Operation, id: &ArmId) -> Result<Value, ProviderError> {
        let text = || format!("somebody has deleted {}", object(id));
        self.read(get, id).await?.ok_or_else(|| ProviderError::new(ErrorClass::Conflict, text()))
    }

    /// Looks once more for a load balancer that the list did not show: lists may be late, and a PUT would replace it with
    /// the rules of all other Services.
    async fn is_absent(&self, id: &ArmId) -> Result<(), ProviderError> {
        match self.read(LB_GET, id).await? {
            None => Ok(()),
            Some(_) => {
                self.reads.known.forget(Duration::ZERO);
                let text = format!("the load balancer {} exists, although the list did not show it", id.name());
                Err(ProviderError::new(ErrorClass::Conflict, text))
            }
        }
    }

    async fn send(&self, request: &client::Write, write: &Write, made: &Made) -> Result<Written, ProviderError> {
        // A later call does not see any more where they come from.
        if let Write::Balancer(change) | Write::DeleteBalancer(change) = write {
            let (from, _) = without_internal(&change.name);
            let moving = change.edits.iter().filter(|edit| edit.moves);
            moving.for_each(|edit| self.reads.refused.moves(&edit.key, edit.fingerprint, from));
        }
        let writing = self.reads.known.writing(&request.id);
        let sent = self.client.begin(request).await;
        match &sent {
            Ok(_) => writing.answered(),
            Err(error) if error.status == Some(StatusCode::PRECONDITION_FAILED.as_u16()) => {
                writing.conflicts();
                if let Some(etag) = &request.etag {
                    self.reads.recent.outdated(&request.id, etag);
                }
            }
            Err(error) => match error.kind {
                ErrorKind::NotSent | ErrorKind::NotLeading | ErrorKind::Throttled { .. } => writing.unsent(),
                ErrorKind::Refused | ErrorKind::Credentials | ErrorKind::Malformed => writing.refused(),
                // It may have taken effect.
                ErrorKind::NoAnswer | ErrorKind::Incomplete => drop(writing),
            },
        }
        if !matches!(sent, Ok(Sent::Accepted(..))) {
            self.reads.ended(&request.id, sent.is_err());
        }
        let is_unanswered = sent.as_ref().is_err_and(|error| error.kind == ErrorKind::NoAnswer);
        match write {
            _ if request.operation.is_deletion() && sent.is_ok() => self.reads.recent.deleted(&request.id),
            Write::Balancer(_) | Write::Address(_) | Write::Security(_)
                if request.body.is_some() && (sent.is_ok() || is_unanswered) =>
            {
                self.reads.recent.add(&request.id, request.etag.as_deref());
            }
            _ => {}
        }
        match sent {
            Ok(Sent::Done(object)) => {
                self.ended(&request.id, Some(object).filter(|it| !json::text(it, &["etag"]).is_empty()));
                Self::completed(write, made);
                Ok(Written::Done)
            }
            Ok(Sent::Accepted(pending, object)) => {
                let operation = operation(&pending);
                let change = match write {
                    Write::Balancer(change) if !change.edits.is_empty() => {
                        let made = made.lock();
                        let edits = change.edits.iter().filter(|edit| made.may_be_sent(edit));
                        Some(Change::Balancer(edits.cloned().collect()))
                    }
                    Write::Security(change) => {
                        request.body.clone().map(|group| Change::Security(group, change.parts.clone()))
                    }
                    _ => None,
                };
                if let Some(change) = change {
                    let watched = Watched { change: change.into(), end: End::of(object) };
                    self.ongoing.0.lock().insert(operation.name.clone(), watched);
                }
                match write {
                    Write::Address(change) if request.body.is_none() => {
                        self.waiting.add(&operation.name, &change.id, true);
                    }
                    Write::Address(change) if change.is_new() => self.waiting.add(&operation.name, &change.id, false),
                    _ => {}
                }
                Ok(Written::Accepted(operation))
            }
            Err(error) if repair::is_going(&request.id, &error.message) => Ok(Written::Done),
            Err(error) => {
                if let Write::Model(change) = write {
                    self.reads.model_is_due(&change.id);
                }
                if self.repaired(write, &error.message).await {
                    return Err(ProviderError::new(ErrorClass::Conflict, error.to_string()));
                }
                Err(explained(&self.reads.refused, &request.id, Shares::of(write), error.into()))
            }
        }
    }

    /// The write of a machine or of a model, if something changes.
    async fn member(&self, write: &Write, made: &Made) -> Result<Option<client::Write>, ProviderError> {
        let that_exist = |pools: &Pools| {
            let made = made.lock();
            pools.that_exist(&made.pools, |change| !made.is_whole(change))
        };
        Ok(match write {
            Write::Model(change) => {
                let mut change = ModelChange { pools: that_exist(&change.pools), ..change.clone() };
                self.read_again(VMSS_GET, &change.id, &change.pools, &mut change.before).await?;
                change.body().map(|body| client::Write::put(VMSS_PUT, change.id, body))
            }
            Write::Instance(change) => {
                let mut change = InstanceChange { pools: that_exist(&change.pools), ..change.clone() };
                self.read_again(VMSS_VM_GET, &change.id, &change.pools, &mut change.before).await?;
                change.body().map(|body| client::Write::put(VMSS_VM_PUT, change.id, body))
            }
            Write::Interface(change) => {
                let mut change = InterfaceChange { pools: that_exist(&change.pools), ..change.clone() };
                self.read_again(NIC_GET, &change.id, &change.pools, &mut change.before).await?;
                change.body().map(|body| client::Write::put(NIC_PUT, change.id, body).unguarded())
            }
            _ => None,
        })
    }

    /// A machine or model as it is now, if this plan has written it before and something is left to do.
    async fn read_again(
        &self,
        get: client::operation::Operation,
        id: &ArmId,
        pools: &Pools,
        before: &mut Value,
    ) -> Result<(), ProviderError> {
        if pools.is_second && !pools.remove.is_empty() {
            *before = self.present(get, id).await?;
        }
        Ok(())
    }

    /// A write has ended; `object` is what it has made.
    fn ended(&self, id: &ArmId, object: Option<Value>) {
        match object {
            Some(object) => self.reads.shows(id, object),
            None => self.reads.known.ended(id),
        }
    }

    /// Whether what an error names is not in the way any more.
    async fn repaired(&self, write: &Write, message: &str) -> bool {
        match (repair::neighbor(message), repair::user(message), write) {
            (Some(id), ..) => self.repairs.repair(self.client, &id).await,
            // Those of other resource groups are not the cluster's.
            (None, Some(set), Write::DeleteBalancer(change)) if set.group().eq_ignore_ascii_case(&self.env.group) => {
                self.repairs.detach(self.client, self.env, &set, &change.id).await
            }
            _ => false,
        }
    }

    /// The load balancer with the parts of the Services whose public IP addresses exist.
    fn balancer_after(&self, change: &BalancerChange, made: &Made) -> Value {
        let made = made.lock();
        change.after(self.env, |edit: &Edit| made.may_be_sent(edit))
    }

    async fn address(&self, change: &AddressChange, made: &Made) -> Result<Written, ProviderError> {
        // After the load balancer was written, the ETag of its addresses is another one. Deletions have no guard.
        let is_late = !change.is_used() && change.after(self.env, &change.before) != Outcome::Delete;
        let now = match is_late {
            true => self.read(PUBLIC_IP_GET, &change.id).await?.unwrap_or(Value::Null),
            false => change.before.clone(),
        };
        let request = match change.after(self.env, &now) {
            Outcome::Same => return Ok(Written::Done),
            Outcome::Put(body) => client::Write::put(PUBLIC_IP_PUT, change.id.clone(), body),
            Outcome::Delete => client::Write::bare(PUBLIC_IP_DELETE, change.id.clone()),
        };
        self.send(&request, &Write::Address(change.clone()), made).await.map_err(|error| {
            address_stays(&self.reads.refused, change, &error);
            let group = (change.id.group() != self.env.group).then_some((keys::LB_GROUP.row.key, change.id.group()));
            with_annotation(error, change.prefixes().chain(group))
        })
    }

    async fn security(&self, change: &SecurityChange, made: &Made) -> Result<Written, ProviderError> {
        self.find_addresses(change, made).await?;
        let mut change = change.clone();
        if change.is_second {
            change.before = match self.reads.recent.seen(&change.id) {
                Some(group) => group,
                None => self.present(NSG_GET, &change.id).await?.into(),
            };
        }
        let change = &change;
        let (after, left_out) = change.after(self.env, &change.before, &made.lock());
        // The next observation shows the addresses, so that its plan leaves out only the Services without a place.
        if !left_out.is_empty() {
            self.reads.known.forget(Duration::ZERO);
            let text = "the security group has no place for some Services: planned again";
            return Err(ProviderError::new(ErrorClass::Conflict, text));
        }
        if after == *change.before && !has_failed(&after) {
            Self::completed(&Write::Security(change.clone()), made);
            return Ok(Written::Done);
        }
        let request = client::Write::put(NSG_PUT, change.id.clone(), after);
        self.send(&request, &Write::Security(change.clone()), made).await
    }

    /// The state of an operation.
    pub(super) async fn poll(&self, operation: &Operation) -> Result<Progress, ProviderError> {
        let Some(pending) = Pending::parse(&operation.name) else { return Ok(Progress::Done) };
        if let Some((progress, object)) = self.waiting.poll(&operation.name).await {
            if matches!(progress, Progress::Done) {
                self.ended(&pending.id, object);
            }
            return Ok(progress);
        }
        if let Some(progress) = self.look(&operation.name, &pending).await {
            return Ok(progress);
        }
        let state = self.client.poll(&pending).await?;
        let mut change = None;
        if !matches!(state, State::Running) {
            self.reads.ended(&pending.id, matches!(state, State::Failed(_)));
            let watched = self.ongoing.0.lock().remove(&operation.name);
            let answered = watched.as_ref().and_then(|watched| match &watched.end {
                End::Operation(Some(object)) if self.is_end(&pending, &watched.change, object) => Some(object),
                _ => None,
            });
            self.ended(&pending.id, answered.map(|object| object.as_ref().clone()));
            change = watched.map(|watched| watched.change);
        }
        Ok(match state {
            State::Running => Progress::Running,
            State::Done => Progress::Done,
            State::Failed(error) if repair::is_going(&pending.id, &error.message) => Progress::Done,
            State::Failed(error) => {
                self.reads.recent.forget(&pending.id);
                self.reads.known.forget(LATE);
                if pending.id.is(VMSS.kind) {
                    self.reads.model_is_due(&pending.id);
                }
                let shares = change.as_ref().map_or(Shares::Balancer(&[]), |change| change.shares());
                Progress::Failed(explained(&self.reads.refused, &pending.id, shares, error.into()))
            }
        })
    }

    /// Looks at the object in place of its operation: one read shows the end, and what the next plan begins with. `None`
    /// if only the operation shows it.
    async fn look(&self, operation: &str, pending: &Pending) -> Option<Progress> {
        let Watched { change, end: End::Object(since) } = self.ongoing.0.lock().get(operation).cloned()? else {
            return None;
        };
        if since.elapsed() >= UPDATING {
            return None;
        }
        let is_end = |object: &Value| self.is_end(pending, &change, object);
        match self.client.look(pending, is_end).await.ok()? {
            Look::Running => Some(Progress::Running),
            Look::Unclear => {
                if let Some(watched) = self.ongoing.0.lock().get_mut(operation) {
                    watched.end = End::Operation(None);
                }
                None
            }
            Look::Succeeded(object) => {
                self.ongoing.0.lock().remove(operation);
                self.reads.shows(&pending.id, object);
                Some(Progress::Done)
            }
        }
    }

    /// Whether an object is as a write has made it.
    fn is_end(&self, pending: &Pending, change: &Change, object: &Value) -> bool {
        !self.reads.recent.has_replaced(&pending.id, object) && change.is_in(object)
    }

    /// Records what later writes need.
    pub(super) fn completed(write: &Write, made: &Made) {
        if let Write::Address(change) = write
            && change.is_used()
        {
            made.lock().ready.insert(change.id.folded());
        }
        if let Write::DeleteLink(deletion) = write {
            made.lock().ready.insert(deletion.id.folded());
        }
        let mut made = made.lock();
        match write {
            // If some of its Services stay, it was only written.
            Write::DeleteBalancer(change) if made.is_whole(change) => drop(made.ready.insert(change.id.folded())),
            Write::Security(change) => {
                let due = change.parts.iter().filter(|part| part.is_due(&made)).map(|part| part.claim.place);
                let due: Vec<usize> = due.collect();
                made.admitted.extend(due);
            }
            Write::Pool(change) if !change.add.is_empty() => drop(made.filled.insert(change.id.folded())),
            Write::Instance(InstanceChange { pools, .. }) | Write::Interface(InterfaceChange { pools, .. }) => {
                made.filled.extend(pools.add.iter().map(|(pool, _)| pool.folded()));
            }
            _ => {}
        }
        if let Write::Balancer(change) | Write::DeleteBalancer(change) = write {
            let parts: Vec<&Edit> = change.edits.iter().filter(|edit| made.may_be_sent(edit)).collect();
            let gone = parts.iter().filter(|edit| edit.moves).flat_map(|edit| &edit.drops);
            let pools = parts.iter().flat_map(|edit| &edit.pools);
            made.parts.extend(parts.iter().map(|edit| (change.id.folded(), edit.place)));
            made.ready.extend(gone.map(|name| change.id.child("frontendIPConfigurations", name).folded()));
            made.pools.extend(pools.map(|name| change.id.child("backendAddressPools", name).folded()));
        }
    }

    /// Reads the new addresses that become destinations: one list for all public ones of a group, one load balancer for
    /// its private ones.
    async fn find_addresses(&self, change: &SecurityChange, made: &Made) -> Result<(), ProviderError> {
        let pending = change.parts.iter().flat_map(|part| &part.pending);
        let ids = pending.filter_map(|reached| if let Reached::Of(id) = reached { Some(id) } else { None });
        let ids: BTreeSet<&ArmId> = ids.filter(|id| !made.lock().addresses.contains_key(&id.folded())).collect();
        let shown = |ip: &Value| (json::text(ip, &["id"]).to_lowercase(), parse_ip(json::property(ip, "ipAddress")));
        let mut found: Vec<_> = ids.iter().filter_map(|id| self.reads.recent.seen(id)).map(|ip| shown(&ip)).collect();
        let is_unknown =
            |id: &&&ArmId| id.is(PUBLIC_IPS) && !found.iter().any(|(known, ip)| *known == id.folded() && ip.is_some());
        let groups: BTreeSet<String> = ids.iter().filter(is_unknown).map(|id| id.group().to_lowercase()).collect();
        for group in groups {
            let of_group = |id: &&&ArmId| id.is(PUBLIC_IPS) && id.group().eq_ignore_ascii_case(&group);
            let Some(first) = ids.iter().find(of_group) else { continue };
            for ip in self.waiting.addresses(first).await? {
                found.push(shown(&ip));
            }
        }
        let balancers: BTreeSet<ArmId> =
            ids.iter().filter(|id| !id.is(PUBLIC_IPS)).filter_map(|id| id.parent()).collect();
        for id in balancers {
            let balancer = match self.reads.recent.seen(&id) {
                Some(balancer) => balancer,
                None => self.read(LB_GET, &id).await?.unwrap_or(Value::Null).into(),
            };
            for frontend in json::items(&balancer, "frontendIPConfigurations") {
                let ip = parse_ip(json::property(frontend, "privateIPAddress"));
                found.push((json::text(frontend, &["id"]).to_lowercase(), ip));
            }
        }
        made.lock().addresses.extend(found.into_iter().filter_map(|(id, ip)| Some((id, ip?))));
        Ok(())
    }
}

fn operation(pending: &Pending) -> Operation {
    Operation { name: pending.to_string(), text: format!("changing {}", object(&pending.id)) }
}
