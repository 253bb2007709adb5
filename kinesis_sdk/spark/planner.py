"""The driver's part of the reader: it fixes the records of a batch before any task runs.

The state of a planner is a cache: everything that decides what is read is in the offsets.

API cost: one ListShards per ``shardRefreshInterval`` and per shard that ends, one DescribeStreamSummary per minute, and one probe
(see `kinesis_sdk.spark.end_offset`) per shard and ``minProbeInterval``. A call of `plan` within that interval costs nothing and
returns the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, Latest, TrimHorizon
from kinesis_sdk.common.shards import Shard, ShardGraph, list_shards
from kinesis_sdk.spark.end_offset import Found, ShardProbe, is_reached, time_of
from kinesis_sdk.spark.errors import DataLossError, OffsetError
from kinesis_sdk.spark.lineage import admitted, initial_positions, retired, start_of
from kinesis_sdk.spark.offsets import ShardPosition, StreamOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.shardio import ShardIo

_LOGGER = logging.getLogger(__name__)

_DESCRIBE_INTERVAL = 60.0
_JITTER = 0.05
"""Seconds by which a call may come early, so that a trigger of one second does not skip every other tick."""

_FRESH = 0.9
"""Fraction of the retention period after which a position is opened by time instead of by sequence number."""

_DRAIN_MARGIN = 600_000
"""Milliseconds subtracted from the time at which a shard was seen to be empty. A record that was put a moment before may not be
readable yet, and arrival times are approximate. Compared with a retention period of a day or more, ten minutes do not matter."""

_ARRIVAL_MARGIN = 600_000
"""Milliseconds after its ending position up to which a batch read goes. Arrival times are approximate and need not increase; each
record is checked on its own."""

_LATEST_MARGIN = 1_000
"""Milliseconds before a LATEST start at which the open shards are listed. A split at the same time must not hide the parent, which
has records to deliver."""


class StreamPlanner:
    """Plans the batches of one query. Not thread-safe, because Spark makes one call at a time.

    Args:
        client: boto3 Kinesis client, or an object with its methods.
        options: Options of the reader.
        clock: Monotonic and wall clock.
        sleep: Called with the seconds to wait before a retry.
        rng: Source of jitter for the backoff; None for a new one.
        default_span: Seconds of ``maxBatchSpan`` if the user did not set it; 0 means unlimited.
    """

    def __init__(
        self,
        client: KinesisClient,
        options: SourceOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random | None = None,
        default_span: float = 0.0,
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._io = ShardIo(
            client,
            options.stream,
            clock=clock,
            sleep=sleep,
            rng=rng or Random(),
            retry_timeout=options.retry_timeout,
        )
        span = default_span if options.max_batch_span is None else options.max_batch_span
        self._span = round(span * 1000) or None
        self._graph: ShardGraph | None = None
        self._listed_at = float("-inf")
        self._described_at = float("-inf")
        self._created = 0
        self._retention = 0
        self._probes: dict[str, ShardProbe] = {}
        self._caps: dict[str, ShardPosition] | None = None
        self._stopping = False
        self._probed_at = float("-inf")
        self._planned: StreamOffset | None = None
        self._behind: dict[str, int | None] = {}

    # -- called by the engine -----------------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Return the initial offset of a query. It resolves LATEST and has no shards.

        Raises:
            AwsError: If the stream cannot be described.
        """
        self._describe()
        starting = self._options.starting_position or StartingPosition(Latest())
        return StreamOffset(
            stream=str(self._options.stream),
            created=self._created,
            starting=str(starting),
            started=self._io.service_clock.past_millis(),
        )

    def stop_at_now(self) -> None:
        """Stop at the records that the stream has now: `plan` returns its start once they are reached (AvailableNow)."""
        self._stopping = True
        self._caps = None

    def plan(self, start: StreamOffset, *, unlimited: bool = False) -> StreamOffset:
        """Return the end of the batch that starts at ``start``, or ``start`` itself if there is nothing to read.

        Args:
            start: An offset of this source.
            unlimited: Whether to ignore the limits of the options.

        Raises:
            DataLossError: If records that ``start`` needs are deleted.
            AwsError: If a call failed permanently.
        """
        now = self._clock.monotonic()
        interval = self._options.min_probe_interval
        early = now < self._probed_at + interval - min(_JITTER, interval / 10)
        if early and not self._stopping and self._planned == start:
            return start
        self._probed_at = now
        if now >= self._described_at + _DESCRIBE_INTERVAL:
            self._describe()
        self._check_stream(start)
        if self._graph is None or now >= self._listed_at + self._options.shard_refresh_interval:
            self._list()
        end = self._next(self._begin(start), unlimited=unlimited)
        if end.to_json() == start.to_json():
            end = start
        self._planned = end
        return end

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[ShardRange]:
        """Return the ranges of the batch between two offsets: always the same for the same offsets.

        Raises:
            DataLossError: If a part of the batch is older than the retention period.
            OffsetError: If the offsets are of different streams.
        """
        if start.shards and start.stream != end.stream:
            raise OffsetError(f"the checkpoint is of stream {start.stream}, not of {end.stream}")
        items: list[ShardRange] = []
        for shard_id in sorted(end.shards):
            goal, begin = end.shards[shard_id], start_of(shard_id, start, end)
            if not isinstance(goal, AfterSequence | Ended) or isinstance(begin, Ended):
                continue
            if (
                isinstance(begin, AfterSequence)
                and isinstance(goal, AfterSequence)
                and begin.number >= goal.number
            ):
                continue
            if self._described_at == float("-inf"):
                self._describe()
            begin, via = self._entry(shard_id, begin)
            items.append(ShardRange(shard_id, begin, goal, via, owned=self._owned(shard_id)))
        return items

    def plan_read(self, *, shard_ids: frozenset[str] | None = None) -> list[ShardRange]:
        """Return the ranges of a batch read: everything between the starting and the ending position, in all shards.

        Parents and children are read in parallel: completely, but without an order between shards.

        Args:
            shard_ids: Shards to read; None for all.

        Raises:
            ConfigError: If the starting position is LATEST, or a shard is named that does not exist.
            AwsError: If a call failed permanently.
        """
        options = self._options
        starting = options.starting_position or StartingPosition(TrimHorizon())
        if any(isinstance(start, Latest) for start in (starting.default, *starting.shards.values())):
            raise ConfigError(
                "startingPosition", str(starting), "a position other than LATEST for a batch read"
            )
        self._describe()
        graph = self._list()
        for name in starting.shards:
            if name not in graph.shards:
                raise ConfigError("startingPosition", name, "ids of shards that the stream lists")
        wanted = graph.shards.keys() if shard_ids is None else shard_ids
        for name in wanted - graph.shards.keys():
            raise ConfigError("shardIds", name, "ids of shards that the stream lists")
        ending = options.ending_position
        before = ending.millis if isinstance(ending, AtTimestamp) else None
        starts = {name: starting.resolve(name, 0) for name in graph.shards if name in wanted}
        if before is not None:
            starts = {
                n: p for n, p in starts.items() if not (isinstance(p, AtTimestamp) and p.millis >= before)
            }
        until = None if before is None else before + _ARRIVAL_MARGIN

        def tip(name: str) -> ShardPosition:
            closed = not graph.shards[name].is_open
            return self._probe(name).find_tip(starts[name], closed=closed, until=until)

        return [
            ShardRange(name, starts[name], goal, None, before, self._owned(name))
            for name, goal in self._for_all(tip, starts).items()
            if isinstance(goal, AfterSequence | Ended) and not is_reached(starts[name], goal)
        ]

    def report(self) -> dict[str, Any] | None:
        """Return the lag at the last `plan`, for the query's progress; None before it."""
        planned = self._planned
        if planned is None:
            return None
        following = {n: b for n, b in self._behind.items() if n in planned.shards}
        known = [lag for lag in following.values() if lag is not None]
        return {
            "behindMs": {name: following[name] for name in sorted(following)},
            # A lag that Kinesis does not report is unknown, not 0.
            "maxBehindMs": max(known, default=None if following else 0),
            "shards": len(planned.shards),
            "ended": sum(isinstance(position, Ended) for position in planned.shards.values()),
            "stream": planned.stream,
        }

    # -- reading the stream's state -----------------------------------------------------------------------------

    def _describe(self) -> None:
        def describe() -> Any:
            sent = self._clock.time()
            answer = self._client.describe_stream_summary(**self._options.stream.request)
            # It is the first response, and LATEST is about to be resolved to a time of Kinesis.
            self._io.service_clock.observe(answer.get("ResponseMetadata"), sent, self._clock.time())
            return answer

        answer = call_with_retries(
            describe,
            operation="DescribeStreamSummary",
            client=self._client,
            timeout=self._options.retry_timeout,
            sleep=self._sleep,
        )
        summary = answer["StreamDescriptionSummary"]
        self._created = int(summary["StreamCreationTimestamp"].timestamp())
        self._retention = int(summary.get("RetentionPeriodHours", 24)) * 3_600_000
        self._described_at = self._clock.monotonic()

    def _list(self) -> ShardGraph:
        self._graph = ShardGraph(self._list_shards(None))
        self._listed_at = self._clock.monotonic()
        return self._graph

    def _list_shards(self, shard_filter: Mapping[str, Any] | None) -> list[Shard]:
        return call_with_retries(
            lambda: list_shards(self._client, self._options.stream, shard_filter=shard_filter),
            operation="ListShards",
            client=self._client,
            timeout=self._options.retry_timeout,
            sleep=self._sleep,
        )

    def _probe(self, shard_id: str) -> ShardProbe:
        probe = self._probes.get(shard_id)
        if probe is None:
            lag = round(self._options.tip_lag * 1000)
            probe = self._probes[shard_id] = ShardProbe(self._io, shard_id, lag)
        return probe

    def _for_all(self, probe: Callable[[str], Any], names: Iterable[str]) -> dict[str, Any]:
        """Call a function for many shards, ``probeThreads`` at a time, and return the results by shard id."""
        ordered = sorted(names)
        threads = min(self._options.probe_threads, len(ordered))
        if threads <= 1:
            return {name: probe(name) for name in ordered}
        with ThreadPoolExecutor(threads, "kinesis-probe") as pool:
            return dict(zip(ordered, pool.map(probe, ordered), strict=True))

    # -- deciding -----------------------------------------------------------------------------------------------

    def _check_stream(self, start: StreamOffset) -> None:
        if start.stream != str(self._options.stream):
            raise OffsetError(
                f"the checkpoint is of stream {start.stream}, not of {self._options.stream}: "
                "use a checkpoint of its own for each stream"
            )
        if start.created != self._created:
            self._lose(
                f"stream {start.stream} was deleted and recreated: the positions in the checkpoint are no longer valid"
            )

    def _begin(self, start: StreamOffset) -> StreamOffset:
        """Return the start with positions: resolved if it is the initial offset, and those of the new stream after a recreation."""
        assert self._graph is not None
        if start.created != self._created:
            self._probes.clear()
            roots = initial_positions(
                self._graph, self._graph.shards, StartingPosition(TrimHorizon()), start.started
            )
            return replace(start, created=self._created, shards=roots)
        if not start.is_initial:
            return start
        starting = StartingPosition.parse(start.starting)
        default = starting.default
        candidates: Iterable[str] = self._graph.shards
        if isinstance(default, Latest):
            # Not the shards that are open now: a child created since the query started has a parent with records to deliver.
            candidates = self._open_at(start.started - _LATEST_MARGIN)
        elif isinstance(default, AtTimestamp):
            candidates = self._open_at(default.millis)
        return start.with_shards(initial_positions(self._graph, candidates, starting, start.started))

    def _open_at(self, millis: int) -> list[str]:
        # Kinesis rejects a time ahead of its own clock.
        at = min(millis, self._io.service_clock.millis() - _LATEST_MARGIN) / 1000
        found = self._list_shards({"Type": "AT_TIMESTAMP", "Timestamp": at})
        return [shard.shard_id for shard in found]

    def _next(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        graph = self._graph
        assert graph is not None
        missing = {n for n, p in start.shards.items() if n not in graph.shards and not isinstance(p, Ended)}
        if missing:
            graph = self._list()
            missing -= graph.shards.keys()
        for name in sorted(missing):
            self._lose(f"shard {name} is no longer in the stream, and was not read to its end", name)
        tracked = {name: position for name, position in start.shards.items() if name not in missing}
        fresh = admitted(graph, tracked)
        if self._stopping and self._caps is None:
            self._caps = self._find_caps(graph, {**tracked, **fresh})
        positions = {
            **tracked,
            **(fresh if self._caps is None else {n: p for n, p in fresh.items() if n in self._caps}),
        }
        following = [name for name, position in positions.items() if not isinstance(position, Ended)]
        found: dict[str, Found] = self._for_all(
            lambda name: self._find_end(name, positions[name], graph, unlimited=unlimited), following
        )
        if any(isinstance(f.end, Ended) for f in found.values()):
            # The children of the ended shards enter next.
            self._listed_at = float("-inf")
        gone = retired(graph, positions)
        ends: dict[str, ShardPosition] = {n: p for n, p in positions.items() if n not in gone}
        moved = set(ends) != set(start.shards)
        for name, result in found.items():
            self._behind[name] = result.behind
            moved = moved or result.end != positions[name]
            ends[name] = result.end
        self._probes = {name: probe for name, probe in self._probes.items() if name in ends}
        return start.with_shards(self._with_drains(ends, positions, found, moved=moved))

    def _find_end(self, name: str, start: ShardPosition, graph: ShardGraph, *, unlimited: bool) -> Found:
        begin, via = self._entry(name, start)
        options = self._options
        found = self._probe(name).find_end(
            begin,
            via=via,
            closed=not graph.shards[name].is_open,
            span=None if unlimited else self._span,
            count=None if unlimited else options.max_records_per_shard,
            cap=None if self._caps is None else self._caps.get(name, start),
        )
        # A start that was moved to another position is not progress: only records that were read are.
        return replace(found, end=start) if found.end == begin else found

    def _find_caps(self, graph: ShardGraph, tracked: Mapping[str, ShardPosition]) -> dict[str, ShardPosition]:
        """Return the position at which each shard that exists now ends, for a query that stops at the current records."""
        old: set[str] = set()
        for name in tracked:
            old.update(graph.ancestors(name))
        wanted = [n for n in graph.shards if n not in old and not isinstance(tracked.get(n), Ended)]

        def tip(name: str) -> ShardPosition:
            begin, via = self._entry(name, tracked.get(name, TrimHorizon()))
            return self._probe(name).find_tip(begin, via=via, closed=not graph.shards[name].is_open)

        return self._for_all(tip, wanted)

    def _with_drains(
        self,
        ends: dict[str, ShardPosition],
        starts: Mapping[str, ShardPosition],
        found: Mapping[str, Found],
        *,
        moved: bool,
    ) -> dict[str, ShardPosition]:
        """Return the ends with the time at which each shard that did not move was seen to be empty.

        If a shard is idle for a whole retention period, its sequence number is no longer usable, although nothing was lost. It
        then continues from this time. The time is stored with every other change, and otherwise once per quarter of the
        retention period, because each new offset is a batch.
        """
        result = dict(ends)
        due = moved
        for name, item in found.items():
            if item.drained_at is None or item.end != starts[name]:
                continue
            since = item.end.known if isinstance(item.end, AfterSequence) else time_of(item.end)
            if since is None or item.drained_at - since > self._retention // 4:
                due = due or since is not None
            if isinstance(item.end, AfterSequence):
                result[name] = replace(item.end, drained=item.drained_at - _DRAIN_MARGIN)
            elif isinstance(item.end, AtTimestamp):
                result[name] = AtTimestamp(max(item.end.millis, item.drained_at - _DRAIN_MARGIN))
        return result if due else ends

    def _entry(self, shard_id: str, position: ShardPosition) -> tuple[ShardPosition, ShardPosition | None]:
        """Return where to start reading, and where to open the iterator if Kinesis may no longer know that position."""
        if isinstance(position, Ended | TrimHorizon):
            return position, None
        now = self._io.service_clock.millis()
        known = position.known if isinstance(position, AfterSequence) else position.millis
        if known == 0:
            return position, None
        if known < now - self._retention and isinstance(position, AfterSequence):
            self._lose(
                f"shard {shard_id} was read up to sequence number {position.sequence_number}, last checked "
                f"{(now - known) / 3_600_000:.1f} h ago; the retention period is {self._retention / 3_600_000:g} h, "
                "so records in between may be deleted",
                shard_id,
            )
            return position, TrimHorizon()
        if isinstance(position, AfterSequence) and (position.arrival or 0) < now - self._retention * _FRESH:
            return position, AtTimestamp(known - _DRAIN_MARGIN)
        return position, None

    def _owned(self, shard_id: str) -> HashKeyRange | None:
        """Return the hash key range outside of which aggregates are discarded; None if none are, or if the shard is not listed."""
        if self._options.misplaced_aggregates != "discard":
            return None
        graph = self._graph
        if graph is None or shard_id not in graph.shards:
            graph = self._list()
        shard = graph.shards.get(shard_id)
        return None if shard is None else shard.hash_key_range

    def _lose(self, message: str, shard_id: str | None = None) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(message, shard_id=shard_id)
        _LOGGER.error("%s; continuing with the remaining data", message)
