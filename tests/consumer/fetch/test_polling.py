from __future__ import annotations

import base64
import json
from random import Random

import pytest

from kinesis_sdk.common.errors import PermanentAwsError, ProtocolError, ThrottledError, TransientAwsError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.fetch import PollingFetcher, ReadRate, TipIdle
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.client import Client
from tests.consumer.fleet.engines import STREAM, Fleet

SHARD = "shardId-000000000000"


class Reader:
    def __init__(self, start=None, **more):
        self.fleet = Fleet(shards=more.pop("shards", 1))
        self.clock = self.fleet.clock
        self.client = self.fleet.kinesis
        self.read_rate = ReadRate()
        self.fetcher = self.make(start or TrimHorizon(), **more)

    def make(self, start, *, client=None, stream=None, max_records=10_000):
        return PollingFetcher(
            client or self.client,
            stream or StreamId(STREAM),
            SHARD,
            start,
            rng=Random(1),
            max_records=max_records,
            idle=TipIdle(1.0, 0.5, 2.0),
            read_rate=self.read_rate,
            now=self.clock.monotonic(),
            clock=self.clock,
        )

    def fetch(self):
        self.clock.advance_to(self.fetcher.due)
        return self.fetcher.fetch(self.clock.monotonic())

    def data(self):
        return [record.data for record in self.fetch().records]

    def calls(self, operation):
        return self.fleet.aws.stats()["calls"].get(operation, 0)


def spying(client, note):
    def noting(name):
        return lambda method, request: (note(name, request), method(**request))[1]

    return Client(client, **{name: noting(name) for name in ("get_shard_iterator", "get_records")})


def test_no_idle_while_behind_and_a_pause_at_the_tip():
    reader = Reader(max_records=10)
    reader.fleet.put(25)
    times = []
    for _ in range(4):
        result = reader.fetch()
        times.append((reader.clock.monotonic(), len(result.records)))
    assert [count for _, count in times] == [10, 10, 5, 0]
    assert [round(moment, 3) for moment, _ in times] == [0.0, 0.2, 0.4, 0.9]


def test_a_latest_start_is_resolved_once():
    reader = Reader(Latest())
    reader.fleet.put(3)
    reader.clock.advance(10)
    result = reader.fetch()
    assert result.records == []
    resolved = int(reader.clock.time()) * 1000 - 1000
    assert result.started_at_millis == resolved
    assert reader.fetcher.position == AtTimestamp(resolved)
    reader.fleet.put(2)
    reader.clock.advance(400)
    # A second LATEST would have skipped these two.
    assert reader.data() == [b"3", b"4"]


def test_a_latest_start_without_a_date_is_told(caplog):
    reader = Reader(Latest())
    reader.client.dated = False
    assert reader.fetch().started_at_millis is None
    assert "LATEST" in caplog.text
    assert reader.fetcher.position == Latest()


def test_start_positions():
    reader = Reader()
    reader.fleet.put(5)
    numbers = [record.sequence_number for record in reader.fetch().records]
    moment = int(reader.clock.time() * 1000)
    reader.clock.advance(5)
    reader.fleet.put(1)
    for start, first in [
        (AtSequence(numbers[2]), b"2"),
        (AfterSequence(numbers[2]), b"3"),
        (AtTimestamp(moment + 1000), b"5"),
        (TrimHorizon(), b"0"),
    ]:
        reader.fetcher = reader.make(start)
        reader.clock.advance(2)
        assert reader.data()[0] == first, str(start)


def test_throttles_back_off_and_keep_the_position():
    reader = Reader()
    reader.fleet.put(3)
    code = "ProvisionedThroughputExceededException"
    reader.fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code=code, count=6))
    pauses = []
    for _ in range(6):
        with pytest.raises(ThrottledError):
            reader.fetch()
        pauses.append(reader.fetcher.due - reader.clock.monotonic())
    assert all(0 < pause <= 5 for pause in pauses)
    assert pauses[4] > pauses[0] * 4
    assert reader.data() == [b"0", b"1", b"2"]
    assert reader.fetcher.due - reader.clock.monotonic() == pytest.approx(2.0), "others use this shard, too"
    assert reader.read_rate.interval == pytest.approx(1.9)


def test_an_answer_that_does_not_arrive_is_asked_for_in_smaller_parts():
    reader = Reader(max_records=8)
    reader.fleet.put(30)
    limits = []
    reader.fetcher = reader.make(
        TrimHorizon(),
        client=spying(reader.client, lambda name, request: limits.append(request.get("Limit"))),
        max_records=8,
    )
    reader.fleet.aws.faults.add(Fault(kind="timeout_after_storing", operation="GetRecords", count=6))
    for _ in range(6):
        with pytest.raises(TransientAwsError):
            reader.fetch()
    seen = []
    while len(seen) < 30:
        seen += reader.data()
    assert seen == [b"%d" % n for n in range(30)]
    asked = [limit for limit in limits if limit is not None]
    assert asked[:6] == [8, 8, 4, 2, 1, 1]
    assert asked[6:11] == [1, 2, 4, 8, 8]


def test_throttles_do_not_make_answers_smaller():
    reader = Reader(max_records=8)
    reader.fleet.put(8)
    code = "ProvisionedThroughputExceededException"
    reader.fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code=code, count=6))
    for _ in range(6):
        with pytest.raises(ThrottledError):
            reader.fetch()
    assert len(reader.data()) == 8


