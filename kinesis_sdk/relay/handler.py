"""The handler of a worker that puts records into other streams."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TypeAlias
from weakref import WeakKeyDictionary

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.consumer import Checkpointer, RecordBatch
from kinesis_sdk.producer import PendingRecord, Producer, Put

MAX_OUTPUTS = 10_000
"""Maximum outputs of an input record."""

MAX_STORED = 20_000
"""Maximum ids of stored outputs that are kept for the failed calls of one shard, about 6 MB."""

_LONGEST_NAME = 100
_LONGEST_ID = 256
"""Maximum characters of a ``dedup_id``."""

Outputs: TypeAlias = Put | Iterable[Put] | None
"""Outputs of one input record, as the function of a `Relay` returns them."""


class Relay:
    """Handler for a `Worker` that puts what a function returns for each record. Thread-safe.

    Each output has a ``dedup_id`` made of the relay's name, the id of the input record and the output's index. So however often a
    record is delivered, its outputs have the same ids, and readers of this SDK deliver each of them once: workers, Spark and
    Lambda functions. The position of the shard passes a record only when Kinesis has acknowledged all of its outputs.

    **The function must be deterministic**: for the same record, it must always return the same outputs in the same order, whatever the
    time, the batch and the process. Otherwise a record that is delivered again may add outputs or leave some out.

    Readers recognize an output that is put again within its ``dedup_window``, 300 s unless the `Put` says otherwise. See
    `docs/relay.md` for what happens later.

    Args:
        producer: Puts the outputs; with ``idempotent=True`` and a ``dedup_namespace``. It is not closed.
        function: Called with each `UserRecord`. Returns a `Put`, an iterable of them (a generator function is fine), at most 10,000, or None
            for no output. It is a plain function. If it raises, ``on_handler_error`` decides about the record.
        name: Name of the relay, 1 to 100 characters. Each relay with the same ``dedup_namespace`` needs its own name, and must
            keep it: under another name, the outputs of a record that is delivered again have other ids.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(self, producer: Producer, function: Callable[[UserRecord], Outputs], *, name: str) -> None:
        if not isinstance(producer, Producer):
            raise ConfigError("producer", producer, "a Producer")
        if producer.config.dedup_namespace is None:
            raise ConfigError(
                "producer",
                "a producer without a dedup_namespace",
                "Producer(ProducerConfig(idempotent=True, dedup_namespace=…)): readers recognize outputs by their ids in this namespace",
            )
        if (
            not callable(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise ConfigError("function", function, "a plain function of a UserRecord")
        check_text("name", name, 1, _LONGEST_NAME)
        self._producer = producer
        self._function = function
        self._name = name
        self._lock = Lock()
        # Ids of stored outputs of calls in which another output failed. Kept by acquisition of the shard: the next acquisition,
        # for example after a rewind, has to put them again.
        self._stored: WeakKeyDictionary[Checkpointer, dict[str, None]] = WeakKeyDictionary()

    def __call__(self, batch: RecordBatch) -> None:
        """Put the outputs of a batch, and return when all of them are stored.

        Raises:
            RecordFailedError: If an output was not stored.
            ValueError: If the function returned something that cannot be put.
            Exception: What the function raised, or `Producer.put`.
        """
        with self._lock:
            stored = frozenset(self._stored.get(batch.checkpointer, ()))
        skipped: list[str] = []
        under_way: list[tuple[str, PendingRecord]] = []
        error: BaseException | None = None
        try:
            for record in batch.records:
                for dedup_id, put in self._outputs(record):
                    if dedup_id in stored:
                        skipped.append(dedup_id)
                    else:
                        under_way.append((dedup_id, self._put(put, dedup_id)))
        except Exception as raised:  # noqa: BLE001 - raised below, after the outputs that are under way
            error = raised
        done = []
        for dedup_id, future in reversed(under_way):
            failure = future.exception()
            if failure is None:
                done.append(dedup_id)
            else:
                error = failure  # the oldest error counts
        if error is not None:
            self._remember(batch.checkpointer, done)
            raise error
        if skipped:
            self._forget(batch.checkpointer, skipped)

    def _put(self, put: Put, dedup_id: str) -> PendingRecord:
        if put.dedup_id is not None:
            raise ValueError("a Relay gives each output its dedup_id: return a Put without one")
        try:
            return self._producer.put(
                put.stream,
                put.partition_key,
                put.data,
                put.explicit_hash_key,
                dedup_id=dedup_id,
                dedup_window=put.dedup_window,
                headers=put.headers,
            )
        except InvalidRecordError as error:
            # Not an error of this package: a ValueError is about the input record, so `BisectBatch` may set it aside.
            raise ValueError(f"output {dedup_id} cannot be put: {error}") from error

    def _remember(self, acquisition: Checkpointer, done: Sequence[str]) -> None:
        """Note that outputs of a failed call are stored.

        They are not put again with the next attempt, which may be so late that readers would no longer recognize them.
        """
        with self._lock:
            kept = self._stored.setdefault(acquisition, {})
            for dedup_id in done[: MAX_STORED - len(kept)]:
                kept[dedup_id] = None

    def _forget(self, acquisition: Checkpointer, skipped: Sequence[str]) -> None:
        with self._lock:
            kept = self._stored.get(acquisition, {})
            for dedup_id in skipped:
                kept.pop(dedup_id, None)

    def _outputs(self, record: UserRecord) -> Iterator[tuple[str, Put]]:
        """Yield the outputs of a record with their ids."""
        returned = self._function(record)
        if returned is None:
            return
        # A `Put` is a tuple, so an iterable, too.
        for index, put in enumerate((returned,) if isinstance(returned, Put) else returned):
            if not isinstance(put, Put):
                raise TypeError(f"a Relay's function has to return Put objects, not {type(put).__name__}")
            if index >= MAX_OUTPUTS:
                raise ValueError(f"record {record.id} has more than {MAX_OUTPUTS:,} outputs")
            yield self._id(record, index), put

    def _id(self, record: UserRecord, index: int) -> str:
        found = f"{self._name}/{record.id}/{index}"
        return found if len(found) <= _LONGEST_ID else hashlib.sha256(found.encode()).hexdigest()
