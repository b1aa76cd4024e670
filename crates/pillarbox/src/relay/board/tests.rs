//! The board against the memory store under random schedules: every interleaving of commits,
//! reads, deliveries, settles, retries, holds and replays must lose nothing, deliver nothing
//! twice, and keep each key in order; with lost answers and lost shards, too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::{Clock, Timestamp, instant};
use crate::envelope::Envelope;
use crate::event::Key;
use crate::id::{EventId, OwnerId, Token};
use crate::store::memory::{MemoryStore, MemoryTx};
use crate::store::{
    Join, Lease, Mode, Operation, Read, Settle, Settled, Settlement, Status, Store, Take,
};
use crate::table::Tables;
use crate::tx::{Insert, Tx};
use crate::verdict::{ErrorText, Verdict};

const KEYS: usize = 4;
/// Small pages in few shards, so that floors and full pages are common.
const PAGES: Pages = Pages { batch: 16, least: 2 };
const SHARDS: NonZeroU16 = NonZeroU16::new(2).unwrap();

#[derive(Clone, Debug)]
struct HandClock(Arc<Mutex<Timestamp>>);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Emit {
        key: usize,
        count: usize,
    },
    EmitFree,
    Commit {
        key: usize,
    },
    Rollback {
        key: usize,
    },
    StartRead,
    EndRead,
    FailRead,
    Start,
    /// The lease was too short to start it.
    PutBack {
        which: usize,
    },
    Deliver {
        which: usize,
        outcome: u8,
    },
    StartSettle,
    EndSettle,
    /// It was written, and the answer got lost: repeated, it applies to nothing.
    LoseSettle,
    /// The shards are lost and taken again at a new epoch, whatever is under way.
    LoseShards,
    Advance {
        millis: u64,
    },
    Wake,
    Sweep,
    Replay,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..KEYS, 1..8_usize).prop_map(|(key, count)| Step::Emit { key, count }),
        2 => Just(Step::EmitFree),
        4 => (0..KEYS).prop_map(|key| Step::Commit { key }),
        1 => (0..KEYS).prop_map(|key| Step::Rollback { key }),
        8 => Just(Step::StartRead),
        8 => Just(Step::EndRead),
        1 => Just(Step::FailRead),
        1 => (0..8_usize).prop_map(|which| Step::PutBack { which }),
        10 => Just(Step::Start),
        10 => (0..8_usize, 0..10_u8).prop_map(|(which, outcome)| Step::Deliver { which, outcome }),
        5 => Just(Step::StartSettle),
        5 => Just(Step::EndSettle),
        1 => Just(Step::LoseSettle),
        1 => prop_oneof![4 => Just(Step::Wake), 1 => Just(Step::LoseShards)],
        3 => (1..200_u64).prop_map(|millis| Step::Advance { millis }),
        3 => Just(Step::Wake),
        1 => Just(Step::Sweep),
        1 => Just(Step::Replay),
    ];
    prop::collection::vec(step, 50..400)
}

