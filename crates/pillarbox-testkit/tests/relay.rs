//! The relay on every store: what is committed is delivered, in order per key, with retries.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

#[path = "relay/crash.rs"]
mod crash;
#[path = "relay/failure.rs"]
mod failure;
#[path = "relay/fault.rs"]
mod fault;
#[path = "relay/fixture.rs"]
mod fixture;
#[path = "relay/large.rs"]
mod large;
#[path = "relay/layer.rs"]
mod layer;
#[path = "relay/local_queue.rs"]
mod local_queue;
#[path = "relay/local_queue_key.rs"]
mod local_queue_key;
#[path = "relay/lock.rs"]
mod lock;
#[path = "relay/maintenance.rs"]
mod maintenance;
#[path = "relay/notify.rs"]
mod notify;
#[path = "relay/order.rs"]
mod order;
#[path = "relay/other_writer.rs"]
mod other_writer;
#[path = "relay/protocol.rs"]
mod protocol;
#[path = "relay/route.rs"]
mod route;
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
#[path = "relay/telemetry.rs"]
mod telemetry;

/// One named test per case and store; for a case with `(claim)` in the list, one per claim mode too.
macro_rules! on_every_store {
    ($($group:ident { $($case:ident $(($claim:ident))?),+ $(,)? })+) => {
        on_every_store! { @store memory, open_memory, $($group { $($case $(($claim))?),+ })+ }
        on_every_store! { @store sqlite, open_sqlite, $($group { $($case $(($claim))?),+ })+ }
        on_every_store! { @store mysql, open_mysql, $($group { $($case $(($claim))?),+ })+ }
        on_every_store! { @store postgres, open_postgres, $($group { $($case $(($claim))?),+ })+ }
    };
    (@store $store:ident, $open:ident, $($group:ident { $($case:ident $(($claim:ident))?),+ })+) => {
        mod $store { $(mod $group { $(
            on_every_store! { @case $open, $group, $case $(, $claim)? }
        )+ })+ }
    };
    (@case $open:ident, $group:ident, $case:ident, claim) => {
        mod $case {
            on_every_store! { @test by_shards, $open, $group, $case, ClaimMode::Shards }
            on_every_store! { @test by_rows, $open, $group, $case, ClaimMode::Rows }
        }
    };
    (@case $open:ident, $group:ident, $case:ident) => {
        on_every_store! { @test $case, $open, $group, $case }
    };
    (@test $test:ident, $open:ident, $group:ident, $case:ident $(, ClaimMode::$mode:ident)?) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let test = concat!(module_path!(), "::", stringify!($test));
            let Some(db) = $crate::fixture::$open(test).await else { return };
            $crate::$group::$case(&db $(, pillarbox::store::ClaimMode::$mode)?).await;
            db.close().await;
        }
    };
}

