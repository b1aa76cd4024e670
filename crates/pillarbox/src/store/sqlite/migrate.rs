//! Migrations: append-only, each in one transaction, one process at a time.

use std::num::NonZeroU16;

use sqlx::Row as _;

use super::{SqliteStore, sql};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Layout;

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/sqlite/0001_outbox.sql")];

const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000)
)";

const NOTE_VERSION: &str = "insert into {p}outbox_migration (version) values (?1)";

/// All in one immediate transaction, which is the lock: a kill half-way leaves nothing.
pub(super) async fn migrate(store: &SqliteStore) -> Result<()> {
    let mut tx = store.begin().await?;
    sqlx::query(store.sql(CREATE_VERSIONS)).execute(&mut *tx).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&mut *tx).await?;
    refuse_newer(done)?;
    for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        sqlx::raw_sql(store.sql(migration)).execute(&mut *tx).await?;
        sqlx::query(store.sql(NOTE_VERSION)).bind(version).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn layout(store: &SqliteStore) -> Result<Layout> {
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&store.pool).await?;
    refuse_newer(done)?;
    refuse_older(done)?;
    let row = sqlx::query(store.sql(sql::LAYOUT)).fetch_one(&store.pool).await?;
    let claim: String = row.try_get("claim")?;
    if claim != "shards" {
        let message =
            format!("the tables are set to claim by {claim}, this relay claims by shards");
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    let shards: i16 = row.try_get("shards")?;
    let shards = u16::try_from(shards).ok().and_then(NonZeroU16::new);
    let broken = || Error::new(ErrorKind::Corrupt, "outbox_setting has no sound shard count");
    Ok(Layout { shards: shards.ok_or_else(broken)? })
}

fn refuse_newer(done: i32) -> Result<()> {
    if usize::try_from(done).is_ok_and(|done| done <= MIGRATIONS.len()) {
        return Ok(());
    }
    let known = MIGRATIONS.len();
    let message = format!(
        "the tables are newer than this library (version {done}, known up to {known}): update it"
    );
    Err(Error::new(ErrorKind::Schema, message))
}

fn refuse_older(done: i32) -> Result<()> {
    if usize::try_from(done).is_ok_and(|done| done == MIGRATIONS.len()) {
        return Ok(());
    }
    let known = MIGRATIONS.len();
    let message = format!(
        "the tables are older than this library (version {done} of {known}): run `migrate`"
    );
    Err(Error::new(ErrorKind::Schema, message))
}
