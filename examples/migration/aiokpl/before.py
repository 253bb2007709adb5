"""Puts with aiokpl 0.2.0."""

# region program
import asyncio

from aiokpl import Config, Producer


async def main():
    config = Config(
        region="us-east-1",
        record_max_buffered_time_ms=500,  # 1
    )
    async with Producer(config) as producer:  # 2
        outcome = await producer.put_record(  # 3
            stream="orders", partition_key="customer-7", data=b"1"
        )
        await producer.flush()  # 4: does not wait for the outcome
        result = await outcome.wait()  # 5
        if result.success:  # 6
            print(result.shard_id)  # 7
        else:
            print(result.attempts[-1].error_code)  # 8


asyncio.run(main())
# endregion
