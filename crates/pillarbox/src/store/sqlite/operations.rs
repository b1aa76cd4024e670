//! What operators and maintenance ask for.

use async_trait::async_trait;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};

use super::row::Columns;
use super::settle::json;
use super::{SqliteStore, sql::operations as sql};
use crate::clock::{Timestamp, micros};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId};
use crate::store::content::Fit;
use crate::store::operations::refuse_unless_nobody_delivers;
use crate::store::{
    Action, AuditEntry, Changed, Cursor, DeadLetter, Direction, Filter, List, MAX_BATCH, Operated,
    Operation, Operations, Purge, PurgeKind, StoredEvent,
};

#[async_trait]
impl Operations for SqliteStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        let statement = match list.direction {
            Direction::NewestFirst => sql::DEAD_LETTERS_NEWEST_FIRST,
            Direction::OldestFirst => sql::DEAD_LETTERS_OLDEST_FIRST,
        };
        let ends = Ends::of(&list.filter).after(list);
        let rows = bind(self.query(statement), &list.filter, ends)
            .bind(i64::try_from(list.rows()).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(dead_letter).collect()
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        let query = self.query(sql::COUNT_DEAD);
        let row = bind(query, filter, Ends::of(filter)).fetch_one(&self.pool).await?;
        Columns::of(&row).count()
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        operation.check()?;
        let change = match operation.action {
            Action::Replay => sql::REPLAY,
            Action::Skip => sql::SKIP,
            Action::Discard => sql::DISCARD,
        };
        let mut tx = self.begin().await?;
        let mut named: Vec<Seq> = operation.seqs().collect();
        let ids: Vec<&str> = operation.ids().map(EventId::as_str).collect();
        let ids = serde_json::to_string(&ids).expect("texts only");
        let places_of = self.query_scalar(sql::FIND_IDS).bind(ids);
        let found: Vec<i64> = places_of.fetch_all(&mut *tx).await?;
        named.extend(found.into_iter().map(Seq));
        let rows = self.query(sql::OPERATE_PICK).bind(json(&named)).fetch_all(&mut *tx).await?;
        let mut operated = Operated { matched: rows.len() as u64, changed: Vec::new() };
        for row in &rows {
            let mut columns = Columns::of(row);
            let (seq, status) = (Seq(columns.next()?), columns.status()?);
            if operation.action.fits(status) {
                let event_id = columns.text()?.unwrap_or_default();
                operated.changed.push(Changed { seq, event_id });
            }
        }
        let seqs = json(&operated.changed.iter().map(|it| it.seq).collect::<Vec<_>>());
        self.query(sql::AUDIT_OPERATION)
            .bind(&seqs)
            .bind(operation.action.as_str())
            .bind(operation.extra())
            .execute(&mut *tx)
            .await?;
        self.query(change).bind(&seqs).execute(&mut *tx).await?;
        crash_point!("operate.inside"?);
        tx.commit().await?;
        Ok(operated)
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        let rows = self
            .query(sql::AUDIT_TRAIL)
            .bind(id)
            .bind(i64::try_from(MAX_BATCH).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await?;
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
        if purge.kind == PurgeKind::Any {
            refuse_unless_nobody_delivers(self.mode(&mut tx).await?)?;
        }
        let purged = self
            .query(statement)
            .bind(micros(purge.older_than))
            .bind(i64::from(purge.limit))
            .execute(&mut *tx)
            .await?;
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
        let Some(row) = query.fetch_optional(&self.pool).await? else { return Ok(None) };
        let mut columns = Columns::of(&row);
        let shard = ShardId(columns.next()?);
        let (available_at, created_at) = (columns.time()?, columns.time()?);
        let done_at: Option<i64> = columns.next()?;
        let (settled_by, last_error) = (columns.text()?, columns.text()?);
        let row = columns.pending(shard)?;
        Ok(Some(StoredEvent {
            seq: row.seq,
            shard,
            key: row.key.map(|key| String::from(&*key)),
            token: row.token,
            status: row.status,
            attempts: row.attempts,
            available_at,
            created_at,
            done_at: done_at.map(Timestamp::from_unix_micros),
            settled_by,
            last_error,
            event: row.content.whole(),
        }))
    }
}

