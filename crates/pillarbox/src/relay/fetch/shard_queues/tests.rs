//! The queues against the memory store under random schedules: every interleaving of commits,
//! reads, deliveries, settles, retries, holds, replays and hand-overs must lose nothing, deliver
//! nothing twice, and keep each key in order; with lost answers and lost shards, and with writers
//! that hand over late what they committed.

mod heads;
mod large;
mod registered;
mod rows;
mod slow_routes;
mod step;
mod writers;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::{Clock, Timestamp, instant};
use crate::envelope::Envelope;
use crate::event::Key;
use crate::id::{EventId, OwnerId, Token};
use crate::local_queue::{Handover, LocalQueue, LocalReceiver, LocalRelay, Message, OwnedShards};
use crate::relay::dispatch::fair_share::{FairShare, RouteId};
use crate::relay::fetch::memory::Limits;
use crate::relay::fetch::shard_queues::tests::step::{Step, steps};
use crate::relay::fetch::shard_reader::Page;
use crate::store::memory::{MemoryStore, MemoryTx};
use crate::store::{
    AcquireShards, Budget, DeliveryMode, Join, Lease, Operation, Operations as _, OwnedShard,
    Ownership as _, Promote, Settle, Settled, Settlement, ShardOrigin, ShardRead, Statistics as _,
    Status,
};
use crate::table::Tables;
use crate::telemetry::Observers;
use crate::tx::{Insert, OpenTx, Tx};
use crate::verdict::{ErrorText, Verdict};

const KEYS: usize = 8;
/// Few, so that shards have a base often.
const FEW: usize = 2;
/// Small pages in few shards, so that floors, full pages and slow routes are common.
const PAGES: Pages = Pages { batch: 8, least: 2 };
/// Little, so that content is left behind often.
const LIMITS: Limits = Limits { most: 60, largest: LARGEST };
const LARGEST: usize = 20;
/// Few, so that a route has all that it may.
const WORKERS: usize = 4;
const SHARDS: NonZeroU16 = NonZeroU16::new(2).unwrap();

#[derive(Clone, Debug)]
struct HandClock(Arc<Mutex<Timestamp>>);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// The shards held and not to be given back, as writers see them.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<BTreeMap<ShardId, Epoch>>>);

impl OwnedShards for Shared {
    fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.0.lock().unwrap().get(&shard).copied()
    }
}

/// A transaction that has written and not committed.
struct Open {
    tx: MemoryTx,
    envelopes: Vec<Envelope>,
    handover: Option<Handover>,
}

struct Sim {
    store: MemoryStore,
    clock: HandClock,
    owner: OwnerId,
    queues: ShardQueues,
    routes: FairShare,
    held: BTreeMap<ShardId, Epoch>,
    /// Shards were lost: an event may come twice, but none may come out of order.
    is_faulty: bool,
    tables: Tables,
    open: HashMap<usize, Open>,
    queue: LocalQueue,
    messages: LocalReceiver,
    shared: Shared,
    /// Over, and not told yet; with what was committed, or nothing.
    handovers: VecDeque<(Handover, Option<Vec<Envelope>>)>,
    read: Option<(Wanted, Page)>,
    running: Vec<(Pending, Epoch)>,
    decided: Vec<(RowKey, Settlement)>,
    settling: Option<(Vec<(RowKey, Settlement)>, Settled)>,
    committed: BTreeMap<usize, Vec<EventId>>,
    free: Vec<EventId>,
    delivered: Vec<EventId>,
}

