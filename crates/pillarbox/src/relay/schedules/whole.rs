//! The whole relay on the memory store: engine, crew, lane, wake, heartbeat and maintenance.
//!
//! The store answers at once, but in a task of its own: an answer comes as late as the schedule lets
//! it come, and what is judged meanwhile gathers for the next settle.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{chance, play};
use crate::MemoryStore;
use crate::clock::{Clock, Timestamp};
use crate::envelope::Envelope;
use crate::error::Result;
use crate::id::EventId;
use crate::listener::{Cx, Listeners};
use crate::outbox::Outbox;
use crate::relay::handle::AbortOnDrop;
use crate::relay::{Relay, Settings};
use crate::store::{ClaimMode, DeliveryMode, Order, Schema as _, Statistics as _};
use crate::telemetry::RelayEvent;
use crate::verdict::Failure;

const WRITERS: usize = 2;
const EACH: usize = 3;
const SHARDS: NonZeroU16 = NonZeroU16::new(2).expect("2 is not zero");

/// Attempts that may fail: fewer than an event has.
const FAILS: u32 = 4;

/// A third of a lease: what is settled sooner was not overtaken by time.
const LONG: Duration = Duration::from_secs(5);

/// Two at a time, so that events wait for a worker.
const WORKERS: NonZeroU32 = NonZeroU32::new(2).expect("2 is not zero");

/// The wall clock, by the time of the schedule.
#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(0).saturating_add(Duration::from_secs(1 << 30) + Instant::age())
    }
}

/// What was written and heard.
#[derive(Clone, Default)]
struct Ledger(Arc<Book>);

#[derive(Default)]
struct Book {
    pages: Mutex<Pages>,
    heard: Notify,
}

#[derive(Default)]
struct Pages {
    committed: BTreeSet<usize>,
    rolled_back: BTreeSet<usize>,
    /// How often each was taken, in the order of the first time.
    heard: Vec<usize>,
    times: BTreeMap<usize, usize>,
    /// When the first delivery of each began: the verdict of any may be the one that is fenced off.
    begun: BTreeMap<String, Duration>,
    fenced: usize,
    /// A lease came to its end, or a stop could not wait: what follows is another delivery.
    is_excused: bool,
}

impl Pages {
    fn is_all_heard(&self) -> bool {
        self.committed.iter().all(|it| self.times.contains_key(it))
    }

    /// A verdict that has waited for so long may have outlived the lease that it was made under.
    fn fence(&mut self, event_id: &str) {
        let begun = self.begun.get(event_id).copied().unwrap_or_default();
        if Instant::age() - begun >= LONG {
            self.is_excused = true;
        } else {
            self.fenced += 1;
        }
    }
}

impl Ledger {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, number: usize) {
        let mut pages = self.pages();
        let times = pages.times.entry(number).or_default();
        *times += 1;
        if *times == 1 {
            pages.heard.push(number);
        }
        drop(pages);
        self.0.heard.notify_one();
    }

    fn see(&self, relay_event: &RelayEvent<'_>) {
        let mut pages = self.pages();
        if let Some(attempt) = relay_event.attempt() {
            let begun = Instant::age().saturating_sub(attempt.took);
            pages.begun.entry(attempt.event_id.to_string()).or_insert(begun);
        }
        match relay_event {
            RelayEvent::Fenced { event_id } => pages.fence(event_id),
            RelayEvent::Abandoned { .. }
            | RelayEvent::LeaseLost { .. }
            | RelayEvent::NotStarted { .. }
            | RelayEvent::ComponentFailed { .. } => pages.is_excused = true,
            _ => {}
        }
    }

    async fn all_heard(&self) {
        while !self.pages().is_all_heard() {
            self.0.heard.notified().await;
        }
    }

    /// What must hold whatever happened.
    fn check(&self) {
        let pages = self.pages();
        for number in &pages.heard {
            assert!(!pages.rolled_back.contains(number), "{number} is a ghost");
        }
        for writer in 0..WRITERS {
            let of_key = pages.heard.iter().filter(|it| key_of(**it) == Some(writer));
            assert!(of_key.is_sorted(), "a key out of order: {:?}", pages.heard);
        }
        if !pages.is_excused {
            assert!(pages.times.values().all(|it| *it == 1), "taken twice: {:?}", pages.times);
            assert_eq!(pages.fenced, 0, "a verdict was written twice");
        }
    }
}

/// Each writer has a key, for two of three events.
fn key_of(number: usize) -> Option<usize> {
    (number % 3 != 2).then_some(number / EACH)
}

