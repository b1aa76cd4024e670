// One order on the command line, one JSON line for an answer: ../README.md.
import { createInterface } from 'node:readline';
import { performance } from 'node:perf_hooks';

const order = JSON.parse(process.argv[2]);
const peer = await import(`./${order.peer}.mjs`);

// What the handlers saw; each event has its number in `order_id`.
class Tally {
  constructor(count) {
    this.count = count;
    this.seen = new Uint8Array(count + 1);
    this.handled = 0;
    this.distinct = 0;
    this.first = undefined;
    this.all = new Promise((resolve) => (this.done = resolve));
  }

  hear(number) {
    this.first ??= performance.now();
    this.handled += 1;
    if (this.seen[number] === 0) {
      this.seen[number] = 1;
      this.distinct += 1;
    }
    if (this.distinct === this.count) this.done();
  }
}

// When each event was first heard, in microseconds since 1970.
class Times {
  constructor(count) {
    this.count = count;
    this.heard = new Array(count).fill(0);
    this.distinct = 0;
    this.all = new Promise((resolve) => (this.done = resolve));
  }

  hear(number) {
    const now = Math.round((performance.timeOrigin + performance.now()) * 1000);
    if (this.heard[number - 1] === 0) {
      this.heard[number - 1] = now;
      this.distinct += 1;
    }
    if (this.distinct === this.count) this.done();
  }
}

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

async function drain() {
  const tally = new Tally(order.count);
  const worker = await peer.prepare(order, tally);
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  say({ ready: true });
  await lines.next();

  const running = worker.start();
  await tally.all;
  while ((await worker.left()) > 0) await new Promise((resolve) => setTimeout(resolve, 2));
  const seconds = (performance.now() - tally.first) / 1000;
  const duplicates = tally.handled - tally.distinct;
  say({ seconds, handled: tally.distinct, duplicates });

  await lines.next();
  await worker.stop();
  await running;
}

async function listen() {
  const times = new Times(order.count);
  const worker = await (peer.listen ?? peer.prepare)(order, times);
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await worker.start();
  say({ ready: true });
  await times.all;
  say({ heard: times.heard });
  await lines.next();
}

if (order.verb === 'fill') say((await peer.fill(order)) ?? {});
else if (order.verb === 'listen') await listen();
else await drain();
process.exit(0);
