//! What operators and maintenance ask for.

use async_trait::async_trait;
use sqlx::{Postgres, QueryBuilder, postgres::PgRow};
use time::OffsetDateTime;

use super::PostgresStore;
use super::row::Columns;
use super::schema::mode;
use super::sql::{operations as sql, ownership::LIMIT_WAITS};
use crate::clock::{Timestamp, micros};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::operations::refuse_unless_nobody_delivers;
use crate::store::{
    Action, AuditEntry, Changed, DeadLetter, Direction, Filter, List, MAX_BATCH, Operated,
    Operation, Operations, Purge, PurgeKind, StoredEvent,
};

#[async_trait]
impl Operations for PostgresStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        let mut query = QueryBuilder::<Postgres>::new(&*self.tables.render(sql::DEAD_LETTERS));
        narrow(&mut query, &list.filter);
        let (beyond, turned) = match list.direction {
            Direction::NewestFirst => (" < (", " desc"),
            Direction::OldestFirst => (" > (", ""),
        };
        if let Some(after) = list.after {
            query.push(" and (e.done_at, e.seq)").push(beyond);
            query.push_bind(OffsetDateTime::from(after.at)).push(", ");
            query.push_bind(after.seq.0).push(")");
        }
        query.push(" order by e.done_at").push(turned).push(", e.seq").push(turned);
        query.push(" limit ").push_bind(i64::try_from(list.rows()).unwrap_or(i64::MAX));
        let mut tx = self.begin().await?;
        sqlx::raw_sql(sql::LIMIT_TIME).execute(&mut *tx).await?;
        let rows = query.build().persistent(self.named).fetch_all(&mut *tx).await?;
        tx.rollback().await?;
        rows.iter().map(dead_letter).collect()
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        let mut query = QueryBuilder::<Postgres>::new(&*self.tables.render(sql::COUNT_DEAD));
        narrow(&mut query, filter);
        let query = query.build_query_scalar().persistent(self.named);
        let mut tx = self.begin().await?;
        sqlx::raw_sql(sql::LIMIT_TIME).execute(&mut *tx).await?;
        let count: i64 = query.fetch_one(&mut *tx).await?;
        tx.rollback().await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        operation.check()?;
        let statement = match operation.action {
            Action::Replay => sql::REPLAY,
            Action::Skip => sql::SKIP,
            Action::Discard => sql::DISCARD,
        };
        let query = self
            .query(statement)
            .bind(self.seqs(operation).await?)
            .bind(operation.action.as_str())
            .bind(operation.extra());
        let row = self.run(&self.pool, async |it| query.fetch_one(it).await).await?;
        let mut columns = Columns::of(&row);
        let matched: i64 = columns.next()?;
        let (seqs, ids): (Vec<i64>, Vec<String>) = (columns.next()?, columns.next()?);
        let changed = |(seq, event_id)| Changed { seq: Seq(seq), event_id };
        Ok(Operated {
            matched: u64::try_from(matched).unwrap_or(0),
            changed: seqs.into_iter().zip(ids).map(changed).collect(),
        })
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        let most = i64::try_from(MAX_BATCH).unwrap_or(i64::MAX);
        let query = self.query(sql::AUDIT_TRAIL).bind(id).bind(most);
        let rows = self.run(&self.pool, async |it| query.fetch_all(it).await).await?;
        rows.iter().rev().map(audit_entry).collect()
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        let statement = match purge.kind {
            PurgeKind::Done => sql::PURGE_DONE,
            PurgeKind::Dead => sql::PURGE_DEAD,
            PurgeKind::Audit => sql::PURGE_AUDIT,
            PurgeKind::Inbox => sql::PURGE_INBOX,
            PurgeKind::Any => sql::PURGE_ANY,
        };
        let mut tx = self.begin().await?;
        sqlx::raw_sql(LIMIT_WAITS).execute(&mut *tx).await?;
        if purge.kind == PurgeKind::Any {
            let setting = self.query(sql::LOCK_MODE).fetch_one(&mut *tx).await?;
            refuse_unless_nobody_delivers(mode(&setting)?)?;
        }
        let query = self.query(statement);
        let query = query.bind(micros(purge.older_than)).bind(i64::from(purge.limit));
        let purged = query.execute(&mut *tx).await?;
        crash_point!("purge.inside"?);
        tx.commit().await?;
        Ok(purged.rows_affected())
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        let query = self
            .query(sql::EVENT)
            .bind(id.as_str())
            .bind(Fit::WHOLE.payload)
            .bind(Fit::WHOLE.headers);
        let row = self.run(&self.pool, async |it| query.fetch_optional(it).await).await?;
        row.as_ref().map(stored_event).transpose()
    }
}

