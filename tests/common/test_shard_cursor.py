"""The cursor that the consumer and the Spark reader share, on the fake account in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    PermanentAwsError,
    ProtocolError,
    TransientAwsError,
)
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Latest, Position, TrimHorizon
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import Fault
from tests.common.account import SHARD, STREAM, Account


class World(Account):
    def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.store(payload)

    def cursor(self, start: Position, **more: Any) -> ShardCursor:
        return ShardCursor(self, StreamId(STREAM), SHARD, start, clock=self.clock, **more)


@pytest.fixture
def world() -> World:
    return World()


def read(cursor: ShardCursor, limit: int = 100) -> list[bytes]:
    page = cursor.fetch(limit)
    cursor.advance(page)
    return [record.data for record in page.records]


OPEN, GET = "get_shard_iterator", "get_records"


def test_pages_follow_each_other_through_one_iterator(world: World) -> None:
    world.put(b"a", b"b", b"c")
    cursor = world.cursor(TrimHorizon())
    assert [read(cursor, 2), read(cursor, 2), read(cursor, 2)] == [[b"a", b"b"], [b"c"], []]
    assert world.calls == [OPEN, GET, GET, GET]


def test_a_page_that_is_not_accepted_is_read_again(world: World) -> None:
    world.put(b"a", b"b")
    cursor = world.cursor(TrimHorizon())
    first = cursor.fetch(1)
    assert cursor.position == TrimHorizon()
    assert cursor.fetch(1).records == first.records
    cursor.close()
    assert cursor.fetch(1).records == first.records
    assert world.calls == [OPEN, GET, GET, OPEN, GET]
    cursor.advance(first)
    assert cursor.position == AfterSequence(first.records[0].sequence_number)
    assert read(cursor) == [b"b"]


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "InvalidArgumentException"])
def test_a_rejected_iterator_is_replaced_at_the_position(world: World, code: str) -> None:
    world.put(b"a", b"b", b"c")
    cursor = world.cursor(TrimHorizon())
    assert read(cursor, 1) == [b"a"]
    world.aws.faults.add(Fault(kind="error", operation="GetRecords", code=code, count=1, status=400))
    assert read(cursor) == [b"b", b"c"]
    assert world.calls == [OPEN, GET, GET, OPEN, GET]
    assert world.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]


def test_an_iterator_that_is_rejected_at_once_is_the_callers_problem(world: World) -> None:
    world.put(b"a")
    cursor = world.cursor(TrimHorizon())
    world.aws.faults.add(
        Fault(kind="error", operation="GetRecords", code="ExpiredIteratorException", count=2, status=400)
    )
    with pytest.raises(ExpiredIteratorError):
        cursor.fetch(10)
    assert world.calls == [OPEN, GET, OPEN, GET]
    assert read(cursor) == [b"a"]


def test_a_rejected_iterator_is_not_used_again_if_opening_another_one_fails(world: World) -> None:
    world.put(b"a")
    cursor = world.cursor(TrimHorizon())
    assert read(cursor) == [b"a"]
    world.put(b"b")
    world.aws.faults.add(Fault(kind="expired_iterator", count=1))
    world.aws.faults.add(Fault(kind="error", operation="GetShardIterator", status=503, count=1))
    with pytest.raises(TransientAwsError):
        cursor.fetch(10)
    assert read(cursor) == [b"b"]
    assert world.calls == [OPEN, GET, GET, OPEN, OPEN, GET]


def test_other_errors_keep_the_iterator(world: World) -> None:
    world.put(b"a")
    cursor = world.cursor(TrimHorizon())
    world.aws.faults.add(Fault(kind="error", operation="GetRecords", status=503, count=1))
    with pytest.raises(TransientAwsError):
        cursor.fetch(10)
    assert read(cursor) == [b"a"]
    assert world.calls == [OPEN, GET, GET]


def test_latest_is_resolved_once(world: World) -> None:
    world.put(b"before")
    cursor = world.cursor(Latest())
    assert cursor.started_at_millis is None
    cursor.open()
    cursor.open()
    assert world.calls == [OPEN]
    resolved = int(world.clock.time()) * 1000 - 1000
    assert (cursor.started_at_millis, cursor.position) == (resolved, AtTimestamp(resolved))
    world.clock.advance(10)
    world.put(b"after")
    cursor.close()  # a second LATEST iterator would skip it
    assert b"after" in read(cursor)
    assert world.starts == ["LATEST", "AT_TIMESTAMP"]


@pytest.mark.parametrize("metadata", [None, {}, {"HTTPHeaders": {"date": "nonsense"}}])
def test_a_latest_start_without_a_date_stays_latest(
    world: World, metadata: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.change = lambda name, response: (
        {**response, "ResponseMetadata": metadata} if name == OPEN else response
    )
    cursor = world.cursor(Latest())
    cursor.open()
    assert (cursor.started_at_millis, cursor.position) == (None, Latest())
    assert "LATEST" in caplog.text


def test_an_iterator_may_be_opened_elsewhere_until_something_is_read(world: World) -> None:
    world.put(b"a", b"b", b"c")
    numbers = [record.sequence_number for record in world.cursor(TrimHorizon()).fetch(10).records]
    world.calls.clear()
    world.starts.clear()
    cursor = world.cursor(AfterSequence(numbers[1]), open_at=TrimHorizon())
    assert cursor.position == AfterSequence(numbers[1])
    assert read(cursor, 1) == [b"a"], "the caller drops what is before the position"
    cursor.close()
    assert read(cursor) == [b"b", b"c"]
    assert world.starts == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]


def test_a_position_that_the_shard_does_not_have(world: World) -> None:
    cursor = world.cursor(AfterSequence("12345", sub_sequence_number=2))
    with pytest.raises(InvalidPositionError, match=f"shard {SHARD} .*12345") as caught:
        cursor.fetch(10)
    assert (caught.value.operation, caught.value.code) == ("GetShardIterator", "InvalidArgumentException")
    assert caught.value.request_id


def test_other_permanent_errors_are_not_about_the_position(world: World) -> None:
    cursor = world.cursor(AtSequence("12345"))
    world.client.delete_stream(StreamName=STREAM)
    world.clock.advance(60)
    with pytest.raises(PermanentAwsError) as caught:
        cursor.fetch(10)
    assert not isinstance(caught.value, InvalidPositionError)


def test_a_response_without_an_iterator(world: World) -> None:
    world.change = lambda name, response: {} if name == OPEN else response
    with pytest.raises(ProtocolError, match="has no iterator"):
        world.cursor(TrimHorizon()).fetch(10)


def test_every_response_is_reported_with_the_times_of_its_call(world: World) -> None:
    seen: list[tuple[Any, float, float]] = []
    world.put(b"a")
    cursor = world.cursor(TrimHorizon(), on_response=lambda *what: seen.append(what))
    read(cursor)
    now = world.clock.time()
    assert [(sent, received) for _, sent, received in seen] == [(now, now)] * 2
    assert all(metadata["RequestId"] for metadata, _, _ in seen)


def test_at_the_tip(world: World) -> None:
    world.put(b"a", b"b")
    page = world.cursor(TrimHorizon()).fetch(3)
    assert is_at_tip(page, 3)
    assert not is_at_tip(page, 2), "a full page may have more after it"
    unreported = page._replace(header=page.header.__class__())
    assert unreported.header.millis_behind_latest is None
    assert is_at_tip(unreported, 3)
    assert not is_at_tip(unreported, 2)
