//! Ordered: writers without a lock of their own come one after the other.

use std::pin::pin;

use futures_util::future::{Either, select};
use pillarbox::tx::{Begin as _, Insert, OpenTx as _};
use pillarbox::{Envelope, ErrorKind, EventId, Key, Outbox, Tables};

use crate::backend::{Backend, Need};
use crate::conformance::owner::{free, keyed, read_all, row};

const MEANWHILE: &str = "insert into outbox_event (event_id, event_type, payload)
    values ('meanwhile', 'test.meanwhile', '1')";

/// Of two that lock a key, the second writes when the first is over: its event has the larger `seq`,
/// also than one that the first writes while it waits.
pub async fn the_second_to_lock_a_key_waits_for_the_first<B: Backend>(backend: &B) {
    let (early, late, key) = ([keyed("k")], [keyed("k")], ["k".to_owned()]);
    let mut first = backend.pool().begin().await.unwrap();
    first.insert(&insert(&early, &key)).await.unwrap();

    let mut second = pin!(async {
        let mut tx = backend.pool().begin().await.unwrap();
        tx.insert(&insert(&late, &key)).await.unwrap();
        tx.commit().await.unwrap();
    });
    let waits = async {
        if backend.lacks(Need::Waiting).is_none() {
            backend.blocked(1).await;
        }
    };
    match select(&mut second, pin!(waits)).await {
        Either::Left(_) => panic!("it does not wait"),
        Either::Right(_) => {}
    }
    let has_sql = backend.lacks(Need::RawSql).is_none();
    if has_sql {
        backend.raw(first.connection_mut(), MEANWHILE).await;
    }
    first.commit().await.unwrap();
    second.await;

    let rows = read_all(backend).await;
    let seq = |id: &EventId| row(&rows, id).seq;
    let [early, late] = [&early, &late].map(|[event]| seq(event.event_id()));
    assert!(early < late);
    assert!(!has_sql || seq(&"meanwhile".parse().unwrap()) < late);
}

/// A transaction that is rolled back lets the next one go on.
pub async fn a_rollback_ends_the_lock<B: Backend>(backend: &B) {
    let (event, key) = ([keyed("k")], ["k".to_owned()]);
    let mut first = backend.pool().begin().await.unwrap();
    first.insert(&insert(&[keyed("k")], &key)).await.unwrap();
    first.rollback().await.unwrap();

    let mut second = backend.pool().begin().await.unwrap();
    second.insert(&insert(&event, &key)).await.unwrap();
    second.commit().await.unwrap();

    assert_eq!(read_all(backend).await.len(), 1);
}

/// Through the outbox: many writers that lock many keys, in whatever order they name them, all
/// commit.
pub async fn writers_that_lock_many_keys_do_not_block_each_other<B: Backend>(backend: &B) {
    let outbox = Outbox::new();
    let writers = (0..6).map(|writer| {
        let outbox = &outbox;
        async move {
            let mut tx = outbox.begin(backend.pool()).await.unwrap();
            let mut keys = ["a", "b", "c", "d"];
            keys.rotate_left(writer % 4);
            for key in keys {
                tx.emit_envelope_ordered(keyed(key)).await.unwrap();
            }
            tx.commit().await.unwrap();
        }
    });

    futures_util::future::join_all(writers).await;

    assert_eq!(backend.store().stats().await.unwrap().new, 24);
}

/// An event without a key has no order: it is refused, and nothing is buffered.
pub async fn an_event_without_a_key_is_refused<B: Backend>(backend: &B) {
    let mut tx = Outbox::new().begin(backend.pool()).await.unwrap();
    let aggregate = free().aggregate("order", "7").unwrap();

    let refused = tx.emit_envelope_ordered(aggregate.key(Key::Free).unwrap()).await.unwrap_err();
    tx.commit().await.unwrap();

    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("`emit_ordered` needs a key"), "{refused}");
    assert!(read_all(backend).await.is_empty());
}

fn insert<'a>(envelopes: &'a [Envelope], locks: &'a [String]) -> Insert<'a> {
    Insert { tables: tables(), envelopes, locks, hot: None }
}

fn tables() -> &'static Tables {
    static TABLES: std::sync::OnceLock<Tables> = std::sync::OnceLock::new();
    TABLES.get_or_init(Tables::default)
}
