//! The suite over an in-memory cloud: it passes, and fails with any single defect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cloud;
mod harness;
mod provider;

use std::sync::Arc;

use ccm_provider_contract::{Harness, Outcome, check, clauses, run};

use cloud::Defect;
use harness::Memory;

async fn sound() -> Arc<dyn Harness> {
    Arc::new(Memory::new(None))
}

/// A cloud whose calls return a retry delay.
async fn sound_and_slow() -> Arc<dyn Harness> {
    Arc::new(Memory::new(None).slow())
}

ccm_provider_contract::contract!(sound_and_slow);

/// Checks that the defect breaks its clause.
#[track_caller]
fn check_defect(defect: Defect, clause: &str) {
    let clause = clauses().iter().find(|known| known.name == clause).expect("a clause");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(check(clause, async || Arc::new(Memory::new(Some(defect))) as Arc<dyn Harness>));
    println!("{outcome}");
    assert!(matches!(outcome, Outcome::Broken(_)), "{defect:?}: {outcome}");
}

macro_rules! defects {
    ($($test:ident: $defect:ident breaks $clause:ident;)*) => { $(
        #[test]
        fn $test() {
            check_defect(Defect::$defect, stringify!($clause));
        }
    )* };
}

defects! {
    an_error_reported_as_gone_is_found: GoneOnError breaks a_cloud_that_fails_is_never_evidence;
    a_missing_answer_is_found: OneAnswerTooFew breaks answers_come_in_the_order_of_the_nodes;
    sorted_answers_are_found: SortedAnswers breaks answers_come_in_the_order_of_the_nodes;
    a_foreign_node_reported_as_gone_is_found: ForeignIsGone breaks the_id_of_another_cloud_is_never_gone;
    a_malformed_id_reported_as_gone_is_found: MalformedIsGone breaks a_malformed_provider_id_is_never_gone;
    a_stopped_instance_reported_as_gone_is_found: StoppedIsGone breaks a_stopped_instance_exists;
    evidence_of_another_time_is_found: StaleEvidence breaks a_removed_instance_is_gone_with_evidence;
    a_name_that_wins_is_found: NameWins breaks the_provider_id_wins_over_the_name;
    an_ensure_that_always_writes_is_found: WritesEachTime breaks a_second_ensure_writes_nothing;
    ownership_in_memory_is_found: RemembersInMemory breaks an_ensure_after_a_restart_writes_nothing;
    a_dependence_on_order_is_found: OrderMatters breaks the_order_of_nodes_makes_no_difference;
    a_left_address_is_found: LeavesAddress breaks a_deletion_leaves_nothing;
    the_deletion_of_nothing_as_error_is_found: DeletingNothingFails breaks deleting_nothing_succeeds_and_writes_nothing;
    a_status_that_differs_is_found: StatusDiffers breaks ensure_makes_a_balancer_and_get_returns_the_same_status;
    an_ensure_without_status_is_found: NoStatus breaks ensure_makes_a_balancer_and_get_returns_the_same_status;
    a_balancer_found_by_name_alone_is_found: AdoptsByName breaks objects_of_others_stay_untouched;
    a_failed_read_reported_as_nothing_is_found: NothingOnError breaks a_cloud_that_fails_is_an_error_and_changes_nothing;
    ignored_ports_are_found: IgnoresPorts breaks changed_ports_are_applied_and_can_be_changed_back;
    ignored_hosts_are_found: IgnoresHosts breaks changed_hosts_are_applied_and_ensure_agrees;
    an_address_made_blindly_is_found: AddressEachTime breaks a_lost_answer_makes_no_second_object;
    parts_without_balancer_that_are_not_reported_are_found: DeletesBalancerFirst breaks an_interrupted_deletion_is_finished_by_the_next;
    a_deletion_that_looks_for_the_balancer_only_is_found: DeletesWholeOnly breaks an_interrupted_ensure_is_removed_whole;
    a_call_that_needs_its_end_is_found: MarksAtTheEnd breaks an_ensure_dropped_at_any_await_is_finished_by_the_next;
    a_panic_on_odd_text_is_found: PanicsOnOddRanges breaks hostile_services_neither_panic_nor_leak;
    a_plan_that_writes_is_found: PlanWrites breaks planning_writes_nothing;
    a_plan_that_always_shows_something_is_found: PlanNeverEmpty breaks the_plan_is_empty_when_nothing_is_to_do;
    a_route_twice_as_error_is_found: RouteTwiceFails breaks an_equal_route_again_is_a_success;
    routes_of_others_are_found: ListsAllRoutes breaks other_clusters_and_owners_are_not_listed;
    a_blackhole_that_is_not_reported_is_found: HidesBlackholes breaks a_blackhole_route_is_reported;
    an_empty_list_on_error_is_found: NoRoutesOnError breaks a_cloud_that_fails_gives_no_short_list;
    a_configuration_that_is_ignored_is_found: TakesAnyConfig breaks a_broken_configuration_is_refused_and_the_key_named;
    a_secret_in_an_error_is_found: TellsSecret breaks a_broken_configuration_is_refused_and_the_key_named;
    a_call_that_is_never_finished_is_found: NeverFinishes breaks a_deletion_leaves_nothing;
    a_choice_from_an_old_read_is_found: ChoosesFromTheRead breaks services_at_the_same_time_end_as_one_after_the_other;
    an_unnamed_group_is_found: GroupsUnsaid breaks services_that_share_have_one_group;
    a_group_worked_on_item_by_item_is_found: GroupItemByItem breaks a_group_changes_as_one;
    a_shared_object_that_goes_with_the_first_is_found: SharedGoesWithTheFirst breaks deleting_one_of_a_group_keeps_the_other;
    a_balancer_for_a_refused_service_is_found: MakesTheRefused breaks a_refused_service_gets_nothing_and_the_other_everything;
    a_panic_without_configuration_is_found: PanicsWithoutConfig breaks a_missing_configuration_is_an_answer;
}

#[test]
fn every_clause_applies_to_a_cloud_that_has_everything() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(sound));
    assert_eq!(report.broken(), [""; 0], "{report}");
    // The tests of the fake cloud cover the older interfaces and volumes.
    let left_out = [
        "zones_agree_by_id_and_by_name",
        "labels_come_in_order_and_foreign_volumes_have_none",
        "a_volume_of_ours_has_a_source_that_is_named",
        "a_cloud_that_fails_labels_nothing",
    ];
    assert_eq!(report.not_applicable(), left_out, "{report}");
}

#[tokio::test]
async fn a_deviation_needs_to_be_one() {
    let clause = clauses().iter().find(|clause| clause.name == "deleted_routes_are_gone").unwrap();
    let make = async || Arc::new(Memory::new(None).deviating()) as Arc<dyn Harness>;
    assert!(matches!(check(clause, make).await, Outcome::Broken(how) if how.contains("kept after all")));
    let make = async || Arc::new(Memory::new(Some(Defect::KeepsRoutes)).deviating()) as Arc<dyn Harness>;
    assert!(matches!(check(clause, make).await, Outcome::Deviates { why: "so it was decided", .. }));
}
