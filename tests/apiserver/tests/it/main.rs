//! One binary for the integration tests: the conformance suite, run against the in-memory server and a real one, and what
//! only the in-memory one can do.
//!
//! The modules are marked as tests for the lints that permit panics in tests only.

#[cfg(test)]
mod api;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod handle;
#[cfg(test)]
mod in_memory;
#[cfg(test)]
mod real_apiserver;

/// Every case of the conformance suite, handed to a macro that makes tests of them.
macro_rules! conformance {
    ($make:ident) => {
        $make! {
            writes: a_created_object_gets_what_the_server_adds,
            writes: a_second_create_of_a_name_already_exists,
            writes: bad_names_are_invalid,
            writes: generated_names_extend_the_base,
            writes: a_body_for_another_place_is_refused,
            writes: an_unreadable_body_is_refused,
            writes: an_update_of_an_old_version_conflicts,
            writes: an_update_without_change_keeps_the_version,
            writes: an_update_of_a_missing_object_depends_on_the_kind,
            writes: a_foreign_uid_is_refused,
            writes: a_delete_obeys_its_preconditions,
            writes: finalizers_delay_the_removal,
            writes: a_collection_is_deleted_by_selector,
            writes: a_missing_namespace_is_named,
            writes: a_dry_run_changes_nothing,
            writes: unknown_resources_and_methods_are_refused,
            writes: labels_and_finalizers_are_checked,
            writes: wrong_types_are_refused_and_unknown_members_dropped,
            patches: merge_patches_merge_and_delete,
            patches: strategic_patches_merge_lists_by_key,
            patches: addresses_are_replaced_by_directive,
            patches: finalizers_are_added_and_removed_one_by_one,
            patches: elements_are_deleted_and_ordered_by_directive,
            patches: taints_are_replaced_as_a_whole,
            patches: retain_keys_and_replace_apply_to_maps,
            patches: json_patches_are_all_or_nothing,
            patches: a_patch_with_an_old_version_conflicts,
            patches: a_patch_without_effect_keeps_the_version,
            patches: the_status_subresource_writes_status_and_metadata,
            patches: the_main_resource_ignores_status,
            patches: apply_creates_and_merges,
            patches: unknown_patch_formats_are_refused,
            reads: a_missing_object_is_named,
            reads: list_items_carry_no_type,
            reads: pages_show_one_snapshot,
            reads: an_exact_list_shows_the_past,
            reads: versions_of_the_future_time_out,
            reads: nonsense_in_list_options_is_refused,
            reads: labels_select,
            reads: fields_select,
            reads: events_are_selected_by_their_object,
            reads: tables_have_the_columns_of_kubectl,
            reads: discovery_names_the_resources,
            watches: a_watch_replays_what_came_after_its_version,
            watches: a_watch_without_version_begins_with_the_objects,
            watches: an_initial_list_ends_with_a_bookmark,
            watches: initial_events_need_the_right_match,
            watches: leaving_the_selection_looks_like_a_deletion,
            watches: a_deletion_has_the_version_of_the_deletion,
            watches: a_watch_ends_at_its_timeout,
            watches: a_watch_from_the_future_waits,
            watches: initial_events_from_the_future_end_with_an_error,
            watches: a_watch_covers_one_namespace,
            services: a_cluster_ip_service_is_filled_in,
            services: a_load_balancer_gets_ports,
            services: headless_and_external_services_get_no_address,
            services: invalid_services_are_refused,
            services: addresses_and_ports_are_given_once,
            services: allocated_values_survive_an_update_that_omits_them,
            services: changing_the_type_clears_what_it_needed,
            services: ingress_gets_a_mode,
            services: invalid_ingress_is_refused,
            services: immutable_members_stay,
            services: local_policy_gets_a_health_port,
            nodes: a_new_node_is_tainted_not_ready,
            nodes: provider_id_and_pod_cidr_are_set_once,
            nodes: taints_are_checked,
            nodes: addresses_are_unique,
            nodes: capacity_becomes_allocatable,
            misc: leases_need_micro_times_and_a_version,
            misc: events_live_beside_their_object,
            misc: a_namespace_is_labelled_and_terminates,
            misc: secrets_and_config_maps_keep_their_promises,
            misc: volumes_are_pending_and_protected,
            misc: health_and_version_answer,
        }
    };
}
pub(crate) use conformance;
