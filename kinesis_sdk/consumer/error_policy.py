"""Policies for a handler that fails: retry, bisect to a dead-letter hook, or stop. None of them skips records silently."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from kinesis_sdk.common.errors import ConfigError, DeserializationError, EffectRejectedError, KinesisSdkError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds


@dataclass(frozen=True, kw_only=True)
class RetryBatch:
    """Policy that redelivers the batch until the handler returns. Records that it checkpointed are left out.

    Attributes:
        initial_delay: Seconds before the first retry, 0.001 to 3600; it doubles with each failure, with jitter.
        max_delay: Maximum seconds before a retry, ``initial_delay`` to 3600.

    Raises:
        ConfigError: If a value is outside its range.
    """

    initial_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        check_seconds("on_handler_error.initial_delay", self.initial_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.initial_delay, 3600)


@dataclass(frozen=True, kw_only=True)
class StopWorker:
    """Policy that stops the worker cleanly. ``Worker.run`` then raises `HandlerError` with the handler's error as its cause."""


@dataclass(frozen=True, kw_only=True)
class PoisonRecord:
    """A poison record, as passed to the dead-letter hook.

    Attributes:
        record: The record.
        error: Error that the handler raised when it last got the record alone.
        attempts: Number of times that the record was delivered alone.
        shard_id: Shard of the record.
        stream: Stream of the record.
    """

    record: UserRecord
    error: BaseException
    attempts: int
    shard_id: str
    stream: StreamId


@dataclass(frozen=True, kw_only=True)
class BisectBatch:
    """Policy that isolates poison records by bisection, passes them to a hook, and delivers all others.

    The whole batch is delivered ``attempts`` times with backoff, because most failures are transient. Then it is halved, and
    each half that fails is halved again, in order. A record that is alone is delivered ``attempts`` times and then passed to
    the hook. When the hook returns, the record counts as processed. If the hook raises, the record is delivered again, and
    nothing after it is checkpointed.

    For a batch of n records with one poison record, about ``2 log2 n`` sub-batches are delivered. Good records next to it
    are redelivered up to ``log2 n`` times, so the handler should be idempotent, as with any at-least-once consumer.

    Attributes:
        dead_letter: Called with a `PoisonRecord`; may be a coroutine function.
        attempts: Deliveries of a batch before it is halved, and of a single record before it is dead-lettered; 1 to 1000.
        retry_only: Exception classes that say nothing about a record, for example of a database that is down. They are
            retried as by `RetryBatch` and never lead to the hook. Errors of this package always count as such, except for
            `DeserializationError` and `EffectRejectedError`: a payload that cannot be decoded is poison, and so is an effect
            that a sink does not accept.
        initial_delay: Seconds before the first retry, 0.001 to 3600; it doubles with each failure, with jitter.
        max_delay: Maximum seconds before a retry, ``initial_delay`` to 3600.

    Raises:
        ConfigError: If a value is outside its range or has the wrong type.
    """

    dead_letter: Callable[[PoisonRecord], Awaitable[None] | None]
    attempts: int = 3
    retry_only: tuple[type[Exception], ...] = ()
    initial_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        if not callable(self.dead_letter):
            raise ConfigError(
                "on_handler_error.dead_letter", self.dead_letter, "a function of a PoisonRecord"
            )
        check_int("on_handler_error.attempts", self.attempts, 1, 1000)
        check_seconds("on_handler_error.initial_delay", self.initial_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.initial_delay, 3600)
        if not isinstance(self.retry_only, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, Exception) for kind in self.retry_only
        ):
            raise ConfigError("on_handler_error.retry_only", self.retry_only, "a tuple of exception classes")

    def may_be_poison(self, error: BaseException) -> bool:
        """Return whether an error may be caused by the record itself."""
        if isinstance(error, (DeserializationError, EffectRejectedError)):
            return not error.retryable
        return not isinstance(error, (KinesisSdkError, *self.retry_only))


HandlerErrorPolicy = RetryBatch | BisectBatch | StopWorker
"""The reaction of a worker to a handler that raises: one of these policies. To add one, add a dataclass here and a branch in ``Delivery._failed``."""


def handler_error_policy(
    value: Literal["retry", "stop"] | HandlerErrorPolicy, initial_delay: float
) -> HandlerErrorPolicy:
    """Return the policy for ``ConsumerConfig.on_handler_error``.

    Args:
        value: ``"retry"``, ``"stop"`` or a policy.
        initial_delay: Seconds before the first retry of ``"retry"``.

    Raises:
        ConfigError: If the value is anything else.
    """
    if isinstance(value, (RetryBatch, BisectBatch, StopWorker)):
        return value
    if value == "retry":
        return RetryBatch(initial_delay=initial_delay, max_delay=max(30.0, initial_delay))
    if value == "stop":
        return StopWorker()
    raise ConfigError(
        "on_handler_error", value, '"retry", "stop", RetryBatch(...), BisectBatch(...) or StopWorker()'
    )
