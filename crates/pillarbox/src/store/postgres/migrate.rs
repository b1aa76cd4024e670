//! Migrations: append-only, each in one transaction, one process at a time.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::lease::remove_lapsed;
use super::{PostgresStore, sql};
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig};

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/postgres/0001_outbox.sql")];

const SCHEMA: &str = "select current_schema()::text";

const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 0))";

/// In the schema that the tables would be created in, whatever else is in the search path.
const HAS_VERSIONS: &str = "
select to_regclass(quote_ident(current_schema()) || '.{p}outbox_migration') is not null";

const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at timestamptz not null default clock_timestamp()
)";

const NOTE_VERSION: &str = "insert into {p}outbox_migration (version) values ($1)";

/// Sets the sequence to what was marked, or to the newest row.
const SET_SEQ: &str = "select setval('{p}outbox_event_seq_seq', \
    greatest({newest}, (select max(seq) from {p}outbox_event)))";

/// Looks first: where nothing is to be done, a role needs no right to create tables.
pub(super) async fn migrate(store: &PostgresStore) -> Result<()> {
    let mut link = store.link(&store.pool).await?;
    let done = version(store, &mut link).await?;
    link.end().await?;
    if check::is_current(done, MIGRATIONS.len())? {
        return Ok(());
    }
    apply(store).await.map_err(check::explain_rights)
}

/// The newest migration laid down; 0 where there is none.
async fn version(store: &PostgresStore, connection: &mut PgConnection) -> Result<i32> {
    let there = sqlx::query_scalar(store.sql(HAS_VERSIONS)).persistent(store.named);
    if !there.fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    let version = sqlx::query_scalar(store.sql(sql::VERSION)).persistent(store.named);
    Ok(version.fetch_one(connection).await?)
}

/// All in one transaction, for DDL is transactional here: a kill half-way leaves nothing.
async fn apply(store: &PostgresStore) -> Result<()> {
    let mut tx = store.begin().await?;
    // The lock names the schema and prefix, so that only processes of one house wait.
    let schema: Option<String> =
        sqlx::query_scalar(SCHEMA).persistent(store.named).fetch_one(&mut *tx).await?;
    let house =
        format!("pillarbox:{}:{}", schema.unwrap_or_default(), store.tables.prefix().as_str());
    sqlx::query(LOCK).persistent(store.named).bind(house).execute(&mut *tx).await?;
    sqlx::query(store.sql(CREATE_VERSIONS)).persistent(store.named).execute(&mut *tx).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION))
        .persistent(store.named)
        .fetch_one(&mut *tx)
        .await?;
    check::refuse_newer(done, MIGRATIONS.len())?;
    crash_point!("migrate.before"?);
    for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        sqlx::raw_sql(store.sql(migration)).execute(&mut *tx).await?;
        crash_point!("migrate.inside"?);
        sqlx::query(store.sql(NOTE_VERSION))
            .persistent(store.named)
            .bind(version)
            .execute(&mut *tx)
            .await?;
        crash_point!("migrate.noted"?);
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn layout(store: &PostgresStore) -> Result<OutboxConfig> {
    let mut link = store.link(&store.pool).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION))
        .persistent(store.named)
        .fetch_one(&mut *link)
        .await?;
    link.end().await?;
    check::refuse_other(done, MIGRATIONS.len())?;
    let mut link = store.link(&store.pool).await?;
    let row =
        sqlx::query(store.sql(sql::LAYOUT)).persistent(store.named).fetch_one(&mut *link).await?;
    let last = last_seq(store, &mut link).await?;
    link.end().await?;
    if row.try_get("replica")? {
        let message = "this server is a replica: connect to the primary";
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    if let Some(last) = last {
        let newest: i64 = row.try_get("newest_seq")?;
        let repair = store.tables.render(SET_SEQ).replace("{newest}", &newest.to_string());
        check::refuse_behind(last, newest, &repair)?;
    }
    check::config(row.try_get("claim")?, row.try_get("ordered")?, row.try_get("shards")?)
}

/// How far the database has counted; `None` where the role may not know.
async fn last_seq(store: &PostgresStore, connection: &mut PgConnection) -> Result<Option<i64>> {
    let can = sqlx::query_scalar(store.sql(sql::CAN_READ_SEQ)).persistent(store.named);
    if !can.fetch_one(&mut *connection).await? {
        return Ok(None);
    }
    let last = sqlx::query_scalar(store.sql(sql::LAST_SEQ)).persistent(store.named);
    Ok(Some(last.fetch_one(connection).await?))
}

pub(super) async fn mark_seq(store: &PostgresStore) -> Result<()> {
    let mut link = store.link(&store.pool).await?;
    if let Some(last) = last_seq(store, &mut link).await? {
        let mark = sqlx::query(store.sql(sql::MARK_SEQ)).persistent(store.named);
        mark.bind(last).execute(&mut *link).await?;
    }
    link.end().await
}

pub(super) async fn configure(store: &PostgresStore, mode: DeliveryMode) -> Result<()> {
    let mut tx = store.begin().await?;
    sqlx::raw_sql(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).persistent(store.named).execute(&mut *tx).await?;
    // One that lapsed would renew, and live on in a mode that is not its own.
    remove_lapsed(store, &mut tx).await?;
    let left: i64 = sqlx::query_scalar(store.sql(sql::COUNT_OWNERS))
        .persistent(store.named)
        .fetch_one(&mut *tx)
        .await?;
    refuse_living(u64::try_from(left).unwrap_or(0))?;
    sqlx::query(store.sql(sql::CONFIGURE))
        .persistent(store.named)
        .bind(mode.claim.as_str())
        .bind(mode.order.as_str())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The mode in a row of `outbox_setting`.
pub(super) fn mode(row: &PgRow) -> Result<DeliveryMode> {
    check::mode(row.try_get("claim")?, row.try_get("ordered")?)
}
