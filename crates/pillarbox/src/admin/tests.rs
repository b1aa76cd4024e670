//! The operator's walk, on a store whose clock the test turns.

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
    Ownership as _, Read, Schema as _, Settle, Settlement, ShardRead, Status,
};
use crate::verdict::{ErrorText, Verdict};

/// Two full pages and a half.
const MANY: usize = 2 * MAX_BATCH + MAX_BATCH / 2;

#[derive(Clone, Debug)]
struct Turned(Arc<Mutex<Timestamp>>);

impl Clock for Turned {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

struct Place {
    store: MemoryStore,
    clock: Turned,
    owner: OwnerId,
    held: Vec<OwnedShard>,
}

impl Place {
    async fn new() -> Self {
        let clock = Turned(Arc::new(Mutex::new(SystemClock.now())));
        let store = MemoryStore::with_clock(clock.clone());
        let owner = OwnerId::generate();
        let length = Duration::from_secs(86_400);
        let lease = Lease { owner: owner.clone(), length, wants: u16::MAX };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let take = AcquireShards { owner: owner.clone(), most: u16::MAX, owned: Vec::new() };
        let held = store.acquire_shards(&take).await.unwrap();
        Self { store, clock, owner, held }
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

    /// Gives events up, a second after whatever was before.
    async fn give_up(&self, ids: &[EventId], verdict: &Verdict) {
        let later = self.clock.now().saturating_add(Duration::from_secs(1));
        *self.clock.0.lock().unwrap() = later;
        let shards = self.held.iter().map(|it| ShardRead { shard: it.shard, floor: Seq::START });
        let (shards, budget) = (shards.collect(), Budget::unlimited());
        let read = Read { shards, limit: u32::MAX, budget };
        let wanted: HashSet<&EventId> = ids.iter().collect();
        let mut settlements = Vec::new();
        for row in self.store.read(&read).await.unwrap() {
            if wanted.contains(row.event().unwrap().event_id()) {
                let holding = self.held.iter().find(|it| it.shard == row.shard).unwrap();
                settlements.push(Settlement {
                    shard: row.shard,
                    epoch: holding.epoch,
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
        self.give_up(&ids, &dead()).await;
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
        trail.iter().filter(|line| line.action == Action::Replay.as_str()).count()
    }
}

fn dead() -> Verdict {
    Verdict::Dead { error: ErrorText::new("no such customer") }
}

#[tokio::test]
async fn what_dies_again_meanwhile_is_not_replayed_twice() {
    let place = Place::new().await;
    let ids = place.emit_dead(MANY, "mail.sent").await;
    let mut walk = place.admin().operate_matching(Action::Replay, Filter::default());

    let mut last = Progress::default();
    while let Some(progress) = walk.step().await.unwrap() {
        assert!(progress.matched <= MANY as u64, "it came across an event again: {progress:?}");
        let fresh = place.with_status(Status::New, &ids).await;
        place.give_up(&fresh, &dead()).await;
        last = progress;
    }

    assert_eq!(last, Progress { matched: MANY as u64, changed: MANY as u64 });
    for id in [&ids[0], &ids[MAX_BATCH], &ids[MANY - 1]] {
        assert_eq!(place.replays_of(id).await, 1, "{id}");
    }
    assert_eq!(place.with_status(Status::Dead, &ids).await.len(), MANY);
}

#[tokio::test]
async fn a_walk_that_is_cut_short_is_finished_by_another() {
    let place = Place::new().await;
    let ids = place.emit(MANY, "mail.sent").await;
    let (younger, older) = ids.split_at(MANY - MAX_BATCH);
    place.give_up(older, &dead()).await;
    place.give_up(younger, &dead()).await;
    let walk = || place.admin().operate_matching(Action::Replay, Filter::default());

    walk().step().await.unwrap();

    assert_eq!(place.with_status(Status::New, &ids).await, older, "the oldest come first");
    assert_eq!(walk().run().await.unwrap().changed, (MANY - MAX_BATCH) as u64);
    assert_eq!(place.with_status(Status::New, &ids).await, ids);
    for id in [&ids[0], &ids[MANY - 1]] {
        assert_eq!(place.replays_of(id).await, 1, "{id}");
    }
}

#[tokio::test]
async fn only_what_matches_is_touched() {
    let place = Place::new().await;
    let mails = place.emit_dead(3, "mail.sent").await;
    let orders = place.emit_dead(2, "order.placed").await;
    let filter = Filter { event_type: Some("mail.sent".into()), ..Filter::default() };

    let walk = place.admin().operate_matching(Action::Discard, filter);
    let discarded = walk.by("ana").unwrap().reason("sent by hand").unwrap().run().await.unwrap();

    assert_eq!(discarded, Progress { matched: 3, changed: 3 });
    assert!(place.store.event(&mails[0]).await.unwrap().is_none());
    assert_eq!(place.with_status(Status::Dead, &orders).await, orders);
    let trail = place.admin().audit_trail(&mails[0]).await.unwrap();
    let line = trail.last().unwrap();
    assert_eq!(line.action, Action::Discard.as_str());
    assert_eq!((line.by.as_deref(), line.reason.as_deref()), (Some("ana"), Some("sent by hand")));
}

#[tokio::test]
async fn only_what_is_held_is_skipped() {
    let place = Place::new().await;
    let dead_ones = place.emit_dead(2, "mail.sent").await;
    let held_ones = place.emit(2, "mail.sent").await;
    let held = Verdict::Held { error: ErrorText::new("no such customer") };
    place.give_up(&held_ones, &held).await;
    let mut walk = place.admin().operate_matching(Action::Skip, Filter::default());

    assert_eq!(walk.step().await.unwrap(), Some(Progress { matched: 2, changed: 2 }));

    assert_eq!(walk.step().await.unwrap(), None);
    assert_eq!(place.with_status(Status::Dead, &held_ones).await, held_ones);
    assert_eq!(place.admin().audit_trail(&dead_ones[0]).await.unwrap().len(), 1, "it only died");
}

#[tokio::test]
async fn any_number_of_events_is_operated_on_each_once() {
    let place = Place::new().await;
    let ids = place.emit_dead(MANY, "mail.sent").await;
    let twice = ids.iter().chain(&ids).cloned();

    let replayed = place.admin().operate(Operation::replay(twice)).await.unwrap();

    assert_eq!(replayed.matched, MANY as u64);
    let replayed: Vec<String> = replayed.changed.into_iter().map(|it| it.event_id).collect();
    assert_eq!(replayed, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(place.admin().count(&Filter::default()).await.unwrap(), 0);
    assert_eq!(place.replays_of(&ids[0]).await, 1);
}

#[tokio::test]
async fn where_nothing_matches_nothing_is_done() {
    let place = Place::new().await;
    let ids = place.emit(1, "mail.sent").await;
    let mut walk = place.admin().operate_matching(Action::Replay, Filter::default());

    assert_eq!(walk.step().await.unwrap(), None);

    assert_eq!(place.with_status(Status::New, &ids).await, ids);
}

#[tokio::test]
async fn what_matched_and_was_not_changed_is_counted() {
    let place = Place::new().await;
    let ids = place.emit_dead(3, "mail.sent").await;

    let skipped = place.admin().operate(Operation::skip(ids)).await.unwrap();
    let unknown = place.admin().operate(Operation::skip([EventId::generate()])).await.unwrap();

    assert_eq!(skipped, Operated { matched: 3, changed: Vec::new() });
    assert_eq!(unknown, Operated::default());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_event_whose_id_is_none_is_replayed_too() {
    let store = crate::SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    let foreign = "insert into outbox_event (event_id, event_type, payload, status, done_at)
        values ('a b', 'mail.sent', '7', 3, 1), ('ab', 'mail.sent', '7', 3, 2)";
    sqlx::query(foreign).execute(store.pool()).await.unwrap();
    let mut walk = Admin::new(store).operate_matching(Action::Replay, Filter::default());

    assert_eq!(walk.step().await.unwrap(), Some(Progress { matched: 2, changed: 2 }));

    assert_eq!(walk.step().await.unwrap(), None);
}
