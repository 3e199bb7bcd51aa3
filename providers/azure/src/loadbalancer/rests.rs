//! What a plan may rest on. Pure.
//!
//! A write that replaces an object is refused if the object is another one than it was read: it may rest on what earlier
//! reads showed. What is deleted or without such a guard, and what fails, rests on what is there now.

use ccm_kit::balancer::Plan;
use serde_json::Value;

use super::balancer::BalancerChange;
use super::json;
use super::plan::address::{AddressChange, EditKind};
use super::plan::step::Write;

/// The reads that all Services share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Parts {
    pub(super) balancers: bool,
    pub(super) public_ips: bool,
    pub(super) security_group: bool,
}

impl Parts {
    pub(super) const NONE: Self = Self { balancers: false, public_ips: false, security_group: false };
    pub(super) const ALL: Self = Self { balancers: true, public_ips: true, security_group: true };
    pub(super) const BALANCERS: Self = Self { balancers: true, ..Self::NONE };
    const PUBLIC_IPS: Self = Self { public_ips: true, ..Self::NONE };

    pub(super) fn or(self, other: Self) -> Self {
        Self {
            balancers: self.balancers || other.balancers,
            public_ips: self.public_ips || other.public_ips,
            security_group: self.security_group || other.security_group,
        }
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self {
            balancers: self.balancers && !other.balancers,
            public_ips: self.public_ips && !other.public_ips,
            security_group: self.security_group && !other.security_group,
        }
    }
}

/// What must be read now for a plan. `is_young`: whether nobody else can have made an address with a new Service's name.
pub(super) fn needed_now(plan: &Plan<Write>, is_young: impl Fn(&AddressChange) -> bool) -> Parts {
    match plan.failed.is_empty() {
        true => plan.steps.iter().fold(Parts::NONE, |parts, step| parts.or(of(&step.write, &is_young))),
        false => Parts::ALL,
    }
}

/// Whether a frontend gets an address that is there: it may be another one by now, with the same name.
fn attaches_address(change: &BalancerChange) -> bool {
    let present = json::items(&change.before, "frontendIPConfigurations");
    let has = |frontend: &Value, ip: &str| {
        json::named(present, json::name(frontend))
            .is_some_and(|before| json::same(json::reference(before, "publicIPAddress"), ip))
    };
    change.edits.iter().any(|edit| {
        edit.frontends.iter().any(|frontend| {
            let ip = json::reference(frontend, "publicIPAddress");
            let is_new = edit.needs.iter().any(|id| json::same(id.as_str(), ip));
            !ip.is_empty() && !is_new && !has(frontend, ip)
        })
    })
}

