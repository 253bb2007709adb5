"""The processor of `integration/java/child.py` inside a worker's process, for ``--in-process multilang_processor:Processor``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from integration.java.journal import Processing
from kinesis_sdk.kclpy.v3 import processor

_OPTIONS: dict[str, Any] = json.loads(Path(os.environ["BENCH_OPTIONS"]).read_text())


class Processor(processor.RecordProcessorBase):
    def __init__(self) -> None:
        self._processing = Processing(_OPTIONS["journal"], _OPTIONS["worker"])
        self._shard = "?"

    def initialize(self, initialize_input: Any) -> None:
        self._shard = initialize_input.shard_id
        position = [initialize_input.sequence_number, initialize_input.sub_sequence_number]
        self._processing.tell("initialize", self._shard, position=position)

    def process_records(self, process_records_input: Any) -> None:
        records = process_records_input.records
        if _OPTIONS["count_only"]:
            size = sum(len(record.binary_data) for record in records)
            process_records_input.checkpointer.checkpoint()
            self._processing.tell("counted", self._shard, count=len(records), size=size)
            return
        entries = [
            (record.sequence_number, record.sub_sequence_number, record.binary_data, record.partition_key)
            for record in records
        ]
        self._processing.process(self._shard, entries, process_records_input.checkpointer.checkpoint)

    def lease_lost(self, lease_lost_input: Any) -> None:  # noqa: ARG002
        self._processing.tell("lease_lost", self._shard)

    def shard_ended(self, shard_ended_input: Any) -> None:
        shard_ended_input.checkpointer.checkpoint()
        self._processing.tell("shard_ended", self._shard)

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        shutdown_requested_input.checkpointer.checkpoint()
        self._processing.tell("shutdown_requested", self._shard)
