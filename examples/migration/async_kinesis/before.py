"""Puts and reads with async-kinesis 3.0.1; its checkpoints in DynamoDB need the extra: ``pip install 'async-kinesis[dynamodb]'``."""

# region program
import asyncio

from kinesis import Consumer, DynamoDBCheckPointer, Producer


async def produce():
    async with Producer(stream_name="orders") as producer:  # 1
        await producer.put({"total": 12}, partition_key="customer-7")  # 2
        await producer.flush()  # 3: there is no result for each record


async def consume():
    async with Consumer(  # 4
        stream_name="orders",
        checkpointer=DynamoDBCheckPointer("invoices"),  # 5
        iterator_type="TRIM_HORIZON",  # 6
    ) as consumer:
        while True:  # `async for` ends after two seconds without a record
            async for item in consumer:  # 7
                print(item["total"])  # 8


asyncio.run(produce())
asyncio.run(consume())
# endregion
