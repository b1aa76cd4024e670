//! Hooks and callbacks: which ones run, and when.

use std::sync::{Arc, Mutex};

use pillarbox::{Envelope, Error, ErrorKind, EventId, Hook, Outbox, Result};

use super::{Counter, assert_nothing, begin, envelope, events, has_event, placed};
use crate::backend::{Backend, OwnTx};

/// The events that `before_write` returns are written.
pub async fn before_write_may_change_events<B: Backend>(backend: &B) {
    let outbox =
        Outbox::new().hook(Change(|envelope| envelope.header("service", "shop").map(Some)));
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    let id = tx.emit(&placed(7)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    let stored = backend.store().event(&id).await.unwrap().unwrap().event.unwrap();
    assert_eq!(stored.header_map().get("service"), Some("shop"));
}

/// A dropped event has no id and is not written; the transaction goes on.
pub async fn before_write_may_drop_events<B: Backend>(backend: &B) {
    let outbox = Outbox::new().hook(Change(|envelope| {
        Ok(Some(envelope).filter(|envelope| envelope.aggregate_id() != Some("7")))
    }));
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    backend.place_order(&mut tx, 7).await.unwrap();

    assert_eq!(tx.emit(&placed(7)).await.unwrap(), None);
    assert_eq!(tx.emit_all(&[placed(6), placed(7), placed(8)]).await.unwrap().len(), 2);
    tx.commit().await.unwrap();

    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 2);
}

/// An error in `before_write` aborts the emit, with nothing buffered or written.
pub async fn an_error_in_before_write_reaches_the_caller<B: Backend>(backend: &B) {
    let refuse = Change(|_| Err(Error::new(ErrorKind::Configuration, "not today")));
    let outbox = Outbox::new().hook(refuse);
    let mut tx = outbox.begin(backend.pool()).await.unwrap();

    let error = tx.emit(&placed(7)).await.unwrap_err();
    tx.commit().await.unwrap();

    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Configuration, "not today".into()));
    assert_nothing(backend, 7).await;
    let mut own = backend.own().await;
    assert!(own.emit(&outbox, envelope(7)).await.is_err());
    own.commit().await.unwrap();
    assert_nothing(backend, 7).await;
}

