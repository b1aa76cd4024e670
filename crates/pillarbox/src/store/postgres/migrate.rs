//! Migrations: append-only, each in one transaction, one process at a time.

use sqlx::{Row as _, postgres::PgRow};

use super::{PostgresStore, sql};
use crate::error::{Error, ErrorKind, Result};
use crate::point::point;
use crate::store::mode::refuse_living;
use crate::store::{Layout, Mode, schema};

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/postgres/0001_outbox.sql")];

const SCHEMA: &str = "select current_schema()::text";

const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 0))";

const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at timestamptz not null default clock_timestamp()
)";

const NOTE_VERSION: &str = "insert into {p}outbox_migration (version) values ($1)";

/// All in one transaction, for DDL is transactional here: a kill half-way leaves nothing.
pub(super) async fn migrate(store: &PostgresStore) -> Result<()> {
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
    schema::refuse_newer(done, MIGRATIONS.len())?;
    point!("migrate.before"?);
    for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        sqlx::raw_sql(store.sql(migration)).execute(&mut *tx).await?;
        point!("migrate.inside"?);
        sqlx::query(store.sql(NOTE_VERSION))
            .persistent(store.named)
            .bind(version)
            .execute(&mut *tx)
            .await?;
        point!("migrate.noted"?);
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn layout(store: &PostgresStore) -> Result<Layout> {
    let mut link = store.link(&store.pool).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION))
        .persistent(store.named)
        .fetch_one(&mut *link)
        .await?;
    link.end().await?;
    schema::refuse_other(done, MIGRATIONS.len())?;
    let mut link = store.link(&store.pool).await?;
    let row =
        sqlx::query(store.sql(sql::LAYOUT)).persistent(store.named).fetch_one(&mut *link).await?;
    link.end().await?;
    if row.try_get("replica")? {
        let message = "this server is a replica: connect to the primary";
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    schema::layout(row.try_get("claim")?, row.try_get("ordered")?, row.try_get("shards")?)
}

pub(super) async fn configure(store: &PostgresStore, mode: Mode) -> Result<()> {
    let mut tx = store.begin().await?;
    sqlx::raw_sql(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).persistent(store.named).execute(&mut *tx).await?;
    // One that lapsed would renew, and live on in a mode that is not its own.
    sqlx::query(store.sql(sql::REMOVE_LAPSED)).persistent(store.named).execute(&mut *tx).await?;
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
pub(super) fn mode(row: &PgRow) -> Result<Mode> {
    schema::mode(row.try_get("claim")?, row.try_get("ordered")?)
}
