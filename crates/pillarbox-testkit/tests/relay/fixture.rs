//! A database of the test, and a listener whose calls the test can wait for.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::store::{Status, StoredEvent};
use pillarbox::tx::sqlx::SqlxTx;
use pillarbox::tx::{Begin, Insert, OpenTx as _};
use pillarbox::{
    Backoff, Clock, Cx, Envelope, EventId, Failure, Key, Listeners, MemoryStore, Outbox, Relay,
    RelaySettings, Store, SystemClock, Timestamp,
};
use pillarbox_testkit::{Backend, MysqlBackend, OwnTx as _, PostgresBackend, SqliteBackend};
use tokio::sync::mpsc;

/// The limit of every wait. No healthy test reaches it, on however busy a machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// How often a test polls a table.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The database of one test.
pub(crate) enum TestDatabase {
    Memory(MemoryStore, ShiftedClock),
    Sqlite(SqliteBackend),
    Mysql(Box<MysqlBackend>),
    Postgres(Box<PostgresBackend>),
}

pub(crate) async fn open_memory(_: &str) -> Option<TestDatabase> {
    let clock = ShiftedClock::default();
    Some(TestDatabase::Memory(MemoryStore::with_clock(clock.clone()), clock))
}

pub(crate) async fn open_sqlite(test: &str) -> Option<TestDatabase> {
    SqliteBackend::open(test).await.ok().map(TestDatabase::Sqlite)
}

pub(crate) async fn open_mysql(test: &str) -> Option<TestDatabase> {
    match MysqlBackend::open(test).await {
        Ok(backend) => Some(TestDatabase::Mysql(Box::new(backend))),
        Err(missing) => {
            pillarbox_testkit::skip(&missing.0);
            None
        }
    }
}

pub(crate) async fn open_postgres(test: &str) -> Option<TestDatabase> {
    match PostgresBackend::open(test).await {
        Ok(backend) => Some(TestDatabase::Postgres(Box::new(backend))),
        Err(missing) => {
            pillarbox_testkit::skip(&missing.0);
            None
        }
    }
}

