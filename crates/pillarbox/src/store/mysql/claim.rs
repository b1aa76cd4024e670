//! Row claims: due rows under a lease of their own.

use std::collections::HashMap;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row as _};

use super::MysqlStore;
use super::read::{pending, union};
use super::settle::{Batch, Line, Look, unsettled};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::{Claim, Order, Pending, RenewRows, RowLease, RowVerdict, SettleRows};

/// Nothing is locked before it is known that there is something to be had, and of no shard more
/// than there is: all shards together never give more than the limit.
pub(super) async fn claim(store: &MysqlStore, claim: &Claim) -> Result<Vec<Pending>> {
    let mut wanted = look(store, claim).await?;
    let mut left = claim.limit;
    wanted.retain_mut(|(_, rows)| {
        *rows = left.min(*rows);
        left -= *rows;
        *rows > 0
    });
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let (text, parts) = union(&store.tables.render(sql::CLAIM_PICK), wanted, (ShardId(-1), 0));
    let mut tx = store.begin().await?;
    let mut query = sqlx::query(AssertSqlSafe(text));
    for (shard, rows) in parts {
        query = query.bind(shard.0).bind(claim.order == Order::None).bind(i64::from(rows));
    }
    let rows = query.fetch_all(&mut *tx).await?;
    let mut rows: Vec<Pending> = rows.iter().map(pending).collect::<Result<_>>()?;
    let seqs: Value = rows.iter().map(|row| row.seq.0).collect();
    sqlx::query(store.sql(sql::CLAIM))
        .bind(seqs.to_string())
        .bind(claim.owner.as_str())
        .bind(micros(claim.length))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    // They were read before the claim moved their tokens on.
    rows.iter_mut().for_each(|row| row.token = Token(row.token.0 % i32::MAX + 1));
    Ok(rows)
}

/// How many rows each shard has to give, in the order wanted; all of them up to the limit.
async fn look(store: &MysqlStore, claim: &Claim) -> Result<Vec<(ShardId, u32)>> {
    if claim.shards.is_empty() || claim.limit == 0 {
        return Ok(Vec::new());
    }
    let part = store.tables.render(sql::CLAIM_LOOK);
    let (mut text, shards) = union(&part, claim.shards.clone(), ShardId(-1));
    text.push_str(" limit ?");
    let mut query = sqlx::query(AssertSqlSafe(text));
    for shard in shards {
        query = query.bind(shard.0).bind(claim.order == Order::None).bind(i64::from(claim.limit));
    }
    let mut call = store.call().await?;
    let rows = query.bind(i64::from(claim.limit)).fetch_all(&mut *call).await;
    call.end();
    let mut counts: HashMap<ShardId, u32> = HashMap::new();
    for row in rows? {
        *counts.entry(ShardId(row.try_get("shard")?)).or_default() += 1;
    }
    // A shard that is named twice is asked once.
    Ok(claim.shards.iter().filter_map(|shard| counts.remove_entry(shard)).collect())
}

/// A lease that still stands after the statement was prolonged by it.
pub(super) async fn renew_rows(store: &MysqlStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let list = list(&renew.rows);
    let mut call = store.lease_call().await?;
    let renewed = sqlx::query(store.sql(sql::RENEW_ROWS))
        .bind(&list)
        .bind(renew.owner.as_str())
        .bind(micros(renew.length))
        .execute(&mut *call)
        .await?;
    if renewed.rows_affected() == renew.rows.len() as u64 {
        call.end();
        return Ok(renew.rows.iter().map(|row| row.seq).collect());
    }
    let kept = sqlx::query_scalar(store.sql(sql::KEPT_ROWS)).bind(&list).bind(renew.owner.as_str());
    let kept: Vec<i64> = kept.fetch_all(&mut *call).await?;
    call.end();
    Ok(kept.into_iter().map(Seq).collect())
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

pub(super) async fn settle_rows(store: &MysqlStore, settle: &SettleRows) -> Result<Vec<Seq>> {
    if settle.verdicts.is_empty() {
        return Ok(Vec::new());
    }
    for look in [Look::After, Look::First] {
        let mut tx = store.begin().await?;
        let lines = settle.verdicts.iter().map(Line::from).collect();
        let batch = Batch { lines, leased_to: Some(&settle.owner) };
        if let Some(applied) = batch.write(store, &mut tx, look).await? {
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

/// Rows and tokens as the statements unpack them.
fn list(rows: &[RowLease]) -> String {
    let list: Value = rows.iter().map(|row| json!([row.shard.0, row.seq.0, row.token.0])).collect();
    list.to_string()
}
