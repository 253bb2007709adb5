"""Copying a window of a stream into another stream: replay, migration to another region or account."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.reading import Notice, read_stream
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.admin.transfer.put import bulk_config, identity
from kinesis_sdk.admin.transfer.run import Transfer, TransferProgress, TransferRecord, TransferResult
from kinesis_sdk.admin.transfer.state import StateFile
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Latest, Position, TrimHorizon
from kinesis_sdk.common.position_text import format_position, parse_position
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer, ProducerConfig


@dataclass(frozen=True, kw_only=True)
class CopyResult:
    """The end of a copy.

    Attributes:
        transfer: Counts of the records that were put.
        start: Where the window began.
        until: End of the window; None for a copy without end.
        hidden_hash_keys: Records whose producer used an explicit hash key that Kinesis does not return, because they were not
            aggregated. In the target, their partition key places them.
    """

    transfer: TransferResult
    start: str
    until: datetime | None
    hidden_hash_keys: int


def copy_stream(
    source: Connection,
    source_stream: str | StreamId,
    target: Connection,
    target_stream: str | StreamId,
    *,
    start: Position | datetime | None = None,
    until: datetime | None = None,
    follow: bool = False,
    rate: float | None = None,
    state: StateFile | None = None,
    config: ProducerConfig | None = None,
    on_progress: Callable[[TransferProgress], None] = lambda _progress: None,
    notice: Notice = lambda _message: None,
    threads: int = 8,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> CopyResult:
    """Copy the user records of a window into another stream, with their partition keys and explicit hash keys.

    The first copies of the records of a partition key reach the target in the order of the source, even across splits and merges of both
    streams. A lost response or a killed run may add second copies. Records that share a key but have different explicit hash keys have no
    such order, in either stream.

    Args:
        source: Account and region of the source.
        source_stream: Name or ARN.
        target: Account and region of the target.
        target_stream: Name or ARN.
        start: Start of the window: a time, `TrimHorizon` (the default) or `Latest`.
        until: End of the window: excludes records that arrived at this time or later. The present by default.
        follow: Whether to continue without end.
        rate: Maximum records per second; None for no limit.
        state: State file. A continued run keeps its first window.
        config: Settings of the producer; `bulk_config` with ``ordered`` by default.
        on_progress: Called every 0.2 s at most.
        notice: Called with messages for the user.
        threads: Maximum reads at a time.
        clock: Measures; replaced in tests.
        sleep: Called with the seconds to wait; replaced in tests.

    Raises:
        ConfigError: If an argument is out of range, the state file belongs to another task, or a stream would be copied into itself.
        AwsError: If a call fails permanently.
    """
    clock = clock or SystemClock()
    if follow and until is not None:
        raise ConfigError(
            "until", until.isoformat(), "not given together with follow=True, because such a copy has no end"
        )
    origin = Streams(source).describe(source_stream)
    goal = Streams(target).describe(target_stream)
    task = {"command": "copy", "source": identity(origin), "target": identity(goal)}
    # The ARN names account and region. Other endpoints, such as LocalStack's, may have streams with the same ARN.
    if source.endpoint_url == target.endpoint_url and task["source"] == task["target"]:
        effect = "never end" if follow else "double its records"
        raise ConfigError(
            "target",
            str(target_stream),
            f"a stream other than source={str(source_stream)!r}: a copy of the stream into itself would {effect}",
        )
    with nullcontext() if state is None else state.locked():
        saved: Mapping[str, Any] = {} if state is None else state.load(task)
        window = _window(saved, start, until, follow, clock, notice)
        producer = Producer(config or bulk_config(ordered=True), client=target.kinesis)
        try:
            transfer = Transfer(
                producer,
                str(StreamId.parse(target_stream)),
                rate=rate,
                state=state,
                task=task,
                fixed={
                    "start": format_position(window.start),
                    "until": None if window.until is None else window.until.isoformat(),
                },
                on_progress=on_progress,
                clock=clock,
                sleep=sleep,
            )
            positions: dict[str, Position] = {}
            for shard_id, account in saved.get("sources", {}).items():
                through = transfer.add_source(shard_id, account).through
                if through is not None:
                    positions[shard_id] = AfterSequence(str(through[0]), sub_sequence_number=through[1])
            copied = _Copied(source, source_stream, window)
            reading = read_stream(
                source,
                source_stream,
                start=window.start,
                until=window.until,
                positions=positions,
                notice=notice,
                threads=threads,
                clock=clock,
                sleep=sleep,
            )
            result = transfer.run(copied.records(reading), copied.fraction)
        finally:
            producer.close(timeout=10.0)
    return CopyResult(
        transfer=result,
        start=format_position(window.start),
        until=window.until,
        hidden_hash_keys=copied.hidden_hash_keys,
    )


@dataclass(frozen=True)
class _Window:
    start: Position
    until: datetime | None


def _window(
    saved: Mapping[str, Any],
    start: Position | datetime | None,
    until: datetime | None,
    follow: bool,
    clock: Clock,
    notice: Notice,
) -> _Window:
    """Return the window of a run: a new window, or the window of the run that it continues.

    LATEST and the current time are resolved to times.
    """
    if saved:
        until = None if saved["until"] is None else datetime.fromisoformat(saved["until"])
        window = _Window(parse_position(saved["start"], now=None), until)
        end = "without end" if until is None else f"to {until.isoformat(timespec='seconds')}"
        notice(f"continuing the copy from {window.start} {end}")
        return window
    now = clock.time()
    if isinstance(start, datetime):
        if start.timestamp() > now:
            raise ConfigError("start", start.isoformat(), "a time that has passed")
        start = AtTimestamp(int(start.timestamp() * 1000))
    elif isinstance(start, Latest):
        start = AtTimestamp(int(now * 1000))
    if until is None and not follow:
        until = datetime.fromtimestamp(now, timezone.utc)
    return _Window(start or TrimHorizon(), until)


class _Copied:
    """The records of a copy between the reader and the transfer."""

    def __init__(self, source: Connection, stream: str | StreamId, window: _Window) -> None:
        self._streams = Streams(source)
        self._stream = stream
        self._window = window
        self._ranges: dict[str, HashKeyRange] = {}
        self._first_millis = window.start.millis if isinstance(window.start, AtTimestamp) else None
        self._last_millis: int | None = None
        self.hidden_hash_keys: int = 0

    def records(self, reading: Iterator[Any]) -> Iterator[TransferRecord]:
        """Yield the records for the transfer."""
        for shard_id, record in reading:
            arrived = record.approximate_arrival_timestamp
            if arrived is not None:
                self._last_millis = int(arrived.timestamp() * 1000)
                if self._first_millis is None:
                    self._first_millis = self._last_millis
            key = record.partition_key or None  # Kinesis returns an empty text for a record without a key
            if (
                key is not None
                and not record.aggregated
                and hash_partition_key(key) not in self._range(shard_id)
            ):
                self.hidden_hash_keys += 1
            yield TransferRecord(
                shard_id,
                (int(record.sequence_number), record.sub_sequence_number),
                record.data,
                key,
                record.explicit_hash_key,
                headers=record.headers,
            )

    def _range(self, shard_id: str) -> HashKeyRange:
        if shard_id not in self._ranges:
            self._ranges.update(
                {one.shard_id: one.hash_key_range for one in self._streams.shards(self._stream)}
            )
        return self._ranges[shard_id]

    def fraction(self) -> float | None:
        """Return the part of the window that was read, by arrival times."""
        until, first, last = self._window.until, self._first_millis, self._last_millis
        if until is None or first is None or last is None:
            return None
        span = until.timestamp() * 1000 - first
        return min(1.0, max(0.0, (last - first) / span)) if span > 0 else None