impl Sim {
    async fn new() -> Self {
        let clock = HandClock(Arc::new(Mutex::new(Timestamp::from_unix_micros(1_000_000))));
        let store = MemoryStore::with_shards(clock.clone(), SHARDS);
        let owner = OwnerId::generate();
        let length = Duration::from_secs(1_000_000);
        let lease = Lease { owner: owner.clone(), length, wants: 64 };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let taken = store
            .acquire_shards(&AcquireShards { owner: owner.clone(), most: 64, owned: vec![] })
            .await
            .unwrap();
        let (queue, messages) = LocalQueue::new(1000);
        let shared = Shared::default();
        queue.open(LocalRelay {
            owner: owner.clone(),
            lease: length,
            clock: Arc::new(clock.clone()),
            observers: Observers::default(),
            shards: Some(Arc::new(shared.clone())),
        });
        let held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        let mut sim = Self {
            queue,
            messages,
            shared,
            handovers: VecDeque::new(),
            store,
            clock,
            owner,
            queues: ShardQueues::with_pages(PAGES),
            routes: FairShare::new(WORKERS, true),
            held,
            is_faulty: false,
            tables: Tables::default(),
            open: HashMap::new(),
            read: None,
            running: Vec::new(),
            decided: Vec::new(),
            settling: None,
            committed: BTreeMap::new(),
            free: Vec::new(),
            delivered: Vec::new(),
        };
        sim.queues.reads.limits = LIMITS;
        sim.queues.reads.few = FEW;
        sim.hold();
        sim
    }

    fn hold(&mut self) {
        self.queues.hold(&self.held);
        self.share();
    }

