"""The same with an `AsyncProducer`."""

# region program
import asyncio

from kinesis_sdk import AsyncProducer, ProducerConfig, RecordFailedError


async def main():
    config = ProducerConfig(
        record_max_buffered_time=0.5,  # 1: seconds
    )
    async with AsyncProducer(config, region_name="us-east-1") as producer:  # 2
        future = await producer.put("orders", "customer-7", b"1")  # 3
        await producer.flush()  # 4: waits for the results
        try:
            result = await future  # 5
            print(result.shard_id)  # 7
        except RecordFailedError as error:  # 6: an exception, not a flag
            print(error.attempts[-1].code)  # 8


asyncio.run(main())
# endregion
