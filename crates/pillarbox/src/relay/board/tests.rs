//! The board against the memory store under random schedules: every interleaving of commits,
//! reads, deliveries, settles, retries, holds, replays and hand-overs must lose nothing, deliver
//! nothing twice, and keep each key in order; with lost answers and lost shards, and with writers
//! that hand over late what they committed.

mod hot;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::{Clock, Timestamp, instant};
use crate::envelope::Envelope;
use crate::event::Key;
use crate::hot::{Holds, Host, HotEvents, HotLane, Mail, Pledge};
use crate::id::{EventId, OwnerId, Token};
use crate::observe::Observers;
use crate::store::memory::{MemoryStore, MemoryTx};
use crate::store::{
    Holding, Join, Lease, Mode, Operation, Origin, Read, Settle, Settled, Settlement, Status,
    Store, Take,
};
use crate::table::Tables;
use crate::tx::{Insert, OpenTx, Tx};
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

/// The shards held and not to be given back, as writers see them.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<BTreeMap<ShardId, Epoch>>>);

impl Holds for Shared {
    fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.0.lock().unwrap().get(&shard).copied()
    }
}

/// A transaction that has written and not committed.
struct Open {
    tx: MemoryTx,
    envelopes: Vec<Envelope>,
    pledge: Option<Pledge>,
}

