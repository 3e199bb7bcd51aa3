//! When the security group is written. Pure.
//!
//! One write follows those of the load balancers. A Service whose clients must go to another address or port has one more
//! before it: otherwise it would be closed until the group is written, and for as long as that is refused. One that leaves a
//! load balancer for another one keeps what it has had there until it has left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_kit::balancer::{Items, Kind, Part, Step};
use ccm_provider::{ProviderError, Risk, Verb};
use serde_json::Value;

use super::super::balancer::Edit;
use super::super::env::PUBLIC_IPS;
use super::super::json;
use super::super::tags;
use super::super::wanted::Item;
use super::security::{self, Keep, has_failed};
use super::service::Reached;
use super::step::{SecurityChange, SecurityPart, Write};
use super::{Planner, SOON, summary};

/// Before the load balancers.
const ADMISSIONS: u32 = 6;
const RULES: u32 = 20;
/// After the end of load balancers.
const LAST_RULES: u32 = 85;
/// The needs of security rules: the address.
const FRAME: &[Kind] = &[Kind::Claim, Kind::Frame];

/// One of the writes.
struct Stage {
    stage: u32,
    parts: Vec<SecurityPart>,
    places: BTreeSet<usize>,
}

impl Planner<'_> {
    /// What there must be on the load balancer that a Service joins before it leaves another one.
    pub(super) fn follow(&self, edit: &mut Edit, item: &Item, joined: &str) {
        let id = self.env.balancer_id(joined);
        let edits = self.balancers.get(&joined.to_lowercase()).map(|(change, _)| change.edits.iter());
        if let Some(own) = edits.into_iter().flatten().find(|own| own.place == edit.place) {
            edit.needs.clone_from(&own.needs);
            edit.joins = edit.leaves.then(|| id.clone());
        }
        let observed = json::named(&self.observed.balancers, joined).unwrap_or(&Value::Null);
        let has_members = |name: &str| {
            let pool = json::named(json::items(observed, "backendAddressPools"), name).unwrap_or(&Value::Null);
            ["backendIPConfigurations", "loadBalancerBackendAddresses"]
                .iter()
                .any(|list| !json::items(pool, list).is_empty())
        };
        let pools = item.families.iter().map(|family| item.pool(&self.wanted.cluster, *family));
        let empty = pools.filter(|name| edit.leaves && !has_members(name));
        edit.fills = empty.map(|name| id.child("backendAddressPools", &name)).collect();
    }

    /// Azure has no two rules of one port: who takes the port of a Service that leaves does it in the next call.
    pub(super) fn put_takers_off(&mut self) {
        let mut takers = BTreeSet::new();
        for (change, _) in self.balancers.values().filter(|(change, _)| change.edits.iter().any(|edit| edit.leaves)) {
            let (first, _) = change.without_leaving(self.env);
            let body = first.after(self.env, |_| true);
            let left = |edit: &&Edit| edit.leaves;
            for rule in change.edits.iter().filter(left).flat_map(|edit| edit.own_rules(&body)) {
                let takes = |edit: &&Edit| edit.rules.iter().any(|own| port_of(own) == port_of(rule));
                takers.extend(first.edits.iter().filter(takes).map(|edit| edit.place));
            }
        }
        if takers.is_empty() {
            return;
        }
        let takers = self.with_takers(takers);
        self.take_back(&takers);
        for place in takers {
            let text = "another Service leaves the load balancer first, which has a port that this one asks for";
            self.failed.entry(place).or_insert_with(|| ProviderError::in_progress(text, SOON));
        }
    }

    /// These, and who takes a port, or changes a frontend, that one of them has until it is written.
    fn with_takers(&self, mut places: BTreeSet<usize>) -> BTreeSet<usize> {
        loop {
            let mut more = BTreeSet::new();
            for (change, _) in self.balancers.values() {
                let (of, others): (Vec<&Edit>, Vec<&Edit>) =
                    change.edits.iter().partition(|edit| places.contains(&edit.place));
                let kept: Vec<_> = of.iter().flat_map(|edit| edit.own_rules(&change.before)).map(port_of).collect();
                let frontend =
                    |it: &Value| change.id.child("frontendIPConfigurations", json::name(it)).as_str().to_lowercase();
                let takes = |edit: &&&Edit| {
                    edit.rules.iter().any(|rule| kept.contains(&port_of(rule)))
                        || edit.frontends.iter().any(|it| kept.iter().any(|(of, ..)| *of == frontend(it)))
                };
                more.extend(others.iter().filter(takes).map(|edit| edit.place));
            }
            if more.is_empty() {
                return places;
            }
            places.extend(more);
        }
    }

    /// The Services whose clients must go elsewhere on the load balancer that they have, and those that leave one.
    fn successions(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut redirected, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        for (change, _) in self.balancers.values() {
            for edit in change.edits.iter().filter(|edit| self.reached.contains_key(&edit.place)) {
                if edit.leaves {
                    leaving.insert(edit.place);
                } else if edit.redirects(&change.before) {
                    redirected.insert(edit.place);
                }
            }
        }
        (redirected, leaving)
    }

    /// A Service whose new rules are not possible stays as it is on the load balancers, if it would be closed otherwise.
    pub(super) fn keep_served(&mut self, without_rules: &BTreeSet<usize>) {
        let (redirected, leaving) = self.successions();
        let served: BTreeSet<usize> =
            redirected.union(&leaving).filter(|it| without_rules.contains(it)).copied().collect();
        if !served.is_empty() {
            let all = self.with_takers(served.clone());
            self.take_back(&all);
            for place in all.difference(&served) {
                let text = "another Service keeps what this one asks for until its security rules can be written";
                self.failed.entry(*place).or_insert_with(|| ProviderError::in_progress(text, SOON));
            }
            self.places = self.places_of_nodes();
        }
    }

    /// The writes of the security group for these parts.
    pub(super) fn security_steps(&mut self, group: &Arc<Value>, mut parts: Vec<SecurityPart>, keep: &Keep) {
        let mut before = Value::clone(group);
        tags::set_configured(&mut before, &self.env.tags, &self.env.system_tags);
        let (_, failed) = after(&before, &parts, Some(keep));
        // Those that have no place are not in the write: it would be planned again for them.
        parts.retain(|part| !failed.contains_key(&part.claim.place));
        self.keep_served(&failed.keys().copied().collect());
        for (place, error) in failed {
            self.failed.entry(place).or_insert(error);
        }
        let (redirected, leaving) = self.successions();
        let lacks = |part: &SecurityPart| !part.pending.is_empty() || !security::admits(group, &part.claim);
        let is_early = |reached: &Reached| matches!(reached, Reached::Of(id) if id.is(PUBLIC_IPS));
        let is_first = |part: &&SecurityPart| {
            redirected.contains(&part.claim.place) && part.pending.iter().all(is_early) && lacks(part)
        };
        let mut first: Vec<SecurityPart> = parts.iter().filter(is_first).map(|part| part.holding(true)).collect();
        // Who takes a port of them is written with them, or not at all.
        let early = places_of(&first);
        let takers = self.with_takers(early.clone());
        let takes = |part: &&SecurityPart| {
            let place = part.claim.place;
            takers.contains(&place) && !early.contains(&place) && part.pending.iter().all(is_early)
        };
        first.extend(parts.iter().filter(takes).map(|part| part.holding(true)));
        let (_, misfits) = after(&before, &first, None);
        first.retain(|part| !misfits.contains_key(&part.claim.place));
        let (admitted, _) = after(&before, &first, None);
        let is_leaving = |part: &SecurityPart| leaving.contains(&part.claim.place);
        let mut second: Vec<SecurityPart> = parts.iter().map(|part| part.holding(is_leaving(part))).collect();
        let (mut now, misfits) = after(&admitted, &second, Some(keep));
        if !misfits.is_empty() {
            second = parts.clone();
            now = after(&admitted, &second, Some(keep)).0;
        }
        let waiting = places_of(parts.iter().filter(|part| is_leaving(part) && lacks(part)));
        let mut last: Vec<SecurityPart> = parts.into_iter().filter(is_leaving).collect();
        last.retain(|part| after(&now, std::slice::from_ref(part), None).0 != now);
        let early = places_of(&first);
        self.set_frames(&mut second, false);
        self.set_frames(&mut last, true);
        for edit in self.balancers.values_mut().flat_map(|(change, _)| &mut change.edits) {
            edit.admits = if edit.leaves { waiting.contains(&edit.place) } else { early.contains(&edit.place) };
        }
        let is_changed = has_failed(group) || if first.is_empty() { now != **group } else { now != admitted };
        let places = self.due_in(group, &second, is_changed);
        let late = places_of(&last);
        let stages = [
            Stage { stage: ADMISSIONS, parts: first, places: early },
            Stage { stage: RULES, parts: second, places },
            Stage { stage: LAST_RULES, parts: last, places: late },
        ];
        self.push_security(group, keep, stages);
    }

    /// The load balancers that have the parts before. Those that Services leave only for the last write.
    fn set_frames(&self, parts: &mut [SecurityPart], also_left: bool) {
        for part in parts.iter_mut().filter(|part| self.reached.contains_key(&part.claim.place)) {
            let has_part =
                |edits: &[Edit]| edits.iter().any(|edit| edit.place == part.claim.place && (also_left || !edit.leaves));
            let changes = self.balancers.values().filter(|(change, _)| has_part(&change.edits));
            part.frames = changes.map(|(change, _)| change.id.clone()).collect();
        }
    }

    /// The Services that need a write of these parts; none if nothing is to be written.
    fn due_in(&self, group: &Value, parts: &[SecurityPart], is_changed: bool) -> BTreeSet<usize> {
        let satisfied = security::satisfied(group, parts.iter().map(|part| &part.claim));
        // In a group whose last write has failed, nothing is certain.
        let is_due = |part: &&SecurityPart| {
            has_failed(group) || !part.pending.is_empty() || !satisfied.contains(&part.claim.place)
        };
        let mut places = places_of(parts.iter().filter(is_due));
        if is_changed && places.is_empty() {
            places.extend(self.first_whole().or_else(|| self.wanted.items.keys().next().copied()));
        }
        let is_pending = parts.iter().any(|part| !part.pending.is_empty());
        if is_changed || is_pending { places } else { BTreeSet::new() }
    }

    fn push_security(&mut self, group: &Arc<Value>, keep: &Keep, stages: [Stage; 3]) {
        let id = self.env.security_group_id();
        let mut others = BTreeSet::new();
        for Stage { stage, parts, places } in stages.into_iter().filter(|stage| !stage.places.is_empty()) {
            let (part, needs, text): (Part, &'static [Kind], &str) = match stage {
                ADMISSIONS => (Part::new(Kind::Claim), &[Kind::Frame], "clients are admitted before they arrive"),
                LAST_RULES => (Part::of(Kind::Rules, "last"), FRAME, "security rules of former addresses are left"),
                _ => (Part::new(Kind::Rules), FRAME, "security rules differ"),
            };
            let summary = summary(Verb::Update, "SecurityGroup", &id, text, Risk::None);
            let keep = Some(keep.clone()).filter(|_| stage != ADMISSIONS);
            let is_second = !others.is_empty();
            let write = SecurityChange { id: id.clone(), before: group.clone(), parts, keep, is_second };
            let step = Step::new(Write::Security(write), summary, Items::Some(places.clone()), part);
            self.steps.push(step.after(others.clone()).needs(needs).shared(true).stage(stage));
            others.extend(places);
        }
    }
}

