"""`kinesis_handler`: a Lambda handler from a function of one user record.

Lambda reacts to the results of a handler as follows:

=============================================  =======================================================================
result                                         Lambda
=============================================  =======================================================================
``batchItemFailures`` is empty                 continues after the batch
``batchItemFailures`` names a Kinesis record   continues at this record, if the mapping reports batch item failures;
                                               **otherwise takes the whole batch as processed**
an error                                       delivers the batch again; in two halves if the mapping bisects batches
=============================================  =======================================================================

Partial results alone do not isolate a poison record: once it is the first of its batch, every retry begins with it, and when
the retries end, Lambda discards it with all later records of the batch. An error isolates it, because Lambda halves the
batch, which does not count as a retry, until the record is alone. So a failure after the first Kinesis record becomes a partial result,
which repeats no processed record. A failure in the first Kinesis record becomes an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, overload

from kinesis_sdk.common.error_policy import (
    BisectBatch,
    DeadLetterHook,
    Failure,
    PoisonRecord,
    Retry,
    SetAside,
)
from kinesis_sdk.common.errors import ConfigError, InvalidEventError
from kinesis_sdk.common.interceptors import Around, ConsumerInterceptor, OneRecord, checked_interceptors
from kinesis_sdk.common.log_fields import loggable
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_bool, check_int, check_seconds
from kinesis_sdk.lambda_events.copies import LOOK_UP_BYTES
from kinesis_sdk.lambda_events.events import Delivery, KinesisEvent, OpenedEvent
from kinesis_sdk.lambda_events.progress import Progress

if TYPE_CHECKING:
    from kinesis_sdk.common.aws import KinesisClient
    from kinesis_sdk.common.metrics import Metrics
    from kinesis_sdk.lambda_events.measured import EventMetrics

_LOGGER = logging.getLogger("kinesis_sdk.lambda_events")

_SHARD_BYTES_PER_SECOND = 2_000_000
"""Bytes per second that a shard delivers to all its readers together."""

RecordFunction = Callable[[UserRecord], None]
LambdaHandler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


@overload
def kinesis_handler(function: RecordFunction, /) -> LambdaHandler: ...
@overload
def kinesis_handler(
    *,
    report_batch_item_failures: bool = False,
    progress: Progress | None = None,
    dead_letter: Callable[[UserRecord, Exception], None] | None = None,
    attempts: int = 1,
    retry_only: tuple[type[Exception], ...] = (),
    time_reserve: float = 0.0,
    look_up: KinesisClient | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
    recognize: bool = True,
    interceptors: Sequence[ConsumerInterceptor] = (),
    metrics: Metrics | None = None,
) -> Callable[[RecordFunction], LambdaHandler]: ...
def kinesis_handler(
    function: RecordFunction | None = None,
    /,
    *,
    report_batch_item_failures: bool = False,
    progress: Progress | None = None,
    dead_letter: Callable[[UserRecord, Exception], None] | None = None,
    attempts: int = 1,
    retry_only: tuple[type[Exception], ...] = (),
    time_reserve: float = 0.0,
    look_up: KinesisClient | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
    recognize: bool = True,
    interceptors: Sequence[ConsumerInterceptor] = (),
    metrics: Metrics | None = None,
) -> LambdaHandler | Callable[[RecordFunction], LambdaHandler]:
    """Make a Lambda handler for Kinesis events from a function of one user record.

    The function is called with each user record, in order; aggregates are opened. When it returns, the record is processed.
    When it raises, no later record of the event is processed:

    - In the first Kinesis record of the event, or without ``report_batch_item_failures``, the handler raises the same error.
      Lambda delivers the batch again, halved if the mapping has ``BisectBatchOnFunctionError``.
    - Otherwise the response names the Kinesis record, and Lambda delivers it and all later records again.

    Either way the user records before the failed one in the same aggregate are delivered again, so the function should be idempotent;
    ``progress`` makes repetitions rare. The function is available as ``handler.__wrapped__``.

    Args:
        function: The function of one record; its result is ignored.
        report_batch_item_failures: Whether the event source mapping has ``ReportBatchItemFailures`` among its
            ``FunctionResponseTypes``. **If it is True and the mapping lacks this type, Lambda treats failed records as processed.**
        progress: Memory of processed records: if they are delivered again, they are skipped.
        dead_letter: Called with a record whose function failed, and the error. When it returns, the record counts as processed;
            if it raises, the record has failed with that error. Without it, one poison record takes its whole aggregate to the
            mapping's on-failure destination, because Lambda does not distinguish user records.
        attempts: Calls of the function for a record before ``dead_letter``, without a pause; 1 to 100.
        retry_only: Exception classes that no record causes, for example of a database that is down. They never lead
            to the dead letter. Errors of this package count as such exceptions, except those that `BisectBatch` lists.
        time_reserve: Seconds before the function's timeout at which no further record is begun; the rest of the event is then delivered
            again, as after a failure. The first record of an event is always processed. 0 to 900; with 0, the handler continues until
            Lambda ends the process, and the whole batch is repeated.
        look_up: boto3 client of Kinesis that looks for earlier copies of records from idempotent producers, see
            `KinesisEvent`. If its calls keep failing, the handler raises their error, and Lambda delivers the batch again.
        look_up_bytes: Maximum bytes that these calls read for an event, 0 to 1 TiB. Together, the calls take at most a quarter of the time
            that remains before ``time_reserve``, and read no more than a shard delivers in this time. Beyond these bounds, possible
            repetitions are delivered.
        recognize: Whether repetitions of idempotent producers are left out, see `KinesisEvent`.
        interceptors: Called around each call of the function, in order, with a batch of its one record; see
            `kinesis_sdk.ConsumerInterceptor`.
        metrics: Sink for the metrics that a worker records for its handler, such as `kinesis_sdk.metrics.EmbeddedMetrics`. The name of the
            application is the name of the function. If the sink has a method ``flush``, it is called after each event, even if the event
            failed.

    Raises:
        ConfigError: If an argument has the wrong type or is out of range.
    """
    check_int("look_up_bytes", look_up_bytes, 0, 1 << 40)
    check_bool("recognize", recognize)
    if look_up is not None and not hasattr(look_up, "get_shard_iterator"):
        raise ConfigError("look_up", type(look_up).__name__, "a boto3 client of Kinesis")
    if metrics is not None and not callable(getattr(metrics, "add", None)):
        raise ConfigError("metrics", metrics, "a metrics sink, for example EmbeddedMetrics(namespace)")
    measured = None if metrics is None else _measured(metrics)
    if measured is not None and dead_letter is not None:
        dead_letter = measured.counted_letters(dead_letter)
    policy = make_policy(
        report_batch_item_failures=report_batch_item_failures,
        progress=progress,
        dead_letter=dead_letter,
        attempts=attempts,
        retry_only=retry_only,
        time_reserve=time_reserve,
    )
    around = checked_interceptors(interceptors)

    def decorate(function: RecordFunction) -> LambdaHandler:
        if not callable(function):
            raise ConfigError("function", function, "a function of one record")
        counted = function if measured is None else measured.counted(function)

        @wraps(function)
        def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
            seconds = None if look_up is None else _affordable_seconds(context, time_reserve)
            limit = look_up_bytes
            if seconds is not None:
                limit = min(limit, int(seconds * _SHARD_BYTES_PER_SECOND))
            opened = KinesisEvent(
                _without_window(event),
                look_up=look_up,
                look_up_bytes=limit,
                look_up_seconds=seconds,
                recognize=recognize,
            )
            called = _intercepted(counted, around, opened) if around else counted
            if measured is None:
                return process_event(opened, context, called, policy)
            with measured.event(context, _stream_of(opened).name, opened.shard_id):
                return process_event(opened, context, called, policy)

        return handler

    return decorate if function is None else decorate(function)


def _measured(metrics: Metrics) -> EventMetrics:
    # Imported here, so that the cold start of a function without metrics does not pay for it.
    from kinesis_sdk.lambda_events.measured import EventMetrics

    return EventMetrics(metrics)


def make_policy(
    *,
    report_batch_item_failures: bool,
    dead_letter: Callable[[UserRecord, Exception], None] | None,
    attempts: int,
    retry_only: tuple[type[Exception], ...],
    time_reserve: float,
    progress: Progress | None = None,
) -> Policy:
    """Check the arguments that `kinesis_handler` and `change_handler` share; raise ConfigError for a value out of range."""
    check_bool("report_batch_item_failures", report_batch_item_failures)
    check_int("attempts", attempts, 1, 100)
    check_seconds("time_reserve", time_reserve, 0, 900)
    if attempts > 1 and dead_letter is None:
        raise ConfigError("attempts", attempts, "1 without dead_letter: Lambda repeats failed records")
    errors = None
    if dead_letter is not None:
        errors = BisectBatch(dead_letter=_hook(dead_letter), attempts=attempts, retry_only=retry_only)
    return Policy(report_batch_item_failures, progress, errors, time_reserve)


def _intercepted(
    function: RecordFunction, interceptors: Sequence[ConsumerInterceptor], event: KinesisEvent
) -> RecordFunction:
    """Return the function wrapped in the interceptors, for one event."""
    stream, shard_id = _stream_of(event), event.shard_id

    def call(record: UserRecord) -> None:
        with Around(interceptors, OneRecord([record], stream, shard_id)) as batch:
            return function(batch.records[0])

    return call


def _stream_of(event: OpenedEvent) -> StreamId:
    arn = event.stream_arn.partition("/consumer/")[0]
    return StreamId.of_table_stream(arn) or StreamId(arn.partition(":stream/")[2], arn or None)


def _affordable_seconds(context: Any, time_reserve: float) -> float | None:
    """Return a quarter of the remaining time, for look-ups; None if it is unknown."""
    if context is None or not hasattr(context, "get_remaining_time_in_millis"):
        return None
    left: float = context.get_remaining_time_in_millis() / 1000 - time_reserve
    return min(900.0, max(0.0, left / 4))


def _hook(dead_letter: Callable[[UserRecord, Exception], None]) -> DeadLetterHook:
    """Return the user's dead-letter function as a hook of a policy."""

    def take(poison: PoisonRecord) -> None:
        assert isinstance(poison.error, Exception)
        return dead_letter(poison.record, poison.error)

    return take


