//! The table of orders: a change of it and the news of that are one transaction.

use pillarbox::Outbox;
use sqlx::{PgPool, SqlitePool};

use crate::Result;
use crate::event::{OrderCancelled, OrderPlaced};

pub(crate) trait Orders: Clone + Send + Sync + 'static {
    fn create(&self) -> impl Future<Output = Result<()>> + Send;
    /// Inserts an order and says its number.
    fn place(&self, outbox: &Outbox, email: String) -> impl Future<Output = Result<i64>> + Send;
    /// Cancels an order; says whether there was one to cancel.
    fn cancel(&self, outbox: &Outbox, order_id: i64) -> impl Future<Output = Result<bool>> + Send;
}

/// The same code on both databases; only the table's definition differs.
macro_rules! orders {
    ($pool:ty, $create:literal) => {
        impl Orders for $pool {
            async fn create(&self) -> Result<()> {
                sqlx::query($create).execute(self).await?;
                Ok(())
            }

            async fn place(&self, outbox: &Outbox, email: String) -> Result<i64> {
                let mut tx = outbox.begin(self).await?; // derefs to the connection
                let order_id = sqlx::query_scalar(INSERT).bind(&email).fetch_one(&mut *tx).await?;
                tx.emit(&OrderPlaced { order_id, email }).await?;
                tx.commit().await?;
                Ok(order_id)
            }

            async fn cancel(&self, outbox: &Outbox, order_id: i64) -> Result<bool> {
                let mut tx = outbox.begin(self).await?;
                let cancelled = sqlx::query(CANCEL).bind(order_id).execute(&mut *tx).await?;
                if cancelled.rows_affected() == 0 {
                    return Ok(false); // dropped, the transaction is rolled back
                }
                tx.emit(&OrderCancelled { order_id }).await?;
                tx.commit().await?;
                Ok(true)
            }
        }
    };
}

const INSERT: &str = "insert into shop_order (email) values ($1) returning id";
const CANCEL: &str = "update shop_order set cancelled = true where id = $1 and not cancelled";

orders!(
    SqlitePool,
    "create table if not exists shop_order (
        id integer primary key autoincrement, email text not null,
        cancelled boolean not null default false)"
);
orders!(
    PgPool,
    "create table if not exists shop_order (
        id bigint primary key generated always as identity, email text not null,
        cancelled boolean not null default false)"
);
