//! Migrations: append-only, one process at a time. DDL commits as it goes, so each statement is
//! written to be run again.

use sqlx::{AssertSqlSafe, MySqlConnection, Row as _, mysql::MySqlRow};

use super::lease::remove_lapsed;
use super::server::{self, Server};
use super::{MysqlStore, sql};
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig};

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/mysql/0001_outbox.sql")];

/// A lock's name has 64 characters at most, a database's alone may have as many.
const LOCK: &str =
    "select get_lock(concat('pillarbox:', left(sha2(concat(database(), ':', ?), 256), 40)), 60)";

const HAS_VERSIONS: &str = "
select exists (
    select 1 from information_schema.tables
    where table_schema = database() and table_name = '{p}outbox_migration')";

const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version int not null primary key,
    applied_at datetime(6) not null default (utc_timestamp(6))
) engine = innodb";

const NOTE_VERSION: &str = "insert into {p}outbox_migration (version) values (?)";

/// Where rows have greater numbers, the server goes on after them.
const SET_SEQ: &str = "alter table {p}outbox_event auto_increment = {next}";

/// Looks first: where nothing is to be done, a user needs no right to create tables.
pub(super) async fn migrate(store: &MysqlStore) -> Result<()> {
    let mut connection = store.relay.acquire().await?;
    connection.close_on_drop();
    let server = server::of(&mut connection, store.accepts).await?;
    let done = version(store, &mut connection).await?;
    if !check::is_current(done, MIGRATIONS.len())? {
        apply(store, server, &mut connection).await.map_err(check::explain_rights)?;
    }
    connection.close().await?;
    Ok(())
}

/// The newest migration laid down; 0 where there is none.
async fn version(store: &MysqlStore, connection: &mut MySqlConnection) -> Result<i32> {
    if !sqlx::query_scalar(store.sql(HAS_VERSIONS)).fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    Ok(sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(connection).await?)
}

/// The lock is the connection's, which is closed in every case: whatever happens, it is let go.
async fn apply(store: &MysqlStore, server: Server, connection: &mut MySqlConnection) -> Result<()> {
    lock(store, connection).await?;
    sqlx::query(store.sql(CREATE_VERSIONS)).execute(&mut *connection).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&mut *connection).await?;
    check::refuse_newer(done, MIGRATIONS.len())?;
    crash_point!("migrate.before"?);
    for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        let migration = store.tables.render(migration).replace("{nopad}", server.nopad());
        sqlx::raw_sql(AssertSqlSafe(migration)).execute(&mut *connection).await?;
        crash_point!("migrate.inside"?);
        sqlx::query(store.sql(NOTE_VERSION)).bind(version).execute(&mut *connection).await?;
        crash_point!("migrate.noted"?);
    }
    Ok(())
}

/// The lock names the database and prefix, so that only processes of one house wait.
async fn lock(store: &MysqlStore, connection: &mut MySqlConnection) -> Result<()> {
    let locked: Option<i64> =
        sqlx::query_scalar(LOCK).bind(store.tables.prefix().as_str()).fetch_one(connection).await?;
    if locked == Some(1) {
        return Ok(());
    }
    let message = "another process has been migrating these tables for a minute";
    Err(Error::new(ErrorKind::Unavailable, message))
}

pub(super) async fn layout(store: &MysqlStore) -> Result<OutboxConfig> {
    let mut call = store.call().await?;
    let answer = check(store, &mut call).await;
    call.end();
    answer
}

async fn check(store: &MysqlStore, connection: &mut MySqlConnection) -> Result<OutboxConfig> {
    server::of(connection, store.accepts).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&mut *connection).await?;
    check::refuse_other(done, MIGRATIONS.len())?;
    let row = sqlx::query(store.sql(sql::LAYOUT)).fetch_one(&mut *connection).await?;
    let refuse = |message| Err(Error::new(ErrorKind::Configuration, message));
    if row.try_get("replica")? {
        return refuse("this server is a replica, or read only: connect to the primary");
    }
    if row.try_get("logs_statements")? {
        return refuse("this server logs statements: set binlog_format to MIXED or ROW");
    }
    let last: i64 = sqlx::query_scalar(store.sql(sql::LAST_SEQ)).fetch_one(connection).await?;
    let newest: i64 = row.try_get("newest_seq")?;
    let repair = store.tables.render(SET_SEQ).replace("{next}", &(newest + 1).to_string());
    check::refuse_behind(last, newest, &repair)?;
    check::config(row.try_get("claim")?, row.try_get("ordered")?, row.try_get("shards")?)
}

pub(super) async fn mark_seq(store: &MysqlStore) -> Result<()> {
    let mut call = store.call().await?;
    let marked = mark(store, &mut call).await;
    call.end();
    marked
}

async fn mark(store: &MysqlStore, connection: &mut MySqlConnection) -> Result<()> {
    let newest = sqlx::query_scalar(store.sql(sql::NEWEST_SEQ)).fetch_one(&mut *connection);
    let newest: i64 = newest.await?;
    sqlx::query(store.sql(sql::MARK_SEQ)).bind(newest).bind(newest).execute(connection).await?;
    Ok(())
}

pub(super) async fn configure(store: &MysqlStore, mode: DeliveryMode) -> Result<()> {
    let mut tx = store.begin_move().await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).execute(&mut *tx).await?;
    // One that lapsed would renew, and live on in a mode that is not its own.
    remove_lapsed(store, &mut tx).await?;
    let left: i64 = sqlx::query_scalar(store.sql(sql::COUNT_OWNERS)).fetch_one(&mut *tx).await?;
    refuse_living(u64::try_from(left).unwrap_or(0))?;
    sqlx::query(store.sql(sql::CONFIGURE))
        .bind(mode.claim.as_str())
        .bind(mode.order.as_str())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The mode in a row of `outbox_setting`.
pub(super) fn mode(row: &MySqlRow) -> Result<DeliveryMode> {
    check::mode(row.try_get("claim")?, row.try_get("ordered")?)
}
