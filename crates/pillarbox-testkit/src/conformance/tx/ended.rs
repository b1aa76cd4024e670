//! Ended: a statement on the connection has ended the transaction, past sqlx and the outbox.

use pillarbox::{Accepted, Error, ErrorKind, Inbox, Outbox, PayloadHash, TxFate};

use super::{Counter, assert_usable, begin, envelope, events, placed};
use crate::backend::{Arrival, Backend, Need, OwnTx};
use crate::run::lacks;

/// A way to end a transaction, and whether it commits.
const ENDS: [(&str, bool); 4] =
    [("rollback", false), ("commit", true), ("rollback; begin", false), ("commit; begin", true)];

/// Events emitted after the end are refused at the commit, also inside of a new transaction.
pub async fn an_emit_after_the_end_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS) {
        for count in [1, 3] {
            let order = order * 10 + count;
            let mut tx = begin(backend).await;
            backend.place_order(&mut tx, order).await.unwrap();
            backend.raw(&mut tx, end).await;
            for _ in 0..count {
                tx.emit(&placed(order)).await.unwrap();
            }

            let refused = tx.commit().await.expect_err(end);

            assert_refused(end, &refused);
            assert_eq!(backend.has_order(order).await, is_committed, "{end}");
            assert_eq!(events(backend).await, 0, "{end}: a ghost");
        }
    }
    assert_usable(backend).await;
}

/// Events emitted before the end are refused, too; the callbacks learn of it.
pub async fn a_commit_after_the_end_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS) {
        let (committed, rolled_back) = (Counter::default(), Counter::default());
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit(&placed(order)).await.unwrap();
        tx.after_commit(committed.callback());
        tx.after_rollback(rolled_back.callback());
        backend.raw(&mut tx, end).await;

        let refused = tx.commit().await.expect_err(end);

        assert_refused(end, &refused);
        assert_eq!(backend.has_order(order).await, is_committed, "{end}");
        assert_eq!((committed.get(), rolled_back.get()), (0, 1), "{end}");
        assert_eq!(events(backend).await, 0, "{end}: a ghost");
    }
    assert_usable(backend).await;
}

/// A commit that has nothing to insert does not report a success either.
pub async fn a_commit_without_events_after_the_end_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS) {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        backend.raw(&mut tx, end).await;

        let refused = tx.commit().await.expect_err(end);

        assert_refused(end, &refused);
        assert_eq!(backend.has_order(order).await, is_committed, "{end}");
    }
    assert_usable(backend).await;
}

/// The end of the transaction inside of a savepoint is seen, however the savepoint is left.
pub async fn an_end_inside_a_savepoint_is_seen<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS) {
        for left in 0..3 {
            let order = order * 10 + left;
            let mut tx = begin(backend).await;
            backend.place_order(&mut tx, order).await.unwrap();
            tx.emit(&placed(order)).await.unwrap();
            let mut savepoint = tx.savepoint().await.unwrap();
            backend.raw(&mut savepoint, end).await;
            match left {
                0 => drop(savepoint),
                1 => assert_refused(end, &savepoint.rollback().await.expect_err(end)),
                _ => assert_refused(end, &savepoint.release().await.expect_err(end)),
            }

            let refused = tx.commit().await.expect_err(end);

            assert_refused(end, &refused);
            assert_eq!(backend.has_order(order).await, is_committed, "{end}");
            assert_eq!(events(backend).await, 0, "{end}: a ghost");
        }
    }
    assert_usable(backend).await;
}

/// An arrival after the end is refused, or goes with a commit that is.
pub async fn an_accept_after_the_end_notes_nothing<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    let inbox = Inbox::new("billing").unwrap();
    for (end, _) in ENDS {
        let mut tx = begin(backend).await;
        backend.raw(&mut tx, end).await;

        let accepted = backend.accept(&mut tx, &inbox, &arrival()).await;

        if !end.contains("begin") {
            assert_refused(end, &accepted.expect_err(end));
        }
        assert_refused(end, &tx.commit().await.expect_err(end));
        let mut tx = begin(backend).await;
        let first = backend.accept(&mut tx, &inbox, &arrival()).await.unwrap();
        assert_eq!(first, Accepted::FirstTime, "{end}");
        tx.rollback().await.unwrap();
    }
    assert_usable(backend).await;
}

