//! Plans from snapshots of a network balancer in memory.

use proptest::prelude::*;

use super::properties::any_asked;
use super::*;
use crate::loadbalancer::tests::replay::{Odd, Scene, outcomes};

/// The same plans here and elsewhere, for the actions one after the other.
fn plans(from: &Asked, to: &Asked, current: bool, odd: Odd) -> Vec<Result<ccm_provider::Plan, String>> {
    let mut cloud = Cloud::with_nodes(3);
    if current {
        from.settle(&mut cloud);
    }
    let see = |desired: &Desired| cloud.observe(desired, &to.env);
    let scene = Scene { env: &to.env, probe: &to.probe, odd, see: &see };
    let number = |node: &String| node.trim_start_matches("i-").parse().unwrap();
    let mut service = to.service.clone();
    service.metadata.annotations.insert(TYPE.row.key.to_owned(), "nlb".to_owned());
    scene.plans(&service, to.nodes.iter().map(number))
}

#[test]
fn the_worlds_have_plans_of_all_kinds() {
    let from = asked(&[(80, 31080)]);
    // Health checks through the Service's node port, and a wish that cannot be met on a standing balancer.
    let to = asked(&[(80, 31080), (443, 31443)]).with(&INTERNAL, "true");
    let seen = outcomes(|current, odd| plans(&from, &to, current, odd));
    let all = ["nothing", "refusal", "refusal of the guard", "steps", "steps and findings"];
    assert!(all.iter().all(|kind| seen.contains(kind)), "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_from_a_snapshot_is_the_plan(
        from in any_asked(),
        to in any_asked(),
        current in any::<bool>(),
        managed in any::<bool>(),
        (routed, unmarked, unsettled, lost) in any::<(bool, bool, bool, bool)>(),
    ) {
        let (from, to) = if managed { (from.managed(), to.managed()) } else { (from, to) };
        let odd = Odd { routed, unmarked, unsettled, lost };
        let plans = plans(&from, &to, current, odd);
        // So that the worlds are such in which there is something to plan.
        let [ensure, _, delete] = &plans[..] else { unreachable!() };
        prop_assert!(current || !routed || lost || !ensure.as_ref().unwrap().is_empty());
        prop_assert!(!current || unsettled || unmarked || !delete.as_ref().unwrap().is_empty());
    }
}
