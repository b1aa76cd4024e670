//! Cancellation: a future dropped at any `.await` leaves a whole transaction or none.

use pillarbox::tx::OpenTx;
use pillarbox::{EventId, Outbox, OutboxTx};

use super::{assert_usable, begin, envelope, events, has_event};
use crate::backend::{Backend, BoxError, Need, OwnTx};
use crate::fake::cut;
use crate::run::lacks;

/// More polls than any transaction needs.
const MAX_POLLS: i64 = 1000;
/// How often a point is tried where timing decides.
const THROWS: i64 = 24;
/// Added to an order for the one inside a savepoint.
const INSIDE: i64 = 100_000;

/// Begin, write, emit and commit, dropped after every number of polls: row and event agree.
pub async fn a_transaction_dropped_anywhere_is_whole_or_absent<B: Backend>(backend: &B) {
    let outbox = Outbox::new();
    let transaction = async |order: i64| {
        let mut tx = outbox.begin(backend.pool()).await?;
        backend.place_order(&mut tx, order).await?;
        tx.emit_envelope(envelope(order).id(number(order))).await?;
        tx.commit().await?;
        Ok::<_, BoxError>(())
    };

    let whole = drop_everywhere(async |polls, order| cut(polls, transaction(order)).await).await;

    assert_usable(backend).await;
    for order in 0..=whole {
        let is_there = agreed(backend, order).await;
        assert!(is_there || order != whole, "the one that ended is there");
    }
}

/// A begin that is dropped gives its connection back, however often.
pub async fn a_begin_dropped_anywhere_gives_its_connection_back<B: Backend>(backend: &B) {
    let outbox = Outbox::new();

    drop_everywhere(async |polls, _| {
        for _ in 0..B::POOL {
            let begun = cut(polls, outbox.begin(backend.pool())).await?;
            drop(begun);
        }
        Some(Ok(()))
    })
    .await;

    assert_usable(backend).await;
}

/// A savepoint dropped in any of its calls keeps its rows with its events, or neither.
pub async fn a_savepoint_dropped_anywhere_is_whole_or_absent<B: Backend>(backend: &B) {
    let whole = drop_everywhere(async |polls, number| {
        // Whether a call had reached the database when it was dropped is a matter of luck.
        let mut ended = None;
        for order in number * THROWS..(number + 1) * THROWS {
            let mut tx = begin(backend).await;
            ended = cut(polls, savepoint(backend, &mut tx, order)).await;
            end(tx, order).await;
        }
        ended
    })
    .await;

    assert_usable(backend).await;
    for order in 0..(whole + 1) * THROWS {
        agreed(backend, order).await;
    }
}

/// What stands before a savepoint whose calls were dropped is whole or absent as well.
pub async fn events_before_a_dropped_savepoint_are_complete_or_absent<B: Backend>(backend: &B) {
    let whole = drop_everywhere(async |polls, order| {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit_envelope(envelope(order).id(number(order))).await.unwrap();
        let ended = cut(polls, savepoint(backend, &mut tx, INSIDE + order)).await;
        end(tx, order).await;
        ended
    })
    .await;

    assert_usable(backend).await;
    for order in 0..=whole {
        agreed(backend, order).await;
        agreed(backend, INSIDE + order).await;
    }
}

/// The caller's own transaction, dropped in the middle of an emit, leaves nothing.
pub async fn an_own_transaction_dropped_anywhere_leaves_nothing<B: Backend>(backend: &B) {
    if lacks(backend, Need::DroppedStatement) {
        return;
    }
    let outbox = Outbox::new();

    drop_everywhere(async |polls, order| {
        cut(polls, async {
            let mut own = backend.own().await;
            own.place_order(order).await?;
            own.emit(&outbox, envelope(order).id(number(order))).await?;
            Ok::<_, BoxError>(())
        })
        .await
    })
    .await;

    assert_eq!(events(backend).await, 0);
    assert_usable(backend).await;
}

/// A rollback that is dropped half-way rolls back all the same.
pub async fn a_rollback_dropped_anywhere_still_rolls_back<B: Backend>(backend: &B) {
    drop_everywhere(async |polls, order| {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit_envelope(envelope(order).id(number(order))).await.unwrap();
        cut(polls, async { Ok(tx.rollback().await?) }).await
    })
    .await;

    assert_eq!(events(backend).await, 0);
    assert!(!backend.has_order(0).await && !backend.has_order(1).await);
    assert_usable(backend).await;
}

/// An order and its event in a savepoint, kept or taken back.
async fn savepoint<B: Backend>(
    backend: &B,
    tx: &mut OutboxTx<B::Open>,
    order: i64,
) -> Result<(), BoxError> {
    let mut savepoint = tx.savepoint().await?;
    backend.place_order(&mut savepoint, order).await?;
    savepoint.emit_envelope(envelope(order).id(number(order))).await?;
    match order % 4 {
        0 => savepoint.rollback().await?,
        _ => savepoint.release().await?,
    }
    Ok(())
}

/// Commits or drops. The commit may be refused; what it commits must agree.
async fn end<T: OpenTx>(tx: OutboxTx<T>, order: i64) {
    if order % 3 == 0 {
        drop(tx);
    } else {
        let _ = tx.commit().await;
    }
}

/// Runs an attempt with 0, 1, 2 and so on polls until it ends; gives the number it ended with.
async fn drop_everywhere(attempt: impl AsyncFn(usize, i64) -> Option<Result<(), BoxError>>) -> i64 {
    for order in 0..MAX_POLLS {
        if let Some(ended) = attempt(usize::try_from(order).unwrap(), order).await {
            ended.unwrap();
            return order;
        }
    }
    panic!("it did not end within {MAX_POLLS} polls");
}

/// Whether order and event are both there; fails when only one is.
async fn agreed<B: Backend>(backend: &B, order: i64) -> bool {
    loop {
        let before = backend.has_order(order).await;
        let event = has_event(backend, &number(order)).await;
        // A commit that was sent may still arrive between two reads.
        if before == backend.has_order(order).await {
            assert_eq!(before, event, "order and event {order} disagree");
            return event;
        }
    }
}

fn number(order: i64) -> EventId {
    EventId::new(format!("cut-{order}")).unwrap()
}
