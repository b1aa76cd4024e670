//! A schema of a test's own, on the real server.

use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::PostgresStore;
use crate::id::OwnerId;
use crate::table::TablePrefix;

/// The server of the tests; without one the test is skipped, unless it is required.
pub(super) fn server() -> Option<String> {
    let url = std::env::var("PILLARBOX_POSTGRES_URL").ok();
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == "postgres");
    assert!(url.is_some() || !is_required, "PILLARBOX_POSTGRES_URL is not set");
    if url.is_none() {
        eprintln!("skipped: PILLARBOX_POSTGRES_URL is not set");
    }
    url
}

/// A schema of its own, whose statistics nobody but the test gathers.
pub(super) struct Place {
    url: String,
    schema: String,
    /// One connection, so that what is said to it holds for the next statement.
    pub(super) pool: PgPool,
    pub(super) store: PostgresStore,
}

impl Place {
    pub(super) async fn open(url: &str) -> Self {
        let schema = format!("plan_{}", OwnerId::generate()).to_lowercase();
        let mut admin = PgConnection::connect(url).await.unwrap();
        let create = AssertSqlSafe(format!("create schema {schema}"));
        sqlx::query(create).execute(&mut admin).await.unwrap();
        let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap();
        let options = options.options([("search_path", schema.as_str())]);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let store = PostgresStore::new(pool.clone()).prefix(TablePrefix::new("plan_").unwrap());
        store.migrate().await.unwrap();
        Self { url: url.to_owned(), schema, pool, store }
    }

    pub(super) async fn run(&self, statement: &str) {
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&self.pool).await.unwrap();
    }

    pub(super) async fn close(self) {
        self.pool.close().await;
        let mut admin = PgConnection::connect(&self.url).await.unwrap();
        let drop = AssertSqlSafe(format!("drop schema {} cascade", self.schema));
        sqlx::query(drop).execute(&mut admin).await.unwrap();
    }
}
