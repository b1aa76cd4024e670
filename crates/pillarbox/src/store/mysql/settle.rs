//! Verdicts, written in batches behind the fence.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use sqlx::MySql;

use super::{MysqlStore, sql};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, OwnerId, Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::mark::Mark;
use crate::store::{Settle, Settlement};
use crate::verdict::Verdict;

/// Half of the smallest `max_allowed_packet` that a server is run with, 1 MiB.
const MOST_BYTES: usize = 512 * 1024;

/// Ends the locks of a transaction that failed, before anybody asks which rows are locked.
pub(super) async fn given_up(tx: PooledTx<MySql>, error: Error) -> Error {
    // If that fails, it has ended with its connection.
    let _ = tx.rollback().await;
    error
}

/// Not even the rows that were locked for it took a verdict: nobody may take that for settled.
pub(super) fn unsettled() -> Error {
    Error::new(ErrorKind::Unavailable, "rows changed in spite of their locks")
}

/// The newest epoch named for each shard. A verdict of another one is stale by itself.
pub(super) fn fences(settle: &Settle) -> BTreeMap<ShardId, Epoch> {
    let mut fences = BTreeMap::new();
    for settlement in &settle.settlements {
        let newest = fences.entry(settlement.shard).or_insert(settlement.epoch);
        *newest = settlement.epoch.max(*newest);
    }
    fences
}

/// When to find out which verdicts apply. Nearly always all of them do, and the number of rows
/// written says so; if not, the same is done again, with a look first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    After,
    First,
}

/// One verdict on one row.
pub(super) struct Line<'a> {
    pub(super) shard: ShardId,
    pub(super) seq: Seq,
    pub(super) token: Token,
    pub(super) verdict: &'a Verdict,
    pub(super) route: Option<&'a str>,
}

impl<'a> From<&'a Settlement> for Line<'a> {
    fn from(it: &'a Settlement) -> Self {
        let (shard, seq, token) = (it.shard, it.seq, it.token);
        Self { shard, seq, token, verdict: &it.verdict, route: it.settled_by.as_deref() }
    }
}

impl Line<'_> {
    fn row(&self) -> Value {
        json!([self.shard.0, self.seq.0, self.token.0])
    }

    /// The verdict as the statement unpacks it.
    fn mark(&self) -> Value {
        let Mark { status, tried, delay, error } = Mark::of(self.verdict);
        let (shard, seq, token) = (self.shard.0, self.seq.0, self.token.0);
        json!([shard, seq, token, status.code(), tried, delay, error, self.route])
    }

    fn is_failure(&self) -> bool {
        Mark::of(self.verdict).tried == 1
    }
}

/// Verdicts that are written together.
pub(super) struct Batch<'a> {
    pub(super) lines: Vec<Line<'a>>,
    /// Whose lease each row must be under; `None` where the shard's fence is locked.
    pub(super) leased_to: Option<&'a OwnerId>,
}

impl Batch<'_> {
    /// The rows that were written; `None` when they are fewer than the verdicts, and nobody knows
    /// which.
    pub(super) async fn write(
        mut self,
        store: &MysqlStore,
        tx: &mut PooledTx<MySql>,
        look: Look,
    ) -> Result<Option<Vec<Seq>>> {
        let mut seqs: Vec<Seq> = self.lines.iter().map(|line| line.seq).collect();
        // In order, as everyone who locks rows.
        self.lines.sort_by_key(|line| line.seq);
        if look == Look::First {
            let applicable = self.pick(store, tx).await?;
            // Each once: of two verdicts on one row the first counts.
            let (mut lines, mut rows) = (applicable.clone(), applicable);
            self.lines.retain(|line| lines.remove(&line.seq));
            seqs.retain(|seq| rows.remove(seq));
        }
        let (delete, mark) = match self.leased_to {
            Some(_) => (sql::claims::SETTLE_ROWS_DELETE, sql::claims::SETTLE_ROWS_MARK),
            None => (sql::events::SETTLE_DELETE, sql::events::SETTLE_MARK),
        };
        let (deleted, marked): (Vec<&Line<'_>>, Vec<&Line<'_>>) =
            self.lines.iter().partition(|line| *line.verdict == Verdict::Delete);
        let mut written = self.run(store, tx, delete, deleted.iter().map(|it| it.row())).await?;
        written += self.run(store, tx, mark, marked.iter().map(|it| it.mark())).await?;
        if written != self.lines.len() as u64 {
            return Ok(None);
        }
        for rows in lists(marked.iter().filter(|it| it.is_failure()).map(|it| it.row())) {
            store.query(sql::events::AUDIT_FAILURES).bind(rows).execute(&mut **tx).await?;
        }
        Ok(Some(seqs))
    }

    async fn pick(&self, store: &MysqlStore, tx: &mut PooledTx<MySql>) -> Result<HashSet<Seq>> {
        let statement = match self.leased_to {
            Some(_) => sql::claims::SETTLE_ROWS_FIND,
            None => sql::events::SETTLE_FIND,
        };
        let mut applicable = HashSet::new();
        for rows in lists(self.lines.iter().map(Line::row)) {
            let mut query = store.query_scalar(statement).bind(rows);
            if let Some(owner) = self.leased_to {
                query = query.bind(owner.as_str());
            }
            let seqs: Vec<i64> = query.fetch_all(&mut **tx).await?;
            applicable.extend(seqs.into_iter().map(Seq));
        }
        Ok(applicable)
    }

    async fn run(
        &self,
        store: &MysqlStore,
        tx: &mut PooledTx<MySql>,
        statement: &'static str,
        lines: impl Iterator<Item = Value>,
    ) -> Result<u64> {
        let mut written = 0;
        for rows in lists(lines) {
            let mut query = store.query(statement).bind(rows);
            if let Some(owner) = self.leased_to {
                query = query.bind(owner.as_str());
            }
            written += query.execute(&mut **tx).await?.rows_affected();
        }
        Ok(written)
    }
}

/// JSON arrays of these, none of them too large for one statement.
fn lists(rows: impl Iterator<Item = Value>) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for row in rows {
        let row = row.to_string();
        match lists.last_mut() {
            Some(list) if list.len() + row.len() < MOST_BYTES => {
                list.push(',');
                list.push_str(&row);
            }
            _ => lists.push(format!("[{row}")),
        }
    }
    lists.iter_mut().for_each(|list| list.push(']'));
    lists
}
