from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.merge import ShardRecord
from kinesis_sdk.admin.reading import ReadProgress, RecordFilter, read_stream
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.common.once.table import REPEAT, Run
from kinesis_sdk.common.position import AfterSequence, Ended, Latest, Position, TrimHorizon
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.testing import Fault
from tests.admin.account import Account
from tests.common.once import streams as once
from tests.common.reference import aggregate_of
from tests.fuzz import how_many

HORIZON = TrimHorizon()
OPERATIONS = ["GetRecords", "ListShards", "GetShardIterator"]


class Stream(Account):
    """A stream in virtual time; `script` has what happens at which second while somebody reads."""

    def __init__(self, shards: int = 3, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.random = Random(seed)
        self.create("s", shards)
        self.put_so_far: list[str] = []
        self.script: list[tuple[float, Callable[[], object]]] = []
        self.progress = ReadProgress()

    def put(self, key: str | None = None, parts: int = 1) -> None:  # type: ignore[override]
        key = key or f"k{self.random.randrange(20)}"
        texts = [f"{key}:{len(self.put_so_far) + part}" for part in range(parts)]
        self.put_so_far += texts
        data = texts[0].encode() if parts == 1 else aggregate_of(*(one.encode() for one in texts), key=key)
        super().put("s", data, key)

    def reshard(self) -> None:
        """Split or merge somewhere."""
        opened = self.streams.shards("s", only_open=True)
        opened.sort(key=lambda one: one.hash_key_range)
        at = self.random.randrange(len(opened))
        if len(opened) > 1 and self.random.random() < 0.5:
            at = min(at, len(opened) - 2)
            Resharding(self.streams).merge("s", opened[at].shard_id, opened[at + 1].shard_id)
        else:
            Resharding(self.streams).split("s", opened[at].shard_id)

    def at(self, second: float, action: Callable[[], object]) -> None:
        self.script.append((self.clock.monotonic() + second, action))
        self.script.sort(key=lambda pair: pair[0])

    def sleep(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.script and self.script[0][0] <= end:
            moment, action = self.script.pop(0)
            self.clock.advance_to(moment)
            action()
        self.clock.advance_to(end)

    def read(self, start: Position | datetime = HORIZON, **options: Any) -> Iterator[ShardRecord]:
        options.setdefault("threads", 0)
        return read_stream(
            self.connection,
            "s",
            start=start,
            clock=self.clock,
            sleep=self.sleep,
            notice=self.said.append,
            rng=Random(1),
            progress=self.progress,
            **options,
        )

    def texts(self, start: Position | datetime = HORIZON, **options: Any) -> list[str]:
        options.setdefault("until", self.now())
        return [record.data.decode() for _, record in self.read(start, **options)]


def by_key(texts: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in texts:
        key, _, number = text.partition(":")
        found.setdefault(key, []).append(int(number))
    return found


@example(seed=2720935, shards=3, steps=[1, 0, 1, 1], budget=1, threads=0)
@settings(max_examples=how_many(unit=15, fuzz=40))
@given(
    seed=st.integers(0, 1 << 30),
    shards=st.integers(1, 4),
    steps=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    budget=st.sampled_from([1, 10_000, 1 << 26]),
    threads=st.sampled_from([0, 0, 3]),
)
def test_a_window_has_every_record_once_in_the_order_of_arrival(
    seed: int, shards: int, steps: list[int], budget: int, threads: int
) -> None:
    stream = Stream(shards, seed)
    for step in steps:
        if step == 0:
            stream.clock.advance(1)
            stream.reshard()
        else:
            stream.put(parts=1 if step < 8 else step - 6)
        # Arrival times have milliseconds. Records of two shards that arrive in the same one have no order.
        stream.clock.advance(0.001 + stream.random.random())
    stream.clock.advance(1)
    options: dict[str, Any] = {"threads": threads}
    if threads:
        # Threads do not wait for the virtual clock, so it has to be moved while they read.
        stream.aws.faults.clear()
    assert stream.texts(budget=budget, **options) == stream.put_so_far


@settings(max_examples=how_many(unit=15, fuzz=40))
@given(
    seed=st.integers(0, 1 << 30),
    shards=st.integers(1, 3),
    moments=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 9)), min_size=1, max_size=40),
    faults=st.lists(
        st.sampled_from(["throttle", "error", "timeout_before_storing", "empty_read", "expired_iterator"]),
        max_size=3,
    ),
    latest=st.booleans(),
)
def test_a_live_tail_loses_nothing_over_splits_merges_and_failures(
    seed: int, shards: int, moments: list[tuple[float, int]], faults: list[Any], latest: bool
) -> None:
    stream = Stream(shards, seed)
    for second, action in moments:
        stream.at(second, stream.reshard if action == 0 else stream.put)
    for kind in faults:
        # With LATEST, the first iterators say where the tail begins.
        only_reads = latest or kind in ("empty_read", "expired_iterator")
        operation = "GetRecords" if only_reads else stream.random.choice(OPERATIONS)
        stream.aws.faults.add(Fault(kind=kind, operation=operation, probability=0.3, count=8))
    end = stream.now() + timedelta(seconds=25)
    texts = stream.texts(Latest() if latest else HORIZON, until=end)
    assert sorted(texts) == sorted(stream.put_so_far)
    assert all(numbers == sorted(numbers) for numbers in by_key(texts).values()), "the order of each key"
    assert not stream.script


