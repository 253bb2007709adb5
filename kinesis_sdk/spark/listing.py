"""Control plane information about one stream: its shards, its retention period, and whether it was recreated.

Calls: one ListShards per ``shardRefreshInterval`` and one whenever a shard ends; one DescribeStreamSummary per minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.shards import Shard, ShardGraph, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.lineage import admitted, ancestors
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shardio import ShardIo

_DESCRIBE_INTERVAL = 60.0

_SERVICE_MARGIN = 1_000
"""Times in requests are this many milliseconds before the estimated time at Kinesis, because Kinesis rejects times in the future."""


class StreamListing:
    """Shards, retention period and identity of one stream at the time of the last calls.

    Args:
        io: Calls of the stream; the responses update its clock.
        retry_timeout: Seconds for which a failing call is retried.
        refresh_interval: Seconds after which the shards are listed again.

    Attributes:
        created: Creation time in epoch seconds; 0 before `describe`.
        retention: Retention period in milliseconds.
    """

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        io: ShardIo,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        retry_timeout: float,
        refresh_interval: float,
    ) -> None:
        self._client = client
        self._stream = stream
        self._io = io
        self._clock = clock
        self._sleep = sleep
        self._retry_timeout = retry_timeout
        self._refresh_interval = refresh_interval
        self._described_at = float("-inf")
        self._listed_at = float("-inf")
        self._graph = ShardGraph(())
        self._old: tuple[ShardGraph, frozenset[str], set[str]] | None = None
        self.created: int = 0
        self.retention: int = 0

    @property
    def graph(self) -> ShardGraph:
        """The shards of the last listing; the first access lists them."""
        if self._listed_at == float("-inf") and not self._graph.shards:
            self.list_shards()
        return self._graph

    def describe(self) -> None:
        """Call DescribeStreamSummary.

        Raises:
            AwsError: If the call failed permanently, or for ``retry_timeout``.
        """

        def call() -> Any:
            sent = self._clock.time()
            answer = self._client.describe_stream_summary(**self._stream.request)
            # This first response shows the time of Kinesis, to which LATEST is about to be resolved.
            self._io.service_clock.observe(answer.get("ResponseMetadata"), sent, self._clock.time())
            return answer

        answer = call_with_retries(
            call,
            operation="DescribeStreamSummary",
            client=self._client,
            timeout=self._retry_timeout,
            sleep=self._sleep,
        )
        summary = answer["StreamDescriptionSummary"]
        self.created = int(summary["StreamCreationTimestamp"].timestamp())
        self.retention = int(summary.get("RetentionPeriodHours", 24)) * 3_600_000
        self._described_at = self._clock.monotonic()

    def refresh(self) -> None:
        """Repeat DescribeStreamSummary and ListShards, each if it is due.

        Raises:
            AwsError: If a call failed permanently, or for ``retry_timeout``.
        """
        now = self._clock.monotonic()
        if now >= self._described_at + _DESCRIBE_INTERVAL:
            self.describe()
        if now >= self._listed_at + self._refresh_interval:
            self.list_shards()

    @property
    def is_described(self) -> bool:
        """Whether `describe` was called."""
        return self._described_at > float("-inf")

    def list_shards(self) -> ShardGraph:
        """Call ListShards, and return the shards."""
        self._graph = ShardGraph(self._list(None))
        self._listed_at = self._clock.monotonic()
        return self._graph

    def refresh_soon(self) -> None:
        """Let the next `refresh` list the shards, because a shard ended and its children are about to enter."""
        self._listed_at = float("-inf")

    def open_at(self, millis: int) -> list[str]:
        """Return the ids of the shards that were open at a time, in epoch milliseconds."""
        at = min(millis, self._io.service_clock.millis() - _SERVICE_MARGIN) / 1000
        return [shard.shard_id for shard in self._list({"Type": "AT_TIMESTAMP", "Timestamp": at})]

    def admitted(self, tracked: Mapping[str, ShardPosition]) -> list[str]:
        """Return the shards that enter now; see `kinesis_sdk.spark.lineage.admitted`."""
        names = frozenset(tracked)
        if self._old is None or self._old[0] is not self._graph or self._old[1] != names:
            self._old = self._graph, names, ancestors(self._graph, names)
        return admitted(self._graph, tracked, self._old[2])

    def _list(self, shard_filter: Mapping[str, Any] | None) -> list[Shard]:
        return call_with_retries(
            lambda: list_shards(self._client, self._stream, shard_filter=shard_filter),
            operation="ListShards",
            client=self._client,
            timeout=self._retry_timeout,
            sleep=self._sleep,
        )