impl TestDatabase {
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store, _) => Arc::new(store.clone()),
            Self::Sqlite(backend) => backend.store(),
            Self::Mysql(backend) => backend.store(),
            Self::Postgres(backend) => backend.store(),
        }
    }

    pub(crate) async fn commit(&self, outbox: &Outbox, envelopes: Vec<Envelope>) -> Vec<EventId> {
        match self {
            Self::Memory(store, _) => emit(outbox, store, envelopes, End::Commit).await,
            Self::Sqlite(backend) => emit(outbox, backend.pool(), envelopes, End::Commit).await,
            Self::Mysql(backend) => emit(outbox, backend.pool(), envelopes, End::Commit).await,
            Self::Postgres(backend) => emit(outbox, backend.pool(), envelopes, End::Commit).await,
        }
    }

    /// Commits a transaction of the test's own, whose commit the outbox does not see.
    pub(crate) async fn commit_unseen(&self, outbox: &Outbox, envelope: Envelope) {
        match self {
            Self::Memory(store, _) => {
                let mut own = store.open();
                outbox.emit_envelope(&mut own, envelope).await.unwrap();
                own.commit().unwrap();
            }
            Self::Sqlite(backend) => emit_own(backend, outbox, envelope).await,
            Self::Mysql(backend) => emit_own(&**backend, outbox, envelope).await,
            Self::Postgres(backend) => emit_own(&**backend, outbox, envelope).await,
        }
    }

    /// Inserts these rows and commits.
    pub(crate) async fn insert(&self, insert: &Insert<'_>) {
        match self {
            Self::Memory(store, _) => write(store, insert).await,
            Self::Sqlite(backend) => write(backend.pool(), insert).await,
            Self::Mysql(backend) => write(backend.pool(), insert).await,
            Self::Postgres(backend) => write(backend.pool(), insert).await,
        }
    }

    pub(crate) async fn roll_back(&self, outbox: &Outbox, envelopes: Vec<Envelope>) {
        match self {
            Self::Memory(store, _) => emit(outbox, store, envelopes, End::Rollback).await,
            Self::Sqlite(backend) => emit(outbox, backend.pool(), envelopes, End::Rollback).await,
            Self::Mysql(backend) => emit(outbox, backend.pool(), envelopes, End::Rollback).await,
            Self::Postgres(backend) => emit(outbox, backend.pool(), envelopes, End::Rollback).await,
        };
    }

    /// Locks a row in a transaction of its own; `None` where the database locks no rows.
    pub(crate) async fn lock_row(&self, id: &EventId) -> Option<RowLock> {
        match self {
            Self::Memory(..) | Self::Sqlite(_) => None,
            Self::Mysql(backend) => {
                let mut tx = backend.pool().begin().await.unwrap();
                let lock = "select seq from outbox_event where event_id = ? for update";
                sqlx::query(lock).bind(id.as_str()).fetch_one(tx.connection_mut()).await.unwrap();
                Some(RowLock::Mysql(tx))
            }
            Self::Postgres(backend) => {
                let mut tx = backend.pool().begin().await.unwrap();
                let lock = "select seq from outbox_event where event_id = $1 for update";
                sqlx::query(lock).bind(id.as_str()).fetch_one(tx.connection_mut()).await.unwrap();
                Some(RowLock::Postgres(tx))
            }
        }
    }

    /// Makes these events older, and the leases on their rows.
    pub(crate) async fn age(&self, ids: &[EventId], by: Duration) {
        if let Self::Memory(_, clock) = self {
            return clock.advance(by);
        }
        for id in ids {
            match self {
                Self::Memory(..) => {}
                Self::Sqlite(backend) => backend.age(id, by).await,
                Self::Mysql(backend) => backend.age(id, by).await,
                Self::Postgres(backend) => backend.age(id, by).await,
            }
        }
    }

    /// Lets the leases of all owners lapse, as if they had died long ago.
    pub(crate) async fn expire_owners(&self) {
        let store = self.store();
        wait_for(async || {
            let members = store.members().await.unwrap();
            for owner in members.iter().map(|member| &member.owner) {
                match self {
                    Self::Memory(_, clock) => clock.advance(Duration::from_secs(3600)),
                    Self::Sqlite(backend) => backend.expire(owner).await,
                    Self::Mysql(backend) => backend.expire(owner).await,
                    Self::Postgres(backend) => backend.expire(owner).await,
                }
            }
            members.is_empty().then_some(())
        })
        .await;
    }

    /// The event once it has this status.
    pub(crate) async fn event_with(&self, id: &EventId, status: Status) -> StoredEvent {
        let store = self.store();
        let found = wait_for(async || {
            let event = store.event(id).await.unwrap();
            event.filter(|event| event.status == status)
        });
        found.await
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Memory(..) => {}
            Self::Sqlite(backend) => backend.close().await,
            Self::Mysql(backend) => backend.close().await,
            Self::Postgres(backend) => backend.close().await,
        }
    }
}

/// A lock on a row.
pub(crate) enum RowLock {
    Mysql(SqlxTx<sqlx::MySql>),
    Postgres(SqlxTx<sqlx::Postgres>),
}

impl RowLock {
    pub(crate) async fn release(self) {
        match self {
            Self::Mysql(tx) => tx.rollback().await.unwrap(),
            Self::Postgres(tx) => tx.rollback().await.unwrap(),
        }
    }
}

/// The machine's time, and as much more as a test says.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShiftedClock(Arc<AtomicI64>);

impl ShiftedClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let micros = SystemClock.now().unix_micros() + self.0.load(Ordering::SeqCst);
        Timestamp::from_unix_micros(micros)
    }
}

enum End {
    Commit,
    Rollback,
}

async fn emit_own(backend: &impl Backend, outbox: &Outbox, envelope: Envelope) {
    let mut own = backend.own().await;
    own.emit(outbox, envelope).await.unwrap();
    own.commit().await.unwrap();
}

async fn write(pool: impl Begin, insert: &Insert<'_>) {
    let mut tx = pool.begin().await.unwrap();
    tx.insert(insert).await.unwrap();
    tx.commit().await.unwrap();
}

