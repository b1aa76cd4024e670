//! Two databases, a relay for each: an order in the one becomes an invoice in the other, exactly
//! once, although its event comes twice.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod billing;

use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Cx, Event, Failure, Inbox, Listeners, Relay, SqliteStore};
use serde::{Deserialize, Serialize};

use crate::billing::{Billing, InvoiceWritten};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
}

async fn open(table: &'static str) -> Result<SqliteStore, Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?; // a database of its own
    store.migrate().await?;
    sqlx::query(table).execute(store.pool()).await?;
    Ok(store)
}

async fn tell(InvoiceWritten { order_id }: InvoiceWritten, _: Cx) -> Result<(), Failure> {
    println!("order {order_id} has its invoice");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shop = open("create table shop_order (id integer primary key)").await?;
    let billing = open("create table invoice (order_id integer)").await?;
    let (orders, invoices, probe) = (shop.pool().clone(), billing.pool().clone(), Probe::new());

    let of_billing = Relay::new(billing, Listeners::new().on(tell)).observer(probe.clone());
    let writes = Billing {
        pool: invoices.clone(),
        outbox: of_billing.outbox(),
        inbox: Inbox::new("billing")?,
    };
    let of_shop = Relay::new(shop, Listeners::new().on(writes)).observer(probe.clone());
    let outbox = of_shop.outbox();
    let (of_billing, of_shop) = (of_billing.spawn().await?, of_shop.spawn().await?);

    for order_id in 1..=3 {
        let mut tx = outbox.begin(&orders).await?;
        sqlx::query("insert into shop_order values ($1)").bind(order_id).execute(&mut *tx).await?;
        tx.emit(&OrderPlaced { order_id }).await?;
        tx.commit().await?;
    }

    // Three orders and three invoices, whatever was tried twice.
    probe.wait_many(6, |seen| matches!(seen, RelayEvent::Delivered(_))).await;
    let written: i64 =
        sqlx::query_scalar("select count(*) from invoice").fetch_one(&invoices).await?;
    println!("3 orders, {written} invoices");
    of_shop.stop().await?;
    of_billing.stop().await?;
    Ok(())
}