struct Sim {
    store: MemoryStore,
    clock: HandClock,
    owner: OwnerId,
    board: Board,
    held: BTreeMap<ShardId, Epoch>,
    /// Shards were lost: an event may come twice, but none may come out of order.
    is_faulty: bool,
    tables: Tables,
    open: HashMap<usize, (MemoryTx, Vec<EventId>)>,
    read: Option<(Wanted, Vec<Pending>)>,
    running: Vec<(Pending, Epoch)>,
    judged: Vec<(Ticket, Settlement)>,
    settling: Option<(Vec<(Ticket, Settlement)>, Settled)>,
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
        store.join(&Join { lease, mode: Mode::default() }).await.unwrap();
        let taken =
            store.take(&Take { owner: owner.clone(), most: 64, held: vec![] }).await.unwrap();
        let mut board = Board::new(PAGES);
        let held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        board.hold(&held);
        Self {
            store,
            clock,
            owner,
            board,
            held,
            is_faulty: false,
            tables: Tables::default(),
            open: HashMap::new(),
            read: None,
            running: Vec::new(),
            judged: Vec::new(),
            settling: None,
            committed: BTreeMap::new(),
            free: Vec::new(),
            delivered: Vec::new(),
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Emit { key, count } => self.emit(key, count).await,
            Step::EmitFree => self.emit_free().await,
            Step::Commit { key } => self.commit(key),
            Step::Rollback { key } => drop(self.open.remove(&key)),
            Step::StartRead => self.start_read().await,
            Step::EndRead => self.end_read(),
            Step::FailRead => {
                if let Some((wanted, _)) = self.read.take() {
                    self.board.read_failed(wanted);
                }
            }
            Step::PutBack { which } => {
                if !self.running.is_empty() {
                    let (row, _) = self.running.swap_remove(which % self.running.len());
                    let ticket = Ticket { seq: row.seq, shard: row.shard, key: row.key };
                    self.board.put_back(&ticket);
                }
            }
            Step::Start => {
                if self.running.len() < 4 {
                    self.running.extend(self.board.next_start());
                }
            }
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
            Step::Advance { millis } => self.advance(millis).await,
            Step::Wake => self.board.wake(),
            Step::Sweep => self.board.sweep(),
            Step::Replay => self.replay().await,
        }
    }

    /// Writers of one key come one after the other; those of different keys commit in any order.
    async fn emit(&mut self, key: usize, count: usize) {
        if self.open.contains_key(&key) {
            return;
        }
        let envelope = |_| {
            let envelope = Envelope::json("e", &key).unwrap();
            envelope.key(Key::Given(format!("k{key}"))).unwrap()
        };
        let envelopes: Vec<_> = (0..count).map(envelope).collect();
        let mut tx = self.store.open();
        let insert = Insert { tables: &self.tables, envelopes: &envelopes };
        Tx::insert(&mut tx, &insert).await.unwrap();
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone()).collect();
        self.open.insert(key, (tx, ids));
    }

    async fn emit_free(&mut self) {
        let envelopes = [Envelope::json("free", &0).unwrap()];
        let mut tx = self.store.open();
        let insert = Insert { tables: &self.tables, envelopes: &envelopes };
        Tx::insert(&mut tx, &insert).await.unwrap();
        tx.commit().unwrap();
        self.free.push(envelopes[0].event_id().clone());
    }

    fn commit(&mut self, key: usize) {
        let Some((tx, ids)) = self.open.remove(&key) else { return };
        tx.commit().unwrap();
        self.committed.entry(key).or_default().extend(ids);
    }

    /// The snapshot is taken here; it is looked at whenever `EndRead` comes.
    async fn start_read(&mut self) {
        let Some(wanted) = self.board.next_read() else { return };
        let rows = match &wanted {
            Wanted::Key(read) => self.store.read_key(read).await.unwrap(),
            Wanted::Shards { shards, limit } => {
                let read = Read { shards: shards.clone(), limit: *limit };
                self.store.read(&read).await.unwrap()
            }
        };
        self.read = Some((wanted, rows));
    }

    fn end_read(&mut self) {
        match self.read.take() {
            None => {}
            Some((Wanted::Key(read), rows)) => self.board.take_key(&read, rows, instant()),
            Some((Wanted::Shards { shards, limit }, rows)) => {
                self.board.take_shards(&shards, limit, rows, instant());
            }
        }
    }

    fn deliver(&mut self, which: usize, outcome: u8) {
        if self.running.is_empty() {
            return;
        }
        let (row, epoch) = self.running.swap_remove(which % self.running.len());
        let error = ErrorText::new("no");
        let delay = Duration::from_millis(u64::from(outcome) * 40);
        let verdict = match outcome {
            0 if row.key.is_some() => Verdict::Held { error },
            // Given up for good, and thereby as good as delivered.
            0 => Verdict::Dead { error },
            5 if row.key.is_some() && row.attempts > 0 => Verdict::Dead { error },
            1 | 2 => Verdict::Retry { delay, error },
            3 => Verdict::Defer { delay, error },
            4 => Verdict::Done,
            _ => Verdict::Delete,
        };
        if matches!(verdict, Verdict::Done | Verdict::Delete | Verdict::Dead { .. }) {
            self.delivered.push(row.event.as_ref().unwrap().event_id().clone());
        }
        let ticket = Ticket { seq: row.seq, shard: row.shard, key: row.key };
        self.board.judged(&ticket, &verdict);
        let Ticket { seq, shard, .. } = ticket;
        let token: Token = row.token;
        let settlement = Settlement { shard, epoch, seq, token, verdict, settled_by: None };
        self.judged.push((ticket, settlement));
    }

    /// Written here, acknowledged when `EndSettle` comes.
    async fn start_settle(&mut self) {
        if self.settling.is_some() || self.judged.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.judged);
        let settlements = batch.iter().map(|(_, settlement)| settlement.clone()).collect();
        let settle = Settle { owner: self.owner.clone(), settlements };
        let settled = self.store.settle(&settle).await.unwrap();
        let all = settled.applied.len() == batch.len();
        assert!(all || self.is_faulty, "nobody else decides on these rows");
        self.settling = Some((batch, settled));
    }

    fn end_settle(&mut self) {
        let Some((batch, settled)) = self.settling.take() else { return };
        for (ticket, Settlement { epoch, verdict, .. }) in batch {
            let held = self.held.get(&ticket.shard) == Some(&epoch);
            if held && settled.applied.contains(&ticket.seq) {
                self.board.settled(&ticket, &verdict, instant());
            } else {
                self.board.overtaken(&ticket, &verdict);
            }
        }
    }

    async fn lose_shards(&mut self) {
        self.is_faulty = true;
        self.board.hold(&BTreeMap::new());
        let take = Take { owner: self.owner.clone(), most: 64, held: vec![] };
        let taken = self.store.take(&take).await.unwrap();
        self.held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        self.board.hold(&self.held);
    }

    async fn advance(&mut self, millis: u64) {
        let time = Duration::from_millis(millis);
        tokio::time::advance(time).await;
        let mut now = self.clock.0.lock().unwrap();
        *now = now.saturating_add(time);
        drop(now);
        self.board.tick(instant());
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
        for round in 0..500 {
            if round % 5 == 0 {
                // A verdict that was under way may have held a key after the last replay.
                self.replay().await;
                self.board.sweep();
            }
            self.start_read().await;
            self.end_read();
            for _ in 0..50 {
                self.step(Step::Start).await;
                self.deliver(0, 9);
            }
            self.end_settle();
            self.start_settle().await;
            self.end_settle();
            self.advance(100).await;
            let stats = self.store.stats().await.unwrap();
            if stats.new + stats.retry + stats.held == 0 && self.board.lanes.is_empty() {
                return;
            }
        }
    }

    async fn check(&self) {
        let stats = self.store.stats().await.unwrap();
        assert_eq!((stats.new, stats.retry, stats.held), (0, 0, 0), "something is stuck");
        let mut seen = HashSet::new();
        let first: Vec<_> = self.delivered.iter().filter(|id| seen.insert(*id)).collect();
        assert!(self.is_faulty || first.len() == self.delivered.len(), "one came twice");
        for (key, ids) in &self.committed {
            let got: Vec<_> = first.iter().copied().filter(|id| ids.contains(id)).collect();
            assert_eq!(got, ids.iter().collect::<Vec<_>>(), "key {key}: lost or out of order");
        }
        let keyed: usize = self.committed.values().map(Vec::len).sum();
        assert_eq!(first.len(), keyed + self.free.len(), "a ghost");
        assert!(self.board.known.is_empty() && self.board.lanes.is_empty(), "{:?}", self.board);
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
            }
            sim.drain().await;
            sim.check().await;
        });
    }
}
