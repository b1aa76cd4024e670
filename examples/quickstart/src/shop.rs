//! The business side: an order and its event in one transaction.

use pillarbox::Outbox;
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::{OrderPlaced, Result};

/// How a transaction ends.
pub(crate) enum End {
    Commit,
    Rollback,
}

pub(crate) trait Shop {
    /// Creates the table of orders.
    async fn prepare(&self) -> Result<()>;
    /// Inserts the order and emits its event in one transaction.
    async fn place(&self, outbox: &Outbox, order: &mut OrderPlaced, end: End) -> Result<()>;
}

/// The same code on every database. The table's definition differs, and how an insert returns the
/// id of its row.
macro_rules! shop {
    ($pool:ty, $create:literal, |$tx:ident, $total_cents:ident| $insert:expr) => {
        impl Shop for $pool {
            async fn prepare(&self) -> Result<()> {
                sqlx::query($create).execute(self).await?;
                Ok(())
            }

            async fn place(
                &self,
                outbox: &Outbox,
                order: &mut OrderPlaced,
                end: End,
            ) -> Result<()> {
                let mut $tx = outbox.begin(self).await?; // derefs to the connection
                let $total_cents = order.total_cents;
                order.order_id = $insert;
                $tx.emit(order).await?;
                match end {
                    End::Commit => $tx.commit().await?, // durable; wakes the relay
                    End::Rollback => $tx.rollback().await?, // neither the order nor its event exists
                }
                Ok(())
            }
        }
    };
}

const INSERT: &str = "insert into quickstart_order (total_cents) values ($1) returning id";

shop!(
    SqlitePool,
    "create table if not exists quickstart_order (
        id integer primary key autoincrement, total_cents integer not null)",
    |tx, cents| sqlx::query_scalar(INSERT).bind(cents).fetch_one(&mut *tx).await?
);
shop!(
    PgPool,
    "create table if not exists quickstart_order (
        id bigint primary key generated always as identity, total_cents bigint not null)",
    |tx, cents| sqlx::query_scalar(INSERT).bind(cents).fetch_one(&mut *tx).await?
);
shop!(
    MySqlPool,
    "create table if not exists quickstart_order (
        id bigint primary key auto_increment, total_cents bigint not null)",
    |tx, cents| {
        let insert = sqlx::query("insert into quickstart_order (total_cents) values (?)");
        insert.bind(cents).execute(&mut *tx).await?.last_insert_id().try_into()?
    }
);
