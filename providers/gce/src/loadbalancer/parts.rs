//! The part of a load balancer to which a step belongs, and the parts without which it is not sent. Pure.
//!
//! Members need nothing: they follow the nodes whatever else fails. Everything that a new forwarding rule needs is its
//! frame. Objects that it replaces go before it exists, because they are not looked for afterwards; it does not need that:
//! traffic is worth more than an object that stays until the Service is deleted.

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{ServiceAction, Verb};

use super::step::{Act, Rank, is_unfilled};

const CLAIM: &[Kind] = &[Kind::Claim];
/// The needs of steps behind a new frame.
pub(super) const FRAME: &[Kind] = &[Kind::Claim, Kind::Frame];
/// Those of a rule that would deny what others do not admit yet.
pub(super) const ALL_ADMITTED: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Rules];
/// Those of rules that are lowered to the priority of one that denies.
pub(super) const NOTHING_DENIED: &[Kind] = &[Kind::Claim, Kind::Rules];
const DELETED: &[Kind] = &[Kind::Claim, Kind::Frame, Kind::Retire];

/// The part of a step of a Service with this action, and its needs.
pub(super) fn of(action: ServiceAction, rank: Rank, verb: Verb, act: &Act) -> (Part, &'static [Kind]) {
    let is_ensured = action == ServiceAction::Ensure;
    match rank {
        // Both kinds have rules of the same name. Nothing else of the former kind withholds the new one.
        Rank::GoRule if is_ensured => (Part::new(Kind::Frame), CLAIM),
        Rank::GoBehind | Rank::GoChecks | Rank::GoCheckFirewalls | Rank::GoGroups if is_ensured => {
            (Part::of(Kind::Retire, "former"), FRAME)
        }
        Rank::GoRule | Rank::GoBehind | Rank::GoChecks | Rank::GoCheckFirewalls | Rank::GoGroups | Rank::Former => {
            (Part::new(Kind::Retire), &[])
        }
        Rank::GoLast => (Part::new(Kind::Release), DELETED),
        Rank::Groups | Rank::JoinGroups => (Part::of(Kind::Members, zone(act)), &[]),
        Rank::LeaveFullGroups | Rank::LeaveGroups => (Part::of(Kind::Members, format!("{} leaves", zone(act))), &[]),
        Rank::LeaveBackends | Rank::JoinBackends => (Part::of(Kind::Members, "backends"), &[]),
        Rank::JoinPools => (Part::of(Kind::Members, "pool"), &[]),
        Rank::LeavePools => (Part::of(Kind::Members, "pool leaves"), &[]),
        Rank::NoDeny => (Part::new(Kind::Rules), CLAIM),
        Rank::Firewalls => {
            let needs = if act.write().body.as_ref().is_some_and(is_unfilled) { FRAME } else { CLAIM };
            (Part::new(Kind::Rules), needs)
        }
        // A part of the frame: what serves is not replaced by what no rule admits.
        Rank::BothFirewalls => (Part::new(Kind::Frame), FRAME),
        Rank::LateFirewalls => (Part::new(Kind::Rules), FRAME),
        // Of a higher kind than rules, so that it waits for all of them.
        Rank::Deny => (Part::new(Kind::Retire), ALL_ADMITTED),
        // A check that exists serves as it is.
        Rank::Checks if verb == Verb::Update => (Part::of(Kind::Settings, "check"), CLAIM),
        Rank::Checks
        | Rank::WrongAddress
        | Rank::Reserve
        | Rank::Backends
        | Rank::OldRule
        | Rank::OldPool
        | Rank::Pools
        | Rank::Rules => (Part::new(Kind::Frame), CLAIM),
        Rank::ReplacedBackends | Rank::ReplacedFirewalls | Rank::ReplacedChecks => {
            (Part::of(Kind::Retire, "replaced"), FRAME)
        }
        Rank::Release | Rank::OldFirewalls | Rank::OldChecks | Rank::OldCheckFirewalls | Rank::OwnChecks => {
            (Part::of(Kind::Retire, "old"), FRAME)
        }
    }
}

/// The zone of a group.
fn zone(act: &Act) -> String {
    act.write().scope.zone_name().unwrap_or_default().to_owned()
}
