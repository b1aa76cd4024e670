//! Several relays share the shards: each event comes once and in order, whoever holds what.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, RelayHandle, RelaySettings, Store};
use tokio::sync::{Notify, mpsc};

use crate::fixture::{TestDatabase, WAIT_TIMEOUT, keyed, quick, relay, wait_for};

const KEYS: i64 = 40;

/// The relay that delivered an event, and the number of the event.
type Delivery = (usize, i64);

/// Relays that report their deliveries to one channel, and a writer that numbers its events.
struct Fleet<'a> {
    db: &'a TestDatabase,
    settings: RelaySettings,
    sender: mpsc::UnboundedSender<Delivery>,
    received: mpsc::UnboundedReceiver<Delivery>,
    emitted: i64,
    got: Vec<Delivery>,
}

impl<'a> Fleet<'a> {
    fn new(db: &'a TestDatabase, settings: RelaySettings) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        Self { db, settings, sender, received, emitted: 0, got: Vec::new() }
    }

    async fn start(&self, number: usize) -> RelayHandle {
        let sender = self.sender.clone();
        let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let number_of_event = event.payload().as_json().unwrap().parse().unwrap();
            sender.send((number, number_of_event)).ok();
            async { Ok::<_, Failure>(()) }
        });
        relay(self.db, listeners).settings(self.settings.clone()).spawn().await.unwrap()
    }

    /// Commits the next events, one of each key.
    async fn emit(&mut self) {
        let numbers = self.emitted..self.emitted + KEYS;
        let events = numbers.map(|number| keyed(&format!("k{}", number % KEYS), number)).collect();
        self.db.commit(&Outbox::new(), events).await;
        self.emitted += KEYS;
    }

    /// Emits until `is_over`, which is asked after every commit.
    async fn emit_until(&mut self, mut is_over: impl AsyncFnMut(&[Delivery]) -> bool) {
        let emitting = async {
            while !is_over(&self.got).await {
                self.emit().await;
                while let Ok(delivery) = self.received.try_recv() {
                    self.got.push(delivery);
                }
                // Not to take the core from the relays.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, emitting).await.expect("it comes to its end");
    }

    /// Every event has come once, and those of a key in order.
    async fn check(&mut self) {
        let count = usize::try_from(self.emitted).unwrap();
        let receiving = async {
            while self.got.len() < count {
                self.got.push(self.received.recv().await.expect("the channel is open"));
            }
        };
        let in_time = tokio::time::timeout(WAIT_TIMEOUT, receiving).await;
        assert!(in_time.is_ok(), "{} of {count} came", self.got.len());
        let mut newest: HashMap<i64, i64> = HashMap::new();
        for (relay, number) in &self.got {
            let before = newest.insert(number % KEYS, *number);
            let expected = before.map_or(number % KEYS, |before| before + KEYS);
            assert_eq!(*number, expected, "relay {relay}: twice, lost or out of order");
        }
    }
}

/// As many as are shared between relays; SQLite has but one.
async fn shard_count(store: &dyn Store) -> u64 {
    u64::from(store.config().await.unwrap().shards.get())
}

/// What each of so many living relays holds, once every shard is held.
async fn held(store: &dyn Store, relays: usize) -> Option<Vec<u16>> {
    let held: Vec<u16> = store.members().await.unwrap().iter().map(|member| member.owned).collect();
    let all: u64 = held.iter().copied().map(u64::from).sum();
    (held.len() == relays && all == shard_count(store).await).then_some(held)
}

/// Whether so many relays hold all shards, none of them more than one more than another.
async fn is_fair(store: &dyn Store, relays: usize) -> bool {
    let held = held(store, relays).await.unwrap_or_default();
    held.first().zip(held.last()).is_some_and(|(most, least)| most - least <= 1)
}

/// The first gives a part of its shards to the second, under load.
pub(crate) async fn two_relays_come_to_share_the_load_without_a_duplicate(db: &TestDatabase) {
    let (lease, delivery_timeout) = (Duration::from_secs(6), Duration::from_secs(3));
    let settings = RelaySettings { lease, delivery_timeout, ..quick() };
    let mut fleet = Fleet::new(db, settings);
    let store = db.store();
    let first = fleet.start(1).await;
    fleet.emit_until(async |got| !got.is_empty()).await;
    let second = fleet.start(2).await;

    fleet.emit_until(async |_| is_fair(&*store, 2).await).await;

    fleet.emit().await;
    fleet.check().await;
    let by_second = fleet.got.iter().filter(|(relay, _)| *relay == 2).count();
    assert_eq!(by_second > 0, shard_count(&*store).await > 1, "the second took its part");
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// With a lease of a minute, what is left behind is taken within a poll.
pub(crate) async fn released_shards_are_acquired_long_before_the_lease_ends(db: &TestDatabase) {
    let settings = RelaySettings { lease: Duration::from_secs(60), ..quick() };
    let mut fleet = Fleet::new(db, settings);
    let store = db.store();
    let first = fleet.start(1).await;
    wait_for(async || held(&*store, 1).await).await;
    let second = fleet.start(2).await;
    fleet.emit().await;
    fleet.check().await;

    first.stop().await.unwrap();

    assert_eq!(wait_for(async || held(&*store, 1).await).await.len(), 1);
    fleet.emit().await;
    fleet.check().await;
    assert!(fleet.got.iter().rev().take(40).all(|(relay, _)| *relay == 2), "all by the second");
    second.stop().await.unwrap();
}

/// One slow delivery keeps its own shard, and no other.
pub(crate) async fn a_stop_gives_idle_shards_back_while_a_delivery_is_under_way(db: &TestDatabase) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, goes) = (Arc::clone(&started), Arc::clone(&go));
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        let (starts, goes) = (Arc::clone(&starts), Arc::clone(&goes));
        async move {
            starts.notify_one();
            goes.notified().await;
            Ok::<_, Failure>(())
        }
    });
    let settings = RelaySettings { drain: Duration::from_secs(60), ..patient() };
    let first = relay(db, listeners).settings(settings).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("slow", 1)]).await;
    started.notified().await;
    let store = db.store();
    let others = shard_count(&*store).await - 1;
    let fleet = Fleet::new(db, patient());
    let second = fleet.start(2).await;

    let stopping = tokio::spawn(first.stop());

    let held_by_second = async || store.members().await.unwrap().first().map(|it| it.owned);
    wait_for(async || held_by_second().await.filter(|held| u64::from(*held) == others)).await;
    assert!(!stopping.is_finished(), "the slow one is under way");
    go.notify_one();
    stopping.await.unwrap().unwrap();
    wait_for(async || held(&*store, 1).await).await;
    assert_eq!(store.stats().await.unwrap().new, 0, "the slow one was settled");
    second.stop().await.unwrap();
}

