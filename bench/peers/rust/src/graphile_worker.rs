//! As its own benchmark has it: 500 jobs side by side, a local queue of 5000.

use std::{collections::HashMap, sync::Arc, time::Duration};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use sqlx::{PgPool, postgres::PgPoolOptions};

use crate::{
    Result,
    order::{Order, Placed, filled},
    race,
};

const SCHEMA: &str = "graphile_worker";
const CHUNK: usize = 5000;

impl TaskHandler for Placed {
    const IDENTIFIER: &'static str = "order.placed";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        race::hear(self.order_id);
        Ok::<(), String>(())
    }
}

pub(crate) async fn fill(order: &Order) -> Result {
    let utils = WorkerUtils::new(pool(order).await?, SCHEMA);
    utils.migrate().await?;
    for chunk in order.chunks(CHUNK) {
        let job = |placed: &Placed| {
            let payload = serde_json::to_value(placed)?;
            Ok(RawJobSpec {
                identifier: Placed::IDENTIFIER.to_owned(),
                payload,
                spec: JobSpec::default(),
            })
        };
        let jobs = chunk.iter().map(job).collect::<Result<Vec<_>>>()?;
        utils.add_raw_jobs(&jobs).await?;
    }
    filled(&HashMap::from([
        ("enqueue", "select graphile_worker.add_job('order.placed', $1::text::json)"),
        ("enqueued", "select count(*) from graphile_worker._private_jobs"),
    ]))
}

pub(crate) async fn drain(order: &Order) -> Result {
    let pool = pool(order).await?;
    let worker = WorkerOptions::default()
        .database(pool.clone())
        .schema(SCHEMA)
        .concurrency(500)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(Duration::from_millis(5))
        .define_job::<Placed>()
        .local_queue(LocalQueueConfig::default().with_size(5000))
        .init()
        .await?;
    let worker = Arc::new(worker);
    let start = async {
        tokio::spawn(async move { worker.run().await });
        Ok(())
    };
    let sql = "select count(*) from graphile_worker._private_jobs";
    race::run(order, start, async || Ok(sqlx::query_scalar(sql).fetch_one(&pool).await?)).await
}

async fn pool(order: &Order) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(100).connect(&order.url).await?)
}
