"""Processors of version 3, and adapters for earlier versions."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from kinesis_sdk.kclpy.v2.processor import V1toV2Processor


class RecordProcessorBase:
    """Processor of one shard.

    The calls never overlap: ``initialize`` first, batches in order, then ``lease_lost``, ``shard_ended`` or ``shutdown_requested``.
    """

    version = 3

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Prepare for the shard; called once, first."""
        raise NotImplementedError

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process a batch; checkpoint the processed records with ``process_records_input.checkpointer``."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Clean up; another worker continues, and no checkpoint is possible."""
        raise NotImplementedError

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Call ``shard_ended_input.checkpointer.checkpoint()``: without it, the child shards are never processed."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Checkpoint for the last time before the worker stops or hands off the shard."""
        raise NotImplementedError


class V2toV3Processor(RecordProcessorBase):
    """A processor of version 2 with the interface of version 3.

    Args:
        delegate: The processor of version 2.
    """

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Pass the call on."""
        self.delegate.initialize(initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Pass the call on."""
        self.delegate.process_records(process_records_input)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:  # noqa: ARG002
        """Call ``shutdown`` with the reason ``ZOMBIE``."""
        self.delegate.shutdown(ShutdownInput.zombie())

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Call ``shutdown`` with the reason ``TERMINATE``."""
        self.delegate.shutdown(ShutdownInput.terminate(shard_ended_input.checkpointer))

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Pass the call on."""
        self.delegate.shutdown_requested(shutdown_requested_input)


def as_version_3(record_processor: Any) -> Any:
    """Return a processor of any version (its ``version`` is 1, 2 or 3) with the interface of version 3."""
    if record_processor.version == 1:
        return V2toV3Processor(V1toV2Processor(record_processor))
    if record_processor.version == 2:
        return V2toV3Processor(record_processor)
    return record_processor
