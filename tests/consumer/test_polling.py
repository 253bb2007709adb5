from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.common.errors import PermanentAwsError, ProtocolError, ThrottledError, TransientAwsError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.fetch import PollingFetcher, Position
from kinesis_sdk.testing import Fault
from tests.consumer.simulation import STREAM, Fleet

SHARD = "shardId-000000000000"


class Reader:
    def __init__(self, start=None, **more):
        self.fleet = Fleet(shards=more.pop("shards", 1))
        self.clock = self.fleet.clock
        self.client = self.fleet.kinesis
        self.fetcher = self.make(start or Position.trim_horizon(), **more)

    def make(self, start, *, client=None, stream=None, max_records=10_000):
        return PollingFetcher(
            client or self.client,
            stream or StreamId(STREAM),
            SHARD,
            start,
            rng=Random(1),
            max_records=max_records,
            idle_time=1.0,
            now=self.clock.monotonic(),
        )

    def fetch(self):
        self.clock.advance_to(self.fetcher.due)
        return self.fetcher.fetch(self.clock.monotonic())

    def data(self):
        return [record.data for record in self.fetch().records]

    def calls(self, operation):
        return self.fleet.aws.stats()["calls"].get(operation, 0)


def test_no_idle_while_behind_and_one_idle_at_the_tip():
    reader = Reader(max_records=10)
    reader.fleet.put(25)
    times = []
    for _ in range(4):
        result = reader.fetch()
        times.append((reader.clock.monotonic(), len(result.records)))
    assert [count for _, count in times] == [10, 10, 5, 0]
    assert [round(moment, 3) for moment, _ in times] == [0.0, 0.2, 0.4, 1.4]


def test_five_reads_a_second_are_never_exceeded():
    reader = Reader(max_records=1)
    reader.fleet.put(60)
    for _ in range(60):
        reader.fetch()
    assert reader.fleet.aws.stats()["reads_throttled"] == 0
    assert reader.calls("GetShardIterator") == 1


def test_an_expired_iterator_continues_after_the_last_record():
    reader = Reader()
    reader.fleet.put(3)
    assert reader.data() == [b"0", b"1", b"2"]
    reader.fleet.put(2)
    reader.clock.advance(400)
    assert reader.data() == [b"3", b"4"]
    assert reader.calls("GetShardIterator") == 2


def test_a_latest_start_is_resolved_once():
    reader = Reader(Position.latest())
    reader.fleet.put(3)
    reader.clock.advance(10)
    result = reader.fetch()
    assert result.records == []
    resolved = int(reader.clock.time()) * 1000 - 1000
    assert result.started_at_millis == resolved
    assert reader.fetcher.position == Position.at_timestamp(resolved)
    reader.fleet.put(2)
    reader.clock.advance(400)
    # A second LATEST would have skipped these two.
    assert reader.data() == [b"3", b"4"]


def test_a_latest_start_without_a_date_is_told(caplog):
    reader = Reader(Position.latest())
    reader.client.dated = False
    assert reader.fetch().started_at_millis is None
    assert "can not be remembered" in caplog.text
    assert reader.fetcher.position == Position.latest()


def test_start_positions():
    reader = Reader()
    reader.fleet.put(5)
    numbers = [record.sequence_number for record in reader.fetch().records]
    moment = int(reader.clock.time() * 1000)
    reader.clock.advance(5)
    reader.fleet.put(1)
    for start, first in [
        (Position.at_sequence_number(numbers[2]), b"2"),
        (Position.after_sequence_number(numbers[2]), b"3"),
        (Position.at_timestamp(moment + 1000), b"5"),
        (Position.trim_horizon(), b"0"),
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
    assert reader.fetcher.due - reader.clock.monotonic() == pytest.approx(1.0)


def test_a_lost_answer_is_read_again():
    reader = Reader()
    reader.fleet.put(3)
    reader.fleet.aws.faults.add(Fault(kind="timeout_after_storing", operation="GetRecords", count=1))
    with pytest.raises(TransientAwsError):
        reader.fetch()
    assert reader.data() == [b"0", b"1", b"2"]


def test_the_end_of_a_shard_names_its_children():
    reader = Reader()
    reader.fleet.put(3)
    reader.fleet.split()
    result = reader.fetch()
    while not result.ended:
        result = reader.fetch()
    assert [child.shard_id for child in result.child_shards] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]
    assert all(child.parents == (SHARD,) for child in result.child_shards)


class Broken:
    """Changes answers of the service."""

    def __init__(self, client, operation, *changes):
        self.client = client
        self.operation = operation
        self.changes = list(changes)

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if name != self.operation:
            return method

        def call(**request):
            answer = method(**request)
            return self.changes.pop(0)(answer) if self.changes else answer

        return call


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
    reader.fetcher = reader.make(Position.trim_horizon(), client=Broken(reader.client, "get_records", change))
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

    reader.fetcher = reader.make(
        Position.trim_horizon(), client=Broken(reader.client, "get_records", *[strip] * 9)
    )
    result = None
    refused = 0
    while result is None or not result.ended:
        try:
            result = reader.fetch()
        except ProtocolError:
            refused += 1
    assert refused == 2
    assert len(result.child_shards) == 2


def test_a_position_that_the_shard_does_not_have():
    reader = Reader(Position.at_sequence_number("12345"))
    with pytest.raises(
        PermanentAwsError, match=r"shard shardId-000000000000 can not be read from AT_SEQUENCE_NUMBER 12345"
    ):
        reader.fetch()


def test_an_arn_goes_with_every_request():
    reader = Reader()
    arn = f"arn:aws:kinesis:us-east-1:123456789012:stream/{STREAM}"
    seen = []

    class Spy:
        meta = reader.client.meta

        def __getattr__(self, name):
            def call(**request):
                seen.append((name, request["StreamARN"]))
                return getattr(reader.client, name)(**request)

            return call

    reader.fetcher = reader.make(Position.trim_horizon(), client=Spy(), stream=StreamId.parse(arn))
    reader.fetch()
    assert seen == [("get_shard_iterator", arn), ("get_records", arn)]
