"""The same with an `AsyncProducer` and a worker whose handler is a coroutine function."""

# region program
import asyncio
import json

from kinesis_sdk import AsyncProducer, ConsumerConfig, Worker


async def produce():
    async with AsyncProducer() as producer:  # 1
        data = json.dumps({"total": 12}).encode()
        future = await producer.put("orders", "customer-7", data)  # 2
        await future  # 3: the result of this record


async def handle(batch):  # 7
    for record in batch.records:
        print(json.loads(record.data)["total"])  # 8


asyncio.run(produce())
config = ConsumerConfig(initial_position="TRIM_HORIZON")  # 6
worker = Worker(  # 4
    "orders",
    application_name="invoices",
    handler=handle,
    config=config,  # 5
)
worker.run()
# endregion
