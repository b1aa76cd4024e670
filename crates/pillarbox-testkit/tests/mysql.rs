//! What only MySQL and MariaDB do: transactions that end without a word, locks over gaps.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(feature = "mysql")]

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{
    AcquireShards, Budget, DeliveryMode, Join, Lease, OwnedShard, Pending, Purge, Read,
    Schema as _, Settle, Settlement, ShardRead,
};
use pillarbox::tx::{Insert, Tx as _};
use pillarbox::{
    Envelope, ErrorKind, EventId, Key, MysqlStore, Outbox, OwnerId, Seq, ShardId, Store, Tables,
    Verdict,
};
use pillarbox_testkit::fake::cut;
use pillarbox_testkit::{Backend, Hold, MysqlBackend, run};
use sqlx::{Connection as _, mysql::MySqlPoolOptions};

macro_rules! on_mysql {
    ($($case:ident),+ $(,)?) => { mod mysql { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let path = concat!(module_path!(), "::", stringify!($case));
            super::run::<super::MysqlBackend>(path, super::$case).await;
        }
    )+ } };
}

on_mysql! {
    ddl_in_a_transaction_lets_no_emit_through,
    a_connection_lost_at_a_savepoint_is_worth_another_try,
    a_session_without_autocommit_lets_no_ghost_through,
    a_session_without_strict_mode_loses_no_event,
    an_emit_dropped_anywhere_leaves_nothing,
    an_open_emit_stops_nothing_that_a_relay_does,
    a_settle_that_waits_stops_no_emit,
    a_settle_gives_up_a_lock_it_cannot_have,
    an_emit_of_any_size_closes_no_statement,
    a_user_without_ddl_rights_migrates_up_to_date_tables,
}

/// The server ends the session while a savepoint is taken back.
async fn a_connection_lost_at_a_savepoint_is_worth_another_try(backend: &MysqlBackend) {
    let pool = backend.sqlx_pool();
    let mut tx = Outbox::new().begin(pool).await.unwrap();
    let session: i64 = sqlx::query_scalar("select cast(connection_id() as signed)")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let savepoint = tx.savepoint().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("kill {session}"))).execute(pool).await.unwrap();
    drop(savepoint);

    tx.emit_envelope(keyed("1")).await.unwrap();
    let lost = tx.commit().await.unwrap_err();

    assert!(lost.is_transient(), "{lost}");
    assert_eq!(lost.kind(), ErrorKind::Unavailable, "{lost}");
}

/// What is sent after a statement was closed waits 40 ms for the server's acknowledgement.
async fn an_emit_of_any_size_closes_no_statement(backend: &MysqlBackend) {
    let pool = backend.sqlx_pool();
    let tables = Tables::default();
    let mut own = pool.begin().await.unwrap();
    let mut written = 0;
    for count in [1, 9, 17, 100, 999] {
        let envelopes: Vec<Envelope> =
            (0..count).map(|number| keyed(&number.to_string())).collect();
        let locks: Vec<String> = (0..count % 20).map(|number| number.to_string()).collect();
        let insert = Insert { tables: &tables, envelopes: &envelopes, locks: &locks, hot: None };
        (&mut own).insert(&insert).await.unwrap();
        written += count;
    }

    let closed = "show session status like 'Com_stmt_close'";
    let (_, closed): (String, String) = sqlx::query_as(closed).fetch_one(&mut *own).await.unwrap();
    assert_eq!(closed, "0");
    own.commit().await.unwrap();
    assert_eq!(backend.store().stats().await.unwrap().new, written);
}

