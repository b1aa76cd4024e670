"""Batches of 500 over a pool of asyncpg connections."""

import contextlib
import json

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.queries import Queries

BATCH = 500
CHUNK = 5000
TASK = "order.placed"


async def fill(order):
    async with asyncpg.create_pool(order["url"], min_size=2, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        for first in range(1, order["count"] + 1, CHUNK):
            numbers = range(first, min(first + CHUNK, order["count"] + 1))
            payloads = [
                json.dumps({"order_id": number, "note": order["note"]}).encode()
                for number in numbers
            ]
            size = len(payloads)
            await queries.enqueue([TASK] * size, payloads, [0] * size)
        return {
            "enqueue": enqueue(queries.qbq.build_enqueue_query()),
            "enqueued": "select count(*) from pgqueuer",
        }


def enqueue(sql):
    """Its own statement with the defaults of `enqueue` in place of all but the payload."""
    values = {
        "$1::int[]": "array[0]",
        "$2::text[]": f"array['{TASK}']",
        "$3::bytea[]": "array[convert_to($1::text, 'utf8')]",
        "$4::interval[]": "array[interval '0']",
        "$5::text[]": "array[null::text]",
        "$6::jsonb[]": "array['null'::jsonb]",
    }
    for parameter, value in values.items():
        if parameter not in sql:
            raise LookupError(f"the statement has no {parameter}")
        sql = sql.replace(parameter, value, 1)
    return sql


@contextlib.asynccontextmanager
async def prepare(order, tally):
    async with asyncpg.create_pool(order["url"], min_size=10, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint(TASK)
        async def place(job):
            tally.hear(json.loads(job.payload)["order_id"])

        yield Worker(queuer, pool)


class Worker:
    def __init__(self, queuer, pool):
        self.queuer, self.pool = queuer, pool

    async def run(self):
        await self.queuer.run(batch_size=BATCH)

    async def left(self):
        return await self.pool.fetchval("select count(*) from pgqueuer")
