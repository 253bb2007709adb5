"""Processors written for amazon_kclpy that run inside the worker's process, without a child process, pipes or JSON.

A processor gets the inputs of `kinesis_sdk.kclpy`, as in a child. The worker itself calls it, with these differences:

| | in a child | here |
| --- | --- | --- |
| ``process_records`` raises | amazon_kclpy answers as if all were well; the next checkpoint skips the batch | the batch is delivered again, as ``ConsumerConfig.on_handler_error`` says; records that the call checkpointed are left out |
| ``initialize``, ``shard_ended`` raise | the same | called again, after a growing delay |
| ``shard_ended`` does not checkpoint | the shard is never finished | called again, after a growing delay |
| a checkpoint is throttled | `CheckpointError` | the worker retries for ``checkpoint_timeout`` before it raises `CheckpointError` |
| a checkpoint from another thread, after the callback has returned | an invalid state | stored |
| `sys.exit` | ends the child | the shard starts again at its checkpoint with another processor, after a growing delay |
| shards | a process each | threads of one process: state of the module is shared |
"""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kinesis_sdk.common.errors import ConfigError, InvalidCheckpointError, KinesisSdkError, RestartShardError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import SHARD_END
from kinesis_sdk.consumer import Checkpointer, RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.kclpy import messages
from kinesis_sdk.kclpy.checkpoint_error import CheckpointError
from kinesis_sdk.kclpy.v3.processor import as_version_3
from kinesis_sdk.multilang.checkpoints import error_name

_FIELD = "--in-process"
_VERSIONS = (1, 2, 3)
_CALLBACKS = ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested", "shutdown")


class InProcessRecord(messages.Record):
    """A record of a batch that is not converted to JSON. Its payload is encoded only when ``data`` is read."""

    def __init__(self, record: UserRecord) -> None:
        self._record = record

    @property
    def binary_data(self) -> bytes:
        """The payload."""
        return self._record.data

    @property
    def data(self) -> str:
        """The payload in base64; encoded at each access."""
        return base64.b64encode(self._record.data).decode("ascii")

    @property
    def partition_key(self) -> str:
        """Partition key that the producer gave."""
        return self._record.partition_key

    @property
    def sequence_number(self) -> str:
        """Sequence number; all records of an aggregate have the same number."""
        return self._record.sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """Index inside the aggregate, from 0; 0 for a record that was not aggregated."""
        return self._record.sub_sequence_number

    @property
    def timestamp_millis(self) -> int:
        """Time at which Kinesis accepted the record, in milliseconds since 1970; 0 if unknown."""
        arrived = self._record.approximate_arrival_timestamp
        return 0 if arrived is None else round(arrived.timestamp() * 1000)

    def get(self, field: str) -> Any:
        """Return a field by its name in a message, for example ``sequenceNumber``.

        Raises:
            KeyError: If there is no such field.
        """
        return _FIELDS[field](self)


_FIELDS: Mapping[str, Callable[[InProcessRecord], Any]] = {
    "data": lambda record: record.data,
    "partitionKey": lambda record: record.partition_key,
    "sequenceNumber": lambda record: record.sequence_number,
    "approximateArrivalTimestamp": lambda record: record.timestamp_millis,
    "subSequenceNumber": lambda record: record.sub_sequence_number,
    "action": lambda _: "record",
}