def test_a_hot_shard_is_split_while_the_tail_runs() -> None:
    stream = Stream(1)
    for number in range(200):
        stream.at(number / 20, stream.put)
    stream.at(2.02, lambda: Resharding(stream.streams).split("s", "0"))
    stream.at(4.02, lambda: Resharding(stream.streams).split("s", "1"))
    stream.at(6.02, lambda: Resharding(stream.streams).merge("s", "3", "4"))
    texts = stream.texts(Latest(), until=stream.now() + timedelta(seconds=20))
    assert texts == stream.put_so_far, "in order as well: arrival times differ"
    assert stream.said[0] == "shard 0 has ended; going on with 1, 2"


def test_idle_shards_are_read_once_a_second_and_busy_ones_four_times() -> None:
    stream = Stream(2)
    stream.texts(Latest(), until=stream.now() + timedelta(seconds=60))
    assert stream.aws.stats()["calls"]["GetRecords"] <= 2 * 63
    busy = Stream(1)
    for _ in range(300):
        busy.put()
        busy.clock.advance(0.01)
    before = busy.clock.monotonic()
    texts = busy.texts(budget=1)
    assert texts == busy.put_so_far
    reads = busy.aws.stats()["calls"]["GetRecords"]
    assert reads > 20, "the budget allows few records a read"
    assert (reads - 1) / (busy.clock.monotonic() - before) <= 4.01
    assert busy.aws.stats()["reads_throttled"] == 0


def test_memory_is_bounded_by_the_budget() -> None:
    stream = Stream(2)
    for _ in range(900):
        stream.put("only-one-shard")
        stream.clock.advance(0.002)
    reading = stream.read(until=stream.now(), budget=20_000)
    next(reading)
    assert stream.aws.stats()["records_read"] < 200


def test_windows_begin_and_end_at_their_times() -> None:
    stream = Stream(2)
    times: list[datetime] = []
    for _ in range(40):
        times.append(stream.now())
        stream.put()
        stream.clock.advance(1)
    stream.reshard()
    window = stream.texts(times[10], until=times[20])
    assert window == stream.put_so_far[10:20]
    assert stream.texts(times[39], until=times[39]) == []
    with pytest.raises(ConfigError, match="a time that has passed"):
        stream.texts(stream.now() + timedelta(hours=1))


def test_times_that_are_not_monotonic_do_not_lose_records_before_the_end() -> None:
    stream = Stream(1)
    stream.put("k")
    stream.clock.advance(10)
    end = stream.now()
    stream.put("k")
    stream.aws.faults.add(Fault(kind="early_arrival", seconds=0.5, count=1))
    stream.put("k")
    stream.clock.advance(5)
    assert stream.texts(until=end) == ["k:0", "k:2"]


def test_chosen_shards_only() -> None:
    stream = Stream(3)
    for _ in range(60):
        stream.put()
    stream.clock.advance(1)
    Resharding(stream.streams).split("s", "1")
    found = list(stream.read(until=stream.now(), shards=["1"]))
    assert {shard for shard, _ in found} == {"shardId-000000000001"}
    assert stream.said == ["shard 1 has ended; the shards after it are 3, 4"]
    with pytest.raises(ConfigError, match="shard='77'"):
        next(stream.read(shards=["77"]))