/// Azure has one rule for each of these: frontend, port and protocol.
fn port_of(rule: &Value) -> (String, String, String) {
    let of = |field: &str| json::at(rule, &["properties", field]).to_string().to_lowercase();
    (json::reference(rule, "frontendIPConfiguration").to_lowercase(), of("frontendPort"), of("protocol"))
}

impl SecurityPart {
    /// The same, which gives up nothing yet.
    fn holding(&self, holds: bool) -> Self {
        let mut part = self.clone();
        part.claim.holds = holds;
        part
    }
}

/// The group with the known addresses of these parts, and the Services without a place.
pub(super) fn after(
    group: &Value,
    parts: &[SecurityPart],
    keep: Option<&Keep>,
) -> (Value, BTreeMap<usize, ProviderError>) {
    let mut keep = keep.cloned();
    // These parts settle their ports.
    for part in parts.iter().filter(|part| !part.claim.holds) {
        keep.iter_mut().for_each(|keep| drop(keep.unsettled.remove(&part.base)));
    }
    let claims: Vec<security::Claim> = parts.iter().map(|part| part.claim.clone()).collect();
    security::after(group, &claims, keep.as_ref())
}

fn places_of<'p>(parts: impl IntoIterator<Item = &'p SecurityPart>) -> BTreeSet<usize> {
    parts.into_iter().map(|part| part.claim.place).collect()
}