on_every_store! {
    start {
        a_committed_event_is_delivered_and_marked_done,
        a_rolled_back_event_is_never_delivered,
        a_commit_wakes_the_relay(claim),
        without_a_wake_the_poll_finds_the_event,
        many_events_are_delivered_once,
        a_retention_of_zero_deletes_at_the_settle,
        a_delayed_event_waits_for_its_time,
        the_listener_has_the_context_of_the_emit,
        contradicting_settings_are_refused,
    }
    stop {
        events_committed_before_the_stop_are_delivered(claim),
        a_backlog_is_delivered_whole,
        events_that_are_not_due_stay(claim),
        abandoned_and_remaining_events_are_counted(claim),
        an_event_that_waited_too_long_in_the_queue_is_delivered,
        the_row_of_a_dead_writer_is_delivered,
        a_refused_verdict_is_written_before_the_stop_ends,
        without_a_lease_the_remaining_count_is_unknown,
    }
    lock {
        the_store_reports_locked_rows,
        a_locked_row_does_not_block_other_settles(claim),
        a_locked_row_does_not_block_settles_of_queued_events,
        a_locked_row_does_not_block_the_next_of_its_key,
        a_locked_row_does_not_block_renewals,
    }
    large {
        large_events_behind_many_small_ones_stay_within_the_memory_limit,
        large_events_claimed_behind_small_ones_stay_within_the_memory_limit,
        oversized_rows_are_dead_with_their_size,
        oversized_rows_claimed_are_dead_with_their_size,
        an_oversized_row_settled_during_a_claim_is_dead_once,
        an_oversized_row_that_cannot_be_settled_does_not_block_the_next,
    }
    slow_route {
        a_slow_routes_backlog_does_not_delay_the_others,
        a_slow_routes_queued_events_do_not_delay_the_others,
        the_next_event_of_the_slow_key_waits,
    }
    notify {
        a_commit_in_another_process_wakes_the_relay,
        a_transaction_of_the_callers_own_triggers_a_read,
        a_process_that_only_writes_wakes_the_relay,
        a_writer_notifies_when_it_stops,
        a_process_that_only_writes_owns_nothing,
    }
    crash {
        an_event_that_kills_every_relay_is_given_up(claim),
        a_takeover_with_a_lost_answer_still_counts_crashes,
        a_success_resets_the_crash_count(claim),
    }
    local_queue {
        an_event_without_a_key_is_delivered_without_a_read,
        queued_and_polled_events_are_delivered_once,
        a_full_queue_loses_no_event,
        two_of_three_deliveries_come_from_the_queue_during_a_backlog,
        a_queued_event_that_fails_is_retried,
        a_rolled_back_event_is_not_queued,
        the_row_of_a_dead_writer_is_delivered,
        the_row_of_a_dead_writer_is_reclaimed_by_one_call_at_a_time,
        a_verdict_on_a_locked_row_with_a_lapsed_lease_is_written,
        the_row_of_a_living_writer_is_left_alone,
        a_stopped_relay_leaves_ordinary_rows,
        an_event_committed_during_a_stop_is_handed_over(claim),
    }
    local_queue_key {
        the_first_event_of_a_key_comes_from_the_queue,
        a_transaction_keeps_its_order,
        an_event_that_fails_holds_back_its_key,
        many_writers_keep_every_key_in_order,
        a_rolled_back_event_leaves_its_key_alone,
    }
    order {
        events_of_a_key_come_in_order_through_retries,
        a_failing_key_does_not_block_the_others(claim),
        a_held_key_waits_for_a_replay_and_goes_on_in_order(claim),
        a_skipped_event_unblocks_its_key,
        many_waiting_keys_do_not_hide_a_new_one,
        a_long_backlog_with_retries_does_not_starve_a_new_key,
        a_backlog_of_one_key_leaves_room_for_the_others,
    }
    failure {
        a_panic_is_a_failure_and_is_retried(claim),
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
        no_layer_changes_the_listeners_result,
        a_panic_in_a_layer_is_a_failed_delivery,
        a_layer_that_hangs_is_stopped,
        a_layer_that_outlasts_the_lease_calls_no_listener,
        a_stop_does_not_wait_for_a_late_delivery,
        a_layer_has_the_context_of_the_emit,
        an_open_circuit_uses_up_no_attempts,
    }
    route {
        the_best_route_wins,
        an_old_version_reaches_a_new_listener,
        a_newer_version_is_dead_with_the_reason,
        an_event_for_nobody_waits_when_told_to,
        a_paused_route_waits_while_others_go_on,
    }
    fault {
        a_lost_answer_to_an_acquire_strands_no_shard,
        a_lost_answer_to_a_settle_keeps_the_order(claim),
        a_refused_verdict_does_not_block_the_others(claim),
        a_panicking_store_is_called_again(claim),
        an_outage_is_survived(claim),
        a_failed_start_is_reported_at_once,
        a_lost_answer_to_a_claim_strands_no_event,
    }
    takeover {
        a_lease_that_is_renewed_too_late_goes_on_at_once,
        a_stop_finishes_deliveries_and_hands_over_at_once,
        a_lapsed_owners_events_are_taken_over,
    }
    share {
        two_relays_come_to_share_the_load_without_a_duplicate,
        released_shards_are_acquired_long_before_the_lease_ends,
        a_stop_gives_idle_shards_back_while_a_delivery_is_under_way,
        four_relays_restarted_one_by_one_deliver_once_and_in_order,
    }
    telemetry {
        a_delivery_is_observed_from_the_read_to_the_settle,
        failures_are_observed_until_the_event_is_given_up,
        a_panicking_observer_harms_no_delivery,
        database_errors_are_observed,
        a_trace_goes_from_the_emit_through_the_listener_into_its_emits,
    }
    rows {
        competing_relays_deliver_once_and_in_order,
        a_slow_listener_keeps_nothing_from_other_relays,
        a_backlog_drains_after_one_poll,
        a_queue_drains_after_one_wake,
        only_events_without_a_key_use_the_local_queue,
        in_any_order_a_key_is_delivered_side_by_side,
        in_order_a_key_is_delivered_one_by_one,
    }
    row_lease {
        a_stop_gives_back_an_event_whose_start_is_being_counted,
        a_lapsed_lease_is_claimed_and_its_verdict_is_fenced,
        a_living_lease_is_left_alone,
        a_verdict_that_comes_too_late_changes_nothing,
        a_lease_is_renewed_while_its_delivery_lasts,
        a_stop_gives_back_events_that_have_not_started,
        a_stop_gives_queued_events_back,
        no_more_rows_are_leased_than_the_workers_need,
        no_more_events_are_unsettled_than_max_unsettled,
    }
    row_mode {
        the_first_relay_sets_the_mode,
        two_modes_never_meet,
        no_relay_starts_in_claim_mode_none,
        a_newcomer_is_given_shards,
        events_are_delivered_after_the_mode_was_changed,
    }
    maintenance {
        a_relay_purges_what_is_past_its_own_retention,
        dead_letters_and_their_trail_have_retentions_of_their_own,
        only_the_owner_of_the_lowest_shard_purges(claim),
        a_purge_goes_batch_by_batch_to_its_end,
        without_a_relay_maintenance_purges_by_age_alone,
        gauges_report_the_event_counts,
        gauges_report_the_events_waiting_for_a_worker,
        retentions_that_keep_nothing_are_refused,
    }
}
