use pillarbox::{Cx, Event, Failure, Listeners, Relay, SqliteStore};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, Event)]
#[event("order.placed", version = 1, aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    email: String,
}

/// Called at least once per order; `cx.id()` is the same on every attempt.
async fn send_receipt(order: OrderPlaced, cx: Cx) -> Result<(), Failure> {
    println!("{}: receipt to {}, attempt {}", cx.id(), order.email, cx.attempt());
    Ok(()) // any error would be retried with backoff; `Failure::dead` gives up
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    store.migrate().await?;
    let pool = store.pool().clone();
    sqlx::query("create table orders (id integer primary key)").execute(&pool).await?;
    let relay = Relay::new(store, Listeners::new().on(send_receipt));
    let outbox = relay.outbox(); // cheap to clone; give one to every handler
    let relay = relay.spawn().await?;

    let mut tx = outbox.begin(&pool).await?; // derefs to the connection
    sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    tx.emit(&OrderPlaced { order_id: 7, email: "ada@example.com".into() }).await?;
    tx.commit().await?; // both or neither; the relay is awake

    relay.stop().await?; // delivers what was committed before it
    Ok(())
}
