//! The relay on every store: what is committed is delivered, in order per key, with retries.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

#[path = "relay/bell.rs"]
mod bell;
#[path = "relay/crash.rs"]
mod crash;
#[path = "relay/failure.rs"]
mod failure;
#[path = "relay/fault.rs"]
mod fault;
#[path = "relay/fixture.rs"]
mod fixture;
#[path = "relay/hot.rs"]
mod hot;
#[path = "relay/hot_key.rs"]
mod hot_key;
#[path = "relay/large.rs"]
mod large;
#[path = "relay/layer.rs"]
mod layer;
#[path = "relay/lock.rs"]
mod lock;
#[path = "relay/observe.rs"]
mod observe;
#[path = "relay/order.rs"]
mod order;
#[path = "relay/other_writer.rs"]
mod other_writer;
#[path = "relay/protocol.rs"]
mod protocol;
#[path = "relay/route.rs"]
mod route;
#[path = "relay/row_fault.rs"]
mod row_fault;
#[path = "relay/row_lease.rs"]
mod row_lease;
#[path = "relay/row_mode.rs"]
mod row_mode;
#[path = "relay/rows.rs"]
mod rows;
#[path = "relay/share.rs"]
mod share;
#[path = "relay/slow_route.rs"]
mod slow_route;
#[path = "relay/start.rs"]
mod start;
#[path = "relay/stop.rs"]
mod stop;
#[path = "relay/takeover.rs"]
mod takeover;
#[path = "relay/upkeep.rs"]
mod upkeep;

/// One named test per case and store.
macro_rules! on_every_store {
    ($($group:ident { $($case:ident),+ $(,)? })+) => {
        on_every_store! { @store memory, open_memory, $($group { $($case),+ })+ }
        on_every_store! { @store sqlite, open_sqlite, $($group { $($case),+ })+ }
        on_every_store! { @store mysql, open_mysql, $($group { $($case),+ })+ }
        on_every_store! { @store postgres, open_postgres, $($group { $($case),+ })+ }
    };
    (@store $store:ident, $open:ident, $($group:ident { $($case:ident),+ })+) => {
        mod $store { $(mod $group { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let test = concat!(module_path!(), "::", stringify!($case));
                let Some(place) = $crate::fixture::$open(test).await else { return };
                $crate::$group::$case(&place).await;
                place.close().await;
            }
        )+ })+ }
    };
}

