//! Place orders, tell the world: transactions with rollbacks, events delivered after the commit,
//! one of them retried, one given up. Runs on SQLite, or on `--store postgres://…`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod ledger;
mod shop;

use std::sync::Arc;

use pillarbox::{
    Cx, Event, Failure, Listener, Listeners, PostgresStore, Relay, SqliteStore, Store,
};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;

use crate::ledger::Ledger;
use crate::shop::Shop;

/// News of a placed order. The string is the contract; the struct may be renamed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event("order.placed", version = 1, aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    total_cents: i64,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt().with_max_level(level.unwrap_or(LevelFilter::ERROR)).init();
    let url = std::env::args().skip_while(|arg| arg != "--store").nth(1);
    match url.as_deref() {
        Some(url) if url.starts_with("postgres") => {
            let store = PostgresStore::connect(url).await?;
            run(store.pool().clone(), store).await
        }
        url => {
            let store = SqliteStore::connect(url.unwrap_or("sqlite::memory:")).await?;
            run(store.pool().clone(), store).await
        }
    }
}

async fn run(shop: impl Shop, store: impl Store) -> Result<()> {
    println!("pillarbox quickstart on {}\n", store.name());
    store.migrate().await?;
    shop.prepare().await?;

    let ledger = Arc::new(Ledger::default());
    let relay = Relay::new(store, Listeners::new().on(Receipts(Arc::clone(&ledger))));
    let outbox = relay.outbox(); // cheap to clone; its commits wake the relay
    let relay = relay.spawn().await?;

    for number in 1..=20 {
        let mut order = OrderPlaced { order_id: 0, total_cents: number * 100 };
        if number % 4 == 0 {
            shop.change_ones_mind(&outbox, &mut order).await?;
            ledger.rolled_back(&order);
        } else {
            shop.place(&outbox, &mut order).await?;
            ledger.committed(&order);
        }
    }

    ledger.wait().await;
    relay.stop().await?; // stops taking, finishes what is under way, gives its shards back
    ledger.report()
}

struct Receipts(Arc<Ledger>);

/// Called at least once per order; `cx.id()` is the same on every attempt.
impl Listener<OrderPlaced> for Receipts {
    async fn on_event(&self, order: OrderPlaced, cx: Cx) -> std::result::Result<(), Failure> {
        match order.total_cents {
            700 if cx.attempt() == 1 => Err(self.0.failed(&order, "mail server is away".into())),
            1300 => Err(self.0.failed(&order, Failure::dead("address does not exist"))),
            _ => {
                self.0.delivered(&order, cx.attempt());
                Ok(())
            }
        }
    }
}
