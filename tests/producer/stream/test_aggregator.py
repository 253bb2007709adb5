"""Open aggregates: who shares one, when it closes, and that nothing is lost on the way."""

from __future__ import annotations

import random
from types import GetSetDescriptorType, MemberDescriptorType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.stream import aggregator as module
from kinesis_sdk.producer.stream.aggregator import Aggregator, OpenAggregates
from tests.producer.support import add, make_record, shard_map

SHARD = "shardId-000000000000"
OTHER = "shardId-000000000001"
NEVER = float("inf")


def payloads(entry: Entry) -> list[bytes]:
    """What a reader finds in an entry."""
    aggregate = entry.aggregate
    record = KinesisRecord(aggregate.encode(), aggregate.partition_key, "1")
    return [user_record.data for user_record in deaggregate([record])]


def test_count_limit_closes_with_the_record_that_fills_it() -> None:
    aggregator = Aggregator(51_200, 3)
    assert add(aggregator, make_record(), SHARD) is None
    assert add(aggregator, make_record(), SHARD) is None
    entry = add(aggregator, make_record(), SHARD)
    assert entry is not None
    assert len(entry.records) == 3
    assert aggregator.next_deadline == float("inf")


def test_a_record_larger_than_the_limit_travels_alone() -> None:
    aggregator = Aggregator(100, 10)
    assert add(aggregator, make_record(data=b"small"), SHARD) is None
    small = add(aggregator, make_record(data=b"g" * 1_000), SHARD)
    assert small is not None
    assert payloads(small) == [b"small"]
    giant = add(aggregator, make_record(data=b"next"), SHARD)
    assert giant is not None
    assert giant.aggregate.encode() == b"g" * 1_000
    assert giant.size == 1_001


def test_a_single_record_that_fills_an_empty_aggregate_closes_at_once() -> None:
    aggregator = Aggregator(100, 10)
    entry = add(aggregator, make_record(data=b"g" * 1_000), SHARD)
    assert entry is not None
    assert aggregator.next_deadline == float("inf")


def test_groups_do_not_mix() -> None:
    aggregator = Aggregator(51_200, 10)
    one, two, three = make_record("a"), make_record("b"), make_record("c")
    add(aggregator, one, SHARD)
    add(aggregator, two, OTHER)
    add(aggregator, three, three.hash_key)
    entries = aggregator.close_all()
    assert [entry.shard_id for entry in entries] == [SHARD, OTHER, None]
    assert [entry.records for entry in entries] == [[one], [two], [three]]


def test_deadline_is_the_earliest_inside_and_a_later_urgent_record_moves_it() -> None:
    aggregator = Aggregator(51_200, 10)
    add(aggregator, make_record(deadline=5.0), SHARD)
    add(aggregator, make_record(deadline=7.0), SHARD)
    assert aggregator.next_deadline == 5.0
    add(aggregator, make_record(deadline=2.0), SHARD)
    assert aggregator.next_deadline == 2.0
    assert aggregator.close_due(1.999) == []
    (entry,) = aggregator.close_due(2.0)
    assert len(entry.records) == 3
    assert entry.deadline == 2.0
    assert aggregator.next_deadline == float("inf")
    assert aggregator.close_due(100.0) == []


def test_an_aggregate_that_is_due_takes_along_those_that_will_be_soon() -> None:
    aggregator = Aggregator(51_200, 10)
    for group, deadline in ((SHARD, 7.0), (OTHER, 5.0), (bytes(16), 7.001)):
        add(aggregator, make_record(deadline=deadline), group)
    assert aggregator.close_due(4.999, 2.0) == []
    assert [entry.shard_id for entry in aggregator.close_due(5.0, 2.0)] == [SHARD, OTHER]
    assert aggregator.next_deadline == 7.001


def test_aggregates_leave_early_together_unless_many_records_would_have_joined_them() -> None:
    aggregator = Aggregator(51_200, 100)

    def fill(per_aggregate: int, aggregates: int) -> None:
        for number in range(aggregates):
            for _ in range(per_aggregate):
                add(aggregator, make_record(deadline=5.0 + number / 100), bytes([number]) * 16)

    fill(2, 24)
    assert len(aggregator.close_due(5.0, 0.1, 1.0)) == 24
    assert aggregator.next_deadline == NEVER, "nothing wakes the loop"
    fill(2, 25)
    assert len(aggregator.close_due(5.0, 0.1, 1.0)) == 11, "of the deadlines within 0.1 s"
    assert aggregator.next_deadline == 5.11
    assert len(aggregator.close_due(5.11, 0.1, 1.0)) == 14, "those that are left are few"
    fill(1, 200)
    assert len(aggregator.close_due(5.0, 0.1, 9.0)) == 11 + 128, "the scan is bounded"
    assert aggregator.next_deadline == 5.0 + 139 / 100


