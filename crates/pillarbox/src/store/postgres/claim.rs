//! Row claims: due rows under a lease of their own.

use sqlx::PgExecutor;

use super::read::pending;
use super::sql::claim as sql;
use super::{PostgresStore, settle::Marks};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq};
use crate::store::{Claim, Order, Pending, RenewRows, RowLease, RowVerdict, SettleRows};
use crate::verdict::Verdict;

pub(super) async fn claim(store: &PostgresStore, claim: &Claim) -> Result<Vec<Pending>> {
    let rows = sqlx::query(store.sql(sql::CLAIM))
        .bind(claim.owner.as_str())
        .bind(claim.shards.iter().map(|shard| shard.0).collect::<Vec<_>>())
        .bind(i64::from(claim.limit))
        .bind(micros(claim.length))
        .bind(claim.order == Order::Key)
        .fetch_all(&store.pool)
        .await?;
    let mut rows: Vec<Pending> = rows.iter().map(pending).collect::<Result<_>>()?;
    let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
    rows.sort_by_key(|row| (place(row), row.seq));
    Ok(rows)
}

pub(super) async fn renew_rows(store: &PostgresStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(&renew.rows));
    let kept: Vec<i64> = sqlx::query_scalar(store.sql(sql::RENEW_ROWS))
        .bind(renew.owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(micros(renew.length))
        .fetch_all(&store.leases)
        .await?;
    Ok(kept.into_iter().map(Seq).collect())
}

pub(super) async fn release_rows(
    store: &PostgresStore,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(rows));
    let released = sqlx::query(store.sql(sql::RELEASE_ROWS))
        .bind(owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .execute(&store.pool)
        .await?;
    Ok(released.rows_affected())
}

pub(super) async fn settle_rows(store: &PostgresStore, settle: &SettleRows) -> Result<Vec<Seq>> {
    let mut verdicts: Vec<&RowVerdict> = settle.verdicts.iter().collect();
    verdicts.sort_by_key(|it| it.row.seq);
    let (deleted, marked): (Vec<&RowVerdict>, Vec<&RowVerdict>) =
        verdicts.into_iter().partition(|it| it.verdict == Verdict::Delete);
    if marked.is_empty() {
        return delete(store, &store.pool, &settle.owner, &deleted).await;
    }
    if deleted.is_empty() {
        return mark(store, &store.pool, &settle.owner, &marked).await;
    }
    let mut tx = store.begin().await?;
    let mut applied = delete(store, &mut *tx, &settle.owner, &deleted).await?;
    applied.extend(mark(store, &mut *tx, &settle.owner, &marked).await?);
    tx.commit().await?;
    Ok(applied)
}

async fn delete(
    store: &PostgresStore,
    executor: impl PgExecutor<'_>,
    owner: &OwnerId,
    verdicts: &[&RowVerdict],
) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, tokens } = Rows::of(verdicts.iter().map(|it| &it.row));
    let applied: Vec<i64> = sqlx::query_scalar(store.sql(sql::SETTLE_ROWS_DELETE))
        .bind(owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .fetch_all(executor)
        .await?;
    Ok(applied.into_iter().map(Seq).collect())
}

async fn mark(
    store: &PostgresStore,
    executor: impl PgExecutor<'_>,
    owner: &OwnerId,
    verdicts: &[&RowVerdict],
) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, tokens } = Rows::of(verdicts.iter().map(|it| &it.row));
    let marks = Marks::of(verdicts.iter().map(|it| (&it.verdict, it.settled_by.as_deref())));
    let applied: Vec<i64> = sqlx::query_scalar(store.sql(sql::SETTLE_ROWS_MARK))
        .bind(owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(marks.statuses)
        .bind(marks.tried)
        .bind(marks.delays)
        .bind(marks.errors)
        .bind(marks.routes)
        .fetch_all(executor)
        .await?;
    Ok(applied.into_iter().map(Seq).collect())
}

/// In order of `seq`, as everyone who locks rows: so none waits in a circle.
fn in_order(rows: &[RowLease]) -> Vec<RowLease> {
    let mut rows = rows.to_vec();
    rows.sort_unstable_by_key(|row| row.seq);
    rows
}

/// Rows with their tokens, column by column.
struct Rows {
    shards: Vec<i16>,
    seqs: Vec<i64>,
    tokens: Vec<i32>,
}

impl Rows {
    fn of<'r>(rows: impl IntoIterator<Item = &'r RowLease>) -> Self {
        let mut columns = Self { shards: Vec::new(), seqs: Vec::new(), tokens: Vec::new() };
        for row in rows {
            columns.shards.push(row.shard.0);
            columns.seqs.push(row.seq.0);
            columns.tokens.push(row.token.0);
        }
        columns
    }
}
