"""Look-ups by a thread that may block: a Lambda function, a Spark task. A worker steps them, see `consumer.shard.look_ups`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kinesis_sdk.common.aws import DENIALS, KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AwsError, ResourceNotFoundError
from kinesis_sdk.common.once.reader import ListShards, LookUp, ReadShard
from kinesis_sdk.common.position import AtTimestamp, Position, TrimHorizon
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.shard_cursor import ShardCursor
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId

_MAX_RECORDS = 10_000
"""Maximum records of a GetRecords call (API reference)."""


def start_of(step: ReadShard) -> Position:
    """Return the position at which a step of a look-up begins to read."""
    return TrimHorizon() if step.since_millis is None else AtTimestamp(step.since_millis)


def is_at_end(records: Sequence[KinesisRecord], header: ResponseHeader) -> bool:
    """Return whether a shard had no records after those of a response when it was read.

    Args:
        records: The records of the response.
        header: Its header. Some emulators report no lag; an empty response then is the end.
    """
    behind = header.millis_behind_latest
    return header.ended or behind == 0 or (behind is None and not records)


def is_denied(error: AwsError) -> bool:
    """Return whether an error says that the call is not allowed, so that repeating it does not help."""
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
) -> None:
    """Make the calls of a look-up, and wait for them. Failures are tried again for a minute.

    Args:
        look_up: The look-up.
        client: boto3 Kinesis client, or an object with its methods.
        stream: The stream.
        shard_id: The shard whose records are judged.
        clock: Clock that measures the calls; the system's by default.
        sleep: Waits between two attempts, in seconds; `time.sleep` by default.
        shards: The shard and its ancestors, if they are known; by default the shards are listed.

    Raises:
        AwsError: If a call keeps failing, but not if it is denied: then the look-up ends without a result.
        ProtocolError: If a response cannot be read.
    """
    clock = clock or SystemClock()
    while (step := look_up.step) is not None:
        try:
            if isinstance(step, ListShards):
                look_up.listed(
                    shards
                    if shards is not None
                    else call_with_retries(lambda: list_shards(client, stream), operation=None, sleep=sleep)
                )
            else:
                _read(look_up, step, client, stream, shard_id, clock, sleep)
        except AwsError as error:
            if not is_denied(error):
                raise
            look_up.refused()


def _read(
    look_up: LookUp,
    step: ReadShard,
    client: KinesisClient,
    stream: StreamId,
    shard_id: str,
    clock: Clock,
    sleep: Callable[[float], None] | None,
) -> None:
    cursor = ShardCursor(client, stream, step.shard_id, start_of(step), clock=clock)
    limit = step.limit or _MAX_RECORDS
    while look_up.step is step:
        try:
            page = call_with_retries(lambda: cursor.fetch(limit), operation=None, sleep=sleep)
        except ResourceNotFoundError:
            if step.shard_id == shard_id:
                raise
            look_up.gone()
            return
        cursor.advance(page)
        look_up.page(page.records, at_end=is_at_end(page.records, page.header))
