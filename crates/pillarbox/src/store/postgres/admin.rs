//! What operators and maintenance ask for.

use sqlx::{Postgres, QueryBuilder, postgres::PgRow};
use time::OffsetDateTime;

use super::read::Columns;
use super::sql::{BE_PATIENT, admin as sql};
use super::{PostgresStore, migrate};
use crate::clock::{Timestamp, micros};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::operations::refuse_unless_nobody_delivers;
use crate::store::{
    Action, AuditEntry, Changed, DeadLetter, Direction, Filter, List, MAX_BATCH, Operated,
    Operation, Purge, PurgeKind, StoredEvent,
};

pub(super) async fn dead_letters(store: &PostgresStore, list: &List) -> Result<Vec<DeadLetter>> {
    let mut query = QueryBuilder::<Postgres>::new(&*store.tables.render(sql::DEAD_LETTERS));
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
    let mut tx = store.begin().await?;
    sqlx::raw_sql(sql::BE_BRIEF).execute(&mut *tx).await?;
    let rows = query.build().persistent(store.named).fetch_all(&mut *tx).await?;
    tx.rollback().await?;
    rows.iter().map(dead_letter).collect()
}

pub(super) async fn count_dead(store: &PostgresStore, filter: &Filter) -> Result<u64> {
    let mut query = QueryBuilder::<Postgres>::new(&*store.tables.render(sql::COUNT_DEAD));
    narrow(&mut query, filter);
    let mut tx = store.begin().await?;
    sqlx::raw_sql(sql::BE_BRIEF).execute(&mut *tx).await?;
    let count: i64 = query.build_query_scalar().persistent(store.named).fetch_one(&mut *tx).await?;
    tx.rollback().await?;
    Ok(u64::try_from(count).unwrap_or(0))
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

pub(super) async fn operate(store: &PostgresStore, operation: &Operation) -> Result<Operated> {
    operation.check()?;
    let statement = match operation.action {
        Action::Replay => sql::REPLAY,
        Action::Skip => sql::SKIP,
        Action::Discard => sql::DISCARD,
    };
    let seqs = places(store, operation).await?;
    let mut link = store.link(&store.pool).await?;
    let row = sqlx::query(store.sql(statement))
        .persistent(store.named)
        .bind(seqs)
        .bind(operation.action.as_str())
        .bind(operation.extra())
        .fetch_one(&mut *link)
        .await?;
    link.end().await?;
    let mut columns = Columns::of(&row);
    let matched: i64 = columns.next()?;
    let (seqs, ids): (Vec<i64>, Vec<String>) = (columns.next()?, columns.next()?);
    let changed = |(seq, event_id)| Changed { seq: Seq(seq), event_id };
    Ok(Operated {
        matched: u64::try_from(matched).unwrap_or(0),
        changed: seqs.into_iter().zip(ids).map(changed).collect(),
    })
}

/// Where the events of an operation are.
async fn places(store: &PostgresStore, operation: &Operation) -> Result<Vec<i64>> {
    let mut seqs: Vec<i64> = operation.seqs().map(|seq| seq.0).collect();
    let ids: Vec<&str> = operation.ids().map(EventId::as_str).collect();
    if !ids.is_empty() {
        let query = sqlx::query_scalar(store.sql(sql::PLACES)).persistent(store.named).bind(ids);
        let mut link = store.link(&store.pool).await?;
        let found: Vec<i64> = query.fetch_all(&mut *link).await?;
        link.end().await?;
        seqs.extend(found);
    }
    Ok(seqs)
}

pub(super) async fn audit_trail(store: &PostgresStore, id: &str) -> Result<Vec<AuditEntry>> {
    let mut link = store.link(&store.pool).await?;
    let rows = sqlx::query(store.sql(sql::TRAIL))
        .persistent(store.named)
        .bind(id)
        .bind(i64::try_from(MAX_BATCH).unwrap_or(i64::MAX))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    rows.iter().rev().map(audit_entry).collect()
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

pub(super) async fn purge(store: &PostgresStore, purge: &Purge) -> Result<u64> {
    let statement = match purge.kind {
        PurgeKind::Done => sql::PURGE_DONE,
        PurgeKind::Dead => sql::PURGE_DEAD,
        PurgeKind::Audit => sql::PURGE_AUDIT,
        PurgeKind::Inbox => sql::PURGE_INBOX,
        PurgeKind::Any => sql::PURGE_ANY,
    };
    let mut tx = store.begin().await?;
    sqlx::raw_sql(BE_PATIENT).execute(&mut *tx).await?;
    if purge.kind == PurgeKind::Any {
        let row = sqlx::query(store.sql(sql::HOLD_MODE))
            .persistent(store.named)
            .fetch_one(&mut *tx)
            .await?;
        refuse_unless_nobody_delivers(migrate::mode(&row)?)?;
    }
    let purged = sqlx::query(store.sql(statement))
        .persistent(store.named)
        .bind(micros(purge.older_than))
        .bind(i64::from(purge.limit))
        .execute(&mut *tx)
        .await?;
    crash_point!("purge.inside"?);
    tx.commit().await?;
    Ok(purged.rows_affected())
}

pub(super) async fn event(store: &PostgresStore, id: &EventId) -> Result<Option<StoredEvent>> {
    let query = sqlx::query(store.sql(sql::EVENT))
        .persistent(store.named)
        .bind(id.as_str())
        .bind(Fit::WHOLE.payload)
        .bind(Fit::WHOLE.headers);
    let mut link = store.link(&store.pool).await?;
    let row = query.fetch_optional(&mut *link).await?;
    link.end().await?;
    let Some(row) = row else { return Ok(None) };
    let mut columns = Columns::of(&row);
    Ok(Some(StoredEvent {
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
    }))
}
