//! A singleton subscriber that collects; its checkpoint is written batch by batch.

use std::{collections::HashMap, time::Duration};

use obix::prelude::sqlx::{self, PgPool};
use obix::{
    EventCtx, EventDelivery, FlushOp, Handled, InsertOrder, MailboxConfig, OutboxEventJobConfig,
    SingletonSubscriber, out::Outbox,
};

use crate::{
    Result,
    order::{Order, Placed, filled},
    race,
};

const CHUNK: usize = 1000;
/// The crate's migrations: it has them copied into the project that uses it.
const SETUP: [&str; 2] = [include_str!("obix/job_setup.sql"), include_str!("obix/obix_setup.sql")];

struct Subscriber;

impl SingletonSubscriber<Placed> for Subscriber {
    type Batch = Vec<u32>;

    async fn handle_persistent<'inv>(
        &self,
        ctx: EventCtx<'inv, Self::Batch>,
        event: &EventDelivery<Placed>,
    ) -> Result<Handled<'inv>> {
        let Some(placed) = &event.payload else { return Ok(ctx.skip()) };
        race::hear(placed.order_id);
        Ok(ctx.collect(placed.order_id))
    }

    async fn flush(&self, _: &mut FlushOp<'_, InsertOrder>, _: Self::Batch) -> Result {
        Ok(())
    }
}

pub(crate) async fn fill(order: &Order) -> Result {
    let pool = PgPool::connect(&order.url).await?;
    for sql in SETUP {
        sqlx::raw_sql(sql).execute(&pool).await?;
    }
    let outbox = Outbox::<Placed>::init(&pool, MailboxConfig::builder().build()).await?;
    for chunk in order.chunks(CHUNK) {
        let mut op = outbox.begin_op().await?;
        outbox.publish_all_persisted(&mut op, chunk).await?;
        op.commit().await?;
    }
    filled(&HashMap::new())
}

pub(crate) async fn drain(order: &Order) -> Result {
    let pool = PgPool::connect(&order.url).await?;
    let config = job::JobSvcConfig::builder().pool(pool.clone()).build()?;
    let mut jobs = job::Jobs::init(config).await?;
    let outbox = Outbox::<Placed>::init(&pool, MailboxConfig::builder().build()).await?;
    let config = OutboxEventJobConfig::new(job::JobType::new("peer"));
    let subscription = outbox.register_singleton_subscriber(&mut jobs, config, Subscriber).await?;
    let start = async {
        jobs.start_poll().await?;
        Ok(())
    };
    race::run(order, start, async || {
        subscription.await_caught_up(Duration::from_secs(60)).await?;
        Ok(0)
    })
    .await
}
