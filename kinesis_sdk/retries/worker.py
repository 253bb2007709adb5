"""`RetryWorker`: delivers the due rows of a `RetryTable`.

A step is a function that is called with a connection. If the handler is a coroutine function, the step runs in a greenlet of the worker's
own event loop, as SQLAlchemy's asyncio extension runs its synchronous engine, and can wait there for the coroutine.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast

from kinesis_sdk.common.error_policy import (
    DEFAULT_PAUSES,
    Failure,
    HandlerErrorPolicy,
    PoisonRecord,
    Retry,
    SetAside,
    Stop,
    pause_of,
)
from kinesis_sdk.common.errors import ConfigError, HandlerError
from kinesis_sdk.common.interceptors import Around, ConsumerInterceptor, checked_interceptors
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.serialization import Deserializer, check_deserializer, decoding_record_type
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_seconds
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.consumer.sql import is_same_database, open_async_engine
from kinesis_sdk.retries.table import RetryTable, Row, is_coroutine_function
from kinesis_sdk.retries.tiers import RetryTiers

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

_LOGGER = FieldLogger(logging.getLogger(__name__))

_LONGEST_ROW = 10_000
"""Maximum number of consecutive failed records in a `Failure`, as in a worker."""


class _NoCheckpoints:
    """Replaces the checkpointer, because the row is deleted in the transaction of the effects."""

    def checkpoint(self, *_position: object, **_more: object) -> None:
        """Do nothing."""


class _Runs(Protocol):
    """Runner of steps."""

    def step(self, work: Callable[[Connection, Any], float]) -> float:
        """Call ``work`` in a transaction, with its connection and with the handler's ``transaction``."""

    def wait(self, result: object, what: str) -> None:
        """Wait for the result of a function that ``work`` called."""

    def close(self) -> None:
        """Release the connections and the event loop."""


class _OnThread:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def step(self, work: Callable[[Connection, Any], float]) -> float:
        with self._engine.begin() as connection:
            return work(connection, connection)

    def wait(self, result: object, what: str) -> None:
        if hasattr(result, "__await__"):
            cast("Any", result).close()
            raise HandlerError(f"the {what} of this RetryWorker has to be a plain function: {_COROUTINES}")

    def close(self) -> None:
        pass


