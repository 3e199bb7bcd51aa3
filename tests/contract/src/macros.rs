//! The list of clauses, from which the table and the tests of a provider's author are generated.

/// Creates one `#[test]` per clause. `$make` is an `async fn() -> Arc<dyn Harness>` that creates a clean cloud.
#[macro_export]
macro_rules! contract {
    ($make:path) => { $crate::contract! { @list tests ($make) } };
    (@tests ($make:path) $($area:ident $name:ident $text:literal)*) => { $(
        #[test]
        fn $name() -> ::std::result::Result<(), $crate::Broken> {
            $crate::check_by_name(stringify!($name), $make)
        }
    )* };
    (@table () $($area:ident $name:ident $text:literal)*) => { &[ $(
        $crate::Clause {
            name: stringify!($name),
            text: $text,
            check: |harness| ::std::boxed::Box::pin($area::$name(harness)),
        }
    ),* ] };
    (@list $what:ident $argument:tt) => { $crate::contract! { @$what $argument
        start a_missing_configuration_is_an_answer
            "Without --cloud-config the factory makes a provider or says that it needs a configuration; it never panics."
        start a_broken_configuration_is_refused_and_the_key_named
            "The process fails early and says which key is wrong; it never prints a secret."
        start hostile_configurations_are_refused_or_taken_without_panic
            "Whatever the file holds, the factory returns."
        start flags_have_plain_names_and_defaults_that_parse
            "The program and other providers have flags too."
        start the_interfaces_are_the_same_after_a_restart
            "The core reads the interfaces once, after initialize."

        instances answers_come_in_the_order_of_the_nodes
            "One call looks up many nodes: one answer each, in order, also for duplicates; none for an empty list."
        instances an_instance_is_found_by_provider_id_and_by_name
            "A new node has no provider ID yet; afterwards the ID decides."
        instances the_provider_id_wins_over_the_name
            "A machine may be replaced under the same name; the ID identifies it."
        instances the_metadata_holds_id_and_addresses
            "The provider ID has the provider's name as its scheme, and is the same each time; addresses keep their order."
        instances a_removed_instance_is_gone_with_evidence
            "A node is deleted only with evidence: the observation, and when its read began."
        instances a_stopped_instance_exists
            "A stopped machine may be started again: its node is tainted, never deleted."
        instances a_cloud_that_fails_is_never_evidence
            "Unknown is an answer of its own; a failed read must not delete nodes."
        instances the_id_of_another_cloud_is_never_gone
            "In hybrid clusters there are nodes of other clouds; they are not ours to delete."
        instances a_malformed_provider_id_is_never_gone
            "A malformed ID is no evidence about an instance."
        instances hostile_nodes_neither_panic_nor_spoil_other_answers
            "Names and IDs come from the cluster; one bad node must not affect the others."
        instances many_nodes_are_one_call
            "There is no limit to the number of nodes in one call."
        instances overlapping_calls_do_not_disturb_each_other
            "Several controllers may call at the same time."
        instances looking_writes_nothing
            "A lookup may happen at any time."
        instances zones_agree_by_id_and_by_name
            "The older interface is called in both ways for one node."

        balancers nothing_is_there_for_a_new_service
            "Not found is an answer, never an error."
        balancers deleting_nothing_succeeds_and_writes_nothing
            "A deletion is repeated after a crash; the second one must succeed."
        balancers ensure_makes_a_balancer_and_get_returns_the_same_status
            "The status is written into the Service; two different answers would make it flap."
        balancers a_second_ensure_writes_nothing
            "Every Service is ensured at each start of the process, and after each relevant change."
        balancers an_ensure_after_a_restart_writes_nothing
            "No state may be only in the process: the cloud shows the ownership."
        balancers the_order_of_nodes_makes_no_difference
            "The core promises no order."
        balancers changed_ports_are_applied_and_can_be_changed_back
            "Ensure makes the balancer match, whatever its previous state."
        balancers changed_hosts_are_applied_and_ensure_agrees
            "Update changes only the hosts, with the same result as an ensure."
        balancers no_hosts_are_no_error
            "For a while, a cluster may have no node for traffic."
        balancers a_deletion_leaves_nothing
            "Leftovers cost money and occupy names."
        balancers services_do_not_touch_each_other
            "Each balancer belongs to one Service, or is shared on purpose."
        balancers objects_of_others_stay_untouched
            "Accounts are shared. An object that does not show this owner is foreign, whatever its name."
        balancers a_recreated_service_gets_a_balancer_of_its_own
            "A new Service of the same name is another Service, with another UID."
        balancers name_and_group_are_stable
            "Both are computed often, at any time, and must never call the cloud."
        balancers a_cloud_that_fails_is_an_error_and_changes_nothing
            "The answer \"not found\" for an unreadable balancer would leak it."
        balancers many_items_are_answered_in_order
            "The core passes all waiting Services of a group at once."
        balancers planning_writes_nothing
            "A dry run must be safe on any cluster."
        balancers the_plan_is_empty_when_nothing_is_to_do
            "A plan that is never empty is useless."
        balancers hostile_services_neither_panic_nor_leak
            "Annotations and ports come from users. All objects of such a Service are deleted with it."

        groups services_at_the_same_time_end_as_one_after_the_other
            "The core syncs many Services concurrently, each with its own reads."
        groups services_that_share_have_one_group
            "The core never syncs a group twice at the same time, and identifies it by its key."
        groups a_group_changes_as_one
            "The waiting Services of a group come in one call: some may be deleted while others change."
        groups deleting_one_of_a_group_keeps_the_other
            "Shared objects are deleted with the last Service that needs them, whichever created them."
        groups a_refused_service_gets_nothing_and_the_other_everything
            "A mistake in one Service must not stop the others of its call."

        recovery an_interrupted_ensure_is_finished_by_the_next
            "The process may die after any write."
        recovery an_interrupted_ensure_is_removed_whole
            "The Service may be deleted before the balancer is complete."
        recovery an_interrupted_deletion_is_finished_by_the_next
            "As long as any part is left, get must return it, or deletion must still find it."
        recovery a_lost_answer_makes_no_second_object
            "A write may take effect although its answer is lost."
        recovery an_ensure_dropped_at_any_await_is_finished_by_the_next
            "The core cancels by dropping the future: at a deadline, when the lease is lost, at the end."
        recovery a_deletion_dropped_at_any_await_is_finished_by_the_next
            "As above."

        routes created_routes_are_listed_with_their_node
            "A route that is not listed is created again and again."
        routes answers_come_in_the_order_of_the_routes
            "One answer per route: each node gets its condition from its own answer."
        routes an_equal_route_again_is_a_success
            "After a lost answer or with a stale list, the route may exist already, which is the desired state."
        routes deleted_routes_are_gone
            "The range may belong to another node by then."
        routes other_clusters_and_owners_are_not_listed
            "The core deletes listed routes that it does not need."
        routes a_blackhole_route_is_reported
            "A blackhole is replaced."
        routes a_cloud_that_fails_gives_no_short_list
            "With a short list, the core would create existing routes again."
        routes interrupted_routes_converge
            "Routes are created one by one, and the process may die between any two."
        routes hostile_routes_do_not_panic
            "Ranges come from node objects."

        volumes labels_come_in_order_and_foreign_volumes_have_none
            "One call looks up many volumes; foreign volumes and placeholders are left alone."
        volumes a_volume_of_ours_has_a_source_that_is_named
            "A volume with another source is foreign: neither the controller nor the webhook looks it up."
        volumes a_cloud_that_fails_labels_nothing
            "Pods of a volume without its zone could be scheduled anywhere."
    } };
}
