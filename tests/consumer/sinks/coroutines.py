"""A sink in memory and a fleet, both with coroutines."""

from __future__ import annotations

import asyncio
import threading

from kinesis_sdk.consumer import RecordHandler
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from tests import HANG
from tests.consumer.sinks.books import Books


class AsyncMemory:
    """`InMemorySink` with coroutines, each of which waits for the event loop once."""

    max_records = None

    def __init__(self, inner=None):
        self.inner = inner or InMemorySink()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def ensure_ready(self):
        await asyncio.sleep(0)
        self.inner.ensure_ready()

    async def read(self, key):
        await asyncio.sleep(0)
        return self.inner.read(key)

    async def write(self, key, seen, row):
        await asyncio.sleep(0)
        return self.inner.write(key, seen, row)

    async def begin(self, key, seen):
        await asyncio.sleep(0)
        transaction = self.inner.begin(key, seen)
        return None if transaction is None else AsyncMemoryTransaction(transaction)


class AsyncMemoryTransaction:
    def __init__(self, inner):
        self.inner, self.handle = inner, inner.handle

    async def commit(self, row):
        await asyncio.sleep(0)
        return self.inner.commit(row)

    async def rollback(self):
        await asyncio.sleep(0)
        self.inner.rollback()


class CoroutineBooks(Books):
    """A fleet whose handlers are coroutines. A fleet that goes on while one of them is frozen has another thread and event loop."""

    def handler(self, name):
        books = self

        class Handler(RecordHandler):
            shard_id = "?"

            async def initialize(self, shard):
                self.shard_id = shard.shard_id

            async def process_records(self, batch):
                books.at(name, "begin")
                for record in batch.records:
                    effect = (self.shard_id, record.id, record.data)
                    await books.write(batch.transaction, effect)
                    books.handled.add(record.data)
                books.at(name, "end")

        return Handler

    def run(self, seconds, until=lambda: False):
        thread = threading.Thread(target=super().run, args=(seconds, until))
        thread.start()
        thread.join(HANG)
        assert not thread.is_alive()