class InProcessCheckpointer:
    """The checkpointer of a processor.

    Args:
        error: Class of the errors that it raises.
        at_shard_end: Whether ``SHARD_END`` may be requested.
    """

    def __init__(
        self, checkpointer: Checkpointer, error: type[CheckpointError], *, at_shard_end: bool = False
    ) -> None:
        self._checkpointer = checkpointer
        self._error = error
        self._at_shard_end = at_shard_end

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Store that all records up to a position, inclusive, are processed.

        Args:
            sequence_number: Sequence number of a delivered record, as text or an int; None checkpoints all records delivered so far and
                ignores ``sub_sequence_number``.
            sub_sequence_number: Index inside an aggregate; None means 0, the *first* record of an aggregate.

        Raises:
            CheckpointError: If the checkpoint was not stored; ``value`` is the reason, and ``__cause__`` is the worker's error.
        """
        try:
            if sequence_number is None or (self._at_shard_end and sequence_number == SHARD_END):
                self._checkpointer.checkpoint()
            else:
                self._checkpointer.checkpoint(str(sequence_number), _sub(sub_sequence_number))
        except KinesisSdkError as error:
            raise self._error(error_name(error)) from error


def _sub(value: Any) -> int | None:
    """Return a sub-sequence number. A daemon also accepts text."""
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError) as error:
        raise InvalidCheckpointError(f"sub_sequence_number must be a number, not {value!r}") from error


class ProcessorHandler(RecordHandler):
    """Handler that calls a processor of any version; its checkpointers raise ``error``.

    If ``empty_batches`` is true, the processor is also called for responses without records.
    """

    # A processor gets one batch of a shard at a time, with the records of all keys.
    concurrency: ClassVar[int | None] = 1

    def __init__(
        self,
        record_processor: Any,
        error: type[CheckpointError] = CheckpointError,
        *,
        empty_batches: bool = False,
    ) -> None:
        self.empty_batches = empty_batches
        self._processor = as_version_3(record_processor)
        self._error = error

    def initialize(self, shard: ShardContext) -> None:
        """Call ``initialize`` with the shard and the checkpoint of its lease."""
        self._call(
            messages.InitializeInput(
                {
                    "action": "initialize",
                    "shardId": shard.shard_id,
                    "sequenceNumber": shard.checkpoint.sequence_number,
                    "subSequenceNumber": shard.checkpoint.sub_sequence_number,
                }
            )
        )

    def process_records(self, batch: RecordBatch) -> None:
        """Call ``process_records``."""
        given = messages.ProcessRecordsInput(
            {
                "action": "processRecords",
                "records": [InProcessRecord(record) for record in batch.records],
                "millisBehindLatest": batch.millis_behind_latest,
            }
        )
        self._call(given, batch.checkpointer)

    def lease_lost(self) -> None:
        """Call ``lease_lost``, or ``shutdown`` with ``ZOMBIE``."""
        self._call(messages.LeaseLostInput({"action": "leaseLost"}))

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Call ``shard_ended``, or ``shutdown`` with ``TERMINATE``. Nothing is checkpointed here."""
        self._call(messages.ShardEndedInput({"action": "shardEnded"}), checkpointer, at_shard_end=True)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Call ``shutdown_requested``."""
        self._call(messages.ShutdownRequestedInput({"action": "shutdownRequested"}), checkpointer)

    def _call(
        self,
        message: messages.MessageDispatcher,
        checkpointer: Checkpointer | None = None,
        *,
        at_shard_end: bool = False,
    ) -> None:
        given: messages.CheckpointerLike = (
            messages.NO_CHECKPOINTER
            if checkpointer is None
            else InProcessCheckpointer(checkpointer, self._error, at_shard_end=at_shard_end)
        )
        try:
            message.dispatch(given, self._processor)
        except SystemExit as error:
            raise RestartShardError(
                f"the processor called sys.exit({error.code!r}) in {message.action}"
            ) from error
        except self._error as error:
            # The worker's own error says whether the lease is lost, and that the records are not to blame.
            cause = error.__cause__
            if isinstance(cause, KinesisSdkError):
                raise cause from cause.__cause__
            raise


def processor_handlers(target: Any, *, empty_batches: bool = False) -> Callable[[], RecordHandler]:
    """Return the handler of a `Worker` that runs a processor in this process.

    ``target`` is a class, or a function that returns a processor; it is called without arguments, for each shard and
    acquisition of its lease. Processors of amazon_kclpy itself are also accepted: their checkpointers raise an error that amazon_kclpy's
    ``CheckpointError`` catches. With ``empty_batches``, they are also called for responses without records
    (``callProcessRecordsEvenForEmptyRecordList``).

    Raises:
        ConfigError: If ``target`` is not a processor. If ``target`` is a function, this error is raised when a shard starts.
    """
    accepted = (
        "a class of record processors, or a function that returns one, which can be called without arguments"
    )
    if not callable(target):
        raise ConfigError(_FIELD, target, accepted)
    try:
        inspect.signature(target).bind()
    except TypeError as error:
        raise ConfigError(_FIELD, target, f"{accepted} ({error})") from error
    except ValueError:  # some callables have no signature
        pass
    if isinstance(target, type):
        _check(target)
    error_class = _error_class()

    def make() -> RecordHandler:
        made = target()
        _check(made)
        return ProcessorHandler(made, error_class, empty_batches=empty_batches)

    return make


def _check(processor: Any) -> None:
    version = getattr(processor, "version", None)
    if version not in _VERSIONS:
        raise ConfigError(_FIELD, processor, f"a processor whose version is 1, 2 or 3, not {version!r}")
    for name in _CALLBACKS:
        callback = getattr(processor, name, None)
        # Their bodies would never run, and the batches would count as processed.
        if any(
            test(callback)
            for test in (
                inspect.iscoroutinefunction,
                inspect.isgeneratorfunction,
                inspect.isasyncgenfunction,
            )
        ):
            raise ConfigError(_FIELD, processor, f"plain functions; {name} is a coroutine or a generator")


def _error_class() -> type[CheckpointError]:
    """Return the class of errors that the processor's ``except`` clauses catch, which depends on the library that it imports."""
    module = sys.modules.get("amazon_kclpy.checkpoint_error")
    if module is None:
        return CheckpointError
    return type("CheckpointError", (CheckpointError, module.CheckpointError), {})
