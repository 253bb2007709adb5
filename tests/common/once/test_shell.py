"""Look-ups of threads that may block: which calls they make, and what failures mean."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.errors import ResourceNotFoundError, TransientAwsError
from kinesis_sdk.common.hashkeys import FULL_RANGE, HashKeyRange
from kinesis_sdk.common.once.reader import Decision, RunReader
from kinesis_sdk.common.once.shell import carry_out, is_at_end
from kinesis_sdk.common.once.table import REPEAT, Run
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import get_records
from kinesis_sdk.testing import Fault
from tests.common.account import STREAM, Account
from tests.common.once.streams import aggregate

PARENT, CHILD = "shardId-000000000000", "shardId-000000000001"


class World(Account):
    def put(self, flags: int = 0) -> None:
        self.store(aggregate([Run(1, 4, flags, b"producer", self.date, 7)], None))

    def records(self, shard_id: str) -> list[KinesisRecord]:
        iterator = self.client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        return get_records(self.client, iterator, 100).records

    def judge(
        self,
        shard_id: str,
        records: list[KinesisRecord],
        *,
        owned: HashKeyRange | None = FULL_RANGE,
        seconds: float | None = None,
        **more: Any,
    ) -> Decision:
        reader = RunReader(STREAM, shard_id, owned, **more)
        reader.begin(records)
        deaggregate(records, on_tagged=reader.add)
        look_up = reader.look_up()
        assert look_up is not None
        carry_out(
            look_up,
            self,
            StreamId(STREAM),
            shard_id,
            clock=self.clock,
            sleep=self.clock.advance,
            seconds=seconds,
        )
        return reader.decide(int(self.clock.time() * 1000))


@pytest.fixture
def world() -> World:
    return World()


def test_a_look_up_in_the_shard_costs_two_calls(world: World) -> None:
    world.put()
    world.clock.advance(5)
    world.put(REPEAT)
    assert world.judge(PARENT, world.records(PARENT)[1:], parents=()).repeated == 1
    assert world.calls == ["get_shard_iterator", "get_records"]


def test_a_look_up_in_parents_costs_seven_calls(world: World) -> None:
    world.put()
    world.split()
    world.put(REPEAT)
    assert world.judge(CHILD, world.records(CHILD)).repeated == 1
    assert sorted(world.calls) == ["get_records"] * 3 + ["get_shard_iterator"] * 3 + ["list_shards"]


def test_failures_are_tried_again(world: World) -> None:
    world.put()
    world.clock.advance(5)
    world.put(REPEAT)
    records = world.records(PARENT)
    for operation in ("GetShardIterator", "GetRecords"):
        world.aws.faults.add(Fault(kind="error", operation=operation, count=2))
    assert world.judge(PARENT, records[1:], parents=()).repeated == 1
    world.aws.faults.add(Fault(kind="error", operation="ListShards", count=2))
    assert world.judge(PARENT, records[1:]).repeated == 1


def test_a_call_that_keeps_failing_is_an_error(world: World) -> None:
    world.put(REPEAT)
    records = world.records(PARENT)
    world.aws.faults.add(Fault(kind="error", operation="GetRecords"))
    with pytest.raises(TransientAwsError):
        world.judge(PARENT, records)


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords", "ListShards"])
def test_a_look_up_that_is_throttled_ends_in_time(world: World, operation: str) -> None:
    """Other readers take what the shard gives. The record is delivered and counted, and what needs no look-up is decided."""
    world.put(REPEAT)
    world.put(REPEAT)
    records = world.records(PARENT)
    throttled = (
        "LimitExceededException" if operation == "ListShards" else "ProvisionedThroughputExceededException"
    )
    world.aws.faults.add(Fault(kind="error", operation=operation, code=throttled, status=400))
    began = world.clock.monotonic()
    decision = world.judge(PARENT, records, owned=None, parents=(), seconds=2.0)
    assert 2 <= world.clock.monotonic() - began < 2.5
    if operation == "ListShards":
        assert (decision.repeated, decision.unknown) == (0, 2), (
            "without the range, neither is known to be valid"
        )
    else:
        assert (decision.repeated, decision.unknown) == (1, 1)


@pytest.mark.parametrize("operation", ["GetRecords", "ListShards"])
def test_another_failure_is_an_error_once_the_time_is_over(world: World, operation: str) -> None:
    world.put(REPEAT)
    records = world.records(PARENT)
    world.aws.faults.add(Fault(kind="error", operation=operation))
    began = world.clock.monotonic()
    with pytest.raises(TransientAwsError):
        world.judge(PARENT, records, owned=None, seconds=2.0)
    assert world.clock.monotonic() - began < 2.5


def test_a_look_up_over_many_responses_ends_in_time(world: World) -> None:
    world.put()
    world.clock.advance(5)
    world.put(REPEAT)
    world.put(REPEAT)
    records = world.records(PARENT)
    world.aws.faults.add(Fault(kind="empty_read", operation="GetRecords"))
    original, pages = world.client.get_records, []

    def slowly(**request: Any) -> Any:
        pages.append(request)
        world.clock.advance(0.7)
        return original(**request)

    world.client.get_records = slowly
    decision = world.judge(PARENT, records[1:], parents=(), seconds=2.0)
    assert len(pages) == 3
    assert (decision.repeated, decision.unknown) == (1, 1)


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords", "ListShards"])
def test_denied_calls_are_not_tried_again(world: World, operation: str) -> None:
    world.put(REPEAT)
    records = world.records(PARENT)
    world.aws.faults.add(Fault(kind="error", operation=operation, code="AccessDeniedException", status=400))
    decision = world.judge(PARENT, records)
    assert (decision.repeated, decision.unknown) == (0, 1)
    assert len(world.calls) <= 3


def test_a_parent_that_is_gone_has_nothing(world: World) -> None:
    world.put()
    world.split()
    world.put(REPEAT)
    records = world.records(CHILD)
    gone = Fault(
        kind="error", operation="GetRecords", shard_id=PARENT, code="ResourceNotFoundException", status=400
    )
    world.aws.faults.add(gone)
    assert world.judge(CHILD, records).repeated == 0


def test_a_shard_that_is_gone_while_it_is_read_is_an_error(world: World) -> None:
    world.put(REPEAT)
    records = world.records(PARENT)
    world.aws.faults.add(
        Fault(kind="error", operation="GetRecords", code="ResourceNotFoundException", status=400)
    )
    with pytest.raises(ResourceNotFoundError):
        world.judge(PARENT, records)


RECORD = KinesisRecord(b"", "k", "1")


@pytest.mark.parametrize(
    ("records", "header", "expected"),
    [
        ([], ResponseHeader(millis_behind_latest=0), True),
        ([RECORD], ResponseHeader(millis_behind_latest=0), True),
        ([], ResponseHeader(millis_behind_latest=5), False),
        ([RECORD], ResponseHeader(), False),
        ([], ResponseHeader(), True),
        ([RECORD], ResponseHeader(ended=True), True),
    ],
)
def test_the_end_of_a_shard(records: list[KinesisRecord], header: ResponseHeader, expected: bool) -> None:
    assert is_at_end(records, header) == expected
