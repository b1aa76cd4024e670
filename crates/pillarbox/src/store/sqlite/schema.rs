//! The tables and their settings. Migrations are append-only, each in one transaction, one process at
//! a time.

use async_trait::async_trait;
use sqlx::{Row as _, Sqlite};

use super::{SqliteStore, sql::ownership, sql::schema as sql};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::pooled::PooledTx;
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig, Schema};
use crate::table::TablePrefix;

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/sqlite/0001_outbox.sql")];

#[async_trait]
impl Schema for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    fn is_pooled(&self) -> bool {
        false
    }

    async fn migrate(&self) -> Result<()> {
        // Looks first: where nothing is to be done, a file that is opened read-only will do.
        if check::is_current(self.version().await?, MIGRATIONS.len())? {
            return Ok(());
        }
        self.apply().await.map_err(check::explain_rights)
    }

    async fn config(&self) -> Result<OutboxConfig> {
        let done: i32 = self.query_scalar(sql::VERSION).fetch_one(&self.pool).await?;
        check::refuse_other(done, MIGRATIONS.len())?;
        let row = self.query(sql::CONFIG).fetch_one(&self.pool).await?;
        let (claim, ordered): (String, String) = (row.try_get("claim")?, row.try_get("ordered")?);
        let newest: i64 = row.try_get("newest_seq")?;
        let repair = self.tables.render(sql::SET_SEQ).replace("{newest}", &newest.to_string());
        check::refuse_behind(self.last_seq().await?, newest, &repair)?;
        check::config(&claim, &ordered, row.try_get("shards")?)
    }

    async fn mark_seq(&self) -> Result<()> {
        let last = self.last_seq().await?;
        self.query(sql::MARK_SEQ).bind(last).execute(self.writer()).await?;
        Ok(())
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        let mut tx = self.begin().await?;
        // One that lapsed would renew, and live on in a mode that is not its own.
        self.remove_lapsed(&mut tx).await?;
        let left: i64 = self.query_scalar(sql::COUNT_OWNERS).fetch_one(&mut *tx).await?;
        refuse_living(u64::try_from(left).unwrap_or(0))?;
        self.query(sql::CONFIGURE)
            .bind(mode.claim.as_str())
            .bind(mode.order.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }
}

impl SqliteStore {
    /// The newest migration laid down; 0 where there is none.
    async fn version(&self) -> Result<i32> {
        if !self.query_scalar(sql::HAS_VERSIONS).fetch_one(&self.pool).await? {
            return Ok(0);
        }
        Ok(self.query_scalar(sql::VERSION).fetch_one(&self.pool).await?)
    }

    /// All in one immediate transaction, which is the lock: a kill half-way leaves nothing.
    async fn apply(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        self.query(sql::CREATE_VERSIONS).execute(&mut *tx).await?;
        let done: i32 = self.query_scalar(sql::VERSION).fetch_one(&mut *tx).await?;
        check::refuse_newer(done, MIGRATIONS.len())?;
        crash_point!("migrate.before"?);
        for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done)
        {
            sqlx::raw_sql(self.sql(migration)).execute(&mut *tx).await?;
            crash_point!("migrate.inside"?);
            self.query(sql::NOTE_VERSION).bind(version).execute(&mut *tx).await?;
            crash_point!("migrate.noted"?);
        }
        tx.commit().await?;
        Ok(())
    }

    /// How far the database has counted.
    async fn last_seq(&self) -> Result<i64> {
        Ok(self.query_scalar(sql::LAST_SEQ).fetch_one(&self.pool).await?)
    }

    /// The mode, which stays as it is until this transaction has ended.
    pub(super) async fn mode(&self, tx: &mut PooledTx<Sqlite>) -> Result<DeliveryMode> {
        let row = self.query(ownership::SETTING).fetch_one(&mut **tx).await?;
        let (claim, ordered): (String, String) = (row.try_get("claim")?, row.try_get("ordered")?);
        check::mode(&claim, &ordered)
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    use super::*;
    use crate::error::ErrorKind;
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
