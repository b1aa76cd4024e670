//! Row claims: new rows under a lease of their own.

use std::collections::HashSet;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use super::MysqlStore;
use super::candidate::candidates;
use super::read::{fetch, fitting, page, parts};
use super::settle::{Batch, Line, Look, given_up, unsettled};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::content::Fit;
use crate::store::{Claim, MAX_DUE, Pending, RenewRows, RowLease, RowVerdict, SettleRows, Starts};

/// How often a claim looks, when others were quicker to lock all that it found.
const LOOKS: usize = 3;

/// Nothing is locked before it is known that there is something to be had.
pub(super) async fn claim(store: &MysqlStore, claim: &Claim) -> Result<Vec<Pending>> {
    for _ in 0..LOOKS {
        let candidates = candidates(store, claim).await?;
        if candidates.is_empty() {
            break;
        }
        let rows = lease(store, claim, candidates).await?;
        if !rows.is_empty() {
            return Ok(rows);
        }
    }
    Ok(Vec::new())
}

async fn lease(store: &MysqlStore, claim: &Claim, candidates: Vec<i64>) -> Result<Vec<Pending>> {
    let mut tx = store.begin().await?;
    let fit = Fit::of(&claim.budget, claim.limit as usize);
    let rows = fitting(sqlx::query(store.sql(sql::CLAIM_PICK)), fit)
        .bind(Value::from(candidates).to_string())
        .bind(i64::from(claim.limit))
        .fetch_all(&mut *tx)
        .await?;
    let mut rows = page(rows)?;
    if rows.is_empty() {
        tx.rollback().await?;
        return Ok(rows);
    }
    let seqs: Value = rows.iter().map(|row| row.seq.0).collect();
    sqlx::query(store.sql(sql::CLAIM))
        .bind(seqs.to_string())
        .bind(claim.owner.as_str())
        .bind(micros(claim.length))
        .execute(&mut *tx)
        .await?;
    let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
    rows.sort_by_key(|row| (place(row), row.seq));
    let chosen = claim.budget.choose(&rows, |_| 0);
    fetch(store, &mut tx, &mut rows, chosen).await?;
    tx.commit().await?;
    // They were read before the claim moved their tokens on.
    for row in &mut rows {
        row.token = Token(row.token.0 % i32::MAX + 1);
    }
    Ok(rows)
}

/// The locks that it gets for looking end with the statement.
pub(super) async fn locked(store: &MysqlStore, rows: &[RowLease]) -> Result<Vec<Seq>> {
    let list = list(rows);
    let mut call = store.call().await?;
    let present: Vec<i64> =
        sqlx::query_scalar(store.sql(sql::PRESENT)).bind(&list).fetch_all(&mut *call).await?;
    let unlocked: Vec<i64> =
        sqlx::query_scalar(store.sql(sql::UNLOCKED)).bind(&list).fetch_all(&mut *call).await?;
    call.end();
    Ok(present.into_iter().filter(|seq| !unlocked.contains(seq)).map(Seq).collect())
}

pub(super) async fn count_due(store: &MysqlStore, shards: &[ShardId]) -> Result<u64> {
    if shards.is_empty() {
        return Ok(0);
    }
    let mut call = store.call().await?;
    let count = async {
        let new = count_among(store, &mut call, sql::COUNT_DUE, shards).await?;
        let waited = count_among(store, &mut call, sql::COUNT_WAITED, shards).await?;
        Ok((new + waited).min(u64::from(MAX_DUE)))
    };
    let count = count.await;
    call.end();
    count
}

async fn count_among(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    text: &'static str,
    shards: &[ShardId],
) -> Result<u64> {
    let (marks, shards) = parts("?", ", ", shards, ShardId(-1));
    let text = store.tables.render(text).replace("{shards}", &marks);
    let mut query = sqlx::query_scalar(AssertSqlSafe(text));
    for shard in shards {
        query = query.bind(shard.0);
    }
    let count = query.bind(i64::from(MAX_DUE)).fetch_one(connection).await;
    Ok(count.map(i64::unsigned_abs)?)
}

