//! Migrate: the tables come to be, once, and are what this library needs.

use futures_util::future::join_all;
use pillarbox::store::{OutboxConfig, Status};
use pillarbox::{ErrorKind, Outbox, TablePrefix};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::owner::{Owner, emit_one, free, keyed, status};
use crate::fake::cut;
use crate::run::lacks;

/// A second migration keeps what is there.
pub async fn migrating_again_changes_nothing<B: Backend>(backend: &B) {
    let store = backend.store();
    let before = store.config().await.unwrap();
    let id = emit_one(backend, keyed("a")).await;

    store.migrate().await.unwrap();

    assert_eq!(store.config().await.unwrap(), before);
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// A migration with nothing to do takes no lock: it succeeds while another connection writes.
pub async fn migrating_again_waits_for_nobody<B: Backend>(backend: &B) {
    if lacks(backend, Need::Waiting) {
        return;
    }
    let owner = Owner::of_all(backend).await;
    let writing = backend.hold(Hold::Takeover(owner.owned[0].shard, &owner.id)).await;

    backend.store().migrate().await.unwrap();

    writing.commit().await;
}

/// Ten processes that start together all succeed.
pub async fn ten_at_once_succeed<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let stores = join_all((0..10).map(|_| backend.store_at(prefix("fresh_")))).await;

    let migrated = join_all(stores.iter().map(|store| store.migrate())).await;

    for (store, result) in stores.iter().zip(migrated) {
        result.unwrap();
        assert_eq!(store.config().await.unwrap(), layout(backend).await);
    }
}

/// A migration that was killed at any step leaves nothing in the way of the next.
pub async fn a_migration_dropped_anywhere_can_be_run_again<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    for polls in 0..10_000 {
        let name = format!("cut{polls}_");
        let first = backend.store_at(TablePrefix::new(name.clone()).unwrap()).await;
        let whole = cut(polls, first.migrate()).await;

        let second = backend.store_at(TablePrefix::new(name).unwrap()).await;
        second.migrate().await.unwrap();
        assert_eq!(second.config().await.unwrap(), layout(backend).await, "{polls} polls");
        if let Some(whole) = whole {
            return whole.unwrap();
        }
    }
    panic!("a migration did not end");
}

/// Tables that are not there are a schema error, and say so by kind.
pub async fn missing_tables_are_a_schema_error<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let store = backend.store_at(prefix("absent_")).await;

    assert_eq!(store.config().await.unwrap_err().kind(), ErrorKind::Schema);
    assert_eq!(store.stats().await.unwrap_err().kind(), ErrorKind::Schema);
}

/// Tables of a newer library are refused, by `layout` and by `migrate`.
pub async fn newer_tables_are_a_schema_error<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let prefix = prefix("newer_");
    let store = backend.store_at(prefix.clone()).await;
    store.migrate().await.unwrap();
    backend.pretend_newer(&prefix).await;

    let fresh = backend.store_at(prefix).await;
    assert_eq!(fresh.config().await.unwrap_err().kind(), ErrorKind::Schema);
    assert_eq!(fresh.migrate().await.unwrap_err().kind(), ErrorKind::Schema);
}

/// Two sets of tables in one database know nothing of each other.
pub async fn two_prefixes_do_not_see_each_other<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let (one, two) = (prefix("one_"), prefix("two_"));
    let (first, second) = (backend.store_at(one.clone()).await, backend.store_at(two).await);
    first.migrate().await.unwrap();
    second.migrate().await.unwrap();

    let outbox = Outbox::new().prefix(one);
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    tx.emit_envelope(free()).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(first.stats().await.unwrap().new, 1);
    assert_eq!(second.stats().await.unwrap().new, 0);
    assert_eq!(backend.store().stats().await.unwrap().new, 0);
}

async fn layout<B: Backend>(backend: &B) -> OutboxConfig {
    backend.store().config().await.unwrap()
}

fn prefix(text: &'static str) -> TablePrefix {
    TablePrefix::new(text).unwrap()
}