def test_how_much_a_read_may_bring():
    reader = Reader()
    most = 10 * 1024 * 1024 + 10_000 * 400
    assert reader.fetcher.expected_bytes(0.0) == most, "unknown"
    reader.fleet.put(3)
    reader.fetch()
    now = reader.clock.monotonic()
    each = 1024 * 1024 + 1000 * 400
    assert reader.fetcher.expected_bytes(now + 1.0) == 2 * each, (
        "what a shard takes in, and a second of slack"
    )
    assert reader.fetcher.expected_bytes(now + 3600) == most


def test_fetchers_of_one_shard_share_its_budget():
    reader = Reader(max_records=1)
    reader.fleet.put(30)
    for _ in range(30):
        reader.fetch()
        reader.fetcher = reader.make(reader.fetcher.position, max_records=1)
    assert reader.fleet.aws.stats()["reads_throttled"] == 0


@pytest.mark.parametrize("many", [3, 200])
def test_fast_and_plain_reads_bring_the_same(many):
    """A real boto3 client gets the fast path, a client of the same shape the plain one."""
    import boto3
    from botocore.awsrequest import AWSResponse

    from kinesis_sdk.testing import FakeAws

    aws = FakeAws()
    raw = aws.client("kinesis")
    raw.create_stream(StreamName=STREAM, ShardCount=1)
    raw.put_records(
        StreamName=STREAM, Records=[{"Data": b"%d" % n, "PartitionKey": f"k{n}"} for n in range(many)]
    )

    def answer(request, **_):
        operation = request.headers["X-Amz-Target"].decode().split(".")[1]
        asked = json.loads(request.body)
        if operation == "GetShardIterator":
            body = {"ShardIterator": raw.get_shard_iterator(**asked)["ShardIterator"]}
        else:
            page = raw.get_records(**asked)
            body = {
                "Records": [
                    {
                        **one,
                        "Data": base64.b64encode(one["Data"]).decode(),
                        "ApproximateArrivalTimestamp": one["ApproximateArrivalTimestamp"].timestamp(),
                    }
                    for one in page["Records"]
                ],
                "NextShardIterator": page["NextShardIterator"],
                "MillisBehindLatest": page["MillisBehindLatest"],
            }
        response = AWSResponse(request.url, 200, {}, None)
        response._content = json.dumps(body).encode()
        return response

    client = boto3.client(
        "kinesis", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client.meta.events.register("before-send.kinesis", answer)
    reader = Reader()
    fast = reader.make(TrimHorizon(), client=client).fetch(0.0)
    plain = reader.make(TrimHorizon(), client=Client(client)).fetch(0.0)
    assert len(fast.records) == many
    assert fast == plain


def broken(client, *changes):
    """Change the first answers of GetRecords."""
    left = list(changes)

    def get_records(method, request):
        answer = method(**request)
        return left.pop(0)(answer) if left else answer

    return Client(client, get_records=get_records)


CHILD = {
    "ShardId": "shardId-000000000001",
    "ParentShards": [SHARD],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {},
        lambda a: {**a, "Records": None},
        lambda a: {**a, "NextShardIterator": None},
        lambda a: {**a, "NextShardIterator": None, "ChildShards": []},
        lambda a: {**a, "ChildShards": [CHILD]},
        lambda a: {**a, "NextShardIterator": None, "ChildShards": [{**CHILD, "ParentShards": []}]},
        lambda a: {**a, "NextShardIterator": None, "ChildShards": [{**CHILD, "HashKeyRange": {}}]},
    ],
)
def test_a_broken_answer_is_refused_and_the_read_repeated(change):
    reader = Reader()
    reader.fleet.put(3)
    reader.fetcher = reader.make(TrimHorizon(), client=broken(reader.client, change))
    with pytest.raises(ProtocolError):
        reader.fetch()
    assert reader.data() == [b"0", b"1", b"2"]


def test_a_service_that_never_sends_children_is_asked_for_a_listing():
    reader = Reader()
    reader.fleet.put(3)
    reader.fleet.split()

    def strip(answer):
        answer = dict(answer)
        answer.pop("ChildShards", None)
        return answer

    reader.fetcher = reader.make(TrimHorizon(), client=broken(reader.client, *[strip] * 9))
    result = None
    refused = 0
    while result is None or not result.header.ended:
        try:
            result = reader.fetch()
        except ProtocolError:
            refused += 1
    assert refused == 2
    assert len(result.header.child_shards) == 2


def test_a_position_that_the_shard_does_not_have():
    reader = Reader(AtSequence("12345"))
    with pytest.raises(PermanentAwsError, match=f"{SHARD} .* AT_SEQUENCE_NUMBER 12345"):
        reader.fetch()


def test_an_arn_goes_with_every_request():
    reader = Reader()
    arn = f"arn:aws:kinesis:us-east-1:123456789012:stream/{STREAM}"
    seen = []
    spy = spying(reader.client, lambda name, request: seen.append((name, request["StreamARN"])))
    reader.fetcher = reader.make(TrimHorizon(), client=spy, stream=StreamId.parse(arn))
    reader.fetch()
    assert seen == [("get_shard_iterator", arn), ("get_records", arn)]
