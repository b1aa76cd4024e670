"""Batches of 500 for eight workers, deleted in batches of 100."""

import asyncio
import contextlib
import logging

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, func, select
from sqlalchemy.ext.asyncio import create_async_engine

CHUNK = 1000
QUEUE = "orders"


def open_broker(order):
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox")
    url = order["url"].replace("postgres://", "postgresql+asyncpg://")
    engine = create_async_engine(url, pool_size=20)
    broker = OutboxBroker(engine, outbox_table=table, logger=None, log_level=logging.ERROR)
    return engine, metadata, table, broker


async def fill(order):
    engine, metadata, _, broker = open_broker(order)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    for first in range(1, order["count"] + 1, CHUNK):
        numbers = range(first, min(first + CHUNK, order["count"] + 1))
        bodies = [{"order_id": number, "note": order["note"]} for number in numbers]
        async with engine.begin() as connection:
            await broker.publish_batch(*bodies, queue=QUEUE, session=connection)
    await engine.dispose()


@contextlib.asynccontextmanager
async def prepare(order, tally):
    engine, _, table, broker = open_broker(order)

    @broker.subscriber(
        QUEUE,
        max_workers=8,
        fetch_batch_size=500,
        min_fetch_interval=0.01,
        terminal_flush_batch_size=100,
    )
    async def place(body: dict) -> None:
        tally.hear(body["order_id"])

    yield Worker(engine, table, broker)


class Worker:
    def __init__(self, engine, table, broker):
        self.engine, self.table, self.broker = engine, table, broker

    async def run(self):
        await self.broker.start()
        await asyncio.Event().wait()

    async def left(self):
        async with self.engine.connect() as connection:
            return await connection.scalar(select(func.count()).select_from(self.table))
