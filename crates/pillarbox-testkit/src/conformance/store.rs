//! Cases of the [`Store`](pillarbox::Store) contract.

pub mod audit;
pub mod breakdown;
pub mod budget;
pub mod cancellation;
pub mod claim;
pub mod clock_ahead;
pub mod competing;
pub mod concurrency;
pub mod crash;
pub mod dead_letters;
pub mod delay;
pub mod early;
pub mod fence;
pub mod heads;
pub mod lease;
pub mod local_lease;
pub mod members;
pub mod migrate;
pub mod mode;
pub mod odd_id;
pub mod operate;
pub mod operators;
pub mod order;
pub mod pages;
pub mod payload;
pub mod promote;
pub mod purge;
pub mod replay;
pub mod retention;
pub mod rotation;
pub mod row_lease;
pub mod row_settle;
pub mod seq;
pub mod settle;
pub mod stats;
pub mod takeover;
pub mod view;
pub mod waiting;

/// Tests a store: `store_conformance!(name_of_the_module, YourBackend);`.
///
/// One test per case, named `<module>::<group>::<case>`. A case that holds in both claim modes is two
/// tests, `<case>::by_shards` and `<case>::by_rows`. The crate needs `tokio` with `macros` and `rt`.
#[macro_export]
macro_rules! store_conformance {
    ($module:ident, $backend:ty) => {
        $crate::__suite! { $module, $backend, store {
            lease {
                a_lease_is_renewed,
                an_owner_that_left_has_lost_its_lease,
                an_owner_that_was_removed_has_lost_its_lease,
                a_lapsed_lease_is_renewed_until_it_is_taken_over,
                an_unknown_owner_acquires_nothing,
                a_removed_owner_acquires_nothing,
            }
            members {
                nobody_is_a_member_of_an_empty_store,
                live_owners_are_members_with_their_shard_counts,
                an_owner_that_wants_no_shards_is_not_a_member,
                a_renewal_changes_the_wanted_shards,
                a_lapsed_owner_is_not_a_member,
                an_owner_that_left_is_not_a_member,
            }
            takeover {
                free_shards_come_with_a_first_epoch,
                lapsed_shards_are_acquired_with_the_next_epoch,
                a_living_owner_keeps_its_shards,
                released_shards_are_free_at_once,
                leaving_frees_every_shard,
                no_more_shards_are_acquired_than_requested,
                owned_shards_are_not_acquired_again,
                shards_acquired_without_an_answer_are_acquired_again,
                a_release_of_an_old_epoch_frees_nothing,
            }
            clock_ahead {
                shards_are_taken_over,
                the_owner_is_not_alive,
                the_mode_can_be_changed,
                a_renewal_corrects_the_lease,
                a_small_step_back_changes_nothing,
                claimed_rows_are_due_after_the_takeover,
                rows_born_leased_are_due_after_the_takeover,
                a_locked_row_does_not_delay_the_takeover,
                rows_of_the_living_stay_leased,
            }
            fence {
                a_verdict_after_a_takeover_changes_nothing(claim),
                a_verdict_of_an_older_epoch_changes_nothing,
                a_verdict_after_a_release_changes_nothing(claim),
                a_verdict_on_an_old_token_changes_nothing,
                a_repeated_verdict_applies_once(claim),
                owned_shards_settle_beside_refused_ones,
                a_settle_sees_a_takeover_that_commits_while_it_waits,
                a_takeover_waits_for_a_settle_that_passed_its_fence,
            }
            order {
                rows_come_in_the_order_of_their_transaction,
                rows_come_by_seq_within_a_shard,
                a_key_is_always_in_one_shard,
                keys_are_compared_byte_for_byte,
                a_late_commit_is_read_from_the_head,
                a_read_begins_above_its_floor,
                a_row_behind_a_new_one_of_its_key_is_marked,
                a_row_behind_a_delayed_one_of_its_key_is_marked,
                a_row_behind_a_retried_one_of_its_key_is_marked,
                a_row_behind_a_held_one_of_its_key_is_marked,
                a_row_behind_a_final_one_is_free,
                a_row_behind_another_key_is_free,
                a_row_without_a_key_is_never_behind,
                a_row_read_from_the_head_is_not_behind,
                a_key_is_read_from_its_head,
                a_key_is_read_up_to_the_limit,
                many_keys_are_read_at_once,
                the_limit_counts_for_each_shard,
                many_rows_are_read_page_by_page,
                only_the_shards_asked_for_are_read,
            }
            settle {
                done_keeps_the_row_and_ends_its_wait(claim),
                delete_removes_the_row(claim),
                retry_counts_an_attempt_and_waits(claim),
                defer_waits_without_counting(claim),
                a_dead_letter_is_not_read_again(claim),
                a_held_event_is_not_read_again_and_blocks_its_key(claim),
                a_held_row_takes_no_verdict,
                a_long_error_is_truncated,
                every_verdict_moves_the_token,
                verdicts_mix_over_shards_and_kinds(claim),
                two_thousand_verdicts_go_in_one_call(claim),
                no_verdicts_are_no_error(claim),
                defer_keeps_the_attempt_count,
                a_delivered_row_keeps_its_last_error,
                an_event_of_tomorrow_is_retried_like_any_other,
                a_final_row_takes_no_verdict,
                an_unknown_row_takes_no_verdict,
            }
            delay {
                a_delayed_row_waits_and_is_not_read,
                a_delayed_row_becomes_due,
                a_moment_given_is_kept_to_the_microsecond,
                a_retried_row_becomes_due,
            }
            waiting {
                a_waiting_row_has_no_owner,
                a_row_behind_a_waiting_one_is_marked,
                a_row_before_a_waiting_one_is_free,
                a_key_goes_on_after_a_promotion,
                a_row_behind_both_is_behind_the_waiting_one,
                a_promoted_row_below_the_floor_is_unread,
                a_head_that_is_put_off_stops_its_key,
            }
            promote {
                nothing_is_due_where_nothing_waits,
                a_promoted_row_is_new_and_otherwise_the_same,
                a_row_is_promoted_once,
                a_row_that_is_not_due_keeps_waiting,
                the_longest_overdue_row_is_promoted_first,
                a_full_page_may_be_the_last_one,
                only_the_shards_asked_for_are_promoted,
                many_rows_are_promoted_page_by_page,
                a_locked_row_is_promoted_later,
                a_promoted_row_takes_a_verdict,
                a_repeated_verdict_on_a_promoted_row_applies_once,
            }
            heads {
                one_row_of_each_key_comes_in_order,
                rows_without_a_key_come_after_the_keys,
                pages_go_on_to_the_end,
                a_cursor_is_a_position,
                a_blocked_head_is_marked_blocked,
                the_rest_of_a_key_is_skipped,
                the_newest_row_of_the_shard_is_reported,
                heads_keep_within_their_budget,
                a_head_equals_the_row_of_a_read,
            }
            early {
                an_early_row_is_marked_early,
                an_early_row_becomes_due,
                a_leased_row_is_not_early,
                a_postponed_row_waits,
                a_row_is_postponed_once_under_its_token,
                a_due_row_is_not_postponed,
                a_postponement_counts_its_rows,
                a_locked_row_is_not_postponed,
                a_late_verdict_undoes_no_postponement,
                a_claimer_postpones_an_early_row,
                without_order_an_early_row_is_claimed_too,
                an_insert_by_another_program_is_not_early,
            }
            replay {
                a_dead_letter_becomes_new,
                a_held_event_becomes_new,
                an_event_that_is_not_dead_is_not_replayed,
                a_late_verdict_does_not_swallow_a_replay,
                a_replay_moves_the_token,
            }
            claim {
                a_due_row_is_leased_under_a_new_token,
                a_leased_row_is_not_claimed_again,
                a_lapsed_lease_is_claimed_again,
                a_row_that_is_not_due_is_not_claimed,
                without_order_a_waiting_row_is_not_claimed,
                a_promoted_row_is_claimed_first,
                a_retried_row_is_claimed_when_it_is_due,
                final_and_held_events_are_never_claimed,
                only_the_head_of_a_key_is_claimed,
                a_leased_head_blocks_its_key,
                a_delayed_head_blocks_its_key,
                a_retried_head_blocks_its_key,
                a_held_head_blocks_its_key,
                a_final_head_frees_the_next,
                rows_without_a_key_do_not_wait,
                without_order_every_due_row_is_claimed,
                the_limit_counts_over_all_shards,
                shards_are_claimed_in_the_order_given,
                only_the_shards_asked_for_are_claimed,
                blocked_rows_do_not_use_up_the_limit,
                a_replayed_row_is_claimed_first,
                a_lease_may_have_any_length,
                a_deferred_row_is_claimed_when_it_is_due,
            }
            row_lease {
                a_renewed_lease_lives_on,
                a_renewal_counts_from_now,
                a_lapsed_lease_is_renewed_until_it_is_taken_over,
                a_locked_row_does_not_block_other_renewals,
                a_lease_that_was_taken_over_is_not_renewed,
                an_old_token_is_not_renewed,
                a_renewal_returns_the_renewed_rows,
                a_released_row_is_due_at_once,
                a_row_is_released_once,
                a_row_is_released_by_its_owner_only,
                no_rows_are_no_error,
                two_thousand_leases_go_in_one_call,
            }
            row_settle {
                a_verdict_of_another_owner_changes_nothing,
                a_verdict_with_a_wrong_token_or_shard_changes_nothing,
                a_lapsed_lease_that_nobody_took_still_settles,
                a_verdict_given_twice_applies_once,
                a_settle_that_gave_up_has_locked_nothing,
                kept_rows_settle_beside_lost_ones,
                a_verdict_ends_the_lease,
                a_verdict_through_the_shard_ends_the_lease,
            }
            operate {
                a_replay_is_for_dead_and_held_events,
                a_skip_is_for_held_events,
                a_discard_is_for_dead_and_held_events,
                an_id_given_twice_counts_once,
                no_events_are_no_error,
                more_than_a_batch_is_refused,
                a_full_batch_goes_in_one_call,
                a_late_verdict_undoes_no_operation,
                a_late_verdict_on_a_row_undoes_no_operation,
                an_operation_moves_the_token,
                a_replayed_event_starts_over,
                a_skipped_event_frees_its_key,
                a_discarded_event_frees_its_key_and_its_id,
                an_operation_returns_the_changed_events,
                an_event_is_found_by_its_seq,
                unchanged_events_are_counted,
            }
            odd_id {
                a_held_event_is_operated_on_by_its_seq,
                a_bulk_operation_skips_no_event,
            }
            dead_letters {
                only_dead_and_held_events_are_listed,
                a_dead_letter_has_the_fields_of_its_row,
                a_letter_of_a_plain_event_is_plain,
                the_size_of_a_payload_is_in_bytes,
                letters_are_found_by_status,
                letters_are_found_by_type,
                letters_are_found_by_aggregate_type,
                letters_are_found_by_aggregate_id,
                letters_are_found_by_key,
                letters_are_found_by_tenant,
                letters_are_found_by_a_part_of_their_error,
                case_matters_in_an_error,
                letters_are_found_by_the_moment_they_were_given_up,
                filters_hold_all_at_once,
            }
            pages {
                letters_come_by_the_moment_they_were_given_up,
                pages_show_every_letter_once,
                pages_keep_to_their_filter,
                pages_go_on_while_letters_come_and_go,
                a_dead_letter_given_up_again_has_a_new_position,
                a_position_may_be_stored_as_text,
                a_page_has_its_limit,
                a_position_may_be_anywhere,
            }
            view {
                the_view_shows_dead_and_held_events,
                the_view_has_the_fields_of_the_row,
                the_view_drops_events_that_are_no_longer_dead,
            }
            audit {
                failed_attempts_are_counted_in_the_trail,
                giving_up_is_audited,
                verdicts_without_a_failure_are_not_audited,
                only_the_failures_of_a_mixed_batch_are_audited,
                a_fenced_verdict_is_not_audited,
                a_long_cause_is_truncated_in_the_audit_trail,
                every_operation_is_audited,
                who_and_why_may_be_long_or_absent,
                operations_without_effect_are_not_audited,
                a_trail_is_of_one_event,
                a_trail_outlives_its_event,
                attempts_count_anew_after_a_replay,
                a_long_trail_gives_its_newest_entries,
            }
            purge {
                done_rows_go_when_they_are_old,
                dead_rows_go_when_they_are_old,
                young_rows_stay,
                no_more_goes_than_the_limit,
                waiting_and_held_rows_never_go,
                a_replayed_row_stays,
                a_row_replayed_while_the_purge_waits_stays,
            }
            retention {
                any_is_refused_where_someone_delivers,
                any_takes_old_events_in_every_state,
                any_keeps_to_its_limit,
                audit_rows_go_when_they_are_old,
                a_purge_of_audit_rows_keeps_to_its_limit,
                inbox_notes_go_when_they_are_old,
                a_purge_of_notes_keeps_to_its_limit,
                a_purge_keeps_to_its_kind,
                a_trail_outlives_the_purge_of_its_event,
                a_retention_for_ever_keeps_everything,
                any_counts_from_the_verdict_or_the_emit,
            }
            stats {
                due_events_are_counted,
                rows_that_became_due_are_counted,
                rows_behind_a_waiting_row_are_not_counted,
                an_empty_store_counts_nothing,
                events_are_counted_by_status,
                the_oldest_due_event_gives_the_lag,
                live_owners_and_their_shards_are_counted,
            }
            breakdown {
                an_empty_store_names_its_shards,
                events_are_counted_in_their_shard,
                owners_are_named,
                a_shard_has_the_lag_of_its_oldest_event,
                events_are_counted_by_type,
                types_are_compared_byte_for_byte,
                the_largest_types_are_named,
            }
            migrate {
                migrating_again_changes_nothing,
                migrating_again_waits_for_nobody,
                ten_at_once_succeed,
                missing_tables_are_a_schema_error,
                newer_tables_are_a_schema_error,
                two_prefixes_do_not_see_each_other,
                a_migration_dropped_anywhere_can_be_run_again,
            }
            mode {
                tables_begin_in_the_default_mode,
                the_configured_mode_is_reported,
                the_mode_does_not_change_while_an_owner_is_alive,
                a_lapsed_owner_does_not_keep_the_mode,
                an_owner_of_another_mode_cannot_join,
                an_owner_of_the_same_mode_can_join,
                an_owner_cannot_join_again_in_another_mode,
                joining_and_changing_the_mode_see_each_other,
                a_lapsed_owner_does_not_outlive_its_mode,
                renewing_and_changing_the_mode_see_each_other,
            }
            seq {
                seq_grows_with_every_insert,
                a_deleted_seq_is_never_used_again,
                a_seq_that_was_set_back_is_refused,
            }
            payload {
                every_event_is_read_as_it_was_written,
                unusual_json_is_preserved_byte_for_byte,
                the_deepest_and_the_largest_payload_pass,
                a_full_set_of_headers_keeps_its_order,
                every_part_of_an_envelope_comes_back,
                an_unknown_event_is_none,
            }
            budget {
                an_oversized_text_stays_in_the_database,
                oversized_bytes_stay_in_the_database,
                oversized_headers_stay_in_the_database,
                an_event_one_byte_too_large_is_refused,
                an_oversized_row_takes_one_verdict,
                an_oversized_row_is_claimed_by_one_relay,
                an_oversized_row_can_be_skipped,
                a_read_keeps_within_its_budget,
                a_read_goes_on_where_the_budget_ended,
                shards_share_the_budget,
                one_row_comes_whatever_its_size,
                blocked_events_use_no_budget,
                large_headers_count,
                a_read_of_keys_keeps_within_its_budget,
                a_claim_keeps_within_its_budget,
            }
            concurrency {
                no_shard_is_held_twice_at_one_epoch,
                a_stale_owner_changes_nothing,
                two_settles_of_one_verdict_apply_once,
            }
            rotation {
                a_claim_goes_on_after_a_key,
                a_key_to_go_on_after_counts_in_the_first_shard_only,
                every_key_is_claimed_in_rotation,
                rows_with_and_without_a_key_alternate,
                a_long_queue_of_a_blocked_key_is_skipped,
            }
            crash {
                every_start_after_a_crash_is_counted,
                a_row_settled_since_is_not_counted,
                a_verdict_and_a_replay_start_from_nothing,
                a_start_that_was_counted_is_not_counted_again,
            }
            local_lease {
                an_insert_returns_the_positions_of_leased_rows,
                many_leased_rows_keep_their_order,
                a_row_born_leased_is_not_due_during_its_lease,
                a_lapsed_birth_lease_is_marked_lapsed,
                the_writer_settles_its_leased_row,
                a_reclaimed_row_is_no_longer_its_writers,
                only_a_lapsed_lease_is_reclaimed,
                a_failed_row_loses_its_birth_lease,
                an_event_with_a_key_knows_whether_it_is_next,
                only_pending_and_held_events_precede_another,
            }
            competing {
                eight_claimers_never_overlap,
                a_claim_passes_a_locked_row,
                two_claims_at_once_share_the_rows,
                two_settles_of_claimed_rows_apply_once,
                a_locked_head_blocks_its_key,
            }
            operators {
                two_replays_at_once_have_one_effect,
                operations_at_once_come_one_after_the_other,
                operators_relays_and_maintenance_do_not_conflict,
            }
            cancellation {
                a_dropped_settle_applies_all_or_nothing(claim),
                a_dropped_acquire_takes_all_shards_or_none,
                dropped_reads_leave_the_store_usable,
                a_dropped_join_can_be_repeated,
                a_dropped_leave_is_whole,
                a_dropped_claim_leases_all_or_nothing,
                a_dropped_renewal_loses_no_lease,
                a_dropped_release_frees_all_or_nothing,
                a_dropped_operation_is_done_to_all_or_none,
            }
        } }
    };
}