/// DDL commits what went before, and what follows would commit by itself.
async fn ddl_in_a_transaction_lets_no_emit_through(backend: &MysqlBackend) {
    let outbox = Outbox::new();
    let mut own = backend.sqlx_pool().begin().await.unwrap();
    sqlx::raw_sql("create table surprise (id int)").execute(&mut *own).await.unwrap();
    let refused = outbox.emit_envelope(&mut own, keyed("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoTransaction);
    own.rollback().await.unwrap();

    for emits in [0, 1, 3] {
        let mut tx = outbox.begin(backend.sqlx_pool()).await.unwrap();
        for _ in 0..emits {
            tx.emit_envelope(keyed("a")).await.unwrap();
        }
        sqlx::raw_sql("alter table surprise comment 'x'").execute(&mut *tx).await.unwrap();
        let refused = tx.commit().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoTransaction, "with {emits} events");
    }

    assert_eq!(backend.store().stats().await.unwrap().new, 0);
}

/// There a new transaction begins in silence where the old one ended.
async fn a_session_without_autocommit_lets_no_ghost_through(backend: &MysqlBackend) {
    let (outbox, pool) = (Outbox::new(), backend.sqlx_pool());
    for emits in [0, 1] {
        let mut tx = outbox.begin(pool).await.unwrap();
        sqlx::raw_sql("set autocommit = 0; rollback").execute(&mut *tx).await.unwrap();
        for _ in 0..emits {
            tx.emit_envelope(keyed("a")).await.unwrap();
        }
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::NoTransaction);
    }
    let mut own = pool.acquire().await.unwrap().detach();
    sqlx::raw_sql("set autocommit = 0").execute(&mut own).await.unwrap();
    let mut own = own.begin().await.unwrap();
    let refused = outbox.emit_envelope(&mut own, keyed("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    drop(own);
    assert_eq!(backend.store().stats().await.unwrap().new, 0);

    let mut tx = outbox.begin(pool).await.unwrap();
    sqlx::raw_sql("set autocommit = 0").execute(&mut *tx).await.unwrap();
    tx.emit_envelope(keyed("a")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(backend.store().stats().await.unwrap().new, 1);
}

/// There a null becomes an empty text, and a check has to refuse it.
async fn a_session_without_strict_mode_loses_no_event(backend: &MysqlBackend) {
    for emits in [1, 3] {
        let mut tx = Outbox::new().begin(backend.sqlx_pool()).await.unwrap();
        sqlx::raw_sql("set sql_mode = ''; rollback").execute(&mut *tx).await.unwrap();
        for _ in 0..emits {
            tx.emit_envelope(keyed("a")).await.unwrap();
        }

        let refused = tx.commit().await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::NoTransaction);
        assert_eq!(backend.store().stats().await.unwrap().new, 0);
    }
}

/// The caller's own transaction may cost its connection, but never leaves an event.
async fn an_emit_dropped_anywhere_leaves_nothing(backend: &MysqlBackend) {
    let outbox = Outbox::new();
    for polls in 0..1000 {
        let options = (*backend.sqlx_pool().connect_options()).clone();
        let pool = MySqlPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        let ended = cut(polls, outbox.emit_envelope(&mut tx, keyed("a"))).await;
        drop(tx);
        if let Some(emitted) = ended {
            emitted.unwrap();
            assert_eq!(backend.store().stats().await.unwrap().new, 0);
            return;
        }
    }
    panic!("an emit did not end");
}

/// Business at the default isolation holds rows and gaps beside those a relay works on.
async fn an_open_emit_stops_nothing_that_a_relay_does(backend: &MysqlBackend) {
    let relay = Hands::on(backend).await;
    let rows = relay.emit_and_read(backend, 6).await;
    let mut open = backend.sqlx_pool().begin().await.unwrap();
    for key in ["a", "b", "c"] {
        Outbox::new().emit_envelope(&mut open, keyed(key)).await.unwrap();
    }

    let verdicts = [Verdict::Done, Verdict::Delete, Verdict::Done, Verdict::Delete];
    let settled = relay.settle(rows.iter().zip(verdicts)).await.unwrap();
    assert_eq!(settled.len(), 4);
    // Again: what is looked for is not there, and nothing may lock the gap where it was.
    let again = rows.iter().zip([Verdict::Done, Verdict::Delete, Verdict::Done, Verdict::Delete]);
    assert_eq!(relay.settle(again).await.unwrap(), []);
    assert_eq!(relay.store.purge(&Purge::done(Duration::ZERO)).await.unwrap(), 2);
    assert_eq!(relay.read().await.len(), 2);
    let take = AcquireShards { owner: relay.owner.clone(), most: 64, owned: vec![] };
    assert_eq!(relay.store.acquire_shards(&take).await.unwrap().len(), 64);

    open.commit().await.unwrap();
    assert_eq!(relay.read().await.len(), 5);
}

/// A settle that waits holds its fence and its rows, but no gap that an insert could fall into.
async fn a_settle_that_waits_stops_no_emit(backend: &MysqlBackend) {
    let relay = Hands::on(backend).await;
    let rows = relay.emit_and_read(backend, 2).await;
    let stuck = &rows[0];
    let lock = backend.hold(Hold::Event(stuck.seq)).await;

    // Settled and purged long ago: the gap where it was is where every insert goes.
    let gone = Pending { seq: Seq(rows[1].seq.0 + 100), ..rows[1].clone() };
    let wanted = [(&gone, Verdict::Delete), (&rows[1], Verdict::Delete), (stuck, Verdict::Delete)];
    let mut settle = pin!(relay.settle(wanted.into_iter()));
    match select(&mut settle, pin!(backend.blocked(1))).await {
        Either::Left((settled, _)) => panic!("did not wait: {settled:?}"),
        Either::Right(_) => {}
    }
    for key in ["a", "b", "c", "d"] {
        let mut tx = Outbox::new().begin(backend.sqlx_pool()).await.unwrap();
        sqlx::raw_sql("set innodb_lock_wait_timeout = 1").execute(&mut *tx).await.unwrap();
        tx.emit_envelope(keyed(key)).await.unwrap();
        tx.commit().await.expect("the insert waits for nobody");
    }
    lock.commit().await;

    let mut settled = settle.await.unwrap();
    settled.sort();
    assert_eq!(settled, [stuck.seq, rows[1].seq]);
}

/// A takeover waits for a settle, and the lease must be renewed meanwhile.
async fn a_settle_gives_up_a_lock_it_cannot_have(backend: &MysqlBackend) {
    let relay = Hands::on(backend).await;
    let rows = relay.emit_and_read(backend, 1).await;
    let lock = backend.hold(Hold::Event(rows[0].seq)).await;

    let error = relay.settle([(&rows[0], Verdict::Done)].into_iter()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Busy);
    lock.commit().await;
    let settled = relay.settle([(&rows[0], Verdict::Done)].into_iter()).await.unwrap();
    assert_eq!(settled, [rows[0].seq]);
}

/// An application's user may change rows, not tables. What it cannot do, it says how to get done.
async fn a_user_without_ddl_rights_migrates_up_to_date_tables(backend: &MysqlBackend) {
    let (user, database) = (OwnerId::generate(), backend.database());
    let grants = format!(
        "create user '{user}'; grant select, insert, update, delete on {database}.* to '{user}'"
    );
    backend.run(&grants).await.unwrap();
    let options = (*backend.sqlx_pool().connect_options()).clone().username(user.as_str());
    let store = MysqlStore::new(MySqlPoolOptions::new().connect_lazy_with(options));

    let current = store.migrate().await;
    let layout = store.config().await;
    let marked = store.mark_seq().await;
    backend.run("update outbox_setting set newest_seq = 7").await.unwrap();
    let behind = store.config().await;
    backend.run("delete from outbox_migration").await.unwrap();
    let outdated = store.migrate().await;
    backend.run(&format!("drop user '{user}'")).await.unwrap();

    current.unwrap();
    layout.unwrap();
    marked.unwrap();
    assert_eq!(behind.unwrap_err().kind(), ErrorKind::Configuration);
    let refused = outdated.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema, "{refused}");
    assert!(refused.to_string().contains("run `migrate` once as"), "{refused}");
}

/// An owner of shards that a test controls.
struct Hands {
    store: Arc<dyn Store>,
    owner: OwnerId,
    holdings: Vec<OwnedShard>,
}

impl Hands {
    async fn on(backend: &MysqlBackend) -> Self {
        let (store, owner) = (backend.store(), OwnerId::generate());
        let length = Duration::from_secs(3600);
        let lease = Lease { owner: owner.clone(), length, wants: 64 };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let take = AcquireShards { owner: owner.clone(), most: 64, owned: vec![] };
        let holdings = store.acquire_shards(&take).await.unwrap();
        Self { store, owner, holdings }
    }

    async fn emit_and_read(&self, backend: &MysqlBackend, count: usize) -> Vec<Pending> {
        let mut tx = Outbox::new().begin(backend.sqlx_pool()).await.unwrap();
        for _ in 0..count {
            tx.emit_envelope(keyed("a")).await.unwrap();
        }
        tx.commit().await.unwrap();
        self.read().await
    }

    async fn read(&self) -> Vec<Pending> {
        let from_head = |shard| ShardRead { shard: ShardId(shard), floor: Seq::START };
        let shards = (0..64).map(from_head).collect();
        self.store.read(&Read { shards, limit: 1000, budget: Budget::unlimited() }).await.unwrap()
    }

    async fn settle(
        &self,
        verdicts: impl Iterator<Item = (&Pending, Verdict)>,
    ) -> pillarbox::Result<Vec<Seq>> {
        let settlement = |(row, verdict): (&Pending, Verdict)| Settlement {
            shard: row.shard,
            epoch: self.holdings.iter().find(|held| held.shard == row.shard).unwrap().epoch,
            seq: row.seq,
            token: row.token,
            verdict,
            settled_by: None,
        };
        let settlements = verdicts.map(settlement).collect();
        let settle = Settle { owner: self.owner.clone(), settlements };
        Ok(self.store.settle(&settle).await?.applied)
    }
}

fn keyed(key: &str) -> Envelope {
    let envelope = Envelope::json("test.step", &1).unwrap().id(EventId::generate());
    envelope.key(Key::Given(key.to_owned())).unwrap()
}