async fn emit(
    outbox: &Outbox,
    pool: impl Begin,
    envelopes: Vec<Envelope>,
    end: End,
) -> Vec<EventId> {
    let mut tx = outbox.begin(pool).await.unwrap();
    let mut ids = Vec::new();
    for envelope in envelopes {
        ids.extend(tx.emit_envelope(envelope).await.unwrap());
    }
    match end {
        End::Commit => tx.commit().await.unwrap(),
        End::Rollback => tx.rollback().await.unwrap(),
    }
    ids
}

/// Waits until the only relay, which was told to stop, gives its shards back. It starts no delivery
/// after that.
pub(crate) async fn until_the_relay_leaves(store: Arc<dyn Store>) {
    let leaving = async {
        while !store.members().await.unwrap().is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, leaving).await.expect("it leaves");
}

/// Polls until there is a result.
pub(crate) async fn wait_for<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            // Not to take the core from the relay that is waited for.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, looking).await.expect("it comes in the end")
}

/// An event whose payload is a number, ordered by a key.
pub(crate) fn keyed(key: &str, number: i64) -> Envelope {
    Envelope::json("test.step", &number).unwrap().key(Key::Given(key.into())).unwrap()
}

/// An event whose payload is a number, ordered by nothing.
pub(crate) fn free(number: i64) -> Envelope {
    Envelope::json("test.step", &number).unwrap()
}

/// Settings with short polls, and with leases and timeouts that outlast every test.
pub(crate) fn quick() -> RelaySettings {
    RelaySettings {
        lease: Duration::from_secs(30),
        delivery_timeout: Duration::from_secs(10),
        drain: Duration::from_secs(60),
        margin: Duration::from_millis(100),
        poll: Duration::from_millis(20),
        sweep: Duration::from_millis(100),
        max_attempts: NonZeroU32::new(3).unwrap(),
        ..RelaySettings::default()
    }
}

pub(crate) fn relay(db: &TestDatabase, listeners: Listeners) -> Relay {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    Relay::new(db.store(), listeners).settings(quick()).retry(backoff)
}

/// A listener that records every event, and fails those that it was told to fail.
#[derive(Clone, Default)]
pub(crate) struct Script {
    failures: Arc<Mutex<HashMap<i64, u32>>>,
}

pub(crate) const ALWAYS: u32 = u32::MAX;

impl Script {
    /// The event with this number fails this many times.
    pub(crate) fn fail(self, number: i64, times: u32) -> Self {
        self.failures.lock().unwrap().insert(number, times);
        self
    }

    /// The event fails no more.
    pub(crate) fn stop_failing(&self, number: i64) {
        self.failures.lock().unwrap().remove(&number);
    }

    /// Listeners that follow the script, and the numbers of their deliveries in order.
    pub(crate) fn listeners(&self) -> (Listeners, mpsc::UnboundedReceiver<i64>) {
        let (sender, received) = mpsc::unbounded_channel();
        (self.sending(sender), received)
    }

    /// The same with a channel that several relays share.
    pub(crate) fn sending(&self, sender: mpsc::UnboundedSender<i64>) -> Listeners {
        let failures = Arc::clone(&self.failures);
        Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let result = follow(&failures, &event);
            if let Ok(number) = &result {
                sender.send(*number).ok();
            }
            async move { result.map(drop) }
        })
    }
}

fn follow(failures: &Mutex<HashMap<i64, u32>>, event: &Envelope) -> Result<i64, Failure> {
    let number = event.payload().as_json().unwrap().parse()?;
    let mut failures = failures.lock().unwrap();
    match failures.get_mut(&number) {
        None | Some(0) => Ok(number),
        Some(left) => {
            *left = if *left == ALWAYS { ALWAYS } else { *left - 1 };
            Err(Failure::retry("told to fail"))
        }
    }
}

/// The numbers of the next deliveries.
pub(crate) async fn next(received: &mut mpsc::UnboundedReceiver<i64>, count: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    let receiving = async {
        while numbers.len() < count {
            numbers.push(received.recv().await.expect("the relay runs"));
        }
    };
    let in_time = tokio::time::timeout(WAIT_TIMEOUT, receiving).await;
    assert!(in_time.is_ok(), "only {numbers:?} came, {count} were to come");
    numbers
}
