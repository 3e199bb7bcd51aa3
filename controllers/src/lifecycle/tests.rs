//! When a node is deleted and when it is not: table tests and property tests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_provider::node::ConditionStatus;
use ccm_provider::{Evidence, EvidenceKind, Instance, Lookup, Node, NodeRef, ProviderError, Taint};
use ccm_runtime::writer::taint::shutdown_taint;
use proptest::prelude::*;

use super::decide::{Budget, Unconfirmed, Verdict, judge, needs_answer, recovered};

const MINUTE: Duration = Duration::from_secs(60);

/// So many seconds after a fixed moment.
fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn born(seconds: u64) -> Node {
    Node {
        name: "n".into(),
        uid: "u".into(),
        created: Some(at(seconds).try_into().unwrap()),
        ready: Some(ConditionStatus::Unknown),
        ..Node::default()
    }
}

fn gone(kind: EvidenceKind, read_began: u64, grace: Duration) -> Lookup {
    Lookup::Gone(Evidence { kind, read_began: at(read_began), grace })
}

fn unlisted(read_began: u64) -> Lookup {
    gone(EvidenceKind::Unlisted, read_began, MINUTE)
}

fn absent(read_began: u64) -> Lookup {
    gone(EvidenceKind::Absent, read_began, MINUTE)
}

fn terminated() -> EvidenceKind {
    EvidenceKind::Terminated { state: "terminated".into() }
}

fn found(shutdown: Result<bool, ProviderError>) -> Lookup {
    Lookup::Found(Arc::new(Instance { shutdown, metadata: Ok(None) }))
}

/// The verdict in a word.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Keep => "keep",
        Verdict::Delete(_) => "delete",
        Verdict::Wait(_) => "wait",
        Verdict::Taint => "taint",
        Verdict::Unknown(_) => "unknown",
    }
}

#[track_caller]
fn check(node: &Node, answer: &Lookup, now: u64, wanted: &str) {
    let verdict = judge(node, answer, at(now), &mut Unconfirmed::default());
    assert_eq!(word(&verdict), wanted, "{verdict:?}");
}

#[test]
fn only_a_node_that_is_not_ready_is_asked_about() {
    let with = |ready| Node { ready, ..born(0) };
    assert!(!needs_answer(&with(Some(ConditionStatus::True))));
    for ready in [Some(ConditionStatus::False), Some(ConditionStatus::Unknown), None] {
        assert!(needs_answer(&with(ready)), "{ready:?}");
    }
}

#[test]
fn the_shutdown_taint_goes_only_once_the_node_is_ready() {
    let with = |ready, taints: &[Taint]| Node { ready: Some(ready), taints: taints.into(), ..born(0) };
    let other_effect = Taint { effect: "NoExecute".into(), ..shutdown_taint() };
    let with_value = Taint { value: "x".into(), ..shutdown_taint() };
    assert!(recovered(&with(ConditionStatus::True, &[shutdown_taint()])));
    assert!(recovered(&with(ConditionStatus::True, &[with_value])));
    assert!(!recovered(&with(ConditionStatus::Unknown, &[shutdown_taint()])));
    assert!(!recovered(&with(ConditionStatus::True, &[other_effect])));
    assert!(!recovered(&with(ConditionStatus::True, &[])));
}

#[test]
fn a_terminated_instance_deletes_its_node_at_any_age() {
    check(&born(100), &gone(terminated(), 100, MINUTE), 100, "delete");
    check(&Node { created: None, ..born(0) }, &gone(terminated(), 0, MINUTE), 0, "delete");
}

#[test]
fn absence_counts_only_for_a_node_that_was_old_enough_when_the_read_began() {
    check(&born(0), &absent(60), 60, "delete");
    check(&born(0), &absent(59), 60, "wait");
    check(&born(0), &absent(59), 3600, "wait");
    // Born after the read: the cloud could not have shown it.
    check(&born(100), &absent(50), 3600, "wait");
    check(&Node { created: None, ..born(0) }, &absent(3600), 3600, "wait");
    // A cloud without a grace period.
    check(&born(100), &gone(EvidenceKind::Absent, 100, Duration::ZERO), 100, "delete");
}

