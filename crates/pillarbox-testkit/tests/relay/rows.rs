//! Row claims: any relay takes any due row, once, and the events of a key in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, Order, Status};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, RelayHandle, RelaySettings};
use tokio::sync::{Semaphore, mpsc};

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, relay, wait_for};

/// Quick enough for a test, by row claims.
pub(crate) fn by_rows() -> RelaySettings {
    RelaySettings { claim: ClaimMode::Rows, ..quick() }
}

/// Settings without polls: the relay reads at its start, and then when it is woken.
fn blind() -> RelaySettings {
    RelaySettings { poll: Duration::from_secs(3600), ..by_rows() }
}

/// A lease and a delivery that outlast the test.
pub(crate) fn patient() -> RelaySettings {
    let (lease, delivery_timeout) = (Duration::from_secs(90), Duration::from_secs(60));
    RelaySettings { lease, delivery_timeout, ..by_rows() }
}

pub(crate) fn number_of(event: &Envelope) -> i64 {
    event.payload().as_json().unwrap().parse().unwrap()
}

/// A listener that stops at a gate: it says that it has started, and goes on when it is let pass.
#[derive(Clone)]
pub(crate) struct Gate {
    started: mpsc::UnboundedSender<i64>,
    pass: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<i64>) {
        let (started, starts) = mpsc::unbounded_channel();
        (Self { started, pass: Arc::new(Semaphore::new(0)) }, starts)
    }

    pub(crate) fn listeners(&self) -> Listeners {
        let gate = self.clone();
        Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let Self { started, pass } = gate.clone();
            async move {
                started.send(number_of(&event)).ok();
                pass.acquire().await?.forget();
                Ok::<_, Failure>(())
            }
        })
    }

    /// Lets so many pass.
    pub(crate) fn open(&self, count: usize) {
        self.pass.add_permits(count);
    }
}

/// Relays that report to one channel; some events fail twice, on whichever relay.
async fn fleet(db: &TestDatabase, size: usize) -> (Vec<RelayHandle>, mpsc::UnboundedReceiver<i64>) {
    let (sender, received) = mpsc::unbounded_channel();
    let mut relays = Vec::new();
    for _ in 0..size {
        let sender = sender.clone();
        let listeners = Listeners::new().fallback(move |event: Envelope, cx: Cx| {
            let number = number_of(&event);
            let is_to_fail = number % 50 == 7 && cx.attempt() < 3;
            if !is_to_fail {
                sender.send(number).ok();
            }
            async move { if is_to_fail { Err(Failure::retry("told to fail")) } else { Ok(()) } }
        });
        relays.push(relay(db, listeners).settings(by_rows()).spawn().await.unwrap());
    }
    (relays, received)
}

/// Each event comes once, and those of a key in order, through retries and whoever claims them.
pub(crate) async fn competing_relays_deliver_once_and_in_order(db: &TestDatabase) {
    let (relays, mut received) = fleet(db, 4).await;
    for round in 0..10 {
        let events = (round * 50..round * 50 + 50).map(|number| match number % 50 {
            lane @ 0..30 => keyed(&format!("k{lane}"), number),
            _ => free(number),
        });
        db.commit(&Outbox::new(), events.collect()).await;
    }

    let numbers = next(&mut received, 500).await;

    let store = db.store();
    let is_settled = async || {
        let stats = store.stats().await.unwrap();
        (stats.new + stats.waiting == 0).then_some(())
    };
    wait_for(is_settled).await;
    for relay in relays {
        relay.stop().await.unwrap();
    }
    assert!(received.try_recv().is_err(), "one came twice");
    let mut newest: HashMap<i64, i64> = HashMap::new();
    for number in numbers.iter().filter(|number| **number % 50 < 30) {
        let before = newest.insert(number % 50, *number);
        let expected = before.map_or(number % 50, |before| before + 50);
        assert_eq!(*number, expected, "twice, lost or out of order");
    }
    let mut all = numbers;
    all.sort_unstable();
    assert_eq!(all, (0..500).collect::<Vec<_>>());
}

