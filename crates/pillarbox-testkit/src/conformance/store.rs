//! Cases of the [`Store`](pillarbox::Store) contract.

pub mod ahead;
pub mod audit;
pub mod breakdown;
pub mod budget;
pub mod cancellation;
pub mod claim;
pub mod competing;
pub mod concurrency;
pub mod crash;
pub mod dead_letters;
pub mod delay;
pub mod early;
pub mod fence;
pub mod heads;
pub mod hot;
pub mod lease;
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
pub mod row_cancellation;
pub mod row_lease;
pub mod row_settle;
pub mod seq;
pub mod settle;
pub mod stats;
pub mod takeover;
pub mod turn;
pub mod view;
pub mod waiting;

/// Tests a store: `store_conformance!(name_of_the_module, YourBackend);`.
///
/// One test per case, named `<module>::<group>::<case>`. The crate needs `tokio` with `macros`
/// and `rt`.
#[macro_export]
macro_rules! store_conformance {
    ($module:ident, $backend:ty) => {
        $crate::__suite! { $module, $backend, store {
            lease {
                a_lease_is_renewed,
                an_owner_that_left_has_lost_its_lease,
                an_owner_that_was_removed_has_lost_its_lease,
                a_lapsed_lease_is_renewed_until_someone_takes,
                an_unknown_owner_takes_nothing,
                a_removed_owner_takes_nothing,
            }
            members {
                nobody_is_a_member_of_an_empty_store,
                living_owners_are_members_with_what_they_hold,
                one_that_wants_nothing_is_no_member,
                a_renewal_changes_what_is_wanted,
                a_lapsed_owner_is_no_member,
                one_that_left_is_no_member,
            }
            takeover {
                free_shards_come_with_a_first_epoch,
                lapsed_shards_go_to_the_taker_with_the_next_epoch,
                a_living_owner_keeps_its_shards,
                released_shards_are_free_at_once,
                leaving_frees_every_shard,
                no_more_is_taken_than_was_asked_for,
                shards_in_hand_are_not_taken_again,
                shards_whose_take_was_not_answered_are_taken_again,
                a_release_of_an_old_epoch_frees_nothing,
            }
            ahead {
                shards_are_taken_over,
                the_owner_is_not_alive,
                the_mode_can_be_changed,
                a_renewal_makes_the_lease_sound,
                a_small_step_back_changes_nothing,
                claimed_rows_are_due_after_the_takeover,
                hot_rows_are_due_after_the_takeover,
                a_locked_row_does_not_hold_the_takeover_up,
                rows_of_the_living_stay_leased,
            }
            fence {
                a_verdict_after_a_takeover_changes_nothing,
                a_verdict_of_an_older_epoch_changes_nothing,
                a_verdict_after_a_release_changes_nothing,
                a_verdict_on_an_old_token_changes_nothing,
                a_repeated_verdict_applies_once,
                held_shards_settle_beside_refused_ones,
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
                a_row_behind_a_new_one_of_its_key_says_so,
                a_row_behind_a_delayed_one_of_its_key_says_so,
                a_row_behind_a_retried_one_of_its_key_says_so,
                a_row_behind_a_held_one_of_its_key_says_so,
                a_row_behind_a_final_one_is_free,
                a_row_behind_another_key_is_free,
                a_row_without_a_key_is_never_behind,
                a_row_read_from_the_head_is_not_behind,
                a_key_is_read_from_its_head,
                a_key_is_read_up_to_the_limit,
                many_keys_are_read_at_once,
                the_limit_counts_for_each_shard,
                a_crowd_is_read_by_pages_like_a_few,
                only_the_shards_asked_for_are_read,
            }
            settle {
                done_keeps_the_row_and_ends_its_wait,
                delete_removes_the_row,
                retry_counts_an_attempt_and_waits,
                defer_waits_without_counting,
                dead_leaves_the_line,
                held_leaves_the_line_and_keeps_its_key,
                a_held_row_takes_no_verdict,
                a_long_error_is_cut,
                every_verdict_moves_the_token,
                verdicts_mix_over_shards_and_kinds,
                two_thousand_verdicts_go_in_one_call,
                no_verdicts_are_no_error,
                defer_keeps_the_attempts_there_are,
                a_delivered_row_still_tells_what_failed_before,
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
                a_waiting_row_is_nobodys,
                a_row_behind_a_waiting_one_says_so,
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
                what_is_not_due_keeps_waiting,
                what_is_due_for_longest_is_promoted_first,
                a_full_page_may_be_the_last_one,
                only_the_shards_asked_for_are_promoted,
                a_crowd_is_promoted_by_pages,
                a_locked_row_is_promoted_later,
                a_promoted_row_takes_a_verdict,
                a_repeated_verdict_on_a_promoted_row_applies_once,
            }
            heads {
                one_row_of_each_key_comes_in_order,
                rows_without_a_key_come_after_the_keys,
                pages_go_on_to_the_end,
                a_cursor_is_a_place,
                a_blocked_head_says_so,
                the_tail_of_a_key_is_passed_by,
                the_newest_row_of_the_shard_is_told,
                heads_keep_within_their_budget,
                a_head_is_what_a_read_brings,
            }
            early {
                an_early_row_says_so,
                an_early_row_becomes_due,
                a_leased_row_is_not_early,
                a_postponed_row_waits,
                a_row_is_postponed_once_under_its_token,
                what_is_due_is_not_postponed,
                a_postponement_counts_what_it_did,
                a_locked_row_is_not_postponed,
                a_late_verdict_undoes_no_postponement,
                a_claimer_postpones_an_early_row,
                without_order_an_early_row_is_claimed_too,
                an_insert_by_another_program_is_not_early,
            }
            replay {
                a_dead_letter_becomes_new,
                a_held_event_becomes_new,
                what_is_not_dead_is_not_replayed,
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
                what_is_over_or_held_is_never_claimed,
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
                a_lease_may_be_as_long_as_one_likes,
                a_deferred_row_is_claimed_when_it_is_due,
            }
            row_lease {
                a_renewed_lease_lives_on,
                a_renewal_counts_from_now,
                a_lapsed_lease_is_renewed_until_someone_takes,
                a_locked_row_keeps_no_other_from_being_renewed,
                a_lease_that_someone_took_is_not_renewed,
                an_old_token_is_not_renewed,
                a_renewal_names_what_it_kept,
                a_released_row_is_due_at_once,
                a_row_is_released_once,
                a_row_is_released_by_its_owner_only,
                no_rows_are_no_error,
                two_thousand_leases_go_in_one_call,
            }
            row_settle {
                done_is_what_it_is_in_a_shard,
                delete_is_what_it_is_in_a_shard,
                retry_is_what_it_is_in_a_shard,
                defer_is_what_it_is_in_a_shard,
                dead_is_what_it_is_in_a_shard,
                held_is_what_it_is_in_a_shard,
                a_verdict_after_the_lease_was_taken_changes_nothing,
                a_verdict_after_a_release_changes_nothing,
                a_verdict_of_another_owner_changes_nothing,
                a_verdict_beside_its_fence_changes_nothing,
                a_lapsed_lease_that_nobody_took_still_settles,
                a_repeated_verdict_applies_once,
                a_verdict_given_twice_applies_once,
                a_settle_that_gave_up_has_locked_nothing,
                kept_rows_settle_beside_lost_ones,
                verdicts_mix_in_one_call,
                two_thousand_verdicts_go_in_one_call,
                no_verdicts_are_no_error,
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
                an_operation_names_what_it_was_done_to,
                an_event_is_found_by_its_seq,
                what_is_found_and_left_alone_is_counted,
            }
            odd_id {
                a_held_event_is_operated_on_by_its_seq,
                a_walk_leaves_none_out,
            }
            dead_letters {
                only_dead_and_held_events_are_listed,
                a_letter_tells_what_the_row_knows,
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
                a_letter_given_up_again_has_a_new_place,
                a_place_may_be_kept_as_text,
                a_page_has_its_limit,
                a_place_may_be_anywhere,
            }
            view {
                the_view_shows_dead_and_held_events,
                the_view_tells_what_the_row_knows,
                the_view_forgets_what_is_no_letter_any_more,
            }
            audit {
                failed_attempts_are_counted_in_the_trail,
                giving_up_is_noted,
                what_did_not_fail_is_not_noted,
                a_mixed_batch_notes_its_failures,
                a_fenced_verdict_is_not_noted,
                a_long_cause_is_noted_up_to_the_limit,
                every_operation_is_noted,
                who_and_why_may_be_long_or_absent,
                what_was_not_done_is_not_noted,
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
                what_has_come_due_is_counted,
                what_is_behind_a_waiting_row_is_not_counted,
                an_empty_store_counts_nothing,
                events_are_counted_by_status,
                the_oldest_due_event_gives_the_lag,
                living_owners_and_their_shards_are_counted,
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
                a_mode_that_was_set_is_told,
                a_mode_is_not_changed_while_an_owner_lives,
                a_lapsed_owner_does_not_keep_the_mode,
                an_owner_of_another_mode_is_not_entered,
                an_owner_of_the_same_mode_is_entered,
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
                any_event_comes_back_as_it_went,
                odd_json_comes_back_byte_for_byte,
                the_deepest_and_the_largest_payload_pass,
                a_full_set_of_headers_keeps_its_order,
                every_part_of_an_envelope_comes_back,
                an_unknown_event_is_none,
            }
            budget {
                an_oversized_text_stays_in_the_database,
                oversized_bytes_stay_in_the_database,
                oversized_headers_stay_in_the_database,
                what_is_one_byte_too_large_is_refused,
                an_oversized_row_takes_one_verdict,
                an_oversized_row_is_claimed_by_one,
                an_oversized_row_is_passed_by,
                a_read_keeps_within_its_budget,
                a_read_goes_on_where_the_budget_ended,
                shards_share_the_budget,
                one_row_comes_whatever_its_size,
                what_cannot_start_uses_up_no_budget,
                large_headers_count,
                a_read_of_keys_keeps_within_its_budget,
                a_claim_keeps_within_its_budget,
            }
            concurrency {
                no_shard_is_held_twice_at_one_epoch,
                a_stale_owner_changes_nothing,
                two_settles_of_one_verdict_apply_once,
            }
            turn {
                a_claim_goes_on_after_a_key,
                a_key_to_go_on_after_counts_in_the_first_shard_only,
                every_key_gets_its_turn,
                rows_with_and_without_a_key_take_turns,
                a_long_queue_of_a_blocked_key_is_passed_by,
            }
            crash {
                a_suspect_is_counted_each_time,
                what_was_decided_since_is_not_counted,
                a_verdict_and_a_replay_start_from_nothing,
                what_was_counted_before_is_left_alone,
            }
            hot {
                places_are_given_of_what_goes_hot,
                a_crowd_goes_hot_in_its_order,
                a_hot_row_is_not_due_while_its_lease_lasts,
                a_lapsed_hot_row_says_so,
                the_writer_settles_a_hot_row,
                a_reclaimed_row_is_no_longer_its_writers,
                only_a_lapsed_lease_is_reclaimed,
                a_hot_row_that_failed_is_an_ordinary_one,
                an_event_with_a_key_knows_whether_it_is_next,
                only_what_is_pending_or_held_is_before_another,
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
                operators_relays_and_upkeep_keep_out_of_each_others_way,
            }
            cancellation {
                a_dropped_settle_applies_all_or_nothing,
                a_dropped_take_takes_all_or_nothing,
                dropped_reads_leave_the_store_usable,
                a_dropped_join_can_be_repeated,
                a_dropped_leave_is_whole,
            }
            row_cancellation {
                a_dropped_claim_leases_all_or_nothing,
                a_dropped_settle_of_rows_applies_all_or_nothing,
                a_dropped_renewal_loses_no_lease,
                a_dropped_release_frees_all_or_nothing,
                a_dropped_operation_is_done_to_all_or_none,
            }
        } }
    };
}
