//! Migrations: append-only, each in one transaction, one process at a time.

use sqlx::{Row as _, Sqlite};

use super::lease::remove_lapsed;
use super::{SqliteStore, sql};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::pooled::PooledTx;
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig};

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/sqlite/0001_outbox.sql")];

const HAS_VERSIONS: &str = "
select exists (
    select 1 from sqlite_schema where type = 'table' and name = '{p}outbox_migration')";

const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at integer not null default ({now})
)";

const NOTE_VERSION: &str = "insert into {p}outbox_migration (version) values (?1)";

const SET_SEQ: &str = "delete from sqlite_sequence where name = '{p}outbox_event'; \
    insert into sqlite_sequence (name, seq) values ('{p}outbox_event', {newest})";

/// Looks first: where nothing is to be done, a file that is opened read-only will do.
pub(super) async fn migrate(store: &SqliteStore) -> Result<()> {
    if check::is_current(version(store).await?, MIGRATIONS.len())? {
        return Ok(());
    }
    apply(store).await.map_err(check::explain_rights)
}

/// The newest migration laid down; 0 where there is none.
async fn version(store: &SqliteStore) -> Result<i32> {
    if !sqlx::query_scalar(store.sql(HAS_VERSIONS)).fetch_one(&store.pool).await? {
        return Ok(0);
    }
    Ok(sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&store.pool).await?)
}

/// All in one immediate transaction, which is the lock: a kill half-way leaves nothing.
async fn apply(store: &SqliteStore) -> Result<()> {
    let mut tx = store.begin().await?;
    sqlx::query(store.sql(CREATE_VERSIONS)).execute(&mut *tx).await?;
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&mut *tx).await?;
    check::refuse_newer(done, MIGRATIONS.len())?;
    crash_point!("migrate.before"?);
    for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        sqlx::raw_sql(store.sql(migration)).execute(&mut *tx).await?;
        crash_point!("migrate.inside"?);
        sqlx::query(store.sql(NOTE_VERSION)).bind(version).execute(&mut *tx).await?;
        crash_point!("migrate.noted"?);
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn layout(store: &SqliteStore) -> Result<OutboxConfig> {
    let done: i32 = sqlx::query_scalar(store.sql(sql::VERSION)).fetch_one(&store.pool).await?;
    check::refuse_other(done, MIGRATIONS.len())?;
    let row = sqlx::query(store.sql(sql::LAYOUT)).fetch_one(&store.pool).await?;
    let (claim, ordered): (String, String) = (row.try_get("claim")?, row.try_get("ordered")?);
    let newest: i64 = row.try_get("newest_seq")?;
    let repair = store.tables.render(SET_SEQ).replace("{newest}", &newest.to_string());
    check::refuse_behind(last_seq(store).await?, newest, &repair)?;
    check::config(&claim, &ordered, row.try_get("shards")?)
}

/// How far the database has counted.
async fn last_seq(store: &SqliteStore) -> Result<i64> {
    Ok(sqlx::query_scalar(store.sql(sql::LAST_SEQ)).fetch_one(&store.pool).await?)
}

pub(super) async fn mark_seq(store: &SqliteStore) -> Result<()> {
    let last = last_seq(store).await?;
    sqlx::query(store.sql(sql::MARK_SEQ)).bind(last).execute(store.writer()).await?;
    Ok(())
}

pub(super) async fn configure(store: &SqliteStore, mode: DeliveryMode) -> Result<()> {
    let mut tx = store.begin().await?;
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

/// The mode, which stays as it is until this transaction has ended.
pub(super) async fn mode(store: &SqliteStore, tx: &mut PooledTx<Sqlite>) -> Result<DeliveryMode> {
    let row = sqlx::query(store.sql(sql::MODE)).fetch_one(&mut **tx).await?;
    let (claim, ordered): (String, String) = (row.try_get("claim")?, row.try_get("ordered")?);
    check::mode(&claim, &ordered)
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::Schema as _;
    use crate::table::TablePrefix;

    #[tokio::test]
    async fn a_read_only_file_is_migrated_where_nothing_is_to_be_done() {
        let file = std::env::temp_dir().join(format!("pillarbox-ro-{}.db", std::process::id()));
        let writing = SqliteStore::connect(&format!("sqlite://{}", file.display())).await.unwrap();
        writing.migrate().await.unwrap();
        let options = SqliteConnectOptions::new().filename(&file).read_only(true);
        let reading = SqliteStore::new(SqlitePoolOptions::new().connect_lazy_with(options));

        let current = reading.migrate().await;
        let missing = reading.clone().prefix(TablePrefix::new("no_").unwrap()).migrate().await;

        reading.pool.close().await;
        writing.pool.close().await;
        for end in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{end}", file.display())).ok();
        }
        current.unwrap();
        let refused = missing.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Schema, "{refused}");
        assert!(refused.to_string().contains("run `migrate` once as"), "{refused}");
    }
}