def test_an_aggregate_that_began_with_a_retry_does_not_leave_early() -> None:
    aggregator, retried = Aggregator(51_200, 100), make_record(deadline=5.5)
    retried.due = 5.5
    for record, group in (
        (make_record(deadline=5.0), SHARD),
        (retried, OTHER),
        (make_record(deadline=5.9), OTHER),
    ):
        add(aggregator, record, group)
    add(aggregator, make_record(deadline=5.8), bytes(16))
    assert [entry.shard_id for entry in aggregator.close_due(5.0, 0.1, 1.0)] == [SHARD, None]
    assert aggregator.next_deadline == 5.5
    assert [entry.shard_id for entry in aggregator.close_due(5.5)] == [OTHER]


@pytest.mark.parametrize("settings", [{}, {"tagged": True}])
@pytest.mark.parametrize("max_count", [1, 2, 100])
def test_a_record_begins_an_aggregate_as_it_is_added_to_one(
    max_count: int, settings: dict[str, bool]
) -> None:
    def state(thing: object) -> dict[str, object]:
        skipped = {"records", "delivery", "aggregate", "form", "runs"}
        attributes = [  # a compiled class has no __slots__
            name
            for name, kind in vars(type(thing)).items()
            if isinstance(kind, (MemberDescriptorType, GetSetDescriptorType))
        ]
        return {name: getattr(thing, name) for name in attributes if name not in skipped}

    found = []
    for begins in (False, True):
        known = OpenAggregates()
        shards = shard_map((0, 0, 2**127 - 1), (1, 2**127, MAX_HASH_KEY))
        aggregator = Aggregator(51_200, max_count, shards=shards, known=known, **settings)
        first, second = make_record("first", b"1"), make_record("second", b"22", deadline=0.2)
        place = known.find("first", first.hash_key)
        assert place is not None
        closed = [
            aggregator.begin(place, first, b"1", first.hash_key, first.deadline, first.expires, 3)
            if begins
            else aggregator.add(first, b"1", first.hash_key, place.group, first.deadline, first.expires, 3),
            aggregator.add(second, b"22", second.hash_key, place.group, second.deadline, second.expires, 3),
        ]
        entries = [entry for entry in closed if entry is not None] + aggregator.close_all()
        assert [record for entry in entries for record in entry.records] == [first, second]
        assert all(record._delivery is entry.delivery for entry in entries for record in entry.records)
        assert [record._index for entry in entries for record in entry.records] == [0, int(max_count > 1)]
        found.append([(state(entry), state(entry.aggregate)) for entry in entries])
    assert found[0] == found[1]


@pytest.mark.parametrize("gather", [0.0, 4.0])
def test_what_is_due_leaves_however_the_deadlines_mix(gather: float) -> None:
    aggregator, now, rng = Aggregator(51_200, 4), 0, random.Random(1)
    for number in range(120):
        now += rng.randrange(3)
        wait = 7 if number // 30 % 2 else rng.randrange(-2, 9)  # deadlines of retries do not rise
        add(aggregator, make_record(deadline=float(now + wait)), bytes([rng.randrange(16)]) * 16)
        before = {entry: entry.deadline for entry in aggregator._open_bins.values()}
        is_due = min(before.values(), default=NEVER) <= now
        soonest = [
            [entry for entry, deadline in before.items() if deadline <= now + lead] for lead in (2, gather)
        ]
        due = soonest[0] + [entry for entry in soonest[1] if entry not in soonest[0]] if is_due else []
        assert aggregator.close_due(float(now), 2.0, gather) == due
        left = [deadline for entry, deadline in before.items() if entry not in due]
        assert now < aggregator.next_deadline <= min(left, default=NEVER)


def test_expiry_is_the_earliest_inside() -> None:
    aggregator = Aggregator(51_200, 10)
    add(aggregator, make_record(expires=9.0), SHARD)
    add(aggregator, make_record(expires=4.0), SHARD)
    (entry,) = aggregator.close_all()
    assert entry.expires == 4.0


def test_a_deadline_of_an_aggregate_that_closed_does_not_close_its_successor() -> None:
    aggregator = Aggregator(51_200, 2)
    add(aggregator, make_record(deadline=1.0), SHARD)
    assert add(aggregator, make_record(deadline=1.0), SHARD) is not None
    add(aggregator, make_record(deadline=9.0), SHARD)
    assert aggregator.close_due(1.0) == []
    assert aggregator.next_deadline == 9.0


def test_an_aggregate_of_one_hash_key_is_followed_by_another() -> None:
    aggregator = Aggregator(100, 10)
    record = make_record(data=bytes(60))
    closed = [
        entry for _ in range(5) if (entry := add(aggregator, make_record(data=bytes(60)), record.hash_key))
    ]
    assert len(closed) == 4
    assert aggregator.next_deadline < float("inf")
    assert [len(entry.records) for entry in aggregator.close_all()] == [1]
    assert aggregator.close_all() == []


