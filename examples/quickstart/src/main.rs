//! Place orders, tell the world: transactions with rollbacks, events delivered after the commit,
//! one of them retried, one given up. Runs on SQLite, or on the database of `--store URL`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod args;
mod ledger;
mod shop;

use std::sync::Arc;

use pillarbox::{Cx, Event, EventId, Failure, Listener, Listeners, Relay, Store};
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::shop::{End, Shop};

/// News of a placed order. The string is the contract; the struct may be renamed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event("order.placed", version = 1, aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    total_cents: i64,
    /// Tells the orders of this run from those of earlier ones in the same database.
    run: String,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn run(shop: impl Shop, store: impl Store) -> Result<()> {
    println!("pillarbox quickstart on {}\n", store.name());
    store.migrate().await?;
    shop.prepare().await?;

    let ledger = Arc::new(Ledger::new(EventId::generate().to_string()));
    let relay = Relay::new(store, Listeners::new().on(Receipts(Arc::clone(&ledger))));
    let outbox = relay.outbox(); // cheap to clone; its commits wake the relay
    let relay = relay.spawn().await?;

    for number in 1..=20 {
        let run = ledger.run.clone();
        let mut order = OrderPlaced { order_id: 0, total_cents: number * 100, run };
        if number % 4 == 0 {
            shop.place(&outbox, &mut order, End::Rollback).await?;
            ledger.rolled_back(&order);
        } else {
            ledger.committing(&order);
            shop.place(&outbox, &mut order, End::Commit).await?;
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

#[tokio::main]
async fn main() -> std::process::ExitCode {
    args::main().await
}