/// Events that wait for a busy worker are left to another relay.
pub(crate) async fn a_slow_listener_keeps_nothing_from_other_relays(db: &TestDatabase) {
    db.commit(&Outbox::new(), (0..20).map(free).collect()).await;
    let (gate, mut starts) = Gate::new();
    let one_worker = RelaySettings { workers: 1.try_into().unwrap(), ..patient() };
    let slow = relay(db, gate.listeners()).settings(one_worker).spawn().await.unwrap();
    let stuck = next(&mut starts, 1).await;
    let (listeners, mut received) = Script::default().listeners();

    let quick = relay(db, listeners).settings(patient()).spawn().await.unwrap();

    let mut numbers = next(&mut received, 19).await;
    assert!(starts.try_recv().is_err(), "the slow one has begun with one");
    numbers.extend(stuck);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    gate.open(1);
    slow.stop().await.unwrap();
    quick.stop().await.unwrap();
}

/// A full claim is followed by the next one at once.
pub(crate) async fn a_backlog_drains_after_one_poll(db: &TestDatabase) {
    db.commit(&Outbox::new(), (0..300).map(free).collect()).await;
    let (listeners, mut received) = Script::default().listeners();

    let handle = relay(db, listeners).settings(blind()).spawn().await.unwrap();

    let mut numbers = next(&mut received, 300).await;
    handle.stop().await.unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
}

/// One wake is enough for the whole backlog of a key.
pub(crate) async fn a_queue_drains_after_one_wake(db: &TestDatabase) {
    let script = Script::default().fail(3, 2).fail(1003, 2);
    let (listeners, mut received) = script.listeners();
    let relay = relay(db, listeners).settings(blind());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let queues = (0..30).map(|n| keyed("a", n)).chain((1000..1030).map(|n| keyed("b", n)));
    db.commit(&outbox, queues.collect()).await;

    let numbers = next(&mut received, 60).await;
    let (a, b): (Vec<i64>, Vec<i64>) = numbers.iter().partition(|number| **number < 1000);
    assert_eq!((a, b), ((0..30).collect(), (1000..1030).collect()));
    handle.stop().await.unwrap();
}

/// Events without a key come from the local queue; those with a key never do.
pub(crate) async fn only_events_without_a_key_use_the_local_queue(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, mut received) = Script::default().fail(2, 2).listeners();
    let relay = relay(db, listeners).settings(blind()).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2), keyed("k", 3)]).await;

    let mut numbers = next(&mut received, 3).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    for (id, attempts) in ids.iter().zip([0, 2, 0]) {
        assert_eq!(db.event_with(id, Status::Done).await.attempts, attempts);
    }
    handle.stop().await.unwrap();
    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::FromLocalQueue { .. })), 2);
    let claimed: usize = probe.seen().iter().map(rows_claimed).sum();
    assert_eq!(claimed, 3, "the keyed one, and the one that failed, twice");
}

fn rows_claimed(relay_event: &RelayEvent<'_>) -> usize {
    if let RelayEvent::Read { rows } = relay_event { *rows } else { 0 }
}

/// Without order, two events of a key are delivered at once.
pub(crate) async fn in_any_order_a_key_is_delivered_side_by_side(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings { order: Order::None, ..patient() };
    let handle = relay(db, gate.listeners()).settings(settings).spawn().await.unwrap();

    let ids = db.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2)]).await;

    let mut started = next(&mut starts, 2).await;
    started.sort_unstable();
    assert_eq!(started, [1, 2]);
    gate.open(2);
    for id in &ids {
        db.event_with(id, Status::Done).await;
    }
    handle.stop().await.unwrap();
}

/// In order, the second event of a key waits for the first.
pub(crate) async fn in_order_a_key_is_delivered_one_by_one(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let handle = relay(db, gate.listeners()).settings(patient()).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2)]).await;
    assert_eq!(next(&mut starts, 1).await, [1]);

    db.commit(&Outbox::new(), vec![free(3)]).await;

    assert_eq!(next(&mut starts, 1).await, [3], "the second of the key was passed by");
    gate.open(2);
    assert_eq!(next(&mut starts, 1).await, [2]);
    gate.open(1);
    handle.stop().await.unwrap();
}