class _OnLoop:
    """Runs steps on an event loop, which belongs to the thread that calls `step`."""

    def __init__(self, engine: AsyncEngine, *, owns_engine: bool) -> None:
        self._engine = engine
        self._owns_engine = owns_engine
        self._loop: asyncio.AbstractEventLoop | None = None

    def step(self, work: Callable[[Connection, Any], float]) -> float:
        async def run() -> float:
            async with self._engine.begin() as transaction:
                return await transaction.run_sync(work, transaction)

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(run())

    def wait(self, result: object, what: str) -> None:  # noqa: ARG002 - of the interface
        from sqlalchemy.util.concurrency import await_only

        if hasattr(result, "__await__"):
            await_only(cast("Awaitable[Any]", result))

    def close(self) -> None:
        if self._loop is None:
            return
        if self._owns_engine:
            self._loop.run_until_complete(self._engine.dispose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._loop = None


_COROUTINES = "for coroutine functions, give database="


class RetryWorker:
    """Delivers the due records of a `RetryTable` to the handler of the worker, one record in each transaction.

    ``batch.transaction`` is a connection to the database of the table. The handler's writes to it and the removal of the row are committed
    together when the handler returns. If the handler raises an error or the process dies, neither is stored. Several processes may run a
    `RetryWorker` on one table.

    Args:
        table: The table.
        tiers: The policy that the worker uses, with this table.
        handler: The handler of the worker: a function of a batch. Not ``table.in_order(handler)``.
        database: If ``handler`` is a coroutine function: the table's database with an asynchronous driver, as for `AsyncSqlSink`. Then
            ``batch.transaction`` is a `sqlalchemy.ext.asyncio.AsyncConnection`, coroutines run on an event loop of this worker, and the
            dead-letter hook may also be a coroutine function. An engine that is passed in must not be used elsewhere. None for a plain
            function.
        policy: Policy for failures, for example a `CircuitBreaker` around ``tiers``. None uses ``tiers``.
        poll_interval: Maximum seconds between two reads of the table, 0.01 to 3600.
        interceptors: As for `Worker`; they are entered around each call of the handler.
        deserializer: As in `ConsumerConfig`: decodes ``record.value``.
        rng: Source of jitter.

    Attributes:
        error: Error that ended `run` before `stop` was called; None if no error did.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        table: RetryTable,
        tiers: RetryTiers,
        handler: Callable[[RecordBatch], Awaitable[None] | None],
        *,
        database: str | AsyncEngine | None = None,
        policy: HandlerErrorPolicy | None = None,
        poll_interval: float = 1.0,
        interceptors: Sequence[ConsumerInterceptor] = (),
        deserializer: Deserializer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not callable(handler) or isinstance(handler, type) or not _takes_a_batch(handler):
            raise ConfigError("handler", handler, "a function of a RecordBatch")
        check_seconds("poll_interval", poll_interval, 0.01, 3600)
        check_deserializer("deserializer", deserializer)
        if is_coroutine_function(handler) != (database is not None):
            raise ConfigError(
                "database",
                None if database is None else "given",
                "the table's database with an asynchronous driver for a coroutine function, and None for a plain one",
            )
        if database is None and is_coroutine_function(tiers.dead_letter):
            raise ConfigError("tiers.dead_letter", tiers.dead_letter, "a plain function, as the handler is")
        self._runs: _Runs = _OnThread(table.engine)
        if database is not None:
            engine = open_async_engine("database", database)
            if not is_same_database(table.engine, engine.sync_engine):
                raise ConfigError("database", engine.url, "the database of the table")
            self._runs = _OnLoop(engine, owns_engine=isinstance(database, str))
        self._table = table
        self._tiers = tiers
        self._handler = handler
        self._interceptors = checked_interceptors(interceptors)
        self._deserializer = deserializer
        self._policy: HandlerErrorPolicy = policy or tiers
        self._poll_interval = poll_interval
        self._rng = rng or random.Random()
        # Class of the last error, the rows that failed with it one after another, and the pauses of an open circuit for the row being
        # tried.
        self._row_of: type[BaseException] | None = None
        self._row: set[int] = set()
        self._pauses = 0
        self._probed: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def step(self) -> float:
        """Deliver one record that is due; return the seconds until the next step.

        Raises:
            HandlerError: If the policy stops the worker.
            KinesisSdkError: If the database cannot be used; the step then stored nothing.
        """
        self._table.tables.ensure()
        self._succeeded = False
        seconds: float = self._table.tables.guarded(lambda: self._runs.step(self._step))
        if self._succeeded:  # and is committed
            self._row.clear()
            self._pauses = 0
        return seconds

    def _step(self, connection: Connection, transaction: Any) -> float:
        table = self._table
        table.lock_writers(connection)
        row = table.next_due(connection)
        if row is None:
            wait = table.seconds_to_next(connection)
            # A row that is due and was not returned is locked, or waits for an earlier row of its key.
            return self._poll_interval if wait is None or wait <= 0 else min(self._poll_interval, wait)
        savepoint = connection.begin_nested()
        try:
            self._call(row, transaction)
        except Exception as error:
            savepoint.rollback()
            outage = self._table.transient(error)
            if outage is not None:
                raise outage from error  # the database failed, and not the handler
            return self._failed(row, connection, transaction, error)
        savepoint.commit()
        table.finish(connection, row)
        self._succeeded = True
        return 0.0

    def _call(self, row: Row, transaction: Any) -> None:
        record = row.record
        if self._deserializer is not None:
            record = decoding_record_type(self._deserializer, row.stream, row.shard_id)(*record)
        batch = RecordBatch(
            records=[record],
            shard_id=row.shard_id,
            stream=StreamId(row.stream),
            checkpointer=cast("Any", _NoCheckpoints()),
            transaction=transaction,
        )
        with Around(self._interceptors, batch) as seen:
            self._runs.wait(self._handler(seen), "handler")

    def _failed(self, row: Row, connection: Connection, transaction: Any, error: Exception) -> float:
        kind = type(error)
        if self._row_of is not kind:
            self._row_of = kind
            self._row.clear()
        if len(self._row) < _LONGEST_ROW:
            self._row.add(row.place)
        if self._probed != row.place:
            self._probed, self._pauses = row.place, 0
        attempts = row.attempts + self._pauses + 1  # in the table, they do not grow while a circuit is open
        decision = self._policy.decide(
            Failure(error=error, size=1, attempts=attempts, in_a_row=len(self._row))
        )
        if isinstance(decision, Stop):
            raise HandlerError(f"record {row.record.id}: the handler failed: {kind.__name__}") from error
        if isinstance(decision, SetAside):
            self._set_aside(row, connection, transaction, error, attempts)
            return 0.0
        is_open = isinstance(decision, Retry) and decision.circuit > 0
        if isinstance(decision, Retry) and is_open:
            self._pauses += 1
            decision = replace(decision, circuit=self._pauses)
        pause = pause_of(
            decision if isinstance(decision, Retry) else Retry(DEFAULT_PAUSES), attempts, self._rng
        )
        _LOGGER.warning(
            "record %s: the handler failed in tier %d (%s), %s in %.1f s",
            row.record.id,
            row.tier,
            kind.__name__,
            "circuit open, trying again" if is_open else "trying again",
            pause,
            exc_info=error,
        )
        if is_open:
            return pause  # the service is down, so no other row is tried meanwhile
        self._table.try_again(connection, row, pause)
        return 0.0

    def _set_aside(
        self, row: Row, connection: Connection, transaction: Any, error: Exception, attempts: int
    ) -> None:
        poison = PoisonRecord(
            record=row.record,
            error=error,
            attempts=attempts,
            shard_id=row.shard_id,
            stream=StreamId(row.stream),
            transaction=transaction,
        )
        tier = row.tier + 1 if row.has_failed else 0
        if tier < len(self._tiers.delays):
            delay = self._table.move(connection, row, poison, tier)
            _LOGGER.warning(
                "record %s: delivered again in %.0f s (tier %d, %s)",
                row.record.id,
                delay,
                tier,
                type(error).__name__,
                exc_info=error,
            )
            return
        savepoint = connection.begin_nested()
        try:
            self._runs.wait(self._tiers.dead_letter(poison), "dead_letter")
        except Exception as hook_error:
            savepoint.rollback()
            pause = DEFAULT_PAUSES.pause(attempts, self._rng)
            _LOGGER.exception(
                "record %s: the dead-letter hook failed (%s), trying again in %.1f s",
                row.record.id,
                type(hook_error).__name__,
                pause,
            )
            self._table.try_again(connection, row, pause)
            return
        savepoint.commit()
        self._table.finish(connection, row)
        _LOGGER.error(
            "record %s: passed to the dead-letter hook after the last tier (%s)",
            row.record.id,
            type(error).__name__,
            exc_info=error,
        )

    def run(self) -> None:
        """Deliver records until `stop`, on this thread. Errors of the database are logged, and the step is tried again.

        Raises:
            HandlerError: If the policy stops the worker.
        """
        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    wait = self.step()
                    failures = 0
                except HandlerError:
                    raise
                except Exception:
                    failures += 1
                    wait = DEFAULT_PAUSES.pause(failures, self._rng)
                    _LOGGER.exception("a step of the retry table failed, trying again in %.1f s", wait)
                if wait:
                    self._stop.wait(wait)
        finally:
            self._runs.close()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error
            _LOGGER.exception("the retry worker ended")

    def start(self) -> None:
        """Deliver records on a separate thread, until `stop`.

        Raises:
            ConfigError: If the worker was started already.
        """
        if self._thread is not None:
            raise ConfigError("start", True, "one start", problem="a RetryWorker can be started only once")
        self._thread = threading.Thread(target=self._run, name="kinesis-retries", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop after the current record. Callable from any thread and from a signal handler.

        Args:
            timeout: Maximum seconds to wait for the end of the thread that `start` made; None waits for it.

        Raises:
            HandlerError: If the policy had stopped the worker.
        """
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> RetryWorker:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


def _takes_a_batch(handler: Callable[..., object]) -> bool:
    """Return whether a callable has one parameter; a factory of handlers has none."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some builtins have no signature; they take arguments
        return True
    try:
        signature.bind(object())
    except TypeError:
        return False
    return True