on_every_store! {
    start {
        a_committed_event_is_delivered_and_marked_done,
        a_rolled_back_event_is_never_delivered,
        a_commit_wakes_the_relay,
        without_a_wake_the_poll_finds_it,
        many_events_come_once_each,
        nothing_kept_means_deleted_at_settle,
        a_delayed_event_waits_for_its_time,
        the_listener_has_the_context_of_the_emit,
        contradicting_settings_are_refused,
    }
    stop {
        what_was_committed_before_is_delivered,
        what_was_committed_before_is_delivered_by_rows,
        a_backlog_is_delivered_whole,
        what_waits_stays,
        what_waits_stays_by_rows,
        what_is_abandoned_and_left_is_counted,
        what_is_abandoned_and_left_is_counted_by_rows,
        an_event_that_waited_too_long_in_memory_is_delivered,
        the_row_of_a_dead_writer_is_delivered,
        a_verdict_that_was_refused_is_written,
        without_a_lease_nothing_is_said_to_be_left,
    }
    lock {
        locked_rows_are_named,
        it_keeps_no_other_from_being_settled,
        it_keeps_no_other_from_being_settled_by_rows,
        it_keeps_no_other_from_memory_from_being_settled,
        it_keeps_no_follower_from_being_settled,
        it_keeps_no_other_lease_from_being_renewed,
    }
    large {
        large_events_behind_many_small_ones_fit_in,
        large_events_claimed_behind_small_ones_fit_in,
        oversized_rows_are_dead_with_their_size,
        oversized_rows_claimed_are_dead_with_their_size,
        an_oversized_row_that_takes_no_verdict_keeps_no_other_waiting,
    }
    slow_route {
        its_backlog_keeps_no_other_waiting,
        its_events_from_memory_keep_no_other_waiting,
        what_follows_it_in_its_key_waits,
    }
    bell {
        a_commit_elsewhere_is_heard,
        a_transaction_of_the_callers_own_is_looked_for,
        a_process_that_only_writes_is_heard,
        a_writer_rings_when_it_stops,
        a_process_that_only_writes_owns_nothing,
    }
    crash {
        an_event_that_kills_every_relay_is_given_up,
        a_takeover_whose_answer_is_lost_counts_all_the_same,
        a_row_that_kills_every_relay_is_given_up,
        an_event_that_survives_is_no_suspect_any_more,
        a_row_that_survives_is_no_suspect_any_more,
    }
    hot {
        a_free_event_comes_without_a_look_at_the_table,
        hot_and_cold_events_come_once_each,
        a_full_lane_loses_nothing,
        two_of_three_are_hot_while_the_table_has_something,
        a_hot_event_that_fails_is_tried_again,
        a_rolled_back_event_is_not_hot,
        the_row_of_a_dead_writer_is_delivered,
        the_row_of_a_dead_writer_is_reclaimed_by_one_call_at_a_time,
        a_verdict_on_a_locked_row_whose_lease_ran_out_is_written,
        the_row_of_a_living_writer_is_left_alone,
        a_stopped_relay_leaves_ordinary_rows,
        what_is_committed_during_a_stop_is_handed_over,
        what_is_committed_during_a_stop_is_handed_over_by_rows,
    }
    hot_key {
        the_first_of_a_key_comes_from_memory,
        a_transaction_keeps_its_order,
        an_event_that_fails_holds_back_its_key,
        many_writers_keep_every_key_in_order,
        a_rolled_back_event_leaves_its_key_alone,
    }
    order {
        events_of_a_key_come_in_order_through_retries,
        one_key_that_waits_does_not_stop_the_others,
        a_held_key_waits_for_a_replay_and_goes_on_in_order,
        a_skipped_event_lets_its_key_go_on,
        a_crowd_of_waiting_keys_does_not_hide_a_new_one,
        a_long_tail_and_a_restless_head_do_not_starve_a_new_key,
        a_backlog_of_one_key_leaves_room_for_the_others,
    }
    failure {
        a_panic_is_a_failure_and_is_retried,
        an_error_that_cannot_be_shown_is_retried,
        a_listener_that_takes_too_long_is_retried,
        an_event_without_a_listener_is_dead_at_once,
        a_payload_that_does_not_decode_is_dead_with_its_cause,
        a_version_nobody_reads_is_dead_with_its_cause,
        a_deferral_counts_no_attempt,
        the_last_attempt_makes_a_dead_letter,
    }
    layer {
        the_first_layer_registered_is_the_outermost,
        a_layer_that_fails_first_keeps_the_listener_out,
        no_layer_changes_what_the_listener_said,
        a_panic_in_a_layer_is_a_failed_delivery,
        a_layer_that_hangs_is_stopped,
        a_layer_that_outwaits_the_lease_reaches_no_listener,
        a_stop_does_not_wait_for_what_came_too_late,
        a_layer_has_the_context_of_the_emit,
        an_open_circuit_uses_up_no_attempts,
    }
    route {
        the_best_route_wins,
        an_old_version_reaches_a_new_listener,
        a_newer_version_is_dead_and_says_so,
        an_event_for_nobody_waits_when_told_to,
        a_paused_route_waits_while_others_go_on,
    }
    fault {
        a_take_whose_answer_is_lost_strands_nothing,
        a_settle_whose_answer_is_lost_keeps_the_order,
        a_verdict_that_is_refused_keeps_no_other_from_being_written,
        a_store_that_panics_is_asked_again,
        an_outage_is_survived,
        a_start_that_fails_is_told_at_once,
    }
    takeover {
        a_lease_that_is_renewed_too_late_goes_on_at_once,
        a_stop_finishes_what_is_under_way_and_hands_over_at_once,
        a_lapsed_owner_is_taken_over_from,
    }
    share {
        two_relays_come_to_share_the_load_without_a_duplicate,
        what_a_relay_leaves_is_taken_long_before_a_lease,
        a_stop_gives_idle_shards_back_while_a_delivery_is_under_way,
        four_relays_restarted_one_by_one_deliver_once_and_in_order,
    }
    observe {
        a_delivery_is_seen_from_the_read_to_the_settle,
        failures_are_seen_until_the_event_is_given_up,
        an_observer_that_panics_harms_no_delivery,
        trouble_with_the_database_is_seen,
        a_trace_goes_from_the_emit_through_the_listener_into_its_emits,
    }
    rows {
        competing_relays_deliver_once_and_in_order,
        a_slow_listener_keeps_nothing_from_other_relays,
        a_key_that_fails_blocks_no_other,
        a_held_key_goes_on_after_a_replay,
        a_panic_is_a_failed_delivery,
        a_commit_wakes_it,
        a_backlog_drains_after_one_look,
        a_queue_drains_after_one_wake,
        free_events_are_hot_and_keyed_ones_are_not,
        in_any_order_a_key_is_delivered_side_by_side,
        in_order_a_key_is_delivered_one_by_one,
    }
    row_lease {
        a_stop_gives_a_suspect_back_that_is_being_counted,
        a_lapsed_lease_is_claimed_and_its_verdict_is_fenced,
        a_living_lease_is_left_alone,
        a_verdict_that_comes_too_late_changes_nothing,
        a_lease_is_renewed_while_its_delivery_lasts,
        a_stop_gives_back_what_no_worker_has_begun,
        a_stop_gives_hot_rows_back,
        no_more_is_in_hand_than_workers_need,
        no_more_is_unsettled_than_was_said,
    }
    row_mode {
        the_first_relay_sets_the_mode,
        two_modes_never_meet,
        where_nobody_delivers_no_relay_starts,
        the_owner_of_the_lowest_shard_purges,
        a_newcomer_is_given_shards,
        events_are_delivered_after_the_mode_was_changed,
    }
    row_fault {
        a_claim_whose_answer_is_lost_strands_nothing,
        a_settle_whose_answer_is_lost_delivers_nothing_twice,
        a_verdict_that_is_refused_keeps_no_other_from_being_written,
        a_store_that_panics_is_asked_again,
        an_outage_is_survived,
    }
    upkeep {
        a_relay_purges_what_is_past_its_own_retention,
        dead_letters_and_their_trail_have_retentions_of_their_own,
        only_the_owner_of_the_lowest_shard_purges,
        a_purge_goes_batch_by_batch_to_its_end,
        without_a_relay_upkeep_purges_by_age_alone,
        gauges_say_how_much_there_is,
        gauges_say_how_many_wait_for_a_worker,
        retentions_that_keep_nothing_are_refused,
    }
}
