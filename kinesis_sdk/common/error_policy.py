"""Policies for a handler that fails: retry, bisect to a dead-letter hook, pause, or stop. No policy skips records silently.

A policy only decides what happens to the records of a failed call. A policy reads no clock and draws no random number.
`Delivery` in a worker and `kinesis_handler` in Lambda carry the decision out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import (
    ConfigError,
    DeserializationError,
    EffectRejectedError,
    KinesisSdkError,
    SinkError,
    UnacknowledgedError,
)
from kinesis_sdk.common.validation import check_int, check_seconds

if TYPE_CHECKING:
    from random import Random

    from kinesis_sdk.common.records import UserRecord
    from kinesis_sdk.common.stream import StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call of ``process_records`` or of another callback.

    Attributes:
        error: The error that it raised. A `SinkError` means that the store failed, and not the handler.
        size: Records of the call that are not finished; 0 for a callback that gets no records, such as ``initialize``.
        attempts: Consecutive failed calls with exactly these records; 0 if this call also got other records and finished these.
        halved: Whether these records are a half of a call that was bisected.
        in_a_row: Number of consecutive records of the shard, this one included, on which calls failed with errors of this class. A
            call that is repeated, or halved, counts once, by its first record. A successful call resets the number; setting a
            record aside does not.
    """

    error: BaseException
    size: int
    attempts: int
    halved: bool = False
    in_a_row: int = 1


@dataclass(frozen=True, slots=True)
class Retry:
    """Decision to deliver the records again.

    Attributes:
        after: Seconds until the next delivery, 0 to 86,400, or pauses that grow with the consecutive failures of the shard (with
            ``concurrency``, of the partition key).
        together: Whether the records are delivered in one call. Otherwise, they are delivered in smaller calls from the second consecutive
            failure on.
        may_reread: Whether the worker may give the records back and read them again later, if other shards wait for their memory.
        circuit: If a `CircuitBreaker` is open: number of its pauses so far, from 1; the length of a `Backoff` then depends on
            it. The next call gets a single record, as a probe. For all other decisions, this is 0.

    Raises:
        ConfigError: If ``after`` is out of range.
    """

    after: float | Backoff
    together: bool = False
    may_reread: bool = False
    circuit: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.after, Backoff):
            check_seconds("Retry.after", self.after, 0, 86_400)


@dataclass(frozen=True, slots=True)
class Halve:
    """Decision to deliver the records again at once, in two halves, in order. For a single record, the decision is a `Retry`."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Decision to pass a record to a hook; the record counts as processed when the hook returns.

    With a sink, the position passes the record in the transaction that the hook gets, so the hook's writes to it and the position take
    effect together, or not at all.

    If the hook raises, the policy decides about the hook's error. For several records, the decision is a `Halve`; for the
    failure of a sink's store, a `Retry`.

    Attributes:
        take: The hook.
    """

    take: DeadLetterHook


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision to stop the worker: ``Worker.run`` raises `HandlerError`."""


Decision = Retry | Halve | SetAside | Stop
"""Decision of a policy about the records of a failed call."""


class HandlerErrorPolicy(Protocol):
    """Decides what happens after a handler raised. An object of your own may be ``on_handler_error``.

    No policy changes the outcome of `RestartShardError`, or of a sink's error that a retry does not fix.

    A policy may have an attribute ``dead_letter``, a hook for records that an operator leaves out.
    """

    def decide(self, failure: Failure) -> Decision:
        """Return the decision. Called on the shard's thread; it must not wait, and must return the same decision for the same failure."""


DEFAULT_PAUSES = Backoff(0.5, 30.0)
"""Pauses for decisions without pauses of their own."""


def pause_of(decision: Decision, failures: int, rng: Random) -> float:
    """Return the seconds until the next attempt.

    Args:
        decision: The decision; `DEFAULT_PAUSES` apply unless it is a `Retry`.
        failures: Consecutive failures, at least 1.
        rng: Source of jitter.
    """
    after = decision.after if isinstance(decision, Retry) else DEFAULT_PAUSES
    if isinstance(decision, Retry) and decision.circuit:
        failures = decision.circuit
    return after.pause(failures, rng) if isinstance(after, Backoff) else after


@dataclass(frozen=True, kw_only=True)
class PoisonRecord:
    """A poison record, as passed to the dead-letter hook.

    Attributes:
        record: The record.
        error: Error that the handler raised when it last got the record alone. If an operator left the record out before the handler
            failed on it, this is a `HandlerError` that names this cause.
        attempts: Number of times that the record was delivered alone.
        shard_id: Shard of the record.
        stream: Stream of the record.
        by_operator: Whether an operator left it out (``kinesis-sdk leases skip-record``), and not the policy.
        failing_seconds: Seconds since the first failed call that got the record, at least 0.
        transaction: With a sink, its open transaction, as ``RecordBatch.transaction``. The hook's writes to it take effect together with
            the position of the record when the hook returns. None without a sink.
    """

    record: UserRecord
    error: BaseException
    attempts: int
    shard_id: str
    stream: StreamId
    by_operator: bool = False
    failing_seconds: float = 0.0
    transaction: Any = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """Result of a hook that keeps the record for a later delivery, so that it does not count as a dead letter.

    Attributes:
        seconds: Seconds until that delivery.
    """

    seconds: float


