use std::time::Duration;

use sqlx::postgres::PgPoolOptions;

use super::super::PostgresStore;
use super::super::place::{Place, server};
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::{Claims as _, RowLease, RowVerdict, SettleRows};
use crate::verdict::Verdict;

/// A renewal moves a row and leaves its token: the verdict that waited for it still counts.
#[tokio::test]
async fn a_row_that_moved_under_its_token_is_settled() {
    let Some(url) = server() else { return };
    let place = Place::open(&url).await;
    let others = PgPoolOptions::new().connect_with((*place.pool.connect_options()).clone());
    let others = others.await.unwrap();
    let store = PostgresStore::new(others.clone()).prefix(place.store.tables.prefix().clone());

    for verdict in [Verdict::Done, Verdict::Delete] {
        let (owner, row) = leased_row(&place).await;
        place
            .run("begin; update plan_outbox_event set locked_until = now() + interval '9 hours'")
            .await;
        let settle = SettleRows {
            owner,
            verdicts: vec![RowVerdict { row, verdict: verdict.clone(), settled_by: None }],
        };
        let settling = tokio::spawn({
            let store = store.clone();
            async move { store.settle_rows(&settle).await }
        });
        until_somebody_waits(&others, &place).await;
        place.run("commit").await;

        assert_eq!(settling.await.unwrap().unwrap(), [row.seq], "{verdict:?}");
    }
    others.close().await;
    place.close().await;
}

async fn leased_row(place: &Place) -> (OwnerId, RowLease) {
    let owner = OwnerId::generate();
    place.run("delete from plan_outbox_event").await;
    place
        .run(&format!(
            "insert into plan_outbox_event (event_type, payload, locked_by, locked_until, lock_token)
            values ('order.placed', '{{}}', '{owner}', now() + interval '5 hours', 1)"
        ))
        .await;
    let row = sqlx::query_as("select shard, seq from plan_outbox_event");
    let (shard, seq) = row.fetch_one(&place.pool).await.unwrap();
    (owner, RowLease { shard: ShardId(shard), seq: Seq(seq), token: Token(1) })
}

async fn until_somebody_waits(pool: &sqlx::PgPool, place: &Place) {
    let holder: i32 =
        sqlx::query_scalar("select pg_backend_pid()").fetch_one(&place.pool).await.unwrap();
    let waiting = "select exists (
        select 1 from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))";
    loop {
        let waits: bool = sqlx::query_scalar(waiting).bind(holder).fetch_one(pool).await.unwrap();
        if waits {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
