//! cf-gears-toolkit-db, as its own benchmark has it: 64 partitions, 8 processors, leases.

use std::collections::HashMap;

use sqlx::postgres::PgPoolOptions;
use toolkit_db::outbox::{
    Batch, HandlerResult, LeasedHandler, Outbox, OutboxHandle, OutboxProfile, Partitions,
    outbox_migrations,
};
use toolkit_db::{ConnectOpts, Db, connect_db, migration_runner::run_migrations_for_testing};

use crate::{
    Result,
    order::{Order, Placed, filled},
    race,
};

const QUEUE: &str = "orders";
const PARTITIONS: u16 = 64;

struct Handler;

#[async_trait::async_trait]
impl LeasedHandler for Handler {
    async fn handle(&self, batch: &mut Batch<'_>) -> HandlerResult {
        while let Some(message) = batch.next_msg() {
            if let Ok(placed) = serde_json::from_slice::<Placed>(&message.payload) {
                race::hear(placed.order_id);
            }
            batch.ack();
        }
        HandlerResult::Success
    }
}

/// Its own two inserts for all events at once: an outbox that is started drains what it fills.
const FILL: &str = "
with partition as (
    select id, partition from toolkit_outbox_partitions where queue = 'orders'
), body as (
    insert into toolkit_outbox_body (payload, payload_type)
    select convert_to(json_build_object('order_id', n, 'note', $2::text)::text, 'utf8'), 'order.placed'
    from generate_series(1, $1) n
    returning id
)
insert into toolkit_outbox_incoming (partition_id, body_id)
select partition.id, body.id from body join partition on partition.partition = body.id % $3";

const LEFT: &str = "
select (select count(*) from toolkit_outbox_incoming)
     + (select count(*) from toolkit_outbox_outgoing o
        join toolkit_outbox_processor p on p.partition_id = o.partition_id where o.seq > p.processed_seq)";

pub(crate) async fn fill(order: &Order) -> Result {
    let db = open(order).await?;
    run_migrations_for_testing(&db, outbox_migrations()).await?;
    start(&db).await?.stop().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&order.url).await?;
    let count = i32::try_from(order.count)?;
    let fill = sqlx::query(FILL).bind(count).bind(&order.note).bind(i64::from(PARTITIONS));
    let filled_in = fill.execute(&pool).await?.rows_affected();
    if filled_in != u64::from(order.count) {
        return Err(format!("{filled_in} of {count} events filled in").into());
    }
    filled(&HashMap::new())
}

pub(crate) async fn drain(order: &Order) -> Result {
    let db = open(order).await?;
    let pool = PgPoolOptions::new().max_connections(1).connect(&order.url).await?;
    let begin = async {
        let handle = start(&db).await?;
        // It runs until the process ends.
        std::mem::forget(handle);
        Ok(())
    };
    race::run(order, begin, async || Ok(sqlx::query_scalar(LEFT).fetch_one(&pool).await?)).await
}

async fn start(db: &Db) -> Result<OutboxHandle> {
    let outbox = Outbox::builder(db.clone())
        .profile(OutboxProfile::high_throughput())
        .processors(8)
        .maintenance(2, 1)
        .queue(QUEUE, Partitions::of(PARTITIONS))
        .leased(Handler);
    Ok(outbox.start().await?)
}

async fn open(order: &Order) -> Result<Db> {
    let options = ConnectOpts { max_conns: Some(30), ..ConnectOpts::default() };
    Ok(connect_db(&order.url, options).await?)
}