/// A later hook sees what an earlier one made of the events.
pub async fn hooks_run_in_order<B: Backend>(backend: &B) {
    let outbox = Outbox::new()
        .hook(Change(|envelope| envelope.header("step", "one").map(Some)))
        .hook(Change(|envelope| {
            let before = envelope.header_map().get("step").unwrap_or("none").to_owned();
            envelope.header("step", format!("{before}, two")).map(Some)
        }));
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    let id = tx.emit(&placed(7)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    let stored = backend.store().event(&id).await.unwrap().unwrap().event.unwrap();
    assert_eq!(stored.header_map().get("step"), Some("one, two"));
}

/// Hooks run for the write and then for the commit, with all events in order.
pub async fn the_commit_hook_gets_the_events<B: Backend>(backend: &B) {
    let told = Told::default();
    let mut tx = Outbox::new().hook(told.clone()).begin(backend.pool()).await.unwrap();
    let ids = tx.emit_all(&[placed(1), placed(2)]).await.unwrap();
    assert_eq!(told.all(), []);

    tx.commit().await.unwrap();

    assert_eq!(told.all(), [("written", ids.clone()), ("committed", ids)]);
}

/// Hooks run for a rollback, by call and by drop.
pub async fn the_rollback_hook_gets_the_events<B: Backend>(backend: &B) {
    for by_call in [true, false] {
        let told = Told::default();
        let mut tx = Outbox::new().hook(told.clone()).begin(backend.pool()).await.unwrap();
        let ids = tx.emit_all(&[placed(1), placed(2)]).await.unwrap();

        if by_call {
            tx.rollback().await.unwrap()
        } else {
            drop(tx)
        }

        assert_eq!(told.all(), [("rolled back", ids)]);
    }
}

/// In the caller's own transaction hooks run for the write, and for nothing that follows.
pub async fn a_callers_transaction_runs_only_the_write_hooks<B: Backend>(backend: &B) {
    let told = Told::default();
    let outbox = Outbox::new().hook(told.clone());
    let mut own = backend.own().await;
    let id = own.emit(&outbox, envelope(7)).await.unwrap().unwrap();
    own.commit().await.unwrap();

    assert_eq!(told.all(), [("written", vec![id])]);
}

/// `after_commit` closures run after the commit, also without events, and only then.
pub async fn callbacks_run_after_the_commit<B: Backend>(backend: &B) {
    let (committed, rolled_back) = (Counter::default(), Counter::default());
    let mut tx = begin(backend).await;
    tx.after_commit(committed.callback());
    tx.after_commit(committed.callback());
    tx.after_rollback(rolled_back.callback());
    assert_eq!(committed.get(), 0);

    tx.commit().await.unwrap();

    assert_eq!((committed.get(), rolled_back.get()), (2, 0));
}

/// `after_rollback` closures run after a rollback, by call and by drop, and only then.
pub async fn callbacks_run_after_a_rollback<B: Backend>(backend: &B) {
    for by_call in [true, false] {
        let (committed, rolled_back) = (Counter::default(), Counter::default());
        let mut tx = begin(backend).await;
        tx.after_commit(committed.callback());
        tx.after_rollback(rolled_back.callback());

        if by_call {
            tx.rollback().await.unwrap()
        } else {
            drop(tx)
        }

        assert_eq!((committed.get(), rolled_back.get()), (0, 1));
    }
}

/// The transaction has committed, whatever a hook or a callback thinks of it.
pub async fn a_panic_after_the_commit_does_not_reach_the_caller<B: Backend>(backend: &B) {
    let committed = Counter::default();
    let mut tx = Outbox::new().hook(Panics).begin(backend.pool()).await.unwrap();
    let id = tx.emit(&placed(7)).await.unwrap().unwrap();
    tx.after_commit(|| panic!("this panic is part of the test"));
    tx.after_commit(committed.callback());

    tx.commit().await.unwrap();

    assert!(has_event(backend, &id).await);
    assert_eq!(committed.get(), 1, "the one after the panic runs");
}

/// A hook that panics once the events are written keeps nobody from committing them.
pub async fn a_panic_after_the_write_does_not_reach_the_caller<B: Backend>(backend: &B) {
    let outbox = Outbox::new().hook(Panics);
    let mut own = backend.own().await;
    let first = own.emit(&outbox, envelope(1)).await.unwrap().unwrap();
    own.commit().await.unwrap();
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    let second = tx.emit(&placed(2)).await.unwrap().unwrap();

    tx.commit().await.unwrap();

    assert!(has_event(backend, &first).await && has_event(backend, &second).await);
}

/// A hook or a callback that panics after a rollback keeps the others from nothing.
pub async fn a_panic_after_a_rollback_does_not_reach_the_caller<B: Backend>(backend: &B) {
    for by_call in [true, false] {
        let rolled_back = Counter::default();
        let mut tx = Outbox::new().hook(Panics).begin(backend.pool()).await.unwrap();
        tx.emit(&placed(7)).await.unwrap();
        tx.after_rollback(|| panic!("this panic is part of the test"));
        tx.after_rollback(rolled_back.callback());

        if by_call {
            tx.rollback().await.unwrap()
        } else {
            drop(tx)
        }

        assert_eq!(rolled_back.get(), 1, "the one after the panic runs");
        assert_nothing(backend, 7).await;
    }
}

/// Events that a savepoint took back are not among those that committed.
pub async fn the_commit_hook_gets_no_events_of_a_rolled_back_savepoint<B: Backend>(backend: &B) {
    let told = Told::default();
    let mut tx = Outbox::new().hook(told.clone()).begin(backend.pool()).await.unwrap();
    let kept = tx.emit(&placed(1)).await.unwrap().unwrap();
    let mut savepoint = tx.savepoint().await.unwrap();
    savepoint.emit(&placed(2)).await.unwrap();
    savepoint.rollback().await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(told.all(), [("written", vec![kept.clone()]), ("committed", vec![kept])]);
}

/// Changes, drops or refuses each event.
struct Change(fn(Envelope) -> Result<Option<Envelope>>);

impl Hook for Change {
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        envelopes.into_iter().filter_map(|envelope| self.0(envelope).transpose()).collect()
    }
}

/// The hooks that ran, with their events.
type News = (&'static str, Vec<EventId>);

/// Records its calls.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<News>>>);

impl Told {
    fn all(&self) -> Vec<News> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, what: &'static str, envelopes: &[Envelope]) {
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone()).collect();
        self.0.lock().unwrap().push((what, ids));
    }
}

impl Hook for Told {
    fn after_write(&self, envelopes: &[Envelope]) {
        self.note("written", envelopes);
    }

    fn after_commit(&self, envelopes: &[Envelope]) {
        self.note("committed", envelopes);
    }

    fn after_rollback(&self, envelopes: &[Envelope]) {
        self.note("rolled back", envelopes);
    }
}

struct Panics;

impl Hook for Panics {
    fn after_write(&self, _envelopes: &[Envelope]) {
        panic!("this panic is part of the test");
    }

    fn after_commit(&self, _envelopes: &[Envelope]) {
        panic!("this panic is part of the test");
    }

    fn after_rollback(&self, _envelopes: &[Envelope]) {
        panic!("this panic is part of the test");
    }
}
