"""The stream of a run: created, resharded, deleted."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId


class StreamControl:
    """The control plane of one stream.

    `kinesis` must not go through a proxy. `rng` decides which shards to merge. `note` is called with a description of each
    change.
    """

    def __init__(
        self,
        kinesis: Any,
        stream: StreamId,
        rng: random.Random,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._rng = rng
        self._note = note

    def create(self, shards: int) -> None:
        """Create it. Its name is unique, so if it exists, an earlier attempt whose response was lost created it."""

        def make() -> None:
            with contextlib.suppress(self._kinesis.exceptions.ResourceInUseException):
                self._kinesis.create_stream(StreamName=self._stream.name, ShardCount=shards)

        self._retry(make, "CreateStream")

    def delete(self) -> None:
        """Delete it and its consumers. If it does not exist, an earlier attempt whose response was lost deleted it."""

        def delete() -> None:
            with contextlib.suppress(self._kinesis.exceptions.ResourceNotFoundException):
                self._kinesis.delete_stream(StreamName=self._stream.name, EnforceConsumerDeletion=True)

        self._retry(delete, "DeleteStream")

    def shards(self, *, only_open: bool = True) -> list[Shard]:
        """Return the stream's shards."""
        every = self._retry(lambda: list_shards(self._kinesis, self._stream), "ListShards")
        return [shard for shard in every if shard.is_open or not only_open]

    def split(self) -> None:
        """Split the widest open shard."""
        widest = max(self.shards(), key=lambda s: s.hash_key_range.end - s.hash_key_range.start)
        middle = (widest.hash_key_range.start + widest.hash_key_range.end) // 2 + 1
        self._call(
            "SplitShard",
            **self._stream.request,
            ShardToSplit=widest.shard_id,
            NewStartingHashKey=str(middle),
        )
        self._note(f"split {widest.shard_id}")

    def merge(self) -> None:
        """Merge two open neighbours."""
        ordered = sorted(self.shards(), key=lambda s: s.hash_key_range.start)
        if len(ordered) < 2:
            return
        index = self._rng.randrange(len(ordered) - 1)
        left, right = ordered[index], ordered[index + 1]
        self._call(
            "MergeShards",
            **self._stream.request,
            ShardToMerge=left.shard_id,
            AdjacentShardToMerge=right.shard_id,
        )
        self._note(f"merged {left.shard_id} and {right.shard_id}")

    def reshard(self, kind: str, fewest: int, most: int) -> None:
        """Split or merge as ``kind`` says, unless the number of open shards would leave its bounds."""
        count = len(self.shards())
        if count <= fewest or (kind == "split" and count < most):
            self.split()
        else:
            self.merge()

    def scale(self, target: int) -> None:
        """UpdateShardCount."""
        self._call(
            "UpdateShardCount",
            **self._stream.request,
            TargetShardCount=target,
            ScalingType="UNIFORM_SCALING",
        )
        self._note(f"scales to {target} shards")

    @property
    def is_resharding(self) -> bool:
        """Whether a reshard is in progress, so that Kinesis would reject another one."""
        answer = self._call("DescribeStreamSummary", **self._stream.request)
        return bool(answer["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE")

    def _call(self, operation: str, **parameters: Any) -> Any:
        method = getattr(self._kinesis, "".join("_" + c.lower() if c.isupper() else c for c in operation)[1:])
        return self._retry(lambda: method(**parameters), operation)

    def _retry(self, call: Callable[[], Any], operation: str) -> Any:
        return call_with_retries(call, operation=operation, client=self._kinesis, attempts=30, timeout=300.0)
