"""Inputs of the callbacks of a processor, and the callback of each message."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from kinesis_sdk.kclpy.checkpoint_error import CheckpointError


class CheckpointerLike(Protocol):
    """Interface that the checkpointers of a child, of a processor in the worker's process, and of a test share."""

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Store a checkpoint; raises `CheckpointError` if it is not stored."""


class _NoCheckpointer:
    """The checkpointer of a message that was not dispatched."""

    def checkpoint(
        self,
        sequence_number: str | None = None,  # noqa: ARG002
        sub_sequence_number: int | None = None,  # noqa: ARG002
    ) -> None:
        raise CheckpointError("InvalidStateException")


NO_CHECKPOINTER = _NoCheckpointer()


class MessageDispatcher:
    """A message that calls a processor.

    Args:
        json_dict: The message.
    """

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._action: str = json_dict["action"]
        self._checkpointer: CheckpointerLike = NO_CHECKPOINTER

    @property
    def action(self) -> str:
        """Name of the message, for example ``processRecords``."""
        return self._action

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:
        """Call the callback of this message.

        Args:
            checkpointer: Passed on to callbacks that may checkpoint.
            record_processor: A processor of version 3.
        """
        raise NotImplementedError


class InitializeInput(MessageDispatcher):
    """The shard for which a processor is started."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        super().__init__(json_dict)
        self._shard_id: str = json_dict["shardId"]
        self._sequence_number: str | None = json_dict["sequenceNumber"]
        self._sub_sequence_number: int | None = json_dict["subSequenceNumber"]

    @property
    def shard_id(self) -> str:
        """Id of the shard."""
        return self._shard_id

    @property
    def sequence_number(self) -> str | None:
        """The checkpoint: a sequence number, ``TRIM_HORIZON``, ``LATEST`` or ``AT_TIMESTAMP``; None if there is none."""
        return self._sequence_number

    @property
    def sub_sequence_number(self) -> int | None:
        """Index of the last processed record inside its aggregate, from 0; None without a sequence number."""
        return self._sub_sequence_number

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:  # noqa: ARG002
        """Call ``initialize``."""
        record_processor.initialize(self)


class Record:
    """One record of a batch, in the form that its producer put.

    Args:
        json_dict: The record in the daemon's message.
    """

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._sequence_number: str = json_dict["sequenceNumber"]
        self._sub_sequence_number: int = json_dict["subSequenceNumber"]
        self._timestamp_millis = int(json_dict["approximateArrivalTimestamp"])
        self._partition_key: str = json_dict["partitionKey"]
        self._data: str = json_dict["data"]
        self._json_dict = json_dict

    @property
    def binary_data(self) -> bytes:
        """The payload; decoded at each access."""
        return base64.b64decode(self._data)

    @property
    def data(self) -> str:
        """The payload in base64."""
        return self._data

    @property
    def partition_key(self) -> str:
        """Partition key that the producer gave."""
        return self._partition_key

    @property
    def sequence_number(self) -> str:
        """Sequence number; all records of an aggregate have the same number."""
        return self._sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """Index inside the aggregate, from 0; 0 for a record that was not aggregated."""
        return self._sub_sequence_number

    @property
    def timestamp_millis(self) -> int:
        """Time at which Kinesis accepted the record, in milliseconds since 1970; 0 if unknown."""
        return self._timestamp_millis

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """Time at which Kinesis accepted the record, as local time without a time zone."""
        return datetime.fromtimestamp(self.timestamp_millis / 1000.0)  # noqa: DTZ006 - as amazon_kclpy returns it

    def get(self, field: str) -> Any:
        """Return a field by its name in the message, for example ``sequenceNumber``.

        Raises:
            KeyError: If there is no such field.
        """
        return self._json_dict[field]

    def __getitem__(self, field: str) -> Any:
        return self.get(field)


