//! The tables and their settings. Migrations are append-only, each in one transaction, one process at
//! a time.

use async_trait::async_trait;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{PostgresStore, sql::ownership, sql::schema as sql};
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig, Schema};
use crate::table::TablePrefix;

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/postgres/0001_outbox.sql")];

#[async_trait]
impl Schema for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    fn is_pooled(&self) -> bool {
        !self.named
    }

    async fn migrate(&self) -> Result<()> {
        // Looks first: where nothing is to be done, a role needs no right to create tables.
        let done = self.run(&self.pool, async |it| self.version(it).await).await?;
        if check::is_current(done, MIGRATIONS.len())? {
            return Ok(());
        }
        self.apply().await.map_err(check::explain_rights)
    }

    async fn config(&self) -> Result<OutboxConfig> {
        let query = self.query_scalar(sql::VERSION);
        let done = self.run(&self.pool, async |it| query.fetch_one(it).await).await?;
        check::refuse_other(done, MIGRATIONS.len())?;
        let (row, last) = self
            .run(&self.pool, async |it| -> Result<_> {
                let row = self.query(sql::CONFIG).fetch_one(&mut *it).await?;
                Ok((row, self.last_seq(it).await?))
            })
            .await?;
        if row.try_get("replica")? {
            let message = "this server is a replica: connect to the primary";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        if let Some(last) = last {
            let newest: i64 = row.try_get("newest_seq")?;
            let repair = self.tables.render(sql::SET_SEQ).replace("{newest}", &newest.to_string());
            check::refuse_behind(last, newest, &repair)?;
        }
        check::config(row.try_get("claim")?, row.try_get("ordered")?, row.try_get("shards")?)
    }

    async fn mark_seq(&self) -> Result<()> {
        self.run(&self.pool, async |it| -> Result<()> {
            if let Some(last) = self.last_seq(it).await? {
                self.query(sql::MARK_SEQ).bind(last).execute(it).await?;
            }
            Ok(())
        })
        .await
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::raw_sql(ownership::LIMIT_WAITS).execute(&mut *tx).await?;
        self.query(ownership::LOCK_SETTING).execute(&mut *tx).await?;
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

impl PostgresStore {
    /// The newest migration laid down; 0 where there is none.
    async fn version(&self, connection: &mut PgConnection) -> Result<i32> {
        if !self.query_scalar(sql::HAS_VERSIONS).fetch_one(&mut *connection).await? {
            return Ok(0);
        }
        Ok(self.query_scalar(sql::VERSION).fetch_one(connection).await?)
    }

    /// All in one transaction, for DDL is transactional here: a kill half-way leaves nothing.
    async fn apply(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        // The lock names the schema and prefix, so that only processes on the same tables wait.
        let schema: Option<String> =
            self.query_scalar(sql::CURRENT_SCHEMA).fetch_one(&mut *tx).await?;
        let prefix = self.tables.prefix();
        let name = format!("pillarbox:{}:{}", schema.unwrap_or_default(), prefix.as_str());
        self.query(sql::LOCK_MIGRATION).bind(name).execute(&mut *tx).await?;
        self.query(sql::CREATE_VERSIONS).execute(&mut *tx).await?;
        let done: i32 = self.query_scalar(sql::VERSION).fetch_one(&mut *tx).await?;
        check::refuse_newer(done, MIGRATIONS.len())?;
        crash_point!("migrate.before"?);
        for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(it, _)| *it > done) {
            sqlx::raw_sql(self.sql(migration)).execute(&mut *tx).await?;
            crash_point!("migrate.inside"?);
            self.query(sql::NOTE_VERSION).bind(version).execute(&mut *tx).await?;
            crash_point!("migrate.noted"?);
        }
        tx.commit().await?;
        Ok(())
    }

    /// How far the database has counted; `None` where the role may not know.
    async fn last_seq(&self, connection: &mut PgConnection) -> Result<Option<i64>> {
        if !self.query_scalar(sql::CAN_READ_SEQ).fetch_one(&mut *connection).await? {
            return Ok(None);
        }
        Ok(Some(self.query_scalar(sql::LAST_SEQ).fetch_one(connection).await?))
    }
}

/// The mode in a row of `outbox_setting`.
pub(super) fn mode(row: &PgRow) -> Result<DeliveryMode> {
    check::mode(row.try_get("claim")?, row.try_get("ordered")?)
}
