//! What operators and maintenance ask for.

use serde_json::Value;
use sqlx::{MySql, QueryBuilder, Row as _, mysql::MySqlRow};

use super::read::{attempts, content, datetime, fitting, status, time};
use super::sql::admin as sql;
use super::{MysqlStore, migrate};
use crate::clock::{Timestamp, micros};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::operations::refuse_unless_nobody_delivers;
use crate::store::{
    Action, AuditEntry, Changed, DeadLetter, Direction, Filter, List, MAX_BATCH, Operated,
    Operation, Purge, PurgeKind, Status, StoredEvent,
};

pub(super) async fn dead_letters(store: &MysqlStore, list: &List) -> Result<Vec<DeadLetter>> {
    let limit = i64::try_from(list.rows()).unwrap_or(i64::MAX);
    let order = match list.direction {
        Direction::NewestFirst => " order by e.moment desc, e.seq desc limit ",
        Direction::OldestFirst => " order by e.moment, e.seq limit ",
    };
    let mut query = QueryBuilder::<MySql>::new(&*store.tables.render(sql::DEAD_LETTERS));
    for (at, status) in [Status::Dead, Status::Held].into_iter().enumerate() {
        query.push(if at == 0 { "" } else { " union all " });
        query.push(&*store.tables.render(sql::DEAD_LETTERS_PART)).push_bind(status.code());
        narrow(&mut query, &list.filter);
        beyond(&mut query, list);
        query.push(order).push_bind(limit).push(")");
    }
    query.push(&*store.tables.render(sql::DEAD_LETTERS_ON_PAGE)).push(order).push_bind(limit);
    let mut call = store.call().await?;
    let rows = query.build().fetch_all(&mut *call).await;
    call.end();
    rows?.iter().map(dead_letter).collect()
}

/// The first comparison is the one that the index understands.
fn beyond(query: &mut QueryBuilder<MySql>, list: &List) {
    let Some(after) = list.after else { return };
    let (not_before, before) = match list.direction {
        Direction::NewestFirst => (" <= ", " < "),
        Direction::OldestFirst => (" >= ", " > "),
    };
    query.push(" and e.moment").push(not_before).push_bind(datetime(after.at));
    query.push(" and (e.moment").push(before).push_bind(datetime(after.at));
    query.push(" or e.seq").push(before).push_bind(after.seq.0).push(")");
}

pub(super) async fn count_dead(store: &MysqlStore, filter: &Filter) -> Result<u64> {
    let mut query = QueryBuilder::<MySql>::new(&*store.tables.render(sql::COUNT_DEAD));
    narrow(&mut query, filter);
    let mut call = store.call().await?;
    let count: Result<i64, sqlx::Error> = query.build_query_scalar().fetch_one(&mut *call).await;
    call.end();
    Ok(u64::try_from(count?).unwrap_or(0))
}

fn narrow(query: &mut QueryBuilder<MySql>, filter: &Filter) {
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
        query.push(" and locate(").push_bind(part.clone()).push(", e.last_error) > 0");
    }
    if let Some(since) = filter.since {
        query.push(" and e.moment >= ").push_bind(datetime(since));
    }
    if let Some(until) = filter.until {
        query.push(" and e.moment < ").push_bind(datetime(until));
    }
}

fn dead_letter(row: &MySqlRow) -> Result<DeadLetter> {
    let payload_size: Option<i64> = row.try_get("payload_size")?;
    Ok(DeadLetter {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        event_id: row.try_get("event_id")?,
        event_type: row.try_get("event_type")?,
        event_version: row.try_get("event_version")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        key: row.try_get("ordering_key")?,
        tenant_id: row.try_get("tenant_id")?,
        status: status(row)?,
        attempts: attempts(row)?,
        last_error: row.try_get("last_error")?,
        settled_by: row.try_get("settled_by")?,
        occurred_at: time(row, "occurred_at")?,
        created_at: time(row, "created_at")?,
        given_up_at: time(row, "done_at")?,
        payload_size: payload_size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
    })
}

pub(super) async fn operate(store: &MysqlStore, operation: &Operation) -> Result<Operated> {
    operation.check()?;
    let change = match operation.action {
        Action::Replay => sql::REPLAY,
        Action::Skip => sql::SKIP,
        Action::Discard => sql::DISCARD,
    };
    let mut tx = store.begin().await?;
    let mut named: Vec<i64> = operation.seqs().map(|seq| seq.0).collect();
    let ids: Value = operation.ids().map(EventId::as_str).collect();
    let places_of = sqlx::query_scalar(store.sql(sql::PLACES)).bind(ids.to_string());
    let found: Vec<i64> = places_of.fetch_all(&mut *tx).await?;
    named.extend(found);
    let rows = sqlx::query(store.sql(sql::PICK)).bind(places(named)).fetch_all(&mut *tx).await?;
    let mut operated = Operated { matched: rows.len() as u64, changed: Vec::new() };
    for row in rows {
        if operation.action.fits(status(&row)?) {
            let (seq, event_id) = (Seq(row.try_get("seq")?), row.try_get("event_id")?);
            operated.changed.push(Changed { seq, event_id });
        }
    }
    let seqs = places(operated.changed.iter().map(|it| it.seq.0).collect());
    sqlx::query(store.sql(sql::NOTE))
        .bind(operation.action.as_str())
        .bind(operation.extra())
        .bind(&seqs)
        .execute(&mut *tx)
        .await?;
    sqlx::query(store.sql(change)).bind(&seqs).execute(&mut *tx).await?;
    crash_point!("operate.inside"?);
    tx.commit().await?;
    Ok(operated)
}

