"""A look-up of a worker: each step makes one call, so that neither the lease nor a stop has to wait for the whole look-up.

The shard's own step makes the calls, without a lock and without reading ahead. Look-ups reserve nothing from the worker's byte
budget. A response that waits for a look-up already holds a part of the budget, so shards that waited for each other's parts would
deadlock. Each thread of the steps has at most one response in memory, and keeps only its runs.
"""

from __future__ import annotations

import logging

from kinesis_sdk.common.errors import (
    AwsError,
    InvalidPositionError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.once import ListShards, LookUp, ReadShard, is_at_end, is_denied, start_of
from kinesis_sdk.consumer.fetch.fetcher import Fetcher
from kinesis_sdk.consumer.shard.runtime import ShardRuntime

_LOGGER = FieldLogger(logging.getLogger(__name__))

_MAX_RECORDS = 10_000
"""Maximum records of a GetRecords call (API reference)."""


class ShardLookUp:
    """Reads for a look-up of one shard. Used by one thread at a time. `due` is the monotonic time of the next call."""

    def __init__(self, runtime: ShardRuntime, shard_id: str, look_up: LookUp, now: float) -> None:
        self.due: float = now
        self._runtime = runtime
        self._shard_id = shard_id
        self._look_up = look_up
        self._logger = runtime.log(_LOGGER, shard_id)
        self._fetcher: Fetcher | None = None
        self._fetches: ReadShard | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of payload read."""
        return self._look_up.bytes_read

    @property
    def over_budget(self) -> str | None:
        """Sequence number of the record that needed the longest search, if the budget ended a search; None otherwise."""
        return self._look_up.over_budget

    @property
    def is_complete(self) -> bool:
        """Whether everything was read."""
        return self._look_up.step is None

    def close(self) -> None:
        """Drop the iterator."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    @property
    def shard_id(self) -> str:
        """Shard that is being read: this shard or an ancestor."""
        step = self._look_up.step
        return step.shard_id if isinstance(step, ReadShard) else self._shard_id

    def advance(self, now: float) -> bool:
        """Make the next call if it is due, and return whether it was made. After an error, `due` is the time of the retry.

        The first call of a shard may have to wait for the read limits of the shard.
        """
        step = self._look_up.step
        if step is None or now < self.due:
            return False
        try:
            if isinstance(step, ListShards):
                self._look_up.listed(self._runtime.list_shards())
            else:
                return self._read(step, now)
        except InvalidPositionError as error:
            self._refuse(error)
        except ResourceNotFoundError as error:
            # A parent may have expired since it was listed. If the shard itself has, its next read finds out.
            if not isinstance(step, ReadShard) or step.shard_id == self._shard_id:
                self._refuse(error)
            else:
                self._look_up.gone()
        except AwsError as error:
            if not is_denied(error):
                raise
            self._refuse(error)
        return True

    def _read(self, step: ReadShard, now: float) -> bool:
        fetcher = self._fetcher
        if fetcher is None or self._fetches is not step:
            self.close()
            fetcher = self._fetcher = self._runtime.open_fetcher(
                step.shard_id,
                start_of(step),
                now,
                _nothing,
                NOT_MEASURED,
                look_up=step.limit or _MAX_RECORDS,
            )
            self._fetches = step
        self.due = fetcher.due
        if now < self.due:
            return False
        try:
            result = fetcher.fetch(now)
        finally:
            self.due = fetcher.due
        self._look_up.page(result.records, at_end=is_at_end(result.records, result.header))
        if self._look_up.step is not step:
            self.close()
            self.due = now
        return True

    def _refuse(self, error: AwsError) -> None:
        self._logger.warning(
            "shard %s: the stream cannot be searched for earlier copies of records, which are delivered and may be repetitions: %s",
            self._shard_id,
            error,
        )
        self._look_up.refused()


def _nothing() -> None:
    return None