    fn share(&self) {
        let mut shared = self.held.clone();
        shared.retain(|shard, _| !self.queues.reads.draining().any(|it| it == *shard));
        *self.shared.0.lock().unwrap() = shared;
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Emit { key, count, hot } => self.emit(key, count, hot).await,
            Step::EmitFree => self.emit_free().await,
            Step::Commit { key } => self.commit(key),
            Step::Rollback { key } => {
                let handover = self.open.remove(&key).and_then(|open| open.handover);
                self.handovers.extend(handover.map(|handover| (handover, None)));
            }
            Step::HandOver => self.hand_over(),
            Step::Message => self.read_mail(),
            Step::Overdue => self.queues.withdraw_overdue(instant() + Duration::from_secs(60)),
            Step::StartRead => self.start_read().await,
            Step::EndRead => self.end_read(Duration::ZERO),
            Step::EndSlowRead => {
                self.queues.reads.read_slowly();
                self.end_read(Duration::from_secs(1));
            }
            Step::FailRead => {
                if let Some((wanted, _)) = self.read.take() {
                    self.queues.read_failed(wanted);
                }
            }
            Step::PutBack { which } => {
                if !self.running.is_empty() {
                    let (row, _) = self.end_delivery(which);
                    let row_key = RowKey { seq: row.seq, shard: row.shard, key: row.key };
                    self.queues.put_back(&row_key);
                }
            }
            Step::Start => self.start(),
            Step::Deliver { which, outcome } => self.deliver(which, outcome),
            Step::StartSettle => self.start_settle().await,
            Step::EndSettle => self.end_settle(),
            Step::LoseSettle => {
                if let Some((batch, _)) = self.settling.take() {
                    self.settling = Some((batch, Settled::default()));
                    self.end_settle();
                }
            }
            Step::LoseShards => self.lose_shards().await,
            Step::Drain => {
                self.queues.drain(1);
                self.share();
            }
            Step::Take => self.take().await,
            Step::Advance { millis } => self.advance(millis).await,
            Step::Wake => self.queues.wake(),
            Step::Sweep => self.queues.sweep(),
            Step::Replay => self.replay().await,
            Step::Promote { is_heard } => self.promote(is_heard).await,
        }
    }

    /// What is drained is given back; whoever holds it next must find nothing of it under way.
    async fn give_back(&mut self) {
        for shard in self.queues.drained() {
            let running = self.running.iter().map(|(row, _)| row.shard);
            let decided = self.decided.iter().chain(self.settling.iter().flat_map(|(it, _)| it));
            let mut under_way = running.chain(decided.map(|(row_key, _)| row_key.shard));
            assert!(under_way.all(|of| of != shard), "given back with a row under way");
            let epoch = self.held.remove(&shard).unwrap();
            let holding = OwnedShard { shard, epoch, origin: ShardOrigin::Free };
            assert_eq!(self.store.release(&self.owner, &[holding]).await.unwrap(), 1);
        }
        self.hold();
    }

    async fn take(&mut self) {
        let owned = self.held.keys().copied().collect();
        let take = AcquireShards { owner: self.owner.clone(), most: 64, owned };
        let taken = self.store.acquire_shards(&take).await.unwrap();
        self.held.extend(taken.iter().map(|holding| (holding.shard, holding.epoch)));
        self.hold();
    }

    async fn lose_shards(&mut self) {
        self.is_faulty = true;
        self.queues.hold(&BTreeMap::new());
        let take = AcquireShards { owner: self.owner.clone(), most: 64, owned: vec![] };
        let taken = self.store.acquire_shards(&take).await.unwrap();
        self.held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        self.hold();
    }

    async fn advance(&mut self, millis: u64) {
        let time = Duration::from_millis(millis);
        tokio::time::advance(time).await;
        let mut now = self.clock.0.lock().unwrap();
        *now = now.saturating_add(time);
        drop(now);
        self.queues.tick(instant());
        self.queues.mind_slow_routes(instant());
    }

    async fn replay(&mut self) {
        for id in self.committed.values().flatten() {
            let event = self.store.event(id).await.unwrap();
            if event.is_some_and(|event| event.status == Status::Held) {
                self.store.operate(&Operation::replay([id.clone()])).await.unwrap();
            }
        }
    }

    /// The last fault is over: everything must drain by itself.
    async fn drain(&mut self) {
        (0..KEYS).for_each(|key| self.commit(key));
        while !self.handovers.is_empty() {
            self.hand_over();
        }
        self.read_mail();
        for round in 0..500 {
            if round % 5 == 0 {
                // A verdict that was under way may have held a key after the last replay.
                self.replay().await;
                self.queues.sweep();
            }
            self.promote(true).await;
            self.start_read().await;
            self.end_read(Duration::ZERO);
            self.give_back().await;
            self.take().await;
            for _ in 0..50 {
                self.step(Step::Start).await;
                self.deliver(0, 9);
            }
            self.end_settle();
            self.start_settle().await;
            self.end_settle();
            self.advance(100).await;
            let stats = self.store.stats().await.unwrap();
            if stats.new + stats.waiting + stats.held == 0 && self.queues.rows.keys().len() == 0 {
                return;
            }
        }
    }

    async fn check(&self) {
        let stats = self.store.stats().await.unwrap();
        assert_eq!((stats.new, stats.waiting, stats.held), (0, 0, 0), "something is stuck");
        let mut seen = HashSet::new();
        let first: Vec<_> = self.delivered.iter().filter(|id| seen.insert(*id)).collect();
        assert!(self.is_faulty || first.len() == self.delivered.len(), "one came twice");
        for (key, ids) in &self.committed {
            let got: Vec<_> = first.iter().copied().filter(|id| ids.contains(id)).collect();
            assert_eq!(got, ids.iter().collect::<Vec<_>>(), "key {key}: lost or out of order");
        }
        let keyed: usize = self.committed.values().map(Vec::len).sum();
        assert_eq!(first.len(), keyed + self.free.len(), "a ghost");
        assert!(
            self.queues.rows.in_flight().is_empty() && self.queues.rows.keys().len() == 0,
            "{:?}",
            self.queues
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn under_any_schedule_each_key_is_delivered_once_and_in_order(steps in steps()) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut sim = Sim::new().await;
            for step in steps {
                sim.step(step).await;
                assert!(sim.queues.rows.in_flight().bytes() <= LIMITS.most + LIMITS.largest);
                sim.give_back().await;
            }
            sim.drain().await;
            sim.check().await;
        });
    }
}
