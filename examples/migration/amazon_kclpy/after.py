"""The same record processor in a worker: no daemon, no process for each shard. It reads the settings of app.properties."""

# region program
from kinesis_sdk import ConsumerConfig, RecordHandler, Worker


class Billing(RecordHandler):
    def initialize(self, shard):  # 1
        self.shard = shard.shard_id  # 2

    def process_records(self, batch):  # 3
        for record in batch.records:  # 4
            # 5: standard output is yours
            print(record.partition_key, record.data)
        batch.checkpoint()  # 6: repeats throttled writes by itself

    def lease_lost(self):  # 7
        pass

    def shard_ended(self, checkpointer):  # 8
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer):  # 9
        checkpointer.checkpoint()


config = ConsumerConfig.from_properties("app.properties")
worker = Worker("orders", application_name="billing", handler=Billing, config=config)
worker.run()  # 10
# endregion
