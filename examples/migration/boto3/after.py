"""The same with a producer and a worker."""

# region program
from kinesis_sdk import ConsumerConfig, Producer, Worker

with Producer() as producer:  # 1
    future = producer.put("orders", "customer-7", b"1")  # 2
    future.result()  # 3: retries are made for you


def handle(batch):  # 5: for each shard, also new ones
    for record in batch.records:  # 8
        print(record.partition_key, record.data)  # 9


config = ConsumerConfig(initial_position="TRIM_HORIZON")  # 6
worker = Worker(  # 4
    "orders", application_name="report", handler=handle, config=config
)
worker.run()  # 7, 10: reads, waits and checkpoints
# endregion
