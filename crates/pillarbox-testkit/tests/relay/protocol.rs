//! Step-by-step tests of the faults that an earlier version of the protocol had:
//! `docs/protocol-tests.md` lists them with their rules.
//!
//! No test waits for time to pass. Relays read when they are woken, calls to the store are held before
//! or after it, listeners answer when they are told to, and tests advance the clocks.

#[path = "protocol/deadline.rs"]
mod deadline;
#[path = "protocol/fence.rs"]
mod fence;
#[path = "protocol/fixture.rs"]
mod fixture;
#[path = "protocol/local_queue.rs"]
mod local_queue;
#[path = "protocol/read.rs"]
mod read;
#[path = "protocol/replay.rs"]
mod replay;
#[path = "protocol/writer.rs"]
mod writer;

/// One named test per case and store; a store that cannot show a case says why.
macro_rules! on_every_backend {
    ($($group:ident { $($case:ident),+ $(,)? })+) => {
        on_every_backend! { @on memory, MemoryBackend, $($group { $($case),+ })+ }
        on_every_backend! { @on sqlite, SqliteBackend, $($group { $($case),+ })+ }
        on_every_backend! { @on mysql, MysqlBackend, $($group { $($case),+ })+ }
        on_every_backend! { @on postgres, PostgresBackend, $($group { $($case),+ })+ }
    };
    (@on $store:ident, $backend:ident, $($group:ident { $($case:ident),+ })+) => {
        mod $store { $(mod $group { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let path = concat!(module_path!(), "::", stringify!($case));
                let case = $crate::protocol::$group::$case;
                pillarbox_testkit::run::<pillarbox_testkit::$backend>(path, case).await;
            }
        )+ })+ }
    };
}

on_every_backend! {
    read {
        a_commit_below_the_floor_is_not_overtaken_by_its_key,
        a_late_commit_is_found,
        a_new_owner_leaves_a_held_key_waiting,
        a_read_that_overlaps_a_settle_starts_nothing_twice,
        a_read_that_overlaps_a_death_starts_nothing_before_the_replay,
    }
    fence {
        after_a_refused_settle_nothing_starts_in_the_shard,
        a_settle_that_waits_for_a_row_does_not_keep_the_lease_from_being_renewed,
        a_relay_refuses_tables_that_are_claimed_otherwise,
        a_relay_that_takes_its_shard_again_waits_for_its_own_old_delivery,
    }
    deadline {
        a_machine_that_was_suspended_starts_nothing_of_its_queue,
        no_more_than_max_unsettled_are_under_way,
    }
    replay {
        a_repeated_settle_does_not_swallow_a_replay,
        a_repeated_settle_of_a_leased_row_does_not_swallow_a_replay,
    }
    local_queue {
        a_lapsed_row_is_delivered_only_after_it_was_taken_by_a_write,
        a_row_whose_lease_is_too_short_for_a_delivery_is_given_back,
        a_commit_that_outlasts_its_rows_lease_is_left_to_the_owner,
        queued_events_are_given_back_at_a_stop,
    }
}
