//! Writers whose transaction sees less than there is, or lasts longer than one thinks.

use pillarbox::Outbox;
use pillarbox_testkit::{Backend, Connection};

use super::fixture::{ControlledRelay, Deliveries, commit};
use crate::fixture::keyed;

/// H7: at REPEATABLE READ a writer's snapshot may be older than the commit before its own, and show
/// nothing older of its key. R7: its event is delivered in its db all the same.
async fn a_snapshot_of_the_past_lets_nothing_overtake<B: Backend>(
    backend: &B,
    look: impl AsyncFnOnce(&mut Connection<B>),
) {
    let (mut deliveries, listeners) = Deliveries::new([]);
    let relay = ControlledRelay::start(backend, listeners, |relay| relay).await.at_rest().await;
    let mut second = relay.outbox.begin(backend.pool()).await.unwrap();
    look(&mut second).await;

    commit(backend, &Outbox::new(), [keyed("k", 1)]).await;
    second.emit_envelope(keyed("k", 2)).await.unwrap();
    second.commit().await.unwrap();

    assert_eq!(deliveries.next(2).await, [1, 2]);
    relay.leave().await;
}

mod mysql {
    use pillarbox_testkit::{MysqlBackend, run};
    use sqlx::MySqlConnection;

    /// REPEATABLE READ is the default there.
    async fn look(tx: &mut MySqlConnection) {
        sqlx::raw_sql("select count(*) from outbox_event").execute(tx).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_snapshot_of_the_past_lets_nothing_overtake() {
        let path = concat!(module_path!(), "::a_snapshot_of_the_past_lets_nothing_overtake");
        run::<MysqlBackend>(path, async |backend: &MysqlBackend| {
            super::a_snapshot_of_the_past_lets_nothing_overtake(backend, look).await;
        })
        .await;
    }
}

mod postgres {
    use pillarbox::tx::{Begin as _, Insert, LocalLease, OpenTx as _};
    use pillarbox::{OwnerId, Tables};
    use pillarbox_testkit::{Backend as _, PostgresBackend, run};
    use sqlx::PgConnection;

    use super::super::fixture::HOUR;
    use crate::fixture::free;

    async fn look(tx: &mut PgConnection) {
        let isolate = "set transaction isolation level repeatable read";
        sqlx::raw_sql(isolate).execute(&mut *tx).await.unwrap();
        sqlx::raw_sql("select count(*) from outbox_event").execute(tx).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_snapshot_of_the_past_lets_nothing_overtake() {
        let path = concat!(module_path!(), "::a_snapshot_of_the_past_lets_nothing_overtake");
        run::<PostgresBackend>(path, async |backend: &PostgresBackend| {
            super::a_snapshot_of_the_past_lets_nothing_overtake(backend, look).await;
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_rows_lease_counts_from_its_insert() {
        let path = concat!(module_path!(), "::a_rows_lease_counts_from_its_insert");
        run::<PostgresBackend>(path, lease_of_an_insert).await;
    }

    /// H8: `now()` is the begin of a transaction; a lease that counts from there is shorter than
    /// the writer's process believes. R8: it counts from the statement.
    async fn lease_of_an_insert(backend: &PostgresBackend) {
        let mut tx = backend.pool().begin().await.unwrap();
        let (tables, owner, envelopes) = (Tables::default(), OwnerId::generate(), [free(1)]);
        let hot = Some(LocalLease { owner: &owner, length: HOUR, keyed: false });
        tx.insert(&Insert { tables: &tables, envelopes: &envelopes, locks: &[], hot })
            .await
            .unwrap();

        let look = "select locked_until > now() + interval '1 hour' from outbox_event";
        let is_later: bool = sqlx::query_scalar(look).fetch_one(tx.connection_mut()).await.unwrap();

        assert!(is_later, "it counts from the begin of the transaction");
        tx.rollback().await.unwrap();
    }
}
