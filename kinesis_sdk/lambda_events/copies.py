"""Repetitions of idempotent producers in an event: which of its user records are processed.

An event is a part of a shard, and Lambda may begin it anywhere in the shard. So a record without an earlier copy in the
event may still be a repetition: with a client, it is looked up in the stream; without a client, it is processed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kinesis_sdk.common.aggregate_reader import SubRecordColumns, deaggregate
from kinesis_sdk.common.codec import locating
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.user_records import UserRecords

if TYPE_CHECKING:
    from kinesis_sdk.common.aws import KinesisClient
    from kinesis_sdk.common.clock import Clock
    from kinesis_sdk.common.once import Decision, LookUp
    from kinesis_sdk.common.stream import StreamId

_LOGGER = logging.getLogger("kinesis_sdk.lambda_events")

LOOK_UP_BYTES = 16 * 1024 * 1024
"""Default maximum of bytes that an event reads again: half a minute of a shard with 0.5 MB/s, which takes 8 s."""

Tagged = list[tuple[KinesisRecord, SubRecordColumns]]


def open_records(
    carriers: Sequence[KinesisRecord],
    *,
    stream_arn: str,
    shard_id: str,
    look_up: KinesisClient | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
    look_up_seconds: float | None = None,
    recognize: bool = True,
    clock: Clock | None = None,
    sleep: Callable[[float], None] | None = None,
) -> list[UserRecords]:
    """Return the user records of each Kinesis record, without repetitions. Without ``stream_arn``, nothing is dropped.

    ``carriers`` are Kinesis records of one shard, in order; there may be gaps between them. The client ``look_up``
    reads the shard, and lists shards, for records that may be repetitions: at most ``look_up_bytes``, within ``look_up_seconds`` (None for
    no limit).

    Raises:
        AwsError: If a call keeps failing for a minute.
        ProtocolError: If a response cannot be read.
    """
    tagged: Tagged = []

    def note(carrier: KinesisRecord, columns: SubRecordColumns) -> bool:
        tagged.append((carrier, columns))
        return False

    with locating(stream=stream_arn.rpartition("/")[2] or None, shard_id=shard_id or None):
        opened = [deaggregate([carrier], on_tagged=note if recognize else None) for carrier in carriers]
    if not tagged or not stream_arn or not shard_id:
        return opened
    # Imported here, because most functions never see a tagged aggregate, and each cold start would pay for the import.
    from kinesis_sdk.common.errors import ConfigError
    from kinesis_sdk.common.stream import StreamId

    try:
        stream = StreamId.parse(stream_arn)
    except ConfigError:
        return opened  # a stream of an emulator, or not a Kinesis stream
    search = None
    if look_up is not None:
        from kinesis_sdk.common.once import carry_out

        search = partial(
            carry_out,
            client=look_up,
            stream=stream,
            shard_id=shard_id,
            clock=clock,
            sleep=sleep,
            seconds=look_up_seconds,
        )
    decision = _decide(carriers, tagged, stream, shard_id, look_up_bytes, search)
    return [one.without(decision.dropped) for one in opened]


def _decide(
    carriers: Sequence[KinesisRecord],
    tagged: Tagged,
    stream: StreamId,
    shard_id: str,
    look_up_bytes: int,
    search: Callable[[LookUp], None] | None,
) -> Decision:
    from kinesis_sdk.common.once import LookUpBudget, RunReader

    # Not contiguous: a filter of the mapping, or the caller, may have left records out.
    budget = LookUpBudget(look_up_bytes)
    reader = RunReader(stream.name, shard_id, None, contiguous=False, budget=budget)
    reader.begin(carriers)
    for carrier, columns in tagged:
        reader.add(carrier, columns)
    now_millis = round(time.time() * 1000)
    look_up = reader.look_up(now_millis)
    if look_up is not None:
        if search is None:
            while look_up.step is not None:
                look_up.refused()
        else:
            search(look_up)
    decision = reader.decide(now_millis)
    if decision.named:
        _LOGGER.warning(
            "%d user records of %s from %s on are dropped: they were put for the first time, but earlier records have their dedup_id",
            decision.named,
            shard_id,
            decision.first_named,
        )
    if decision.unknown and search is not None:
        if look_up is not None and look_up.over_budget is not None:
            _LOGGER.warning(
                "%d user records of %s may be repetitions: look_up_bytes or the remaining time ended the search for earlier copies of them",
                decision.unknown,
                shard_id,
            )
        else:
            _LOGGER.warning(
                "%d user records of %s may be repetitions: the stream cannot be searched for earlier copies of them",
                decision.unknown,
                shard_id,
            )
    return decision
