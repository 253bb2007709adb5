"""What happens when a handler fails: a closed set of policies. Skipping silently is not among them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds


@dataclass(frozen=True, kw_only=True)
class RetryBatch:
    """Deliver the same batch again until the handler returns; records that it checkpointed are left out.

    Attributes:
        initial_delay: Seconds before the first repetition; doubled each time, with jitter.
        max_delay: Most seconds between two repetitions.
    """

    initial_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        check_seconds("on_handler_error.initial_delay", self.initial_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.initial_delay, 3600)


@dataclass(frozen=True, kw_only=True)
class StopWorker:
    """Stop the worker cleanly; ``run`` raises `HandlerError` with the handler's error as its cause."""


@dataclass(frozen=True, kw_only=True)
class PoisonRecord:
    """A record that the handler can not live with, as a dead-letter hook gets it.

    Attributes:
        record: The record.
        error: What the handler raised on it at last, delivered alone.
        attempts: How often it was delivered alone.
        shard_id: Its shard.
        stream: Its stream.
    """

    record: UserRecord
    error: BaseException
    attempts: int
    shard_id: str
    stream: StreamId


@dataclass(frozen=True, kw_only=True)
class BisectBatch:
    """Find the records that the handler can not live with, hand those to a hook, deliver all others.

    The whole batch is delivered ``attempts`` times, with backoff, because most failures pass. Then it is halved,
    and each half that fails is halved again, in order; a record that is left alone is delivered ``attempts``
    times and then goes to the hook. When the hook returns, the record counts as processed. A hook that raises
    is no way out: the record is delivered again, and nothing behind it is checkpointed.

    Of a batch of n records with one poison record, about ``2 log2 n`` parts are delivered; good records beside it
    are delivered up to ``log2 n`` times again, so the handler should be idempotent (as it should for any consumer
    that delivers at least once).

    Attributes:
        dead_letter: Called with a `PoisonRecord`; may be a coroutine function.
        attempts: Deliveries of a batch before it is halved, and of a lone record before it is given up.
        retry_only: Exceptions that say nothing about a record (a database that is down): they are retried as
            by `RetryBatch` and never lead to the hook. Errors of this package always count as such.
        initial_delay: Seconds before the first repetition; doubled each time, with jitter.
        max_delay: Most seconds between two repetitions.
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
        """Whether an error may come from the record itself."""
        return not isinstance(error, (KinesisSdkError, *self.retry_only))


HandlerErrorPolicy = RetryBatch | BisectBatch | StopWorker
"""Every policy. A new one is a new dataclass here and a branch in `Delivery`."""


def handler_error_policy(
    value: Literal["retry", "stop"] | HandlerErrorPolicy, initial_delay: float
) -> HandlerErrorPolicy:
    """The policy that a configuration names.

    Args:
        value: ``"retry"``, ``"stop"`` or a policy.
        initial_delay: Seconds before the first repetition of ``"retry"``.

    Raises:
        ConfigError: Anything else.
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
