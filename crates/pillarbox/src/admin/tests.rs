//! Operations on dead letters, on a store whose clock the test advances.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::envelope::Envelope;
use crate::id::{OwnerId, Seq};
use crate::outbox::Outbox;
use crate::store::memory::MemoryStore;
use crate::store::{
    AcquireShards, Budget, DeliveryMode, Events as _, Join, Lease, Operations as _, OwnedShard,
    Ownership as _, Read, Settle, Settlement, ShardRead, Status,
};
use crate::verdict::{ErrorText, Verdict};

/// Two and a half pages.
const MANY: usize = 2 * MAX_BATCH + MAX_BATCH / 2;

#[derive(Clone, Debug)]
struct TestClock(Arc<Mutex<Timestamp>>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

struct Fixture {
    store: MemoryStore,
    clock: TestClock,
    owner: OwnerId,
    shards: Vec<OwnedShard>,
}

impl Fixture {
    async fn new() -> Self {
        let clock = TestClock(Arc::new(Mutex::new(SystemClock.now())));
        let store = MemoryStore::with_clock(clock.clone());
        let owner = OwnerId::generate();
        let length = Duration::from_secs(86_400);
        let lease = Lease { owner: owner.clone(), length, wants: u16::MAX };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let acquire = AcquireShards { owner: owner.clone(), most: u16::MAX, owned: Vec::new() };
        let shards = store.acquire_shards(&acquire).await.unwrap();
        Self { store, clock, owner, shards }
    }

    fn admin(&self) -> Admin {
        Admin::new(self.store.clone())
    }

    async fn emit(&self, count: usize, event_type: &'static str) -> Vec<EventId> {
        let mut ids = Vec::new();
        let mut tx = Outbox::new().begin(&self.store).await.unwrap();
        for _ in 0..count {
            let envelope = Envelope::json(event_type, &7).unwrap();
            ids.extend(tx.emit_envelope(envelope).await.unwrap());
        }
        tx.commit().await.unwrap();
        ids
    }

    /// Settles events with a verdict, one second later.
    async fn settle(&self, ids: &[EventId], verdict: &Verdict) {
        let later = self.clock.now().saturating_add(Duration::from_secs(1));
        *self.clock.0.lock().unwrap() = later;
        let shards = self.shards.iter().map(|it| ShardRead { shard: it.shard, floor: Seq::START });
        let (shards, budget) = (shards.collect(), Budget::unlimited());
        let read = Read { shards, limit: u32::MAX, budget };
        let wanted: HashSet<&EventId> = ids.iter().collect();
        let mut settlements = Vec::new();
        for row in self.store.read(&read).await.unwrap() {
            if wanted.contains(row.event().unwrap().event_id()) {
                let owned = self.shards.iter().find(|it| it.shard == row.shard).unwrap();
                settlements.push(Settlement {
                    shard: row.shard,
                    epoch: owned.epoch,
                    seq: row.seq,
                    token: row.token,
                    verdict: verdict.clone(),
                    settled_by: None,
                });
            }
        }
        let settle = Settle { owner: self.owner.clone(), settlements };
        assert_eq!(self.store.settle(&settle).await.unwrap().applied.len(), ids.len());
    }

    async fn emit_dead(&self, count: usize, event_type: &'static str) -> Vec<EventId> {
        let ids = self.emit(count, event_type).await;
        self.settle(&ids, &dead()).await;
        ids
    }

    async fn with_status(&self, status: Status, ids: &[EventId]) -> Vec<EventId> {
        let mut found = Vec::new();
        for id in ids {
            if self.store.event(id).await.unwrap().is_some_and(|event| event.status == status) {
                found.push(id.clone());
            }
        }
        found
    }

    async fn replays_of(&self, id: &EventId) -> usize {
        let trail = self.store.audit_trail(id.as_str()).await.unwrap();
        trail.iter().filter(|entry| entry.action == Action::Replay.as_str()).count()
    }
}

fn dead() -> Verdict {
    Verdict::Dead { error: ErrorText::new("no such customer") }
}

#[tokio::test]
async fn an_event_that_dies_again_is_not_replayed_twice() {
    let fixture = Fixture::new().await;
    let ids = fixture.emit_dead(MANY, "mail.sent").await;
    let mut operation = fixture.admin().operate_matching(Action::Replay, Filter::default());

    let mut last = Progress::default();
    while let Some(progress) = operation.step().await.unwrap() {
        assert!(progress.matched <= MANY as u64, "an event was processed twice: {progress:?}");
        let fresh = fixture.with_status(Status::New, &ids).await;
        fixture.settle(&fresh, &dead()).await;
        last = progress;
    }

    assert_eq!(last, Progress { matched: MANY as u64, changed: MANY as u64 });
    for id in [&ids[0], &ids[MAX_BATCH], &ids[MANY - 1]] {
        assert_eq!(fixture.replays_of(id).await, 1, "{id}");
    }
    assert_eq!(fixture.with_status(Status::Dead, &ids).await.len(), MANY);
}

#[tokio::test]
async fn an_interrupted_operation_is_finished_by_another() {
    let fixture = Fixture::new().await;
    let ids = fixture.emit(MANY, "mail.sent").await;
    let (younger, older) = ids.split_at(MANY - MAX_BATCH);
    fixture.settle(older, &dead()).await;
    fixture.settle(younger, &dead()).await;
    let operation = || fixture.admin().operate_matching(Action::Replay, Filter::default());

    operation().step().await.unwrap();

    assert_eq!(fixture.with_status(Status::New, &ids).await, older, "the oldest come first");
    assert_eq!(operation().run().await.unwrap().changed, (MANY - MAX_BATCH) as u64);
    assert_eq!(fixture.with_status(Status::New, &ids).await, ids);
    for id in [&ids[0], &ids[MANY - 1]] {
        assert_eq!(fixture.replays_of(id).await, 1, "{id}");
    }
}

#[tokio::test]
async fn only_matching_events_are_changed() {
    let fixture = Fixture::new().await;
    let mails = fixture.emit_dead(3, "mail.sent").await;
    let orders = fixture.emit_dead(2, "order.placed").await;
    let filter = Filter { event_type: Some("mail.sent".into()), ..Filter::default() };

    let operation = fixture.admin().operate_matching(Action::Discard, filter);
    let discarded =
        operation.by("ana").unwrap().reason("sent manually").unwrap().run().await.unwrap();

    assert_eq!(discarded, Progress { matched: 3, changed: 3 });
    assert!(fixture.store.event(&mails[0]).await.unwrap().is_none());
    assert_eq!(fixture.with_status(Status::Dead, &orders).await, orders);
    let trail = fixture.admin().audit_trail(&mails[0]).await.unwrap();
    let entry = trail.last().unwrap();
    assert_eq!(entry.action, Action::Discard.as_str());
    assert_eq!(
        (entry.by.as_deref(), entry.reason.as_deref()),
        (Some("ana"), Some("sent manually"))
    );
}

#[tokio::test]
async fn only_held_events_are_skipped() {
    let fixture = Fixture::new().await;
    let dead_ones = fixture.emit_dead(2, "mail.sent").await;
    let held_ones = fixture.emit(2, "mail.sent").await;
    let held = Verdict::Held { error: ErrorText::new("no such customer") };
    fixture.settle(&held_ones, &held).await;
    let mut operation = fixture.admin().operate_matching(Action::Skip, Filter::default());

    assert_eq!(operation.step().await.unwrap(), Some(Progress { matched: 2, changed: 2 }));

    assert_eq!(operation.step().await.unwrap(), None);
    assert_eq!(fixture.with_status(Status::Dead, &held_ones).await, held_ones);
    assert_eq!(fixture.admin().audit_trail(&dead_ones[0]).await.unwrap().len(), 1, "it only died");
}

#[tokio::test]
async fn any_number_of_events_is_changed_once_each() {
    let fixture = Fixture::new().await;
    let ids = fixture.emit_dead(MANY, "mail.sent").await;
    let twice = ids.iter().chain(&ids).cloned();

    let replayed = fixture.admin().operate(Operation::replay(twice)).await.unwrap();

    assert_eq!(replayed.matched, MANY as u64);
    let replayed: Vec<String> = replayed.changed.into_iter().map(|it| it.event_id).collect();
    assert_eq!(replayed, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(fixture.admin().count(&Filter::default()).await.unwrap(), 0);
    assert_eq!(fixture.replays_of(&ids[0]).await, 1);
}

#[tokio::test]
async fn without_a_match_nothing_is_changed() {
    let fixture = Fixture::new().await;
    let ids = fixture.emit(1, "mail.sent").await;
    let mut operation = fixture.admin().operate_matching(Action::Replay, Filter::default());

    assert_eq!(operation.step().await.unwrap(), None);

    assert_eq!(fixture.with_status(Status::New, &ids).await, ids);
}

#[tokio::test]
async fn matches_that_were_not_changed_are_counted() {
    let fixture = Fixture::new().await;
    let ids = fixture.emit_dead(3, "mail.sent").await;

    let skipped = fixture.admin().operate(Operation::skip(ids)).await.unwrap();
    let unknown = fixture.admin().operate(Operation::skip([EventId::generate()])).await.unwrap();

    assert_eq!(skipped, Operated { matched: 3, changed: Vec::new() });
    assert_eq!(unknown, Operated::default());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_event_with_an_invalid_id_is_replayed_too() {
    let store = crate::SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    let foreign = "insert into outbox_event (event_id, event_type, payload, status, done_at)
        values ('a b', 'mail.sent', '7', 3, 1), ('ab', 'mail.sent', '7', 3, 2)";
    sqlx::query(foreign).execute(store.pool()).await.unwrap();
    let mut operation = Admin::new(store).operate_matching(Action::Replay, Filter::default());

    assert_eq!(operation.step().await.unwrap(), Some(Progress { matched: 2, changed: 2 }));

    assert_eq!(operation.step().await.unwrap(), None);
}
