//! Verdicts, written in batches behind the fence: that of the shard, or that of each row's lease.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use sqlx::{PgConnection, Row as _};

use super::arrays::{Entry, Rows, marks};
use super::{PostgresStore, sql};
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::store::{Settled, Settlement};
use crate::verdict::Verdict;

/// The shards of a settle, each at its newest epoch.
pub(super) struct Fence(BTreeMap<ShardId, Epoch>);

impl Fence {
    pub(super) fn of(settlements: &[Settlement]) -> Self {
        let mut newest = BTreeMap::new();
        for Settlement { shard, epoch, .. } in settlements {
            let known = newest.entry(*shard).or_insert(*epoch);
            *known = (*known).max(*epoch);
        }
        Self(newest)
    }

    /// A verdict of an older epoch is stale by itself.
    pub(super) fn is_newest(&self, settlement: &Settlement) -> bool {
        self.0.get(&settlement.shard) == Some(&settlement.epoch)
    }

    fn shards(&self) -> Vec<i16> {
        self.0.keys().map(|shard| shard.0).collect()
    }

    fn epochs(&self) -> Vec<i64> {
        self.0.values().map(|epoch| epoch.0).collect()
    }
}

/// Who settles, and behind what.
pub(super) struct Settler<'a> {
    pub(super) store: &'a PostgresStore,
    pub(super) owner: &'a OwnerId,
    /// `None`: each row's lease is its fence.
    pub(super) fence: Option<&'a Fence>,
}

impl Settler<'_> {
    pub(super) async fn settle(&self, mut entries: Vec<Entry<'_>>) -> Result<Settled> {
        entries.sort_by_key(|entry| entry.row.seq);
        let (deleted, marked): (Vec<Entry<'_>>, Vec<Entry<'_>>) =
            entries.into_iter().partition(|entry| *entry.verdict == Verdict::Delete);
        if marked.is_empty() || deleted.is_empty() {
            let one_kind = if marked.is_empty() { deleted } else { marked };
            let store = self.store;
            return store.run(store.work(), async |it| self.write(it, one_kind).await).await;
        }
        let mut tx = self.store.begin_on(self.store.work()).await?;
        let mut settled = self.write(&mut tx, deleted).await?;
        add(&mut settled, self.write(&mut tx, marked).await?);
        tx.commit().await?;
        Ok(settled)
    }

    /// Writes verdicts of one kind. A row that was changed meanwhile under the same token, as by
    /// a renewal of its lease, has moved from its place: it is looked for once more.
    async fn write(&self, on: &mut PgConnection, entries: Vec<Entry<'_>>) -> Result<Settled> {
        let mut settled = self.write_once(on, &entries).await?;
        let left = left_of(entries, &settled);
        if !left.is_empty() {
            add(&mut settled, self.write_once(on, &left).await?);
        }
        Ok(settled)
    }

    async fn write_once(&self, on: &mut PgConnection, entries: &[Entry<'_>]) -> Result<Settled> {
        let is_deletion = entries.iter().all(|entry| *entry.verdict == Verdict::Delete);
        let text = match (is_deletion, self.fence) {
            (true, Some(_)) => sql::events::SETTLE_DELETE,
            (true, None) => sql::claims::SETTLE_ROWS_DELETE,
            (false, Some(_)) => sql::events::SETTLE_MARK,
            (false, None) => sql::claims::SETTLE_ROWS_MARK,
        };
        let Rows { shards, seqs, tokens } = Rows::of(entries.iter().map(|entry| &entry.row));
        let mut query =
            self.store.query(text).bind(self.owner.as_str()).bind(shards).bind(seqs).bind(tokens);
        if !is_deletion {
            query = marks(query, entries);
        }
        if let Some(fence) = self.fence {
            query = query.bind(fence.shards()).bind(fence.epochs());
        }
        let row = query.fetch_one(on).await?;
        let (locked, seqs): (Vec<i16>, Option<Vec<i64>>) =
            (row.try_get("locked")?, row.try_get("settled")?);
        let all = || entries.iter().map(|entry| entry.row.seq).collect();
        Ok(Settled {
            applied: seqs.map_or_else(all, |seqs| seqs.into_iter().map(Seq).collect()),
            refused: self.refused(&locked),
        })
    }

    fn refused(&self, locked: &[i16]) -> Vec<ShardId> {
        let shards = self.fence.iter().flat_map(|fence| fence.0.keys().copied());
        shards.filter(|shard| !locked.contains(&shard.0)).collect()
    }
}

/// What was not written, though nothing was refused.
fn left_of<'a>(entries: Vec<Entry<'a>>, settled: &Settled) -> Vec<Entry<'a>> {
    if settled.applied.len() == entries.len() {
        return Vec::new();
    }
    let applied: HashSet<Seq> = settled.applied.iter().copied().collect();
    let is_left = |entry: &Entry<'_>| {
        !applied.contains(&entry.row.seq) && !settled.refused.contains(&entry.row.shard)
    };
    entries.into_iter().filter(is_left).collect()
}

fn add(settled: &mut Settled, more: Settled) {
    settled.applied.extend(more.applied);
    settled.refused.extend(more.refused);
    settled.refused.sort_unstable();
    settled.refused.dedup();
}
