//! Heartbeats of several relays, one step at a time, on a store whose clock is turned.

use std::num::NonZeroU16;

use super::*;
use crate::clock::{SystemClock, Timestamp, instant};
use crate::envelope::Envelope;
use crate::layer::Layers;
use crate::listener::{Cx, Listeners};
use crate::relay::Settings;
use crate::relay::dispatch::deliverer::{Deliverer, LeaseKind, Outcome};
use crate::relay::ownership::balance::Balance;
use crate::store::memory::MemoryStore;
use crate::store::{
    AcquireShards, Content, DeliveryMode, OutboxConfig, Ownership as _, Statistics as _,
};
use crate::telemetry::Observers;
use crate::verdict::Failure;

/// A database whose clock a test turns.
#[derive(Clone, Debug)]
struct Turned(Arc<Mutex<Timestamp>>);

impl Clock for Turned {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

impl Turned {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(SystemClock.now())))
    }

    /// Turns the database's clock and the relays' own.
    async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
        let mut now = self.0.lock().unwrap();
        *now = now.saturating_add(by);
    }
}

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);
const BEAT: Duration = Duration::from_secs(5);

fn relay(store: &MemoryStore) -> Heartbeat {
    Heartbeat {
        store: Arc::new(store.clone()),
        clock: Arc::new(SystemClock),
        ownership: Ownership::new(),
        config: OutboxConfig {
            shards: NonZeroU16::new(64).unwrap(),
            mode: DeliveryMode::default(),
        },
        length: LEASE,
        poll: Duration::from_millis(500),
        balance: Mutex::new(Balance::new(BEAT, instant())),
        observers: Observers::default(),
    }
}

/// Several relays, and what their engines do about shards to be drained.
struct Relays {
    store: MemoryStore,
    clock: Turned,
    all: Vec<Heartbeat>,
    moves: usize,
}

impl Relays {
    fn new() -> Self {
        let clock = Turned::new();
        Self { store: MemoryStore::with_clock(clock.clone()), clock, all: Vec::new(), moves: 0 }
    }

    async fn join(&mut self) {
        let newcomer = relay(&self.store);
        newcomer.join().await.unwrap();
        self.all.push(newcomer);
    }

    /// One beat of each; nothing is under way, so that what is drained is idle at once.
    async fn beat(&mut self) {
        for relay in &self.all {
            let before = relay.ownership.shards();
            relay.beat().await.unwrap();
            let mine = relay.ownership.shards();
            relay.ownership.drain(|count| mine.into_keys().take(count).collect());
            let draining: Vec<ShardId> = relay.ownership.held().draining.iter().copied().collect();
            relay.ownership.drained(&draining);
            relay.beat().await.unwrap();
            let after = relay.ownership.shards();
            self.moves += after.iter().filter(|(shard, _)| !before.contains_key(shard)).count();
        }
    }

    /// So many heartbeats, one after the other.
    async fn beats(&mut self, count: usize) {
        for _ in 0..count {
            self.beat().await;
            self.clock.advance(BEAT).await;
        }
    }

    fn shares(&self) -> Vec<usize> {
        self.all.iter().map(|relay| relay.ownership.shards().len()).collect()
    }
}

#[tokio::test]
async fn a_relay_that_was_overslept_gives_up_and_starts_over() {
    let clock = Turned::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (sleeper, heir) = (relay(&store), relay(&store));
    sleeper.join().await.unwrap();
    sleeper.beat().await.unwrap();
    assert_eq!(sleeper.ownership.shards().len(), 64);

    let later = clock.now().saturating_add(LEASE + SECOND);
    *clock.0.lock().unwrap() = later;
    heir.join().await.unwrap();
    heir.beat().await.unwrap();
    sleeper.beat().await.unwrap();

    assert_eq!(heir.ownership.shards().len(), 64);
    assert!(sleeper.ownership.shards().is_empty(), "what it held is another's now");
    store.leave(&heir.ownership.owner).await.unwrap();
    sleeper.beat().await.unwrap();
    let epochs: Vec<_> = sleeper.ownership.shards().into_values().collect();
    assert_eq!(epochs, vec![Epoch(3); 64], "each change of hands has an epoch of its own");
}

