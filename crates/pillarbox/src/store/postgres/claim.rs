//! Row claims: due rows under a lease of their own.

use std::time::Duration;

use sqlx::PgExecutor;

use super::read::pending;
use super::sql::claim as sql;
use super::{PostgresStore, settle::Marks};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq};
use crate::store::{Claim, Order, Pending, RenewRows, RowLease, RowVerdict, SettleRows, Suspects};
use crate::verdict::Verdict;

pub(super) async fn claim(store: &PostgresStore, claim: &Claim) -> Result<Vec<Pending>> {
    let text = if claim.order == Order::Key { sql::CLAIM_HEADS } else { sql::CLAIM };
    let mut query = sqlx::query(store.sql(text))
        .persistent(store.named)
        .bind(claim.owner.as_str())
        .bind(claim.shards.iter().map(|shard| shard.0).collect::<Vec<_>>())
        .bind(i64::from(claim.limit))
        .bind(micros(claim.length));
    if claim.order == Order::Key {
        query = query.bind(claim.after.as_deref().unwrap_or_default());
    }
    let mut link = store.link(&store.pool).await?;
    let rows = query.fetch_all(&mut *link).await?;
    link.end().await?;
    let mut rows: Vec<Pending> = rows.iter().map(pending).collect::<Result<_>>()?;
    // What is read is the lease that the claim gave.
    rows.iter_mut().for_each(|row| (row.due_in, row.lapsed) = (Duration::ZERO, false));
    let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
    rows.sort_by_key(|row| (place(row), row.seq));
    Ok(rows)
}

pub(super) async fn renew_rows(store: &PostgresStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(&renew.rows));
    let mut link = store.link(&store.leases).await?;
    let kept: Vec<i64> = sqlx::query_scalar(store.sql(sql::RENEW_ROWS))
        .persistent(store.named)
        .bind(renew.owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(micros(renew.length))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(kept.into_iter().map(Seq).collect())
}

pub(super) async fn release_rows(
    store: &PostgresStore,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(rows));
    let mut link = store.link(&store.pool).await?;
    let released = sqlx::query(store.sql(sql::RELEASE_ROWS))
        .persistent(store.named)
        .bind(owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .execute(&mut *link)
        .await?;
    link.end().await?;
    Ok(released.rows_affected())
}

pub(super) async fn reclaim(store: &PostgresStore, rows: &[RowLease]) -> Result<u64> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(rows));
    let mut link = store.link(&store.pool).await?;
    let freed = sqlx::query(store.sql(sql::RECLAIM))
        .persistent(store.named)
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .execute(&mut *link)
        .await?;
    link.end().await?;
    Ok(freed.rows_affected())
}

pub(super) async fn suspect(store: &PostgresStore, suspects: &Suspects) -> Result<Vec<(Seq, u32)>> {
    let Rows { shards, seqs, tokens } = Rows::of(&in_order(&suspects.rows));
    let mut link = store.link(&store.pool).await?;
    let counted: Vec<(i64, i32)> = sqlx::query_as(store.sql(sql::SUSPECT))
        .persistent(store.named)
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(i64::from(suspects.below))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(counted.into_iter().map(|(seq, times)| (Seq(seq), times.unsigned_abs())).collect())
}

pub(super) async fn settle_rows(store: &PostgresStore, settle: &SettleRows) -> Result<Vec<Seq>> {
    let mut verdicts: Vec<&RowVerdict> = settle.verdicts.iter().collect();
    verdicts.sort_by_key(|it| it.row.seq);
    let (deleted, marked): (Vec<&RowVerdict>, Vec<&RowVerdict>) =
        verdicts.into_iter().partition(|it| it.verdict == Verdict::Delete);
    if marked.is_empty() {
        let mut link = store.link(&store.pool).await?;
        let deleted = delete(store, &mut *link, &settle.owner, &deleted).await?;
        link.end().await?;
        return Ok(deleted);
    }
    if deleted.is_empty() {
        let mut link = store.link(&store.pool).await?;
        let marked = mark(store, &mut *link, &settle.owner, &marked).await?;
        link.end().await?;
        return Ok(marked);
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
        .persistent(store.named)
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
        .persistent(store.named)
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
