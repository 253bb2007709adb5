"""What happens when a handler fails: a closed set of policies. Skipping silently is not among them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.validation import check_seconds


@dataclass(frozen=True, kw_only=True)
class RetryBatch:
    """Deliver the same batch again until the handler returns; records that it checkpointed are left out.

    Attributes:
        first_delay: Seconds before the first repetition; doubled each time, with jitter.
        max_delay: Most seconds between two repetitions.
    """

    first_delay: float = 0.5
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        check_seconds("on_handler_error.first_delay", self.first_delay, 0.001, 3600)
        check_seconds("on_handler_error.max_delay", self.max_delay, self.first_delay, 3600)


@dataclass(frozen=True, kw_only=True)
class StopWorker:
    """Stop the worker cleanly; ``run`` raises `HandlerError` with the handler's error as its cause."""


HandlerErrorPolicy = RetryBatch | StopWorker
"""Every policy. A new one is a new dataclass here and a branch in the shard consumer."""


def handler_error_policy(
    value: Literal["retry", "stop"] | HandlerErrorPolicy, first_delay: float
) -> HandlerErrorPolicy:
    """The policy that a configuration names.

    Args:
        value: ``"retry"``, ``"stop"`` or a policy.
        first_delay: Seconds before the first repetition of ``"retry"``.

    Raises:
        ConfigError: Anything else.
    """
    if isinstance(value, (RetryBatch, StopWorker)):
        return value
    if value == "retry":
        return RetryBatch(first_delay=first_delay, max_delay=max(30.0, first_delay))
    if value == "stop":
        return StopWorker()
    raise ConfigError("on_handler_error", value, '"retry", "stop", RetryBatch(...) or StopWorker()')


def backoff(failures: int, first: float, most: float, rng: Random) -> float:
    """Seconds to wait after the n-th failure in a row: doubling, capped, the upper half of it random."""
    span = min(most, first * 2.0 ** min(failures - 1, 30))
    return span * (0.5 + rng.random() / 2)