impl PostgresStore {
    /// The `seq` of each event of an operation.
    async fn seqs(&self, operation: &Operation) -> Result<Vec<i64>> {
        let mut seqs: Vec<i64> = operation.seqs().map(|seq| seq.0).collect();
        let ids: Vec<&str> = operation.ids().map(EventId::as_str).collect();
        if !ids.is_empty() {
            let query = self.query_scalar(sql::FIND_IDS).bind(ids);
            let found: Vec<i64> =
                self.run(&self.pool, async |it| query.fetch_all(it).await).await?;
            seqs.extend(found);
        }
        Ok(seqs)
    }
}

fn narrow(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    if let Some(status) = filter.status {
        query.push(" and e.status = ").push_bind(status.code());
    }
    let texts = [
        ("event_type", &filter.event_type),
        ("aggregate_type", &filter.aggregate_type),
        ("aggregate_id", &filter.aggregate_id),
        ("ordering_key", &filter.key),
        ("tenant_id", &filter.tenant_id),
    ];
    for (column, text) in texts {
        if let Some(text) = text {
            query.push(" and e.").push(column).push(" = ").push_bind(text.clone());
        }
    }
    if let Some(part) = &filter.error {
        query.push(" and strpos(e.last_error, ").push_bind(part.clone()).push(") > 0");
    }
    if let Some(since) = filter.since {
        query.push(" and e.done_at >= ").push_bind(OffsetDateTime::from(since));
    }
    if let Some(until) = filter.until {
        query.push(" and e.done_at < ").push_bind(OffsetDateTime::from(until));
    }
}

fn dead_letter(row: &PgRow) -> Result<DeadLetter> {
    let mut columns = Columns::of(row);
    Ok(DeadLetter {
        seq: Seq(columns.next()?),
        shard: ShardId(columns.next()?),
        event_id: columns.next()?,
        event_type: columns.next()?,
        event_version: columns.next()?,
        aggregate_type: columns.next()?,
        aggregate_id: columns.next()?,
        key: columns.next()?,
        tenant_id: columns.next()?,
        status: columns.status()?,
        attempts: columns.attempts()?,
        last_error: columns.next()?,
        settled_by: columns.next()?,
        occurred_at: columns.time()?,
        created_at: columns.time()?,
        given_up_at: columns.time()?,
        payload_size: u64::try_from(columns.next::<i64>()?).unwrap_or(0),
    })
}

fn audit_entry(row: &PgRow) -> Result<AuditEntry> {
    let mut columns = Columns::of(row);
    let (action, attempts) = (columns.next()?, columns.attempts()?);
    let (error, extra): (_, Option<String>) = (columns.next()?, columns.next()?);
    Ok(AuditEntry {
        action,
        attempts,
        error,
        by: AuditEntry::said(extra.as_deref(), "by"),
        reason: AuditEntry::said(extra.as_deref(), "reason"),
        at: columns.time()?,
    })
}

fn stored_event(row: &PgRow) -> Result<StoredEvent> {
    let mut columns = Columns::of(row);
    Ok(StoredEvent {
        seq: Seq(columns.next()?),
        shard: ShardId(columns.next()?),
        key: columns.next()?,
        token: Token(columns.next()?),
        status: columns.status()?,
        attempts: columns.attempts()?,
        settled_by: columns.next()?,
        last_error: columns.next()?,
        available_at: columns.time()?,
        created_at: columns.time()?,
        done_at: columns.next::<Option<OffsetDateTime>>()?.map(Timestamp::from),
        event: columns.content()?.whole(),
    })
}
