"""Reads the content of a stream for checks: with any boto3 client, from any service, within the service's limits.

A shard accepts five GetRecords calls a second from all of its readers together. A check next to a running consumer is therefore
rejected now and then, and reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kinesis_sdk.common.aws import call_with_retries

_TIMEOUT = 300.0
_ATTEMPTS = 1_000

Stored = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A shard and a record in it, both as the API returns them."""


def stored_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    """Return all shards of a stream."""
    shards: list[dict[str, Any]] = []
    request = {"StreamName": stream}
    while request:
        answer = _call(kinesis, "ListShards", lambda request=request: kinesis.list_shards(**request))
        shards += answer["Shards"]
        request = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
    return shards


def stored_in_shard(kinesis: Any, stream: str, shard_id: str) -> Iterator[dict[str, Any]]:
    """Yield every record of a shard up to its present end."""
    start = {"StreamName": stream, "ShardId": shard_id, "ShardIteratorType": "TRIM_HORIZON"}
    following = _call(kinesis, "GetShardIterator", lambda: kinesis.get_shard_iterator(**start))
    iterator = following["ShardIterator"]
    while iterator is not None:
        page = _call(
            kinesis, "GetRecords", lambda iterator=iterator: kinesis.get_records(ShardIterator=iterator)
        )
        yield from page["Records"]
        # A closed shard ends without an iterator, an open one with an empty response that is not behind.
        is_at_end = not page["Records"] and page["MillisBehindLatest"] == 0
        iterator = None if is_at_end else page.get("NextShardIterator")


def stored_records(kinesis: Any, stream: str) -> Iterator[Stored]:
    """Yield every record of a stream as stored, with its shard."""
    for shard in stored_shards(kinesis, stream):
        for record in stored_in_shard(kinesis, stream, shard["ShardId"]):
            yield shard, record


def _call(kinesis: Any, operation: str, call: Callable[[], Any]) -> Any:
    return call_with_retries(call, operation=operation, client=kinesis, timeout=_TIMEOUT, attempts=_ATTEMPTS)
