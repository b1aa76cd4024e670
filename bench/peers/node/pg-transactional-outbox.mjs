// The polling listener; messages that may go side by side, in larger batches than its default of 5.
import {
  DatabaseSetup,
  getDisabledLogger,
  initializePollingMessageListener,
} from 'pg-transactional-outbox';
import pg from 'pg';

const BATCH = 100;
const names = {
  outboxOrInbox: 'outbox',
  database: 'unused',
  schema: 'public',
  table: 'outbox',
  listenerRole: 'unused',
  nextMessagesName: 'next_outbox_messages',
};

const INSERT = `insert into public.outbox
  (id, aggregate_type, aggregate_id, message_type, concurrency, payload)
  select gen_random_uuid(), 'order', n::text, 'order.placed', 'parallel',
    jsonb_build_object('order_id', n, 'note', $2::text)
  from generate_series(1, $1::int) n`;

export async function fill({ url, count, note }) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(DatabaseSetup.dropAndCreateTable(names));
  await client.query(DatabaseSetup.createPollingFunction(names));
  await client.query(DatabaseSetup.setupPollingIndexes(names));
  await client.query(INSERT, [count, note]);
  await client.end();
}

export async function prepare({ url }, tally) {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  let shutdown;
  return {
    async start() {
      const config = {
        outboxOrInbox: 'outbox',
        dbListenerConfig: { connectionString: url, max: 20 },
        settings: {
          dbSchema: 'public',
          dbTable: 'outbox',
          enableMaxAttemptsProtection: false,
          enablePoisonousMessageProtection: false,
          nextMessagesBatchSize: BATCH,
          nextMessagesLockInMs: 30_000,
          nextMessagesFunctionName: names.nextMessagesName,
          nextMessagesPollingIntervalInMs: 10,
        },
      };
      const handler = { handle: async (message) => tally.hear(message.payload.order_id) };
      const strategies = { batchSizeStrategy: async () => BATCH };
      [shutdown] = initializePollingMessageListener(config, handler, getDisabledLogger(), strategies);
    },
    async left() {
      const sql = 'select count(*)::int as messages from public.outbox where processed_at is null';
      return (await pool.query(sql)).rows[0].messages;
    },
    async stop() {
      await shutdown();
      await pool.end();
    },
  };
}