DeadLetterHook = Callable[[PoisonRecord], Awaitable[Deferred | None] | Deferred | None]
"""Takes a record that is not processed; may be a coroutine function. The record counts as processed when it returns."""


@dataclass(frozen=True, kw_only=True)
class RetryBatch:
    """Policy that redelivers the batch until the handler returns. Records that the handler checkpointed are left out.

    A batch that fails twice in a row is delivered in smaller parts, down to one record; the parts become larger again as they
    succeed. So a service that fails now and then slows its shard down, but does not stop it.

    Attributes:
        initial_delay: Seconds before the first retry, 0.001 to 3600; it doubles with each failure, with jitter.
        max_delay: Maximum seconds before a retry, ``initial_delay`` to 3600.
        dead_letter: Called with a `PoisonRecord` that an operator left out (``kinesis-sdk leases skip-record``); the policy
            itself never leaves a record out. With None, the log names the record, which stays in the stream.

    Raises:
        ConfigError: If a value is outside its range or has the wrong type.
    """

    initial_delay: float = 0.5
    max_delay: float = 30.0
    dead_letter: DeadLetterHook | None = None

    def __post_init__(self) -> None:
        if self.dead_letter is not None:
            _check_hook(self.dead_letter)
        check_seconds("on_handler_error.initial_delay", self.initial_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.initial_delay, 3600)

    def decide(self, failure: Failure) -> Decision:  # noqa: ARG002
        """Return what happens to the records of a failed call."""
        return Retry(Backoff(self.initial_delay, self.max_delay), may_reread=True)


@dataclass(frozen=True, kw_only=True)
class StopWorker:
    """Policy that stops the worker cleanly. ``Worker.run`` then raises `HandlerError` with the handler's error as its cause.

    Attributes:
        dead_letter: As in `RetryBatch`.

    Raises:
        ConfigError: If ``dead_letter`` is not a function.
    """

    dead_letter: DeadLetterHook | None = None

    def __post_init__(self) -> None:
        if self.dead_letter is not None:
            _check_hook(self.dead_letter)

    def decide(self, failure: Failure) -> Decision:
        """Return what happens after a failed call: the worker stops, unless the sink failed or acknowledgements are missing."""
        waits = isinstance(failure.error, (SinkError, UnacknowledgedError))
        return Retry(DEFAULT_PAUSES) if waits else Stop()


@dataclass(frozen=True, kw_only=True)
class BisectBatch:
    """Policy that isolates poison records by bisection, passes them to a hook, and delivers all other records.

    The whole batch is delivered ``attempts`` times with backoff, because most failures are transient. Then the batch is
    halved, and each half that fails is halved again, in order. A single record is delivered ``attempts`` times and then passed to the
    hook. When the hook returns, the record counts as processed. If the hook raises, the record is
    delivered again, and nothing after it is checkpointed. The next batches begin smaller for a while, as with `RetryBatch`.

    For a batch of n records with one poison record, about ``2 log2 n`` sub-batches are delivered. Good records next to
    the poison record are redelivered up to ``log2 n`` times, so the handler should be idempotent, as with any at-least-once consumer.

    Attributes:
        dead_letter: Called with a `PoisonRecord`; may be a coroutine function.
        attempts: Deliveries of a batch before it is halved, and of a single record before it is dead-lettered; 1 to 1000.
        retry_only: Exception classes that a record does not cause, for example for a database that is down. Such
            failures are retried as by `RetryBatch` and never lead to the hook. Errors of this package always count as
            such exceptions, except for `DeserializationError` and `EffectRejectedError`: a payload that cannot be decoded
            is poison, and so is an effect that a sink rejects.
        initial_delay: Seconds before the first retry, 0.001 to 3600; it doubles with each failure, with jitter.
        max_delay: Maximum seconds before a retry, ``initial_delay`` to 3600.

    Raises:
        ConfigError: If a value is outside its range or has the wrong type.
    """

    dead_letter: DeadLetterHook
    attempts: int = 3
    retry_only: tuple[type[Exception], ...] = ()
    initial_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        _check_hook(self.dead_letter)
        check_int("on_handler_error.attempts", self.attempts, 1, 1000)
        check_seconds("on_handler_error.initial_delay", self.initial_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.initial_delay, 3600)
        _check_classes("on_handler_error.retry_only", self.retry_only)

    def may_be_poison(self, error: BaseException) -> bool:
        """Return whether an error may be caused by the record itself."""
        if isinstance(error, (DeserializationError, EffectRejectedError)):
            return not error.retryable
        return not isinstance(error, (KinesisSdkError, *self.retry_only))

    def decide(self, failure: Failure) -> Decision:
        """Return what happens to the records of a failed call."""
        pauses = Backoff(self.initial_delay, self.max_delay)
        if not failure.size or isinstance(failure.error, SinkError) or not self.may_be_poison(failure.error):
            return Retry(pauses)
        if failure.attempts >= self.attempts or (failure.halved and failure.size > 1):
            return Halve() if failure.size > 1 else SetAside(self.dead_letter)
        return Retry(pauses, together=True)


