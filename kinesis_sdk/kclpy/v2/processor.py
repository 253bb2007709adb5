"""Processors of version 2, and an adapter for version 1."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.kclpy.messages import (
    InitializeInput,
    ProcessRecordsInput,
    ShutdownInput,
    ShutdownRequestedInput,
)


class RecordProcessorBase:
    """Processor of one shard. The calls never overlap: ``initialize`` once, batches in order, ``shutdown`` once."""

    version = 2

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Prepare for the shard; called once, first."""
        raise NotImplementedError

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process a batch; checkpoint the processed records with ``process_records_input.checkpointer``."""
        raise NotImplementedError

    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        """Finish: with the reason ``TERMINATE``, ``shutdown_input.checkpointer.checkpoint()`` must be called."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Checkpoint for the last time before the worker stops; does nothing unless it is overridden."""


class V1toV2Processor(RecordProcessorBase):
    """A processor of version 1 with the interface of version 2.

    Args:
        delegate: The processor of version 1.
    """

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Pass the id of the shard on."""
        self.delegate.initialize(initialize_input.shard_id)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Pass the records and the checkpointer on."""
        self.delegate.process_records(process_records_input.records, process_records_input.checkpointer)

    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        """Pass the checkpointer and the reason on."""
        self.delegate.shutdown(shutdown_input.checkpointer, shutdown_input.reason)

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Pass the checkpointer on."""
        self.delegate.shutdown_requested(shutdown_requested_input.checkpointer)
