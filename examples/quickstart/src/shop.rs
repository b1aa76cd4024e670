//! The business side: one transaction, two facts, an order and the news of it.

use pillarbox::Outbox;
use sqlx::{PgPool, SqlitePool};

use crate::{OrderPlaced, Result};

pub(crate) trait Shop {
    async fn prepare(&self) -> Result<()>;
    /// Inserts the order and emits its event in one transaction.
    async fn place(&self, outbox: &Outbox, order: &mut OrderPlaced) -> Result<()>;
    /// Does the same, and rolls back.
    async fn change_ones_mind(&self, outbox: &Outbox, order: &mut OrderPlaced) -> Result<()>;
}

/// The same code on both databases; only the table's definition differs.
macro_rules! shop {
    ($pool:ty, $create:literal) => {
        impl Shop for $pool {
            async fn prepare(&self) -> Result<()> {
                sqlx::query($create).execute(self).await?;
                Ok(())
            }

            async fn place(&self, outbox: &Outbox, order: &mut OrderPlaced) -> Result<()> {
                let mut tx = outbox.begin(self).await?;
                order.order_id =
                    sqlx::query_scalar(INSERT).bind(order.total_cents).fetch_one(&mut *tx).await?;
                tx.emit(order).await?;
                tx.commit().await?; // durable; the relay is awake
                Ok(())
            }

            async fn change_ones_mind(
                &self,
                outbox: &Outbox,
                order: &mut OrderPlaced,
            ) -> Result<()> {
                let mut tx = outbox.begin(self).await?;
                order.order_id =
                    sqlx::query_scalar(INSERT).bind(order.total_cents).fetch_one(&mut *tx).await?;
                tx.emit(order).await?;
                tx.rollback().await?; // neither the order nor its event ever was
                Ok(())
            }
        }
    };
}

const INSERT: &str = "insert into quickstart_order (total_cents) values ($1) returning id";

shop!(
    SqlitePool,
    "create table if not exists quickstart_order (
        id integer primary key autoincrement, total_cents integer not null)"
);
shop!(
    PgPool,
    "create table if not exists quickstart_order (
        id bigint primary key generated always as identity, total_cents bigint not null)"
);