class Policy:
    """The arguments of a handler, and its decisions about single records."""

    def __init__(
        self,
        report: bool,
        progress: Progress | None,
        errors: BisectBatch | None,
        time_reserve: float,
    ) -> None:
        self.report = report
        self.progress = progress
        self.time_reserve = time_reserve
        self._errors = errors

    def process(self, function: RecordFunction, record: UserRecord, event: OpenedEvent) -> None:
        """Process one record of an event; return only if it was processed or became a dead letter."""
        attempts = 0
        while True:
            attempts += 1
            try:
                outcome: object = function(record)  # type: ignore[func-returns-value]  # a coroutine, by mistake
            except Exception as error:
                if self._errors is None:
                    raise
                decision = self._errors.decide(
                    Failure(error=error, size=1, attempts=attempts, in_a_row=attempts)
                )
                if isinstance(decision, SetAside):
                    _LOGGER.warning(
                        "%s failed %d times and is a dead letter", _place(record), attempts, exc_info=True
                    )
                    poison = PoisonRecord(
                        record=record,
                        error=error,
                        attempts=attempts,
                        shard_id=event.shard_id,
                        stream=_stream_of(event),
                    )
                    _reject_unfinished_work(decision.take(poison))
                    return
                # A record that is not retried at once is delivered again by Lambda, after a pause of its own.
                if not (isinstance(decision, Retry) and decision.together):
                    raise
            else:
                _reject_unfinished_work(outcome)
                return


