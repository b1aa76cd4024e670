//! Rows that are inserted under a lease of their writer, and leave it only by a write.

use std::time::Duration;

use pillarbox::store::{Pending, RowLease, Status};
use pillarbox::tx::{Begin as _, Insert, Inserted, LocalLease, OpenTx as _};
use pillarbox::{Envelope, EventId, OwnerId, Tables, Token, Verdict};

use crate::backend::Backend;
use crate::conformance::claimer::Claimer;
use crate::conformance::owner::{
    HOUR, Owner, free, id_of, keyed, promote_all, read_all, row, status,
};

/// An insert returns the `seq` of leased rows in the order of their events; a delayed row has none.
pub async fn an_insert_returns_the_positions_of_leased_rows<B: Backend>(backend: &B) {
    let delayed = free().deliver_after(HOUR);
    let events = [free(), keyed("a"), free(), delayed, free()];

    let places = write(backend, &events, &OwnerId::generate()).await;

    let rows = read_all(backend).await;
    let place = |event: &Envelope| {
        let row = row(&rows, event.event_id());
        let occurred_at = row.event().unwrap().moment().unwrap();
        Some(Inserted { seq: row.seq, shard: row.shard, occurred_at, is_next: true })
    };
    let [first, _, third, _, fifth] = &events;
    assert_eq!(places, [place(first), None, place(third), None, place(fifth)]);
}

/// The same holds for a thousand in one call.
pub async fn many_leased_rows_keep_their_order<B: Backend>(backend: &B) {
    let events: Vec<Envelope> = (0..1200).map(|_| free()).collect();

    let places = write(backend, &events, &OwnerId::generate()).await;

    let rows = read_all(backend).await;
    assert_eq!(places.len(), 1200);
    for (event, place) in events.iter().zip(places) {
        assert_eq!(Some(row(&rows, event.event_id()).seq), place.map(|place| place.seq));
    }
}

/// Of an event with a key, whoever can tell says whether something of its key is before it: what
/// is pending, waits for its time or is held, and nothing else. What a statement writes itself is
/// not before it, or comes behind the first of it.
pub async fn an_event_with_a_key_knows_whether_it_is_next<B: Backend>(backend: &B) {
    let owner = OwnerId::generate();
    let hot = LocalLease { owner: &owner, length: HOUR, keyed: true };
    let first = write_leased(backend, &[keyed("a"), free(), keyed("b"), keyed("b")], hot).await;
    assert!(first[1].is_some_and(|place| place.is_next));
    let Some(place) = first[0] else {
        assert_eq!([first[2], first[3]], [None, None], "all of them, or none");
        return;
    };
    assert!(place.is_next && first[2].is_some_and(|place| place.is_next));

    let delayed = keyed("c").deliver_after(HOUR);
    let second = write_leased(backend, &[keyed("a"), keyed("d"), delayed], hot).await;
    let is_next = |row: Option<Inserted>| row.map(|row| row.is_next);
    assert_eq!(
        second.into_iter().map(is_next).collect::<Vec<_>>(),
        [Some(false), Some(true), None]
    );

    let rows = read_all(backend).await;
    let found = rows.iter().find(|row| row.seq == place.seq).unwrap();
    assert_eq!((found.token, found.due_in), (Token(0), Duration::ZERO), "no lease is on it");
    let third = write_leased(backend, &[keyed("c")], hot).await;
    assert_eq!(is_next(third[0]), Some(false), "behind one that waits for its time");
}

/// Final and rolled back events precede no other; held ones do.
pub async fn only_pending_and_held_events_precede_another<B: Backend>(backend: &B) {
    let (owner, relay) = (OwnerId::generate(), Owner::of_all(backend).await);
    let hot = LocalLease { owner: &owner, length: HOUR, keyed: true };
    let events = ["done", "dead", "held"].map(keyed);
    if write_leased(backend, &events, hot).await[0].is_none() {
        return;
    }
    let error = || pillarbox::ErrorText::new("no");
    relay.settle_event(events[0].event_id(), Verdict::Done).await;
    relay.settle_event(events[1].event_id(), Verdict::Dead { error: error() }).await;
    relay.settle_event(events[2].event_id(), Verdict::Held { error: error() }).await;
    let mut undone = backend.pool().begin().await.unwrap();
    let insert =
        Insert { tables: &Tables::default(), envelopes: &[keyed("undone")], locks: &[], hot: None };
    undone.insert(&insert).await.unwrap();
    undone.rollback().await.unwrap();

    let places = write_leased(backend, &["done", "dead", "held", "undone"].map(keyed), hot).await;

    let is_next = places.into_iter().map(|place| place.unwrap().is_next).collect::<Vec<_>>();
    assert_eq!(is_next, [true, true, false, true]);
}