pub(super) async fn audit_trail(store: &MysqlStore, id: &str) -> Result<Vec<AuditEntry>> {
    let mut call = store.call().await?;
    let rows = sqlx::query(store.sql(sql::TRAIL))
        .bind(id)
        .bind(i64::try_from(MAX_BATCH).unwrap_or(i64::MAX))
        .fetch_all(&mut *call)
        .await;
    call.end();
    rows?.iter().rev().map(audit_entry).collect()
}

fn audit_entry(row: &MySqlRow) -> Result<AuditEntry> {
    let extra: Option<String> = row.try_get("extra")?;
    Ok(AuditEntry {
        action: row.try_get("action")?,
        attempts: attempts(row)?,
        error: row.try_get("error")?,
        by: AuditEntry::said(extra.as_deref(), "by"),
        reason: AuditEntry::said(extra.as_deref(), "reason"),
        at: time(row, "at")?,
    })
}

pub(super) async fn purge(store: &MysqlStore, purge: &Purge) -> Result<u64> {
    match purge.kind {
        PurgeKind::Done => purge_final(store, Status::Done, purge).await,
        PurgeKind::Dead => purge_final(store, Status::Dead, purge).await,
        PurgeKind::Audit => purge_notes(store, sql::PURGE_AUDIT, purge).await,
        PurgeKind::Inbox => purge_notes(store, sql::PURGE_INBOX, purge).await,
        PurgeKind::Any => purge_any(store, purge).await,
    }
}

async fn purge_final(store: &MysqlStore, status: Status, purge: &Purge) -> Result<u64> {
    let age = micros(purge.older_than);
    let mut tx = store.begin().await?;
    let look = sqlx::query_scalar(store.sql(sql::LOOK_FINAL)).bind(status.code()).bind(age);
    let old: Vec<i64> = look.bind(i64::from(purge.limit)).fetch_all(&mut *tx).await?;
    let purged = sqlx::query(store.sql(sql::PURGE_FINAL))
        .bind(places(old))
        .bind(status.code())
        .bind(age)
        .execute(&mut *tx)
        .await?;
    crash_point!("purge.inside"?);
    tx.commit().await?;
    Ok(purged.rows_affected())
}

/// Nobody changes such a row: one statement looks and deletes.
async fn purge_notes(store: &MysqlStore, statement: &'static str, purge: &Purge) -> Result<u64> {
    let mut call = store.call().await?;
    let purged = sqlx::query(store.sql(statement))
        .bind(micros(purge.older_than))
        .bind(i64::from(purge.limit))
        .execute(&mut *call)
        .await;
    call.end();
    Ok(purged?.rows_affected())
}

async fn purge_any(store: &MysqlStore, purge: &Purge) -> Result<u64> {
    let age = micros(purge.older_than);
    let mut tx = store.begin().await?;
    let setting = sqlx::query(store.sql(sql::HOLD_MODE)).fetch_one(&mut *tx).await?;
    refuse_unless_nobody_delivers(migrate::mode(&setting)?)?;
    let look = sqlx::query_scalar(store.sql(sql::LOOK_ANY)).bind(i64::from(purge.limit)).bind(age);
    let old: Vec<i64> = look.fetch_all(&mut *tx).await?;
    let purged = sqlx::query(store.sql(sql::PURGE_ANY))
        .bind(places(old))
        .bind(age)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(purged.rows_affected())
}

/// As a statement unpacks them; in order, as everyone who locks rows, and each once.
fn places(mut seqs: Vec<i64>) -> String {
    seqs.sort_unstable();
    seqs.dedup();
    Value::from(seqs).to_string()
}

pub(super) async fn event(store: &MysqlStore, id: &EventId) -> Result<Option<StoredEvent>> {
    let mut call = store.call().await?;
    let query = fitting(sqlx::query(store.sql(sql::EVENT)), Fit::WHOLE).bind(id.as_str());
    let row = query.fetch_optional(&mut *call).await;
    call.end();
    let Some(row) = row? else { return Ok(None) };
    let done_at: Option<i64> = row.try_get("done_at")?;
    Ok(Some(StoredEvent {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        key: row.try_get("ordering_key")?,
        token: Token(row.try_get("lock_token")?),
        status: status(&row)?,
        attempts: attempts(&row)?,
        available_at: time(&row, "available_at")?,
        created_at: time(&row, "created_at")?,
        done_at: done_at.map(Timestamp::from_unix_micros),
        settled_by: row.try_get("settled_by")?,
        last_error: row.try_get("last_error")?,
        event: content(&row)?.whole(),
    }))
}