def test_a_reader_continues_where_another_stopped() -> None:
    stream = Stream(2, seed=5)
    for number in range(60):
        if number in (20, 40):
            stream.reshard()
        stream.put(parts=3 if number % 5 == 0 else 1)
        stream.clock.advance(1)
    until = stream.now()
    for stop in range(0, len(stream.put_so_far), 7):
        positions: dict[str, Position] = {}
        first: list[str] = []
        for shard_id, record in stream.read(until=until):
            if len(first) == stop:
                break
            first.append(record.data.decode())
            positions[shard_id] = AfterSequence(
                record.sequence_number, sub_sequence_number=record.sub_sequence_number
            )
        rest = [one.record.data.decode() for one in stream.read(until=until, positions=positions)]
        assert sorted(first + rest) == sorted(stream.put_so_far)
    done: dict[str, Position] = {one.shard_id: Ended() for one in stream.streams.shards("s")}
    assert list(stream.read(until=until, positions=done)) == []


def test_permanent_failures_are_raised_and_the_others_after_a_while() -> None:
    stream = Stream(1)
    stream.aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="GetRecords"))
    with pytest.raises(AwsError, match="AccessDenied"):
        stream.texts()
    stream.aws.faults.clear()
    stream.aws.faults.add(Fault(kind="error", operation="GetRecords"))
    with pytest.raises(AwsError, match="InternalFailure"):
        stream.texts()
    assert stream.said, "it said that it waits"
    stream.aws.faults.clear()
    stream.aws.faults.add(Fault(kind="throttle", operation="GetRecords", count=60))
    stream.put()
    stream.clock.advance(1)
    assert stream.texts() == stream.put_so_far, "throttling passes, however long it takes"
    assert any("used up by other readers" in word for word in stream.said)


def test_filters() -> None:
    record = UserRecord("grün {1}".encode(), "key", "1")
    assert RecordFilter.make().accepts(record)
    assert RecordFilter.make(["key", "other"], "gr.+n").accepts(record)
    assert not RecordFilter.make(["other"]).accepts(record)
    assert not RecordFilter.make(grep="(?i)BLUE").accepts(record)
    with pytest.raises(ConfigError, match=r"grep='\('"):
        RecordFilter.make(grep="(")


class WithoutChildren:
    """A client of an emulator whose GetRecords does not name the children of a shard."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_records(self, **request: Any) -> Any:
        response = self._client.get_records(**request)
        response.pop("ChildShards", None)
        return response


def test_children_are_found_in_the_listing_even_if_it_is_torn() -> None:
    stream = Stream(2)
    stream.connection = Connection(clients={"kinesis": WithoutChildren(stream.kinesis)})
    for number in range(100):
        stream.at(number / 10, stream.put)
    stream.at(3.05, lambda: Resharding(stream.streams).split("s", "0"))
    stream.at(6.05, lambda: Resharding(stream.streams).merge("s", "3", "1"))
    stream.at(3.1, lambda: stream.aws.faults.add(Fault(kind="torn_listing", count=2)))
    assert stream.texts(Latest(), until=stream.now() + timedelta(seconds=20)) == stream.put_so_far
    assert stream.said == [
        "shard 0 has ended; going on with 2, 3",
        "shard 1 has ended; going on with 4",
    ] or stream.said == ["shard 0 has ended; going on with 2, 3", "shard 3 has ended; going on with 4"]


def test_a_torn_listing_at_the_start_hides_no_shard() -> None:
    stream = Stream(3)
    for _ in range(50):
        stream.put()
    stream.clock.advance(1)
    stream.aws.faults.add(Fault(kind="torn_listing", count=3))
    assert sorted(stream.texts()) == sorted(stream.put_so_far)


def test_every_stored_copy_is_shown() -> None:
    """Also a repetition of an idempotent producer, which workers leave out."""
    stream = Stream(shards=1)
    date = int(stream.clock.time() * 1000)
    for flags in (0, REPEAT):
        data = once.aggregate([Run(2, 4, flags, b"producer", date, 7)], "shardId-000000000000", stream="s")
        stream.kinesis.put_record(StreamName="s", PartitionKey="a", ExplicitHashKey="1", Data=data)
        stream.clock.advance(5)
    assert stream.texts() == ["7", "8", "7", "8"]
