"""Produce and consume with asyncio: one event loop that puts records, and a handler that awaits.

`AsyncProducer.put` waits for room without blocking the loop, and the future that it returns can be awaited. A handler that is a coroutine
function is awaited on the worker's own event loop, so a thousand shards can wait for a database or a web service without a thousand
threads. Within a batch, it may process records side by side; the batch is done when the coroutine returns.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    python examples/asyncio_pipeline.py

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kinesis_sdk import AsyncProducer, ConsumerConfig, RecordBatch, UserRecord, Worker

STREAM = "orders"


async def incoming() -> AsyncIterator[tuple[str, bytes]]:
    """Yield partition keys and payloads, as a socket or a queue would."""
    for number in range(1000):
        yield f"customer-{number % 50}", b"order %d" % number
        if number % 100 == 0:
            await asyncio.sleep(0)


async def produce() -> None:
    """Put records as they come, then wait until all are stored."""
    async with AsyncProducer() as producer:
        results = await asyncio.gather(*await producer.put_many(STREAM, incoming()))
    print("stored", len(results), "records in", len({result.shard_id for result in results}), "shards")


async def charge(record: UserRecord) -> int:
    """Process one record; here a web service would be called."""
    await asyncio.sleep(0.001)
    return len(record.data)


async def handle(batch: RecordBatch) -> None:
    """Process the records of a batch side by side. An error of one lets the whole batch come again."""
    sizes = await asyncio.gather(*(charge(record) for record in batch.records))
    print("processed", len(sizes), "records of", batch.shard_id)


async def main() -> None:
    """Put records, then process everything that is in the stream."""
    await produce()
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    worker = Worker(STREAM, application_name="charges", handler=handle, config=config, until="now")
    await asyncio.to_thread(worker.run)


if __name__ == "__main__":
    asyncio.run(main())
