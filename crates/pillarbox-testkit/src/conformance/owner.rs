//! Events to emit, and an owner that reads and settles, for all cases.

use std::{collections::HashSet, sync::Arc, time::Duration};

use pillarbox::store::{
    AcquireShards, Budget, DeliveryMode, Due, Join, Lease, Operation, OwnedShard, Pending, Promote,
    Read, Renewal, Settle, Settled, Settlement, ShardRead, Status, StoredEvent,
};
use pillarbox::{Envelope, ErrorText, EventId, Key, Outbox, OwnerId, Seq, ShardId, Store, Verdict};

use crate::backend::{Backend, from_head};

/// Longer than any case: leases end only where a case lets them.
pub(crate) const LEASE: Duration = Duration::from_secs(86_400);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// More than any case emits.
pub(crate) const ALL: u32 = 10_000;

/// An event that is ordered by this key.
pub(crate) fn keyed(key: &str) -> Envelope {
    Envelope::json("order.placed", key).unwrap().key(Key::Given(key.to_owned())).unwrap()
}

/// An event that is ordered by nothing.
pub(crate) fn free() -> Envelope {
    Envelope::json("mail.sent", &7).unwrap()
}

/// Commits events in one transaction, in this order.
pub(crate) async fn emit<B: Backend>(
    backend: &B,
    envelopes: impl IntoIterator<Item = Envelope>,
) -> Vec<EventId> {
    let mut ids = Vec::new();
    let mut tx = Outbox::new().begin(backend.pool()).await.unwrap();
    for envelope in envelopes {
        ids.extend(tx.emit_envelope(envelope).await.unwrap());
    }
    tx.commit().await.unwrap();
    ids
}

/// Commits one event.
pub(crate) async fn emit_one<B: Backend>(backend: &B, envelope: Envelope) -> EventId {
    emit(backend, [envelope]).await.remove(0)
}

/// The status of an event; `None` when it does not exist.
pub(crate) async fn status<B: Backend>(backend: &B, id: &EventId) -> Option<Status> {
    backend.store().event(id).await.unwrap().map(|stored| stored.status)
}

/// The row of an event, whatever its status.
pub(crate) async fn stored<B: Backend>(backend: &B, id: &EventId) -> StoredEvent {
    let stored = backend.store().event(id).await.unwrap();
    stored.unwrap_or_else(|| panic!("event {id} is not there"))
}

/// The `seq` of events. Blocked rows may come without their event, and are found by these.
pub(crate) async fn seqs_of<B: Backend>(backend: &B, ids: &[EventId]) -> Vec<Seq> {
    let mut seqs = Vec::new();
    for id in ids {
        seqs.push(stored(backend, id).await.seq);
    }
    seqs
}

/// All shards that the store has.
pub(crate) async fn shards(store: &dyn Store) -> Vec<ShardId> {
    let count = store.config().await.unwrap().shards.get();
    (0..i16::try_from(count).unwrap()).map(ShardId).collect()
}

/// Reads every shard from its head.
pub(crate) async fn read_all<B: Backend>(backend: &B) -> Vec<Pending> {
    read_above(backend, Seq::START).await
}

/// Reads every shard above this floor.
pub(crate) async fn read_above<B: Backend>(backend: &B, floor: Seq) -> Vec<Pending> {
    let store = backend.store();
    let shards = shards(&*store).await;
    let shards = shards.into_iter().map(|shard| ShardRead { shard, floor }).collect();
    store.read(&Read { shards, limit: ALL, budget: Budget::unlimited() }).await.unwrap()
}

/// Makes every waiting row new whose time has come.
pub(crate) async fn promote_all<B: Backend>(backend: &B) -> Due {
    let store = backend.store();
    let shards = shards(&*store).await;
    store.promote(&Promote { shards, limit: ALL }).await.unwrap()
}

/// The time until the next waiting row is due; none is due now.
pub(crate) async fn next_wait<B: Backend>(backend: &B) -> Duration {
    let due = promote_all(backend).await;
    assert!(due.rows.is_empty(), "{:?}", due.rows);
    due.next.expect("a row waits")
}

/// Emits events that wait and whose time has come: a first attempt at each failed.
pub(crate) async fn emit_due<B: Backend>(
    backend: &B,
    envelopes: impl IntoIterator<Item = Envelope>,
) -> Vec<EventId> {
    let ids = emit(backend, envelopes).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let failed = ids.iter().map(|id| owner.settlement(row(&rows, id), retry(Duration::ZERO)));
    assert_eq!(owner.settle(failed.collect()).await.applied.len(), ids.len());
    owner.store.leave(&owner.id).await.unwrap();
    ids
}

/// The row of an event among those that were read.
pub(crate) fn row<'r>(rows: &'r [Pending], id: &EventId) -> &'r Pending {
    find(rows, id).unwrap_or_else(|| panic!("event {id} was not read"))
}