/// The database has them as the first relay's, which does not know of them, and the second one believes
/// that they are served.
#[tokio::test(start_paused = true)]
async fn shards_whose_taker_got_no_answer_are_served() {
    let mut relays = Relays::new();
    relays.join().await;
    let owner = relays.all[0].ownership.owner.clone();
    relays
        .store
        .acquire_shards(&AcquireShards { owner, most: 64, owned: Vec::new() })
        .await
        .unwrap();
    relays.join().await;

    relays.beats(60).await;

    assert_eq!(relays.shares(), [32, 32]);
}

#[tokio::test]
async fn one_that_has_left_does_not_enter_again() {
    let store = MemoryStore::new();
    let leaver = relay(&store);
    leaver.join().await.unwrap();
    leaver.beat().await.unwrap();
    leaver.ownership.leave();
    store.leave(&leaver.ownership.owner).await.unwrap();

    // As when the beat was under way already.
    leaver.beat().await.unwrap();

    assert_eq!(store.stats().await.unwrap().owners, 0);
}

#[tokio::test]
async fn a_shard_taken_again_is_not_dropped_by_an_old_refusal() {
    let ownership = Ownership::new();
    ownership.held().shards.insert(ShardId(1), Epoch(7));

    ownership.drop_shard(ShardId(1), Epoch(6));
    assert_eq!(ownership.shards().len(), 1);
    ownership.drop_shard(ShardId(1), Epoch(7));
    assert!(ownership.shards().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_once_the_lease_may_have_run_out() {
    let store = MemoryStore::new();
    let heartbeat = relay(&store);
    let may_start = || heartbeat.ownership.holds(&SystemClock, ShardId(0), SECOND).is_some();
    assert!(!may_start(), "there is no lease yet");
    heartbeat.join().await.unwrap();
    heartbeat.beat().await.unwrap();
    assert!(may_start());

    tokio::time::advance(Duration::from_millis(14_500)).await;

    assert!(!may_start(), "less than the margin is left");
}

/// Somebody else had the shard in between, and has gone on with its keys.
#[tokio::test(start_paused = true)]
async fn what_was_read_at_an_older_epoch_does_not_start() {
    let store = MemoryStore::new();
    let heartbeat = relay(&store);
    heartbeat.join().await.unwrap();
    heartbeat.beat().await.unwrap();
    let read_at = heartbeat.ownership.shards()[&ShardId(0)];
    let listeners = Listeners::new().fallback(async |_: Envelope, _: Cx| Ok::<(), Failure>(()));
    let (clock, ownership) = (Arc::new(SystemClock), Arc::clone(&heartbeat.ownership));
    let settings = Settings::default();
    let deliverer = Deliverer::new(listeners, Layers::default(), clock, ownership, &settings);
    let deliverer = Arc::new(deliverer);
    let deliver = async || {
        let content = Content::Event(Envelope::json("a.b", &1).unwrap());
        deliverer.deliver(LeaseKind::Shard(ShardId(0), read_at), 0, content).await
    };
    assert!(deliver().await.is_well());

    let taken_again = Epoch(read_at.0 + 2);
    heartbeat.ownership.held().shards.insert(ShardId(0), taken_again);

    assert!(matches!(deliver().await, Outcome::TooLate));
}

#[tokio::test(start_paused = true)]
async fn one_relay_alone_has_every_shard_with_its_first_beat() {
    let mut relays = Relays::new();
    relays.join().await;

    relays.beat().await;

    assert_eq!(relays.shares(), [64]);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_its_share_slowly_and_nothing_moves_after_that() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.beats(8).await;
    relays.join().await;

    relays.beats(2).await;
    assert_eq!(relays.shares(), [64, 0], "nobody knows yet whether it stays");
    relays.beats(1).await;
    assert_eq!(relays.shares(), [63, 1]);
    relays.beats(30).await;
    assert_eq!(relays.shares(), [32, 32]);
    assert_eq!(relays.moves, 64 + 32, "no shard moved that did not have to");
}

#[tokio::test(start_paused = true)]
async fn four_that_start_together_come_to_a_fair_share() {
    let mut relays = Relays::new();
    for _ in 0..4 {
        relays.join().await;
    }

    relays.beat().await;
    assert_eq!(relays.shares(), [16; 4], "what is free is shared at once");
    relays.beats(10).await;
    assert_eq!((relays.shares(), relays.moves), (vec![16; 4], 64));
}

#[tokio::test(start_paused = true)]
async fn three_relays_differ_by_one_at_most() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.beats(3).await;
    relays.join().await;
    relays.join().await;

    relays.beats(40).await;

    let mut shares = relays.shares();
    shares.sort_unstable();
    assert_eq!(shares, [21, 21, 22]);
    let before = relays.moves;
    relays.beats(10).await;
    assert_eq!(relays.moves, before, "nothing moves any more");
}

#[tokio::test(start_paused = true)]
async fn what_a_leaver_had_is_taken_at_the_next_beat() {
    let mut relays = Relays::new();
    for _ in 0..4 {
        relays.join().await;
    }
    relays.beats(8).await;

    let leaver = relays.all.remove(0);
    relays.store.leave(&leaver.ownership.owner).await.unwrap();
    relays.beat().await;

    assert_eq!(relays.shares().iter().sum::<usize>(), 64);
    assert!(relays.shares().iter().all(|share| (21..=22).contains(share)));
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_relay_had_is_taken_when_its_lease_is_over() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.join().await;
    relays.beats(8).await;

    relays.all.remove(0);
    relays.beats(2).await;
    assert_eq!(relays.shares(), [32], "its lease is not over");
    relays.clock.advance(SECOND).await;
    relays.beat().await;

    assert_eq!(relays.shares(), [64]);
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_and_goes_costs_the_others_little() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.beats(8).await;

    for _ in 0..5 {
        relays.join().await;
        relays.beats(4).await;
        relays.all.pop();
        relays.beats(4).await;
    }

    assert_eq!(relays.shares(), [64]);
    let back_and_forth = relays.moves - 64;
    assert!(back_and_forth <= 5 * 2 * 3, "{back_and_forth} moves for one that never stays");
}

#[tokio::test(start_paused = true)]
async fn one_about_to_leave_takes_nothing_and_the_others_take_its_part() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.join().await;
    relays.beats(8).await;

    relays.all[0].ownership.leave();
    relays.beat().await;

    assert_eq!(relays.shares(), [0, 64], "drained, given back and taken");
    relays.beats(3).await;
    assert_eq!(relays.shares(), [0, 64]);
}

#[tokio::test(start_paused = true)]
async fn a_shard_being_drained_is_held_until_nothing_of_it_is_under_way() {
    let mut relays = Relays::new();
    relays.join().await;
    relays.beats(8).await;
    relays.join().await;
    let (old, new) = (&relays.all[0], &relays.all[1]);
    for _ in 0..4 {
        old.beat().await.unwrap();
        old.ownership.drain(|count| (0..).map(ShardId).take(count).collect());
        new.beat().await.unwrap();
        relays.clock.advance(BEAT).await;
    }
    assert_eq!(relays.shares(), [64, 0], "it is being drained, and is not drained");

    old.ownership.drained(&[ShardId(0)]);
    assert_eq!(old.ownership.holds(&SystemClock, ShardId(0), SECOND), None);
    old.beat().await.unwrap();
    new.beat().await.unwrap();

    assert_eq!(relays.shares(), [63, 1]);
    assert_eq!(new.ownership.shards().get(&ShardId(0)), Some(&Epoch(2)));
}
