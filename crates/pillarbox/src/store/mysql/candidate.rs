//! Rows that a claim may lease: found without a lock, for a scan that locks keeps locks on every
//! row it walks past.

use sqlx::{AssertSqlSafe, FromRow, MySqlConnection, mysql::MySqlRow};

use super::MysqlStore;
use super::read::parts;
use super::sql::claims as sql;
use crate::error::Result;
use crate::id::ShardId;
use crate::store::{Claim, Order};

/// The `seq` of each, those of the most wanted shards first. One look finds them all, unless there
/// is a crowd: then shards are asked one after the other until there are enough.
pub(super) async fn candidates(store: &MysqlStore, claim: &Claim) -> Result<Vec<i64>> {
    if claim.shards.is_empty() || claim.limit == 0 {
        return Ok(Vec::new());
    }
    let find = async |connection: &mut MySqlConnection| -> Result<_> {
        let mut look = Look { store, connection, claim, found: Vec::new() };
        if !look.in_all().await? {
            look.found.clear();
            look.one_by_one().await?;
        }
        Ok(look.found)
    };
    let mut found = store.run(&store.relay, find).await?;
    // In the order of the walk: a claim that is full ends where the next one goes on.
    found.sort_by_cached_key(|it| it.place(claim));
    found.truncate(claim.limit as usize);
    Ok(found.into_iter().map(|candidate| candidate.seq).collect())
}

/// As many rows as one look for heads in all shards passes by: entries of the index, for little
/// more than a round trip costs.
const WIDE: usize = 1000;

struct Candidate {
    seq: i64,
    shard: i16,
    /// Where it is the head of one and that counts.
    key: Option<String>,
}

impl Candidate {
    /// Keys come in their order, and what has none behind them.
    fn place(&self, claim: &Claim) -> (Option<usize>, bool, Option<String>, i64) {
        let shard = claim.shards.iter().position(|wanted| wanted.0 == self.shard);
        (shard, self.key.is_none(), self.key.clone(), self.seq)
    }
}

struct Look<'a> {
    store: &'a MysqlStore,
    connection: &'a mut MySqlConnection,
    claim: &'a Claim,
    found: Vec<Candidate>,
}

/// A row of LOOK_HEADS.
type Head = (i64, i16, String, i64, bool);

/// Heads of keys among so many rows as one look passes by.
struct HeadsPage {
    heads: Vec<Head>,
    /// Whether there may be more.
    is_full: bool,
}

impl Look<'_> {
    fn most(&self) -> usize {
        self.claim.limit as usize
    }

    fn left(&self) -> usize {
        self.most().saturating_sub(self.found.len())
    }

    /// Looks in all shards at once; `false` if there is more than one look shows.
    async fn in_all(&mut self) -> Result<bool> {
        let (claim, most) = (self.claim, self.most());
        if claim.order == Order::None {
            self.look(sql::FIND_CLAIMABLE, &claim.shards, most).await?;
            return Ok(self.found.len() < most);
        }
        let page = self.heads(&claim.shards, "", WIDE.max(most)).await?;
        if page.is_full {
            return Ok(false);
        }
        let first = claim.shards.first().map(|shard| shard.0);
        let after = claim.after.as_deref().unwrap_or_default();
        let heads = page.heads.into_iter();
        self.add(heads.filter(|(_, shard, key, ..)| Some(*shard) != first || key.as_str() > after));
        let keyed = self.found.len();
        self.look(sql::FIND_KEYLESS, &claim.shards, most).await?;
        Ok(self.found.len() - keyed < most)
    }

    async fn one_by_one(&mut self) -> Result<()> {
        let claim = self.claim;
        let mut after = claim.after.as_deref();
        for shard in &claim.shards {
            let shard = [*shard];
            let keyless = match claim.order {
                Order::None => sql::FIND_CLAIMABLE,
                Order::Key => {
                    self.key_by_key(&shard, after.take().unwrap_or_default().to_owned()).await?;
                    sql::FIND_KEYLESS
                }
            };
            self.look(keyless, &shard, self.left()).await?;
            if self.left() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Page by page, for heads that cannot be had fill pages too.
    async fn key_by_key(&mut self, shard: &[ShardId], mut after: String) -> Result<()> {
        while self.left() > 0 {
            let page = self.heads(shard, &after, self.most()).await?;
            if let Some((_, _, key, ..)) = page.heads.last() {
                after.clone_from(key);
            }
            self.add(page.heads);
            if !page.is_full {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, heads: impl IntoIterator<Item = Head>) {
        let free = heads.into_iter().filter(|(.., is_free)| *is_free);
        let candidate = |(seq, shard, key, ..): Head| Candidate { seq, shard, key: Some(key) };
        self.found.extend(free.map(candidate));
    }

    async fn heads(&mut self, shards: &[ShardId], after: &str, most: usize) -> Result<HeadsPage> {
        let rows = self.rows(sql::FIND_HEADS, shards, Some(after), most).await?;
        let mut heads: Vec<Head> = rows.iter().map(Head::from_row).collect::<Result<_, _>>()?;
        heads.sort_unstable_by(|one, other| (one.1, &one.2).cmp(&(other.1, &other.2)));
        let passed: i64 = heads.iter().map(|(.., passed, _)| *passed).sum();
        Ok(HeadsPage { heads, is_full: usize::try_from(passed).is_ok_and(|it| it >= most) })
    }

    async fn look(&mut self, text: &'static str, shards: &[ShardId], most: usize) -> Result<()> {
        let rows = self.rows(text, shards, None, most).await?;
        let found: Vec<(i64, i16)> =
            rows.iter().map(FromRow::from_row).collect::<Result<_, sqlx::Error>>()?;
        let candidate = |(seq, shard)| Candidate { seq, shard, key: None };
        self.found.extend(found.into_iter().map(candidate));
        Ok(())
    }

    async fn rows(
        &mut self,
        text: &'static str,
        shards: &[ShardId],
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<MySqlRow>> {
        let (marks, shards) = parts("?", ", ", shards, ShardId(-1));
        let text = self.store.tables.render(text).replace("{shards}", &marks);
        let mut query = sqlx::query(AssertSqlSafe(text));
        for shard in &shards {
            query = query.bind(shard.0);
        }
        if let Some(after) = after {
            query = query.bind(after);
        }
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Ok(query.bind(most).fetch_all(&mut *self.connection).await?)
    }
}
