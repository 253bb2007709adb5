"""Measures the load of the busiest shards: the rates in lease rows are too coarse for the limits of a shard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.load import ShardLoad, sample_load
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import loggable
from kinesis_sdk.common.stream import StreamId

_WINDOW = 2.0
"""Seconds of a shard's records to read: a full shard returns 2 MiB, which is a second of its read limit."""

_LOGGER = logging.getLogger(__name__)


def measure_busy(
    connection: Connection,
    busy: Iterable[tuple[str, StreamId, str]],
    *,
    clock: Clock,
    sleep: Callable[[float], None],
) -> dict[str, ShardLoad]:
    """Return the loads of shards by lease key, with one GetShardIterator and one GetRecords call for each shard.

    A shard that cannot be read is left out: the operator may have no permission to read records, and the view works without these loads.
    ``busy`` has lease key, stream and shard of each busy shard.
    """
    found: dict[str, ShardLoad] = {}
    for key, stream, shard_id in busy:
        try:
            loads = sample_load(
                connection, stream, [shard_id], window=_WINDOW, threads=1, clock=clock, sleep=sleep
            )
        except KinesisSdkError as error:
            _LOGGER.info("the load of %s is not measured", shard_id, exc_info=loggable(error))
            continue
        if shard_id in loads:  # not if the shard's read limit is exhausted
            found[key] = loads[shard_id]
    return found
