//! The conditions under which a node is deleted: table tests and property tests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_provider::node::ConditionStatus;
use ccm_provider::{Evidence, EvidenceKind, Instance, Lookup, Node, NodeRef, ProviderError, Taint};
use ccm_runtime::writer::taint::shutdown_taint;
use proptest::prelude::*;

use super::decide::{Budget, Unconfirmed, Verdict, judge, recovered};

const MINUTE: Duration = Duration::from_secs(60);

/// This many seconds after a fixed time.
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
    // Created after the read, so the list could not contain it.
    check(&born(100), &absent(50), 3600, "wait");
    check(&Node { created: None, ..born(0) }, &absent(3600), 3600, "wait");
    // A cloud without a grace period.
    check(&born(100), &gone(EvidenceKind::Absent, 100, Duration::ZERO), 100, "delete");
}

#[test]
fn an_instance_that_a_list_lacks_is_gone_only_when_a_later_list_agrees() {
    let check = |steps: &[(Lookup, &str)]| {
        let mut unconfirmed = Unconfirmed::default();
        for (answer, wanted) in steps {
            assert_eq!(word(&judge(&born(0), answer, at(1000), &mut unconfirmed)), *wanted, "{steps:?}");
        }
    };
    // The same list from the cache is not a second one.
    check(&[(unlisted(100), "wait"), (unlisted(100), "wait"), (unlisted(99), "wait"), (unlisted(101), "delete")]);
    check(&[(unlisted(100), "wait"), (found(Ok(false)), "keep"), (unlisted(102), "wait")]);
    // The wall clock steps back.
    check(&[(unlisted(10_000), "wait"), (unlisted(100), "wait"), (unlisted(105), "delete")]);
    // A failed lookup neither confirms nor clears.
    let failed = || Lookup::Unknown(ProviderError::unknown("throttled"));
    check(&[(unlisted(100), "wait"), (failed(), "unknown"), (failed(), "unknown"), (unlisted(101), "delete")]);
}

#[test]
fn a_new_node_of_the_same_name_is_judged_from_the_beginning() {
    let mut unconfirmed = Unconfirmed::default();
    let mut ask = |node: &Node, read| word(&judge(node, &unlisted(read), at(1000), &mut unconfirmed));
    let (old, new) = (born(0), Node { uid: "other".into(), ..born(10) });
    assert_eq!(ask(&old, 100), "wait");
    assert_eq!(ask(&new, 101), "wait");
    assert_eq!(ask(&new, 102), "delete");
}

#[test]
fn a_node_that_was_ready_in_between_is_judged_from_the_beginning() {
    let mut unconfirmed = Unconfirmed::default();
    assert_eq!(word(&judge(&born(0), &unlisted(100), at(1000), &mut unconfirmed)), "wait");
    unconfirmed.retain(&[]);
    assert_eq!(word(&judge(&born(0), &unlisted(101), at(1000), &mut unconfirmed)), "wait");
    unconfirmed.retain(&[NodeRef::new(born(0))]);
    assert_eq!(word(&judge(&born(0), &unlisted(102), at(1000), &mut unconfirmed)), "delete");
}

#[test]
fn an_unknown_power_state_changes_nothing() {
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
    /// Regardless of earlier events, a node is deleted only after an answer "gone" for this node, which was old enough
    /// at the read; absence must be seen in two lists.
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

    /// Answers about one node do not affect another one, in any order.
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
}