@dataclass(frozen=True)
class CircuitBreaker:
    """Policy that pauses a shard while a service is down, and leaves all other failures to another policy.

    Without a circuit breaker, a policy that sets records aside sets aside every record of an outage. The circuit opens after
    ``failures`` records in a row on which calls failed with one class of errors, so one record that always fails does not open it. It
    also opens after as many failed calls with records that the other policy only retries. While the circuit is open, the shard pauses,
    then tries a single record, and pauses longer with each failure. A call that succeeds closes the circuit. Each shard has its own
    circuit. With ``concurrency``, each partition key pauses and tries a record of its own.

    An outage and consecutive poison records look the same. So after ``probes`` failures of the tried record, the other policy decides
    about it, and may set it aside; then the next record is tried. No record blocks a shard forever.

    Views list the shard among those with a failing handler, and show "circuit open" before the error; the metric is
    ``CircuitOpen``.

    Attributes:
        policy: Decides while the circuit is closed.
        failures: Records, or failed calls, in a row that open the circuit, 2 to 10,000. Before the circuit opens, fewer records than this
            are set aside.
        of: Exception classes that may open the circuit; leave out those that a record can cause, if possible.
        first_pause: Maximum seconds of the first pause, 0.001 to 3600; it doubles with each failure, with jitter.
        longest_pause: Maximum seconds of any pause, ``first_pause`` to 3600.
        probes: Failed attempts with one record, 1 to 10,000, after which it may be set aside while the circuit is open. With the default
            pauses, 10 attempts take 17 to 25 minutes.

    Raises:
        ConfigError: If a value is outside its range or has the wrong type.
    """

    policy: HandlerErrorPolicy
    _: KW_ONLY
    failures: int = 10
    of: tuple[type[Exception], ...] = (Exception,)
    first_pause: float = 5.0
    longest_pause: float = 300.0
    probes: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.policy, (str, type)) or not callable(getattr(self.policy, "decide", None)):
            raise ConfigError(
                "policy", self.policy, "an object with a method decide, such as BisectBatch(...)"
            )
        check_int("failures", self.failures, 2, 10_000)
        _check_classes("of", self.of)
        check_seconds("first_pause", self.first_pause, 0.001, 3600)
        check_seconds("longest_pause", self.longest_pause, self.first_pause, 3600)
        check_int("probes", self.probes, 1, 10_000)

    @property
    def dead_letter(self) -> DeadLetterHook | None:
        """The hook of the other policy, for records that an operator leaves out."""
        return getattr(self.policy, "dead_letter", None)

    def decide(self, failure: Failure) -> Decision:
        """Return what happens to the records of a failed call."""
        decision = self.policy.decide(failure)
        pauses = 0 if failure.in_a_row < self.failures else max(1, failure.attempts)
        if isinstance(decision, Retry) and not decision.together:
            # The other policy never sets the record aside, so no further record would count.
            pauses = max(pauses, failure.attempts - self.failures + 1)
        if not failure.size or pauses < 1 or not isinstance(failure.error, self.of):
            return decision
        if isinstance(decision, SetAside) and failure.attempts > self.probes:
            return decision
        return Retry(Backoff(self.first_pause, self.longest_pause), may_reread=True, circuit=pauses)


def _check_classes(field: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in value
    ):
        raise ConfigError(field, value, "a tuple of exception classes")


def _check_hook(hook: object) -> None:
    if not callable(hook):
        raise ConfigError("on_handler_error.dead_letter", hook, "a function of a PoisonRecord")


def handler_error_policy(
    value: Literal["retry", "stop"] | HandlerErrorPolicy, initial_delay: float
) -> HandlerErrorPolicy:
    """Return the policy for ``ConsumerConfig.on_handler_error``.

    Args:
        value: ``"retry"``, ``"stop"``, or an object with ``decide``.
        initial_delay: Seconds before the first retry of ``"retry"``.

    Raises:
        ConfigError: If the value is anything else.
    """
    if not isinstance(value, (str, type)) and callable(getattr(value, "decide", None)):
        return value
    if value == "retry":
        return RetryBatch(initial_delay=initial_delay, max_delay=max(30.0, initial_delay))
    if value == "stop":
        return StopWorker()
    raise ConfigError(
        "on_handler_error",
        value,
        '"retry", "stop", RetryBatch(...), BisectBatch(...), StopWorker() or another object with a method decide',
    )
