"""Checkpoints that the worker makes by itself, because returning means processed."""

from __future__ import annotations

import logging

from kinesis_sdk.common.errors import AwsError
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.config import ConsumerConfig

_NEVER = float("inf")


class AutoCheckpoint:
    """Decides when what was delivered is stored: some time, or some records, after the first that is not.

    Cost: one UpdateItem per ``checkpoint_interval`` and shard with records, which saves a heartbeat.

    Args:
        checkpointer: Stores it.
        config: ``checkpoint_interval`` and ``checkpoint_records``.
        enabled: Whether it does anything at all.

    Attributes:
        due: Monotonic time of the next checkpoint; infinity while everything is stored.
    """

    def __init__(self, checkpointer: Checkpointer, config: ConsumerConfig, *, enabled: bool) -> None:
        self.due: float = _NEVER
        self._checkpointer = checkpointer
        self._config = config
        self._enabled = enabled
        self._stored = 0
        self._log_throttle = LogThrottle(logging.getLogger(__name__))

    def note(self, delivered: int, at: float) -> None:
        """Tell how many records were delivered in all, and when the last ones were."""
        new = delivered - self._stored
        if not self._enabled or not new:
            return
        most = self._config.checkpoint_records
        wanted = at if most is not None and new >= most else at + self._config.checkpoint_interval
        self.due = min(self.due, wanted)

    def run(self, delivered: int, now: float) -> None:
        """Store it if it is time. A failure that may pass is logged and repeated.

        Raises:
            LeaseLostError, AwsError: As `Checkpointer.checkpoint`, what may pass excepted.
        """
        if now < self.due:
            return
        try:
            self._checkpointer.checkpoint()
        except AwsError as error:
            if not error.retryable:
                raise
            shard_id = self._checkpointer.shard_id
            self._log_throttle.log(now, "checkpoint", "shard %s: checkpoint failed: %s", shard_id, error)
            self.due = now + self._config.failure.task_backoff_time
        else:
            self._stored = delivered
            self.due = _NEVER
