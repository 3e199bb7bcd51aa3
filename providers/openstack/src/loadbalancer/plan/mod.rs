//! The writes from the observed to the desired state. Pure.
//!
//! Upstream: `ensureOctaviaLoadBalancer`, `updateOctaviaLoadBalancer` and `ensureLoadBalancerDeleted` in
//! `pkg/openstack/loadbalancer.go`. A plan may stop after any step: the next plan starts from the state at that time.

use std::time::Duration;

use ccm_kit::balancer::{Items, Kind, Part, Plan};
use ccm_provider::{Change, ErrorClass, Finding, ProviderError, Risk, ServiceAction, Step as Summary, Verb};
use serde_json::{Value, json};

use super::claim::{Claim, claim};
use super::env::{Env, Features};
use super::names;
use super::observed::{Balancer, Observed, service_tags};
use super::settling::not_shown;
use super::step::{Order, Step, Then, Write};
use super::wanted::{Item, Settings, Wanted, refused};
use crate::annotations::{LOAD_BALANCER_ID, RECREATE_IN_ERROR};
use crate::client::octavia::{ACTIVE, ERROR};
use crate::client::operation::*;

mod bodies;
pub(crate) mod create;
mod delete;
mod findings;
mod floating;
mod group;
mod monitors;
mod ports;
mod protocol;
mod rename;
mod replace;

use bodies::{Changed, Fields, tag_change};
use findings::children_in_error;
pub(crate) use findings::{FORCED_INTERNAL, not_ours};

/// The reason of the event about a balancer that may be another cluster's.
pub(crate) const NAMESAKE: &str = "LoadBalancerNotOurs";
/// Retry interval for a balancer that another program is changing.
const BUSY: Duration = Duration::from_secs(5);
const LONGEST_BUSY: Duration = Duration::from_secs(60);
/// The reason of the event about such a balancer.
pub(crate) const NOT_ACTIVE: &str = "LoadBalancerNotActive";

/// A plan in progress for one item.
pub(super) struct Draft<'a> {
    env: &'a Env,
    /// Octavia's driver of the balancer.
    provider: &'a str,
    features: Features,
    place: usize,
    item: &'a Item,
    /// What the balancer is to the item.
    claim: Claim,
    observed: &'a Observed,
    /// The part of the next steps.
    part: Part,
    steps: Vec<Step>,
    findings: Vec<Finding>,
}

/// The plan for all items in order: each item sees the tags that earlier items add.
pub(super) fn plan(env: &Env, observed: &Observed, wanted: &Wanted) -> Plan<Order> {
    let mut all = Plan::default();
    let mut observed = observed.clone();
    for (place, item) in &wanted.items {
        let mut draft = Draft::new(env, &observed, *place, item);
        let planned = match item.action {
            _ if observed.hidden.contains(place) => Err(not_shown()),
            ServiceAction::Delete => draft.delete(),
            ServiceAction::Ensure => draft.ensure(),
            ServiceAction::UpdateHosts => draft.update_hosts(),
        };
        let Draft { steps, findings, .. } = draft;
        all.findings.extend(findings.into_iter().map(|mut finding| {
            // The event goes to the Service of the finding.
            finding.value.get_or_insert_with(|| item.key.clone());
            finding
        }));
        take_over(&mut observed, *place, item, &steps);
        all.steps.extend(steps);
        if let Err(error) = planned {
            all.failed.insert(*place, error);
        }
    }
    wait_once(&mut all.steps);
    all
}

