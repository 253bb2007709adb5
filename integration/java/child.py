"""The record processor that the MultiLangDaemon starts, one process a shard. Its argument is a file of JSON options."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import journal
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Processor(processor.RecordProcessorBase):
    def __init__(self, processing, count_only):
        self._processing = processing
        self._count_only = count_only
        self._shard = "?"

    def initialize(self, initialize_input):
        self._shard = initialize_input.shard_id
        position = [initialize_input.sequence_number, initialize_input.sub_sequence_number]
        self._processing.tell("initialize", self._shard, position=position)

    def process_records(self, process_records_input):
        if self._count_only:
            records = process_records_input.records
            size = sum(len(record.binary_data) for record in records)
            process_records_input.checkpointer.checkpoint()
            self._processing.tell("counted", self._shard, count=len(records), size=size)
            return
        entries = [
            (record.sequence_number, record.sub_sequence_number, record.binary_data, record.partition_key)
            for record in process_records_input.records
        ]
        try:
            self._processing.process(self._shard, entries, process_records_input.checkpointer.checkpoint)
        except kcl.CheckpointError as error:
            # The library only prints an exception that is raised here, and continues.
            self._processing.tell("refused", self._shard, error=error.value)

    def lease_lost(self, lease_lost_input):
        self._processing.tell("lease_lost", self._shard)

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()
        self._processing.tell("shard_ended", self._shard)

    def shutdown_requested(self, shutdown_requested_input):
        if self._processing.may_checkpoint(self._shard):
            shutdown_requested_input.checkpointer.checkpoint()
        self._processing.tell("shutdown_requested", self._shard)


options = json.loads(Path(sys.argv[1]).read_text())
processing = journal.Processing(
    options["journal"], options["worker"], stand_at=options["stand_at"], middle=options["middle"]
)
kcl.KCLProcess(Processor(processing, options["count_only"])).run()
