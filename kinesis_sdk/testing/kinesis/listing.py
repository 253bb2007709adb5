"""Paged lists of shards and streams: ListShards with its filters, DescribeStream, ListStreams."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.testing.clock import millis
from kinesis_sdk.testing.errors import AwsError, constraint, invalid_argument
from kinesis_sdk.testing.kinesis.registry import StreamRegistry
from kinesis_sdk.testing.kinesis.shard import Shard
from kinesis_sdk.testing.kinesis.streams import Stream
from kinesis_sdk.testing.kinesis.tokens import seal, unseal

TOKEN_SECONDS = 300
_FILTERS = (
    "AFTER_SHARD_ID",
    "AT_TRIM_HORIZON",
    "FROM_TRIM_HORIZON",
    "AT_LATEST",
    "AT_TIMESTAMP",
    "FROM_TIMESTAMP",
)
_TIMED = ("AT_TIMESTAMP", "FROM_TIMESTAMP")


def page_limit(request: dict[str, Any], member: str, default: int, highest: int = 10_000) -> int:
    """Return the requested number of entries on a page."""
    value = request.get(member)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= highest:
        name = member[0].lower() + member[1:]
        raise constraint(name, value, f"have value between 1 and {highest}, both inclusive")
    return value


def _listed(shard: Shard, kind: str, at: int) -> bool:
    """Return whether a filter selects an existing shard; `at` is wall time in milliseconds."""
    created = millis(shard.created_at)
    closed = None if shard.closed_at is None else millis(shard.closed_at)
    if kind == "AT_LATEST":
        return closed is None
    if kind == "AT_TRIM_HORIZON":
        return created <= at and (closed is None or closed > at)
    if kind == "AT_TIMESTAMP":
        # Both ends are inclusive (API reference): at the millisecond of a split, the parent and its
        # children are listed.
        return created <= at and (closed is None or closed >= at)
    if kind == "FROM_TIMESTAMP":
        return closed is None or closed >= at
    return True


class ShardListing:
    """Listing operations on a registry of streams."""

    def __init__(self, registry: StreamRegistry) -> None:
        self._registry = registry

    def list_shards(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListShards. A page token expires after 300 s and excludes a stream name."""
        limit = page_limit(request, "MaxResults", 1000)
        token = request.get("NextToken")
        if token is not None:
            for member in ("StreamName", "StreamARN", "StreamCreationTimestamp", "ExclusiveStartShardId"):
                if request.get(member) is not None:
                    raise invalid_argument(f"NextToken and {member} cannot be provided together.")
            stream, after, kind, at = self._resume(token)
        else:
            stream = self._registry.find(request)
            wanted = request.get("StreamCreationTimestamp")
            if wanted is not None and int(wanted) != int(stream.created_at):
                raise self._registry.not_found(stream.name)
            kind, at, after = self._filter(request, stream)
        with stream.lock:
            if stream.status == "CREATING":
                raise AwsError(
                    "ResourceInUseException",
                    f"Stream {stream.name} under account {self._registry.account_id} is being created.",
                )
            shards = [
                shard
                for shard in stream.shards_in_order()
                if shard.shard_id > after and _listed(shard, kind, at)
            ]
            response: dict[str, Any] = {"Shards": [shard.describe() for shard in shards[:limit]]}
        if len(shards) > limit:
            response["NextToken"] = seal(
                "shards",
                stream.name,
                millis(stream.created_at),
                shards[limit - 1].shard_id,
                kind,
                at,
                millis(self._registry.clock.time()),
            )
        return response

    def _filter(self, request: dict[str, Any], stream: Stream) -> tuple[str, int, str]:
        """Return the filter kind, its time in milliseconds, and the shard id after which the list begins."""
        after = request.get("ExclusiveStartShardId") or ""
        chosen = request.get("ShardFilter")
        if chosen is None:
            return "FROM_TRIM_HORIZON", 0, after
        kind = chosen.get("Type")
        if kind not in _FILTERS:
            raise constraint("shardFilter.type", kind, f"satisfy enum value set: [{', '.join(_FILTERS)}]")
        shard_id, timestamp = chosen.get("ShardId"), chosen.get("Timestamp")
        if (shard_id is not None) != (kind == "AFTER_SHARD_ID"):
            raise invalid_argument(
                "ShardFilter: ShardId belongs to type AFTER_SHARD_ID, and to no other type."
            )
        if (timestamp is not None) != (kind in _TIMED):
            raise invalid_argument(
                f"ShardFilter: Timestamp belongs to the types {' and '.join(_TIMED)}, and to no other type."
            )
        # No record is older than the stream, so its first shards count as open at the trim horizon.
        horizon = max(stream.horizon, millis(stream.created_at))
        if kind == "AT_TRIM_HORIZON":
            return kind, horizon, after
        if timestamp is not None:
            at = millis(timestamp)
            if at > millis(self._registry.clock.time()):
                raise invalid_argument(f"ShardFilter: Timestamp {timestamp} lies in the future.")
            return kind, max(at, horizon), after
        return kind, 0, max(after, shard_id or "")

    def _resume(self, token: Any) -> tuple[Stream, str, str, int]:
        fields = unseal(token) if isinstance(token, str) else None
        if fields is None or fields[0] != "shards":
            raise invalid_argument("NextToken is invalid.")
        _, name, created, after, kind, at, issued = fields
        if millis(self._registry.clock.time()) - int(issued) > TOKEN_SECONDS * 1000:
            raise AwsError(
                "ExpiredNextTokenException",
                f"NextToken expired: it is valid for {TOKEN_SECONDS} seconds.",
            )
        stream = self._registry.by_name(name)
        if millis(stream.created_at) != int(created):
            raise self._registry.not_found(name)
        return stream, after, kind, int(at)

    def describe_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeStream: 100 shards per page by default; ``ExclusiveStartShardId`` continues."""
        stream = self._registry.find(request)
        limit = min(page_limit(request, "Limit", 100), 100)
        after = request.get("ExclusiveStartShardId") or ""
        with stream.lock:
            description = stream.describe_summary()
            shards = [shard for shard in stream.shards_in_order() if shard.shard_id > after]
        for member in (
            "OpenShardCount",
            "ConsumerCount",
            "MaxRecordSizeInKiB",
            "RecordDistributionStrategy",
        ):
            description.pop(member, None)
        description["Shards"] = [shard.describe() for shard in shards[:limit]]
        description["HasMoreShards"] = len(shards) > limit
        return {"StreamDescription": description}

    def list_streams(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListStreams: 100 streams per page by default; ``ExclusiveStartStreamName`` or ``NextToken`` continues."""
        limit = page_limit(request, "Limit", 100)
        after = request.get("ExclusiveStartStreamName") or ""
        token = request.get("NextToken")
        if token is not None:
            fields = unseal(token) if isinstance(token, str) else None
            if fields is None or fields[0] != "streams":
                raise invalid_argument("NextToken is invalid.")
            after = max(after, fields[1])
        with self._registry.lock:
            streams = [stream for name, stream in sorted(self._registry.streams.items()) if name > after]
        page = streams[:limit]
        response: dict[str, Any] = {
            "StreamNames": [stream.name for stream in page],
            "HasMoreStreams": len(streams) > limit,
            "StreamSummaries": [self._summary(stream) for stream in page],
        }
        if len(streams) > limit:
            response["NextToken"] = seal("streams", page[-1].name)
        return response

    def _summary(self, stream: Stream) -> dict[str, Any]:
        with stream.lock:
            stream.settle()
            described = stream.describe_summary()
        members = ("StreamName", "StreamARN", "StreamStatus", "StreamModeDetails", "StreamCreationTimestamp")
        return {member: described[member] for member in members}
