"""`Relay`: puts records into other streams, as the handler of a worker or in a Lambda function."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TypeAlias, cast
from weakref import WeakKeyDictionary

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.consumer import Checkpointer, RecordBatch
from kinesis_sdk.producer import PendingRecord, Producer, Put

MAX_OUTPUTS = 10_000
"""Maximum outputs of an input record."""

MAX_STORED = 20_000
"""Maximum number of ids of stored outputs that are kept for the failed calls of one shard; they take about 6 MB."""

_LONGEST_NAME = 100
_LONGEST_ID = 256
"""Maximum characters of a ``dedup_id``."""

Outputs: TypeAlias = Put | Iterable[Put] | None
"""Outputs of one input record, as the function of a `Relay` returns them."""


class Relay:
    """Handler for a `Worker` that calls a function with each record and puts the outputs. Thread-safe. In a Lambda function, call `relay`.

    Each output has a ``dedup_id`` made of the relay's name, the id of the input record and the output's index. So the outputs of a record
    have the same ids at each delivery, and readers that use this SDK (workers, Spark and Lambda functions) deliver each output once. The
    position in the shard moves past a record only when Kinesis has acknowledged all outputs of the record.

    **The function must be deterministic**: for the same record, it must always return the same outputs in the same order, regardless of
    the time, the batch and the process. Otherwise, a record that is delivered again may lead to additional or missing outputs.

    Readers recognize an output that is put again within its ``dedup_window``, which is 300 s unless the `Put` sets it. `docs/relay.md`
    describes the behaviour after this window.

    Args:
        producer: Producer of the outputs, with ``idempotent=True`` and a ``dedup_namespace``. It is not closed.
        function: Called with each `UserRecord`. Returns a `Put`, an iterable of at most 10,000 of them (a generator function is fine), or
            None for no output. It may be a coroutine function that returns one of these. If it raises an error, ``on_handler_error``
            decides about the record.
        name: Name of the relay, 1 to 100 characters. Each relay with the same ``dedup_namespace`` needs its own name, and must
            keep it: under another name, the outputs of a record that is delivered again have different ids.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        producer: Producer,
        function: Callable[[UserRecord], Outputs | Awaitable[Outputs]],
        *,
        name: str,
    ) -> None:
        if not isinstance(producer, Producer):
            raise ConfigError("producer", producer, "a Producer")
        if producer.config.dedup_namespace is None:
            raise ConfigError(
                "producer",
                "a producer without a dedup_namespace",
                "Producer(ProducerConfig(idempotent=True, dedup_namespace=…)): readers recognize outputs by their ids in this namespace",
            )
        if not callable(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                "function",
                function,
                "a function of a UserRecord, or a coroutine function that returns a list",
            )
        called = getattr(function, "__call__", None)  # noqa: B004 - of an object
        self._awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        check_text("name", name, 1, _LONGEST_NAME)
        self._producer = producer
        self._function = function
        self._name = name
        self._lock = Lock()
        # Ids of stored outputs of calls in which another output failed. Kept for each acquisition of the shard: the next acquisition,
        # for example after a rewind, has to put them again.
        self._stored: WeakKeyDictionary[Checkpointer, dict[str, None]] = WeakKeyDictionary()

    def __call__(self, batch: RecordBatch) -> Awaitable[None] | None:
        """Put the outputs of a batch, and return when all of them are stored; for a coroutine function, return an awaitable.

        Raises:
            RecordFailedError: If an output was not stored.
            ValueError: If the function returned something that cannot be put.
            Exception: If the function or `Producer.put` raised it.
        """
        call = _Call(self, batch.checkpointer)
        if self._awaits:
            return call.run_async(batch.records)
        call.run(batch.records)
        return None

    def relay(self, records: Iterable[UserRecord]) -> None:
        """Put the outputs of records in a Lambda function, and return when all of them are stored.

        It raises the same errors as `__call__`.

        Args:
            records: The records, for example ``KinesisEvent(event).user_records``.

        Raises:
            ConfigError: If the function is a coroutine function.
        """
        if self._awaits:
            raise ConfigError("function", self._function, "a plain function, for relay()")
        _Call(self, None).run(records)

    def _stored_by(self, acquisition: Checkpointer) -> frozenset[str]:
        """Return the ids of outputs that earlier failed calls have stored."""
        with self._lock:
            return frozenset(self._stored.get(acquisition, ()))

    def _put(self, put: Put, dedup_id: str) -> PendingRecord:
        """Put an output under its id."""
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
        """Remember the outputs of a failed call that are stored.

        The next attempt does not put them again, because readers might not recognize them by then.
        """
        with self._lock:
            kept = self._stored.setdefault(acquisition, {})
            for dedup_id in done[: MAX_STORED - len(kept)]:
                kept[dedup_id] = None

    def _forget(self, acquisition: Checkpointer, skipped: Sequence[str]) -> None:
        """Forget outputs whose call has succeeded."""
        with self._lock:
            kept = self._stored.get(acquisition, {})
            for dedup_id in skipped:
                kept.pop(dedup_id, None)

    def _named(self, record: UserRecord, returned: Outputs) -> Iterator[tuple[str, Put]]:
        """Yield the outputs of a record with their ids."""
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


class _Call:
    """One call: the outputs without a final result, and the error that ended the call.

    Args:
        relay: The relay.
        acquisition: The shard's checkpointer; None in a Lambda function, where nothing is kept between calls.
    """

    def __init__(self, relay: Relay, acquisition: Checkpointer | None) -> None:
        self._relay = relay
        self._acquisition = acquisition
        self._stored = frozenset[str]() if acquisition is None else relay._stored_by(acquisition)
        self._skipped: list[str] = []
        self._under_way: list[tuple[str, PendingRecord]] = []

    def run(self, records: Iterable[UserRecord]) -> None:
        """Put the outputs of records, and wait for them."""
        error: BaseException | None = None
        try:
            for record in records:
                self._put(record, cast("Outputs", self._relay._function(record)))
        except Exception as raised:  # noqa: BLE001 - raised below, after the outputs that are under way
            error = raised
        self._finish(error)

    async def run_async(self, records: Iterable[UserRecord]) -> None:
        """As `run`. Puts may block until there is room, and waits for results until Kinesis responds, so both run in a thread."""
        error: BaseException | None = None
        try:
            for record in records:
                returned = await cast("Awaitable[Outputs]", self._relay._function(record))
                await asyncio.to_thread(self._put, record, returned)
        except Exception as raised:  # noqa: BLE001 - raised below, after the outputs that are under way
            error = raised
        await asyncio.to_thread(self._finish, error)

    def _put(self, record: UserRecord, returned: Outputs) -> None:
        for dedup_id, put in self._relay._named(record, returned):
            if dedup_id in self._stored:
                self._skipped.append(dedup_id)
            else:
                self._under_way.append((dedup_id, self._relay._put(put, dedup_id)))

    def _finish(self, error: BaseException | None) -> None:
        """Wait for the outputs without a final result; raise the first error."""
        done = []
        for dedup_id, future in reversed(self._under_way):
            failure = future.exception()
            if failure is None:
                done.append(dedup_id)
            else:
                error = failure  # of a record before the one whose outputs could not be put
        if error is not None:
            if self._acquisition is not None:
                self._relay._remember(self._acquisition, done)
            raise error
        if self._skipped and self._acquisition is not None:
            self._relay._forget(self._acquisition, self._skipped)
