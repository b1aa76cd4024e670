//! Batches of 500, each job in a task of its own.

use std::collections::HashMap;

use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage, queries::push_tasks};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::oneshot;

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
    let worker = WorkerBuilder::new("peer").backend(backend).parallelize(tokio::spawn).build(place);
    // The worker's future cannot be spawned: its jobs are, and it waits here for the word.
    let (go, word) = oneshot::channel();
    let start = async { go.send(()).map_err(|()| "the worker has ended".into()) };
    let sql = "select count(*) from apalis.jobs where status <> 'Done'";
    let race =
        race::run(order, start, async || Ok(sqlx::query_scalar(sql).fetch_one(&pool).await?));
    let work = async {
        word.await?;
        Result::Ok(worker.run().await?)
    };
    tokio::select! {
        raced = race => raced,
        worked = work => worked,
    }
}

async fn place(placed: Placed) -> std::result::Result<(), BoxDynError> {
    race::hear(placed.order_id);
    Ok(())
}

async fn pool(order: &Order) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(20).connect(&order.url).await?)
}
