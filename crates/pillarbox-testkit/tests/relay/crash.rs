//! Relays that crash on an event.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pillarbox::store::{ClaimMode, Status};
use pillarbox::{Cx, Envelope, EventId, Failure, Listeners, Outbox, Relay, RelaySettings, Store};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
use tokio::sync::Notify;

use crate::fixture::{TestDatabase, WAIT_TIMEOUT, free, keyed, next, quick, relay};

fn three_crashes(claim: ClaimMode) -> RelaySettings {
    RelaySettings { claim, max_crashes: NonZeroU32::new(3).unwrap(), ..quick() }
}

/// The poison is begun and never ends: until its relay dies, as if it had killed it.
#[derive(Clone)]
struct Poison {
    settings: RelaySettings,
    begun: Arc<Notify>,
    /// What else was under way each time.
    beside: Arc<Mutex<Vec<usize>>>,
    under_way: Arc<Mutex<Vec<Weak<()>>>>,
    harmless: Arc<AtomicBool>,
}

impl Poison {
    fn new(claim: ClaimMode) -> Self {
        Self {
            settings: three_crashes(claim),
            begun: Arc::default(),
            beside: Arc::default(),
            under_way: Arc::default(),
            harmless: Arc::default(),
        }
    }

    fn listeners(&self) -> (Listeners, tokio::sync::mpsc::UnboundedReceiver<i64>) {
        let (sender, received) = tokio::sync::mpsc::unbounded_channel();
        let poison = self.clone();
        let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let (poison, sender) = (poison.clone(), sender.clone());
            async move {
                let number: i64 = event.payload().as_json().unwrap_or_default().parse()?;
                if number == 0 && !poison.harmless.load(Ordering::SeqCst) {
                    poison.beside.lock().unwrap().push(poison.others_under_way());
                    poison.begun.notify_one();
                    std::future::pending::<()>().await;
                }
                let alive = Arc::new(());
                poison.under_way.lock().unwrap().push(Arc::downgrade(&alive));
                tokio::task::yield_now().await;
                sender.send(number).ok();
                Ok::<(), Failure>(())
            }
        });
        (listeners, received)
    }

    /// A relay that dies as soon as it has begun the poison; its leases have lapsed afterwards.
    async fn kill_a_relay(&self, db: &TestDatabase, ids: &[EventId]) {
        self.kill_a_relay_on(db.store(), db, ids).await;
    }

    async fn kill_a_relay_on(&self, store: Arc<dyn Store>, db: &TestDatabase, ids: &[EventId]) {
        let (listeners, _received) = self.listeners();
        let relay = Relay::new(store, listeners).settings(self.settings.clone());
        let running = tokio::spawn(relay.run_until(std::future::pending()));
        tokio::time::timeout(WAIT_TIMEOUT, self.begun.notified()).await.unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        db.expire_owners().await;
        db.age(ids, Duration::from_secs(3600)).await;
    }

    /// Deliveries that have neither ended nor died with their relay.
    fn others_under_way(&self) -> usize {
        self.under_way.lock().unwrap().iter().filter(|it| it.strong_count() > 0).count()
    }
}

/// The shards are the successor's, and it does not know whose they were: what is in them is counted.
pub(crate) async fn a_takeover_with_a_lost_answer_still_counts_crashes(db: &TestDatabase) {
    let poison = Poison::new(ClaimMode::Shards);
    let ids = db.commit(&Outbox::new(), vec![keyed("poison", 0)]).await;
    poison.kill_a_relay(db, &ids).await;

    for _ in 0..2 {
        let store = FaultyStore::new(db.store());
        store.next(Call::AcquireShards, Fault::LoseAnswer);
        poison.kill_a_relay_on(Arc::new(store), db, &ids).await;
    }

    let (listeners, _received) = poison.listeners();
    let last = relay(db, listeners).settings(poison.settings.clone()).spawn().await.unwrap();
    let held = db.event_with(&ids[0], Status::Held).await;
    assert!(held.last_error.unwrap().starts_with("crash_loop"));
    last.stop().await.unwrap();
}

/// It is delivered alone when it has killed twice, and then never again: everything else is
/// delivered, however often it waited behind it, and the event says why it was not.
pub(crate) async fn an_event_that_kills_every_relay_is_given_up(
    db: &TestDatabase,
    claim: ClaimMode,
) {
    let poison = Poison::new(claim);
    let others = (1..20).map(|number| keyed(&format!("k{number}"), number));
    let ids =
        db.commit(&Outbox::new(), [keyed("poison", 0)].into_iter().chain(others).collect()).await;

    for _ in 0..3 {
        poison.kill_a_relay(db, &ids).await;
    }
    let (listeners, _received) = poison.listeners();
    let relay = relay(db, listeners).settings(poison.settings.clone());
    let last = relay.spawn().await.unwrap();

    let held = db.event_with(&ids[0], Status::Held).await;
    let error = held.last_error.unwrap();
    assert!(error.starts_with("crash_loop"), "{error}");
    for id in &ids[1..] {
        db.event_with(id, Status::Done).await;
    }
    assert_eq!(poison.beside.lock().unwrap().len(), 3, "never begun again");
    assert_eq!(poison.beside.lock().unwrap()[2], 0, "alone, the third time");
    last.stop().await.unwrap();
}

/// One verdict of any kind resets the count.
pub(crate) async fn a_success_resets_the_crash_count(db: &TestDatabase, claim: ClaimMode) {
    let poison = Poison::new(claim);
    let ids = db.commit(&Outbox::new(), vec![free(0)]).await;
    poison.kill_a_relay(db, &ids).await;
    poison.kill_a_relay(db, &ids).await;
    poison.harmless.store(true, Ordering::SeqCst);

    let (listeners, mut received) = poison.listeners();
    let last = relay(db, listeners).settings(poison.settings.clone()).spawn().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [0]);
    assert_eq!(db.event_with(&ids[0], Status::Done).await.attempts, 0);
    last.stop().await.unwrap();
}
