"""Open aggregates: who shares one, when it closes, and that nothing is lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.aggregation import deaggregate
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.producer import aggregator as module
from kinesis_sdk.producer.aggregator import Aggregator, Entry
from tests.producer.support import make_record

SHARD = "shardId-000000000000"
OTHER = "shardId-000000000001"


def payloads(entry: Entry) -> list[bytes]:
    """What a reader finds in an entry."""
    aggregate = entry.aggregate
    record = KinesisRecord(aggregate.encode(), aggregate.partition_key, "1")
    return [user_record.data for user_record in deaggregate([record])]


def test_count_limit_closes_with_the_record_that_fills_it() -> None:
    aggregator = Aggregator(51_200, 3)
    assert aggregator.add(make_record(), SHARD) is None
    assert aggregator.add(make_record(), SHARD) is None
    entry = aggregator.add(make_record(), SHARD)
    assert entry is not None
    assert len(entry.records) == 3
    assert aggregator.next_deadline is None


def test_size_limit_closes_before_the_overflow_and_loses_nothing() -> None:
    aggregator = Aggregator(500, 10**6)
    entries = []
    sent = [f"{number:04d}".encode() * 10 for number in range(100)]
    for data in sent:
        entry = aggregator.add(make_record(data=data), SHARD)
        if entry is not None:
            entries.append(entry)
    entries.extend(aggregator.close_all())
    assert all(len(entry.aggregate.encode()) <= 500 for entry in entries)
    assert len(entries) > 5
    assert [data for entry in entries for data in payloads(entry)] == sent


def test_a_record_larger_than_the_limit_travels_alone() -> None:
    aggregator = Aggregator(100, 10)
    assert aggregator.add(make_record(data=b"small"), SHARD) is None
    small = aggregator.add(make_record(data=b"g" * 1_000), SHARD)
    assert small is not None
    assert payloads(small) == [b"small"]
    giant = aggregator.add(make_record(data=b"next"), SHARD)
    assert giant is not None
    assert giant.aggregate.encode() == b"g" * 1_000
    assert giant.size == 1_001


def test_a_single_record_that_fills_an_empty_aggregate_closes_at_once() -> None:
    aggregator = Aggregator(100, 10)
    entry = aggregator.add(make_record(data=b"g" * 1_000), SHARD)
    assert entry is not None
    assert aggregator.next_deadline is None


def test_groups_do_not_mix() -> None:
    aggregator = Aggregator(51_200, 10)
    one, two, three = make_record("a"), make_record("b"), make_record("c")
    aggregator.add(one, SHARD)
    aggregator.add(two, OTHER)
    aggregator.add(three, three.hash_key)
    entries = list(aggregator.close_all())
    assert [entry.shard_id for entry in entries] == [SHARD, OTHER, None]
    assert [entry.records for entry in entries] == [[one], [two], [three]]


def test_deadline_is_the_earliest_inside_and_a_later_urgent_record_moves_it() -> None:
    aggregator = Aggregator(51_200, 10)
    aggregator.add(make_record(deadline=5.0), SHARD)
    aggregator.add(make_record(deadline=7.0), SHARD)
    assert aggregator.next_deadline == 5.0
    aggregator.add(make_record(deadline=2.0), SHARD)
    assert aggregator.next_deadline == 2.0
    assert list(aggregator.close_due(1.999)) == []
    (entry,) = aggregator.close_due(2.0)
    assert len(entry.records) == 3
    assert entry.deadline == 2.0
    assert aggregator.next_deadline is None
    assert list(aggregator.close_due(100.0)) == []


def test_expiry_is_the_earliest_inside() -> None:
    aggregator = Aggregator(51_200, 10)
    aggregator.add(make_record(expires=9.0), SHARD)
    aggregator.add(make_record(expires=4.0), SHARD)
    (entry,) = aggregator.close_all()
    assert entry.expires == 4.0


def test_a_deadline_of_an_aggregate_that_closed_does_not_close_its_successor() -> None:
    aggregator = Aggregator(51_200, 2)
    aggregator.add(make_record(deadline=1.0), SHARD)
    assert aggregator.add(make_record(deadline=1.0), SHARD) is not None
    aggregator.add(make_record(deadline=9.0), SHARD)
    assert list(aggregator.close_due(1.0)) == []
    assert aggregator.next_deadline == 9.0


def test_take_all_returns_every_record_oldest_first() -> None:
    aggregator = Aggregator(51_200, 10)
    records = [make_record(arrived=float(n)) for n in range(6)]
    for number, record in enumerate(reversed(records)):
        aggregator.add(record, SHARD if number % 2 else OTHER)
    assert aggregator.take_all() == records
    assert aggregator.take_all() == []


def test_deadlines_of_closed_aggregates_do_not_pile_up() -> None:
    aggregator = Aggregator(51_200, 2)
    aggregator.add(make_record(deadline=3_600.0), OTHER)  # stays at the head of the queue
    for number in range(20_000):
        aggregator.add(make_record(deadline=3_601.0 + number), SHARD)
    assert len(aggregator._deadlines) < 2 * module._SPARE_DEADLINES
    assert aggregator.next_deadline == 3_600.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "ключ", "🔑" * 20]),
            st.integers(0, 120),
            st.sampled_from([SHARD, OTHER]),
            st.floats(0, 10),
        ),
        max_size=60,
    ),
    st.integers(64, 400),
    st.integers(1, 9),
)
def test_every_record_leaves_exactly_once_within_the_limits(
    items: list[tuple[str, int, str, float]], max_size: int, max_count: int
) -> None:
    aggregator = Aggregator(max_size, max_count)
    entries: list[Entry] = []
    expected: dict[str, list[bytes]] = {SHARD: [], OTHER: []}
    for number, (key, size, group, deadline) in enumerate(items):
        data = f"{number:03d}".encode().ljust(size, b".")
        expected[group].append(data)
        entry = aggregator.add(make_record(key, data, deadline=deadline), group)
        if entry is not None:
            entries.append(entry)
    earliest = aggregator.next_deadline
    if earliest is not None:
        due = list(aggregator.close_due(earliest))
        assert due
        entries.extend(due)
    entries.extend(aggregator.close_all())
    found: dict[str, list[bytes]] = {SHARD: [], OTHER: []}
    for entry in entries:
        assert len(entry.records) <= max_count
        assert len(entry.records) == 1 or entry.aggregate.size <= max_size
        assert entry.aggregate.size == len(entry.aggregate.encode())
        assert entry.deadline == min(record.deadline for record in entry.records)
        found[str(entry.shard_id)].extend(record.data for record in entry.records)
        assert payloads(entry) == [record.data for record in entry.records]
    assert found == expected
