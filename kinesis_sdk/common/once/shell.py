"""Look-ups by a thread that may block: a Lambda function, a Spark task. A worker steps them, see `consumer.shard.look_ups`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TypeVar

from kinesis_sdk.common.aws import DENIALS, KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AwsError, ResourceNotFoundError, ThrottledError
from kinesis_sdk.common.once.reader import ListShards, LookUp, ReadShard
from kinesis_sdk.common.position import AtTimestamp, Position, TrimHorizon
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.shard_cursor import ShardCursor
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId

_MAX_RECORDS = 10_000
"""Maximum records of a GetRecords call (API reference)."""

_CALL_SECONDS = 60.0
"""Seconds for which a call is retried."""

T = TypeVar("T")


def start_of(step: ReadShard) -> Position:
    """Return the position at which a step of a look-up begins to read."""
    return TrimHorizon() if step.since_millis is None else AtTimestamp(step.since_millis)


def is_at_end(records: Sequence[KinesisRecord], header: ResponseHeader) -> bool:
    """Return whether the shard had no records after a response when it was read.

    Args:
        records: The records of the response.
        header: Its header. Some emulators report no lag; then an empty response is the end.
    """
    behind = header.millis_behind_latest
    return header.ended or behind == 0 or (behind is None and not records)


def is_denied(error: AwsError) -> bool:
    """Return whether an error means that the call is not allowed, so that repeating it does not help."""
    return error.code in DENIALS


def carry_out(
    look_up: LookUp,
    client: KinesisClient,
    stream: StreamId,
    shard_id: str,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] | None = None,
    shards: Iterable[Shard] | None = None,
    seconds: float | None = None,
) -> None:
    """Make the calls of a look-up, and wait for them. Failures are retried for a minute, or until ``seconds`` have passed.

    Args:
        look_up: The look-up.
        client: boto3 Kinesis client, or an object with its methods.
        stream: The stream.
        shard_id: The shard whose records are judged.
        clock: Clock that measures the calls; the system's by default.
        sleep: Waits between two attempts, in seconds; `time.sleep` by default.
        shards: The shard and its ancestors, if known; by default, the shards are listed.
        seconds: Time after which the look-up ends with the records read so far; None for no limit. A call that runs then is not interrupted.

    Raises:
        AwsError: If a call keeps failing. If a call is denied, or throttled until the time has passed, the look-up ends instead.
        ProtocolError: If a response cannot be read.
    """
    calls = _Calls(clock or SystemClock(), sleep or time.sleep, seconds)
    while (step := look_up.step) is not None:
        if calls.left <= 0:
            look_up.end()
            continue
        try:
            if isinstance(step, ListShards):
                look_up.listed(
                    shards if shards is not None else calls.make(lambda: list_shards(client, stream))
                )
            else:
                _read(look_up, step, client, stream, shard_id, calls)
        except AwsError as error:
            if is_denied(error):
                look_up.refused()
            elif not (isinstance(error, ThrottledError) and calls.left <= 0):
                raise


class _Calls:
    """Calls that are retried until ``seconds`` have passed, for all calls together; None means no limit."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None], seconds: float | None) -> None:
        self.clock: Clock = clock
        self._sleep = sleep
        self._end = inf if seconds is None else clock.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - self.clock.monotonic()

    def make(self, call: Callable[[], T]) -> T:
        """Make a call; raises the error of the last attempt."""
        timeout = min(_CALL_SECONDS, max(0.0, self.left))
        return call_with_retries(call, operation=None, timeout=timeout, sleep=self._wait)

    def _wait(self, seconds: float) -> None:
        self._sleep(max(0.0, min(seconds, self.left)))


def _read(
    look_up: LookUp,
    step: ReadShard,
    client: KinesisClient,
    stream: StreamId,
    shard_id: str,
    calls: _Calls,
) -> None:
    cursor = ShardCursor(client, stream, step.shard_id, start_of(step), clock=calls.clock)
    limit = step.limit or _MAX_RECORDS
    while look_up.step is step and calls.left > 0:
        try:
            page = calls.make(lambda: cursor.fetch(limit))
        except ResourceNotFoundError:
            if step.shard_id == shard_id:
                raise
            look_up.gone()
            return
        cursor.advance(page)
        look_up.page(page.records, at_end=is_at_end(page.records, page.header))
