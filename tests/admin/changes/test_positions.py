"""Times and records as checkpoints, on the fake, with the calls that they cost."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import partial
from itertools import pairwise

import pytest

from kinesis_sdk.admin.changes.positions import (
    REWIND_STARTS,
    SKIP_STARTS,
    AfterRecord,
    PositionResolver,
    parse_start,
    show_start,
)
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.errors import ConfigError, InvalidPositionError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from tests.admin.account import SHARD, Account
from tests.codecs import Deflated
from tests.common.reference import filled

DAY = 86_400.0


class Stream:
    """A stream whose reads are counted."""

    def __init__(self) -> None:
        account = Account()
        self.clock, self.client = account.clock, account.kinesis
        account.create("orders")
        self.clock.advance(5)
        self.created = self.clock.time()
        self.reads: list[float] = []
        self.put = partial(account.put, "orders")
        self.now = account.now

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def call(**request):
            if name == "get_records":
                self.reads.append(self.clock.monotonic())
            return method(**request)

        return call

    def resolve(self, start):
        resolver = PositionResolver(
            self,
            StreamId("orders"),
            clock=self.clock,
            sleep=self.clock.advance,
            horizon=max(self.clock.time() - DAY, self.created),
        )
        return resolver.resolve(SHARD, start)


@pytest.fixture
def stream():
    return Stream()


def aggregate(count: int) -> bytes:
    made = Aggregate(2**20, count)
    for number in range(count):
        assert made.try_append("k", None, b"%d" % number, hash_partition_key("k"))
    return made.encode()


@pytest.mark.parametrize("silence", [0.3, 5.0, 70.0, 900.0, 20_000.0])
def test_a_time_becomes_the_last_record_before_it(stream, silence):
    stream.put()
    stream.clock.advance(7)
    last = stream.put()
    stream.clock.advance(silence)
    start = stream.now()
    stream.clock.advance(0.01)
    stream.put()
    stream.clock.advance(3)
    found = stream.resolve(start)
    assert found.position == ExtendedSequenceNumber(last)
    assert found.arrival >= start
    assert len(stream.reads) <= 30


def test_the_last_user_record_of_an_aggregate(stream):
    last = stream.put(aggregate(25))
    stream.clock.advance(1)
    start = stream.now()
    stream.put()
    stream.clock.advance(1)
    assert stream.resolve(start).position == ExtendedSequenceNumber(last, 24)


def test_an_aggregate_whose_codec_is_not_there_counts_as_it_declares(stream):
    last = stream.put(
        filled([("k", None, b"%d" % n) for n in range(25)]).seal_with(Deflated("strange")).encode()
    )
    stream.clock.advance(1)
    after = parse_start(f"after:{last}", SKIP_STARTS, now=stream.clock.time())
    assert stream.resolve(after).position == ExtendedSequenceNumber(last, 24)
    assert stream.resolve(stream.now()).position == ExtendedSequenceNumber(last, 24)


def test_a_long_silence_after_many_records_is_narrowed_and_not_read_through(stream):
    """One read a second: reading all of the records before the silence would take minutes."""
    for _ in range(300):
        for _ in range(20):
            last = stream.put()
        stream.clock.advance(1)
    stream.clock.advance(4000)
    start = stream.now()
    stream.put()
    stream.clock.advance(1)
    assert stream.resolve(start).position == ExtendedSequenceNumber(last)
    assert len(stream.reads) <= 25


def test_no_shard_is_read_more_than_once_a_second(stream):
    stream.put()
    stream.clock.advance(5000)
    start = stream.now()
    stream.put()
    stream.clock.advance(1)
    stream.resolve(start)
    pauses = [after - before for before, after in pairwise(stream.reads)]
    assert pauses
    assert min(pauses) >= 1.0


def test_a_busy_shard_costs_one_read(stream):
    for _ in range(100):
        stream.put()
        stream.clock.advance(0.1)
    start = stream.now()
    for _ in range(100):
        stream.put()
        stream.clock.advance(0.1)
    found = stream.resolve(start)
    assert len(stream.reads) == 1
    assert found.rate == pytest.approx(10, rel=0.1)


def test_nothing_older_is_the_horizon(stream):
    start = stream.now()
    stream.clock.advance(1)
    stream.put()
    assert stream.resolve(start).position == ExtendedSequenceNumber("TRIM_HORIZON")


def test_latest_is_the_last_record_that_exists(stream):
    assert stream.resolve("LATEST").position == ExtendedSequenceNumber("TRIM_HORIZON"), "there is none"
    stream.put()
    last = stream.put(aggregate(3))
    stream.clock.advance(50)
    assert stream.resolve("LATEST").position == ExtendedSequenceNumber(last, 2)


def test_latest_of_a_closed_shard(stream):
    last = stream.put()
    stream.clock.advance(5)
    stream.client.split_shard(StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey=str(1 << 127))
    stream.clock.advance(60)
    assert stream.resolve("LATEST").position == ExtendedSequenceNumber(last)


def test_a_record_means_that_it_comes_next(stream):
    before = stream.put(aggregate(4))
    stream.clock.advance(0.01)
    record = stream.put(aggregate(10))
    stream.clock.advance(30)
    stream.put()
    assert stream.resolve(ExtendedSequenceNumber(record)).position == ExtendedSequenceNumber(before, 3)
    inside = stream.resolve(ExtendedSequenceNumber(record, 4)).position
    assert inside == ExtendedSequenceNumber(record, 3)
    with pytest.raises(ConfigError, match="an index of up to 9"):
        stream.resolve(ExtendedSequenceNumber(record, 10))


def test_records_that_have_expired_are_told(stream):
    stream.put()
    stream.clock.advance(3 * DAY)
    start = datetime.fromtimestamp(stream.clock.time() - 2 * DAY, timezone.utc)
    stream.put()
    stream.clock.advance(1)
    found = stream.resolve(start)
    assert found.position == ExtendedSequenceNumber("TRIM_HORIZON")
    assert "the stream has nothing before" in found.note


NUMBER = "4" * 56


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", "LATEST"),
        ("TRIM_HORIZON", "TRIM_HORIZON"),
        ("2026-11-21T09:00", datetime(2026, 11, 21, 9, tzinfo=timezone.utc)),
        ("-15m", datetime(2026, 11, 22, 11, 45, tzinfo=timezone.utc)),
        (f"at:{NUMBER}", ExtendedSequenceNumber(NUMBER)),
        (f"at:{NUMBER}/0", ExtendedSequenceNumber(NUMBER)),
    ],
)
def test_texts(text, start):
    now = datetime(2026, 11, 22, 12, tzinfo=timezone.utc).timestamp()
    assert parse_start(text, REWIND_STARTS, now=now) == start
    assert parse_start(show_start(start), REWIND_STARTS, now=now) == start
    if start != "TRIM_HORIZON":
        assert parse_start(text, SKIP_STARTS, now=now) == start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (f"after:{NUMBER}/7", AfterRecord(ExtendedSequenceNumber(NUMBER, 7))),
        (f"at:{NUMBER}/8", AfterRecord(ExtendedSequenceNumber(NUMBER, 7))),
        (f"AFTER:{NUMBER}", AfterRecord(ExtendedSequenceNumber(NUMBER), whole=True)),
    ],
)
def test_texts_of_places_that_are_skipped_to(text, start):
    assert parse_start(text, SKIP_STARTS, now=0.0) == start
    assert parse_start(show_start(start), SKIP_STARTS, now=0.0) == start


def test_a_rewind_begins_with_a_record():
    start = ExtendedSequenceNumber(NUMBER, 7)
    assert parse_start(f"at:{NUMBER}/7", REWIND_STARTS, now=0.0) == start
    assert parse_start(show_start(start), REWIND_STARTS, now=0.0) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "15m",
        "1700000000",
        NUMBER,
        f"{NUMBER}/7",
        f"after:{NUMBER}",
        f"after:{NUMBER}/6",
        "after:LATEST",
        "SHARD_END",
    ],
)
def test_texts_that_are_no_start_of_a_rewind(text):
    with pytest.raises(ConfigError, match=r"^to="):
        parse_start(text, REWIND_STARTS, now=0.0)


def test_a_skip_does_not_go_to_the_horizon():
    with pytest.raises(ConfigError, match=r"^to="):
        parse_start("TRIM_HORIZON", SKIP_STARTS, now=0.0)


def test_what_follows_a_record(stream):
    stream.put(aggregate(4))
    record = stream.put(aggregate(10))
    after = AfterRecord(ExtendedSequenceNumber(record, 4))
    assert stream.resolve(after).position == ExtendedSequenceNumber(record, 4)
    assert show_start(after) == f"after:{record}/4"
    whole = AfterRecord(ExtendedSequenceNumber(record), whole=True)
    assert stream.resolve(whole).position == ExtendedSequenceNumber(record, 9)
    assert show_start(whole) == f"after:{record}"
    with pytest.raises(ConfigError, match="an index of up to 9"):
        stream.resolve(AfterRecord(ExtendedSequenceNumber(record, 10)))
    with pytest.raises(InvalidPositionError):
        stream.resolve(AfterRecord(ExtendedSequenceNumber(str(int(record) + 1))))
