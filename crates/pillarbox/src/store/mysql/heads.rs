//! Heads of keys: one row of each, however many wait behind it.

use serde_json::Value;
use sqlx::{MySql, Result as SqlxResult};

use super::read::{SNAPSHOT, fetch, fitting, page};
use super::{MysqlStore, sql};
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::content::Fit;
use crate::store::{Heads, HeadsCursor, ReadHeads};

/// No content: it is fetched for those that can be started.
const NOTHING: Fit = Fit { payload: 0, headers: 0 };

/// In one snapshot: a row that is found is there when it is read.
pub(super) async fn read_heads(store: &MysqlStore, read: &ReadHeads) -> Result<Heads> {
    let mut tx = PooledTx::begin(&store.relay, Some(SNAPSHOT)).await?;
    let newest = newest(store, &mut tx, read.shard).await?;
    let found = match &read.after {
        HeadsCursor::Key(after) => keyed(store, &mut tx, read, after).await?,
        HeadsCursor::Keyless(after) => keyless(store, &mut tx, read, *after).await?,
    };
    let query = fitting(sqlx::query(store.sql(sql::READ_HEADS)), NOTHING);
    let query = query.bind(Value::from(found).to_string());
    let mut rows = page(query.fetch_all(&mut *tx).await?)?;
    rows.sort_unstable_by(|one, other| (&one.key, one.seq).cmp(&(&other.key, other.seq)));
    let chosen = read.budget.choose(&rows, |_| 0);
    fetch(store, &mut tx, &mut rows, chosen).await?;
    tx.commit().await?;
    Ok(Heads::of(read, rows, newest))
}

async fn newest(store: &MysqlStore, tx: &mut PooledTx<MySql>, shard: ShardId) -> SqlxResult<Seq> {
    let newest = sqlx::query_scalar(store.sql(sql::NEWEST)).bind(shard.0);
    let newest: Option<i64> = newest.fetch_optional(&mut **tx).await?;
    Ok(newest.map_or(Seq::START, Seq))
}

/// Looks at as many rows as heads are missing, and goes on behind the last key seen.
async fn keyed(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    read: &ReadHeads,
    after: &str,
) -> SqlxResult<Vec<i64>> {
    let (mut after, limit) = (after.to_owned(), i64::from(read.limit));
    let (mut found, mut missing) = (Vec::new(), limit);
    while missing > 0 {
        let look = sqlx::query_as(store.sql(sql::HEADS)).bind(read.shard.0).bind(&after);
        let heads: Vec<(i64, String, i64)> = look.bind(missing).fetch_all(&mut **tx).await?;
        let passed: i64 = heads.iter().map(|(.., passed)| passed).sum();
        found.extend(heads.iter().map(|(seq, ..)| *seq));
        let Some((_, last, _)) = heads.into_iter().last().filter(|_| passed == missing) else {
            break;
        };
        (after, missing) = (last, limit - found.len() as i64);
    }
    Ok(found)
}

async fn keyless(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    read: &ReadHeads,
    after: Seq,
) -> SqlxResult<Vec<i64>> {
    let look = sqlx::query_scalar(store.sql(sql::HEADS_KEYLESS)).bind(read.shard.0);
    let look = look.bind(after.0).bind(read.up_to.0).bind(i64::from(read.limit));
    look.fetch_all(&mut **tx).await
}