/// The row of an event, if it was read.
pub(crate) fn find<'r>(rows: &'r [Pending], id: &EventId) -> Option<&'r Pending> {
    rows.iter().find(|row| row.event().is_some_and(|event| event.event_id() == id))
}

/// The event id of a row.
pub(crate) fn id_of(row: &Pending) -> &EventId {
    row.event().unwrap().event_id()
}

/// Makes dead letters new again; says how many there were.
pub(crate) async fn replay(store: &dyn Store, ids: &[EventId]) -> usize {
    store.operate(&Operation::replay(ids.iter().cloned())).await.unwrap().changed.len()
}

pub(crate) fn retry(delay: Duration) -> Verdict {
    Verdict::Retry { delay, error: ErrorText::new("socket closed") }
}

pub(crate) fn dead() -> Verdict {
    Verdict::Dead { error: ErrorText::new("no such customer") }
}

pub(crate) fn held() -> Verdict {
    Verdict::Held { error: ErrorText::new("no such customer") }
}

/// An owner of shards that a test controls.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: OwnerId,
    pub(crate) owned: Vec<OwnedShard>,
}

impl Owner {
    /// An owner that nobody knows yet.
    pub(crate) fn unknown<B: Backend>(backend: &B) -> Self {
        Self { store: backend.store(), id: OwnerId::generate(), owned: Vec::new() }
    }

    /// An owner with a lease and no shards.
    pub(crate) async fn joined<B: Backend>(backend: &B) -> Self {
        let owner = Self::unknown(backend);
        owner.store.join(&owner.entry()).await.unwrap();
        owner
    }

    /// An owner of every shard that is free.
    pub(crate) async fn of_all<B: Backend>(backend: &B) -> Self {
        let mut owner = Self::joined(backend).await;
        owner.acquire(u16::MAX).await;
        owner
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease { owner: self.id.clone(), length: LEASE, wants: u16::MAX }
    }

    /// The join of this owner, on tables in their default mode.
    pub(crate) fn entry(&self) -> Join {
        Join { lease: self.lease(), mode: DeliveryMode::default() }
    }

    pub(crate) async fn renew(&self) -> Renewal {
        self.store.renew(&self.lease()).await.unwrap()
    }

    /// Acquires shards and returns the new ones.
    pub(crate) async fn acquire(&mut self, most: u16) -> Vec<OwnedShard> {
        let owned = self.owned.iter().map(|shard| shard.shard).collect();
        let take = AcquireShards { owner: self.id.clone(), most, owned };
        let taken = self.store.acquire_shards(&take).await.unwrap();
        self.owned.extend(&taken);
        taken
    }

    pub(crate) async fn release(&self, owned: &[OwnedShard]) -> u64 {
        self.store.release(&self.id, owned).await.unwrap()
    }

    /// Reads its shards from their heads.
    pub(crate) async fn read(&self) -> Vec<Pending> {
        let shards = self.owned.iter().map(|shard| from_head(shard.shard)).collect();
        self.store.read(&Read { shards, limit: ALL, budget: Budget::unlimited() }).await.unwrap()
    }

    /// A verdict on a row, fenced by the epoch of its shard.
    pub(crate) fn settlement(&self, row: &Pending, verdict: Verdict) -> Settlement {
        let shard = self.owned.iter().find(|shard| shard.shard == row.shard);
        Settlement {
            shard: row.shard,
            epoch: shard.expect("the shard is owned").epoch,
            seq: row.seq,
            token: row.token,
            verdict,
            settled_by: Some("mailer".to_owned()),
        }
    }

    pub(crate) async fn settle(&self, settlements: Vec<Settlement>) -> Settled {
        self.store.settle(&Settle { owner: self.id.clone(), settlements }).await.unwrap()
    }

    /// Settles one row.
    pub(crate) async fn settle_one(&self, row: &Pending, verdict: Verdict) -> Settled {
        self.settle(vec![self.settlement(row, verdict)]).await
    }

    /// Makes the rows of its shards new whose time has come.
    pub(crate) async fn promote(&self) -> Due {
        let shards = self.owned.iter().map(|shard| shard.shard).collect();
        self.store.promote(&Promote { shards, limit: ALL }).await.unwrap()
    }

    /// Reads one event, as soon as its time has come, and settles it.
    pub(crate) async fn settle_event(&self, id: &EventId, verdict: Verdict) {
        self.promote().await;
        let rows = self.read().await;
        let settled = self.settle_one(row(&rows, id), verdict).await;
        assert_eq!(settled.applied.len(), 1, "the verdict on {id} was not written: {settled:?}");
    }
}

/// The ids of these shards, to compare sets of them.
pub(crate) fn shards_of(owned: &[OwnedShard]) -> HashSet<ShardId> {
    owned.iter().map(|shard| shard.shard).collect()
}
