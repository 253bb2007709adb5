"""`RetryTiers`: an error policy that moves a failing record to a store in which it waits for its next attempts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

from kinesis_sdk.common.error_policy import (
    BisectBatch,
    DeadLetterHook,
    Decision,
    Deferred,
    Failure,
    PoisonRecord,
)
from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.validation import check_seconds
from kinesis_sdk.consumer import StreamSpec

_LOGGER = FieldLogger(logging.getLogger(__name__))

_MAX_TIERS = 20
_MAX_DELAY = 31_536_000
"""The longest retention period of a stream, in seconds."""


class TierStore(Protocol):
    """Store in which records wait: `StreamTiers`, `RetryTable`, or an object of your own. Thread-safe."""

    def begin(self, delays: Sequence[float]) -> None:
        """Set the delays of the tiers, in seconds. Called once, by the `RetryTiers` that uses the store.

        Raises:
            ConfigError: If the store cannot keep records for the longest delay, or belongs to another `RetryTiers`.
        """
        ...

    def tier_after(self, poison: PoisonRecord) -> int:
        """Return the number of the tier for a failed record, from 0; the record becomes a dead letter if this tier does not exist."""
        ...

    def keep(self, poison: PoisonRecord, tier: int) -> Awaitable[None] | None:
        """Store a record for a tier; the record counts as processed when this method returns.

        Raises:
            InvalidRecordError: If the store can never accept this record, which then becomes a dead letter.
            Exception: If it was not stored. The record is delivered again.
        """
        ...


class RetryTiers:
    """Error policy that sets failing records aside for a while, so that the shard continues.

    A batch that fails is delivered ``attempts`` times, then halved until each failing record is alone, as `BisectBatch` does. This record
    waits in the first tier, is delivered to the same handler again, waits in the next tier if the handler fails again, and so on. After
    the last tier, ``dead_letter`` gets the record. No record is skipped: a record counts as processed only when the next store contains
    it.

    Later records of the same partition key do not wait for a record in a tier, unless ``to`` is a `RetryTable` that keeps the order.

    Args:
        delays: Seconds that a record waits in each tier: 1 to 20 numbers, each from 1 to 31,536,000.
        to: The tiers: a `StreamTiers` or a `RetryTable`.
        dead_letter: Called with a `PoisonRecord` after the last tier, for example a `DeadLetters`; may be a coroutine function. It also
            gets records that are too large for the tiers.
        attempts: Deliveries of a batch before it is halved, and of a single record before it is set aside, in each tier; 1 to 1000.
        retry_only: Exception classes that no record causes: the batch is retried in place, as `BisectBatch` does.
        initial_delay: Seconds before the first retry in place, 0.001 to 3600; the delay doubles with each failure, with jitter.
        max_delay: Maximum seconds before a retry in place, ``initial_delay`` to 3600.

    Attributes:
        delays: The delays.
        to: The tiers.
        dead_letter: The hook, which is also called with records that an operator leaves out.

    Raises:
        ConfigError: If an argument is out of its range.
    """

    def __init__(
        self,
        delays: Sequence[float],
        *,
        to: TierStore,
        dead_letter: DeadLetterHook,
        attempts: int = 3,
        retry_only: tuple[type[Exception], ...] = (),
        initial_delay: float = 0.5,
        max_delay: float = 30.0,
    ) -> None:
        if isinstance(delays, (str, bytes)) or not 1 <= len(tuple(delays)) <= _MAX_TIERS:
            raise ConfigError("delays", delays, f"1 to {_MAX_TIERS} numbers of seconds")
        for delay in delays:
            check_seconds("delays", delay, 1, _MAX_DELAY)
        if not callable(dead_letter):
            raise ConfigError("dead_letter", dead_letter, "a function of a PoisonRecord")
        self.delays: tuple[float, ...] = tuple(delays)
        self.dead_letter: DeadLetterHook = dead_letter
        self.to: TierStore = to
        self._inner = BisectBatch(
            dead_letter=self._set_aside,
            attempts=attempts,
            retry_only=retry_only,
            initial_delay=initial_delay,
            max_delay=max_delay,
        )
        to.begin(self.delays)

    def decide(self, failure: Failure) -> Decision:
        """Return the decision about the records of a failed call."""
        return self._inner.decide(failure)

    def streams(self) -> list[StreamSpec]:
        """Return the streams of the tiers, each with its delay, for ``Worker(streams=…)``.

        Raises:
            ConfigError: If the tiers are not streams.
        """
        streams = getattr(self.to, "streams", None)
        if streams is None:
            raise ConfigError(
                "to", self.to, "a StreamTiers; rows of a RetryTable are delivered by a RetryWorker"
            )
        found: list[StreamSpec] = streams()
        return found

    def _set_aside(self, poison: PoisonRecord) -> Awaitable[Deferred | None] | Deferred | None:
        tier = self.to.tier_after(poison)
        if tier >= len(self.delays):
            return self.dead_letter(poison)
        try:
            waiting = self.to.keep(poison, tier)
        except InvalidRecordError as error:
            _LOGGER.error(
                "shard %s: record %s/%d cannot wait for a retry and becomes a dead letter: %s",
                poison.shard_id,
                poison.record.sequence_number,
                poison.record.sub_sequence_number,
                error,
            )
            return self.dead_letter(poison)
        deferred = Deferred(self.delays[tier])
        if not inspect.isawaitable(waiting):
            return deferred

        async def wait() -> Deferred:
            await waiting
            return deferred

        return wait()