def _reject_unfinished_work(outcome: object) -> None:
    """Raise an error for a coroutine or generator, which has done nothing yet."""
    if any(hasattr(outcome, name) for name in ("__await__", "__next__", "__anext__")):
        if hasattr(outcome, "close"):
            outcome.close()  # otherwise Python warns that the coroutine was never awaited
        raise TypeError(
            "kinesis_handler needs a function that does its work when it is called, not a coroutine"
        )


class _OutOfTimeError(TimeoutError):
    """The function's timeout is near."""


def process_event(
    event: OpenedEvent, context: Any, function: RecordFunction, policy: Policy
) -> dict[str, Any]:
    """Call the function with each record of an event. Return the response, or raise the error of the function."""
    for position, delivery in enumerate(event):
        try:
            _process_one(delivery, context, function, policy, event, first=position == 0)
        except Exception as error:
            _log(error, position, event, delivery)
            if position == 0 or not policy.report:
                raise
            return event.failure_at(delivery.carrier)
    return event.success()


def _process_one(
    delivery: Delivery,
    context: Any,
    function: RecordFunction,
    policy: Policy,
    event: OpenedEvent,
    *,
    first: bool,
) -> None:
    """Process the user records of one Kinesis record that were not processed before."""
    # Progress counts positions in the aggregate, not records: two invocations may drop different repetitions, for example if
    # only the second one was allowed to look them up. A count of records would then skip records.
    progress, records = policy.progress, delivery.user_records
    before = done = 0 if progress is None else max(progress.load(delivery.key), 0)
    try:
        for record in (
            records if not before else [one for one in records if one.sub_sequence_number >= before]
        ):
            if not (first and done == before) and _is_late(context, policy.time_reserve):
                raise _OutOfTimeError(
                    f"less than {policy.time_reserve:g} s are left of the function's timeout"
                )
            policy.process(function, record, event)
            done = record.sub_sequence_number + 1
    finally:
        if progress is not None and done > before:
            _store(progress, delivery.key, done)


def _store(progress: Progress, key: str, done: int) -> None:
    try:
        progress.store(key, done)
    except Exception:
        # The records were processed. An error here would certainly repeat them; without the stored progress, they may or may not be
        # repeated.
        _LOGGER.warning("the progress of %s could not be stored", key, exc_info=True)


def _is_late(context: Any, reserve: float) -> bool:
    return bool(reserve and context is not None and context.get_remaining_time_in_millis() < reserve * 1000)


def _without_window(event: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(event, Mapping) and "window" in event:
        raise InvalidEventError(
            "window", "a function of one record cannot keep the state of a tumbling window; use KinesisEvent"
        )
    return event


def _place(record: UserRecord) -> str:
    return f"user record {record.sub_sequence_number} of Kinesis record {record.sequence_number}"


def _log(error: Exception, position: int, event: OpenedEvent, delivery: Delivery) -> None:
    late = isinstance(error, _OutOfTimeError)
    _LOGGER.log(
        logging.INFO if late else logging.ERROR,
        "%s, record %s of %s: %d of %d records of the event were processed; Lambda delivers the other records again",
        "stopped in time" if late else f"failed with {type(error).__name__}",
        delivery.carrier.sequence_number,
        event.shard_id or event.stream_arn,
        position,
        len(event),
        exc_info=None if late else loggable(error),
    )