#[derive(Clone, Debug)]
enum Step {
    Emit {
        key: usize,
        count: usize,
        hot: bool,
    },
    EmitFree,
    Commit {
        key: usize,
    },
    Rollback {
        key: usize,
    },
    /// The writer that committed or rolled back longest ago tells the relay.
    HandOver,
    /// The relay reads its mail.
    Mail,
    /// The relay has waited long enough for those that have not committed.
    Overdue,
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
    /// A shard is to be given back, as soon as nothing of it is under way.
    Drain,
    /// What was given back is taken again, as by the next owner.
    Take,
    Advance {
        millis: u64,
    },
    Wake,
    Sweep,
    Replay,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..KEYS, 1..8_usize, any::<bool>())
            .prop_map(|(key, count, hot)| Step::Emit { key, count, hot }),
        4 => Just(Step::HandOver),
        3 => Just(Step::Mail),
        1 => Just(Step::Overdue),
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
        1 => Just(Step::Drain),
        2 => Just(Step::Take),
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
    open: HashMap<usize, Open>,
    lane: HotLane,
    mail: HotEvents,
    shared: Shared,
    /// Over, and not told yet; with what was committed, or nothing.
    pledged: VecDeque<(Pledge, Option<Vec<Envelope>>)>,
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
        let (lane, mail) = HotLane::new(1000);
        let shared = Shared::default();
        lane.open(Host {
            owner: owner.clone(),
            lease: length,
            clock: Arc::new(clock.clone()),
            observers: Observers::default(),
            shards: Some(Arc::new(shared.clone())),
        });
        let held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        let mut sim = Self {
            lane,
            mail,
            shared,
            pledged: VecDeque::new(),
            store,
            clock,
            owner,
            board: Board::new(PAGES),
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
        };
        sim.hold();
        sim
    }

    fn hold(&mut self) {
        self.board.hold(&self.held);
        self.share();
    }

    fn share(&self) {
        let mut shared = self.held.clone();
        shared.retain(|shard, _| !self.board.draining.contains(shard));
        *self.shared.0.lock().unwrap() = shared;
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Emit { key, count, hot } => self.emit(key, count, hot).await,
            Step::EmitFree => self.emit_free().await,
            Step::Commit { key } => self.commit(key),
            Step::Rollback { key } => {
                let pledge = self.open.remove(&key).and_then(|open| open.pledge);
                self.pledged.extend(pledge.map(|pledge| (pledge, None)));
            }
            Step::HandOver => self.hand_over(),
            Step::Mail => self.read_mail(),
            Step::Overdue => self.board.withdraw_overdue(instant() + Duration::from_secs(60)),
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
                    let next = self.board.next_hot().or_else(|| self.board.next_start());
                    self.running.extend(next);
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
            Step::Drain => {
                self.board.drain(1);
                self.share();
            }
            Step::Take => self.take().await,
            Step::Advance { millis } => self.advance(millis).await,
            Step::Wake => self.board.wake(),
            Step::Sweep => self.board.sweep(),
            Step::Replay => self.replay().await,
        }
    }

    /// Writers of one key come one after the other; those of different keys commit in any order.
    async fn emit(&mut self, key: usize, count: usize, hot: bool) {
        if self.open.contains_key(&key) {
            return;
        }
        let envelope = |_| {
            let envelope = Envelope::json("e", &key).unwrap();
            envelope.key(Key::Given(format!("k{key}"))).unwrap()
        };
        let envelopes: Vec<_> = (0..count).map(envelope).collect();
        let mut tx = self.store.open();
        let held = self.lane.reserve(&envelopes).filter(|_| hot);
        let lease = held.as_ref().map(|held| held.hot());
        let insert = Insert { tables: &self.tables, envelopes: &envelopes, locks: &[], hot: lease };
        let places = OpenTx::insert(&mut tx, &insert).await.unwrap();
        let lane = self.lane.clone();
        let pledge = held.map(|held| Pledge::new(lane, held, places, &envelopes));
        self.open.insert(key, Open { tx, envelopes, pledge });
    }

    fn hand_over(&mut self) {
        let Some((pledge, committed)) = self.pledged.pop_front() else { return };
        if committed.is_some_and(|envelopes| !pledge.keep(&envelopes)) {
            self.board.wake();
        }
    }

    /// As the engine does.
    fn read_mail(&mut self) {
        while let Some(mail) = self.mail.try_next() {
            match mail {
                Mail::Registered(rows) => {
                    rows.iter().for_each(|row| self.board.register(row, instant()));
                }
                Mail::Committed(events) => {
                    let mut are_taken = true;
                    events.into_iter().for_each(|event| are_taken &= self.board.commit(event));
                    if !are_taken {
                        self.board.wake();
                    }
                }
                Mail::Withdrawn(rows) => {
                    rows.into_iter().for_each(|row| self.board.withdraw(row));
                }
                Mail::Leased(_) => unreachable!("events without a key are not written hot here"),
            }
        }
    }

    async fn emit_free(&mut self) {
        let envelopes = [Envelope::json("free", &0).unwrap()];
        let mut tx = self.store.open();
        let insert = Insert { tables: &self.tables, envelopes: &envelopes, locks: &[], hot: None };
        Tx::insert(&mut tx, &insert).await.unwrap();
        tx.commit().unwrap();
        self.free.push(envelopes[0].event_id().clone());
    }

    fn commit(&mut self, key: usize) {
        let Some(Open { tx, envelopes, pledge }) = self.open.remove(&key) else { return };
        tx.commit().unwrap();
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone());
        self.committed.entry(key).or_default().extend(ids);
        self.pledged.extend(pledge.map(|pledge| (pledge, Some(envelopes))));
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
        self.read_mail();
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

    /// What is drained is given back; whoever holds it next must find nothing of it under way.
    async fn give_back(&mut self) {
        for shard in self.board.drained() {
            let running = self.running.iter().map(|(row, _)| row.shard);
            let judged = self.judged.iter().chain(self.settling.iter().flat_map(|(it, _)| it));
            let mut under_way = running.chain(judged.map(|(ticket, _)| ticket.shard));
            assert!(under_way.all(|of| of != shard), "given back with a row under way");
            let epoch = self.held.remove(&shard).unwrap();
            let holding = Holding { shard, epoch, origin: Origin::Free };
            assert_eq!(self.store.release(&self.owner, &[holding]).await.unwrap(), 1);
        }
        self.hold();
    }

    async fn take(&mut self) {
        let held = self.held.keys().copied().collect();
        let take = Take { owner: self.owner.clone(), most: 64, held };
        let taken = self.store.take(&take).await.unwrap();
        self.held.extend(taken.iter().map(|holding| (holding.shard, holding.epoch)));
        self.hold();
    }

    async fn lose_shards(&mut self) {
        self.is_faulty = true;
        self.board.hold(&BTreeMap::new());
        let take = Take { owner: self.owner.clone(), most: 64, held: vec![] };
        let taken = self.store.take(&take).await.unwrap();
        self.held = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        self.hold();
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
        while !self.pledged.is_empty() {
            self.hand_over();
        }
        self.read_mail();
        for round in 0..500 {
            if round % 5 == 0 {
                // A verdict that was under way may have held a key after the last replay.
                self.replay().await;
                self.board.sweep();
            }
            self.start_read().await;
            self.end_read();
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
                sim.give_back().await;
            }
            sim.drain().await;
            sim.check().await;
        });
    }
}