#[test]
fn the_reason_to_wait_is_the_same_in_each_pass() {
    let text = |read: u64| match judge(&born(0), &absent(read), at(read), &mut Unconfirmed::default()) {
        Verdict::Wait(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        text(20),
        "the cloud says that the instance does not exist; but the node was younger than 1m0s then, and clouds show new \
         instances late"
    );
    assert_eq!(text(20), text(25));
}

#[test]
fn a_wall_clock_that_jumps_ahead_makes_no_node_old() {
    // The provider stamps its read with the clock that jumped; `now` counts from the start and did not.
    check(&born(0), &absent(10 + 3600), 10, "wait");
    // Set back: the node seems to be created in the future.
    check(&born(3600), &absent(10), 10, "wait");
}

#[test]
fn an_instance_that_one_list_lacks_is_gone_only_when_a_later_list_agrees() {
    let mut unconfirmed = Unconfirmed::default();
    let mut ask = |answer: &Lookup| word(&judge(&born(0), answer, at(1000), &mut unconfirmed));
    assert_eq!(ask(&unlisted(100)), "wait");
    // The same list from memory is not a second one.
    assert_eq!(ask(&unlisted(100)), "wait");
    assert_eq!(ask(&unlisted(99)), "wait");
    assert_eq!(ask(&unlisted(101)), "delete");
}

#[test]
fn a_list_that_has_the_instance_again_starts_anew() {
    let mut unconfirmed = Unconfirmed::default();
    let mut ask = |answer: &Lookup| word(&judge(&born(0), answer, at(1000), &mut unconfirmed));
    assert_eq!(ask(&unlisted(100)), "wait");
    assert_eq!(ask(&found(Ok(false))), "keep");
    assert_eq!(ask(&unlisted(102)), "wait");
}

#[test]
fn a_failed_look_up_neither_confirms_nor_clears() {
    let mut unconfirmed = Unconfirmed::default();
    let mut ask = |answer: &Lookup| word(&judge(&born(0), answer, at(1000), &mut unconfirmed));
    let failed = Lookup::Unknown(ProviderError::unknown("throttled"));
    assert_eq!(ask(&unlisted(100)), "wait");
    assert_eq!(ask(&failed), "unknown");
    assert_eq!(ask(&failed), "unknown");
    assert_eq!(ask(&unlisted(101)), "delete");
}

#[test]
fn a_new_node_of_the_same_name_starts_anew() {
    let mut unconfirmed = Unconfirmed::default();
    let mut ask = |node: &Node, read| word(&judge(node, &unlisted(read), at(1000), &mut unconfirmed));
    let (old, new) = (born(0), Node { uid: "other".into(), ..born(10) });
    assert_eq!(ask(&old, 100), "wait");
    assert_eq!(ask(&new, 101), "wait");
    assert_eq!(ask(&new, 102), "delete");
}

#[test]
fn a_node_that_was_well_in_between_starts_anew() {
    let mut unconfirmed = Unconfirmed::default();
    assert_eq!(word(&judge(&born(0), &unlisted(100), at(1000), &mut unconfirmed)), "wait");
    unconfirmed.retain(&[]);
    assert_eq!(word(&judge(&born(0), &unlisted(101), at(1000), &mut unconfirmed)), "wait");
    unconfirmed.retain(&[NodeRef::new(born(0))]);
    assert_eq!(word(&judge(&born(0), &unlisted(102), at(1000), &mut unconfirmed)), "delete");
}

#[test]
fn a_stopped_instance_taints_its_node_once_and_never_deletes_it() {
    let tainted = Node { taints: [shutdown_taint()].into(), ..born(0) };
    check(&born(0), &found(Ok(true)), 1000, "taint");
    check(&tainted, &found(Ok(true)), 1000, "keep");
    // Started again, but not Ready yet: the taint stays.
    check(&tainted, &found(Ok(false)), 1000, "keep");
    check(&born(0), &found(Ok(false)), 1000, "keep");
}

#[test]
fn a_cloud_that_cannot_tell_whether_an_instance_is_stopped_changes_nothing() {
    check(&born(0), &found(Err(ProviderError::NotImplemented)), 1000, "keep");
    check(&born(0), &found(Err(ProviderError::InstanceNotFound)), 1000, "keep");
    check(&born(0), &found(Err(ProviderError::unknown("throttled"))), 1000, "unknown");
}

#[test]
fn one_pass_deletes_at_most_the_larger_of_ten_nodes_and_ten_percent() {
    let of = |cluster| Budget::DEFAULT.of(cluster);
    assert_eq!([0, 1, 10, 100, 109, 110, 5000, usize::MAX].map(of), [10, 10, 10, 10, 10, 11, 500, usize::MAX / 100]);
    assert_eq!(Budget { nodes: 0, percent: 0 }.of(1000), 0);
    assert_eq!(Budget { nodes: 0, percent: 100 }.of(1000), 1000);
}

fn any_error() -> impl Strategy<Value = ProviderError> {
    prop::sample::select(vec![
        ProviderError::InstanceNotFound,
        ProviderError::NotImplemented,
        ProviderError::unknown("could not tell"),
    ])
}

fn any_answer() -> impl Strategy<Value = Lookup> {
    let evidence = prop_oneof![Just(terminated()), Just(EvidenceKind::Absent), Just(EvidenceKind::Unlisted)];
    prop_oneof![
        any::<bool>().prop_map(|stopped| found(Ok(stopped))),
        any_error().prop_map(|error| found(Err(error))),
        any_error().prop_map(Lookup::Unknown),
        Just(Lookup::Foreign),
        (evidence, 0_u64..600, 0_u64..200).prop_map(|(kind, read, grace)| gone(kind, read, Duration::from_secs(grace))),
    ]
}

fn any_node() -> impl Strategy<Value = Node> {
    (prop::option::of(0_u64..600), any::<bool>()).prop_map(|(created, tainted)| Node {
        created: created.map(|seconds| at(seconds).try_into().unwrap()),
        taints: if tainted { [shutdown_taint()].into() } else { [].into() },
        ..born(0)
    })
}

proptest! {
    /// Whatever came before: without an answer that says "gone" for this node, old enough at the read, nothing is deleted;
    /// and absence from lists must be seen twice.
    #[test]
    fn nothing_is_deleted_without_evidence(
        node in any_node(),
        answers in prop::collection::vec((any_answer(), 0_u64..600), 1..12),
    ) {
        let mut unconfirmed = Unconfirmed::default();
        let mut unlisted_reads: Vec<SystemTime> = Vec::new();
        for (answer, now) in answers {
            let verdict = judge(&node, &answer, at(now), &mut unconfirmed);
            let Lookup::Gone(evidence) = &answer else {
                prop_assert!(!matches!(verdict, Verdict::Delete(_) | Verdict::Wait(_)), "{answer:?}: {verdict:?}");
                continue;
            };
            if let Verdict::Delete(shown) = &verdict {
                prop_assert_eq!(shown, evidence);
                let sure = matches!(evidence.kind, EvidenceKind::Terminated { .. });
                let born = node.created.map(SystemTime::from);
                let age = born.and_then(|born| evidence.read_began.min(at(now)).duration_since(born).ok());
                let old = evidence.grace.is_zero() || age.is_some_and(|age| age >= evidence.grace);
                prop_assert!(sure || old, "deleted {age:?} after its birth: {evidence:?}");
                if evidence.kind == EvidenceKind::Unlisted {
                    let earlier = unlisted_reads.iter().any(|read| *read < evidence.read_began);
                    prop_assert!(earlier, "deleted on a single list");
                }
            } else {
                prop_assert!(matches!(verdict, Verdict::Wait(_)), "{answer:?}: {verdict:?}");
                let sure = matches!(evidence.kind, EvidenceKind::Terminated { .. });
                prop_assert!(!sure, "{verdict:?} on {evidence:?}");
            }
            if evidence.kind == EvidenceKind::Unlisted {
                unlisted_reads.push(evidence.read_began);
            }
        }
    }

    /// The verdict on the same answer stays the same once it was carried out: taints are set once.
    #[test]
    fn a_second_pass_over_the_same_answer_writes_no_taint(node in any_node(), answer in any_answer()) {
        let mut unconfirmed = Unconfirmed::default();
        let node = match judge(&node, &answer, at(600), &mut unconfirmed) {
            Verdict::Taint => Node { taints: [shutdown_taint()].into(), ..node },
            _ => node,
        };
        let again = judge(&node, &answer, at(600), &mut unconfirmed);
        prop_assert!(!matches!(again, Verdict::Taint), "{again:?}");
    }

    /// What is known of one node says nothing about another, in whatever order they come.
    #[test]
    fn the_order_of_nodes_makes_no_difference(
        answers in prop::collection::vec(any_answer(), 1..8),
        earlier in prop::collection::vec(any_answer(), 8),
    ) {
        let nodes: Vec<Node> = (0..answers.len()).map(|i| Node { name: format!("n{i}").into(), ..born(0) }).collect();
        let pass = |order: &[usize]| {
            let mut unconfirmed = Unconfirmed::default();
            for &i in order {
                judge(&nodes[i], &earlier[i], at(300), &mut unconfirmed);
            }
            let judged = order.iter().map(|&i| (i, word(&judge(&nodes[i], &answers[i], at(600), &mut unconfirmed))));
            judged.collect::<std::collections::BTreeMap<_, _>>()
        };
        let forward: Vec<usize> = (0..nodes.len()).collect();
        let backward: Vec<usize> = (0..nodes.len()).rev().collect();
        prop_assert_eq!(pass(&forward), pass(&backward));
    }

    #[test]
    fn the_budget_grows_with_the_cluster_and_never_beyond_it_by_percent(
        nodes in 0_usize..100, percent in 0_usize..=100, cluster in 0_usize..100_000,
    ) {
        let budget = Budget { nodes, percent };
        prop_assert!(budget.of(cluster) <= nodes.max(cluster));
        prop_assert!(budget.of(cluster) <= budget.of(cluster + 1));
        prop_assert!(budget.of(cluster) >= nodes);
    }
}