type Asked<'q> = Query<'q, Sqlite, SqliteArguments>;

fn bind<'q>(query: Asked<'q>, filter: &'q Filter, ends: Ends) -> Asked<'q> {
    query
        .bind(ends.low.0)
        .bind(ends.low.1)
        .bind(ends.high.0)
        .bind(ends.high.1)
        .bind(filter.status.map(|status| status.code()))
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.key)
        .bind(&filter.tenant_id)
        .bind(&filter.error)
}

/// The places in the list, by time and `seq`, that all that is wanted lies between.
#[derive(Clone, Copy)]
struct Ends {
    low: (i64, i64),
    high: (i64, i64),
}

impl Ends {
    /// No event has the `seq` 0: what is at a moment is above that place, what was before below.
    fn of(filter: &Filter) -> Self {
        Self {
            low: (filter.since.map_or(i64::MIN, Timestamp::unix_micros), 0),
            high: (filter.until.map_or(i64::MAX, Timestamp::unix_micros), 0),
        }
    }

    fn after(self, list: &List) -> Self {
        let Some(Cursor { at, seq }) = list.after else { return self };
        let place = (at.unix_micros(), seq.0);
        match list.direction {
            Direction::NewestFirst => Self { high: self.high.min(place), ..self },
            Direction::OldestFirst => Self { low: self.low.max(place), ..self },
        }
    }
}

fn dead_letter(row: &SqliteRow) -> Result<DeadLetter> {
    let mut columns = Columns::of(row);
    Ok(DeadLetter {
        seq: Seq(columns.next()?),
        shard: ShardId(columns.next()?),
        event_id: columns.text()?.unwrap_or_default(),
        event_type: columns.text()?.unwrap_or_default(),
        event_version: columns.next()?,
        aggregate_type: columns.text()?.unwrap_or_default(),
        aggregate_id: columns.text()?,
        key: columns.text()?,
        tenant_id: columns.text()?,
        status: columns.status()?,
        attempts: columns.attempts()?,
        last_error: columns.text()?,
        settled_by: columns.text()?,
        occurred_at: columns.time()?,
        created_at: columns.time()?,
        given_up_at: columns.time()?,
        payload_size: columns.count()?,
    })
}

fn audit_entry(row: &SqliteRow) -> Result<AuditEntry> {
    let mut columns = Columns::of(row);
    let (action, attempts) = (columns.text()?.unwrap_or_default(), columns.attempts()?);
    let (error, extra) = (columns.text()?, columns.text()?);
    Ok(AuditEntry {
        action,
        attempts,
        error,
        by: AuditEntry::said(extra.as_deref(), "by"),
        reason: AuditEntry::said(extra.as_deref(), "reason"),
        at: columns.time()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Statistics as _, Status};

    #[tokio::test]
    async fn text_that_is_no_text_hides_nothing_from_an_operator() {
        let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
        store.migrate().await.unwrap();
        let foreign = "
            insert into outbox_event (event_id, event_type, payload, status, done_at, last_error)
            values ('a', cast(x'41ff' as text), '7', 3, 1, cast(x'42ff' as text)),
                ('b', 'mail.sent', '7', 4, 2, 'refused');
            insert into outbox_audit (event_id, action, attempts, error)
            values ('a', 'seen', 1, cast(x'43ff' as text))";
        sqlx::raw_sql(foreign).execute(&store.pool).await.unwrap();

        let letters = store.dead_letters(&List::default()).await.unwrap();
        let trail = store.audit_trail("a").await.unwrap();
        let breakdown = store.breakdown().await.unwrap();

        let said: Vec<_> = letters.iter().map(|it| (it.status, it.event_type.as_str())).collect();
        assert_eq!(said, [(Status::Held, "mail.sent"), (Status::Dead, "A\u{fffd}")]);
        assert_eq!(letters[1].last_error.as_deref(), Some("B\u{fffd}"));
        assert_eq!(trail[0].error.as_deref(), Some("C\u{fffd}"));
        assert_eq!(breakdown.types.len(), 2);
    }
}
