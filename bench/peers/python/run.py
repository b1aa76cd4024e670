"""One order on the command line, one JSON line for an answer: ../README.md."""

import asyncio
import importlib
import json
import os
import sys
import time

import uvloop


class Tally:
    """What the handlers saw; each event has its number in `order_id`."""

    def __init__(self, count):
        self.count = count
        self.seen = bytearray(count + 1)
        self.handled = 0
        self.distinct = 0
        self.first = None
        self.all = asyncio.Event()

    def hear(self, number):
        if self.first is None:
            self.first = time.perf_counter()
        self.handled += 1
        if not self.seen[number]:
            self.seen[number] = 1
            self.distinct += 1
        if self.distinct == self.count:
            self.all.set()


class Times:
    """When each event was first heard, in microseconds since 1970."""

    def __init__(self, count):
        self.heard = [0] * count
        self.left = count
        self.all = asyncio.Event()

    def hear(self, number):
        if self.heard[number - 1] == 0:
            self.heard[number - 1] = time.time_ns() // 1000
            self.left -= 1
        if self.left == 0:
            self.all.set()


def say(answer):
    print(json.dumps(answer), flush=True)


async def next_line():
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def drain(peer, order):
    tally = Tally(order["count"])
    async with peer.prepare(order, tally) as worker:
        say({"ready": True})
        await next_line()

        running = asyncio.create_task(worker.run())
        await first_of(tally.all.wait(), running)
        while await worker.left() > 0:
            await asyncio.sleep(0.002)
        seconds = time.perf_counter() - tally.first
        duplicates = tally.handled - tally.distinct
        say({"seconds": seconds, "handled": tally.distinct, "duplicates": duplicates})
        await next_line()
        leave()


async def listen(peer, order):
    times = Times(order["count"])
    async with peer.prepare(order, times) as worker:
        running = asyncio.create_task(worker.run())
        say({"ready": True})
        await first_of(times.all.wait(), running)
        say({"heard": times.heard})
        await next_line()
        leave()


def leave():
    """Nothing is measured any more: a worker need not come to an end by itself."""
    sys.stdout.flush()
    os._exit(0)


async def first_of(heard, running):
    """Waits for all to be heard; a worker that fails before is the failure of the whole."""
    heard = asyncio.create_task(heard)
    await asyncio.wait({heard, running}, return_when=asyncio.FIRST_COMPLETED)
    if running.done() and running.exception():
        raise running.exception()
    await heard


async def main():
    order = json.loads(sys.argv[1])
    peer = importlib.import_module(order["peer"].replace("-", "_") + "_peer")
    if order["verb"] == "fill":
        say(await peer.fill(order) or {})
    elif order["verb"] == "listen":
        await listen(peer, order)
    else:
        await drain(peer, order)


uvloop.run(main())