/// A leased row is not due before its lease has run out, and keeps the token of its insert.
pub async fn a_row_born_leased_is_not_due_during_its_lease<B: Backend>(backend: &B) {
    let (event, keyed) = (free(), keyed("a"));
    write(backend, &[event.clone(), keyed.clone()], &OwnerId::generate()).await;

    let rows = read_all(backend).await;

    let hot = row(&rows, event.event_id());
    assert!(hot.due_in > HOUR / 2 && !hot.lapsed && !hot.is_early);
    assert_eq!(hot.token, LocalLease::TOKEN);
    let cold = row(&rows, keyed.event_id());
    assert_eq!((cold.due_in, cold.lapsed, cold.token), (Duration::ZERO, false, Token(0)));
}

/// A leased row whose lease has run out is due, and is marked to be reclaimed.
pub async fn a_lapsed_birth_lease_is_marked_lapsed<B: Backend>(backend: &B) {
    let (id, _) = write_one(backend, &OwnerId::generate()).await;

    backend.age(&id, HOUR * 2).await;

    let found = only(backend).await;
    assert!(found.lapsed);
    assert_eq!(found.due_in, Duration::ZERO);
}

/// The writer's verdict is fenced by its lease alone: it needs no shard.
pub async fn the_writer_settles_its_leased_row<B: Backend>(backend: &B) {
    let mut writer = Claimer::new(backend).await;
    writer.id = OwnerId::generate();
    let (id, _) = write_one(backend, &writer.id).await;

    let found = only(backend).await;
    assert_eq!(writer.settle_one(&found, Verdict::Done).await, [found.seq]);

    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A reclaimed row is free under another token: the late verdict of its writer does not count, that
/// of the shard's owner does.
pub async fn a_reclaimed_row_is_no_longer_its_writers<B: Backend>(backend: &B) {
    let writer = Claimer::new(backend).await;
    let (id, lease) = write_one(backend, &writer.id).await;
    backend.age(&id, HOUR * 2).await;
    let late = only(backend).await;

    assert_eq!(backend.store().reclaim(&[lease]).await.unwrap(), 1);

    let found = only(backend).await;
    assert_eq!((found.token, found.lapsed), (Token(2), false));
    assert!(writer.settle_one(&late, Verdict::Done).await.is_empty());
    assert_eq!(status(backend, &id).await, Some(Status::New));
    Owner::of_all(backend).await.settle_event(&id, Verdict::Done).await;
    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A lease that lasts is nobody's to end, and an old token frees nothing.
pub async fn only_a_lapsed_lease_is_reclaimed<B: Backend>(backend: &B) {
    let (id, lease) = write_one(backend, &OwnerId::generate()).await;
    let store = backend.store();
    assert_eq!(store.reclaim(&[lease]).await.unwrap(), 0);

    backend.age(&id, HOUR * 2).await;

    assert_eq!(store.reclaim(&[RowLease { token: Token(7), ..lease }]).await.unwrap(), 0);
    assert_eq!(store.reclaim(&[]).await.unwrap(), 0);
    assert_eq!(store.reclaim(&[lease, lease]).await.unwrap(), 1);
    assert_eq!(store.reclaim(&[lease]).await.unwrap(), 0, "its token has moved on");
}

/// A row that failed under its writer's lease has no lease from then on.
pub async fn a_failed_row_loses_its_birth_lease<B: Backend>(backend: &B) {
    let writer = Claimer::new(backend).await;
    let (id, _) = write_one(backend, &writer.id).await;
    let found = only(backend).await;

    let error = pillarbox::ErrorText::new("closed");
    let delay = Duration::ZERO;
    assert_eq!(writer.settle_one(&found, Verdict::Retry { delay, error }).await.len(), 1);

    assert_eq!(status(backend, &id).await, Some(Status::Waiting));
    promote_all(backend).await;
    let again = only(backend).await;
    assert_eq!((again.status, again.attempts, again.lapsed), (Status::New, 1, false));
    assert_eq!(again.due_in, Duration::ZERO);
}

async fn write_one<B: Backend>(backend: &B, owner: &OwnerId) -> (EventId, RowLease) {
    let event = free();
    let places = write(backend, std::slice::from_ref(&event), owner).await;
    let Inserted { seq, shard, .. } = places[0].unwrap();
    (event.event_id().clone(), RowLease { shard, seq, token: LocalLease::TOKEN })
}

async fn write<B: Backend>(
    backend: &B,
    envelopes: &[Envelope],
    owner: &OwnerId,
) -> Vec<Option<Inserted>> {
    write_leased(backend, envelopes, LocalLease { owner, length: HOUR, keyed: false }).await
}

async fn write_leased<B: Backend>(
    backend: &B,
    envelopes: &[Envelope],
    hot: LocalLease<'_>,
) -> Vec<Option<Inserted>> {
    let (mut tx, hot) = (backend.pool().begin().await.unwrap(), Some(hot));
    let places = tx
        .insert(&Insert { tables: &Tables::default(), envelopes, locks: &[], hot })
        .await
        .unwrap();
    tx.commit().await.unwrap();
    places
}

async fn only<B: Backend>(backend: &B) -> Pending {
    let mut rows = read_all(backend).await;
    assert_eq!(rows.len(), 1, "{:?}", rows.iter().map(id_of).collect::<Vec<_>>());
    rows.remove(0)
}
