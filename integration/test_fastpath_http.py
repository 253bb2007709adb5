"""The fast path and boto3 side by side, over HTTP against the fake AWS: the same is stored, the same is read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config

from kinesis_sdk.common import fast_get, fast_put, fastpath
from kinesis_sdk.common.aws import make_client, translate_errors
from kinesis_sdk.common.errors import (
    AwsError,
    ExpiredIteratorError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.fastpath import GetRecordsPage, PutEntry
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import FakeAws, FakeAwsServer, Fault, VirtualClock
from tests import HANG

FAST, PLAIN = StreamId("fast"), StreamId("plain")


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(clock=VirtualClock(), throttle=False)


@pytest.fixture
def endpoint(aws: FakeAws) -> Iterator[str]:
    with FakeAwsServer(aws) as server:
        yield server.endpoint_url


@pytest.fixture
def client(endpoint: str) -> Iterator[Any]:
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="eu-central-1")
    # Several attempts, unlike the SDK's own clients: botocore's retries are part of what is tested.
    client = make_client(
        "kinesis", session=session, endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 2})
    )
    for stream in (FAST, PLAIN):
        client.create_stream(StreamName=stream.name, ShardCount=2, MaxRecordSizeInKiB=10240)
    yield client
    client.close()


def plain_put(client: Any, entries: list[PutEntry]) -> dict[str, Any]:
    items = [
        {"Data": e.data, "PartitionKey": e.partition_key}
        | ({} if e.explicit_hash_key is None else {"ExplicitHashKey": e.explicit_hash_key})
        for e in entries
    ]
    with translate_errors("PutRecords", client):
        answer: dict[str, Any] = client.put_records(StreamName=PLAIN.name, Records=items)
    return answer


def iterator_of(client: Any, stream: StreamId, shard: int) -> str:
    answer = client.get_shard_iterator(
        StreamName=stream.name, ShardId=f"shardId-{shard:012d}", ShardIteratorType="TRIM_HORIZON"
    )
    return str(answer["ShardIterator"])


def contents(client: Any, stream: StreamId) -> list[list[tuple[bytes, str]]]:
    """Data and keys of a stream shard by shard, read by boto3."""
    found = []
    for shard in range(2):
        answer = client.get_records(ShardIterator=iterator_of(client, stream, shard))
        found.append([(record["Data"], record["PartitionKey"]) for record in answer["Records"]])
    return found


def still_fast(client: Any) -> bool:
    puts, gets = fast_put._equipment.of(client), fast_get._equipment.of(client)
    return puts is not None and gets is not None and puts.useful and puts.completing and gets.useful


ODD_KEYS = ['"', "\\", "\n\x00", "é", "😀", "]}", "k" * 256, "null", "\u2028", "\ud800"]


def test_the_same_is_stored(client: Any) -> None:
    batches = [
        [PutEntry(os.urandom(index * 97 % 400), f"key-{index}") for index in range(500)],
        [PutEntry(b"", key, str(number << 122)) for number, key in enumerate(ODD_KEYS[:-1])],
        [PutEntry(os.urandom(50_000), "a", str(2**128 - 1)) for _ in range(100)],
    ]
    for entries in batches:
        fast = fastpath.put_records(client, FAST, entries)
        plain = plain_put(client, entries)
        assert fast["FailedRecordCount"] == plain["FailedRecordCount"] == 0
        assert [each["ShardId"] for each in fast["Records"]] == [each["ShardId"] for each in plain["Records"]]
    stored = contents(client, FAST)
    assert stored == contents(client, PLAIN)
    assert sum(map(len, stored)) == sum(map(len, batches))
    assert still_fast(client)


def test_the_same_is_read(client: Any) -> None:
    entries = [PutEntry(os.urandom(index * 97 % 400), f"é-{index}") for index in range(500)]
    for _ in range(3):
        fastpath.put_records(client, FAST, entries)
    stream_arn = client.describe_stream_summary(StreamName=FAST.name)["StreamDescriptionSummary"]["StreamARN"]
    for arn in (None, stream_arn):
        iterator = iterator_of(client, FAST, 0)
        read = 0
        while True:
            page = fastpath.get_records(client, iterator, 400, arn)
            plain = client.get_records(ShardIterator=iterator, Limit=400)
            assert page.records == [KinesisRecord.from_api(item) for item in plain["Records"]]
            assert page.header.millis_behind_latest == plain["MillisBehindLatest"]
            assert page.metadata["HTTPHeaders"]["date"]
            read += len(page.records)
            if not page.records:
                break
            assert page.next_iterator is not None
            iterator = page.next_iterator
        assert 500 < read < 1000
    assert still_fast(client)


def test_the_end_of_a_shard(client: Any) -> None:
    fastpath.put_records(client, FAST, [PutEntry(b"%d" % index, "k", "0") for index in range(9)])
    client.split_shard(
        StreamName=FAST.name, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(1 << 100)
    )
    iterator = iterator_of(client, FAST, 0)
    page = fastpath.get_records(client, iterator, 100)
    assert [record.data for record in page.records] == [b"%d" % index for index in range(9)]
    assert page.next_iterator is None
    assert page.child_shards == client.get_records(ShardIterator=iterator)["ChildShards"]
    assert [child["ParentShards"] for child in page.child_shards or ()] == [["shardId-000000000000"]] * 2


def test_a_record_of_ten_mebibytes(client: Any) -> None:
    data = os.urandom((10 << 20) - 1)
    fastpath.put_records(client, FAST, [PutEntry(b"first", "k", "0")])
    fastpath.put_records(client, FAST, [PutEntry(data, "k", "0")])
    page = fastpath.get_records(client, iterator_of(client, FAST, 0), 100)
    assert page.next_iterator is not None
    if len(page.records) == 1:
        page = fastpath.get_records(client, page.next_iterator, 100)
    assert page.records[-1].data == data


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(kind="throttle"), ThrottledError),
        (Fault(kind="error", status=503, count=2), TransientAwsError),
        (Fault(kind="expired_credentials"), TransientAwsError),
        (Fault(kind="timeout_after_storing", count=2), TransientAwsError),
        (Fault(kind="expired_iterator", operation="GetRecords"), ExpiredIteratorError),
    ],
)
def test_faults(aws: FakeAws, client: Any, fault: Fault, kind: type[AwsError]) -> None:
    entries = [PutEntry(b"x", "k", "0")] * 6
    for _ in range(2):
        fastpath.put_records(client, FAST, entries)
    iterator = iterator_of(client, FAST, 0)

    def outcome(call: Any) -> tuple[type[BaseException], dict[str, Any]]:
        aws.faults.clear()
        aws.faults.add(fault)
        with pytest.raises(AwsError) as caught:
            call()
        aws.faults.clear()
        return type(caught.value), {**vars(caught.value), "request_id": None}

    def plain_get() -> None:
        with translate_errors("GetRecords", client):
            client.get_records(ShardIterator=iterator, Limit=10)

    if fault.operation is None:
        ours = outcome(lambda: fastpath.put_records(client, FAST, entries))
        assert ours[0] is kind
        assert ours == outcome(lambda: plain_put(client, entries))
    ours = outcome(lambda: fastpath.get_records(client, iterator, 10))
    assert ours[0] is kind
    assert ours == outcome(plain_get)
    with pytest.raises(ResourceNotFoundError):
        fastpath.put_records(client, StreamId("missing"), entries)
    assert len(fastpath.get_records(client, iterator, 12).records) == 12
    assert still_fast(client)


def test_botocores_retries_put_the_records_once(aws: FakeAws, client: Any) -> None:
    entries = [PutEntry(b"%d" % index, "k", "0") for index in range(6)]
    fastpath.put_records(client, FAST, entries)
    aws.faults.add(Fault(kind="error", operation="PutRecords", count=1))
    aws.faults.add(Fault(kind="error", operation="GetRecords", count=1))
    answer = fastpath.put_records(client, FAST, entries)
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    page = fastpath.get_records(client, iterator_of(client, FAST, 0), 100)
    assert page.metadata["RetryAttempts"] == 1
    assert [record.data for record in page.records] == [each.data for each in entries] * 2


def test_single_records_that_fail(aws: FakeAws, client: Any) -> None:
    fastpath.put_records(client, FAST, [PutEntry(b"x", "k")])
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=2, after=1))
    answer = fastpath.put_records(client, FAST, [PutEntry(b"x", "k")] * 4)
    assert answer["FailedRecordCount"] == 2
    assert [bool(each.get("ErrorCode")) for each in answer["Records"]] == [False, True, True, False]


def test_threads_share_a_client(client: Any) -> None:
    barrier = threading.Barrier(6)

    def work(thread: int) -> list[bytes]:
        barrier.wait(HANG)
        mine = []
        for turn in range(25):
            data = [b"%d-%d-%d" % (thread, turn, index) for index in range(turn % 6 + 1)]
            fastpath.put_records(client, FAST, [PutEntry(each, "k", "0") for each in data])
            # Calls of others in between, on the same connections.
            plain_put(client, [PutEntry(b"other", "k", "0")])
            mine += data
        page: GetRecordsPage = fastpath.get_records(client, iterator_of(client, FAST, 0), 10_000)
        read = [record.data for record in page.records]
        assert [each for each in read if each in set(mine)] == mine
        return mine

    with ThreadPoolExecutor(6) as pool:
        put = [each for mine in pool.map(work, range(6)) for each in mine]
    stored, nothing = contents(client, FAST)
    assert sorted(data for data, _ in stored) == sorted(put)
    assert nothing == []
    assert contents(client, PLAIN)[0] == [(b"other", "k")] * 150
    assert still_fast(client)