fn settings(claim: ClaimMode) -> Settings {
    Settings { claim, workers: WORKERS, ..Settings::default() }
}

fn relay(store: &MemoryStore, ledger: &Ledger, claim: ClaimMode) -> Relay {
    let (hears, sees) = (ledger.clone(), ledger.clone());
    let listeners = Listeners::new().fallback(move |event: Envelope, cx: Cx| {
        let ledger = hears.clone();
        async move {
            let number = event.payload().as_json().and_then(|it| it.parse().ok());
            for _ in 0..chance(3) {
                tokio::task::yield_now().await;
            }
            if cx.attempt() <= FAILS && chance(4) == 0 {
                return Err(Failure::retry("by chance"));
            }
            ledger.hear(number.expect("it is a number"));
            Ok(())
        }
    });
    let relay = Relay::new(store.clone(), listeners).settings(settings(claim)).clock(Wall);
    relay.observer(move |relay_event: &RelayEvent<'_>| sees.see(relay_event))
}

/// One transaction with one event.
async fn write(outbox: &Outbox, store: &MemoryStore, number: usize) -> Result<bool> {
    let mut tx = outbox.begin(store).await?;
    // An id by chance would put it into a shard by chance.
    let event = Envelope::json("order.placed", &number)?.id(EventId::new(format!("{number:026}"))?);
    tx.emit_envelope(match key_of(number) {
        Some(key) => event.aggregate("order", key.to_string())?,
        None => event,
    })
    .await?;
    tokio::task::yield_now().await;
    if chance(5) == 0 {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

fn writers(outbox: &Outbox, store: &MemoryStore, ledger: &Ledger) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (outbox, store, ledger) = (outbox.clone(), store.clone(), ledger.clone());
        writers.spawn(async move {
            for number in writer * EACH..(writer + 1) * EACH {
                let is_committed = write(&outbox, &store, number).await.expect("it is written");
                let mut pages = ledger.pages();
                if is_committed {
                    pages.committed.insert(number);
                } else {
                    pages.rolled_back.insert(number);
                }
            }
        });
    }
    writers
}

async fn join(mut writers: JoinSet<()>) {
    while let Some(ended) = writers.join_next_with_id().await {
        ended.expect("it was not aborted");
    }
}

async fn store(claim: ClaimMode) -> MemoryStore {
    let store = MemoryStore::with_shards(Wall, SHARDS);
    let mode = DeliveryMode { claim, order: Order::Key };
    store.configure(&mode).await.expect("nobody is there yet");
    store
}

async fn run(claim: ClaimMode) {
    let _passing = AbortOnDrop(tokio::spawn(tokio::time::pass()));
    let (store, ledger) = (store(claim).await, Ledger::default());
    let relay = relay(&store, &ledger, claim);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.expect("it starts");

    join(writers(&outbox, &store, &ledger)).await;
    ledger.all_heard().await;
    handle.stop().await.expect("it ends");

    ledger.check();
    let (stats, pages) = (store.stats().await.expect("it is counted"), ledger.pages());
    if !pages.is_excused {
        assert_eq!(stats.new + stats.waiting, 0, "not settled: {stats:?}");
    }
    assert_eq!(stats.owners, 0, "the relay has not left");
}

/// One relay stops while there is work; another takes over.
async fn stopped(claim: ClaimMode) {
    let _passing = AbortOnDrop(tokio::spawn(tokio::time::pass()));
    let (store, ledger) = (store(claim).await, Ledger::default());
    let first = relay(&store, &ledger, claim);
    let outbox = first.outbox();
    let handle = first.spawn().await.expect("it starts");
    let writers = writers(&outbox, &store, &ledger);
    for _ in 0..chance(20) {
        tokio::task::yield_now().await;
    }

    handle.stop().await.expect("it ends");
    let heir = relay(&store, &ledger, claim).spawn().await.expect("it starts");
    join(writers).await;
    ledger.all_heard().await;
    heir.stop().await.expect("it ends");

    ledger.check();
}

pub(super) fn by_shards() {
    play(1 + chance(2), run(ClaimMode::Shards));
}

pub(super) fn by_rows() {
    play(1 + chance(2), run(ClaimMode::Rows));
}

pub(super) fn stopped_by_shards() {
    play(1 + chance(2), stopped(ClaimMode::Shards));
}

pub(super) fn stopped_by_rows() {
    play(1 + chance(2), stopped(ClaimMode::Rows));
}
