"""A worker of ours in its own process, which reports its work as the Java worker's child does."""

from __future__ import annotations

import json
import logging
import sys

from integration.java.journal import Processing
from kinesis_sdk.consumer import ConsumerConfig, RecordHandler, Worker


def main() -> None:
    options = json.loads(sys.argv[1])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(levelname)s %(message)s"
    )
    processing = Processing(
        options["journal"], options["worker"], stand_at=options["stand_at"], middle=options["middle"]
    )
    count_only = options["count_only"]

    class Handler(RecordHandler):
        def initialize(self, shard):
            self.shard = shard.shard_id
            position = [shard.checkpoint.sequence_number, shard.checkpoint.sub_sequence_number]
            processing.tell("initialize", self.shard, position=position)

        def process_records(self, batch):
            if count_only:
                size = sum(len(record.data) for record in batch.records)
                batch.checkpoint()
                processing.tell("counted", self.shard, count=len(batch.records), size=size)
                return
            entries = [
                (record.sequence_number, record.sub_sequence_number, record.data, record.partition_key)
                for record in batch.records
            ]
            processing.process(self.shard, entries, batch.checkpoint)

        def lease_lost(self):
            processing.tell("lease_lost", self.shard)

        def shard_ended(self, checkpointer):
            checkpointer.checkpoint()
            processing.tell("shard_ended", self.shard)

        def shutdown_requested(self, checkpointer):
            if processing.may_checkpoint(self.shard):
                checkpointer.checkpoint()
            processing.tell("shutdown_requested", self.shard)

    Worker(
        options["stream"],
        application_name=options["application"],
        handler=Handler,
        config=ConsumerConfig().with_fields(**options["config"]),
        worker_id=options["worker"],
    ).run()


if __name__ == "__main__":
    main()
