"""Puts a record as Before.java does; both read kpl.properties."""

# region program
from dataclasses import replace

from kinesis_sdk import Producer, ProducerConfig

config = replace(
    ProducerConfig.from_properties("kpl.properties"),  # 1
    record_max_buffered_time=0.5,  # 2: seconds
    record_ttl=60,  # 3
)
producer = Producer(config)  # 4


def callback(future):  # 5
    print("failed" if future.exception() else "stored")


future = producer.put("orders", "customer-7", b"1")  # 6
future.add_done_callback(callback)  # 7

result = future.result()  # 8: raises RecordFailedError
print(result.shard_id)  # 9
for attempt in result.attempts:  # 10
    print(attempt.success)  # 11

producer.flush()  # 12
producer.close()  # 13
# endregion