def test_a_key_leads_to_the_open_aggregate_of_its_group_whichever_that_is() -> None:
    known = OpenAggregates()
    aggregator = Aggregator(51_200, 3, known=known)
    add(aggregator, make_record("a"), SHARD)
    add(aggregator, make_record("b", hash_key=7), SHARD)
    place = known.by_key["a"]
    assert "b" not in known.by_key, "it has a hash key of its own"
    assert place.entry is not None
    assert len(place.entry.records) == 2
    assert add(aggregator, make_record("a"), SHARD) is not None
    assert place.entry is None
    add(aggregator, make_record("a"), SHARD)
    assert known.by_key["a"].entry is not None
    aggregator.forget_keys()
    assert not known.by_key


def test_known_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 10)
    known = OpenAggregates()
    aggregator = Aggregator(51_200, 1_000, known=known)
    for number in range(100):
        add(aggregator, make_record(f"k{number}"), SHARD)
        assert f"k{number}" in known.by_key
        assert len(known.by_key) <= 10


def test_a_key_that_no_aggregate_knows_leads_to_the_aggregate_of_its_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 10)
    known = OpenAggregates()
    shards = shard_map((0, 0, 2**127 - 1), (1, 2**127, MAX_HASH_KEY))
    aggregator = Aggregator(51_200, 1_000, shards=shards, known=known)
    assert known.find("", bytes(16)) is None, "a record without a key goes where its stream puts it"
    for number in range(100):
        record = make_record(f"k{number}")
        place = known.find(record.partition_key, record.hash_key)
        assert place is not None
        before = place.entry
        add(aggregator, record, shards.predict(record.hash_key))
        assert place.entry is not None
        assert place.entry.records[-1] is record, "both ways lead to the same aggregate"
        assert before in {None, place.entry}
    assert len(known.by_key) == 10
    aggregator.forget_keys()
    assert known.find("k", record.hash_key) is None


def test_new_records_of_another_epoch_begin_an_aggregate_and_retried_ones_do_not() -> None:
    aggregator = Aggregator(51_200, 1_000)
    old, new, retried = make_record(), make_record(), make_record()
    add(aggregator, old, SHARD)
    closed = aggregator.add(new, b"x", new.hash_key, SHARD, 0.1, 30.0, 1)
    assert closed is not None
    assert (closed.records, closed.epoch, closed.mixed) == ([old], 0, False)
    retried.add_failed_attempt(0.0, 0.0, "InternalFailure", "")
    assert aggregator.add(retried, b"x", retried.hash_key, SHARD, 0.1, 30.0, 0) is None
    (entry,) = aggregator.close_all()
    assert (entry.records, entry.epoch, entry.mixed) == ([new, retried], 1, True)
    assert [item.epoch for item in entry.detach_records()] == [new.epoch, retried.epoch] == [1, 0]


def test_the_fast_path_does_not_wait_for_records_that_are_retried() -> None:
    # With little buffered time, a retry waits for longer than a new record may.
    known = OpenAggregates()
    aggregator = Aggregator(51_200, 1_000, known=known)
    retried, new = make_record(deadline=5.02), make_record(deadline=5.01)
    retried.add_failed_attempt(0.0, 0.0, "InternalFailure", "")
    add(aggregator, retried, SHARD)
    entry = known.by_key["k"].entry
    assert entry is not None
    assert entry.open_for == -1
    add(aggregator, new, SHARD)
    assert (entry.open_for, entry.deadline, aggregator.next_deadline) == (entry.epoch, 5.01, 5.01)
    assert entry.records == [retried, new]


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
    deadlines: dict[int, float] = {}
    for number, (key, size, group, deadline) in enumerate(items):
        data = f"{number:03d}".encode().ljust(size, b".")
        expected[group].append(data)
        record = make_record(key, data, deadline=deadline)
        deadlines[id(record)] = deadline
        entry = add(aggregator, record, group)
        if entry is not None:
            entries.append(entry)
    due = aggregator.close_due(aggregator.next_deadline)
    if not due:  # an aggregate that closed earlier had that deadline
        due = aggregator.close_due(aggregator.next_deadline)
    assert due or aggregator.next_deadline == float("inf")
    entries.extend(due)
    entries.extend(aggregator.close_all())
    found: dict[str, list[bytes]] = {SHARD: [], OTHER: []}
    for entry in entries:
        assert len(entry.records) <= max_count
        assert len(entry.records) == 1 or entry.aggregate.size <= max_size
        assert entry.aggregate.size == len(entry.aggregate.encode())
        assert entry.deadline == min(deadlines[id(record)] for record in entry.records)
        found[str(entry.shard_id)].extend(record.data for record in entry.records)
        assert payloads(entry) == [record.data for record in entry.records]
    assert found == expected