/// A lease and a delivery that outlast the test.
fn patient() -> RelaySettings {
    let (lease, delivery_timeout) = (Duration::from_secs(90), Duration::from_secs(60));
    RelaySettings { lease, delivery_timeout, ..quick() }
}

/// A rolling restart under load.
pub(crate) async fn four_relays_restarted_one_by_one_deliver_once_and_in_order(db: &TestDatabase) {
    let mut fleet = Fleet::new(db, quick());
    let store = db.store();
    let mut relays = Vec::new();
    for number in 0..4 {
        relays.push(fleet.start(number).await);
    }
    fleet.emit_until(async |_| held(&*store, 4).await.is_some()).await;

    for number in 4..8 {
        let stopping = tokio::spawn(relays.remove(0).stop());
        fleet.emit_until(async |_| stopping.is_finished()).await;
        stopping.await.unwrap().unwrap();
        fleet.emit_until(async |_| held(&*store, 3).await.is_some()).await;
        relays.push(fleet.start(number).await);
        fleet.emit_until(async |_| held(&*store, 4).await.is_some()).await;
    }

    fleet.emit().await;
    fleet.check().await;
    assert!(fleet.got.iter().rev().take(40).all(|(relay, _)| *relay >= 4), "all by the new ones");
    for relay in relays {
        relay.stop().await.unwrap();
    }
    assert!(fleet.received.try_recv().is_err(), "one came twice");
}