/// Applies the tags and listeners of these steps to the observation, for later items.
fn take_over(observed: &mut Observed, place: usize, item: &Item, steps: &[Step]) {
    let mut is_planned = false;
    for step in steps {
        let Write::Octavia { balancer, operation, body: Some(body), .. } = &step.write.write else { continue };
        is_planned |= *operation == LISTENER_CREATE;
        if *operation == LB_UPDATE
            && let Some(tags) = body.pointer("/loadbalancer/tags").and_then(Value::as_array)
            && let Some(balancer) = observed.balancers.get_mut(balancer)
        {
            balancer.lb.tags = tags.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
    }
    let Some(balancer) = observed.balancer_of.get(&place).and_then(|id| observed.balancers.get_mut(id)) else { return };
    for port in item.settings.iter().filter(|_| is_planned).flat_map(|settings| &settings.ports) {
        if !balancer.listeners.iter().any(|listener| ports::same_port(listener, port)) {
            // Lets a later item see the conflict.
            balancer.listeners.push(crate::client::octavia::Listener {
                protocol: port.protocol.clone(),
                protocol_port: port.port,
                tags: vec![item.name.clone()],
                ..Default::default()
            });
        }
    }
}

/// Only the last change of a balancer waits for its completion, and the one before it if the last one may be refused;
/// the next change waits for each earlier one.
fn wait_once(steps: &mut [Step]) {
    let mut seen: Vec<String> = Vec::new();
    for step in steps.iter_mut().rev() {
        if let Write::Octavia { balancer, is_last, .. } = &mut step.write.write {
            *is_last = !seen.contains(balancer);
            if !step.optional {
                seen.push(balancer.clone());
            }
        }
    }
}

/// Whether a balancer and its parts need nothing but an update of members.
pub(super) fn only_hosts_differ(env: &Env, observed: &Observed, place: usize, item: &Item) -> bool {
    let (Some(balancer), Some(settings)) = (observed.balancer(place), &item.settings) else { return false };
    if balancer.is_unread {
        return true;
    }
    let mut draft = Draft::new(env, observed, place, item);
    draft.own_tag(balancer, settings);
    draft.ports(balancer, settings);
    let is_refused = draft.refusal(balancer, settings).is_some();
    !draft.claim.is_former() && !is_refused && draft.steps.iter().all(|step| step.part.kind == Kind::Members)
}

impl<'a> Draft<'a> {
    fn new(env: &'a Env, observed: &'a Observed, place: usize, item: &'a Item) -> Self {
        let provider = env.provider(observed.balancer(place).map(|balancer| &*balancer.lb.provider));
        let features = Features::of(observed.version, provider);
        let (claim, part, findings) = (claim(observed, place, item), Part::new(Kind::Frame), item.findings.clone());
        Self { env, provider, features, place, item, claim, observed, part, steps: Vec::new(), findings }
    }
}

impl Draft<'_> {
    /// Ensures the balancer and everything around it.
    fn ensure(&mut self) -> Result<(), ProviderError> {
        let Some(settings) = &self.item.settings else { return Ok(()) };
        self.say_what_is_ignored(settings);
        self.warn_about_checks(settings);
        let Some(balancer) = self.observed.balancer(self.place) else {
            self.must_be_read()?;
            self.group_must_be_read()?;
            if let Some(problem) = self.observed.bad_certificates.get(&self.place) {
                return Err(refused(problem.clone()));
            }
            self.must_be_ours_to_replace(settings)?;
            self.create_balancer(settings)?;
            let group = self.managed_group(settings);
            return group.and(self.leave_others());
        };
        if balancer.lb.provisioning_status == ERROR {
            self.must_be_read()?;
            if settings.is_recreated {
                self.must_be_ours(balancer)?;
                return self.replace(balancer, settings);
            }
            if self.is_failed_creation(balancer) {
                // Nothing would find it after its balancer.
                self.delete_floating_ips(balancer, "the creation of its load balancer failed");
                return self.delete_balancer(balancer, "its creation failed", Then::Later);
            }
        }
        self.must_be_changeable(balancer)?;
        self.must_be_ours(balancer)?;
        // The members follow the nodes, whatever is wrong with the rest.
        if let Some(refusal) = self.refusal(balancer, settings) {
            let _ = self.hosts_and_group(balancer);
            return Err(refusal);
        }
        // The tag is the claim of the Service: it is written before anything else of it is there, and else after the
        // members.
        let is_claimed = matches!(self.claim, Claim::Own | Claim::Shared);
        if self.claim.is_former() {
            self.rename(balancer);
        } else if !balancer.is_unread && !is_claimed {
            self.own_tag(balancer, settings);
        }
        let (group, closing) = self.opening(|draft| draft.managed_group(settings));
        if !balancer.is_unread {
            self.ports(balancer, settings);
        }
        if !balancer.is_unread && is_claimed {
            self.own_tag(balancer, settings);
        }
        self.say_what_came_too_late(balancer, settings);
        let floating_ip = self.floating_ip(balancer, settings);
        self.steps.extend(closing);
        let others = self.leave_others();
        floating_ip.and(group).and(others)
    }

    /// Updates the members of an existing balancer, and nothing else.
    fn update_hosts(&mut self) -> Result<(), ProviderError> {
        let Some(balancer) = self.observed.balancer(self.place) else {
            self.must_be_read()?;
            let text = format!("the load balancer {} does not exist", self.item.name);
            return Err(ProviderError::new(ErrorClass::NotFound, text));
        };
        self.must_be_changeable(balancer)?;
        self.must_be_ours(balancer)?;
        if balancer.is_unread {
            self.must_be_read()?;
        }
        self.hosts_and_group(balancer).and(self.monitors_must_exist(balancer))
    }

    /// Updates the members of what exists, and the access to them.
    fn hosts_and_group(&mut self, balancer: &Balancer) -> Result<(), ProviderError> {
        let (group, closing) = self.opening(Self::hosts_of_group);
        let members = self.hosts(balancer);
        self.steps.extend(closing);
        members.and(group)
    }

    /// A read that the item needs has failed.
    pub(super) fn must_be_read(&self) -> Result<(), ProviderError> {
        self.observed.unread.get(&self.place).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The reason why an existing balancer does not get the settings of the Service.
    fn refusal(&self, balancer: &Balancer, settings: &Settings) -> Option<ProviderError> {
        let certificate = self.observed.bad_certificates.get(&self.place);
        let certificate = certificate.map_or(Ok(()), |problem| Err(refused(problem.clone())));
        let checked = certificate
            .and_then(|()| self.must_be_read())
            .and_then(|()| monitors_must_be_read(balancer))
            .and_then(|()| self.may_share(balancer, settings))
            .and_then(|()| settings.ports.iter().try_for_each(|port| self.must_be_free(balancer, port)))
            .and_then(|()| match self.makes_pools(balancer, settings) {
                true => self.must_be_known(settings),
                false => Ok(()),
            });
        checked.err()
    }

    /// A missing balancer is replaced if it was created for the Service; otherwise only if the user asks for it.
    fn must_be_ours_to_replace(&self, settings: &Settings) -> Result<(), ProviderError> {
        let is_ours = self.item.noted_own() || settings.is_recreated;
        let Some(id) = self.item.annotated.as_ref().filter(|_| !is_ours) else { return Ok(()) };
        let text = format!(
            "failed to get load balancer {id}: it does not exist; correct or remove the annotation {}",
            LOAD_BALANCER_ID.row.key
        );
        Err(ProviderError::new(ErrorClass::NotFound, text))
    }

    fn must_be_changeable(&mut self, balancer: &Balancer) -> Result<(), ProviderError> {
        let (id, status) = (&balancer.lb.id, &*balancer.lb.provisioning_status);
        let text = format!("load balancer {id} is not ACTIVE, current provisioning status: {status}");
        match status {
            ACTIVE => Ok(()),
            ERROR => Err(ProviderError::unknown(format!(
                "{text}{}; it is not recreated by itself: repair it, for example with `openstack loadbalancer failover {id}`, \
                 or set the annotation {}=true",
                children_in_error(balancer),
                RECREATE_IN_ERROR.row.key
            ))),
            _ => Err(self.busy(text)),
        }
    }

    /// The error until another change has ended. The longer it takes, the less often it is looked at.
    fn busy(&mut self, text: String) -> ProviderError {
        // If this persists, the event is all that the user sees.
        self.findings.push(Finding::warning(NOT_ACTIVE, text.clone()));
        let past = self.observed.busy_for.get(&self.place).copied().unwrap_or_default();
        ProviderError::in_progress(text, Duration::from_secs(past / 4).clamp(BUSY, LONGEST_BUSY))
    }

    /// Whether a balancer in ERROR was never of use: the Service has no address, and nobody else uses it. Its driver may
    /// fail long after this program stopped waiting for it.
    fn is_failed_creation(&self, balancer: &Balancer) -> bool {
        let (item, lb) = (self.item, &balancer.lb);
        lb.provisioning_status == ERROR
            && lb.name == item.name
            && self.claim.is_owner()
            && item.noted_address.is_none()
            && item.published.is_empty()
            && balancer.service_tags().all(|tag| self.claim.owns(item, tag))
    }

    /// Another cluster may have balancers of the same names.
    fn must_be_ours(&mut self, balancer: &Balancer) -> Result<(), ProviderError> {
        match self.claim {
            Claim::Namesake => {
                let text = not_ours(&balancer.lb.id, &self.item.mark(&balancer.lb));
                self.findings.push(Finding::warning(NAMESAKE, text.clone()));
                Err(refused(text))
            }
            Claim::Unread => {
                self.must_be_read()?;
                Err(ProviderError::unknown(format!("the members of {} were not read", balancer.lb.id)))
            }
            _ => Ok(()),
        }
    }

    /// Whether this Service may use the balancer.
    fn may_share(&self, balancer: &Balancer, settings: &Settings) -> Result<(), ProviderError> {
        let (id, refuse) = (&balancer.lb.id, |text: String| Err(refused(text)));
        if self.claim.is_owner() {
            return Ok(());
        }
        if !self.features.tags {
            return refuse(format!(
                "the load balancer {id} is that of another Service, and this Octavia (before version 2.5) has no tags to share it"
            ));
        }
        let (own, others): (Vec<&str>, Vec<&str>) =
            service_tags(&balancer.lb.tags).partition(|tag| self.claim.owns(self.item, tag));
        let (is_member, others) = (!own.is_empty(), others.len());
        let most = usize::try_from(self.env.config.load_balancer.max_shared_lb).unwrap_or(0);
        if !is_member && others + 1 > most {
            return refuse(format!(
                "load balancer {id} already shared with {others} Services; [LoadBalancer] max-shared-lb is {most}"
            ));
        }
        if settings.is_internal {
            return refuse(format!("internal Service cannot share a load balancer: {id} is that of another Service"));
        }
        Ok(())
    }

    /// Adds the tag of the Service and the tags that it requests.
    fn own_tag(&mut self, balancer: &Balancer, settings: &Settings) {
        if !self.features.tags {
            return;
        }
        let mut tags = balancer.lb.tags.clone();
        let missing = |tags: &[String], tag: &String| !tags.contains(tag);
        for tag in std::iter::once(&self.item.name).chain(&settings.tags.balancer) {
            if missing(&tags, tag) {
                tags.push(tag.clone());
            }
        }
        if tags != balancer.lb.tags {
            let changes = vec![tag_change(&balancer.lb.tags, &tags)];
            let body = json!({"loadbalancer": {"tags": tags}});
            self.part = match self.claim {
                Claim::Own | Claim::Shared => Part::of(Kind::Settings, "tags"),
                _ => Part::new(Kind::Claim),
            };
            self.update_balancer(&balancer.lb.id, body, changes, "the Service uses it");
        }
    }

    fn update_balancer(&mut self, id: &str, body: Value, changes: Vec<Change>, reason: &'static str) {
        let call = (LB_UPDATE, format!("loadbalancers/{id}"), Some(body));
        self.octavia(id, call, (Verb::Update, "LoadBalancer", id), changes, reason);
    }

    /// Creates a part whose ID later steps use.
    fn create_part(&mut self, balancer: &Balancer, kind: &Object, name: String, fields: Fields, reason: &'static str) {
        let call = (kind.create, format!("{}s", kind.key), Some(fields.below(kind.key)));
        self.octavia(&balancer.lb.id, call, (Verb::Create, kind.name, &name), Vec::new(), reason);
        if let Some(step) = self.steps.last_mut()
            && let Write::Octavia { output, .. } = &mut step.write.write
        {
            *output = Some((name, kind.key));
        }
    }

    /// Changes a part, if anything differs.
    fn update_part(
        &mut self,
        balancer: &Balancer,
        kind: &Object,
        id: &str,
        name: &str,
        changed: Changed,
        reason: &'static str,
    ) {
        let Changed { body, changes } = changed;
        if !body.is_empty() {
            let call = (kind.update, format!("{}s/{id}", kind.key), Some(Fields(body).below(kind.key)));
            self.octavia(&balancer.lb.id, call, (Verb::Update, kind.name, name), changes, reason);
        }
    }

    fn delete_part(&mut self, balancer: &Balancer, kind: &Object, id: &str, name: &str, reason: &'static str) {
        let call = (kind.delete, format!("{}s/{id}", kind.key), None);
        self.octavia(&balancer.lb.id, call, (Verb::Delete, kind.name, name), Vec::new(), reason);
    }

    /// A change of a balancer: its operation, path and body.
    fn octavia(
        &mut self,
        balancer: &str,
        (operation, path, body): (Operation, String, Option<Value>),
        named: (Verb, &'static str, &str),
        changes: Vec<Change>,
        reason: &'static str,
    ) {
        let balancer = balancer.to_owned();
        let write = Write::Octavia { balancer, operation, path, body, successor: None, output: None, is_last: true };
        self.push_changes(write, named, changes, reason);
    }

    fn push(&mut self, write: Write, named: (Verb, &'static str, &str), reason: &'static str) {
        self.push_changes(write, named, Vec::new(), reason);
    }

    fn push_changes(
        &mut self,
        write: Write,
        (verb, kind, id): (Verb, &'static str, &str),
        changes: Vec<Change>,
        reason: &'static str,
    ) {
        let risk = match verb {
            Verb::Delete | Verb::Detach => Risk::Disruptive,
            _ => Risk::None,
        };
        let summary = Summary { verb, kind: kind.into(), id: id.to_owned(), changes, reason: reason.to_owned(), risk };
        let order = Order { place: self.place, owner: self.item.name.clone(), write };
        self.steps.push(Step::new(order, summary, Items::one(self.place), self.part.clone()));
    }

    /// Changes the last step.
    fn amend(&mut self, change: impl FnOnce(Step) -> Step) {
        let last = self.steps.pop();
        self.steps.extend(last.map(change));
    }
}

/// A kind of object below a balancer.
struct Object {
    name: &'static str,
    /// Its key in bodies.
    key: &'static str,
    create: Operation,
    update: Operation,
    delete: Operation,
}

const LISTENER: Object = kind("Listener", "listener", LISTENER_CREATE, LISTENER_UPDATE, LISTENER_DELETE);
const POOL: Object = kind("Pool", "pool", POOL_CREATE, POOL_UPDATE, POOL_DELETE);
const MONITOR: Object = kind("HealthMonitor", "healthmonitor", MONITOR_CREATE, MONITOR_UPDATE, MONITOR_DELETE);

const fn kind(
    name: &'static str,
    key: &'static str,
    create: Operation,
    update: Operation,
    delete: Operation,
) -> Object {
    Object { name, key, create, update, delete }
}

/// Something that an update of members does not make: the ensure that follows the error does.
fn missing(what: &str) -> ProviderError {
    ProviderError::unknown(format!("{what} does not exist"))
}

fn monitors_must_be_read(balancer: &Balancer) -> Result<(), ProviderError> {
    balancer.unread_monitors.clone().map_or(Ok(()), Err)
}

/// The name of a part of the balancer of an item.
fn part(kind: &str, index: usize, item: &Item) -> String {
    names::part(kind, index, &item.name)
}
