//! Cases of the transaction contracts: [`Tx`](pillarbox::tx::Tx) and
//! [`OpenTx`](pillarbox::tx::OpenTx), through [`Outbox`] and [`Inbox`](pillarbox::Inbox).

pub mod aborted;
pub mod batch;
pub mod cancellation;
pub mod commit;
pub mod context;
pub mod delay;
pub mod duplicate;
pub mod ended;
pub mod hook;
pub mod inbox;
pub mod limits;
pub mod ordered;
pub mod own;
pub mod rollback;
pub mod savepoint;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use pillarbox::{Envelope, EventId, Outbox, OutboxTx};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Need};

/// Tests transactions: `tx_conformance!(name_of_the_module, YourBackend);`.
///
/// One test per case, named `<module>::<group>::<case>`. The crate needs `tokio` with `macros`
/// and `rt`.
#[macro_export]
macro_rules! tx_conformance {
    ($module:ident, $backend:ty) => {
        $crate::__suite! { $module, $backend, tx {
            commit {
                rows_and_events_appear_together,
                nothing_is_seen_before_the_commit,
                every_emit_gives_the_id_of_its_event,
                many_events_keep_their_order,
                events_of_one_transaction_follow_the_calls,
                a_thousand_events_go_in_one_transaction,
                a_transaction_without_events_commits,
                an_empty_transaction_commits,
                a_closure_that_succeeds_commits,
                two_transactions_do_not_disturb_each_other,
                an_event_with_few_fields_has_the_defaults,
            }
            rollback {
                a_rollback_takes_rows_and_events_back,
                a_dropped_transaction_is_rolled_back,
                a_closure_that_fails_rolls_back,
                a_closure_dropped_half_way_rolls_back,
                a_rolled_back_pool_goes_on,
            }
            aborted {
                a_savepoint_after_a_failed_statement_hides_nothing,
                a_failed_statement_in_a_savepoint_poisons_no_connection,
                a_commit_after_a_failed_statement_is_an_error,
                a_commit_without_events_after_a_failed_statement_is_an_error,
                events_emitted_after_a_failed_statement_do_not_appear,
                callbacks_learn_of_the_rollback,
                a_closure_that_ignores_a_failed_statement_gets_an_error,
                a_rollback_after_a_failed_statement_leaves_the_pool_usable,
            }
            ended {
                an_emit_after_the_end_is_refused,
                a_commit_after_the_end_is_refused,
                a_commit_without_events_after_the_end_is_refused,
                an_end_inside_a_savepoint_is_seen,
                an_accept_after_the_end_notes_nothing,
                an_own_transaction_takes_no_event_after_the_end,
                an_own_transaction_notes_no_arrival_after_the_end,
                an_own_event_ends_with_its_transaction,
                an_own_event_goes_with_the_next_transaction,
            }
            savepoint {
                a_rollback_takes_its_own_events_back,
                a_release_keeps_its_events,
                a_dropped_savepoint_is_rolled_back,
                an_inner_rollback_keeps_the_outer_events,
                an_outer_rollback_takes_the_inner_events,
                a_savepoint_after_a_rollback_starts_anew,
                callbacks_go_with_a_rollback,
                callbacks_of_a_release_wait_for_the_end,
            }
            ordered {
                the_second_to_lock_a_key_waits_for_the_first,
                a_rollback_ends_the_lock,
                writers_that_lock_many_keys_do_not_block_each_other,
                an_event_without_a_key_is_refused,
            }
            own {
                an_event_commits_with_the_callers_transaction,
                an_event_goes_with_the_callers_rollback,
                an_event_goes_with_a_dropped_transaction,
                a_connection_with_a_transaction_takes_events,
                a_bare_connection_is_refused,
                an_aborted_transaction_takes_no_events,
                events_are_unseen_until_the_caller_commits,
            }
            duplicate {
                an_id_given_twice_in_one_transaction_is_refused,
                an_id_that_exists_is_refused,
                a_refused_id_leaves_the_callers_transaction_in_the_reported_state,
                a_refused_batch_leaves_nothing_behind,
                the_pool_goes_on_after_a_refusal,
                ids_differ_in_case,
            }
            hook {
                before_write_may_change_events,
                before_write_may_drop_events,
                an_error_in_before_write_reaches_the_caller,
                hooks_run_in_order,
                the_commit_hook_gets_the_events,
                the_rollback_hook_gets_the_events,
                a_callers_transaction_runs_only_the_write_hooks,
                callbacks_run_after_the_commit,
                callbacks_run_after_a_rollback,
                a_panic_after_the_commit_does_not_reach_the_caller,
                the_commit_hook_gets_no_events_of_a_rolled_back_savepoint,
                a_panic_after_the_write_does_not_reach_the_caller,
                a_panic_after_a_rollback_does_not_reach_the_caller,
            }
            batch {
                before_write_sees_all_events_of_a_call,
                a_call_without_events_writes_nothing,
                before_write_may_replace_events,
                before_write_may_drop_a_whole_call,
                an_own_transaction_may_have_its_event_dropped,
                an_own_transaction_takes_many_events_at_once,
                a_payload_over_the_limit_keeps_its_call_out,
                events_with_the_largest_headers_go_in_one_transaction,
            }
            limits {
                an_invalid_event_keeps_all_of_a_call_out,
                an_invalid_event_leaves_the_callers_transaction_open,
                an_invalid_context_is_refused,
                the_longest_names_are_written,
                an_inbox_checks_its_names,
            }
            delay {
                an_event_waits_for_its_delay,
                an_event_waits_for_its_moment,
                a_delay_counts_from_the_insert_not_from_the_commit,
                an_event_may_be_due_at_once,
            }
            context {
                the_context_lands_in_tenant_and_headers,
                an_event_keeps_its_own_context,
                no_context_leaves_nothing,
            }
            inbox {
                the_first_arrival_may_have_its_effect,
                a_second_arrival_is_a_duplicate,
                another_payload_is_a_conflict,
                a_rollback_forgets_the_arrival,
                a_second_arrival_in_one_transaction_is_a_duplicate,
                consumers_and_sources_are_independent,
                of_many_at_once_one_has_its_effect,
                a_bare_connection_is_refused,
                an_id_is_compared_byte_for_byte,
            }
            cancellation {
                a_transaction_dropped_anywhere_is_whole_or_absent,
                a_begin_dropped_anywhere_gives_its_connection_back,
                a_savepoint_dropped_anywhere_is_whole_or_absent,
                events_before_a_dropped_savepoint_are_complete_or_absent,
                an_own_transaction_dropped_anywhere_leaves_nothing,
                a_rollback_dropped_anywhere_still_rolls_back,
            }
        } }
    };
}

