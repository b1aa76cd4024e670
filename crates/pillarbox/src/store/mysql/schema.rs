//! The tables and their settings. Migrations are append-only, one process at a time. DDL commits as
//! it goes, so each statement is written to be run again.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _, mysql::MySqlRow};

use super::server::{self, Server};
use super::{MysqlStore, sql::ownership, sql::schema as sql};
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::store::schema::{check, refuse_living};
use crate::store::{DeliveryMode, OutboxConfig, Schema};
use crate::table::TablePrefix;

/// Every migration in order; its place, from 1, is its version.
const MIGRATIONS: &[&str] = &[include_str!("../../../migrations/mysql/0001_outbox.sql")];

#[async_trait]
impl Schema for MysqlStore {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    fn is_pooled(&self) -> bool {
        false
    }

    async fn migrate(&self) -> Result<()> {
        // Looks first: where nothing is to be done, a user needs no right to create tables.
        let mut connection = self.relay.acquire().await?;
        connection.close_on_drop();
        let server = server::of(&mut connection, self.accepts).await?;
        let done = self.version(&mut connection).await?;
        if !check::is_current(done, MIGRATIONS.len())? {
            self.apply(server, &mut connection).await.map_err(check::explain_rights)?;
        }
        connection.close().await?;
        Ok(())
    }

    async fn config(&self) -> Result<OutboxConfig> {
        self.run(&self.relay, async |it| self.check(it).await).await
    }

    async fn mark_seq(&self) -> Result<()> {
        self.run(&self.relay, async |it| self.mark(it).await).await
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        let mut tx = self.begin_move().await?;
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

impl MysqlStore {
    /// The newest migration laid down; 0 where there is none.
    async fn version(&self, connection: &mut MySqlConnection) -> Result<i32> {
        if !self.query_scalar(sql::HAS_VERSIONS).fetch_one(&mut *connection).await? {
            return Ok(0);
        }
        Ok(self.query_scalar(sql::VERSION).fetch_one(connection).await?)
    }

    /// The lock is the connection's, which is closed in every case: whatever happens, it is let go.
    async fn apply(&self, server: Server, connection: &mut MySqlConnection) -> Result<()> {
        self.lock(connection).await?;
        self.query(sql::CREATE_VERSIONS).execute(&mut *connection).await?;
        let done: i32 = self.query_scalar(sql::VERSION).fetch_one(&mut *connection).await?;
        check::refuse_newer(done, MIGRATIONS.len())?;
        crash_point!("migrate.before"?);
        for (version, migration) in (1_i32..).zip(MIGRATIONS).filter(|(version, _)| *version > done)
        {
            let migration = self.tables.render(migration).replace("{nopad}", server.nopad());
            sqlx::raw_sql(AssertSqlSafe(migration)).execute(&mut *connection).await?;
            crash_point!("migrate.inside"?);
            self.query(sql::NOTE_VERSION).bind(version).execute(&mut *connection).await?;
            crash_point!("migrate.noted"?);
        }
        Ok(())
    }

    /// The lock names the database and prefix, so that only processes of one house wait.
    async fn lock(&self, connection: &mut MySqlConnection) -> Result<()> {
        let locked: Option<i64> = self
            .query_scalar(sql::LOCK_MIGRATION)
            .bind(self.tables.prefix().as_str())
            .fetch_one(connection)
            .await?;
        if locked == Some(1) {
            return Ok(());
        }
        let message = "another process has been migrating these tables for a minute";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn check(&self, connection: &mut MySqlConnection) -> Result<OutboxConfig> {
        server::of(connection, self.accepts).await?;
        let done: i32 = self.query_scalar(sql::VERSION).fetch_one(&mut *connection).await?;
        check::refuse_other(done, MIGRATIONS.len())?;
        let row = self.query(sql::CONFIG).fetch_one(&mut *connection).await?;
        let refuse = |message| Err(Error::new(ErrorKind::Configuration, message));
        if row.try_get("replica")? {
            return refuse("this server is a replica, or read only: connect to the primary");
        }
        if row.try_get("logs_statements")? {
            return refuse("this server logs statements: set binlog_format to MIXED or ROW");
        }
        let last: i64 = self.query_scalar(sql::LAST_SEQ).fetch_one(connection).await?;
        let newest: i64 = row.try_get("newest_seq")?;
        let repair = self.tables.render(sql::SET_SEQ).replace("{next}", &(newest + 1).to_string());
        check::refuse_behind(last, newest, &repair)?;
        check::config(row.try_get("claim")?, row.try_get("ordered")?, row.try_get("shards")?)
    }

    async fn mark(&self, connection: &mut MySqlConnection) -> Result<()> {
        let newest = self.query_scalar(sql::NEWEST_SEQ).fetch_one(&mut *connection);
        let newest: i64 = newest.await?;
        self.query(sql::MARK_SEQ).bind(newest).bind(newest).execute(connection).await?;
        Ok(())
    }
}

/// The mode in a row of `outbox_setting`.
pub(super) fn mode(row: &MySqlRow) -> Result<DeliveryMode> {
    check::mode(row.try_get("claim")?, row.try_get("ordered")?)
}
