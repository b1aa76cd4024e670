//! A row that somebody's idle transaction has locked costs that row, and nothing else.

use std::time::Duration;

use pillarbox::observe::{Happening, Probe};
use pillarbox::store::{Budget, ClaimMode, Read, RowLease, ShardRead, Status, StoredEvent};
use pillarbox::{Envelope, EventId, Outbox, RelaySettings, Seq, Token};

use crate::fixture::{Place, free, keyed, next, relay, wait_for};
use crate::observe::soon;
use crate::rows::{Gate, by_rows, patient};

/// How many events there are; as many are delivered at a time.
const MANY: usize = 16;

fn shards() -> RelaySettings {
    RelaySettings { claim: ClaimMode::Shards, ..patient() }
}

fn events() -> Vec<Envelope> {
    (0..16).map(|number| if number < 8 { free(number) } else { keyed("k", number) }).collect()
}

/// The store says which rows are locked, without waiting for them.
pub(crate) async fn locked_rows_are_named(place: &Place) {
    let ids = place.commit(&Outbox::new(), vec![free(1), keyed("k", 2), free(3)]).await;
    let store = place.store();
    let mut rows = Vec::new();
    for id in &ids {
        let StoredEvent { shard, seq, token, .. } = store.event(id).await.unwrap().unwrap();
        rows.push(RowLease { shard, seq, token });
    }
    assert_eq!(store.locked(&rows).await.unwrap(), []);

    let Some(lock) = place.lock_row(&ids[1]).await else { return };

    assert_eq!(store.locked(&rows).await.unwrap(), [rows[1].seq]);
    lock.release().await;
    assert_eq!(store.locked(&rows).await.unwrap(), []);
}

pub(crate) async fn it_keeps_no_other_from_being_settled(place: &Place) {
    settle_around_a_lock(place, shards(), Path::Table, 0).await;
}

pub(crate) async fn it_keeps_no_other_from_being_settled_by_rows(place: &Place) {
    settle_around_a_lock(place, by_rows(), Path::Table, 0).await;
}

pub(crate) async fn it_keeps_no_other_from_memory_from_being_settled(place: &Place) {
    settle_around_a_lock(place, shards(), Path::Memory, 0).await;
}

/// Its key goes on after a success: what follows does not depend on the row.
pub(crate) async fn it_keeps_no_follower_from_being_settled(place: &Place) {
    settle_around_a_lock(place, shards(), Path::Table, 8).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Table,
    Memory,
}

/// Locks the row of an event that is being delivered, and lets all deliveries end.
async fn settle_around_a_lock(place: &Place, settings: RelaySettings, path: Path, locked: usize) {
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let relay = relay(place, gate.listeners()).settings(settings).observer(probe.clone());
    let outbox = if path == Path::Memory { relay.outbox() } else { Outbox::new() };
    let handle = relay.spawn().await.unwrap();
    let ids = place.commit(&outbox, events()).await;
    handle.wake();
    next(&mut starts, 9).await;
    let Some(lock) = place.lock_row(&ids[locked]).await else {
        gate.open(MANY);
        handle.stop().await.unwrap();
        return;
    };

    gate.open(MANY);

    for (at, id) in ids.iter().enumerate().filter(|(at, _)| *at != locked) {
        assert_eq!(place.event_with(id, Status::Done).await.attempts, 0, "event {at}");
    }
    let seen = soon(&probe, |seen| matches!(seen, Happening::RowLocked { .. })).await;
    let Happening::RowLocked { event_id, .. } = seen else { unreachable!("it was asked for") };
    assert_eq!(event_id, ids[locked].as_str());
    assert_eq!(status(place, &ids[locked]).await, Status::New);

    lock.release().await;

    place.event_with(&ids[locked], Status::Done).await;
    let summary = handle.stop().await.unwrap();
    assert_eq!((summary.abandoned, summary.left), (0, Some(0)));
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Delivered(_))), MANY);
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Fenced { .. })), 0);
}

async fn status(place: &Place, id: &EventId) -> Status {
    place.store().event(id).await.unwrap().unwrap().status
}

/// The leases of the other rows are renewed meanwhile, and its own when the lock is gone.
pub(crate) async fn it_keeps_no_other_lease_from_being_renewed(place: &Place) {
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings {
        // A third of it is less than a wait for a lock may take.
        lease: Duration::from_secs(8),
        delivery_timeout: Duration::from_secs(7),
        ..by_rows()
    };
    let probe = Probe::new();
    let relay = relay(place, gate.listeners()).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    let ids = place.commit(&Outbox::new(), vec![free(1), free(2)]).await;
    handle.wake();
    next(&mut starts, 2).await;
    let lock = place.lock_row(&ids[0]).await;

    until_renewed(place, &ids[1]).await;

    if let Some(lock) = lock {
        lock.release().await;
    }
    until_renewed(place, &ids[0]).await;
    gate.open(2);
    handle.stop().await.unwrap();
}

/// Waits until more is left of the lease of a row than before. Under another token it is another
/// claim's, which is no renewal.
async fn until_renewed(place: &Place, id: &EventId) {
    let mut last = None;
    wait_for(async || {
        let now = lease(place, id).await?;
        let before: (Token, Duration) = last.replace(now).unwrap_or(now);
        (before.0 == now.0 && before.1 < now.1).then_some(())
    })
    .await;
}

/// How long the lease of a row still runs.
pub(crate) async fn due_in(place: &Place, id: &EventId) -> Duration {
    lease(place, id).await.unwrap().1
}

/// The token of a row, and how long its lease still runs; `None` while it waits.
async fn lease(place: &Place, id: &EventId) -> Option<(Token, Duration)> {
    let store = place.store();
    let StoredEvent { shard, seq, .. } = store.event(id).await.unwrap().unwrap();
    let shards = vec![ShardRead { shard, floor: Seq(seq.0 - 1) }];
    let read = Read { shards, limit: 1, budget: Budget::unlimited() };
    let rows = store.read(&read).await.unwrap();
    rows.iter().find(|row| row.seq == seq).map(|row| (row.token, row.due_in))
}
