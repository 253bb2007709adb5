from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.admin.records import read_page
from kinesis_sdk.common.errors import ConfigError, InvalidPositionError
from kinesis_sdk.common.position import (
    AfterSequence,
    AtTimestamp,
    Ended,
    Latest,
    Position,
    TrimHorizon,
)
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.testing import Fault
from tests.admin.account import SHARD, Account
from tests.common.reference import aggregate_of
from tests.fuzz import how_many

START = TrimHorizon()


class Shard(Account):
    """A stream with one shard in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.client = self.kinesis
        self.create("s")

    def put(self, *payloads: bytes) -> list[str]:  # type: ignore[override]
        return [super(Shard, self).put("s", payload) for payload in payloads]

    def page(self, position: Position = START, limit: int = 100, iterator: str | None = None) -> Any:
        return read_page(
            self.connection,
            "s",
            SHARD,
            position,
            limit=limit,
            iterator=iterator,
            clock=self.clock,
            sleep=self.clock.advance,
        )

    def pages(self, limit: int) -> list[bytes]:
        """Turn pages until the tip or the end of the shard."""
        found: list[bytes] = []
        position: Position = TrimHorizon()
        for _ in range(200):
            page = self.page(position, limit)
            found += [record.data for record in page.records]
            assert len(page.records) <= limit
            position = page.next_position
            if page.at_tip or isinstance(position, Ended):
                return found
            self.clock.advance(1)
        raise AssertionError("the pages do not end")


@pytest.fixture
def shard() -> Shard:
    return Shard()


@settings(max_examples=how_many(unit=15, fuzz=60))
@given(sizes=st.lists(st.integers(1, 6), max_size=8), limit=st.integers(1, 9), closed=st.booleans())
def test_pages_have_each_user_record_once(sizes: list[int], limit: int, closed: bool) -> None:
    shard = Shard()
    expected: list[bytes] = []
    for number, size in enumerate(sizes):
        payloads = [f"{number}-{part}".encode() for part in range(size)]
        expected += payloads
        shard.put(payloads[0] if size == 1 else aggregate_of(*payloads))
    if closed:
        shard.client.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="9")
    assert shard.pages(limit) == expected


def test_the_end_of_a_shard_names_its_children(shard: Shard) -> None:
    shard.put(b"last")
    shard.client.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="9")
    page = shard.page()
    assert [record.data for record in page.records] == [b"last"]
    if not page.children:
        page = shard.page(page.next_position)
    assert page.next_position == Ended()
    assert page.children == ("shardId-000000000001", "shardId-000000000002")
    with pytest.raises(ValueError, match="read to its end"):
        shard.page(page.next_position)


def test_time_travel(shard: Shard) -> None:
    shard.put(b"old")
    shard.clock.advance(100)
    noon = int(shard.clock.time() * 1000)
    shard.put(b"new")
    assert [record.data for record in shard.page(AtTimestamp(noon)).records] == [b"new"]
    latest = shard.page(Latest())
    assert (latest.records, latest.at_tip) == ((), True)
    shard.clock.advance(5)
    shard.put(b"newest")
    assert b"newest" in [record.data for record in shard.page(latest.next_position).records]


def test_a_page_passes_answers_without_records(shard: Shard) -> None:
    shard.put(b"a")
    shard.aws.faults.add(Fault(kind="empty_read", count=3))
    page = shard.page()
    assert [record.data for record in page.records] == [b"a"]
    assert page.reads == 4
    assert shard.clock.monotonic() == pytest.approx(0.75), "never more than four reads a second"


def test_a_page_after_many_empty_answers_goes_on_and_skips_nothing(shard: Shard) -> None:
    shard.put(b"a")
    shard.clock.advance(3600)
    shard.aws.faults.add(Fault(kind="empty_read", count=6))
    first = shard.page()
    assert (first.records, first.at_tip, first.reads) == ((), False, 4)
    assert first.millis_behind_latest
    assert first.iterator
    second = shard.page(first.next_position, iterator=first.iterator)
    assert [record.data for record in second.records] == [b"a"]


def test_an_iterator_that_has_expired_is_replaced(shard: Shard) -> None:
    shard.put(aggregate_of(b"a", b"b", b"c"))
    first = shard.page(limit=1)
    shard.aws.faults.add(Fault(kind="empty_read", count=4))
    empty = shard.page(first.next_position)
    assert empty.next_position == first.next_position, "it stays inside the aggregate"
    shard.clock.advance(301)
    rest = shard.page(empty.next_position, iterator=empty.iterator)
    assert [record.data for record in rest.records] == [b"b", b"c"]


def test_throttled_reads_are_repeated(shard: Shard) -> None:
    shard.put(b"a")
    shard.aws.faults.add(Fault(kind="throttle", operation="GetRecords", count=2))
    assert len(shard.page().records) == 1


def test_a_page_as_data_for_json(shard: Shard) -> None:
    (number,) = shard.put(b'{"a": 1}')
    shard.put(aggregate_of(b"x", b"\xff"))
    data = json.loads(json.dumps(shard.page(limit=2).to_dict()))
    assert [(one["encoding"], one["data"]) for one in data["records"]] == [("json", {"a": 1}), ("text", "x")]
    assert data["records"][0]["sequence_number"] == number
    assert isinstance(parse_position(data["next_position"], now=None), AfterSequence)
    rest = shard.page(parse_position(data["next_position"], now=None))
    assert [record.data for record in rest.records] == [b"\xff"]


def test_arguments_out_of_range_are_named(shard: Shard) -> None:
    with pytest.raises(ConfigError, match=r"limit=0.*1 to 10,000"):
        shard.page(limit=0)
    with pytest.raises(InvalidPositionError):
        shard.page(AfterSequence("5"))
