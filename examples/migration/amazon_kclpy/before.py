"""A record processor for amazon_kclpy 3.2.0. The MultiLangDaemon starts this program once for each shard: see app.properties."""

# region program
import sys
import time

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Billing(processor.RecordProcessorBase):
    def initialize(self, initialize_input):  # 1
        self.shard = initialize_input.shard_id  # 2

    def process_records(self, process_records_input):  # 3
        for record in process_records_input.records:  # 4
            # 5: standard output belongs to the daemon
            print(record.partition_key, record.binary_data, file=sys.stderr)
        self.checkpoint(process_records_input.checkpointer)  # 6

    def checkpoint(self, checkpointer):
        for attempt in range(5):
            try:
                return checkpointer.checkpoint()
            except kcl.CheckpointError as error:
                if error.value != "ThrottlingException" or attempt == 4:
                    raise
                time.sleep(5)

    def lease_lost(self, lease_lost_input):  # 7
        pass

    def shard_ended(self, shard_ended_input):  # 8
        self.checkpoint(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input):  # 9
        self.checkpoint(shutdown_requested_input.checkpointer)


kcl.KCLProcess(Billing()).run()  # 10
# endregion
