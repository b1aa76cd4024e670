// Fetch and complete a thousand jobs at a time, twice side by side.
import { createRequire } from 'node:module';
import PgBoss from 'pg-boss';

const plans = createRequire(import.meta.url)('pg-boss/src/plans.js');
const CHUNK = 5000;
const BATCH = 1000;
const SIDE = 2;
const QUEUE = 'order.placed';

const open = (url) => new PgBoss({ connectionString: url, supervise: false, schedule: false });

export async function fill({ url, count, note }) {
  const boss = open(url);
  await boss.start();
  await boss.createQueue(QUEUE);
  for (let first = 1; first <= count; first += CHUNK) {
    const size = Math.min(CHUNK, count - first + 1);
    const jobs = Array.from({ length: size }, (_, at) => ({
      name: QUEUE,
      data: { order_id: first + at, note },
    }));
    await boss.insert(jobs);
  }
  await boss.stop({ graceful: false });
  return { enqueue: enqueue(), enqueued: 'select count(*) from pgboss.job' };
}

// The statement of `send` with its defaults in place of all parameters but the data.
function enqueue() {
  const values = { 2: `'${QUEUE}'`, 3: '$1::text', 8: '0', 11: `'900'`, 13: `'14 days'`, 15: '2', 17: '0', 19: 'false' };
  const typed = { 5: 'null::text', 6: 'null::text', 7: 'null::integer', 9: 'null::text', 10: 'null::text', 12: 'null::text' };
  return plans.insertJob('pgboss').replace(/\$(\d+)/g, (_, n) => values[n] ?? typed[n] ?? 'null');
}

export async function prepare({ url }, tally) {
  const boss = open(url);
  await boss.start();
  const work = async () => {
    for (;;) {
      const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
      if (jobs.length === 0) return;
      for (const job of jobs) tally.hear(job.data.order_id);
      await boss.complete(QUEUE, jobs.map((job) => job.id));
    }
  };
  let working;
  return {
    start() {
      working = Promise.all(Array.from({ length: SIDE }, work));
      return working;
    },
    // Nothing is left once the loops that complete have come to an end.
    async left() {
      await working;
      return boss.getQueueSize(QUEUE, { before: 'completed' });
    },
    stop: () => boss.stop({ graceful: false }),
  };
}

// It polls, and no more often than this.
export async function listen({ url }, times) {
  const boss = open(url);
  await boss.start();
  const options = { pollingIntervalSeconds: 0.5, batchSize: BATCH };
  return {
    start: () =>
      boss.work(QUEUE, options, async (jobs) => {
        for (const job of jobs) times.hear(job.data.order_id);
      }),
  };
}