/// Locks those of the rows that no other transaction has locked.
pub(super) async fn unlocked(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    rows: &[RowLease],
) -> Result<Vec<RowLease>> {
    let unlocked = sqlx::query_scalar(store.sql(sql::UNLOCKED)).bind(list(rows));
    let unlocked: HashSet<i64> = unlocked.fetch_all(&mut **tx).await?.into_iter().collect();
    Ok(rows.iter().filter(|row| unlocked.contains(&row.seq.0)).copied().collect())
}

/// A lease that still stands after the statement was prolonged by it.
pub(super) async fn renew_rows(store: &MysqlStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let mut tx = store.begin_move().await?;
    let rows = unlocked(store, &mut tx, &renew.rows).await?;
    let list = list(&rows);
    let renewed = sqlx::query(store.sql(sql::RENEW_ROWS))
        .bind(&list)
        .bind(renew.owner.as_str())
        .bind(micros(renew.length))
        .execute(&mut *tx)
        .await?;
    let kept = if renewed.rows_affected() == rows.len() as u64 {
        rows.iter().map(|row| row.seq).collect()
    } else {
        let kept = sqlx::query_scalar(store.sql(sql::KEPT_ROWS)).bind(&list);
        let kept: Vec<i64> = kept.bind(renew.owner.as_str()).fetch_all(&mut *tx).await?;
        kept.into_iter().map(Seq).collect()
    };
    tx.commit().await?;
    Ok(kept)
}

pub(super) async fn release_rows(
    store: &MysqlStore,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    let mut call = store.call().await?;
    let released = sqlx::query(store.sql(sql::RELEASE_ROWS))
        .bind(list(rows))
        .bind(owner.as_str())
        .execute(&mut *call)
        .await;
    call.end();
    Ok(released?.rows_affected())
}

pub(super) async fn reclaim(store: &MysqlStore, rows: &[RowLease]) -> Result<u64> {
    let mut tx = store.begin().await?;
    let rows = unlocked(store, &mut tx, rows).await?;
    let freed = sqlx::query(store.sql(sql::RECLAIM)).bind(list(&rows)).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(freed.rows_affected())
}

/// Nothing says which rows an UPDATE changed: they are looked at first, under a lock.
pub(super) async fn record_starts(store: &MysqlStore, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
    let (mut tx, below) = (store.begin().await?, i64::from(starts.below));
    let rows = unlocked(store, &mut tx, &starts.rows).await?;
    let list = list(&rows);
    let found: Vec<(i64, i32)> = sqlx::query_as(store.sql(sql::SUSPECTED))
        .bind(&list)
        .bind(below)
        .fetch_all(&mut *tx)
        .await?;
    sqlx::query(store.sql(sql::SUSPECT)).bind(&list).bind(below).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(found.into_iter().map(|(seq, times)| (Seq(seq), times.max(0).unsigned_abs() + 1)).collect())
}

pub(super) async fn settle_rows(store: &MysqlStore, settle: &SettleRows) -> Result<Vec<Seq>> {
    if settle.verdicts.is_empty() {
        return Ok(Vec::new());
    }
    for look in [Look::After, Look::First] {
        let mut tx = store.begin().await?;
        let lines = settle.verdicts.iter().map(Line::from).collect();
        let batch = Batch { lines, leased_to: Some(&settle.owner) };
        let written = match batch.write(store, &mut tx, look).await {
            Ok(written) => written,
            Err(error) => return Err(given_up(tx, error).await),
        };
        if let Some(applied) = written {
            tx.commit().await?;
            return Ok(applied);
        }
        tx.rollback().await?;
    }
    Err(unsettled())
}

impl<'a> From<&'a RowVerdict> for Line<'a> {
    fn from(it: &'a RowVerdict) -> Self {
        let RowLease { shard, seq, token } = it.row;
        Self { shard, seq, token, verdict: &it.verdict, route: it.settled_by.as_deref() }
    }
}

/// Rows and tokens as the statements unpack them; in order of `seq`, as everyone who locks rows, so
/// that none waits in a circle.
pub(super) fn list(rows: &[RowLease]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_unstable_by_key(|row| row.seq);
    let list: Value = rows.iter().map(|row| json!([row.shard.0, row.seq.0, row.token.0])).collect();
    list.to_string()
}
