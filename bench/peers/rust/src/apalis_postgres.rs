//! Batches of 500, each job in a task of its own.

use std::collections::HashMap;

use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage, queries::push_tasks};
use sqlx::postgres::PgPoolOptions;

use crate::{
    Result,
    order::{Order, Placed, filled},
    race,
};

const QUEUE: &str = "orders";
const BATCH: usize = 500;
const CHUNK: usize = 5000;

pub(crate) async fn fill(order: &Order) -> Result {
    let pool = pool(order).await?;
    PostgresStorage::setup(&pool).await?;
    for chunk in order.chunks(CHUNK) {
        let task = |placed: &Placed| Ok(TaskBuilder::new(serde_json::to_vec(placed)?).build());
        let tasks = chunk.iter().map(task).collect::<Result<Vec<_>>>()?;
        let mut tx = pool.begin().await?;
        push_tasks(&mut *tx, QUEUE, tasks).await?;
        tx.commit().await?;
    }
    filled(&HashMap::new())
}

pub(crate) async fn drain(order: &Order) -> Result {
    let pool = pool(order).await?;
    let config = Config::default().queue(QUEUE).batch_size(BATCH);
    let backend = PostgresStorage::new(&pool).with_config(config);
    let worker =
        WorkerBuilder::new("peer").backend(backend).parallelize(tokio::spawn).build(place);
    let start = async {
        tokio::spawn(async move { worker.run().await });
        Ok(())
    };
    let sql = "select count(*) from apalis.jobs where status <> 'Done'";
    race::run(order, start, async || Ok(sqlx::query_scalar(sql).fetch_one(&pool).await?)).await
}

async fn place(placed: Placed) -> std::result::Result<(), BoxDynError> {
    race::hear(placed.order_id);
    Ok(())
}

async fn pool(order: &Order) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(20).connect(&order.url).await?)
}
