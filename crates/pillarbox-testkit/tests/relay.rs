//! The relay on every store: what is committed is delivered, in order per key, with retries.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

#[path = "relay/failure.rs"]
mod failure;
#[path = "relay/fault.rs"]
mod fault;
#[path = "relay/fixture.rs"]
mod fixture;
#[path = "relay/order.rs"]
mod order;
#[path = "relay/other_writer.rs"]
mod other_writer;
#[path = "relay/start.rs"]
mod start;
#[path = "relay/takeover.rs"]
mod takeover;

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
    fault {
        a_take_whose_answer_is_lost_strands_nothing,
        a_settle_whose_answer_is_lost_keeps_the_order,
        a_verdict_that_is_refused_keeps_no_other_from_being_written,
        a_store_that_panics_is_asked_again,
        an_outage_is_survived,
        a_start_that_fails_is_told_at_once,
    }
    takeover {
        a_stop_finishes_what_is_under_way_and_hands_over_at_once,
        a_lapsed_owner_is_taken_over_from,
        a_second_relay_waits_while_the_first_lives,
    }
}
