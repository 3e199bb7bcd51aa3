//! The limits of load balancers: what does not fit fails before anything is sent. Pure.

use std::collections::BTreeSet;

use ccm_provider::ProviderError;

use super::super::balancer::Edit;
use super::super::json;
use super::super::machines::Machine;
use super::super::names::is_of;
use super::super::wanted::refused;
use super::{Planner, is_pair};
use crate::client::id::ArmId;
use crate::client::operation::VMSS;

/// The load-balancing and NAT rules of an interface, of all its load balancers. Azure's error names 299, its
/// documentation 300.
const MOST_RULES_OF_INTERFACE: usize = 299;
const MOST_RULES: usize = 1500;
const MOST_FRONTENDS: usize = 600;
/// The availability sets of a pool of interfaces; a machine in none counts as one.
pub(crate) const MOST_SETS: usize = 150;

impl Planner<'_> {
    /// Those of the joining machines for whose availability sets a pool has no place. What is not known does not count.
    pub(super) fn without_place(&self, present: &[&Machine], joining: &[&Machine]) -> BTreeSet<Machine> {
        let set = |machine: &Machine| match machine {
            Machine::Instance(_) => None,
            Machine::Machine(id) => match &**self.observed.interfaces.sets.get(&id.folded())? {
                "" => Some(id.folded()),
                set => Some(set.to_owned()).filter(|set| !ArmId::parse(set).is_ok_and(|id| id.is(VMSS.kind))),
            },
        };
        let mut taken: BTreeSet<String> = present.iter().filter_map(|machine| set(machine)).collect();
        let mut has_place = |machine: &Machine| {
            let Some(set) = set(machine) else { return true };
            let fits = taken.contains(&set) || taken.len() < MOST_SETS;
            if fits {
                taken.insert(set);
            }
            fits
        };
        joining.iter().filter(|machine| !has_place(machine)).map(|machine| (*machine).clone()).collect()
    }

    /// Whether a load balancer has a place for a Service.
    pub(super) fn check_limits(&self, plain: &str, name: &str, edit: &Edit) -> Result<(), ProviderError> {
        let body = self.body(name);
        let is_own = |object: &serde_json::Value| is_of(json::name(object), &edit.base);
        let present = json::items(body, "loadBalancingRules");
        let own = present.iter().filter(|rule| is_own(rule)).count();
        // What is there stays.
        if edit.rules.len() > own {
            let all = present.len() - own + edit.rules.len();
            over(name, "rules", all, MOST_RULES, "use fewer ports, or several load balancers")?;
            let pair = self.bodies().filter(|body| is_pair(json::name(body), plain));
            let others: usize = pair.map(rules_of_members).sum();
            let of_interface = others - own.min(others) + edit.rules.len();
            let what = "rules of the interface of each node, those of internal load balancers and of NAT included";
            over(
                name,
                what,
                of_interface,
                self.observed.most_rules.unwrap_or(MOST_RULES_OF_INTERFACE),
                "use fewer ports or Services, or several load balancers",
            )?;
        }
        let frontends = json::items(body, "frontendIPConfigurations");
        let new = edit.frontends.iter().filter(|new| json::named(frontends, json::name(new)).is_none()).count();
        if new > 0 {
            over(
                name,
                "frontends",
                frontends.len() + new,
                MOST_FRONTENDS,
                "share addresses, or use several load balancers",
            )?;
        }
        Ok(())
    }
}

fn rules_of_members(body: &serde_json::Value) -> usize {
    json::items(body, "loadBalancingRules").len() + json::items(body, "inboundNatRules").len()
}

pub(super) fn over(name: &str, what: &str, count: usize, most: usize, fix: &str) -> Result<(), ProviderError> {
    match count > most {
        true => {
            Err(refused(format!("the load balancer {name} would have {count} {what}, and Azure allows {most}; {fix}")))
        }
        false => Ok(()),
    }
}
