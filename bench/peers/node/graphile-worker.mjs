// Its page on performance: a local queue, and completions in batches.
import { makeWorkerUtils, run, Logger } from 'graphile-worker';
import pg from 'pg';

const CHUNK = 5000;
const logger = new Logger(() => () => {});

export async function fill({ url, count, note }) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  for (let first = 1; first <= count; first += CHUNK) {
    const size = Math.min(CHUNK, count - first + 1);
    const jobs = Array.from({ length: size }, (_, at) => ({
      identifier: 'order.placed',
      payload: { order_id: first + at, note },
    }));
    await utils.addJobs(jobs);
  }
  await utils.release();
  return {
    enqueue: `select graphile_worker.add_job('order.placed', $1::text::json)`,
    enqueued: 'select count(*) from graphile_worker._private_jobs',
  };
}

const QUICK = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };

export const prepare = ({ url }, tally) => open(url, tally, QUICK);

// A local queue is for throughput; without it each job is fetched as soon as it is told of.
export const listen = ({ url }, times) => open(url, times, {});

function open(url, tally, worker) {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  let runner;
  return {
    async start() {
      runner = await run({
        pgPool: pool,
        logger,
        noHandleSignals: true,
        preset: { worker: { concurrentJobs: 24, ...worker } },
        taskList: { 'order.placed': (payload) => tally.hear(payload.order_id) },
      });
    },
    async left() {
      const sql = 'select count(*)::int as jobs from graphile_worker._private_jobs';
      return (await pool.query(sql)).rows[0].jobs;
    },
    async stop() {
      await runner.stop();
      await pool.end();
    },
  };
}
