//! Row claims: due rows under a lease of their own.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::MysqlStore;
use super::read::{parts, pending};
use super::settle::{Batch, Line, Look, unsettled};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::{Claim, Order, Pending, RenewRows, RowLease, RowVerdict, SettleRows};

/// How many candidates are looked for, for each row wanted: claims that run at the same moment
/// find the same ones, and pass by those that another has locked.
const CANDIDATES: u32 = 4;

/// Nothing is locked before it is known that there is something to be had.
pub(super) async fn claim(store: &MysqlStore, claim: &Claim) -> Result<Vec<Pending>> {
    let candidates = look(store, claim).await?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin().await?;
    let rows = sqlx::query(store.sql(sql::CLAIM_PICK))
        .bind(Value::from(candidates).to_string())
        .bind(claim.order == Order::None)
        .bind(i64::from(claim.limit))
        .fetch_all(&mut *tx)
        .await?;
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
    let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
    rows.sort_by_key(|row| (place(row), row.seq));
    Ok(rows)
}

/// Rows that can be had, the most wanted shards' first. One statement has them all, unless there
/// is a crowd: then shards are asked one after the other until there are enough.
async fn look(store: &MysqlStore, claim: &Claim) -> Result<Vec<i64>> {
    if claim.shards.is_empty() || claim.limit == 0 {
        return Ok(Vec::new());
    }
    let most = claim.limit.saturating_mul(CANDIDATES) as usize;
    let mut call = store.call().await?;
    let mut found = look_in(store, &mut call, claim, &claim.shards, most).await?;
    if found.len() >= most {
        found.clear();
        for shard in &claim.shards {
            let left = most - found.len();
            found.extend(look_in(store, &mut call, claim, &[*shard], left).await?);
            if found.len() >= most {
                break;
            }
        }
    }
    call.end();
    let place = |shard: i16| claim.shards.iter().position(|wanted| wanted.0 == shard);
    found.sort_by_key(|(seq, shard)| (place(*shard), *seq));
    found.dedup();
    Ok(found.into_iter().map(|(seq, _)| seq).collect())
}

async fn look_in(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    claim: &Claim,
    shards: &[ShardId],
    most: usize,
) -> Result<Vec<(i64, i16)>> {
    let (marks, shards) = parts("?", ", ", shards, ShardId(-1));
    let text = store.tables.render(sql::CLAIM_LOOK).replace("{shards}", &marks);
    let query = sqlx::query_as(AssertSqlSafe(text));
    let query = shards.iter().fold(query, |query, shard| query.bind(shard.0));
    let query = query.bind(claim.order == Order::None);
    let found = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(connection).await?;
    Ok(found)
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

/// Rows and tokens as the statements unpack them; in order of `seq`, as everyone who locks rows, so
/// that none waits in a circle.
fn list(rows: &[RowLease]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_unstable_by_key(|row| row.seq);
    let list: Value = rows.iter().map(|row| json!([row.shard.0, row.seq.0, row.token.0])).collect();
    list.to_string()
}
