"""Automatic checkpoints, for handlers that have processed a batch when they return."""

from __future__ import annotations

import logging

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.shard.runtime import ShardRuntime

_LOGGER = FieldLogger(logging.getLogger(__name__))

_NEVER = float("inf")

_HINT_INTERVAL = 60.0
"""Minimum seconds between two checkpoints with a sink. A shard starts at the sink's position. With a sink, the lease's checkpoint only
shows the lag, and is the start for a worker without the sink."""


class AutoCheckpoint:
    """Schedule of automatic checkpoints: ``checkpoint_interval`` or ``checkpoint_records`` after the first unstored delivery.

    This costs one UpdateItem call per interval for each shard with new records; with a sink, at most one per minute. Each one replaces a
    heartbeat. `due` is the monotonic time of the next checkpoint, or infinity if the last delivered position is stored.
    """

    def __init__(self, runtime: ShardRuntime, checkpointer: Checkpointer, *, enabled: bool) -> None:
        self.due: float = _NEVER
        self._checkpointer = checkpointer
        self._config = runtime.config
        self._enabled = enabled
        self._is_hint = runtime.sink is not None
        self._stored = 0
        self._log_throttle = LogThrottle(runtime.log(_LOGGER, checkpointer.shard_id))

    def note(self, delivered: int, at: float) -> None:
        """Schedule a checkpoint if ``delivered``, the user records delivered under this lease, has grown."""
        new = delivered - self._stored
        if not self._enabled or not new:
            return
        maximum = self._config.checkpoint_records
        interval = self._config.checkpoint_interval
        if self._is_hint:
            maximum, interval = None, max(interval, _HINT_INTERVAL)
        due = at if maximum is not None and new >= maximum else at + interval
        self.due = min(self.due, due)

    def run(self, delivered: int, now: float) -> None:
        """Make the checkpoint if it is due. Log a retryable failure and retry later; raise other failures of the write."""
        if now < self.due:
            return
        try:
            self._checkpointer.checkpoint()
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            retry_delay = self._config.failure.task_backoff_time
            self._log_throttle.log(
                now,
                "checkpoint",
                "shard %s: checkpoint failed, retrying in %.1f s: %s",
                self._checkpointer.shard_id,
                retry_delay,
                error,
            )
            self.due = now + retry_delay
        else:
            self._stored = delivered
            self.due = _NEVER