class ProcessRecordsInput(MessageDispatcher):
    """A batch: the next records of the shard, in order."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        super().__init__(json_dict)
        self._records: list[Record] = [
            record if isinstance(record, Record) else Record(record) for record in json_dict["records"]
        ]
        self._millis_behind_latest: int | None = json_dict["millisBehindLatest"]

    @property
    def records(self) -> list[Record]:
        """The records."""
        return self._records

    @property
    def millis_behind_latest(self) -> int | None:
        """Milliseconds between the end of this batch's response and the tip of the shard; None if unknown."""
        return self._millis_behind_latest

    @property
    def checkpointer(self) -> CheckpointerLike:
        """Stores checkpoints up to the last record of this batch; raises an error until the message is dispatched."""
        return self._checkpointer

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:
        """Call ``process_records``."""
        self._checkpointer = checkpointer
        record_processor.process_records(self)


class LeaseLostInput(MessageDispatcher):
    """The lease was lost; this message has no fields."""

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:  # noqa: ARG002
        """Call ``lease_lost``."""
        record_processor.lease_lost(self)


class ShardEndedInput(MessageDispatcher):
    """All records of a closed shard were delivered."""

    @property
    def checkpointer(self) -> CheckpointerLike:
        """Stores the end of the shard, which the callback must do; raises an error until the message is dispatched."""
        return self._checkpointer

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:
        """Call ``shard_ended``."""
        self._checkpointer = checkpointer
        record_processor.shard_ended(self)


class ShutdownRequestedInput(MessageDispatcher):
    """The worker stops or hands off the shard; this is the last chance to checkpoint."""

    @property
    def checkpointer(self) -> CheckpointerLike:
        """Stores checkpoints up to the last delivered record; raises an error until the message is dispatched."""
        return self._checkpointer

    def dispatch(self, checkpointer: CheckpointerLike, record_processor: Any) -> None:
        """Call ``shutdown_requested``."""
        self._checkpointer = checkpointer
        record_processor.shutdown_requested(self)


class LeaseLostCheckpointer:
    """The checkpointer of processors of version 1 and 2 in ``shutdown`` with the reason ``ZOMBIE``."""

    def checkpoint(
        self,
        sequence_number: str | None = None,  # noqa: ARG002
        sub_sequence_number: int | None = None,  # noqa: ARG002
    ) -> None:
        """Raise `CheckpointError`."""
        raise CheckpointError("Checkpointing is not allowed when the lease is lost")


class ShutdownInput:
    """The end of a shard's processing for processors of version 1 and 2.

    Args:
        reason: ``TERMINATE`` at the end of the shard, which must be checkpointed; ``ZOMBIE`` for a lost lease.
        checkpointer: Stores the end of the shard; raises an error for ``ZOMBIE``.
    """

    def __init__(self, reason: str, checkpointer: CheckpointerLike) -> None:
        self._reason = reason
        self._checkpointer = checkpointer

    @staticmethod
    def zombie() -> ShutdownInput:
        """Return the input for a lost lease."""
        return ShutdownInput("ZOMBIE", LeaseLostCheckpointer())

    @staticmethod
    def terminate(checkpointer: CheckpointerLike) -> ShutdownInput:
        """Return the input for the end of the shard."""
        return ShutdownInput("TERMINATE", checkpointer)

    @property
    def reason(self) -> str:
        """``TERMINATE`` or ``ZOMBIE``."""
        return self._reason

    @property
    def checkpointer(self) -> CheckpointerLike:
        """Stores the end of the shard; raises an error for ``ZOMBIE``."""
        return self._checkpointer

    @property
    def action(self) -> str:
        """Return ``shutdown``."""
        return "shutdown"


class CheckpointInput:
    """The daemon's answer to a checkpoint.

    Args:
        json_dict: The message.
    """

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._sequence_number: str | None = json_dict["sequenceNumber"]
        self._sub_sequence_number: int | None = json_dict["subSequenceNumber"]
        self._error: str | None = json_dict.get("error")

    @property
    def sequence_number(self) -> str | None:
        """Sequence number of the request."""
        return self._sequence_number

    @property
    def sub_sequence_number(self) -> int | None:
        """Sub-sequence number of the request."""
        return self._sub_sequence_number

    @property
    def error(self) -> str | None:
        """Name of the exception; None if the checkpoint was stored."""
        return self._error


Message = MessageDispatcher | CheckpointInput | Record