/// In the caller's own transaction an event after the end is refused, whatever the transaction had
/// done before.
pub async fn an_own_transaction_takes_no_event_after_the_end<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    let outbox = Outbox::new();
    for (order, (end, is_committed)) in (1..).zip(ENDS.into_iter().take(2)) {
        for how in 0..4 {
            let order = order * 10 + how;
            let has_written = how < 2;
            let mut own = backend.own().await;
            if has_written {
                own.place_order(order).await.unwrap();
            }
            own.raw(end).await;

            let refused = match how {
                0 => own.emit(&outbox, envelope(order)).await.map(drop),
                1 => own.emit_on_connection(&outbox, envelope(order)).await.map(drop),
                2 => own.insert(&[envelope(order)]).await,
                _ => own.insert(&[envelope(order), envelope(order)]).await,
            };

            assert_refused(end, &refused.expect_err(end));
            // The caller's commit may succeed or fail; what counts is what is there.
            let _ = own.commit().await;
            assert_eq!(backend.has_order(order).await, has_written && is_committed, "{end}");
            assert_eq!(events(backend).await, 0, "{end}: a ghost");
        }
    }
    assert_usable(backend).await;
}

/// The same for an arrival, also for one that was noted before.
pub async fn an_own_transaction_notes_no_arrival_after_the_end<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    let inbox = Inbox::new("billing").unwrap();
    for known in [false, true] {
        for (end, _) in ENDS.into_iter().take(2) {
            let mut own = backend.own().await;
            own.raw(end).await;

            let refused = own.accept(&inbox, &arrival()).await.expect_err(end);

            assert_refused(end, &refused);
            let _ = own.commit().await;
        }
        let mut own = backend.own().await;
        let accepted = own.accept(&inbox, &arrival()).await.unwrap();
        let expected = if known { Accepted::Duplicate } else { Accepted::FirstTime };
        assert_eq!(accepted, expected);
        own.commit().await.unwrap();
    }
    assert_usable(backend).await;
}

/// What ends the caller's transaction after the emit, ends it for the event, too.
pub async fn an_own_event_ends_with_its_transaction<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS) {
        let before = events(backend).await;
        let mut own = backend.own().await;
        own.place_order(order).await.unwrap();
        own.emit(&Outbox::new(), envelope(order)).await.unwrap();
        own.raw(end).await;

        let _ = own.commit().await;

        assert_eq!(backend.has_order(order).await, is_committed, "{end}");
        assert_eq!(events(backend).await - before, u64::from(is_committed), "{end}");
    }
}

/// Where the caller has begun another transaction with SQL, an event belongs to that one.
pub async fn an_own_event_goes_with_the_next_transaction<B: Backend>(backend: &B) {
    if lacks(backend, Need::RawSql) {
        return;
    }
    for (order, (end, is_committed)) in (1..).zip(ENDS.into_iter().skip(2)) {
        let (first, second) = (order * 10, order * 10 + 1);
        let before = events(backend).await;
        let mut own = backend.own().await;
        own.place_order(first).await.unwrap();
        own.raw(end).await;
        own.emit(&Outbox::new(), envelope(second)).await.unwrap();
        own.place_order(second).await.unwrap();

        own.rollback().await.unwrap();

        assert_eq!(backend.has_order(first).await, is_committed, "{end}");
        assert!(!backend.has_order(second).await, "{end}");
        assert_eq!(events(backend).await, before, "{end}: a ghost");
    }
    assert_usable(backend).await;
}

fn assert_refused(end: &str, refused: &Error) {
    let (kind, fate) = (refused.kind(), refused.transaction());
    assert_eq!((kind, fate), (ErrorKind::NoTransaction, Some(TxFate::Ended)), "{end}: {refused}");
}

fn arrival() -> Arrival {
    Arrival { id: "e-1", hash: PayloadHash::of(b"{}") }
}
