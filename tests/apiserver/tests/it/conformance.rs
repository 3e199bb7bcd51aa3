//! The conformance suite: every case on the in-memory server and on a real kube-apiserver. If the real one fails a
//! case, the case (and the in-memory server) is wrong.

use crate::api::Api;
use crate::cases;

/// Generates two tests from every case.
macro_rules! conformance {
    ($($module:ident: $($case:ident)*;)*) => {
        mod in_memory {
            use super::*;
            $($(
                #[tokio::test]
                async fn $case() {
                    let server = ccm_test_apiserver::ApiServer::start(Default::default()).await.unwrap();
                    cases::$module::$case(&Api::new(&server.url(), "any", None, stringify!($case))).await;
                    server.stop().await;
                }
            )*)*
        }
        mod real_apiserver {
            use super::*;
            $($(
                #[tokio::test]
                async fn $case() {
                    // Without a real server, the bed reports that on stderr, and fails if one is required.
                    let Some(bed) = ccm_test_bed::Bed::shared().await.unwrap() else { return };
                    let api = Api::new(&bed.url, &bed.token, Some(&bed.ca_pem), stringify!($case));
                    cases::$module::$case(&api).await;
                }
            )*)*

            #[tokio::test]
            async fn a_server_without_the_feature_refuses_streaming_lists() {
                let options = ccm_test_bed::Options::default().apiserver_arg("--feature-gates=WatchList=false");
                let Some(bed) = ccm_test_bed::Bed::start_with(options).await.unwrap() else { return };
                let api = Api::new(&bed.url, &bed.token, Some(&bed.ca_pem), "f");
                crate::faults::streaming_lists_are_forbidden(&api).await;
            }
        }
    };
}

conformance! {
    writes:
        a_created_object_gets_the_servers_fields a_second_create_of_a_name_already_exists bad_names_are_invalid
        a_body_for_another_place_is_refused an_unreadable_body_is_refused an_update_of_an_old_version_conflicts
        an_update_without_change_keeps_the_version an_update_of_a_missing_node_is_refused a_foreign_uid_is_refused
        a_delete_obeys_its_preconditions finalizers_delay_the_removal a_missing_namespace_is_named
        unknown_resources_and_methods_are_refused labels_and_finalizers_are_checked
        wrong_types_are_refused_and_unknown_members_dropped;
    patches:
        merge_patches_merge_and_delete strategic_patches_merge_lists_by_key addresses_are_replaced_by_directive
        finalizers_are_added_and_removed_one_by_one elements_are_deleted_and_ordered_by_directive
        taints_are_replaced_as_a_whole a_patch_with_an_old_version_conflicts
        a_patch_without_effect_keeps_the_version the_status_subresource_writes_status_and_metadata
        the_main_resource_ignores_status other_patch_formats_are_refused;
    reads:
        a_missing_object_is_named list_items_carry_no_type pages_show_one_snapshot versions_of_the_future_time_out
        nonsense_in_list_options_is_refused labels_select fields_select events_are_selected_by_their_object
        tables_have_the_columns_of_kubectl discovery_names_the_resources;
    watches:
        a_watch_replays_changes_after_its_version a_watch_without_version_begins_with_the_objects
        an_initial_list_ends_with_a_bookmark initial_events_need_the_right_match
        leaving_the_selection_looks_like_a_deletion a_deletion_has_the_version_of_the_deletion
        a_watch_ends_at_its_timeout a_watch_from_the_future_waits initial_events_from_the_future_end_with_an_error
        a_watch_covers_one_namespace;
    services:
        a_cluster_ip_service_is_filled_in a_load_balancer_gets_ports headless_and_external_services_get_no_address
        invalid_services_are_refused addresses_and_ports_are_given_once
        allocated_values_survive_an_update_that_omits_them changing_the_type_clears_its_fields
        ingress_gets_a_mode invalid_ingress_is_refused immutable_members_stay local_policy_gets_a_health_port;
    nodes:
        a_new_node_is_tainted_not_ready provider_id_and_pod_cidr_are_set_once taints_are_checked
        addresses_are_unique capacity_becomes_allocatable;
    misc:
        leases_need_micro_times_and_a_version events_live_beside_their_object a_namespace_is_labeled
        volumes_are_pending health_and_version_answer;
}