fn of(write: &Write, is_young: impl Fn(&AddressChange) -> bool) -> Parts {
    let is_guarded = |before: &Value| !json::text(before, &["etag"]).is_empty();
    match write {
        // An existing one has another ETag after a write of its load balancer.
        Write::Address(change) if change.edits.iter().all(|edit| matches!(edit.kind, EditKind::Use { .. })) => {
            if change.is_new() && is_young(change) { Parts::NONE } else { Parts::PUBLIC_IPS }
        }
        Write::Balancer(change) if change.edits.iter().all(|edit| edit.drops.is_empty()) => {
            let balancers = if is_guarded(&change.before) { Parts::NONE } else { Parts::BALANCERS };
            if attaches_address(change) { balancers.or(Parts::PUBLIC_IPS) } else { balancers }
        }
        Write::Security(change) if is_guarded(&change.before) && change.stale().is_empty() => Parts::NONE,
        Write::Pool(_)
        | Write::Model(_)
        | Write::Instance(_)
        | Write::Interface(_)
        | Write::Subnet { .. }
        | Write::Link { .. } => Parts::BALANCERS,
        Write::Address(_)
        | Write::Balancer(_)
        | Write::Security(_)
        | Write::DeleteBalancer(_)
        | Write::Migrate { .. }
        | Write::DeleteLink(_) => Parts::ALL,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ccm_kit::balancer::{Items, Kind, Part, Step};
    use ccm_provider::{ProviderError, Risk, Verb};
    use serde_json::json;

    use super::super::balancer::Edit;
    use super::super::env::Env;
    use super::super::names::Family;
    use super::super::plan::address::AddressEdit;
    use super::super::plan::security::Keep;
    use super::super::plan::step::SecurityChange;
    use super::super::wanted::PublicIp;
    use super::*;

    fn needed(write: Write) -> Parts {
        let summary = ccm_provider::Step {
            verb: Verb::Update,
            kind: "it".into(),
            id: "it".to_owned(),
            changes: Vec::new(),
            reason: String::new(),
            risk: Risk::None,
        };
        let steps = vec![Step::new(write, summary, Items::one(0), Part::new(Kind::Frame))];
        needed_now(&Plan { steps, ..Plan::default() }, |change| change.id.name() == "young")
    }

    #[test]
    fn nothing_and_what_an_etag_guards_rests_on_earlier_reads() {
        assert_eq!(needed_now(&Plan::default(), |_| false), Parts::NONE);
        let balancer = |etag: &str, drops: &[&str]| {
            let before = json!({"id": "/lb", "name": "lb", "etag": etag}).into();
            let mut change = BalancerChange::new(&Env::default(), "lb", Some(&before));
            change.edits = vec![Edit { drops: drops.iter().map(|&name| name.to_owned()).collect(), ..Edit::default() }];
            needed(Write::Balancer(change))
        };
        assert_eq!(balancer("a", &[]), Parts::NONE);
        assert_eq!(balancer("", &[]), Parts::BALANCERS, "it has no guard, or is new");
        assert_eq!(balancer("a", &["frontend"]), Parts::ALL, "a frontend goes");
        let group = |etag: &str, own: &[&str]| {
            let rule = json!({"name": "k8s-azure-lb_allow_IPv4_x", "properties": {
                "priority": 500, "protocol": "Tcp", "access": "Allow", "direction": "Inbound",
                "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationPortRanges": ["80"],
                "destinationAddressPrefixes": ["192.0.2.1"],
            }});
            let before = json!({"etag": etag, "properties": {"securityRules": [rule]}}).into();
            let own: BTreeSet<String> = own.iter().map(|&ip| ip.to_owned()).collect();
            let keep = Some(Keep { own, ..Keep::default() });
            let id = Env::default().security_group_id();
            needed(Write::Security(SecurityChange { id, before, parts: Vec::new(), keep, is_second: false }))
        };
        assert_eq!(group("a", &["192.0.2.1"]), Parts::NONE);
        assert_eq!(group("", &["192.0.2.1"]), Parts::ALL, "it has no guard");
        assert_eq!(group("a", &[]), Parts::ALL, "a destination seems to be nobody's");
    }

    #[test]
    fn an_address_that_a_frontend_gets_is_the_one_that_is_there_now() {
        let frontend = |ip: &str| json!({"name": "f", "properties": {"publicIPAddress": {"id": ip}}});
        let gets = |before: &str, ip: &str, is_new: bool| {
            let before = json!({"id": "/lb", "name": "lb", "etag": "a", "properties": {
                "frontendIPConfigurations": [frontend(before)]}})
            .into();
            let mut change = BalancerChange::new(&Env::default(), "lb", Some(&before));
            let needs = if is_new { vec![Env::default().public_ip_id("g", "ip")] } else { Vec::new() };
            change.edits = vec![Edit { frontends: vec![frontend(ip)], needs, ..Edit::default() }];
            needed(Write::Balancer(change))
        };
        let ip = Env::default().public_ip_id("g", "ip");
        assert_eq!(gets("/other", ip.as_str(), false), Parts::PUBLIC_IPS);
        assert_eq!(gets("/other", ip.as_str(), true), Parts::NONE, "this plan makes it");
        assert_eq!(gets(ip.as_str(), ip.as_str(), false), Parts::NONE, "it has it");
    }

    #[test]
    fn existing_addresses_members_deletions_and_failures_rest_on_what_is_there_now() {
        let id = |name: &str| Env::default().public_ip_id("g", name);
        let address = |before: Value, kind: EditKind, name: &str| {
            let edits = vec![AddressEdit { place: 0, key: "default/web".to_owned(), family: Family::V4, kind }];
            let cluster = String::new();
            needed(Write::Address(AddressChange {
                id: id(name),
                cluster,
                zones: Vec::new(),
                before,
                edits,
                replaced_by: None,
            }))
        };
        let uses = || EditKind::Use { settings: PublicIp::default(), is_users: false, binds: true };
        assert_eq!(address(json!({"etag": "a"}), uses(), "young"), Parts::PUBLIC_IPS);
        assert_eq!(address(Value::Null, uses(), "young"), Parts::NONE);
        assert_eq!(address(Value::Null, uses(), "old"), Parts::PUBLIC_IPS, "users may have made it");
        assert_eq!(address(json!({"etag": "a"}), EditKind::Release { stays: false }, "young"), Parts::ALL);
        assert_eq!(needed(Write::DeleteBalancer(BalancerChange::new(&Env::default(), "lb", None))), Parts::ALL);
        let mut failed = Plan::default();
        failed.failed.insert(0, ProviderError::unknown("it is not there"));
        assert_eq!(needed_now(&failed, |_| true), Parts::ALL);
    }
}
