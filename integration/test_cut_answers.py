"""Answers cut off at every place, over real sockets: a call fails and may be repeated, or it has the whole answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration.proxy import Proxy
from kinesis_sdk.common.aws import make_client, translate_errors
from kinesis_sdk.common.errors import KinesisSdkError, PermanentAwsError
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import get_records
from kinesis_sdk.consumer.leases import DynamoDBLeaseStore, Lease
from kinesis_sdk.testing import FakeAws, FakeAwsServer

RECORDS = 6


def test_cut_answers() -> None:
    aws = FakeAws(throttle=False)
    direct = aws.client("kinesis")
    direct.create_stream(StreamName="s", ShardCount=1)
    for number in range(RECORDS):
        direct.put_record(StreamName="s", Data=b"%d" % number, PartitionKey="k")
    with FakeAwsServer(aws) as server, Proxy(server.endpoint_url) as proxy:
        kinesis = make_client("kinesis", endpoint_url=proxy.endpoint_url)
        dynamodb = make_client("dynamodb", endpoint_url=proxy.endpoint_url)
        store = DynamoDBLeaseStore(dynamodb, "leases", sleep=lambda _: None)
        store.ensure_ready()
        (shard,) = list_shards(kinesis, StreamId.parse("s"))
        assert store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
        iterator = kinesis.get_shard_iterator(
            StreamName="s", ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]

        def refused() -> Any:
            with translate_errors("Scan", dynamodb):
                return dynamodb.scan(TableName="none")

        def is_there(leases: list[Lease]) -> bool:
            return [lease.lease_key for lease in leases] == [shard.shard_id]

        def is_it(shards: list[Shard]) -> bool:
            return shards == [shard]

        calls: list[tuple[Callable[[], Any], Callable[[Any], bool]]] = [
            (store.list, is_there),
            (lambda: [store.get(shard.shard_id)], lambda found: found[0] is not None),
            (lambda: list_shards(kinesis, StreamId.parse("s")), is_it),
            (lambda: get_records(kinesis, iterator, 100).records, lambda read: len(read) == RECORDS),
        ]
        for mode in ("truncate_after", "reset_after"):
            for length in range(1, 400, 23):
                proxy.configure(**{mode: length})
                for call, is_whole in calls:
                    try:
                        answer = call()
                    except KinesisSdkError as error:
                        assert error.retryable, f"{mode}={length}: {error}"
                    else:
                        assert is_whole(answer), f"{mode}={length}: half an answer was believed"
                # What the service refuses is refused, or the call failed on the way: never a refusal out of nothing.
                with pytest.raises(KinesisSdkError) as caught:
                    refused()
                if isinstance(caught.value, PermanentAwsError):
                    assert "ResourceNotFoundException" in str(caught.value)
        proxy.heal()
        assert all(is_whole(call()) for call, is_whole in calls)
        kinesis.close()
        dynamodb.close()
