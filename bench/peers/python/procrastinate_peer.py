"""Twenty jobs side by side; those that are done are deleted."""

import contextlib

import procrastinate
import psycopg

CHUNK = 1000
TASK = "order.placed"
# https://procrastinate.readthedocs.io: the function that `defer` calls.
ENQUEUE = f"""select unnest(procrastinate_defer_jobs_v1(array[
    ('default', '{TASK}', 0, null, null, $1::text::jsonb, null)::procrastinate_job_to_defer_v1]))"""


def open_app(order, tally):
    connector = procrastinate.PsycopgConnector(conninfo=order["url"], min_size=20, max_size=24)
    app = procrastinate.App(connector=connector)

    @app.task(name=TASK)
    async def place(order_id, note):
        tally.hear(order_id)

    return app, place


async def fill(order):
    app, place = open_app(order, None)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(1, order["count"] + 1, CHUNK):
            numbers = range(first, min(first + CHUNK, order["count"] + 1))
            jobs = [{"order_id": number, "note": order["note"]} for number in numbers]
            await place.batch_defer_async(*jobs)
    return {"enqueue": ENQUEUE, "enqueued": "select count(*) from procrastinate_jobs"}


@contextlib.asynccontextmanager
async def prepare(order, tally):
    app, _ = open_app(order, tally)
    async with app.open_async():
        async with await psycopg.AsyncConnection.connect(order["url"], autocommit=True) as meter:
            yield Worker(app, meter)


class Worker:
    def __init__(self, app, meter):
        self.app, self.meter = app, meter

    async def run(self):
        await self.app.run_worker_async(
            concurrency=20, delete_jobs="successful", install_signal_handlers=False
        )

    async def left(self):
        row = await self.meter.execute("select count(*) from procrastinate_jobs")
        return (await row.fetchone())[0]
