//! A row locked by another transaction delays that row only.

use std::time::Duration;

use pillarbox::store::{Budget, ClaimMode, Read, RowLease, ShardRead, Status, StoredEvent};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Envelope, EventId, Outbox, RelaySettings, Seq, Token};

use crate::fixture::{TestDatabase, free, keyed, next, relay, wait_for};
use crate::rows::{Gate, by_rows, patient};
use crate::telemetry::soon;

/// The number of events; all of them are delivered at a time.
const MANY: usize = 16;

fn events() -> Vec<Envelope> {
    (0..16).map(|number| if number < 8 { free(number) } else { keyed("k", number) }).collect()
}

/// The store says which rows are locked, without waiting for them.
pub(crate) async fn the_store_reports_locked_rows(db: &TestDatabase) {
    let ids = db.commit(&Outbox::new(), vec![free(1), keyed("k", 2), free(3)]).await;
    let store = db.store();
    let mut rows = Vec::new();
    for id in &ids {
        let StoredEvent { shard, seq, token, .. } = store.event(id).await.unwrap().unwrap();
        rows.push(RowLease { shard, seq, token });
    }
    assert_eq!(store.locked(&rows).await.unwrap(), []);

    let Some(lock) = db.lock_row(&ids[1]).await else { return };

    assert_eq!(store.locked(&rows).await.unwrap(), [rows[1].seq]);
    lock.release().await;
    assert_eq!(store.locked(&rows).await.unwrap(), []);
}

pub(crate) async fn a_locked_row_does_not_block_other_settles(db: &TestDatabase, claim: ClaimMode) {
    settle_around_a_lock(db, claim, Path::Table, 0).await;
}

pub(crate) async fn a_locked_row_does_not_block_settles_of_queued_events(db: &TestDatabase) {
    settle_around_a_lock(db, ClaimMode::Shards, Path::Memory, 0).await;
}

/// After a success the key goes on: the next event does not depend on the row.
pub(crate) async fn a_locked_row_does_not_block_the_next_of_its_key(db: &TestDatabase) {
    settle_around_a_lock(db, ClaimMode::Shards, Path::Table, 8).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Table,
    Memory,
}

/// Locks the row of an event that is being delivered, and lets all deliveries end.
async fn settle_around_a_lock(db: &TestDatabase, claim: ClaimMode, path: Path, locked: usize) {
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let settings = RelaySettings { claim, ..patient() };
    let relay = relay(db, gate.listeners()).settings(settings).observer(probe.clone());
    let outbox = if path == Path::Memory { relay.outbox() } else { Outbox::new() };
    let handle = relay.spawn().await.unwrap();
    let ids = db.commit(&outbox, events()).await;
    handle.wake();
    next(&mut starts, 9).await;
    let Some(lock) = db.lock_row(&ids[locked]).await else {
        gate.open(MANY);
        handle.stop().await.unwrap();
        return;
    };

    gate.open(MANY);

    for (at, id) in ids.iter().enumerate().filter(|(at, _)| *at != locked) {
        assert_eq!(db.event_with(id, Status::Done).await.attempts, 0, "event {at}");
    }
    let seen = soon(&probe, |seen| matches!(seen, RelayEvent::RowLocked { .. })).await;
    let RelayEvent::RowLocked { event_id, .. } = seen else { unreachable!("it was asked for") };
    assert_eq!(event_id, ids[locked].as_str());
    assert_eq!(status(db, &ids[locked]).await, Status::New);

    lock.release().await;

    db.event_with(&ids[locked], Status::Done).await;
    let summary = handle.stop().await.unwrap();
    assert_eq!((summary.abandoned, summary.left), (0, Some(0)));
    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::Delivered(_))), MANY);
    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::Fenced { .. })), 0);
}

async fn status(db: &TestDatabase, id: &EventId) -> Status {
    db.store().event(id).await.unwrap().unwrap().status
}

/// The leases of the other rows are renewed meanwhile, and its own after the lock is released.
pub(crate) async fn a_locked_row_does_not_block_renewals(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings {
        // A third of it is shorter than a wait for a lock may be.
        lease: Duration::from_secs(8),
        delivery_timeout: Duration::from_secs(7),
        ..by_rows()
    };
    let probe = Probe::new();
    let relay = relay(db, gate.listeners()).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    let ids = db.commit(&Outbox::new(), vec![free(1), free(2)]).await;
    handle.wake();
    next(&mut starts, 2).await;
    let lock = db.lock_row(&ids[0]).await;

    until_renewed(db, &ids[1]).await;

    if let Some(lock) = lock {
        lock.release().await;
    }
    until_renewed(db, &ids[0]).await;
    gate.open(2);
    handle.stop().await.unwrap();
}

/// Waits until the lease of a row is extended. A lease with another token belongs to another claim,
/// and is no renewal.
async fn until_renewed(db: &TestDatabase, id: &EventId) {
    let mut last = None;
    wait_for(async || {
        let now = lease(db, id).await?;
        let before: (Token, Duration) = last.replace(now).unwrap_or(now);
        (before.0 == now.0 && before.1 < now.1).then_some(())
    })
    .await;
}

/// The remaining time of a row's lease.
pub(crate) async fn due_in(db: &TestDatabase, id: &EventId) -> Duration {
    lease(db, id).await.unwrap().1
}

/// The token of a row and the remaining time of its lease. `None` if it waits.
async fn lease(db: &TestDatabase, id: &EventId) -> Option<(Token, Duration)> {
    let store = db.store();
    let StoredEvent { shard, seq, .. } = store.event(id).await.unwrap().unwrap();
    let shards = vec![ShardRead { shard, floor: Seq(seq.0 - 1) }];
    let read = Read { shards, limit: 1, budget: Budget::unlimited() };
    let rows = store.read(&read).await.unwrap();
    rows.iter().find(|row| row.seq == seq).map(|row| (row.token, row.due_in))
}