/// A typed event.
#[derive(Debug, Serialize, Deserialize, pillarbox::Event)]
#[event("order.placed", version = 3, aggregate = "order")]
pub(crate) struct OrderPlaced {
    #[event(id)]
    pub(crate) order_id: String,
}

pub(crate) fn placed(order: i64) -> OrderPlaced {
    OrderPlaced { order_id: order.to_string() }
}

pub(crate) fn envelope(order: i64) -> Envelope {
    Envelope::of(&placed(order)).unwrap()
}

pub(crate) fn id(text: &'static str) -> EventId {
    EventId::new(text).unwrap()
}

pub(crate) async fn begin<B: Backend>(backend: &B) -> OutboxTx<B::Open> {
    Outbox::new().begin(backend.pool()).await.unwrap()
}

/// Whether an event is there for everyone to see.
pub(crate) async fn has_event<B: Backend>(backend: &B, id: &EventId) -> bool {
    backend.store().event(id).await.unwrap().is_some()
}

/// The number of new events.
pub(crate) async fn events<B: Backend>(backend: &B) -> u64 {
    backend.store().stats().await.unwrap().new
}

/// Asserts that neither the order nor any event is there.
pub(crate) async fn assert_nothing<B: Backend>(backend: &B, order: i64) {
    assert!(!backend.has_order(order).await, "order {order} is there");
    assert_eq!(events(backend).await, 0, "an event is there");
}

/// Asserts that every connection of the pool can still begin and commit, twice over.
pub(crate) async fn assert_usable<B: Backend>(backend: &B) {
    let size = i64::try_from(B::POOL).unwrap();
    for round in 0..2 {
        let orders = (0..size).map(|number| FAR + round * size + number);
        if backend.lacks(Need::ConcurrentWriters).is_some() {
            for order in orders {
                commit(backend, begin(backend).await, order).await;
            }
        } else {
            // All of them at once: none may be missing.
            let all: Vec<_> = join_all((0..size).map(|_| begin(backend))).await;
            join_all(all.into_iter().zip(orders).map(|(tx, order)| commit(backend, tx, order)))
                .await;
        }
    }
}

/// An order number that no case uses.
const FAR: i64 = 900_000;

async fn commit<B: Backend>(backend: &B, mut tx: OutboxTx<B::Open>, order: i64) {
    backend.place_order(&mut tx, order).await.unwrap();
    let id = tx.emit(&placed(order)).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert!(has_event(backend, &id).await && backend.has_order(order).await);
}

/// Counts how often something ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// A callback that counts.
    pub(crate) fn callback(&self) -> impl FnOnce() + Send + 'static {
        let Self(count) = self.clone();
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
