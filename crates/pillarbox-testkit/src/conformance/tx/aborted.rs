//! Aborted: the database gave the transaction up, and the caller has not noticed.

use pillarbox::{Error, Outbox, OutboxTx};

use super::{Counter, assert_nothing, assert_usable, begin, placed};
use crate::backend::{Backend, Need};
use crate::run::lacks;

/// The commit of a transaction that was given up is an error, and nothing of it remains.
pub async fn a_commit_after_a_failed_statement_is_an_error<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.emit(&placed(7)).await.unwrap();
    backend.spoil(&mut tx).await;

    let committed = tx.commit().await;

    committed.expect_err("the commit reports success");
    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// The same with no event in the buffer: there is no insert to fail.
pub async fn a_commit_without_events_after_a_failed_statement_is_an_error<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    backend.spoil(&mut tx).await;

    let committed = tx.commit().await;

    committed.expect_err("the commit reports success");
    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// An event emitted after the failure must not commit by itself.
pub async fn events_emitted_after_a_failed_statement_do_not_appear<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    backend.spoil(&mut tx).await;
    tx.emit_all(&[placed(7), placed(8)]).await.unwrap();

    tx.commit().await.expect_err("the commit reports success");

    assert_nothing(backend, 7).await;
}

/// Callbacks for the commit do not run, those for the rollback do.
pub async fn callbacks_learn_of_the_rollback<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    for emits in [0, 1] {
        let (committed, rolled_back) = (Counter::default(), Counter::default());
        let mut tx = begin(backend).await;
        tx.after_commit(committed.callback());
        tx.after_rollback(rolled_back.callback());
        for order in 0..emits {
            tx.emit(&placed(order)).await.unwrap();
        }
        backend.spoil(&mut tx).await;

        tx.commit().await.expect_err("the commit reports success");

        assert_eq!((committed.get(), rolled_back.get()), (0, 1), "with {emits} events");
    }
}

/// `transaction` reports the commit that was none.
pub async fn a_closure_that_ignores_a_failed_statement_gets_an_error<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    let work = async |tx: &mut OutboxTx<B::Open>| {
        backend.place_order(tx, 7).await.unwrap();
        tx.emit(&placed(7)).await?;
        backend.spoil(tx).await;
        Ok::<_, Error>(())
    };

    let result = Outbox::new().transaction(backend.pool(), work).await;

    result.expect_err("the closure's success is reported");
    assert_nothing(backend, 7).await;
}

/// A caller that noticed and rolls back finds the pool as it was.
pub async fn a_rollback_after_a_failed_statement_leaves_the_pool_usable<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    for order in 0..4 {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit(&placed(order)).await.unwrap();
        backend.spoil(&mut tx).await;
        // Where the database has ended it already, there may be nothing left to roll back.
        let _ = tx.rollback().await;
    }

    assert_nothing(backend, 0).await;
    assert_usable(backend).await;
}

/// A savepoint opened after the failure must not make the dead transaction look alive.
pub async fn a_savepoint_after_a_failed_statement_hides_nothing<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    for end in 0..3 {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, 7).await.unwrap();
        tx.emit(&placed(7)).await.unwrap();
        backend.spoil(&mut tx).await;

        if let Ok(savepoint) = tx.savepoint().await {
            match end {
                0 => drop(savepoint),
                1 => savepoint.rollback().await.unwrap_or_default(),
                _ => savepoint.release().await.unwrap_or_default(),
            }
        }

        tx.commit().await.expect_err("the commit reports success");
        assert_nothing(backend, 7).await;
    }
    assert_usable(backend).await;
}

/// The same where the failure happens inside of a savepoint, however that is left.
pub async fn a_failed_statement_in_a_savepoint_poisons_no_connection<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    for end in 0..6 {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, 7).await.unwrap();
        let mut savepoint = tx.savepoint().await.unwrap();
        backend.spoil(&mut savepoint).await;
        match end % 3 {
            0 => drop(savepoint),
            1 => savepoint.rollback().await.unwrap_or_default(),
            _ => savepoint.release().await.unwrap_or_default(),
        }
        if end < 3 {
            drop(tx);
        } else {
            tx.rollback().await.unwrap_or_default();
        }
    }
    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}
