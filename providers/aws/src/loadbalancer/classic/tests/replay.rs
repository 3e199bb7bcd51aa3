//! Plans from snapshots of a classic balancer in memory.

use proptest::prelude::*;

use super::model::converge_in;
use super::properties::{Case, any_case, world};
use crate::loadbalancer::desired::Desired;
use crate::loadbalancer::security_groups::tests::model as groups;
use crate::loadbalancer::tests::replay::{Odd, Scene, outcomes};
use crate::start::config::HealthProbe;

/// The same plans here and elsewhere, for the actions one after the other.
fn plans(
    before: &Case,
    after: &Case,
    current: bool,
    shared: bool,
    odd: Odd,
) -> Vec<Result<ccm_provider::Plan, String>> {
    let mut world = world();
    if current {
        converge_in(&mut world, &before.desired(), &before.subnets);
    }
    let probe = match shared {
        true => HealthProbe::Shared { port: 10256, path: "/healthz".to_owned() },
        false => HealthProbe::NodePort,
    };
    let see = |_: &Desired| world.clone();
    let scene = Scene { env: &groups::env(), probe: &probe, odd, see: &see };
    let mut service = after.service();
    service.metadata.uid = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab".into();
    scene.plans(&service, 1..=after.nodes)
}

#[test]
fn the_worlds_have_plans_of_all_kinds() {
    let case = |ports: &[(i32, i32)], annotations: &[(&'static str, &'static str)]| Case {
        ports: ports.to_vec(),
        annotations: annotations.to_vec(),
        nodes: 3,
        subnets: vec!["subnet-a", "subnet-b"],
    };
    let before = case(&[(80, 31080)], &[]);
    let after = case(&[(80, 31080), (443, 31443)], &[("internal", "true"), ("ssl-ports", "443")]);
    let seen = outcomes(|current, odd| plans(&before, &after, current, false, odd));
    let all = ["nothing", "refusal", "refusal of the guard", "steps", "steps and findings"];
    assert!(all.iter().all(|kind| seen.contains(kind)), "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_plan_from_a_snapshot_is_the_plan(
        before in any_case(),
        after in any_case(),
        current in any::<bool>(),
        shared in any::<bool>(),
        (routed, unmarked, unsettled, lost) in any::<(bool, bool, bool, bool)>(),
    ) {
        let odd = Odd { routed, unmarked, unsettled, lost };
        let plans = plans(&before, &after, current, shared, odd);
        let [ensure, _, delete] = &plans[..] else { unreachable!() };
        prop_assert!(current || !routed || lost || !ensure.as_ref().unwrap().is_empty());
        prop_assert!(!current || unsettled || unmarked || !delete.as_ref().unwrap().is_empty());
    }
}
